"""Times of functions that do the same, each in its own steady state.

The threads of a BLAS go on spinning for about a tenth of a second after a product. Without a pause, a function whose
threads are not theirs would share the processor with those of the function before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter, sleep

from einsumx.adapters.base import Adapter, Array, Run

__all__ = ["PAUSE", "steady_times"]

PAUSE = 0.12
"""Seconds without work before each turn, so that the threads of the function before it have gone to sleep."""

_SLICE = 2e-4
"""Seconds for which a fast function is repeated between two readings of the clock."""

_CALLS = 3
"""Readings in each turn."""


def steady_times(
    adapter: Adapter,
    runs: Sequence[Run],
    arrays: Sequence[Array],
    rounds: int = 3,
    *,
    far: float = 2.0,
    pause: Callable[[float], object] = sleep,
    clock: Callable[[], float] = perf_counter,
) -> list[list[float]]:
    """Seconds of a call, for each function the least of each turn.

    In each round every function has a turn: a pause, a call that is not timed, and a few that are. The first turn
    moves on from round to round.

    Args:
        adapter: of the arrays.
        runs: the functions.
        arrays: their arguments.
        rounds: how many turns each function has.
        far: a function that takes so many times as long as the fastest one has one turn alone.
        pause: waits for some seconds.
        clock: returns the time in seconds.
    """
    times: list[list[float]] = [[] for _ in runs]
    for number in range(rounds):
        for place in range(len(runs)):
            at = (place + number) % len(runs)
            fastest = min((min(each) for each in times if each), default=0.0)
            if number and times[at][0] > far * fastest:
                continue
            pause(PAUSE)
            times[at].append(_turn(adapter, runs[at], arrays, clock))
    return times


def _turn(adapter: Adapter, run: Run, arrays: Sequence[Array], clock: Callable[[], float]) -> float:
    start = clock()
    adapter.synchronize(run(*arrays))
    repeats = max(1, int(_SLICE / max(clock() - start, 1e-9)))
    least = float("inf")
    for _ in range(_CALLS):
        start = clock()
        for _ in range(repeats):
            result = run(*arrays)
        adapter.synchronize(result)
        least = min(least, (clock() - start) / repeats)
    return least
