"""The source of plans, run where einsumx cannot be imported, keeps the promises that are made for einsum."""

import pytest

from einsumx.adapters.base import Adapter
from einsumx.conformance.case import as_expression
from einsumx.conformance.subject import backend_subject, callable_subject, installed_backends
from einsumx.conformance.suite import cases, run
from einsumx.ir.ops import Matmul, Multiply, Native, Sum

EVERY = (
    *("forms", "sublists", "ellipsis", "implicit output", "diagonals", "hyperedges", "broadcasting", "zero sizes"),
    *("no axes", "larger sizes", "large rank", "layouts", "aliasing", "views", "order of writing"),
    *("dtype", "promotion", "casting", "bool", "integers", "half precision", "accuracy", "inf and nan"),
)
SOME = ("bool", "promotion", "half precision/ij,jk->ik (2,4096)")
"""Where each call of a function is compiled for itself."""

DERIVED = {
    "torch": ("gradients", "second order", "vmap"),
    "jax": ("gradients", "second order", "vmap"),
    "mxnet": ("gradients",),
}
"""What frameworks do with code, of which JAX compiles each call; of it, some cases do."""

SELECTED = {name: SOME if name == "jax" else EVERY for name in installed_backends()}
PROBLEMS = {name: 1 if name == "jax" else 4 for name in SELECTED}
STEPS = {name: {"numpy": 2, "jax": 1}.get(name, 5) for name in SELECTED}
"""Of how many cases one is judged."""

CASES = {case.id: case for case in cases("quick", random=0)}


def some(pattern):
    """The cases whose ids match a pattern."""
    return [case for name, case in CASES.items() if as_expression(pattern).match(name)]


def faults(backend, selected):
    """What is wrong with the source's results, but for what is known of the framework."""
    subject = callable_subject("source_einsum:einsum", backend)
    known = backend_subject(backend).deviations
    outcomes = [
        (case, outcome)
        for case in selected
        if not any(listed.matches(case.id) for listed in known)
        for outcome in run(subject, [case])
    ]
    if all(outcome.status == "inapplicable" for _, outcome in outcomes):
        pytest.skip(outcomes[0][1].message)
    return [(case.id, outcome.message, outcome.reproducer) for case, outcome in outcomes if outcome.status == "fail"]


@pytest.mark.parametrize(("backend", "promise"), [(name, each) for name in SELECTED for each in SELECTED[name]])
def test_the_source_keeps_the_promises_of_einsum(backend, promise):
    assert not faults(backend, some(f"{promise}*")[:: STEPS[backend]])


@pytest.mark.parametrize("backend", SELECTED)
def test_the_source_is_right_for_random_problems(backend):
    assert not faults(backend, cases("quick", "random/*", random=PROBLEMS[backend]))


def has_elements(case):
    """Whether no operand is empty: MXNet leaves the gradients of what it computes of such as they were in memory."""
    return all(0 not in operand.shape for operand in case.operands)


@pytest.mark.parametrize(("backend", "feature"), [(name, each) for name in SELECTED for each in DERIVED.get(name, ())])
def test_the_source_is_differentiated_and_mapped_as_any_code(backend, feature):
    selected = some(f"{feature}/*")[:: 12 if backend == "jax" else 3]
    assert not faults(backend, filter(has_elements, selected) if backend == "mxnet" else selected)


FAULTS = {
    "sum": (Sum, "larger sizes/ij->i *"),
    "multiply": (Multiply, "larger sizes/ij,ij->ij *"),
    "product": (Matmul | Native, "larger sizes/ij,jk->ik *"),
}


@pytest.mark.parametrize("backend", SELECTED)
@pytest.mark.parametrize("faulty", FAULTS)
def test_a_source_with_a_fault_is_noticed(backend, faulty, monkeypatch):
    """Results of one kind of op are twice what they should be."""
    kind, pattern = FAULTS[faulty]
    kernel = Adapter.kernel

    def planted(self, op, shapes, dtype):
        recorded = kernel(self, op, shapes, dtype)
        return (lambda *arrays: recorded(*arrays) * 2) if isinstance(op, kind) else recorded

    monkeypatch.setattr(Adapter, "kernel", planted)
    assert faults(backend, some(pattern))
