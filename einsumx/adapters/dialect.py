"""Writes the ops of a plan as calls of one framework; :mod:`einsumx.render.source` assembles functions from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index

from einsumx.adapters.operand_types import type_name
from einsumx.errors import BackendError
from einsumx.ir import ops
from einsumx.ir.ops import Matmul, Op

__all__ = ["Spelling", "Value", "listed", "numbers", "summed"]


@dataclass(frozen=True, slots=True)
class Value:
    """An array in generated code.

    Attributes:
        text: an expression to which ``.method()`` can be appended: a name, a call, or a parenthesized expression.
        shape: the array's shape.
        dtype: NumPy's name of the array's dtype.
    """

    text: str
    shape: tuple[int, ...]
    dtype: str


class Spelling:
    """The calls of one framework as expressions, in the form of :attr:`Value.text`.

    Each method writes the call that the method of the same name of :class:`~einsumx.adapters.base.Adapter` makes. An
    adapter that overrides a primitive needs a spelling that overrides the method of that name.

    Args:
        module: the module that the code imports.
        name: the name that the code gives it.

    >>> Spelling("numpy", "np").matmul(Value("a", (2, 3), "float32"), Value("b", (3, 4), "float32"), Matmul(2, 0, 1))
    'np.matmul(a, b)'
    """

    def __init__(self, module: str, name: str = "xp") -> None:
        self.module, self.name = module, name

    @property
    def imports(self) -> tuple[str, ...]:
        """The import statements."""
        return (f"import {self.module} as {self.name}",)

    def decorators(self, shapes: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
        """Decorators of a function that has arrays of these shapes."""
        return ()

    def opening(self, operand: str) -> tuple[str, ...]:
        """The first statements of a function, given the name of its first operand."""
        return ()

    def spell(self, op: Op, values: Sequence[Value]) -> str:
        """The expression that applies ``op`` to its sources."""
        match op:
            case ops.Transpose():
                return self.transpose(values[0], op.axes)
            case ops.Reshape():
                return self.reshape(values[0], op.shape)
            case ops.Expand():
                return self.expand(values[0], op.shape)
            case ops.First():
                return self.first(values[0], op.axes)
            case ops.Diagonal():
                return self.diagonal(values[0], op.axis1, op.axis2)
            case ops.Copy():
                return self.copy(values[0])
            case ops.Cast():
                return self.cast(values[0], op.dtype)
            case ops.Sum():
                return self.sum(values[0], op.axes)
            case ops.Scale():
                return self.scale(values[0], op.count)
            case ops.Multiply():
                lhs, rhs = values
                return self.multiply(lhs, rhs)
            case ops.Matmul():
                lhs, rhs = values
                return self.matmul(lhs, rhs, op)
            case ops.Native():
                return self.native(op.equation, values)
            case ops.Zeros():
                return self.zeros(values, op.shape, op.dtype)

    def dtype(self, name: str) -> str:
        """The expression for a dtype with NumPy's name."""
        return f"{self.name}.{name}"

    def transpose(self, array: Value, axes: tuple[int, ...]) -> str:
        return f"{self.name}.transpose({array.text}, {numbers(axes)})"

    def reshape(self, array: Value, shape: tuple[int, ...]) -> str:
        return f"{self.name}.reshape({array.text}, {numbers(shape)})"

    def expand(self, array: Value, shape: tuple[int, ...]) -> str:
        return f"{self.name}.broadcast_to({array.text}, {numbers(shape)})"

    def first(self, array: Value, axes: tuple[int, ...]) -> str:
        """Element 0 along ``axes``."""
        indices = ["0" if axis in axes else ":" for axis in range(max(axes) + 1)]
        return f"{array.text}[{', '.join(indices)}]"

    def diagonal(self, array: Value, axis1: int, axis2: int) -> str:
        return f"{self.name}.diagonal({array.text}, 0, {index(axis1)}, {index(axis2)})"

    def diagonal_view(self, array: Value, axis1: int, axis2: int) -> str:
        """A diagonal that is the result: a view that must be writeable if the operand is."""
        return self.diagonal(array, axis1, axis2)

    def copy(self, array: Value) -> str:
        """Every subclass must override this."""
        raise self._missing("copy")

    def cast(self, array: Value, dtype: str) -> str:
        return f"{array.text}.astype({self.dtype(dtype)})"

    def sum(self, array: Value, axes: tuple[int, ...]) -> str:
        """Every subclass must override this."""
        raise self._missing("sum")

    def scale(self, array: Value, count: int) -> str:
        """The sum of ``count`` equal arrays; a subclass must override this if the framework has strides."""
        raise self._missing("scale")

    def multiply(self, lhs: Value, rhs: Value) -> str:
        return f"{self.name}.multiply({lhs.text}, {rhs.text})"

    def matmul(self, lhs: Value, rhs: Value, op: Matmul) -> str:
        """The product, with the flags of ``op``, which are set only if the traits allow them."""
        return f"{self.name}.matmul({lhs.text}, {rhs.text})"

    def native(self, equation: str, arrays: Sequence[Value]) -> str:
        return f'{self.name}.einsum("{equation}", {", ".join(array.text for array in arrays)})'

    def zeros(self, arrays: Sequence[Value], shape: tuple[int, ...], dtype: str) -> str:
        """Zeros on the device of ``arrays``."""
        return f"{self.name}.zeros({numbers(shape)}, dtype={self.dtype(dtype)})"

    def element(self, array: Value, made_by: Op) -> str:
        """A result without axes, in the form that the framework's own einsum returns.

        Args:
            array: the result.
            made_by: the op that computes it.
        """
        return array.text

    # -- in a semiring ----------------------------------------------------------------------------------

    fuses: bool = False
    """Whether a compiler fuses a reduction with the broadcast of its terms, so that these need no blocks."""

    def helpers(self, code: str) -> Sequence[str]:
        """The lines of functions that the code calls, which come before it."""
        return ()

    def reduced(self, name: str, array: str, axes: str) -> str:
        """The reduction of an array by ``maximum``, ``minimum`` or ``logaddexp``; ``axes`` is an axis or a tuple."""
        raise BackendError(f"{type_name(type(self))} does not say how sums in a semiring are written as code")

    def logsumexp(self) -> Sequence[str]:
        """The lines of a function ``logsumexp(x, axis)``, if :meth:`reduced` calls one."""
        return ()

    def concatenated(self, arrays: str, axis: int) -> str:
        return f"{self.name}.concatenate({arrays}, axis={axis})"

    def constant(self, value: str, dtype: str) -> str:
        """A number that does not change the dtype of an array to which it is added."""
        return f"{self.dtype(dtype)}({value})"

    def silently(self, lines: Sequence[str]) -> list[str]:
        """Statements without warnings about infinities."""
        return list(lines)

    def _missing(self, primitive: str) -> BackendError:
        return BackendError(
            f"{type_name(type(self))} does not say how {primitive} is written as code: it has no default"
        )


def numbers(values: Sequence[int]) -> str:
    """Sizes or axes as a tuple; TypeError if one is not an integer.

    >>> numbers((2, 3)), numbers((4,)), numbers(())
    ('(2, 3)', '(4,)', '()')
    """
    return repr(tuple(map(index, values)))


def listed(values: Sequence[int]) -> str:
    """Sizes or axes as arguments of a call; an empty tuple if there are none.

    >>> listed((2, 3)), listed(())
    ('2, 3', '()')
    """
    return ", ".join(str(index(value)) for value in values) or "()"


def summed(axes: Sequence[int], rank: int, *more: str) -> str:
    """The arguments of a sum over ``axes`` of an array with ``rank`` axes, followed by ``more``.

    >>> summed((0, 2), 3), summed((1,), 3, "dtype=np.int8"), summed((0, 1), 2)
    ('axis=(0, 2)', 'axis=1, dtype=np.int8', '')
    """
    if len(axes) == rank:
        return ", ".join(more)
    return ", ".join((f"axis={numbers(axes) if len(axes) > 1 else index(axes[0])}", *more))
