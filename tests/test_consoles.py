"""What consoles and editors show: a line for each public object; IPython shows plans and tables as they print."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import einsumx
from einsumx import MemoryLimit
from einsumx.ir.parse import symbol
from einsumx.ir.text import duration, in_columns, quantity
from einsumx.tuning import Tried, Tuning

PLAN = einsumx.plan("ij,jk->ik", (20, 30), (30, 40), dtypes="float32")
BLOCKED = einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True)
NETWORK = einsumx.plan("ab,bc,cd,de,ef,fg,gh,hi,ij->aj", *[(3, 3)] * 9)
TRIED = Tried(PLAN, 12e-6, 10e-6), Tried(PLAN, 14e-6, 8e-6)
TUNING = Tuning(TRIED, 1, True, ())

LINES = [
    (
        PLAN,
        (
            "<einsumx plan ij,jk->ik: (20,30) (30,40) float32 on numpy, path (0,1), 1 op, 24 k multiply-adds, "
            "0 B copied, peak 10.4 kB>"
        ),
    ),
    (
        einsumx.semirings.max_plus.plan("i,i->", (3,), (3,)),
        "<einsumx plan i,i->: (3) (3) float64 on numpy in max-plus (maximum, add), path (0,1), ...>",
    ),
    (
        einsumx.plan("ij->i", (None, 3)),
        "<einsumx plan ij->i: (i,3) float64 on numpy, path (0), 1 op ...; figures are for i = 256>",
    ),
    (
        NETWORK,
        "<einsumx plan ab,bc,cd,de,ef,fg,gh,hi,ij->aj: 9 operands float64 on numpy, path of 8 steps, 8 ops, ...>",
    ),
    (
        BLOCKED,
        (
            "<einsumx plan ij,jk->ik in blocks: (900,800) (800,900) float64, i into 4, k into 7; 28.8 MB to read, "
            "peak 8.98 MB of 9 MB, on numpy>"
        ),
    ),
    (
        PLAN.draw(),
        "<einsumx drawing of ij,jk->ik  (20,30) (30,40)  float32 on numpy; save('plan.svg') writes it>",
    ),
    (
        TUNING,
        "<einsumx tuning of ij,jk->ik: 2 plans, fastest 0*1, 1.25 times as fast as the estimate's choice, remembered>",
    ),
    (TRIED[0], "<einsumx candidate 0*1: 10.0 µs measured, 12.0 µs estimated>"),
    (einsumx.expression("ij,jk->ik", (2, 3), np.eye(3)), "<einsumx expression ij,jk->ik  (2, 3), [(3, 3)]>"),
    (einsumx.Operand((2, 3), "float32"), "Operand(shape=(2, 3), dtype='float32')"),
    (einsumx.Traits(max_batch_axes=2), "Traits(max_batch_axes=2, rates=Rates())"),
    (PLAN.ops[0], "Matmul(out=2, lhs=0, rhs=1)"),
    (PLAN.algebra, "<einsumx algebra of plus and times>"),
    (einsumx.semirings.max_plus, "Semiring(name='max-plus', add='maximum', multiply='add')"),
    (MemoryLimit("8GiB"), "MemoryLimit('8GiB')"),
    (MemoryLimit(0.5, device="cpu", resume="x"), "MemoryLimit(0.5, device='cpu', resume='x')"),
]


@pytest.mark.parametrize(("value", "line"), LINES, ids=[line.split(":")[0] for _, line in LINES])
def test_consoles_show_a_line_that_says_what_it_is(value: Any, line: str) -> None:
    first, _, last = line.partition("...")
    assert repr(value).startswith(first)
    assert repr(value).endswith(last)
    assert len(repr(value)) < 220
    assert repr(value).isprintable()


def test_plans_of_dask_arrays_show_as_a_line() -> None:
    da = pytest.importorskip("dask.array")
    plan = einsumx.plan("ij,jk->ik", *[da.ones((90, 90), chunks=30)] * 2)
    assert repr(plan) == (
        "<einsumx plan ij,jk->ik of Dask arrays: (90,90) (90,90) float64, 9 tasks, at most 324 kB moved, "
        "largest chunk 7.2 kB>"
    )


class Printer:
    """IPython's, as far as objects ask it."""

    def __init__(self, depth: int) -> None:
        self.stack, self.texts = [0] * depth, list[str]()

    def text(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.parametrize("value", [PLAN, BLOCKED, TUNING], ids=["plan", "blocked plan", "tuning"])
def test_ipython_shows_what_prints_and_a_line_inside_other_objects(value: Any) -> None:
    alone, inside = Printer(1), Printer(2)
    value._repr_pretty_(alone, False)
    value._repr_pretty_(inside, False)
    assert (alone.texts, inside.texts) == ([str(value)], [repr(value)])


def test_ipython_itself_does_so() -> None:
    pretty = pytest.importorskip("IPython.lib.pretty").pretty
    assert pretty(PLAN) == str(PLAN)
    assert pretty([PLAN]) == f"[{PLAN!r}]"
    assert pretty(TUNING) == str(TUNING)
    assert pretty(PLAN.draw()) == repr(PLAN.draw())


def test_notebooks_show_plans_and_drawings_as_pictures_and_tunings_as_text() -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    shown = formatters.DisplayFormatter(active_types=["text/plain", "text/html", "image/svg+xml"])
    for value, kinds in [
        (PLAN, {"text/plain", "text/html"}),
        (BLOCKED, {"text/plain", "text/html"}),
        (PLAN.draw(), {"text/plain", "text/html", "image/svg+xml"}),
        (TUNING, {"text/plain"}),
    ]:
        data, _ = shown.format(value)
        assert data.keys() == kinds
        assert "<svg" in data.get("text/html", "<svg")


def test_a_plan_of_many_operands_has_a_short_header_and_lines_for_a_console() -> None:
    names = [symbol(number) for number in range(101)]
    equation = ",".join(one + other for one, other in pairwise(names)) + f"->{names[0]}{names[-1]}"
    plan = einsumx.plan(equation, *[(3, 3)] * 100)
    header, *lines = str(plan).splitlines()
    assert header.endswith("  100 operands  float64 on numpy")
    assert len(header) < 250
    assert len(lines) >= 99
    assert max(map(len, lines)) <= 80
    assert plan.draw().timeline.title == header


def test_a_long_call_moves_only_its_own_remark() -> None:
    lines = [("short", "a"), ("longer", "b"), ("x" * 60, "c")]
    assert in_columns(lines, "").split("\n") == ["short   a", "longer  b", "x" * 60 + "  c"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 ns"),
        (3.2e-8, "32.0 ns"),
        (9.996e-7, "1.00 µs"),
        (0.0042, "4.20 ms"),
        (0.9996, "1.00 s"),
        (75.3, "75.3 s"),
        (99.96, "1 min 40 s"),
        (3599.6, "1 h"),
        (6500.0, "1 h 48 min"),
        (172_800.0, "2 days"),
        (1e12, "11.6 M days"),
        (float("inf"), "inf days"),
    ],
)
def test_times_are_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1 kB"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
        (10**27, "1 RB"),
        (10**30, "1 QB"),
        (2 * 10**33, "2e+33 B"),
    ],
)
def test_amounts_have_three_digits_and_the_largest_prefix_that_fits(number: float, text: str) -> None:
    assert quantity(number, "B") == text
