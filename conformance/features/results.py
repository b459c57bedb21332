"""The result of a call: its array, dtype, memory order, and the memory that it shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from einsumx import BackendError
from einsumx.conformance.case import Case, Failure, cases_of, examples, keywords, operands
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.framework import Array
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.kit.oracle import expect
from einsumx.conformance.refusals import SENTINEL, is_refused, make_out, needs_writeable_arrays
from einsumx.conformance.subject import Subject

FEATURES = {
    "out": "out= is written completely and returned, with any strides, cast as casting= allows, even over operands",
    "order": "order= sets the result's order in memory; it is an error on a framework without memory order",
    "dtype": "dtype= is the dtype of the computation and of the result",
    "casting": "casting= limits the casts to dtype= and out=, with NumPy's rules",
    "views": "A rearrangement is a writeable view if the framework's own einsum returns views",
    "aliasing": "No other result shares memory with an operand",
    "keywords": "All forms of optimize=; an unknown keyword is an error",
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
    ij,jk->ik            2,0 0,4 | 0,3 3,4
    i,j->                0 4
    ->                   ()
    ij,jk->ik            2,3 1,4
""")
"""Results of every kind of op, without axes, without elements, and with empty sums."""

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

_FRESH = examples("""
    ij->i      3,3
    ij->       3,3
    ii->       3,3
    i...->...  3,3
    ij,ij->ij  3,3 3,3
    ij,jk->ik  3,3 3,3
    ij,->ij    3,3 ()
    ij,i->ij   3,3 3
    i,j->ij    3 3
    i,i,i->i   3 3 3
""")
"""Equations whose results are no views. All sizes are equal, because the cases replace them."""

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
"""A dtype, another to which it is cast, and the strictest of NumPy's rules that allows the cast."""

_RULES = ("no", "equiv", "safe", "same_kind", "unsafe")


# -- out ------------------------------------------------------------------------------------------------------------


def writes_out(case: Case, subject: Subject) -> None:
    """``out`` is returned and holds the plain sum in its own dtype; the operands are unchanged."""
    assert case.out is not None
    hosts, arrays = subject.operands(case)
    out = make_out(case.out, subject)
    _returns_out(out, case, arrays, subject)
    subject.judge(out, subject.expected(case, hosts, case.out.dtype), "out")
    subject.judge_unchanged(arrays, hosts)


def _writes_between(case: Case, subject: Subject) -> None:
    """``out`` is every second element of a larger array, whose other elements are unchanged."""
    assert case.out is not None
    hosts, arrays = subject.operands(case)
    subject.framework.needs_shared_parts()
    subject.framework.needs_layout("sliced")
    room = make_out(replace(case.out, shape=tuple(2 * size + 1 for size in case.out.shape)), subject)
    inside = (slice(1, None, 2),) * len(case.out.shape)
    _returns_out(room[inside], case, arrays, subject)
    values = subject.framework.values(room)
    subject.judge(subject.array(values[inside], case.out.dtype), subject.expected(case, hosts), "out")
    values[inside] = SENTINEL
    if (values != SENTINEL).any():
        raise Failure("elements were written that lie between those of out")


def writes_over(case: Case, subject: Subject) -> None:
    """``out`` is an operand; the other operands are unchanged."""
    place = case.over
    assert place is not None
    needs_writeable_arrays(subject)
    hosts, arrays = subject.operands(case)
    if subject.call(case, arrays) is not arrays[place]:
        raise Failure("the function does not return out")
    subject.judge(arrays[place], subject.expected(case, hosts, case.operands[place].dtype), "out")
    subject.judge_unchanged(arrays[:place] + arrays[place + 1 :], hosts[:place] + hosts[place + 1 :])


def _writes_over_a_part(case: Case, subject: Subject) -> None:
    """``out`` is the last rows of an array, and the operand its first rows."""
    needs_writeable_arrays(subject)
    subject.framework.needs_shared_parts()
    subject.framework.needs_layout("offset")
    (host,) = case.values()
    room = subject.array(np.concatenate([host, host[:1]]), case.dtype)
    out = room[1:, ...]
    _returns_out(out, case, [room[:-1, ...]], subject)
    subject.judge(out, subject.expected(case, [host]), "out")


def _returns_out(out: Array, case: Case, arrays: list[Array], subject: Subject) -> None:
    if subject.call(case, arrays, out=out) is not out:
        raise Failure("the function does not return out")


def _wraps_into_out(case: Case, subject: Subject) -> None:
    """The result is computed in ``dtype=`` and then cast to the dtype of ``out``."""
    assert case.out is not None
    hosts, arrays = subject.operands(case)
    out = make_out(case.out, subject)
    subject.call(case, arrays, out=out)
    expected = subject.expected(case, hosts)
    subject.judge(out, replace(expected, dtype=case.out.dtype, values=expected.values.astype(case.out.dtype)), "out")


def _out_cases() -> Iterator[Case]:
    out = partial(Case, "out")
    for equation, shapes in _WRITTEN:
        result = ArraySpec(expect(equation, *map(np.zeros, shapes)).values.shape)
        yield out(writes_out, equation, operands(*shapes), out=result)
        if result.shape:
            full, about = "b" not in equation, "between others"
            yield out(_writes_between, equation, operands(*shapes), out=result, about=about, full=full)
    product = operands((2, 3), (3, 4))
    for layout in ("F", "swapped", "sliced", "offset", "negative", "unaligned", "byteswapped"):
        yield out(writes_out, "ij,jk->ik", product, out=ArraySpec((2, 4), layout=layout))
        yield out(writes_out, "ij->ji", product[:1], out=ArraySpec((3, 2), layout=layout), full=True)
        yield out(writes_out, "ij->i", product[:1], out=ArraySpec((2,), layout=layout), full=True)
    yield out(writes_out, ((0, 1), (1, 2), (2, 0)), product, out=ArraySpec((4, 2)))
    for optimize in (True, False):
        yield out(writes_out, "ij,jk->ik", product, keywords(optimize=optimize), out=ArraySpec((2, 4)))
    for dtype in ("bool", "int8", "float64", "complex64"):
        yield out(writes_out, "ij,jk->ki", operands((2, 3), (3, 4), dtype=dtype), out=ArraySpec((4, 2), dtype))

    for equation, shapes in _OVERWRITTEN:
        for place in range(len(shapes)):
            yield out(writes_over, equation, operands(*shapes), over=place, full=place > 0)
    for equation, shape in (("ij->ij", (5, 5)), ("ij->ji", (5, 5)), ("ij->ji", (40, 40)), ("ijk->kji", (3, 2, 3))):
        yield out(writes_over, equation, operands(shape), over=0)
    for equation in ("ij->ji", "ij->ij"):
        yield out(_writes_over_a_part, equation, operands((5, 5)), about="out overlaps operand 0")

    # Small integers are exact in every dtype, so the result does not depend on the dtype of the computation.
    exact = partial(operands, (2, 3), (3, 4), fill="exact")
    for source, target, rule in _CASTS:
        if source != target and rule != "unsafe":
            pair = exact(dtype=source)
            options: dict[str, Any] = {} if rule == "safe" else {"casting": rule}
            if source != "bool":  # whose sums are ors
                yield out(writes_out, "ij,jk->ik", pair, keywords(**options), out=ArraySpec((2, 4), target), full=True)
            yield out(writes_out, "ij->ij", pair[:1], keywords(**options), out=ArraySpec((2, 3), target))
    # The computation is in dtype=, not in the dtype of out.
    eights, wide = operands((2, 50), dtype="int8", fill="range"), ArraySpec((2,), "int32")
    yield out(_wraps_into_out, "ij->i", eights, keywords(dtype="int8", casting="same_kind"), out=wide)


# -- order ----------------------------------------------------------------------------------------------------------


def has_order(order: str, case: Case, subject: Subject) -> None:
    """The result is the plain sum, contiguous in an order; or an error, if the framework has no memory order."""
    framework = subject.framework
    if not framework.memory_order:
        is_refused(replace(case, raises=BackendError, says="memory order"), subject)
        return
    hosts, arrays = subject.operands(case)
    result = subject.call(case, arrays)
    expected = subject.expected(case, hosts)
    subject.judge(result, expected)
    subject.judge_unchanged(arrays, hosts)
    if 0 in result.shape:  # an empty array is contiguous in every order
        return
    contiguous = framework.strides(subject.array(np.zeros(2), expected.dtype))[0]
    strides = framework.strides(result)
    outwards = slice(None, None, -1 if order == "C" else 1)
    for size, stride in zip(result.shape[outwards], strides[outwards]):
        if size > 1 and stride != contiguous:
            raise Failure(f"the strides are {strides}: not contiguous in {order} order")
        contiguous *= size


def _order_cases() -> Iterator[Case]:
    in_order = partial(Case, "order")
    batch, matrix, fortran = operands((4, 3, 2), (4, 2, 5)), operands((2, 3)), operands((2, 3), layout="F")
    for order in ("C", "F", "c", "f"):
        check = partial(has_order, order.upper())
        yield in_order(check, "bij,bjk->kbi", batch, keywords(order=order))
        if order.isupper():
            yield in_order(check, "bij,bjk->bik", batch, keywords(order=order))
            yield in_order(check, "ij,jk,kl->il", operands((2, 3), (3, 4), (4, 5)), keywords(order=order), full=True)
            for layout in ("C", "F", "sliced"):
                for equation in ("ij->ij", "ij->ji"):
                    laid_out = operands((2, 3), layout=layout)
                    yield in_order(check, equation, laid_out, keywords(order=order), full=layout != "C")
            yield in_order(check, "ijk->kj", operands((2, 3, 4)), keywords(order=order))
            for equation, specs in (
                ("iij->ji", operands((3, 3, 2))),
                ("i,j,k->kij", operands((2,), (3,), (4,))),
                ("ij,ij->ij", operands((2, 3), (2, 3), layout="swapped")),
                ("ij->", matrix),
                ("ij,jk->ik", operands((0, 3), (3, 4))),
            ):
                yield in_order(check, equation, specs, keywords(order=order), full=True)
    # order="A" is Fortran order if all operands have it and none has C order. Vectors and scalars have both.
    for layouts, expected in {"F F": "F", "F C": "C", "C F": "C", "C C": "C", "F sliced": "C"}.items():
        first, second = layouts.split()
        pair = (ArraySpec((2, 3), layout=first), ArraySpec((3, 4), layout=second))
        for order in "Aa":
            yield in_order(partial(has_order, expected), "ij,jk->ki", pair, keywords(order=order), full=order == "a")
    vector = ArraySpec((3,))
    for equation, specs, expected in (
        ("ij->ij", fortran, "F"),
        ("ij->ji", fortran, "F"),
        ("i,j->ij", operands((2,), (3,)), "F"),
        ("ij,j->ij", (*fortran, vector), "F"),
        ("ij,j->ij", (*matrix, vector), "C"),
    ):
        yield in_order(partial(has_order, expected), equation, specs, keywords(order="A"))
    yield in_order(gives_the_plain_sum, "ij,jk->ki", operands((2, 3), (3, 4)), keywords(order="K"))
    yield in_order(gives_the_plain_sum, "ij->ji", matrix, keywords(order="k"))
    # An out= in another order contradicts order=.
    for specs, order, layout in ((matrix, "F", "C"), (matrix, "C", "F"), (fortran, "A", "C")):
        out, says = ArraySpec((3, 2), layout=layout), "order='.' asks for a new array"
        yield in_order(is_refused, "ij->ji", specs, keywords(order=order), out=out, raises=ValueError, says=says)


# -- dtype and casting ----------------------------------------------------------------------------------------------


def _computes_in_own_dtype(dtype: Any, case: Case, subject: Subject) -> None:
    """``dtype=`` may be the framework's dtype object, or a Python type that every framework knows."""
    name = "bool" if dtype is bool else dtype
    own = subject.array(np.ones(1), dtype).dtype if isinstance(dtype, str) else dtype
    hosts, arrays = subject.operands(case)
    subject.judge(subject.call(case, arrays, dtype=own), subject.expected(case, hosts, name))


def _casting_is_refused(case: Case, subject: Subject) -> None:
    """The cast is refused, if the framework has the result's dtype at all."""
    subject.needs_dtype(dict(case.options).get("dtype") or subject.result_dtype(case))
    is_refused(case, subject)


def _dtype_cases() -> Iterator[Case]:
    in_dtype = partial(Case, "dtype", gives_the_plain_sum)
    eights = partial(operands, dtype="int8", fill="range")
    optimizing: tuple[dict[str, Any], ...] = ({}, {"optimize": True}, {"optimize": False})
    for options in optimizing:
        full = bool(options)
        yield in_dtype("ki,i->k", eights((3, 40), (40,)), keywords(dtype="int32", **options))
        yield in_dtype("ki,ij->j", eights((3, 4), (4, 2)), keywords(dtype="int32", **options), full=full)
        yield in_dtype("ki,ij->j", eights((3, 4), (4, 1)), keywords(dtype="int32", **options), full=full)
        yield in_dtype("ki->i", eights((3, 4)), keywords(dtype="int32", **options), full=full)
        yield in_dtype("ij,jk,kl->il", eights((2, 3), (3, 4), (4, 2)), keywords(dtype="int32", **options), full=full)
    for source, target, text in (
        ("int8", "float32", "ki->ik     3,4"),
        ("int8", "float32", "ij,jk->ik  2,3 3,4"),
        ("uint8", "int32", "ij->       3,200"),
        ("bool", "int32", "ij->i      3,300"),
        ("bool", "int32", "ij,jk->ik  2,300 300,2"),
        ("float32", "float64", "ij,jk->ik  2,50 50,2"),
        ("float32", "float64", "ij->       20,30"),
        ("float32", "complex64", "ij,jk->ki  2,3 3,4"),
        ("float16", "float32", "ij,jk->ik  2,50 50,2"),
        ("float32", "float32", "ij,jk->ik  2,3 3,4"),
        ("float32", "float32", "ii->i      3,3"),
    ):
        ((equation, shapes),) = examples(text)
        fill = "range" if source == "uint8" else "normal"
        yield in_dtype(equation, operands(*shapes, dtype=source, fill=fill), keywords(dtype=target))
    # A function may round the operands first or the result last. Small integers need no rounding.
    for source, target in (("float64", "float32"), ("float32", "float16"), ("float32", "bfloat16"), ("int32", "int8")):
        for equation, shapes in examples("ij,jk->ik  2,3 3,4 \n ij->j  3,4 \n ij->ji  2,3"):
            exact = operands(*shapes, dtype=source, fill="exact")
            yield in_dtype(equation, exact, keywords(dtype=target, casting="same_kind"), full=len(shapes) == 1)
    # The operands are cast before the computation, which drops their fractions.
    yield in_dtype("i,i->", operands((9,), (9,)), keywords(dtype="int32", casting="unsafe"))
    mixed = (ArraySpec((2, 3), "int8"), ArraySpec((3, 4), "float32"))
    yield in_dtype("ij,jk->ik", mixed, keywords(dtype="float32"))
    own = partial(Case, "dtype")
    for dtype, equation, specs in (("float32", "i,i->", operands((3,), (3,))), ("int32", "ij->i", eights((3, 40)))):
        check, about = partial(_computes_in_own_dtype, dtype), f"dtype=the framework's own {dtype}"
        yield own(check, equation, specs, about=about)
    check, about = partial(_computes_in_own_dtype, bool), "dtype=bool, Python's"
    yield own(check, "ij->i", operands((3, 4)), keywords(casting="unsafe"), about=about)


def _casting_cases() -> Iterator[Case]:
    allowed = partial(Case, "casting", gives_the_plain_sum)
    refused = partial(Case, "casting", _casting_is_refused, raises=BackendError)
    for source, target, strictest in _CASTS:
        pair = operands((6,), (6,), dtype=source, fill="exact")
        first = _RULES.index(strictest)
        says = f"{source}.*{target}"
        for place, rule in enumerate(_RULES):
            if place >= first:
                yield allowed("i,i->i", pair, keywords(dtype=target, casting=rule), full=place > first)
            else:
                full = place < first - 1
                yield refused(
                    "i,i->i", pair, keywords(dtype=target, casting=rule), says=f"operand 0.*{says}", full=full
                )
        if first > _RULES.index("safe"):
            yield refused(
                "i,i->", pair, keywords(dtype=target), says=f"operand 0.*{says}", about="by default", full=True
            )
            yield Case(
                "casting", is_refused, "i,i->i", pair, out=ArraySpec((6,), target),
                raises=BackendError, says=says, about="by default", full=True,
            )  # fmt: skip
    # A rearrangement computes nothing, but the casting rule still applies.
    matrix = operands((2, 3), dtype="int32")
    yield allowed("ij->ji", matrix, keywords(dtype="float32", casting="same_kind"))
    yield refused("ij->ji", matrix, keywords(dtype="float32"), says="operand 0.*int32.*float32", about="by default")
    for narrow, wide in (("int8", "float32"), ("float32", "complex64")):
        pair = (ArraySpec((2,), wide), ArraySpec((2,), narrow))
        for specs, place, casting in ((pair, 1, "no"), (pair[::-1], 0, "equiv")):
            says = f"operand {place} .*{narrow}.*casting='{casting}'.*{wide}"
            yield refused("i,i->", specs, keywords(casting=casting), says=says)
    yield Case("casting", gives_the_plain_sum, "i,i->", operands((2,), (2,)), keywords(casting="no"))


# -- shared memory --------------------------------------------------------------------------------------------------


def _is_a_view(case: Case, subject: Subject) -> None:
    """Writes to the operand show in the result, and writes to the result in the operand."""
    framework = subject.framework
    if not framework.views:
        raise NotApplicable(f"{framework.name} has no views")
    hosts, (array,) = subject.operands(case)
    result = subject.call(case, [array])
    subject.judge(result, subject.expected(case, hosts))
    if result is array:
        raise Failure("the result is the operand itself, not a view of it")
    framework.fill(array, np.full(hosts[0].shape, 7))
    if (framework.values(result) != 7).any():
        raise Failure("a write to the operand does not show in the result: it is a copy")
    framework.fill(result, np.full(result.shape, 9))
    if (framework.values(array) == 9).sum() != np.prod(result.shape):
        raise Failure("a write to the result does not show in the operand")


def _is_a_readonly_view(case: Case, subject: Subject) -> None:
    """A view of a read-only array is read-only too."""
    hosts, (array,) = subject.operands(case)
    result = subject.call(case, [array])
    try:
        subject.framework.fill(result, np.full(result.shape, 9))
    except ValueError:
        subject.judge_unchanged([array], hosts)
        return
    raise Failure("a view of a read-only array can be written to")


def is_fresh(case: Case, subject: Subject) -> None:
    """The result does not change with the operands, nor the operands with the result."""
    needs_writeable_arrays(subject)
    framework = subject.framework
    hosts, arrays = subject.operands(case)
    _is_independent(case, subject, arrays, arrays)
    arrays = subject.arrays(case, hosts)
    result = subject.call(case, arrays)
    if result is not None and framework.is_array(result) and not isinstance(result, np.generic):
        framework.fill(result, _other_values(framework.values(result)))
        subject.judge_unchanged(arrays, hosts)


def _is_fresh_of_broadcast(case: Case, subject: Subject) -> None:
    """The result does not change with its operands, whose last axis has stride 0, so that their memory is small."""
    needs_writeable_arrays(subject)
    subject.framework.needs_layout("broadcast-last")
    bases = [subject.array(host[..., :1], operand.dtype) for host, operand in zip(case.values(), case.operands)]
    arrays = [subject.framework.broadcast(base, operand.shape) for base, operand in zip(bases, case.operands)]
    _is_independent(case, subject, arrays, bases)


def _is_independent(case: Case, subject: Subject, arrays: list[Array], bases: list[Array]) -> None:
    framework = subject.framework
    result = subject.call(case, arrays)
    before = framework.values(result)
    for base in bases:
        framework.fill(base, _other_values(framework.values(base)))
    if not np.array_equal(before, framework.values(result)):
        raise Failure("the result changed when an operand was overwritten: they share memory")


def _other_values(values: Any) -> Any:
    return ~values if values.dtype == bool else values + np.ones((), values.dtype)


def _is_fresh_rearrangement(case: Case, subject: Subject) -> None:
    """A rearrangement is a copy if the framework's own einsum returns no views."""
    if subject.framework.views:
        raise NotApplicable(f"{subject.framework.name} gives views")
    is_fresh(case, subject)


def _memory_cases() -> Iterator[Case]:
    view, fresh = partial(Case, "views"), partial(Case, "aliasing")
    yield from cases_of("views", _is_a_view, _REARRANGEMENTS)
    yield from cases_of("aliasing", _is_fresh_rearrangement, _REARRANGEMENTS)
    yield view(_is_a_view, "ii->i", operands((3, 3), layout="F"))
    yield view(_is_a_view, "ij->ji", operands((2, 3), layout="sliced"))
    yield view(_is_a_view, "ij->ji", operands((2, 3), dtype="int8"), full=True)
    yield view(_is_a_view, "ij->ji", operands((2, 3)), keywords(optimize=True))
    yield view(_is_a_view, ((0, 1), (1, 0)), operands((2, 3)))
    for equation in ("ij->ji", "ii->i", "ij->ij"):
        yield view(_is_a_readonly_view, equation, operands((3, 3), layout="readonly"))

    for equation, shapes in _FRESH:
        for size in (3, 1):
            sized = [(size,) * len(shape) for shape in shapes]
            yield fresh(is_fresh, equation, operands(*sized))
            if "k" not in equation:  # not every framework has a matrix product of bools
                yield fresh(is_fresh, equation, operands(*sized, dtype="bool"), full=True)
            if len(shapes) > 1:
                ones = operands(*sized[1:], fill="one")
                yield fresh(is_fresh, equation, (ArraySpec(sized[0]), *ones), full=True)
    yield fresh(is_fresh, "ij,j->ij", operands((3, 1), (4,)))
    yield fresh(is_fresh, ",->", operands((), ()))
    yield fresh(is_fresh, "ij->ji", operands((2, 3), dtype="int8"), keywords(dtype="int32"))
    for dtype in ("bool", "float32", "int8"):
        for equation, shapes in examples("ij->i  3,4 \n ij,ij->ij  3,4 3,4"):
            repeated = operands(*shapes, dtype=dtype, layout="broadcast-last")
            yield fresh(_is_fresh_of_broadcast, equation, repeated, full=dtype == "int8")


# -- keywords -------------------------------------------------------------------------------------------------------


def _accepts_a_path(case: Case, subject: Subject) -> None:
    """Einsumx accepts a path in the forms of ``einsum_path`` and of opt_einsum; other functions need only one form."""
    hosts, arrays = subject.operands(case)
    path = [(1, 2), (0, 1)]
    errors = []
    for form in (path, tuple(path), ["einsum_path", *path]):
        try:
            result = subject.call(case, arrays, optimize=form)
        except Exception as error:
            errors.append(error)
            if subject.is_einsumx:
                raise
        else:
            subject.judge(result, subject.expected(case, hosts))
    if len(errors) == 3:
        raise errors[0]


def _out_is_refused(case: Case, subject: Subject) -> None:
    """``out=`` is an error if arrays are immutable."""
    if not subject.framework.immutable:
        raise NotApplicable(f"{subject.framework.name} arrays can be written to")
    out = subject.array(case.values()[0], case.dtype)
    is_refused(replace(case, options=(("out", out),)), subject)


def _keyword_cases() -> Iterator[Case]:
    keyword = partial(Case, "keywords")
    chain = operands((2, 3), (3, 4), (4, 5))
    calls = {"ij->": chain[:1], "ij,jk->ik": chain[:2], "ij,jk,kl->il": chain}
    for optimize in (True, False, "greedy", "optimal"):
        yield keyword(gives_the_plain_sum, "ij,jk,kl->il", chain, keywords(optimize=optimize))
        yield keyword(gives_the_plain_sum, "ij,jk->ik", chain[:2], keywords(optimize=optimize), full=True)
        yield keyword(gives_the_plain_sum, "ij->i", chain[:1], keywords(optimize=optimize), full=True)
    for name in ("optimize", "order", "casting", "dtype", "out", "backend", "memory_limit"):
        none = ((name, None),)
        yield keyword(gives_the_plain_sum, "ij,jk,kl->il", chain, none, only_einsumx=True)
    yield keyword(_accepts_a_path, "ij,jk,kl->il", chain, about="optimize=a path")
    for equation, specs in calls.items():
        yield keyword(
            is_refused, equation, specs, keywords(no_such_keyword=1), raises=TypeError, says="no_such_keyword"
        )
    yield keyword(_out_is_refused, "ij->ij", chain[:1], raises=BackendError, says="out=", about="out=a new array")


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    yield from _out_cases()
    yield from _order_cases()
    yield from _dtype_cases()
    yield from _casting_cases()
    yield from _memory_cases()
    yield from _keyword_cases()
