"""``replace_einsum``: :func:`einsumx.patch` for MXNet, under a name of its own."""

from __future__ import annotations

from inspect import currentframe

from einsumx.patching import Replacement, replacement
from einsumx.runtime.caller import opens_block

__all__ = ["Replacement", "replace_einsum"]


def replace_einsum() -> Replacement:
    """From now on ``mx.np.einsum`` is einsumx, in code that stays as it is.

    So is all that ends there: names bound earlier (``from mxnet.np import einsum``), and ``numpy.einsum`` of MXNet's
    arrays. It takes what ``mx.np.einsum`` takes, and what :func:`einsumx.einsum` takes beyond that. ``optimize=`` True
    and False both mean ``"auto"``, as they only tell MXNet whether it may use tensordot. Errors are einsumx's, and
    ``mx.base.MXNetError`` too.

    The plain call holds in all threads until ``undo()`` of what it returns. ``with replace_einsum():`` holds in that
    block, for the thread that entered it; other threads never see it. Replacements nest, in any order; when the last
    has ended, MXNet has the very functions back that it had.

    Raises:
        BackendError: MXNet cannot be imported.

    >>> from einsumx.mxnet import replace_einsum
    >>> replaced = replace_einsum()  # doctest: +SKIP
    >>> replaced.undo()  # doctest: +SKIP
    """
    return replacement("mxnet", opens_block(currentframe()))
