"""What a call gives back: into which array, in which dtype and memory order, and what memory it shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from einsumx import BackendError
from einsumx.conformance.case import ArraySpec, Case, Failure, NotApplicable, Options, Refusal, examples, operands
from einsumx.conformance.checks import gives_the_plain_sum, gives_the_plain_sum_in_einsumx
from einsumx.conformance.framework import Array
from einsumx.conformance.oracle import expect
from einsumx.conformance.refusals import SENTINEL, is_refused, make_out, needs_writeable_arrays
from einsumx.conformance.subject import Subject

__all__ = ["FEATURES", "cases"]

FEATURES = {
    "out": "out= is written completely and returned, with any strides, cast as casting= allows, over the operands too",
    "order": "order= is the result's order in memory, and an error where there is none to choose",
    "dtype": "dtype= is computed in and returned",
    "casting": "casting= is NumPy's rule for what dtype= and out= may change",
    "views": "A rearrangement is a writeable view where the framework's own einsum gives views",
    "aliasing": "No other result shares memory with an operand",
    "keywords": "optimize= in all its forms; a keyword that is unknown is an error",
}

_WRITTEN = examples("""
    ij,jk->ki            2,3 3,4
    ij->ji               2,3
    ij->ij               2,3
    ii->i                3,3
    ij->i                2,3
    ij->                 2,3
    ii->                 3,3
    i,i->                4 4
    ij,ij->ij            2,3 2,3
    i,j->ij              4 3
    bij,bjk->bik         2,3,4 2,4,5
    ij,jk,kl->il         2,3 3,4 4,2
    ij,jk->ik            2,0 0,4
    ij,jk->ik            0,3 3,4
    i,j->                0 4
    ->                   ()
    ij,jk->ik            2,3 1,4
""")
"""Whose results are written: by every kind of op, with no axes, with no elements, and with sums over nothing."""

_OVERWRITTEN = examples("""
    ij,jk->ik     4,4 4,4
    ij,jk->ki     4,4 4,4
    ij,ij->ij     4,4 4,4
    ij,ij->ji     4,4 4,4
    ij,jk,kl->il  4,4 4,4 4,4
""")

_REARRANGEMENTS = examples("""
    ij->ij       3,3
    ij->ji       2,3
    ii->i        3,3
    ijk->kij     2,3,4
    ...->...     2,3
    ...i->i...   2,3,4
    iij->ji      3,3,2
    iijj->ij     2,2,3,3
    ij->ji       1,3
""")

_FRESH = examples(
    """
    ij->i      {n},{n}
    ij->       {n},{n}
    ii->       {n},{n}
    i...->...  {n},{n}
    ij,ij->ij  {n},{n} {n},{n}
    ij,jk->ik  {n},{n} {n},{n}
    ij,->ij    {n},{n} ()
    ij,i->ij   {n},{n} {n}
    i,j->ij    {n} {n}
    i,i,i->i   {n} {n} {n}
""".replace("{n}", "3")
)
"""Equations whose results are no views; all sizes are alike, as others stand in their place."""

_CASTS = (
    ("float32", "float32", "no"),
    ("int8", "int32", "safe"),
    ("int8", "float32", "safe"),
    ("bool", "int8", "safe"),
    ("float32", "float64", "safe"),
    ("int32", "float32", "same_kind"),
    ("int32", "int8", "same_kind"),
    ("float32", "float16", "same_kind"),
    ("float64", "float32", "same_kind"),
    ("float32", "complex64", "safe"),
    ("float32", "int32", "unsafe"),
    ("int8", "bool", "unsafe"),
    ("int32", "uint8", "unsafe"),
    ("complex64", "float32", "unsafe"),
)
"""From one dtype to another, and the strictest of NumPy's rules that allows it."""

_RULES = ("no", "equiv", "safe", "same_kind", "unsafe")


# -- out ------------------------------------------------------------------------------------------------------------


def writes_out(case: Case, subject: Subject) -> None:
    """``out`` is returned and has the plain sum in its own dtype; the operands are as they were."""
    assert case.out is not None
    hosts, arrays = subject.operands(case)
    out = make_out(case.out, subject)
    _is_returned(subject.call(case, arrays, out=out), out)
    subject.judge(out, subject.expected(case, hosts, case.out.dtype), "out")
    subject.judge_unchanged(arrays, hosts)


def _writes_between(case: Case, subject: Subject) -> None:
    """``out`` is every second element of a larger array, whose other elements stay as they were."""
    assert case.out is not None
    hosts, arrays = subject.operands(case)
    _has_layout(subject, "sliced")
    room = make_out(replace(case.out, shape=tuple(2 * size + 1 for size in case.out.shape)), subject)
    inside = (slice(1, None, 2),) * len(case.out.shape)
    out = room[inside]
    _is_returned(subject.call(case, arrays, out=out), out)
    found = subject.framework.values(room)
    subject.judge(subject.array(found[inside], case.out.dtype), subject.expected(case, hosts), "out")
    found[inside] = SENTINEL
    if (found != SENTINEL).any():
        raise Failure("elements were written that lie between those of out")


def writes_over(place: int, case: Case, subject: Subject) -> None:
    """``out`` is an operand; the others are as they were."""
    needs_writeable_arrays(subject)
    hosts, arrays = subject.operands(case)
    out = arrays[place]
    _is_returned(subject.call(case, arrays, out=out), out)
    subject.judge(out, subject.expected(case, hosts), "out")
    subject.judge_unchanged(arrays[:place] + arrays[place + 1 :], hosts[:place] + hosts[place + 1 :])


def _writes_over_a_part(case: Case, subject: Subject) -> None:
    """``out`` is the last rows of an array, and the operand its first."""
    needs_writeable_arrays(subject)
    _has_layout(subject, "offset")
    (host,) = case.values()
    (operand,) = case.operands
    room = subject.array(np.concatenate([host, host[:1]]), operand.dtype)
    out = room[1:, ...]
    _is_returned(subject.call(case, [room[:-1, ...]], out=out), out)
    subject.judge(out, subject.expected(case, [host]), "out")


def _is_returned(result: Any, out: Array) -> None:
    if result is not out:
        raise Failure("what is returned is not out")


def _has_layout(subject: Subject, layout: str) -> None:
    if layout not in subject.framework.layouts:
        raise NotApplicable(f"{subject.framework.name} has no layout {layout!r} of arrays")


def _out_cases() -> Iterator[Case]:
    for equation, shapes in _WRITTEN:
        made = operands(*shapes)
        shape = expect(equation, *(np.zeros(given) for given in shapes)).values.shape
        yield Case("out", writes_out, equation, made, out=ArraySpec(shape))
        if shape:
            yield Case(
                "out",
                _writes_between,
                equation,
                made,
                out=ArraySpec(shape),
                about="between others",
                full="b" not in equation,
            )
    product = operands((2, 3), (3, 4))
    for layout in ("F", "swapped", "sliced", "offset", "negative", "unaligned", "byteswapped"):
        yield Case("out", writes_out, "ij,jk->ik", product, out=ArraySpec((2, 4), layout=layout))
        yield Case("out", writes_out, "ij->ji", product[:1], out=ArraySpec((3, 2), layout=layout), full=True)
        yield Case("out", writes_out, "ij->i", product[:1], out=ArraySpec((2,), layout=layout), full=True)
    yield Case("out", writes_out, ((0, 1), (1, 2), (2, 0)), product, out=ArraySpec((4, 2)))
    yield Case("out", writes_out, "ij,jk->ik", product, (("optimize", True),), out=ArraySpec((2, 4)))
    yield Case("out", writes_out, "ij,jk->ik", product, (("optimize", False),), out=ArraySpec((2, 4)))
    for dtype in ("bool", "int8", "float64", "complex64"):
        yield Case("out", writes_out, "ij,jk->ki", operands((2, 3), (3, 4), dtype=dtype), out=ArraySpec((4, 2), dtype))

    for equation, shapes in _OVERWRITTEN:
        for place in range(len(shapes)):
            over = partial(writes_over, place)
            yield Case("out", over, equation, operands(*shapes), about=f"out=operand {place}", full=place > 0)
    for equation, shape in (("ij->ij", (5, 5)), ("ij->ji", (5, 5)), ("ij->ji", (40, 40)), ("ijk->kji", (3, 2, 3))):
        yield Case("out", partial(writes_over, 0), equation, operands(shape), about="out=operand 0")
    for equation in ("ij->ji", "ij->ij"):
        yield Case("out", _writes_over_a_part, equation, operands((5, 5)), about="out overlaps operand 0")

    # Small integers are the same in every dtype, whichever of the two it is computed in.
    exact = partial(operands, (2, 3), (3, 4), fill="exact")
    for source, target, rule in _CASTS:
        if source != target and rule != "unsafe":
            options: Options = () if rule == "safe" else (("casting", rule),)
            out = ArraySpec((2, 4), target)
            yield Case("out", writes_out, "ij,jk->ik", exact(dtype=source), options, out=out, full=True)
            yield Case("out", writes_out, "ij->ij", exact(dtype=source)[:1], options, out=replace(out, shape=(2, 3)))
    # What is computed in is dtype=, not the dtype of out.
    options = (("dtype", "int8"), ("casting", "same_kind"))
    eights = operands((2, 50), dtype="int8", fill="range")
    yield Case("out", _wraps_into_out, "ij->i", eights, options, out=ArraySpec((2,), "int32"))


def _wraps_into_out(case: Case, subject: Subject) -> None:
    """It is computed in ``dtype=``, and then cast to the dtype of ``out``."""
    assert case.out is not None
    hosts = case.values()
    out = make_out(case.out, subject)
    subject.call(case, subject.arrays(case, hosts), out=out)
    expected = subject.expected(case, hosts)
    subject.judge(out, replace(expected, dtype=case.out.dtype, values=expected.values.astype(case.out.dtype)), "out")


# -- order ----------------------------------------------------------------------------------------------------------


def has_order(wanted: str, case: Case, subject: Subject) -> None:
    """The result is the plain sum, contiguous in the order that is wanted; without such order, it is an error."""
    if not subject.framework.memory_order:
        is_refused(replace(case, refusal=Refusal(BackendError, "memory order")), subject)
        return
    hosts, arrays = subject.operands(case)
    result = subject.call(case, arrays)
    expected = subject.expected(case, hosts)
    subject.judge(result, expected)
    subject.judge_unchanged(arrays, hosts)
    if 0 in result.shape:  # every order is as good as another
        return
    unit = subject.framework.strides(subject.array(np.zeros(2), expected.dtype))[0]
    shape = result.shape if wanted == "C" else result.shape[::-1]
    strides = subject.framework.strides(result) if wanted == "C" else subject.framework.strides(result)[::-1]
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size > 1 and stride != unit:
            raise Failure(f"the strides are {subject.framework.strides(result)}: not contiguous in {wanted} order")
        unit *= size


def _order_cases() -> Iterator[Case]:
    batch = operands((4, 3, 2), (4, 2, 5))
    matrix = operands((2, 3))
    for order in ("C", "F", "c", "f"):
        check = partial(has_order, order.upper())
        options = (("order", order),)
        yield Case("order", check, "bij,bjk->kbi", batch, options)
        if order.isupper():
            yield Case("order", check, "bij,bjk->bik", batch, options)
            yield Case("order", check, "ij,jk,kl->il", operands((2, 3), (3, 4), (4, 5)), options, full=True)
            for layout in ("C", "F", "sliced"):
                for equation in ("ij->ij", "ij->ji"):
                    yield Case("order", check, equation, operands((2, 3), layout=layout), options, full=layout != "C")
            yield Case("order", check, "ijk->kj", operands((2, 3, 4)), options)
            yield Case("order", check, "iij->ji", operands((3, 3, 2)), options, full=True)
            yield Case("order", check, "i,j,k->kij", operands((2,), (3,), (4,)), options, full=True)
            yield Case("order", check, "ij,ij->ij", operands((2, 3), (2, 3), layout="swapped"), options, full=True)
            yield Case("order", check, "ij->", matrix, options, full=True)
            yield Case("order", check, "ij,jk->ik", operands((0, 3), (3, 4)), options, full=True)
    for layouts, wanted in (
        (("F", "F"), "F"),
        (("F", "C"), "C"),
        (("C", "F"), "C"),
        (("C", "C"), "C"),
        (("F", "sliced"), "C"),
    ):
        made = (ArraySpec((2, 3), layout=layouts[0]), ArraySpec((3, 4), layout=layouts[1]))
        for order in "Aa":
            yield Case("order", partial(has_order, wanted), "ij,jk->ki", made, (("order", order),), full=order == "a")
    for equation, made in (("ij->ij", operands((2, 3), layout="F")), ("ij->ji", operands((2, 3), layout="F"))):
        yield Case("order", partial(has_order, "F"), equation, made, (("order", "A"),))
    # Vectors are in both orders, and numbers too.
    vectors = (
        operands((2,), (3,)),
        (ArraySpec((2, 3), layout="F"), ArraySpec((3,))),
        (ArraySpec((2, 3)), ArraySpec((3,))),
    )
    for equation, made, wanted in zip(("i,j->ij", "ij,j->ij", "ij,j->ij"), vectors, "FFC"):
        yield Case("order", partial(has_order, wanted), equation, made, (("order", "A"),))
    yield Case("order", gives_the_plain_sum, "ij,jk->ki", operands((2, 3), (3, 4)), (("order", "K"),))
    yield Case("order", gives_the_plain_sum, "ij->ji", matrix, (("order", "k"),))

    # An out that is in another order than the one asked for: one of the two would have to be ignored.
    asks_twice = Refusal(ValueError, "order='.' asks for a new array")
    for order, layout in (("F", "C"), ("C", "F")):
        given = ArraySpec((3, 2), layout=layout)
        yield Case("order", is_refused, "ij->ji", matrix, (("order", order),), out=given, refusal=asks_twice)
    fortran = operands((2, 3), layout="F")
    yield Case("order", is_refused, "ij->ji", fortran, (("order", "A"),), out=ArraySpec((3, 2)), refusal=asks_twice)


# -- dtype and casting ----------------------------------------------------------------------------------------------


def _gives_in_dtype(case: Case, subject: Subject) -> None:
    """The result is that of the operands cast to ``dtype=``, in that dtype."""
    subject.needs_dtype(dict(case.options)["dtype"])
    gives_the_plain_sum(case, subject)


def _gives_in_own_dtype(dtype: Any, case: Case, subject: Subject) -> None:
    """``dtype=`` may be the framework's own dtype of a name, or a Python type that all frameworks know."""
    name = "bool" if dtype is bool else dtype
    own = subject.array(np.ones(1), dtype).dtype if isinstance(dtype, str) else dtype
    hosts = case.values()
    result = subject.call(case, subject.arrays(case, hosts), dtype=own)
    subject.judge(result, subject.expected(case, hosts, name))


def _casting_refused(case: Case, subject: Subject) -> None:
    """The cast is refused, where the framework has the dtypes, and would have the result in one of them."""
    subject.needs_dtype(dict(case.options).get("dtype") or subject.result_dtype(case))
    is_refused(case, subject)


def _dtype_cases() -> Iterator[Case]:
    eights = partial(operands, dtype="int8", fill="range")
    for optimize in ((), (("optimize", True),), (("optimize", False),)):
        options = (("dtype", "int32"), *optimize)
        yield Case("dtype", _gives_in_dtype, "ki,i->k", eights((3, 40), (40,)), options)
        yield Case("dtype", _gives_in_dtype, "ki,ij->j", eights((3, 4), (4, 2)), options, full=bool(optimize))
        yield Case("dtype", _gives_in_dtype, "ki,ij->j", eights((3, 4), (4, 1)), options, full=bool(optimize))
        yield Case("dtype", _gives_in_dtype, "ki->i", eights((3, 4)), options, full=bool(optimize))
        yield Case(
            "dtype", _gives_in_dtype, "ij,jk,kl->il", eights((2, 3), (3, 4), (4, 2)), options, full=bool(optimize)
        )
    for source, target, equation, shapes in (
        ("int8", "float32", "ki->ik", ((3, 4),)),
        ("int8", "float32", "ij,jk->ik", ((2, 3), (3, 4))),
        ("uint8", "int32", "ij->", ((3, 200),)),
        ("bool", "int32", "ij->i", ((3, 300),)),
        ("bool", "int32", "ij,jk->ik", ((2, 300), (300, 2))),
        ("float32", "float64", "ij,jk->ik", ((2, 50), (50, 2))),
        ("float32", "float64", "ij->", ((20, 30),)),
        ("float32", "complex64", "ij,jk->ki", ((2, 3), (3, 4))),
        ("float16", "float32", "ij,jk->ik", ((2, 50), (50, 2))),
        ("float32", "float32", "ij,jk->ik", ((2, 3), (3, 4))),
        ("float32", "float32", "ii->i", ((3, 3),)),
    ):
        made = operands(*shapes, dtype=source, fill="range" if source == "uint8" else "normal")
        yield Case("dtype", _gives_in_dtype, equation, made, (("dtype", target),))
    # Whether the operands are rounded first or the result last is left to the function: small integers are neither.
    for source, target in (("float64", "float32"), ("float32", "float16"), ("float32", "bfloat16"), ("int32", "int8")):
        options = (("dtype", target), ("casting", "same_kind"))
        for equation, shapes in (("ij,jk->ik", ((2, 3), (3, 4))), ("ij->j", ((3, 4),)), ("ij->ji", ((2, 3),))):
            made = operands(*shapes, dtype=source, fill="exact")
            yield Case("dtype", _gives_in_dtype, equation, made, options, full=len(shapes) == 1)
    # Cast first, and not last: what is between two integers is lost.
    options = (("dtype", "int32"), ("casting", "unsafe"))
    yield Case("dtype", _gives_in_dtype, "i,i->", operands((9,), (9,)), options)
    mixed = (ArraySpec((2, 3), "int8"), ArraySpec((3, 4), "float32"))
    yield Case("dtype", _gives_in_dtype, "ij,jk->ik", mixed, (("dtype", "float32"),))
    own = partial(_gives_in_own_dtype, "float32")
    yield Case("dtype", own, "i,i->", operands((3,), (3,)), about="dtype=the framework's own float32")
    own = partial(_gives_in_own_dtype, "int32")
    yield Case("dtype", own, "ij->i", eights((3, 40)), about="dtype=the framework's own int32")
    own = partial(_gives_in_own_dtype, bool)
    yield Case("dtype", own, "ij->i", operands((3, 4)), (("casting", "unsafe"),), about="dtype=bool, Python's")


def _casting_cases() -> Iterator[Case]:
    for source, target, strictest in _CASTS:
        made = operands((6,), (6,), dtype=source, fill="exact")
        first = _RULES.index(strictest)
        options: Options
        for place, rule in enumerate(_RULES):
            options = (("dtype", target), ("casting", rule))
            if place >= first:
                yield Case("casting", _gives_in_dtype, "i,i->i", made, options, full=place > first)
            else:
                refusal = Refusal(BackendError, f"operand 0.*{source}.*{target}")
                yield Case(
                    "casting", _casting_refused, "i,i->i", made, options, refusal=refusal, full=place < first - 1
                )
        options = (("dtype", target),)
        if first > _RULES.index("safe"):
            refusal = Refusal(BackendError, f"operand 0.*{source}.*{target}")
            yield Case(
                "casting", _casting_refused, "i,i->", made, options, refusal=refusal, about="by default", full=True
            )
            refusal = Refusal(BackendError, f"{source}.*{target}")
            out = ArraySpec((6,), target)
            yield Case("casting", is_refused, "i,i->i", made, out=out, refusal=refusal, about="by default", full=True)
    # A rearrangement computes nothing, but casts all the same.
    moved = operands((2, 3), dtype="int32")
    options = (("dtype", "float32"), ("casting", "same_kind"))
    yield Case("casting", _gives_in_dtype, "ij->ji", moved, options)
    refusal = Refusal(BackendError, "operand 0.*int32.*float32")
    yield Case("casting", _casting_refused, "ij->ji", moved, options[:1], refusal=refusal, about="by default")
    for narrow, wide in (("int8", "float32"), ("float32", "complex64")):
        made = (ArraySpec((2,), wide), ArraySpec((2,), narrow))
        refusal = Refusal(BackendError, f"operand 1 .*{narrow}.*casting='no'.*{wide}")
        yield Case("casting", _casting_refused, "i,i->", made, (("casting", "no"),), refusal=refusal)
        refusal = Refusal(BackendError, f"operand 0 .*{narrow}.*casting='equiv'.*{wide}")
        yield Case("casting", _casting_refused, "i,i->", made[::-1], (("casting", "equiv"),), refusal=refusal)
    yield Case("casting", gives_the_plain_sum, "i,i->", operands((2,), (2,)), (("casting", "no"),))


# -- what memory results share --------------------------------------------------------------------------------------


def _is_a_view(case: Case, subject: Subject) -> None:
    """What is written to the operand shows in the result, and what is written to the result in the operand."""
    framework = subject.framework
    if not framework.views:
        raise NotApplicable(f"{framework.name} has no views")
    hosts = case.values()
    (array,) = subject.arrays(case, hosts)
    result = subject.call(case, [array])
    subject.judge(result, subject.expected(case, hosts))
    if result is array:
        raise Failure("the result is the operand itself, not a view of it")
    framework.fill(array, np.full(hosts[0].shape, 7))
    if (framework.values(result) != 7).any():
        raise Failure("what is written to the operand does not show in the result: it is a copy")
    framework.fill(result, np.full(result.shape, 9))
    if (framework.values(array) == 9).sum() != np.prod(result.shape):
        raise Failure("what is written to the result does not show in the operand")


def _is_a_readonly_view(case: Case, subject: Subject) -> None:
    """A view of a read-only array is no way to write to it."""
    hosts = case.values()
    (array,) = subject.arrays(case, hosts)
    result = subject.call(case, [array])
    try:
        subject.framework.fill(result, np.full(result.shape, 9))
    except ValueError:
        pass
    else:
        raise Failure("a view of a read-only array can be written to")
    subject.judge_unchanged([array], hosts)


def _is_fresh(case: Case, subject: Subject) -> None:
    """The result keeps its values when the operands are overwritten, and they keep theirs when the result is."""
    needs_writeable_arrays(subject)
    framework = subject.framework
    hosts, arrays = subject.operands(case)
    _keeps_its_values(case, subject, arrays, arrays)
    arrays = subject.arrays(case, hosts)
    result = subject.call(case, arrays)
    if result is not None and framework.is_array(result) and not isinstance(result, np.generic):
        framework.fill(result, _others(framework.values(result)))
        subject.judge_unchanged(arrays, hosts)


def _is_fresh_of_broadcast(case: Case, subject: Subject) -> None:
    """The same, where the operands have a last axis of stride 0, so that what lies in memory is small."""
    needs_writeable_arrays(subject)
    _has_layout(subject, "broadcast-last")
    bases = [subject.array(host[..., :1], operand.dtype) for host, operand in zip(case.values(), case.operands)]
    arrays = [subject.framework.broadcast(base, operand.shape) for base, operand in zip(bases, case.operands)]
    _keeps_its_values(case, subject, arrays, bases)


def _keeps_its_values(case: Case, subject: Subject, arrays: list[Array], bases: list[Array]) -> None:
    framework = subject.framework
    result = subject.call(case, arrays)
    before = framework.values(result)
    for base in bases:
        framework.fill(base, _others(framework.values(base)))
    if not np.array_equal(before, framework.values(result)):
        raise Failure("the result changed when an operand was overwritten: they share memory")


def _others(values: Any) -> Any:
    """Other values in the place of each."""
    return ~values if values.dtype == bool else values + np.ones((), values.dtype)


def _is_fresh_rearrangement(case: Case, subject: Subject) -> None:
    """Where the framework's own einsum gives no views, a rearrangement is a copy."""
    if subject.framework.views:
        raise NotApplicable(f"{subject.framework.name} gives views")
    _is_fresh(case, subject)


def _memory_cases() -> Iterator[Case]:
    for equation, shapes in _REARRANGEMENTS:
        yield Case("views", _is_a_view, equation, operands(*shapes))
        yield Case("aliasing", _is_fresh_rearrangement, equation, operands(*shapes))
    yield Case("views", _is_a_view, "ii->i", operands((3, 3), layout="F"))
    yield Case("views", _is_a_view, "ij->ji", operands((2, 3), layout="sliced"))
    yield Case("views", _is_a_view, "ij->ji", operands((2, 3), dtype="int8"), full=True)
    yield Case("views", _is_a_view, "ij->ji", operands((2, 3)), (("optimize", True),))
    yield Case("views", _is_a_view, ((0, 1), (1, 0)), operands((2, 3)))
    for equation in ("ij->ji", "ii->i", "ij->ij"):
        yield Case("views", _is_a_readonly_view, equation, operands((3, 3), layout="readonly"))

    for equation, shapes in _FRESH:
        for size in (3, 1):
            sized = [tuple(size for _ in shape) for shape in shapes]
            yield Case("aliasing", _is_fresh, equation, operands(*sized))
            if "k" not in equation:  # whether bools have a matrix product is another question
                yield Case("aliasing", _is_fresh, equation, operands(*sized, dtype="bool"), full=True)
            ones = [ArraySpec(sized[0]), *operands(*sized[1:], fill="one")]
            if len(shapes) > 1:
                yield Case("aliasing", _is_fresh, equation, tuple(ones), full=True)
    yield Case("aliasing", _is_fresh, "ij,j->ij", operands((3, 1), (4,)))
    yield Case("aliasing", _is_fresh, ",->", operands((), ()))
    yield Case("aliasing", _is_fresh, "ij->ji", operands((2, 3), dtype="int8"), (("dtype", "int32"),))
    for dtype in ("bool", "float32", "int8"):
        for equation in ("ij->i", "ij,ij->ij"):
            made = operands(*[(3, 4)] * (1 + equation.count(",")), dtype=dtype, layout="broadcast-last")
            yield Case("aliasing", _is_fresh_of_broadcast, equation, made, full=dtype == "int8")


# -- keywords -------------------------------------------------------------------------------------------------------


def _takes_a_path(case: Case, subject: Subject) -> None:
    """A path is taken as ``einsum_path`` returns it and as opt_einsum does; of other functions, either way will do."""
    hosts, arrays = subject.operands(case)
    path = [(1, 2), (0, 1)]
    failures = []
    for form in (path, tuple(path), ["einsum_path", *path]):
        try:
            result = subject.call(case, arrays, optimize=form)
        except Exception as error:
            failures.append(error)
            if subject.is_einsumx:
                raise
        else:
            subject.judge(result, subject.expected(case, hosts))
    if len(failures) == 3:
        raise failures[0]


def _out_is_refused(case: Case, subject: Subject) -> None:
    """Where arrays are immutable, ``out=`` is an error."""
    if not subject.framework.immutable:
        raise NotApplicable(f"{subject.framework.name} arrays can be written to")
    hosts, arrays = subject.operands(case)
    out = subject.array(hosts[0], case.operands[0].dtype)
    is_refused(replace(case, options=(("out", out),)), subject)
    subject.judge_unchanged(arrays, hosts)


def _keyword_cases() -> Iterator[Case]:
    chain = operands((2, 3), (3, 4), (4, 5))
    for optimize in (True, False, "greedy", "optimal"):
        options = (("optimize", optimize),)
        yield Case("keywords", gives_the_plain_sum, "ij,jk,kl->il", chain, options)
        yield Case("keywords", gives_the_plain_sum, "ij,jk->ik", chain[:2], options, full=True)
        yield Case("keywords", gives_the_plain_sum, "ij->i", chain[:1], options, full=True)
    for name in ("optimize", "order", "casting", "dtype", "out", "backend", "device", "memory_limit"):
        yield Case("keywords", gives_the_plain_sum_in_einsumx, "ij,jk,kl->il", chain, ((name, None),))
    yield Case("keywords", _takes_a_path, "ij,jk,kl->il", chain, about="optimize=a path")
    for equation, made in (("ij->", chain[:1]), ("ij,jk->ik", chain[:2]), ("ij,jk,kl->il", chain)):
        refusal = Refusal(TypeError, "no_such_keyword")
        yield Case("keywords", is_refused, equation, made, (("no_such_keyword", 1),), refusal=refusal)
    refusal = Refusal(BackendError, "out=")
    yield Case("keywords", _out_is_refused, "ij->ij", chain[:1], refusal=refusal, about="out=a new array")


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    yield from _out_cases()
    yield from _order_cases()
    yield from _dtype_cases()
    yield from _casting_cases()
    yield from _memory_cases()
    yield from _keyword_cases()
