"""JAX's adapter: plans as dot_general sees them, dtypes with and without 64 bits, jit, grad, vmap, devices."""

import re
from functools import partial

import numpy as np
import pytest
from processes import printed

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

import einsumx  # noqa: E402
from einsumx.backends.jax import ADAPTER  # noqa: E402
from einsumx.ir.ops import Native  # noqa: E402


def arrays(equation, size=3):
    """An array of random numbers for each operand, all axes of one size."""
    rng = np.random.default_rng(0)
    return [
        jnp.asarray(rng.normal(size=(size,) * len(term)), "float32") for term in equation.partition("->")[0].split(",")
    ]


def traced(equation, *operands, **keywords):
    """The names of the primitives of a call in order."""
    return primitives(jax.make_jaxpr(lambda *given: einsumx.einsum(equation, *given, **keywords))(*operands).jaxpr)


def primitives(jaxpr):
    """The names of a jaxpr's primitives in order, those of the functions that it calls included."""
    found = []
    for equation in jaxpr.eqns:
        inner = [value.jaxpr for value in equation.params.values() if hasattr(value, "jaxpr")]
        found += [name for called in inner for name in primitives(called)] if inner else [equation.primitive.name]
    return found


# -- what XLA sees ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("equation", ["bnij,bjnd->bnid", "bind,jnd->ijbn", "jn,inj->in", "ab,bc->ac", "a,b->ab"])
def test_a_product_is_the_one_of_jax(equation):
    shapes = [[3 + (label > "m") for label in term] for term in equation.partition("->")[0].split(",")]
    assert dimensions(einsumx.einsum, equation, shapes) == dimensions(jnp.einsum, equation, shapes)


def dimensions(function, equation, shapes):
    """The dimension numbers of each product of a call."""
    traced = str(jax.make_jaxpr(lambda *given: function(equation, *given))(*map(jnp.ones, shapes)))
    return re.findall("dimension_numbers=(.*)", traced)


def test_small_operands_are_transposed_to_leave_a_large_result_as_it_is():
    shapes = [(30, 4, 30), (30, 4, 30)]
    assert traced("aib,cid->dcba", *map(jnp.ones, shapes)) == ["transpose", "transpose", "dot_general"]
    assert traced("aib,cid->cdab", *map(jnp.ones, shapes)) == ["dot_general"]


PRODUCTS = {
    "bind,bjnd->bnij": ["dot_general"],
    "bnij,bjnd->bind": ["dot_general", "transpose"],
    "bind,jnd->ijbn": ["dot_general", "transpose"],
    "ij,j->i": ["dot_general"],
    "ij,i->j": ["dot_general"],
    "ji,kj->ki": ["dot_general"],
    "bij,bij->b": ["dot_general"],
    "aebf,dfce->abcd": ["dot_general", "transpose"],
    "ij,ij->": ["dot_general"],
    "ij,ij->ij": ["mul"],
    "ij,ij->ji": ["mul", "transpose"],
    "ij,ji->ij": ["transpose", "mul"],
    "ij,ji->ji": ["transpose", "mul", "transpose"],
    "ij,j->ij": ["dot_general", "transpose"],
    "i,j->ij": ["dot_general"],
    ",ij->ij": ["mul"],
    "ab,cd->acbd": ["dot_general", "transpose"],
    "iij,jk->ik": ["reduce_sum", "transpose", "dot_general"],
    "bii,bj->bj": ["reduce_sum", "dot_general"],
    "abcd->cdab": ["transpose"],
    "abcd,de->ab": ["reduce_sum", "reduce_sum", "dot_general"],
}
"""The primitives that move or compute data, in order."""


def test_each_pair_is_one_dot_general_or_mul_and_no_axes_are_merged():
    moving = {"dot_general", "mul", "gather", "transpose", "reduce_sum", "reshape"}
    found = {equation: traced(equation, *arrays(equation)) for equation in PRODUCTS}
    assert {equation: [name for name in names if name in moving] for equation, names in found.items()} == PRODUCTS


def test_axes_of_size_1_are_dropped_and_added_without_a_reshape():
    operands = [jnp.ones((2, 1, 4)), jnp.ones((1, 3, 4)), jnp.ones((2, 1, 1))]
    assert "reshape" not in traced("bij,bij,bik->bi", *operands)
    assert (einsumx.einsum("bij,bij,bik->bi", *operands) == 4).all()


@pytest.mark.parametrize("equation", ["aab,b->a", "ab,cd->ca", "ab,bc,cd->ad", "ab->b", "ab,ba->ba"])
def test_the_kernel_of_a_stored_plan_computes_any_einsum(equation):
    """Also one that this version plans otherwise."""
    operands = arrays(equation)
    op = Native(len(operands), tuple(range(len(operands))), equation)
    kernel = ADAPTER.kernel(op, [operand.shape for operand in operands], "float32")
    np.testing.assert_allclose(kernel(*operands), np.einsum(equation, *operands), rtol=1e-4, atol=1e-4)


def test_no_plan_is_said_to_take_a_generic_kernel(capsys):
    from einsumx.cli.main import main

    assert main(["explain", "ab,bc->ac", "3,4", "4,5", "--backend", "jax"]) == 0
    assert capsys.readouterr().out.endswith("generic kernel  none\n")


def test_a_plan_is_traced_once_for_many_calls(monkeypatch):
    einsumx.cache_clear()
    calls = []
    dot_general = jax.lax.dot_general
    monkeypatch.setattr(jax.lax, "dot_general", lambda *a, **k: calls.append(1) or dot_general(*a, **k))
    operands = arrays("ij,jk->ik")
    for _ in range(3):
        einsumx.einsum("ij,jk->ik", *operands)
    assert calls == [1]
    einsumx.cache_clear()


# -- dtypes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("equation", ["fd,ecbfa->abcde", "ecbfa,fd->abcde", "zfd,zbfa->zabd", "df,bfa->dab"])
@pytest.mark.parametrize("jit", [False, True])
def test_products_in_bfloat16_of_a_matrix_and_an_array_of_more_axes(equation, jit):
    """XLA refuses some of them on processors with instructions for bfloat16, also those of jnp.einsum."""
    sizes = dict(zip("abcdefz", (2, 3, 4, 5, 2, 6, 3)))
    arrays = [np.ones([sizes[label] for label in term]) for term in equation.partition("->")[0].split(",")]
    function = jax.jit(einsumx.einsum, static_argnums=0) if jit else einsumx.einsum
    found = function(equation, *[jnp.asarray(array, "bfloat16") for array in arrays])
    assert found.dtype == "bfloat16"
    np.testing.assert_array_equal(np.asarray(found, "float64"), np.einsum(equation, *arrays))


@pytest.mark.parametrize(("equation", "shapes"), [("a,b", [(2,), (3,)]), ("abc,c->abc", [(2, 3, 4), (4,)])])
def test_products_do_not_rely_on_the_promotion_of_ranks(equation, shapes):
    arrays = [jnp.ones(shape, bool) for shape in shapes]
    with jax.numpy_rank_promotion("raise"):
        result = einsumx.einsum(equation, *arrays)
    assert result.dtype == bool
    assert result.all()


@pytest.mark.parametrize("dtype", ["float64", "int64", "complex128", float, np.float64])
def test_a_64_bit_dtype_is_an_error_where_jax_would_truncate_it(dtype):
    with pytest.raises(einsumx.BackendError, match=r"64-bit types are off.*jax_enable_x64"):
        einsumx.einsum("i,i->", jnp.ones(2), jnp.ones(2), dtype=dtype)


SIGNED, UNSIGNED = jnp.arange(4, dtype="int32"), jnp.arange(4, dtype="uint32")


@pytest.mark.parametrize(
    ("call", "off", "on"),
    [
        (partial(einsumx.einsum, "i,i->i", UNSIGNED, SIGNED), "int32", "int64"),
        (partial(einsumx.einsum, "i,i->i", UNSIGNED, SIGNED, optimize="optimal"), "int32", "int64"),
        (partial(einsumx.einsum, "i,i->i", UNSIGNED, SIGNED, memory_limit=2000), "int32", "int64"),
        (partial(einsumx.einsum, ",i->i", 2.5, SIGNED, casting="unsafe"), "float32", "float64"),
        (partial(einsumx.addeinsum, SIGNED, "i,i->i", UNSIGNED, SIGNED), "int32", "int64"),
        (partial(einsumx.semirings.max_plus.einsum, ",i->i", 2.5, SIGNED, casting="unsafe"), "float32", "float64"),
        (partial(einsumx.expression("i,i->i", (4,), UNSIGNED), SIGNED), "int32", "int64"),
        (partial(einsumx.expression(",i->i", (), (4,)), 2.5, SIGNED), "float32", "float64"),
        (partial(einsumx.plan, "i,i->i", UNSIGNED, SIGNED), "int32", "int64"),
    ],
)
def test_a_repeated_call_has_the_dtype_of_the_mode_that_is_on(call, off, on):
    for _ in range(2):
        assert call().dtype == off
        with jax.enable_x64(True):
            assert call().dtype == on
    try:
        jax.config.update("jax_enable_x64", True)
        assert call().dtype == on
        with jax.enable_x64(False):
            assert call().dtype == off
    finally:
        jax.config.update("jax_enable_x64", False)
    assert call().dtype == off


@pytest.mark.parametrize(
    "call",
    [
        partial(einsumx.einsum, dtype="float32"),
        einsumx.semirings.max_times.einsum,
        lambda *operands: einsumx.einsum_frexp(*operands).mantissa,
    ],
)
def test_a_python_scalar_yields_to_the_dtype_where_64_bit_types_are_on(call):
    with jax.enable_x64(True):
        assert call(",i->i", 2.5, jnp.ones(2, "float32")).dtype == "float32"


@pytest.mark.parametrize("call", [einsumx.einsum, einsumx.plan])
def test_a_repeated_call_heeds_strict_promotion(call):
    for _ in range(2):
        assert call("i,i->i", UNSIGNED, SIGNED).dtype == "int32"
        with jax.numpy_dtype_promotion("strict"), pytest.raises(jax.dtypes.TypePromotionError, match="strict"):
            call("i,i->i", UNSIGNED, SIGNED)
        with jax.numpy_dtype_promotion("strict"):
            assert call("i,i->i", SIGNED, SIGNED).dtype == "int32"


# -- errors -----------------------------------------------------------------------------------------------------


def test_a_dtype_that_is_no_number_to_compute_with_is_an_error():
    with pytest.raises(einsumx.BackendError, match="float8_e4m3fn"):
        einsumx.einsum("i->i", jnp.ones(2, "float8_e4m3fn"))
    with pytest.raises(einsumx.BackendError, match="key"):
        einsumx.einsum("i->i", jax.random.split(jax.random.key(0), 2))


@pytest.mark.long
def test_sparse_arrays_are_an_error():
    sparse = pytest.importorskip("jax.experimental.sparse")
    with pytest.raises(einsumx.BackendError, match=r"BCOO; x\.todense\(\) makes one.* sparse\.COO\(numpy"):
        einsumx.einsum("ij->ji", sparse.BCOO.fromdense(jnp.eye(2)))


# -- transformations --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("equation", ["bind,bjnd->bnij", "iij,j->i", "ij,jk,kl->li"])
def test_derivatives_in_forward_mode_are_right(equation):
    from jax.test_util import check_grads

    function = partial(einsumx.einsum, equation)
    check_grads(function, arrays(equation, 2), order=1, modes=("fwd",), atol=0.02, rtol=0.02)


@pytest.mark.long
def test_traced_operands_go_with_concrete_ones():
    weight = jax.device_put(jnp.full((3, 4), 2.0), jax.devices()[0])
    result = jax.jit(lambda given: einsumx.einsum("ij,jk->ik", given, weight))(jnp.ones((2, 3)))
    assert (result == 6).all()
    gradient = jax.grad(lambda given: einsumx.einsum("ij,jk->", given, weight))(jnp.ones((2, 3)))
    assert (gradient == 8).all()


@pytest.mark.long
def test_constants_are_folded_once_and_for_all_transforms(monkeypatch):
    operand, *weights = (jnp.full(shape, 2.0) for shape in ((3, 4), (4, 5), (5, 2)))
    call = einsumx.expression("ij,jk,kl->il", (3, 4), *weights, optimize=[(1, 2), (0, 1)])
    jaxprs = [jax.make_jaxpr(call)(operand), jax.make_jaxpr(jax.jit(call))(operand)]
    assert [str(jaxpr).count("dot_general[") for jaxpr in jaxprs] == [1, 1]
    _, rows = jax.lax.scan(lambda carry, row: (carry, call(row)), 0, operand[None])
    for result in (call(operand), rows[0], jax.jit(jax.checkpoint(call))(operand), jax.vmap(call)(operand[None])[0]):
        np.testing.assert_array_equal(result, np.full((3, 2), 160.0))
    assert jax.eval_shape(call, operand).shape == (3, 2)
    assert (jax.grad(lambda operand: call(operand).sum())(operand) == 40).all()


@pytest.mark.long
@pytest.mark.parametrize("transform", [jax.grad, lambda function: jax.jit(jax.grad(function))])
def test_traced_constants_are_folded_in_each_trace(transform):
    def loss(weight):
        call = einsumx.expression("ij,jk,kl->il", (3, 4), weight, more, optimize=[(1, 2), (0, 1)])
        _, rows = jax.lax.scan(lambda carry, row: (carry, call(row)), 0, operand[None])
        return (rows[0] + jax.jit(call)(operand) + jax.jit(lambda row: call(2 * row))(operand) + call(operand)).sum()

    operand, weight, more = jnp.ones((3, 4)), jnp.ones((4, 5)), jnp.ones((5, 2))
    np.testing.assert_array_equal(transform(loss)(weight), np.full((4, 5), 5 * 3 * 2))


@pytest.mark.long
def test_arrays_with_values_are_traced_inside_of_a_trace(tmp_path, monkeypatch):
    """So no time is measured."""
    monkeypatch.setenv("EINSUMX_CACHE", str(tmp_path))
    operands = [jnp.ones(shape) for shape in ((30, 40), (40, 50), (50, 20))]
    with einsumx.effort("measure"):
        call = einsumx.expression("ij,jk,kl->il", (30, 40), *operands[1:])
        for _ in range(3):
            assert (jax.jit(lambda factor: call(operands[0]) * factor)(2.0) == 4000).all()
            assert (jax.jit(lambda factor: einsumx.einsum("ij,jk,kl->il", *operands) * factor)(2.0) == 4000).all()
    assert (call(operands[0]) == 2000).all()
    with pytest.raises(einsumx.BackendError, match=r"while jax\.jit, jax\.grad or jax\.vmap traces"):
        jax.jit(lambda factor: einsumx.plan("ij,jk->ik", *operands[:2], memory_limit="1MB") and factor)(2.0)


def test_expressions_are_compared_inside_of_a_trace():
    def made(value):
        return einsumx.expression("ij,jk->ik", (3, 4), jnp.full((4, 2), value))

    first, same, other = made(1.0), made(1.0), made(2.0)
    found = []
    jax.jit(lambda array: found.append((first == same, first == other, first == made(1.0))) or array)(jnp.ones(2))
    assert found == [(True, False, False)]  # the last one is made inside of the trace, where it has no values


# -- devices ----------------------------------------------------------------------------------------------------


ALONE = """
import jax, jax.numpy as jnp, numpy as np
import einsumx

for equation in ("bii->b", "abab->ba", "iij,jk->ik", "iii,i->i"):
    terms = equation.partition("->")[0].split(",")
    arrays = [jnp.arange(3.0 ** len(term)).reshape((3,) * len(term)) for term in terms]
    traced = jax.make_jaxpr(lambda *arrays: einsumx.einsum(equation, *arrays))(*arrays)
    assert "gather" in str(traced), equation
    np.testing.assert_allclose(einsumx.einsum(equation, *arrays), np.einsum(equation, *map(np.asarray, arrays)))
jax.config.update("jax_enable_x64", True)
ones = jnp.ones(2, "float32")
assert einsumx.einsum("i,i->", ones, ones, dtype="float64").dtype == "float64"
assert einsumx.einsum("i,i->", jnp.full(2, 2**33), jnp.ones(2, "int64")) == 2**34
"""


@pytest.mark.long
def test_the_only_device_reads_no_more_of_an_array_than_its_diagonal_and_64_bits_are_used_where_they_are_on():
    printed(ALONE, XLA_FLAGS="", JAX_PLATFORMS="cpu")


@pytest.mark.parametrize("scalar", [2, 2.0])
def test_what_was_a_python_scalar_yields_to_the_arrays_dtype(scalar):
    """As in jnp: a Python scalar, the weak array made of one, and the scalar as jit traces it."""
    half = jnp.arange(3, dtype=jnp.bfloat16)
    traced = jax.jit(lambda factor, array: einsumx.einsum(",i->i", factor, array))(scalar, half)
    for result in (einsumx.einsum(",i->i", scalar, half), einsumx.einsum(",i->i", jnp.asarray(scalar), half), traced):
        assert result.dtype == jnp.bfloat16
        assert result.tolist() == [0, 2, 4]
    assert einsumx.einsum(",i->i", jnp.float32(2), half).dtype == jnp.float32


def test_a_python_scalar_of_a_wider_kind_gives_that_kinds_default():
    assert einsumx.einsum(",i->i", 2.5, jnp.arange(3, dtype=jnp.int8)).dtype == jnp.float32
    assert (
        einsumx.einsum(",i,i->i", 2.5, jnp.arange(3, dtype=jnp.int8), jnp.ones(3, jnp.bfloat16)).dtype == jnp.bfloat16
    )


# -- keywords that JAX alone has --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "dtype", "wanted"),
    [
        ("ij,jk->ik", "int8", "int32"), ("ij,jk->ik", "bfloat16", "float32"), ("ij->i", "int8", "float32"),
        ("ij,jk,kl->il", "float16", np.dtype("float32")), ("ij,ij->ij", "float32", "bfloat16"),
        ("i,j->ij", "float32", jnp.complex64), ("ii->", "bool", "int32"), ("ij->ji", "int8", "int32"),
    ],
)  # fmt: skip
def test_preferred_element_type_gives_what_it_gives_in_jnp_einsum(rng, equation, dtype, wanted):
    terms = equation.partition("->")[0].split(",")
    operands = [jnp.asarray(rng.integers(-100, 100, (4,) * len(term))).astype(dtype) for term in terms]
    expected = jnp.einsum(equation, *operands, preferred_element_type=wanted)
    with einsumx.patched("jax"):
        patched = jnp.einsum(equation, *operands, preferred_element_type=wanted)
    for result in (einsumx.einsum(equation, *operands, preferred_element_type=wanted), patched):
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result.astype("complex64"), expected.astype("complex64"), rtol=0.01)


@pytest.mark.parametrize(("dtype", "wanted"), [("int8", "int32"), ("bfloat16", "float32")])
def test_operands_of_a_product_keep_their_dtype_under_preferred_element_type(dtype, wanted):
    operand = jnp.ones((4, 4), dtype)
    assert traced("ij,jk,kl->il", *[operand] * 3, preferred_element_type=wanted) == ["dot_general", "dot_general"]


def test_precision_reaches_every_product():
    operand = jnp.ones((4, 4))
    for precision in ("highest", jax.lax.Precision.HIGHEST, ("highest", "highest")):
        call = lambda given: einsumx.einsum("ij,jk,kl->il", given, given, given, precision=precision)  # noqa: B023, E731
        assert str(jax.make_jaxpr(call)(operand)).count("precision=(Precision.HIGHEST, Precision.HIGHEST)") == 2
    assert "HIGHEST" not in str(jax.make_jaxpr(lambda given: einsumx.einsum("ij,jk->ik", given, given))(operand))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"out_sharding": "x"}, "out_sharding= must be a PartitionSpec or a NamedSharding, not 'x'"),
        ({"precision": ["high", "high"]}, "precision= and out_sharding= must be hashable"),
        ({"preferred_element_type": "float32", "dtype": "float32"}, "both choose the result's dtype"),
        ({"preferred_element_type": "float32", "accumulate": "float32"}, "both choose the dtype of sums"),
        ({"preferred_element_type": "float64"}, "64-bit types are off"),
    ],
)
def test_a_keyword_that_jax_cannot_honour_is_an_error(options, message):
    for _ in range(2):
        with pytest.raises(einsumx.BackendError, match=message):
            einsumx.einsum("ij,jk->ik", jnp.ones((2, 2)), jnp.ones((2, 2)), **options)


@pytest.mark.long
def test_more_labels_than_letters_are_one_product_that_merges_no_axes():
    labels = [list(range(30)), list(range(28, 57))]
    shapes = [[2 if label in (0, 1, 28, 29, 56) else 1 for label in term] for term in labels]
    lhs, rhs = map(jnp.ones, shapes)
    output = [label for label in range(57) if label != 28]
    recorded = jax.make_jaxpr(lambda lhs, rhs: einsumx.einsum(lhs, labels[0], rhs, labels[1], output))(lhs, rhs)
    assert "reshape" not in primitives(recorded.jaxpr)
    assert (einsumx.einsum(lhs, labels[0], rhs, labels[1], output) == 2).all()


@pytest.mark.long
def test_one_export_serves_symbolic_sizes_and_traces_as_few_products():
    export = pytest.importorskip("jax.export")
    scope = export.SymbolicScope()
    shapes = [export.symbolic_shape(text, scope=scope) for text in ("b, n, 3", "b, m, 3")]
    q, k = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]

    def attention(q, k):
        return einsumx.einsum("bid,bjd->bij", q, k)

    exported = export.export(jax.jit(attention))(q, k)
    assert primitives(jax.make_jaxpr(attention)(jnp.ones((2, 4, 3)), jnp.ones((2, 5, 3))).jaxpr) == ["dot_general"]
    assert str(exported.mlir_module()).count("stablehlo.dot_general") == 1
    for shapes in ((2, 4, 3), (2, 5, 3)), ((1, 6, 3), (1, 1, 3)):
        lhs, rhs = map(jnp.ones, shapes)
        assert (exported.call(lhs, rhs) == np.full((lhs.shape[0], lhs.shape[1], rhs.shape[1]), 3)).all()


# -- derivatives ------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("equation", ["bi,ri,or->bo", "bi,ij,bj->b", "ij,jk,kl,lm->im"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("around", [jax.jit, lambda function: function], ids=["jit", "eager"])
def test_a_backward_pass_keeps_no_casts_of_operands_in_half_precision(equation, dtype, around):
    operands = [array.astype(dtype) for array in arrays(equation, 8)]
    result, pull = jax.vjp(around(partial(einsumx.einsum, equation)), *operands)
    own = {array.unsafe_buffer_pointer() for array in operands}
    kept = [array for array in jax.tree_util.tree_leaves(pull) if hasattr(array, "unsafe_buffer_pointer")]
    assert [array.shape for array in kept if array.unsafe_buffer_pointer() not in own] == []
    _, exact = jax.vjp(partial(jnp.einsum, equation), *[array.astype("float32") for array in operands])
    for gradient, other in zip(pull(jnp.ones_like(result)), exact(jnp.ones(result.shape, "float32"))):
        assert gradient.dtype == dtype
        largest = float(abs(other).max())
        np.testing.assert_allclose(gradient.astype("float32"), other, rtol=1 / 128, atol=largest / 256)
