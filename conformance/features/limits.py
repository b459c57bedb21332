"""The smallest memory limits that einsumx can keep, under which it cuts a contraction into its smallest blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from einsumx.conformance.case import Case, Failure, cases_of, error_line, examples, operands
from einsumx.conformance.checks import cotangent, judge_gradients, needs_gradients
from einsumx.conformance.features.forms import DIAGONALS, EQUATIONS, FEW
from einsumx.conformance.features.sizes import BROADCASTS, ZEROS
from einsumx.conformance.framework import DTYPES
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.refusals import make_out, needs_writeable_arrays
from einsumx.conformance.subject import Subject
from einsumx.errors import MemoryLimitError

FEATURES = {
    "memory limit": "Results and gradients are right under the smallest memory limit that einsumx can keep",
}

_WIDE = examples("""
    ijk->kj             1,5,3
    ii,ij->             4,4 4,5
    abc,dec->ebdac      3,2,4 2,3,4
    abc,def->fadbec     2,3,2 2,1,3
    abcg,gdef->adbecf   2,2,2,3 3,2,2,2
    abcd,efg->gafbecd   2,2,2,2 2,3,2
    abcdefgh->hgfedcba  2,1,2,2,2,2,1,2
    abcd,efgh->haebfcgd 2,1,2,2 2,2,1,2
""")

_EQUATIONS = EQUATIONS + DIAGONALS[::3] + BROADCASTS[::4] + ZEROS[::4] + _WIDE


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    limited = partial(cases_of, "memory limit", is_right_under_the_smallest_limit)
    yield from limited(_EQUATIONS)
    for example in FEW:
        full = example != FEW[0]
        for dtype in DTYPES:
            if dtype != "float32":
                fill = "range" if dtype[0] in "iu" else "normal"
                is_quick = not full and dtype in ("bool", "int8", "uint64", "float16", "bfloat16", "complex64")
                yield from limited([example], dtype=dtype, fill=fill, full=not is_quick)
        for layout in ("F", "sliced", "broadcast", "conjugated"):
            dtype = "complex64" if layout == "conjugated" else "float32"
            yield from limited([example], dtype=dtype, layout=layout, full=full)
    product = FEW[:1]
    ((equation, shapes),) = product
    for half in ("float16", "bfloat16"):
        # If partial sums were rounded to half precision, later ones would be lost.
        yield from limited(examples("i,i->  3000 3000"), dtype=half, fill="positive")
        mixed = tuple(map(ArraySpec, shapes, (half, "float32")))
        yield Case("memory limit", is_right_under_the_smallest_limit, equation, mixed, full=True)
    for fill in ("inf", "nan"):
        specs = (ArraySpec((0,)), *operands((4,), (3,), fill=fill))
        yield Case("memory limit", is_right_under_the_smallest_limit, "i,j,k->", specs)
    for dtype, fill in (("float32", "positive"), ("int8", "range"), ("float16", "positive")):
        repeated = examples("i,ij->j  300 300,3")
        yield from limited(repeated, dtype=dtype, layout="broadcast", fill=fill, about="equal terms")

    traced = partial(cases_of, "memory limit", is_right_under_the_smallest_limit_when_traced, about="traced")
    for example in _EQUATIONS:
        yield from traced([example], full=example not in FEW)
    for dtype in ("bool", "int8", "float16", "complex64"):
        yield from traced(product, dtype=dtype, fill="range" if dtype == "int8" else "normal", full=True)

    check = gives_the_gradients_under_the_smallest_limit
    gradients = partial(cases_of, "memory limit", check, about="gradients")
    for example in _EQUATIONS:
        yield from gradients([example], full=example not in FEW)
    for dtype in ("float16", "bfloat16", "float64", "complex64"):
        yield from gradients(product, dtype=dtype, full=dtype != "complex64")
    for dtypes in (("float32", "complex64"), ("float16", "float32")):
        pair = tuple(map(ArraySpec, shapes, dtypes))
        yield Case("memory limit", check, equation, pair, about="gradients", full=True)


def is_right_under_the_smallest_limit(case: Case, subject: Subject, times: int = 1) -> None:
    """The result is the plain sum under the smallest memory limit, or under a multiple of it, also in ``out``."""
    options = {"out": make_out(case.out, subject)} if case.out else {}
    if case.over is not None:
        needs_writeable_arrays(subject)
    hosts, arrays = subject.operands(case)
    expected = subject.expected(case, hosts)
    subject.judge(call_within_smallest(subject, partial(subject.call, case, arrays, **options), times), expected)
    read = [place for place in range(len(arrays)) if place != case.over]
    subject.judge_unchanged([arrays[place] for place in read], [hosts[place] for place in read])


def is_right_under_the_smallest_limit_when_traced(case: Case, subject: Subject) -> None:
    """The same in a function that is traced and compiled."""
    framework = subject.framework
    if not framework.traced_limits:
        raise NotApplicable(f"where {subject.name} traces a call, a memory limit is an error")
    hosts, arrays = subject.operands(case)

    def call(memory_limit: int) -> Any:
        function = partial(subject.bound(case), memory_limit=memory_limit)
        return framework.transformed("jit" if "jit" in framework.transforms else "compile", function)(*arrays)

    subject.judge(call_within_smallest(subject, call), subject.expected(case, hosts))


def gives_the_gradients_under_the_smallest_limit(case: Case, subject: Subject) -> None:
    """Every operand's gradient is right under the smallest memory limit."""
    needs_gradients(case, subject)
    if not subject.framework.differentiates_eagerly:
        raise NotApplicable(f"{subject.name} differentiates what is traced or lazy, which keeps no memory limit")
    hosts = case.values()
    values, array = cotangent(case, subject, hosts)

    def gradients(memory_limit: int) -> list[Any]:
        function = partial(subject.bound(case), memory_limit=memory_limit)
        return subject.framework.gradients(function, subject.arrays(case, hosts), array)

    judge_gradients(case, subject, hosts, values, call_within_smallest(subject, gradients))


def call_within_smallest(subject: Subject, call: Callable[..., Any], times: int = 1) -> Any:
    """Call with the smallest ``memory_limit=`` that works, which the error of a smaller one names, or a multiple of it.

    Raises:
        NotApplicable: the function has no memory limits.
        Failure: the error names no limit, or one that does not work.
    """
    if not subject.is_einsumx:
        raise NotApplicable(f"{subject.name} has no memory_limit=")
    if subject.framework.unlimited:
        raise NotApplicable(subject.framework.unlimited)
    try:
        return call(memory_limit=1)
    except MemoryLimitError as error:
        limit = error.smallest
        if limit is None:
            raise Failure(f"memory_limit=1 is not kept, and no larger one is named: {error_line(error)}") from error
    try:
        return call(memory_limit=times * limit)
    except MemoryLimitError as error:
        raise Failure(f"memory_limit={limit} was named as the smallest and is not kept: {error_line(error)}") from error
