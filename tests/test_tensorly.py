"""tensorly: its tensor algebra runs einsumx once that is registered, and decompositions are the same."""

from importlib import import_module

import numpy as np
import pytest

pytest.importorskip("tensorly", reason="tensorly is not installed: pip install tensorly")
import tensorly as tl
from tensorly.decomposition import parafac, tensor_train_matrix, tucker

import einsumx

BACKENDS = {"numpy": "numpy", "pytorch": "torch"}


@pytest.fixture(params=BACKENDS)
def backend(request):
    pytest.importorskip(BACKENDS[request.param])
    before = tl.get_backend()
    tl.set_backend(request.param)
    own = tl.backend.current_backend().einsum
    yield import_module(BACKENDS[request.param])
    tl.backend.BackendManager.register_backend_method("einsum", own)
    tl.tenalg.set_backend("core")
    tl.set_backend(before)


def _register():
    tl.backend.BackendManager.register_backend_method("einsum", einsumx.einsum)
    tl.tenalg.set_backend("einsum")


def _cp(tensor):
    return parafac(tensor, rank=3, random_state=0, n_iter_max=10, tol=0).factors


def _tucker(tensor):
    core, factors = tucker(tensor, rank=[3, 2, 2], random_state=0, n_iter_max=5, tol=0)
    return [core, *factors]


@pytest.mark.parametrize("decomposition", [_cp, _tucker])
def test_decompositions_are_the_same(backend, decomposition):
    tensor = tl.tensor(np.random.default_rng(0).random((6, 5, 4)))
    expected = decomposition(tensor)
    _register()
    einsumx.cache_clear()
    result = decomposition(tensor)
    assert einsumx.cache_info()["calls"].misses > 0
    assert [type(array) for array in result] == [type(array) for array in expected]
    for one, other in zip(result, expected):
        np.testing.assert_allclose(tl.to_numpy(one), tl.to_numpy(other), atol=1e-10)


def test_products_of_the_tensor_algebra_are_the_same(backend):
    rng = np.random.default_rng(1)
    matrices = [tl.tensor(rng.random((size, 3))) for size in (6, 5, 4)]
    tensor, vector = tl.tensor(rng.random((6, 5, 4))), tl.tensor(rng.random(5))
    tt_matrix = tensor_train_matrix(tl.tensor(rng.random((2, 2, 3, 3))), rank=2)
    calls = {
        "khatri_rao": lambda: tl.tenalg.khatri_rao(matrices),
        "kronecker": lambda: tl.tenalg.kronecker(matrices),
        "inner": lambda: tl.tenalg.inner(tensor, tensor),
        "mode_dot": lambda: tl.tenalg.mode_dot(tensor, vector, 1),
        "multi_mode_dot": lambda: tl.tenalg.multi_mode_dot(tensor, [tl.transpose(m) for m in matrices]),
        "unfolding_dot_khatri_rao": lambda: tl.tenalg.unfolding_dot_khatri_rao(tensor, (None, matrices), 0),
        "outer": lambda: tl.tenalg.outer([vector, vector, vector]),
        "batched_tensordot": lambda: tl.tenalg.tensordot(
            tensor, tensor, modes=([1, 2], [1, 2]), batched_modes=([0], [0])
        ),
        "tt_matrix": lambda: tl.tt_matrix_to_tensor(tt_matrix),
    }
    expected = {name: tl.to_numpy(call()) for name, call in calls.items()}
    _register()
    for name, call in calls.items():
        np.testing.assert_allclose(tl.to_numpy(call()), expected[name], err_msg=name)


def test_gradients_go_through_einsumx(backend):
    if tl.get_backend() != "pytorch":
        pytest.skip("NumPy has no gradients")
    _register()
    factors = [backend.full((size, 2), 0.5, dtype=backend.float64, requires_grad=True) for size in (4, 3)]
    tl.tenalg.khatri_rao(factors).sum().backward()
    np.testing.assert_allclose(factors[0].grad, np.full((4, 2), 1.5))
