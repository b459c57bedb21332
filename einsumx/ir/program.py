"""``Program``: immutable data, the array calls that compute a contraction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from einsumx.imports import LazyModule
from einsumx.ir.contraction import Contraction, OfContraction
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Copy, Op
from einsumx.ir.records import HashedOnce, record

if TYPE_CHECKING:
    from einsumx.ir import values as slots
else:
    slots = LazyModule("einsumx.ir.values")


class _Referable(OfContraction, HashedOnce):
    """The values of a program, once they are computed; and weak references, which ``tf.function`` needs."""

    __slots__ = ("__weakref__", "_values")
    _values: tuple[Operand, ...]


@record
class Program(_Referable):
    """A contraction as straight-line array calls over numbered slots.

    Lowering returns one. Users get its subclass :class:`einsumx.Plan`, which they can call, print and store.

    Attributes:
        contraction: what it computes; its fields are attributes of the program too.
        ops: what runs, in order. Operand ``k`` is slot ``k``.
        result: the slot that holds the result.
        choices: the names of the candidates for the steps that were measured to be faster than the estimate's; see
            :class:`~einsumx.planner.selection.Selection`.
    """

    contraction: Contraction
    ops: tuple[Op, ...]
    result: int
    choices: tuple[str, ...] = field(default=(), compare=False)

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
        own = [slot for slot in (*dict.fromkeys(sources), out) if slot in unused]
        if own:
            last[out] = own
            unused.difference_update(own)
    return last
