"""What the suite asks of an array library, apart from its einsum: to make arrays, to read them, to differentiate.

A library that the suite does not know is reached through its einsumx backend, by ``from_numpy`` and ``to_numpy``
alone. What it can do beside that (memory layouts, gradients, compilation) is told by a subclass of
:class:`Framework`, which a package names in an entry point of the group ``einsumx.conformance``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from einsumx.adapters.base import Adapter
from einsumx.conformance.case import NotApplicable, Operand, broadcast_axes
from einsumx.conformance.deviations.deviation import Deviation

__all__ = [
    "DTYPES",
    "FILLER",
    "AdapterFramework",
    "Array",
    "Framework",
    "Function",
    "literal",
    "version_of",
]

Array = Any
Function = Callable[..., Array]
"""An equation with its keywords, bound: takes arrays alone, and gives an array."""

DTYPES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
"""The dtypes that the suite asks for, where a library has them."""


FILLER = 77
"""What lies in memory between the elements of a slice, or was there before: no result may depend on it."""


class Framework:
    """An array library as the suite sees it. The defaults are for a library without views that does nothing special."""

    name: str
    """What the library is called: the first part of ``--backend`` and of ``--callable``."""

    module: str
    """What ``import`` calls it."""

    layouts: tuple[str, ...] = ("C",)
    """How arrays may lie in memory.

    ``C`` contiguous in C order; ``F`` in Fortran order; ``swapped`` the first two axes exchanged in memory;
    ``sliced`` every second element of a larger array along each axis; ``offset`` in the middle of a larger array;
    ``negative`` the axes run backwards; ``broadcast`` and ``broadcast-last`` the first, or the last, axis has stride 0;
    ``unaligned`` an odd number of bytes into memory; ``byteswapped`` the other byte order; ``readonly``;
    ``conjugated`` and ``negated`` the operation is pending, as PyTorch leaves it. Apart from these, ``python`` is no
    array at all, but Python's own lists and scalars, which every library is given.
    """

    immutable: str = ""
    """Why nothing can be written into arrays; empty where it can."""

    memory_order: bool = False
    """Whether ``order="C"`` and ``"F"`` mean something."""

    views: bool = False
    """Whether the library's own einsum gives views of its operand for pure rearrangements."""

    transforms: tuple[str, ...] = ()
    """Ways to trace or map a function that the library has: ``jit``, ``vmap``, ``compile``, ``hybridize``."""

    gradient_dtypes: tuple[str, ...] = ()
    """Dtypes in which the library differentiates."""

    adds_gradients: bool = False
    """Whether it can be asked to add gradients to arrays that are there."""

    second_order: bool = False
    """Whether gradients can be differentiated again."""

    differentiates_eagerly: bool = True
    """Whether it runs what it differentiates, and not only traces it."""

    deviations: tuple[Deviation, ...] = ()
    """Where einsumx on the library deviates, for reasons that are the library's; as strict as the lists of our own."""

    conjugates_gradients: bool = False
    """Whether the gradient by a complex operand has the conjugates of the others in it (PyTorch), or not (JAX)."""

    @cached_property
    def xp(self) -> Any:
        """The library's functions."""
        return import_module(self.module)

    @property
    def version(self) -> str:
        """Of the library."""
        return version_of(self.module.partition(".")[0])

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """Those of :data:`DTYPES` that the library has, found by making an array of each."""
        return tuple(dtype for dtype in DTYPES if self._has(dtype))

    def _has(self, dtype: str) -> bool:
        try:
            with warnings.catch_warnings():  # JAX makes float32 of float64, and says so
                warnings.simplefilter("ignore")
                return self.dtype(self.array(np.ones(1, "float32" if dtype == "bfloat16" else dtype), dtype)) == dtype
        except Exception:  # noqa: BLE001  whatever a library raises, it has no such dtype
            return False

    # -- arrays -----------------------------------------------------------------------------------------

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        """A NumPy array as an array of the library that shares no memory with it."""
        raise NotImplementedError

    def values(self, array: Array) -> Any:
        """An array of the library as a NumPy array of its own; of float32 for bfloat16."""
        raise NotImplementedError

    def dtype(self, array: Array) -> str:
        """The name of its dtype."""
        return str(array.dtype).rpartition(".")[2]

    def device(self, array: Array) -> str:
        """Where it is, by the name that ``--device`` takes, such as ``cuda:0``."""
        return "cpu"

    def is_array(self, array: Any) -> bool:
        """Whether it is an array of the library's."""
        raise NotImplementedError

    def has_values(self, array: Array) -> bool:
        """Whether there is something to read in it, and not shape and dtype alone."""
        return True

    def strides(self, array: Array) -> tuple[int, ...]:
        """In any unit, where there is memory order."""
        return tuple(array.strides)

    def fill(self, array: Array, values: Any) -> None:
        """Overwrite all elements; asked only of libraries that are not :attr:`immutable`."""
        raise NotImplementedError

    def promote(self, first: str, second: str) -> str | None:
        """The dtype of a product of arrays of two dtypes; None where the library has none."""
        raise NotImplementedError

    def other_devices(self, device: str) -> tuple[str, ...]:
        """Devices beside ``device`` that arrays can be put on here."""
        return ()

    def laid_out(self, values: Any, operand: Operand, device: str = "") -> Array:
        """An array of ``values`` that lies in memory as the operand asks.

        Raises:
            NotApplicable: the library has no such layout.
        """
        layout, dtype = operand.layout, operand.dtype
        if layout == "python":
            return values.tolist()
        if layout not in self.layouts:
            raise NotApplicable(f"{self.name} has no layout {layout!r} of arrays")
        values = np.asarray(values)
        rank = values.ndim
        match layout:
            case "C":
                return self.array(values, dtype, device)
            case "F" | "swapped":
                axes = tuple(reversed(range(rank)))
                axes = axes if layout == "F" else (*axes[::-1][1::-1], *range(2, rank))
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
                for axis in broadcast_axes(operand):
                    values = values.take([0], axis)
                return self.broadcast(self.array(values, dtype, device), operand.shape)
            case _:
                return self.special(values, operand, device)

    def transposed(self, array: Array, axes: tuple[int, ...]) -> Array:
        """A view with its axes in another order, where the library has one."""
        return array.transpose(axes)

    def broadcast(self, array: Array, shape: tuple[int, ...]) -> Array:
        """A view in which axes of size 1 are repeated, where the library has one."""
        return self.xp.broadcast_to(array, shape)

    def special(self, values: Any, operand: Operand, device: str) -> Array:
        """An array in a layout that this library alone has."""
        raise NotImplementedError

    # -- as code ----------------------------------------------------------------------------------------

    imports: tuple[str, ...] = ("from einsumx.conformance.frameworks import framework_of",)
    """Lines that :meth:`array_code` needs."""

    def array_code(self, values: Any, dtype: str) -> str:
        """An expression that makes an array of the library, for people who look into a failure."""
        return f"framework_of({self.name!r}).array({literal(values)}, {dtype!r})"

    def transpose_code(self, array: str, axes: tuple[int, ...]) -> str:
        """An expression for :meth:`transposed`."""
        return f"{array}.transpose({axes})"

    def moved_code(self, name: str, device: str) -> str:
        """A line that puts the array of that name on a device."""
        return f"# {name} is on {device}"

    # -- functions --------------------------------------------------------------------------------------

    def called(self, function: Function) -> Function:
        """A function of the library's own, with what must be set around it for it to work at all."""
        return function

    def synchronize(self, array: Array) -> None:
        """Wait until ``array`` is computed, so that what fails does so here."""

    def gradients(self, function: Function, arrays: Sequence[Array], cotangent: Array) -> list[Array]:
        """The gradients by each of ``arrays`` of the function's result, contracted with ``cotangent``."""
        raise NotImplementedError

    def added_gradients(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, before: Sequence[Array]
    ) -> list[Array]:
        """What becomes of the arrays ``before`` when :meth:`gradients` are added to them, each to one."""
        raise NotImplementedError

    def second_gradients(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, by: int, direction: Array
    ) -> list[Array]:
        """The gradients, by each of ``arrays``, of the gradient by ``arrays[by]`` contracted with ``direction``."""
        raise NotImplementedError

    def transformed(self, transform: str, function: Function) -> Function:
        """The function traced or compiled by one of :attr:`transforms`."""
        raise NotImplementedError

    def mapped(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        """The function mapped over an axis of each array (None: not this one), to a first axis of the result."""
        raise NotImplementedError


class AdapterFramework(Framework):
    """A library that the suite knows through its einsumx backend alone."""

    def __init__(self, adapter: Adapter) -> None:
        self.name, self.module, self._adapter = adapter.name, adapter.module, adapter
        self.views = adapter.cpu.views
        try:
            array = self.array(np.zeros(1, "float32"), "float32")
            self.fill(array, np.ones(1, "float32"))
        except Exception:  # noqa: BLE001  whatever it raises, arrays are not written to
            self.immutable = f"{adapter.name} arrays cannot be written to"

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

    def is_array(self, array: Any) -> bool:
        return isinstance(array, type(self._adapter.from_numpy(np.zeros(2, "float32"))))

    def fill(self, array: Array, values: Any) -> None:
        self._adapter.write(array, self.array(values, self.dtype(array), self.device(array)))

    def promote(self, first: str, second: str) -> str | None:
        try:
            return self._adapter.promote([first, second])
        except TypeError:
            return None

    def synchronize(self, array: Array) -> None:
        self._adapter.synchronize(array)


def version_of(package: str) -> str:
    """What a package says its version is, or as which it was installed; empty where it is neither."""
    with suppress(AttributeError):
        return str(import_module(package).__version__)
    with suppress(PackageNotFoundError):
        return version(package)
    return ""


def literal(values: Any) -> str:
    """The values as nested lists; inf and nan by NumPy's names, and what has no elements by its shape."""
    if not values.size:
        return f"np.zeros({values.shape})"
    return repr(values.tolist()).replace("inf", "np.inf").replace("nan", "np.nan")
