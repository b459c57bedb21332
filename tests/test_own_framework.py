"""Arrays stay in their framework, which decides what their dtypes are promoted to."""

from itertools import product

import numpy as np
import pytest
from backends_under_test import INSTALLED, OTHERS

import einsumx
from einsumx.conformance.case import examples
from einsumx.conformance.frameworks import framework_of
from einsumx.conformance.kit.oracle import expect

EQUATIONS = examples("""
    ->                  ()
    ij->j               2,3
    iij->ji             3,3,2
    i,j->ji             4 3
    ij,ij->i            1,3 2,3
    ij,jk->ki           2,3 3,4
    bind,jnd->bnij      2,4,3,5 6,3,5
    bhqd,bhqkd->bhqk    2,1,5,4 2,1,5,3,4
    iij,jkk->ik         2,2,3 3,4,4
    ab,bc,ca->          2,3 3,4 4,2
    ...i,i...->...      2,3 3,2
""")
"""One of each kind that becomes other operations."""

LEAVING = ("__array__", "__array_interface__", "__dlpack__", "numpy", "cpu", "tolist", "item", "asnumpy", "asscalar")
"""By which of its methods an array goes to the host, to NumPy, or through another framework."""


@property
def _left(array):
    pytest.fail("an array left its framework")


def _forbid_leaving(patched, arrays):
    for kind in {type(array) for array in arrays}:
        for name in LEAVING:
            if hasattr(kind, name):
                patched.setattr(kind, name, _left)


def _traced(backend):
    """NumPy reads some arrays by C's buffer protocol, which no patch sees; a traced array has no values to read."""
    if backend.name == "mlx":
        mlx = pytest.importorskip("mlx.core")
        return lambda equation, *arrays: mlx.compile(lambda *traced: einsumx.einsum(equation, *traced))(*arrays)
    if backend.name != "jax":
        return einsumx.einsum
    jax = pytest.importorskip("jax")
    return lambda equation, *arrays: jax.jit(lambda *traced: einsumx.einsum(equation, *traced))(*arrays)


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=[equation for equation, _ in EQUATIONS])
@pytest.mark.parametrize("backend", OTHERS, ids=str)
def test_no_operand_leaves_its_framework(backend, equation, shapes, monkeypatch):
    rng = np.random.default_rng(20)
    values = [rng.standard_normal(shape).astype(backend.float) for shape in shapes]
    arrays = [backend.array(value) for value in values]
    with monkeypatch.context() as patched:
        _forbid_leaving(patched, arrays)
        result = _traced(backend)(equation, *arrays)
    backend.check(result, expect(equation, *values))


@pytest.mark.parametrize("backend", OTHERS, ids=str)
def test_leaving_a_framework_is_seen(backend, monkeypatch):
    array = backend.array(np.ones(2), "float32")
    if backend.name in ("mlx", "jax"):
        trace = pytest.importorskip("mlx.core").compile if backend.name == "mlx" else pytest.importorskip("jax").jit
        with pytest.raises((ValueError, TypeError), match=r"not allowed|Tracer"):
            trace(np.asarray)(array)
        return
    with monkeypatch.context() as patched:
        _forbid_leaving(patched, [array])
        with pytest.raises(pytest.fail.Exception, match="left its framework"):
            backend.values(array)


@pytest.mark.parametrize("backend", INSTALLED, ids=str)
def test_a_plan_has_the_frameworks_promotion_of_every_two_dtypes(backend):
    promote = framework_of(backend.name).promote
    arrays = {dtype: backend.array(np.ones(2), dtype) for dtype in backend.dtypes}
    for first, second in product(arrays, repeat=2):
        wanted = first if first == second else promote(first, second)
        operands = arrays[first], arrays[second]
        if wanted is None:
            with pytest.raises(einsumx.BackendError):
                einsumx.plan("i,i->i", *operands)
        else:
            assert einsumx.plan("i,i->i", *operands).dtype == wanted, (first, second)
