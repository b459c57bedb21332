"""Time the calls around a contraction: first calls, calls in every form, and calls with growing sizes.

``first``: contractions that the process has not seen, and the first call of a process. ``forms``: repeated calls on
tiny arrays, in each form that people write. ``growing``: calls whose sizes grow by one each time.

Contenders take turns. Before each turn, the process sleeps until the threads of the contender before no longer spin,
and one call is not measured. Calls that raise or return wrong results have no times. Nothing is asserted about times.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any
from warnings import filterwarnings

import numpy as np
from call_cases import FORMS, GROWING, NETWORKS, PAIRS, Case, drawn, growing
from call_tables import call_tables, page_part
from contenders import FRAMEWORKS, Framework, Function
from measure import SLICE, timed, why_skipped, wrong
from names import EINSUMX
from results import with_part
from show import about, console, print_tables
from summary import Row

import einsumx
from einsumx.measuring.machine import watched
from einsumx.measuring.steady import rest

TURN, WARM_UP, WARM_CALLS = 10, 3, 3
"""New contractions in a turn; others that run before all turns; repeated calls of each."""

LOOP_LIMIT = 1e7
"""A contender that needs more multiply-adds in a loop over all labels takes no part."""

BACKENDS = ("numpy", "torch", "mxnet")
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "calls.md"
LEFT_OUT = "einsumt"  # np.einsum in several threads, which small calls do not need
TAKE_PATHS = (EINSUMX, "np.einsum(optimize)", "opt_einsum", "cotengra")
EXPRESSIONS = {EINSUMX: "expression", "opt_einsum": "contract_expression", "cotengra": "einsum_expression"}
PATCHED = "patched"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: contractions of each kind, new processes, the largest size, rounds of forms."""

    pairs: int
    networks: int
    large_networks: int
    processes: int
    largest: int
    rounds: int
    seed: int = 0


FULL = Scale(pairs=300, networks=40, large_networks=10, processes=15, largest=130, rounds=9)
QUICK = Scale(pairs=40, networks=6, large_networks=2, processes=2, largest=20, rounds=3)


def measured(framework: Framework, group: str, scale: Scale) -> Iterator[Row]:
    """The rows of a group for JSON; times in seconds."""
    framework = replace(framework, peers={name: peer for name, peer in framework.peers.items() if name != LEFT_OUT})
    for row in GROUPS[group](framework, scale):
        yield {"framework": framework.name, "group": group, **row}


def _turns(names: Sequence[str], turn: int) -> Iterator[str]:
    """The names, another one first in each turn. Before each, other threads come to rest; no garbage is collected."""
    for place in range(len(names)):
        gc.collect()
        gc.disable()
        rest()
        yield names[(turn + place) % len(names)]
        gc.enable()


def _waited(framework: Framework, function: Function) -> Function:
    """The function, which returns when its result is complete."""
    if not framework.waits:
        return function

    @wraps(function)
    def waited(*operands: Any, **options: Any) -> Any:
        result = function(*operands, **options)
        framework.adapter.synchronize(result)
        return result

    return waited


# -- first calls and growing sizes ------------------------------------------------------------------------------


def _first(framework: Framework, scale: Scale) -> Iterator[Row]:
    counts = {**dict.fromkeys(PAIRS, scale.pairs), **dict.fromkeys(NETWORKS, scale.networks)}
    counts[list(NETWORKS)[-1]] = scale.large_networks
    for title, draw in {**PAIRS, **NETWORKS}.items():
        if counts[title]:
            yield from _first_calls(framework, title, drawn(draw, scale.seed, counts[title] + WARM_UP))
    if scale.processes:
        yield from _processes(framework, scale.processes)


def _growing(framework: Framework, scale: Scale) -> Iterator[Row]:
    for equation, fixed in GROWING.items():
        yield from _first_calls(framework, equation, list(growing(equation, fixed, range(2, scale.largest + 1))))


def _first_calls(framework: Framework, title: str, cases: Sequence[Case]) -> Iterator[Row]:
    """For each contender, the times of the first and of repeated calls of each case, in the order of the cases."""
    arrays = [framework.arrays(case.problem, case.prepared.operands) for case in cases]
    calls = {
        name: [
            partial(_waited(framework, function), case.problem.equation, *each, **_path_option(name, case))
            for case, each in zip(cases, arrays)
        ]
        for name, function in framework.einsums().items()
        if _fits(name, cases)
    }
    rows: dict[str, Row] = {name: {"problem": title, "contender": name, "first": [], "warm": []} for name in calls}
    for call in [call for each in calls.values() for call in each[:WARM_UP]]:
        _first_and_warm(call)
    for turn, start in enumerate(range(WARM_UP, len(cases), TURN)):
        for name in _turns(list(calls), turn):
            _first_and_warm(calls[name][0])
            taken = [_first_and_warm(call) for call in calls[name][start : start + TURN]]
            for case, (result, first, warm) in zip(cases[start:], taken):
                if result is not None and not wrong(framework.values(result), case.prepared):
                    rows[name]["first"].append(first)
                    rows[name]["warm"].append(warm)
    yield from rows.values()


def _first_and_warm(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result, the time of the first call, and the least of some more; None and zeros if it raises."""
    with suppress(Exception):
        start = perf_counter()
        result = call()
        first = perf_counter() - start
        return result, first, min(timed(call, 1) for _ in range(WARM_CALLS))
    return None, 0.0, 0.0


def _fits(name: str, cases: Sequence[Case]) -> bool:
    """Whether a contender takes the path of the cases; without a path, whether its loops are short enough."""
    if cases[0].path is not None:
        return name in TAKE_PATHS
    # MXNet's einsum takes NumPy's paths, which may have steps of more than two operands.
    return not any(why_skipped(name.removeprefix("mx."), case.problem, LOOP_LIMIT) for case in cases)


def _path_option(name: str, case: Case) -> dict[str, Any]:
    if case.path is None:
        return {}
    return {"optimize": ["einsum_path", *case.path] if name == "np.einsum(optimize)" else case.path}


PROCESS = """
import json, sys
from importlib import import_module
from time import perf_counter
xp, module, attribute, keywords = import_module(sys.argv[1]), *sys.argv[2:4], json.loads(sys.argv[4])
a = xp.ones((4, 4))
times = [perf_counter()]
function = getattr(import_module(module), attribute)
for _ in range(5):
    times.append(perf_counter())
    getattr(function("ij,jk->ik", a, a, **keywords), "wait_to_read", int)()
times.append(perf_counter())
print(json.dumps([end - start for start, end in zip(times, times[1:])]))
"""
"""Prints the seconds of the import, and of five calls."""


def _processes(framework: Framework, count: int) -> Iterator[Row]:
    """The first call in processes that have imported the framework, with and without the import of the library."""
    peers = {EINSUMX: ("einsumx", "einsum", {}), **framework.peers}
    times: dict[str, list[list[float]]] = {name: [] for name in framework.einsums()}
    for turn in range(count + 1):
        for name in _turns(list(times), turn):
            module, attribute, keywords = peers[name]
            arguments = (framework.adapter.xp.__name__, module, attribute, json.dumps(keywords))
            run = subprocess.run([sys.executable, "-I", "-c", PROCESS, *arguments], check=True, stdout=subprocess.PIPE)
            times[name].append(json.loads(run.stdout))
    for title, first in (("new process, with import", 0), ("new process, without import", 1)):
        for name, (_, *processes) in times.items():  # the first process compiles bytecode
            firsts, warm = [sum(each[first:2]) for each in processes], [min(each[2:]) for each in processes]
            yield {"problem": title, "contender": name, "first": firsts, "warm": warm}


# -- forms ------------------------------------------------------------------------------------------------------


def _forms(framework: Framework, scale: Scale) -> Iterator[Row]:
    """Each form on 4×4, as the least times of rounds; each contender runs all forms in its turn."""
    own, *_ = framework.peers
    plain = {name: framework.peers[name] for name in framework.einsums() if name in framework.peers}
    functions = {name: (module, attribute) for name, (module, attribute, keywords) in plain.items() if not keywords}
    functions |= {EINSUMX: ("einsumx", "einsum"), PATCHED: functions[own]}
    matrices = {name: np.random.default_rng(4).random((4, 4), "float32") for name in "abc"}
    times: dict[str, dict[str, list[float]]] = {form: {name: [] for name in functions} for form in FORMS}
    for turn in range(scale.rounds):
        for name in _turns(list(functions), turn):
            module, attribute = functions[name]
            with ExitStack() as stack:
                if name == PATCHED:  # the framework's own einsum while einsumx replaces it in all threads
                    einsumx.patch(framework.backend)
                    stack.callback(einsumx.unpatch, framework.backend)
                function = _waited(framework, getattr(import_module(module), attribute))
                for form in FORMS:
                    arrays = {letter: framework.adapter.from_numpy(m.copy()) for letter, m in matrices.items()}
                    call = _form(form, name, function, arrays)
                    if _is_right(framework, call, form, arrays, matrices):
                        count = max(1, int(SLICE / timed(call, 1)))
                        times[form][name].append(min(timed(call, count) for _ in range(3)))
    for form, rounds in times.items():
        yield {"form": form, "own": own, "rounds": rounds}


def _form(form: str, name: str, function: Function, arrays: dict[str, Any]) -> Callable[[], Any]:
    """The call, without arguments."""
    prefix = ["einsum_path"] if name == "np.einsum" else []
    names = {**arrays, "f": function, "path": (*prefix, (0, 1)), "chain": (*prefix, (0, 1), (0, 1))}
    if name in EXPRESSIONS:
        shapes = (tuple(arrays[letter].shape) for letter in "ab")
        names["e"] = getattr(import_module(name), EXPRESSIONS[name])("ij,jk->ik", *shapes)
    call: Callable[[], Any] = eval(f"lambda: {form}", names)
    return call


def _is_right(
    framework: Framework, call: Callable[[], Any], form: str, arrays: dict[str, Any], matrices: dict[str, Any]
) -> bool:
    """Whether a form returns the same as in NumPy, or writes it to ``c``."""
    text = form.replace("e(", 'f("ij,jk->ik", ')
    copies = {letter: matrix.copy() for letter, matrix in matrices.items()}
    expected = np.asarray(_form(text, "np.einsum", np.einsum, copies)())
    with suppress(Exception):
        result = call()
        (values,) = framework.values(arrays["c"] if "out=c" in form else result)
        right = np.shape(values) == expected.shape and np.allclose(values, expected)
        return right and ("dtype" not in form or values.dtype == expected.dtype)
    return False


# -- the command ------------------------------------------------------------------------------------------------

GROUPS = {"first": _first, "forms": _forms, "growing": _growing}


def main() -> None:
    """Measure, print tables, and write JSON."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--backend", nargs="+", choices=BACKENDS, default=BACKENDS, help="frameworks; all by default")
    add("--group", nargs="+", choices=list(GROUPS), default=list(GROUPS), help="groups; all by default")
    add("--seed", type=int, default=0, help="seed of the random contractions in the group first")
    add("--quick", dest="scale", action="store_const", const=QUICK, default=FULL, help="less than a minute a group")
    add("--json", type=Path, metavar="FILE", help="write all results to this file")
    add("--write", action="store_true", help="write the tables into docs/benchmarks/calls.md")
    options = parser.parse_args()
    scale = replace(options.scale, seed=options.seed)
    installed = einsumx.backends()
    chosen = [each for each in FRAMEWORKS if each.name in options.backend and installed[each.backend]]
    run: dict[str, Any] = {**about(), "calls": []}
    filterwarnings("ignore", module="cotengra")  # it says which keywords keep a call out of its cache
    with watched() as watch:
        for framework in chosen:
            framework.start()
            for group in options.group:
                with console.status(f"{framework.name}  {group}"):
                    rows = list(measured(framework, group, scale))
                print_tables(call_tables({"calls": rows}))
                run["calls"] += rows
    for reason in watch.reasons:
        console.print(f"WARNING: the machine was busy: {reason}", style="bold yellow")
    if options.json:
        options.json.write_text(json.dumps(run) + "\n", encoding="utf-8")
    if options.write:
        PAGE.write_text(with_part(PAGE.read_text(encoding="utf-8"), "calls", page_part(run)), encoding="utf-8")


if __name__ == "__main__":
    main()
