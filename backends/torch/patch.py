"""What :func:`einsumx.patch` puts behind ``torch.einsum``: einsumx, by torch's ways of calling it and of tracing it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, wraps
from importlib import import_module
from typing import Any

from einsumx.adapters.replacement import Function, Name, say_native

__all__ = ["names"]

torch: Any = import_module("torch")

_scripted: list[Function] = []
"""Functions that TorchScript knows by their address, which must not become another one's."""


def names() -> Iterator[Name]:
    """The names under which torch's einsum is called."""
    for owner in (torch, torch.functional):
        yield Name(owner, "einsum", tell=_tell, around=_around)


def _around(native: Function, eager: Function) -> Function:
    """What is put behind the names: ``eager``, but where what is traced is not for it."""

    @wraps(native)
    def function(*operands: Any, **options: Any) -> Any:
        operands = _one_by_one(operands)
        if not all(map(_is_plain, map(type, operands))):
            if any(map(_overrides, map(type, operands))):
                say_native("torch.einsum", operands, "an operand has functions of its own")
                return torch.overrides.handle_torch_function(native, operands, *operands, **options)
            if any(map(_is_symbolic, operands)):
                say_native("torch.einsum", operands, "what is traced is for other sizes too")
                return native(*operands, **options)
        if torch.jit.is_tracing():
            say_native("torch.einsum", operands, "what torch.jit.trace records is for other sizes too")
            return native(*operands, **options)
        return eager(*operands, **options)

    return function


def _one_by_one(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands as einsumx takes them, where torch takes a list of all of them."""
    if len(operands) == 2 and isinstance(operands[0], str) and isinstance(operands[1], list | tuple):
        equation, given = operands
        if any(isinstance(operand, torch.Tensor) for operand in given):
            return equation, *given
    return operands


@lru_cache(maxsize=1024)
def _is_plain(kind: type) -> bool:
    """Whether a type is of tensors that have memory and no functions of their own, or of no tensors."""
    return kind in (torch.Tensor, torch.nn.Parameter) or not issubclass(kind, torch.Tensor)


def _is_symbolic(operand: Any) -> bool:
    """Whether a tensor is traced for any of several sizes."""
    return isinstance(operand, torch.Tensor) and any(type(size) is not int for size in operand.shape)


def _overrides(kind: type) -> bool:
    """Whether a type answers for itself when torch's functions are called with it."""
    found = getattr(kind, "__torch_function__", None)
    usual = torch.Tensor.__torch_function__.__func__, torch._C._disabled_torch_function_impl
    return found is not None and getattr(found, "__func__", found) not in usual


def _compiled(*operands: Any, **options: Any) -> Any:
    """What torch.compile traces in the place of what stands under the names: a node that calls it."""
    from einsumx.backends.torch.compile import patched_einsum

    return patched_einsum(*operands, **options)


def _tell(function: Function) -> None:
    """Have torch's compilers know a function that is going to stand under one of the names.

    TorchScript writes its own einsum where it finds one that it has listed.
    """
    function.__dict__["_torchdynamo_inline"] = _compiled
    builtins = torch.jit._builtins
    builtins._get_builtin_table()  # which is made at first use, of what stands under each name then
    builtins._register_builtin(function, "aten::einsum")
    _scripted.append(function)
