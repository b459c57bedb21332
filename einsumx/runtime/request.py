"""What ``einsum`` is asked, as one value, and what each keyword may be, which is checked here alone."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

from einsumx.adapters.base import Adapter
from einsumx.adapters.registry import get_backend
from einsumx.dtypes import Casting, check_casting, kind
from einsumx.errors import BackendError, EquationError, SublistError, shown
from einsumx.ir.parse import parse_sublists
from einsumx.ir.program import Operand
from einsumx.planner.path import Optimize, as_optimize
from einsumx.scalars import as_python

__all__ = [
    "DEFAULT",
    "Contraction",
    "MemoryLimit",
    "Options",
    "Order",
    "Progress",
    "Request",
    "Written",
    "as_order",
    "dtype_name",
    "limit_bytes",
    "options_of",
    "split",
]

Order: TypeAlias = Literal["K", "C", "F", "A"]
_ORDERS: tuple[Order, ...] = get_args(Order)

Written: TypeAlias = str | tuple[tuple[tuple[Hashable, ...], ...], tuple[Hashable, ...] | None]
"""An equation as it was written: text, or the operands' sublists and the output's (None: implicit)."""

Progress: TypeAlias = bool | Callable[[int, int], object]
"""True for a bar of tqdm's; or what is called with the steps that are done, and with how many there are."""

MemoryLimit: TypeAlias = int | float | str
"""Bytes; a text such as ``"8GiB"`` or ``"500 MB"``; or a fraction below 1 of what is free."""


class Options(NamedTuple):
    """What may be asked of a contraction besides the equation; part of every cache's key, and so quick to hash.

    Attributes:
        dtype: the name of the dtype to compute in and return; None for the operands' promotion.
        casting: NumPy's rule for casts of operands to ``dtype``, and of the result to ``out``.
        optimize: how the path is found.
    """

    dtype: str | None = None
    casting: Casting = "safe"
    optimize: Any = "auto"


DEFAULT = Options()
"""Nothing asked."""


class Contraction(NamedTuple):
    """What is asked of a framework; part of the caches' keys, as :class:`Options` are.

    Attributes:
        adapter: of the framework.
        written: the equation.
        operands: shape, dtype and layout of each.
        device: on which it is computed.
        options: what is asked besides.
    """

    adapter: Adapter
    written: Written
    operands: tuple[Operand, ...]
    device: str
    options: Options


def split(operands: Sequence[Any]) -> tuple[Written, list[Any]]:
    """Tell an equation from its operands, in text form or in sublist form.

    Raises:
        EquationError: neither form; a SublistError, where it is of a wrong type.

    >>> split(["ij->ji", 5]), split([5, [0, 1], [1, 0]])
    (('ij->ji', [5]), ((((0, 1),), (1, 0)), [5]))
    """
    if operands and isinstance(operands[0], str):
        return operands[0], list(operands[1:])
    if len(operands) > 1 and (operands[0] is None or isinstance(operands[0], bytes | bytearray)):
        found = "None" if operands[0] is None else f"the bytes {shown(operands[0])}"
        raise SublistError(f"the equation is a text such as 'ij,jk->ik', not {found}")
    if len(operands) < 2:
        raise EquationError(
            "einsum needs an equation and operands: einsum('ij,jk->ik', a, b) or einsum(a, [0, 1], b, [1, 2], [0, 2])"
        )
    pairs = len(operands) // 2
    sublists = operands[1 : 2 * pairs : 2]
    output = operands[-1] if len(operands) % 2 else None
    try:
        written = tuple(tuple(labels) for labels in sublists), None if output is None else tuple(output)
        hash(written)
    except Exception:  # also of a class of the user's
        parse_sublists(sublists, output)  # says what is wrong with them
        raise
    if any(isinstance(labels, str | AbstractSet | Mapping) for labels in (*sublists, output)):
        parse_sublists(sublists, output)
    return written, list(operands[0 : 2 * pairs : 2])


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What :func:`einsumx.einsum` is asked: the equation, the operands and the keywords.

    It checks the keywords that mean the same for every framework when it is made, and turns None into their defaults.
    What depends on the framework of the operands is checked by :meth:`options` and :meth:`limit_bytes`.

    Attributes:
        written: the equation.
        operands: as they are given.
        out, dtype, order, casting, optimize, backend: as for :func:`einsumx.einsum`.
        memory_limit, device, devices, executor, progress, resume: as for :func:`einsumx.einsum`; without a limit,
            :meth:`check_unlimited` refuses the others.

    Raises:
        ValueError: there is no such order.
        TypeError: a device, ``progress`` or ``resume`` of a wrong type.
    """

    written: Written
    operands: Sequence[Any]
    out: Any = None
    dtype: Any = None
    order: Order = "K"
    casting: Casting = "safe"
    optimize: Optimize = "auto"
    backend: str | None = None
    memory_limit: MemoryLimit | None = None
    device: str = ""
    devices: Sequence[str] = ()
    executor: Executor | None = None
    progress: Progress = False
    resume: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        order, progress = as_order(self.order), _as_progress(self.progress)
        device, devices = _as_device(self.device), _as_devices(self.devices)
        _check_resume(self.resume)
        if order is not self.order:
            object.__setattr__(self, "order", order)
        if progress is not self.progress:
            object.__setattr__(self, "progress", progress)
        if device is not self.device:
            object.__setattr__(self, "device", device)
        if devices is not self.devices:
            object.__setattr__(self, "devices", devices)

    @property
    def wanted(self) -> Adapter | None:
        """The backend that is asked for by name; BackendError where there is no such."""
        return None if self.backend is None else get_backend(self.backend)

    def limit_bytes(self, free: Callable[[], int | None]) -> int:
        """The limit in bytes; ``free`` gives those that are free on the device. :func:`limit_bytes` raises."""
        return limit_bytes(cast(MemoryLimit, self.memory_limit), free)

    def options(self, adapter: Adapter) -> Options:
        """What is asked of a contraction besides the equation, in a framework's terms; :func:`options_of` raises."""
        return options_of(adapter, self.dtype, self.casting, self.optimize)

    def keywords(self) -> dict[str, Any]:
        """The keywords that ask for something else than their defaults, as :func:`einsumx.einsum` takes them."""
        found = {}
        for field in fields(self)[2:]:
            value = getattr(self, field.name)
            if not (value is None or value is field.default or (isinstance(value, str) and value == field.default)):
                found[field.name] = value
        return found

    def check_unlimited(self) -> None:
        """Raise ValueError where a keyword asks for something under a limit, and there is no limit."""
        for name in _LIMITED:
            value = getattr(self, name)
            if value is not None and value not in (False, "", ()):
                raise ValueError(f"{name}={shown(value)} is for a contraction under memory_limit=, and there is none")


_LIMITED = ("device", "devices", "executor", "progress", "resume")
"""The keywords that are for contractions under a limit, in the order in which they are told of."""


# -- dtype, casting and optimize ------------------------------------------------------------------------------------


def options_of(adapter: Adapter, dtype: Any, casting: Any, optimize: Any) -> Options:
    """What the keywords of these names ask of a contraction on the adapter's framework; None asks for the default.

    Raises:
        BackendError: the framework has no such dtype.
        PathError: a path with steps that are none.
        ValueError: there is no such rule for casts.
    """
    return Options(dtype_name(adapter, dtype), check_casting(casting), as_optimize(optimize))


_BUILTIN = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def dtype_name(adapter: Adapter, dtype: Any) -> str | None:
    """A dtype as the user gave it (a name, a Python type, the framework's own), by name.

    Raises:
        BackendError: the framework has no such dtype.
    """
    if dtype is None:
        return None
    if isinstance(dtype, str):
        return adapter.dtype_name(adapter.dtype(dtype))
    try:
        name = _BUILTIN.get(dtype) or adapter.dtype_name(dtype)
    except (BackendError, TypeError) as error:
        raise BackendError(_not_a_dtype(adapter, dtype)) from error
    return adapter.dtype_name(adapter.dtype(name))


def _not_a_dtype(adapter: Adapter, dtype: Any) -> str:
    """What is said of something that is given for ``dtype=``, and is no dtype of the framework."""
    meant = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype).rpartition(".")[2]
    if kind(meant) != "O":
        return f"dtype={shown(dtype)} is another framework's; for {adapter.name}, name it: dtype={meant!r}"
    return f"dtype={shown(dtype)} is no dtype that {adapter.name} computes in; name one, such as dtype='float32'"


# -- the others ----------------------------------------------------------------------------------------------------


def as_order(order: Any) -> Order:
    """What is given for ``order=``, in either case as in NumPy, or None for the default.

    Raises:
        ValueError: there is no such order.
    """
    if order is None:
        return "K"
    for name in _ORDERS:
        if isinstance(order, str) and order.upper() == name:
            return name
    raise ValueError(f"order must be one of 'K', 'C', 'F', 'A', not {shown(order)}")


def _as_progress(progress: Any) -> Progress:
    """What is given for ``progress=``; None asks for nothing.

    Raises:
        TypeError: it is neither a bool nor to be called.
    """
    if progress is None or progress is False:
        return False
    if isinstance(progress := as_python(progress), bool):
        return bool(progress)
    if not callable(progress):
        raise TypeError(f"progress= is True, or a function of the steps done and of all, not {shown(progress)}")
    return cast(Progress, progress)


def _as_device(device: Any) -> str:
    """What is given for ``device=``; None asks for the default."""
    if device is None:
        return ""
    if not isinstance(device, str):
        raise TypeError(f"device= is the name of a device, such as 'cuda:0', not {shown(device)}")
    return device


def _as_devices(devices: Any) -> tuple[str, ...]:
    """What is given for ``devices=``; None asks for the default."""
    if devices is None or (isinstance(devices, tuple) and not devices):
        return ()
    if isinstance(devices, Iterable) and not isinstance(devices, str):
        names = tuple(map(as_python, devices))
        if all(isinstance(name, str) and name for name in names):
            return names
    raise TypeError(f"devices= is a list of names of devices, such as ['cuda:0', 'cuda:1'], not {shown(devices)}")


def _check_resume(resume: Any) -> None:
    """Raise TypeError unless None or the name of a file is given for ``resume=``."""
    if resume is not None and not (isinstance(resume, str | os.PathLike) and os.fspath(resume)):
        raise TypeError(f"resume= is the name of a file, not {shown(resume)}")


# -- memory_limit --------------------------------------------------------------------------------------------------

_UNLIMITED = sys.maxsize
"""Bytes from which a limit is none: no machine has so many."""

_BITS = 6
"""Binary digits to which a fraction of what is free is rounded down, so that the same call has the same plan again."""

_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{binary}b": (1024 if binary else 1000) ** power
    for power, prefix in enumerate("kmgtp", 1)
    for binary in ("i", "")
}


def limit_bytes(limit: MemoryLimit, free: Callable[[], int | None]) -> int:
    """A memory limit in bytes.

    Args:
        limit: as the user gave it; an infinite one is as large as a limit can be.
        free: gives the bytes that are free on the device, None where that is not known; asked only for a fraction.

    Raises:
        ValueError: it is no limit.
        TypeError: it is neither a number nor a text.

    >>> limit_bytes("8GiB", lambda: None), limit_bytes("1.5 MB", lambda: None), limit_bytes(0.5, lambda: 2048)
    (8589934592, 1500000, 1024)
    """
    limit = as_python(limit)
    if isinstance(limit, bool) or not isinstance(limit, int | float | str):
        raise TypeError(f"memory_limit= is a number of bytes, a text such as '8GiB', or a fraction, not {shown(limit)}")
    if isinstance(limit, str):
        return _written_bytes(limit)
    if not limit > 0:
        raise ValueError(f"memory_limit={shown(limit)} must be positive")
    if limit >= _UNLIMITED:
        return _UNLIMITED
    if isinstance(limit, float) and limit < 1:
        there = free()
        if there is None:
            raise ValueError(f"memory_limit={limit!r} is a fraction, but how much is free is not known; give bytes")
        share = int(limit * there)
        spare = max(share.bit_length() - _BITS, 0)
        return share >> spare << spare
    if limit != int(limit):
        raise ValueError(
            f"memory_limit={limit!r} is neither bytes, which are whole, nor a fraction of what is free, which is below "
            "1; write '8GiB', '500MB', or bytes"
        )
    return int(limit)


def _written_bytes(text: str) -> int:
    """A memory limit that is given as text."""
    found = re.fullmatch(r"\s*(\d{1,30}(?:\.\d{0,30})?)\s*([a-zA-Z]{0,3})\s*", text)
    unit = found and _UNITS.get(found[2].lower())
    bytes_ = int(Decimal(found[1]) * unit) if found and unit else 0
    if not bytes_:
        raise ValueError(f"memory_limit={shown(text)} is no amount of memory; write '8GiB', '500MB', or bytes")
    return min(bytes_, _UNLIMITED)
