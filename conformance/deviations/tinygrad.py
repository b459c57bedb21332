"""Known deviations of einsumx on tinygrad, and of tinygrad's own einsum, in 0.14."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "tinygrad": listed(r"""
        tinygrad is not made for threads: while one thread compiles, its settings hold in all others, which then fail
        with 'usage of device CPU disallowed'. [sometimes]
            threads/*
    """),
}
