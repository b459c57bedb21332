"""The contenders on each framework: einsumx, the installed peers, and hand-written lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
from names import EINSUMX, HAND_WRITTEN
from problems import Problem

import einsumx
from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.registry import get_backend

Function: TypeAlias = Callable[..., Any]
"""Takes an equation and operands."""

Peers: TypeAlias = dict[str, tuple[str, str, dict[str, Any]]]


@dataclass(frozen=True)
class Framework:
    """A framework and its contenders.

    Attributes:
        name: the framework, and whether its functions are compiled.
        backend: einsumx's name for it.
        peers: by name, the module, the function in it, and keywords.
        engines: peers with loops of their own, in the same form; ``calls.py`` leaves them out.
        tuned: whether einsumx is also timed with the effort to measure.
        spins: whether the framework's threads spin after a product, so that calls are also timed after one.
        jitted: whether the framework compiles every function.
        waits: whether calls return before their result is complete.
        strided: whether callers choose the strides of arrays.
        groups: the groups of problems to time; all if empty.
        device: where the arrays are; empty for the framework's default.
    """

    name: str
    backend: str
    peers: Peers
    engines: Peers = field(default_factory=dict)
    tuned: bool = False
    spins: bool = False
    jitted: bool = False
    waits: bool = False
    strided: bool = False
    groups: tuple[str, ...] = ()
    device: str = ""

    @property
    def adapter(self) -> Adapter:
        """Einsumx's adapter of the framework."""
        return get_backend(self.backend)

    def start(self) -> None:
        """Configure the framework for all dtypes and shapes; einsumx uses nothing that other processes measured."""
        os.environ["EINSUMX_WISDOM"] = "0"
        if self.backend == "jax":
            import_module("jax").config.update("jax_enable_x64", True)
        if self.backend == "mxnet":
            import_module("mxnet").npx.set_np()

    def takes(self, problem: Problem) -> bool:
        """Whether the framework supports the problem's strides and gradients."""
        if problem.gradient and self.backend == "numpy":
            return False
        if self.groups and problem.group not in self.groups:
            return False
        if problem.group == "random":  # frameworks without such strides get copies
            return True
        if "reversed" in problem.layouts and self.backend == "torch":
            return False
        return self.strided or not problem.layouts

    def einsums(self) -> dict[str, Function]:
        """Einsumx and the installed peers, by name."""
        return {EINSUMX: einsumx.einsum, **_installed(self.peers)}

    def functions(self, problem: Problem) -> dict[str, Function]:
        """The functions for a problem, by name, einsumx first."""
        functions = {**self.einsums(), **_installed(self.engines)}
        # PyTorch does not differentiate through the out= of its own lines.
        own = {} if problem.gradient and self.backend == "torch" else OWN_LINES.get(self.backend, {})
        # TensorFlow has few of the names that other libraries share.
        lines = own if self.backend == "tensorflow" else {**LINES, **own}
        if problem.equation in lines and problem.dtype != "bool":
            line = lines[problem.equation]
            xp = TINYGRAD if self.backend == "tinygrad" else self.adapter.xp
            functions[HAND_WRITTEN] = lambda _, *arrays: line(xp, *arrays)
        return functions

    def measuring(self, problem: Problem) -> Function | None:
        """Einsumx with the effort to measure; None where it is not timed."""
        return einsumx.effort("measure")(einsumx.einsum) if self.tuned and not problem.gradient else None

    def arrays(self, problem: Problem, operands: Sequence[Any]) -> list[Array]:
        """The operands as arrays of the framework; with gradients, prepared for differentiation."""
        if self.backend == "torch":  # has no negative strides
            operands = [operand.copy() if min((0, *operand.strides)) < 0 else operand for operand in operands]
        place = self._with_strides if self.device and self.strided else self.adapter.from_numpy
        arrays = [place(operand, self.device) for operand in operands]
        if problem.gradient and self.backend == "torch":
            arrays[:-1] = [array.requires_grad_() for array in arrays[:-1]]
        if problem.gradient and self.backend == "paddle":
            for array in arrays[:-1]:
                array.stop_gradient = False
        if problem.gradient and self.backend == "mxnet":
            for array in arrays[:-1]:
                array.attach_grad()
        return arrays

    def _with_strides(self, operand: Any, device: str) -> Array:
        """An operand on a device, with its strides, which copies to other devices do not keep."""
        spans = [(size - 1) * stride // operand.itemsize for size, stride in zip(operand.shape, operand.strides)]
        first = -sum(min(span, 0) for span in spans)
        memory = np.zeros(1 + sum(map(abs, spans)), operand.dtype)
        np.lib.stride_tricks.as_strided(memory[first:], operand.shape, operand.strides)[...] = operand
        array = self.adapter.from_numpy(memory, device)
        if self.backend == "torch":
            steps = [stride // operand.itemsize for stride in operand.strides]
            return array.as_strided(operand.shape, steps, first)
        return import_module("cupy.lib.stride_tricks").as_strided(array[first:], operand.shape, operand.strides)

    def call(self, function: Function, problem: Problem, arrays: Sequence[Array]) -> Callable[[], Any]:
        """The timed call, without arguments; it returns when its result is complete."""
        if problem.gradient:
            function = GRADIENTS[self.backend](function)
        call = partial(function, problem.equation, *arrays)
        if self.jitted:
            call = partial(_compiled(self.backend, partial(function, problem.equation)), *arrays)
        if not self.waits:
            return call
        wait = self.adapter.synchronize

        def waited() -> Any:
            result = call()
            for array in result if problem.gradient else (result,):
                wait(array)
            return result

        return waited

    def values(self, result: Any) -> list[Any]:
        """The results of a call as NumPy arrays."""
        results = result if isinstance(result, list | tuple) else [result]
        return [self.adapter.to_numpy(array) for array in results]


def _compiled(backend: str, function: Function) -> Function:
    """The function as JAX or PyTorch compiles it."""
    if backend == "torch":  # counts every such function as one that it compiled again
        setattr(import_module("torch._dynamo.config"), "recompile_limit", 1000)  # noqa: B010 - mypy knows no such name
    jit = import_module("jax").jit if backend == "jax" else partial(import_module("torch").compile, fullgraph=True)
    compiled: Function = jit(function)
    return compiled


def _installed(peers: Peers) -> dict[str, Function]:
    """The functions of the installed peers, by name."""
    functions: dict[str, Function] = {}
    for name, (module, attribute, keywords) in peers.items():
        with suppress(ImportError):  # CuPy has modules of libraries that are not installed
            functions[name] = partial(attrgetter(attribute)(import_module(module)), **keywords)
    return functions


_PAIRWISE: Peers = {"opt_einsum": ("opt_einsum", "contract", {}), "cotengra": ("cotengra", "einsum", {})}
_JAX: Peers = {"jnp.einsum": ("jax.numpy", "einsum", {}), **_PAIRWISE}

FRAMEWORKS = (
    Framework(
        "numpy",
        "numpy",
        {
            "np.einsum": ("numpy", "einsum", {}),
            "np.einsum(optimize)": ("numpy", "einsum", {"optimize": True}),
            **_PAIRWISE,
            "einsumt": ("einsumt", "einsumt", {}),
        },
        engines={
            # NumPy's path under its default memory limit has steps of many operands, which take minutes.
            "TBLIS": ("pytblis", "einsum", {"optimize": ("greedy", 1 << 62)}),
            "LIBXSMM": ("libxsmm", "einsum", {}),
            "sesum": ("sesum", "sesum", {}),
        },
        tuned=True,
        spins=True,
        strided=True,
    ),
    Framework("torch", "torch", {"torch.einsum": ("torch", "einsum", {}), **_PAIRWISE}, tuned=True, strided=True),
    Framework("jax, jitted", "jax", _JAX, jitted=True, waits=True),
    Framework("jax, eager", "jax", _JAX, waits=True, groups=("tiny",)),
    Framework(
        "mxnet",
        "mxnet",
        {
            "mx.np.einsum": ("mxnet.numpy", "einsum", {}),
            "mx.np.einsum(optimize)": ("mxnet.numpy", "einsum", {"optimize": True}),
        },
        tuned=True,
        waits=True,
    ),
    Framework("paddle", "paddle", {"paddle.einsum": ("paddle", "einsum", {})}),
    Framework(
        "mlx",
        "mlx",
        {"mx.einsum": ("mlx.core", "einsum", {})},
        waits=True,
        groups=("attention", "mlp", "pairs", "tiny", "gradients"),  # mx.einsum ends the process on two networks
    ),
    Framework(
        "tinygrad",
        "tinygrad",
        {"Tensor.einsum": ("tinygrad", "Tensor.einsum", {})},
        waits=True,
        groups=("attention", "fused"),
    ),
    Framework(
        "tensorflow",
        "tensorflow",
        {
            "tf.einsum": ("tensorflow", "einsum", {}),
            "tf.einsum(optimal)": ("tensorflow", "einsum", {"optimize": "optimal"}),
            **_PAIRWISE,
        },
    ),
)

OWN_EINSUM: Peers = {"torch.einsum": ("torch", "einsum", {})}
"""PyTorch's own einsum, the one peer in functions that PyTorch compiles."""

_NVMATH: Peers = {"cuTENSOR by nvmath": ("nvmath.tensor", "binary_contraction", {})}

GPUS = {
    "cupy": Framework(
        "CuPy",
        "cupy",
        {"cp.einsum": ("cupy", "einsum", {}), "cuTENSOR": ("cutensor", "einsum", {}), **_NVMATH, **_PAIRWISE},
        waits=True,
        strided=True,
        device="cuda:0",
    ),
    "torch": Framework(
        "PyTorch",
        "torch",
        {**OWN_EINSUM, **_NVMATH, **_PAIRWISE},
        waits=True,
        strided=True,
        device="cuda:0",
    ),
    "jax": Framework("JAX, jitted", "jax", _JAX, jitted=True, waits=True, device="cuda:0"),
}
"""What ``gpu.py`` times, by einsumx's name of the framework."""


# -- gradients of all operands; the last array is the gradient of the result -------------------------------------


def _torch_gradients(function: Function) -> Function:
    grad = import_module("torch").autograd.grad

    def forward_and_backward(equation: str, *arrays: Array) -> Any:
        return grad(function(equation, *arrays[:-1]), arrays[:-1], arrays[-1])

    return forward_and_backward


def _jax_gradients(function: Function) -> Function:
    vjp = import_module("jax").vjp

    def forward_and_backward(equation: str, *arrays: Array) -> Any:
        return vjp(partial(function, equation), *arrays[:-1])[1](arrays[-1])

    return forward_and_backward


def _mxnet_gradients(function: Function) -> Function:
    record = import_module("mxnet").autograd.record

    def forward_and_backward(equation: str, *arrays: Array) -> Any:
        with record():
            result = function(equation, *arrays[:-1])
        result.backward(arrays[-1])
        return [array.grad for array in arrays[:-1]]

    return forward_and_backward


def _paddle_gradients(function: Function) -> Function:
    grad = import_module("paddle").grad

    def forward_and_backward(equation: str, *arrays: Array) -> Any:
        return grad(function(equation, *arrays[:-1]), list(arrays[:-1]), arrays[-1])

    return forward_and_backward


def _mlx_gradients(function: Function) -> Function:
    vjp = import_module("mlx.core").vjp

    def forward_and_backward(equation: str, *arrays: Array) -> Any:
        return vjp(partial(function, equation), list(arrays[:-1]), [arrays[-1]])[1]

    return forward_and_backward


def _tensorflow_gradients(function: Function) -> Function:
    tape = import_module("tensorflow").GradientTape

    def forward_and_backward(equation: str, *arrays: Array) -> Any:
        with tape() as recorded:
            recorded.watch(arrays[:-1])
            result = function(equation, *arrays[:-1])
        return recorded.gradient(result, arrays[:-1], arrays[-1])

    return forward_and_backward


GRADIENTS = {
    "torch": _torch_gradients,
    "jax": _jax_gradients,
    "mxnet": _mxnet_gradients,
    "mlx": _mlx_gradients,
    "paddle": _paddle_gradients,
    "tensorflow": _tensorflow_gradients,
}


# -- hand-written lines, as an expert would write them for the framework -----------------------------------------


def _swap(xp: Any, array: Array) -> Array:
    return xp.swapaxes(array, -1, -2)


def _rows(xp: Any, array: Array, matrix: Array, last: Sequence[int]) -> Array:
    """The last axis of ``array`` contracted with the first of ``matrix``, whose second becomes the axes ``last``."""
    return xp.matmul(array.reshape(-1, array.shape[-1]), matrix).reshape(*array.shape[:-1], *last)


def _shared_keys(xp: Any, queries: Array, keys: Array) -> Array:
    """``bnid,jnd->ijbn``."""
    return xp.moveaxis(xp.matmul(queries, xp.moveaxis(keys, 0, 2)), (0, 1), (2, 3))


TINYGRAD = SimpleNamespace(
    matmul=lambda a, b: a @ b,
    swapaxes=lambda array, first, second: array.transpose(first, second),
    moveaxis=lambda array, source, target: array.permute(_moved(array.ndim, source, target)),
)
"""NumPy's names for methods of tinygrad's tensors, for the lines."""


def _moved(rank: int, source: int | Sequence[int], target: int | Sequence[int]) -> list[int]:
    """The order of axes that ``moveaxis`` makes."""
    sources, targets = ([each] if isinstance(each, int) else list(each) for each in (source, target))
    axes = [axis for axis in range(rank) if axis not in [each % rank for each in sources]]
    for place, axis in sorted((place % rank, axis % rank) for axis, place in zip(sources, targets)):
        axes.insert(place, axis)
    return axes


LINES: dict[str, Function] = {
    "bnid,bnjd->bnij": lambda xp, a, b: xp.matmul(a, _swap(xp, b)),
    "bind,bjnd->bnij": lambda xp, a, b: xp.matmul(xp.swapaxes(a, 1, 2), xp.moveaxis(b, 1, 3)),
    "bind,jnd->bnij": lambda xp, a, b: xp.matmul(xp.swapaxes(a, 1, 2), xp.moveaxis(b, 0, 2)),
    "bnij,bnjc->binc": lambda xp, a, b: xp.swapaxes(xp.matmul(a, b), 1, 2),
    "bnij,bjnd->bind": lambda xp, a, b: xp.swapaxes(xp.matmul(a, xp.swapaxes(b, 1, 2)), 1, 2),
    "bhqd,bhkd->bhqk": lambda xp, a, b: xp.matmul(a, _swap(xp, b)),
    "bhqd,bhqkd->bhqk": lambda xp, a, b: xp.matmul(b, a[..., None])[..., 0],
    "bhqk,bhqkd->bhqd": lambda xp, a, b: xp.matmul(a[..., None, :], b)[..., 0, :],
    "bhqd,kd->bhqk": lambda xp, a, b: xp.matmul(a, _swap(xp, b)),
    "ij,jk->ik": lambda xp, a, b: xp.matmul(a, b),
    "ij,kj->ik": lambda xp, a, b: xp.matmul(a, _swap(xp, b)),
    "ji,jk->ik": lambda xp, a, b: xp.matmul(_swap(xp, a), b),
    "ij,jk->ki": lambda xp, a, b: xp.matmul(_swap(xp, b), _swap(xp, a)),
    "bi,io->bo": lambda xp, a, b: xp.matmul(a, b),
    "bi,oi->bo": lambda xp, a, b: xp.matmul(a, _swap(xp, b)),
    "bti,io->bto": lambda xp, a, b: xp.matmul(a.reshape(-1, a.shape[2]), b).reshape(*a.shape[:2], -1),
    "bti,oi->bto": lambda xp, a, b: xp.matmul(a.reshape(-1, a.shape[2]), b.T).reshape(*a.shape[:2], -1),
    "bij,bjk->bik": lambda xp, a, b: xp.matmul(a, b),
    "bij,bkj->bik": lambda xp, a, b: xp.matmul(a, _swap(xp, b)),
    "ij,jk,kl->il": lambda xp, a, b, c: xp.matmul(xp.matmul(a, b), c),
    "bnid,bnjd,bnje->bnie": lambda xp, a, b, c: xp.matmul(a, xp.matmul(_swap(xp, b), c)),
    "ij,j->i": lambda xp, a, b: xp.matmul(a, b),
    "ij,i->j": lambda xp, a, b: xp.matmul(b, a),
    "bij,bj->bi": lambda xp, a, b: xp.matmul(a, b[..., None])[..., 0],
    "i,i->": lambda xp, a, b: xp.dot(a, b),
    "i,j->ij": lambda _, a, b: a[:, None] * b,
    "bi,bj->bij": lambda _, a, b: a[:, :, None] * b[:, None, :],
    "ij,ij->ij": lambda _, a, b: a * b,
    "ij,ji->ij": lambda _, a, b: a * b.T,
    "ij,ij->i": lambda _, a, b: (a * b).sum(-1),
    "nc,nc->n": lambda _, a, b: (a * b).sum(-1),
    "ij,ij->": lambda xp, a, b: xp.dot(a.reshape(-1), b.reshape(-1)),
    "binc,bjnc->bnij": lambda xp, a, b: xp.matmul(xp.swapaxes(a, 1, 2), xp.moveaxis(b, 1, 3)),
    "ibnc,jbnc->bnij": lambda xp, a, b: xp.matmul(xp.moveaxis(a, 0, 2), xp.moveaxis(b, 0, 3)),
    "bnij,jbnc->ibnc": lambda xp, a, b: xp.moveaxis(xp.matmul(a, xp.moveaxis(b, 0, 2)), 2, 0),
    "bnid,jnd->ijbn": _shared_keys,
    "bind,jnd->ijbn": lambda xp, a, b: _shared_keys(xp, xp.swapaxes(a, 1, 2), b),
    "ibnd,jnd->ijbn": lambda xp, a, b: _shared_keys(xp, xp.moveaxis(a, 0, 2), b),
    "bkgid,bkjd->bkgij": lambda xp, a, b: xp.matmul(a, _swap(xp, b)[:, :, None]),
    "bti,bto->io": lambda xp, a, b: xp.matmul(a.reshape(-1, a.shape[2]).T, b.reshape(-1, b.shape[2])),
    "bti,ehi->ebth": lambda xp, a, b: xp.moveaxis(_rows(xp, a, b.reshape(-1, b.shape[2]).T, b.shape[:2]), 2, 0),
    "ebti,eih->ebth": lambda xp, a, b: xp.matmul(a.reshape(a.shape[0], -1, a.shape[3]), b).reshape(*a.shape[:3], -1),
    "bchw,oc->bohw": lambda xp, a, b: xp.matmul(b, a.reshape(*a.shape[:2], -1)).reshape(len(a), -1, *a.shape[2:]),
    "bhwc,co->bhwo": lambda xp, a, b: xp.matmul(a.reshape(-1, a.shape[3]), b).reshape(*a.shape[:3], -1),
    "bti,ihd->bhtd": lambda xp, a, b: xp.moveaxis(_rows(xp, a, b.reshape(len(b), -1), b.shape[1:]), 2, 1),
    "bhtd,hdi->bti": lambda xp, a, b: xp.matmul(
        xp.swapaxes(a, 1, 2).reshape(-1, b.shape[0] * b.shape[1]), b.reshape(-1, b.shape[2])
    ).reshape(a.shape[0], a.shape[2], -1),
    "bti,ir,ro->bto": lambda xp, a, b, c: xp.matmul(xp.matmul(a.reshape(-1, a.shape[2]), b), c).reshape(
        *a.shape[:2], -1
    ),
    "ij,kj->ki": lambda xp, a, b: xp.matmul(b, _swap(xp, a)),
    "ij,jk,kl,lm->im": lambda xp, a, b, c, d: xp.matmul(xp.matmul(xp.matmul(a, b), c), d),
    "ibj,kbj->bik": lambda xp, a, b: xp.matmul(xp.swapaxes(a, 0, 1), xp.moveaxis(b, 0, 2)),
    "abij,ajbk->ibak": lambda xp, a, b: xp.moveaxis(xp.matmul(a, xp.swapaxes(b, 1, 2)), (0, 1, 2), (2, 1, 0)),
    "ijk,ikl->jl": lambda xp, a, b: xp.matmul(xp.swapaxes(a, 0, 1).reshape(a.shape[1], -1), b.reshape(-1, b.shape[2])),
    "ijk,kl->il": lambda xp, a, b: xp.matmul(a.sum(1), b),
    "ea,ebcd->abcd": lambda xp, a, b: xp.matmul(a.T, b.reshape(len(b), -1)).reshape(-1, *b.shape[1:]),
    "deca,be->abcd": lambda xp, a, b: xp.moveaxis(
        xp.matmul(b, a.reshape(*a.shape[:2], -1)).reshape(len(a), len(b), *a.shape[2:]), (0, 1, 2, 3), (3, 1, 2, 0)
    ),
    "bij,bi->bj": lambda xp, a, b: xp.matmul(b[:, None, :], a)[:, 0],
    "nc,nc->c": lambda _, a, b: (a * b).sum(0),
    "ijk,k->ijk": lambda _, a, b: a * b,
    "ijk,j->kij": lambda xp, a, b: xp.moveaxis(a * b[:, None], 2, 0),
    "ijk,j->ik": lambda xp, a, b: xp.matmul(b, a),
    "ij,kl->ikjl": lambda _, a, b: a[:, None, :, None] * b[None, :, None, :],
    "bi,bj->jbi": lambda _, a, b: b.T[:, :, None] * a[None],
    "ij,ji->": lambda _, a, b: (a * b.T).sum(),
    "ii->i": lambda xp, a: xp.diagonal(a, 0, 0, 1),
    "ijk->kij": lambda xp, a: xp.moveaxis(a, 2, 0),
    "ijk->k": lambda _, a: a.sum((0, 1)),
    "ijk->j": lambda _, a: a.sum((0, 2)),
    "ij,i,j->ij": lambda _, a, b, c: a * b[:, None] * c,
    "ij,jk,ki->": lambda xp, a, b, c: (xp.matmul(a, b) * c.T).sum(),
    "bqd,bkd,bkc->bqc": lambda xp, a, b, c: xp.matmul(xp.matmul(a, _swap(xp, b)), c),
    ",ij->ij": lambda _, a, b: a * b,
    ",->": lambda _, a, b: a * b,
    "ij->ji": lambda _, a: a.T,
    "ij->i": lambda _, a: a.sum(1),
    "ij->j": lambda _, a: a.sum(0),
    "ijk->ik": lambda _, a: a.sum(1),
    "ii->": lambda xp, a: xp.trace(a),
}


def _torch_loop(xp: Any, a: Array, b: Array) -> Array:
    """A loop over the batch that writes each product into its place."""
    result = a.new_empty((a.shape[0], a.shape[2], a.shape[1], b.shape[1]))
    for place in range(a.shape[0]):
        xp.bmm(a[place].transpose(0, 1), b[place].permute(1, 2, 0), out=result[place])
    return result


def _batch_dot(a: Array, b: Array, transpose_b: bool = False) -> Array:
    """MXNet's product over the last two axes, with any number of leading axes, without copies."""
    npx = import_module("mxnet").npx
    flat = [array.reshape_view((-1, *array.shape[-2:])) for array in (a, b)]
    product = npx.batch_dot(*flat, transpose_b=transpose_b)
    return product.reshape_view((*a.shape[:-1], product.shape[-1]))


def _heads_first(xp: Any, array: Array) -> Array:
    """``xyhd`` as ``h(xy)d``: MXNet swaps two axes before the last ten times as fast as it transposes."""
    return xp.swapaxes(array.reshape_view((-1, *array.shape[2:])), 0, 1)


def _batch_first(xp: Any, array: Array) -> Array:
    """``xbhd`` as ``bhxd``."""
    swapped = xp.swapaxes(array.reshape_view((len(array), -1, array.shape[3])), 0, 1)
    return swapped.reshape_view((*array.shape[1:3], -1, array.shape[3]))


def _mxnet_scores(xp: Any, a: Array, b: Array) -> Array:
    """``bind,bjnd->bnij``: attention scores, with positions before heads."""
    return _batch_dot(xp.swapaxes(a, 1, 2), xp.swapaxes(b, 1, 2), transpose_b=True)


def _mxnet_shared(xp: Any, a: Array, b: Array) -> Array:
    """``xynd,jnd->nxyj``: keys without a batch axis; the heads are the batch."""
    product = _batch_dot(_heads_first(xp, a), xp.swapaxes(b, 0, 1), transpose_b=True)
    return product.reshape_view((a.shape[2], a.shape[0], a.shape[1], b.shape[0]))


def _row_products(xp: Any, a: Array, b: Array) -> Array:
    """The dot product of each pair of rows with BLAS, without an array of all products."""
    return xp.matmul(a[:, None], b[:, :, None])[:, 0, 0]


def _by_transposed(xp: Any, a: Array, b: Array) -> Array:
    """``a @ b.T`` in the last two axes, by Paddle's flag: its matmul copies views."""
    return xp.matmul(a, b, transpose_y=True)


def _mlx_shared(xp: Any, queries: Array, keys: Array) -> Array:
    """``bnid,jnd->ijbn``; MLX moves one axis at a time."""
    return xp.transpose(xp.matmul(queries, xp.moveaxis(keys, 0, 2)), (2, 3, 0, 1))


def _tf_rows(tf: Any, array: Array, matrix: Array, last: Sequence[int], transpose: bool = False) -> Array:
    """The last axis of ``array`` contracted with an axis of ``matrix``, whose other one becomes the axes ``last``."""
    rows = tf.matmul(tf.reshape(array, (-1, array.shape[-1])), matrix, transpose_b=transpose)
    return tf.reshape(rows, (*array.shape[:-1], *last))


def _tf_scores(tf: Any, a: Array, b: Array) -> Array:
    """``bind,bjnd->bnij``: attention scores, with positions before heads."""
    return tf.matmul(tf.transpose(a, (0, 2, 1, 3)), tf.transpose(b, (0, 2, 1, 3)), transpose_b=True)


_TENSORFLOW: dict[str, Function] = {
    "bnid,bnjd->bnij": lambda tf, a, b: tf.matmul(a, b, transpose_b=True),
    "bhqd,bhkd->bhqk": lambda tf, a, b: tf.matmul(a, b, transpose_b=True),
    "bind,bjnd->bnij": _tf_scores,
    "binc,bjnc->bnij": _tf_scores,
    "bind,jnd->bnij": lambda tf, a, b: tf.matmul(
        tf.transpose(a, (0, 2, 1, 3)), tf.transpose(b, (1, 0, 2)), transpose_b=True
    ),
    "bnij,bnjc->binc": lambda tf, a, b: tf.transpose(tf.matmul(a, b), (0, 2, 1, 3)),
    "bnij,bjnd->bind": lambda tf, a, b: tf.transpose(tf.matmul(a, tf.transpose(b, (0, 2, 1, 3))), (0, 2, 1, 3)),
    "bhqd,bhqkd->bhqk": lambda tf, a, b: tf.linalg.matvec(b, a),
    "bhqk,bhqkd->bhqd": lambda tf, a, b: tf.linalg.matvec(b, a, transpose_a=True),
    "bhqd,kd->bhqk": lambda tf, a, b: _tf_rows(tf, a, b, (b.shape[0],), transpose=True),
    "ij,jk->ik": lambda tf, a, b: tf.matmul(a, b),
    "ij,kj->ik": lambda tf, a, b: tf.matmul(a, b, transpose_b=True),
    "ji,jk->ik": lambda tf, a, b: tf.matmul(a, b, transpose_a=True),
    "ij,jk->ki": lambda tf, a, b: tf.matmul(b, a, transpose_a=True, transpose_b=True),
    "ij,kj->ki": lambda tf, a, b: tf.matmul(b, a, transpose_b=True),
    "bi,io->bo": lambda tf, a, b: tf.matmul(a, b),
    "bi,oi->bo": lambda tf, a, b: tf.matmul(a, b, transpose_b=True),
    "bti,io->bto": lambda tf, a, b: _tf_rows(tf, a, b, b.shape[1:]),
    "bti,oi->bto": lambda tf, a, b: _tf_rows(tf, a, b, b.shape[:1], transpose=True),
    "bij,bjk->bik": lambda tf, a, b: tf.matmul(a, b),
    "bij,bkj->bik": lambda tf, a, b: tf.matmul(a, b, transpose_b=True),
    "ij,jk,kl->il": lambda tf, a, b, c: tf.matmul(tf.matmul(a, b), c),
    "ij,jk,kl,lm->im": lambda tf, a, b, c, d: tf.matmul(tf.matmul(tf.matmul(a, b), c), d),
    "bti,ir,ro->bto": lambda tf, a, b, c: (
        _tf_rows(tf, a, tf.matmul(b, c), c.shape[1:])
        if b.shape[1] * (b.shape[0] + c.shape[1]) > b.shape[0] * c.shape[1]
        else _tf_rows(tf, _tf_rows(tf, a, b, b.shape[1:]), c, c.shape[1:])
    ),
    "bqd,bkd,bkc->bqc": lambda tf, a, b, c: tf.matmul(tf.matmul(a, b, transpose_b=True), c),
    "ij,j->i": lambda tf, a, b: tf.linalg.matvec(a, b),
    "ij,i->j": lambda tf, a, b: tf.linalg.matvec(a, b, transpose_a=True),
    "bij,bj->bi": lambda tf, a, b: tf.linalg.matvec(a, b),
    "bij,bi->bj": lambda tf, a, b: tf.linalg.matvec(a, b, transpose_a=True),
    "i,i->": lambda tf, a, b: tf.tensordot(a, b, 1),
    "ij,ij->": lambda tf, a, b: tf.tensordot(a, b, 2),
    "i,j->ij": lambda _, a, b: a[:, None] * b,
    "bi,bj->bij": lambda _, a, b: a[:, :, None] * b[:, None, :],
    "ij,ij->ij": lambda _, a, b: a * b,
    "ij,ji->ij": lambda tf, a, b: a * tf.transpose(b),
    "ij,ij->i": lambda tf, a, b: tf.reduce_sum(a * b, -1),
    "nc,nc->n": lambda tf, a, b: tf.reduce_sum(a * b, -1),
    "nc,nc->c": lambda tf, a, b: tf.reduce_sum(a * b, 0),
    "ibnc,jbnc->bnij": lambda tf, a, b: tf.matmul(
        tf.transpose(a, (1, 2, 0, 3)), tf.transpose(b, (1, 2, 0, 3)), transpose_b=True
    ),
    "bkgid,bkjd->bkgij": lambda tf, a, b: tf.matmul(a, b[:, :, None], transpose_b=True),
    "bti,bto->io": lambda tf, a, b: tf.matmul(
        tf.reshape(a, (-1, a.shape[2])), tf.reshape(b, (-1, b.shape[2])), transpose_a=True
    ),
    "ijk,ikl->jl": lambda tf, a, b: tf.tensordot(a, b, ((0, 2), (0, 1))),
    "ijk,kl->il": lambda tf, a, b: tf.matmul(tf.reduce_sum(a, 1), b),
    "bhwc,co->bhwo": lambda tf, a, b: _tf_rows(tf, a, b, b.shape[1:]),
    "ea,ebcd->abcd": lambda tf, a, b: tf.tensordot(a, b, ((0,), (0,))),
    "ijk,k->ijk": lambda _, a, b: a * b,
    "ij,ji->": lambda tf, a, b: tf.reduce_sum(a * tf.transpose(b)),
    "ij,i,j->ij": lambda _, a, b, c: a * b[:, None] * c,
    "ij,jk,ki->": lambda tf, a, b, c: tf.reduce_sum(tf.matmul(a, b) * tf.transpose(c)),
    "ii->i": lambda tf, a: tf.linalg.diag_part(a),
    "ii->": lambda tf, a: tf.linalg.trace(a),
    "ijk->kij": lambda tf, a: tf.transpose(a, (2, 0, 1)),
    "ijk->k": lambda tf, a: tf.reduce_sum(a, (0, 1)),
    "ijk->j": lambda tf, a: tf.reduce_sum(a, (0, 2)),
    "ijk->ik": lambda tf, a: tf.reduce_sum(a, 1),
    "ij->ji": lambda tf, a: tf.transpose(a),
    "ij->i": lambda tf, a: tf.reduce_sum(a, 1),
    "ij->j": lambda tf, a: tf.reduce_sum(a, 0),
    ",ij->ij": lambda _, a, b: a * b,
    ",->": lambda _, a, b: a * b,
}

OWN_LINES: dict[str, dict[str, Function]] = {
    "tensorflow": _TENSORFLOW,
    "numpy": {
        "ij,ij->i": _row_products,
        "nc,nc->n": _row_products,
        "i,j->ij": lambda xp, a, b: xp.multiply.outer(a, b),
    },
    "torch": {"bind,bjnd->bnij": _torch_loop, "i,j->ij": lambda xp, a, b: xp.outer(a, b)},
    "mlx": {
        "i,i->": lambda _, a, b: (a * b).sum(),
        "ij,ij->": lambda _, a, b: (a * b).sum(),
        "bnid,jnd->ijbn": _mlx_shared,
        "bind,jnd->ijbn": lambda xp, a, b: _mlx_shared(xp, xp.swapaxes(a, 1, 2), b),
        "ibnd,jnd->ijbn": lambda xp, a, b: _mlx_shared(xp, xp.moveaxis(a, 0, 2), b),
        "abij,ajbk->ibak": lambda xp, a, b: xp.transpose(xp.matmul(a, xp.swapaxes(b, 1, 2)), (2, 1, 0, 3)),
        "deca,be->abcd": lambda xp, a, b: xp.transpose(
            xp.matmul(b, a.reshape(*a.shape[:2], -1)).reshape(len(a), len(b), *a.shape[2:]), (3, 1, 2, 0)
        ),
    },
    "mxnet": {
        "ij,jk->ik": lambda xp, a, b: xp.dot(a, b),
        "bij,bjk->bik": lambda _, a, b: _batch_dot(a, b),
        "bnid,bnjd->bnij": lambda _, a, b: _batch_dot(a, b, transpose_b=True),
        "bind,bjnd->bnij": _mxnet_scores,
        "binc,bjnc->bnij": _mxnet_scores,
        "bind,jnd->bnij": lambda xp, a, b: xp.swapaxes(_mxnet_shared(xp, a, b), 0, 1),
        "bnij,bnjc->binc": lambda xp, a, b: xp.swapaxes(_batch_dot(a, b), 1, 2),
        "ibnc,jbnc->bnij": lambda xp, a, b: _batch_dot(_batch_first(xp, a), _batch_first(xp, b), transpose_b=True),
        "bnij,jbnc->ibnc": lambda xp, a, b: xp.swapaxes(
            _batch_dot(a, _batch_first(xp, b)).reshape_view((-1, a.shape[2], b.shape[3])), 0, 1
        ).reshape_view((a.shape[2], *b.shape[1:])),
        "bnid,jnd->ijbn": lambda xp, a, b: xp.transpose(_mxnet_shared(xp, xp.swapaxes(a, 1, 2), b), (2, 3, 1, 0)),
        "bind,jnd->ijbn": lambda xp, a, b: xp.transpose(_mxnet_shared(xp, a, b), (2, 3, 1, 0)),
        "ibnd,jnd->ijbn": lambda xp, a, b: xp.transpose(_mxnet_shared(xp, a, b), (1, 3, 2, 0)),
    },
    "paddle": {
        **dict.fromkeys(
            ("bnid,bnjd->bnij", "bhqd,bhkd->bhqk", "bhqd,kd->bhqk", "ij,kj->ik", "bi,oi->bo"), _by_transposed
        ),
        **dict.fromkeys(("bij,bkj->bik", "bti,oi->bto"), _by_transposed),
        "bind,bjnd->bnij": lambda xp, a, b: _by_transposed(xp, xp.swapaxes(a, 1, 2), xp.swapaxes(b, 1, 2)),
        "binc,bjnc->bnij": lambda xp, a, b: _by_transposed(xp, xp.swapaxes(a, 1, 2), xp.swapaxes(b, 1, 2)),
        "bind,jnd->bnij": lambda xp, a, b: _by_transposed(xp, xp.swapaxes(a, 1, 2), xp.swapaxes(b, 0, 1)),
        "ji,jk->ik": lambda xp, a, b: xp.matmul(a, b, transpose_x=True),
        "ij,jk->ki": lambda xp, a, b: xp.matmul(b, a, transpose_x=True, transpose_y=True),
        "ij,kj->ki": lambda xp, a, b: _by_transposed(xp, b, a),
        "bqd,bkd,bkc->bqc": lambda xp, a, b, c: xp.matmul(_by_transposed(xp, a, b), c),
        "bkgid,bkjd->bkgij": lambda xp, a, b: _by_transposed(xp, a, b[:, :, None]),
        "i,j->ij": lambda xp, a, b: xp.outer(a, b),
    },
}
