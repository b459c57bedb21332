"""``einsum`` under a memory limit: operands are read block by block, and so is the result written."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.registry import get_backend, owner
from einsumx.blocked.cost import ResultFootprint
from einsumx.blocked.derivatives import Passes
from einsumx.blocked.plan import BlockedContraction, blocked_program, in_units, too_small
from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.stages import Stage
from einsumx.blocked.text import tell_blocks
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError, BlockError, MemoryLimitError, SizeError, excerpt, shown
from einsumx.ir.bind import SizedEquation
from einsumx.ir.program import Operand
from einsumx.log import log
from einsumx.runtime.calibration import calibrated
from einsumx.runtime.prepare import check_byte_order, check_operand, served_dtype, sized_equation
from einsumx.runtime.request import Contraction, Options, Progress, Request
from einsumx.runtime.results import result_order
from einsumx.streaming.array_files import check_whole, name_of
from einsumx.streaming.devices import Devices, find_devices
from einsumx.streaming.executors import WorkerPool
from einsumx.streaming.fingerprints import fingerprint
from einsumx.streaming.journal import Journal
from einsumx.streaming.prefetch import Reader
from einsumx.streaming.progress import Ledger, reported
from einsumx.streaming.readers import Source, framework_of, sources
from einsumx.streaming.scheduler import Values, Workload
from einsumx.streaming.walk import Blocks, Place, compute, contracting
from einsumx.streaming.writers import Target, landing, target

__all__ = ["Limited", "plan_within", "run_blocked", "run_blocks"]


@dataclass(frozen=True, slots=True)
class Limited:
    """A contraction that is ready to run under a limit.

    Attributes:
        plan: how it is cut.
        adapter: of the framework that computes.
        sources: how each operand is read.
        target: where the result goes.
        within: the same contraction under another limit in bytes, and without a journal.
        resume: the name of the journal, in which the blocks that are done are written down; None where there is none.
        pool: who computes blocks: an executor or several devices; None for the caller alone.
        room: bytes of the limit that the result leaves.
        operands: as the framework takes them.
        passes: the backward passes; None where the framework records nothing.
    """

    plan: BlockedProgram
    adapter: Adapter
    sources: tuple[Source, ...]
    target: Target
    within: Callable[[int], Limited]
    resume: str | os.PathLike[str] | None = None
    pool: WorkerPool | Devices | None = None
    room: int = 0
    operands: Sequence[Any] = ()
    passes: Passes | None = None


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The operands of a contraction under a limit, and who reads them where.

    It is no tuple, as torch.compile looks into functions that are called with tuples of tensors.

    Attributes:
        contraction: of the operands as those read them who compute.
        operands: as the framework takes them.
        sources: how each is read by those who compute.
        own: how each is read by the caller.
        places: the devices that compute; none where that is the framework's default.
        pool: who computes blocks; None for the caller alone.
    """

    contraction: Contraction
    operands: Sequence[Any]
    sources: Sequence[Source]
    own: Sequence[Source]
    places: Sequence[str]
    pool: WorkerPool | Devices | None

    def limit_bytes(self, request: Request) -> int:
        """The limit, of which a fraction is one of what is free where it is computed."""
        adapter, device = self.contraction.adapter, self.contraction.device
        return request.limit_bytes(lambda: _free_bytes(adapter, self.places or (device,)))

    def blocked(self, limit: int, landing: ResultFootprint) -> BlockedContraction:
        """What the planner of blocks is asked."""
        traits, pool = calibrated(self.contraction.adapter, self.contraction.device), self.pool
        return BlockedContraction(
            self.contraction,
            limit,
            tuple(source.lies_there for source in self.sources),
            landing,
            tuple(source.read_rate or traits.rates.copy for source in self.sources),
            pool.together if pool is not None else 1,
            pool.pieces if pool is not None else 1,
        )


def plan_within(request: Request, beside: int = 0, as_copies: bool = False) -> Limited:
    """How a contraction of these operands runs under a limit; nothing is computed or written.

    Where the framework records it, the limit is enough for its gradients, too.

    Args:
        request: what is asked, with a limit.
        beside: bytes that are there meanwhile, and count.
        as_copies: whether blocks of the framework's own arrays are copied, so that it does not matter how these lie.

    Raises:
        EinsumxError: as :func:`einsumx.einsum` does.
        ValueError: ``order`` or ``resume`` make no sense here.
    """
    inputs = _inputs(request, as_copies)
    adapter, written, described, device, options = inputs.contraction
    given, out = request.operands, request.out
    traits = calibrated(adapter, device)
    dtype = served_dtype(inputs.contraction, traits)
    order = result_order(request.order, out, adapter, inputs.operands)
    sized = sized_equation(written, [operand.shape for operand in described])
    computed = dict(traits.widen).get(dtype, dtype)
    copied_for = "K" if _has_any_order(sized) else order
    pool = inputs.pool
    lands, late = landing(out, given, adapter, sized.shape, computed, dtype, copied_for)
    limit = inputs.limit_bytes(request)
    passes = _passes(inputs, sized, dtype, limit)
    if passes is not None and out is not None:
        raise BackendError("under memory_limit= no gradients go through out=; leave it away and use the result")
    least = 0 if passes is None else passes.smallest()
    try:
        waiting = pool.waiting * itemsize(computed) if pool is not None else 0
        plan = blocked_program(inputs.blocked(limit, lands._replace(beside=beside, waiting=waiting)))
    except MemoryLimitError as error:
        if least <= (error.smallest or 0):
            raise
    if least > limit:
        raise too_small(limit, least, sized, "this contraction with its gradients")
    goes = target(plan, adapter, given, out, order, options.casting, late)
    if request.resume is not None and (late or not goes.outlives):
        raise ValueError(
            "resume= needs an out= that outlives the process, a memory map or a stored array, and that shares "
            "no memory with an operand"
        )

    def within(limit: int) -> Limited:
        where = "" if request.devices else device
        return plan_within(replace(request, memory_limit=limit, device=where, resume=None), beside, as_copies)

    return Limited(
        plan, adapter, tuple(inputs.sources), goes, within, request.resume, pool,
        plan.limit - lands.cut, inputs.operands, passes,
    )  # fmt: skip


def _inputs(request: Request, as_copies: bool) -> _Inputs:
    """The operands of a request, and who reads them."""
    devices, executor = request.devices, request.executor
    if devices and (request.device or executor is not None):
        other = "device" if request.device else "executor"
        raise ValueError(f"devices= says where all is computed; leave {other}= away")
    pool: WorkerPool | Devices | None = WorkerPool(executor) if executor is not None else None
    adapter, operands = framework_of(request.operands, request.adapter)
    for array in operands:
        if owner(array) is adapter:
            adapter.check_eager(array)
            adapter.synchronize(array)  # which other threads are going to read
    options = request.options(adapter)
    if options.casting == "no":  # blocks of other byte orders would be computed in the machine's
        check_byte_order([getattr(array, "dtype", None) for array in request.operands])
    places = find_devices(adapter, devices or [request.device] if devices or request.device else [])
    own, device = sources(operands, adapter, places[0] if places else "", as_copies=as_copies)
    found = own
    if len(places) > 1:
        pool = Devices(places, (own, *(sources(operands, adapter, name)[0] for name in places[1:])))
        found = pool.operands()
    described = tuple(source.operand for source in found)
    contraction = Contraction(adapter, request.written, described, device, options)
    return _Inputs(contraction, operands, found, own, places, pool)


def _has_any_order(equation: SizedEquation) -> bool:
    """Whether a result is in every memory order at once: at most one axis is long, and it is no view of an operand."""
    is_rearranged = len(equation.inputs) == 1 and set(equation.inputs[0]) <= set(equation.output)
    return sum(size > 1 for size in equation.shape) < 2 and not is_rearranged


def _passes(inputs: _Inputs, sized: SizedEquation, dtype: str, limit: int) -> Passes | None:
    """The backward passes of a contraction; None where the framework records nothing of it.

    Args:
        inputs: its operands.
        sized: the equation.
        dtype: of the result.
        limit: in bytes.
    """
    adapter, _, _, device, options = inputs.contraction
    is_own = [owner(array) is adapter for array in inputs.operands]
    numbers = [number for number, array in enumerate(inputs.operands) if is_own[number] and adapter.records(array)]
    if not numbers:
        return None
    traits = calibrated(adapter, device)
    has_path = not isinstance(options.optimize, str | bool)  # which is one for the contraction itself
    return Passes(
        adapter,
        device,
        sized,
        (*(source.operand for source in inputs.own), Operand(sized.shape, dtype)),
        (*(source.lies_there for source in inputs.own), adapter.cpu.strided),
        (*(source.read_rate or traits.rates.copy for source in inputs.own), traits.rates.copy),
        (*is_own, True),
        Options(dtype, "unsafe", "auto" if has_path else options.optimize),
        dict(traits.widen).get(dtype, dtype),
        limit,
        tuple(numbers),
    )


def run_blocked(plan: BlockedProgram, given: Sequence[Any], out: Any = None) -> Array:
    """Run a blocked plan as it is.

    Raises:
        SizeError: the number of operands or their shapes are not the plan's.
        BackendError: their dtypes are not, nor where they lie; or gradients are asked for.
        ValueError: the plan counts on an ``out=``.
    """
    text = plan.equation.text
    if len(given) != len(plan.operands):
        raise SizeError(f"the plan takes {len(plan.operands)} operands, not {len(given)}\n  {excerpt(text)}")
    adapter, operands = framework_of(given, get_backend(plan.backend))
    found, _ = sources(operands, adapter, plan.device)
    for number, (source, planned, in_place) in enumerate(zip(found, plan.operands, plan.in_place)):
        check_operand(number, source.operand, planned, text)
        if source.lies_there != in_place:
            there, brought = "lies where it is computed", "is brought there block by block"
            found_so, planned_so = (brought, there) if in_place else (there, brought)
            raise BackendError(
                f"operand {number} {found_so}, but the plan is made for one that {planned_so}; make the "
                "plan from the operands themselves"
            )
        array = operands[number]
        if owner(array) is adapter and adapter.records(array):
            raise BackendError(
                f"operand {number} asks for a gradient, which a plan does not record; call einsumx.einsum"
            )
    lands, late = landing(out, given, adapter, plan.shape, plan.compute_dtype, plan.dtype, "K")
    if lands.cut > plan.landing.cut:
        raise ValueError(f"the plan counts on an out= that shares no memory with the operands\n  {excerpt(text)}")
    goes = target(plan, adapter, given, out, "K", "safe", late)
    return run_blocks(Limited(plan, adapter, tuple(found), goes, _no_other, room=plan.limit - lands.cut))


def _no_other(limit: int) -> Limited:
    raise MemoryLimitError(f"a plan runs as it is, and so there is none for {limit} bytes")


def _free_bytes(adapter: Adapter, devices: Sequence[str]) -> int | None:
    """Bytes that are free on that of the devices which has least; None where that is not known."""
    found = [adapter.free_bytes(device) for device in devices]
    known = [free for free in found if free is not None]
    return min(known) if len(known) == len(found) else None


def run_blocks(limited: Limited, progress: Progress = False) -> Array:
    """Run a blocked plan, and write each block of the result where it belongs.

    Where memory runs out, it goes on, with a warning, by a plan for half of it, or for as little as there is one for:
    blocks of the result that are written stay, but for those that the new plan cuts in other places.

    Args:
        limited: the plan, and what it reads and writes.
        progress: how far it is is told there: in runs of a stage, or in pieces that workers have computed.

    Raises:
        MemoryLimitError: memory ran out, and there is no plan that takes less.
    """
    for number, source in enumerate(limited.sources):
        if source.stored is not None:
            check_whole(f"operand {number}", source.stored)
    with _journal(limited) as journal:
        limited.target.reserve()
        ledger = Ledger(limited.plan, journal)
        if journal is not None:
            _verify(ledger, journal, limited)
        tell_blocks(limited.plan)
        while (error := _ran_out(limited, ledger, progress)) is not None:
            limited = _with_less(limited, ledger, error)
            log.info("blocks: memory ran out (%s), a smaller plan goes on", type(error).__name__)
            tell_blocks(limited.plan)
        if journal is not None:
            limited.target.sync()
            journal.finish()
        return limited.target.done()


@contextmanager
def _journal(limited: Limited) -> Iterator[Journal | None]:
    """The journal of a contraction, open, if it has one."""
    if limited.resume is None:
        yield None
        return
    out = limited.target.out

    def known(before: list[Any]) -> list[Any]:
        pairs = zip_longest(limited.sources, before[: len(limited.sources)])
        try:
            return [fingerprint(source, out, limited.plan.limit, was) for source, was in pairs]
        finally:
            for source in limited.sources:
                source.close()

    with closing(Journal(limited.resume, limited.plan, known, name_of(out))) as journal:
        yield journal


def _verify(ledger: Ledger, journal: Journal, limited: Limited) -> None:
    """See that the blocks that the journal has are in ``out=`` as they were written; a warning says which are not."""
    recorded, name, file = len(journal.done), name_of(limited.target.out), os.fspath(limited.resume or "")
    differing = ledger.verify(limited.target)
    if recorded:
        log.info("blocks: %d of %d are done already", recorded - len(differing), limited.plan.blocks)
    if not differing:
        return
    why = "out= was made anew or changed since"
    if journal.was != name:
        here, before = excerpt(name) or "an array without a name", excerpt(journal.was) or "another"
        why = f"out= is {here}, and they were written to {before}"
    warnings.warn(
        f"{len(differing)} of the {recorded} finished blocks that resume={shown(file)} names are not in out= as they "
        f"were written, and are computed again; {why}",
        RuntimeWarning,
        stacklevel=6,
    )


def _ran_out(limited: Limited, ledger: Ledger, progress: Progress) -> BaseException | None:
    """Write the blocks that are left; None, or the error that says that memory ran out before they all were."""
    plan, adapter, target = limited.plan, limited.adapter, limited.target
    outline = Blocks.outline(plan)
    left = {number: place for number, place in enumerate(outline.places()) if not ledger.has(outline.box(place))}
    missing = set(left)
    is_writing = False
    try:
        if limited.pool is None:
            values = _one_by_one(limited, left, progress)
        else:
            work = Workload(plan, adapter, limited.sources, limited.room, target)
            values = limited.pool.values(work, left, progress)
        with closing(values):
            for number, block in values:
                box = outline.box(left[number])
                if block is not None:  # else its worker has written it
                    is_writing = True
                    target.put(box, block)
                    is_writing = False
                del block
                ledger.add(box, target)
                missing.discard(number)
    except Exception as error:
        cause = error.__cause__ if isinstance(error, BlockError) else error
        if cause is None or not adapter.is_out_of_memory(cause):
            raise
        # A fresh result of a framework whose arrays are never written to is lost when a block cannot be put into it.
        ledger.forget(everything=is_writing and not target.outlives)
        return cause.with_traceback(None)  # whose frames hold on to blocks
    if missing:
        raise AssertionError(f"blocks {sorted(missing)[:10]} were not computed")
    return None


def _with_less(limited: Limited, ledger: Ledger, error: BaseException) -> Limited:
    """The same contraction by a plan that takes less memory, to go on with after an error.

    Raises:
        MemoryLimitError: there is none.
    """
    plan = limited.plan
    refused, limit, less = 0, plan.limit, limited
    while less.plan.peak_bytes >= plan.peak_bytes:
        before, limit = limit, (limit + refused) // 2
        if limit == refused:
            raise MemoryLimitError(
                f"memory ran out under memory_limit={plan.limit}{in_units(plan.limit)}, and this contraction cannot be "
                "computed in less\n"
                f"  {excerpt(plan.equation.text)}"
            ) from error
        try:
            less = limited.within(limit)
        except MemoryLimitError:
            refused, limit = limit, before
    warnings.warn(
        f"memory ran out under memory_limit={plan.limit}{in_units(plan.limit)}; the contraction goes on under {limit} "
        f"bytes{in_units(limit)}: {type(error).__name__}: {error}",
        RuntimeWarning,
        stacklevel=6,
    )
    return replace(less, target=limited.target if ledger else less.target)


def _one_by_one(limited: Limited, left: Mapping[int, Place], progress: Progress) -> Values:
    """The blocks at the places that are left, while the next ones are read."""
    plan, adapter = limited.plan, limited.adapter
    reads = Blocks.reads(plan, left.values()) if plan.blocking.order else None
    with (
        reported(progress, lambda: Blocks.steps(plan, left.values())) as step,
        Reader(limited.sources, reads, plan.blocking.read_ahead, adapter.carried) as read,
    ):
        run = contracting(plan, adapter)

        def contract(stage: Stage, arrays: Sequence[Array]) -> Array:
            value = run(stage, arrays)
            step()
            return value

        blocks = Blocks(plan, contract, adapter.add)
        for number, place in left.items():
            yield number, compute(blocks.value(place), read)
