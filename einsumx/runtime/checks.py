"""Plans that may come from anywhere, checked before a framework runs them, beside what their backend declares."""

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
    sources,
)
from einsumx.ir.program import Operand, Program
from einsumx.ir.verify import replay

__all__ = ["check_fits", "check_plan", "computed_in"]


def check_plan(plan: Program) -> None:
    """Check a plan that may come from anywhere: its fields, and that it computes its equation.

    The planner's own plans are not checked when they are made; they are when they are called or stored and read.

    Raises:
        EinsumxError: a field has a value that it must not have, or the ops do not compute the equation.
    """
    check_fields(plan)
    check_meaning(plan, computed_in(plan))


def computed_in(plan: Program) -> set[str]:
    """The dtypes in which the backend of a plan computes what has the dtype of its result, by its traits.

    There are none where the backend is not here.
    """
    with suppress(BackendError):
        traits = get_backend(plan.backend).traits(plan.device)
        return {wide for name, wide in (*traits.widen, *traits.matmul_through) if name == plan.dtype}
    return set()


def check_fits(plan: Program, traits: Traits) -> None:
    """Check that the backend of a plan that may come from anywhere has what its ops ask for.

    An adapter does not look at what its traits rule out, such as the flags of a product.

    Raises:
        EinsumxError: it has not.
    """
    shapes = replay(plan.ops, [operand.shape for operand in plan.operands])
    lies = layouts(plan, shapes, slot_dtypes(plan))
    for op in plan.ops:
        if not _fits(op, [lies[slot] for slot in sources(op)], traits):
            raise EinsumxError(f"{plan.backend} cannot run {excerpt(str(op))}, an op of this plan; make the plan again")


def _fits(op: Op, read: Sequence[Operand], traits: Traits) -> bool:
    """Whether a backend with these traits runs an op, and takes for a view what the plan takes for one."""
    shapes, dtype, strides = [each.shape for each in read], read[0].dtype, read[0].strides
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
            return (
                dtype in traits.matmul_dtypes
                and (traits.transpose_flags or not asks_flags)
                and (traits.inner_batch or not op.inner_batch)
                and (batch >= traits.min_batch_axes or (traits.strided and min(map(len, shapes)) == 1))
                and (traits.batch_strides or traits.max_batch_axes is None or batch <= traits.max_batch_axes)
                and (traits.batch_strides or shapes[0][:-2] == shapes[1][:-2] or op.inner_batch)
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
