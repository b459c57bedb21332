"""Where a subject is known to do otherwise than the contract says, each with its reason.

The lists are strict: a case that is listed and passes fails the run, as does an entry that no case matches, until the
entry is taken off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from einsumx.conformance.subject import Subject

__all__ = ["DEVIATIONS", "Deviation", "deviations_of"]


@dataclass(frozen=True, slots=True)
class Deviation:
    """Cases in which a subject deviates.

    Attributes:
        cases: their ids, a pattern of :mod:`fnmatch` in which ``[`` is no special character.
        reason: why, for the users of the subject.
        versions: with what the version begins where it deviates; empty for all versions.
    """

    cases: str
    reason: str
    versions: str = ""

    def matches(self, case: str) -> bool:
        """Whether the case of that id is one of them."""
        return fnmatchcase(case, self.cases.replace("[", "[[]"))


def deviations_of(subject: Subject) -> Sequence[Deviation]:
    """The deviations that are listed for a subject in its version."""
    listed = DEVIATIONS.get(subject.name, ())
    return [deviation for deviation in listed if subject.version.startswith(deviation.versions)]


DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "mxnet": (
        Deviation(
            "inf and nan/ij->i (4,3):*inf float32",
            "MXNet 1's own sum carries its rounding error along, which is inf - inf beside an infinity: nan.",
            versions="1.",
        ),
    ),
}
