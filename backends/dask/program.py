"""A contraction of Dask arrays, as data and as text: its steps, their chunks, tasks and bytes moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from math import ceil, prod
from typing import TypeAlias

from einsumx.dtypes import itemsize
from einsumx.errors import BackendError, SizeError, counted, excerpt, visible
from einsumx.ir.algebra import PLUS_TIMES, Algebra
from einsumx.ir.bind import SizedEquation, label_names
from einsumx.ir.operand import Path
from einsumx.ir.records import record
from einsumx.ir.sizes import shape_text
from einsumx.ir.text import in_columns, quantity, types_text

Chunks: TypeAlias = tuple[int, ...]
"""The sizes of the chunks along one axis."""

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
        raise SizeError(f"the plan takes {counted(len(program.operands), 'operand')}, not {len(operands)}")
    for number, (operand, planned) in enumerate(zip(operands, program.operands)):
        if operand.chunks != planned.chunks:
            raise SizeError(
                f"operand {number} has shape {operand.shape} in chunks {excerpt(str(operand.chunks))}, but the plan is "
                f"for {planned.shape} in chunks {excerpt(str(planned.chunks))}; rechunk it, or make another plan"
            )
        if operand.dtype != planned.dtype:
            raise BackendError(
                f"operand {number} has dtype {operand.dtype}, but the plan is for {planned.dtype}; cast it, or make "
                "another plan"
            )
        if planned.same_as not in (None, operand.same_as):
            raise BackendError(
                f"operands {planned.same_as} and {number} are two arrays, but the plan is for one that is passed "
                "twice; make another plan"
            )


# -- chunks along one axis: where they are cut, and how they are split, merged and aligned --------------------


def largest(chunks: Chunks) -> int:
    """The size of the largest chunk; at least 1.

    >>> largest((2, 3)), largest((0,))
    (3, 1)
    """
    return max(*chunks, 1)


def refined(chunkings: Iterable[Chunks]) -> Chunks:
    """The chunks that end wherever one of several chunkings has an end; empty chunks are dropped.

    >>> refined([(2, 4), (3, 0, 3)]), refined([(0,)])
    ((2, 1, 3), (0,))
    """
    ends = sorted({0}.union(*map(accumulate, chunkings)))
    return tuple([end - start for start, end in pairwise(ends)]) or (0,)


def is_split_of(fine: Chunks, coarse: Chunks) -> bool:
    """Whether each chunk of ``fine`` lies within one of ``coarse``.

    >>> is_split_of((1, 1, 2), (2, 2)), is_split_of((2, 2), (1, 3))
    (True, False)
    """
    return set(accumulate(coarse)) <= set(accumulate(fine))


def pieces(old: Chunks, new: Chunks) -> tuple[int, int]:
    """The number of pieces that new chunks are made of, and how many of them are not a whole old chunk.

    >>> pieces((3, 3), (2, 4)), pieces((2, 2), (4,))
    ((3, 2), (2, 0))
    """
    if old == new and 0 not in old:
        return len(old), 0
    ends = list(accumulate(old))
    whole = set(pairwise([0, *ends]))
    parts = list(pairwise(sorted({0, *ends, *accumulate(new)}))) or [(0, 0)]
    return len(parts), sum(part not in whole for part in parts)


def merged(chunks: Chunks) -> Chunks:
    """Each two neighbours as one chunk.

    >>> merged((1, 2, 3, 4, 5))
    (3, 7, 5)
    """
    return tuple([sum(chunks[start : start + 2]) for start in range(0, len(chunks), 2)])


def of_size(size: int, most: int) -> Chunks:
    """Chunks of one size, and a smaller one at the end if there is a remainder.

    >>> of_size(7, 3), of_size(0, 3)
    ((3, 3, 1), (0,))
    """
    return (most,) * (size // most) + ((size % most,) if size % most else ()) or (0,)


def split(chunks: Chunks, most: int) -> Chunks:
    """Each chunk in parts of nearly equal sizes, at most ``most``.

    >>> split((7, 2), 3)
    (2, 2, 3, 2)
    """
    return tuple([part for chunk in chunks for part in _parts(chunk, most)])


def _parts(chunk: int, most: int) -> list[int]:
    count = max(ceil(chunk / most), 1)
    return [chunk * (part + 1) // count - chunk * part // count for part in range(count)]


# -- as text --------------------------------------------------------------------------------------------------


def chunked_text(program: ChunkedProgram) -> str:
    """A header, then a line for each operand, each change of chunks, each step and the result, and the totals."""
    names = tuple(map(visible, label_names(program.equation)))
    shapes = " ".join(shape_text(shape) for shape in program.equation.shapes)
    types = types_text([operand.dtype for operand in program.operands], program.dtype)
    lines = [
        (f"operand %{number}", f"{_count(operand.chunks)} of {_sizes(operand.chunks)}, {quantity(operand.nbytes, 'B')}")
        for number, operand in enumerate(program.operands)
    ]
    for number, step in enumerate(program.steps, len(program.operands)):
        lines += _step_lines(step, number, names)
    result = f"{shape_text(program.shape)} {program.dtype} in {_count(program.chunks)} of {_sizes(program.chunks)}"
    lines += [("result", result), *totals(program).items()]
    where = f"dask{visible(program.algebra.text)}"
    return f"{visible(program.equation.text)}  {shapes}  {types} on {where}\n{in_columns(lines)}"


def chunked_line(program: ChunkedProgram) -> str:
    """The shapes of a plan, its result's dtype, and the totals."""
    shapes = " ".join(map(shape_text, program.equation.shapes))
    moved, largest = (quantity(count, "B") for count in (program.moved_bytes, program.largest_chunk_bytes))
    return f"{shapes} {program.dtype}, {_tasks(program.tasks)}, at most {moved} moved, largest chunk {largest}"


def totals(program: ChunkedProgram) -> dict[str, str]:
    """Tasks, bytes moved and the largest chunk."""
    return {
        "tasks": f"{program.tasks}, besides those of the operands",
        "moved": f"at most {quantity(program.moved_bytes, 'B')} between workers",
        "largest chunk": quantity(program.largest_chunk_bytes, "B"),
    }


def _step_lines(step: ChunkedStep, number: int, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The changes of chunks before a step, and the step itself."""

    def term(labels: Sequence[int]) -> str:
        return "".join([names[label] for label in labels])

    chunks = dict(step.chunks)
    for each in step.rechunks:
        sizes = ", ".join(f"{names[label]} to {_sizes([chunks[label]])}" for label in each.labels)
        yield f"rechunk %{step.sources[each.place]}", f"{sizes}; {_tasks(each.tasks)}"
    sources = " ".join(f"%{source}" for source in step.sources)
    results = [chunks[label] for label in step.output]
    remark = f"{_tasks(step.tasks)} for {_count(results)} of {_sizes(results)}"
    if step.group > 1:
        remark += f", up to {step.group} chunks of {term(step.contracted)} each"
    if step.partial_sums > 1:
        remark += f", {step.partial_sums} partial sums of each added by {step.fan_in}"
    yield f"%{number} = {','.join(map(term, step.inputs))}->{term(step.output)} {sources}", remark


def _count(chunks: Sequence[Chunks]) -> str:
    count = prod(map(len, chunks))
    return f"{count} chunk{'s' * (count != 1)}"


def _tasks(count: int) -> str:
    return f"{count} task{'s' * (count != 1)}"


def _sizes(chunks: Sequence[Chunks]) -> str:
    """The largest chunk along each axis.

    >>> _sizes([(3, 3, 2), (4,)])
    '(3,4)'
    """
    return shape_text(tuple(map(max, chunks)))
