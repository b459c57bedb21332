"""Writes ops as calls of sparse."""

from __future__ import annotations

from collections.abc import Sequence

from einsumx.adapters.dialect import Spelling, Value, numbers, summed
from einsumx.dtypes import kind
from einsumx.ir.parse import symbol

__all__ = ["SparseSpelling"]


class SparseSpelling(Spelling):
    """Methods of arrays, ``sparse.tensordot`` for products without batch axes, and ``sparse.einsum`` for others."""

    @property
    def imports(self) -> tuple[str, ...]:
        return (f"import {self.module}",)

    def transpose(self, array: Value, axes: tuple[int, ...]) -> str:
        return f"{array.text}.transpose({numbers(axes)})"

    def reshape(self, array: Value, shape: tuple[int, ...]) -> str:
        return f"{array.text}.reshape({numbers(shape)})"

    def diagonal(self, array: Value, axis1: int, axis2: int) -> str:
        letters = [symbol(axis) for axis in range(len(array.shape))]
        letters[axis2] = letters[axis1]
        kept = [letter for letter in letters if letter != letters[axis1]]
        return self.native(f"{''.join(letters)}->{''.join([*kept, letters[axis1]])}", [array])

    def copy(self, array: Value) -> str:
        return f"{array.text}.copy()"

    def cast(self, array: Value, dtype: str) -> str:
        real = ".real" if kind(array.dtype) == "c" and kind(dtype) not in "bc" else ""
        return f"{array.text}{real}.astype({self.dtype(dtype)})"

    def dtype(self, name: str) -> str:
        return repr(name)

    def sum(self, array: Value, axes: tuple[int, ...]) -> str:
        rank = len(array.shape)
        if kind(array.dtype) == "b":
            return f"{array.text}.any({summed(axes, rank)})"
        return f"{array.text}.sum({summed(axes, rank, f'dtype={self.dtype(array.dtype)}')})"

    def multiply(self, lhs: Value, rhs: Value) -> str:
        return f"({lhs.text} * {rhs.text})"

    def native(self, equation: str, arrays: Sequence[Value]) -> str:
        inputs, output = equation.split("->")
        terms = inputs.split(",")
        shared = [letter for letter in terms[0] if letter in terms[-1]]
        if len(terms) == 1 or set(shared) & set(output):
            text = super().native(equation, arrays)
            return text if output else f"{text}.astype({self.dtype(arrays[0].dtype)})"  # it widens integers
        axes = ", ".join([f"[{', '.join([str(term.index(letter)) for letter in shared])}]" for term in terms])
        arguments = f"{arrays[0].text}, {arrays[1].text}, axes=({axes}), return_type={self.name}.COO"
        product = f"{self.name}.tensordot({arguments})"
        made = [letter for term in terms for letter in term if letter in output]
        order = tuple([made.index(letter) for letter in output])
        return product if order == tuple(sorted(order)) else f"{product}.transpose({numbers(order)})"
