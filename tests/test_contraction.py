"""Each field of a Contraction reaches all that identifies one: cache, JSON, wisdom, journal, and retargeting."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest

import einsumx
from einsumx import Plan
from einsumx.adapters.registry import get_backend
from einsumx.blocked.journal import _identity
from einsumx.ir.contraction import Contraction, Place
from einsumx.ir.operand import Operand
from einsumx.ir.records import record
from einsumx.measuring.calibration import place_of
from einsumx.measuring.findings import key_of
from einsumx.plans import as_plan
from einsumx.runtime import prepare
from einsumx.runtime.front import moved
from einsumx.runtime.request import CommonKeywords, Request, fields_of
from einsumx.semirings import max_plus

NUMPY = get_backend("numpy")
SHAPES = (40, 50), (50, 60), (60, 40)


def contraction(equation="ij,jk,kl->il", **keywords):
    return einsumx.plan(equation, *SHAPES, dtypes="float32", optimize=((0, 1), (0, 1)), **keywords).contraction


BASE = contraction()

OTHERS = {
    "equation": contraction("ij,jk,kl->li").equation,
    "operands": (Operand((40, 50), "int16", (1, 40)), *BASE.operands[1:]),
    "dtype": "float64",
    "path": ((1, 2), (0, 1)),
    "place": Place("numpy", "cpu", NUMPY.traits("cpu")),
    "accumulate": "float64",
    "algebra": max_plus.algebra,
    "conjugated": (1,),
}
"""For each field, another value than that of ``BASE``."""


def changed(name):
    place = {"place": place_of(max_plus.algebra, NUMPY, "")} if name == "algebra" else {}
    return replace(BASE, **{name: OTHERS[name]}, **place)


def test_there_is_another_value_of_each_field():
    assert [each.name for each in fields(Contraction)] == list(OTHERS)
    assert all(changed(name) != BASE for name in OTHERS)


@pytest.mark.parametrize("name", OTHERS)
def test_another_value_is_another_entry_of_the_cache_of_plans(name):
    einsumx.cache_clear()
    for asked in (BASE, changed(name), replace(BASE), changed(name)):
        program = prepare.by_contraction(asked, NUMPY).program
        assert getattr(program.contraction, name) == getattr(asked, name)
    assert einsumx.cache_info()["plans"][:2] == (2, 2)


@pytest.mark.parametrize("name", OTHERS)
def test_another_value_is_in_the_repr(name):
    assert repr(changed(name)) != repr(BASE)


@pytest.mark.parametrize("name", OTHERS)
def test_a_stored_plan_keeps_the_value(name):
    plan, usual = (as_plan(prepare.planned(asked)) for asked in (changed(name), BASE))
    assert without_ops(plan) != without_ops(usual)
    assert Plan.from_json(plan.to_json()).contraction == plan.contraction


def without_ops(plan):
    return {name: value for name, value in json.loads(plan.to_json()).items() if name != "ops"}


@pytest.mark.parametrize("name", sorted(OTHERS.keys() - {"place"}))  # findings are kept by place
def test_another_value_has_another_key_in_the_wisdom(name):
    assert key_of(changed(name), False) != key_of(BASE, False)
    assert (key_of(changed(name), True) == key_of(BASE, True)) is (name == "path")


@pytest.mark.parametrize("name", sorted(OTHERS.keys() - {"path", "place"}))  # which may be others when a run is resumed
def test_another_value_is_another_contraction_for_a_journal(name):
    assert identity(changed(name)) != identity(BASE)


def identity(asked):
    """What identifies a contraction in a journal."""
    limited = einsumx.plan("ij,jk,kl->il", *SHAPES, dtypes="float32", memory_limit=10_000)
    return _identity(replace(limited, contraction=asked))


@pytest.mark.parametrize("name", sorted(OTHERS.keys() - {"place"}))
def test_the_contraction_in_another_place_keeps_the_value(name):
    asked = changed(name)
    there = moved(asked, get_backend("torch"), "cpu", asked.operands)
    assert replace(there, place=asked.place) == asked


@record
class Wider(Contraction):
    """A contraction with one more field, which nothing knows."""

    turned: tuple[int, ...] = ()


def test_a_new_field_reaches_keys_identities_and_other_places():
    values = {each.name: getattr(BASE, each.name) for each in fields(BASE)}
    usual, turned = Wider(**values), Wider(**values, turned=(1,))
    assert usual != turned
    assert hash(usual) != hash(turned)
    assert repr(usual) != repr(turned)
    assert key_of(usual, True) == key_of(BASE, True) != key_of(turned, True)
    assert identity(usual) == identity(BASE) != identity(turned)
    assert moved(turned, get_backend("torch"), "").turned == (1,)


# -- the keywords of a call ------------------------------------------------------------------------------------------


def test_each_keyword_of_all_functions_is_a_field_of_a_request_with_a_default():
    assert CommonKeywords.__annotations__.keys() <= {each.name for each in fields(Request)}
    usual = Request("", (), **fields_of("einsum", {}, CommonKeywords))
    assert usual.keywords() == {}


@pytest.mark.parametrize("pair", [([(1, 0)], [(True, False)]), (((0, 1),), ((0.0, 1.0),)), ([0], (0,))])
def test_lists_and_tuples_of_equal_items_are_other_keywords(pair):
    a = np.ones((2, 2))
    outcomes = []
    for optimize in (*pair, *pair):
        try:
            outcomes.append(float(einsumx.einsum("ij,jk->ik", a, a, optimize=optimize)[0, 0]))
        except einsumx.PathError as error:
            outcomes.append(str(error))
    assert outcomes[:2] == outcomes[2:]
