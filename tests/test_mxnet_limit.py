"""Memory limits on MXNet: arrays of more axes than it slices, in blocks."""

import random

import numpy as np
import pytest
from mxnet_under_test import mx
from stored import smallest

from einsumx import einsum
from einsumx.backends.mxnet import ADAPTER
from einsumx.conformance.kit.oracle import expect, expect_gradient, judge

EQUATIONS = {
    "six axes from a sum": ("abcg,gdef->adbecf", [(2, 2, 2, 3), (3, 2, 2, 2)]),
    "seven axes": ("abcd,efg->gafbecd", [(2, 2, 2, 2), (2, 3, 2)]),
    "seven axes and a batch": ("zabc,zdef->zfaebdc", [(2, 2, 2, 2), (2, 2, 2, 2)]),
    "eight axes": ("abcd,efgh->abcdefgh", [(2, 2, 2, 2), (2, 2, 2, 2)]),
    "seven axes that are summed": ("abcdefg,abcdefg->", [(2, 2, 1, 2, 2, 2, 2)] * 2),
    "six axes and a diagonal": ("aabcde,e->cabd", [(2, 2, 2, 2, 2, 2), (2,)]),
    "broadcast": ("abcdef,ghabcd->hgfedc", [(1, 2, 2, 1, 2, 2), (2, 2, 2, 1, 2, 2)]),
    "no elements": ("abc,def->fadbec", [(2, 0, 2), (2, 1, 3)]),
}


def numbers(shapes, dtype):
    rng = np.random.default_rng(0)
    return [rng.integers(-2, 3, shape).astype(dtype) for shape in shapes]


def array(values):
    return ADAPTER.from_numpy(values)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "bool"])
def test_an_out_of_many_axes_is_written_in_blocks(dtype):
    equation, shapes = EQUATIONS["broadcast"]
    hosts = numbers(shapes, dtype)
    expected = expect(equation, *hosts)
    operands = [array(host) for host in hosts]

    def call(limit):
        out = ADAPTER.blocks.empty(expected.values.shape, dtype, "cpu")
        return einsum(equation, *operands, out=out, memory_limit=limit)

    limit = smallest(call)
    for more in (0, limit // 3):
        found = call(limit + more)
        assert judge(ADAPTER.to_numpy(found), expected)


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS.values(), ids=EQUATIONS)
@pytest.mark.parametrize("request_", ["write", "add"])
def test_results_of_many_axes_and_their_gradients_are_computed_in_blocks(equation, shapes, request_):
    hosts = numbers(shapes, "float32")
    operands = [array(host) for host in hosts]
    with mx.util.np_shape(True):
        for operand in operands:
            operand.attach_grad(request_)
            operand.grad[()] = 1

    def call(limit):
        with mx.autograd.record():
            return einsum(equation, *operands, memory_limit=limit)

    result = call(smallest(call))
    assert judge(ADAPTER.to_numpy(result), expect(equation, *hosts))
    (cotangent,) = numbers([result.shape], "float32")
    with mx.util.np_shape(True):
        result.backward(array(cotangent))
    for number, operand in enumerate(operands):
        expected = expect_gradient(number, cotangent, equation, *hosts)
        assert judge(ADAPTER.to_numpy(operand.grad) - (request_ == "add"), expected)


@pytest.mark.parametrize(("rank", "dtype"), [(1, "float64"), (4, "float16"), (6, "int8"), (7, "bool"), (12, "int64")])
def test_a_part_of_an_array_of_any_rank_is_read_and_written(rank, dtype):
    draw = random.Random(f"{rank} {dtype}")
    for _ in range(4):
        shape = tuple(draw.choice([1, 2, 2, 3] if rank < 8 else [1, 2, 2]) for _ in range(rank))
        ends = [sorted(draw.sample(range(size + 1), 2)) if draw.random() < 0.7 else (0, size) for size in shape]
        box = tuple(slice(*each) for each in ends)
        (host,) = numbers([shape], dtype)
        whole = array(host)
        np.testing.assert_array_equal(ADAPTER.to_numpy(ADAPTER.blocks.part(whole, box)), host[box])
        (block,) = numbers([host[box].shape], "int8" if dtype == "bool" else dtype)
        written = host.copy()
        written[box] = block
        assert ADAPTER.blocks.put(whole, box, array(block.astype(dtype))) is whole
        np.testing.assert_array_equal(ADAPTER.to_numpy(whole), written)


@pytest.mark.parametrize("box", [(slice(0, 0), slice(0, 3)), (slice(1, 2), slice(3, 3))])
def test_a_part_without_elements_is_read_and_written(box):
    whole = array(np.ones((2, 3), "float32"))
    part = ADAPTER.blocks.part(whole, box)
    assert part.shape == np.ones((2, 3))[box].shape
    np.testing.assert_array_equal(ADAPTER.to_numpy(ADAPTER.blocks.put(whole, box, part)), np.ones((2, 3)))


@pytest.mark.parametrize("rank", [1, 2, 5, 8])
def test_an_array_of_any_rank_becomes_the_diagonal_of_another(rank):
    (host,) = numbers([(2,) * (rank - 1) + (3,)], "float32")
    host[..., 1] = np.nan
    expected = np.zeros((*host.shape, 3), "float32")
    for place in range(3):
        expected[..., place, place] = host[..., place]
    np.testing.assert_array_equal(ADAPTER.to_numpy(ADAPTER.gradients.embed_diagonal(array(host))), expected)
