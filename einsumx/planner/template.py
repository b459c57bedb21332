"""Templates: the ops of a contraction, or of one step, for all sizes that lead to the same decisions.

Lowering asks two kinds of questions. Structure, such as which axes merge, depends on labels, on layouts and on which
sizes are 1. Decisions, such as which operand to copy, depend on the sizes; :meth:`Builder.decide` makes and records
each. So lowering uses a different prime as the size of each label, except for sizes of 1: these stand-ins have the
same structure, and the size of an axis in the ops says which labels it spans. The same contraction with other sizes
needs no lowering if every recorded decision comes out the same; only the shapes in the ops change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Generic, TypeAlias, TypeVar

from einsumx.ir import ops
from einsumx.ir.ops import Op

__all__ = ["Decision", "Elements", "Labels", "Template", "Templates", "known", "replaced", "stand_ins"]

Labels: TypeAlias = tuple[int, ...]


class Elements(dict[Labels, int]):
    """How many elements labels span: ``elements[labels]`` is the product of their sizes, computed once.

    >>> Elements((2, 3, 5))[0, 2]
    10
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = sizes

    def __missing__(self, labels: Labels) -> int:
        sizes = self.sizes
        count = self[labels] = prod(map(sizes.__getitem__, labels))
        return count


Decision: TypeAlias = tuple[Callable[[Elements], Hashable], Hashable]
"""A question about sizes, and its answer."""


@lru_cache(maxsize=256)
def stand_ins(are_ones: tuple[bool, ...]) -> tuple[int, ...]:
    """A size for each label: 1, or a prime of its own.

    >>> stand_ins((False, True, False))
    (11, 1, 17)
    """
    return tuple([1 if is_one else prime for is_one, prime in zip(are_ones, _primes(len(are_ones)))])


@lru_cache(maxsize=64)
def _primes(count: int) -> tuple[int, ...]:
    """Primes from 11 on; smaller ones could equal the constants of the planner."""
    primes: list[int] = []
    candidate = 11
    while len(primes) < count:
        if all(candidate % prime for prime in (2, 3, 5, 7, *primes)):
            primes.append(candidate)
        candidate += 2
    return tuple(primes)


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class Template(Generic[Result]):
    """Ops whose shapes are groups of labels.

    Attributes:
        ops: as lowered for stand-ins.
        spans: for each op that states sizes, the labels that each of them spans; None for the other ops.
        result: the value or the slot that the ops compute.
        decisions: those that led to these ops.
    """

    ops: tuple[Op, ...]
    spans: tuple[tuple[Labels, ...] | None, ...]
    result: Result
    decisions: tuple[Decision, ...]

    @classmethod
    def drafted(
        cls, calls: Sequence[Op], spans: Mapping[int, Labels], result: Result, decisions: Sequence[Decision]
    ) -> Template[Result]:
        """The template of ops that were lowered for stand-ins.

        Args:
            calls: the ops.
            spans: the labels that each size in the ops spans.
            result: the value or the slot that they compute.
            decisions: those that led to them.
        """
        return cls(tuple(calls), tuple([_spans(op, spans) for op in calls]), result, tuple(decisions))

    def fits(self, elements: Elements) -> bool:
        """Whether these sizes lead to the same decisions."""
        for question, answer in self.decisions:  # noqa: SIM110  this runs for each new size
            if question(elements) != answer:
                return False
        return True

    def sized(self, elements: Elements) -> tuple[Op, ...]:
        """The ops for these sizes."""
        return tuple(
            [
                op if spans is None else replaced(op, _SAME, [elements[labels] for labels in spans])
                for op, spans in zip(self.ops, self.spans)
            ]
        )


def _spans(op: Op, spans: Mapping[int, Labels]) -> tuple[Labels, ...] | None:
    match op:
        case ops.Reshape() | ops.Expand():
            return tuple(spans[size] for size in op.shape)
        case ops.Scale():
            return (spans[op.count],)
        case _:
            return None


def replaced(op: Op, names: Mapping[int, int], sizes: Sequence[int] | None) -> Op:
    """An op with other slots, and other sizes if it has any."""
    if sizes is None:
        return op.renamed(names)
    match op:
        case ops.Reshape() | ops.Expand():
            return type(op)(names.get(op.out, op.out), names.get(op.src, op.src), tuple(sizes))
        case ops.Scale():
            return ops.Scale(names.get(op.out, op.out), names.get(op.src, op.src), sizes[0])
        case _:
            return op


_SAME: Mapping[int, int] = {}

_MOST = 8
"""The most templates of one structure: more decisions than these recur rarely."""

_MOST_SIZES = 64
"""The most sizes of one structure whose template is remembered."""


class Templates(Generic[Result]):
    """The templates of one structure.

    Threads that add at the same time may lose an entry, which only costs time.
    """

    def __init__(self) -> None:
        self._known: tuple[Template[Result], ...] = ()
        self._by_sizes: dict[tuple[int, ...], Template[Result]] = {}

    def fitting(self, sizes: tuple[int, ...]) -> Template[Result] | None:
        """The template for these sizes of the labels, if there is one."""
        template = self._by_sizes.get(sizes)
        if template is None:
            elements = Elements(sizes)
            for known in self._known:
                if known.fits(elements):
                    self._remember(sizes, known)
                    return known
        return template

    def add(self, template: Template[Result], sizes: tuple[int, ...]) -> None:
        """Keep one more template, made for these sizes, and forget the oldest one if there are too many."""
        self._known = (template, *self._known[: _MOST - 1])
        self._remember(sizes, template)

    def _remember(self, sizes: tuple[int, ...], template: Template[Result]) -> None:
        if len(self._by_sizes) >= _MOST_SIZES:
            self._by_sizes = {}
        self._by_sizes[sizes] = template


@lru_cache(maxsize=1024)
def known(structure: Hashable) -> Templates[Any]:  # noqa: ARG001  the key of the cache
    """The templates of a structure: of everything but sizes that lowering depends on."""
    return Templates()
