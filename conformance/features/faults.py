"""Faults that current libraries are known to have, each with a name and an example that shows it."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from functools import partial

from einsumx import BackendError, SizeError
from einsumx.conformance.case import ArraySpec, Case, Failure, examples, keywords, operands
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.features.derivatives import adds_gradients, gives_the_gradients
from einsumx.conformance.features.results import has_order, writes_out, writes_over
from einsumx.conformance.refusals import is_refused, refusal_message
from einsumx.conformance.subject import Subject

__all__ = ["FEATURES", "cases"]

FEATURES = {"known faults": "Examples of faults that current libraries have, each with its name"}

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
"""By the name of a fault: equations with shapes, and keywords for their operands."""

_GRADIENTS = (
    ("gradients of size 1 lack the cotangent", gives_the_gradients, "ij,ij->i  1,4 2,4"),
    ("gradients of a diagonal are not written", gives_the_gradients, "ii->i  3,3 \n iij,j->i  3,3,2 2"),
    ("gradients of size 0 are not written", gives_the_gradients, "ij,jk->ki  2,0 0,3 \n ij,jk->k  0,2 2,3"),
    ("gradients are added wrongly", adds_gradients, "ij,jk->ik  2,3 3,4 \n iij,j->i  3,3,2 2"),
)
"""Names of faults, with a check and equations with shapes."""


_fault = partial(Case, "known faults")
_sum = partial(_fault, gives_the_plain_sum)


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    for fault, (text, spec) in _SUMS.items():
        for equation, shapes in examples(text):
            yield _sum(equation, operands(*shapes, **spec), about=fault)

    matrices = operands((2, 3), (3, 4))
    yield _sum("i, i", operands((4,), (4,)), about="a blank makes another label")
    yield _sum(((..., 0), (0, 1)), matrices, about="no ellipsis in sublists")
    yield _sum(((2, 0), (0, 1)), matrices, about="labels of sublists are not sorted")
    yield _sum(((30, 0), (0, 1)), matrices, about="labels of sublists are sorted as letters")

    for first, second in (("float32", "float64"), ("int8", "int32"), ("bool", "float32"), ("int32", "float32")):
        for equation, shapes in examples("ij,jk->ik  2,3 3,4 \n ij,ij->ij  2,3 2,3"):
            yield _sum(equation, tuple(map(ArraySpec, shapes, (first, second))), about="dtypes are not promoted")

    for optimize in (True, False):
        pair, about = operands((20, 3), (3, 4), dtype="int8", fill="range"), "the sum that goes first ignores dtype="
        yield _sum("ki,ij->j", pair, keywords(dtype="int32", optimize=optimize), about=about)
    for equation, shapes in examples("ij,jk->ik  2,3 3,4 \n ij,kj->  2,3 4,3 \n ij,ij->i  2,3 2,3"):
        pair = operands(*shapes, dtype="int8", fill="range")
        yield _sum(equation, pair, keywords(dtype="int32"), about="dtype= fails beside a matrix product, or is ignored")
    for path in (False, "greedy"):
        yield _sum(
            "ij,jk,kl->il", operands((2, 3), (3, 4), (4, 2)), keywords(optimize=path), about="no path for a call"
        )

    for fault, check, text in _GRADIENTS:
        for equation, shapes in examples(text):
            yield _fault(check, equation, operands(*shapes), about=fault)
    yield _fault(adds_gradients, "ij,jk->ik", matrices, keywords(optimize=True), about="gradients are added wrongly")

    batches, vectors = operands((2, 3, 4), (2, 4, 5)), operands((4,), (4,))
    yield _fault(writes_out, "bij,bjk->bik", batches, out=ArraySpec((2, 3, 5)), about="out= stays unwritten")
    yield _fault(writes_out, "i,i->", vectors, out=ArraySpec(()), about="out= without axes is not written")
    for place in (0, 1):
        about = "out= that is an operand spoils the result"
        yield _fault(writes_over, "ij,jk->ik", operands((4, 4), (4, 4)), over=place, about=about)
    for equation, specs, order in (("ij,jk->ik", matrices, "F"), ("bij,bjk->kbi", batches, "C")):
        yield _fault(
            partial(has_order, order), equation, specs, keywords(order=order), about="order= fails, or is ignored"
        )
    yield from _errors()


def _errors() -> Iterator[Case]:
    wrong_size = partial(_fault, raises=SizeError)
    for equation, shapes in examples("ii  1,3 \n ii->i  3,1"):
        about = "a diagonal of sizes 1 and 3"
        yield wrong_size(is_refused, equation, operands(*shapes), says="label 'i'", about=about)
    yield wrong_size(is_refused, "i", operands((2, 3)), says="operand 0 has 2 axes", about="an axis too many")
    unknown = partial(_fault, raises=TypeError, says="no_such_keyword", about="an unknown keyword is ignored")
    yield unknown(is_refused, "i->", operands((3,)), keywords(no_such_keyword=1))
    with_foreign = partial(is_refused, instead={0: array("d", [1, 2, 3])})
    foreign = partial(_fault, raises=BackendError, says="array.array")
    yield foreign(with_foreign, "i,i->i", operands((3,), (3,)), about="an array of no library is taken for NumPy's")
    for check, about in ((_names_the_sizes, "the wrong sizes are named"), (_is_refused_at_once, "errors come late")):
        yield wrong_size(check, "ij,jk->ik", operands((11, 13), (17, 19)), says="label 'j'", about=about)


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
