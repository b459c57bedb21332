"""The axis order of an elementwise product."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from einsumx.ir.loops import natural_order
from einsumx.ir.traits import Traits
from einsumx.planner.array_calls import Sizes, span
from einsumx.planner.rules import Rules, rules_of
from einsumx.planner.terms import Labels, ResultUse, Term


class Lies(Protocol):
    """What the order of an elementwise product needs to know of an array with strides."""

    @property
    def labels(self) -> Labels: ...

    @property
    def memory(self) -> Labels: ...

    def merged(self, labels: Labels) -> int | None:
        """The stride of labels as one axis; 1 without any, None if they do not merge."""


class Orders(NamedTuple):
    """The axis orders in which an elementwise product may be computed.

    Attributes:
        lhs, rhs: the operands.
        orders: each order, and the run of labels at its end that is contiguous in each operand that has its labels.
        natural: the order in which the operands lie, if another one is requested, which is then the first.
    """

    lhs: Lies
    rhs: Lies
    orders: tuple[tuple[Labels, Labels], ...]
    natural: tuple[Labels, Labels] | None = None

    @classmethod
    def of(cls, lhs: Lies, rhs: Lies, use: ResultUse) -> Orders:
        """The orders for two operands.

        If one operand has all labels, its memory order; otherwise the one that is requested, or that of both operands:
        in any other, frameworks would have to be told to write the result.
        """
        shared = tuple([label for label in lhs.memory if label in rhs.labels])
        rows = tuple([label for label in lhs.memory if label not in shared])
        cols = tuple([label for label in rhs.memory if label not in shared])
        if not cols:
            return cls(lhs, rhs, ((lhs.memory, ()),))
        if not rows:
            return cls(lhs, rhs, ((rhs.memory, ()),))
        orders = [(*shared, *rows, *cols), (*shared, *cols, *rows), (*rows, *cols, *shared), (*cols, *rows, *shared)]
        target, natural = use.target(orders[0]), None
        if target is not None:
            orders.insert(0, target)
            order = tuple(natural_order([lhs.memory, rhs.memory], target)[0])
            natural = order, _run_of(lhs, rhs, order)
        return cls(lhs, rhs, tuple([(order, _run_of(lhs, rhs, order)) for order in orders]), natural)

    def fastest(self, sizes: Sizes, rules: Rules) -> tuple[Labels, tuple[str, str]]:
        """The order with the longest run, and why each operand is copied into that order, or "".

        Copies of operands that are much smaller than the result pay if they make its runs longer.
        """
        if len(self.orders) == 1:
            return self.orders[0][0], IN_PLACE

        orders = [order for order, _ in self.orders]
        runs = [min(span(run, sizes), _LONG_RUN) for _, run in self.orders]
        if self.natural is not None and runs[0] < max(runs):
            orders.insert(1, self.natural[0])
            runs.insert(1, min(span(self.natural[1], sizes), _LONG_RUN))
        longest = max(runs)
        order, copies = orders[runs.index(longest)], IN_PLACE
        overhead = span(order, sizes) * rules.rates.run  # of runs of one element
        least = overhead / longest
        # The next step may want another order of an inner result, and GPUs have no runs.
        if self.natural is not None and rules.traits.strided and rules.rates.tile == 1 and least > rules.rates.call:
            arrays = self.lhs, self.rhs
            for other in orders:
                reasons, run = _copies(*arrays, other)
                copied = [
                    rules.model.copy(span(array.labels, sizes)) for array, reason in zip(arrays, reasons) if reason
                ]
                seconds = sum(copied) + overhead / min(span(run, sizes), _LONG_RUN)
                if seconds < least:
                    order, copies, least = other, reasons, seconds
        return order, copies


IN_PLACE = "", ""
"""No operand is copied."""

_SHORT_RUNS = "its rows in memory are short, and a product of short rows takes longer than the copy"

_LONG_RUN = 256
"""Runs of more elements make a product no faster."""


def _copies(lhs: Lies, rhs: Lies, order: Labels) -> tuple[tuple[str, str], Labels]:
    """Why each operand is copied so that all innermost axes that it has are a run, and that run."""
    arrays = lhs, rhs
    owners = [[label in array.labels for array in arrays] for label in order]
    count = next((place for place, each in enumerate(owners[::-1]) if each != owners[-1]), len(order))
    run = order[-count:]
    is_copied = [is_owner and array.merged(run) != 1 for array, is_owner in zip(arrays, owners[-1])]
    return (_SHORT_RUNS * is_copied[0], _SHORT_RUNS * is_copied[1]), run


def _run_of(lhs: Lies, rhs: Lies, order: Labels) -> Labels:
    """The run at the end of ``order`` that is contiguous in each operand that has its labels."""
    run: Labels = ()
    for label in reversed(order):
        longer = (label, *run)
        for array in (lhs, rhs):
            own = [other for other in longer if other in array.labels]
            if own and (len(own) < len(longer) or array.merged(longer) != 1):
                return run
        run = longer
    return run


def product_order(lhs: Term, rhs: Term, use: ResultUse, traits: Traits, dtype: str) -> tuple[Labels, tuple[str, str]]:
    """The axis order of an elementwise product, and why each operand is copied into that order, or ""."""
    return Orders.of(lhs, rhs, use).fastest(lhs.sizes, rules_of(traits, dtype))
