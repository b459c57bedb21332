"""MXNet's ``mx.np`` arrays: all C-contiguous, matmul with one batch axis, and calls that cost tens of microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from einsumx.adapters.base import Adapter, Array, Run, Signature
from einsumx.adapters.rates import Rates
from einsumx.adapters.replacement import Name
from einsumx.adapters.traits import Traits
from einsumx.adapters.typing import Recorded
from einsumx.backends.mxnet.calls import Calls
from einsumx.backends.mxnet.gradients import record
from einsumx.backends.mxnet.graph import recorded, signatures, through_int8
from einsumx.backends.mxnet.importing import installed_version, load
from einsumx.backends.mxnet.patch import names
from einsumx.dtypes import itemsize, kind
from einsumx.errors import BackendError, shown
from einsumx.ir.ops import Diagonal, Matmul, Multiply, Native, Op, Reshape, Sum, Transpose
from einsumx.ir.program import Program
from einsumx.ir.verify import replay
from einsumx.runtime.memory import free_host_bytes
from einsumx.runtime.request import Written

if TYPE_CHECKING:
    from einsumx.adapters.dialect import Spelling

__all__ = ["ADAPTER", "MxnetAdapter"]

_DTYPES = frozenset({"bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"})

_LARGE = 1 << 16
"""Elements from which a sum by matmul pays for its further calls."""

_MOST_SLICED = 5
"""The most axes of an array that MXNet reads slices of, or writes to."""

_LAYER = 1 << 20
"""Multiply-adds from which MXNet 1 computes a single product faster as a layer of a network."""

_LAYER_COPY = 256
"""Times that each element of a transposed operand must be used for a layer to pay for its copy."""

TRAITS = Traits(
    strided=False,
    views=False,
    memory_order=False,
    min_batch_axes=1,
    max_batch_axes=1,
    batch_strides=False,
    transpose_flags=True,
    max_transpose_axes=6,
    dtypes=_DTYPES,
    max_sum_axes=5,
    outer_by_matmul=True,
    matmul_dtypes=frozenset({"float32", "float64"}),
    matmul_through=(("bool", "float32"),),
    widen=(("float16", "float32"),),
    native_dtypes=_DTYPES,
    native_max_labels=10,
    native_max_operands=15,
    rates=Rates(
        call=25e-6, view=4e-6, matrix=0.15e-6, gemm=30e9, stream=10e9, copy=10e9, permute=2.5e9, run=10e-9, native=100e6
    ),
)


class MxnetAdapter(Adapter):
    """``mx.np`` arrays of MXNet 1.9 and 2.0.

    Dtypes promote as in ``mx.np.multiply``: bool gives way to every other, any float to a wider float, an
    integer to any float (int64 with float16 is float16) and to a wider integer.
    """

    name = "mxnet"
    module = "mxnet"
    install = "pip install mxnet==1.9.1 numpy==1.23.5"
    out_of_memory = ("out of memory", "Failed to allocate", "Memory allocation failed")
    cpu = TRAITS
    device_kinds = ("cpu", "gpu")

    def traits(self, device: str) -> Traits:
        return replace(self.cpu, inner_batch=True) if device in ("", "cpu") and self._first_installed else self.cpu

    @cached_property
    def _first_installed(self) -> bool:
        """Whether MXNet 1 is there, as plans of shapes ask it, which import nothing."""
        return installed_version().startswith("1.")

    @cached_property
    def mx(self) -> Any:
        """The top-level module."""
        return load()

    @cached_property
    def xp(self) -> Any:
        return self.mx.np

    @cached_property
    def npx(self) -> Any:
        """What ``mx.np`` has beyond NumPy."""
        return self.mx.npx

    @cached_property
    def _is_first(self) -> bool:
        """Whether this is MXNet 1: it transposes slowly, and its cast has a gradient that overwrites."""
        return str(self.mx.__version__).startswith("1.")

    @cached_property
    def calls(self) -> Calls:
        """Prepares calls of MXNet's operators."""
        return Calls(self.mx)

    # -- which arrays -----------------------------------------------------------------------------------

    def check_type(self, kind: type) -> None:
        if issubclass(kind, self.xp.ndarray):
            return
        if issubclass(kind, self.mx.nd.NDArray):
            advice = "einsum takes mx.np arrays; convert it with .as_np_ndarray(), which copies nothing"
            if kind is not self.mx.nd.NDArray:
                advice = "einsum takes mx.np arrays; convert it with .tostype('default').as_np_ndarray()"
        elif issubclass(kind, self.mx.sym.np._Symbol):
            return
        else:
            advice = "einsum takes mx.np arrays and mx.sym.np symbols; convert it with .as_np_ndarray()"
        raise BackendError(f"an operand is a {kind.__module__}.{kind.__qualname__}: {advice}")

    def serving(self, kind: type) -> Adapter:
        return self if issubclass(kind, self.xp.ndarray) else SYMBOLS

    def needs_gradient(self, array: Array) -> bool:
        return array.grad is not None or bool(self.mx.autograd.is_recording())

    def records(self, array: Array) -> bool:
        return bool(self.mx.autograd.is_recording()) and self._in_graph(array)

    def recorded(
        self, call: Recorded, run: Callable[[], Array], operands: Sequence[Any], numbers: Sequence[int]
    ) -> Array:
        return record(self, call, run, operands, numbers)

    def embed_diagonal(self, array: Array) -> Array:
        shape, size = array.shape, array.shape[-1]
        with self.mx.util.np_shape(True):
            if not array.size:
                return self.xp.zeros((*shape, size), dtype=array.dtype, ctx=self._context(self.device(array)))
            rows = self.reshape(array, (array.size // size, size, 1))  # of many axes, it broadcasts none
            diagonal = self.from_numpy(import_module("numpy").eye(size, dtype=bool), self.device(array))
            zero = self.xp.zeros((1, 1, 1), dtype=array.dtype, ctx=self._context(self.device(array)))
            return self.reshape(self.xp.where(diagonal, rows, zero), (*shape, size))

    # -- describing arrays ------------------------------------------------------------------------------

    def signature(self, array: Array) -> Signature:
        shape, dtype = self._describe(array)
        return type(array), shape, dtype, self.device(array)

    @cached_property
    def _describe(self) -> Callable[[Array], tuple[tuple[int, ...], Any]]:
        return self.calls.describe

    @cached_property
    def _has_gpus(self) -> bool:
        return bool(self.mx.context.num_gpus())

    def device(self, array: Array) -> str:
        if not self._has_gpus:  # an array's context takes microseconds to read
            return "cpu"
        where = array.ctx if self._is_first else array.device
        kind = where.device_type
        return "cpu" if kind.startswith("cpu") else f"{kind}:{where.device_id}"

    def dtype_name(self, dtype: Any) -> str:
        try:
            name = str(import_module("numpy").dtype(dtype).name)
        except TypeError:  # no dtype that NumPy knows
            name = str(dtype)
        return self.dtype(name)

    def dtype(self, name: str) -> str:
        if name not in _DTYPES:
            raise BackendError(
                f"mxnet: einsum computes in no dtype {shown(name)}, only in {', '.join(sorted(_DTYPES))}"
            )
        return name

    def promote(self, dtypes: Sequence[str]) -> str:
        names = {self.dtype(name) for name in dtypes} - {"bool"} or {"bool"}
        floats = {name for name in names if kind(name) == "f"}
        if names == {"int8", "uint8"}:
            raise BackendError("mxnet computes in no dtype that holds both int8 and uint8; pass dtype='int32'")
        return max(floats or names, key=itemsize)

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        np = import_module("numpy")
        found = np.asarray(value)
        ours = dtype or "float32"
        wanted = {
            "b": "bool",
            "i": "int64" if like is None or ours == "bool" else ours,
            "f": ours if kind(ours) == "f" else "float32",
        }.get(found.dtype.kind)
        if wanted is None:
            raise BackendError(f"mxnet has no arrays of {found.dtype}: {shown(value)}")
        array = found.astype(wanted)
        if kind(wanted) in "iu" and (array != found).any():
            raise BackendError(f"{shown(value)} does not fit the {wanted} of the other operands; pass an array")
        return self.from_numpy(array, "cpu" if like is None else self.device(like))

    # -- primitives -------------------------------------------------------------------------------------

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self._transposing(axes, self.dtype_name(array.dtype))(array)

    def _transposing(self, axes: tuple[int, ...], dtype: str) -> Callable[..., Array]:
        if dtype == "bool":
            return through_int8(self._transposing(axes, "int8"))
        swaps = [self.calls.swapaxes(*pair) for pair in self.swaps(axes)]
        if not swaps:
            return self.calls.transpose(axes)
        if len(swaps) == 1:
            return swaps[0]

        def swapped(array: Array) -> Array:
            for swap in swaps:
                array = swap(array)
            return array

        return swapped

    def swaps(self, axes: tuple[int, ...]) -> list[tuple[int, int]]:
        """As few swaps of two axes as a transpose takes, where they are faster than it is."""
        return _swaps(axes, self._is_first)

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        # reshape_view shares memory, but takes a size of 0 for "as before"; nothing is copied where there is nothing.
        return array.reshape(shape) if 0 in shape else self.calls.view(shape)(array)

    def kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        match op:
            case Reshape():
                return self.calls.view(op.shape)
            case Transpose():
                return self._transposing(op.axes, dtype)
            case Diagonal() if dtype != "bool":
                return self.calls.diagonal(op.axis1, op.axis2)
            case Sum():
                return self._summing(shapes[0], op.axes, dtype)
            case Multiply():
                return self.calls.multiply()
            case Matmul():
                return self._multiplying(op, shapes, dtype)
            case Native():
                return self.calls.einsum(op.equation, len(op.operands))
            case _:
                return super().kernel(op, shapes, dtype)

    def _multiplying(self, op: Matmul, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        if op.inner_batch:
            return self._multiplying_apart(op, shapes)
        if dtype == "float32" and shapes[0][0] == 1 and self._is_first:
            rows, inner = shapes[0][:0:-1] if op.transpose_lhs else shapes[0][1:]
            cols = shapes[1][1] if op.transpose_rhs else shapes[1][2]
            copies_pay = (not op.transpose_lhs or cols >= _LAYER_COPY) and (op.transpose_rhs or rows >= _LAYER_COPY)
            if rows * inner * cols >= _LAYER and copies_pay:
                return self._layer(cols, inner, op.transpose_lhs, op.transpose_rhs)
        return self.calls.batch_dot(op.transpose_lhs, op.transpose_rhs)

    def _multiplying_apart(self, op: Matmul, shapes: Sequence[tuple[int, ...]]) -> Callable[..., Array]:
        """Products of matrices whose rows lie apart, by the matmul of MXNet's linear algebra."""
        total = self.calls.gemm(op.transpose_lhs, op.transpose_rhs)
        # Its gradient overwrites where it should add, that of a view adds.
        view_lhs, view_rhs = map(self.calls.view, shapes)
        return lambda lhs, rhs: total(view_lhs(lhs), view_rhs(rhs))

    def _layer(self, cols: int, inner: int, transpose_lhs: bool, transpose_rhs: bool) -> Callable[..., Array]:
        """A single product as the layer ``x @ weights.T``, which MXNet 1 gives to oneDNN, and batch_dot to its BLAS."""
        connect, view, turn = self.calls.layer(cols), self.calls.view((cols, inner)), self.calls.transpose((0, 2, 1))

        def product(lhs: Array, rhs: Array) -> Array:
            lhs = turn(lhs) if transpose_lhs else lhs
            rhs = rhs if transpose_rhs else turn(rhs)
            return connect(lhs, view(rhs))

        return product

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        take = self.calls.diagonal(axis1, axis2)
        return through_int8(take)(array) if array.dtype == bool else take(array)

    def copy(self, array: Array) -> Array:
        with self.mx.util.np_shape(True):
            return array.reshape(array.shape)  # array.copy() has a gradient that overwrites where it should add

    def cast(self, array: Array, dtype: str) -> Array:
        if self._is_first:  # the cast's gradient overwrites where it should add, the reshape's adds
            array = self.reshape(array, array.shape)
        with self.mx.util.np_shape(True):
            return array.astype(dtype)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self._summing(array.shape, axes, self.dtype_name(array.dtype))(array)

    def _summing(self, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> Callable[..., Array]:
        kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
        if dtype == "bool":
            return lambda array: self.xp.any(array, axis=axes)
        if prod(shape) >= _LARGE and axes[-1] - axes[0] + 1 == len(axes) and dtype in ("float32", "float64"):
            return self._summing_by_matmul(shape, axes, kept, dtype)
        return self.calls.sum(axes)

    def _summing_by_matmul(
        self, shape: tuple[int, ...], axes: tuple[int, ...], kept: tuple[int, ...], dtype: str
    ) -> Callable[..., Array]:
        """The sum over the middle axis of ``[outer, count, inner]`` as products with ones, often ten times as fast."""
        outer, inner = prod(shape[: axes[0]]), prod(shape[axes[-1] + 1 :])
        count = prod(shape) // (outer * inner)
        by_rows = inner == 1  # one matrix times a vector, and not many short rows
        matrices = (1, outer, count) if by_rows else (outer, count, inner)
        stack, total, result = self.calls.view(matrices), self.calls.batch_dot(False, by_rows), self.calls.view(kept)

        def summed(array: Array) -> Array:
            ones = self.xp.ones((matrices[0], 1, count), dtype=dtype, ctx=self._context(self.device(array)))
            return result(total(ones, stack(array)))

        return summed

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        return self.calls.multiply()(lhs, rhs)

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        context = self._context(self.device(arrays[0]))

        def run() -> Array:
            return self.xp.zeros(shape, dtype=dtype, ctx=context)

        numbers = [number for number, array in enumerate(arrays) if self.records(array)]
        return record(self, _Nothing(self), run, arrays, numbers) if numbers else run()

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        return self.calls.batch_dot(transpose_lhs, transpose_rhs)(lhs, rhs)

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        return self.calls.einsum(equation, len(arrays))(*arrays)

    def names(self) -> Iterable[Name]:
        return names()

    def spelling(self) -> Spelling:
        from einsumx.backends.mxnet.source import MxnetSpelling

        return MxnetSpelling(lambda axes: _swaps(axes, self._first_installed))

    def prepare(self, run: Run, plan: Program) -> Run:
        return self._in_np_shape(run if self._is_first else self._or_recorded(run, plan), plan)

    def _or_recorded(self, run: Run, plan: Program) -> Run:
        """``run``, but where MXNet 2 traces a block: what is recorded there is for later calls of other sizes too."""

        def record(*operands: Array) -> Array:
            if len(operands) < len(plan.operands):
                raise BackendError(
                    "an expression with constants cannot be traced: MXNet records what is computed of a block's inputs "
                    "and parameters alone; call einsum, with the constant as one of these"
                )
            return recorded(plan, self)(*operands)

        return self.calls.unless_tracing(run, record)

    def _in_np_shape(self, run: Run, plan: Program) -> Run:
        shapes = replay(plan.ops, [operand.shape for operand in plan.operands]).values()
        if all(shape and 0 not in shape for shape in shapes):
            return run
        # Shapes with no axes or with sizes of 0 mean what they say only under "np shape" semantics, which is a switch
        # of the thread: off by default in MXNet 1, and off in all threads but the main one in MXNet 2.
        return self.calls.in_np_shape(run)

    # -- results ----------------------------------------------------------------------------------------

    def check_out(self, out: Array, operands: Sequence[Array]) -> None:
        autograd = self.mx.autograd
        if not autograd.is_recording():
            return
        if self._in_graph(out):
            raise BackendError(
                "autograd has recorded this out= already, or has it for a variable, and records no second value of it; "
                "leave out= away and use the result"
            )
        if any(map(self._in_graph, operands)):
            with autograd.pause(), self.mx.util.np_shape(True):
                overlaps = any(self.xp.may_share_memory(out, operand) for operand in operands)
            if overlaps:
                raise BackendError("out= overlaps an operand, of which autograd needs the values as they are")

    def _in_graph(self, array: Array) -> bool:
        """Whether autograd knows ``array``, as a variable or as a result that it recorded."""
        try:
            self.mx.autograd.get_symbol(array)
        except self.mx.base.MXNetError:
            return False
        return True

    def write(self, out: Array, result: Array) -> None:
        with self.mx.util.np_shape(True):
            self.cast(result, self.dtype_name(out.dtype)).copyto(out)

    # -- blocks -------------------------------------------------------------------------------------------

    def check_eager(self, array: Array) -> None:
        if not self._is_first and self.mx._deferred_compute.is_deferred_compute():
            raise _untraced()

    def part(self, array: Array, box: tuple[slice, ...]) -> Array:
        if array.dtype == bool:  # which MXNet neither slices nor writes slices of
            return self.from_numpy(self._memory(array)[box], self.device(array))
        sizes, ranges = _fused(array.shape, box)
        shape = tuple(stop - start for start, stop in map(_range, box, array.shape))
        with self.mx.util.np_shape(True):
            if 0 in shape:
                return self.empty(shape, self.dtype_name(array.dtype), self.device(array))
            if len(sizes) <= _MOST_SLICED:
                return self.reshape(self.reshape(array, sizes)[tuple(slice(*ends) for ends in ranges)], shape)
            found = self.empty(shape, self.dtype_name(array.dtype), self.device(array))
            for source, target, ends in self._slabs(array, found, sizes, ranges):
                begin, end = zip(*ends)
                self.mx.nd.slice(source.as_nd_ndarray(), begin, end, out=target.as_nd_ndarray())
            return found

    def _slabs(
        self, whole: Array, block: Array, sizes: tuple[int, ...], ranges: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[Array, Array, Sequence[tuple[int, int]]]]:
        """Views of ``whole`` and of a block that lies in it, of no more axes than MXNet slices, and the block's place.

        Where these are not enough, there is a view for each index of the first of the axes.
        """
        outer = max(len(sizes) - _MOST_SLICED, 0)
        counts = tuple(stop - start for start, stop in ranges)
        if not outer:
            yield self.reshape(whole, sizes), self.reshape(block, counts), ranges
            return
        wide = self.reshape(whole, (prod(sizes[:outer]), *sizes[outer:]))
        narrow = self.reshape(block, (prod(counts[:outer]), *counts[outer:]))
        for number, index in enumerate(product(*(range(*ends) for ends in ranges[:outer]))):
            at = 0
            for size, place in zip(sizes, index):
                at = at * size + place
            yield wide[at], narrow[number], ranges[outer:]

    def add(self, total: Array, part: Array) -> Array:
        if total.dtype == bool:  # whose logical_or MXNet 1 lacks
            memory = self._memory(total)
            memory |= part.asnumpy()
            return total
        with self.mx.util.np_shape(True):
            total += part
        total.wait_to_read()
        return total

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        with self.mx.util.np_shape(True):
            return self.xp.empty(shape, dtype=self.dtype(dtype), ctx=self._context(device))

    def put(self, out: Array, box: tuple[slice, ...], block: Array) -> Array:
        if out.dtype == bool:
            self._memory(out)[box] = block.asnumpy()
            return out
        with self.mx.util.np_shape(True):
            block = block if block.dtype == out.dtype else self.cast(block, self.dtype_name(out.dtype))
            if block.size:
                for target, source, ends in self._slabs(out, block, *_fused(out.shape, box)):
                    target[tuple(slice(*each) for each in ends)] = source
        out.wait_to_read()
        return out

    def _memory(self, array: Array) -> Any:
        """The memory of an array on the CPU, as a NumPy array."""
        array.wait_to_read()
        return self.calls.memory(array)

    def free_bytes(self, device: str) -> int | None:
        kind, _, number = device.partition(":")
        if kind != "gpu":
            return free_host_bytes()
        return int(self.mx.context.gpu_memory_info(int(number or 0))[0])

    # -- to and from the host -----------------------------------------------------------------------------

    def from_numpy(self, array: Any, device: str = "") -> Array:
        with self.mx.util.np_shape(True):
            return self.xp.array(array, dtype=self.dtype_name(array.dtype), ctx=self._context(device))

    def _context(self, device: str) -> Any:
        """MXNet's name of a device; None, for its default, where the name is empty."""
        where, _, number = device.partition(":")
        return self.mx.Context(where, int(number or 0)) if where else None

    def to_numpy(self, array: Array) -> Any:
        return array.asnumpy()

    def synchronize(self, array: Array) -> None:
        array.wait_to_read()


@dataclass(frozen=True, slots=True)
class _Nothing:
    """A sum over nothing, as autograd records it: its gradients are zeros."""

    adapter: MxnetAdapter

    def value(self, place: int, arrays: Sequence[Any], beside: int) -> Array:
        return self.adapter.xp.zeros_like(arrays[place])


class SymbolAdapter(MxnetAdapter):
    """The symbols that MXNet 1 shows a block which it traces: what they stand for has sizes only when it is run."""

    @cached_property
    def xp(self) -> Any:
        return self.mx.sym.np

    @cached_property
    def npx(self) -> Any:
        return self.mx.sym.npx

    def signature(self, array: Array) -> Signature:
        raise BackendError("MXNet's symbols have no sizes yet: einsum alone takes them, and without out=")

    def check_eager(self, array: Array) -> None:
        raise _untraced()

    def signatures(self, written: Written, arrays: Sequence[Array]) -> tuple[Signature, ...]:
        return signatures(written, arrays)

    def prepare(self, run: Run, plan: Program) -> Run:
        return recorded(plan, self)


def _swaps(axes: tuple[int, ...], is_first: bool) -> list[tuple[int, int]]:
    """As few swaps of two axes as a transpose takes, where they are faster than it is in that MXNet.

    Where the last axis stays, they copy whole rows, several times faster than MXNet 1's transpose, and than MXNet 2's
    beyond four axes.
    """
    if axes[-1] != len(axes) - 1 or not (is_first or len(axes) > 4):
        return []
    order, found = list(range(len(axes))), []
    for place, axis in enumerate(axes):
        other = order.index(axis)
        if other != place:
            found.append((place, other))
            order[place], order[other] = order[other], order[place]
    return found


def _range(part: slice, size: int) -> tuple[int, int]:
    """Where a part of an axis begins and ends."""
    return part.start or 0, size if part.stop is None else part.stop


def _fused(shape: Sequence[int], box: Sequence[slice]) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """The sizes of a C-contiguous array with as few axes as a box in it can be told by, and its range along each.

    >>> _fused((2, 3, 4, 5, 1), (slice(0, 2), slice(0, 3), slice(1, 2), slice(0, 5), slice(0, 1)))
    ((6, 20), [(0, 6), (5, 10)])
    """
    sizes: list[int] = []
    ranges: list[tuple[int, int]] = []
    for size, part in zip(shape, box):
        start, stop = _range(part, size)
        if sizes and stop - start == size:  # it goes on where the axis before it does
            sizes[-1] *= size
            ranges[-1] = (ranges[-1][0] * size, ranges[-1][1] * size)
        elif sizes and sizes[-1] == 1:
            sizes[-1], ranges[-1] = size, (start, stop)
        else:
            sizes.append(size)
            ranges.append((start, stop))
    return tuple(sizes), ranges


def _untraced() -> BackendError:
    return BackendError(
        "memory_limit= is kept for arrays, and not where MXNet traces a block that is hybridized; call einsum outside "
        "of it, or leave memory_limit= away"
    )


ADAPTER = MxnetAdapter()
SYMBOLS = SymbolAdapter()
