"""Pairs of arrays with strides whose best ops are not clear from sizes alone: the cheapest of all candidates.

Each operand is read in place or copied into order first. In place, free axes that do not merge into one become batch
axes that the other operand lacks, and contracted axes that do not merge become batch axes that are summed afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product as combinations
from math import prod
from typing import NamedTuple

from einsumx.dtypes import kind
from einsumx.ir import ops
from einsumx.ir.cost_model import is_sweep
from einsumx.ir.layout import cut
from einsumx.ir.loops import Loops, natural_order, outer_loops
from einsumx.ir.ops import Threads
from einsumx.ir.traits import MatrixLayout
from einsumx.planner.clear import direct_product
from einsumx.planner.lowering import Lowering, Pair, Side, listed, product_name, seconds_of
from einsumx.planner.selection import Candidate
from einsumx.planner.strided import einsum_result
from einsumx.planner.terms import Labels, Term, joined, ordered

_LONG = 2e-4
"""Seconds of a product that several threads may share."""

_ANY_THREADS: tuple[Threads, ...] = ("",)


class _Product(NamedTuple):
    """A product of matrices.

    Attributes:
        seconds: the estimate, with copies, views, and what brings the result into the order it is needed in.
        batch: the batch axes, in order, each a run of labels.
        contracted: the labels summed by the product itself, in order.
        summed: batch labels that are summed afterwards.
        sides: how the left and the right operand are read.
        result: the axis order of the product.
        is_ready: the result needs no copy before it is used.
        moved: the elements of copied operands, and of a result that is not ready.
        is_looped: each pair of matrices of the batch is a call.
    """

    seconds: float
    batch: tuple[Labels, ...]
    contracted: Labels
    summed: Labels
    sides: tuple[Side, Side]
    result: Labels
    is_ready: bool
    moved: int
    is_looped: bool


class StridedLowering(Lowering):
    """Appends ops that take and return views."""

    has_views = True

    def product(self, pair: Pair) -> Term:
        """A product whose ops are clear, or else the cheapest candidate."""
        traits, dtype = self.traits, pair.dtype
        if not (self.names or pair.sums):
            direct = direct_product(pair.lhs, pair.rhs, pair.kept, pair.use, traits, dtype, self.slots)
            if direct is not None:
                calls, result = direct
                self.ops += calls
                self.slots += len(calls)
                return result
        pair = pair._replace(lhs=self.settled(pair.lhs), rhs=self.settled(pair.rhs))
        if not pair.contracted:
            return self.multiply(pair)
        is_cast = dtype in dict(traits.matmul_through) and traits.rates.sweep and dtype in traits.native_dtypes
        if is_cast and is_sweep(pair.lhs.memory, pair.rhs.memory):
            return self.own_einsum(pair)
        return super().product(pair)

    # -- candidates -------------------------------------------------------------------------------------

    def candidates(self, pair: Pair, *, every: bool) -> Iterator[Candidate]:
        """Products of matrices, the own einsum, and products of elements that are summed.

        Where a batched product reads C order alone, those that move least.
        """
        products = list(_Search(self, pair, every).products())
        moves_least = self.traits.layouts(pair.dtype).batch == "C" and not every
        if moves_least:
            least = min([product.moved for product in products if not product.is_looped])
            products = [product for product in products if product.moved <= least]
        yield from self._written(products if every else [min(products, key=seconds_of)], pair, every)
        for candidate in self.einsums(pair):
            yield candidate
            if self.traits.rates.sweep:
                yield from self._along_batch(pair)
        # A product that copies nothing moves less than one of all elements.
        if pair.is_dots and not pair.sums and not (moves_least and 0 in [product.moved for product in products]):
            name, seconds = "multiply and sum", self._multiply_and_sum_seconds(pair)
            yield Candidate(name, seconds, name, partial(self.multiply_and_sum, pair))

    def _written(self, products: Iterable[_Product], pair: Pair, every: bool) -> Iterator[Candidate]:
        """The candidates that append these products."""
        for product in products:
            (left, right), summed, name = product.sides, product.summed, ""
            swapped, has_loops = left.term is pair.rhs, bool(left.loops or right.loops)
            if every:
                batch = list(map(listed, product.batch))
                name = product_name(batch, product.sides, product.contracted, summed, swapped=swapped)
            is_long = every and product.seconds > _LONG
            for threads in self.traits.threads(pair.dtype) if is_long else _ANY_THREADS:
                kind = (swapped, left.is_copied, right.is_copied, has_loops, bool(summed), product.is_ready, threads)
                write = partial(self._multiplied, pair, product, threads)
                yield Candidate(f"{name} {threads}".rstrip(), product.seconds, kind, write)

    def _multiplied(self, pair: Pair, product: _Product, threads: Threads) -> Term:
        """Append the ops of a product of matrices."""
        left, right = product.sides
        lhs = self._operand(pair, product, left, on_right=False)
        rhs = self._operand(pair, product, right, on_right=True)
        out = self.add(ops.Matmul, lhs, rhs, False, False, threads, pair.sums)
        return self.sum(self.reshape(out, product.result), product.summed)

    def _operand(self, pair: Pair, product: _Product, side: Side, *, on_right: bool) -> int:
        """The slot of an operand as ``[batch, rows, contracted]``, or ``[batch, contracted, rows]`` on the right."""
        term, contracted = side.term, product.contracted
        runs = [tuple(filter(term.labels.__contains__, run)) for run in product.batch]
        if side.is_copied:
            reason = _why_copied(term, side.rows, contracted, self.traits.layouts(pair.dtype).matrix)
            term = self.pack(term, _order(side, joined(runs), contracted, side.is_turned), reason)
        matrix = [contracted, side.rows] if on_right else [side.rows, contracted]
        # Without rows, an operand is a vector, not a matrix with an axis of size 1.
        is_vector = not (side.rows or runs) and kind(pair.dtype) in "fc"
        return self.merged(term, [contracted] if is_vector else [*runs, *matrix])

    def _multiply_and_sum_seconds(self, pair: Pair) -> float:
        lhs, rhs, batch = pair.lhs, pair.rhs, pair.batch
        steps, model, rates = self.size(lhs.labels), self.model(pair.dtype), self.traits.rates
        seconds = model.elementwise(steps, steps, steps) + model.elementwise(steps, self.size(batch))
        if lhs.memory != rhs.memory:  # it reads one of them as a copy does
            seconds += model.copy(steps) - rates.call
        return seconds if lhs.memory[-1] in batch else seconds + self.size(batch) * rates.run

    def einsum_order(self, pair: Pair) -> tuple[Labels, float]:
        """The order of the result for which the framework's own einsum is fastest, and its seconds.

        It may loop faster if the result follows the operands, but then the requested order takes a view.
        """
        target, terms = pair.kept, (pair.lhs, pair.rhs)
        operands, wanted = [self.long(term.memory) for term in terms], self.long(target)
        packed = all(not memory or term.steps[memory[-1]] == 1 for term, memory in zip(terms, operands))
        steps = self.size((*target, *pair.contracted))
        seconds = self.einsum_seconds(pair.dtype, steps, outer_loops(operands, wanted), packed=packed)
        order, loops = natural_order(operands, wanted)
        natural = (*order, *[label for label in target if self.sizes[label] == 1])
        if natural != target:
            followed = self.einsum_seconds(pair.dtype, steps, Loops(loops, [*operands, order]), packed=packed)
            # Of equals, the order of the operands, in which outer loops read memory better, too.
            if followed <= seconds:
                result = einsum_result(natural, pair.use, steps)
                return result, followed + (result == natural) * self.traits.rates.view
        return target, seconds

    def _along_batch(self, pair: Pair) -> Iterator[Candidate]:
        """The own einsum along a batch axis that is innermost in one operand, after a copy of the other."""
        for term, other in ((pair.lhs, pair.rhs), (pair.rhs, pair.lhs)):
            label = other.memory[-1] if other.memory else None
            if label is not None and label in pair.batch and label != term.memory[-1]:
                memory = (*[each for each in term.memory if each != label], label)
                order, seconds = self.einsum_order(pair._replace(lhs=self.term(term.slot, memory), rhs=other))
                seconds += self.model(pair.dtype).copy(self.size(memory), self.size(memory[:-1]))
                write = partial(self._einsum_of_copy, term, memory, other, order)
                yield Candidate("einsum along the batch", seconds, "einsum along the batch", write)

    def _einsum_of_copy(self, term: Term, memory: Labels, other: Term, result: Labels) -> Term:
        copied = self.pack(term, memory, "an einsum along short rows takes longer than the copy")
        return self.native((copied, other), result)


class _Search:
    """All products of matrices for one pair; with ``every``, also those that the cost model never prefers."""

    def __init__(self, lowering: StridedLowering, pair: Pair, every: bool) -> None:
        self._pair, self._lowering, self._traits, self._every = pair, lowering, lowering.traits, every
        self._model, self._layouts = lowering.model(pair.dtype), lowering.traits.layouts(pair.dtype)
        self._reads_packed, self._takes_strides = self._layouts.batch == "C", self._layouts.batch == "strided"
        steps = prod(map(lowering.size, (pair.contracted, pair.lhs_free, pair.rhs_free)))
        self._is_tiny = len(pair.batch) == 1 and steps < self._layouts.tiny

    def products(self) -> Iterator[_Product]:
        """The products."""
        pair = self._pair
        for contracted, summed in self._contracted():
            lefts = self._accesses(pair.lhs, pair.lhs_free, contracted, is_whole=not summed)
            rights = self._accesses(pair.rhs, pair.rhs_free, contracted, is_whole=not summed)
            for left, right in combinations(lefts, rights):
                for batch in self._batches(left, right, summed):
                    for sides in ((left, right), (right, left)):
                        product = self._product(sides, batch, contracted, summed)
                        if product is not None:
                            yield product

    def _product(
        self, sides: tuple[Side, Side], runs: tuple[Labels, ...], contracted: Labels, summed: Labels
    ) -> _Product | None:
        """A product with its price; None if the framework cannot read its operands."""
        (left, right), size, model = sides, self._lowering.size, self._model
        batch = joined(runs)
        is_looped = self._reads_packed and not self._are_packed(sides, batch, contracted)
        if is_looped and self._layouts.matrix == "C":
            return None
        sizes = list(map(size, runs))
        matrices, rows, cols = prod(sizes), size(left.rows), size(right.rows)
        calls = matrices if is_looped else 1
        if self._traits.max_batch_axes == 1 and len(runs) > 1:
            calls = matrices // max(sizes)
        seconds, moved, views = 0.0, 0, 2  # about one reshape of each operand
        for side, on_right in zip(sides, (False, True)):
            read = _order(side, batch, contracted, on_right)
            lies = _order(side, batch, contracted, side.is_turned) if side.is_copied else read
            views += (lies != side.term.labels) + (lies != read)
            if side.is_copied:
                seconds += self._lowering.copy_seconds(self._pair.dtype, side.term.memory, lies)
                moved += size(lies)
        if summed:
            seconds += model.elementwise(matrices * rows * cols, size(self._pair.kept))
        turned = left.is_turned, not right.is_turned
        seconds += model.matmul(calls, matrices, rows, cols, size(contracted), turned)
        result = (*batch, *left.rows, *right.rows)
        needed = tuple([label for label in result if label not in summed])
        use = self._pair.use
        target = use.target(needed)
        is_ready = target is not None or use.is_ready(needed, self._lowering.sizes, self._takes_strides)
        if not is_ready:
            seconds += model.copy(size(needed))
            moved += size(result)
        seconds += (target is not None and target != needed) * self._traits.rates.view
        seconds += views * self._traits.rates.view
        return _Product(seconds, runs, contracted, summed, sides, result, is_ready, moved, is_looped and bool(batch))

    def _are_packed(self, sides: tuple[Side, Side], batch: Labels, contracted: Labels) -> bool:
        """Whether one call reads both operands, as ``[batch, rows, contracted]`` and ``[batch, contracted, cols]``.

        Without batch axes, that is also a matrix that is contiguous in the other order, if a product reads such ones.
        """
        if not batch and self._layouts.matrix != "C":
            return True
        for side, on_right in zip(sides, (False, True)):
            if not side.is_copied:
                is_packed = side.term.merged(_order(side, batch, contracted, on_right)) == 1
            else:
                is_packed = side.is_turned == on_right or 1 in (side.term.size(side.rows), side.term.size(contracted))
            if not is_packed:
                return False
        return True

    # -- axes -------------------------------------------------------------------------------------------

    def _contracted(self) -> Iterator[tuple[Labels, Labels]]:
        """Orders of the contracted labels, and which of them are batch axes that are summed afterwards."""
        terms = self._pair.lhs, self._pair.rhs
        orders = dict.fromkeys([term.in_memory_order(self._pair.contracted) for term in terms])
        for order in orders:
            yield order, ()
        for order in orders if self._takes_strides else ():
            merging = cut(order, lambda run, label: all(term.merged((*run, label)) is not None for term in terms))
            runs = [run for run in merging if self._lowering.size(run) > 1]
            for inner in runs if len(runs) > 1 else ():
                yield inner, tuple([label for label in order if label not in inner])

    def _batches(self, left: Side, right: Side, summed: Labels) -> Iterable[tuple[Labels, ...]]:
        """The batch axes in each order that may matter, as runs that are one axis in both operands.

        They are fused only if the product takes few of them, as each fusion costs a view.
        """
        kept = (*self._pair.batch, *left.loops, *right.loops)
        target = self._pair.use.target(kept)
        orders = [ordered(kept, left.term.memory), ordered(kept, right.term.memory)]
        if target is not None:
            orders.insert(0, target)
        # Labels to be summed come first, so that the sum adds whole blocks.
        orders = [(*ordered(summed, left.term.memory), *order) for order in orders]
        if self._traits.max_batch_axes is None:
            return dict.fromkeys([tuple([(label,) for label in order]) for order in orders])

        def continues(run: Labels, label: int) -> bool:
            return all(_continues(side, run, label) for side in (left, right))

        return dict.fromkeys([tuple(cut(order, continues)) for order in orders])

    # -- operands ---------------------------------------------------------------------------------------

    def _accesses(self, term: Term, free: Labels, contracted: Labels, *, is_whole: bool) -> Iterator[Side]:
        """The accesses to a term that may pay: in place, if the product can read it so, and by copies.

        A term whose batch axes are summed afterwards, so that ``contracted`` is not whole, is read in place alone.
        """
        in_place = _in_place(term, free, contracted, None) if self._is_tiny else None
        if in_place is None or in_place.loops:  # which are further batch axes
            in_place = _in_place(term, free, contracted, self._layouts.matrix)
        if in_place is not None:
            yield in_place
            if not (in_place.loops or self._every or self._reads_packed):
                return
        if is_whole:
            orders = dict.fromkeys([term.in_memory_order(free), self._pair.use.preferred(free)])
            for rows, is_turned in combinations(orders, (False, True)):
                yield Side(term, rows, is_turned, True)


def _order(side: Side, batch: Labels, contracted: Labels, is_turned: bool) -> Labels:
    """The labels of an operand along ``[batch, rows, contracted]``, or ``[batch, contracted, rows]`` if turned."""
    own = tuple(filter(side.term.labels.__contains__, batch))
    return (*own, *contracted, *side.rows) if is_turned else (*own, *side.rows, *contracted)


def _in_place(term: Term, free: Labels, contracted: Labels, layout: MatrixLayout | None) -> Side | None:
    """Reads an operand in place: the largest run of free axes as rows, and the others as batch axes.

    Without a layout, matrices may have any strides.
    """
    if term.merged(contracted) is None:
        return None
    runs = term.runs(free)
    readable = [run for run in (runs or [()]) if layout is None or _is_matrix(term, run, contracted, layout)]
    if not readable:
        return None
    rows = max(readable, key=term.size)
    loops = tuple([label for run in runs if run is not rows for label in run])
    return Side(term, rows, term.merged(contracted) != 1, False, loops)


def _is_matrix(term: Term, rows: Labels, cols: Labels, layout: MatrixLayout) -> bool:
    """Whether matmul can read each matrix of an operand in place."""
    row_stride, col_stride = term.merged(rows), term.merged(cols)
    if row_stride is None or col_stride is None:
        return False
    height, width = term.size(rows), term.size(cols)
    if height == 1 or width == 1:
        return (row_stride if width == 1 else col_stride) == 1 or height == width
    if layout != "strided":
        return (row_stride, col_stride) in ((width, 1), (1, height))
    return (col_stride == 1 and row_stride >= width) or (row_stride == 1 and col_stride >= height)


def _why_copied(term: Term, free: Labels, contracted: Labels, layout: MatrixLayout) -> str:
    if term.merged(contracted) is None:
        return "its contracted axes do not merge"
    runs = term.runs(free)
    if not any(_is_matrix(term, run, contracted, layout) for run in runs or [()]):
        takes_gaps = layout == "strided"
        return "no axis of its matrices has unit stride" if takes_gaps else "its matrices are not contiguous"
    if len(runs) > 1:
        return "its free axes do not merge, and a product for each takes longer than the copy"
    return "the product of a packed operand is faster"


def _continues(side: Side, run: Labels, label: int) -> bool:
    """Whether a label can join a run of batch labels as one axis of an operand."""
    term = side.term
    own = [other for other in run if other in term.labels]
    if not own or label not in term.labels:
        return not own and label not in term.labels
    return len(own) == len(run) and (side.is_copied or term.merged((*run, label)) is not None)
