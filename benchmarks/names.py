"""Names of the contenders that are no peers, and the best peer among times by name."""

from __future__ import annotations

from collections.abc import Mapping

EINSUMX = "einsumx"
MEASURED = "einsumx (measure)"
HAND_WRITTEN = "hand-written"

OURS = (EINSUMX, MEASURED)


def peers(names: Mapping[str, object]) -> list[str]:
    """The contenders that are neither einsumx nor the hand-written line."""
    return [name for name in names if name not in (*OURS, HAND_WRITTEN)]


def best_peer(seconds: Mapping[str, float]) -> str | None:
    """The fastest peer.

    >>> best_peer({"einsumx": 1.0, "hand-written": 0.5, "np.einsum": 3.0, "opt_einsum": 2.0})
    'opt_einsum'
    """
    return min(peers(seconds), key=lambda name: seconds[name], default=None)
