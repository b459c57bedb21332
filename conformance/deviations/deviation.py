"""What a deviation is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from einsumx.conformance.case import matches

__all__ = ["Deviation"]


@dataclass(frozen=True, slots=True)
class Deviation:
    r"""Cases in which a subject deviates.

    Attributes:
        cases: patterns of their ids, as :func:`~einsumx.conformance.case.matches` has them, a line each; those after
            a ``!`` are not among them.
        reason: why, in a sentence for the users of the subject.
        since: the first version that deviates; empty for all that were.
        before: the first version that deviates no more; empty for all that come.
        sometimes: whether values and machine decide which of the cases show it, as with roundings: others pass, but
            not all.
        crashes: whether such a case would end the process, or never end: it is not run.

    >>> Deviation("views/* \n !views/ii->i *", "it gives no views").matches("views/ii->i (3,3) float32")
    False
    """

    cases: str
    reason: str
    since: str = ""
    before: str = ""
    sometimes: bool = False
    crashes: bool = False

    @property
    def patterns(self) -> tuple[str, ...]:
        """The lines of :attr:`cases`."""
        return tuple(filter(None, map(str.strip, self.cases.splitlines())))

    def matches(self, case: str) -> bool:
        """Whether the case of that id is one of them."""
        found = [line for line in self.patterns if matches(case, line.removeprefix("!"))]
        return bool(found) and not any(line.startswith("!") for line in found)

    def holds_in(self, version: str) -> bool:
        """Whether a version of the subject is one of those that deviate."""
        found = _numbers(version)
        return _numbers(self.since) <= found and (not self.before or found < _numbers(self.before))


def _numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)]
