"""One model says what an op takes: blocking, ``einsumx profile`` and lowering's calls agree on it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einsumx.adapters.rates import Rates
from einsumx.adapters.registry import BUILTIN, get_backend
from einsumx.adapters.traits import Traits
from einsumx.blocked.estimate import Sketch, amounts
from einsumx.ir.bind import bind
from einsumx.ir.cost import layouts, op_price, op_seconds, program_cost, slot_dtypes
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
from einsumx.ir.parse import parse_text
from einsumx.ir.program import Operand
from einsumx.ir.verify import verify
from einsumx.planner.lower import lower
from einsumx.planner.path import find_path

RATES = Rates(
    call=2.0, view=0.5, matrix=0.25, gemm=100.0, stream=40.0, copy=20.0, permute=10.0, run=0.0, native=16.0, sweep=8.0
)
"""Numbers that can be told apart in a sum."""


def arrays(*shapes, dtype="float32"):
    return [Operand(shape, dtype) for shape in shapes]


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        (Reshape(1, 0, (6,)), arrays((2, 3)), 0.5),
        (Expand(1, 0, (2, 3)), arrays((1, 3)), 0.5),
        (First(1, 0, (0,)), arrays((2, 3)), 0.5),
        (Transpose(1, 0, (1, 0)), arrays((2, 3)), 0.5),
        (Diagonal(1, 0, 0, 1), arrays((3, 3)), 2.0),
        (Transpose(1, 0, (1, 0), "why"), arrays((2, 3)), 2 + 2 * 24 / 10),
        (Diagonal(1, 0, 0, 1, "why"), arrays((3, 3)), 2 + (36 + 12) / 10),
        (Copy(1, 0, "why"), arrays((2, 3)), 2 + 2 * 24 / 10),
        (Cast(1, 0, "float64"), arrays((2, 3)), 2 + (24 + 48) / 10),
        (Sum(1, 0, (0,)), arrays((5, 3)), 2 + (60 + 12) / 40),
        (Scale(1, 0, 9), arrays((5, 3)), 2 + (60 + 60) / 40),
        (Multiply(2, 0, 1), arrays((5, 3), (3,)), 2 + (60 + 12 + 60) / 40),
        (Zeros(1, (0,), (3,), "float32"), arrays((0, 3)), 2 + 12 / 40),
        # 2 * 30 * 20 * 100 multiply-adds, a hundred a second, while memory takes 1120 s; then memory takes longer.
        (Matmul(2, 0, 1), arrays((2, 30, 100), (2, 100, 20)), 2 + 2 * 0.25 + 1200),
        (Matmul(2, 0, 1), arrays((2, 30, 1), (2, 1, 20)), 2 + 2 * 0.25 + (240 + 160 + 4800) / 40),
        (Matmul(2, 0, 1), arrays((2, 30, 100), (2, 100, 20), dtype="complex64"), 2 + 2 * 0.25 + 4 * 1200),
        (Native(2, (0, 1), "ij,jk->ik"), arrays((3, 10), (10, 5)), 2 + (120 + 200 + 60) / 40),
        (Native(3, (0, 1, 2), "ij,jk,k->i"), arrays((3, 10), (10, 5), (5,)), 2 + 3 * 10 * 5 * 2 / 16),
    ],
    ids=str,
)
def test_seconds_of_an_op_by_hand(op, operands, expected):
    assert op_seconds(op, operands, RATES) == pytest.approx(expected)


@st.composite
def contractions(draw):
    sizes = {label: draw(st.sampled_from([0, 1, 2, 3, 8, 40])) for label in "abcde"}
    terms = draw(st.lists(st.text("abcde", max_size=4), min_size=1, max_size=4))
    labels = sorted(set("".join(terms)))
    output = "".join(draw(st.permutations(labels)))[: draw(st.integers(0, 3))]
    return f"{','.join(terms)}->{output}", [tuple(sizes[label] for label in term) for term in terms]


@pytest.mark.parametrize("backend", sorted(BUILTIN))
def test_blocking_takes_for_an_op_what_its_price_says(backend):
    adapter = get_backend(backend)

    @given(contractions(), st.sampled_from(["float32", "complex64", "int32", "bool"]))
    @settings(max_examples=60)
    def check(case, dtype):
        equation, shapes = case
        sized = bind(parse_text(equation, len(shapes)), shapes)
        operands = arrays(*shapes, dtype=dtype)
        plan = lower(sized, operands, find_path(sized), backend=backend, traits=adapter.cpu, dtype=dtype)
        parts = amounts(plan, sized.inputs, sized.output, sized.sizes, adapter, RATES)
        lies = layouts(plan, verify(plan), slot_dtypes(plan))
        seconds = [op_seconds(op, [lies[slot] for slot in op.sources], RATES) for op in plan.ops]
        assert [Sketch(plan, [part], sized.sizes)(sized.sizes).seconds for part in parts] == pytest.approx(seconds)
        assert Sketch(plan, parts, sized.sizes)(sized.sizes).seconds == pytest.approx(sum(seconds))
        costs = program_cost(plan, adapter).ops
        assert [part.allocated is None for part in parts] == [not cost.allocated for cost in costs]

    check()


def test_lowering_takes_the_frameworks_own_kernel_by_the_same_price_of_a_call():
    sized = bind(parse_text("iij->i", 1), [(2, 2, 5)])

    def lowered(native):
        rates = Rates(call=1.0, view=0.1, native=native)
        kernel = {"native_any_labels": True, "native_max_labels": 2, "native_max_operands": 1}
        traits = Traits(rates=rates, native_dtypes=frozenset(["float32"]), **kernel)
        return lower(sized, arrays((2, 2, 5)), find_path(sized), backend="numpy", traits=traits, dtype="float32").ops

    ops = lowered(0.0)
    assert [type(op) for op in ops[:1]] == [Diagonal]
    # Calls and views of these ops, less the 1.3 calls that one which reads an equation takes for ten elements.
    saved = sum(op_price(op, "float32", Rates(call=1.0, view=0.1)).fixed for op in ops) - 1.3
    assert lowered(0.99 * 10 / saved) == ops
    assert lowered(1.01 * 10 / saved) == (Native(1, (0,), "aab->a"),)


def test_the_price_of_an_op_is_that_of_its_shapes_alone():
    turned = Operand((30, 20), "float32", (1, 30))
    assert op_seconds(Copy(1, 0, "why"), [turned], RATES) == op_seconds(Copy(1, 0, "why"), arrays((30, 20)), RATES)
