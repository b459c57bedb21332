"""Checks, requirements and judgements that several features share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np

from einsumx.adapters.base import Adapter
from einsumx.conformance.case import Case, Failure, error_line
from einsumx.conformance.framework import Array, Function
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.kit.oracle import Expected, expect_gradient
from einsumx.conformance.semiring_oracle import terms_in
from einsumx.conformance.subject import Subject
from einsumx.errors import EinsumxError


def gives_the_plain_sum(case: Case, subject: Subject) -> None:
    """The result is what the case expects, by default the plain sum, and the operands are unchanged."""
    hosts, arrays = subject.operands(case)
    expected = subject.expected(case, hosts)
    subject.judge(subject.call(case, arrays), expected)
    subject.judge_unchanged(arrays, hosts)


def needs_gradients(case: Case, subject: Subject) -> None:
    """Raise NotApplicable if the framework does not differentiate in a dtype of the operands."""
    framework = subject.framework
    if not framework.gradient_dtypes:
        raise NotApplicable(f"{framework.name} does not differentiate")
    for operand in case.operands:
        if operand.dtype not in framework.gradient_dtypes:
            raise NotApplicable(f"{framework.name} does not differentiate in {operand.dtype}")


def cotangent(case: Case, subject: Subject, hosts: Sequence[Any]) -> tuple[Any, Array]:
    """A random array of the result's shape and dtype, as NumPy values and as the framework's array."""
    dtype = subject.result_dtype(case)
    values = case.value(ArraySpec(subject.expected(case, hosts).values.shape, dtype), "cotangent")
    return values, subject.array(values, dtype)


def judge_gradients(
    case: Case, subject: Subject, hosts: Sequence[Any], cotangent: Any, gradients: Sequence[Array]
) -> None:
    """Raise Failure unless the gradient by each operand is right."""
    for place, (_, gradient) in enumerate(zip(case.operands, gradients, strict=True)):
        expected = expected_gradient(place, case, subject, hosts, cotangent)
        subject.judge(gradient, expected, f"the gradient by operand {place}")


def expected_gradient(place: int, case: Case, subject: Subject, hosts: Sequence[Any], cotangent: Any) -> Expected:
    """The derivative of a case's result by one operand, contracted with ``cotangent``."""
    if case.semiring:
        return terms_in(case.semiring, str(case.equation), hosts, subject.result_dtype(case)).gradient(place, cotangent)
    by, arguments = _with_factors(place, case, hosts, np.shape(cotangent))
    conjugate, dtype = subject.framework.conjugates_gradients, case.operands[place].dtype
    return expect_gradient(by, cotangent, *arguments, conjugate=conjugate, dtype=dtype)


def _with_factors(place: int, case: Case, hosts: Sequence[Any], shape: tuple[int, ...]) -> tuple[int, list[Any]]:
    """An operand's position in the sum of which it is a factor, and the arguments of that sum.

    ``addeinsum`` adds two sums, in which ``alpha`` and ``beta`` are factors too.
    """
    if case.function != "addeinsum":
        return place, case.arguments(list(hosts))
    options, (inputs, _, output) = dict(case.options), str(case.equation).partition("->")
    if place == 0:
        return 0, [f"{output},{output}->{output}", hosts[0], np.full(shape, options["beta"], case.dtype)]
    return place - 1, [f"{inputs},->{output}", *hosts[1:], np.asarray(options["alpha"], case.dtype)]


def judge_gradients_of(
    function: Function, case: Case, subject: Subject, hosts: Sequence[Any], arrays: Sequence[Array]
) -> None:
    """Raise Failure unless ``function`` has the gradients of the case's equation."""
    values, array = cotangent(case, subject, hosts)
    judge_gradients(case, subject, hosts, values, subject.framework.gradients(function, arrays, array))
    subject.judge_unchanged(arrays, hosts)


def failure_of(case: Case, subject: Subject) -> Failure | None:
    """Run a case; any exception that the subject raises is a failure too.

    Raises:
        NotApplicable: the case does not apply to the subject.
    """
    try:
        case.check(case, subject)
    except NotApplicable:
        raise
    except Failure as failure:
        return failure
    except Exception as error:  # noqa: BLE001  whatever a subject raises is reported
        return Failure(f"raised {error_line(error)}{_method_of(error)}")
    return None


def _method_of(error: Exception) -> str:
    """The method of a backend that raised an error, with its line; empty if none did, or if the error is einsumx's."""
    if isinstance(error, EinsumxError):
        return ""
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if isinstance(frame.f_locals.get("self"), Adapter)]
    if not frames:
        return ""
    code, adapter = frames[-1].f_code, type(frames[-1].f_locals["self"])
    return f", in {adapter.__name__}.{code.co_name} ({Path(code.co_filename).name}:{frames[-1].f_lineno})"


def counted(function: Function, runs: list[None]) -> Function:
    """The function, each call of which, as it is traced, adds an item to ``runs``."""

    def call(*arrays: Array) -> Array:
        runs.append(None)
        return function(*arrays)

    return call
