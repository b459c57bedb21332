"""``precision=`` on PyTorch: its setting of float32 products, for the time of one call.

PyTorch reads the setting when it chooses the kernel of a product: within the call, also on devices that compute later.
The setting holds for the whole process, so calls with ``precision=`` take turns, and products that other threads start
meanwhile have it too.

This module imports torch; the adapter imports it when a call has ``precision=``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from threading import RLock
from typing import Any

from einsumx.adapters.base import Run
from einsumx.adapters.typing import Array
from einsumx.dtypes import kind
from einsumx.errors import BackendError, shown
from einsumx.ir.program import Program

torch: Any = import_module("torch")

NAMES = {
    "default": {},
    "highest": {"mkldnn": "ieee", "cuda": "ieee"},
    "high": {"mkldnn": "tf32", "cuda": "tf32"},
    "medium": {"mkldnn": "bf16", "cuda": "tf32"},
}
"""The values of ``torch.set_float32_matmul_precision``, and JAX's "default", as values of torch's settings."""

_SETTINGS = {"": "mkldnn", "cpu": "mkldnn", "cuda": "cuda"}
"""The setting that products on a kind of device read."""

_ROUNDED = {"float32", "complex64"}
"""The dtypes whose products have a setting."""

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_turn = RLock()


def check(precision: Any) -> None:
    """Check the value of ``precision=``.

    Raises:
        BackendError: it is none of :data:`NAMES`, or this torch has only settings that cannot be restored.
    """
    if not isinstance(precision, str) or precision not in NAMES:
        names = ", ".join(map(repr, NAMES))
        raise BackendError(f"precision= must be one of {names} on torch, not {shown(precision)}")
    if not hasattr(torch.backends.mkldnn, "matmul"):
        raise BackendError(
            f"precision= needs torch 2.9, whose setting a call can restore, and this is torch {torch.__version__}; "
            "call torch.set_float32_matmul_precision once, and omit precision="
        )


def at_precision(precision: str, run: Run, program: Program) -> Run:
    """``run`` with torch's setting of float32 products, which is restored afterwards.

    Raises:
        BackendError: the program has no products that a setting rounds.
    """
    device = program.device.partition(":")[0]
    computed = {program.values[op.sources[0]].dtype for op in program.ops if op.effect == "work"}
    if kind(program.dtype) not in "fc" or not computed:
        computed = {program.dtype}
    if not computed & _ROUNDED:
        text = min(computed)
        raise BackendError(f"precision= is for products of float32, and this contraction has {text}; omit it")
    if device not in _SETTINGS:
        raise BackendError(f"torch has no setting of precision on {device}; omit precision=")
    name = _SETTINGS[device]
    value = NAMES[precision].get(name)
    setting = getattr(torch.backends, name).matmul

    def at_once(*operands: Array) -> Array:
        _check_not_traced(operands)
        if value is None:
            return run(*operands)
        with _turn:
            before = setting.fp32_precision
            setting.fp32_precision = value
            try:
                return run(*operands)
            finally:
                setting.fp32_precision = before

    return at_once


def _check_not_traced(operands: Sequence[Any]) -> None:
    """Refuse a trace: a graph does not record the setting."""
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    if (
        any(type(tensor) not in _PLAIN for tensor in tensors)
        or torch._C._get_tracing_state() is not None
        or (proxies is not None and proxies.get_proxy_mode() is not None)
    ):
        raise BackendError(
            "a graph of torch.compile, torch.export or torch.jit does not keep precision=; call "
            "torch.set_float32_matmul_precision around it, and omit precision="
        )
