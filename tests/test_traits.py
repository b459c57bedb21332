"""Traits: what adapters declare, and that a field of them is no name of a library in disguise."""

import dataclasses

import pytest

import einsumx
from einsumx.adapters.registry import BUILTIN, get_backend
from einsumx.backends.array_api import NamedLibrary

DEVICES = ("", "cpu", "cuda", "xpu")


def library(adapter):
    """Whose traits an adapter has: libraries of the array API's standard share them."""
    return "array_api" if isinstance(adapter, NamedLibrary) else adapter.name


def libraries_that_set(traits_of, name):
    """The libraries that declare another value of a field than its default, on any device."""
    default = getattr(einsumx.Traits(), name)
    return {owner for owner, traits in traits_of if getattr(traits, name) != default}


ALL_TRAITS = [(library(adapter), adapter.traits(device)) for adapter in map(get_backend, BUILTIN) for device in DEVICES]


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(einsumx.Traits)])
def test_two_libraries_at_least_set_each_trait(name):
    assert len(libraries_that_set(ALL_TRAITS, name)) > 1, "its backend overrides a method, or its kernels know"


def test_libraries_are_counted_by_the_values_they_declare():
    plain, one = einsumx.Traits(), einsumx.Traits(dots_by_sum=True)
    assert libraries_that_set([("a", plain), ("b", one), ("b", one)], "dots_by_sum") == {"b"}


def test_there_are_few_traits():
    assert len(dataclasses.fields(einsumx.Traits)) <= 24
