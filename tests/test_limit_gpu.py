"""Operands on the host, computed on a GPU under a memory limit, by ``nox -s gpu``: the result, and its memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from stored import Stored

import einsumx
from einsumx import MemoryLimit
from einsumx.adapters.registry import get_backend
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.host.free_memory import is_out_of_memory

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
CASES = {
    "ij,jk->ik": [(400, 300), (300, 500)],
    "ij,ij->": [(4000, 3000), (4000, 3000)],
    "bij,bjk->bik": [(12, 140, 120), (12, 120, 100)],
    "ij,jk,kl->il": [(100, 90), (90, 80), (80, 100)],
}
ROUNDING = 64 * 512
"""Bytes that allocators, which give out memory in steps of 512 bytes, have beyond what arrays of a plan take."""


def torch_peak(run: Callable[[], Any]) -> tuple[Any, int]:
    cuda = import_module("torch").cuda
    cuda.synchronize()
    requested = "requested_bytes.all"  # of which the allocator gives out more
    before = cuda.memory_stats()[f"{requested}.current"]
    cuda.reset_peak_memory_stats()
    found = run()
    cuda.synchronize()
    return found, cuda.memory_stats()[f"{requested}.peak"] - before


def cupy_peak(run: Callable[[], Any]) -> tuple[Any, int]:
    cuda = import_module("cupy").cuda

    class Hook(cuda.MemoryHook):  # type: ignore[misc]  # CuPy has no types
        name = "peak"
        now = peak = 0

        def malloc_postprocess(self, **given: Any) -> None:
            self.now += given["mem_size"]
            self.peak = max(self.peak, self.now)

        def free_postprocess(self, **given: Any) -> None:
            self.now -= given["mem_size"]

    with Hook() as hook:
        found = run()
        cuda.Device(0).synchronize()
    return found, hook.peak


PEAKS = {"torch": torch_peak, "cupy": cupy_peak}


@pytest.fixture(params=sorted(PEAKS))
def framework(request: pytest.FixtureRequest) -> Any:
    """A framework that sees a GPU."""
    found = pytest.importorskip(request.param)
    try:
        count = found.cuda.device_count() if request.param == "torch" else found.cuda.runtime.getDeviceCount()
    except RuntimeError as error:
        pytest.skip(f"{request.param} finds no GPU: {error}")
    if not count:
        pytest.skip(f"{request.param} finds no GPU")
    return get_backend(request.param)


@pytest.mark.parametrize("has_out", [False, True])
@pytest.mark.parametrize("equation", CASES)
def test_host_operands_are_computed_on_a_gpu_within_the_limit(framework: Any, equation: str, has_out: bool) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in CASES[equation]]
    expected = expect(equation, *arrays)
    whole = einsumx.plan(equation, *CASES[equation], dtypes="float32").peak_bytes
    out = np.full(expected.values.shape, np.nan, "float32") if has_out else None
    limit = whole // 2

    def run() -> Any:
        return einsumx.einsum(
            equation, *arrays, backend=framework.name, memory_limit=MemoryLimit(limit, device=DEVICE), out=out
        )

    run()  # so that the libraries have the workspaces that they keep
    plan = einsumx.plan(
        equation, *arrays, backend=framework.name, memory_limit=MemoryLimit(limit, device=DEVICE), out=out
    )
    found, peak = PEAKS[framework.name](run)
    assert judge(found if has_out else framework.to_numpy(found), expected)
    assert plan.blocking.order
    assert has_out or framework.device(found) == DEVICE
    assert peak <= plan.peak_bytes + ROUNDING
    assert plan.peak_bytes <= limit


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bind,bjnd->bnij", [(8, 60, 8, 40), (8, 50, 8, 40)]),
        ("ji,kj->ik", [(300, 400), (500, 300)]),
        ("abij,abjk->abik", [(6, 8, 60, 40), (6, 8, 40, 50)]),
    ],
)
@pytest.mark.parametrize("gap", [0, 3])
def test_operands_on_a_gpu_in_any_layout_are_computed_within_the_limit(
    framework: Any, equation: str, shapes: list[tuple[int, ...]], gap: int
) -> None:
    rng = np.random.default_rng(0)
    hosts = [rng.standard_normal((*shape[:-1], shape[-1] + gap)).astype("float32") for shape in shapes]
    arrays = [framework.from_numpy(host, DEVICE)[..., : host.shape[-1] - gap] for host in hosts]
    expected = expect(equation, *[host[..., : host.shape[-1] - gap] for host in hosts])
    limit = 2 * expected.values.nbytes
    einsumx.einsum(equation, *arrays, memory_limit=limit)
    plan = einsumx.plan(equation, *arrays, memory_limit=limit)
    found, peak = PEAKS[framework.name](lambda: einsumx.einsum(equation, *arrays, memory_limit=limit))
    assert judge(framework.to_numpy(found), expected)
    assert peak <= plan.peak_bytes + ROUNDING
    assert plan.peak_bytes <= limit


def test_the_next_upload_leaves_a_freed_result_to_the_kernels_that_read_it(framework: Any) -> None:
    host = np.arange(12_000_000, dtype="float32").reshape(3000, 4000)
    options = {"backend": framework.name, "memory_limit": MemoryLimit("400MB", device=DEVICE)}
    result = einsumx.einsum("ij->ji", host, **options)
    if framework.name == "torch":
        framework.xp.cuda._sleep(200_000_000)  # cycles
    total = result + 1
    del result
    einsumx.einsum("ij->ji", host * 0, **options)
    np.testing.assert_array_equal(framework.to_numpy(total), host.T + 1)


@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS, but there was no current CUDA context")
def test_an_executor_on_a_stream_of_the_users_own_gives_the_plain_sum(framework: Any) -> None:
    rng = np.random.default_rng(0)
    hosts = [rng.standard_normal(shape).astype("float32") for shape in ((900, 800), (800, 700))]
    stream = framework.xp.cuda.Stream()
    on_stream = framework.xp.cuda.stream(stream) if framework.name == "torch" else stream
    with ThreadPoolExecutor(2) as executor, on_stream:
        arrays = [framework.from_numpy(host, DEVICE) for host in hosts]
        found = einsumx.einsum("ij,jk->ik", *arrays, memory_limit=MemoryLimit("4MB", executor=executor))
        values = framework.to_numpy(found)
    assert judge(values, expect("ij,jk->ik", *hosts))


def test_a_block_reaches_a_gpu_through_pinned_buffers_that_are_let_go(framework: Any) -> None:
    ring = framework.blocks.ring(DEVICE)
    for array in (np.arange(9_000_000.0).reshape(3000, 3000).T, np.arange(60) % 7 == 0, np.array(2j)):
        np.testing.assert_array_equal(framework.to_numpy(ring(array)), array)
    buffers = list(ring._buffers)
    assert len(buffers) > 1
    ring.close()
    for buffer in buffers:  # what is pinned is not pinned a second time
        ring._uploads.register(buffer.ctypes.data, buffer.nbytes)
        ring._uploads.unregister(buffer.ctypes.data)


def test_blocks_that_are_read_ahead_are_right_on_a_stream_of_the_users_own(framework: Any) -> None:
    rng = np.random.default_rng(0)
    rows, columns = (
        rng.standard_normal((20_000, 300)).astype("float32"),
        rng.standard_normal((300, 200)).astype("float32"),
    )
    arrays = [Stored(rows), Stored(columns)]
    out = np.full((20_000, 200), np.nan, "float32")
    stream = framework.xp.cuda.Stream()
    with framework.xp.cuda.stream(stream) if framework.name == "torch" else stream:
        einsumx.einsum(
            "ij,jk->ik", *arrays, backend=framework.name, memory_limit=MemoryLimit("5MB", device=DEVICE), out=out
        )
    assert judge(out, expect("ij,jk->ik", rows, arrays[1].array))


def test_several_gpus_give_the_plain_sum(framework: Any) -> None:
    cuda = framework.xp.cuda
    count = cuda.device_count() if framework.name == "torch" else cuda.runtime.getDeviceCount()
    if count < 2:
        pytest.skip(f"{framework.name} finds one GPU alone")
    devices = [f"cuda:{number}" for number in range(count)]
    for equation, shapes in CASES.items():
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
        limit = 2 * einsumx.plan(equation, *shapes, dtypes="float32").peak_bytes
        found = einsumx.einsum(
            equation, *arrays, backend=framework.name, memory_limit=MemoryLimit(limit, devices=devices)
        )
        assert judge(framework.to_numpy(found), expect(equation, *arrays))
        assert framework.device(found) == devices[0]


def test_more_than_there_is_on_a_gpu_is_said_to_be_out_of_memory(framework: Any) -> None:
    with pytest.raises(Exception, match="memory") as caught:
        framework.blocks.empty((1 << 50,), "uint8", DEVICE)
    assert is_out_of_memory(caught.value)
