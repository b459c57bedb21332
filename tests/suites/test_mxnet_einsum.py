"""The cases of MXNet's own test of ``mx.np.einsum`` (``test_np_einsum``), which is einsumx by ``replace_einsum``.

The equations, shapes, dtypes and tolerances are that test's; values and gradients are compared with NumPy's einsum.
Where its int32 operands, drawn from (-0.3, 0.3), are all zero, here they are not. Blocks are run as they are and
hybridized.
"""

import math
from importlib.util import find_spec

import numpy as np
import pytest

import einsumx.mxnet

if not find_spec("mxnet"):
    pytest.skip("MXNet is not installed", allow_module_level=True)

mx = einsumx.mxnet.load()

CASES = [
    # equation, the same without an ellipsis, shapes
    ("ii", "ii->", [(5, 5)]),
    ("ii->i", "ii->i", [(5, 5)]),
    ("ii->i", "ii->i", [(3, 3)]),
    ("ij->i", "ij->i", [(5, 5)]),
    ("...j->...", "ij->i", [(5, 5)]),
    ("ji", "ji->ij", [(2, 3)]),
    ("ij->ji", "ij->ji", [(2, 3)]),
    ("ij, jk", "ij,jk->ik", [(5, 0), (0, 4)]),
    ("i, i", "i,i->", [(5,), (5,)]),
    ("ij, j", "ij,j->i", [(5, 5), (5,)]),
    ("...j, j", "ij,j->i", [(5, 5), (5,)]),
    ("..., ...", ",ij->ij", [(), (2, 3)]),
    (", ij", ",ij->ij", [(), (2, 3)]),
    ("i, j", "i,j->ij", [(2,), (5,)]),
    ("ijk, jil->kl", "ijk,jil->kl", [(3, 4, 5), (4, 3, 2)]),
    ("ijk, jil->kl", "ijk,jil->kl", [(33, 44, 55), (44, 33, 22)]),
    ("ki, jk->ij", "ki,jk->ij", [(3, 2), (4, 3)]),
    ("ki, ...k->i...", "ki,jk->ij", [(3, 2), (4, 3)]),
    ("k..., jk", "ki,jk->ij", [(3, 2), (4, 3)]),
    ("ij,jk", "ij,jk->ik", [(2, 5), (5, 2)]),
    ("ij,jk,kl", "ij,jk,kl->il", [(2, 2), (2, 5), (5, 2)]),
    ("ij,jk,kl->il", "ij,jk,kl->il", [(2, 2), (2, 5), (5, 2)]),
    ("ij,jk,kl->il", "ij,jk,kl->il", [(67, 89), (89, 55), (55, 99)]),
    ("ij,jk,kl->il", "ij,jk,kl->il", [(64, 200), (200, 64), (64, 64)]),
    ("ij,jk,kl, lm->im", "ij,jk,kl,lm->im", [(12, 54), (54, 32), (32, 45), (45, 67)]),
    ("ij, ij -> i", "ij,ij->i", [(1, 4), (2, 4)]),
    ("...ij, ...jk -> ...ik", "ij,jk->ik", [(1, 4), (4, 2)]),
    ("...ij, ...jk -> ...ik", "ij,jk->ik", [(2, 4), (4, 2)]),
    ("...ij, ...jk -> ...ik", "abij,abjk->abik", [(3, 2, 1, 4), (3, 2, 4, 2)]),
    ("...ij, ...ik -> ...jk", "abij,abik->abjk", [(1, 1, 1, 4), (1, 1, 1, 3)]),
    ("...ij, ...jc -> ...ic", "abij,abjc->abic", [(1, 1, 5, 3), (1, 1, 3, 2)]),
    ("...ij, ...jc -> ...ic", "abij,abjc->abic", [(1, 2, 5, 4), (1, 2, 4, 2)]),
    ("...ij, ...jc -> ...ic", "abij,abjc->abic", [(2, 1, 5, 4), (2, 1, 4, 2)]),
    ("ea,fb,abcd,gc,hd->efgh", "ea,fb,abcd,gc,hd->efgh", [(5, 5), (5, 5), (5, 5, 5, 5), (5, 5), (5, 5)]),
]
DTYPES = ["float16", "float32", "float64", "int32"]
TOLERANCES = {"float16": (1e-2, 1e-4)}  # relative, absolute; for every other dtype:
TOLERANCE = (1e-3, 1e-5)

FIRST = mx.__version__.startswith("1.")


class Einsum(mx.gluon.HybridBlock):
    """A block of one einsum, as MXNet's users write it; hybridized, MXNet 1 calls ``hybrid_forward`` with symbols."""

    def __init__(self, equation, optimize):
        super().__init__()
        self.equation, self.optimize = equation, optimize

    if FIRST:

        def hybrid_forward(self, F, *operands):  # noqa: N803
            return F.np.einsum(self.equation, *operands, optimize=self.optimize)

    else:

        def forward(self, *operands):
            return mx.np.einsum(self.equation, *operands, optimize=self.optimize)


def gradient(equation, arrays, place):
    """What the sum of all elements of the result changes by with one operand, by NumPy's einsum."""
    terms = equation.partition("->")[0].split(",")
    sizes = {}
    for term, values in zip(terms, arrays):
        for label, size in zip(term, values.shape):
            sizes[label] = size if size != 1 else sizes.get(label, 1)
    term, shape = terms[place], arrays[place].shape
    labels = "".join(dict.fromkeys(term))
    others = [(terms[other], values) for other, values in enumerate(arrays) if other != place]
    others += [(label, np.ones(sizes[label])) for label in labels]
    found = np.einsum(f"{','.join(t for t, _ in others)}->{labels}", *(v for _, v in others), optimize=True)
    broadcast = tuple(axis for axis, size in enumerate(shape) if size == 1)
    if len(labels) == len(term):
        return np.sum(found, axis=broadcast, keepdims=True)
    assert term == "ii"
    return np.diag(found)


@pytest.fixture(autouse=True)
def replaced():
    with mx.util.np_shape(True), mx.util.np_array(True), einsumx.mxnet.replace_einsum():
        yield


@pytest.mark.parametrize("hybridized", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("equation", "plain", "shapes"), CASES, ids=[f"{case[0]} {case[2]}" for case in CASES])
def test_values_and_gradients(equation, plain, shapes, dtype, optimize, hybridized):
    random = np.random.default_rng(math.prod(map(sum, shapes)))
    if dtype == "int32":
        values = [random.integers(-3, 4, shape).astype(dtype) for shape in shapes]
    else:
        values = [random.uniform(-1, 1, shape).astype(dtype) for shape in shapes]
    exact = [array.astype("int64" if dtype == "int32" else "float64") for array in values]
    relative, absolute = TOLERANCES.get(dtype, TOLERANCE)
    block = Einsum(equation, optimize)
    block.hybridize(hybridized)
    expected = np.einsum(equation, *exact, optimize=len(exact) > 2)
    gradients = [gradient(plain, exact, place) for place in range(len(exact))]
    for _ in range(2):  # hybridized: the trace, and what was traced
        operands = [mx.np.array(array, dtype=dtype) for array in values]
        for operand in operands:
            operand.attach_grad()
        with mx.autograd.record():
            result = block(*operands)
        result.backward()
        assert (result.shape, result.dtype) == (expected.shape, dtype)
        np.testing.assert_allclose(result.asnumpy(), expected, relative, absolute)
        for operand, wanted in zip(operands, gradients):
            assert operand.grad.shape == wanted.shape
            np.testing.assert_allclose(operand.grad.asnumpy(), wanted, relative, absolute)


def test_the_expected_gradients_agree_with_some_worked_out_by_hand():
    first, second = np.array([[1.0, 2, 3, 4]]), np.arange(8.0).reshape(2, 4)
    assert gradient("ij,ij->i", [first, second], 0).tolist() == [[4, 6, 8, 10]]
    assert gradient("ij,ij->i", [first, second], 1).tolist() == [[1, 2, 3, 4], [1, 2, 3, 4]]
    assert gradient("ii->", [np.ones((2, 2))], 0).tolist() == [[1, 0], [0, 1]]
