"""The source of plans is laid out as ruff does it, and ruff has nothing against it."""

import random
import shutil
import subprocess

import pytest

import einsumx
from einsumx.adapters.registry import BUILTIN
from einsumx.ir.parse import symbol

RUFF = shutil.which("ruff")

pytestmark = pytest.mark.skipif(RUFF is None, reason="ruff is not installed: pip install ruff")

RULES = "E,F,W,I,B,C4,RET,SIM,PIE,UP"


def random_problem(chance):
    """An equation with diagonals, sums and hyperedges, and shapes for it."""
    labels = "abcdefgh"[: chance.randint(1, 8)]
    sizes = {label: chance.choice([0, 1, 2, 7, 30]) for label in labels}
    terms = ["".join(chance.choices(labels, k=chance.randint(0, 5))) for _ in range(chance.randint(1, 5))]
    used = sorted(set("".join(terms)))
    equation = f"{','.join(terms)}->{''.join(chance.sample(used, chance.randint(0, len(used))))}"
    return equation, [tuple(sizes[label] for label in term) for term in terms]


def chain(count):
    """A product of so many matrices."""
    terms = [symbol(number) + symbol(number + 1) for number in range(count)]
    return f"{','.join(terms)}->{symbol(0)}{symbol(count)}", [(2, 2)] * count


def problems():
    chance = random.Random(0)
    yield from (random_problem(chance) for _ in range(20))
    yield from map(chain, (20, 25, 26, 60))
    every = "".join(map(symbol, range(31)))
    yield f"{every}->{every[::-1]}", [(1,) * 31]
    yield f"{every},{every}->{every[::-1]}", [(2,) * 31] * 2
    yield f"{every}{every[0]},{every}->{every[::-1]}", [(2,) * 32, (2,) * 31]


OTHERWISE = {
    "mxnet": "the transposes that reverse more than thirty axes stay in one line",
    "paddle": "lists of more than thirty axes stay in one line",
}
"""The backends whose source ruff would lay out otherwise, and where."""


def backends():
    for name in BUILTIN:
        marks = [pytest.mark.xfail(reason=OTHERWISE[name])] if name in OTHERWISE else []
        yield pytest.param(name, marks=marks)


@pytest.mark.long
@pytest.mark.parametrize("backend", list(backends()))
def test_ruff_would_leave_the_source_as_it_is(backend, tmp_path):
    for number, (equation, shapes) in enumerate(problems()):
        for dtype in ("float32", "bool", "float16" if backend != "array_api" else "int8"):
            plan = einsumx.plan(equation, *shapes, dtypes=dtype, optimize="greedy", backend=backend)
            source = plan.source(name="a_contraction_with_a_name_that_takes_some_room")
            (tmp_path / f"{number}_{dtype}.py").write_text(source, encoding="utf-8")
    count = len(list(tmp_path.iterdir()))
    # The temporary folder may be in .nox, of which ruff reads nothing by default.
    everything = ("--no-respect-gitignore", "--exclude", "nothing")
    settings = ("--isolated", "--no-cache", "--line-length", "100", *everything)
    laid_out = subprocess.run(
        [RUFF, "format", *settings, "--diff", tmp_path], check=False, capture_output=True, text=True
    )
    assert (laid_out.returncode, laid_out.stdout) == (0, "")
    assert f"{count} files already formatted" in laid_out.stderr
    checked = subprocess.run(
        [RUFF, "check", *settings, "--select", RULES, tmp_path], check=False, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout
