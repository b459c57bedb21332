"""``check_meaning``: replay a plan from outside on labels, and reject it if its ops do not compute its equation.

The replay tracks the labels that each axis of each slot runs over, with one invariant: a slot holds the product of the
operands that went into it, summed over the labels that were summed so far. Axes that meet in a product must therefore
have the same labels, and a label may be summed only if neither the output nor another operand needs it. Each operand
enters the result exactly once because each slot is read exactly once.
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
from einsumx.ir import ops
from einsumx.ir.accumulators import exact_floats, holds, largest_sum
from einsumx.ir.bind import SizedEquation, bind, label_names
from einsumx.ir.layout import contiguous
from einsumx.ir.ops import Op
from einsumx.ir.parse import parse_names, parse_sublists, parse_text
from einsumx.ir.program import Path, Program
from einsumx.ir.sizes import is_known
from einsumx.ir.strict import MOST_AXES, PLAN
from einsumx.ir.verify import verify

__all__ = ["check_fields", "check_meaning"]

Axis: TypeAlias = tuple[int, ...]
"""The labels that an axis runs over, none of them of size 1.

A negative number stands for an axis of that size along which an array only repeats itself.
"""


_LARGE = 1 << 500
"""More elements than any array has; below it, every cost fits a float."""


class _Refusal(Exception):  # noqa: N818  check_meaning raises the error, which names the plan
    """Why a plan does not compute its equation."""


def check_fields(program: Program) -> None:
    """Check that each field of a plan, its operands and its ops has its declared type.

    Raises:
        EinsumxError: a field has another type or value; the message names it.
    """
    try:
        PLAN.check(program)
    except ValueError as error:
        raise EinsumxError(f"a field of this plan has the wrong type or value: {error}") from None


def check_meaning(program: Program, computed_in: Collection[str] = ()) -> None:
    """Check that the ops of a plan compute its equation in the dtype of its result, in time linear in their number.

    Args:
        program: whose fields :func:`check_fields` accepts.
        computed_in: further dtypes in which its backend computes a result of this dtype.

    Raises:
        EinsumxError: they do not, or slots, shapes or the path are inconsistent.

    >>> import einsumx
    >>> check_meaning(einsumx.plan("ij,jk->ik", (2, 3), (3, 4)))
    """
    shapes = [operand.shape for operand in program.operands]
    try:
        _check_terms(program)
        if program.strip_exponent:
            raise _Refusal("its result is a mantissa alone")
        for number, operand in enumerate(program.operands):
            if operand.strides is not None and len(operand.strides) != len(operand.shape):
                raise _Refusal(f"operand {number} has {len(operand.shape)} axes and {len(operand.strides)} strides")
        parsed = parse_text(program.equation, len(shapes))
        equation = bind(parsed, shapes)
        slots = verify(program)
        if parsed.text != program.equation:
            raise _Refusal(f"the equation is not in the form {excerpt(parsed.text)}")
        if program.named and _in_letters(program.named, len(shapes)) != program.equation:
            raise _Refusal(f"it is not {excerpt(program.named)}")
        if equation.shape != program.shape:
            raise _Refusal(f"the result of the equation has shape {equation.shape}")
        _check_sizes(program, slots)
        _check_path(program.path, len(shapes))
        _check_reads(program)
        _check_dtypes(program, equation, computed_in)
        if 0 in equation.sizes:
            _check_empty(program, slots)
        else:
            _Replay(program, equation).check()
    except _Refusal as refusal:
        raise EinsumxError(f"the ops of this plan do not compute {excerpt(program.equation)}: {refusal}") from None


def _in_letters(named: str, count: int) -> str:
    """An equation of names in letters; empty if it is none."""
    try:
        return parse_sublists(*parse_names(named, count)).text
    except EinsumxError:
        return ""


def _check_terms(program: Program) -> None:
    """Reject subscripts with more labels than an array has axes."""
    for equation in (program.equation, *(op.equation for op in program.ops if isinstance(op, ops.Native))):
        if max(map(len, equation.replace("->", ",").split(","))) > MOST_AXES:
            raise _Refusal(f"a subscript has more labels than the {MOST_AXES} axes that an array may have")


def _check_sizes(program: Program, shapes: Mapping[int, tuple[int, ...]]) -> None:
    """Reject arrays and loops of the framework's own einsum that are too large to be counted."""
    spans: list[tuple[int, Collection[int]]] = list(shapes.items())
    for op in program.ops:
        if isinstance(op, ops.Native):
            looped = op.loops([shapes[slot] for slot in op.operands], shapes[op.out])
            spans.append((op.out, looped))
    for slot, span in spans:
        if prod(span) > _LARGE:
            raise _Refusal(f"%{slot} has more elements than any array")


def _check_path(path: Path, count: int) -> None:
    """Check that each step takes one or two different terms, and that one is left."""
    for step in path:
        if len(step) not in (1, 2) or len(set(step)) < len(step) or not all(0 <= place < count for place in step):
            raise _Refusal(f"there is no step {step} in a path where {count} terms are left")
        count -= len(step) - 1
    if count != 1:
        raise _Refusal(f"the path leaves {count} terms")


def _check_reads(program: Program) -> None:
    """Check that each slot but the result's is read once."""
    reads = Counter(chain.from_iterable(op.sources for op in program.ops))
    for slot in chain(range(len(program.operands)), (op.out for op in program.ops)):
        if reads[slot] != (slot != program.result):
            raise _Refusal(f"%{slot} is read {reads[slot]} times{', and is the result' * (slot == program.result)}")


# -- dtypes ---------------------------------------------------------------------------------------------------------


def _check_dtypes(program: Program, equation: SizedEquation, computed_in: Collection[str]) -> None:
    """Check that operands are cast to the dtype of the result or to a wider one, and that arithmetic is in these.

    Integers may also be computed in floats, if these are exact for operands of such dtypes.
    """
    wider = {*_wider(program.dtype), *computed_in}
    floats = _Floats.of(program, equation)
    # Operands of another dtype must be cast to integers or bools directly: a wider dtype holds other values.
    dtypes = {slot: (operand.dtype, kind(program.dtype) not in "fc") for slot, operand in enumerate(program.operands)}
    for op in program.ops:
        for slot in op.sources:
            dtype, is_foreign = dtypes[slot]
            allowed = {program.dtype} if is_foreign and dtype != program.dtype else {program.dtype, *wider}
            if isinstance(op, ops.Cast):
                is_held = dtype not in floats.exact or op.dtype in floats.exact or floats.is_held_by(op.dtype)
                if op.dtype not in allowed | floats.exact or not is_held:
                    raise _Refusal(f"{_said(op)} casts {dtype} to {op.dtype} on the way to {program.dtype}")
                dtypes[op.out] = op.dtype, False
            elif isinstance(op, ops.Zeros):
                dtypes[op.out] = op.dtype, False
            elif isinstance(op, ops.Matmul) and op.sums:
                is_narrower = kind(op.sums) in "iu" and can_cast(dtype, op.sums)
                if op.sums not in allowed | wider or not is_narrower or dtype != dtypes[op.sources[0]][0]:
                    raise _Refusal(f"{_said(op)} sums products of {dtype}, and the result is {program.dtype}")
                dtypes[op.out] = op.sums, False
            elif op.kind == "work":
                if dtype not in allowed | floats.exact or dtype != dtypes[op.sources[0]][0]:
                    raise _Refusal(f"{_said(op)} computes in {dtype}, and the result is {program.dtype}")
                dtypes[op.out] = dtype, False
            else:
                dtypes[op.out] = dtype, is_foreign
    if dtypes[program.result][0] != program.dtype:
        raise _Refusal(f"they give {dtypes[program.result][0]}, but the result should be {program.dtype}")


@dataclass(frozen=True, slots=True)
class _Floats:
    """The floats in which a contraction of integers is exact.

    Attributes:
        exact: their names; none for a result that is no integer, and for operands that are none.
        most: the largest absolute value of the result.
        is_signed: whether it may be negative.
    """

    exact: frozenset[str]
    most: int
    is_signed: bool

    @classmethod
    def of(cls, program: Program, equation: SizedEquation) -> _Floats:
        dtypes = [operand.dtype for operand in program.operands]
        terms = prod([size for label, size in enumerate(equation.sizes) if label not in equation.output])
        most = largest_sum(dtypes, terms) if kind(program.dtype) in "iu" and is_known(equation.sizes) else None
        return cls(frozenset(exact_floats(most)), most or 0, any(kind(dtype) == "i" for dtype in dtypes))

    def is_held_by(self, dtype: str) -> bool:
        """Whether a dtype holds every result, so that a cast to it is defined."""
        return holds(dtype, self.most, self.is_signed)


def _wider(dtype: str) -> set[str]:
    """The dtypes of intermediates from which a cast to the result's dtype gives the same."""
    match kind(dtype):
        case "f" | "c" as own:
            return {name for name in NAMED if kind(name) == own and can_cast(dtype, name)}
        case "b":  # sums of zeros and ones, of which only the sign matters
            return {"float32", "float64"}
        case "i" | "u":  # overflow wraps, so the lower bits are the same
            return {name for name in NAMED if kind(name) in "iu" and itemsize(name) >= itemsize(dtype)}
        case _:
            return set()


# -- arrays without elements ----------------------------------------------------------------------------------------


def _check_empty(program: Program, shapes: Mapping[int, Sequence[int]]) -> None:
    """Check a plan with a label of size 0, whose result has no elements or is zero.

    An empty sum is 0, and stays 0 unless it is multiplied, as by infinity.
    """
    is_zero = {slot: 0 in operand.shape for slot, operand in enumerate(program.operands)}
    for op in program.ops:
        read = op.sources
        over_nothing = any(0 in shapes[slot] for slot in (*read, op.out))
        is_zero[op.out] = over_nothing or (len(read) == 1 and is_zero[read[0]])
    if not is_zero[program.result]:
        raise _Refusal("they do not give 0, which is the sum over a label of size 0")


# -- labels ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Value:
    """The value of a slot.

    Attributes:
        axes: the labels of each axis.
        uses: for each label of its axes, how many of its operands have that label.
        varies: the labels along which it may vary; along others it only repeats itself.
    """

    axes: tuple[Axis, ...]
    uses: Mapping[int, int]
    varies: frozenset[int]


class _Replay:
    """The labels of every slot, for an equation whose labels have no size 0."""

    def __init__(self, program: Program, equation: SizedEquation) -> None:
        self._program, self._equation, self._sizes = program, equation, equation.sizes
        self._kept, self._summed = frozenset(equation.output), set[int]()
        self._count = 1  # of equal terms that are summed, all ops together
        self._values = [
            self._operand(term, operand.shape, operand.strides or contiguous(operand.shape))
            for term, operand in zip(equation.inputs, program.operands)
        ]
        self._users = Counter(label for value in self._values for label in value.uses)

    def _operand(self, term: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> _Value:
        axes = tuple((label,) if size > 1 else () for label, size in zip(term, shape))
        varies = frozenset(label for axis, step in zip(axes, strides) if step for label in axis)
        return _Value(axes, dict.fromkeys(chain.from_iterable(axes), 1), varies)

    def check(self) -> None:
        """Raise unless the result is that of the equation."""
        values = dict(enumerate(self._values))
        for op in self._program.ops:
            try:
                values[op.out] = self._result(op, [values.pop(slot) for slot in op.sources])
            except _Refusal as refusal:
                raise _Refusal(f"{_said(op)} {refusal}") from None
        sizes, output = self._sizes, self._equation.output
        for label, axis in zip(output, values[self._program.result].axes):
            # An axis that only repeats the array may stand for a label along which no operand varies.
            if axis not in ((label,) * (sizes[label] > 1), () if self._users[label] else (-sizes[label],)):
                raise _Refusal(f"axis {output.index(label)} of the result is not that of the equation")
        done = self._kept | self._summed
        left = [label for label, size in enumerate(sizes) if size > 1 and label not in done]
        # Sums over labels along which no operand varies are counted; an or of equal terms is not.
        is_counted = self._program.dtype != "bool"
        expected = prod([sizes[label] for label in left if is_counted and not self._users[label]])
        for label in left:
            if self._users[label] or self._count % (sizes[label] if is_counted else 1):
                raise _Refusal(f"nothing sums over label {shown(label_names(self._equation)[label])}")
        if self._count != expected:
            raise _Refusal(f"they sum {self._count} equal terms, not {expected}")

    def _result(self, op: Op, read: Sequence[_Value]) -> _Value:
        value = read[0]
        axes = value.axes
        match op:
            case ops.Transpose():
                return replace(value, axes=op.arranged(axes))
            case ops.Reshape():
                return replace(value, axes=self._regrouped(chain.from_iterable(axes), op.shape))
            case ops.Expand():
                wide = zip(axes, op.shape)
                return replace(value, axes=tuple(axis if axis or size == 1 else (-size,) for axis, size in wide))
            case ops.First():
                return self._first(value, op)
            case ops.Diagonal():
                if axes[op.axis1] != axes[op.axis2]:
                    raise _Refusal("takes the diagonal of axes with different labels")
                return replace(value, axes=op.arranged(axes))
            case ops.Copy() | ops.Cast():
                return value
            case ops.Sum():
                return self._combined(read, op.arranged(axes), [axes[place] for place in op.axes])
            case ops.Scale():
                self._count *= op.count
                if self._count > _LARGE:
                    raise _Refusal("sums more equal terms than any contraction has")
                return value
            case ops.Zeros():
                raise _Refusal("makes zeros where no label has size 0")
            case ops.Multiply():
                return self._combined(read, _aligned(axes, read[1].axes), ())
            case ops.Matmul():
                rhs = read[1].axes
                return self._combined(read, op.product(axes, rhs, _one), [_one(*op.contracted(axes, rhs))])
            case ops.Native():
                return self._combined(read, *_native(op, read))

    def _regrouped(self, labels: Iterable[int], shape: Sequence[int]) -> tuple[Axis, ...]:
        """The labels in the axes of a reshape, which must not split a label."""
        left = iter(labels)
        axes = []
        for size in shape:
            axis: list[int] = []
            span = 1
            while span < size:
                axis.append(next(left))
                span *= self._sizes[axis[-1]] if axis[-1] >= 0 else -axis[-1]
            if span != size:
                raise _Refusal("cuts an axis where no label ends")
            axes.append(tuple(axis))
        return tuple(axes)

    def _first(self, value: _Value, op: ops.First) -> _Value:
        """Element 0 along axes that only repeat the array."""
        gone = {label for place in op.axes for label in value.axes[place]}
        if gone & value.varies:
            raise _Refusal("takes the first element of an axis along which the array may vary")
        kept = op.arranged(value.axes)
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


def _native(op: ops.Native, read: Sequence[_Value]) -> tuple[tuple[Axis, ...], list[Axis]]:
    """The axes that the framework's own einsum keeps, and those that it sums over."""
    axes = op.by_letter([value.axes for value in read])
    for term, value in zip(op.terms, read):
        if any(axes[letter] != axis for letter, axis in zip(term, value.axes)):
            raise _Refusal("multiplies along axes with different labels")
    output = op.output
    return tuple(axes[letter] for letter in output), [axis for letter, axis in axes.items() if letter not in output]


def _said(op: Op) -> str:
    return excerpt(str(op))
