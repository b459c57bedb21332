"""Makes ``torch.compile`` record ``einsumx.einsum`` as one node, so that it does not trace planning.

When torch lowers the graph, it traces the node's function and sees the plan's own calls of torch. This module imports
torch, and is imported while torch.compile traces.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from einsumx.adapters import hooks
from einsumx.algebra.scaled import FrexpResult

__all__ = ["call", "contract", "outside", "patched_einsum"]


def call(name: str, *operands: Any, **options: Any) -> Any:
    """What is traced in the place of a function of :mod:`einsumx.adapters.hooks`: a node of the graph.

    Under a memory limit the function is called outside of the graph.
    """
    if options.get("memory_limit") is not None:
        return outside(getattr(hooks, name), *operands, **options)
    result = _NODES[name](*operands, **options)
    return FrexpResult(*result) if name == "einsum_frexp" else result


def einsum_node(*operands: Any, **options: Any) -> Any:
    """:func:`einsumx.einsum` as a node of a graph, with gradients."""
    return hooks.einsum(*operands, **options)


def addeinsum_node(c: Any, *operands: Any, alpha: Any = 1, beta: Any = 1, out: Any = None, **options: Any) -> Any:
    """:func:`einsumx.addeinsum` as a node of a graph, with gradients.

    While the graph is traced, numbers that change between calls are symbols without values.
    """
    torch = import_module("torch")
    if out is None and any(isinstance(factor, torch.SymFloat) for factor in (alpha, beta)):
        result = hooks.einsum(*operands, **options)
        if result.is_floating_point() or result.is_complex():
            total = result * alpha if beta == 0 else result * alpha + c * beta
            return total if options.get("dtype") is None else total.to(result.dtype)
    alpha, beta = [float(factor) if isinstance(factor, torch.SymFloat) else factor for factor in (alpha, beta)]
    return hooks.addeinsum(c, *operands, alpha=alpha, beta=beta, out=out, **options)


def frexp_node(*operands: Any, **options: Any) -> Any:
    """:func:`einsumx.einsum_frexp` as a node of a graph, which returns a plain tuple."""
    return tuple(hooks.einsum_frexp(*operands, **options))


def semiring_node(*operands: Any, **options: Any) -> Any:
    """:meth:`einsumx.Semiring.einsum` as a node of a graph, by the fields of the semiring."""
    return hooks.in_semiring(*operands, **options)


def patched_einsum(*operands: Any, **options: Any) -> Any:
    """``torch.einsum`` as a node of a graph, while einsumx replaces it."""
    return import_module("torch").einsum(*operands, **options)


def contract(*operands: Any, **options: Any) -> Any:
    """``opt_einsum.contract`` as a node of a graph, while einsumx replaces it."""
    return import_module("opt_einsum").contract(*operands, **options)


@import_module("torch").compiler.disable  # type: ignore[untyped-decorator]
def outside(function: Callable[..., Any], *operands: Any, **options: Any) -> Any:
    """Call a function outside of graphs: einsum with a memory limit, and what reads sizes and values as it goes."""
    return function(*operands, **options)


def _run_as_it_is(function: Callable[..., Any]) -> None:
    """Let torch.compile run a function without tracing it, and all that it calls, where it is called between graphs.

    A call of :func:`outside` ends the graph before the call of einsum that led to it, which torch.compile would trace.
    """
    with suppress(AttributeError):  # a torch without this call traces it, which takes some seconds
        frames = import_module("torch")._C._dynamo.eval_frame
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


for called in (hooks.einsum, hooks.addeinsum, hooks.einsum_frexp):
    _run_as_it_is(called)

_NODES = {
    "einsum": einsum_node,
    "addeinsum": addeinsum_node,
    "einsum_frexp": frexp_node,
    "in_semiring": semiring_node,
}

for node in (*_NODES.values(), patched_einsum, contract):
    import_module("torch").compiler.allow_in_graph(node)
