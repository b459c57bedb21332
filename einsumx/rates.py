"""How fast a framework is on one kind of device: the constants of the planner's cost model."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Rates"]


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds, and amounts a second, by which the planner compares two ways of computing the same.

    Adapters declare defaults. What decides between two plans are ratios of these numbers, so that defaults taken on
    one machine choose well on most.

    Attributes:
        call: seconds that a call takes before it does any work.
        matrix: seconds that each matrix of a batched product takes before any arithmetic.
        gemm: multiply-adds a second of a large float32 product.
        stream: bytes a second that products, sums and elementwise ops read and write.
        copy: bytes a second, read and written, of a copy in long contiguous runs.
        permute: the same, of a copy that moves the innermost axis.
        run: seconds that each contiguous run of a copy takes besides its bytes.
        native: multiply-adds a second of the framework's own einsum kernel; 0 where the planner must not use it.
    """

    call: float = 1e-6
    matrix: float = 0.3e-6
    gemm: float = 50e9
    stream: float = 20e9
    copy: float = 14e9
    permute: float = 7e9
    run: float = 4e-9
    native: float = 0.0
