"""Semirings as data: which functions stand for the sum and the product of a contraction, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from einsumx.dtypes import kind
from einsumx.errors import BackendError, shown

__all__ = ["Addition", "Algebra", "Multiplication"]

Addition: TypeAlias = Literal["maximum", "minimum", "logaddexp", "or"]
Multiplication: TypeAlias = Literal["add", "multiply", "maximum", "minimum", "and"]

_INFINITY = float("inf")

_CONSTANTS: dict[tuple[str, str], tuple[float, float]] = {
    ("maximum", "add"): (-_INFINITY, 0.0),
    ("minimum", "add"): (_INFINITY, 0.0),
    ("maximum", "multiply"): (0.0, 1.0),
    ("minimum", "multiply"): (_INFINITY, 1.0),
    ("maximum", "minimum"): (-_INFINITY, _INFINITY),
    ("minimum", "maximum"): (_INFINITY, -_INFINITY),
    ("logaddexp", "add"): (-_INFINITY, 0.0),
    ("or", "and"): (False, True),
}
"""The zero and the one of each pair of functions that distribute over each other."""


@dataclass(frozen=True, slots=True, eq=False)
class Algebra:
    """The functions of a semiring; :class:`einsumx.Semiring` has these fields and methods that compute.

    Attributes:
        name: for plans and messages.
        add: the function of two elements that replaces the sum.
        multiply: the function that replaces the product, over which ``add`` distributes.

    Raises:
        ValueError: the functions are unknown, or do not distribute.

    >>> Algebra("widest path", "maximum", "minimum").zero
    -inf
    """

    name: str
    add: Addition
    multiply: Multiplication

    def __post_init__(self) -> None:
        if (self.add, self.multiply) not in _CONSTANTS:
            pairs = ", ".join(f"{add}/{multiply}" for add, multiply in _CONSTANTS)
            raise ValueError(
                f"{shown(self.add)} and {shown(self.multiply)} are not the functions of a semiring; these are: {pairs}"
            )
        if type(self.name) is not str or not self.name.isprintable() or not 0 < len(self.name) <= _LONGEST:
            raise ValueError(f"the name of a semiring is a printable text of up to {_LONGEST} letters")

    def __eq__(self, other: object) -> bool:
        """Whether the fields are equal, also of a class that adds methods."""
        if not isinstance(other, Algebra):
            return NotImplemented
        return (self.name, self.add, self.multiply) == (other.name, other.add, other.multiply)

    def __hash__(self) -> int:
        return hash((self.name, self.add, self.multiply))

    @property
    def zero(self) -> float:
        """The sum of no terms.

        >>> Algebra("min-plus", "minimum", "add").zero
        inf
        """
        return _CONSTANTS[self.add, self.multiply][0]

    @property
    def one(self) -> float:
        """The product of no factors.

        >>> Algebra("log", "logaddexp", "add").one
        0.0
        """
        return _CONSTANTS[self.add, self.multiply][1]

    @property
    def is_boolean(self) -> bool:
        """Whether it computes with truth values, as every framework does for a dtype of bool."""
        return self.add == "or"

    def check_dtype(self, dtype: str) -> None:
        """Raise BackendError if arrays of a dtype cannot hold its elements.

        Integers lack the infinities, and would wrap around; complex numbers have no order.

        >>> Algebra("max-plus", "maximum", "add").check_dtype("float16")
        """
        if kind(dtype) == ("b" if self.is_boolean else "f"):
            return
        if self.is_boolean:
            raise BackendError(f"the semiring {self.name!r} computes in bool, not in {dtype}; leave dtype= away")
        if kind(dtype) == "c":
            why = "complex numbers have no order"
        elif kind(dtype) == "O":
            why = "it computes in floating-point numbers alone"
        else:
            why = f"{dtype} holds no infinity, which stands for what is impossible, and its sums wrap around"
        raise BackendError(f"the semiring {self.name!r} does not compute in {dtype}, as {why}; pass dtype='float64'")


_LONGEST = 60
"""The most letters in a name."""
