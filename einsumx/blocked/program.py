"""A contraction in blocks: immutable data that says how it is cut to stay within a memory limit."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from einsumx.blocked.cost import Blocking, ResultFootprint
from einsumx.ir.bind import SizedEquation, label_names
from einsumx.ir.program import Operand

__all__ = ["BlockedProgram"]


@dataclass(frozen=True, slots=True)
class BlockedProgram:
    """A contraction cut into blocks, as it runs under a memory limit.

    What users get is a :class:`einsumx.plans.BlockedPlan`, which is one, and can be called, printed and drawn.

    Attributes:
        equation: the labels, their sizes and the operands' shapes.
        backend, device: where it is computed.
        operands: shape, dtype and layout of each operand.
        dtype: the result's dtype.
        compute_dtype: in which blocks are computed and partial sums are added up.
        limit: bytes that must not be exceeded.
        in_place: of each operand, whether it lies on the device, so that its blocks are views and count nothing.
        landing: the memory that it takes to bring the result where it belongs.
        blocking: which labels are cut, and what it costs.
    """

    equation: SizedEquation
    backend: str
    device: str
    operands: tuple[Operand, ...]
    dtype: str
    compute_dtype: str
    limit: int
    in_place: tuple[bool, ...]
    landing: ResultFootprint
    blocking: Blocking

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return self.equation.shape

    @property
    def peak_bytes(self) -> int:
        """The most bytes that running it has alive at once, counted as for :attr:`einsumx.Plan.peak_bytes`.

        Operands that lie where it is computed and an ``out=`` that is given are left out. What may be read ahead is
        counted whole, however far the reading is.
        """
        return self.blocking.peak_bytes

    @property
    def seconds(self) -> float:
        """The time that it is expected to take, by the rates that the backend declares or that were measured."""
        return self.blocking.seconds

    @property
    def cuts(self) -> dict[str, int]:
        """Into how many blocks each label is cut, from the outermost loop to the innermost.

        >>> import einsumx
        >>> einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True).cuts
        {'k': 4, 'i': 7}
        """
        names = label_names(self.equation)
        return {names[label]: self.blocking.counts[label] for label in self.blocking.order}

    @property
    def blocks(self) -> int:
        """How many blocks the result is computed in."""
        return prod(self.blocking.counts[label] for label in self.blocking.root.nest)

    @property
    def reads(self) -> tuple[int, ...]:
        """How often each operand is gone through from end to end."""
        return self.blocking.reads

    @property
    def read_bytes(self) -> tuple[int, ...]:
        """Bytes of each operand that are brought to the device in all; 0 where it lies there."""
        return tuple(
            0 if is_there else operand.nbytes * times
            for operand, is_there, times in zip(self.operands, self.in_place, self.reads)
        )
