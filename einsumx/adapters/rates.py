"""How fast a framework is on one kind of device, as its adapter declares it; and what a measurement holds for.

``einsumx calibrate`` measures (:mod:`einsumx.cli.calibrate`); :mod:`einsumx.runtime.calibration` keeps the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Key", "Rates", "is_rate"]


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds, and amounts a second, by which the planner compares two ways of computing the same.

    Adapters declare defaults. What decides between two plans are ratios of these numbers, so that defaults taken on
    one machine choose well on most; ``einsumx calibrate`` measures them on this one.

    Attributes:
        call: seconds that a call takes before it does any work.
        view: seconds that a reshape takes that is free otherwise.
        matrix: seconds that each matrix of a batched product takes before any arithmetic.
        gemm: multiply-adds a second of a large float32 product.
        stream: bytes a second that products, sums and elementwise ops read and write.
        copy: bytes a second, read and written, of a copy in long contiguous runs.
        permute: the same, of a copy that moves the innermost axis.
        run: seconds that each contiguous run of a copy takes besides its bytes.
        native: multiply-adds a second of the framework's own einsum kernel; 0 where the planner must not use it.
        sweep: the same where it sweeps once through the larger operand as it lies; 0 where that is no faster.
    """

    call: float = 1e-6
    view: float = 0.3e-6
    matrix: float = 0.3e-6
    gemm: float = 50e9
    stream: float = 20e9
    copy: float = 14e9
    permute: float = 7e9
    run: float = 4e-9
    native: float = 0.0
    sweep: float = 0.0


@dataclass(frozen=True, slots=True)
class Key:
    """What a calibration holds for.

    Attributes:
        backend: by its name in einsumx.
        device: its kind, such as ``cuda``; ``default`` where the framework does not say which it is.
        framework: the framework's version.
        threads: how many einsumx uses in this process, and frameworks by default.
    """

    backend: str
    device: str
    framework: str
    threads: int


def is_rate(value: Any) -> bool:
    """Whether a number can be a rate of some machine: finite and more than 0.

    >>> is_rate(2e-6), is_rate(0.0), is_rate(float("nan")), is_rate("fast")
    (True, False, False, False)
    """
    return type(value) in (int, float) and _LEAST <= value <= _MOST


_LEAST, _MOST = 1e-30, 1e30
"""The bounds of rates of any machine, so that no cost is beyond a float."""
