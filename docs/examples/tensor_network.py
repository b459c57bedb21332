"""A network of hundreds of tensors: the partition function of the two-dimensional Ising model.

``python docs/examples/tensor_network.py`` contracts a tensor for each spin of a square lattice, with a label for each
bond, along a path that opt_einsum finds; then once more in half the memory, where labels are cut into slices. The
logarithm of the sum over all states of all spins is checked against that by the transfer matrix, in plain NumPy, column
by column. ``--full`` takes 17 x 17 spins, and also the paths of random-greedy and, where it is installed, of cotengra.
"""

import argparse
import math
import time
from importlib.util import find_spec

import numpy as np

import einsumx
from einsumx.plans import plan_cost

BETA = math.log(1 + math.sqrt(2)) / 2
"""The inverse temperature: that of the transition."""

BOUND = 1e-12
"""How far the logarithm may be off, as a part of it."""

BOND = np.exp(BETA * np.array([[1, -1], [-1, 1]]))
"""The weight of two neighbours, by their states."""


def network(rows, columns):
    """Operands and labels in turn, as einsum takes them: a tensor a spin, a label a bond to a neighbour."""
    values, vectors = np.linalg.eigh(BOND)
    half = vectors * np.sqrt(values)  # half @ half.T is the bond; each of the two spins takes one of them
    given = []
    for row in range(rows):
        for column in range(columns):
            here = (row, column)
            neighbours = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
            there = [place for place in neighbours if 0 <= place[0] < rows and 0 <= place[1] < columns]
            tensor = 0
            for state in (0, 1):
                part = np.ones(())
                for _ in there:
                    part = np.multiply.outer(part, half[state])
                tensor = tensor + part
            given += [tensor, [(min(here, place), max(here, place)) for place in there]]
    return [*given, []]


def reference(rows, columns):
    """The logarithm of the partition function by the transfer matrix."""
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
    """Print how each path fares, and slices along the first."""
    parser = argparse.ArgumentParser(description="The partition function of a lattice as a tensor network.")
    parser.add_argument("--full", action="store_true", help="17 x 17 spins, 289 tensors, for a minute")
    full = parser.parse_args().full
    size = 17 if full else 8
    operands = network(size, size)
    expected = reference(size, size)
    print(f"{size} x {size} spins, {size * size} tensors, {2 * size * (size - 1)} labels; ln Z = {expected:.10f}")
    print(f"{'':14}{'planned in':>12}{'arithmetic':>14}{'largest':>14}{'peak':>14}{'run in':>12}  difference")

    def run(what, plan, seconds, arithmetic, largest, **options):
        start = time.perf_counter()
        found = math.log(einsumx.einsum(*operands, **options))
        taken = time.perf_counter() - start
        apart = abs(found - expected) / expected
        print(
            f"{what:14}{seconds:10.2f} s{arithmetic:>14}{largest:>14}{plan.peak_bytes / 1e3:11.1f} kB"
            f"{taken:10.2f} s  difference {apart:.1e}"
        )
        assert apart <= BOUND, f"{what}: differs from the transfer matrix by more than rounding"

    optimizers = ["greedy", *(["random-greedy", *filter(find_spec, ["cotengra"])] if full else [])]
    plans = {}
    for name in optimizers:
        start = time.perf_counter()
        plans[name] = plan = einsumx.plan(*operands, optimize=name)
        seconds, cost = time.perf_counter() - start, plan_cost(plan)
        largest = max(op.allocated for op in cost.ops)
        run(name, plan, seconds, f"{cost.multiply_adds / 1e6:.3f} M", f"{largest / 1e3:.1f} kB", optimize=plan.path)

    path, peak = plans["greedy"].path, plans["greedy"].peak_bytes
    held = sum(tensor.nbytes for tensor in operands[:-1:2])  # which no limit counts, as they are there anyway
    limit = (peak - held) // 2
    start = time.perf_counter()
    plan = einsumx.plan(*operands, optimize=path, memory_limit=limit)
    seconds = time.perf_counter() - start
    run("in slices", plan, seconds, "", "", optimize=path, memory_limit=limit)
    print(f"slices of {len(plan.cuts)} labels keep within {limit / 1e3:.1f} kB")
    assert plan.peak_bytes <= limit, "the slices take more than the limit"


if __name__ == "__main__":
    main()
