"""The least time of a call, for ``profile`` and ``calibrate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from einsumx.adapters.base import Adapter, Array, Run
from einsumx.measuring.steady import turn

__all__ = ["Stopwatch"]

_LEAST = 3


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Times calls of a framework until their results are complete, each in a steady state of its own.

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
        """The least time of a call, and its result."""

        def call() -> Array:
            result = run(*arrays)
            self.adapter.synchronize(result)
            return result

        result = call()  # it compiles, and touches memory for the first time
        return turn(call, self.seconds, least=_LEAST, most=self.most, clock=self.clock), result
