"""Autograd: NumPy's arrays beside boxes, plans and ``patch``; the suite judges gradients."""

import numpy as onp
import pytest

pytest.importorskip("autograd")

import autograd.numpy as np
from autograd import grad
from autograd.test_util import check_grads
from source_einsum import contraction

import einsumx


def operands(shapes):
    random = onp.random.default_rng(3)
    return [random.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize("place", [0, 1])
def test_arrays_of_numpy_are_constants(place):
    arrays = operands([(3, 4), (4, 5)])

    def contraction(array):
        return einsumx.einsum("ij,jk->ik", *[*arrays[:place], array, *arrays[place + 1 :]])

    check_grads(contraction, order=2)(arrays[place])


def test_an_array_without_boxes_is_numpys():
    assert type(einsumx.einsum("ij->ji", np.ones((2, 3)))) is onp.ndarray


def test_a_plan_is_a_function_of_autograd():
    lhs, rhs = operands([(3, 4), (5, 4)])
    plan = einsumx.plan("ij,kj->ik", lhs.shape, rhs.shape, dtype="float64", backend="autograd")
    for function in (plan, contraction(plan.source(), "autograd")):
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
    with pytest.raises(einsumx.BackendError, match="autograd: it keeps every intermediate for the gradients"):
        grad(lambda array: einsumx.einsum("ij,ij->", array, array, memory_limit="1MB"))(onp.ones((2, 3)))
