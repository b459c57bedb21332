"""PyTorch's adapter: plans, dtypes, dense tensors only, autograd, torch.func, torch.compile, threads, devices."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch._subclasses.fake_tensor as fake_tensors  # noqa: E402
import torch.fx.experimental.proxy_tensor as proxies  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

import einsumx  # noqa: E402
from einsumx.backends.torch import ADAPTER  # noqa: E402
from einsumx.ir.ops import Matmul  # noqa: E402

EQUATIONS = {
    "bind,bjnd->bnij": [(2, 3, 2, 2), (2, 2, 2, 2)],
    "ij,jk,kl->li": [(2, 3), (3, 2), (2, 3)],
    "iij,j->i": [(3, 3, 2), (2,)],
    "ij,ij->i": [(1, 4), (2, 4)],
}


@pytest.fixture(autouse=True)
def generator():
    return torch.manual_seed(0)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


def calls(plan):
    """The names of a plan's ops."""
    return [type(op).__name__ for op in plan.ops]


# -- plans ------------------------------------------------------------------------------------------------------


def test_a_transposed_matrix_is_read_where_it_lies():
    plan = einsumx.plan("ji,jk->ik", torch.rand(4, 3), torch.rand(4, 5))
    assert calls(plan) == ["Transpose", "Matmul"]


def test_heads_behind_positions_are_read_where_they_lie():
    plan = einsumx.plan("bind,bjnd->bnij", torch.rand(2, 400, 8, 64), torch.rand(2, 600, 8, 64))
    assert calls(plan) == ["Transpose", "Transpose", "Matmul"]


def test_a_tiny_product_with_two_batch_axes_reads_no_matrix_that_torch_copies():
    """One batch axis alone: torch multiplies tiny matrices with any strides in loops of its own."""
    of_two = einsumx.plan("ad,deab->abe", (2, 2), (2, 2, 2, 2), backend="torch", dtypes="int32")
    assert "Copy" in calls(of_two)
    of_one = einsumx.plan("bc,cXb->bX", (2, 2), (2, 2, 2), backend="torch", dtypes="int32")
    assert calls(of_one) == ["Reshape", "Transpose", "Matmul", "Reshape"]


def test_half_precision_is_computed_in_float32_on_the_cpu_and_as_it_is_on_cuda():
    shapes = (3, 4), (4, 5)
    on_cpu = einsumx.plan("ij,jk->ik", *shapes, backend="torch", device="cpu", dtypes="float16")
    on_cuda = einsumx.plan("ij,jk->ik", *shapes, backend="torch", device="cuda:0", dtypes="float16")
    assert calls(on_cpu) == ["Cast", "Cast", "Matmul", "Cast"]
    assert calls(on_cuda) == ["Matmul"]


# -- results ----------------------------------------------------------------------------------------------------


def test_an_outer_product_of_transposed_operands_feeds_the_next_product():
    # An elementwise result of torch keeps its operands' order in memory, which the plan does not rely on.
    first, second = torch.rand(3, 2).mT, torch.rand(4, 5).mT
    last = torch.rand(2, 3, 5, 4, 2)
    result = einsumx.einsum("ij,kl,ijklm->mk", first, second, last, optimize=[(0, 1), (0, 1)])
    expected = (first[:, :, None, None, None] * second[:, :, None] * last).sum((0, 1, 3)).mT
    torch.testing.assert_close(result, expected)


def test_a_parameter_gives_a_plain_tensor():
    weight = torch.nn.Parameter(torch.rand(3, 4))
    result = einsumx.einsum("ij,bj->bi", weight, torch.rand(2, 4))
    assert type(result) is torch.Tensor
    assert result.requires_grad


# -- dtypes -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_complex32_is_computed_in_complex64():
    array = torch.rand(3, 4, dtype=torch.complex64).to(torch.complex32)
    result = einsumx.einsum("ij,kj->ik", array, array)
    wide = array.to(torch.complex64)
    assert result.dtype is torch.complex32
    assert torch.equal(torch.view_as_real(result), torch.view_as_real((wide @ wide.mT).to(torch.complex32)))


@pytest.mark.parametrize(
    ("value", "dtype", "promoted"),
    [
        (2.5, torch.int8, torch.float32),
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


def test_a_python_scalar_follows_all_tensors_of_the_call():
    result = einsumx.einsum(",i,i->i", 2.5, torch.arange(3), torch.arange(3, dtype=torch.float16))
    assert result.dtype == torch.float16
    assert result.tolist() == [0, 2.5, 10]


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


WRITING = {
    "a product": lambda matrix, out: einsumx.einsum("ij,jk->ik", matrix, matrix, out=out),
    "a rearrangement": lambda matrix, out: einsumx.einsum("ij->ji", matrix, out=out),
    "a limit": lambda matrix, out: einsumx.einsum("ij,jk->ik", matrix, matrix, out=out, memory_limit=10_000),
    "addeinsum": lambda matrix, out: einsumx.addeinsum(out, "ij,jk->ik", matrix, matrix, out=out),
}


@pytest.mark.parametrize("write", WRITING.values(), ids=WRITING)
def test_an_out_of_inference_mode_is_an_error_outside_of_it(write):
    with torch.inference_mode():
        out = torch.zeros(2, 2)
    matrix = torch.ones(2, 2)
    for _ in range(2):
        with pytest.raises(einsumx.BackendError, match=r"out= was made in inference mode.*pass out\.clone\(\)"):
            write(matrix, out)
    with torch.inference_mode():
        assert write(matrix, out) is out
    assert out.gt(0).all()


@pytest.mark.parametrize("write", WRITING.values(), ids=WRITING)
@pytest.mark.parametrize("strides", [(0, 1), (1, 1), (2, 2), (1, 0)])
def test_an_out_whose_elements_share_places_is_an_error(write, strides):
    base = torch.zeros(9)
    for _ in range(2):
        with pytest.raises(einsumx.BackendError, match="its elements share memory"):
            write(torch.ones(2, 2), base.as_strided((2, 2), strides))
    assert base.eq(0).all()


@pytest.mark.parametrize(("shape", "strides"), [((2, 2), (2, 3)), ((2, 2), (1, 5)), ((1, 2), (0, 3)), ((0, 2), (0, 0))])
def test_an_out_of_unusual_strides_is_written(shape, strides):
    ones, out = torch.ones(shape), torch.zeros(9).as_strided(shape, strides)
    assert einsumx.einsum("ij,ij->ij", ones, ones, out=out) is out
    assert out.eq(1).all()


def mapped_by_torch(path, count):
    return torch.from_file(path, shared=True, size=count, dtype=torch.float64)


def mapped_by_numpy(path, count):
    return torch.from_numpy(np.memmap(path, "float64", "r+", shape=(count,)))


@pytest.mark.parametrize("size", [4, 400])
@pytest.mark.parametrize("mapped", [mapped_by_torch, mapped_by_numpy])
def test_an_out_in_the_file_of_an_operand_has_the_same_values(tmp_path, size, mapped):
    """Whether the file is so small that its copy takes less time than a look at what is mapped, or larger."""
    path = str(tmp_path / "file")
    values = np.random.default_rng(0).integers(0, 9, (size, size)).astype("float64")
    ones = torch.ones(size, size, dtype=torch.float64)
    for _ in range(2):
        values.tofile(path)
        operand, out = (mapped(path, size * size).view(size, size) for _ in range(2))
        assert einsumx.einsum("ij->ji", operand, out=out).numpy().tolist() == values.T.tolist()
        values.tofile(path)
        expected = (values + values @ ones.numpy()).tolist()
        assert einsumx.addeinsum(out, "ij,jk->ik", operand, ones, out=out).numpy().tolist() == expected


def test_an_out_in_the_shared_memory_of_an_operand_has_the_same_values():
    operand = torch.arange(9.0).view(3, 3).share_memory_()
    handle = operand.untyped_storage()._share_fd_cpu_()
    out = torch.empty(0).set_(torch.UntypedStorage._new_shared_fd_cpu(*handle)).view(3, 3)
    assert einsumx.einsum("ij->ji", operand, out=out).tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not say what is mapped")
def test_other_parts_of_a_file_do_not_count_as_overlapping(tmp_path):
    np.zeros((800, 400)).tofile(tmp_path / "file")
    first, second = (mapped_by_torch(str(tmp_path / "file"), 800 * 400).view(2, 400, 400) for _ in range(2))
    assert ADAPTER.out.may_overlap(first[0], second[0])
    assert not ADAPTER.out.may_overlap(first[0], second[1])


@pytest.mark.filterwarnings("ignore:Creating an ndarray from ragged")
def test_tensors_in_one_list_are_an_error_that_says_how_they_are_passed():
    tensors = [torch.ones(2, 3, requires_grad=True), torch.ones(3, 4)]
    with pytest.raises(einsumx.EinsumxError, match=r"einsum\(equation, \*arrays\)|2 subscripts but 1 operand"):
        einsumx.einsum("ij,jk->ik", tensors)


# -- derivatives and transforms ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
@pytest.mark.parametrize("equation", EQUATIONS)
def test_derivatives_forward_and_in_batches_are_right(equation):
    dtype = torch.complex128 if equation == "ij,jk,kl->li" else torch.float64
    arrays = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in EQUATIONS[equation]]
    assert torch.autograd.gradcheck(
        lambda *operands: einsumx.einsum(equation, *operands), arrays, check_forward_ad=True, check_batched_grad=True
    )


def test_inference_mode():
    with torch.inference_mode():
        result = einsumx.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(3, 2))
    assert result.is_inference()
    assert result.eq(3).all()


ignores_jit_trace = pytest.mark.filterwarnings(
    "ignore:.torch.jit:DeprecationWarning", "ignore:Converting a tensor:torch.jit.TracerWarning"
)

CONTEXTS = {
    "inference mode": torch.inference_mode,
    "autocast": partial(torch.autocast, "cpu", dtype=torch.bfloat16),
    "no_grad": torch.no_grad,
    "a default device": partial(torch.device, "meta"),
    "fake tensors": partial(fake_tensors.FakeTensorMode, allow_non_fake_inputs=True),
}
"""Contexts in which torch records, casts or computes otherwise."""


def traced_by_jit(function, array):
    def traced(array):  # torch names the trace after it
        return function(array)

    return torch.jit.trace(traced, (array,))


TRANSFORMS = {
    "vmap": lambda function, array: torch.func.vmap(function)(array[None]),
    "grad": lambda function, array: torch.func.grad(lambda array: function(array).sum())(array),
    "hessian": lambda function, array: torch.func.hessian(lambda array: function(array).square().sum())(array),
    "functionalize": lambda function, array: torch.func.functionalize(function)(array),
    "make_fx": lambda function, array: proxies.make_fx(function)(array),
    "make_fx of fake tensors": lambda function, array: proxies.make_fx(
        function, tracing_mode="fake", _allow_non_fake_inputs=True
    )(array),
    "jit.trace": traced_by_jit,
}
"""Functions that call a function while something traces it."""


def within(name):
    """A function that calls a function of an array in the context, or through the transform, of that name."""
    if name in TRANSFORMS:
        return TRANSFORMS[name]

    def run(function, array):
        with CONTEXTS[name]():
            return function(array)

    return run


@ignores_jit_trace
@pytest.mark.parametrize("name", [*CONTEXTS, *TRANSFORMS])
def test_an_expression_keeps_nothing_of_the_context_of_its_first_call(name):
    array, weights, more = torch.rand(3, 4), torch.rand(4, 5), torch.rand(5, 2)
    chain = einsumx.expression("ij,jk,kl->il", (3, 4), weights, more, optimize=[(1, 2), (0, 1)])
    diagonal = einsumx.expression("ij,jkk->i", (3, 4), torch.ones(4, 2, 2))
    leaf = array.clone().requires_grad_()
    for call, factor in ((chain, weights @ more), (diagonal, torch.full((4, 1), 2.0))):
        for _ in range(2):
            within(name)(call, array)
        result = call(leaf).reshape(3, -1)
        torch.testing.assert_close(result, array @ factor)
        assert type(result) is torch.Tensor
        (gradient,) = torch.autograd.grad(result.sum(), leaf)
        torch.testing.assert_close(gradient, factor.sum(1).expand(3, 4))


@pytest.mark.parametrize("name", ["inference mode", "autocast", "a default device", "vmap", "grad"])
def test_constants_are_folded_once_in_every_context(name, monkeypatch):
    kernel, products = ADAPTER.kernel, []

    def counted(op, shapes, dtype):
        run = kernel(op, shapes, dtype)
        return (lambda *arrays: products.append(op) or run(*arrays)) if isinstance(op, Matmul) else run

    monkeypatch.setattr(ADAPTER, "kernel", counted)
    array, weights, more = torch.rand(30, 40), torch.rand(40, 50), torch.rand(50, 20)
    call = einsumx.expression("ij,jk,kl->il", (30, 40), weights, more, optimize=[(1, 2), (0, 1)])
    for _ in range(3):
        within(name)(call, array)
    assert len(products) == 1 + 3


def test_a_constant_stays_one_when_gradients_are_recorded_later():
    weights = torch.nn.Parameter(torch.rand(4, 5))
    with torch.no_grad():
        single = einsumx.expression("ij,jk->ik", (3, 4), weights)
        chain = einsumx.expression("ij,jk,lk->il", (3, 4), weights, weights, optimize=[(1, 2), (0, 1)])
    for call in (single, chain):
        for _ in range(2):
            leaf = torch.rand(3, 4, requires_grad=True)
            call(leaf).sum().backward()
    assert weights.grad is None
    torch.testing.assert_close(leaf.grad, (weights @ weights.mT).sum(1).expand(3, 4).detach())


@ignores_jit_trace
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,jk,kl->il"])
def test_integers_from_outside_of_a_trace_are_multiplied_there(name, equation):
    arrays = [torch.randint(-9, 9, (size, size + 1)) for size in (60, 61, 62)][: equation.count(",") + 1]
    expected = torch.linalg.multi_dot([array.double() for array in arrays]).long()
    found = []

    def traced(array):
        found.append(einsumx.einsum(equation, *arrays) * array)
        return found[-1].sum() if name in ("grad", "hessian") else found[-1]

    result = within(name)(traced, torch.ones(()))
    if name in ("make_fx", "jit.trace"):
        torch.testing.assert_close(result(torch.ones(())), expected.float())
    torch.testing.assert_close(einsumx.einsum(equation, *arrays), expected)


@ignores_jit_trace
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int8])
def test_a_trace_of_torch_jit_has_the_sizes_of_its_operands(dtype):
    arrays = [torch.randint(-3, 4, shape).to(dtype) for shape in ((3, 40), (40, 50), (50, 2))]
    traced = torch.jit.trace(lambda *arrays: einsumx.einsum("ij,jk,kl->li", *arrays), tuple(arrays))
    others = [array + 1 for array in arrays]
    torch.testing.assert_close(traced(*others), (others[0] @ others[1] @ others[2]).mT)


def test_functionalized_tensors_are_read_by_torch_alone():
    """They are plain tensors by their type, and have the address of nothing."""
    lhs, rhs = torch.rand(30, 40), torch.rand(40, 50)
    functionalize = torch.func.functionalize
    argmax = partial(einsumx.semirings.max_plus.argmax, "ij,jk->ik")
    assert torch.equal(functionalize(lambda lhs: argmax(lhs, rhs)[1]["j"])(lhs), argmax(lhs, rhs)[1]["j"])
    log = partial(einsumx.semirings.log.einsum, "ij,jk->ik")
    torch.testing.assert_close(functionalize(log)(lhs, rhs), log(lhs, rhs))
    limited = partial(einsumx.einsum, "ij,jk->ik", memory_limit="20 kB")
    torch.testing.assert_close(functionalize(lambda lhs: limited(lhs, rhs))(lhs), lhs @ rhs)


def test_jacobians_of_sums_of_nothing_are_zeros():
    func = torch.func
    assert func.jacfwd(partial(einsumx.einsum, "i->"))(torch.zeros(0)).shape == (0,)
    assert func.hessian(lambda array: einsumx.einsum("i,i->", array, array))(torch.zeros(0)).shape == (0, 0)
    for jacobian in (func.jacfwd, func.jacrev):
        result = jacobian(lambda array: einsumx.einsum("ij,jk->ik", array, torch.zeros(0, 4)))(torch.zeros(3, 0))
        assert result.shape == (3, 4, 3, 0)
    result = func.jacfwd(lambda array: einsumx.einsum("j,ij->j", array, torch.zeros(0, 3)))(torch.ones(3))
    assert torch.equal(result, torch.zeros(3, 3))


def test_meta_and_fake_tensors_give_shape_and_dtype_without_memory():
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    huge = torch.empty(10**6, 10**6, device="meta", dtype=torch.float16)
    result = einsumx.einsum("ij,kj->ki", huge, huge)
    assert (result.shape, result.dtype, result.device.type) == ((10**6, 10**6), torch.float16, "meta")
    with FakeTensorMode():
        fake = einsumx.einsum("ij,jk->ki", torch.rand(3, 4), torch.rand(4, 5))
    assert isinstance(fake, FakeTensor)
    assert fake.shape == (5, 3)
    mantissa, exponent = einsumx.einsum_frexp("ij,jk->ik", huge, huge)
    assert (mantissa.shape, mantissa.dtype, exponent.dtype) == ((10**6, 10**6), torch.float16, torch.int64)


@pytest.mark.parametrize("equation", ["i,i->", "ij,ji->", "i,i,i->", "ij,j->i", "i,j->ij", "ii->"])
def test_gradients_of_an_empty_batch_have_its_shapes(equation):
    """As torch.einsum's; torch.dot has none."""
    terms = equation.partition("->")[0].split(",")
    arrays = [torch.ones((0, *[3] * len(term))) for term in terms]
    derive = torch.func.grad(lambda *given: einsumx.einsum(equation, *given).sum(), argnums=tuple(range(len(terms))))
    assert [each.shape for each in torch.func.vmap(derive)(*arrays)] == [array.shape for array in arrays]


# -- expanded operands ------------------------------------------------------------------------------------------

EXPANDED = {
    "bhqd,bhqkd->bhqk": [(2, 3, 2, 4), (1, 3, 1, 5, 4)],
    "bij,bjk->bik": [(1, 3, 4), (3, 4, 2)],
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


def recorded(function, arrays):
    leaves = [array.detach().requires_grad_() for array in arrays]
    return torch.autograd.grad(function(*leaves).sum(), leaves)


def in_vmap(function):
    mapped = torch.func.vmap(function)
    return lambda *arrays: mapped(*[array[None] for array in arrays])


WAYS = {
    "backward": recorded,
    "vjp": lambda function, arrays: torch.func.vjp(lambda *given: function(*given).sum(), *arrays)[1](
        torch.tensor(1.0)
    ),
    "backward of vmap": lambda function, arrays: recorded(in_vmap(function), arrays),
    "grad of vmap": lambda function, arrays: torch.func.grad(
        lambda *given: in_vmap(function)(*given).sum(), argnums=tuple(range(len(arrays)))
    )(*arrays),
    "compiled": lambda function, arrays: recorded(compiled(function), arrays),
}
"""Ways to differentiate the sum of a function's result."""


@pytest.mark.parametrize("way", WAYS)
def test_derivatives_by_expanded_tensors_are_those_of_every_element(way):
    for equation in list(EXPANDED)[: 1 if way == "compiled" else None]:
        arrays = expanded(equation)
        assert any(0 in array.stride() for array in arrays)
        wanted = recorded(partial(torch.einsum, equation), [array.contiguous() for array in arrays])
        found = WAYS[way](partial(einsumx.einsum, equation), arrays)
        torch.testing.assert_close(found, wanted)


def test_an_expanded_operand_is_not_copied_for_a_result_that_is_not_recorded():
    """Strides of zero would make derivatives wrong; without one, a plan reads the elements that are there."""
    shared, other = torch.rand(3, 1, 5).expand(3, 4, 5), torch.rand(3, 5, 2)
    leaf = shared.detach().requires_grad_()
    assert einsumx.plan("bij,bjk->bik", shared, other) != einsumx.plan("bij,bjk->bik", leaf, other)
    with torch.no_grad():
        assert einsumx.plan("bij,bjk->bik", leaf, other) == einsumx.plan("bij,bjk->bik", shared, other)


# -- torch.compile ----------------------------------------------------------------------------------------------


def compiled(function, **options):
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


def test_compiled_keywords_sublists_and_scalars():
    lhs, rhs = torch.rand(3, 4), torch.rand(4, 5)

    def function(lhs, rhs):
        first = einsumx.einsum(lhs, [0, 1], rhs, [1, 2], [0, 2], dtype=torch.float64, order="F")
        return first + einsumx.einsum("ij,jk,->ik", lhs, rhs, 2.0, optimize=[(0, 1), (0, 1)])

    result = compiled(function)(lhs, rhs)
    assert result.dtype is torch.float64
    torch.testing.assert_close(result, 3 * (lhs @ rhs).double(), rtol=1e-6, atol=1e-6)


def test_a_graph_contains_a_call_with_a_memory_limit():
    def around(lhs, rhs):
        return einsumx.einsum("ij,jk->ik", lhs + 1, rhs, memory_limit="1 MB") * 2

    torch._dynamo.utils.counters.clear()
    assert torch.compile(around, backend="eager")(torch.ones(3, 4), torch.ones(4, 5)).eq(16).all()
    frames = torch._dynamo.utils.counters["frames"]["total"]
    assert frames == 1


def test_compiled_out_is_written():
    lhs, rhs, out = torch.rand(3, 4), torch.rand(4, 5), torch.zeros(3, 5)

    def function(lhs, rhs, out):
        einsumx.einsum("ij,jk->ik", lhs, rhs, out=out)
        return out + 1

    torch.testing.assert_close(compiled(function)(lhs, rhs, out), lhs @ rhs + 1)
    torch.testing.assert_close(out, lhs @ rhs)


def test_compiled_with_changing_sizes_that_operands_share():
    function = compiled(lambda lhs, rhs: einsumx.einsum("ij,jk->ik", lhs, rhs), dynamic=True)
    for size in (2, 3, 7):
        lhs = torch.rand(size, 4)
        torch.testing.assert_close(function(lhs, lhs.T), lhs @ lhs.T)


@pytest.mark.long
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_vmap_and_grad(dynamic):
    rhs = torch.rand(4, 5)
    mapped = compiled(torch.func.vmap(lambda lhs: einsumx.einsum("ij,jk->ik", lhs, rhs)), dynamic=dynamic)
    lhs = torch.rand(6, 3, 4)
    torch.testing.assert_close(mapped(lhs), lhs @ rhs)
    gradient = compiled(torch.func.grad(lambda lhs: einsumx.einsum("ij,jk->", lhs, rhs)), dynamic=dynamic)
    torch.testing.assert_close(gradient(lhs[0]), rhs.sum(1).expand(3, 4))


def test_compiled_expression_of_sublists_with_a_constant():
    weight = torch.rand(5, 6)
    expression = einsumx.expression((3, 4), [0, 1], (4, 5), [1, 2], weight, [2, 3], [0, 3])
    lhs, rhs = torch.rand(3, 4), torch.rand(4, 5)
    torch.testing.assert_close(compiled(lambda lhs, rhs: expression(lhs, rhs) + 0)(lhs, rhs), lhs @ rhs @ weight)


NUMBERS = {
    "float": (2.5, 3.0, -1.5, 0.0),
    "int": (2, 3, 7, 0),
    "bool": (True, False, True),
    "complex": (1j, 2 + 1j),
}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
def test_compiled_numbers_that_change_from_call_to_call(kind, dtype):
    tensor = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    product = lambda number, tensor: einsumx.einsum(",ij,->ij", number, tensor, 2)  # noqa: E731
    function = compiled(product)
    for number in NUMBERS[kind]:
        found, expected = function(number, tensor), tensor * number * 2
        assert found.dtype == product(number, tensor).dtype
        assert found.tolist() == expected.tolist()


def test_one_graph_serves_all_numbers():
    counted = CompileCounterWithBackend("aot_eager")
    function = torch.compile(partial(einsumx.einsum, ",i,->i"), fullgraph=True, dynamic=True, backend=counted)
    tensor = torch.ones(3, requires_grad=True)
    for number in (2.5, 3.5, -1.5):
        result = function(number, tensor, 2)
        assert result.tolist() == [2 * number] * 3
        assert torch.autograd.grad(result.sum(), tensor)[0].tolist() == [2 * number] * 3
    assert counted.frame_count == 1


def test_compiled_numbers_that_a_dtype_does_not_hold_wrap_as_they_do_uncompiled():
    tensor = torch.ones(2, dtype=torch.int8)
    function = compiled(partial(einsumx.einsum, ",i->i"), dynamic=True)
    for number in (300, 200, -130):
        assert function(number, tensor).tolist() == einsumx.einsum(",i->i", number, tensor).tolist()


def scaled_by_sizes(tensor):
    rows, columns = tensor.shape
    return einsumx.einsum(",ij,j,->ij", rows, tensor, [1 / columns, rows, 2.0], rows / columns)


@pytest.mark.parametrize("way", ["compile", "export", "strict export", "make_fx"])
def test_sizes_of_tensors_are_operands_of_a_graph_for_all_sizes(way):
    class Scaled(torch.nn.Module):
        def forward(self, tensor):
            return scaled_by_sizes(tensor)

    dims = {"tensor": {0: torch.export.Dim("rows", min=2)}}
    match way:
        case "compile":
            function = compiled(scaled_by_sizes, dynamic=True)
        case "make_fx":
            function = proxies.make_fx(scaled_by_sizes, tracing_mode="symbolic")(torch.ones(5, 3))
        case _:
            strict = way == "strict export"
            exported = torch.export.export(Scaled(), (torch.ones(5, 3),), dynamic_shapes=dims, strict=strict)
            function = exported.module()
    for rows in (5, 4, 7):
        expected = rows * torch.tensor([1 / 3, rows, 2.0]) * rows / 3
        torch.testing.assert_close(function(torch.ones(rows, 3)), expected.expand(rows, 3))


@pytest.mark.long
def test_compiled_lists_are_tensors_at_the_first_call():
    tensor = torch.arange(6.0).reshape(2, 3)

    def function(tensor, weights):
        row = einsumx.einsum("j,ij->i", weights, tensor) + einsumx.einsum("ij,ij->i", tensor, [[1, 2, 3], [4, 5, 6]])
        row += einsumx.tensordot(tensor, [1.0, 2.0, 3.0], 1) + einsumx.tensordot(tensor[:, 0], 2, 0)
        row += einsumx.semirings.max_plus.einsum("ij,j->i", tensor, [0.0, 1.0, 2.0])
        return einsumx.addeinsum([1.0, 2.0], "i->i", row)

    for weights in ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], (1, 1, 1)):
        torch.testing.assert_close(compiled(function)(tensor, weights), function(tensor, weights))


def test_a_number_of_unknown_value_is_an_operand():
    class Scaled(torch.nn.Module):
        def forward(self, factor, tensor):
            return einsumx.einsum(",i->i", factor.item(), tensor)

    exported = torch.export.export(Scaled(), (torch.tensor(2.0), torch.ones(3)))
    assert exported.module()(torch.tensor(5.0), torch.ones(3)).tolist() == [5.0] * 3


PLANS = {
    "of torch": {"backend": "torch"},
    "of NumPy": {},
    "accumulate": {"backend": "torch", "accumulate": "float64"},
    "dtype": {"backend": "torch", "dtype": "float64"},
    "path": {"backend": "torch", "optimize": [(0, 1)]},
}


@pytest.mark.long
@pytest.mark.parametrize("kind", PLANS)
def test_compiled_and_exported_calls_of_plans(kind):
    plan = einsumx.plan("ij,jk->ik", (3, 4), (4, 5), dtypes="float32", **PLANS[kind])
    lhs, rhs = torch.rand(3, 4, requires_grad=True), torch.rand(4, 5)
    expected = plan(lhs, rhs)
    assert expected.dtype == getattr(torch, plan.dtype)

    class Planned(torch.nn.Module):
        def forward(self, lhs, rhs):
            return plan(lhs, rhs) + 1

    exported = torch.export.export(Planned(), (lhs, rhs), strict=True).module()
    for found in (compiled(Planned())(lhs, rhs) - 1, compiled(plan)(lhs, rhs), exported(lhs, rhs) - 1):
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(
            *(torch.autograd.grad(each.sum(), lhs, retain_graph=True) for each in (found, expected))
        )


def test_compiled_plans_of_a_semiring_and_of_unknown_sizes():
    lhs, rhs = torch.rand(3, 4), torch.rand(4, 5)
    best = einsumx.semirings.max_plus.plan("ij,jk->ik", (3, 4), (4, 5), dtypes="float32")
    torch.testing.assert_close(compiled(best)(lhs, rhs), (lhs[..., None] + rhs).amax(1))
    of_any_size = einsumx.plan("ij,jk->ik", (None, 4), (4, 5), dtypes="float32")
    function = compiled(of_any_size, dynamic=True)
    for rows in (3, 6):
        torch.testing.assert_close(function(torch.ones(rows, 4), rhs), rhs.sum(0).expand(rows, 5))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_plan_takes_no_other_sizes_or_dtypes(dynamic):
    plan = einsumx.plan("ij,jk->ik", (3, 4), (4, 5), dtypes="float32", backend="torch")
    function = compiled(plan, dynamic=dynamic)
    torch.testing.assert_close(function(torch.ones(3, 4), torch.ones(4, 5)), torch.full((3, 5), 4.0))
    for shape, dtype, message in (
        ((6, 4), torch.float32, "operand 0 has (shape|another size along axis 0)"),
        ((3, 4), torch.float64, "operand 0 has dtype float64, but the plan is for float32"),
    ):
        with pytest.raises(Exception, match=message):
            function(torch.ones(shape, dtype=dtype), torch.ones(4, 5))


BETWEEN_GRAPHS = {
    "a plan": lambda lhs, rhs: einsumx.plan("ij,jk->ik", lhs, rhs)(lhs, rhs),
    "its memory": lambda lhs, rhs: lhs @ rhs + einsumx.plan("ij,jk->ik", lhs, rhs).peak_bytes,
    "an expression": lambda lhs, rhs: einsumx.expression("ij,jk->ik", lhs.shape, rhs)(lhs),
    "a path": lambda lhs, rhs: lhs @ rhs + einsumx.einsum_path("ij,jk->ik", lhs, rhs)[0][1][1],
    "a semiring's plan": lambda lhs, rhs: einsumx.semirings.max_plus.plan("ij,jk->ik", lhs, rhs)(lhs, rhs),
    "argmax": lambda lhs, rhs: einsumx.semirings.max_plus.argmax("ij,jk->ik", lhs, rhs).positions["j"],
    "a limit": lambda lhs, rhs: einsumx.einsum("ij,jk->ik", lhs, rhs, memory_limit=0.5),
    "numbers": lambda lhs, rhs: lhs @ rhs + float(einsumx.einsum("i,i->", [1.0, 2.0], [3.0, 4.0])),
}


@pytest.mark.long
@pytest.mark.parametrize("what", BETWEEN_GRAPHS)
@pytest.mark.filterwarnings("ignore")  # of what torch.compile meets outside of the graph
def test_what_is_computed_between_graphs(what):
    """Also without an error of what torch.compile meets there, and with a reason where a graph must not end."""
    function = BETWEEN_GRAPHS[what]
    lhs, rhs = torch.rand(3, 4), torch.rand(4, 5)
    torch.testing.assert_close(torch.compile(function, backend="eager")(lhs, rhs), function(lhs, rhs))
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"einsumx makes plans and expressions, measures, .* outside of graphs"):
        compiled(function)(lhs, rhs)


def test_numpy_arrays_in_a_compiled_function_are_contracted_by_numpys_rules():
    numbers = np.arange(4, dtype="int32"), np.full(4, 0.5, "float32")
    result = torch.compile(partial(einsumx.einsum, "i,i->"), backend="eager")(*numbers)
    assert isinstance(result, np.ndarray | np.generic)
    assert (result.dtype, float(result)) == (np.dtype("float64"), 3.0)


def test_argmax_is_exported():
    class Best(torch.nn.Module):
        def forward(self, lhs, rhs):
            value, positions = einsumx.semirings.max_plus.argmax("ij,jk->ik", lhs, rhs)
            return value, positions["j"]

    lhs, rhs = torch.rand(3, 4), torch.rand(4, 5)
    exported = torch.export.export(Best(), (lhs, rhs), strict=False).module()
    terms = torch.rand(3, 4)[..., None] + rhs
    for found, expected in zip(exported(lhs, rhs), (lhs[..., None] + rhs).max(1)):
        torch.testing.assert_close(found, expected)
    assert [each.shape for each in exported(terms[..., 0], rhs)] == [(3, 5)] * 2


@pytest.mark.long
def test_one_graph_serves_all_factors():
    counted = CompileCounterWithBackend("aot_eager")
    lhs, rhs, c = torch.rand(2, 300), torch.rand(300, 2), torch.rand(2, 2, dtype=torch.float64)
    added = lambda alpha, beta: einsumx.addeinsum(c, "ij,jk->ik", lhs, rhs, alpha=alpha, beta=beta)  # noqa: E731
    function = torch.compile(added, fullgraph=True, dynamic=True, backend=counted)
    for alpha, beta in ((2.5, 0.5), (1.25, -3.5), (-0.1, 7.7)):
        expected = alpha * (lhs.double() @ rhs.double()) + beta * c
        torch.testing.assert_close(function(alpha, beta), expected, rtol=1e-5, atol=1e-5)
    assert counted.frame_count == 1


def test_a_factor_that_has_no_value_in_a_graph_says_what_to_do():
    function = torch.compile(
        lambda c, factor: einsumx.addeinsum(c, "i->i", c, alpha=factor), fullgraph=True, backend="eager"
    )
    with pytest.raises(
        Exception, match=r"alpha= must be a number, and this .* has no value yet; multiply the result by it"
    ):
        function(torch.ones(3), torch.tensor(2.0))


def test_symbolic_traces_of_tensordot_and_transpose_serve_all_sizes():
    graph = proxies.make_fx(
        lambda lhs, rhs: einsumx.transpose(einsumx.tensordot(lhs, rhs, 1)), tracing_mode="symbolic"
    )(torch.rand(2, 3), torch.rand(3, 4))
    lhs, rhs = torch.rand(5, 6), torch.rand(6, 7)
    torch.testing.assert_close(graph(lhs, rhs), (lhs @ rhs).T)


# -- unknown sizes --------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_one_graph_of_patched_einsum_serves_all_sizes():
    counted = CompileCounterWithBackend("aot_eager")
    with einsumx.patched("torch"):
        function = torch.compile(partial(torch.einsum, "aij,jib->ab"), dynamic=True, fullgraph=True, backend=counted)
        for a, i, j, b in ((2, 3, 4, 5), (7, 6, 3, 4), (5, 2, 9, 8)):
            lhs, rhs = torch.rand(a, i, j, requires_grad=True), torch.rand(j, i, b)
            result, expected = function(lhs, rhs), lhs.mT.flatten(1) @ rhs.flatten(0, 1)
            torch.testing.assert_close(result, expected)
            found, wanted = (torch.autograd.grad(each.sum(), lhs) for each in (result, expected))
            torch.testing.assert_close(found, wanted)
    assert counted.frame_count == 1


@pytest.mark.long
@pytest.mark.parametrize("equation", ["aij,jib->ab", "bhqd,bhkd->bhqk", "ij,jk,kl->li", "ii->i"])
def test_symbolic_traces_of_make_fx_serve_all_sizes(equation):

    def arrays(first):
        sizes = {label: first + place for place, label in enumerate(sorted(set(equation) - set(",->")))}
        return [torch.rand([sizes[label] for label in term]) for term in equation.partition("->")[0].split(",")]

    graph = proxies.make_fx(partial(einsumx.einsum, equation), tracing_mode="symbolic")(*arrays(2))
    others = arrays(3)
    torch.testing.assert_close(graph(*others), torch.einsum(equation, *others))


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
    function = torch.compile(
        lambda lhs, rhs, out: einsumx.addeinsum(out, "ij,jk->ik", lhs, rhs, alpha=2, out=out),
        dynamic=True, fullgraph=True, backend="eager",
    )  # fmt: skip
    for rows in (3, 6):
        out = torch.ones(rows, 5)
        function(torch.ones(rows, 2), torch.ones(2, 5), out)
        assert (out == 5).all()
    with pytest.raises(Exception, match="out= has another size than the result along axis 0"):
        function(torch.ones(3, 2), torch.ones(2, 5), torch.ones(7, 5))


def test_an_expression_of_unknown_sizes_is_one_graph():
    counted = CompileCounterWithBackend("eager")
    expression = einsumx.expression("ij,jk->ik", (None, 3), (3, 4))
    compiled = torch.compile(expression, dynamic=True, fullgraph=True, backend=counted)
    for rows in (5, 6, 9):
        assert (compiled(torch.ones(rows, 3), torch.ones(3, 4)) == torch.full((rows, 4), 3.0)).all()
    assert counted.frame_count == 1


def test_out_may_have_the_memory_of_an_operand_in_a_storage_of_its_own():
    numbers = np.arange(110, dtype="float32")
    lhs, out = torch.from_numpy(numbers[:100]).reshape(10, 10), torch.from_numpy(numbers[5:105]).reshape(10, 10)
    expected = lhs.T.clone()
    assert einsumx.einsum("ij->ji", lhs, out=out) is out
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [2, 3, 4])
@pytest.mark.parametrize("layout", ["C", "F", "gaps"])
def test_dot_products_of_many_short_rows_are_plain_sums_with_and_without_gradients(dtype, length, layout):
    rows = 70_000
    shape = (rows, 2 * length) if layout == "gaps" else (length, rows) if layout == "F" else (rows, length)

    def laid(array):
        return array.T if layout == "F" else array[:, ::2] if layout == "gaps" else array

    lhs, rhs = (laid(torch.rand(shape, dtype=getattr(torch, dtype))) for _ in range(2))
    expected = (lhs * rhs).sum(-1)
    torch.testing.assert_close(einsumx.einsum("ni,ni->n", lhs, rhs), expected)
    lhs.requires_grad_()
    found = einsumx.einsum("ni,ni->n", lhs, rhs)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    torch.testing.assert_close(lhs.grad, rhs)
