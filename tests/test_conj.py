"""``conj=``: which operands it conjugates, what it refuses, and which ops it adds to a plan."""

import json
import pickle
from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest

import einsumx
from einsumx import (
    EinsumxError,
    EquationError,
    Plan,
    addeinsum,
    einsum,
    einsum_frexp,
    expression,
    plan,
    semirings,
    tune,
)

RNG = np.random.default_rng(0)
PRODUCT, CHAIN = "ij,jk->ik", "ij,jk,kl->il"


def complexes(*shape, dtype="complex128"):
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)


a, b, c = complexes(30, 40), complexes(40, 20), complexes(20, 10)


def some_of(count):
    """All sets of positions."""
    return list(chain.from_iterable(combinations(range(count), number) for number in range(count + 1)))


def conjugated(conj, *arrays):
    return [array.conj() if place in conj else array for place, array in enumerate(arrays)]


def names(found):
    return [op.name for op in found.ops]


# -- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "conj", [0, -2, [0], (0,), {0}, frozenset([0]), range(1), np.int64(0), np.array([0])], ids=repr
)
def test_positions_are_an_integer_or_any_iterable_of_them(conj):
    for _ in range(2):
        np.testing.assert_allclose(einsum(PRODUCT, a, b, conj=conj), a.conj() @ b)


def test_an_iterator_is_read_in_each_call():
    for _ in range(2):
        np.testing.assert_allclose(einsum(PRODUCT, a, b, conj=iter([1])), a @ b.conj())
        np.testing.assert_allclose(einsum(PRODUCT, a, b, conj=(0 for _ in range(1))), a.conj() @ b)


class Positions:
    def __init__(self, *items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


def test_an_iterable_may_change_between_calls():
    conj = Positions(0)
    np.testing.assert_allclose(einsum(PRODUCT, a, b, conj=conj), a.conj() @ b)
    conj.items = (1,)
    np.testing.assert_allclose(einsum(PRODUCT, a, b, conj=conj), a @ b.conj())


@pytest.mark.parametrize("conj", [None, (), []])
def test_no_positions_are_the_default(conj):
    np.testing.assert_array_equal(einsum(PRODUCT, a, b, conj=conj), einsum(PRODUCT, a, b))
    assert plan(PRODUCT, a, b, conj=conj) == plan(PRODUCT, a, b)


@pytest.mark.parametrize(
    "pair",
    [(1, True), ((1,), (True,)), ([1], [True]), (frozenset([1]), frozenset([True])), ((1,), (1.0,)), (1, 1.0)],
    ids=repr,
)
def test_what_equals_a_position_but_is_no_integer_is_an_error_also_after_that_position(pair):
    position, other = pair
    for _ in range(2):
        np.testing.assert_allclose(einsum(PRODUCT, a, b, conj=position), a @ b.conj())
        with pytest.raises(EquationError, match="conj= must be the position of an operand"):
            einsum(PRODUCT, a, b, conj=other)


@pytest.mark.parametrize("conj", ["0", 0.5, (0, None), int, np.True_, np.array([True]), {"a": 1}], ids=repr)
def test_other_values_are_errors(conj):
    with pytest.raises(EquationError, match="conj= must be the position of an operand"):
        einsum(PRODUCT, a, b, conj=conj)


FUNCTIONS = {
    "einsum": lambda conj: einsum(PRODUCT, a, b, conj=conj),
    "einsum under a limit": lambda conj: einsum(PRODUCT, a, b, conj=conj, memory_limit="1 MB"),
    "out": lambda conj: einsum(PRODUCT, a, b, conj=conj, out=np.empty((30, 20), complex)),
    "plan": lambda conj: plan(PRODUCT, (30, 40), (40, 20), conj=conj),
    "plan under a limit": lambda conj: plan(PRODUCT, (30, 40), (40, 20), conj=conj, memory_limit="1 MB"),
    "expression": lambda conj: expression(PRODUCT, (30, 40), (40, 20), conj=conj)(a, b),
    "addeinsum": lambda conj: addeinsum(np.ones(20), PRODUCT, a, b, conj=conj),
    "einsum_frexp": lambda conj: einsum_frexp(PRODUCT, a, b, conj=conj),
    "tune": lambda conj: tune(PRODUCT, a, b, conj=conj, rounds=1),
    "max_plus": lambda conj: semirings.max_plus.einsum(PRODUCT, a.real, b.real, conj=conj),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("conj", "message"),
    [
        (2, "conj= has position 2, but the number of operands is 2"),
        ((0, -3), "conj= has position -3, but the number of operands is 2"),
        ((1, 1), "has operand 1 twice; the number of operands is 2"),
        ((0, -2), "has operand 0 twice; the number of operands is 2"),
        (True, "conj= must be the position of an operand"),
    ],
)
def test_positions_without_an_operand_and_those_that_occur_twice_are_errors_of_each_function(function, conj, message):
    for _ in range(2):
        with pytest.raises(EquationError, match=message):
            FUNCTIONS[function](conj)


# -- results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conj", some_of(3))
@pytest.mark.parametrize(
    "options", [{}, {"memory_limit": 12_000}, {"optimize": ((1, 2), (0, 1))}, {"dtype": "complex64"}]
)
def test_each_operand_of_a_path_is_conjugated_by_its_position(conj, options):
    expected = np.linalg.multi_dot(conjugated(conj, a, b, c))
    found = einsum(CHAIN, a, b, c, conj=conj, casting="same_kind", **options)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("equation", ["ij->ji", "ij->ij", "ij->j", "ij->", "ij->i"])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, lambda array: array[::2, ::-1]])
def test_a_single_operand_is_conjugated_in_any_layout_and_stays_as_it_is(equation, layout):
    array = layout(complexes(6, 5))
    before = array.copy()
    for options in ({}, {"memory_limit": "1 MB"}):
        found = einsum(equation, array, conj=0, **options)
        np.testing.assert_allclose(found, np.einsum(equation, array.conj()))
        assert not np.shares_memory(found, array)
    np.testing.assert_array_equal(array, before)


def test_each_function_conjugates():
    expected = a.conj() @ b
    np.testing.assert_allclose(addeinsum(np.ones(20), PRODUCT, a, b, conj=0, alpha=2j), 1 + 2j * expected)
    mantissa, exponent = einsum_frexp(PRODUCT, a, b, conj=0)
    np.testing.assert_allclose(mantissa * 2.0**exponent, expected)
    np.testing.assert_allclose(plan(PRODUCT, a, b, conj=0)(a, b), expected)
    np.testing.assert_allclose(plan(PRODUCT, a, b, conj=0, memory_limit=20_000)(a, b), expected)
    np.testing.assert_allclose(expression(PRODUCT, a.shape, b, conj=0)(a), expected)
    np.testing.assert_allclose(expression(PRODUCT, a, b.shape, conj=0)(b), expected)
    assert tune(PRODUCT, a, b, conj=0, rounds=1).plan.contraction.conjugated == (0,)


def test_conjugates_are_written_to_out_which_may_be_the_operand():
    out = np.empty((30, 20), complex)
    einsum(PRODUCT, a, b, conj=(0, 1), out=out)
    np.testing.assert_allclose(out, (a @ b).conj())
    square = complexes(5, 5)
    before = square.copy()
    einsum("ij->ji", square, conj=0, out=square)
    np.testing.assert_array_equal(square, before.conj().T)


def test_results_that_no_float_holds_are_conjugated_too():
    mantissa, exponent = einsum_frexp("i,i,i->", *[np.full(3, 1e200 * 1j)] * 3, conj=(0, 1))
    assert mantissa.real == 0
    assert np.log2(-mantissa.imag) + exponent == pytest.approx(np.log2(3) + 600 * np.log2(10))


def test_sums_in_a_wider_dtype_are_conjugated():
    narrow = a.astype("complex64"), b.astype("complex64")
    found = einsum(PRODUCT, *narrow, conj=1, accumulate="complex128")
    np.testing.assert_allclose(found, narrow[0] @ narrow[1].conj(), rtol=1e-5)
    assert found.dtype == "complex64"


def test_a_contraction_in_reals_does_not_see_the_imaginary_parts():
    found = plan(PRODUCT, a, b, conj=0, dtype="float64", casting="unsafe")
    assert "conjugate" not in names(found)
    with pytest.warns(getattr(np, "exceptions", np).ComplexWarning):
        np.testing.assert_allclose(found(a, b), a.real @ b.real)


def test_objects_are_conjugated_as_they_conjugate_themselves():
    values = np.array([1 + 2j, Fraction(1, 2), 3], object)
    assert list(einsum("i,i->i", values, values, conj=0)) == [5, Fraction(1, 4), 9]
    assert einsum("i,i->", values, values, conj=0) == 5 + Fraction(1, 4) + 9
    assert einsum("i,i->", values, values, conj=(0, 1)) == (-3 + 4j + 0.25 + 9).conjugate()


def test_real_elements_are_their_own_conjugates():
    einsumx.cache_clear()
    for arrays in ((a.real, b.real), (a.real.astype(int), b.real.astype(int))):
        assert plan(PRODUCT, *arrays, conj=(0, 1)) == plan(PRODUCT, *arrays)
    found = plan(PRODUCT, a.real, b, conj=(0, 1))
    assert found == plan(PRODUCT, a.real, b, conj=1)
    np.testing.assert_allclose(found(a.real, b), a.real @ b.conj())
    np.testing.assert_array_equal(
        semirings.max_plus.einsum(PRODUCT, a.real, b.real, conj=0), semirings.max_plus.einsum(PRODUCT, a.real, b.real)
    )
    np.testing.assert_array_equal(
        semirings.boolean.einsum(PRODUCT, a, b, conj=0), semirings.boolean.einsum(PRODUCT, a, b)
    )


@pytest.mark.long
def test_dask_arrays_have_no_such_keyword():
    da = pytest.importorskip("dask.array")
    with pytest.raises(einsumx.BackendError, match="conj= is not for Dask arrays"):
        einsum(PRODUCT, da.from_array(a), da.from_array(b), conj=0)


# -- plans ----------------------------------------------------------------------------------------------------------

COMPLEX = {"dtypes": "complex128"}


@pytest.mark.parametrize(
    ("equation", "shapes", "conj", "expected"),
    [
        (PRODUCT, [(30, 40), (40, 20)], 0, ["conjugate", "matmul"]),
        (PRODUCT, [(30, 40), (40, 20)], (0, 1), ["matmul", "conjugate"]),
        ("ij,j->i", [(300, 400), (400,)], 0, ["conjugate", "matmul", "conjugate"]),
        ("ij,j->i", [(300, 400), (400,)], 1, ["conjugate", "matmul"]),
        ("ijz,jk->ik", [(30, 40, 50), (40, 20)], 0, ["sum", "conjugate", "matmul"]),
        ("ij->", [(30, 40)], 0, ["sum", "conjugate"]),
        ("iij->j", [(30, 30, 40)], 0, ["diagonal", "transpose", "sum", "conjugate"]),
        ("ij->ji", [(30, 40)], 0, ["conjugate", "transpose"]),
    ],
)
def test_the_fewest_elements_are_conjugated(equation, shapes, conj, expected):
    found = plan(equation, *shapes, conj=conj, **COMPLEX)
    assert [name for name in names(found) if name != "reshape"] == expected


def test_the_plan_prints_what_it_conjugates():
    text = str(plan(PRODUCT, (300, 400), (400, 200), conj=0, **COMPLEX))
    assert "%2 = conjugate %0  copy 1.92 MB: its complex conjugate" in text


def test_the_code_of_a_plan_conjugates():
    found = plan(CHAIN, a, b, c, conj=(0, 2))
    scope = {}
    exec(found.source(), scope)
    np.testing.assert_allclose(scope["contraction"](a, b, c), a.conj() @ b @ c.conj())


def test_a_stored_plan_conjugates_the_same_operands():
    for conj in some_of(3):
        found = Plan.from_json(plan(CHAIN, a, b, c, conj=conj).to_json())
        assert found.contraction.conjugated == conj
        np.testing.assert_allclose(found(a, b, c), np.linalg.multi_dot(conjugated(conj, a, b, c)))


@pytest.mark.parametrize("positions", [[2], [-3], [0, 0], [True], ["0"], 0])
def test_a_stored_plan_with_other_positions_is_refused(positions):
    data = json.loads(plan(PRODUCT, a, b, conj=0).to_json())
    assert data["conjugated"] == [0]
    data["conjugated"] = positions
    with pytest.raises(EinsumxError):
        Plan.from_json(json.dumps(data))


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_the_same_operands_are_conjugated_in_another_place(backend):
    library = pytest.importorskip(backend)
    there = plan(PRODUCT, a, b, conj=1).retarget(backend)
    assert there.contraction.conjugated == (1,)
    make = library.numpy.asarray if backend == "jax" else library.tensor
    narrow = a.astype("complex64"), b.astype("complex64")
    found = plan(PRODUCT, *narrow, conj=1).retarget(backend)(*map(make, narrow))
    np.testing.assert_allclose(np.asarray(found), narrow[0] @ narrow[1].conj(), rtol=1e-3, atol=1e-3)


def test_expressions_differ_by_what_they_conjugate_and_pickle_with_it():
    one, other = (expression(PRODUCT, a.shape, b.shape, conj=conj) for conj in (0, 1))
    assert one != other
    assert one == expression(PRODUCT, a.shape, b.shape, conj=[0])
    np.testing.assert_allclose(pickle.loads(pickle.dumps(one))(a, b), a.conj() @ b)


@pytest.mark.parametrize("conj", some_of(2))
def test_blocks_are_conjugated_by_the_position_of_the_operand_that_they_are_of(conj):
    smallest = plan("bij,bjk->bki", (4, 30, 40), (4, 40, 20), conj=conj, memory_limit="10 MB", **COMPLEX)
    arrays = complexes(4, 30, 40), complexes(4, 40, 20)
    expected = np.matmul(*conjugated(conj, *arrays)).transpose(0, 2, 1)
    np.testing.assert_allclose(smallest(*arrays), expected)
    found = einsum("bij,bjk->bki", *arrays, conj=conj, memory_limit=70_000)
    np.testing.assert_allclose(found, expected)


def test_a_part_of_a_contraction_conjugates_its_own_operands_by_their_positions_in_it():
    whole = plan(CHAIN, a, b, c, conj=(0, 2)).contraction
    pair = plan(PRODUCT, c.T, b.T).contraction
    for positions, expected in (((2, 1), (0,)), ((-1, 2), (1,)), ((1, -1), ()), ((2, 0), (0, 1))):
        part = whole.part(pair.equation, pair.operands, pair.path, positions)
        assert part.conjugated == expected


# -- PyTorch ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conj", some_of(3))
@pytest.mark.parametrize("options", [{}, {"memory_limit": "20 kB"}], ids=["whole", "limit"])
def test_gradients_of_each_order_are_those_of_conjugated_tensors(conj, options):
    torch = pytest.importorskip("torch")
    arrays = [torch.tensor(complexes(*shape), requires_grad=True) for shape in ((3, 4), (4, 5), (5, 2))]
    weights = torch.tensor(complexes(3, 2))

    def gradients(result):
        first = torch.autograd.grad((result * weights).real.sum(), arrays, create_graph=True)
        return [*first, *torch.autograd.grad(sum(each.abs().pow(2).sum() for each in first), arrays)]

    expected = gradients(torch.einsum(CHAIN, *conjugated(conj, *arrays)))
    for found, right in zip(gradients(einsum(CHAIN, *arrays, conj=conj, **options)), expected, strict=True):
        torch.testing.assert_close(found, right)


def test_a_tensor_is_conjugated_without_a_copy_where_a_product_reads_it_and_no_result_is_lazy():
    torch = pytest.importorskip("torch")
    lhs, rhs = torch.tensor(a), torch.tensor(b)
    assert ".conj()" in plan(PRODUCT, lhs, rhs, conj=0).source()
    for conj in ((0,), (0, 1)):
        found = einsum(PRODUCT, lhs, rhs, conj=conj)
        assert not found.is_conj()
        np.testing.assert_allclose(found.numpy(), np.matmul(*conjugated(conj, a, b)))
    found = einsum("ij->ji", lhs, conj=0)
    np.testing.assert_array_equal(found.numpy(), a.conj().T)
