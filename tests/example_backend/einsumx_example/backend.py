"""The backend for this library: the traits of its arrays, and the functions that differ from NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from einsumx import Adapter, Traits


class ExampleAdapter(Adapter):
    """Arrays of einsumx_example."""

    name = "einsumx_example"
    module = "einsumx_example"
    install = "pip install einsumx-example"
    cpu = Traits(
        strided=False,  # a transpose copies
        views=False,
        memory_order=False,
        matmul_dtypes=frozenset({"int64", "float32", "float64", "complex128"}),
        matmul_through=(("bool", "float32"),),
    )

    def copy(self, array: Any) -> Any:
        return array.astype(array.dtype)

    def sum(self, array: Any, axes: tuple[int, ...]) -> Any:
        return self.xp.total(array, axes)

    def scalar(self, value: Any, like: Any, dtype: str) -> Any:
        array = self.xp.asarray(value)
        # A Python number adopts the dtype of the other operands, if that can hold its kind of number.
        adopts = dtype and not isinstance(value, list | tuple) and np.can_cast(array.dtype, dtype, "same_kind")
        return array.astype(dtype) if adopts else array

    # memory_limit= needs blocks of arrays, their sum, and a result to put them into.

    def part(self, array: Any, box: tuple[slice, ...]) -> Any:
        return self.xp.part(array, box)

    def add(self, total: Any, part: Any) -> Any:
        return self.xp.add(total, part)

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Any:
        return self.xp.zeros(shape, dtype)

    def put(self, out: Any, box: tuple[slice, ...], block: Any) -> Any:
        return self.xp.replaced(out, box, block.astype(out.dtype))

    def to_numpy(self, array: Any) -> Any:
        return array._values.copy()


ADAPTER = ExampleAdapter()
