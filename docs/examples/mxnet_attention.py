"""A transformer encoder layer in MXNet, before and after ``einsumx.patch("mxnet")``.

``python docs/examples/mxnet_attention.py`` runs and trains one layer, imperative and hybridized, first with MXNet's own
einsum and then with einsumx. It prints the times, and checks that results and gradients agree up to rounding.
``--full`` runs a size that shows the difference. The layer itself does not mention einsumx.
"""

import argparse
import time
from contextlib import nullcontext
from functools import partial
from statistics import median

import numpy as np

import einsumx.mxnet

mx = einsumx.mxnet.load()  # `import mxnet as mx` also works with the NumPy that MXNet was built for
mx.npx.set_np()

EPS = 2.0**-23
BOUND = 256 * EPS
"""The largest difference allowed, relative to the largest element: some hundred roundings in sequence."""


class EncoderLayer(mx.gluon.HybridBlock):
    """Self-attention and a feed-forward network, each added to its input and normalized."""

    def __init__(self, units, heads):
        super().__init__()
        self.units, self.heads = units, heads
        self.query, self.key, self.value = (self.dense(units, use_bias=False) for _ in range(3))
        self.output, self.shrink = self.dense(units), self.dense(units)
        self.grow, self.activation = self.dense(4 * units), mx.gluon.nn.GELU()
        self.first_norm, self.second_norm = (mx.gluon.nn.LayerNorm(in_channels=units) for _ in range(2))

    def dense(self, units, **options):
        """A layer that maps the last axis."""
        return mx.gluon.nn.Dense(units, flatten=False, **options)

    def compute(self, F, data):  # noqa: N803
        """Return the layer's output for data with axes batch, position and unit."""

        def by_heads(projected):
            return F.npx.reshape(projected, (-2, -2, self.heads, -1))

        query, key, value = (by_heads(project(data)) for project in (self.query, self.key, self.value))
        scores = F.np.einsum("bind,bjnd->bnij", query, key) / (self.units // self.heads) ** 0.5
        weights = F.npx.softmax(scores, axis=-1)
        context = F.npx.reshape(F.np.einsum("bnij,bjnd->bind", weights, value), (-2, -2, -1))
        data = self.first_norm(data + self.output(context))
        return self.second_norm(data + self.shrink(self.activation(self.grow(data))))

    if mx.__version__.startswith("1."):

        def hybrid_forward(self, F, data):  # noqa: N803
            """Called by MXNet 1 with arrays or, if the layer is hybridized, with symbols."""
            return self.compute(F, data)

    else:

        def forward(self, data):
            """Called by MXNet 2 with arrays, also to trace the layer."""
            return self.compute(mx, data)


class Problem:
    """A layer's size, initial weights and data."""

    def __init__(self, batch, length, heads, units):
        random = np.random.default_rng(0)
        self.heads, self.units = heads, units
        self.data, self.target = (
            mx.np.array(random.normal(size=(batch, length, units)).astype("float32")) for _ in range(2)
        )
        layer = EncoderLayer(units, heads)
        layer.initialize()
        layer(self.data[:1, :1])  # the first call determines the shapes of the weights
        self.weights = {
            name: parameter.data().asnumpy() for name, parameter in layer._collect_params_with_prefix().items()
        }
        for name, values in self.weights.items():
            if values.ndim == 2:
                values[:] = random.normal(size=values.shape) / values.shape[1] ** 0.5
            assert np.isfinite(values).all(), name

    def layer(self, hybridized):
        """Return a new layer with the initial weights."""
        layer = EncoderLayer(self.units, self.heads)
        layer.initialize()
        layer(self.data[:1, :1])
        for name, parameter in layer._collect_params_with_prefix().items():
            parameter.set_data(mx.np.array(self.weights[name]))
        layer.hybridize(hybridized)
        return layer


def forward(layer, problem):
    """Return the layer's result."""
    return {"result": layer(problem.data).asnumpy()}


def forward_and_backward(layer, problem):
    """Return the layer's result, and the gradients of the data and of all weights."""
    problem.data.attach_grad()
    with mx.autograd.record():
        result = layer(problem.data)
    result.backward(problem.target)
    parameters = layer._collect_params_with_prefix()
    gradients = {name: parameter.grad().asnumpy() for name, parameter in parameters.items()}
    return {"result": result.asnumpy(), "data": problem.data.grad.asnumpy(), **gradients}


def train(layer, problem, steps=3):
    """Return the losses of some steps of stochastic gradient descent."""
    trainer = mx.gluon.Trainer(layer.collect_params(), "sgd", {"learning_rate": 0.1})
    square = mx.gluon.loss.L2Loss()
    losses = []
    for _ in range(steps):
        with mx.autograd.record():
            loss = square(layer(problem.data), problem.target)
        loss.backward()
        trainer.step(len(problem.data))
        losses.append(loss.asnumpy())
    return {"loss": np.stack(losses)}


def timed(function, layer, problem, seconds):
    """Return the function's result, and the median time of further calls, which take some seconds in all."""
    result, times = function(layer, problem), []
    while not times or (sum(times) < seconds and len(times) < 20):
        start = time.perf_counter()
        function(layer, problem)
        times.append(time.perf_counter() - start)
    return result, median(times)


def difference(results, expected):
    """Return the largest difference in any array, relative to the array's largest element."""
    return max(float(np.abs(results[name] - values).max() / np.abs(values).max()) for name, values in expected.items())


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description="A transformer encoder layer on mx.np.einsum, and on einsumx.")
    parser.add_argument("--full", action="store_true", help="run a size that shows the difference, in a minute or two")
    full = parser.parse_args().full
    sizes = {"batch": 4, "length": 100, "heads": 8, "units": 512} if full else {
        "batch": 2, "length": 24, "heads": 4, "units": 64,
    }  # fmt: skip
    problem, seconds = Problem(**sizes), 1.0 if full else 0.01

    print(f"MXNet {mx.__version__}, NumPy {np.__version__};", ", ".join(f"{name} {n}" for name, n in sizes.items()))
    print(f"{'':30}{'mx.np.einsum':>12}{'einsumx':>12}{'ratio':>8}{'difference':>12}")
    for hybridized in (False, True):
        for task, function in (("forward", forward), ("forward, backward", forward_and_backward), ("3 steps", train)):
            results, times = {}, {}
            for name, context in (("native", nullcontext), ("einsumx", partial(einsumx.patched, "mxnet"))):
                with context():
                    results[name], times[name] = timed(function, problem.layer(hybridized), problem, seconds)
            mode = "hybridized" if hybridized else "imperative"
            before, after = times["native"] * 1e3, times["einsumx"] * 1e3
            error = difference(results["einsumx"], results["native"])
            print(f"{mode:12}{task:18}{before:9.1f} ms{after:9.1f} ms{before / after:7.1f}x{error:12.1e}")
            assert error <= BOUND, f"{mode}, {task}: results differ by more than rounding"


if __name__ == "__main__":
    main()
