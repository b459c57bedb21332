"""How calls are judged that must fail: which error comes, what it says, and that nothing was done before it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from einsumx.adapters.base import Adapter
from einsumx.adapters.registry import get_backend
from einsumx.conformance.case import Case, Failure, NotApplicable, Operand, rounded, said
from einsumx.conformance.framework import Array
from einsumx.conformance.subject import Subject
from einsumx.ir.ops import Op
from einsumx.runtime.caches import cache_clear

__all__ = ["SENTINEL", "is_refused", "made_out", "message_of_refusal", "takes", "writeable"]

SENTINEL = 99
"""What is in every element of ``out`` before a call."""


def writeable(subject: Subject) -> None:
    """Raise NotApplicable where nothing can be written into the framework's arrays."""
    if subject.framework.immutable:
        raise NotApplicable(subject.framework.immutable)


def made_out(out: Operand, subject: Subject) -> Array:
    """What is given for ``out=``, full of sentinels.

    Raises:
        NotApplicable: arrays are immutable, or the framework lacks its dtype or layout.
    """
    writeable(subject)
    subject.needs_dtype(out.dtype)
    return subject.framework.laid_out(_sentinels(out), out, subject.device)


def takes(subject: Subject, name: str) -> None:
    """Raise Failure where a function has no such keyword, so that an error says nothing of what is given for it."""
    array = subject.array(np.ones(2), "float32")
    given = subject.array(np.zeros(2), "float32") if name == "out" else _HARMLESS[name]
    try:
        subject.function("i->i", array, **{name: given})
    except Exception as error:
        raise Failure(f"takes no {name}=: {said(error)}") from error


_HARMLESS = {"dtype": "float32", "casting": "safe", "order": "K", "optimize": True}


def is_refused(case: Case, subject: Subject, instead: Mapping[int, Any] | None = None) -> None:
    """The error of the case's refusal comes, before anything is computed or written.

    Args:
        case: has a refusal.
        subject: to be judged.
        instead: what is given in the place of operands, by their number.
    """
    hosts = case.values()
    arrays = subject.arrays(case, hosts)
    others = instead or {}
    message_of_refusal(case, subject, [others.get(place, array) for place, array in enumerate(arrays)])
    subject.untouched(arrays, hosts)


def message_of_refusal(case: Case, subject: Subject, arrays: Sequence[Any]) -> str:
    """Call, and give the message of the error that must come; einsumx's is of the class and says what it must."""
    refusal = case.refusal
    if refusal is None:
        raise TypeError(f"nothing is refused in {case.id}")
    for name, _ in case.options:
        if name in _HARMLESS and not subject.is_einsumx:
            takes(subject, name)
    options = {}
    if case.out:
        options["out"] = made_out(case.out, subject)
        takes(subject, "out")
    with _computing_is_noted(subject) as noted:
        try:
            result = subject.call(case, arrays, **options)
        except Exception as error:  # noqa: BLE001  of which class it is is what is judged
            raised = error
        else:
            raise Failure(f"no error came, but {_shown(result)}")
    message = str(raised)
    if case.out and not np.array_equal(subject.framework.values(options["out"]), _sentinels(case.out)):
        raise Failure(f"out was written before the {type(raised).__name__}")
    if noted:
        raise Failure(f"something was computed before the error: {noted[0]}")
    wanted = (refusal.error,) if subject.is_einsumx else (ValueError, TypeError, RuntimeError)
    if not isinstance(raised, wanted):
        names = " or ".join(kind.__name__ for kind in wanted)
        raise Failure(f"the error is not {names}, but {said(raised)}")
    if subject.is_einsumx and not re.search(refusal.says, message, re.DOTALL):
        raise Failure(f"the message does not say {refusal.says!r}: {message!r}")
    return message


@contextmanager
def _computing_is_noted(subject: Subject) -> Iterator[list[str]]:
    """What einsumx's adapter is asked to execute or to write, by name: it is not done, but fails.

    Plans are made anew within, as those in the cache run what the adapter gave them before. Of functions that are not
    einsumx's nothing is known.
    """
    noted: list[str] = []

    def note(name: str) -> Callable[..., Any]:
        def fail(*_: Any) -> Any:
            noted.append(name)
            raise Failure(f"{name} was called")

        return fail

    def kernel(adapter: Adapter, op: Op, *_: Any) -> Callable[..., Any]:
        return note(f"{adapter.name}'s {type(op).__name__.lower()}")

    with ExitStack() as stack:
        if subject.is_einsumx:
            adapter = type(get_backend(subject.name))  # the class, as a backend may be of several libraries
            stack.callback(cache_clear)
            for name, stand_in in (("kernel", kernel), ("write", note("write")), ("arrange", note("arrange"))):
                stack.enter_context(patch.object(adapter, name, stand_in))
            cache_clear()
        yield noted


def _sentinels(out: Operand) -> Any:
    return rounded(np.full(out.shape, SENTINEL), out.dtype)


def _shown(result: Any) -> str:
    kind = type(result)
    return f"a {kind.__module__}.{kind.__qualname__} of shape {getattr(result, 'shape', '()')}"
