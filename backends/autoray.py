"""Contracts autoray's lazy arrays: the result is a lazy array, which calls einsumx when it is computed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from einsumx.adapters.registry import is_builtin
from einsumx.errors import BackendError
from einsumx.ir.parse import symbol
from einsumx.runtime.equations import sized_equation
from einsumx.runtime.request import Request

autoray: Any = import_module("autoray")


def einsum(request: Request) -> Any:
    """Contract lazy arrays; other operands are arrays of the framework that computes them.

    Computing the result calls the same function of einsumx with the same keywords.

    Raises:
        EquationError: the equation is wrong.
        SizeError: the sizes do not fit the equation.
        BackendError: arrays of two frameworks, or ``out=``.
    """
    if request.algebra.has_exponents:
        raise BackendError(
            "einsum_frexp has two results, and a lazy array of autoray is one; compute the operands first"
        )
    if request.out is not None:
        raise BackendError("out= is not for lazy arrays of autoray, which are computed later; omit it")
    operands = request.operands
    sized = sized_equation(request.written, [tuple(autoray.shape(operand)) for operand in operands])
    arrays = operands if request.added is None else [*operands, request.added]
    lazy = [operand for operand in arrays if isinstance(operand, autoray.lazy.LazyArray)]
    eager = [
        operand
        for operand in arrays
        if not isinstance(operand, autoray.lazy.LazyArray) and not is_builtin(type(operand))
    ]
    backends = [operand.backend for operand in lazy] + list(map(autoray.infer_backend, eager))
    names = list(dict.fromkeys(name for name in backends if name not in (None, "builtins")))
    if len(names) > 1:
        raise BackendError(
            f"the operands belong to two frameworks, {names[0]} and {names[1]}, and some are lazy arrays of autoray; "
            "convert one of them first"
        )
    text = request.written
    if not isinstance(text, str):
        *inputs, output = ["".join(map(symbol, term)) for term in (*sized.inputs, sized.output)]
        text = f"{','.join(inputs)}->{output}"
    function, first, keywords = request.call()
    return autoray.lazy.LazyArray(
        backend=names[0] if names else None,
        fn=function,
        args=(*first, text, *operands),
        kwargs=keywords,
        shape=sized.shape,
        deps=tuple(lazy),
    )
