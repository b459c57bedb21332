"""PyTorch's adapter: plans, dtypes, dense tensors only, autograd, torch.func, torch.compile, threads, devices."""

import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from importlib import import_module

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import einsumx  # noqa: E402
from einsumx.backends.torch import ADAPTER  # noqa: E402
from einsumx.conformance.oracle import expect, judge  # noqa: E402

DIFFERENTIATED = {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "bnid,bnjd->bnij": [(2, 2, 3, 4), (2, 2, 2, 4)],
    "bind,bjnd->bnij": [(2, 3, 2, 2), (2, 2, 2, 2)],
    "bind,jnd->bnij": [(2, 3, 2, 2), (2, 2, 2)],
    "ij,jk,kl->li": [(2, 3), (3, 2), (2, 3)],
    "ijk,ikl->jl": [(2, 3, 2), (2, 2, 3)],
    "ii->i": [(3, 3)],
    "iij,j->i": [(3, 3, 2), (2,)],
    "ij->": [(2, 3)],
    "ij,ij->i": [(1, 4), (2, 4)],
    "i,j->ij": [(2,), (3,)],
    "...i,i...->...": [(2, 3), (3, 2)],
}


@pytest.fixture(autouse=True)
def generator():
    return torch.manual_seed(0)


@pytest.fixture
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def calls(plan):
    """The names of a plan's ops."""
    return [type(op).__name__ for op in plan.ops]


# -- plans ------------------------------------------------------------------------------------------------------


def test_heads_before_positions_are_one_batched_product_without_a_copy():
    query, key = torch.rand(2, 3, 4, 5), torch.rand(2, 3, 6, 5)
    assert calls(einsumx.plan("bnid,bnjd->bnij", query, key)) == [
        "Reshape",
        "Transpose",
        "Reshape",
        "Matmul",
        "Reshape",
    ]


def test_a_transposed_matrix_is_read_where_it_lies():
    plan = einsumx.plan("ji,jk->ik", torch.rand(4, 3), torch.rand(4, 5))
    assert calls(plan) == ["Transpose", "Matmul"]


def test_heads_behind_positions_are_read_where_they_lie():
    plan = einsumx.plan("bind,bjnd->bnij", torch.rand(2, 400, 8, 64), torch.rand(2, 600, 8, 64))
    assert calls(plan) == ["Transpose", "Transpose", "Matmul"]


def test_half_precision_is_computed_in_float32_on_the_cpu_and_as_it_is_on_cuda():
    shapes = (3, 4), (4, 5)
    on_cpu = einsumx.plan("ij,jk->ik", *shapes, backend="torch", device="cpu", dtypes="bfloat16")
    on_cuda = einsumx.plan("ij,jk->ik", *shapes, backend="torch", device="cuda:0", dtypes="bfloat16")
    assert calls(on_cpu) == ["Cast", "Cast", "Matmul", "Cast"]
    assert calls(on_cuda) == ["Matmul"]


def test_integers_take_no_matmul_on_cuda_where_torch_has_none():
    shapes = (3, 4), (4, 5)
    assert "Matmul" in calls(einsumx.plan("ij,jk->ik", *shapes, backend="torch", device="cpu", dtypes="int32"))
    assert "Matmul" not in calls(einsumx.plan("ij,jk->ik", *shapes, backend="torch", device="cuda", dtypes="int32"))


# -- results ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("equation", DIFFERENTIATED)
def test_results_do_not_depend_on_how_operands_lie(equation):
    arrays = [torch.rand(shape, dtype=torch.float64) for shape in DIFFERENTIATED[equation]]
    expected = einsumx.einsum(equation, *arrays)
    turned = [array.mT.contiguous().mT if array.ndim > 1 else array for array in arrays]
    gapped = [torch.stack([array, array + 1], -1)[..., 0] for array in arrays]
    reversed_order = [
        array.permute(*range(array.ndim)[::-1]).contiguous().permute(*range(array.ndim)[::-1]) for array in arrays
    ]
    for others in (turned, gapped, reversed_order):
        torch.testing.assert_close(einsumx.einsum(equation, *others), expected, rtol=1e-13, atol=1e-13)


def test_an_outer_product_of_transposed_operands_feeds_the_next_product():
    # An elementwise result of torch keeps its operands' order in memory, which the plan does not rely on.
    first, second = torch.rand(3, 2).mT, torch.rand(4, 5).mT
    last = torch.rand(2, 3, 5, 4, 2)
    result = einsumx.einsum("ij,kl,ijklm->mk", first, second, last, optimize=[(0, 1), (0, 1)])
    expected = (first[:, :, None, None, None] * second[:, :, None] * last).sum((0, 1, 3)).mT
    torch.testing.assert_close(result, expected)


def test_an_expanded_operand_is_right():
    shared = torch.rand(1, 4, 5).expand(3, 4, 5)
    other = torch.rand(3, 5, 6)
    torch.testing.assert_close(einsumx.einsum("bij,bjk->bik", shared, other), shared.contiguous() @ other)


def test_lazily_conjugated_and_negated_tensors_are_read_as_what_they_stand_for():
    array = torch.rand(3, 4, dtype=torch.complex64)
    real = torch.rand(4, 2)
    conjugated, negated = array.conj(), array.conj().imag
    assert conjugated.is_conj()
    assert negated.is_neg()
    torch.testing.assert_close(
        einsumx.einsum("ij,kj->ik", conjugated, array), array.conj().resolve_conj() @ array.mT.contiguous()
    )
    torch.testing.assert_close(einsumx.einsum("ij,jk->ki", negated, real), -(array.imag.contiguous() @ real).mT)
    assert np.array_equal(ADAPTER.to_numpy(einsumx.einsum("ij->ji", conjugated)), array.numpy().conj().T)


def test_a_parameter_gives_a_plain_tensor():
    weight = torch.nn.Parameter(torch.rand(3, 4))
    result = einsumx.einsum("ij,bj->bi", weight, torch.rand(2, 4))
    assert type(result) is torch.Tensor
    assert result.requires_grad


def test_zero_dimensional_and_empty_tensors():
    assert einsumx.einsum(",->", torch.tensor(2.0), torch.tensor(3.0)).item() == 6
    assert einsumx.einsum("ij,jk->ik", torch.rand(2, 0), torch.rand(0, 3)).eq(0).all()


def test_a_rearrangement_is_a_view_as_of_torch_einsum():
    array = torch.zeros(2, 3)
    einsumx.einsum("ij->ji", array)[2, 1] = 7
    assert array[1, 2] == 7


# -- dtypes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unsigned_integers_wrap_though_torch_has_few_kernels_for_them(dtype):
    values = np.array([[2**15 + 3, 7], [9, 60000]], dtype)
    array = torch.from_numpy(values)
    product = einsumx.einsum("ij,jk->ik", array, array)
    assert product.dtype is getattr(torch, dtype)
    assert np.array_equal(product.numpy(), values @ values)
    assert np.array_equal(einsumx.einsum("ij->j", array).numpy(), values.sum(0, dtype))
    assert np.array_equal(einsumx.einsum("ij,ij->ij", array, array).numpy(), values * values)


def test_int8_sums_stay_int8_and_wrap():
    array = torch.full((3,), 100, dtype=torch.int8)
    assert einsumx.einsum("i->", array).dtype is torch.int8
    assert einsumx.einsum("i->", array).item() == 300 - 256
    assert einsumx.einsum("i,i->", array, array).item() == (30000 + 128) % 256 - 128


def test_bool_is_an_or_of_ands():
    lhs, rhs = torch.tensor([[True, True], [False, True]]), torch.tensor([[True, False], [True, False]])
    result = einsumx.einsum("ij,jk->ik", lhs, rhs)
    assert result.dtype is torch.bool
    assert result.tolist() == [[True, False], [True, False]]
    assert einsumx.einsum("ij->j", lhs).tolist() == [True, True]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "equation", ["ij,jk->ik", "i,i->", "ij,j->i", "i,ij->j", "bij,bj->bi", "ij->i", "ijk->j", "i,i,i->"]
)
def test_half_precision_accumulates_wide_and_rounds_once(equation, dtype):
    # A running sum of ones in half precision stops at the first number whose successor is 2 away.
    count = 2 * int(2 / torch.finfo(dtype).eps)
    inputs = equation.partition("->")[0].split(",")
    summed = set("".join(inputs)) - set(equation.partition("->")[2])
    sizes = dict.fromkeys("bijk", 3) | dict.fromkeys(summed, count)
    if len(summed) == 2:
        sizes |= {"i": 64, "k": count // 64}
    arrays = [torch.ones([sizes[label] for label in term], dtype=dtype) for term in inputs]
    result = einsumx.einsum(equation, *arrays)
    assert result.dtype is dtype
    assert result.eq(count).all()


def test_half_precision_products_round_like_float64_ones_rounded_once():
    lhs, rhs = torch.randn(20, 300).bfloat16(), torch.randn(300, 20).bfloat16()
    exact = lhs.double() @ rhs.double()
    magnitude = lhs.double().abs() @ rhs.double().abs()
    error = (einsumx.einsum("ij,jk->ik", lhs, rhs).double() - exact).abs()
    once = exact.abs() * torch.finfo(torch.bfloat16).eps / 2
    assert (error <= 1.01 * once + 300 * torch.finfo(torch.float32).eps * magnitude).all()


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_complex32_is_computed_in_complex64():
    array = torch.rand(3, 4, dtype=torch.complex64).to(torch.complex32)
    result = einsumx.einsum("ij,kj->ik", array, array)
    wide = array.to(torch.complex64)
    assert result.dtype is torch.complex32
    assert torch.equal(torch.view_as_real(result), torch.view_as_real((wide @ wide.mT).to(torch.complex32)))


def test_dtypes_are_promoted_as_torch_promotes_them():
    half, integers = torch.ones(2, dtype=torch.float16), torch.ones(2, dtype=torch.int64)
    assert einsumx.einsum("i,i->", half, integers).dtype is torch.float16
    assert einsumx.einsum("i,i->", half, half.bfloat16()).dtype is torch.float32


@pytest.mark.parametrize(
    ("value", "dtype", "promoted"),
    [
        (2, torch.int8, torch.int8),
        (2.5, torch.int8, torch.float32),
        (2.5, torch.bfloat16, torch.bfloat16),
        (2j, torch.float64, torch.complex128),
        (True, torch.uint8, torch.uint8),
        (2, torch.bool, torch.int64),
    ],
)
def test_python_scalars_follow_tensors_as_in_torch(value, dtype, promoted):
    array = torch.ones(3, dtype=dtype)
    result = einsumx.einsum(",i->i", value, array)
    assert result.dtype is promoted is (value * array).dtype
    assert torch.equal(result, value * array)


def test_unsigned_integers_without_a_promotion_ask_for_a_dtype():
    lhs, rhs = torch.ones(2, dtype=torch.uint16), torch.ones(2, dtype=torch.int32)
    with pytest.raises(einsumx.BackendError, match=r"torch does not promote uint16 and int32; pass dtype="):
        einsumx.einsum("i,i->", lhs, rhs)
    assert einsumx.einsum("i,i->", lhs, rhs, dtype=torch.int64).item() == 2


# -- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Sparse (CSR|invariant)", "ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.eye(2).to_sparse_csr(),
        lambda: torch.nested.nested_tensor([torch.rand(2), torch.rand(3)]),
        lambda: torch.nested.nested_tensor([torch.rand(2), torch.rand(3)], layout=torch.jagged),
    ],
    ids=["coo", "csr", "nested", "jagged"],
)
def test_tensors_that_are_not_dense_are_an_error(make):
    with pytest.raises(einsumx.BackendError, match="einsum takes dense tensors"):
        einsumx.einsum("ij->ji", make())


def test_a_dtype_that_is_no_number_to_compute_with_is_an_error():
    with pytest.raises(einsumx.BackendError, match="float8_e4m3fn"):
        einsumx.einsum("ij->ji", torch.rand(2, 2).to(torch.float8_e4m3fn))


def test_tensors_on_two_devices_are_an_error():
    with pytest.raises(einsumx.BackendError, match="cpu and meta"):
        einsumx.einsum("i,i->", torch.rand(2), torch.rand(2, device="meta"))


def test_out_is_an_error_where_gradients_are_recorded():
    weight, out = torch.ones(2, 2, requires_grad=True), torch.zeros(2, 2)
    with pytest.raises(einsumx.BackendError, match="torch does not differentiate through out="):
        einsumx.einsum("ij,jk->ik", weight, weight, out=out)
    with pytest.raises(einsumx.BackendError, match="torch does not differentiate through out="):
        einsumx.einsum("ij,jk->ik", out, out, out=weight)
    assert out.eq(0).all()
    with torch.no_grad():
        assert einsumx.einsum("ij,jk->ik", weight, weight, out=out) is out
    assert out.eq(2).all()


def test_an_expanded_out_is_an_error():
    out = torch.zeros(1).expand(3)
    with pytest.raises(einsumx.BackendError, match="share one place in memory"):
        einsumx.einsum("i->i", torch.ones(3), out=out)
    assert out.eq(0).all()


# -- derivatives and transforms ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
@pytest.mark.parametrize("equation", DIFFERENTIATED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_first_and_second_derivatives_are_right(equation, dtype):
    arrays = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in DIFFERENTIATED[equation]]

    def function(*operands):
        return einsumx.einsum(equation, *operands)

    assert torch.autograd.gradcheck(function, arrays, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, arrays)


def test_func_grad_of_vmap_is_the_gradient():
    weight, inputs = torch.rand(3, 4), torch.rand(5, 4)

    def loss(w):
        return torch.func.vmap(lambda x: einsumx.einsum("ij,j->", w, x))(inputs).sum()

    torch.testing.assert_close(torch.func.grad(loss)(weight), inputs.sum(0).expand(3, 4))


def test_inference_mode():
    with torch.inference_mode():
        result = einsumx.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(3, 2))
    assert result.is_inference()
    assert result.eq(3).all()


def test_meta_and_fake_tensors_give_shape_and_dtype_without_memory():
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    huge = torch.empty(10**6, 10**6, device="meta", dtype=torch.float16)
    result = einsumx.einsum("ij,kj->ki", huge, huge)
    assert (result.shape, result.dtype, result.device.type) == ((10**6, 10**6), torch.float16, "meta")
    with FakeTensorMode():
        fake = einsumx.einsum("ij,jk->ki", torch.rand(3, 4), torch.rand(4, 5))
    assert isinstance(fake, FakeTensor)
    assert fake.shape == (5, 3)


# -- expanded operands ------------------------------------------------------------------------------------------

EXPANDED = {
    "bhqd,bhqkd->bhqk": [(2, 3, 2, 4), (1, 3, 1, 5, 4)],
    "bij,bjk->bik": [(1, 3, 4), (3, 4, 2)],
    "ij,jk->ik": [(3, 4), (1, 2)],
    "ij,ij->i": [(1, 1), (3, 4)],
    "ij,kj->": [(3, 1), (2, 4)],
}


def expanded(equation):
    """Tensors of which one has axes of stride 0, each in its full shape."""
    terms = equation.partition("->")[0].split(",")
    small = [torch.randn(shape, dtype=torch.float64) for shape in EXPANDED[equation]]
    sizes = {}
    for term, array in zip(terms, small):
        sizes |= {label: size for label, size in zip(term, array.shape) if size > 1 or label not in sizes}
    return [array.expand([sizes[label] for label in term]) for term, array in zip(terms, small)]


def judged(result, equation, arrays):
    expected = expect(equation, *(array.detach().numpy() for array in arrays))
    return judge(result.detach().numpy(), expected)


@pytest.mark.parametrize("equation", EXPANDED)
def test_expanded_operands_give_right_results_recorded_or_not(equation):
    arrays = expanded(equation)
    assert any(0 in array.stride() for array in arrays)
    for operands in (arrays, [array.detach().requires_grad_() for array in arrays]):
        verdict = judged(einsumx.einsum(equation, *operands), equation, operands)
        assert not verdict.wrong, verdict


@pytest.mark.parametrize("equation", EXPANDED)
def test_a_derivative_by_an_expanded_tensor_itself_is_that_of_every_element(equation):
    arrays = expanded(equation)
    stored = [array.contiguous().requires_grad_() for array in arrays]
    recorded = [array.detach().requires_grad_() for array in arrays]
    value = einsumx.einsum(equation, *recorded)
    cotangent = torch.randn_like(value)
    wanted = torch.autograd.grad(torch.einsum(equation, *stored), stored, cotangent)
    torch.testing.assert_close(torch.autograd.grad(value, recorded, cotangent), wanted)
    _, pullback = torch.func.vjp(lambda *operands: einsumx.einsum(equation, *operands), *arrays)
    torch.testing.assert_close(pullback(cotangent), wanted)


@pytest.mark.parametrize("equation", EXPANDED)
def test_a_derivative_outside_of_vmap_by_an_expanded_tensor_is_that_of_every_element(equation):
    arrays = [array[None] for array in expanded(equation)]
    stored = [array.contiguous().requires_grad_() for array in arrays]
    mapped = torch.func.vmap(lambda *operands: einsumx.einsum(equation, *operands))
    wanted = torch.autograd.grad(torch.einsum(equation, *(each[0] for each in stored)).sum(), stored)
    every = tuple(range(len(arrays)))
    found = torch.func.grad(lambda *operands: mapped(*operands).sum(), argnums=every)(*arrays)
    torch.testing.assert_close(found, wanted)
    recorded = [array.detach().requires_grad_() for array in arrays]
    torch.testing.assert_close(torch.autograd.grad(mapped(*recorded).sum(), recorded), wanted)


def test_strides_of_zero_are_planned_with_only_where_no_derivative_is_taken():
    shared = torch.rand(3, 1, 5).expand(3, 4, 5)
    leaf = shared.detach().requires_grad_()
    assert ADAPTER.operand(ADAPTER.signature(shared)).strides == (5, 0, 1)
    assert 0 not in ADAPTER.operand(ADAPTER.signature(leaf)).strides
    with torch.no_grad():
        assert ADAPTER.signature(leaf) == ADAPTER.signature(shared)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("equation", EXPANDED)
def test_compiled_derivatives_by_expanded_tensors_are_those_of_every_element(equation):
    arrays = expanded(equation)
    stored = [array.contiguous().requires_grad_() for array in arrays]
    recorded = [array.detach().requires_grad_() for array in arrays]
    wanted = torch.autograd.grad(torch.einsum(equation, *stored).sum(), stored)
    result = compiled(lambda *operands: einsumx.einsum(equation, *operands))(*recorded)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), recorded), wanted)


# -- torch.compile ----------------------------------------------------------------------------------------------


def compiled(function, **options):
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore:Creating an ndarray from ragged")
def test_tensors_in_one_list_are_an_error_that_says_how_they_are_passed():
    tensors = [torch.ones(2, 3, requires_grad=True), torch.ones(3, 4)]
    with pytest.raises(einsumx.EinsumxError, match=r"einsum\(equation, \*arrays\)|2 subscripts but 1 operand"):
        einsumx.einsum("ij,jk->ik", tensors)
    np.testing.assert_array_equal(einsumx.einsum("ij,jk->ik", *tensors).detach(), np.full((2, 4), 3))


def test_compiled_keywords_sublists_and_scalars():
    lhs, rhs = torch.rand(3, 4), torch.rand(4, 5)

    def function(lhs, rhs):
        first = einsumx.einsum(lhs, [0, 1], rhs, [1, 2], [0, 2], dtype=torch.float64, order="F")
        return first + einsumx.einsum("ij,jk,->ik", lhs, rhs, 2.0, optimize=[(0, 1), (0, 1)])

    result = compiled(function)(lhs, rhs)
    assert result.dtype is torch.float64
    torch.testing.assert_close(result, 3 * (lhs @ rhs).double(), rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_out_is_written():
    lhs, rhs, out = torch.rand(3, 4), torch.rand(4, 5), torch.zeros(3, 5)

    def function(lhs, rhs, out):
        einsumx.einsum("ij,jk->ik", lhs, rhs, out=out)
        return out + 1

    torch.testing.assert_close(compiled(function)(lhs, rhs, out), lhs @ rhs + 1)
    torch.testing.assert_close(out, lhs @ rhs)


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_with_changing_sizes():
    function = compiled(lambda lhs, rhs: einsumx.einsum("...i,ij->...j", lhs, rhs), dynamic=True)
    rhs = torch.rand(4, 5)
    for size in (2, 3, 7):
        lhs = torch.rand(size, 3, 4)
        torch.testing.assert_close(function(lhs, rhs), lhs @ rhs)


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_with_changing_sizes_that_operands_share():
    function = compiled(lambda lhs, rhs: einsumx.einsum("ij,jk->ik", lhs, rhs), dynamic=True)
    for size in (2, 3, 7):
        lhs = torch.rand(size, 4)
        torch.testing.assert_close(function(lhs, lhs.T), lhs @ lhs.T)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_vmap_and_grad(dynamic):
    rhs = torch.rand(4, 5)
    mapped = compiled(torch.func.vmap(lambda lhs: einsumx.einsum("ij,jk->ik", lhs, rhs)), dynamic=dynamic)
    lhs = torch.rand(6, 3, 4)
    torch.testing.assert_close(mapped(lhs), lhs @ rhs)
    gradient = compiled(torch.func.grad(lambda lhs: einsumx.einsum("ij,jk->", lhs, rhs)), dynamic=dynamic)
    torch.testing.assert_close(gradient(lhs[0]), rhs.sum(1).expand(3, 4))


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("form", ["text", "sublists"])
def test_compiled_expression_with_a_constant(form):
    weight = torch.rand(5, 6)
    if form == "text":
        expression = einsumx.expression("ij,jk,kl->il", (3, 4), (4, 5), weight)
    else:
        expression = einsumx.expression((3, 4), [0, 1], (4, 5), [1, 2], weight, [2, 3], [0, 3])
    lhs, rhs = torch.rand(3, 4), torch.rand(4, 5)
    torch.testing.assert_close(compiled(lambda lhs, rhs: expression(lhs, rhs) + 0)(lhs, rhs), lhs @ rhs @ weight)


COMPILED_FIRST = """
import warnings
warnings.simplefilter("error")
{imports}
def function(lhs, rhs):
    return einsumx.einsum("ij,jk->ik", lhs, rhs)
lhs, rhs = torch.rand(3, 4, requires_grad=True), torch.rand(4, 5)
result = torch.compile(function, fullgraph=True, backend="{backend}")(lhs, rhs)
torch.testing.assert_close(result, lhs @ rhs)
result.sum().backward()
torch.testing.assert_close(lhs.grad, rhs.sum(1).expand(3, 4))
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import einsumx, torch",
        "import torch, einsumx",
        "import einsumx; einsumx.plan('i,i->', (2,), (2,), backend='torch'); import torch",
    ],
)
def test_the_first_call_of_all_may_be_a_compiled_one(imports):
    script = COMPILED_FIRST.format(imports=imports, backend="aot_eager")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_planning_for_torch_imports_no_torch():
    script = (
        "import sys, einsumx; einsumx.plan('bnid,bnjd->bnij', (2, 3, 4, 5), (2, 3, 6, 5), backend='torch', "
        "device='cuda', dtypes='bfloat16'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# -- threads and devices ----------------------------------------------------------------------------------------


@pytest.fixture
def cuda():
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    return torch.device("cuda:0")


@pytest.mark.gpu
@pytest.mark.parametrize("equation", DIFFERENTIATED)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "complex64", "int8", "int64", "bool"])
def test_cuda_results_are_those_of_the_cpu(cuda, equation, dtype):
    arrays = [torch.randint(0, 3, shape).to(getattr(torch, dtype)) for shape in DIFFERENTIATED[equation]]
    result = einsumx.einsum(equation, *(array.to(cuda) for array in arrays))
    assert result.device == cuda
    # Small integers: every dtype is exact.
    assert torch.equal(result.cpu(), einsumx.einsum(equation, *arrays))


@pytest.mark.gpu
@pytest.mark.parametrize("equation", DIFFERENTIATED)
def test_cuda_gradients_are_right(cuda, equation):
    shapes = DIFFERENTIATED[equation]
    arrays = [torch.randn(shape, dtype=torch.float64, device=cuda, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(lambda *operands: einsumx.einsum(equation, *operands), arrays)


@pytest.mark.gpu
def test_cuda_half_precision_accumulates_wide(cuda):
    ones = torch.ones(2, 4096, dtype=torch.bfloat16, device=cuda)
    assert einsumx.einsum("ij,kj->ik", ones, ones).eq(4096).all()


@pytest.mark.gpu
def test_cuda_and_cpu_tensors_in_one_call_are_an_error(cuda):
    with pytest.raises(einsumx.BackendError, match="cuda:0 and cpu"):
        einsumx.einsum("i,i->", torch.ones(2, device=cuda), torch.ones(2))


@pytest.mark.gpu
@pytest.mark.usefixtures("fresh_compiler")
def test_cuda_compiled_by_inductor(cuda):
    lhs, rhs = torch.rand(2, 3, 4, 5, device=cuda), torch.rand(2, 3, 6, 5, device=cuda)
    function = torch.compile(lambda lhs, rhs: einsumx.einsum("bnid,bnjd->bnij", lhs, rhs), fullgraph=True)
    torch.testing.assert_close(function(lhs, rhs), lhs @ rhs.mT)


def test_a_python_scalar_follows_all_tensors_of_the_call():
    integers, half = torch.arange(3), torch.arange(3, dtype=torch.float16)
    result = einsumx.einsum(",i,i->i", 2.5, integers, half)
    assert result.dtype == torch.float16
    assert result.tolist() == [0, 2.5, 10]
    assert einsumx.einsum(",i->i", 2.5, integers).dtype == torch.float32
    assert einsumx.einsum("i,i->i", [1.0, 2.0, 3.0], half).dtype == torch.float32


# -- unknown sizes --------------------------------------------------------------------------------------------------

DYNAMIC = [
    ("ij,jk->ik", "ij,jk"),
    ("aij,jib->ab", "aij,jib"),
    ("bhqd,bhkd->bhqk", "b4q8,b4k8"),
    ("ij,jk,kl->li", "ij,jk,kl"),
    ("ii->i", "ii"),
    ("ij->", "ij"),
]


def of_sizes(terms, seed):
    """Arrays whose labels have random sizes, all different."""
    rng = np.random.default_rng(seed)
    sizes = dict(zip("abdhijklq", rng.permutation(np.arange(2, 11)).tolist()))
    shapes = [[int(label) if label.isdecimal() else sizes[label] for label in term] for term in terms.split(",")]
    return [torch.from_numpy(rng.standard_normal(shape)) for shape in shapes]


@pytest.mark.parametrize(("equation", "terms"), DYNAMIC, ids=[equation for equation, _ in DYNAMIC])
@pytest.mark.parametrize("patched", [False, True])
def test_one_graph_serves_all_sizes(equation, terms, patched):
    dynamo = import_module("torch._dynamo")
    dynamo.reset()
    counted = import_module("torch._dynamo.testing").CompileCounterWithBackend("aot_eager")
    with einsumx.patch("torch") if patched else nullcontext():
        function = partial(torch.einsum if patched else einsumx.einsum, equation)
        compiled = torch.compile(function, dynamic=True, fullgraph=True, backend=counted)
        for seed in range(3):
            arrays = [array.requires_grad_() for array in of_sizes(terms, seed)]
            expected = torch.functional.einsum(equation, *arrays)
            cotangent = torch.randn_like(expected)
            gradients = torch.autograd.grad(expected, arrays, cotangent)
            result = compiled(*arrays)
            torch.testing.assert_close(result, expected)
            torch.testing.assert_close(torch.autograd.grad(result, arrays, cotangent), gradients)
    assert counted.frame_count == 1


@pytest.mark.parametrize(("equation", "terms"), DYNAMIC, ids=[equation for equation, _ in DYNAMIC])
def test_one_export_serves_all_sizes(equation, terms):
    class Contraction(torch.nn.Module):
        def forward(self, *arrays):
            return einsumx.einsum(equation, *arrays)

    dims = {label: torch.export.Dim(label, min=2, max=100) for label in terms if label.isalpha()}
    shapes = tuple({axis: dims[label] for axis, label in enumerate(term) if label in dims} for term in terms.split(","))
    exported = torch.export.export(Contraction(), tuple(of_sizes(terms, 0)), dynamic_shapes={"arrays": shapes})
    assert "einsum" not in str(exported.graph)
    for seed in (1, 2):
        arrays = of_sizes(terms, seed)
        torch.testing.assert_close(exported.module()(*arrays), torch.einsum(equation, *arrays))


def test_symbolic_traces_of_make_fx_serve_all_sizes():
    make_fx = import_module("torch.fx.experimental.proxy_tensor").make_fx
    for equation, terms in DYNAMIC:
        graph = make_fx(partial(einsumx.einsum, equation), tracing_mode="symbolic")(*of_sizes(terms, 0))
        arrays = of_sizes(terms, 1)
        torch.testing.assert_close(graph(*arrays), torch.einsum(equation, *arrays))


def test_sizes_that_depend_on_values_are_planned():
    class Contraction(torch.nn.Module):
        def forward(self, count, rhs):
            rows = count.item()
            torch._check(rows >= 0)
            lhs = rhs.new_ones((rows, 3, 2))
            return einsumx.einsum("aij,jib->ab", lhs, rhs)

    rhs = torch.rand(2, 3, 5)
    exported = torch.export.export(Contraction(), (torch.tensor(4), rhs))
    for rows in (7, 1, 0):
        expected = torch.einsum("aij,jib->ab", torch.ones(rows, 3, 2), rhs)
        torch.testing.assert_close(exported.module()(torch.tensor(rows), rhs), expected)


def test_out_of_unknown_size_is_written_and_checked():
    import_module("torch._dynamo").reset()
    function = torch.compile(
        lambda lhs, rhs, out: einsumx.einsum("ij,jk->ik", lhs, rhs, out=out, alpha=2, beta=1),
        dynamic=True, fullgraph=True, backend="eager",
    )  # fmt: skip
    for rows in (3, 6):
        out = torch.ones(rows, 5)
        function(torch.ones(rows, 2), torch.ones(2, 5), out)
        assert (out == 5).all()
    with pytest.raises(Exception, match="out= has another size than the result along axis 0"):
        function(torch.ones(3, 2), torch.ones(2, 5), torch.ones(7, 5))


def test_an_expression_of_unknown_sizes_is_one_graph():
    import_module("torch._dynamo").reset()
    counted = import_module("torch._dynamo.testing").CompileCounterWithBackend("eager")
    expression = einsumx.expression("ij,jk->ik", (None, 3), (3, 4))
    compiled = torch.compile(expression, dynamic=True, fullgraph=True, backend=counted)
    for rows in (5, 6, 9):
        assert (compiled(torch.ones(rows, 3), torch.ones(3, 4)) == torch.full((rows, 4), 3.0)).all()
    assert counted.frame_count == 1
