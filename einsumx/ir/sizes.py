"""Sizes that are not known when a contraction is planned: symbols that multiply, with a typical size for estimates.

A tracer that records one graph for many sizes has no numbers for some axes. An adapter puts :data:`UNKNOWN` into the
shape of a signature for each of them, :func:`~einsumx.ir.bind.bind` names it after its label, and the ops state
products of such names. When the ops are recorded, :func:`evaluated` replaces names by the sizes that the framework has.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, final

TYPICAL = 256
"""The size that estimates assume for an axis of unknown size."""

if TYPE_CHECKING:
    from typing_extensions import Self

    _Number = int
else:
    _Number = object  # without __index__: a size that reaches the framework by mistake is an error, not a wrong number


def _estimated(operation: Callable[[Any, Any], Any], *, from_right: bool = False) -> Any:
    """A method of :class:`Unknown`: the operation on numbers for estimates, with the other number on the right."""

    def method(self: Unknown, other: Any) -> Any:
        here, there = self.assumed, assumed(other)
        return operation(there, here) if from_right else operation(here, there)

    return method


@final
class Unknown(_Number):
    """A size that is not known: a number times the sizes of axes, by name.

    It equals only the same product of the same names, so it is neither 0 nor 1 nor any other number, and two axes are
    of one size only if they have one name. A product of sizes is a size. In all other arithmetic, and in comparisons,
    it is a number that assumes a typical size for each axis; the results serve for estimates only.

    Attributes:
        names: of the axes, in order.
        times: the number.

    >>> rows = Unknown("i")
    >>> 3 * rows * Unknown("b"), rows * 1 == rows, rows == 256, rows > 100, 0 * rows
    (3*b*i, True, False, True, 0)
    """

    __slots__ = ("names", "times")

    names: tuple[str, ...]
    times: int

    def __new__(cls, *names: str, times: int = 1) -> Self:
        size = object.__new__(cls)
        size.names, size.times = tuple(sorted(names)), times
        return size

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.names, self.times)

    def __repr__(self) -> str:
        return "*".join(([] if self.times == 1 else [str(self.times)]) + list(self.names))

    def __format__(self, spec: str) -> str:
        return format(self.assumed, spec) if spec else repr(self)

    @property
    def assumed(self) -> int:
        """The number that estimates use."""
        return self.times * int(TYPICAL ** len(self.names))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown) and self.names == other.names and self.times == other.times

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.names, self.times))

    def __bool__(self) -> bool:
        return True

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Unknown):
            return Unknown(*self.names, *other.names, times=self.times * other.times)
        if isinstance(other, int):
            return Unknown(*self.names, times=self.times * other) if other else 0
        return self.assumed * other

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __abs__(self) -> Any:
        return Unknown(*self.names, times=abs(self.times))

    __add__ = __radd__ = _estimated(operator.add)
    __sub__, __rsub__ = _estimated(operator.sub), _estimated(operator.sub, from_right=True)
    __truediv__, __rtruediv__ = _estimated(operator.truediv), _estimated(operator.truediv, from_right=True)
    __floordiv__, __rfloordiv__ = _estimated(operator.floordiv), _estimated(operator.floordiv, from_right=True)
    __mod__ = _estimated(operator.mod)
    __lt__, __le__ = _estimated(operator.lt), _estimated(operator.le)
    __gt__, __ge__ = _estimated(operator.gt), _estimated(operator.ge)


def _made(names: tuple[str, ...], times: int) -> Unknown:
    return Unknown(*names, times=times)


UNKNOWN = Unknown("?")
"""An axis of unknown size, before it has the name of its label."""


def assumed(size: Any) -> Any:
    """A number for estimates: a typical one for a size that is not known.

    >>> assumed(3), assumed(2 * UNKNOWN)
    (3, 512)
    """
    return size.assumed if isinstance(size, Unknown) else size


def is_known(sizes: Iterable[Any]) -> bool:
    """Whether all sizes are numbers.

    >>> is_known((2, 3)), is_known((2, UNKNOWN))
    (True, False)
    """
    return Unknown not in map(type, sizes)  # nothing derives from Unknown; first calls ask this often


def may_be_equal(shape: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two shapes are equal as far as their sizes are known.

    >>> may_be_equal((2, UNKNOWN), (2, 3)), may_be_equal((UNKNOWN, 2), (2, 3))
    (True, False)
    """
    if len(shape) != len(other):
        return False
    return all(size == wide or not is_known((size, wide)) for size, wide in zip(shape, other))


def names_in(shapes: Iterable[Sequence[Any]]) -> tuple[str, ...]:
    """The names of the unknown sizes in shapes, each once.

    >>> names_in([(2, Unknown("j")), (Unknown("j"), Unknown("i"))])
    ('j', 'i')
    """
    sizes = [size for shape in shapes for size in shape if isinstance(size, Unknown)]
    return tuple(dict.fromkeys([name for size in sizes for name in size.names]))


def evaluated(size: Any, values: Mapping[str, Any]) -> Any:
    """A size of a plan, from the size that the framework has for each name.

    >>> evaluated(6 * Unknown("i"), {"i": 7}), evaluated(5, {})
    (42, 5)
    """
    if not isinstance(size, Unknown):
        return size
    first, *others = [values[name] for name in size.names]
    product = prod(others, start=first)
    return product if size.times == 1 else product * size.times


def evaluated_shape(shape: Sequence[Any], values: Mapping[str, Any]) -> tuple[Any, ...]:
    """The sizes of a shape, each :func:`evaluated`.

    >>> evaluated_shape((Unknown("i"), 3), {"i": 7})
    (7, 3)
    """
    return tuple([evaluated(size, values) for size in shape])


def shape_text(shape: tuple[Any, ...]) -> str:
    """A shape, or axes, without blanks.

    >>> shape_text((2, 3)), shape_text(())
    ('(2,3)', '()')
    """
    return f"({','.join(map(str, shape))})"
