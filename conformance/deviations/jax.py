"""Where JAX's own einsum deviates."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "jax.numpy:einsum": (
        Deviation(
            r"""
            forms/ij,\tjk\n->ik *
            """,
            "Of all blanks, JAX takes spaces alone.",
        ),
        Deviation(
            """
            sublists/[None*
            sublists/['z',0]*
            """,
            "JAX reads equations with opt_einsum, which sorts the labels of sublists: they must have an order.",
        ),
        Deviation(
            "known faults/* dtype=*",
            "JAX's einsum has preferred_element_type= in the place of dtype=.",
        ),
    ),
}
