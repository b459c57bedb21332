"""Compiled expressions: planned once, constants folded in once, checked at every call."""

import numpy as np
import pytest
from threads import in_threads

import einsumx
from einsumx.backends.numpy import ADAPTER
from einsumx.ir.ops import Matmul


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def chain(x, first, second):
    """ij,jk,kl->il by loops over the definition."""
    result = np.zeros((x.shape[0], second.shape[1]))
    for i, j, k, m in np.ndindex(x.shape[0], x.shape[1], first.shape[1], second.shape[1]):
        result[i, m] += x[i, j] * first[j, k] * second[k, m]
    return result


def test_expression_gives_the_contraction(rng):
    x, first, second = rng.normal(size=(3, 4)), rng.normal(size=(4, 5)), rng.normal(size=(5, 2))
    run = einsumx.expression("ij,jk,kl->il", (3, 4), (4, 5), (5, 2))
    np.testing.assert_allclose(run(x, first, second), chain(x, first, second), rtol=1e-12)


def test_constants_are_given_once_and_in_any_place(rng):
    x, first, second = rng.normal(size=(3, 4)), rng.normal(size=(4, 5)), rng.normal(size=(5, 2))
    expected = chain(x, first, second)
    np.testing.assert_allclose(einsumx.expression("ij,jk,kl->il", (3, 4), first, second)(x), expected, rtol=1e-12)
    np.testing.assert_allclose(einsumx.expression("ij,jk,kl->il", x, (4, 5), second)(first), expected, rtol=1e-12)
    np.testing.assert_allclose(einsumx.expression("ij,jk,kl->il", x, first, (5, 2))(second), expected, rtol=1e-12)


def test_what_depends_on_constants_alone_is_computed_once(rng, monkeypatch):
    """With the two constants contracted first, a call makes one matrix product instead of two."""
    x, first, second = rng.normal(size=(3, 4)), rng.normal(size=(4, 5)), rng.normal(size=(5, 2))
    calls = []
    kernel = ADAPTER.kernel

    def counted(op, shapes, dtype):
        run = kernel(op, shapes, dtype)
        return (lambda *args: calls.append(args) or run(*args)) if isinstance(op, Matmul) else run

    monkeypatch.setattr(ADAPTER, "kernel", counted)
    run = einsumx.expression("ij,jk,kl->il", (3, 4), first, second, optimize=[(1, 2), (0, 1)])
    for _ in range(5):
        np.testing.assert_allclose(run(x), chain(x, first, second), rtol=1e-12)
    assert len(calls) == 1 + 5


def test_a_changed_constant_is_not_seen_where_it_was_folded(rng):
    first, second = rng.normal(size=(4, 5)), rng.normal(size=(5, 2))
    x = rng.normal(size=(3, 4))
    run = einsumx.expression("ij,jk,kl->il", (3, 4), first, second, optimize=[(1, 2), (0, 1)])
    before = run(x)
    first *= 2
    np.testing.assert_array_equal(run(x), before)


def test_dtypes_and_layouts_may_change_between_calls(rng):
    run = einsumx.expression("ij,jk->ik", (3, 4), (4, 2))
    a, b = rng.integers(-9, 9, size=(3, 4)), rng.integers(-9, 9, size=(4, 2))
    expected = (a[:, :, None] * b[None]).sum(1)
    for dtype in ("int64", "int8", "float32", "complex128"):
        result = run(a.astype(dtype), np.asfortranarray(b.astype(dtype)))
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected.astype(dtype))


def test_out_and_order_are_honoured(rng):
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    run = einsumx.expression("ij,jk->ik", (3, 4), (4, 2))
    out = np.full((3, 2), np.nan)
    assert run(a, b, out=out) is out
    np.testing.assert_allclose(out, (a[:, :, None] * b[None]).sum(1), rtol=1e-12)
    assert run(a, b, order="F").flags.f_contiguous


@pytest.mark.parametrize(
    ("operands", "error", "message"),
    [
        ((np.ones((3, 4)),), einsumx.SizeError, "takes 2 operands, not 1"),
        ((np.ones((3, 4)), np.ones((4, 3))), einsumx.SizeError, r"operand 1 has shape \(4, 3\)"),
        ((np.ones((3, 4)), np.array([["a"] * 2] * 4)), einsumx.BackendError, "needs numbers"),
    ],
)
def test_a_call_that_does_not_fit_is_an_error(operands, error, message):
    run = einsumx.expression("ij,jk->ik", (3, 4), (4, 2))
    with pytest.raises(error, match=message):
        run(*operands)


def test_equation_and_path_are_checked_when_the_expression_is_made():
    with pytest.raises(einsumx.SizeError):
        einsumx.expression("ij,jk->ik", (3, 4), (5, 2))
    with pytest.raises(einsumx.EquationError):
        einsumx.expression("ij,jk->iz", (3, 4), (4, 2))
    with pytest.raises(einsumx.PathError):
        einsumx.expression("ij,jk->ik", (3, 4), (4, 2), optimize="no such optimizer")


def test_nothing_but_constants_is_an_error():
    with pytest.raises(einsumx.EquationError, match="nothing is left to call with"):
        einsumx.expression("ij->i", np.ones((2, 3)))


def test_one_expression_serves_several_threads(rng):
    a, b = rng.normal(size=(30, 40)), rng.normal(size=(40, 20))
    run = einsumx.expression("ij,jk->ik", (30, 40), (40, 20))
    expected = (a[:, :, None] * b[None]).sum(1)

    def work():
        for _ in range(50):
            np.testing.assert_allclose(run(a, b), expected, rtol=1e-12)

    in_threads(work)


def test_a_memory_limit_is_refused_and_the_call_that_keeps_one_is_named():
    with pytest.raises(ValueError, match=r"call einsumx\.einsum\(\.\.\., memory_limit='1GB'\)"):
        einsumx.expression("ij,jk->ik", (2, 3), (3, 4), memory_limit="1GB")
