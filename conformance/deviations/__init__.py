"""Known deviations of subjects from the contract, with their reasons; one JSON file per library.

A file lists deviations with the fields of :class:`Deviation`, and the subjects that each group of them is true of.
The lists are strict: a run fails if a listed case passes, or if no case matches an entry.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from itertools import product

from einsumx.conformance.case import as_expression

__all__ = ["DEVIATIONS", "Deviation"]


@dataclass(frozen=True)
class Deviation:
    r"""Cases in which a subject deviates from the contract.

    Attributes:
        cases: patterns of case ids, one per line; see :func:`~einsumx.conformance.case.as_expression`. A ``|``
            separates alternatives for one word of an id; a leading ``!`` excludes cases.
        reason: a sentence for the subject's users.
        since: the first version that deviates; empty for all earlier versions.
        before: the first version that no longer deviates; empty for all later versions.
        sometimes: whether the case's outcome depends on values and machine, as rounding does. Some of the cases may
            pass, but not all.
        crashes: whether the case would crash or hang the process, so that it is not run.

    >>> Deviation("views/* \n !views/ii->i|ij->ji *", "it has no views").matches("views/ii->i (3,3) float32")
    False
    """

    cases: str
    reason: str
    since: str = ""
    before: str = ""
    sometimes: bool = False
    crashes: bool = False

    @cached_property
    def patterns(self) -> dict[str, re.Pattern[str]]:
        """The lines of :attr:`cases`, one for each combination of alternatives, as text and as expression."""
        patterns = []
        for line in filter(None, map(str.strip, self.cases.splitlines())):
            feature, slash, rest = line.partition("/")
            choices = product(*(word.split("|") for word in rest.split(" ")))
            patterns += [f"{feature}{slash}{' '.join(words)}" for words in choices]
        return {pattern: as_expression(pattern.removeprefix("!")) for pattern in patterns}

    def matches(self, case: str) -> bool:
        """Whether the case of that id is listed here."""
        matching = [pattern for pattern, expression in self.patterns.items() if expression.match(case)]
        return bool(matching) and not any(pattern.startswith("!") for pattern in matching)

    def holds_in(self, version: str) -> bool:
        """Whether that version of the subject deviates."""
        numbers = _numbers(version)
        return _numbers(self.since) <= numbers and (not self.before or numbers < _numbers(self.before))


def _numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)]


def _read() -> dict[str, tuple[Deviation, ...]]:
    found: dict[str, tuple[Deviation, ...]] = {}
    for file in files(__name__).iterdir():
        for group in json.loads(file.read_text(encoding="utf-8")) if file.name.endswith(".json") else ():
            listed = [Deviation(**{**entry, "cases": "\n".join(entry["cases"])}) for entry in group["deviations"]]
            for subject in group["subjects"]:
                found[subject] = (*found.get(subject, ()), *listed)
    return found


DEVIATIONS = _read()
"""Deviations by the name of the subject."""
