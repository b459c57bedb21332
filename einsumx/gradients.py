"""Gradients under a memory limit: each is an einsum of the cotangent and the other operands, under the same limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from einsumx.adapter import Adapter, Array
from einsumx.bind import SizedEquation
from einsumx.blocking import Landing
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError
from einsumx.limit import blocked_plan
from einsumx.limited import Limited, plan_within, run_blocks
from einsumx.plan import Operand
from einsumx.prepare import Options, Written
from einsumx.rates import calibrated
from einsumx.registry import get_backend, owner
from einsumx.sources import framework_of

__all__ = ["Backward", "Recorded", "backward", "recorded"]


@dataclass(frozen=True, slots=True)
class Backward:
    """The contraction that gives the gradient by one operand.

    Attributes:
        written: the equation, of the other operands, the cotangent and ones.
        others: the numbers of the other operands.
        ones: the sizes of the ones: labels that nothing but the operand has.
        labels: of what the contraction gives: those of the operand, each once.
        term: the operand's own labels, without axes of size 1 that broadcast.
        shape: of the operand.
    """

    written: Written
    others: tuple[int, ...]
    ones: tuple[int, ...]
    labels: tuple[int, ...]
    term: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def has_diagonal(self) -> bool:
        """Whether the gradient is zero but for a diagonal."""
        return len(self.labels) < len(self.term)


def backward(equation: SizedEquation, number: int) -> Backward:
    """The contraction that gives the gradient by operand ``number``.

    >>> from einsumx.bind import bind
    >>> from einsumx.parse import parse_text
    >>> backward(bind(parse_text("ij,jk->ik", 2), [(2, 3), (3, 4)]), 1).written
    (((0, 1), (0, 2)), (1, 2))
    """
    sizes, shape = equation.sizes, equation.shapes[number]
    term = equation.carried(number)
    labels = tuple(dict.fromkeys(term))
    others = tuple(other for other in range(len(equation.inputs)) if other != number)
    there = set(equation.output)
    for other in others:
        there.update(equation.carried(other))
    missing = [label for label in labels if label not in there]
    terms = (*(equation.inputs[other] for other in others), equation.output, *((label,) for label in missing))
    return Backward((terms, labels), others, tuple(sizes[label] for label in missing), labels, term, shape)


class Recorded:
    """A contraction under a limit, as a framework records it to differentiate it.

    Args:
        limited: the contraction.
        options: it is planned with.
    """

    def __init__(self, limited: Limited, options: Options, run: Callable[[], Array]) -> None:
        self.run = run
        self._limited, self._limit = limited, limited.plan.limit
        optimize = options.optimize if isinstance(options.optimize, str | bool) else "auto"
        self._options = Options(limited.plan.dtype, "unsafe", optimize)

    def check(self, numbers: Sequence[int]) -> None:
        """Raise MemoryLimitError unless the gradients by these operands can be computed, one beside the others."""
        plan, adapter = self._limited.plan, self._limited.adapter
        beside = 0
        for number in numbers:
            step = backward(plan.equation, number)
            given = [self._limited.sources[other] for other in step.others]
            operands = [source.operand for source in given]
            operands += [Operand(plan.shape, plan.dtype), *(Operand((size,), "int8") for size in step.ones)]
            there = [source.lies_there for source in given] + [adapter.cpu.strided] * (1 + len(step.ones))
            rate = calibrated(adapter, plan.device).rates.copy
            rates = [source.read_rate or rate for source in given] + [rate] * (1 + len(step.ones))
            whole = prod(plan.equation.sizes[label] for label in step.labels) * itemsize(plan.dtype)
            beside_it = beside + self._beside(step, plan.operands[number])
            blocked_plan(
                adapter,
                step.written,
                tuple(operands),
                plan.device,
                self._options,
                self._limit,
                there,
                Landing(whole, whole if plan.compute_dtype != plan.dtype else 0, beside=beside_it),
                rates,
            )
            beside += plan.operands[number].nbytes

    def _beside(self, step: Backward, operand: Operand) -> int:
        """Bytes that a gradient takes beside the contraction that computes it."""
        extra = sum(step.ones)
        if step.has_diagonal:
            extra += prod(step.shape) * itemsize(self._options.dtype or operand.dtype)
        if operand.dtype != self._options.dtype:
            extra += operand.nbytes
        return extra

    def gradient(self, number: int, cotangent: Array, operands: Sequence[Any], beside: int) -> Array:
        """The gradient by an operand, in the dtype of the result.

        Args:
            number: of the operand.
            cotangent: of the result.
            operands: of the contraction; the one itself is not looked at.
            beside: bytes of the gradients that are there already.
        """
        plan, adapter = self._limited.plan, self._limited.adapter
        step = backward(plan.equation, number)
        np = get_backend("numpy").xp
        ones = [adapter.from_numpy(np.ones(size, "int8"), plan.device) for size in step.ones]
        given = [*(operands[other] for other in step.others), cotangent, *ones]
        found = recorded(
            step.written,
            given,
            lambda _: self._options,
            self._limit,
            backend=adapter.name,
            device=plan.device,
            beside=beside + self._beside(step, plan.operands[number]),
        )
        labels = list(step.labels)
        for label in step.labels:
            for _ in range(step.term.count(label) - 1):
                axis = labels.index(label)
                last = [*(k for k in range(len(labels)) if k != axis), axis]
                found = adapter.embed_diagonal(adapter.transpose(found, tuple(last)))
                labels = [labels[k] for k in last] + [label]
        order = sorted(range(len(labels)), key=lambda axis: _turn(labels, axis))
        places = sorted(range(len(step.term)), key=lambda axis: _turn(step.term, axis))
        axes = dict(zip(places, order))
        if labels != list(step.term):
            found = adapter.transpose(found, tuple(axes[axis] for axis in range(len(axes))))
        return adapter.reshape(found, step.shape) if len(step.shape) != len(step.term) else found


def _turn(labels: Sequence[int], axis: int) -> tuple[int, int]:
    """A label, and which of its axes it is."""
    return labels[axis], labels[:axis].count(labels[axis])


def recorded(
    written: Written,
    given: Sequence[Any],
    options: Callable[[Adapter], Options],
    limit: Any,
    *,
    backend: str | None = None,
    device: str = "",
    out: Any = None,
    order: str = "K",
    resume: Any = None,
    executor: Any = None,
    devices: Sequence[str] = (),
    progress: Any = False,
    beside: int = 0,
) -> Array:
    """A contraction under a limit, with gradients under the same limit where the framework records it.

    Raises:
        MemoryLimitError: it does not fit, or gradients do not that may be asked for.
    """
    adapter, operands = framework_of(given, get_backend(backend) if backend is not None else None)
    limited = plan_within(
        written, operands, options, limit, backend=backend, device=device, out=out, order=order, resume=resume,
        executor=executor, devices=devices, beside=beside,
    )  # fmt: skip
    numbers = [number for number, array in enumerate(operands) if owner(array) is adapter and adapter.records(array)]
    if not numbers:
        return run_blocks(limited, progress)
    if out is not None:
        raise BackendError("under memory_limit= no gradients go through out=; leave it away and use the result")
    call = Recorded(limited, options(adapter), lambda: run_blocks(limited, progress))
    call.check(numbers)
    return adapter.recorded(call, operands, numbers)
