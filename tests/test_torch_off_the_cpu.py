"""What einsumx asks of PyTorch on CUDA, on fake tensors, which have a device and no values; nothing ran on a GPU.

Where fake tensors count as traced, tensors of the device "meta" stand for those that are neither on the CPU nor traced.
"""

from concurrent.futures import ThreadPoolExecutor
from math import prod

import numpy as np
import pytest
from peaks import torch_peak

import einsumx

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from einsumx.backends.torch import kernels  # noqa: E402
from einsumx.backends.torch.adapter import ADAPTER  # noqa: E402
from einsumx.backends.torch.choices import digits_workspace  # noqa: E402
from einsumx.backends.torch.semirings import TorchSemirings  # noqa: E402
from einsumx.semirings import log, max_plus  # noqa: E402


class Calls(TorchDispatchMode):
    """Records the names of operations, the elements of each result, and the dtypes of results by name."""

    def __init__(self):
        super().__init__()
        self.made, self.dtypes = [], {}

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            name = operation.overloadpacket.__name__
            self.made.append((name, result.numel(), result.device.type))
            self.dtypes.setdefault(name, set()).add(result.dtype)
        return result

    @property
    def names(self):
        return [name for name, *_ in self.made]


@pytest.fixture
def unseen(monkeypatch):
    """The mode that records calls is none of those that einsumx leaves kernels alone for."""
    monkeypatch.setattr(kernels, "_OBSERVERS", ())


def cuda(*shape, dtype="float32"):
    return torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")


def meta(*shape, dtype="float32"):
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")


@pytest.mark.parametrize(("longer", "steps"), [(1, 1), (40, 8)])
def test_several_batch_axes_are_looped_over_off_the_cpu_if_copies_take_longer(unseen, longer, steps):
    lhs, rhs = meta(64 * longer, 100, 8, 128).permute(0, 2, 1, 3), meta(64 * longer, 50, 8, 128).permute(0, 2, 3, 1)
    with Calls() as calls:
        result = kernels.product(tuple(lhs.shape), tuple(rhs.shape), "float32")(lhs, rhs)
    assert calls.names.count("bmm") == steps
    copied = [elements for name, elements, _ in calls.made if name in ("clone", "copy_")]
    # A loop brings the result's axes into order; both operands are larger.
    assert copied == [result.numel()] if steps > 1 else [lhs.numel(), rhs.numel()]
    assert result.is_contiguous()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_products_of_integers_take_no_memory_for_all_terms_on_cuda(dtype):
    with FakeTensorMode(), Calls() as calls:
        lhs, rhs = cuda(1000, 1000, dtype=dtype), cuda(1000, 1000, dtype=dtype)
        result = einsumx.einsum("ij,jk->ik", lhs, rhs)
    assert result.device.type == "cuda"
    assert result.dtype == lhs.dtype
    assert max(elements for _, elements, _ in calls.made) == 1_000_000
    assert calls.dtypes["mm"] == {torch.float64}  # CUDA multiplies no matrices of integers
    plan = einsumx.plan("ij,jk->ik", (1000, 1000), (1000, 1000), backend="torch", dtypes=dtype, device="cuda:0")
    assert digits_workspace(plan.operands) < plan.peak_bytes < 500_000_000


def test_products_of_integers_of_unknown_size_are_computed_in_float64_on_cuda():
    expression = einsumx.expression("ij,jk->ik", (None, None), (None, None))
    with FakeTensorMode(), Calls() as calls:
        torch.compile(expression, dynamic=True, backend="eager")(cuda(4, 3, dtype="int64"), cuda(3, 5, dtype="int64"))
    assert calls.dtypes["mm"] == {torch.float64}


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
@pytest.mark.parametrize("inner", [1, 3, 1000])
@pytest.mark.parametrize("is_known", [True, False])
def test_products_of_digits_are_exact(dtype, inner, is_known):
    bounds = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    lhs = rng.integers(bounds.min, bounds.max, (4, inner), dtype, endpoint=True)
    rhs = rng.integers(bounds.min, bounds.max, (inner, 5), dtype, endpoint=True)
    lhs[0], rhs[:, 0] = bounds.min, bounds.min
    lhs[1], rhs[:, 1] = bounds.max, bounds.max
    run = kernels._product_of_digits(torch.matmul, dtype, inner if is_known else kernels._LONGEST)
    found = run(torch.from_numpy(lhs), torch.from_numpy(rhs)).numpy()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, lhs @ rhs)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 5), (4, 1), (1, 1)])
def test_integers_times_a_vector_are_multiplied_and_summed_on_cuda(dtype, rows, columns, monkeypatch):
    bounds = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    lhs = rng.integers(bounds.min, bounds.max, (3, rows, 7), dtype, endpoint=True)
    rhs = rng.integers(bounds.min, bounds.max, (3, 7, columns), dtype, endpoint=True)
    monkeypatch.setattr(kernels, "_product_of_digits", None)
    with FakeTensorMode(), Calls() as calls:
        product = kernels.integer_product(lhs.shape, rhs.shape, dtype)
        product(cuda(*lhs.shape, dtype=dtype), cuda(*rhs.shape, dtype=dtype))
    assert set(calls.dtypes["sum"]) == {getattr(torch, dtype)}
    if columns == 1:
        with np.errstate(all="ignore"):
            found = kernels._summed_by_rows(torch.from_numpy(lhs), torch.from_numpy(rhs)).numpy()
            np.testing.assert_array_equal(found, lhs @ rhs)


def test_the_workspace_of_digits_covers_what_is_allocated():
    lhs, rhs = torch.ones(60, 500, dtype=torch.int64), torch.ones(500, 70, dtype=torch.int64)
    operands = [einsumx.Operand(tuple(side.shape), "int64") for side in (lhs, rhs)]
    _, peak = torch_peak(lambda: kernels._product_of_digits(torch.matmul, "int64", 500)(lhs, rhs))
    assert 0 < peak <= digits_workspace(operands) + 60 * 70 * 8


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unsigned_integers_are_multiplied_as_signed_ones(dtype):
    bounds = np.iinfo(dtype)
    lhs, rhs = np.array([3, bounds.max, 7], dtype), np.array([bounds.max, bounds.max, 5], dtype)
    with Calls() as calls:
        found = einsumx.einsum("i,i->i", torch.from_numpy(lhs), torch.from_numpy(rhs))
    np.testing.assert_array_equal(found.numpy(), lhs * rhs)
    with FakeTensorMode(), Calls() as calls:  # CUDA multiplies no unsigned integers but uint8
        einsumx.einsum("i,i->i", cuda(3, dtype=dtype), cuda(3, dtype=dtype))
        ADAPTER.arithmetic.scaled(cuda(3, dtype=dtype), 2, dtype)
    assert calls.dtypes["mul"] == {getattr(torch, dtype[1:])}


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32"])
def test_factors_reach_cuda_without_an_upload(dtype):
    with FakeTensorMode(), Calls() as calls:
        array, out = cuda(4, 4, dtype=dtype), cuda(4, 4, dtype=dtype)
        ADAPTER.arithmetic.scaled(array, 2, dtype)
        ADAPTER.arithmetic.combined(2, array, 3, out, dtype)
    assert {device for *_, device in calls.made} == {"cuda"}
    assert not {"_to_copy", "lift_fresh"} & set(calls.names)


def test_log_sum_exps_off_the_cpu_are_products_of_matrices(unseen, monkeypatch):
    functions = TorchSemirings(ADAPTER)
    named = functions.named
    monkeypatch.setattr(functions, "named", lambda name: (lambda _: True) if name == "all" else named(name))
    run = functions.product(log.add, log.multiply, (1, 500, 500), (1, 500, 500), "float32")
    with Calls() as calls:
        run(meta(1, 500, 500), meta(1, 500, 500))
    assert calls.names.count("bmm") == 1
    assert max(elements for _, elements, _ in calls.made) == 500 * 500


def test_maxima_off_the_cpu_keep_no_terms_for_their_derivatives():
    left, right = meta(1, 400, 300).requires_grad_(), meta(1, 300, 500)
    kept = []
    run = TorchSemirings(ADAPTER).product(max_plus.add, max_plus.multiply, (1, 400, 300), (1, 300, 500), "float32")
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda x: x):
        run(left, right)
    assert max(kept, default=0) <= prod((400, 500))


def test_sums_and_writes_of_blocks_from_other_threads_are_awaited(monkeypatch):
    awaited = []
    monkeypatch.setattr(type(ADAPTER), "synchronize", lambda self, array: awaited.append(tuple(array.shape)))
    host = np.ones((60, 80), "float32")
    with ThreadPoolExecutor(2) as executor:
        options = {"backend": "torch", "memory_limit": einsumx.MemoryLimit("40kB", executor=executor)}
        einsumx.einsum("ij,kj->ik", host, host, **options)
        written = awaited.count((60, 60))
        awaited.clear()
        einsumx.einsum("ij,ij->", host, host, **options)
        summed = awaited.count(())
        awaited.clear()
        pending = torch.ones(60, 80, dtype=torch.complex64).conj()  # blocks of which are copied as they are read
        einsumx.einsum("ij,kj->ik", pending, pending, backend="torch", memory_limit="70kB")
    assert written > 1
    assert summed > 1
    assert any(shape[1:] == (80,) and shape[0] < 60 for shape in awaited)


def test_a_plan_for_the_cpu_is_made_again_for_cuda():
    plan = einsumx.plan("ij,jk->ik", (3, 4), (4, 5), backend="torch", dtypes="bfloat16")
    assert "Cast" in [type(op).__name__ for op in plan.ops]
    with FakeTensorMode(), Calls() as calls:
        plan(cuda(3, 4, dtype="bfloat16"), cuda(4, 5, dtype="bfloat16"))
    assert "_to_copy" not in calls.names
    assert "mm" in calls.names
