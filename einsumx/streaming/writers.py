"""Where a blocked contraction writes its result: a fresh array, an array that is given, a file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.registry import get_backend, is_stored, owner
from einsumx.blocked.cost import ResultFootprint
from einsumx.blocked.program import BlockedProgram
from einsumx.dtypes import Casting, itemsize
from einsumx.errors import BackendError, SizeError, excerpt, shown
from einsumx.runtime.maps import mapping, share_file
from einsumx.runtime.results import check_out_dtype
from einsumx.streaming.aliases import in_one_place
from einsumx.streaming.array_files import reserve, sync
from einsumx.streaming.fingerprints import PART, digest, parts_of_box
from einsumx.streaming.permits import Place, place
from einsumx.streaming.readers import is_host_array
from einsumx.streaming.walk import Box

__all__ = ["Target", "landing", "target", "write"]


class Target:
    """The result as it is written, block by block.

    Attributes:
        outlives: whether it goes to where it is found again when this process has ended.
        out: what the user gave, where it outlives the process.
    """

    outlives: bool = False
    out: Any = None

    def reserve(self) -> None:
        """Have room set aside for all of it on the disk, before any work.

        Raises:
            OSError: there is none.
            BackendError: its file was truncated.
        """

    def place(self, plan: BlockedProgram) -> Place | None:
        """Where other processes can write the blocks of ``plan``; None where only this one can."""
        return None

    def put(self, box: Box, block: Array) -> None:
        """Write a block to its place, in the dtype of the result."""
        raise NotImplementedError

    def flush(self) -> None:
        """See that what was written outlives this process, where it goes to a file."""

    def sync(self) -> None:
        """See that what was written outlives the machine's own end."""

    def digest(self, box: Box) -> str:
        """A digest of a block as it is stored; it is read for that, in no more memory than the block took."""
        raise NotImplementedError

    def done(self) -> Array:
        """What the user gets, when all blocks are written."""
        raise NotImplementedError


class _Fresh(Target):
    """An array of the framework that nobody else has seen."""

    def __init__(self, plan: BlockedProgram, adapter: Adapter, order: str) -> None:
        self._plan, self._adapter, self._order = plan, adapter, order
        self._result: Array = None

    def put(self, box: Box, block: Array) -> None:
        plan, adapter = self._plan, self._adapter
        block = adapter.move(block, plan.device)
        if not plan.blocking.root.nest:
            block = block if plan.compute_dtype == plan.dtype else adapter.cast(block, plan.dtype)
            self._result = adapter.arrange(block, self._order) if self._order in ("C", "F") else block
        elif self._order == "F":  # written as its transpose, which is in C order
            if self._result is None:
                self._result = adapter.empty(plan.shape[::-1], plan.dtype, plan.device)
            axes = tuple(reversed(range(len(plan.shape))))
            self._result = adapter.put(self._result, box[::-1], adapter.transpose(block, axes))
        else:
            if self._result is None:
                self._result = adapter.empty(plan.shape, plan.dtype, plan.device)
            self._result = adapter.put(self._result, box, block)

    def done(self) -> Array:
        plan, adapter = self._plan, self._adapter
        if not plan.shape:
            return adapter.element(self._result)
        if self._order == "F" and plan.blocking.root.nest:
            return adapter.transpose(self._result, tuple(reversed(range(len(plan.shape)))))
        return self._result


class _Array(Target):
    """An array of the framework, on the device where it computes."""

    def __init__(self, out: Array, adapter: Adapter) -> None:
        self._out, self._adapter = out, adapter
        self._device = adapter.device(out)

    def put(self, box: Box, block: Array) -> None:
        self._adapter.put(self._out, box, self._adapter.move(block, self._device))

    def done(self) -> Array:
        return self._out


class _Host(Target):
    """Anything that takes NumPy arrays by slices.

    Args:
        out: it.
        adapter: of the framework whose blocks come.
        size: bytes of an element of a block.
    """

    def __init__(self, out: Any, adapter: Adapter, size: int) -> None:
        self.out, self._adapter, self._size = out, adapter, size
        self._is_array = is_host_array(out)
        self.outlives = mapping(out) is not None if self._is_array else True

    def reserve(self) -> None:
        if self._is_array:
            reserve(self.out)

    def place(self, plan: BlockedProgram) -> Place | None:
        return place(self.out, plan)

    def put(self, box: Box, block: Array) -> None:
        write(self.out, box, self._adapter.to_numpy(block))

    def flush(self) -> None:
        # The pages of a map are the system's already.
        flush = None if self._is_array else getattr(getattr(self.out, "file", self.out), "flush", None)
        if flush is not None:
            flush()

    def sync(self) -> None:
        sync(self.out)

    def digest(self, box: Box) -> str:
        size = itemsize(get_backend("numpy").dtype_name(self.out.dtype))
        most = PART
        if not self._is_array:  # of which slices are copies, and small ones may be decoded from one large chunk
            most = max(PART, self._size * prod(axis.stop - axis.start for axis in box))
        numpy = get_backend("numpy").xp
        return digest(numpy.asarray(self.out[part]) for part in parts_of_box(box, size, most))

    def done(self) -> Any:
        return self.out


class _Other(Target):
    """An array of another framework in the host's memory."""

    def __init__(self, out: Array, owner: Adapter, adapter: Adapter) -> None:
        self._out, self._owner, self._adapter = out, owner, adapter

    def put(self, box: Box, block: Array) -> None:
        self._owner.put(self._out, box, self._owner.from_numpy(self._adapter.to_numpy(block)))

    def done(self) -> Array:
        return self._out


class _Late(Target):
    """An array that shares memory with an operand, and so is written when all operands are read."""

    def __init__(self, fresh: Target, final: Target, shape: Sequence[int], adapter: Adapter) -> None:
        self._fresh, self._final, self._adapter = fresh, final, adapter
        self._box = tuple(slice(0, size) for size in shape)

    def put(self, box: Box, block: Array) -> None:
        self._fresh.put(box, block)

    def done(self) -> Array:
        result = self._fresh.done()
        written, read = _in_memory(self._final.done()), _in_memory(result)
        if written is not None and read is not None and share_file(written, read):
            result = self._adapter.copy(result)  # a view of an operand, in a map of the same file
        self._final.put(self._box, result)
        return self._final.done()


def write(out: Any, box: Box, values: Any) -> None:
    """Write a block to its place in what takes NumPy arrays by slices."""
    numpy = get_backend("numpy")
    if is_host_array(out):
        numpy.put(out, box, values)
        return
    with numpy.xp.errstate(all="ignore"):
        out[box] = numpy.xp.asarray(values, dtype=out.dtype)


def landing(
    out: Any, operands: Sequence[Any], adapter: Adapter, shape: Sequence[int], computed: str, dtype: str, order: str
) -> tuple[ResultFootprint, bool]:
    """What memory the result takes, and whether ``out`` is written only when all operands are read.

    Args:
        out: that is given; None for a fresh array.
        operands: as the user gave them.
        shape: of the result.
        computed: the dtype of the blocks.
        dtype: of the result.
        order: that a fresh array has to be brought into, by a copy; ``"K"`` where it needs none.
    """
    size = itemsize(dtype)
    whole = prod(shape) * size
    if out is None:
        return ResultFootprint(whole, whole if computed != dtype or order in ("C", "F") else 0), False
    late = any(_overlap(out, operand) for operand in operands)
    copies = not is_host_array(out) and owner(out) is not adapter
    return ResultFootprint(whole if late else 0, 0, size if copies else 0), late


def target(
    plan: BlockedProgram, adapter: Adapter, operands: Sequence[Any], out: Any, order: str, casting: Casting, late: bool
) -> Target:
    """Where the result of ``plan`` goes; ``out`` is not touched yet.

    Raises:
        SizeError, BackendError: it cannot go there.
    """
    if out is None:
        return _Fresh(plan, adapter, order)
    found = _given(plan, adapter, operands, out, casting)
    return _Late(_Fresh(plan, adapter, "K"), found, plan.shape, adapter) if late else found


def _given(plan: BlockedProgram, adapter: Adapter, operands: Sequence[Any], out: Any, casting: Casting) -> Target:
    numpy = get_backend("numpy")
    kind = f"{type(out).__module__}.{type(out).__qualname__}"
    theirs = owner(out)
    if theirs is None and not (is_stored(out) and hasattr(out, "__setitem__")):
        raise BackendError(f"out= is a {kind}, which has no shape, dtype and assignment to slices")
    if tuple(out.shape) != plan.shape:
        raise SizeError(
            f"out= has shape {shown(tuple(out.shape))} but the result has shape {shown(plan.shape)}\n"
            f"  {excerpt(plan.equation.text)}"
        )
    dtype = (theirs or numpy).dtype_name(out.dtype)
    check_out_dtype(adapter, plan.dtype, dtype, casting, out.dtype)
    if getattr(out, "read_only", False) is True or getattr(getattr(out, "file", None), "mode", "") == "r":
        raise BackendError(f"out= is a {kind} that is open for reading alone")
    if theirs is None:
        return _Host(out, adapter, itemsize(plan.dtype))
    theirs.check_out(out, [array for array in operands if owner(array) is theirs])
    where = theirs.device(out)
    if theirs is adapter and (where == plan.device or not where or not plan.device):
        return _Host(out, adapter, itemsize(plan.dtype)) if theirs is numpy else _Array(out, adapter)
    if where.partition(":")[0] not in ("", "cpu"):
        raise BackendError(f"out= is on {where}, but {adapter.name} computes the result on {plan.device}")
    return _Host(out, adapter, itemsize(plan.dtype)) if theirs is numpy else _Other(out, theirs, adapter)


# -- overlap ------------------------------------------------------------------------------------------------------


def _overlap(out: Any, operand: Any) -> bool:
    """Whether writing to ``out`` can change what is read of ``operand``."""
    if operand is out:
        return True
    numpy = get_backend("numpy")
    ours, theirs = _in_memory(out), _in_memory(operand)
    if ours is not None and theirs is not None and numpy.may_overlap(ours, theirs):
        return True
    writer = owner(out)
    if ours is None and writer is not None:
        return writer is owner(operand) and writer.may_overlap(out, operand)
    return in_one_place(out if ours is None else ours, operand if theirs is None else theirs)


def _in_memory(array: Any) -> Any:
    """The NumPy array that an operand is, or has the memory of; None where there is none."""
    theirs = owner(array)
    if theirs is not None and theirs.name == "numpy":
        return theirs.plain(array)
    if theirs is None or type(theirs).in_place is Adapter.in_place or theirs.device(array) != "cpu":
        return None
    with suppress(TypeError):  # a dtype that NumPy does not have
        return theirs.to_numpy(array)
    return None
