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

__all__ = ["contract", "einsum", "outside", "patched_einsum"]


def einsum(*operands: Any, alpha: Any = None, **options: Any) -> Any:
    """:func:`einsumx.einsum` as a node of a graph, with gradients.

    While the graph is traced, numbers that change between calls are symbols without values.
    """
    torch = import_module("torch")
    if isinstance(alpha, torch.SymFloat) and options.get("out") is None:
        result = hooks.einsum(*operands, **options)
        if result.is_floating_point() or result.is_complex():
            return result * alpha
    options = {name: float(value) if isinstance(value, torch.SymFloat) else value for name, value in options.items()}
    return hooks.einsum(*operands, alpha=float(alpha) if isinstance(alpha, torch.SymFloat) else alpha, **options)


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


_run_as_it_is(hooks.einsum)

for node in (einsum, patched_einsum, contract):
    import_module("torch").compiler.allow_in_graph(node)
