"""Pieces of a blocked contraction: what one task of an executor computes.

A piece is a block of the result, or, where these are too few for the workers, some of the terms that such a block is
the sum of. Pieces are added up in one order, so that the same call gives the same bits whoever comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.stages import ranges
from einsumx.dtypes import itemsize
from einsumx.streaming.shared_operands import Lent
from einsumx.streaming.walk import Blocks, Box, Place

__all__ = ["Job", "Part", "Piece", "block_bytes", "cut", "part_of", "parts_of", "pieces_for", "terms_of"]


@dataclass(frozen=True, slots=True)
class Job:
    """What all pieces of one contraction share, as workers get it.

    Attributes:
        token: names the contraction.
        plan: how it is cut.
        lent: the operands; None for those of which a piece brings the blocks.
        workers: how many compute at the same time, and share the cores of their machine.
    """

    token: str
    plan: BlockedProgram
    lent: tuple[Lent | None, ...]
    workers: int


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """What one task computes.

    Attributes:
        number: its place in the order of addition.
        block: the number of the block of the result that it belongs to.
        place: where that is.
        start, stop: from which of the terms that the block is the sum of it adds up, and before which.
    """

    number: int
    block: int
    place: Place
    start: int
    stop: int


Part: TypeAlias = tuple[int, tuple[tuple[int, int], ...]]
"""An operand's number and the box of a block of it; slices are no keys before Python 3.12."""


def part_of(number: int, box: Box) -> Part:
    """What a block of an operand is known by."""
    return number, tuple((axis.start, axis.stop) for axis in box)


def parts_of(plan: BlockedProgram, piece: Piece) -> list[Part]:
    """The blocks of operands that a piece needs, each once."""
    steps = Blocks.outline(plan).value(piece.place, piece.start, piece.stop)
    return list(dict.fromkeys(part_of(number, box) for number, box in steps))


def terms_of(plan: BlockedProgram) -> int:
    """How many terms each block of the result is the sum of."""
    return prod(plan.blocking.counts[label] for label in plan.blocking.root.loops)


def block_bytes(plan: BlockedProgram) -> int:
    """Bytes of the largest block of the result, as it is computed."""
    sizes, counts = plan.equation.sizes, plan.blocking.counts
    elements = prod(-(-sizes[label] // counts[label]) for label in plan.blocking.root.output)
    return elements * itemsize(plan.compute_dtype)


def cut(plan: BlockedProgram, left: Mapping[int, Place], parts: int) -> list[Piece]:
    """The pieces of the blocks that are left, each block in so many parts."""
    every = enumerate(product(left.items(), ranges(terms_of(plan), parts)))
    return [Piece(number, block, place, run.start, run.stop) for number, ((block, place), run) in every]


def pieces_for(workers: int, plan: BlockedProgram, left: Mapping[int, Place]) -> list[Piece]:
    """All pieces, in the order in which they are added up; blocks are cut where they are few for the workers."""
    return cut(plan, left, min(terms_of(plan), -(-2 * workers // max(len(left), 1))))
