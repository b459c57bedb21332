"""``run_of``: from a program to one Python function of its operands that calls a kernel for each op.

:func:`run_of_parts` makes such a function of the calls of recipes, without a program.
"""

from __future__ import annotations

import builtins
import linecache
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count, repeat
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import finalize

from einsumx.adapters.base import Adapter, Array, Run, Signature
from einsumx.errors import EinsumxError, excerpt, shown
from einsumx.imports import LazyModule
from einsumx.ir.algebra import PLUS_TIMES, Algebra
from einsumx.ir.layout import contiguous, inverse, layout_pattern, reshaped
from einsumx.ir.ops import Matmul, Native, Op, Reshape, Sum, Transpose
from einsumx.ir.program import Arranged, Program, Slots, arranged, last_uses, writer
from einsumx.ir.sizes import Unknown, is_known
from einsumx.planner.array_calls import shape_of
from einsumx.planner.clear import Part
from einsumx.planner.rules import Rules

if TYPE_CHECKING:
    from einsumx.adapters import facets
else:
    facets = LazyModule("einsumx.adapters.facets")


Call: TypeAlias = tuple[int, tuple[int, ...], Callable[..., Any]]
"""The slot that an op writes, those that it reads, and its kernel."""


class Folded(NamedTuple):
    """What is left of a program when the ops that depend only on constants have run.

    Attributes:
        calls: the others.
        values: what they read of constants, by slot.
        arguments: the slots of the operands that are not constant.
    """

    calls: Sequence[Call]
    values: Mapping[int, Array]
    arguments: tuple[int, ...]


def folded(program: Program, adapter: Adapter, constants: Mapping[int, Array] | None = None) -> Folded:
    """The calls of a program.

    Args:
        program: lowered for the adapter's framework.
        adapter: executes the ops, in the program's algebra.
        constants: operands that are known already, by position. Ops that depend only on them run now, or in each call
            if their results would not outlast this one.

    Raises:
        EinsumxError: the adapter cannot run an op.
    """
    calls = _calls(program, adapter)
    values: Mapping[int, Array] = constants or {}
    arguments = tuple(range(len(program.contraction.operands)))
    if constants:
        arguments = tuple([slot for slot in arguments if slot not in constants])
        context = adapter.lasting(list(constants.values()))
        if context is not None:
            with context:
                calls, values = _fold(program, adapter, constants, calls)
    return Folded(calls, values, arguments)


def run_of(program: Program, adapter: Adapter, left: Folded | None = None) -> Run:
    """A function that runs ``program``; it does not check its operands.

    Args:
        program: lowered for the adapter's framework.
        adapter: executes the ops, in the program's algebra.
        left: what :func:`folded` leaves of it, if some operands are known already; the function takes the others.

    Raises:
        EinsumxError: the adapter cannot run an op.
    """
    calls, values, arguments = left or folded(program, adapter)
    finish = None if program.contraction.equation.output else _finish(program, adapter)
    run: Run
    if len(calls) == 1 and calls[0][1] == arguments and finish is None:
        run = calls[0][2]
    else:
        run = _linked(calls, arguments, program.result, finish, values)
    return program.contraction.algebra.prepare(adapter, run, program)


def _linked(
    calls: Sequence[Call],
    arguments: tuple[int, ...],
    result: int,
    finish: Callable[[Array], Any] | None,
    values: Mapping[int, Array],
) -> Run:
    """A function of kernels in a row, if they are those of one product; or else one that runs them by slots."""
    order = arranged([call[:2] for call in calls], arguments, result) if arguments else None
    return joined(order, [kernel for _, _, kernel in calls], finish) or _Steps(calls, arguments, result, finish, values)


def _finish(program: Program, adapter: Adapter) -> Callable[[Array], Any] | None:
    """The function that makes a result without axes an element; None if it is one."""
    last = program.ops[-1]
    is_sum = type(last) in _SUMS and last.out == program.result
    is_element = is_sum and program.algebra.is_plain and program.dtype != "object"
    return None if is_element else program.algebra.finish(adapter)


def run_of_parts(parts: Sequence[Part], adapter: Adapter, operands: int, rules: Rules) -> Run | None:
    """A function that runs the calls of a contraction one after the other; None if the adapter asks for a program.

    Args:
        parts: for each step.
        adapter: executes the calls.
        operands: how many there are.
        rules: of the framework, for the dtype of the result.
    """
    last = parts[-1].calls
    finish = None if last.result or type(last.steps[-1].op) in _SUMS else PLUS_TIMES.finish(adapter)
    arguments, run = tuple(range(operands)), None
    if len(parts) == 1:
        kernels = _kernels(parts[0], adapter, rules.dtype)
        if finish is None and last.slots == ((operands, arguments),):
            run = kernels[0]
        else:
            run = joined(last.order, kernels, finish)
    if run is None:
        calls: list[Call] = []
        for part in parts:
            names = (*part.slots, *range(part.start, part.start + len(part.calls.steps)))
            for (out, sources), kernel in zip(part.calls.slots, _kernels(part, adapter, rules.dtype)):
                calls.append((names[out], tuple(map(names.__getitem__, sources)), kernel))
        run = _linked(calls, arguments, calls[-1][0], finish, {})
    is_loud = False
    for part in parts:
        is_loud = is_loud or part.calls.is_loud
    return adapter.prepare_plain(run, is_loud and rules.is_inexact)


_SUMS = frozenset((Native, Matmul, Sum))
"""The ops whose result, if it has no axes, is an element."""


def _kernels(part: Part, adapter: Adapter, dtype: str) -> list[Callable[..., Any]]:
    """The kernels of a step of a computation in a dtype."""
    kernel, sizes, dtype = adapter.kernel, part.sizes, part.dtype or dtype
    return [
        kernel(step.sized(sizes), list(map(shape_of, step.sources, repeat(sizes))), dtype) for step in part.calls.steps
    ]


def _calls(program: Program, adapter: Adapter) -> list[Call]:
    """The kernels of the ops.

    Raises:
        EinsumxError: the adapter cannot run an op.
    """
    algebra = program.contraction.algebra
    shapes: list[tuple[int, ...]] = []
    dtypes: list[str] = []
    for operand in program.contraction.operands:
        shapes.append(operand.shape)
        dtypes.append(operand.dtype)
    calls: list[Call] = []
    for op in program.ops:  # not program.values: a first call needs no strides, and nothing of the result
        sources, out = op.sources, op.out
        read, dtype = tuple(map(shapes.__getitem__, sources)), dtypes[sources[0]]
        calls.append((out, sources, _kernel(op, adapter, algebra, read, dtype)))
        if op is not program.ops[-1]:
            shapes.append(op.shape_after(read) or op.result_shape(read))
            dtypes.append(op.result_dtype(dtype))
    return calls


def _kernel(
    op: Op, adapter: Adapter, algebra: Algebra, shapes: Sequence[tuple[int, ...]], dtype: str
) -> Callable[..., Any]:
    try:
        kernel: Callable[..., Any] | None = (
            adapter.kernel(op, shapes, dtype)
            if algebra is PLUS_TIMES  # its own method would be one more call
            else algebra.kernel(adapter, op, shapes, dtype)
        )
    except NotImplementedError:
        kernel = None
    if kernel is None:
        raise EinsumxError(f"{adapter.name} cannot run {excerpt(str(op))}, an op of this plan; make the plan again")
    return kernel


def joined(
    order: Arranged | None, kernels: Sequence[Callable[..., Any]], finish: Callable[[Array], Any] | None
) -> Run | None:
    """A function that calls kernels in this order; None without one.

    Args:
        order: of the ops.
        kernels: of the ops.
        finish: makes the result of the last one's, if that is not it.
    """
    if order is None:
        return None
    before, other, product, after, is_swapped = order
    if finish is not None:
        kernels, after = [*kernels, finish], (*after, len(kernels))
    last = _chained(kernels, after)
    if product is None:
        return last
    run = kernels[product]
    if before or other or last is not None:
        run = _joined(_chained(kernels, before), _chained(kernels, other), run, last)
    return (lambda rhs, lhs: run(lhs, rhs)) if is_swapped else run


Kernel: TypeAlias = "Callable[[Array], Any]"


def _chained(kernels: Sequence[Kernel], places: Sequence[int]) -> Kernel | None:
    """A function that calls the kernels at these places one after another; None without any."""
    if len(places) < 2:
        return kernels[places[0]] if places else None
    first, *others = [kernels[place] for place in places]

    def run(array: Array) -> Array:
        array = first(array)
        for kernel in others:
            array = kernel(array)
        return array

    return run


def _joined(
    left: Kernel | None, right: Kernel | None, product: Callable[[Array, Array], Array], last: Kernel | None
) -> Run:
    """A function of a pair that calls all kernels itself, as calls may be small."""
    if last is None:
        if left is not None and right is not None:
            return lambda lhs, rhs: product(left(lhs), right(rhs))
        if left is not None:
            return lambda lhs, rhs: product(left(lhs), rhs)
        return product if right is None else lambda lhs, rhs: product(lhs, right(rhs))
    if left is not None and right is not None:
        return lambda lhs, rhs: last(product(left(lhs), right(rhs)))
    if left is not None:
        return lambda lhs, rhs: last(product(left(lhs), rhs))
    if right is not None:
        return lambda lhs, rhs: last(product(lhs, right(rhs)))
    return lambda lhs, rhs: last(product(lhs, rhs))


def run_of_any_size(program: Program, adapter: Adapter, constants: Mapping[int, Array] | None = None) -> Run:
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
    fixed = dict(constants or {})
    arguments = [slot for slot in range(len(program.operands)) if slot not in fixed]
    finish = None if program.shape else _finish(program, adapter)
    last = last_uses(program.calls, program.result)

    def kernel_of(op: Op) -> Callable[..., Any]:
        sources = [program.values[slot] for slot in op.sources]
        return _kernel(op, adapter, program.algebra, [source.shape for source in sources], sources[0].dtype)

    kernels = [kernel_of(op) if is_known(op.sizes) else None for op in program.ops]

    def run(*operands: Array) -> Array:
        values = {**fixed, **dict(zip(arguments, operands))}
        sizes = _sizes_of(values, program, adapter)
        steps = (
            (op.out, op.sources, kernel or kernel_of(op.sized(sizes)), last.get(op.out, ()))
            for op, kernel in zip(program.ops, kernels)
        )
        _run(steps, values)
        result = values[program.result]
        return result if finish is None else finish(result)

    return program.algebra.prepare(adapter, run, program)


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


def run_into(program: Program, adapter: Adapter, left: Folded, target: Signature, *, adds: bool = False) -> Run | None:
    """A function of the operands and an array that runs a program, and writes its result in the last call of an op.

    Args:
        program: lowered for the adapter's framework.
        adapter: executes the ops.
        left: what :func:`folded` leaves of the program.
        target: the signature of the array; its dtype is that of the result.
        adds: whether the function takes an :class:`Update` in the place of the array, to which it adds the result.

    Returns:
        The function; None if the framework has none for the last op, or for this layout, that is better than
        :meth:`~einsumx.adapters.facets.OutAccess.write_new` or :meth:`~einsumx.adapters.facets.OutAccess.update`.
    """
    op = writer(program.ops)
    if op is None or not program.shape or program.values[op.out].dtype != program.dtype:
        return None
    undo = _undone(op, program, adapter.operand(target).strides)
    sources = [program.values[slot] for slot in op.sources]
    if undo is None or any(source.dtype != program.dtype for source in sources):
        return None
    shapes, access = [source.shape for source in sources], facets.out_of(adapter)
    if not adds:
        write = access.kernel_into(op, shapes, program.dtype, target)
    else:
        write = access.product_into(op, shapes, program.dtype) if isinstance(op, Matmul) else None
    if write is None:
        return None

    def kernel(*arrays: Any) -> None:
        *own, last = arrays
        out = last.out if adds else last
        out = out if is_plain else adapter.plain(out)
        for view in undo:
            out = adapter.transpose(out, view.axes) if isinstance(view, Transpose) else adapter.reshape(out, view.shape)
        if adds:
            write(last.alpha, *own, last.beta, out)
        else:
            write(*own, out=out)

    is_plain = adapter.is_plain(target[0])
    arguments = (*left.arguments, program.ops[-1].out + 1)
    before = [call for call in left.calls if call[0] < op.out]
    call = op.out, (*op.sources, arguments[-1]), kernel
    run = _Steps([*before, call], arguments, op.out, None, left.values) if before or call[1] != arguments else kernel
    return adapter.prepare(run, program)


def _undone(last: Op, program: Program, strides: Sequence[int] | None) -> list[Transpose | Reshape] | None:
    """The views that turn ``out`` into an array for the op ``last`` itself, whose result the ops after it view.

    None if there are none, if elements share memory or lie in reverse, or if BLAS cannot write to such matrices.
    """
    views, values = program.ops[program.ops.index(last) + 1 :], program.values
    if [*[op.sources for op in views], (program.result,)] != [(op.out,) for op in (last, *views)]:
        return None
    pattern = layout_pattern(program.shape, strides)
    if pattern is None or any(step < 1 for _, step in pattern):
        return None
    strides = contiguous(program.shape) if strides is None else strides
    undone: list[Transpose | Reshape] = []
    for op in reversed(views):
        if isinstance(op, Transpose):
            axes = inverse(op.axes)
            undone.append(Transpose(op.src, op.out, axes))
            strides = [strides[axis] for axis in axes]
        elif isinstance(op, Reshape) and (steps := reshaped(op.shape, strides, values[op.src].shape)) is not None:
            undone.append(Reshape(op.src, op.out, values[op.src].shape))
            strides = steps
        else:
            return None
    return undone if 1 in strides[-2:] or not isinstance(last, Matmul) else None


def _fold(
    program: Program, adapter: Adapter, constants: Mapping[int, Array], calls: Sequence[Call]
) -> tuple[list[Call], dict[int, Array]]:
    """Run the calls that depend only on constants; returns the others, and the values that these read by slot."""
    ready = set(constants)
    early: list[Call] = []
    late: list[Call] = []
    for call in calls:
        out, sources, _ = call
        if ready.issuperset(sources):
            ready.add(out)
            early.append(call)
        else:
            late.append(call)
    kept = sorted(ready & {slot for _, sources, _ in late for slot in sources})
    slots = tuple(sorted(constants))

    def run(*arrays: Array) -> list[Array]:
        values = dict(zip(slots, arrays))
        _run([(*call, ()) for call in early], values)
        return [values[slot] for slot in kept]

    folded = adapter.prepare(run, program)(*[constants[slot] for slot in slots])
    return late, dict(zip(kept, folded))


@lru_cache(maxsize=1024)
def _code(arguments: tuple[int, ...], calls: tuple[Slots, ...], result: int, finishes: bool) -> CodeType:
    """The code of a function of some slots; programs with the same calls share it.

    Its lines are in ``linecache`` for tracebacks, profilers and debuggers as long as the function exists.

    Args:
        arguments: the slots that it takes.
        calls: the ops, in order, one line of code each, and one that drops the values that it uses last.
        result: the slot that it returns.
        finishes: whether the result goes through ``finish``.
    """
    lines = [f"def run({', '.join(_named('x', slot) for slot in arguments)}):"]
    spent = last_uses(calls, result)
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


Step: TypeAlias = tuple[int, tuple[int, ...], Callable[..., Any], Sequence[int]]
"""A call, and the values that it uses last."""


def _run(steps: Iterable[Step], values: dict[int, Array]) -> None:
    """Run calls one by one on values by slot."""
    for out, sources, kernel, spent in steps:
        values[out] = kernel(*map(values.__getitem__, sources))
        for slot in spent:
            del values[slot]


_RUNS = 8
"""The runs of a program op by op that take about as long as its compilation."""


class _Steps:
    """A function that runs a program op by op, and compiles it when it was called often.

    Args:
        calls: the kernels, in order.
        arguments: the slots that it takes.
        result: the slot that it returns, through ``finish`` if there is one.
        constants: the values of other slots.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        arguments: tuple[int, ...],
        result: int,
        finish: Callable[[Array], Any] | None,
        constants: Mapping[int, Array],
    ) -> None:
        self._arguments, self._result, self._finish, self._constants = arguments, result, finish, constants
        spent = last_uses([call[:2] for call in calls], result)
        self._steps: list[Step] = []
        for out, sources, kernel in calls:
            own = spent.get(out, ())
            if own and hasattr(kernel, "overwriting"):
                kernel = _overwriting(kernel, [place for place, slot in enumerate(sources) if slot in own])
            self._steps.append((out, sources, kernel, own))
        self._runs = 0
        self._compiled: Run | None = None

    def __call__(self, *operands: Array) -> Array:
        if self._compiled is not None:
            return self._compiled(*operands)
        self._runs += 1
        if self._runs > _RUNS:
            self._compiled = self._compile()
            return self._compiled(*operands)
        values = {**self._constants, **dict(zip(self._arguments, operands))}
        _run(self._steps, values)
        result = values[self._result]
        return result if self._finish is None else self._finish(result)

    def _compile(self) -> Run:
        names: dict[str, Any] = {"__builtins__": builtins}
        names.update((f"k{out}", kernel) for out, _, kernel, _ in self._steps)
        names.update((f"x{slot}", value) for slot, value in self._constants.items())
        if self._finish is not None:
            names["finish"] = self._finish
        calls = tuple([(out, sources) for out, sources, _, _ in self._steps])
        return FunctionType(_code(self._arguments, calls, self._result, self._finish is not None), names)


def _overwriting(kernel: Any, places: Iterable[int]) -> Callable[..., Any]:
    """A kernel that may write its result into one of the sources at these places, which no other call needs."""
    found: Callable[..., Any] = next(filter(None, map(kernel.overwriting, places)), kernel)
    return found


_numbers = count()


def _named(letter: str, slot: int) -> str:
    """The variable of a slot. Its name is checked to contain only a number, because it becomes code."""
    if type(slot) is not int:
        raise EinsumxError(f"a slot of a plan must be an int, not {shown(slot)}")
    return f"{letter}{slot}"
