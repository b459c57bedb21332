"""Time a plan op by op, for comparison with the planner's cost model and the machine's roofline.

Each op is repeated on the same arrays, so that small ones are in the processor's caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from math import prod

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.registry import get_backend
from einsumx.cli.side_by_side import Problem, library_of, placed, random_operands, why_absent
from einsumx.dtypes import itemsize, kind
from einsumx.errors import BackendError, EinsumxError, excerpt
from einsumx.ir import ops
from einsumx.ir.bind import SizedEquation
from einsumx.ir.contraction import Contraction, Place
from einsumx.ir.cost import op_seconds, program_cost
from einsumx.ir.cost_model import relative_work
from einsumx.ir.operand import Operand
from einsumx.ir.program import Program, last_uses
from einsumx.ir.rates import Rates
from einsumx.ir.traits import Traits
from einsumx.measuring.calibration import calibrated, declared
from einsumx.measuring.machine import watched
from einsumx.measuring.steady import timed
from einsumx.planner.path import Optimize
from einsumx.runtime.conversion import arrays_of
from einsumx.runtime.equations import sized_equation
from einsumx.runtime.prepare import prepare
from einsumx.runtime.request import Request

_SECONDS, _MOST = 0.1, 2000
"""How long the plan and each of its ops are repeated, and how often at most."""


@dataclass(frozen=True, slots=True)
class OpProfile:
    """The cost of one op.

    Attributes:
        op: an op of the plan.
        shape, dtype: of its result.
        seconds: the least time.
        predicted: the time that the cost model predicts, in seconds.
        multiply_adds: its arithmetic.
        nbytes: bytes of the arrays that it reads and writes; 0 for a view.
        arithmetic: the least seconds for its arithmetic at the machine's rates; 0 if it is no product.
        traffic: the least seconds for its memory traffic.
    """

    op: ops.Op
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
        """The roofline: the least possible time in seconds; 0 for a view."""
        return max(self.arithmetic, self.traffic)

    @property
    def flops(self) -> float:
        """Floating-point operations a second; a complex multiply-add counts as eight, others as two."""
        return self.multiply_adds * (8 if kind(self.dtype) == "c" else 2) / self.seconds

    @property
    def call(self) -> str:
        """The op as a plan prints it."""
        return f"%{self.op.out} = {self.op.text}"

    @property
    def share(self) -> float | None:
        """The roofline over the measured time; None for a view."""
        return self.floor / self.seconds if self.floor else None


@dataclass(frozen=True, slots=True)
class Profile:
    """The cost of a plan.

    Attributes:
        problem: the problem.
        program: the plan's data.
        device: where it ran.
        library, version: the library that computed.
        rates: the rates of the cost model.
        is_calibrated: whether these were measured on this machine; otherwise the backend declares them.
        seconds: the least time of the whole plan.
        ops: the cost of each op.
        disturbances: a sentence on each thing that kept the machine busy meanwhile; empty on a quiet machine.
    """

    problem: Problem
    program: Program
    device: str
    library: str
    version: str
    rates: Rates
    is_calibrated: bool
    seconds: float
    ops: tuple[OpProfile, ...]
    disturbances: tuple[str, ...]

    @property
    def sum_of_ops(self) -> float:
        """The seconds of all ops, run one by one."""
        return sum(op.seconds for op in self.ops)

    @property
    def predicted(self) -> float:
        """The predicted seconds of all ops."""
        return sum(op.predicted for op in self.ops)

    @property
    def floor(self) -> float:
        """The roofline of all ops in seconds."""
        return sum(op.floor for op in self.ops)

    @property
    def share(self) -> float | None:
        """The roofline over the measured time; None if all ops are views."""
        return self.floor / self.seconds if self.floor else None


def profile(
    problem: Problem,
    backend: str,
    device: str = "",
    optimize: Optimize = "auto",
    *,
    announce: Callable[[str], None] = lambda _: None,
) -> Profile:
    """Run a contraction of random operands op by op.

    Args:
        problem: the contraction.
        backend: the name of the backend.
        device: the device of the operands; empty for the framework's default.
        optimize: the path, as for :func:`einsumx.einsum`.
        announce: called with a description of each measurement before it starts.

    Raises:
        EinsumxError: the equation is wrong, or an axis has size 0.
        BackendError: the framework or the device is missing.
    """
    sized = sized_equation(problem.equation, problem.shapes)
    if 0 in sized.sizes:
        raise EinsumxError(f"an axis has size 0, so there is nothing to measure\n  {excerpt(sized.text)}")
    adapter, arrays = arrays_of(random_arrays(backend, problem, device), None)
    prepared = prepare(Request(problem.equation, (), optimize=optimize), adapter, arrays)
    program = prepared.program
    traits = calibrated(adapter, program.device)
    announce(sized.text)
    with watched() as watch:
        whole, _ = timed(adapter, prepared.run, arrays, _SECONDS, _MOST)
        op_profiles = tuple(_op_profiles(program, arrays, adapter, traits, announce))
    library, version = library_of(adapter)
    return Profile(
        problem=problem,
        program=program,
        device=program.device,
        library=library,
        version=version,
        rates=traits.rates,
        is_calibrated=traits.rates != declared(adapter, program.device).rates,
        seconds=whole,
        ops=op_profiles,
        disturbances=tuple(watch.reasons),
    )


def random_arrays(backend: str, problem: Problem, device: str) -> list[Array]:
    """Operands of a problem, as arrays of a backend.

    Raises:
        BackendError: the framework or the device is missing.
    """
    adapter = get_backend(backend)
    absent = why_absent(adapter, problem.dtype, device)
    if absent is not None:
        reason = ": ".join(filter(None, (absent.reason, absent.install)))
        raise BackendError(f"{backend} cannot be measured here: {reason}")
    return [placed(adapter, operand, problem.dtype, device) for operand in random_operands(problem)]


def program_of_ops(place: Place, operands: Sequence[Operand], calls: Sequence[ops.Op], result: Operand) -> Program:
    """Ops by themselves as a program; its equation has a label for each axis of the operands and of the result."""
    labels = count()
    shapes = [each.shape for each in (*operands, result)]
    *inputs, output = [tuple(islice(labels, len(shape))) for shape in shapes]
    equation = SizedEquation("", tuple(inputs), output, tuple(chain(*shapes)), tuple(shapes[:-1]))
    return Program(Contraction(equation, tuple(operands), result.dtype, (), place), tuple(calls), calls[-1].out)


def _op_profiles(
    program: Program, arrays: Sequence[Array], adapter: Adapter, traits: Traits, announce: Callable[[str], None]
) -> Iterator[OpProfile]:
    """Time each op, with the results of the earlier ops as operands."""
    described = program.values
    dead = last_uses(program.calls, program.result)
    values = dict(enumerate(arrays))
    for op, cost in zip(program.ops, program_cost(program, adapter).ops):
        announce(f"%{op.out} = {op.text}")
        read, result = list(dict.fromkeys(op.sources)), described[op.out]
        renamed = op.renamed({slot: place for place, slot in enumerate((*read, op.out))})
        alone = program_of_ops(program.contraction.place, [described[slot] for slot in read], [renamed], result)
        sources = [described[slot] for slot in op.sources]
        kernel = adapter.kernel(op, [each.shape for each in sources], sources[0].dtype)
        inputs = [values[slot] for slot in op.sources]
        seconds, values[op.out] = timed(adapter, adapter.prepare(kernel, alone), inputs, _SECONDS, _MOST)
        for slot in dead.get(op.out, ()):
            del values[slot]
        touched = {*op.sources, op.out} if cost.allocated else ()
        nbytes = sum(prod(described[slot].shape) * itemsize(described[slot].dtype) for slot in touched)
        multiplied = cost.multiply_adds if isinstance(op, ops.Matmul | ops.Native) else 0
        yield OpProfile(
            op=op,
            shape=result.shape,
            dtype=result.dtype,
            seconds=seconds,
            predicted=op_seconds(op, sources, traits),
            multiply_adds=cost.multiply_adds,
            nbytes=nbytes,
            arithmetic=multiplied * relative_work(result.dtype, traits.rates) / traits.rates.gemm,
            traffic=nbytes / max(traits.rates.stream, traits.rates.copy),
        )
