"""The benchmarks: how contenders take turns, which figures a run is summarised by, and which problems there are."""

from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import einsumx

pytest.importorskip("rich")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def scripts():
    """The modules, which are scripts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield SimpleNamespace(
            **{name: import_module(name) for name in ("contenders", "measure", "problems", "summary")}
        )


# -- turns --------------------------------------------------------------------------------------------------------


def test_every_contender_has_two_rounds_even_without_time(scripts):
    turns = []
    samples = scripts.measure.rounds(["a", "b", "c"], lambda name: turns.append(name) or [len(turns)], seconds=0)
    assert turns == ["a", "b", "c", "b", "c", "a"]
    assert samples == {"a": [1, 6], "b": [2, 4], "c": [3, 5]}


def test_every_contender_is_first_equally_often_and_the_one_before_another_changes(scripts):
    orders = [scripts.measure.rotated("abcd", turn) for turn in range(8)]
    assert all(sorted(order) == [*"abcd"] for order in orders)
    assert sorted(order[0] for order in orders) == sorted(2 * "abcd")
    before_b = {first for order in orders for first, second in pairwise(order) if second == "b"}
    assert before_b == {"a", "c"}


def test_a_turn_measures_all_calls_but_the_first(scripts, monkeypatch):
    calls = []
    monkeypatch.setattr(scripts.measure, "rest", lambda: calls.append("rest"))
    samples = scripts.measure._steady_turn(lambda: calls.append("call"), 1)
    assert calls == ["rest", *["call"] * (1 + len(samples))]
    assert len(samples) == scripts.measure.CALLS


# -- contenders ---------------------------------------------------------------------------------------------------


@pytest.fixture
def framework(scripts, monkeypatch):
    """NumPy with a right peer, a wrong one, and one that raises."""
    numpy = scripts.contenders.FRAMEWORKS[0]
    monkeypatch.setattr(scripts.measure, "rest", lambda: None)

    def raises(*_):
        raise TypeError("no such thing")

    functions = {
        "einsumx": np.einsum,
        "right": np.einsum,
        "wrong": lambda *arguments: np.einsum(*arguments) + 1,
        "raises": raises,
    }
    monkeypatch.setattr(type(numpy), "functions", lambda *_: dict(functions))
    monkeypatch.setattr(type(numpy), "measuring", lambda *_: None)
    return numpy


def measured(scripts, framework):
    problem = scripts.problems.sized("pairs", "ij,jk->ik", {"i": 3, "j": 4, "k": 5})
    return scripts.measure.measure(framework, scripts.measure.prepare(problem), seconds=0)


@pytest.mark.long
def test_a_peer_that_is_wrong_or_raises_has_a_note_and_no_time(scripts, framework):
    row = measured(scripts, framework)
    assert set(row.seconds) == set(row.after_product) == set(row.spread) == {"einsumx", "right"}
    assert row.notes == {"wrong": "wrong: other values", "raises": "raised TypeError: no such thing"}


def test_results_beyond_rounding_are_wrong(scripts):
    problem = scripts.problems.sized("pairs", "ij,jk->ik", {"i": 3, "j": 4, "k": 5})
    prepared = scripts.measure.prepare(problem)
    (right,) = prepared.expected
    assert not scripts.measure.wrong([right.astype("float32")], prepared)
    assert scripts.measure.wrong([right * (1 + 1e-3)], prepared)
    assert scripts.measure.wrong([np.full_like(right, np.nan)], prepared)
    assert scripts.measure.wrong([right.T], prepared)


# -- summaries ----------------------------------------------------------------------------------------------------


def row_of(times, after=None, **more):
    """A row of a run's JSON."""
    return {
        "framework": "numpy",
        "group": "pairs",
        "equation": "ij,jk->ik",
        "shapes": [[2, 2], [2, 2]],
        "dtype": "float32",
        "layouts": [],
        "gradient": False,
        "family": "",
        "seconds": times,
        "after_product": after or {},
        "spread": dict.fromkeys(times, 1.5),
        "best_peer": "a",
        "ratio": times["a"] / times["einsumx"],
        "floor": 0.5,
        "result_bytes": 8,
        **more,
    }


ROWS = [
    row_of({"einsumx": 1.0, "einsumx (measure)": 0.5, "a": 2.0, "b": 4.0, "hand-written": 0.1}),
    row_of({"einsumx": 2.0, "einsumx (measure)": 1.0, "a": 1.0, "b": 8.0}, {"einsumx": 4.0, "a": 2.0, "b": 1.0}),
    row_of({"einsumx": 1.0, "a": 4.0}, result_bytes=40_000_000),
]


def test_the_best_peer_is_chosen_for_each_problem_and_each_figure(scripts):
    ratios, best = scripts.summary.ratios, scripts.summary.BEST
    assert ratios(ROWS, "einsumx", best) == [2.0, 0.5, 4.0]
    assert ratios(ROWS, "einsumx", best, "after_product") == [0.25]


def test_neither_einsumx_nor_the_hand_written_line_is_a_peer_and_a_peer_counts_where_both_have_a_time(scripts):
    assert scripts.summary.ratios(ROWS, "einsumx (measure)", scripts.summary.BEST) == [4.0, 1.0]
    assert scripts.summary.ratios(ROWS, "einsumx", "hand-written") == [0.1]
    assert scripts.summary.ratios(ROWS, "einsumx", "b") == [4.0, 4.0]


def test_figures_are_geometric_mean_worst_percentiles_and_share(scripts):
    figures = scripts.summary.Figures.of([2.0**power for power in range(-5, 6)])
    assert figures.mean == 1
    assert (figures.worst, figures.low, figures.middle, figures.high) == (2.0**-5, 2.0**-4, 1, 2.0**4)
    assert figures.even == 6 / 11


def test_a_run_has_tables_for_einsumx_and_for_einsumx_that_measures(scripts):
    found = {table.title: table for table in scripts.summary.summaries({"rows": ROWS})}
    names = [f"numpy: the time of the best peer of each problem, over that of {name}" for name in scripts.summary.OURS]
    assert set(names) <= set(found)
    everything = [dict(zip(found[name].columns, found[name].rows[-1])) for name in names]
    assert [row["number"] for row in everything] == ["3", "2"]
    assert [row["geometric mean"] for row in everything] == ["1.59", "2.00"]
    assert [row["≥ 0.97"] for row in everything] == ["67%", "100%"]
    assert [row["large"] for row in everything] == ["1", "1"]


def test_a_problem_counts_for_the_fastest_of_einsumx_and_its_peers(scripts):
    fastest = scripts.summary.fastest(ROWS)
    assert fastest.columns == ("problems", "einsumx", "a", "b")
    assert fastest.rows[-1] == ("all", "2", "1", "")


# -- problems -----------------------------------------------------------------------------------------------------


def test_the_problems_of_the_classes_depend_on_the_seed_alone_and_are_valid(scripts):
    classes = list(scripts.problems.CLASSES)
    first, again, other = [list(scripts.problems.class_problems(seed, 3 * len(classes))) for seed in (1, 1, 2)]
    assert first == again != other
    assert [problem.group for problem in first[: len(classes)]] == classes
    for problem in first:
        program = einsumx.plan(problem.equation, *problem.shapes)
        assert program.shape == problem.shape


# -- LIBXSMM ------------------------------------------------------------------------------------------------------


def test_libxsmm_computes_pairs_of_float32_and_refuses_others(scripts):
    pytest.importorskip("etops")
    import libxsmm

    rng = np.random.default_rng(0)
    first, second = rng.random((4, 5, 6), "float32").transpose(1, 2, 0), rng.random((6, 4, 7), "float32")
    assert np.allclose(libxsmm.einsum("ijk,jkl->li", first, second), np.einsum("ijk,jkl->li", first, second))
    with pytest.raises(ValueError, match="float32"):
        libxsmm.einsum("ij,jk->ik", np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="labels of each kind"):
        libxsmm.einsum("i,j->ij", first[0, 0], first[0, 0])
