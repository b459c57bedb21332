"""Records a computation in MXNet's autograd with gradients that einsumx computes, such as those under a memory limit.

``mx.autograd.Function`` ignores gradients with ``grad_req="add"``, and all those that follow one that nobody requests.
So this module registers callbacks with the C interface behind it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, byref, c_int, c_void_p, cast
from importlib import import_module
from itertools import count
from math import prod
from typing import Any, TypeAlias

from einsumx.adapters.base import Adapter
from einsumx.adapters.facets import Gradients, Recorded, blocks_of, out_of
from einsumx.adapters.typing import Array
from einsumx.dtypes import itemsize

Gradient: TypeAlias = Callable[[int, Sequence[Any], int], Array]
"""The gradient by an operand, as :meth:`einsumx.adapters.typing.Recorded.value` computes it."""

_BACKWARD = CFUNCTYPE(c_int, c_int, c_int, POINTER(c_void_p), POINTER(c_int), c_int, c_void_p)
_DELETE = CFUNCTYPE(c_int, c_void_p)
_NULL, _ADD = 0, 3
"""MXNet's codes of ``grad_req``."""

_callbacks: dict[int, Any] = {}
"""The callbacks that MXNet can still call."""
_numbers = count()


class ArrayGradients(Gradients):
    """Gradients of arrays, by einsumx where MXNet's own are wrong or would need too much memory."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter, self._mx = adapter, import_module("mxnet")

    def needed(self, array: Array) -> bool:
        return array.grad is not None or bool(self._mx.autograd.is_recording())

    def may_be_needed(self, array: Array) -> bool:
        return bool(self._mx.autograd.is_recording()) and self.in_graph(array)

    def in_graph(self, array: Array) -> bool:
        """Whether autograd knows ``array`` as a variable or a recorded result."""
        try:
            self._mx.autograd.get_symbol(array)
        except self._mx.base.MXNetError:
            return False
        return True

    def recorded(
        self, call: Recorded, run: Callable[[], Array], operands: Sequence[Any], numbers: Sequence[int]
    ) -> Array:
        return record(self._adapter, call.value, run, operands, numbers)

    def embed_diagonal(self, array: Array) -> Array:
        adapter, np = self._adapter, self._mx.np
        shape, size, device = array.shape, array.shape[-1], adapter.device(array)
        options = {"dtype": array.dtype, "ctx": array.ctx}
        with self._mx.util.np_shape(True):
            if not array.size:
                return np.zeros((*shape, size), **options)
            rows = adapter.reshape(array, (array.size // size, size, 1))  # MXNet does not broadcast many axes
            is_diagonal = adapter.from_numpy(import_module("numpy").eye(size, dtype=bool), device)
            zero = np.zeros((1, 1, 1), **options)
            return adapter.reshape(np.where(is_diagonal, rows, zero), (*shape, size))


def record(
    adapter: Adapter, gradient: Gradient, run: Callable[[], Array], operands: Sequence[Any], numbers: Sequence[int]
) -> Array:
    """The result of ``run``, recorded with ``gradient`` for its gradients by the operands ``numbers``.

    As with most of MXNet's operators, the gradients cannot be differentiated again.
    """
    mx = import_module("mxnet")
    with mx.autograd.pause():
        result = run()
        if any(result is operand for operand in operands):
            result = adapter.copy(result)
    dtype = adapter.dtype_name(result.dtype)

    def write_gradients(cotangent: Array, targets: Sequence[Array], requests: Sequence[int]) -> None:
        if adapter.dtype_name(cotangent.dtype) != dtype:  # MXNet accepts any
            cotangent = adapter.cast(cotangent, dtype)
        nbytes = 0
        for number, target, request in zip(numbers, targets, requests):
            if request != _NULL:
                _write(adapter, target, gradient(number, (*operands, cotangent), nbytes), adds=request == _ADD)
                nbytes += prod(target.shape) * itemsize(adapter.dtype_name(target.dtype))

    _register(mx, write_gradients, [operands[number] for number in numbers], result)
    return result


def _write(adapter: Adapter, target: Array, gradient: Array, *, adds: bool) -> None:
    if adds:
        blocks_of(adapter).add(target, adapter.cast(gradient, adapter.dtype_name(target.dtype)))
    else:
        out_of(adapter).write(target, gradient)
    target.wait_to_read()


def _register(mx: Any, write_gradients: Callable[..., None], inputs: Sequence[Array], result: Array) -> None:
    """Record in autograd that ``write_gradients(cotangent, targets, requests)`` differentiates ``result``."""
    base, key = mx.base, next(_numbers)

    def backward(outputs: int, inputs: int, handles: Any, requests: Any, *_: Any) -> int:
        try:
            with mx.autograd.pause(), mx.util.np_shape(True):
                cotangent, *targets = [
                    mx.np.ndarray(cast(handles[place], base.NDArrayHandle), writable=True)
                    for place in range(outputs + inputs)
                ]
                write_gradients(cotangent, targets, requests)
        except Exception:  # noqa: BLE001  MXNet raises an error that does not contain this one
            traceback.print_exc()
            return 0
        return 1

    def delete(_: Any) -> int:
        return int(_callbacks.pop(key, None) is not None)

    functions = [cast(function, CFUNCTYPE(c_int)) for function in (_BACKWARD(backward), _DELETE(delete))]
    callbacks = base.MXCallbackList(
        c_int(len(functions)),
        cast(base.c_array(CFUNCTYPE(c_int), functions), POINTER(CFUNCTYPE(c_int))),
        cast(base.c_array(c_void_p, [None] * len(functions)), POINTER(c_void_p)),
    )
    _callbacks[key] = functions, callbacks
    inputs_handle, result_handle = base.c_handle_array(inputs), base.c_handle_array([result])
    base.check_call(
        base._LIB.MXCustomFunctionRecord(c_int(len(inputs)), inputs_handle, c_int(1), result_handle, byref(callbacks))
    )
