"""Makes ``torch.compile`` record ``einsumx.einsum`` as one node, so that it does not trace planning.

When torch lowers the graph, it traces the node's function and sees the plan's own calls of torch. This module imports
torch, and is imported while torch.compile traces.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import numpy

from einsumx.adapters import hooks
from einsumx.algebra.scaled import FrexpResult
from einsumx.ir.program import Program
from einsumx.runtime.programs import run_program

_WHY = (
    "einsumx makes plans and expressions, measures, finds positions by argmax(), keeps limits that are not a number of "
    "bytes and contracts NumPy arrays, numbers and lists outside of graphs. Do that before, and call plans and "
    "expressions in the graph; or compile without fullgraph=True, or export with strict=False"
)
"""What torch.compile says where a graph must not end."""


torch: Any = import_module("torch")


def call(name: str, *operands: Any, **options: Any) -> Any:
    """What is traced in the place of a function of :mod:`einsumx.adapters.hooks`: a node of the graph.

    Under a memory limit, and for what is no tensor, the function is called outside of the graph. A graph would make
    tensors of NumPy's arrays, and einsumx contracts these, numbers and lists by NumPy's rules.
    """
    if not _are_tensors(operands) or not _is_in_graph(name, options):
        return outside(getattr(hooks, name), *operands, **options)
    result = _NODES[name](*operands, **options)
    return FrexpResult(*result) if name == "einsum_frexp" else result


def _is_in_graph(name: str, options: dict[str, Any]) -> bool:
    """Whether a call is a node of the graph: one without a limit, or with a number of bytes for a sum of products."""
    limit = options.get("memory_limit")
    if limit is None:
        return True
    is_plain = options.get("out") is None and options.get("optimize", "auto") in ("auto", True, None)
    return type(limit) in (int, str) and is_plain and name in ("einsum", "addeinsum")


def _with_known_limit(options: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a node, in which a limit that changes between calls is a symbol."""
    limit = options.get("memory_limit")
    return {**options, "memory_limit": int(limit)} if isinstance(limit, torch.SymInt) else options


def _are_tensors(operands: tuple[Any, ...]) -> bool:
    """Whether some operands are tensors, and none is an array of NumPy."""
    is_array = [isinstance(operand, numpy.ndarray) for operand in operands]
    return not any(is_array) and any(isinstance(operand, torch.Tensor) for operand in operands)


def einsum_node(*operands: Any, **options: Any) -> Any:
    """:func:`einsumx.einsum` as a node of a graph, with gradients."""
    return hooks.einsum(*_as_lists(operands), **_with_known_limit(options))


def addeinsum_node(c: Any, *operands: Any, alpha: Any = 1, beta: Any = 1, out: Any = None, **options: Any) -> Any:
    """:func:`einsumx.addeinsum` as a node of a graph, with gradients.

    While the graph is traced, numbers that change between calls are symbols without values.
    """
    c, *arguments = _as_lists((c, *operands))
    options = _with_known_limit(options)
    if out is None and any(isinstance(factor, torch.SymFloat) for factor in (alpha, beta)):
        result = hooks.addeinsum(c, *arguments, beta=0, **options)
        if result.is_floating_point() or result.is_complex():
            total = result * alpha
            return total if beta == 0 else total + beta * torch.as_tensor(c, dtype=result.dtype, device=result.device)
    alpha, beta = [float(factor) if isinstance(factor, torch.SymFloat) else factor for factor in (alpha, beta)]
    return hooks.addeinsum(c, *arguments, alpha=alpha, beta=beta, out=out, **options)


def _as_lists(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands with lists in the place of those of a class of their own, which a graph has."""
    return tuple([_as_list(operand) if isinstance(operand, list) else operand for operand in operands])


def _as_list(values: list[Any]) -> list[Any]:
    return [_as_list(value) if isinstance(value, list) else value for value in values]


def frexp_node(*operands: Any, **options: Any) -> Any:
    """:func:`einsumx.einsum_frexp` as a node of a graph, which returns a plain tuple."""
    return tuple(hooks.einsum_frexp(*_as_lists(operands), **options))


def semiring_node(*operands: Any, **options: Any) -> Any:
    """:meth:`einsumx.Semiring.einsum` as a node of a graph, by the fields of the semiring."""
    return hooks.in_semiring(*_as_lists(operands), **options)


def patched_einsum(*operands: Any, **options: Any) -> Any:
    """``torch.einsum`` as a node of a graph, while einsumx replaces it."""
    return torch.einsum(*_as_lists(operands), **options)


def contract(*operands: Any, **options: Any) -> Any:
    """``opt_einsum.contract`` as a node of a graph, while einsumx replaces it."""
    return import_module("opt_einsum").contract(*_as_lists(operands), **options)


def call_plan(program: Program, *operands: Any) -> Any:
    """What is traced in the place of the call of a plan: a node that runs its own ops."""
    if not _are_tensors(operands):
        return outside(type(program).__call__, program, *operands)
    return plan_node(_name_of(program), *operands)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _name_of(program: Program) -> str:
    """The name by which nodes find a plan, as a node has only tensors and constants as arguments."""
    if program not in _programs:
        _programs.append(program)
    return f"plan {_programs.index(program)}"


_programs: list[Program] = []
"""The plans that are called in graphs, which may run at any time."""


def plan_node(name: str, *operands: Any) -> Any:
    """The call of a plan as a node of a graph, with gradients."""
    return run_program(_programs[int(name.removeprefix("plan "))], _as_lists(operands))


def outside(function: Callable[..., Any], *operands: Any, **options: Any) -> Any:
    """What is traced in the place of a function that is called between graphs, and in which nothing is traced."""
    _run_as_they_are()
    return _outside(function, *operands, **options)


@partial(torch.compiler.disable, reason=_WHY)
def _outside(function: Callable[..., Any], *operands: Any, **options: Any) -> Any:
    return function(*operands, **options)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _run_as_they_are() -> bool:
    """Let torch.compile run the functions that are called between graphs, and all that they call, without tracing them.

    A call of :func:`_outside` ends the graph before the call that led to it, which torch.compile would trace.
    """
    with suppress(AttributeError):  # a torch without this call traces them, which takes some seconds
        frames = torch._C._dynamo.eval_frame
        skip = frames._FrameAction.SKIP
        for function in (hooks.einsum, hooks.addeinsum, hooks.einsum_frexp, *hooks.between_graphs):
            frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    return True


_NODES = {
    "einsum": einsum_node,
    "addeinsum": addeinsum_node,
    "einsum_frexp": frexp_node,
    "in_semiring": semiring_node,
}

for node in (*_NODES.values(), plan_node, patched_einsum, contract):
    torch.compiler.allow_in_graph(node)
