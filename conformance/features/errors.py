"""Calls that must be refused, before anything is computed or written, with a message that names the problem."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from einsumx import BackendError, EquationError, MemoryLimitError, PathError, SizeError
from einsumx.conformance.case import Case, Failure, examples, keywords, operands
from einsumx.conformance.framework import Array, Framework
from einsumx.conformance.frameworks import framework_of
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.refusals import is_refused, judge_names, needs_keyword, needs_writeable_arrays, refusal_message
from einsumx.conformance.subject import Subject

FEATURES = {
    "wrong equations": "Syntax errors, with a caret under the place, and wrong numbers of operands",
    "wrong sizes": "Ranks that do not fit the equation and sizes that differ, by label, operand and axis",
    "wrong paths": "Paths that do not fit the operands, and unknown optimizers",
    "wrong keywords": "Invalid values of keywords: dtypes, casting rules, orders, backends",
    "wrong out": "An out= of the wrong shape, dtype or framework, or read-only; no error writes to out=",
    "wrong operands": "Objects that are no arrays, and arrays of no numbers, by the name of their type",
    "two frameworks": "Arrays of two frameworks in one call, by the names of both",
}

_EQUATIONS = (
    # equation, number of operands, message, position of the caret
    ("ij,j!->i", 2, "'!' is not a label", 4),
    ("i1->i", 1, "'1' is not a label", 1),
    ("i_->i", 1, "'_' is not a label", 1),
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
    ("ij->ii", 1, "'i' appears twice in the output", 5),
    ("ij->ik", 1, "'k' of the output appears in no operand", 5),
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
    # equation, shapes, message
    ("ab,bc->ac", ((2, 3), (4, 5)), r"label 'b' .* 3 in operand 0 \(axis 1\) .* 4 in operand 1 \(axis 0\)"),
    ("ij,jk,ki->", ((2, 3), (3, 4), (4, 5)), r"label 'i' .* 2 in operand 0 \(axis 0\) .* 5 in operand 2 \(axis 1\)"),
    ("i,i->i", ((2,), (0,)), r"label 'i' .* 2 in operand 0 \(axis 0\) .* 0 in operand 1 \(axis 0\)"),
    ("i,i,i->i", ((1,), (2,), (3,)), r"label 'i' .* 2 in operand 1 \(axis 0\) .* 3 in operand 2 \(axis 0\)"),
    ("...i,...i->...", ((2, 4), (3, 4)), r"ellipsis axis 0 .* 2 in operand 0 \(axis 0\) .* 3 in operand 1"),
    ("...,...", ((2, 3), (2,)), r"ellipsis axis 1 .* 3 in operand 0 \(axis 1\) .* 2 in operand 1 \(axis 0\)"),
    (((0, 1), (1, 2)), ((2, 3), (4, 5)), r"label 1 .* 3 in operand 0 \(axis 1\) .* 4 in operand 1 \(axis 0\)"),
    # A diagonal needs equal sizes, even if one of them is 1.
    ("ii->i", ((3, 4),), r"label 'i' .* 3 \(axis 0\) .* 4 \(axis 1\) in operand 0"),
    ("ii->i", ((1, 3),), r"label 'i' .* 1 \(axis 0\) .* 3 \(axis 1\) in operand 0"),
    ("ii->i", ((3, 1),), r"label 'i' .* 3 \(axis 0\) .* 1 \(axis 1\) in operand 0"),
    ("ii", ((1, 3),), r"label 'i' .* 1 \(axis 0\) .* 3 \(axis 1\) in operand 0"),
    ("jii,j->i", ((2, 3, 1), (2,)), r"label 'i' .* 3 \(axis 1\) .* 1 \(axis 2\) in operand 0"),
)

_RANKS = examples("""
    ij         2
    i          2,3 | ()
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


_INVALID_KEYWORDS: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
    ({"dtype": "no such"}, BackendError, "no such"),
    ({"dtype": "float33"}, BackendError, "float33"),
    (
        {"casting": "no such"},
        ValueError,
        "casting must be one of no, equiv, safe, same_kind, unsafe, not 'no such'",
    ),
    ({"order": "no such"}, ValueError, "order must be one of"),
    ({"order": "B"}, ValueError, "order must be one of"),
)


_WRONG_WITH_OUT: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
    ({"dtype": "int32"}, BackendError, "float32.*int32"),
    ({"dtype": "no such"}, BackendError, "no such"),
    ({"optimize": [(0, 2)]}, PathError, ""),
    ({"optimize": "no such"}, PathError, ""),
    ({"casting": "no such"}, ValueError, "casting"),
    ({"order": "no such"}, ValueError, "order"),
    ({"no_such_keyword": 1}, TypeError, "no_such_keyword"),
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
"""NumPy arrays for which an einsum of plain numbers would be wrong."""


def shows_the_place(place: int, case: Case, subject: Subject) -> None:
    """The message ends with the equation and a caret under the place of the error."""
    hosts, arrays = subject.operands(case)
    message = refusal_message(case, subject, arrays)
    subject.judge_unchanged(arrays, hosts)
    if subject.is_einsumx:
        *_, equation, caret = message.split("\n")
        if equation != f"  {case.equation}" or not caret.startswith(f"  {' ' * place}^"):
            raise Failure(f"there is no caret under place {place} of the equation: {message!r}")


def _is_refused_by_numpy(make: Callable[[], Any], place: int, case: Case, subject: Subject) -> None:
    """As :func:`is_refused`, for an operand that only NumPy's arrays can be."""
    if subject.framework.name != "numpy":
        raise NotApplicable("only NumPy has such arrays")
    is_refused(case, subject, {place: make()})


def _shares_its_elements(case: Case, subject: Subject) -> None:
    """Several elements of ``out`` share one place in memory."""
    subject.framework.needs_shared_parts()
    subject.framework.needs_layout("broadcast")
    is_refused(case, subject)


def _names_the_sizes(case: Case, subject: Subject) -> None:
    """The message does not attribute a size to the wrong operand."""
    message = refusal_message(case, subject, subject.operands(case)[1])
    named = [
        *re.findall(r"\b(1[37])\b[^\d]*\boperand (\d)", message),
        *(match[::-1] for match in re.findall(r"\boperand (\d) \((1[37])\)", message)),
    ]
    for size, place in named:
        if size != ("13", "17")[int(place)]:
            raise Failure(f"operand {place} has no size {size}: {message!r}")


def _is_refused_at_once(case: Case, subject: Subject) -> None:
    """The call itself raises the error, not a later wait for its result."""
    try:
        subject.function(*case.arguments(subject.operands(case)[1]))
    except (ValueError, TypeError, RuntimeError):
        return
    raise Failure("no error came from the call")


# -- two frameworks -------------------------------------------------------------------------------------------------


def _foreign(subject: Subject) -> tuple[Framework, Array]:
    """Another framework than the subject's, and an array of three ones in it."""
    taken = {subject.framework.name, *subject.framework.mixes_with}
    names = ("numpy",) if "numpy" not in taken else ("array_api", "torch", "jax", "mxnet")
    for framework in map(framework_of, names):
        try:
            import_module(framework.module)
        except ImportError:
            continue
        return framework, framework.array(np.ones(3), "float32")
    raise NotApplicable("no other framework is installed")


def _foreign_operand_is_refused(place: int, case: Case, subject: Subject) -> None:
    """An operand of another framework is refused; einsumx's message names both."""
    framework, foreign = _foreign(subject)
    hosts, arrays = subject.operands(case)
    message = refusal_message(case, subject, [*arrays[:place], foreign, *arrays[place + 1 :]])
    judge_names(message, subject, framework.name, subject.framework.name)
    subject.judge_unchanged(arrays, hosts)


def _foreign_out_is_refused(case: Case, subject: Subject) -> None:
    """``out`` of another framework is refused; einsumx's message names both."""
    needs_writeable_arrays(subject)
    needs_keyword(subject, "out")
    framework, foreign = _foreign(subject)
    hosts, arrays = subject.operands(case)
    message = refusal_message(replace(case, options=(("out", foreign),)), subject, arrays)
    judge_names(message, subject, framework.name, subject.framework.name)
    subject.judge_unchanged(arrays, hosts)
    if (framework.values(foreign) != 1).any():
        raise Failure("out was written before the error")


def _foreign_backend_is_refused(case: Case, subject: Subject) -> None:
    """``backend=`` is refused if it is not the operands' backend."""
    other = "torch" if subject.name == "numpy" else "numpy"
    is_refused(replace(case, options=(("backend", other),)), subject)


# -- cases ----------------------------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    square = operands((2, 2))
    equation_case = partial(Case, "wrong equations", raises=EquationError)
    for equation, count, says, place in _EQUATIONS:
        yield equation_case(partial(shows_the_place, place), equation, square * count, says=says)
    for counted, count, says in _COUNTS:
        yield equation_case(is_refused, counted, square * count, says=says)
    for sublists, says in _SUBLISTS:
        yield equation_case(is_refused, sublists, square, says=says)

    size_case = partial(Case, "wrong sizes", is_refused, raises=SizeError)
    for sized, shapes, says in _SIZES:
        yield size_case(sized, operands(*shapes), says=says)
        yield size_case(sized, operands(*shapes), keywords(optimize=True), says=says, full=True)
    for check, about in ((_names_the_sizes, "the wrong sizes are named"), (_is_refused_at_once, "errors come late")):
        wrong = operands((11, 13), (17, 19))
        yield Case("wrong sizes", check, "ij,jk->ik", wrong, about=about, raises=SizeError, says="label 'j'")
    for equation, shapes in _RANKS:
        yield size_case(equation, operands(*shapes), says=r"operand [01] has \d ax[ei]s, shape \(")

    vectors = operands((3,), (3,), (3,))
    path_case = partial(Case, "wrong paths")
    for optimize, says in _PATHS:
        yield path_case(is_refused, "i,i,i->i", vectors, keywords(optimize=optimize), raises=PathError, says=says)
    limited = partial(path_case, is_refused, raises=MemoryLimitError, says="elements, more than the limit of 3")
    chain, greedy = operands((2, 3), (3, 4), (4, 5)), keywords(optimize=("greedy", 3))
    yield limited("ij,jk,kl->il", chain, greedy, only_einsumx=True)

    yield from _keyword_cases()
    yield from _out_cases()
    yield from _operand_cases()

    foreign = partial(Case, "two frameworks", raises=BackendError)
    for equation, count in (("i,i->", 2), ("i,i->i", 2), ("i,i,i->", 3)):
        for place in range(count):
            check, about = partial(_foreign_operand_is_refused, place), f"operand {place} of another framework"
            yield foreign(check, equation, vectors[:count], says="two frameworks", about=about)
    pair, about = vectors[:2], "c of another framework"
    added = partial(_foreign_operand_is_refused, 0)
    yield foreign(added, "i->i", pair, function="addeinsum", says="two frameworks", about=about)
    yield foreign(_foreign_out_is_refused, "i,i->i", vectors[:2], says="out=", about="out=of another framework")
    says, about = "backend='.*' was passed", "backend=another framework"
    yield foreign(_foreign_backend_is_refused, "i->i", vectors[:1], says=says, about=about, only_einsumx=True)


def _keyword_cases() -> Iterator[Case]:
    keyword = partial(Case, "wrong keywords")
    for options, error, says in _INVALID_KEYWORDS:
        for equation, vectors in (("i->i", operands((3,))), ("i,i->", operands((3,), (3,)))):
            yield keyword(is_refused, equation, vectors, keywords(**options), raises=error, says=says)
    says, no_such = "'no such'.*numpy.*torch", keywords(backend="no such")
    yield keyword(is_refused, "i->i", operands((3,)), no_such, raises=BackendError, says=says, only_einsumx=True)


def _out_cases() -> Iterator[Case]:
    out = partial(Case, "wrong out")
    product, equation, right = operands((2, 3), (3, 4)), "ij,jk->ik", ArraySpec((2, 4))
    for shape in ((2,), (2, 4, 1), (4, 2), (1, 4), (2, 5), (), (0,), (8,)):
        says = r"out= has shape .* but the result has shape \(2, 4\)"
        yield out(is_refused, equation, product, out=ArraySpec(shape), raises=SizeError, says=says)
    says = r"out= has shape \(1,\) but the result has shape \(\)"
    yield out(is_refused, "ij->", product[:1], out=ArraySpec((1,)), raises=SizeError, says=says)
    refused = partial(out, raises=BackendError)
    for dtype in ("int32", "bool", "float16"):
        says = f"float32.*casting='safe'.*{dtype}"
        yield refused(is_refused, equation, product, out=ArraySpec((2, 4), dtype), says=says)
    says, integers = "float32.*casting='same_kind'.*int32", ArraySpec((2, 4), "int32")
    yield refused(is_refused, equation, product, keywords(casting="same_kind"), out=integers, says=says)
    for specs, written in ((product, equation), (operands((2, 4)), "ij->ij")):
        yield refused(is_refused, written, specs, out=replace(right, layout="readonly"), says="read-only")
        shared = replace(right, layout="broadcast")
        yield refused(_shares_its_elements, written, specs, out=shared, says="read-only|share")

    # The out= is right, but something else is wrong.
    yield out(is_refused, "ij,jk->ix", product, out=right, raises=EquationError, says="'x'")
    yield out(is_refused, equation, operands((2, 3), (5, 4)), out=right, raises=SizeError, says="'j'")
    yield out(is_refused, equation, operands((2, 3), (3,)), out=right, raises=SizeError, says="operand 1")
    for options, error, says in _WRONG_WITH_OUT:
        yield out(is_refused, equation, product, keywords(**options), out=right, raises=error, says=says)
    no_such = keywords(backend="no such")
    yield refused(is_refused, equation, product, no_such, out=right, says="no such", only_einsumx=True)


def _operand_cases() -> Iterator[Case]:
    refused = partial(Case, "wrong operands", raises=BackendError)
    vectors, pair = operands((3,), (3,)), operands((2,), (2,))
    for thing in _NO_ARRAYS:
        name = type(thing).__name__
        for equation, place, count in (("i->", 0, 1), ("i,i->", 1, 2), ("i,i->i", 0, 2)):
            check, about = partial(is_refused, instead={place: thing}), f"operand {place}: {name}"
            yield refused(check, equation, vectors[:count], says=name, about=about, full=equation == "i,i->i")
    check = partial(is_refused, instead={0: array("d", [1, 2, 3])})
    yield refused(check, "i,i->i", vectors, says="array.array", about="operand 0: array")
    check = partial(is_refused, instead={0: range(3)})
    yield refused(check, "i->", vectors[:1], says="range", about="operand 0: range", only_einsumx=True)
    for name, make in _NO_NUMBERS.items():
        for equation, place, count in (("i->", 0, 1), ("i->i", 0, 1), ("i,i->", 1, 2)):
            check = partial(_is_refused_by_numpy, make, place)
            yield refused(check, equation, pair[:count], about=f"operand {place}: of {name}")
