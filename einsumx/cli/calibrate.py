"""``calibrate``: the rates of the planner's cost model, measured on this machine through an adapter's own kernels.

Each is what a plan of one kind of op takes, of several sizes, as medians. Where a framework compiles plans as wholes,
a rate is that of an op within such a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from math import prod
from statistics import median
from time import perf_counter
from typing import Any

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.rates import Key, Rates, is_rate
from einsumx.errors import BackendError, EinsumxError
from einsumx.ir.ops import Copy, Matmul, Multiply, Native, Op, Reshape, Sum, Transpose
from einsumx.ir.program import Operand, Program
from einsumx.ir.verify import replay
from einsumx.runtime.calibration import key_of, store_rates
from einsumx.runtime.execute import executable

__all__ = ["Calibration", "calibrate", "measure_rates"]

Shape = tuple[int, ...]

PASSES = 3
"""How many times everything is measured, so that what disturbs the machine for a while disturbs one of them."""

SECONDS, LEAST, MOST = 0.08, 3, 5000
"""How long each plan is timed in a pass, and how many times at least and at most."""

LONG, LARGE = 0.01, 1024
"""Seconds and rows of a product that is large enough to show the rate of arithmetic."""

CHAIN = 32
"""Ops in a plan that is timed for what an op costs besides its work."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured of a backend on a device.

    Attributes:
        key: what it holds for.
        declared: the rates that the adapter declares.
        measured: by name; a rate that is not there could not be measured, or must not be used.
    """

    key: Key
    declared: Rates
    measured: dict[str, float]


def calibrate(adapter: Adapter, device: str = "", announce: Callable[[str], None] = lambda _: None) -> Calibration:
    """Measure a backend's rates on a device (the framework's default where empty) and store them.

    Raises:
        BackendError: the backend stands for several libraries, or the framework or the device is not there.
        EinsumxError: no rate could be measured, or the cache folder cannot be written.
    """
    if not adapter.module:
        raise BackendError(f"{adapter.name} is the backend of many libraries, each with rates of its own")
    try:
        where = adapter.device(_ones(adapter, (1,), device))
    except ModuleNotFoundError as error:
        raise BackendError(f"{adapter.name} is not installed: {adapter.install}") from error
    declared = adapter.traits(where).rates
    found = Calibration(key_of(adapter, where), declared, measure_rates(adapter, device, announce=announce))
    if not found.measured:
        raise EinsumxError(f"nothing plausible could be measured of {adapter.name}")
    try:
        store_rates(found.key, found.measured)
    except OSError as error:
        raise EinsumxError(f"the calibration cannot be stored: {error}") from error
    return found


def measure_rates(
    adapter: Adapter,
    device: str = "",
    clock: Callable[[], float] = perf_counter,
    announce: Callable[[str], None] = lambda _: None,
) -> dict[str, float]:
    """The rates by name, without those that came out as no rate can be."""
    timer = _PlanTimer(adapter, device, clock)
    found: dict[str, list[float]] = {}
    for number in range(PASSES):
        for name, rate in timer.rates():
            announce(f"{adapter.name}  {name}  {number + 1} of {PASSES}")
            found.setdefault(name, []).append(rate)
    middle = {field.name: median(found[field.name]) for field in fields(Rates) if field.name in found}
    return {name: rate for name, rate in middle.items() if is_rate(rate)}


class _PlanTimer:
    """Times plans on arrays of ones in float32.

    Args:
        adapter: whose kernels are timed.
        device: where the arrays are.
        clock: seconds.
    """

    def __init__(self, adapter: Adapter, device: str, clock: Callable[[], float]) -> None:
        self.adapter = adapter
        self.device = device
        self.clock = clock
        self.traits = adapter.traits(adapter.device(_ones(adapter, (1,), device)))
        self.batch = (1,) * self.traits.min_batch_axes

    def rates(self) -> Iterator[tuple[str, float]]:
        """Each rate with its name; those that others build on come first."""
        call = self._call()
        yield "call", call
        yield "view", self._view()
        gemm = self._gemm()
        yield "gemm", gemm
        yield "matrix", self._matrix(gemm)
        yield "stream", self._stream(call)
        yield "copy", self._copied((64, 64, 1000), (1, 0, 2), call)
        permuted = [
            self._copied((2000, 1800), (1, 0), call),
            self._copied((100, 120, 300), (2, 0, 1), call),
            self._copied((300, 100, 120), (1, 2, 0), call),
        ]
        yield "permute", median(permuted)
        yield "run", self._run()
        if self.traits.rates.native:
            yield "native", self._native(call)
        if self.traits.rates.sweep:
            yield "sweep", self._sweep(call)

    # -- what each rate is ------------------------------------------------------------------------------

    def _call(self) -> float:
        """What one more op adds to a plan of tiny products."""
        shape = (*self.batch, 2, 2)
        chain = [Matmul(place + 2, place + 1, 0) for place in range(CHAIN + 1)]
        one, many = self.seconds([shape] * 2, chain[:1]), self.seconds([shape] * 2, chain)
        return (many - one) / CHAIN

    def _view(self) -> float:
        """What one more reshape adds to a plan of reshapes."""
        shapes = (2, 2), (4, 1)
        chain: list[Op] = [Reshape(place + 1, place, shapes[place % 2]) for place in range(CHAIN + 1)]
        one, many = self.seconds([(1, 4)], chain[:1]), self.seconds([(1, 4)], chain)
        return (many - one) / CHAIN

    def _gemm(self) -> float:
        """The best rate of square products, of sizes doubled until one takes long."""
        size, seconds, best = 256, 0.0, 0.0
        while size < LARGE or (seconds < LONG and size < 16 * LARGE):
            size *= 2
            seconds = self.seconds([(*self.batch, size, size)] * 2, [Matmul(2, 0, 1)])
            best = max(best, _over(size**3, seconds))
        return best

    def _matrix(self, gemm: float) -> float:
        """What one more matrix adds to a batch of small ones, without their arithmetic."""
        few, many, size = 2**12, 2**14, 8
        times = [self.seconds([(count, size, size)] * 2, [Matmul(2, 0, 1)]) for count in (few, many)]
        return (times[1] - times[0]) / (many - few) - _over(size**3, gemm)

    def _stream(self, call: float) -> float:
        """The rate of a matrix with a vector, of a sum and of an elementwise product: the middle one."""
        size = 2000
        matrix = (*self.batch, size, size)
        last = len(matrix) - 1
        nbytes = 4 * size * size
        return median(
            [
                _over(nbytes, self.seconds([matrix, (*self.batch, size, 1)], [Matmul(2, 0, 1)]) - call),
                _over(nbytes, self.seconds([matrix], [Sum(1, 0, (last,))]) - call),
                _over(3 * nbytes, self.seconds([matrix] * 2, [Multiply(2, 0, 1)]) - call),
            ]
        )

    def _copied(self, shape: Shape, axes: tuple[int, ...], call: float) -> float:
        """The rate of a permuting copy."""
        return _over(8 * prod(shape), self.seconds([shape], self.permuting(axes)) - call)

    def _run(self) -> float:
        """What one more run adds to a copy of the same bytes."""
        short, long = (500, 2000, 4), (250, 500, 32)
        times = [self.seconds([shape], self.permuting((1, 0, 2))) for shape in (short, long)]
        return (times[0] - times[1]) / (prod(short[:2]) - prod(long[:2]))

    def _native(self, call: float) -> float:
        """The rate of the framework's own einsum on a batch of products."""
        batch, size = 8, 48
        seconds = self.seconds([(batch, size, size)] * 2, [Native(2, (0, 1), "abd,acd->abc")])
        return _over(batch * size**3, seconds - call)

    def _sweep(self, call: float) -> float:
        """The rate of the framework's own einsum where it multiplies element by element and sums rows."""
        rows, length = 1000, 500
        seconds = self.seconds([(rows, length)] * 2, [Native(2, (0, 1), "ab,ab->a")])
        return _over(rows * length, seconds - call)

    # -- how it is measured -----------------------------------------------------------------------------

    def permuting(self, axes: tuple[int, ...]) -> list[Op]:
        """The ops that copy slot 0 with its axes in another order."""
        reason = "measured"
        if self.traits.strided:
            return [Transpose(1, 0, axes), Copy(2, 1, reason)]
        return [Transpose(1, 0, axes, reason)]

    def seconds(self, shapes: Sequence[Shape], ops: Sequence[Op]) -> float:
        """The median time of a plan of ``ops``."""
        result = replay(ops, shapes)[ops[-1].out]
        operands = tuple(Operand(shape, "float32") for shape in shapes)
        plan = Program("", self.adapter.name, self.device, operands, (), tuple(ops), ops[-1].out, result, "float32")
        run = executable(plan, self.adapter)
        arrays = [_ones(self.adapter, shape, self.device) for shape in shapes]
        times: list[float] = []
        for _ in range(2):  # the first calls compile, and touch memory for the first time
            self.adapter.synchronize(run(*arrays))
        end = self.clock() + SECONDS
        while len(times) < LEAST or (self.clock() < end and len(times) < MOST):
            start = self.clock()
            self.adapter.synchronize(run(*arrays))
            times.append(self.clock() - start)
        return median(times)


def _ones(adapter: Adapter, shape: Shape, device: str) -> Array:
    import numpy as np

    array: Any = adapter.from_numpy(np.ones(shape, "float32"), device)
    adapter.synchronize(array)
    return array


def _over(amount: float, seconds: float) -> float:
    """An amount a second; 0, which is no rate, where the time came out as none."""
    return amount / seconds if seconds > 0 else 0.0
