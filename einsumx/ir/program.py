"""``Program``: immutable data, the array calls that compute a contraction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from einsumx.imports import LazyModule
from einsumx.ir.contraction import Contraction, OfContraction
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Copy, Op, Reshape, Transpose
from einsumx.ir.records import HashedOnce, record

if TYPE_CHECKING:
    from einsumx.ir import values as slots
else:
    slots = LazyModule("einsumx.ir.values")


class Referable(OfContraction, HashedOnce):
    """The values of a program, once they are computed; and weak references, which ``tf.function`` needs."""

    __slots__ = ("__weakref__", "_values")
    _values: tuple[Operand, ...]


class Into(NamedTuple):
    """What becomes of a result with ``out=``.

    Attributes:
        how: "written" there by the last op that is no view, or "copied" there from a new array.
        nbytes: bytes of ``out``.
    """

    how: Literal["written", "copied"]
    nbytes: int


@record
class Program(Referable):
    """A contraction as straight-line array calls over numbered slots.

    Lowering returns one. Users get its subclass :class:`einsumx.Plan`, which they can call, print and store.

    Attributes:
        contraction: what it computes; its fields are attributes of the program too.
        ops: what runs, in order. Operand ``k`` is slot ``k``.
        result: the slot that holds the result.
        choices: the names of the candidates for the steps that were measured to be faster than the estimate's; see
            :class:`~einsumx.planner.selection.Selection`.
        into: what becomes of the result if the plan was made with ``out=``; None without.
    """

    contraction: Contraction
    ops: tuple[Op, ...]
    result: int
    choices: tuple[str, ...] = field(default=(), compare=False)
    into: Into | None = field(default=None, compare=False)

    @property
    def values(self) -> tuple[Operand, ...]:
        """Shape, dtype and layout of each slot: of the operands, and of the result of each op.

        Raises:
            EinsumxError: the ops do not fit together, see :func:`~einsumx.ir.values.described`.

        >>> import einsumx
        >>> einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32").values[2]
        Operand(shape=(3, 2), dtype='float32', strides=(1, 3))
        """
        try:
            return self._values
        except AttributeError:
            values = slots.described(self.ops, self.operands)
            object.__setattr__(self, "_values", values)
            return values

    @property
    def returns_view(self) -> bool:
        """Whether the result may be a view of an operand."""
        slot = self.result
        for op in reversed(self.ops):
            if op.out == slot:
                if op.effect == "work" or isinstance(op, Copy):
                    return False
                (slot,) = op.sources
        return True

    @property
    def calls(self) -> list[tuple[int, tuple[int, ...]]]:
        """For each op, the slot that it writes and those that it reads."""
        return [(op.out, op.sources) for op in self.ops]


Slots: TypeAlias = tuple[int, tuple[int, ...]]
"""The slot that an op writes, and those that it reads."""


class Arranged(NamedTuple):
    """Calls of which at most one has two operands, by their places.

    Attributes:
        before, other: those of its first source, and of its second one, or none.
        product: it.
        after: the others.
        is_swapped: its first source is made of the second operand.
    """

    before: tuple[int, ...]
    other: tuple[int, ...]
    product: int | None
    after: tuple[int, ...]
    is_swapped: bool


def arranged(calls: Sequence[Slots], arguments: tuple[int, ...], result: int) -> Arranged | None:
    """The calls of a program of at most one op of two operands, and others of one; None for another program.

    The ops of one operand run before those of the other, so the program must have them in this order.

    Args:
        calls: the slots that each writes and reads.
        arguments: the slots of the operands.
        result: the slot of the result.

    >>> arranged([(2, (1,)), (3, (2, 0))], (0, 1), 3)
    Arranged(before=(0,), other=(), product=1, after=(), is_swapped=True)
    """
    if len(arguments) > 2:
        return None
    chains: dict[int, list[int]] = {slot: [] for slot in arguments}
    before = other = chains[arguments[0]]
    first, product, last_out = before, None, -1
    for place, (out, sources) in enumerate(calls):
        chain = chains.pop(sources[0], None)
        if chain is None:
            return None
        if len(sources) == 1 and (not chain or sources[0] == last_out):
            chain.append(place)
        elif len(sources) == 2 and product is None and sources[1] in chains:
            product, before, other, chain = place, chain, chains.pop(sources[1]), []
        else:
            return None
        chains[out], last_out = chain, out
    last = chains.pop(result, None)
    if last is None or chains:
        return None
    after = tuple(last)
    if product is None:
        return Arranged((), (), None, after, is_swapped=False)
    return Arranged(tuple(before), tuple(other), product, after, is_swapped=before is not first)


def last_uses(calls: Sequence[tuple[int, Sequence[int]]], result: int) -> dict[int, list[int]]:
    """For each call, by the slot that it writes, the values of calls that no later one reads, without the result.

    Args:
        calls: the slot that each writes, and those that it reads.
        result: the slot of the result.

    >>> last_uses([(2, (0, 1)), (3, (2, 0)), (4, (2, 3))], 4)
    {4: [2, 3]}
    """
    unused = {out for out, _ in calls}
    unused.discard(result)
    last: dict[int, list[int]] = {}
    for out, sources in reversed(calls):
        for slot in (*sources, out):
            if slot in unused:
                unused.remove(slot)
                last.setdefault(out, []).append(slot)
    return last


def writer(ops: Sequence[Op]) -> Op | None:
    """The last op that is no view, and so could write the result to ``out=``; None if all are views."""
    return next((op for op in reversed(ops) if not isinstance(op, Transpose | Reshape)), None)
