"""Functions that run the ops of a plan, with MXNet's operators chosen from shapes and dtypes.

MXNet's Python functions take longer than it takes to queue their operators. So :class:`Calls` makes the C calls of
these functions in the versions 1.9 and 2.0.0b1, and prepares once what is the same at every call; MXNet is retired, so
there will be no others. Every call has its own buffers, so prepared calls are thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_bool, c_byte, c_char_p, c_int, c_int64, c_void_p, cast
from functools import cached_property
from importlib import import_module
from math import prod
from typing import Any

from einsumx.adapters.typing import Array, Run
from einsumx.backends.mxnet.choices import (
    AROUND_BATCH,
    MOST_TRANSPOSED,
    Shape,
    pays_as_layer,
    pays_by_matmul,
    sums,
    transposes,
)
from einsumx.ir.ops import Matmul


def through_int8(rearrange: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """``rearrange`` for bools, which MXNet's transposes and diagonals do not accept."""
    return lambda array: rearrange(array.astype("int8")).astype("bool")


class MxnetKernels:
    """Kernels for ``mx.np`` arrays.

    Args:
        arrays: the adapter.
    """

    def __init__(self, arrays: Any) -> None:
        self._arrays = arrays
        self._calls: Calls = arrays.calls

    def transpose(self, axes: tuple[int, ...], shape: Shape, dtype: str) -> Run:
        """The kernel of a transpose of an array of that shape."""
        if dtype == "bool":
            return through_int8(self.transpose(axes, shape, "int8"))
        if len(axes) <= MOST_TRANSPOSED:
            swaps = [self._calls.swapaxes(*pair) for pair in self._arrays.swaps(axes)]
            return _in_turn(swaps) if swaps else self._calls.transpose(axes)
        calls = []
        for before, moved in transposes(axes, shape):
            calls += [self._calls.view(before), self.transpose(moved, before, dtype)]
        return _in_turn([*calls, self._calls.view(tuple([shape[axis] for axis in axes]))])

    def diagonal(self, axis1: int, axis2: int, dtype: str) -> Run:
        """The kernel of a diagonal."""
        diagonal = self._calls.diagonal(axis1, axis2)
        return through_int8(diagonal) if dtype == "bool" else diagonal

    def matmul(self, op: Matmul, shapes: Sequence[Shape], dtype: str) -> Run:
        """The kernel of a product of matrices, or of batches with one batch axis."""
        lhs, rhs = shapes
        is_single = dtype == "float32" and lhs[:-2] in ((), (1,))
        if is_single and self._calls.mxnet_1 and pays_as_layer(op, lhs[-2:], rhs[-2:]):
            return self._layer(op, rhs)
        return self.product(len(lhs), op.transpose_lhs, op.transpose_rhs)

    def product(self, rank: int, transpose_lhs: bool, transpose_rhs: bool) -> Run:
        """A product of arrays with two or three axes."""
        return (self._calls.dot if rank == 2 else self._calls.batch_dot)(transpose_lhs, transpose_rhs)

    def einsum(self, equation: str, shapes: Sequence[Shape], dtype: str) -> Run:
        """The kernel of an einsum: MXNet's own, or the product of matrices whose rows are not adjacent."""
        if not (self._calls.mxnet_1 and equation in AROUND_BATCH and dtype in ("float32", "float64")):
            return self._calls.einsum(equation, len(shapes))
        gemm = self._calls.gemm(*AROUND_BATCH[equation])
        # The gradient of gemm overwrites where it should add; that of a view adds.
        view_lhs, view_rhs = map(self._calls.view, shapes)
        return lambda lhs, rhs: gemm(view_lhs(lhs), view_rhs(rhs))

    def _layer(self, op: Matmul, rhs: Shape) -> Run:
        """A single product as the layer ``x @ weights.T``, for which MXNet 1 calls oneDNN; batch_dot calls its BLAS."""
        transpose_lhs, transpose_rhs = op.transpose_lhs, op.transpose_rhs
        weights = rhs[-2:] if transpose_rhs else rhs[:-3:-1]
        calls, turned = self._calls, (1, 0) if len(rhs) == 2 else (0, 2, 1)
        layer, view, transpose = calls.layer(weights[0]), calls.view(weights), calls.transpose(turned)

        def product(lhs: Array, rhs: Array) -> Array:
            lhs = transpose(lhs) if transpose_lhs else lhs
            rhs = rhs if transpose_rhs else transpose(rhs)
            return layer(lhs, view(rhs))

        return product

    def total(self, shape: Shape, axes: tuple[int, ...], dtype: str) -> Run:
        """The kernel of a sum in the array's own dtype; bools are or-ed."""
        first, *others = sums(axes, len(shape))
        if others:
            rest = tuple([size for axis, size in enumerate(shape) if axis not in first])
            following = tuple([axis for axis in axes if axis not in first])  # these are before the first
            return _in_turn([self.total(shape, first, dtype), self.total(rest, following, dtype)])
        if dtype == "bool":
            return lambda array: self._arrays.xp.any(array, axis=axes)
        if pays_by_matmul(shape, axes, dtype):
            return self._total_by_matmul(shape, axes, dtype)
        return self._calls.sum(axes)

    def _total_by_matmul(self, shape: Shape, axes: tuple[int, ...], dtype: str) -> Run:
        """The sum over the middle axis of ``[outer, count, inner]`` as products with ones, often ten times as fast."""
        outer, inner = prod(shape[: axes[0]]), prod(shape[axes[-1] + 1 :])
        count = prod(shape[axis] for axis in axes)
        kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
        by_rows = inner == 1  # one product of a matrix and a vector instead of many short rows
        matrices = (1, outer, count) if by_rows else (outer, count, inner)
        arrays, calls = self._arrays, self._calls
        stack, product, result = calls.view(matrices), calls.batch_dot(False, by_rows), calls.view(kept)

        def total(array: Array) -> Array:
            context = arrays.context(arrays.device(array))
            ones = arrays.xp.ones((matrices[0], 1, count), dtype=dtype, ctx=context)
            return result(product(ones, stack(array)))

        return total


def _in_turn(calls: Sequence[Run]) -> Run:
    """Each call, on the result of the one before."""
    if len(calls) == 1:
        return calls[0]

    def run(array: Array) -> Array:
        for call in calls:
            array = call(array)
        return array

    return run


# -- calls of MXNet's C interface -----------------------------------------------------------------------------

_ARRAY, _INTEGER, _NONE, _OBJECT, _TEXT = 11, 0, 4, 7, 8
"""MXNet 2's codes for the types of arguments."""


class _Address(c_void_p):
    """The address of an object, which it keeps alive."""

    owner: Any


class Calls:
    """Prepares calls of operators on ``mx.np`` arrays.

    Args:
        mx: the top-level module.

    Attributes:
        mxnet_1: whether this is MXNet 1.
    """

    def __init__(self, mx: Any) -> None:
        self._mx = mx
        self._library, self._check = mx.base._LIB, mx.base.check_call
        self.mxnet_1 = str(mx.__version__).startswith("1.")
        self._np_space = "_np" if self.mxnet_1 else "_npi"

    # -- operators --------------------------------------------------------------------------------------

    def einsum(self, equation: str, count: int) -> Callable[..., Array]:
        """MXNet's own einsum of ``count`` operands, even if ``mx.np.einsum`` is replaced."""
        return self._operator("_npi", "einsum", count, subscripts=equation, out=None, optimize=0)

    def batch_dot(self, transpose_lhs: bool, transpose_rhs: bool) -> Callable[..., Array]:
        """``mx.npx.batch_dot``."""
        flags = {"transpose_a": transpose_lhs, "transpose_b": transpose_rhs}
        return self._operator("_npx", "batch_dot", 2, **flags, forward_stype="default")

    def dot(self, transpose_lhs: bool, transpose_rhs: bool) -> Callable[..., Array]:
        """``mx.nd.dot`` of two matrices."""
        flags = {"transpose_a": transpose_lhs, "transpose_b": transpose_rhs, "forward_stype": "default"}
        return self._imperative(self._handle("dot"), 2, flags)

    def gemm(self, transpose_lhs: bool, transpose_rhs: bool) -> Callable[..., Array]:
        """``mx.nd.linalg.gemm2`` of matrices along axes 1 and 3 of arrays with four axes."""
        return self._operator("_linalg", "gemm2", 2, transpose_a=transpose_lhs, transpose_b=transpose_rhs, axis=1)

    def multiply(self) -> Callable[..., Array]:
        """``mx.np.multiply`` of two arrays."""
        return self._operator("_npi", "multiply", 2, out=None)

    def transpose(self, axes: tuple[int, ...]) -> Callable[..., Array]:
        """``mx.np.transpose``."""
        return self._operator(self._np_space, "transpose", 1, axes=axes)

    def sum(self, axes: tuple[int, ...]) -> Callable[..., Array]:
        """``mx.np.sum``."""
        return self._operator(self._np_space, "sum", 1, axis=axes, dtype=None, keepdims=None, initial=None, out=None)

    def diagonal(self, axis1: int, axis2: int) -> Callable[..., Array]:
        """``mx.np.diagonal``, without an offset."""
        return self._operator(self._np_space, "diagonal", 1, offset=0, axis1=axis1, axis2=axis2)

    def layer(self, units: int) -> Callable[..., Array]:
        """``mx.npx.fully_connected`` of an array and weights, without a bias."""
        return self._operator("_npx", "fully_connected", 2, num_hidden=units, no_bias=True, flatten=False)

    @cached_property
    def copy_into(self) -> Callable[[Array, Array], None]:
        """A function of a target and a source that calls ``source.copyto(target)`` of MXNet 1."""
        operator = self._handle("_copyto")
        invoke, handles, results = self._library.MXImperativeInvokeEx, c_void_p * 1, POINTER(c_void_p)

        def copy_into(target: Array, source: Array) -> None:
            storage = c_void_p()
            outputs = cast(handles(target.handle), results)
            operands = handles(source.handle)
            if failed := invoke(operator, 1, operands, byref(c_int(1)), byref(outputs), 0, None, None, byref(storage)):
                self._check(failed)

        return copy_into

    def swapaxes(self, axis1: int, axis2: int) -> Callable[..., Array]:
        """``mx.np.swapaxes``."""
        return self._operator("_npi", "swapaxes", 1, dim1=axis1, dim2=axis2)

    def _operator(self, space: str, name: str, count: int, **arguments: Any) -> Callable[..., Array]:
        """An operator of ``count`` arrays; if possible a function of MXNet 2, whose arguments are not text."""
        if not self.mxnet_1:
            function = c_void_p()
            self._check(self._library.MXNetFuncGetGlobal(f"{space}.{name}".encode(), byref(function)))
            if function.value is not None:
                return self._function(function, count, list(arguments.values()))
        texts = {key: value for key, value in arguments.items() if value is not None}
        return self._imperative(self._handle(f"{space}_{name}"), count, texts)

    def _handle(self, name: str) -> c_void_p:
        """The handle of an operator."""
        handle = c_void_p()
        self._check(self._library.NNGetOpHandle(name.encode(), byref(handle)))
        return handle

    def _imperative(self, operator: c_void_p, count: int, arguments: dict[str, Any]) -> Callable[..., Array]:
        """A call like those of MXNet's generated functions, with names and values of arguments as text."""
        library = self._library
        invoke = library.MXImperativeInvokeEx if self.mxnet_1 else library.MXImperativeInvoke
        ndarray, handles, results = self._mx.np.ndarray, c_void_p * count, POINTER(c_void_p)
        length, new_handle = len(arguments), self._mx.base.NDArrayHandle
        texts = c_char_p * length
        keys = texts(*(key.encode() for key in arguments))
        values = texts(*(str(value).encode() for value in arguments.values()))

        def call(*arrays: Array) -> Array:
            number, outputs, storage = c_int(), results(), c_void_p()
            operands = handles(*[array.handle for array in arrays])
            targets = byref(number), byref(outputs)
            if failed := invoke(operator, count, operands, *targets, length, keys, values, byref(storage)):
                self._check(failed)
            return ndarray(new_handle(outputs[0]))

        return call

    def _function(self, function: c_void_p, count: int, arguments: list[Any]) -> Callable[..., Array]:
        """A call like those of MXNet 2's functions, with numbers, texts and objects as arguments after the arrays."""
        invoke, ndarray = self._library.MXNetFuncCall, self._mx.np.ndarray
        new_handle, total = self._mx.base.NDArrayHandle, count + len(arguments)
        argument_codes, constants = zip(*map(self._packed, arguments))
        values, codes = c_void_p * total, (c_int * total)(*[_ARRAY] * count, *argument_codes)

        def call(*arrays: Array) -> Array:
            result, code = new_handle(), c_int()
            operands = values(*[array.handle for array in arrays], *constants)
            if failed := invoke(function, operands, codes, total, byref(result), byref(code)):
                self._check(failed)
            return ndarray(result)

        return call

    def _packed(self, argument: Any) -> tuple[int, Any]:
        """An argument's type code, and its value or address."""
        match argument:
            case None:
                return _NONE, None
            case str():
                return _TEXT, cast(c_char_p(argument.encode()), c_void_p)
            case tuple():
                numbers = self._mx._ffi.convert_to_node(argument)
                address = _Address(numbers.handle.value)
                address.owner = numbers
                return _OBJECT, address
            case _:
                return _INTEGER, int(argument)

    # -- arrays -----------------------------------------------------------------------------------------

    @cached_property
    def describe(self) -> Callable[[Array], tuple[tuple[int, ...], Any]]:
        """A function that returns an array's shape and its dtype, a scalar type of NumPy."""
        library, sizes = self._library, POINTER(c_int64)
        get_shape = library.MXNDArrayGetShapeEx64 if self.mxnet_1 else library.MXNDArrayGetShape64
        get_dtype = library.MXNDArrayGetDType
        dtypes = self._mx.ndarray.ndarray._DTYPE_MX_TO_NP

        def describe(array: Array) -> tuple[tuple[int, ...], Any]:
            handle, number, pointer = array.handle, c_int(), sizes()
            target = byref(number)
            if failed := get_shape(handle, target, byref(pointer)):
                self._check(failed)
            shape = tuple(pointer[: number.value])
            if failed := get_dtype(handle, target):
                self._check(failed)
            return shape, dtypes[number.value]

        return describe

    def memory(self, array: Array) -> Any:
        """The memory of an array of bools on the CPU, as a NumPy array."""
        address = c_void_p()
        self._check(self._library.MXNDArrayGetData(array.handle, byref(address)))
        np = import_module("numpy")
        shape, _ = self.describe(array)
        if not address.value:
            return np.empty(shape, bool)
        return np.frombuffer((c_byte * prod(shape)).from_address(address.value), bool).reshape(shape)

    def view(self, shape: tuple[int, ...]) -> Callable[[Array], Array]:
        """``array.reshape_view(shape)``, for shapes without sizes of 0."""
        view, check, new_handle = self._library.MXNDArrayReshape64, self._check, self._mx.base.NDArrayHandle
        rank, sizes, ndarray = len(shape), (c_int64 * len(shape))(*shape), self._mx.np.ndarray

        def viewed(array: Array) -> Array:
            handle = new_handle()
            check(view(array.handle, rank, sizes, False, byref(handle)))
            return ndarray(handle, array.writable)

        return viewed

    def unless_tracing(self, run: Run, otherwise: Run) -> Run:
        """``run``, or ``otherwise`` while MXNet 2 traces a block."""
        get_tracing = self._library.MXNDArrayIsDeferredCompute

        def either(*arrays: Array) -> Array:
            is_tracing = c_bool()
            if failed := get_tracing(byref(is_tracing)):
                self._check(failed)
            return otherwise(*arrays) if is_tracing.value else run(*arrays)

        return either

    def in_np_shape(self, run: Run) -> Run:
        """``run`` inside ``with mx.util.np_shape(True)``, which restores the thread's switch."""
        switch, check = self._library.MXSetIsNumpyShape, self._check

        def switched(*arrays: Array) -> Array:
            previous = c_int()
            check(switch(1, byref(previous)))
            try:
                return run(*arrays)
            finally:
                if not previous.value:
                    check(switch(0, byref(previous)))

        return switched
