"""The benchmarks of calls: every group measures einsumx and its peers, and its tables get into the documentation."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rich")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # cotengra's, on keywords that it cannot cache

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def calls():
    """The module, which is a script among others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import calls

        patch.setattr(calls, "rest", lambda: None)
        patch.setattr(calls, "WARM_UP", 1)
        yield calls


@pytest.fixture(scope="module")
def rows(calls):
    """Some rows of each group on NumPy."""
    numpy, *_ = calls.FRAMEWORKS
    scale = calls.Scale(pairs=1, networks=1, large_networks=0, processes=1, largest=3, rounds=1)
    return [row for group in calls.GROUPS for row in calls.measured(numpy, group, scale)]


def test_einsumx_has_a_time_of_every_contraction(rows):
    ours = {row["problem"]: len(row["first"]) for row in rows if row.get("contender") == "einsumx"}
    assert set(ours.values()) == {1}
    assert {"small pairs", "state's norm (40)", "ij,jk->ik", "new process, with import"} <= set(ours)


def test_a_contender_that_takes_no_path_has_no_row_of_networks(rows):
    networks = {row["contender"] for row in rows if row.get("problem") == "6×6 lattice (36)"}
    assert "opt_einsum" in networks
    assert "np.einsum" not in networks


def test_einsumx_and_numpy_take_every_form(rows):
    forms = [row for row in rows if row["group"] == "forms"]
    assert all(row["rounds"]["einsumx"] for row in forms)
    assert {row["form"] for row in forms if not row["rounds"]["np.einsum"]} == {"e(a, b)"}
    assert {row["form"] for row in forms if not row["rounds"]["patched"]} == {"e(a, b)"}


def test_a_wrong_result_has_no_time(calls):
    numpy, *_ = calls.FRAMEWORKS
    matrices = {letter: np.eye(2, dtype="float32") for letter in "abc"}
    form = 'f("ij,jk->ik", a, b, out=c)'
    for function, right in ((np.einsum, True), (lambda *_, out: np.eye(2), False)):
        arrays = {letter: 0 * matrix if letter == "c" else matrix for letter, matrix in matrices.items()}
        call = calls._form(form, "", function, arrays)
        assert calls._is_right(numpy, call, form, arrays, matrices) == right


def test_the_tables_are_written_between_the_marks_of_the_page(calls, rows):
    run = {"date": "2026-11-23T01:00:00", "machine": "M", "cores": 2, "environment": {}, "versions": {}, "calls": rows}
    page = calls.PAGE.read_text(encoding="utf-8")
    written = calls.with_part(page, "calls", calls.page_part(run))
    mark = "<!-- calls: generated -->"
    assert written.partition(mark)[0] == page.partition(mark)[0]
    assert '| `f("ij,jk->ik", a, b)` | ' in written.partition(mark)[2]
