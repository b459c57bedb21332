"""Autograd: gradients of contractions of boxes, and of NumPy's arrays beside them."""

import numpy as onp
import pytest

pytest.importorskip("autograd")

import autograd.numpy as np
from autograd import grad, hessian
from autograd.test_util import check_grads

import einsumx

PROBLEMS = {
    "ij,jk->ik": [(3, 4), (4, 5)],
    "ij,jk,kl->li": [(2, 3), (3, 4), (4, 5)],
    "bij,bjk->bki": [(2, 3, 4), (2, 4, 3)],
    "ij,ij->j": [(3, 4), (1, 4)],
    "iij,j->i": [(3, 3, 2), (2,)],
    "ii->": [(3, 3)],
    "ij->": [(3, 4)],
    "i,j->ji": [(3,), (4,)],
}


def operands(shapes, dtype="float64"):
    random = onp.random.default_rng(3)
    parts = [random.standard_normal((2, *shape)) for shape in shapes]
    return [real + 1j * imaginary if dtype == "complex128" else real for real, imaginary in parts]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("equation", PROBLEMS)
def test_gradients_are_finite_differences(equation, dtype):
    def contraction(*arrays):
        return einsumx.einsum(equation, *arrays)

    check_grads(contraction, order=2)(*operands(PROBLEMS[equation], dtype))


@pytest.mark.parametrize("place", [0, 1])
def test_arrays_of_numpy_are_constants(place):
    arrays = operands([(3, 4), (4, 5)])

    def contraction(array):
        return einsumx.einsum("ij,jk->ik", *[*arrays[:place], array, *arrays[place + 1 :]])

    check_grads(contraction, order=2)(arrays[place])


def test_the_gradient_by_real_numbers_beside_complex_ones_is_real():
    real, (other,) = operands([(3, 4)])[0], operands([(4, 5)], "complex128")
    check_grads(lambda array: einsumx.einsum("ij,jk->ik", array, other), order=1)(real)


def test_an_array_without_boxes_is_numpys():
    assert type(einsumx.einsum("ij->ji", np.ones((2, 3)))) is onp.ndarray


def test_the_hessian_of_a_cube_is_six_times_the_diagonal():
    vector = onp.array([1.0, 2.0, 3.0])
    result = hessian(lambda array: einsumx.einsum("i,i,i->", array, array, array))(vector)
    onp.testing.assert_allclose(result, onp.diag(6 * vector))


def test_elements_in_one_place_of_memory_have_gradients_of_their_own():
    row, other = onp.broadcast_to([1.0, 2.0], (3, 2)), onp.arange(6.0).reshape(3, 2)
    result = grad(lambda array: einsumx.einsum("ij,ij->", array, other))(row)
    onp.testing.assert_allclose(result, other)


def test_a_plan_is_a_function_of_autograd():
    lhs, rhs = operands([(3, 4), (5, 4)])
    plan = einsumx.plan("ij,kj->ik", lhs.shape, rhs.shape, dtype="float64", backend="autograd")
    names = {}
    exec(plan.source(), names)
    for function in (plan, names["contraction"]):
        gradient = grad(lambda array, product: np.sum(product(array, rhs) ** 2))(lhs, function)
        onp.testing.assert_allclose(gradient, 2 * lhs @ rhs.T @ rhs)


def test_patch_replaces_the_einsum_of_autograd():
    array, own = onp.array([[1.0, 2.0], [3.0, 4.0]]), np.einsum
    with einsumx.patched("autograd"):
        assert np.einsum is not own
        result = grad(lambda array: np.einsum("ij,jk->", array, array))(array)
    assert np.einsum is own
    onp.testing.assert_allclose(result, [[7, 11], [9, 13]])


def test_a_memory_limit_is_refused():
    with pytest.raises(einsumx.BackendError, match="autograd: every intermediate is kept for the gradients"):
        grad(lambda array: einsumx.einsum("ij,ij->", array, array, memory_limit="1MB"))(onp.ones((2, 3)))
