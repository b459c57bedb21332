"""Whether a call is the context manager of a ``with`` statement, which the code of its caller shows.

A call cannot ask what is done with the value that it returns. The compiler, however, writes the same instructions at
the beginning of every ``with`` block, and they follow the call immediately. Which ones they are differs between
versions of Python, and so they are read from a block in this file rather than listed.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from inspect import currentframe
from itertools import takewhile
from opcode import EXTENDED_ARG, opmap
from types import FrameType

__all__ = ["opens_block"]

_ENOUGH = 8
"""Instructions after a call that are compared, at most."""

_CACHE = 0
"""What stands in the place of an instruction where Python keeps what it learned about the one before."""


def opens_block(frame: FrameType | None) -> bool:
    """Whether the value of a function is entered at once, as in ``with call():``.

    Args:
        frame: of the function; None where the interpreter has no frames.

    Returns:
        False also where the interpreter has no bytecode to tell it by.

    >>> def call():
    ...     print(opens_block(currentframe()))
    ...     return nullcontext()
    >>> value = call()
    False
    >>> with call():
    ...     pass
    True
    """
    opening = _opening()
    return bool(opening) and _following(frame)[: len(opening)] == opening


@lru_cache(maxsize=1)
def _opening() -> list[int]:
    """The instructions with which blocks begin; none where other code has the same after a call."""
    found: list[list[int]] = []

    def call() -> nullcontext[None]:
        found.append(_following(currentframe()))
        return nullcontext()

    with call():
        pass
    with call() as _:
        pass
    call()
    _ = __ = call()
    first, second, *others = found
    opening = [code for code, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second))]
    return [] if opening in [other[: len(opening)] for other in others] else opening


def _following(frame: FrameType | None) -> list[int]:
    """The operation codes after the call of a function, also past the jump of ``call() if this else that``."""
    caller = frame.f_back if frame is not None else None
    if caller is None:
        return []
    codes = caller.f_code.co_code
    found: list[int] = []
    at = caller.f_lasti + 2
    while at < len(codes) and len(found) < _ENOUGH:
        code, argument = codes[at : at + 2]
        at += 2
        if code == opmap["JUMP_FORWARD"]:
            at += 2 * argument
        elif code not in (_CACHE, EXTENDED_ARG):
            found.append(code)
    return found
