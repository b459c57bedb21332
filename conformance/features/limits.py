"""Memory limits: the smallest that can be kept, under which contractions are cut into their smallest blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from einsumx.conformance.case import ArraySpec, Case, Failure, NotApplicable, error_line, examples, operands
from einsumx.conformance.checks import cotangent, judge_gradients, needs_gradients
from einsumx.conformance.subject import Subject
from einsumx.errors import MemoryLimitError

__all__ = ["FEATURES", "cases"]

FEATURES = {
    "memory limit": "Under the smallest memory limit that works, results and gradients are the same",
}

_EQUATIONS = examples("""
    ij,jk->ik           6,5 5,7
    ij,kj->ki           6,5 7,5
    ij->j               6,5
    ij->ji              6,5
    ij->                6,5
    i->                 5
    iij->j              4,4,5
    ijk->kj             1,5,3
    i,j->ij             6 5
    i,i->               7 7
    ij,ij->i            1,4 5,4
    ij,jk->ik           6,1 5,7
    ij,jk,kl->il        4,5 5,6 6,3
    ab,bc,bd->acd       3,4 4,5 4,2
    i,i,i->             5 5 5
    bind,bjnd->bnij     2,4,3,5 2,6,3,5
    ...ij,...jk->...ik  3,1,2,5 4,5,3
    ii,ij->             4,4 4,5
    ij,jk->ik           0,5 5,7
    ij,jk->ik           6,0 0,7
    ,ij->ij             () 4,3
    ,->                 () ()
    abc,dec->ebdac      3,2,4 2,3,4
    abc,def->fadbec     2,3,2 2,1,3
    abcg,gdef->adbecf   2,2,2,3 3,2,2,2
    abcd,efg->gafbecd   2,2,2,2 2,3,2
    abcdefgh->hgfedcba  2,1,2,2,2,2,1,2
    abcd,efgh->haebfcgd 2,1,2,2 2,2,1,2
""")

_DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float64",
    "complex64",
    "complex128",
)
_FEW = (0, 2, 3, 10, 12)
_DIFFERENTIATED = (0, 2, 6, 10, 12, 15, 17, 25)


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    check = is_right_under_the_smallest_limit
    for equation, shapes in _EQUATIONS:
        yield Case("memory limit", check, equation, operands(*shapes))
    for place in _FEW:
        equation, shapes = _EQUATIONS[place]
        for dtype in _DTYPES:
            fill = "range" if dtype[0] in "iu" else "normal"
            yield Case("memory limit", check, equation, operands(*shapes, dtype=dtype, fill=fill), full=place != 0)
        for layout in ("F", "sliced", "broadcast", "conjugated"):
            dtype = "complex64" if layout == "conjugated" else "float32"
            yield Case("memory limit", check, equation, operands(*shapes, dtype=dtype, layout=layout), full=place != 0)
    for half in ("float16", "bfloat16"):
        # Partial sums that were rounded to half precision would lose each of the later ones.
        yield Case("memory limit", check, "i,i->", operands((3000,), (3000,), dtype=half, fill="positive"))
        mixed = (ArraySpec((6, 5), half), ArraySpec((5, 7), "float32"))
        yield Case("memory limit", check, "ij,jk->ik", mixed, full=True)
    for fill in ("inf", "nan"):
        beside = (ArraySpec((4,), fill=fill), ArraySpec((3,), fill=fill))
        yield Case("memory limit", check, "i,j,k->", (ArraySpec((0,)), *beside))
    for dtype in ("float32", "int8", "float16"):
        repeated = operands(
            (300,), (300, 3), dtype=dtype, layout="broadcast", fill="positive" if "f" in dtype else "range"
        )
        yield Case("memory limit", check, "i,ij->j", repeated, about="equal terms")
    check = gives_the_gradients_under_the_smallest_limit
    for place, (equation, shapes) in enumerate(_EQUATIONS):
        full = place not in _DIFFERENTIATED
        yield Case("memory limit", check, equation, operands(*shapes), about="gradients", full=full)
    for dtype in ("float16", "bfloat16", "float64", "complex64"):
        small = operands((6, 5), (5, 7), dtype=dtype)
        yield Case("memory limit", check, "ij,jk->ik", small, about="gradients", full=dtype != "complex64")
    for dtypes in (("float32", "complex64"), ("float16", "float32")):
        pair = tuple(ArraySpec(shape, dtype) for shape, dtype in zip(((6, 5), (5, 7)), dtypes))
        yield Case("memory limit", check, "ij,jk->ik", pair, about="gradients", full=True)


def is_right_under_the_smallest_limit(case: Case, subject: Subject) -> None:
    """The result is the plain sum under the limit that the error of a smaller one names."""
    hosts, arrays = subject.operands(case)
    expected = subject.expected(case, hosts)
    subject.judge(within_the_smallest(subject, partial(subject.call, case, arrays)), expected)
    subject.judge_unchanged(arrays, hosts)


def gives_the_gradients_under_the_smallest_limit(case: Case, subject: Subject) -> None:
    """Every operand's gradient is right under the limit that the error of a smaller one names."""
    needs_gradients(case, subject)
    if not subject.framework.differentiates_eagerly:
        raise NotApplicable(f"{subject.name} differentiates what it traces, where no memory limit is kept")
    hosts = case.values()
    values, array = cotangent(case, subject, hosts)

    def gradients(memory_limit: int) -> list[Any]:
        function = partial(subject.bound(case), memory_limit=memory_limit)
        return subject.framework.gradients(function, subject.arrays(case, hosts), array)

    judge_gradients(case, subject, hosts, values, within_the_smallest(subject, gradients))


def within_the_smallest(subject: Subject, call: Callable[..., Any]) -> Any:
    """What ``call`` gives for the smallest ``memory_limit=`` that it can keep, as the error of a smaller one names it.

    Raises:
        NotApplicable: the function has no memory limits.
        Failure: the error names no limit under which it works.
    """
    if not subject.is_einsumx:
        raise NotApplicable(f"{subject.name} has no memory_limit=")
    try:
        return call(memory_limit=1)
    except MemoryLimitError as error:
        limit = error.smallest
        if limit is None:
            raise Failure(f"memory_limit=1 is not kept, and no larger one is named: {error_line(error)}") from error
    try:
        return call(memory_limit=limit)
    except MemoryLimitError as error:
        raise Failure(f"memory_limit={limit} was named as the smallest and is not kept: {error_line(error)}") from error
