"""Contractions while a mode of the framework casts the operands of products, as ``torch.autocast`` does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from einsumx.conformance.case import Case, cases_of, keywords, operands
from einsumx.conformance.checks import judge_gradients, needs_gradients
from einsumx.conformance.features.forms import DIAGONALS, EQUATIONS, FEW, HYPEREDGES
from einsumx.conformance.features.limits import call_within_smallest
from einsumx.conformance.features.sizes import BROADCASTS, ZEROS
from einsumx.conformance.framework import Array
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.refusals import make_out
from einsumx.conformance.subject import Subject

FEATURES = {
    "autocast": "In a mode that casts operands, the dtype is that of the library's own einsum, whatever a plan does "
    "(PyTorch)",
}

_MORE_EQUATIONS = EQUATIONS[len(FEW) :] + DIAGONALS[::3] + HYPEREDGES + BROADCASTS[::3] + ZEROS[8:10]


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    yield from _of(gives_the_dtype_of_the_librarys_einsum, FEW, quick=True)
    yield from _of(gives_the_dtype_of_the_librarys_einsum, _MORE_EQUATIONS)
    for dtype in ("float16", "bfloat16", "float64", "complex64"):
        yield from _of(gives_the_dtype_of_the_librarys_einsum, FEW, dtype=dtype, quick=dtype == "float16")
    products = [example for example in FEW if "," in example[0]]  # PyTorch widens integers in sums alone
    yield from _of(gives_the_dtype_of_the_librarys_einsum, products, dtype="int32")
    for layout in ("F", "swapped", "broadcast"):
        yield from _of(gives_the_dtype_of_the_librarys_einsum, FEW, layout=layout)
    mixed = [("float32", "float16"), ("float16", "float32"), ("float32", "bfloat16")]
    for dtypes in mixed:
        specs = tuple(ArraySpec(shape, dtype, fill="exact") for shape, dtype in zip(((3, 4), (4, 5)), dtypes))
        yield from _product(gives_the_dtype_of_the_librarys_einsum, specs)

    exact = operands((3, 4), (4, 5), fill="exact")
    yield from _product(stays_as_it_is, exact, options=keywords(dtype="float32"))
    yield from _product(stays_as_it_is, exact, out=ArraySpec((3, 5)), about="out= ")
    narrow = operands((40, 300), (300, 30), dtype="int8", fill="range")
    yield from _product(stays_as_it_is, narrow, options=keywords(dtype="int32"))
    yield from _of(gives_the_dtype_under_a_limit, FEW, about="memory limit ", quick=True)
    yield from _of(gives_the_dtype_compiled, FEW, about="compile ", quick=True)
    yield from _of(gives_the_gradients, FEW, about="gradients ", quick=True)
    yield from _of(gives_the_gradients, HYPEREDGES[:4], about="gradients ")


_Check = Callable[..., None]


def _of(check: _Check, equations: Any, *, about: str = "", quick: bool = False, **spec: str) -> Iterator[Case]:
    """A case for each equation and each dtype of the mode."""
    for lower in ("bfloat16", "float16"):
        full = not quick or lower == "float16"
        named = f"{about}to {lower}"
        yield from cases_of(
            "autocast", partial(check, lower=lower), equations, about=named, full=full, fill="exact", **spec
        )


def _product(check: _Check, specs: tuple[ArraySpec, ...], about: str = "", **call: Any) -> Iterator[Case]:
    """A case of a product of two matrices for each dtype of the mode."""
    for lower in ("bfloat16", "float16"):
        full, named = lower == "float16", f"{about}to {lower}"
        yield Case("autocast", partial(check, lower=lower), "ij,jk->ik", specs, about=named, full=full, **call)


def gives_the_dtype_of_the_librarys_einsum(case: Case, subject: Subject, lower: str) -> None:
    """In the mode, each call has the dtype of the library's own einsum, and the right values; outside, as always."""
    hosts, arrays, dtype = _cast(case, subject, lower)
    for name in ("the first call", "the second call"):
        with subject.framework.autocast(lower, subject.device):
            result = subject.call(case, arrays)
        subject.judge(result, subject.expected(case, hosts, dtype), f"the result of {name}")
        if subject.is_einsumx:
            subject.judge(subject.call(case, arrays), subject.expected(case, hosts), f"the result after {name}")
    subject.judge_unchanged(arrays, hosts)


def gives_the_dtype_under_a_limit(case: Case, subject: Subject, lower: str) -> None:
    """The same under the smallest memory limit."""
    hosts, arrays, dtype = _cast(case, subject, lower)
    with subject.framework.autocast(lower, subject.device):
        result = call_within_smallest(subject, partial(subject.call, case, arrays))
    subject.judge(result, subject.expected(case, hosts, dtype))


def gives_the_dtype_compiled(case: Case, subject: Subject, lower: str) -> None:
    """The same in a graph that is called in the mode, and in one that enters it."""
    if "compile" not in subject.framework.transforms:
        raise NotApplicable(f"{subject.framework.name} has no compile")
    hosts, arrays, dtype = _cast(case, subject, lower)
    function, mode = subject.bound(case), partial(subject.framework.autocast, lower, subject.device)

    def entering(*arrays: Array) -> Array:
        with mode():
            return function(*arrays)

    with mode():
        result = subject.framework.transformed("compile", function)(*arrays)
    subject.judge(result, subject.expected(case, hosts, dtype), "the result of a graph in the mode")
    result = subject.framework.transformed("compile", entering)(*arrays)
    subject.judge(result, subject.expected(case, hosts, dtype), "the result of a graph that enters the mode")


def gives_the_gradients(case: Case, subject: Subject, lower: str) -> None:
    """The gradient by every operand is right and has the operand's dtype, though the result has another one."""
    needs_gradients(case, subject)
    hosts, arrays, dtype = _cast(case, subject, lower)
    shape = subject.expected(case, hosts, dtype).values.shape
    cotangent = case.value(ArraySpec(shape, dtype, fill="exact"), "cotangent")
    function = subject.bound(case)

    def called(*arrays: Array) -> Array:
        with subject.framework.autocast(lower, subject.device):
            return function(*arrays)

    gradients = subject.framework.gradients(called, arrays, subject.array(cotangent, dtype))
    judge_gradients(case, subject, hosts, cotangent, gradients)


def stays_as_it_is(case: Case, subject: Subject, lower: str) -> None:
    """A call with ``dtype=`` or ``out=`` returns the same as outside of the mode."""
    if not subject.is_einsumx:
        raise NotApplicable("only einsumx promises this")
    hosts, arrays, _ = _cast(case, subject, lower)
    options = {"out": make_out(case.out, subject)} if case.out else {}
    with subject.framework.autocast(lower, subject.device):
        result = subject.call(case, arrays, **options)
    subject.judge(result, subject.expected(case, hosts))


def _cast(case: Case, subject: Subject, lower: str) -> tuple[list[Any], list[Array], str]:
    """The operands of a case, and the dtype of the library's own einsum in the mode.

    Raises:
        NotApplicable: the library has no such mode.
    """
    framework = subject.framework
    if lower not in framework.autocast_dtypes:
        raise NotApplicable(f"{framework.name} has no mode that casts to {lower}")
    hosts, arrays = subject.operands(case)
    return hosts, arrays, framework.autocast_result(str(case.equation), arrays, lower, subject.device)
