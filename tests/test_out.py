"""``out=``: which results the last op writes to it, and which go through a copy; the suite judges values."""

import threading
import warnings
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
from peaks import OBJECTS, numpy_peak, torch_peak

import einsumx
from einsumx import addeinsum, einsum
from einsumx.backends.numpy import jobs, kernels
from einsumx.host import threads
from einsumx.runtime import results

pytestmark = pytest.mark.usefixtures("fresh")

FRAMEWORKS = [name for name in ("numpy", "torch") if find_spec(name)]

INTO = [
    ("i,j->ij", (400,), (400,)),
    ("ij,ij->ij", (400, 400), (400, 400)),
    ("bij,bjk->bik", (10, 130, 7), (10, 7, 130)),
    ("ij,jk->ki", (400, 7), (7, 400)),
    ("ij,jk,kl->il", (400, 7), (7, 9), (9, 400)),
    ("iab,kab->ik", (400, 2, 3), (400, 2, 3)),
    ("aij,kj->aik", (3, 230, 7), (230, 7)),
    ("ij,abj->iab", (400, 7), (20, 20, 7)),
    ("ijk->ji", (400, 400, 2)),
]
"""Contractions of which the last op writes to ``out``; those of this size are large."""


@pytest.fixture(params=FRAMEWORKS)
def framework(request):
    return request.param


@pytest.fixture
def small(monkeypatch):
    """Whatever the last op can write it writes, however small."""
    monkeypatch.setattr(results, "_LEAST", 0)


def made(framework, *shapes, dtype="float64"):
    """Arrays of small integers."""
    rng = np.random.default_rng(len(shapes))
    arrays = [rng.integers(-4, 5, shape).astype(dtype) for shape in shapes]
    return arrays if framework == "numpy" else [import_module("torch").tensor(array) for array in arrays]


def like(array):
    """Another array of this shape and dtype, C-contiguous and full of ones."""
    return np.ones(array.shape, array.dtype) if isinstance(array, np.ndarray) else array.new_ones(array.shape)


def copied_bytes(out, call):
    """The most bytes that a warm call has at once beside those of its operands and ``out``."""
    call()
    return (numpy_peak if isinstance(out, np.ndarray) else torch_peak)(call)[1]


def goes_through_a_copy(out, call):
    return copied_bytes(out, call) >= out.nbytes


# -- what is written at once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("equation", "shapes"), [(case[0], case[1:]) for case in INTO], ids=[case[0] for case in INTO])
def test_a_large_result_takes_no_memory_beside_out(equation, shapes, framework):
    arrays = made(framework, *shapes)
    expected = einsum(equation, *arrays)
    out = like(expected)
    least = copied_bytes(out, lambda: einsum(equation, *arrays))
    assert least >= out.nbytes
    assert copied_bytes(out, lambda: einsum(equation, *arrays, out=out)) <= least - out.nbytes + OBJECTS
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda lhs, rhs, out: einsum(lhs, ["i"], rhs, ["j"], ["i", "j"], out=out),
        lambda lhs, rhs, out: einsumx.expression("i,j->ij", lhs.shape, rhs.shape)(lhs, rhs, out=out),
        lambda lhs, rhs, out: addeinsum(out, "i,j->ij", lhs, rhs, beta=0, out=out),
    ],
    ids=["lists", "an expression", "addeinsum without a factor"],
)
def test_so_do_other_forms_of_a_call(call, framework):
    lhs, rhs = made(framework, (400,), (400,))
    out = like(einsum("i,j->ij", lhs, rhs))
    assert copied_bytes(out, lambda: call(lhs, rhs, out)) <= OBJECTS
    np.testing.assert_array_equal(out, lhs[:, None] * rhs)


def test_so_do_expressions_with_constants_unless_out_overlaps_one(framework):
    lhs, rhs = made(framework, (400, 400), (400,))
    expected = np.asarray(lhs * rhs)
    layer = einsumx.expression("ij,j->ij", lhs, (400,))
    out = like(lhs)
    assert copied_bytes(out, lambda: layer(rhs, out=out)) <= OBJECTS
    np.testing.assert_array_equal(out, expected)
    wide = made(framework, (500, 400))[0]
    wide[:400] = lhs
    einsumx.expression("ij,j->ij", wide[:400], (400,))(rhs, out=wide[50:450])
    np.testing.assert_array_equal(wide[50:450], expected)


def test_so_does_patched_code():
    lhs, rhs = made("numpy", (400,), (400,))
    out = np.ones((400, 400))
    einsumx.patch("numpy")
    try:
        assert copied_bytes(out, lambda: np.einsum("i,j->ij", lhs, rhs, out=out)) <= OBJECTS
    finally:
        einsumx.unpatch("numpy")
    np.testing.assert_array_equal(out, np.outer(lhs, rhs))


def test_a_small_result_is_copied_which_takes_less_time_than_to_compare_addresses(framework, monkeypatch):
    lhs, rhs = made(framework, (20,), (20,))
    monkeypatch.setattr(results.execute, "run_into", None)
    einsum("i,j->ij", lhs, rhs, out=like(lhs[:, None] * rhs))


# -- the layout of out ------------------------------------------------------------------------------------------------


def of_layout(layout, shape, dtype):
    """An array of this layout, full of ones, and the array whose memory it is in."""
    match layout:
        case "C":
            whole = np.ones(shape, dtype)
            return whole, whole
        case "F":
            whole = np.ones(shape[::-1], dtype)
            return whole.T, whole
        case "rows":
            whole = np.ones([size + 3 for size in shape], dtype)
            return whole[tuple(slice(2, size + 2) for size in shape)], whole
        case "stepped":
            whole = np.ones([2 * size for size in shape], dtype)
            return whole[(slice(None, None, 2),) * len(shape)], whole
        case "turned":
            whole = np.ones((*shape[1:], shape[0]), dtype)
            return whole.transpose(len(shape) - 1, *range(len(shape) - 1)), whole
        case "reversed":
            whole = np.ones(shape, dtype)
            return whole[::-1], whole
        case _:
            whole = np.ones((shape[0], *[size + 1 for size in shape[1:]]), dtype)
            return whole[(slice(None), *[slice(size, 0, -1) for size in shape[1:]])], whole


LAYOUTS = ("C", "F", "rows", "stepped", "turned", "reversed", "reversed rows")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64", "int16"])
def test_out_of_any_layout_gets_the_result_and_nothing_around_it_changes(layout, dtype, framework, small):
    for equation, *shapes in [*INTO, ("ii->i", (5, 5)), ("ij->ji", (5, 4))]:
        arrays = made(framework, *[[min(size, 11) for size in shape] for shape in shapes], dtype=dtype)
        expected = np.asarray(einsum(equation, *arrays))
        out, whole = of_layout(layout, expected.shape, dtype)
        if framework == "torch":
            if "reversed" in layout:
                continue
            out = import_module("torch").from_numpy(out)
        for _ in range(10):  # the function of a plan of several ops is compiled when it was called often
            np.asarray(out)[...] = -1
            assert einsum(equation, *arrays, out=out) is out
            np.testing.assert_array_equal(np.asarray(out), expected, err_msg=equation)
        np.asarray(out)[...] = 1
        assert (whole == 1).all()


def test_reversed_and_unaligned_arrays_go_through_a_copy():
    lhs, rhs = made("numpy", (400,), (400,))
    records = np.ones((400, 400), [("pad", "i4"), ("value", "f8")])
    swapped = np.ones((400, 400), np.dtype("f8").newbyteorder())
    for out in (np.ones((400, 400))[::-1], records["value"], swapped, np.ones((400, 400), "complex128")):
        assert goes_through_a_copy(np.ones((400, 400)), lambda out=out: einsum("i,j->ij", lhs, rhs, out=out))
        np.testing.assert_array_equal(out, np.outer(lhs, rhs))


def test_a_product_that_blas_cannot_write_goes_through_a_copy(framework):
    lhs, rhs, wide = made(framework, (400, 7), (7, 400), (400, 800))
    assert goes_through_a_copy(lhs @ rhs, lambda: einsum("ij,jk->ik", lhs, rhs, out=wide[:, ::2]))
    np.testing.assert_array_equal(wide[:, ::2], lhs @ rhs)


def test_a_result_whose_axes_do_not_merge_in_out_goes_through_a_copy(framework):
    lhs, rhs = made(framework, (3, 230, 7), (230, 7))
    out = like(lhs @ rhs.T)
    assert goes_through_a_copy(out, lambda: einsum("aij,kj->aki", lhs, rhs, out=out))
    np.testing.assert_array_equal(out, np.asarray(lhs @ rhs.T).transpose(0, 2, 1))


def test_a_cast_and_a_product_of_integers_go_through_a_copy(framework):
    for dtype, own in (("float32", "float64"), ("int64", "int64")):
        lhs, rhs = made(framework, (400, 7), (7, 400), dtype=dtype)
        (out,) = made(framework, (400, 400), dtype=own)
        assert goes_through_a_copy(lhs @ rhs, lambda out=out, lhs=lhs, rhs=rhs: einsum("ij,jk->ik", lhs, rhs, out=out))
        np.testing.assert_array_equal(out, lhs @ rhs)


def test_elements_that_share_memory_are_refused_or_written_as_before(framework, small):
    lhs, rhs = made(framework, (4, 7), (7, 4))
    out = np.lib.stride_tricks.as_strided(np.zeros(7), (4, 4), (8, 8))
    if framework == "torch":
        with pytest.raises(einsumx.BackendError, match="its strides overlap"):
            einsum("ij,jk->ik", lhs, rhs, out=import_module("torch").as_strided(lhs.new_zeros(7), (4, 4), (1, 1)))
        return
    einsum("ij,jk->ik", lhs, rhs, out=out)
    assert out[3, 3] == (lhs @ rhs)[3, 3]
    with pytest.raises(einsumx.BackendError, match="read-only"):
        einsum("ij,jk->ik", lhs, rhs, out=np.broadcast_to(np.zeros(4), (4, 4)))


# -- overlap ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0, 1, 3, 15])
def test_an_out_that_overlaps_an_operand_has_the_same_values(shift, framework, small):
    for equation, *shapes in (("ij,jk->ik", (4, 4), (4, 4)), ("ij,ij->ij", (4, 4), (4, 4)), ("ij,j->ji", (4, 4), (4,))):
        arrays = made(framework, *shapes)
        for place, array in enumerate(arrays):
            expected = np.asarray(einsum(equation, *arrays))
            for turned in (False, True):
                (memory,) = made(framework, (32,))
                operand = memory[: array.size if framework == "numpy" else array.numel()].reshape(array.shape)
                operand[...] = array
                out = memory[shift : shift + 16].reshape(4, 4)
                out = out.T if turned else out
                einsum(equation, *[operand if place == k else each for k, each in enumerate(arrays)], out=out)
                np.testing.assert_array_equal(np.asarray(out), expected)


def test_columns_between_those_of_an_operand_are_no_overlap():
    (memory,) = made("numpy", (400, 800))
    operand, out = memory[:, ::2], memory[:, 1::2]
    assert copied_bytes(out, lambda: einsum("ij,ij->ij", operand, operand, out=out)) <= OBJECTS
    np.testing.assert_array_equal(out, operand**2)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_two_maps_of_one_file_overlap_and_maps_of_two_do_not(framework, tmp_path):
    for name in ("same", "other"):
        before = made("numpy", (400, 400))[0]
        np.save(tmp_path / "same.npy", before)
        np.save(tmp_path / "other.npy", before)
        maps = [np.load(tmp_path / f"{each}.npy", mmap_mode="r+") for each in ("same", name)]
        out, operand = maps if framework == "numpy" else map(import_module("torch").from_numpy, maps)
        call = lambda out=out, operand=operand: einsum("ij,ij->ji", operand, operand, out=out)  # noqa: E731
        if name == "other":
            assert copied_bytes(before if framework == "numpy" else out, call) <= OBJECTS
        else:
            call()
        np.testing.assert_array_equal(out, (before * before).T)


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,ij->ij", [(40, 30), (40, 30)]),
        ("ij,j->ij", [(40, 30), (30,)]),
        ("bij,bjk->bik", [(12, 8, 9), (12, 9, 8)]),
        ("ijk->ij", [(40, 30, 3)]),
        ("aij,ij,i->ai", [(40, 9, 5), (9, 5), (9,)]),
    ],
)
def test_an_interruption_leaves_out_complete_or_as_it_was(equation, shapes, small, monkeypatch):
    """It comes when half of the last op is done, or of the first one of two."""
    for name, value in {"_PIECE": 1e-12, "_LEAST": 0, "_LEAST_PRODUCT": 0, "_TINY": 0, "_SWEEPS": 0, "_FEW": 0}.items():
        monkeypatch.setattr(kernels, name, value)
    monkeypatch.setattr(threads._pool, "threads", 3)
    run, called = kernels.pool.run, []

    def interrupted(parts):
        called.append(len(parts))
        if len(called) > 1:
            run(parts)
            return
        run(parts[: len(parts) // 2])
        raise KeyboardInterrupt

    arrays = made("numpy", *shapes)
    expected = np.einsum(equation, *arrays)
    out = np.full_like(expected, np.nan)
    for module in (jobs, kernels):
        monkeypatch.setattr(module.pool, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        einsum(equation, *arrays, out=out)
    assert called[0] > 1
    np.testing.assert_array_equal(out, expected if len(shapes) < 3 else np.full_like(out, np.nan))


def test_an_interrupted_call_waits_for_the_jobs_of_other_threads(monkeypatch):
    """And drops those that nobody has begun: they would write to memory that somebody else may use by then."""
    begun, ended, started = [], [], threading.Event()

    def job(number):
        begun.append(number)
        if threading.current_thread() is threading.main_thread():
            started.wait(10)
            raise SystemError  # a job's own error stays with the call
        started.set()
        interrupted.wait(10)
        ended.append(number)

    interrupted = threading.Event()

    def wait(call):
        interrupted.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(threads._pool, "threads", 2)
    monkeypatch.setattr(threads._Call, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        threads.run([lambda number=number: job(number) for number in range(2)])
    assert len(ended) == len(begun) - 1


# -- derivatives ------------------------------------------------------------------------------------------------------


def test_tensors_with_tangents_and_conjugates_have_the_same_values(small):
    torch = pytest.importorskip("torch")
    lhs, rhs = made("torch", (3,), (4,), dtype="complex64")
    out = torch.zeros(3, 4, dtype=torch.complex64).conj()
    einsum("i,j->ij", lhs, rhs, out=out)
    np.testing.assert_array_equal(out.resolve_conj(), lhs[:, None] * rhs)
    with warnings.catch_warnings(), torch.autograd.forward_ad.dual_level():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch compiles its rules of tangents in an old way
        dual = torch.autograd.forward_ad.make_dual(lhs, torch.ones_like(lhs))
        out = torch.zeros(3, 4, dtype=torch.complex64)
        einsum("i,j->ij", dual, rhs, out=out)
        primal, tangent = torch.autograd.forward_ad.unpack_dual(out)
        np.testing.assert_array_equal(primal, lhs[:, None] * rhs)
        np.testing.assert_array_equal(tangent, rhs.expand(3, 4))
    with torch.no_grad():
        parameter = torch.nn.Parameter(torch.zeros(3, 4, dtype=torch.complex64))
        einsum("i,j->ij", lhs, rhs, out=parameter)
    np.testing.assert_array_equal(parameter.detach(), lhs[:, None] * rhs)


def test_a_trace_records_a_copy(small):
    torch = pytest.importorskip("torch")
    lhs, rhs = made("torch", (3, 4), (4, 5))

    def product(lhs, rhs, out):
        return einsum("ij,jk->ik", lhs, rhs, out=out)

    for traced in (
        import_module("torch.fx.experimental.proxy_tensor").make_fx(product)(lhs, rhs, lhs @ rhs),
        torch.compile(product, backend="eager", fullgraph=True),
        lambda *arrays: torch.func.vmap(product)(*[array[None] for array in arrays])[0],
    ):
        np.testing.assert_array_equal(traced(lhs, rhs, lhs.new_ones((3, 5))), lhs @ rhs)
    with import_module("torch._subclasses.fake_tensor").FakeTensorMode():
        assert product(torch.ones(3, 4), torch.ones(4, 5), torch.ones(3, 5)).shape == (3, 5)


def test_autograd_notices_what_was_written(small):
    torch = pytest.importorskip("torch")
    lhs, rhs = made("torch", (3,), (4,))
    out, factor = torch.ones(3, 4, dtype=torch.float64), torch.ones(3, 4, dtype=torch.float64, requires_grad=True)
    product = (factor * out).sum()
    einsum("i,j->ij", lhs, rhs, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
