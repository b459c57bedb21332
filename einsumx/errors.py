"""The errors that einsumx raises, one small tree.

Each is also the built-in exception that NumPy's users already catch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class MalformedError(ValueError):
    """Data from outside, such as a stored plan or what was measured, are not in their format."""


REFUSALS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What libraries raise for an array that they refuse. Other errors, as of a signal handler, pass through."""


class EinsumxError(Exception):
    """The root of einsumx's own errors."""

    if not TYPE_CHECKING:  # mypy would take the class for a function of Any
        __init__ = Exception.__init__  # by which tf.function knows that it can make another error of the class


class EquationError(EinsumxError, ValueError):
    """The equation cannot be read, or does not fit the number of operands."""


class SublistError(EquationError, TypeError):
    """An equation, a sublist or a label of the wrong type."""


class SizeError(EinsumxError, ValueError):
    """The operands' ranks or sizes contradict the equation, or each other."""


class AxisError(SizeError, IndexError):
    """An axis that an array does not have."""


class PathError(EinsumxError, ValueError, RuntimeError):
    """The path or the name of an optimizer does not fit the operands.

    NumPy raises RuntimeError for such a path, opt_einsum ValueError.
    """


class BackendError(EinsumxError, TypeError):
    """An array, dtype, device or keyword that the framework cannot serve."""


class BlockError(EinsumxError, RuntimeError):
    """A worker of an executor failed to compute a block; its exception is the cause."""


class JournalError(EinsumxError, ValueError):
    """The file of ``resume=`` is damaged, in use, or the journal of another contraction or of other operands."""


class MemoryLimitError(EinsumxError, MemoryError):
    """A contraction that cannot be made to fit the memory limit.

    Attributes:
        smallest: the smallest ``memory_limit=`` under which the call works, in bytes; None if unknown.
    """

    smallest: int | None = None

    def __new__(cls, *args: object) -> Self:
        """As for any error; ``MemoryError.__new__`` returns no subclass, which tblib needs when it unpickles."""
        return Exception.__new__(cls, *args)


_LONGEST = 200
"""The most characters of a user's value or of an equation in a message."""

_AROUND = 60
"""Characters shown on either side of a caret if the equation is too long."""

_CUT = "[...]"

_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Characters that are printable but invisible."""


def visible(text: str) -> str:
    r"""Text with invisible characters escaped.

    These are control characters, blanks other than the space, bidirectional marks, surrogates, and combining marks.

    >>> visible("ij\n\u202e\u0301é")
    'ij\\n\\u202e\\u0301é'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if _is_visible(letter) else ascii(letter)[1:-1] for letter in text)


def _is_visible(letter: str) -> bool:
    from unicodedata import category  # a shared library that few processes need

    return letter.isprintable() and letter not in _BLANK_LETTERS and not category(letter).startswith("M")


def shown(value: object) -> str:
    """The repr of a user's value for a message, in one line and shortened if it is long.

    >>> shown("ij"), shown([7] * 1000)[-20:]
    ("'ij'", '7, 7, 7, 7, 7, 7, 7]')
    """
    try:
        text = " ".join(line.strip() for line in repr(value).splitlines())
    except Exception:  # noqa: BLE001  of a class of the user's
        text = f"<{type(value).__qualname__}>"
    return visible(_shortened(text))


def excerpt(text: str) -> str:
    """An equation for a message, shortened if it is long."""
    return visible(_shortened(text))


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    end = _LONGEST // 4
    return f"{text[: _LONGEST - end]} {_CUT} {text[-end:]}"


def counted(number: int | str, noun: str, nouns: str = "") -> str:
    """A number with its noun, which has an ``s`` in the plural unless ``nouns`` is the plural.

    >>> counted(1, "operand"), counted(2, "operand"), counted(3, "axis", "axes")
    ('1 operand', '2 operands', '3 axes')
    """
    return f"{number} {noun if str(number) == '1' else nouns or f'{noun}s'}"


def caret(text: str, start: int, length: int = 1) -> str:
    """Two lines: ``text`` indented, and carets under ``length`` characters from ``start``.

    A long text is cut to the surroundings of that place.

    >>> print(caret("ij,j!->i", 4))
      ij,j!->i
          ^
    """
    first, last = 0, len(text)
    if last > _LONGEST:
        first, last = max(start - _AROUND, 0), min(start + length + _AROUND, last)
    before = f"{_CUT} " * (first > 0) + visible(text[first:start])
    marked = visible(text[start : start + length])
    after = visible(text[start + length : last]) + f" {_CUT}" * (last < len(text))
    return f"  {before}{marked}{after}\n  {' ' * len(before)}{'^' * max(len(marked), 1)}"
