"""Arrays of Python objects: the same values and types with and without a memory limit, and errors of their own."""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import reduce
from itertools import product
from operator import mul

import numpy as np
import pytest
from stored import smallest

import einsumx

NUMBERS = {
    "int": lambda number: 10**20 + number,
    "Fraction": lambda number: Fraction(number, 7),
    "Decimal": lambda number: Decimal(number) / 4,
    "float": float,
    "complex": lambda number: complex(number, 1),
    "float32": np.float32,
    "bool": bool,
}

EQUATIONS = {
    "i->": [(6,)],
    "i->i": [(6,)],
    "ij->j": [(4, 3)],
    "ij->ji": [(4, 3)],
    "ii->": [(4, 4)],
    "i,i->": [(6,), (6,)],
    "i,j->ij": [(4,), (3,)],
    "ij,jk->ik": [(3, 4), (4, 2)],
    "bij,bjk->bik": [(2, 3, 4), (2, 4, 2)],
    "bij,jk->bik": [(2, 3, 4), (4, 2)],
    "ij,jk,kl->": [(3, 4), (4, 2), (2, 3)],
    ",->": [(), ()],
    "->": [()],
}


def objects(make, shape, start=1):
    found = np.empty(shape, object)
    for number, place in enumerate(np.ndindex(shape), start):
        found[place] = make(number % 5)
    return found


def plain_sum(equation, arrays):
    """The plain sum in Python, of whatever the objects are."""
    inputs, output = equation.split("->")
    terms = inputs.split(",")
    sizes = {label: size for term, array in zip(terms, arrays) for label, size in zip(term, array.shape)}
    found = np.empty([sizes[label] for label in output], object)
    labels = sorted(sizes)
    for place in np.ndindex(*(sizes[label] for label in labels)):
        at = dict(zip(labels, place))
        factors = [array[tuple(at[label] for label in term)] for term, array in zip(terms, arrays)]
        term = reduce(mul, factors)
        where = tuple(at[label] for label in output)
        found[where] = term if found[where] is None else found[where] + term
    return found


@pytest.mark.parametrize(
    ("kind", "equation"),
    [*product(["Fraction"], EQUATIONS), *product(NUMBERS, ["i,i->", "ij,jk->ik", "->"])],
)
def test_a_memory_limit_changes_neither_values_nor_types(kind, equation):
    arrays = [objects(NUMBERS[kind], shape, start) for start, shape in enumerate(EQUATIONS[equation], 1)]
    expected = plain_sum(equation, arrays)

    def call(limit):
        return einsumx.einsum(equation, *arrays, memory_limit=limit)

    results = [call(None), call("1MB"), call(smallest(call))]
    with np.errstate(all="ignore"):
        for result in results:
            if not expected.shape:
                assert not isinstance(result, np.ndarray)
                assert (type(result), result) == (type(expected[()]), expected[()])
            else:
                assert result.dtype == object
                assert result.tolist() == expected.tolist()
                assert list(map(type, result.flat)) == list(map(type, expected.flat))


def test_out_under_a_memory_limit_gets_the_objects():
    array = objects(lambda number: Fraction(number, 7), (4, 3))
    out = np.zeros(3, object)
    einsumx.einsum("ij->j", array, out=out, memory_limit=300)
    assert out.tolist() == plain_sum("ij->j", [array]).tolist()
    out = np.zeros((), object)
    einsumx.einsum("ij->", array, out=out)
    assert out[()] == plain_sum("ij->", [array])[()]


@pytest.mark.parametrize("equation", ["i,i->", "i,j->ij", "ij,jk->ik", "bij,bjk->bik"])
@pytest.mark.parametrize("other", ["longdouble", "str"])
def test_objects_without_a_product_raise_their_own_error(equation, other):
    """numpy.matmul goes on after an error, and then has a SystemError."""
    first, *others = EQUATIONS[equation]
    make = (lambda number: "text") if other == "str" else np.dtype(other).type
    arrays = [objects(lambda number: Fraction(number, 7), first), *(objects(make, shape) for shape in others)]
    for limit in (None, "1MB"):
        with pytest.raises(TypeError, match=r"unsupported operand|can't multiply"):
            einsumx.einsum(equation, *arrays, memory_limit=limit)


def test_the_error_of_an_object_is_the_one_that_comes():
    class Refusing:
        def __mul__(self, other):
            raise ZeroDivisionError("mine")

        __rmul__ = __mul__

    arrays = [objects(lambda number: Refusing(), (3, 2, 2)), objects(int, (3, 2, 2))]
    out = np.zeros((3, 2, 2), object)
    with pytest.raises(ZeroDivisionError, match="mine"):
        einsumx.einsum("bij,bjk->bik", *arrays, out=out)
    assert not out.any()


@pytest.mark.parametrize("infinity", [np.longdouble("inf"), complex("inf")], ids=repr)
@pytest.mark.parametrize("limit", [None, "1MB"])
@pytest.mark.parametrize("equation", ["i,i->i", "i,j->ij", "ij,jk->ik", "i->"])
def test_infinities_among_objects_raise_no_warnings(equation, limit, infinity):
    first, *others = equation.split("->")[0].split(",")
    infinities = objects(lambda number: (infinity, -infinity)[number % 2], (2,) * len(first))
    zeros = [np.zeros((2,) * len(term), object) for term in others]
    with np.errstate(all="raise"):
        result = einsumx.einsum(equation, infinities, *zeros, memory_limit=limit)
    assert all(number != number for number in np.ravel(np.asarray(result, object)))


def test_objects_find_the_context_of_the_caller():
    third = objects(lambda number: Decimal(1) / 3, (2,))
    with localcontext() as context:
        context.prec = 5
        assert str(einsumx.einsum("i,i->i", third, third)[0]) == "0.11111"


def test_an_object_is_added_to_a_sum_under_a_limit():
    fractions = objects(NUMBERS["Fraction"], (3, 2))
    found = einsumx.addeinsum(np.array(1, object), "ij->", fractions, alpha=3, memory_limit="1 MB")
    assert found == 1 + 3 * fractions.sum()
