"""A step of a network, lowered once for all steps that differ from it only in the names and sizes of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from einsumx.ir.layout import Pattern, pattern_strides
from einsumx.ir.simplify import simplify
from einsumx.planner.builder import Builder, Labels, Term
from einsumx.planner.matmul import ResultUse
from einsumx.planner.pairwise import contract
from einsumx.planner.template import Elements, Template, known, stand_ins

__all__ = ["contract_step"]


def contract_step(builder: Builder, lhs: Term, rhs: Term, keep: frozenset[int], dtype: str, use: ResultUse) -> Term:
    """Contract two terms as :func:`~einsumx.planner.pairwise.contract` does, from a template if there is one."""
    layouts = builder.pattern(lhs), builder.pattern(rhs)
    if layouts[0] is None or layouts[1] is None:
        return contract(builder, lhs, rhs, keep, dtype, use)
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
    templates = known((builder.traits, dtype, terms, layouts, ones, kept, use))

    def sized(elements: Elements) -> Elements:
        return Elements([elements.sizes[label] for label in labels])

    elements = sized(builder.elements)
    template = templates.fitting(elements)
    if template is None:
        sub = Builder(stand_ins(ones), builder.traits, 2, elements)
        lhs0, rhs0 = (_stood_in(sub, slot, *each) for slot, each in enumerate(zip(terms, layouts)))
        result = contract(sub, lhs0, rhs0, kept, dtype, use)
        calls, slot = simplify(sub.ops, [sub.shape(terms[0]), sub.shape(terms[1])], result.slot)
        template = Template.drafted(calls, sub.spans(), (slot, result.labels), sub.decisions)
        templates.add(template)
    builder.record(lambda elements: templates.fitting(sized(elements)), template)
    slot, result_labels = template.result
    names = {0: lhs.slot, 1: rhs.slot}
    for op, spans in zip(template.ops, template.spans):
        names[op.out] = builder.splice(op, names, spans and [_named(span, labels) for span in spans])
    return builder.packed(names[slot], _named(result_labels, labels))


def _stood_in(builder: Builder, slot: int, labels: Labels, layout: Pattern) -> Term:
    strides = pattern_strides(layout, builder.shape(labels))
    return builder.packed(slot, labels) if strides is None else Term(slot, labels, strides)


def _numbered(labels: Sequence[int], numbers: Mapping[int, int]) -> Labels:
    """The numbers of the labels that have one."""
    return tuple([numbers[label] for label in labels if label in numbers])


def _named(numbers: Labels, labels: Labels) -> Labels:
    """The labels of some numbers."""
    return tuple([labels[number] for number in numbers])
