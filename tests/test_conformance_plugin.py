"""The suite under pytest: what becomes of each kind of outcome, and how a package's own test file uses it."""

import re

import pytest

from einsumx.conformance import deviations
from einsumx.conformance.deviations import Deviation

pytestmark = pytest.mark.long

pytest_plugins = ["pytester"]

TEST = """
from einsumx.conformance.plugin import suite_test

test_it = suite_test(callables=["faulty_einsum:einsum"], select={select!r}, random=0)
"""


def outcome_of(status, text):
    """The exit status, the counts, and what was printed."""
    last = text.rstrip().rpartition("\n")[2]
    return status, {word: int(n) for n, word in re.findall(r"(\d+) ([a-z]+)", last)}, text


@pytest.fixture
def run_file(pytester, monkeypatch):
    """Run a test file of two lines, under a list of deviations."""

    def run(*listed, select="diagonals/*", arguments=()):
        monkeypatch.setitem(deviations.DEVIATIONS, "faulty_einsum:einsum on numpy", listed)
        path = pytester.makepyfile(test_faulty=TEST.format(select=select))
        done = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-ra", *arguments, path)
        return outcome_of(done.ret, done.stdout.str())

    return run


def test_a_failure_is_a_sentence_and_a_reproducer_without_a_traceback(run_file):
    status, counts, text = run_file()
    assert status == 1
    assert counts["failed"] == 2
    assert re.search(r"^the result: element \(0,\) is \S+, not ", text, re.MULTILINE)
    assert "\nprint(faulty_einsum.einsum('ii->i', a))" in text
    assert "FAILED test_faulty.py::test_it[faulty_einsum:einsum on numpy diagonals/ii->i (3,3) float32]" in text
    assert "Traceback" not in text
    assert "plugin.py" not in text


def test_a_listed_deviation_is_an_expected_failure_with_its_reason(run_file):
    status, counts, text = run_file(Deviation("diagonals/ii->i *", "it adds 1"))
    assert status == 0
    assert counts["xfailed"] == 2
    assert "it adds 1" in text


def test_an_entry_that_no_case_matches_fails_a_test_of_all_cases(run_file):
    listed = Deviation("diagonals/ii->i *\nnosuch *", "it adds 1")
    assert run_file(listed)[0] == 0
    status, counts, text = run_file(listed, select="*", arguments=("-k", "deviations or diagonals"))
    assert status == 1
    assert (counts["failed"], counts["xfailed"]) == (1, 2)
    assert "faulty_einsum:einsum on numpy list of deviations" in text


def test_a_case_that_does_not_apply_is_skipped_with_the_reason(run_file):
    status, counts, text = run_file(select="jit/ij,ij->i *")
    assert (status, counts["skipped"]) == (0, 1)
    assert "numpy has no jit" in text


def test_a_pattern_that_selects_no_case_is_an_error(run_file):
    status, counts, text = run_file(select="diagonls/*")
    assert (status, counts) == (2, {"error": 1})
    assert "no case of the level quick is called 'diagonls/*'" in text
