"""The source of plans, run where einsumx cannot be imported, keeps the promises that are made for einsum."""

import pytest

from einsumx.conformance.deviations import deviations_of
from einsumx.conformance.subject import backend_subject, callable_subject, installed_backends
from einsumx.conformance.suite import cases, run

EVERY = (
    *("forms", "sublists", "ellipsis", "implicit output", "diagonals", "hyperedges", "broadcasting", "zero sizes"),
    *("no axes", "larger sizes", "large rank", "layouts", "aliasing", "views", "order of writing"),
    *("dtype", "promotion", "casting", "bool", "integers", "half precision", "accuracy", "inf and nan"),
)
SOME = ("bool", "promotion", "half precision/ij,jk->ik (2,4096)")
"""Where each call of a function is compiled for itself."""

SELECTED = {name: SOME if name == "jax" else EVERY for name in installed_backends()}
PROBLEMS = {name: 1 if name == "jax" else 8 for name in SELECTED}


def faults(backend, selected):
    """What is wrong with the source's results, but for what is known of the framework."""
    subject = callable_subject("source_einsum:einsum", backend)
    known = deviations_of(backend_subject(backend))
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
    assert not faults(backend, cases("quick", f"{promise}*", random=0))


@pytest.mark.parametrize("backend", SELECTED)
def test_the_source_is_right_for_random_problems(backend):
    assert not faults(backend, cases("quick", "random/*", random=PROBLEMS[backend]))


@pytest.mark.parametrize("feature", ["gradients", "second order", "vmap"])
def test_the_source_is_differentiated_and_mapped_as_any_code(feature):
    pytest.importorskip("torch")
    assert not faults("torch", cases("quick", f"{feature}/*", random=0))
