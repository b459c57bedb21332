"""The order of pairwise contractions of sparse operands, by the elements that they store.

A search by sizes alone treats zeros as work. Here a step costs what its stored elements cost
(:func:`einsumx.ir.fill.work`), and the estimated density of its result goes into the later steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import inf, prod
from typing import NamedTuple

from einsumx.ir.fill import density_of_sum, work
from einsumx.ir.operand import Path

_ALL = 8
"""Up to so many operands, the search covers all paths, in some milliseconds."""


class _SparseTerm(NamedTuple):
    """An operand or the result of steps.

    Attributes:
        labels: of its axes.
        density: the share of its elements that it stores.
        elements: how many that are.
    """

    labels: frozenset[int]
    density: float
    elements: float


class _Step(NamedTuple):
    """A pairwise contraction: its result, and its work in multiply-adds."""

    result: _SparseTerm
    work: float


def sparse_path(
    inputs: tuple[frozenset[int], ...], output: frozenset[int], sizes: tuple[int, ...], densities: tuple[float, ...]
) -> Path:
    """A path of little estimated work; the least of all paths if there are few operands.

    Args:
        inputs: the labels of each operand.
        output: the labels of the result.
        sizes: of all labels.
        densities: the share of each operand's elements that it stores.

    >>> chain = (frozenset({0, 1}), frozenset({1, 2}), frozenset({2, 3}))
    >>> sparse_path(chain, frozenset({0, 3}), (600, 600, 600, 10), (0.01, 0.01, 0.01))
    ((1, 2), (0, 1))
    """
    search = _PathSearch(inputs, output, sizes, densities)
    return tuple(search.best() if len(inputs) <= _ALL else search.greedy())


class _PathSearch:
    """A search for the path with the least work.

    Args:
        inputs: the labels of each operand.
        output: the labels of the result.
        sizes: of all labels.
        densities: the share of its elements that each operand stores.
    """

    def __init__(
        self, inputs: Sequence[frozenset[int]], output: frozenset[int], sizes: Sequence[int], densities: Sequence[float]
    ) -> None:
        self._sizes, self._output = sizes, output
        self._inputs = inputs
        self._terms = [
            _SparseTerm(labels, density, density * self._size(labels)) for labels, density in zip(inputs, densities)
        ]

    def _size(self, labels: frozenset[int]) -> int:
        return prod([self._sizes[label] for label in labels])

    def _step(self, lhs: _SparseTerm, rhs: _SparseTerm, others: frozenset[int]) -> _Step:
        """The contraction of two terms; ``others`` are the labels of the other terms and of the result."""
        every = lhs.labels | rhs.labels
        kept = every & others
        share, size, steps = lhs.density * rhs.density, self._size(kept), self._size(every)
        density = density_of_sum(share, steps // max(size, 1))
        result = _SparseTerm(kept, density, density * size)
        return _Step(result, work(lhs.elements + rhs.elements + result.elements, share * steps))

    def best(self) -> Iterator[tuple[int, int]]:
        """The path with the least work, found for every set of operands from those of its parts."""
        count = len(self._terms)
        everything = (1 << count) - 1
        labels = [self._output]  # of a set of operands, together with those of the result
        for operands in range(1, everything + 1):
            lowest = operands & -operands
            labels.append(labels[operands ^ lowest] | self._inputs[lowest.bit_length() - 1])
        terms = {1 << place: term for place, term in enumerate(self._terms)}
        costs = dict.fromkeys(terms, 0.0)
        splits: dict[int, tuple[int, int]] = {}
        for operands in sorted(range(1, everything + 1), key=int.bit_count):
            if operands in terms:
                continue
            costs[operands] = inf
            part = (operands - 1) & operands
            while part > operands ^ part:  # each split once
                rest = operands ^ part
                before = costs[part] + costs[rest]
                if before < costs[operands]:
                    step = self._step(terms[part], terms[rest], labels[everything ^ operands])
                    if before + step.work < costs[operands]:
                        costs[operands] = before + step.work
                        terms[operands], splits[operands] = step.result, (part, rest)
                part = (part - 1) & operands
        yield from _positions(splits, count)

    def greedy(self) -> Iterator[tuple[int, int]]:
        """A path whose every step has the least work, less the work of reading its operands later."""
        terms = dict(enumerate(self._terms))
        left = list(terms)  # by position
        scores: dict[tuple[int, int], float] = {}
        fresh = left
        while len(left) > 1:
            uses = self._uses(terms.values())
            for name, other in product(fresh, left):
                if name != other and terms[name].labels & terms[other].labels:
                    pair = min(name, other), max(name, other)
                    scores[pair] = self._score(terms[pair[0]], terms[pair[1]], uses)
            if not scores:  # only outer products are left: the smallest first
                first, second = sorted(sorted(left, key=lambda name: (terms[name].elements, name))[:2])
                scores[first, second] = 0.0
            pair = min(scores, key=lambda pair: (scores[pair], pair))
            yield _taken(left, pair)
            lhs, rhs = [terms.pop(name) for name in pair]
            scores = {other: score for other, score in scores.items() if not {*pair} & {*other}}
            fresh = [2 * len(self._terms) - len(left) - 1]
            terms[fresh[0]] = self._step(lhs, rhs, _others(lhs, rhs, uses)).result
            left.append(fresh[0])

    def _uses(self, terms: Iterable[_SparseTerm]) -> dict[int, int]:
        """How many terms have each label, and the result."""
        uses: dict[int, int] = dict.fromkeys(self._output, 1)
        for term in terms:
            for label in term.labels:
                uses[label] = uses.get(label, 0) + 1
        return uses

    def _score(self, lhs: _SparseTerm, rhs: _SparseTerm, uses: Mapping[int, int]) -> float:
        step = self._step(lhs, rhs, _others(lhs, rhs, uses))
        return step.work + work(step.result.elements - lhs.elements - rhs.elements, 0)


def _others(lhs: _SparseTerm, rhs: _SparseTerm, uses: Mapping[int, int]) -> frozenset[int]:
    """The labels of two terms that another term or the result has."""
    labels = lhs.labels | rhs.labels
    return frozenset([each for each in labels if uses[each] > (each in lhs.labels) + (each in rhs.labels)])


def _positions(splits: Mapping[int, tuple[int, int]], count: int) -> Iterator[tuple[int, int]]:
    """The steps of the tree of all operands."""
    sets = [(1 << count) - 1]
    for operands in sets:
        sets += [part for part in splits[operands] if part in splits]
    left = [1 << place for place in range(count)]
    for operands in sorted(sets, key=int.bit_count):
        yield _taken(left, splits[operands])
        left.append(operands)


def _taken(left: list[int], pair: tuple[int, int]) -> tuple[int, int]:
    """The positions of two names, which leave the list."""
    low, high = sorted(map(left.index, pair))
    del left[high], left[low]
    return low, high
