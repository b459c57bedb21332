"""Gradients of contractions by einsumx, for frameworks that record functions with their own derivatives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from einsumx.adapters.facets import Gradients, Recorded
from einsumx.adapters.typing import Array
from einsumx.dtypes import itemsize


class RecordedArray(ABC):
    """The array in one place of a contraction: the result, or a gradient, which can be differentiated again.

    A framework's part is a subclass, which is the argument of a function that the framework records. Gradients are
    conjugated as in PyTorch.

    Args:
        call: computes the array in each place.
        run: computes the array in this place; None for ``call``.
        place: the place to compute; None for the last, the result's.
        conjugated: the places whose arrays are conjugated; None for those of ``call``.
        beside: bytes of the gradients that are computed already.
    """

    def __init__(
        self,
        call: Recorded,
        run: Callable[[], Array] | None,
        place: int | None = None,
        conjugated: tuple[int, ...] | None = None,
        beside: int = 0,
    ) -> None:
        self._call, self._run, self._beside, self._is_result = call, run, beside, run is not None
        self.place = call.places - 1 if place is None else place
        self._conjugated = call.conjugated if conjugated is None else conjugated

    @abstractmethod
    def recorded(self, arrays: Sequence[Any]) -> Array:
        """:meth:`value` of arrays, recorded with :meth:`gradients` as its derivatives."""

    @abstractmethod
    def finished(self, value: Array, dtype: str) -> Array:
        """A new array in another dtype; its real part if that is real."""

    def value(self, arrays: Sequence[Any]) -> Array:
        """The array from those in the other places; the one in its own place is ignored."""
        if self._run is not None:
            run, self._run = self._run, None  # which refers to all operands, those that no gradient needs too
            return run()
        value = self._call.value(self.place, arrays, self._beside, self._conjugated)
        return self.finished(value, self._call.dtype(self.place))

    def gradients(self, arrays: Sequence[Any], cotangent: Array, places: Iterable[int]) -> dict[int, Array]:
        """The gradients by the arrays in some places: each is the array there, with the cotangent in this place."""
        given = [*arrays[: self.place], cotangent, *arrays[self.place + 1 :]]
        found: dict[int, Array] = {}
        beside = 0
        for place in places:
            conjugated = conjugated_for(self._conjugated, self.place, place, self._call.places)
            others = [*given[:place], None, *given[place + 1 :]]
            array = type(self)(self._call, None, place, conjugated, beside)
            if self._call.is_differentiable:
                found[place] = array.value(others)
                continue
            found[place] = gradient = array.recorded(others)
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


@lru_cache(maxsize=1024)
def conjugated_for(conjugated: tuple[int, ...], place: int, other: int, places: int) -> tuple[int, ...]:
    """The places whose arrays the gradient by the array in place ``other`` conjugates.

    By the rule of complex derivatives these are all other operands; or the cotangent instead, if the array itself was
    conjugated.

    Args:
        conjugated: the places whose arrays are conjugated for the array that is differentiated.
        place: that of the array that is differentiated, in which the cotangent stands now.
        other: the place of the gradient.
        places: how many there are.

    >>> conjugated_for((), 2, 0, 3), conjugated_for((0,), 2, 0, 3), conjugated_for((0,), 2, 1, 3)
    ((1,), (2,), ())
    """
    was_conjugated = other in conjugated
    return tuple([
        each for each in range(places)
        if each != other and (was_conjugated if each == place else (each in conjugated) == was_conjugated)
    ])  # fmt: skip
