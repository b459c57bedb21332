"""Times of functions that do the same, each in its own steady state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from einsumx.adapters.base import Adapter, Array, Run
from einsumx.runtime.machine import turn

__all__ = ["steady_times"]

_SECONDS, _LEAST, _MOST = 0.02, 3, 500
"""How long, and how often at least and at most, a function is called in a turn."""

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
        take_turn: the least time of a call in a turn; see :func:`einsumx.runtime.machine.turn`.
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
