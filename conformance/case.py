"""What the suite is made of: cases, which are data, and outcomes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Any, Literal, TypeAlias
from zlib import crc32

import numpy as np

from einsumx.dtypes import kind

__all__ = [
    "Case",
    "Check",
    "Failure",
    "NotApplicable",
    "Operand",
    "Options",
    "Outcome",
    "Refusal",
    "Status",
    "examples",
    "matches",
    "operands",
    "said",
    "values",
]

Check: TypeAlias = "Callable[[Case, Any], None]"
"""Judges a :class:`~einsumx.conformance.subject.Subject` by a case.

It returns if all is right, and raises :class:`Failure` if not.
"""

_SHOWN = 12
"""Operands up to which a case's name has its equation and shapes."""

Options: TypeAlias = "tuple[tuple[str, Any], ...]"
"""Keywords of a call, with what is given for them."""

Status: TypeAlias = Literal["pass", "fail", "deviation", "inapplicable"]


class Failure(Exception):  # noqa: N818  an outcome, not an error of the suite
    """What a subject does otherwise than the contract says, in a sentence.

    Args:
        message: the sentence.
        shown_by: the case that shows it best, where that is another one than the case that found it.
    """

    def __init__(self, message: str, shown_by: Case | None = None) -> None:
        super().__init__(message)
        self.shown_by = shown_by


class NotApplicable(Exception):  # noqa: N818
    """Why a case says nothing of a subject: its framework has no such thing as the case is about."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An array to be made: on every framework the same values, by the framework's own means laid out as asked.

    Attributes:
        shape: of the array.
        dtype: by NumPy's name, or ``"bfloat16"``.
        layout: how it lies in memory; :mod:`einsumx.conformance.framework` says what the names mean.
        fill: what its values are; :func:`values` says what the names mean.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    layout: str = "C"
    fill: str = "normal"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error that a call must give before anything is computed or written.

    Attributes:
        error: which of its errors einsumx gives; of other functions any will do that people can act on.
        says: a regular expression that einsumx's message matches; ``.`` is any character, the end of a line too.
    """

    error: type[Exception]
    says: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One promise on one example.

    Attributes:
        feature: what of the contract it is about; a row of the matrix.
        check: what is done with it, and how it is judged.
        equation: as text, or a sublist of labels for each operand and, where one is given, for the output; what is
            given in the place of a sublist is no tuple.
        operands: what is made of each.
        options: keywords of the call, without ``out=``.
        about: what else tells it from other cases of its feature.
        full: whether it is left to the full level.
        out: what is made for ``out=``; None where the call has none.
        refusal: the error that must come; None where a result must.
    """

    feature: str
    check: Check
    equation: str | tuple[Any, ...]
    operands: tuple[Operand, ...] = ()
    options: Options = ()
    about: str = ""
    full: bool = False
    out: Operand | None = None
    refusal: Refusal | None = None

    @property
    def dtype(self) -> str:
        """The dtype of all operands, ``"mixed"`` where they differ, ``""`` where it is about none."""
        dtypes = {operand.dtype for operand in self.operands}
        return min(dtypes) if len(dtypes) == 1 else "mixed" if dtypes else ""

    @property
    def id(self) -> str:
        """Its name: feature, equation, shapes with their layouts, dtypes, keywords.

        >>> from einsumx.conformance.suite import cases
        >>> next(iter(cases("quick"))).id
        'forms/-> () float32'
        """
        dtypes = [operand.dtype for operand in self.operands]
        shapes = list(map(_described, self.operands))
        equation = (
            repr(self.equation)[1:-1] if isinstance(self.equation, str) else ";".join(map(_listed, self.equation))
        )
        parts = [
            *([equation, *shapes] if len(shapes) <= _SHOWN else [f"{len(shapes)} operands"]),
            *(dtypes[:1] if len(set(dtypes)) == 1 else dtypes),
            *(f"{name}={value}" for name, value in self.options),
            f"out={_described(self.out)} {self.out.dtype}" if self.out else "",
            self.about,
        ]
        return f"{self.feature}/{' '.join(part for part in parts if part)}"

    def values(self, what: str = "") -> list[Any]:
        """The operands' values as NumPy arrays, the same in every run; those of bfloat16 in float32.

        Args:
            what: they are for, where a check needs operands more than once: others for each.
        """
        rng = self._rng(what)
        return [values(operand, rng) for operand in self.operands]

    def value(self, operand: Operand, what: str) -> Any:
        """The values of one more array, which a check needs beside the operands."""
        return values(operand, self._rng(what))

    def _rng(self, what: str) -> np.random.Generator:
        return np.random.default_rng(crc32(f"{self.id}{what}".encode()))

    def arguments(self, arrays: list[Any]) -> list[Any]:
        """What einsum is called with, without the keywords."""
        if isinstance(self.equation, str):
            return [self.equation, *arrays]
        sublists = [list(labels) if isinstance(labels, tuple) else labels for labels in self.equation]
        pairs = [item for pair in zip(arrays, sublists) for item in pair]
        return [*pairs, *sublists[len(arrays) :], *arrays[len(sublists) :]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case.

    Attributes:
        case: its id.
        feature: of the case.
        dtype: of the case.
        status: ``"deviation"`` is a failure that is listed, with its reason, for the subject.
        message: what is wrong, or why the case does not apply; empty for a pass.
        reason: of a deviation.
        seconds: that it took.
        reproducer: Python code that shows what is wrong; empty for other outcomes than failures and deviations.
    """

    case: str
    feature: str
    dtype: str
    status: Status
    message: str = ""
    reason: str = ""
    seconds: float = 0.0
    reproducer: str = ""


def matches(case: str, pattern: str) -> bool:
    """Whether a case's id is one of those that a pattern means: ``*`` is any text, ``?`` any character.

    >>> matches("sublists/[0,1];[1,2] (2,3) (3,4) float32", "sublists/[0,1]*")
    True
    """
    return _compiled(pattern).match(case) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression, in which ``[`` is no more than itself.

    Kept here, as :mod:`fnmatch` of most versions forgets all but 256: lists of deviations have more.
    """
    return re.compile(translate(pattern.replace("[", "[[]")))


def operands(*shapes: tuple[int, ...], dtype: str = "float32", layout: str = "C", fill: str = "normal") -> Any:
    """Operands that differ in their shapes alone.

    >>> operands((2, 3), (3,), layout="F")[1].layout
    'F'
    """
    return tuple(Operand(shape, dtype, layout, fill) for shape in shapes)


def examples(text: str) -> list[tuple[str, tuple[tuple[int, ...], ...]]]:
    """Equations with shapes, a line each.

    >>> examples("ij,j->i  2,3 3")
    [('ij,j->i', ((2, 3), (3,)))]
    >>> examples(",i->i  () 4")
    [(',i->i', ((), (4,)))]
    """
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        equation, *shapes = line.split()
        found.append((equation, tuple(tuple(map(int, filter(None, shape.strip("()").split(",")))) for shape in shapes)))
    return found


def values(operand: Operand, rng: np.random.Generator) -> Any:
    """What an operand's fill stands for, in values that its dtype holds exactly.

    ==============  ======================================================================================
    ``normal``      normally distributed; integers of -4 to 4; as many of one bool as of the other
    ``wide``        normally distributed over 12 orders of magnitude (6 for half precision)
    ``positive``    between 0.1 and 1: no sum of products cancels, or is zero
    ``range``       integers from the whole range of the dtype
    ``exact``       integers of -3 to 3, in floats too: small sums of products are exact
    ``one``, ``zero``  ones, zeros
    ``large``, ``tiny``  512, and 1/128: two of the one and one of the other multiply to what half precision holds
    ``half``        between 0.4 and 0.6: sums of two products with them neither grow nor vanish
    ``inf``, ``-inf``, ``nan``  as ``positive``, with one such element in the middle
    ==============  ======================================================================================

    An operand that is laid out as a broadcast has the same values all along the axis that does not move.
    """
    found = np.asarray(_filled(operand, rng))
    for axis in broadcast_axes(operand):
        found = np.repeat(found.take([0], axis), operand.shape[axis], axis)
    return rounded(found, operand.dtype)


def broadcast_axes(operand: Operand) -> tuple[int, ...]:
    """The axes of stride 0 that an operand's layout asks for: the first, or the last, longer than 1."""
    long = [axis for axis, size in enumerate(operand.shape) if size > 1]
    match operand.layout:
        case "broadcast":
            return tuple(long[:1])
        case "broadcast-last":
            return tuple(long[-1:])
        case _:
            return ()


def rounded(array: Any, dtype: str) -> Any:
    """Values as ``dtype`` holds them; those of bfloat16, which NumPy lacks, as float32."""
    if dtype != "bfloat16":
        return np.asarray(array).astype(dtype)
    bits = np.ascontiguousarray(array, "float32").view("uint32")
    return (bits & np.uint32(0xFFFF0000)).view("float32").reshape(np.shape(array))


def _filled(operand: Operand, rng: np.random.Generator) -> Any:
    shape, family = operand.shape, kind(operand.dtype)
    match operand.fill, family:
        case (("one" | "zero" | "large" | "tiny"), _):
            return np.full(shape, {"one": 1.0, "zero": 0.0, "large": 512.0, "tiny": 1 / 128}[operand.fill])
        case "range", "i" | "u":
            info = np.iinfo(operand.dtype)
            return rng.integers(info.min, info.max, shape, operand.dtype, endpoint=True)
        case _, "b":
            return rng.random(shape) < 0.5
        case "exact", "u":
            return rng.integers(0, 4, shape)
        case "exact", _:
            return rng.integers(-3, 4, shape)
        case _, "u":
            return rng.integers(0, 5, shape)
        case _, "i":
            return rng.integers(-4, 5, shape)
        case _, "c":
            return _floats(operand, rng) + 1j * _floats(operand, rng)
        case _:
            return _floats(operand, rng)


def _floats(operand: Operand, rng: np.random.Generator) -> Any:
    shape = operand.shape
    match operand.fill:
        case "normal":
            return rng.standard_normal(shape)
        case "wide":
            decades = 3.0 if operand.dtype == "float16" else 6.0
            return rng.standard_normal(shape) * 10.0 ** rng.uniform(-decades, decades, shape)
        case "half":
            return rng.uniform(0.4, 0.6, shape)
        case "positive" | "inf" | "-inf" | "nan":
            found = rng.uniform(0.1, 1, shape)
            if operand.fill != "positive" and found.size:
                found[tuple(size // 2 for size in shape)] = float(operand.fill)
            return found
        case _:
            raise ValueError(f"there is no fill {operand.fill!r} for {operand.dtype}")


def _described(operand: Operand) -> str:
    marks = [operand.layout] * (operand.layout != "C") + [operand.fill] * (operand.fill != "normal")
    return ":".join([f"({','.join(map(str, operand.shape))})", *marks])


def _listed(labels: Any) -> str:
    if not isinstance(labels, tuple):
        return repr(labels)
    return f"[{','.join('...' if label is ... else repr(label) for label in labels)}]"


def said(error: Exception) -> str:
    r"""An exception in a line: its class, and the line of its message that says what is wrong.

    MXNet's messages begin with the places in its source.

    >>> said(ValueError("no such thing\n  and more"))
    'ValueError: no such thing'
    """
    name = type(error).__name__
    lines = str(error).strip().splitlines() or [""]
    return f"{name}: {lines[-1].removeprefix(f'{name}: ') if lines[0].startswith('Traceback') else lines[0]}"
