"""Contractions in semirings, judged by loops over all labels and by a broadcast and a reduction."""

import json
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import product

import numpy as np
import peaks
import pytest
from source_einsum import contraction

import einsumx
from einsumx import BackendError, EinsumxError, Plan, Semiring, einsum, expression, plan
from einsumx.adapters.registry import get_backend
from einsumx.adapters.semiring_products import blocks, by_blocks, by_matmul
from einsumx.ir.semiring import as_semiring

INFINITY = math.inf

NAMES = ("max-plus", "min-plus", "max-times", "log")
WIDEST = Semiring("widest path", "maximum", "minimum")
LONGEST = Semiring("narrowest path", "minimum", "maximum")
EVERY = (*NAMES, WIDEST, LONGEST)

FUNCTIONS = {
    "max-plus": (max, lambda a, b: a + b, -INFINITY),
    "min-plus": (min, lambda a, b: a + b, INFINITY),
    "max-times": (max, lambda a, b: a * b, 0.0),
    "widest path": (max, min, -INFINITY),
    "narrowest path": (min, max, INFINITY),
}


def named(semiring):
    return semiring if isinstance(semiring, str) else semiring.name


def by_loops(equation, *arrays, semiring):
    """The definition: for each assignment of the labels, the product of the elements, added up."""
    inputs, output = equation.split("->")
    terms = inputs.split(",")
    sizes = {}
    for term, array in zip(terms, arrays):
        for label, size in zip(term, array.shape):
            sizes[label] = max(sizes.get(label, 1), size) if sizes.get(label) != 0 and size else 0
    collected = {}
    for numbers in product(*map(range, sizes.values())):
        at = dict(zip(sizes, numbers))
        factors = [
            float(array[tuple(at[label] if size > 1 else 0 for label, size in zip(term, array.shape))])
            for term, array in zip(terms, arrays)
        ]
        collected.setdefault(tuple(at[label] for label in output), []).append(factors)
    name = named(semiring)
    add, multiply, zero = FUNCTIONS.get(name, (None, lambda a, b: a + b, -INFINITY))
    result = np.full([sizes[label] for label in output], zero)
    for place, rows in collected.items():
        values = [reduce(multiply, factors) for factors in rows]
        if name == "log":
            largest = max(values)
            shift = largest if math.isfinite(largest) else 0.0
            total = math.fsum(math.exp(value - shift) for value in values)
            result[place] = math.log(total) + shift if total else -INFINITY
        else:
            result[place] = reduce(add, values)
    return result


def by_broadcast(lhs, rhs, semiring):
    """The product of two stacks of matrices as a plain reduction."""
    with np.errstate(all="ignore"):
        if semiring == "max-times":
            return (lhs[..., :, :, None] * rhs[..., None, :, :]).max(-2)
        terms = lhs[..., :, :, None] + rhs[..., None, :, :]
        if semiring == "log":
            return np.logaddexp.reduce(terms, axis=-2)
        return terms.max(-2) if semiring == "max-plus" else terms.min(-2)


EQUATIONS = {
    "ij,jk->ik": ((3, 4), (4, 5)),
    "ij,kj->ki": ((3, 4), (5, 4)),
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 3)),
    "ij,jk,kl->il": ((2, 3), (3, 4), (4, 2)),
    "ij,jk,kl->": ((2, 3), (3, 4), (4, 2)),
    "ij,j->i": ((3, 4), (4,)),
    "i,i->": ((7,), (7,)),
    "i,j->ij": ((3,), (4,)),
    "ij->i": ((3, 4),),
    "ij->ji": ((3, 4),),
    "ii->i": ((3, 3),),
    "ii->": ((3, 3),),
    "iij,jk->k": ((2, 2, 3), (3, 4)),
    "ij,jk->k": ((3, 4), (4, 2)),
    "aij,bjk->iabk": ((2, 3, 2), (3, 2, 2)),
    "ij,ij->ij": ((3, 4), (3, 4)),
    "ij,jk->ik ones": ((3, 1), (4, 5)),
    "hd,sd,hs->s": ((2, 3), (4, 3), (2, 4)),
}


def operands(equation, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    return [rng.random(shape).astype(dtype) for shape in EQUATIONS[equation]]


# -- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semiring", EVERY, ids=named)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_a_contraction_is_that_of_its_definition(equation, semiring):
    arrays = operands(equation)
    equation = equation.removesuffix(" ones")
    expected = by_loops(equation, *arrays, semiring=semiring)
    found = einsum(equation, *arrays, semiring=semiring)
    assert found.dtype == "float64"
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    np.testing.assert_allclose(einsum(equation, *arrays, semiring=semiring), expected, rtol=1e-13)  # from the cache


@pytest.mark.parametrize("semiring", EVERY, ids=named)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_a_contraction_of_tensors_is_that_of_its_definition(equation, semiring):
    torch = pytest.importorskip("torch")
    arrays = operands(equation)
    equation = equation.removesuffix(" ones")
    expected = by_loops(equation, *arrays, semiring=semiring)
    tensors = [torch.tensor(array) for array in arrays]
    np.testing.assert_allclose(einsum(equation, *tensors, semiring=semiring), expected, rtol=1e-13)
    halves = [torch.tensor(array, dtype=torch.bfloat16) for array in arrays]
    expected = by_loops(equation, *[half.double().numpy() for half in halves], semiring=semiring)
    found = einsum(equation, *halves, semiring=semiring)
    assert found.dtype is torch.bfloat16
    np.testing.assert_allclose(found.double(), expected, rtol=0.02)


@pytest.mark.parametrize("semiring", EVERY, ids=named)
@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij,bjk->bik", "ij,jk,kl->il", "iij,jk->k", "i,j->ij"])
def test_a_contraction_of_jax_arrays_is_that_of_its_definition(equation, semiring):
    jnp = pytest.importorskip("jax.numpy")
    arrays = operands(equation, "float32")
    expected = by_loops(equation, *arrays, semiring=semiring)
    found = einsum(equation, *map(jnp.asarray, arrays), semiring=semiring)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_gradient_of_a_log_sum_on_jax_is_softmax():
    jax = pytest.importorskip("jax")
    lhs, rhs = operands("i,i->", "float32")
    other = jax.numpy.asarray(rhs)
    found = jax.grad(lambda array: einsum("i,i->", array, other, semiring="log"))(jax.numpy.asarray(lhs))
    weights = np.exp(lhs + rhs)
    np.testing.assert_allclose(found, weights / weights.sum(), rtol=1e-5)


def test_the_loops_tell_a_wrong_result():
    arrays = operands("ij,jk->ik")
    for semiring in EVERY:
        plus_times = by_loops("ij,jk->ik", *arrays, semiring=semiring)
        assert not np.allclose(plus_times, arrays[0] @ arrays[1])
        others = [by_loops("ij,jk->ik", *arrays, semiring=other) for other in EVERY if other != semiring]
        assert not any(np.allclose(plus_times, other) for other in others)


SHAPES = [
    ((200, 30), (30, 100)),
    ((100, 30), (30, 200)),
    ((3, 5000), (5000, 2)),
    ((1, 3000), (3000, 1)),
    ((5000, 1), (1, 3)),
    ((64, 50, 50), (64, 50, 50)),
    ((300, 4, 6), (300, 6, 5)),
    ((1, 40, 50), (30, 50, 20)),
    ((1, 4, 6), (300, 6, 5)),
    ((300, 4, 6), (1, 6, 5)),
    ((7, 90, 50), (7, 50, 60)),
]


@pytest.mark.parametrize("semiring", NAMES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_kernel_gives_the_broadcast_reduction(shapes, semiring, dtype):
    rng = np.random.default_rng(1)
    lhs, rhs = (rng.random(shape).astype(dtype) for shape in shapes)
    equation = "bij,bjk->bik" if lhs.ndim == 3 else "ij,jk->ik"
    found = einsum(equation, lhs, rhs, semiring=semiring)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, by_broadcast(lhs, rhs, semiring), rtol=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("semiring", ["max-plus", "min-plus", "log"])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_infinities_and_nan_are_those_of_the_formula(semiring, backend):
    rng = np.random.default_rng(2)
    values = np.array([-INFINITY, INFINITY, math.nan, 0.0, 1.0, -900.0, 900.0])
    lhs, rhs = rng.choice(values, (2, 60, 6), p=[0.3, 0.05, 0.05, 0.2, 0.2, 0.1, 0.1])
    lhs[0], rhs[1] = -INFINITY, -INFINITY
    lhs[2], lhs[3], rhs[4] = INFINITY, math.nan, 800.0
    rhs = rhs.T
    make = np.asarray if backend == "numpy" else pytest.importorskip("torch").from_numpy
    expected = by_broadcast(lhs, rhs, semiring)
    assert {"nan", "inf"} <= {str(abs(value)) for value in expected.ravel()}
    found = einsum("ij,jk->ik", make(lhs), make(np.ascontiguousarray(rhs)), semiring=semiring)
    # Shifts of 900 are added to logarithms, which rounds twice; some sums are 0.
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=2 * 900 * 2**-52)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_whose_terms_underflow_is_computed_from_its_terms(dtype):
    # The maxima of the rows meet only with tiny partners.
    lhs, rhs = np.full((3, 2), -3000.0, dtype), np.full((2, 4), -3000.0, dtype)
    lhs[:, 0], rhs[1] = 10, 20
    expected = by_broadcast(lhs, rhs, "log")
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(einsum("ij,jk->ik", lhs, rhs, semiring="log"), expected, rtol=1e-6)


@pytest.mark.parametrize("spread", [10, 300, 1000, 10_000])
def test_log_sums_of_any_range_are_exact(spread):
    rng = np.random.default_rng(3)
    lhs, rhs = spread * rng.standard_normal((40, 30)), spread * rng.standard_normal((30, 50))
    expected = by_broadcast(lhs, rhs, "log")
    np.testing.assert_allclose(einsum("ij,jk->ik", lhs, rhs, semiring="log"), expected, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("semiring", EVERY, ids=named)
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_sum_of_nothing_is_zero(semiring, backend):
    make = np.asarray if backend == "numpy" else pytest.importorskip("torch").from_numpy
    found = einsum("ij,jk->ik", make(np.ones((2, 0))), make(np.ones((0, 3))), semiring=semiring)
    zero = einsumx.plan("i->i", (2,), semiring=semiring).semiring.zero
    np.testing.assert_array_equal(found, np.full((2, 3), zero))


@pytest.mark.parametrize("semiring", EVERY, ids=named)
def test_an_axis_that_only_repeats_counts_in_log_alone(semiring):
    lhs, rhs = np.broadcast_to(np.array([[1.0], [2.0]]), (2, 3)), np.broadcast_to(2.0, (3,))
    assert any(type(op).__name__ == "Scale" for op in plan("ij,j->i", lhs, rhs, semiring=semiring).ops)
    expected = by_loops("ij,j->i", lhs, rhs, semiring=semiring)
    np.testing.assert_allclose(einsum("ij,j->i", lhs, rhs, semiring=semiring), expected, rtol=1e-14)


def test_boolean_says_whether_any_product_is_true():
    rng = np.random.default_rng(4)
    edges = rng.random((30, 30)) < 0.1
    expected = (edges[:, :, None] & edges[None]).any(1)
    for operand in (edges, edges.astype("int8"), 0.5 * edges, 2.5j * edges):
        found = einsum("ij,jk->ik", operand, operand, semiring="boolean")
        assert found.dtype == bool
        np.testing.assert_array_equal(found, expected)


def test_boolean_is_exact_where_counts_are_not():
    ones = np.ones((1, 1 << 25), bool)  # more than float32 counts
    assert einsum("ij,kj->ik", ones, ones, semiring="boolean").all()


# -- where it is offered --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semiring", [*EVERY, "boolean"], ids=named)
@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,jk,kl->il", "bij,bjk->bik", "ij->i", "ij,jk->k"])
@pytest.mark.parametrize("limit", [200, 1000, "1 MB"])
def test_blocks_under_a_memory_limit_add_up_in_the_semiring(equation, semiring, limit):
    arrays = operands(equation)
    whole = einsum(equation, *arrays, semiring=semiring)
    np.testing.assert_allclose(einsum(equation, *arrays, semiring=semiring, memory_limit=limit), whole, rtol=1e-13)


def test_a_limit_cuts_a_sum():
    arrays = np.random.default_rng(5).random((2, 200, 200))
    for semiring in ("max-plus", "log"):
        assert "summed over blocks" in str(plan("ij,jk->", *arrays, semiring=semiring, memory_limit="300 kB"))
        found = einsum("ij,jk->", *arrays, semiring=semiring, memory_limit="300 kB")
        np.testing.assert_allclose(found, einsum("ij,jk->", *arrays, semiring=semiring), rtol=1e-13)


@pytest.mark.parametrize("semiring", ["max-plus", "log"])
def test_workers_add_up_in_the_semiring(semiring):
    lhs, rhs = np.random.default_rng(6).random((2, 100, 100))
    with ThreadPoolExecutor(2) as executor:
        found = einsum("ij,jk->", lhs, rhs, semiring=semiring, memory_limit="300 kB", executor=executor)
    np.testing.assert_allclose(found, einsum("ij,jk->", lhs, rhs, semiring=semiring), rtol=1e-13)


def test_an_expression_has_a_semiring():
    lhs, rhs = operands("ij,jk->ik")
    shortest = expression("ij,jk->ik", lhs.shape, rhs, semiring="min-plus")
    expected = by_broadcast(lhs, rhs, "min-plus")
    np.testing.assert_array_equal(shortest(lhs), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(shortest))(lhs), expected)
    assert shortest != expression("ij,jk->ik", lhs.shape, rhs)
    np.testing.assert_array_equal(shortest.plan(lhs)(lhs, rhs), expected)
    with pytest.raises(ValueError, match="alpha= is for sums of products"):
        shortest(lhs, alpha=2)


def test_out_and_order_are_as_ever():
    lhs, rhs = operands("ij,jk->ik")
    expected, out = by_broadcast(lhs, rhs, "max-plus"), np.empty((3, 5))
    assert einsum("ij,jk->ik", lhs, rhs, semiring="max-plus", out=out) is out
    np.testing.assert_array_equal(out, expected)
    found = einsum("ij,jk->ik", lhs, rhs, semiring="max-plus", order="F")
    assert found.flags.f_contiguous
    np.testing.assert_array_equal(found, expected)


def test_a_call_without_a_semiring_after_one_with_it_sums_products():
    lhs, rhs = operands("ij,jk->ik")
    einsum("ij,jk->ik", lhs, rhs, semiring="max-plus")
    np.testing.assert_allclose(einsum("ij,jk->ik", lhs, rhs), lhs @ rhs)
    np.testing.assert_array_equal(
        einsum("ij,jk->ik", lhs, rhs, semiring="min-plus"), by_broadcast(lhs, rhs, "min-plus")
    )


@pytest.mark.parametrize("semiring", [*EVERY, "boolean"], ids=named)
def test_a_plan_prints_is_stored_and_runs(semiring):
    lhs, rhs = operands("ij,jk->ik")
    made = plan("ij,jk->ik", lhs.shape, rhs.shape, semiring=semiring)
    assert f"in {named(semiring)} (" in str(made).splitlines()[0]
    read = Plan.from_json(made.to_json())
    assert read == made
    assert hash(read) == hash(made)
    assert pickle.loads(pickle.dumps(made)) == made
    np.testing.assert_array_equal(read(lhs, rhs), einsum("ij,jk->ik", lhs, rhs, semiring=semiring))
    assert made != plan("ij,jk->ik", lhs.shape, rhs.shape)
    assert made.retarget("torch").semiring == made.semiring


def test_the_json_of_a_plan_of_sums_has_no_semiring():
    assert "semiring" not in plan("ij,jk->ik", (2, 3), (3, 4)).to_json()


def test_a_plan_of_arrays_runs_on_tensors():
    torch = pytest.importorskip("torch")
    lhs, rhs = operands("ij,jk->ik")
    made = plan("ij,jk->ik", lhs, rhs, semiring="log")
    found = made(torch.tensor(lhs), torch.tensor(rhs))
    np.testing.assert_allclose(found, by_broadcast(lhs, rhs, "log"), rtol=1e-13)


def test_a_stored_semiring_that_is_none_is_refused():
    data = json.loads(plan("ij->i", (2, 3), semiring="log").to_json())
    for wrong in ({"name": "x", "add": "or", "multiply": "add"}, {"name": "x"}, "log", 3):
        with pytest.raises(EinsumxError, match="not a plan"):
            Plan.from_json(json.dumps({**data, "semiring": wrong}))


# -- gradients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semiring", EVERY, ids=named)
@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij,bjk->bik", "ij,jk,kl->il", "ij,j->i"])
def test_gradients_on_torch_are_those_of_finite_differences(equation, semiring):
    torch = pytest.importorskip("torch")
    arrays = [torch.tensor(array, requires_grad=True) for array in operands(equation)]
    assert torch.autograd.gradcheck(lambda *tensors: einsum(equation, *tensors, semiring=semiring), arrays)


def test_a_sum_of_what_is_impossible_has_gradients_of_zero():
    torch = pytest.importorskip("torch")
    values = [[-INFINITY, -INFINITY], [0.0, -INFINITY], [1.0, 2.0]]
    softmax = np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum()
    for equation, others, times in (("ij,jk->ik", [torch.zeros(2, 2)], 2), ("ij->i", [], 1)):
        array = torch.tensor(values, requires_grad=True)
        einsum(equation, array, *others, semiring="log").sum().backward()
        np.testing.assert_allclose(array.grad, times * np.array([[0, 0], [1, 0], softmax]), rtol=1e-6)
    jax = pytest.importorskip("jax")
    run, pull = jax.vjp(lambda array: einsum("ij->i", array, semiring="log"), jax.numpy.asarray(values))
    np.testing.assert_allclose(run[:2], [-INFINITY, 0])
    np.testing.assert_allclose(pull(jax.numpy.ones(3, run.dtype))[0], [[0, 0], [1, 0], softmax], rtol=1e-6)


@pytest.mark.parametrize("value", [-87.0, -44.0, -43.0, -42.5, 0.0, 42.0, 43.0, 44.0, 87.0])
@pytest.mark.parametrize("other", [-87.0, -43.2, 0.0, 42.5, 44.3])
def test_log_sum_exps_at_the_ends_of_the_range_of_exponentials(value, other):
    rng = np.random.default_rng(4)
    lhs = (value + rng.random((6, 40))).astype("float32")
    rhs = (other + rng.random((40, 5))).astype("float32")
    expected = by_broadcast(lhs.astype("float64"), rhs.astype("float64"), "log")
    np.testing.assert_allclose(einsum("ij,jk->ik", lhs, rhs, semiring="log"), expected, rtol=1e-6, atol=4e-6)


@pytest.mark.parametrize("semiring", ["max-times", "log"])
def test_gradients_on_torch_have_gradients(semiring):
    torch = pytest.importorskip("torch")
    arrays = [torch.tensor(array + 1, requires_grad=True) for array in operands("bij,bjk->bik")]
    assert torch.autograd.gradgradcheck(lambda *tensors: einsum("bij,bjk->bik", *tensors, semiring=semiring), arrays)


@pytest.mark.parametrize("batches", [((), ()), ((4,), (1,)), ((1,), (4,))], ids=str)
@pytest.mark.parametrize("semiring", NAMES)
def test_gradients_of_long_products_are_those_of_the_broadcast(semiring, batches, monkeypatch):
    """Also for equal maxima, for terms that underflow, and in blocks of rows."""
    torch = pytest.importorskip("torch")
    from einsumx.backends.torch import choices

    monkeypatch.setattr(choices, "TERMS", 5000)
    generator = torch.Generator().manual_seed(3)
    scale = 3000 if semiring == "log" else 2
    shapes = (*batches[0], 40, 30), (*batches[1], 30, 20)
    arrays = [(scale * torch.rand(shape, generator=generator, dtype=torch.float64)).round() for shape in shapes]
    cotangent = torch.rand((*np.broadcast_shapes(*batches), 40, 20), generator=generator, dtype=torch.float64)

    def gradients(function):
        tensors = [array.clone().requires_grad_() for array in arrays]
        return torch.autograd.grad(function(*tensors), tensors, cotangent)

    def broadcast(lhs, rhs):
        lhs, rhs = lhs[..., :, :, None], rhs[..., None, :, :]
        terms = lhs * rhs if semiring == "max-times" else lhs + rhs
        if semiring == "log":
            return terms.logsumexp(-2)
        return terms.amin(-2) if semiring == "min-plus" else terms.amax(-2)

    equation = "bij,bjk->bik" if batches[0] else "ij,jk->ik"
    found = gradients(lambda *tensors: einsum(equation, *tensors, semiring=semiring))
    for each, expected in zip(found, gradients(broadcast)):
        np.testing.assert_allclose(each, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("semiring", "most"), [("max-plus", 2), ("max-times", 2), ("log", 8)])
def test_what_is_kept_for_gradients_is_a_few_times_the_operands(semiring, most):
    torch = pytest.importorskip("torch")
    kept = {}

    def pack(tensor):
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    arrays = [torch.rand(200, 200, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        einsum("ij,jk->ik", *arrays, semiring=semiring)
    assert 0 < sum(kept.values()) <= most * 200 * 200 * 8


def test_gradients_under_a_limit_are_refused():
    torch = pytest.importorskip("torch")
    lhs, rhs = (torch.tensor(array, requires_grad=True) for array in operands("ij,jk->ik"))
    with pytest.raises(BackendError, match=r"no gradients in semiring='log'; leave memory_limit= away"):
        einsum("ij,jk->ik", lhs, rhs, semiring="log", memory_limit="1 MB")


def test_tensors_under_transforms_and_tracers():
    torch = pytest.importorskip("torch")
    from torch.fx.experimental.proxy_tensor import make_fx

    lhs, rhs = operands("ij,jk->ik")
    left, right = torch.tensor(lhs), torch.tensor(rhs)
    expected = by_broadcast(lhs, rhs, "max-plus")
    rows = torch.func.vmap(lambda row: einsum("j,jk->k", row, right, semiring="max-plus"))
    np.testing.assert_array_equal(rows(left), expected)
    graph = make_fx(lambda array: einsum("ij,jk->ik", array, right, semiring="max-plus"))(left)
    np.testing.assert_array_equal(graph(left + 1), expected + 1)
    gradient = torch.func.grad(lambda array: einsum("i,i->", array, right[0], semiring="log"))(left[0].new_ones(5))
    np.testing.assert_allclose(gradient, torch.softmax(1 + right[0], 0))


def test_sizes_may_be_unknown():
    lhs, rhs = operands("ij,jk->ik")
    made = plan("ij,jk->ik", (None, 4), (4, None), semiring="max-plus")
    np.testing.assert_array_equal(made(lhs, rhs), by_broadcast(lhs, rhs, "max-plus"))


def test_a_setting_of_effort_leaves_plans_in_semirings_estimated():
    lhs, rhs = operands("ij,jk->ik")
    with einsumx.effort("measure"):
        found = einsum("ij,jk->ik", lhs, rhs, semiring="max-plus")
    np.testing.assert_array_equal(found, by_broadcast(lhs, rhs, "max-plus"))


# -- errors ---------------------------------------------------------------------------------------------------------


def test_an_unknown_name_lists_those_that_are_known():
    names = "'max-plus', 'min-plus', 'max-times', 'log', 'boolean'"
    for call in (einsum, expression, plan):
        with pytest.raises(ValueError, match=f"semiring='max' is unknown; the names are {names}, and einsumx.Semiring"):
            call("ij->i", np.ones((2, 3)) if call is einsum else (2, 3), semiring="max")
    with pytest.raises(TypeError, match=r"semiring= is the name of a semiring, or an einsumx.Semiring, not 3"):
        einsum("ij->i", np.ones((2, 3)), semiring=3)


def test_functions_that_do_not_distribute_are_refused():
    with pytest.raises(ValueError, match="'logaddexp' and 'multiply' are not the functions of a semiring; these are: "):
        Semiring("mine", "logaddexp", "multiply")


@pytest.mark.parametrize("limit", [None, "1 MB"])
@pytest.mark.parametrize(
    ("dtype", "why"),
    [("int64", "int64 holds no infinity"), ("bool", "bool holds no infinity"), ("complex128", "have no order"),
     ("object", "floating-point numbers alone")],
)  # fmt: skip
def test_a_dtype_that_lacks_the_zero_is_refused(dtype, why, limit):
    ones = np.ones((3, 3), dtype)
    for semiring in EVERY:
        with pytest.raises(BackendError, match=why):
            einsum("ij,jk->ik", ones, ones, semiring=semiring, memory_limit=limit)


def test_integers_are_computed_in_floating_point_numbers_if_that_is_asked_for():
    lhs = np.array([[1, 2], [3, 4]])
    expected = np.array([[5.0, 6.0], [7.0, 8.0]])
    np.testing.assert_array_equal(einsum("ij,jk->ik", lhs, lhs, semiring="max-plus", dtype="float64"), expected)


@pytest.mark.parametrize("limit", [None, "1 MB"])
def test_keywords_of_sums_of_products_are_refused(limit):
    lhs, rhs = operands("ij,jk->ik")
    out = np.zeros((3, 5))
    for keywords, message in (
        ({"alpha": 2}, "alpha= is for sums of products"),
        ({"beta": 2, "out": out}, "beta= is for sums of products"),
        ({"effort": "measure"}, "effort='measure'"),
    ):
        for _ in range(2):
            with pytest.raises(ValueError, match=message):
                einsum("ij,jk->ik", lhs, rhs, semiring="max-plus", memory_limit=limit, **keywords)
    assert not out.any()


def test_a_framework_without_the_functions_says_why():
    message = "sparse: einsum computes in no semiring but 'boolean', so not in 'log'; the zeros that it does not store"
    with pytest.raises(BackendError, match=message):
        plan("ij,jk->ik", (2, 3), (3, 4), semiring="log", backend="sparse")
    assert plan("ij,jk->ik", (2, 3), (3, 4), semiring="boolean", backend="sparse", dtypes="bool").dtype == "bool"
    for backend in ("cupy", "mxnet", "tensorflow", "mlx", "paddle", "tinygrad", "dpnp", "cubed", "ndonnx"):
        assert plan("ij,jk->ik", (2, 3), (3, 4), semiring="log", backend=backend, dtypes="float32").dtype == "float32"


# -- the product that every backend has ------------------------------------------------------------------------------


@pytest.mark.parametrize("semiring", NAMES)
@pytest.mark.parametrize(
    "shapes", [((3, 300, 70), (3, 70, 100)), ((400, 4, 60), (400, 60, 50)), ((1, 9, 70), (60, 70, 300))], ids=str
)
def test_the_default_product_has_the_terms_of_some_rows_at_a_time(shapes, semiring):
    strict = pytest.importorskip("array_api_strict")
    lhs, rhs = [np.random.default_rng(3).standard_normal(shape) for shape in shapes]
    lhs[..., 0], rhs[..., 0, :] = -5000, 4000  # the sums of shifted exponentials underflow
    lhs, rhs = (abs(lhs), abs(rhs)) if semiring == "max-times" else (lhs, rhs)
    assert len(list(blocks(*shapes))) > 1
    function = by_blocks(get_backend("array_api"), as_semiring(semiring), *shapes)
    expected = by_broadcast(lhs, rhs, semiring)
    for found in (
        function(strict.asarray(lhs), strict.asarray(rhs)),
        einsum("bij,bjk->bik", strict.asarray(lhs), strict.asarray(rhs), semiring=semiring),
    ):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)


def test_log_sum_exps_are_products_of_matrices_where_no_sum_underflows():
    functions = get_backend("array_api")
    strict = pytest.importorskip("array_api_strict")
    lhs, rhs = [strict.asarray(np.random.default_rng(4).standard_normal(shape)) for shape in ((1, 3, 4), (1, 4, 5))]
    asked = []

    def otherwise(left, right):
        asked.append((left, right))
        return by_blocks(functions, as_semiring("log"), (1, 3, 4), (1, 4, 5))(left, right)

    product = by_matmul(functions, otherwise, 4, "float64")
    expected = by_broadcast(np.asarray(lhs), np.asarray(rhs), "log")
    np.testing.assert_allclose(np.asarray(product(lhs, rhs)), expected, rtol=1e-13)
    impossible = strict.where(strict.arange(3)[None, :, None] == 1, -strict.inf, lhs)
    assert np.isneginf(np.asarray(product(impossible, rhs))[0, 1]).all()
    assert not asked
    far = strict.where(strict.arange(4) == 0, lhs - 3000, lhs)
    np.testing.assert_allclose(
        np.asarray(product(far, strict.where(strict.arange(4)[:, None] == 0, rhs + 3000, rhs))),
        by_broadcast(np.asarray(far), np.where(np.arange(4)[:, None] == 0, np.asarray(rhs) + 3000, rhs), "log"),
    )
    assert len(asked) == 1


def test_a_hybridized_block_records_no_semiring():
    mx = pytest.importorskip("mxnet")

    class Block(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, lhs, rhs):  # noqa: N803  MXNet's name
            return einsum("ij,jk->ik", lhs, rhs, semiring="log")

        if not mx.__version__.startswith("1."):
            del hybrid_forward

            def forward(self, lhs, rhs):
                return einsum("ij,jk->ik", lhs, rhs, semiring="log")

    block = Block()
    block.hybridize()
    with mx.util.np_shape(True), mx.util.np_array(True):
        ones = mx.np.ones((2, 2))
        with pytest.raises(BackendError, match="a block of MXNet records no contraction in semiring='log'"):
            block(ones, ones)


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("semiring", EVERY, ids=named)
def test_the_source_of_a_plan_computes_the_same(backend, semiring):
    xp = pytest.importorskip({"jax": "jax.numpy"}.get(backend, backend))
    for equation in [*EQUATIONS][:: 4 if backend == "jax" else 1]:  # JAX compiles each function
        arrays = operands(equation, "float32")
        text = equation.removesuffix(" ones")
        source = plan(text, *map(np.shape, arrays), dtypes="float32", semiring=semiring).source(backend)
        assert max(map(len, source.splitlines())) <= 100
        found = contraction(source, backend)(*map(xp.asarray, arrays))
        assert str(found.dtype).endswith("float32")
        np.testing.assert_allclose(found, by_loops(text, *arrays, semiring=semiring), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("semiring", EVERY, ids=named)
def test_the_source_has_infinities_nan_blocks_and_empty_sums_of_the_plan(backend, semiring):
    xp = pytest.importorskip({"jax": "jax.numpy"}.get(backend, backend))
    rng = np.random.default_rng(0)
    many = rng.random((30, 300)).astype("float32"), rng.random((300, 200)).astype("float32")
    special = np.array([[0.0, INFINITY], [math.nan, 1.0], [-INFINITY, -INFINITY]], "float32")
    problems = [
        ("ij,jk->ik", *many),
        ("bij,bjk->bik", np.stack([many[0]] * 2), np.stack([many[1]] * 2)),
        ("ij,j->i", special, np.zeros(2, "float32")),
        ("ij->i", special),
        ("ij->", special[[0, 2]]),
        ("ij,jk->ik", np.ones((2, 0), "float32"), np.ones((0, 3), "float32")),
        ("ij,jk->ik", np.ones((0, 2), "float32"), np.ones((2, 3), "float32")),
        ("i->", np.broadcast_to(np.float32(3), (5,))),
    ]
    for equation, *arrays in problems:
        given = plan(equation, *arrays, semiring=semiring)
        found = contraction(given.source(backend), backend)(*[xp.asarray(np.array(array)) for array in arrays])
        np.testing.assert_allclose(found, einsum(equation, *arrays, semiring=semiring), rtol=2e-6, err_msg=equation)


def test_the_source_of_torch_and_jax_is_differentiated():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    a, b = np.random.default_rng(0).random((2, 4, 4)).astype("float32")
    for semiring in ("max-plus", "log"):
        source = plan("ij,jk->ik", (4, 4), (4, 4), dtypes="float32", semiring=semiring).source
        of_torch, of_jax = contraction(source("torch"), "torch"), contraction(source("jax"), "jax")
        tensor = torch.tensor(a, requires_grad=True)
        of_torch(tensor, torch.tensor(b)).sum().backward()
        gradient = jax.jit(jax.grad(lambda a, f=of_jax: f(a, b).sum()))(a)
        np.testing.assert_allclose(gradient, tensor.grad, rtol=1e-5)


def test_pictures_name_the_semiring_and_show_the_memory_of_the_plan():
    for limit in (None, "9MB"):
        for semiring in ("log", Semiring("a<b & c", "minimum", "maximum")):
            given = plan("ij,jk->ik", (900, 800), (800, 900), semiring=semiring, memory_limit=limit)
            drawing = given.draw()
            shown = named(semiring).replace("&", "&amp;").replace("<", "&lt;")
            add = "logaddexp" if semiring == "log" else "minimum"
            assert f"float64 on numpy in {shown} ({add}, " in drawing.svg.rpartition("</desc>")[2]
            assert limit is None or drawing.timeline.peak_bytes == given.peak_bytes


def test_the_command_prints_the_source_in_a_semiring(capsys):
    from einsumx.cli.main import main

    arguments = ["ij,jk->ik", "2,3", "3,4", "--semiring", "min-plus", "--backend", "torch"]
    assert main(["explain", "--source", *arguments]) == 0
    source = capsys.readouterr().out
    shapes = (2, 3), (3, 4)
    assert source == plan("ij,jk->ik", *shapes, dtypes="float32", semiring="min-plus", backend="torch").source()


def test_the_source_does_not_take_the_name_of_a_function_that_it_has():
    with pytest.raises(ValueError, match="another one of that name"):
        plan("ij,jk->ik", (2, 3), (3, 4), semiring="log").source(name="logsumexp")


def test_the_name_of_a_semiring_cannot_end_the_text_in_which_it_is():
    name = '"""; boom() #\\'
    source = plan("ij,jk->ik", (2, 3), (3, 4), semiring=Semiring(name, "maximum", "add")).source()
    assert contraction(source, "numpy")(np.ones((2, 3)), np.ones((3, 4))).tolist() == [[2.0] * 4] * 2


# -- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("semiring", NAMES)
@pytest.mark.parametrize(
    "shapes",
    [
        ((200, 200), (200, 200)),
        ((64, 50, 50), (64, 50, 50)),
        ((900, 20, 20), (900, 20, 30)),
        ((400, 100), (100, 50)),
        ((2, 100_000), (100_000, 3)),
    ],
    ids=str,
)
def test_a_product_takes_a_tenth_of_the_memory_of_the_broadcast_and_no_more_than_its_plan_says(
    shapes, semiring, backend
):
    rng = np.random.default_rng(7)
    lhs, rhs = (rng.random(shape) for shape in shapes)
    equation = "bij,bjk->bik" if lhs.ndim == 3 else "ij,jk->ik"
    arrays = (
        [lhs, rhs] if backend == "numpy" else [pytest.importorskip("torch").from_numpy(each) for each in (lhs, rhs)]
    )
    made = plan(equation, *arrays, semiring=semiring)
    einsum(equation, *arrays, semiring=semiring)
    # The kernels for tensors are NumPy's, which makes their arrays.
    _, measured = peaks.numpy_peak(lambda: einsum(equation, *arrays, semiring=semiring))
    assert measured + lhs.nbytes + rhs.nbytes <= made.peak_bytes + peaks.OBJECTS
    broadcast = lhs.size * rhs.shape[-1] * 8
    if 50 <= lhs.shape[-1] <= 200:
        assert measured < broadcast / 10


def test_terms_that_are_computed_again_take_no_more_memory_than_the_plan_says():
    lhs, rhs = 5000 * np.random.default_rng(8).standard_normal((2, 300, 300))
    made = plan("ij,jk->ik", lhs, rhs, semiring="log")
    _, measured = peaks.numpy_peak(lambda: einsum("ij,jk->ik", lhs, rhs, semiring="log"))
    assert measured + lhs.nbytes + rhs.nbytes <= made.peak_bytes + peaks.OBJECTS


def test_the_command_explains_a_plan_in_a_semiring(capsys):
    from einsumx.cli.main import main

    assert main(["explain", "ij,jk->ik", "2,3", "3,4", "--semiring", "min-plus"]) == 0
    assert "in min-plus (minimum, add)" in capsys.readouterr().out
