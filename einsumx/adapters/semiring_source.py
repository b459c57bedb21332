"""Writes ops in a semiring as calls of one framework, for :meth:`einsumx.Plan.source`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log, prod
from typing import TYPE_CHECKING

from einsumx.adapters.dialect import Spelling, Value, numbers
from einsumx.ir import ops

if TYPE_CHECKING:
    from einsumx.ir.ops import Op
    from einsumx.ir.semiring import Algebra

__all__ = ["SemiringSpelling"]

_TERMS = 1 << 20
"""The most terms of the sums of a product at a time."""


class SemiringSpelling(Spelling):
    """The calls of a framework, with those of a semiring for sums and products.

    A product of matrices is a function beside that of the plan. It reduces the broadcast terms of some rows at a time.

    Args:
        framework: how the framework's calls are written.
        semiring: not that of truth values.
    """

    def __init__(self, framework: Spelling, semiring: Algebra) -> None:
        super().__init__(framework.module, framework.name)
        self._framework, self._semiring = framework, semiring

    @property
    def imports(self) -> tuple[str, ...]:
        return self._framework.imports

    def decorators(self, shapes: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
        return self._framework.decorators(shapes)

    def opening(self, operand: str) -> tuple[str, ...]:
        return self._framework.opening(operand)

    def diagonal_view(self, array: Value, axis1: int, axis2: int) -> str:
        return self._framework.diagonal_view(array, axis1, axis2)

    def element(self, array: Value, made_by: Op) -> str:
        return self._framework.element(array, made_by)

    def spell(self, op: Op, values: Sequence[Value]) -> str:
        match op:
            case ops.Sum() | ops.Scale() | ops.Multiply() | ops.Matmul() | ops.Zeros():
                return super().spell(op, values)
            case _:
                return self._framework.spell(op, values)

    def sum(self, array: Value, axes: tuple[int, ...]) -> str:
        return self._framework.reduced(self._semiring.add, array.text, numbers(axes))

    def scale(self, array: Value, count: int) -> str:
        if self._semiring.add != "logaddexp":
            return self._framework.copy(array)
        return f"{self.name}.add({array.text}, {self._framework.constant(repr(log(count)), array.dtype)})"

    def multiply(self, lhs: Value, rhs: Value) -> str:
        return self._terms(lhs.text, rhs.text)

    def matmul(self, lhs: Value, rhs: Value, op: ops.Matmul) -> str:
        left, right = (1, *lhs.shape)[-2:], (*rhs.shape, 1)[: max(len(rhs.shape), 2)]
        sides = [f"{lhs.text}[None]" if len(lhs.shape) == 1 else lhs.text]
        sides.append(f"{rhs.text}[..., None]" if len(rhs.shape) == 1 else rhs.text)
        if not self._framework.fuses:
            batch = prod(max(lhs.shape[:-2], right[:-2], key=prod))
            sides.append(str(max(1, _TERMS // max(1, batch * left[1] * right[-1]))))
        first, last = ("0" if len(side.shape) == 1 else ":" for side in (lhs, rhs))
        text = f"product({', '.join(sides)})"
        return text if first == last == ":" else f"{text}[..., {first}, {last}]"

    def zeros(self, arrays: Sequence[Value], shape: tuple[int, ...], dtype: str) -> str:
        zeros, zero = self._framework.zeros(arrays, shape, dtype), self._semiring.zero
        if not zero:
            return zeros
        infinity = self._framework.constant(f"{'-' * (zero < 0)}{self.name}.inf", dtype)
        return f"{self.name}.add({zeros}, {infinity})"

    def dtype(self, name: str) -> str:
        return self._framework.dtype(name)

    def _terms(self, lhs: str, rhs: str) -> str:
        return f"{self.name}.{self._semiring.multiply}({lhs}, {rhs})"

    def helpers(self, code: str) -> list[str]:
        product = self._product() if "product(" in code else []
        needs_sum = self._semiring.add == "logaddexp" and re.search(r"\blogsumexp\(", "\n".join([*product, code]))
        return [*(self._framework.logsumexp() if needs_sum else ()), *product]

    def _product(self) -> list[str]:
        """The lines of the function that multiplies matrices."""
        framework, add = self._framework, self._semiring.add
        rows = ":" if framework.fuses else "i : i + rows"
        terms = f"terms = {self._terms(f'a[..., {rows}, :, None]', 'b[..., None, :, :]')}"
        reduced = framework.reduced(add, "terms", "-2")
        about = f"The product of matrices by {add} and {self._semiring.multiply}"
        if framework.fuses:
            return ["def product(a, b):", f'    """{about}."""', f"    {terms}", f"    return {reduced}", "", ""]
        body = [
            "parts = []",
            "for i in range(0, a.shape[-2] or 1, rows):",
            f"    {terms}",
            f"    parts.append({reduced})",
            f"return {framework.concatenated('parts', -2)}",
        ]
        lines = [f"    {line}" for line in framework.silently(body)]
        return ["def product(a, b, rows):", f'    """{about}, in blocks of rows."""', *lines, "", ""]
