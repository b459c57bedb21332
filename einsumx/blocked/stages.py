"""Splits a contraction that is cut into blocks into stages, each of which runs in its own loops.

A contraction is a tree of pairwise contractions. If labels are cut into blocks, each value of the tree is needed once
for every block of its own cut labels. A cut label that is summed is looped over at the node that sums it, and partial
sums are added up there. A value that an inner loop does not change is computed outside that loop and kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from einsumx.ir.bind import SizedEquation
from einsumx.ir.operand import Path
from einsumx.planner.path import step_outputs

Labels: TypeAlias = tuple[int, ...]
"""Labels of a sized equation, by number."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a contraction that runs as one plan, on one block of each cut label.

    Attributes:
        inputs: operands by number, and stages.
        terms: the labels of each input.
        output: the labels of its value.
        path: the order of pairwise contractions of its inputs.
        nest: the loops that it runs in, outermost first: it computes a value for each of their blocks.
        summed: the cut labels that are summed here, outermost first.
        nests: for each input, the loops that change it.
        carried: for each input, its cut labels.
        order: the positions of the inputs in the order in which they are computed or read. Computed values come first,
            so that no block that is read for this stage alone is in memory meanwhile; then those kept longest.
    """

    inputs: tuple[int | Stage, ...] = field(hash=False)  # the other fields identify it without a walk over the tree
    terms: tuple[Labels, ...]
    output: Labels
    path: Path
    nest: Labels
    summed: Labels
    nests: tuple[Labels, ...]
    carried: tuple[Labels, ...]
    order: tuple[int, ...]

    @property
    def inside(self) -> Labels:
        """The loops around a run of its plan."""
        return (*self.nest, *self.summed)


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the contraction's tree.

    Attributes:
        labels: its labels.
        children: the values that it is computed from.
        operand: the number of the operand; -1 for a computed value.
        summed: the labels of its children that it does not have.
        below: the labels in its subtree, its own included.
        number: its position in the order of computation; -1 for an operand.
    """

    labels: frozenset[int]
    children: tuple[Node, ...] = ()
    operand: int = -1
    summed: frozenset[int] = frozenset()
    below: frozenset[int] = frozenset()
    number: int = -1


Known: TypeAlias = dict[tuple[int, Labels, Labels], Stage]
"""Stages by the number of the value that they compute, the loops around them, and the cut labels in the subtree."""


def tree(equation: SizedEquation, path: Path) -> Node:
    """The tree of pairwise contractions along a path."""
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
    """Split a contraction into stages, with the labels of ``order`` cut, in loops of that order.

    Stages that are ``known`` are shared, and new ones are added to them.

    >>> from einsumx.ir.bind import bind
    >>> from einsumx.ir.parse import parse_text
    >>> sized = bind(parse_text("ab,bc,cd->ad", 3), [(4, 5), (5, 6), (6, 7)])
    >>> root = stages(sized, tree(sized, ((1, 2), (0, 1))), (0, 2))
    >>> root.terms, root.output, root.nest, root.summed
    (((0, 1), (1, 3)), (0, 3), (0,), ())
    >>> root.inputs[1].terms, root.inputs[1].output, root.inputs[1].nest, root.inputs[1].summed
    (((1, 2), (2, 3)), (1, 3), (), (2,))
    """
    shared: Known = {} if known is None else known

    def stage(top: Node, nest: Labels, output: Labels) -> Stage:
        key = top.number, nest, tuple([label for label in order if label in top.below])
        if key not in shared:
            shared[key] = new(top, nest, output)
        return shared[key]

    def new(top: Node, nest: Labels, output: Labels) -> Stage:
        summed = tuple([label for label in order if label in top.summed])
        inside = (*nest, *summed)
        inputs: list[tuple[int | Stage, Labels, Labels, Labels]] = []
        steps: list[tuple[int, ...]] = []

        def add_input(source: int | Stage, labels: Labels, node: Node, around: Labels) -> int:
            inputs.append((source, labels, around, tuple([label for label in order if label in node.labels])))
            return len(inputs) - 1

        # Inputs have numbers from 0 up, results of steps from -1 down. Trees can be too deep for recursion.
        values: list[int] = []
        todo = [(top, False)]
        while todo:
            node, has_children = todo.pop()
            if has_children:
                first = len(values) - len(node.children)
                steps.append(tuple(values[first:]))
                values[first:] = [-len(steps)]
                continue
            around = truncated(inside, node.labels)
            if node.operand >= 0:
                values.append(add_input(node.operand, equation.inputs[node.operand], node, around))
            elif node is not top and (around != inside or not node.summed.isdisjoint(order)):
                labels = tuple(sorted(node.labels))
                values.append(add_input(stage(node, around, labels), labels, node, around))
            else:
                todo.append((node, True))
                todo += [(child, False) for child in reversed(node.children)]
        path = _linear(steps, len(inputs))
        sources, terms, nests, carried = zip(*inputs)
        places = sorted(range(len(inputs)), key=lambda at: (not isinstance(sources[at], Stage), len(nests[at])))
        return Stage(sources, terms, output, path, nest, summed, nests, carried, tuple(places))

    return stage(root, tuple(label for label in order if label in root.labels), equation.output)


def truncated(nest: Labels, labels: frozenset[int]) -> Labels:
    """The loops up to the innermost that a value with ``labels`` depends on."""
    while nest and nest[-1] not in labels:
        nest = nest[:-1]
    return nest


def _linear(steps: Sequence[tuple[int, ...]], count: int) -> Path:
    """Steps over numbered values as a path, whose positions refer to a list that shrinks."""
    ages = list(range(count))  # of the remaining values, in ascending order
    path = []
    for number, step in enumerate(steps):
        positions = tuple(sorted([bisect_left(ages, value if value >= 0 else count - value - 1) for value in step]))
        for position in reversed(positions):
            del ages[position]
        ages.append(count + number)
        path.append(positions)
    return tuple(path)
