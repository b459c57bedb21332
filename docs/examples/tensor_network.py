"""The partition function of the two-dimensional Ising model, as a network of hundreds of tensors.

``python docs/examples/tensor_network.py`` contracts a tensor for each spin of a square lattice, with a label for each
bond, along a path from opt_einsum; and then again in half the memory, with sliced labels. The logarithm of the result
is checked against the transfer matrix in plain NumPy, column by column. ``--full`` runs 17 x 17 spins, also along the
paths of random-greedy and, if it is installed, of cotengra.
"""

import argparse
import math
import time
from importlib.util import find_spec

import numpy as np

import einsumx
from einsumx.plans import plan_cost

BETA = math.log(1 + math.sqrt(2)) / 2
"""The inverse temperature, at the phase transition."""

BOUND = 1e-12
"""The largest relative error allowed in the logarithm."""

BOND = np.exp(BETA * np.array([[1, -1], [-1, 1]]))
"""The weight of two neighbours, indexed by their states."""


def network(rows, columns):
    """Return operands and labels alternately, as einsum takes them: a tensor per spin, a label per bond."""
    values, vectors = np.linalg.eigh(BOND)
    half = vectors * np.sqrt(values)  # half @ half.T is the bond; each of the two spins takes one half
    operands = []
    for row in range(rows):
        for column in range(columns):
            spin = (row, column)
            adjacent = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
            neighbours = [(r, c) for r, c in adjacent if 0 <= r < rows and 0 <= c < columns]
            tensor = 0
            for state in (0, 1):
                part = np.ones(())
                for _ in neighbours:
                    part = np.multiply.outer(part, half[state])
                tensor = tensor + part
            operands += [tensor, [(min(spin, other), max(spin, other)) for other in neighbours]]
    return [*operands, []]


def reference(rows, columns):
    """Return the logarithm of the partition function, computed with the transfer matrix."""
    spins = 1 - 2 * (np.arange(2**rows)[:, None] >> np.arange(rows) & 1)
    within = np.exp(BETA * (spins[:, 1:] * spins[:, :-1]).sum(axis=1))
    weights, logarithm = within, 0.0
    for _ in range(columns - 1):
        for row in range(rows):
            weights = np.tensordot(BOND, weights.reshape(2**row, 2, -1), (1, 1)).transpose(1, 0, 2).ravel()
        logarithm += math.log(weights.sum())
        weights = weights / weights.sum() * within
    return logarithm + math.log(weights.sum())


def main():
    """Print costs and times for each path, and for slices along the first."""
    parser = argparse.ArgumentParser(description="The partition function of a lattice as a tensor network.")
    parser.add_argument("--full", action="store_true", help="run 17 x 17 spins, 289 tensors, in a minute")
    full = parser.parse_args().full
    size = 17 if full else 8
    operands = network(size, size)
    expected = reference(size, size)
    print(f"{size} x {size} spins, {size * size} tensors, {2 * size * (size - 1)} labels; ln Z = {expected:.10f}")
    print(f"{'':14}{'planned in':>12}{'arithmetic':>14}{'largest':>14}{'peak':>14}{'run in':>12}  difference")

    def run(name, plan, seconds, arithmetic, largest, **options):
        start = time.perf_counter()
        result = math.log(einsumx.einsum(*operands, **options))
        duration = time.perf_counter() - start
        error = abs(result - expected) / expected
        print(
            f"{name:14}{seconds:10.2f} s{arithmetic:>14}{largest:>14}{plan.peak_bytes / 1e3:11.1f} kB"
            f"{duration:10.2f} s  difference {error:.1e}"
        )
        assert error <= BOUND, f"{name}: differs from the transfer matrix by more than rounding"

    optimizers = ["greedy", *(["random-greedy", *filter(find_spec, ["cotengra"])] if full else [])]
    plans = {}
    for name in optimizers:
        start = time.perf_counter()
        plans[name] = plan = einsumx.plan(*operands, optimize=name)
        seconds, cost = time.perf_counter() - start, plan_cost(plan)
        largest = max(op.allocated for op in cost.ops)
        run(name, plan, seconds, f"{cost.multiply_adds / 1e6:.3f} M", f"{largest / 1e3:.1f} kB", optimize=plan.path)

    path, peak = plans["greedy"].path, plans["greedy"].peak_bytes
    stored = sum(tensor.nbytes for tensor in operands[:-1:2])  # operands in memory do not count
    limit = (peak - stored) // 2
    start = time.perf_counter()
    plan = einsumx.plan(*operands, optimize=path, memory_limit=limit)
    seconds = time.perf_counter() - start
    run("in slices", plan, seconds, "", "", optimize=path, memory_limit=limit)
    print(f"slices of {len(plan.cuts)} labels keep within {limit / 1e3:.1f} kB")
    assert plan.peak_bytes <= limit, "the slices take more than the limit"


if __name__ == "__main__":
    main()
