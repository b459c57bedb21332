"""What a contraction of Dask arrays consists of, as data: its steps, their chunks, tasks and bytes moved."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

from einsumx.backends.dask.chunks import Chunks, largest
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError, SizeError, excerpt
from einsumx.ir.algebra import PLUS_TIMES, Algebra
from einsumx.ir.bind import SizedEquation
from einsumx.ir.program import Path
from einsumx.ir.records import record

__all__ = ["ChunkedOperand", "ChunkedProgram", "ChunkedStep", "Labels", "Rechunk", "check_operands"]

Labels: TypeAlias = tuple[int, ...]


@record
class ChunkedOperand:
    """An operand of a contraction in chunks.

    Attributes:
        chunks: the sizes of the chunks along each axis. Those of unknown size have an assumed one.
        dtype: its name.
        unknown: the axes whose size is not known.
        same_as: the number of an earlier operand that is the same array, if there is one.
    """

    chunks: tuple[Chunks, ...]
    dtype: str
    unknown: frozenset[int] = frozenset()
    same_as: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple(map(sum, self.chunks))

    @property
    def nbytes(self) -> int:
        """The bytes of all chunks."""
        return prod(self.shape) * itemsize(self.dtype)


@record
class Rechunk:
    """A change of an input's chunks before a step.

    Attributes:
        place: the input's position in the step.
        labels: those whose chunks change.
        tasks: how many tasks that takes, if Dask does it directly.
        moved: the most bytes that may move between workers.
    """

    place: int
    labels: Labels
    tasks: int
    moved: int


@record
class ChunkedStep:
    """A contraction of one or two values, chunk by chunk.

    Attributes:
        sources: the numbers of the values: first the operands, then the results of the steps.
        inputs: the labels of each source.
        output: the labels of the result.
        chunks: the chunks of each label in this step, by label.
        rechunks: of sources that have other chunks.
        group: how many chunks along contracted labels one task takes and sums.
        fan_in: how many partial sums one task adds.
        is_fusible: whether no chunk is used twice, so that Dask may fuse tasks with those that make their chunks.
        tasks: how many tasks contract and add.
        moved: the most bytes that may move between workers, if each task runs where its largest input is.
    """

    sources: tuple[int, ...]
    inputs: tuple[Labels, ...]
    output: Labels
    chunks: tuple[tuple[int, Chunks], ...]
    rechunks: tuple[Rechunk, ...]
    group: int
    fan_in: int
    is_fusible: bool
    tasks: int
    moved: int

    @property
    def all_tasks(self) -> int:
        """The tasks of the step and of the rechunks before it."""
        return self.tasks + sum(each.tasks for each in self.rechunks)

    @property
    def all_moved(self) -> int:
        """The bytes that the step and the rechunks before it may move."""
        return self.moved + sum(each.moved for each in self.rechunks)

    @property
    def contracted(self) -> Labels:
        """The labels that are summed, in the order of the loop over their chunks."""
        return tuple([label for label in dict(self.chunks) if label not in self.output])

    @property
    def partial_sums(self) -> int:
        """How many partial sums each chunk of the result is added from; 1 if one task computes it."""
        chunks = dict(self.chunks)
        return -(-prod([len(chunks[label]) for label in self.contracted]) // self.group)


@record
class ChunkedProgram:
    """A contraction of Dask arrays.

    Attributes:
        equation: with the sizes of the labels.
        operands: their chunks and dtypes.
        dtype: of the result.
        compute_dtype: of the chunks, which accumulates sums.
        path: the operands of each pairwise contraction.
        steps: in the order of computation; none if a label has size 0.
        chunks: of the result.
        algebra: what sums and products mean.
    """

    equation: SizedEquation
    operands: tuple[ChunkedOperand, ...]
    dtype: str
    compute_dtype: str
    path: Path
    steps: tuple[ChunkedStep, ...]
    chunks: tuple[Chunks, ...]
    algebra: Algebra = PLUS_TIMES

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.equation.shape

    @property
    def tasks(self) -> int:
        """How many tasks the contraction adds to those of the operands, before Dask fuses some."""
        return sum(step.all_tasks for step in self.steps)

    @property
    def moved_bytes(self) -> int:
        """The most bytes that may move between workers, if each task runs where its largest input is."""
        return sum(step.all_moved for step in self.steps)

    @property
    def largest_chunk_bytes(self) -> int:
        """The bytes of the largest chunk of the operands, the result and the values between, in the computed dtype."""
        sizes = [prod(map(largest, self.chunks))]
        sizes += [prod(map(largest, operand.chunks)) for operand in self.operands]
        for step in self.steps:
            chunks = dict(step.chunks)
            sizes += [prod([largest(chunks[label]) for label in term]) for term in (*step.inputs, step.output)]
        return max(sizes) * itemsize(self.compute_dtype)


def check_operands(program: ChunkedProgram, operands: Sequence[ChunkedOperand]) -> None:
    """Raise SizeError or BackendError if operands are not like those of a program."""
    if len(operands) != len(program.operands):
        raise SizeError(f"the plan takes {len(program.operands)} operands, not {len(operands)}")
    for number, (operand, planned) in enumerate(zip(operands, program.operands)):
        if operand.chunks != planned.chunks:
            raise SizeError(
                f"operand {number} has shape {operand.shape} in chunks {excerpt(str(operand.chunks))}, but the plan is "
                f"for {planned.shape} in chunks {excerpt(str(planned.chunks))}"
            )
        if operand.dtype != planned.dtype:
            raise BackendError(f"operand {number} has dtype {operand.dtype}, but the plan is for {planned.dtype}")
        if planned.same_as not in (None, operand.same_as):
            raise BackendError(f"operand {number} is another array than operand {planned.same_as}, unlike in the plan")
