"""What ``torch.compile`` records for a call of ``einsumx.einsum``: one call, looked into when the graph is lowered.

This module imports torch, and is imported while torch.compile traces, which must not look into planning: plans are made
behind caches, from shapes, by code that no tracer needs to see. The lowering then sees the plan's own calls of torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from einsumx.adapters import hooks

__all__ = ["eager_einsum", "einsum", "patched_einsum"]


def einsum(*operands: Any, **options: Any) -> Any:
    """:func:`einsumx.einsum` as a node of a graph, with gradients."""
    return hooks.einsum(*operands, **options)


def patched_einsum(*operands: Any, **options: Any) -> Any:
    """``torch.einsum`` as a node of a graph, where einsumx stands behind it."""
    return import_module("torch").einsum(*operands, **options)


@import_module("torch").compiler.disable  # type: ignore[untyped-decorator]
def eager_einsum(*operands: Any, **options: Any) -> Any:
    """:func:`einsumx.einsum` as it runs outside of graphs, where a memory limit is kept."""
    return hooks.einsum(*operands, **options)


for node in (einsum, patched_einsum):
    import_module("torch").compiler.allow_in_graph(node)
