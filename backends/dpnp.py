"""dpnp: NumPy's functions on SYCL devices, of Intel's Data Parallel Extensions for Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from einsumx.adapters.base import Array
from einsumx.adapters.replacement import own
from einsumx.backends.array_api import NamedLibrary
from einsumx.backends.array_api.adapter import ArrayApiOut
from einsumx.errors import BackendError


class DpnpOut(ArrayApiOut):
    """Arrays that are written to."""

    def check(self, out: Array, operands: Sequence[Array]) -> None:
        # dpnp takes an array of stride 0 for one that can be written to, and refuses each write to it.
        if any(step == 0 and size > 1 for step, size in zip(out.strides, out.shape)):
            raise BackendError("out= is a read-only dpnp array, which repeats elements; omit out=")
        super().check(out, operands)


class DpnpAdapter(NamedLibrary):
    """dpnp's arrays, by the array API standard."""

    name = "dpnp"
    module = "dpnp"
    install = "pip install dpnp intel-opencl-rt"  # and OCL_ICD_FILENAMES=.../lib/libintelocl.so for the processor
    out = cached_property(DpnpOut)

    def device(self, array: Array) -> str:
        name = str(array.sycl_device.filter_string)
        self._devices.setdefault(name, array.device)
        return name

    def from_numpy(self, array: Any, device: str = "") -> Array:
        return self.xp.asarray(array, device=device or None)

    def to_numpy(self, array: Array) -> Any:
        return self.xp.asnumpy(array)

    def synchronize(self, array: Array) -> None:
        array.sycl_queue.wait()

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        # dpnp's matmul fails on arrays with a stride of 0, or reads the wrong elements of them.
        one, other = (self.copy(array) if 0 in array.strides else array for array in (lhs, rhs))
        return super().matmul(one, other, transpose_lhs, transpose_rhs)

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        return own(self.xp.einsum)(equation, *arrays)


ADAPTER = DpnpAdapter()
