"""``einsum`` under a memory limit: operands are read and the result is written block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING, Any

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.facets import blocks_of
from einsumx.adapters.registry import get_backend, owner
from einsumx.algebra.semiring import SemiringAlgebra
from einsumx.blocked.boxes import BlockIndex
from einsumx.blocked.cost import ResultFootprint
from einsumx.blocked.plan import blocked_program, in_units, too_small
from einsumx.blocked.program import BlockedContraction, BlockedProgram
from einsumx.blocked.stage_programs import StagePrograms
from einsumx.blocked.text import log_blocks
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError, BlockError, MemoryLimitError, SizeError, counted, excerpt, shown
from einsumx.host.free_memory import is_out_of_memory
from einsumx.imports import LazyModule
from einsumx.ir.algebra import Algebra
from einsumx.ir.contraction import Contraction
from einsumx.ir.operand import Operand
from einsumx.log import log, warn
from einsumx.runtime import front
from einsumx.runtime.conversion import check_byte_order, check_operand
from einsumx.runtime.limits import Progress, limit_bytes
from einsumx.runtime.programs import is_as_broadcast
from einsumx.runtime.request import Request
from einsumx.runtime.results import result_order
from einsumx.storage.array_files import check_whole, stored_name
from einsumx.storage.maps import give_back
from einsumx.streaming.blocks import Blocks, compute
from einsumx.streaming.pieces import bytes_at_once, library_bytes
from einsumx.streaming.progress import Ledger, Reported
from einsumx.streaming.readers import Reader, Source, framework_of, is_traced, sources
from einsumx.streaming.scheduler import Concurrency, Values, Workload
from einsumx.streaming.writers import Output

if TYPE_CHECKING:
    from einsumx.blocked import derivatives
    from einsumx.blocked import journal as journals
    from einsumx.blocked.derivatives import Passes
    from einsumx.blocked.journal import Journal
    from einsumx.streaming import devices as several
    from einsumx.streaming import executors, traced
    from einsumx.streaming import fingerprints as prints
    from einsumx.streaming.devices import Devices
    from einsumx.streaming.executors import WorkerPool
else:
    derivatives = LazyModule("einsumx.blocked.derivatives")
    executors = LazyModule("einsumx.streaming.executors")
    several = LazyModule("einsumx.streaming.devices")
    prints = LazyModule("einsumx.streaming.fingerprints")
    traced = LazyModule("einsumx.streaming.traced")
    journals = LazyModule("einsumx.blocked.journal")

_GIVEN_BACK = 0.1e-9
"""Seconds in which a process gives back a byte of a mapped file, and finds it again where it is read once more."""


@dataclass(frozen=True, slots=True)
class Limited(Workload):
    """A contraction that is ready to run under a limit.

    Attributes:
        within: plans the same contraction under another limit in bytes, without a journal; None for a fixed plan.
        resume: the path of the journal; None for none.
        pool: an executor or several devices; None if the caller computes the blocks.
        operands: the arrays, with the framework's own as plain arrays.
        passes: the backward passes; None if the framework records nothing.
        alpha: the factor of the result, which the journal names.
    """

    within: Callable[[int], Limited] | None = None
    resume: str | os.PathLike[str] | None = None
    pool: WorkerPool | Devices | None = None
    operands: Sequence[Any] = ()
    passes: Passes | None = None
    alpha: Any = 1


# -- planning -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SourcedRequest:
    """A request with a source for each operand, and with the pool or devices that compute.

    It is no tuple, as torch.compile traces functions that are called with tuples of tensors.

    Attributes:
        adapter: that of the framework.
        contraction: the contraction, with the operands as the computing devices read them.
        request: the call, in the framework's terms.
        operands: the arrays, with the framework's own as plain arrays.
        sources: how the computing devices read the operands.
        own_sources: how the caller reads them.
        devices: the devices that compute; empty for the framework's default.
        pool: an executor or several devices; None if the caller computes the blocks.
    """

    adapter: Adapter
    contraction: Contraction
    request: Request
    operands: Sequence[Any]
    sources: Sequence[Source]
    own_sources: Sequence[Source]
    devices: Sequence[str]
    pool: WorkerPool | Devices | None

    def free_bytes(self) -> int | None:
        """The least number of free bytes on any device that computes; None if it is not known."""
        blocks, device = blocks_of(self.adapter), self.contraction.place.device
        free = [blocks.free_bytes(name) for name in self.devices or (device,)]
        known = [count for count in free if count is not None]
        return min(known) if len(known) == len(free) else None

    def blocked(self, limit: int, landing: ResultFootprint) -> BlockedProgram:
        """The plan for a result with this footprint; raises MemoryLimitError."""
        shares = self.pool.concurrency if self.pool is not None else Concurrency()
        request = BlockedContraction(
            self.contraction,
            limit,
            tuple([source.in_place for source in self.sources]),
            landing._replace(waiting=shares.waiting * itemsize(self.contraction.compute_dtype)),
            tuple([source.read_rate for source in self.sources]),
            shares.together,
            shares.pieces,
            is_path_free=self.request.is_path_free,
        )
        return blocked_program(self.adapter, request)

    def passes(self, limit: int, beside: int) -> Passes | None:
        """The backward passes of the contraction; None if the framework records nothing.

        ``beside`` are the bytes that the libraries of stored operands take meanwhile.
        """
        adapter, contraction, optimize = self.adapter, self.contraction, self.request.optimize
        is_own = [owner(array) is adapter for array in self.operands]
        numbers = tuple(
            number for number, array in enumerate(self.operands) if is_own[number] and _records(adapter, array)
        )
        if not numbers:
            return None
        arrays = [
            derivatives.PassArray(Operand(source.operand.shape, source.operand.dtype), in_place=False)
            if own
            else derivatives.PassArray(source.operand, source.in_place, source.read_rate)
            for source, own in zip(self.own_sources, is_own)
        ]
        equation, dtype = contraction.equation, contraction.dtype
        arrays.append(derivatives.PassArray(Operand(equation.shape, dtype), in_place=False))
        has_path = not isinstance(optimize, str | bool)  # a path fits only the contraction itself
        request = Request(
            "", (), dtype=dtype, casting="unsafe", optimize="auto" if has_path else optimize,
            accumulate=contraction.accumulate, algebra=contraction.algebra, effort="estimate",
        )  # fmt: skip
        device = contraction.place.device
        conjugated = contraction.conjugated
        return derivatives.Passes(adapter, device, equation, tuple(arrays), conjugated, request, limit, numbers, beside)


def _records(adapter: Adapter, array: Array) -> bool:
    """Whether somebody may ask for a derivative by an array of a result computed from it now."""
    return adapter.gradients is not None and adapter.gradients.may_be_needed(array)


def _sourced(request: Request, as_copies: bool) -> _SourcedRequest:
    limit = request.limit
    pool: WorkerPool | Devices | None = None
    if limit.executor is not None:
        pool = executors.WorkerPool(limit.executor)
    adapter, operands = framework_of(request.operands, request.adapter)
    blocks = blocks_of(adapter)
    for array in operands:
        if owner(array) is adapter:
            blocks.check_eager(array)
            adapter.synchronize(array)  # other threads may read it
    request = request.named(adapter)
    if request.casting == "no":  # blocks of other byte orders would be computed in the machine's
        check_byte_order([getattr(array, "dtype", None) for array in request.operands])
    names: tuple[str, ...] = ()
    if limit.devices or limit.device:
        names = several.find_devices(adapter, limit.devices or [limit.device])
    own, device = sources(operands, adapter, names[0] if names else "", as_copies=as_copies)
    planned = own
    if len(names) > 1:
        pool = several.Devices(names, (own, *(sources(operands, adapter, name)[0] for name in names[1:])))
        planned = pool.operands()
    described = tuple(source.operand for source in planned)
    contraction = front.contraction(request, adapter, described, device)
    return _SourcedRequest(adapter, contraction, request, operands, planned, own, names, pool)


def plan_within(request: Request, beside: int = 0, as_copies: bool = False) -> Limited:
    """Plan a contraction under a limit; nothing is computed or written.

    If the framework records it, the limit is enough for its gradients, too.

    Args:
        request: the call, with a limit.
        beside: bytes that other arrays take meanwhile.
        as_copies: whether blocks of the framework's own arrays are copied, so that their layout does not matter.

    Raises:
        EinsumxError: as :func:`einsumx.einsum` does.
        ValueError: ``order`` or ``resume`` do not fit the other arguments.
    """
    sourced = _sourced(request, as_copies)
    adapter, contraction = sourced.adapter, sourced.contraction
    order = result_order(request.order, request.out, adapter, sourced.operands)
    factors, resume = request.factors, request.limit.resume
    output = Output(adapter, request.operands, request.out, order, factors)
    is_view = sourced.sources[0].in_place and contraction.operands[0].dtype == contraction.dtype
    footprint = output.footprint(contraction, is_view=contraction.equation.is_rearrangement and is_view)
    limit = limit_bytes(request.limit.amount, sourced.free_bytes)
    stored = [*(source.stored for source in sourced.own_sources), request.out]
    passes = sourced.passes(limit, library_bytes(stored, 0))
    if passes is not None:
        _check_gradients(request, contraction.algebra)
    check_resumable(request)
    least = 0 if passes is None else passes.smallest()
    for at_once in dict.fromkeys((bytes_at_once(stored, limit), 0)):
        libraries = library_bytes(stored, at_once)
        try:
            program = sourced.blocked(limit, footprint._replace(beside=beside + libraries))
            break
        except MemoryLimitError as error:
            if not at_once and least <= (error.smallest or 0):
                raise _with_libraries(error, libraries) from None
    if least > limit:
        raise too_small(limit, least, contraction.equation, "this contraction with its gradients")
    target = output.target(program, request.casting, at_once)
    for source in sourced.sources:
        source.at_once = at_once
    if resume is not None and (output.is_late or not target.outlives):
        raise ValueError(
            "resume= needs an out= that outlives the process, a memory map or a stored array, and that shares "
            "no memory with an operand"
        )

    def within(limit: int) -> Limited:
        on = "" if request.limit.devices else contraction.place.device
        less = replace(request.limit, amount=limit, device=on, resume=None)
        return plan_within(replace(request, memory_limit=less), beside, as_copies)

    return Limited(
        program, adapter, sourced.sources, target, limit - footprint.cut,
        within, resume, sourced.pool, sourced.operands, passes,
        1 if factors is None or factors.alpha == 1 else factors.alpha,
    )  # fmt: skip


def check_resumable(request: Request) -> None:
    """Raise ValueError if blocks would be added twice after an interruption."""
    if request.limit.resume is not None and request.factors is not None and request.factors.beta != 0:
        raise ValueError(
            "resume= cannot be combined with beta=, because after an interruption it is not known which blocks were "
            "added to out= already; write to a new array"
        )


def _with_libraries(error: MemoryLimitError, libraries: int) -> MemoryLimitError:
    """The error, which says so if the libraries of stored arrays take a large part of the smallest limit."""
    if 4 * libraries < (error.smallest or 0):
        return error
    told = MemoryLimitError(
        f"{error}\n  of these, {libraries} bytes{in_units(libraries)} are for the chunks of stored arrays that their "
        "libraries hold; smaller chunks take less, and so do smaller caches, as of h5py.File(..., rdcc_nbytes=0)"
    )
    told.smallest = error.smallest
    return told


def _check_gradients(request: Request, algebra: Algebra) -> None:
    """Raise BackendError if gradients are needed through a keyword that has none under a limit."""
    if isinstance(algebra, SemiringAlgebra):
        raise BackendError(
            f"under memory_limit= there are no gradients in the semiring {algebra.name!r}; omit memory_limit=, "
            "or detach the operands"
        )
    if request.out is not None:
        raise BackendError("under memory_limit= gradients do not flow through out=; omit it and use the result")


# -- running ------------------------------------------------------------------------------------------------------


def run_blocked(program: BlockedProgram, operands: Sequence[Any], out: Any = None) -> Array:
    """Run a blocked plan on operands that it fits.

    Raises:
        SizeError: the number of operands or their shapes differ from the plan's.
        BackendError: their dtypes or devices do; or gradients are requested.
        ValueError: the plan expects an ``out=``.
    """
    text = program.equation
    if len(operands) != len(program.operands):
        raise SizeError(
            f"the plan takes {counted(len(program.operands), 'operand')}, not {len(operands)}\n  {excerpt(text)}"
        )
    adapter, arrays = framework_of(operands, get_backend(program.backend))
    if is_traced(adapter, arrays):
        return traced.planned(program, adapter, arrays, out)
    if program.is_traced:
        raise BackendError(
            f"the plan is of loops in a compiled program; call it while {adapter.name} traces a function, or make a "
            "plan from the operands themselves"
        )
    opened, _ = sources(arrays, adapter, program.device)
    for number, (source, planned, in_place) in enumerate(zip(opened, program.operands, program.in_place)):
        check_operand(number, source.operand, planned, text)
        if source.in_place != in_place:
            there, brought = "is already on the device", "is brought to the device block by block"
            actual, expected = (brought, there) if in_place else (there, brought)
            raise BackendError(
                f"operand {number} {actual}, but the plan expects one that {expected}; make the plan "
                "from the operands themselves"
            )
        array = arrays[number]
        if owner(array) is adapter and _records(adapter, array):
            raise BackendError(
                f"operand {number} requires a gradient, which a plan does not record; call einsumx.einsum"
            )
    described = tuple([source.operand for source in opened])
    if not all(map(is_as_broadcast, described, program.operands)):
        programs = StagePrograms(replace(program.contraction, operands=described), program.in_place)
        program = replace(program, programs=programs)
    output = Output(adapter, operands, out)
    footprint = output.footprint(program.contraction, is_view=False)
    if footprint.cut > program.landing.cut:
        expected = "expects an out=" + ("" if out is None else " that shares no memory with the operands")
        raise ValueError(f"the plan {expected}\n  {excerpt(text)}")
    target = output.target(program, "safe")
    return run_blocks(Limited(program, adapter, opened, target, program.limit - footprint.cut))


def run_blocks(limited: Limited, progress: Progress = False) -> Array:
    """Run a contraction block by block, and return the result; ``progress`` counts runs of a stage, or workers' pieces.

    If memory runs out, it warns and goes on with a plan for half the memory, or for as little as possible. Finished
    blocks stay, unless the new plan cuts them in other places.

    Raises:
        MemoryLimitError: memory ran out, and no plan takes less.
    """
    for number, source in enumerate(limited.sources):
        if source.stored is not None:
            check_whole(f"operand {number}", source.stored)
    journal = None if limited.resume is None else _journal(limited, limited.resume)
    try:
        limited.target.reserve()
        ledger = Ledger(limited.program, journal)
        if journal is not None:
            _verify(ledger, journal, limited)
        log_blocks(limited.program)
        while (error := _out_of_memory(limited, ledger, progress)) is not None:
            limited = _with_less(limited, ledger, error)
            log.info("blocks: memory ran out (%s); continuing with a smaller plan", type(error).__name__)
            log_blocks(limited.program)
        if journal is not None:
            limited.target.sync()
            journal.finish()
        return limited.target.done()
    finally:
        if journal is not None:
            journal.close()


def _journal(limited: Limited, path: str | os.PathLike[str]) -> Journal:
    """The open journal of a contraction."""
    out = limited.target.out

    def fingerprints(before: list[Any]) -> list[Any]:
        pairs = zip_longest(limited.sources, before[: len(limited.sources)])
        try:
            return [prints.fingerprint(source, out, limited.program.limit, was) for source, was in pairs]
        finally:
            for source in limited.sources:
                source.close()

    return journals.Journal(path, limited.program, limited.alpha, fingerprints, stored_name(out))


def _verify(ledger: Ledger, journal: Journal, limited: Limited) -> None:
    """Check the finished blocks in ``out=`` against the journal, and warn if some have changed."""
    recorded, name, file = len(journal.done), stored_name(limited.target.out), os.fspath(limited.resume or "")
    differing = ledger.verify(limited.target)
    if recorded:
        log.info("blocks: %d of %d are done already", recorded - len(differing), limited.program.blocks)
    if not differing:
        return
    why = "out= was replaced or changed since then"
    if journal.was != name:
        here, before = excerpt(name) or "an array without a name", excerpt(journal.was) or "another"
        why = f"out= is {here}, and they were written to {before}"
    warn(
        f"{len(differing)} of the {recorded} finished blocks that resume={shown(file)} names are not in out= as they "
        f"were written, and are computed again; {why}"
    )


def _gives_back(program: BlockedProgram) -> bool:
    """Whether pages of mapped files are given back behind the reader and the writer, as that takes little time."""
    read = sum(operand.nbytes * times for operand, times in zip(program.operands, program.reads))
    return (read + prod(program.shape) * itemsize(program.dtype)) * _GIVEN_BACK < 0.05 * program.seconds


def _out_of_memory(limited: Limited, ledger: Ledger, progress: Progress) -> BaseException | None:
    """Compute and write the blocks that are left; return the error if memory runs out."""
    target, program, is_writing = limited.target, limited.program, False
    left = ledger.left(program.grid)
    missing = set(left)
    gives_back = target.outlives and _gives_back(program)
    for source in limited.sources:
        if source.stored is not None or not source.in_place:
            source.gives_back = _gives_back(program)
            source.is_result = not program.blocking.order and program.contraction.equation.is_rearrangement
    try:
        compute_values = partial(_values, limited) if limited.pool is None else limited.pool.scheduler(limited).values
        values = compute_values(left, progress)
        try:
            for number, block in values:
                box = program.grid.boxes[number]
                if block is not None:  # else its worker has written it
                    is_writing = True
                    target.put(box, block)
                    is_writing = False
                del block
                ledger.add(box, target)
                missing.discard(number)
                if gives_back:
                    give_back(target.out, box)
        finally:
            values.close()
    except Exception as error:
        cause = error.__cause__ if isinstance(error, BlockError) else error
        if cause is None or not is_out_of_memory(cause):
            if isinstance(error, BlockError):
                raise _with_progress(error, limited, len(missing)) from cause
            raise
        # A framework with immutable arrays may lose its fresh result when a block cannot be put into it.
        ledger.forget(everything=is_writing and not target.outlives)
        return cause.with_traceback(None)  # whose frames keep blocks alive
    if missing:
        raise AssertionError(f"blocks {sorted(missing)[:10]} were not computed")
    return None


def _with_progress(error: BlockError, limited: Limited, missing: int) -> BlockError:
    """The error of a block, with what was done before and how to go on."""
    blocks = limited.program.blocks
    how = "with out= on disk and resume=, a later call continues from there"
    if limited.resume is not None:
        how = f"the same call with resume={shown(os.fspath(limited.resume))} continues from there"
    return BlockError(f"{error}\n  blocks done: {blocks - missing} of {blocks}; {how}")


def _with_less(limited: Limited, ledger: Ledger, error: BaseException) -> Limited:
    """The same contraction with a plan that takes less memory, after an error.

    Raises:
        MemoryLimitError: there is none.
    """
    program = limited.program
    ran_out = f"memory ran out under memory_limit={program.limit}{in_units(program.limit)}"
    refused, limit, less = 0, program.limit, limited
    while less.program.peak_bytes >= program.peak_bytes:
        before, limit = limit, (limit + refused) // 2
        if limit == refused or limited.within is None:
            text = excerpt(program.equation)
            raise MemoryLimitError(
                f"{ran_out}, and this contraction cannot be computed in less; free memory, or pass an out= in a "
                f"file\n  {text}"
            ) from error
        try:
            less = limited.within(limit)
        except MemoryLimitError:
            refused, limit = limit, before
    warn(f"{ran_out}; the contraction continues under {limit} bytes{in_units(limit)}: {type(error).__name__}: {error}")
    if not (ledger or limited.target.is_changed):
        return less
    limited.target.cut_anew()
    return replace(less, target=limited.target)


def _values(work: Workload, left: Mapping[int, BlockIndex], progress: Progress) -> Values:
    """Compute the blocks that are left in this thread, while the next ones are read; yield each with its number."""
    program, adapter = work.program, work.adapter
    reads = Blocks.reads(program, left.values())
    with (
        Reported(progress, lambda: Blocks.steps(program, left.values())) as step,
        Reader(work.sources, reads, program.blocking.read_ahead, adapter) as read,
    ):
        blocks = Blocks.computing(program, adapter, step)
        for number, index in left.items():
            yield number, compute(blocks.value(index), read)
            step()  # the block is written and recorded
