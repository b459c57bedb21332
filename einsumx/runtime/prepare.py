"""From a contraction to a function that runs it: plan and compile, behind the cache of plans.

The cache is keyed by contraction, so calls that mean the same share a plan, however they are written. Arrays that
differ only in the gaps between their rows share one too, because a contraction has classes of layouts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from einsumx.caches import cached
from einsumx.errors import EinsumxError
from einsumx.imports import LazyModule
from einsumx.ir.algebra import PLUS_TIMES
from einsumx.ir.program import Program
from einsumx.measuring import effort, wisdom
from einsumx.planner.lower import lower
from einsumx.runtime import execute, staged
from einsumx.runtime.conversion import check_byte_order, described, one_device
from einsumx.runtime.front import contraction
from einsumx.runtime.request import STAGED, Request, as_key, from_key

if TYPE_CHECKING:
    from einsumx import log
    from einsumx.adapters.base import Adapter, Array, Run, Signature
    from einsumx.adapters.options import FrameworkOptions
    from einsumx.ir import text
    from einsumx.ir.contraction import Contraction
    from einsumx.measuring import findings
    from einsumx.runtime import measured
    from einsumx.runtime.execute import Folded
    from einsumx.runtime.request import Key, Written
else:
    log, text = LazyModule("einsumx.log"), LazyModule("einsumx.ir.text")
    findings, measured = LazyModule("einsumx.measuring.findings"), LazyModule("einsumx.runtime.measured")


@dataclass
class Prepared:
    """A program, and the function that runs it on arrays of its shapes, dtypes and layouts.

    Attributes:
        run: the function of the operands that are not constant.
        planned: the fields of :class:`Planned`, or a function that makes them, where the function needs none.
    """

    run: Run
    planned: Planned | Callable[[], Planned]

    def plan(self) -> Planned:
        """The program, and what constants leave of it."""
        if not isinstance(self.planned, Planned):
            self.planned = self.planned()
        return self.planned

    @property
    def program(self) -> Program:
        """The program."""
        return self.plan().program


class Planned(NamedTuple):
    """What a function runs.

    Attributes:
        program: the program.
        left: what constants leave of it, if the function always runs that, as the framework does by default; None if
            other programs are tried, an option of the framework is set, or sizes are unknown.
    """

    program: Program
    left: Folded | None = None


def prepare(request: Request, adapter: Adapter, arrays: Sequence[Array]) -> Prepared:
    """The plan of a call and the function that runs it on plain arrays.

    Args:
        request: the call, in the framework's terms; its own operands are not used.
        adapter: the framework's.
        arrays: the operands.
    """
    signatures = adapter.signatures(request.written, arrays)
    if request.framework or request.effort is not None or not isinstance(request.optimize, str | bool | tuple):
        return from_signatures(request, adapter, signatures)  # an optimizer object may find another path next time
    mode = adapter.planning_mode(adapter.device_of(signatures[0]) if signatures else "")
    key = as_key(request.planning())
    return by_signatures(adapter, request.written, mode, effort.get_effort(), key, *signatures)


@cached("signatures")
def by_signatures(
    adapter: Adapter, written: Written, mode: Hashable, level: str, key: Key, *signatures: Signature
) -> Prepared:
    """The same by :meth:`~einsumx.adapters.arrays.Arrays.planning_mode`, effort, other fields, and signatures."""
    fields = from_key(key)
    request = Request(written, (), **fields)
    if mode is None and level == "estimate" and fields.keys() <= STAGED:
        with suppress(EinsumxError):  # which from_signatures raises with its full message
            run = staged.run_of(adapter, written, signatures, request.optimize)
            if run is not None:
                return Prepared(run, lambda: from_signatures(request, adapter, signatures).plan())
    return from_signatures(request, adapter, signatures)


def from_signatures(
    request: Request,
    adapter: Adapter,
    signatures: Sequence[Signature],
    constants: Mapping[int, Array] | None = None,
) -> Prepared:
    """The same for arrays of these signatures; the function takes the operands that are not ``constants``."""
    operands, device = described(adapter, signatures), one_device(adapter, signatures)
    asked = contraction(request, adapter, operands, device, are_there=True)
    mode = None if adapter.is_mode_set is None else adapter.planning_mode(device)
    options = request.options if request.framework else None
    has_unknown = asked.operands is not operands  # unknown sizes have names now, or those of other operands
    settings = adapter, options, has_unknown, request.is_path_free, request.is_measured, mode
    prepared: Prepared = runnable(asked, *settings, constants) if constants else by_contraction(asked, *settings)
    if request.casting == "no" and not prepared.program.returns_view:
        check_byte_order([signature[2] for signature in signatures])
    return prepared if constants or options is not None or has_unknown else _recording(prepared, adapter, asked)


def _recording(prepared: Prepared, adapter: Adapter, asked: Contraction) -> Prepared:
    """The same, with the function as :meth:`~einsumx.adapters.base.Adapter.recording` wraps it."""
    if prod(asked.equation.sizes) < adapter.least_recorded or asked.algebra is not PLUS_TIMES or asked.accumulate:
        return prepared
    run = adapter.recording(prepared.run, asked, prepared.program.ops)
    return prepared if run is prepared.run else Prepared(run, prepared.planned)


def runnable(
    asked: Contraction,
    adapter: Adapter,
    options: FrameworkOptions | None = None,
    has_unknown: bool = False,
    is_path_free: bool = True,
    is_measured: bool = False,
    _: Hashable = None,
    constants: Mapping[int, Array] | None = None,
) -> Prepared:
    """The program of a contraction, and the function that runs it, or that tries its candidates first.

    With operands of unknown size, which are traced, none is tried.

    Args:
        asked: what to compute.
        adapter: the framework's.
        options: the keywords that only some frameworks have.
        has_unknown: whether the function has to find out sizes, and check those that have to be equal.
        is_path_free: whether a measured plan may have another path.
        is_measured: whether to try candidates.
        _: the :meth:`~einsumx.adapters.arrays.Arrays.planning_mode` in which the function is made.
        constants: operands that are known already, by position; the function takes the others.
    """
    program = plan(asked, adapter, is_path_free)
    if options is not None:
        adapter = adapter.configured(options)
    if has_unknown:
        of_any_size = execute.run_of_any_size(program, adapter, constants)
        return Prepared(of_any_size, Planned(program))
    run = measured.trying(adapter, asked, is_path_free, constants) if is_measured else None
    if run is not None:
        return Prepared(run, Planned(program))
    left = execute.folded(program, adapter, constants)
    return Prepared(execute.run_of(program, adapter, left), Planned(program, left if options is None else None))


by_contraction = cached("plans")(runnable)


def plan(asked: Contraction, adapter: Adapter, is_path_free: bool = True) -> Program:
    """The program of a contraction: the one that the wisdom has, or else the planner's.

    This needs no array, and imports no framework if all dtypes are equal.
    """
    program: Program | None = None
    known = wisdom.equations(adapter, asked.place.device) if asked.algebra is PLUS_TIMES else ()
    if known and findings.equation_text(asked.equation) in known:  # much faster than the key of a contraction
        program = measured.remembered(adapter, asked, is_path_free)
    if program is None:
        program = lower(asked) if asked.algebra is PLUS_TIMES else planned(asked)
    if "logging" in sys.modules and log.tells_notes():
        text.tell_plan(program, adapter)
    return program


def planned(asked: Contraction, choices: Sequence[str] = ()) -> Program:
    """The planner's program, with the candidates for its steps that have these names."""
    program: Program = asked.algebra.lowered(lower(asked, choices))
    return program
