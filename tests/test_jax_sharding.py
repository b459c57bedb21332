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

from sharded_contractions import BACKWARD, FORWARD  # noqa: E402

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


def run_with_8_devices(*arguments):
    """What a Python process with 8 devices prints."""
    done = subprocess.run(
        [sys.executable, *arguments], env=ENVIRONMENT, capture_output=True, text=True, check=False, cwd=HERE.parent
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def outcomes():
    lines = run_with_8_devices(str(HERE / "sharded_contractions.py")).splitlines()
    return {tuple(key): outcome for key, outcome in map(json.loads, lines)}


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


def test_the_cases_move_data_and_some_move_less_than_in_jnp_einsum(outcomes):
    moved = [(each["ours"].get("bytes"), each["theirs"].get("bytes")) for each in outcomes.values()]
    assert sum(bool(own) for own, _ in moved) > 20
    assert any(own is not None and their is None for own, their in moved)  # explicit axes: diagonals


def test_bytes_of_collectives_are_those_of_their_results():
    program = """
      %all-gather = f32[16,8]{1,0} all-gather(%param), channel_id=1
      %all-reduce.1 = (f32[2]{0}, bf16[3,3]{1,0}) all-reduce(%a, %b), channel_id=2
      %start = s8[5]{0} collective-permute-start(%c), channel_id=3
      %fusion = f32[1000]{0} fusion(%all-gather), kind=kLoop
    """
    assert collective_bytes(program) == 16 * 8 * 4 + 2 * 4 + 9 * 2 + 5
    assert collective_bytes("%dot = f32[8,8]{1,0} dot(%lhs, %rhs)") == 0


KEYWORDS = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import einsumx

EQUATIONS = ["ij,jk->ik", "ij,jk->ki", "ij,jk,kl->li", "ij,ij->ij", "ij->i", "ij->ji", "ii,ij->ij"]
for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(kind, kind))
    array = jax.device_put(jnp.arange(256.0).reshape(16, 16) / 99, NamedSharding(mesh, P("x", "y")))
    with jax.set_mesh(mesh):
        for equation in EQUATIONS:
            count = equation.count(",") + 1
            operands = [array] * count
            expected = np.einsum(equation, *map(np.asarray, operands))
            for spec in (P("y"), NamedSharding(mesh, P(("x", "y"))), P()):
                wanted = spec if isinstance(spec, NamedSharding) else NamedSharding(mesh, spec)
                call = lambda *operands: einsumx.einsum(equation, *operands, out_sharding=spec)
                with einsumx.patch("jax"):
                    patched = jnp.einsum(equation, *operands, out_sharding=spec)
                for result in (call(*operands), jax.jit(call)(*operands), patched):
                    assert result.sharding.is_equivalent_to(wanted, result.ndim), (kind, equation, spec)
                    np.testing.assert_allclose(result, expected, rtol=1e-4)
        if kind is AxisType.Explicit:
            spec = P(unreduced={"y"})
            rows = jax.device_put(array, NamedSharding(mesh, P(None, "y")))
            columns = jax.device_put(array, NamedSharding(mesh, P("y")))
            partial = einsumx.einsum("ij,jk->ik", rows, columns, out_sharding=spec)
            assert partial.sharding.spec.unreduced == {"y"}
            # shardings that conflict in a product of einsumx's, and not in jnp.einsum
            left, right = (each.astype("bfloat16") for each in (rows, columns))
            for wanted in (None, "float32"):
                product = einsumx.einsum("ij,ij->ij", left, right, preferred_element_type=wanted)
                assert product.dtype == (wanted or "bfloat16"), product.dtype
                np.testing.assert_allclose(product.astype("float32"), np.square(array), rtol=3e-2)
    # without a mesh in context
    whole = NamedSharding(mesh, P("y", "x"))
    assert einsumx.einsum("ij,kj,kl->il", *[array] * 3, out_sharding=whole).sharding.is_equivalent_to(whole, 2)

# transformations
mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
array = jax.device_put(jnp.arange(256.0).reshape(16, 16) / 99, NamedSharding(mesh, P("x", "y")))
rows = jax.shard_map(
    lambda part: einsumx.einsum("ij,kj->ik", part, part), mesh=mesh, in_specs=P("x", None), out_specs=P("x", None)
)(array)
halves = np.split(np.asarray(array), 2)
np.testing.assert_allclose(rows, np.concatenate([half @ half.T for half in halves]), rtol=1e-4)
stacked = jax.vmap(lambda row: einsumx.einsum("j,jk->k", row, array))(array)
np.testing.assert_allclose(stacked, np.asarray(array) @ np.asarray(array), rtol=1e-4)
gradient = jax.grad(lambda a: einsumx.einsum("ij,jk->ik", a, a, out_sharding=P("x")).sum())
with jax.set_mesh(mesh):
    np.testing.assert_allclose(gradient(array), jax.grad(lambda a: (a @ a).sum())(array), rtol=1e-4)

# two meshes of one set of devices share plans; meshes of other devices are an error
other = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
again = jax.device_put(array, NamedSharding(other, P("x", "y")))
for operand in (array, again, array):
    np.testing.assert_allclose(einsumx.einsum("ij,kj->ik", operand, operand), np.asarray(array) @ np.asarray(array).T,
                               rtol=1e-4)
few = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))
try:
    einsumx.einsum("ij,kj->ik", array, jax.device_put(array, NamedSharding(few, P("x"))))
except einsumx.BackendError as error:
    assert "on two devices" in str(error)
else:
    raise AssertionError("arrays on other devices were accepted")
try:
    einsumx.einsum("ij,jk->ik", array, array, memory_limit="1 GB")
except einsumx.BackendError as error:
    assert "one device" in str(error)
else:
    raise AssertionError("a memory limit was accepted for a sharded array")
"""


def test_a_result_has_the_sharding_of_out_sharding_in_any_context():
    run_with_8_devices("-c", KEYWORDS)
