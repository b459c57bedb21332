"""Facts about a framework that its adapter declares and the planner reads.

The planner never checks which framework it plans for.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal, NamedTuple, TypeAlias

from einsumx.dtypes import NAMED, kind
from einsumx.ir.ops import Threads
from einsumx.ir.rates import Rates
from einsumx.ir.records import record

MatrixLayout: TypeAlias = Literal["strided", "contiguous", "C"]
"""Which matrices are read without a copy; see :class:`Layouts`."""

ArrayKind: TypeAlias = Literal["strided", "packed", "einsum"]
"""How arrays lie in memory; see :attr:`Traits.arrays`."""

WideOp: TypeAlias = Literal["sum", "dot", "matmul", "batch"]
"""An op that may accumulate in a wider dtype; see :attr:`Traits.wide_ops`."""

PRODUCTS: frozenset[WideOp] = frozenset(("dot", "matmul", "batch"))

AROUND_BATCH = {
    (False, False): "abcd,adce->abce",
    (False, True): "abcd,aecd->abce",
    (True, False): "abcd,abce->adce",
    (True, True): "abcd,aecb->adce",
}
"""The einsums of ``[batch, rows, inner batch, summed]`` and ``[batch, summed, inner batch, columns]``, by whether the
axes of each matrix are swapped. They may be products of matrices where these lie; see :meth:`Traits.einsum_factor`."""

LongSide: TypeAlias = Literal["either", "left", "in order"]
"""Where a matmul is faster with its longer operand; see :attr:`Traits.long_side`."""

BLAS = frozenset({"float32", "float64", "complex64", "complex128"})
"""The dtypes of BLAS."""

INTEGERS = frozenset(name for name in NAMED if kind(name) in "iu")
HALVES = frozenset({"float16", "bfloat16"})


class Layouts(NamedTuple):
    """Which operands of one dtype a matmul of strided arrays reads without a copy.

    ``"strided"``: each matrix has one unit stride, and the other stride is at least the size of that axis.
    ``"contiguous"``: the operand is C- or F-contiguous. ``"C"``: it is C-contiguous.

    Attributes:
        matrix: of a matmul of two axes.
        batch: of a matmul with batch axes. ``"strided"``: these have any strides, 0 included. ``"C"``: the adapter
            multiplies pair by pair if an operand is not C-contiguous and ``matrix`` allows each of its matrices.
        tiny: a matmul with one batch axis reads matrices with any strides if each product has fewer multiply-adds.
    """

    matrix: MatrixLayout = "strided"
    batch: MatrixLayout = "strided"
    tiny: int = 0


_STRIDED = Layouts()


@record
class Traits:
    """Facts about one framework on one kind of device.

    Dtypes have NumPy's names (``"float32"``, ``"bfloat16"``). What only one framework does differently is a method,
    which a subclass in its backend overrides.
    """

    arrays: ArrayKind = "strided"
    """How arrays lie in memory, and so how a pair is computed.

    ``"strided"``: a transpose is a view, and so is a reshape that merges adjacent axes.

    ``"packed"``: every array is C-contiguous, a transpose copies, and a reshape is free.

    ``"einsum"``: as packed ones, but the framework's own einsum of a pair compiles to its best product, whatever the
    axes. A product of two terms in one of ``native_dtypes`` is one call of it then, also if it only broadcasts, and so
    is a diagonal with a sum. No step merges axes, so that sharded axes stay as they are."""

    views: bool = True
    """The framework's own einsum returns views of its operand for pure rearrangements."""

    dtypes: frozenset[str] | None = None
    """The dtypes that einsum computes in (None: those that the adapter accepts)."""

    max_batch_axes: int | None = None
    """How many batch axes one matmul takes (None: any number); plans without strides merge more into one. With strides,
    the adapter accepts more and loops over all but the largest, if batches may have any (:meth:`layouts`)."""

    transpose_flags: bool = False
    """Matmul has flags that transpose a contiguous operand; set if a transpose is not a view."""

    long_side: LongSide = "either"
    """Where a matmul with many more rows than columns, or the reverse, is faster with its longer operand: on the left,
    unless the sum is long or the other side short (``"left"``); on the right if that operand has its
    longer axis last in memory, and otherwise on the left (``"in order"``); or on either side."""

    outer_by_matmul: bool = False
    """An outer product is faster as a matmul over an axis of size 1, because multiply is slow to broadcast."""

    multiply_broadcasts: bool = False
    """Multiply broadcasts any axes, in any order. Set for packed arrays: otherwise an elementwise product is made of
    axes that are merged into three."""

    dots_by_sum: bool = False
    """Dot products of many pairs of rows are faster as a multiplication and a sum, because a batched matmul is slow
    for single rows. Used for dtypes that need no wider one."""

    matmul_dtypes: frozenset[str] = frozenset()
    """Dtypes that matmul computes in directly."""

    matmul_through: tuple[tuple[str, str], ...] = ()
    """``(dtype, other)``: a product of ``dtype`` is a matmul in ``other`` whose result is cast back.
    For bool, a nonzero sum of ands is an or of ands."""

    exact_products: tuple[tuple[str, int], ...] = ()
    """``(float dtype, bits)``, the fastest first: a contraction of integers with a result of a wider integer dtype is
    computed in the first of these floats in which it is provably exact, because products of floats are faster than
    those of integers. ``bits`` is how many bits of each factor a product reads for certain, which may be fewer than the
    float has: some frameworks have settings that round the factors of a float32 product to 8 bits."""

    wide_products: tuple[tuple[str, str], ...] = ()
    """``(dtype, wider)``: integer dtypes of which a matmul sums the products in a wider one, without casts of the
    operands; and floats of which it multiplies a matrix by a complex one on the right. The kernel gets an op with that
    dtype."""

    widen: tuple[tuple[str, str], ...] = ()
    """``(dtype, wider)``: dtypes whose sums and intermediates must be kept in ``wider``."""

    wide_ops: frozenset[WideOp] = frozenset()
    """The ops that accumulate float16 and bfloat16 in the wider dtype by themselves, and round once: a sum, a matmul of
    two vectors (``"dot"``), of matrices (``"matmul"``), and of batches of matrices (``"batch"``)."""

    native_dtypes: frozenset[str] = frozenset()
    """Dtypes for which the planner may use the framework's own einsum kernel where matmul does not apply."""

    native_any_labels: bool = False
    """That einsum handles diagonals and operands without labels correctly, gradients included."""

    native_max_labels: int = 0
    """The most labels that it takes."""

    native_max_operands: int = 0
    """The most operands that it takes."""

    rates: Rates = field(default_factory=Rates)
    """The framework's speed."""

    def __post_init__(self) -> None:
        for name in ("matmul_through", "widen"):
            pairs: Any = getattr(self, name)
            if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
                raise TypeError(
                    f"Traits({name}=) must be a tuple of pairs, as (('float16', 'float32'),), not {pairs!r}"
                )
        if not isinstance(self.rates, Rates):
            raise TypeError(f"Traits(rates=) must be einsumx.ir.rates.Rates(...), not {self.rates!r}")

    @property
    def strided(self) -> bool:
        """Whether arrays have strides."""
        return self.arrays == "strided"

    def layouts(self, dtype: str) -> Layouts:
        """Which operands of ``dtype`` a matmul reads without a copy; asked only if arrays are strided."""
        return _STRIDED

    def einsum_factor(self, equation: str) -> float | None:
        """How many times as long as matmuls of contiguous matrices the framework's own einsum of a pair takes.

        None if it is no product of matrices, but loops over all labels.
        """
        return 1.0 if self.arrays == "einsum" else None

    def threads(self, dtype: str) -> tuple[Threads, ...]:
        """Whose threads a long matmul of ``dtype`` may run on; measured plans try each."""
        return ("",)

    def compute_dtype(self, dtype: str) -> str:
        """The dtype of sums and intermediates of a result of ``dtype``: narrow ones are kept in a wider one."""
        return dict(self.widen).get(dtype, dtype)

    def __hash__(self) -> int:
        """Of a few fields, as traits are part of the keys of caches."""
        return hash((self.arrays, self.max_batch_axes, self.rates.call, self.rates.gemm))
