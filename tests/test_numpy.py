"""What is NumPy's own: results as numpy.einsum gives them, and nothing else said."""

import warnings

import numpy as np
import pytest

import einsumx


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,ji->ij", "ij,ji->", "bij,bjk->bik"])
def test_infinities_and_nan_raise_no_warnings(equation):
    """Unlike numpy.matmul's and numpy.multiply's, numpy.einsum's arithmetic is silent; so is this."""
    lhs, rhs = np.full((3, 3), np.inf), np.array([[0.0, np.nan, 1.0]] * 3)
    if equation.startswith("b"):
        lhs, rhs = lhs[None], rhs[None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.isfinite(einsumx.einsum(equation, lhs, rhs)).any()


def test_the_callers_error_state_is_left_as_it_was():
    with np.errstate(all="raise"):
        einsumx.einsum("ij,jk->ik", np.full((2, 2), np.inf), np.zeros((2, 2)))
        assert np.geterr()["invalid"] == "raise"


@pytest.mark.filterwarnings("ignore:Creating an ndarray from ragged")
@pytest.mark.parametrize("given", [[np.ones((2, 3)), np.ones((3, 4))], [[1, 2], [3]]])
def test_a_list_of_which_no_array_can_be_made_is_an_error_that_says_how_arrays_are_passed(given):
    # NumPy before 1.24 makes an array of objects of it, and then there are too few operands.
    says = r"operand 0, a list: .*einsum\(equation, \*arrays\)|2 subscripts but 1 operand"
    with pytest.raises(einsumx.EinsumxError, match=says):
        einsumx.einsum("ij,jk->ik", given)


def test_results_without_axes_are_scalars():
    result = einsumx.einsum("i,i->", np.arange(3.0), np.arange(3.0))
    assert isinstance(result, np.float64)
    assert result == 5


def test_masked_arrays_are_refused_as_their_masks_would_be_lost():
    with pytest.raises(einsumx.BackendError, match="masks"):
        einsumx.einsum("i->", np.ma.masked_array([1.0, 2.0], mask=[True, False]))


def test_a_matrix_is_an_array_of_two_axes():
    matrix = np.asarray([[1.0, 2.0], [3.0, 4.0]]).view(np.matrix)
    result = einsumx.einsum("ij->j", matrix)
    assert type(result) is np.ndarray
    assert result.tolist() == [4.0, 6.0]


def test_an_out_that_is_no_array_is_an_error_that_says_what_it_is():
    with pytest.raises(einsumx.BackendError, match="out= is a list, but the operands are arrays of numpy"):
        einsumx.einsum("ij->i", np.ones((2, 3)), out=[0, 0])
