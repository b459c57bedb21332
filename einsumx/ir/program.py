"""``Program``: immutable data, the array calls that compute a contraction."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from einsumx.imports import LazyModule
from einsumx.ir.algebra import Algebra
from einsumx.ir.contraction import Contraction
from einsumx.ir.operand import Operand, Path
from einsumx.ir.records import HashedOnce, record

if TYPE_CHECKING:
    from einsumx.ir import ops as kinds
else:
    kinds = LazyModule("einsumx.ir.ops")  # which imports this module; typing.get_type_hints needs it


class _Referable(HashedOnce):
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
    def equation(self) -> str:
        """The equation in text form with an explicit output; sublist labels are written as letters."""
        return self.contraction.equation.text

    @property
    def written(self) -> str:
        """The equation for users: in their names, if they gave any."""
        return self.contraction.equation.named or self.contraction.equation.text

    @property
    def backend(self) -> str:
        """The name of the backend that it was lowered for."""
        return self.contraction.place.backend

    @property
    def device(self) -> str:
        """The kind of device that it was lowered for; empty for the backend's default."""
        return self.contraction.place.device

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Shape, dtype and layout of each operand."""
        return self.contraction.operands

    @property
    def path(self) -> Path:
        """The operands of each pairwise contraction, as positions in the form of NumPy and opt_einsum."""
        return self.contraction.path

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return self.contraction.equation.shape

    @property
    def dtype(self) -> str:
        """The result's dtype."""
        return self.contraction.dtype

    @property
    def accumulate(self) -> str | None:
        """The dtype that products and sums are computed in, if it was asked for and is not that of ``dtype``."""
        return self.contraction.accumulate

    @property
    def algebra(self) -> Algebra:
        """What sums, products and zeros mean."""
        return self.contraction.algebra

    @property
    def calls(self) -> list[tuple[int, tuple[int, ...]]]:
        """For each op, the slot that it writes and those that it reads."""
        return [(op.out, op.sources) for op in self.ops]
