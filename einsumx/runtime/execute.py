"""``executable``: compile a program into one Python function of its operands, one line per op."""

from __future__ import annotations

import builtins
import linecache
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TypeAlias
from weakref import finalize

from einsumx.adapters.base import Adapter, Array, Run
from einsumx.errors import EinsumxError, excerpt, shown
from einsumx.ir.cost import last_uses, slot_dtypes
from einsumx.ir.layout import contiguous, inverse, reshaped
from einsumx.ir.ops import Matmul, Op, Reshape, Transpose
from einsumx.ir.program import Program
from einsumx.ir.sizes import Unknown, is_known
from einsumx.ir.verify import verify

__all__ = ["Update", "executable", "executable_into", "executable_of_any_size"]


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
    shapes = verify(program)
    dtypes = slot_dtypes(program)
    kernels = _kernels(program.ops, adapter, shapes, dtypes)
    values: dict[int, Array] = {}
    late: Sequence[Op] = program.ops
    if constants:
        late, values = _fold(program, adapter, constants, kernels)
    arguments = tuple([slot for slot in range(len(program.operands)) if slot not in (constants or {})])
    # If one op takes all arguments in order, its kernel is the function.
    if len(late) == 1 and late[0].sources == arguments and program.shape:
        run = kernels[late[0].out]
    else:
        names = _globals({op.out: kernels[op.out] for op in late})
        names.update((f"x{slot}", value) for slot, value in values.items())
        if not program.shape:
            names["finish"] = adapter.element
        calls = tuple([(op.out, op.sources) for op in late])
        if len(calls) < _LONG:
            run = FunctionType(_code(arguments, calls, program.result, not program.shape), names)
        else:
            run = _LongRun(arguments, calls, program.result, names, values)
    return adapter.prepare(run, program)


def executable_of_any_size(program: Program, adapter: Adapter, constants: Mapping[int, Array] | None = None) -> Run:
    """A function that runs ``program`` op by op on operands of which some sizes are not known in advance.

    It reads them from the operands, and checks that each label has one size: some ops would give a wrong result
    otherwise, for example after a reshape that merges axes.

    Args:
        program: lowered for the adapter's framework.
        adapter: executes the ops, of which those that state sizes get what :meth:`~einsumx.adapters.arrays.Arrays.size`
            returns, or products of that. Their kernels are made anew at each run, and the framework records the calls.
        constants: operands that are known already, by position; the function takes the others.

    Raises:
        EinsumxError: the adapter cannot run an op.
    """
    shapes, dtypes = verify(program), slot_dtypes(program)
    kernels = _kernels([op for op in program.ops if is_known(op.sizes)], adapter, shapes, dtypes)
    fixed = dict(constants or {})
    spent = _spent(program.calls, program.result)
    late = [slot for slot in range(len(program.operands)) if slot not in fixed]

    def run(*operands: Array) -> Array:
        values = {**fixed, **dict(zip(late, operands))}
        sizes = _sizes_of(values, program, adapter)
        for op in program.ops:
            kernel = kernels.get(op.out)
            if kernel is None:
                sources = [shapes[slot] for slot in op.sources]
                kernel = _kernel(op.sized(sizes), adapter, sources, dtypes[op.sources[0]])
            values[op.out] = kernel(*[values[slot] for slot in op.sources])
            for slot in spent.get(op.out, ()):
                del values[slot]
        return values[program.result] if program.shape else adapter.element(values[program.result])

    return adapter.prepare(run, program)


def _sizes_of(values: dict[int, Array], program: Program, adapter: Adapter) -> dict[str, Any]:
    """The sizes of unknown axes by name; the operands in ``values`` become checked ones.

    Raises:
        SizeError: a label has two sizes.
    """
    sizes: dict[str, Any] = {}
    places: dict[str, tuple[int, int]] = {}
    for number, operand in enumerate(program.operands):
        for axis, size in enumerate(operand.shape):
            if not isinstance(size, Unknown):
                where = f"operand {number} has another size than {size} (axis {axis})"
                values[number] = adapter.with_size(values[number], axis, size, _told(where, program))
                continue
            (name,) = size.names
            if name not in sizes:
                sizes[name], places[name] = adapter.size(values[number], axis), (number, axis)
                continue
            other, other_axis = places[name]
            where = (
                f"label {name!r} has another size in operand {number} (axis {axis}) than in operand {other} "
                f"(axis {other_axis})"
            )
            values[number] = adapter.with_size(values[number], axis, sizes[name], _told(where, program))
    return sizes


def _told(where: str, program: Program) -> str:
    return f"{where}; axes of unknown size do not broadcast\n  {excerpt(program.written)}"


class Update(NamedTuple):
    """What a program's result is added to: ``out = alpha * result + beta * out``."""

    alpha: Any
    beta: Any
    out: Array


def executable_into(program: Program, adapter: Adapter, strides: Sequence[int] | None) -> Run | None:
    """A function of the operands and an :class:`Update` that runs a program and the update, in one call at the end.

    Args:
        program: lowered for the adapter's framework.
        adapter: executes the ops.
        strides: of ``out``, in elements; None if it is C-contiguous. Its dtype is that of the result.

    Returns:
        The function; None if the program does not end in a product that the framework adds to an ``out`` of this layout
        better than :meth:`~einsumx.adapters.facets.Updates.update` does.
    """
    product = next((op for op in reversed(program.ops) if isinstance(op, Matmul)), None)
    if product is None or not program.shape:
        return None
    views = program.ops[program.ops.index(product) + 1 :]
    shapes, dtypes = verify(program), slot_dtypes(program)
    undo = _undone(product, views, shapes, contiguous(program.shape) if strides is None else strides)
    if undo is None or dtypes[product.out] != program.dtype:
        return None
    lhs, rhs = product.sources
    add = adapter.product_into(product, (shapes[lhs], shapes[rhs]), dtypes[lhs])
    if add is None:
        return None

    def kernel(lhs: Array, rhs: Array, update: Update) -> None:
        out = update.out
        for view in undo:
            out = adapter.transpose(out, view.axes) if isinstance(view, Transpose) else adapter.reshape(out, view.shape)
        add(update.alpha, lhs, rhs, update.beta, out)

    ops = program.ops[: program.ops.index(product)]
    arguments = (*range(len(program.operands)), program.ops[-1].out + 1)
    names = _globals({**_kernels(ops, adapter, shapes, dtypes), product.out: kernel})
    calls = (*((op.out, op.sources) for op in ops), (product.out, (lhs, rhs, arguments[-1])))
    return adapter.prepare(FunctionType(_code(arguments, calls, product.out, False), names), program)


def _undone(
    product: Matmul, views: Sequence[Op], shapes: Mapping[int, tuple[int, ...]], strides: Sequence[int]
) -> list[Transpose | Reshape] | None:
    """The views that turn ``out`` into an array for ``product`` itself, which ``views`` turn into the result.

    None if there are none, or if BLAS cannot write to such matrices.
    """
    if [op.sources for op in views] != [(op.out,) for op in (product, *views)[: len(views)]]:
        return None
    undone: list[Transpose | Reshape] = []
    for op in reversed(views):
        if isinstance(op, Transpose):
            axes = inverse(op.axes)
            undone.append(Transpose(op.src, op.out, axes))
            strides = [strides[axis] for axis in axes]
        elif isinstance(op, Reshape) and (steps := reshaped(shapes[op.out], strides, shapes[op.src])) is not None:
            undone.append(Reshape(op.src, op.out, shapes[op.src]))
            strides = steps
        else:
            return None
    return undone if 1 in strides[-2:] else None


def _globals(kernels: Mapping[int, Callable[..., Any]]) -> dict[str, Any]:
    """The names that a function's lines use, from the kernel of each slot."""
    return {"__builtins__": builtins, **{f"k{slot}": kernel for slot, kernel in kernels.items()}}


def _kernels(
    ops: Sequence[Op], adapter: Adapter, shapes: Mapping[int, tuple[int, ...]], dtypes: Mapping[int, str]
) -> dict[int, Callable[..., Array]]:
    """The kernel of each op, by the slot that it writes."""
    kernels = {}
    for op in ops:
        sources = op.sources
        kernels[op.out] = _kernel(op, adapter, [shapes[slot] for slot in sources], dtypes[sources[0]])
    return kernels


def _kernel(op: Op, adapter: Adapter, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
    try:
        kernel: Callable[..., Array] | None = adapter.kernel(op, shapes, dtype)
    except NotImplementedError:
        kernel = None
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
    slots = tuple(sorted(constants))

    def run(*arrays: Array) -> list[Array]:
        values = dict(zip(slots, arrays))
        for op in early:
            values[op.out] = kernels[op.out](*[values[slot] for slot in op.sources])
        return [values[slot] for slot in kept]

    folded = adapter.prepare(run, program)(*[constants[slot] for slot in slots])
    return late, dict(zip(kept, folded))


Call: TypeAlias = tuple[int, tuple[int, ...]]
"""The slot that an op writes, and those that it reads."""


@lru_cache(maxsize=1024)
def _code(arguments: tuple[int, ...], calls: tuple[Call, ...], result: int, finishes: bool) -> CodeType:
    """The code of a function of some slots; programs with the same calls share it.

    Its lines are in ``linecache`` for tracebacks, profilers and debuggers as long as the function exists.

    Args:
        arguments: the slots that it takes.
        calls: the ops, in order, one line of code each, and one that drops the values that it uses last.
        result: the slot that it returns.
        finishes: whether the result goes through ``finish``.
    """
    lines = [f"def run({', '.join(_named('x', slot) for slot in arguments)}):"]
    spent = _spent(calls, result)
    for out, sources in calls:
        lines.append(f"{_named('x', out)} = {_named('k', out)}({', '.join(_named('x', slot) for slot in sources)})")
        if out in spent:
            lines.append(f"{' = '.join(_named('x', slot) for slot in spent[out])} = None")
    lines.append(f"return finish({_named('x', result)})" if finishes else f"return {_named('x', result)}")
    source = "\n ".join(lines)  # it contains nothing but numbers of slots
    name = f"<einsumx plan {next(_numbers)}>"
    module = compile(source, name, "exec")
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    (code,) = (value for value in module.co_consts if isinstance(value, CodeType))
    finalize(code, linecache.cache.pop, name, None).atexit = False
    return code


def _spent(calls: Sequence[Call], result: int) -> dict[int, list[int]]:
    """For each call, by the slot that it writes, the values of calls that it uses last; operands are the caller's."""
    written = {out for out, _ in calls}
    dead = last_uses(calls, result).items()
    return {out: own for out, slots in dead if (own := [slot for slot in slots if slot in written])}


_LONG = 24
"""The least calls of a function whose compilation takes as long as many runs."""


class _LongRun:
    """A function of many calls, which is compiled when it is called again."""

    def __init__(
        self,
        arguments: tuple[int, ...],
        calls: tuple[Call, ...],
        result: int,
        names: dict[str, Any],
        constants: Mapping[int, Array],
    ) -> None:
        self._arguments, self._calls, self._result, self._names = arguments, calls, result, names
        self._constants = constants
        self._compiled: Run | None = None
        self._has_run = False

    def __call__(self, *operands: Array) -> Array:
        if self._compiled is not None:
            return self._compiled(*operands)
        if self._has_run:
            code = _code(self._arguments, self._calls, self._result, "finish" in self._names)
            self._compiled = FunctionType(code, self._names)
            return self._compiled(*operands)
        self._has_run = True
        values = {**self._constants, **dict(zip(self._arguments, operands))}
        names, spent = self._names, _spent(self._calls, self._result)
        for out, sources in self._calls:
            values[out] = names[f"k{out}"](*[values[slot] for slot in sources])
            for slot in spent.get(out, ()):
                del values[slot]
        result = values[self._result]
        return names["finish"](result) if "finish" in names else result


_numbers = count()


def _named(letter: str, slot: int) -> str:
    """The variable of a slot. Its name is checked to contain only a number, because it becomes code."""
    if type(slot) is not int:
        raise EinsumxError(f"a slot of a plan must be an int, not {shown(slot)}")
    return f"{letter}{slot}"
