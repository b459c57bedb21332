"""The suite's interface to an array library, apart from einsum: creating and reading arrays, differentiating.

The suite uses a library that it does not know through its einsumx backend, only by ``from_numpy`` and ``to_numpy``.
To test more (memory layouts, gradients, compilation), a package declares a subclass of :class:`Framework` in an entry
point of the group ``einsumx.conformance``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from einsumx.adapters.base import Adapter
from einsumx.adapters.facets import out_of
from einsumx.adapters.operand_types import type_name
from einsumx.conformance.deviations import Deviation
from einsumx.conformance.kit.arrays import ArraySpec, broadcast_axes
from einsumx.conformance.kit.cases import NotApplicable

Array = Any
Function = Callable[..., Array]
"""A function of arrays, with equation and keywords bound, that returns an array."""

DTYPES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
"""The dtypes that the suite tests if a library has them."""

FILLER = 77
"""The value of memory next to an array's elements, or before it is written. No result may depend on it."""


VIEWS = ("C", "F", "swapped", "sliced", "offset", "broadcast", "broadcast-last")
"""The layouts of libraries that have views; see :attr:`Framework.layouts`."""


class Framework:
    """An array library. The defaults describe a library without views, gradients or other devices.

    Attributes:
        name: the library's name in ``--backend``.
        module: the library's name in ``import``.
        layouts: the memory layouts of the library's arrays. ``C`` is contiguous in C order and ``F`` in Fortran order;
            ``swapped`` exchanges the first two axes in memory; ``sliced`` is every second element of a larger array
            along each axis; ``offset`` is the middle of a larger array; the axes of ``negative`` run backwards;
            ``broadcast`` and ``broadcast-last`` have stride 0 along the first or last axis; ``unaligned`` starts at an
            odd address; ``byteswapped`` has the other byte order; ``readonly`` cannot be written to; ``conjugated`` and
            ``negated`` have that operation pending, as in PyTorch. With any library, a spec may also have the layout
            ``python``, which stands for Python's lists and scalars.
        immutable: why arrays cannot be written to; empty if they can.
        shares_parts: whether a part of an array has the array's memory, so that writing to one changes the other.
        unlimited: why einsumx refuses memory limits for the library's arrays; empty if it keeps them.
        traced_limits: whether it keeps them too where the library traces a call.
        no_exponents: why ``einsum_frexp`` refuses the library's arrays; empty if it takes them.
        semirings: whether einsumx computes in semirings other than that of truth values on the library's arrays.
        positions: whether einsumx finds the positions of the largest terms of a semiring.
        mixes_with: the libraries whose arrays the library contracts with its own.
        memory_order: whether arrays have a memory order, so that ``order="C"`` and ``order="F"`` have an effect.
        views: whether einsum returns a view of its operand for a pure rearrangement, as the library's own does. False
            too where einsumx plans without strides although the library has them.
        transforms: the library's function transforms: ``jit``, ``vmap``, ``compile``, ``hybridize``; and ``dynamic`` if
            one graph can serve operands of several sizes, see :meth:`dynamic`.
        counts_traces: whether a function that :meth:`dynamic` traces may count its calls; if not, a call of what
            :meth:`dynamic` returns raises an error if it would trace it again.
        gradient_dtypes: the dtypes in which the library differentiates.
        adds_gradients: whether the library can add gradients to existing arrays.
        second_order: whether the library differentiates gradients.
        differentiates_eagerly: whether the library differentiates what it has computed, instead of what it traces or
            has not computed yet.
        autocast_dtypes: the dtypes to which a mode of the library can cast the operands of products, as
            ``torch.autocast``.
        conjugates_gradients: whether the gradient by a complex operand conjugates the other operands, as in PyTorch,
            unlike JAX.
        deviations: known deviations of einsumx on the library, for reasons of the library; as strict as einsumx's own
            lists.
        code: an expression for an array of ``{values}`` and ``{dtype}``, for :meth:`array_code`.
        imports: lines that this expression needs.
    """

    name: str
    module: str
    layouts: tuple[str, ...] = ("C",)
    immutable: str = ""
    shares_parts: bool = True
    unlimited: str = ""
    traced_limits: bool = False
    no_exponents: str = ""
    semirings: bool = False
    positions: bool = True
    mixes_with: tuple[str, ...] = ()
    memory_order: bool = False
    views: bool = False
    transforms: tuple[str, ...] = ()
    counts_traces: bool = True
    gradient_dtypes: tuple[str, ...] = ()
    adds_gradients: bool = False
    second_order: bool = False
    differentiates_eagerly: bool = True
    autocast_dtypes: tuple[str, ...] = ()
    conjugates_gradients: bool = False
    deviations: tuple[Deviation, ...] = ()
    code: str = "framework_of({name!r}).array({values}, {dtype!r})"
    imports: tuple[str, ...] = ("from einsumx.conformance.frameworks import framework_of",)

    @cached_property
    def xp(self) -> Any:
        """The module with the library's functions."""
        return import_module(self.module)

    @property
    def described_by(self) -> str:
        """The methods that make and read arrays, for messages."""
        return f"array() and values() of {type_name(type(self))}"

    @property
    def version(self) -> str:
        """The library's version."""
        return version_of(self.module.partition(".")[0])

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """Those of :data:`DTYPES` of which the library makes an array."""
        return tuple(dtype for dtype in DTYPES if self._has(dtype))

    def _has(self, dtype: str) -> bool:
        try:
            with warnings.catch_warnings():  # JAX warns that it truncates float64 to float32
                warnings.simplefilter("ignore")
                return self.dtype(self.array(np.ones(1, "float32" if dtype == "bfloat16" else dtype), dtype)) == dtype
        except Exception:  # noqa: BLE001  any error means that the library lacks the dtype
            return False

    # -- arrays -----------------------------------------------------------------------------------------

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        """Copy a NumPy array to an array of the library."""
        raise NotImplementedError

    def values(self, array: Array) -> Any:
        """Copy an array of the library to a NumPy array; bfloat16 becomes float32."""
        raise NotImplementedError

    def dtype(self, array: Array) -> str:
        """The name of an array's dtype."""
        return self.dtype_name(array.dtype)

    def dtype_name(self, dtype: Any) -> str:
        """The name of a dtype of the library."""
        name = getattr(dtype, "name", None)
        return name if name in DTYPES else str(dtype).rpartition(".")[2]

    def device(self, array: Array) -> str:
        """The name of an array's device in ``--device``, such as ``cuda:0``."""
        return "cpu"

    def is_array(self, array: Any) -> bool:
        """Whether an object is an array of the library."""
        return isinstance(array, self._array_type)

    @cached_property
    def _array_type(self) -> type[Any]:
        return type(self.array(np.zeros(2, "float32"), "float32"))

    def has_values(self, array: Array) -> bool:
        """Whether an array has values to read, and not only a shape and a dtype."""
        return True

    def strides(self, array: Array) -> tuple[int, ...]:
        """An array's strides in any unit; used only with :attr:`memory_order`."""
        return tuple(array.strides)

    def fill(self, array: Array, values: Any) -> None:
        """Overwrite all elements of an array; not used if arrays are :attr:`immutable`."""
        array[...] = self.array(values, self.dtype(array), self.device(array))

    def promote(self, first: str, second: str) -> str | None:
        """The dtype of a product of arrays of two dtypes; None if the library does not promote them.

        The default is for libraries with the functions of the array API standard.
        """
        with suppress(TypeError):
            dtypes = (getattr(self.xp, name, name) for name in (first, second))
            return self.dtype_name(self.xp.result_type(*dtypes))
        return None

    def devices(self) -> tuple[str, ...]:
        """The devices here that arrays can be on; empty if there is one alone."""
        return ()

    def needs_layout(self, layout: str) -> None:
        """Raise NotApplicable unless the library's arrays can have a memory layout."""
        if layout not in self.layouts:
            raise NotApplicable(f"{self.name} has no layout {layout!r} of arrays")

    def laid_out(self, values: Any, spec: ArraySpec, device: str = "") -> Array:
        """An array of ``values`` in a spec's dtype and memory layout.

        Raises:
            NotApplicable: the library has no such layout.
        """
        layout, dtype = spec.layout, spec.dtype
        if layout == "python":
            return values.tolist()
        self.needs_layout(layout)
        values = np.asarray(values)
        rank = values.ndim
        match layout:
            case "C":
                return self.array(values, dtype, device)
            case "F" | "swapped":
                axes = memory_axes(layout, rank)
                return self.transposed(self.array(values.transpose(axes), dtype, device), axes)
            case "sliced":
                room = np.full([2 * size + 1 for size in values.shape], FILLER, values.dtype)
                room[(slice(1, None, 2),) * rank] = values
                return self.array(room, dtype, device)[(slice(1, None, 2),) * rank]
            case "offset":
                room = np.pad(values, 1, constant_values=FILLER) if rank else values
                return self.array(room, dtype, device)[(slice(1, -1),) * rank]
            case "negative":
                return self.array(np.flip(values), dtype, device)[(slice(None, None, -1),) * rank]
            case "broadcast" | "broadcast-last":
                for axis in broadcast_axes(spec):
                    values = values.take([0], axis)
                return self.broadcast(self.array(values, dtype, device), spec.shape)
            case _:
                return self.special(values, spec, device)

    def transposed(self, array: Array, axes: tuple[int, ...]) -> Array:
        """A view of an array with its axes in another order."""
        return array.transpose(axes)

    def broadcast(self, array: Array, shape: tuple[int, ...]) -> Array:
        """A view of an array that repeats axes of size 1."""
        return self.xp.broadcast_to(array, shape)

    def special(self, values: Any, spec: ArraySpec, device: str) -> Array:
        """An array in a layout that only this library has."""
        raise NotImplementedError

    def needs_shared_parts(self) -> None:
        """Raise NotApplicable if no two arrays share elements that can be written to."""
        if not self.shares_parts:
            raise NotApplicable(f"writing to a part of an array of {self.name} does not change the array")

    # -- as code ----------------------------------------------------------------------------------------

    def array_code(self, values: Any, dtype: str) -> str:
        """An expression for an array of the library, for reproducers."""
        return self.code.format(name=self.name, values=literal(values), dtype=dtype)

    def transpose_code(self, array: str, axes: tuple[int, ...]) -> str:
        """An expression for :meth:`transposed`."""
        return f"{array}.transpose({axes})"

    def moved_code(self, name: str, device: str) -> str:
        """A line that moves the array of that name to a device."""
        return f"# {name} is on {device}"

    # -- functions --------------------------------------------------------------------------------------

    def called(self, function: Function) -> Function:
        """Wrap a function of the library in the settings that it needs to work."""
        return function

    def synchronize(self, array: Array) -> None:
        """Wait until ``array`` is computed, so that errors are raised here."""

    def gradients(self, function: Function, arrays: Sequence[Array], cotangent: Array) -> list[Array]:
        """The gradients of the function's result by each of ``arrays``, contracted with ``cotangent``."""
        raise NotImplementedError

    def added_gradients(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, before: Sequence[Array]
    ) -> list[Array]:
        """The arrays ``before``, after the library added one of the :meth:`gradients` to each.

        The default is for libraries whose arrays keep their gradients, and whose results have a method ``backward``.
        """
        arrays = list(map(self.leaf, arrays))
        for array, gradient in zip(arrays, before):
            array.grad = gradient
        function(*arrays).backward(cotangent)
        return [array.grad for array in arrays]

    def leaf(self, array: Array) -> Array:
        """The array as the start of what is differentiated."""
        return array

    def second_gradients(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, by: int, direction: Array
    ) -> list[Array]:
        """The gradients, by each of ``arrays``, of the gradient by ``arrays[by]`` contracted with ``direction``.

        The default is for libraries whose :meth:`gradients` may be of any function, of gradients too.
        """

        def first(*arrays: Array) -> Array:
            return self.gradients(function, arrays, cotangent)[by]

        return self.gradients(first, arrays, direction)

    def autocast(self, dtype: str, device: str = "") -> AbstractContextManager[Any]:
        """The mode that casts the operands of products to one of :attr:`autocast_dtypes`."""
        raise NotImplementedError

    def autocast_result(self, equation: str, arrays: Sequence[Array], dtype: str, device: str = "") -> str:
        """The dtype of the result of the library's own einsum in that mode."""
        raise NotImplementedError

    def transformed(self, transform: str, function: Function) -> Function:
        """The function after one of :attr:`transforms`."""
        raise NotImplementedError

    def dynamic(self, function: Function, shapes: Sequence[Sequence[int | str]], dtypes: Sequence[str]) -> Function:
        """The function as one graph for operands of several sizes, which is traced here or at the first call.

        Args:
            function: of arrays of these shapes and dtypes.
            shapes: a number for each size that is known, and a letter for each that is not. Axes of one letter have
                one size; those of two letters may have one.
            dtypes: of the arrays.
        """
        raise NotImplementedError

    def mapped(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        """The function mapped over one axis per array (None for no axis), which becomes the result's first axis."""
        raise NotImplementedError


class AdapterFramework(Framework):
    """A library that the suite uses only through its einsumx backend."""

    def __init__(self, adapter: Adapter) -> None:
        self.name, self.module, self._adapter = adapter.name, adapter.module, adapter
        functions = adapter.semirings
        self.views, self.semirings = adapter.cpu.views, functions is not None
        self.positions = functions is not None and functions.has_positions
        try:
            array = self.array(np.zeros(1, "float32"), "float32")
            self.fill(array, np.ones(1, "float32"))
        except Exception:  # noqa: BLE001  any error means that arrays cannot be written to
            self.immutable = f"{adapter.name} arrays cannot be written to"

    @property
    def described_by(self) -> str:
        return f"from_numpy() and to_numpy() of {type_name(type(self._adapter))}"

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        if dtype == "bfloat16":
            return self._adapter.cast(self._adapter.from_numpy(values, device), dtype)
        return self._adapter.from_numpy(np.array(values, dtype, order="C"), device)

    def values(self, array: Array) -> Any:
        if self.dtype(array) == "bfloat16":
            array = self._adapter.cast(array, "float32")
        return np.array(self._adapter.to_numpy(array))

    def dtype(self, array: Array) -> str:
        return self._adapter.operand(self._adapter.signature(array)).dtype

    def device(self, array: Array) -> str:
        return self._adapter.device(array)

    def fill(self, array: Array, values: Any) -> None:
        out_of(self._adapter).write(array, self.array(values, self.dtype(array), self.device(array)))

    def promote(self, first: str, second: str) -> str | None:
        try:
            return self._adapter.promote([first, second])
        except TypeError:
            return None

    def synchronize(self, array: Array) -> None:
        self._adapter.synchronize(array)


def memory_axes(layout: str, rank: int) -> tuple[int, ...]:
    """The order of axes in memory for the layouts ``F`` and ``swapped``, which is also its own inverse."""
    axes = tuple(range(rank))
    return axes[::-1] if layout == "F" else (*axes[1::-1], *axes[2:])


def version_of(package: str) -> str:
    """A package's ``__version__``, or its installed version; empty if it has neither."""
    with suppress(AttributeError):
        return str(import_module(package).__version__)
    with suppress(PackageNotFoundError):
        return version(package)
    return ""


def literal(values: Any) -> str:
    """An expression for an array's values: nested lists, with NumPy's names for inf and nan."""
    if not values.size:
        return f"np.zeros({values.shape})"
    return repr(values.tolist()).replace("inf", "np.inf").replace("nan", "np.nan")
