"""What einsum promises, held against every installed backend: forms, types, results, numbers and errors."""

import time

import numpy as np
import pytest
from backends_under_test import INSTALLED, NUMPY, OTHERS

import einsumx
from einsumx.conformance.frameworks.paddle import PaddleFramework
from einsumx.conformance.oracle import expect, judge

RNG = np.random.default_rng(20)


@pytest.fixture(params=INSTALLED, ids=str)
def backend(request):
    return request.param


def normal(*shape):
    return RNG.standard_normal(shape)


def held(backend, equation, *values, dtype=None, **options):
    """Compute on the backend, and hold the result against the plain sum."""
    values = [np.asarray(value, dtype or backend.float) for value in values]
    with np.errstate(all="ignore"):
        result = einsumx.einsum(equation, *map(backend.array, values), **options)
    backend.check(result, expect(equation, *values))
    return result


# -- forms ----------------------------------------------------------------------------------------------------------

CASES = [
    ("->", ()),
    (",->", (), ()),
    (",i->i", (), (3,)),
    ("i->", (5,)),
    ("i->i", (5,)),
    ("ij->ji", (2, 3)),
    ("ij", (2, 3)),
    ("ba", (2, 3)),
    ("ijk->kj", (2, 3, 4)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iij->j", (3, 3, 2)),
    ("iji->ij", (3, 2, 3)),
    ("iiii->i", (2, 2, 2, 2)),
    ("i,i", (4,), (4,)),
    ("i,i->i", (4,), (4,)),
    ("i,j", (4,), (3,)),
    ("i,j->ji", (4,), (3,)),
    ("i,j->", (4,), (3,)),
    ("ij,j", (2, 3), (3,)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,jk->ki", (2, 3), (3, 4)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    ("ij,ij->i", (2, 3), (2, 3)),
    ("nc,nc->n", (50, 3), (50, 3)),
    ("ij,kj->", (2, 3), (4, 3)),
    ("iij,jkk->ik", (2, 2, 3), (3, 4, 4)),
    ("ijk,ikl->jl", (3, 2, 4), (3, 4, 5)),
    ("ijk,ikl->ijl", (3, 2, 4), (3, 4, 5)),
    ("bnid,bnjd->bnij", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("bind,bjnd->bnij", (2, 4, 3, 5), (2, 6, 3, 5)),
    ("bind,jnd->bnij", (2, 4, 3, 5), (6, 3, 5)),
    ("bnij,bjnc->binc", (2, 3, 4, 6), (2, 6, 3, 5)),
    ("bhqd,bhqkd->bhqk", (2, 1, 5, 4), (2, 1, 5, 3, 4)),
    ("ecbfa,fd->abcde", (2, 3, 2, 4, 2), (4, 3)),
    ("abc,ade,bdf,ceg->fg", (4, 4, 4), (4, 3, 3), (4, 3, 2), (4, 3, 2)),
    ("i,i,i->", (4,), (4,), (4,)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    ("ab,bc,ca->", (2, 3), (3, 4), (4, 2)),
    ("ai,bi,ci,di->abcd", (2, 3), (2, 3), (2, 3), (2, 3)),
    ("...->...", (2, 3)),
    ("...i->...", (2, 3)),
    ("i...->...i", (2, 3, 4)),
    ("...ij,...jk", (5, 2, 3), (5, 3, 4)),
    ("...ij,...jk->...ki", (5, 1, 2, 3), (6, 3, 4)),
    ("i...j,...->j...i", (2, 4, 3), (5, 4)),
    ("...,...", (2, 1), (3,)),
]


def case_id(case):
    return case[0] if isinstance(case, tuple) else str(case)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_equation_gives_the_plain_sum(backend, case):
    equation, *shapes = case
    held(backend, equation, *(normal(*shape) for shape in shapes))


def test_sublists_mean_what_text_means(backend):
    a, b = normal(2, 3).astype(backend.float), normal(3, 4).astype(backend.float)
    left, right = backend.array(a), backend.array(b)
    for output in ([], [2], [2, 0]):
        result = einsumx.einsum(left, [0, 1], right, [1, 2], output)
        backend.check(result, expect(a, [0, 1], b, [1, 2], output))
    backend.check(einsumx.einsum(left, [..., 1], right, [1, 0]), expect("...b,ba", a, b))
    backend.check(einsumx.einsum(left, (1, 0)), expect("ba", a))


def test_blanks_stand_anywhere_but_inside_arrow_and_ellipsis():
    a, b = normal(2, 3), normal(3, 4)
    for equation in (" ij,jk->ik", "i j , j k -> i k ", "ij,\tjk\n->ik", "  i  j,jk  ->ik"):
        assert judge(einsumx.einsum(equation, a, b), expect("ij,jk->ik", a, b))


def test_any_letter_is_a_label(backend):
    held(backend, "αж,жB->Bα", normal(2, 3), normal(3, 4))


def test_sublist_labels_are_any_hashables():
    a, b = normal(2, 3), normal(3, 4)
    for i, j, k in ((100, 52, 60), ("left", "bond", "right"), ((0, 0), (0, 1), (1, 1)), (None, 1.5, frozenset("x"))):
        assert judge(einsumx.einsum(a, [i, j], b, [j, k], [k, i]), expect("ij,jk->ki", a, b))


def test_implicit_output_has_the_ellipsis_first_and_then_sorted_labels(backend):
    a = normal(2, 3, 4).astype(backend.float)
    array = backend.array(a)
    for equation, written_out in (("c...a", "c...a->...ac"), ("bCa", "bCa->Cab"), ("a...a", "a...a->...")):
        values = a if equation != "a...a" else normal(3, 4, 3).astype(backend.float)
        backend.check(einsumx.einsum(equation, backend.array(values)), expect(written_out, values))
    backend.check(einsumx.einsum(array, [70, 30, 50]), expect("cab->abc", a))
    backend.check(einsumx.einsum(array, ["z", "b", "y"]), expect("cab->abc", a))


def test_implicit_output_of_labels_without_an_order_is_their_first_appearance():
    a, b = normal(2, 3), normal(3, 4)
    assert judge(einsumx.einsum(a, ["z", 0], b, [0, 1]), expect("ij,jk->ik", a, b))
    assert judge(einsumx.einsum(b.T, [1, 0], a.T, [0, "z"]), expect("kj,ji->ki", b.T, a.T))


def test_ellipsis_may_stand_for_no_axes(backend):
    held(backend, "...ij,...jk->...ik", normal(2, 3), normal(3, 4))
    held(backend, "i...->i", normal(3))
    held(backend, "...,...->...", normal(), normal(2))


def test_ellipsis_axes_that_the_output_leaves_out_are_summed(backend):
    held(backend, "...i->i", normal(2, 4, 3))
    held(backend, "...i,...->i", normal(2, 4, 3), normal(4))


BROADCASTS = [
    ("ij,jk->ik", (2, 1), (3, 4)),
    ("ij,jk->ik", (2, 3), (1, 4)),
    ("bij,bjk->bik", (1, 2, 3), (5, 3, 4)),
    ("bij,bjk->bik", (5, 2, 3), (1, 3, 4)),
    ("ij,ij->i", (1, 4), (2, 4)),
    ("ij,ij->", (1, 4), (2, 1)),
    ("i,i", (3,), (1,)),
    ("ij->i", (2, 1)),
    ("i,i,i->i", (1,), (3,), (1,)),
    ("ijk,kl,jl", (1, 5, 4), (4, 6), (5, 6)),
    ("ab,bc,bd->acd", (5, 4), (1, 5), (4, 6)),
    ("i,i->", (1,), (1,)),
    ("ii,i->i", (1, 1), (3,)),
]


@pytest.mark.parametrize("case", BROADCASTS, ids=lambda case: f"{case[0]} {case[1:]}")
def test_size_1_broadcasts_in_every_role(backend, case):
    equation, *shapes = case
    held(backend, equation, *(normal(*shape) for shape in shapes))


ZEROS = [
    ("i->", (0,)),
    ("ij->i", (3, 0)),
    ("ij->j", (3, 0)),
    ("ij->ji", (3, 0)),
    ("ii->i", (0, 0)),
    ("ii", (0, 0)),
    ("i,i->", (0,), (0,)),
    ("ij,jk->ik", (2, 0), (0, 4)),
    ("ij,jk->ik", (0, 3), (3, 4)),
    ("bij,bjk->bik", (0, 2, 3), (0, 3, 4)),
    ("bij,bjk->bik", (3, 2, 0), (1, 0, 4)),
    ("i,j->ij", (0,), (4,)),
    ("i,j->j", (0,), (4,)),
    ("i,i->i", (0,), (1,)),
    ("ij,jk,kl->il", (2, 3), (3, 0), (0, 2)),
    ("...i,i", (2, 0), (0,)),
]


@pytest.mark.parametrize("case", ZEROS, ids=lambda case: f"{case[0]} {case[1:]}")
def test_zero_sizes_sum_to_zero(backend, case):
    equation, *shapes = case
    held(backend, equation, *(normal(*shape) for shape in shapes))


def test_sum_over_nothing_is_zero_beside_infinities(backend):
    inf = np.array([np.inf, np.nan])
    for equation, empty in (("i,j->", (0,)), ("i,j->j", (0,)), ("ik,jk->j", (0, 1)), ("i,j,j->", (0,))):
        operands = [np.zeros(empty), *([inf.reshape(2, *[1] * (len(empty) - 1))] * equation.count(","))]
        result = held(backend, equation, *operands)
        assert not backend.values(result).any()


LEAVING = ("__array__", "__array_interface__", "__dlpack__", "numpy", "cpu", "tolist", "item", "asnumpy", "asscalar")
"""By which of its methods an array goes to the host, to NumPy, or through another framework."""


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_no_operand_leaves_its_framework(case, monkeypatch):
    equation, *shapes = case
    for backend in OTHERS:
        values = [normal(*shape).astype(backend.float) for shape in shapes]
        arrays = [backend.array(value) for value in values]
        with monkeypatch.context() as patched:
            for kind in {type(array) for array in arrays}:
                for name in LEAVING:
                    if hasattr(kind, name):
                        patched.setattr(kind, name, _left)
            result = _traced(backend)(equation, *arrays)
        backend.check(result, expect(equation, *values))


def _traced(backend):
    """NumPy reads some arrays by C's buffer protocol, which no patch sees; a traced array has no values to read."""
    if backend.name == "mlx":
        mlx = pytest.importorskip("mlx.core")
        return lambda equation, *arrays: mlx.compile(lambda *traced: einsumx.einsum(equation, *traced))(*arrays)
    if backend.name != "jax":
        return einsumx.einsum
    jax = pytest.importorskip("jax")
    return lambda equation, *arrays: jax.jit(lambda *traced: einsumx.einsum(equation, *traced))(*arrays)


@property
def _left(array):
    pytest.fail("an array left its framework")


def test_leaving_a_framework_is_seen(monkeypatch):
    for backend in OTHERS:
        if backend.name == "mlx":
            with pytest.raises(ValueError, match="not allowed"):
                pytest.importorskip("mlx.core").compile(np.asarray)(backend.array(normal(2)))
            continue
        if backend.name == "jax":
            with pytest.raises(TypeError, match="Tracer"):
                pytest.importorskip("jax").jit(np.asarray)(backend.array(normal(2)))
            continue
        array = backend.array(normal(2))
        with monkeypatch.context() as patched:
            for name in LEAVING:
                if hasattr(type(array), name):
                    patched.setattr(type(array), name, _left)
            with pytest.raises(pytest.fail.Exception, match="left its framework"):
                backend.values(array)


# -- types ----------------------------------------------------------------------------------------------------------


def promotion(backend, first, second):
    """The framework's own promotion of two dtypes by name; None where it has none."""
    if backend.name in ("numpy", "cupy"):
        return np.result_type(first, second).name
    if backend.name == "torch":
        torch = backend.adapter.xp
        return str(torch.promote_types(getattr(torch, first), getattr(torch, second))).removeprefix("torch.")
    if backend.name == "jax":
        return backend.adapter.xp.promote_types(first, second).name
    if backend.name == "paddle":  # cannot multiply two tensors of some dtypes, which it need not promote
        return first if first == second else PaddleFramework().promote(first, second)
    one, other = backend.array(np.ones(1), first), backend.array(np.ones(1), second)
    try:
        has_operator = backend.name in ("mxnet", "tinygrad")
        return backend.dtype(one * other if has_operator else backend.adapter.xp.multiply(one, other))
    except Exception:  # noqa: BLE001  whatever a framework raises, it has no such promotion
        return None


def test_result_has_the_frameworks_promotion_in_every_equation(backend):
    for first in backend.dtypes:
        for second in backend.dtypes:
            wanted = promotion(backend, first, second)
            if first == second == "bool":
                wanted = "bool"
            one, other = backend.array(np.ones(2), first), backend.array(np.ones(2), second)
            if wanted is None:
                with pytest.raises(einsumx.BackendError):
                    einsumx.einsum("i,i->i", one, other)
                continue
            for equation in ("i,i->", "i,i->i", "i,j->ij", "i,j->"):
                assert einsumx.plan(equation, one, other).dtype == wanted, (equation, first, second)
            assert backend.dtype(einsumx.einsum("i,i->", one, other)) == wanted, (first, second)


def test_every_dtype_stays_itself(backend):
    for dtype in backend.dtypes:
        array = backend.array(np.ones((2, 2)), dtype)
        for equation, operands in (("ij->", 1), ("ii->i", 1), ("ij->ji", 1), ("ij,jk->ik", 2), ("ij,ij,ij->i", 3)):
            assert backend.dtype(einsumx.einsum(equation, *[array] * operands)) == dtype, (equation, dtype)


@pytest.mark.parametrize("equation", ["i->", "i,i->", "ij,jk->ik", "ij,ij->i", "i,i,i->", "i,j->ij"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_integers_wrap_and_do_not_widen(backend, dtype, equation):
    info = np.iinfo(dtype)
    shapes = [(7,) * len(term) for term in equation.split("->")[0].split(",")]
    held(backend, equation, *(RNG.integers(info.min, info.max, shape) for shape in shapes), dtype=dtype)


def test_bool_is_or_of_ands(backend):
    a = RNG.random((300, 3)) < 0.3
    b = RNG.random((300, 4)) < 0.3
    a[:, 0] = b[:, 0] = True  # 300 of them, more than a byte counts
    a[:, 1] = False
    result = held(backend, "ij,ik->jk", a, b, dtype="bool")
    assert backend.values(result)[0].tolist() == [True, b[:, 1].any(), b[:, 2].any(), b[:, 3].any()]
    held(backend, "ij->j", a, dtype="bool")
    held(backend, "ij,ij->ij", a, np.flip(a).copy(), dtype="bool")
    held(backend, "ij,ik,il->jkl", a, b, a, dtype="bool")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_accumulates_in_single(backend, dtype):
    if dtype not in backend.dtypes:
        pytest.skip(f"{backend} has no {dtype}")
    for equation, values in (
        ("i->", [np.ones(4096)]),
        ("i,i->", [np.ones(4096), np.ones(4096)]),
        ("ij,jk->ik", [np.ones((2, 4096)), np.ones((4096, 2))]),
        ("i,i,i->", [np.full(3, 256.0), np.full(3, 512.0), np.full(3, 0.0078125)]),  # 256 * 512 is beyond float16
        ("i,i,i->i", [np.full(3, 256.0), np.full(3, 512.0), np.full(3, 0.0078125)]),
        ("ij,j,jk->ik", [np.full((2, 600), 16.0), np.full(600, 16.0), np.full((600, 2), 0.015625)]),
    ):
        result = einsumx.einsum(equation, *(backend.array(value, dtype) for value in values))
        backend.check(result, expect(equation, *(value.astype("float32") for value in values), dtype=dtype))


def test_three_factors_in_half_precision_are_rounded_once(backend):
    a, b, c = (normal(40).astype("float16") for _ in "abc")
    if "float16" in backend.dtypes:
        held(backend, "i,i,i->i", a, b, c, dtype="float16")
        held(backend, "i,j,j->i", a, b, c, dtype="float16")


@pytest.mark.parametrize("equation", ["ij->j", "ij->ji", "ij,ij->ij", "ij,jk->ik", "ij,jk->", "ij->"])
def test_byte_order_makes_no_difference_on_numpy(equation):
    arrays = [normal(4, 4) for _ in equation.split("->")[0].split(",")]
    for order in (["<f8", ">f8"], [">f8", "<f8"], [">f8", ">f8"]):
        result = einsumx.einsum(equation, *(array.astype(dtype) for array, dtype in zip(arrays, order)))
        assert judge(result, expect(equation, *arrays))


# -- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_large_sums_stay_within_the_bound(backend, dtype):
    if dtype not in backend.dtypes:
        pytest.skip(f"{backend} has no {dtype}")
    imaginary = 1j if dtype.startswith("complex") else 0
    a, b = (normal(3, 7, 900) + imaginary * normal(3, 7, 900) for _ in "ab")
    scale = 10.0 ** RNG.integers(-6, 6, 900)
    held(backend, "bik,bjk->bij", a * scale, b / scale, dtype=dtype)
    held(backend, "bik,bjk->", a, b, dtype=dtype)
    held(backend, "bik->b", a, dtype=dtype)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(4, 3), (3, 5)]),
        ("ij,jk->ki", [(4, 3), (3, 5)]),
        ("bij,bjk->bik", [(2, 4, 3), (2, 3, 5)]),
        ("ij->i", [(4, 3)]),
        ("ij->ji", [(4, 3)]),
        ("ij,ij->i", [(4, 3), (4, 3)]),
        ("i,j->ij", [(4,), (5,)]),
        ("i,j->i", [(4,), (5,)]),
        ("ij,jk,kl->il", [(4, 3), (3, 5), (5, 2)]),
        ("ii->i", [(4, 4)]),
    ],
)
def test_inf_and_nan_reach_exactly_the_elements_of_the_plain_sum(backend, equation, shapes, special, request):
    if backend.name == "mxnet" and equation == "ij->i" and np.isinf(special):
        reason = "MXNet's own sum carries the rounding error along, which is inf - inf beside an infinity: nan"
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    for operand in range(len(shapes)):
        values = [np.abs(normal(*shape)) + 0.1 for shape in shapes]
        values[operand][(1,) * len(shapes[operand])] = special
        result = held(backend, equation, *values)
        assert not np.isfinite(backend.values(result)).all()


def test_infinity_times_zero_is_nan(backend):
    if backend.name == "sparse":
        pytest.skip("sparse stores no zero, so that none meets the infinity")
    result = held(backend, "ij,jk->ik", [[np.inf, 1.0], [1.0, 1.0]], [[0.0, 1.0], [1.0, 1.0]])
    assert np.isnan(backend.values(result)).tolist() == [[True, False], [False, False]]


# -- errors ---------------------------------------------------------------------------------------------------------


def test_wrong_sizes_are_told_in_full():
    with pytest.raises(einsumx.SizeError) as raised:
        einsumx.einsum("ab,bc->ac", np.ones((2, 3)), np.ones((4, 5)))
    assert str(raised.value) == (
        "label 'b' has size 3 in operand 0 (axis 1) but size 4 in operand 1 (axis 0)\n  ab,bc->ac"
    )


def test_a_wrong_equation_is_told_in_full():
    with pytest.raises(einsumx.EquationError) as raised:
        einsumx.einsum("ij->ik", np.ones((2, 3)))
    assert str(raised.value) == "label 'k' of the output stands in no operand's subscript\n  ij->ik\n       ^"


def test_errors_are_the_builtin_errors_that_users_catch():
    assert issubclass(einsumx.EquationError, ValueError)
    assert issubclass(einsumx.SizeError, ValueError)
    assert issubclass(einsumx.PathError, ValueError)
    assert issubclass(einsumx.BackendError, TypeError)
    assert issubclass(einsumx.MemoryLimitError, MemoryError)


# -- many operands, many labels -------------------------------------------------------------------------------------


def chain(count):
    """Matrices in a row and a vector at the end, as sublists, with the value computed from the end."""
    rng = np.random.default_rng(3)
    matrices = [rng.uniform(0.8, 1.2, (2, 2)) / 2 for _ in range(count - 1)]
    value = vector = rng.uniform(0.8, 1.2, 2)
    for matrix in reversed(matrices):
        value = (matrix * value).sum(1)
    return [item for k, array in enumerate([*matrices, vector]) for item in (array, [k, k + 1][: array.ndim])], value


def tree(count):
    """A binary tree of tensors, as sublists, with the value computed from the leaves."""
    rng = np.random.default_rng(4)
    children = [[child for child in (2 * k + 1, 2 * k + 2) if child < count] for k in range(count)]
    arrays = [rng.uniform(0.8, 1.2, (2,) * (1 + len(below))) / 2 ** len(below) for below in children]
    values = list(arrays)
    for k in reversed(range(count)):
        for child in reversed(children[k]):
            values[k] = (values[k] * values[child]).sum(-1)
    return [item for k in range(count) for item in (arrays[k], [k, *children[k]])], values[0]


@pytest.mark.parametrize("network", [chain, tree])
def test_a_thousand_operands_plan_and_run_in_two_seconds(backend, network, record_property):
    pairs, value = network(1000)
    arguments = [backend.array(item, backend.float) if k % 2 == 0 else item for k, item in enumerate(pairs)]
    start = time.perf_counter()
    result = backend.values(einsumx.einsum(*arguments, [0]))
    seconds = time.perf_counter() - start
    record_property("seconds", seconds)
    np.testing.assert_allclose(result, value, rtol=1000 * np.finfo(backend.float).eps)
    # The promise is 2 s on a quiet machine; a busy one is given four times as long.
    assert seconds < 8
    if backend == NUMPY:
        assert len(einsumx.plan(*arguments, [0]).ops) < 7 * 1000
