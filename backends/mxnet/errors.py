"""einsumx's errors as subclasses of MXNet's, for code that catches ``mx.base.MXNetError``. Imports MXNet."""

from __future__ import annotations

from einsumx import errors
from einsumx.backends.mxnet.importing import load

__all__ = ["as_mxnet_error"]

_MXNET_ERRORS: dict[type, type[errors.EinsumxError]] = {
    kind: type(kind.__name__, (kind, load().base.MXNetError), {"__module__": __name__, "__doc__": kind.__doc__})
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.EinsumxError) and kind is not errors.EinsumxError
}
globals().update((kind.__name__, kind) for kind in _MXNET_ERRORS.values())  # pickle looks classes up by name


def as_mxnet_error(error: errors.EinsumxError) -> errors.EinsumxError:
    """The same error, as an instance of a class that is also ``mx.base.MXNetError``."""
    kind = next(_MXNET_ERRORS[base] for base in type(error).__mro__ if base in _MXNET_ERRORS)
    mxnet_error = kind(*error.args).with_traceback(error.__traceback__)
    mxnet_error.__dict__.update(error.__dict__)
    return mxnet_error
