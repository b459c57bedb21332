"""What takes PyTorch long: what it compiles, and processes of their own for its settings."""

import pytest
from processes import printed

import einsumx
from einsumx import MemoryLimitError, einsum

torch = pytest.importorskip("torch", "2.9")

import einsumx.backends.torch.precision  # noqa: E402

COMPILED_FIRST = """
import sys, warnings
warnings.simplefilter("error")
import einsumx
if sys.argv[1:]:
    einsumx.plan("bnid,bnjd->bnij", (2, 3, 4, 5), (2, 3, 6, 5), backend="torch", device="cuda", dtypes="bfloat16")
assert "torch" not in sys.modules
import torch
def function(lhs, rhs):
    return einsumx.einsum("ij,jk->ik", lhs, rhs)
lhs, rhs = torch.rand(3, 4, requires_grad=True), torch.rand(4, 5)
result = torch.compile(function, fullgraph=True, backend="eager")(lhs, rhs)
torch.testing.assert_close(result, lhs @ rhs)
result.sum().backward()
torch.testing.assert_close(lhs.grad, rhs.sum(1).expand(3, 4))
"""


@pytest.mark.parametrize("before", [(), ("a plan",)])
def test_the_first_call_may_be_a_compiled_one_also_where_torch_came_after_a_plan_for_it(before):
    printed(COMPILED_FIRST, *before)


@pytest.mark.filterwarnings("ignore")  # of what torch.compile meets outside of the graph
def test_a_compiled_function_keeps_the_limit_and_has_gradients_under_it():
    x, y = (
        torch.randn(4, 5, dtype=torch.float64, requires_grad=True),
        torch.randn(5, 6, dtype=torch.float64, requires_grad=True),
    )

    @torch.compile(backend="eager")
    def function(x, y, limit):
        return 2 * einsum("ij,jk->ik", x + 1, y, memory_limit=limit)

    found, expected = function(x, y, 3000), 2 * torch.einsum("ij,jk->ik", x + 1, y)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), (x, y)), torch.autograd.grad(expected.sum(), (x, y)))
    with pytest.raises(MemoryLimitError, match="smallest memory_limit="):
        function(x, y, 1)


def test_the_values_are_those_of_torchs_own_function():
    names = einsumx.backends.torch.precision.NAMES
    code = """import sys, torch
for name in sys.argv[1:]:
    torch.set_float32_matmul_precision(name)
    print(torch.backends.mkldnn.matmul.fp32_precision, torch.backends.cuda.matmul.fp32_precision)
"""
    levels = ["highest", "high", "medium"]
    assert printed(code, *levels).split() == [
        names[level][library] for level in levels for library in ("mkldnn", "cuda")
    ]
