"""``einsum_argmax``: the positions of the summed labels at which a contraction in a semiring attains its value.

The contraction runs pair by pair along its path, and keeps the intermediates. Then the steps are walked backwards: the
positions of a result's labels choose a row of each operand of the step, and the largest sum of two rows is the position
of the labels that the step summed. So no array has more elements than the result has, times the labels of one step.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from einsumx.adapters import hooks
from einsumx.adapters.registry import get_backend, lazy
from einsumx.errors import BackendError, SizeError, excerpt, shown
from einsumx.ir.bind import label_names, labels_of
from einsumx.ir.semiring import Semiring, as_semiring
from einsumx.ir.sizes import is_known
from einsumx.planner.path import Optimize, find_path
from einsumx.runtime.prepare import arrays_of, described, parsed, prepare, result_dtype, sized_equation
from einsumx.runtime.request import Options, options_of, split, with_semiring

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter, Array
    from einsumx.ir.bind import SizedEquation

__all__ = ["ArgmaxResult", "einsum_argmax"]

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


def einsum_argmax(
    *operands: Any,
    semiring: str | Semiring | None = "max-plus",
    optimize: Optimize = "auto",
    backend: str | None = None,
    dtype: Any = None,
) -> ArgmaxResult:
    """The value of a contraction in a semiring of maxima or minima, and where it is attained.

    The most likely states of a model, the path that is shortest: for each element of the result, the position of each
    summed label in a term that is the maximum, or the minimum.

    Positions come as one array per label and not as one number per element, as in ``numpy.argmax``, because they index
    the operands as they are: ``a[i, positions["j"]]``.

    If several terms attain the value, the positions are those of one of them, the same in each call with the same path
    and sizes: a step of the path that sums over labels takes the first position of theirs, in the order in which they
    appear in the equation. The terms of the positions equal the value up to the rounding of their sums, and exactly
    if they are added in the order of the path. That is also so for a value of infinity, as of a state that is not
    reachable: the positions are those of one of the terms, all of which are impossible. A value of nan comes with those
    of a term that is nan.

    Memory is needed for all intermediates of the path at once, and for 100 000 terms, or those of one element, beside
    the result. While a program is traced, as by ``jax.jit``, its compiler decides; ``torch.compile`` calls the function
    outside of its graph. There are no gradients of positions; those of the value are einsum's.

    Args:
        *operands: as for :func:`einsumx.einsum`: an equation and arrays, or arrays and labels.
        semiring: ``"max-plus"``, ``"min-plus"``, ``"max-times"``, or another :class:`einsumx.Semiring` of ``maximum``
            or ``minimum``; also ``"boolean"``, for the position of a term that is true, the first one if none is.
        optimize: as for :func:`einsumx.einsum`.
        backend: as for :func:`einsumx.einsum`.
        dtype: as for :func:`einsumx.einsum`; that of the value.

    Returns:
        A named tuple ``(value, positions)``. Positions have the dtype int64, or the framework's widest integers: int32
        on JAX without 64-bit numbers. Axes of an ellipsis that the result lacks have labels of their own class.

    Raises:
        EinsumxError: as :func:`einsumx.einsum` does.
        SizeError: a summed label has size 0, so that there is no position; or a size is not known while a program is
            traced.
        BackendError: the framework has no semirings; the operands are Dask arrays.
        ValueError: ``"log"`` or another sum to which all terms contribute, so that none attains it.

    >>> import numpy as np
    >>> value, positions = einsum_argmax("ij,jk->ik", np.array([[1.0, 5.0, 2.0]]), np.array([[1.0], [0.0], [2.0]]))
    >>> value, positions
    (array([[5.]]), {'j': array([[1]])})
    """
    chosen = as_semiring("max-plus" if semiring is None else semiring)
    assert chosen is not None
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():
        from einsumx.backends.torch import compile as torch_compile

        result: ArgmaxResult = torch_compile.outside(_attained, operands, chosen, optimize, backend, dtype)
        return result
    return _attained(operands, chosen, optimize, backend, dtype)


hooks.as_it_is(einsum_argmax)


def _attained(
    operands: Sequence[Any], chosen: Semiring, optimize: Optimize, backend: str | None, dtype: Any
) -> ArgmaxResult:
    if chosen.add == "logaddexp":
        raise ValueError(
            f"semiring={chosen.name!r} adds up all terms, and none of them attains the sum; semiring='max-plus' has "
            "the largest one"
        )
    written, inputs = split(operands)
    if lazy(inputs) is not None:
        raise BackendError("einsum_argmax is not offered for Dask arrays; call compute() on the operands")
    adapter, arrays = arrays_of(inputs, get_backend(backend) if backend is not None else None)
    if not (adapter.has_semirings and adapter.has_positions):
        raise BackendError(f"{adapter.name} has no einsum_argmax; convert the operands to NumPy, PyTorch or JAX")
    options = with_semiring(options_of(adapter, dtype, None, optimize), chosen)
    described_operands = described(adapter, adapter.signatures(written, arrays))
    options = options._replace(dtype=result_dtype(adapter, described_operands, options))
    shapes = [operand.shape for operand in described_operands]
    sized = sized_equation(written, shapes)
    _check_sizes(sized)
    path = find_path(sized, options.optimize, described_operands)
    contraction = _Contraction(adapter, options, sized)
    labels = labels_of(parsed(written, len(shapes)), [len(shape) for shape in shapes])
    with adapter.mode(arrays[0]):
        value = contraction.contract(arrays, path)
        positions = contraction.positions(value)
    return ArgmaxResult(adapter.element(value) if not sized.output else value, _by_label(positions, labels))


def _by_label(positions: Mapping[int, Array], labels: Sequence[Hashable]) -> dict[Hashable, Any]:
    return {labels[number]: positions[number] for number in sorted(positions)}


def _check_sizes(sized: SizedEquation) -> None:
    """Raise SizeError if a summed label has no positions, or if a size is not known."""
    text = excerpt(sized.text)
    if not is_known(sized.sizes):
        raise SizeError(
            f"einsum_argmax computes positions from sizes, and one is not known while the program is traced; declare "
            f"the shapes\n  {text}"
        )
    for label, size in enumerate(sized.sizes):
        if not size and label not in sized.output:
            raise SizeError(
                f"label {shown(label_names(sized)[label])} has size 0, and a maximum of no terms is attained nowhere; "
                f"einsum returns the value\n  {text}"
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


class _Contraction:
    """A contraction whose intermediates are kept."""

    def __init__(self, adapter: Adapter, options: Options, sized: SizedEquation) -> None:
        self._adapter, self._sized = adapter, sized
        self._options = options._replace(optimize="auto")  # for pairs, and the path is found already
        self._steps: list[_PairStep] = []

    def contract(self, arrays: Sequence[Array], path: Iterable[tuple[int, ...]]) -> Array:
        """The result, an array, along a path of steps of one or two terms."""
        sized = self._sized
        kept = [set(chain(sized.output, *(sized.carried(other) for other in range(len(arrays)) if other != number)))
                for number in range(len(arrays))]  # fmt: skip
        terms = []
        for number, array in enumerate(arrays):
            # Diagonals are taken and axes that broadcast dropped, then sums over the labels of one operand.
            own = tuple(dict.fromkeys(sized.carried(number)))
            term = _Kept(own, self._einsum((sized.inputs[number],), (array,), own))
            terms.append(self._summed((term,), kept[number]))
        for step in path:
            chosen = tuple([terms[place] for place in step])
            terms = [term for place, term in enumerate(terms) if place not in step]
            terms.append(self._summed(chosen, set(chain(sized.output, *(term.labels for term in terms)))))
        (result,) = terms
        return self._einsum((result.labels,), (result.array,), sized.output)

    def _einsum(self, terms: Sequence[Labels], arrays: Sequence[Array], output: Labels) -> Array:
        prepared = prepare(self._adapter, (tuple(terms), output), arrays, self._options)
        return self._adapter.boxed(prepared.run(*arrays), prepared.program.dtype)

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
            places = adapter.places(start, min(start + rows, count), value)
            found = self._walked_back(places) if count else {}
            for label in summed:
                # Without elements there are no positions.
                parts[label].append(found[label] if label in found else places * 0)
        joined = {label: each[0] if len(each) == 1 else adapter.joined(each) for label, each in parts.items()}
        shaped = {label: adapter.reshape(array, sized.shape) for label, array in joined.items()}
        return shaped if sized.output else {label: adapter.element(array) for label, array in shaped.items()}

    def _walked_back(self, places: Array) -> dict[int, Array]:
        """The positions of all labels at some places of the result, which count its elements in C order."""
        adapter = self._adapter
        found = self._positions_of(self._sized.output, places)
        for step in reversed(self._steps):
            rows = [adapter.rows(matrix, self._place(kept, found, places)) for kept, matrix in step.terms]
            terms = rows[0] if len(rows) == 1 else self._einsum([(0, 1)] * 2, rows, (0, 1))
            if adapter.dtype_name(terms.dtype) == "bool":
                terms = adapter.cast(terms, "uint8")
            found |= self._positions_of(step.summed, adapter.best(terms, self._is_least))
        return found

    @property
    def _is_least(self) -> bool:
        semiring = self._options.semiring
        return semiring is not None and semiring.add == "minimum"

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
