"""The suite's command: what it judges, what it prints and writes, and how it ends."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from einsumx.adapters import registry
from einsumx.cli.main import main
from einsumx.conformance import command, suite
from einsumx.conformance.case import Case, Failure, Outcome, as_expression
from einsumx.conformance.deviations import Deviation
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.report import terminal
from einsumx.conformance.report.markdown import markdown
from einsumx.conformance.report.page import page
from einsumx.conformance.report.results import Run, differences, merge, read_runs, write_runs
from einsumx.conformance.reproduce import reproducer
from einsumx.conformance.subject import Subject, callable_subject, subjects
from einsumx.host.files import write_text

FEW = ("--case", "diagonals/*")


@pytest.fixture
def faulty():
    """The name of an einsum function that is wrong in cases of one equation."""
    return "faulty_einsum:einsum"


@pytest.fixture
def listed(monkeypatch):
    """Let a subject's list of deviations be what a test says."""

    def let(*deviations):
        monkeypatch.setattr(Subject, "deviations", deviations)

    return let


def conformance(*arguments):
    return main(["conformance", *arguments])


def judged(tmp_path, *arguments, status=0):
    """The runs that a command stores, after checking how it ended."""
    path = tmp_path / "runs.json"
    assert conformance(*arguments, "--quiet", "--json", str(path)) == status
    return read_runs(path)


# -- how it ends ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_backend_that_passes_ends_with_0_and_others_are_compared_with_it(capsys, faulty):
    assert conformance("--backend", "numpy", *FEW) == 0
    text = capsys.readouterr().out
    assert "diagonals" in text
    assert "0 fail" not in text
    assert "FAILED" not in text
    assert conformance("--callable", "numpy:einsum", "--callable", faulty, *FEW) == 1
    text = capsys.readouterr().out
    assert "differ in 2 cases:" in text
    assert "fail: faulty_einsum:einsum on numpy" in text


def test_a_function_that_is_wrong_ends_with_1_and_a_reproducer_that_shows_it(capsys, tmp_path, faulty):
    (run,) = judged(tmp_path, "--callable", faulty, *FEW, status=1)
    failed = [outcome for outcome in run.outcomes if outcome.status == "fail"]
    assert [outcome.case for outcome in failed] == [
        "diagonals/ii->i (3,3) float32",
        "diagonals/ii->i (1,1) float32",
    ]
    assert failed[0].message.startswith("the result: element (")
    printed = capsys.readouterr().out
    assert f"FAILED {failed[0].case}\n    {failed[0].message}" in printed

    names, output = {}, io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(failed[0].reproducer, names)
    shown = np.array(output.getvalue().strip("[]\n").split(), "float32")
    np.testing.assert_allclose(shown, names["a"].diagonal() + 1, rtol=1e-6)


@pytest.mark.long
def test_a_command_in_a_process_of_its_own_ends_alike(faulty):
    command = [sys.executable, "-m", "einsumx.conformance", "--callable", faulty, "--quiet", *FEW]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert done.returncode == 1, done.stderr
    assert "diagonals/ii->i (1,1) float32" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "say what to judge"),
        (("--backend", "nosuch"), "no backend is called 'nosuch'"),
        (("--backend", "numpy", "--case", "nosuch/*"), "no case of the level quick is called 'nosuch/*'"),
        (("--callable", "numpy"), "no function 'numpy' here"),
        (("--callable", "numpy:nosuch"), "no function 'numpy:nosuch' here"),
        (("--callable", "nosuch_module:einsum"), "No module named 'nosuch_module'"),
        (("--backend", "numpy", "--json", "/no/such/folder/x.json"), "there is no folder /no/such/folder"),
        (("--merge", "/no/such/file.json"), "No such file"),
        (("--backend", "numpy", "--merge", "/no/such/file.json"), "--merge judges nothing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_ends_with_2_and_a_line(capsys, arguments, says):
    assert conformance(*arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_framework_that_is_not_installed_ends_with_2_and_how_to_install_it(capsys, missing_library):
    assert conformance("--backend", missing_library) == 2
    assert "pip install 'nowhere[all]'" in capsys.readouterr().err


@pytest.mark.parametrize(("backend", "device"), [("jax", "nosuch:7"), ("torch", "meta")])
def test_a_device_that_is_not_there_or_has_no_memory_ends_with_2(capsys, backend, device):
    pytest.importorskip(backend)
    assert conformance("--backend", backend, "--device", device) == 2
    assert f"{backend} cannot be used on {device} here" in capsys.readouterr().err


def test_a_device_that_a_framework_does_not_have_is_not_ignored(capsys):
    assert conformance("--backend", "numpy", "--device", "cuda:0") == 2
    assert "numpy cannot be used on cuda:0 here: it puts arrays on cpu" in capsys.readouterr().err
    assert conformance("--backend", "numpy", "--device", "cpu", "--quiet", *FEW) == 0


def test_a_reproducer_puts_its_arrays_on_the_device():
    pytest.importorskip("torch")
    (case,) = suite.cases("quick", "forms/ij,j->i *")
    code = reproducer(case, subjects(["torch"], [], "cpu")[0])
    assert "a = a.to('cpu')\n" in code
    exec(code, {})


@pytest.mark.parametrize(
    ("pattern", "called", "printed"),
    [
        ("argmax/ij,jk->ik * in max-plus", "einsumx.semirings.max_plus.argmax('", "positions={'j': array("),
        ("semirings/ij,jk->ik (2,3) (3,4) float32 in max-min", "einsumx.Semiring(name='max-min', ", "[["),
        ("exponents/ij,jk->ik (6,5) (5,7) float32 large", "einsumx.einsum_frexp('ij,jk->ik', ", "mantissa=array("),
        ("addeinsum/ijk->kj (4,3) (2,3,4) *=operand 0", "einsumx.addeinsum(a, 'ijk->kj', b, alpha=2.5, beta=", "[["),
        ("out/ij,jk->ik * out=operand 0", "einsumx.einsum('ij,jk->ik', a, b, out=a)", "[["),
    ],
)
def test_a_reproducer_calls_what_the_case_calls(pattern, called, printed, capsys):
    code = reproducer(suite.cases("quick", pattern)[0], subjects(["numpy"], [])[0])
    assert f"print({called}" in code
    exec(code, {})
    assert printed in capsys.readouterr().out


@pytest.mark.long
def test_results_are_judged_on_another_device_than_the_default():
    pytest.importorskip("array_api_strict")
    assert conformance("--backend", "array_api", "--device", "device2", "--quiet", "--case", "forms/*") == 0
    (subject,) = subjects(["array_api"], [], "device2")
    outcomes = list(suite.run(subject, suite.cases("quick", random=0)[::9]))
    assert [outcome.case for outcome in outcomes if outcome.status == "fail"] == []
    assert sum(outcome.status == "pass" for outcome in outcomes) > 100


def test_all_leaves_out_what_is_not_installed(missing_library):
    found = command.installed_backends()
    assert "numpy" in found
    assert missing_library not in found


def test_an_interrupt_ends_with_130(monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(command, "run", interrupted)
    assert conformance("--backend", "numpy", *FEW) == 130


def test_without_rich_it_says_how_to_install_it_and_quiet_does_without(capsys, monkeypatch):
    monkeypatch.setattr("einsumx.terminal.find_spec", lambda name: None)
    assert conformance("--backend", "numpy", *FEW) == 2
    assert "pip install 'einsumx[cli]'" in capsys.readouterr().err
    assert conformance("--backend", "numpy", "--quiet", *FEW) == 0


# -- what is judged -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_list_prints_the_names_of_cases(capsys):
    assert conformance("--list", "--level", "full") == 0
    assert capsys.readouterr().out.splitlines() == [case.id for case in suite.cases("full")]


@pytest.mark.long
def test_names_of_cases_are_unique_and_the_quick_level_is_part_of_the_full():
    full, quick = ([case.id for case in suite.cases(level, random=0)] for level in ("full", "quick"))
    assert len(set(full)) == len(full)
    assert set(full) > set(quick)


@pytest.mark.long
def test_every_case_is_selected_by_its_name():
    for case in suite.cases("quick"):
        assert as_expression(case.id).match(case.id)


def test_functions_are_judged_on_the_arrays_of_each_backend_that_is_named():
    assert [subject.name for subject in subjects([], ["numpy:einsum"])] == ["numpy:einsum"]
    (subject,) = subjects(["numpy"], ["opt_einsum:contract"])
    assert (subject.name, subject.path) == ("opt_einsum:contract on numpy", "opt_einsum:contract")
    pytest.importorskip("array_api_strict")
    assert [subject.name for subject in subjects(["numpy", "array_api"])] == ["numpy", "array_api"]


# -- deviations -----------------------------------------------------------------------------------------------------


def test_a_listed_failure_is_a_deviation_and_a_listed_case_that_passes_fails_the_run(capsys, tmp_path, faulty, listed):
    listed(Deviation("diagonals/ii-> *", "it subtracts 1"), Deviation("diagonals/ii->i *", "it adds 1"))
    (run,) = judged(tmp_path, "--callable", faulty, *FEW, status=1)
    deviating = [outcome for outcome in run.outcomes if outcome.status == "deviation"]
    assert [outcome.reason for outcome in deviating] == ["it adds 1"] * 2
    assert deviating[0].message.startswith("the result: element")
    printed = capsys.readouterr().out
    assert "deviation: it adds 1\n    diagonals/ii->i (3,3) float32\n" in printed
    assert printed.count("FAILED") == 1
    assert "passes, though it is listed as a deviation (it subtracts 1)" in printed


@pytest.mark.long
def test_an_entry_that_no_case_matches_fails_a_run_of_all_cases(monkeypatch, capsys, listed):
    cases = suite.cases("full", "diagonals/*")
    monkeypatch.setattr(command, "cases", lambda *options: cases)
    listed(Deviation("diagonals/nosuch *\nforms/nosuch *", "it has none"))
    assert conformance("--backend", "numpy", "--quiet", *FEW) == 0
    assert conformance("--backend", "numpy", "--quiet") == 1
    text = capsys.readouterr().out
    assert "FAILED diagonals/nosuch *\n    there is no such case, though it is listed (it has none)" in text
    assert "FAILED forms/nosuch *" in text


@pytest.mark.long
def test_what_shows_only_sometimes_may_pass_but_not_in_all_cases_of_the_full_level(monkeypatch, capsys, faulty, listed):
    cases = suite.cases("full", "diagonals/*")
    monkeypatch.setattr(command, "cases", lambda *options: cases)
    shows = Deviation("diagonals/ii->* *", "it adds 1", sometimes=True)
    listed(shows)
    assert conformance("--callable", faulty, "--quiet", "--level", "full") == 0
    listed(shows, Deviation("diagonals/iij->j *", "it adds 2", sometimes=True))
    assert conformance("--callable", faulty, "--quiet") == 0
    assert conformance("--callable", faulty, "--quiet", "--level", "full") == 1
    text = capsys.readouterr().out
    assert "FAILED diagonals/iij->j *\n    all of these pass, though they are listed (it adds 2)" in text


# -- what is written ------------------------------------------------------------------------------------------------


def outcome(case, status="pass", dtype="float32", **more):
    return Outcome(case, case.partition("/")[0], dtype, status, **more)


def made_run(*outcomes, subject="numpy", version="1.0", is_einsumx=True, date="2026-01-01T00:00:00+00:00"):
    return Run(
        subject=subject,
        version=version,
        framework="numpy",
        framework_version="1.0",
        device="",
        is_einsumx=is_einsumx,
        level="full",
        select="*",
        einsumx="0.1.0",
        python="3.11.7",
        platform="linux x86_64",
        date=date,
        seconds=1.5,
        outcomes=outcomes,
    )


RUNS = [
    made_run(
        outcome("forms/a"),
        outcome("forms/b", "deviation", message="is 3", reason="no <b> & no |pipe|", reproducer="print(1)"),
        outcome("forms/c", "inapplicable", "bfloat16", message="it has no bfloat16"),
        outcome("views/d", "fail", "", message="is 4", reproducer="print(2)"),
    ),
    made_run(outcome("forms/a"), outcome("forms/b"), outcome("views/d"), subject="peer:einsum", is_einsumx=False),
]


def test_json_gives_the_same_runs_when_read(tmp_path):
    write_runs(tmp_path / "runs.json", RUNS)
    assert read_runs(tmp_path / "runs.json") == RUNS
    assert [path.name for path in tmp_path.iterdir()] == ["runs.json"]


def test_a_file_that_cannot_be_written_whole_is_left_as_it_was(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "after \udc80")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_runs_of_several_files_merge_and_of_one_subject_the_later_is_kept(tmp_path, capsys):
    later = made_run(outcome("forms/a", "fail"), date="2026-02-01T00:00:00+00:00")
    other = made_run(outcome("forms/a"), version="2.0")
    assert merge([RUNS[1], later, RUNS[0], other]) == [later, other, RUNS[1]]
    write_runs(tmp_path / "a.json", RUNS)
    write_runs(tmp_path / "b.json", [other])
    merging = ["--merge", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--quiet"]
    assert conformance(*merging, "--json", str(tmp_path / "c.json"), "--markdown", str(tmp_path / "c.md")) == 1
    assert "FAILED views/d\n    is 4\n    > print(2)" in capsys.readouterr().out
    assert [run.name for run in read_runs(tmp_path / "c.json")] == ["numpy 1.0", "numpy 2.0", "peer:einsum 1.0"]
    assert "| numpy<br>2.0 |" in (tmp_path / "c.md").read_text()


def test_cases_that_are_judged_again_replace_the_outcomes_of_the_same_cases_alone():
    whole = made_run(outcome("forms/a"), outcome("forms/b", "fail"))
    again = replace(made_run(outcome("forms/b"), date="2026-02-01T00:00:00+00:00"), select="forms/b", level="quick")
    (merged,) = merge([again, whole])
    assert [(each.case, each.status) for each in merged.outcomes] == [("forms/a", "pass"), ("forms/b", "pass")]
    assert (merged.select, merged.level, merged.date) == ("*", "full", again.date)
    assert merge([replace(whole, date="2026-03-01T00:00:00+00:00"), again])[0].outcomes == whole.outcomes


def test_subjects_differ_where_a_case_ends_otherwise_on_two_to_which_it_applies(capsys):
    found = differences(RUNS)
    assert {feature: list(cases) for feature, cases in found.items()} == {"forms": ["forms/b"], "views": ["views/d"]}
    assert found["forms"]["forms/b"] == {"pass": ["peer:einsum 1.0"], "deviation": ["numpy 1.0"]}
    text = "\n".join(terminal.difference_lines(RUNS))
    assert "differ in 2 cases:" in text
    assert "views (1)\n  views/d\n    pass: peer:einsum 1.0\n    fail: numpy 1.0" in text


def test_markdown_has_a_matrix_for_einsumx_with_a_note_for_each_reason_and_counts_of_other_functions():
    text = markdown(RUNS)
    ours, _, others = text.partition("## Other libraries")
    assert "| numpy<br>1.0 |" in ours
    assert "| peer:einsum 1.0 | 3 | 0 | 0 |\n" in others
    (row,) = (line for line in ours.splitlines() if line.startswith("| **forms**"))
    assert row.endswith("| 1, ≠ 1[^1] |")
    assert "\n[^1]: no &lt;b> & no \\|pipe\\|\n" in text
    widths = {line.count(" | ") for line in ours.splitlines() if line.startswith("| ")}
    assert widths == {1}


@pytest.mark.parametrize(("subjects", "columns"), [(1, [1]), (8, [8]), (9, [4, 5]), (17, [5, 6, 6])])
def test_markdown_with_many_subjects_has_tables_that_fit_a_window(subjects, columns):
    runs = [made_run(outcome("forms/a"), subject=f"library{number}") for number in range(subjects)]
    runs[-1] = made_run(outcome("forms/a"), outcome("views/d"), subject=f"library{subjects - 1}")
    matrices = markdown(runs)
    headers = [line for line in matrices.splitlines() if line.startswith("|  |")]
    assert [header.count("library") for header in headers] == columns
    assert re.findall(r"library\d+", " ".join(headers)) == [run.subject for run in runs]
    # The tables have the same rows, also for a feature that applies to one subject alone.
    rows = [line for line in matrices.splitlines() if line.startswith("| **views** |")]
    assert len(rows) == matrices.count("| **forms** |") == len(columns)
    assert sum(row.count("–") for row in rows) == subjects - 1
    assert max(map(len, rows)) < 100


def test_pages_say_what_was_not_judged():
    for text, gpu in ((markdown(RUNS), "[GPU](gpu.md)"), (page(RUNS), "GPU")):
        names = ", ".join(name for name in registry.BUILTIN if name != "numpy")
        assert f"Not judged: einsumx on {names}; anything on a {gpu}." in text
    on_gpu = replace(made_run(outcome("forms/a")), device="cuda:0")
    assert "GPU" not in markdown([on_gpu])


class Reader(HTMLParser):
    """What is in a page: its elements, their attributes and texts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.scripts, self._open = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open.pop() != tag:
            pass

    def handle_data(self, data):
        (self.scripts if self._open and self._open[-1] in ("script", "style") else self.texts).append(data)


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;{0}"


def test_a_page_shows_hostile_names_as_what_they_are():
    run = made_run(
        outcome(f"{HOSTILE}/a", "fail", HOSTILE, message=HOSTILE, reproducer=HOSTILE),
        outcome(f"{HOSTILE}/b", "deviation", message=HOSTILE, reason=HOSTILE),
        subject=HOSTILE,
    )
    text = page([run, made_run(outcome(f"{HOSTILE}/a", dtype=HOSTILE), version="2")])
    found, plain = Reader(text), Reader(page(RUNS))
    assert [tag for tag, _ in found.elements if tag in ("script", "img")] == ["script", "script"]
    assert not any(name.startswith("on") for _, attributes in found.elements for name in attributes)
    assert {tag for tag, _ in found.elements} <= {tag for tag, _ in plain.elements}
    assert sum(HOSTILE in shown for shown in found.texts) >= 2
    data = json.loads(next(script for script in found.scripts if script.startswith("{")))
    assert [data["texts"][place] for place in data["runs"][0]["notes"]["0"]] == [HOSTILE, "", HOSTILE]
    assert data["cases"][0] == [f"{HOSTILE}/a", HOSTILE.partition("/")[0], HOSTILE]


def test_without_jinja2_a_page_is_refused_before_any_case_runs(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert conformance("--backend", "numpy", "--quiet", "--html", str(tmp_path / "page.html"), *FEW) == 2
    captured = capsys.readouterr()
    assert "an HTML page needs Jinja2: pip install 'einsumx[conformance]'" in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_page_needs_nothing_from_elsewhere():
    text = page(RUNS)
    for outside in ("http:", "https:", "//cdn", "url(", "@import", "<link", " src=", " href="):
        assert outside not in text


def test_a_page_counts_the_cases_behind_each_cell():
    found = Reader(page(RUNS))
    cells = {
        (attributes["data-run"], attributes["data-feature"], attributes["data-dtype"]): attributes["title"]
        for tag, attributes in found.elements
        if tag == "button" and "data-run" in attributes
    }
    assert cells["0", "", ""] == "1 fail, 1 deviation, 1 pass, 1 inapplicable"
    assert cells["0", "forms", ""] == "1 deviation, 1 pass, 1 inapplicable"
    assert cells["0", "forms", "bfloat16"] == "1 inapplicable"
    assert cells["0", "views", "no dtype"] == "1 fail"
    assert cells["1", "forms", ""] == "2 pass"
    assert ("1", "forms", "bfloat16") not in cells


def test_what_a_check_raises_is_what_becomes_of_its_case():
    def check(error):
        def raises(case, subject):
            if error is not None:
                raise error

        return raises

    cases = [
        Case("forms", check(error), equation)
        for equation, error in (
            ("a", None),
            ("b", Failure("is 3")),
            ("c", NotApplicable("it has none")),
            ("d", IndexError("out of range")),
        )
    ]
    found = list(suite.run(callable_subject("numpy:einsum"), cases))
    assert [(outcome.status, outcome.message) for outcome in found] == [
        ("pass", ""),
        ("fail", "is 3"),
        ("inapplicable", "it has none"),
        ("fail", "raised IndexError: out of range"),
    ]
