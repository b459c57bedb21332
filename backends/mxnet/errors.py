"""einsumx's errors that are also MXNet's, as code which calls ``mx.np.einsum`` catches those; imports MXNet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from einsumx import errors
from einsumx.backends.mxnet.importing import load

if TYPE_CHECKING:

    class MXNetError(RuntimeError):
        """``mxnet.base.MXNetError``."""

else:
    MXNetError = load().base.MXNetError

__all__ = ["as_mxnet_error"]


class EquationError(errors.EquationError, MXNetError):
    """:class:`einsumx.EquationError`, raised by ``mx.np.einsum``."""


class SublistError(errors.SublistError, MXNetError):
    """:class:`einsumx.errors.SublistError`, raised by ``mx.np.einsum``."""


class SizeError(errors.SizeError, MXNetError):
    """:class:`einsumx.SizeError`, raised by ``mx.np.einsum``."""


class PathError(errors.PathError, MXNetError):
    """:class:`einsumx.PathError`, raised by ``mx.np.einsum``."""


class BackendError(errors.BackendError, MXNetError):
    """:class:`einsumx.BackendError`, raised by ``mx.np.einsum``."""


class BlockError(errors.BlockError, MXNetError):
    """:class:`einsumx.errors.BlockError`, raised by ``mx.np.einsum``."""


class JournalError(errors.JournalError, MXNetError):
    """:class:`einsumx.errors.JournalError`, raised by ``mx.np.einsum``."""


class MemoryLimitError(errors.MemoryLimitError, MXNetError):
    """:class:`einsumx.MemoryLimitError`, raised by ``mx.np.einsum``."""


_BOTH = {
    kind.__bases__[0]: kind
    for kind in (
        EquationError,
        SublistError,
        SizeError,
        PathError,
        BackendError,
        BlockError,
        JournalError,
        MemoryLimitError,
    )
}


def as_mxnet_error(error: errors.EinsumxError) -> errors.EinsumxError:
    """The same error, of the class that is also ``mx.base.MXNetError``."""
    kind = next(_BOTH[base] for base in type(error).__mro__ if base in _BOTH)
    found = kind(*error.args).with_traceback(error.__traceback__)
    found.__dict__.update(error.__dict__)
    return found
