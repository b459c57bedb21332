"""TensorFlow's adapter: eager calls, tf.function, XLA, vectorized_map, variables, devices, patch, refusals."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import einsumx  # noqa: E402
from einsumx.backends.tensorflow import ADAPTER  # noqa: E402
from einsumx.backends.tensorflow.choices import grouped, is_wide_broadcast, sum_passes  # noqa: E402

EQUATIONS = {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "bnid,bnjd->bnij": [(2, 2, 3, 4), (2, 2, 2, 4)],
    "bind,bjnd->bnij": [(2, 3, 2, 2), (2, 2, 2, 2)],
    "ij,jk,kl->li": [(2, 3), (3, 2), (2, 3)],
    "iij,j->i": [(3, 3, 2), (2,)],
    "ij->": [(2, 3)],
    "ij->ji": [(2, 3)],
    "i,j->ij": [(2,), (3,)],
    "...i,i...->...": [(2, 3), (3, 2)],
}


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


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "XLA"])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_a_traced_function_records_the_plan(rng, equation, jit_compile):
    operands = tensors(rng, *EQUATIONS[equation])
    traced = tf.function(lambda *arrays: einsumx.einsum(equation, *arrays), jit_compile=jit_compile)
    assert close(traced(*operands), equation, *operands)


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
    assert np.array_equal(tf.function(lambda array: plan(array) + 0)(a), first)
    assert np.array_equal(plan(a), first)


def test_tf_function_takes_a_plan(rng):
    a, b = tensors(rng, (2, 3), (3, 4))
    assert close(tf.function(einsumx.plan("ij,jk->ik", a, b))(a, b), "ij,jk->ik", a, b)


def test_one_graph_serves_every_size(rng):
    traces = []
    unknown = tf.TensorSpec((None, None, 2, 4), "float64")

    @tf.function(input_signature=[unknown, unknown])
    def scores(q, k):
        traces.append(q.shape)
        return einsumx.einsum("bind,bjnd->bnij", q, k)

    for rows in (3, 5, 1):
        q, k = tensors(rng, (2, rows, 2, 4), (2, 6, 2, 4))
        assert close(scores(q, k), "bind,bjnd->bnij", q, k)
    assert len(traces) == 1
    with pytest.raises(tf.errors.InvalidArgumentError, match="has another size in operand 1"):
        scores(*tensors(rng, (2, 3, 2, 4), (3, 6, 2, 4)))


@pytest.mark.parametrize("sign", [1, -1])
def test_vectorized_map_maps_each_kind_of_op(rng, sign):
    a, b = tensors(rng, (4, 3, 3, 2), (4, 2, 5))
    mapped = tf.vectorized_map(
        lambda pair: sign * einsumx.einsum("iij,jk->ki", *pair), (a, b), fallback_to_while_loop=False
    )
    assert close(sign * mapped, "ziij,zjk->zki", a, b)


# -- gradients --------------------------------------------------------------------------------------------------


def test_a_variable_is_an_operand_and_is_watched(rng):
    variable = tf.Variable(rng.normal(size=(3, 4)))
    x = tf.constant(rng.normal(size=(2, 3)))
    with tf.GradientTape() as tape:
        y = einsumx.einsum("ij,jk->", x, variable)
    assert isinstance(y, tf.Tensor)
    expected = np.repeat(np.asarray(x).sum(0)[:, None], 4, axis=1)
    assert np.allclose(tape.gradient(y, variable), expected)


def test_gradients_of_empty_sums_are_zeros_and_not_none(rng):
    a, b = tensors(rng, (2, 0), (0, 3))
    c = tf.constant(rng.normal(size=(2, 3)))
    with tf.GradientTape() as tape:
        tape.watch([a, b, c])
        y = einsumx.einsum("ij,jk,ik->ik", a, b, c)
    gradients = tape.gradient(y, [a, b, c])
    assert [gradient.shape for gradient in gradients] == [(2, 0), (0, 3), (2, 3)]
    assert not np.any(gradients[2])


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
    a, b = tensors(rng, (40, 50), (50, 30))
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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint64", "bool", "complex64"])
def test_blocks_are_written_into_one_tensor(rng, dtype):
    a, b = (tf.cast(host, dtype) for host in hosts(rng, (7, 6), (6, 5)))
    with pytest.raises(einsumx.MemoryLimitError) as error:
        einsumx.einsum("ij,jk->ki", a, b, memory_limit=1)
    result = einsumx.einsum("ij,jk->ki", a, b, memory_limit=error.value.smallest)
    assert isinstance(result, tf.Tensor)
    assert result.dtype == dtype
    whole = einsumx.einsum("ij,jk->ki", a, b)
    assert np.allclose(tf.cast(result, "complex64"), tf.cast(whole, "complex64"), rtol=0.02)


def test_partial_sums_do_not_change_the_operands(rng):
    """A slice of the first axis shares memory with the tensor, and sums add in place."""
    (a,) = tensors(rng, (64, 256))
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
    assert np.array_equal(ADAPTER.part(a, box), np.asarray(a)[box])


def test_a_traced_tensor_has_no_memory_to_limit():
    with pytest.raises(einsumx.BackendError, match=r"not while tf\.function"):
        tf.function(lambda x: einsumx.einsum("ij->j", x, memory_limit="1 MB"))(tf.ones((2, 3)))


# -- out= -------------------------------------------------------------------------------------------------------


def test_out_is_a_variable(rng):
    a, b = tensors(rng, (2, 3), (3, 4))
    out = tf.Variable(tf.zeros((2, 4), "float64"))
    assert einsumx.einsum("ij,jk->ik", a, b, out=out) is out
    assert close(out.value(), "ij,jk->ik", a, b)
    einsumx.einsum("ij,jk->ik", a, b, out=out, alpha=2, beta=1)
    assert np.allclose(out, 3 * (np.asarray(a) @ np.asarray(b)))
    einsumx.einsum("ij,jk->ik", a, b, out=out, memory_limit="1 MB")
    assert close(out.value(), "ij,jk->ik", a, b)


def test_out_may_be_an_operand(rng):
    square = tf.Variable(rng.normal(size=(3, 3)))
    before = square.numpy()
    einsumx.einsum("ij,jk->ki", square, square, out=square)
    assert np.allclose(square, (before @ before).T)


def test_a_graph_assigns_to_a_variable(rng):
    a, b = tensors(rng, (2, 3), (3, 4))
    out = tf.Variable(tf.zeros((2, 4), "float64"))

    @tf.function
    def assign(a, b):
        einsumx.einsum("ij,jk->ik", a, b, out=out)

    assign(a, b)
    assert close(out.value(), "ij,jk->ik", a, b)


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


def test_strings_have_no_products():
    with pytest.raises(einsumx.BackendError, match="no dtype 'string'"):
        einsumx.einsum("i->i", tf.constant(["a"]))


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


def test_threads_get_the_same_bits(rng):
    a, b = tensors(rng, (64, 100, 3, 7), (64, 50, 3, 7), dtype="float32")
    expected = einsumx.einsum("bind,bjnd->bnij", a, b).numpy()
    einsumx.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: einsumx.einsum("bind,bjnd->bnij", a, b).numpy(), range(16)))
    assert all(np.array_equal(result, expected) for result in results)


def test_devices_have_short_names():
    assert ADAPTER.device(tf.ones(2)) == "cpu:0"
    assert ADAPTER.find_device("cpu") == "cpu:0"
    with pytest.raises(einsumx.BackendError, match=r"finds no device 'gpu:7'; there are cpu:0"):
        ADAPTER.find_device("gpu:7")
    remote = "/job:worker/replica:0/task:1/device:CPU:0"
    assert ADAPTER.device_of((tf.Tensor, (2,), tf.float32, remote)) == remote


# -- patch ------------------------------------------------------------------------------------------------------


def test_patch_replaces_every_public_name(rng):
    a, b = tensors(rng, (2, 3), (3, 4))
    native = tf.einsum
    with einsumx.patch("tensorflow"):
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
    with einsumx.patch("tensorflow") as replaced:
        assert np.allclose(layer(x), expected, rtol=1e-5, atol=1e-6)
    assert replaced is None or replaced


def test_patched_einsum_takes_what_the_native_one_takes(rng):
    a = tf.constant(rng.normal(size=(2, 3)))
    host = rng.normal(size=(3, 4)).astype("float32")
    native = tf.einsum("ij,jk->ik", a, host.astype("float64"))
    with einsumx.patch("tensorflow"):
        assert np.allclose(tf.einsum("ij,jk->ik", a, host), native)
        assert np.allclose(tf.einsum("ij,jk->ik", a, tf.Variable(host.astype("float64")), optimize="optimal"), native)
        assert np.allclose(tf.einsum("ij,jk->ik", a, host.astype("float64"), optimize="branch-2"), native)


def test_errors_behind_the_own_name_are_tensorflows_too(rng):
    a, b = tensors(rng, (2, 3), (4, 5))
    with einsumx.patch("tensorflow"):
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


@pytest.mark.parametrize("equation", [*EQUATIONS, "aceg,bdfh->abcdefgh"])
@pytest.mark.parametrize("dtype", ["float32", "bool", "complex64", "uint8"])
def test_source_runs(rng, equation, dtype):
    shapes = EQUATIONS.get(equation, [(2, 3, 2, 3), (3, 2, 3, 2)])
    operands = [tf.cast(tf.constant(host * 2), dtype) for host in hosts(rng, *shapes)]
    plan = einsumx.plan(equation, *operands)
    names = {}
    exec(plan.source(), names)
    result = names["contraction"](*operands)
    expected = plan(*operands)
    assert result.dtype == expected.dtype
    assert np.allclose(result, expected)
