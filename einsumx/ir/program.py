"""``Program``: immutable data, the array calls that compute a contraction."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from einsumx.imports import LazyModule
from einsumx.ir.contraction import Contraction, OfContraction
from einsumx.ir.records import HashedOnce, record

if TYPE_CHECKING:
    from einsumx.ir import ops as kinds
else:
    kinds = LazyModule("einsumx.ir.ops")  # which imports this module; typing.get_type_hints needs it


class _Referable(OfContraction, HashedOnce):
    """Objects that weak references accept, as ``tf.function`` needs of what it traces."""

    __slots__ = ("__weakref__",)


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
    ops: tuple[kinds.Op, ...]
    result: int
    choices: tuple[str, ...] = field(default=(), compare=False)

    @property
    def calls(self) -> list[tuple[int, tuple[int, ...]]]:
        """For each op, the slot that it writes and those that it reads."""
        return [(op.out, op.sources) for op in self.ops]
