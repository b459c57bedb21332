"""The contractions of a backward pass, planned before the forward one runs.

A contraction and the cotangent of its result make one multilinear form with a place for each array. With the place of
an operand left open it is the gradient by that operand; with that of the cotangent left open, the result. Gradients of
gradients have the same places again, so that what is planned here goes for derivatives of every order.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import prod

from einsumx.adapters.base import Adapter
from einsumx.blocked.cost import ResultFootprint
from einsumx.blocked.plan import BlockedContraction, blocked_program, least_limit
from einsumx.dtypes import itemsize
from einsumx.errors import MemoryLimitError
from einsumx.ir.bind import SizedEquation
from einsumx.ir.program import Operand
from einsumx.runtime.calibration import calibrated
from einsumx.runtime.request import Contraction, Options, Written

__all__ = ["Backward", "Passes", "backward"]


@dataclass(frozen=True, slots=True)
class Backward:
    """The contraction that gives what belongs in one place.

    Attributes:
        written: the equation, of the arrays in the other places and ones.
        others: the other places.
        ones: the sizes of the ones: labels that nothing in another place has.
        labels: of what the contraction gives: those of the place, each once.
        term: the labels of the place, without axes of size 1 that broadcast.
        shape: of what belongs there.
    """

    written: Written
    others: tuple[int, ...]
    ones: tuple[int, ...]
    labels: tuple[int, ...]
    term: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def has_diagonal(self) -> bool:
        """Whether what belongs there is zero but for a diagonal."""
        return len(self.labels) < len(self.term)


def backward(equation: SizedEquation, place: int) -> Backward:
    """The contraction that gives the gradient by operand ``place``; the last place is that of the cotangent.

    >>> from einsumx.ir.bind import bind
    >>> from einsumx.ir.parse import parse_text
    >>> backward(bind(parse_text("ij,jk->ik", 2), [(2, 3), (3, 4)]), 1).written
    (((0, 1), (0, 2)), (1, 2))
    """
    sizes, count = equation.sizes, len(equation.inputs)
    inputs, shapes = (*equation.inputs, equation.output), (*equation.shapes, equation.shape)
    carried = [*map(equation.carried, range(count)), equation.output]
    term = carried[place]
    labels = tuple(dict.fromkeys(term))
    others = tuple(other for other in range(count + 1) if other != place)
    there = {label for other in others for label in carried[other]}
    missing = [label for label in labels if label not in there]
    terms = (*(inputs[other] for other in others), *((label,) for label in missing))
    return Backward((terms, labels), others, tuple(sizes[label] for label in missing), labels, term, shapes[place])


@dataclass(frozen=True, slots=True)
class Passes:
    """The backward passes of a contraction under a limit.

    Attributes:
        adapter, device: where they are computed.
        equation: of the contraction.
        arrays: shape, dtype and layout of what belongs in each place, the cotangent last.
        in_place: of each, whether it lies on the device, so that its blocks are views and count nothing.
        read_rates: bytes a second at which each is read that does not lie there.
        own: of each, whether it is an array of the framework, whose layout may be another one in a backward pass.
        options: what is asked of the contractions.
        computed: the dtype of their blocks.
        limit: in bytes.
        numbers: of the operands by which gradients may be asked for.
    """

    adapter: Adapter
    device: str
    equation: SizedEquation
    arrays: tuple[Operand, ...]
    in_place: tuple[bool, ...]
    read_rates: tuple[float, ...]
    own: tuple[bool, ...]
    options: Options
    computed: str
    limit: int
    numbers: tuple[int, ...]

    def smallest(self) -> int:
        """The smallest limit under which the gradients can be computed, one beside those before it.

        They then can be however the arrays lie by that time, and so can gradients of the gradients, each by itself.
        Where the limit is enough, the number is no larger, but need not be the smallest.
        """
        least = self._least(len(self.arrays) - 1, 0)
        beside = 0
        for number in self.numbers:
            least = max(least, self._least(number, beside))
            beside += self.arrays[number].nbytes
        return least

    def plan(self) -> None:
        """Plan the gradients as they are computed where all lies as it does now, and the cotangent in C order."""
        beside = 0
        for number in self.numbers:
            with suppress(MemoryLimitError):  # else it is computed with copies of the blocks, for which there is room
                blocked_program(self._asked(number, beside, as_copies=False))
            beside += self.arrays[number].nbytes

    def beside(self, step: Backward, array: Operand) -> int:
        """Bytes that a gradient takes beside the contraction that computes it."""
        extra = sum(step.ones)
        if step.has_diagonal:
            extra += self._embedding(step)
        if array.dtype != self.options.dtype:
            extra += array.nbytes
        return extra

    def _embedding(self, step: Backward) -> int:
        """The most bytes that are there while diagonals are embedded: what an array was before and is after a step."""
        copies = not self.adapter.cpu.strided  # then moving axes takes as much again
        size = prod(self.equation.sizes[label] for label in step.labels)
        most = 0
        for label in step.labels:
            for _ in range(step.term.count(label) - 1):
                before, size = size, size * self.equation.sizes[label]
                most = max(most, 2 * before * copies, before + size)
        return max(most, 2 * size * copies) * itemsize(self.options.dtype or "")

    def _least(self, place: int, beside: int) -> int:
        return least_limit(self._asked(place, beside, as_copies=True))

    def _asked(self, place: int, beside: int, *, as_copies: bool) -> BlockedContraction:
        """What is asked of the planner for one place."""
        step, dtype = backward(self.equation, place), self.options.dtype or ""
        there, copy = self.adapter.cpu.strided, calibrated(self.adapter, self.device).rates.copy
        given = [(self.arrays[k], self.in_place[k], self.read_rates[k], self.own[k]) for k in step.others]
        given += [(Operand((size,), "int8"), there, copy, True) for size in step.ones]
        if as_copies:
            given = [
                (Operand(array.shape, array.dtype), False, copy, own) if own else (array, is_there, rate, own)
                for array, is_there, rate, own in given
            ]
        arrays, in_place, rates, _ = zip(*given)
        whole = prod(self.equation.sizes[label] for label in step.labels) * itemsize(dtype)
        beside += self.beside(step, self.arrays[place])
        landing = ResultFootprint(whole, whole if self.computed != dtype else 0, beside=beside)
        contraction = Contraction(self.adapter, step.written, arrays, self.device, self.options)
        return BlockedContraction(contraction, self.limit, in_place, landing, rates)
