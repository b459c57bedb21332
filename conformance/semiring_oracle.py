"""The expected results of contractions in semirings: every term by a broadcast, then one reduction, in ``longdouble``.

As in :mod:`einsumx.conformance.kit.oracle`, no einsum is called, and nothing is shared with the planner.

The bounds follow from rounding alone. A term of ``p`` factors has ``p - 1`` roundings, and a maximum or a minimum has
none, so that its error is at most the largest error of a term. A log-sum-exp is computed in at most ``2p`` steps. Its
derivatives are weights that add up to 1, so that errors of the terms do not grow in later steps. Each step shifts its
terms, which are at most ``M``; takes exponentials and a logarithm, within 4 units in the last place; and adds ``n``
terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod
from typing import Any

import numpy as np

from einsumx.conformance.kit.oracle import FLOATS, Expected, indices_in, inner_dtype, resolved
from einsumx.semirings import Semiring


@dataclass(frozen=True)
class Terms:
    """All terms of a contraction in a semiring.

    Attributes:
        semiring: the semiring.
        arrays: the operands in longdouble, or bool.
        indices: for each operand, its indices in the space of all labels.
        sizes: the sizes of all labels, those of the output first.
        rank: the number of the output's labels.
        dtype: the name of the result's dtype.
    """

    semiring: Semiring
    arrays: list[Any]
    indices: list[tuple[Any, ...]]
    sizes: dict[Any, int]
    rank: int
    dtype: str

    @property
    def space(self) -> tuple[int, ...]:
        """The sizes of all labels."""
        return tuple(self.sizes.values())

    @cached_property
    def factors(self) -> list[Any]:
        """The element of each operand in each term."""
        return [np.broadcast_to(array[index], self.space) for array, index in zip(self.arrays, self.indices)]

    @cached_property
    def products(self) -> Any:
        """The terms, with the axes of the output and then those of the sum."""
        with np.errstate(all="ignore"):
            return reduce(_function(self.semiring.multiply), self.factors)

    @property
    def summed(self) -> tuple[int, ...]:
        """The axes of the sum."""
        return tuple(range(self.rank, len(self.space)))

    def over(self, result: Any) -> Any:
        """An array of the output's shape, to broadcast with the terms."""
        return np.reshape(result, self.space[: self.rank] + (1,) * len(self.summed))

    @cached_property
    def values(self) -> Any:
        """The result."""
        if not prod(self.space[self.rank :]):
            return np.full(self.space[: self.rank], self.semiring.zero, self.products.dtype)
        with np.errstate(all="ignore"):
            if self.semiring.add != "logaddexp":
                return np.asarray(_function(self.semiring.add).reduce(self.products, axis=self.summed))
            largest = self.products.max(axis=self.summed)
            shift = np.where(np.isfinite(largest), largest, 0)
            return np.log(np.exp(self.products - self.over(shift)).sum(axis=self.summed)) + shift

    @cached_property
    def bound(self) -> Any:
        """The largest error of each element."""
        if self.semiring.is_boolean:
            return np.zeros(self.space[: self.rank])
        eps, _, tiny = FLOATS[self.dtype]
        count, terms = len(self.arrays), prod(self.space[self.rank :])
        with np.errstate(all="ignore"):
            if self.semiring.multiply == "multiply":
                sizes = abs(self.products)
            else:
                sizes = np.asarray(sum(np.where(np.isfinite(factor), abs(factor), 0) for factor in self.factors))
            largest = np.where(np.isfinite(sizes), sizes, 0).max(axis=self.summed, initial=0)
        if self.semiring.add == "logaddexp" and count + terms > 2:
            inner = FLOATS[inner_dtype(self.dtype)][0]
            step = inner * (12 * (largest + np.log(max(terms, 1))) + terms + 10)
            rounding = np.where(np.isfinite(self.values), abs(self.values), 0) * eps / 2
            return 2 * count * step + rounding
        if self.semiring.multiply in ("maximum", "minimum") or count == 1:
            return np.zeros_like(largest)
        return (count - 1) * eps * largest + tiny

    @cached_property
    def weights(self) -> Any:
        """The derivative of the result by each term: softmax weights, or equal parts for the terms that attain it."""
        with np.errstate(all="ignore"):
            if self.semiring.add == "logaddexp":
                weights = np.exp(self.products - self.over(self.values))
                return np.where(np.isfinite(weights), weights, 0)  # a sum of minus infinities has derivatives of 0
            attains = self.products == self.over(self.values)
            return attains / attains.sum(axis=self.summed, keepdims=True)

    def gradient(self, by: int, cotangent: Any) -> Expected:
        """The derivative by an operand, contracted with an array of the output's shape."""
        weights = self.weights * self.over(np.asarray(cotangent, np.longdouble)) * self._of_factor(by)
        return self._gathered(by, weights, abs(weights), 1)

    def second(self, by: int, cotangent: Any, direction: Any, then: int) -> Expected:
        """The derivative by operand ``then`` of the gradient by operand ``by`` contracted with ``direction``.

        For log-sum-exps of sums, the derivative of a weight by a term is the weight times
        (1 or 0, minus that term's weight).
        """
        along = np.broadcast_to(np.asarray(direction, np.longdouble)[self.indices[by]], self.space)
        weights = self.weights * self.over(np.asarray(cotangent, np.longdouble))
        mean = (self.weights * along).sum(axis=self.summed, keepdims=True)
        mean_size = (self.weights * abs(along)).sum(axis=self.summed, keepdims=True)
        return self._gathered(then, weights * (along - mean), abs(weights) * (abs(along) + mean_size), 2)

    def _of_factor(self, by: int) -> Any:
        """The derivative of each term by one of its factors."""
        others = [factor for place, factor in enumerate(self.factors) if place != by]
        match self.semiring.multiply:
            case "add":
                return np.longdouble(1)
            case "multiply":
                return reduce(np.multiply, others, np.longdouble(1))
            case _:
                return self.factors[by] == self.products

    def _gathered(self, by: int, points: Any, sizes: Any, order: int) -> Expected:
        shape = self.arrays[by].shape
        places = tuple(np.broadcast_to(index, self.space) for index in self.indices[by])
        gradient, magnitude = np.zeros(shape, np.longdouble), np.zeros(shape, np.longdouble)
        np.add.at(gradient, places, np.broadcast_to(points, self.space))
        np.add.at(magnitude, places, np.broadcast_to(sizes, self.space))
        eps, _, tiny = FLOATS[self.dtype]
        inner = FLOATS[inner_dtype(self.dtype)][0]
        relative = order * inner * (prod(self.space) + 2 * len(self.arrays) + 8)
        if self.semiring.add == "logaddexp":  # the errors of terms and results within exponentials
            relative += order * 2 * float(self.bound.max(initial=0))
        bound = relative * magnitude + eps / 2 * abs(gradient) + tiny
        return Expected(gradient, magnitude, prod(self.space), len(self.arrays), self.dtype, bound=bound)


def _function(name: str) -> Any:
    """NumPy's function for a semiring's sum or product."""
    return getattr(np, {"and": "logical_and", "or": "logical_or"}.get(name, name))


def expect_in(semiring: Semiring, equation: str, hosts: Sequence[Any], dtype: str) -> Expected:
    """The result that a contraction must have in a semiring.

    Args:
        semiring: any.
        equation: text.
        hosts: NumPy arrays; bfloat16 as float32.
        dtype: the name of the result's dtype.

    >>> from einsumx.semirings import max_plus
    >>> hosts = [np.array([1.0, 2.0]), np.array([5.0, 3.0])]
    >>> float(expect_in(max_plus, "i,i->", hosts, "float64").values)
    6.0
    """
    terms = terms_in(semiring, equation, hosts, dtype)
    return Expected(terms.values, abs(terms.values), 1, len(hosts), dtype, bound=terms.bound)


def terms_in(semiring: Semiring, equation: str, hosts: Sequence[Any], dtype: str) -> Terms:
    """The terms of a contraction, with the arguments of :func:`expect_in`."""
    sum_ = resolved((equation, *hosts), "bool" if semiring.is_boolean else "longdouble")
    labels = list(dict.fromkeys([*sum_.output, *sum_.sizes]))
    indices = [indices_in(array, term, labels, sum_.ranges) for array, term in zip(sum_.arrays, sum_.terms)]
    sizes = {label: sum_.sizes[label] for label in labels}
    return Terms(semiring, sum_.arrays, indices, sizes, len(sum_.output), dtype)
