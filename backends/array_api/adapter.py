"""Any library that follows the Python array API standard; uses only functions of the standard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from math import prod
from typing import Any

from einsumx.adapters.base import Adapter, Array, Signature
from einsumx.adapters.facets import Arithmetic, BlockAccess, Exponents, OutAccess, Semirings
from einsumx.adapters.operand_types import dtype_error, type_name, wrong_type_error
from einsumx.dtypes import kind as dtype_kind
from einsumx.errors import REFUSALS, BackendError, EinsumxError, SizeError
from einsumx.host.free_memory import is_out_of_memory
from einsumx.ir import ops
from einsumx.ir.bind import known_sizes
from einsumx.ir.rates import Rates
from einsumx.ir.sizes import is_known
from einsumx.ir.traits import BLAS, HALVES, INTEGERS, Traits

_INEXACT = BLAS | HALVES
_DTYPES = INTEGERS | _INEXACT | {"bool"}

# The standard does not define strides. Its matrix_transpose is a view in the libraries that have views, and matmul
# reads it without a copy.
TRAITS = Traits(
    arrays="packed",
    views=False,
    transpose_flags=True,
    dtypes=_DTYPES,
    matmul_dtypes=INTEGERS | _INEXACT,
    matmul_through=(("bool", "float32"),),
    widen=(("float16", "float32"), ("bfloat16", "float32")),
    rates=Rates(call=5e-6),
)


_MOST_NAMESPACES = 64
"""The most namespaces whose adapters are kept. A library may make a new one for each array."""


_LIBRARY_ERRORS = AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError
"""What libraries raise where they lack something. Others pass through, such as the TimeoutError of a signal handler."""


class ArrayApiBlocks(BlockAccess):
    """Blocks, by slices."""

    def _placed(self, device: str) -> dict[str, Any]:
        """The keyword that creates an array on a device, if the library has devices."""
        return {"device": self.adapter._devices[device]} if device in self.adapter._devices else {}

    def put(self, out: Array, box: tuple[slice, ...], block: Array) -> Array:
        out[box] = block if block.dtype == out.dtype else self.adapter.cast(block, self.adapter.dtype_name(out.dtype))
        return out

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        out = self.adapter.function("empty")(shape, dtype=self.adapter.dtype(dtype), **self._placed(device))
        try:
            _write_nothing(out)
        except REFUSALS as error:
            raise BackendError(
                f"a {type_name(type(out))} cannot be written to ({error}), so einsumx cannot write the result block by "
                "block; raise memory_limit= until the result fits into one block"
            ) from error
        return out


class ArrayApiExponents(Exponents):
    """The largest elements of arrays that may be on other devices."""

    def magnitudes(self, array: Array) -> Any:
        try:
            return super().magnitudes(array)
        except BackendError:  # an array on another device, whose elements come one by one
            xp, is_complex = self.xp, dtype_kind(self.adapter.dtype_name(array.dtype)) == "c"
            parts = [xp.real(array), xp.imag(array)] if is_complex else [array]
            is_finite = [xp.isfinite(part) for part in parts]
            if is_complex and not all(bool(xp.all(each)) for each in is_finite):
                return complex("inf")
            none = xp.zeros_like(parts[0])
            finite = [xp.where(each, xp.abs(part), none) for each, part in zip(is_finite, parts)]
            return max([float(xp.max(each)) if prod(each.shape) else 0.0 for each in finite])


class ArrayApiOut(OutAccess):
    """Arrays that are written to, if the library allows that."""

    def check(self, out: Array, operands: Sequence[Array]) -> None:
        try:
            _write_nothing(out)
        except REFUSALS as error:
            raise BackendError(
                f"out= is a {type_name(type(out))} that cannot be written to ({error}); omit out= and use the result"
            ) from error

    def write(self, out: Array, result: Array) -> None:
        # The cast is a copy, because the result may be a view of out.
        out[...] = self.adapter.cast(result, self.adapter.dtype_name(out.dtype))


class ArrayApiArithmetic(Arithmetic):
    """Arithmetic by the standard."""

    def number(self, value: Any, dtype: str, like: Array) -> Array:
        return self.xp.asarray(value, dtype=self.adapter.dtype(dtype), **self.adapter.beside(like))

    def plus(self, lhs: Array, rhs: Array) -> Array:
        return self.adapter.function("logical_or" if self.adapter._is_bool(lhs) else "add")(lhs, rhs)


class ArrayApiSemirings(Semirings):
    """The standard's functions."""

    def named(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = self.adapter.function(name)
        return function

    def places(self, start: int, stop: int, like: Array) -> Array:
        return self.xp.arange(start, stop, **self.adapter.beside(like))


class ArrayApiAdapter(Adapter):
    """One library that follows the standard.

    Args:
        namespace: the library's array namespace. Without one, :meth:`of` finds the adapter of each call's arrays, and
            there is array-api-strict, the reference implementation, where no array is.
    """

    name = "array_api"
    module = ""
    import_statement = "xp = {operand}.__array_namespace__()"
    install = "pip install array-api-strict"
    cpu = TRAITS
    constant_dtypes = False
    blocks: cached_property[BlockAccess | None] = cached_property(ArrayApiBlocks)
    out = cached_property(ArrayApiOut)
    arithmetic = cached_property(ArrayApiArithmetic)
    semirings: cached_property[Semirings | None] = cached_property(ArrayApiSemirings)
    exponents: cached_property[Exponents | None] = cached_property(ArrayApiExponents)

    def __init__(self, namespace: Any = None) -> None:
        self._namespace = namespace
        self._others: list[ArrayApiAdapter] = []  # those of arrays' namespaces, the last made first
        self._devices: dict[str, Any] = {}  # of the arrays so far, by name

    @property
    def xp(self) -> Any:
        if self._namespace is not None:
            return self._namespace
        try:
            return import_module("array_api_strict")
        except ImportError as error:
            raise BackendError(
                "the backend array_api serves many libraries, and no operand says which one; pass at least one array, "
                f"or {self.install}"
            ) from error

    # -- which arrays -----------------------------------------------------------------------------------

    def of(self, arrays: Sequence[Array]) -> Adapter:
        if self._namespace is not None or not arrays:
            return self
        first, *others = [array.__array_namespace__() for array in arrays]
        for array, other in zip(arrays[1:], others):
            if not _are_one(first, other):
                one, another = type_name(type(arrays[0])), type_name(type(array))
                raise BackendError(
                    f"the operands belong to two frameworks: {one} of {_name(first)} and {another} of {_name(other)}; "
                    "convert one of them first"
                )
        for known in self._others:
            if _are_one(first, known._namespace):
                return known
        adapter = type(self)(first)
        self._others = [adapter, *self._others[: _MOST_NAMESPACES - 1]]
        return adapter

    def is_plain(self, kind: type) -> bool:
        return False  # a class may wrap arrays of several libraries, so that each call asks for the namespace

    def plain(self, array: Array) -> Array:
        known_sizes(array.shape)
        return array

    def function(self, name: str) -> Callable[..., Any]:
        """A function of the library.

        Raises:
            BackendError: the library lacks it.
        """
        function: Callable[..., Any] | None = getattr(self.xp, name, None)
        if function is None:
            raise BackendError(
                f"{self._library} has no function {name!r} of the array API standard, which this contraction needs; "
                "convert the operands to arrays of another framework"
            )
        return function

    @property
    def _library(self) -> str:
        return _name(self.xp)

    # -- describing arrays ------------------------------------------------------------------------------

    def traits(self, device: str) -> Traits:
        return self.cpu if self._multiplies_integers else replace(self.cpu, matmul_dtypes=_INEXACT)

    @cached_property
    def _multiplies_integers(self) -> bool:
        """Whether the library can multiply matrices of integers."""
        if self._namespace is None:
            return True
        try:
            one = self._namespace.asarray([[1]], dtype=self.dtype("int32"))
            self._namespace.matmul(one, one)
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return False
        return True

    def signature(self, array: Array) -> Signature:
        try:
            shape = known_sizes(array.shape)
        except SizeError as error:
            raise BackendError(f"an array {error}") from None
        return type(array), shape, self.dtype_name(array.dtype), self.device(array)

    def device(self, array: Array) -> str:
        device = getattr(array, "device", None)
        if device is None:  # a library may have no devices
            return ""
        for name, known in self._devices.items():
            if known is device or known == device:
                return name
        name = str(device)
        if name.startswith("<"):  # an address instead of a name
            name = f"device:{len(self._devices)}"
        self._devices[name] = device
        return name

    def dtype(self, name: str) -> Any:
        if name == "bool" and not hasattr(self.xp, name):
            name = "bool_"
        return super().dtype(name)

    def dtype_name(self, dtype: Any) -> str:
        if isinstance(dtype, str):
            return dtype
        short_name = str(getattr(dtype, "name", dtype)).rpartition(".")[2]
        if short_name in _DTYPES:
            return short_name
        # In some libraries equal dtypes have different hashes, so this compares them instead of looking them up.
        for name in sorted(_DTYPES):
            with suppress(BackendError):
                if self.dtype(name) == dtype:
                    return name
        raise dtype_error(self.name, dtype)

    def promote(self, dtypes: Sequence[str]) -> str:
        self.function("result_type")
        try:
            return super().promote(dtypes)
        except TypeError as error:
            raise BackendError(
                f"the array API standard does not promote {' and '.join(dtypes)}; cast one of them, or pass dtype="
            ) from error

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        if like is None:
            return self.xp.asarray(value)
        if isinstance(value, list | tuple):
            return self.xp.asarray(value, **self.beside(like))
        # The standard's rule: a Python scalar adopts the array's dtype, which must be of the same or a wider kind.
        kinds = {bool: "b", int: "iufc", float: "fc", complex: "c"}[type(value)]
        if dtype_kind(dtype) not in kinds:
            raise BackendError(
                f"the array API standard does not combine a Python {type(value).__name__} with an array of dtype "
                f"{dtype}; convert one of them"
            )
        return self.xp.asarray(value, dtype=self.dtype(dtype), **self.beside(like))

    def beside(self, like: Array) -> dict[str, Any]:
        """The keywords that create an array which can be computed with ``like``."""
        device = getattr(like, "device", None)
        return {} if device is None else {"device": device}

    # -- primitives -------------------------------------------------------------------------------------

    def kernel(self, op: ops.Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        for name in _needed(op, dtype):
            self.function(name)  # raises before any work
        run, dtype = super().kernel(op, shapes, dtype), op.result_dtype(dtype)
        shape = op.result_shape(shapes) if all(map(is_known, shapes)) else None

        def checked(*arrays: Array) -> Array:
            try:
                result = run(*arrays)
            except (ArithmeticError, EinsumxError, Warning):
                raise
            except _LIBRARY_ERRORS as error:
                if is_out_of_memory(error):
                    raise
                message = str(error).partition("\n")[0]
                raise self._op_error(op, f"raises {type(error).__name__}: {message}") from error
            if shape not in (None, tuple(result.shape)) or self.dtype_name(result.dtype) != dtype:
                raise self._op_error(op, f"returns {result.dtype} {tuple(result.shape)}, not {dtype} {shape}")
            return result

        return checked

    def _op_error(self, op: ops.Op, failure: str) -> BackendError:
        """The error for a library that violates the standard."""
        return BackendError(
            f"{self._library} cannot run the {op.name} of this contraction: it {failure}; convert the operands to "
            "arrays of another framework"
        )

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        # In some libraries permute_dims returns a view, but the plan expects a copy.
        return self.copy(self.xp.permute_dims(array, axes))

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        kept = [axis for axis in range(array.ndim) if axis not in (axis1, axis2)]
        *outer, size = [array.shape[axis] for axis in (*kept, axis1)]
        array = self.xp.permute_dims(array, (*kept, axis1, axis2))
        # After merging both axes, the diagonal is every (size + 1)-th element.
        flat = self.reshape(array, (prod(outer), size * size))
        return self.copy(self.reshape(flat[:, :: size + 1], (*outer, size)))

    def copy(self, array: Array) -> Array:
        return self.xp.asarray(array, copy=True)

    def cast(self, array: Array, dtype: str) -> Array:
        if dtype_kind(self.dtype_name(array.dtype)) == "c" and dtype_kind(dtype) != "c":  # astype would refuse
            array = array != 0 if dtype == "bool" else self.xp.real(array)
        if hasattr(self.xp, "astype"):
            return self.xp.astype(array, self.dtype(dtype))
        return array.astype(self.dtype(dtype))

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        if self._is_bool(array):
            return self.xp.any(array, axis=axes)
        try:
            return self.xp.sum(array, axis=axes, dtype=array.dtype)
        except TypeError:  # some libraries lack the keyword
            return self.cast(self.xp.sum(array, axis=axes), self.dtype_name(array.dtype))

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        return self.xp.zeros(shape, dtype=self.dtype(dtype), **self.beside(arrays[0]))

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        return self.xp.logical_and(lhs, rhs) if self._is_bool(lhs) else self.xp.multiply(lhs, rhs)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        xp = self.xp
        return xp.matmul(
            xp.matrix_transpose(lhs) if transpose_lhs else lhs, xp.matrix_transpose(rhs) if transpose_rhs else rhs
        )

    def _is_bool(self, array: Array) -> bool:
        return self.dtype_name(array.dtype) == "bool"

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        raise BackendError("the array API standard has no einsum; call einsumx.einsum")

    def to_numpy(self, array: Array) -> Any:
        try:
            host = super().to_numpy(array)
        except TypeError:  # NumPy has no such dtype
            raise
        except REFUSALS as error:
            raise BackendError(
                f"{self._library} does not convert its arrays to NumPy by itself: {error}; convert the array first"
            ) from error
        if host.shape != tuple(array.shape) or host.dtype == object:
            raise BackendError(
                f"{self._library} does not convert its arrays to NumPy by itself; convert the array first"
            )
        return host


class NamedLibrary(ArrayApiAdapter):
    """A library that follows the standard, as a backend of its own name.

    A subclass declares ``name``, ``module`` and ``install``, and overrides that in which its library deviates from the
    standard.
    """

    @cached_property
    def xp(self) -> Any:
        return import_module(self.module)

    def of(self, arrays: Sequence[Array]) -> Adapter:
        return self

    def check_type(self, kind: type) -> None:
        if not hasattr(kind, "__array_namespace__"):
            raise wrong_type_error(kind, f"arrays of {self.name}")

    def is_plain(self, kind: type) -> bool:
        return True

    def traits(self, device: str) -> Traits:
        return self.cpu


def _write_nothing(out: Array) -> None:
    """Write no elements, which fails if the library's arrays are immutable; the standard allows that."""
    index = (slice(0), ...) if out.shape else ...
    out[index] = out[index]


def _needed(op: ops.Op, dtype: str) -> tuple[str, ...]:
    """The functions of the standard that an op on arrays of ``dtype`` calls."""
    match op:
        case ops.Cast() if dtype_kind(dtype) == "c" and dtype_kind(op.dtype) not in "bc":
            return ("real",)
        case ops.Sum() if dtype == "bool":
            return ("any",)
        case ops.Multiply() if dtype == "bool":
            return ("logical_and",)
        case ops.Matmul() if not (op.transpose_lhs or op.transpose_rhs):
            return ("matmul",)
        case _:
            return op.functions


def _are_one(namespace: Any, other: Any) -> bool:
    """Whether two namespaces are the same; a library may make a new object for each array."""
    if namespace is other:
        return True
    with suppress(*REFUSALS):
        return bool(namespace == other) or (type(namespace) is type(other) and vars(namespace) == vars(other))
    return False


def _name(namespace: Any) -> str:
    return str(getattr(namespace, "__name__", type(namespace).__name__))


ADAPTER = ArrayApiAdapter()
