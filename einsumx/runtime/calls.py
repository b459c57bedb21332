"""Repeated calls: one lookup leads from the arguments of a call to a function that runs on its arrays.

The cache of calls is keyed by the equation, the signatures of the operands and of ``out=``, and the other keywords as
they were passed, with their types, because 1 and True are equal. The type of a Python number stands in the place of
its signature. The cache holds only calls whose outcome depends on nothing else. All others, and all of einsumx's own
errors, are left to the functions behind it, which check every argument. Other exceptions pass through, such as one that
a signal handler raises while a plan is made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from marshal import dumps, loads
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from einsumx.adapters import hooks
from einsumx.adapters.operand_types import top_package
from einsumx.adapters.registry import access, access_to, are_plain, backend_of, serving
from einsumx.caches import Uncacheable, table
from einsumx.errors import REFUSALS, BackendError, EinsumxError, MemoryLimitError
from einsumx.imports import LazyModule
from einsumx.measuring import effort
from einsumx.runtime.request import (
    STAGED,
    Keywords,
    Request,
    Written,
    as_key,
    as_labels,
    fields_of,
    from_key,
    names_as_sublists,
)
from einsumx.runtime.results import Delivery, delivery

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter, Array, Run, Signature
    from einsumx.runtime import caps, dtype_rules, factors, limits, prepare, staged
else:
    caps, limits = LazyModule("einsumx.runtime.caps"), LazyModule("einsumx.runtime.limits")
    dtype_rules = LazyModule("einsumx.runtime.dtype_rules")
    factors, prepare = LazyModule("einsumx.runtime.factors"), LazyModule("einsumx.runtime.prepare")
    staged = LazyModule("einsumx.runtime.staged")

Function = TypeVar("Function", bound="Callable[..., Any]")

Labels: TypeAlias = tuple[Any, ...]
"""The sublists of a call as tuples, one for each operand, and possibly one for the output; or a text of names alone.
Sublists whose labels are all of Python's own types are bytes instead, as ``marshal`` writes them."""

Translation: TypeAlias = "Callable[[Adapter, dict[str, Any]], Mapping[str, Any]]"
"""A function of the adapter and the keywords of a call that returns the fields of its :class:`Request`, or raises
Uncacheable if the call cannot be cached. It stands in the cache for the function that was called."""

Key: TypeAlias = tuple[Any, ...]
"""What else a call depends on: the effort, the mode of :func:`mode_of`, the signature of the array to which the result
is added, the kinds of factors, and the other keywords, as :func:`~einsumx.runtime.request.as_key` has them."""

_NUMBERS = frozenset([bool, int, float, complex])

_calls = table("calls")
"""The functions by the arguments of :func:`ready`: the translation, the equation, the key and the signature of ``out``
(None for two None), and the signatures of the operands, of which the first one tells the adapter."""


def of_einsum(_: Adapter, options: dict[str, Any]) -> Mapping[str, Any]:
    """The translation of :func:`einsumx.einsum`."""
    return fields_of("einsum", options, Keywords) if options else options


def cached_first(function: Function, translation: Translation = of_einsum) -> Function:
    """``function``, an einsum, except that each call tries the cache of calls first.

    Args:
        function: called with the same arguments if the cache does not serve them.
        translation: turns the function's keywords other than ``out`` into the fields of a request.
    """
    known, searches, backends = _calls.known, _calls.searches, access.known

    @wraps(function)
    def call(equation: Any = None, /, *operands: Any, out: Any = None, **options: Any) -> Any:
        written: str | bytes | Labels = equation
        arrays: Sequence[Any] = operands
        lhs = rhs = beside = None
        key: tuple[Any, ...]
        try:
            if type(equation) is not str:
                written, arrays = _split_sublists(equation, operands)
            if not arrays:
                raise Uncacheable
            try:
                adapter, signature, is_mode_set = backends.get(type(arrays[0])) or access_to(type(arrays[0]))
                if options or effort.is_set or (is_mode_set is not None and is_mode_set()):
                    beside = _beside(adapter, arrays[0], out, options)
                elif out is not None:
                    beside = None, signature(out)
                if len(arrays) == 2:  # most calls have one or two, and take a tenth less without a star
                    lhs, rhs = arrays
                    key = translation, written, beside, signature(lhs), signature(rhs)
                elif len(arrays) == 1:
                    key = translation, written, beside, signature(arrays[0])
                else:
                    key = translation, written, beside, *map(signature, arrays)
                next(searches)
                run = known.get(key)
                if run is None:
                    run = _new(adapter, key)
            except (AttributeError, BackendError):
                if _NUMBERS.isdisjoint(map(type, arrays)):
                    raise
                run = _of_numbers(translation, written, arrays, out, options)
        except (EinsumxError, Uncacheable):
            pass  # the function checks the arguments, and raises the error
        except Exception:
            if is_key(arrays, (out,), written, *_hashed(options)):
                raise
        else:
            try:
                if rhs is None:
                    return run(*arrays) if out is None else run(out, *arrays)
                return run(lhs, rhs) if out is None else run(out, lhs, rhs)
            except MemoryLimitError as error:  # in spite of a limit, memory ran out
                raise error.with_traceback(None) from error.__cause__
            except (EinsumxError, Uncacheable):  # before any work, such as that out= is read-only
                pass
        if out is not None:
            options["out"] = out
        try:
            return function(equation, *operands, **options)
        except EinsumxError as error:
            raise error.with_traceback(None) from error.__cause__  # lines of einsumx do not say what is wrong

    return cast(Function, call)


def added_first(function: Function) -> Function:
    """``function``, :func:`einsumx.addeinsum`, except that each call tries the cache of calls first."""

    @wraps(function)
    def call(
        c: Any = None, equation: Any = None, /, *operands: Any, alpha: Any = 1, beta: Any = 1, out: Any = None,
        **options: Any,
    ) -> Any:  # fmt: skip
        written: str | bytes | Labels = equation
        arrays: Sequence[Any] = operands
        added = None if out is c else c
        try:
            if type(equation) is not str:
                written, arrays = _split_sublists(equation, operands)
            if not arrays or c is None or type(c) in _NUMBERS:
                raise Uncacheable
            scale = factors.factors_of(alpha, beta)
            adapter, signature, _ = access_to(type(arrays[0]))
            beside = _beside(adapter, arrays[0], out, options, added, scale.kinds)
            run = _found(adapter, (of_einsum, written, beside, *map(signature, arrays)))
        except (EinsumxError, Uncacheable):
            pass  # the function checks the arguments, and raises the error
        except Exception:
            if is_key((*arrays, c), (out,), written, *_hashed(options)):
                raise
        else:
            return run(scale, *[each for each in (out, added) if each is not None], *arrays)
        try:
            return function(c, equation, *operands, alpha=alpha, beta=beta, out=out, **options)
        except EinsumxError as error:
            raise error.with_traceback(None) from error.__cause__

    return cast(Function, call)


def _hashed(options: Mapping[str, Any]) -> list[Any]:
    """The values of keywords that are looked up as they are; lists and tuples are by their bytes."""
    return [value for value in options.values() if not isinstance(value, list | tuple)]


def is_key(operands: Sequence[Any], targets: Sequence[Any], *values: Any) -> bool:
    """Whether operands, targets and values can be looked up in a cache, or einsumx's own error says why not.

    The hash of a user's own class may raise anything, and so may the signature of another framework's array.
    """
    arrays = [*operands, *[target for target in targets if target is not None]]
    arrays = [array for array in arrays if type(array) not in _NUMBERS]
    try:
        adapter, is_plain = backend_of(tuple(map(type, arrays)))
    except BackendError:
        return False
    first: Any = type(arrays[0]) if arrays else None
    if adapter is None or not is_plain or adapter is not serving(first):  # whose signatures were taken
        return False
    try:
        hash((values, *map(adapter.signature, arrays)))
    except EinsumxError:
        return True
    except REFUSALS:
        return False
    return True


def _beside(
    adapter: Adapter,
    first: Array,
    out: Array | None,
    options: Mapping[str, Any],
    added: Array | None = None,
    kinds: tuple[str, str] | None = None,
) -> tuple[Key | None, Signature | None]:
    """What a call depends on beside its equation and operands; see :func:`ready`.

    ``first`` is an array among the operands, ``added`` the one that the result is added to, if that is not ``out``, and
    ``kinds`` are those of the factors.
    """
    is_mode_set, signature = adapter.is_mode_set, adapter.signature
    key: Key = (
        effort.get_effort() if effort.is_set else "estimate",
        None if is_mode_set is None or not is_mode_set() else mode_of(adapter, first),
        None if added is None else signature(added),
        kinds,
        as_key(options) if options else (),
    )
    return key, None if out is None else signature(out)


def _of_numbers(
    translation: Translation, written: str | bytes | Labels, arrays: Sequence[Any], out: Any, options: Mapping[str, Any]
) -> Run:
    """The function for operands among which are Python numbers."""
    first = next((each for each in arrays if type(each) not in _NUMBERS), arrays[0])
    adapter, signature, _ = access_to(type(first))
    signatures = [type(each) if type(each) in _NUMBERS else signature(each) for each in arrays]
    return _found(adapter, (translation, written, _beside(adapter, first, out, options), *signatures))


def _found(adapter: Adapter, asked: tuple[Any, ...]) -> Run:
    """The function for a key of the table of calls."""
    next(_calls.searches)
    run: Run | None = _calls.known.get(asked)
    return _new(adapter, asked) if run is None else run


def _new(adapter: Adapter, asked: tuple[Any, ...]) -> Run:
    """The function for a key that the table of calls does not have."""
    _calls.misses += 1
    translation, written, beside, *signatures = asked
    key, out = beside or (None, None)
    run: Run = _calls.keep(asked, ready(adapter, translation, written, key, out, *signatures))
    return run


def mode_of(adapter: Adapter, array: Array) -> Hashable:
    """The :meth:`~einsumx.adapters.arrays.Arrays.planning_mode` for the device of an array; None for the usual one."""
    if adapter.is_mode_set is None or not adapter.is_mode_set():
        return None
    return adapter.planning_mode(adapter.device(array))


def _split_sublists(first: Any, others: Sequence[Any]) -> tuple[bytes | Labels, Sequence[Any]]:
    """The sublists and the arrays of ``einsum(first, *others)``, such as ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.

    Raises:
        Uncacheable: a sublist is neither a list nor a tuple, and the last argument is no text of names. An iterator can
            be read only once, by the function itself.
    """
    arrays, labels = [first], []
    is_sublist = True
    for each in others:  # a loop over the arguments is faster than slices and map()
        if not is_sublist:
            arrays.append(each)
        elif type(each) is list or type(each) is tuple:
            labels.append(each)
        else:
            return _split_names(first, others)
        is_sublist = not is_sublist
    if is_sublist:
        output = arrays.pop()
        if type(output) is not list and type(output) is not tuple:
            return _split_names(first, others)
        labels.append(output)
    try:
        written = dumps(labels, 2)
    except ValueError:  # labels of other types than Python's own
        return as_labels(labels), arrays
    return as_labels(labels) if _BYTES in written else written, arrays


_BYTES = ord("s")
"""What marshal writes before bytes, as which it writes NumPy's scalars too; they are no keys. It may be a label's."""


def _split_names(first: Any, others: Sequence[Any]) -> tuple[Labels, Sequence[Any]]:
    """The text of names and the arrays of a call such as ``einsum(x, w, "batch d, d out -> batch out")``."""
    *arrays, text = first, *others
    if type(text) is not str or "->" not in text:
        raise Uncacheable
    return (text,), arrays


def ready(
    adapter: Adapter,
    translation: Translation,
    written: str | bytes | Labels,
    key: Key | None,
    out: Signature | None,
    /,
    *signatures: Any,
) -> Run:
    """The function for operands, and ``out``, of these signatures; see :func:`delivery`.

    Args:
        adapter: of the first array.
        translation: of the function that is called.
        written: the equation.
        key: what else the call depends on; None if that is nothing.
        out: the signature of ``out``; None for a new result.
        *signatures: those of the operands, and the types of Python numbers.

    Raises:
        Uncacheable: such calls have to be checked every time.
        EinsumxError: the call is wrong.
    """
    if type in map(type, signatures):
        return _with_numbers(adapter, translation, written, key, out, signatures)
    equation, fields = _read(written, len(signatures)), _NO_FIELDS
    _, _, added, kinds, options = key or _NO_KEY
    if not are_plain(adapter, [*signatures, *filter(None, (out, added))]):
        raise Uncacheable
    if options or translation is not of_einsum:
        fields = _translated(adapter, translation, options)
        if isinstance(fields.get("memory_limit"), limits.Cap):
            fields = _capped(fields, adapter, equation, out, signatures)
    if out is None and fields.keys() <= STAGED and (key is None or key[:4] == _NO_KEY[:4]):
        run = staged.run_of(adapter, equation, signatures, fields.get("optimize", "auto"))
        if run is not None:
            return run
    try:
        request = Request(equation, (), is_cast=out is None, **fields)
        if fields:
            _check_lasting(adapter, request)
            request = request.named(adapter)
    except (TypeError, ValueError) as error:
        raise Uncacheable from error
    if out is not None and request.algebra.has_exponents:
        raise Uncacheable
    prepared = None
    if request.memory_limit is None:
        prepared = prepare.from_signatures(request, adapter, signatures)
        request = replace(request, memory_limit=caps.of_windows(prepared, adapter, signatures))
    if prepared is None or request.memory_limit is not None:
        if out is not None or kinds is not None:
            raise Uncacheable
        limited: Run = hooks.ready_under_limit(request, adapter, signatures)
        return limited
    if out is None and request.order == "K" and kinds is None:
        return prepared.run
    try:
        wanted = Delivery(request.order, request.casting, out, kinds, added, request.dtype)
        return delivery(adapter, prepared, signatures[0], wanted)
    except ValueError as error:
        raise Uncacheable from error


def _translated(adapter: Adapter, translation: Translation, options: Key) -> Mapping[str, Any]:
    """The fields of the keywords of a key."""
    try:
        return translation(adapter, from_key(options))
    except (TypeError, ValueError) as error:
        raise Uncacheable from error


def _capped(
    fields: Mapping[str, Any],
    adapter: Adapter,
    equation: Written,
    out: Signature | None,
    signatures: Sequence[Signature],
) -> Mapping[str, Any]:
    """The fields of a call under the limit of a patch: with a limit for this call if its plan takes more memory."""
    cap, free = fields["memory_limit"], {name: value for name, value in fields.items() if name != "memory_limit"}
    try:
        is_exceeded = caps.is_exceeded(cap, Request(equation, (), is_cast=out is None, **free), adapter, signatures)
    except (TypeError, ValueError) as error:
        raise Uncacheable from error
    return {**free, "memory_limit": cap.limit} if is_exceeded else free


_NO_KEY: Key = ("estimate", None, None, None, ())
_NO_FIELDS: Mapping[str, Any] = {}


def _with_numbers(
    adapter: Adapter,
    translation: Translation,
    written: str | bytes | Labels,
    key: Key | None,
    out: Signature | None,
    signatures: Sequence[Signature | type],
) -> Run:
    """A function that makes arrays of Python numbers among its operands, and looks up the call with these.

    Their values may have different dtypes.
    """
    of_arrays = [signature for signature in signatures if not isinstance(signature, type)]
    if not are_plain(adapter, of_arrays):
        raise Uncacheable
    dtype = dtype_rules.promoted(adapter, list(map(adapter.operand, of_arrays)))
    _, _, added, kinds, _ = key or _NO_KEY
    start = sum(each is not None for each in (kinds, out, added))  # before the operands
    numbers = [start + place for place, each in enumerate(signatures) if isinstance(each, type)]
    first = next(start + place for place, each in enumerate(signatures) if not isinstance(each, type))

    beside = None if key is None and out is None else (key, out)

    def run(*arguments: Any) -> Any:
        arrays = list(arguments)
        for place in numbers:
            arrays[place] = adapter.scalar(arrays[place], arrays[first], dtype)
        return _found(adapter, (translation, written, beside, *map(adapter.signature, arrays[start:])))(*arrays)

    return run


def _read(written: str | bytes | Labels, count: int) -> Written:
    """The equation of a key, for this many operands."""
    if isinstance(written, str):
        return written
    if isinstance(written, bytes):
        written = tuple(map(tuple, loads(written)))
        try:
            hash(written)
        except TypeError as error:  # a label is a list
            raise Uncacheable from error
    elif type(written[0]) is str:
        return names_as_sublists(written[0], count)
    return written[:count], written[count] if len(written) > count else None


def _check_lasting(adapter: Adapter, request: Request) -> None:
    """Raise Uncacheable if the meaning of the keywords may change between calls."""
    if (
        (request.adapter or adapter).name != adapter.name
        or type(request.optimize) not in (str, bool, tuple)
        or not _is_constant(adapter, request.dtype)
        or not _is_constant(adapter, request.framework.get("preferred_element_type"))
        or not _is_constant(adapter, request.accumulate)
    ):
        raise Uncacheable


def _is_constant(adapter: Adapter, dtype: Any) -> bool:
    """Whether a value of ``dtype=`` always means the same dtype."""
    if dtype is None:
        return True
    if not adapter.constant_dtypes:
        return False
    kind: type = dtype if isinstance(dtype, type) else type(dtype)
    return kind in (str, bool, int, float, complex) or top_package(kind.__module__) in ("numpy", adapter.module)
