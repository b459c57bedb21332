"""Plans a contraction of Dask arrays from sizes and chunks alone.

Each step of the path contracts two values chunk by chunk. Labels that only one of them has are summed first. Chunks of
shared labels are aligned, and chunks along contracted labels are merged or taken several to a task. The choice is by
cost: bytes that may move between workers, and tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import ceil, prod
from typing import TypeAlias

from einsumx.backends.dask.program import (
    ChunkedOperand,
    ChunkedProgram,
    ChunkedStep,
    Chunks,
    Labels,
    Rechunk,
    is_split_of,
    largest,
    merged,
    of_size,
    pieces,
    refined,
    split,
)
from einsumx.dtypes import itemsize
from einsumx.errors import SizeError
from einsumx.ir.bind import SizedEquation
from einsumx.planner.path import Optimize, find_path, step_outputs

CHUNK_BYTES = 1 << 27
"""The bytes of a chunk for which Dask is configured by default."""

_TASK = 1 << 20
"""What a task costs, in bytes moved: a scheduler takes about as long for a task as a network for a megabyte."""

_MOST_INPUTS = 16
"""The most chunks that a task takes."""

_PART = 4
"""Chunks that a task takes together have at most one of so many parts of Dask's chunk size, unless a pair has more."""

_FUSED = 4
"""A task counts as one of so many parts of a task if Dask may fuse it with those that make its chunks."""


_Rechunked: TypeAlias = tuple[int, tuple[Chunks, ...]]
"""The number of a value, and the chunks that it has in a step."""


@dataclass(frozen=True, slots=True)
class _Term:
    """A value in chunks.

    Attributes:
        source: its number.
        labels, chunks: of each axis.
        itemsize: bytes of an element.
    """

    source: int
    labels: Labels
    chunks: tuple[Chunks, ...]
    itemsize: int

    def nbytes(self) -> int:
        return prod(map(sum, self.chunks)) * self.itemsize

    def block(self, chunks: Mapping[int, Chunks]) -> int:
        """Bytes of its largest chunk, if its labels have these chunks."""
        return prod([largest(chunks[label]) for label in dict.fromkeys(self.labels)]) * self.itemsize

    def times(self, chunks: Mapping[int, Chunks]) -> int:
        """How often each of its chunks is used."""
        return prod([len(each) for label, each in chunks.items() if label not in self.labels])


def _price(step: ChunkedStep) -> int:
    """The cost of a step, rechunks included, in bytes moved."""
    tasks = step.all_tasks
    if step.is_fusible:
        first = prod([len(chunks) for _, chunks in step.chunks])
        tasks -= first - first // _FUSED
    return step.all_moved + tasks * _TASK


def chunked_program(
    equation: SizedEquation,
    operands: Sequence[ChunkedOperand],
    dtypes: tuple[str, str],
    optimize: Optimize,
    limit: int,
) -> ChunkedProgram:
    """The steps of a contraction.

    Args:
        equation: with sizes, which are positive.
        operands: their chunks and dtypes.
        dtypes: of the result, and of the chunks that are computed.
        optimize: how to find the path.
        limit: the bytes that Dask is configured to have in a chunk.

    Raises:
        PathError: the path does not fit the operands.

    >>> from einsumx.ir.bind import bind
    >>> from einsumx.ir.parse import parse_text
    >>> equation = bind(parse_text("ij,jk->k", 2), [(40, 30), (30, 20)])
    >>> operands = ChunkedOperand(((20, 20), (15, 15)), "float64"), ChunkedOperand(((15, 15), (20,)), "float64")
    >>> program = chunked_program(equation, operands, ("float64", "float64"), "auto", 2**27)
    >>> [(step.inputs, step.output, step.tasks) for step in program.steps]
    [(((0, 1),), (1,), 2), (((1,), (1, 2)), (2,), 3)]
    """
    dtype, compute = dtypes
    planner = _Planner(itemsize(compute), limit, _unknown(equation, operands), len(operands))
    path = find_path(equation, optimize)
    terms = list(_terms(equation, operands))
    inputs = [frozenset(term.labels) for term in terms]
    for positions, keep in step_outputs(path, inputs, frozenset(equation.output)):
        taken = [terms.pop(position) for position in sorted(positions, reverse=True)][::-1]
        if len(taken) > 1:
            others = [frozenset(keep).union(*(other.labels for other in taken if other is not term)) for term in taken]
            taken = [planner.summed(term, needed) for term, needed in zip(taken, others)]
        output = tuple(label for label in equation.output if label in keep)
        terms.append(planner.contracted(taken, output + tuple(sorted(keep.difference(output)))))
    (term,) = terms
    if term.labels != equation.output:
        term = planner.contracted([term], equation.output)
    return ChunkedProgram(equation, tuple(operands), dtype, compute, path, tuple(planner.steps), term.chunks)


def program_of_sizes(
    equation: SizedEquation, chunk_sizes: Sequence[Sequence[int]], dtypes: tuple[str, str], optimize: Optimize
) -> ChunkedProgram:
    """The program for operands of one dtype that are cut into chunks of these sizes along each axis.

    Raises:
        SizeError: another number of axes, or a size that is not positive.
    """
    operands = []
    for number, (shape, sizes) in enumerate(zip(equation.shapes, chunk_sizes)):
        if len(sizes) != len(shape) or 0 in sizes:
            raise SizeError(
                f"operand {number} has shape {shape}, and chunks of {tuple(sizes)} do not fit; give a positive size "
                "for each axis"
            )
        chunks = tuple([of_size(size, most) for size, most in zip(shape, sizes)])
        operands.append(ChunkedOperand(chunks, dtypes[0]))
    return chunked_program(equation, operands, dtypes, optimize, CHUNK_BYTES)


def _terms(equation: SizedEquation, operands: Sequence[ChunkedOperand]) -> Iterator[_Term]:
    """The operands without axes that broadcast. Two are one value if they are the same array without the same axes."""
    values: dict[tuple[int, Labels], int] = {}
    for number, operand in enumerate(operands):
        labels = equation.inputs[number]
        carried = tuple([
            axis for axis, size in enumerate(equation.shapes[number]) if size == equation.sizes[labels[axis]]
        ])  # fmt: skip
        array = number if operand.same_as is None else operand.same_as
        yield _Term(
            source=values.setdefault((array, carried), number),
            labels=tuple([labels[axis] for axis in carried]),
            chunks=tuple([operand.chunks[axis] for axis in carried]),
            itemsize=itemsize(operand.dtype),
        )


def _unknown(equation: SizedEquation, operands: Sequence[ChunkedOperand]) -> frozenset[int]:
    """The labels of axes whose size is not known."""
    return frozenset(term[axis] for operand, term in zip(operands, equation.inputs) for axis in sorted(operand.unknown))


class _Planner:
    """Collects steps.

    Args:
        itemsize: of the results of steps.
        limit: the bytes that Dask is configured to have in a chunk.
        unknown: labels whose chunks stay as they are, because their sizes are not known.
        count: the number of operands.
    """

    def __init__(self, itemsize: int, limit: int, unknown: frozenset[int], count: int) -> None:
        self.steps: list[ChunkedStep] = []
        self._itemsize, self._limit, self._unknown, self._count = itemsize, limit, unknown, count
        self._rechunked: set[_Rechunked] = set()

    def summed(self, term: _Term, needed: frozenset[int]) -> _Term:
        """The term, after the labels that nothing else needs are summed, and diagonals taken."""
        output = tuple([label for label in dict.fromkeys(term.labels) if label in needed])
        return term if output == term.labels else self.contracted([term], output)

    def contracted(self, terms: Sequence[_Term], output: Labels) -> _Term:
        """Add the step that contracts one or two terms; returns its result."""
        step = self._merged(terms, output, self._split(terms, output, self._aligned(terms, output)))
        self.steps.append(step)
        chunks = dict(step.chunks)
        self._rechunked |= {(term.source, tuple([chunks[label] for label in term.labels])) for term in terms}
        source = self._count + len(self.steps) - 1
        return _Term(source, output, tuple([chunks[label] for label in output]), self._itemsize)

    # -- the chunks of a step --------------------------------------------------------------------------------------

    def _aligned(self, terms: Sequence[_Term], output: Labels) -> dict[int, Chunks]:
        """One chunking of each label: one that an axis has, or the common refinement, by cost."""
        chunkings: dict[int, dict[Chunks, None]] = {}
        for term in terms:
            for label, chunks in zip(term.labels, term.chunks):
                chunkings.setdefault(label, {})[chunks] = None
        aligned = {label: refined(each) if len(each) > 1 else next(iter(each)) for label, each in chunkings.items()}
        most = max(self._limit // _PART, *[prod(map(largest, term.chunks)) * term.itemsize for term in terms])
        for label, options in chunkings.items():
            if len(options) > 1:
                tried = [{**aligned, label: chunks} for chunks in (aligned[label], *options)]
                fitting = [each for each in tried if all(term.block(each) <= most for term in terms)] or tried[:1]
                aligned = min(fitting, key=lambda chunks: _price(self._step(terms, output, chunks)))
        return aligned

    def _split(self, terms: Sequence[_Term], output: Labels, chunks: dict[int, Chunks]) -> dict[int, Chunks]:
        """Smaller chunks of some labels, so that result chunks exceed neither limit nor the largest operand chunk."""
        elements = [prod([largest(chunks[label]) for label in term.labels]) for term in terms]
        limit = max(self._limit // self._itemsize - 1, *elements)
        known = [label for label in output if label not in self._unknown]
        most = {label: largest(chunks[label]) for label in known}
        while prod(most.values()) > limit and max(most.values()) > 1:
            label = max(most, key=lambda label: most[label])
            most[label] = ceil(most[label] / 2)
        smaller = {label: split(chunks[label], most[label]) for label in known if most[label] < largest(chunks[label])}
        return {**chunks, **smaller}

    def _merged(self, terms: Sequence[_Term], output: Labels, chunks: dict[int, Chunks]) -> ChunkedStep:
        """The cheapest step with these chunks, or with larger ones of contracted labels."""
        best = self._step(terms, output, chunks)
        limit = self._limit // _PART
        for _ in range(_MOST_INPUTS.bit_length() - 1):
            counts = {
                label: len(each) for label, each in chunks.items() if label not in output and label not in self._unknown
            }
            if max(counts.values(), default=1) == 1:
                break
            label = max(counts, key=lambda label: counts[label])
            chunks = {**chunks, label: merged(chunks[label])}
            if sum(term.block(chunks) for term in terms) > limit:
                break
            best = min(best, self._step(terms, output, chunks), key=_price)
        return best

    # -- the cost of a step ----------------------------------------------------------------------------------------

    def _step(self, terms: Sequence[_Term], output: Labels, chunks: dict[int, Chunks]) -> ChunkedStep:
        """The cheapest step with these chunks."""
        rechunks = tuple(_rechunks(terms, chunks, self._rechunked))
        count = prod([len(each) for label, each in chunks.items() if label not in output])
        groups = [1]
        together = sum(term.block(chunks) for term in terms)
        while (
            groups[-1] < count
            and 2 * groups[-1] * len(terms) <= _MOST_INPUTS
            and 2 * groups[-1] * together <= self._limit // _PART
        ):
            groups.append(2 * groups[-1])
        steps = [self._grouped(terms, output, chunks, rechunks, min(group, count)) for group in groups]
        return min(steps, key=_price)

    def _grouped(
        self,
        terms: Sequence[_Term],
        output: Labels,
        chunks: dict[int, Chunks],
        rechunks: tuple[Rechunk, ...],
        group: int,
    ) -> ChunkedStep:
        """The step where a task takes ``group`` chunks along contracted labels."""
        results = prod([len(chunks[label]) for label in output])
        partial_sums = ceil(prod([len(each) for label, each in chunks.items() if label not in output]) / group)
        elements = prod([sum(chunks[label]) for label in output])
        block = prod([largest(chunks[label]) for label in output]) * self._itemsize
        fan_in = min(max(self._limit // _PART // block, 2), _MOST_INPUTS)
        # A task takes the same chunk of an array once.
        taken = {
            (term.source, *(label if len(chunks[label]) > 1 else -1 for label in term.labels)): term for term in terms
        }
        read = [prod([sum(chunks[label]) for label in term.labels]) * term.itemsize for term in taken.values()]
        totals = [nbytes * term.times(chunks) for nbytes, term in zip(read, taken.values())]
        stays = max(totals) // group
        return ChunkedStep(
            sources=tuple([term.source for term in terms]),
            inputs=tuple([term.labels for term in terms]),
            output=output,
            chunks=tuple(chunks.items()),
            rechunks=rechunks,
            group=group,
            fan_in=fan_in,
            tasks=results * (partial_sums + _tree_tasks(partial_sums, fan_in)),
            moved=sum(totals) - stays + elements * self._itemsize * (partial_sums - 1),
            is_fusible=group == 1 and all(term.times(chunks) == 1 for term in terms),
        )


def _rechunks(
    terms: Sequence[_Term], chunks: Mapping[int, Chunks], done: AbstractSet[_Rechunked] = frozenset()
) -> Iterator[Rechunk]:
    """The terms whose chunks change, and the cost of that. A value that is used twice is rechunked once."""
    seen = set(done)
    for place, term in enumerate(terms):
        new = tuple([chunks[label] for label in term.labels])
        labels = [label for label, old in zip(term.labels, term.chunks) if old != chunks[label]]
        if labels and (term.source, new) not in seen:
            seen.add((term.source, new))
            moved = 0 if all(map(is_split_of, new, term.chunks)) else term.nbytes()
            yield Rechunk(place, tuple(dict.fromkeys(labels)), _rechunk_tasks(term.chunks, new), moved)


def _rechunk_tasks(old: Sequence[Chunks], new: Sequence[Chunks]) -> int:
    """A task for each piece that is not a whole chunk, and one for each new chunk of several pieces."""
    counted = list(map(pieces, old, new))
    count = prod([count for count, _ in counted])
    whole = prod([count - cut for count, cut in counted])
    chunks = prod(map(len, new))
    return count - whole + chunks


def _tree_tasks(parts: int, fan_in: int) -> int:
    """How many tasks add so many parts to one."""
    tasks = 0
    while parts > 1:
        parts = ceil(parts / fan_in)
        tasks += parts
    return tasks
