"""PyTorch's copies from the host to a CUDA device. This module imports torch, and is imported for the first copy.

``pytest -m gpu`` tests it on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from einsumx.adapters.staging import Event, copy_stream
from einsumx.adapters.typing import Array

torch: Any = import_module("torch")


class CudaUploads:
    """Copies to one device; see :class:`einsumx.adapters.staging.Uploads`.

    Args:
        device: the target.
        dtype: returns torch's dtype of a name.
    """

    def __init__(self, device: Any, dtype: Callable[[str], Any]) -> None:
        self._device, self._dtype = device, dtype

    def register(self, address: int, nbytes: int) -> None:
        """Pin memory of the host."""
        with torch.cuda.device(self._device):
            _check(torch.cuda.cudart().cudaHostRegister(address, nbytes, 0))

    def unregister(self, address: int) -> None:
        """Unpin it."""
        with torch.cuda.device(self._device):
            _check(torch.cuda.cudart().cudaHostUnregister(address))

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        """An uninitialized array in memory of the stream."""
        with torch.cuda.stream(copy_stream(torch.cuda.Stream, self._device)):
            return torch.empty(shape, dtype=self._dtype(dtype), device=self._device)

    def copy(self, target: Array, start: int, piece: Any) -> Event:
        """Queue a copy of a piece."""
        stream = copy_stream(torch.cuda.Stream, self._device)
        with torch.cuda.stream(stream):
            part = target.view(-1).view(torch.uint8)[start : start + piece.nbytes]
            part.copy_(torch.from_numpy(piece), non_blocking=True)
            event: Event = stream.record_event()
            return event


def _check(code: Any) -> None:
    """Raise for an error code of CUDA."""
    if int(code):
        raise RuntimeError(f"CUDA cannot pin host memory: {code}")
