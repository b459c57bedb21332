"""Programs on arrays: the check that operands fit, retargeting, and the function that runs them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from einsumx.adapters.base import Adapter, Array, Run
from einsumx.adapters.registry import get_backend
from einsumx.caches import cached
from einsumx.errors import SizeError, counted, excerpt
from einsumx.ir.cost import PlanCost
from einsumx.ir.layout import contiguous
from einsumx.ir.operand import Operand
from einsumx.ir.program import Program
from einsumx.ir.sizes import is_known
from einsumx.ir.text import plan_text
from einsumx.ir.verify import verify
from einsumx.planner import path
from einsumx.planner.search import MOST_OF_ALL_ORDERS, pace_of
from einsumx.runtime.conversion import arrays_of, check_operand, described, one_device
from einsumx.runtime.execute import run_of
from einsumx.runtime.front import moved
from einsumx.runtime.prepare import by_contraction, plan


def retarget(program: Program, backend: str, device: str = "") -> Program:
    """The same contraction along the same path, lowered for another backend."""
    return plan(moved(program.contraction, get_backend(backend), device), get_backend(backend), is_path_free=False)


def program_text(program: Program, cost: PlanCost) -> str:
    """A program as text; for many operands with what its path takes, and which search found it."""
    text = plan_text(program, cost)
    if len(program.operands) <= MOST_OF_ALL_ORDERS:
        return text
    contraction = program.contraction
    pace = pace_of(contraction.place.traits, contraction.dtype)
    return f"{text}\n{path.path_text(contraction.equation, contraction.path, pace)}"


def run_program(program: Program, operands: Sequence[Any]) -> Array:
    """Run a program, retargeted if the operands need it.

    They do if they belong to another framework, or if they are not broadcast along an axis along which the program
    assumes it. A program with unknown sizes is lowered for those of the operands, along the same path.

    Raises:
        SizeError: the number of operands or their shapes are not the program's.
        BackendError: their dtypes are not, or they belong to two frameworks.
    """
    adapter, arrays = arrays_of(list(operands), None)
    if len(arrays) != len(program.operands):
        raise SizeError(
            f"the plan takes {counted(len(program.operands), 'operand')}, not {len(arrays)}\n  "
            f"{excerpt(program.written)}"
        )
    signatures = tuple(map(adapter.signature, arrays))
    device = one_device(adapter, signatures)
    actual = described(adapter, signatures)
    for number, (operand, planned) in enumerate(zip(actual, program.operands)):
        check_operand(number, operand, planned, program.written)
        if not is_known(operand.shape) and is_known(planned.shape):
            arrays[number] = _in_shape(adapter, number, arrays[number], planned, program.written)
    if not is_known(program.contraction.equation.sizes):
        asked = moved(program.contraction, adapter, device, actual)
        settings = None, asked.operands is not actual, False, False, adapter.planning_mode(device)
        return by_contraction(asked, adapter, *settings).run(*arrays)
    fits = adapter.name == program.backend and all(map(is_as_broadcast, actual, program.operands))
    run: Run = _verified_run(program, adapter, device, fits, adapter.planning_mode(device))
    return run(*arrays)


def _in_shape(adapter: Adapter, number: int, array: Array, planned: Operand, text: str) -> Array:
    """An operand with sizes that a tracer does not know, after a check that they are the planned ones."""
    for axis, size in enumerate(planned.shape):
        message = f"operand {number} has another size along axis {axis} than {size}, for which the plan is made"
        array = adapter.with_size(array, axis, size, f"{message}\n  {excerpt(text)}")
    return array


def is_as_broadcast(operand: Operand, planned: Operand) -> bool:
    """Whether an operand has stride 0 along every axis along which the program assumes stride 0."""
    strides = operand.strides or contiguous(operand.shape)
    axes = zip(planned.shape, planned.strides or (), strides)
    return not any(size > 1 and not assumed and stride for size, assumed, stride in axes)


@cached("runs")
def _verified_run(program: Program, adapter: Adapter, device: str, fits: bool, _: Hashable) -> Run:
    """The function that runs a program on a device in :meth:`~einsumx.adapters.arrays.Arrays.planning_mode`."""
    verify(program)
    here, there = [program.algebra.traits(adapter, each) for each in (device, program.device)]
    if not fits or here != there:
        program = retarget(program, adapter.name, device)
    return run_of(program, adapter)
