"""Equations as users write them, parsed and bound to shapes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from einsumx.errors import SizeError
from einsumx.ir import bind, parse
from einsumx.ir.sizes import Unknown
from einsumx.planner import clear

if TYPE_CHECKING:
    from einsumx.ir.bind import NumberedEquation, SizedEquation
    from einsumx.ir.parse import Equation
    from einsumx.planner.clear import Roles
    from einsumx.runtime.request import Written


def sized_equation(written: Written, shapes: Sequence[tuple[int, ...]]) -> SizedEquation:
    """The equation bound to shapes.

    Raises:
        EquationError, SizeError: it is wrong, or does not fit the shapes.
    """
    shapes = tuple(shapes)
    sized = bind.with_shapes(numbers_of(written, tuple(map(len, shapes))), shapes)
    if sized is not None and Unknown not in map(type, sized.sizes):
        return sized
    # Not from the cache: labels that are equal but print differently, such as 1 and True, share its entries.
    equation = parsed(written, len(shapes))
    try:
        return bind.bind(equation, shapes)
    except SizeError as error:
        if not isinstance(written, str):
            raise
        first, _, rest = str(error).partition("\n")
        raise SizeError(f"{first}{parse.misread(written)}\n{rest}") from None


def numbers_of(written: Written, ranks: tuple[int, ...]) -> NumberedEquation:
    """The equation with its labels numbered, for operands of these ranks; sublists of integers are not looked up."""
    if not isinstance(written, str):
        found = bind.listed(*written)
        if tuple(map(len, found.inputs)) == ranks:
            return found
    return numbered(written, ranks)


def roles_of(written: Written, ranks: tuple[int, ...]) -> Roles:
    """The roles of the equation's labels, for operands of these ranks; without operands if it is wrong for them."""
    if isinstance(written, str) and (letters := bind.in_order(written)):
        roles = _of_letters(letters)
        if tuple(map(len, roles.inputs)) == ranks:
            return roles
    found = numbers_of(written, ranks)
    return clear.roles_of(found.inputs, found.output)


@lru_cache(maxsize=1024)
def _of_letters(text: str) -> Roles:
    found = bind.lettered(text)
    return clear.roles_of(found.inputs, found.output)


@lru_cache(maxsize=1024)
def numbered(written: Written, ranks: tuple[int, ...]) -> NumberedEquation:
    """The equation with its labels numbered, for operands of these ranks."""
    if isinstance(written, str):
        plain = bind.lettered(written)
        if plain.inputs and tuple(map(len, plain.inputs)) == ranks:
            return plain
    return bind.numbered(parsed(written, len(ranks)), ranks)


def parsed(written: Written, count: int) -> Equation:
    """The parsed equation for ``count`` operands."""
    if isinstance(written, str):
        return parse.parse_text(written, count)
    return parse.parse_sublists(*written)
