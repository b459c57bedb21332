"""The function that a plan becomes: its lines are there for tracebacks, as long as it is."""

from __future__ import annotations

import gc
import linecache
import traceback

import numpy as np
import pytest

import einsumx
from einsumx.adapters.registry import get_backend
from einsumx.runtime import execute


def lines_of_plans() -> list[str]:
    return [name for name in linecache.cache if name.startswith("<einsumx plan")]


def test_a_traceback_shows_the_op_that_failed() -> None:
    run = execute.executable(einsumx.plan("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), get_backend("numpy"))
    with pytest.raises(ValueError, match="not aligned") as caught:
        run(np.ones((2, 3)), np.ones((3, 4)), np.ones((6, 5)))
    text = "".join(traceback.format_exception(caught.value))
    assert 'File "<einsumx plan' in text
    assert " = k4(x3, x2)" in text


def test_the_lines_of_a_function_are_forgotten_with_it() -> None:
    plan = einsumx.plan("ab,bc,cd,de,ef,fg,gh->ah", *[(2, 2)] * 7)
    gc.collect()
    before = set(lines_of_plans())
    execute._code.cache_clear()
    run = execute.executable(plan, get_backend("numpy"))
    (name,) = set(lines_of_plans()) - before
    linecache.checkcache()
    assert linecache.getline(name, 1).startswith("def run(")
    del run
    execute._code.cache_clear()
    gc.collect()
    assert name not in linecache.cache
