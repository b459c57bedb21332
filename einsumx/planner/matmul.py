"""The matrix product of two terms: which labels become batch axes, rows and columns, and which operands are copied.

Each operand is read in place or copied into order first. In place, free axes that do not merge into one become batch
axes that the other operand lacks, and contracted axes that do not merge become batch axes that are summed afterwards.
The cheapest candidate is taken, by the cost model of :mod:`einsumx.ir.cost`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from itertools import product as combinations
from math import prod
from typing import NamedTuple

from einsumx.dtypes import kind
from einsumx.ir import ops
from einsumx.ir.cost_model import depends_on_turns, run_counters
from einsumx.ir.layout import cut
from einsumx.ir.ops import Threads
from einsumx.ir.traits import AROUND_BATCH, Layouts, MatrixLayout, Traits
from einsumx.planner.builder import Builder
from einsumx.planner.terms import Labels, ResultUse, Term


class Classes(NamedTuple):
    """The labels of a pairwise contraction, in four classes."""

    batch: Labels
    contracted: Labels
    lhs_free: Labels
    rhs_free: Labels

    @property
    def kept(self) -> Labels:
        return (*self.batch, *self.lhs_free, *self.rhs_free)


class Pair(NamedTuple):
    """Two terms to contract.

    Attributes:
        lhs, rhs: the terms.
        classes: their labels.
        dtype: of the computation.
        use: how the result is used.
    """

    lhs: Term
    rhs: Term
    classes: Classes
    dtype: str
    use: ResultUse


class OperandAccess(NamedTuple):
    """How a product reads one operand.

    Attributes:
        rows: the free labels along its matrices.
        loops: the free labels that become batch axes.
        transposed: its matrices are stored as ``[contracted, rows]``.
        copy: the seconds of copying it first; None if it is read in place.
    """

    rows: Labels
    loops: Labels = ()
    transposed: bool = False
    copy: float | None = None

    @property
    def copied(self) -> bool:
        """Whether it is copied first."""
        return self.copy is not None

    @property
    def name(self) -> str:
        """``rows/loops``, and whether the matrices are transposed, and copied."""
        loops = f"/{_listed(self.loops)}" if self.loops else ""
        return f"{_listed(self.rows)}{loops}{'t' * self.transposed}{'c' * self.copied}"


class Choice(NamedTuple):
    """One candidate for a product.

    Attributes:
        batch: the batch axes that come first, in order, each a run of labels.
        inner: the labels of the batch axis between rows and columns, where there is one.
        contracted: the labels summed by the product itself, in order.
        summed: batch labels that are summed afterwards.
        lhs, rhs: how each operand is read.
        swapped: the right term is the product's left operand.
        result: the axis order of the product.
        seconds: the estimate, with copies, views, and what brings the result into the order it is needed in.
        is_ready: the result needs no copy before it is used.
        moved: the elements of copied arrays: operands, and the result.
        is_looped: each pair of matrices of the batch is a call.
    """

    batch: tuple[Labels, ...]
    inner: Labels
    contracted: Labels
    summed: Labels
    lhs: OperandAccess
    rhs: OperandAccess
    swapped: bool
    result: Labels
    seconds: float
    is_ready: bool
    moved: int = 0
    is_looped: bool = False

    @property
    def name(self) -> str:
        """A short text that tells the candidates for one product apart, with the numbers of labels."""
        axes = [*map(_listed, self.batch), *([f"({_listed(self.inner)})"] if self.inner else ()), ""]
        summed = f"+{_listed(self.summed)}" if self.summed else ""
        sides = (self.rhs.name, self.lhs.name) if self.swapped else (self.lhs.name, self.rhs.name)
        return f"matmul {':'.join(axes)}{'*'.join(sides)} {_listed(self.contracted)}{summed}{' swapped' * self.swapped}"

    @property
    def kind(self) -> tuple[Hashable, ...]:
        """What makes it different from other candidates at first sight: sides, copies, products in a loop."""
        loops = bool(self.lhs.loops or self.rhs.loops)
        return "matmul", self.swapped, self.lhs.copied, self.rhs.copied, loops, bool(self.summed), self.is_ready


def _listed(labels: Labels) -> str:
    return ".".join(map(str, labels))


def matmul(builder: Builder, pair: Pair, choice: Choice, threads: Threads = "", dtype: str = "") -> Term:
    """Append the ops of the chosen product, with its sums in another dtype if there is one."""
    sides = ((pair.lhs, choice.lhs), (pair.rhs, choice.rhs))
    (first, left), (second, right) = reversed(sides) if choice.swapped else sides
    # Without rows, an operand is a vector, not a matrix with an axis of size 1.
    by_vector = builder.traits.strided and not choice.batch and kind(pair.dtype) in "fc"
    layouts = builder.traits.layouts(pair.dtype)
    lhs_slot = _operand(builder, first, left, choice, layouts, by_vector, turned=False)
    rhs_slot = _operand(builder, second, right, choice, layouts, by_vector, turned=True)
    # Without strides, matrices are passed as they are stored, and a flag says which are transposed.
    flags = (False, False) if builder.traits.strided else (left.transposed, not right.transposed)
    if choice.inner:
        out = builder.add(ops.Native, (lhs_slot, rhs_slot), AROUND_BATCH[flags])
    else:
        out = builder.add(ops.Matmul, lhs_slot, rhs_slot, *flags, threads, dtype)
    term = builder.packed(builder.reshape(out, builder.shape(choice.result)), choice.result)
    return builder.sum(term, choice.summed)


def _operand(
    builder: Builder,
    term: Term,
    access: OperandAccess,
    choice: Choice,
    layouts: Layouts,
    by_vector: bool,
    turned: bool,
) -> int:
    """The slot of an operand as ``[batch, free, contracted]``, or ``[batch, contracted, free]`` where ``turned``."""
    runs = [tuple(label for label in run if label in term.labels) for run in choice.batch]
    batch = tuple(label for run in runs for label in run)
    straight = (access.rows, choice.contracted)
    lying = straight[::-1] if access.transposed else straight
    if access.copied:
        reason = _reason(builder, term, access.rows, choice.contracted, layouts)
        term = builder.pack(term, (*batch, *lying[0], *choice.inner, *lying[1]), reason)
    first, last = lying
    if builder.traits.strided:
        first, last = straight[::-1] if turned else straight
        term = builder.permute(term, (*batch, *first, *last))
    if by_vector and not access.rows:
        return builder.reshape(term.slot, (builder.size(choice.contracted),))
    between = (choice.inner,) if choice.inner else ()
    return builder.reshape(term.slot, tuple([builder.size(axis) for axis in (*runs, first, *between, last)]))


def _reason(builder: Builder, term: Term, free: Labels, contracted: Labels, layouts: Layouts) -> str:
    """Why an operand is not read in place."""
    if not builder.traits.strided:
        return "its axes in the order of the matmul"
    if term.merged(contracted) is None:
        return "its contracted axes do not merge"
    runs = builder.runs(term, free)
    if not any(_is_matrix(builder, term, run, contracted, layouts.matrix) for run in runs or [()]):
        takes_gaps = layouts.matrix == "strided"
        return "no axis of its matrices has unit stride" if takes_gaps else "its matrices are not contiguous"
    if len(runs) > 1:
        return "its free axes do not merge, and a product for each takes longer than the copy"
    if layouts.batch == "strided" and not builder.choosing.is_by_cost:
        return "the product of a packed operand is faster, as was measured"
    return "its axes do not lie in the order of the matmul"


# -- choosing -------------------------------------------------------------------------------------------------------


def candidates(builder: Builder, pair: Pair, *, all_of_them: bool = False) -> list[Choice]:
    """The candidates for the matrix product of a pair.

    Args:
        builder, pair: the product.
        all_of_them: also those that the model never prefers to another one.
    """
    choices = list(_Search(builder, pair, all_of_them).candidates())
    if all_of_them or not reads_packed(builder.traits, pair.dtype):
        return choices
    least = min([choice.moved for choice in choices if not choice.is_looped])
    return [choice for choice in choices if choice.moved <= least]


def reads_packed(traits: Traits, dtype: str) -> bool:
    """Whether arrays have strides, and a batched product nevertheless reads C order alone."""
    return traits.strided and traits.layouts(dtype).batch == "C"


def choose(builder: Builder, pair: Pair) -> Choice:
    """The cheapest candidate."""
    return min(candidates(builder, pair), key=lambda choice: choice.seconds)


class _Axes(NamedTuple):
    """How the labels that both operands have become axes.

    Attributes:
        contracted: the labels summed by the product itself, in order.
        summed: those that are batch axes first and summed afterwards.
        batch: the labels of the batch axes that come first.
        inner: the labels of the batch axis between rows and columns.
    """

    contracted: Labels
    summed: Labels
    batch: Labels
    inner: Labels

    def matrix(self, rows: Labels, *, turned: bool) -> Labels:
        """The labels of an operand besides those that come first, as ``[rows, contracted]`` or ``turned``."""
        return (*self.contracted, *self.inner, *rows) if turned else (*rows, *self.inner, *self.contracted)


class _Search:
    """All candidates for one product."""

    def __init__(self, builder: Builder, pair: Pair, all_of_them: bool) -> None:
        traits = builder.traits
        self._all = all_of_them
        self._builder, self._traits = builder, traits
        self._lhs, self._rhs, self._classes, self._use = pair.lhs, pair.rhs, pair.classes, pair.use
        self._model = builder.model(pair.dtype)
        self._layouts = traits.layouts(pair.dtype)
        self._reads_packed = reads_packed(traits, pair.dtype)
        self._takes_strides = traits.strided and self._layouts.batch == "strided"
        self._inner_factor = traits.einsum_factor(AROUND_BATCH[False, True]) or 0.0
        is_product = self._inner_factor > 0 and traits.max_batch_axes == 1 and bool(pair.classes.contracted)
        self._may_be_inner = is_product and pair.dtype in traits.matmul_dtypes and pair.dtype in traits.native_dtypes
        classes, size = pair.classes, builder.size
        steps = size(classes.contracted) * size(classes.lhs_free) * size(classes.rhs_free)
        self._is_tiny = len(classes.batch) == 1 and steps < self._layouts.tiny
        self._turns_matter = bool(classes.batch) and depends_on_turns(
            size(classes.lhs_free), size(classes.rhs_free), size(classes.contracted)
        )
        self._in_place: dict[tuple[bool, Labels], OperandAccess | None] = {}

    def candidates(self) -> Iterator[Choice]:
        """Each candidate."""
        for axes in self._axes():
            lefts = self._accesses(self._lhs, self._classes.lhs_free, axes)
            rights = self._accesses(self._rhs, self._classes.rhs_free, axes) if lefts else []
            for left, right in combinations(lefts, rights):
                for batch in self._batches(left, right, axes):
                    sides = (self._priced(self._lhs, left, batch, axes), self._priced(self._rhs, right, batch, axes))
                    yield from self._choices(*sides, batch, axes)

    def _axes(self) -> Iterator[_Axes]:
        for contracted, summed in self._contracted():
            for batch, inner in self._shared((*summed, *self._classes.batch)):
                yield _Axes(contracted, summed, batch, inner)

    def _choices(
        self, left: OperandAccess, right: OperandAccess, batch: tuple[Labels, ...], axes: _Axes
    ) -> Iterator[Choice]:
        """The product with either operand on the left."""
        traits, size = self._traits, self._builder.size
        labels = tuple([label for run in batch for label in run])
        for swapped in (False, True):
            first, second = (right, left) if swapped else (left, right)
            # With neither views nor flags, matmul reads [rows, contracted] and [contracted, cols] alone.
            if not traits.strided and not traits.transpose_flags and (first.transposed or not second.transposed):
                continue
            is_packed = not self._reads_packed or self._are_packed(left, right, labels, axes, swapped)
            if not is_packed and self._layouts.matrix == "C":
                continue
            looped = () if is_packed else labels
            result = (*labels, *first.rows, *axes.inner, *second.rows)
            turn, is_turned = self._turn(tuple([label for label in result if label not in axes.summed]))
            views = 2  # about one reshape of each operand
            if traits.strided:
                views += _transposes(self._lhs, left, labels, axes, swapped)
                views += _transposes(self._rhs, right, labels, axes, not swapped)
            elif _flags_a_matrix_beside_a_vector(first, second):
                views += 1
            copies = ((self._lhs.labels, left.copied), (self._rhs.labels, right.copied), (result, is_turned))
            yield Choice(
                batch,
                axes.inner,
                axes.contracted,
                axes.summed,
                left,
                right,
                swapped,
                result,
                self._seconds(first, second, batch, axes, looped) + turn + views * traits.rates.view,
                not is_turned,
                sum([size(labels) for labels, is_copied in copies if is_copied]),
                bool(looped),
            )

    def _are_packed(self, left: OperandAccess, right: OperandAccess, batch: Labels, axes: _Axes, swapped: bool) -> bool:
        """Whether one call reads both operands, as ``[batch, rows, contracted]`` and ``[batch, contracted, cols]``.

        Without batch axes, that is also a matrix that is contiguous in the other order, if a product reads such ones.
        """
        builder = self._builder
        if not batch and self._layouts.matrix != "C":
            return True
        for term, access, on_right in ((self._lhs, left, swapped), (self._rhs, right, not swapped)):
            if access.copied:
                sizes = builder.size(access.rows), builder.size(axes.contracted)
                is_packed = access.transposed == on_right or 1 in sizes
            else:
                own = [label for label in batch if label in term.labels]
                is_packed = builder.is_packed(term, (*own, *axes.matrix(access.rows, turned=on_right)))
            if not is_packed:
                return False
        return True

    def _seconds(
        self,
        first: OperandAccess,
        second: OperandAccess,
        batch: tuple[Labels, ...],
        axes: _Axes,
        looped: Labels,
    ) -> float:
        """The time of copies and of the product, with one call for each element of the labels ``looped``."""
        model, size, traits = self._model, self._builder.size, self._traits
        total = (first.copy or 0.0) + (second.copy or 0.0)
        sizes = [size(run) for run in batch]
        matrices, rows, cols = prod(sizes) * size(axes.inner), size(first.rows), size(second.rows)
        if axes.summed:
            total += model.elementwise(matrices * rows * cols, size(self._classes.kept))
        calls = prod(sizes) // max(1, *sizes) if traits.max_batch_axes == 1 and len(batch) > 1 else size(looped)
        turned = first.transposed, not second.transposed
        factor = self._inner_factor if axes.inner else 1.0
        return total + model.matmul(calls, matrices, rows, cols, size(axes.contracted), turned, factor)

    # -- axes -------------------------------------------------------------------------------------------

    def _contracted(self) -> Iterator[tuple[Labels, Labels]]:
        """Orders of the contracted labels, and which of them are batch axes that are summed afterwards."""
        builder, labels, terms = self._builder, self._classes.contracted, (self._lhs, self._rhs)
        orders = list(dict.fromkeys(term.in_memory_order(labels) for term in terms))
        yield orders[0], ()
        if len(labels) < 2:
            return
        for order in orders[1:]:
            yield order, ()
        if not self._takes_strides:
            return
        for order in orders:
            merging = cut(order, lambda run, label: all(term.merged((*run, label)) is not None for term in terms))
            runs = [run for run in merging if builder.size(run) > 1]
            for inner in runs if len(runs) > 1 else ():
                yield inner, tuple(label for label in order if label not in inner)

    def _shared(self, labels: Labels) -> list[tuple[Labels, Labels]]:
        """Orders of the labels that both terms keep: those that come first, and those between rows and columns.

        Without strides, these are the orders in which they may lie packed.
        """
        orders = [self._lhs.in_memory_order(labels)]
        if not self._traits.strided:
            orders.append(self._rhs.in_memory_order(labels))
            target = self._use.target(labels)
            if target is not None:
                orders.insert(0, target)
        # At least one comes first: otherwise each matrix is spread over the whole array and memory is the bottleneck.
        ends = range(len(labels), 0, -1) if self._may_be_inner and labels else [len(labels)]
        return [(order[:end], order[end:]) for end in ends for order in dict.fromkeys(orders)]

    def _batches(self, left: OperandAccess, right: OperandAccess, axes: _Axes) -> Iterable[tuple[Labels, ...]]:
        """The batch axes in each order that may matter, as runs that are one axis in both operands."""
        if not self._traits.strided:
            # A compiler may have sharded arrays over devices: with axes unfused, it need not gather them.
            most = self._traits.max_batch_axes
            is_fused = most is not None and most < len(axes.batch)
            runs = (axes.batch,) if axes.batch else ()
            return [runs if is_fused else tuple((label,) for label in axes.batch)]
        kept = (*(label for label in axes.batch if label not in axes.summed), *left.loops, *right.loops)
        orders = [_ordered(kept, self._lhs), _ordered(kept, self._rhs)]
        target = self._use.target(kept)
        if target is not None:
            orders.insert(0, target)
        # Labels to be summed come first, so that the sum adds whole blocks.
        summed = _ordered(axes.summed, self._lhs)
        sides = ((self._lhs, left.copied), (self._rhs, right.copied))
        return dict.fromkeys(_batch_runs(self._builder, (*summed, *order), sides) for order in orders)

    # -- operands ---------------------------------------------------------------------------------------

    def _accesses(self, term: Term, free: Labels, axes: _Axes) -> list[OperandAccess]:
        """The accesses to a term that may pay: in place, if the product can read it so, and by copies.

        A term whose batch axes are summed afterwards is read in place alone.
        """
        builder, traits = self._builder, self._traits
        accesses: list[OperandAccess] = []
        if traits.strided:
            in_place = self._read_in_place(term, free, axes.contracted)
            if in_place is not None:
                accesses.append(in_place)
                if not in_place.loops and not (self._all or self._reads_packed):
                    return accesses
        if axes.summed:
            return accesses
        orders = [term.in_memory_order(free)]
        preferred = _grouped(free, self._use) if self._use.order is None else self._use.target(free)
        if preferred is not None and preferred != orders[0]:
            orders.append(preferred)
        if not traits.strided:
            for rows, turned in combinations(orders, (False, True)):
                if builder.is_packed(term, (*axes.batch, *axes.matrix(rows, turned=turned))):
                    accesses.append(OperandAccess(rows, transposed=turned))
            if traits.transpose_flags:  # another order costs a copy, which may spare a larger one of the result
                orders = [rows for rows in orders if all(rows != access.rows for access in accesses)]
        for rows in orders:
            copies = [
                OperandAccess(
                    rows, (), turned, self._copy(term.memory, (*axes.batch, *axes.matrix(rows, turned=turned)))
                )
                for turned in (False, True)
            ]
            if self._all or self._reads_packed or self._turns_matter or not (traits.strided or traits.transpose_flags):
                accesses.extend(copies)
            else:
                copies = copies if self._lies_along_sum(term, axes.contracted) else copies[::-1]
                accesses.append(min(copies, key=lambda access: access.copy or 0.0))
        return accesses

    def _priced(self, term: Term, access: OperandAccess, batch: tuple[Labels, ...], axes: _Axes) -> OperandAccess:
        """The access with the price of a copy for batch axes in this order."""
        own = tuple([label for run in batch for label in run if label in term.labels])
        if access.copy is None or own == axes.batch:
            return access
        target = (*own, *axes.matrix(access.rows, turned=access.transposed))
        return access._replace(copy=self._copy(term.memory, target))

    def _read_in_place(self, term: Term, free: Labels, contracted: Labels) -> OperandAccess | None:
        key = term is self._lhs, contracted
        if key not in self._in_place:
            read = partial(_in_place, self._builder, term, free, contracted)
            access = read(None) if self._is_tiny else None
            if access is None or access.loops:  # which are further batch axes
                access = read(self._layouts.matrix)
            self._in_place[key] = access
        return self._in_place[key]

    def _lies_along_sum(self, term: Term, contracted: Labels) -> bool:
        """Which of two copies that take as long: operands that both lie along the sum are multiplied more slowly."""
        is_left = term is self._lhs
        other, free = (self._rhs, self._classes.rhs_free) if is_left else (self._lhs, self._classes.lhs_free)
        in_place = self._read_in_place(other, free, contracted) if self._traits.strided else None
        return is_left if in_place is None else in_place.transposed

    # -- moving data ------------------------------------------------------------------------------------

    def _copy(self, source: Labels, target: Labels) -> float:
        """The seconds of a copy of an array from one order of its axes to another; nothing for a reshape."""
        builder = self._builder
        before = [label for label in source if builder.sizes[label] != 1]
        after = [label for label in target if builder.sizes[label] != 1]
        if before == after and not self._traits.strided:
            return 0.0
        runs = builder.size(run_counters(before, after))
        return self._model.copy(builder.size(before), runs, turned=before[-1:] != after[-1:])

    def _turn(self, result: Labels) -> tuple[float, bool]:
        """The seconds that bring the result into the order in which it is needed, and whether this copies it."""
        use, strided = self._use, self._traits.strided
        target = use.target(result)
        if target is not None:
            if target == result:
                return 0.0, False
            return (self._traits.rates.view, False) if strided else (self._copy(result, target), True)
        if use.is_ready(result, self._builder.sizes, self._takes_strides):
            return 0.0, False
        return self._model.copy(self._builder.size(result)), True


def _transposes(term: Term, access: OperandAccess, batch: Labels, axes: _Axes, on_right: bool) -> int:
    """How many transposes bring an operand into the order in which it is read on one side."""
    own = tuple([label for label in batch if label in term.labels])
    read = (*own, *axes.matrix(access.rows, turned=on_right))
    if not access.copied:
        return int(read != term.labels)
    packed = (*own, *axes.matrix(access.rows, turned=access.transposed))
    return (packed != term.labels) + (packed != read)


def _flags_a_matrix_beside_a_vector(first: OperandAccess, second: OperandAccess) -> bool:
    """Whether the product of a matrix and a vector has the flag that transposes the matrix.

    Frameworks read a matrix in its own order up to four times faster: ``matrix @ vector[None].T`` instead of
    ``vector[None] @ matrix.T``, and ``vector[None] @ matrix`` instead of ``matrix.T @ vector[:, None]``.
    """
    if bool(first.rows) == bool(second.rows):
        return False
    return first.transposed if first.rows else not second.transposed


def _in_place(
    builder: Builder, term: Term, free: Labels, contracted: Labels, layout: MatrixLayout | None
) -> OperandAccess | None:
    """Reads a strided operand in place: the largest run of free axes as rows, and the others as batch axes.

    Without a layout, matrices may have any strides.
    """
    if term.merged(contracted) is None:
        return None
    runs = builder.runs(term, free)
    readable = [run for run in (runs or [()]) if layout is None or _is_matrix(builder, term, run, contracted, layout)]
    if not readable:
        return None
    rows = max(readable, key=builder.size)
    loops = tuple(label for run in runs if run is not rows for label in run)
    return OperandAccess(rows, loops, transposed=term.merged(contracted) != 1)


def _is_matrix(builder: Builder, term: Term, rows: Labels, cols: Labels, layout: MatrixLayout) -> bool:
    """Whether matmul can read each matrix of a strided operand in place."""
    row_stride, col_stride = term.merged(rows), term.merged(cols)
    if row_stride is None or col_stride is None:
        return False
    height, width = builder.size(rows), builder.size(cols)
    if height == 1 or width == 1:
        return (row_stride if width == 1 else col_stride) == 1 or height == width
    if layout != "strided":
        return (row_stride, col_stride) in ((width, 1), (1, height))
    return (col_stride == 1 and row_stride >= width) or (row_stride == 1 and col_stride >= height)


def _ordered(labels: Labels, term: Term) -> Labels:
    """``labels`` in the term's memory order, those that it lacks first."""
    own = tuple(label for label in labels if label in term.labels)
    return (*(label for label in labels if label not in own), *term.in_memory_order(own))


_MANY = 8
"""The number of batch axes from which fusing pays, and keeps below the frameworks' limits on axes."""


def _batch_runs(builder: Builder, order: Labels, sides: tuple[tuple[Term, bool], ...]) -> tuple[Labels, ...]:
    """Batch labels as axes, fused only if the product takes few of them, as each fusion costs a view."""
    if builder.traits.max_batch_axes is None and len(order) < _MANY:
        return tuple((label,) for label in order)
    return tuple(cut(order, lambda run, label: all(_continues(term, copied, run, label) for term, copied in sides)))


def _continues(term: Term, copied: bool, run: Labels, label: int) -> bool:
    """Whether a label can join a run of batch labels as one axis of an operand."""
    own = [other for other in run if other in term.labels]
    if not own or label not in term.labels:
        return not own and label not in term.labels
    return len(own) == len(run) and (copied or term.merged((*run, label)) is not None)


def _grouped(labels: Labels, use: ResultUse) -> Labels:
    """``labels`` in three groups: the batch labels of the next step, its free labels, and its contracted labels."""
    free = tuple(label for label in labels if label not in use.contracted and label not in use.batch)
    batch = tuple(label for label in use.batch if label in labels)
    return (*batch, *free, *(label for label in use.contracted if label in labels))
