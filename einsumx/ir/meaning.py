"""``check_meaning``: a plan from outside is replayed on labels, and refused if its ops do not compute its equation.

The replay knows each axis of each slot by the labels that it runs over, and keeps one invariant: for any values of the
labels, a slot holds the product of the operands that went into it, summed over the labels that were summed on the way.
So axes that meet in a product must have the same labels, and a label may be summed only when neither the output nor
any other operand needs it. Each operand goes into the result exactly once because each slot is read exactly once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import TypeAlias

from einsumx.dtypes import NAMED, can_cast, itemsize, kind
from einsumx.errors import EinsumxError, excerpt, shown
from einsumx.ir.bind import SizedEquation, bind, label_names
from einsumx.ir.layout import contiguous
from einsumx.ir.ops import (
    Cast,
    Copy,
    Diagonal,
    Expand,
    First,
    Matmul,
    Multiply,
    Native,
    Op,
    Reshape,
    Scale,
    Sum,
    Transpose,
    Zeros,
    sources,
)
from einsumx.ir.parse import parse_text
from einsumx.ir.program import Path, Program
from einsumx.ir.strict import MOST_AXES, PLAN
from einsumx.ir.verify import between, verify

__all__ = ["check_fields", "check_meaning"]

Axis: TypeAlias = tuple[int, ...]
"""The labels that an axis runs over, none of them of size 1.

A negative number stands for an axis of that size which an array only repeats itself along.
"""


_LARGE = 1 << 500
"""Elements that no array has, so that no cost is beyond a float."""


class _Refusal(Exception):  # noqa: N818  check_meaning raises the error, which names the plan
    """Why a plan does not compute its equation."""


def check_fields(plan: Program) -> None:
    """Check that each field of a plan, its operands and its ops has the type that it declares.

    Raises:
        EinsumxError: one has not; it says which.
    """
    try:
        PLAN.check(plan)
    except ValueError as error:
        raise EinsumxError(f"a field of this plan has the wrong type or value: {error}") from None


def check_meaning(plan: Program, computed_in: Collection[str] = ()) -> None:
    """Check that the ops of a plan, whose fields are right, compute its equation in the dtype of its result.

    The time that this takes is in proportion to the number of ops.

    Args:
        plan: from anywhere.
        computed_in: dtypes in which its backend computes what has the dtype of its result, besides those in which this
            gives the same on any.

    Raises:
        EinsumxError: they do not, or slots, shapes or the path contradict each other.

    >>> import einsumx
    >>> check_meaning(einsumx.plan("ij,jk->ik", (2, 3), (3, 4)))
    """
    shapes = [operand.shape for operand in plan.operands]
    try:
        _check_terms(plan)
        for number, operand in enumerate(plan.operands):
            if operand.strides is not None and len(operand.strides) != len(operand.shape):
                raise _Refusal(f"operand {number} has {len(operand.shape)} axes and {len(operand.strides)} strides")
        parsed = parse_text(plan.equation, len(shapes))
        equation = bind(parsed, shapes)
        slots = verify(plan)
        if parsed.text != plan.equation:
            raise _Refusal(f"the equation is not in the form {excerpt(parsed.text)}")
        if equation.shape != plan.shape:
            raise _Refusal(f"the result of the equation has shape {equation.shape}")
        _check_sizes(plan, slots)
        _check_path(plan.path, len(shapes))
        _check_reads(plan)
        _check_dtypes(plan, computed_in)
        if 0 in equation.sizes:
            _check_empty(plan, slots)
        else:
            _Replay(plan, equation).check()
    except _Refusal as refusal:
        raise EinsumxError(f"the ops of this plan do not compute {excerpt(plan.equation)}: {refusal}") from None


def _check_terms(plan: Program) -> None:
    """No subscript has more labels than an array has axes."""
    for equation in (plan.equation, *(op.equation for op in plan.ops if isinstance(op, Native))):
        if max(map(len, equation.replace("->", ",").split(","))) > MOST_AXES:
            raise _Refusal(f"a subscript has more labels than the {MOST_AXES} axes that an array may have")


def _check_sizes(plan: Program, shapes: Mapping[int, Sequence[int]]) -> None:
    """No array, and nothing that the framework's own einsum loops over, is too large to be counted."""
    spans = list(shapes.items())
    for op in plan.ops:
        if isinstance(op, Native):
            terms = op.equation.partition("->")[0].split(",")
            sizes = {label: size for term, slot in zip(terms, op.operands) for label, size in zip(term, shapes[slot])}
            spans.append((op.out, list(sizes.values())))
    for slot, span in spans:
        if prod(span) > _LARGE:
            raise _Refusal(f"%{slot} has more elements than any array")


def _check_path(path: Path, count: int) -> None:
    """One or two different terms are taken at each step, and one is left."""
    for step in path:
        if len(step) not in (1, 2) or len(set(step)) < len(step) or not all(0 <= place < count for place in step):
            raise _Refusal(f"there is no step {step} in a path where {count} terms are left")
        count -= len(step) - 1
    if count != 1:
        raise _Refusal(f"the path leaves {count} terms")


def _check_reads(plan: Program) -> None:
    """Each slot but the result's is read once, so that each operand is in the result once."""
    reads = Counter(chain.from_iterable(map(sources, plan.ops)))
    for slot in chain(range(len(plan.operands)), (op.out for op in plan.ops)):
        if reads[slot] != (slot != plan.result):
            raise _Refusal(f"%{slot} is read {reads[slot]} times{', and is the result' * (slot == plan.result)}")


# -- dtypes ---------------------------------------------------------------------------------------------------------


def _check_dtypes(plan: Program, computed_in: Collection[str]) -> None:
    """Operands are cast to the dtype of the result, or to a wider one, and arithmetic is in these."""
    wider = {*_wider(plan.dtype), *computed_in}
    # Integers and bools are cast to their own dtype before: in a wider one, another operand has other values.
    found = {slot: (operand.dtype, kind(plan.dtype) not in "fc") for slot, operand in enumerate(plan.operands)}
    for op in plan.ops:
        for slot in sources(op):
            dtype, is_foreign = found[slot]
            takes = {plan.dtype} if is_foreign and dtype != plan.dtype else {plan.dtype, *wider}
            if isinstance(op, Cast):
                if op.dtype not in takes:
                    raise _Refusal(f"{_said(op)} casts {dtype} to {op.dtype} on the way to {plan.dtype}")
                found[op.out] = op.dtype, False
            elif isinstance(op, Zeros):
                found[op.out] = op.dtype, False
            elif isinstance(op, Sum | Scale | Multiply | Matmul | Native):
                if dtype not in takes or dtype != found[sources(op)[0]][0]:
                    raise _Refusal(f"{_said(op)} computes in {dtype}, and the result is {plan.dtype}")
                found[op.out] = dtype, False
            else:
                found[op.out] = dtype, is_foreign
    if found[plan.result][0] != plan.dtype:
        raise _Refusal(f"they give {found[plan.result][0]}, but the result should be {plan.dtype}")


def _wider(dtype: str) -> set[str]:
    """The dtypes that intermediates may have so that a cast to the result's dtype gives the same."""
    match kind(dtype):
        case "f" | "c" as own:
            return {name for name in NAMED if kind(name) == own and can_cast(dtype, name)}
        case "b":  # a sum of products of zeros and ones, of which only the sign is asked
            return {"float32", "float64"}
        case "i" | "u":  # both wrap, and the lower bits are the same
            return {name for name in NAMED if kind(name) in "iu" and itemsize(name) >= itemsize(dtype)}
        case _:
            return set()


# -- arrays without elements ----------------------------------------------------------------------------------------


def _check_empty(plan: Program, shapes: Mapping[int, Sequence[int]]) -> None:
    """A label has size 0: the result has no elements, or each is a sum over nothing.

    Such a sum is 0, and stays that as long as it is not multiplied, as by infinity.
    """
    is_zero = {slot: 0 in operand.shape for slot, operand in enumerate(plan.operands)}
    for op in plan.ops:
        read = sources(op)
        over_nothing = any(0 in shapes[slot] for slot in (*read, op.out))
        is_zero[op.out] = over_nothing or (len(read) == 1 and is_zero[read[0]])
    if not is_zero[plan.result]:
        raise _Refusal("they do not give 0, which is the sum over a label of size 0")


# -- labels ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Value:
    """What a slot holds.

    Attributes:
        axes: the labels of each axis.
        uses: how many of the operands in it have each label of its axes.
        varies: the labels along which it may vary; along others it only repeats itself.
    """

    axes: tuple[Axis, ...]
    uses: Mapping[int, int]
    varies: frozenset[int]


class _Replay:
    """The labels of every slot, for an equation whose labels have no size 0."""

    def __init__(self, plan: Program, equation: SizedEquation) -> None:
        self._plan, self._equation, self._sizes = plan, equation, equation.sizes
        self._kept, self._summed = frozenset(equation.output), set[int]()
        self._count = 1  # of equal terms that are summed, all ops together
        self._values = [
            self._operand(term, operand.shape, operand.strides or contiguous(operand.shape))
            for term, operand in zip(equation.inputs, plan.operands)
        ]
        self._users = Counter(label for value in self._values for label in value.uses)

    def _operand(self, term: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> _Value:
        axes = tuple((label,) if size > 1 else () for label, size in zip(term, shape))
        varies = frozenset(label for axis, step in zip(axes, strides) if step for label in axis)
        return _Value(axes, dict.fromkeys(chain.from_iterable(axes), 1), varies)

    def check(self) -> None:
        """Raise where the result is not that of the equation."""
        values = dict(enumerate(self._values))
        for op in self._plan.ops:
            try:
                values[op.out] = self._made(op, [values.pop(slot) for slot in sources(op)])
            except _Refusal as refusal:
                raise _Refusal(f"{_said(op)} {refusal}") from None
        sizes, output = self._sizes, self._equation.output
        for label, axis in zip(output, values[self._plan.result].axes):
            # An axis that only repeats the array may stand for a label along which no operand varies.
            if axis not in ((label,) * (sizes[label] > 1), () if self._users[label] else (-sizes[label],)):
                raise _Refusal(f"axis {output.index(label)} of the result is not that of the equation")
        there = self._kept | self._summed
        left = [label for label, size in enumerate(sizes) if size > 1 and label not in there]
        # Sums over labels along which no operand varies are counted; an or of equal terms is not.
        is_counted = self._plan.dtype != "bool"
        wanted = prod([sizes[label] for label in left if is_counted and not self._users[label]])
        for label in left:
            if self._users[label] or self._count % (sizes[label] if is_counted else 1):
                raise _Refusal(f"nothing sums over label {shown(label_names(self._equation)[label])}")
        if self._count != wanted:
            raise _Refusal(f"they sum {self._count} equal terms, not {wanted}")

    def _made(self, op: Op, read: Sequence[_Value]) -> _Value:
        value = read[0]
        axes = value.axes
        match op:
            case Transpose():
                return replace(value, axes=tuple(axes[axis] for axis in op.axes))
            case Reshape():
                return replace(value, axes=self._regrouped(chain.from_iterable(axes), op.shape))
            case Expand():
                wide = zip(axes, op.shape)
                return replace(value, axes=tuple(axis if axis or size == 1 else (-size,) for axis, size in wide))
            case First():
                return self._first(value, set(op.axes))
            case Diagonal():
                if axes[op.axis1] != axes[op.axis2]:
                    raise _Refusal("takes the diagonal of axes with different labels")
                others = (axis for place, axis in enumerate(axes) if place not in (op.axis1, op.axis2))
                return replace(value, axes=(*others, axes[op.axis1]))
            case Copy() | Cast():
                return value
            case Sum():
                over = set(op.axes)
                kept = tuple(axis for place, axis in enumerate(axes) if place not in over)
                return self._combined(read, kept, [axes[place] for place in op.axes])
            case Scale():
                self._count *= op.count
                if self._count > _LARGE:
                    raise _Refusal("sums more equal terms than any contraction has")
                return value
            case Zeros():
                raise _Refusal("makes zeros where no label has size 0")
            case Multiply():
                return self._combined(read, _aligned(axes, read[1].axes), ())
            case Matmul():
                return self._combined(read, *_matmul(op, axes, read[1].axes))
            case Native():
                return self._combined(read, *_native(op, read))

    def _regrouped(self, labels: Iterable[int], shape: Sequence[int]) -> tuple[Axis, ...]:
        """The same labels in the axes of a reshape, none of which may cut a label in two."""
        left = iter(labels)
        found = []
        for size in shape:
            axis: list[int] = []
            span = 1
            while span < size:
                axis.append(next(left))
                span *= self._sizes[axis[-1]] if axis[-1] >= 0 else -axis[-1]
            if span != size:
                raise _Refusal("cuts an axis where no label ends")
            found.append(tuple(axis))
        return tuple(found)

    def _first(self, value: _Value, axes: set[int]) -> _Value:
        """Element 0 is all there is along an axis that only repeats the array."""
        gone = {label for place in axes for label in value.axes[place]}
        if gone & value.varies:
            raise _Refusal("takes the first element of an axis along which the array may vary")
        kept = tuple(axis for place, axis in enumerate(value.axes) if place not in axes)
        still = set(chain.from_iterable(kept))
        for label in gone - still:
            self._users[label] -= value.uses.get(label, 0)
        return _Value(kept, {label: value.uses[label] for label in value.uses if label in still}, value.varies)

    def _combined(self, read: Sequence[_Value], kept: tuple[Axis, ...], summed: Sequence[Axis]) -> _Value:
        """A product of values, summed over some axes."""
        uses: Counter[int] = Counter()
        for value in read:
            uses.update(value.uses)
        over = list(chain.from_iterable(summed))
        still = set(chain.from_iterable(kept))
        if len(set(over)) < len(over) or not still.isdisjoint(over):
            raise _Refusal("sums over one of several axes with the same label")
        for label in over:
            if label < 0 or label in self._kept:
                raise _Refusal("sums over a label that the result has")
            if uses.pop(label) != self._users[label]:
                raise _Refusal("sums over a label that another operand has")
        self._summed.update(over)
        return _Value(kept, uses, frozenset[int]().union(*(value.varies for value in read)).difference(over))


def _aligned(lhs: Sequence[Axis], rhs: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes of an elementwise product; one of size 1 broadcasts."""
    rank = max(len(lhs), len(rhs))
    pairs = zip(((),) * (rank - len(lhs)) + tuple(lhs), ((),) * (rank - len(rhs)) + tuple(rhs))
    return tuple(_one(one, other) for one, other in pairs)


def _one(lhs: Axis, rhs: Axis) -> Axis:
    if lhs and rhs and lhs != rhs:
        raise _Refusal("multiplies along axes with different labels")
    return lhs or rhs


def _matmul(op: Matmul, lhs: tuple[Axis, ...], rhs: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], list[Axis]]:
    """The axes of a matrix product, and what it sums over."""
    if min(len(lhs), len(rhs)) == 1:
        return (*lhs[:-1], *rhs[1:]), [_one(lhs[-1], rhs[0])]
    if op.inner_batch:
        lhs, rhs = between(lhs), between(rhs)
    rows, inner = lhs[:-3:-1] if op.transpose_lhs else lhs[-2:]
    other, cols = rhs[:-3:-1] if op.transpose_rhs else rhs[-2:]
    found = (*_aligned(lhs[:-2], rhs[:-2]), rows, cols)
    return between(found) if op.inner_batch else found, [_one(inner, other)]


def _native(op: Native, read: Sequence[_Value]) -> tuple[tuple[Axis, ...], list[Axis]]:
    """The axes of a call of the framework's own einsum, and what it sums over."""
    inputs, _, output = op.equation.partition("->")
    found: dict[str, Axis] = {}
    for term, value in zip(inputs.split(","), read):
        for letter, axis in zip(term, value.axes):
            if found.setdefault(letter, axis) != axis:
                raise _Refusal("multiplies along axes with different labels")
    return tuple(found[letter] for letter in output), [axis for letter, axis in found.items() if letter not in output]


def _said(op: Op) -> str:
    return excerpt(str(op))
