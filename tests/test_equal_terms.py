"""Sums along axes of stride 0: so many times one term, however many they are, and with what the sum would give."""

import sys
from fractions import Fraction

import numpy as np
import pytest
from source_einsum import contraction

import einsumx
from einsumx.conformance.kit.oracle import expect, judge

MANY = 10**12
"""More terms than can be added one by one."""

pytestmark = pytest.mark.skipif(sys.maxsize < MANY, reason="addresses of 32 bits do not count so many elements")


def repeated(value, *shape, dtype=None):
    return np.broadcast_to(np.asarray(value, dtype), shape)


NUMBERS = ["float32", "longdouble", "complex64", "clongdouble", ">f4", "uint64"]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_a_repeated_number_is_summed_at_once(dtype):
    result = einsumx.einsum("i->", repeated(3, MANY, dtype=dtype))
    assert result == np.asarray(3 * MANY, result.dtype)
    assert result.dtype == np.dtype(dtype).newbyteorder("=")


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "uint64"])
@pytest.mark.parametrize("count", [255, 256, 10**12 + 7, 2**40])
def test_sums_of_integers_wrap(dtype, count):
    value = int(np.iinfo(dtype).max) - 2
    result = einsumx.einsum("i,ij->j", repeated(1, count, dtype=dtype), repeated([value, 3], count, 2, dtype=dtype))
    bits = 8 * np.dtype(dtype).itemsize
    assert [int(found) % 2**bits for found in result] == [value * count % 2**bits, 3 * count % 2**bits]
    assert result.dtype == dtype


def test_counts_beyond_every_integer_wrap():
    """There are 10**36 terms."""
    result = einsumx.einsum("i,j,k->", *[repeated(3, MANY, dtype="int64")] * 3)
    assert int(result) % 2**64 == 27 * MANY**3 % 2**64


def test_counts_beyond_the_largest_float_are_multiplied_one_by_one():
    """There are 10**48 terms, more than float32 counts to."""
    tiny, one = repeated(1e-30, MANY, dtype="float32"), repeated(1, MANY, dtype="float32")
    assert einsumx.einsum("i,j,k,l->", tiny, one, one, one) == pytest.approx(1e18, rel=1e-6)
    assert einsumx.einsum("i,j,k,l->", repeated(0, MANY, dtype="float32"), one, one, one) == 0


@pytest.mark.parametrize(
    ("value", "total"),
    [(1, np.inf), (0, 0), (2**-24, 59604.6), (-1, -np.inf), (np.nan, np.nan), (np.inf, np.inf)],
)
def test_half_precision_counts_beyond_its_largest_number(value, total):
    result = einsumx.einsum("i->", repeated(value, MANY, dtype="float16"))
    assert result.dtype == "float16"
    np.testing.assert_allclose(float(result), total, rtol=1e-3)


@pytest.mark.parametrize("value", [complex(np.inf, 0), complex(1, -np.inf), complex(0, np.nan)])
@pytest.mark.parametrize("dtype", ["complex64", "clongdouble"])
def test_the_parts_of_complex_numbers_stay_apart(value, dtype):
    """A product of an infinity with a complex count would be nan in the other part."""
    result = einsumx.einsum("i->", repeated(value, MANY, dtype=dtype))
    for found, part in ((result.real, value.real), (result.imag, value.imag)):
        np.testing.assert_allclose(float(found), part * MANY, rtol=1e-6)


@pytest.mark.parametrize(
    ("equation", "axes", "dtype"),
    [
        ("ij->", "i", "object"),
        ("ii->", "i", "float16"),
        ("i,j->j", "i", "object"),
        ("ij,jk->ik", "j", "object"),
        ("ij,jk,kl->il", "jk", "int8"),
        ("bij,bjk->bik", "bj", "float32"),
    ],
)
def test_labels_without_data_of_their_own_in_any_role(equation, axes, dtype):
    rng = np.random.default_rng(1)
    sizes = dict(zip("bijkl", (30, 40, 20, 3, 2)))
    arrays = []
    for term in equation.split("->")[0].split(","):
        data = np.asarray(rng.integers(0, 3, [1 if label in axes else sizes[label] for label in term])).astype(dtype)
        arrays.append(np.broadcast_to(data, [sizes[label] for label in term]))
    result = np.asarray(einsumx.einsum(equation, *arrays), dtype if dtype == "object" else None)
    assert judge(result, expect(equation, *arrays))
    assert not any(np.shares_memory(result, array) for array in arrays)


def test_intermediate_products_do_not_overflow_by_the_count():
    """The smallest value is scaled, and where the result is as small, that."""
    result = einsumx.einsum("i,i->", repeated(1e30, MANY, dtype="float32"), repeated(1e-30, MANY, dtype="float32"))
    assert result == pytest.approx(1e12, rel=1e-5)


def test_another_dtype_counts_in_that():
    result = einsumx.einsum("i->", repeated(100, MANY, dtype="int8"), dtype="float64")
    assert result == 1e14
    assert einsumx.einsum("i,i->", repeated(100, MANY, dtype="int8"), repeated(0.5, MANY)) == 5e13


@pytest.mark.parametrize("equation", ["i,ij->j", "i,j->j", "i,jk->k"])
def test_a_memory_limit_cuts_nothing_that_repeats_itself(equation):
    first, *others = equation.split("->")[0].split(",")[1]
    shape = (MANY, 300) if first == "i" else (300, 300)[: 1 + len(others)]
    row = np.arange(shape[-1], dtype=float)
    result = einsumx.einsum(equation, repeated(1.0, MANY), np.broadcast_to(row, shape), memory_limit=5000)
    times = MANY * (shape[0] if equation == "i,jk->k" else 1)
    assert result.tolist() == [times * value for value in row]


@pytest.mark.parametrize("value", [Fraction(-2, 7), 10**30], ids=str)
def test_objects_are_summed_as_their_own_addition_has_it(value):
    numbers = np.empty((), object)
    numbers[()] = value
    for limit in (None, 10000):
        result = einsumx.einsum("i->", np.broadcast_to(numbers, MANY), memory_limit=limit)
        assert type(result) is type(value)
        assert result == value * MANY


class Tropical:
    """A number whose sum is the smaller one, and that no integer multiplies."""

    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return Tropical(min(self.value, other.value))

    def __mul__(self, other):
        return Tropical(self.value + other.value)


def test_objects_need_no_product_with_a_count():
    numbers = np.array([Tropical(5), Tropical(2)], object)
    result = einsumx.einsum("ij,j->j", np.broadcast_to(numbers, (MANY, 2)), numbers)
    assert [found.value for found in result] == [10, 4]


def test_the_source_and_the_stored_form_of_a_plan_count():
    for dtype in ("float64", "int8", "complex64", "bool", "float16", "object"):
        array = repeated([3, 1], 300, 2, dtype=dtype)
        plan = einsumx.plan("ij->j", array)
        assert einsumx.Plan.from_json(plan.to_json()) == plan
        for run in (plan, contraction(plan.source(), "numpy")):
            found = run(array)
            assert found.dtype == dtype
            assert found.tolist() == einsumx.einsum("ij->j", np.array(array)).tolist()


@pytest.mark.parametrize("dtype", ["complex64", "clongdouble", ">c16"])
def test_the_source_keeps_the_parts_of_complex_numbers_apart(dtype):
    array = repeated([complex(np.inf, 1), complex(2, -np.inf)], 1000, 2, dtype=dtype)
    run = contraction(einsumx.plan("ij->j", array).source(), "numpy")
    assert run(array).tolist() == [complex(np.inf, 1000), complex(2000, -np.inf)]


# -- PyTorch --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int64", "bool", "complex64"])
def test_expanded_tensors_are_summed_at_once(torch, dtype):
    kind = getattr(torch, dtype)
    result = einsumx.einsum("i->", torch.ones((), dtype=kind).expand(MANY))
    assert result.dtype == kind
    if dtype == "int8":
        assert int(result) % 256 == MANY % 256
    else:
        assert complex(result) == pytest.approx(1 if dtype == "bool" else MANY, rel=1e-2)


def test_the_parts_of_expanded_complex_tensors_stay_apart(torch):
    number = torch.tensor(complex(1, float("inf")))
    for tensor in (number, number.conj().resolve_conj()):
        result = einsumx.einsum("i->", tensor.expand(MANY))
        assert result.real == pytest.approx(1e12)
        assert torch.isinf(result.imag)
    assert einsumx.einsum("ij->j", torch.tensor([1 + 2j]).conj().expand(MANY, 1)).tolist() == [
        pytest.approx(1e12 - 2e12j, rel=1e-6)
    ]


def test_gradients_go_through_what_is_counted_and_that_by_an_expanded_tensor_is_that_of_each_element(torch):
    vector = torch.ones(3, requires_grad=True)
    einsumx.einsum("i,j->j", torch.full((), 2.0).expand(MANY), vector).sum().backward()
    assert vector.grad.tolist() == pytest.approx([2e12] * 3)
    base = torch.ones(1, requires_grad=True)
    expanded = base.expand(5)
    weights = torch.arange(5.0)
    for equation, others, gradient in (("i->", (), [1.0] * 5), ("i,i->", (weights,), [0.0, 1.0, 2.0, 3.0, 4.0])):
        (found,) = torch.autograd.grad(einsumx.einsum(equation, expanded, *others), [expanded])
        assert found.tolist() == gradient


def test_expanded_tensors_are_mapped_and_compiled(torch):
    vectors, flat = torch.ones(4, 3, dtype=torch.float64), torch.ones(()).expand(MANY)

    def call(vector):
        return einsumx.einsum("i,j->j", flat, vector)

    assert torch.func.vmap(call)(vectors).tolist() == [[1e12] * 3] * 4
    assert torch.compile(call, fullgraph=True, backend="aot_eager")(vectors[0]).tolist() == [1e12] * 3
    assert einsumx.einsum("i,j->j", flat, vectors[0], memory_limit=1000).tolist() == [1e12] * 3
