"""The kit: einsum's cases as data, and a pytest plugin that judges any einsum function without einsumx."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from einsumx.conformance.export import kit_text
from einsumx.conformance.kit import cases as kit
from einsumx.conformance.kit.cases import CASES, Implementation, NotApplicable, cases, einsum_of, failure

PAGE = Path(__file__).parent.parent / "docs" / "what-einsum-means.md"

RUN = """
import sys
sys.modules["einsumx"] = None  # as where it is not installed
import pytest
sys.exit(pytest.main(["-p", "einsum_conformance.plugin", "-p", "no:cacheprovider", "-q", "-rf", *sys.argv[1:]]))
"""

FUNCTIONS = """
import numpy as np

def forgets_size_one(equation, *operands):
    if any(1 in operand.shape for operand in operands):
        raise ValueError("this library does not broadcast")
    return np.einsum(equation, *operands)
"""

TORCH_ARRAYS = """
from torch import *

def to_numpy(array):
    return array.numpy()
"""


@pytest.fixture
def judged(tmp_path):
    """Run the kit's tests in a process that cannot import einsumx; the names of those that fail, and the rest."""
    shutil.copytree(Path(kit.__file__).parent, tmp_path / "einsum_conformance")
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "torch_arrays.py").write_text(TORCH_ARRAYS)

    def run(*options):
        command = [sys.executable, "-c", RUN, *options]
        done = subprocess.run(command, cwd=tmp_path, env={"PATH": ""}, capture_output=True, text=True, check=False)
        failed = re.findall(r"^FAILED \S+::test_einsum\[(.*)\]", done.stdout, re.MULTILINE)
        return set(failed), done.stdout + done.stderr

    return run


def test_the_file_has_the_cases_of_the_suite():
    is_current = CASES.read_text(encoding="utf-8") == kit_text()
    assert is_current, "write it again: python -m einsumx.conformance.export"


def test_the_cases_are_those_that_every_library_can_run():
    found = cases()
    assert len({case.id for case in found}) == len(found) > 400
    assert all(case.equation.isascii() for case in found)
    assert "float16" not in {operand.dtype for case in found for operand in case.operands}
    assert {case.feature for case in found if not case.dtype} == {"wrong equations", "wrong sizes"}


def test_the_page_shows_a_case_and_counts_them():
    (block,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    shown = json.loads(block)
    assert shown in json.loads(CASES.read_text(encoding="utf-8"))["cases"]
    assert f"[kit of {len(cases())} cases]" in " ".join(PAGE.read_text(encoding="utf-8").split())


@pytest.mark.long
def test_numpys_einsum_breaks_one_rule(judged):
    failed, output = judged("--einsum=numpy:einsum")
    assert failed == {
        "ellipsis/...i->i (2,4,3) float32",
        "ellipsis/...j->j (4,3) float32",
        "ellipsis/...i,...->i (2,4,3) (4) float32",
        "no axes/...-> (2,3) float32",
    }, output


@pytest.mark.long
def test_a_function_that_forgets_to_broadcast_fails(judged):
    failed, output = judged("--einsum=functions:forgets_size_one", "-k", "broadcasting/")
    assert len(failed) == len([case for case in cases() if case.feature == "broadcasting"]), output
    assert "ValueError: this library does not broadcast" in output


@pytest.mark.long
def test_a_library_may_have_functions_of_its_own_for_arrays(judged):
    pytest.importorskip("torch")
    failed, output = judged("--einsum=torch:einsum", "--einsum-arrays=torch_arrays", "-k", "diagonals/ or bool/")
    assert {name.partition("/")[0] for name in failed} == {"bool"}, output
    assert "12 failed, 17 passed" in output


@pytest.mark.long
@pytest.mark.parametrize("path", ["no_such_module:einsum", "numpy:no_such_function", "numpy"])
def test_a_wrong_function_is_an_error_of_usage(judged, path):
    _, output = judged(f"--einsum={path}")
    assert f"ERROR: --einsum {path}: " in output


def example(name):
    (case,) = (case for case in cases() if case.id == name)
    return case


def judged_here(name, function):
    return failure(example(name), Implementation(function, np))


def multiplies_in_place(equation, a, b):
    a *= b
    return np.sum(a)


@pytest.mark.parametrize(
    ("name", "function", "message"),
    [
        ("forms/ij->ji (2,3) float32", lambda equation, a: a, r"the shape is \(2, 3\), not \(3, 2\)"),
        ("forms/ij->ji (2,3) float32", lambda equation, a: a.T + 1, r"element \(.*\) is .*, not "),
        ("forms/i,i-> (4) (4) float32", multiplies_in_place, "operand 0 was changed"),
        ("dtypes/ij->j (3,4) int8", lambda equation, a: a.sum(0), "the dtype is int64, not int8"),
        ("zero sizes/i-> (0) float32", lambda equation, a: np.float32(np.nan), "is nan, not 0"),
        ("wrong sizes/ab,bc->ac (2,3) (4,5) float32", lambda *_: np.zeros((2, 5)), "no error was raised"),
    ],
)
def test_a_wrong_result_is_a_failure(name, function, message):
    assert re.search(message, judged_here(name, function))


def test_a_library_without_a_dtype_is_not_judged_on_it():
    class Small:
        __name__ = "small"
        float32, asarray = np.float32, staticmethod(np.asarray)

    with pytest.raises(NotApplicable, match="small has no int8"):
        failure(example("dtypes/ij->j (3,4) int8"), Implementation(np.einsum, Small()))


def test_functions_of_modules_without_arrays_get_those_of_numpy():
    assert einsum_of("opt_einsum:contract").arrays is np
