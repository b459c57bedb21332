"""Code full of ``np.einsum`` that knows nothing of einsumx, run as it stands and under ``einsumx.patch("numpy")``.

``python docs/examples/patched.py`` runs each function as it is, then with einsumx behind ``np.einsum``, and prints both
times and how far the results are apart; what goes on to NumPy's own function is logged. ``--full`` takes sizes at which
it pays: some of NumPy's own take many seconds.
"""

import argparse
import logging
import time

import numpy as np

import einsumx

BOUND = 1e-12
"""How far an element may be off, as a part of the largest."""


# -- a user's code, in which nothing changes ----------------------------------------------------------------------


def distances(points, metric):
    """The squared length of each point in a metric."""
    return np.einsum("ni,ij,nj->n", points, metric, points)


def rotated(stiffness, rotations):
    """A tensor of four axes in many rotated frames."""
    return np.einsum("nai,nbj,nck,ndl,ijkl->nabcd", *[rotations] * 4, stiffness)


def scores(queries, keys):
    """Attention scores of each head."""
    return np.einsum("bqhd,bkhd->bhqk", queries, keys)


def overlap(chain, other):
    """The inner product of two chains of matrices, a site after the other."""
    left = np.ones((1, 1))
    for lhs, rhs in zip(chain, other):
        left = np.einsum("ab,aic,bid->cd", left, lhs, rhs)
    return np.einsum("aa->", left)


def gaps_filled(data, gaps):
    """The sums over rows of data with gaps: a masked array, which einsumx leaves to NumPy."""
    return np.einsum("ij->i", np.ma.masked_array(data * ~gaps, gaps))


# -- before and after ---------------------------------------------------------------------------------------------


def problems(full):
    """Each function with its arguments."""
    random = np.random.default_rng(0)
    many, wide, length, bond = (20_000, 300, 200, 120) if full else (200, 20, 12, 8)
    frames = np.linalg.qr(random.normal(size=(many // 20, 3, 3)))[0] if full else random.normal(size=(10, 3, 3))
    chains = [
        [random.normal(size=(1 if site == 0 else bond, 2, 1 if site == 9 else bond)) / bond**0.5 for site in range(10)]
        for _ in range(2)
    ]
    return [
        (distances, (random.normal(size=(many, wide)), random.normal(size=(wide, wide)))),
        (rotated, (random.normal(size=(3, 3, 3, 3)), frames)),
        (scores, tuple(random.normal(size=(4, length, 4, 32)) for _ in range(2))),
        (overlap, tuple(chains)),
        (gaps_filled, (random.normal(size=(many, wide)), random.random((many, wide)) < 0.1)),
    ]


def timed(function, arguments):
    """What a function returns, and the least of its times in some calls after the first."""
    found, times = function(*arguments), []
    for _ in range(3):
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return np.asarray(found), min(times)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description="A user's np.einsum calls, before and after einsumx.patch.")
    parser.add_argument("--full", action="store_true", help="sizes at which it pays")
    full = parser.parse_args().full
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("einsumx").setLevel(logging.INFO)

    own = np.einsum
    print(f"{'':14}{'np.einsum':>14}{'patched':>14}{'ratio':>8}{'difference':>12}")
    for function, arguments in problems(full):
        expected, before = timed(function, arguments)
        with einsumx.patch("numpy"):
            found, after = timed(function, arguments)
        apart = float(np.abs(found - expected).max() / np.abs(expected).max())
        name = function.__name__
        print(f"{name:14}{before * 1e3:11.3f} ms{after * 1e3:11.3f} ms{before / after:7.1f}x{apart:12.1e}")
        assert apart <= BOUND, f"{name}: results differ by more than rounding"
    assert np.einsum is own, "NumPy has its own function back"


if __name__ == "__main__":
    main()
