"""Checks the jobs and pieces that workers of an executor receive, before they compute anything.

These arrive as pickles, which can run code when they are loaded, so only their owners should be able to reach
executors. The checks make sure that a caller of another version, or a damaged message, gives an error and not a wrong
block.
"""

from __future__ import annotations

from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.stages import Stage
from einsumx.errors import EinsumxError, excerpt
from einsumx.ir.strict import PLAN
from einsumx.streaming.tasks import Job, Piece

__all__ = ["check_job", "check_piece"]

_SAME = "use the same version of einsumx everywhere"


def check_job(job: Job) -> None:
    """Check that a job has a consistent plan and as many operands as the plan.

    Raises:
        EinsumxError: it does not.
    """
    program = job.program
    operands = job.operands
    if type(program) is not BlockedProgram or type(operands) is not tuple or len(operands) != len(program.operands):
        raise EinsumxError(f"a worker received something that is not a contraction; {_SAME}")
    _check_types(program)
    equation, cut = program.equation, program.blocking
    count, labels = len(program.operands), range(len(equation.sizes))
    is_consistent = (
        len(equation.inputs) == len(program.in_place) == len(cut.reads) == count
        and equation.shapes == tuple(operand.shape for operand in program.operands)
        and len(cut.counts) == len(labels)
        and all(0 < number <= max(size, 1) for number, size in zip(cut.counts, equation.sizes))
        and all(label in labels for term in (*equation.inputs, equation.output, cut.order) for label in term)
        and all(_is_consistent(stage, count, labels) for stage in _stages(cut.root))
    )
    if not is_consistent:
        raise EinsumxError(f"a worker received a plan that contradicts itself; {_SAME}\n  {excerpt(equation.text)}")


def check_piece(program: BlockedProgram, piece: Piece) -> None:
    """Check that a piece belongs to the contraction.

    Raises:
        EinsumxError: it does not.
    """
    _check_types(piece)
    root, counts = program.blocking.root, program.blocking.counts
    if not (
        type(piece) is Piece
        and set(piece.index) == set(root.nest)
        and all(number < counts[label] for label, number in piece.index.items())
        and piece.start < piece.stop <= program.blocking.terms
    ):
        raise EinsumxError(
            f"a worker received a piece that is not part of the plan\n  {excerpt(program.equation.text)}"
        )


def _check_types(value: BlockedProgram | Piece) -> None:
    try:
        PLAN.check(value)
    except ValueError as error:
        raise EinsumxError(f"a worker received a wrong value: {error}") from None


def _stages(root: Stage) -> list[Stage]:
    """All stages, each once."""
    stages = {id(root): root}
    todo = [root]
    while todo:
        for source in todo.pop().inputs:
            if isinstance(source, Stage) and id(source) not in stages:
                stages[id(source)] = source
                todo.append(source)
    return list(stages.values())


def _is_consistent(stage: Stage, count: int, labels: range) -> bool:
    rows = (*stage.terms, *stage.nests, *stage.carried, stage.output, stage.nest, stage.loops)
    return (
        len(stage.inputs) == len(stage.terms) == len(stage.nests) == len(stage.carried)
        and all(isinstance(source, Stage) or source < count for source in stage.inputs)
        and all(label in labels for row in rows for label in row)
    )
