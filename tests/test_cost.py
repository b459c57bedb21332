"""Blocking, ``einsumx profile`` and lowering price an op by one cost model."""

from dataclasses import replace

import pytest
from contractions import contraction
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from einsumx.adapters.registry import get_backend
from einsumx.blocked.estimate import Sketch, labelled_costs
from einsumx.ir import ops
from einsumx.ir.cost import op_seconds, program_cost
from einsumx.ir.cost_model import EINSUM_CALLS
from einsumx.ir.layout import contiguous
from einsumx.ir.operand import Operand
from einsumx.ir.rates import Rates
from einsumx.ir.simplify import simplify
from einsumx.ir.traits import Traits
from einsumx.planner.lower import lower, lowering_of
from einsumx.planner.lowering import Pair
from einsumx.planner.terms import ResultUse

RATES = Rates(
    call=2.0,
    view=0.5,
    matrix=0.25,
    gemm=100.0,
    stream=40.0,
    copy=20.0,
    permute=10.0,
    run=0.125,
    native=16.0,
    sweep=8.0,
)
"""Numbers that can be told apart in a sum."""

TRAITS = Traits(rates=RATES)


def arrays(*shapes, dtype="float32"):
    return [Operand(shape, dtype) for shape in shapes]


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        (ops.Reshape(1, 0, (6,)), arrays((2, 3)), 0.5),
        (ops.Expand(1, 0, (2, 3)), arrays((1, 3)), 0.5),
        (ops.First(1, 0, (0,)), arrays((2, 3)), 0.5),
        (ops.Transpose(1, 0, (1, 0)), arrays((2, 3)), 0.5),
        (ops.Diagonal(1, 0, 0, 1), arrays((3, 3)), 2.0),
        (ops.Transpose(1, 0, (1, 0), "why"), arrays((2, 3)), 2 + 2 * 24 / 10 + 3 * 0.125),
        (ops.Transpose(1, 0, (2, 0, 1), "why"), arrays((2, 3, 4)), 2 + 2 * 96 / 10 + 4 * 0.125),
        (ops.Transpose(1, 0, (1, 0, 2), "why"), arrays((2, 3, 4)), 2 + 2 * 96 / 20 + 6 * 0.125),
        (ops.Transpose(1, 0, (1, 0, 2), "why"), arrays((20, 30, 2)), 2 + 2 * 4800 / 20 + 600 * 0.125),
        (ops.Transpose(1, 0, (1, 0, 2), "why"), arrays((20, 30, 1)), 2 + 2 * 2400 / 10 + 30 * 0.125),
        (ops.Diagonal(1, 0, 0, 1, "why"), arrays((3, 3)), 2 + 2 * 12 / 10),
        (ops.Copy(1, 0, "why"), arrays((2, 3)), 2 + 2 * 24 / 20 + 0.125),
        (ops.Copy(1, 0, "why"), [Operand((2, 3), "float32", (1, 2))], 2 + 2 * 24 / 10 + 2 * 0.125),
        (ops.Copy(1, 0, "why"), [Operand((2, 3, 4), "float32", (4, 8, 1))], 2 + 2 * 96 / 20 + 6 * 0.125),
        (ops.Cast(1, 0, "float64"), arrays((2, 3)), 2 + (24 + 48) / 20 + 0.125),
        (ops.Sum(1, 0, (0,)), arrays((5, 3)), 2 + (60 + 12) / 40),
        (ops.Scale(1, 0, 9), arrays((5, 3)), 2 + (60 + 60) / 40),
        (ops.Multiply(2, 0, 1), arrays((5, 3), (3,)), 2 + (60 + 12 + 60) / 40),
        (ops.Zeros(1, (0,), (3,), "float32"), arrays((0, 3)), 2 + 12 / 40),
        # For each matrix 30 * 20 * 100 multiply-adds, and the bytes of operands and twice the result.
        (ops.Matmul(2, 0, 1), arrays((2, 30, 100), (2, 100, 20)), 2 + 2 * (0.25 + 600 + 6200 * 4 / 40)),
        (
            ops.Matmul(2, 0, 1),
            arrays((2, 30, 100), (2, 100, 20), dtype="complex64"),
            2 + 2 * (0.25 + 4 * 600 + 6200 * 8 / 40),
        ),
        # Fewer than 8 rows or columns count as 8.
        (ops.Matmul(2, 0, 1), arrays((3, 10), (10, 20)), 2 + 0.25 + 8 * 20 * 10 / 100 + (30 + 200 + 120) * 4 / 40),
        (ops.Matmul(2, 0, 1), arrays((10,), (10, 20)), 2 + 0.25 + 8 * 20 * 10 / 100 + (10 + 200 + 40) * 4 / 40),
        # A sum of more than 8 times as many terms as rows and columns, of turned matrices.
        (
            ops.Matmul(2, 0, 1),
            [Operand((8, 100), "float32", (1, 8)), Operand((100, 8), "float32", (1, 100))],
            2 + 1.1 * (0.25 + 8 * 8 * 100 / 100 + (800 + 800 + 128) * 4 / 40),
        ),
        # Products of vectors: their inner size counts once, and their overhead is a fifth.
        (ops.Matmul(2, 0, 1), arrays((5, 1, 10), (5, 10, 1)), 2 + 5 * (0.05 + 10 / 100 + (10 + 10 + 2) * 4 / 40)),
        # Innermost are k, j, j, both, and j. Each time that this loop starts, it takes as long as a run of a copy.
        (ops.Native(2, (0, 1), "ij,jk->ik"), arrays((3, 10), (10, 5)), 1.4 * 2 + 30 * 0.125 + 3 * 10 * 5 / 8),
        (ops.Native(2, (0, 1), "ij,jk->ki"), arrays((3, 10), (10, 5)), 1.4 * 2 + 15 * 0.125 + 3 * 10 * 5 / 16),
        (ops.Native(2, (0, 1), "ij,j->i"), arrays((3, 10), (10,)), 1.4 * 2 + 3 * 0.125 + 3 * 10 / 8),
        (ops.Native(2, (0, 1), "ij,ij->"), arrays((3, 10), (3, 10)), 1.4 * 2 + 0.125 + 3 * 10 / 8),
        (ops.Native(2, (0, 1), "ij,ji->"), arrays((3, 10), (10, 3)), 1.4 * 2 + 3 * 0.125 + 3 * 10 / 16),
        # In three loops, it takes as long as three. As c is kept and d is not, buffers are filled for each a and b.
        (
            ops.Native(2, (0, 1), "abd,bcd->ac"),
            arrays((3, 5, 10), (5, 7, 10)),
            1.4 * 2 + (3 * 105 + 9 * 15) * 0.125 + 1050 / 8,
        ),
    ],
    ids=str,
)
def test_seconds_of_an_op_by_hand(op, operands, expected):
    assert op_seconds(op, operands, TRAITS) == pytest.approx(expected)


def test_an_einsum_without_a_rate_of_sweeps_is_a_plain_loop():
    plain = replace(TRAITS, rates=replace(RATES, sweep=0.0))
    operands = arrays((3, 10), (10, 5), (5,))
    for op in (ops.Native(3, (0, 1, 2), "ij,jk,k->i"), ops.Native(3, (0, 1, 2), "ij,jk,k->ki")):
        assert op_seconds(op, operands, plain) == pytest.approx(1.4 * 2 + 3 * 10 * 5 * 2 / 16)


def test_a_framework_that_takes_one_batch_axis_is_called_for_each_index_of_the_others():
    operands = arrays((5, 3, 30, 100), (5, 3, 100, 20))
    more = op_seconds(ops.Matmul(2, 0, 1), operands, replace(TRAITS, max_batch_axes=1))
    assert more == pytest.approx(op_seconds(ops.Matmul(2, 0, 1), operands, TRAITS) + 2 * 2.0)


LEFT = replace(TRAITS, long_side="left")


@pytest.mark.parametrize(
    ("long", "short", "inner", "dtype", "belongs"),
    [
        (800, 15, 10, "float32", "right"),
        (800, 16, 10, "float32", "left"),
        (800, 23, 10, "float32", "right"),
        (800, 65, 10, "float32", "left"),
        (800, 16, 10, "float64", "right"),
        (800, 100, 10, "float64", "left"),
        (80, 8, 1000, "float32", "right"),
        (80, 20, 1000, "float32", "right"),
        (12, 8, 10, "float32", "either"),
    ],
)
def test_a_longer_side_belongs_on_the_left_unless_the_sum_is_long_or_the_other_side_short(
    long, short, inner, dtype, belongs
):
    tall, wide = arrays((long, inner), (inner, short), dtype=dtype), arrays((short, inner), (inner, long), dtype=dtype)
    once = op_seconds(ops.Matmul(2, 0, 1), tall, TRAITS)
    assert once == pytest.approx(op_seconds(ops.Matmul(2, 0, 1), wide, TRAITS))
    is_slower = [op_seconds(ops.Matmul(2, 0, 1), sides, LEFT) > 1.1 * once for sides in (tall, wide)]
    assert is_slower == [belongs == "right", belongs == "left"]


DISTINCT = ["numpy", "torch", "cupy", "mxnet", "tensorflow", "jax"]
"""Backends whose planners differ: with and without strides, batch strides and flags that transpose."""

CONTRACTED_SIZES, FEW_LABELS = st.sampled_from([0, 1, 2, 3, 8, 40]), st.text("abcde", max_size=4)


@st.composite
def contractions(draw):
    sizes = {label: draw(CONTRACTED_SIZES) for label in "abcde"}
    terms = [draw(FEW_LABELS) for _ in range(draw(st.integers(1, 4)))]
    labels = sorted(set("".join(terms)))
    output = "".join(draw(st.permutations(labels)))[: draw(st.integers(0, 3))]
    return f"{','.join(terms)}->{output}", [tuple(sizes[label] for label in term) for term in terms]


@pytest.mark.parametrize("backend", DISTINCT)
def test_blocking_takes_for_an_op_what_its_price_says(backend):
    adapter = get_backend(backend)
    traits = replace(adapter.cpu, rates=RATES)

    @given(contractions(), st.sampled_from(["float32", "complex64", "int32", "bool"]))
    @settings(max_examples=20)
    def check(case, dtype):
        equation, shapes = case
        plan = lower(contraction(equation, arrays(*shapes, dtype=dtype), adapter.cpu, backend))
        place = replace(plan.contraction.place, traits=traits)
        plan, sized = replace(plan, contraction=replace(plan.contraction, place=place)), plan.contraction.equation
        parts = labelled_costs(plan, sized.inputs, sized.output, sized.sizes, adapter)
        seconds = [op_seconds(op, [plan.values[slot] for slot in op.sources], traits) for op in plan.ops]
        assert [Sketch(plan, [part], sized.sizes)(sized.sizes).seconds for part in parts] == pytest.approx(seconds)
        assert Sketch(plan, parts, sized.sizes)(sized.sizes).seconds == pytest.approx(sum(seconds))
        costs = program_cost(plan, adapter).ops
        assert [part.allocated for part in parts] == [cost.allocated for cost in costs]

    check()


COUNTS, PAIR_SIZES = st.integers(0, 2), st.sampled_from([2, 3, 8, 40, 300])
PAIR_DTYPES, RANDOMS = st.sampled_from(["float32", "complex64"]), st.randoms(use_true_random=False)


@st.composite
def pairs(draw, traits):
    """A lowering, and a pair whose axes lie in memory in any order, with or without a requested order of the result."""
    counts = [draw(COUNTS) for _ in range(4)]
    counts[1] += not any(counts)
    labels = iter(range(sum(counts)))
    batch, contracted, *free = (tuple(next(labels) for _ in range(count)) for count in counts)
    # Axes of size 1 can be anywhere in memory; copies with them are priced approximately.
    lowering = lowering_of(traits)([draw(PAIR_SIZES) for _ in range(sum(counts))], traits, slots=2)
    random, operands = draw(RANDOMS), []
    for slot, rows in enumerate(free):
        own = (*batch, *contracted, *rows)
        axes, memory = (tuple(random.sample(own, len(own))) for _ in range(2))
        strides = dict(zip(memory, contiguous(lowering.shape(memory))))
        lies = tuple(strides[label] for label in axes) if traits.strided else None
        operands.append(lowering.term(slot, axes, lies))
    lhs, rhs = [operand.labels for operand in operands]
    batch, contracted = [tuple([label for label in lhs if label in group]) for group in (batch, contracted)]
    free = [tuple([label for label in own if label in group]) for own, group in zip((lhs, rhs), free)]
    kept = (*batch, *free[0], *free[1])
    order = tuple(random.sample(kept, len(kept))) if draw(st.booleans()) else None
    return lowering, Pair(*operands, batch, contracted, *free, draw(PAIR_DTYPES), ResultUse(order=order))


def described(lowering, pair, *terms):
    """The operand in each slot of these terms."""
    return {term.slot: Operand(lowering.shape(term.labels), pair.dtype, term.strides) for term in terms}


@pytest.mark.parametrize("backend", [*DISTINCT[:-1], "ndonnx"])
def test_lowering_takes_for_a_product_what_its_ops_cost(backend):
    # How many views it takes is an estimate; all else is exact.
    traits = replace(get_backend(backend).cpu, rates=replace(RATES, view=0.0))

    @given(pairs(traits))
    @settings(max_examples=25)
    def check(drawn):
        lowering, pair = drawn
        assume(pair.contracted or (pair.lhs_free and pair.rhs_free))  # others are elementwise products
        products = lowering.candidates(pair._replace(sums=pair.dtype), every=True)  # not by other kernels
        product = min(products, key=lambda each: each.seconds)
        term = product.write()
        if pair.use.order is not None:
            term = lowering.permute(term, pair.use.order, "why")
        lies = described(lowering, pair, pair.lhs, pair.rhs)
        total = 0.0
        made, _ = simplify(lowering.ops, [lies[slot].shape for slot in range(2)], term.slot)
        if traits.strided:  # a copy of an operand that turns out to lie in order is left out
            copies = [op for op in made if isinstance(op, ops.Copy)]
            (_, left, right, *_), _ = product.kind
            assume(len(copies) == left + right)
        (slot,) = (op.out for op in made if isinstance(op, ops.Matmul))
        for op in made:
            read = [lies[slot] for slot in op.sources]
            strides = op.result_strides(read[0].shape, read[0].strides)
            lies[op.out] = Operand(op.result_shape([each.shape for each in read]), pair.dtype, strides)
            is_own = not (isinstance(op, ops.Reshape) and op.src == slot)  # which splits the axes of the result
            total += op_seconds(op, read, traits) * is_own
        assert product.seconds == pytest.approx(total), (product, made)

    check()


@given(pairs(replace(get_backend("numpy").cpu, rates=RATES)))
@settings(max_examples=25)
def test_lowering_takes_for_an_einsum_what_its_ops_cost(drawn):
    lowering, pair = drawn
    assume(pair.contracted)
    (einsum,) = [each for each in lowering.candidates(pair, every=True) if each.name == "einsum"]
    term = einsum.write()
    turn = 0.0
    if pair.use.order is not None:
        lowering.permute(term, pair.use.order)
    elif term.labels != pair.kept:
        turn = RATES.view
    lies = described(lowering, pair, pair.lhs, pair.rhs, term)
    total = sum(op_seconds(op, [lies[slot] for slot in op.sources], lowering.traits) for op in lowering.ops)
    assert einsum.seconds == pytest.approx(total + turn)


def test_lowering_takes_the_frameworks_own_kernel_where_it_loops_for_less_than_a_call():
    def lowered(native):
        rates = Rates(call=1.0, view=0.1, run=0.0, native=native)
        kernel = {"native_any_labels": True, "native_max_labels": 2, "native_max_operands": 1}
        traits = Traits(rates=rates, native_dtypes=frozenset(["float32"]), **kernel)
        return lower(contraction("iij->i", arrays((2, 2, 5)), traits)).ops

    calls = lowered(0.0)
    assert [type(op) for op in calls[:1]] == [ops.Diagonal]
    assert lowered(0.99 * 10 / EINSUM_CALLS) == calls
    assert lowered(1.01 * 10 / EINSUM_CALLS) == (ops.Native(1, (0,), "aab->a"),)
