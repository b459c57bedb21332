"""Times products in semirings against a broadcast and a reduction, and ``"log"`` against the plain product.

python benchmarks/semirings.py
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from einsumx import einsum

PROBLEMS = {
    "ij,jk->ik": ((200, 200), (200, 200)),
    "bij,bjk->bik": ((64, 50, 50), (64, 50, 50)),
}
DTYPES = ("float64", "float32")


def milliseconds(call: Callable[[], Any]) -> float:
    """The least time of some calls."""
    call()
    times = []
    for _ in range(9):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return 1e3 * min(times)


def frameworks() -> dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]]:
    """For each framework, how it makes an array, and its own maximum of sums."""
    found: dict[str, Any] = {
        "numpy": (np.asarray, lambda lhs, rhs: (lhs[..., :, :, None] + rhs[..., None, :, :]).max(-2))
    }
    try:
        import torch
    except ImportError:
        return found
    found["torch"] = (torch.tensor, lambda lhs, rhs: (lhs[..., :, :, None] + rhs[..., None, :, :]).amax(-2))
    return found


def main() -> None:
    """Print a table, with times in milliseconds."""
    rng = np.random.default_rng(0)
    columns = ("broadcast", "max-plus", "times", "plain", "log", "times")
    print(f"{'':40}" + "".join(f"{column:>10}" for column in columns))
    for name, (make, broadcast) in frameworks().items():
        for equation, shapes in PROBLEMS.items():
            for dtype in DTYPES:
                arrays = [make(rng.random(shape).astype(dtype)) for shape in shapes]
                whole = milliseconds(partial(broadcast, *arrays))
                plain = milliseconds(partial(einsum, equation, *arrays))
                best = milliseconds(partial(einsum, equation, *arrays, semiring="max-plus"))
                log = milliseconds(partial(einsum, equation, *arrays, semiring="log"))
                figures = f"{whole:10.2f}{best:10.2f}{whole / best:10.1f}{plain:10.2f}{log:10.2f}{log / plain:10.1f}"
                print(f"{name:6} {equation:14} {shapes[0][-1]:4} {dtype:13}{figures}")


if __name__ == "__main__":
    main()
