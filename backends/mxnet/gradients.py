"""Gradients of contractions that give their own, such as those under a memory limit, as a function of MXNet's autograd.

MXNet's own ``autograd.Function`` leaves gradients out where they are to be added (``grad_req="add"``), and all those
after one that is not asked for; its callbacks are given here by the C interface that it uses.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, byref, c_int, c_void_p, cast
from importlib import import_module
from itertools import count
from math import prod
from typing import Any, Protocol

from einsumx.adapters.base import Adapter
from einsumx.adapters.typing import Array
from einsumx.dtypes import itemsize

__all__ = ["record"]

_BACKWARD = CFUNCTYPE(c_int, c_int, c_int, POINTER(c_void_p), POINTER(c_int), c_int, c_void_p)
_DELETE = CFUNCTYPE(c_int, c_void_p)
_NOT, _ADD = 0, 3
"""What MXNet asks to be done with a gradient."""

_alive: dict[int, Any] = {}
"""The callbacks that MXNet can still call."""
_numbers = count()


class Call(Protocol):
    """A contraction that gives its own gradients, as :class:`einsumx.adapters.typing.Recorded` does."""

    def value(self, place: int, arrays: Sequence[Any], beside: int) -> Array: ...


def record(
    adapter: Adapter, call: Call, run: Callable[[], Array], operands: Sequence[Any], numbers: Sequence[int]
) -> Array:
    """The result of ``run``, recorded with the gradients by the operands ``numbers`` that ``call`` gives.

    Those cannot be differentiated again, as is so with most of MXNet's operators.
    """
    mx = import_module("mxnet")
    new_handle, key = mx.base.NDArrayHandle, next(_numbers)
    with mx.autograd.pause():
        result = run()
        if any(result is operand for operand in operands):
            result = adapter.copy(result)
    dtype = adapter.dtype_name(result.dtype)

    def backward(outputs: int, inputs: int, handles: Any, requests: Any, *_: Any) -> int:
        try:
            with mx.autograd.pause(), mx.util.np_shape(True):
                arrays = [mx.np.ndarray(cast(handles[k], new_handle), writable=True) for k in range(outputs + inputs)]
                cotangent = arrays[0]
                if adapter.dtype_name(cotangent.dtype) != dtype:  # MXNet takes any
                    cotangent = adapter.cast(cotangent, dtype)
                beside = 0
                for number, gradient, request in zip(numbers, arrays[outputs:], requests):
                    if request == _NOT:
                        continue
                    found = call.value(number, (*operands, cotangent), beside)
                    if request == _ADD:
                        adapter.add(gradient, adapter.cast(found, adapter.dtype_name(gradient.dtype)))
                    else:
                        adapter.write(gradient, found)
                        gradient.wait_to_read()
                    beside += prod(gradient.shape) * itemsize(adapter.dtype_name(gradient.dtype))
        except Exception:  # noqa: BLE001  MXNet raises its own, and says nothing of this one
            traceback.print_exc()
            return 0
        return 1

    def delete(_: Any) -> int:
        return int(_alive.pop(key, None) is not None)

    callbacks = [cast(each, CFUNCTYPE(c_int)) for each in (_BACKWARD(backward), _DELETE(delete))]
    found = mx.base.MXCallbackList(
        c_int(len(callbacks)),
        cast(mx.base.c_array(CFUNCTYPE(c_int), callbacks), POINTER(CFUNCTYPE(c_int))),
        cast(mx.base.c_array(c_void_p, [None] * len(callbacks)), POINTER(c_void_p)),
    )
    _alive[key] = callbacks, found
    inputs = [operands[number] for number in numbers]
    mx.base.check_call(
        mx.base._LIB.MXCustomFunctionRecord(
            c_int(len(inputs)), mx.base.c_handle_array(inputs), c_int(1), mx.base.c_handle_array([result]), byref(found)
        )
    )
    return result
