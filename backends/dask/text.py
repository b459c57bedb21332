"""A contraction of Dask arrays as text: its steps, chunks, tasks and the bytes that it moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from einsumx.backends.dask.chunks import Chunks
from einsumx.backends.dask.program import ChunkedProgram, ChunkedStep
from einsumx.errors import visible
from einsumx.ir.bind import label_names
from einsumx.ir.text import quantity, shape_text

__all__ = ["chunked_text", "totals"]


def chunked_text(program: ChunkedProgram) -> str:
    """A header, then a line for each operand, each change of chunks, each step and the result, and the totals."""
    names = tuple(map(visible, label_names(program.equation)))
    shapes = " ".join(shape_text(shape) for shape in program.equation.shapes)
    inputs = list(dict.fromkeys(operand.dtype for operand in program.operands))
    types = "/".join(inputs) if inputs == [program.dtype] else f"{'/'.join(inputs)} -> {program.dtype}"
    lines = [
        (f"operand %{number}", f"{_count(operand.chunks)} of {_sizes(operand.chunks)}, {quantity(operand.nbytes, 'B')}")
        for number, operand in enumerate(program.operands)
    ]
    for number, step in enumerate(program.steps, len(program.operands)):
        lines += _step_lines(step, number, names)
    lines.append(
        (
            "result",
            f"{shape_text(program.shape)} {program.dtype} in {_count(program.chunks)} of {_sizes(program.chunks)}",
        )
    )
    lines += totals(program).items()
    width = max(len(name) for name, _ in lines)
    body = "\n".join(f"  {name:<{width}}  {remark}" for name, remark in lines)
    return f"{visible(program.equation.text)}  {shapes}  {types} on dask{visible(program.algebra.text)}\n{body}"


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
