"""Every kernel of NumPy's adapter, however its work is cut, against the plain sum."""

import warnings

import numpy as np
import peaks
import pytest

import einsumx
from einsumx.backends.numpy import ADAPTER, columns, integers, jobs, kernels
from einsumx.backends.numpy.kernels import sums_inside
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.conformance.subject import backend_subject
from einsumx.conformance.suite import cases, run
from einsumx.host import threads
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Matmul

ONLY_32_AXES = np.lib.NumpyVersion(np.__version__) < "2.0.0"


@pytest.fixture
def three_threads():
    before = threads.get_num_threads()
    threads.set_num_threads(3)
    yield
    threads.set_num_threads(before)


@pytest.fixture
def cut(three_threads, monkeypatch):
    """Whatever can be cut is cut, however small; the suite judges what one thread computes."""
    monkeypatch.setattr(kernels, "_PIECE", 1e-12)
    monkeypatch.setattr(kernels, "_LEAST", 0)
    monkeypatch.setattr(kernels, "_LEAST_PRODUCT", 0)
    monkeypatch.setattr(kernels, "_TINY", 0)
    monkeypatch.setattr(kernels, "_SWEEPS", 0)
    monkeypatch.setattr(kernels, "_MANY_ROWS", 0)
    monkeypatch.setattr(columns, "_BLOCK", 64)
    monkeypatch.setattr(kernels, "_BLAS_SHARES", 1 << 60)
    monkeypatch.setattr(kernels, "_LEAST_COPY", 1)
    monkeypatch.setattr(kernels, "_LINES", 2)
    monkeypatch.setattr(kernels, "_ALIASED_LINES", 1)
    einsumx.cache_clear()
    yield
    einsumx.cache_clear()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def ran(op, *arrays):
    """What the op's kernel gives, a fresh C-contiguous array, and the same bits when asked again."""
    run = ADAPTER.kernel(op, [array.shape for array in arrays], arrays[0].dtype.name)
    with np.errstate(all="ignore"):
        result, again = run(*arrays), run(*arrays)
    assert np.asarray(result).tobytes() == np.asarray(again).tobytes()
    assert not any(np.shares_memory(result, array) for array in arrays)
    return result


def check(result, *expected):
    assert judge(result, expect(*expected))


def sublists(lhs, rhs):
    """``lhs @ rhs`` as the oracle takes it, batch axes broadcast by their size of 1."""
    batch = list(range(lhs.ndim - 2))
    m, k, n = 100, 101, 102
    return lhs, [*batch, m, k], rhs, [*batch, k, n], [*batch, m, n]


FEATURES = (
    "forms", "broadcasting", "zero sizes", "larger sizes", "layouts", "order of writing", "dtypes", "dtype", "integers",
    "bool", "out",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("feature", FEATURES)
def test_the_suite_passes_however_small_the_pieces_are(cut, feature):
    outcomes = list(run(backend_subject("numpy"), cases("quick", f"{feature}/*", random=0)))
    assert outcomes
    assert [(outcome.case, outcome.message) for outcome in outcomes if outcome.status == "fail"] == []


MATMULS = [
    ((5, 3), (3, 7)),
    ((1, 60), (60, 1)),  # along the contracted axis
    ((2, 0), (0, 3)),
    ((50, 4, 3), (50, 3, 2)),
    ((2, 2, 40), (2, 40, 3)),
    ((1, 1, 2, 5), (3, 2, 5, 4)),
    ((0, 2, 3), (0, 3, 2)),
]


MATRICES = [
    [(70, 30), (30, 20)],
    [(20, 30), (30, 90)],
    [(7, 600), (600, 9)],
    [(2, 40, 30), (2, 30, 50)],
    [(1, 40, 30), (3, 30, 50)],
]
"""One or few products, with more rows, more columns, a long sum, and a batch."""


@pytest.mark.parametrize("shapes", MATRICES, ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_plan_says_whose_threads_compute_a_product(cut, rng, shapes, order):
    lhs, rhs = (np.asarray(peaks.numbers(shape, "float32", rng), order=order) for shape in shapes)
    for name in ("pool", "blas"):
        result = ran(Matmul(2, 0, 1, threads=name), lhs, rhs)
        assert result.flags.c_contiguous
        check(result, *sublists(lhs, rhs))


def test_a_sum_that_is_cut_counts_its_partial_sums(cut):
    operands = [Operand((7, 600), "float32"), Operand((600, 9), "float32")]
    assert ADAPTER.workspace(Matmul(2, 0, 1, threads="pool"), operands) == 3 * 7 * 9 * 4
    assert ADAPTER.workspace(Matmul(2, 0, 1, threads="blas"), operands) == 0
    threads.set_num_threads(1)
    assert ADAPTER.workspace(Matmul(2, 0, 1, threads="pool"), operands) == 0


@pytest.mark.parametrize(
    ("rows", "inner", "is_alone"), [(100, 100, False), (120, 120, True), (800, 2, False), (200, 200, False)]
)
def test_a_product_that_repays_no_wait_for_a_thread_runs_in_the_callers_alone(
    three_threads, monkeypatch, rows, inner, is_alone
):
    calls = []

    def alone(function, *arrays):
        calls.append(function)
        return function(*arrays)

    monkeypatch.setattr(kernels.pool, "alone", alone)
    array = np.ones((rows, inner), "float32")
    np.testing.assert_array_equal(ran(Matmul(2, 0, 1), array, array.T.copy()), np.full((rows, rows), inner, "float32"))
    assert bool(calls) == is_alone


@pytest.mark.parametrize(
    ("dtype", "order", "has_small_kernels", "is_shared"),
    [
        ("float32", (0, 1, 2), True, True),
        ("float32", (0, 2, 1), True, False),
        ("float32", (0, 1, 2), False, False),
        ("complex64", (0, 1, 2), True, False),
    ],
)
def test_batches_of_tiny_products_are_shared_where_blas_needs_no_lock_for_them(
    three_threads, monkeypatch, dtype, order, has_small_kernels, is_shared
):
    calls = []

    def run(parts):
        calls.extend(parts)
        for job in parts:
            job()

    monkeypatch.setattr(jobs.pool, "run", run)
    monkeypatch.setattr(kernels.pool, "has_small_kernels", lambda: has_small_kernels)
    lhs, rhs = np.ones((40000, 9, 9), dtype), np.ones((40000, 9, 9), dtype).transpose(order)
    np.testing.assert_array_equal(ran(Matmul(2, 0, 1), lhs, rhs), np.full((40000, 9, 9), 9, dtype))
    assert bool(calls) == is_shared


def check_wrapped(result, lhs, rhs):
    """The result has the bits of the product's numbers modulo 2**64 that its dtype keeps."""
    assert result.dtype == lhs.dtype
    np.testing.assert_array_equal(result, (lhs.astype("uint64") @ rhs.astype("uint64")).astype(lhs.dtype))


@pytest.fixture(params=["blas", "loop", "matmul"])
def way(request, monkeypatch):
    """The way that integer products take, by what the others cost."""
    costs = {"blas": ["_MATMUL", "_LOOP_START"], "loop": ["_MATMUL", "_BLAS"], "matmul": ["_BLAS", "_LOOP_START"]}
    for name in costs[request.param]:
        monkeypatch.setattr(integers, name, 1.0)


@pytest.mark.parametrize("shapes", MATMULS, ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint64"])
def test_matmul_of_integers_wraps(cut, way, rng, shapes, dtype):
    lhs, rhs = (peaks.numbers(shape, dtype, rng) for shape in shapes)
    check_wrapped(ran(Matmul(2, 0, 1), lhs, rhs), lhs, rhs)


@pytest.mark.parametrize(
    ("dtype", "inner"),
    [("int8", 1024), ("int8", 1025), ("int8", 5000), ("uint8", 258), ("uint8", 259), ("int16", 1), ("int16", 5000),
     ("uint16", 257), ("int32", 255), ("uint32", 257), ("int64", 1023), ("uint64", 257)],
)  # fmt: skip
def test_integers_at_the_ends_of_their_range_are_exact(dtype, inner):
    info = np.iinfo(dtype)
    lhs = np.full((40, inner), info.min, dtype)
    lhs[::2] = info.max
    rhs = np.full((inner, 30), info.max, dtype)
    rhs[:, ::3] = info.min
    rhs[0] = 1
    check_wrapped(ran(Matmul(2, 0, 1), lhs, rhs), lhs, rhs)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [*[("int64", bits) for bits in ((1, 1), (12, 12), (30, 5), (5, 40), (31, 31), (33, 33), (62, 3), (63, 63))],
     *[("uint64", bits) for bits in ((5, 40), (63, 63))], *[("int32", bits) for bits in ((1, 12), (31, 31))],
     ("uint32", (12, 31))],
    ids=str,
)  # fmt: skip
def test_integers_of_any_size_are_exact(rng, dtype, bits):
    low = 0 if dtype.startswith("u") else -1
    most = np.iinfo(dtype).max
    lhs, rhs = (
        rng.integers(low * min(most, 1 << size), min(most, 1 << size), shape, dtype)
        for size, shape in zip(bits, [(3, 50, 60), (3, 60, 40)])
    )
    check_wrapped(ran(Matmul(2, 0, 1), lhs, rhs), lhs, rhs)


@pytest.mark.parametrize(
    "rank", [3, 10, pytest.param(58, marks=pytest.mark.skipif(ONLY_32_AXES, reason="NumPy 1 has 32 axes"))]
)
def test_a_diagonal_is_a_view_that_is_writeable_if_its_operand_is(rank):
    array = np.arange(8.0).reshape(2, 2, 2, *[1] * (rank - 3))
    for is_writeable in (True, False):
        array.flags.writeable = is_writeable
        diagonal = kernels.diagonal(rank, 0, 2)(array)
        assert diagonal.base is not None
        assert diagonal.flags.writeable is is_writeable
        np.testing.assert_array_equal(diagonal, array.diagonal(0, 0, 2))


def test_a_sum_runs_inside_of_short_rows_only_if_it_is_longer():
    assert sums_inside((50, 4), (0,), "float64")
    assert sums_inside((7, 50, 2, 2), (1,), "int32")
    assert sums_inside((7, 50, 2), (0, 1), "complex64")
    assert not sums_inside((50, 5), (0,), "float64")
    assert not sums_inside((50, 4), (0,), "complex64")
    assert not sums_inside((50, 4, 3), (1,), "float32")
    assert not sums_inside((4, 50), (1,), "float32")


@pytest.mark.parametrize("equation", ["bij,bjk->bik", "ij,jk->ik", "ij,ij->ij", "ij->i", "ij->", "ij,ij->"])
def test_workers_raise_no_warnings(cut, equation):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arrays = [np.full((9,) * len(term), np.inf) for term in equation.split("->")[0].split(",")]
        arrays[-1][..., ::2] = -np.inf
        arrays[-1][..., ::3] = 0
        assert not np.isfinite(einsumx.einsum(equation, *arrays)).all()


SHORT_ROWS = ("i,ik->ik", "ik,k->ik", "i,k->ik", "hi,hikl->hikl", "ik,ik->i", "hik,hik->hi", "ikl,ikl->i", "ik->i")


@pytest.mark.parametrize("dtype", ["float32", "complex128", "int32", "bool"])
@pytest.mark.parametrize("equation", SHORT_ROWS)
def test_short_rows_are_computed_by_columns_with_the_same_bits_on_any_threads(equation, dtype, rng, three_threads):
    sizes = {"h": 3, "i": 5000, "k": 3 - ("l" in equation), "l": 1 + ("l" in equation)}
    inputs, _ = equation.split("->")
    arrays = [rng.integers(-3, 4, [sizes[label] for label in term]).astype(dtype) for term in inputs.split(",")]
    threads.set_num_threads(1)
    einsumx.cache_clear()
    alone = einsumx.einsum(equation, *arrays)
    threads.set_num_threads(3)
    einsumx.cache_clear()
    together = einsumx.einsum(equation, *arrays)
    assert alone.tobytes() == together.tobytes()
    assert np.array_equal(alone, np.einsum(equation, *arrays))


def test_dot_products_of_short_rows_do_not_warn_as_numpys_einsum_does_not():
    huge = np.full((5000, 3), np.finfo("float64").max)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(einsumx.einsum("ik,ik->i", huge, huge)).all()
        assert np.isinf(einsumx.einsum("ik->i", huge)).all()
