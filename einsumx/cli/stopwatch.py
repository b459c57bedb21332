"""The median time of a call, for ``profile`` and ``calibrate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from einsumx.adapters.base import Adapter, Array, Run

__all__ = ["Stopwatch"]

_LEAST = 3


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Times calls of a framework until their results are complete.

    Attributes:
        adapter: the framework's adapter.
        seconds: the time to spend on each call.
        most: the largest number of repeats; the least is 3.
        clock: returns the time in seconds.
    """

    adapter: Adapter
    seconds: float
    most: int
    clock: Callable[[], float]

    def time(self, run: Run, arrays: Sequence[Array]) -> tuple[float, Array]:
        """The median time of a call, and its result."""
        for _ in range(2):  # the first calls compile, and touch memory for the first time
            self.adapter.synchronize(run(*arrays))
        times: list[float] = []
        end = self.clock() + self.seconds
        while len(times) < _LEAST or (self.clock() < end and len(times) < self.most):
            start = self.clock()
            result = run(*arrays)
            self.adapter.synchronize(result)
            times.append(self.clock() - start)
        return median(times), result
