"""Repeated calls under a memory limit: planned once for all plain arrays of the same signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from einsumx.adapters.arrays import Arrays
from einsumx.adapters.base import Adapter, Array, Run, Signature
from einsumx.adapters.facets import BlockAccess, blocks_of
from einsumx.blocked.plan import blocked_program
from einsumx.blocked.program import BlockedContraction
from einsumx.caches import Uncacheable
from einsumx.imports import LazyModule
from einsumx.ir.sizes import is_known
from einsumx.runtime import front
from einsumx.runtime.conversion import check_byte_order, described, one_device
from einsumx.runtime.limits import limit_bytes
from einsumx.runtime.request import Request
from einsumx.storage.maps import mapping
from einsumx.streaming.readers import InPlace
from einsumx.streaming.run import Limited, plan_within, run_blocks
from einsumx.streaming.writers import Output

if TYPE_CHECKING:
    from einsumx.streaming import gradients as recording
else:
    recording = LazyModule("einsumx.streaming.gradients")


def _checks(adapter: Adapter, blocks: BlockAccess) -> list[Callable[[Array], object]]:
    """The functions to call with each array, as far as a framework has something to check or to wait for."""
    checks: list[Callable[[Array], object]] = []
    if type(blocks).check_eager is not BlockAccess.check_eager:
        checks.append(blocks.check_eager)
    if type(adapter).synchronize is not Arrays.synchronize:
        checks.append(adapter.synchronize)
    return checks


def ready(request: Request, adapter: Adapter, signatures: Sequence[Signature]) -> Run:
    """A function that computes a contraction of plain arrays of these signatures within its limit.

    It plans again what a plan for signatures does not fit: memory maps, lazy arrays and arrays that ask for gradients.

    Args:
        request: the call, in the framework's terms; its own operands are not used.
        adapter: of the arrays.
        signatures: of the arrays.

    Raises:
        Uncacheable: such a call is planned each time.
        EinsumxError: as :func:`einsumx.einsum` does.
    """
    limit = request.limit
    if not limit.is_lasting or request.out is not None or request.factors is not None or request.order != "K":
        raise Uncacheable
    device, blocks = one_device(adapter, signatures), blocks_of(adapter)
    if request.casting == "no":
        check_byte_order([signature[2] for signature in signatures])
    operands = described(adapter, signatures)
    if not all(is_known(operand.shape) for operand in operands):  # of a trace, which makes them known
        raise Uncacheable
    contraction = front.contraction(request, adapter, operands, device)
    output, most = Output(adapter, (), None), limit_bytes(limit.amount, lambda: None)
    in_place = adapter.cpu.strided
    is_view = in_place and contraction.equation.is_rearrangement and operands[0].dtype == contraction.dtype
    footprint = output.footprint(contraction, is_view=is_view)
    program = blocked_program(
        adapter,
        BlockedContraction(
            contraction, most, (in_place,) * len(operands), footprint, (None,) * len(operands),
            is_path_free=request.is_path_free,
        ),
    )  # fmt: skip
    may_be_mapped, gradients, loops = adapter.name == "numpy", adapter.gradients, adapter.loops
    is_lazy = None if type(blocks).is_lazy is BlockAccess.is_lazy else blocks.is_lazy
    checks = _checks(adapter, blocks)

    def run(*arrays: Array) -> Any:  # it enters few functions, as a call may be small
        if loops is not None and loops.is_traced(arrays):
            return recording.recorded(replace(request, operands=arrays))
        for check in checks:
            for array in arrays:
                check(array)
        opened = []
        for array, operand in zip(arrays, operands):
            if (
                (may_be_mapped and array.base is not None and mapping(array) is not None)
                or (gradients is not None and gradients.may_be_needed(array))
                or (is_lazy is not None and is_lazy(array))
            ):
                return recording.recorded(replace(request, operands=arrays))
            opened.append(InPlace(array, adapter, operand))

        def within(less: int) -> Limited:
            less_memory = replace(limit, amount=less, device=device)
            return plan_within(replace(request, operands=arrays, memory_limit=less_memory))

        target = output.target(program, request.casting)
        return run_blocks(Limited(program, adapter, opened, target, most - footprint.cut, within, operands=arrays))

    return run
