"""Where JAX's own einsum deviates."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation
from einsumx.conformance.deviations.opt_einsum import READ_UNCHECKED

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "jax.numpy:einsum": (
        Deviation(
            "random/*float16,*",
            "Among random problems are products of three in half precision, which JAX rounds after each pair.",
            sometimes=True,
        ),
        Deviation(
            """
            lists and scalars/*:exact *
            !lists and scalars/,-> *
            """,
            "JAX's einsum takes arrays and scalars, and no lists.",
        ),
        Deviation(
            "known faults/* the wrong sizes are named",
            "JAX reads equations with opt_einsum, which names the sizes of an error the wrong way round.",
        ),
        Deviation(
            "two frameworks/*",
            "JAX makes arrays of its own of NumPy's.",
            sometimes=True,
        ),
        Deviation(
            r"""
            forms/ij,\tjk\n->ik *
            """,
            "Of all blanks, JAX takes spaces alone.",
        ),
        Deviation(
            """
            sublists/['z',0];[0,1] *
            sublists/[None,1.5];[1.5,True];[True,None] *
            """,
            "JAX reads equations with opt_einsum, which sorts the labels of sublists: they must have an order.",
        ),
        Deviation(
            """
            casting/*
            dtype/*
            known faults/* dtype=*
            known faults/* order=*
            order/*
            wrong keywords/*
            wrong out/*
            """,
            "JAX's einsum has preferred_element_type= in the place of dtype=, and no casting= or order=.",
        ),
        Deviation(
            """
            zero sizes/*:inf *
            zero sizes/*:nan *
            !zero sizes/ij,jk->ik *
            """,
            "JAX's einsum sums an operand's own axes first, so that an infinity meets the 0 of an empty sum.",
        ),
        Deviation(
            """
            wrong equations/[0,1];'ij' *
            wrong equations/[0,1];[0,7] *
            wrong paths/* optimize=[(0, 1), (0, 1), (0, 1)]
            wrong paths/* optimize=[(0, 1), (0, 5)]
            wrong paths/* optimize=no such
            """,
            "JAX reads equations and paths with opt_einsum, and the errors are those of Python's dicts and lists.",
        ),
        Deviation(
            f"""
            known faults/* a diagonal of sizes 1 and 3
            {READ_UNCHECKED}
            wrong sizes/ii *
            !wrong sizes/ii->i (3,4) float32
            !wrong sizes/ii->i (3,4) float32 optimize=True
            wrong sizes/ii->i *
            wrong sizes/jii,j->i *
            """,
            "JAX's einsum checks equations, diagonals and paths only in part.",
        ),
        Deviation(
            """
            dtypes/* bfloat16
            dtypes/* float16
            gradients/* bfloat16
            gradients/* float16
            half precision/*
            larger sizes/* bfloat16
            larger sizes/* float16
            """,
            "JAX's einsum rounds half precision after each pair of operands, and may sum in it.",
            sometimes=True,
        ),
    ),
}
