"""The environment variables: a value that means nothing is told once, and is ignored."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

CODE = """
import numpy as np
import einsumx
for _ in range(3):
    einsumx.einsum("ik,jk->ij", np.ones((3000, 1)), np.ones((3000, 1)))
    einsumx.cache_clear()
print(einsumx.get_effort(), einsumx.memory_pool_info().bound)
"""


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("EINSUMX_EFFORT", '"estimate" or "measure"'),
        ("EINSUMX_FREEZE", "0 or 1"),
        ("EINSUMX_MEMORY_POOL", "an amount of memory such as 1GiB, 500MB, or bytes"),
        ("EINSUMX_NUM_THREADS", "a positive integer"),
        ("EINSUMX_WISDOM", "0 or 1"),
    ],
)
def test_a_value_that_means_nothing_is_told_once_and_counts_as_not_set(name, meant, tmp_path):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("EINSUMX_")}
    environment |= {"EINSUMX_CACHE": str(tmp_path), name: "rubbish"}
    if name == "EINSUMX_FREEZE":
        environment["EINSUMX_EFFORT"] = "measure"  # or nothing asks for it
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr.count("Warning: ") == 1
    assert f"RuntimeWarning: {name} is 'rubbish', not {meant}, and is ignored" in done.stderr
    assert done.stdout.split() == ["measure" if name == "EINSUMX_FREEZE" else "estimate", str(1 << 30)]
