"""The path of the least arithmetic, for ``optimize="optimal"`` and ``"branch-all"``.

opt_einsum's functions of these names try every order, which takes minutes for ten operands. The least arithmetic of a
set of operands follows from that of its parts, so it is enough to look at every way to cut every set in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, prod
from typing import Any

from einsumx.imports import LazyModule

_optimizers: Any = LazyModule("opt_einsum.paths")

__all__ = ["least_path"]

_MOST = 12
"""The most operands of which all sets are looked at, in about half a second."""


def least_path(
    inputs: Sequence[frozenset[int]], output: frozenset[int], sizes: Mapping[int, int], memory_limit: None = None
) -> Sequence[tuple[int, ...]]:
    """A path of the least arithmetic, as opt_einsum counts it: multiplications, and additions for shared labels.

    Of more than 12 operands, it is the least of the paths without outer products.

    >>> least_path([frozenset({0, 1}), frozenset({1, 2}), frozenset({2})], frozenset({0}), {0: 5, 1: 6, 2: 7})
    [(1, 2), (0, 1)]
    """
    if len(inputs) > _MOST:
        path: Sequence[tuple[int, ...]] = _optimizers.get_path_fn("dp")(list(inputs), output, sizes, memory_limit)
        return path
    terms = [sum([1 << label for label in term]) for term in inputs]
    cuts = _best_cuts(terms, sum([1 << label for label in output]), sizes)
    left = [1 << place for place in range(len(terms))]
    return list(_steps((1 << len(terms)) - 1, cuts, left))


def _best_cuts(terms: Sequence[int], output: int, sizes: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """For each set of two terms or more, as bits, the two sets whose results are contracted last.

    Args:
        terms, output: their labels, as bits.
        sizes: of the labels.
    """
    everything = (1 << len(terms)) - 1
    spanned = [0] * (everything + 1)
    for place, term in enumerate(terms):
        for chosen in range(1 << place, 2 << place):
            spanned[chosen] = spanned[chosen ^ 1 << place] | term
    labels = [spanned[chosen] & (output | spanned[everything ^ chosen]) for chosen in range(everything + 1)]
    for place, term in enumerate(terms):
        labels[1 << place] = term
    work = [0.0] * (everything + 1)
    cuts: dict[int, tuple[int, int]] = {}
    spans: dict[int, int] = {}
    for chosen in range(3, everything + 1):
        others = second = chosen & chosen - 1  # all but the lowest, which is in the first part
        least = inf if second else 0.0
        while second:
            first = chosen ^ second
            total = work[first] + work[second]
            if total < least:
                both = labels[first] | labels[second]
                if both not in spans:
                    spans[both] = prod([size for label, size in sizes.items() if both >> label & 1])
                is_sum = labels[first] & labels[second] & ~labels[chosen]
                total += 2 * spans[both] if is_sum else spans[both]
                if total < least:
                    least, cuts[chosen] = total, (first, second)
            second = second - 1 & others
        work[chosen] = least
    return cuts


def _steps(chosen: int, cuts: Mapping[int, tuple[int, int]], left: list[int]) -> Iterator[tuple[int, int]]:
    """The steps that contract a set; ``left`` has the sets whose results there are, in the order of the path."""
    if chosen in cuts:
        for part in cuts[chosen]:
            yield from _steps(part, cuts, left)
        low, high = sorted(map(left.index, cuts[chosen]))
        del left[high], left[low]
        left.append(chosen)
        yield low, high
