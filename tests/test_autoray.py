"""autoray's lazy arrays as operands: one more lazy array, whose computation is a call of einsumx."""

import numpy as np
import pytest

pytest.importorskip("autoray", reason="autoray is not installed: pip install autoray")
import autoray

import einsumx
from einsumx.conformance.kit.oracle import expect, judge

A, B = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)


def lazy(array):
    return autoray.lazy.array(array)


FORMS = {
    "two lazy arrays": lambda: (lazy(A), lazy(B)),
    "a constant of NumPy's second": lambda: (lazy(A), B),
    "a constant of NumPy's first": lambda: (A, lazy(B)),
    "a list first": lambda: (A.tolist(), lazy(B)),
    "what was computed of lazy arrays": lambda: (lazy(A) + 0, lazy(B) * 1),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_contraction_is_a_lazy_array_with_the_plain_sum(form):
    result = einsumx.einsum("ij,jk->ki", *FORMS[form]())
    assert isinstance(result, autoray.lazy.LazyArray)
    assert (result.shape, result.backend) == ((4, 2), "numpy")
    assert judge(result.compute(), expect("ij,jk->ki", A, B))


@pytest.mark.parametrize("equation", ["ij->", "...j,...j->...", "ij,kj"])
def test_an_operand_may_stand_twice(equation):
    array = lazy(A)
    operands = [array] * (equation.count(",") + 1)
    result = einsumx.einsum(equation, *operands)
    expected = expect(equation, *[A] * len(operands))
    assert result.shape == expected.values.shape
    assert judge(result.compute(), expected)


def test_sublists_with_labels_of_any_kind_and_broadcasting_go_through():
    result = einsumx.einsum(lazy(A), ["row", 0], lazy(B[:, :1]), [0, (1, 2)], [(1, 2), "row"])
    assert judge(result.compute(), expect("ij,jk->ki", A, B[:, :1]))
    assert einsumx.einsum("ij,ij->ij", lazy(A), lazy(A[:1])).shape == (2, 3)


def test_keywords_hold_when_it_is_computed():
    result = einsumx.einsum(
        "ij,jk->ik", lazy(A), lazy(B), dtype="float32", casting="same_kind", order="F", memory_limit="1 MB"
    ).compute()
    assert result.dtype == "float32"
    assert result.flags.f_contiguous


def test_what_is_added_and_sums_in_semirings_are_lazy():
    added = einsumx.addeinsum(lazy(np.ones((2, 4))), "ij,jk->ik", lazy(A), lazy(B), alpha=2, beta=3)
    np.testing.assert_array_equal(added.compute(), 2 * A @ B + 3)
    maxima = einsumx.semirings.max_plus.einsum("ij,jk->ik", lazy(A), lazy(B))
    np.testing.assert_array_equal(maxima.compute(), (A[:, :, None] + B).max(1))


def test_nothing_is_computed_before_it_is_asked_for():
    variables = [autoray.lazy.Variable((2, 3)), autoray.lazy.Variable((3, 4), backend="numpy")]
    result = einsumx.einsum("ij,jk->ik", *variables)
    assert result.backend == "numpy"
    function = result.get_function(variables)
    assert judge(function([A, B]), expect("ij,jk->ik", A, B))


def test_tensordot_and_transpose_of_lazy_arrays_are_lazy():
    result = einsumx.tensordot(einsumx.transpose(lazy(A)), lazy(B.T), axes=((0,), (1,)))
    assert isinstance(result, autoray.lazy.LazyArray)
    assert result.shape == (2, 4)
    np.testing.assert_array_equal(result.compute(), A @ B)


def test_numbers_that_are_lazy_go_with_any_framework():
    result = einsumx.einsum("ij,->ij", lazy(A), autoray.lazy.array(2.0))
    assert result.backend == "numpy"
    np.testing.assert_array_equal(result.compute(), 2 * A)


@pytest.fixture
def registered():
    """autoray calls einsumx for NumPy arrays."""
    names = ("einsum", "tensordot", "transpose")
    before = {name: autoray.get_lib_fn("numpy", name) for name in names}
    for name in names:
        autoray.register_function("numpy", name, getattr(einsumx, name))
    yield
    for name, function in before.items():
        autoray.register_function("numpy", name, function)


def test_functions_registered_with_autoray_serve_its_calls_eager_and_lazy(registered):
    einsumx.cache_clear()
    np.testing.assert_allclose(autoray.do("einsum", "ij,jk->ik", A, B), A @ B)
    np.testing.assert_allclose(autoray.do("tensordot", A, B, 1), A @ B)
    np.testing.assert_array_equal(autoray.do("transpose", A, (1, 0)), A.T)
    assert einsumx.cache_info()["calls"].misses == 3
    for result in (autoray.do("einsum", "ij,jk->ik", lazy(A), lazy(B)), autoray.do("tensordot", lazy(A), lazy(B), 1)):
        np.testing.assert_allclose(result.compute(), A @ B)


def test_sizes_and_equations_that_are_wrong_are_errors_at_once():
    with pytest.raises(einsumx.SizeError, match="label 'j' has size 3 in operand 0"):
        einsumx.einsum("ij,jk->ik", lazy(A), A)
    with pytest.raises(einsumx.EquationError):
        einsumx.einsum("ij,jk->il", lazy(A), lazy(B))


def test_arrays_of_two_frameworks_are_an_error_that_names_both(torch):
    for other in (torch.ones(3, 4), lazy(torch.ones(3, 4))):
        with pytest.raises(einsumx.BackendError, match=r"two frameworks, numpy and torch, .*lazy arrays of autoray"):
            einsumx.einsum("ij,jk->ik", lazy(A), other)


def test_an_exponent_and_an_out_are_errors():
    with pytest.raises(einsumx.BackendError, match="einsum_frexp has two results, and a lazy array"):
        einsumx.einsum_frexp("ij,jk->ik", lazy(A), lazy(B))
    with pytest.raises(einsumx.BackendError, match="out= is not for lazy arrays of autoray"):
        einsumx.einsum("ij,jk->ik", lazy(A), lazy(B), out=np.empty((2, 4)))


def test_plans_and_expressions_say_to_pass_shapes():
    for call in (
        lambda: einsumx.plan("ij->ji", lazy(A)),
        lambda: einsumx.plan("ij->ji", lazy(A), memory_limit="1 MB"),
        lambda: einsumx.expression("ij,jk->ik", (2, 3), lazy(B)),
        lambda: einsumx.expression("ij,jk->ik", (2, 3), (3, 4))(lazy(A), B),
    ):
        with pytest.raises(einsumx.BackendError, match=r"autoray.*LazyArray are lazy, .*pass shapes"):
            call()
    assert einsumx.expression("ij,jk->ik", lazy(A).shape, B)(A).shape == (2, 4)  # the advice
