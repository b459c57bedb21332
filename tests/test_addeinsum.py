"""``addeinsum``: what overlaps, caches, interruptions and memory; values on each backend, the suite judges."""

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from importlib import import_module

import numpy as np
import pytest
from peaks import OBJECTS, numpy_peak

import einsumx
from einsumx import BackendError, MemoryLimit, addeinsum
from einsumx.adapters.registry import get_backend

EQUATION = "ij,jk->ik"
a, b, c = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5) - 7, np.arange(15.0).reshape(3, 5)


def updated(alpha, beta):
    return alpha * (a @ b) + beta * c


# -- the sum -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"memory_limit": "1 MB"}], ids=["", "limit"])
def test_a_beta_that_is_refused_leaves_out_as_it_was(options):
    out, bits = np.array([True, False]), np.zeros((2, 2), bool)
    with pytest.raises(BackendError, match="beta= must be 0 or 1 for a result of dtype bool"):
        addeinsum(~out, "ij->i", bits, beta=2, out=out, **options)
    assert out.tolist() == [True, False]


@pytest.mark.parametrize("options", [{}, {"memory_limit": 2000}], ids=["", "limit"])
def test_an_out_that_overlaps_an_operand_or_c_has_the_same_values(options):
    square, other = np.arange(16.0).reshape(4, 4), np.arange(16.0).reshape(4, 4)[::-1] - 3
    expected = 2 * square @ other - other
    for name in ("lhs", "rhs", "c"):
        arrays = {"lhs": square.copy(), "rhs": other.copy(), "c": other.copy()}
        out = arrays[name].T[::-1]
        addeinsum(arrays["c"], EQUATION, arrays["lhs"], arrays["rhs"], alpha=2, beta=-1, out=out, **options)
        np.testing.assert_array_equal(out, expected, err_msg=name)


@pytest.mark.parametrize("keywords", [{}, {"out": True}, {"memory_limit": 10_000}], ids=["new", "out", "limit"])
def test_without_a_dtype_the_contraction_has_that_of_its_operands(keywords):
    """As in ``c + a @ b``; with a ``dtype=``, all is computed in it."""
    row, wide = np.full((1, 2), 1 + 2.0**-20, "float32"), np.zeros((1, 1))
    keywords = {**keywords, "out": wide} if "out" in keywords else keywords
    assert addeinsum(wide, EQUATION, row, row.T, **keywords).item() == 2 + 2.0**-18
    wide[...] = 0
    assert addeinsum(wide, EQUATION, row, row.T, dtype="float64", **keywords).item() == 2 + 2.0**-18 + 2.0**-39


# -- caches and plans ------------------------------------------------------------------------------------------------


def test_calls_with_other_factors_share_a_plan():
    einsumx.cache_clear()
    for alpha, beta in ((2.5, 0.5), (3.5, 0.25), (-1.0, 1e9)):
        out = c.copy()
        addeinsum(out, EQUATION, a, b, alpha=alpha, beta=beta, out=out)
        np.testing.assert_array_equal(out, updated(alpha, beta))
        np.testing.assert_array_equal(addeinsum(c, EQUATION, a, b, alpha=alpha, beta=beta), updated(alpha, beta))
    assert einsumx.cache_info()["plans"].misses == 1


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [np.float64(2), np.int8(2), np.array(2.0), np.longdouble(2)])
def test_a_factor_does_not_change_the_dtype(number):
    arrays = [array.astype("float32") for array in (c, a, b)]
    result = addeinsum(arrays[0], EQUATION, *arrays[1:], alpha=number, beta=number)
    assert result.dtype == "float32"
    np.testing.assert_array_equal(result, updated(2, 2))


def test_a_factor_with_more_digits_than_a_python_float_keeps_them():
    third = np.longdouble(1) / 3
    ones = np.ones(2, "longdouble")
    result = addeinsum(ones, "i->i", ones, alpha=third, beta=0)
    assert (result == third).all()


def test_objects_multiply_by_objects():
    objects = np.array([[Fraction(1, 3)] * 2] * 2)
    out = np.array([[Fraction(1, 2)] * 2] * 2)
    addeinsum(out, EQUATION, objects, objects, alpha=Fraction(1, 2), beta=Fraction(1, 5), out=out)
    assert (out == Fraction(1, 9) + Fraction(1, 10)).all()
    assert addeinsum(np.array(1, object), "ij->", objects, alpha=3) == 5
    assert addeinsum(np.array(3, object), "ij->", np.ones((2, 2), object), alpha=-1, memory_limit="1 MB") == -1
    out = np.array(Fraction(1, 2), object)
    addeinsum(out, "i,i->", np.ones(3), np.ones(3), alpha=2, beta=3, out=out)
    assert out[()] == 7.5


def test_an_object_that_fails_leaves_out_as_it_was():
    class Once:
        def __mul__(self, other):
            raise ArithmeticError

    objects, out = np.array([1, 2, Once()], object), np.array([1, 2, 3], object)
    with pytest.raises(ArithmeticError):
        addeinsum(out, "i->i", objects, alpha=2, beta=3, out=out)
    assert out.tolist() == [1, 2, 3]


def test_an_object_that_no_float_can_hold_leaves_out_as_it_was():
    out, objects = np.array([1.0, 2.0, 3.0]), np.array([1, 2, 1j], object)
    for call in (partial(addeinsum, out, alpha=2, beta=3), einsumx.einsum):
        with pytest.raises(TypeError):
            call("i,i->i", objects, np.ones(3), out=out, casting="unsafe")
        assert out.tolist() == [1, 2, 3]


def test_a_scalar_result_is_a_scalar():
    result = addeinsum(np.float64(3), "i,i->", a[0], a[1], alpha=2)
    assert result == 3 + 2 * a[0] @ a[1]
    assert type(result) is np.float64


def test_an_overflow_is_an_infinity_without_a_warning():
    with np.errstate(all="raise"):
        one = np.ones(1, "float32")
        assert addeinsum(one, "i->i", one, alpha=1e300)[0] == np.inf
        assert addeinsum(one, "i->i", one.copy(), alpha=1e300, beta=0, out=one)[0] == np.inf


# -- under a memory limit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor(2)], ids=["", "executor"])
def test_each_block_is_added_once(executor, tmp_path):
    rng = np.random.default_rng(0)
    lhs, rhs, before = rng.random((60, 50)), rng.random((50, 70)), rng.random((60, 70))
    out = np.memmap(tmp_path / "out", "float64", "w+", shape=before.shape)
    out[...] = before
    addeinsum(out, EQUATION, lhs, rhs, alpha=2, beta=-3, out=out, memory_limit=MemoryLimit(20_000, executor=executor))
    np.testing.assert_allclose(out, 2 * lhs @ rhs - 3 * before)


@pytest.mark.parametrize("failing", [1, 3, 5])
def test_no_block_is_added_twice_if_memory_runs_out(failing, monkeypatch):
    rng = np.random.default_rng(0)
    lhs, rhs, before = rng.random((60, 50)), rng.random((50, 70)), rng.random((60, 70))
    adapter = get_backend("numpy").arithmetic
    combined, calls = adapter.combined, 0

    def combined_or_failing(*arguments):
        nonlocal calls
        calls += 1
        if calls == failing:
            raise MemoryError
        return combined(*arguments)

    monkeypatch.setitem(vars(adapter), "combined", combined_or_failing)
    out = before.copy()
    with pytest.warns(RuntimeWarning, match="memory ran out"):
        addeinsum(out, EQUATION, lhs, rhs, alpha=2, beta=-3, out=out, memory_limit=25_000)
    assert calls > failing
    np.testing.assert_allclose(out, 2 * lhs @ rhs - 3 * before)


def test_beta_cannot_be_resumed(tmp_path):
    out = np.memmap(tmp_path / "out", "float64", "w+", shape=c.shape)
    with pytest.raises(ValueError, match="resume= cannot be combined with beta="):
        addeinsum(out, EQUATION, a, b, out=out, memory_limit=MemoryLimit(1000, resume=tmp_path / "journal"))
    assert not out.any()


def test_a_resumed_call_needs_the_same_alpha(tmp_path):
    out = np.memmap(tmp_path / "out", "float64", "w+", shape=c.shape)
    limit = partial(MemoryLimit, 300, resume=tmp_path / "journal")
    call = partial(addeinsum, out, EQUATION, a, b, beta=0, out=out)

    def interrupt(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(alpha=2, memory_limit=limit(progress=interrupt))
    for other in (4, 3):
        with pytest.raises(einsumx.JournalError, match="its alpha is"):
            call(alpha=other, memory_limit=limit())
    call(alpha=2, memory_limit=limit())
    np.testing.assert_array_equal(out, 2 * (a @ b))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_limit_counts_the_copies_that_are_added(dtype):
    rng = np.random.default_rng(0)
    lhs, rhs, out = rng.random((300, 200)), rng.random((200, 400)), np.zeros((300, 400), dtype)
    call = partial(addeinsum, out, EQUATION, lhs, rhs, alpha=2, out=out, casting="same_kind", memory_limit=2_000_000)
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
            addeinsum(out, equation, *arrays, alpha=2, beta=3, out=out)
            torch.testing.assert_close(out, 2 * expected + 3)
        assert len(called) == 2 * is_one_call, equation
    einsumx.cache_clear()


def test_a_factor_that_asks_for_a_gradient_is_refused():
    torch, lhs, rhs, bias = torch_arrays()
    with pytest.raises(BackendError, match="alpha= has no gradient;"):
        addeinsum(bias, EQUATION, lhs, rhs, alpha=torch.tensor(2.0, requires_grad=True))


def test_a_tensor_that_asks_for_a_gradient_is_written_where_nothing_is_recorded():
    torch, lhs, rhs, out = torch_arrays()
    out.requires_grad_()
    with pytest.raises(BackendError, match="torch does not differentiate through out="):
        addeinsum(out, EQUATION, lhs, rhs, alpha=2, beta=3, out=out)
    with torch.no_grad():  # the advice
        addeinsum(out, EQUATION, lhs, rhs, alpha=2, beta=3, out=out)
    np.testing.assert_array_equal(out.detach(), updated(2, 3))


def test_torch_compile_records_a_call_with_factors():
    torch, lhs, rhs, bias = torch_arrays()
    compiled = torch.compile(
        lambda z, x, y, alpha: addeinsum(z, EQUATION, x, y, alpha=alpha) + 1, backend="eager", fullgraph=True
    )
    for alpha in (2.5, 3.5, 4.5):
        np.testing.assert_allclose(compiled(bias, lhs, rhs, alpha), updated(alpha, 1) + 1)


def test_jax_has_nothing_to_write_to_and_no_number_in_a_trace(jax):
    bias, lhs, rhs = (jax.numpy.asarray(array, "float32") for array in (c, a, b))
    with pytest.raises(BackendError, match="omit out="):
        addeinsum(bias, EQUATION, lhs, rhs, out=bias)
    with pytest.raises(BackendError, match=r"alpha= must be a number, and this .* has no value yet"):
        jax.jit(lambda x, alpha: addeinsum(x, "i->i", x, alpha=alpha))(lhs[0], 2.0)
