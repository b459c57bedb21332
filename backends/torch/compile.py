"""Makes ``torch.compile`` record ``einsumx.einsum`` as one node, so that it does not trace planning.

When torch lowers the graph, it traces the node's function and sees the plan's own calls of torch. This module imports
torch, and is imported while torch.compile traces.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from einsumx.adapters import hooks

__all__ = ["contract", "eager_einsum", "einsum", "patched_einsum"]


def einsum(*operands: Any, **options: Any) -> Any:
    """:func:`einsumx.einsum` as a node of a graph, with gradients."""
    return hooks.einsum(*operands, **options)


def patched_einsum(*operands: Any, **options: Any) -> Any:
    """``torch.einsum`` as a node of a graph, while einsumx replaces it."""
    return import_module("torch").einsum(*operands, **options)


def contract(*operands: Any, **options: Any) -> Any:
    """``opt_einsum.contract`` as a node of a graph, while einsumx replaces it."""
    return import_module("opt_einsum").contract(*operands, **options)


@import_module("torch").compiler.disable  # type: ignore[untyped-decorator]
def eager_einsum(*operands: Any, **options: Any) -> Any:
    """:func:`einsumx.einsum` outside of graphs, for calls with a memory limit."""
    return hooks.einsum(*operands, **options)


for node in (einsum, patched_einsum, contract):
    import_module("torch").compiler.allow_in_graph(node)
