"""Running a test's work in several threads at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier


def in_threads(work: Callable[[], None], count: int = 4) -> None:
    """Call ``work`` in ``count`` threads that start together; what fails in any of them fails here."""
    start = Barrier(count)

    def started() -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(started) for _ in range(count)]:
            future.result()
