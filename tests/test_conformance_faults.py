"""The conformance suite finds faults that are planted in adapters, and says by its features what they are."""

from importlib.util import find_spec

import pytest
from planted_faults import FAULTLESS, FAULTS, Numpy

import einsumx
from einsumx.adapters import registry
from einsumx.conformance.subject import backend_subject
from einsumx.conformance.suite import cases, run

MODULES = {"array_api": "array_api_strict"}


def is_installed(adapter):
    return find_spec(MODULES.get(adapter.name, adapter.name)) is not None


def failures(adapter, feature, monkeypatch):
    """What the quick cases of a feature say of einsumx on an adapter in the place of its framework's own."""
    monkeypatch.setattr(registry, "_registered", {})
    try:
        einsumx.register(adapter())
        selected = [case for case in cases("quick", random=0) if case.feature == feature]
        assert selected
        return [outcome for outcome in run(backend_subject(adapter.name), selected) if outcome.status == "fail"]
    finally:
        monkeypatch.undo()
        registry.forget()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_found_by_the_feature_that_it_breaks(fault, monkeypatch):
    if not is_installed(fault.adapter):
        pytest.skip(f"{fault.adapter.name} is not installed")
    found = failures(fault.adapter, fault.feature, monkeypatch)
    assert found
    assert any(fault.says in outcome.message for outcome in found)


@pytest.mark.parametrize("adapter", FAULTLESS, ids=lambda adapter: adapter.name)
def test_nothing_is_found_where_no_fault_is_planted(adapter, monkeypatch):
    if not is_installed(adapter):
        pytest.skip(f"{adapter.name} is not installed")
    for feature in dict.fromkeys(fault.feature for fault in FAULTS if issubclass(fault.adapter, adapter)):
        assert not failures(adapter, feature, monkeypatch), feature


def test_there_are_at_least_twenty_faults_and_each_has_a_name_of_its_own():
    assert len({str(fault) for fault in FAULTS}) == len(FAULTS) >= 20


def test_the_planted_adapters_run_their_primitives(monkeypatch):
    called = []
    monkeypatch.setattr(Numpy, "matmul", lambda *arguments: called.append(arguments) or arguments[1] @ arguments[2])
    assert not failures(Numpy, "order of writing", pytest.MonkeyPatch())
    assert called
