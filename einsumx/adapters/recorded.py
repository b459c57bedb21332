"""Gradients of contractions under a memory limit, for frameworks that record functions with their own derivatives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

from einsumx.adapters.facets import Gradients
from einsumx.adapters.typing import Array, Recorded
from einsumx.dtypes import itemsize


class RecordedArray(ABC):
    """The array in one place of a contraction: the result, or a gradient, which can be differentiated again.

    A framework's part is a subclass, which is the argument of a function that the framework records. Gradients are
    conjugated as in PyTorch.

    Args:
        call: computes the array in each place.
        run: computes the array in this place; None for ``call``.
        place: the place to compute; None for the last, the result's.
        conjugated: for each place, whether to use the complex conjugate of its array; none by default.
        beside: bytes of the gradients that are computed already.
    """

    def __init__(
        self,
        call: Recorded,
        run: Callable[[], Array] | None,
        place: int | None = None,
        conjugated: Sequence[bool] | None = None,
        beside: int = 0,
    ) -> None:
        self._call, self._run, self._beside, self._is_result = call, run, beside, run is not None
        self.place = call.places - 1 if place is None else place
        self._conjugated = (False,) * call.places if conjugated is None else conjugated

    @abstractmethod
    def recorded(self, arrays: Sequence[Any]) -> Array:
        """:meth:`value` of arrays, recorded with :meth:`gradients` as its derivatives."""

    @abstractmethod
    def is_complex(self, array: Any) -> bool | None:
        """Whether an operand is a complex array of the framework; None for a stored one."""

    @abstractmethod
    def conj(self, array: Array) -> Array:
        """The complex conjugate of an array."""

    @abstractmethod
    def finished(self, value: Array, is_conjugated: bool, dtype: str) -> Array:
        """A new array, or its conjugate, in another dtype; its real part if that is real."""

    def value(self, arrays: Sequence[Any]) -> Array:
        """The array from those in the other places; the one in its own place is ignored."""
        if self._run is not None:
            run, self._run = self._run, None  # which refers to all operands, those that no gradient needs too
            return run()
        operands, is_conjugated = _with_conjugates(arrays, self.place, self._conjugated, self.is_complex, self.conj)
        value = self._call.value(self.place, operands, self._beside)
        return self.finished(value, is_conjugated, self._call.dtype(self.place))

    def gradients(self, arrays: Sequence[Any], cotangent: Array, places: Iterable[int]) -> dict[int, Array]:
        """The gradients by the arrays in some places: each is the array there, with the cotangent in this place."""
        given = [*arrays[: self.place], cotangent, *arrays[self.place + 1 :]]
        found: dict[int, Array] = {}
        beside = 0
        for place in places:
            flags = _conjugated_for(self._conjugated, self.place, place)
            others = [*given[:place], None, *given[place + 1 :]]
            found[place] = gradient = type(self)(self._call, None, place, flags, beside).recorded(others)
            if self._is_result:  # each gradient of a gradient has the whole limit
                beside += prod(gradient.shape) * itemsize(self._call.dtype(place))
        return found


class RecordedGradients(Gradients):
    """Gradients of a framework that records arrays as functions with their own derivatives."""

    array: type[RecordedArray]
    """The framework's part."""

    def recorded(
        self, call: Recorded, run: Callable[[], Array], operands: Sequence[Any], numbers: Sequence[int]
    ) -> Array:
        return self.array(call, run).recorded([*operands, None])


def _conjugated_for(conjugated: Sequence[bool], place: int, other: int) -> list[bool]:
    """Which arrays the gradient by the array in ``other`` conjugates.

    By the rule of complex derivatives these are all other arrays; or the cotangent instead, if the array itself was
    conjugated.

    Args:
        conjugated: for each place, whether the array that is differentiated conjugates the one there.
        place: that of the array that is differentiated, in which the cotangent stands now.
        other: the place of the gradient.

    >>> _conjugated_for([False, False, False], 2, 0), _conjugated_for([True, False, False], 2, 0)
    ([True, True, False], [True, False, True])
    """
    was_conjugated = conjugated[other]
    flags = [flag == was_conjugated for flag in conjugated]
    flags[place] = was_conjugated
    return flags


def _with_conjugates(
    arrays: Sequence[Any],
    place: int,
    conjugated: Sequence[bool],
    is_complex: Callable[[Any], bool | None],
    conj: Callable[[Array], Array],
) -> tuple[list[Any], bool]:
    """The operands of the array in a place, and whether it is the conjugate of what they contract to.

    If most operands are conjugated, the result is instead, and only the rest of them. The same holds for stored
    operands, which are either all conjugated or none.

    Args:
        arrays: in all places; the one in ``place`` is left as it is.
        place: that of the result.
        conjugated: for each place, whether its array is conjugated.
        is_complex: whether an operand is a complex array of the framework; None for a stored one.
        conj: the framework's conjugate of an array.

    >>> _with_conjugates([1j, 2j, None], 2, [True, True, False], lambda _: True, lambda value: value.conjugate())
    ([1j, 2j, None], True)
    """
    kinds = {other: is_complex(array) for other, array in enumerate(arrays) if other != place}
    stored = [conjugated[other] for other, kind in kinds.items() if kind is None]
    flags = [conjugated[other] for other, kind in kinds.items() if kind]
    is_conjugated = stored[0] if stored else sum(flags) > max(1, len(flags) - sum(flags))
    operands = list(arrays)
    for other, kind in kinds.items():
        if kind and conjugated[other] != is_conjugated:
            operands[other] = conj(arrays[other])
    return operands, is_conjugated
