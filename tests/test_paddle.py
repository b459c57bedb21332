"""Paddle's adapter: plans, shared memory, integers, gradients, static graphs, views, out=, errors before any work."""

import warnings
from importlib.util import find_spec

import numpy as np
import pytest

import einsumx
from einsumx.backends.paddle import ADAPTER
from einsumx.host.free_memory import is_out_of_memory
from einsumx.ir.ops import Matmul, Transpose

if not find_spec("paddle"):
    pytest.skip("PaddlePaddle is not installed", allow_module_level=True)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of tools that compile extensions
    import paddle

GRAPHS = pytest.mark.parametrize("full_graph", [True, False], ids=["whole graph", "parts"])


@pytest.fixture
def random():
    return np.random.default_rng(0)


def tensor(values, dtype=None):
    return paddle.to_tensor(np.asarray(values, dtype))


# -- plans --------------------------------------------------------------------------------------------------------


def test_a_transposed_operand_is_a_flag_of_matmul():
    (op,) = einsumx.plan("bij,bkj->bik", (8, 20, 30), (8, 40, 30), backend="paddle").ops
    assert isinstance(op, Matmul)
    assert op.transpose_rhs


def test_a_plan_counts_transposes_as_copies():
    plan = einsumx.plan("bind,bjnd->bnij", (4, 5, 2, 3), (4, 6, 2, 3), backend="paddle")
    assert [op.reason != "" for op in plan.ops if isinstance(op, Transpose)] == [True, True]


def test_a_view_of_transposed_matrices_is_multiplied_without_a_copy(random, monkeypatch):
    a, b = random.random((300, 200)), random.random((300, 100))
    view = tensor(a).t()
    monkeypatch.setattr(ADAPTER._kernels, "copied", None)
    result = einsumx.einsum("ij,jk->ik", view, tensor(b))
    np.testing.assert_allclose(result.numpy(), a.T @ b)


def test_operands_stay_views(random):
    base = tensor(random.random((40, 200)))
    view = base.t()
    einsumx.einsum("ij,ij->i", view, view)
    einsumx.einsum("ij->ij", view)
    assert not view.is_contiguous()
    view[0, 0] = 5.0
    assert float(base[0, 0]) == 5.0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "complex128", "int8", "bool"])
@pytest.mark.parametrize("shape", [(3, 4, 5), (30, 40, 50)], ids=["small", "large"])
def test_a_rearranged_result_has_memory_of_its_own(shape, dtype, random):
    values = random.integers(0, 5, shape)
    operand = tensor(values, "int64").astype(dtype)
    result = einsumx.einsum("ijk->kij", operand)
    assert result.is_contiguous()
    assert not ADAPTER._kernels.may_share(result, operand)
    expected = tensor(values.transpose(2, 0, 1)).astype(dtype).astype("complex128")
    assert bool((result.astype("complex128") == expected).all())


def test_a_result_outlives_the_memory_that_numpy_made():
    results = [einsumx.einsum("ijk->kji", paddle.full([50, 60, 70], float(n))) for n in range(5)]
    assert [(float(result.min()), float(result.max())) for result in results] == [(n, n) for n in range(5)]


# -- dtypes -------------------------------------------------------------------------------------------------------


def test_paddles_own_matmul_of_integers_is_inexact():
    """The reason why NumPy multiplies integers; if this fails, Paddle can."""
    a = paddle.full([2, 2], 2**20 + 1, "int64")
    assert int(paddle.matmul(a, a)[0, 0]) != 2 * (2**20 + 1) ** 2


def test_promotion_is_paddles_also_where_there_is_none():
    half, integers = paddle.ones([2], "float16"), paddle.ones([2], "int32")
    assert einsumx.einsum("i,i->i", half, half.astype("bfloat16")).dtype == paddle.float32
    with pytest.raises(einsumx.BackendError, match="paddle does not promote int32 and float16"):
        einsumx.einsum("i,i->i", integers, half)
    with pytest.raises(einsumx.BackendError, match="paddle does not promote int32 and int64"):
        einsumx.einsum("i,i->i", integers, integers.astype("int64"))
    assert int(einsumx.einsum("i,i->", integers, integers.astype("int64"), dtype="int64")) == 2


def test_a_tensor_without_numpys_dtype_is_said_to_have_none():
    with pytest.raises(TypeError, match="bfloat16"):
        ADAPTER.to_numpy(paddle.ones([2], "bfloat16"))


# -- gradients ----------------------------------------------------------------------------------------------------


def leaf(values):
    array = tensor(values)
    array.stop_gradient = False
    return array


@pytest.mark.parametrize("limit", [None, "20 kB"])
def test_backward_adds_gradients(limit, random):
    a, b = leaf(random.random((30, 20))), leaf(random.random((20, 40)))
    for _ in range(2):
        einsumx.einsum("ij,jk->ik", a, b, memory_limit=limit).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), 2 * np.broadcast_to(b.numpy().sum(1), (30, 20)))


def test_out_is_refused_where_paddle_would_record(random):
    a, out = leaf(random.random((3, 4))), paddle.zeros([4, 3], "float64")
    with pytest.raises(einsumx.BackendError, match="no_grad"):
        einsumx.einsum("ij->ji", a, out=out)


# -- out= ---------------------------------------------------------------------------------------------------------


def test_out_may_be_a_view(random):
    a, b = random.random((3, 4)), random.random((4, 5))
    whole = paddle.zeros([7, 3], "float64")
    einsumx.einsum("ij,jk->ik", tensor(a), tensor(b), out=whole.t()[:, 1:6])
    np.testing.assert_allclose(whole.numpy()[1:6], (a @ b).T)
    assert not whole.numpy()[[0, 6]].any()


# -- static graphs ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Tensor do not have 'place' interface")  # Paddle's warning of its own code
@GRAPHS
def test_a_layer_learns_through_einsum(full_graph):
    class Layer(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.weight = self.create_parameter([3, 4])

        def forward(self, x):
            return einsumx.einsum("bi,io,->bo", x, self.weight, 2.0)

    layer = paddle.jit.to_static(Layer(), full_graph=full_graph)
    layer(paddle.ones([5, 3])).sum().backward()
    np.testing.assert_allclose(layer.weight.grad.numpy(), np.full((3, 4), 10.0))


def test_a_static_program_runs(random):
    a, b = random.random((3, 3, 4)), random.integers(-9, 9, (4, 4))
    paddle.enable_static()
    try:
        program = paddle.static.Program()
        with paddle.static.program_guard(program):
            x = paddle.static.data("x", [3, 3, 4], "float64")
            y = paddle.static.data("y", [4, 4], "int64")
            results = [einsumx.einsum("iij->ji", x), einsumx.einsum("ij,jk->ki", y, y)]
        found = paddle.static.Executor(paddle.CPUPlace()).run(program, {"x": a, "y": b}, results)
    finally:
        paddle.disable_static()
    np.testing.assert_allclose(found[0], np.einsum("iij->ji", a))
    assert np.array_equal(found[1], (b @ b).T)


def test_unequal_unknown_sizes_are_noticed_when_the_graph_runs():
    def merged(x, y):
        return einsumx.einsum("aij,jib->ab", x, y)

    spec = [paddle.static.InputSpec([None, None, None], "float32")] * 2
    traced = paddle.jit.to_static(merged, input_spec=spec, full_graph=True)
    assert traced(paddle.ones([2, 3, 4]), paddle.ones([4, 3, 5])).shape == [2, 5]
    with pytest.raises(ValueError, match="Assert"):
        traced(paddle.ones([2, 3, 4]), paddle.ones([3, 4, 5]))


def test_a_memory_limit_in_a_static_graph_is_refused():
    def limited(x):
        return einsumx.einsum("ij,jk->ik", x, x, memory_limit="1 GB")

    with pytest.raises(einsumx.BackendError, match="dynamic mode"):
        paddle.jit.to_static(limited, full_graph=True)(paddle.ones([3, 3]))


# -- what is refused ----------------------------------------------------------------------------------------------


def test_sparse_tensors_are_refused():
    sparse = paddle.sparse.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 2])
    with pytest.raises(einsumx.BackendError, match="to_dense"):
        einsumx.einsum("ij,jk->ik", sparse, paddle.ones([2, 2]))


def test_more_axes_than_paddle_has_are_an_error_before_any_work():
    with pytest.raises(einsumx.BackendError, match="at most 9 axes"):
        einsumx.einsum("abcde,fghij->abcdefghij", paddle.ones([1, 2, 1, 1, 2]), paddle.ones([2, 1, 2, 1, 1]))


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(einsumx.BackendError, match="finds no device 'gpu:7'"):
        ADAPTER.blocks.find_device("gpu:7")


# -- Paddle's own name --------------------------------------------------------------------------------------------


def test_patch_replaces_every_public_name(random):
    a = tensor(random.random((3, 3)))
    native = paddle.einsum
    with einsumx.patched("paddle"):
        for function in (paddle.einsum, paddle.tensor.einsum, paddle.functional.einsum):
            assert function is not native
            np.testing.assert_allclose(function("iJ,Jk->ik", a, a).numpy(), a.numpy() @ a.numpy())
            with pytest.raises(ValueError, match="'k' of the output") as caught:
                function("ij->k", a)
            assert isinstance(caught.value, einsumx.EquationError)
    assert paddle.einsum is native


def test_a_paddle_that_runs_out_of_memory_is_recognized():
    with pytest.raises(MemoryError) as caught:
        paddle.empty([1 << 45])
    assert is_out_of_memory(caught.value)


def test_the_source_of_a_product_of_integers_is_exact():
    a = paddle.full([2, 2], 2**20 + 1, "int64")
    plan, names = einsumx.plan("ij,kj->ik", a, a), {}
    exec(plan.source(), names)
    assert np.array_equal(names["contraction"](a, a).numpy(), np.full((2, 2), 2 * (2**20 + 1) ** 2))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_empty_sums_in_a_semiring_are_its_zero_in_every_dtype(dtype):
    a, b = paddle.ones([2, 0]).astype(dtype), paddle.ones([0, 3]).astype(dtype)
    result = einsumx.semirings.max_plus.einsum("ij,jk->ik", a, b)
    assert result.dtype == a.dtype
    assert np.array_equal(result.astype("float32").numpy(), np.full((2, 3), -np.inf))
