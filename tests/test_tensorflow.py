"""TensorFlow's adapter: eager calls, tf.function, XLA, vectorized_map, variables, devices, patch, refusals."""

import pickle
from functools import partial

import numpy as np
import peaks
import pytest

tf = pytest.importorskip("tensorflow")

import einsumx  # noqa: E402
from einsumx.backends.tensorflow import ADAPTER  # noqa: E402
from einsumx.backends.tensorflow.choices import grouped, is_wide_broadcast, sum_passes  # noqa: E402


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def hosts(rng, *shapes, dtype="float64"):
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def tensors(rng, *shapes, dtype="float64"):
    return [tf.constant(host) for host in hosts(rng, *shapes, dtype=dtype)]


def close(result, equation, *operands):
    expected = np.einsum(equation, *map(np.asarray, operands))
    return result.shape == expected.shape and np.allclose(result, expected)


# -- tracing ----------------------------------------------------------------------------------------------------


def test_an_expression_is_traced_by_several_functions(rng):
    a, b, c = tensors(rng, (3, 4), (4, 5), (5, 2))
    chain = einsumx.expression("ij,jk,kl->il", (3, 4), b, tf.Variable(c), optimize=[(1, 2), (0, 1)])
    total = einsumx.expression("ij,jk->i", (3, 4), b)
    for call, factor in ((chain, b @ c), (total, tf.reduce_sum(b, 1, keepdims=True))):
        functions = [tf.function(call), tf.function(call), tf.function(call, jit_compile=True), call]
        for function in functions:
            with tf.GradientTape() as tape:
                tape.watch(a)
                result = function(a)
            assert np.allclose(tf.reshape(result, (3, -1)), a @ factor)
            assert np.allclose(tape.gradient(result, a), np.broadcast_to(tf.reduce_sum(factor, 1), (3, 4)))


def test_tensors_with_values_are_traced_inside_of_a_function(rng):
    a, b = tensors(rng, (30, 40), (40, 50))
    assert not tf.function(lambda: ADAPTER.has_values(a))()  # so that no time is measured
    with pytest.raises(einsumx.BackendError, match=r"while tf\.function or tf\.vectorized_map traces the operands"):
        tf.function(lambda: einsumx.plan("ij,jk->ik", a, b, memory_limit="1MB"))()


def test_a_graph_has_the_ops_of_the_plan_and_no_conversions(rng):
    a, b = tensors(rng, (2, 3, 4, 5), (2, 6, 4, 5))
    graph = tf.function(lambda a, b: einsumx.einsum("bind,bjnd->bnij", a, b)).get_concrete_function(a, b).graph
    ops = [op.type for op in graph.get_operations() if op.type not in ("Const", "Placeholder", "Identity")]
    assert ops == ["Transpose", "Transpose", "BatchMatMulV2"]


def test_a_product_has_at_most_ten_batch_axes(rng):
    """Beyond that, which TensorFlow refuses, they are merged."""
    a, b = tensors(rng, (1,) * 3 + (2,) * 7 + (3, 4), (2,) * 10 + (4, 5))
    assert close(einsumx.einsum("abcdefghijxy,abcdefghijyz->abcdefghijxz", a, b), "...xy,...yz->...xz", a, b)
    wide = [tf.reshape(array, (1, *array.shape)) for array in (a, b)]
    assert close(einsumx.einsum("kabcdefghijxy,kabcdefghijyz->kabcdefghijxz", *wide), "...xy,...yz->...xz", *wide)


def test_tf_function_does_not_convert_einsumx(rng, monkeypatch):
    """AutoGraph rewrites the source of functions that a traced function calls, which takes seconds."""
    from tensorflow.python.autograph.impl import api

    converted = []
    convert = api._convert_actual
    monkeypatch.setattr(
        api, "_convert_actual", lambda entity, context: converted.append(entity) or convert(entity, context)
    )
    a, b = tensors(rng, (2, 3), (3, 4))
    plan = einsumx.plan("ij,jk->ik", a, b)
    expression = einsumx.expression("ij,jk->ik", a, (3, 4))

    def several(a, b):
        return einsumx.einsum("ij,jk->ik", a, b) + plan(a, b) + expression(b) + einsumx.tensordot(a, b, 1)

    assert np.allclose(tf.function(several)(a, b), 4 * (np.asarray(a) @ np.asarray(b)))
    assert {entity.__name__ for entity in converted} == {"several"}


def test_a_plan_that_ran_eagerly_runs_in_a_graph_and_the_other_way_round(rng):
    """Axes and sizes are tensors in eager calls; a graph cannot hold another graph's."""
    a = tf.constant(rng.normal(size=(3, 4, 5)))
    plan = einsumx.plan("ijk->kij", a)
    first = plan(a)
    with tf.Graph().as_default():
        graph_result = plan(tf.compat.v1.placeholder("float64", (3, 4, 5)))
        assert graph_result.shape == (5, 3, 4)
    assert np.array_equal(tf.function(plan)(a), first)
    assert np.array_equal(plan(a), first)


def test_unequal_sizes_that_a_graph_does_not_know_are_an_error_of_tensorflow(rng):
    unknown = tf.TensorSpec((None, None, 2, 4), "float64")
    scores = tf.function(lambda q, k: einsumx.einsum("bind,bjnd->bnij", q, k), input_signature=[unknown, unknown])
    with pytest.raises(tf.errors.InvalidArgumentError, match="has another size in operand 1"):
        scores(*tensors(rng, (2, 3, 2, 4), (3, 6, 2, 4)))


# -- gradients --------------------------------------------------------------------------------------------------


def test_a_variable_is_an_operand_and_is_watched(rng):
    variable = tf.Variable(rng.normal(size=(3, 4)))
    x = tf.constant(rng.normal(size=(2, 3)))
    with tf.GradientTape() as tape:
        y = einsumx.einsum("ij,jk->", x, variable)
    assert isinstance(y, tf.Tensor)
    expected = np.repeat(np.asarray(x).sum(0)[:, None], 4, axis=1)
    assert np.allclose(tape.gradient(y, variable), expected)


def test_gradients_of_every_order_keep_a_memory_limit(rng):
    a, b = tensors(rng, (6, 5), (5, 7))

    def norm(a, b, **limit):
        return tf.reduce_sum(einsumx.einsum("ij,jk->ik", a, b, **limit) ** 3)

    def second(**limit):
        with tf.GradientTape() as outer:
            outer.watch([a, b])
            with tf.GradientTape() as inner:
                inner.watch([a, b])
                value = norm(a, b, **limit)
            first = inner.gradient(value, a)
        return first, *outer.gradient(first, [a, b])

    for limited, whole in zip(second(memory_limit=1000), second()):
        assert np.allclose(limited, whole)


def test_without_a_tape_a_limit_need_not_have_room_for_gradients(rng):
    a, b = tensors(rng, (8, 10), (10, 6))
    with pytest.raises(einsumx.MemoryLimitError) as error:
        einsumx.einsum("ij,jk->ik", a, b, memory_limit=1)
    least = error.value.smallest
    assert close(einsumx.einsum("ij,jk->ik", a, b, memory_limit=least), "ij,jk->ik", a, b)
    with tf.GradientTape() as tape:
        tape.watch(a)
        with pytest.raises(einsumx.MemoryLimitError) as error:
            einsumx.einsum("ij,jk->ik", a, b, memory_limit=least)
    assert error.value.smallest > least


# -- blocks -----------------------------------------------------------------------------------------------------


def test_partial_sums_do_not_change_the_operands(rng):
    """A slice of the first axis shares memory with the tensor, and sums add in place."""
    (a,) = tensors(rng, (16, 32))
    before = a.numpy()
    with pytest.raises(einsumx.MemoryLimitError) as error:
        einsumx.einsum("ij->j", a, memory_limit=1)
    for limit in (error.value.smallest, 2 * error.value.smallest):
        assert close(einsumx.einsum("ij->j", a, memory_limit=limit), "ij->j", before)
    assert np.array_equal(a, before)


def test_operands_of_more_axes_than_tensorflow_slices(rng):
    (a,) = tensors(rng, (2,) * 10)
    b = tf.constant(rng.normal(size=(2, 2)))
    limit = 4000
    result = einsumx.einsum("abcdefghij,aj->bcdefghij", a, b, memory_limit=limit * 4)
    assert close(result, "abcdefghij,aj->bcdefghij", a, b)
    box = (slice(0, 2), slice(1, 2)) + (slice(0, 2),) * 7 + (slice(1, 2),)
    assert np.array_equal(ADAPTER.blocks.part(a, box), np.asarray(a)[box])


# -- a memory limit in functions ----------------------------------------------------------------------------------

CHAIN = "ij,jk,kl->il"


@pytest.fixture
def chain(rng):
    return tensors(rng, (100, 101), (101, 102), (102, 103))


def limited(limit, equation=CHAIN):
    return lambda *operands: einsumx.einsum(equation, *operands, memory_limit=limit)


def derivatives(function, operands, order=1):
    """The gradients by all operands, of a number made of the result, and those of the gradients."""
    with tf.GradientTape(persistent=order > 1) as tape:
        tape.watch(operands)
        value = tf.reduce_sum(function(*operands) ** 2)
        for _ in range(order - 1):
            value = tf.reduce_sum([tf.reduce_sum(each**2) for each in tape.gradient(value, operands)])
    return tape.gradient(value, operands)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    ("equation", "shapes", "limit"),
    [
        (CHAIN, [(100, 101), (101, 102), (102, 103)], 120_000),
        ("bqhd,bkhd,bkhv->bqhv", [(2, 50, 4, 16)] * 3, 80_000),
        ("iij,jk,kl->il", [(60, 60, 41), (41, 80), (80, 50)], 80_000),
        ("ia,ib,ic->abc", [(30, 20), (30, 21), (30, 22)], 150_000),
    ],
)
def test_a_function_computes_blocks_in_loops(rng, equation, shapes, limit, jit_compile):
    operands = tensors(rng, *shapes)
    function = tf.function(limited(limit, equation), jit_compile=jit_compile)
    assert close(function(*operands), equation, *operands)
    concrete = function.get_concrete_function(*operands)
    assert "StatelessWhile" in [op.type for op in concrete.graph.get_operations()]
    if not jit_compile:  # XLA does not tell what it takes
        result, taken = peaks.tensorflow_peak(concrete, operands)
        assert result.nbytes < taken <= limit
        assert close(result, equation, *operands)
    found, wanted = (derivatives(each, operands) for each in (function, partial(einsumx.einsum, equation)))
    for one, other in zip(found, wanted):
        assert np.allclose(one, other)


def test_second_derivatives_inside_and_outside_of_functions(rng):
    operands = tensors(rng, (30, 31), (31, 32), (32, 33))
    wanted = derivatives(partial(einsumx.einsum, CHAIN), operands, order=2)
    whole = tf.function(lambda *arrays: derivatives(limited(30_000), arrays, order=2))
    for found in (derivatives(tf.function(limited(30_000)), operands, order=2), whole(*operands)):
        for one, other in zip(found, wanted):
            assert np.allclose(one, other)


def test_the_plan_of_shapes_is_that_of_the_loops(chain):
    plan = einsumx.plan(CHAIN, *[tuple(each.shape) for each in chain], backend="tensorflow", memory_limit=150_000)
    assert "float64 on tensorflow in loops of a compiled program\n  cut " in str(plan)
    function = tf.function(plan).get_concrete_function(*chain)
    result, taken = peaks.tensorflow_peak(function, chain)
    assert close(result, CHAIN, *chain)
    assert result.nbytes < taken <= plan.peak_bytes <= 150_000
    with pytest.raises(einsumx.BackendError, match="call it while tensorflow traces a function"):
        plan(*chain)
    whole = einsumx.plan(CHAIN, *[tuple(each.shape) for each in chain], backend="tensorflow", memory_limit="1 MB")
    assert (whole.cuts, whole.in_place) == ({}, (True, True, True))


def test_saved_functions_variables_and_maps_keep_a_limit(chain, tmp_path):
    module = tf.Module()
    module.call = tf.function(
        limited(120_000), input_signature=[tf.TensorSpec(each.shape, each.dtype) for each in chain]
    )
    tf.saved_model.save(module, str(tmp_path))
    assert close(tf.saved_model.load(str(tmp_path)).call(*chain), CHAIN, *chain)
    variable = tf.Variable(chain[0])
    assert close(tf.function(lambda: limited(120_000)(variable, *chain[1:]))(), CHAIN, *chain)
    batch = tf.stack([chain[0], 2 * chain[0]])
    found = tf.function(lambda batch: tf.map_fn(lambda one: limited(120_000)(one, *chain[1:]), batch))(batch)
    assert close(found[1] / 2, CHAIN, *chain)
    with pytest.raises(einsumx.BackendError, match=r"use tf\.map_fn"):
        tf.vectorized_map(lambda one: limited(120_000)(one, *chain[1:]), batch)


def test_what_no_loop_can_keep_is_an_error(chain):
    def call(*operands, limit=120_000):
        return tf.function(limited(limit), autograph=False)(*operands)

    few = [each[:7, :7] for each in chain]
    with pytest.raises(einsumx.MemoryLimitError) as error:
        call(*few, limit=1)
    assert close(call(*few, limit=error.value.smallest), CHAIN, *few)
    with pytest.raises(einsumx.BackendError, match="must be a number of bytes"):
        call(*chain, limit=0.5)
    unknown = [tf.TensorSpec((None, 101), "float64"), *(tf.TensorSpec(each.shape, each.dtype) for each in chain[1:])]
    with pytest.raises(einsumx.BackendError, match="needs all sizes"):
        tf.function(limited(120_000), input_signature=unknown).get_concrete_function()

    def longest(*operands):
        return einsumx.semirings.max_plus.einsum(CHAIN, *operands, memory_limit=200_000)

    assert np.allclose(tf.function(longest)(*chain), longest(*chain))
    with pytest.raises(einsumx.BackendError, match="no gradients in the semiring 'max-plus'"):
        derivatives(tf.function(longest), chain)


# -- out= -------------------------------------------------------------------------------------------------------


def test_out_is_a_variable(rng):
    a, b = tensors(rng, (2, 3), (3, 4))
    out = tf.Variable(tf.zeros((2, 4), "float64"))
    assert einsumx.einsum("ij,jk->ik", a, b, out=out) is out
    assert close(out.value(), "ij,jk->ik", a, b)
    einsumx.addeinsum(out, "ij,jk->ik", a, b, alpha=2, out=out)
    assert np.allclose(out, 3 * (np.asarray(a) @ np.asarray(b)))
    einsumx.einsum("ij,jk->ik", a, b, out=out, memory_limit="1 MB")
    assert close(out.value(), "ij,jk->ik", a, b)

    @tf.function
    def assign(a, b):
        einsumx.einsum("ij,jk->ik", a, b, out=out)

    assign(2 * a, b)
    assert np.allclose(out, 2 * (np.asarray(a) @ np.asarray(b)))


def test_tensors_cannot_be_written_to(rng):
    a, b = tensors(rng, (2, 3), (3, 4))
    with pytest.raises(einsumx.BackendError, match=r"pass a tf\.Variable as out="):
        einsumx.einsum("ij,jk->ik", a, b, out=tf.zeros((2, 4), "float64"))


# -- what it refuses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operand", "advice"),
    [
        (lambda: tf.sparse.from_dense(tf.eye(2)), r"tf\.sparse\.to_dense\(x\)"),
        (lambda: tf.ragged.constant([[1.0, 2.0], [3.0]]), r"x\.to_tensor\(\)"),
        (
            lambda: tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0]), tf.constant([2, 2])),
            r"tf\.convert_to_tensor\(x\)",
        ),
    ],
    ids=["SparseTensor", "RaggedTensor", "IndexedSlices"],
)
def test_tensors_that_are_not_dense_get_the_line_that_helps(operand, advice):
    with pytest.raises(einsumx.BackendError, match=advice):
        einsumx.einsum("ij,jk->ik", operand(), tf.ones((2, 2)))


def test_dtypes_are_not_promoted(rng):
    a, b = tf.ones((2, 3), "int32"), tf.ones((3, 4))
    with pytest.raises(einsumx.BackendError, match=r"does not promote dtypes.*int32 and float32: pass dtype="):
        einsumx.einsum("ij,jk->ik", a, b)
    assert einsumx.einsum("ij,jk->ik", a, b, dtype="float64").dtype == tf.float64


def test_numbers_adopt_the_dtype_of_the_tensor():
    assert einsumx.einsum(",i->i", 2.5, tf.ones(3, "bfloat16")).dtype == tf.bfloat16
    assert einsumx.einsum("i,i->i", [1, 2, 3], tf.ones(3)).numpy().tolist() == [1, 2, 3]
    with pytest.raises(einsumx.BackendError, match=r"does not convert 2\.5 to int32"):
        einsumx.einsum(",i->i", 2.5, tf.constant([1, 2]))


def test_a_tensor_of_unknown_rank_says_how_to_declare_it():
    @tf.function(input_signature=[tf.TensorSpec(None)])
    def summed(x):
        return einsumx.einsum("ij->i", x)

    with pytest.raises(einsumx.BackendError, match=r"tf\.ensure_shape"):
        summed(tf.ones((2, 3)))


# -- kernels ----------------------------------------------------------------------------------------------------


def test_products_broadcast_in_more_groups_than_tensorflow_does(rng):
    a, b = tensors(rng, (2, 3, 2, 3), (3, 2, 3, 2))
    left, right = (2, 1, 3, 1, 2, 1, 3, 1), (1, 3, 1, 2, 1, 3, 1, 2)
    assert is_wide_broadcast(left, right)
    assert grouped(left, right).shape == (2, 3, 2, 3, 3, 2, 3, 2)
    assert close(einsumx.einsum("aceg,bdfh->abcdefgh", a, b), "aceg,bdfh->abcdefgh", a, b)
    for dtype in ("bool", "uint16"):
        one, other = tf.cast(tf.round(a), dtype), tf.cast(tf.round(b), dtype)
        assert close(einsumx.einsum("aceg,bdfh->abcdefgh", one, other), "aceg,bdfh->abcdefgh", one, other)


def test_wide_broadcasts_take_unknown_sizes(rng):
    a, b = tensors(rng, (2, 3, 2, 3), (3, 2, 3, 2))
    unknown = tf.TensorSpec((None,) * 4, "float64")
    traced = tf.function(lambda a, b: einsumx.einsum("aceg,bdfh->abcdefgh", a, b), input_signature=[unknown] * 2)
    assert close(traced(a, b), "aceg,bdfh->abcdefgh", a, b)
    assert close(traced(b, a), "aceg,bdfh->abcdefgh", b, a)


@pytest.mark.parametrize(
    ("axes", "shape"), [((0, 2), (3, 4, 5, 6)), ((1, 3, 5), (2, 3, 4, 5, 2, 3)), ((0, 2, 4), (3, 2, 1, 2, 3, 2))]
)
def test_sums_in_several_passes_are_the_sum(rng, axes, shape):
    assert len(sum_passes(axes, shape)) > 1
    (a,) = tensors(rng, shape)
    assert np.allclose(ADAPTER._sum(axes, shape, "float64")(a), np.asarray(a).sum(axes))


def test_a_bfloat16_product_accumulates_wide_without_onednn(rng, monkeypatch):
    monkeypatch.setitem(ADAPTER.__dict__, "_accumulates_wide", False)
    ones = tf.ones((2, 4096), "bfloat16")
    assert ADAPTER.matmul(ones, ones, False, True).numpy().astype(float).tolist() == [[4096, 4096]] * 2
    batch = tf.ones((3, 2, 4096), "bfloat16")
    assert np.all(ADAPTER.matmul(batch, batch, False, True).numpy().astype(float) == 4096)


def test_complex_products_that_read_a_side_transposed_do_not_conjugate_it(rng):
    a, b = (tf.complex(*tensors(rng, shape, shape)) for shape in ((2, 4, 3), (2, 5, 4)))
    assert np.allclose(ADAPTER.matmul(a, b, True, True), np.asarray(a).swapaxes(1, 2) @ np.asarray(b).swapaxes(1, 2))
    assert np.allclose(ADAPTER.matmul(a[0], b[0], True, True), np.asarray(a)[0].T @ np.asarray(b)[0].T)


def test_a_cast_of_an_imaginary_number_to_bool_is_true():
    assert ADAPTER.cast(tf.constant([0.5j, 0]), "bool").numpy().tolist() == [True, False]


def test_devices_have_short_names():
    assert ADAPTER.device(tf.ones(2)) == "cpu:0"
    assert ADAPTER.blocks.find_device("cpu") == "cpu:0"
    with pytest.raises(einsumx.BackendError, match=r"finds no device 'gpu:7'; there are cpu:0"):
        ADAPTER.blocks.find_device("gpu:7")
    remote = "/job:worker/replica:0/task:1/device:CPU:0"
    assert ADAPTER.device_of((tf.Tensor, (2,), tf.float32, remote)) == remote


# -- patch ------------------------------------------------------------------------------------------------------


def test_patch_replaces_every_public_name(rng):
    a, b = tensors(rng, (2, 3), (3, 4))
    native = tf.einsum
    with einsumx.patched("tensorflow"):
        for function in (tf.einsum, tf.linalg.einsum, tf.compat.v1.einsum, tf.compat.v2.linalg.einsum):
            assert function is not native
            assert close(function("ij,jk->ik", a, b, name="product"), "ij,jk->ik", a, b)
        graph = tf.function(lambda a, b: tf.einsum("ij,jk->ik", a, b)).get_concrete_function(a, b).graph
        assert "Einsum" not in {op.type for op in graph.get_operations()}
    assert tf.einsum is native
    assert tf.linalg.einsum is native


def test_patched_layers_of_keras_call_einsumx(rng):
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras runs on another backend here")
    x = tf.constant(rng.normal(size=(2, 3, 4)), "float32")
    layer = keras.layers.EinsumDense("abc,cde->abde", output_shape=(None, 5, 6))
    expected = layer(x)
    with einsumx.patched("tensorflow"):
        assert np.allclose(layer(x), expected, rtol=1e-5, atol=1e-6)


def test_patched_einsum_takes_what_the_native_one_takes(rng):
    a = tf.constant(rng.normal(size=(2, 3)))
    host = rng.normal(size=(3, 4)).astype("float32")
    native = tf.einsum("ij,jk->ik", a, host.astype("float64"))
    with einsumx.patched("tensorflow"):
        assert np.allclose(tf.einsum("ij,jk->ik", a, host), native)
        assert np.allclose(tf.einsum("ij,jk->ik", a, tf.Variable(host.astype("float64")), optimize="optimal"), native)
        assert np.allclose(tf.einsum("ij,jk->ik", a, host.astype("float64"), optimize="branch-2"), native)


def test_errors_behind_the_own_name_are_tensorflows_too(rng):
    a, b = tensors(rng, (2, 3), (4, 5))
    with einsumx.patched("tensorflow"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="label 'j' has size 3") as error:
            tf.einsum("ij,jk->ik", a, b)
        assert isinstance(error.value, einsumx.SizeError)
        copy = pickle.loads(pickle.dumps(error.value))
        assert (type(copy), str(copy)) == (type(error.value), str(error.value))
        with pytest.raises(tf.errors.InvalidArgumentError, match="does not promote"):
            tf.einsum("ij,kl->il", a, tf.cast(b, "float32"))
        with pytest.raises(ValueError, match="output"):
            tf.einsum("ij,jk->iz", a, tf.ones((3, 2), "float64"))


# -- source -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "dtype"),
    [("bind,bjnd->bnij", "complex64"), ("iij,jk,k->ki", "bool"), ("aceg,bdfh->abcdefgh", "uint8")],
)
def test_source_runs(rng, equation, dtype):
    shapes = [(3,) * len(term) for term in equation.partition("->")[0].split(",")]
    operands = [tf.cast(tf.constant(rng.integers(0, 3, shape)), dtype) for shape in shapes]
    plan = einsumx.plan(equation, *operands)
    names = {}
    exec(plan.source(), names)
    result = names["contraction"](*operands)
    expected = plan(*operands)
    assert result.dtype == expected.dtype
    assert np.allclose(result, expected)
