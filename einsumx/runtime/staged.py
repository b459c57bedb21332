"""From the text of a call without keywords to kernels, in three stages, where the planner needs no search.

A new text pays for what it says, a new layout for how its arrays lie, and a new size for sizes alone. No op and no
program is made; :mod:`einsumx.runtime.prepare` makes them from the same recipes when somebody looks, and all other
calls go there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from einsumx.imports import LazyModule
from einsumx.ir.algebra import PLUS_TIMES
from einsumx.ir.bind import SizedEquation
from einsumx.ir.contraction import Contraction
from einsumx.ir.operand import has_many_windows
from einsumx.measuring import wisdom
from einsumx.measuring.calibration import place_of
from einsumx.planner import clear
from einsumx.planner.clear import Roles
from einsumx.planner.rules import rules_of
from einsumx.runtime import equations, execute
from einsumx.runtime.dtype_rules import promoted

if TYPE_CHECKING:
    from einsumx import log
    from einsumx.adapters.base import Adapter, Run, Signature
    from einsumx.ir.operand import Operand, Path
    from einsumx.runtime import front
    from einsumx.runtime.request import Written
else:
    log, front = LazyModule("einsumx.log"), LazyModule("einsumx.runtime.front")


def run_of(adapter: Adapter, written: Written, signatures: Sequence[Signature], optimize: Any = "auto") -> Run | None:
    """The function for operands of these signatures, if it is clear without a search; otherwise None.

    Args:
        adapter: of the operands.
        written: the equation.
        signatures: those of the operands.
        optimize: how to find a path, or the path.

    Raises:
        EinsumxError: the equation is wrong, or an operand's dtype is not one of numbers.
    """
    if type(optimize) not in (str, bool, tuple, list) or ("logging" in sys.modules and log.tells_plans()):
        return None
    operands = list(map(adapter.operand, signatures))
    try:
        numbered = equations.numbers_of(written, tuple([len(operand.shape) for operand in operands]))
    except TypeError:  # a label that is no key
        return None
    devices = set(map(adapter.device_of, signatures))
    if not numbered.inputs or len(devices) > 1:
        return None
    found = clear.roles_of(numbered.inputs, numbered.output)
    sizes = _sizes(found, operands)
    if sizes is None:
        return None
    dtypes = set(map(_dtype_of, operands))
    dtype = operands[0].dtype if len(dtypes) == 1 else promoted(adapter, operands)
    dtypes.add(dtype)
    (device,) = devices
    place, count = place_of(PLUS_TIMES, adapter, device), len(operands)
    traits = place.traits
    if "object" in dtypes or (traits.dtypes is not None and not dtypes <= traits.dtypes):
        return None
    asked = rules_of(traits, dtype)
    known = wisdom.equations(adapter, device)
    if not asked.is_direct or (known and found.text in known):
        return None
    path: Path = ()
    if count > 2 or not (optimize is True or optimize is False or optimize == "auto"):
        equation = SizedEquation(found.text, found.inputs, found.output, sizes, tuple(map(_shape_of, operands)))
        path = front.searched_path(equation, optimize, operands, place, dtype, adapter)
    parts = clear.clear_parts(found, operands, path, sizes, asked)
    run = None if parts is None else execute.run_of_parts(parts, adapter, count, asked)
    if run is None or prod(sizes) < adapter.least_recorded:
        return run
    equation = SizedEquation(found.text, found.inputs, found.output, sizes, tuple(map(_shape_of, operands)))
    copies = any(step.op.effect == "copy" for part in parts or () for step in part.calls.steps)
    return adapter.recording(run, Contraction(equation, tuple(operands), dtype, path, place), copies=copies)


_shape_of, _dtype_of = attrgetter("shape"), attrgetter("dtype")


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
