"""tinygrad: lazy tensors, whose compiler makes one kernel of a product and its sum, whatever the axes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial, wraps
from importlib import import_module
from typing import Any, NamedTuple

from einsumx.adapters.base import Adapter, Array, Run, Signature
from einsumx.adapters.facets import Arithmetic, BlockAccess, Exponents, OutAccess, Semirings
from einsumx.adapters.operand_types import dtype_error, wrong_type_error
from einsumx.adapters.replacement import Function, Name, own
from einsumx.dtypes import kind, wrapped
from einsumx.errors import REFUSALS, BackendError, shown
from einsumx.host.free_memory import free_host_bytes
from einsumx.ir.bind import planned_sizes
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Native, Op
from einsumx.ir.program import Program
from einsumx.ir.rates import Rates
from einsumx.ir.traits import HALVES, INTEGERS, PRODUCTS, Traits

_FLOATS = frozenset({"float32", "float64"}) | HALVES
_DTYPES = _FLOATS | INTEGERS | {"bool"}

TRAITS = Traits(
    arrays="einsum",
    native_dtypes=_DTYPES,
    dtypes=_DTYPES,
    matmul_dtypes=_DTYPES,
    widen=(("float16", "float32"), ("bfloat16", "float32")),
    wide_ops=PRODUCTS | {"sum"},
    # A kernel's launch takes long; movements of axes are part of the kernel that reads them.
    rates=Rates(call=3e-4, view=5e-5, matrix=1e-8, gemm=20e9, stream=10e9, copy=10e9, permute=5e9, run=1e-9),
)


class TinygradBlocks(BlockAccess):
    """Blocks of tensors."""

    def check_eager(self, array: Array) -> None:
        if not isinstance(array.device, str):
            devices = self.adapter.device(array) or "none, as constants are"
            raise BackendError(
                f"memory_limit= is for tensors on one device, not on {devices}; move it to one with .to(), or omit "
                "memory_limit="
            )

    def part(self, array: Array, box: tuple[slice, ...]) -> Array:
        return self._block(array, box).contiguous().realize()

    def _block(self, array: Array, box: tuple[slice, ...]) -> Array:
        """A view of a block. Its starts are variables, so that all blocks of a size have one kernel."""
        ranges = []
        for axis, (part, size) in enumerate(zip(box, array.shape)):
            start, stop, _ = part.indices(size)
            if stop - start == size or 0 in array.shape:
                ranges.append((start, stop))
                continue
            variable = self.xp.Variable(f"start{axis}", 0, size - (stop - start)).bind(start)
            ranges.append((variable, variable + (stop - start)))
        return array.shrink(tuple(ranges))

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        return self.adapter._tensor.empty(shape, dtype=self.adapter.dtype(dtype), device=device or None)

    def put(self, out: Array, box: tuple[slice, ...], block: Array) -> Array:
        self._block(out, box).assign(block.cast(out.dtype).contiguous().realize())
        return out.realize()

    def find_device(self, name: str) -> str:
        try:
            return str(self.xp.Device[name].device).lower()
        except (ImportError, *REFUSALS) as error:
            raise BackendError(f"tinygrad finds no device {shown(name)}: {error}") from error

    def free_bytes(self, device: str) -> int | None:
        return free_host_bytes() if device.partition(":")[0] in ("", "cpu", "python") else None

    def move(self, array: Array, device: str) -> Array:
        return array.to(device) if device else array


class TinygradExponents(Exponents):
    """Products with factors that tinygrad does not simplify."""

    def times_factor(self, array: Array, factor: float, dtype: str, is_new: bool) -> Array:
        # As many factors as elements, because tinygrad multiplies constants with each other, and after a sum; and as
        # many elements as factors, because of sums over a broadcast axis it multiplies the factors alone.
        if _is_expanded(array.uop):
            array = array.contiguous()
        values = import_module("numpy").full(array.shape, factor, "float32" if dtype in HALVES else dtype)
        factors = self.adapter.from_numpy(values, self.adapter.device(array))
        return self.adapter.multiply(array, self.adapter.cast(factors, dtype))


class TinygradOut(OutAccess):
    """Tensors that are written to."""

    def check(self, out: Array, operands: Sequence[Array]) -> None:
        if out.device is None:
            raise BackendError("out= is a constant, which has no memory; pass out.clone()")
        if _is_expanded(out.uop):
            raise BackendError("out= is an expanded tensor, whose elements share memory; pass out.clone()")

    def write(self, out: Array, result: Array) -> None:
        out.assign(result.cast(out.dtype))


class TinygradArithmetic(Arithmetic):
    """Arithmetic that tinygrad does not simplify."""

    def number(self, value: Any, dtype: str, like: Array) -> Array:
        if value == 0:  # tinygrad simplifies products with the constant 0, also those of inf
            return super().number(value, dtype, like)
        return self.adapter._tensor(value.item() if hasattr(value, "item") else value, dtype=self.adapter.dtype(dtype))

    def plus(self, lhs: Array, rhs: Array) -> Array:
        return lhs | rhs if lhs.dtype == self.xp.dtypes.bool else lhs + rhs


class TinygradSemirings(Semirings):
    """Methods of tensors."""

    fuses_terms = True

    def named(self, name: str) -> Callable[..., Any]:
        match name:
            case "add" | "multiply":
                return operator.add if name == "add" else operator.mul
            case "max" | "min":
                return partial(_extreme, name)
            case "maximum" | "minimum":
                return partial(_larger, name)
            case "where":
                return lambda condition, lhs, rhs: condition.where(lhs, rhs)
            case "squeeze":
                return _squeezed
            case "concat":
                return lambda arrays, axis: arrays[0].cat(*arrays[1:], dim=axis)
            case _:
                function: Callable[..., Any] = getattr(self.xp.Tensor, name)
                return function

    def detached(self, array: Array) -> Array:
        return array.detach()

    def best(self, array: Array, is_least: bool) -> Array:
        return array.argmin(-1) if is_least else array.argmax(-1)

    def places(self, start: int, stop: int, like: Array) -> Array:
        return type(like).arange(start, stop).to(like.device)

    def rows(self, matrix: Array, places: Array) -> Array:
        return matrix[places]


class TinygradAdapter(Adapter):
    """tinygrad's tensors on any device."""

    name = "tinygrad"
    module = "tinygrad"
    import_statement = "import tinygrad"
    install = "pip install tinygrad"
    cpu = TRAITS
    blocks = cached_property(TinygradBlocks)
    out = cached_property(TinygradOut)
    arithmetic = cached_property(TinygradArithmetic)
    semirings = cached_property(TinygradSemirings)
    exponents = cached_property(TinygradExponents)

    @cached_property
    def _tensor(self) -> Any:
        """The class of tensors."""
        return self.xp.Tensor

    @cached_property
    def _names(self) -> dict[Any, str]:
        """The name of each dtype that einsum computes in."""
        return {getattr(self.xp.dtypes, name): name for name in sorted(_DTYPES)}

    # -- which tensors ----------------------------------------------------------------------------------

    def check_type(self, kind: type) -> None:
        if not issubclass(kind, self._tensor):
            raise wrong_type_error(kind, "tinygrad.Tensor")

    # -- describing tensors -----------------------------------------------------------------------------

    def signature(self, array: Array) -> Signature:
        uop = array.uop
        shape = uop.shape
        if not all(type(size) is int for size in shape):  # variables
            shape = planned_sizes([size if type(size) is int else None for size in shape])
        return type(array), shape, uop.dtype, uop.device

    def device(self, array: Array) -> str:
        return _device_name(array.device)

    def device_of(self, signature: Signature) -> str:
        return _device_name(signature[3])

    def operand(self, signature: Signature) -> Operand:
        _, shape, dtype, _ = signature
        return Operand(shape, self.dtype_name(dtype), weak=dtype in self.xp.dtypes.weaks)

    def dtype_name(self, dtype: Any) -> str:
        try:
            return self._names[self._strong(dtype)]
        except (KeyError, TypeError):
            raise dtype_error(self.name, dtype) from None

    def _strong(self, dtype: Any) -> Any:
        """The dtype in which tinygrad stores one of its weak dtypes, those of Python's numbers; others as they are."""
        dtypes = self.xp.dtypes
        return {dtypes.weakint: dtypes.default_int, dtypes.weakfloat: dtypes.default_float}.get(dtype, dtype)

    def dtype(self, name: str) -> Any:
        if name not in _DTYPES:
            raise dtype_error(self.name, name)
        return getattr(self.xp.dtypes, name)

    def promote(self, dtypes: Sequence[str]) -> str:
        return self.dtype_name(self._least_upper(*map(self.dtype, dtypes)))

    def promote_weak(self, dtypes: Sequence[str], weak: Sequence[str]) -> str:
        every = self.xp.dtypes
        scalars = [{"b": every.bool, "f": every.weakfloat}.get(kind(name), every.weakint) for name in weak]
        return self.dtype_name(self._least_upper(*map(self.dtype, dtypes), *scalars))

    @cached_property
    def _least_upper(self) -> Callable[..., Any]:
        """The promotion of tinygrad's dtypes."""
        function: Callable[..., Any] = import_module("tinygrad.dtype").least_upper_dtype
        return function

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        device = None if like is None else like.device
        try:
            if isinstance(value, list | tuple):
                return self._tensor(value, device=device)
            own = self.xp.dtypes.from_py(value)
            target = self._strong(self._least_upper(self.dtype(dtype), own) if dtype else own)
            if value in (0, 1):  # products with these constants would be simplified: 0 * inf to 0, 1 * array to array
                return self._tensor([value], device=device, dtype=target).reshape(())
            return self._tensor(value, device=device, dtype=target)
        except RuntimeError as error:
            raise BackendError(f"tinygrad cannot make a tensor of {shown(value)}: {error}") from error

    # -- primitives -------------------------------------------------------------------------------------

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        return array.permute(axes)

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        reshaped = array.reshape(shape)
        return self._tensor(array.uop) if reshaped is array else reshaped

    def expand(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array.expand(shape)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        return array.diagonal(0, axis1, axis2)

    def copy(self, array: Array) -> Array:
        return array.clone()

    def cast(self, array: Array, dtype: str) -> Array:
        return array.cast(self.dtype(dtype))

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        dtype = array.dtype
        if all(array.shape[axis] == 1 for axis in axes):  # tinygrad makes a view of it
            return array.clone().reshape([size for axis, size in enumerate(array.shape) if axis not in axes])
        if dtype == self.xp.dtypes.bool:
            return array.any(axes)
        # By default a sum of half precision returns the same dtype; with dtype= it would also accumulate in it.
        return array.sum(axes, dtype=None if self._names[dtype] in HALVES else dtype)

    def scale(self, array: Array, count: int) -> Array:
        name = self._names[array.dtype]
        return array * (wrapped(count, name) if kind(name) in "iu" else float(count))

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        return self._tensor.zeros(shape, dtype=self.dtype(dtype), device=arrays[0].device)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        return lhs & rhs if lhs.dtype == self.xp.dtypes.bool else lhs * rhs

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        raise NotImplementedError("plans have products of two terms instead")

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        dtype = self.dtype_name(arrays[0].dtype)
        return own(self._tensor.einsum)(equation, *arrays, dtype=None if dtype in HALVES else dtype)

    def kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        match op:
            case Native() if len(op.terms) == 1:
                return partial(self._single, term=op.terms[0], output=op.output)
            case Native():
                return self._pair(op, dtype)
            case _:
                return super().kernel(op, shapes, dtype)

    def _single(self, array: Array, term: str, output: str) -> Array:
        """The diagonals of an array, and the sum over their axes that the output does not have."""
        for label in dict.fromkeys(term):
            while term.count(label) > 1:
                first, second = [axis for axis, other in enumerate(term) if other == label][:2]
                array = self.diagonal(array, first, second)
                term = term[:first] + term[first + 1 : second] + term[second + 1 :] + label
        array = self.sum(array, tuple([axis for axis, label in enumerate(term) if label not in output]))
        kept = [label for label in term if label in output]
        return self.transpose(array, tuple([kept.index(label) for label in output]))

    def _pair(self, op: Native, dtype: str) -> Callable[[Array, Array], Array]:
        """The function that multiplies two arrays and sums: one kernel, which loops over whole axes."""
        (lhs, rhs), output = op.terms, op.output
        contracted = "".join(label for label in lhs if label not in output)
        left, right = (_alignment(term, output + contracted) for term in (lhs, rhs))
        axes = tuple(range(len(output), len(output + contracted)))
        wide, target = self.dtype("float32" if dtype in HALVES else dtype), self.dtype(dtype)
        is_bool = dtype == "bool"

        def product(lhs: Array, rhs: Array) -> Array:
            lhs, rhs = left.applied(lhs.cast(wide)), right.applied(rhs.cast(wide))
            if is_bool:
                return (lhs & rhs).any(axes)
            return (lhs * rhs).sum(axes, dtype=wide).cast(target)

        return product

    def prepare(self, run: Run, program: Program) -> Run:
        if not any(operand.weak for operand in program.operands):
            return run

        def run_on_strong(*operands: Array) -> Array:
            return run(*[operand.cast(self._strong(operand.dtype)) for operand in operands])

        return run_on_strong

    def public_class(self) -> type[Adapter]:
        return _PublicTinygrad

    # -- tinygrad's own einsum --------------------------------------------------------------------------

    def names(self) -> Iterable[Name]:
        yield Name(self._tensor, "einsum", around=self._around)

    def _around(self, native: Function, call: Function) -> Function:
        sum_dtype, argfix = import_module("tinygrad.dtype").sum_acc_dtype, import_module("tinygrad.helpers").argfix

        @wraps(native)
        def function(formula: str, *operands: Any, **options: Any) -> Any:
            """Take a list of operands too, and widen sums of integers and of bools, as tinygrad does."""
            arrays = argfix(*operands)
            if options.get("dtype") is None and all(isinstance(array, self._tensor) for array in arrays):
                promoted = self._least_upper(*[array.dtype for array in arrays])
                if not self.xp.dtypes.is_float(promoted):
                    options["dtype"] = self.dtype_name(sum_dtype(promoted))
            return call(formula, *arrays, **options)

        return function

    # -- to and from the host ---------------------------------------------------------------------------

    def from_numpy(self, array: Any, device: str = "") -> Array:
        numpy = import_module("numpy")
        array = numpy.array(array, order="C")  # tinygrad reads the memory of a NumPy array later
        if array.dtype.name not in _DTYPES:
            raise dtype_error(self.name, array.dtype.name)
        if not array.size:
            return self._tensor.empty(array.shape, dtype=self.dtype(array.dtype.name), device=device or None)
        return self._tensor(array.reshape(array.shape or 1), device=device or None).reshape(array.shape)

    def to_numpy(self, array: Array) -> Any:
        return array.numpy()

    def synchronize(self, array: Array) -> None:
        array.realize()
        devices = array.device
        for device in (devices,) if isinstance(devices, str) else devices or ():
            self.xp.Device[device].synchronize()


def _extreme(name: str, array: Array, axis: tuple[int, ...], keepdims: bool = False) -> Array:
    """The largest or smallest elements along axes; nan if there is one, which tinygrad's own may leave out."""
    return array.isnan().any(axis, keepdim=keepdims).where(float("nan"), getattr(array, name)(axis, keepdim=keepdims))


def _squeezed(array: Array, axis: tuple[int, ...]) -> Array:
    """An array without some axes of size 1."""
    return array.reshape([size for place, size in enumerate(array.shape) if place not in axis])


def _larger(name: str, lhs: Array, rhs: Array) -> Array:
    """The larger or smaller one of two elements; nan if one of them is."""
    return (lhs.isnan() | rhs.isnan()).where(lhs + rhs, getattr(lhs, name)(rhs))


class _Alignment(NamedTuple):
    """How an operand broadcasts against others.

    Attributes:
        axes: its axes, in order.
        places: for each axis of the product, the axis of the operand; None for a new one of size 1.
    """

    axes: tuple[int, ...]
    places: tuple[int | None, ...]

    def applied(self, array: Array) -> Array:
        sizes = array.shape
        shape = [1 if axis is None else sizes[axis] for axis in self.places]
        return array.permute(self.axes).reshape(shape)


def _alignment(term: str, order: str) -> _Alignment:
    """The alignment of an array with the labels ``term`` to axes of the labels ``order``.

    >>> _alignment("jk", "ikj")
    _Alignment(axes=(1, 0), places=(None, 1, 0))
    """
    places = tuple([term.index(label) if label in term else None for label in order])
    return _Alignment(tuple([axis for axis in places if axis is not None]), places)


def _is_expanded(uop: Any) -> bool:
    """Whether a tensor is a view that repeats elements of its memory."""
    while uop.op.name in ("EXPAND", "PERMUTE", "RESHAPE", "SHRINK", "FLIP"):
        if uop.op.name == "EXPAND":
            return True
        uop = uop.src[0]
    return False


def _device_name(device: Any) -> str:
    """The name of a tensor's device, or of all of them if it is sharded; empty for a constant, which has none."""
    if device is None:
        return ""
    return (device if isinstance(device, str) else ",".join(device)).lower()


class _PublicTinygrad(TinygradAdapter):
    """tinygrad's own einsum for products."""

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        dtype = arrays[0].dtype.name
        wide = "int32" if dtype == "bool" else "float32" if dtype in HALVES else dtype
        if wide != dtype:
            arrays = [self.cast(array, wide) for array in arrays]
        result = own(self._tensor.einsum)(equation, *arrays, dtype=self.dtype(wide))
        return result if wide == dtype else self.cast(result, dtype)


ADAPTER = TinygradAdapter()
