"""The processes of ``test_dtensor.py``: ``python dtensor_ranks.py WORLD FOLDER`` forks them, so that torch loads once.

Rank 0 writes what it found to the file ``results``, for the tests to judge. Each writes its errors to a file.
"""

import logging
import os
import pickle
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode

import einsumx

R, P = Replicate(), Partial()
S0, S1, S2, S3 = map(Shard, range(4))

LINE, GRID = (4,), (2, 2)

CASES = [
    # attention, sharded by heads, by batch and by positions
    (LINE, "bqhd,bkhd->bhqk", (4, 8, 4, 4, 8), [[S2], [S2]]),
    (LINE, "bqhd,bkhd->bhqk", (4, 8, 4, 4, 8), [[S1], [R]]),
    (GRID, "bqd,bkd->bqk", (4, 8, 4, 8), [[S0, S1], [S0, R]]),
    # an MLP and projections, parallel in columns and in rows
    (LINE, "btd,df->btf", (4, 8, 8, 16), [[R], [S1]]),
    (LINE, "btf,fd->btd", (4, 8, 16, 8), [[S2], [S0]]),
    (LINE, "btd,dhk->bthk", (4, 8, 8, 4, 4), [[R], [S1]]),
    (LINE, "bthk,hkd->btd", (4, 8, 4, 4, 8), [[S2], [S0]]),
    (GRID, "btd,df->btf", (4, 8, 8, 16), [[S0, R], [R, S1]]),
    (LINE, "btd,df->btf", (4, 8, 8, 16), [[S0], [R]]),
    (LINE, "btd,df->btf", (4, 8, 8, 16), [[P], [R]]),
    # experts
    (LINE, "ecd,edf->ecf", (4, 8, 4, 8), [[S0], [S0]]),
    # one operand
    (LINE, "ij->i", (8, 8), [[S1]]),
    (LINE, "ijk->ki", (8, 4, 8), [[S2]]),
    (LINE, "ii->i", (8,), [[R]]),
    (LINE, "ij->", (8, 8), [[S0]]),
    # products of two
    (LINE, "ij,jk->ik", (8, 8, 8), [[S0], [S1]]),
    (LINE, "ij,jk->ik", (8, 8, 8), [[S1], [S0]]),
    (GRID, "ij,jk->ik", (8, 8, 8), [[S0, S1], [R, S0]]),
    (LINE, "i,j->ij", (8, 8), [[S0], [R]]),
    (LINE, "i,i->", (8,), [[P], [R]]),
    (LINE, "ij,ij->ij", (8, 8), [[S0], [S1]]),
    (LINE, "abcd,cdef->abef", (4, 4, 4, 4, 4, 4), [[S1], [R]]),
    # three
    (LINE, "ij,jk,kl->il", (8, 8, 8, 8), [[S1], [S0], [R]]),
    # sizes that the mesh does not divide
    (LINE, "ij,jk->ik", (7, 8, 7), [[S0], [S1]]),
    (LINE, "bsd,edf,bse->bsf", (3, 7, 7, 3, 7), [[R], [S2], [S2]]),
]
"""The mesh, an equation, the size of each of its labels as they appear, and how each operand is placed."""


def full_operands(equation, sizes):
    labels = dict(zip(dict.fromkeys(equation.replace(",", "").partition("->")[0]), sizes, strict=True))
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn([labels[label] for label in term], generator=generator, dtype=torch.float64)
        for term in equation.partition("->")[0].split(",")
    ]


def placed(tensor, mesh, placements):
    if any(place.is_partial() for place in placements):
        return DTensor.from_local(tensor / mesh.size(), mesh, placements).requires_grad_()
    return distribute_tensor(tensor, mesh, placements).requires_grad_()


def counted(function):
    with CommDebugMode() as mode:
        result = function()
    return result, mode.get_total_counts()


def shards(tensor):
    return sum(not place.is_replicate() for place in tensor.placements)


def compare(einsum, mesh, equation, sizes, placements):
    """Whether values and gradients are right, the collectives forward and both ways, and how sharded the result is."""
    full = [tensor.requires_grad_() for tensor in full_operands(equation, sizes)]
    expected = torch.einsum(equation, *full)
    weights = torch.arange(expected.numel(), dtype=torch.float64).reshape(expected.shape)
    gradients = torch.autograd.grad(expected, full, weights)
    operands = [placed(tensor.detach(), mesh, each) for tensor, each in zip(full, placements)]
    result, forward = counted(lambda: einsum(equation, *operands))
    seed = distribute_tensor(weights, mesh, [R] * mesh.ndim)
    found, backward = counted(lambda: torch.autograd.grad(result, operands, seed))
    return {
        "right": torch.allclose(result.full_tensor(), expected),
        "right gradients": all(torch.allclose(a.full_tensor(), b) for a, b in zip(found, gradients)),
        "collectives": (forward, forward + backward),
        "shards": shards(result),
    }


def error(function):
    try:
        return str(function())
    except Exception as raised:  # noqa: BLE001  the tests look at it
        return raised


def described(tensor):
    return str(tensor.placements), tensor.full_tensor().tolist()


def multiplied(lhs, rhs):
    return einsumx.einsum("ij,jk->ik", lhs, rhs)


def others(mesh, grid):
    """What single tests ask for."""
    lhs, rhs = (placed(torch.ones(8, 8), mesh, [place]).detach() for place in (S0, R))
    uneven = placed(torch.ones(7, 8, 3), mesh, [S0]).detach()
    twice = placed(torch.ones(6, 8, 3), grid, [S0, S0]).detach()
    compiled = torch.compile(multiplied, backend="aot_eager", fullgraph=True)
    leaf = placed(torch.ones(8, 8), mesh, [S0])
    product = compiled(leaf, rhs)  # in no mode, as torch compiles nothing there
    product.sum().backward()
    results = {
        "uneven": error(lambda: einsumx.einsum("abc,abc->", uneven, uneven)),
        "uneven on two axes of the mesh": error(lambda: einsumx.einsum("abc,abc->", twice, twice)),
        "mixed": error(lambda: einsumx.einsum("ij,jk->ik", lhs, torch.ones(8, 8))),
        "limit": error(lambda: einsumx.einsum("ij,jk->ik", lhs, rhs, memory_limit="1MB")),
        "number": einsumx.einsum("ij,->ij", lhs, 2.0).full_tensor().tolist(),
        "measured": einsumx.effort("measure")(einsumx.einsum)("ij,jk,kl->il", lhs, rhs, lhs).full_tensor().tolist(),
        "compiled": described(product),
        "eager": described(torch.einsum("ij,jk->ik", lhs, rhs)),
    }
    with torch.inference_mode():
        turned = einsumx.einsum("ij,kj->ki", lhs, rhs)
        results["in inference mode"] = turned.full_tensor().tolist(), einsumx.einsum("ij->ji", lhs).shape
    results["compiled gradient"] = leaf.grad.full_tensor().tolist()
    left = []
    handler = logging.Handler()
    handler.emit = lambda record: left.append(record.getMessage())
    log = logging.getLogger("einsumx")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    with einsumx.patched("torch"):
        results["patched"] = str(torch.einsum("ij,jk->ik", lhs, rhs).placements)
        results["patched uneven"] = error(lambda: torch.einsum("abc,abc->", uneven, uneven))
    results["left"] = [text for text in left if "left to the framework" in text]
    return results


def work(rank, world, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), world), rank=rank, world_size=world)
    meshes = {shape: init_device_mesh("cpu", shape) for shape in (LINE, GRID)}
    compared = [
        [compare(einsum, meshes[shape], *case) for einsum in (torch.einsum, einsumx.einsum)] for shape, *case in CASES
    ]
    found = compared, others(meshes[LINE], meshes[GRID])
    if rank == 0:
        (folder / "results").write_bytes(pickle.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def main(world, folder):
    """The ranks' exit statuses, of which any but 0 is an error."""
    ranks = []
    for rank in range(world):
        process = os.fork()
        if not process:
            status = 1
            try:
                work(rank, world, folder)
                status = 0
            except Exception:  # noqa: BLE001  the test shows it
                (folder / f"errors{rank}").write_text(traceback.format_exc())
            finally:
                os._exit(status)
        ranks.append(process)
    return [os.waitpid(process, 0)[1] for process in ranks]


if __name__ == "__main__":
    sys.exit(any(main(int(sys.argv[1]), Path(sys.argv[2]))))
