"""Pieces of a blocked contraction, each of which one task of an executor computes.

A piece is a block of the result. If there are too few blocks for the workers, it is the sum of some of the terms of a
block. Pieces are added up in a fixed order, so that the same call gives the same bits whichever worker is first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from einsumx.blocked.boxes import BlockIndex, Box
from einsumx.blocked.program import BlockedProgram
from einsumx.dtypes import itemsize
from einsumx.ir.layout import ranges
from einsumx.streaming.blocks import Blocks

if TYPE_CHECKING:
    from einsumx.streaming.shared_operands import SharedOperand


@dataclass(frozen=True, slots=True)
class Job:
    """The data that all pieces of one contraction share, as workers receive it.

    Attributes:
        token: identifies the contraction.
        program: the blocked contraction.
        operands: how workers open each operand; None for those whose blocks are sent with the pieces.
        workers: how many compute at the same time, and share the cores of their machine.
        version: of the caller's einsumx, which plans and blocks are of.
    """

    token: str
    program: BlockedProgram
    operands: tuple[SharedOperand | None, ...]
    workers: int
    version: str


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """The work of one task.

    Attributes:
        number: its position in the order of addition.
        block: the number of its block of the result.
        index: the index of that block.
        start, stop: the range of the block's terms that it adds up.
    """

    number: int
    block: int
    index: BlockIndex
    start: int
    stop: int


Part: TypeAlias = tuple[int, tuple[tuple[int, int], ...]]
"""The number of an operand and a block of it; slices are not hashable before Python 3.12."""


def part_of(number: int, box: Box) -> Part:
    """A block of an operand, as a part."""
    return number, tuple((axis.start, axis.stop) for axis in box)


def box_of(part: Part) -> Box:
    """The block of a part."""
    return tuple(slice(*axis) for axis in part[1])


def parts_of(program: BlockedProgram, piece: Piece) -> list[Part]:
    """The blocks of operands that a piece needs, each once."""
    steps = Blocks.outline(program).value(piece.index, piece.start, piece.stop)
    return list(dict.fromkeys(part_of(number, box) for number, box in steps))


def block_bytes(program: BlockedProgram) -> int:
    """Bytes of the largest block of the result, as it is computed."""
    elements = prod(program.grid.largest[label] for label in program.blocking.root.output)
    return elements * itemsize(program.compute_dtype)


def cut(program: BlockedProgram, left: Mapping[int, BlockIndex], parts: int) -> list[Piece]:
    """The pieces of the blocks that are left, each block in ``parts`` pieces."""
    runs = enumerate(product(left.items(), ranges(program.blocking.terms, parts)))
    return [Piece(number, block, index, run.start, run.stop) for number, ((block, index), run) in runs]


def pieces_for(workers: int, program: BlockedProgram, left: Mapping[int, BlockIndex]) -> list[Piece]:
    """The pieces of the blocks that are left, in the order of addition; at least two per worker if possible."""
    return cut(program, left, min(program.blocking.terms, -(-2 * workers // max(len(left), 1))))
