"""How cases of more than one feature are judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from einsumx.conformance.case import Case, Failure, NotApplicable, Operand, said
from einsumx.conformance.framework import Array, Function
from einsumx.conformance.oracle import expect_gradient
from einsumx.conformance.subject import Subject

__all__ = ["cotangent", "fault", "gives_the_plain_sum", "has_the_gradients", "judge_gradients", "needs_gradients"]


def gives_the_plain_sum(case: Case, subject: Subject) -> None:
    """The result is the plain sum that the equation means, and the operands are as they were."""
    hosts = case.values()
    arrays = subject.arrays(case, hosts)
    expected = subject.expected(case, hosts)
    subject.judge(subject.call(case, arrays), expected)
    subject.untouched(arrays, hosts)


def gives_the_plain_sum_in_einsumx(case: Case, subject: Subject) -> None:
    """The same for what einsumx alone promises."""
    if not subject.is_einsumx:
        raise NotApplicable("this is promised by einsumx alone")
    gives_the_plain_sum(case, subject)


def needs_gradients(case: Case, subject: Subject) -> None:
    """Raise NotApplicable where the framework does not differentiate by a case's operands."""
    framework = subject.framework
    if not framework.gradient_dtypes:
        raise NotApplicable(f"{framework.name} does not differentiate")
    for operand in case.operands:
        if operand.dtype not in framework.gradient_dtypes:
            raise NotApplicable(f"{framework.name} does not differentiate in {operand.dtype}")


def cotangent(case: Case, subject: Subject, hosts: Sequence[Any]) -> tuple[Any, Array]:
    """A random array like the case's result: its values, and the array."""
    dtype = subject.result_dtype(case)
    values = case.value(Operand(subject.expected(case, hosts).values.shape, dtype), "cotangent")
    return values, subject.array(values, dtype)


def judge_gradients(
    case: Case, subject: Subject, hosts: Sequence[Any], cotangent: Any, gradients: Sequence[Array]
) -> None:
    """Raise Failure unless the gradient by each operand is right."""
    conjugate = subject.framework.conjugates_gradients
    for place, (operand, gradient) in enumerate(zip(case.operands, gradients, strict=True)):
        arguments = case.arguments(list(hosts))
        expected = expect_gradient(place, cotangent, *arguments, conjugate=conjugate, dtype=operand.dtype)
        subject.judge(gradient, expected, f"the gradient by operand {place}")


def has_the_gradients(
    case: Case, subject: Subject, function: Function, hosts: Sequence[Any], arrays: Sequence[Array]
) -> None:
    """Raise Failure unless ``function`` has the gradients of the case's equation."""
    values, array = cotangent(case, subject, hosts)
    judge_gradients(case, subject, hosts, values, subject.framework.gradients(function, arrays, array))
    subject.untouched(arrays, hosts)


def fault(case: Case, subject: Subject) -> Failure | None:
    """What is wrong with a subject by a case, an exception that it raises included; None where all is right.

    Raises:
        NotApplicable: the case says nothing of the subject.
    """
    try:
        case.check(case, subject)
    except NotApplicable:
        raise
    except Failure as failure:
        return failure
    except Exception as error:  # noqa: BLE001  whatever a subject raises is what there is to report
        return Failure(f"raised {said(error)}")
    return None
