"""Semirings: kernels, plans, sources, memory and messages; what each backend computes, the suite judges."""

import json
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import peaks
import pytest
from source_einsum import contraction

import einsumx
from einsumx import BackendError, EinsumxError, MemoryLimit, Plan, Semiring, einsum, expression, plan
from einsumx.algebra import products
from einsumx.semirings import BUILTIN, boolean, log, max_plus, min_plus

INFINITY = math.inf
NAMES = ("max-plus", "min-plus", "max-times", "log")
WIDEST = Semiring("widest path", "maximum", "minimum")
RINGS = *(BUILTIN[name] for name in NAMES), WIDEST
PRODUCT = "ij,jk->ik"


def by_broadcast(lhs, rhs, semiring):
    """The product of two stacks of matrices as a plain reduction."""
    with np.errstate(all="ignore"):
        if semiring == "max-times":
            return (lhs[..., :, :, None] * rhs[..., None, :, :]).max(-2)
        terms = lhs[..., :, :, None] + rhs[..., None, :, :]
        if semiring == "log":
            return np.logaddexp.reduce(terms, axis=-2)
        return terms.max(-2) if semiring == "max-plus" else terms.min(-2)


def matrices(dtype="float64"):
    rng = np.random.default_rng(0)
    return rng.random((3, 4)).astype(dtype), rng.random((4, 5)).astype(dtype)


def product_of(lhs):
    return "bij,bjk->bik" if lhs.ndim == 3 else PRODUCT


# -- NumPy's kernels ------------------------------------------------------------------------------------------------

SHAPES = [
    ((200, 30), (30, 100)),
    ((100, 30), (30, 200)),
    ((3, 5000), (5000, 2)),
    ((1, 60_000), (60_000, 1)),  # more than a block
    ((5000, 1), (1, 3)),
    ((64, 50, 50), (64, 50, 50)),
    ((300, 4, 6), (300, 6, 5)),
    ((1, 40, 50), (30, 50, 20)),
    ((1, 4, 6), (300, 6, 5)),
    ((300, 4, 6), (1, 6, 5)),
    ((7, 90, 50), (7, 50, 60)),
    ((20, 10, 300), (20, 300, 10)),  # few sums of many terms, in blocks
]


@pytest.mark.parametrize(
    ("semiring", "dtype"),
    [("max-plus", "float32"), ("min-plus", "float64"), ("max-times", "float32"), ("log", "float64")],
)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_each_kernel_gives_the_broadcast_reduction(shapes, semiring, dtype):
    rng = np.random.default_rng(1)
    lhs, rhs = (rng.random(shape).astype(dtype) for shape in shapes)
    found = BUILTIN[semiring].einsum(product_of(lhs), lhs, rhs)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, by_broadcast(lhs, rhs, semiring), rtol=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("semiring", ["max-plus", "min-plus", "log"])
def test_infinities_and_nan_are_those_of_the_formula_in_matrices_of_many_rows(semiring):
    """BLAS adds the rows of such matrices, and multiplies exponentials."""
    rng = np.random.default_rng(2)
    values = np.array([-INFINITY, INFINITY, math.nan, 0.0, 1.0, -900.0, 900.0])
    lhs, rhs = rng.choice(values, (2, 60, 6), p=[0.3, 0.05, 0.05, 0.2, 0.2, 0.1, 0.1])
    lhs[0], rhs[1] = -INFINITY, -INFINITY
    lhs[2], lhs[3], rhs[4] = INFINITY, math.nan, 800.0
    expected = by_broadcast(lhs, rhs.T, semiring)
    assert {"nan", "inf"} <= {str(abs(value)) for value in expected.ravel()}
    found = BUILTIN[semiring].einsum("ij,kj->ik", lhs, rhs)
    # Shifts of 900 are added to logarithms, which rounds twice; some sums are 0.
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=2 * 900 * 2**-52)


@pytest.mark.parametrize(("value", "other"), [(-44.0, -43.2), (-42.5, -43.2), (42.0, 44.3), (44.0, 42.5), (87.0, 0.0)])
def test_log_sum_exps_at_the_ends_of_the_range_of_exponentials(value, other):
    rng = np.random.default_rng(4)
    lhs = (value + rng.random((6, 40))).astype("float32")
    rhs = (other + rng.random((40, 5))).astype("float32")
    expected = by_broadcast(lhs.astype("float64"), rhs.astype("float64"), "log")
    np.testing.assert_allclose(log.einsum(PRODUCT, lhs, rhs), expected, rtol=1e-6, atol=4e-6)


@pytest.mark.parametrize("spread", [1000, 10_000])
def test_log_sums_of_any_range_are_exact(spread):
    rng = np.random.default_rng(3)
    lhs, rhs = spread * rng.standard_normal((40, 30)), spread * rng.standard_normal((30, 50))
    expected = by_broadcast(lhs, rhs, "log")
    np.testing.assert_allclose(log.einsum(PRODUCT, lhs, rhs), expected, rtol=1e-13, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("semiring", "shapes", "spread"),
    [
        ("max-times", ((200, 200), (200, 200)), 1),
        ("max-plus", ((64, 50, 50), (64, 50, 50)), 1),
        ("max-plus", ((900, 20, 20), (900, 20, 30)), 1),
        ("max-plus", ((2, 100_000), (100_000, 3)), 1),
        ("log", ((200, 200), (200, 200)), 1),
        ("log", ((64, 50, 50), (64, 50, 50)), 1),
        ("log", ((300, 300), (300, 300)), 5000),  # whose terms are computed again
    ],
    ids=str,
)
def test_a_product_takes_no_more_memory_than_its_plan_says_and_a_tenth_of_the_broadcast(semiring, shapes, spread):
    """Also on PyTorch, whose kernels are the same."""
    rng = np.random.default_rng(7)
    lhs, rhs = (spread * rng.standard_normal(shape) for shape in shapes)
    most = BUILTIN[semiring].plan(product_of(lhs), lhs, rhs).peak_bytes
    BUILTIN[semiring].einsum(product_of(lhs), lhs, rhs)
    _, measured = peaks.numpy_peak(lambda: BUILTIN[semiring].einsum(product_of(lhs), lhs, rhs))
    assert measured + lhs.nbytes + rhs.nbytes <= most + peaks.OBJECTS
    if 50 <= lhs.shape[-1] <= 200:
        assert measured < lhs.size * rhs.shape[-1] * 8 / 10


# -- calls and plans ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semiring", ["max-plus", "log"])
def test_blocks_of_a_sum_add_up_in_the_semiring_also_those_of_workers(semiring):
    lhs, rhs = np.random.default_rng(6).random((2, 100, 100))
    whole = BUILTIN[semiring].einsum("ij,jk->", lhs, rhs)
    assert "summed over blocks" in str(BUILTIN[semiring].plan("ij,jk->", lhs, rhs, memory_limit="150 kB"))
    with ThreadPoolExecutor(2) as pool:
        for limit in ("150 kB", MemoryLimit("150 kB", executor=pool)):
            found = BUILTIN[semiring].einsum("ij,jk->", lhs, rhs, memory_limit=limit)
            np.testing.assert_allclose(found, whole, rtol=1e-13)


def test_an_expression_has_a_semiring():
    lhs, rhs = matrices()
    shortest = min_plus.expression(PRODUCT, lhs.shape, rhs)
    expected = by_broadcast(lhs, rhs, "min-plus")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(shortest))(lhs), expected)
    assert shortest != expression(PRODUCT, lhs.shape, rhs)
    np.testing.assert_array_equal(shortest.plan(lhs)(lhs, rhs), expected)


def test_out_and_order_are_as_ever_and_calls_without_a_semiring_sum_products():
    lhs, rhs = matrices()
    expected, out = by_broadcast(lhs, rhs, "max-plus"), np.empty((3, 5))
    assert max_plus.einsum(PRODUCT, lhs, rhs, out=out) is out
    np.testing.assert_array_equal(out, expected)
    found = max_plus.einsum(PRODUCT, lhs, rhs, order="F")
    assert found.flags.f_contiguous
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(einsum(PRODUCT, lhs, rhs), lhs @ rhs)
    np.testing.assert_array_equal(min_plus.einsum(PRODUCT, lhs, rhs), by_broadcast(lhs, rhs, "min-plus"))


@pytest.mark.parametrize("semiring", [WIDEST, log, boolean], ids=lambda semiring: semiring.name)
def test_a_plan_is_stored_and_runs_elsewhere(semiring):
    lhs, rhs = matrices()
    made = semiring.plan(PRODUCT, lhs.shape, rhs.shape)
    read = Plan.from_json(made.to_json())
    assert read == made
    assert hash(read) == hash(made)
    assert pickle.loads(pickle.dumps(made)) == made
    assert made != plan(PRODUCT, lhs.shape, rhs.shape)
    assert made.retarget("torch").algebra == made.algebra
    if semiring is not boolean:
        torch = pytest.importorskip("torch")
        expected = semiring.einsum(PRODUCT, lhs, rhs)
        np.testing.assert_allclose(read(torch.tensor(lhs), torch.tensor(rhs)), expected, rtol=1e-13)


def test_a_stored_semiring_that_is_none_is_refused_and_sums_have_none():
    assert "semiring" not in plan(PRODUCT, (2, 3), (3, 4)).to_json()
    data = json.loads(log.plan("ij->i", (2, 3)).to_json())
    for wrong in ({"name": "x", "add": "or", "multiply": "add"}, {"name": "x"}, "log", 3):
        with pytest.raises(EinsumxError, match="not a plan"):
            Plan.from_json(json.dumps({**data, "semiring": wrong}))


def test_sizes_may_be_unknown_and_an_effort_that_is_set_leaves_plans_estimated():
    lhs, rhs = matrices()
    expected = by_broadcast(lhs, rhs, "max-plus")
    made = max_plus.plan(PRODUCT, (None, 4), (4, None))
    np.testing.assert_array_equal(made(lhs, rhs), expected)
    with einsumx.effort("measure"):
        np.testing.assert_array_equal(max_plus.einsum(PRODUCT, lhs, rhs), expected)


def test_the_command_explains_a_plan_and_prints_its_source(capsys):
    from einsumx.cli.main import main

    arguments = [PRODUCT, "2,3", "3,4", "--semiring", "min-plus"]
    assert main(["explain", *arguments]) == 0
    assert "in min-plus (minimum, add)" in capsys.readouterr().out
    assert main(["explain", "--source", *arguments, "--backend", "torch"]) == 0
    made = min_plus.plan(PRODUCT, (2, 3), (3, 4), dtypes="float32", backend="torch")
    assert capsys.readouterr().out == made.source()


# -- derivatives, transforms and traces -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("semiring", "batches"),
    [*[(name, ((), ())) for name in NAMES], ("max-plus", ((4,), (1,))), ("log", ((1,), (4,)))],
    ids=str,
)
def test_gradients_of_long_products_are_those_of_the_broadcast(semiring, batches, monkeypatch):
    """Also for equal maxima, for terms that underflow, and in blocks of rows."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(products, "blocks", partial(products.blocks, most=5000))
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

    found = gradients(lambda *tensors: BUILTIN[semiring].einsum(product_of(tensors[0]), *tensors))
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
        BUILTIN[semiring].einsum(PRODUCT, *arrays)
    assert 0 < sum(kept.values()) <= most * 200 * 200 * 8


def test_tensors_under_transforms_and_tracers():
    torch = pytest.importorskip("torch")
    from torch.fx.experimental.proxy_tensor import make_fx

    lhs, rhs = matrices()
    left, right = torch.tensor(lhs), torch.tensor(rhs)
    expected = by_broadcast(lhs, rhs, "max-plus")
    rows = torch.func.vmap(lambda row: max_plus.einsum("j,jk->k", row, right))
    np.testing.assert_array_equal(rows(left), expected)
    graph = make_fx(lambda array: max_plus.einsum(PRODUCT, array, right))(left)
    np.testing.assert_array_equal(graph(left + 1), expected + 1)
    gradient = torch.func.grad(lambda array: log.einsum("i,i->", array, right[0]))(left[0].new_ones(5))
    np.testing.assert_allclose(gradient, torch.softmax(1 + right[0], 0))
    with pytest.raises(BackendError, match=r"no gradients in the semiring 'log'; omit memory_limit="):
        log.einsum(PRODUCT, left.requires_grad_(), right, memory_limit="1 MB")


def test_a_hybridized_block_records_no_semiring():
    mx = pytest.importorskip("mxnet")

    class Block(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, lhs, rhs):  # noqa: N803  MXNet's name
            return log.einsum("ij,jk->ik", lhs, rhs)

        if not mx.__version__.startswith("1."):
            del hybrid_forward

            def forward(self, lhs, rhs):
                return log.einsum("ij,jk->ik", lhs, rhs)

    block = Block()
    block.hybridize()
    with mx.util.np_shape(True), mx.util.np_array(True):
        ones = mx.np.ones((2, 2))
        with pytest.raises(BackendError, match="a hybridized block of MXNet cannot compute in the semiring 'log'"):
            block(ones, ones)


# -- errors ---------------------------------------------------------------------------------------------------------


def test_functions_that_do_not_distribute_and_names_that_do_not_print_are_refused():
    with pytest.raises(ValueError, match="einsumx has no semiring of 'logaddexp' and 'multiply'; it has: "):
        Semiring("mine", "logaddexp", "multiply")
    assert Semiring("x" * 60, "maximum", "add").zero == -INFINITY
    for name in ("", "two\nlines", "x" * 61, 3):
        with pytest.raises(ValueError, match="the name of a semiring must be a printable text of up to 60 letters"):
            Semiring(name, "maximum", "add")


def test_objects_are_refused_under_a_limit_too():
    lhs, rhs = (array.astype(object) for array in matrices())
    for limit in (None, "1 MB"):
        with pytest.raises(BackendError, match="needs floating-point numbers"):
            log.einsum(PRODUCT, lhs, rhs, memory_limit=limit)


@pytest.mark.parametrize("keyword", ["alpha", "accumulate", "precision"])
def test_a_keyword_of_sums_of_products_is_none_of_a_semiring(keyword):
    with pytest.raises(TypeError, match=keyword):
        log.einsum("ij->i", np.ones((2, 3)), **{keyword: None})


def test_a_framework_without_the_functions_says_why():
    message = "sparse: einsum supports only the semiring 'boolean', not 'log'; the elements that it does not store"
    with pytest.raises(BackendError, match=message):
        log.plan(PRODUCT, (2, 3), (3, 4), backend="sparse")
    assert boolean.plan(PRODUCT, (2, 3), (3, 4), backend="sparse", dtypes="bool").dtype == "bool"
    for backend in ("cupy", "mxnet", "tensorflow", "mlx", "paddle", "tinygrad", "dpnp", "cubed", "ndonnx"):
        assert log.plan(PRODUCT, (2, 3), (3, 4), backend=backend, dtypes="float32").dtype == "float32"


# -- the product that every backend has ------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("semiring", ["max-times", "log"])
@pytest.mark.parametrize("shapes", [((3, 300, 70), (3, 70, 100)), ((1, 9, 70), (60, 70, 300))], ids=str)
def test_a_product_of_more_terms_than_a_block_is_right_on_any_array_library(shapes, semiring):
    strict = pytest.importorskip("array_api_strict")
    lhs, rhs = [np.random.default_rng(3).standard_normal(shape) for shape in shapes]
    lhs[..., 0], rhs[..., 0, :] = -5000, 4000  # the sums of shifted exponentials underflow
    lhs, rhs = (abs(lhs), abs(rhs)) if semiring == "max-times" else (lhs, rhs)
    found = BUILTIN[semiring].einsum("bij,bjk->bik", strict.asarray(lhs), strict.asarray(rhs))
    np.testing.assert_allclose(np.asarray(found), by_broadcast(lhs, rhs, semiring), rtol=1e-12)


# -- the source of a plan -------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "semirings"),
    [("numpy", RINGS), ("torch", RINGS), ("jax", (log,))],
    ids=["numpy", "torch", "jax"],
)
def test_the_source_has_infinities_nan_blocks_and_empty_sums_of_the_plan(backend, semirings):
    xp = pytest.importorskip({"jax": "jax.numpy"}.get(backend, backend))
    rng = np.random.default_rng(0)
    many = rng.random((30, 300)).astype("float32"), rng.random((300, 200)).astype("float32")
    special = np.array([[0.0, INFINITY], [math.nan, 1.0], [-INFINITY, -INFINITY]], "float32")
    problems = [
        ("ij,jk->ik", *many),
        ("bij,bjk->kib", *[np.stack([array] * 2) for array in many]),
        ("ij,jk,kl->il", *matrices("float32"), matrices("float32")[1].T),
        ("iij,j->i", rng.random((3, 3, 2), "float32"), rng.random(2, "float32")),
        ("i,j->ij", special[0], special[1]),
        ("ij,j->i", special, np.zeros(2, "float32")),
        ("ij->i", special),
        ("ij->", special[[0, 2]]),
        ("ij,jk->ik", np.ones((2, 0), "float32"), np.ones((0, 3), "float32")),
        ("ij,jk->ik", np.ones((0, 2), "float32"), np.ones((2, 3), "float32")),
        ("i->", np.broadcast_to(np.float32(3), (5,))),
    ]
    for semiring in semirings:
        for equation, *arrays in problems[:: 3 if backend == "jax" else 1]:  # JAX compiles each function
            given = semiring.plan(equation, *arrays)
            source = given.source(backend)
            assert max(map(len, source.splitlines())) <= 100
            found = contraction(source, backend)(*[xp.asarray(np.array(array)) for array in arrays])
            assert str(found.dtype).endswith("float32")
            expected = semiring.einsum(equation, *arrays)
            np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6, err_msg=f"{equation} in {semiring.name}")


def test_names_in_a_source_collide_with_nothing_and_end_no_text():
    with pytest.raises(ValueError, match="another one of that name"):
        log.plan(PRODUCT, (2, 3), (3, 4)).source(name="product")
    name = '"""; boom() #\\'
    source = Semiring(name, "maximum", "add").plan(PRODUCT, (2, 3), (3, 4)).source()
    assert contraction(source, "numpy")(np.ones((2, 3)), np.ones((3, 4))).tolist() == [[2.0] * 4] * 2
