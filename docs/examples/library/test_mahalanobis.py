"""The distances are right on every library that is installed, with einsumx and without it."""

import importlib
import sys

import mahalanobis
import numpy as np
import pytest

from einsumx.conformance.plugin import suite_test

POINTS, CENTER = np.random.default_rng(0).normal(size=(4, 5, 3)), np.ones(3)
PRECISION = np.asarray([[2.0, 1.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 1.0]])
ARRAYS = (POINTS, CENTER, PRECISION)
LIBRARIES = ["numpy", "torch", "jax.numpy", "dask.array", "cupy"]
EXPECTED = np.sqrt([[(point - CENTER) @ PRECISION @ (point - CENTER) for point in row] for row in POINTS])

test_einsum_broadcasts = suite_test("numpy", "array_api", callables=["mahalanobis:einsum"], select="broadcasting/*")
test_so_does_numpys = suite_test("numpy", callables=["mahalanobis:native_einsum"], select="broadcasting/*")


@pytest.fixture
def without_einsumx(monkeypatch):
    """The module as it is where einsumx is not installed."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "einsumx", None)
        importlib.reload(mahalanobis)
    yield
    importlib.reload(mahalanobis)


def check(result, kind):
    assert isinstance(result, kind)
    values = result.get() if hasattr(result, "get") else result  # CuPy's are on a GPU
    np.testing.assert_allclose(np.asarray(values), EXPECTED, rtol=1e-5)  # JAX computes in float32


@pytest.mark.parametrize("name", [*LIBRARIES, "array_api_strict"])
def test_arrays_of_each_library(name):
    arrays = [pytest.importorskip(name).asarray(array) for array in ARRAYS]
    check(mahalanobis.distances(*arrays), type(arrays[0]))


@pytest.mark.usefixtures("without_einsumx")
@pytest.mark.parametrize("name", LIBRARIES)
def test_the_librarys_einsum_takes_the_place_of_einsumx(name):
    test_arrays_of_each_library(name)


@pytest.mark.usefixtures("without_einsumx")
def test_a_library_without_einsum_needs_einsumx():
    with pytest.raises(ImportError, match="array_api_strict has no einsum: pip install einsumx"):
        test_arrays_of_each_library("array_api_strict")


def test_the_least_that_the_standard_asks_for_is_enough():
    strict = pytest.importorskip("array_api_strict")
    device = strict.Device("device1")
    arrays = [strict.asarray(array, device=device) for array in ARRAYS]
    with strict.ArrayAPIStrictFlags(boolean_indexing=False, data_dependent_shapes=False, enabled_extensions=()):
        result = mahalanobis.distances(*arrays)
    assert result.device == device
    check(result.to_device(strict.Device("CPU_DEVICE")), type(result))


def test_jax_compiles_it():
    jax = pytest.importorskip("jax")
    check(jax.jit(mahalanobis.distances)(*map(jax.numpy.asarray, ARRAYS)), jax.Array)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")  # in array_namespace
def test_pytorch_compiles_it_as_one_graph():
    torch = pytest.importorskip("torch")
    compiled = torch.compile(mahalanobis.distances, fullgraph=True, backend="aot_eager")
    check(compiled(*map(torch.asarray, ARRAYS)), torch.Tensor)
