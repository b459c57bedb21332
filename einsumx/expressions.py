"""Expressions: contractions compiled once for their shapes, with constant operands folded in."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, cast, overload

from einsumx.adapters.registry import are_plain, backend_of, get_backend, is_stored, lazy_planner, serving
from einsumx.caches import Uncacheable
from einsumx.errors import BackendError, EinsumxError, EquationError, SizeError, counted, excerpt, shown
from einsumx.imports import LazyModule
from einsumx.ir.bind import planned_sizes
from einsumx.ir.sizes import may_be_equal
from einsumx.measuring.effort import get_effort
from einsumx.planner.path import find_path
from einsumx.runtime.calls import is_key, mode_of
from einsumx.runtime.conversion import arrays_of
from einsumx.runtime.dtype_rules import name_of_dtype
from einsumx.runtime.equations import sized_equation
from einsumx.runtime.prepare import Prepared, from_signatures
from einsumx.runtime.request import ExpressionKeywords, Order, Request, as_order, joined, request_of, taking
from einsumx.runtime.results import Delivery, deliver, delivery
from einsumx.runtime.shapes import as_shapes, shape_of
from einsumx.tracing import between_graphs, inlined, method_between_graphs

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from einsumx import plans
    from einsumx.adapters import facets
    from einsumx.adapters.base import Adapter, Array, Run, Signature
    from einsumx.ir.operand import Path
    from einsumx.plans import Plan
    from einsumx.runtime.signatures import A, NumpyResult, Value
    from einsumx.streaming import fingerprints, readers
else:
    facets = LazyModule("einsumx.adapters.facets")
    plans = LazyModule("einsumx.plans")
    fingerprints = LazyModule("einsumx.streaming.fingerprints")
    readers = LazyModule("einsumx.streaming.readers")


class Expression:
    """A compiled contraction, which :func:`expression` returns. Call it with the operands that are not constant.

    The path is found once. The rest is compiled on the first call with new dtypes, layouts or another framework, and
    cached. Thread-safe.

    Expressions pickle with their path and their constants, as the framework pickles those, and without what was
    compiled. Two are equal if they have the same equation, shapes, path and options, and constants of the same
    framework, dtype and values, bit by bit; Dask's arrays are compared by name. ``copy.copy`` returns the expression
    itself; ``copy.deepcopy`` also copies the constants.
    """

    autograph_info__: ClassVar[tuple[()]] = ()  # by which tf.function leaves the code as it is

    def __init__(self, request: Request, path: Path | None = None) -> None:
        self._written, inputs = request.written, request.operands
        shapes = as_shapes(self._written, inputs)
        self._constants = {slot: array for slot, (array, shape) in enumerate(zip(inputs, shapes)) if shape is None}
        self._adapter = request.adapter
        self._is_lazy = lazy_planner(tuple(self._constants.values())) is not None
        if self._constants and not self._is_lazy:
            self._adapter, arrays = arrays_of(list(self._constants.values()), self._adapter, list(self._constants))
            self._constants = dict(zip(self._constants, arrays))
            for slot, array in self._constants.items():
                if facets.needs_gradient(self._adapter, array):
                    raise BackendError(
                        f"operand {slot} is constant in this expression, but requires a gradient; detach it, or pass "
                        "it with each call"
                    )
                if self._adapter.gradients is not None:
                    self._constants[slot] = self._adapter.gradients.constant(array)
        if len(self._constants) == len(inputs):
            raise EquationError(
                "every operand is constant, so the expression would take no operands; call einsumx.einsum, or pass "
                "shapes, which are tuples such as (2, 3)"
            )
        self._shapes = [_shape(self._constants[slot]) if s is None else s for slot, s in enumerate(shapes)]
        self._variables = [slot for slot in range(len(inputs)) if slot not in self._constants]
        self._sized = sized_equation(self._written, self._shapes)
        self.path: Path = find_path(self._sized, request.optimize) if path is None else path
        # Only the default may lead to another path later, one that was measured.
        self._request = replace(request, operands=(), optimize="auto" if request.is_path_free else self.path)
        self._prepared = lru_cache(maxsize=64)(self._prepare)
        self._ready = lru_cache(maxsize=64, typed=True)(self._run_of)

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"[{shape}]" if slot in self._constants else str(shape) for slot, shape in enumerate(self._shapes)
        )
        return f"<einsumx expression {excerpt(self._sized.named)}  {excerpt(shapes)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        inputs = [self._constants.get(slot, shape) for slot, shape in enumerate(self._shapes)]
        return Expression, (replace(self._request, operands=inputs), self.path)

    def __copy__(self) -> Expression:
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Expression):
            return NotImplemented
        return self is other or (self._identity() == other._identity() and self._has_constants_of(other))

    def __hash__(self) -> int:
        return hash((self._sized, self.path, *self._constants))

    def _identity(self) -> tuple[Any, ...]:
        """Everything but the values of constants that a result depends on."""
        request, adapter = self._request, self._adapter
        keywords = {**request.keywords(), "dtype": name_of_dtype(request.dtype)}
        keywords["accumulate"] = name_of_dtype(request.accumulate)
        kind = request.algebra, request.effort, adapter and adapter.name
        return self._sized, self.path, keywords, kind, *self._constants

    def _has_constants_of(self, other: Expression) -> bool:
        """Whether the constants have the same values; both expressions have them in the same places."""
        return all(_is_same(array, other._constants[slot], self._adapter) for slot, array in self._constants.items())

    @overload
    def __call__(self, *operands: NDArray[Any] | Value, out: Any = None, order: Order = "K") -> NumpyResult: ...

    @overload
    def __call__(self, *operands: A | Value, out: Any = None, order: Order = "K") -> A: ...

    def __call__(self, *operands: Any, out: Array | None = None, order: Order = "K") -> Any:
        """Compute the result for these operands; the keywords are as for :func:`einsumx.einsum`.

        Raises:
            SizeError: the number of operands or their shapes are not the expression's.
            BackendError: as :func:`einsumx.einsum` raises, or the operands and the constants are of two frameworks.
        """
        try:
            if not operands:
                raise Uncacheable
            adapter = serving(type(operands[0]))  # type: ignore[arg-type]
            target = None if out is None else adapter.signature(out)
            mode = None if adapter.is_mode_set is None else mode_of(adapter, operands[0])
            run = self._ready(adapter, order, mode, target, *map(adapter.signature, operands))
        except (EinsumxError, Uncacheable):
            pass  # what follows checks the operands, and raises the error
        except Exception:
            if is_key(operands, (out,), order):
                raise
        else:
            return run(*operands) if out is None else run(out, *operands)
        order = as_order(order)
        lazy_module = lazy_planner((*operands, *self._constants.values()))
        request = replace(self._request, out=out, order=order)
        if lazy_module is not None:
            return lazy_module.einsum(replace(request, operands=self._all_operands(operands)))
        adapter, arrays = self._arrays(operands)
        mode = mode_of(adapter, arrays[0])
        prepared = self._prepared(adapter, self._lasts(adapter), mode, out is not None, *map(adapter.signature, arrays))
        return deliver(adapter, prepared, arrays, request.named(adapter))

    def _compiled(self, *operands: Any, **options: Any) -> Array:
        """What torch.compile traces instead of a call: ``einsum``, which it records as one node."""
        shapes = [self._shapes[slot] for slot in self._variables]
        if len(operands) != len(shapes) or not all(
            may_be_equal(*each) for each in zip(map(shape_of, operands), shapes)
        ):
            raise SizeError(f"{self!r} does not take operands of these shapes; make another expression")
        arrays = {**dict(zip(self._variables, operands)), **self._constants}
        ordered = [arrays[slot] for slot in sorted(arrays)]
        function, first, keywords = self._request.call()
        return function(*first, *joined(self._written, ordered), **keywords, **options)

    inlined(__call__, _compiled)

    @method_between_graphs
    def plan(self, *operands: Any) -> Plan:
        """The plan that a call with these operands runs, constants included; see :func:`einsumx.plan`."""
        lazy_module = lazy_planner((*operands, *self._constants.values()))
        if lazy_module is not None:
            request = replace(self._request, operands=self._all_operands(operands))
            return cast("Plan", plans.as_chunked_plan(lazy_module.planned(request)))
        adapter, arrays = self._arrays(operands)
        mode = mode_of(adapter, arrays[0])
        signatures = map(adapter.signature, arrays)
        return plans.as_plan(self._prepared(adapter, self._lasts(adapter), mode, False, *signatures).program)

    def _all_operands(self, operands: Sequence[Any]) -> list[Any]:
        """The operands of a call and the constants, of which some are lazy."""
        self._check_count(operands)
        for slot, operand in zip(self._variables, operands):
            if hasattr(operand, "shape"):
                self._check_shape(slot, tuple(operand.shape))
        arrays = {**self._constants, **dict(zip(self._variables, operands))}
        return [arrays[slot] for slot in sorted(arrays)]

    def _arrays(self, operands: Sequence[Any]) -> tuple[Adapter, list[Array]]:
        self._check_count(operands)
        arrays = {**self._constants, **dict(zip(self._variables, operands))}
        # Raises if the constants and the operands are of two frameworks; stored operands go with either.
        backend_of(tuple([list if is_stored(arrays[slot]) else type(arrays[slot]) for slot in sorted(arrays)]))
        adapter, own = arrays_of(list(operands), self._adapter, self._variables)
        if self._constants and adapter is not self._adapter:  # raises, if one backend serves both frameworks
            get_backend(adapter.name).of([arrays[slot] for slot in sorted(arrays) if hasattr(arrays[slot], "shape")])
        return adapter, own

    def _check_shape(self, slot: int, shape: tuple[int, ...]) -> None:
        if not may_be_equal(shape, self._shapes[slot]):
            raise SizeError(
                f"operand {slot} has shape {shown(shape)}, but the expression was made for "
                f"{shown(self._shapes[slot])}; make another one\n  {excerpt(self._sized.named)}"
            )

    def _check_count(self, operands: Sequence[Any]) -> None:
        if len(operands) != len(self._variables):
            raise SizeError(f"{self!r} takes {counted(len(self._variables), 'operand')}, not {len(operands)}")

    def _run_of(
        self, adapter: Adapter, order: Any, mode: Hashable, out: Signature | None, *signatures: Signature
    ) -> Run:
        """The function for plain arrays of these signatures, and ``out``; ``adapter`` serves the first operand."""
        if self._is_lazy or not self._lasts(adapter):
            raise Uncacheable  # the call makes a lazy result then, or other calls may fold the constants
        if not are_plain(self._adapter or adapter, signatures if out is None else (*signatures, out)):
            raise Uncacheable
        prepared = self._prepared(adapter, True, mode, out is not None, *signatures)
        wanted = Delivery(as_order(order), self._request.casting, out)
        return delivery(adapter, prepared, signatures[0], wanted)

    def _lasts(self, adapter: Adapter) -> bool:
        """Whether the constants can be folded now for other calls too."""
        return not self._constants or adapter.lasting(list(self._constants.values())) is not None

    def _prepare(
        self, adapter: Adapter, lasts: bool, mode: Hashable, is_written: bool, *signatures: Signature
    ) -> Prepared:
        """The program for operands of these signatures.

        The cache tells apart modes of the framework, and whether the constants are folded for other calls too;
        ``is_written`` if the result goes to an ``out``.
        """
        self._check_count(signatures)
        for slot, signature in zip(self._variables, signatures):
            self._check_shape(slot, tuple(signature[1]))
        all_signatures = dict(zip(self._variables, signatures))
        all_signatures.update((slot, adapter.signature(array)) for slot, array in self._constants.items())
        ordered = [all_signatures[slot] for slot in sorted(all_signatures)]
        request = replace(self._request, is_cast=not is_written).named(adapter)
        return from_signatures(request, adapter, ordered, self._constants)


def _shape(constant: Any) -> tuple[int, ...]:
    """The shape of an array, or of a number or list beside lazy arrays."""
    array = constant if hasattr(constant, "shape") else arrays_of([constant], None)[1][0]
    return planned_sizes(array.shape)


def _is_same(array: Any, other: Any, adapter: Adapter | None) -> bool:
    """Whether two constants have the same dtype, device and values, bit by bit; lazy ones, the same tasks.

    ``adapter`` serves both; None if some constant of their expressions is lazy.
    """
    if array is other:
        return True
    if adapter is None:
        if type(array) is not type(other):
            return False
        lazy_module = lazy_planner((array,))
        if lazy_module is not None:
            return bool(lazy_module.is_same(array, other))
        adapter, (array, other) = arrays_of([array, other], None)
    if array.dtype != other.dtype or adapter.device(array) != adapter.device(other):
        return False
    context = adapter.lasting([array, other])
    if context is None:
        return False  # a trace knows no values
    with context:
        return _digest(array, adapter) == _digest(other, adapter)


def _digest(array: Array, adapter: Adapter) -> str:
    (source,), _ = readers.sources([array], adapter, adapter.device(array))
    return fingerprints.digest([source.host_block(tuple(slice(0, size) for size in array.shape))])


@taking(ExpressionKeywords)
def expression(*operands: Any, **keywords: Unpack[ExpressionKeywords]) -> Expression:
    """Compile a contraction for fixed shapes, to call it many times; the keywords are those of :func:`einsumx.einsum`.

    Its effort is the one that holds now; ``"measure"`` tries the candidates in the first calls of the expression. There
    is no memory limit, because blocks depend on where the operands of each call are.

    Args:
        *operands: as for :func:`einsumx.einsum`, with a shape, a tuple of sizes, in place of each operand that calls
            will pass. Arrays are constants, and everything that depends only on constants is computed once.

    Returns:
        An :class:`Expression`. It is called with the operands that are not constant.

    Raises:
        EinsumxError: as :func:`einsumx.einsum` does. Equation, sizes and path are checked now, not when it is called.

    >>> import numpy as np
    >>> weights = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> layer = expression("bi,ij->bj", (3, 2), weights)
    >>> layer(np.ones((3, 2)))
    array([[4., 6.],
           [4., 6.],
           [4., 6.]])
    """
    return Expression(request_of("expression", operands, keywords, ExpressionKeywords, effort=get_effort()))


between_graphs(expression)
