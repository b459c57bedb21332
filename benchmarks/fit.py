"""Fit the rates and constants of the cost model to the times of candidates: ``python benchmarks/fit.py FILE.json ...``.

The times are those of ``benchmarks/regret.py``. The fit minimizes the squares of the logarithms of estimated over
measured times, over all candidates, by the method of Gauss and Newton with damping. It prints old and new values, and
the regret that each would have had.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
from regret import SHORT
from summary import geometric_mean

from einsumx.adapters.registry import get_backend
from einsumx.ir import cost_model
from einsumx.ir.contraction import Contraction, Place
from einsumx.ir.cost import program_seconds
from einsumx.ir.operand import Operand
from einsumx.ir.program import Program
from einsumx.ir.traits import Traits
from einsumx.planner.candidates import selected_program
from einsumx.planner.path import find_path
from einsumx.planner.selection import Selection
from einsumx.runtime.equations import sized_equation

RATES = ("call", "view", "matrix", "gemm", "stream", "copy", "permute", "run", "native", "sweep")
CONSTANTS = ("_LEAST_SIDE", "_START", "_FILL")
"""Numbers in ``einsumx.ir.cost_model`` that are fitted with the rates."""

STEPS, DAMPING, STEP = 12, 1.0, 1e-3
"""Steps of the fit, how much each parameter is held where it is, and the difference for derivatives."""


@dataclass(frozen=True)
class Fit:
    """The programs of all candidates with their measured times, and the traits whose rates are fitted."""

    traits: Traits
    programs: list[list[Program]]
    seconds: list[list[float]]

    def logs(self, values: dict[str, float]) -> Any:
        """The logarithm of estimated over measured time for each candidate."""
        traits = self._with(values)
        return np.array(
            [
                log(program_seconds(program, traits) / measured)
                for programs, times in zip(self.programs, self.seconds)
                for program, measured in zip(programs, times)
            ]
        )

    def regret(self, values: dict[str, float]) -> list[float]:
        """For each problem, the time of the candidate with the least estimate over the least time."""
        traits = self._with(values)
        ratios = []
        for programs, times in zip(self.programs, self.seconds):
            estimates = [program_seconds(program, traits) for program in programs]
            ratios.append(times[estimates.index(min(estimates))] / min(times))
        return ratios

    def _with(self, values: dict[str, float]) -> Traits:
        for name in CONSTANTS:
            setattr(cost_model, name, values[name])
        rates: dict[str, Any] = {name: values[name] for name in RATES}
        return replace(self.traits, rates=replace(self.traits.rates, **rates))


def read(path: Path, framework: str) -> Fit:
    """The candidates of a framework in a file of ``regret.py``."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    rows = [row for row in rows if row["framework"] == framework and row["candidates"][0]["seconds"] > SHORT]
    adapter = get_backend(framework)
    traits = adapter.traits("cpu")
    programs = []
    for row in rows:
        operands = [_operand(each) for each in row["operands"]]
        sized = sized_equation(row["equation"], [operand.shape for operand in operands])
        place, dtype = Place(framework, "", traits), operands[0].dtype
        contraction = Contraction(sized, tuple(operands), dtype, find_path(sized, "auto", operands), place)
        programs.append([selected_program(contraction, _selection(each)) for each in row["candidates"]])
    return Fit(traits, programs, [[each["seconds"] for each in row["candidates"]] for row in rows])


def _operand(data: dict[str, Any]) -> Operand:
    strides = data["strides"]
    return Operand(tuple(data["shape"]), data["dtype"], None if strides is None else tuple(strides))


def _selection(data: dict[str, Any]) -> Selection:
    path = data["path"]
    return Selection(None if path is None else tuple(map(tuple, path)), tuple(data["steps"]))


def fitted(fit: Fit, values: dict[str, float]) -> dict[str, float]:
    """The values that minimize the squares, from a start; values of 0 stay."""
    names = [name for name, value in values.items() if value]
    values = dict(values)
    for _ in range(STEPS):
        before = fit.logs(values)
        columns = [(fit.logs({**values, name: values[name] * exp(STEP)}) - before) / STEP for name in names]
        jacobian = np.stack(columns, 1)
        damping = DAMPING * np.eye(len(names))
        step = np.linalg.solve(jacobian.T @ jacobian + damping, -jacobian.T @ before)
        for name, change in zip(names, np.clip(step, -0.3, 0.3)):
            values[name] *= exp(change)
    return values


def _summary(title: str, logs: Any, values: Sequence[float]) -> str:
    within = sum(value <= 1.25 for value in values) / len(values)
    error = exp(float(np.sqrt(np.mean(logs**2))))
    return f"{title}: regret {geometric_mean(values):.3f}, {within:.0%} within 1.25, error of a factor {error:.2f}"


def main() -> None:
    """Fit and print."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="of regret.py: the first is fitted to")
    parser.add_argument("--backend", default="numpy", help="the framework (default: numpy)")
    options = parser.parse_args()
    fits = [read(path, options.backend) for path in options.files]
    start = {name: getattr(fits[0].traits.rates, name) for name in RATES}
    start.update((name, float(getattr(cost_model, name))) for name in CONSTANTS)
    end = fitted(fits[0], start)
    for path, fit in zip(options.files, fits):
        print(_summary(f"{path.name}, before", fit.logs(start), fit.regret(start)))  # noqa: T201
        print(_summary(f"{path.name}, after", fit.logs(end), fit.regret(end)))  # noqa: T201
    for name, value in end.items():
        print(f"{name:>14} {start[name]:10.3g} {value:10.3g}")  # noqa: T201


if __name__ == "__main__":
    main()
