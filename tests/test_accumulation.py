"""``alpha=`` and ``beta=``: what the conformance suite does not judge: caches, plans, interruptions and memory."""

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from importlib import import_module

import numpy as np
import pytest
from peaks import OBJECTS, numpy_peak

import einsumx
from einsumx import BackendError, einsum, expression
from einsumx.adapters.registry import get_backend
from einsumx.streaming.walk import difference

EQUATION = "ij,jk->ik"
a, b, c = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5) - 7, np.arange(15.0).reshape(3, 5)


def updated(alpha, beta):
    return alpha * (a @ b) + beta * c


# -- caches and plans ------------------------------------------------------------------------------------------------


def test_calls_with_other_factors_share_a_plan_and_an_entry_of_the_cache_of_calls():
    einsumx.cache_clear()
    for alpha, beta in ((2.5, 0.5), (3.5, 0.25), (-1.0, 1e9)):
        out = c.copy()
        einsum(EQUATION, a, b, alpha=alpha, beta=beta, out=out)
        np.testing.assert_array_equal(out, updated(alpha, beta))
    info = einsumx.cache_info()
    assert (info["forms"].misses, info["plans"].misses) == (1, 1)
    assert info["forms"].hits == 2


def test_an_expression_takes_factors_with_each_call():
    for constant in (False, True):
        compiled = expression(EQUATION, a.shape, b if constant else b.shape)
        arrays = [a] if constant else [a, b]
        for alpha, beta in ((2, 3), (0.5, 1), (1, -1)):
            out = c.copy()
            assert compiled(*arrays, out=out, alpha=alpha, beta=beta) is out
            np.testing.assert_array_equal(out, updated(alpha, beta))
        np.testing.assert_array_equal(compiled(*arrays, alpha=-2, order="F"), -2 * (a @ b))
        with pytest.raises(ValueError, match="there is no out="):
            compiled(*arrays, beta=1)


def test_a_measured_plan_is_found_while_results_are_added():
    out = c.copy()
    for _ in range(8):
        einsum(EQUATION, a, b, alpha=2, beta=1, out=out, effort="measure")
    np.testing.assert_array_equal(out, c + 16 * (a @ b))


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [np.float64(2), np.int8(2), np.array(2.0), np.longdouble(2)])
def test_a_factor_does_not_change_the_dtype(number):
    result = einsum(EQUATION, a.astype("float32"), b.astype("float32"), alpha=number)
    assert result.dtype == "float32"
    np.testing.assert_array_equal(result, 2 * (a @ b))


def test_a_factor_with_more_digits_than_a_python_float_keeps_them():
    third = np.longdouble(1) / 3
    result = einsum("i->i", np.ones(2, "longdouble"), alpha=third)
    assert (result == third).all()


def test_objects_multiply_by_objects():
    objects = np.array([[Fraction(1, 3)] * 2] * 2)
    out = np.array([[Fraction(1, 2)] * 2] * 2)
    einsum(EQUATION, objects, objects, alpha=Fraction(1, 2), beta=Fraction(1, 5), out=out)
    assert (out == Fraction(1, 9) + Fraction(1, 10)).all()
    assert einsum("ij->", objects, alpha=3) == 4
    out = np.array(Fraction(1, 2), object)
    einsum("i,i->", np.ones(3), np.ones(3), alpha=2, beta=3, out=out)
    assert out[()] == 7.5


def test_an_object_that_fails_leaves_out_as_it_was():
    class Once:
        def __mul__(self, other):
            raise ArithmeticError

    objects, out = np.array([1, 2, Once()], object), np.array([1, 2, 3], object)
    with pytest.raises(ArithmeticError):
        einsum("i->i", objects, alpha=2, beta=3, out=out)
    assert out.tolist() == [1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"alpha": 2, "beta": 3}], ids=str)
def test_an_object_that_no_float_can_hold_leaves_out_as_it_was(options):
    out = np.array([1.0, 2.0, 3.0])
    with pytest.raises(TypeError):
        einsum("i,i->i", np.array([1, 2, 1j], object), np.ones(3), out=out, casting="unsafe", **options)
    assert out.tolist() == [1, 2, 3]


def test_a_scalar_result_is_a_scalar():
    assert einsum("i,i->", a[0], a[1], alpha=2) == 2 * a[0] @ a[1]
    assert type(einsum("i,i->", a[0], a[1], alpha=2)) is np.float64


def test_an_overflow_is_an_infinity_without_a_warning():
    with np.errstate(all="raise"):
        assert einsum("i->i", np.ones(1, "float32"), alpha=1e300)[0] == np.inf
        assert einsum("i->i", np.ones(1, "float32"), alpha=1e300, beta=1, out=np.ones(1, "float32"))[0] == np.inf


# -- under a memory limit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"executor": ThreadPoolExecutor(2)}], ids=["", "executor"])
def test_each_block_is_added_once(options, tmp_path):
    rng = np.random.default_rng(0)
    lhs, rhs, before = rng.random((60, 50)), rng.random((50, 70)), rng.random((60, 70))
    out = np.memmap(tmp_path / "out", "float64", "w+", shape=before.shape)
    out[...] = before
    einsum(EQUATION, lhs, rhs, out=out, alpha=2, beta=-3, memory_limit=20_000, **options)
    np.testing.assert_allclose(out, 2 * lhs @ rhs - 3 * before)


@pytest.mark.parametrize("failing", [1, 3, 5])
def test_no_block_is_added_twice_if_memory_runs_out(failing, monkeypatch):
    rng = np.random.default_rng(0)
    lhs, rhs, before = rng.random((60, 50)), rng.random((50, 70)), rng.random((60, 70))
    adapter = type(get_backend("numpy"))
    combined, calls = adapter.combined, 0

    def combined_or_failing(*arguments):
        nonlocal calls
        calls += 1
        if calls == failing:
            raise MemoryError
        return combined(*arguments)

    monkeypatch.setattr(adapter, "combined", combined_or_failing)
    out = before.copy()
    with pytest.warns(RuntimeWarning, match="memory ran out"):
        einsum(EQUATION, lhs, rhs, out=out, alpha=2, beta=-3, memory_limit=25_000)
    assert calls > failing
    np.testing.assert_allclose(out, 2 * lhs @ rhs - 3 * before)


def test_boxes_without_a_part_make_up_the_rest():
    rng = np.random.default_rng(0)
    for _ in range(200):
        cuts = [sorted(rng.choice(7, 2, replace=False)) for _ in range(6)]
        box, other = (tuple(slice(int(x), int(y)) for x, y in cuts[k : k + 3]) for k in (0, 3))
        counts, expected = np.zeros((2, 6, 6, 6), int)
        expected[box], expected[other] = 1, 0
        for part in difference(box, other):
            counts[part] += 1
        np.testing.assert_array_equal(counts, expected)


def test_beta_cannot_be_resumed(tmp_path):
    out = np.memmap(tmp_path / "out", "float64", "w+", shape=c.shape)
    with pytest.raises(ValueError, match="resume= cannot be combined with beta="):
        einsum(EQUATION, a, b, out=out, beta=2, memory_limit=1000, resume=tmp_path / "journal")
    assert not out.any()


def test_a_resumed_call_needs_the_same_alpha(tmp_path):
    out = np.memmap(tmp_path / "out", "float64", "w+", shape=c.shape)
    journal = tmp_path / "journal"
    call = partial(einsum, EQUATION, a, b, out=out, memory_limit=300, resume=journal)

    def interrupt(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(alpha=2, progress=interrupt)
    for other in ({"alpha": 4}, {"alpha": 3}):
        with pytest.raises(einsumx.JournalError, match="its alpha is"):
            call(**other)
    call(alpha=2)
    np.testing.assert_array_equal(out, 2 * (a @ b))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_limit_counts_the_copies_that_are_added(dtype):
    rng = np.random.default_rng(0)
    lhs, rhs, out = rng.random((300, 200)), rng.random((200, 400)), np.zeros((300, 400), dtype)
    call = partial(einsum, EQUATION, lhs, rhs, out=out, alpha=2, beta=1, casting="same_kind", memory_limit=2_000_000)
    assert numpy_peak(call)[1] <= 2_000_000 + OBJECTS


# -- other frameworks ------------------------------------------------------------------------------------------------


def torch_arrays():
    torch = pytest.importorskip("torch")
    return torch, *[torch.tensor(array) for array in (a, b, c)]


def test_a_product_of_tensors_is_added_by_one_call(monkeypatch):
    """No other array of the result's size is made."""
    torch, *_ = torch_arrays()
    kernels = import_module("einsumx.backends.torch.kernels")
    called = []
    product_into = kernels.product_into

    def noted(*shapes):
        run = product_into(*shapes)
        return run and (lambda *arguments: called.append(arguments) or run(*arguments))

    monkeypatch.setattr(kernels, "product_into", noted)
    for equation, is_one_call in (
        ("ij,jk->ki", True),
        ("bij,bjk->bik", True),
        ("ijab,klab->ijkl", True),
        ("ij,jk,kl->il", True),
        ("ij,ij->ij", False),
    ):
        einsumx.cache_clear()
        called.clear()
        terms = equation.partition("->")[0].split(",")
        arrays = [torch.rand(*[3 + "abijkl".index(label) for label in term], dtype=torch.float64) for term in terms]
        expected = torch.einsum(equation, *arrays)
        for _ in range(2):
            out = torch.ones(expected.shape, dtype=torch.float64)
            einsum(equation, *arrays, out=out, alpha=2, beta=3)
            torch.testing.assert_close(out, 2 * expected + 3)
        assert len(called) == 2 * is_one_call, equation
    einsumx.cache_clear()


def test_alpha_multiplies_gradients_of_tensors():
    torch, lhs, rhs, _ = torch_arrays()
    lhs.requires_grad_()
    einsum(EQUATION, lhs, rhs, alpha=3).sum().backward()
    np.testing.assert_allclose(lhs.grad, 3 * np.ones((3, 5)) @ b.T)
    with pytest.raises(BackendError, match="gradients do not flow through alpha="):
        einsum(EQUATION, lhs, rhs, alpha=3, memory_limit="1MB")
    with pytest.raises(BackendError, match="alpha= has no gradient;"):
        einsum(EQUATION, lhs.detach(), rhs, alpha=torch.tensor(2.0, requires_grad=True))
    with torch.no_grad():
        assert einsum(EQUATION, lhs, rhs, alpha=torch.tensor(2.0, requires_grad=True)).shape == (3, 5)


def test_a_tensor_that_asks_for_a_gradient_is_written_where_nothing_is_recorded():
    torch, lhs, rhs, out = torch_arrays()
    out.requires_grad_()
    with pytest.raises(BackendError, match="torch does not differentiate through out="):
        einsum(EQUATION, lhs, rhs, out=out, alpha=2, beta=3)
    with torch.no_grad():  # the advice
        einsum(EQUATION, lhs, rhs, out=out, alpha=2, beta=3)
    np.testing.assert_array_equal(out.detach(), updated(2, 3))


def test_torch_compile_records_a_call_with_factors():
    torch, lhs, rhs, _ = torch_arrays()
    compiled = torch.compile(
        lambda x, y, alpha: einsum(EQUATION, x, y, alpha=alpha) + 1, backend="eager", fullgraph=True
    )
    for alpha in (2.5, 3.5, 4.5):
        np.testing.assert_allclose(compiled(lhs, rhs, alpha), alpha * (a @ b) + 1)


def test_jax_has_nothing_to_add_to_and_no_number_in_a_trace():
    jax = pytest.importorskip("jax")
    lhs, rhs = (jax.numpy.asarray(array, "float32") for array in (a, b))
    with pytest.raises(BackendError, match="leave out= away"):
        einsum(EQUATION, lhs, rhs, beta=1, out=jax.numpy.ones((3, 5)))
    with pytest.raises(BackendError, match=r"alpha= is a number, and this .* has no value yet"):
        jax.jit(lambda x, alpha: einsum("i->i", x, alpha=alpha))(lhs[0], 2.0)


def test_dask_arrays_are_multiplied_and_not_added():
    da = pytest.importorskip("dask.array")
    lhs, rhs = da.from_array(a, chunks=2), da.from_array(b, chunks=3)
    np.testing.assert_array_equal(einsum(EQUATION, lhs, rhs, alpha=2).compute(), 2 * (a @ b))
    with pytest.raises(BackendError, match="out= is not for Dask arrays"):
        einsum(EQUATION, lhs, rhs, out=c, beta=2)
    with pytest.raises(BackendError, match="alpha= is complex"):
        einsum(EQUATION, lhs, rhs, alpha=1j)
