"""``replace_einsum``: :func:`einsumx.patch` for MXNet."""

from __future__ import annotations

from inspect import currentframe

from einsumx.patching import Replacement, replacement
from einsumx.runtime.caller import opens_block

__all__ = ["Replacement", "replace_einsum"]


def replace_einsum() -> Replacement:
    """Make existing calls to ``mx.np.einsum`` run einsumx.

    This includes calls that end there: names bound earlier (``from mxnet.np import einsum``), and ``numpy.einsum`` of
    MXNet's arrays. The replacement accepts all arguments of ``mx.np.einsum`` and of :func:`einsumx.einsum`.
    ``optimize=`` True and False both mean ``"auto"``, because they only tell MXNet whether it may use tensordot. Errors
    are einsumx's, and also ``mx.base.MXNetError``.

    A plain call takes effect in all threads until ``undo()`` of its result. ``with replace_einsum():`` takes effect in
    its block, in the thread that entered it. Replacements nest in any order. When the last one ends, MXNet has its
    original functions again.

    Raises:
        BackendError: MXNet cannot be imported.

    >>> from einsumx.mxnet import replace_einsum
    >>> replaced = replace_einsum()  # doctest: +SKIP
    >>> replaced.undo()  # doctest: +SKIP
    """
    return replacement("mxnet", opens_block(currentframe()))
