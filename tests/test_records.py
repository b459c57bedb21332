"""``record``, which makes the immutable values of plans."""

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from einsumx.adapters.rates import Rates
from einsumx.adapters.traits import Traits
from einsumx.ir.program import Operand


def test_values_are_given_by_position_and_by_name_and_have_defaults():
    assert Operand((2,), "int8") == Operand(dtype="int8", shape=(2,)) == Operand((2,), "int8", None, weak=False)
    assert Traits().rates == Rates()
    assert [each.name for each in fields(Operand)] == ["shape", "dtype", "strides", "weak", "stored"]
    assert replace(Operand((2,), "int8"), dtype="bool") == Operand((2,), "bool")


@pytest.mark.parametrize(
    ("values", "named", "message"),
    [
        (((2,),), {}, "Operand needs dtype="),
        (((2,), "int8"), {"size": 3}, "Operand has no size="),
        (((2,), "int8"), {"dtype": "bool"}, "Operand has dtype= twice"),
        (range(6), {}, "Operand takes 5 values, not 6"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_it(values, named, message):
    with pytest.raises(TypeError, match=f"^{message}$"):
        Operand(*values, **named)


def test_a_record_does_not_change_and_survives_copies():
    operand = Operand((2,), "int8")
    with pytest.raises(FrozenInstanceError):
        operand.dtype = "bool"
    with pytest.raises(FrozenInstanceError):
        del operand.dtype
    for other in (copy.deepcopy(operand), pickle.loads(pickle.dumps(operand))):
        assert other == operand
        assert hash(other) == hash(operand)
    assert operand != ((2,), "int8", None, False, None)
