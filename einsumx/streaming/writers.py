"""Writes the result of a blocked contraction: to a fresh array, to an array passed as ``out=``, or to a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.facets import BlockAccess, blocks_of, out_of
from einsumx.adapters.operand_types import type_name
from einsumx.adapters.registry import get_backend, is_stored, owner
from einsumx.algebra.scaled import FrexpResult, ScaledArray, times_power
from einsumx.blocked.boxes import Box, box_size, difference, inside
from einsumx.blocked.cost import ResultFootprint
from einsumx.blocked.program import BlockedProgram
from einsumx.dtypes import Casting, itemsize
from einsumx.errors import BackendError, SizeError, excerpt, shown
from einsumx.imports import LazyModule
from einsumx.ir.bind import SizedEquation
from einsumx.ir.contraction import Contraction
from einsumx.runtime.factors import Factors, check_kinds, common_dtype
from einsumx.runtime.results import check_out_dtype
from einsumx.storage.aliases import in_one_place
from einsumx.storage.array_files import reserve, sync
from einsumx.storage.maps import mapping
from einsumx.storage.reopened import opened_here
from einsumx.streaming import pieces
from einsumx.streaming.readers import is_host, is_host_array

if TYPE_CHECKING:
    from einsumx.streaming import fingerprints, worker_writes
    from einsumx.streaming.worker_writes import ResultFiles
else:
    fingerprints = LazyModule("einsumx.streaming.fingerprints")
    worker_writes = LazyModule("einsumx.streaming.worker_writes")


class Target:
    """The result of a plan, written block by block.

    Attributes:
        outlives: whether it is stored, and stays after this process has ended.
        out: the array passed as ``out=``, if it is stored or a NumPy array.
        is_changed: whether blocks were added to it, so that no block may be added again.
    """

    outlives: bool = False
    out: Any = None
    is_changed: bool = False

    def reserve(self) -> None:
        """Allocate disk space for all of it before any work.

        Raises:
            OSError: the disk has no room.
            BackendError: its file was truncated.
        """

    def files(self, program: BlockedProgram) -> ResultFiles | None:
        """The files to which other processes can write the blocks of ``program``; None if only this one can."""
        return None

    def put(self, box: Box, block: Array) -> None:
        """Write a block, in the dtype of the result."""
        raise NotImplementedError

    def update(self, box: Box, block: Array, factors: Factors) -> None:
        """Write a multiple of a block plus a multiple of the values there."""
        raise NotImplementedError

    def cut_anew(self) -> None:
        """Note that the blocks to come are those of another plan, which may overlap with those before."""

    def flush(self) -> None:
        """Pass all writes to the system, so that they survive this process."""

    def sync(self) -> None:
        """Wait until all writes are on the disk, so that they survive a crash of the machine."""

    def digest(self, box: Box) -> str:
        """A digest of a block as it is stored, computed in no more memory than the block took."""
        raise NotImplementedError

    def done(self) -> Array:
        """The array to return to the user, when all blocks are written."""
        raise NotImplementedError


class _Fresh(Target):
    """A new array of the framework."""

    def __init__(self, program: BlockedProgram, adapter: Adapter, order: str) -> None:
        self._program, self._adapter, self._order = program, adapter, order
        self._blocks = blocks_of(adapter)
        self._result: Array = None
        self._is_transposed = order == "F" and bool(program.blocking.root.nest)  # its transpose is in C order

    def put(self, box: Box, block: Array) -> None:
        program, adapter = self._program, self._adapter
        block = self._blocks.move(block, program.device)
        if not program.blocking.root.nest:
            block = block if program.compute_dtype == program.dtype else adapter.cast(block, program.dtype)
            if adapter.orders is not None and self._order in ("C", "F"):
                block = adapter.orders.arrange(block, self._order)
            self._result = block
            return
        if self._result is None:
            shape = program.shape[::-1] if self._is_transposed else program.shape
            self._result = self._blocks.empty(shape, program.dtype, program.device)
        if self._is_transposed:
            box, block = box[::-1], self._transposed(block)
        self._result = self._blocks.put(self._result, box, block)
        adapter.synchronize(self._result)  # the block may be in memory of another thread's stream

    def shift(self, box: Box, exponent: int) -> None:
        """Multiply a written block by ``2**exponent``."""
        box = box[::-1] if self._is_transposed else box
        block = times_power(self._adapter, self._blocks.part(self._result, box), exponent)
        self._result = self._blocks.put(self._result, box, block)

    def _transposed(self, array: Array) -> Array:
        return self._adapter.transpose(array, tuple(reversed(range(len(self._program.shape)))))

    def done(self) -> Array:
        if not self._program.shape:
            return self._adapter.element(self._result)
        result = self._blocks.finished(self._result)
        return self._transposed(result) if self._is_transposed else result


class _Mantissa(Target):
    """The mantissa and the exponent of a result whose blocks are :class:`~einsumx.algebra.scaled.ScaledArray`.

    The blocks are aligned when all are written, as the largest exponent is not known before.
    """

    def __init__(self, fresh: _Fresh) -> None:
        self._fresh = fresh
        self._exponents: list[tuple[Box, int | None]] = []
        self._is_cut_anew = False

    def put(self, box: Box, block: ScaledArray) -> None:
        self._fresh.put(box, block.mantissa)
        if self._is_cut_anew:  # later blocks may cover parts of earlier ones
            self._exponents = [(part, own) for each, own in self._exponents for part in difference(each, box)]
        self._exponents.append((box, block.exponent))

    def cut_anew(self) -> None:
        self._is_cut_anew = True

    def done(self) -> FrexpResult:
        exponent = max([own for _, own in self._exponents if own is not None], default=0)
        for box, own in self._exponents:
            if own not in (None, exponent):
                self._fresh.shift(box, own - exponent)
        return FrexpResult(self._fresh.done(), exponent)


class _Array(Target):
    """An existing array of a framework; ``convert`` moves blocks to its framework and device."""

    def __init__(self, out: Array, owner: Adapter, convert: Callable[[Array], Array]) -> None:
        self._out, self._owner, self._convert = out, owner, convert
        self._blocks = blocks_of(owner)

    def put(self, box: Box, block: Array) -> None:
        self._blocks.put(self._out, box, self._convert(block))
        self._owner.synchronize(self._out)

    def update(self, box: Box, block: Array, factors: Factors) -> None:
        values = self._blocks.part(self._out, box)
        self.put(box, _updated(self._owner, self._convert(block), values, self._out.dtype, factors))

    def done(self) -> Array:
        return self._out


class _Host(Target):
    """An array that is written by slices from NumPy arrays.

    ``size`` is that of an element of a block, in bytes; ``at_once`` bytes of chunks are written in one call.
    """

    def __init__(self, out: Any, adapter: Adapter, size: int, at_once: int) -> None:
        self._passed, self._adapter, self._size, self._at_once = out, adapter, size, at_once
        self.out = opened_here(out)
        self._is_array = is_host_array(self.out)
        self.outlives = mapping(self.out) is not None if self._is_array else True

    def reserve(self) -> None:
        if self._is_array:
            reserve(self.out)

    def files(self, program: BlockedProgram) -> ResultFiles | None:
        return worker_writes.result_files(self.out, program)

    def put(self, box: Box, block: Array) -> None:
        write(self.out, box, self._adapter.to_numpy(block), self._at_once)

    def update(self, box: Box, block: Array, factors: Factors) -> None:
        numpy = get_backend("numpy")
        values = pieces.read(self.out, box, self._at_once)
        updated = _updated(numpy, self._adapter.to_numpy(block), values, self.out.dtype, factors)
        write(self.out, box, updated, self._at_once)

    def flush(self) -> None:
        # The system already has the pages of a map.
        flush = None if self._is_array else getattr(getattr(self.out, "file", self.out), "flush", None)
        if flush is not None:
            flush()

    def sync(self) -> None:
        sync(self.out)

    def digest(self, box: Box) -> str:
        numpy = get_backend("numpy")
        size = itemsize(numpy.dtype_name(self.out.dtype))
        # Slices of a stored array are copies, and small ones may be decoded from one large chunk.
        most = fingerprints.PART if self._is_array else max(fingerprints.PART, self._size * box_size(box))
        parts = fingerprints.parts_of_box(box, size, most)
        return fingerprints.digest(numpy.xp.asarray(self.out[part]) for part in parts)

    def done(self) -> Any:
        return self._passed


class _Late(Target):
    """An array that shares memory with an operand, and is written when all operands have been read."""

    def __init__(self, fresh: Target, final: Target, shape: Sequence[int], adapter: Adapter) -> None:
        self._fresh, self._final, self._adapter = fresh, final, adapter
        self._box = tuple(slice(0, size) for size in shape)

    def put(self, box: Box, block: Array) -> None:
        self._fresh.put(box, block)

    def done(self) -> Array:
        result = self._fresh.done()
        if overlap(self._final.done(), result):
            result = self._adapter.copy(result)  # a view of an operand
        self._final.put(self._box, result)
        return self._final.done()


class _Updated(Target):
    """Another target: a multiple of each block is added to a multiple of the values there, to each element once.

    If memory runs out, a plan with other blocks may compute elements again that were added to before.
    """

    def __init__(self, target: Target, factors: Factors) -> None:
        self._target, self._factors = target, factors
        self._before: list[Box] = []  # what was added by plans before this one
        self._added: dict[tuple[tuple[int, int], ...], list[Box]] = {}  # of each block; those of one plan are disjoint
        self.outlives, self.out = target.outlives, target.out

    @property
    def is_changed(self) -> bool:  # type: ignore[override]
        return bool(self._before) or any(self._added.values())

    def cut_anew(self) -> None:
        self._before += chain.from_iterable(self._added.values())
        self._added.clear()

    def reserve(self) -> None:
        self._target.reserve()

    def put(self, box: Box, block: Array) -> None:
        left, own = [box], self._added.setdefault(tuple([(part.start, part.stop) for part in box]), [])
        for added in (*self._before, *own):
            left = [part for each in left for part in difference(each, added)]
        for part in left:
            self._target.update(part, block if part == box else block[inside(part, box)], self._factors)
            if self._factors.beta != 0:
                own.append(part)

    def flush(self) -> None:
        self._target.flush()

    def sync(self) -> None:
        self._target.sync()

    def digest(self, box: Box) -> str:
        return self._target.digest(box)

    def done(self) -> Array:
        return self._target.done()


def _updated(adapter: Adapter, block: Array, values: Array, dtype: Any, factors: Factors) -> Array:
    """A multiple of a block plus a multiple of the values in an array of ``dtype``, as a new array."""
    common = common_dtype(adapter, adapter.dtype_name(block.dtype), adapter.dtype_name(dtype))
    alpha, beta = factors.within(common)
    return adapter.arithmetic.combined(alpha, block, beta, values, common)


def write(out: Any, box: Box, values: Any, at_once: int = 0) -> None:
    """Write a block to an array that is written by slices from NumPy arrays."""
    if is_host_array(out):
        blocks_of(get_backend("numpy")).put(out, box, values)
    else:
        pieces.write(out, box, values, at_once)


class Output:
    """The requested result: a fresh array in a memory order, or ``out=``.

    Attributes:
        is_late: whether ``out`` is written only when all operands have been read, as it overlaps with one.
    """

    def __init__(
        self, adapter: Adapter, operands: Sequence[Any], out: Any, order: str = "K", factors: Factors | None = None
    ) -> None:
        self._adapter, self._operands, self._out, self._order = adapter, operands, out, order
        self._factors = factors
        self.is_late = out is not None and any(overlap(out, operand) for operand in operands)

    def footprint(self, contraction: Contraction, *, is_view: bool) -> ResultFootprint:
        """The memory needed to store a result.

        ``is_view`` says whether a result in one block is a view of an operand.
        """
        equation, dtype, compute_dtype = contraction.equation, contraction.dtype, contraction.compute_dtype
        size, out = itemsize(dtype), self._out
        whole = prod(equation.shape) * size
        updated = 0 if self._factors is None else self._update_bytes(compute_dtype)
        if out is None:
            is_arranged = self._order in ("C", "F") and not _has_any_order(equation)
            return ResultFootprint(whole, whole if compute_dtype != dtype or is_arranged else 0, updated)
        is_copied = not is_host_array(opened_here(out)) and owner(out) is not self._adapter
        copied = size if is_copied else 0
        if not self.is_late:
            return ResultFootprint(copied=copied + updated)
        late = updated * prod(equation.shape)  # the result is added as a whole
        return ResultFootprint(whole + late, late + whole * is_view, copied)

    def _update_bytes(self, dtype: str) -> int:
        """Bytes an element of the copies that an update makes of a block and of the values in ``out``."""
        # The values are read, and cast if need be; both are multiplied; the block is cast if need be.
        framework = owner(self._out) or get_backend("numpy")
        target = framework.dtype_name(self._out.dtype)
        common = itemsize(common_dtype(framework, dtype, target))
        casts = 2 * (dtype != target)
        return itemsize(target) + (2 + casts) * common

    def target(self, program: BlockedProgram, casting: Casting, at_once: int = 0) -> Target:
        """The target for the result of a plan; ``out`` is not changed yet.

        ``at_once`` bytes of chunks are written in one call, if ``out`` is a stored array.

        Raises:
            SizeError, BackendError: ``out`` cannot take the result.
        """
        factors = self._factors
        if self._out is None:
            fresh = _Fresh(program, self._adapter, self._order)
            if program.contraction.algebra.has_exponents:
                return _Mantissa(fresh)
            return fresh
        final = self._checked(program, casting, at_once)
        if factors is not None:
            framework = owner(self._out) or get_backend("numpy")
            dtype = common_dtype(framework, program.dtype, framework.dtype_name(self._out.dtype))
            check_kinds(factors.kinds, dtype)
            final = _Updated(final, factors)
        return (
            _Late(_Fresh(program, self._adapter, "K"), final, program.shape, self._adapter) if self.is_late else final
        )

    def _checked(self, program: BlockedProgram, casting: Casting, at_once: int) -> Target:
        """The target that writes to ``out``, if it can take the result."""
        out, adapter, numpy = opened_here(self._out), self._adapter, get_backend("numpy")
        kind = type_name(type(out))
        framework = owner(out)
        if framework is None and not (is_stored(out) and hasattr(out, "__setitem__")):
            raise BackendError(
                f"out= is a {kind}, which lacks a shape, a dtype or assignment to slices; pass an array, a memory map "
                "or a dataset"
            )
        if tuple(out.shape) != program.shape:
            raise SizeError(
                f"out= has shape {shown(tuple(out.shape))} but the result has shape {shown(program.shape)}\n"
                f"  {excerpt(program.equation)}"
            )
        dtype = (framework or numpy).dtype_name(out.dtype)
        check_out_dtype(program.dtype, dtype, casting, out.dtype)
        if getattr(out, "read_only", False) is True or getattr(getattr(out, "file", None), "mode", "") == "r":
            raise BackendError(f"out= is a {kind} that is open read-only; open it with mode 'r+'")
        if framework is None:
            return _Host(self._out, adapter, itemsize(program.dtype), at_once)
        out_of(framework).check(out, [array for array in map(opened_here, self._operands) if owner(array) is framework])
        device = framework.device(out)
        is_on_device = framework is adapter and (device == program.device or not device or not program.device)
        if not is_on_device and not is_host(device):
            raise BackendError(
                f"out= is on {device}, but {adapter.name} computes the result on {program.device}; move it there, or "
                "to the host"
            )
        if framework is numpy:
            return _Host(self._out, adapter, itemsize(program.dtype), at_once)
        if is_on_device:
            return _Array(out, adapter, lambda block: blocks_of(adapter).move(block, device))
        return _Array(out, framework, lambda block: framework.from_numpy(adapter.to_numpy(block)))


def _has_any_order(equation: SizedEquation) -> bool:
    """Whether a result is in every memory order at once: at most one axis is long, and it is no view of an operand."""
    return sum(size > 1 for size in equation.shape) < 2 and not equation.is_rearrangement


# -- overlap ------------------------------------------------------------------------------------------------------


def overlap(out: Any, operand: Any) -> bool:
    """Whether writing to ``out`` may change the operand."""
    out, operand = opened_here(out), opened_here(operand)
    if operand is out:
        return True
    numpy = get_backend("numpy")
    out_memory, operand_memory = _in_memory(out), _in_memory(operand)
    if out_memory is not None and operand_memory is not None and out_of(numpy).may_overlap(out_memory, operand_memory):
        return True
    framework = owner(out)
    if out_memory is None and framework is not None:
        return framework is owner(operand) and (framework.out is None or framework.out.may_overlap(out, operand))
    return in_one_place(
        out if out_memory is None else out_memory, operand if operand_memory is None else operand_memory
    )


def _in_memory(array: Any) -> Any:
    """A NumPy array with the memory of an operand; None if there is none."""
    framework = owner(array)
    if framework is not None and framework.name == "numpy":
        return framework.plain(array)
    if framework is None or framework.blocks is None or framework.device(array) != "cpu":
        return None
    if type(framework.blocks).in_place is BlockAccess.in_place:
        return None
    with suppress(TypeError):  # NumPy lacks the dtype
        return framework.to_numpy(array)
    return None
