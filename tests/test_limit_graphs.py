"""Memory limits in graphs of torch: one operator, with gradients of its own."""

from __future__ import annotations

from importlib import import_module

import peaks
import pytest

import einsumx
from einsumx import einsum

torch = pytest.importorskip("torch")

CHAIN = "ij,jk,kl->il"
LIMIT = 90_000


def tensors(*shapes, dtype="float64"):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=getattr(torch, dtype), requires_grad=True) for shape in shapes]


def limited(*operands, equation=CHAIN, limit=LIMIT, **keywords):
    return einsum(equation, *operands, memory_limit=limit, **keywords)


def compiled(function=limited):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager")


@pytest.fixture
def chain():
    return tensors((60, 61), (61, 62), (62, 63))


def assert_same_gradients(actual, expected, operands):
    torch.testing.assert_close(actual, expected)
    weights = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, operands, weights), torch.autograd.grad(expected, operands, weights)
    )


def test_a_graph_has_one_node_for_all_blocks_and_those_of_the_gradients(chain):
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return import_module("functorch.compile").make_boxed_func(graph)

    torch._dynamo.reset()
    aot = import_module("torch._dynamo.backends.common").aot_autograd(fw_compiler=backend, bw_compiler=backend)
    result = torch.compile(limited, fullgraph=True, backend=aot)(*chain)
    assert_same_gradients(result, torch.einsum(CHAIN, *chain), chain)
    counts = [
        sum(node.target is torch.ops.einsumx.within_limit.default for node in each.graph.nodes) for each in graphs
    ]
    assert counts == [1, 3]


def test_the_operator_keeps_the_limit():
    operands = [each.detach() for each in tensors((300, 301), (301, 302), (302, 303))]
    function = compiled(lambda *operands: limited(*operands, limit=1_200_000))
    for _ in range(2):  # the first time, what is kept for later runs is made
        result, taken = peaks.torch_peak(lambda: function(*operands))
    assert 300 * 303 * 8 <= taken <= 1_200_000
    torch.testing.assert_close(result, torch.einsum(CHAIN, *operands))


@pytest.mark.long
def test_each_size_has_a_graph_of_its_own(chain):
    function = compiled()
    for size in (60, 50, 40):
        operands = [chain[0][:size].detach(), *chain[1:]]
        torch.testing.assert_close(function(*operands), torch.einsum(CHAIN, *operands))


def test_diagonals_casts_and_conjugates_have_gradients():
    square, matrix = tensors((20, 20, 21), (21, 22))
    function = compiled(lambda *operands: limited(*operands, equation="iij,jk->ik", limit=100_000))
    assert_same_gradients(function(square, matrix), torch.einsum("iij,jk->ik", square, matrix), [square, matrix])
    (first,) = tensors((40, 21), dtype="complex128")
    function = compiled(lambda *operands: limited(*operands, equation="ij,jk->k", limit=200_000, conj=0))
    expected = torch.einsum("ij,jk->k", first.conj(), matrix.to(first.dtype))
    assert_same_gradients(function(first, matrix), expected, [first, matrix])


def test_a_limit_that_is_too_small_is_an_error_when_the_graph_runs(chain):
    with pytest.raises(einsumx.MemoryLimitError, match="the smallest memory_limit= is "):
        compiled(lambda *operands: limited(*operands, limit=1_000))(*chain)


def test_a_batch_in_a_semiring_or_along_a_path_is_an_error(chain):
    operands = [each.detach() for each in chain]
    batch = torch.stack([operands[0], 2 * operands[0]])

    def longest(first):
        return einsumx.semirings.max_plus.einsum(CHAIN, first, *operands[1:], memory_limit=LIMIT)

    def greedy(first):
        return limited(first, *operands[1:], optimize="greedy")

    for call in (longest, greedy):
        with pytest.raises(einsumx.BackendError, match="not for semirings, nor for a path by optimize="):
            torch.func.vmap(call)(batch)


def test_batches_and_exported_programs(chain):
    operands = [each.detach() for each in chain]
    batch = torch.stack([operands[0], 2 * operands[0]])
    found = torch.func.vmap(limited, (0, None, None))(batch, *operands[1:])
    torch.testing.assert_close(found, torch.stack([torch.einsum(CHAIN, each, *operands[1:]) for each in batch]))

    class Module(torch.nn.Module):
        def forward(self, *arrays):
            return limited(*arrays)

    exported = torch.export.export(Module(), tuple(operands)).module()
    torch.testing.assert_close(exported(*operands), torch.einsum(CHAIN, *operands))
