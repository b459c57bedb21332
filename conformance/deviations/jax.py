"""Known deviations of JAX's own einsum."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed
from einsumx.conformance.deviations.opt_einsum import PATTERNS

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "jax.numpy:einsum": (
        *listed(
            r"""
        JAX's einsum checks equations, diagonals and paths incompletely.
            READ_UNCHECKED
            known faults/* a diagonal of sizes 1 and 3
            wrong sizes/ii|ii->i|jii,j->i *
            !wrong sizes/ii->i (3,4) float32
            !wrong sizes/ii->i (3,4) float32 optimize=True
        Some random problems are products of three operands in half precision, which JAX rounds after each pair.
        [sometimes]
            random/*float16,*
        JAX's einsum accepts arrays and scalars but no lists.
            lists and scalars/*:exact *
            !lists and scalars/,-> *
        JAX parses equations with opt_einsum, whose error names the two sizes the wrong way round.
            known faults/* the wrong sizes are named
        JAX converts NumPy arrays to its own. [sometimes]
            two frameworks/*
        The only whitespace that JAX accepts is the space.
            forms/ij,\tjk\n->ik *
        JAX parses equations with opt_einsum, which sorts the labels of sublists, so they need an order.
            sublists/['z',0];[0,1]|[None,1.5];[1.5,True];[True,None] *
        JAX's einsum has preferred_element_type= instead of dtype=, and no casting= or order=.
            casting/*
            dtype/*
            known faults/* dtype=*|order=*
            order/*
            wrong keywords/*
            wrong out/*
        JAX's einsum first sums axes that only one operand has, so an infinity meets the 0 of an empty sum.
            zero sizes/*:inf|*:nan *
            !zero sizes/ij,jk->ik *
        JAX parses equations and paths with opt_einsum, which raises a bare KeyError or IndexError.
            wrong equations/[0,1];'ij'|[0,1];[0,7] *
            wrong paths/* optimize=[(0, 1), (0, 1), (0, 1)]
            wrong paths/* optimize=[(0, 1), (0, 5)]
            wrong paths/* optimize=no such
        JAX's einsum rounds half precision after each pair of operands, and may accumulate in it. [sometimes]
            dtypes/* bfloat16|float16
            gradients/* bfloat16|float16
            half precision/*
            larger sizes/* bfloat16|float16
            unknown sizes/* bfloat16|float16 *
    """,
            PATTERNS,
        ),
    ),
}
