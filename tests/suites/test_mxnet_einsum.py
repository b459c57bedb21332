"""The cases of MXNet's own test of ``mx.np.einsum`` (``test_np_einsum``), which is einsumx by ``patched``.

The equations and shapes are that test's, without those that ask the same twice; values and gradients are judged as
those of the conformance suite. Large sizes are smaller here, and int32 operands, there drawn from (-0.3, 0.3), are not
all zero. Blocks are run as they are and hybridized.
"""

import math
from importlib.util import find_spec

import numpy as np
import pytest

import einsumx.mxnet
from einsumx.conformance.oracle import expect, expect_gradient, judge

if not find_spec("mxnet"):
    pytest.skip("MXNet is not installed", allow_module_level=True)

mx = einsumx.mxnet.load()

CASES = [
    ("ii", [(5, 5)]),
    ("ii->i", [(5, 5)]),
    ("ij->i", [(5, 5)]),
    ("...j->...", [(5, 5)]),
    ("ji", [(2, 3)]),
    ("ij->ji", [(2, 3)]),
    ("ij, jk", [(5, 0), (0, 4)]),
    ("i, i", [(5,), (5,)]),
    ("...j, j", [(5, 5), (5,)]),
    (", ij", [(), (2, 3)]),
    ("i, j", [(2,), (5,)]),
    ("ijk, jil->kl", [(3, 4, 5), (4, 3, 2)]),
    ("ki, ...k->i...", [(3, 2), (4, 3)]),
    ("k..., jk", [(3, 2), (4, 3)]),
    ("ij,jk", [(2, 5), (5, 2)]),
    ("ij,jk,kl->il", [(2, 2), (2, 5), (5, 2)]),
    ("ij,jk,kl->il", [(16, 40), (40, 16), (16, 16)]),
    ("ij,jk,kl, lm->im", [(6, 14), (14, 8), (8, 12), (12, 9)]),
    ("ij, ij -> i", [(1, 4), (2, 4)]),
    ("...ij, ...jk -> ...ik", [(1, 4), (4, 2)]),
    ("...ij, ...jk -> ...ik", [(3, 2, 1, 4), (3, 2, 4, 2)]),
    ("...ij, ...ik -> ...jk", [(1, 1, 1, 4), (1, 1, 1, 3)]),
    ("...ij, ...jc -> ...ic", [(1, 2, 5, 4), (1, 2, 4, 2)]),
    ("ea,fb,abcd,gc,hd->efgh", [(3, 3), (3, 3), (3, 3, 3, 3), (3, 3), (3, 3)]),
]
DTYPES = ["float16", "float32", "int32"]

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


@pytest.fixture(autouse=True)
def replaced():
    with mx.util.np_shape(True), mx.util.np_array(True), einsumx.patched("mxnet"):
        yield


@pytest.mark.parametrize(("hybridized", "optimize"), [(False, True), (True, False)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("equation", "shapes"), CASES, ids=str)
def test_values_and_gradients_are_right(equation, shapes, dtype, optimize, hybridized):
    random = np.random.default_rng(math.prod(map(sum, shapes)))
    if dtype == "int32":
        values = [random.integers(-3, 4, shape).astype(dtype) for shape in shapes]
    else:
        values = [random.uniform(-1, 1, shape).astype(dtype) for shape in shapes]
    # Gradients of integers are judged as exact numbers.
    judged_in = "float64" if dtype == "int32" else dtype
    numbers = [array.astype(judged_in) for array in values]
    block = Einsum(equation, optimize)
    block.hybridize(hybridized)
    expected = expect(equation, *values)
    ones = np.ones(expected.values.shape, judged_in)
    gradients = [expect_gradient(place, ones, equation, *numbers) for place in range(len(numbers))]
    for _ in range(2):  # hybridized: the trace, and what was traced
        operands = [mx.np.array(array, dtype=dtype) for array in values]
        for operand in operands:
            operand.attach_grad()
        with mx.autograd.record():
            result = block(*operands)
        result.backward()
        verdict = judge(result.asnumpy(), expected)
        assert verdict, verdict.wrong
        for operand, wanted in zip(operands, gradients):
            verdict = judge(operand.grad.asnumpy().astype(judged_in), wanted)
            assert verdict, verdict.wrong
