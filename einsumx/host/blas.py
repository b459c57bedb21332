"""The BLAS and OpenMP libraries of this process, limited to fewer threads for as long as anyone needs that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from einsumx.imports import imported

_AVX_512 = ("SkylakeX", "Cooperlake", "SapphireRapids")
"""The processors for which OpenBLAS multiplies small matrices without packing them, which takes a lock."""


class Library:
    """One library: its number of threads, whether that is a setting of each calling thread, and its small kernels."""

    def __init__(self, controller: Any) -> None:
        layer = getattr(controller, "threading_layer", "")
        self.is_serial = layer == "disabled"
        self.is_per_thread = layer == "openmp"
        self.has_small_kernels = getattr(controller, "architecture", "") in _AVX_512
        is_openblas = controller.internal_api == "openblas" and not self.is_per_thread
        self.get: Callable[[], int] = (is_openblas and _of_openblas(controller, "get")) or controller.get_num_threads
        self.set: Callable[[int], object] = (is_openblas and _of_openblas(controller, "set")) or (
            controller.set_num_threads
        )


def _of_openblas(controller: Any, verb: str) -> Any:
    """OpenBLAS's own function. A hold may end in another thread, and threadpoolctl's works in one thread alone."""
    names = (f"{start}openblas_{verb}_num_threads{end}" for start in ("", "scipy_") for end in ("", "64_", "_64"))
    return next((getattr(controller.dynlib, name) for name in names if hasattr(controller.dynlib, name)), None)


def libraries(user_api: str) -> list[Library]:
    """The libraries that are loaded now; ``user_api`` is ``"blas"`` or ``"openmp"``."""
    controllers = imported("threadpoolctl").ThreadpoolController().select(user_api=user_api).lib_controllers
    return [Library(controller) for controller in controllers]


def limit(libraries: Iterable[Library], most: int) -> list[int]:
    """Set each library to at most ``most`` threads; returns the previous numbers."""
    libraries = list(libraries)
    before = [library.get() for library in libraries]
    change(libraries, before, [min(most, number) for number in before])
    return before


def change(libraries: Sequence[Library], before: Sequence[int], after: Sequence[int]) -> None:
    """Set each library whose number of threads changes."""
    for library, old, new in zip(libraries, before, after):
        if old != new:
            library.set(new)


class Hold(NamedTuple):
    """The state of BLAS when a hold began.

    Attributes:
        found: the fewest threads that a library was set to.
        usual: how many they use if nobody limits them.
        most: how many threads the hold leaves them.
        own: the numbers of the libraries that have one for each thread.
    """

    found: int
    usual: int
    most: int
    own: list[int]


class Blas:
    """The BLAS libraries of the process, limited while anyone holds them.

    Args:
        libraries: all of them.
        usual: how many threads they use by default. If a hold finds fewer, someone else has limited them.
    """

    def __init__(self, libraries: Iterable[Library], usual: int) -> None:
        parallel = [library for library in libraries if not library.is_serial]
        self.has_small_kernels = any(library.has_small_kernels for library in parallel)
        self._shared = [library for library in parallel if not library.is_per_thread]
        self._own = [library for library in parallel if library.is_per_thread]
        self._usual = usual
        self._lock = threading.RLock()  # a signal handler or a finalizer may need a hold inside of these methods
        self._holders: list[int] = []  # the most threads that each of them allows
        self._saved: list[int] = []

    def hold(self, most: int = 1) -> Hold:
        """Let BLAS use up to ``most`` threads, or fewer if another holder allows fewer."""
        with self._lock:
            if not self._holders:
                self._saved = [library.get() for library in self._shared]
            before = self._allowed(self._holders)
            self._holders.append(most)
            change(self._shared, before, self._allowed(self._holders))
            lowest = min(self._saved, default=self._usual)
        own = limit(self._own, most)
        return Hold(min(lowest, *own) if own else lowest, self._usual, most, own)

    def release(self, hold: Hold) -> None:
        """Undo a hold, in its thread; the last release restores the numbers from before the first hold."""
        change(self._own, [min(hold.most, number) for number in hold.own], hold.own)
        with self._lock:
            left = self._holders.copy()
            left.remove(hold.most)
            change(self._shared, self._allowed(self._holders), self._allowed(left))
            self._holders.remove(hold.most)  # only now, as a hold without others before it saves the numbers

    def _allowed(self, holders: list[int]) -> list[int]:
        """How many threads these holders leave to each library."""
        return [min([number, *holders]) for number in self._saved]

    def settle_worker(self) -> None:
        """In a thread of the pool: one thread, permanently, in libraries with a number for each thread."""
        for library in self._own:
            library.set(1)

    def restore(self) -> None:
        """Restore the numbers from before any hold, in a child process without the holders."""
        change(self._shared, self._allowed(self._holders), self._saved)
