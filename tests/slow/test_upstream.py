"""The page of faults in other libraries: each fault is there in the versions that the page names, and in no others."""

import doctest
import functools
import json
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PAGE = Path(__file__).parents[2].joinpath("docs", "upstream.md").read_text(encoding="utf-8")

MATCHING = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

_FAULT = re.compile(
    r"### (?P<title>.*)\n\n"
    r"`(?P<requirement>[^`\n]+)`(?P<some>, on some processors)?\n\n"
    r"```py\n(?P<code>(?:.*\n)+?)```\n\n"
    r"```text\n(?P<printed>(?:.*\n)+?)```\n\n"
    r"Expected: (?P<expected>.+(?:\n.+)*)\n"
)


@dataclass(frozen=True)
class Fault:
    """A fault as the page has it.

    ``requirement`` is the distribution and its versions that have it, ``some`` a text if not every processor shows it.
    """

    title: str
    requirement: str
    some: str | None
    code: str
    printed: str
    expected: str

    @property
    def library(self):
        return Requirement(self.requirement).name

    @property
    def name(self):
        return f"{self.library}: {self.title}"

    @property
    def ends_the_process(self):
        return "SIG" in self.printed


def faults(page):
    return [Fault(**match.groupdict()) for match in _FAULT.finditer(page)]


FAULTS = faults(PAGE)


def output(code):
    """What code prints, and at last its error, or the signal that ended it."""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    if process.returncode < 0:
        return f"{process.stdout}{signal.Signals(-process.returncode).name}\n"
    last = process.stderr.rstrip().rpartition("\n")[2] if process.returncode else ""
    return f"{process.stdout}{last}".rstrip() + "\n"


TOGETHER = """
import contextlib, io, json, sys, traceback
found = []
for code in json.loads(sys.argv[1]):
    printed, last = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        try:
            exec(code, {"__name__": "__main__"})
        except Exception as error:
            last = "".join(traceback.format_exception_only(error)).rstrip().rpartition("\\n")[2]
    found.append(f"{printed.getvalue()}{last}".rstrip() + "\\n")
print(json.dumps(found))
"""
"""Runs pieces of code one after the other, as a process for each would import its library again."""


@functools.cache
def printed_by(library):
    """What the code of all faults of a library prints, but for code that ends its process."""
    codes = [fault.code for fault in FAULTS if fault.library == library and not fault.ends_the_process]
    last = output(TOGETHER.replace("sys.argv[1]", repr(json.dumps(codes)))).rstrip().rpartition("\n")[2]
    return dict(zip(codes, json.loads(last), strict=True))


def stale(fault, installed, printed):
    """Why a fault's entry does not fit the installed version of its library; empty if it does."""
    is_there = doctest.OutputChecker().check_output(fault.printed, printed, MATCHING)
    if is_there == Requirement(fault.requirement).specifier.contains(installed, prereleases=True):
        return ""
    if is_there:
        return f"{installed} has this fault too: the versions on the page, {fault.requirement}, leave it out"
    if fault.some:
        return ""
    return f"{installed} prints\n{printed}Is it mended? Then bound the versions on the page, or take the fault off"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_on_the_page_is_there_in_its_versions_and_in_no_others(fault):
    try:
        installed = version(fault.library)
    except PackageNotFoundError:
        pytest.skip(f"{fault.library} is not installed")
    for module in re.findall(r"^import (\w+)", fault.code, re.MULTILINE):
        pytest.importorskip(module)
    printed = output(fault.code) if fault.ends_the_process else printed_by(fault.library)[fault.code]
    assert stale(fault, installed, printed) == ""


def test_each_fault_has_its_versions_code_output_and_what_is_expected():
    titles = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
    assert [fault.title for fault in FAULTS] == titles
    assert len(titles) > 10


def test_a_reproducer_is_short_and_needs_nothing_of_einsumx():
    assert [fault.name for fault in FAULTS if len(fault.code.splitlines()) > 10 or "einsumx" in fault.code] == []
    for fault in FAULTS:
        compile(fault.code, fault.title, "exec")


# -- the test itself --------------------------------------------------------------------------------------------


ENTRY = "### It is wrong\n\n`numpy{}\n\n```py\n{}\n```\n\n```text\n{}\n```\n\nExpected: the contrary.\n"


@pytest.mark.parametrize(
    ("versions", "code", "printed", "reason"),
    [
        ("`", "print(1)", "1", ""),
        ("`", "raise ValueError('no')", "ValueError: no", ""),
        ("`", "import os; os.abort()", "SIGABRT", ""),
        ("<1`", "print(1)", "2", ""),
        ("`", "print(1)", "2", "Is it mended?"),
        ("`", "print(1)", "1\nValueError: no", "Is it mended?"),
        ("<1`", "print(1)", "1", "has this fault too"),
        ("`, on some processors", "print(1)", "2", ""),
        ("<1`, on some processors", "print(1)", "1", "has this fault too"),
    ],
)
def test_an_entry_that_does_not_fit_is_noticed(versions, code, printed, reason):
    (fault,) = faults(ENTRY.format(versions, code, printed))
    found = stale(fault, "2.0", output(code))
    assert reason in found
    assert bool(found) == bool(reason)
