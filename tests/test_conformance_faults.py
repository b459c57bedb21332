"""The conformance suite finds faults that are planted in adapters, and says by its features what they are."""

from functools import cache
from importlib.util import find_spec

import pytest
from planted_faults import FAULTLESS, FAULTS, Numpy

import einsumx
from einsumx.adapters import registry
from einsumx.conformance.case import as_expression
from einsumx.conformance.subject import backend_subject
from einsumx.conformance.suite import cases, run

pytestmark = pytest.mark.long

MODULES = {"array_api": "array_api_strict"}


@cache
def quick_cases():
    return cases("quick", random=0)


def of_feature(name, pattern="*"):
    return [case for case in quick_cases() if case.feature == name and as_expression(pattern).match(case.id)]


@pytest.fixture
def failures(monkeypatch):
    """What cases say of einsumx on an adapter in the place of its framework's own, one after the other."""

    def found(adapter, selected):
        monkeypatch.setattr(registry, "_registered", {})
        einsumx.register(adapter())
        assert selected
        return (outcome for outcome in run(backend_subject(adapter.name), selected) if outcome.status == "fail")

    yield found
    monkeypatch.undo()
    registry.forget()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_found_by_the_feature_that_it_breaks_and_nothing_without_it(fault, failures):
    adapter = fault.adapter
    if not find_spec(MODULES.get(adapter.name, adapter.name)):
        pytest.skip(f"{adapter.name} is not installed")
    selected = of_feature(fault.feature, fault.cases)
    found = next((outcome for outcome in failures(adapter, selected) if fault.says in outcome.message), None)
    assert found
    faultless = next(kind for kind in adapter.__mro__ if kind in FAULTLESS)
    assert not list(failures(faultless, [case for case in selected if case.id == found.case]))


def test_there_are_at_least_twenty_faults_and_each_has_a_name_of_its_own():
    assert len({str(fault) for fault in FAULTS}) == len(FAULTS) >= 20


def test_the_planted_adapters_run_their_primitives(monkeypatch, failures):
    called = []
    monkeypatch.setattr(Numpy, "matmul", lambda *arguments: called.append(arguments) or arguments[1] @ arguments[2])
    assert not list(failures(Numpy, of_feature("order of writing")))
    assert called
