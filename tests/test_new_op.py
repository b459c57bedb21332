"""An elementwise op is one class and one primitive: it then prints, costs, draws, becomes code, and runs."""

import inspect
import types
from dataclasses import is_dataclass, replace

import numpy as np
import pytest

import einsumx
from einsumx.adapters.base import Adapter, Primitives
from einsumx.algebra.scaled import SCALED
from einsumx.algebra.semiring import SemiringAlgebra
from einsumx.backends.array_api.adapter import ArrayApiAdapter
from einsumx.backends.numpy.source import PublicNumpy
from einsumx.blocked.estimate import axis_labels
from einsumx.ir import ops
from einsumx.ir.algebra import PLUS_TIMES
from einsumx.ir.cost import program_cost, program_seconds
from einsumx.ir.records import record
from einsumx.ir.text import brief_text, plan_text
from einsumx.render.source import plan_source
from einsumx.render.timeline import plan_timeline
from einsumx.runtime.execute import run_of


@record
class Negative(ops.Elementwise):
    """The elements with the other sign."""

    functions = ("negative",)

    out: int
    src: int


class Negating(PublicNumpy):
    def negative(self, array):
        return self.xp.negative(array)

    def public_class(self):
        return type(self)

    kernel = Adapter.kernel


def negated(equation, *shapes, **options):
    """The program of a contraction whose result is negated."""
    program = einsumx.plan(equation, *shapes, dtypes="float32", **options)
    return replace(program, ops=(*program.ops, Negative(program.result + 1, program.result)), result=program.result + 1)


PROGRAM = negated("ij,kj->ik", (2, 3), (4, 3))


def test_it_prints_with_its_cost():
    text = plan_text(PROGRAM, program_cost(PROGRAM, None))
    assert "%4 = negative %3" in text
    assert "8 multiply-adds\n  result %4" in text
    assert brief_text(PROGRAM) == "negative(0*1)"
    assert PROGRAM.ops[-1].fields == {"out": 4, "src": 3}
    assert program_seconds(PROGRAM, Negating().cpu) > program_seconds(
        replace(PROGRAM, ops=PROGRAM.ops[:-1], result=3), Negating().cpu
    )


def test_it_has_a_row_in_the_picture_with_the_labels_of_its_axes():
    row = plan_timeline(PROGRAM, None).rows[-2]
    assert (row.symbol, row.call, row.axes) == ("work", "%4 = negative %3", "i=2 k=4")
    assert axis_labels(PROGRAM, ((0, 1), (2, 1)), (0, 2), (2, 3, 4))[4] == ((0,), (2,))


@pytest.mark.parametrize(
    ("algebra", "function"),
    [
        (PLUS_TIMES, lambda array: array),
        (SCALED, lambda pair: np.ldexp(*pair)),
        (SemiringAlgebra("max-plus", "maximum", "add"), lambda array: array),
    ],
    ids=["plus and times", "exponents", "semiring"],
)
def test_it_runs_in_every_algebra(algebra, function):
    array = np.arange(6, dtype="float32").reshape(2, 3)
    program = negated("ij->ji", (2, 3))
    program = replace(program, contraction=replace(program.contraction, algebra=algebra))
    assert np.array_equal(function(run_of(program, Negating())(array)), -array.T)


def test_it_becomes_code():
    code = plan_source(PROGRAM, Negating())
    names = {}
    exec(code, names)
    lhs, rhs = np.arange(6, dtype="float32").reshape(2, 3), np.arange(12, dtype="float32").reshape(4, 3)
    assert "np.negative(" in code
    assert np.array_equal(names["contraction"](lhs, rhs), -(lhs @ rhs.T))


def test_a_library_of_the_standard_that_lacks_its_function_is_named():
    with pytest.raises(einsumx.BackendError, match="small has no function 'negative' of the array API standard"):
        ArrayApiAdapter(types.SimpleNamespace(__name__="small")).kernel(Negative(1, 0), [(2, 3)], "float32")


def test_each_op_names_its_primitive_and_what_that_takes_after_the_arrays():
    classes = [each for each in vars(ops).values() if is_dataclass(each) and each is not ops.First]  # an index
    assert {each.name for each in classes} == {name for name in vars(Primitives) if not name.startswith("_")}
    for each in classes:
        taken = list(inspect.signature(getattr(Primitives, each.name)).parameters)[1:]
        assert taken[len(taken) - len(each.parameters) :] == list(each.parameters)
