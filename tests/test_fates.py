"""What becomes of a contraction: a table of operands and of the words for how they are computed, by sizes and layouts.

A word is the fate of one step, see :data:`einsumx.planner.array_calls.Fate`; "search" stands for what is not clear.
"""

import itertools
import math
import random

import numpy as np
import pytest

import einsumx
from einsumx.adapters.registry import get_backend
from einsumx.backends.array_api import ArrayApiAdapter
from einsumx.ir.operand import Operand
from einsumx.planner import clear, packed
from einsumx.planner.array_calls import Laid
from einsumx.planner.lower import lower
from einsumx.planner.rules import rules_of
from einsumx.planner.strided import needs_no_view
from einsumx.runtime import staged
from einsumx.runtime.conversion import described
from einsumx.runtime.front import contraction
from einsumx.runtime.request import Request

NUMPY = get_backend("numpy")


def fates(equation, *operands, backend="numpy"):
    """The fate of each step for operands that are shapes, or shapes, dtypes and strides."""
    described = [Operand(*each) if isinstance(each[0], tuple) else Operand(each, "float64") for each in operands]
    asked = contraction(Request(equation, ()), get_backend(backend), tuple(described), "cpu")
    parts = clear.direct_parts(asked)
    return "search" if parts is None else ", ".join(part.calls.fate for part in parts)


def turned(*shape):
    """An operand in Fortran order."""
    return shape, "float64", tuple(math.prod(shape[:axis]) for axis in range(len(shape)))


def gaps(rows, cols):
    """A matrix with gaps between its rows."""
    return (rows, cols), "float64", (cols + 1, 1)


TABLE = [
    # One operand.
    ("ij->ji", [(30, 40)], "view"),
    ("ij->ij", [(30, 40)], "view"),
    ("ij->i", [(300, 400)], "sum"),
    ("ij->i", [(3, 4)], "einsum"),
    ("ii->", [(5, 5)], "einsum"),
    ("ii->", [(5000, 5000)], "diagonal, sum"),
    # Products of matrices, in place.
    ("ij,jk->ik", [(5, 5), (5, 5)], "matmul"),
    ("ij,jk->ik", [(300, 400), (400, 500)], "matmul"),
    ("ij,kj->ki", [(300, 400), (500, 400)], "matmul"),
    ("ij,jk->ik", [gaps(300, 400), turned(400, 500)], "matmul"),
    ("bij,bjk->bik", [(40, 30, 30), (40, 30, 30)], "matmul"),
    ("bind,bjnd->bnij", [(2, 100, 4, 16), (2, 120, 4, 16)], "matmul"),
    ("abcd,cdef->abef", [(4, 5, 6, 7), (6, 7, 8, 9)], "matmul"),
    ("i,i->", [(500,), (500,)], "matmul"),
    ("ij,j->i", [(500, 400), (400,)], "matmul"),
    # Too small for the calls around a product of matrices.
    ("bij,bjk->bik", [(2, 2, 2), (2, 2, 2)], "einsum"),
    ("abc,cab->b", [(3, 4, 5), (5, 3, 4)], "einsum"),
    # Copies that take less time than a search, and others.
    ("abc,bda->cd", [(8, 9, 10), (9, 11, 8)], "matmul of copies"),
    ("abc,bda->cd", [(80, 90, 100), (90, 110, 80)], "matmul in loops"),
    # Free axes that do not merge are axes of the batch.
    ("abc,bd->acd", [(30, 40, 50), (40, 60)], "matmul in loops"),
    # Nothing is summed.
    ("ij,ij->ij", [(300, 400), (300, 400)], "multiply"),
    ("i,j->ij", [(300,), (400,)], "multiply"),
    ("i,j->ij", [(8,), (9,)], "einsum"),
    # Products of vectors.
    ("bi,bi->b", [(300, 400), (300, 400)], "matmul"),
    # Networks.
    ("ij,jk,kl->il", [(30, 40), (40, 50), (50, 60)], "matmul, matmul"),
    ("abc,bdef,cfg->adeg", [(9, 3, 9), (3, 3, 2, 2), (9, 2, 9)], "matmul, matmul of copies"),
    # Repeated labels, other dtypes, and sizes of 0.
    ("iij->ji", [(30, 30, 40)], "diagonal"),
    ("iij->ij", [(2, 2, 3)], "diagonal, view"),
    ("ii,ij->j", [(2, 2), (2, 3)], "einsum"),
    ("iik,kj->ij", [(30, 30, 40), (40, 50)], "diagonal, matmul"),
    ("bii,bij->bj", [(30, 40, 40), (30, 40, 50)], "diagonal, matmul of copies"),
    ("ij,jk->ik", [((300, 400), "float32"), (400, 500)], "cast, matmul"),
    ("ij,jk->ik", [((2, 2), "int64"), ((2, 2), "bool")], "cast, einsum"),
    ("iij,jk,kl->il", [((30, 30, 40), "float32"), (40, 50), ((50, 60), "int8")], "cast, cast, matmul, matmul"),
    ("ij,jk->ik", [(300, 0), (0, 500)], "zeros"),
    ("iij,jk,kl->", [((3, 3, 4), "int8"), (4, 0), (0, 6)], "zeros"),
    # Axes of size 1 are like others in arrays in C order that are read in place; else they are dropped, as where they
    # broadcast.
    ("ij,jk->ik", [(1, 400), (400, 500)], "matmul"),
    ("bind,bjnd->bnij", [(1, 100, 4, 16), (1, 120, 4, 16)], "matmul"),
    ("ij,jk->ik", [(300, 1), (1, 500)], "multiply"),
    ("ij,jk->ik", [(300, 1), (400, 500)], "multiply"),
    ("abc,cab->ac", [(30, 1, 500), turned(500, 30, 1)], "multiply"),
]


@pytest.mark.parametrize(("equation", "operands", "expected"), TABLE)
def test_the_fate_of_a_contraction(equation, operands, expected):
    assert fates(equation, *operands) == expected


@pytest.mark.parametrize(
    ("equation", "operands", "expected"),
    [
        ("abcd,cbad->bd", [(9, 10, 11, 4), (11, 10, 9, 4)], "multiply and sum"),
        ("ab,ab->a", [(3, 700), (3, 700)], "matmul"),
        ("abc,cab->", [(9, 10, 11), (11, 9, 10)], "matmul of copies"),
        ("bnid,bnjd->bnij", [(2, 4, 100, 16), (2, 4, 120, 16)], "matmul"),
        ("bind,bjnd->bnij", [(2, 100, 4, 16), (2, 120, 4, 16)], "matmul"),
    ],
)
def test_the_fate_of_a_contraction_without_an_einsum_of_small_arrays_and_with_one_batch_axis(
    equation, operands, expected
):
    assert fates(equation, *operands, backend="torch") == expected


@pytest.mark.parametrize("backend", ["mxnet", "jax"])
def test_other_memory_models_have_no_fate(backend):
    assert fates("ij,jk->ik", (30, 40), (40, 50), backend=backend) == "search"


def test_a_product_of_matrices_or_elements_takes_these_as_they_are():
    assert needs_no_view((0, 1), (1, 2), (0, 2))
    assert needs_no_view((0, 1), (0, 1), (0, 1))
    assert not needs_no_view((0, 1), (0, 1), (0,))
    assert not needs_no_view((0, 1, 2), (2, 3), (0, 1, 3))


def problem(draw, least, most, operands, repeats=0.0, dtypes=()):
    """A random contraction of arrays in random memory orders, some with axes of size 1 that broadcast.

    ``repeats`` is the chance of an operand to have a label once more; these do not broadcast. The dtypes are float64 by
    default.
    """
    while True:
        labels = draw.sample("abcdefghij", draw.randint(2, 6))
        sizes = {
            label: draw.randint(1 + (draw.random() < 0.9), max(2, round(most ** (1 / len(labels)) * 1.6)))
            for label in labels
        }
        terms = [draw.sample(labels, draw.randint(1, len(labels))) for _ in range(operands)]
        if set().union(*terms) != set(labels) or not least <= math.prod(sizes.values()) < most:
            continue
        output = [label for label in labels if draw.random() < 0.5]
        arrays = []
        for term in terms:
            if repeats and draw.random() < repeats:
                term.insert(draw.randint(0, len(term)), draw.choice(term))
            order = draw.sample(range(len(term)), len(term)) if draw.random() < 0.3 else list(range(len(term)))
            shape = [sizes[label] if repeats or draw.random() < 0.97 else 1 for label in term]
            array = (np.arange(math.prod(shape)) % 7 - 3).astype(draw.choice(dtypes) if dtypes else "float64")
            array = array.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
            arrays.append(array)
        return f"{','.join(map(''.join, terms))}->{''.join(output)}", arrays


@pytest.mark.parametrize(
    ("operands", "least", "most", "share"), [(2, 1, 3000, 0.95), (2, 3000, 100_000, 0.95), (3, 100, 20_000, 0.95)]
)
def test_most_first_calls_need_no_search_and_compute_what_their_plan_does(operands, least, most, share):
    draw = random.Random(operands + most)
    count, staged_count = 150, 0
    for _ in range(count):
        equation, arrays = problem(draw, least, most, operands)
        run = staged.run_of(NUMPY, equation, list(map(NUMPY.signature, arrays)))
        planned = einsumx.plan(equation, *arrays)(*arrays)
        np.testing.assert_array_equal(planned, np.einsum(equation, *arrays, optimize=True))
        if run is not None:
            staged_count += 1
            result = run(*arrays)
            assert result.tobytes() == planned.tobytes(), equation
            assert result.strides == planned.strides, equation
    assert staged_count >= share * count


@pytest.mark.long
@pytest.mark.parametrize("operands", [1, 2, 3, 4])
def test_all_first_calls_on_packed_arrays_need_no_plan_and_compute_what_theirs_does(operands):
    strict = pytest.importorskip("array_api_strict")
    adapter, draw = ArrayApiAdapter(strict), random.Random(operands)
    for _ in range(60):
        equation, arrays = problem(draw, 1, 20_000, operands)
        packed = [strict.asarray(np.ascontiguousarray(array)) for array in arrays]
        result = np.asarray(staged.run_of(adapter, equation, list(map(adapter.signature, packed)))(*packed))
        planned = np.asarray(einsumx.plan(equation, *packed)(*packed))
        np.testing.assert_array_equal(planned, np.einsum(equation, *arrays, optimize=True))
        assert (result.shape, result.tobytes()) == (planned.shape, planned.tobytes()), equation


@pytest.mark.parametrize("backend", ["array_api", "tensorflow", "paddle"])
def test_calls_on_packed_arrays_are_those_of_their_plan(backend):
    draw, adapter = random.Random(3), get_backend(backend)
    for _ in range(150):
        equation, arrays = problem(draw, 1, 20_000, draw.randint(1, 4))
        operands = tuple([Operand(array.shape, "float32") for array in arrays])
        asked = contraction(Request(equation, ()), adapter, operands, "cpu")
        roles = clear.roles_of(asked.equation.inputs, asked.equation.output)
        rules = rules_of(asked.place.traits, "float32")
        parts = clear.clear_parts(roles, operands, asked.path, asked.equation.sizes, rules)
        ops = [op for part in parts for op in part.calls.ops(part.sizes, part.slots, part.start)]
        assert without_slots(ops) == without_slots(lower(asked).ops), equation


def without_slots(ops):
    """Calls without their slots, as views may come early or late."""
    return sorted([str(op.renamed(dict.fromkeys((op.out, *op.sources), 0))) for op in ops])


MIXED = "float64", "float32", "complex64", "int64", "int32", "int8", "bool"


@pytest.mark.long
@pytest.mark.parametrize(
    ("operands", "repeats", "dtypes", "has_zero", "share"),
    [
        (1, 1, [], False, 1),
        (2, 0.6, ["float32"], False, 0.95),
        (3, 0.4, [], False, 0.9),
        (2, 0, MIXED, False, 0.7),
        (3, 0, MIXED, False, 0.8),
        (2, 0.3, MIXED, False, 0.7),
        (3, 0.3, MIXED, True, 1),
        (2, 0, ["int32"], True, 1),
    ],
)
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_calls_with_repeated_labels_other_dtypes_and_sizes_of_0_compute_what_their_plan_does(
    backend, operands, repeats, dtypes, has_zero, share
):
    pytest.importorskip(backend)
    adapter, draw, staged_count, count = get_backend(backend), random.Random(operands), 0, 60
    for _ in range(count):
        equation, arrays = problem(draw, 1, 20_000, operands, repeats, dtypes)
        if has_zero:
            terms = equation.partition("->")[0].split(",")
            empty = {draw.choice(terms[0]): slice(0)}
            arrays = [
                array[tuple(empty.get(label, slice(None)) for label in term)] for term, array in zip(terms, arrays)
            ]
        own = [adapter.from_numpy(array) for array in arrays]
        run = staged.run_of(adapter, equation, list(map(adapter.signature, own)))
        planned = einsumx.plan(equation, *own)(*own)
        np.testing.assert_array_equal(adapter.to_numpy(planned), np.einsum(equation, *arrays))
        if run is not None:
            staged_count += 1
            result = run(*own)
            assert result.dtype == planned.dtype
            assert adapter.to_numpy(result).tobytes() == adapter.to_numpy(planned).tobytes(), equation
            assert adapter.signature(result) == adapter.signature(planned), equation
    assert staged_count >= share * count


def test_sizes_alone_ask_for_no_new_recipe():
    einsumx.cache_clear()
    einsumx.einsum("bind,bjnd->bnij", np.ones((2, 10, 4, 16)), np.ones((2, 12, 4, 16)))
    found = clear.roles_of(((0, 1, 2, 3), (0, 4, 2, 3)), (0, 2, 1, 4))
    arrays = Laid((0, 1, 2, 3)), Laid((0, 4, 2, 3))
    recipe = found.pair(*arrays)
    einsumx.einsum("bind,bjnd->bnij", np.ones((3, 11, 5, 16)), np.ones((3, 13, 5, 16)))
    assert found.pair(*arrays) is recipe
    einsumx.einsum("wxyz,wvyz->wyxv", np.ones((3, 11, 5, 16)), np.ones((3, 14, 5, 16)))
    assert clear.roles_of(((0, 1, 2, 3), (0, 4, 2, 3)), (0, 2, 1, 4)) is found


def test_sizes_alone_ask_for_no_new_recipe_of_packed_arrays():
    strict, shapes = pytest.importorskip("array_api_strict"), [((2, 3, 4), (4, 5)), ((3, 4, 5), (5, 7))]
    counts = []
    for lhs, rhs in shapes:
        einsumx.einsum("abc,cd->dba", strict.ones(lhs), strict.ones(rhs))
        counts.append(packed.recipe_of.cache_info().misses)
    assert counts[0] == counts[1]


def test_what_a_product_depends_on_is_found_once():
    traits = NUMPY.traits("cpu")
    assert rules_of(traits, "float64") is rules_of(traits, "float64")
    assert not rules_of(traits, "float16").is_direct


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_no_candidate_for_tuning_is_cheaper_than_the_way_that_is_taken(backend):
    draw, count = random.Random(7), 0
    rules = rules_of(get_backend(backend).traits("cpu"), "float64")
    while count < 25:
        equation, arrays = problem(draw, 20_000, 2_000_000, 2)
        asked = contraction(Request(equation, ()), NUMPY, described(NUMPY, tuple(map(NUMPY.signature, arrays))), "cpu")
        inputs, output, sizes = asked.equation.inputs, asked.equation.output, asked.equation.sizes
        recipe = clear.roles_of(inputs, output).pair(*map(Laid, inputs)).without(clear.ones_of(sizes))
        if not recipe.left.inner:
            continue
        ways = clear.ways_of(recipe, rules)
        candidates = [(way.seconds(sizes, rules), way.calls(rules)) for way in ways.products(sizes, every=True)]
        candidates += [(seconds, calls()) for _, seconds, calls in ways.others(sizes, rules)]
        taken = ways.fastest(sizes, rules).ops(sizes, (0, 1), 2)
        seconds = [seconds for seconds, calls in candidates if calls.ops(sizes, (0, 1), 2) == taken]
        assert min(seconds) == min([seconds for seconds, _ in candidates]), equation
        count += 1


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_ops_fit_axes_of_size_1_wherever_they_are(backend):
    for sizes in itertools.product((1, 3), repeat=5):
        size = dict(zip("bindj", sizes))
        operands = tuple([Operand(tuple([size[label] for label in term]), "float32") for term in ("bind", "bjnd")])
        asked = contraction(Request("bind,bjnd->bnij", ()), get_backend(backend), operands, "cpu")
        assert lower(asked).values[-1].shape == tuple([size[label] for label in "bnij"])


def test_an_axis_of_size_0_beside_one_that_broadcasts_is_a_size_of_0():
    arrays = np.ones((0, 2, 3)), np.ones((1, 3, 4))
    assert staged.run_of(NUMPY, "bij,bjk->bik", list(map(NUMPY.signature, arrays)))(*arrays).shape == (0, 2, 4)
