"""``profile``: a plan run op by op, each timed and held against the model that chose it and against the machine.

Each op is run again and again on arrays that stay where they are, so that small ones are in the processor's caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median
from time import perf_counter

from einsumx.adapters.base import Adapter, Array, Run
from einsumx.adapters.rates import Rates
from einsumx.adapters.registry import get_backend
from einsumx.adapters.traits import Traits
from einsumx.cli.compare import Problem, library_of, placed, random_operand, why_absent
from einsumx.dtypes import arithmetic, itemsize, kind
from einsumx.errors import BackendError, EinsumxError, excerpt
from einsumx.ir.cost import last_uses, layouts, op_seconds, program_cost, slot_dtypes
from einsumx.ir.ops import Matmul, Native, Op
from einsumx.ir.program import Program
from einsumx.ir.text import call_text
from einsumx.ir.verify import replay
from einsumx.planner.path import Optimize, as_optimize
from einsumx.runtime.calibration import calibrated
from einsumx.runtime.prepare import arrays_of, prepare, sized_equation
from einsumx.runtime.request import Options

__all__ = ["OpProfile", "Profile", "profile"]

_LEAST, _MOST = 3, 2000
"""How many times an op is timed, at least and at most."""


@dataclass(frozen=True, slots=True)
class OpProfile:
    """What one op took.

    Attributes:
        op: of the plan.
        shape, dtype: of its result.
        seconds: the median of what it took.
        predicted: seconds, by the model that plans are chosen by.
        multiply_adds: its arithmetic.
        nbytes: of the arrays that it reads and writes; 0 for a view.
        arithmetic: seconds that its arithmetic takes at least, by the machine's rates; 0 where there is no product.
        traffic: seconds that its bytes take at least.
    """

    op: Op
    shape: tuple[int, ...]
    dtype: str
    seconds: float
    predicted: float
    multiply_adds: int
    nbytes: int
    arithmetic: float
    traffic: float

    @property
    def floor(self) -> float:
        """Seconds that it takes at least: the roofline at its place; 0 for a view."""
        return max(self.arithmetic, self.traffic)

    @property
    def flops(self) -> float:
        """Floating-point operations a second; of a complex multiply-add there are eight, of others two."""
        return self.multiply_adds * (8 if kind(self.dtype) == "c" else 2) / self.seconds

    @property
    def call(self) -> str:
        """How a plan writes it."""
        return f"%{self.op.out} = {call_text(self.op)}"

    @property
    def share(self) -> float | None:
        """The part of its time that the machine needs at least; None for a view."""
        return self.floor / self.seconds if self.floor else None


@dataclass(frozen=True, slots=True)
class Profile:
    """What a plan took.

    Attributes:
        problem: what was computed.
        plan: that was run.
        device: where.
        library, version: what did the work.
        rates: by which times are predicted.
        is_calibrated: whether these were measured on this machine; else the backend declares them.
        seconds: the median time of the plan as a whole.
        ops: each of its ops.
    """

    problem: Problem
    plan: Program
    device: str
    library: str
    version: str
    rates: Rates
    is_calibrated: bool
    seconds: float
    ops: tuple[OpProfile, ...]

    @property
    def predicted(self) -> float:
        """Seconds of all ops, by the model that plans are chosen by."""
        return sum(op.predicted for op in self.ops)

    @property
    def floor(self) -> float:
        """The seconds that arithmetic and bytes of all ops take at least."""
        return sum(op.floor for op in self.ops)

    @property
    def share(self) -> float | None:
        """The part of the plan's time that the machine needs at least; None where it does nothing but views."""
        return self.floor / self.seconds if self.floor else None


def profile(
    problem: Problem,
    backend: str,
    device: str = "",
    optimize: Optimize = "auto",
    *,
    seconds: float = 0.1,
    clock: Callable[[], float] = perf_counter,
    announce: Callable[[str], None] = lambda _: None,
) -> Profile:
    """Run a contraction of random operands op by op.

    Args:
        problem: what is computed.
        backend: by its name.
        device: where operands are put; the framework's default where empty.
        optimize: the path, as for :func:`einsumx.einsum`.
        seconds: how long each op is timed.
        clock: tells the time in seconds.
        announce: called with what is timed next.

    Raises:
        EinsumxError: the equation is wrong, or an axis of size 0 leaves nothing to be measured.
        BackendError: the framework or the device is not there.
    """
    sized = sized_equation(problem.equation, problem.shapes)
    if 0 in sized.sizes:
        raise EinsumxError(f"an axis has size 0, so that there is nothing to measure\n  {excerpt(sized.text)}")
    adapter = get_backend(backend)
    absent = why_absent(adapter, problem.dtype, device)
    if absent is not None:
        how = f": {absent.install}" if absent.install else ""
        raise BackendError(f"{backend} cannot be profiled here: {absent.reason}{how}")
    adapter, arrays = arrays_of(list(_operands(adapter, problem, device)), None)
    prepared = prepare(adapter, problem.equation, arrays, Options(optimize=as_optimize(optimize)))
    plan = prepared.plan
    traits = calibrated(adapter, plan.device)
    timer = _OpTimer(adapter, seconds, clock)
    announce(sized.text)
    whole, _ = timer.timed(prepared.run, arrays)
    times = list(timer.ops(plan, arrays, announce))
    return Profile(
        problem,
        plan,
        plan.device,
        *library_of(adapter),
        traits.rates,
        traits.rates != adapter.traits(plan.device).rates,
        whole,
        tuple(_op_profiles(plan, adapter, traits, times)),
    )


def _operands(adapter: Adapter, problem: Problem, device: str) -> Iterator[Array]:
    import numpy as np

    rng = np.random.default_rng(0)
    for shape in problem.shapes:
        yield placed(adapter, random_operand(rng, shape, problem.dtype), problem.dtype, device)


@dataclass(frozen=True, slots=True)
class _OpTimer:
    """Times what a framework runs.

    Attributes:
        adapter: of the framework.
        seconds: how long each thing is timed.
        clock: tells the time in seconds.
    """

    adapter: Adapter
    seconds: float
    clock: Callable[[], float]

    def ops(self, plan: Program, arrays: Sequence[Array], announce: Callable[[str], None]) -> Iterator[float]:
        """The time of each op, on what the ops before it have made."""
        shapes = replay(plan.ops, [operand.shape for operand in plan.operands])
        types = slot_dtypes(plan)
        lies = layouts(plan, shapes, types)
        dead = last_uses(plan)
        values = dict(enumerate(arrays))
        for op in plan.ops:
            announce(f"%{op.out} = {call_text(op)}")
            read = op.sources
            slots = list(dict.fromkeys(read))
            alone = Program(
                equation="",
                backend=plan.backend,
                device=plan.device,
                operands=tuple(lies[slot] for slot in slots),
                path=(),
                ops=(op.renamed({slot: place for place, slot in enumerate(slots)}),),
                result=op.out,
                shape=shapes[op.out],
                dtype=types[op.out],
            )
            kernel = self.adapter.kernel(op, [shapes[slot] for slot in read], types[read[0]])
            run = self.adapter.prepare(kernel, alone)
            seconds, values[op.out] = self.timed(run, [values[slot] for slot in read])
            yield seconds
            for slot in dead.get(op.out, ()):
                del values[slot]

    def timed(self, run: Run, arrays: Sequence[Array]) -> tuple[float, Array]:
        """The median time of a call until its result is there, and that result."""
        for _ in range(2):  # the first calls compile, and touch memory for the first time
            result = run(*arrays)
            self.adapter.synchronize(result)
        times: list[float] = []
        end = self.clock() + self.seconds
        while len(times) < _LEAST or (self.clock() < end and len(times) < _MOST):
            start = self.clock()
            result = run(*arrays)
            self.adapter.synchronize(result)
            times.append(self.clock() - start)
        return median(times), result


def _op_profiles(plan: Program, adapter: Adapter, traits: Traits, times: Sequence[float]) -> Iterator[OpProfile]:
    rates = traits.rates
    costs = program_cost(plan, adapter).ops
    shapes = replay(plan.ops, [operand.shape for operand in plan.operands])
    types = slot_dtypes(plan)
    lies = layouts(plan, shapes, types)
    for op, cost, seconds in zip(plan.ops, costs, times):
        predicted = op_seconds(op, [lies[slot] for slot in op.sources], traits)
        slots = {*op.sources, op.out} if cost.allocated else ()
        nbytes = sum(prod(shapes[slot]) * itemsize(types[slot]) for slot in slots)
        traffic = nbytes / max(rates.stream, rates.copy)
        multiplied = cost.multiply_adds if isinstance(op, Matmul | Native) else 0
        work = multiplied * arithmetic(cost.dtype) / rates.gemm
        yield OpProfile(op, cost.shape, cost.dtype, seconds, predicted, cost.multiply_adds, nbytes, work, traffic)
