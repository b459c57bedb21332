"""The type of a known deviation, and the text form in which lists of them are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from textwrap import dedent
from types import MappingProxyType
from typing import Any

from einsumx.conformance.case import matches

__all__ = ["Deviation", "listed"]


@dataclass(frozen=True, slots=True)
class Deviation:
    r"""Cases in which a subject deviates from the contract.

    Attributes:
        cases: patterns of case ids, one per line, in the syntax of :func:`~einsumx.conformance.case.matches`. A ``|``
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

    @property
    def patterns(self) -> tuple[str, ...]:
        """The lines of :attr:`cases`, one for each combination of alternatives."""
        return _patterns(self.cases)

    def matches(self, case: str) -> bool:
        """Whether the case of that id is listed here."""
        matching = [pattern for pattern in self.patterns if matches(case, pattern.removeprefix("!"))]
        return bool(matching) and not any(pattern.startswith("!") for pattern in matching)

    def holds_in(self, version: str) -> bool:
        """Whether that version of the subject deviates."""
        numbers = _numbers(version)
        return _numbers(self.since) <= numbers and (not self.before or numbers < _numbers(self.before))


def listed(text: str, shared: Mapping[str, str] = MappingProxyType({})) -> tuple[Deviation, ...]:
    """Deviations as an outline: a reason, its conditions in brackets, and the patterns of its cases, indented.

    Args:
        text: the outline.
        shared: named patterns; a line that is a name stands for its patterns.

    >>> listed('''
    ...     It has no views. [since 1.2, sometimes]
    ...         views/*
    ... ''')
    (Deviation(cases='views/*', reason='It has no views.', since='1.2', before='', sometimes=True, crashes=False),)
    """
    deviations = []
    for heading, cases in re.findall(r"((?:\S.*\n)+)((?: .*\n)+)", dedent(text)):
        reason, _, conditions = " ".join(heading.splitlines()).removesuffix("]").partition(" [")
        patterns = (shared.get(line, line) for line in map(str.strip, cases.splitlines()))
        options: dict[str, Any] = {}
        for condition in filter(None, conditions.split(", ")):
            name, _, version = condition.partition(" ")
            options[name] = version or True
        deviations.append(Deviation("\n".join(patterns), reason, **options))
    return tuple(deviations)


@cache
def _patterns(cases: str) -> tuple[str, ...]:
    patterns = []
    for line in filter(None, map(str.strip, cases.splitlines())):
        feature, slash, rest = line.partition("/")
        choices = product(*(word.split("|") for word in rest.split(" ")))
        patterns += [f"{feature}{slash}{' '.join(words)}" for words in choices]
    return tuple(patterns)


def _numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)]
