"""What an adapter says of its framework's own einsum: under which names it is called, and what belongs in its place.

:func:`einsumx.patch` puts it there (:mod:`einsumx.patching`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import INFO
from typing import Any, NamedTuple, TypeAlias

from einsumx.log import log

__all__ = ["OWN", "Function", "Name", "own", "say_anew", "say_native"]

Function: TypeAlias = Callable[..., Any]

OWN = "_einsumx_own"
"""The attribute of what is put under a name, by which :func:`own` finds what was there."""


class Name(NamedTuple):
    """A name under which a framework's function is called, and what is put there: einsumx, if nothing else is said.

    Attributes:
        owner, name: the module or class, and the attribute of it.
        ours: makes what is put there of what is there, where that is not einsumx.
        tell: called with each function that is going to stand there.
        around: makes what is put there of what is there and of einsumx as it would stand there.
    """

    owner: Any
    name: str
    ours: Callable[[Function], Function] | None = None
    tell: Callable[[Function], None] | None = None
    around: Callable[[Function, Function], Function] | None = None


def own(function: Function) -> Function:
    """The framework's own function, whether or not einsumx stands in its place."""
    found: Function = getattr(function, OWN, function)
    return found


_said: set[tuple[str, str, str]] = set()
"""What was logged of calls since a replacement last began, so that it is said once in a loop."""

_REMEMBERED = 1000


def say_native(called: str, operands: Sequence[Any], why: str) -> None:
    """Log that a call goes on to the framework's own function; once for each equation and reason."""
    if log.isEnabledFor(INFO):
        what = repr(operands[0])[:200] if operands and isinstance(operands[0], str) else "labels in lists"
        if (called, what, why) in _said:
            return
        if len(_said) >= _REMEMBERED:
            _said.clear()
        _said.add((called, what, why))
        log.info("%s of %s is left to the framework: %s", called, what, why)


def say_anew() -> None:
    """Log again what was logged before, as when a replacement begins."""
    _said.clear()
