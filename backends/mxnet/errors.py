"""einsumx's errors as subclasses of MXNet's, for code that catches ``mx.base.MXNetError``. Imports MXNet."""

from __future__ import annotations

from einsumx.adapters.replacement import as_error_of
from einsumx.backends.mxnet.importing import load
from einsumx.errors import EinsumxError

__all__ = ["as_mxnet_error"]


def as_mxnet_error(error: EinsumxError) -> EinsumxError:
    """The same error, as an instance of a class that is also ``mx.base.MXNetError``."""
    return as_error_of(error, load().base.MXNetError)
