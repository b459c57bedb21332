"""The contractions of a backward pass.

A contraction and the cotangent of its result make one multilinear form with a place for each array. With an operand's
place left open, the form is the gradient with respect to that operand; with the cotangent's place open, it is the
result. Gradients of gradients have the same places, so these contractions serve derivatives of every order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.facets import Gradients
from einsumx.adapters.registry import get_backend
from einsumx.ir.bind import SizedEquation
from einsumx.ir.contraction import Contraction
from einsumx.runtime.prepare import by_signatures, prepare
from einsumx.runtime.request import Key, Request, Written, as_key


@dataclass(frozen=True, slots=True)
class Backward:
    """The contraction that computes the array of one place from the others.

    Attributes:
        written: the equation, for the arrays in the other places followed by arrays of ones.
        others: the other places.
        ones: the sizes of the arrays of ones, which supply the labels that no other place has.
        labels: the labels of the contraction's result: those of the place, each once.
        term: the labels of the place, without axes of size 1 that broadcast.
        shape: the shape of the array in the place.
    """

    written: Written
    others: tuple[int, ...]
    ones: tuple[int, ...]
    labels: tuple[int, ...]
    term: tuple[int, ...]
    shape: tuple[int, ...]


def backward(equation: SizedEquation, place: int) -> Backward:
    """The contraction that gives the gradient by operand ``place``; the last place is that of the cotangent.

    >>> from einsumx.ir.bind import bind
    >>> from einsumx.ir.parse import parse_text
    >>> backward(bind(parse_text("ij,jk->ik", 2), [(2, 3), (3, 4)]), 1).written
    (((0, 1), (0, 2)), (1, 2))
    """
    sizes, count = equation.sizes, len(equation.inputs)
    inputs, shapes = (*equation.inputs, equation.output), (*equation.shapes, equation.shape)
    carried = [*map(equation.carried, range(count)), equation.output]
    term = carried[place]
    labels = tuple(dict.fromkeys(term))
    others = tuple(other for other in range(count + 1) if other != place)
    known = {label for other in others for label in carried[other]}
    missing = [label for label in labels if label not in known]
    terms = (*(inputs[other] for other in others), *((label,) for label in missing))
    return Backward((terms, labels), others, tuple(sizes[label] for label in missing), labels, term, shapes[place])


class TransposedContraction:
    """A contraction as a framework records it for differentiation, by contractions of its arrays; it holds none.

    Args:
        adapter: of the arrays.
        contraction: the one that is computed, in no accumulator of its own.
    """

    is_differentiable = True

    def __init__(self, adapter: Adapter, contraction: Contraction) -> None:
        self._adapter, self._contraction = adapter, contraction
        self._steps: dict[tuple[int, Collection[int]], tuple[Backward, Key]] = {}
        self.places, self.conjugated = len(contraction.operands) + 1, contraction.conjugated

    def dtype(self, place: int) -> str:
        """The dtype of the array in a place, by name."""
        return self._contraction.dtype if place == self.places - 1 else self._contraction.operands[place].dtype

    def value(self, place: int, arrays: Sequence[Any], beside: int = 0, conjugated: Collection[int] = ()) -> Array:
        """Compute the array of one place from the others, as :meth:`~einsumx.adapters.facets.Recorded.value` does."""
        adapter = self._adapter
        step, key = self._steps.get((place, conjugated)) or self._step(place, conjugated)
        used = [arrays[other] for other in step.others]
        if step.ones:
            used += ones(adapter, step, self._contraction.place.device)
        found = by_signatures(adapter, step.written, None, "estimate", key, *adapter.signatures(step.written, used))
        return placed(adapter, step, found.run(*used))

    def _step(self, place: int, conjugated: Collection[int]) -> tuple[Backward, Key]:
        """The contraction for a place, and its keywords."""
        step = backward(self._contraction.equation, place)
        conj = tuple([number for number, other in enumerate(step.others) if other in conjugated])
        found = self._steps[place, conjugated] = step, as_key({"conj": conj}) if conj else ()
        return found


def ones(adapter: Adapter, step: Backward, device: str) -> list[Array]:
    """The arrays of ones of a backward contraction."""
    return [adapter.from_numpy(get_backend("numpy").xp.ones(size, "int8"), device) for size in step.ones]


def placed(adapter: Adapter, step: Backward, array: Array) -> Array:
    """The result of a backward contraction with diagonals embedded, and with the axes of size 1 that broadcast."""
    if step.labels == step.term and len(step.shape) == len(step.term):
        return array
    labels = list(step.labels)
    for label in step.labels:
        for _ in range(step.term.count(label) - 1):
            axis = labels.index(label)
            last = [*(k for k in range(len(labels)) if k != axis), axis]
            array = gradients_of(adapter).embed_diagonal(_permuted(adapter, array, last))
            labels = [labels[k] for k in last] + [label]
    order = sorted(range(len(labels)), key=lambda axis: _occurrence(labels, axis))
    places = sorted(range(len(step.term)), key=lambda axis: _occurrence(step.term, axis))
    axes = dict(zip(places, order))
    array = _permuted(adapter, array, [axes[axis] for axis in range(len(axes))])
    return adapter.reshape(array, step.shape) if len(step.shape) != len(step.term) else array


def gradients_of(adapter: Adapter) -> Gradients:
    """The gradients of a framework that has recorded a contraction."""
    assert adapter.gradients is not None
    return adapter.gradients


def _permuted(adapter: Adapter, array: Array, axes: list[int]) -> Array:
    """Transpose by a plan, as some frameworks limit the number of axes of their own transpose."""
    if axes == sorted(axes):
        return array
    request = Request(((tuple(range(len(axes))),), tuple(axes)), (), is_cast=False)
    return prepare(request, adapter, [array]).run(array)


def _occurrence(labels: Sequence[int], axis: int) -> tuple[int, int]:
    """The label of an axis, and how many axes before it have the same label."""
    return labels[axis], labels[:axis].count(labels[axis])
