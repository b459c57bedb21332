"""The rates of NVIDIA's GPUs, from a framework's description of a device.

The peaks of a generation are from the tables "Arithmetic Instructions" in the CUDA C++ Programming Guide and from
NVIDIA's papers on each architecture. How much of a peak kernels reach was fitted to times that others measured on one
V100 (https://github.com/apache/mxnet/issues/18043), and to the rates that PyTorch and CuPy have on one H200.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from einsumx.ir.rates import Rates
from einsumx.ir.records import record


@record
class Gpu:
    """The properties of a GPU on which its speed depends.

    Attributes:
        capability: the compute capability, such as ``(8, 0)``.
        multiprocessors: how many it has.
        clock: the highest clock of these, in Hz.
        bandwidth: bytes a second between the memory and the GPU.
    """

    capability: tuple[int, int]
    multiprocessors: int
    clock: float
    bandwidth: float

    @staticmethod
    def of_properties(capability: tuple[int, int], multiprocessors: int, clock: int, memory: int, width: int) -> Gpu:
        """A GPU from properties in CUDA's units.

        Args:
            capability: as in :class:`Gpu`.
            multiprocessors: as in :class:`Gpu`.
            clock: of the multiprocessors, in kHz.
            memory: clock of the memory, in kHz, which moves data twice a clock.
            width: of the memory, in bits.
        """
        return Gpu(capability, multiprocessors, 1e3 * clock, 2e3 * memory * width / 8)


A100 = Gpu((8, 0), 108, 1.41e9, 1.555e12)
"""Stands for GPUs whose properties are not known."""


class _Lanes(NamedTuple):
    """Multiply-adds per clock of a multiprocessor, in tensor cores where these take the dtype as it is."""

    single: int
    double: int
    half: int


_LANES = {
    (5, 0): _Lanes(128, 4, 128),
    (6, 0): _Lanes(64, 32, 128),
    (6, 1): _Lanes(128, 4, 128),  # products of float16 are computed in float32
    (7, 0): _Lanes(64, 32, 512),
    (7, 5): _Lanes(64, 2, 512),
    (8, 0): _Lanes(64, 64, 1024),
    (8, 6): _Lanes(128, 2, 512),
    (9, 0): _Lanes(128, 128, 2048),
    (10, 0): _Lanes(128, 64, 4096),
    (12, 0): _Lanes(128, 2, 512),
}
"""By the first compute capability that has them."""

_OF_PEAK, _STREAMED, _COPIED, _PERMUTED = 0.85, 0.85, 0.9, 0.45
"""The shares of the peak that large products reach, and of the bandwidth that sums, copies in long runs, and copies
which move the innermost axis reach."""

_COPIED_A_CLOCK, _PERMUTED_A_CLOCK = 10, 4.2
"""The most bytes that such copies read and write in a clock of a multiprocessor; an H200's memory is faster."""

_TILE = 32
"""Rows or columns: the smallest tile that cuBLAS's kernels compute at full speed."""


def gpu_rates(gpu: Gpu, overheads: Rates) -> Rates:
    """The rates of a GPU.

    Args:
        gpu: its properties.
        overheads: has the rates ``call`` and ``view``, which are a framework's on the host.

    >>> rates = gpu_rates(A100, Rates(call=7e-6))
    >>> f"{rates.gemm:.1e} {rates.half / rates.gemm:g} {rates.double / rates.gemm:g} {rates.copy:.1e} {rates.call:g}"
    '8.3e+12 16 1 1.4e+12 7e-06'
    """
    lanes = _LANES[max(first for first in _LANES if first <= max(gpu.capability, min(_LANES)))]
    clocks, bandwidth = gpu.multiprocessors * gpu.clock, gpu.bandwidth
    reached = _OF_PEAK * clocks
    return replace(
        overheads,
        matrix=3e-9,
        gemm=lanes.single * reached,
        double=lanes.double * reached,
        half=lanes.half * reached,
        tile=_TILE,
        stream=_STREAMED * bandwidth,
        copy=min(_COPIED * bandwidth, _COPIED_A_CLOCK * clocks),
        permute=min(_PERMUTED * bandwidth, _PERMUTED_A_CLOCK * clocks),
        run=1e-12,
    )
