"""What workers receive, and files of runs: what is not as it should be is an error, and nothing hangs."""

import dataclasses
import json
import os
import pickle
from dataclasses import asdict
from importlib.metadata import version

import numpy as np
import pytest
from test_conformance_command import RUNS, conformance

import einsumx
from einsumx.blocked.program import BlockedProgram
from einsumx.conformance.report.results import read_runs, write_runs
from einsumx.errors import EinsumxError
from einsumx.streaming.shared_operands import Dataset, Mapped, Pickled
from einsumx.streaming.tasks import Job, pieces_for
from einsumx.streaming.worker import compute_piece


def program_of(plan):
    """The data of a plan, which is what workers receive."""
    return BlockedProgram(*(getattr(plan, field.name) for field in dataclasses.fields(plan)))


PLAN = program_of(einsumx.plan("ij,jk->ik", (60, 50), (50, 60), memory_limit="30 kB", stored=True))
ARRAYS = [np.arange(3000.0).reshape(shape) % 7 for shape in ((60, 50), (50, 60))]


def job(plan=PLAN, **fields):
    return dataclasses.replace(Job("test", plan, tuple(map(Pickled, ARRAYS)), 1, version("einsumx")), **fields)


def pieces(plan=PLAN):
    return [piece for index in plan.grid.indices for piece in pieces_for(1, plan, {0: index})]


def sent(value):
    """As it arrives in another process."""
    return pickle.loads(pickle.dumps(value))


def test_a_job_of_another_version_is_refused():
    with pytest.raises(EinsumxError, match=r"but its caller has 0\.0\.0; use the same version of einsumx everywhere"):
        compute_piece(sent(job(version="0.0.0")), pieces()[0])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are files on Unix alone")
def test_a_pipe_in_the_place_of_an_operand_is_not_waited_for(tmp_path):
    path = str(tmp_path / "operand")
    os.mkfifo(path)
    for operand in (Mapped(path, "<f8", (3,), (8,), 0), Dataset(path, "operand")):
        with pytest.raises(einsumx.BackendError, match="not a regular file"):
            operand.open()


@pytest.mark.parametrize("dtype", ["|O", "<f8,<f8", "import os", "<M8[s]"])
def test_a_file_is_mapped_as_numbers_alone(tmp_path, dtype):
    path = tmp_path / "operand"
    path.write_bytes(bytes(800))
    with pytest.raises(einsumx.BackendError, match="cannot read dtype"):
        Mapped(str(path), dtype, (3,), (8,), 0).open()
    assert Mapped(str(path), "<f8", (3,), (8,), 0).open().tolist() == [0, 0, 0]


# -- runs of the conformance suite ----------------------------------------------------------------------------------


def changed(**fields):
    runs = [json.loads(json.dumps(asdict(run))) for run in RUNS]
    runs[0].update(fields)
    return json.dumps({"format": 1, "runs": runs})


OUTCOME = asdict(RUNS[0].outcomes[0])

HOSTILE_RUNS = {
    "nothing": "",
    "a list": "[]",
    "another format": '{"format": 2, "runs": [{}]}',
    "no runs": '{"format": 1, "runs": []}',
    "a format that is true": '{"format": true, "runs": [{}]}',
    "runs in an object": '{"format": 1, "runs": {}}',
    "seconds that are no number": changed(seconds=float("nan")),
    "a date with markup": changed(date="2026-01-01<script>alert(1)</script>"),
    "a name that cannot be written": changed(subject="\ud800"),
    "outcomes that are text": changed(outcomes="pass"),
    "a status that there is not": changed(outcomes=[{**OUTCOME, "status": 'fail" onclick="alert(1)'}]),
    "a field that there is not": changed(unknown=1),
}


@pytest.mark.parametrize("text", HOSTILE_RUNS.values(), ids=HOSTILE_RUNS)
def test_runs_of_strangers_that_are_none_are_refused(tmp_path, capsys, text):
    path, page = tmp_path / "runs.json", tmp_path / "page.html"
    path.write_text(text)
    assert conformance("--merge", str(path), "--quiet", "--html", str(page), "--markdown", str(tmp_path / "a.md")) == 2
    assert "does not hold runs of the conformance suite" in capsys.readouterr().err
    assert not page.exists()


def test_texts_in_runs_of_strangers_are_no_markup_and_no_commands(tmp_path, capsys):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"' \x1b[2J"
    fields = ("subject", "version", "framework", "framework_version", "device", "select", "einsumx", "python")
    outcome = dataclasses.replace(
        RUNS[0].outcomes[0],
        case=evil, feature=evil, dtype=evil, status="fail", message=evil, reason=evil, reproducer=evil,
    )  # fmt: skip
    run = dataclasses.replace(RUNS[0], **dict.fromkeys(fields, evil), platform=evil, outcomes=(outcome,))
    path, page = tmp_path / "runs.json", tmp_path / "page.html"
    write_runs(path, [run, RUNS[1]])
    assert run in read_runs(path)
    conformance("--merge", str(path), "--quiet", "--html", str(page), "--markdown", str(tmp_path / "runs.md"))
    assert "\x1b" not in capsys.readouterr().out
    for text in (page.read_text(), (tmp_path / "runs.md").read_text()):
        assert "<script>alert" not in text
        assert "<img" not in text


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are files on Unix alone")
def test_a_pipe_in_the_place_of_runs_is_not_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / "runs.json")
    assert conformance("--merge", str(tmp_path / "runs.json"), "--quiet") == 2
    assert "not a regular file" in capsys.readouterr().err
