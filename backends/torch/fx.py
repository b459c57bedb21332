"""Records contractions of the proxies of ``torch.fx`` as one node of their graph.

This module imports torch, and is imported when the first proxy arrives.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from einsumx.runtime.request import Request, joined

__all__ = ["einsum"]

torch: Any = import_module("torch")


def einsum(request: Request) -> Any:
    """A proxy for the result: the graph calls the same function of einsumx with the same operands and keywords.

    Errors come when the graph runs, because proxies have neither shapes nor dtypes.
    """
    function, first, keywords = request.call()
    operands = tuple(request.operands)
    arguments = *first, *joined(request.written, operands)
    return torch.overrides.handle_torch_function(function, (*first, *operands), *arguments, **keywords)
