"""Run by test_jax_sharding.py in a process with 8 devices: contractions of sharded arrays by einsumx and by jnp.einsum.

It prints a line of JSON for each: the error, or the bytes of collectives and the shards of each result of both.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
from collectives import collective_bytes
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import einsumx

SIZES = {"b": 8, "i": 16, "j": 16, "m": 8, "h": 8, "d": 32, "n": 8, "a": 8, "c": 16, "k": 8, "e": 8, "f": 64}

FORWARD = {
    # attention: heads, the sequence, or both are sharded
    "bqhd,bkhd->bhqk": ["..x.|..x.", "x.y.|x.y.", ".y..|....", "xy..|x...", ".xy.|..y."],
    "bhqk,bkhd->bqhd": ["xy..|x.y.", ".yx.|..y.", "x.y.|x..."],
    "bqhd,bkhd,bkhe->bqhe": ["x.y.|x.y.|x.y.", "xy..|x...|x..."],
    "bind,bjnd->bnij": ["..x.|..x."],
    "bihd,bjhd,bjhd->bihd": ["y...|....|x..."],
    "bim,mhd->bihd": ["x..|...", ".x.|...", "x..|.y."],
    # dense layers: tensors, batches and parameters are sharded
    "bsm,mf->bsf": ["x..|.y", "x..|y.", "...|xy"],
    "bsf,fm->bsm": ["x.y|y.", "x.y|.."],
    "bsm,mf,fn->bsn": ["x..|.y|y.", "x..|xy|yx", "x..|..|.."],
    # mixtures of experts: dispatch, experts, combine, all at once
    "sd,sec->ecd": ["x.|x..", "x.|xy."],
    "ecd,edf->ecf": ["y..|y..", "y..|yx."],
    "ecf,sec->sf": ["y..|.y.", "y.x|.y."],
    "sd,sec,edf,sef->sf": ["x.|x..|y..|x.."],
    "td,tec,edf,tec->tf": ["x.|x..|y..|x.."],
    # batch axes in other orders
    "abij,bajk->ibak": ["xy..|yx..", "x.y.|.x.."],
    "iab,abj->ij": ["..x|...", "x..|...", ".xy|xy."],
    "abi,ic->abc": [".x.|..", "yx.|.."],
    "cb,bca->bac": ["..|.yx"],
    "bacd,c,acbe->b": ["y.x.|x|x..."],
    # diagonals
    "bii->b": ["x..", ".x.", "..x", "xy."],
    "bii->bi": ["x..", "..x"],
    "ii->i": ["x.", ".x", "xy"],
    "ii->": ["x.", "xy"],
    "bdbc,ca->ba": ["...x|x."],
    "iij,jk->ik": ["x..|..", "..x|x."],
    # sums
    "aij->ji": ["xy."],
    "aij->a": ["xy."],
    "aij->": ["xy."],
    "abcd,e->a": ["x...|.", "xy..|x"],
    "abcd,de->ab": ["xy..|..", "..xy|y."],
    # products that sum nothing
    "aij,jai->aij": ["xy.|.xy", "yx.|x.."],
    "i,j->ij": ["x|y", "x|x"],
    "ab,cb->acb": ["x.|x.", "xy|.y"],
    "ab,cd->acbd": ["x.|y."],
    "a,b,ab->ba": ["x|y|xy", "x|x|.x"],
}
"""Which axis of the mesh shards each axis of each operand; a dot for none."""

BACKWARD = {
    "bqhd,bkhd,bkhe->bqhe": ["x.y.|x.y.|x.y."],
    "bsm,mf,fn->bsn": ["x..|.y|y.", "x..|xy|yx"],
    "ecd,edf->ecf": ["y..|yx."],
    "iab,abj->ij": ["..x|..."],
    "bii->b": [".x."],
    "iij,jk->ik": ["..x|.."],
    "i,j->ij": ["x|x"],
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


def main():
    for mode in ("Auto", "Explicit"):
        mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(getattr(AxisType, mode),) * 2)
        with jax.set_mesh(mesh):
            for is_backward, cases in enumerate((FORWARD, BACKWARD)):
                for equation, layouts in cases.items():
                    for layout in layouts:
                        key = [mode, equation, layout, bool(is_backward)]
                        print(json.dumps([key, compare(mesh, equation, layout, is_backward)]))  # noqa: T201


if __name__ == "__main__":
    main()
