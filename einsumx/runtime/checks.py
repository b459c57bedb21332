"""Checks of programs that may come from anywhere, against their backend's traits, before a framework runs them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from einsumx.adapters.registry import get_backend
from einsumx.adapters.traits import Traits
from einsumx.errors import BackendError, EinsumxError, excerpt
from einsumx.ir.cost import layouts, slot_dtypes
from einsumx.ir.layout import reshaped
from einsumx.ir.meaning import check_fields, check_meaning
from einsumx.ir.ops import (
    Cast,
    Copy,
    Diagonal,
    Expand,
    First,
    Matmul,
    Multiply,
    Native,
    Op,
    Reshape,
    Scale,
    Sum,
    Transpose,
    Zeros,
)
from einsumx.ir.program import Operand, Program
from einsumx.ir.verify import replay
from einsumx.runtime.request import adapter_in

__all__ = ["check_fits", "check_plan", "computed_in"]


def check_plan(program: Program) -> None:
    """Check a program's fields, and that it computes its equation.

    Raises:
        EinsumxError: a field has an invalid value, or the ops do not compute the equation.
    """
    check_fields(program)
    check_meaning(program, computed_in(program))


def computed_in(program: Program) -> set[str]:
    """The wider dtypes in which a program's backend computes its result's dtype; empty for an unknown backend."""
    with suppress(BackendError):
        adapter = adapter_in(get_backend(program.backend), program.semiring)
        traits = adapter.traits(program.device)
        return {wide for name, wide in (*traits.widen, *traits.matmul_through) if name == program.dtype}
    return set()


def check_fits(program: Program, traits: Traits) -> None:
    """Check that a backend with these traits can run a program's ops.

    Adapters rely on it: they ignore, for example, flags of a product that their traits exclude.

    Raises:
        EinsumxError: it cannot run one.
    """
    shapes = replay(program.ops, [operand.shape for operand in program.operands])
    slots = layouts(program, shapes, slot_dtypes(program))
    for op in program.ops:
        if not _fits(op, [slots[slot] for slot in op.sources], traits):
            raise EinsumxError(
                f"{program.backend} cannot run {excerpt(str(op))}, an op of this plan; make the plan again"
            )


def _fits(op: Op, sources: Sequence[Operand], traits: Traits) -> bool:
    """Whether a backend can run an op on such sources, and returns a view exactly where the op says so."""
    shapes, dtype, strides = [source.shape for source in sources], sources[0].dtype, sources[0].strides
    match op:
        case Expand() | First():
            return traits.strided
        case Reshape():
            return strides is None or not traits.strided or reshaped(shapes[0], strides, op.shape) is not None
        case Transpose():
            most = traits.max_transpose_axes
            return bool(op.reason) != traits.strided and (most is None or len(op.axes) <= most)
        case Diagonal():
            return bool(op.reason) != traits.strided
        case Sum():
            return traits.max_sum_axes is None or len(shapes[0]) <= traits.max_sum_axes
        case Matmul():
            batch = max(map(len, shapes)) - 2 - op.inner_batch
            asks_flags = op.transpose_lhs or op.transpose_rhs
            loops = traits.batch_layout == "strided"  # over all batch axes but one
            return (
                dtype in traits.matmul_dtypes
                and (traits.transpose_flags or not asks_flags)
                and (traits.inner_batch or not op.inner_batch)
                and (not op.threads or dtype in traits.pool_products)
                and (not op.sums or ((dtype, op.sums) in traits.wide_products and min(map(len, shapes)) > 1))
                and (batch >= traits.min_batch_axes or (traits.strided and min(map(len, shapes)) == 1))
                and (loops or traits.max_batch_axes is None or batch <= traits.max_batch_axes)
                and (traits.broadcasts_batch or shapes[0][:-2] == shapes[1][:-2] or op.inner_batch)
            )
        case Native():
            labels = set(op.equation) - set(",->")
            return (
                dtype in traits.native_dtypes
                and len(labels) <= traits.native_max_labels
                and (len(op.operands) <= max(traits.native_max_operands, 2))
            )
        case Scale():
            return traits.strided and dtype not in ("bool", *dict(traits.widen))
        case Copy() | Cast() | Multiply() | Zeros():
            return True
