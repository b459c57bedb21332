"""What einsumx asks of a framework: twelve primitives, the framework's traits, and what else it can.

A new backend is one file with one subclass of :class:`Adapter`; see ``backends/`` for examples and the
README for how to register it. Constructing an adapter imports nothing: ``self.xp`` is the framework,
imported when it is first touched, so that plans for a framework can be made where it is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from einsumx.adapters.dialect import Spelling
from einsumx.adapters.facets import BlockAccess, Gradients, Replaced, Results, Transfers
from einsumx.adapters.primitives import Primitives
from einsumx.adapters.typing import Array, Run, Signature
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

__all__ = ["Adapter", "Array", "Run", "Signature"]


class Adapter(Replaced, Gradients, Transfers, BlockAccess, Results, Primitives):
    """A framework as einsumx sees it. Subclass, set the class attributes, override the primitives.

    Every primitive is written against the names that NumPy and the array API standard share, so that
    a subclass overrides only where its framework differs. What else a framework can is in classes beside them:
    results, blocks, transfers, gradients, and the names of its own einsum.
    """

    def serving(self, kind: type) -> Adapter:
        """The adapter for arrays of this type: this one, but for a backend that is one for several kinds of them."""
        return self

    def kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        """The function that executes ``op`` on its sources, an argument each: here, the primitive of its name.

        Overridden where the sizes decide how an op runs best: it is asked once a plan, and called at every run.

        Args:
            op: what to execute.
            shapes: of its sources.
            dtype: of its first source, which is that of all.
        """
        match op:
            case Transpose():
                transpose, axes = self.transpose, op.axes
                return lambda source: transpose(source, axes)
            case Reshape():
                reshape, shape = self.reshape, op.shape
                return lambda source: reshape(source, shape)
            case Expand():
                return lambda source: self.expand(source, op.shape)
            case First():
                ranks = range(len(shapes[0]))
                index = (*(0 if axis in op.axes else slice(None) for axis in ranks), ...)  # an array, even without axes
                return lambda source: source[index]
            case Diagonal():
                return lambda source: self.diagonal(source, op.axis1, op.axis2)
            case Copy():
                return self.copy
            case Cast():
                return lambda source: self.cast(source, op.dtype)
            case Sum():
                return lambda source: self.sum(source, op.axes)
            case Scale():
                return lambda source: self.scale(source, op.count)
            case Multiply():
                return self.multiply
            case Matmul():
                matmul, transpose_lhs, transpose_rhs = self.matmul, op.transpose_lhs, op.transpose_rhs
                return lambda lhs, rhs: matmul(lhs, rhs, transpose_lhs, transpose_rhs)
            case Native():
                return lambda *arrays: self.native(op.equation, arrays)
            case Zeros():
                return lambda *arrays: self.zeros(arrays, op.shape, op.dtype)

    def workspace(self, op: Op, operands: Sequence[Operand]) -> int:
        """Bytes that the kernel of ``op`` allocates while it runs, at most, besides its result.

        It is asked of plans for frameworks that are not installed, too.

        Args:
            op: what is executed.
            operands: its sources; strides are those of their layout class.
        """
        return 0

    def prepare(self, run: Run, plan: Program) -> Run:
        """A last chance to wrap what executes a plan, or a part of it: to jit it, or to set a mode around it."""
        return run

    def spelling(self) -> Spelling:
        """How the framework's calls are spelled in code, for :meth:`einsumx.Plan.source`.

        The default spells the defaults of the primitives here; where a primitive is overridden, its spelling is, too.
        """
        return Spelling(self.module)
