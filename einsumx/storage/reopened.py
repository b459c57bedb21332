"""Stored operands that each process opens for itself, by a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from einsumx.adapters.operand_types import type_name
from einsumx.adapters.registry import is_stored, owner
from einsumx.errors import BackendError, shown


class ReopenedArray:
    """A stored array that each process opens for itself; :func:`opened_by` makes it.

    Attributes:
        array: the array as this process opened it.
        opening: the function with its arguments.
    """

    def __init__(self, opening: partial[Any]) -> None:
        array = opening()
        framework = owner(array)
        if not (is_stored(array) if framework is None else framework.name == "numpy"):
            raise BackendError(
                f"{opener_name(opening)} opened a {type_name(type(array))}; an operand has shape, dtype and slicing "
                "that gives NumPy arrays"
            )
        self.array: Any = array
        self.opening: partial[Any] = opening

    @property
    def shape(self) -> Any:
        return self.array.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    def __getitem__(self, box: Any, /) -> Any:
        return self.array[box]

    def __setitem__(self, box: Any, values: Any, /) -> None:
        self.array[box] = values

    def __reduce__(self) -> tuple[Any, ...]:
        return ReopenedArray, (self.opening,)

    def __repr__(self) -> str:
        return f"<array opened by {opener_name(self.opening)}: shape {self.shape}, dtype {self.dtype}>"


def opened_by(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ReopenedArray:
    """An operand that each worker of ``executor=`` opens by ``function(*args, **kwargs)``, from wherever it finds it.

    Args:
        function: returns a NumPy array, a memory map, or anything else with shape, dtype and slicing. It is called
            here once, and once in each worker. It has to be picklable, and so have its arguments.
        *args: passed to ``function``.
        **kwargs: passed to ``function``.

    Returns:
        An operand for :func:`einsumx.einsum` with the array's shape and dtype. It also serves as ``out=``.

    Raises:
        BackendError: ``function`` returned something else.
        TypeError: ``function`` is not callable.

    >>> import numpy as np
    >>> from einsumx import einsum
    >>> zeros = opened_by(np.zeros, (2, 3))  # stands for a function that opens a file
    >>> einsum("ij->i", zeros, memory_limit="1 kB")
    array([0., 0.])
    """
    return ReopenedArray(partial(function, *args, **kwargs))


def opener_name(opening: partial[Any]) -> str:
    """The name of the function that opens an array, for messages."""
    name = getattr(opening.func, "__qualname__", None)
    return name if isinstance(name, str) else shown(opening.func)


def opened_here(array: Any) -> Any:
    """The array behind a :class:`ReopenedArray`, as this process opened it; any other array itself."""
    return array.array if isinstance(array, ReopenedArray) else array
