"""Equations as users write them, parsed and bound to shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from einsumx.caches import cached
from einsumx.errors import SizeError
from einsumx.ir import bind, parse

if TYPE_CHECKING:
    from einsumx.ir.bind import SizedEquation
    from einsumx.ir.parse import Equation
    from einsumx.runtime.request import Written


def sized_equation(written: Written, shapes: Sequence[tuple[int, ...]]) -> SizedEquation:
    """The equation bound to shapes.

    Raises:
        EquationError, SizeError: it is wrong, or does not fit the shapes.
    """
    shapes = tuple(shapes)
    sized = bind.bind_plain(written, shapes)
    if sized is not None:
        return sized
    try:
        return bind.bind(parsed(written, len(shapes)), shapes)
    except SizeError as error:
        if isinstance(written, str):
            first, _, rest = str(error).partition("\n")
            raise SizeError(f"{first}{parse.misread(written)}\n{rest}") from None
        # Labels that are equal but print differently, such as 1 and True, share an entry of the cache.
        bind.bind(parsed.__wrapped__(written, len(shapes)), shapes)
        raise


@cached("equations")
def parsed(written: Written, count: int) -> Equation:
    """The parsed equation for ``count`` operands, cached."""
    if isinstance(written, str):
        return parse.parse_text(written, count)
    return parse.parse_sublists(*written)
