"""Multi-head attention on every installed framework: NumPy, PyTorch, JAX, MXNet.

``python docs/examples/attention.py`` times each framework's own einsum and einsumx on queries, keys and values in the
order in which projections return them, with heads not in front. It checks every element against a loop over batches
and heads in NumPy, in double precision. ``--full`` runs the sizes of a translation model, which take MXNet's own einsum
a minute.
"""

import argparse
import time
from importlib.util import find_spec
from statistics import median

import numpy as np

import einsumx

BOUND = 64 * 2.0**-23
"""The largest error allowed, relative to the largest element: some tens of roundings in single precision."""


class Numpy:
    """The functions that the example needs, from NumPy."""

    def __init__(self):
        self.einsum, self.array = np.einsum, np.asarray

    def softmax(self, scores):
        """Along the last axis."""
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)

    def numpy(self, array):
        """The values, after waiting for them."""
        return np.asarray(array)


class Torch(Numpy):
    """PyTorch."""

    def __init__(self):
        import torch

        self.einsum, self.array = torch.einsum, torch.as_tensor

    def softmax(self, scores):
        """Along the last axis."""
        return scores.softmax(-1)


class Jax(Numpy):
    """JAX, whose own einsum is compiled too."""

    def __init__(self):
        import jax

        self.einsum, self.array = jax.numpy.einsum, jax.numpy.asarray
        self.softmax = jax.nn.softmax


class Mxnet(Numpy):
    """MXNet, with any NumPy."""

    def __init__(self):
        import einsumx.mxnet

        mx = einsumx.mxnet.load()
        mx.npx.set_np()
        self.einsum, self.array, self.softmax = mx.np.einsum, mx.np.array, mx.npx.softmax

    def numpy(self, array):
        """The values, after waiting for them."""
        return array.asnumpy()


FRAMEWORKS = {"numpy": Numpy, "torch": Torch, "jax": Jax, "mxnet": Mxnet}


def attention(framework, einsum, queries, keys, values):
    """Return the attended values. Axes: b batch, i query position, j key position, n head, d unit."""
    scores = einsum("bind,bjnd->bnij", queries, keys) / queries.shape[-1] ** 0.5
    return einsum("bnij,bjnd->bind", framework.softmax(scores), values)


def reference(queries, keys, values):
    """Return the same, computed one head and one batch item at a time."""
    result = np.empty(queries.shape)
    for b in range(queries.shape[0]):
        for n in range(queries.shape[2]):
            scores = np.float64(queries[b, :, n]) @ np.float64(keys[b, :, n]).T / queries.shape[-1] ** 0.5
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            result[b, :, n] = weights / weights.sum(axis=-1, keepdims=True) @ values[b, :, n]
    return result


def timed(call, rounds):
    """Return the call's result, and the median time of further calls."""
    result, times = call(), []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return result, median(times)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description="Attention on every installed framework.")
    parser.add_argument("--full", action="store_true", help="run the sizes of a translation model")
    full = parser.parse_args().full
    batch, length, keys_length, heads, units = (64, 100, 50, 8, 128) if full else (2, 20, 10, 4, 16)
    random = np.random.default_rng(0)
    hosts = [
        random.normal(size=(batch, size, heads, units)).astype("float32") for size in (length, keys_length, keys_length)
    ]
    expected = reference(*hosts)

    print(f"batch {batch}, {length} queries, {keys_length} keys, {heads} heads of {units} units")
    print(f"{'':8}{'own einsum':>14}{'einsumx':>14}{'ratio':>8}{'difference':>12}")
    for name in filter(find_spec, FRAMEWORKS):
        framework = FRAMEWORKS[name]()
        arrays = [framework.array(host) for host in hosts]
        times = []
        for einsum in (framework.einsum, einsumx.einsum):

            def call(framework=framework, einsum=einsum, arrays=arrays):
                return framework.numpy(attention(framework, einsum, *arrays))

            result, seconds = timed(call, rounds=3)
            times.append(seconds * 1e3)
        error = float(np.abs(result - expected).max() / np.abs(expected).max())
        print(f"{name:8}{times[0]:11.2f} ms{times[1]:11.2f} ms{times[0] / times[1]:7.1f}x{error:12.1e}")
        assert error <= BOUND, f"{name}: differs from the reference by more than rounding"


if __name__ == "__main__":
    main()
