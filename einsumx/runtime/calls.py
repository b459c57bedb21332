"""Repeated calls: one lookup leads from the arguments of a call to a function that runs on its arrays.

The cache of calls is keyed by the equation, the signatures of the operands and of ``out=``, and the other keywords as
they were passed, with their types, because 1 and True are equal. It holds only calls whose outcome depends on nothing
else. All others, and all of einsumx's own errors, are left to the functions behind it, which check every argument.
Other exceptions pass through, such as one that a signal handler raises while a plan is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from marshal import dumps, loads
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from einsumx.adapters.operand_types import top_package
from einsumx.adapters.registry import backend_of, serving
from einsumx.errors import BackendError, EinsumxError
from einsumx.imports import LazyModule
from einsumx.runtime import effort
from einsumx.runtime.caches import Uncacheable, cached
from einsumx.runtime.prepare import direct_run, from_signatures, numbers_as_arrays
from einsumx.runtime.request import DEFAULT, Options, Order, Request, Written, names_as_sublists
from einsumx.runtime.results import Delivery, check_plain, delivery

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter, Array, Run, Signature
    from einsumx.runtime import factors
else:
    factors = LazyModule("einsumx.runtime.factors")

__all__ = ["Translation", "are_plain", "cached_first", "is_key", "ready"]

Function = TypeVar("Function", bound="Callable[..., Any]")

Labels: TypeAlias = tuple[tuple[Any, ...], ...]
"""The sublists of a call as tuples: one for each operand, and possibly one for the output."""

Translation: TypeAlias = "Callable[[Adapter, dict[str, Any]], Mapping[str, Any]]"
"""A function of the adapter and the keywords of a call that returns einsumx's keywords, or raises Uncacheable if the
call cannot be cached."""


def _einsumx_keywords(_: Adapter, options: dict[str, Any]) -> Mapping[str, Any]:
    return options


def cached_first(function: Function, translation: Translation = _einsumx_keywords) -> Function:
    """``function``, an einsum, except that each call tries the cache of calls first.

    Args:
        function: called with the same arguments if the cache does not serve them.
        translation: turns the function's keywords other than ``out`` into einsumx's.
    """

    @wraps(function)
    def call(equation: Any = None, /, *operands: Any, out: Any = None, **options: Any) -> Any:
        written: str | Labels = equation
        arrays: Sequence[Any] = operands
        try:
            if type(equation) is not str:
                written, arrays = _split_sublists(equation, operands)
            if not arrays:
                raise Uncacheable
            try:
                adapter = serving(type(arrays[0]))  # type: ignore[arg-type]
                if out is not None or options or effort.is_set:
                    run = _ready_for(adapter, translation, written, arrays, out, options)
                elif written is equation:
                    run = _ready_plain(adapter, translation, equation, *map(adapter.signature, operands))
                else:
                    run = ready(adapter, translation, written, *map(adapter.signature, arrays))
            except (AttributeError, BackendError, Uncacheable) as error:
                try:
                    adapter, arrays = numbers_as_arrays(arrays)
                except Uncacheable:
                    if isinstance(error, AttributeError) and are_plain((*arrays, out)):
                        raise error from None
                    raise
                run = _ready_for(adapter, translation, written, arrays, out, options)
        except (EinsumxError, Uncacheable):
            pass  # the function checks the arguments, and raises the error
        except Exception:
            if is_key(arrays, written, *options.values()):
                raise
        else:
            return run(*arrays) if out is None else run(out, *arrays)
        if out is not None:
            options["out"] = out
        return function(equation, *operands, **options)

    return cast(Function, call)


def is_key(arrays: Sequence[Array], *values: Any) -> bool:
    """Whether arrays and values can be looked up in a cache.

    The hash of a user's own class may raise anything, and so may the signature of another framework's array.
    """
    try:
        adapter = serving(type(arrays[0]))  # type: ignore[arg-type]
        hash((values, *map(adapter.signature, arrays)))
    except Exception:  # noqa: BLE001
        return False
    return True


def are_plain(arrays: tuple[Any, ...]) -> bool:
    """Whether all of these are plain arrays of one framework, or None."""
    try:
        return backend_of(tuple([type(array) for array in arrays if array is not None]))[1]
    except BackendError:
        return False


def _ready_for(
    adapter: Adapter,
    translation: Translation,
    written: str | Labels,
    arrays: Sequence[Array],
    out: Array | None,
    options: dict[str, Any],
) -> Run:
    """The function for these arrays and keywords; see :func:`ready`."""
    if effort.is_set and "effort" not in options:
        options = {**options, "effort": effort.get_effort()}
    scale = None
    if "alpha" in options or "beta" in options:
        if options.get("semiring") is not None or options.get("strip_exponent"):
            raise Uncacheable  # neither has factors
        options = dict(options)
        try:
            scale = factors.factors_of(options.pop("alpha", None), options.pop("beta", None), out)
        except (TypeError, ValueError) as error:
            raise Uncacheable from error
        if scale is not None:
            options["alpha"], options["beta"] = scale.kinds
    optimize = options.get("optimize")
    if type(optimize) is list or type(optimize) is tuple:
        # A path as a key: bytes that tell 0, 0.0 and False apart. Values of other types than Python's own have none.
        try:
            options = {**options, "optimize": dumps(optimize, 2)}
        except ValueError as error:
            raise Uncacheable from error
    elif type(optimize) is bytes:
        raise Uncacheable  # these bytes are no path, and a path is looked up by its bytes
    signatures = map(adapter.signature, arrays)
    if out is None:
        run = ready(adapter, translation, written, *signatures, **options)
    else:
        run = ready(adapter, translation, written, *signatures, out=adapter.signature(out), **options)
    return run if scale is None else partial(run, scale)


def _split_sublists(first: Any, others: Sequence[Any]) -> tuple[Labels, Sequence[Any]]:
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
            labels.append(tuple(each))
        else:
            return _split_names(first, others)
        is_sublist = not is_sublist
    if is_sublist:
        output = arrays.pop()
        if type(output) is not list and type(output) is not tuple:
            return _split_names(first, others)
        labels.append(tuple(output))
    return tuple(labels), arrays


def _split_names(first: Any, others: Sequence[Any]) -> tuple[Labels, Sequence[Any]]:
    """The sublists and the arrays of a call such as ``einsum(x, w, "batch d, d out -> batch out")``."""
    *arrays, text = first, *others
    if type(text) is not str or "->" not in text:
        raise Uncacheable
    sublists, output = names_as_sublists(text, len(arrays))
    return (*sublists, output), arrays


@cached("calls")
def _ready_plain(adapter: Adapter, translation: Translation, equation: str, *signatures: Signature) -> Run:
    """The function for operands of these signatures and an equation in text form, without keywords.

    A look-up need not tell types of values apart: signatures begin with the type of the array, and two of one type have
    values of the same types.
    """
    return _made_ready(adapter, translation, equation, *signatures)


def _made_ready(
    adapter: Adapter,
    translation: Translation,
    written: str | Labels,
    *signatures: Signature,
    out: Signature | None = None,
    alpha: str = "",
    beta: str = "",
    **options: Any,
) -> Run:
    """The function for operands, and ``out``, of these signatures; see :func:`delivery`.

    ``adapter`` serves the first array. A path in ``optimize`` is marshalled. ``alpha`` and ``beta`` are the kinds of
    these factors, both empty for a call without them.

    Raises:
        Uncacheable: such calls have to be checked every time.
        EinsumxError: the call is wrong.
    """
    check_plain(adapter, signatures, out)
    if isinstance(options.get("optimize"), bytes):
        options["optimize"] = _unmarshalled(options["optimize"])
    try:
        keywords = translation(adapter, options)
        order, planned = _checked(adapter, keywords) if keywords else ("K", DEFAULT)
    except (TypeError, ValueError) as error:
        raise Uncacheable from error
    equation = _as_written(written, len(signatures))
    if not keywords and out is None and not alpha:
        run = direct_run(adapter, equation, signatures)
        if run is not None:
            return run
    prepared = from_signatures(adapter, equation, signatures, planned)
    if out is None and order == "K" and not alpha:
        return prepared.run
    if (alpha and planned.semiring is not None) or ((alpha or out is not None) and planned.strip_exponent):
        raise Uncacheable
    kinds = (alpha, beta) if alpha else None
    try:
        return delivery(adapter, prepared, signatures[0], Delivery(order, planned.casting, out, kinds))
    except ValueError as error:
        raise Uncacheable from error


ready = cached("forms")(_made_ready)


def _unmarshalled(path: bytes) -> Any:
    """A marshalled path; Uncacheable if it contained bytes or arrays, which are marshalled as bytes."""
    steps = loads(path)
    for step in steps:
        if bytes in map(type, step if isinstance(step, list | tuple) else [step]):
            raise Uncacheable
    return steps


def _as_written(written: str | Labels, count: int) -> Written:
    if isinstance(written, str):
        return written
    return written[:count], written[count] if len(written) > count else None


def _checked(adapter: Adapter, keywords: Mapping[str, Any]) -> tuple[Order, Options]:
    """The order of the result, and the keywords that a plan depends on.

    Raises:
        Uncacheable: their meaning may change between calls, or another keyword is set.
        ValueError: a keyword needs a memory limit.
    """
    request = Request("", (), **keywords)
    request.check_unlimited()
    if (
        request.memory_limit is not None
        or (request.adapter or adapter).name != adapter.name
        or type(request.optimize) not in (str, bool, list, tuple, type(None))
        or not _is_constant(adapter, request.dtype)
        or not _is_constant(adapter, request.preferred_element_type)
        or not _is_constant(adapter, request.accumulate)
    ):
        raise Uncacheable
    return request.order, request.options(adapter)


def _is_constant(adapter: Adapter, dtype: Any) -> bool:
    """Whether a value of ``dtype=`` always means the same dtype."""
    if dtype is None:
        return True
    if not adapter.constant_dtypes:
        return False
    kind: type = dtype if isinstance(dtype, type) else type(dtype)
    return kind in (str, bool, int, float, complex) or top_package(kind.__module__) in ("numpy", adapter.module)
