"""A case as a few lines of Python that can be run by hand, and sent to whoever must mend it."""

from __future__ import annotations

from shlex import quote
from typing import Any

import numpy as np

from einsumx.conformance.case import Case, Operand
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.framework import literal
from einsumx.conformance.subject import Subject

__all__ = ["reproducer"]

_LITERAL = 200
"""Elements up to which an array's values are written out; of larger ones there is only what makes them."""


def reproducer(case: Case, subject: Subject) -> str:
    """Python code that makes a case's operands and calls a subject with them."""
    framework = subject.framework
    names = [chr(ord("a") + k) for k in range(len(case.operands))] if len(case.operands) <= 26 else []
    values = case.values()
    if not names or sum(map(np.size, values)) > _LITERAL:
        return _command(case, subject)
    lines = [f"# {case.id}"]
    if case.check is not gives_the_plain_sum:
        lines.append(f"# The case judges more than this call: {_command(case, subject)}")
    lines += dict.fromkeys(["import numpy as np", *framework.imports, *_function_imports(subject)])
    for name, operand, array in zip(names, case.operands, values):
        lines.append(f"{name} = {_made(operand, array, subject)}")
        if subject.device and operand.layout != "python":
            lines.append(framework.moved_code(name, subject.device))
    if isinstance(case.equation, str):
        arguments = [repr(case.equation), *names]
    else:
        sublists = [list(term) if isinstance(term, tuple) else term for term in case.equation]
        labels = [repr(term).replace("Ellipsis", "...") for term in sublists]
        arguments = [part for pair in zip(names, labels) for part in pair] + labels[len(names) :]
    arguments += [f"{key}={value!r}" for key, value in case.options]
    if case.out:
        lines.append(f"out = {_made(case.out, np.full(case.out.shape, 99), subject)}")
        arguments.append("out=out")
    lines.append(f"print({_function_name(subject)}({', '.join(arguments)}))")
    return "\n".join(lines)


def _command(case: Case, subject: Subject) -> str:
    which = f"--backend {subject.framework.name}"
    if not subject.is_einsumx:
        which += f" --callable {subject.path}"
    if subject.device:
        which += f" --device {subject.device}"
    if case.full:
        which += " --level full"
    return f"python -m einsumx.conformance {which} --case {quote(case.id)}"


def _function_imports(subject: Subject) -> list[str]:
    if subject.is_einsumx:
        return ["from einsumx import einsum"]
    return [f"import {subject.path.partition(':')[0]}"]


def _function_name(subject: Subject) -> str:
    return "einsum" if subject.is_einsumx else subject.path.replace(":", ".")


def _made(operand: Operand, values: Any, subject: Subject) -> str:
    """An expression that makes the operand."""
    framework, rank = subject.framework, len(operand.shape)
    match operand.layout:
        case "F" | "swapped":
            axes = (
                tuple(reversed(range(rank))) if operand.layout == "F" else (*range(min(rank, 2))[::-1], *range(2, rank))
            )
            return framework.transpose_code(framework.array_code(values.transpose(axes), operand.dtype), axes)
        case "negative" if rank:
            return f"{framework.array_code(np.flip(values), operand.dtype)}[{', '.join(['::-1'] * rank)}]"
        case "sliced" if rank:
            doubled = values
            for axis in range(rank):
                doubled = np.repeat(doubled, 2, axis)
            return f"{framework.array_code(doubled, operand.dtype)}[{', '.join(['::2'] * rank)}]"
        case "C" | "offset":
            return framework.array_code(values, operand.dtype)
        case "python":
            return literal(values)
        case layout:
            return f"{framework.array_code(values, operand.dtype)}  # laid out as {layout!r}: see einsumx.conformance"
