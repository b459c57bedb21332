"""What a product in one dtype depends on in a framework."""

from __future__ import annotations

from functools import lru_cache

from einsumx.dtypes import FLOATS, kind
from einsumx.ir.cost_model import EINSUM_CALLS, CostModel, einsum_starts
from einsumx.ir.traits import Traits


class Rules:
    """What a product in one dtype depends on in a framework.

    Args:
        traits: of the framework.
        dtype: of the computation.

    Attributes:
        traits, rates: of the framework.
        model: how long its calls take.
        multiplies: it multiplies matrices in the dtype.
        has_matmul: it does, and the dtype has fractions.
        has_einsum: its own einsum computes in the dtype.
        has_loops: its own einsum computes small steps of networks in the dtype.
        batch, matrix, tiny: see :class:`~einsumx.ir.traits.Layouts`.
        takes: whether a product takes batch axes with any strides, and any number of them.
        rate: the multiply-adds per second of its own einsum in small arrays; 0 if there is none.
        is_packed: its arrays have no strides, and it multiplies matrices in the dtype by nothing but matmul.
        is_direct: the calls may be clear without a search: arrays are packed, or have strides and views, and products
            are computed in the dtype itself.
        is_inexact: the dtype has infinities and nan.
    """

    __slots__ = (
        "batch", "dtype", "has_einsum", "has_loops", "has_matmul", "is_direct", "is_inexact", "is_packed", "matrix",
        "model", "multiplies", "rate", "rates", "takes", "tiny", "traits",
    )  # fmt: skip

    def __init__(self, traits: Traits, dtype: str) -> None:
        self.dtype, self.is_inexact = dtype, kind(dtype) in "fc"
        self.traits, self.rates, self.model = traits, traits.rates, CostModel(traits, dtype)
        self.multiplies = dtype in traits.matmul_dtypes
        self.has_matmul = self.multiplies and dtype in FLOATS
        self.has_einsum = traits.rates.native > 0 and dtype in traits.native_dtypes
        layouts = traits.layouts(dtype)
        self.batch, self.matrix, self.tiny = layouts.batch, layouts.matrix, layouts.tiny
        self.takes = layouts.batch == "strided", layouts.batch == "strided" and traits.max_batch_axes is None
        self.rate = traits.rates.sweep or traits.rates.native
        self.has_loops = self.rate > 0 and dtype in traits.native_dtypes
        self.is_packed = traits.arrays == "packed" and self.multiplies and not traits.native_dtypes
        is_usual = traits.views if traits.strided else self.is_packed and not traits.views
        self.is_direct = is_usual and dtype not in dict(traits.widen)

    def is_tiny(self, steps: int, rows: float, labels: int, calls: int = 1) -> bool:
        """Whether the own einsum loops for less than the overhead of the calls that it saves, or of its own.

        Args:
            steps: multiply-adds.
            rows: about how often it runs its innermost loop, which has the least of the sizes of the last axes.
            labels: how many there are.
            calls: that compute the same.
        """
        overhead = self.rates.call * (calls - 1 or EINSUM_CALLS)
        if steps > overhead * self.rate:  # which may be more than a float holds
            return False
        return steps / self.rate + einsum_starts(rows, 1, labels - 1) * self.rates.run <= overhead

    def einsum_pays(self, steps: int, innermost: int, labels: int) -> bool:
        """Whether the own einsum is faster than the calls around a product of matrices, in an inner step.

        Args:
            steps: the multiply-adds.
            innermost: the size of the innermost loop.
            labels: how many there are.
        """
        seconds = _STEP_CALLS * self.rates.call
        if not self.has_loops or labels > self.traits.native_max_labels or steps > seconds * self.rate:
            return False
        return steps * (1 / self.rate + einsum_starts(1, 0, 3) * self.rates.run / innermost) <= seconds


_STEP_CALLS = 3
"""The calls of a product of matrices in an inner step: transposes, reshapes, copies."""


@lru_cache(maxsize=256)
def rules_of(traits: Traits, dtype: str) -> Rules:
    """What a product in a dtype depends on in a framework."""
    return Rules(traits, dtype)
