"""``memory_limit=``: how much memory a contraction may use, and where its blocks are computed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from einsumx.errors import shown
from einsumx.host.free_memory import UNLIMITED, bytes_in
from einsumx.imports import LazyModule
from einsumx.scalars import as_python

if TYPE_CHECKING:
    from concurrent import futures
else:
    futures = LazyModule("concurrent.futures")

MemoryAmount: TypeAlias = int | float | str
"""Bytes; text such as ``"8GiB"`` or ``"500 MB"``; or, below 1, a fraction of the free memory."""

Progress: TypeAlias = bool | Callable[[int, int], object]
"""True for a tqdm progress bar, or a callback ``f(done, total)``."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The most memory that a contraction may use at once, and how its blocks are computed.

    The contraction is tiled into blocks. Operands are read block by block, and may be anything with shape, dtype and
    slicing: memory maps, HDF5 datasets, Zarr arrays. ``out`` is written block by block, and may be anything with slice
    assignment; if it shares memory with an operand, it is written after all operands are read. If reading an operand
    fails, the finished blocks remain in ``out``. If memory runs out in spite of the limit, the contraction goes on in
    smaller blocks, with a RuntimeWarning.

    None stands for the default of each field but the amount.

    Attributes:
        amount: bytes, text such as ``"8GiB"``, or a fraction below 1 of the free memory, which is rounded down.
            Infinity means no bound. A new result counts.
        device: the device to compute on, such as ``"cuda:0"``; by default, where the operands are. Other operands are
            copied there block by block, from host to CUDA through a few pinned buffers in host memory, which do not
            count. A new result stays there.
        devices: several devices that compute blocks in parallel, ``["cuda:0", "cuda:1"]``. The limit applies to each. A
            new result is placed on the first. Tested on JAX's CPU devices, not on several GPUs yet.
        executor: a pool of workers to compute the blocks: threads, processes, loky, a Dask client's
            ``get_executor()``, or another executor of the ``concurrent.futures`` interface. The limit applies to each
            process. Workers open operands in files themselves; other operands are sent to each worker once.
            Gradients are computed by the caller alone.
        progress: True for a progress bar, or a callback ``f(done, total)`` of steps. The last step of a block is done
            when the block is written, and is in the journal of ``resume``.
        resume: the name of a journal, a small file that records the finished blocks of ``out`` and digests of them and
            of the operands. After an interruption, the same call computes only blocks that are missing or have
            changed. The file is removed at the end.

    Raises:
        ValueError: the amount is not positive, not whole, or unreadable; or ``devices`` beside ``device`` or
            ``executor``.
        TypeError: a field has a wrong type.

    >>> import numpy as np
    >>> from einsumx import MemoryLimit, einsum
    >>> einsum("ij,jk->ik", np.eye(2), np.ones((2, 3)), memory_limit=MemoryLimit("1MB", device="cpu")).shape
    (2, 3)
    """

    amount: MemoryAmount
    _: KW_ONLY
    device: str = ""
    devices: Sequence[str] = ()
    executor: futures.Executor | None = None
    progress: Progress = False
    resume: str | os.PathLike[str] | None = None

    @property
    def is_lasting(self) -> bool:
        """Whether it means the same in every call: a number of bytes in which the caller alone computes."""
        amount = as_python(self.amount)
        is_fraction = isinstance(amount, float) and amount < 1
        return not is_fraction and self == MemoryLimit(self.amount)

    def __repr__(self) -> str:
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.kw_only}
        given = [f"{name}={value!r}" for name, value in named.items() if value]
        return f"MemoryLimit({', '.join([repr(self.amount), *given])})"

    def __post_init__(self) -> None:
        limit_bytes(self.amount, lambda: UNLIMITED)
        checked = {
            "amount": as_python(self.amount),
            "device": _as_device(self.device),
            "devices": _as_devices(self.devices),
            "executor": _as_executor(self.executor),
            "progress": _as_progress(self.progress),
            "resume": _as_resume(self.resume),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.devices and (self.device or self.executor is not None):
            raise ValueError(f"devices= cannot be combined with {'device' if self.device else 'executor'}=")


@dataclass(frozen=True, slots=True, repr=False)
class Cap(MemoryLimit):
    """The limit of a patch: a call whose plan takes no more memory runs as without it. It is no fraction."""

    @property
    def nbytes(self) -> int:
        """The amount in bytes."""
        return limit_bytes(self.amount, lambda: UNLIMITED)

    @property
    def limit(self) -> MemoryLimit:
        """The limit for a call whose plan takes more."""
        return MemoryLimit(self.amount)


def as_limit(limit: Any) -> MemoryLimit | None:
    """The value of ``memory_limit=``; an amount alone is a limit with it. None stays None."""
    return limit if limit is None or isinstance(limit, MemoryLimit) else MemoryLimit(limit)


def _as_progress(progress: Any) -> Progress:
    if progress is None or progress is False:
        return False
    if isinstance(progress := as_python(progress), bool):
        return bool(progress)
    if not callable(progress):
        raise TypeError(f"progress= must be True, or a function f(done, total), not {shown(progress)}")
    return cast(Progress, progress)


def _as_device(device: Any) -> str:
    if device is None:
        return ""
    if not isinstance(device, str):
        raise TypeError(f"device= must be the name of a device, such as 'cuda:0', not {shown(device)}")
    return device


def _as_devices(devices: Any) -> tuple[str, ...]:
    if devices is None or (isinstance(devices, tuple) and not devices):
        return ()
    if isinstance(devices, Iterable) and not isinstance(devices, str):
        names = tuple(map(as_python, devices))
        if all(isinstance(name, str) and name for name in names):
            return names
    raise TypeError(f"devices= must be a list of device names, such as ['cuda:0', 'cuda:1'], not {shown(devices)}")


def _as_executor(executor: Any) -> futures.Executor | None:
    if executor is None:
        return None
    if not isinstance(executor, futures.Executor):
        raise TypeError(f"executor= must be an Executor like those of concurrent.futures, not {shown(executor)}")
    return executor


def _as_resume(resume: Any) -> str | os.PathLike[str] | None:
    if resume is None or (isinstance(resume, str | os.PathLike) and os.fspath(resume)):
        return resume
    raise TypeError(f"resume= must be the name of a file, not {shown(resume)}")


_BITS = 6
"""A fraction of the free memory is rounded down to this many binary digits, so that repeated calls share a plan."""


def limit_bytes(limit: MemoryAmount, free: Callable[[], int | None]) -> int:
    """A memory limit in bytes.

    Args:
        limit: bytes, text, or a fraction of the free memory.
        free: returns the free bytes of the device, or None if unknown; called only for a fraction.

    Raises:
        ValueError: the limit is not positive, not whole, or unreadable, or a fraction of an unknown amount.
        TypeError: the limit is neither a number nor text.

    >>> limit_bytes("8GiB", lambda: None), limit_bytes("1.5 MB", lambda: None), limit_bytes(0.5, lambda: 2048)
    (8589934592, 1500000, 1024)
    """
    limit = as_python(limit)
    if isinstance(limit, bool) or not isinstance(limit, int | float | str):
        raise TypeError(
            f"memory_limit= must be a number of bytes, a text such as '8GiB', or a fraction, not {shown(limit)}"
        )
    if isinstance(limit, str):
        nbytes = bytes_in(limit)
        if not nbytes:
            raise ValueError(f"memory_limit={shown(limit)} is not an amount of memory; write '8GiB', '500MB', or bytes")
        return nbytes
    if not limit > 0:
        raise ValueError(f"memory_limit={shown(limit)} must be positive")
    if limit >= UNLIMITED:
        return UNLIMITED
    if isinstance(limit, float) and limit < 1:
        available = free()
        if available is None:
            raise ValueError(
                f"memory_limit={limit!r} is a fraction, but the amount of free memory is not known; pass bytes"
            )
        share = int(limit * available)
        spare = max(share.bit_length() - _BITS, 0)
        return share >> spare << spare
    if limit != int(limit):
        raise ValueError(
            f"memory_limit={limit!r} is neither a whole number of bytes nor a fraction below 1 of the free memory; "
            "write '8GiB', '500MB', or bytes"
        )
    return int(limit)
