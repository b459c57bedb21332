"""The arguments of a call as one value, and the checks of each keyword."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast, get_args

from einsumx.adapters.registry import get_backend
from einsumx.dtypes import Casting, check_casting, kind
from einsumx.errors import BackendError, EquationError, SublistError, shown
from einsumx.imports import LazyModule
from einsumx.planner.path import Optimize, as_optimize
from einsumx.runtime.caches import cached
from einsumx.runtime.effort import Effort, as_effort
from einsumx.scalars import as_python

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from einsumx.adapters.base import Adapter
    from einsumx.adapters.framework_options import FrameworkOptions
    from einsumx.ir.program import Operand
    from einsumx.ir.semiring import Semiring
    from einsumx.runtime import factors
else:
    factors = LazyModule("einsumx.runtime.factors")

__all__ = [
    "DEFAULT",
    "Contraction",
    "MemoryLimit",
    "Options",
    "Order",
    "Progress",
    "Request",
    "Written",
    "adapter_in",
    "array_places",
    "as_order",
    "as_strip_exponent",
    "check_semiring",
    "check_strip_exponent",
    "dtype_name",
    "joined",
    "limit_bytes",
    "name_of_dtype",
    "names_as_sublists",
    "options_of",
    "split",
    "with_framework",
    "with_semiring",
    "with_strip_exponent",
]

Order: TypeAlias = Literal["K", "C", "F", "A"]
_ORDERS: tuple[Order, ...] = get_args(Order)

Written: TypeAlias = str | tuple[tuple[tuple[Hashable, ...], ...], tuple[Hashable, ...] | None]
"""An unparsed equation: text, or the sublists of the operands and of the output (None: implicit output)."""

Progress: TypeAlias = bool | Callable[[int, int], object]
"""True for a tqdm progress bar, or a callback ``f(done, total)``."""

MemoryLimit: TypeAlias = int | float | str
"""Bytes; text such as ``"8GiB"`` or ``"500 MB"``; or, below 1, a fraction of the free memory."""


class Options(NamedTuple):
    """The keywords that a plan depends on. They are part of each cache key, hence a named tuple, which hashes fast.

    Attributes:
        dtype: the name of the dtype to compute in and return; None for the operands' promotion.
        casting: NumPy's rule for casting operands to ``dtype``, and the result to ``out``.
        optimize: a path, or how to find one.
        effort: how much to spend on the choice of a plan.
        framework: the keywords that only some frameworks have; None if none of them is set.
        accumulate: the name of the dtype to compute products and sums in; None for the contract's.
        semiring: whose functions sums and products mean; None for plus and times.
        strip_exponent: whether the result is a mantissa and an exponent.
    """

    dtype: str | None = None
    casting: Casting = "safe"
    optimize: Any = "auto"
    effort: Effort = "estimate"
    framework: FrameworkOptions | None = None
    accumulate: str | None = None
    semiring: Semiring | None = None
    strip_exponent: bool = False


DEFAULT = Options()


class Contraction(NamedTuple):
    """Everything that a plan depends on; the key of the cache of plans.

    Attributes:
        adapter: the framework's.
        written: the equation, unparsed.
        operands: shape, dtype and layout of each.
        device: where to compute.
        options: the keywords.
    """

    adapter: Adapter
    written: Written
    operands: tuple[Operand, ...]
    device: str
    options: Options

    @property
    def runner(self) -> Adapter:
        """The adapter that runs the plan: with the keywords of some frameworks, in its semiring, or with exponents."""
        framework = self.options.framework
        return self.computing if framework is None else self.adapter.configured(framework)

    @property
    def computing(self) -> Adapter:
        """The adapter for which it is planned: the framework's, in its semiring or with exponents."""
        semiring, strip_exponent = self.options.semiring, self.options.strip_exponent
        is_plain = semiring is None and not strip_exponent
        return self.adapter if is_plain else adapter_in(self.adapter, semiring, strip_exponent)


def adapter_in(adapter: Adapter, semiring: Semiring | None, strip_exponent: bool = False) -> Adapter:
    """The adapter that computes in a semiring, or with exponents.

    See :func:`einsumx.adapters.semirings.in_semiring` and :func:`einsumx.adapters.exponents.stripping`.
    """
    if strip_exponent:
        from einsumx.adapters.exponents import stripping

        return stripping(adapter)
    if semiring is None:
        return adapter
    from einsumx.adapters.semirings import in_semiring

    return in_semiring(adapter, semiring)


_USUAL = frozenset([list, tuple, type(None)])
"""The types of sublists that need no further check."""


def split(operands: Sequence[Any]) -> tuple[Written, list[Any]]:
    """Separate the equation from the operands, in text, sublist or named form; names become sublists.

    Raises:
        EquationError: the arguments have neither form.
        SublistError: the equation or a sublist has a wrong type.

    >>> split(["ij->ji", 5]), split([5, [0, 1], [1, 0]])
    (('ij->ji', [5]), ((((0, 1),), (1, 0)), [5]))
    >>> split([5, "row column -> column row"])
    (((('row', 'column'),), ('column', 'row')), [5])
    """
    if operands and isinstance(operands[0], str):
        return operands[0], list(operands[1:])
    if len(operands) > 1 and (operands[0] is None or isinstance(operands[0], bytes | bytearray)):
        actual = "None" if operands[0] is None else f"the bytes {shown(operands[0])}"
        raise SublistError(f"the equation is a text such as 'ij,jk->ik', not {actual}")
    if len(operands) < 2:
        raise EquationError(
            "einsum needs an equation and operands: einsum('ij,jk->ik', a, b), einsum(a, [0, 1], b, [1, 2], [0, 2]), "
            "or einsum(a, b, 'row k, k column -> row column')"
        )
    if isinstance(operands[-1], str) and "->" in operands[-1]:
        return names_as_sublists(operands[-1], len(operands) - 1), list(operands[:-1])
    pairs = len(operands) // 2
    sublists = operands[1 : 2 * pairs : 2]
    output = operands[-1] if len(operands) % 2 else None
    try:
        written = tuple(tuple(labels) for labels in sublists), None if output is None else tuple(output)
        hash(written)
    except Exception:  # a label of the user's own class may raise anything
        _check_sublists(sublists, output)
        raise
    if not _USUAL.issuperset(map(type, (*sublists, output))) and any(
        isinstance(labels, str | bytes | AbstractSet | Mapping) for labels in (*sublists, output)
    ):
        _check_sublists(sublists, output)
    return written, list(operands[0 : 2 * pairs : 2])


def joined(written: Written, operands: Sequence[Any]) -> list[Any]:
    """The arguments of a call, from what :func:`split` makes of them.

    >>> joined("ij->ji", [5]), joined((((0, 1),), (1, 0)), [5])
    (['ij->ji', 5], [5, [0, 1], [1, 0]])
    """
    if isinstance(written, str):
        return [written, *operands]
    sublists, output = written
    pairs = [item for operand, labels in zip(operands, sublists) for item in (operand, list(labels))]
    return pairs if output is None else [*pairs, list(output)]


def array_places(kinds: Sequence[type]) -> range:
    """Where the arrays stand among arguments of these types: all but an equation, sublists or a text of names.

    >>> array_places([str, int]), array_places([int, list, list]), array_places([int, int, str])
    (range(1, 2), range(0, 2, 2), range(0, 2))
    """
    if kinds and issubclass(kinds[0], str):
        return range(1, len(kinds))
    if kinds and issubclass(kinds[-1], str):
        return range(len(kinds) - 1)
    return range(0, len(kinds) // 2 * 2, 2)


@cached("names")
def names_as_sublists(text: str, count: int) -> tuple[tuple[tuple[Hashable, ...], ...], tuple[Hashable, ...]]:
    """The sublists of a text of names for ``count`` operands; see :func:`einsumx.ir.parse.parse_names`."""
    from einsumx.ir.parse import parse_names

    return parse_names(text, count)


def _check_sublists(sublists: Sequence[Any], output: Any) -> None:
    """Raise the error that describes what is wrong with sublists."""
    from einsumx.ir.parse import parse_sublists

    parse_sublists(sublists, output)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """The arguments of :func:`einsumx.einsum`.

    Keywords that mean the same for every framework are checked on construction, and None becomes their default.
    :meth:`options` and :meth:`limit_bytes` check those that depend on the framework.

    Attributes:
        written: the equation, unparsed.
        operands: unchanged.
        out, dtype, order, casting, optimize, backend, effort, alpha, beta, accumulate, semiring, strip_exponent: as
            for :func:`einsumx.einsum`.
        precision, preferred_element_type, out_sharding: as for :func:`einsumx.einsum`.
        memory_limit, device, devices, executor, progress, resume: as for :func:`einsumx.einsum`;
            :meth:`check_unlimited` refuses the last five without a limit.

    Raises:
        ValueError: an unknown order.
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
    effort: Effort | None = None
    alpha: Any = None
    beta: Any = None
    precision: Any = None
    preferred_element_type: Any = None
    out_sharding: Any = None
    accumulate: Any = None
    semiring: Any = None
    strip_exponent: bool = False

    def __post_init__(self) -> None:
        for name, normalized in _NORMALIZED.items():
            object.__setattr__(self, name, normalized(getattr(self, name)))

    @property
    def adapter(self) -> Adapter | None:
        """The adapter that ``backend`` names, None without a name; BackendError if there is none of that name."""
        return None if self.backend is None else get_backend(self.backend)

    @property
    def scale(self) -> factors.Factors | None:
        """The factors of the result and of ``out``; None if there are none. :func:`factors.factors_of` raises."""
        return None if self.alpha is None and self.beta is None else factors.factors_of(self.alpha, self.beta, self.out)

    def limit_bytes(self, free: Callable[[], int | None]) -> int:
        """The limit in bytes; see :func:`limit_bytes`."""
        return limit_bytes(cast(MemoryLimit, self.memory_limit), free)

    def options(self, adapter: Adapter) -> Options:
        """The keywords that a plan depends on, in the framework's terms; see :func:`options_of`."""
        effort = self.effort if self.memory_limit is None else "estimate"
        options = options_of(adapter, self.dtype, self.casting, self.optimize, effort, self.accumulate)
        if any(value is not None for value in self.framework):
            options = with_framework(adapter, options, self.framework)
        self._check_kind()
        if self.semiring is not None:
            options = with_semiring(options, self.semiring)
        if self.strip_exponent:
            options = with_strip_exponent(options)
        return options

    @property
    def framework(self) -> tuple[Any, Any, Any]:
        """The keywords that only some frameworks have, in the order of :class:`FrameworkOptions`."""
        return self.precision, self.preferred_element_type, self.out_sharding

    def _check_kind(self) -> None:
        """Raise ValueError if a keyword has no meaning in a semiring, or with exponents."""
        if self.semiring is not None:
            check_semiring(self.semiring, effort=self.effort, alpha=self.alpha, beta=self.beta)
        if self.strip_exponent:
            check_strip_exponent(out=self.out, effort=self.effort, alpha=self.alpha, beta=self.beta)

    def keywords(self) -> dict[str, Any]:
        """The keywords that differ from their defaults, as :func:`einsumx.einsum` takes them."""
        keywords = {}
        for field in fields(self)[2:]:
            value = getattr(self, field.name)
            if not (value is None or value is field.default or (isinstance(value, str) and value == field.default)):
                keywords[field.name] = value
        return keywords

    def check_limited(self) -> None:
        """Raise ValueError if a keyword works only without a memory limit; call it for requests with one."""
        if self.effort == "measure":
            raise ValueError(
                "effort='measure' chooses among plans for whole operands; under a memory_limit= leave it away"
            )
        if any(value is not None for value in self.framework):
            from einsumx.adapters.framework_options import FrameworkOptions

            FrameworkOptions(*self.framework).refuse("einsum under a memory_limit=")
        self._check_kind()

    def check_unlimited(self) -> None:
        """Raise ValueError if a keyword needs a memory limit; call it for requests without one."""
        for name in _LIMITED:
            value = getattr(self, name)
            if value is not None and value not in (False, "", ()):
                raise ValueError(f"{name}={shown(value)} needs a memory_limit=")


_LIMITED = ("device", "devices", "executor", "progress", "resume")
"""The keywords that need a memory limit, in the order in which they are checked."""


# -- dtype, casting and optimize ------------------------------------------------------------------------------------


def options_of(
    adapter: Adapter, dtype: Any, casting: Any, optimize: Any, effort: Any = None, accumulate: Any = None
) -> Options:
    """The keywords that a plan depends on, in the framework's terms; None becomes a keyword's default, or its setting.

    Raises:
        BackendError: the framework lacks a dtype.
        PathError: a malformed path.
        ValueError: an unknown casting rule or effort.
    """
    return Options(
        dtype_name(adapter, dtype),
        check_casting(casting),
        as_optimize(optimize),
        as_effort(effort),
        accumulate=dtype_name(adapter, accumulate, "accumulate"),
    )


def with_framework(adapter: Adapter, options: Options, framework: Sequence[Any]) -> Options:
    """The options with the keywords that only some frameworks have, in the order of :class:`FrameworkOptions`.

    Raises:
        BackendError: the framework has no such keyword, or the value is wrong.
    """
    from einsumx.adapters.framework_options import FrameworkOptions

    precision, element_type, out_sharding = framework
    if element_type is not None:
        if options.dtype is not None:
            raise BackendError("dtype= and preferred_element_type= both choose the result's dtype; pass one of them")
        if options.accumulate is not None:
            raise BackendError(
                "accumulate= and preferred_element_type= both choose the dtype of sums; pass one of them"
            )
        # Operands keep their dtypes, so that no rule for casts applies.
        options = options._replace(dtype=dtype_name(adapter, element_type), casting="unsafe")
    chosen = FrameworkOptions(precision, options.dtype if element_type is not None else None, out_sharding)
    try:
        hash(chosen)
    except TypeError as error:
        raise BackendError(f"precision= and out_sharding= are hashable values: {error}") from None
    adapter.configured(chosen)
    return options._replace(framework=chosen)


def with_semiring(options: Options, semiring: Any) -> Options:
    """The options in a semiring, by name or as an :class:`einsumx.Semiring`.

    Raises:
        BackendError: a dtype that does not hold its elements, or keywords of a framework's own products.
        ValueError: an unknown name.
        TypeError: neither a name nor a semiring.
    """
    from einsumx.ir.semiring import as_semiring

    chosen = as_semiring(semiring)
    if chosen is None:
        return options
    if options.framework is not None:
        options.framework.refuse(f"semiring={chosen.name!r}")
    if options.accumulate is not None:
        raise ValueError(
            f"semiring={chosen.name!r} computes in the dtype of the result: leave accumulate= away, or pass dtype= for "
            "a wider result"
        )
    if chosen.is_boolean and options.dtype is None:
        options = options._replace(dtype="bool")
    return options._replace(effort="estimate", semiring=chosen)


def check_semiring(semiring: Any, *, effort: Any = None, alpha: Any = None, beta: Any = None) -> None:
    """Raise ValueError if a keyword has no meaning in a semiring."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if value is not None:
            raise ValueError(f"{name}= is for sums of products; in semiring={shown(semiring)} leave it away")
    if effort == "measure":
        raise ValueError("effort='measure' times plans of sums of products; with semiring= leave it away")


def with_strip_exponent(options: Options) -> Options:
    """The options of a call with ``strip_exponent=True``.

    Raises:
        BackendError: keywords of a framework's own products, or a semiring.
    """
    if options.framework is not None:
        options.framework.refuse("strip_exponent=True")
    if options.semiring is not None:
        from einsumx.ir.exponents import check_stripped

        check_stripped("float64", options.semiring)
    return options._replace(effort="estimate", strip_exponent=True)


def check_strip_exponent(*, out: Any = None, effort: Any = None, alpha: Any = None, beta: Any = None) -> None:
    """Raise ValueError if a keyword has no meaning for a mantissa and an exponent."""
    for name, value in (("out", out), ("alpha", alpha), ("beta", beta)):
        if value is not None:
            raise ValueError(
                f"{name}= cannot be combined with strip_exponent=True, which returns a mantissa and an exponent; "
                "leave it away, and use the mantissa"
            )
    if effort == "measure":
        raise ValueError("effort='measure' times plans that scale nothing; with strip_exponent=True leave it away")


_BUILTIN = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def dtype_name(adapter: Adapter, dtype: Any, keyword: str = "dtype") -> str | None:
    """The name of a dtype that a user passed as a keyword: a name, a Python type, or the framework's own dtype.

    Raises:
        BackendError: the framework lacks the dtype.
    """
    if dtype is None:
        return None
    if isinstance(dtype, str):
        return adapter.dtype_name(adapter.dtype(dtype))
    try:
        name = _BUILTIN.get(dtype) or adapter.dtype_name(dtype)
    except (BackendError, TypeError) as error:
        raise BackendError(_not_a_dtype(adapter, dtype, keyword)) from error
    return adapter.dtype_name(adapter.dtype(name))


def name_of_dtype(dtype: Any) -> str:
    """The name of a dtype of any framework; that of None is ``"None"``.

    >>> name_of_dtype("float32"), name_of_dtype(int)
    ('float32', 'int')
    """
    return str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype).rpartition(".")[2]


def _not_a_dtype(adapter: Adapter, dtype: Any, keyword: str) -> str:
    """The message for a value of ``dtype=`` or ``accumulate=`` that is not one of the framework's dtypes."""
    name = name_of_dtype(dtype)
    if kind(name) != "O":
        return f"{keyword}={shown(dtype)} is another framework's; for {adapter.name}, name it: {keyword}={name!r}"
    example = f"{keyword}='float32'"
    return f"{keyword}={shown(dtype)} is no dtype that {adapter.name} computes in; name one, such as {example}"


# -- the others ----------------------------------------------------------------------------------------------------


def as_order(order: Any) -> Order:
    """The value of ``order=``: upper or lower case, as in NumPy.

    Raises:
        ValueError: an unknown order.
    """
    if order is None:
        return "K"
    for name in _ORDERS:
        if isinstance(order, str) and order.upper() == name:
            return name
    raise ValueError(f"order must be one of 'K', 'C', 'F', 'A', not {shown(order)}")


def _as_progress(progress: Any) -> Progress:
    if progress is None or progress is False:
        return False
    if isinstance(progress := as_python(progress), bool):
        return bool(progress)
    if not callable(progress):
        raise TypeError(f"progress= is True, or a function f(done, total), not {shown(progress)}")
    return cast(Progress, progress)


def _as_device(device: Any) -> str:
    if device is None:
        return ""
    if not isinstance(device, str):
        raise TypeError(f"device= is the name of a device, such as 'cuda:0', not {shown(device)}")
    return device


def _as_devices(devices: Any) -> tuple[str, ...]:
    if devices is None or (isinstance(devices, tuple) and not devices):
        return ()
    if isinstance(devices, Iterable) and not isinstance(devices, str):
        names = tuple(map(as_python, devices))
        if all(isinstance(name, str) and name for name in names):
            return names
    raise TypeError(f"devices= is a list of device names, such as ['cuda:0', 'cuda:1'], not {shown(devices)}")


def _as_resume(resume: Any) -> str | os.PathLike[str] | None:
    if resume is None or (isinstance(resume, str | os.PathLike) and os.fspath(resume)):
        return resume
    raise TypeError(f"resume= is the name of a file, not {shown(resume)}")


def _as_given_effort(effort: Any) -> Effort | None:
    return None if effort is None else as_effort(effort)


def as_strip_exponent(value: Any) -> bool:
    """The value of ``strip_exponent=``; None is its default.

    Raises:
        TypeError: it is no bool.

    >>> as_strip_exponent(None), as_strip_exponent(True)
    (False, True)
    """
    if value is None:
        return False
    if type(value) is not bool:
        raise TypeError(f"strip_exponent= is True or False, not {shown(value)}")
    return value


_NORMALIZED: dict[str, Callable[[Any], Any]] = {
    "effort": _as_given_effort,
    "order": as_order,
    "device": _as_device,
    "devices": _as_devices,
    "progress": _as_progress,
    "resume": _as_resume,
    "strip_exponent": as_strip_exponent,
}
"""For each keyword that is checked when a request is made, the function that checks it and turns None into its default.
"""


# -- memory_limit --------------------------------------------------------------------------------------------------

_UNLIMITED = sys.maxsize
"""Larger limits, infinity among them, count as this many bytes, more than any machine has."""

_BITS = 6
"""A fraction of the free memory is rounded down to this many binary digits, so that repeated calls share a plan."""

_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{binary}b": (1024 if binary else 1000) ** power
    for power, prefix in enumerate("kmgtp", 1)
    for binary in ("i", "")
}


def limit_bytes(limit: MemoryLimit, free: Callable[[], int | None]) -> int:
    """A memory limit in bytes.

    Args:
        limit: bytes, text, or a fraction of the free memory.
        free: returns the free bytes of the device, or None if unknown; called only for a fraction.

    Raises:
        ValueError: the limit is not positive, not whole, or unreadable, or a fraction of an unknown amount.
        TypeError: the limit is neither a number nor text.

    >>> limit_bytes("8GiB", lambda: None), limit_bytes("1.5 MB", lambda: None), limit_bytes(0.5, lambda: 2048)
    (8589934592, 1500000, 1024)
    """
    limit = as_python(limit)
    if isinstance(limit, bool) or not isinstance(limit, int | float | str):
        raise TypeError(f"memory_limit= is a number of bytes, a text such as '8GiB', or a fraction, not {shown(limit)}")
    if isinstance(limit, str):
        nbytes = bytes_in(limit)
        if not nbytes:
            raise ValueError(f"memory_limit={shown(limit)} is no amount of memory; write '8GiB', '500MB', or bytes")
        return nbytes
    if not limit > 0:
        raise ValueError(f"memory_limit={shown(limit)} must be positive")
    if limit >= _UNLIMITED:
        return _UNLIMITED
    if isinstance(limit, float) and limit < 1:
        available = free()
        if available is None:
            raise ValueError(f"memory_limit={limit!r} is a fraction, but how much is free is not known; give bytes")
        share = int(limit * available)
        spare = max(share.bit_length() - _BITS, 0)
        return share >> spare << spare
    if limit != int(limit):
        raise ValueError(
            f"memory_limit={limit!r} is neither a whole number of bytes nor a fraction below 1 of the free memory; "
            "write '8GiB', '500MB', or bytes"
        )
    return int(limit)


def bytes_in(text: str) -> int | None:
    """The bytes in a text such as ``"8GiB"``; None if it is no amount of memory.

    >>> bytes_in("8GiB"), bytes_in("0"), bytes_in("8 apples")
    (8589934592, 0, None)
    """
    parts = re.fullmatch(r"\s*(\d{1,30})(?:\.(\d{0,30}))?\s*([a-zA-Z]{0,3})\s*", text)
    if parts is None or parts[3].lower() not in _UNITS:
        return None
    decimals = parts[2] or ""
    nbytes: int = int(parts[1] + decimals) * _UNITS[parts[3].lower()] // 10 ** len(decimals)
    return min(nbytes, _UNLIMITED)
