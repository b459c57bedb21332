"""TensorFlow's tensors: eager ones, and those that tf.function, XLA and vectorized_map trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, lru_cache
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from einsumx.adapters.base import Adapter, Array, Signature
from einsumx.adapters.facets import Arithmetic, BlockAccess, Gradients, OutAccess, Semirings, TracedLoops
from einsumx.adapters.operand_types import dtype_error, type_name, wrong_type_error
from einsumx.adapters.replacement import Name
from einsumx.backends.tensorflow.choices import MOST_SLICED, grouped, is_wide_broadcast, sum_passes
from einsumx.dtypes import itemsize, kind
from einsumx.errors import BackendError, SizeError, shown
from einsumx.host.free_memory import free_host_bytes
from einsumx.imports import LazyModule
from einsumx.ir.bind import planned_sizes
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Cast, Copy, Diagonal, Matmul, Multiply, Op, Reshape, Sum, Transpose
from einsumx.ir.rates import Rates
from einsumx.ir.sizes import is_known
from einsumx.ir.traits import BLAS, HALVES, INTEGERS, PRODUCTS, Traits

if TYPE_CHECKING:
    import einsumx.backends.tensorflow.gradients as gradients
    import einsumx.backends.tensorflow.loops as loops_in_graphs
    import einsumx.backends.tensorflow.patch as patch
else:
    gradients = LazyModule("einsumx.backends.tensorflow.gradients")
    loops_in_graphs = LazyModule("einsumx.backends.tensorflow.loops")
    patch = LazyModule("einsumx.backends.tensorflow.patch")

_DTYPES = BLAS | HALVES | INTEGERS | {"bool"}

_THROUGH = {
    "bool": "float32",
    "uint64": "int64",
    **dict.fromkeys(("int8", "int16", "uint8", "uint16", "uint32"), "int32"),
}
"""The dtype in which the products of another one are computed. Those of integers wrap to the same bits."""

# Arrays are in C order: a transpose copies and a reshape is free. Sums in half precision accumulate in it.
TRAITS = Traits(
    arrays="packed",
    views=False,
    dtypes=_DTYPES,
    max_batch_axes=10,
    transpose_flags=True,
    multiply_broadcasts=True,
    dots_by_sum=True,
    matmul_dtypes=BLAS | HALVES | {"int32", "int64"},
    matmul_through=tuple(_THROUGH.items()),
    widen=(("float16", "float32"), ("bfloat16", "float32")),
    wide_ops=PRODUCTS,
    rates=Rates(call=10e-6, view=6e-6, matrix=0.5e-6, gemm=80e9, stream=20e9, copy=14e9, permute=5e9, run=6e-9),
)

_SPARSE = {
    "SparseTensor": "tf.sparse.to_dense(x) makes one, with memory for all its zeros",
    "RaggedTensor": "x.to_tensor() makes one, with zeros where rows are shorter",
    "IndexedSlices": "tf.convert_to_tensor(x) makes one, with memory for all its zeros",
}
"""How to make a dense tensor of the tensors that are none."""


class TensorflowBlocks(BlockAccess):
    """Blocks of tensors."""

    def check_eager(self, array: Array) -> None:
        if type(array) is not self.adapter._eager or not self.xp.executing_eagerly():
            raise BackendError(
                "plan cannot keep a memory_limit= while tf.function or tf.vectorized_map traces the operands; pass "
                "shapes, or call einsum"
            )

    def part(self, array: Array, box: tuple[slice, ...]) -> Array:
        shape = tuple(array.shape)
        if len(shape) <= MOST_SLICED:
            return array[box]
        for axis, bounds in enumerate(box):
            if len(range(*bounds.indices(shape[axis]))) < shape[axis]:
                rows = self.xp.reshape(array, (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])))[:, bounds]
                shape = (*shape[:axis], int(rows.shape[1]), *shape[axis + 1 :])
                array = self.xp.reshape(rows, shape)
        return array

    def add(self, total: Array, part: Array) -> Array:
        if total.dtype.is_bool or not self.xp.executing_eagerly():
            return self.adapter.arithmetic.plus(total, part)
        # This adds in the memory of the first array, which a graph may share.
        row = [self.xp.reshape(each, (1, -1)) for each in (total, part)]
        return self.xp.reshape(
            self.adapter._ops.InplaceAdd(x=row[0], i=self.adapter._constant((0,)), v=row[1]), total.shape
        )

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        """A variable, because tensors cannot be written to; :meth:`finished` makes a tensor of it."""
        with self.adapter._on(device):
            return self.xp.Variable(
                self.adapter._ops.Empty(shape=shape, dtype=self.adapter.dtype(dtype)), trainable=False
            )

    def put(self, out: Array, box: tuple[slice, ...], block: Array) -> Array:
        block = self.adapter.arithmetic.as_dtype(block, self.adapter.dtype_name(out.dtype))
        if all(part.indices(size)[:2] == (0, size) for part, size in zip(box, out.shape)):
            out.assign(block)
        elif len(box) <= MOST_SLICED:
            out[box].assign(block)
        else:
            whole = out.numpy()
            whole[box] = block.numpy()
            out.assign(whole)
        return out

    def finished(self, out: Array) -> Array:
        return out.value() if isinstance(out, self.xp.Variable) else out

    def find_device(self, name: str) -> str:
        kind, _, number = name.partition(":")
        known = [_device_name(device.name) for device in self.xp.config.list_logical_devices()]
        found = f"{kind.lower()}:{number or 0}"
        if found not in known:
            raise BackendError(f"tensorflow finds no device {shown(name)}; there are {', '.join(known)}")
        return found

    def free_bytes(self, device: str) -> int | None:
        return free_host_bytes() if device.partition(":")[0] in ("", "cpu") else None

    def move(self, array: Array, device: str) -> Array:
        if device in ("", self.adapter.device(array)):
            return array
        with self.adapter._on(device):
            return self.xp.identity(array)


class TensorflowOut(OutAccess):
    """Variables, which are written to."""

    def check(self, out: Array, operands: Sequence[Array]) -> None:
        if not isinstance(out, self.xp.Variable):
            raise BackendError("TensorFlow's tensors cannot be written to: pass a tf.Variable as out=, or omit it")

    def write(self, out: Array, result: Array) -> None:
        name = self.adapter.dtype_name(out.dtype)
        out.assign(self.adapter.arithmetic.as_dtype(result, name))

    def may_overlap(self, out: Array, array: Array) -> bool:
        return False  # a tensor keeps its values when a variable is assigned


class TensorflowArithmetic(Arithmetic):
    """Sums of tensors of every dtype."""

    def plus(self, lhs: Array, rhs: Array) -> Array:
        return self.xp.logical_or(lhs, rhs) if lhs.dtype.is_bool else self.xp.add(lhs, rhs)


class TensorflowSemirings(Semirings):
    """TensorFlow's functions."""

    names = MappingProxyType(
        {
            "max": "reduce_max",
            "min": "reduce_min",
            "all": "reduce_all",
            "log": "math.log",
            "isfinite": "math.is_finite",
        }
    )

    def detached(self, array: Array) -> Array:
        return self.xp.stop_gradient(array)

    def places(self, start: int, stop: int, like: Array) -> Array:
        return self.xp.range(start, stop, dtype=self.xp.int64)

    def rows(self, matrix: Array, places: Array) -> Array:
        return self.xp.gather(matrix, places)


class TensorflowAdapter(Adapter):
    """TensorFlow's dense tensors and variables, on any device."""

    name = "tensorflow"
    module = "tensorflow"
    import_statement = "import tensorflow as tf"
    install = "pip install tensorflow"
    cpu = TRAITS
    blocks = cached_property(TensorflowBlocks)
    out = cached_property(TensorflowOut)
    arithmetic = cached_property(TensorflowArithmetic)
    semirings = cached_property(TensorflowSemirings)

    @cached_property
    def _ops(self) -> Any:
        """TensorFlow's kernels, without the checks and conversions around them."""
        return self.xp.raw_ops

    @cached_property
    def _eager(self) -> Any:
        """The type of tensors that have values."""
        with self.xp.init_scope():
            return type(self.xp.zeros(()))

    def lasting(self, arrays: Sequence[Array]) -> AbstractContextManager[Any] | None:
        context: AbstractContextManager[Any] = self.xp.init_scope()
        return context if all(type(array) is self._eager for array in arrays) else None

    # -- which arrays -----------------------------------------------------------------------------------

    def check_type(self, kind: type) -> None:
        if issubclass(kind, (self.xp.Tensor, self.xp.Variable)):
            return
        advice = next((_SPARSE[base.__name__] for base in kind.__mro__ if base.__name__ in _SPARSE), None)
        if advice is not None:
            raise BackendError(f"einsum takes dense tensors, not {type_name(kind)}: {advice}")
        raise wrong_type_error(kind, "tf.Tensor and tf.Variable")

    def is_plain(self, kind: type) -> bool:
        return issubclass(kind, self.xp.Tensor)

    def plain(self, array: Array) -> Array:
        """A variable's value; a tape that watches the variable records this."""
        return self.xp.convert_to_tensor(array)

    # -- describing arrays ------------------------------------------------------------------------------

    def signature(self, array: Array) -> Signature:
        if type(array) is self._eager:
            return self._eager, tuple(array.shape.as_list()), array.dtype, array.device
        if array.shape.rank is None:
            raise BackendError(
                "the number of axes of a tensor is not known; declare it: tf.ensure_shape(x, [None, None])"
            )
        return type(array), planned_sizes(array.shape.as_list()), array.dtype, self._place(array)

    def size(self, array: Array, axis: int) -> Any:
        return self.xp.shape(array)[axis]

    def with_size(self, array: Array, axis: int, size: Any, message: str) -> Array:
        known = array.shape[axis]
        if known is not None and isinstance(size, int):
            if known != size:
                raise SizeError(message)
            return array
        with self.xp.control_dependencies([self.xp.debugging.assert_equal(self.size(array, axis), size, message)]):
            return self.xp.identity(array)

    def _place(self, array: Array) -> str:
        """The device of a variable; empty for a traced tensor, and for a variable within a trace."""
        return array.device if self.xp.executing_eagerly() and isinstance(array, self.xp.Variable) else ""

    def device(self, array: Array) -> str:
        return _device_name(array.device)

    def device_of(self, signature: Signature) -> str:
        return _device_name(signature[3])

    def device_model(self, device: str) -> str:
        if device.partition(":")[0] in ("", "cpu"):
            return ""
        found = self.xp.config.list_physical_devices(device.partition(":")[0].upper())
        details = self.xp.config.experimental.get_device_details(found[0]) if found else {}
        return str(details.get("device_name", ""))

    def dtype_name(self, dtype: Any) -> str:
        try:
            name = str(self.xp.as_dtype(dtype).name)
        except TypeError:
            name = str(dtype)
        if name not in _DTYPES:
            raise dtype_error(self.name, name)
        return name

    def dtype(self, name: str) -> Any:
        if name not in _DTYPES:
            raise dtype_error(self.name, name)
        return self.xp.as_dtype(name)

    def promote(self, dtypes: Sequence[str]) -> str:
        first, *others = dict.fromkeys(dtypes)
        if others:
            raise BackendError(
                f"TensorFlow does not promote dtypes, and the operands have {first} and {others[0]}: pass dtype=, or "
                "convert one with tf.cast"
            )
        return first

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        if like is None:
            return self.xp.convert_to_tensor(value)
        try:
            # As next to a tensor in TensorFlow's own operators, a number or a list adopts the tensor's dtype.
            with self._on(self.device(like) if type(like) is self._eager else ""):
                return self.xp.convert_to_tensor(value, self.dtype(dtype))
        except (OverflowError, TypeError, ValueError) as error:
            raise BackendError(
                f"TensorFlow does not convert {shown(value)} to {dtype}, the dtype of the other tensors; pass a "
                "tensor, and dtype= for the result"
            ) from error

    # -- primitives -------------------------------------------------------------------------------------

    def _sizes(self, array: Array, values: tuple[int, ...]) -> Any:
        """Sizes or axes as arguments of an operation on ``array``: for an eager one, a tensor that exists already.

        To make one of a tuple takes several times as long as the operation.
        """
        return self._constant(values) if type(array) is self._eager else values

    @cached_property
    def _constant(self) -> Callable[[tuple[int, ...]], Array]:
        def constant(values: tuple[int, ...]) -> Array:
            with self.xp.init_scope(), self.xp.device("CPU:0"):
                return self.xp.constant(values, "int32" if max(values, default=0) < 2**31 else "int64", (len(values),))

        return lru_cache(maxsize=4096)(constant)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        rank = len(array.shape)
        axes = (*(axis for axis in range(rank) if axis not in (axis1, axis2)), axis1, axis2)
        moved = array if axes == tuple(range(rank)) else self.transpose(array, axes)
        return self.xp.linalg.diag_part(moved)

    def copy(self, array: Array) -> Array:
        return self._ops.DeepCopy(x=array)

    def cast(self, array: Array, dtype: str) -> Array:
        if kind(array.dtype.name) == "c" and kind(dtype) != "c":
            if dtype == "bool":  # TensorFlow would look at the real part alone
                return self.xp.not_equal(array, 0)
            array = self.xp.math.real(array)
        return self.xp.cast(array, dtype)

    def conjugate(self, array: Array, lazily: bool) -> Array:
        return self.xp.math.conj(array)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        return (self.xp.reduce_any if array.dtype.name == "bool" else self.xp.reduce_sum)(array, axes)

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        # A product of empty sums, whose gradients are zeros.
        tf = self.xp
        empty = [tf.reduce_sum(tf.reshape(array, [-1])[:0]) for array in arrays if kind(array.dtype.name) != "b"]
        total = tf.zeros((), self.dtype(dtype))
        for each in empty:
            total = tf.multiply(total, self.cast(each, dtype)) if dtype != "bool" else total
        return tf.fill(shape, total)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        if is_wide_broadcast(lhs.shape, rhs.shape):
            return self._wide_multiply(lhs.shape, rhs.shape)(lhs, rhs)
        return (self.xp.logical_and if lhs.dtype.name == "bool" else self.xp.multiply)(lhs, rhs)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        return self.xp.linalg.matmul(lhs, rhs, transpose_a=transpose_lhs, transpose_b=transpose_rhs)

    def _product(self, dtype: str, rank: int, transpose_lhs: bool, transpose_rhs: bool) -> Callable[..., Array]:
        """The function that multiplies arrays of ``rank`` axes; it reads a side transposed without a copy."""
        if dtype == "bfloat16" and not self._accumulates_wide:
            wide = self._product("float32", rank, transpose_lhs, transpose_rhs)
            return lambda lhs, rhs: self.cast(wide(self.cast(lhs, "float32"), self.cast(rhs, "float32")), dtype)
        if rank == 2:
            product = self._ops.MatMul
            return lambda lhs, rhs: product(a=lhs, b=rhs, transpose_a=transpose_lhs, transpose_b=transpose_rhs)
        product = self._ops.BatchMatMulV2
        if kind(dtype) != "c" or not (transpose_lhs or transpose_rhs):
            return lambda lhs, rhs: product(x=lhs, y=rhs, adj_x=transpose_lhs, adj_y=transpose_rhs)
        conj = self._ops.Conj  # a batched product transposes only conjugates
        return lambda lhs, rhs: product(
            x=conj(input=lhs) if transpose_lhs else lhs,
            y=conj(input=rhs) if transpose_rhs else rhs,
            adj_x=transpose_lhs,
            adj_y=transpose_rhs,
        )

    @cached_property
    def _accumulates_wide(self) -> bool:
        """Whether the CPU's products in bfloat16 are summed in float32, then rounded to the nearest.

        That depends on the processor: some kernels sum in bfloat16, others drop the last bits.
        """
        with self.xp.init_scope(), self.xp.device("CPU:0"):
            row = self.xp.fill((1, 512), self.xp.cast(1.0703125, "bfloat16"))
            # 586.5; the nearest bfloat16 above is 588, below 584, and a sum in bfloat16 stops at 256.
            return float(self.xp.linalg.matmul(row, row, transpose_b=True)[0, 0]) == 588

    def kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        match op:
            case Transpose(axes=axes):
                constant, eager, transpose = self._constant(axes), self._eager, self._ops.Transpose
                return lambda source: transpose(x=source, perm=constant if type(source) is eager else axes)
            case Reshape(shape=shape) if not all(isinstance(size, int) for size in shape):
                return lambda source: self.xp.reshape(source, shape)
            case Reshape(shape=shape):
                constant, eager, reshape = self._constant(shape), self._eager, self._ops.Reshape
                return lambda source: reshape(tensor=source, shape=constant if type(source) is eager else shape)
            case Sum():
                return self._sum(op.axes, shapes[0], dtype)
            case Cast() if kind(dtype) != "c":
                cast, target = self._ops.Cast, self.dtype(op.dtype)
                return lambda source: cast(x=source, DstT=target)
            case Copy():
                identity = self._ops.Identity  # tensors never change, so that they may share memory
                return lambda source: identity(input=source)
            case Multiply() if is_wide_broadcast(*shapes):
                return self._wide_multiply(*shapes)
            case Multiply():
                multiply = self._ops.LogicalAnd if dtype == "bool" else self._ops.Mul
                return lambda lhs, rhs: multiply(x=lhs, y=rhs)
            case Matmul():
                return self._product(dtype, len(shapes[0]), op.transpose_lhs, op.transpose_rhs)
            case _:
                return super().kernel(op, shapes, dtype)

    def _sum(self, axes: tuple[int, ...], shape: tuple[int, ...], dtype: str) -> Callable[[Array], Array]:
        """The function that sums over axes: in several passes where TensorFlow would transpose a copy first."""
        *passes, last = sum_passes(axes, shape)
        total = self._ops.Any if dtype == "bool" else self._ops.Sum

        def run(source: Array) -> Array:
            for each in passes:
                source = total(input=source, axis=self._sizes(source, each), keep_dims=True)
            return total(input=source, axis=self._sizes(source, last))

        return run

    def _wide_multiply(self, left: tuple[int, ...], right: tuple[int, ...]) -> Callable[[Array, Array], Array]:
        """The function that multiplies arrays of these shapes, where TensorFlow has no kernel for the broadcast.

        It moves the axes into three groups, those of both sides, of the left and of the right one, and then back.
        """
        groups = grouped(left, right)
        first, second = groups.counts[0], sum(groups.counts[:2])
        states_sizes = is_known((*left, *right))

        def moved(source: Array) -> Array:
            ones = (1,) * (len(groups.order) - len(source.shape))
            return self.transpose(
                self.xp.reshape(source, (*ones, *self._shape(source))) if ones else source, groups.order
            )

        def merged(source: Array, shape: tuple[int, ...]) -> Array:
            if states_sizes:
                return self.reshape(source, shape)
            sizes = self.xp.shape(source)
            runs = sizes[:first], sizes[first:second], sizes[second:]
            return self.xp.reshape(source, [self.xp.reduce_prod(run) for run in runs])

        def run(lhs: Array, rhs: Array) -> Array:
            lhs, rhs = moved(lhs), moved(rhs)
            product = self.multiply(merged(lhs, groups.left), merged(rhs, groups.right))
            shape = groups.shape if states_sizes else self.xp.maximum(self.xp.shape(lhs), self.xp.shape(rhs))
            return self.transpose(self.xp.reshape(product, shape), groups.back)

        return run

    def _shape(self, array: Array) -> Sequence[Any]:
        """The sizes of an array, as TensorFlow takes them in a shape."""
        return [self.size(array, axis) if size is None else size for axis, size in enumerate(array.shape)]

    def workspace(self, op: Op, operands: Sequence[Operand], device: str = "") -> int:
        match op:
            case Sum():
                first, *others = sum_passes(op.axes, operands[0].shape)
                kept = [size for axis, size in enumerate(operands[0].shape) if axis not in first]
                return prod(kept) * itemsize(operands[0].dtype) if others else 0
            case Diagonal():
                rank = len(operands[0].shape)
                is_last = {op.axis1, op.axis2} == {rank - 2, rank - 1}
                return 0 if is_last else prod(operands[0].shape) * itemsize(operands[0].dtype)
            case Multiply() if is_wide_broadcast(operands[0].shape, operands[1].shape):
                product = grouped(operands[0].shape, operands[1].shape).shape
                elements = [prod(shape) for shape in (product, *(each.shape for each in operands))]
                return sum(elements) * itemsize(operands[0].dtype)
            case Matmul() if kind(operands[0].dtype) == "c" and len(operands[0].shape) > 2:
                flags = op.transpose_lhs, op.transpose_rhs
                conjugated = [prod(each.shape) for each, flag in zip(operands, flags) if flag]
                return sum(conjugated) * itemsize(operands[0].dtype)
            case _:
                return 0

    def public_class(self) -> type[Adapter]:
        return _PublicTensorflow

    @cached_property
    def gradients(self) -> Gradients:
        return gradients.TensorflowGradients()

    @cached_property
    def loops(self) -> TracedLoops | None:
        return loops_in_graphs.TensorflowLoops(self)

    # -- einsumx behind TensorFlow's own name -------------------------------------------------------------

    def names(self) -> Iterable[Name]:
        return patch.names()

    # -- to and from the host ---------------------------------------------------------------------------

    def _on(self, device: str) -> Any:
        """The context in which tensors are made on a device; by default TensorFlow chooses."""
        return self.xp.device(device or None)

    def from_numpy(self, array: Any, device: str = "") -> Array:
        with self._on(device):
            return self.xp.convert_to_tensor(array)

    def to_numpy(self, array: Array) -> Any:
        return array.numpy()

    def synchronize(self, array: Array) -> None:
        if type(array) is self._eager and not self.device(array).startswith("cpu"):
            self.xp.test.experimental.sync_devices()


def _device_name(device: str) -> str:
    """The short name of a device of this process, such as ``cpu:0``; the whole name of another process's.

    >>> _device_name("/job:localhost/replica:0/task:0/device:CPU:0")
    'cpu:0'
    """
    where, _, name = device.rpartition("device:")
    return name.lower() if where in ("/job:localhost/replica:0/task:0/", "/") else device


class _PublicTensorflow(TensorflowAdapter):
    """In code, tensors never change, so that they may share memory."""

    def copy(self, array: Array) -> Array:
        return self.xp.identity(array)


ADAPTER = TensorflowAdapter()
"""The backend for TensorFlow."""
