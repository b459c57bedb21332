"""Plans from strangers: whatever is in the text, it is a plan that computes its equation, or an EinsumxError."""

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
from einsumx.backends.numpy import NumpyAdapter
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.ir.ops import Zeros
from einsumx.runtime.execute import run_of

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


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_read_as_it_was_stored(name):
    plan = PLANS[name]
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(json.dumps(data_of(name), indent=2, sort_keys=True)) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_fields_that_have_their_default_may_be_left_out():
    data = data_of("product")
    data["operands"] = [{name: operand[name] for name in ("shape", "dtype")} for operand in data["operands"]]
    assert Plan.from_json(json.dumps(data)) == PLANS["product"]


def test_a_plan_that_was_read_is_retargeted():
    plan = Plan.from_json(PLANS["product"].to_json()).retarget("torch")
    assert plan == einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32", backend="torch")


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


def of(equation, *ops, path=None, dtype="float64", strides=None, **sizes):
    """The text of a plan for operands whose axes have size 3, but for those of the labels that are named."""
    inputs = equation.partition("->")[0].split(",")
    operands = [
        {"shape": [sizes.get(label, 3) for label in term], "dtype": dtype, "strides": strides} for term in inputs
    ]
    path = path or [list(range(len(inputs)))]
    fields = {"equation": equation, "backend": "numpy", "operands": operands, "path": path, "dtype": dtype}
    return json.dumps({"format": 2, **fields, "ops": list(ops)})


NOT_JSON = {
    "nothing": "",
    "two plans": PLANS["product"].to_json() * 2,
    "a list": "[]",
    "a text": '"plan"',
    "deep lists": "[" * 100_000,
    "deep objects": '{"format":' * 100_000,
    "deep lists that end": "[" * 100_000 + "]" * 100_000,
    "a byte order mark": "\ufeff" + PLANS["product"].to_json(),
    "not a number": replaced("product", float("nan"), "path", 0, 0),
    "a number beyond a float": text_with("product", "[[0, 1]]", "[[0, 1e999]]"),
    "a number of a million digits": text_with("product", '"out": 3', f'"out": {"9" * 1_000_000}'),
    "a key that stands twice": text_with("product", '"out": 3', '"out": 2, "out": 3'),
    "a huge text": '{"format": 2, "equation": "' + "a" * 40_000_000 + '"}',
}

FIELDS = {
    "code as an equation": replaced("product", f"ij,kj->ki', {CODE}, '", "equation"),
    "code as a dtype": replaced("mixed", f"float64;{CODE}", "dtype"),
    "code as a backend": replaced("product", f"numpy;{CODE}", "backend"),
    "code as a device": replaced("product", CODE, "device"),
    "code as a position": replaced("product", [[f"0,{CODE}", 1]], "path"),
    "code as an accumulator": replaced("product", CODE, "accumulate"),
    "code as a choice": replaced("product", [f"matmul _{CODE}"], "choices"),
    "code as a semiring": replaced("product", {"name": "x", "add": CODE, "multiply": "add"}, "semiring"),
    "a format that is true": replaced("product", True, "format"),
    "no format": replaced("product", ..., "format"),
    "a field that there is not": replaced("product", 1, "unknown"),
    "an operand in a list": replaced("product", [[2, 3], "float32", None, False], "operands", 0),
    "a shape that is text": replaced("product", "23", "operands", 0, "shape"),
    "a shape of bools": replaced("native", [True, True], "operands", 0, "shape"),
    "a size that is no integer": replaced("product", [2.0, 3], "operands", 0, "shape"),
    "a negative size": replaced("product", [-2, 3], "operands", 0, "shape"),
    "a size beyond 64 bits": replaced("product", [2**63, 3], "operands", 0, "shape"),
    "another size": replaced("product", [2, 4], "operands", 0, "shape"),
    "more operands": replaced("product", [{"shape": [2], "dtype": "float32"}] * 3, "operands"),
    "strides of another rank": replaced("product", [1], "operands", 0, "strides"),
    "an equation that is null": replaced("product", None, "equation"),
    "an equation that cannot be read": replaced("product", "ij,kj->k!", "equation"),
    "an equation without an output": replaced("product", "ij,kj", "equation"),
    "an equation of fewer operands": replaced("product", "ij->ji", "equation"),
    "an equation of too many labels": replaced("product", "i" * 1_000_000 + ",kj->ki", "equation"),
    "a device with a lone surrogate": replaced("product", "\ud800", "device"),
    "a device that there is not": replaced("product", "fpga", "device"),
    "a dtype that there is not": replaced("product", "float33x", "dtype"),
    "a backend of lines": replaced("product", "numpy\n", "backend"),
    "a backend that there is not": replaced("product", "os", "backend"),
    "a path of numbers": replaced("product", [0, 1], "path"),
    "a path that goes on": replaced("product", [[0, 1], [0, 1]], "path"),
    "a path that takes an operand twice": replaced("product", [[0, 0]], "path"),
    "a path with a wide step": replaced("chain", [[0, 1, 2]], "path"),
    "an accumulator that holds no operand": replaced("product", "float16", "accumulate"),
    "a rate that there is not": replaced("product", {"spam": 1e9}, "rates"),
    "a rate below zero": replaced("product", {"gemm": -1.0}, "rates"),
    "a choice without end": replaced("product", ["x" * 100_000], "choices"),
    "more axes than any array has": of("i" * 5000 + "->i"),
    "an intermediate with more axes than any array has": of(
        ",".join(2 * [*map(chr, range(0x4E00, 0x4E00 + 2000))]) + "->", path=[[0, 1]] * 3999
    ),
    "more multiply-adds than any contraction has": of(
        "abcdefghijklmnop,abcdefghijklmnopqrstuvwxyz->qrstuvwxyz", **dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 2**62)
    ),
}

OPS = {
    "code as a slot to write": replaced("product", f"9={CODE}#", "ops", 1, "out"),
    "a reason with lines": replaced("copy", f"\n{CODE}\n", "ops", 0, "reason"),
    "ops that are null": replaced("product", None, "ops"),
    "other axes of a view": replaced("view", [1, 2, 0], "ops", 0, "axes"),
    "a number beyond a float": text_with("product", '"out": 3', '"out": 1e999'),
    "a product of other operands": replaced("square", 0, "ops", 0, "rhs"),
    "thousands of ops": of("ij->ij", *[{"op": "Transpose", "out": 1, "src": 0, "axes": [1, 0]}] * 10_000),
}
"""Ops that are not those of the plan, which are never run."""

EQUATIONS = {
    "another order of the result": replaced("square", "ij,jk->ki", "equation"),
    "another contraction": replaced("square", "ij,kj->ik", "equation"),
    "another sum": replaced("sum", "ijk->i", "equation"),
    "a diagonal": replaced("square", "ii,ik->k", "equation"),
}
"""Equations that the ops in the text do not compute."""


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


@pytest.mark.long
@pytest.mark.parametrize("text", FIELDS.values(), ids=FIELDS)
def test_a_field_of_another_type_or_size_is_refused(text, nothing_runs):
    with pytest.raises(EinsumxError) as caught:
        run_if_read(text)
    assert len(str(caught.value)) < 2000
    str(caught.value).encode()


@pytest.mark.parametrize("text", (OPS | EQUATIONS).values(), ids=OPS | EQUATIONS)
def test_a_plan_whose_ops_are_not_those_of_its_equation_is_planned_again_with_a_warning(text, nothing_runs):
    with pytest.warns(RuntimeWarning, match="now makes another plan of"):
        plan = Plan.from_json(text)
    arrays = arrays_for(plan)
    assert judge(np.asarray(plan(*arrays)), expect(plan.equation, *arrays, dtype=plan.dtype))
    assert CODE not in plan.source()


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
        (replaced("product", 1, "format"), "it has format 1, and this version reads format 2"),
        (replaced("product", [2, "x"], "operands", 0, "shape"), r"operands\[0\]\.shape\[1\]: 'x' is not an integer"),
        (replaced("product", ..., "operands", 1, "dtype"), r"operands\[1\]: it has no 'dtype'"),
        (replaced("product", [2, -3], "operands", 0, "shape"), r"the sizes of a shape must not be negative: \(2, -3\)"),
    ],
    ids=["format", "type", "place", "size"],
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


@pytest.mark.parametrize("lacks", ["nothing is returned", "an error is raised"])
def test_an_op_that_an_adapter_has_no_kernel_for_is_named_before_any_work(lacks, nothing_runs):
    class Lacking(NumpyAdapter):
        def kernel(self, op, shapes, dtype):
            if isinstance(op, Zeros) and lacks == "an error is raised":
                raise NotImplementedError
            return None if isinstance(op, Zeros) else super().kernel(op, shapes, dtype)

    plan = Plan.from_json(PLANS["empty"].to_json())
    with pytest.raises(EinsumxError, match=r"^numpy cannot run Zeros\(.*\), an op of this plan; make the plan again$"):
        run_of(plan, Lacking())


# -- what is accepted -----------------------------------------------------------------------------------------------


# -- damage ---------------------------------------------------------------------------------------------------------


def right_or_refused(text):
    """Whether a plan was read; if so, it computes its equation."""
    try:
        plan = Plan.from_json(text)
    except EinsumxError:
        return False
    # Sizes that fit everywhere may be larger than any memory.
    if sum(operand.nbytes for operand in plan.operands) > 1e6 or plan.peak_bytes > 1e7 or plan.backend != "numpy":
        return True
    arrays = arrays_for(plan)
    verdict = judge(np.asarray(plan(*arrays)), expect(plan.equation, *arrays, dtype=plan.dtype))
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
@pytest.mark.filterwarnings("ignore:einsumx now makes another plan")
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
