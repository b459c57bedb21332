"""Measure the rates of the planner's cost model on this machine, with an adapter's own kernels.

Each rate comes from the least times of programs with one kind of op. If a framework compiles whole programs, a rate is
that of an op inside a compiled program. Rates that were measured on a busy machine are not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from math import prod
from statistics import median
from time import sleep
from typing import Any

from einsumx.adapters.base import Adapter, Array
from einsumx.cli.op_times import program_of_ops
from einsumx.errors import BackendError, EinsumxError
from einsumx.host.threads import get_num_threads
from einsumx.ir import ops
from einsumx.ir.contraction import Place
from einsumx.ir.operand import Operand
from einsumx.ir.rates import Rates, is_rate
from einsumx.ir.values import described
from einsumx.measuring.calibration import declared, store_rates
from einsumx.measuring.machine import Watch, watched
from einsumx.measuring.steady import timed
from einsumx.measuring.store import Origin, origin_of
from einsumx.runtime.execute import run_of

Shape = tuple[int, ...]

PASSES = 3
"""How many times everything is measured, so that a short disturbance affects one pass only."""

TRIES, PAUSE = 3, 5.0
"""How many times to try on a busy machine, and the seconds to wait before trying again."""

SECONDS, MOST = 0.08, 5000
"""The time for each program in a pass, and the largest number of repeats."""

LONG, LARGE = 0.01, 1024
"""Seconds and rows of a product that is large enough to reach the rate of arithmetic."""

CHAIN = 32
"""Ops in a program that measures the overhead of an op."""

LARGER = 16
"""How many times as many bytes a GPU copies and reads, so that its caches do not hold them."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The rates of a backend on a device.

    Attributes:
        origin: the software and the hardware for which they hold.
        threads: the number of threads of einsumx, and of frameworks by default.
        declared: the rates that the adapter declares.
        measured: rates by name, without those that are implausible or must not be used.
        disturbances: a sentence on each thing that kept the machine busy.
        is_stored: whether later processes use the measured rates.
    """

    origin: Origin
    threads: int
    declared: Rates
    measured: dict[str, float]
    disturbances: tuple[str, ...]
    is_stored: bool


def calibrate(
    adapter: Adapter, device: str = "", announce: Callable[[str], None] = lambda _: None, *, force: bool = False
) -> Calibration:
    """Measure a backend's rates and store them, unless the machine is too busy.

    On a busy machine, it waits and measures again, up to three times in all.

    Args:
        adapter: the backend's adapter.
        device: the device; empty for the framework's default.
        announce: called with a description of what happens next.
        force: measure once, and store the rates of a busy machine, too.

    Raises:
        BackendError: the backend stands for several libraries, or the framework or the device is missing.
        EinsumxError: no rate could be measured, or the cache folder cannot be written.
    """
    if not adapter.module:
        raise BackendError(f"{adapter.name} serves many libraries, each with its own rates; it cannot be calibrated")
    try:
        where = adapter.device(_ones(adapter, (1,), device))
    except ModuleNotFoundError as error:
        raise BackendError(f"{adapter.name} is not installed: {adapter.install}") from error
    except Exception as error:
        raise BackendError(f"{adapter.name} cannot make an array on {device or 'its device'}: {error}") from error
    rates = declared(adapter, where).rates
    measured, disturbances = _measure_in_quiet(adapter, device, announce, 1 if force else TRIES)
    is_stored = force or not disturbances
    calibration = Calibration(origin_of(adapter, where), get_num_threads(), rates, measured, disturbances, is_stored)
    if not measured:
        raise EinsumxError(f"no measured rate of {adapter.name} is plausible; measure again when the machine is idle")
    if is_stored:
        try:
            store_rates(adapter, where, measured)
        except (OSError, RuntimeError, ValueError) as error:
            raise EinsumxError(f"the calibration cannot be stored: {error}") from error
    return calibration


def _measure_in_quiet(
    adapter: Adapter, device: str, announce: Callable[[str], None], tries: int
) -> tuple[dict[str, float], tuple[str, ...]]:
    """The rates by name of the first quiet try, or of the last one; and what disturbed it."""
    number = 1
    while True:
        with watched() as watch:
            measured = measure_rates(adapter, device, announce=announce, watch=watch)
        if not watch.reasons or number == tries:
            return measured, tuple(watch.reasons)
        number += 1
        reasons = "; ".join(watch.reasons)
        announce(f"{adapter.name}  the machine is busy: {reasons}; try {number} of {tries} in {PAUSE:g} s")
        sleep(PAUSE)


def measure_rates(
    adapter: Adapter,
    device: str = "",
    announce: Callable[[str], None] = lambda _: None,
    watch: Watch | None = None,
) -> dict[str, float]:
    """The rates by name, without implausible ones. The watch is told the times of each program."""
    timer = _ProgramTimer(adapter, device)
    for number in range(PASSES):
        rates = {}
        for name, rate in timer.rates():
            announce(f"{adapter.name}  {name}  {number + 1} of {PASSES}")
            rates[name] = rate
    if watch is not None:
        for times in timer.times.values():
            watch.repeats(times)
    # Those of the last pass are from the least times of all passes.
    return {field.name: rates[field.name] for field in fields(Rates) if is_rate(rates.get(field.name, 0.0))}


class _ProgramTimer:
    """Times programs on arrays of ones.

    Args:
        adapter: the adapter that runs them.
        device: the device of the arrays.

    Attributes:
        times: of each program, by its operands and its ops: the least time in each pass.
    """

    def __init__(self, adapter: Adapter, device: str) -> None:
        self.adapter, self.device = adapter, device
        self.traits = adapter.traits(adapter.device(_ones(adapter, (1,), device)))
        self.larger = LARGER if self.traits.rates.tile > 1 else 1
        self.times: dict[tuple[tuple[Operand, ...], tuple[ops.Op, ...]], list[float]] = {}

    def rates(self) -> Iterator[tuple[str, float]]:
        """The name and the value of each rate; rates that others depend on come first."""
        call = self._call(1)  # with what starting a program and waiting for its result take
        yield "call", (self._call(CHAIN + 1) - call) / CHAIN
        yield "view", self._view()
        gemm = self._gemm("float32")
        yield "gemm", gemm
        if self.traits.rates.double:
            yield "double", self._gemm("float64")
        if self.traits.rates.half:
            yield "half", self._gemm("float16")
        yield "matrix", self._matrix(gemm)
        yield "stream", self._stream(call)
        larger = self.larger
        yield "copy", self._copied((larger * 64, 64, 1000), (1, 0, 2), call)
        permuted = [
            self._copied((larger * 2000, 1800), (1, 0), call),
            self._copied((larger * 100, 120, 300), (2, 0, 1), call),
            self._copied((larger * 300, 100, 120), (1, 2, 0), call),
        ]
        yield "permute", median(permuted)
        yield "run", self._run()
        if self.traits.rates.native:
            yield "native", self._native(call)
        if self.traits.rates.sweep:
            yield "sweep", self._sweep(call)

    # -- the rates --------------------------------------------------------------------------------------

    def _call(self, count: int) -> float:
        """The time of a program of tiny products."""
        shape = (2, 2)
        return self.seconds([shape] * 2, [ops.Matmul(place + 2, place + 1, 0) for place in range(count)])

    def _view(self) -> float:
        """The time that one more reshape adds to a program of reshapes."""
        shapes = (2, 2), (4, 1)
        chain: list[ops.Op] = [ops.Reshape(place + 1, place, shapes[place % 2]) for place in range(CHAIN + 1)]
        single, whole = self.seconds([(1, 4)], chain[:1]), self.seconds([(1, 4)], chain)
        return (whole - single) / CHAIN

    def _gemm(self, dtype: str) -> float:
        """The best rate of square products; sizes double until a product takes long enough."""
        size, seconds, best = 256, 0.0, 0.0
        while size < LARGE or (seconds < LONG and size < 16 * LARGE):
            size *= 2
            seconds = self.seconds([(size, size)] * 2, [ops.Matmul(2, 0, 1)], dtype)
            best = max(best, _over(size**3, seconds))
        return best

    def _matrix(self, gemm: float) -> float:
        """The time that one more matrix adds to a batch of small ones, without its arithmetic."""
        few, many, size = 2**12, 2**14, 8
        times = [self.seconds([(count, size, size)] * 2, [ops.Matmul(2, 0, 1)]) for count in (few, many)]
        return (times[1] - times[0]) / (many - few) - _over(size**3, gemm)

    def _stream(self, call: float) -> float:
        """The median rate of a matrix-vector product, a sum and an elementwise product."""
        rows, size = self.larger * 2000, 2000
        matrix = (rows, size)
        last = len(matrix) - 1
        nbytes = 4 * rows * size
        return median(
            [
                _over(nbytes, self.seconds([matrix, (size, 1)], [ops.Matmul(2, 0, 1)]) - call),
                _over(nbytes, self.seconds([matrix], [ops.Sum(1, 0, (last,))]) - call),
                _over(3 * nbytes, self.seconds([matrix] * 2, [ops.Multiply(2, 0, 1)]) - call),
            ]
        )

    def _copied(self, shape: Shape, axes: tuple[int, ...], call: float) -> float:
        """The rate of a permuting copy."""
        return _over(8 * prod(shape), self.seconds([shape], self.permuting(axes)) - call)

    def _run(self) -> float:
        """The time that one more contiguous run adds to a copy of the same bytes."""
        short, long = (self.larger * 500, 2000, 4), (self.larger * 250, 500, 32)
        times = [self.seconds([shape], self.permuting((1, 0, 2))) for shape in (short, long)]
        return (times[0] - times[1]) / (prod(short[:2]) - prod(long[:2]))

    def _native(self, call: float) -> float:
        """The rate of the framework's own einsum on a batch of products."""
        batch, size = 8, 48
        seconds = self.seconds([(batch, size, size)] * 2, [ops.Native(2, (0, 1), "abd,acd->abc")])
        return _over(batch * size**3, seconds - call)

    def _sweep(self, call: float) -> float:
        """The rate of the framework's own einsum when it multiplies element by element and sums rows."""
        rows, length = 1000, 500
        seconds = self.seconds([(rows, length)] * 2, [ops.Native(2, (0, 1), "ab,ab->a")])
        return _over(rows * length, seconds - call)

    # -- measuring --------------------------------------------------------------------------------------

    def permuting(self, axes: tuple[int, ...]) -> list[ops.Op]:
        """The ops that copy slot 0 with permuted axes."""
        reason = "measured"
        if self.traits.strided:
            return [ops.Transpose(1, 0, axes), ops.Copy(2, 1, reason)]
        return [ops.Transpose(1, 0, axes, reason)]

    def seconds(self, shapes: Sequence[Shape], steps: Sequence[ops.Op], dtype: str = "float32") -> float:
        """The least time of a program with these ops, in this pass and those before."""
        operands = tuple(Operand(shape, dtype) for shape in shapes)
        place = Place(self.adapter.name, self.device, self.traits)
        program = program_of_ops(place, operands, steps, described(steps, operands)[-1])
        run = run_of(program, self.adapter)
        arrays = [_ones(self.adapter, shape, self.device, dtype) for shape in shapes]
        seconds, _ = timed(self.adapter, run, arrays, SECONDS, MOST)
        times = self.times.setdefault((operands, tuple(steps)), [])
        times.append(seconds)
        return min(times)


def _ones(adapter: Adapter, shape: Shape, device: str, dtype: str = "float32") -> Array:
    import numpy as np

    array: Any = adapter.from_numpy(np.ones(shape, dtype), device)
    adapter.synchronize(array)
    return array


def _over(amount: float, seconds: float) -> float:
    """An amount per second; 0, which is implausible, if the measured time is not positive."""
    return amount / seconds if seconds > 0 else 0.0
