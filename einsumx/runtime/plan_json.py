"""Plans as JSON text: the values that make a plan, and its ops for readers.

Reading plans again from the same values, so nothing in a text is run. Other ops than those in the text are the sign
of another version, or of a text that somebody changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import MISSING, asdict, astuple, dataclass, field, fields, make_dataclass, replace
from typing import Annotated, Any, get_type_hints

from einsumx.adapters.registry import get_backend
from einsumx.errors import BackendError, EinsumxError, PathError, SizeError, counted, excerpt, shown
from einsumx.ir.algebra import PLUS_TIMES, Algebra
from einsumx.ir.bind import SizedEquation
from einsumx.ir.contraction import Contraction, Place
from einsumx.ir.operand import Path
from einsumx.ir.program import Program
from einsumx.ir.strict import LINE, parse, read
from einsumx.log import warn
from einsumx.measuring.calibration import check_rates, place_of
from einsumx.planner.path import find_path, step_outputs
from einsumx.planner.selection import Name
from einsumx.runtime.equations import sized_equation
from einsumx.runtime.front import checked
from einsumx.runtime.prepare import planned
from einsumx.runtime.request import names_as_sublists
from einsumx.runtime.shapes import as_dtypes, as_shapes, check_device

FORMAT = 2  # raised when an old reader would misread a new plan

_MOST_AXES = 200
"""The most axes of an array in a stored plan; most frameworks allow 64 or fewer."""

_Equation = Annotated[str, r"(?s:.*)"]  # any character may be a label, surrogates too


@dataclass(frozen=True, slots=True)
class _Semiring:
    """The name of a semiring, and those of its functions."""

    name: str
    add: str
    multiply: str


_SPELLED = frozenset(("equation", "place", "algebra"))
"""The fields of a contraction that a text has in another form; it has all others as they are."""

_AS_THEY_ARE = tuple([each for each in fields(Contraction) if each.name not in _SPELLED])


def _plan_fields() -> Iterator[Any]:
    """The fields of a plan as its text has it, with their types and defaults."""
    yield "equation", _Equation
    yield "named", _Equation, ""  # in the names of the user
    yield "backend", Annotated[str, LINE]
    yield "device", Annotated[str, LINE], ""
    hints = get_type_hints(Contraction, include_extras=True)
    for each in _AS_THEY_ARE:
        yield each.name, hints[each.name], *([] if each.default is MISSING else [each.default])
    yield "semiring", _Semiring | None, None  # None for plus and times
    yield "choices", tuple[Name, ...], ()
    yield "rates", dict[str, float] | None, None  # of the machine that planned, where the backend declares others
    yield "ops", object  # of the program, for readers


_Plan: Any = make_dataclass(
    "_Plan",
    [(name, hint, field(default=default[0])) if default else (name, hint) for name, hint, *default in _plan_fields()],
    frozen=True,
    slots=True,
    kw_only=True,
)
"""A plan as its text has it."""


def text_of_plan(program: Program) -> str:
    """A program as JSON text."""
    adapter, algebra = get_backend(program.backend), program.algebra
    traits = algebra.traits(adapter, program.device)
    used = place_of(algebra, adapter, program.device).traits.rates
    rates = {name: rate for name, rate in asdict(used).items() if rate != getattr(traits.rates, name)}
    plan = _Plan(
        equation=program.equation,
        named="" if program.written == program.equation else program.written,
        backend=program.backend,
        device=program.device,
        **{each.name: getattr(program.contraction, each.name) for each in _AS_THEY_ARE},
        semiring=_Semiring(*algebra.arguments) if algebra.arguments else None,
        choices=program.choices,
        rates=rates or None,
        ops=_listed(program),
    )
    defaults = {field.name: field.default for field in fields(plan)}
    return json.dumps(
        {"format": FORMAT} | {name: each for name, each in asdict(plan).items() if each != defaults[name]}
    )


def _listed(program: Program) -> list[Any]:
    return [{"op": type(op).__name__, **op.fields} for op in program.ops]


def read_plan(text: str, semiring: Callable[..., Algebra]) -> Program:
    """The program that a text of :func:`text_of_plan` describes; a warning if it has other ops than the text.

    Args:
        text: untrusted.
        semiring: makes the algebra of a semiring, of its name and functions.

    Raises:
        EinsumxError: the text is none of this format, or describes no contraction.
    """
    try:
        data = parse(text)
        if not isinstance(data, dict):
            raise ValueError("it is not a JSON object")
        if "format" not in data:
            raise ValueError("it has no 'format'")
        version = data.pop("format")
        if type(version) is not int or version != FORMAT:
            raise ValueError(f"it has format {shown(version)}, and this version reads format {FORMAT}")
        plan = read(_Plan, data)
        check_rates(plan.rates or {})
        algebra = PLUS_TIMES if plan.semiring is None else semiring(*astuple(plan.semiring))
    except ValueError as error:
        raise EinsumxError(f"this is not a plan that this version of einsumx stored: {error}") from None
    program = _planned_again(plan, algebra)
    if json.loads(json.dumps(_listed(program))) != plan.ops:
        warn(
            f"einsumx now makes another plan of {excerpt(program.written)} than the stored one, and uses the new one: "
            f"another version of einsumx or {program.backend} made the stored plan, or it was changed; store the new "
            "plan"
        )
    return program


def _planned_again(plan: Any, algebra: Algebra) -> Program:
    """The program that the fields of a plan lead to, without its ops."""
    adapter = get_backend(plan.backend)
    check_device(adapter, plan.device)
    operands, count = plan.operands, len(plan.operands)
    written = names_as_sublists(plan.named, count) if plan.named else plan.equation
    as_shapes(written, [operand.shape for operand in operands])
    as_dtypes([operand.dtype for operand in operands], count)
    as_dtypes([plan.dtype, plan.accumulate or plan.dtype], 2)
    for number, operand in enumerate(operands):
        if operand.strides is not None and len(operand.strides) != len(operand.shape):
            raise SizeError(
                f"operand {number} has {counted(len(operand.shape), 'axis', 'axes')} and "
                f"{counted(len(operand.strides), 'stride')}"
            )
    sized = sized_equation(written, [operand.shape for operand in operands])
    if sized.text != plan.equation:
        raise EinsumxError(f"{excerpt(plan.named or plan.equation)} is not the equation {excerpt(sized.text)}")
    _check_path(plan.path, sized)
    rates: dict[str, Any] = plan.rates or {}
    traits = algebra.traits(adapter, plan.device)
    place = Place(adapter.name, plan.device, replace(traits, rates=replace(traits.rates, **rates)))
    try:
        as_they_are = {each.name: getattr(plan, each.name) for each in _AS_THEY_ARE}
        asked = Contraction(equation=sized, place=place, algebra=algebra, **as_they_are)
        return planned(checked(asked, adapter), plan.choices)
    except OverflowError:
        raise SizeError(f"no contraction has so many multiply-adds\n  {excerpt(sized.text)}") from None
    except ImportError as error:
        raise BackendError(f"to plan with these dtypes, {adapter.name} is needed: {error}") from error


def _check_path(path: Path, equation: SizedEquation) -> None:
    """Check a path, and that planning along it takes no longer than along those that the planner makes."""
    if not all(len(step) in (1, 2) for step in path):
        raise PathError("each step of a stored path must have one or two positions")
    find_path(equation, path)
    terms = [frozenset(term) for term in equation.inputs]
    results = [result for _, result in step_outputs(path, terms, frozenset(equation.output))]
    if max(map(len, (*equation.inputs, *results))) > _MOST_AXES:
        raise SizeError(f"an array has no more than {_MOST_AXES} axes\n  {excerpt(equation.text)}")
