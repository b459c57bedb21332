"""The suite under pytest: what becomes of each kind of outcome, and how a package's own test file uses it."""

import os
import re
import subprocess
import sys

import pytest

TEST = """
from einsumx.conformance import deviations
from einsumx.conformance.deviations import Deviation
from einsumx.conformance.plugin import suite_test

deviations.DEVIATIONS["faulty_einsum:einsum on numpy"] = [{listed}]
test_it = suite_test(callables=["faulty_einsum:einsum"], level="full", select={select!r})
"""


@pytest.fixture
def run_pytest(tmp_path):
    """Run pytest in a process and a folder of its own; gives its exit status, its counts, and what it prints."""

    def run(*arguments):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", "--rootdir", str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        done = subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", check=False
        )
        last = done.stdout.rstrip().rpartition("\n")[2]
        return done.returncode, {word: int(n) for n, word in re.findall(r"(\d+) ([a-z]+)", last)}, done.stdout

    return run


@pytest.fixture
def run_file(tmp_path, run_pytest):
    """Run a test file of two lines, under a list of deviations."""

    def run(listed="", select="diagonals/*", *arguments):
        (tmp_path / "test_faulty.py").write_text(TEST.format(listed=listed, select=select))
        return run_pytest(*arguments, "test_faulty.py")

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
    status, counts, text = run_file('Deviation("diagonals/ii->i *", "it adds 1")')
    assert status == 0
    assert counts["xfailed"] == 2
    assert "it adds 1" in text


def test_a_listed_case_that_passes_fails(run_file):
    status, counts, text = run_file('Deviation("diagonals/ii-*", "it adds 1")')
    assert status == 1
    assert (counts["failed"], counts["xfailed"]) == (1, 2)
    assert "passes, though it is listed as a deviation (it adds 1)" in text


def test_an_entry_that_no_case_matches_fails_a_test_of_all_cases(run_file):
    listed = 'Deviation("diagonals/ii->i *\\nnosuch *", "it adds 1")'
    assert run_file(listed)[0] == 0
    status, counts, text = run_file(listed, "*", "-k", "deviations or diagonals")
    assert status == 1
    assert (counts["failed"], counts["xfailed"]) == (1, 2)
    assert "faulty_einsum:einsum on numpy list of deviations" in text


def test_a_case_that_does_not_apply_is_skipped_with_the_reason(run_file):
    status, counts, text = run_file("", "dtypes/ij,jk->ik*bfloat16")
    assert (status, counts["skipped"]) == (0, 1)
    assert "numpy has no bfloat16" in text


def test_tests_have_the_same_names_in_every_process(run_pytest):
    arguments = ("-p", "einsumx.conformance.plugin", "--pyargs", "einsumx.conformance", "--einsumx-backend", "numpy")
    names = [run_pytest(*arguments, "--collect-only", "-q")[2] for _ in range(2)]
    assert len(names[0].splitlines()) > 400
    assert names[0].partition("tests collected")[0] == names[1].partition("tests collected")[0]


def test_without_a_test_file_the_options_say_what_is_judged(run_pytest):
    arguments = ("-p", "einsumx.conformance.plugin", "--pyargs", "einsumx.conformance", "-k", "diagonals")
    status, counts, text = run_pytest(
        *arguments, "--einsumx-callable", "faulty_einsum:einsum", "--einsumx-level", "full"
    )
    assert (status, counts["failed"]) == (1, 2)
    assert "test_conformance[faulty_einsum:einsum on numpy diagonals/ii->i (3,3) float32]" in text
    status, counts, _ = run_pytest(*arguments, "--einsumx-backend", "numpy")
    assert status == 0
    assert counts["passed"] == 13


@pytest.mark.parametrize(
    ("arguments", "says"),
    [((), "say what to judge: --einsumx-backend NAME"), (("--einsumx-backend", "nosuch"), "no backend is called 'no")],
    ids=["nothing", "nosuch"],
)
def test_options_that_name_nothing_are_an_error_in_a_line(run_pytest, arguments, says):
    status, _, text = run_pytest("-p", "einsumx.conformance.plugin", "--pyargs", "einsumx.conformance", *arguments)
    assert status == 2
    assert f"\n{says}" in text
    assert "Traceback" not in text
