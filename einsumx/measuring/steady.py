"""Times of functions, each in its own steady state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter, process_time, sleep

from einsumx.adapters.base import Adapter, Array, Run

__all__ = ["rest", "steady_times", "turn"]

_REST, _GLANCE = 0.12, 0.01
"""Seconds after which no thread of a BLAS library spins any more, and between two looks whether one does."""

_SPINS = 0.1
"""The share of a core that a process uses if one of its threads spins."""

_SECONDS, _LEAST, _MOST = 0.02, 3, 500
"""How long, and how often at least and at most, a function is called in a turn."""


def rest() -> None:
    """Sleep until no thread of this process computes or spins.

    The threads of BLAS libraries spin for about 0.1 s after a product, and slow down what follows.
    """
    end = perf_counter() + _REST
    while perf_counter() < end:
        start, before = perf_counter(), process_time()
        sleep(_GLANCE)
        if process_time() - before < _SPINS * (perf_counter() - start):
            return


def turn(
    call: Callable[[], object],
    seconds: float,
    *,
    least: int = 1,
    most: int = 5000,
    clock: Callable[[], float] = perf_counter,
) -> float:
    """The least time of a call in a steady state of its own.

    It begins with a rest, and with a call that does not count.

    Args:
        call: the call; it returns when the work is done.
        seconds: how long to repeat the call.
        least, most: the smallest and the largest number of repeats.
        clock: returns the time in seconds.
    """
    rest()
    call()
    times: list[float] = []
    end = clock() + seconds
    while len(times) < least or (clock() < end and len(times) < most):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


_turn = partial(turn, seconds=_SECONDS, least=_LEAST, most=_MOST)


def steady_times(
    adapter: Adapter,
    runs: Sequence[Run],
    arrays: Sequence[Array],
    rounds: int = 3,
    *,
    far: float = 2.0,
    take_turn: Callable[[Callable[[], object]], float] = _turn,
) -> list[list[float]]:
    """Seconds of a call: for each function, the least of each of its turns.

    In each round every function has a turn. Another one is the first in the next round.

    Args:
        adapter: of the arrays.
        runs: the functions.
        arrays: their arguments.
        rounds: how many turns each function has.
        far: a function that takes so many times as long as the fastest one has no further turn.
        take_turn: the least time of a call in a turn; see :func:`turn`.
    """
    times: list[list[float]] = [[] for _ in runs]
    for number in range(rounds):
        fastest = min((min(each) for each in times if each), default=0.0)
        for place in range(len(runs)):
            at = (place + number) % len(runs)
            if not number or times[at][0] <= far * fastest:
                times[at].append(take_turn(partial(_completed, adapter, runs[at], arrays)))
    return times


def _completed(adapter: Adapter, run: Run, arrays: Sequence[Array]) -> None:
    adapter.synchronize(run(*arrays))
