"""A blocked contraction as immutable data: which labels are cut to stay within a memory limit."""

from __future__ import annotations

from math import prod

from einsumx.blocked.cost import Blocking, ResultFootprint
from einsumx.ir.algebra import PLUS_TIMES, Algebra
from einsumx.ir.bind import SizedEquation, label_names
from einsumx.ir.operand import Operand
from einsumx.ir.records import record


@record
class BlockedProgram:
    """A contraction cut into blocks, as it runs under a memory limit.

    Users get the subclass :class:`einsumx.plans.BlockedPlan`, which can be called, printed and drawn.

    Attributes:
        equation: the labels, their sizes and the operands' shapes.
        backend, device: where it runs.
        operands: shape, dtype and layout of each operand.
        dtype: the result's dtype.
        compute_dtype: the dtype of blocks and partial sums.
        limit: the memory limit in bytes.
        in_place: whether each operand is already on the device; blocks of it are views and take no memory.
        landing: the memory needed to store the result.
        blocking: which labels are cut, and the cost.
        algebra: what sums and products mean.
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
    algebra: Algebra = PLUS_TIMES

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return self.equation.shape

    @property
    def peak_bytes(self) -> int:
        """The most bytes alive at once, counted as for :attr:`einsumx.Plan.peak_bytes`.

        Operands that are already on the device and the array passed as ``out=`` do not count. Memory for reading ahead
        counts in full, however much of it is in use.
        """
        return self.blocking.peak_bytes

    @property
    def seconds(self) -> float:
        """The expected time, at the rates that the backend declares or that were measured."""
        return self.blocking.seconds

    @property
    def cuts(self) -> dict[str, int]:
        """The number of blocks of each cut label, from the outermost loop to the innermost.

        >>> import einsumx
        >>> einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True).cuts
        {'i': 4, 'k': 7}
        """
        names = label_names(self.equation)
        return {names[label]: self.blocking.counts[label] for label in self.blocking.order}

    @property
    def blocks(self) -> int:
        """The number of blocks of the result."""
        return prod(self.blocking.counts[label] for label in self.blocking.root.nest)

    @property
    def reads(self) -> tuple[int, ...]:
        """How often each operand is read from end to end."""
        return self.blocking.reads

    @property
    def read_bytes(self) -> tuple[int, ...]:
        """The bytes of each operand that are brought to the device in all; 0 if it is already there."""
        return tuple(
            0 if in_place else operand.nbytes * times
            for operand, in_place, times in zip(self.operands, self.in_place, self.reads)
        )
