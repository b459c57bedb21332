"""How cases of more than one feature are judged."""

from __future__ import annotations

from einsumx.conformance.case import Case
from einsumx.conformance.subject import Subject

__all__ = ["gives_the_plain_sum"]


def gives_the_plain_sum(case: Case, subject: Subject) -> None:
    """The result is the plain sum that the equation means, and the operands are as they were."""
    hosts = case.values()
    arrays = subject.arrays(case, hosts)
    expected = subject.expected(case, hosts)
    subject.judge(subject.call(case, arrays), expected)
    subject.untouched(arrays, hosts)
