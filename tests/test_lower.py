"""Which calls a contraction becomes: the fewest copies that the framework's traits and the operands' layouts allow."""

import dataclasses

import numpy as np
import pytest
from contractions import contraction

import einsumx
from einsumx import Traits
from einsumx.backends.mxnet.choices import AROUND_BATCH
from einsumx.ir.ops import Copy, Expand, First, Matmul, Multiply, Native, Reshape, Sum, Transpose
from einsumx.planner.lower import lower
from einsumx.plans import as_plan, plan_cost


def ops_of(plan, *kinds):
    return [op for op in plan.ops if isinstance(op, kinds)]


def copies(plan):
    return [op for op in plan.ops if isinstance(op, Copy) or (isinstance(op, Transpose) and op.reason)]


def arithmetic(plan):
    return [type(op) for op in plan.ops if isinstance(op, Matmul | Multiply | Sum | Native)]


ATTENTION = [
    ("bnid,bnjd->bnij", (64, 8, 100, 128), (64, 8, 50, 128)),
    ("bind,bjnd->bnij", (64, 100, 8, 128), (64, 50, 8, 128)),
    ("bind,jnd->bnij", (64, 100, 8, 128), (50, 8, 128)),
]


@pytest.mark.parametrize("backend", ["numpy", "torch", "mxnet", "jax", "array_api", "cupy"])
@pytest.mark.parametrize(("equation", "lhs", "rhs"), ATTENTION)
def test_attention_is_one_product_on_every_backend_and_on_numpy_without_a_copy(backend, equation, lhs, rhs):
    plan = einsumx.plan(equation, lhs, rhs, dtypes="float32", backend=backend)
    kinds = [Native] if backend == "jax" else [Matmul]
    # MXNet 1 has a product with a batch axis between rows and columns, which its kernel of this einsum is.
    assert arithmetic(plan) in (kinds, [Native] if backend == "mxnet" else kinds)
    assert backend != "numpy" or copies(plan) == []


@pytest.mark.parametrize(
    ("equation", "shapes", "kinds"),
    [
        ("ij,jk->ik", [(20, 30), (30, 40)], [Matmul]),
        ("ij,kj->ik", [(20, 30), (40, 30)], [Matmul]),
        ("ij,j->i", [(20, 30), (30,)], [Matmul]),
        ("ij,ij->ij", [(200, 30), (200, 30)], [Multiply]),
        ("i,j->ij", [(200,), (30,)], [Multiply]),
        ("ij->i", [(200, 30)], [Sum]),
        ("ij->i", [(2, 3)], [Native]),
        ("ij->ji", [(20, 30)], []),
        ("ii->i", [(20, 20)], []),
        ("ij,jk,kl->il", [(20, 30), (30, 40), (40, 5)], [Matmul, Matmul]),
        ("ijk,ikl->jl", [(20, 30, 40), (20, 40, 50)], [Matmul]),
        ("ij,jk->", [(20, 30), (30, 40)], [Sum, Sum, Matmul]),
        ("ij,k->i", [(20_000, 30), (40,)], [Sum, Sum, Multiply]),
        ("ijx,jk->ik", [(20, 30, 50), (30, 40)], [Sum, Matmul]),
    ],
)
def test_each_contraction_is_the_arithmetic_that_it_needs(equation, shapes, kinds):
    assert arithmetic(einsumx.plan(equation, *shapes)) == kinds


@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [
        (np.ones((30, 20)).T, np.ones((30, 40))),
        (np.ones((20, 30)), np.ones((40, 30)).T),
        (np.ones((20, 99))[:, :30], np.ones((90, 40))[:30]),
    ],
    ids=["transposed left", "transposed right", "gaps between rows"],
)
def test_what_blas_can_read_is_read_where_it_lies(lhs, rhs):
    assert copies(einsumx.plan("ij,jk->ik", lhs, rhs)) == []


def test_what_blas_cannot_read_is_copied_once_and_says_why():
    plan = einsumx.plan("ij,jk->ik", np.ones((20, 60))[:, ::2], np.ones((30, 40)))
    (copy,) = copies(plan)
    assert copy.reason == "no axis of its matrices has unit stride"
    plan = einsumx.plan("ikl,klj->ij", np.ones((20, 30, 40)).transpose(0, 1, 2)[:, ::2], np.ones((15, 40, 50)))
    (copy,) = copies(plan)
    assert "do not merge" in copy.reason


def test_batch_axes_that_do_not_merge_cost_a_copy_only_where_matrices_must_lie_one_after_another():
    shapes = [(6, 7, 20, 30), (7, 6, 30, 40)]
    assert copies(einsumx.plan("abij,bajk->abik", *shapes, backend="numpy")) == []
    assert copies(einsumx.plan("abij,bajk->abik", *shapes, backend="torch")) == []
    assert len(copies(einsumx.plan("abij,bajk->abik", *shapes, backend="cupy"))) == 1


def test_a_broadcast_axis_is_dropped_before_it_is_computed_with():
    plan = einsumx.plan("ij,jk->ik", (20, 1), (30, 40))
    assert [(op.src, op.axes) for op in ops_of(plan, Sum)] == [(1, (0,))]
    assert arithmetic(plan) == [Sum, Native]


def test_a_copy_that_is_cheaper_than_many_small_products_says_so():
    gaps = np.ones((*(7,) * 6, 9))[:6, :6, :6, :6, :6, :6, :8]
    (copy,) = copies(einsumx.plan("abcdefk,kl->abcdefl", gaps, np.ones((8, 20))))
    assert "a product for each takes longer than the copy" in copy.reason


@pytest.mark.parametrize("backend", ["tensorflow", "paddle", "mxnet", "array_api"])
@pytest.mark.parametrize("equation", ["bhqd,bhqkd->bhqk", "bhqkd,bhqd->bhqk", "bhqk,bhqkd->bhqd", "bhqkd,bhqk->bhqd"])
def test_beside_a_vector_no_flag_transposes_the_matrix(backend, equation):
    subscripts = equation.partition("->")[0].split(",")
    shapes = [[{"b": 20, "h": 3, "q": 40, "k": 6, "d": 50}[label] for label in each] for each in subscripts]
    plan = einsumx.plan(equation, *map(tuple, shapes), dtypes="float32", backend=backend)
    assert copies(plan) == []
    (product,) = ops_of(plan, Matmul)
    matrix = subscripts.index("bhqkd")
    flags = dict(zip(product.sources, (product.transpose_lhs, product.transpose_rhs)))
    read = {op.out: op.src for op in ops_of(plan, Reshape)}
    assert [flag for slot, flag in flags.items() if read.get(slot, slot) == matrix] == [False]


def test_an_axis_of_stride_0_is_no_data():
    query, keys = np.ones((8, 1000, 32), "f4"), np.ones((8, 1, 100, 32), "f4")
    plan = einsumx.plan("bqd,bqkd->bqk", query, np.broadcast_to(keys, (8, 1000, 100, 32)))
    assert [op.axes for op in ops_of(plan, First)] == [(1,)]
    assert copies(plan) == []
    shared = einsumx.plan("bqd,bkd->bqk", query, keys[:, 0])
    assert arithmetic(plan) == arithmetic(shared) == [Matmul]


def test_what_all_operands_only_repeat_is_written_out_at_the_end():
    row = np.broadcast_to(np.arange(400.0), (300, 400))
    plan = einsumx.plan("ij,ij->ij", row, row)
    assert [op.axes for op in ops_of(plan, First)] == [(0,), (0,)]
    assert [op.shape for op in ops_of(plan, Expand)] == [(300, 400)]
    (copy,) = copies(plan)
    assert "repeat themselves" in copy.reason


def test_a_result_is_a_slot_of_its_own():
    for equation in ("ij->ij", "...->...", "->"):
        rank = 2 if equation != "->" else 0
        plan = einsumx.plan(equation, (3,) * rank)
        assert plan.result >= len(plan.operands)
        assert [type(op) for op in plan.ops] == [Reshape]


def lowered(equation, shapes, traits, dtype):
    """The plan of two operands for a framework of these traits."""
    return as_plan(lower(contraction(equation, [einsumx.Operand(shape, dtype) for shape in shapes], traits)))


def test_tiny_work_goes_to_the_native_kernel_where_that_is_faster():
    traits = Traits(native_dtypes=frozenset({"int32"}), native_max_labels=10, native_max_operands=15)
    without = dataclasses.replace(traits, native_dtypes=frozenset())
    for each, kinds in ((traits, [Native]), (without, [Multiply, Sum])):
        assert arithmetic(lowered("ij,jk->ik", [(2, 3), (3, 4)], each, "int32")) == kinds


@pytest.mark.parametrize(
    ("equation", "shapes", "made", "views"),
    [
        ("ac,abc->cb", [(2, 2000), (2, 2, 2000)], "ab,acb->cb", 1),  # its rows would be strided in the result
        ("dbca,ba->cad", [(3, 8, 8, 32), (8, 32)], "abcd,bd->acd", 1),
        ("abc,b->ca", [(4, 30, 40), (30,)], "abc,b->ac", 1),
        ("abc,b->ca", [(2, 30, 40), (30,)], "abc,b->ca", 0),  # NumPy leaves a small result in that order in memory
    ],
)
def test_a_native_result_follows_the_operands_in_memory_if_a_view_is_cheaper(equation, shapes, made, views):
    plan = einsumx.plan(equation, *shapes, dtypes="float32")
    assert [op.equation for op in ops_of(plan, Native)] == [made]
    assert len(ops_of(plan, Transpose)) == views
    assert copies(plan) == []


class MultipliesApart(Traits):
    """The own einsum multiplies matrices whose rows are not adjacent."""

    __slots__ = ()

    def einsum_factor(self, equation):
        return 1.3 if equation in AROUND_BATCH else None


@pytest.mark.parametrize(
    ("equation", "shapes", "made"),
    [
        ("bind,bjnd->binj", [(64, 20, 8, 64), (64, 10, 8, 64)], "abcd,aecd->abce"),
        ("bind,bjnd->bjni", [(64, 20, 8, 64), (64, 10, 8, 64)], "abcd,aecd->abce"),
        ("bdni,bdnj->binj", [(64, 64, 8, 20), (64, 64, 8, 10)], "abcd,abce->adce"),
        ("bind,bdnj->binj", [(64, 20, 8, 64), (64, 64, 8, 10)], "abcd,adce->abce"),
        ("bdni,bjnd->binj", [(64, 64, 8, 20), (64, 10, 8, 64)], "abcd,aecb->adce"),
        ("bcind,bcjnd->bcinj", [(8, 8, 20, 8, 64), (8, 8, 10, 8, 64)], "abcd,aecd->abce"),
        ("bxind,bjnd->binxj", [(64, 1, 20, 8, 64), (64, 10, 8, 64)], "abcd,aecd->abce"),
    ],
)
def test_a_batch_axis_stays_between_rows_and_columns_where_the_own_einsum_multiplies_such_matrices(
    equation, shapes, made
):
    plain = {"arrays": "packed", "max_batch_axes": 1, "transpose_flags": True}
    numbers = {"matmul_dtypes": frozenset({"float32"}), "native_dtypes": frozenset({"float32"})}
    plan = lowered(equation, shapes, MultipliesApart(**plain, **numbers), "float32")
    assert [(type(op), getattr(op, "equation", "")) for op in plan.ops if op.effect != "view"] == [(Native, made)]
    assert plan_cost(plan).multiply_adds == 64 * 20 * 10 * 8 * 64
    arrays = [np.random.default_rng(0).integers(-3, 4, shape).astype("float32") for shape in shapes]
    values = dict(enumerate(arrays))
    for op in plan.ops:
        taken = [values[slot] for slot in op.sources]
        values[op.out] = np.einsum(op.equation, *taken) if isinstance(op, Native) else taken[0].reshape(op.shape)
    assert (values[plan.result] == np.einsum(equation, *arrays)).all()
    assert Native not in arithmetic(lowered(equation, shapes, Traits(**plain, **numbers), "float32"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"widen": ("float16", "float32")},
            r"Traits\(widen=\) must be a tuple of pairs, as \(\('float16', 'float32'\),\), not",
        ),
        ({"matmul_through": {"bool": "float32"}}, r"Traits\(matmul_through=\) must be a tuple of pairs"),
        ({"rates": 1}, r"Traits\(rates=\) must be einsumx.ir.rates.Rates\(...\), not 1"),
    ],
)
def test_traits_of_a_wrong_kind_are_errors(wrong, message):
    with pytest.raises(TypeError, match=message):
        Traits(**wrong)
