"""Products of a real operand and a complex one: one product of real matrices."""

import numpy as np
import pytest

import einsumx
from einsumx import einsum, plan
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.ir.ops import Cast, Matmul

EQUATIONS = [
    ("ij,jk->ik", (40, 50), (50, 60)),
    ("ij,jk->ki", (40, 50), (50, 60)),
    ("ij,kj->ik", (40, 50), (60, 50)),
    ("ji,jk->ik", (50, 40), (50, 60)),
    ("ij,j->i", (500, 600), (600,)),
    ("ij,i->j", (500, 600), (500,)),
    ("bij,bjk->bik", (5, 40, 30), (5, 30, 40)),
    ("ibj,bjk->kbi", (40, 5, 30), (5, 30, 40)),
    ("ijk,jkl->il", (10, 20, 30), (20, 30, 40)),
    ("ijk,lkj->il", (10, 20, 30), (40, 30, 20)),
    ("ij,jkl->kil", (50, 60), (60, 8, 9)),
]


def operands(equation, real, other, dtype="complex128", of_real="float64"):
    rng = np.random.default_rng(0)
    lhs = (10 * rng.standard_normal(real)).astype(of_real)
    rhs = (rng.standard_normal(other) + 1j * rng.standard_normal(other)).astype(dtype)
    return equation, lhs, rhs


def swapped(equation, lhs, rhs):
    inputs, output = equation.split("->")
    first, second = inputs.split(",")
    return f"{second},{first}->{output}", rhs, lhs


@pytest.mark.parametrize("dtypes", [("float64", "complex128"), ("float32", "complex64"), ("int32", "complex128")])
@pytest.mark.parametrize("turn", [lambda *call: call, swapped], ids=["real first", "complex first"])
@pytest.mark.parametrize(("equation", "real", "other"), EQUATIONS, ids=[each[0] for each in EQUATIONS])
def test_numpy_multiplies_a_real_operand_by_a_complex_one_in_real_numbers(equation, real, other, turn, dtypes):
    of_real, dtype = dtypes
    equation, *arrays = turn(*operands(equation, real, other, dtype, of_real))
    for laid in (np.ascontiguousarray, np.asfortranarray):
        found = list(map(laid, arrays))
        assert judge(einsum(equation, *found), expect(equation, *found))


@pytest.mark.parametrize("turn", [lambda *call: call, swapped], ids=["real first", "complex first"])
def test_a_plan_of_a_real_matrix_and_a_complex_one_casts_neither(turn):
    equation, *arrays = turn(*operands("ij,jk->ik", (100, 100), (100, 100)))
    ops = plan(equation, *arrays).ops
    assert not any(isinstance(op, Cast) for op in ops)
    assert [op.sums for op in ops if isinstance(op, Matmul)] == ["complex128"]


def test_infinities_and_nan_reach_what_they_reach_in_the_plain_sum():
    _, lhs, rhs = operands("", (30, 40), (40, 50))
    lhs[0, 0], lhs[1, 1], lhs[2, 2] = np.inf, np.nan, 0
    rhs[3, 3], rhs[4, 4], rhs[2, 2] = complex(np.inf, 1), complex(1, np.nan), complex(-np.inf, np.inf)
    with np.errstate(all="ignore"):
        found, parts = einsum("ij,jk->ik", lhs, rhs), (lhs @ rhs.real, lhs @ rhs.imag)
    for own, expected in zip((found.real, found.imag), parts):
        assert np.array_equal(np.isfinite(own), np.isfinite(expected))
        assert np.array_equal(own[np.isinf(expected)], expected[np.isinf(expected)])


def test_such_a_plan_is_stored_moved_and_written_as_source():
    equation, *arrays = operands("ij,jk->ik", (100, 100), (100, 100))
    made = plan(equation, *arrays)
    expected = arrays[0] @ arrays[1]
    assert np.allclose(type(made).from_json(made.to_json())(*arrays), expected)
    assert np.allclose(einsumx.einsum(equation, *arrays, memory_limit="300 KB"), expected)
    space = {}
    exec(made.source(), space)
    (function,) = [value for name, value in space.items() if callable(value) and not name.startswith("__")]
    assert np.allclose(function(*arrays), expected)


@pytest.mark.parametrize("turn", [lambda *call: call, swapped], ids=["real first", "complex first"])
@pytest.mark.parametrize(("equation", "real", "other"), EQUATIONS, ids=[each[0] for each in EQUATIONS])
def test_torch_does_and_so_do_its_gradients(equation, real, other, turn):
    torch = pytest.importorskip("torch")
    equation, *arrays = turn(*operands(equation, real, other))
    ours, theirs = ([torch.tensor(array, requires_grad=True) for array in arrays] for _ in range(2))
    found = einsum(equation, *ours)
    expected = torch.einsum(equation, *[array.to(torch.complex128) for array in theirs])
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    (found * weights).sum().abs().backward()
    (expected * weights).sum().abs().backward()
    for own, other_ in zip(ours, theirs):
        assert own.grad.dtype == own.dtype
        torch.testing.assert_close(own.grad, other_.grad)


def test_torch_reads_conjugates_and_heeds_no_autocast():
    torch = pytest.importorskip("torch")
    equation, lhs, rhs = operands("ij,jk->ik", (100, 100), (100, 100), "complex64", "float32")
    lhs, rhs = torch.tensor(lhs), torch.tensor(rhs)
    expected = lhs.to(torch.complex128) @ rhs.conj().to(torch.complex128)
    with torch.autocast("cpu"):
        found = einsum(equation, lhs, rhs.conj())
    torch.testing.assert_close(found, expected.to(torch.complex64), rtol=1e-4, atol=1e-4)  # not those of bfloat16
    out = torch.empty(100, 100, dtype=torch.complex64)
    torch.testing.assert_close(
        einsum(equation, lhs, rhs.conj(), out=out), expected.to(torch.complex64), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("swap", [False, True])
def test_torch_maps_and_differentiates_them_twice(swap):
    torch = pytest.importorskip("torch")
    equation, *arrays = operands("ij,jk->ik", (20, 20), (20, 20))
    if swap:
        equation, *arrays = swapped(equation, *arrays)
    arrays = [torch.tensor(array) for array in arrays]
    batch = [torch.stack([array, 2 * array]) for array in arrays]
    mapped = torch.func.vmap(lambda *own: einsum(equation, *own))(*batch)
    expected = torch.einsum(equation, *[array.to(torch.complex128) for array in arrays])
    torch.testing.assert_close(mapped, torch.stack([expected, 4 * expected]))
