"""The product of matrices in a semiring as a function, beside that of a plan's source."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from einsumx.adapters.base import Adapter
from einsumx.algebra.products import elementwise, reduced
from einsumx.algebra.semiring import SemiringAlgebra
from einsumx.render.recorder import Code
from einsumx.render.statements import statements

__all__ = ["product_call", "product_lines"]

_TERMS = 1 << 20
"""The most terms of the sums of a product at a time."""


def product_call(framework: Adapter, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> Callable[[Code, Code], Code]:
    """The call of the function on operands of these shapes, of which vectors become matrices."""
    batch = prod(max(lhs[:-2], rhs[:-2], key=prod))
    columns = rhs[-1] if len(rhs) > 1 else 1
    fuses = framework.semirings is not None and framework.semirings.fuses_terms
    rows = [] if fuses else [max(1, _TERMS // max(1, batch * lhs[-1] * columns))]

    def call(left: Code, right: Code) -> Code:
        product = Code("product")(
            left[None] if len(lhs) == 1 else left, right[..., None] if len(rhs) == 1 else right, *rows
        )
        if min(len(lhs), len(rhs)) > 1:
            return product
        first, last = (0 if len(shape) == 1 else slice(None) for shape in (lhs, rhs))
        return product[..., first, last]

    return call


def product_lines(framework: Adapter, semiring: SemiringAlgebra, dtype: str, opening: str) -> list[str]:
    """The lines of the function, which reduces the broadcast terms of some rows at a time.

    Args:
        framework: records the calls.
        semiring: of the product.
        dtype: of the operands.
        opening: the first statement, if any.
    """
    functions = framework.semirings
    assert functions is not None
    a, b, every, fuses = Code("a"), Code("b"), slice(None), functions.fuses_terms
    rows = every if fuses else Code("i : i + rows")
    terms = elementwise(functions, semiring.multiply, a[..., rows, every, None], b[..., None, every, every])
    sums = reduced(functions, semiring.add, Code("terms", dtype=framework.dtype(dtype)), (-2,))
    *lines, result = statements([sums], room=70)
    lines.insert(0, f"terms = {terms.text()}")
    about = f"The product of matrices by {semiring.add} and {semiring.multiply}"
    if fuses:
        lines.append(result)
    else:
        about += ", in blocks of rows"
        loop = "for i in range(0, a.shape[-2] or 1, rows):"
        joined = functions.named("concat")(Code("parts"), axis=-2).text()
        appended = f"parts.append({result.removeprefix('return ')})"
        lines = ["parts = []", loop, *_indented([*lines, appended]), f"return {joined}"]
    mode = functions.mode(a)
    if isinstance(mode, Code):
        lines = [f"with {mode.text()}:", *_indented(lines)]
    head = f"def product(a, b{'' if fuses else ', rows'}):"
    return [head, *_indented([f'"""{about}."""', *filter(None, [opening]), *lines]), "", ""]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
