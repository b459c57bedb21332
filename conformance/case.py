"""The data that the suite consists of: cases, with the arrays and errors that they need, and their outcomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from typing import Any, Literal, TypeAlias
from zlib import crc32

from einsumx import Semiring
from einsumx.conformance.kit.arrays import ArraySpec, Numbers, values

Check: TypeAlias = "Callable[[Case, Any], None]"
"""Judges a :class:`~einsumx.conformance.subject.Subject` with a case; raises :class:`Failure` if it is wrong."""

Options: TypeAlias = "tuple[tuple[str, Any], ...]"
"""Keywords of a call with their values."""

Status: TypeAlias = Literal["pass", "fail", "deviation", "inapplicable"]

_MOST_SHAPES = 12
"""The most operands for which a case's id has the equation and shapes."""


class Failure(Exception):  # noqa: N818  an outcome, not an error of the suite
    """How a subject breaks the contract, in a sentence.

    Args:
        message: the sentence.
        shown_by: the case that shows the failure best, if it is not the case that ran.
    """

    def __init__(self, message: str, shown_by: Case | None = None) -> None:
        super().__init__(message)
        self.shown_by = shown_by


@dataclass(frozen=True, slots=True)
class Case:
    """One promise of the contract, on one example.

    Attributes:
        feature: the part of the contract; a row of the matrix.
        check: runs the case and judges the result.
        equation: text, or a sublist of labels for each operand and optionally for the output. An item that is no tuple
            is passed as it is, in place of a sublist.
        operands: one spec per operand; for ``addeinsum``, the first is that of the array it adds to.
        options: keywords of the call, except ``out=``.
        about: distinguishes the case from others of its feature.
        full: whether the case runs only at level full.
        out: the spec of ``out=``, if it is an array of its own.
        over: the position of the operand that is ``out=``, if any.
        raises: the error that einsumx must raise before it computes or writes anything, if any. Other functions may
            raise any ValueError, TypeError or RuntimeError.
        says: a regular expression that einsumx's message matches; ``.`` also matches newlines.
        function: the name of the function of einsumx, or of the semiring's method, that the case calls.
        semiring: the semiring in which the case computes, if any.
        only_einsumx: whether other functions than einsumx's promise nothing of the kind.
    """

    feature: str
    check: Check
    equation: str | tuple[Any, ...]
    operands: tuple[ArraySpec, ...] = ()
    options: Options = ()
    about: str = ""
    full: bool = False
    out: ArraySpec | None = None
    over: int | None = None
    raises: type[Exception] | None = None
    says: str = ""
    function: str = "einsum"
    semiring: Semiring | None = None
    only_einsumx: bool = False

    @property
    def dtype(self) -> str:
        """The dtype that all operands share, or ``"mixed"``; empty without operands."""
        dtypes = {operand.dtype for operand in self.operands}
        return min(dtypes) if len(dtypes) == 1 else "mixed" if dtypes else ""

    @property
    def id(self) -> str:
        """Feature, equation, shapes with their layouts, dtypes and keywords.

        >>> from einsumx.conformance.suite import cases
        >>> next(iter(cases("quick"))).id
        'forms/ij,jk->ik (2,3) (3,4) float32'
        """
        dtypes = [operand.dtype for operand in self.operands]
        shapes = list(map(_shape_text, self.operands))
        equation = (
            repr(self.equation)[1:-1] if isinstance(self.equation, str) else ";".join(map(_sublist_text, self.equation))
        )
        parts = [
            *([equation, *shapes] if len(shapes) <= _MOST_SHAPES else [f"{len(shapes)} operands"]),
            *(dtypes[:1] if len(set(dtypes)) == 1 else dtypes),
            f"in {self.semiring.name}" if self.semiring else "",
            *(f"{name}={value}" for name, value in self.options),
            f"out={_shape_text(self.out)} {self.out.dtype}" if self.out else "",
            f"out=operand {self.over}" if self.over is not None else "",
            self.about,
        ]
        return f"{self.feature}/{' '.join(part for part in parts if part)}"

    def values(self, purpose: str = "") -> list[Any]:
        """The operands' values as NumPy arrays, bfloat16 as float32; the same in every run for the same purpose."""
        numbers = self._numbers(purpose)
        return [values(operand, numbers) for operand in self.operands]

    def value(self, spec: ArraySpec, purpose: str) -> Any:
        """The values of an array that a check needs in addition to the operands."""
        return values(spec, self._numbers(purpose))

    def _numbers(self, purpose: str) -> Numbers:
        return Numbers(self.values_seed(purpose))

    def values_seed(self, purpose: str = "") -> int:
        """The seed of the operands' values, or of those for another purpose."""
        return crc32(f"{self.id}{purpose}".encode())

    def arguments(self, arrays: list[Any]) -> list[Any]:
        """The positional arguments of the function."""
        added, arrays = (arrays[:1], arrays[1:]) if self.function == "addeinsum" else ([], arrays)
        if isinstance(self.equation, str):
            return [*added, self.equation, *arrays]
        sublists = [list(labels) if isinstance(labels, tuple) else labels for labels in self.equation]
        pairs = [item for pair in zip(arrays, sublists) for item in pair]
        return [*added, *pairs, *sublists[len(arrays) :], *arrays[len(sublists) :]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a case on a subject.

    Attributes:
        case: the case's id.
        feature: the case's feature.
        dtype: the case's dtype.
        status: ``"deviation"`` is a failure that is listed for the subject, with its reason.
        message: the failure, or why the case does not apply; empty for a pass.
        reason: the listed reason of a deviation.
        seconds: how long the case took.
        reproducer: Python code that shows a failure or deviation; otherwise empty.
    """

    case: str
    feature: str
    dtype: str
    status: Status
    message: str = ""
    reason: str = ""
    seconds: float = 0.0
    reproducer: str = ""


def as_expression(pattern: str) -> re.Pattern[str]:
    """A pattern of cases' ids, in which ``*`` is any text and ``?`` any character, as a regular expression.

    >>> as_expression("sublists/[0,1]*").match("sublists/[0,1];[1,2] (2,3) (3,4) float32") is not None
    True
    """
    return re.compile(translate(pattern.replace("[", "[[]")))


def operands(
    *shapes: tuple[int, ...], dtype: str = "float32", layout: str = "C", fill: str = "normal"
) -> tuple[ArraySpec, ...]:
    """Specs of operands that differ only in their shapes.

    >>> operands((2, 3), (3,), layout="F")[1].layout
    'F'
    """
    return tuple(ArraySpec(shape, dtype, layout, fill) for shape in shapes)


def keywords(**options: Any) -> Options:
    """The keywords of a call, as a case has them.

    >>> keywords(dtype="int32")
    (('dtype', 'int32'),)
    """
    return tuple(options.items())


def cases_of(
    feature: str,
    check: Check,
    examples: Iterable[tuple[str, tuple[tuple[int, ...], ...]]],
    *,
    about: str = "",
    full: bool = False,
    quick: Collection[str] | None = None,
    **spec: str,
) -> Iterator[Case]:
    """A case for each example, whose operands have the dtype, layout and fill of ``spec``.

    If ``quick`` is a collection of equations, the others run only at level full.
    """
    for equation, shapes in examples:
        only_full = full or (quick is not None and equation not in quick)
        yield Case(feature, check, equation, operands(*shapes, **spec), about=about, full=only_full)


def examples(text: str) -> list[tuple[str, tuple[tuple[int, ...], ...]]]:
    """Equations with shapes, one equation per line; ``|`` separates examples of one equation.

    >>> examples("ij,j->i  2,3 3 | 0,3 3")
    [('ij,j->i', ((2, 3), (3,))), ('ij,j->i', ((0, 3), (3,)))]
    >>> examples(",i->i  () 4")
    [(',i->i', ((), (4,)))]
    """
    parsed = []
    for line in filter(None, map(str.strip, text.splitlines())):
        equation, _, alternatives = line.partition(" ")
        for shapes in alternatives.split("|"):
            sizes = (shape.strip("()").split(",") for shape in shapes.split())
            parsed.append((equation, tuple(tuple(int(size) for size in shape if size) for shape in sizes)))
    return parsed


def _shape_text(spec: ArraySpec) -> str:
    marks = [spec.layout] * (spec.layout != "C") + [spec.fill] * (spec.fill != "normal")
    return ":".join([f"({','.join(map(str, spec.shape))})", *marks])


def _sublist_text(labels: Any) -> str:
    if not isinstance(labels, tuple):
        return repr(labels)
    return f"[{','.join('...' if label is ... else repr(label) for label in labels)}]"


def error_line(error: Exception) -> str:
    r"""An exception's class and the line of its message that states the problem.

    MXNet's messages begin with a traceback of its C++ source; the last line states the problem.

    >>> error_line(ValueError("no such thing\n  and more"))
    'ValueError: no such thing'
    """
    name = type(error).__name__
    lines = str(error).strip().splitlines() or [""]
    return f"{name}: {lines[-1].removeprefix(f'{name}: ') if lines[0].startswith('Traceback') else lines[0]}"
