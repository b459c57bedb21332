"""Where einsumx on MXNet deviates, and where MXNet's own einsum does, in 1.9 and in 2.0."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "mxnet": (
        Deviation(
            "inf and nan/ij->i (4,3):*inf float32",
            "MXNet 1's own sum carries its rounding error along, which is inf - inf beside an infinity: nan.",
            before="2",
        ),
        Deviation(
            "hybridize/*",
            "MXNet 1 traces a block with symbols, which have no shapes to plan from: einsumx refuses them.",
            before="2",
        ),
    ),
    "mxnet:np.einsum": (
        Deviation(
            "hybridize/*",
            "MXNet 1 traces a block with symbols, for which it has another function, sym.np.einsum.",
            before="2",
        ),
        Deviation(
            r"""
            forms/ij,\tjk\n->ik *
            """,
            "Of all blanks, MXNet takes spaces alone.",
        ),
        Deviation("forms/αж*", "MXNet's labels are 52 letters."),
        Deviation(
            """
            sublists/*
            known faults/[*
            """,
            "MXNet takes equations as text alone.",
        ),
        Deviation(
            """
            ellipsis/i...->i *
            ellipsis/...i->i *
            ellipsis/...j->j *
            ellipsis/...i,...->i *
            known faults/...j->j *
            """,
            "MXNet does not sum an ellipsis that the output lacks, even one that stands for no axes.",
        ),
        Deviation("known faults/* no more than 10 labels", "MXNet takes 10 labels at most."),
        Deviation("known faults/* no more than 15 operands", "MXNet takes 15 operands at most."),
        Deviation("known faults/* dtypes are not promoted", "MXNet's einsum takes operands of one dtype."),
        Deviation("known faults/* dtype=*", "MXNet's einsum has no dtype=, and ignores it as any unknown keyword."),
        Deviation("known faults/* optimize=greedy *", "MXNet's einsum has no optimizers: optimize= is a bool."),
    ),
}
