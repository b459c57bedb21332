"""Functions that are traced, compiled or mapped by their framework, and their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from einsumx.conformance.case import Case, Failure, NotApplicable, cases_of, examples, keywords, operands
from einsumx.conformance.checks import cotangent, counted, judge_gradients, judge_gradients_of, needs_gradients
from einsumx.conformance.subject import Subject

__all__ = ["FEATURES", "cases"]

FEATURES = {
    "jit": "A function that is traced once and compiled, with gradients outside and inside (JAX; TensorFlow by XLA)",
    "vmap": "A function that is mapped over the axes labelled Z, with gradients (JAX, PyTorch, TensorFlow)",
    "compile": "A function that is compiled as one graph, with gradients (PyTorch, TensorFlow)",
    "hybridize": "A block that is traced once, with gradients (MXNet)",
}

_TRACED = examples("""
    ij,jk->ik          2,3 3,4
    ij,ij->i           1,4 2,4
    iij,j->i           3,3,2 2
    bind,bjnd->bnij    2,3,2,4 2,4,2,4
    ij->ji             2,3
    ij->j              300,400
    ij,jk,kl->li       2,3 3,2 2,3
    ...i,i...->...     2,3 3,2
    ij,jk->ik          5,0 0,4
    ai,bi,ci->abc      2,3 3,3 4,3
    i,j->ij            2 3
    ij->ij             5,6
    ,->                () ()
""")
"""PyTorch compiles only the first of these, because it takes longest."""

_MAPPED = examples("""
    Zij,jk->Zik            3,2,4 4,2
    ij,Zjk->Zik            2,4 3,4,2
    iZj,jkZ->Zik           2,3,4 4,2,3
    bindZ,bjnd->Zbnij      2,3,2,4,3 2,4,2,4
    Zij,ij->Zi             3,1,4 2,4
    iiZj,j->Zi             3,3,2,2 2
    ijZ->Zj                2,3,4
    Zij->Zji               3,2,4
    Zi,i,Zi->Z             3,4 4 3,4
    ij,jk,klZ->Zli         2,3 3,2 2,3,4
    ...iZ,i...->Z...       2,3,4 3,2
    Z...ij,...jk->Z...ik   3,2,2,4 2,4,2
    Zij,jk->Zik            1,2,4 4,2 | 3,2,0 0,4
    iZ,j->Zij              2,3 4
    Z,i->Zi                3 4
    Z,Z->Z                 3 3
""")

_DTYPES = ("float16", "bfloat16", "float64", "complex64", "int32", "bool")


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    for transform, quick, count in (("jit", 4, None), ("compile", 2, 8), ("hybridize", 4, None)):
        traced = partial(cases_of, transform, gives_the_same_traced)
        yield from traced(_TRACED[:quick])
        yield from traced(_TRACED[quick:count], full=True)
        for dtype in _DTYPES:
            yield from traced(examples("ij,jk->ik  2,3 3,4"), dtype=dtype, full=True)
        specs, factors = operands((2, 4), (2, 3), (3, 4)), keywords(alpha=2.5, beta=-0.5)
        yield Case(transform, gives_the_same_traced, "ij,jk->ik", specs, factors, "addeinsum", function="addeinsum")
    yield from cases_of("jit", has_gradients_inside, _TRACED[:8], about="gradients inside", quick=["ij,jk->ik"])
    for layout in ("F", "broadcast"):
        batches = examples("bij,bjk->bik  2,3,4 2,4,3")
        yield from cases_of("compile", gives_the_same_traced, batches, layout=layout, full=True)

    mapped = partial(cases_of, "vmap", gives_the_same_mapped)
    yield from mapped(_MAPPED[:6])
    yield from mapped(_MAPPED[6:], full=True)
    for dtype in _DTYPES:
        yield from mapped(examples("Zij,jk->Zik  3,2,4 4,2"), dtype=dtype, full=True)
    for layout in ("F", "broadcast", "broadcast-last"):
        yield from mapped(examples("Zij,Zjk->Zik  3,2,4 3,4,2"), layout=layout, full=True)


def gives_the_same_traced(case: Case, subject: Subject) -> None:
    """The traced function gives the plain sum and gradients, also for other values, without being traced again."""
    framework, transform = subject.framework, _transform(case, subject)
    function, runs = subject.bound(case), list[None]()
    # torch.compile captures one graph, which the counter would break.
    traced = framework.transformed(transform, function if transform == "compile" else counted(function, runs))
    for call in ("first", "second"):
        hosts, arrays = subject.operands(case, call)
        before = len(runs)
        subject.judge(traced(*arrays), subject.expected(case, hosts), f"the result of the {call} call")
        subject.judge_unchanged(arrays, hosts)
    if len(runs) > before:
        raise Failure("the second call ran the function again instead of the traced one")
    if case.dtype in framework.gradient_dtypes:
        judge_gradients_of(traced, case, subject, hosts, arrays)


def has_gradients_inside(case: Case, subject: Subject) -> None:
    """A traced function that computes gradients gives the right ones."""
    framework, transform = subject.framework, _transform(case, subject)
    needs_gradients(case, subject)
    hosts, arrays = subject.operands(case)
    values, array = cotangent(case, subject, hosts)
    function = subject.bound(case)
    traced = framework.transformed(transform, lambda *operands: framework.gradients(function, operands, array))
    judge_gradients(case, subject, hosts, values, traced(*arrays))


def gives_the_same_mapped(case: Case, subject: Subject) -> None:
    """The equation without the label Z, mapped over the axes of Z, gives the plain sum of the equation with Z."""
    framework, transform = subject.framework, _transform(case, subject)
    equation = str(case.equation)
    axes = tuple(_mapped_axis(term) for term in equation.partition("->")[0].split(","))
    function = framework.mapped(partial(subject.function, equation.replace("Z", "")), axes)
    hosts, arrays = subject.operands(case)
    subject.judge(function(*arrays), subject.expected(case, hosts), f"the result of {transform}")
    subject.judge_unchanged(arrays, hosts)
    if case.dtype in framework.gradient_dtypes:
        judge_gradients_of(function, case, subject, hosts, arrays)


def _transform(case: Case, subject: Subject) -> str:
    """The transform that the case's feature is named after.

    Raises:
        NotApplicable: the framework does not have it.
    """
    if case.feature not in subject.framework.transforms:
        raise NotApplicable(f"{subject.framework.name} has no {case.feature}")
    return case.feature


def _mapped_axis(term: str) -> int | None:
    """The axis of the label Z, counted from the end if it follows an ellipsis."""
    before, label, after = term.partition("Z")
    return None if not label else -1 - len(after) if "..." in before else len(before)
