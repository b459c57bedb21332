"""``accumulate=``: plans, exactness at the ends of the ranges, and what the conformance suite does not judge."""

from functools import partial
from importlib import import_module
from itertools import product

import numpy as np
import peaks
import pytest
from processes import printed

import einsumx
from einsumx import BackendError, Plan, einsum, expression, plan
from einsumx.adapters.registry import get_backend
from einsumx.ir import ops

EQUATION = "ij,jk->ik"
SHAPES = (40, 300), (300, 30)
a, b = (np.random.default_rng(0).normal(size=shape).astype("float32") for shape in SHAPES)
EXACT = (a.astype("float64") @ b.astype("float64")).astype("float32")


def computed(program):
    """The dtypes of products and sums."""
    types = [each.dtype for each in program.values]
    return {types[op.out if isinstance(op, ops.Matmul) else op.sources[0]] for op in program.ops if op.effect == "work"}


def casts(program):
    return [op.dtype for op in program.ops if isinstance(op, ops.Cast)]


# -- floats -----------------------------------------------------------------------------------------------------------


def test_sums_are_computed_in_the_accumulator_and_rounded_once():
    program = plan(EQUATION, *SHAPES, dtypes="float32", accumulate="float64")
    assert computed(program) == {"float64"}
    assert casts(program) == ["float64", "float64", "float32"]
    np.testing.assert_array_equal(einsum(EQUATION, a, b, accumulate="float64"), EXACT)
    np.testing.assert_array_equal(einsum(EQUATION, a, b, accumulate=np.float64, memory_limit="99 kB"), EXACT)
    np.testing.assert_array_equal(einsum(EQUATION, a, b, accumulate=float, out=np.empty_like(EXACT)), EXACT)
    np.testing.assert_array_equal(expression(EQUATION, a.shape, b, accumulate="float64")(a), EXACT)


def test_the_results_own_dtype_is_the_default_and_integers_wrap_in_a_wider_one_too():
    for dtype, accumulate in (("float32", "float32"), ("bool", "bool"), ("complex64", "complex64"), ("int8", "int32")):
        assert plan(EQUATION, *SHAPES, dtypes=dtype, accumulate=accumulate) == plan(EQUATION, *SHAPES, dtypes=dtype)


@pytest.mark.parametrize("backend", ["numpy", "torch", "mxnet", "jax"])
@pytest.mark.parametrize(
    ("equation", "shape"),
    [("->", ()), ("i->i", (3,)), ("ii->i", (3, 3)), ("...j->j...", (2, 3)), ("ijj->ji", (2, 3, 3)), ("ij->i", (3, 1))],
)
def test_a_rearrangement_is_planned_as_without_an_accumulator(equation, shape, backend):
    options = {"dtypes": "float32", "backend": backend}
    program = plan(equation, shape, **options, accumulate="float64")
    assert program.ops == plan(equation, shape, **options).ops
    assert program.accumulate == "float64"
    assert Plan.from_json(program.to_json()) == program


def test_a_rearrangement_with_an_accumulator_is_a_view_and_takes_no_more_memory_under_a_limit():
    assert np.shares_memory(einsum("ij->ji", a, accumulate="float64"), a)
    half = a.astype("float16")
    np.testing.assert_array_equal(einsum("ij->ji", half, memory_limit=half.nbytes, order="C"), half.T)


def test_plans_with_an_accumulator_are_stored_and_made_again_with_it(torch):
    program = plan(EQUATION, a, b, accumulate="float64")
    stored = Plan.from_json(program.to_json())
    assert stored == program
    assert stored.accumulate == "float64"
    assert computed(stored.retarget("torch")) == {"float64"}
    np.testing.assert_array_equal(stored(torch.tensor(a), torch.tensor(b)).numpy(), EXACT)
    of_any_size = plan(EQUATION, (None, 300), (300, None), dtypes="float32", accumulate="float64")
    np.testing.assert_array_equal(of_any_size(a, b), EXACT)


def test_calls_with_and_without_an_accumulator_take_turns_also_where_plans_are_measured():
    for _ in range(2):
        for accumulate, expected in ((None, einsum(EQUATION, a, b)), ("float64", EXACT)):
            np.testing.assert_array_equal(einsum(EQUATION, a, b, accumulate=accumulate), expected)
    assert (einsum(EQUATION, a, b) != EXACT).any()
    with einsumx.effort("measure"):
        for _ in range(3):
            np.testing.assert_array_equal(einsum(EQUATION, a, b, accumulate="float64"), EXACT)


@pytest.mark.long
def test_dask_arrays_have_an_accumulator():
    da = pytest.importorskip("dask.array")
    arrays = [da.from_array(array, chunks=100) for array in (a, b)]
    result = einsum(EQUATION, *arrays, accumulate="float64").compute()
    assert result.dtype == "float32"
    np.testing.assert_array_equal(result, EXACT)


@pytest.mark.parametrize("limit", [None, "3 MB"])
def test_gradients_are_computed_in_the_accumulator_too(limit, torch):
    x, y = (torch.tensor(array, requires_grad=True) for array in (a, b))
    einsum(EQUATION, x, y, accumulate=torch.float64, memory_limit=limit).sum().backward()
    assert x.grad.dtype == torch.float32
    assert torch.equal(x.grad, (torch.ones(40, 30).double() @ y.detach().double().T).float())


def test_torch_compile_records_the_accumulator(torch):
    compiled = torch.compile(lambda x, y: einsum(EQUATION, x, y, accumulate="float64"), backend="eager", fullgraph=True)
    np.testing.assert_array_equal(compiled(torch.tensor(a), torch.tensor(b)).numpy(), EXACT)


@pytest.mark.parametrize(
    ("accumulate", "says"),
    [
        ("float32", "is of another kind .* than the result, which has dtype int8; pass dtype="),
        ("float33", "does not support dtype 'float33'"),
        (object(), "accumulate=.* is not a dtype of numpy"),
    ],
)
def test_an_accumulator_that_is_none_or_would_lose_something_is_refused_also_under_a_limit(accumulate, says):
    for limit in (None, "1 MB"):
        with pytest.raises(BackendError, match=says):
            einsum(EQUATION, a.astype("int8"), b.astype("int8"), accumulate=accumulate, memory_limit=limit)


# -- integers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "inner", "dtypes", "dtype", "expected"),
    [
        ("numpy", 1024, "int8", "int64", {"float32"}),
        ("numpy", 1025, "int8", "int64", {"int64"}),
        ("numpy", 258, ("uint8", "int8"), "int32", {"float32"}),
        ("numpy", 600, ("uint8", "int8"), "int32", {"int32"}),
        ("numpy", 5000, "bool", "int32", {"float32"}),
        ("numpy", 1000, "int16", "int64", {"int64"}),
        ("numpy", 1000, "int8", "int8", {"int8"}),
        ("numpy", 2, "int8", "int32", {"int32"}),
        ("torch", 1024, "int8", "int64", {"float32"}),
        ("torch", 1025, "int8", "int64", {"float64"}),
        ("torch", 100, "int16", "int64", {"float64"}),
        ("torch", 100, ("int16", "bool"), "int32", {"float64"}),
        ("torch", 100, "int32", "int64", {"int64"}),
    ],
)
def test_narrow_integers_are_multiplied_in_the_first_float_that_is_provably_exact(
    backend, inner, dtypes, dtype, expected
):
    program = plan(EQUATION, (20, inner), (inner, 20), backend=backend, dtypes=dtypes, dtype=dtype)
    assert computed(program) == expected
    assert Plan.from_json(program.to_json()) == program


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(("dtype", "result"), [("int8", "int32"), ("uint8", "uint32"), ("int8", "int16")])
@pytest.mark.parametrize("equation", [EQUATION, "ji,kj->ki", "bij,bkj->bik"])
def test_products_of_narrow_integers_are_summed_in_int32_without_a_cast_of_the_operands(
    backend, dtype, result, equation
):
    shapes = [(20,) * len(term) for term in equation.partition("->")[0].split(",")]
    program = plan(equation, *shapes, backend=backend, dtypes=dtype, dtype=result, casting="unsafe")
    assert [op.sums for op in program.ops if isinstance(op, ops.Matmul)] == ["int32"]
    assert casts(program) == [result] * (result != "int32")
    assert f"in int32{' ' * 2}" in str(program)
    assert Plan.from_json(program.to_json()) == program
    with pytest.warns(RuntimeWarning, match="now makes another plan"):
        foreign = Plan.from_json(program.to_json().replace(f'"backend": "{backend}"', '"backend": "array_api"'))
    assert not any(isinstance(op, ops.Matmul) and op.sums for op in foreign.ops)


def test_products_of_narrow_integers_of_unknown_sizes_are_summed_in_int32():
    program = plan(EQUATION, (None, 40), (40, None), dtypes="int8", dtype="int32")
    assert [op.sums for op in program.ops if isinstance(op, ops.Matmul)] == ["int32"]
    lhs, rhs = np.full((30, 40), -128, "int8"), np.full((40, 50), -128, "int8")
    np.testing.assert_array_equal(program(lhs, rhs), np.full((30, 50), 40 << 14))


@pytest.mark.parametrize("narrower", ["int8", "int16", "uint16", "float32"])
def test_a_stored_plan_whose_product_sums_in_a_narrower_dtype_is_planned_again(narrower):
    program = plan(EQUATION, (20, 30), (30, 20), dtypes="int8", dtype="int32")
    changed = program.to_json().replace('"threads": "", "sums": "int32"', f'"threads": "", "sums": "{narrower}"')
    assert changed != program.to_json()
    with pytest.warns(RuntimeWarning, match="now makes another plan"):
        assert Plan.from_json(changed) == program


def test_factors_that_are_sums_need_more_bits_than_a_float32_product_may_read():
    summed_first = plan("hij,jk->ik", (8, 20, 30), (30, 20), backend="torch", dtypes="int8", dtype="int32")
    assert computed(summed_first) == {"float64"}
    chain = plan("ij,jk,kl->il", (20, 20), (20, 20), (20, 20), backend="torch", dtypes="int8", dtype="int32")
    assert computed(chain) == {"float64"}


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_odd_sums_next_to_the_largest_ones_are_exact(backend):
    pytest.importorskip(backend)
    adapter = get_backend(backend)
    for inner, extreme, dtype in ((1024, -128, "int8"), (1025, -128, "int8"), (258, 255, "uint8"), (259, 255, "uint8")):
        lhs, rhs = np.full((5, inner), extreme, dtype), np.full((inner, 4), extreme, dtype)
        lhs[0] = 1
        rhs[:, 1] = 1
        expected = lhs.astype("int64") @ rhs.astype("int64")
        arrays = [adapter.from_numpy(array, "cpu") for array in (lhs, rhs)]
        for result in ("int32", "int16"):
            found = einsum(EQUATION, *arrays, dtype=result, casting="unsafe")
            np.testing.assert_array_equal(np.asarray(found), expected.astype(result))


_EXTREMES = """
import numpy as np, torch
from einsumx import einsum
for inner in (16, 64, 1025):
    for low, high in ((-128, -128), (-128, 127), (127, 127)):
        for equation in ("ij,jk->ik", "ji,jk->ik", "ij,kj->ik", "ji,kj->ki"):
            lhs, rhs = np.full((40, inner), low, "int8"), np.full((inner, 33), high, "int8")
            lhs[::3], rhs[:, ::2] = 1, 3
            first, second = equation.partition("->")[0].split(",")
            operands = lhs if first == "ij" else lhs.T, rhs if second == "jk" else rhs.T
            expected = lhs.astype("int64") @ rhs.astype("int64")
            found = einsum(equation, *map(torch.tensor, map(np.ascontiguousarray, operands)), dtype="int32").numpy()
            assert (found == (expected.T if equation.endswith("ki") else expected)).all(), (inner, low, high, equation)
    vector = torch.full((inner,), -128, dtype=torch.int8)
    for lhs in (torch.full((1100, inner), -128, dtype=torch.int8), torch.full((inner, 1100), -128, dtype=torch.int8).T):
        assert (einsum("ij,j->i", lhs, vector, dtype="int32") == inner << 14).all()
        assert (einsum("ij,kj->ki", lhs, vector.repeat(3, 1), dtype="int32") == inner << 14).all()
"""


@pytest.mark.long
def test_torch_is_exact_on_processors_without_instructions_for_sums_of_int8():
    """There, oneDNN's product of int8 saturates; without oneDNN's, torch has a plain loop, which is exact."""
    pytest.importorskip("torch")
    printed(_EXTREMES, ONEDNN_MAX_CPU_ISA="SSE41")


_MEMORY = {
    "ij,jk->ik": [(300, 500), (500, 400)],
    "ij,kj->ki": [(100, 3000), (150, 3000)],
    "bij,bjk->bik": [(6, 150, 200), (6, 200, 150)],
    "ij,j->i": [(900, 3000), (3000,)],
    "bij,bj->bi": [(40, 200, 200), (40, 200)],
}


@pytest.mark.parametrize(
    ("backend", "equation", "dtype"),
    [*product(["numpy", "torch", "torch in floats"], _MEMORY, ["int8"]), ("numpy", "ij,jk->ik", "uint8")],
)
def test_products_of_narrow_integers_have_no_more_in_memory_than_the_plan_says(backend, equation, dtype, monkeypatch):
    if backend == "torch in floats":
        pytest.importorskip("torch")
        monkeypatch.setattr(import_module("einsumx.backends.torch.integers"), "int_mm_serves", lambda: False)
    arrays = [peaks.numbers(shape, dtype, np.random.default_rng(1)) for shape in _MEMORY[equation]]
    expected = np.einsum(equation, *[array.astype("float64") for array in arrays], optimize=True)
    given = arrays if backend == "numpy" else [pytest.importorskip("torch").tensor(array) for array in arrays]
    call = partial(einsum, equation, *given, dtype="int32")
    call()
    result, measured = (peaks.numpy_peak if backend == "numpy" else peaks.torch_peak)(call)
    np.testing.assert_array_equal(result, expected)
    total, predicted = (
        measured + sum(array.nbytes for array in arrays),
        plan(equation, *given, dtype="int32").peak_bytes,
    )
    assert total <= predicted + peaks.OBJECTS
    assert backend != "numpy" or total >= 0.7 * predicted


@pytest.fixture
def instructions(monkeypatch):
    """Says whether the processor has instructions for products of int8, as torch would."""
    torch = pytest.importorskip("torch")
    serves = import_module("einsumx.backends.torch.integers").int_mm_serves

    def set_to(has_them):
        monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: has_them, raising=False)
        serves.cache_clear()
        return serves

    yield set_to
    monkeypatch.undo()
    serves.cache_clear()


def test_a_product_of_torch_that_saturates_is_not_used(monkeypatch, instructions, torch):
    lhs, rhs = (torch.full((32, 32), -128, dtype=torch.int8) for _ in range(2))
    used = []

    def saturating(lhs, rhs, out=None):
        used.append(lhs.shape)
        return (lhs.int() @ rhs.int()).clamp(max=2**15 - 1)

    monkeypatch.setattr(torch, "_int_mm", saturating)
    assert not instructions(True)()
    assert used
    assert torch.equal(einsum(EQUATION, lhs, rhs, dtype="int32"), torch.full((32, 32), 1 << 19, dtype=torch.int32))


def test_torch_multiplies_int8_by_its_own_product_where_that_is_fast_and_exact(monkeypatch, instructions, torch):
    if not instructions(True)():
        pytest.skip("torch._int_mm saturates on this processor")
    own, shapes = torch._int_mm, []
    monkeypatch.setattr(torch, "_int_mm", lambda *sides, **where: shapes.append(len(sides)) or own(*sides, **where))
    large = torch.full((2, 150, 150), -128, dtype=torch.int8)
    expected = torch.full((2, 150, 150), 150 << 14, dtype=torch.int32)
    assert torch.equal(einsum("bij,bjk->bik", large, large, dtype="int32"), expected)
    assert torch.equal(einsum("ij,bjk->ibk", large[0], large, dtype="int32"), expected.transpose(0, 1))
    assert shapes
    del shapes[:]
    with torch.backends.mkldnn.flags(enabled=False, deterministic=False, allow_tf32=None):  # a plain loop then
        assert torch.equal(einsum(EQUATION, large[0], large[1], dtype="int32"), expected[0])
    instructions(False)  # and here
    assert torch.equal(einsum(EQUATION, large[0], large[1], dtype="int32"), expected[0])
    assert not shapes


def test_torchs_transforms_map_products_of_narrow_integers(torch):
    lhs = torch.randint(-128, 128, (3, 20, 1500), dtype=torch.int8)
    rhs = torch.randint(-128, 128, (1500, 20), dtype=torch.int8)

    def multiply(lhs):
        return einsum(EQUATION, lhs, rhs, dtype="int32")

    expected = (lhs.double() @ rhs.double()).int()
    assert torch.equal(torch.func.vmap(multiply)(lhs), expected)
    assert torch.equal(torch.compile(multiply, backend="aot_eager", fullgraph=True)(lhs[0]), expected[0])


def test_jax_casts_no_operand_of_a_product_of_narrow_integers(jax):
    arrays = [jax.numpy.ones(shape, "int8") for shape in SHAPES]
    text = str(jax.make_jaxpr(lambda *each: einsum(EQUATION, *each, dtype="int32"))(*arrays))
    assert "preferred_element_type=int32" in text
    assert "convert_element_type" not in text


@pytest.mark.parametrize(("old", "new"), [("1024", "1025"), ('"int8"', '"int16"')])
def test_a_stored_plan_that_multiplies_integers_in_floats_without_proof_is_planned_in_others(old, new):
    program = plan(EQUATION, (20, 1024), (1024, 20), backend="torch", dtypes="int8", dtype="int64")
    assert computed(program) == {"float32"}
    with pytest.warns(RuntimeWarning, match="now makes another plan"):
        assert computed(Plan.from_json(program.to_json().replace(old, new))) == {"float64"}
