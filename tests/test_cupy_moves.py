"""How many bytes plans on CuPy move, next to ``cupy.einsum``: by CuPy's sources and on a fake, not on a GPU."""

import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from contractions import contraction
from cupy_einsum import moved_by_cupy, moved_by_plan

import einsumx
from einsumx.adapters.registry import get_backend
from einsumx.ir.layout import layout_class
from einsumx.planner.lower import lower

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from problems import all_problems, fitted, laid_out, random_layout, random_pair, sized

DTYPES = ("float32", "complex64", "int32")


def random_pairs(seed, count):
    """Pairs of all layouts, except that no axis has a stride of 0: plans sum along those before they multiply."""
    rng = Random(seed)
    for _ in range(count):
        equation = random_pair(rng)
        sizes = fitted(equation, 2e7, 10 ** rng.uniform(4, 9))
        ranks = map(len, equation.partition("->")[0].split(","))
        drawn = [[random_layout(rng, rank) for _ in range(9)] for rank in ranks]
        layouts = tuple(next(layout for layout in each if "expanded" not in layout) for each in drawn)
        yield sized("random", equation, sizes, layouts=layouts)


def strides_of(problem, dtype):
    """The strides of the operands, in elements."""
    layouts = problem.layouts or ("C",) * len(problem.shapes)
    arrays = [laid_out(lambda shape: np.empty(shape, dtype), *each) for each in zip(problem.shapes, layouts)]
    return [tuple(stride // array.itemsize for stride in array.strides) for array in arrays]


def compared(equation, shapes, strides, dtype):
    """What einsumx and ``cupy.einsum`` move along the same path."""
    operands = [einsumx.Operand(shape, dtype, layout_class(shape, steps)) for shape, steps in zip(shapes, strides)]
    program = lower(contraction(equation, operands, get_backend("cupy").traits("cuda:0"), "cupy"))
    return moved_by_plan(program), moved_by_cupy(equation, shapes, strides, dtype, program.path)


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [*all_problems(0, 0), "random pairs"])
def test_no_plan_on_cupy_copies_in_silence_or_moves_more_bytes_than_cupy_einsum(group, dtype):
    problems = random_pairs(3, 1000) if group == "random pairs" else all_problems(0, 0)[group]
    more = []
    for problem in problems:
        if problem.dtype == "float32" and not problem.gradient:
            ours, theirs = compared(problem.equation, problem.shapes, strides_of(problem, dtype), dtype)
            if ours.silent or ours.total > theirs.total:
                more.append(f"{problem}: {ours.total} of {theirs.total} bytes, {ours.silent} copied by matmul")
    assert not more


def test_the_attention_problem_is_copied_as_rarely_as_its_layout_permits():
    shapes = [(64, 100, 8, 128), (64, 50, 8, 128)]
    strides = [(102400, 1024, 128, 1), (51200, 1024, 128, 1)]
    ours, theirs = compared("bind,bjnd->bnij", shapes, strides, "float32")
    assert ours.copied == theirs.copied == 4 * 64 * 8 * 128 * (100 + 50)
    shapes = [(64, 8, 100, 128), (64, 8, 50, 128)]
    strides = [(102400, 12800, 128, 1), (51200, 6400, 128, 1)]
    ours, theirs = compared("bnid,bnjd->bnij", shapes, strides, "float32")
    assert ours.copied == 4 * 64 * 8 * 128 * 50
    assert theirs.copied == 2 * ours.copied  # of the other operand, which is twice as large


@pytest.mark.parametrize(
    ("equation", "shapes", "orders"),
    [
        ("bind,bjnd->bnij", [(4, 5, 2, 6), (4, 3, 2, 6)], [None, None]),
        ("bnid,bnjd->bnij", [(4, 2, 5, 6), (4, 2, 3, 6)], [None, (0, 1, 3, 2)]),
        ("ab,cb->ca", [(5, 6), (7, 6)], [None, (1, 0)]),
        ("ij,jk,kl->il", [(4, 5), (5, 6), (6, 7)], [None, None, None]),
        ("ij,ij->ij", [(4, 5), (4, 5)], [None, (1, 0)]),
        ("abi,cj->abc", [(3, 4, 5), (6, 7)], [None, None]),
    ],
)
def test_the_counts_are_those_of_kernels_on_the_fake(fake_cupy, equation, shapes, orders):
    def lying(shape, order):
        order = order or range(len(shape))
        packed = fake_cupy.asarray(np.ones([shape[axis] for axis in order], "float32"))
        return packed.transpose([*np.argsort(order)])

    arrays = [lying(*each) for each in zip(shapes, orders)]
    plan = einsumx.plan(equation, *arrays)
    with fake_cupy.fake.counted() as ours:
        plan(*arrays)
    assert not ours.silent
    assert ours.moved == moved_by_plan(plan).total
    with fake_cupy.fake.counted() as theirs:
        fake_cupy.einsum(equation, *arrays)
    strides = [tuple(stride // 4 for stride in array.strides) for array in arrays]
    expected = moved_by_cupy(equation, shapes, strides, "float32", [tuple(range(len(shapes)))])
    assert (theirs.moved, sum(nbytes for _, nbytes in theirs.silent)) == (expected.total, expected.copied)
