"""``executable``: compile a program into one Python function of its operands, one line per op."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from types import CodeType, FunctionType
from typing import Any, TypeAlias
from weakref import finalize

from einsumx.adapters.base import Adapter, Array, Run
from einsumx.errors import EinsumxError, excerpt, shown
from einsumx.ir.ops import Op
from einsumx.ir.program import Program

__all__ = ["executable"]


def executable(program: Program, adapter: Adapter, constants: Mapping[int, Array] | None = None) -> Run:
    """A function that runs ``program``; it does not check its operands.

    Args:
        program: lowered for the adapter's framework.
        adapter: executes the ops.
        constants: operands that are known already, by position. Ops that depend only on them run now, and the function
            takes the other operands.

    Raises:
        EinsumxError: the adapter cannot run an op.
    """
    shapes = {slot: operand.shape for slot, operand in enumerate(program.operands)}
    dtypes = {slot: operand.dtype for slot, operand in enumerate(program.operands)}
    kernels = {}
    for op in program.ops:
        read = [shapes[slot] for slot in op.sources]
        dtype = dtypes[op.sources[0]]
        kernels[op.out] = _kernel(op, adapter, read, dtype)
        shapes[op.out], dtypes[op.out] = op.result_shape(read), op.result_dtype(dtype)
    values: dict[int, Array] = {}
    late: Sequence[Op] = program.ops
    if constants:
        late, values = _fold(program, adapter, constants, kernels)
    arguments = tuple([slot for slot in range(len(program.operands)) if slot not in (constants or {})])
    # If one op takes all arguments in order, its kernel is the function.
    if len(late) == 1 and late[0].sources == arguments and program.shape:
        run = kernels[late[0].out]
    else:
        names: dict[str, Any] = {f"k{op.out}": kernels[op.out] for op in late}
        names.update((f"x{slot}", value) for slot, value in values.items())
        if not program.shape:
            names["finish"] = adapter.element
        calls = tuple([(op.out, op.sources) for op in late])
        run = FunctionType(_code(arguments, calls, (program.result,), frees=True, finishes=not program.shape), names)
    return adapter.prepare(run, program)


def _kernel(op: Op, adapter: Adapter, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
    try:
        return adapter.kernel(op, shapes, dtype)
    except NotImplementedError:
        raise EinsumxError(
            f"{adapter.name} cannot run {excerpt(str(op))}, an op of this plan; make the plan again"
        ) from None


def _fold(
    program: Program, adapter: Adapter, constants: Mapping[int, Array], kernels: Mapping[int, Callable[..., Array]]
) -> tuple[list[Op], dict[int, Array]]:
    """Run the ops that depend only on constants; returns the other ops, and the values that these read by slot."""
    ready = set(constants)
    early: list[Op] = []
    late: list[Op] = []
    for op in program.ops:
        if ready.issuperset(op.sources):
            ready.add(op.out)
            early.append(op)
        else:
            late.append(op)
    kept = sorted(ready & {slot for op in late for slot in op.sources})
    slots = tuple(sorted(constants))
    names = {f"k{op.out}": kernels[op.out] for op in early}
    calls = tuple([(op.out, op.sources) for op in early])
    fold = adapter.prepare(FunctionType(_code(slots, calls, tuple(kept)), names), program)
    values = fold(*(constants[slot] for slot in slots))
    return late, dict(zip(kept, values if len(kept) > 1 else [values]))


Call: TypeAlias = tuple[int, tuple[int, ...]]
"""The slot that an op writes, and those that it reads."""


@lru_cache(maxsize=1024)
def _code(
    arguments: tuple[int, ...],
    calls: tuple[Call, ...],
    results: tuple[int, ...],
    frees: bool = False,
    finishes: bool = False,
) -> CodeType:
    """The code of a function of some slots that returns others; programs with the same calls share it.

    Its lines are in ``linecache`` for tracebacks, profilers and debuggers as long as the function exists.

    Args:
        arguments: the slots that it takes.
        calls: the ops, in order, one line of code each.
        results: the slots that it returns.
        frees: whether it drops each value after its last use; operands are the caller's.
        finishes: whether the result goes through ``finish``.
    """
    lines = [f"def run({', '.join(_named('x', slot) for slot in arguments)}):"]
    last = {slot: out for out, sources in calls for slot in (*sources, out)} if frees else {}
    spent: dict[int, list[str]] = {}
    for slot in [out for out, _ in calls if frees and out not in results]:
        spent.setdefault(last[slot], []).append(_named("x", slot))
    for out, sources in calls:
        lines.append(f"{_named('x', out)} = {_named('k', out)}({', '.join(_named('x', slot) for slot in sources)})")
        if out in spent:
            lines.append(f"{' = '.join(spent[out])} = None")
    values = ", ".join(_named("x", slot) for slot in results)
    lines.append(f"return finish({values})" if finishes else f"return {values}")
    source = "\n ".join(lines)  # it contains nothing but numbers of slots
    name = f"<einsumx plan {next(_numbers)}>"
    module = compile(source, name, "exec")
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    (code,) = (value for value in module.co_consts if isinstance(value, CodeType))
    finalize(code, linecache.cache.pop, name, None).atexit = False
    return code


_numbers = count()


def _named(letter: str, slot: int) -> str:
    """The variable of a slot. Its name is checked to contain only a number, because it becomes code."""
    if type(slot) is not int:
        raise EinsumxError(f"a slot of a plan must be an int, not {shown(slot)}")
    return f"{letter}{slot}"
