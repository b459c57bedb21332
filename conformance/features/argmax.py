"""``Semiring.argmax``: the value of a contraction in a semiring, and the positions of the labels that attain it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from einsumx import ArgmaxResult, BackendError, Semiring, SizeError
from einsumx.conformance.case import Case, Failure, examples, operands
from einsumx.conformance.features.forms import DIAGONALS, EQUATIONS, FEW
from einsumx.conformance.features.sizes import BROADCASTS
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.refusals import is_refused
from einsumx.conformance.semiring_oracle import terms_in
from einsumx.conformance.subject import Subject
from einsumx.semirings import boolean, log, max_plus, max_times, min_plus

FEATURES = {
    "argmax": "argmax of a semiring: the positions of the summed labels attain the value, also where several terms do",
}

_QUICK = FEW + examples("""
    a,a,ab,b,bc,c->   3 3 3,3 3 3,3 3
    ij,jk->ik         0,4 4,5
    ij,j->i           600,900 900
""")

_EQUATIONS = _QUICK + EQUATIONS[len(FEW) :] + DIAGONALS[::3] + BROADCASTS[:3]

_WIDEST = Semiring("widest path", "maximum", "minimum")
_NARROWEST = Semiring("narrowest path", "minimum", "maximum")

_DTYPES: tuple[str, ...] = ("float16", "bfloat16", "float64")

_LAYOUTS: tuple[str, ...] = ("F", "broadcast")

_SEMIRINGS: tuple[Semiring, ...] = (max_plus, min_plus, max_times, _WIDEST, _NARROWEST)


def attains(case: Case, subject: Subject) -> None:
    """The value is the largest term, or the least; the positions are those of a term that equals it."""
    hosts, arrays = subject.operands(case)
    call = subject.bound(case)
    found = call(*arrays)
    _judge(case, subject, hosts, found)
    again = call(*arrays)
    for label, array in found.positions.items():
        if not np.array_equal(*map(subject.framework.values, (array, again.positions[label]))):
            raise Failure(f"the positions of {label!r} differ between two calls")
    subject.judge_unchanged(arrays, hosts)


def attains_traced(case: Case, subject: Subject) -> None:
    """The same in a function that is compiled."""
    function = subject.bound(case)
    if "jit" not in subject.framework.transforms:
        raise NotApplicable(f"{subject.framework.name} has no jit")
    hosts, arrays = subject.operands(case)
    labels: list[Any] = []

    def call(*arrays: Any) -> tuple[Any, ...]:
        found = function(*arrays)
        labels[:] = found.positions
        return found.value, *found.positions.values()

    value, *positions = subject.framework.transformed("jit", call)(*arrays)
    _judge(case, subject, hosts, ArgmaxResult(value, dict(zip(labels, positions))))


def _judge(case: Case, subject: Subject, hosts: Sequence[Any], found: Any) -> None:
    assert case.semiring is not None
    expected = subject.expected(case, hosts)
    subject.judge(found.value, expected, "the value")
    terms = terms_in(case.semiring, str(case.equation), hosts, expected.dtype)
    summed = dict(list(terms.sizes.items())[terms.rank :])
    if sorted(found.positions) != sorted(summed):
        raise Failure(f"there are positions of {sorted(found.positions)}, not of {sorted(summed)}")
    shape, positions = expected.values.shape, []
    for label, size in summed.items():
        array = np.asarray(subject.framework.values(found.positions[label]))
        if array.dtype.kind not in "iu":
            raise Failure(f"the positions of {label!r} are {array.dtype}")
        if array.shape != shape:
            raise Failure(f"the positions of {label!r} have the shape {array.shape}, not {shape}")
        if array.size and not 0 <= array.min() <= array.max() < size:
            raise Failure(f"a position of {label!r} is outside of its size {size}")
        positions.append(array)
    place = (*np.indices(shape), *positions)
    attained = terms.products[place]
    # The framework compares rounded terms, each within the bound.
    if not np.all((attained == expected.values) | (abs(attained * 1.0 - expected.values) <= 2 * terms.bound)):
        raise Failure(f"the positions attain {attained}, not {expected.values}")


def cases() -> Iterator[Case]:
    """The cases of this module's feature."""
    new = partial(Case, "argmax", function="argmax")
    for number, (equation, shapes) in enumerate(_EQUATIONS):
        semirings, dtypes, layouts = _SEMIRINGS, _DTYPES, _LAYOUTS
        if number > 3:  # one of each in turn
            semirings, dtypes = (max_plus, semirings[1 + number % 4]), (dtypes[number % 3],)
            layouts = (layouts[number % 2],)
        for semiring in semirings:
            specs = operands(*shapes, fill="positive" if semiring == max_times else "normal")
            full = number > 0 and (semiring != max_plus or number >= len(_QUICK))
            yield new(attains, equation, specs, semiring=semiring, full=full)
        yield new(attains, equation, operands(*shapes, dtype="bool"), semiring=boolean, full=number > 0)
        ties = operands(*shapes, fill="exact")
        yield new(attains, equation, ties, semiring=min_plus, about="ties", full=number > 1)
        yield new(attains_traced, equation, ties, semiring=max_plus, about="jit", full=number > 0)
        for dtype in dtypes:
            yield new(attains, equation, operands(*shapes, dtype=dtype), semiring=max_plus, full=number > 0)
        for layout in layouts:
            yield new(attains, equation, operands(*shapes, layout=layout), semiring=min_plus, full=number > 0)
    refused = partial(new, is_refused, "ij,jk->ik", semiring=max_plus)
    yield refused(operands((3, 0), (0, 4)), raises=SizeError, says="label 'j' has size 0")
    yield refused(operands((3, 4), (4, 5)), semiring=log, raises=ValueError, says="adds up all terms")
    whole = operands((3, 4), (4, 5), dtype="int32")
    yield refused(whole, raises=BackendError, says="does not compute in int32")
