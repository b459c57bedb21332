"""What planning may depend on, and what it may import: asked of fresh interpreters."""

import os
import subprocess
import sys

import pytest

from einsumx.adapters.registry import BUILTIN

FRAMEWORKS = ("numpy", "torch", "jax", "jaxlib", "mxnet", "cupy", "array_api_strict")

EQUATIONS = {
    "bnid,bnjd->bnij": [(4, 3, 10, 8), (4, 3, 5, 8)],
    "bind,bjnd->bnij": [(4, 10, 3, 8), (4, 5, 3, 8)],
    "bind,jnd->bnij": [(4, 10, 3, 8), (5, 3, 8)],
    "ijk,ikl->jl": [(6, 5, 4), (6, 4, 3)],
    "ij,jk,kl,lm->im": [(9, 2), (2, 8), (8, 3), (3, 7)],
    "ab,bc,cd,de,ea->": [(5, 5)] * 5,
    "abc,ade,bdf,ceg->fg": [(4, 4, 4), (4, 3, 3), (4, 3, 2), (4, 3, 2)],
    "a...,b...,ab->...": [(2, 3, 4), (5, 3, 1), (2, 5)],
    "iij,jk,k->ki": [(4, 4, 3), (3, 6), (6,)],
    "αβ,βγ,γα->βγ": [(3, 4), (4, 5), (5, 3)],
    "abcdefgh,hgfedcba->": [(2,) * 8] * 2,
    "ij,ij,ij->i": [(5, 6)] * 3,
}


def run(code, hash_seed="0"):
    """What ``code`` prints in a fresh interpreter."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported(equation, shapes):
    """The frameworks that a fresh interpreter has imported after planning for every backend."""
    return run(f"""
import sys, einsumx
for backend in {BUILTIN}:
    for dtype in ("float32", "float64"):
        str(einsumx.plan({equation!r}, *{shapes!r}, backend=backend, dtypes=dtype))
print(*(name for name in {FRAMEWORKS} if name in sys.modules))
""").split()


def test_planning_imports_no_framework():
    assert imported("bind,bjnd->bnij", [(4, 10, 3, 8), (4, 5, 3, 8)]) == []


def test_planning_for_many_operands_imports_no_framework_but_the_numpy_of_opt_einsum():
    assert imported("ij,jk,kl->il", [(2, 9), (9, 3), (3, 8)]) == ["numpy"]


def test_the_check_of_imports_sees_an_import():
    code = f"import numpy, sys; print(*(name for name in {FRAMEWORKS} if name in sys.modules))"
    assert run(code).split() == ["numpy"]


@pytest.mark.parametrize("optimize", ["auto", "greedy", "optimal", "dp"])
def test_plan_is_identical_across_hash_seeds(optimize):
    code = f"""
import einsumx
for backend in {BUILTIN}:
    for equation, shapes in {EQUATIONS!r}.items():
        print(einsumx.plan(equation, *shapes, backend=backend, optimize={optimize!r}).to_json())
"""
    plans = {seed: run(code, seed) for seed in ("0", "1", "20201")}
    assert plans["0"].count("\n") == len(BUILTIN) * len(EQUATIONS)
    assert plans["1"] == plans["0"]
    assert plans["20201"] == plans["0"]
