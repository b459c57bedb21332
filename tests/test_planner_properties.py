"""Random equations, shapes, layouts and dtypes: every plan gives what the plain sum gives, on every backend's terms."""

import dataclasses
import json
from math import prod

import numpy as np
import pytest
from backends_under_test import INSTALLED, NUMPY
from contractions import contraction
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import einsumx
from einsumx.adapters.registry import BUILTIN, get_backend
from einsumx.backends.mxnet.arrays import MXNET_1
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.ir.layout import contiguous, layout_class, reshaped
from einsumx.ir.ops import (
    Cast,
    Copy,
    Diagonal,
    Expand,
    First,
    Matmul,
    Multiply,
    Native,
    Reshape,
    Scale,
    Sum,
    Transpose,
    Zeros,
)
from einsumx.ir.simplify import simplify
from einsumx.ir.traits import Layouts
from einsumx.ir.verify import verify
from einsumx.planner.lower import lower
from einsumx.plans import as_plan

LABELS = "abcdXé"
INDEX_SPACE = 4000
"""The most terms that a drawn equation multiplies out to, so that the plain sum stays cheap."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A drawn contraction: the equation in both forms, and the operands' shapes."""

    text: str
    sublists: tuple
    output: tuple | None
    shapes: tuple

    def arguments(self, arrays, as_text):
        if as_text:
            return [self.text, *arrays]
        pairs = [item for array, labels in zip(arrays, self.sublists) for item in (array, list(labels))]
        return pairs if self.output is None else [*pairs, list(self.output)]


# Strategies that are made once, as making one takes longer than drawing from it.
SIZES, SIZES_WITHOUT_ZERO = st.sampled_from([0, 1, 2, 2, 3, 3, 4]), st.sampled_from([1, 2, 3, 4])
SOME_LABELS, NARROW_LABEL = st.lists(st.sampled_from(LABELS), max_size=4), st.none() | st.sampled_from(LABELS)
PLACES = [st.integers(0, most) for most in range(len(LABELS) + 2)]
QUARTERS, BOOLS, GAPS = st.integers(0, 3), st.booleans(), st.sampled_from(["", " "])
SEEDS, LAYOUTS = (
    st.integers(0, 2**16),
    st.sampled_from(["contiguous", "transposed", "gaps", "reversed", "broadcast", "unaligned"]),
)


@st.composite
def cases(draw, least=1, most=6, sizes_of=SIZES):
    sizes = {label: draw(sizes_of) for label in LABELS}
    batch = [draw(sizes_of) for _ in range(draw(PLACES[2]))]
    terms, shapes = [], []
    for _ in range(least + draw(PLACES[most - least])):
        term, narrow = draw(SOME_LABELS), draw(NARROW_LABEL)
        shape = [1 if label == narrow else sizes[label] for label in term]
        if draw(QUARTERS) == 0:
            place = draw(PLACES[len(term)])
            own = [size if draw(QUARTERS) else 1 for size in batch[draw(PLACES[len(batch)]) :]]
            term.insert(place, ...)
            shape[place:place] = own
        terms.append(tuple(term))
        shapes.append(tuple(shape))
    known = list(dict.fromkeys(label for term in terms for label in term))
    output = None
    if draw(BOOLS):
        output, left = [], list(known)
        for _ in range(draw(PLACES[len(known)])):
            output.append(left.pop(draw(PLACES[len(left) - 1])))
    space = prod(max(size, 1) for size in batch) * prod(max(sizes[label], 1) for label in known if label is not ...)
    assume(space <= INDEX_SPACE)
    gap = draw(GAPS)

    def written(term):
        return gap.join("..." if label is ... else label for label in term)

    text = ",".join(map(written, terms)) + ("" if output is None else f"{gap}->{gap}{written(output)}")
    return Case(text, tuple(terms), None if output is None else tuple(output), tuple(shapes))


def random_values(rng, shape, dtype, small):
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < 0.7
    if kind in "iu" and not small:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    if kind in "iuO":
        return np.asarray(rng.integers(0 if kind == "u" else -4, 5, shape)).astype(dtype)
    values = rng.standard_normal(shape)
    return (values + 1j * rng.standard_normal(shape)).astype(dtype) if kind == "c" else values.astype(dtype)


def laid_out(rng, values, layout):
    """The same values (but for "broadcast", where an axis repeats one) with other strides."""
    rank = values.ndim
    match layout:
        case "transposed":
            axes = rng.permutation(rank)
            return np.array(values.transpose(axes), order="C").transpose(np.argsort(axes))
        case "gaps":
            room = np.zeros([size + int(rng.integers(0, 3)) for size in values.shape], values.dtype)
            view = room[(..., *(slice(room.shape[axis] - size, None) for axis, size in enumerate(values.shape)))]
        case "reversed":
            return values[(..., *(slice(None, None, rng.choice([1, -1])) for _ in range(rank)))]
        case "broadcast" if rank and values.size:
            axis = int(rng.integers(rank))
            return np.broadcast_to(values.take([0], axis), values.shape)
        case "unaligned" if values.dtype != object:
            room = np.zeros(values.nbytes + 1, "u1")
            view = room[1:].view(values.dtype).reshape(values.shape)
        case _:
            return values
    view[...] = values
    return view


@st.composite
def operands(draw, case, dtypes):
    """Arrays for a case: one dtype for all, or one each."""
    rng = np.random.default_rng(draw(SEEDS))
    mixed = draw(QUARTERS) == 0
    if mixed:  # objects are held to exact equality, which their products with floats have not
        dtypes = [dtype for dtype in dtypes if dtype != "object"] or dtypes
    chosen = [draw(st.sampled_from(dtypes)) for _ in (case.shapes if mixed else [()])]
    chosen = chosen if mixed else chosen * len(case.shapes)
    small = {np.dtype(dtype).kind for dtype in chosen} - set("iu") != set()
    return [
        laid_out(rng, np.asarray(random_values(rng, shape, dtype, small)), draw(LAYOUTS))
        for shape, dtype in zip(case.shapes, chosen)
    ]


def assert_right(result, expected):
    assert judge(result, expected)


# -- whole contractions -----------------------------------------------------------------------------------------


@pytest.mark.long
@given(data=st.data(), case=cases())
@settings(max_examples=120)
def test_einsum_on_numpy_gives_the_plain_sum(data, case):
    arrays = data.draw(operands(case, [*NUMPY.dtypes, "longdouble", "clongdouble", ">f8", "object"]))
    arguments = case.arguments(arrays, data.draw(BOOLS))
    optimize = data.draw(st.sampled_from(["auto", "auto", True, False, "greedy"]))
    with np.errstate(all="ignore"):
        result = einsumx.einsum(*arguments, optimize=optimize)
    expected = expect(*arguments)
    if expected.dtype == "object":  # NumPy gives the object itself where there is one
        result = np.asarray(result, object)
    assert_right(result, expected)


@given(data=st.data(), case=cases())
@settings(max_examples=40)
def test_out_is_written_whole_where_it_overlaps_an_operand(data, case):
    arrays = data.draw(operands(case, ["float64"]))
    expected = expect(case.text, *(array.copy() for array in arrays))
    needed = max(expected.values.size, *(array.size for array in arrays), 1)
    memory = np.zeros(2 * needed)
    start = data.draw(st.integers(0, needed - arrays[0].size)) if arrays[0].size < needed else 0
    first = memory[start : start + arrays[0].size].reshape(arrays[0].shape)
    first[...] = arrays[0]
    out = memory[: expected.values.size].reshape(expected.values.shape)
    assert einsumx.einsum(case.text, first, *arrays[1:], out=out) is out
    assert_right(out, expected)


# -- plans for every backend, executed on NumPy by what each op means -----------------------------------------------


class Interpreter:
    """What each op means, on NumPy arrays; of the facts that a framework's traits state, those of memory are checked.

    Without strides every value is C-contiguous. Results of arithmetic are C-contiguous either way.
    """

    def __init__(self, traits):
        self.traits = traits

    def run(self, plan, operands):
        values = dict(enumerate(operands))
        for op in plan.ops:
            found = np.asarray(self.value(op, [values[slot] for slot in op.sources]))
            if not self.traits.strided or isinstance(op, Copy | Sum | Scale | Multiply | Matmul | Native):
                found = np.asarray(found, order="C")
            values[op.out] = found
        return values[plan.result]

    def value(self, op, arrays):
        traits, first = self.traits, arrays[0]
        match op:
            case Transpose():
                return first.transpose(op.axes)
            case Reshape():
                view = first.reshape(op.shape)
                assert first.size == 0 or np.shares_memory(view, first), f"{op} copies {first.shape} {first.strides}"
                return view
            case Expand():
                return np.broadcast_to(first, op.shape)
            case First():
                assert all(first.strides[axis] == 0 for axis in op.axes)
                return first[tuple(0 if axis in op.axes else slice(None) for axis in range(first.ndim))]
            case Diagonal():
                return first.diagonal(0, op.axis1, op.axis2)
            case Copy():
                return first.copy()
            case Cast():
                return first.astype(op.dtype)
            case Sum():
                wide = first.dtype == "float16" and "sum" in traits.wide_ops
                return first.astype("f4").sum(op.axes).astype(first.dtype) if wide else first.sum(op.axes, first.dtype)
            case Scale():
                return np.multiply(first, np.asarray(op.count).astype(first.dtype))
            case Zeros():
                assert any(array.size == 0 for array in arrays)
                return np.zeros(op.shape, op.dtype)
            case Multiply():
                assert arrays[0].dtype == arrays[1].dtype
                return np.multiply(*arrays)
            case Matmul():
                return self.matmul(op, *arrays)
            case Native():
                if first.dtype == "float16":  # the kernels that take it accumulate in float32
                    return np.einsum(op.equation, *arrays, dtype="float32", casting="safe").astype("float16")
                return np.einsum(op.equation, *arrays)

    def matmul(self, op, lhs, rhs):
        traits = self.traits
        assert lhs.dtype == rhs.dtype
        if min(lhs.ndim, rhs.ndim) == 1:
            return np.matmul(lhs, rhs)
        assert traits.strided or lhs.shape[:-2] == rhs.shape[:-2]
        steps = lhs.shape[-2] * lhs.shape[-1] * rhs.shape[-1]
        is_tiny = lhs.ndim == 3 and steps < traits.layouts(lhs.dtype.name).tiny  # multiplied with any strides
        copied = [side for side in (lhs, rhs) if not is_tiny and not is_read_in_place(side, traits)]
        assert not copied, f"{op} reads a matrix that the framework copies"
        lhs = lhs.swapaxes(-1, -2) if op.transpose_lhs else lhs
        rhs = rhs.swapaxes(-1, -2) if op.transpose_rhs else rhs
        wide = "float32" if lhs.dtype == "float16" and "matmul" in traits.wide_ops else lhs.dtype
        return np.matmul(lhs.astype(wide), rhs.astype(wide)).astype(lhs.dtype)


def is_read_in_place(side, traits):
    """Whether a matmul reads an operand without a copy, or each of its matrices where the adapter takes one by one."""
    if not traits.strided:
        return side.flags.c_contiguous
    layout, batch_layout, _ = traits.layouts(side.dtype.name)
    if (batch_layout if side.ndim > 2 else layout) == "C" and side.flags.c_contiguous:
        return True
    matrix = side[(0,) * (side.ndim - 2)] if side.size else side
    if layout == "C":
        return matrix.flags.c_contiguous and side.ndim == 2
    if layout == "contiguous":
        return matrix.flags.c_contiguous or matrix.flags.f_contiguous
    rows, cols = matrix.shape[-2:]
    return not side.size or rows == 1 or cols == 1 or side.itemsize in matrix.strides


def in_elements(array):
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return layout_class(array.shape, strides) if array.size else None


def lowered(text, operands, backend, traits, optimize="auto"):
    """The program for operands of one dtype."""
    return lower(contraction(text, operands, traits, backend, optimize=optimize))


def planned(case, arrays, backend, traits):
    """The plan for arrays of one dtype, with their strides where the framework has strides."""
    described = [
        einsumx.Operand(array.shape, array.dtype.name, in_elements(array) if traits.strided else None)
        for array in arrays
    ]
    plan = as_plan(lowered(case.text, described, backend, traits))
    verify(plan)
    assert_fits(plan, traits)
    return plan


def assert_fits(plan, traits):
    for op in plan.ops:
        assert fits(op, [plan.values[slot] for slot in op.sources], traits), op


def fits(op, sources, traits):
    """Whether a backend can run an op on such sources, and returns a view exactly where the op says so."""
    shapes, dtype, strides = [source.shape for source in sources], sources[0].dtype, sources[0].strides
    match op:
        case Expand() | First():
            return traits.strided
        case Reshape():
            return strides is None or not traits.strided or reshaped(shapes[0], strides, op.shape) is not None
        case Transpose() | Diagonal():
            return bool(op.reason) != traits.strided
        case Matmul():
            batch = max(map(len, shapes)) - 2
            asks_flags = op.transpose_lhs or op.transpose_rhs
            loops = traits.strided and traits.layouts(dtype).batch == "strided"  # over all batch axes but one
            return (
                dtype in traits.matmul_dtypes
                and (traits.transpose_flags or not asks_flags)
                and (not op.threads or op.threads in traits.threads(dtype))
                and (not op.sums or ((dtype, op.sums) in traits.wide_products and min(map(len, shapes)) > 1))
                and (traits.strided or min(map(len, shapes)) > 1)
                and (loops or traits.max_batch_axes is None or batch <= traits.max_batch_axes)
                and (traits.strided or shapes[0][:-2] == shapes[1][:-2])
            )
        case Native():
            labels = set(op.equation) - set(",->")
            return (
                dtype in traits.native_dtypes
                and (len(labels) <= traits.native_max_labels or traits.arrays == "einsum")
                and (len(op.operands) <= max(traits.native_max_operands, 2))
            )
        case Scale():
            return traits.strided and dtype not in ("bool", *dict(traits.widen))
        case Copy():
            return bool(op.reason)
        case Cast() | Sum() | Multiply() | Zeros():
            return True


def all_traits():
    """The traits of every backend on every kind of device."""
    found = {}
    for name in BUILTIN:
        for device in ("cpu", "cuda"):
            traits = get_backend(name).traits(device)
            if traits not in found.values():
                found[f"{name} on {device}"] = traits
    return found


STRICT = einsumx.Traits(
    arrays="packed",
    views=False,
    max_batch_axes=1,
    transpose_flags=True,
    matmul_dtypes=frozenset({"float32", "float64"}),
    widen=(("float16", "float32"),),
)
"""A framework with everything that any lacks."""


class PackedBatches(einsumx.Traits):
    """A matmul with batch axes reads C order alone."""

    __slots__ = ()

    def layouts(self, dtype):
        return Layouts(batch="C")


TRAITS = {
    **all_traits(),
    "the least": STRICT,
    "mxnet 1 on cpu": MXNET_1,
    "the least with strides": PackedBatches(
        views=False, max_batch_axes=1, matmul_dtypes=STRICT.matmul_dtypes, widen=STRICT.widen
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", TRAITS)
def test_plans_for_the_traits_of_every_backend_mean_the_plain_sum(name):
    traits = TRAITS[name]
    names = ["float32", "float64", "complex64", "float16", "int8", "bool"]

    @given(data=st.data(), case=cases())
    @settings(max_examples=20)
    def check(data, case):
        arrays = data.draw(operands(case, [data.draw(st.sampled_from(names))]))
        if not traits.strided:
            arrays = [np.array(array, order="C") for array in arrays]
        plan = planned(case, arrays, name, traits)
        with np.errstate(all="ignore"):
            assert_right(Interpreter(traits).run(plan, arrays), expect(case.text, *arrays))

    check()


def tells_strides(backend):
    """Whether a framework has strides and tells them; MLX has strides only where it has computed an array."""
    adapter = backend.adapter
    turned = adapter.transpose(backend.array(np.ones((2, 3), "float32")), (1, 0))
    return adapter.cpu.strided and adapter.operand(adapter.signature(turned)).strides is not None


STRIDED = [backend for backend in INSTALLED if tells_strides(backend)]


def address(array):
    """Where the memory that an array looks at starts."""
    if hasattr(array, "untyped_storage"):
        return array.untyped_storage().data_ptr()
    while array.base is not None:
        array = array.base
    return id(array)


@pytest.mark.parametrize("backend", STRIDED, ids=str)
def test_what_a_plan_calls_a_view_is_one_on_the_frameworks_own_arrays(backend):
    adapter = backend.adapter

    @given(data=st.data(), case=cases(2, 4, SIZES_WITHOUT_ZERO))
    @settings(max_examples=40)
    def check(data, case):
        dtype = data.draw(st.sampled_from(["float32", "float16", "bool"]))
        arrays = [np.asarray(random_values(np.random.default_rng(0), shape, dtype, True)) for shape in case.shapes]
        axes = [data.draw(st.permutations(range(array.ndim))) for array in arrays]
        turned = [array.transpose(order) for array, order in zip(arrays, axes)]
        values = {
            slot: adapter.transpose(backend.array(np.array(array, order="C")), tuple(map(int, np.argsort(order))))
            for slot, (array, order) in enumerate(zip(turned, axes))
        }
        described = [adapter.operand(adapter.signature(value)) for value in values.values()]
        plan = lowered(case.text, described, str(backend), adapter.cpu)
        for op in plan.ops:
            read = [values[slot] for slot in op.sources]
            kernel = adapter.kernel(op, [tuple(array.shape) for array in read], adapter.dtype_name(read[0].dtype))
            values[op.out] = kernel(*read)
            if isinstance(op, Transpose | Reshape | Expand | First | Diagonal):
                assert address(values[op.out]) == address(read[0]), f"{op} copies in\n{plan}"

    check()


EQUATIONS = st.sampled_from(
    [
        "ij,jk->ik",
        "bind,bjnd->bnij",
        "bij,bjk->bik",
        "bij,bjk->ik",
        "ijk,jil->kl",
        "ijkl,kjm->mil",
        "ij,ij->i",
        "i,j->ij",
        "ijk->kj",
        "iij,jk->ik",
        "ij,jk,kl->il",
        "abc,ade,bdf,cef->",
        "ab,bc,cd,de,ea->",
    ]
)
LONG_SIZES = st.sampled_from([1, 2, 3, 7, 8, 30, 31, 64, 500])
"""Sizes of which some products are small, and some large enough for all that a search considers."""


@pytest.mark.parametrize("backend", ["numpy", "torch", "mxnet", "jax", "array_api"])
def test_a_plan_does_not_depend_on_the_sizes_that_were_planned_before(backend):
    traits = get_backend(backend).cpu

    @given(data=st.data(), equation=EQUATIONS, dtype=st.sampled_from(["float32", "float16", "int64"]))
    @settings(max_examples=12)
    def check(data, equation, dtype):
        terms = equation.partition("->")[0].split(",")
        orders = [data.draw(st.permutations(range(len(term)))) for term in terms]
        problems = []
        for _ in range(4):
            sizes = {label: data.draw(LONG_SIZES) for label in sorted(set("".join(terms)))}
            shapes = [tuple(sizes[label] for label in term) for term in terms]
            problems.append([lying(shape, dtype, order, traits) for shape, order in zip(shapes, orders)])
        einsumx.cache_clear()
        plans = [lowered(equation, operands, backend, traits) for operands in problems]
        for operands, plan in zip(problems, plans):
            einsumx.cache_clear()
            assert lowered(equation, operands, backend, traits) == plan

    check()


def lying(shape, dtype, order, traits):
    """An operand whose axes lie in memory in ``order``, where the framework has strides."""
    strides = dict(zip(order, contiguous([shape[axis] for axis in order])))
    found = tuple(strides[axis] for axis in range(len(shape)))
    return einsumx.Operand(shape, dtype, found if traits.strided and found != contiguous(shape) else None)


# -- plans as data --------------------------------------------------------------------------------------------------


@given(data=st.data(), case=cases())
@settings(max_examples=40)
def test_plans_are_simple_already_and_survive_json(data, case):
    backend = data.draw(st.sampled_from(sorted(BUILTIN)))
    arrays = [np.array(array, order="C") for array in data.draw(operands(case, ["float32"]))]
    plan = planned(case, arrays, backend, get_backend(backend).traits(""))
    assert simplify(plan.ops, [operand.shape for operand in plan.operands], plan.result) == (plan.ops, plan.result)
    assert einsumx.Plan.from_json(plan.to_json()) == plan
    assert einsumx.Plan.from_json(json.dumps(json.loads(plan.to_json()), indent=1)) == plan
    assert str(plan).count("\n") == len(plan.ops) + (1 if len(arrays) <= 4 else 3)  # two lines about the path


TYPES = [
    ("float32", None, "float64"),
    ("float32", "float64", None),
    ("float64", "complex128", None),
    ("complex64", None, "complex128"),
    ("float16", None, "float32"),
    ("float16", None, "float64"),
    ("float16", "float32", "float64"),
    ("int8", "float32", "float64"),
    ("int8", "int32", "int64"),
    ("int32", "float64", None),
    ("bool", "float32", None),
]
"""The dtypes of operands, of results and of sums."""


@pytest.mark.long
@given(data=st.data(), case=cases(), types=st.sampled_from(TYPES))
@settings(max_examples=60)
def test_plans_keep_the_dtypes_that_were_asked_for_when_stored_retargeted_and_run_on_other_arrays(data, case, types):
    names, dtype, accumulate = types
    arrays = [np.array(array, order="C") for array in data.draw(operands(case, [names]))]
    backends = [name for name in sorted(BUILTIN) if computes(name, types)]
    backend, other = (data.draw(st.sampled_from(backends)) for _ in range(2))
    device = data.draw(st.sampled_from(["", *(get_backend(backend).device_kinds or ["cuda"])]))
    plan = einsumx.plan(
        case.text, *case.shapes, backend=backend, device=device, dtypes=names, dtype=dtype, accumulate=accumulate
    )
    assert einsumx.Plan.from_json(plan.to_json()) == plan
    moved = plan.retarget(other)
    assert (moved.dtype, moved.retarget(backend, device)) == (plan.dtype, plan)
    assert einsumx.Plan.from_json(moved.to_json()) == moved
    expected = expect(case.text, *arrays, dtype=plan.dtype, accumulate=accumulate)
    with np.errstate(all="ignore"):
        for each in (plan, moved):
            traits = get_backend(each.backend).traits(each.device)
            assert_fits(each, traits)
            assert_right(Interpreter(traits).run(each, arrays), expected)
        assert_right(np.asarray(plan(*arrays)), expected)


def computes(backend, types):
    """Whether a framework has these dtypes."""
    names = get_backend(backend).traits("").dtypes
    return names is None or names.issuperset(filter(None, types))


@given(data=st.data(), case=cases(least=3))
@settings(max_examples=30)
def test_every_path_gives_the_same_value(data, case):
    arrays = data.draw(operands(case, ["float64"]))
    steps, left = [], len(arrays)
    while left > 1:
        step = data.draw(st.sets(st.integers(0, left - 1), min_size=1, max_size=min(3, left)).filter(lambda s: s))
        steps.append(tuple(data.draw(st.permutations(sorted(step)))))
        left -= len(step) - 1
        assume(len(steps) < 12)
    expected = expect(case.text, *arrays)
    assert_right(einsumx.einsum(case.text, *arrays, optimize=steps), expected)
    assert_right(einsumx.einsum(case.text, *arrays, optimize=["einsum_path", *steps]), expected)
