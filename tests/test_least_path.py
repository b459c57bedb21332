"""``optimize="optimal"`` and ``"branch-all"``: a path of the least arithmetic, for many operands too."""

import random
from itertools import combinations

import numpy as np
import pytest
from opt_einsum.helpers import flop_count
from opt_einsum.paths import optimal

import einsumx
from einsumx.planner.search import least_path


def step_cost(lhs, rhs, others, output, sizes):
    kept = frozenset().union(output, *others)
    return flop_count(lhs | rhs, bool(lhs & rhs - kept), 2, sizes), (lhs | rhs) & kept


def cost(terms, output, sizes, path):
    terms, total = list(terms), 0
    for step in path:
        rhs, lhs = (terms.pop(place) for place in sorted(step, reverse=True))
        work, result = step_cost(lhs, rhs, terms, output, sizes)
        total += work
        terms.append(result)
    assert len(terms) == 1
    return total


def least_of_all(terms, output, sizes):
    if len(terms) == 1:
        return 0
    found = []
    for first, second in combinations(range(len(terms)), 2):
        others = [term for place, term in enumerate(terms) if place not in (first, second)]
        work, result = step_cost(terms[first], terms[second], others, output, sizes)
        found.append(work + least_of_all([*others, result], output, sizes))
    return min(found)


def network(draw, count):
    labels = range(draw.randint(3, 8))
    terms = [frozenset(draw.sample(labels, draw.randint(0, min(4, len(labels))))) for _ in range(count)]
    used = sorted(frozenset().union(*terms))
    output = frozenset(draw.sample(used, draw.randint(0, min(3, len(used)))))
    return terms, output, {label: draw.choice([1, 2, 3, 5, 8]) for label in labels}


@pytest.mark.parametrize("count", [3, 4, 5])
def test_no_order_of_the_operands_takes_less_arithmetic(count):
    draw = random.Random(count)
    for _ in range(60):
        problem = network(draw, count)
        found = cost(*problem, least_path(*problem))
        assert found == least_of_all(*problem)
        assert found <= cost(*problem, optimal(*problem))


@pytest.mark.parametrize("name", ["optimal", "branch-all"])
@pytest.mark.parametrize("count", [10, 16])
def test_the_search_ends_for_many_operands(name, count):
    letters = [chr(ord("a") + place) for place in range(count)]
    equation = ",".join(a + b for a, b in zip(letters, letters[1:] + letters[:1])) + "->"
    arrays = [np.full((2, 2), 0.5) for _ in letters]
    path, _ = einsumx.einsum_path(equation, *arrays, optimize=name)
    assert len([step for step in path if step != "einsum_path"]) == count - 1
    assert einsumx.einsum(equation, *arrays, optimize=name) == 1
