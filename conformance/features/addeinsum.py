"""``addeinsum``: a multiple of an array plus a multiple of a contraction, in place or in another array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from einsumx import BackendError, SizeError
from einsumx.conformance.case import Case, keywords, operands
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.features.derivatives import gives_the_gradients
from einsumx.conformance.features.forms import EQUATIONS, FEW, names_give_the_plain_sum
from einsumx.conformance.features.limits import is_right_under_the_smallest_limit
from einsumx.conformance.features.results import has_order, is_fresh, writes_out, writes_over
from einsumx.conformance.features.sizes import BROADCASTS, ZEROS
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.kit.oracle import expect
from einsumx.conformance.refusals import is_refused, needs_writeable_arrays
from einsumx.conformance.subject import Subject

FEATURES = {"addeinsum": "addeinsum(c, ...) is beta * c + alpha * einsum(...); beta=0 ignores the values of c"}

_EQUATIONS = EQUATIONS + BROADCASTS[:3] + ZEROS[7:10]

_C = ArraySpec((3, 5))
_PRODUCT = operands((3, 4), (4, 5))
_BOTH = keywords(alpha=2.5, beta=-0.5)

_adds = partial(Case, "addeinsum", function="addeinsum")


def adds_twice(case: Case, subject: Subject) -> None:
    """A second call with other factors adds with those."""
    writes_over(case, subject)
    other = {name: value + 1 for name, value in case.options}
    writes_over(replace(case, options=keywords(**other)), subject)


def adds_to_an_operand(case: Case, subject: Subject) -> None:
    """One array is ``c``, the first operand and ``out``; the sum needs its values from before the call."""
    needs_writeable_arrays(subject)
    hosts, arrays = subject.operands(case)
    hosts[1], arrays[1] = hosts[0], arrays[0]
    subject.call(case, arrays)
    subject.judge(arrays[0], subject.expected(case, hosts), "out")


def _takes_an_array_without_axes(case: Case, subject: Subject) -> None:
    """An array without axes counts as its value."""
    factor = subject.array(np.array(dict(case.options)["alpha"]), "float32")
    if not subject.framework.has_values(factor):
        raise NotApplicable("the framework's arrays have no values")
    hosts, arrays = subject.operands(case)
    subject.judge(subject.call(case, arrays, alpha=factor), subject.expected(case, hosts))


def _refuses_an_array(case: Case, subject: Subject) -> None:
    """A factor with axes is no number."""
    is_refused(replace(case, options=keywords(alpha=subject.array(np.ones(2), "float32"))), subject)


def _refuses_a_huge_integer(case: Case, subject: Subject) -> None:
    """No float is as large as the factor."""
    is_refused(replace(case, options=keywords(beta=10**400)), subject)


def cases() -> Iterator[Case]:
    """The cases of this module's feature."""
    for number, (equation, shapes) in enumerate(_EQUATIONS):
        new = partial(_adds, full=number >= len(FEW))
        c = ArraySpec(expect(equation, *map(np.zeros, shapes)).values.shape)
        specs = (c, *operands(*shapes))
        yield new(gives_the_plain_sum, equation, specs, _BOTH)
        yield new(writes_over, equation, specs, _BOTH, over=0)
        yield new(is_right_under_the_smallest_limit, equation, specs, _BOTH, over=0, about="memory limit")
        ignored = (replace(c, fill="nan"), *specs[1:])
        yield new(writes_over, equation, ignored, keywords(alpha=2.5, beta=0), over=0)
    for alpha, beta in ((1, 1), (1, 2.5), (-1.5, 1), (0, 1), (0.0, 0.5), (-1, 0), (1, 0), (3, True), (1.0, 1e-3)):
        options, c = keywords(alpha=alpha, beta=beta), replace(_C, fill="normal" if beta else "nan")
        yield _adds(writes_over, "ij,jk->ik", (c, *_PRODUCT), options, over=0)
        yield _adds(gives_the_plain_sum, "ij,jk->ik", (c, *_PRODUCT), options)
        yield _adds(writes_over, "ij->ij", (c, ArraySpec((3, 5))), options, over=0, full=True)
        yield _adds(gives_the_plain_sum, "ij->ji", (c, ArraySpec((5, 3))), options, full=True)
    yield _adds(gives_the_plain_sum, "ij,jk->ik", (_C, *_PRODUCT))
    yield _adds(gives_the_plain_sum, "ij,jk->ik", (_C, *operands((3, 4), (4, 5), fill="nan")), keywords(alpha=0.0))
    for options in (_BOTH, keywords(beta=2.0)):
        yield _adds(adds_twice, "ij,jk->ik", (_C, *_PRODUCT), options, over=0, about="other factors")
    yield from _array_cases()
    yield from _dtype_cases()
    yield from _other_calls()
    yield from _refused_cases()


def _array_cases() -> Iterator[Case]:
    """Which array is c, and which is out."""
    for layout in ("F", "swapped", "sliced", "offset", "negative", "unaligned", "byteswapped"):
        c = replace(_C, layout=layout)
        yield _adds(writes_over, "ij,jk->ik", (c, *_PRODUCT), _BOTH, over=0)
        yield _adds(writes_over, "ij->ij", (c, _C), _BOTH, over=0, full=True)
    for layout in ("F", "broadcast", "readonly"):
        yield _adds(gives_the_plain_sum, "ij,jk->ik", (replace(_C, layout=layout), *_PRODUCT), _BOTH)
    for shape in ((1, 5), (3, 1), (5,), (), (3, 5)):
        specs = (ArraySpec(shape), *_PRODUCT)
        if shape != (3, 5):
            yield _adds(gives_the_plain_sum, "ij,jk->ik", specs, _BOTH)
        yield _adds(writes_out, "ij,jk->ik", specs, _BOTH, out=_C)
        limited = partial(_adds, is_right_under_the_smallest_limit, "ij,jk->ik", specs, _BOTH, "memory limit")
        for out in (None, _C):
            yield limited(full=shape != (5,), out=out)
    for equation, shape in (("ij->ij", (3, 5)), ("ij->ji", (5, 3))):
        for layout in ("C", "F"):
            out = replace(_C, layout=layout)
            yield _adds(writes_out, equation, (_C, ArraySpec(shape)), _BOTH, out=out, full=layout == "F")
    squares = operands((4, 4), (4, 4), (4, 4))
    for equation, specs in (("ij,jk->ik", squares), ("ij->ji", squares[1:]), ("ij,ij->ji", squares)):
        yield _adds(writes_over, equation, specs, _BOTH, over=1)
        yield _adds(adds_to_an_operand, equation, specs, _BOTH, over=0, about="c is the first operand")
    yield _adds(writes_over, "ij->ji", operands((40, 40), (40, 40)), _BOTH, over=1)
    for options in (keywords(alpha=1, beta=0), keywords(alpha=0, beta=1)):
        yield _adds(is_fresh, "ij->ij", (_C, _C), options, about="fresh")
    for layout in ("C", "F"):
        large = (ArraySpec((300, 400), layout=layout), *operands((300, 20), (20, 400)))
        yield _adds(writes_over, "ij,jk->ik", large, _BOTH, over=0, full=layout == "F")


def _dtype_cases() -> Iterator[Case]:
    for source, target, options in (
        ("float64", "float64", keywords(alpha=0.1, beta=-0.5)),
        ("float32", "float64", _BOTH),
        ("float32", "complex64", keywords(alpha=2 - 1j, beta=1j)),
        ("complex64", "complex64", keywords(alpha=2 - 1j, beta=1j)),
        ("int8", "int8", keywords(alpha=100, beta=-100)),
        ("uint8", "uint8", keywords(alpha=-3, beta=7)),
        ("int64", "int64", keywords(alpha=2**62, beta=3)),
        ("int32", "int64", keywords(alpha=2**40, beta=3)),
        ("bool", "bool", keywords(alpha=1, beta=1)),
        ("bool", "bool", keywords(alpha=0, beta=1)),
        ("float16", "float16", keywords(alpha=0.5, beta=2)),
        ("bfloat16", "bfloat16", keywords(alpha=0.5, beta=2)),
    ):
        fill = "exact" if "16" in source or source != target else "normal"
        specs = (ArraySpec((3, 5), target, fill=fill), *operands((3, 4), (4, 5), dtype=source, fill=fill))
        yield _adds(writes_over, "ij,jk->ik", specs, options, over=0)
        yield _adds(gives_the_plain_sum, "ij,jk->ik", specs, options)
        moved = (specs[0], ArraySpec((3, 5), source, fill=fill))
        yield _adds(writes_over, "ij->ij", moved, options, over=0, full=True)
        yield _adds(gives_the_plain_sum, "ij->ij", moved, options, full=True)
    narrow = (replace(_C, fill="exact"), *operands((3, 4), (4, 5), dtype="float64", fill="exact"))
    options = keywords(alpha=0.5, beta=2)
    yield _adds(gives_the_plain_sum, "ij,jk->ik", narrow, options)
    yield _adds(writes_over, "ij,jk->ik", narrow, (*options, *keywords(casting="same_kind")), over=0)
    eights = operands((3, 5), (3, 40), (40, 5), dtype="int8", fill="range")
    yield _adds(gives_the_plain_sum, "ij,jk->ik", eights, keywords(alpha=3, beta=-7, dtype="int32"))


def _other_calls() -> Iterator[Case]:
    specs, sublists = (_C, *_PRODUCT), (("row", "bond"), ("bond", "column"), ("row", "column"))
    yield _adds(gives_the_plain_sum, sublists, specs, _BOTH)
    yield _adds(names_give_the_plain_sum, sublists, specs, about="names")
    for order in ("C", "F"):
        yield _adds(partial(has_order, order), "ij,jk->ik", specs, (*_BOTH, *keywords(order=order)))
    half = keywords(alpha=0.5)
    yield _adds(_takes_an_array_without_axes, "ij,jk->ik", specs, half, about="an array without axes")
    for number, (equation, shapes) in enumerate(FEW):
        for dtype in ("float32", "float64"):
            c = expect(equation, *map(np.zeros, shapes)).values.shape
            specs, full = operands(c, *shapes, dtype=dtype), number > 0 or dtype != "float32"
            yield _adds(gives_the_gradients, equation, specs, _BOTH, "gradients", full=full)
    rows = operands((1, 5), (3, 4), (4, 5))
    yield _adds(gives_the_gradients, "ij,jk->ik", rows, _BOTH, "gradients")


def _refused_cases() -> Iterator[Case]:
    specs, refused = (_C, *_PRODUCT), partial(_adds, is_refused, "ij,jk->ik")
    yield refused(specs, keywords(beta="2"), raises=TypeError, says="beta= must be a number, not '2'")
    yield refused(specs, keywords(beta=1j), raises=BackendError, says="beta= is complex.*float32")
    yield refused(specs, keywords(alpha=1j), raises=BackendError, says="alpha= is complex.*float32")
    whole, truths = (operands((3, 5), (3, 4), (4, 5), dtype=dtype) for dtype in ("int32", "bool"))
    yield refused(whole, keywords(alpha=0.5), raises=BackendError, says="alpha= is a float.*int32")
    yield refused(truths, keywords(alpha=2), raises=BackendError, says="alpha= must be 0 or 1")
    array = refused(specs, about="an array", raises=TypeError, says="alpha= must be a number")
    yield replace(array, check=_refuses_an_array)
    huge = refused(specs, about="a huge integer", raises=BackendError, says="an integer that float32 cannot hold")
    yield replace(huge, check=_refuses_a_huge_integer)
    for shape in ((3, 4), (5, 3), (2, 3, 5), (1, 3, 5), (3,), (0,)):
        yield refused((ArraySpec(shape), *_PRODUCT), raises=SizeError, says=r"c has shape .*\(3, 5\)")
    for smaller in ((1, 5), (5,), ()):
        c = (ArraySpec(smaller), *_PRODUCT)
        yield refused(c, over=0, raises=SizeError, says=r"out= has shape .* but the result has shape \(3, 5\)")
    c = (_C, *operands((3, 4), (4, 5), dtype="float64"))
    yield refused(c, over=0, raises=BackendError, says="float64.*casting='safe'.*float32")
