"""Compiled expressions: planned once, constants folded in once, checked at every call."""

import copy
import pickle

import numpy as np
import pytest

import einsumx
from einsumx.backends.numpy import ADAPTER
from einsumx.ir.ops import Matmul


def test_constants_are_given_once_and_in_any_place(rng):
    x, first, second = rng.normal(size=(3, 4)), rng.normal(size=(4, 5)), rng.normal(size=(5, 2))
    expected = x @ first @ second
    run = einsumx.expression("ij,jk,kl->il", (3, 4), (4, 5), (5, 2))
    np.testing.assert_allclose(run(x, first, second), expected, rtol=1e-12)
    np.testing.assert_allclose(einsumx.expression("ij,jk,kl->il", (3, 4), first, second)(x), expected, rtol=1e-12)
    np.testing.assert_allclose(einsumx.expression("ij,jk,kl->il", x, (4, 5), second)(first), expected, rtol=1e-12)
    np.testing.assert_allclose(einsumx.expression("ij,jk,kl->il", x, first, (5, 2))(second), expected, rtol=1e-12)


def test_what_depends_on_constants_alone_is_computed_once(rng, monkeypatch):
    """A call makes one matrix product instead of two, and does not see a constant that was changed since."""
    x, first, second = (rng.integers(-9, 9, size=shape) * 1.0 for shape in ((30, 40), (40, 50), (50, 20)))
    calls = []
    kernel = ADAPTER.kernel

    def counted(op, shapes, dtype):
        run = kernel(op, shapes, dtype)
        return (lambda *args: calls.append(args) or run(*args)) if isinstance(op, Matmul) else run

    monkeypatch.setitem(vars(ADAPTER), "kernel", counted)
    run = einsumx.expression("ij,jk,kl->il", (30, 40), first, second, optimize=[(1, 2), (0, 1)])
    for _ in range(5):
        np.testing.assert_array_equal(run(x), x @ first @ second)
    assert len(calls) == 1 + 5
    before = run(x)
    first *= 2
    np.testing.assert_array_equal(run(x), before)


def test_dtypes_and_layouts_may_change_between_calls(rng):
    run = einsumx.expression("ij,jk->ik", (3, 4), (4, 2))
    a, b = rng.integers(-9, 9, size=(3, 4)), rng.integers(-9, 9, size=(4, 2))
    expected = (a[:, :, None] * b[None]).sum(1)
    for dtype in ("int64", "int8", "float32", "complex128"):
        result = run(a.astype(dtype), np.asfortranarray(b.astype(dtype)))
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected.astype(dtype))


def test_out_and_order_are_honoured(rng):
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    run = einsumx.expression("ij,jk->ik", (3, 4), (4, 2))
    out = np.full((3, 2), np.nan)
    assert run(a, b, out=out) is out
    np.testing.assert_allclose(out, (a[:, :, None] * b[None]).sum(1), rtol=1e-12)
    assert run(a, b, order="F").flags.f_contiguous


@pytest.mark.parametrize(
    ("operands", "error", "message"),
    [
        ((np.ones((3, 4)),), einsumx.SizeError, "takes 2 operands, not 1"),
        ((np.ones((3, 4)), np.ones((4, 3))), einsumx.SizeError, r"operand 1 has shape \(4, 3\)"),
        ((np.ones((3, 4)), np.array([["a"] * 2] * 4)), einsumx.BackendError, "needs numbers"),
    ],
)
def test_a_call_that_does_not_fit_is_an_error(operands, error, message):
    run = einsumx.expression("ij,jk->ik", (3, 4), (4, 2))
    with pytest.raises(error, match=message):
        run(*operands)


# -- pickling, copying, comparing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_an_unpickled_expression_gives_the_same_result_with_the_same_path(rng, protocol):
    x, first, second = rng.normal(size=(3, 4)), rng.normal(size=(4, 5)), rng.normal(size=(5, 2))
    run = einsumx.expression("ij,jk,kl->il", (3, 4), first, (5, 2), optimize=[(1, 2), (0, 1)])
    expected = run(x, second)
    again = pickle.loads(pickle.dumps(run, protocol))
    assert again.path == run.path
    assert repr(again) == repr(run)
    np.testing.assert_array_equal(again(x, second), expected)


def test_a_pickle_has_the_constants_and_nothing_that_was_compiled(rng):
    run = einsumx.expression("ij,jk->ik", (3, 200), rng.normal(size=(200, 100)))
    before = pickle.dumps(run)
    run(np.ones((3, 200)))
    assert pickle.dumps(run) == before
    assert len(before) < 200 * 100 * 8 + 2000


def test_unpickling_looks_for_no_path_and_keeps_options(rng, monkeypatch):
    """An optimizer may take minutes."""
    run = einsumx.expression((3, 4), [0, 1], (4, 2), [1, 2], [2, 0], dtype="float32", casting="same_kind")
    text = pickle.dumps(run)
    monkeypatch.setattr("einsumx.expressions.find_path", lambda *_: pytest.fail("looked for a path"))
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    result = pickle.loads(text)(a, b)
    assert result.dtype == "float32"
    np.testing.assert_array_equal(result, run(a, b))


@pytest.mark.parametrize("framework", ["torch", "jax", "array_api_strict"])
def test_constants_are_pickled_as_their_framework_does(framework):
    pytest.importorskip(framework)
    xp = pytest.importorskip("jax.numpy" if framework == "jax" else framework)
    run = einsumx.expression("ij,jk->ik", (3, 4), xp.ones((4, 2)))
    again = pickle.loads(pickle.dumps(run))
    result = again(xp.ones((3, 4)))
    assert type(result) is type(xp.ones(1))
    assert (result == 4).all() if framework != "array_api_strict" else bool(xp.all(result == 4))
    assert again == run == copy.deepcopy(run)
    assert run != einsumx.expression("ij,jk->ik", (3, 4), xp.zeros((4, 2)))


def test_constants_whose_dtype_numpy_lacks_are_compared(torch):
    weights = torch.ones((4, 2), dtype=torch.bfloat16)
    run = einsumx.expression("ij,jk->ik", (3, 4), weights)
    assert run == einsumx.expression("ij,jk->ik", (3, 4), weights.clone())
    assert run != einsumx.expression("ij,jk->ik", (3, 4), 2 * weights)


def test_a_pickle_of_a_named_framework_names_it():
    run = pickle.loads(pickle.dumps(einsumx.expression("ij,jk->ik", (3, 4), (4, 2), backend="numpy")))
    with pytest.raises(einsumx.BackendError, match="backend='numpy' was passed"):
        run(*map(pytest.importorskip("torch").ones, [(3, 4), (4, 2)]))


def test_a_copy_is_the_expression_itself_and_a_deep_copy_has_its_own_constants(rng):
    x, weights = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    run = einsumx.expression("ij,jk->ik", (3, 4), weights)
    deep = copy.deepcopy(run)
    expected = x @ weights
    assert copy.copy(run) is run
    assert deep is not run
    assert deep == run
    weights[...] = 0
    assert deep != run
    assert hash(deep) == hash(run)
    np.testing.assert_allclose(deep(x), expected, rtol=1e-12)


SAME = {
    "the same call": (("ij,jk->ik", (3, 4), (4, 2)), {}),
    "its path": (("ij,jk->ik", (3, 4), (4, 2)), {"optimize": [(0, 1)]}),
    "a dtype": (("ij,jk->ik", (3, 4), (4, 2)), {"dtype": "float32"}),
    "an accumulator": (("ij,jk->ik", (3, 4), (4, 2)), {"accumulate": "float32"}),
    "another equation": (("ij,jk->ki", (3, 4), (4, 2)), {}),
    "other sizes": (("ij,jk->ik", (3, 5), (5, 2)), {}),
    "another casting": (("ij,jk->ik", (3, 4), (4, 2)), {"casting": "unsafe"}),
    "a framework": (("ij,jk->ik", (3, 4), (4, 2)), {"backend": "numpy"}),
    "a constant": (("ij,jk->ik", (3, 4), np.ones((4, 2))), {}),
    "the other constant": (("ij,jk->ik", np.ones((3, 4)), (4, 2)), {}),
    "another value": (("ij,jk->ik", (3, 4), np.zeros((4, 2))), {}),
    "another sign of zero": (("ij,jk->ik", (3, 4), -np.zeros((4, 2))), {}),
    "another dtype": (("ij,jk->ik", (3, 4), np.zeros((4, 2), "float32")), {}),
    "no number": (("ij,jk->ik", (3, 4), np.full((4, 2), np.nan)), {}),
}


def test_expressions_are_equal_that_were_made_by_the_same_call():
    made = {name: einsumx.expression(*operands, **options) for name, (operands, options) in SAME.items()}
    for first, (operands, options) in SAME.items():
        again = einsumx.expression(*copy.deepcopy(operands), **options)
        assert [name for name, run in made.items() if run == again] == [first]
        assert hash(again) == hash(made[first]) == hash(pickle.loads(pickle.dumps(again)))
        assert again != "ij,jk->ik"


def test_a_dtype_is_compared_by_its_name(torch):
    runs = [einsumx.expression("ij->ji", (3, 4), dtype=dtype) for dtype in ("float32", np.float32, torch.float32)]
    assert len(set(runs)) == 1
