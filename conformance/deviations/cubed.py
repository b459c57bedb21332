"""Known deviations on cubed's arrays."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "cubed": listed(r"""
        cubed's functions and its optimizer each look through the graph of all calls before, so that a thousand calls
        take minutes. [crashes]
            many operands/1000 *
    """),
}
