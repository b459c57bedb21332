"""The pinned buffers through which blocks reach a CUDA device, on fakes of CUDA's streams and events.

The fakes show that no buffer is written to while something is copied from it, and that none stays behind. They say
nothing of CUDA: ``test_limit_gpu.py`` is what runs there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stored import EQUATION, LIMIT, Stored, operands

import einsumx
from einsumx import MemoryLimit
from einsumx.adapters.registry import get_backend
from einsumx.adapters.staging import Ring, copy_stream
from einsumx.backends.numpy import kernels


class FakeCuda:
    """A stream whose copies are made as late as CUDA may make them: when an event after them is waited for."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.pinned: dict[int, int] = {}
        self.queue: list[tuple[Any, Any, Any]] = []
        self.most = self.copies = self.done = 0
        self.fails_at = fails_at
        self.lock = threading.Lock()

    def register(self, address: int, nbytes: int, _: int = 0) -> int:
        assert address not in self.pinned
        assert address % 4096 == 0
        self.pinned[address] = nbytes
        self.most = max(self.most, sum(self.pinned.values()))
        return 0

    def unregister(self, address: int) -> int:
        nbytes = self.pinned.pop(address)
        starts = [piece.ctypes.data for _, piece, _ in self.queue[self.done :]]
        assert not [start for start in starts if address <= start < address + nbytes], "something is copied from it"
        return 0

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return np.full(shape, 7).astype(dtype)

    def copy(self, target: Any, start: int, piece: Any) -> FakeEvent:
        self.copies += 1
        if self.copies == self.fails_at:
            raise RuntimeError("CUDA error: the device is gone")
        assert any(at <= piece.ctypes.data < at + nbytes for at, nbytes in self.pinned.items())
        into = target.reshape(-1).view("uint8")[start : start + piece.nbytes]
        assert into.size == piece.size
        self.queue.append((into, piece, piece.copy()))
        return FakeEvent(self, len(self.queue))

    def wait(self, until: int) -> None:
        with self.lock:
            for into, piece, as_it_was in self.queue[self.done : until]:
                assert np.array_equal(piece, as_it_was), "a buffer was written to while it was copied"
                into[:] = piece
            self.done = max(self.done, until)


class FakeEvent:
    def __init__(self, cuda: FakeCuda, at: int) -> None:
        self.cuda, self.at = cuda, at

    def synchronize(self) -> None:
        self.cuda.wait(self.at)


ARRAYS = {
    "C order": np.arange(60.0).reshape(3, 4, 5),
    "F order": np.arange(60.0).reshape(5, 4, 3).T,
    "strided": np.arange(120.0).reshape(6, 4, 5)[::-2, 1:, ::3],
    "broadcast": np.broadcast_to(np.arange(5.0), (4, 5)),
    "no axes": np.array(3.0),
    "empty": np.zeros((3, 0, 4)),
    "one row": np.arange(100.0)[None],
    "half": np.arange(60, dtype="float16").reshape(2, 30),
}


@pytest.mark.parametrize(("count", "nbytes"), [(1, 64), (3, 64), (3, 4096)])
@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_arrives_however_many_buffers_it_goes_through(name: str, count: int, nbytes: int) -> None:
    cuda, array = FakeCuda(), ARRAYS[name]
    ring = Ring(cuda, np.copyto, nbytes, count)
    for _ in range(2):
        found = ring(array)
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert np.array_equal(found, array)
    assert cuda.most <= count * nbytes
    ring.close()
    assert not cuda.pinned


@pytest.mark.parametrize("turned", [False, True])
def test_a_large_piece_is_filled_by_several_threads(turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[int] = []
    run = kernels.pool.run
    monkeypatch.setattr(kernels.pool, "run", lambda parts: (jobs.append(len(parts)), run(parts)))
    monkeypatch.setattr(kernels.pool, "get_num_threads", lambda: 3)
    array = np.arange(1.2e6).reshape(1200, 1000)
    array = array.T if turned else array
    ring = Ring(FakeCuda(), kernels.copy_into, 8 << 20)
    assert np.array_equal(ring(array), array)
    assert jobs == [12]  # four for each thread; the rest, 1.2 MB, is no work for two
    ring.close()


def test_a_ring_that_was_closed_can_be_used_again() -> None:
    cuda = FakeCuda()
    ring = Ring(cuda, np.copyto, 4096)
    assert not cuda.pinned
    ring(np.ones(10))
    assert sum(cuda.pinned.values()) == 4096  # there are no more buffers than pieces
    for start in (0, 5):
        assert np.array_equal(ring(np.arange(start, 100)), np.arange(start, 100))
        ring.close()
        ring.close()
        assert not cuda.pinned


@pytest.mark.parametrize("fails_at", [1, 2, 5])
def test_an_error_leaves_nothing_pinned(fails_at: int) -> None:
    cuda = FakeCuda(fails_at)
    ring = Ring(cuda, np.copyto, 64)
    with pytest.raises(RuntimeError, match="the device is gone"):
        ring(np.ones(1000))
    assert cuda.pinned
    ring.close()
    assert not cuda.pinned


def test_several_threads_share_a_ring() -> None:
    cuda = FakeCuda()
    ring = Ring(cuda, np.copyto, 64, 2)
    arrays = [np.full((number + 1, 50), number) for number in range(20)]
    with ThreadPoolExecutor(4) as pool:
        for array, found in zip(arrays, pool.map(ring, arrays)):
            assert np.array_equal(found, array)
    ring.close()
    assert not cuda.pinned


# -- PyTorch's part, on tensors of the CPU ------------------------------------------------------------------------


@pytest.fixture
def torch_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """PyTorch's adapter, which brings blocks to the CPU as it would to a GPU, on a fake of torch.cuda."""
    torch = pytest.importorskip("torch")
    from einsumx.backends.torch import staging

    cuda = FakeCuda()
    current: list[Any] = []

    class Into:
        """A tensor that is copied to when the stream is waited for."""

        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def copy_(self, piece: Any, *, non_blocking: bool) -> None:
            assert non_blocking
            assert current
            current[-1].event = cuda.copy(self.tensor.numpy(), 0, piece.numpy())

    class Target:
        """A new tensor as the copying sees it, of which slices are copied to."""

        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def view(self, how: Any) -> Target:
            return Target(self.tensor.view(how))

        def __getitem__(self, part: slice) -> Into:
            return Into(self.tensor[part])

    class Stream:
        event: FakeEvent

        def __init__(self, device: Any) -> None:
            self.device = device

        def record_event(self) -> FakeEvent:
            return self.event

    @contextmanager
    def stream(of: Stream) -> Iterator[None]:
        current.append(of)
        yield
        current.pop()

    def empty(shape: tuple[int, ...], *, dtype: Any, device: Any) -> Any:
        assert current, "memory of the computing stream"
        return torch.empty(shape, dtype=dtype)

    class Uploads(staging.CudaUploads):
        def copy(self, target: Any, start: int, piece: Any) -> Any:
            return super().copy(Target(target), start, piece)

    runtime = SimpleNamespace(cudaHostRegister=cuda.register, cudaHostUnregister=cuda.unregister)
    fake = SimpleNamespace(
        cuda=SimpleNamespace(Stream=Stream, stream=stream, device=lambda _: nullcontext(), cudart=lambda: runtime),
        empty=empty,
        uint8=torch.uint8,
        from_numpy=torch.from_numpy,
    )
    monkeypatch.setattr(staging, "torch", fake)
    adapter = get_backend("torch")
    monkeypatch.setattr(adapter.blocks, "ring", lambda device: Ring(Uploads(device, adapter.dtype), np.copyto, 4096))
    yield cuda
    copy_stream.cache_clear()


def test_torch_has_a_ring_for_each_device_of_cuda_and_for_no_other() -> None:
    pytest.importorskip("torch")
    adapter = get_backend("torch")
    assert isinstance(adapter.blocks.ring("cuda:0"), Ring)  # which asks nothing of the device before its first copy
    assert adapter.blocks.ring("cpu") is None


@pytest.mark.parametrize(("dtype", "workers"), [("float32", 0), ("float16", 2), ("bool", 0), ("complex64", 2)])
def test_what_torch_computes_of_blocks_that_came_through_the_ring_is_right(
    torch_cuda: FakeCuda, dtype: str, workers: int
) -> None:
    arrays = [np.round(array).astype(dtype) for array in operands()]
    with ThreadPoolExecutor(workers) if workers else nullcontext() as pool:
        limit = MemoryLimit("60kB", executor=pool if workers else None)
        found = einsumx.einsum(EQUATION, *map(Stored, arrays), backend="torch", memory_limit=limit)
    expected = np.einsum(EQUATION, *(array.astype("complex128" if dtype[0] == "c" else int) for array in arrays))
    np.testing.assert_array_equal(found.numpy(), expected.astype(dtype))
    assert torch_cuda.copies > 2
    assert not torch_cuda.pinned


def test_an_interruption_leaves_nothing_pinned(torch_cuda: FakeCuda) -> None:
    def interrupt(done: int, of: int) -> None:
        if done:
            assert torch_cuda.pinned
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        einsumx.einsum(
            EQUATION, *map(Stored, operands()), backend="torch", memory_limit=MemoryLimit(LIMIT, progress=interrupt)
        )
    assert not torch_cuda.pinned


def test_cuda_that_pins_nothing_says_so(torch_cuda: FakeCuda) -> None:
    from einsumx.backends.torch import staging as module

    module.torch.cuda.cudart().cudaHostRegister = lambda *_: 2
    with pytest.raises(RuntimeError, match="CUDA cannot pin host memory: 2"):
        einsumx.einsum(EQUATION, *map(Stored, operands()), backend="torch", memory_limit=LIMIT)
