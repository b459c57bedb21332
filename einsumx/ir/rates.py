"""The speed of a framework on one kind of device.

Adapters declare defaults. ``einsumx calibrate`` (:mod:`einsumx.cli.rate_measurement`) measures the rates, and
:mod:`einsumx.measuring.calibration` stores them.
"""

from __future__ import annotations

from typing import Any

from einsumx.ir.records import record


@record
class Rates:
    """The rates that the planner uses to estimate the time of a plan.

    Only ratios of these numbers decide between two plans, so defaults from one machine work well on most others.

    Attributes:
        call: overhead of a call, in seconds.
        view: overhead of a reshape that copies nothing, in seconds.
        matrix: overhead of each matrix of a batched product, in seconds.
        gemm: multiply-adds per second of a large float32 product.
        double: the same for float64, and for the parts of complex128; 0 if that is the rate of its bytes, ``gemm / 2``.
        half: the same for float16 and bfloat16; 0 if that is ``gemm * 2``.
        tile: a product is computed in tiles of so many rows and columns, as on GPUs; 1 if it is not.
        stream: bytes per second that products, sums and elementwise ops read and write.
        copy: bytes per second, read and written, of a copy in long contiguous runs.
        permute: the same for a copy that moves the innermost axis.
        run: overhead of each contiguous run of a copy, in seconds.
        native: multiply-adds per second of the framework's own einsum kernel; 0 if the planner must not use it.
        sweep: the same if it reads all arrays in memory order along its innermost loop; 0 if that is no faster.
    """

    call: float = 1e-6
    view: float = 0.3e-6
    matrix: float = 0.3e-6
    gemm: float = 50e9
    double: float = 0.0
    half: float = 0.0
    tile: int = 1
    stream: float = 20e9
    copy: float = 14e9
    permute: float = 7e9
    run: float = 4e-9
    native: float = 0.0
    sweep: float = 0.0


def is_rate(value: Any) -> bool:
    """Whether a value is a plausible rate: a finite number above 0.

    >>> is_rate(2e-6), is_rate(0.0), is_rate(float("nan")), is_rate("fast")
    (True, False, False, False)
    """
    return type(value) in (int, float) and _LEAST <= value <= _MOST


_LEAST, _MOST = 1e-30, 1e30
"""Bounds of a rate, so that no cost overflows a float."""
