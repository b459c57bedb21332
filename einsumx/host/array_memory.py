"""A pool of memory for large tensors of PyTorch, so that a call does not pay for new pages again.

The allocator of glibc returns tensors over 32 MB to the system as soon as they are freed. The next call gets new pages,
and touching those takes longer than most of the arithmetic. The pool keeps such memory for the next large tensor. It
lies on huge pages, which also makes the first touch cheaper. NumPy asks for huge pages by itself.

A tensor of the pool lies in a :class:`_Lease`, which every view, array and buffer of it keeps alive. When the
lease dies, its block returns to the pool. While a block is idle, the system may take its pages if memory runs short
(``MADV_FREE``); they count as available memory.

No method takes a lock: a lease may die inside any other function of the pool, wherever Python collects garbage. Methods
of lists are atomic, and a block belongs to the thread that removes it from the list.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from einsumx.caches import when_cleared
from einsumx.errors import shown
from einsumx.host.environment import variable
from einsumx.host.files import system_text
from einsumx.imports import LazyModule, imported
from einsumx.scalars import as_python

if TYPE_CHECKING:
    import numpy as np

    from einsumx.host import free_memory
else:
    free_memory = LazyModule("einsumx.host.free_memory")  # small arrays do not need it
    np = LazyModule("numpy")

_LARGE = 1 << 25
"""The most bytes of an array whose memory glibc keeps."""

_DEFAULT = 1 << 30
_ENVIRONMENT = "EINSUMX_MEMORY_POOL"

_HUGE = 1 << 21
"""Bytes of a huge page, and the step between sizes of blocks."""

_SPARE = 8
"""A block serves arrays that leave at most this part of their own size unused."""

_IS_SUPPORTED = sys.platform == "linux" and hasattr(mmap, "MADV_FREE") and hasattr(mmap, "MADV_HUGEPAGE")


class MemoryPoolInfo(NamedTuple):
    """The bound of the memory pool, the idle bytes that it holds, and how often it had the memory of a large tensor."""

    bound: int
    held: int
    hits: int
    misses: int


class _Block:
    """An anonymous private mapping: a child of fork has a copy of it.

    Attributes:
        address: of its first huge page.
        size: the bytes from there on.
    """

    __slots__ = ("_mapping", "address", "size")

    def __init__(self, nbytes: int) -> None:
        self.size = -(-nbytes // _HUGE) * _HUGE
        # Pages that are never touched take no memory, such as those before the first huge page.
        self._mapping = mmap.mmap(-1, self.size + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # a kernel without huge pages
            self._mapping.madvise(mmap.MADV_HUGEPAGE)
        start = np.frombuffer(self._mapping, np.uint8).__array_interface__["data"][0]
        self.address = -(-start // _HUGE) * _HUGE

    def offer(self) -> bool:
        """Let the system take the pages if it needs them; False if it refuses, as for locked memory."""
        try:
            self._mapping.madvise(mmap.MADV_FREE)
        except OSError:
            return False
        return True


class _Lease:
    """Lends a block to arrays, and gives it back when the last of them dies."""

    __slots__ = ("__array_interface__", "_block", "_give_back")

    def __init__(self, block: _Block, nbytes: int, give_back: Callable[[_Block], None]) -> None:
        self._block, self._give_back = block, give_back
        self.__array_interface__ = {"data": (block.address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self._give_back(self._block)


class _MemoryPool:
    """Idle blocks, the oldest first. ``bound`` is the most bytes to hold; None before it is first needed."""

    def __init__(self) -> None:
        self.bound: int | None = None
        self.hits = self.misses = 0
        self._idle: list[_Block] = []

    def lease(self, nbytes: int) -> _Lease | None:
        """Memory for an array; None if the system has none."""
        block = self._take(nbytes)
        if block is not None:
            self.hits += 1
        else:
            self.misses += 1
            try:
                block = self._new(nbytes)
            except TimeoutError:  # of a signal handler
                raise
            except (OSError, MemoryError):
                return None
        return _Lease(block, nbytes, self._give_back)

    def held(self) -> int:
        """The bytes of idle blocks."""
        return sum([block.size for block in tuple(self._idle)])

    def shrink(self, bound: int = 0) -> None:
        """Return the oldest blocks to the system until at most ``bound`` bytes are held."""
        while self._idle and self.held() > bound:
            with suppress(IndexError):  # another thread took the last one
                self._idle.pop(0)

    def _take(self, nbytes: int) -> _Block | None:
        """The smallest idle block that fits; of several, the last used."""
        most = nbytes + nbytes // _SPARE
        fitting = [block for block in reversed(tuple(self._idle)) if nbytes <= block.size <= most]
        for block in sorted(fitting, key=lambda block: block.size):
            try:
                self._idle.remove(block)
            except ValueError:  # another thread took it
                continue
            return block
        return None

    def _new(self, nbytes: int) -> _Block:
        try:
            return _Block(nbytes)
        except TimeoutError:  # of a signal handler
            raise
        except (OSError, MemoryError):
            self.shrink()
            return _Block(nbytes)

    def _give_back(self, block: _Block) -> None:
        bound = _bound()
        if block.size <= bound and not _counts_idle_memory() and block.offer():
            self._idle.append(block)
            self.shrink(bound)


_pool = _MemoryPool()

_local = threading.local()
"""Per thread: ``depth`` is the number of :class:`unused` contexts that it is in."""


# -- arrays -------------------------------------------------------------------------------------------------------


def is_large(shape: Sequence[int], itemsize: int) -> bool:
    """Whether the pool serves an array of this shape. The answer never changes, so kernels ask when they are made."""
    return _IS_SUPPORTED and prod(shape) * itemsize > _LARGE


def memory(nbytes: int) -> Any:
    """Memory of the pool for a large array, as a NumPy array of bytes.

    It is None if the pool is switched off, not used in this context, if the system has no memory left, or while the
    interpreter exits, when torch makes no tensor of such memory.
    """
    if getattr(_local, "depth", 0) or sys.is_finalizing() or not _bound():
        return None
    lease = _pool.lease(nbytes)
    return None if lease is None else np.asarray(lease)


class unused:  # noqa: N801  a context, which is called
    """A context in which this thread's arrays are not in the pool.

    Contractions under a memory limit run in it: a limit counts every byte, and idle memory would be left out.

    >>> with unused():
    ...     memory(1 << 26) is None
    True
    """

    def __enter__(self) -> None:
        _local.depth = getattr(_local, "depth", 0) + 1

    def __exit__(self, *_: object) -> None:
        _local.depth -= 1


# -- settings -----------------------------------------------------------------------------------------------------


def set_memory_pool(size: int | str) -> None:
    """Keep at most ``size`` bytes of idle memory for large tensors; 0 switches the pool off.

    CPU tensors of PyTorch over 32 MB are placed in the pool: results, and intermediate values of a plan. When the last
    view of a tensor is gone, its memory stays in the process for the next one. Then the next call
    does not wait for the system to provide pages, which often takes longer than the arithmetic. Contractions that
    record gradients, or run under ``memory_limit=``, do not use the pool.

    The default is the environment variable ``EINSUMX_MEMORY_POOL``, or 1 GiB. :func:`cache_clear` returns the idle
    memory to the system. If memory runs short, the system takes it without asking. The pool needs Linux. It keeps
    nothing if the address space is limited (``ulimit -v``) or the system does not overcommit memory.

    Args:
        size: bytes, or text such as ``"1GiB"``.

    Raises:
        ValueError: the size is negative or unreadable.
        TypeError: the size is neither an integer nor text.

    >>> import einsumx
    >>> before = einsumx.memory_pool_info().bound
    >>> einsumx.set_memory_pool("2GiB")
    >>> einsumx.memory_pool_info().bound
    2147483648
    >>> einsumx.set_memory_pool(before)
    """
    size = as_python(size)
    if isinstance(size, str):
        bound = free_memory.bytes_in(size)
        if bound is None:
            raise ValueError(
                f"the size of the memory pool is {shown(size)}, which is not an amount of memory; write '1GiB', "
                "'500MB', or bytes"
            )
        _pool.bound = bound
    elif isinstance(size, bool) or not isinstance(size, int):
        raise TypeError(
            f"the size of the memory pool must be a number of bytes or a text such as '1GiB', not {shown(size)}"
        )
    elif size < 0:
        raise ValueError(f"the size of the memory pool must be at least 0, not {shown(size)}")
    else:
        _pool.bound = size
    _pool.shrink(_pool.bound)


def memory_pool_info() -> MemoryPoolInfo:
    """The bound of the memory pool, the idle bytes that it holds, and how often it had the memory of a large tensor.

    >>> import einsumx
    >>> einsumx.memory_pool_info()._fields
    ('bound', 'held', 'hits', 'misses')
    """
    return MemoryPoolInfo(_bound(), _pool.held(), _pool.hits, _pool.misses)


def _bound() -> int:
    if _pool.bound is None:
        size = variable(_ENVIRONMENT, free_memory.bytes_in, "an amount of memory such as 1GiB, 500MB, or bytes")
        _pool.bound = _DEFAULT if size is None else size
    return _pool.bound


def _counts_idle_memory() -> bool:
    """Whether memory that the system may take back still counts against a bound of this process or of the machine.

    It does if the address space is limited, or if the system does not overcommit memory.
    """
    try:
        resource = imported("resource")
    except ImportError:
        return False
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return True
    return (system_text("/proc/sys/vm/overcommit_memory") or "").strip() == "2"


@when_cleared
def release() -> None:
    """Return all idle memory to the system."""
    _pool.shrink()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=release)  # a child starts with no idle memory
