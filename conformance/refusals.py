"""Checks of calls that must fail: with the right error and message, and before anything is computed or written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from einsumx.adapters.base import Adapter
from einsumx.adapters.operand_types import type_name
from einsumx.adapters.registry import get_backend
from einsumx.caches import cache_clear
from einsumx.conformance.case import Case, Failure, error_line
from einsumx.conformance.framework import DTYPES, Array
from einsumx.conformance.kit.arrays import ArraySpec, rounded
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.subject import Subject
from einsumx.ir.ops import Op

SENTINEL = 99
"""Every element of ``out`` before a call."""

_HARMLESS = {"dtype": "float32", "casting": "safe", "order": "K", "optimize": True}
"""Values with which a keyword changes nothing."""


def needs_writeable_arrays(subject: Subject) -> None:
    """Raise NotApplicable if the framework's arrays are immutable."""
    if subject.framework.immutable:
        raise NotApplicable(subject.framework.immutable)


def make_out(out: ArraySpec, subject: Subject) -> Array:
    """An array for ``out=``, filled with sentinels.

    Raises:
        NotApplicable: arrays are immutable, or the framework lacks the dtype or layout.
    """
    needs_writeable_arrays(subject)
    subject.needs_dtype(out.dtype)
    return subject.framework.laid_out(_sentinels(out), out, subject.device)


def needs_keyword(subject: Subject, name: str) -> None:
    """Raise Failure if a function lacks a keyword, as its error then says nothing about the keyword's value."""
    array = subject.array(np.ones(2), "float32")
    value = subject.array(np.zeros(2), "float32") if name == "out" else _HARMLESS[name]
    try:
        subject.function("i->i", array, **{name: value})
    except Exception as error:
        raise Failure(f"takes no {name}=: {error_line(error)}") from error


def is_refused(case: Case, subject: Subject, instead: Mapping[int, Any] | None = None) -> None:
    """The call raises the case's error before it computes or writes anything.

    Args:
        case: a case with ``raises``.
        subject: the function to judge.
        instead: objects that replace operands, by their position.
    """
    hosts, arrays = subject.operands(case)
    replacements = instead or {}
    refusal_message(case, subject, [replacements.get(place, array) for place, array in enumerate(arrays)])
    subject.judge_unchanged(arrays, hosts)


def refusal_message(case: Case, subject: Subject, arrays: Sequence[Any]) -> str:
    """Make the call and return the message of its error; check einsumx's error class and message.

    Raises:
        Failure: no error or another one is raised, or something is computed or written first.
    """
    if case.raises is None:
        raise TypeError(f"nothing is refused in {case.id}")
    subject.function_of(case)  # which may not apply
    if case.over is not None:
        needs_writeable_arrays(subject)
    for name, value in case.options:
        if name in ("dtype", "accumulate") and value in DTYPES:  # an unknown one is refused by another message
            subject.needs_dtype(value)
        if name in _HARMLESS and not subject.is_einsumx:
            needs_keyword(subject, name)
    options = {}
    if case.out:
        options["out"] = make_out(case.out, subject)
        needs_keyword(subject, "out")
    with _calls_of_the_adapter(subject) as calls:
        try:
            result = subject.call(case, arrays, **options)
        except Exception as error:  # noqa: BLE001  its class is judged below
            raised = error
        else:
            shape = getattr(result, "shape", "()")
            raise Failure(f"no error came, but a {type_name(type(result))} of shape {shape}")
    if case.out and not np.array_equal(subject.framework.values(options["out"]), _sentinels(case.out)):
        raise Failure(f"out was written before the {type(raised).__name__}")
    if calls:
        raise Failure(f"something was computed before the error: {calls[0]}")
    allowed = (case.raises,) if subject.is_einsumx else (ValueError, TypeError, RuntimeError)
    if not isinstance(raised, allowed):
        names = " or ".join(kind.__name__ for kind in allowed)
        raise Failure(f"the error is not {names}, but {error_line(raised)}")
    message = str(raised)
    if subject.is_einsumx and not re.search(case.says, message, re.DOTALL):
        raise Failure(f"the message does not say {case.says!r}: {message!r}")
    return message


def judge_names(message: str, subject: Subject, *names: str) -> None:
    """Raise Failure unless einsumx's message has all the names."""
    missing = [name for name in names if name not in message]
    if subject.is_einsumx and missing:
        raise Failure(f"the message does not name {' and '.join(missing)}: {message!r}")


@contextmanager
def _calls_of_the_adapter(subject: Subject) -> Iterator[list[str]]:
    """Record the computations and writes that einsumx asks of its adapter; each of them fails instead of running.

    The cache is cleared before and after, because cached plans hold functions that the adapter returned earlier.
    Nothing is recorded for other functions than einsumx's.
    """
    calls: list[str] = []

    def recorder(name: str) -> Callable[..., Any]:
        def fail(*_: Any) -> Any:
            calls.append(name)
            raise Failure(f"{name} was called")

        return fail

    def kernel(adapter: Adapter, op: Op, *_: Any) -> Callable[..., Any]:
        return recorder(f"{adapter.name}'s {op.name}")

    with ExitStack() as stack:
        if subject.is_einsumx:
            adapter = get_backend(subject.name)
            stack.callback(cache_clear)
            # Of the classes, because one backend may serve several libraries.
            stack.enter_context(patch.object(type(adapter), "kernel", kernel))
            for part, name in ((adapter.out, "write"), (adapter.orders, "arrange")):
                if part is not None:
                    stack.enter_context(patch.object(type(part), name, recorder(name)))
            cache_clear()
        yield calls


def _sentinels(out: ArraySpec) -> Any:
    return rounded(np.full(out.shape, SENTINEL), out.dtype)
