"""``Trials``: the first calls of a contraction run its candidates, each is timed, and the fastest one stays.

Every call is a real one and returns a right result. Candidates take turns of a few calls each. A turn begins when the
threads of BLAS have come to rest, so that each candidate finds its own steady state. The least of many times is low by
chance; so before another candidate replaces the estimate's choice, both have one more turn, which decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from math import inf
from time import perf_counter
from typing import TypeAlias

from einsumx.adapters.base import Adapter, Array, Run
from einsumx.host.free_memory import is_out_of_memory
from einsumx.measuring import effort
from einsumx.measuring.steady import rest
from einsumx.planner.selection import Selection

MARGIN = 1.03
"""How much faster than the estimate's choice another candidate must be, so that noise does not decide."""

_FAR = 1.5
"""A candidate that takes this many times as long as the fastest one is not called a third time."""

_LEAST, _SECONDS, _CALLS = 3, 0.03, 12
"""In a turn, a candidate is called three times, or more often if that takes less time, but at most so many times."""


class Attempt:
    """A candidate, and how long its calls took.

    Attributes:
        selection: what selects it.
        run: runs it.
        times: seconds of each call.
    """

    def __init__(self, selection: Selection, run: Run) -> None:
        self.selection, self.run = selection, run
        self.times: list[float] = []

    @property
    def least(self) -> float:
        """The time of the fastest call; infinite before the first."""
        return min(self.times, default=inf)


Compile: TypeAlias = Callable[[Selection], Run]
Report: TypeAlias = Callable[[Sequence[Attempt], Attempt], None]


class Trials:
    """A function of arrays that runs the candidates of a contraction by turns, until the fastest is known.

    Thread-safe: while one thread's call is timed, the calls of others run the estimate's choice.

    Args:
        adapter: of the arrays.
        selections: the candidates; the first is the estimate's choice.
        compiled: makes the function that runs a candidate.
        report: takes the attempts, the estimate's choice first, and the chosen one, when they have ended.
    """

    def __init__(self, adapter: Adapter, selections: Sequence[Selection], compiled: Compile, report: Report) -> None:
        self._adapter, self._compiled, self._report = adapter, compiled, report
        self._estimate = Attempt(selections[0], compiled(selections[0]))
        self._attempts = [self._estimate]
        self._turns = self._schedule(selections[1:])
        self._lock = threading.Lock()
        self._settled: Run | None = None
        if len(selections) == 1:
            self._settle(self._estimate)

    def __call__(self, *arrays: Array) -> Array:
        run = self._settled
        if run is not None:
            return run(*arrays)
        if effort.is_frozen() or not self._lock.acquire(blocking=False):
            return self._estimate.run(*arrays)
        try:
            is_timed = all(map(self._adapter.has_values, arrays))  # not while a framework traces the call
            attempt = next(self._turns, None) if is_timed else None
            if attempt is None:
                return (self._settled or self._estimate.run)(*arrays)
            return self._timed(attempt, arrays)
        finally:
            self._lock.release()

    def _timed(self, attempt: Attempt, arrays: Sequence[Array]) -> Array:
        if not attempt.times:
            rest()
        for array in arrays:  # the framework may still be computing them
            self._adapter.synchronize(array)
        start = perf_counter()
        try:
            result = attempt.run(*arrays)
            self._adapter.synchronize(result)
        except Exception as error:
            # Other candidates may need more memory than the estimate's choice, and a caller must not pay for that.
            if attempt is self._estimate or not is_out_of_memory(error):
                raise
            attempt.times = [inf] * _CALLS
            return self._estimate.run(*arrays)
        attempt.times.append(perf_counter() - start)
        return result

    def _schedule(self, others: Sequence[Selection]) -> Iterator[Attempt]:
        yield from self._turn(self._estimate)
        for selection in others:
            self._attempts.append(Attempt(selection, self._compiled(selection)))
            yield from self._turn(self._attempts[-1])
        both = combined([attempt for attempt in self._attempts if attempt.least * MARGIN < self._estimate.least])
        if both is not None:
            self._attempts.append(Attempt(both, self._compiled(both)))
            yield from self._turn(self._attempts[-1])
        fastest = self._attempts[winner([attempt.least for attempt in self._attempts])]
        if fastest is not self._estimate:
            for attempt in (self._estimate, fastest):
                attempt.times = []
                yield from self._turn(attempt)
        self._settle(fastest)

    def _turn(self, attempt: Attempt) -> Iterator[Attempt]:
        """Some calls, fewer if the candidate is far behind."""
        best = min(other.least for other in self._attempts)
        calls = 0
        while calls < _LEAST or (calls < _CALLS and sum(attempt.times) < _SECONDS):
            yield attempt
            calls = len(attempt.times)
            if calls == _LEAST - 1 and attempt is not self._estimate and attempt.least > _FAR * best:
                return

    def _settle(self, fastest: Attempt) -> None:
        chosen = (self._estimate, fastest)[winner([self._estimate.least, fastest.least])]
        self._settled = chosen.run
        if self._estimate.times:
            self._report(self._attempts, chosen)


def winner(seconds: Sequence[float]) -> int:
    """The position of the fastest candidate, or 0, the estimate's choice, if that is hardly slower.

    >>> winner([1.0, 0.99, 1.2]), winner([1.0, 0.9, 0.8])
    (0, 2)
    """
    least = min(seconds)
    return 0 if seconds[0] < least * MARGIN else seconds.index(least)


def combined(attempts: Sequence[Attempt]) -> Selection | None:
    """The selection of the best candidate for each step, if several steps have a better one than the estimate's."""
    names: dict[int, str] = {}
    for attempt in sorted(attempts, key=lambda attempt: attempt.least):
        if attempt.selection.path is None:
            for place, name in enumerate(attempt.selection.steps):
                if name:
                    names.setdefault(place, name)
    if len(names) < 2:
        return None
    return Selection(None, tuple([names.get(place, "") for place in range(max(names) + 1)]))
