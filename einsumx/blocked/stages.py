"""The stages of a contraction that is cut into blocks: what runs for which blocks, and in which loops.

A contraction is a tree of pairwise ones. Where labels are cut into blocks, each value of the tree is needed once for
every block of the cut labels that it has itself: a cut label that is summed is looped over where it is summed, and
partial sums are added up there. A value that an inner loop does not change is computed outside of it and kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from einsumx.ir.bind import SizedEquation
from einsumx.ir.parse import symbol
from einsumx.ir.program import Path
from einsumx.planner.path import step_outputs

__all__ = ["Known", "Labels", "Node", "Stage", "ranges", "stages", "tree", "truncated"]

Labels: TypeAlias = tuple[int, ...]
"""Labels of a sized equation, by number."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a contraction that runs as one plan, on a block of each label that is cut.

    Attributes:
        inputs: operands by number, and stages whose values it takes.
        terms: the labels of each input.
        output: the labels of its value.
        path: the order of pairwise contractions of its inputs.
        nest: the loops that it runs in, from the outermost: it runs again for each of their blocks.
        loops: cut labels that are summed here, block by block, outermost first.
        nests: of each input, the loops that change it.
        carried: of each input, the labels that are cut and that it has.
    """

    inputs: tuple[int | Stage, ...] = field(hash=False)  # the rest tells it apart, without a walk through them all
    terms: tuple[Labels, ...]
    output: Labels
    path: Path
    nest: Labels
    loops: Labels
    nests: tuple[Labels, ...]
    carried: tuple[Labels, ...]

    @property
    def inside(self) -> Labels:
        """The loops around a run of its plan."""
        return (*self.nest, *self.loops)

    @property
    def order(self) -> list[int]:
        """The places of its inputs in the order in which they are brought.

        What is computed comes first, so that nothing that is read for this stage alone lies beside it; and of what is
        computed, and of what is read, that which is kept longest.
        """
        places = range(len(self.inputs))
        return sorted(places, key=lambda place: (not isinstance(self.inputs[place], Stage), len(self.nests[place])))

    @property
    def equation(self) -> str:
        """What it computes on its blocks, in letters."""
        terms = ",".join("".join(map(symbol, term)) for term in self.terms)
        return f"{terms}->{''.join(map(symbol, self.output))}"


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the contraction's tree.

    Attributes:
        labels: that it has.
        children: the values that it is made of.
        operand: its number, where it is one; else -1.
        summed: labels that its children have and it has not.
        below: labels that it has, or anything that it is made of.
        number: its place among the values in the order in which they are computed; -1 for an operand.
    """

    labels: frozenset[int]
    children: tuple[Node, ...] = ()
    operand: int = -1
    summed: frozenset[int] = frozenset()
    below: frozenset[int] = frozenset()
    number: int = -1


Known: TypeAlias = dict[tuple[int, Labels, Labels], Stage]
"""Stages by the number of the value that they compute, the loops around them, and the cut labels below them."""


def tree(equation: SizedEquation, path: Path) -> Node:
    """The contraction as a tree."""
    leaves = [frozenset(equation.carried(operand)) for operand in range(len(equation.inputs))]
    nodes = [Node(labels, operand=operand, below=labels) for operand, labels in enumerate(leaves)]
    # A sum over nothing is 0 whatever else is multiplied, infinities included: labels of size 0 are summed last.
    empty = [label for label, size in enumerate(equation.sizes) if size == 0]
    for number, (step, keep) in enumerate(step_outputs(path, leaves, frozenset((*equation.output, *empty)))):
        taken = [nodes.pop(position) for position in sorted(step, reverse=True)][::-1]
        labels = frozenset[int]().union(*(child.labels for child in taken))
        below = frozenset[int]().union(*(child.below for child in taken))
        nodes.append(Node(keep, tuple(taken), summed=labels - keep, below=below, number=number))
    (root,) = nodes
    return root


def stages(equation: SizedEquation, root: Node, order: Labels, known: Known | None = None) -> Stage:
    """The contraction as stages, where the labels of ``order`` are cut, in loops of that order.

    Args:
        equation: what is computed.
        root: the contraction as a tree.
        order: the labels that are cut.
        known: stages of the same contraction that are shared; new ones are added.

    >>> from einsumx.ir.bind import bind
    >>> from einsumx.ir.parse import parse_text
    >>> sized = bind(parse_text("ab,bc,cd->ad", 3), [(4, 5), (5, 6), (6, 7)])
    >>> root = stages(sized, tree(sized, ((1, 2), (0, 1))), (0, 2))
    >>> root.equation, root.nest, root.loops, root.inputs[1].equation, root.inputs[1].nest, root.inputs[1].loops
    ('ab,bd->ad', (0,), (), 'bc,cd->bd', (), (2,))
    """
    shared: Known = {} if known is None else known

    def stage(top: Node, nest: Labels, output: Labels) -> Stage:
        key = top.number, nest, tuple([label for label in order if label in top.below])
        if key not in shared:
            shared[key] = new(top, nest, output)
        return shared[key]

    def new(top: Node, nest: Labels, output: Labels) -> Stage:
        loops = tuple([label for label in order if label in top.summed])
        inside = (*nest, *loops)
        inputs: list[int | Stage] = []
        terms: list[Labels] = []
        nests: list[Labels] = []
        cut: list[Labels] = []
        steps: list[tuple[int, ...]] = []

        def given(source: int | Stage, labels: Labels, node: Node, around: Labels) -> int:
            inputs.append(source)
            terms.append(labels)
            nests.append(around)
            cut.append(tuple([label for label in order if label in node.labels]))
            return len(inputs) - 1

        # The numbers of values: inputs from 0 on; what steps make, from -1 down. Trees can be too deep for recursion.
        values: list[int] = []
        todo = [(top, False)]
        while todo:
            node, is_made = todo.pop()
            if is_made:
                first = len(values) - len(node.children)
                steps.append(tuple(values[first:]))
                values[first:] = [-len(steps)]
                continue
            around = truncated(inside, node.labels)
            if node.operand >= 0:
                values.append(given(node.operand, equation.inputs[node.operand], node, around))
            elif node is not top and (around != inside or not node.summed.isdisjoint(order)):
                labels = tuple(sorted(node.labels))
                values.append(given(stage(node, around, labels), labels, node, around))
            else:
                todo.append((node, True))
                todo += [(child, False) for child in reversed(node.children)]
        path = _linear(steps, len(inputs))
        return Stage(tuple(inputs), tuple(terms), output, path, nest, loops, tuple(nests), tuple(cut))

    return stage(root, tuple(label for label in order if label in root.labels), equation.output)


def truncated(nest: Labels, labels: frozenset[int]) -> Labels:
    """The loops up to the last that a value with ``labels`` depends on."""
    while nest and nest[-1] not in labels:
        nest = nest[:-1]
    return nest


def _linear(steps: Sequence[tuple[int, ...]], count: int) -> Path:
    """Steps over numbered values as a path over a list that shrinks."""
    ages = list(range(count))  # of the values that are left; the list stays in order
    path = []
    for number, step in enumerate(steps):
        positions = tuple(sorted([bisect_left(ages, value if value >= 0 else count - value - 1) for value in step]))
        for position in reversed(positions):
            del ages[position]
        ages.append(count + number)
        path.append(positions)
    return tuple(path)


def ranges(size: int, count: int) -> list[slice]:
    """An axis as ``count`` blocks whose sizes differ by one at most.

    >>> ranges(7, 3)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    """
    ends = [size * number // count for number in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(ends)]
