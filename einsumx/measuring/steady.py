"""Times of functions, each in its own steady state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import get_clock_info, perf_counter, process_time, sleep

from einsumx.adapters.base import Adapter, Array, Run

_REST, _GLANCE, _LONG_GLANCE = 0.12, 0.01, 0.05
"""Seconds after which no thread of a BLAS library spins any more, and between two looks whether one does: long ones on
Windows, whose clock of processor time ticks every 15.6 ms, whatever resolution Python tells."""

_SPINS = 0.1
"""The share of a core that a process uses if one of its threads spins."""

_SECONDS, _LEAST, _MOST = 0.02, 3, 500
"""How long, and how often at least and at most, a function is called in a turn."""

_FAR = 2.0
"""A function that takes so many times as long as the fastest one has no further turn."""


def rest() -> None:
    """Sleep until no thread of this process computes or spins.

    The threads of BLAS libraries spin for about 0.1 s after a product, and slow down what follows.
    """
    is_coarse = get_clock_info("process_time").implementation == "GetProcessTimes()"
    end = perf_counter() + _REST
    while perf_counter() < end:
        start, before = perf_counter(), process_time()
        sleep(_LONG_GLANCE if is_coarse else _GLANCE)
        if process_time() - before < _SPINS * (perf_counter() - start):
            return


def turn(call: Callable[[], object], seconds: float, *, least: int = 1, most: int = 5000) -> float:
    """The least time of a call in a steady state of its own.

    It begins with a rest, and with a call that does not count.

    Args:
        call: the call; it returns when the work is done.
        seconds: how long to repeat the call.
        least, most: the smallest and the largest number of repeats.
    """
    rest()
    call()
    times: list[float] = []
    end = perf_counter() + seconds
    while len(times) < least or (perf_counter() < end and len(times) < most):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def timed(adapter: Adapter, run: Run, arrays: Sequence[Array], seconds: float, most: int) -> tuple[float, Array]:
    """The least time of a call of a framework until its result is complete, and the result.

    Args:
        adapter: of the arrays.
        run: the function.
        arrays: its arguments.
        seconds: how long to repeat the call.
        most: the largest number of repeats; the least is 3.
    """
    call = partial(_completed, adapter, run, arrays)
    result = call()  # it compiles, and touches memory for the first time
    return turn(call, seconds, least=_LEAST, most=most), result


def steady_times(adapter: Adapter, runs: Sequence[Run], arrays: Sequence[Array], rounds: int = 3) -> list[list[float]]:
    """Seconds of a call: for each function, the least of each of its turns.

    In each round every function has a turn, unless it is far slower than the fastest one. Another one is the first in
    the next round.

    Args:
        adapter: of the arrays.
        runs: the functions.
        arrays: their arguments.
        rounds: how many turns each function has.
    """
    times: list[list[float]] = [[] for _ in runs]
    for number in range(rounds):
        fastest = min((min(each) for each in times if each), default=0.0)
        for place in range(len(runs)):
            at = (place + number) % len(runs)
            if not number or times[at][0] <= _FAR * fastest:
                call = partial(_completed, adapter, runs[at], arrays)
                times[at].append(turn(call, _SECONDS, least=_LEAST, most=_MOST))
    return times


def _completed(adapter: Adapter, run: Run, arrays: Sequence[Array]) -> Array:
    result = run(*arrays)
    adapter.synchronize(result)
    return result
