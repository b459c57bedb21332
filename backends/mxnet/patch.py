"""Replaces MXNet's einsum functions, for :func:`einsumx.patch`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, wraps
from typing import Any
from warnings import warn

from einsumx.adapters import hooks
from einsumx.adapters.replacement import Function, Name, as_error_of
from einsumx.backends.mxnet.graphs import UnknownRankError, with_known_inputs
from einsumx.backends.mxnet.importing import load
from einsumx.errors import EinsumxError, shown


def names() -> Iterator[Name]:
    """The names of MXNet's einsum functions, and of the function that traces blocks in MXNet 1."""
    mx = load()
    yield Name(mx.nd.np, "einsum", partial(_replacing, operand=mx.np.ndarray))
    if mx.__version__.startswith("1."):  # MXNet 2 traces blocks with arrays
        yield Name(mx.sym.np, "einsum", partial(_replacing, operand=mx.sym.np._Symbol))
        yield Name(mx.gluon.HybridBlock, "_get_graph", with_known_inputs, is_einsum=False)


def as_mxnet_error(error: EinsumxError) -> EinsumxError:
    """The same error, as an instance of a class that is also ``mx.base.MXNetError``."""
    return as_error_of(error, load().base.MXNetError)


def _replacing(native: Function, operand: type) -> Function:
    """The replacement of one of MXNet's functions, whose operands have the type ``operand``."""

    @wraps(native)
    def function(*operands: Any, **options: Any) -> Any:
        try:
            # If the last operand is an MXNet array, the others must be too, and backend= is not needed.
            if options or not operands or not isinstance(operands[-1], operand):
                return hooks.einsum(*operands, **_converted(options))
            return hooks.einsum(*operands)
        except UnknownRankError as error:
            if not isinstance(operands[0], str) or not set(options) <= {"optimize", "out"}:
                raise as_mxnet_error(error) from None
            _say_native(operands[0])
            return native(*operands, **options)
        except EinsumxError as error:
            raise as_mxnet_error(error) from error.__cause__

    return function


def _say_native(equation: str) -> None:
    """Warn that MXNet's own einsum is used; Python shows a warning once for each place and equation."""
    warn(
        f"{shown(equation)} runs MXNet's own, slow einsum, because a symbol without a shape does not say how many axes "
        "its ellipsis stands for; write labels instead of the ellipsis, or declare the shape of the variable",
        stacklevel=4,
    )


def _converted(options: dict[str, Any]) -> dict[str, Any]:
    """MXNet's keywords as einsumx's: operands become MXNet arrays, and a bool for ``optimize`` selects no path."""
    converted = {"backend": "mxnet", **options}
    if converted.get("optimize") in (True, False):
        del converted["optimize"]
    return converted
