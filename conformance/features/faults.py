"""What libraries of today are known to get wrong: each fault by a name, on an example that shows it."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from functools import partial
from typing import Any

from einsumx import BackendError, SizeError
from einsumx.conformance.case import ArraySpec, Case, Check, Failure, Refusal, examples, operands
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.features.derivatives import adds_gradients, gives_the_gradients
from einsumx.conformance.features.results import has_order, writes_out, writes_over
from einsumx.conformance.refusals import is_refused, refusal_message
from einsumx.conformance.subject import Subject

__all__ = ["FEATURES", "cases"]

FEATURES = {"known faults": "Examples, each with the name of a fault that a library of today has"}

_SUMS: dict[str, tuple[str, dict[str, str]]] = {
    "no matrix product of bools": ("bij,bjk->bik  2,3,4 2,4,5", {"dtype": "bool"}),
    "bools are counted": ("i,i->  300 300", {"dtype": "bool", "fill": "one"}),
    "bools are not transposed": ("ij,jk->ki  2,3 3,4 \n ij->ji  2,3", {"dtype": "bool"}),
    "int8 is widened": ("i->  300 \n ij->i  4,300 \n i,j->  20 30", {"dtype": "int8", "fill": "range"}),
    "no complex numbers": ("ij,jk->ik  2,3 3,4", {"dtype": "complex64"}),
    "bfloat16 is computed in float16": ("i,j->ij  4 5", {"dtype": "bfloat16", "fill": "wide"}),
    "size 1 does not broadcast": ("ij,jk->ik  2,1 3,4 \n i,i  3 1", {}),
    "no implicit output": ("ij,jk  2,3 3,4", {}),
    "no ellipsis for nothing": ("...j->j  3", {}),
    "ellipsis axes are not summed": ("...j->j  4,3", {}),
    "no more than 10 labels": ("abcdef,fghijk->abcdeghijk  2,2,2,1,2,3 3,2,1,2,2,2", {}),
    "no more than 15 operands": (f"{','.join(['i'] * 16)}->i  {' 3' * 16}", {}),
    "no transpose of 7 axes": ("abcdefg->gbfdeac  2,1,3,2,1,2,3", {}),
    "no matrix product of 6 axes": ("abcdij,cdjk->abcdik  2,2,2,3,2,3 2,3,3,2", {}),
    "size 0 is read as a code": ("bij,bjk->bik  0,2,3 0,3,4 \n bind,bjnd->bnij  2,4,0,5 2,6,0,5", {}),
}
"""Equations with their shapes, and how their operands are made, by what goes wrong."""

_GRADIENTS = (
    ("gradients of size 1 lack the cotangent", gives_the_gradients, "ij,ij->i  1,4 2,4"),
    ("gradients of a diagonal are not written", gives_the_gradients, "ii->i  3,3 \n iij,j->i  3,3,2 2"),
    ("gradients of size 0 are not written", gives_the_gradients, "ij,jk->ki  2,0 0,3 \n ij,jk->k  0,2 2,3"),
    ("gradients are added wrongly", adds_gradients, "ij,jk->ik  2,3 3,4 \n iij,j->i  3,3,2 2"),
)
"""What goes wrong, how that is seen, and equations with their shapes."""


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    for fault, (text, made) in _SUMS.items():
        for equation, shapes in examples(text):
            yield _case(equation, operands(*shapes, **made), fault)

    matrices = operands((2, 3), (3, 4))
    yield _case("i, i", operands((4,), (4,)), "a blank makes another label")
    yield _case(((..., 0), (0, 1)), matrices, "no ellipsis in sublists")
    yield _case(((2, 0), (0, 1)), matrices, "labels of sublists are not sorted")
    yield _case(((30, 0), (0, 1)), matrices, "labels of sublists are sorted as letters")

    for first, second in (("float32", "float64"), ("int8", "int32"), ("bool", "float32"), ("int32", "float32")):
        for equation, shapes in examples("ij,jk->ik  2,3 3,4 \n ij,ij->ij  2,3 2,3"):
            mixed = tuple(map(ArraySpec, shapes, (first, second)))
            yield _case(equation, mixed, "dtypes are not promoted")

    for optimize in (True, False):
        pre_sum = operands((20, 3), (3, 4), dtype="int8", fill="range")
        yield _case("ki,ij->j", pre_sum, "the sum that goes first ignores dtype=", dtype="int32", optimize=optimize)
    for equation, shapes in examples("ij,jk->ik  2,3 3,4 \n ij,kj->  2,3 4,3 \n ij,ij->i  2,3 2,3"):
        pair = operands(*shapes, dtype="int8", fill="range")
        yield _case(equation, pair, "dtype= fails beside a matrix product, or is ignored", dtype="int32")
    for path in (False, "greedy"):
        yield _case("ij,jk,kl->il", operands((2, 3), (3, 4), (4, 2)), "no path for a call", optimize=path)

    for fault, check, text in _GRADIENTS:
        for equation, shapes in examples(text):
            yield _case(equation, operands(*shapes), fault, check)
    yield _case("ij,jk->ik", matrices, "gradients are added wrongly", adds_gradients, optimize=True)

    yield from _outs()
    yield from _errors()


def _outs() -> Iterator[Case]:
    matrices, batches = operands((2, 3), (3, 4)), operands((2, 3, 4), (2, 4, 5))
    for equation, made, shape, fault in (
        ("bij,bjk->bik", batches, (2, 3, 5), "out= stays unwritten"),
        ("i,i->", operands((4,), (4,)), (), "out= without axes is not written"),
    ):
        yield Case("known faults", writes_out, equation, made, out=ArraySpec(shape), about=fault)
    for place in (0, 1):
        over = partial(writes_over, place)
        yield _case("ij,jk->ik", operands((4, 4), (4, 4)), f"out= that is operand {place} spoils the result", over)
    for equation, made, order in (("ij,jk->ik", matrices, "F"), ("bij,bjk->kbi", batches, "C")):
        yield _case(equation, made, "order= fails, or is ignored", partial(has_order, order), order=order)


def _errors() -> Iterator[Case]:
    vector, refused = operands((3,)), partial(Case, "known faults")
    for equation, shapes in examples("ii  1,3 \n ii->i  3,1"):
        refusal, about = Refusal(SizeError, "label 'i'"), "a diagonal of sizes 1 and 3"
        yield refused(is_refused, equation, operands(*shapes), refusal=refusal, about=about)
    refusal, about = Refusal(SizeError, "operand 0 has 2 axes"), "an axis too many"
    yield refused(is_refused, "i", operands((2, 3)), refusal=refusal, about=about)
    refusal, about = Refusal(TypeError, "no_such_keyword"), "an unknown keyword is ignored"
    yield refused(is_refused, "i->", vector, (("no_such_keyword", 1),), refusal=refusal, about=about)
    refusal, about = Refusal(BackendError, "array.array"), "an array of no library is taken for NumPy's"
    beside = partial(is_refused, instead={0: array("d", [1, 2, 3])})
    yield refused(beside, "i,i->i", vector * 2, refusal=refusal, about=about)
    refusal = Refusal(SizeError, "label 'j'")
    for check, about in ((_names_the_sizes, "the wrong sizes are named"), (_is_refused_at_once, "errors come late")):
        yield refused(check, "ij,jk->ik", operands((11, 13), (17, 19)), refusal=refusal, about=about)


def _names_the_sizes(case: Case, subject: Subject) -> None:
    """Where the message says which size an operand has, it is that operand's."""
    message = refusal_message(case, subject, subject.arrays(case, case.values()))
    for size, place in re.findall(r"\b(1[37])\b[^\d]*\boperand (\d)", message):
        _is_of(size, place, message)
    for place, size in re.findall(r"\boperand (\d) \((1[37])\)", message):
        _is_of(size, place, message)


def _is_of(size: str, place: str, message: str) -> None:
    if size != ("13", "17")[int(place)]:
        raise Failure(f"operand {place} has no size {size}: {message!r}")


def _is_refused_at_once(case: Case, subject: Subject) -> None:
    """The error comes from the call itself, and not where its result is waited for."""
    try:
        subject.function(*case.arguments(subject.arrays(case, case.values())))
    except (ValueError, TypeError, RuntimeError):
        return
    raise Failure("no error came from the call")


def _case(
    equation: Any, operands: tuple[ArraySpec, ...], fault: str, check: Check = gives_the_plain_sum, **options: Any
) -> Case:
    return Case("known faults", check, equation, operands, tuple(options.items()), about=fault)
