"""Records contractions in MXNet's graphs, which must work for other sizes than those of the trace.

This lowers the equation as for arrays and replays the program with labels instead of sizes. Each reshape becomes merges
of adjacent axes, and splits that copy the sizes from a value in which the axes are still separate. The graph consists
of MXNet's own operators, so an exported graph does not need einsumx.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from importlib import import_module
from itertools import accumulate, count
from math import prod
from typing import Any, NamedTuple, TypeAlias

from einsumx.adapters.typing import Array, Run, Signature
from einsumx.algebra.semiring import SemiringAlgebra
from einsumx.backends.mxnet.arrays import MxnetArrays
from einsumx.backends.mxnet.choices import MOST_TRANSPOSED, sums, transposes
from einsumx.backends.mxnet.kernels import through_int8
from einsumx.errors import BackendError, excerpt
from einsumx.ir import ops
from einsumx.ir.bind import EllipsisAxis
from einsumx.ir.operand import Operand
from einsumx.ir.program import Program
from einsumx.planner.lower import lower
from einsumx.runtime.equations import parsed
from einsumx.runtime.request import Written

Axis: TypeAlias = tuple[int, ...]
"""The labels that are merged in one axis; none in an axis of size 1."""

_ASSUMED = 32
"""The size of labels whose size is unknown, for the planner."""


def signatures(written: Written, symbols: Sequence[Any]) -> tuple[Signature, ...]:
    """Signatures of MXNet 1's symbols, with assumptions for unknown sizes and dtypes.

    An unknown size is assumed to be that of the same label elsewhere, and not to be 1.

    Raises:
        UnknownRankError: a subscript has an ellipsis whose number of axes is unknown.
    """
    facts = list(map(known, symbols))
    terms = parsed(written, len(symbols)).inputs
    for number, (term, fact) in enumerate(zip(terms, facts)):
        if fact.shape is None and ... in term:
            raise UnknownRankError(
                f"operand {number} is a symbol without a shape, so the number of axes of its ellipsis is not known; "
                f"write labels instead of the ellipsis, or declare the shape of the variable\n  {excerpt(str(written))}"
            )
    shapes = [(None,) * len(term) if fact.shape is None else fact.shape for term, fact in zip(terms, facts)]
    labels = list(map(_labels, terms, shapes))
    sizes: dict[Any, int] = {}
    for term, shape in zip(labels, shapes):
        sizes.update((label, size) for label, size in zip(term, shape) if size not in (None, 1))
    assumed = [
        tuple(sizes.get(label, _ASSUMED) if size is None else size for label, size in zip(term, shape))
        for term, shape in zip(labels, shapes)
    ]
    likely_dtype = next((fact.dtype for fact in facts if fact.dtype), "float32")
    return tuple(
        (type(symbol), shape, fact.dtype or likely_dtype, "") for symbol, shape, fact in zip(symbols, assumed, facts)
    )


def _labels(term: Sequence[Any], shape: Sequence[int | None]) -> tuple[Any, ...]:
    """A label for each axis of a symbol; the axes of an ellipsis are numbered from the right."""
    if ... not in term:
        return (*term, *map(EllipsisAxis, range(len(term), len(shape))))  # bind reports a wrong rank
    place, span = term.index(...), max(len(shape) - len(term) + 1, 0)
    return (*term[:place], *(EllipsisAxis(-k) for k in range(span, 0, -1)), *term[place + 1 :])


def recorded(program: Program, adapter: MxnetArrays) -> Run:
    """A function that records the contraction of ``program`` for operands of any sizes.

    An axis of size 1 that broadcasts in ``program`` must have size 1 in every later call.
    """
    if isinstance(program.algebra, SemiringAlgebra) and not program.algebra.is_boolean:
        raise BackendError(
            f"a hybridized block of MXNet cannot compute in the semiring {program.algebra.name!r}; call the block "
            "without hybridize()"
        )
    sized = program.contraction.equation
    sizes = tuple(max(size, 2) for size in sized.sizes)
    inputs = tuple(
        tuple((label,) if size == sized.sizes[label] else () for label, size in zip(term, operand.shape))
        for term, operand in zip(sized.inputs, program.operands)
    )
    shapes = tuple(tuple(prod(sizes[label] for label in axis) for axis in axes) for axes in inputs)
    operands = tuple([Operand(shape, operand.dtype) for shape, operand in zip(shapes, program.operands)])
    # MXNet's own einsum would be slow if later calls have larger operands.
    traits = replace(adapter.traits(program.device), native_dtypes=frozenset())
    general = lower(
        replace(
            program.contraction,
            equation=sized._replace(sizes=sizes, shapes=shapes),
            operands=operands,
            place=replace(program.contraction.place, traits=traits),
        )
    )
    dtypes = {slot: each.dtype for slot, each in enumerate(general.values)}

    def record(*arrays: Array) -> Array:
        recorder = _Recorder(adapter, sizes, dict(dtypes))
        for slot, (array, axes) in enumerate(zip(arrays, inputs)):
            recorder.put(slot, array, axes)
        for op in general.ops:
            recorder.run(op)
        return recorder.arrays[general.result]

    return record


class _Recorder:
    """Records ops, and keeps their values with the labels of their axes."""

    def __init__(self, adapter: MxnetArrays, sizes: Sequence[int], dtypes: dict[int, str]) -> None:
        self.adapter, self.sizes, self.dtypes = adapter, sizes, dtypes
        self.arrays: dict[int, Array] = {}
        self.axes: dict[int, tuple[Axis, ...]] = {}
        self._further = count(max(dtypes) + 1)  # the numbers of slots that the program lacks

    def put(self, slot: int, array: Array, axes: Sequence[Axis]) -> None:
        """Set the value of a slot."""
        self.arrays[slot], self.axes[slot] = array, tuple(axes)

    def run(self, op: ops.Op) -> None:
        """Record an op."""
        adapter = self.adapter
        xp, npx = adapter.xp, adapter.npx
        match op:
            case ops.Matmul():
                lhs, rhs = self.axes[op.lhs], self.axes[op.rhs]
                factors = [self.arrays[op.lhs], self.arrays[op.rhs]]
                if len(lhs) == 2:
                    factors = [xp.expand_dims(factor, 0) for factor in factors]
                product = npx.batch_dot(*factors, transpose_a=op.transpose_lhs, transpose_b=op.transpose_rhs)
                if len(lhs) == 2:
                    product = npx.reshape(product, (_DROP, _REST))
                self.put(op.out, product, op.product(lhs, rhs, lambda one, other: one or other))
            case ops.Multiply():
                lhs, rhs = self.axes[op.lhs], self.axes[op.rhs]
                rank = max(len(lhs), len(rhs))
                lhs, rhs = ((),) * (rank - len(lhs)) + lhs, ((),) * (rank - len(rhs)) + rhs
                product = xp.multiply(self.arrays[op.lhs], self.arrays[op.rhs])
                self.put(op.out, product, [one or other for one, other in zip(lhs, rhs)])
            case ops.Reshape():
                self._reshape(op)
            case ops.Transpose() if len(op.axes) > MOST_TRANSPOSED:
                self._transpose_in_turn(op)
            case ops.Transpose():
                array = self._rearranged(op.src, lambda array: self._transposed(array, op.axes))
                self.put(op.out, array, op.arranged(self.axes[op.src]))
            case ops.Diagonal():
                array = self._rearranged(op.src, lambda array: xp.diagonal(array, 0, op.axis1, op.axis2))
                self.put(op.out, array, op.arranged(self.axes[op.src]))
            case ops.Sum():
                total = xp.any if self.dtypes[op.src] == "bool" else xp.sum
                array, axes = self.arrays[op.src], self.axes[op.src]
                for some in sums(op.axes, len(axes)):
                    array = total(array, axis=some)
                self.put(op.out, array, op.arranged(axes))
            case ops.Cast():
                # The gradient of a cast in MXNet 1 overwrites where it should add; that of the reshape adds.
                self.put(op.out, self._same(op.src).astype(op.dtype), self.axes[op.src])
            case ops.Copy():
                self.put(op.out, self._same(op.src), self.axes[op.src])
            case _:
                raise AssertionError(f"{op} is not planned for MXNet's graphs")

    def _same(self, slot: int) -> Array:
        return self.adapter.npx.reshape(self.arrays[slot], (_REST,))

    def _rearranged(self, slot: int, rearrange: Callable[[Array], Array]) -> Array:
        if self.dtypes[slot] == "bool":
            rearrange = through_int8(rearrange)
        return rearrange(self.arrays[slot])

    def _transpose_in_turn(self, op: ops.Transpose) -> None:
        """Record a transpose as several, with reshapes between them."""
        shape = tuple([prod([self.sizes[label] for label in axis]) for axis in self.axes[op.src]])
        source = op.src
        for before, moved in transposes(op.axes, shape):
            merged, turned = next(self._further), next(self._further)
            self.dtypes[merged] = self.dtypes[turned] = self.dtypes[op.src]
            self.run(ops.Reshape(merged, source, before))
            self.run(ops.Transpose(turned, merged, moved, op.reason))
            source = turned
        self.run(ops.Reshape(op.out, source, op.arranged(shape)))

    def _transposed(self, array: Array, axes: tuple[int, ...]) -> Array:
        for pair in (swaps := self.adapter.swaps(axes)):
            array = self.adapter.xp.swapaxes(array, *pair)
        return array if swaps else self.adapter.xp.transpose(array, axes)

    # -- reshapes ---------------------------------------------------------------------------------------

    def _reshape(self, op: ops.Reshape) -> None:
        labels = [label for axis in self.axes[op.src] for label in axis]
        target: list[Axis] = []
        for size in op.shape:
            taken = 0
            while prod(self.sizes[label] for label in labels[:taken]) < size:
                taken += 1
            target.append(tuple(labels[:taken]))
            del labels[:taken]
        array, parts = self._split(op, target)
        if parts != list(self.axes[op.src]):  # a later split may need these axes
            split_slot = -op.out
            self.dtypes[split_slot] = self.dtypes[op.src]
            self.put(split_slot, array, parts)
        array = self._merged(array, parts, [axis for axis in target if axis])
        for place, axis in enumerate(target):
            if not axis:
                array = self.adapter.xp.expand_dims(array, place)
        self.put(op.out, array, target)

    def _split(self, op: ops.Reshape, target: Sequence[Axis]) -> tuple[Array, list[Axis]]:
        """The source of ``op``, with its axes split where an axis of ``target`` ends."""
        ends = set(accumulate(map(len, target)))
        array, axes = self.arrays[op.src], list(self.axes[op.src])
        place = start = 0
        while place < len(axes):
            stop = start + len(axes[place])
            if any(start < end < stop for end in ends):
                slot, first, last = self._find_split(axes[place], self.dtypes[op.src])
                array = self.adapter.npx.reshape_like(
                    array, self.arrays[slot], lhs_begin=place, lhs_end=place + 1, rhs_begin=first, rhs_end=last
                )
                axes[place : place + 1] = self.axes[slot][first:last]
            else:
                place, start = place + 1, stop
        return array, axes

    def _find_split(self, axis: Axis, dtype: str) -> tuple[int, int, int]:
        """The slot of a value that has the labels of a merged axis in adjacent axes, and the range of these axes.

        It exists, because only adjacent axes are ever merged.
        """
        for slot, axes in self.axes.items():
            for first in range(len(axes)):
                for last in range(first + 2, len(axes) + 1):
                    parts = axes[first:last]
                    if self.dtypes[slot] == dtype and sum(parts, ()) == axis and axis not in parts:
                        return slot, first, last
        raise AssertionError(f"no value has the labels {axis} in several axes")

    def _merged(self, array: Array, axes: Sequence[Axis], target: Sequence[Axis]) -> Array:
        """``array`` with its axes merged, two at a time, into those of ``target``; axes of size 1 are dropped."""
        while list(axes) != list(target):
            codes, merged = [], []
            targets = iter(target)
            place = 0
            rest: Axis = ()  # the labels of the current target axis that are not merged yet
            while place < len(axes):
                axis = axes[place]
                if not axis:
                    codes.append(_DROP)
                    place += 1
                    continue
                if not rest:
                    rest = next(targets)
                following = axes[place + 1] if place + 1 < len(axes) else ()
                if axis != rest and following:
                    axis = (*axis, *following)
                    codes.append(_MERGE)
                    place += 2
                else:
                    codes.append(_KEEP)
                    place += 1
                merged.append(axis)
                rest = rest[len(axis) :]
            array, axes = self.adapter.npx.reshape(array, tuple(codes)), merged
        return array


_KEEP, _DROP, _REST, _MERGE = -2, -3, -4, -5
"""Codes of ``npx.reshape``: keep an axis, drop an axis of size 1, keep all remaining axes, merge two axes."""


# -- what is known of symbols ---------------------------------------------------------------------------------

# While MXNet 1 traces a block, it infers their shapes and dtypes from the inputs of the block's first call.


class Known(NamedTuple):
    """The known facts about a symbol.

    Attributes:
        shape: None if not even the rank is known; an unknown size is None.
        dtype: its name; empty if unknown.
    """

    shape: tuple[int | None, ...] | None
    dtype: str


class UnknownRankError(BackendError):
    """The subscript of a symbol of unknown rank has an ellipsis."""


_inputs: ContextVar[tuple[dict[str, Any], dict[str, Any]]] = ContextVar("inputs", default=({}, {}))
"""The shapes and dtypes, by name, of the inputs of the block that is being traced."""


def with_known_inputs(get_graph: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap MXNet 1's ``HybridBlock._get_graph`` so that :func:`known` sees the block's inputs."""
    flatten = import_module("mxnet.gluon.block")._flatten

    @wraps(get_graph)
    def wrapper(block: Any, *arguments: Any) -> Any:
        arrays = [array for array in flatten(arguments, "input")[0] if array is not None]
        names = ["data"] if len(arrays) == 1 else [f"data{number}" for number in range(len(arrays))]
        shapes = {name: array.shape for name, array in zip(names, arrays)}
        token = _inputs.set((shapes, {name: array.dtype for name, array in zip(names, arrays)}))
        try:
            return get_graph(block, *arguments)
        finally:
            _inputs.reset(token)

    return wrapper


def known(symbol: Any) -> Known:
    """The shape and dtype of a symbol, inferred from the traced block's inputs and from declared variables."""
    names = set(symbol.list_inputs())
    shapes, dtypes = ({name: facts[name] for name in names & facts.keys()} for facts in _inputs.get())
    mx = import_module("mxnet")
    try:
        _, (shape, *_), _ = symbol.infer_shape_partial(**shapes)
        _, (dtype, *_), _ = symbol.infer_type_partial(**dtypes)
    except mx.base.MXNetError:  # the shapes contradict each other; MXNet reports that when the graph runs
        return Known(None, "")
    unknown = -1 if mx.util.is_np_shape() else 0
    sizes = None if shape is None else tuple(None if size == unknown else size for size in shape)
    return Known(sizes, "" if dtype is None else import_module("numpy").dtype(dtype).name)
