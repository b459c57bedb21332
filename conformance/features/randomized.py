"""Random problems. A problem that fails is reduced to the smallest that still fails, and shown as code."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from einsumx.conformance.case import Case, Failure
from einsumx.conformance.checks import failure_of, gives_the_plain_sum
from einsumx.conformance.framework import DTYPES
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.subject import Subject
from einsumx.dtypes import kind
from einsumx.errors import counted

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

FEATURES = {
    "random": "Random equations, sizes, layouts and values; failures are reduced to their smallest form",
}

_LABELS = "abcdefgh"
_LONG = _LABELS[:2]
"""Labels whose axes may be so long that libraries use other kernels."""

_MOST_OPERANDS = 4
_MOST_AXES = 4
_MOST_ELLIPSIS_AXES = 2


@dataclass(frozen=True, slots=True)
class RandomCase(Case):
    """Random problems in one dtype.

    Attributes:
        problems: the number of problems.
        seed: the random seed.
    """

    problems: int = 0
    seed: int = 0

    @property
    def id(self) -> str:
        """The dtype, the number of problems, and the seed."""
        return f"{self.feature}/{self.dtype}, {counted(self.problems, 'problem')}, seed {self.seed}"


def cases(problems: int, seed: int) -> Iterator[Case]:
    """A case of ``problems`` problems for each dtype; none if ``problems`` is 0."""
    for dtype in DTYPES if problems else ():
        yield RandomCase("random", finds_no_fault, "", (ArraySpec((), dtype),), problems=problems, seed=seed)


def finds_no_fault(case: Case, subject: Subject) -> None:
    """No random problem fails; otherwise the smallest that fails is shown."""
    assert isinstance(case, RandomCase)
    try:
        from hypothesis import HealthCheck, find, settings
        from hypothesis.errors import NoSuchExample
    except ImportError:
        raise NotApplicable("random problems need hypothesis: pip install 'einsumx[conformance]'") from None
    subject.needs_dtype(case.dtype)

    def fails(drawn: Case) -> bool:
        try:
            return failure_of(drawn, subject) is not None
        except NotApplicable:  # such as a layout that the dtype cannot have
            return False

    quietly = settings(
        max_examples=case.problems, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    problems = problem(case.dtype, subject.framework.layouts)
    try:
        smallest = find(problems, fails, settings=quietly, random=Random(case.seed))
    except NoSuchExample:
        return
    raise Failure(str(failure_of(smallest, subject)), smallest)


def problem(dtype: str, layouts: Sequence[str]) -> Any:
    """A Hypothesis strategy for cases that every einsum must compute correctly.

    A case has up to 4 operands of up to 4 axes and an ellipsis. Labels repeat within and between operands. Sizes are
    0 to 4, sometimes 25, and any axis may have size 1. Outputs are implicit or in any order; the form is text or
    sublists.
    """
    from hypothesis import strategies as st

    @st.composite
    def drawn(draw: DrawFn) -> Case:
        sizes = {label: draw(st.sampled_from((2, 3, 1, 4, 0))) for label in _LABELS}
        sizes |= {label: draw(st.sampled_from((2, 3, 1, 25, 0))) for label in _LONG}
        dots = draw(st.lists(st.sampled_from((2, 3, 1)), max_size=_MOST_ELLIPSIS_AXES))
        terms: list[list[Hashable]] = []
        operands = []
        for _ in range(draw(st.integers(1, _MOST_OPERANDS))):
            term: list[Hashable] = list(draw(st.text(_LABELS, max_size=_MOST_AXES)))
            # Within an operand, a label has one size, which may be 1 even if it is larger in another operand.
            shrunk = draw(st.sets(st.sampled_from(_LABELS), max_size=1))
            shape = [1 if label in shrunk else sizes[str(label)] for label in term]
            if draw(st.booleans()) and dots:
                place = draw(st.integers(0, len(term)))
                axes = [draw(st.sampled_from((size, 1))) for size in dots[draw(st.integers(0, len(dots))) :]]
                term.insert(place, ...)
                shape[place:place] = axes
            terms.append(term)
            layout = draw(st.sampled_from(layouts))
            operands.append(ArraySpec(tuple(shape), dtype, layout, draw(st.sampled_from(_fills(dtype)))))
        output: list[list[Hashable]] = []
        if draw(st.booleans()):
            every = list(dict.fromkeys(label for term in terms for label in term))
            output = [draw(st.lists(st.sampled_from(every), unique=True))] if every else [[]]
        if draw(st.integers(0, 3)) == 3:
            number = {label: k for k, label in enumerate(_LABELS)}
            sublists = tuple(tuple(number.get(str(label), label) for label in term) for term in terms + output)
            return Case("random", gives_the_plain_sum, sublists, tuple(operands))
        text = ",".join(map(_subscript, terms)) + "".join("->" + _subscript(term) for term in output)
        return Case("random", gives_the_plain_sum, text, tuple(operands))

    return drawn()


def _subscript(term: Sequence[Hashable]) -> str:
    return "".join("..." if label is ... else str(label) for label in term)


def _fills(dtype: str) -> tuple[str, ...]:
    match kind(dtype):
        case "i" | "u":
            return "normal", "range"
        case "f" | "c":
            return "normal", "positive", "wide"
        case _:
            return ("normal",)
