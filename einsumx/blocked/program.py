"""A blocked contraction as immutable data: which labels are cut to stay within a memory limit."""

from __future__ import annotations

from dataclasses import field
from math import prod

from einsumx.blocked.boxes import Grid
from einsumx.blocked.cost import Blocking, ResultFootprint
from einsumx.blocked.stage_programs import StagePrograms
from einsumx.ir.bind import label_names
from einsumx.ir.contraction import Contraction
from einsumx.ir.program import Referable
from einsumx.ir.records import HashedOnce, record


@record
class BlockedContraction(HashedOnce):
    """A contraction to be cut into blocks.

    Attributes:
        contraction: what to compute, along the path that is tried first.
        limit: the memory limit in bytes.
        in_place: whether each operand is already on the device; blocks of it are views and take no memory.
        landing: the memory needed to store the result.
        read_rates: bytes a second for operands that are read; None, or no tuple at all, for the rate of a copy.
        together: how many blocks are computed or held at once, and share the memory that the result leaves.
        pieces: the least number of pieces to cut the contraction into, if its sizes allow it.
        is_path_free: whether other paths may be tried too.
        is_traced: whether the blocks are those of loops in a traced program, which reads none before it is needed.
    """

    contraction: Contraction
    limit: int
    in_place: tuple[bool, ...]
    landing: ResultFootprint
    read_rates: tuple[float | None, ...] = ()
    together: int = 1
    pieces: int = 1
    is_path_free: bool = True
    is_traced: bool = False

    def read_rate(self, number: int) -> float:
        """The bytes a second at which an operand is read."""
        rate = self.read_rates[number] if self.read_rates else None
        return rate or self.contraction.place.traits.rates.copy


@record
class BlockedProgram(Referable):
    """A contraction cut into blocks, as it runs under a memory limit.

    Users get the subclass :class:`einsumx.plans.BlockedPlan`, which can be called, printed and drawn.

    Attributes:
        contraction: what it computes; its fields are attributes of the program too.
        limit: the memory limit in bytes.
        in_place: whether each operand is already on the device; blocks of it are views and take no memory.
        landing: the memory needed to store the result.
        is_traced: whether it is of loops in a traced program.
        blocking: which labels are cut, and the cost.
        programs: what runs on blocks.
        grid: where the blocks are.
    """

    contraction: Contraction
    limit: int
    in_place: tuple[bool, ...]
    landing: ResultFootprint
    is_traced: bool
    blocking: Blocking
    programs: StagePrograms = field(compare=False, repr=False)
    grid: Grid = field(compare=False, repr=False)

    @property
    def compute_dtype(self) -> str:
        """The dtype of blocks and partial sums."""
        return self.contraction.compute_dtype

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
        names = label_names(self.contraction.equation)
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
