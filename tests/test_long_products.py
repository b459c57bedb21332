"""Long products with vectors in single precision, which are summed in parts on NumPy and on PyTorch's CPU."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from einsumx import einsum
from einsumx.adapters.registry import get_backend

EPS = float(np.finfo("float32").eps)
LONG = 2**22 + 5


@pytest.fixture(params=["numpy", "torch"])
def array(request):
    pytest.importorskip(request.param)
    return get_backend(request.param).from_numpy


def relative_error(found, exact):
    return float(np.max(np.abs(np.asarray(found, "complex128") - exact) / np.abs(exact)))


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("equation", ["i,i->", "ij,ij->"])
def test_the_sum_of_millions_of_equal_terms_is_right(equation, dtype, array):
    shape = (LONG,) if equation == "i,i->" else (2**11, 2**12)
    terms, ones = np.full(shape, 0.1, dtype), np.ones(shape, dtype)
    found = einsum(equation, array(terms), array(ones))
    assert str(found.dtype).rpartition(".")[2] == dtype
    assert relative_error(found, complex(terms[(0,) * terms.ndim]) * terms.size) < 1000 * EPS


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("equation", ["ij,j->i", "j,ij->i", "ij,kj->ik"])
def test_a_long_product_of_a_matrix_and_a_vector_is_right(equation, order, array):
    random = np.random.default_rng(0)
    matrix = np.asarray(random.random((3, LONG // 2), "float32"), order=order)
    vector = random.random(LONG // 2, "float32")
    operands = [vector[None] if "k" in equation else vector, matrix][:: -1 if equation[1] == "j" else 1]
    found = np.asarray(einsum(equation, *map(array, operands)))
    exact = matrix.astype("float64") @ vector.astype("float64")
    assert found.shape == ((3, 1) if "k" in equation else (3,))
    assert relative_error(found.ravel(), exact) < 20 * EPS


def test_strided_and_conjugated_vectors_are_right(array):
    random = np.random.default_rng(0)
    values = (random.random(2 * LONG, "float32") + 1j * random.random(2 * LONG, "float32")).astype("complex64")
    lhs, rhs = array(values)[::2], array(values[:LONG])
    exact = np.dot(values[::2].astype("complex128"), values[:LONG].conj().astype("complex128"))
    magnitude = float(np.dot(abs(values[::2]).astype("float64"), abs(values[:LONG]).astype("float64")))
    assert abs(complex(einsum("i,i->", lhs, rhs, conj=1)) - exact) < 1000 * EPS * magnitude


def test_the_bits_are_the_same_in_each_call_and_thread(array):
    random = np.random.default_rng(0)
    lhs, rhs = (array(random.random(LONG, "float32")) for _ in range(2))
    with ThreadPoolExecutor(1) as pool:
        found = [einsum("i,i->", lhs, rhs) for _ in range(3)] + [pool.submit(einsum, "i,i->", lhs, rhs).result()]
    assert len(set(map(float, found))) == 1


def test_an_infinity_reaches_the_sum(array):
    terms = np.ones(LONG, "float32")
    terms[-1] = np.inf
    assert float(einsum("i,i->", array(terms), array(np.ones(LONG, "float32")))) == np.inf


def test_gradients_of_a_long_product_are_the_other_operands():
    torch = pytest.importorskip("torch")
    lhs, rhs = torch.rand(LONG, requires_grad=True), torch.rand(LONG)
    einsum("i,i->", lhs, rhs).backward()
    assert torch.equal(lhs.grad, rhs)
