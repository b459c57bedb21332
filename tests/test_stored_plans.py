"""Plans from strangers: whatever is in the text, it is a plan that computes its equation, or an EinsumxError."""

import dataclasses
import json
import os
import pickle
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threads import in_threads

import einsumx
from einsumx.adapters.registry import BUILTIN
from einsumx.backends.numpy import NumpyAdapter
from einsumx.conformance.oracle import expect, judge
from einsumx.conformance.suite import cases
from einsumx.ir.ops import (
    Cast,
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
from einsumx.runtime.execute import executable

EinsumxError, Plan = einsumx.EinsumxError, einsumx.Plan

RAN = "EINSUMX_TEST_PLAN_RAN"
CODE = f"__import__('os').environ.__setitem__({RAN!r},'1')"


def strided(shape):
    """An array with gaps between its elements, which a product copies first."""
    return np.ones((shape[0], 2 * shape[1]))[:, ::2]


PLANS = {
    "product": einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32"),
    "square": einsumx.plan("ij,jk->ik", (3, 3), (3, 3)),
    "copy": einsumx.plan("ij,jk->ik", strided((20, 30)), np.ones((30, 40))),
    "view": einsumx.plan("ijk->kij", (3, 3, 3)),
    "sum": einsumx.plan("ijk->j", (3, 3, 3)),
    "diagonal": einsumx.plan("iij->ji", (3, 3, 3)),
    "bool": einsumx.plan("bij,bjk->bik", (3, 30, 40), (3, 40, 30), dtypes="bool"),
    "native": einsumx.plan("ij,jk->ik", (3, 3), (3, 3), dtypes="int32"),
    "mixed": einsumx.plan("ij,jk->ik", (30, 20), (20, 30), dtypes=["float32", "float64"]),
    "repeated": einsumx.plan("ij,ij->j", np.broadcast_to(np.ones(90), (90, 90)), np.ones((90, 90))),
    "spread": einsumx.plan("ij,i->ij", np.broadcast_to(np.ones(90), (95, 90)), np.broadcast_to(1.0, 95)),
    "counted": einsumx.plan("ij,ik->jk", *[np.broadcast_to(np.ones((1, 90)), (70, 90))] * 2),
    "empty": einsumx.plan("ij,jk->ik", (3, 0), (0, 4)),
    "chain": einsumx.plan("ab,bc,cd->da", (3, 3), (3, 3), (3, 3), optimize=False),
    "matrices": einsumx.plan("bij,bjk->bik", (5, 6, 7), (5, 7, 8), backend="mxnet", dtypes="float32"),
    "half": einsumx.plan("ij,jk,k->i", (4, 5), (5, 6), (6,), dtypes="float16"),
}


SCALED = next(place for place, op in enumerate(PLANS["counted"].ops) if isinstance(op, Scale))


def data_of(name):
    return json.loads(PLANS[name].to_json())


def arrays_for(plan, seed=0):
    """Small whole numbers, on which rounding plays no part, laid out as the plan counts on."""
    rng = np.random.default_rng(seed)
    found = []
    for operand in plan.operands:
        flat = [step == 0 for step in operand.strides or operand.shape]
        shape = [1 if still and size > 1 else size for still, size in zip(flat, operand.shape)]
        found.append(np.broadcast_to(rng.integers(-3, 4, shape).astype(operand.dtype), operand.shape))
    return found


def test_the_examples_have_every_op_but_those_that_no_plan_for_numpy_has():
    kinds = {type(op) for plan in PLANS.values() for op in plan.ops}
    assert kinds >= {Transpose, Reshape, Expand, First, Diagonal, Cast, Sum, Scale, Multiply, Matmul, Zeros}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_read_as_it_was_stored(name):
    plan = PLANS[name]
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(json.dumps(data_of(name), indent=2, sort_keys=True)) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_plans_that_were_stored_before_are_read():
    text = (
        '{"format": 1, "equation": "ij,kj->ki", "backend": "numpy", "device": "", "operands": [{"shape": [2, 3], '
        '"dtype": "float32", "strides": null, "weak": false}, {"shape": [4, 3], "dtype": "float32", "strides": [6, 2], '
        '"weak": false}], "path": [[0, 1]], "ops": [{"op": "Transpose", "out": 2, "src": 0, "axes": [1, 0], '
        '"reason": ""}, {"op": "Copy", "out": 3, "src": 1, "reason": "no axis of its matrices has unit stride"}, '
        '{"op": "Matmul", "out": 4, "lhs": 3, "rhs": 2, "transpose_lhs": false, "transpose_rhs": false, '
        '"inner_batch": false}], "result": 4, "shape": [4, 2], "dtype": "float32"}'
    )
    plan = Plan.from_json(text)
    assert plan.ops[1].reason == "no axis of its matrices has unit stride"
    a, b = arrays_for(plan)
    np.testing.assert_array_equal(plan(a, b), b @ a.T)


@pytest.mark.long
def test_a_network_of_thousands_of_operands_is_read():
    count = 3000
    operands = [part for k in range(count) for part in ((2, 2), [k, k + 1])]
    plan = einsumx.plan(*operands, [0, count], optimize=False)
    assert Plan.from_json(plan.to_json()) == plan


# -- what is refused ------------------------------------------------------------------------------------------------


def replaced(name, value, *keys):
    """The data of a plan with another value in one place; ``...`` takes what is there away."""
    data = data_of(name)
    place = data
    for key in keys[:-1]:
        place = place[key]
    if value is ...:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    return json.dumps(data)


def text_with(name, old, new):
    text = PLANS[name].to_json()
    assert old in text
    return text.replace(old, new, 1)


def of(equation, *ops, dtype="float64", given=None, strides=None, **sizes):
    """The text of a plan for operands whose axes have size 3, but for those of the labels that are named."""
    inputs, _, output = equation.partition("->")
    *shapes, result = [tuple(sizes.get(label, 3) for label in term) for term in (*inputs.split(","), output)]
    operands = tuple(einsumx.Operand(shape, given or dtype, strides) for shape in shapes)
    path = (tuple(range(len(operands))),)
    return Plan(equation, "numpy", "", operands, path, ops, ops[-1].out, result, dtype).to_json()


NOT_JSON = {
    "nothing": "",
    "two plans": PLANS["product"].to_json() * 2,
    "a list": "[]",
    "a text": '"plan"',
    "deep lists": "[" * 100_000,
    "deep objects": '{"format":' * 100_000,
    "deep lists that end": "[" * 100_000 + "]" * 100_000,
    "a byte order mark": "\ufeff" + PLANS["product"].to_json(),
    "not a number": replaced("product", float("nan"), "shape", 0),
    "a number beyond a float": text_with("product", '"result": 3', '"result": 1e999'),
    "a number of a million digits": text_with("product", '"result": 3', f'"result": {"9" * 1_000_000}'),
    "a key that stands twice": text_with("product", '"result": 3', '"result": 2, "result": 3'),
    "a huge text": '{"format": 1, "equation": "' + "a" * 40_000_000 + '"}',
}

FIELDS = {
    "code as a slot to write, which is the result": json.dumps(
        {
            **data_of("view"),
            "ops": [{**data_of("view")["ops"][0], "out": f"9={CODE}#"}],
            "result": f"9={CODE}#",
        }
    ),
    "code as a slot to read": replaced("product", f"0,{CODE}", "ops", 1, "lhs"),
    "code as an axis": replaced("product", [f"{CODE}", 0], "ops", 0, "axes"),
    "code as a dtype": replaced("mixed", f"float64;{CODE}", "dtype"),
    "code as the equation of a kernel": replaced("native", f"ij,jk->ik', {CODE}, '", "equation"),
    "a format that is true": replaced("product", True, "format"),
    "no format": replaced("product", ..., "format"),
    "no ops": replaced("product", ..., "ops"),
    "no slot in an op": replaced("product", ..., "ops", 0, "out"),
    "no name of an op": replaced("product", ..., "ops", 0, "op"),
    "a field that there is not": replaced("product", 1, "unknown"),
    "a field of an op that there is not": replaced("product", 1, "ops", 0, "unknown"),
    "an op that there is not": replaced("product", "Explode", "ops", 0, "op"),
    "an op that is a list": replaced("product", ["Matmul"], "ops", 0, "op"),
    "an op that is a number": replaced("product", 7, "ops", 0),
    "an op that is an operand": replaced("product", {"shape": [2], "dtype": "float32"}, "ops", 0),
    "ops in an object": replaced("product", {"0": 1}, "ops"),
    "ops that are null": replaced("product", None, "ops"),
    "an operand in a list": replaced("product", [[2, 3], "float32", None, False], "operands", 0),
    "a shape that is text": replaced("product", "23", "operands", 0, "shape"),
    "a shape with a list in it": replaced("product", [[2], 3], "operands", 0, "shape"),
    "a shape of bools": replaced("native", [True, True], "shape"),
    "a size that is no integer": replaced("product", [2.0, 3], "operands", 0, "shape"),
    "a negative size": replaced("product", [-2, 3], "operands", 0, "shape"),
    "a size beyond 64 bits": replaced("product", [2**63, 3], "operands", 0, "shape"),
    "a negative slot": replaced("product", -1, "ops", 1, "lhs"),
    "a negative count": replaced("counted", -7, "ops", SCALED, "count"),
    "zeros of a negative shape": replaced("empty", [-3, 4], "ops", 0, "shape"),
    "a flag that is a number": replaced("product", 0, "ops", 1, "transpose_lhs"),
    "strides of another rank": replaced("product", [1], "operands", 0, "strides"),
    "strides that are bools": replaced("product", [True, False], "operands", 0, "strides"),
    "a reason for a copy that is none": replaced("diagonal", "a copy", "ops", 0, "reason"),
    "a reason with lines": replaced("copy", f"\n{CODE}\n", "ops", 0, "reason"),
    "a reason without end": replaced("copy", "x" * 100_000, "ops", 0, "reason"),
    "an equation that is null": replaced("product", None, "equation"),
    "an equation that cannot be read": replaced("product", "ij,kj->k!", "equation"),
    "a device with a lone surrogate": replaced("product", "\ud800", "device"),
    "an equation of fewer operands": replaced("product", "ij->ji", "equation"),
    "an equation of too many labels": replaced("product", "i" * 1_000_000 + ",kj->ki", "equation"),
    "a dtype that there is not": replaced("product", "float33x", "dtype"),
    "a dtype with a blank": replaced("product", "float32 ", "dtype"),
    "a backend of lines": replaced("product", "numpy\n", "backend"),
    "a path of numbers": replaced("product", [0, 1], "path"),
    "a path that ends early": replaced("chain", [[0, 1]], "path"),
    "a path that goes on": replaced("product", [[0, 1], [0, 1]], "path"),
    "a path that takes an operand twice": replaced("product", [[0, 0]], "path"),
    "a path from the end": replaced("product", [[-1, -2]], "path"),
    "more axes than any array has": of("ij->ij", Reshape(1, 0, (1,) * 5000), Reshape(2, 1, (3, 3))),
    "more elements than any array has": of(
        "abcdefghi,->abcdefghi",
        *(Reshape(2, 0, (2**60,) * 9), Reshape(3, 1, (1,)), Multiply(4, 2, 3), Reshape(5, 4, (2**60,) * 9)),
        **dict.fromkeys("abcdefghi", 2**60),
    ),
    "thousands of ops that do nothing": of("ij->ij", *(Transpose(k + 1, k, (1, 0)) for k in range(9_999)), j=2),
    "thousands of ops without order": of("ij->ij", *(Transpose(k + 1, k + 5, (1, 0)) for k in range(10_000)), j=2),
}

MEANINGS = {
    "another order of the result": replaced("square", "ij,jk->ki", "equation"),
    "another contraction": replaced("square", "ij,kj->ik", "equation"),
    "nothing summed": replaced("sum", "ijk->i", "equation"),
    "other axes of a view": replaced("view", [1, 2, 0], "ops", 0, "axes"),
    "operands of a product exchanged": of("ij,jk->ik", Matmul(2, 1, 0)),
    "a flag of a product": of("ij,jk->ik", Matmul(2, 0, 1, True)),
    "an operand used twice": of("ij,jk->ik", Matmul(2, 0, 0)),
    "an operand that is not used": of("ij,ij->ij", Reshape(2, 0, (3, 3))),
    "a product along other labels": of("ij,ji->ij", Multiply(2, 0, 1)),
    "a label summed before another operand has it": of("i,i->", Sum(2, 0, (0,)), Sum(3, 1, (0,)), Multiply(4, 2, 3)),
    "a product where an outer one is asked": of("i,j->ij", Multiply(2, 0, 1), i=1),
    "a sum over one of two equal labels": of("ii->i", Sum(1, 0, (0,))),
    "a diagonal of two labels": of("ij->i", Diagonal(1, 0, 0, 1)),
    "the first element for a sum": of("ij->i", First(1, 0, (1,))),
    "the first element for a sum of equal ones": of("ij->i", First(1, 0, (1,)), strides=(1, 0)),
    "another number of equal terms": replaced("counted", 71, "ops", SCALED, "count"),
    "equal terms of which there are none": of("i->i", Scale(1, 0, 2)),
    "equal terms counted twice": of("ij->i", First(1, 0, (1,)), Scale(2, 1, 3), Scale(3, 2, 3), strides=(1, 0)),
    "terms counted that may differ": of("ij->i", First(1, 0, (1,)), Scale(2, 1, 3)),
    "terms counted and summed": of("ij->i", Sum(1, 0, (1,)), Scale(2, 1, 3), strides=(1, 0)),
    "equal terms of an or": of("ij->i", First(1, 0, (1,)), Scale(2, 1, 3), strides=(1, 0), dtype="bool"),
    "zeros for a sum": of("ij->i", Zeros(1, (0,), (3,), "float64")),
    "zeros of one operand": of("i,j->j", Zeros(2, (0,), (), "float32"), Multiply(3, 2, 1), i=0),
    "zeros of another dtype": of("ij->i", Zeros(1, (0,), (3,), "int8"), j=0),
    "an axis cut where no label ends": of("ij->ij", Reshape(1, 0, (3, 2)), Transpose(2, 1, (1, 0)), i=2),
    "labels that fall apart in another order": of(
        "ij->ij", Transpose(1, 0, (1, 0)), Reshape(2, 1, (9,)), Reshape(3, 2, (3, 3))
    ),
    "an axis repeated where another is": of("ij->ij", Sum(1, 0, (1,)), Reshape(2, 1, (3, 1)), Expand(3, 2, (3, 3))),
    "a sum over an axis that was repeated": of("i->i", Reshape(1, 0, (1, 3)), Expand(2, 1, (5, 3)), Sum(3, 2, (0,))),
    "a result that is an operand": replaced("view", 0, "result"),
    "a result that another op reads": of(
        "ij->ij", Transpose(1, 0, (1, 0)), Transpose(2, 1, (1, 0)), Transpose(3, 2, (1, 0))
    ),
    "a cast that loses": of("ij->ij", Cast(1, 0, "int8"), Cast(2, 1, "float64")),
    "a cast that loses half": of("ij->ij", Cast(1, 0, "float32"), Cast(2, 1, "float64")),
    "a sum in a narrow dtype": of("ij->i", Cast(1, 0, "float16"), Sum(2, 1, (1,)), Cast(3, 2, "float64")),
    "numbers in the place of bools": of(
        "ij->i", Cast(1, 0, "float32"), Sum(2, 1, (1,)), Cast(3, 2, "bool"), dtype="bool", given="int8"
    ),
    "another dtype of the result": replaced("square", "float32", "dtype"),
    "another dtype of an operand": replaced("square", "int16", "operands", 1, "dtype"),
    "a product of two dtypes": of("i,i->i", Multiply(2, 0, 1), given="float32"),
    "a label twice in the result of a kernel": of("i,j->ij", Native(2, (0, 1), "a,b->aa")),
    "another equation of a kernel": of("ij,jk->ik", Native(2, (0, 1), "ab,cb->ac")),
    "a kernel that sums what is needed later": of("ii->i", Native(1, (0,), "ab->a")),
    "a sum over nothing that is a view": of("ij->j", Sum(1, 0, (0,)), Expand(2, 1, (3,)), i=0, j=1),
}


def run_if_read(text):
    """Read a plan as strangers may send it, and run it if nobody objects."""
    plan = Plan.from_json(text)
    return plan(*arrays_for(plan))


@pytest.fixture
def nothing_runs(monkeypatch):
    monkeypatch.delenv(RAN, raising=False)
    yield
    assert RAN not in os.environ


@pytest.mark.parametrize("text", NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_no_strict_json_is_refused(text, nothing_runs):
    with pytest.raises(EinsumxError, match="not a plan"):
        run_if_read(text)


@pytest.mark.parametrize("text", FIELDS.values(), ids=FIELDS)
def test_a_field_of_another_type_or_size_is_refused(text, nothing_runs):
    with pytest.raises(EinsumxError) as caught:
        run_if_read(text)
    assert len(str(caught.value)) < 2000
    str(caught.value).encode()


@pytest.mark.parametrize("text", MEANINGS.values(), ids=MEANINGS)
def test_ops_that_do_not_compute_the_equation_are_refused(text):
    with pytest.raises(EinsumxError):
        run_if_read(text)


@pytest.mark.parametrize("text", [None, b"{}", {"format": 1}, PLANS["product"]], ids=lambda text: type(text).__name__)
def test_what_is_no_text_is_refused_by_name(text):
    with pytest.raises(EinsumxError, match="from_json takes the text of a plan"):
        Plan.from_json(text)


def test_a_path_is_told_how_it_is_read(tmp_path):
    with pytest.raises(EinsumxError, match=r"from_json takes the text of a plan.*read_text\(\)"):
        Plan.from_json(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (replaced("product", 2, "format"), "it has format 2, and this version reads format 1"),
        (replaced("product", "x", "ops", 1, "lhs"), r"ops\[1\]\.lhs: 'x' is not an integer"),
        (
            replaced("product", [2, -3], "operands", 0, "shape"),
            r"operands\[0\]\.shape\[1\]: -3 is not an integer from 0",
        ),
        (replaced("square", "ij,kj->ik", "equation"), r"do not compute ij,kj->ik: .*Matmul"),
    ],
    ids=["format", "type", "place", "meaning"],
)
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(EinsumxError, match=message):
        Plan.from_json(text)


def test_deep_texts_are_refused_in_threads_with_little_room_too():
    def read():
        for name in ("deep lists that end", "deep objects"):
            with pytest.raises(EinsumxError, match="not a plan"):
                Plan.from_json(NOT_JSON[name])

    in_threads(read, 1)


# -- plans made by hand ---------------------------------------------------------------------------------------------


def changed(plan, **fields):
    return dataclasses.replace(plan, **fields)


def with_op(plan, place, **fields):
    ops = list(plan.ops)
    ops[place] = dataclasses.replace(ops[place], **fields)
    return changed(plan, ops=tuple(ops))


BY_HAND = {
    "code as a slot": with_op(PLANS["product"], -1, out=f"9={CODE}#"),
    "a result that is a float": changed(PLANS["product"], result=3.5),
    "ops in a list": changed(PLANS["product"], ops=list(PLANS["product"].ops)),
    "axes in a list": with_op(PLANS["view"], 0, axes=[2, 0, 1]),
    "an equation of another contraction": changed(PLANS["square"], equation="ij,kj->ik"),
    "an op that is null": changed(PLANS["product"], ops=(None,)),
}


@pytest.mark.parametrize("plan", BY_HAND.values(), ids=BY_HAND)
def test_a_plan_made_by_hand_is_checked_before_it_runs_and_before_it_is_drawn(plan, nothing_runs):
    with pytest.raises(EinsumxError):
        plan(*arrays_for(PLANS["view" if len(plan.operands) == 1 else "square" if plan.shape == (3, 3) else "product"]))
    with pytest.raises(EinsumxError):
        plan.source()
    if plan is not BY_HAND["an equation of another contraction"]:
        with pytest.raises(EinsumxError):
            plan.draw()


@pytest.mark.parametrize("lacks", ["nothing is returned", "an error is raised"])
def test_an_op_that_an_adapter_has_no_kernel_for_is_named_before_any_work(lacks, nothing_runs):
    class Lacking(NumpyAdapter):
        def kernel(self, op, shapes, dtype):
            if isinstance(op, Zeros) and lacks == "an error is raised":
                raise NotImplementedError
            return None if isinstance(op, Zeros) else super().kernel(op, shapes, dtype)

    plan = Plan.from_json(PLANS["empty"].to_json())
    with pytest.raises(EinsumxError, match=r"^numpy cannot run Zeros\(.*\), an op of this plan; make the plan again$"):
        executable(plan, Lacking())


# -- what is accepted -----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("backend", BUILTIN)
def test_the_plans_of_conformance_cases_are_read(backend):
    """Every twentieth for each backend, others for each."""
    read = 0
    for case in cases("quick")[list(BUILTIN).index(backend) :: 20]:
        options = {name: value for name, value in case.options if name in ("dtype", "casting", "optimize")}
        if case.raises is not None or not isinstance(case.equation, str):
            continue
        try:
            shapes = [operand.shape for operand in case.operands]
            dtypes = [operand.dtype for operand in case.operands]
            plan = einsumx.plan(case.equation, *shapes, dtypes=dtypes, backend=backend, **options)
        except (EinsumxError, ModuleNotFoundError):  # a dtype that the backend lacks, or one that only it can promote
            continue
        assert Plan.from_json(plan.to_json()) == plan, case.id
        read += 1
    assert read > 20


# -- damage ---------------------------------------------------------------------------------------------------------


def swapped(array, flag, is_inner):
    """A matrix as a product takes it: the axis of a batch inside comes before, and a flag turns it."""
    array = array.swapaxes(-3, -2) if is_inner else array
    return array.swapaxes(-1, -2) if flag else array


def meant(op, arrays):
    """What an op means, whichever backend it is for."""
    first = arrays[0]
    match op:
        case Transpose():
            return first.transpose(op.axes)
        case Reshape():
            return first.reshape(op.shape)
        case Expand():
            return np.broadcast_to(first, op.shape)
        case First():
            return first[tuple(0 if axis in op.axes else slice(None) for axis in range(first.ndim))]
        case Diagonal():
            return first.diagonal(0, op.axis1, op.axis2)
        case Cast():
            return first.astype(op.dtype)
        case Sum():
            return first.sum(op.axes, first.dtype)
        case Scale():
            return np.multiply(first, np.asarray(op.count).astype(first.dtype))
        case Zeros():
            return np.zeros(op.shape, op.dtype)
        case Multiply():
            return np.multiply(*arrays)
        case Matmul():
            if min(array.ndim for array in arrays) == 1:
                return np.matmul(*arrays)
            lhs, rhs = swapped(first, op.transpose_lhs, op.inner_batch), arrays[1]
            return swapped(np.matmul(lhs, swapped(rhs, op.transpose_rhs, op.inner_batch)), False, op.inner_batch)
        case Native():
            return np.einsum(op.equation, *arrays)
        case _:
            return first.copy()


def computed(plan, arrays):
    values = dict(enumerate(arrays))
    for op in plan.ops:
        values[op.out] = meant(op, [values[slot] for slot in op.sources])
    return values[plan.result]


def right_or_refused(text):
    """Whether a plan was read; if so, its ops compute its equation, whoever runs them."""
    try:
        plan = Plan.from_json(text)
    except EinsumxError:
        return False
    # Sizes that fit everywhere may be larger than any memory.
    if sum(operand.nbytes for operand in plan.operands) > 1e6 or plan.peak_bytes > 1e7:
        return True
    arrays = arrays_for(plan)
    expected = expect(plan.equation, *arrays, dtype=plan.dtype)
    verdict = judge(np.asarray(computed(plan, arrays)), expected)
    assert verdict, f"{text}\n{verdict.wrong}"
    if plan.backend == "numpy":
        try:
            found = plan(*arrays)
        except EinsumxError:  # an op that NumPy's plans have not
            return False
        verdict = judge(np.asarray(found), expected)
        assert verdict, f"{text}\n{verdict.wrong}"
    return True


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 4),
    st.sampled_from([2**31, 2**63, -(2**70), 1.5, float("nan"), float("inf"), "", "x", "ij,jk->ik", "float64", "int8"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.just({}),
)


def places(data):
    """Every container in JSON data with every key of it."""
    todo, found = [data], []
    while todo:
        value = todo.pop()
        for key in value if isinstance(value, dict) else range(len(value)):
            found.append((value, key))
            if isinstance(value[key], dict | list):
                todo.append(value[key])
    return found


@pytest.mark.long
@settings(max_examples=120)
@given(name=st.sampled_from(sorted(PLANS)), data=st.data())
def test_other_values_in_a_stored_plan_are_refused_or_still_right(name, data):
    stored = data_of(name)
    for _ in range(data.draw(st.integers(1, 2))):
        container, key = data.draw(st.sampled_from(places(stored)))
        match data.draw(st.sampled_from(["replace", "replace", "drop", "add", "exchange"])):
            case "replace":
                container[key] = data.draw(VALUES)
            case "drop":
                del container[key]
            case "add" if isinstance(container, dict):
                container[data.draw(st.sampled_from(["op", "out", "src", "x"]))] = data.draw(VALUES)
            case "add":
                container.insert(key, deepcopy(data.draw(st.sampled_from(container))))
            case "exchange":
                other, place = data.draw(st.sampled_from(places(stored)))
                container[key], other[place] = deepcopy(other[place]), deepcopy(container[key])
        if not places(stored):
            break
    right_or_refused(json.dumps(stored))


# -- other ops ------------------------------------------------------------------------------------------------------


def mutants(op, data, slots):
    """``op`` as somebody may have changed it, so that the shapes may still fit."""
    slot = st.sampled_from(slots)
    yield from (dataclasses.replace(op, out=data.draw(slot)) for _ in range(op.out in slots[:1]))
    match op:
        case Transpose():
            yield dataclasses.replace(op, axes=tuple(data.draw(st.permutations(op.axes))))
            yield dataclasses.replace(op, src=data.draw(slot))
        case Reshape() | Expand():
            yield dataclasses.replace(op, shape=tuple(data.draw(st.permutations(op.shape))))
            yield dataclasses.replace(op, src=data.draw(slot))
        case First() | Sum():
            yield dataclasses.replace(op, axes=tuple(data.draw(st.sets(st.integers(0, 3), max_size=2))))
            yield dataclasses.replace(op, src=data.draw(slot))
            yield (First if isinstance(op, Sum) else Sum)(op.out, op.src, op.axes)
        case Diagonal():
            yield dataclasses.replace(op, axis2=data.draw(st.integers(0, 3)))
            yield dataclasses.replace(op, axis1=data.draw(st.integers(0, 3)))
        case Cast():
            yield dataclasses.replace(op, dtype=data.draw(st.sampled_from(["int8", "float32", "float64", "bool"])))
        case Scale():
            yield dataclasses.replace(op, count=data.draw(st.integers(0, 30)))
            yield dataclasses.replace(op, src=data.draw(slot))
        case Multiply():
            yield Multiply(op.out, data.draw(slot), op.rhs)
            yield Matmul(op.out, op.lhs, op.rhs)
        case Matmul():
            yield Matmul(op.out, op.rhs, op.lhs, op.transpose_lhs, op.transpose_rhs, op.inner_batch)
            yield Matmul(op.out, op.lhs, op.rhs, *data.draw(st.tuples(*[st.booleans()] * 3)))
            yield Matmul(op.out, data.draw(slot), op.rhs, op.transpose_lhs, op.transpose_rhs, op.inner_batch)
            yield Multiply(op.out, op.lhs, op.rhs)
        case Native():
            labels = sorted(set(op.equation) - set(",->"))
            names = dict(zip(labels, data.draw(st.permutations(labels))))
            inputs, _, output = op.equation.partition("->")
            yield dataclasses.replace(op, equation=f"{inputs}->{''.join(names[label] for label in output)}")
            yield dataclasses.replace(op, operands=tuple(data.draw(st.permutations(op.operands))))


EQUAL = [
    "ij,jk->ik", "ij,jk->ki", "ijk,kl->ilj", "ij,ij->i", "iij,jk->ki", "ij,jk,kl->il", "ijk->ki", "ijk->kji", "i,j->ji",
    "ij,j->i", "bij,bjk->bik", "bij,bjk->ibk", "ij,kl->", "iij->", "ijk,ijk->k", "ab,bc,ca->", "ij,->ji", "ii,jj->ij",
]  # fmt: skip
"""Equations for operands whose axes all have one size, so that shapes tell nothing."""


@st.composite
def equal_plans(draw):
    equation = draw(st.sampled_from(EQUAL))
    backend = draw(st.sampled_from(sorted(BUILTIN)))
    dtype = draw(st.sampled_from(["float64", "float32", "float16", "int32", "bool"]))
    rng = np.random.default_rng(0)
    arrays = []
    for term in equation.partition("->")[0].split(","):
        array = np.empty((3,) * len(term), dtype)
        if term and draw(st.integers(0, 3)) == 0:
            array = np.broadcast_to(array[(0,) * draw(st.integers(1, len(term)))], array.shape)
        arrays.append(array.transpose(rng.permutation(array.ndim)) if draw(st.booleans()) else array)
    if backend == "numpy":
        return einsumx.plan(equation, *arrays)
    return einsumx.plan(equation, *(array.shape for array in arrays), dtypes=dtype, backend=backend)


@pytest.mark.long
@settings(max_examples=60)
@given(plan=equal_plans(), data=st.data())
def test_other_ops_in_a_stored_plan_are_refused_or_still_right(plan, data):
    plan = Plan.from_json(dataclasses.replace(plan, device="").to_json())  # all plans are accepted as they are
    slots = [*range(len(plan.operands) + len(plan.ops))]
    place = data.draw(st.integers(0, len(plan.ops) - 1))
    found = [
        dataclasses.replace(plan, ops=(*plan.ops[:place], op, *plan.ops[place + 1 :]))
        for op in mutants(plan.ops[place], data, slots)
    ]
    found.append(dataclasses.replace(plan, result=data.draw(st.sampled_from(slots))))
    found.append(dataclasses.replace(plan, equation=data.draw(st.sampled_from(EQUAL))))
    labels = sorted(set(plan.equation) - set(",->"))
    inputs, _, output = plan.equation.partition("->")
    found.append(dataclasses.replace(plan, equation=f"{inputs}->{''.join(data.draw(st.permutations(list(output))))}"))
    names = dict(zip(labels, data.draw(st.permutations(labels))))
    swapped = "".join(names.get(letter, letter) for letter in inputs)
    found.append(dataclasses.replace(plan, equation=f"{swapped}->{output}"))
    for mutant in found:
        if mutant != plan:
            right_or_refused(mutant.to_json())
