"""The arrays between the ops as the planner knows them: their labels and layouts, and how each is used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from einsumx.ir.layout import contiguous, memory_order, merged_stride
from einsumx.ir.parse import SYMBOLS, symbol

Labels: TypeAlias = tuple[int, ...]

Groups: TypeAlias = tuple[Labels, ...]
"""For each axis of an array, the labels that are one in it."""


class Term:
    """A value during lowering: its slot, and for each axis a label and a stride in elements.

    Args:
        slot, labels: of the value.
        strides: of its axes; None if it is C-contiguous.
        sizes: of all labels.
        flat: the axes that its slot has, if each is not one label; only of C-contiguous terms.
    """

    __slots__ = ("flat", "is_packed", "labels", "memory", "sizes", "slot", "steps", "strides")

    labels: Labels
    memory: Labels
    """The labels from the outermost in memory to the innermost."""
    steps: dict[int, int]
    """The stride of each label."""
    strides: tuple[int, ...]
    """The stride of each axis."""

    def __init__(
        self,
        slot: int,
        labels: Labels,
        strides: tuple[int, ...] | None,
        sizes: Sequence[int],
        flat: Groups | None = None,
    ) -> None:
        self.slot, self.labels, self.sizes, self.flat = slot, labels, sizes, flat
        if strides is None:
            self.is_packed, self.memory = True, labels
        else:
            self.is_packed, self.strides = False, strides

    def __getattr__(self, name: str) -> Any:
        """An attribute that is computed when it is first asked for."""
        value: Any
        if name == "strides":
            value = contiguous(self.shape)
        elif name == "memory":
            value = tuple(map(self.labels.__getitem__, memory_order(self.strides)))
        elif name == "steps":
            value = dict(zip(self.labels, self.strides))
        else:
            raise AttributeError(name)
        setattr(self, name, value)
        return value

    def __repr__(self) -> str:
        return f"Term(slot={self.slot}, labels={self.labels}, strides={self.strides})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return tuple(map(self.sizes.__getitem__, self.labels))

    def merged(self, labels: Labels) -> int | None:
        """The stride of ``labels`` as a single axis; None if they do not merge, 1 without any."""
        steps = self.steps
        return merged_stride([self.sizes[label] for label in labels], [steps[label] for label in labels])


class ResultUse(NamedTuple):
    """How a result is used, which decides between axis orders.

    Attributes:
        order: the requested axis order; None for the result of an inner step.
        contracted: the labels that the next step sums, in the order in which its other term has them.
        batch: the labels that the next step has in both terms and keeps.
    """

    order: Labels | None = None
    contracted: Labels = ()
    batch: Labels = ()

    def target(self, labels: Labels) -> Labels | None:
        """``labels`` in the requested order."""
        return None if self.order is None else tuple(filter(labels.__contains__, self.order))

    def preferred(self, labels: Labels) -> Labels:
        """``labels`` in the requested order, or as the next step has them: along its batch, free, and contracted."""
        if self.order is not None:
            return tuple(filter(labels.__contains__, self.order))
        shared = [*self.batch, *self.contracted]
        free = [label for label in labels if label not in shared]
        return tuple([label for label in (*self.batch, *free, *self.contracted) if label in labels])

    def is_ready(self, result: Labels, sizes: Sequence[int], takes_strides: bool) -> bool:
        """Whether the next step can read a C-contiguous result in place.

        Args:
            result: its labels, in order.
            sizes: of each label.
            takes_strides: whether a matmul takes batch axes with any strides.
        """
        summed, batch = self.contracted, self.batch
        if not (summed or batch):
            return True
        contracted: list[int] = []
        free: list[int] = []
        count = 0
        for label in result:
            if sizes[label] != 1:
                if label in summed:
                    contracted.append(label)
                elif label not in batch:
                    free.append(count)
                count += 1
        if not contracted:
            return True
        if 1 in sizes:
            result = tuple([label for label in result if sizes[label] != 1])
        run = tuple(contracted)
        if run != tuple(filter(run.__contains__, summed)):
            return False
        start = result.index(run[0])
        if result[start : start + len(run)] != run:
            return False
        is_run = not free or free[-1] - free[0] == len(free) - 1
        if takes_strides:
            return is_run and result[-1] not in self.batch
        return is_run and all(label in self.batch for label in result[: len(result) - len(contracted) - len(free)])


def repeated(labels: Labels) -> tuple[int, int] | None:
    """The first axis whose label comes again, and where it does; None if all labels are different.

    >>> repeated((4, 3, 5, 3)), repeated((4, 3))
    ((1, 3), None)
    """
    for axis, label in enumerate(labels):
        if label in labels[axis + 1 :]:
            return axis, labels.index(label, axis + 1)
    return None


def joined(runs: Iterable[Labels]) -> Labels:
    """The labels of all runs."""
    return tuple(chain.from_iterable(runs))


def ordered(labels: Labels, memory: Labels) -> Labels:
    """``labels`` in an array's memory order, those that it lacks first.

    >>> ordered((1, 2, 3), (4, 3, 1))
    (2, 3, 1)
    """
    return (*[label for label in labels if label not in memory], *[label for label in memory if label in labels])


def native_equation(inputs: Sequence[Labels], output: Labels) -> str:
    """An equation in text form, with letters from a in order of appearance.

    >>> native_equation([(7, 3), (3, 5)], (5, 7))
    'ab,bc->ca'
    """
    labels = dict.fromkeys(chain.from_iterable(inputs))
    letters = dict(zip(labels, SYMBOLS if len(labels) <= len(SYMBOLS) else map(symbol, range(len(labels)))))
    letter = letters.__getitem__
    return f"{','.join([''.join(map(letter, term)) for term in inputs])}->{''.join(map(letter, output))}"
