"""dpnp: NumPy's functions on SYCL devices, by Intel's Data Parallel Extensions for Python."""

from __future__ import annotations

from einsumx.adapters.base import Array
from einsumx.backends.array_api import NamedLibrary

__all__ = ["ADAPTER", "DpnpAdapter"]


class DpnpAdapter(NamedLibrary):
    """dpnp's arrays, by the array API standard."""

    name = "dpnp"
    module = "dpnp"
    install = "pip install dpnp intel-opencl-rt"

    def to_numpy(self, array: Array):
        return self.xp.asnumpy(array)


ADAPTER = DpnpAdapter()
