"""Contractions of sharded JAX arrays: bytes between devices, and how the result is sharded.

One process with 8 devices computes all cases, by einsumx and by jnp.einsum.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from collectives import collective_bytes

jax = pytest.importorskip("jax")
if not (hasattr(jax.sharding, "AxisType") and hasattr(jax, "set_mesh")):
    pytest.skip("this JAX has no explicit axes", allow_module_level=True)

from sharded_contractions import BACKWARD, CHECKS, FORWARD  # noqa: E402

HERE = Path(__file__).parent
ENVIRONMENT = {
    **os.environ,
    # Code that LLVM does not optimize compiles faster and moves the same data.
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
    "JAX_PLATFORMS": "cpu",
    "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
}

CASES = [
    (mode, equation, layout, is_backward)
    for mode in ("Auto", "Explicit")
    for is_backward, cases in ((False, FORWARD), (True, BACKWARD))
    for equation, layouts in cases.items()
    for layout in layouts
]

STILL = {
    ("bind,bjnd->bnij", "..x.|..x."): 2,
    ("bhqk,bkhd->bqhd", "xy..|x.y."): 8,
    ("abcd,dc->ab", "xy..|.."): 8,
    ("abcd,ce->aebd", "xy..|.."): 8,
    ("ab,b->ab", "xy|."): 8,
    ("ab,cd->acbd", "x.|y."): 8,
}
"""Contractions that move no data between devices, and the number of shards of their results."""


@pytest.fixture(scope="module")
def outcomes():
    """What a process with 8 devices finds, which runs once."""
    command = [sys.executable, str(HERE / "sharded_contractions.py")]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, cwd=HERE.parent)
    assert done.returncode == 0, done.stderr[-4000:]
    return {tuple(key): outcome for key, outcome in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join([*case[:3], "gradients" * case[3]]))
def test_no_more_bytes_move_than_in_jnp_einsum_and_results_are_no_less_sharded(case, outcomes):
    ours, theirs = outcomes[case]["ours"], outcomes[case]["theirs"]
    if "error" in ours:
        assert "error" in theirs, ours["error"]
        return
    if "right" in ours:  # gradients are compared with those of jnp.einsum
        assert ours["right"]
    if "error" not in theirs:
        assert "right" in ours
        assert ours["bytes"] <= theirs["bytes"]
        assert all(own >= their for own, their in zip(ours["shards"], theirs["shards"]))


@pytest.mark.parametrize("mode", ["Auto", "Explicit"])
def test_products_whose_shards_fit_move_no_data_between_devices(mode, outcomes):
    found = {(equation, layout): outcomes[mode, equation, layout, False]["ours"] for equation, layout in STILL}
    assert {case: each["bytes"] for case, each in found.items()} == dict.fromkeys(STILL, 0)
    assert {case: each["shards"] for case, each in found.items()} == {case: [each] for case, each in STILL.items()}


def test_the_cases_move_data_and_some_move_less_than_in_jnp_einsum(outcomes):
    moved = [(outcomes[case]["ours"].get("bytes"), outcomes[case]["theirs"].get("bytes")) for case in CASES]
    assert sum(bool(own) for own, _ in moved) > 20
    assert any(own is not None and their is None for own, their in moved)  # explicit axes: diagonals


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_with_8_devices(name, outcomes):
    assert not outcomes[name,], outcomes[name,]


def test_bytes_of_collectives_are_those_of_their_results():
    program = """
      %all-gather = f32[16,8]{1,0} all-gather(%param), channel_id=1
      %all-reduce.1 = (f32[2]{0}, bf16[3,3]{1,0}) all-reduce(%a, %b), channel_id=2
      %start = s8[5]{0} collective-permute-start(%c), channel_id=3
      %fusion = f32[1000]{0} fusion(%all-gather), kind=kLoop
    """
    assert collective_bytes(program) == 16 * 8 * 4 + 2 * 4 + 9 * 2 + 5
    assert collective_bytes("%dot = f32[8,8]{1,0} dot(%lhs, %rhs)") == 0
