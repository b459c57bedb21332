"""Orders of contraction: by name, by optimizer, by hand; always pairs, always the same."""

import random

import numpy as np
import opt_einsum
import pytest

import einsumx
from einsumx.errors import MemoryLimitError, PathError
from einsumx.ir.bind import bind
from einsumx.ir.parse import parse_text
from einsumx.planner.path import find_path

CHAIN = "ab,bc,cd,de->ae"
SHAPES = [(2, 900), (900, 3), (3, 800), (800, 2)]


def sized(text, *shapes):
    return bind(parse_text(text, len(shapes)), shapes)


def contracts_all(path, count):
    """Whether a path takes ``count`` operands to one, by pairs."""
    for step in path:
        if not (1 <= len(step) <= 2 and all(0 <= position < count for position in step)):
            return False
        count -= len(step) - 1
    return count == 1


NAMES = [
    "auto",
    "auto-hq",
    "greedy",
    "eager",
    "optimal",
    "dp",
    "dynamic-programming",
    "branch-all",
    "random-greedy-128",
]


@pytest.mark.parametrize("name", [*NAMES, True, False])
def test_every_optimizer_gives_pairs(name):
    for text, *shapes in (
        (CHAIN, *SHAPES),
        ("a,a,a,a->a", *[(3,)] * 4),
        ("i,j,k,l->", (2,), (3,), (4,), (5,)),
        ("ab,bc,cb->", (50, 1), (1, 50), (50, 90)),
        ("ab,bc,cd->ad", (2, 0), (0, 3), (3, 0)),
    ):
        assert contracts_all(find_path(sized(text, *shapes), name), len(shapes))


def test_auto_finds_the_cheap_order():
    """The last two first: 2·900·2 twice, where the first two first make a matrix of 900·900."""
    assert find_path(sized("ab,bc,cd->ad", (900, 2), (2, 900), (900, 2))) == ((1, 2), (0, 1))


def test_false_is_left_to_right():
    assert find_path(sized(CHAIN, *SHAPES), False) == ((0, 1), (0, 2), (0, 1))


def test_one_and_two_operands_have_one_step():
    assert find_path(sized("ij->i", (2, 3))) == ((0,),)
    assert find_path(sized("ij,jk->ik", (2, 3), (3, 4)), "optimal") == ((0, 1),)


@pytest.mark.parametrize(
    "given", [[(1, 2), (1, 2), (0, 1)], ["einsum_path", (1, 2), (1, 2), (0, 1)], ((2, 1), [1, 2], (1, 0))]
)
def test_a_given_path_is_taken_as_it_is(given):
    assert find_path(sized(CHAIN, *SHAPES), given) == ((1, 2), (1, 2), (0, 1))


def test_negative_positions_count_from_the_end():
    assert find_path(sized(CHAIN, *SHAPES), [(-1, -2), (0, -1), (0, 1)]) == ((2, 3), (0, 2), (0, 1))


def test_a_step_of_one_operand_is_kept():
    assert find_path(sized("cab,cdd->ab", (2, 3, 4), (2, 5, 5)), [(1,), (0, 1)]) == ((1,), (0, 1))


@pytest.mark.parametrize("given", [[(0, 1, 2, 3)], [(0, 1, 2), (0, 1)], [(1, 3), (0, 1, 2)]])
def test_a_step_of_many_operands_is_broken_into_pairs(given):
    path = find_path(sized(CHAIN, *SHAPES), given)
    assert len(path) == 3
    assert contracts_all(path, 4)


def test_an_optimizer_object_and_a_function_are_asked():
    asked = []

    def first_two(inputs, output, sizes, memory_limit):
        asked.append((inputs, output, sizes, memory_limit))
        return [(0, 1)] * (len(inputs) - 1)

    assert find_path(sized(CHAIN, *SHAPES), first_two) == ((0, 1),) * 3
    ((inputs, output, sizes, limit),) = asked
    assert [len(term) for term in inputs] == [2, 2, 2, 2]
    assert len(output) == 2
    assert sorted(sizes.values()) == [2, 2, 3, 800, 900]
    assert limit is None
    assert contracts_all(find_path(sized(CHAIN, *SHAPES), opt_einsum.DynamicProgramming("size")), 4)
    assert contracts_all(find_path(sized(CHAIN, *SHAPES), opt_einsum.RandomGreedy(max_repeats=4)), 4)


def test_cotengra_is_asked_by_name_and_by_object():
    cotengra = pytest.importorskip("cotengra")
    for optimize in (
        "cotengra",
        "cotengra:greedy",
        cotengra.HyperOptimizer(methods=["greedy"], max_repeats=2, parallel=False),
    ):
        assert contracts_all(find_path(sized(CHAIN, *SHAPES), optimize), 4)
    with pytest.raises(PathError, match="no such"):
        find_path(sized(CHAIN, *SHAPES), "cotengra:no such")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "leaves 4 operands"),
        ([(0, 1), (0, 1), (0, 3)], "step 2 of the path, .*not there: 2 are left"),
        ([(0, 1), (0, 1), (0, 1), (0, 1)], "step 3 of the path, .*not there: 1 is left"),
        ([(0, 1), (0, -4), (0, 1)], "step 1 of the path"),
        ([(0, -4), (0, 1), (0, 1)], "different operands"),
        ([(), (0, 1), (0, 1), (0, 1)], "different operands"),
        ([0, 1], "tuple of positions|optimize="),
    ],
    ids=str,
)
def test_paths_that_make_no_sense_are_errors(given, says):
    with pytest.raises(PathError, match=says):
        find_path(sized(CHAIN, *SHAPES), given)


def test_a_contraction_tree_in_the_place_of_a_path_is_an_error_that_says_what_to_pass():
    class Tree:
        def get_path(self):
            return [(0, 1), (0, 2), (0, 1)]

    for given, says in ((Tree(), r"pass its get_path\(\)$"), (5, r"not 5$")):
        with pytest.raises(PathError, match=says):
            find_path(sized(CHAIN, *SHAPES), given)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (None, "the optimizer .* returned None; a path is a list such as"),
        (7, "returned 7; a path is a list"),
        ([("a", "b")], r"tuple of positions such as \(0, 1\), not \('a', 'b'\)"),
        ([0, 1], "tuple of positions such as .* not 0"),
    ],
)
def test_an_optimizer_that_returns_no_path_is_an_error(returned, says):
    with pytest.raises(PathError, match=says):
        find_path(sized(CHAIN, *SHAPES), lambda *_: returned)


def test_a_limit_that_the_path_exceeds_is_a_memory_error():
    assert contracts_all(find_path(sized(CHAIN, *SHAPES), ("greedy", 1e6)), 4)
    with pytest.raises(MemoryLimitError, match="limit of 5"):
        find_path(sized("a,b,c->abc", (2,), (3,), (4,)), ("greedy", 5))


def test_the_same_call_gives_the_same_path():
    rng = random.Random(1)
    letters = "abcdefghijkl"
    terms = ["".join(rng.sample(letters, 3)) for _ in range(10)]
    equation = sized(",".join(terms) + "->", *[tuple(2 + letters.index(label) for label in term) for term in terms])
    for name in ("auto", "greedy", "dp"):
        assert len({find_path(equation, name) for _ in range(3)}) == 1


@pytest.mark.parametrize(
    ("equation", "first"), [("ijk,ir,jr->kr", (0, 1)), ("ijk,ir,kr->jr", (0, 1)), ("ijk,jr,kr->ir", (1, 2))]
)
def test_a_path_of_three_operands_reads_a_large_one_as_it_lies_in_memory(equation, first):
    sizes = dict(zip("ijkr", (100, 100, 100, 10)))
    arrays = [np.ones([sizes[label] for label in term]) for term in equation.partition("->")[0].split(",")]
    path = einsumx.plan(equation, *arrays).path
    assert path[0] == first
