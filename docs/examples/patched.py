"""Run functions that call ``np.einsum``, before and after ``einsumx.patched("numpy")``.

``python docs/examples/patched.py`` prints both times of each function and the difference of the results. It logs the
calls that einsumx leaves to NumPy. ``--full`` runs sizes at which patching pays; some of NumPy's own calls then take
many seconds.
"""

import argparse
import logging
import time

import numpy as np

import einsumx

BOUND = 1e-12
"""The largest error allowed, relative to the largest element."""


# -- a user's code, which does not change ----------------------------------------------------------------------


def distances(points, metric):
    """Return the squared length of each point in a metric."""
    return np.einsum("ni,ij,nj->n", points, metric, points)


def rotated(stiffness, rotations):
    """Return a tensor of four axes in many rotated frames."""
    return np.einsum("nai,nbj,nck,ndl,ijkl->nabcd", *[rotations] * 4, stiffness)


def scores(queries, keys):
    """Return the attention scores of each head."""
    return np.einsum("bqhd,bkhd->bhqk", queries, keys)


def overlap(chain, other):
    """Return the inner product of two chains of matrices, contracted site by site."""
    left = np.ones((1, 1))
    for lhs, rhs in zip(chain, other):
        left = np.einsum("ab,aic,bid->cd", left, lhs, rhs)
    return np.einsum("aa->", left)


def gaps_filled(data, gaps):
    """Return the row sums of data with gaps: a masked array, which einsumx leaves to NumPy."""
    return np.einsum("ij->i", np.ma.masked_array(data * ~gaps, gaps))


# -- before and after ---------------------------------------------------------------------------------------------


def problems(full):
    """Return each function with its arguments."""
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
    """Return the function's result, and the shortest time of three further calls."""
    result, times = function(*arguments), []
    for _ in range(3):
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return np.asarray(result), min(times)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description="A user's np.einsum calls, before and after einsumx.patch.")
    parser.add_argument("--full", action="store_true", help="run sizes at which patching pays")
    full = parser.parse_args().full
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("einsumx").setLevel(logging.INFO)

    original = np.einsum
    print(f"{'':14}{'np.einsum':>14}{'patched':>14}{'ratio':>8}{'difference':>12}")
    for function, arguments in problems(full):
        expected, before = timed(function, arguments)
        with einsumx.patched("numpy"):
            result, after = timed(function, arguments)
        error = float(np.abs(result - expected).max() / np.abs(expected).max())
        name = function.__name__
        print(f"{name:14}{before * 1e3:11.3f} ms{after * 1e3:11.3f} ms{before / after:7.1f}x{error:12.1e}")
        assert error <= BOUND, f"{name}: results differ by more than rounding"
    assert np.einsum is original, "NumPy did not get its own function back"


if __name__ == "__main__":
    main()
