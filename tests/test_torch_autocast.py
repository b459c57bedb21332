"""torch.autocast: the dtype of a result is torch.einsum's, and nothing that einsumx computes is cast on the way."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import einsumx  # noqa: E402
from einsumx import einsum, semirings  # noqa: E402

bfloat16 = partial(torch.autocast, "cpu", dtype=torch.bfloat16)

ON_CUDA = {
    "ij,jk->ik": [(3, 4), (4, 5)],
    "i,i->": [(4,), (4,)],
    "bd,de,be->b": [(3, 4), (4, 5), (3, 5)],
    "bihd,bjhd->bhij": [(8, 64, 16, 32), (8, 64, 16, 32)],
    "ij->ji": [(3, 4)],
    "ij->j": [(3, 4)],
    "i,j->ij": [(3,), (4,)],
    "ij,k->i": [(3, 4), (5,)],
}


@pytest.fixture(autouse=True)
def generator():
    return torch.manual_seed(0)


def tensors(shapes):
    return [torch.randn(shape) for shape in shapes]


def pair():
    return tensors([(3, 4), (4, 5)])


# -- the dtype ----------------------------------------------------------------------------------------------------


def test_float64_complex_numbers_and_integers_keep_their_dtype():
    a, b = pair()
    with bfloat16():
        for dtype in (torch.float64, torch.complex64, torch.int64):
            assert einsum("ij,jk->ik", a.to(dtype), b.to(dtype)).dtype is dtype
            assert einsum("ij,jk->ik", a, b.to(dtype)).dtype is (torch.bfloat16 if dtype is torch.int64 else dtype)
        assert einsum("ij,jk->ik", a, b.half()).dtype is torch.bfloat16
        assert einsum(",ij,jk->ik", 2.0, a, b).dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("equation", "expected"),
    {
        "ij,jk,ik->ik": torch.float32,  # the last step multiplies elements of bfloat16 and float32
        "ij,j,jk->ik": torch.bfloat16,
        "i,i,j->j": torch.float32,
        "ij,jk,kl->il": torch.bfloat16,
    }.items(),
)
def test_of_several_operands_the_path_does_not_decide_the_dtype(equation, expected):
    sizes = {"i": 3, "j": 4, "k": 5, "l": 2}
    arrays = tensors([tuple(sizes[label] for label in term) for term in equation.partition("->")[0].split(",")])
    with bfloat16():
        assert torch.einsum(equation, *arrays).dtype is expected
        for optimize in ("auto", False, [(0, 2), (0, 1)], [(1, 2), (0, 1)]):
            assert einsum(equation, *arrays, optimize=optimize).dtype is expected


def test_float16_does_not_overflow_where_autocast_computes_in_bfloat16():
    a = torch.full((4, 4), 300.0, dtype=torch.float16)
    with bfloat16():
        assert torch.equal(einsum("ij,jk->ik", a, a), torch.full((4, 4), 360000.0, dtype=torch.bfloat16))


@pytest.mark.long
def test_on_cuda_torch_casts_the_operands_of_every_einsum():
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.float16)
    try:
        with FakeTensorMode():
            for equation, shapes in ON_CUDA.items():
                for dtype, expected in ((torch.float32, torch.float16), (torch.float64, torch.float64)):
                    arrays = [torch.empty(shape, dtype=dtype, device="cuda") for shape in shapes]
                    assert einsum(equation, *arrays).dtype is torch.einsum(equation, *arrays).dtype is expected
                    arrays = [torch.empty(shape, dtype=dtype) for shape in shapes]
                    assert einsum(equation, *arrays).dtype is dtype
    finally:
        torch.set_autocast_enabled("cuda", False)


# -- keywords -----------------------------------------------------------------------------------------------------


def test_an_out_of_the_modes_dtype_is_an_error():
    with bfloat16(), pytest.raises(einsumx.BackendError, match="the result has dtype float32"):
        einsum("ij,jk->ik", *pair(), out=torch.empty(3, 5, dtype=torch.bfloat16))


def test_integers_that_are_computed_in_floats_stay_exact():
    a, b = torch.full((40, 300), 3, dtype=torch.int8), torch.full((300, 30), 3, dtype=torch.int8)
    with bfloat16():
        assert (einsum("ij,jk->ik", a, b, dtype=torch.int32) == 2700).all()
        assert (einsum("ij,jk->ik", a.long(), b.long()) == 2700).all()
        assert (einsum("ij,jk->ik", a.bool(), b.bool())).all()


def test_other_keywords_mean_what_they_mean_elsewhere():
    a, b = pair()
    with bfloat16():
        assert einsum("ij,jk->ik", a, b, accumulate="float64").dtype is torch.bfloat16
        assert einsum("ij,jk->ki", a, b, order="C").is_contiguous()
        assert einsum(a, [0, 1], b, [1, 2], [0, 2]).dtype is torch.bfloat16
        with pytest.raises(einsumx.BackendError, match="casting='no' does not allow to become bfloat16"):
            einsum("ij,jk->ik", a, b, casting="no")


def test_sums_are_rounded_once():
    a, b = torch.ones(1, 4096), torch.full((4096, 1), 1.0)
    b[0] = 4096.0
    with bfloat16():
        assert einsum("ij,jk->ik", a, b).item() == 8192  # 8191 in bfloat16
        assert einsum("ij,jk->ik", a, b, memory_limit="20 kB").item() == 8192


def test_addeinsum_adds_the_result_and_casts_nothing_in_place():
    (a, b), c = pair(), torch.randn(3, 5)
    expected, square = einsumx.addeinsum(c, "ij,jk->ik", a, b), torch.randn(3, 3)
    overlapping = square.mT + a @ a.mT
    with bfloat16():
        product = einsum("ij,jk->ik", a, b)
        assert torch.equal(einsumx.addeinsum(c, "ij,jk->ik", a, b), c + product)
        for limit in (None, "1MB"):
            total = c.clone()
            einsumx.addeinsum(total, "ij,jk->ik", a, b, out=total, memory_limit=limit)
            torch.testing.assert_close(total, expected)
            total = square.clone()
            einsumx.addeinsum(total.mT, "ij,kj->ik", a, a, out=total, memory_limit=limit)
            torch.testing.assert_close(total, overlapping)


def test_semirings_and_exponents_are_not_cast():
    a, b = pair()
    for function in (semirings.max_plus.einsum, semirings.log.einsum, einsumx.einsum_frexp):
        expected = function("ij,jk->ik", a, b)
        with bfloat16():
            result = function("ij,jk->ik", a, b)
        for one, other in zip(result, expected, strict=True):
            assert one is other or np.array_equal(one, other)


# -- where it is called ---------------------------------------------------------------------------------------------


def test_efforts_and_measured_candidates_have_one_dtype():
    q = torch.randn(2, 40, 4, 16)
    with bfloat16(), einsumx.effort("measure"):
        assert {einsum("bihd,bjhd->bhij", q, q).dtype for _ in range(20)} == {torch.bfloat16}


def test_a_plan_keeps_the_dtype_with_which_it_was_made():
    a, b = pair()
    outside = einsumx.plan("ij,jk->ik", a, b)
    expected = outside(a, b)
    with bfloat16():
        assert torch.equal(outside(a, b), expected)
        inside = einsumx.plan("ij,jk->ik", a, b)
        assert einsumx.plan("ij,jk->ik", (3, 4), (4, 5), backend="torch", dtypes="float32").dtype == "bfloat16"
        assert einsumx.Plan.from_json(inside.to_json()) == inside
    assert inside.dtype == "bfloat16"
    assert inside(a, b).dtype is torch.bfloat16


def test_an_expression_follows_each_call():
    a, b = pair()
    for layer in (einsumx.expression("ij,jk->ik", (3, 4), (4, 5)), einsumx.expression("ij,jk->ik", (3, 4), b)):
        operands = [a, b][: 1 if layer._constants else 2]
        for _ in range(2):
            expected = layer(*operands)
            assert expected.dtype is torch.float32
            with bfloat16():
                assert layer(*operands).dtype is torch.bfloat16
                assert torch.equal(layer(*operands, out=torch.empty(3, 5)), expected)
                assert layer.plan(*operands).dtype == "bfloat16"
            assert layer.plan(*operands).dtype == "float32"


def test_threads_outside_of_autocast_are_not_concerned():
    a, b = pair()

    def work(is_on):
        for _ in range(20):
            with bfloat16(enabled=is_on):
                assert (einsum("ij,jk->ik", a, b).dtype is torch.bfloat16) == is_on

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [True, False] * 2))


def test_patched_code_gets_the_dtype_that_it_expects():
    a, b = pair()
    with einsumx.patched("torch"), bfloat16():
        buffer = torch.zeros(3, 5, dtype=torch.bfloat16)
        buffer.index_add_(0, torch.arange(3), torch.einsum("ij,jk->ik", a, b))
        buffer[:, 0].index_add_(0, torch.arange(3), torch.einsum("ij,j->i", a, b[:, 0]))


# -- transforms, modes, graphs ----------------------------------------------------------------------------------------


def test_gradients_have_the_dtypes_of_the_operands_also_of_a_backward_pass_in_the_mode():
    (a, b), seed = pair(), torch.randn(3, 5, dtype=torch.bfloat16)
    for limit in (None, "1MB"):
        for inside in (False, True):
            leaves, others = [[each.clone().requires_grad_() for each in (a, b)] for _ in range(2)]
            with bfloat16():
                result = einsum("ij,jk->ik", *leaves, memory_limit=limit)
                torch.einsum("ij,jk->ik", *others).backward(seed)
            with bfloat16(enabled=inside):
                result.backward(seed)
            for leaf, other in zip(leaves, others):
                assert leaf.grad.dtype is torch.float32
                torch.testing.assert_close(leaf.grad, other.grad, atol=0.05, rtol=0.02)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of torch itself
def test_transforms_of_torch_func_and_checkpoints_see_the_same_dtype():
    from torch.utils.checkpoint import checkpoint

    a, b = pair()
    product = lambda a: einsum("ij,jk->ik", a, b)  # noqa: E731
    with bfloat16():
        assert torch.vmap(product)(a[None]).dtype is torch.bfloat16
        assert torch.func.jvp(product, (a,), (a,))[1].dtype is torch.bfloat16
        assert torch.func.grad(lambda a: product(a).float().sum())(a).dtype is torch.float32
        for reentrant in (False, True):
            leaf = a.clone().requires_grad_()
            checkpoint(product, leaf, use_reentrant=reentrant).float().sum().backward()
            assert leaf.grad.dtype is torch.float32


def test_modes_that_see_operations_do_not_change_the_dtype():
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    a, b = pair()
    for mode in (Functions, Operations):
        with mode(), bfloat16():
            assert einsum("ij,jk->ik", a, b).dtype is torch.bfloat16
        with bfloat16(), mode():
            assert einsum("ij,jk->ik", a, b).dtype is torch.bfloat16
    with bfloat16():
        graph = make_fx(partial(einsum, "ij,jk->ik"))(a, b)
    assert graph(a, b).dtype is torch.bfloat16


@pytest.mark.long
def test_an_exported_module_computes_what_it_computed():
    class Contraction(torch.nn.Module):
        def __init__(self, mode, **options):
            super().__init__()
            self.mode, self.options = mode, options

        def forward(self, a, b):
            with self.mode():
                return einsum("ij,jk->ik", a, b, **self.options)

    (a, b), narrow = pair(), torch.full((40, 300), 3, dtype=torch.int8)
    narrow_pair = narrow, narrow.mT.contiguous()
    for options, arrays, expected in (({}, (a, b), torch.bfloat16), ({"dtype": torch.int32}, narrow_pair, torch.int32)):
        inside = torch.export.export(Contraction(bfloat16, **options), arrays, strict=False).module()
        with bfloat16():
            outside = torch.export.export(Contraction(torch.no_grad, **options), arrays, strict=False).module()
        for exported in (inside, outside):
            assert exported(*arrays).dtype is expected
    assert (exported(*narrow_pair) == 2700).all()


@pytest.mark.long
def test_distributed_tensors_have_the_dtype_of_autocast(tmp_path):
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    a, b = pair()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        sharded = [distribute_tensor(each, mesh, [Shard(0)]) for each in (a, b)]
        with bfloat16():
            assert einsum("ij,jk->ik", *sharded).dtype is torch.bfloat16
            assert einsum("ij,j->i", sharded[0], sharded[1][:, 0]).dtype is torch.bfloat16
        assert einsum("ij,jk->ik", *sharded).dtype is torch.float32
    finally:
        dist.destroy_process_group()


# -- settings of the process ------------------------------------------------------------------------------------------


def test_the_default_device_is_for_new_tensors_alone():
    (a, b), v = pair(), torch.randn(4)
    narrow = torch.full((40, 300), 3, dtype=torch.int8)
    other, large = narrow.mT.contiguous(), torch.randn(1024, 600)
    torch.set_default_device("meta")
    try:
        results = [
            einsum("ij,jk->ik", a, b),
            einsum("i,->i", v, 2.0),
            einsum("ij,jk->ik", narrow, other, dtype=torch.int32),
            einsum("ij,kj->ik", large, large),
            einsum("ij,j->i", a[:, :0], v[:0]),
            einsum("ij,jk->ik", a, b, memory_limit="1MB"),
            einsumx.einsum_frexp("ij,jk->ik", a, b).mantissa,
            semirings.max_plus.einsum("ij,jk->ik", a, b),
            semirings.log.einsum("ij,jk->ik", a, b),
        ]
    finally:
        torch.set_default_device(None)
    assert {str(each.device) for each in results} == {"cpu"}


def test_the_default_dtype_and_the_precision_of_products_change_no_integers_and_no_dtype():
    (a, b), v = pair(), torch.arange(4)
    narrow = torch.randint(-128, 128, (40, 300), dtype=torch.int8)
    exact = narrow.int() @ narrow.int().mT
    try:
        for dtype, precision in ((torch.float64, "high"), (torch.bfloat16, "medium")):
            torch.set_default_dtype(dtype)
            torch.set_float32_matmul_precision(precision)
            assert torch.equal(einsum("ij,kj->ik", narrow, narrow, dtype=torch.int32), exact)
            assert einsum("ij,kj->ik", narrow > 0, narrow > 0).all()
            assert einsum("ij,jk->ik", a, b).dtype is torch.float32
            assert einsum("i,->i", v, 2.5).dtype is (v * 2.5).dtype is dtype
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
