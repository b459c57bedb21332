"""einops and einx call the framework's einsum by its name, so a patched framework runs einsumx in their functions."""

from importlib import import_module

import numpy as np
import pytest

import einsumx

FRAMEWORKS = {"numpy": "numpy", "torch": "torch", "jax": "jax.numpy"}

CALLS = {
    ("einops.einsum", "batch seq d, d out -> batch seq out"): [(2, 3, 4), (4, 5)],
    ("einx.dot", "b (s [c]), [c] o -> (b s) o"): [(2, 12), (4, 5)],
    ("einx.dot", "b... [c], [c] o -> b... o"): [(2, 3, 4), (4, 5)],
    ("einx.dot", "b [s...], [s...] -> b"): [(2, 3, 4), (3, 4)],
    ("einx.dot", "a [b], [b c], [c] -> a"): [(2, 3), (3, 4), (4,)],
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("name", "text"), CALLS, ids=" ".join)
def test_their_functions_run_einsumx_while_the_framework_is_patched(framework, name, text):
    library, function = name.split(".")
    call = getattr(pytest.importorskip(library), function)
    pytest.importorskip(framework)
    xp = import_module(FRAMEWORKS[framework])
    rng = np.random.default_rng(0)
    arrays = [xp.asarray(rng.random(shape).astype("float32")) for shape in CALLS[name, text]]
    operands = [text, *arrays] if library == "einx" else [*arrays, text]
    sizes = {"c": 4} if "(s" in text else {}
    einsumx.cache_clear()
    expected = call(*operands, **sizes)
    assert einsumx.cache_info()["calls"].misses == 0
    with einsumx.patched(framework):
        result = call(*operands, **sizes)
    assert einsumx.cache_info()["calls"].misses > 0
    assert type(result) is type(expected)
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-5)
    einsumx.cache_clear()
    call(*operands, **sizes)
    assert einsumx.cache_info()["calls"].misses == 0
