"""How much work a plan is worth: whether candidates are estimated only, or also measured.

The effort is that of the innermost ``with effort(...)`` of the current thread or task, else the one that
:func:`set_effort` set, else ``EINSUMX_EFFORT``, else ``"estimate"``. This module imports little, because every first
call needs it.
"""

from __future__ import annotations

import os
from _thread import RLock
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from einsumx.imports import LazyModule

if TYPE_CHECKING:
    from einsumx.host import environment
else:
    environment = LazyModule("einsumx.host.environment")

Effort: TypeAlias = Literal["estimate", "measure"]
"""``"estimate"``: the cost model chooses. ``"measure"``: the fastest candidate in a few timed runs."""

_VARIABLE, _FREEZE = "EINSUMX_EFFORT", "EINSUMX_FREEZE"


class _Block:
    """A ``with effort(...)``.

    Args:
        effort: what it sets.
        outer: the block around it, in the same thread or task, or in the one that started it.
    """

    def __init__(self, effort: Effort, outer: _Block | None) -> None:
        self.effort, self.outer, self.is_open = effort, outer, True


_current: ContextVar[_Block | None] = ContextVar("einsumx_effort", default=None)
"""The innermost block around what runs. Tasks, and some threads, that start in a block still have it when it has ended.
"""

_of_process: Effort | None = None
"""What :func:`set_effort` set; None for the variable."""

_measuring = 0
"""How many ``with effort("measure")`` blocks are open, in all threads and tasks."""

_lock = RLock()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

_frozen: bool | None = None
"""What :func:`freeze` set; None for the variable."""

is_set = os.environ.get(_VARIABLE, "") not in ("", "estimate")
"""Whether the effort can be another than ``"estimate"`` anywhere in the process, for a quick check.

It is also true while ``EINSUMX_EFFORT`` is nonsense, so that :func:`get_effort` is called and warns of it.
"""


def get_effort() -> Effort:
    """The current effort, ``"estimate"`` or ``"measure"``.

    >>> import einsumx
    >>> einsumx.get_effort()
    'estimate'
    """
    block = _current.get()
    while block is not None and not block.is_open:
        block = block.outer
    return _of_process or _of_environment() if block is None else block.effort


def set_effort(effort: Effort) -> None:
    """Set the effort of this process, for calls outside of ``with einsumx.effort(...)``.

    Raises:
        ValueError: no effort has this name.

    >>> import einsumx
    >>> einsumx.set_effort("measure")
    >>> einsumx.get_effort()
    'measure'
    >>> einsumx.set_effort("estimate")
    """
    global _of_process  # noqa: PLW0603  # the setting of the process
    checked = _checked(effort)
    with _lock:
        _of_process = checked
        _update()


@contextmanager
def effort(effort: Effort) -> Iterator[None]:
    """A ``with`` block in which new plans get this effort.

    It applies to the current thread or asyncio task, and to tasks that start in the block, as long as it is open. Where
    threads inherit the context of their parent, as in free-threaded Python 3.14, it applies to these too. Blocks nest.

    Args:
        effort: ``"estimate"``: the cost model chooses each plan. ``"measure"``: the first call runs several candidate
            plans and keeps the fastest, also for later processes.

    Raises:
        ValueError: no effort has this name.

    >>> import einsumx
    >>> with einsumx.effort("measure"):
    ...     einsumx.get_effort()
    'measure'
    """
    block = _Block(_checked(effort), _current.get())
    token = _current.set(block)
    _count(block.effort, 1)
    try:
        yield
    finally:
        block.is_open = False
        _count(block.effort, -1)
        _current.reset(token)


def freeze(on: bool = True) -> None:
    """Keep every choice as it is: while frozen, einsumx measures nothing and stores nothing.

    New plans use the wisdom that the process has, or reads when it first needs some, and estimates otherwise, whatever
    their effort. ``EINSUMX_FREEZE=1`` freezes a process from the start.

    Args:
        on: False ends it.

    >>> import einsumx
    >>> einsumx.freeze()
    >>> einsumx.freeze(False)
    """
    global _frozen  # noqa: PLW0603  # the setting of the process
    _frozen = bool(on)


def is_frozen() -> bool:
    """Whether :func:`freeze`, or else ``EINSUMX_FREEZE``, keeps every choice as it is."""
    if _frozen is not None or not os.environ.get(_FREEZE):
        return bool(_frozen)

    return bool(environment.switch(_FREEZE))


def _checked(value: object) -> Effort:
    if not isinstance(value, str) or value not in ("estimate", "measure"):
        raise ValueError(f'the effort must be "estimate" or "measure", not {value!r}')
    return cast("Effort", value)


def _of_environment() -> Effort:
    if not os.environ.get(_VARIABLE):  # an interpreter that exits imports nothing
        return "estimate"

    efforts: dict[str, Effort] = {"estimate": "estimate", "measure": "measure"}
    return environment.variable(_VARIABLE, efforts.get, '"estimate" or "measure"') or "estimate"


def _count(effort: Effort, change: int) -> None:
    global _measuring  # noqa: PLW0603  # one number for all threads
    if effort == "measure":
        with _lock:
            _measuring += change
            _update()


def _update() -> None:
    """Derive ``is_set`` again; the caller holds the lock."""
    global is_set  # noqa: PLW0603  # an attribute is the fastest check
    setting = _of_process or os.environ.get(_VARIABLE) or "estimate"
    is_set = _measuring > 0 or setting != "estimate"
