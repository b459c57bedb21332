"""Mantissas and exponents, judged by sums of products of exact fractions."""

import itertools
import json
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import peaks
import pytest

import einsumx
from einsumx import BackendError, EinsumxError, Plan, einsum, expression, plan

EQUATIONS = {
    "ij,jk->ik": ((3, 4), (4, 5)),
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 3)),
    "ij,jk,kl->il": ((2, 3), (3, 4), (4, 2)),
    "ij,jk,kl,lm->": ((2, 3), (3, 4), (4, 2), (2, 3)),
    "ij,j->i": ((3, 4), (4,)),
    "i,i->": ((7,), (7,)),
    "i,j->ij": ((3,), (4,)),
    "ij->i": ((3, 4),),
    "ij->ji": ((3, 4),),
    "ii->i": ((3, 3),),
    "ii->": ((3, 3),),
    "iij,jk->k": ((2, 2, 3), (3, 4)),
    "ij,ij->ij": ((3, 4), (3, 4)),
    "ij,jk->ik ones": ((3, 1), (4, 5)),
    "hd,sd,hs->s": ((2, 3), (4, 3), (2, 4)),
    "i->": ((6,),),
}

SCALES = ((0, 0, 0, 0), (900, 900, -300, 700), (-900, -900, -900, -900), (1000, -1050, 40, -3))
"""Powers of two by which operands are multiplied: their products are beyond float64 in both directions."""


def operands(equation, scales=SCALES[0], seed=0):
    rng = np.random.default_rng(seed)
    return [np.ldexp(rng.normal(size=shape), scale) for shape, scale in zip(EQUATIONS[equation], scales)]


def exact(equation, *arrays):
    """The sums, and those of magnitudes, as fractions by the place in the result."""
    inputs, output = equation.split("->")
    terms = inputs.split(",")
    sizes = {}
    for term, array in zip(terms, arrays):
        for label, size in zip(term, array.shape):
            sizes[label] = max(sizes.get(label, 1), size)
    shape = [sizes[label] for label in output]
    sums = {place: (Fraction(0), Fraction(0)) for place in itertools.product(*map(range, shape))}
    for numbers in itertools.product(*map(range, sizes.values())):
        at = dict(zip(sizes, numbers))
        value = Fraction(1)
        for term, array in zip(terms, arrays):
            value *= Fraction(float(array[tuple(at[x] if n > 1 else 0 for x, n in zip(term, array.shape))]))
        place = tuple(at[label] for label in output)
        total, size = sums[place]
        sums[place] = total + value, size + abs(value)
    return sums


def check(pair, sums, bound=2.0**-49):
    """The mantissa and the exponent are those of the sums, to ``bound`` of the sums of magnitudes."""
    mantissa, exponent = pair
    assert type(exponent) is int
    mantissa = np.asarray(mantissa, "float64")
    largest = np.abs(mantissa).max()
    assert 0.5 <= largest <= 1 or (largest == 0 and exponent == 0)
    scale = Fraction(2) ** exponent
    most = max(size for _, size in sums.values())
    for place, (total, size) in sums.items():
        error = abs(Fraction(float(mantissa[place])) * scale - total)
        assert error <= Fraction(bound) * size + Fraction(2.0**-1000) * most, place


# -- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_a_result_beyond_all_floats_is_that_of_fractions(equation, scales):
    arrays = operands(equation, scales)
    equation = equation.removesuffix(" ones")
    sums = exact(equation, *arrays)
    check(einsum(equation, *arrays, strip_exponent=True), sums)
    check(einsum(equation, *arrays, strip_exponent=True), sums)  # from the cache


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("equation", ["ij,jk,kl->il", "ii->", "ij->ji", "i,j->ij", "iij,jk->k", "ij->i"])
def test_pytorch_and_jax_return_the_same(equation, scales):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    arrays = operands(equation, scales)
    sums = exact(equation, *arrays)
    check(einsum(equation, *map(torch.tensor, arrays), strip_exponent=True), sums)
    if not any(0 < abs(array).min() < 1e-307 for array in arrays):  # XLA takes subnormal numbers as 0 on processors
        with jax.enable_x64(True):
            check(einsum(equation, *map(jax.numpy.asarray, arrays), strip_exponent=True), sums)


def test_scaling_rounds_nothing():
    arrays = operands("ij,jk,kl->il")
    plain = einsum("ij,jk,kl->il", *arrays)
    mantissa, exponent = einsum("ij,jk,kl->il", *arrays, strip_exponent=True)
    np.testing.assert_array_equal(np.ldexp(mantissa, exponent), plain)
    large = [np.ldexp(array, 700) for array in arrays]
    again, more = einsum("ij,jk,kl->il", *large, strip_exponent=True)
    np.testing.assert_array_equal(again, mantissa)
    assert more == exponent + 2100


def test_zeros_have_the_exponent_0():
    for equation, *arrays in (
        ("i,i->", np.zeros(3), np.full(3, 1e300)),
        ("ij,jk->ik", np.zeros((2, 0)), np.zeros((0, 3))),
        ("ij,jk->ik", np.ones((0, 2)), np.ones((2, 3))),
        ("i,i->i", np.array([1e300, 0.0]), np.array([0.0, 1e300])),
    ):
        mantissa, exponent = einsum(equation, *arrays, strip_exponent=True)
        assert exponent == 0
        assert not np.any(mantissa)


def test_infinities_and_nan_are_those_of_the_plain_formula():
    values = np.array([np.inf, -np.inf, np.nan, 3e300, 0.0])
    mantissa, exponent = einsum("i,i->i", values, np.full(5, 1e300), strip_exponent=True)
    np.testing.assert_array_equal(mantissa[[0, 1, 2, 4]], [np.inf, -np.inf, np.nan, 0.0])
    assert 0.5 <= mantissa[3] < 1
    assert math.isclose(math.log10(mantissa[3]) + exponent * math.log10(2), math.log10(3) + 600, rel_tol=1e-14)
    mantissa, exponent = einsum("i,i->", values, np.ones(5), strip_exponent=True)
    assert np.isnan(mantissa)
    assert exponent == 0


@pytest.mark.parametrize("value", [5e-324, 3e-310, 1.7e308, 2.0**-1022])
def test_subnormal_and_very_large_numbers(value):
    check(einsum("i,i,i->", *[np.array([value, 0.0])] * 3, strip_exponent=True), {(): (Fraction(value) ** 3,) * 2})


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "complex128", "longdouble"])
def test_every_dtype_of_numpy(dtype):
    arrays = [array.astype(dtype) for array in operands("ij,jk,kl->il")]
    if "complex" in dtype:
        arrays = [array * (1 - 2j) for array in arrays]
    arrays = [(array * 1e3).astype(dtype) for array in arrays]
    mantissa, exponent = einsum("ij,jk,kl->il", *arrays, strip_exponent=True)
    assert mantissa.dtype == dtype
    assert 0.5 <= max(abs(mantissa.real).max(), abs(mantissa.imag).max()) <= 1
    expected = einsum("ij,jk,kl->il", *[array.astype("complex128") for array in arrays])
    bound = {"float16": 2e-3, "complex128": 1e-14}.get(dtype, 2e-6)
    np.testing.assert_allclose(mantissa.astype("complex128") * 2.0**exponent, expected, rtol=0, atol=bound * 1e11)


def test_a_product_of_halves_that_overflows_a_half():
    rows = np.full((2, 5000), 60000, "float16")
    mantissa, exponent = einsum("ij,kj->ik", rows, rows, strip_exponent=True)
    assert mantissa.dtype == "float16"
    np.testing.assert_allclose(mantissa.astype(float) * 2.0**exponent, 5000 * 60000.0**2, rtol=1e-3)


def test_a_complex_product_scales_by_the_larger_part():
    mantissa, exponent = einsum("i,i->i", np.array([1e300j]), np.array([1e300 + 1e290j]), strip_exponent=True)
    assert 0.5 <= mantissa[0].imag < 1
    assert math.isclose(math.log2(mantissa[0].imag) + exponent, 600 * math.log2(10))


def test_a_narrower_dtype_is_cast_to_after_scaling():
    mantissa, exponent = einsum("i->i", np.array([1e300]), dtype="float32", casting="same_kind", strip_exponent=True)
    assert mantissa.dtype == "float32"
    assert math.isclose(math.log2(mantissa[0]) + exponent, 300 * math.log2(10), rel_tol=1e-6)


def test_operands_stay_as_they_are():
    arrays = operands("ij,jk,kl->il", SCALES[1])
    copies = [array.copy() for array in arrays]
    einsum("ij,jk,kl->il", *arrays, strip_exponent=True)
    (same,) = operands("ij->ji", (0,))
    mantissa, _ = einsum("ij->ji", same / abs(same).max() * 0.9, strip_exponent=True)
    assert mantissa.shape == same.shape[::-1]
    for array, copy in zip(arrays, copies):
        np.testing.assert_array_equal(array, copy)


# -- blocks ---------------------------------------------------------------------------------------------------------


def _spread(shape, seed):
    """An array whose rows and columns differ by hundreds of powers of two, and whose products are beyond float64."""
    rng = np.random.default_rng(seed)
    shifts = rng.integers(-100, 100, shape[0])[:, None] + rng.integers(-100, 100, shape[1]) + 800
    return np.ldexp(rng.normal(size=shape), shifts)


@pytest.mark.parametrize("limit", [30_000, 8_000, 4_000])
def test_blocks_and_their_sums_have_one_exponent(limit):
    arrays = _spread((15, 20), 0), _spread((20, 12), 1), _spread((12, 15), 2)
    program = plan("ij,jk,kl->il", *arrays, memory_limit=limit, strip_exponent=True)
    pair = einsum("ij,jk,kl->il", *arrays, memory_limit=limit, strip_exponent=True)
    sums = exact("ij,jk,kl->il", *arrays)
    check(pair, sums, bound=2.0**-45)
    assert "with exponents" in str(program)
    again = program(*arrays)
    assert again[1] == pair[1]
    np.testing.assert_array_equal(again[0], pair[0])
    if limit == 4_000:
        assert program.blocks > 1


@pytest.mark.parametrize("order", ["C", "F"])
def test_blocks_are_aligned_in_either_order(order):
    arrays = _spread((40, 6), 0), _spread((6, 40), 1)
    pair = einsum("ij,jk->ik", *arrays, memory_limit=15_000, order=order, strip_exponent=True)
    assert plan("ij,jk->ik", *arrays, memory_limit=15_000, strip_exponent=True).blocks > 1
    check(pair, exact("ij,jk->ik", *arrays), bound=2.0**-45)


def test_blocks_of_zeros_and_sums_with_them():
    arrays = _spread((40, 6), 0), _spread((6, 40), 1)
    arrays[0][5:30], arrays[0][:, 2] = 0, 0
    for limit in (15_000, 14_000):
        check(
            einsum("ij,jk->ik", *arrays, memory_limit=limit, strip_exponent=True),
            exact("ij,jk->ik", *arrays),
            bound=2.0**-45,
        )


def test_workers_return_mantissas_and_exponents():
    arrays = _spread((15, 20), 0), _spread((20, 12), 1)
    sums = exact("ij,jk->ik", *arrays)
    with ThreadPoolExecutor(2) as pool:
        for limit in (20_000, 9_000):
            pair = einsum("ij,jk->ik", *arrays, memory_limit=limit, executor=pool, strip_exponent=True)
            check(pair, sums, bound=2.0**-45)


def test_worker_processes_return_mantissas_and_exponents():
    loky = pytest.importorskip("loky")
    arrays = _spread((15, 20), 0), _spread((20, 12), 1)
    with loky.ProcessPoolExecutor(2) as pool:
        pair = einsum("ij,jk->ik", *arrays, memory_limit=30_000, executor=pool, strip_exponent=True)
    check(pair, exact("ij,jk->ik", *arrays), bound=2.0**-45)


def test_memory_that_runs_out_leaves_blocks_of_two_plans(monkeypatch):
    from einsumx.streaming import walk

    arrays = _spread((40, 6), 0), _spread((6, 40), 1)
    calls, scaled = [], walk._scaled

    def failing(contract, adapter):
        inner = scaled(contract, adapter)

        def run(stage, inputs):
            calls.append(stage)
            if len(calls) == 3:
                raise MemoryError
            return inner(stage, inputs)

        return run

    monkeypatch.setattr(walk, "_scaled", failing)
    with pytest.warns(RuntimeWarning, match="memory ran out"):
        pair = einsum("ij,jk->ik", *arrays, memory_limit=14_000, strip_exponent=True)
    check(pair, exact("ij,jk->ik", *arrays), bound=2.0**-45)


@pytest.mark.parametrize("limit", [None, 6_000])
def test_pytorch_gradients_take_the_exponent_as_a_constant(limit):
    torch = pytest.importorskip("torch")
    arrays = [torch.tensor(array) for array in operands("ij,jk,kl->il", SCALES[1])]
    small = [torch.tensor(array, requires_grad=True) for array in operands("ij,jk,kl->il")]
    for array in arrays:
        array.requires_grad_()
    keywords = {} if limit is None else {"memory_limit": limit}
    mantissa, exponent = einsum("ij,jk,kl->il", *arrays, strip_exponent=True, **keywords)
    weights = torch.arange(4.0, dtype=torch.float64).reshape(2, 2)
    found = torch.autograd.grad((mantissa * weights).sum(), arrays)
    plain = torch.autograd.grad((einsum("ij,jk,kl->il", *small) * weights).sum(), small)
    for gradient, other, own in zip(found, plain, SCALES[1]):
        shift = sum(SCALES[1][:3]) - own - exponent
        np.testing.assert_allclose(gradient.numpy(), np.ldexp(other.numpy(), shift), rtol=1e-12)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij->ji", "ij->i", "ij,jk->"])
def test_memory_is_what_the_plan_says(equation):
    shapes = [(400, 500), (500, 300)][: equation.count(",") + 1]
    arrays = [np.random.default_rng(0).normal(size=shape) * 1e200 for shape in shapes]
    einsum(equation, *arrays, strip_exponent=True)
    _, measured = peaks.numpy_peak(lambda: einsum(equation, *arrays, strip_exponent=True))
    inputs = sum(array.nbytes for array in arrays)
    most = plan(equation, *arrays, strip_exponent=True).peak_bytes
    assert 0.85 * most <= measured + inputs <= most + peaks.OBJECTS


# -- PyTorch and JAX ------------------------------------------------------------------------------------------------


def test_torch_traces_give_tensors():
    torch = pytest.importorskip("torch")
    arrays = [torch.tensor(array) for array in operands("ij,jk,kl->il", SCALES[1])]
    mantissa, exponent = einsum("ij,jk,kl->il", *arrays, strip_exponent=True)

    def function(*arrays):
        return einsum("ij,jk,kl->il", *arrays, strip_exponent=True)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    found, tensor = compiled(*arrays)
    assert (tensor.shape, tensor.dtype) == ((), torch.int64)
    assert int(tensor) == exponent
    torch.testing.assert_close(found, mantissa, rtol=1e-14, atol=0)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=True)
    assert int(compiled(*arrays)[1]) == exponent
    batch = torch.stack([arrays[0], arrays[0] * 2.0**70, arrays[0] * 0])
    found, exponents = torch.func.vmap(lambda array: function(array, *arrays[1:]))(batch)
    assert exponents.tolist() == [exponent, exponent + 70, 0]
    torch.testing.assert_close(found[1], mantissa, rtol=1e-14, atol=0)
    assert not found[2].any()
    gradient = torch.func.grad(lambda array: function(array, *arrays[1:])[0].sum())(arrays[0])
    arrays[0].requires_grad_()
    (expected,) = torch.autograd.grad(function(*arrays)[0].sum(), arrays[0])
    torch.testing.assert_close(gradient, expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64", "complex128"])
def test_traces_scale_every_dtype(dtype):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(3, 4)) * 1e4, rng.normal(size=(4, 3)) * 1e4]
    if "complex" in dtype:
        arrays = [array * (1 - 2j) for array in arrays]
    tensors = [torch.tensor(array).to(getattr(torch, dtype)) for array in arrays]
    mantissa, exponent = einsum("ij,jk->ik", *tensors, strip_exponent=True)
    function = torch.compile(lambda *x: einsum("ij,jk->ik", *x, strip_exponent=True), backend="aot_eager")
    found, tensor = function(*tensors)
    assert (found.dtype, int(tensor)) == (tensors[0].dtype, exponent)
    torch.testing.assert_close(found, mantissa)
    with jax.enable_x64(True):
        arrays = [jax.numpy.asarray(array).astype(dtype) for array in arrays]
        found, number = einsum("ij,jk->ik", *arrays, strip_exponent=True)
        assert (found.dtype, number) == (dtype, exponent)
        np.testing.assert_allclose(
            np.asarray(found.astype("complex128")), mantissa.to(torch.complex128).numpy(), atol=1e-2, rtol=0
        )


@pytest.mark.parametrize("wide", [True, False])
def test_jax_transforms(wide):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(wide):
        scales = SCALES[1] if wide else (90, 100, -20, 60)
        arrays = [jax.numpy.asarray(array) for array in operands("ij,jk,kl->il", scales)]

        def function(*arrays):
            return einsum("ij,jk,kl->il", *arrays, strip_exponent=True)

        mantissa, exponent = function(*arrays)
        assert type(exponent) is int
        found, number = jax.jit(function)(*arrays)
        assert (number.shape, number.dtype, int(number)) == ((), "int32", exponent)
        np.testing.assert_allclose(found, mantissa, rtol=1e-6)
        batch = jax.numpy.stack([arrays[0], arrays[0] * 2.0**20, arrays[0] * 0])
        found, numbers = jax.vmap(lambda array: function(array, *arrays[1:]))(batch)
        assert numbers.tolist() == [exponent, exponent + 20, 0]

        def total(array):
            mantissa, number = function(array, *arrays[1:])
            return mantissa.sum(), number

        gradient, number = jax.grad(total, has_aux=True)(arrays[0])
        assert int(number) == exponent
        small = [jax.numpy.asarray(array) for array in operands("ij,jk,kl->il")]
        plain = jax.grad(lambda array: einsum("ij,jk,kl->il", array, *small[1:]).sum())(small[0])
        np.testing.assert_allclose(gradient, np.ldexp(plain, sum(scales[1:3]) - exponent), rtol=1e-5)


def test_jax_infinities_and_complex_numbers():
    jax = pytest.importorskip("jax")
    values = jax.numpy.array([np.inf, np.nan, 3.0, 0.0])
    mantissa, exponent = einsum("i,i->i", values, jax.numpy.ones(4), strip_exponent=True)
    np.testing.assert_array_equal(mantissa, [np.inf, np.nan, 0.75, 0])
    assert exponent == 2
    mantissa, exponent = einsum("i->i", jax.numpy.array([3j, np.inf + 1j]), strip_exponent=True)
    np.testing.assert_array_equal(mantissa, np.array([0.75j, np.inf + 0.25j], mantissa.dtype))
    assert exponent == 2


def test_a_long_plan_of_jax_is_not_compiled():
    jax = pytest.importorskip("jax")
    ring = [jax.numpy.full((2, 2), 1e30)] * 300
    arguments = [item for k, array in enumerate(ring) for item in (array, [k, (k + 1) % 300])]
    mantissa, exponent = einsum(*arguments, [], strip_exponent=True, optimize=[(0, 1)] * 299)
    assert math.isclose(math.log10(mantissa) + exponent * math.log10(2), 9000 + 300 * math.log10(2), rel_tol=1e-6)


# -- plans and expressions ------------------------------------------------------------------------------------------


def test_a_plan_prints_is_stored_and_runs_elsewhere():
    torch = pytest.importorskip("torch")
    arrays = operands("ij,jk,kl->il", SCALES[1])
    program = plan("ij,jk,kl->il", *arrays, strip_exponent=True)
    assert str(program).splitlines()[0].endswith("float64 on numpy (cpu) with exponents")
    assert program.strip_exponent
    read = Plan.from_json(program.to_json())
    assert read == program
    assert pickle.loads(pickle.dumps(program)) == program
    sums = exact("ij,jk,kl->il", *arrays)
    check(read(*arrays), sums)
    check(read(*map(torch.tensor, arrays)), sums)
    assert read.retarget("jax").strip_exponent
    assert "strip_exponent" not in plan("ij,jk->ik", (2, 3), (3, 4)).to_json()
    with pytest.raises(EinsumxError, match="has no source"):
        program.source()
    assert program.draw().svg
    assert program.peak_bytes > plan("ij,jk,kl->il", *arrays).peak_bytes


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"strip_exponent": 1}, "strip_exponent: 1 is not"),
        ({"strip_exponent": "yes"}, "strip_exponent: 'yes' is not"),
        ({"strip_exponent": None}, "strip_exponent: None is not"),
        ({"semiring": {"name": "log", "add": "logaddexp", "multiply": "add"}}, "not for semiring='log'"),
        ({"dtype": "int64"}, "int64"),
    ],
)
def test_a_malformed_stored_plan_is_refused(change, says):
    data = json.loads(plan("ij,jk->ik", (2, 3), (3, 4), strip_exponent=True).to_json())
    with pytest.raises(EinsumxError, match=says):
        Plan.from_json(json.dumps({**data, **change}))


def test_expressions_with_constants():
    arrays = operands("ij,jk,kl->il", SCALES[1])
    sums = exact("ij,jk,kl->il", *arrays)
    call = expression("ij,jk,kl->il", (2, 3), *arrays[1:], strip_exponent=True)
    for _ in range(2):
        check(call(arrays[0]), sums)
    assert call(arrays[0], order="F")[0].flags.f_contiguous
    assert call.plan(arrays[0]).strip_exponent
    check(pickle.loads(pickle.dumps(call))(arrays[0]), sums)
    assert call != expression("ij,jk,kl->il", (2, 3), *arrays[1:])
    with pytest.raises(ValueError, match="alpha= cannot be combined with strip_exponent=True"):
        call(arrays[0], alpha=2)
    torch = pytest.importorskip("torch")
    layer = expression("ij,jk,kl->il", (2, 3), *map(torch.tensor, arrays[1:]), strip_exponent=True)
    check(layer(torch.tensor(arrays[0])), sums)
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        layer = expression("ij,jk,kl->il", (2, 3), *map(jax.numpy.asarray, arrays[1:]), strip_exponent=True)
        check(layer(jax.numpy.asarray(arrays[0])), sums)


def test_a_call_without_it_makes_the_plan_as_before():
    program = plan("ij,jk->ik", (2, 3), (3, 4), strip_exponent=False)
    assert program == plan("ij,jk->ik", (2, 3), (3, 4), strip_exponent=None)
    assert not program.strip_exponent


@pytest.mark.parametrize("order", ["C", "F", "A"])
def test_the_order_is_that_of_the_mantissa(order):
    arrays = [np.asfortranarray(array) for array in operands("ij,jk->ik")]
    mantissa, _ = einsum("ij,jk->ik", *arrays, order=order, strip_exponent=True)
    assert mantissa.flags.c_contiguous == (order == "C")


def test_accumulate_computes_in_a_wider_dtype():
    array = np.full(3000, 0.1, "float32")
    mantissa, exponent = einsum("i,i->", array, array, accumulate="float64", strip_exponent=True)
    expected = np.float32(3000 * float(np.float32(0.1)) ** 2)
    assert mantissa.dtype == "float32"
    assert mantissa * 2.0**exponent == expected


# -- refusals -------------------------------------------------------------------------------------------------------

PAIR = np.ones((2, 3)), np.ones((3, 4))


@pytest.mark.parametrize(
    ("keywords", "error", "says"),
    [
        ({"out": np.ones((2, 4))}, ValueError, "out= cannot be combined with strip_exponent=True"),
        ({"alpha": 2.0}, ValueError, "alpha= cannot be combined with strip_exponent=True"),
        ({"out": np.ones((2, 4)), "beta": 2.0}, ValueError, "out= cannot be combined with strip_exponent=True"),
        ({"semiring": "log"}, BackendError, "not for semiring='log'"),
        ({"semiring": "boolean"}, BackendError, "not for semiring='boolean'"),
        ({"effort": "measure"}, ValueError, "effort='measure' "),
        ({"dtype": "int64", "casting": "unsafe"}, BackendError, "which int64 does not hold; pass dtype='float64'"),
    ],
)
@pytest.mark.parametrize("limit", [{}, {"memory_limit": 10_000}])
def test_what_does_not_go_together_is_refused(keywords, error, says, limit):
    with pytest.raises(error, match=says):
        einsum("ij,jk->ik", *PAIR, strip_exponent=True, **keywords, **limit)


def test_integers_and_truth_values_are_refused():
    for dtype in ("int64", "uint8", "bool", "object"):
        arrays = [array.astype(dtype) for array in PAIR]
        with pytest.raises(BackendError, match="mantissa below 1, which"):
            einsum("ij,jk->ik", *arrays, strip_exponent=True)
        with pytest.raises(BackendError, match="mantissa below 1, which"):
            einsum("ij,jk->ik", *arrays, strip_exponent=True, memory_limit=10_000)
    whole = [array.astype("int64") for array in PAIR]
    mantissa, exponent = einsum("ij,jk->ik", *whole, dtype="float64", strip_exponent=True)
    np.testing.assert_array_equal(mantissa, 0.75)
    assert exponent == 2


def test_a_value_that_is_no_bool_is_refused():
    for value in (1, "yes", np.True_):
        for call in (einsum, plan, expression):
            with pytest.raises(TypeError, match="strip_exponent= is True or False, not"):
                call("ij,jk->ik", *(PAIR if call is einsum else ((2, 3), (3, 4))), strip_exponent=value)


def test_dask_arrays_and_keywords_of_jax_are_refused():
    dask = pytest.importorskip("dask.array")
    with pytest.raises(BackendError, match="strip_exponent= is not for Dask arrays"):
        einsum("ij->i", dask.ones((2, 3)), strip_exponent=True)
    jax = pytest.importorskip("jax")
    with pytest.raises((BackendError, ValueError), match="strip_exponent=True"):
        einsum("ij->i", jax.numpy.ones((2, 3)), precision="highest", strip_exponent=True)


def test_the_command_explains(capsys):
    from einsumx.cli.main import main

    assert main(["explain", "ij,jk->ik", "2,3", "3,4", "--strip-exponent"]) == 0
    assert "with exponents" in capsys.readouterr().out
    assert main(["explain", "ij,jk->ik", "2,3", "3,4", "--strip-exponent", "--semiring", "log"]) != 0


def test_a_patched_function_of_numpy_takes_it():
    with einsumx.patch("numpy"):
        check(np.einsum("ij,jk->ik", *PAIR, strip_exponent=True), exact("ij,jk->ik", *PAIR))
        np.testing.assert_array_equal(np.einsum("ij,jk->ik", *PAIR), np.full((2, 4), 3.0))
