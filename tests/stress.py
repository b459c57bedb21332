"""Many threads at once, for a minute: every result is right, nothing waits for ever, and all is put back afterwards.

    python tests/stress.py --seed 1 --seconds 60 --threads 14

Threads do random work in one process: new equations, plans and expressions that they share, semirings, memory limits,
`patched`, `effort`, starts of threads, and cleared caches. Fresh processes make their first calls in all threads at
once. Threads start while others enter and leave `patched`, and all import modules. The seed decides the work of each
thread, but not how threads interleave.
"""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import numpy as np

if __name__ == "__main__":
    # A checkout runs without installation; an installed einsumx comes first.
    sys.path.append(str(Path(__file__).parents[1]))

import einsumx
from einsumx.conformance.kit.oracle import expect
from einsumx.conformance.semiring_oracle import expect_in
from einsumx.imports import imported

STUCK = 120
"""Seconds after which a thread that has not ended counts as one that never will."""

SWITCH = 1e-5
"""Seconds after which another thread has its turn: with the GIL, 5 ms would seldom come at a bad moment."""

OWN_EINSUM, OWN_START = np.einsum, threading.Thread.start


@dataclass
class Problem:
    """A contraction of small integers, which floats compute exactly in any order."""

    equation: str
    arrays: list[Any]

    @classmethod
    def random(cls, random: Random) -> Problem:
        """One of so many equations that most calls are the first."""
        sizes = {label: random.randint(1, 4) for label in "abcdef"}
        terms = [random.choices("abcdef", k=random.randint(0, 3)) for _ in range(random.randint(1, 4))]
        used = sorted(set().union(*terms))
        output = random.sample(used, random.randint(0, len(used)))
        equation = ",".join(map("".join, terms)) + "->" + "".join(output)
        return cls(equation, [integers(random, *(sizes[label] for label in term)) for term in terms])

    @classmethod
    def product(cls, random: Random, least: int, most: int) -> Problem:
        """A product of matrices."""
        rows, inner, columns = (random.randint(least, most) for _ in range(3))
        return cls("ij,jk->ik", [integers(random, rows, inner), integers(random, inner, columns)])

    def expected(self) -> Any:
        """The plain sum."""
        return expect(self.equation, *self.arrays).values.astype("float64")


def integers(random: Random, *shape: int) -> Any:
    """An array of integers from -3 to 3, as floats."""
    return np.random.default_rng(random.getrandbits(32)).integers(-3, 4, shape).astype("float64")


def check(found: Any, expected: Any, what: str) -> None:
    """Raise AssertionError unless the result is exact."""
    if not np.array_equal(found, expected):
        raise AssertionError(f"{what} gave\n{found}\ninstead of\n{expected}")


@dataclass
class Shared:
    """What all threads use: plans, expressions, and the problems that they are of."""

    plans: list[tuple[Any, Problem]] = field(default_factory=list)
    most: int = 50

    def one(self, random: Random) -> tuple[Any, Problem]:
        """A plan or an expression that any thread has made; one in ten is new, and takes the place of another."""
        if len(self.plans) < self.most or random.random() < 0.1:
            problem = Problem.random(random)
            make = random.choice([einsumx.plan, einsumx.expression])
            made = make(problem.equation, *(array.shape for array in problem.arrays))
            if len(self.plans) < self.most:
                self.plans.append((made, problem))
            else:
                self.plans[random.randrange(self.most)] = made, problem
        return random.choice(self.plans)


SHARED = Shared()


# -- what threads do ------------------------------------------------------------------------------------------------


def calls(random: Random) -> None:
    """A first call, a second one, and one with out=."""
    problem = Problem.random(random)
    expected, out = problem.expected(), None
    for _ in range(3):
        out = einsumx.einsum(problem.equation, *problem.arrays, out=out)
        check(out, expected, f"einsum {problem.equation}")
        out = np.full(expected.shape, np.nan)


def keywords(random: Random) -> None:
    """A call with keywords."""
    problem = Problem.random(random)
    options = random.choice([{"dtype": "complex128"}, {"optimize": "greedy"}, {"order": "F"}, {"order": "C"}])
    check(einsumx.einsum(problem.equation, *problem.arrays, **options), problem.expected(), f"einsum with {options}")


def shared_plans(random: Random) -> None:
    """A plan or an expression that several threads call at once."""
    made, problem = SHARED.one(random)
    check(made(*problem.arrays), problem.expected(), f"{type(made).__name__} of {problem.equation}")


def products(random: Random) -> None:
    """A product that the pool of threads computes."""
    problem = Problem.product(random, 150, 300)
    lhs, rhs = problem.arrays
    check(einsumx.einsum(problem.equation, lhs, rhs), lhs @ rhs, "a product")


def semirings(random: Random) -> None:
    """A contraction in a semiring."""
    problem, ring = Problem.random(random), random.choice([einsumx.semirings.max_plus, einsumx.semirings.min_plus])
    expected = expect_in(ring, problem.equation, problem.arrays, "float64").values
    check(ring.einsum(problem.equation, *problem.arrays), expected, f"{ring.name} {problem.equation}")


def exponents(random: Random) -> None:
    """A result as a fraction and an exponent."""
    problem = Problem.random(random)
    fraction, exponent = einsumx.einsum_frexp(problem.equation, *problem.arrays)
    check(np.ldexp(fraction, exponent), problem.expected(), f"einsum_frexp {problem.equation}")


def limits(random: Random) -> None:
    """A product in blocks."""
    problem = Problem.product(random, 40, 60)
    found = einsumx.einsum(problem.equation, *problem.arrays, memory_limit=random.choice([50_000, 70_000, 90_000]))
    check(found, problem.expected(), "a product under a limit")


def cleared(random: Random) -> None:
    """Caches are cleared now and then, and never larger than they may be."""
    for name, info in einsumx.cache_info().items():
        assert info.currsize <= info.maxsize, f"the cache {name} is larger than it may be"
    if random.random() < 0.2:
        einsumx.cache_clear()


def patched(random: Random) -> None:
    """NumPy's einsum in a block is einsumx's, also in a thread that starts there, and afterwards NumPy's."""
    problem = Problem.random(random)
    with einsumx.patched("numpy"):
        check(np.einsum(problem.equation, *problem.arrays), problem.expected(), f"np.einsum {problem.equation}")
        started(random)
    check(np.einsum(problem.equation, *problem.arrays), problem.expected(), f"np.einsum {problem.equation}, later")


def started(random: Random) -> None:
    """A thread starts, and ends."""
    found: list[Any] = []
    problem = Problem.random(random)
    thread = threading.Thread(target=lambda: found.append(np.einsum(problem.equation, *problem.arrays)))
    thread.start()
    thread.join()
    check(found[0], problem.expected(), f"np.einsum {problem.equation} in a thread")


def efforts(random: Random) -> None:
    """An effort is that of its block, and a pool whose thread has started in the block is not left with it."""
    problem = Problem.product(random, 2, 9)
    with ThreadPoolExecutor(1) as pool:
        with einsumx.effort("measure"):
            assert einsumx.get_effort() == "measure"
            check(einsumx.einsum(problem.equation, *problem.arrays), problem.expected(), "a measured product")
            pool.submit(int).result()
        for effort in (einsumx.get_effort(), pool.submit(einsumx.get_effort).result()):
            assert effort == "estimate", f"after the block the effort is {effort!r}"


WORK: dict[Callable[[Random], None], int] = {
    calls: 30, keywords: 10, shared_plans: 20, products: 2, semirings: 10, exponents: 5, limits: 5, cleared: 5,
    patched: 5, started: 5, efforts: 1,
}  # fmt: skip
"""What threads do, and how often."""


# -- threads --------------------------------------------------------------------------------------------------------


def run(work: Callable[[int], None], threads: int, seconds: float) -> None:
    """Call ``work`` with the number of each thread, in threads that start together, until all have ended."""
    meeting = threading.Barrier(threads)

    def met(number: int) -> None:
        meeting.wait()
        work(number)

    faulthandler.dump_traceback_later(seconds + STUCK, exit=True)
    pool = [threading.Thread(target=met, args=(number,)) for number in range(threads)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    faulthandler.cancel_dump_traceback_later()


def left_behind() -> list[str]:
    """What is not as it was before; nothing, if all is well."""
    return [
        sentence
        for is_wrong, sentence in (
            (not gc.isenabled(), "the garbage collector is off"),
            (np.einsum is not OWN_EINSUM, "np.einsum is still replaced"),
            (threading.Thread.start is not OWN_START, "Thread.start is still replaced"),
            (einsumx.get_effort() != "estimate", "the effort is not the usual one"),
        )
        if is_wrong
    ]


def random_work(seed: int, threads: int, seconds: float) -> tuple[int, list[str]]:
    """Threads do random work until the time is over; how much they did, and what was wrong."""
    done, wrong, end = [0] * threads, [], monotonic() + seconds

    def work(number: int) -> None:
        random = Random(f"{seed} {number}")
        while monotonic() < end:
            (kind,) = random.choices([*WORK], [*WORK.values()])
            wrong.extend(fault(kind, random))
            done[number] += 1

    run(work, threads, seconds)
    return sum(done), wrong + left_behind()


def first_calls(seed: int, threads: int) -> list[str]:
    """Each thread does one kind of work, which no thread has done before, all at once; what was wrong."""
    wrong: list[str] = []

    def work(number: int) -> None:
        wrong.extend(fault([*WORK][(seed + number) % len(WORK)], Random(f"{seed} {number}")))

    run(work, threads, 0)
    return wrong + left_behind()


def fault(kind: Callable[..., None], *arguments: object) -> list[str]:
    """What is wrong with one piece of work; nothing, if all is well."""
    try:
        kind(*arguments)
    except Exception:  # noqa: BLE001  # whatever it is, it is reported, and the others go on
        return [f"{kind.__name__}: {traceback.format_exc()}"]
    return []


def fresh_processes(seed: int, threads: int, seconds: float) -> tuple[int, list[str]]:
    """Processes with `first_calls`, one after another until the time is over; how many, and what was wrong."""
    end, number, wrong = monotonic() + seconds, 0, []
    while monotonic() < end:
        command = (sys.executable, __file__, "--first-calls", f"--seed={seed + number}", f"--threads={threads}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * STUCK, check=False)
        if done.returncode or done.stderr:
            wrong.append(f"a fresh process: seed {seed + number}\n{done.stdout}{done.stderr}")
        number += 1
    return number, wrong


def starts(seed: int, threads: int, seconds: float) -> tuple[int, list[str]]:
    """Two threads enter and leave `patched`, the others start threads; how many, and what was wrong."""
    ran, wrong, end = [], [], monotonic() + seconds

    def enter_and_leave() -> None:
        with einsumx.patched("numpy"):
            pass

    def start() -> None:
        thread = threading.Thread(target=ran.append, args=(True,))
        thread.start()
        thread.join()

    def work(number: int) -> None:
        while monotonic() < end:
            wrong.extend(fault(enter_and_leave if number < 2 else start))

    run(work, threads, seconds)
    return len(ran), wrong + left_behind()


def imports(seed: int, threads: int, seconds: float) -> tuple[int, list[str]]:
    """Each thread imports an empty module again and again; how often all did, and what was wrong."""
    rounds, wrong, end = 0, [], monotonic() + seconds

    def import_again(name: str) -> None:
        for _ in range(20):
            sys.modules.pop(name, None)
            imported(name)

    def work(number: int) -> None:
        wrong.extend(fault(import_again, f"empty{number}"))

    with tempfile.TemporaryDirectory() as folder:
        for number in range(threads):
            Path(folder, f"empty{number}.py").touch()
        sys.path.append(folder)
        while monotonic() < end:
            run(work, threads, seconds)
            wrong += left_behind()
            gc.enable()
            rounds += 1
        sys.path.remove(folder)
    return rounds, wrong


SCENES = (
    (fresh_processes, 0.4, "fresh processes"),
    (random_work, 0.4, "pieces of work"),
    (starts, 0.1, "starts beside `patched`"),
    (imports, 0.1, "rounds of imports"),
)
"""What is run, for which share of the time, and what is counted."""


def main(arguments: list[str] | None = None) -> int:
    """The command: 0 if all was well, 1 otherwise."""
    parser = argparse.ArgumentParser(description="Many threads at once.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=14)
    parser.add_argument("--first-calls", action="store_true", help="only the first calls of one process")
    options = parser.parse_args(arguments)
    sys.setswitchinterval(SWITCH)
    if options.first_calls:
        wrong = first_calls(options.seed, options.threads)
        print(*wrong, sep="\n")
        return bool(wrong)
    counts, wrong = [], []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EINSUMX_CACHE"] = folder  # measured plans stay here
        for scene, share, what in SCENES:
            count, more = scene(options.seed, options.threads, share * options.seconds)
            counts.append(f"{count} {what}")
            wrong += more
    for kind, count in Counter(sentence.partition(":")[0] for sentence in wrong).items():
        print(f"{count} times", next(sentence for sentence in wrong if sentence.startswith(kind)))
    gil = "with" if getattr(sys, "_is_gil_enabled", lambda: True)() else "without"
    print(f"Python {sys.version.split()[0]} {gil} the GIL, seed {options.seed}, {options.threads} threads:")
    print(f"{', '.join(counts)}; {len(wrong)} faults")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
