"""Replaces ``torch.einsum`` for :func:`einsumx.patch`, with torch's calling conventions and support for its tracers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import wraps
from importlib import import_module
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from einsumx.adapters.operand_types import top_package
from einsumx.adapters.replacement import Function, Name, say_native

torch: Any = import_module("torch")

_LETTERS: dict[Any, str] = {...: "...", **dict(enumerate(ascii_uppercase + ascii_lowercase))}
"""The letter that torch writes for each label in a sublist."""

_PLAIN = frozenset([torch.Tensor, torch.nn.Parameter, str, list, tuple])
"""The types of most operands, which override none of torch's functions."""

_scripted: list[Function] = []
"""Functions that TorchScript knows by ``id()``; they are kept alive so that no other object gets the same id."""


def names() -> Iterator[Name]:
    """The names of torch's einsum."""
    for owner in (torch, torch.functional):
        yield Name(owner, "einsum", tell=_tell, around=_around, restored=_restored)


def _around(native: Function, eager: Function) -> Function:
    """The replacement: calls ``eager``, or ``native`` for operands that einsumx cannot trace."""

    def overridden(operands: tuple[Any, ...], options: dict[str, Any], why: str) -> Any:
        operands = _with_text(operands)
        say_native("torch.einsum", operands, why)
        return torch.overrides.handle_torch_function(native, operands, *operands, **options)

    @wraps(native)
    def function(*operands: Any, **options: Any) -> Any:
        if torch._C._len_torch_function_stack() and _is_watched():
            return overridden(operands, options, "a TorchFunctionMode is active")
        operands = _one_by_one(operands)
        if not _PLAIN.issuperset(map(type, operands)) and any(map(_overrides, map(type, operands))):
            return overridden(operands, options, "an operand has functions of its own")
        if torch.jit.is_tracing():
            say_native("torch.einsum", operands, "torch.jit.trace records code for other sizes too")
            return native(*operands, **options)
        return eager(*operands, **options)

    return function


def _one_by_one(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands as separate arguments, because torch also accepts a list of them."""
    match operands:
        case str() as equation, list() | tuple() as tensors if any(map(_is_tensor, map(type, tensors))):
            return equation, *tensors
    return operands


def _with_text(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands with an equation in place of sublists, as torch passes them to overrides."""
    if len(operands) < 2 or not isinstance(operands[0], torch.Tensor):
        return operands
    pairs = len(operands) // 2
    sublists = [*operands[1 : 2 * pairs : 2], *operands[2 * pairs :]]
    try:
        terms = ["".join([_LETTERS[label] for label in labels]) for labels in sublists]
    except (KeyError, TypeError):  # labels that only einsumx has
        return operands
    return "->".join([",".join(terms[:pairs]), *terms[pairs:]]), *operands[: 2 * pairs : 2]


def _is_tensor(kind: type) -> bool:
    """Whether a type is a tensor type or stands for one, as the proxies of ``torch.fx`` do."""
    return hasattr(kind, "__torch_function__")


def _is_watched() -> bool:
    """Whether a TorchFunctionMode observes calls; torch's own ones, such as its default device, leave einsum alone."""
    modes = torch.overrides._get_current_function_mode_stack()
    return any(top_package(type(mode).__module__) != "torch" for mode in modes)


def _overrides(kind: type) -> bool:
    """Whether a type overrides torch's functions."""
    method = getattr(kind, "__torch_function__", None)
    defaults = torch.Tensor.__torch_function__.__func__, torch._C._disabled_torch_function_impl
    return method is not None and getattr(method, "__func__", method) not in defaults


def _compiled(*operands: Any, **options: Any) -> Any:
    """The function that torch.compile traces instead of the replacement: a node that calls it."""
    from einsumx.backends.torch.graphs import patched_einsum

    return patched_einsum(*operands, **options)


def _tell(function: Function) -> None:
    """Register a replacement with torch's compilers.

    TorchScript compiles a call of a registered function to its own einsum.
    """
    function.__dict__["_torchdynamo_inline"] = _compiled
    builtins = torch.jit._builtins
    builtins._get_builtin_table()  # creates the table at the first call, from the functions that then have each name
    builtins._register_builtin(function, "aten::einsum")
    _scripted.append(function)


def _restored() -> None:
    """Have torch.compile find torch's own function: its table has the functions that each name had when it was made."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    table = getattr(rules, "get_torch_obj_rule_map", None)
    if table is not None and table.cache_info().currsize and torch.einsum not in table():
        table.cache_clear()
