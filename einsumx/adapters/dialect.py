"""How the calls of a plan are spelled in code of one framework; :mod:`einsumx.render.source` writes functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index

from einsumx.errors import BackendError
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
)

__all__ = ["Spelling", "Value", "listed", "numbers", "summed"]


@dataclass(frozen=True, slots=True)
class Value:
    """A value in code.

    Attributes:
        text: an expression that anything can be appended to: a name, a call, or something in parentheses.
        shape: of the array.
        dtype: of the array, by NumPy's name.
    """

    text: str
    shape: tuple[int, ...]
    dtype: str


class Spelling:
    """The calls of one framework as expressions.

    Each method spells what the method of that name does in :class:`~einsumx.adapters.base.Adapter`, and by default what
    it does there by default; an adapter that overrides the one has a spelling that overrides the other. Expressions are
    such as :class:`Value` asks for.

    Args:
        module: what is imported.
        name: what the code calls it.

    >>> Spelling("numpy", "np").matmul(Value("a", (2, 3), "float32"), Value("b", (3, 4), "float32"), Matmul(2, 0, 1))
    'np.matmul(a, b)'
    """

    def __init__(self, module: str, name: str = "xp") -> None:
        self.module, self.name = module, name

    @property
    def imports(self) -> tuple[str, ...]:
        """Lines that make the framework known by its name."""
        return (f"import {self.module} as {self.name}",)

    def decorators(self, shapes: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
        """Lines before a function in which arrays of these shapes occur."""
        return ()

    def opening(self, operand: str) -> tuple[str, ...]:
        """Statements before all others of a function, of whose operands the first has this name."""
        return ()

    def spell(self, op: Op, values: Sequence[Value]) -> str:
        """The expression that does what ``op`` does to its sources."""
        match op:
            case Transpose():
                return self.transpose(values[0], op.axes)
            case Reshape():
                return self.reshape(values[0], op.shape)
            case Expand():
                return self.expand(values[0], op.shape)
            case First():
                return self.first(values[0], op.axes)
            case Diagonal():
                return self.diagonal(values[0], op.axis1, op.axis2)
            case Copy():
                return self.copy(values[0])
            case Cast():
                return self.cast(values[0], op.dtype)
            case Sum():
                return self.sum(values[0], op.axes)
            case Scale():
                return self.scale(values[0], op.count)
            case Multiply():
                lhs, rhs = values
                return self.multiply(lhs, rhs)
            case Matmul():
                lhs, rhs = values
                return self.matmul(lhs, rhs, op)
            case Native():
                return self.native(op.equation, values)
            case Zeros():
                return self.zeros(values, op.shape, op.dtype)

    def dtype(self, name: str) -> str:
        """A dtype by NumPy's name."""
        return f"{self.name}.{name}"

    def transpose(self, array: Value, axes: tuple[int, ...]) -> str:
        return f"{self.name}.transpose({array.text}, {numbers(axes)})"

    def reshape(self, array: Value, shape: tuple[int, ...]) -> str:
        return f"{self.name}.reshape({array.text}, {numbers(shape)})"

    def expand(self, array: Value, shape: tuple[int, ...]) -> str:
        return f"{self.name}.broadcast_to({array.text}, {numbers(shape)})"

    def first(self, array: Value, axes: tuple[int, ...]) -> str:
        """Element 0 along ``axes``, which all arrays have in the form of an index."""
        places = ["0" if axis in axes else ":" for axis in range(max(axes) + 1)]
        return f"{array.text}[{', '.join(places)}]"

    def diagonal(self, array: Value, axis1: int, axis2: int) -> str:
        return f"{self.name}.diagonal({array.text}, 0, {index(axis1)}, {index(axis2)})"

    def diagonal_view(self, array: Value, axis1: int, axis2: int) -> str:
        """The same where the result is a view of the operand, and so has to be as writeable as that."""
        return self.diagonal(array, axis1, axis2)

    def copy(self, array: Value) -> str:
        """A subclass has to say it."""
        raise self._missing("copy")

    def cast(self, array: Value, dtype: str) -> str:
        return f"{array.text}.astype({self.dtype(dtype)})"

    def sum(self, array: Value, axes: tuple[int, ...]) -> str:
        """A subclass has to say it."""
        raise self._missing("sum")

    def scale(self, array: Value, count: int) -> str:
        """The sum of so many equal arrays; a subclass has to say it, if the framework has strides."""
        raise self._missing("scale")

    def multiply(self, lhs: Value, rhs: Value) -> str:
        return f"{self.name}.multiply({lhs.text}, {rhs.text})"

    def matmul(self, lhs: Value, rhs: Value, op: Matmul) -> str:
        """The product, with the flags of ``op``, which are set only where the traits say so."""
        return f"{self.name}.matmul({lhs.text}, {rhs.text})"

    def native(self, equation: str, arrays: Sequence[Value]) -> str:
        return f'{self.name}.einsum("{equation}", {", ".join(array.text for array in arrays)})'

    def zeros(self, arrays: Sequence[Value], shape: tuple[int, ...], dtype: str) -> str:
        """What a sum over nothing gives, where ``arrays`` lie."""
        return f"{self.name}.zeros({numbers(shape)}, dtype={self.dtype(dtype)})"

    def element(self, array: Value, made_by: Op) -> str:
        """A result without axes in the form in which the framework's own einsum gives it."""
        return array.text

    def _missing(self, primitive: str) -> BackendError:
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        return BackendError(f"{kind} does not say how {primitive} is written as code: it has no default")


def numbers(values: Sequence[int]) -> str:
    """Sizes or axes as a tuple; TypeError for what is no number.

    >>> numbers((2, 3)), numbers((4,)), numbers(())
    ('(2, 3)', '(4,)', '()')
    """
    return repr(tuple(map(index, values)))


def listed(values: Sequence[int]) -> str:
    """Sizes or axes as arguments of a call; none at all as a tuple.

    >>> listed((2, 3)), listed(())
    ('2, 3', '()')
    """
    return ", ".join(str(index(value)) for value in values) or "()"


def summed(axes: Sequence[int], rank: int, *more: str) -> str:
    """The arguments of a sum over ``axes`` of so many, and more of them.

    >>> summed((0, 2), 3), summed((1,), 3, "dtype=np.int8"), summed((0, 1), 2)
    ('axis=(0, 2)', 'axis=1, dtype=np.int8', '')
    """
    if len(axes) == rank:
        return ", ".join(more)
    return ", ".join((f"axis={numbers(axes) if len(axes) > 1 else index(axes[0])}", *more))
