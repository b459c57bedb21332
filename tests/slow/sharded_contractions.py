"""Run by test_jax_sharding.py in a process with 8 devices: contractions of sharded arrays by einsumx and by jnp.einsum.

It prints a line of JSON for each: the error, or the bytes of collectives and the shards of each result of both. Then
it prints a line for each of CHECKS: how it failed, or nothing.
"""

import json
import traceback
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collectives import collective_bytes
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import einsumx

SIZES = {"b": 8, "i": 16, "j": 16, "m": 8, "h": 8, "d": 32, "n": 8, "a": 8, "c": 16, "k": 8, "e": 8, "f": 64}

FORWARD = {
    # attention: heads, the sequence, or both are sharded
    "bqhd,bkhd->bhqk": ["x.y.|x.y.", ".xy.|..y."],
    "bhqk,bkhd->bqhd": ["xy..|x.y.", ".yx.|..y."],
    "bqhd,bkhd,bkhe->bqhe": ["x.y.|x.y.|x.y."],
    "bind,bjnd->bnij": ["..x.|..x."],
    "bihd,bjhd,bjhd->bihd": ["y...|....|x..."],
    "bim,mhd->bihd": ["x..|.y."],
    # dense layers: tensors, batches and parameters are sharded
    "bsm,mf->bsf": ["x..|.y", "...|xy"],
    "bsf,fm->bsm": ["x.y|y."],
    "bsm,mf,fn->bsn": ["x..|xy|yx"],
    # mixtures of experts: dispatch, experts, all at once
    "sd,sec->ecd": ["x.|xy."],
    "ecd,edf->ecf": ["y..|yx."],
    "td,tec,edf,tec->tf": ["x.|x..|y..|x.."],
    # batch axes in other orders
    "abij,bajk->ibak": ["xy..|yx.."],
    "iab,abj->ij": ["..x|...", ".xy|xy."],
    "cb,bca->bac": ["..|.yx"],
    "bacd,c,acbe->b": ["y.x.|x|x..."],
    "abcd,dc->ab": ["xy..|.."],
    "abcd,ce->aebd": ["xy..|.."],
    # diagonals
    "bii->b": [".x.", "xy."],
    "bii->bi": ["..x"],
    "ii->": ["xy"],
    "iij,jk->ik": ["..x|x."],
    # sums
    "aij->ji": ["xy."],
    "abcd,e->a": ["xy..|x"],
    "abcd,de->ab": ["..xy|y."],
    # products that sum nothing
    "aij,jai->aij": ["yx.|x.."],
    "i,j->ij": ["x|x"],
    "ab,b->ab": ["xy|."],
    "ab,cb->acb": ["xy|.y"],
    "ab,cd->acbd": ["x.|y."],
    "a,b,ab->ba": ["x|x|.x"],
}
"""Which axis of the mesh shards each axis of each operand; a dot for none."""

BACKWARD = {
    "bqhd,bkhd,bkhe->bqhe": ["x.y.|x.y.|x.y."],
    "bsm,mf,fn->bsn": ["x..|xy|yx"],
    "bii->b": [".x."],
    "iij,jk->ik": ["..x|.."],
}


def operands(mesh, equation, layout):
    """Random arrays with the shardings of ``layout``."""
    rng = np.random.default_rng(0)
    for term, axes in zip(equation.partition("->")[0].split(","), layout.split("|")):
        values = rng.normal(size=[SIZES.get(label, 16) for label in term]).astype("float32")
        spec = PartitionSpec(*[None if axis == "." else axis for axis in axes])
        yield jax.device_put(values, NamedSharding(mesh, spec))


def outcome(function, arrays):
    """The outcome of a compiled function, and its results."""
    try:
        compiled = jax.jit(function).lower(*arrays).compile()
    except Exception as error:  # noqa: BLE001 - the error is the outcome
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}, None
    results = jax.tree.leaves(compiled(*arrays))
    shards = [len(set(map(str, each.sharding.devices_indices_map(each.shape).values()))) for each in results]
    return {"bytes": collective_bytes(compiled.as_text()), "shards": shards}, results


def compare(mesh, equation, layout, is_backward):
    def function(einsum):
        def forward(*arrays):
            return einsum(equation, *arrays)

        def loss(*arrays):
            return (forward(*arrays) ** 2).sum()

        return jax.grad(loss, argnums=tuple(range(len(arrays)))) if is_backward else forward

    arrays = list(operands(mesh, equation, layout))
    (theirs, expected), (ours, results) = (outcome(function(each), arrays) for each in (jnp.einsum, einsumx.einsum))
    if results is not None and not is_backward:
        host = [np.asarray(array, "float64") for array in arrays]
        expected = [np.einsum(equation, *host, optimize=True)]
    if results is not None and expected is not None:
        ours["right"] = all(
            np.allclose(result, reference, rtol=1e-3, atol=1e-4 * np.abs(reference).max())
            for result, reference in zip(results, expected)
        )
    return {"ours": ours, "theirs": theirs}


def sharded(mesh, *spec):
    array = jnp.arange(256.0).reshape(16, 16) / 99
    return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))


def meshes(shape=(2, 4)):
    for kind in (AxisType.Auto, AxisType.Explicit):
        yield jax.make_mesh(shape, ("x", "y"), axis_types=(kind, kind))


def results_have_the_sharding_of_out_sharding():
    for mesh in meshes():
        array = sharded(mesh, "x", "y")
        with jax.set_mesh(mesh):
            for equation in ("ij,jk->ki", "ij->i", "ii,ij->ij"):
                arrays = [array] * (equation.count(",") + 1)
                expected = np.einsum(equation, *map(np.asarray, arrays))
                for spec in (PartitionSpec("y"), NamedSharding(mesh, PartitionSpec(("x", "y")))):
                    wanted = spec if isinstance(spec, NamedSharding) else NamedSharding(mesh, spec)
                    call = partial(einsumx.einsum, equation, out_sharding=spec)
                    with einsumx.patched("jax"):
                        patched = jnp.einsum(equation, *arrays, out_sharding=spec)
                    for result in (call(*arrays), jax.jit(call)(*arrays), patched):
                        assert result.sharding.is_equivalent_to(wanted, result.ndim), (mesh, equation, spec)
                        np.testing.assert_allclose(result, expected, rtol=1e-4)
        # without a mesh in context
        whole = NamedSharding(mesh, PartitionSpec("y", "x"))
        result = einsumx.einsum("ij,kj,kl->il", *[array] * 3, out_sharding=whole)
        assert result.sharding.is_equivalent_to(whole, 2)


def explicit_axes_that_conflict_in_a_product_are_computed():
    _, mesh = meshes()
    with jax.set_mesh(mesh):
        rows, columns = sharded(mesh, None, "y"), sharded(mesh, "y")
        partial_sums = einsumx.einsum("ij,jk->ik", rows, columns, out_sharding=PartitionSpec(unreduced={"y"}))
        assert partial_sums.sharding.spec.unreduced == {"y"}
        # shardings that conflict in a product of einsumx's, and not in jnp.einsum
        left, right = (each.astype("bfloat16") for each in (rows, columns))
        for wanted in (None, "float32"):
            product = einsumx.einsum("ij,ij->ij", left, right, preferred_element_type=wanted)
            assert product.dtype == (wanted or "bfloat16"), product.dtype
            np.testing.assert_allclose(product.astype("float32"), np.square(sharded(mesh)), rtol=3e-2)


def sharded_arrays_are_transformed():
    mesh, _ = meshes()
    array = sharded(mesh, "x", "y")
    host = np.asarray(array)
    rows = jax.shard_map(
        lambda part: einsumx.einsum("ij,kj->ik", part, part),
        mesh=mesh, in_specs=PartitionSpec("x", None), out_specs=PartitionSpec("x", None),
    )(array)  # fmt: skip
    np.testing.assert_allclose(rows, np.concatenate([half @ half.T for half in np.split(host, 2)]), rtol=1e-4)
    stacked = jax.vmap(lambda row: einsumx.einsum("j,jk->k", row, array))(array)
    np.testing.assert_allclose(stacked, host @ host, rtol=1e-4)
    gradient = jax.grad(lambda a: einsumx.einsum("ij,jk->ik", a, a, out_sharding=PartitionSpec("x")).sum())
    with jax.set_mesh(mesh):
        np.testing.assert_allclose(gradient(array), jax.grad(lambda a: (a @ a).sum())(array), rtol=1e-4)


def two_meshes_of_one_set_of_devices_share_plans():
    (mesh, _), (other, _) = meshes(), meshes((4, 2))
    host = np.asarray(sharded(mesh))
    for operand in (sharded(mesh, "x", "y"), sharded(other, "x", "y"), sharded(mesh, "x", "y")):
        np.testing.assert_allclose(einsumx.einsum("ij,kj->ik", operand, operand), host @ host.T, rtol=1e-4)


def arrays_on_other_devices_and_limits_are_refused():
    mesh, _ = meshes()
    few = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))
    array = sharded(mesh, "x", "y")
    for operand, keywords, message in (
        (sharded(few, "x"), {}, "on two devices"),
        (array, {"memory_limit": "1 GB"}, "one device"),
    ):
        with pytest.raises(einsumx.BackendError, match=message):
            einsumx.einsum("ij,kj->ik", array, operand, **keywords)


CHECKS = (
    results_have_the_sharding_of_out_sharding,
    explicit_axes_that_conflict_in_a_product_are_computed,
    sharded_arrays_are_transformed,
    two_meshes_of_one_set_of_devices_share_plans,
    arrays_on_other_devices_and_limits_are_refused,
)


def failure(check):
    """The traceback of a check that fails, or nothing."""
    try:
        check()
    except Exception:  # noqa: BLE001  the test shows it
        return traceback.format_exc()
    return ""


def main():
    for mode in ("Auto", "Explicit"):
        mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(getattr(AxisType, mode),) * 2)
        with jax.set_mesh(mesh):
            for is_backward, cases in enumerate((FORWARD, BACKWARD)):
                for equation, layouts in cases.items():
                    for layout in layouts:
                        key = [mode, equation, layout, bool(is_backward)]
                        print(json.dumps([key, compare(mesh, equation, layout, is_backward)]))  # noqa: T201
    for check in CHECKS:
        print(json.dumps([[check.__name__], failure(check)]))  # noqa: T201


if __name__ == "__main__":
    main()
