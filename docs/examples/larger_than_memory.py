"""Contract a file that does not fit into memory, and write the result to another file.

``python docs/examples/larger_than_memory.py`` writes a tensor of three axes to a file, slab by slab, and contracts it
with two factor matrices, the step that tensor decompositions repeat: ``ijk,jr,kr->ir``. Under ``memory_limit``, einsumx
reads some blocks of the file while it computes others. The result is checked against plain matrix products, one slab of
the tensor at a time. ``--full`` uses 29 GB of disk space and 1 GB of memory; ``--folder`` sets where the files go.
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
"""The largest error allowed, relative to the largest element, for single-precision sums of millions of products."""


def write_tensor(path, shape, random):
    """Write a tensor of random numbers, one slab at a time."""
    tensor = open_memmap(path, "w+", "float32", shape)
    for slab in tensor:
        slab[...] = random.random(shape[1:], "float32") - 0.5
    tensor.flush()


def reference(path, factors):
    """Return the result, computed one slab of the tensor at a time."""
    lhs, rhs = factors
    return np.stack([((slab @ rhs) * lhs).sum(axis=0, dtype="float64") for slab in np.load(path, mmap_mode="r")])


def main():
    """Print the plan and the progress."""
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

        def progress(done, steps):
            if done == steps or done % max(steps // 4, 1) == 0:
                print(f"  {done} of {steps} steps")

        start = time.perf_counter()
        einsumx.einsum(EQUATION, tensor, *factors, out=out, memory_limit=einsumx.MemoryLimit(limit, progress=progress))
        seconds = time.perf_counter() - start
        out.flush()

        computed, expected = np.load(result), reference(path, factors)
        error = float(np.abs(computed - expected).max() / np.abs(expected).max())
        print(f"{seconds:.2f} s, peak {plan.peak_bytes / 1e3:.1f} kB, difference {error:.1e}")
        assert error <= BOUND, "differs from plain matrix products by more than rounding"
        assert plan.peak_bytes < path.stat().st_size, "the tensor would have fitted"


if __name__ == "__main__":
    main()
