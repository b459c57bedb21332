"""``Contraction``: what to compute, with every keyword resolved; the planner makes a program of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from einsumx.ir.algebra import PLUS_TIMES, Algebra
from einsumx.ir.bind import SizedEquation
from einsumx.ir.operand import Operand, Path
from einsumx.ir.records import HashedOnce, record
from einsumx.ir.traits import Traits


@record
class Place(HashedOnce):
    """Where a contraction is computed.

    Attributes:
        backend: the name of the backend.
        device: the kind of device; empty for the backend's default.
        traits: of the framework there.
    """

    backend: str
    device: str
    traits: Traits


@record
class Contraction:
    """What to compute: everything that a program depends on.

    Attributes:
        equation: with sizes.
        operands: shape, dtype and layout of each.
        dtype: of the result.
        path: the operands of each pairwise contraction, as positions in the form of NumPy and opt_einsum.
        place: where it is computed.
        accumulate: the dtype that products and sums are computed in, if a result of ``dtype`` in this place has another
            one by itself; otherwise None.
        algebra: what sums, products and zeros mean.
        conjugated: the positions of the operands, in order, whose complex conjugates are contracted; none is real.
    """

    equation: SizedEquation
    operands: tuple[Operand, ...]
    dtype: str
    path: Path
    place: Place
    accumulate: str | None = None
    algebra: Algebra = PLUS_TIMES
    conjugated: tuple[int, ...] = ()

    def __hash__(self) -> int:
        """Of a few fields, as each first call needs it."""
        return hash((self.equation.text, self.equation.sizes, self.dtype, self.path))

    def others(self, *known: str) -> dict[str, Any]:
        """The values that differ from their defaults, of all fields but ``known`` ones, by name.

        What identifies a contraction in another form than this record has the fields that it knows, and these.
        """
        values = [(each.name, getattr(self, each.name), each.default) for each in fields(self)]
        return {name: value for name, value, default in values if name not in known and value != default}

    def part(
        self, equation: SizedEquation, operands: tuple[Operand, ...], path: Path, positions: Sequence[int]
    ) -> Contraction:
        """A contraction of some operands, and of values of other parts, in the dtype in which these are computed.

        Args:
            equation, operands, path: those of the part.
            positions: that of each operand here; -1 for a value.
        """
        conjugated = tuple([place for place, position in enumerate(positions) if position in self.conjugated])
        return replace(
            self, equation=equation, operands=operands, dtype=self.compute_dtype, path=path, accumulate=None,
            conjugated=conjugated,
        )  # fmt: skip

    @property
    def sums(self) -> str | None:
        """The dtype of ``accumulate``, if there are products or sums to compute in it."""
        return None if self.accumulate is None or self.equation.is_rearrangement else self.accumulate

    @property
    def compute_dtype(self) -> str:
        """The dtype in which blocks of the result are computed and added up."""
        if self.equation.is_rearrangement:
            return self.dtype
        return self.place.traits.compute_dtype(self.accumulate or self.dtype)


class OfContraction:
    """Objects that compute a contraction, whose fields are attributes of theirs."""

    __slots__ = ()

    contraction: Contraction

    @property
    def equation(self) -> str:
        """The equation in text form with an explicit output; sublist labels are written as letters."""
        return self.contraction.equation.text

    @property
    def written(self) -> str:
        """The equation for users: in their names, if they gave any."""
        return self.contraction.equation.named or self.contraction.equation.text

    @property
    def backend(self) -> str:
        """The name of the backend that it was made for."""
        return self.contraction.place.backend

    @property
    def device(self) -> str:
        """The device that it was made for; empty for the backend's default."""
        return self.contraction.place.device

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Shape, dtype and layout of each operand."""
        return self.contraction.operands

    @property
    def path(self) -> Path:
        """The operands of each pairwise contraction, as positions in the form of NumPy and opt_einsum."""
        return self.contraction.path

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return self.contraction.equation.shape

    @property
    def dtype(self) -> str:
        """The result's dtype."""
        return self.contraction.dtype

    @property
    def accumulate(self) -> str | None:
        """The dtype that products and sums are computed in, if it was asked for and is not that of ``dtype``."""
        return self.contraction.accumulate

    @property
    def algebra(self) -> Algebra:
        """What sums, products and zeros mean."""
        return self.contraction.algebra
