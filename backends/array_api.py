"""Any library that follows the Python array API standard, by the functions of the standard alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from math import prod
from typing import TYPE_CHECKING, Any

from einsumx.adapter import Adapter, Array, Signature
from einsumx.dtypes import kind as dtype_kind
from einsumx.errors import BackendError
from einsumx.rates import Rates
from einsumx.traits import Traits

if TYPE_CHECKING:
    from einsumx.spelling import Spelling

__all__ = ["ADAPTER", "ArrayApiAdapter"]

_NUMBERS = tuple(
    [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + ["float32", "float64", "complex64", "complex128", "float16", "bfloat16"]
)

# The standard says nothing of strides. Its matrix_transpose is a view in the libraries that have views, and matmul
# reads it as it lies.
TRAITS = Traits(
    strided=False,
    views=False,
    memory_order=False,
    transpose_flags=True,
    dtypes=frozenset({"bool", *_NUMBERS}),
    matmul_dtypes=frozenset(_NUMBERS),
    matmul_through=(("bool", "float32"),),
    widen=(("float16", "float32"), ("bfloat16", "float32")),
    rates=Rates(call=5e-6),
)


class ArrayApiAdapter(Adapter):
    """One library that follows the standard.

    Args:
        namespace: the library's array namespace; without it, that of the first array that arrives, and where none
            has, array-api-strict, the reference for the standard.
    """

    name = "array_api"
    module = ""
    install = "pip install array-api-strict"
    cpu = TRAITS

    def __init__(self, namespace: Any = None) -> None:
        self._namespace = namespace
        self._libraries: dict[str, ArrayApiAdapter] = {}
        self._devices: dict[str, Any] = {}  # that arrays lie on, by name

    @property
    def xp(self) -> Any:
        if self._namespace is not None:
            return self._namespace
        try:
            return import_module("array_api_strict")
        except ImportError as error:
            raise BackendError(
                "array_api is the backend of many libraries, and no array says which one is meant; pass arrays, "
                f"or {self.install}"
            ) from error

    # -- which arrays -----------------------------------------------------------------------------------

    def serving(self, kind: type) -> Adapter:
        library = kind.__module__.partition(".")[0]
        return self._libraries.setdefault(library, ArrayApiAdapter())

    def is_plain(self, kind: type) -> bool:
        return False  # so that every array passes through `plain`, which needs one to learn the namespace

    def plain(self, array: Array) -> Array:
        if self._namespace is None:
            self._namespace = array.__array_namespace__()
        return array

    # -- describing arrays ------------------------------------------------------------------------------

    @cached_property
    def _dtypes(self) -> dict[Any, str]:
        """The library's dtypes of numbers, with their names."""
        known = ((getattr(self.xp, name, None), name) for name in ("bool", *_NUMBERS))
        return {dtype: name for dtype, name in known if dtype is not None}

    def signature(self, array: Array) -> Signature:
        if None in array.shape:
            raise BackendError(f"einsum needs the sizes of all axes, and this array has shape {array.shape}")
        return type(array), array.shape, array.dtype, self.device(array)

    def device(self, array: Array) -> str:
        name = str(array.device)
        self._devices.setdefault(name, array.device)
        return name

    def dtype_name(self, dtype: Any) -> str:
        try:
            return self._dtypes[dtype]
        except KeyError:
            raise BackendError(f"array_api: einsum computes in no dtype {dtype}") from None

    def promote(self, dtypes: Sequence[str]) -> str:
        try:
            return super().promote(dtypes)
        except TypeError as error:
            raise BackendError(
                f"the array API standard has no promotion of {' and '.join(dtypes)}; cast them, or pass dtype="
            ) from error

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        if like is None:
            return self.xp.asarray(value)
        if isinstance(value, list | tuple):
            return self.xp.asarray(value, device=like.device)
        # The standard's rule: a Python scalar takes the array's dtype, which must be of its kind or a wider one.
        kinds = {bool: "b", int: "iufc", float: "fc", complex: "c"}[type(value)]
        if dtype_kind(dtype) not in kinds:
            raise BackendError(f"the array API standard does not mix a Python {type(value).__name__} with {dtype}")
        return self.xp.asarray(value, dtype=self.dtype(dtype), device=like.device)

    # -- primitives -------------------------------------------------------------------------------------

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        # A view in some libraries, where the plan counts on a copy.
        return self.copy(self.xp.permute_dims(array, axes))

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        kept = [axis for axis in range(array.ndim) if axis not in (axis1, axis2)]
        array = self.xp.permute_dims(array, (*kept, axis1, axis2))
        *outer, size, _ = array.shape
        # With both axes as one, the diagonal is every element that is size + 1 further.
        flat = self.xp.reshape(array, (prod(outer), size * size))
        return self.copy(self.xp.reshape(flat[:, :: size + 1], (*outer, size)))

    def copy(self, array: Array) -> Array:
        return self.xp.asarray(array, copy=True)

    def cast(self, array: Array, dtype: str) -> Array:
        if dtype_kind(self.dtype_name(array.dtype)) == "c" and dtype_kind(dtype) != "c":  # which astype refuses
            array = array != 0 if dtype == "bool" else self.xp.real(array)
        return self.xp.astype(array, self.dtype(dtype))

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        if array.dtype == self.xp.bool:
            return self.xp.any(array, axis=axes)
        return self.xp.sum(array, axis=axes, dtype=array.dtype)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        if lhs.dtype == self.xp.bool:
            return self.xp.logical_and(lhs, rhs)
        return self.xp.multiply(lhs, rhs)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        xp = self.xp
        return xp.matmul(
            xp.matrix_transpose(lhs) if transpose_lhs else lhs, xp.matrix_transpose(rhs) if transpose_rhs else rhs
        )

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        raise BackendError("the array API standard has no einsum")

    def spelling(self) -> Spelling:
        from einsumx.backends.array_api_source import ArrayApiSpelling

        return ArrayApiSpelling()

    # -- results ----------------------------------------------------------------------------------------

    def check_out(self, out: Array, operands: Sequence[Array]) -> None:
        try:
            self._write_nothing(out)
        except Exception as error:
            kind = type(out)
            raise BackendError(
                f"out= is a {kind.__module__}.{kind.__qualname__} that cannot be written to ({error}); "
                "leave out= away and use the result"
            ) from error

    def _write_nothing(self, out: Array) -> None:
        """Fails where arrays cannot be written to.

        The standard leaves it to libraries whether they can be; writing no elements shows it.
        """
        none = (slice(0), ...) if out.shape else ...
        out[none] = out[none]

    def write(self, out: Array, result: Array) -> None:
        out[...] = self.cast(result, self.dtype_name(out.dtype))  # a copy, so that it may be a view of out

    # -- blocks -----------------------------------------------------------------------------------------

    def add(self, total: Array, part: Array) -> Array:
        return self.xp.logical_or(total, part) if total.dtype == self.xp.bool else self.xp.add(total, part)

    def put(self, out: Array, box: tuple[slice, ...], block: Array) -> Array:
        out[box] = block if block.dtype == out.dtype else self.cast(block, self.dtype_name(out.dtype))
        return out

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        out = self.xp.empty(shape, dtype=self.dtype(dtype), device=self._devices.get(device))
        try:
            self._write_nothing(out)
        except Exception as error:
            kind = type(out)
            raise BackendError(
                f"a {kind.__module__}.{kind.__qualname__} cannot be written to ({error}), so that no result is put "
                "together of blocks under this memory_limit=; with a larger one it comes in one"
            ) from error
        return out


ADAPTER = ArrayApiAdapter()
