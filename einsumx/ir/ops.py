"""The operations that a plan is made of: one array call each, over numbered slots.

Slots ``0 .. n-1`` hold the operands, and each op writes one new slot. No op overwrites a slot, so a plan can be read,
checked and reordered as pure data.

An op says what it does to shapes, strides and dtypes, how much arithmetic that is, how it prints, and which primitive
of a backend runs it. Other modules ``match`` only over the ops that they treat in a way of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

from einsumx.errors import EinsumxError, excerpt
from einsumx.ir.layout import broadcast, contiguous, memory_order, reshaped
from einsumx.ir.records import record
from einsumx.ir.sizes import evaluated, evaluated_shape, shape_text

if TYPE_CHECKING:
    from typing_extensions import Self

Shape: TypeAlias = tuple[int, ...]

Strides: TypeAlias = tuple[int, ...] | None
"""In elements, an axis each; None for C-contiguous."""

Effect: TypeAlias = Literal["view", "copy", "work"]

Threads: TypeAlias = Literal["", "pool", "blas"]

_Axis = TypeVar("_Axis")
"""Anything that each axis has one of: a size, a stride, labels."""


_REMARKS: dict[Effect, str] = {
    "view": "view",
    "copy": "copy {copied}: {reason}",
    "work": "{multiply_adds} multiply-adds",
}


class Op:
    """An array call. The defaults are for an op that computes each element of its result once.

    Attributes:
        out: the slot that it writes.
        name: of the method of :class:`~einsumx.adapters.base.Primitives` that runs it: the class's, in small letters.
        parameters: the fields that the primitive takes after the arrays.
        call: how it prints, with fields, ``name`` and ``sources`` in braces; by default, these two and the parameters.
        functions: those of the array API standard that the primitive consists of, if the dtype makes no difference.
    """

    __slots__: tuple[str, ...] = ()
    out: int
    name: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]] = ()
    call: ClassVar[str] = ""
    functions: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__.lower()

    @property
    def sources(self) -> tuple[int, ...]:
        """The slots that it reads.

        >>> Matmul(2, 0, 1).sources
        (0, 1)
        """
        raise NotImplementedError

    def renamed(self, names: Mapping[int, int]) -> Self:
        """The same op with the slots in ``names`` replaced.

        >>> Multiply(2, 0, 1).renamed({1: 7})
        Multiply(out=2, lhs=0, rhs=7)
        """
        slots = (self.out, *self.sources)
        renamed = tuple([names.get(slot, slot) for slot in slots])
        return self if renamed == slots else self._with(*renamed)

    def _with(self, *fields: Any) -> Self:
        """The same op with other values of its first fields."""
        make: Any = type(self)
        changed: Self = make(*fields, *[getattr(self, name) for name in make.__slots__[len(fields) :]])
        return changed

    @property
    def effect(self) -> Effect:
        """``view`` takes no memory, ``copy`` moves or casts elements, and ``work`` computes."""
        return "work"

    @property
    def fields(self) -> dict[str, Any]:
        """The values of its fields by name."""
        return {name: getattr(self, name) for name in type(self).__slots__}

    @property
    def remark(self) -> str:
        """Its cost in words, with the fields, ``multiply_adds`` and ``copied`` in braces."""
        return _REMARKS[self.effect]

    @property
    def text(self) -> str:
        """The call that it makes, and its slots.

        >>> Sum(2, 1, (0, 3)).text
        'sum %1 over (0,3)'
        """
        return self.filled(self.call or " ".join(["{name} {sources}", *[f"{{{name}}}" for name in self.parameters]]))

    def filled(self, text: str, **amounts: str) -> str:
        """A text with values in the place of the names in braces."""
        values = {key: shape_text(each) if type(each) is tuple else each for key, each in self.fields.items()}
        sources = " ".join([f"%{slot}" for slot in self.sources])
        return text.format(name=self.name, sources=sources, **values, **amounts)

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """The shape of the result, from the shapes of the sources.

        Raises:
            EinsumxError: they do not fit.

        >>> Matmul(2, 0, 1, transpose_rhs=True).result_shape([(4, 2, 3), (4, 5, 3)])
        (4, 2, 5)
        """
        shape = self.shape_after(shapes)
        if shape is None:
            raise EinsumxError(f"{excerpt(str(self))} does not fit shapes {excerpt(', '.join(map(str, shapes)))}")
        return shape

    def shape_after(self, shapes: Sequence[Shape]) -> Shape | None:
        """The shape of the result, None if those of the sources do not fit."""
        raise NotImplementedError

    def result_strides(self, shape: Shape, strides: Strides) -> Strides:
        """The strides of the result, from the shape and strides of the first source.

        >>> Transpose(1, 0, (1, 0)).result_strides((4, 5), None)
        (1, 5)
        """
        return None

    def result_dtype(self, dtype: str) -> str:
        """The dtype of the result, from that of the sources."""
        return dtype

    def iterated(self, sources: Sequence[tuple[_Axis, ...]], result: tuple[_Axis, ...]) -> tuple[_Axis, ...] | None:
        """The axes that its arithmetic runs over, out of those of the sources and the result; None without arithmetic.

        >>> Matmul(2, 0, 1).iterated(["bik", "bkj"], "bij")
        ('b', 'i', 'j', 'k')
        """
        return result if self.effect == "work" else None

    def multiply_adds(self, shapes: Sequence[Shape], result: Shape) -> int:
        """Its multiplications with their additions, from the shapes of the sources and the result."""
        axes = self.iterated(shapes, result)
        return 0 if axes is None else prod(axes)

    def joined(self, before: Op | None) -> Op | None:
        """One view that does the work of ``before``, which makes its source, and of itself; None if there is none.

        >>> Transpose(2, 1, (0, 2, 1)).joined(Transpose(1, 0, (2, 0, 1)))
        Transpose(out=2, src=0, axes=(2, 1, 0))
        """
        return None

    def is_idle(self, shape: Shape) -> bool:
        """Whether it changes nothing in a source of this shape."""
        return False

    @property
    def sizes(self) -> Shape:
        """The sizes that it states.

        >>> Reshape(1, 0, (2, 3)).sizes, Sum(1, 0, (0,)).sizes
        ((2, 3), ())
        """
        return ()

    def sized(self, values: Mapping[str, Any]) -> Self:
        """The same op with what ``values`` has for each unknown size, see :mod:`einsumx.ir.sizes`."""
        return self


class _OneSource(Op):
    __slots__ = ()
    src: int

    @property
    def sources(self) -> tuple[int, ...]:
        return (self.src,)


class Elementwise(_OneSource):
    """A function of each element, with a result in C order. A subclass with ``out`` and ``src`` needs nothing else."""

    __slots__ = ()

    def shape_after(self, shapes: Sequence[Shape]) -> Shape | None:
        return shapes[0]


class _View(_OneSource):
    __slots__ = ()
    effect: Effect = "view"


class _Shaping(Op):
    """An op that states the shape of its result, in the third field."""

    __slots__ = ()
    parameters: ClassVar[tuple[str, ...]] = ("shape",)
    shape: Shape

    @property
    def sizes(self) -> Shape:
        return self.shape

    def sized(self, values: Mapping[str, Any]) -> Self:
        out, sources, *_ = self.fields.values()
        return self._with(out, sources, evaluated_shape(self.shape, values))


class _ViewOrCopy(_OneSource):
    """A view; or a copy, with its reason, because the framework has no such view."""

    __slots__ = ()
    reason: str

    @property
    def effect(self) -> Effect:
        return "copy" if self.reason else "view"


class _Copying(Elementwise):
    __slots__ = ()
    effect: Effect = "copy"


class _Dropping(_OneSource):
    """The result lacks ``axes`` of the source."""

    __slots__ = ()
    axes: tuple[int, ...]

    def arranged(self, axes: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
        """``axes``, one item for each axis of the source, as the result has them; as in Transpose and Diagonal.

        >>> Sum(1, 0, (0, 2)).arranged("abcd")
        ('b', 'd')
        """
        return _without(axes, self.axes)


class _TwoSources(Op):
    __slots__ = ()
    lhs: int
    rhs: int

    @property
    def sources(self) -> tuple[int, ...]:
        return (self.lhs, self.rhs)


class _ManySources(Op):
    __slots__ = ()
    operands: tuple[int, ...]

    @property
    def sources(self) -> tuple[int, ...]:
        return self.operands

    def renamed(self, names: Mapping[int, int]) -> Self:
        out, operands = names.get(self.out, self.out), tuple([names.get(slot, slot) for slot in self.operands])
        if out == self.out and operands == self.operands:
            return self
        return self._with(out, operands)


# -- views, and copies where a framework has no such view ---------------------------------------------------------


@record
class Transpose(_ViewOrCopy):
    """Axis ``k`` of the result is axis ``axes[k]`` of the source. ``reason`` says why it copies."""

    parameters = ("axes",)
    functions = "permute_dims", "asarray"

    out: int
    src: int
    axes: tuple[int, ...]
    reason: str = ""

    def arranged(self, axes: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
        return tuple([axes[axis] for axis in self.axes])

    def shape_after(self, shapes: Sequence[Shape]) -> Shape | None:
        (shape,) = shapes
        return tuple(map(shape.__getitem__, self.axes)) if sorted(self.axes) == list(range(len(shape))) else None

    def result_strides(self, shape: Shape, strides: Strides) -> Strides:
        return None if self.reason else self.arranged(contiguous(shape) if strides is None else strides)

    def joined(self, before: Op | None) -> Op | None:
        if isinstance(before, Transpose) and not (self.reason or before.reason):
            return Transpose(self.out, before.src, self.arranged(before.axes))
        return None

    def is_idle(self, shape: Shape) -> bool:
        return self.axes == tuple(range(len(self.axes)))


@record
class Reshape(_Shaping, _View):
    """The same elements in C order of the axes; planned only where it copies nothing."""

    functions = ("reshape",)

    out: int
    src: int
    shape: tuple[int, ...]

    def shape_after(self, shapes: Sequence[Shape]) -> Shape | None:
        (shape,) = shapes
        return self.shape if prod(shape) == prod(self.shape) else None

    def result_strides(self, shape: Shape, strides: Strides) -> Strides:
        return None if strides is None else reshaped(shape, strides, self.shape)

    def joined(self, before: Op | None) -> Op | None:
        return Reshape(self.out, before.src, self.shape) if isinstance(before, Reshape) else None

    def is_idle(self, shape: Shape) -> bool:
        return self.shape == shape


@record
class Expand(_Shaping, _View):
    """Axes of size 1 get the sizes of ``shape`` with a stride of 0: a view, planned only for strided frameworks."""

    functions = ("broadcast_to",)

    out: int
    src: int
    shape: tuple[int, ...]

    def shape_after(self, shapes: Sequence[Shape]) -> Shape | None:
        (shape,) = shapes
        is_wider = len(shape) == len(self.shape) and all(a in (1, b) for a, b in zip(shape, self.shape))
        return self.shape if is_wider else None

    def result_strides(self, shape: Shape, strides: Strides) -> Strides:
        steps = contiguous(shape) if strides is None else strides
        return tuple(step if size == wide else 0 for size, wide, step in zip(shape, self.shape, steps))

    def is_idle(self, shape: Shape) -> bool:
        return self.shape == shape


@record
class First(_Dropping, _View):
    """Element 0 along ``axes``, which the result lacks; no data is lost along an axis of stride 0."""

    call = "{name} {sources} of axes {axes}"

    out: int
    src: int
    axes: tuple[int, ...]

    def shape_after(self, shapes: Sequence[Shape]) -> Shape | None:
        (shape,) = shapes
        gone = set(self.axes)
        has_first = gone <= set(range(len(shape))) and all(shape[axis] > 0 for axis in gone)
        return self.arranged(shape) if has_first else None

    def result_strides(self, shape: Shape, strides: Strides) -> Strides:
        return self.arranged(contiguous(shape) if strides is None else strides)


@record
class Diagonal(_ViewOrCopy):
    """Two axes of equal size become one, which comes last as in ``numpy.diagonal``. ``reason`` says why it copies."""

    parameters = "axis1", "axis2"
    call = "{name} {sources} axes {axis1} and {axis2}"
    functions = "permute_dims", "reshape", "asarray"

    out: int
    src: int
    axis1: int
    axis2: int
    reason: str = ""

    def arranged(self, axes: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
        return (*_without(axes, (self.axis1, self.axis2)), axes[self.axis1])

    def shape_after(self, shapes: Sequence[Shape]) -> Shape | None:
        (shape,) = shapes
        pair = {self.axis1, self.axis2}
        are_axes = len(pair) == 2 and pair <= set(range(len(shape)))
        return self.arranged(shape) if are_axes and shape[self.axis1] == shape[self.axis2] else None

    def result_strides(self, shape: Shape, strides: Strides) -> Strides:
        if self.reason:
            return None
        steps = contiguous(shape) if strides is None else strides
        return (*self.arranged(steps)[:-1], steps[self.axis1] + steps[self.axis2])


# -- copies ---------------------------------------------------------------------------------------------------------


@record
class Copy(_Copying):
    """A C-contiguous copy in the source's axis order, with the reason for it."""

    functions = ("asarray",)

    out: int
    src: int
    reason: str


@record
class Cast(_Copying):
    """Another dtype, in the source's memory order without gaps. A cast to bool tests for nonzero."""

    parameters = ("dtype",)
    remark = "copy {copied}: computed in {dtype}"

    out: int
    src: int
    dtype: str

    def result_strides(self, shape: Shape, strides: Strides) -> Strides:
        if strides is None:
            return None
        order = memory_order(strides)
        packed = dict(zip(order, contiguous([shape[axis] for axis in order])))
        return tuple(packed[axis] for axis in range(len(shape)))

    def result_dtype(self, dtype: str) -> str:
        return self.dtype


@record
class Conjugate(_Copying):
    """The complex conjugate of each element. ``lazily`` says that only a product of two matrices reads it."""

    parameters = ("lazily",)
    call = "{name} {sources}"
    remark = "copy {copied}: its complex conjugate"
    functions = ("conj",)

    out: int
    src: int
    lazily: bool = False


# -- arithmetic -----------------------------------------------------------------------------------------------------


@record
class Sum(_Dropping):
    """The sum over ``axes``, in the source's dtype: integer overflow wraps, a sum of bools is an or."""

    parameters = ("axes",)
    call = "{name} {sources} over {axes}"
    remark = "{multiply_adds} additions"
    functions = ("sum",)

    out: int
    src: int
    axes: tuple[int, ...]

    def shape_after(self, shapes: Sequence[Shape]) -> Shape | None:
        (shape,) = shapes
        gone = set(self.axes)
        return self.arranged(shape) if len(gone) == len(self.axes) and gone <= set(range(len(shape))) else None

    def iterated(self, sources: Sequence[tuple[_Axis, ...]], result: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
        return sources[0]


@record
class Scale(Elementwise):
    """``count`` times the source, in its dtype; integer overflow wraps.

    Planned to sum over a label along which every operand is broadcast (:class:`First`). Counts of several labels are
    multiplied, up to ``2**63 - 1`` in one op. Bools need no such op: an or of equal terms is that term.
    """

    parameters = ("count",)
    call = "{name} {sources} by {count}"
    remark = "{multiply_adds} multiplications: each sum is of {count} equal terms"

    out: int
    src: int
    count: int

    @property
    def sizes(self) -> Shape:
        return (self.count,)

    def sized(self, values: Mapping[str, Any]) -> Self:
        return self._with(self.out, self.src, evaluated(self.count, values))

    def shape_after(self, shapes: Sequence[Shape]) -> Shape | None:
        return shapes[0] if self.count > 0 else None


@record
class Multiply(_TwoSources):
    """The elementwise product, broadcasting as NumPy does; a product of bools is an and."""

    remark = "{multiply_adds} multiplications"
    functions = ("multiply",)

    out: int
    lhs: int
    rhs: int

    def shape_after(self, shapes: Sequence[Shape]) -> Shape | None:
        lhs, rhs = shapes
        rank = max(len(lhs), len(rhs))
        lhs, rhs = (1,) * (rank - len(lhs)) + lhs, (1,) * (rank - len(rhs)) + rhs
        return broadcast(lhs, rhs) if _fit(lhs, rhs) else None


@record
class Matmul(_TwoSources):
    """``lhs[..., m, k] @ rhs[..., k, n]``; a flag says that the last two axes of that operand are swapped.

    Both have as many batch axes, and those of size 1 broadcast. Without batch axes, an operand may be a vector, of axis
    ``k`` alone.

    ``threads`` says whose threads compute it: those of einsumx's pool, those of BLAS, or, if it is empty, those that
    the backend prefers.

    ``sums`` is an integer dtype in which it sums the products of narrower integers, exactly up to overflow, which
    wraps; or the complex dtype of the matrix on the right, if the one on the left is real. If it is empty, sums and
    result have the operands' dtype.
    """

    functions = "matmul", "matrix_transpose"

    out: int
    lhs: int
    rhs: int
    transpose_lhs: bool = False
    transpose_rhs: bool = False
    threads: Threads = ""
    sums: str = ""

    @property
    def text(self) -> str:
        lhs = f"%{self.lhs}{' transposed' if self.transpose_lhs else ''}"
        rhs = f"%{self.rhs}{' transposed' if self.transpose_rhs else ''}"
        threads = {"": "", "pool": " on the pool", "blas": " on BLAS's threads"}[self.threads]
        wide = f" in {self.sums}" if self.sums else ""
        return f"matmul {lhs} {rhs}{wide}{threads}"

    @property
    def is_plain(self) -> bool:
        """Whether no flag is set."""
        return not (self.transpose_lhs or self.transpose_rhs)

    def contracted(self, lhs: tuple[_Axis, ...], rhs: tuple[_Axis, ...]) -> tuple[_Axis, _Axis]:
        """The axis of each operand that it sums over.

        >>> Matmul(2, 0, 1, transpose_lhs=True).contracted("bki", "bKj")
        ('k', 'K')
        """
        return lhs[-2 if self.transpose_lhs else -1], rhs[-1 if self.transpose_rhs or len(rhs) == 1 else -2]

    def product(
        self, lhs: tuple[_Axis, ...], rhs: tuple[_Axis, ...], one_of: Callable[[_Axis, _Axis], _Axis]
    ) -> tuple[_Axis, ...]:
        """The axes of the result, from those of both operands.

        Args:
            lhs, rhs: an item for each axis of the operand.
            one_of: combines the items of two batch axes.

        >>> Matmul(2, 0, 1, transpose_lhs=True).product("bki", "Bkj", max)
        ('b', 'i', 'j')
        """
        if min(len(lhs), len(rhs)) == 1:
            return (*lhs[:-1], *rhs[1:])
        rows, cols = lhs[-1 if self.transpose_lhs else -2], rhs[-2 if self.transpose_rhs else -1]
        return (*map(one_of, lhs[:-2], rhs[:-2]), rows, cols)

    def shape_after(self, shapes: Sequence[Shape]) -> Shape | None:
        lhs, rhs = shapes
        if len(lhs) == len(rhs) > 1 and lhs[:-2] == rhs[:-2] and self.is_plain:  # the same, sooner
            return (*lhs[:-1], rhs[-1]) if lhs[-1] == rhs[-2] else None
        if min(len(lhs), len(rhs)) == 1:
            fits = max(len(lhs), len(rhs)) <= 2 and self.is_plain
        else:
            fits = len(lhs) == len(rhs) > 1 and _fit(lhs[:-2], rhs[:-2])
        if not fits:
            return None
        inner, other = self.contracted(lhs, rhs)
        return self.product(lhs, rhs, _wider) if inner == other else None

    def result_dtype(self, dtype: str) -> str:
        return self.sums or dtype

    def iterated(self, sources: Sequence[tuple[_Axis, ...]], result: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
        return (*result, self.contracted(*sources)[0])


@record
class Native(_ManySources):
    """The framework's own einsum: for tiny work and for integers, or for every product if a compiler lowers it."""

    call = "einsum {equation} {sources}"
    remark = "{multiply_adds} multiply-adds in the framework's own kernel"

    out: int
    operands: tuple[int, ...]
    equation: str

    @property
    def terms(self) -> list[str]:
        """The subscripts of its sources."""
        return self.equation.partition("->")[0].split(",")

    @property
    def output(self) -> str:
        """The subscript of its result."""
        return self.equation.partition("->")[2]

    def by_letter(self, sources: Sequence[tuple[_Axis, ...]]) -> dict[str, _Axis]:
        """The axis that each letter stands for, from the axes of the sources."""
        return {letter: axis for term, axes in zip(self.terms, sources) for letter, axis in zip(term, axes)}

    def shape_after(self, shapes: Sequence[Shape]) -> Shape | None:
        left, _, output = self.equation.partition("->")
        letters = left.replace(",", "")
        if list(map(len, left.split(","))) != list(map(len, shapes)):
            return None
        if letters and not letters.isalpha():  # the equation becomes part of code
            return None
        axes = [*chain.from_iterable(shapes)]
        sizes = dict(zip(letters, axes))
        if axes != [*map(sizes.get, letters)] or len(set(output)) < len(output) or not sizes.keys() >= set(output):
            return None
        return tuple([sizes[letter] for letter in output])

    def iterated(self, sources: Sequence[tuple[_Axis, ...]], result: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
        return tuple(self.by_letter(sources).values())

    def multiply_adds(self, shapes: Sequence[Shape], result: Shape) -> int:
        return prod(self.iterated(shapes, result)) * max(len(self.operands) - 1, 1)


@record
class Zeros(_Shaping, _ManySources):
    """The result of a contraction with a label of size 0: zeros, or no elements at all.

    It is the only op of its plan. The operands say on which device the result is made, and get gradients of zeros;
    their elements are not read.
    """

    parameters = "shape", "dtype"
    call = "{name} {shape} {dtype}"
    remark = "a label has size 0"
    functions = ("zeros",)

    out: int
    operands: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str

    def shape_after(self, shapes: Sequence[Shape]) -> Shape | None:
        return self.shape if any(0 in shape for shape in shapes) else None

    def result_dtype(self, dtype: str) -> str:
        return self.dtype

    def iterated(self, sources: Sequence[tuple[_Axis, ...]], result: tuple[_Axis, ...]) -> None:
        return None


def _without(axes: tuple[_Axis, ...], gone: Sequence[int]) -> tuple[_Axis, ...]:
    return tuple([axis for place, axis in enumerate(axes) if place not in gone])


def _fit(lhs: Shape, rhs: Shape) -> bool:
    """Whether two shapes of equal rank broadcast."""
    return all(a == b or 1 in (a, b) for a, b in zip(lhs, rhs))


def _wider(lhs: int, rhs: int) -> int:
    return rhs if lhs == 1 else lhs
