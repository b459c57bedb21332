"""Functions that are traced, compiled or mapped by their framework, also without the sizes of some axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from einsumx import expression, plan
from einsumx.conformance.case import Case, Failure, cases_of, examples, keywords, operands
from einsumx.conformance.checks import (
    cotangent,
    counted,
    expected_gradient,
    judge_gradients,
    judge_gradients_of,
    needs_gradients,
)
from einsumx.conformance.features.forms import DIAGONALS, EQUATIONS, FEW
from einsumx.conformance.features.sizes import BROADCASTS, ZEROS
from einsumx.conformance.framework import Array, Function
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.subject import Subject

FEATURES = {
    "jit": "A function that is traced once and compiled, with gradients outside and inside (JAX; TensorFlow by XLA)",
    "vmap": "A function that is mapped over the axes labelled Z, with gradients (JAX, PyTorch, TensorFlow)",
    "compile": "A function that is compiled as one graph, with gradients (PyTorch, TensorFlow)",
    "hybridize": "A block that is traced once, with gradients (MXNet)",
    "unknown sizes": "A function that is traced once for all sizes, with gradients (JAX, PyTorch, TensorFlow)",
}

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
    Zij->Zi                0,3,0
    Zij,jk->Zik            0,3,0 0,4
    Z,i->Zi                0 4
    Zi,i->Z                0,3 3
""")

_FOLDED = examples("""
    ij,jkl->i               2,3 3,4,2
    ij,kjj->ik              2,3 4,3,3
    ij,jkk,kl->li           2,3 3,4,4 4,2
    ij,jk->ik               2,3 3,4
""")
"""Contractions that begin with ops on the second operand alone."""

_MORE = EQUATIONS[len(FEW) :] + DIAGONALS[:-1:3] + BROADCASTS[::4] + ZEROS[::4]

_UNEQUAL = examples("""
    aij,jib->ab             2,3,4 3,4,5
    ij,jk->ik               2,3 4,5
    bij,bjk->bik            2,3,4 3,4,5
    ij,ij->ij               2,3 3,2
    ii->i                   2,3
    ijij->ij                2,3,3,2
""")
"""Sizes that contradict the equation; after a reshape, several of them would not be noticed."""

_DTYPES = ("float16", "bfloat16", "float64", "complex64", "int32", "bool")


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    few = DIAGONALS[3:4] + BROADCASTS[6:7]  # PyTorch takes long to compile
    for transform, quick, more in (("jit", 4, _MORE), ("compile", 2, few), ("hybridize", 4, _MORE)):
        traced = partial(cases_of, transform, gives_the_same_traced)
        yield from traced(FEW[:quick])
        yield from traced(FEW[quick:] + more, full=True)
        for dtype in _DTYPES:
            yield from traced(examples("ij,jk->ik  2,3 3,4"), dtype=dtype, full=True)
        specs, factors = operands((2, 4), (2, 3), (3, 4)), keywords(alpha=2.5, beta=-0.5)
        yield Case(transform, gives_the_same_traced, "ij,jk->ik", specs, factors, "addeinsum", function="addeinsum")
    for transform in ("jit", "compile"):
        number, pair = operands((), (2, 3)), operands((2, 3), (3, 4))
        yield Case(transform, serves_numbers, ",ij->ij", number, about="numbers", only_einsumx=True)
        yield Case(transform, serves_plans, "ij,jk->ik", pair, about="plans", only_einsumx=True)
    yield from cases_of("jit", has_gradients_inside, FEW, about="gradients inside", quick=["ij,jk->ik"])
    for layout in ("F", "broadcast"):
        batches = examples("bij,bjk->bik  2,3,4 2,4,3")
        yield from cases_of("compile", gives_the_same_traced, batches, layout=layout, full=True)

    for transform in ("jit", "vmap", "compile"):
        first = partial(cases_of, transform, keeps_nothing_of_the_trace, about="expression first called there")
        yield from first(_FOLDED, quick=["ij,jkl->i"])

    mapped = partial(cases_of, "vmap", gives_the_same_mapped)
    yield from mapped(_MAPPED[:6])
    yield from mapped(_MAPPED[6:], full=True)
    for dtype in _DTYPES:
        yield from mapped(examples("Zij,jk->Zik  3,2,4 4,2"), dtype=dtype, full=True)
    for layout in ("F", "broadcast", "broadcast-last"):
        yield from mapped(examples("Zij,Zjk->Zik  3,2,4 3,4,2"), layout=layout, full=True)

    of = partial(cases_of, "unknown sizes")
    yield from of(serves_all_sizes, FEW, about="all axes")
    yield from of(serves_all_sizes, _MORE[2:], about="all axes", full=True)
    for dtype in ("float16", "bfloat16", "float64", "complex64", "int8", "int64", "bool"):
        yield from of(serves_all_sizes, FEW[:2], about="all axes", dtype=dtype, full=True)
    yield from of(serves_sizes_of_one_label, FEW + _MORE[2::4], about="the first label", quick=["ij,jk->ik"])
    yield from of(notices_unequal_sizes, _UNEQUAL, about="unequal", quick=["aij,jib->ab", "ii->i"])


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


def serves_numbers(case: Case, subject: Subject) -> None:
    """The traced function takes a number in the place of its first operand, another one in each call."""
    traced = subject.framework.transformed(_transform(case, subject), subject.bound(case))
    for call in ("first", "second", "third"):
        hosts, arrays = subject.operands(case, call)
        result = traced(hosts[0].item(), *arrays[1:])
        subject.judge(result, subject.expected(case, hosts), f"the result of the {call} call")


def serves_plans(case: Case, subject: Subject) -> None:
    """A plan that is traced gives the plain sum and gradients."""
    transform = _transform(case, subject)
    hosts, arrays = subject.operands(case)
    made = plan(case.equation, *arrays)

    def planned(*operands: Array) -> Array:
        return made(*operands)

    traced = subject.framework.transformed(transform, planned)
    subject.judge(traced(*arrays), subject.expected(case, hosts))
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


def keeps_nothing_of_the_trace(case: Case, subject: Subject) -> None:
    """An expression first called inside of a transform is right in another one, outside, and with gradients."""
    framework, transform = subject.framework, _transform(case, subject)
    if not subject.is_einsumx:
        raise NotApplicable("only einsumx has expressions")
    hosts, (array, *constants) = subject.operands(case)
    expected = subject.expected(case, hosts)
    call = expression(case.equation, case.operands[0].shape, *constants)
    for place in ("first", "second"):
        if transform == "vmap":
            result = framework.mapped(call, (0,))(array[None])[0]
        else:
            result = framework.transformed(transform, partial(call))(array)  # traced again
        subject.judge(result, expected, f"the result of the {place} {transform}")
    subject.judge(call(array), expected, "the result outside")
    if case.dtype in framework.gradient_dtypes:
        values, weights = cotangent(case, subject, hosts)
        (gradient,) = framework.gradients(call, [array], weights)
        subject.judge(gradient, expected_gradient(0, case, subject, hosts, values), "the gradient outside")


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


# -- sizes that are not known -------------------------------------------------------------------------------------


def serves_all_sizes(case: Case, subject: Subject) -> None:
    """A function that is traced for no size of any axis is right for several sizes, without being traced again."""
    _judge(case, subject, "".join(sorted({label for label in _inputs(case) if label.isalpha()})))


def serves_sizes_of_one_label(case: Case, subject: Subject) -> None:
    """The same if only the sizes of one label are not known."""
    _judge(case, subject, next(label for label in _inputs(case) if label.isalpha()))


def _judge(case: Case, subject: Subject, unknown: str) -> None:
    framework = subject.framework
    _needs_dynamic(case, subject)
    function, runs = subject.bound(case), list[None]()
    traced = _traced(case, subject, counted(function, runs) if framework.counts_traces else function, unknown)
    before = None
    for call, growth in enumerate((0, 1)):
        sized = _grown(case, {label: growth * (2 + place) for place, label in enumerate(unknown)})
        hosts, arrays = subject.operands(sized, f"call {call}")
        result = traced(*arrays)
        subject.judge(result, subject.expected(sized, hosts), f"the result of call {call}")
        subject.judge_unchanged(arrays, hosts)
        if before not in (None, len(runs)):
            raise Failure(f"call {call} traced the function again")
        before = len(runs)
    if case.dtype in framework.gradient_dtypes:
        judge_gradients_of(traced, sized, subject, hosts, arrays)


def notices_unequal_sizes(case: Case, subject: Subject) -> None:
    """Axes of one label that turn out to have different sizes are an error, as the function is traced or later."""
    if not subject.is_einsumx:
        raise NotApplicable("only einsumx promises this")
    _needs_dynamic(case, subject)
    _hosts, arrays = subject.operands(case)
    try:
        # Each axis has a symbol of its own, as nothing says that they are equal.
        symbols = iter("abcdefghijklmnopqrstuvwxyz")
        shapes = [tuple([next(symbols) for _ in operand.shape]) for operand in case.operands]
        traced = subject.framework.dynamic(subject.bound(case), shapes, [operand.dtype for operand in case.operands])
        result = subject.framework.values(traced(*arrays))
    except NotApplicable:
        raise
    except Exception:  # noqa: BLE001  each framework has its own error for it
        return
    raise Failure(f"it returned an array of shape {result.shape} for sizes that contradict the equation")


def _traced(case: Case, subject: Subject, function: Function, unknown: str) -> Function:
    shapes: list[tuple[int | str, ...]] = []
    for term, operand in zip(_inputs(case).split(","), case.operands):
        shapes.append(tuple([
            label if label in unknown and size > 1 else size for label, size in zip(term, operand.shape)
        ]))  # fmt: skip
    return subject.framework.dynamic(function, shapes, [operand.dtype for operand in case.operands])


def _grown(case: Case, growth: Mapping[str, int]) -> Case:
    """The case with larger sizes of some labels; those of 0 and 1, which are known, stay."""
    operands = []
    for term, operand in zip(_inputs(case).split(","), case.operands):
        shape = [size + growth.get(label, 0) * (size > 1) for label, size in zip(term, operand.shape)]
        operands.append(replace(operand, shape=tuple(shape)))
    return replace(case, operands=tuple(operands))


def _inputs(case: Case) -> str:
    return str(case.equation).partition("->")[0]


def _needs_dynamic(case: Case, subject: Subject) -> None:
    if "dynamic" not in subject.framework.transforms:
        raise NotApplicable(f"{subject.framework.name} traces no function without the sizes of its operands")
    for operand in case.operands:
        subject.needs_dtype(operand.dtype)
