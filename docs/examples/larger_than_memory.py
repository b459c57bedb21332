"""A contraction of a file that does not fit into memory, into another file.

``python docs/examples/larger_than_memory.py`` writes a tensor of three axes to a file, block by block, and contracts it
with two factor matrices, which is the step that decompositions of tensors repeat: ``ijk,jr,kr->ir``. Under
``memory_limit`` the file is read in blocks while others are computed, and the result is written to its own file. It is
checked against plain matrix products, a slab of the tensor at a time. ``--full`` takes 29 GB on the disk and 1 GB of
memory; ``--folder`` says where the files go.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

import einsumx

EQUATION = "ijk,jr,kr->ir"

BOUND = 1e-5
"""How far an element may be off, as a part of the largest: sums of up to millions of products in single precision."""


def write_tensor(path, shape, random):
    """A tensor of random numbers, made a slab at a time."""
    tensor = open_memmap(path, "w+", "float32", shape)
    for slab in tensor:
        slab[...] = random.random(shape[1:], "float32") - 0.5
    tensor.flush()


def reference(path, factors):
    """The result, a slab of the tensor at a time."""
    lhs, rhs = factors
    return np.stack([((slab @ rhs) * lhs).sum(axis=0, dtype="float64") for slab in np.load(path, mmap_mode="r")])


def main():
    """Print how the contraction is cut, and how it goes on."""
    parser = argparse.ArgumentParser(description="A contraction of a file that is larger than memory.")
    parser.add_argument("--full", action="store_true", help="29 GB on the disk, under a limit of 1 GB")
    parser.add_argument("--folder", help="where the files are written; by default a temporary folder")
    arguments = parser.parse_args()
    shape, rank, limit = ((4000, 1500, 1200), 64, "1 GB") if arguments.full else ((60, 80, 100), 8, "150 kB")
    random = np.random.default_rng(0)
    factors = [random.random((size, rank), "float32") - 0.5 for size in shape[1:]]

    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path, result = Path(folder, "tensor.npy"), Path(folder, "result.npy")
        write_tensor(path, shape, random)
        print(f"{path.stat().st_size / 1e6:.1f} MB in {path}")
        tensor, out = np.load(path, mmap_mode="r"), open_memmap(result, "w+", "float32", (shape[0], rank))

        plan = einsumx.plan(EQUATION, tensor, *factors, memory_limit=limit, out=out)
        print(plan)

        def told(done, steps):
            if done == steps or done % max(steps // 4, 1) == 0:
                print(f"  {done} of {steps} steps")

        start = time.perf_counter()
        einsumx.einsum(EQUATION, tensor, *factors, memory_limit=limit, out=out, progress=told)
        seconds = time.perf_counter() - start
        out.flush()

        found, expected = np.load(result), reference(path, factors)
        apart = float(np.abs(found - expected).max() / np.abs(expected).max())
        print(f"{seconds:.2f} s, peak {plan.peak_bytes / 1e3:.1f} kB, difference {apart:.1e}")
        assert apart <= BOUND, "differs from plain matrix products by more than rounding"
        assert plan.peak_bytes < path.stat().st_size, "the tensor would have fitted"


if __name__ == "__main__":
    main()
