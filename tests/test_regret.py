"""Regret: what ``benchmarks/regret.py`` counts, and that ``benchmarks/fit.py`` finds the rates that made the times."""

import json
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

import pytest
from contractions import contraction

from einsumx.adapters.registry import get_backend
from einsumx.ir import cost_model
from einsumx.ir.cost import program_seconds
from einsumx.ir.operand import Operand
from einsumx.planner.candidates import candidates

PROBLEMS = {
    "bind,bjnd->bnij": ((4, 30, 3, 40), (4, 20, 3, 40)),
    "abc,cbd->da": ((40, 50, 60), (60, 50, 70)),
    "ij,jk,kl->il": ((50, 400), (400, 60), (60, 300)),
    "kdc,dkc->kd": ((30, 40, 50), (40, 30, 50)),
}


@pytest.fixture
def scripts(monkeypatch):
    """The modules of the benchmarks."""
    pytest.importorskip("rich")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return import_module("regret"), import_module("fit")


@pytest.fixture
def constants(scripts, monkeypatch):
    """Restores the constants of the cost model."""
    for name in scripts[1].CONSTANTS:
        monkeypatch.setattr(cost_model, name, getattr(cost_model, name))


def row(chosen, best):
    return {"again": [chosen, best]}


def test_the_regret_is_the_time_of_the_choice_over_that_of_the_best(scripts):
    regret, _ = scripts
    assert regret.regrets([row(3.0, 2.0), row(2.0, 3.0), row(1.02, 1.0)]) == [1.5, 1.0, 1.0]


@pytest.mark.long
def test_a_fit_finds_the_rates_that_made_the_times(scripts, constants, tmp_path):
    _, fit = scripts
    adapter = get_backend("numpy")
    declared = adapter.traits("cpu")
    real = replace(declared, rates=replace(declared.rates, gemm=declared.rates.gemm / 2, permute=2e10))
    rows = []
    for equation, shapes in PROBLEMS.items():
        operands = [Operand(shape, "float32") for shape in shapes]
        tried = candidates(contraction(equation, operands, declared, "numpy"))
        rows.append(
            {
                "framework": "numpy",
                "equation": equation,
                "operands": [asdict(operand) for operand in operands],
                "candidates": [
                    {
                        "path": selection.path,
                        "steps": selection.steps,
                        "seconds": program_seconds(program, real),
                    }
                    for selection, program in tried.items()
                ],
            }
        )
    file = tmp_path / "times.json"
    file.write_text(json.dumps({"rows": rows}))
    read = fit.read(file, "numpy")
    start = {name: getattr(declared.rates, name) for name in fit.RATES}
    start.update((name, float(getattr(cost_model, name))) for name in fit.CONSTANTS)
    end = fit.fitted(read, start)
    before, after = (abs(read.logs(values)).mean() for values in (start, end))
    assert after < before / 4
    assert end["gemm"] == pytest.approx(real.rates.gemm, rel=0.2)
