"""Estimates time and memory of a plan on blocks of other sizes, as products of label sizes.

An estimate assumes that the same ops run. It is off if lowering would choose others; the search then makes a new one
from a plan that is lowered for those sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from einsumx.blocked.stages import Labels
from einsumx.dtypes import itemsize
from einsumx.ir import ops
from einsumx.ir.algebra import Kernels
from einsumx.ir.cost import OpCost, freed, op_costs, op_price
from einsumx.ir.operand import Operand
from einsumx.ir.program import Program
from einsumx.ir.values import result_of


class _Axis(int):
    """The size of an axis, with its labels except those of size 1."""

    labels: Labels = ()


class Estimate(NamedTuple):
    """The estimated cost of some ops.

    Attributes:
        seconds: their total time.
        peak: the most bytes alive at once of the arrays that they allocate.
        tight: the labels of the arrays alive at the peak.
    """

    seconds: float
    peak: int
    tight: frozenset[int]


def labelled_costs(
    program: Program, terms: Sequence[Labels], output: Labels, sizes: Sequence[int], kernels: Kernels
) -> tuple[OpCost, ...]:
    """The cost of each op of a program that was lowered for blocks of these sizes of labels; shapes have the labels."""
    return op_costs(program, kernels, _labelled(program, terms, output, sizes))


def axis_labels(
    program: Program, terms: Sequence[Labels], output: Labels, sizes: Sequence[int]
) -> dict[int, tuple[Labels, ...]]:
    """The labels of each axis of each slot, except those of size 1; arguments as for :func:`labelled_costs`.

    >>> import einsumx
    >>> program = einsumx.plan("ij,jk->ik", (2, 3), (3, 4))
    >>> axis_labels(program, ((0, 1), (1, 2)), (0, 2), (2, 3, 4))[2]
    ((0,), (2,))
    """
    values = _labelled(program, terms, output, sizes)
    return {slot: tuple(map(_axis_labels, value.shape)) for slot, value in enumerate(values)}


def _axis_labels(axis: int) -> Labels:
    return axis.labels if isinstance(axis, _Axis) else ()


def _labelled(program: Program, terms: Sequence[Labels], output: Labels, sizes: Sequence[int]) -> list[Operand]:
    """The values of a program, with the labels of the axes in their shapes."""

    def axis(labels: Labels) -> _Axis:
        labelled = _Axis(prod(sizes[label] for label in labels))
        labelled.labels = tuple(label for label in labels if sizes[label] != 1)
        return labelled

    values = [
        replace(
            operand,
            shape=tuple([axis((label,) if size == sizes[label] else ()) for label, size in zip(term, operand.shape)]),
        )
        for term, operand in zip(terms, program.operands)
    ]
    for op in program.ops:
        sources = [values[slot] for slot in op.sources]
        match op:  # the shapes of the others consist of axes of their sources
            case ops.Reshape():
                op = replace(op, shape=tuple(map(axis, _regrouped(_in_order(sources[0]), op.shape, sizes))))
            case ops.Zeros():
                op = replace(op, shape=tuple([axis((label,)) for label in output]))
            case ops.Expand():  # along labels of the result that no operand has data for
                present = _in_order(sources[0])
                missing = iter([label for label in output if sizes[label] > 1 and label not in present])
                wider = [
                    old if old == size else axis((next(missing),)) for old, size in zip(sources[0].shape, op.shape)
                ]
                op = replace(op, shape=tuple(wider))
        values.append(result_of(op, sources))
    return values


def _in_order(value: Operand) -> list[int]:
    """The labels of all axes, in order."""
    return [label for axis in value.shape for label in _axis_labels(axis)]


def _labels_of(axes: Sequence[int]) -> Labels:
    return tuple(sorted([label for axis in axes for label in _axis_labels(axis)]))


def _regrouped(labels: Sequence[int], shape: Sequence[int], sizes: Sequence[int]) -> Iterator[Labels]:
    left = list(labels)
    for size in shape:
        run: list[int] = []
        while prod(sizes[label] for label in run) < size:
            run.append(left.pop(0))
        yield tuple(run)


class Sketch:
    """The seconds and bytes of some ops of a program, on blocks of any size.

    ``costs`` are those of these ops, with labels, and ``sizes`` the sizes of labels that the program was lowered for.
    Arrays that other ops allocate do not count.
    """

    def __init__(self, program: Program, costs: Sequence[OpCost], sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        numbers: dict[Labels, int] = {(): 0}

        def number(labels: Labels) -> int:
            return numbers.setdefault(labels, len(numbers))

        traits = program.contraction.place.traits
        prices = [op_price(cost.op, cost.sources, cost.result, traits) for cost in costs]
        self._fixed = sum(price.time() for price in prices if not price.amounts)
        self._times = [
            (price.time, [number(_labels_of(axes)) for axes in price.amounts]) for price in prices if price.amounts
        ]
        self._moments: list[tuple[tuple[int, int], int, float, list[tuple[int, int]], frozenset[int]]] = []
        alive: dict[int, tuple[Labels, int]] = {}  # the labels of each array, and bytes an element
        for cost, gone in zip(costs, freed(costs, costs[-1].op.out if costs else 0)):
            own = 0, 0
            if cost.allocated:
                labels, size = alive[cost.op.out] = _labels_of(cost.result.shape), itemsize(cost.result.dtype)
                own = number(labels), size
            largest = max([value.shape for value in (*cost.sources, cost.result)], key=prod)
            labels, rate = _labels_of(largest), cost.workspace / max(prod(largest), 1)
            tight = frozenset(labels if rate else ()).union(*[each for each, _ in alive.values()])
            ended = [(number(each), size) for each, size in (alive.pop(slot) for slot in gone if slot in alive)]
            self._moments.append((own, number(labels), rate, ended, tight))
        self._products = list(numbers)

    def __call__(self, sizes: Sequence[int]) -> Estimate:
        """The estimate for labels of these sizes."""
        amount = [prod([sizes[label] for label in labels]) for labels in self._products]
        seconds = self._fixed
        for time, factors in self._times:
            seconds += time(*[amount[number] for number in factors])
        held, peak, tight = 0, 0, frozenset[int]()
        for (own, size), space, rate, ended, labels in self._moments:
            held += amount[own] * size
            total = held + round(amount[space] * rate) if rate else held
            if total > peak:
                peak, tight = total, labels
            for number, size in ended:
                held -= amount[number] * size
        return Estimate(seconds, peak, tight)
