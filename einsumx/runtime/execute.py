"""``execute``: a plan and an adapter become one Python function of the operands, a line an op."""

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


def executable(plan: Program, adapter: Adapter, constants: Mapping[int, Array] | None = None) -> Run:
    """A function that runs ``plan`` on operands which fit it; it checks nothing.

    Args:
        plan: lowered for the adapter's framework.
        adapter: executes the ops.
        constants: operands that are known already, by position. What depends on them alone is computed here,
            once, and the function takes the other operands only.
    """
    shapes = replay(plan.ops, [operand.shape for operand in plan.operands])
    dtypes = slot_dtypes(plan)
    kernels: dict[int, Callable[..., Array]] = {
        op.out: _kernel(op, adapter, [shapes[slot] for slot in op.sources], dtypes[op.sources[0]]) for op in plan.ops
    }
    known: dict[int, Array] = {}
    late: Sequence[Op] = plan.ops
    if constants:
        late, known = _fold(plan, adapter, constants, kernels)
    given = [slot for slot in range(len(plan.operands)) if slot not in (constants or {})]
    # A single op reads the operands alone and in their order, and its result is the plan's.
    if len(late) == 1 and list(late[0].sources) == given and plan.shape:
        run = kernels[late[0].out]
    else:
        finish = None if plan.shape else adapter.element
        run = _function(given, late, [plan.result], last_uses(plan), kernels, known, finish)
    return adapter.prepare(run, plan)


def _kernel(op: Op, adapter: Adapter, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
    """What executes ``op``.

    Raises:
        EinsumxError: the adapter lacks it.
    """
    found: Callable[..., Array] | None = None
    with suppress(NotImplementedError):
        found = adapter.kernel(op, shapes, dtype)
    if found is None:
        raise EinsumxError(f"{adapter.name} cannot run {excerpt(str(op))}, an op of this plan; make the plan again")
    return found


def _fold(
    plan: Program, adapter: Adapter, constants: Mapping[int, Array], kernels: Mapping[int, Callable[..., Array]]
) -> tuple[list[Op], dict[int, Array]]:
    """The ops that are left, and by slot what they read of that which depends on constants alone."""
    ready = set(constants)
    early: list[Op] = []
    late: list[Op] = []
    for op in plan.ops:
        if ready.issuperset(op.sources):
            ready.add(op.out)
            early.append(op)
        else:
            late.append(op)
    kept = sorted(ready & {slot for op in late for slot in op.sources})
    slots = sorted(constants)
    fold = adapter.prepare(_function(slots, early, kept, {}, kernels, {}), plan)
    values = fold(*(constants[slot] for slot in slots))
    return late, dict(zip(kept, values if len(kept) > 1 else [values]))


def _function(
    given: Iterable[int],
    ops: Sequence[Op],
    results: Sequence[int],
    dead: Mapping[int, Sequence[int]],
    kernels: Mapping[int, Callable[..., Array]],
    known: Mapping[int, Array],
    finish: Callable[[Array], Array] | None = None,
) -> Run:
    """Straight-line code of ``ops``: a call each, and each slot that an op made let go after its last use.

    What it returns goes through ``finish``, where one is given.
    """
    lines = []
    made = {op.out for op in ops}
    for op in ops:
        arguments = ", ".join(_named("x", slot) for slot in op.sources)
        lines.append(f" {_named('x', op.out)} = {_named('k', op.out)}({arguments})")
        spent = [_named("x", slot) for slot in dead.get(op.out, ()) if slot in made]
        if spent:
            lines.append(f" {' = '.join(spent)} = None")
    values = ", ".join(_named("x", slot) for slot in results)
    lines.append(f" return finish({values})" if finish else f" return {values}")
    code = _compiled(f"def run({', '.join(_named('x', slot) for slot in given)}):\n" + "\n".join(lines))
    names: dict[str, Any] = {"finish": finish}
    names.update((_named("k", op.out), kernels[op.out]) for op in ops)
    names.update((_named("x", slot), value) for slot, value in known.items())
    exec(code, names)  # its text has only the numbers of slots in it
    run: Run = names["run"]
    return run


_numbers = count()


def _named(letter: str, slot: int) -> str:
    """A variable of the code; nothing but a number gets into its name."""
    if type(slot) is not int:
        raise EinsumxError(f"a slot of a plan must be an int, not {shown(slot)}")
    return f"{letter}{slot}"


@lru_cache(maxsize=1024)
def _compiled(source: str) -> CodeType:
    """The code of a text that defines one function; plans that differ only in shapes and kernels share it.

    As long as there is such a function, tracebacks, profilers and debuggers find its lines in ``linecache``.
    """
    name = f"<einsumx plan {next(_numbers)}>"
    code = compile(source, name, "exec")
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    (function,) = (value for value in code.co_consts if isinstance(value, CodeType))
    finalize(function, linecache.cache.pop, name, None).atexit = False
    return code
