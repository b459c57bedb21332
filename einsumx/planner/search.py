"""The default search for a path, which lasts as long as it pays. The number of tries depends on the contraction alone.

Paths are priced by estimated seconds. The first candidate is the one of opt_einsum's greedy search. As long as the
search has cost less than a share of what the best path takes beyond the overhead of its calls, others are tried: the
orders in which the operands are written, a sweep from one end, the greedy search with other weights and with noise, and
the best order of each small part of the best path. The last two are cotengra's ideas (arXiv:2002.01935); its own
searches go further, and are there by ``optimize="cotengra"``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from importlib import import_module
from math import inf, log
from typing import Any, NamedTuple, TypeAlias

from einsumx.dtypes import itemsize
from einsumx.imports import LazyModule
from einsumx.ir.cost_model import relative_work
from einsumx.ir.operand import Path
from einsumx.ir.traits import Traits

_optimizers: Any = LazyModule("opt_einsum.paths")


class Pace(NamedTuple):
    """The cost of contracting two terms, in seconds.

    Attributes:
        call: the overhead of a step.
        multiply_add: the time of a multiply-add.
        element: the time to read or write an element.
        room: the most elements that the two terms of a step and its result may have; paths that need more are rejected.
    """

    call: float
    multiply_add: float
    element: float
    room: float = inf


_CALLS, _PASSES = 5, 2
"""The calls of a step, and how often each element is read or written: by copies and by the product."""


def pace_of(traits: Traits, dtype: str) -> Pace:
    """The cost of steps in ``dtype`` on a framework."""
    rates = traits.rates
    return Pace(
        _CALLS * rates.call,
        relative_work(dtype, rates) / rates.gemm,
        _PASSES * itemsize(dtype) / rates.permute,
    )


TYPICAL = Pace(call=6e-6, multiply_add=4e-11, element=2e-9)
"""That of float64 on a typical processor."""


Merge: TypeAlias = "tuple[int, int]"
"""Two nodes whose contraction is the next node. The terms are the first nodes, in their order."""


class Tree:
    """A way to contract a network.

    Attributes:
        seconds: estimated; infinity if a step needs too much memory.
        elements: the most in one step: of its two terms and its result.
        merges: the steps.
        labels: of each node, as bits.
        name: of the search that found it.
    """

    __slots__ = ("elements", "labels", "merges", "name", "seconds")

    def __init__(
        self, seconds: float, elements: float, merges: Sequence[Merge], labels: Sequence[int], name: str
    ) -> None:
        self.seconds, self.elements, self.merges, self.labels, self.name = seconds, elements, merges, labels, name


class Network:
    """Terms with their labels as sets of bits.

    Args:
        inputs: the labels of each term.
        output: the labels of the result.
        sizes: of all labels.
        pace: the cost of a step.

    Attributes:
        terms: the labels of each term, without those that nothing else has.
        output: the labels of the result.
        near: for each term, those that share a label with it, as bits.
        several: the labels that at least three have, terms or the output. Others are summed where two terms meet.
        uses: how many have each of these.
        spans: how many elements sets of labels span, as far as :meth:`span` was asked.
    """

    def __init__(
        self, inputs: Sequence[Collection[int]], output: Collection[int], sizes: Sequence[int], pace: Pace
    ) -> None:
        self.pace = pace
        self._sizes = list(map(float, sizes))
        self.spans = {0: 1.0}
        self.output = sum([1 << label for label in output])
        self.near: list[int] = []
        self.terms: list[int] = []
        self.several = 0
        self.uses: dict[int, int] = {}
        owners = [0] * len(sizes)
        for number, term in enumerate(inputs):
            for label in term:
                owners[label] |= 1 << number
        kept = set(output)
        for number, term in enumerate(inputs):
            labels = near = 0
            for label in term:
                others = owners[label] ^ 1 << number
                if others or label in kept:
                    near |= others
                    labels |= 1 << label
            self.terms.append(labels)
            self.near.append(near)
        for label, terms in enumerate(owners):
            if (label in kept) + terms.bit_count() > 2:
                self.several |= 1 << label
                self.uses[label] = (label in kept) + terms.bit_count()

    def span(self, labels: int) -> float:
        """How many elements labels span."""
        span = self.spans.get(labels)
        if span is None:
            span, rest, sizes = 1.0, labels, self._sizes
            while rest:
                low = rest & -rest
                span *= sizes[low.bit_length() - 1]
                rest ^= low
            self.spans[labels] = span
        return span

    def seconds(self, lhs: int, rhs: int, result: int) -> float:
        """The time of a step."""
        call, multiply_add, element, room = self.pace
        elements = self.elements(lhs, rhs, result)
        return call + self.span(lhs | rhs) * multiply_add + elements * element if elements <= room else inf

    def elements(self, lhs: int, rhs: int, result: int) -> float:
        """How many the two terms of a step and its result have."""
        span = self.span
        return span(lhs) + span(rhs) + span(result)

    def tree(self, merges: Sequence[Merge], name: str) -> Tree:
        """The labels of all nodes, and the seconds."""
        labels, seconds, most, left = list(self.terms), 0.0, 0.0, Left(self)
        for first, second in merges:
            lhs, rhs = labels[first], labels[second]
            result = left.contract(lhs, rhs)
            labels.append(result)
            seconds += self.seconds(lhs, rhs, result)
            most = max(most, self.elements(lhs, rhs, result))
        return Tree(seconds, most, merges, labels, name)


class Left:
    """The labels that at least three have, among the terms that are not contracted yet and the output."""

    __slots__ = ("_uses", "several")

    def __init__(self, network: Network) -> None:
        self.several, self._uses = network.several, dict(network.uses)

    def contract(self, lhs: int, rhs: int) -> int:
        """The labels of the result of two terms, which leave."""
        shared = lhs & rhs & self.several
        if shared:
            for label in bits(shared):
                self._uses[label] -= 1
                if self._uses[label] < 3:
                    self.several ^= 1 << label
        return (lhs ^ rhs) | shared


def bits(labels: int) -> Iterator[int]:
    """The members of a set of bits, in order.

    >>> list(bits(0b1010))
    [1, 3]
    """
    while labels:
        low = labels & -labels
        yield low.bit_length() - 1
        labels ^= low


# -- searches -------------------------------------------------------------------------------------------------------


def greedy(
    network: Network, weight: float = 1.0, noise: float = 0.0, random: Callable[[], float] | None = None
) -> list[Merge]:
    """Contract the two neighbours whose result adds the least to the elements in memory, again and again.

    Args:
        network: the terms.
        weight: how much the elements of the two terms count beside those of their result.
        noise: how far chance changes the costs, which then count by their logarithms.
        random: returns the next number from 0 to 1, for the noise.
    """
    count, span, spanned = len(network.terms), network.span, network.spans.get
    terms, near, left = list(network.terms), list(network.near), Left(network)
    spans = list(map(span, terms))
    heap: list[tuple[float, int, int]] = []
    alive = (1 << count) - 1
    merges: list[Merge] = []

    def offer(number: int, others: int) -> None:
        """Put the products of a term with others, as bits, on the heap."""
        own, least, several = terms[number], weight * spans[number], left.several
        while others:
            low = others & -others
            others ^= low
            other = low.bit_length() - 1
            term = terms[other]
            result = own ^ term | own & term & several
            cost = (spanned(result) or span(result)) - weight * spans[other] - least
            heappush(heap, (_moved(cost, noise, random()) if random else cost, other, number))

    for number in range(count):
        offer(number, near[number] & (1 << number) - 1)
    for number in range(count, 2 * count - 1):
        while heap:
            _, first, second = heappop(heap)
            if alive >> first & alive >> second & 1:
                break
        else:  # no two terms share a label
            first, second = sorted(sorted(bits(alive), key=spans.__getitem__)[:2])
        merges.append((first, second))
        result = left.contract(terms[first], terms[second])
        terms.append(result)
        spans.append(spanned(result) or span(result))
        alive ^= 1 << first | 1 << second | 1 << number
        others = (near[first] | near[second]) & alive
        near.append(others)
        for other in bits(others):
            near[other] |= 1 << number
        offer(number, others)
    return merges


def _moved(cost: float, noise: float, chance: float) -> float:
    """The logarithm of a cost, moved by chance (Gumbel's distribution); negative for what a negative cost spares."""
    return (log(cost + 1.0) if cost >= 0.0 else -log(1.0 - cost)) + noise * log(-log(chance or 0.5))


def swept(network: Network) -> list[Merge]:
    """Contract one term with its neighbours, then with theirs, and so on, from one end: along chains and strips.

    Of the terms at the same distance from the end, the one whose result is the smallest comes first.
    """
    terms, span, left = network.terms, network.span, Left(network)
    start = list(_levels(network, 0))[-1]
    level = _levels(network, start)
    rest = (1 << len(terms)) - 1 ^ 1 << start
    own, around, node = terms[start], network.near[start], start
    merges: list[Merge] = []
    while rest:
        nearest = list(bits(around & rest or rest))
        first = min(map(level.__getitem__, nearest))
        sizes = {
            span((own ^ terms[other]) | (own & terms[other] & left.several)): other
            for other in reversed(nearest)
            if level[other] == first
        }
        other = sizes[min(sizes)]
        own = left.contract(own, terms[other])
        around |= network.near[other]
        rest ^= 1 << other
        merges.append((other, node))
        node = len(terms) + len(merges) - 1
    return merges


def _levels(network: Network, start: int) -> dict[int, int]:
    """The distance of each term from one of them, the nearest first, and last those that share nothing with these."""
    levels, seen, border, distance = {start: 0}, 1 << start, network.near[start], 1
    every = (1 << len(network.terms)) - 1
    while seen != every:
        border = border & ~seen or every & ~seen
        levels.update(dict.fromkeys(bits(border), distance))
        seen |= border
        around = 0
        for term in bits(border):
            around |= network.near[term]
        border, distance = around, distance + 1
    return levels


def in_order(count: int, *, is_reversed: bool = False) -> list[Merge]:
    """Contract the terms one after the other, from the first or from the last.

    >>> in_order(4), in_order(4, is_reversed=True)
    ([(1, 0), (2, 4), (3, 5)], [(2, 3), (1, 4), (0, 5)])
    """
    first, *others = range(count)[::-1] if is_reversed else range(count)
    return list(zip(others, (first, *range(count, 2 * count - 2))))


def improved(network: Network, tree: Tree, width: int) -> Tree:
    """The tree with each part of at most ``width`` leaves in the best order, from the last step to the first."""
    count = len(network.terms)
    labels = dict(enumerate(tree.labels))
    children = dict(enumerate(tree.merges, count))
    root = count + len(tree.merges) - 1
    pending, fresh, is_better = [root], root + 1, False
    while pending:
        node = pending.pop()
        leaves, inner = _opened(network, labels, children, node, width)
        pending += [leaf for leaf in leaves if leaf in children]
        if len(leaves) < 3:
            continue
        parts = [(*children[each], each) for each in inner]
        now = sum([network.seconds(labels[lhs], labels[rhs], labels[each]) for lhs, rhs, each in parts])
        seconds, steps = exact(network, [labels[leaf] for leaf in leaves], labels[node])
        if seconds < now * _LESS:
            is_better = True
            for first, second, result in steps:
                leaves.append(fresh if len(leaves) < 2 * len(inner) else node)
                children[leaves[-1]], labels[leaves[-1]] = (leaves[first], leaves[second]), result
                fresh += 1
    return network.tree(_numbered(children, root, count), tree.name) if is_better else tree


_LESS = 1 - 1e-9
"""A time that is less by a smaller share is less by rounding alone."""


def _opened(
    network: Network, labels: dict[int, int], children: dict[int, Merge], node: int, width: int
) -> tuple[list[int], list[int]]:
    """The leaves of the part below a node, the largest opened until there are ``width``, and its inner nodes."""
    leaves, inner = [node], []
    while len(leaves) < width:
        largest = max(leaves, key=lambda leaf: network.span(labels[leaf]) if leaf in children else 0.0)
        if largest not in children:
            break
        leaves.remove(largest)
        leaves += children[largest]
        inner.append(largest)
    return leaves, inner


def _numbered(children: dict[int, Merge], root: int, count: int) -> list[Merge]:
    """The steps to a node, in an order in which each follows those that it needs."""
    number = {leaf: leaf for leaf in range(count)}
    inner = [root]
    for node in inner:  # which grows: parents come before their children
        inner += [child for child in children[node] if child >= count]
    for node in reversed(inner):
        number[node] = len(number)
    return [(number[first], number[second]) for first, second in (children[node] for node in reversed(inner))]


def exact(network: Network, terms: Sequence[int], result: int) -> tuple[float, list[tuple[int, int, int]]]:
    """The least seconds of all orders for a few terms, by dynamic programming over their subsets.

    Args:
        network: has the sizes and the cost of a step.
        terms: their labels.
        result: the labels that the result keeps.

    Returns:
        The seconds, and for each step two nodes, and the labels of their result.
    """
    every = (1 << len(terms)) - 1
    unions = [0] * (every + 1)
    for group in range(1, every + 1):
        low = group & -group
        unions[group] = unions[group ^ low] | terms[low.bit_length() - 1]
    labels = [unions[group] & (result | unions[every ^ group]) for group in range(every + 1)]
    for number, term in enumerate(terms):
        labels[1 << number] = term
    least = [0.0] * (every + 1)
    parts = [0] * (every + 1)
    step = network.seconds
    for group in range(3, every + 1):
        rest = group & (group - 1)  # the other side has the lowest term
        part, best = rest, inf
        while part:
            before = least[part] + least[group ^ part]
            if before < best:
                seconds = before + step(labels[part], labels[group ^ part], labels[group])
                if seconds < best:
                    best, parts[group] = seconds, part
            part = part - 1 & rest
        if rest:
            least[group] = best
    steps: list[tuple[int, int, int]] = []

    def node(group: int) -> int:
        part = parts[group]
        if not part:
            return group.bit_length() - 1
        steps.append((node(group ^ part), node(part), labels[group]))
        return len(terms) + len(steps) - 1

    if least[every] < inf:
        node(every)
    return least[every], steps


class _Arithmetic(Network):
    """Terms whose steps are priced by multiplications, and as many additions where labels of both are summed."""

    def seconds(self, lhs: int, rhs: int, result: int) -> float:
        return self.span(lhs | rhs) * (2 if lhs & rhs & ~result else 1)


_MOST_OF_LEAST_ARITHMETIC = 12
"""The most operands of which all orders are compared, in about half a second."""


def least_path(
    inputs: Sequence[frozenset[int]], output: frozenset[int], sizes: Mapping[int, int], memory_limit: None = None
) -> Sequence[tuple[int, ...]]:
    """A path of the least arithmetic, as opt_einsum counts it, for ``optimize="optimal"`` and ``"branch-all"``.

    opt_einsum's functions of these names try every order, which takes minutes for ten operands. Of more than 12
    operands, it is the least of the paths without outer products.

    >>> least_path([frozenset({0, 1}), frozenset({1, 2}), frozenset({2})], frozenset({0}), {0: 5, 1: 6, 2: 7})
    ((1, 2), (0, 1))
    """
    if len(inputs) > _MOST_OF_LEAST_ARITHMETIC:
        path: Sequence[tuple[int, ...]] = _optimizers.get_path_fn("dp")(list(inputs), output, sizes, memory_limit)
        return path
    every = [sizes.get(label, 1) for label in range(max(sizes, default=0) + 1)]
    network = _Arithmetic(inputs, output, every, TYPICAL)
    _, steps = exact(network, [sum([1 << label for label in term]) for term in inputs], network.output)
    return as_path([step[:2] for step in steps], len(inputs))


# -- how long to search ---------------------------------------------------------------------------------------------

_SHARE = 0.25
"""The share of a path's seconds that the search for a better one may take."""

_STEP, _SPLIT = 25e-6, 1.5e-6
"""Seconds of the search itself: of a greedy one for each term, and of an exact one for each split of a subset."""

MOST_OF_ALL_ORDERS = 4
"""The most operands of which every order is tried."""

_MOST = 256
"""The most tries: beyond them lie the long searches of cotengra."""


def search(network: Network) -> Tree:
    """The best path that is found in a time that pays."""
    count = len(network.terms)
    if count <= MOST_OF_ALL_ORDERS:
        seconds, steps = exact(network, network.terms, network.output)
        if seconds < inf:
            return network.tree([step[:2] for step in steps], "all orders")
    best = network.tree(greedy(network), "greedy")
    calls = (count - 1) * network.pace.call
    spent = 0.0
    for seconds, attempt in _attempts(network):
        spent += seconds
        if spent > _SHARE * (best.seconds - calls):
            break
        best = min(best, attempt(best), key=lambda tree: tree.seconds)
    return best


Attempt: TypeAlias = "tuple[float, Callable[[Tree], Tree]]"
"""The estimated seconds of a try, and the try, a function of the best tree so far."""


def _attempts(network: Network) -> Iterator[Attempt]:
    """The tries, in order."""
    count = len(network.terms)
    once = count * _STEP

    def better(width: int) -> Attempt:
        return count / width * 3.0**width / 2 * _SPLIT, lambda best: improved(network, best, width)

    yield once / 5, lambda _: network.tree(in_order(count), "in the order as written")
    yield once / 5, lambda _: network.tree(in_order(count, is_reversed=True), "in reverse order")
    yield once, lambda _: network.tree(swept(network), "sweep")
    yield better(_NARROW)
    random = import_module("random").Random(0)

    def noisy(_: Tree) -> Tree:
        merges = greedy(network, random.choice(_WEIGHTS), random.choice(_NOISES), random.random)
        return improved(network, network.tree(merges, "greedy with noise"), _NARROW)

    for number in range(_MOST):
        yield once + better(_NARROW)[0], noisy
        if number % 16 == 15:
            yield better(_WIDE)


_NARROW, _WIDE = 5, 8
"""The leaves of the parts that are ordered anew: after each try, and of the best tree once in a while."""

_WEIGHTS, _NOISES = (0.0, 0.5, 1.0, 1.0, 2.0), (0.02, 0.1, 0.3, 1.0)
"""The weights and the noise of greedy searches, of which chance takes one each."""


def as_merges(path: Path, count: int) -> list[Merge]:
    """The steps of a path of pairs by nodes; those of single terms are left out.

    >>> as_merges(((1, 2), (0, 1)), 3)
    [(1, 2), (0, 3)]
    """
    left, merges = list(range(count)), []
    for step in path:
        if len(step) == 2:
            low, high = step
            second, first = left.pop(high), left.pop(low)
            merges.append((first, second))
            left.append(count + len(merges) - 1)
        else:
            left.append(left.pop(*step))
    return merges


def as_path(merges: Sequence[Merge], count: int) -> Path:
    """The steps by the positions of their terms among those that are left.

    >>> as_path([(1, 2), (0, 3)], 3)
    ((1, 2), (0, 1))
    """
    left = list(range(count))
    path = []
    for number, merge in enumerate(merges, count):
        low, high = sorted(map(left.index, merge))
        del left[high], left[low]
        left.append(number)
        path.append((low, high))
    return tuple(path)
