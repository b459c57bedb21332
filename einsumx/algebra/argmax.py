"""``argmax`` of semirings: the positions of the summed labels at which a contraction in a semiring attains its value.

The contraction runs pair by pair along its path, and keeps the intermediates. Then the steps are walked backwards: the
positions of a result's labels choose a row of each operand of the step, and the largest sum of two rows is the position
of the labels that the step summed. So no array has more elements than the result has, times the labels of one step.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from einsumx.adapters.registry import lazy
from einsumx.algebra.semiring import SemiringAlgebra
from einsumx.errors import BackendError, SizeError, excerpt, shown
from einsumx.ir.bind import label_names
from einsumx.ir.sizes import is_known
from einsumx.runtime.conversion import arrays_of, described
from einsumx.runtime.equations import numbered
from einsumx.runtime.front import contraction
from einsumx.runtime.prepare import by_signatures
from einsumx.runtime.request import Request, as_key

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter, Array
    from einsumx.adapters.facets import Semirings
    from einsumx.ir.bind import SizedEquation
    from einsumx.ir.contraction import Contraction

Labels: TypeAlias = tuple[int, ...]

_TERMS = 1 << 17
"""The most terms whose largest are found at a time; they fit the caches."""


class ArgmaxResult(NamedTuple):
    """The value of a contraction in a semiring, and an arrangement of the summed labels that attains it.

    Attributes:
        value: what :func:`einsumx.einsum` returns.
        positions: for each summed label, as it is written in the equation, the array of its positions: integers in the
            shape of ``value``.
    """

    value: Any
    positions: dict[Hashable, Any]


def attained(request: Request) -> ArgmaxResult:
    """The value of a contraction in a semiring, and the positions of a term that attains it.

    Raises:
        ValueError: all terms contribute to the sum.
        EinsumxError: as :meth:`einsumx.Semiring.argmax` does.
    """
    semiring = request.algebra
    assert isinstance(semiring, SemiringAlgebra)
    if semiring.add == "logaddexp":
        raise ValueError(
            f"argmax needs a semiring of maximum or minimum, and {semiring.name!r} adds up all terms; "
            "einsumx.semirings.max_plus finds the largest term"
        )
    written, inputs = request.written, list(request.operands)
    if lazy(inputs) is not None:
        raise BackendError("argmax does not support Dask arrays; call compute() on the operands")
    adapter, arrays = arrays_of(inputs, request.adapter)
    if adapter.semirings is None or not adapter.semirings.has_positions:
        raise BackendError(f"argmax does not support {adapter.name}; convert the operands to NumPy, PyTorch or JAX")
    described_operands = described(adapter, adapter.signatures(written, arrays))
    asked = contraction(request.named(adapter), adapter, described_operands, "")
    sized, shapes = asked.equation, asked.equation.shapes
    _check_sizes(sized)
    kept = _KeptContraction(adapter, adapter.semirings, asked, is_least=semiring.add == "minimum")
    labels = numbered(written, tuple(map(len, shapes))).labels
    with adapter.semirings.mode(arrays[0]):
        value = kept.contract(arrays)
        positions = kept.positions(value)
    return ArgmaxResult(adapter.element(value) if not sized.output else value, _by_label(positions, labels))


def _by_label(positions: Mapping[int, Array], labels: Sequence[Hashable]) -> dict[Hashable, Any]:
    return {labels[number]: positions[number] for number in sorted(positions)}


def _check_sizes(sized: SizedEquation) -> None:
    """Raise SizeError if a summed label has no positions, or if a size is not known."""
    text = excerpt(sized.text)
    if not is_known(sized.sizes):
        raise SizeError(
            f"argmax needs all sizes, and one is not known while the program is traced; declare the shapes\n  {text}"
        )
    for label, size in enumerate(sized.sizes):
        if not size and label not in sized.output:
            raise SizeError(
                f"label {shown(label_names(sized)[label])} has size 0, and a maximum of no terms has no position; "
                f"einsum returns its value\n  {text}"
            )


@dataclass(frozen=True, slots=True)
class _Kept:
    """An operand or an intermediate, with a label for each axis."""

    labels: Labels
    array: Array


@dataclass(frozen=True, slots=True)
class _PairStep:
    """A step of the path, as it is walked backwards.

    Attributes:
        summed: the labels that it sums over, which all its terms have.
        terms: ``(kept, matrix)`` of each: a row for the positions of the labels in ``kept``, with the terms that
            ``summed`` counts as columns.
    """

    summed: Labels
    terms: tuple[tuple[Labels, Array], ...]


class _KeptContraction:
    """A contraction whose intermediates are kept; ``is_least`` if the sum is a minimum."""

    def __init__(self, adapter: Adapter, functions: Semirings, asked: Contraction, is_least: bool) -> None:
        self._adapter, self._functions, self._asked, self._is_least = adapter, functions, asked, is_least
        self._sized = asked.equation
        self._mode = adapter.planning_mode(asked.place.device)
        self._key = as_key({"dtype": asked.dtype, "casting": "unsafe", "algebra": asked.algebra})
        self._steps: list[_PairStep] = []

    def contract(self, arrays: Sequence[Array]) -> Array:
        """The result, an array, along the path of the contraction."""
        sized = self._sized
        kept = [set(chain(sized.output, *(sized.carried(other) for other in range(len(arrays)) if other != number)))
                for number in range(len(arrays))]  # fmt: skip
        terms = []
        for number, array in enumerate(arrays):
            # Diagonals are taken and axes that broadcast dropped, then sums over the labels of one operand.
            own = tuple(dict.fromkeys(sized.carried(number)))
            term = _Kept(own, self._einsum((sized.inputs[number],), (array,), own))
            terms.append(self._summed((term,), kept[number]))
        for step in self._asked.path:
            chosen = tuple([terms[place] for place in step])
            terms = [term for place, term in enumerate(terms) if place not in step]
            terms.append(self._summed(chosen, set(chain(sized.output, *(term.labels for term in terms)))))
        (result,) = terms
        return self._einsum((result.labels,), (result.array,), sized.output)

    def _einsum(self, terms: Sequence[Labels], arrays: Sequence[Array], output: Labels) -> Array:
        written = tuple(terms), output
        signatures = self._adapter.signatures(written, arrays)
        prepared = by_signatures(self._adapter, written, self._mode, "estimate", self._key, *signatures)
        return self._adapter.boxed(prepared.run(*arrays), self._asked.dtype)

    def _summed(self, terms: tuple[_Kept, ...], kept: set[int]) -> _Kept:
        """The product of one or two terms, summed over the labels that are not in ``kept``; all terms have these."""
        labels = tuple(dict.fromkeys(chain.from_iterable([term.labels for term in terms])))
        left = tuple([label for label in labels if label in kept])
        if len(terms) == 1 and left == labels:
            return terms[0]
        if summed := tuple(sorted(set(labels) - kept)):
            self._steps.append(_PairStep(summed, tuple([self._matrix(term, summed) for term in terms])))
        if set(left) == set(self._sized.output):
            left = self._sized.output
        return _Kept(left, self._einsum([term.labels for term in terms], [term.array for term in terms], left))

    def _matrix(self, term: _Kept, summed: Labels) -> tuple[Labels, Array]:
        kept = tuple([label for label in term.labels if label not in summed])
        array = self._einsum((term.labels,), (term.array,), (*kept, *summed))
        return kept, self._adapter.reshape(array, (self._count(kept), self._count(summed)))

    def _count(self, labels: Labels) -> int:
        return prod([self._sized.sizes[label] for label in labels])

    def positions(self, value: Array) -> dict[int, Array]:
        """The positions of the summed labels, in the shape of the result."""
        adapter, sized = self._adapter, self._sized
        summed = [label for label in range(len(sized.sizes)) if label not in sized.output]
        count, most = prod(sized.shape), max([self._count(step.summed) for step in self._steps], default=1)
        rows = max(1, _TERMS // most if adapter.has_values(value) else count)
        parts: dict[int, list[Array]] = {label: [] for label in summed}
        for start in range(0, max(count, 1), rows):
            places = self._functions.places(start, min(start + rows, count), value)
            found = self._walked_back(places) if count else {}
            for label in summed:
                # Without elements there are no positions.
                parts[label].append(found[label] if label in found else places * 0)
        joined = {label: self._functions.joined(each) for label, each in parts.items()}
        shaped = {label: adapter.reshape(array, sized.shape) for label, array in joined.items()}
        return shaped if sized.output else {label: adapter.element(array) for label, array in shaped.items()}

    def _walked_back(self, places: Array) -> dict[int, Array]:
        """The positions of all labels at some places of the result, which count its elements in C order."""
        adapter = self._adapter
        found = self._positions_of(self._sized.output, places)
        for step in reversed(self._steps):
            rows = [self._functions.rows(matrix, self._place(kept, found, places)) for kept, matrix in step.terms]
            terms = rows[0] if len(rows) == 1 else self._einsum([(0, 1)] * 2, rows, (0, 1))
            if adapter.dtype_name(terms.dtype) == "bool":
                terms = adapter.cast(terms, "uint8")
            found |= self._positions_of(step.summed, self._functions.best(terms, self._is_least))
        return found

    def _positions_of(self, labels: Labels, places: Array) -> dict[int, Array]:
        """The position of each label at places that count their positions in C order."""
        found = {}
        for number, label in enumerate(labels):
            inner = self._count(labels[number + 1 :])
            outer = places if inner == 1 else places // inner
            found[label] = outer if number == 0 else outer % self._sized.sizes[label]
        return found

    def _place(self, labels: Labels, positions: Mapping[int, Array], like: Array) -> Array:
        """The inverse: the places of positions, zeros without labels."""
        if not labels:
            return like * 0
        place = positions[labels[0]]
        for label in labels[1:]:
            place = place * self._sized.sizes[label] + positions[label]
        return place
