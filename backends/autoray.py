"""autoray's lazy arrays: a contraction of theirs is one more lazy array, which calls einsumx when it is computed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from einsumx.adapters import hooks
from einsumx.adapters.registry import is_builtin
from einsumx.errors import BackendError
from einsumx.ir.parse import symbol
from einsumx.runtime.prepare import sized_equation
from einsumx.runtime.request import Request

__all__ = ["einsum"]

autoray: Any = import_module("autoray")


def einsum(request: Request) -> Any:
    """The contraction of lazy arrays, with arrays of the framework that is going to compute them among the operands.

    :func:`einsumx.einsum` is called with the request's keywords when the result is computed; ``out`` is refused.

    Raises:
        EquationError: the equation is wrong.
        SizeError: the sizes do not fit it.
        BackendError: arrays of two frameworks, or ``out``.
    """
    if request.out is not None:
        raise BackendError("out= is not for lazy arrays of autoray, which are computed later; leave it away")
    given = request.operands
    sized = sized_equation(request.written, [tuple(autoray.shape(operand)) for operand in given])
    lazy = [operand for operand in given if isinstance(operand, autoray.lazy.LazyArray)]
    others = [operand for operand in given if not is_builtin(type(operand)) and not any(operand is one for one in lazy)]
    backends = [operand.backend for operand in lazy] + list(map(autoray.infer_backend, others))
    names = list(dict.fromkeys(name for name in backends if name is not None))
    if len(names) > 1:
        raise BackendError(
            f"the operands belong to two frameworks, {names[0]} and {names[1]}, of which lazy arrays of autoray are "
            "going to be computed; convert one of them first"
        )
    text = request.written
    if not isinstance(text, str):
        inputs, output = (["".join(map(symbol, term)) for term in terms] for terms in (sized.inputs, [sized.output]))
        text = f"{','.join(inputs)}->{output[0]}"
    return autoray.lazy.LazyArray(
        backend=names[0] if names else None,
        fn=hooks.einsum,
        args=(text, *given),
        kwargs=request.keywords(),
        shape=sized.shape,
        deps=tuple(lazy),
    )
