"""Findings: what measuring the candidates of a contraction found, its key and its text in the store."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from time import gmtime, strftime
from typing import TYPE_CHECKING, Annotated

from einsumx.errors import MalformedError, shown
from einsumx.host.threads import get_num_threads
from einsumx.imports import LazyModule
from einsumx.ir.layout import layout_pattern, pattern_strides
from einsumx.ir.parse import symbol
from einsumx.ir.sizes import is_known
from einsumx.planner.path import size_class
from einsumx.planner.selection import Selection

if TYPE_CHECKING:
    from einsumx.ir import strict
    from einsumx.ir.bind import SizedEquation
    from einsumx.ir.contraction import Contraction
    from einsumx.ir.operand import Operand
else:
    strict = LazyModule("einsumx.ir.strict")


@dataclass(frozen=True, slots=True)
class Finding:
    """What measuring the candidates of a contraction found.

    Attributes:
        selection: the fastest candidate.
        seconds: of the fastest candidate.
        estimated: seconds of the candidate that the cost model prefers.
        tried: how many candidates were measured.
        when: date and time in UTC, such as ``2026-01-31T12:00:00Z``.
    """

    selection: Selection
    seconds: float
    estimated: float
    tried: int
    when: Annotated[str, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"]


def now() -> str:
    """The date and time for a finding."""
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime())


def text_of(finding: Finding) -> str:
    """A finding as JSON."""
    return json.dumps(asdict(finding))


def read_finding(key: str, text: str) -> Finding:
    """The finding in a row of the store. It selects among the planner's own candidates, so it cannot do harm.

    Raises:
        MalformedError: it is malformed.
    """
    finding = strict.read(Finding, strict.parse(text))
    if "->" not in key or not (finding.seconds > 0 and finding.estimated > 0 and finding.tried > 0):
        raise MalformedError(f"{shown(key)} has no times of candidates")
    return finding


LONGEST_KEY = 1000
"""Characters of the longest key."""

_STEPS = {1: "", 2: "+", -1: "-", -2: "-+", 0: "*"}
"""How a key marks the step of an axis; see :data:`einsumx.ir.layout.Pattern`."""


def equation_text(equation: SizedEquation) -> str:
    """The first part of a key, up to its first semicolon. Axes of size 1 that broadcast are written as ``1``."""
    terms = []
    for labels, shape in zip(equation.inputs, equation.shapes):
        axes = zip(labels, shape)
        terms.append("".join([symbol(label) if size == equation.sizes[label] else "1" for label, size in axes]))
    return f"{','.join(terms)}->{''.join(map(symbol, equation.output))}"


def key_of(contraction: Contraction, is_path_free: bool) -> str | None:
    """The key of a contraction in this process; None if nothing is kept about it.

    A layout lists axes from the outermost to the innermost:
    ``C`` is C order, ``+`` marks a gap inside the axis, ``-`` a negative stride, ``*`` a stride of 0.

    Args:
        contraction: what to compute.
        is_path_free: whether the planner chooses the path, which is no part of the key then.

    >>> import einsumx
    >>> plan = einsumx.plan("ij,jk", (7, 1000), (1000, 33), dtypes="float32")
    >>> key = key_of(plan.contraction, True)
    >>> key.rpartition("; ")[0]
    'ab,bc->ac; a=7 b=1024 c=32; C C; float32 float32; float32; auto'
    """
    equation, operands = contraction.equation, contraction.operands
    layouts = [_layout(operand) for operand in operands]
    if None in layouts or not is_known(equation.sizes):
        return None
    sizes = [f"{symbol(label)}={size_class(size)}" for label, size in enumerate(equation.sizes)]
    path = [f"({','.join(map(str, step))})" for step in contraction.path]
    others = contraction.others("equation", "operands", "dtype", "path", "place")
    parts = (
        equation_text(equation),
        " ".join(sizes),
        " ".join(map(str, layouts)),
        " ".join([operand.dtype + " weak" * operand.weak for operand in operands]),
        contraction.dtype,
        *[f"{name}={value}" for name, value in others.items()],
        "auto" if is_path_free else " ".join(path),
        f"{get_num_threads()} threads",
    )
    key = "; ".join(parts)
    return key if len(key) <= LONGEST_KEY else None


def _layout(operand: Operand) -> str | None:
    """The layout of an operand as text; None if elements of two axes overlap."""
    shape, strides = operand.shape, operand.strides
    pattern = None if strides is None or 0 in shape else layout_pattern(shape, strides)
    if pattern is None:
        return "C" if strides is None or 0 in shape else None
    if pattern_strides(pattern, shape) is None:
        return "C"
    return ".".join([f"{axis}{_STEPS[step]}" for axis, step in reversed(pattern)])
