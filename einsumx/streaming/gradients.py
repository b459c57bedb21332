"""Gradients under a memory limit: each is an einsum of the cotangent and the other operands, under the same limit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.registry import get_backend
from einsumx.blocked.derivatives import Backward, Passes, backward
from einsumx.errors import MemoryLimitError
from einsumx.runtime.prepare import prepare
from einsumx.runtime.request import Options, Request
from einsumx.streaming.run import plan_within, run_blocks

__all__ = ["RecordedContraction", "recorded"]


class RecordedContraction:
    """A contraction under a limit, as a framework records it to differentiate it; it holds no arrays.

    Args:
        passes: its backward passes.
    """

    def __init__(self, passes: Passes) -> None:
        self._passes = passes

    @property
    def places(self) -> int:
        """How many arrays there are in all: the operands, and last the cotangent."""
        return len(self._passes.arrays)

    def dtype(self, place: int) -> Any:
        """The framework's dtype of what belongs in a place."""
        return self._passes.adapter.dtype(self._passes.arrays[place].dtype)

    def value(self, place: int, arrays: Sequence[Any], beside: int = 0) -> Array:
        """What belongs in one place: the gradient by an operand, in the dtype of the result.

        Args:
            place: the number of the operand; or the last place, for the result of such operands.
            arrays: in all places; what is in that one is not looked at.
            beside: bytes of the gradients that are there already.

        Raises:
            MemoryLimitError: it does not fit, which was seen to before the contraction ran.
        """
        passes = self._passes
        adapter, step = passes.adapter, backward(passes.equation, place)
        np = get_backend("numpy").xp
        ones = [adapter.from_numpy(np.ones(size, "int8"), passes.device) for size in step.ones]
        request = Request(
            step.written,
            [*(arrays[other] for other in step.others), *ones],
            dtype=passes.options.dtype,
            casting=passes.options.casting,
            optimize=passes.options.optimize,
            backend=adapter.name,
            memory_limit=passes.limit,
            device=passes.device,
        )
        beside += passes.beside(step, passes.arrays[place])
        try:
            limited = plan_within(request, beside)
        except MemoryLimitError:  # the arrays lie in another way than when the limit was looked at
            limited = plan_within(request, beside, as_copies=True)
        return _placed(adapter, step, run_blocks(limited))


def _placed(adapter: Adapter, step: Backward, found: Array) -> Array:
    """What a contraction gives, with its diagonals embedded, and with the axes of size 1 that broadcast."""
    labels = list(step.labels)
    for label in step.labels:
        for _ in range(step.term.count(label) - 1):
            axis = labels.index(label)
            last = [*(k for k in range(len(labels)) if k != axis), axis]
            found = adapter.embed_diagonal(_permuted(adapter, found, last))
            labels = [labels[k] for k in last] + [label]
    order = sorted(range(len(labels)), key=lambda axis: _turn(labels, axis))
    places = sorted(range(len(step.term)), key=lambda axis: _turn(step.term, axis))
    axes = dict(zip(places, order))
    found = _permuted(adapter, found, [axes[axis] for axis in range(len(axes))])
    return adapter.reshape(found, step.shape) if len(step.shape) != len(step.term) else found


def _permuted(adapter: Adapter, array: Array, axes: list[int]) -> Array:
    """The axes in another order, by a plan, as a framework's own transpose may take only so many."""
    if axes == sorted(axes):
        return array
    return prepare(adapter, ((tuple(range(len(axes))),), tuple(axes)), [array], Options()).run(array)


def _turn(labels: Sequence[int], axis: int) -> tuple[int, int]:
    """A label, and which of its axes it is."""
    return labels[axis], labels[:axis].count(labels[axis])


def recorded(request: Request) -> Array:
    """A contraction under a limit, with gradients under the same limit where the framework records it.

    Raises:
        MemoryLimitError: it does not fit, or gradients do not that may be asked for.
    """
    limited = plan_within(request)
    run = partial(run_blocks, limited, request.progress)
    if limited.passes is None:
        return run()
    limited.passes.plan()
    return limited.adapter.recorded(RecordedContraction(limited.passes), run, limited.operands, limited.passes.numbers)
