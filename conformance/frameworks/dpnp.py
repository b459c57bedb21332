"""dpnp, as the suite uses it."""

from __future__ import annotations

from typing import Any

import numpy as np

from einsumx.conformance.framework import VIEWS, Array, Framework


class DpnpFramework(Framework):
    """dpnp, whose own einsum returns views; einsumx plans for it by the standard, without views."""

    name = module = "dpnp"
    semirings = True
    layouts = (*VIEWS, "negative")
    imports = ("import dpnp",)
    code = "dpnp.asarray(np.array({values}, {dtype!r}))"

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        return self.xp.asarray(np.array(values, dtype, order="C"), device=device or None)

    def values(self, array: Array) -> Any:
        return self.xp.asnumpy(array)

    def device(self, array: Array) -> str:
        return str(array.device.sycl_device.filter_string)
