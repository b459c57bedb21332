"""The function that a plan becomes: its lines are there for debuggers, as long as it is."""

from __future__ import annotations

import gc
import linecache

import numpy as np
import pytest

import einsumx
from einsumx.adapters.registry import get_backend
from einsumx.runtime import execute


def lines_of_plans() -> list[str]:
    return [name for name in linecache.cache if name.startswith("<einsumx plan")]


@pytest.mark.long
def test_the_lines_of_a_function_are_forgotten_with_it() -> None:
    plan = einsumx.plan("ab,bc,cd,de,ef,fg,gh->ah", *[(9, 9)] * 7)
    gc.collect()
    before = set(lines_of_plans())
    execute._code.cache_clear()
    run = execute.run_of(plan, get_backend("numpy"))
    for _ in range(execute._RUNS + 1):  # it is compiled when it has run often
        run(*[np.ones((9, 9))] * 7)
    (name,) = set(lines_of_plans()) - before
    linecache.checkcache()
    assert linecache.getline(name, 1).startswith("def run(")
    del run
    execute._code.cache_clear()
    gc.collect()
    assert name not in linecache.cache
