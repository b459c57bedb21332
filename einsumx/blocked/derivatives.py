"""The memory that the contractions of a backward pass need, known before the forward one runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

from einsumx.adapters.base import Adapter
from einsumx.adapters.recorded import conjugated_for
from einsumx.blocked.cost import ResultFootprint
from einsumx.blocked.plan import least_limit
from einsumx.blocked.program import BlockedContraction
from einsumx.dtypes import itemsize
from einsumx.ir.bind import SizedEquation
from einsumx.ir.operand import Operand
from einsumx.runtime.front import contraction
from einsumx.runtime.limits import MemoryLimit
from einsumx.runtime.request import Request
from einsumx.runtime.transposed import Backward, backward


class PassArray(NamedTuple):
    """An array of a forward or backward pass.

    Attributes:
        operand: its shape, dtype and layout.
        in_place: whether it is already on the device; blocks of it are views and take no memory.
        read_rate: bytes a second at which it is read otherwise; None for the rate of a copy.
    """

    operand: Operand
    in_place: bool
    read_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Passes:
    """The backward passes of a contraction under a limit.

    Attributes:
        adapter, device: where they run.
        equation: the forward contraction.
        arrays: the array of each place, the cotangent last. Those of the framework are read as copies of blocks, as
            their layouts in a backward pass are not known before.
        conjugated: the places of the operands that the forward contraction conjugates.
        request: the keywords of the backward contractions.
        limit: in bytes.
        numbers: the operands that may need gradients.
        beside: bytes that the libraries of stored operands take meanwhile.
    """

    adapter: Adapter
    device: str
    equation: SizedEquation
    arrays: tuple[PassArray, ...]
    conjugated: tuple[int, ...]
    request: Request
    limit: int
    numbers: tuple[int, ...]
    beside: int

    @property
    def dtype(self) -> str:
        """The dtype of the result and of the gradients as they are computed."""
        return self.arrays[-1].operand.dtype

    def smallest(self) -> int:
        """The smallest limit under which all gradients can be computed, one after the other, while earlier ones stay.

        It is enough whatever the arrays' layouts are by then, and for each gradient of a gradient computed by itself.
        If the current limit is enough, the number is at most that, but need not be the smallest.
        """
        least, earlier = least_limit(self.adapter, self._request(len(self.arrays) - 1, 0)), 0
        for number in self.numbers:
            least = max(least, least_limit(self.adapter, self._request(number, earlier)))
            earlier += self.arrays[number].operand.nbytes
        return least

    def asked(self, step: Backward, conjugated: Collection[int], operands: Sequence[Any] = ()) -> Request:
        """The call that computes the array of a place, with those in the places ``conjugated`` conjugated."""
        limit, backend = MemoryLimit(self.limit, device=self.device), self.adapter.name
        conj = tuple([number for number, other in enumerate(step.others) if other in conjugated])
        return replace(
            self.request, written=step.written, operands=operands, backend=backend, memory_limit=limit, conj=conj
        )

    def extra_bytes(self, step: Backward, place: int) -> int:
        """The bytes that a gradient takes besides the contraction that computes it."""
        operand = self.arrays[place].operand
        extra = sum(step.ones)
        if len(step.labels) < len(step.term):
            extra += self._diagonal_bytes(step)
        if operand.dtype != self.dtype:
            extra += operand.nbytes
        return extra

    def _diagonal_bytes(self, step: Backward) -> int:
        """The peak bytes while diagonals are embedded, one after the other: an array before and after a step."""
        copies = not self.adapter.cpu.strided  # then moving axes takes as much again
        size = prod(self.equation.sizes[label] for label in step.labels)
        most = 0
        for label in step.labels:
            for _ in range(step.term.count(label) - 1):
                before, size = size, size * self.equation.sizes[label]
                most = max(most, 2 * before * copies, before + size)
        return max(most, 2 * size * copies) * itemsize(self.dtype)

    def _request(self, place: int, earlier: int) -> BlockedContraction:
        """The contraction for one place, while ``earlier`` bytes of other gradients are alive."""
        step = backward(self.equation, place)
        arrays = [self.arrays[other] for other in step.others]
        arrays += [PassArray(Operand((size,), "int8"), in_place=False) for size in step.ones]
        operands, in_place, rates = zip(*arrays)
        whole = prod(self.equation.sizes[label] for label in step.labels) * itemsize(self.dtype)
        last, conjugated = len(self.arrays) - 1, self.conjugated
        if place != last:
            conjugated = conjugated_for(conjugated, last, place, last + 1)
        asked = contraction(self.asked(step, conjugated), self.adapter, operands, self.device)
        copied = whole if asked.compute_dtype != self.dtype else 0
        landing = ResultFootprint(whole, copied, beside=self.beside + earlier + self.extra_bytes(step, place))
        is_path_free = self.request.is_path_free
        return BlockedContraction(asked, self.limit, in_place, landing, rates, is_path_free=is_path_free)
