"""Contractions for the planner, from an equation, operands and traits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from einsumx.ir.contraction import Contraction, Place
from einsumx.ir.operand import Operand
from einsumx.ir.traits import Traits
from einsumx.planner.path import find_path
from einsumx.runtime.equations import sized_equation


def contraction(
    equation: str, operands: Sequence[Operand], traits: Traits, backend: str = "test", *, optimize: Any = "auto"
) -> Contraction:
    """The contraction of operands of one dtype."""
    sized = sized_equation(equation, [operand.shape for operand in operands])
    path = find_path(sized, optimize, operands)
    return Contraction(sized, tuple(operands), operands[0].dtype, path, Place(backend, "", traits))
