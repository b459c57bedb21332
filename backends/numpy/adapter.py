"""NumPy: transposes are views, and matmul accepts batch axes with any strides if BLAS can read each matrix."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from functools import cached_property
from math import prod
from operator import attrgetter, itemgetter, methodcaller
from typing import TYPE_CHECKING, Any

from einsumx.adapters.base import Adapter, Array, Run, Signature
from einsumx.adapters.operand_types import dtype_error, extension_error, wrong_type_error
from einsumx.dtypes import FLOATS, NAMED, itemsize, kind, wrapped
from einsumx.errors import BackendError
from einsumx.imports import LazyModule, imported
from einsumx.ir.layout import broadcast, contiguous, layout_class, memory_order
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Cast, Copy, Diagonal, Matmul, Multiply, Native, Op, Reshape, Scale, Sum, Threads, Transpose
from einsumx.ir.program import Program
from einsumx.ir.rates import Rates
from einsumx.ir.traits import BLAS, INTEGERS, Traits

if TYPE_CHECKING:
    from einsumx.adapters.facets import Arithmetic, BlockAccess, MemoryOrders, OutAccess, Semirings
    from einsumx.backends.numpy import parts
else:
    parts = LazyModule("einsumx.backends.numpy.parts")

_DTYPES = frozenset(NAMED) - {"complex32"} | {"float96", "complex192", "object"}
"""The dtypes that NumPy has or, for bfloat16, whose arrays ml_dtypes makes."""


class NumpyTraits(Traits):
    """Traits of products whose kernels run on either of two sets of threads."""

    __slots__ = ()

    def threads(self, dtype: str) -> tuple[Threads, ...]:
        return ("pool", "blas") if dtype in BLAS else ("",)


TRAITS = NumpyTraits(
    dtypes=_DTYPES,
    matmul_dtypes=FLOATS - {"float16", "bfloat16", "complex32"} | INTEGERS | {"object"},
    matmul_through=(("bool", "float32"),),
    exact_products=(("float32", 24),),  # the kernel of longer sums cuts them into blocks
    wide_products=(("int8", "int32"), ("uint8", "int32"), ("float32", "complex64"), ("float64", "complex128")),
    widen=(("float16", "float32"), ("bfloat16", "float32")),
    long_side="in order",
    native_dtypes=frozenset({"bool", "float32", "float64", "complex64", "complex128"}) | INTEGERS,
    native_max_labels=52,
    native_max_operands=8,
    native_any_labels=True,
    rates=Rates(call=1e-6, matrix=0.045e-6, gemm=100e9, stream=25e9, copy=20e9, permute=8e9, native=1e9, sweep=2.5e9),
)


_LOUD = frozenset((Multiply, Matmul, Scale, Cast))
"""The ops that may warn about infinities, overflow and nan. numpy.einsum, which computes sums too, never does."""


class NumpyAdapter(Adapter):
    """NumPy arrays on the CPU."""

    name = "numpy"
    module = "numpy"
    import_statement = "import numpy as np"
    install = "pip install numpy"
    cpu: Traits = TRAITS
    device_kinds = ("cpu",)

    @cached_property
    def blocks(self) -> BlockAccess | None:
        return parts.NumpyBlocks(self)

    @cached_property
    def out(self) -> OutAccess | None:
        return parts.NumpyOut(self)

    @cached_property
    def arithmetic(self) -> Arithmetic:
        return parts.NumpyArithmetic(self)

    @cached_property
    def orders(self) -> MemoryOrders | None:
        return parts.NumpyOrders(self)

    def check_type(self, kind: type[Any]) -> None:
        np = self.xp
        if issubclass(kind, np.generic):
            return
        # A subclass that overrides arithmetic (units, masks) would silently lose its extensions.
        overrides = issubclass(kind, np.ndarray) and (
            kind.__array_ufunc__ is not np.ndarray.__array_ufunc__
            or kind.__array_function__ is not np.ndarray.__array_function__
        )
        masked = sys.modules.get("numpy.ma")  # importing it takes milliseconds
        if overrides or (masked is not None and issubclass(kind, masked.MaskedArray)):
            raise extension_error(kind)
        if not issubclass(kind, np.ndarray):
            raise wrong_type_error(kind, "numpy.ndarray")

    def is_plain(self, kind: type) -> bool:
        return kind is self.xp.ndarray

    def plain(self, array: Array) -> Array:
        return self.xp.asarray(array)

    # A single C call.
    signature = staticmethod(attrgetter("__class__", "shape", "dtype", "strides"))  # type: ignore[assignment]

    kind_of = staticmethod(itemgetter(0, 2))  # type: ignore[assignment]

    def device_of(self, signature: Signature) -> str:
        return "cpu"

    def operand(self, signature: Signature) -> Operand:
        shape, dtype, strides = signature[1:4]
        span = size = dtype.itemsize
        layout, axis = None, len(shape)
        while axis:  # of each operand of a first call: without an iterator, which takes half a microsecond
            axis -= 1
            if strides[axis] != span and shape[axis] != 1:
                layout = _in_elements(shape, strides, size)  # None for an array without elements
                break
            span *= shape[axis]
        return Operand(shape, self._names.get(dtype) or self._name_of_other(dtype), layout, False, None)

    def dtype_name(self, dtype: Any) -> str:
        dtype = self.dtype(dtype)
        return self._names.get(dtype) or self._name_of_other(dtype)

    @cached_property
    def _names(self) -> dict[Any, str]:
        """The names of NumPy's own dtypes, which cannot be asked for them at exit: NumPy imports a module for that."""
        dtypes = map(self.xp.dtype, "?bBhHiIlLqQefdgFDGO")
        return {dtype: name for dtype in dtypes if (name := str(dtype.name)) in _DTYPES}

    def _name_of_other(self, dtype: Any) -> str:
        name = str(dtype.name)
        if name in _DTYPES:
            return name
        if dtype.isbuiltin == 2:
            wider = "int8" if "int" in name else "float32"
            raise BackendError(f"{self.name}: einsum does not support dtype {name}; cast first: x.astype({wider!r})")
        raise BackendError(f"{self.name}: einsum needs numbers, not dtype {dtype}")

    def dtype(self, name: Any) -> Any:
        try:
            if isinstance(name, str) and name == "bfloat16":
                imported("ml_dtypes")  # which makes it a dtype of NumPy
            return self.xp.dtype(name)
        except ImportError:
            raise BackendError(f"{self.name} has no dtype 'bfloat16'; pip install ml_dtypes, which adds it") from None
        except TypeError:
            raise dtype_error(self.name, name) from None

    def promote(self, dtypes: Sequence[str]) -> str:
        own = list(map(self.dtype, dtypes))
        try:
            return self.dtype_name(self.xp.result_type(*own))
        except TypeError:
            names = " and ".join(dtypes)
            raise BackendError(f"{self.name} has no common dtype for {names}; cast an operand first") from None

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        if isinstance(value, list | tuple) and hasattr(self.xp, "VisibleDeprecationWarning"):
            with warnings.catch_warnings():  # NumPy before 1.24 makes an array of objects of a ragged list, and warns
                warnings.simplefilter("error", self.xp.VisibleDeprecationWarning)
                try:
                    return self.xp.asarray(value)
                except self.xp.VisibleDeprecationWarning as error:
                    raise ValueError(str(error)) from None
        return self.xp.asarray(value)  # a number is no weaker than an array

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        return array.transpose(axes)

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array.reshape(shape)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        return self.kernels.diagonal(array.ndim, axis1, axis2)(array)

    def copy(self, array: Array) -> Array:
        return array.copy()

    def mode(self, array: Array) -> AbstractContextManager[Any]:
        """A context for the calls of other methods on ``array``."""
        quiet: AbstractContextManager[Any] = self.xp.errstate(all="ignore")
        return quiet

    def cast(self, array: Array, dtype: str) -> Array:
        with self.mode(array):
            return self.boxed(array.astype(dtype), dtype)

    def conjugate(self, array: Array, lazily: bool) -> Array:
        return self.boxed(self.xp.conjugate(array), array.dtype.name)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        name, letter = array.dtype.name, array.dtype.kind
        total = array.any(axis=axes) if letter == "b" else array.sum(axis=axes, dtype=name if letter in "iu" else None)
        return self.boxed(total, name)

    def scale(self, array: Array, count: int) -> Array:
        np, dtype = self.xp, array.dtype
        if dtype.kind == "O":  # objects may not support multiplication by a count
            return super().scale(array.reshape((1, *array.shape)), count)[0, ...]
        out = np.empty(array.shape, dtype.name)
        if dtype.kind == "c":
            np.multiply(array.real, out.real.dtype.type(count), out=out.real)
            np.multiply(array.imag, out.real.dtype.type(count), out=out.imag)
        else:
            factor = wrapped(count, dtype.name) if dtype.kind in "iu" else count
            np.multiply(array, dtype.type(factor), out=out)
        return out

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        return self.xp.zeros(shape, self.dtype(dtype))

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        return self.boxed(self.xp.multiply(lhs, rhs, order="C"), lhs.dtype.name)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        return self.boxed(self.xp.matmul(lhs, rhs), lhs.dtype.name)

    def kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        if dtype == "object":
            return self._product_of_objects(shapes) if isinstance(op, Matmul) else super().kernel(op, shapes, dtype)
        kernels = self.kernels
        kernel: Callable[..., Array]
        match op:
            case Transpose():
                kernel = methodcaller("transpose", op.axes)
            case Reshape():
                kernel = methodcaller("reshape", op.shape)
            case Matmul() if op.sums and dtype in BLAS:
                kernel = kernels.matmul_of_parts(shapes, dtype, op.sums, op.threads)
            case Matmul() if op.sums:
                kernel = self._integers.wide_matmul(shapes, dtype, op.sums)
            case Matmul() if dtype in INTEGERS:
                kernel = self._integers.matmul(shapes, dtype)
            case Matmul():
                kernel = kernels.matmul(shapes, dtype, op.threads)
            case Multiply():
                kernel = kernels.multiply(shapes, dtype)
            case Diagonal():
                kernel = kernels.diagonal(len(shapes[0]), op.axis1, op.axis2)
            case Sum():
                kernel = kernels.total(shapes[0], op.axes, dtype)
            case Copy():
                kernel = kernels.copy(shapes[0], dtype)
            case Cast():
                kernel = kernels.cast(shapes[0], self.dtype(dtype), self.dtype(op.dtype))
            case Native():
                kernel = kernels.native(op.equation, shapes, dtype)
            case _:
                kernel = super().kernel(op, shapes, dtype)
        return kernel

    @cached_property
    def kernels(self) -> Any:
        """Einsumx's kernels for NumPy. Their module imports NumPy; it is cached because exit handlers cannot import."""
        return imported("einsumx.backends.numpy.kernels")

    @cached_property
    def _integers(self) -> Any:
        return imported("einsumx.backends.numpy.integers")

    @cached_property
    def semirings(self) -> Semirings:
        functions: Semirings = imported("einsumx.backends.numpy.semirings").NumpySemirings(self)
        return functions

    def _product_of_objects(self, shapes: Sequence[tuple[int, ...]]) -> Callable[..., Array]:
        """A loop over matrices: after an error numpy.matmul would continue, and raise a SystemError in the end."""
        np = self.xp
        batch = broadcast(*(shape[:-2] for shape in shapes))

        def product(lhs: Array, rhs: Array) -> Array:
            lhs, rhs = (np.broadcast_to(side, (*batch, *side.shape[-2:])) for side in (lhs, rhs))
            out = np.empty((*batch, lhs.shape[-2], rhs.shape[-1]), object)
            for place in np.ndindex(batch):
                np.matmul(lhs[place], rhs[place], out=out[place])
            return out

        return product

    def workspace(self, op: Op, operands: Sequence[Operand], device: str = "") -> int:
        dtype = operands[0].dtype
        match op:
            case Matmul() if op.sums and dtype not in BLAS:
                return int(self._integers.wide_workspace([operand.shape for operand in operands], dtype, op.sums))
            case Matmul() if op.sums and operands[1].shape[-1] == 1:  # the parts of a product with a vector
                return operands[0].shape[-2] * itemsize(dtype)
            case Matmul() if dtype in INTEGERS:
                return int(self._integers.workspace([operand.shape for operand in operands], dtype))
            case Matmul() if min(len(operand.shape) for operand in operands) == 1:
                # ndarray.dot copies a matrix with gaps.
                return sum(0 if _has_no_gaps(operand) else operand.nbytes for operand in operands)
            case Matmul(threads="pool"):
                return int(self.kernels.matmul_workspace([operand.shape for operand in operands], dtype))
            case Sum() if dtype != "object":
                return int(self.kernels.total_workspace(operands[0].shape, op.axes, dtype))
            case Native():
                return int(self.kernels.native_workspace(op.equation, [operand.shape for operand in operands], dtype))
            case _:
                return 0

    def public_class(self) -> type[Adapter]:
        public: type[Adapter] = imported("einsumx.backends.numpy.source").PublicNumpy
        return public

    def boxed(self, result: Any, dtype: str) -> Array:
        # For an array of objects without axes, ufuncs return the object.
        if dtype != "object" or isinstance(result, self.xp.ndarray):
            return result
        array = self.xp.empty((), object)
        array[()] = result
        return array

    def element(self, array: Array) -> Any:
        return array[()]

    def prepare(self, run: Run, program: Program) -> Run:
        types, is_loud, casts = set(), False, False
        for operand in program.contraction.operands:
            types.add(operand.dtype)
        for op in program.ops:
            is_loud, casts = is_loud or type(op) in _LOUD, casts or type(op) is Cast
        if not is_loud and "object" not in types:
            return run
        if len(types) > 1 or casts:
            types.update([op.result_dtype(program.dtype) for op in program.ops])
        if "object" in types:  # objects such as Decimal may use the caller's context
            return self._with_errstate(run)
        for dtype in types:
            if kind(dtype) in "fc":
                return self._quiet(run)
        return run

    def prepare_plain(self, run: Run, is_loud: bool) -> Run:
        return self._quiet(run) if is_loud else run

    def _with_errstate(self, run: Run) -> Run:
        """``run`` without warnings."""

        def quiet(*operands: Array) -> Array:
            with self.xp.errstate(all="ignore"):
                return run(*operands)

        return quiet

    @cached_property
    def _quiet(self) -> Callable[[Run], Run]:
        """A decorator that disables warnings."""
        np = self.xp
        if int(np.__version__.partition(".")[0]) < 2:
            return self._with_errstate
        # NumPy 2 keeps its error state in a context variable; running in a copied context is twice as fast as errstate.
        silent = Context()
        silent.run(np.seterr, all="ignore")

        def in_context(run: Run) -> Run:
            def quiet(lhs: Array = None, rhs: Array = None, *others: Array) -> Array:
                if others:
                    return silent.copy().run(run, lhs, rhs, *others)
                if rhs is not None:  # most programs have two operands, and a star triples the overhead
                    return silent.copy().run(run, lhs, rhs)
                return silent.copy().run(run) if lhs is None else silent.copy().run(run, lhs)

            return quiet

        return in_context


def _in_elements(shape: tuple[int, ...], strides: Any, size: int) -> tuple[int, ...] | None:
    """The layout class of strides in bytes.

    Strides that are not multiples of the item size (fields of records) stay in bytes. No axis has unit stride then, so
    the planner knows that BLAS cannot read the array.
    """
    if all(stride % size == 0 for stride in strides):
        strides = tuple(stride // size for stride in strides)
    return layout_class(shape, strides) if prod(shape) else None


def _has_no_gaps(operand: Operand) -> bool:
    """Whether an array is contiguous in some order of its axes, or has at most one axis."""
    if operand.strides is None or len(operand.shape) < 2:
        return True
    order = memory_order(operand.strides)
    packed = contiguous([operand.shape[axis] for axis in order])
    return all(operand.strides[axis] == step for axis, step in zip(order, packed))


ADAPTER = NumpyAdapter()
