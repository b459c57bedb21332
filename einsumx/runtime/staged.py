"""From an equation to kernels in three stages, for calls without keywords but ``optimize=``.

A new text pays for its labels and dtypes, a new layout for the strides of arrays, and a new size for sizes alone. No
program is made; :mod:`einsumx.runtime.prepare` makes one from the same recipes when somebody asks for the plan, and all
other calls go there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from einsumx.caches import Table, when_cleared
from einsumx.imports import LazyModule
from einsumx.ir.algebra import PLUS_TIMES
from einsumx.ir.bind import SizedEquation
from einsumx.ir.contraction import Contraction
from einsumx.ir.operand import has_many_windows
from einsumx.measuring import wisdom
from einsumx.measuring.calibration import place_of
from einsumx.planner import clear
from einsumx.planner.clear import Roles
from einsumx.planner.rules import Rules, rules_of
from einsumx.runtime import equations, execute

if TYPE_CHECKING:
    from einsumx import log
    from einsumx.adapters.base import Adapter, Run, Signature
    from einsumx.ir.contraction import Place
    from einsumx.ir.operand import Operand, Path
    from einsumx.runtime import dtype_rules, front
    from einsumx.runtime.request import Written
else:
    log, front = LazyModule("einsumx.log"), LazyModule("einsumx.runtime.front")
    dtype_rules = LazyModule("einsumx.runtime.dtype_rules")


class Form(NamedTuple):
    """A call without the shapes and the strides of its arrays.

    Attributes:
        roles: those of the equation's labels.
        place: where it is computed.
        rules: of the framework, for the dtype of the result; None if such calls need a program.
    """

    roles: Roles
    place: Place
    rules: Rules | None


_forms: Table[Form] = Table(maxsize=4096)
"""By adapter, equation or roles, the number of axes of each operand, and their types, dtypes and devices."""
when_cleared(_forms.cache_clear)


def run_of(adapter: Adapter, written: Written, signatures: Sequence[Signature], optimize: Any = "auto") -> Run | None:
    """The function for operands of these signatures; None if they need a program.

    Args:
        adapter: of the operands.
        written: the equation.
        signatures: those of the operands.
        optimize: how to find a path, or the path.

    Raises:
        EinsumxError: the equation is wrong, or an operand's dtype is not one of numbers.
    """
    if type(optimize) not in (str, bool, tuple, list) or ("logging" in sys.modules and log.tells_notes()):
        return None
    ranks, kinds = tuple(map(len, map(_SHAPE, signatures))), tuple(map(adapter.kind_of, signatures))
    operands = list(map(adapter.operand, signatures))
    form = _forms.known.get((adapter, written, ranks, kinds))
    if form is None:
        roles = equations.roles_of(written, ranks)
        form = _forms.known.get((adapter, roles, ranks, kinds))
        if form is None:
            form = _forms.keep((adapter, roles, ranks, kinds), _new_form(adapter, roles, signatures, operands))
        _forms.keep((adapter, written, ranks, kinds), form)
    roles, place, rules = form
    if rules is None:
        return None
    sizes = _sizes(roles, operands)
    if sizes is None:
        return None
    path: Path = ()
    if len(operands) > 2 or not (optimize is True or optimize is False or optimize == "auto"):
        path = front.searched_path(_sized(roles, operands, sizes), optimize, operands, place, rules.dtype, adapter)
    parts = clear.clear_parts(roles, operands, path, sizes, rules)
    run = None if parts is None else execute.run_of_parts(parts, adapter, len(operands), rules)
    if run is None or prod(sizes) < adapter.least_recorded:
        return run
    equation = _sized(roles, operands, sizes)
    ops = [step.op for part in parts or () for step in part.calls.steps]
    return adapter.recording(run, Contraction(equation, tuple(operands), rules.dtype, path, place), ops)


_SHAPE = itemgetter(1)


def _new_form(adapter: Adapter, roles: Roles, signatures: Sequence[Signature], operands: Sequence[Operand]) -> Form:
    devices = set(map(adapter.device_of, signatures))
    device = min(devices, default="")
    place = place_of(PLUS_TIMES, adapter, device)
    if not roles.inputs or len(devices) > 1:
        return Form(roles, place, None)
    dtypes = set(map(_dtype_of, operands))
    dtype = operands[0].dtype if len(dtypes) == 1 else dtype_rules.promoted(adapter, operands)
    dtypes.add(dtype)
    served, known, rules = place.traits.dtypes, wisdom.equations(adapter, device), rules_of(place.traits, dtype)
    is_served = rules.is_direct and "object" not in dtypes and (served is None or dtypes <= served)
    return Form(roles, place, rules if is_served and not (known and roles.text in known) else None)


_shape_of, _dtype_of = attrgetter("shape"), attrgetter("dtype")


def _sized(roles: Roles, operands: Sequence[Operand], sizes: tuple[int, ...]) -> SizedEquation:
    return SizedEquation(roles.text, roles.inputs, roles.output, sizes, tuple(map(_shape_of, operands)))


def _sizes(found: Roles, operands: Sequence[Operand]) -> tuple[int, ...] | None:
    """The size of each label; None if one is unknown, an axis does not fit, a dtype is weak, or windows are many."""
    sizes = [-1] * found.count
    for labels, operand in zip(found.inputs, operands):
        if operand.weak or operand.nnz is not None or (operand.strides is not None and has_many_windows(operand)):
            return None
        for label, size in zip(labels, operand.shape):
            known = sizes[label]
            if known != size and (size != 1 or known < 0):
                if known not in (-1, 1) or type(size) is not int:
                    return None
                sizes[label] = size
    return tuple(sizes)
