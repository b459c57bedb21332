"""Transform the two-electron integrals of quantum chemistry from atomic to molecular orbitals.

``python docs/examples/two_electron.py`` makes random integrals with the symmetries of real ones, and coefficients of
orthonormal orbitals. One einsum of five operands transforms all four indices. A second one computes the part that
second-order perturbation theory needs, from occupied to virtual orbitals. Both are checked against four matrix
products, one per index. ``--full`` runs 80 orbitals, whose integrals take 328 MB.
"""

import argparse
import time

import numpy as np

import einsumx

BOUND = 1e-12
"""The largest error allowed, relative to the largest element."""

TRANSFORMATION = "mnls,mp,nq,lr,st->pqrt"
"""Atomic orbitals m, n, l, s; molecular orbitals p, q, r, t."""


def integrals(orbitals, random):
    """Return (mn|ls), symmetric under exchange of m and n, of l and s, and of both pairs."""
    values = random.normal(size=(orbitals,) * 4)
    values = values + values.transpose(1, 0, 2, 3)
    values = values + values.transpose(0, 1, 3, 2)
    return values + values.transpose(2, 3, 0, 1)


def reference(values, *coefficients):
    """Transform one index after the other: contract the first one, and append the new one."""
    for coefficient in coefficients:
        first, *others = values.shape
        values = (values.reshape(first, -1).T @ coefficient).reshape(*others, -1)
    return values


def difference(result, expected):
    """Return the largest difference of any element, relative to the largest element."""
    return float(np.abs(result - expected).max() / np.abs(expected).max())


def main():
    """Print the plan, and the times."""
    parser = argparse.ArgumentParser(description="A four-index transformation of two-electron integrals.")
    parser.add_argument("--full", action="store_true", help="run 80 orbitals, in some gigabytes of memory")
    orbitals = 80 if parser.parse_args().full else 12
    occupied = orbitals // 4
    random = np.random.default_rng(0)
    values = integrals(orbitals, random)
    coefficients, _ = np.linalg.qr(random.normal(size=(orbitals, orbitals)))

    plan = einsumx.plan(TRANSFORMATION, values, *[coefficients] * 4)
    print(plan)
    print(f"one sum over all eight labels would take {orbitals**8:.1e} multiply-adds\n")

    inner, outer = coefficients[:, :occupied], coefficients[:, occupied:]
    for name, matrices in (("all", [coefficients] * 4), ("occupied to virtual", [inner, outer, inner, outer])):
        start = time.perf_counter()
        result = einsumx.einsum(TRANSFORMATION, values, *matrices)
        seconds = time.perf_counter() - start
        error = difference(result, reference(values, *matrices))
        print(f"{name:20} {result.shape!s:20} {seconds * 1e3:10.2f} ms   difference {error:.1e}")
        assert error <= BOUND, f"{name}: differs from four matrix products by more than rounding"
        symmetry = difference(result.transpose(2, 3, 0, 1), result)
        assert symmetry <= BOUND, f"{name}: not symmetric under exchange of the pairs"


if __name__ == "__main__":
    main()
