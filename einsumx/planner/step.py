"""A step of a network, lowered once for all steps that differ from it only in the names and sizes of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from einsumx.ir.layout import Pattern, pattern_strides
from einsumx.ir.simplify import simplify
from einsumx.planner.builder import Builder, Labels, Term
from einsumx.planner.matmul import ResultUse
from einsumx.planner.pairwise import contract
from einsumx.planner.short import ShortPair, short_ops
from einsumx.planner.template import Elements, Template, Templates, known, stand_ins

__all__ = ["contract_step"]

Packed: TypeAlias = tuple[int, Labels]
"""The slot of a C-contiguous value, and the labels of its axes."""


def contract_step(builder: Builder, lhs: Term, rhs: Term, keep: frozenset[int], dtype: str, use: ResultUse) -> Term:
    """Contract two terms as :func:`~einsumx.planner.pairwise.contract` does, from a template if there is one."""
    first, second = builder.pattern(lhs), builder.pattern(rhs)
    if first is None or second is None:
        return contract(builder, lhs, rhs, keep, dtype, use)
    layouts = first, second
    labels = tuple(dict.fromkeys(lhs.labels + rhs.labels))
    numbers = {label: number for number, label in enumerate(labels)}
    terms = _numbered(lhs.labels, numbers), _numbered(rhs.labels, numbers)
    ones = tuple([builder.sizes[label] == 1 for label in labels])
    kept = frozenset([numbers[label] for label in labels if label in keep])
    use = ResultUse(
        None if use.order is None else _numbered(use.order, numbers),
        _numbered(use.contracted, numbers),
        _numbered(use.batch, numbers),
    )
    templates: Templates[Packed] = known((builder.traits, dtype, terms, layouts, ones, kept, use))

    def fitting(elements: Elements) -> Template[Packed] | None:
        return templates.fitting(tuple([elements.sizes[label] for label in labels]))

    template = fitting(builder.elements)
    if template is None:
        sizes = tuple([builder.elements.sizes[label] for label in labels])
        sub = Builder(stand_ins(ones), builder.traits, 2, Elements(sizes))
        template = _drafted(sub, terms, layouts, kept, dtype, use)
        templates.add(template, sizes)
    builder.record(fitting, template)
    names = {0: lhs.slot, 1: rhs.slot}
    builder.splice(template, names, labels)
    slot, order = template.result
    return builder.packed(names[slot], tuple([labels[number] for number in order]))


def _drafted(
    builder: Builder,
    labels: tuple[Labels, Labels],
    layouts: tuple[Pattern, Pattern],
    keep: frozenset[int],
    dtype: str,
    use: ResultUse,
) -> Template[Packed]:
    """The template of a step, from an empty builder."""
    kept = tuple([label for label in range(len(builder.sizes)) if label in keep])
    if 1 not in builder.sizes:
        pair = ShortPair(*labels, *layouts, use.target(kept) or kept)
        short = short_ops(pair, builder.size, builder.traits, dtype, builder.decide)
        if short is not None:
            calls, order = short
            return Template.drafted(calls, builder.spans(), (1 + len(calls), order), builder.decisions)
    lhs, rhs = (_stood_in(builder, slot, *each) for slot, each in enumerate(zip(labels, layouts)))
    result = contract(builder, lhs, rhs, keep, dtype, use)
    simplified, slot = simplify(builder.ops, [builder.shape(each) for each in labels], result.slot)
    return Template.drafted(simplified, builder.spans(), (slot, result.labels), builder.decisions)


def _stood_in(builder: Builder, slot: int, labels: Labels, layout: Pattern) -> Term:
    strides = pattern_strides(layout, builder.shape(labels))
    return builder.packed(slot, labels) if strides is None else Term(slot, labels, strides)


def _numbered(labels: Sequence[int], numbers: Mapping[int, int]) -> Labels:
    """The numbers of the labels that have one."""
    return tuple([numbers[label] for label in labels if label in numbers])
