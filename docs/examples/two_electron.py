"""The two-electron integrals of quantum chemistry, from atomic to molecular orbitals: a four-index transformation.

``python docs/examples/two_electron.py`` makes random integrals with the symmetries that real ones have, and
coefficients of orthonormal orbitals. One einsum of five operands transforms all four indices; it is checked against
four matrix products, an index each, and so is the part that second-order perturbation theory needs, from occupied to
virtual orbitals. ``--full`` takes 80 orbitals, whose integrals are 328 MB.
"""

import argparse
import time

import numpy as np

import einsumx

BOUND = 1e-12
"""How far an element may be off, as a part of the largest."""

TRANSFORMATION = "mnls,mp,nq,lr,st->pqrt"
"""Atomic orbitals m, n, l, s; molecular orbitals p, q, r, t."""


def integrals(orbitals, random):
    """(mn|ls) that is the same for m and n, l and s, and both pairs exchanged."""
    found = random.normal(size=(orbitals,) * 4)
    found = found + found.transpose(1, 0, 2, 3)
    found = found + found.transpose(0, 1, 3, 2)
    return found + found.transpose(2, 3, 0, 1)


def reference(values, *coefficients):
    """One index after the other: the first is contracted, and the new one goes to the end."""
    for coefficient in coefficients:
        first, *others = values.shape
        values = (values.reshape(first, -1).T @ coefficient).reshape(*others, -1)
    return values


def difference(found, expected):
    """The largest difference of any element, as a part of the largest element."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def main():
    """Print what runs, and how long it takes."""
    parser = argparse.ArgumentParser(description="A four-index transformation of two-electron integrals.")
    parser.add_argument("--full", action="store_true", help="80 orbitals, and some gigabytes of memory")
    orbitals = 80 if parser.parse_args().full else 12
    occupied = orbitals // 4
    random = np.random.default_rng(0)
    values = integrals(orbitals, random)
    coefficients, _ = np.linalg.qr(random.normal(size=(orbitals, orbitals)))

    plan = einsumx.plan(TRANSFORMATION, values, *[coefficients] * 4)
    print(plan)
    print(f"one sum over all eight labels would take {orbitals**8:.1e} multiply-adds\n")

    inner, outer = coefficients[:, :occupied], coefficients[:, occupied:]
    for what, given in (("all", [coefficients] * 4), ("occupied to virtual", [inner, outer, inner, outer])):
        start = time.perf_counter()
        found = einsumx.einsum(TRANSFORMATION, values, *given)
        seconds = time.perf_counter() - start
        apart = difference(found, reference(values, *given))
        print(f"{what:20} {found.shape!s:20} {seconds * 1e3:10.2f} ms   difference {apart:.1e}")
        assert apart <= BOUND, f"{what}: differs from four matrix products by more than rounding"
        symmetry = difference(found.transpose(2, 3, 0, 1), found)
        assert symmetry <= BOUND, f"{what}: the pairs can no more be exchanged"


if __name__ == "__main__":
    main()
