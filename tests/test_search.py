"""The default search for a path: right trees, effort that pays, memory that there is."""

from itertools import combinations
from math import inf, prod
from random import Random

import numpy as np
import pytest

import einsumx
from einsumx.adapters.facets import blocks_of
from einsumx.adapters.registry import get_backend
from einsumx.errors import MemoryLimitError
from einsumx.ir.bind import bind
from einsumx.ir.parse import parse_text, symbol
from einsumx.planner import search
from einsumx.planner.path import find_path, step_outputs
from einsumx.planner.search import Network, Pace, as_merges, as_path

PACE = Pace(call=1.0, multiply_add=0.1, element=0.01)


def random_network(seed, count, labels, pace=PACE):
    """Terms with up to four of the labels each, some of which many terms share."""
    rng = Random(seed)
    inputs = [frozenset(rng.sample(range(labels), rng.randint(1, 4))) for _ in range(count)]
    used = sorted(frozenset().union(*inputs))
    output = frozenset(rng.sample(used, min(2, len(used))))
    return inputs, output, Network(inputs, output, [rng.randint(2, 5) for _ in range(labels)], pace)


def all_trees(nodes, count):
    """Every way to contract nodes, whose results have numbers from ``count``."""
    if len(nodes) == 1:
        yield []
        return
    for pair in combinations(nodes, 2):
        rest = [node for node in nodes if node not in pair]
        for others in all_trees([*rest, count], count + 1):
            yield [pair, *others]


def chain_of_states(sites, bond, inner):
    """The text and the shapes of a matrix product operator between two states, one after the other."""
    upper, lower = [[("u", site) for site in range(sites)], [("l", site) for site in range(sites)]]
    terms, sizes = [], {}
    for name, rows, width in (("a", [upper], bond), ("w", [upper, lower], inner), ("b", [lower], bond)):
        for site in range(sites):
            bonds = [(name, left) for left in (site - 1, site) if 0 <= left < sites - 1]
            sizes.update(dict.fromkeys(bonds, width))
            terms.append([*bonds, *[row[site] for row in rows]])
    sizes.update(dict.fromkeys([*upper, *lower], 2))
    letters = {label: symbol(number) for number, label in enumerate(sizes)}
    text = ",".join("".join(map(letters.__getitem__, term)) for term in terms) + "->"
    return text, [tuple(map(sizes.__getitem__, term)) for term in terms]


def multiplications(equation, path):
    inputs = [frozenset(term) for term in equation.inputs]
    terms, total = list(inputs), 0
    for step, kept in step_outputs(path, inputs, frozenset(equation.output)):
        taken = [terms.pop(place) for place in sorted(step, reverse=True)]
        total += prod(equation.sizes[label] for label in frozenset().union(*taken))
        terms.append(kept)
    return total


@pytest.mark.parametrize("seed", range(20))
def test_the_exact_search_is_the_best_of_all_trees(seed):
    _, _, network = random_network(seed, 5, 6)
    seconds, steps = search.exact(network, network.terms, network.output)
    every = [network.tree(merges, "").seconds for merges in all_trees(range(5), 5)]
    assert seconds == pytest.approx(min(every))
    assert network.tree([step[:2] for step in steps], "").seconds == pytest.approx(seconds)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_the_labels_of_a_tree_are_those_that_its_path_keeps(seed):
    inputs, output, network = random_network(seed, 12, 14)
    for merges in (search.greedy(network), search.swept(network), search.in_order(12), search.search(network).merges):
        tree = network.tree(merges, "")
        kept = [keep for _, keep in step_outputs(as_path(merges, 12), inputs, output)]
        results = [frozenset(search.bits(labels)) for labels in tree.labels[12:]]
        needed = frozenset().union(output, *[a & b for a, b in combinations(inputs, 2)])  # others are summed before
        assert results == [keep & needed for keep in kept]


@pytest.mark.parametrize("seed", range(20))
def test_a_better_order_of_parts_contracts_the_same_terms_in_less_time(seed):
    _, _, network = random_network(seed, 14, 16)
    tree = network.tree(search.in_order(14), "")
    better = search.improved(network, tree, 6)
    assert better.seconds <= tree.seconds
    assert as_merges(as_path(better.merges, 14), 14) == [tuple(sorted(merge)) for merge in better.merges]
    assert sorted(node for merge in better.merges for node in merge) == list(range(26))


def test_the_search_ends_where_more_of_it_does_not_pay(monkeypatch):
    tries = []
    attempts = search._attempts
    monkeypatch.setattr(search, "_attempts", lambda network: (tries.append(each) or each for each in attempts(network)))
    for multiply_add, least, most in ((1e-12, 1, 1), (1e-4, 8, 250), (1.0, 270, 290)):
        tries.clear()
        _, _, network = random_network(3, 12, 14, Pace(1e-6, multiply_add, 0.0))
        search.search(network)
        assert least <= len(tries) <= most


def test_an_operator_between_two_states_is_contracted_along_the_chain():
    text, shapes = chain_of_states(20, 24, 5)
    equation = bind(parse_text(text, 60), shapes)
    assert multiplications(equation, find_path(equation)) < 4e8
    assert multiplications(equation, find_path(equation, "greedy")) > 1e9


def test_terms_without_common_labels_are_multiplied_at_the_end():
    equation = bind(parse_text("ab,bc,d,de,f,fg->", 6), [(9, 8), (8, 9), (7,), (7, 6), (5,), (5, 4)])
    assert multiplications(equation, find_path(equation)) < 9 * 8 * 9 + 7 * 6 + 5 * 4 + 9 * 9 + 6 + 4 + 1000


@pytest.mark.long
def test_a_path_that_needs_more_memory_than_there_is_is_not_taken(monkeypatch):
    monkeypatch.setattr("einsumx.planner.path._LARGE", 100)
    text, shapes = chain_of_states(20, 24, 5)
    equation = bind(parse_text(text, 60), shapes)

    def most_elements(path):
        """Of the two terms and the result of a step."""
        inputs = [frozenset(term) for term in equation.inputs]
        terms, totals = list(inputs), []
        for step, kept in step_outputs(path, inputs, frozenset(equation.output)):
            taken = [terms.pop(place) for place in sorted(step, reverse=True)]
            terms.append(kept)
            totals.append(sum(prod(equation.sizes[label] for label in term) for term in (*taken, kept)))
        return max(totals)

    free = most_elements(find_path(equation))
    assert find_path(equation, room=lambda: inf) == find_path(equation)
    for room in (free * 0.9, free * 0.4):
        assert most_elements(find_path(equation, room=lambda: room)) <= room  # noqa: B023
    with pytest.raises(
        MemoryLimitError, match=r"no path was found whose steps fit .*memory_limit=.* optimize='cotengra'"
    ):
        find_path(equation, room=lambda: 40.0)


def test_a_call_without_a_path_that_fits_is_an_error_before_any_work(monkeypatch):
    text, shapes = chain_of_states(8, 20, 3)
    operands = [np.zeros(shape) for shape in shapes]
    monkeypatch.setattr("einsumx.planner.path._LARGE", 100)
    monkeypatch.setattr(type(blocks_of(get_backend("numpy"))), "free_bytes", lambda self, device: 1000)
    with pytest.raises(MemoryLimitError, match="pass memory_limit= to compute in blocks"):
        einsumx.einsum(text, *operands)
    assert len(einsumx.plan(text, *shapes).path) == 23  # which needs no memory


def test_a_printed_plan_of_many_operands_compares_its_path_with_the_plain_greedy_one():
    text, shapes = chain_of_states(20, 24, 5)
    *_, found, plain = str(einsumx.plan(text, *shapes)).splitlines()
    assert found.split()[0] == "path:"
    assert "multiply-adds, largest result" in found
    assert plain.startswith("  plain greedy")
    *_, given, plain = str(einsumx.plan(text, *shapes, optimize=False)).splitlines()
    assert given.split()[0] == "path"
    assert given.split()[-6:] != plain.split()[-6:]


def test_a_log_says_where_a_longer_search_may_pay(caplog, monkeypatch):
    monkeypatch.setattr("einsumx.planner.path._LONG", 1e-5)
    text, shapes = chain_of_states(6, 30, 4)
    with caplog.at_level("INFO", logger="einsumx"):
        find_path(bind(parse_text(text, 18), shapes))
    (record,) = caplog.records
    assert "to run; optimize='cotengra' may find a better path" in record.getMessage()
