"""The errors that einsumx raises, one small tree.

Each is also the built-in exception that NumPy's users already catch.
"""

__all__ = [
    "BackendError",
    "BlockError",
    "EinsumxError",
    "EquationError",
    "JournalError",
    "MemoryLimitError",
    "PathError",
    "SizeError",
    "SublistError",
]


class EinsumxError(Exception):
    """The root of every error that einsumx raises on purpose."""


class EquationError(EinsumxError, ValueError):
    """The equation cannot be read, or does not fit the number of operands."""


class SublistError(EquationError, TypeError):
    """A sublist that is no list of labels, or a label that is not hashable."""


class SizeError(EinsumxError, ValueError):
    """The operands' ranks or sizes contradict the equation, or each other."""


class PathError(EinsumxError, ValueError, RuntimeError):
    """The path given, or the name of an optimizer, makes no sense for the operands.

    NumPy raises RuntimeError for such a path, opt_einsum ValueError.
    """


class BackendError(EinsumxError, TypeError):
    """An array, dtype, device or keyword that the framework cannot serve."""


class BlockError(EinsumxError, RuntimeError):
    """A block that a worker of an executor could not compute; its cause is what the worker raised."""


class JournalError(EinsumxError, ValueError):
    """The file of ``resume=`` is damaged, in use, or the journal of another contraction or of other operands."""


class MemoryLimitError(EinsumxError, MemoryError):
    """A contraction that fits in no way under the memory limit.

    Attributes:
        smallest: the smallest ``memory_limit=`` under which the call works, in bytes; None where there is none to name.
    """

    smallest: int | None = None


def caret(text: str, start: int, length: int = 1) -> str:
    """Two lines: ``text`` indented, and carets under ``length`` places from ``start``.

    >>> print(caret("ij,j!->i", 4))
      ij,j!->i
          ^
    """
    return f"  {text}\n  {' ' * start}{'^' * max(length, 1)}"
