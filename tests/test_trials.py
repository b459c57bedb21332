"""Trials: the first calls under ``effort("measure")`` are real calls of the candidates, and the fastest one stays.

A fake clock decides how long each candidate takes; nothing here depends on the machine.
"""

import numpy as np
import pytest
from backends_under_test import INSTALLED
from threads import in_threads

import einsumx
from einsumx.adapters.registry import get_backend
from einsumx.measuring import effort, trials
from einsumx.measuring.trials import Trials, combined
from einsumx.planner.selection import ESTIMATE, Selection

NUMPY = get_backend("numpy")


pytestmark = pytest.mark.usefixtures("forgotten")


class Machine:
    """Candidates that take a known time on a fake clock."""

    def __init__(self, monkeypatch, seconds):
        self.now, self.calls, self.reports = 0.0, [], []
        self.seconds = seconds
        monkeypatch.setattr(trials, "perf_counter", lambda: self.now)
        monkeypatch.setattr(trials, "rest", lambda: self.calls.append("rest"))
        selections = [ESTIMATE, *(Selection(None, (name,)) for name in list(seconds)[1:])]
        self.trials = Trials(NUMPY, selections, self._compiled, lambda *report: self.reports.append(report))

    def _compiled(self, selection):
        name = "+".join(filter(None, selection.steps)) or next(iter(self.seconds))

        def run(array):
            self.calls.append(name)
            seconds = self.seconds[name]
            if isinstance(seconds, Exception):
                raise seconds
            self.now += seconds
            return array

        return run

    def call(self, times):
        array = np.ones(3)
        for _ in range(times):
            assert self.trials(array) is array

    @property
    def chosen(self):
        self.calls.clear()
        self.call(1)
        return self.calls[-1]


def test_the_fastest_candidate_stays(monkeypatch):
    machine = Machine(monkeypatch, {"estimate": 0.02, "a": 0.03, "b": 0.01})
    machine.call(20)
    assert machine.trials._settled
    assert machine.chosen == "b"
    ((report, chosen),) = machine.reports
    assert [trial.least for trial in report] == pytest.approx([0.02, 0.03, 0.01])
    assert chosen is report[2]


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({"estimate": 0.0200, "a": 0.0196}, "estimate"),  # hardly slower
        ({"estimate": 0.02, "a": MemoryError(), "b": 0.01}, "b"),
    ],
)
def test_a_candidate_that_is_hardly_faster_or_has_no_memory_does_not_stay(monkeypatch, seconds, chosen):
    machine = Machine(monkeypatch, seconds)
    machine.call(20)
    assert not isinstance(seconds["a"], Exception) or machine.calls.count("a") == 1
    assert machine.chosen == chosen


def test_a_candidate_that_was_fast_by_chance_does_not_replace_the_estimates(monkeypatch):
    machine = Machine(monkeypatch, {"estimate": 0.02, "a": 0.01})
    machine.call(6)
    machine.seconds["a"] = 0.02
    machine.call(20)
    assert machine.chosen == "estimate"


def test_turns_begin_with_a_rest_and_a_slow_candidate_has_two_calls(monkeypatch):
    machine = Machine(monkeypatch, {"estimate": 0.02, "near": 0.021, "far": 0.2})
    machine.call(9)
    turn = ["rest", *["estimate"] * 3, "rest", *["near"] * 3, "rest", "far", "far", "estimate"]
    assert machine.calls == turn
    assert machine.trials._settled


def test_the_fastest_candidate_and_the_estimates_have_one_more_turn(monkeypatch):
    machine = Machine(monkeypatch, {"estimate": 0.02, "a": 0.015})
    machine.call(13)
    turns = ["rest", *["estimate"] * 3, "rest", *["a"] * 3]
    assert machine.calls == [*turns, *turns, "a"]


def test_short_calls_are_timed_more_often_but_not_for_long(monkeypatch):
    machine = Machine(monkeypatch, {"estimate": 2e-5, "a": 1e-5})
    machine.call(60)
    assert machine.trials._settled
    ((report, _),) = machine.reports
    assert [len(trial.times) for trial in report] == [12, 12]


def test_the_clock_runs_from_complete_operands_to_a_complete_result(monkeypatch):
    machine = Machine(monkeypatch, {"estimate": 0.01, "a": 0.02})
    pending = [3.0]

    def synchronize(array):
        machine.now += pending.pop() if pending else 0.001

    monkeypatch.setitem(vars(NUMPY), "synchronize", synchronize)
    machine.call(20)
    ((report, _),) = machine.reports
    assert [trial.times for trial in report] == [pytest.approx([0.011] * 3), pytest.approx([0.021] * 2)]


def test_other_errors_reach_the_caller(monkeypatch):
    machine = Machine(monkeypatch, {"estimate": 0.02, "a": ZeroDivisionError()})
    with pytest.raises(ZeroDivisionError):
        machine.call(20)


def test_while_choices_are_frozen_the_estimates_runs_untimed(monkeypatch):
    machine = Machine(monkeypatch, {"estimate": 0.02, "a": 0.01})
    effort.freeze()
    try:
        machine.call(20)
    finally:
        effort.freeze(False)
    assert set(machine.calls) == {"estimate"}
    assert not machine.reports


def test_better_candidates_for_two_steps_are_tried_together():
    first = trials.Attempt(Selection(None, ("x", "")), None)
    second = trials.Attempt(Selection(None, ("", "y")), None)
    first.times, second.times = [0.2], [0.1]
    assert combined([first, second]) == Selection(None, ("x", "y"))
    assert combined([first]) is None


@pytest.mark.parametrize("backend", INSTALLED, ids=str)
def test_every_call_returns_a_right_result_while_candidates_are_tried(backend):
    rng = np.random.default_rng(0)
    equation, shapes = "ij,bjk,kl->bli", ((20, 30), (9, 30, 10), (10, 25))
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    expected = np.einsum(equation, *[array.astype("float64") for array in arrays])
    operands = list(map(backend.array, arrays))
    for _ in range(30):
        with einsumx.effort("measure"):
            result = einsumx.einsum(equation, *operands)
        np.testing.assert_allclose(backend.values(result), expected, 1e-4, 1e-4)


def test_threads_that_call_meanwhile_get_right_results_also_in_out():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 50)), rng.standard_normal((50, 60))
    expected = a @ b

    @einsumx.effort("measure")
    def call():
        for _ in range(30):
            out = np.zeros((40, 60))
            assert einsumx.einsum("ij,jk->ik", a, b, out=out) is out
            np.testing.assert_allclose(out, expected)
            np.testing.assert_allclose(einsumx.einsum("ij,jk->ik", a, b), expected)

    in_threads(call)


def test_no_candidates_are_tried_under_a_limit_with_exponents_in_semirings_and_of_shapes(tried):
    a = np.ones((20, 20))
    with einsumx.effort("measure"):
        np.testing.assert_allclose(einsumx.einsum("ij,jk->ik", a, a, memory_limit=5000), a @ a)
        assert einsumx.einsum_frexp("ij,jk->ik", a, a).exponent == 5
        assert (einsumx.semirings.max_plus.einsum("ij,jk->ik", a, a) == 2).all()
        assert einsumx.plan("ij,jk->ik", (2, 3), (3, 4)).ops
    assert not tried


def test_a_function_that_jax_traces_is_not_timed():
    jax = pytest.importorskip("jax")
    a = jax.numpy.ones((20, 30))

    @jax.jit
    @einsumx.effort("measure")
    def chain(x):
        return einsumx.einsum("ij,kj,kl->il", x, x, x)

    np.testing.assert_allclose(chain(a), a @ a.T @ a)


@einsumx.effort("measure")
def test_gradients_are_right_while_candidates_are_tried():
    torch = pytest.importorskip("torch")
    a, b = torch.rand(20, 30, requires_grad=True), torch.rand(30, 25)
    for _ in range(20):
        a.grad = None
        einsumx.einsum("ij,jk->ik", a, b).sum().backward()
        torch.testing.assert_close(a.grad, b.sum(1).expand(20, 30))


@pytest.fixture
def tried(monkeypatch):
    """The contractions of which candidates are tried."""
    equations = []
    make = trials.Trials.__init__

    def noted(self, adapter, selections, *more):
        equations.append(len(selections))
        make(self, adapter, selections, *more)

    monkeypatch.setattr(trials.Trials, "__init__", noted)
    return equations


def test_the_effort_of_a_block_holds_for_the_calls_in_it(tried):
    a = np.ones((20, 30))
    einsumx.einsum("ij,kj->ik", a, a)
    assert not tried
    with einsumx.effort("measure"):
        einsumx.einsum("ij,kj->ik", a, a)
        with einsumx.effort("estimate"):
            einsumx.einsum("ij,kj->ji", a, a)
    assert len(tried) == 1
    einsumx.einsum("ij,kj->ki", a, a)
    assert len(tried) == 1


def test_sums_that_are_added_try_candidates_too(tried):
    a, c = np.ones((20, 30)), np.ones((20, 20))
    with einsumx.effort("measure"):
        for _ in range(40):
            np.testing.assert_allclose(einsumx.addeinsum(c, "ij,kj->ik", a, a, alpha=2), 61)
    assert len(tried) == 1


def test_a_patched_einsum_takes_the_effort_of_the_block(tried):
    a = np.ones((20, 30))
    with einsumx.patched("numpy"), einsumx.effort("measure"):
        np.einsum("ij,kj->ki", a, a)
    assert len(tried) == 1


def test_an_expression_tries_candidates_with_its_constants_folded(tried):
    rng = np.random.default_rng(0)
    a, b, c = rng.random((20, 30)), rng.random((30, 40)), rng.random((40, 10))
    with einsumx.effort("measure"):
        chain = einsumx.expression("ij,jk,kl->il", (20, 30), b, c)
        for _ in range(40):
            np.testing.assert_allclose(chain(a), a @ b @ c)
    assert len(tried) == 1
