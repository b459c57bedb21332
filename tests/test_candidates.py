"""Candidates: different plans for one contraction, each right, and selections that pick them by name."""

from typing import NamedTuple

import numpy as np
import pytest
from backends_under_test import INSTALLED
from contractions import contraction

from einsumx.adapters.registry import get_backend
from einsumx.ir.cost import program_seconds
from einsumx.ir.operand import Operand
from einsumx.ir.verify import verify
from einsumx.planner.candidates import candidates, selected_program
from einsumx.planner.selection import ESTIMATE, Selection, different
from einsumx.plans import Plan, as_plan
from einsumx.runtime.execute import run_of

PROBLEMS = {
    "bind,bjnd->bnij": ((4, 6, 3, 5), (4, 7, 3, 5)),
    "ij,jk->ik": ((30, 20), (20, 40)),
    "ij,ji->": ((20, 30), (30, 20)),
    "abc,cbd->da": ((4, 5, 6), (6, 5, 7)),
    "bi,bi->b": ((6, 20), (6, 20)),
    "iij,jk->ik": ((5, 5, 6), (6, 7)),
    "ij,jk,kl->il": ((5, 40), (40, 6), (6, 30)),
    "ab,bc,cd,de->ae": ((3, 4), (4, 5), (5, 6), (6, 7)),
    "ijk,k->ij": ((5, 6, 7), (7,)),
}

LARGE = {
    "ij,jk->ki": {"i": 300, "j": 40, "k": 8},
    "jbi,kjb->kbi": {"b": 40, "i": 40, "j": 8, "k": 300},
    "cabd,ebdc->eab": {"a": 8, "b": 40, "c": 3, "d": 40, "e": 8},
    "abcd,dbef->eafc": {"a": 40, "b": 3, "c": 8, "d": 40, "e": 3, "f": 40},
}


def on(adapter, equation, shapes, **options):
    operands = [Operand(shape, "float32") for shape in shapes]
    return contraction(equation, operands, adapter.traits(""), adapter.name, **options)


def estimates(tried):
    """The estimated seconds of each candidate."""
    return [program_seconds(program, program.contraction.place.traits) for program in tried.values()]


def all_candidates(adapter, equation, shapes, most=None):
    return candidates(on(adapter, equation, shapes), most)


@pytest.mark.long
@pytest.mark.parametrize("backend", INSTALLED, ids=str)
def test_every_candidate_is_right(backend):
    compiles = backend.name in ("jax", "tinygrad")  # each program anew, which takes long
    for equation in ["ij,jk->ik", "ij,jk,kl->il"] if compiles else PROBLEMS:
        shapes = PROBLEMS[equation]
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
        expected = np.einsum(equation, *[array.astype("float64") for array in arrays])
        for program in all_candidates(backend.adapter, equation, shapes).values():
            verify(program)
            result = run_of(program, backend.adapter)(*map(backend.array, arrays))
            np.testing.assert_allclose(backend.values(result), expected, 1e-4, 1e-4)


@pytest.mark.parametrize("backend", INSTALLED, ids=str)
def test_the_first_candidate_is_the_estimates_and_all_differ(backend):
    tried = all_candidates(backend.adapter, "abc,cbd->da", PROBLEMS["abc,cbd->da"])
    assert next(iter(tried)) == ESTIMATE
    assert len({program.ops for program in tried.values()}) == len(tried)


def test_no_more_candidates_than_wanted_and_none_that_is_far_behind():
    tried = all_candidates(INSTALLED[0].adapter, "bind,bjnd->bnij", ((64, 100, 8, 128), (64, 50, 8, 128)), most=8)
    assert 1 < len(tried) <= 8
    first, *others = estimates(tried)
    assert max(others) <= 6 * first


def test_a_large_product_has_candidates_of_both_sides_copies_and_threads():
    tried = all_candidates(INSTALLED[0].adapter, "bind,bjnd->bnij", ((64, 100, 8, 128), (64, 50, 8, 128)))
    names = [name for selection in tried for name in selection.steps]
    assert any("swapped" in name for name in names)
    assert any("swapped" not in name for name in names)
    assert any(name.endswith("pool") for name in names)
    assert any(name.endswith("blas") for name in names)
    assert any(op.effect == "copy" for program in tried.values() for op in program.ops)


@pytest.mark.parametrize("backend", ["numpy", "torch", "cupy", "mxnet"])
def test_no_candidate_for_a_large_product_has_a_lower_estimate_than_the_plan_that_is_taken(backend):
    adapter = get_backend(backend)
    for equation, sizes in LARGE.items():
        shapes = [tuple(sizes[label] for label in term) for term in equation.partition("->")[0].split(",")]
        tried = all_candidates(adapter, equation, shapes)
        first, *others = estimates(tried)
        assert min(others) >= first / 1.05, equation


def test_a_network_has_candidates_with_other_paths_unless_the_user_passed_one():
    equation, shapes = "ij,jk,kl->il", PROBLEMS["ij,jk,kl->il"]
    tried = all_candidates(INSTALLED[0].adapter, equation, shapes)
    assert {program.path for program in tried.values()} == {((0, 1), (0, 1)), ((0, 2), (0, 1)), ((1, 2), (0, 1))}
    path = ((1, 2), (0, 1))
    tried = candidates(on(INSTALLED[0].adapter, equation, shapes, optimize=path), None, is_path_free=False)
    assert {program.path for program in tried.values()} == {path}
    assert len(tried) > 1


@pytest.mark.parametrize("names", [("",), ("matmul",), ("matmul 0.1*2 0", "einsum"), ("one einsum", ""), ("\0é",)])
def test_names_that_no_candidate_has_change_nothing(names):
    product = on(INSTALLED[0].adapter, "ij,jk->ik", ((30, 20), (20, 40)))
    chosen = selected_program(product, Selection(None, names))
    assert chosen.ops == selected_program(product, ESTIMATE).ops


def test_a_selection_serves_other_sizes():
    adapter = INSTALLED[0].adapter
    tried = all_candidates(adapter, "abc,cbd->da", ((40, 50, 60), (60, 50, 70)))
    for selection, program in tried.items():
        other = selected_program(on(adapter, "abc,cbd->da", ((41, 52, 63), (63, 52, 74))), selection)
        assert [type(op) for op in other.ops] == [type(op) for op in program.ops]


class Named(NamedTuple):
    name: str
    seconds: float
    kind: str


def test_the_fastest_of_each_kind_comes_first():
    listed = [Named("a", 1.0, "x"), Named("b", 2.0, "x"), Named("c", 3.0, "y")]
    assert [each.name for each in different(listed)] == ["a", "c", "b"]


@pytest.mark.parametrize("backend", INSTALLED, ids=lambda backend: backend.name)
def test_every_candidate_is_stored_with_its_name_and_read_back(backend):
    shapes = (41, 52, 63), (63, 52, 74), (74, 30)
    for program in all_candidates(backend.adapter, "abc,cbd,de->ea", shapes).values():
        plan = as_plan(program)
        read = Plan.from_json(plan.to_json())
        assert (read, read.choices) == (plan, plan.choices)
