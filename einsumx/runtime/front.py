"""From a call to the contraction that it asks for: resolves all keywords, and raises the errors of users.

This module, and the planner with it, is imported on the first miss of the cache of calls, to keep ``import einsumx``
fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from einsumx.dtypes import Casting, can_cast, itemsize, kind
from einsumx.errors import BackendError, EquationError
from einsumx.imports import LazyModule
from einsumx.ir import layout
from einsumx.ir.algebra import PLUS_TIMES
from einsumx.ir.contraction import Contraction, Place
from einsumx.ir.operand import Operand
from einsumx.ir.sizes import is_known
from einsumx.measuring.calibration import place_of
from einsumx.planner import path
from einsumx.runtime.dtype_rules import accumulator, check_dtypes, promoted
from einsumx.runtime.equations import sized_equation
from einsumx.runtime.request import Request

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter
    from einsumx.ir.bind import SizedEquation
    from einsumx.ir.operand import Path
    from einsumx.planner import candidates, search
else:
    candidates = LazyModule("einsumx.planner.candidates")
    search = LazyModule("einsumx.planner.search")

_shape_of, _dtype_of = attrgetter("shape"), attrgetter("dtype")


def contraction(
    request: Request,
    adapter: Adapter,
    operands: tuple[Operand, ...],
    device: str,
    equation: SizedEquation | None = None,
    *,
    are_there: bool = False,
) -> Contraction:
    """What a call computes: its equation bound, its dtypes resolved, its path found.

    A mode of the framework such as ``torch.autocast`` counts as a ``dtype=`` of a call that has none and makes a new
    result.

    Args:
        request: the call, in the framework's terms; its own operands are not used.
        adapter: the framework's.
        operands: shape, dtype and layout of each.
        device: where to compute.
        equation: with sizes, if the caller has bound it already.
        are_there: the arrays are there to be contracted now, so that the steps have to fit into free memory.

    Raises:
        EinsumxError: as :func:`einsumx.einsum` does.
    """
    shapes = tuple(map(_shape_of, operands))
    equation = equation or sized_equation(request.written, shapes)
    mode = adapter.planning_mode(device)
    if mode is not None and request.dtype is None and request.out is None and request.is_cast:
        request = _cast(request, adapter, equation, operands, device, mode)
    place = place_of(request.algebra, adapter, device)
    traits = place.traits
    dtype = _result_dtype(adapter, operands, request)
    if traits.dtypes is not None:
        check_dtypes(adapter, traits.dtypes, dtype, request.accumulate, *map(_dtype_of, operands))
    accumulate = request.accumulate and accumulator(operands, request.accumulate, dtype, traits)
    if equation.shapes != shapes:  # unknown sizes have names now
        operands = tuple(map(_in_shape, operands, equation.shapes))
    if len(operands) < 3:
        steps = path.find_path(equation, request.optimize, operands)
    else:
        steps = searched_path(equation, request.optimize, operands, place, dtype, adapter if are_there else None)
    conjugated = _of_complex(request.conj, operands) if request.conj else ()
    return Contraction(equation, operands, dtype, steps, place, accumulate, request.algebra, conjugated)


def _cast(
    request: Request, adapter: Adapter, equation: SizedEquation, operands: Sequence[Operand], device: str, mode: Any
) -> Request:
    """The call with the dtype that a mode of the framework casts its result to."""
    if request.algebra is not PLUS_TIMES:
        return request
    dtype = adapter.autocast_dtype(equation, list(map(_dtype_of, operands)), device, mode)
    if dtype in (None, promoted(adapter, operands)):
        return request
    casting: Casting = request.casting if request.casting in ("no", "equiv") else "same_kind"
    return replace(request, dtype=dtype, casting=casting)


def _of_complex(conj: Any, operands: Sequence[Operand]) -> tuple[int, ...]:
    """The positions of ``conj=`` whose operands are not real; objects may be complex numbers."""
    positions = _positions(conj, len(operands))
    return tuple([position for position in positions if kind(operands[position].dtype) in "cO"])


def _positions(conj: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Positions of operands that are conjugated, counted from the first of ``count`` and in order; EquationError."""
    for position in conj:
        if not -count <= position < count:
            raise EquationError(f"conj= has position {position}, but the number of operands is {count}")
    positions = sorted([position % count for position in conj])
    for position in positions:
        if positions.count(position) > 1:
            raise EquationError(f"conj={conj} has operand {position} twice; the number of operands is {count}")
    return tuple(positions)


def _result_dtype(adapter: Adapter, operands: Sequence[Operand], request: Request) -> str:
    """The dtype to return: ``dtype=``, or the framework's promotion; BackendError for a cast that is not allowed."""
    dtype: str | None = request.dtype
    if dtype is None:
        dtype = promoted(adapter, operands)
        if request.casting not in ("no", "equiv") and request.algebra is PLUS_TIMES:
            return dtype
    request.algebra.check_dtype(dtype)
    if request.algebra.is_boolean:  # nonzero is true, whatever casts are allowed
        return dtype
    for number, operand in enumerate(operands):
        yields: Casting = "same_kind" if operand.weak and request.casting == "safe" else request.casting
        if operand.dtype != dtype and not can_cast(operand.dtype, dtype, yields):
            raise BackendError(
                f"operand {number} has dtype {operand.dtype}, which casting={request.casting!r} does not allow to "
                f"become {dtype}; pass a looser casting= or another dtype="
            )
    return dtype


def moved(
    contraction: Contraction, adapter: Adapter, device: str, operands: tuple[Operand, ...] | None = None
) -> Contraction:
    """A contraction in another place, along the same path.

    Args:
        contraction: what to compute.
        adapter, device: where.
        operands: those that are there, whose sizes may be known now; None for C-contiguous ones.

    Raises:
        BackendError: the framework there does not compute in one of the dtypes.
    """
    equation, place = contraction.equation, place_of(contraction.algebra, adapter, device)
    if operands is None:
        operands = tuple([Operand(operand.shape, operand.dtype) for operand in contraction.operands])
    shapes = tuple(map(_shape_of, operands))
    if shapes != equation.shapes:
        equation = sized_equation(equation.text, shapes)._replace(named=equation.named)
        operands = tuple(map(_in_shape, operands, equation.shapes))
    return checked(replace(contraction, equation=equation, operands=operands, place=place), adapter)


def checked(contraction: Contraction, adapter: Adapter) -> Contraction:
    """A contraction of which the fields are checked, and that has no accumulator that changes nothing in its place.

    Raises:
        BackendError: the framework does not compute in one of the dtypes.
        EquationError: a position of an operand that there is not.
    """
    operands, dtype, accumulate = contraction.operands, contraction.dtype, contraction.accumulate
    contraction.algebra.check_dtype(dtype)
    traits = contraction.place.traits
    if traits.dtypes is not None:
        check_dtypes(adapter, traits.dtypes, dtype, accumulate, *map(_dtype_of, operands))
    found = accumulate and accumulator(operands, accumulate, dtype, traits)
    conjugated = _positions(contraction.conjugated, len(operands))
    if (found, conjugated) == (accumulate, contraction.conjugated):
        return contraction
    return replace(contraction, accumulate=found, conjugated=conjugated)


def _in_shape(operand: Operand, shape: tuple[int, ...]) -> Operand:
    """The operand with its unknown sizes as the equation has them."""
    strides = layout.pattern_strides(layout.layout_pattern(operand.shape, operand.strides) or (), shape)
    return replace(operand, shape=shape, strides=strides)


def searched_path(
    sized: SizedEquation, optimize: Any, operands: Sequence[Operand], place: Place, dtype: str, adapter: Adapter | None
) -> Path:
    """The path of several steps: see :func:`~einsumx.planner.path.find_path`.

    Args:
        sized, optimize, operands: as there.
        place, dtype: where it is computed, and in which dtype.
        adapter: of the arrays that are there to be contracted now, so that the steps have to fit into free memory.
    """

    def room() -> float:
        blocks = None if adapter is None else adapter.blocks
        free = None if blocks is None else blocks.free_bytes(place.device)
        return inf if free is None else free / itemsize(dtype)

    pace = search.pace_of(place.traits, dtype)
    found = path.find_path(sized, optimize, operands, pace, room)
    is_free = len(operands) == 3 and (optimize is True or optimize == "auto") and is_known(sized.sizes)
    if is_free and pace.element * max(map(prod, sized.shapes)) >= _PRICED:
        return candidates.path_in_memory(Contraction(sized, tuple(operands), dtype, found, place), pace)
    return found


_PRICED = 2e-4
"""The least seconds of reading the largest operand for which programs of several paths are priced."""
