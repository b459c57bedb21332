"""``executable``: compile a program into one Python function of its operands, one line per op."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import count
from types import CodeType
from typing import Any
from weakref import finalize

from einsumx.adapters.base import Adapter, Array, Run
from einsumx.errors import EinsumxError, excerpt, shown
from einsumx.ir.cost import last_uses, slot_dtypes
from einsumx.ir.ops import Op
from einsumx.ir.program import Program
from einsumx.ir.verify import replay

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
    shapes = replay(program.ops, [operand.shape for operand in program.operands])
    dtypes = slot_dtypes(program)
    kernels = {
        op.out: _kernel(op, adapter, [shapes[slot] for slot in op.sources], dtypes[op.sources[0]]) for op in program.ops
    }
    values: dict[int, Array] = {}
    late: Sequence[Op] = program.ops
    if constants:
        late, values = _fold(program, adapter, constants, kernels)
    arguments = [slot for slot in range(len(program.operands)) if slot not in (constants or {})]
    # If one op takes all arguments in order, its kernel is the function.
    if len(late) == 1 and list(late[0].sources) == arguments and program.shape:
        run = kernels[late[0].out]
    else:
        names = {_named("k", op.out): kernels[op.out] for op in late}
        names.update((_named("x", slot), value) for slot, value in values.items())
        finish = None if program.shape else adapter.element
        run = _function(arguments, _lines(late, last_uses(program)), [program.result], names, finish)
    return adapter.prepare(run, program)


def _kernel(op: Op, adapter: Adapter, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
    kernel: Callable[..., Array] | None = None
    with suppress(NotImplementedError):
        kernel = adapter.kernel(op, shapes, dtype)
    if kernel is None:
        raise EinsumxError(f"{adapter.name} cannot run {excerpt(str(op))}, an op of this plan; make the plan again")
    return kernel


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
    slots = sorted(constants)
    names = {_named("k", op.out): kernels[op.out] for op in early}
    fold = adapter.prepare(_function(slots, _lines(early, {}), kept, names), program)
    values = fold(*(constants[slot] for slot in slots))
    return late, dict(zip(kept, values if len(kept) > 1 else [values]))


def _lines(ops: Iterable[Op], last_uses: Mapping[int, Sequence[int]]) -> list[str]:
    """One line of code per op, and one that frees the slots that the op uses last; operands are the caller's."""
    lines = []
    written = set()
    for op in ops:
        arguments = ", ".join(_named("x", slot) for slot in op.sources)
        lines.append(f"{_named('x', op.out)} = {_named('k', op.out)}({arguments})")
        written.add(op.out)
        spent = [_named("x", slot) for slot in last_uses.get(op.out, ()) if slot in written]
        if spent:
            lines.append(f"{' = '.join(spent)} = None")
    return lines


def _function(
    arguments: Iterable[int],
    lines: Iterable[str],
    results: Iterable[int],
    names: Mapping[str, Any],
    finish: Callable[[Array], Array] | None = None,
) -> Run:
    """A function of some slots that executes lines of code and returns other slots, through ``finish`` if it is set."""
    values = ", ".join(_named("x", slot) for slot in results)
    body = [*lines, f"return finish({values})" if finish else f"return {values}"]
    header = f"def run({', '.join(_named('x', slot) for slot in arguments)}):"
    code = _compiled("\n ".join([header, *body]))
    namespace = {"finish": finish, **names}
    exec(code, namespace)  # the text contains nothing but numbers of slots
    run: Run = namespace["run"]
    return run


_numbers = count()


def _named(letter: str, slot: int) -> str:
    """The variable of a slot. Its name is checked to contain only a number, because it becomes code."""
    if type(slot) is not int:
        raise EinsumxError(f"a slot of a plan must be an int, not {shown(slot)}")
    return f"{letter}{slot}"


@lru_cache(maxsize=1024)
def _compiled(source: str) -> CodeType:
    """The code of a text that defines one function; programs that differ only in shapes and kernels share it.

    Its lines are in ``linecache`` for tracebacks, profilers and debuggers as long as the function exists.
    """
    name = f"<einsumx plan {next(_numbers)}>"
    code = compile(source, name, "exec")
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    (function,) = (value for value in code.co_consts if isinstance(value, CodeType))
    finalize(function, linecache.cache.pop, name, None).atexit = False
    return code
