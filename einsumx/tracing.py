"""Which public functions are nodes of the graphs of ``torch.compile``, and which are called between graphs.

torch.compile traces another function in the place of a marked one, which is imported then. So eager calls pay nothing,
and it works whichever of torch and einsumx is imported first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from einsumx.adapters import hooks

Method = TypeVar("Method", bound="Callable[..., Any]")


def inlined(function: Callable[..., Any], traced: Callable[..., Any]) -> None:
    """Have torch.compile trace ``traced`` instead of ``function``, and other tracers call ``function`` as it is."""
    function.__dict__["_torchdynamo_inline"] = traced  # the attribute by which torch.compile finds it
    hooks.as_it_is(function)


def as_node(name: str) -> None:
    """Have torch.compile record the function of that name in ``hooks`` as one node."""

    def traced(*operands: Any, **options: Any) -> Any:
        from einsumx.backends.torch.graphs import call

        return call(name, *operands, **options)

    inlined(getattr(hooks, name), traced)


def between_graphs(function: Callable[..., Any]) -> None:
    """Have torch.compile end its graph before a function, and run it without tracing it."""

    def traced(*operands: Any, **options: Any) -> Any:
        from einsumx.backends.torch.graphs import outside

        return outside(function, *operands, **options)

    hooks.between_graphs.append(function)
    inlined(function, traced)


def method_between_graphs(method: Method) -> Method:
    """A method that torch.compile calls between its graphs: it would call what is traced in its place without self."""

    @wraps(method)
    def call(*operands: Any, **options: Any) -> Any:
        return method(*operands, **options)

    between_graphs(method)
    hooks.as_it_is(call)
    return cast(Method, call)
