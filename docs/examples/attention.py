"""The same attention on every framework that is installed: NumPy, PyTorch, JAX, MXNet.

``python docs/examples/attention.py`` computes multi-head attention from queries, keys and values whose heads are not in
front, as projections leave them. Each framework does it with its own einsum and with einsumx; both are timed, and every
element is checked against a loop over batches and heads in NumPy, in double precision. ``--full`` takes the sizes of a
translation model, for which MXNet's own einsum takes a minute.
"""

import argparse
import time
from importlib.util import find_spec
from statistics import median

import numpy as np

import einsumx

BOUND = 64 * 2.0**-23
"""How far an element may be off, as a part of the largest: some tens of roundings in single precision."""


class Numpy:
    """What the example asks of a framework, by NumPy."""

    def __init__(self):
        self.einsum, self.array = np.einsum, np.asarray

    def softmax(self, scores):
        """Along the last axis."""
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)

    def numpy(self, array):
        """The values, when they are computed."""
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
    """JAX; its own einsum is a compiled function, too."""

    def __init__(self):
        import jax

        self.einsum, self.array = jax.numpy.einsum, jax.numpy.asarray
        self.softmax = jax.nn.softmax


class Mxnet(Numpy):
    """MXNet, beside any NumPy."""

    def __init__(self):
        import einsumx.mxnet

        mx = einsumx.mxnet.load()
        mx.npx.set_np()
        self.einsum, self.array, self.softmax = mx.np.einsum, mx.np.array, mx.npx.softmax

    def numpy(self, array):
        """The values, when they are computed."""
        return array.asnumpy()


FRAMEWORKS = {"numpy": Numpy, "torch": Torch, "jax": Jax, "mxnet": Mxnet}


def attention(framework, einsum, queries, keys, values):
    """Axes: b batch, i position of a query, j position of a key, n head, d unit."""
    scores = einsum("bind,bjnd->bnij", queries, keys) / queries.shape[-1] ** 0.5
    return einsum("bnij,bjnd->bind", framework.softmax(scores), values)


def reference(queries, keys, values):
    """The same, a head of an example at a time."""
    result = np.empty(queries.shape)
    for b in range(queries.shape[0]):
        for n in range(queries.shape[2]):
            scores = np.float64(queries[b, :, n]) @ np.float64(keys[b, :, n]).T / queries.shape[-1] ** 0.5
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            result[b, :, n] = weights / weights.sum(axis=-1, keepdims=True) @ values[b, :, n]
    return result


def timed(call, rounds):
    """What a call returns, and the median of its times after the first."""
    found, times = call(), []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return found, median(times)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description="Attention on every framework that is installed.")
    parser.add_argument("--full", action="store_true", help="the sizes of a translation model")
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

            found, seconds = timed(call, rounds=3)
            times.append(seconds * 1e3)
        apart = float(np.abs(found - expected).max() / np.abs(expected).max())
        print(f"{name:8}{times[0]:11.2f} ms{times[1]:11.2f} ms{times[0] / times[1]:7.1f}x{apart:12.1e}")
        assert apart <= BOUND, f"{name}: differs from the reference by more than rounding"


if __name__ == "__main__":
    main()
