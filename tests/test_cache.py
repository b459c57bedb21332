"""Caches: bounded, keyed by values, seen and cleared, and never an answer for another question."""

import ast
import gc
import linecache
import re
from pathlib import Path

import numpy as np
import pytest

import einsumx
from einsumx import caches
from einsumx.adapters.registry import get_backend
from einsumx.runtime import execute

pytestmark = pytest.mark.usefixtures("fresh")

ROOT = Path(__file__).parents[1]


def test_arrays_that_differ_in_their_gaps_alone_share_a_plan():
    b = np.ones((3, 4))
    einsumx.einsum("ij,jk->ik", np.ones((2, 7))[:, :3], b)
    plans = einsumx.cache_info()["plans"].misses
    einsumx.einsum("ij,jk->ik", np.ones((2, 90))[:, :3], b)
    assert einsumx.cache_info()["plans"].misses == plans


def test_every_cache_is_bounded_and_keeps_its_bound():
    assert all(info.maxsize > 0 for info in einsumx.cache_info().values())
    bound = einsumx.cache_info()["plans"].maxsize
    for size in range(1, bound + 20):
        einsumx.plan("i->", np.ones(size))
    assert einsumx.cache_info()["plans"].currsize == bound


def test_clearing_forgets_everything():
    einsumx.einsum("ij->i", np.ones((2, 3)))
    einsumx.cache_clear()
    assert all(info.currsize == 0 for info in einsumx.cache_info().values())


def test_an_optimizer_object_is_asked_at_every_call():
    calls = []

    def optimizer(inputs, output, sizes, memory_limit):
        calls.append(len(inputs))
        return [(0, 1), (0, 1)]

    operands = "ij,jk,kl->il", np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 2))
    for _ in range(3):
        np.testing.assert_array_equal(einsumx.einsum(*operands, optimize=optimizer), np.full((2, 2), 4.0))
    assert calls == [3, 3, 3]


def test_arrays_of_one_shape_and_other_types_are_not_confused():
    a = np.arange(4.0).reshape(2, 2)
    matrix = a.view(type("Named", (np.ndarray,), {}))
    for first, second in [(a, a), (matrix, a), (a, matrix), (a.astype(">f8"), a), (a, a.tolist())]:
        result = einsumx.einsum("ij,jk->ik", first, second)
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, [[2.0, 3.0], [6.0, 11.0]])


def test_windows_that_overlap_in_memory_are_not_confused_with_other_layouts():
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(8.0), 3)
    for length in (4, 5, 6, 5):
        for lhs in (windows[:length], windows[:length].copy()):
            assert einsumx.einsum("ij,j->i", lhs, np.ones(3)).tolist() == [3.0 * k + 3 for k in range(length)]


@pytest.mark.parametrize("options", [{}, {"memory_limit": 10**6}])
@pytest.mark.parametrize("operands", [((300, 400), (400, 300)), (np.ones((300, 400)), np.ones((400, 300)))])
def test_plans_that_are_asked_for_again_are_equal(operands, options):
    first, second = (einsumx.plan("ij,jk->ik", *operands, **options) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert einsumx.plan("ij,jk->ik", *operands, memory_limit=2 * 10**6) != first


@pytest.mark.long
def test_the_lines_of_a_function_are_forgotten_with_it():
    plan = einsumx.plan("ab,bc,cd,de,ef,fg,gh->ah", *[(9, 9)] * 7)
    gc.collect()
    before = set(linecache.cache)
    execute._code.cache_clear()
    run = execute.run_of(plan, get_backend("numpy"))
    for _ in range(execute._RUNS + 1):  # it is compiled when it has run often
        run(*[np.ones((9, 9))] * 7)
    (name,) = (name for name in set(linecache.cache) - before if name.startswith("<einsumx plan"))
    linecache.checkcache()
    assert linecache.getline(name, 1).startswith("def run(")
    del run
    execute._code.cache_clear()
    gc.collect()
    assert name not in linecache.cache


def caches_of(file):
    """The caches that a file makes: the name of each, and the most entries; empty if there is no bound."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    makers = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("functools", "einsumx.caches")
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name):
            continue
        is_called = isinstance(parents[node], ast.Call)
        if node.id in makers & {"cache", "cached", "lru_cache"} or (
            is_called and node.id in makers & {"Table", "table"}
        ):
            match parents[node]:
                case ast.Call(args=[ast.Constant(kind)]):
                    bound = f"{caches._BOUNDS[kind]}"
                case ast.Call(keywords=[ast.keyword("maxsize", ast.Constant(most)), *_]):
                    bound = f"{most}"
                case _:
                    bound = ""
            while not isinstance(node, ast.FunctionDef | ast.Assign | ast.AnnAssign):
                node = parents[node]
            match node:
                case ast.FunctionDef(name):
                    pass
                case ast.AnnAssign(target) | ast.Assign([target]):
                    name = ast.unparse(target)
            yield name.removeprefix("self."), bound


def test_a_cache_is_found_however_it_is_made(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("""
from functools import cache, lru_cache
from einsumx.caches import Table, cached, table

@cache
def one(): ...

@lru_cache(maxsize=3)
def two(): ...

three = cached("calls")(two)

class Four:
    def __init__(self):
        self._four = lru_cache(maxsize=4)(self.other)

def five():
    return lru_cache(maxsize=5)(two)

six: Table[int] = Table(maxsize=6)
seven = table("plans")
""")
    assert sorted(caches_of(file)) == [
        ("_four", "4"),
        ("five", "5"),
        ("one", ""),
        ("seven", "1024"),
        ("six", "6"),
        ("three", "4096"),
        ("two", "3"),
    ]


@pytest.mark.long
def test_the_page_on_the_design_lists_every_cache_and_its_bound():
    found = set()
    for folder in ("einsumx", "backends", "conformance"):
        for file in (ROOT / folder).rglob("*.py"):
            place = file.relative_to(ROOT).as_posix().removeprefix("einsumx/")
            if place != "caches.py":
                found |= {(place, *each) for each in caches_of(file)}
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    section = page.partition("\n## Caches\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^- `([\w/.]+)`: (.*)", section, re.MULTILINE)
    listed = [(place, *each) for place, caches in lines for each in re.findall(r"`(\w+)` ?(\d*)", caches)]
    assert sorted(listed) == sorted(found)
