"""The time to the answer of a network, path and contraction, in a process that is new for each: ``--help``.

Each contender searches as it does by default, or as its longer search does. One small call comes before, so that what
is timed is neither an import nor the start of a library's threads. Results are checked against each other.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from math import exp, log
from pathlib import Path
from statistics import fmean
from time import perf_counter, sleep
from typing import Any

import numpy as np
from networks import KINDS, Network, drawn_network
from show import console

CONTENDERS = ("einsumx", "opt_einsum auto", "opt_einsum auto-hq", "cotengra auto", "cotengra auto-hq")
SCALES = ("small", "middle", "large")
LIMIT = 60
"""Seconds after which a process is stopped."""


def main() -> None:
    """Time all contenders, and print a table."""
    parser = ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, nargs="+", default=[0], help="one network of each kind and size for each seed")
    add("--kind", nargs="+", choices=list(KINDS), default=list(KINDS))
    add("--scale", nargs="+", choices=SCALES, default=list(SCALES))
    add("--rounds", type=int, default=3, help="processes for each; the least time counts")
    add("--contender", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    add("--json", type=Path, metavar="FILE", help="write all times to this file")
    add("--one", nargs=4, metavar=("CONTENDER", "KIND", "SCALE", "SEED"), help="time one in this process")
    options = parser.parse_args()
    if options.one:
        contender, kind, scale, seed = options.one
        sys.stdout.write(json.dumps(_timed(contender, drawn_network(kind, int(scale), int(seed)))))
        return
    console.print(
        "kind, size, tensors, best other over einsumx; seconds of the first call in a process, and of the second\n"
    )
    rows = []
    for kind in options.kind:
        for scale in map(SCALES.index, options.scale):
            for seed in options.seed:
                row = _row(options.contender, kind, scale, seed, options.rounds)
                rows.append(row)
                console.print(_line(row, options.contender))
    _summary(rows, options.contender)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _function(contender: str) -> Callable[..., Any]:
    library, _, search = contender.partition(" ")
    if library == "einsumx":
        import einsumx

        return einsumx.einsum
    if library == "opt_einsum":
        import opt_einsum

        return lambda *arguments: opt_einsum.contract(*arguments, optimize=search)
    import cotengra

    return lambda *arguments: cotengra.einsum(*arguments, optimize=search)


def _timed(contender: str, network: Network) -> dict[str, Any]:
    """The seconds of the first and of the second call, and the sum of the result's elements."""
    einsum = _function(contender)
    small = np.ones((3, 3))
    einsum(small, [0, 1], small, [1, 2], [0, 2])
    arguments = network.sublists()
    times = []
    for _ in range(2):
        sleep(0.12)  # threads of BLAS spin for a while
        start = perf_counter()
        result = einsum(*arguments)
        times.append(perf_counter() - start)
    return {"seconds": times, "sum": float(np.sum(result))}


def _row(contenders: Sequence[str], kind: str, scale: int, seed: int, rounds: int) -> dict[str, Any]:
    times: dict[str, list[float]] = {}
    sums: dict[str, float] = {}
    for _ in range(rounds):
        for contender in contenders:
            command = (sys.executable, __file__, "--one", contender, kind, str(scale), str(seed))
            try:
                run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
                continue
            found = json.loads(run.stdout)
            known = times.setdefault(contender, found["seconds"])
            times[contender] = list(map(min, known, found["seconds"]))
            sums[contender] = found["sum"]
    agreed = sorted(sums.values())[len(sums) // 2]
    wrong = [each for each, total in sums.items() if abs(total - agreed) > 1e-6 * abs(agreed)]
    return {"kind": kind, "scale": SCALES[scale], "seed": seed, "times": times, "wrong": wrong,
            "terms": len(drawn_network(kind, scale, seed).inputs)}  # fmt: skip


def _line(row: dict[str, Any], contenders: Sequence[str]) -> str:
    cells = [
        f"{each} {' '.join(f'{seconds:.4f}' for seconds in row['times'].get(each, ())) or 'no answer'}"
        for each in contenders
    ]
    return f"{row['kind']:18} {row['scale']:7} {row['terms']:4}   {_ratio(row):6.2f}   {' | '.join(cells)}"


def _ratio(row: dict[str, Any]) -> float:
    times = row["times"]
    others = [seconds[0] for each, seconds in times.items() if each != "einsumx"]
    if "einsumx" not in times:
        return 0.001
    return float(min(others, default=LIMIT) / times["einsumx"][0])


def _summary(rows: Sequence[dict[str, Any]], contenders: Sequence[str]) -> None:
    ratios = [_ratio(row) for row in rows]
    console.print(
        f"\nbest other over einsumx: geometric mean {exp(fmean(map(log, ratios))):.2f}, worst {min(ratios):.2f}, "
        f"{sum(ratio >= 0.8 for ratio in ratios)} of {len(ratios)} at or above 0.8"
    )
    for other in contenders[1:]:
        each = [row["times"] for row in rows if other in row["times"] and "einsumx" in row["times"]]
        first, second = (
            exp(fmean([log(times[other][call] / times["einsumx"][call]) for times in each])) for call in (0, 1)
        )
        console.print(
            f"{other} over einsumx: first call {first:.2f}, second {second:.2f}; no answer {len(rows) - len(each)}"
        )
    for row in rows:
        if row["wrong"]:
            console.print("another result:", row["kind"], row["scale"], row["seed"], row["wrong"])


if __name__ == "__main__":
    main()
