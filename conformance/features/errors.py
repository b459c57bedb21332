"""What a call refuses: before anything is computed or written, and saying what is wrong where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from einsumx import BackendError, EquationError, MemoryLimitError, PathError, SizeError
from einsumx.conformance.case import ArraySpec, Case, Failure, NotApplicable, Options, Refusal, examples, operands
from einsumx.conformance.framework import Array, Framework
from einsumx.conformance.frameworks import framework_of
from einsumx.conformance.refusals import is_refused, needs_keyword, needs_writeable_arrays, refusal_message
from einsumx.conformance.subject import Subject

__all__ = ["FEATURES", "cases"]

FEATURES = {
    "wrong equations": "An equation that cannot be read, or does not fit the number of operands; where, by a caret",
    "wrong sizes": "Ranks that do not fit the equation, sizes that contradict one another; by label, operand and axis",
    "wrong paths": "A path that does not fit the operands, an optimizer that there is not",
    "wrong keywords": "Values of keywords that mean nothing: dtypes, casting rules, orders, backends",
    "wrong out": "An out= of another shape, dtype or framework, or that cannot be written; and no error writes to it",
    "wrong operands": "What is no array, and arrays of what einsum makes no sense of, by the name of their type",
    "two frameworks": "Arrays of two frameworks in one call, by the names of both",
}

_EQUATIONS = (
    # equation, operands, what is error_line, where the caret stands
    ("ij,j!->i", 2, "'!' is no label", 4),
    ("i1->i", 1, "'1' is no label", 1),
    ("i_->i", 1, "'_' is no label", 1),
    ("ij->i->j", 1, "a second '->'", 5),
    ("ij->->i", 1, "a second '->'", 4),
    ("ij-i", 1, "'-' that is not part of '->'", 2),
    ("ij- >i", 1, "'-' that is not part of '->'", 2),
    ("ij>i", 1, "'>' that is not part of '->'", 2),
    ("i..j", 1, "'.' that is not part of '...'", 1),
    (". ..ij->ij", 1, "'.' that is not part of '...'", 0),
    ("ij->. ..ji", 1, "'.' that is not part of '...'", 4),
    ("...i...", 1, "a second ellipsis", 4),
    ("ij->...i...", 1, "a second ellipsis", 8),
    ("ij->ii", 1, "'i' stands twice in the output", 5),
    ("ij->ik", 1, "'k' of the output stands in no operand", 5),
    ("ij->i,j", 1, "the output has a comma", 5),
)

_COUNTS = (
    ("ij", 2, "1 subscript but 2 operands were given"),
    ("ij,jk", 1, "2 subscripts but 1 operand was given"),
    ("ij,jk,kl->il", 2, "3 subscripts but 2 operands were given"),
    ("ij,jk->ik", 3, "2 subscripts but 3 operands were given"),
    ("ij", 0, ""),
    ((), 1, ""),
    ((), 0, ""),
)

_SUBLISTS = (
    (((0, 1), (0, 0)), "twice in the output"),
    (((0, 1), (0, 7)), "label 7 of the output"),
    (((..., ...),), "a second ellipsis"),
    (((0, [1]),), "not hashable"),
    ((5,), "must be a list or tuple"),
    (("ij",), "must be a list or tuple"),
    (({0, 1},), "must be a list or tuple"),
    (((0, 1), "ij"), "must be a list or tuple"),
    (((0, 1), 5), ""),
)

_SIZES: tuple[tuple[Any, tuple[tuple[int, ...], ...], str], ...] = (
    # equation, shapes, what is error_line
    ("ab,bc->ac", ((2, 3), (4, 5)), r"label 'b' .* 3 in operand 0 \(axis 1\) .* 4 in operand 1 \(axis 0\)"),
    ("ij,jk,ki->", ((2, 3), (3, 4), (4, 5)), r"label 'i' .* 2 in operand 0 \(axis 0\) .* 5 in operand 2 \(axis 1\)"),
    ("i,i->i", ((2,), (0,)), r"label 'i' .* 2 in operand 0 \(axis 0\) .* 0 in operand 1 \(axis 0\)"),
    ("i,i,i->i", ((1,), (2,), (3,)), r"label 'i' .* 2 in operand 1 \(axis 0\) .* 3 in operand 2 \(axis 0\)"),
    ("...i,...i->...", ((2, 4), (3, 4)), r"ellipsis axis 0 .* 2 in operand 0 \(axis 0\) .* 3 in operand 1"),
    ("...,...", ((2, 3), (2,)), r"ellipsis axis 1 .* 3 in operand 0 \(axis 1\) .* 2 in operand 1 \(axis 0\)"),
    (((0, 1), (1, 2)), ((2, 3), (4, 5)), r"label 1 .* 3 in operand 0 \(axis 1\) .* 4 in operand 1 \(axis 0\)"),
    # A diagonal needs equal sizes; 1 is no exception.
    ("ii->i", ((3, 4),), r"label 'i' .* 3 \(axis 0\) .* 4 \(axis 1\) in operand 0"),
    ("ii->i", ((1, 3),), r"label 'i' .* 1 \(axis 0\) .* 3 \(axis 1\) in operand 0"),
    ("ii->i", ((3, 1),), r"label 'i' .* 3 \(axis 0\) .* 1 \(axis 1\) in operand 0"),
    ("ii", ((1, 3),), r"label 'i' .* 1 \(axis 0\) .* 3 \(axis 1\) in operand 0"),
    ("jii,j->i", ((2, 3, 1), (2,)), r"label 'i' .* 3 \(axis 1\) .* 1 \(axis 2\) in operand 0"),
)

_RANKS = examples("""
    ij         2
    i          2,3
    i          ()
    ij...      2
    ...ij      2
    ->         1
    ij,jk->ik  2,3 3
    ij,j->i    2,3 3,1
    ,i->i      1 3
""")

_PATHS = (
    ("no such", "no optimizer is called 'no such'"),
    ([(0, 1)], "leaves 2 operands"),
    ([(0, 1), (0, 5)], "not there"),
    ([(0, 0), (0, 1)], "different operands"),
    ([(0, "x"), (0, 1)], "positions"),
    ([(0, 1), (0, 1), (0, 1)], ""),
    (["path", (0, 1), (0, 1)], "einsum_path"),
    (3.5, "optimize="),
)


class Opaque:
    """A type of no framework."""


_NO_ARRAYS: tuple[Any, ...] = (None, "abc", b"abc", Opaque(), {1: 2}, {1, 2})

_NO_NUMBERS: dict[str, Callable[[], Any]] = {
    "text": lambda: np.array(["a", "b"]),
    "dates": lambda: np.array(["2020-01-01", "2020-01-02"], "M8[D]"),
    "durations": lambda: np.array([1, 2], "m8[s]"),
    "a mask": lambda: np.ma.masked_array(np.ones(2), [False, True]),
    "records": lambda: np.zeros(2, "i4,f4"),
}
"""NumPy arrays that einsum would treat wrongly."""


def _shows_the_place(place: int, case: Case, subject: Subject) -> None:
    """The message ends with the equation and a caret under the place."""
    hosts, arrays = subject.operands(case)
    message = refusal_message(case, subject, arrays)
    subject.judge_unchanged(arrays, hosts)
    if subject.is_einsumx:
        *_, shown, caret = message.split("\n")
        if shown != f"  {case.equation}" or not caret.startswith(f"  {' ' * place}^"):
            raise Failure(f"there is no caret under place {place} of the equation: {message!r}")


def _is_refused_of_einsumx(case: Case, subject: Subject, instead: Mapping[int, Any] | None = None) -> None:
    """The same for what einsumx alone promises."""
    if not subject.is_einsumx:
        raise NotApplicable("this is promised by einsumx alone")
    is_refused(case, subject, instead)


def _is_refused_of_numpy(make: Callable[[], Any], place: int, case: Case, subject: Subject) -> None:
    """The same, with an array of NumPy's that has none of its numbers in it."""
    if subject.framework.name != "numpy":
        raise NotApplicable("NumPy alone has such arrays")
    is_refused(case, subject, {place: make()})


def _shares_its_elements(case: Case, subject: Subject) -> None:
    """Several elements of ``out`` share one place in memory."""
    if "broadcast" not in subject.framework.layouts:
        raise NotApplicable(f"{subject.framework.name} has no layout 'broadcast' of arrays")
    is_refused(case, subject)


# -- two frameworks -------------------------------------------------------------------------------------------------


def _foreign(subject: Subject) -> tuple[Framework, Array]:
    """Another framework, and a vector of three ones in it: NumPy, or beside NumPy whichever is there."""
    names = ("array_api", "torch", "jax", "mxnet") if subject.framework.name == "numpy" else ("numpy",)
    for framework in map(framework_of, names):
        try:
            import_module(framework.module)
        except ImportError:
            continue
        return framework, framework.array(np.ones(3), "float32")
    raise NotApplicable("no other framework is installed")


def _is_refused_beside(place: int, case: Case, subject: Subject) -> None:
    """An operand is of another framework; einsumx's message names both."""
    framework, foreign = _foreign(subject)
    hosts, arrays = subject.operands(case)
    given = [*arrays[:place], foreign, *arrays[place + 1 :]]
    _names(refusal_message(case, subject, given), subject, framework.name, subject.framework.name)
    subject.judge_unchanged(arrays, hosts)


def _foreign_out_is_refused(case: Case, subject: Subject) -> None:
    """``out`` is of another framework."""
    needs_writeable_arrays(subject)
    needs_keyword(subject, "out")
    framework, foreign = _foreign(subject)
    hosts, arrays = subject.operands(case)
    message = refusal_message(replace(case, options=(("out", foreign),)), subject, arrays)
    _names(message, subject, framework.name, subject.framework.name)
    subject.judge_unchanged(arrays, hosts)
    if (framework.values(foreign) != 1).any():
        raise Failure("out was written before the error")


def _foreign_backend_is_refused(case: Case, subject: Subject) -> None:
    """``backend=`` is another than that of the operands."""
    other = "torch" if subject.name == "numpy" else "numpy"
    _is_refused_of_einsumx(replace(case, options=(("backend", other),)), subject)


def _names(message: str, subject: Subject, *names: str) -> None:
    missing = [name for name in names if name not in message]
    if subject.is_einsumx and missing:
        raise Failure(f"the message does not name {' and '.join(missing)}: {message!r}")


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    square = operands((2, 2))
    for equation, count, says, place in _EQUATIONS:
        check = partial(_shows_the_place, place)
        yield Case("wrong equations", check, equation, square * count, refusal=Refusal(EquationError, says))
    for counted, count, says in _COUNTS:
        yield Case("wrong equations", is_refused, counted, square * count, refusal=Refusal(EquationError, says))
    for sublists, says in _SUBLISTS:
        yield Case("wrong equations", is_refused, sublists, square, refusal=Refusal(EquationError, says))

    for sized, shapes, says in _SIZES:
        made, refusal = operands(*shapes), Refusal(SizeError, says)
        yield Case("wrong sizes", is_refused, sized, made, refusal=refusal)
        yield Case("wrong sizes", is_refused, sized, made, (("optimize", True),), refusal=refusal, full=True)
    for equation, shapes in _RANKS:
        refusal = Refusal(SizeError, r"operand [01] has \d ax[ei]s, shape \(")
        yield Case("wrong sizes", is_refused, equation, operands(*shapes), refusal=refusal)

    options: Options
    for optimize, says in _PATHS:
        options = (("optimize", optimize),)
        vectors = operands((3,), (3,), (3,))
        yield Case("wrong paths", is_refused, "i,i,i->i", vectors, options, refusal=Refusal(PathError, says))
    limit = Refusal(MemoryLimitError, "elements, more than the limit of 3")
    chain, options = operands((2, 3), (3, 4), (4, 5)), (("optimize", ("greedy", 3)),)
    yield Case("wrong paths", _is_refused_of_einsumx, "ij,jk,kl->il", chain, options, refusal=limit)

    yield from _keyword_cases()
    yield from _out_cases()
    yield from _operand_cases()

    for equation, count in (("i->", 1), ("i,i->", 2), ("i,i->i", 2), ("i,i,i->", 3)):
        for place in range(count if count > 1 else 0):
            check = partial(_is_refused_beside, place)
            refusal = Refusal(BackendError, "two frameworks")
            about = f"operand {place} of another framework"
            vectors = operands(*[(3,)] * count)
            yield Case("two frameworks", check, equation, vectors, refusal=refusal, about=about)
    refusal = Refusal(BackendError, "out=")
    about = "out=of another framework"
    yield Case("two frameworks", _foreign_out_is_refused, "i,i->i", vectors[:2], refusal=refusal, about=about)
    refusal = Refusal(BackendError, "backend='.*' was asked for")
    about = "backend=another framework"
    yield Case("two frameworks", _foreign_backend_is_refused, "i->i", vectors[:1], refusal=refusal, about=about)


def _keyword_cases() -> Iterator[Case]:
    vector = operands((3,))
    for name, value, error, says in (
        ("dtype", "no such", BackendError, "no such"),
        ("dtype", "float33", BackendError, "float33"),
        ("casting", "no such", ValueError, "casting must be one of no, equiv, safe, same_kind, unsafe, not 'no such'"),
        ("order", "no such", ValueError, "order must be one of"),
        ("order", "B", ValueError, "order must be one of"),
    ):
        for equation in ("i->i", "i,i->"):
            made = vector * (1 + equation.count(","))
            refusal = Refusal(error, says)
            yield Case("wrong keywords", is_refused, equation, made, ((name, value),), refusal=refusal)
    refusal = Refusal(BackendError, "'no such'.*numpy.*torch")
    yield Case("wrong keywords", _is_refused_of_einsumx, "i->i", vector, (("backend", "no such"),), refusal=refusal)


def _out_cases() -> Iterator[Case]:
    product, equation = operands((2, 3), (3, 4)), "ij,jk->ik"
    for shape in ((2,), (2, 4, 1), (4, 2), (1, 4), (2, 5), (), (0,), (8,)):
        refusal = Refusal(SizeError, r"out= has shape .* but the result has shape \(2, 4\)")
        yield Case("wrong out", is_refused, equation, product, out=ArraySpec(shape), refusal=refusal)
    refusal = Refusal(SizeError, r"out= has shape \(1,\) but the result has shape \(\)")
    yield Case("wrong out", is_refused, "ij->", product[:1], out=ArraySpec((1,)), refusal=refusal)
    for dtype in ("int32", "bool", "float16"):
        refusal = Refusal(BackendError, f"float32.*casting='safe'.*{dtype}")
        yield Case("wrong out", is_refused, equation, product, out=ArraySpec((2, 4), dtype), refusal=refusal)
    refusal = Refusal(BackendError, "float32.*casting='same_kind'.*int32")
    options: Options = (("casting", "same_kind"),)
    yield Case("wrong out", is_refused, equation, product, options, out=ArraySpec((2, 4), "int32"), refusal=refusal)
    for made, written in ((product, equation), (operands((2, 4)), "ij->ij")):
        refusal = Refusal(BackendError, "read-only")
        yield Case("wrong out", is_refused, written, made, out=ArraySpec((2, 4), layout="readonly"), refusal=refusal)
        refusal = Refusal(BackendError, "read-only|share")
        out = ArraySpec((2, 4), layout="broadcast")
        yield Case("wrong out", _shares_its_elements, written, made, out=out, refusal=refusal)

    # An out= that is right, beside something else that is wrong.
    for written, shapes, options, refusal in (
        ("ij,jk->ix", ((2, 3), (3, 4)), (), Refusal(EquationError, "'x'")),
        (equation, ((2, 3), (5, 4)), (), Refusal(SizeError, "'j'")),
        (equation, ((2, 3), (3,)), (), Refusal(SizeError, "operand 1")),
        (equation, ((2, 3), (3, 4)), (("dtype", "int32"),), Refusal(BackendError, "float32.*int32")),
        (equation, ((2, 3), (3, 4)), (("dtype", "no such"),), Refusal(BackendError, "no such")),
        (equation, ((2, 3), (3, 4)), (("optimize", [(0, 2)]),), Refusal(PathError)),
        (equation, ((2, 3), (3, 4)), (("optimize", "no such"),), Refusal(PathError)),
        (equation, ((2, 3), (3, 4)), (("casting", "no such"),), Refusal(ValueError, "casting")),
        (equation, ((2, 3), (3, 4)), (("order", "no such"),), Refusal(ValueError, "order")),
        (equation, ((2, 3), (3, 4)), (("no_such_keyword", 1),), Refusal(TypeError, "no_such_keyword")),
    ):
        yield Case("wrong out", is_refused, written, operands(*shapes), options, out=ArraySpec((2, 4)), refusal=refusal)
    check, options = _is_refused_of_einsumx, (("backend", "no such"),)
    refusal = Refusal(BackendError, "no such")
    yield Case("wrong out", check, equation, product, options, out=ArraySpec((2, 4)), refusal=refusal)


def _operand_cases() -> Iterator[Case]:
    vectors = operands((3,), (3,))
    for thing in _NO_ARRAYS:
        name = type(thing).__name__
        for equation, place in (("i->", 0), ("i,i->", 1), ("i,i->i", 0)):
            made = vectors[: 1 + equation.count(",")]
            check = partial(is_refused, instead={place: thing})
            about = f"operand {place}: {name}"
            refusal = Refusal(BackendError, name)
            yield Case("wrong operands", check, equation, made, refusal=refusal, about=about, full=equation == "i,i->i")
    check = partial(_is_refused_of_einsumx, instead={0: range(3)})
    refusal = Refusal(BackendError, "range")
    yield Case("wrong operands", check, "i->", vectors[:1], refusal=refusal, about="operand 0: range")
    pair = operands((2,), (2,))
    for name, make in _NO_NUMBERS.items():
        for equation, place in (("i->", 0), ("i->i", 0), ("i,i->", 1)):
            made, about = pair[: 1 + equation.count(",")], f"operand {place}: of {name}"
            check = partial(_is_refused_of_numpy, make, place)
            yield Case("wrong operands", check, equation, made, refusal=Refusal(BackendError), about=about)
