"""Contractions and transposes that are written with the numbers of axes, as in NumPy: ``tensordot``, ``transpose``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from einsumx.adapters.operand_types import type_name
from einsumx.adapters.registry import is_builtin
from einsumx.api import einsum
from einsumx.errors import AxisError, BackendError, SizeError, SublistError, counted, shown
from einsumx.ir.parse import symbol
from einsumx.runtime.shapes import shape_of
from einsumx.tracing import inlined

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from einsumx.adapters.base import Array
    from einsumx.runtime.signatures import A, NumpyResult, Value

Axes: TypeAlias = "int | tuple[int | Sequence[int], int | Sequence[int]]"


@overload
def tensordot(a: NDArray[Any] | Value, b: NDArray[Any] | Value, axes: Axes = 2) -> NumpyResult: ...


@overload
def tensordot(a: A | Value, b: A | Value, axes: Axes = 2) -> A: ...


def tensordot(a: Any, b: Any, axes: Axes = 2) -> Any:
    """The sum of products over axes of two arrays, as ``numpy.tensordot`` defines it, on their own framework.

    It runs the plan of the corresponding :func:`einsumx.einsum`, with its dtypes, caches, gradients and tracing. Axes
    of size 1 do not broadcast.

    Args:
        a: an array, or a Python number or list.
        b: the same, of the same framework.
        axes: the number of axes to sum over, the last ones of ``a`` with the first ones of ``b`` in order; or the axes
            of ``a`` and the axes of ``b``, each a number or a sequence, negative numbers counting from the end.

    Returns:
        An array with the other axes of ``a``, then the other axes of ``b``. Its memory order is free.

    Raises:
        AxisError: an axis that an array does not have.
        SizeError: axes to sum over have different sizes, or one array has more of them.
        EinsumxError: as :func:`einsumx.einsum` does.

    >>> import numpy as np
    >>> tensordot(np.ones((2, 3, 4)), np.ones((4, 3, 5)), axes=((1, 2), (1, 0))).shape
    (2, 5)
    """
    axes = _as_numbers(axes)
    try:
        equation = _known(axes, a.shape, b.shape)
    except (AttributeError, TypeError):  # numbers, lists, or sizes that a tracer does not know
        return _traced_tensordot(a, b, axes)
    return einsum(equation, a, b)


@overload
def transpose(a: NDArray[Any] | Value, axes: Sequence[int] | None = None) -> NDArray[Any]: ...


@overload
def transpose(a: A, axes: Sequence[int] | None = None) -> A: ...


def transpose(a: Any, axes: Sequence[int] | None = None) -> Any:
    """The array with its axes permuted: a view where the framework has views.

    Args:
        a: an array, or a Python number or list.
        axes: the axis of ``a`` for each axis of the result, negative numbers counting from the end; by default, all
            axes in reverse.

    Raises:
        AxisError: an axis that the array does not have.
        SizeError: ``axes`` is not a permutation of the array's axes.
        BackendError: no backend serves the array.

    >>> import numpy as np
    >>> transpose(np.ones((2, 3, 4)), (1, 0, 2)).shape
    (3, 2, 4)
    """
    axes = None if axes is None else _as_numbers(axes)
    try:
        equation = _known(axes, a.shape)
    except (AttributeError, TypeError):  # a number, a list, or sizes that a tracer does not know
        return _traced_transpose(a, axes)
    return einsum(equation, a)


def _traced_tensordot(a: Any, b: Any, axes: Axes = 2) -> Array:
    """The function that torch.compile traces instead of :func:`tensordot`, because it ignores caches."""
    return einsum(_tensordot_equation(axes, _shape(0, a), _shape(1, b)), a, b)


def _traced_transpose(a: Any, axes: Sequence[int] | None = None) -> Array:
    """The function that torch.compile traces instead of :func:`transpose`."""
    return einsum(_transpose_equation(axes, len(_shape(0, a))), a)


inlined(tensordot, _traced_tensordot)
inlined(transpose, _traced_transpose)


def _shape(number: int, operand: Any) -> tuple[int, ...]:
    if not is_builtin(type(operand)) and not hasattr(operand, "shape"):
        raise BackendError(
            f"operand {number} ({type_name(type(operand))}) has no shape, so its axes cannot be numbered; call einsum"
        )
    return shape_of(operand)


def _as_numbers(axes: Any) -> Any:
    """The value of ``axes=`` as a key of a cache: integers, in tuples. A cache takes 1 and 1.0 for the same."""
    if type(axes) is int:  # such tests of types are faster than isinstance() with Iterable
        return axes
    if type(axes) is list or type(axes) is tuple or (isinstance(axes, Iterable) and not isinstance(axes, str)):
        return tuple([_as_numbers(each) for each in axes])
    return _as_axis(axes)


def _tensordot_equation(axes: Axes, lhs_shape: Sequence[int], rhs_shape: Sequence[int]) -> str:
    """The equation of a ``tensordot`` of arrays of these shapes."""
    lhs_axes, rhs_axes = _contracted_axes(axes)
    for operand, shape in enumerate((lhs_shape, rhs_shape)):
        if not isinstance(axes, Iterable) and len(lhs_axes) > len(shape):
            raise AxisError(
                f"axes={shown(axes)} sums over {counted(len(lhs_axes), 'axis', 'axes')} of each operand, but operand "
                f"{operand} has shape {shown(tuple(shape))}; pass at most {min(len(lhs_shape), len(rhs_shape))}"
            )
    lhs_places = _positions(lhs_axes, len(lhs_shape), 0)
    rhs_places = _positions(rhs_axes, len(rhs_shape), 1)
    if len(lhs_places) != len(rhs_places):
        raise SizeError(
            f"axes={shown(axes)} has {counted(len(lhs_places), 'axis', 'axes')} of operand 0 and {len(rhs_places)} of "
            "operand 1; pass as many of each"
        )
    for lhs, rhs in zip(lhs_places, rhs_places):
        if lhs_shape[lhs] != rhs_shape[rhs]:
            raise SizeError(
                f"axis {lhs} of operand 0 has size {lhs_shape[lhs]} but axis {rhs} of operand 1, which is summed with "
                f"it, has size {rhs_shape[rhs]}"
            )
    rank = len(lhs_shape)
    lhs_term = [symbol(axis) for axis in range(rank)]
    rhs_term = [symbol(rank + axis) for axis in range(len(rhs_shape))]
    for lhs, rhs in zip(lhs_places, rhs_places):
        rhs_term[rhs] = lhs_term[lhs]
    output = [label for axis, label in enumerate(lhs_term) if axis not in lhs_places]
    output += [label for axis, label in enumerate(rhs_term) if axis not in rhs_places]
    return f"{''.join(lhs_term)},{''.join(rhs_term)}->{''.join(output)}"


def _contracted_axes(axes: Any) -> tuple[list[int], list[int]]:
    """The axes of both arrays to sum over, as NumPy reads ``axes=``."""
    if not isinstance(axes, Iterable):
        count = _as_axis(axes)
        return list(range(-count, 0)), list(range(count))
    pair = list(axes)
    if len(pair) != 2:
        raise SizeError(
            f"axes= must have the axes of operand 0 and those of operand 1, such as ((1,), (0,)), not {shown(axes)}"
        )
    lhs, rhs = [list(part) if isinstance(part, Iterable) else [part] for part in pair]
    return list(map(_as_axis, lhs)), list(map(_as_axis, rhs))


def _transpose_equation(axes: Any, rank: int) -> str:
    """The equation of a ``transpose`` of an array of that many axes."""
    order = range(rank)[::-1] if axes is None else axes
    places = _positions(list(map(_as_axis, order if isinstance(order, Iterable) else [order])), rank, 0)
    if len(places) != rank:
        raise SizeError(f"axes={shown(axes)} must name each of the array's {counted(rank, 'axis', 'axes')} once")
    return f"{''.join(map(symbol, range(rank)))}->{''.join(map(symbol, places))}"


def _as_axis(axis: Any) -> int:
    try:
        return index(axis)
    except TypeError:
        raise SublistError(f"axes must be integers, not {shown(axis)}") from None


def _positions(axes: Sequence[int], rank: int, operand: int) -> list[int]:
    """The axes of one of the operands, counted from 0.

    Raises:
        AxisError: the array has no such axis.
        SizeError: an axis stands twice.
    """
    for axis in axes:
        if not -rank <= axis < rank:
            raise AxisError(f"axes= names axis {axis} of operand {operand}, which has {counted(rank, 'axis', 'axes')}")
    places = [axis % rank for axis in axes]
    if len(set(places)) != len(places):
        raise SizeError(f"axes= names an axis of operand {operand} twice: {shown(list(axes))}")
    return places


@lru_cache(maxsize=1024)
def _known(axes: Any, shape: Sequence[int], *other: Sequence[int]) -> str:
    """The equation of a ``tensordot`` of arrays of two shapes, or of a ``transpose`` of one."""
    return _tensordot_equation(axes, shape, *other) if other else _transpose_equation(axes, len(shape))
