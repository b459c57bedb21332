"""JAX's adapter: plans as dot_general sees them, dtypes with and without 64 bits, jit, grad, vmap, devices."""

import os
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

import einsumx  # noqa: E402
from einsumx.backends.jax import ADAPTER, TRAITS  # noqa: E402
from einsumx.ir.cost import op_seconds  # noqa: E402
from einsumx.ir.ops import Matmul, Native  # noqa: E402
from einsumx.ir.program import Operand  # noqa: E402

EQUATIONS = {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "bnid,bnjd->bnij": [(2, 2, 3, 4), (2, 2, 2, 4)],
    "bind,bjnd->bnij": [(2, 3, 2, 2), (2, 2, 2, 2)],
    "bind,jnd->bnij": [(2, 3, 2, 2), (2, 2, 2)],
    "ij,jk,kl->li": [(2, 3), (3, 2), (2, 3)],
    "ijk,ikl->jl": [(2, 3, 2), (2, 2, 3)],
    "ii->i": [(3, 3)],
    "iij,j->i": [(3, 3, 2), (2,)],
    "ij->": [(2, 3)],
    "ij->ji": [(2, 3)],
    "ij,ij->i": [(1, 4), (2, 4)],
    "i,j->ij": [(2,), (3,)],
    "...i,i...->...": [(2, 3), (3, 2)],
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def arrays(rng, equation):
    return [jnp.asarray(rng.normal(size=shape), "float32") for shape in EQUATIONS[equation]]


def primitives(jaxpr):
    """The names of a jaxpr's primitives in order, those of the functions that it calls included."""
    found = []
    for equation in jaxpr.eqns:
        inner = [value.jaxpr for value in equation.params.values() if hasattr(value, "jaxpr")]
        found += [name for called in inner for name in primitives(called)] if inner else [equation.primitive.name]
    return found


# -- what XLA sees ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bnid,bnjd->bnij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("bndi,bnjd->bnij", [(2, 3, 5, 4), (2, 3, 6, 5)]),
        ("bnij,bnjd->bnid", [(2, 3, 4, 6), (2, 3, 6, 5)]),
        ("ij,kj->ki", [(2, 3), (4, 3)]),
    ],
)
def test_dot_general_reads_operands_as_they_lie(equation, shapes):
    operands = [jnp.ones(shape) for shape in shapes]
    traced = jax.make_jaxpr(lambda *given: einsumx.einsum(equation, *given))(*operands)
    assert primitives(traced.jaxpr) == ["dot_general"]


PRODUCTS = {
    "bind,bjnd->bnij": (["dot_general"], dict.fromkeys("bnijd", 4)),
    "bnij,bjnd->bind": (["dot_general", "transpose"], dict.fromkeys("bnijd", 4)),
    "bind,jnd->ijbn": (["dot_general", "transpose"], dict.fromkeys("bnijd", 4)),
    "ij,j->i": (["dot_general"], {"i": 5, "j": 4}),
    "ij,i->j": (["dot_general"], {"i": 5, "j": 4}),
    "ji,kj->ki": (["dot_general"], {"i": 5, "j": 4, "k": 3}),
    "bij,bij->b": (["dot_general"], {"b": 2, "i": 3, "j": 4}),
    "aebf,dfce->abcd": (["dot_general", "transpose"], dict.fromkeys("abcdef", 3)),
    "ij,ij->": (["dot_general"], {"i": 5, "j": 4}),
    "ij,ij->ij": (["mul"], {"i": 5, "j": 4}),
    "ij,ij->ji": (["mul", "transpose"], {"i": 5, "j": 4}),
    "ij,ji->ij": (["transpose", "mul"], {"i": 5, "j": 4}),
    "ij,ji->ji": (["transpose", "mul"], {"i": 5, "j": 4}),
    "ij,j->ij": (["dot_general", "transpose"], {"i": 5, "j": 4}),
    "i,j->ij": (["dot_general"], {"i": 5, "j": 4}),
    ",ij->ij": (["mul"], {"i": 5, "j": 4}),
    "ab,cd->acbd": (["dot_general", "transpose"], dict.fromkeys("abcd", 3)),
    "iij,jk->ik": (["reduce_sum", "transpose", "dot_general"], dict.fromkeys("ijk", 3)),
    "bii,bj->bj": (["reduce_sum", "dot_general"], dict.fromkeys("bij", 3)),
    "abcd->cdab": (["transpose"], dict.fromkeys("abcd", 3)),
    "abcd,de->ab": (["reduce_sum", "reduce_sum", "dot_general"], dict.fromkeys("abcde", 3)),
}
"""The primitives that move or compute data, in order, and the sizes."""


@pytest.mark.parametrize("equation", PRODUCTS)
def test_each_pair_is_one_dot_general_or_mul_and_no_axes_are_merged(rng, equation):
    expected, sizes = PRODUCTS[equation]
    operands = [
        jnp.asarray(rng.normal(size=[sizes[label] for label in term]), "float32")
        for term in equation.partition("->")[0].split(",")
    ]
    traced = jax.make_jaxpr(lambda *given: einsumx.einsum(equation, *given))(*operands)
    assert "reshape" not in primitives(traced.jaxpr)
    moving = {"dot_general", "mul", "gather", "transpose", "reduce_sum"}
    found = [name for name in primitives(traced.jaxpr) if name in moving]
    assert found == expected
    reference = np.einsum(equation, *operands, optimize=True)
    np.testing.assert_allclose(einsumx.einsum(equation, *operands), reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("equation", "pairs"),
    [
        ("pqrs,pi,qa,rj,sb->iajb", 4),  # a transform of all axes
        ("ab,apc,bpd,cqe,dqf->ef", 4),  # the norm of a matrix product state
        ("bqd,bkd,bkc->bqc", 2),
        ("ij,jk,kl,lm->im", 3),
    ],
)
def test_a_network_is_one_dot_general_for_each_pair_and_at_most_one_transpose(equation, pairs):
    operands = [jnp.ones([3 + (label > "m") for label in term]) for term in equation.partition("->")[0].split(",")]
    traced = jax.make_jaxpr(lambda *given: einsumx.einsum(equation, *given))(*operands)
    found = primitives(traced.jaxpr)
    assert found in (["dot_general"] * pairs, ["dot_general"] * pairs + ["transpose"])


def test_axes_of_size_1_are_dropped_and_added_without_a_reshape():
    operands = [jnp.ones((2, 1, 4)), jnp.ones((1, 3, 4)), jnp.ones((2, 1, 1))]
    traced = jax.make_jaxpr(lambda *given: einsumx.einsum("bij,bij,bik->bi", *given))(*operands)
    assert "reshape" not in primitives(traced.jaxpr)
    assert (einsumx.einsum("bij,bij,bik->bi", *operands) == 4).all()


def test_an_operand_is_not_copied_if_its_contracted_axes_are_first_or_last():
    shapes = [(8, 8, 8, 8), (8, 4), (8, 4)]
    path = [(0, 1), (0, 1)]
    plan = einsumx.plan("pqrs,pi,sb->iqrb", *shapes, backend="jax", dtypes="float32", optimize=path)
    assert plan.ops == (Native(3, (1, 0), "ab,acde->bcde"), Native(4, (3, 2), "abcd,de->abce"))


@pytest.mark.parametrize("equation", ["bij,bkj->bki", "bjnd,bind->ijbn", "ij,ij->ji", "ab,cd->dacb", "ijk,kji->"])
def test_plans_survive_json_and_are_written_as_code(rng, equation):
    shapes = [(3,) * len(term) for term in equation.partition("->")[0].split(",")]
    plan = einsumx.plan(equation, *shapes, backend="jax", dtypes="float32")
    assert einsumx.Plan.from_json(plan.to_json()) == plan
    operands = [jnp.asarray(rng.normal(size=shape), "float32") for shape in shapes]
    names = {}
    exec(plan.source(), names)
    for result in (names["contraction"](*operands), plan(*operands)):
        np.testing.assert_allclose(result, np.einsum(equation, *operands), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "equation", ["aab,b->a", "ab,bc->c", "ab,cd->ca", "ab,bc,cd->ad", "ab->b", "ab,ba->ba", "a,b->ba"]
)
def test_the_kernel_of_a_stored_plan_computes_any_einsum(rng, equation):
    terms = equation.partition("->")[0].split(",")
    operands = [jnp.asarray(rng.normal(size=(3,) * len(term)), "float32") for term in terms]
    op = Native(len(terms), tuple(range(len(terms))), equation)
    kernel = ADAPTER.kernel(op, [operand.shape for operand in operands], "float32")
    np.testing.assert_allclose(kernel(*operands), np.einsum(equation, *operands), rtol=1e-4, atol=1e-4)


def test_a_product_is_priced_at_the_speed_of_products():
    operands = [Operand((50, 60, 70), "float32"), Operand((50, 70, 80), "float32")]
    einsum = op_seconds(Native(2, (0, 1), "bij,bjk->bik"), operands, TRAITS)
    assert einsum == op_seconds(Matmul(2, 0, 1), operands, TRAITS)


def test_no_plan_is_said_to_fall_back_to_the_own_einsum(caplog, capsys):
    from einsumx.cli.main import main

    with caplog.at_level("INFO", "einsumx"):
        assert main(["explain", "ab,bc->ac", "3,4", "4,5", "--backend", "jax"]) == 0
    assert not [record for record in caplog.records if record.levelname == "INFO"]
    assert capsys.readouterr().out.endswith("generic kernel  none\n")


def test_half_precision_products_accumulate_in_float32_inside_dot_general():
    operand = jnp.ones((2, 3), "bfloat16")
    traced = jax.make_jaxpr(lambda given: einsumx.einsum("ij,kj->ik", given, given))(operand)
    assert primitives(traced.jaxpr) == ["dot_general", "convert_element_type"]


def test_a_plan_is_traced_once_for_many_calls(rng, monkeypatch):
    einsumx.cache_clear()
    calls = []
    dot_general = jax.lax.dot_general
    monkeypatch.setattr(jax.lax, "dot_general", lambda *a, **k: calls.append(1) or dot_general(*a, **k))
    operands = arrays(rng, "ij,jk->ik")
    for _ in range(3):
        einsumx.einsum("ij,jk->ik", *operands)
    assert calls == [1]
    einsumx.cache_clear()


def test_planning_for_jax_imports_no_jax():
    script = (
        "import sys, einsumx; einsumx.plan('bnid,bnjd->bnij', (2, 3, 4, 5), (2, 3, 6, 5), backend='jax', "
        "dtypes='bfloat16'); sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# -- dtypes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_integers_are_exact_and_wrap(rng, dtype):
    limits = np.iinfo(dtype)
    host = rng.integers(limits.min, limits.max, (3, 3), dtype, endpoint=True)
    product = einsumx.einsum("ij,jk->ik", jnp.asarray(host), jnp.asarray(host))
    assert product.dtype == dtype
    assert np.array_equal(product, host @ host)
    total = einsumx.einsum("ij->j", jnp.asarray(host))
    assert total.dtype == dtype
    assert np.array_equal(total, host.sum(0, dtype))


def test_bool_is_an_or_of_ands():
    lhs, rhs = jnp.asarray([[True, True], [False, True]]), jnp.asarray([[True, False], [True, False]])
    result = einsumx.einsum("ij,jk->ik", lhs, rhs)
    assert result.dtype == bool
    assert result.tolist() == [[True, False], [True, False]]
    assert einsumx.einsum("ij->j", lhs).tolist() == [True, True]
    assert einsumx.einsum("ij,ij->ij", lhs, rhs).tolist() == [[True, False], [False, False]]


@pytest.mark.parametrize(("equation", "shapes"), [("a,b", [(2,), (3,)]), ("abc,c->abc", [(2, 3, 4), (4,)])])
def test_products_do_not_rely_on_the_promotion_of_ranks(equation, shapes):
    arrays = [jnp.ones(shape, bool) for shape in shapes]
    with jax.numpy_rank_promotion("raise"):
        result = einsumx.einsum(equation, *arrays)
    assert result.dtype == bool
    assert result.all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("equation", ["ij,jk->ik", "i,i->", "ij,j->i", "bij,bj->bi", "ij->i", "i,i,i->"])
def test_half_precision_accumulates_wide_and_rounds_once(equation, dtype):
    # A running sum of ones in half precision stops at the first number whose successor is 2 away.
    count = 2 * int(2 / float(jnp.finfo(dtype).eps))
    inputs, _, output = equation.partition("->")
    sizes = dict.fromkeys("bik", 3) | dict.fromkeys(set(inputs) - set(output), count)
    operands = [jnp.ones([sizes[label] for label in term], dtype) for term in inputs.split(",")]
    result = einsumx.einsum(equation, *operands)
    assert result.dtype == dtype
    assert (result == count).all()


def test_dtypes_are_promoted_as_jax_promotes_them():
    half, integers = jnp.ones(2, "float16"), jnp.ones(2, "int32")
    assert einsumx.einsum("i,i->", half, integers).dtype == jnp.promote_types("float16", "int32")
    assert einsumx.einsum("i,i->", half, half.astype("bfloat16")).dtype == "float32"


@pytest.mark.parametrize(
    ("value", "dtype", "promoted"),
    [
        (2, "int8", "int8"),
        (2.5, "int8", "float32"),
        (2.5, "bfloat16", "bfloat16"),
        (2j, "float32", "complex64"),
        (True, "uint8", "uint8"),
    ],
)
def test_python_scalars_follow_arrays_as_in_jax(value, dtype, promoted):
    array = jnp.ones(3, dtype)
    result = einsumx.einsum(",i->i", value, array)
    assert result.dtype == promoted == (value * array).dtype
    assert np.array_equal(result, value * array)


@pytest.mark.parametrize("dtype", ["float64", "int64", "complex128", float, np.float64])
def test_a_64_bit_dtype_is_an_error_where_jax_would_truncate_it(dtype):
    with pytest.raises(einsumx.BackendError, match=r"64-bit types are off.*jax_enable_x64"):
        einsumx.einsum("i,i->", jnp.ones(2), jnp.ones(2), dtype=dtype)


def test_64_bits_are_used_where_jax_has_them_on():
    script = (
        "import jax; jax.config.update('jax_enable_x64', True)\n"
        "import einsumx, jax.numpy as jnp\n"
        "ones = jnp.ones(2, 'float32')\n"
        "assert einsumx.einsum('i,i->', ones, ones, dtype='float64').dtype == 'float64'\n"
        "assert einsumx.einsum('i,i->', jnp.full(2, 2**33), jnp.ones(2, 'int64')) == 2**34\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# -- errors -----------------------------------------------------------------------------------------------------


def test_out_is_an_error_as_arrays_cannot_be_written_to():
    out = jnp.zeros((2, 2))
    with pytest.raises(einsumx.BackendError, match="jax arrays cannot be written to"):
        einsumx.einsum("ij->ji", jnp.ones((2, 2)), out=out)


@pytest.mark.parametrize("order", ["C", "F", "A"])
def test_a_memory_order_is_an_error(order):
    with pytest.raises(einsumx.BackendError, match="no memory order"):
        einsumx.einsum("ij->ji", jnp.ones((2, 2)), order=order)


def test_numpy_arrays_among_jax_arrays_are_an_error_that_names_both():
    with pytest.raises(einsumx.BackendError, match=r"to jax and operand 1 \(numpy\.ndarray\) to numpy"):
        einsumx.einsum("i,i->", jnp.ones(2), np.ones(2))


def test_a_dtype_that_is_no_number_to_compute_with_is_an_error():
    with pytest.raises(einsumx.BackendError, match="float8_e4m3fn"):
        einsumx.einsum("i->i", jnp.ones(2, "float8_e4m3fn"))
    with pytest.raises(einsumx.BackendError, match="key"):
        einsumx.einsum("i->i", jax.random.split(jax.random.key(0), 2))


def test_sparse_arrays_are_an_error():
    sparse = pytest.importorskip("jax.experimental.sparse")
    with pytest.raises(einsumx.BackendError, match="BCOO"):
        einsumx.einsum("ij->ji", sparse.BCOO.fromdense(jnp.eye(2)))


# -- transformations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("equation", EQUATIONS)
def test_first_and_second_derivatives_are_right(rng, equation):
    from jax.test_util import check_grads

    check_grads(lambda *given: einsumx.einsum(equation, *given), arrays(rng, equation), order=2, atol=0.02, rtol=0.02)


def test_traced_operands_go_with_concrete_ones():
    weight = jax.device_put(jnp.full((3, 4), 2.0), jax.devices()[0])
    result = jax.jit(lambda given: einsumx.einsum("ij,jk->ik", given, weight))(jnp.ones((2, 3)))
    assert (result == 6).all()
    gradient = jax.grad(lambda given: einsumx.einsum("ij,jk->", given, weight))(jnp.ones((2, 3)))
    assert (gradient == 8).all()


def test_a_compiled_expression_works_under_jit(rng):
    weight = jnp.asarray(rng.normal(size=(4, 5)), "float32")
    expression = einsumx.expression("bi,ij->bj", (3, 4), weight)
    operand = jnp.asarray(rng.normal(size=(3, 4)), "float32")
    np.testing.assert_allclose(jax.jit(expression)(operand), operand @ weight, rtol=1e-5, atol=1e-5)


# -- devices ----------------------------------------------------------------------------------------------------

DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import einsumx

first, second = jax.devices("cpu")
free = jnp.ones((2, 2))
there = jax.device_put(free, second)
assert einsumx.einsum("ij,jk->ik", free, there).devices() == {second}
assert einsumx.einsum(",ij->ij", 2.0, there).devices() == {second}
assert einsumx.plan("ij->ji", there).device == "cpu:1"
try:
    einsumx.einsum("ij,jk->ik", jax.device_put(free, first), there)
except einsumx.BackendError as error:
    assert "cpu:0 and cpu:1" in str(error)
else:
    raise AssertionError("arrays on two devices were taken")
mesh = Mesh(np.array([first, second]), ("rows",))
rows = jax.device_put(free, NamedSharding(mesh, PartitionSpec("rows")))
whole = jax.device_put(free, NamedSharding(mesh, PartitionSpec()))
product = einsumx.einsum("ij,jk->ik", rows, whole)
assert product.devices() == {first, second} and (product == 2).all()
"""


def test_arrays_stay_on_their_device_and_two_devices_are_an_error():
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", DEVICES], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


ALONE = """
import jax, jax.numpy as jnp, numpy as np
import einsumx

for equation in ("ii->i", "bii->b", "iji->", "abab->ba", "aabb->", "iij,jk->ik", "iii,i->i"):
    terms = equation.partition("->")[0].split(",")
    arrays = [jnp.arange(3.0 ** len(term)).reshape((3,) * len(term)) for term in terms]
    traced = jax.make_jaxpr(lambda *arrays: einsumx.einsum(equation, *arrays))(*arrays)
    assert "gather" in str(traced), equation
    np.testing.assert_allclose(einsumx.einsum(equation, *arrays), np.einsum(equation, *map(np.asarray, arrays)))
"""


def test_the_only_device_reads_no_more_of_an_array_than_its_diagonal():
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SHARDED = """
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import einsumx

cases = [
    ("bind,bjnd->bnij", P(None, None, "x"), P(None, None, "x"), P(None, "x", None, None)),
    ("bnij,bjnd->bind", P("x", "y"), P("x", None, "y"), P("x", None, "y", None)),
    ("abcd,dc->ab", P("x", "y"), P(), P("x", "y")),
    ("abcd,ce->aebd", P("x", "y"), P(), P("x", None, "y", None)),
    ("ab,b->ab", P("x", "y"), P(), P("x", "y")),
    ("ab,cd->acbd", P("x"), P("y"), P("x", "y", None, None)),
]
for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(kind, kind))
    with jax.set_mesh(mesh):
        for equation, *specs, expected in cases:
            terms = equation.partition("->")[0].split(",")
            arrays = [jnp.ones((4,) * len(term)) for term in terms]
            operands = [jax.device_put(array, NamedSharding(mesh, spec)) for array, spec in zip(arrays, specs)]
            product = jax.jit(lambda *operands: einsumx.einsum(equation, *operands))
            text = product.lower(*operands).compile().as_text()
            assert "all-" not in text and "collective-" not in text, (kind, equation)
            result = product(*operands)
            assert result.sharding.is_equivalent_to(NamedSharding(mesh, expected), result.ndim), (kind, equation)
            assert (einsumx.einsum(equation, *operands) == jnp.einsum(equation, *operands)).all()
"""


def test_products_of_sharded_arrays_move_no_data_between_devices():
    if not (hasattr(jax.sharding, "AxisType") and hasattr(jax, "set_mesh")):
        pytest.skip("this JAX has no explicit axes")
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", SHARDED], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,jk,kl->il", "ij->i", "ii->", "ij,ij->ij", "i,j->ij", "ij->ji"])
@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        ("int8", "int32"), ("int8", "float32"), ("bfloat16", "float32"), ("float16", np.dtype("float32")),
        ("float32", "bfloat16"), ("float32", jnp.complex64), ("bool", "int32"), ("float32", jnp.float32),
    ],
)  # fmt: skip
def test_preferred_element_type_gives_what_it_gives_in_jnp_einsum(rng, equation, dtype, wanted):
    terms = equation.partition("->")[0].split(",")
    operands = [jnp.asarray(rng.integers(-100, 100, (4,) * len(term))).astype(dtype) for term in terms]
    expected = jnp.einsum(equation, *operands, preferred_element_type=wanted)
    with einsumx.patch("jax"):
        patched = jnp.einsum(equation, *operands, preferred_element_type=wanted)
    for result in (einsumx.einsum(equation, *operands, preferred_element_type=wanted), patched):
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result.astype("complex64"), expected.astype("complex64"), rtol=0.01)


@pytest.mark.parametrize(("dtype", "wanted"), [("int8", "int32"), ("bfloat16", "float32")])
def test_operands_of_a_product_keep_their_dtype_under_preferred_element_type(dtype, wanted):
    operand = jnp.ones((4, 4), dtype)
    traced = jax.make_jaxpr(
        lambda given: einsumx.einsum("ij,jk,kl->il", given, given, given, preferred_element_type=wanted)
    )(operand)
    assert primitives(traced.jaxpr) == ["dot_general", "dot_general"]


def test_precision_reaches_every_product():
    operand = jnp.ones((4, 4))
    for precision in ("highest", jax.lax.Precision.HIGHEST, ("highest", "highest")):
        call = lambda given: einsumx.einsum("ij,jk,kl->il", given, given, given, precision=precision)  # noqa: B023, E731
        assert str(jax.make_jaxpr(call)(operand)).count("precision=(Precision.HIGHEST, Precision.HIGHEST)") == 2
    assert "HIGHEST" not in str(jax.make_jaxpr(lambda given: einsumx.einsum("ij,jk->ik", given, given))(operand))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"out_sharding": "x"}, "out_sharding= is a PartitionSpec or a NamedSharding, not 'x'"),
        ({"precision": ["high", "high"]}, "precision= and out_sharding= are hashable values"),
        ({"preferred_element_type": "float32", "dtype": "float32"}, "both choose the result's dtype"),
        ({"preferred_element_type": "float64"}, "64-bit types are off"),
    ],
)
def test_a_keyword_that_jax_cannot_honour_is_an_error(options, message):
    for _ in range(2):
        with pytest.raises(einsumx.BackendError, match=message):
            einsumx.einsum("ij,jk->ik", jnp.ones((2, 2)), jnp.ones((2, 2)), **options)


def test_more_labels_than_letters_are_one_product_that_merges_no_axes():
    labels = [list(range(30)), list(range(28, 57))]
    shapes = [[2 if label in (0, 1, 28, 29, 56) else 1 for label in term] for term in labels]
    lhs, rhs = map(jnp.ones, shapes)
    output = [label for label in range(57) if label != 28]
    traced = jax.make_jaxpr(lambda lhs, rhs: einsumx.einsum(lhs, labels[0], rhs, labels[1], output))(lhs, rhs)
    assert "reshape" not in primitives(traced.jaxpr)
    assert (einsumx.einsum(lhs, labels[0], rhs, labels[1], output) == 2).all()


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
    for batch, rows, cols in ((2, 4, 5), (1, 6, 1), (3, 1, 2)):
        lhs = np.arange(3.0 * batch * rows, dtype="float32").reshape(batch, rows, 3)
        rhs = np.arange(3.0 * batch * cols, dtype="float32").reshape(batch, cols, 3)
        np.testing.assert_allclose(exported.call(lhs, rhs), np.einsum("bid,bjd->bij", lhs, rhs))


def test_symbolic_sizes_that_differ_are_an_error():
    export = pytest.importorskip("jax.export")
    lhs = jax.ShapeDtypeStruct(export.symbolic_shape("n, m"), "float32")
    with pytest.raises(einsumx.SizeError, match=r"label 'i' has another size in operand 0 \(axis 1\)"):
        export.export(jax.jit(lambda lhs: einsumx.einsum("ii->i", lhs)))(lhs)
