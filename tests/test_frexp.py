"""``einsum_frexp``: blocks, memory, traces and messages; what each backend returns, the suite judges."""

import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial, reduce

import numpy as np
import peaks
import pytest

from einsumx import BackendError, FrexpResult, MemoryLimit, einsum, einsum_frexp

CHAIN = "ij,jk,kl->il"
PRODUCT = "ij,jk->ik"
PAIR = np.ones((2, 3)), np.ones((3, 4))
SCALES = ((0, 0, 0), (900, 900, -300), (-900, -900, -900), (1000, -1050, 40))
"""Powers of two by which operands are multiplied: their products are beyond float64 in both directions."""


def operands(scales=SCALES[0]):
    rng = np.random.default_rng(0)
    return [np.ldexp(rng.normal(size=shape), scale) for shape, scale in zip(((2, 3), (3, 4), (4, 2)), scales)]


@partial(np.vectorize, otypes=[object])
def whole(number):
    """A number times 2**1074, which is an integer for all float64."""
    return int(Fraction(float(number)) * 2**1074)


def check(pair, *arrays, bound=2.0**-49):
    """The mantissa and the exponent are those of the exact product of matrices, to ``bound`` of that of magnitudes."""
    mantissa, exponent = pair
    assert type(exponent) is int
    mantissa = np.asarray(mantissa, "float64")
    assert 0.5 <= np.abs(mantissa).max() <= 1
    totals, sizes = (reduce(np.matmul, map(whole, each)) for each in (arrays, map(np.abs, arrays)))
    unit = Fraction(2) ** (exponent + 1074 * len(arrays))
    least = Fraction(2.0**-1000) * sizes.max()
    for place in np.ndindex(mantissa.shape):
        error = abs(Fraction(float(mantissa[place])) * unit - totals[place])
        assert error <= Fraction(bound) * sizes[place] + least, place


# -- what is returned -----------------------------------------------------------------------------------------------


def test_the_result_is_a_named_tuple_as_that_of_numpys_frexp():
    result = einsum_frexp(PRODUCT, [[2.0, 3.0]], [[4.0], [5.0]])
    assert isinstance(result, FrexpResult)
    assert result._fields == ("mantissa", "exponent")
    mantissa, exponent = np.frexp(23.0)
    assert (result.mantissa.tolist(), result.exponent) == ([[mantissa]], exponent)


@pytest.mark.parametrize(
    "keywords", [{"order": "F"}, {"optimize": "greedy"}, {"backend": "numpy"}, {"dtype": "float32"}]
)
def test_keywords_are_those_of_einsum(keywords):
    mantissa, exponent = einsum_frexp(PRODUCT, PAIR[0].astype("float32"), PAIR[1].astype("float32"), **keywords)
    assert mantissa.dtype == "float32"
    assert mantissa.flags.f_contiguous or "order" not in keywords
    np.testing.assert_array_equal(np.ldexp(mantissa, exponent), np.full((2, 4), 3))


def test_lists_and_names_are_forms_as_in_einsum():
    lhs, rhs = operands(SCALES[1])[:2]
    check(einsum_frexp(lhs, [0, 1], rhs, [1, 2], [0, 2]), lhs, rhs)
    check(einsum_frexp(lhs, rhs, "row k, k column -> row column"), lhs, rhs)


# -- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scales", SCALES)
def test_a_result_beyond_all_floats_is_that_of_exact_numbers(scales):
    arrays = operands(scales)
    for _ in range(2):  # the second one from the cache
        check(einsum_frexp(CHAIN, *arrays), *arrays)


@pytest.mark.parametrize("value", [5e-324, 3e-310, 1.7e308, 2.0**-1022])
def test_subnormal_and_very_large_numbers(value):
    mantissa, exponent = einsum_frexp("i,i,i->", *[np.array([value, 0.0])] * 3)
    check((np.reshape(mantissa, (1, 1)), exponent), *[np.full((1, 1), value)] * 3)


def test_dtypes_of_numpy_alone_and_results_that_need_another_range_than_their_dtypes():
    third = np.longdouble(1) / 3
    mantissa, exponent = einsum_frexp("i,i->i", [third], [np.longdouble(3)])
    assert mantissa.dtype == "longdouble"
    assert mantissa[0] * 2.0**exponent == third * 3
    rows = np.full((2, 5000), 60000, "float16")
    mantissa, exponent = einsum_frexp("ij,kj->ik", rows, rows)
    assert mantissa.dtype == "float16"
    np.testing.assert_allclose(mantissa.astype(float) * 2.0**exponent, 5000 * 60000.0**2, rtol=1e-3)
    mantissa, exponent = einsum_frexp("i->i", np.array([1e300]), dtype="float32", casting="same_kind")
    assert mantissa.dtype == "float32"
    assert math.isclose(math.log2(mantissa[0]) + exponent, 300 * math.log2(10), rel_tol=1e-6)


# -- blocks ---------------------------------------------------------------------------------------------------------


def spread(shape, seed):
    """An array whose rows and columns differ by hundreds of powers of two, and whose products are beyond float64."""
    rng = np.random.default_rng(seed)
    shifts = rng.integers(-100, 100, shape[0])[:, None] + rng.integers(-100, 100, shape[1]) + 800
    return np.ldexp(rng.normal(size=shape), shifts)


def in_blocks(*operands, limit, **options):
    """The result under a limit, and in how many steps it is computed."""
    steps = []
    memory_limit = MemoryLimit(limit, progress=lambda done, total: steps.append(total))
    return einsum_frexp(*operands, memory_limit=memory_limit, **options), steps[-1]


@pytest.mark.parametrize("limit", [30_000, 8_000, 4_000])
def test_blocks_and_their_sums_have_one_exponent(limit):
    arrays = spread((15, 20), 0), spread((20, 12), 1), spread((12, 15), 2)
    pair, steps = in_blocks(CHAIN, *arrays, limit=limit)
    check(pair, *arrays, bound=2.0**-45)
    assert limit > 4_000 or steps > 3


@pytest.mark.parametrize(
    ("limit", "order", "has_zeros"),
    [(15_000, "C", False), (15_000, "F", False), (15_000, "C", True), (14_000, "C", True)],
)
def test_blocks_are_aligned_in_either_order_and_where_some_are_zero(limit, order, has_zeros):
    arrays = spread((40, 6), 0), spread((6, 40), 1)
    if has_zeros:
        arrays[0][5:30], arrays[0][:, 2] = 0, 0
    pair, steps = in_blocks(PRODUCT, *arrays, limit=limit, order=order)
    check(pair, *arrays, bound=2.0**-45)
    assert steps > 1


@pytest.mark.long
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_workers_return_mantissas_and_exponents(kind):
    arrays = spread((15, 20), 0), spread((20, 12), 1)
    pool = pytest.importorskip("loky").ProcessPoolExecutor if kind == "processes" else ThreadPoolExecutor
    with pool(2) as executor:
        for limit in (30_000,) if kind == "processes" else (20_000, 9_000):
            pair = einsum_frexp(PRODUCT, *arrays, memory_limit=MemoryLimit(limit, executor=executor))
            check(pair, *arrays, bound=2.0**-45)


@pytest.mark.long
def test_memory_that_runs_out_leaves_blocks_of_two_plans(monkeypatch):
    from einsumx.streaming import blocks

    arrays = spread((40, 6), 0), spread((6, 40), 1)
    calls, scaled = [], blocks._scaled

    def failing(*value):
        calls.append(value)
        if len(calls) == 3:
            raise MemoryError
        return scaled(*value)

    monkeypatch.setattr(blocks, "_scaled", failing)
    with pytest.warns(RuntimeWarning, match="memory ran out"):
        pair = einsum_frexp(PRODUCT, *arrays, memory_limit=14_000)
    check(pair, *arrays, bound=2.0**-45)


@pytest.mark.long
@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij->ji", "ij->i", "ij,jk->"])
def test_the_limit_bounds_the_memory(equation):
    shapes = [(400, 500), (500, 300)][: equation.count(",") + 1]
    arrays = [np.random.default_rng(0).normal(size=shape) * 1e200 for shape in shapes]
    call = partial(einsum_frexp, equation, *arrays, memory_limit=2_000_000)
    call()
    assert peaks.numpy_peak(call)[1] <= 2_000_000 + peaks.OBJECTS


# -- PyTorch and JAX ------------------------------------------------------------------------------------------------


def test_gradients_of_pytorch_under_a_limit_take_the_exponent_as_a_constant(torch):
    arrays = [torch.tensor(array, requires_grad=True) for array in operands(SCALES[1])]
    small = [torch.tensor(array, requires_grad=True) for array in operands()]
    mantissa, exponent = einsum_frexp(CHAIN, *arrays, memory_limit=6_000)
    weights = torch.arange(4.0, dtype=torch.float64).reshape(2, 2)
    found = torch.autograd.grad((mantissa * weights).sum(), arrays)
    plain = torch.autograd.grad((einsum(CHAIN, *small) * weights).sum(), small)
    for gradient, other, own in zip(found, plain, SCALES[1]):
        shift = sum(SCALES[1]) - own - exponent
        np.testing.assert_allclose(gradient.numpy(), np.ldexp(other.numpy(), shift), rtol=1e-12)


@pytest.mark.long
def test_torch_traces_give_tensors(torch):
    from torch.fx.experimental.proxy_tensor import make_fx

    arrays = [torch.tensor(array) for array in operands(SCALES[1])]
    mantissa, exponent = einsum_frexp(CHAIN, *arrays)

    def function(*arrays):
        return einsum_frexp(CHAIN, *arrays)

    traced = make_fx(function, tracing_mode="symbolic")(*arrays)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for found, tensor in (traced(*arrays), compiled(*arrays)):
        assert (tensor.shape, tensor.dtype) == ((), torch.int64)
        assert int(tensor) == exponent
        torch.testing.assert_close(found, mantissa, rtol=1e-14, atol=0)
    batch = torch.stack([arrays[0], arrays[0] * 2.0**70, arrays[0] * 0])
    found, exponents = torch.func.vmap(lambda array: function(array, *arrays[1:]))(batch)
    assert exponents.tolist() == [exponent, exponent + 70, 0]
    torch.testing.assert_close(found[1], mantissa, rtol=1e-14, atol=0)
    assert not found[2].any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64"])
def test_traces_of_torch_scale_every_dtype(dtype, torch):
    lhs, rhs = (torch.tensor(array * 1e4).to(getattr(torch, dtype)) for array in operands()[:2])
    mantissa, exponent = einsum_frexp(PRODUCT, lhs, rhs)
    found, tensor = torch.func.vmap(lambda lhs: einsum_frexp(PRODUCT, lhs, rhs))(lhs[None])
    assert (found.dtype, tensor.tolist()) == (lhs.dtype, [exponent])
    torch.testing.assert_close(found[0], mantissa)


@pytest.mark.long
def test_jax_transforms(jax):
    scales = (90, 100)
    lhs, rhs = (jax.numpy.asarray(array) for array in operands(scales))

    def function(lhs):
        return einsum_frexp(PRODUCT, lhs, rhs)

    mantissa, exponent = function(lhs)
    assert type(exponent) is int
    found, number = jax.jit(function)(lhs)
    assert (number.shape, number.dtype, int(number)) == ((), "int32", exponent)
    np.testing.assert_allclose(found, mantissa, rtol=1e-6)
    found, numbers = jax.vmap(function)(jax.numpy.stack([lhs, lhs * 2.0**20, lhs * 0]))
    assert numbers.tolist() == [exponent, exponent + 20, 0]

    def total(lhs):
        mantissa, number = function(lhs)
        return mantissa.sum(), number

    gradient, number = jax.grad(total, has_aux=True)(lhs)
    assert int(number) == exponent
    plain = np.ones((2, 4)) @ np.asarray(operands()[1]).T
    np.testing.assert_allclose(gradient, np.ldexp(plain, scales[1] - exponent), rtol=1e-5)


@pytest.mark.long
def test_a_long_plan_of_jax_is_not_compiled(jax):
    ring = [jax.numpy.full((2, 2), 1e30)] * 300
    arguments = [item for k, array in enumerate(ring) for item in (array, [k, (k + 1) % 300])]
    mantissa, exponent = einsum_frexp(*arguments, [], optimize=[(0, 1)] * 299)
    assert math.isclose(math.log10(mantissa) + exponent * math.log10(2), 9000 + 300 * math.log10(2), rel_tol=1e-6)


# -- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"dtype": "int64", "casting": "unsafe"}, "which int64 cannot hold; pass dtype='float64'"),
        ({"dtype": "object"}, "mantissa below 1, which"),
    ],
)
def test_a_dtype_that_holds_no_mantissa_is_refused_with_and_without_a_limit(keywords, says):
    for limit in (None, 10_000):
        with pytest.raises(BackendError, match=says):
            einsum_frexp(PRODUCT, *PAIR, memory_limit=limit, **keywords)


@pytest.mark.parametrize("keyword", ["out", "alpha", "precision"])
def test_it_has_no_keyword_that_has_no_meaning_for_two_results_also_after_a_call_without(keyword):
    einsum_frexp(PRODUCT, *PAIR)
    with pytest.raises(TypeError, match=f"einsum_frexp.*{keyword}"):
        einsum_frexp(PRODUCT, *PAIR, **{keyword: np.zeros((2, 4))})


def test_dask_arrays_are_refused():
    dask = pytest.importorskip("dask.array")
    with pytest.raises(BackendError, match="einsum_frexp is not for Dask arrays"):
        einsum_frexp("ij->i", dask.ones((2, 3)))
