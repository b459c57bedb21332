"""What PyTorch does on a GPU that no fake shows, by ``nox -s gpu``: waits, captures in graphs, memory, threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import einsumx
from einsumx.adapters.registry import get_backend
from einsumx.cli.rate_measurement import measure_rates

torch: Any = pytest.importorskip("torch")

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")]

EQUATIONS = {
    "ij,jk->ik": [(30, 40), (40, 50)],
    "bind,bjnd->bnij": [(4, 50, 8, 32), (4, 60, 8, 32)],
    "bnid,bnjd->bnij": [(4, 8, 50, 32), (4, 8, 60, 32)],
    "ij,jk,kl->il": [(30, 40), (40, 50), (50, 60)],
    "ij,ij->i": [(30, 40), (30, 40)],
    "i,j->ij": [(30,), (40,)],
    "ii->i": [(30, 30)],
    "ij->j": [(30, 40)],
}
DTYPES = ("float32", "float16", "complex64", "int64")


@pytest.fixture
def reset_debug_mode() -> Iterator[None]:
    """Afterwards, waiting for the device is no error any more."""
    yield
    torch.cuda.set_sync_debug_mode("default")


def arrays_of(equation: str, dtype: str) -> list[Any]:
    torch.manual_seed(0)
    return [torch.randint(0, 5, shape, device="cuda").to(getattr(torch, dtype)) for shape in EQUATIONS[equation]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.usefixtures("reset_debug_mode")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_no_contraction_waits_for_the_device(equation: str, dtype: str) -> None:
    arrays = arrays_of(equation, dtype)
    einsumx.einsum(equation, *arrays)
    out = torch.zeros_like(einsumx.einsum(equation, *arrays))
    torch.cuda.set_sync_debug_mode("error")
    einsumx.einsum(equation, *arrays)
    einsumx.addeinsum(out, equation, *arrays, alpha=2, beta=3, out=out)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # of a view
def test_contractions_are_captured_in_a_graph(equation: str, dtype: str) -> None:
    arrays = arrays_of(equation, dtype)
    expected = einsumx.einsum(equation, *arrays)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = einsumx.einsum(equation, *arrays)
    graph.replay()
    torch.testing.assert_close(result, expected)


def test_large_products_of_integers_are_exact_in_little_memory() -> None:
    bounds = np.iinfo("int64")
    rng = np.random.default_rng(0)
    hosts = [rng.integers(bounds.min, bounds.max, (1000, 1000)) for _ in range(2)]
    arrays = [torch.from_numpy(host).cuda() for host in hosts]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = einsumx.einsum("ij,jk->ik", *arrays)
    plan = einsumx.plan("ij,jk->ik", *arrays)
    assert torch.cuda.max_memory_allocated() - before <= plan.peak_bytes
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found.cpu().numpy(), hosts[0] @ hosts[1])


def test_conjugated_operands_are_read_ahead_after_they_are_computed() -> None:
    host = np.random.default_rng(0).standard_normal((2000, 2000, 2)).astype("float32").view("complex64")[..., 0]
    array = torch.from_numpy(host).cuda()
    torch.cuda._sleep(200_000_000)  # cycles
    doubled = (array * 2).conj()
    found = einsumx.einsum("ij,jk->ik", doubled, array, memory_limit="60MB")
    torch.testing.assert_close(found, (array * 2).conj() @ array, rtol=1e-3, atol=1e-1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore:TensorFloat32 tensor cores")
def test_a_graph_that_inductor_compiles_is_right() -> None:
    torch._dynamo.reset()
    arrays = arrays_of("bnid,bnjd->bnij", "float32")
    function = torch.compile(lambda lhs, rhs: einsumx.einsum("bnid,bnjd->bnij", lhs, rhs), fullgraph=True)
    torch.testing.assert_close(function(*arrays), arrays[0] @ arrays[1].mT)


def test_measured_rates_agree_with_the_devices_own_clock() -> None:
    rates = measure_rates(get_backend("torch"), "cuda:0")
    array = torch.ones(1 << 28, device="cuda")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    array.clone()
    start.record()
    array.clone()
    end.record()
    torch.cuda.synchronize()
    by_events = 2 * array.nbytes / (start.elapsed_time(end) / 1e3)
    assert by_events / 2 < rates["copy"] < 2 * by_events
