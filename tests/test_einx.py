"""einx: the code that it generates calls the framework's einsum by name, so a patched framework runs einsumx."""

from importlib import import_module

import numpy as np
import pytest

pytest.importorskip("einx", reason="einx is not installed: pip install einx")
import einx

import einsumx

FRAMEWORKS = {"numpy": "numpy", "torch": "torch", "jax": "jax.numpy"}

CALLS = {
    "b (s [c]), [c] o -> (b s) o": [(2, 12), (4, 5)],
    "b... [c], [c] o -> b... o": [(2, 3, 4), (4, 5)],
    "b [s...], [s...] -> b": [(2, 3, 4), (3, 4)],
    "a [b], [b c], [c] -> a": [(2, 3), (3, 4), (4,)],
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("text", CALLS)
def test_einx_dot_runs_einsumx_while_the_framework_is_patched(framework, text):
    pytest.importorskip(framework)
    xp = import_module(FRAMEWORKS[framework])
    rng = np.random.default_rng(0)
    arrays = [xp.asarray(rng.random(shape).astype("float32")) for shape in CALLS[text]]
    sizes = {"c": 4} if "(s" in text else {}
    expected = einx.dot(text, *arrays, **sizes)
    einsumx.cache_clear()
    with einsumx.patched(framework):
        result = einx.dot(text, *arrays, **sizes)
    assert einsumx.cache_info()["calls"].misses > 0
    assert type(result) is type(expected)
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-5)
    einsumx.cache_clear()
    einx.dot(text, *arrays, **sizes)
    assert einsumx.cache_info()["calls"].misses == 0
