"""Known deviations of MLX's own einsum, and of einsumx on MLX."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "mlx": listed(
        r"""
    MLX does not tell that it differentiates, so it differentiates the blocks of a contraction under a memory limit
    itself, and adds their gradients in half precision. [sometimes]
        memory limit/* bfloat16|float16 gradients
        memory limit/* float16 float32 gradients
    """
    ),
}
