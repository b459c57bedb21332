"""Detect from the caller's bytecode whether a call is the context manager of a ``with`` statement.

A function cannot know what becomes of its return value. But the compiler starts every ``with`` block with the same
instructions, right after the call. They differ between versions of Python, so they are read from a block in this file.
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
"""The most instructions to compare."""

_CACHE = 0
"""The operation code of inline cache entries, which follow many instructions."""


def opens_block(frame: FrameType | None) -> bool:
    """Whether a function's return value is entered at once, as in ``with call():``.

    Args:
        frame: the function's; None if the interpreter has no frames.

    Returns:
        False also if the interpreter's bytecode does not tell.

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
    """The instructions at the start of a ``with`` block; none if other code has the same after a call."""
    samples: list[list[int]] = []

    def call() -> nullcontext[None]:
        samples.append(_following(currentframe()))
        return nullcontext()

    with call():
        pass
    with call() as _:
        pass
    call()
    _ = __ = call()
    first, second, *others = samples
    opening = [code for code, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second))]
    return [] if opening in [other[: len(opening)] for other in others] else opening


def _following(frame: FrameType | None) -> list[int]:
    """The operation codes after a function's call; a jump, as in ``call() if condition else other``, is followed."""
    caller = frame.f_back if frame is not None else None
    if caller is None:
        return []
    codes = caller.f_code.co_code
    following: list[int] = []
    at = caller.f_lasti + 2
    while at < len(codes) and len(following) < _ENOUGH:
        code, argument = codes[at : at + 2]
        at += 2
        if code == opmap["JUMP_FORWARD"]:
            at += 2 * argument
        elif code not in (_CACHE, EXTENDED_ARG):
            following.append(code)
    return following
