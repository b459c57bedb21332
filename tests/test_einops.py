"""einops: ``einops.einsum`` runs einsumx behind the framework's name."""

from importlib import import_module

import numpy as np
import pytest

pytest.importorskip("einops", reason="einops is not installed: pip install einops")
import einops

import einsumx

X, W = np.arange(24.0).reshape(2, 3, 4), np.arange(20.0).reshape(4, 5)
NAMES = "batch seq d, d out -> batch seq out"
FRAMEWORKS = {"numpy": "numpy", "torch": "torch", "jax": "jax.numpy"}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_einops_einsum_runs_einsumx_while_the_framework_is_patched(framework):
    pytest.importorskip(framework)
    xp = import_module(FRAMEWORKS[framework])
    x, w = xp.asarray(X), xp.asarray(W)
    einsumx.cache_clear()
    own = einops.einsum(x, w, NAMES)
    assert einsumx.cache_info()["calls"].misses == 0
    with einsumx.patched(framework):
        result = einops.einsum(x, w, NAMES)
    assert einsumx.cache_info()["calls"].misses == 1
    assert type(result) is type(own)
    np.testing.assert_allclose(np.asarray(result), X @ W)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_one_text_serves_einops_and_einsumx(framework):
    xp = pytest.importorskip(FRAMEWORKS[framework])
    x, w = xp.asarray(X), xp.asarray(W)
    np.testing.assert_allclose(np.asarray(einsumx.einsum(x, w, NAMES)), np.asarray(einops.einsum(x, w, NAMES)))
