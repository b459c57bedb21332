"""Lets lower modules call what is above them, such as the public API: :mod:`einsumx.api` assigns it on import.

It is always set when a backend needs it, because importing any module of einsumx imports the package first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

einsum: Callable[..., Any]
""":func:`einsumx.einsum`."""

addeinsum: Callable[..., Any]
""":func:`einsumx.addeinsum`."""

einsum_frexp: Callable[..., Any]
""":func:`einsumx.einsum_frexp`."""

in_semiring: Callable[..., Any]
""":meth:`einsumx.Semiring.einsum`, with the fields of the semiring as the first three arguments."""

ready_under_limit: Callable[..., Any]
""":func:`einsumx.streaming.repeated.ready`."""

traced_call: Callable[..., Any]
""":func:`einsumx.streaming.traced.traced_call`."""


between_graphs: list[Callable[..., Any]] = []
"""Functions that ``torch.compile`` calls between its graphs; see :mod:`einsumx.tracing`."""


class _AsItIs:
    """The answers that ``paddle.jit.to_static`` expects of a function that it calls as it is."""

    def need_transform(self, mode: Any) -> bool:
        return False

    def need_capture_control_flow(self) -> bool:
        return False


def as_it_is(function: Callable[..., Any]) -> None:
    """Have tracers that rewrite the code of functions call this one as it is.

    These are the marks of ``paddle.jit.marker.unified`` and ``tf.autograph.experimental.do_not_convert``, without
    an import of Paddle or TensorFlow.
    """
    function.__dict__["___jit_transform_options___"] = _AsItIs()
    function.__dict__["autograph_info__"] = ()
