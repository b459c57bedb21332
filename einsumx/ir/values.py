"""The values of a program: the shape, dtype, strides and number of stored elements of each slot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from einsumx.errors import EinsumxError, excerpt
from einsumx.ir.fill import sparse_work
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Op


def described(ops: Iterable[Op], operands: Sequence[Operand]) -> tuple[Operand, ...]:
    """The values of the operands and of the ops, by slot: the ``k``-th op writes the ``k``-th slot after the operands.

    Raises:
        EinsumxError: an op reads a slot that is not written yet, writes another one than the next, or does not fit the
            shapes of its sources.

    >>> from einsumx.ir.ops import Matmul, Transpose
    >>> operands = Operand((2, 3), "float32"), Operand((4, 3), "float32")
    >>> described([Transpose(2, 1, (1, 0)), Matmul(3, 0, 2)], operands)[2:]
    (Operand(shape=(3, 4), dtype='float32', strides=(1, 3)), Operand(shape=(2, 4), dtype='float32'))
    """
    values = dict(enumerate(operands))
    for op in ops:
        try:
            sources = [values[slot] for slot in op.sources]
        except KeyError as missing:
            raise EinsumxError(f"{excerpt(str(op))}: slot %{missing} is read before it is written") from None
        if op.out != len(values):
            raise EinsumxError(f"{excerpt(str(op))}: slot %{op.out} is written out of order")
        values[op.out] = result_of(op, sources)
    return tuple(values.values())


def result_of(op: Op, sources: Sequence[Operand]) -> Operand:
    """The value that an op makes: C-contiguous, unless the op is a view or a cast; if sparse, with an estimated fill.

    Raises:
        EinsumxError: the op does not fit the shapes of its sources.
    """
    first = sources[0]
    shape = op.result_shape([source.shape for source in sources])
    strides = op.result_strides(first.shape, first.strides)
    estimate = sparse_work(op, sources, shape)
    return Operand(shape, op.result_dtype(first.dtype), strides, nnz=None if estimate is None else estimate.nnz)
