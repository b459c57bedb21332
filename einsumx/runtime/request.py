"""The arguments of a call as one value, and the checks of its keywords."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from inspect import Parameter, signature
from marshal import dumps, loads
from operator import index
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

from einsumx.adapters import hooks
from einsumx.adapters.registry import get_backend
from einsumx.caches import Uncacheable
from einsumx.dtypes import Casting, check_casting
from einsumx.errors import BackendError, EquationError, SublistError, shown
from einsumx.imports import LazyModule
from einsumx.ir.algebra import PLUS_TIMES, Algebra
from einsumx.measuring import effort as efforts
from einsumx.measuring.effort import Effort
from einsumx.planner.path import Optimize, as_optimize
from einsumx.scalars import as_python

if TYPE_CHECKING:
    from typing import TypedDict

    from einsumx.adapters import options as framework_options
    from einsumx.adapters.base import Adapter
    from einsumx.adapters.options import FrameworkOptions
    from einsumx.ir import parse
    from einsumx.runtime import dtype_rules, limits
    from einsumx.runtime.factors import Factors
    from einsumx.runtime.limits import MemoryAmount, MemoryLimit
else:
    framework_options = LazyModule("einsumx.adapters.options")
    dtype_rules, limits = LazyModule("einsumx.runtime.dtype_rules"), LazyModule("einsumx.runtime.limits")
    parse = LazyModule("einsumx.ir.parse")

    class TypedDict:  # that of typing compiles each annotation, which takes milliseconds
        """A class whose ``__annotations__`` are the names and types of keywords."""

        def __init_subclass__(cls, total: bool = True) -> None:
            own = cls.__annotations__
            cls.__annotations__ = {}
            for each in cls.__bases__:
                cls.__annotations__.update(each.__annotations__)
            cls.__annotations__.update(own)


Function = TypeVar("Function", bound="Callable[..., Any]")

Order: TypeAlias = Literal["K", "C", "F", "A"]
_ORDERS: tuple[Order, ...] = get_args(Order)

Written: TypeAlias = str | tuple[tuple[tuple[Hashable, ...], ...], tuple[Hashable, ...] | None]
"""An unparsed equation: text, or the sublists of the operands and of the output (None: implicit output)."""


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
        raise SublistError(f"the equation must be a text such as 'ij,jk->ik', not {actual}")
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
        written = as_labels(sublists), None if output is None else as_labels([output])[0]
        hash(written)
    except Exception:  # a label of the user's own class may raise anything
        _check_sublists(sublists, output)
        raise
    if not _USUAL.issuperset(map(type, (*sublists, output))) and any(
        isinstance(labels, str | bytes | AbstractSet | Mapping) for labels in (*sublists, output)
    ):
        _check_sublists(sublists, output)
    return written, list(operands[0 : 2 * pairs : 2])


def as_labels(sublists: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """Sublists as tuples, as keys of caches have them: NumPy's scalars cannot be compared with all that equals them.

    >>> as_labels([[0, "row"], ["row", 1]])
    ((0, 'row'), ('row', 1))
    """
    return tuple([tuple(map(as_python, labels)) for labels in sublists])


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


def names_as_sublists(text: str, count: int) -> tuple[tuple[tuple[Hashable, ...], ...], tuple[Hashable, ...]]:
    """The sublists of a text of names for ``count`` operands; see :func:`einsumx.ir.parse.parse_names`."""
    return parse.parse_names(text, count)


def _check_sublists(sublists: Sequence[Any], output: Any) -> None:
    """Raise the error for malformed sublists."""
    parse.parse_sublists(sublists, output)


class FrameworkKeywords(TypedDict, total=False):
    """The keywords that only some frameworks have; each framework's adapter declares which.

    Attributes:
        precision: of products of float32: on JAX as for ``jax.numpy.einsum``; on PyTorch ``"highest"``, ``"high"`` or
            ``"medium"``, as for ``torch.set_float32_matmul_precision``, during the call.
        preferred_element_type: the dtype in which products are summed, and that the result has; the operands keep
            theirs. As for ``jax.numpy.einsum``. JAX only.
        out_sharding: how the result is distributed over devices, a ``PartitionSpec`` or a ``NamedSharding``. JAX only.
    """

    precision: Any
    preferred_element_type: Any
    out_sharding: Any


class CommonKeywords(TypedDict, total=False):
    """The keywords of all functions that contract or plan, in semirings too."""

    conj: int | Iterable[int]
    dtype: Any
    casting: Casting
    optimize: Optimize
    backend: str | None


class SumKeywords(CommonKeywords, total=False):
    """The same for sums of products: the keywords of :func:`einsumx.tune`."""

    accumulate: Any


class ExpressionKeywords(SumKeywords, FrameworkKeywords, total=False):
    """The keywords of :func:`einsumx.expression`."""


class ResultKeywords(TypedDict, total=False):
    """The keywords of functions that compute a result at once."""

    order: Order
    memory_limit: MemoryAmount | MemoryLimit | None


class WrittenKeywords(ResultKeywords, total=False):
    """The keywords of functions whose result may be written to an array."""

    out: Any


class FrexpKeywords(SumKeywords, ResultKeywords, total=False):
    """The keywords of :func:`einsumx.einsum_frexp`."""


class SemiringKeywords(CommonKeywords, WrittenKeywords, total=False):
    """The keywords of :meth:`einsumx.Semiring.einsum`."""


class Keywords(SumKeywords, WrittenKeywords, FrameworkKeywords, total=False):
    """The keywords of :func:`einsumx.einsum`."""


class ShapeKeywords(TypedDict, total=False):
    """The keywords of functions that plan from shapes."""

    out: Any
    device: str
    dtypes: str | Sequence[str]
    stored: bool


class PlanKeywords(SumKeywords, ShapeKeywords, total=False):
    """The keywords of :func:`einsumx.plan` but ``memory_limit``."""


class SemiringPlanKeywords(CommonKeywords, ShapeKeywords, total=False):
    """The keywords of :meth:`einsumx.Semiring.plan` but ``memory_limit``."""


@dataclass(slots=True, eq=False, repr=False)
class Request:
    """A call of :func:`einsumx.einsum`, or of another function that computes a contraction.

    Keywords that mean the same for every framework are checked on construction, and None becomes their default.
    :meth:`named` checks those that depend on the framework.

    Attributes:
        written: the equation, unparsed.
        operands: unchanged.
        out, dtype, accumulate, order, casting, optimize, backend: as for :func:`einsumx.einsum`.
        memory_limit: the same; an amount becomes a :class:`~einsumx.runtime.limits.MemoryLimit`.
        conj: the same; a tuple of integers.
        framework: the keywords that only some frameworks have, without those that are None.
        factors: those of the result and of ``added``, the array that it is added to; None for the result alone.
        algebra: what sums and products mean.
        effort: of the choice of a plan; None for the current one.
        is_cast: whether a mode of the framework such as ``torch.autocast`` may cast a new result.

    Raises:
        ValueError: an unknown order or casting rule, or a wrong limit.
        EquationError: positions that are no integers.
        PathError: a malformed path.
        TypeError: a limit of a wrong type.
    """

    written: Written
    operands: Sequence[Any]
    out: Any = None
    dtype: Any = None
    accumulate: Any = None
    order: Order = "K"
    casting: Casting = "safe"
    optimize: Optimize = "auto"
    backend: str | None = None
    memory_limit: MemoryLimit | MemoryAmount | None = None
    conj: int | Iterable[int] = ()
    framework: Mapping[str, Any] = field(default_factory=dict)
    factors: Factors | None = None
    added: Any = None
    algebra: Algebra = PLUS_TIMES
    effort: Effort | None = None
    is_cast: bool = True

    def __post_init__(self) -> None:
        if self.order != "K":
            self.order = as_order(self.order)
        if self.casting != "safe":
            self.casting = check_casting(self.casting)
        if type(self.optimize) is not str:
            self.optimize = as_optimize(self.optimize)
        if self.memory_limit is not None:
            self.memory_limit = limits.as_limit(self.memory_limit)
        if type(self.conj) is not tuple or self.conj:
            self.conj = as_positions(self.conj)

    @property
    def adapter(self) -> Adapter | None:
        """The adapter that ``backend`` names, None without a name; BackendError if there is none of that name."""
        return None if self.backend is None else get_backend(self.backend)

    @property
    def limit(self) -> MemoryLimit:
        """The memory limit of a request that has one."""
        limit: Any = self.memory_limit
        return limit  # type: ignore[no-any-return]

    @property
    def options(self) -> FrameworkOptions:
        """The keywords that only some frameworks have, of which some are set."""
        return framework_options.FrameworkOptions(**self.framework)

    @property
    def is_path_free(self) -> bool:
        """Whether the planner chooses the path, so that it may take one that was measured."""
        return self.optimize in ("auto", True)

    @property
    def is_measured(self) -> bool:
        """Whether candidates are tried; not under a limit, and not where sums and products are others."""
        if self.effort is None and not efforts.is_set:
            return False
        is_asked = (self.effort or efforts.get_effort()) == "measure"
        return is_asked and self.memory_limit is None and self.algebra is PLUS_TIMES

    def named(self, adapter: Adapter, *, is_planned: bool = False) -> Request:
        """The same call in the framework's terms: dtypes are names, and keywords that only it has are checked.

        Args:
            adapter: the framework's.
            is_planned: a dtype that has a name keeps it, so that planning from shapes imports no framework.

        Raises:
            BackendError: the framework lacks a dtype or a keyword, or the value of a keyword is wrong.
        """
        if self.dtype is self.accumulate is None and not self.framework and not self.algebra.is_boolean:
            return self
        dtype, accumulate = [
            as_python(value) if is_planned and isinstance(value, str) else dtype_rules.dtype_name(adapter, value, name)
            for name, value in (("dtype", self.dtype), ("accumulate", self.accumulate))
        ]
        if self.algebra.is_boolean and dtype is None:
            dtype = "bool"
        request = replace(self, dtype=dtype, accumulate=accumulate)
        return _with_framework(adapter, request) if self.framework else request

    def planning(self) -> dict[str, Any]:
        """The fields that a plan depends on and that differ from their defaults; but the keywords of one framework."""
        found = {"is_cast": False} if self.out is not None or not self.is_cast else {}
        for name, default in _PLANNING.items():
            value = getattr(self, name)
            if value is not default and value != default:
                found[name] = value
        return found

    def call(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The public function that was called, its arguments before the equation, and its keywords."""
        keywords = self.keywords()
        if self.factors is not None:
            return hooks.addeinsum, (self.added,), {**keywords, **self.factors._asdict()}
        return getattr(hooks, self.algebra.function), self.algebra.arguments, keywords

    def keywords(self) -> dict[str, Any]:
        """The keywords that differ from their defaults, as :func:`einsumx.einsum` takes them."""
        keywords = dict(self.framework)
        for name in _KEYWORDS:
            value, default = getattr(self, name), _DEFAULTS[name]
            if not (value is None or value is default or (isinstance(value, str) and value == default)):
                keywords[name] = value
        return keywords


STAGED = frozenset(["optimize"])
"""The keywords of calls that are planned in three stages; see :mod:`einsumx.runtime.staged`."""

_KEYWORDS = tuple([name for name in Keywords.__annotations__ if name not in FrameworkKeywords.__annotations__])
"""The keywords of :func:`einsumx.einsum` that every framework has."""

_DEFAULTS = {each.name: each.default for each in fields(Request)}

_PLANNING = {name: _DEFAULTS[name] for name in (*SumKeywords.__annotations__, "algebra") if name != "backend"}
"""The keywords of every framework that a plan depends on, and the algebra, with their defaults."""


def fields_of(function: str, keywords: Mapping[str, Any], known: type) -> dict[str, Any]:
    """The fields of a request for the keywords of a call: those that only some frameworks have are one field.

    Args:
        function: the name of the function that was called.
        keywords: of the call.
        known: a TypedDict with those that the function has.

    Raises:
        TypeError: the function has no such keyword.
    """
    found: dict[str, Any] = {}
    framework: dict[str, Any] = {}
    for name, value in keywords.items():
        if name not in known.__annotations__:
            if name in _SUCCESSORS:
                raise TypeError(f"{function}() has no keyword {name}=; {_SUCCESSORS[name]}")
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        if name not in FrameworkKeywords.__annotations__:
            found[name] = value
        elif value is not None:
            framework[name] = value
    if framework:
        found["framework"] = framework
    return found


def request_of(function: str, operands: Sequence[Any], keywords: Mapping[str, Any], known: type, **own: Any) -> Request:
    """The request of a call, with further fields of its own; see :func:`fields_of`."""
    written, inputs = split(operands)
    return Request(written, inputs, **fields_of(function, keywords, known), **own)


def taking(known: type, **defaults: Any) -> Callable[[Function], Function]:
    """A decorator: the signature of a function shows its keywords, which are those of a TypedDict and some of its own.

    Args:
        known: the TypedDict.
        **defaults: of its own ones.
    """
    defaults = {**_DEFAULTS, **defaults}

    def decorate(function: Function) -> Function:
        shown = signature(function)
        named = [each for each in shown.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        names = sorted(known.__annotations__, key=[*defaults, *known.__annotations__].index)
        added = [Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name)) for name in names]
        function.__dict__["__signature__"] = shown.replace(parameters=[*named, *added])
        return function

    return decorate


_LISTS = frozenset((list, tuple))
"""The types of values that keys have as bytes, which tell 0, 0.0 and False apart."""

Key: TypeAlias = tuple[tuple[str, type, Any], ...]
"""Keywords that a cache can tell apart: the name, type and value of each; of a list or tuple its bytes."""


def as_key(keywords: Mapping[str, Any]) -> Key:
    """The key of keywords; Uncacheable if a list or tuple contains a value of another type than Python's own."""
    key: list[tuple[str, type, Any]] = []
    try:
        for name, value in keywords.items():
            kind: type = type(value)
            key.append((name, kind, dumps(value, 2) if kind in _LISTS else value))
    except ValueError as error:
        raise Uncacheable from error
    return tuple(key)


def from_key(key: Key) -> dict[str, Any]:
    """The keywords of :func:`as_key`.

    Raises:
        Uncacheable: bytes, or arrays, which become bytes, are in a list; or another iterable is a value, which may be
            read only once, or have other items in the next call.
    """
    keywords = {}
    for name, kind, value in key:
        keywords[name] = value
        if kind in _LISTS:
            keywords[name] = items = loads(value)
            for item in items:
                if bytes in map(type, item if isinstance(item, list | tuple) else [item]):
                    raise Uncacheable
        elif hasattr(value, "__iter__") and not isinstance(value, str):
            raise Uncacheable
    return keywords


_SUCCESSORS = {
    "alpha": "use einsumx.addeinsum(c, ..., alpha=)",
    "beta": "use einsumx.addeinsum(c, ..., beta=)",
    "effort": 'use "with einsumx.effort(...):" or einsumx.set_effort',
    "semiring": "use a method of a semiring, such as einsumx.semirings.max_plus.einsum",
    "strip_exponent": "use einsumx.einsum_frexp",
} | {
    name: f"use memory_limit=einsumx.MemoryLimit(..., {name}=)"
    for name in ("device", "devices", "executor", "progress", "resume")
}
"""What there is in place of keywords that einsum does not have and that its users may look for."""


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


def as_positions(conj: Any) -> tuple[int, ...]:
    """The value of ``conj=``: positions of operands, of which there may be any number.

    Raises:
        EquationError: one of them is no integer.

    >>> as_positions(-1), as_positions(range(2)), as_positions(None)
    ((-1,), (0, 1), ())
    """
    if conj is None:
        return ()
    try:
        items = tuple(map(as_python, conj if isinstance(conj, Iterable) else (conj,)))
        if not any(isinstance(item, bool) for item in items):
            return tuple(map(index, items))
    except TypeError:
        pass
    raise EquationError(f"conj= must be the position of an operand, or several such as (0, 2), not {shown(conj)}")


def _with_framework(adapter: Adapter, request: Request) -> Request:
    """The request with the keywords that only some frameworks have in the framework's terms."""
    chosen = framework_options.FrameworkOptions(**request.framework)
    if request.memory_limit is not None:
        chosen.refuse("einsum under a memory_limit=")
    if chosen.preferred_element_type is not None:
        for name, value, what in (
            ("dtype", request.dtype, "the result's dtype"),
            ("accumulate", request.accumulate, "the dtype of sums"),
        ):
            if value is not None:
                raise BackendError(f"{name}= and preferred_element_type= both choose {what}; pass one of them")
        # Operands keep their dtypes, so that no rule for casts applies.
        dtype = dtype_rules.dtype_name(adapter, chosen.preferred_element_type)
        request = replace(request, dtype=dtype, casting="unsafe")
        chosen = chosen._replace(preferred_element_type=dtype)
    try:
        hash(chosen)
    except TypeError as error:
        raise BackendError(
            f"precision= and out_sharding= must be hashable; pass a tuple instead of a list: {error}"
        ) from None
    adapter.configured(chosen)
    return replace(request, framework=chosen._asdict())
