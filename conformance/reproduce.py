"""A case as a few lines of Python, to run by hand or to put into a bug report."""

from __future__ import annotations

from shlex import quote
from typing import Any

import numpy as np

from einsumx import semirings
from einsumx.adapters.entry_points import import_options, imported_modules
from einsumx.conformance.case import Case
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.framework import literal, memory_axes
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.refusals import SENTINEL
from einsumx.conformance.subject import Subject

_MOST_ELEMENTS = 200
"""The most elements that are written out; for more, the reproducer is a command that runs the case."""


class _Name(str):
    """A variable's name, which is its own representation."""

    __repr__ = str.__str__


def reproducer(case: Case, subject: Subject) -> str:
    """Python code that creates a case's operands and calls the subject; or a command, if they are large."""
    framework = subject.framework
    values = case.values()
    if not 1 <= len(values) <= 26 or sum(map(np.size, values)) > _MOST_ELEMENTS:
        return _command(case, subject)
    names = [_Name(chr(ord("a") + k)) for k in range(len(values))]
    lines = [f"# {case.id}"]
    if case.check is not gives_the_plain_sum:
        lines.append(f"# The case tests more than this call: {_command(case, subject)}")
    module, _, function = subject.path.partition(":")
    registering = [f"import {name}" for name in imported_modules()]
    lines += dict.fromkeys(["import numpy as np", *framework.imports, *registering, f"import {module}"])
    for name, operand, array in zip(names, case.operands, values):
        lines.append(f"{name} = {_array_code(operand, array, subject)}")
        if subject.device and operand.layout != "python":
            lines.append(framework.moved_code(name, subject.device))
    arguments = [repr(argument).replace("Ellipsis", "...") for argument in case.arguments(names)]
    arguments += [f"{key}={value!r}" for key, value in case.options]
    if case.out:
        lines.append(f"out = {_array_code(case.out, np.full(case.out.shape, SENTINEL), subject)}")
        arguments.append("out=out")
    if case.over is not None:
        arguments.append(f"out={names[case.over]}")
    called = _called(case) if subject.is_einsumx else function
    lines.append(f"print({module}.{called}({', '.join(arguments)}))")
    return "\n".join(lines)


def _called(case: Case) -> str:
    """The function that a case calls, as einsumx has it."""
    if not case.semiring:
        return case.function
    name = next((name for name, value in vars(semirings).items() if value == case.semiring), "")
    return f"{f'semirings.{name}' if name else case.semiring}.{case.function}"


def _command(case: Case, subject: Subject) -> str:
    options = " ".join([*import_options(), "--backend", subject.framework.name])
    if not subject.is_einsumx:
        options += f" --callable {subject.path}"
    if subject.device:
        options += f" --device {subject.device}"
    if case.full:
        options += " --level full"
    return f"python -m einsumx.conformance {options} --case {quote(case.id)}"


def _array_code(spec: ArraySpec, values: Any, subject: Subject) -> str:
    """An expression for an array with the spec's layout."""
    framework, rank = subject.framework, len(spec.shape)
    match spec.layout:
        case "F" | "swapped":
            axes = memory_axes(spec.layout, rank)
            return framework.transpose_code(framework.array_code(values.transpose(axes), spec.dtype), axes)
        case "negative" if rank:
            return f"{framework.array_code(np.flip(values), spec.dtype)}[{', '.join(['::-1'] * rank)}]"
        case "sliced" if rank:
            doubled = values
            for axis in range(rank):
                doubled = np.repeat(doubled, 2, axis)
            return f"{framework.array_code(doubled, spec.dtype)}[{', '.join(['::2'] * rank)}]"
        case "C" | "offset":
            return framework.array_code(values, spec.dtype)
        case "python":
            return literal(values)
        case layout:
            return f"{framework.array_code(values, spec.dtype)}  # laid out as {layout!r}: see einsumx.conformance"
