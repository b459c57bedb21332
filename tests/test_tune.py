"""``tune``: every candidate is timed on the operands, the fastest is remembered, and a busy machine is not believed."""

import json

import numpy as np
import pytest

import einsumx
from einsumx import tuning as module
from einsumx.cli.main import main
from einsumx.measuring import machine, steady, wisdom
from einsumx.measuring.steady import steady_times

CHAIN = "ij,jk,kl->il"
BUSY = "other programs or virtual machines used 50% of the processor"


@pytest.fixture(autouse=True)
def quiet(monkeypatch, tmp_path, quiet_machine, forgotten):
    """A machine on which nothing disturbs, and a cache folder of its own."""
    monkeypatch.setenv("EINSUMX_CACHE", str(tmp_path))
    monkeypatch.setattr(steady, "_REST", 0.0)
    wisdom._failures.clear()


@pytest.fixture
def slow_estimate(monkeypatch):
    """The clock says that the first candidate takes 5 s, and each further one a second less."""
    monkeypatch.setattr(
        module, "steady_times", lambda _, runs, *__: [[5.0 - place] for place, _ in enumerate(runs[:4])] + [
            [9.0] for _ in runs[4:]
        ],
    )  # fmt: skip


def operands():
    rng = np.random.default_rng(0)
    return [rng.random(shape) for shape in ((20, 30), (30, 10), (10, 25))]


def test_the_fastest_candidate_is_what_later_calls_run(slow_estimate):
    arrays = operands()
    before = einsumx.plan(CHAIN, *arrays)
    tuning = einsumx.tune(CHAIN, *arrays)
    assert tuning.tried[0].plan == before
    assert tuning.chosen == 3
    assert tuning.gain == 5.0 / 2.0
    assert tuning.is_remembered
    assert einsumx.plan(CHAIN, *arrays) == tuning.plan != before
    np.testing.assert_allclose(einsumx.einsum(CHAIN, *arrays), np.linalg.multi_dot(arrays))
    of_the_same_class = einsumx.plan(CHAIN, *map(np.ones, ((20, 31), (31, 10), (10, 25))))
    assert (of_the_same_class.path, of_the_same_class.shape) == (tuning.plan.path, (20, 25))
    lines = str(tuning).splitlines()
    assert len(lines) == len(tuning.tried) + 2
    assert lines[4].startswith("*")
    assert lines[-1] == "* 2.50 times as fast as the estimate's choice, the first line"


def test_an_accumulator_has_a_choice_of_its_own(slow_estimate):
    arrays = [array.astype("float32") for array in operands()]
    usual, before = einsumx.plan(CHAIN, *arrays), einsumx.plan(CHAIN, *arrays, accumulate="float64")
    tuning = einsumx.tune(CHAIN, *arrays, accumulate=np.float64)
    assert tuning.tried[0].plan == before
    assert tuning.is_remembered
    assert einsumx.plan(CHAIN, *arrays, accumulate="float64") == tuning.plan != before
    assert einsumx.plan(CHAIN, *arrays) == usual
    assert module.choice_text(tuning.plan, "auto").startswith("measured")
    assert module.choice_text(usual, "auto") == module.ESTIMATED
    expected = np.linalg.multi_dot([array.astype("float64") for array in arrays])
    np.testing.assert_array_equal(einsumx.einsum(CHAIN, *arrays, accumulate="float64"), expected.astype("float32"))


def test_another_process_finds_what_was_measured(slow_estimate):
    arrays = operands()
    tuning = einsumx.tune(CHAIN, *arrays)
    wisdom._known.clear()
    einsumx.cache_clear()
    assert einsumx.plan(CHAIN, *arrays) == tuning.plan


def test_on_a_busy_machine_nothing_is_remembered(slow_estimate, monkeypatch):
    monkeypatch.setattr(machine, "disturbances", lambda *_: [BUSY])
    arrays = operands()
    before = einsumx.plan(CHAIN, *arrays)
    tuning = einsumx.tune(CHAIN, *arrays)
    assert tuning.doubts == (BUSY,)
    assert not tuning.is_remembered
    assert f"not remembered: {BUSY}" in str(tuning)
    assert einsumx.plan(CHAIN, *arrays) == before


def test_a_plan_of_arrays_is_measured_once(slow_estimate, monkeypatch):
    arrays = operands()
    with einsumx.effort("measure"):
        first = einsumx.plan(CHAIN, *arrays)
        monkeypatch.setattr(module, "steady_times", None)
        assert einsumx.plan(CHAIN, *arrays) == first


def test_the_command_prints_what_was_tried(slow_estimate, capsys):
    assert main(["tune", CHAIN, "20,30", "30,10", "10,25", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["chosen"] == 3
    assert data["tried"][0]["plan"] == "(0*1)*2"
    assert main(["explain", CHAIN, "20,30", "30,10", "10,25", "--dtype", "float32"]) == 0
    assert "2.50 times as fast as the estimate's" in " ".join(capsys.readouterr().out.split())


def test_turns_rotate_and_functions_that_are_far_behind_have_one(monkeypatch):
    order = []
    seconds = {"a": 1.0, "b": 1.5, "c": 5.0}

    class Adapter:
        def synchronize(self, result):
            order.append(result)

    def turn(call, *_, **__):
        call()
        return seconds[order[-1]]

    monkeypatch.setattr(steady, "turn", turn)
    times = steady_times(Adapter(), [lambda name=name: name for name in seconds], (), 3)
    assert order == ["a", "b", "c", "b", "a", "a", "b"]
    assert times == [[1.0] * 3, [1.5] * 3, [5.0]]
