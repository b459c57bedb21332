"""The arguments of a call as one value, and the checks of its keywords."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from einsumx.adapters import hooks
from einsumx.adapters.registry import get_backend
from einsumx.caches import cached
from einsumx.dtypes import Casting, check_casting, kind
from einsumx.errors import BackendError, EquationError, SublistError, shown
from einsumx.imports import LazyModule
from einsumx.ir.algebra import PLUS_TIMES, Algebra
from einsumx.measuring.effort import Effort, get_effort
from einsumx.planner.path import Optimize, as_optimize
from einsumx.scalars import as_python

if TYPE_CHECKING:
    from einsumx.adapters import typing as framework_options
    from einsumx.adapters.base import Adapter
    from einsumx.adapters.typing import FrameworkOptions
    from einsumx.ir import parse
    from einsumx.ir.operand import Operand
    from einsumx.runtime import limits
    from einsumx.runtime.factors import Factors
    from einsumx.runtime.limits import MemoryAmount, MemoryLimit
else:
    framework_options = LazyModule("einsumx.adapters.typing")
    limits = LazyModule("einsumx.runtime.limits")
    parse = LazyModule("einsumx.ir.parse")

Order: TypeAlias = Literal["K", "C", "F", "A"]
_ORDERS: tuple[Order, ...] = get_args(Order)

Written: TypeAlias = str | tuple[tuple[tuple[Hashable, ...], ...], tuple[Hashable, ...] | None]
"""An unparsed equation: text, or the sublists of the operands and of the output (None: implicit output)."""


class Options(NamedTuple):
    """The keywords that a plan depends on. They are part of each cache key, hence a named tuple, which hashes fast.

    Attributes:
        dtype: the name of the dtype to compute in and return; None for the operands' promotion.
        casting: NumPy's rule for casting operands to ``dtype``, and the result to ``out``.
        optimize: a path, or how to find one.
        effort: how much to spend on the choice of a plan.
        framework: the keywords that only some frameworks have; None if none of them is set.
        accumulate: the name of the dtype to compute products and sums in; None for the contract's.
        algebra: what sums and products mean.
        mode: the framework's settings, see :meth:`~einsumx.adapters.arrays.Arrays.planning_mode`; before they are
            known, empty for a call whose result they do not cast.
    """

    dtype: str | None = None
    casting: Casting = "safe"
    optimize: Any = "auto"
    effort: Effort = "estimate"
    framework: FrameworkOptions | None = None
    accumulate: str | None = None
    algebra: Algebra = PLUS_TIMES
    mode: Hashable = None


DEFAULT = Options()


class Described(NamedTuple):
    """A call whose operands are described; the key of the cache of plans.

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
        """The adapter that runs the plan: with the keywords that only some frameworks have."""
        framework = self.options.framework
        return self.adapter if framework is None else self.adapter.configured(framework)


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


@cached("names")
def names_as_sublists(text: str, count: int) -> tuple[tuple[tuple[Hashable, ...], ...], tuple[Hashable, ...]]:
    """The sublists of a text of names for ``count`` operands; see :func:`einsumx.ir.parse.parse_names`."""
    return parse.parse_names(text, count)


def _check_sublists(sublists: Sequence[Any], output: Any) -> None:
    """Raise the error for malformed sublists."""
    parse.parse_sublists(sublists, output)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A call of :func:`einsumx.einsum`, or of another function that computes a contraction.

    Keywords that mean the same for every framework are checked on construction, and None becomes their default.
    :meth:`options` checks those that depend on the framework.

    Attributes:
        written: the equation, unparsed.
        operands: unchanged.
        out, dtype, accumulate, order, casting, optimize, backend: as for :func:`einsumx.einsum`.
        memory_limit: the same; an amount becomes a :class:`~einsumx.runtime.limits.MemoryLimit`.
        framework: the keywords that only some frameworks have, as :func:`as_framework` returns them.
        factors: those of the result and of ``added``, the array that it is added to; None for the result alone.
        algebra: what sums and products mean.
        effort: of the choice of a plan; None for the current one.
        is_cast: whether a mode of the framework such as ``torch.autocast`` may cast a new result.

    Raises:
        ValueError: an unknown order, or a wrong limit.
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
    framework: Mapping[str, Any] = field(default_factory=dict)
    factors: Factors | None = None
    added: Any = None
    algebra: Algebra = PLUS_TIMES
    effort: Effort | None = None
    is_cast: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", as_order(self.order))
        if self.memory_limit is not None:
            object.__setattr__(self, "memory_limit", limits.as_limit(self.memory_limit))

    @property
    def adapter(self) -> Adapter | None:
        """The adapter that ``backend`` names, None without a name; BackendError if there is none of that name."""
        return None if self.backend is None else get_backend(self.backend)

    @property
    def limit(self) -> MemoryLimit:
        """The memory limit of a request that has one."""
        limit: Any = self.memory_limit
        return limit  # type: ignore[no-any-return]

    def options(self, adapter: Adapter) -> Options:
        """The keywords that a plan depends on, in the framework's terms; None becomes a keyword's default.

        The effort is ``"estimate"`` under a limit, and where sums and products are not plus and times.

        Raises:
            BackendError: the framework lacks a dtype or a keyword, or the value of a keyword is wrong.
            PathError: a malformed path.
            ValueError: an unknown casting rule.
        """
        is_timed = self.memory_limit is None and self.algebra is PLUS_TIMES
        options = Options(
            dtype_name(adapter, self.dtype),
            check_casting(self.casting),
            as_optimize(self.optimize),
            (self.effort or get_effort()) if is_timed else "estimate",
            accumulate=dtype_name(adapter, self.accumulate, "accumulate"),
            algebra=self.algebra,
            mode=None if self.out is None and self.is_cast else "",
        )
        if self.algebra.is_boolean and options.dtype is None:
            options = options._replace(dtype="bool")
        return _with_framework(adapter, options, self) if self.framework else options

    def call(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The public function that was called, its arguments before the equation, and its keywords."""
        keywords = self.keywords()
        if self.factors is not None:
            return hooks.addeinsum, (self.added,), {**keywords, **self.factors._asdict()}
        return getattr(hooks, self.algebra.function), self.algebra.arguments, keywords

    def keywords(self) -> dict[str, Any]:
        """The keywords that differ from their defaults, as :func:`einsumx.einsum` takes them."""
        keywords = dict(self.framework)
        for each in fields(self)[2:_KEYWORDS_END]:
            value = getattr(self, each.name)
            if not (value is None or value is each.default or (isinstance(value, str) and value == each.default)):
                keywords[each.name] = value
        return keywords


_KEYWORDS_END = [each.name for each in fields(Request)].index("framework")
_KEYWORDS = frozenset(each.name for each in fields(Request)[2:_KEYWORDS_END])
"""The keywords of :func:`einsumx.einsum` that every framework has."""


def as_fields(keywords: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request for the keywords of a call: those that only some frameworks have are one field."""
    own = {name: value for name, value in keywords.items() if name in _KEYWORDS}
    if len(own) < len(keywords):
        others = {name: value for name, value in keywords.items() if name not in _KEYWORDS}
        own["framework"] = as_framework("einsum", others)
    return own


def as_framework(function: str, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a call that only some frameworks have, without those that are None.

    Raises:
        TypeError: the function has no such keyword.
    """
    if not keywords:
        return {}

    refuse(function, keywords, framework_options.FrameworkOptions._fields)
    return {name: value for name, value in keywords.items() if value is not None}


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


def refuse(function: str, keywords: Mapping[str, Any], known: Sequence[str] = ()) -> None:
    """Raise TypeError if a function does not have one of the keywords of a call."""
    for name in keywords:
        if name in _SUCCESSORS:
            raise TypeError(f"{function}() has no keyword {name}=; {_SUCCESSORS[name]}")
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


# -- the keywords of a plan -----------------------------------------------------------------------------------------


def _with_framework(adapter: Adapter, options: Options, request: Request) -> Options:
    """The options of a request with the keywords that only some frameworks have."""
    chosen = framework_options.FrameworkOptions(**request.framework)
    if request.memory_limit is not None:
        chosen.refuse("einsum under a memory_limit=")
    if chosen.preferred_element_type is not None:
        for name, value, what in (
            ("dtype", options.dtype, "the result's dtype"),
            ("accumulate", options.accumulate, "the dtype of sums"),
        ):
            if value is not None:
                raise BackendError(f"{name}= and preferred_element_type= both choose {what}; pass one of them")
        # Operands keep their dtypes, so that no rule for casts applies.
        dtype = dtype_name(adapter, chosen.preferred_element_type)
        options = options._replace(dtype=dtype, casting="unsafe")
        chosen = chosen._replace(preferred_element_type=dtype)
    try:
        hash(chosen)
    except TypeError as error:
        raise BackendError(f"precision= and out_sharding= are hashable values: {error}") from None
    adapter.configured(chosen)
    return options._replace(framework=chosen)


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
    except (BackendError, TypeError, ValueError) as error:  # a memoryview has no hash
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
