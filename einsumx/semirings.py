"""Semirings: contractions with other functions in the place of the sum and the product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from einsumx.adapters import hooks
from einsumx.algebra.argmax import ArgmaxResult, attained
from einsumx.algebra.semiring import Addition, Multiplication, SemiringAlgebra
from einsumx.api import OF_SHAPES, computed, planned
from einsumx.expressions import Expression
from einsumx.runtime.calls import cached_first
from einsumx.runtime.request import (
    CommonKeywords,
    Request,
    SemiringKeywords,
    SemiringPlanKeywords,
    fields_of,
    request_of,
    taking,
)
from einsumx.tracing import inlined, method_between_graphs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from einsumx.adapters.base import Adapter
    from einsumx.plans import BlockedPlan, ChunkedPlan, Plan
    from einsumx.runtime.limits import MemoryAmount, MemoryLimit
    from einsumx.runtime.signatures import A, NumpyResult, Value


@dataclass(frozen=True)
class Semiring:
    """Functions in the place of the sum and the product of a contraction, by name, and the contractions with them.

    All but ``boolean`` compute in floating-point numbers. Plans that have a semiring are still data: they print, are
    stored, and run on every framework that has the functions.

    Attributes:
        name: for plans and messages.
        add: the function of two elements that replaces the sum: ``maximum``, ``minimum``, ``logaddexp``, or ``or``.
        multiply: the function that replaces the product, over which ``add`` distributes: ``add`` with the first three,
            ``multiply`` (of numbers that are not negative) or the opposite of ``add`` with the first two, ``and`` with
            ``or``.

    Raises:
        ValueError: the functions are unknown, or do not distribute.

    >>> import numpy as np
    >>> widest = Semiring("widest path", "maximum", "minimum")
    >>> widest.einsum("ij,jk->ik", np.array([[1.0, 5.0]]), np.array([[3.0], [2.0]]))
    array([[2.]])
    """

    name: str
    add: Addition
    multiply: Multiplication
    algebra: SemiringAlgebra = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.__dict__["algebra"] = SemiringAlgebra(self.name, self.add, self.multiply)
        self.__dict__["einsum"] = _cached_first(self)  # each call finds the function here, and not the method

    def __reduce__(self) -> tuple[Any, ...]:
        return Semiring, self.algebra.arguments

    @property
    def zero(self) -> float:
        """The sum of no terms.

        >>> Semiring("min-plus", "minimum", "add").zero
        inf
        """
        return self.algebra.zero

    @property
    def one(self) -> float:
        """The product of no factors.

        >>> Semiring("log", "logaddexp", "add").one
        0.0
        """
        return self.algebra.one

    @property
    def is_boolean(self) -> bool:
        """Whether it computes with truth values, as every framework does for a dtype of bool."""
        return self.algebra.is_boolean

    @overload
    def einsum(self, *operands: NDArray[Any] | Value, **keywords: Unpack[SemiringKeywords]) -> NumpyResult: ...

    @overload
    def einsum(self, *operands: A | Value, **keywords: Unpack[SemiringKeywords]) -> A: ...

    @taking(SemiringKeywords)
    def einsum(self, *operands: Any, **keywords: Unpack[SemiringKeywords]) -> Any:
        """The contraction in this semiring; arguments, results and errors are those of :func:`einsumx.einsum`.

        Raises:
            BackendError: a dtype that does not hold the elements, or a framework without semirings.

        >>> import einsumx, numpy as np
        >>> einsumx.semirings.max_plus.einsum("ij,jk->ik", np.array([[1.0, 5.0]]), np.array([[3.0], [2.0]]))
        array([[7.]])
        """
        return computed(self._request("einsum", operands, keywords, SemiringKeywords))

    @method_between_graphs
    @taking(SemiringPlanKeywords, **OF_SHAPES)
    def plan(
        self,
        *operands: Any,
        memory_limit: MemoryAmount | MemoryLimit | None = None,
        **keywords: Unpack[SemiringPlanKeywords],
    ) -> Plan | BlockedPlan | ChunkedPlan:
        """The plan of a contraction in this semiring; arguments and errors are those of :func:`einsumx.plan`."""
        own = {"memory_limit": memory_limit, "algebra": self.algebra}
        return planned("Semiring.plan", operands, keywords, SemiringPlanKeywords, **own)

    @method_between_graphs
    @taking(CommonKeywords)
    def expression(self, *operands: Any, **keywords: Unpack[CommonKeywords]) -> Expression:
        """A compiled contraction in this semiring; arguments and errors are those of :func:`einsumx.expression`."""
        return Expression(self._request("expression", operands, keywords, CommonKeywords))

    @method_between_graphs
    @taking(CommonKeywords)
    def argmax(self, *operands: Any, **keywords: Unpack[CommonKeywords]) -> ArgmaxResult:
        """The value of a contraction in a semiring of maxima or minima, and where it is attained.

        The most likely states of a model, the path that is shortest: for each element of the result, the position of
        each summed label in a term that is the maximum, or the minimum; in ``boolean``, of a term that is true, and of
        the first one if none is.

        Positions come as one array per label and not as one number per element, as in ``numpy.argmax``, because they
        index the operands as they are: ``a[i, positions["j"]]``.

        If several terms attain the value, the positions are those of one of them, the same in each call with the same
        path and sizes: a step of the path that sums over labels takes the first position of theirs, in the order in
        which they appear in the equation. The terms of the positions equal the value up to the rounding of their sums,
        and exactly if they are added in the order of the path. That is also so for a value of infinity, as of a state
        that is not reachable: the positions are those of one of the terms, all of which are impossible. A value of nan
        comes with those of a term that is nan.

        Memory is needed for all intermediates of the path at once, and for 100 000 terms, or those of one element,
        beside the result. While a program is traced, as by ``jax.jit``, its compiler decides; ``torch.compile`` calls
        the function outside of its graph. There are no gradients of positions; those of the value are einsum's.

        Args:
            *operands: as for :func:`einsumx.einsum`, as are the keywords.
            dtype: that of the value.

        Returns:
            A named tuple ``(value, positions)``. Positions have the dtype int64, or the framework's widest integers:
            int32 on JAX without 64-bit numbers. Axes of an ellipsis that the result lacks have labels of their own
            class.

        Raises:
            EinsumxError: as :func:`einsumx.einsum` does.
            SizeError: a summed label has size 0, so that there is no position; or a size is not known while a program
                is traced.
            BackendError: the framework has no semirings; the operands are Dask arrays.
            ValueError: the sum is ``logaddexp``, to which all terms contribute, so that none attains it.

        >>> import einsumx, numpy as np
        >>> a, b = np.array([[1.0, 5.0, 2.0]]), np.array([[1.0], [0.0], [2.0]])
        >>> value, positions = einsumx.semirings.max_plus.argmax("ij,jk->ik", a, b)
        >>> value, positions
        (array([[5.]]), {'j': array([[1]])})
        """
        return attained(self._request("argmax", operands, keywords, CommonKeywords))

    def _request(self, method: str, operands: Sequence[Any], keywords: Mapping[str, Any], known: type) -> Request:
        return request_of(f"Semiring.{method}", operands, keywords, known, algebra=self.algebra)


def _cached_first(semiring: Semiring) -> Callable[..., Any]:
    """The method ``einsum`` of a semiring, which tries the cache of calls first."""

    def of_semiring(_: Adapter, options: dict[str, Any]) -> Mapping[str, Any]:
        return {**fields_of("Semiring.einsum", options, SemiringKeywords), "algebra": semiring.algebra}

    def traced(*operands: Any, **options: Any) -> Any:
        """What torch.compile traces instead."""
        return hooks.in_semiring(*semiring.algebra.arguments, *operands, **options)

    function: Callable[..., Any] = cached_first(semiring.einsum, of_semiring)
    function.__dict__.pop("__signature__")  # which has self
    inlined(function, traced)
    return function


max_plus = Semiring("max-plus", "maximum", "add")
"""The best sum: the most likely states of a model, the critical path."""

min_plus = Semiring("min-plus", "minimum", "add")
"""The least sum: shortest paths."""

max_times = Semiring("max-times", "maximum", "multiply")
"""The largest product of numbers that are not negative."""

log = Semiring("log", "logaddexp", "add")
"""Sums of products, of numbers given by their logarithms."""

boolean = Semiring("boolean", "or", "and")
"""Whether any product is true; nonzero is true."""

BUILTIN = {each.name: each for each in (max_plus, min_plus, max_times, log, boolean)}
"""The semirings that have names."""
