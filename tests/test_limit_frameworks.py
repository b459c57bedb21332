"""Memory limits on each framework: how they are given, written into ``out=``, and refused where calls are traced."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from backends_under_test import LIMITED

import einsumx
from einsumx import BackendError, MemoryLimit, einsum
from einsumx.conformance.frameworks import framework_of
from einsumx.runtime.limits import limit_bytes


@pytest.mark.parametrize("backend", [backend for backend in LIMITED if backend.adapter.name != "jax"], ids=str)
def test_a_sum_of_everything_in_blocks_is_written_to_an_out_without_axes(backend):
    array, out = backend.array(np.arange(12.0).reshape(3, 4), "float32"), backend.out(np.zeros(()), "float32")
    with pytest.raises(einsumx.MemoryLimitError) as caught:
        einsum("ij,ij->", array, array, memory_limit=1, out=out)
    assert einsum("ij,ij->", array, array, memory_limit=caught.value.smallest, out=out) is out
    assert float(backend.values(out)) == 506


@pytest.mark.parametrize("backend", LIMITED, ids=str)
def test_a_fraction_of_what_is_free_is_a_limit_on_the_cpu(backend):
    array = backend.array(np.ones((3, 4)), "float32")
    free = backend.adapter.blocks.free_bytes(backend.adapter.device(array))
    if free is None:
        with pytest.raises(ValueError, match="the amount of free memory is not known"):
            einsum("ij->j", array, memory_limit=0.5)
    else:
        assert free > 0
        np.testing.assert_array_equal(backend.values(einsum("ij->j", array, memory_limit=0.5)), [3, 3, 3, 3])


@pytest.mark.parametrize(
    ("limit", "free", "found"),
    [
        ("8GiB", None, min(8 * 2**30, sys.maxsize)),  # no array is larger
        ("500 MB", None, 500_000_000),
        (" 1.5kib ", None, 1536),
        ("77", None, 77),
        ("3B", None, 3),
        ("0.1 kB", None, 100),
        ("１２", None, 12),
        (0.25, 1000, 248),  # rounded, so that the same call has the same plan again
        (0.25, 1003, 248),
        (4096, None, 4096),
        (2e9, None, 2_000_000_000),
    ],
)
def test_limits_are_read(limit, free, found):
    assert limit_bytes(MemoryLimit(limit).amount, lambda: free) == found


@pytest.mark.parametrize(
    "limit", ["", "GiB", "8 GiBs", "-1MB", "1e9", "0.1B", "inf", "nan", "1" * 31, 0, -5, 0.0, float("nan")]
)
def test_what_is_no_limit_is_an_error(limit):
    with pytest.raises(ValueError, match="memory_limit="):
        MemoryLimit(limit)


@pytest.mark.parametrize("limit", [True, [1], None])
def test_a_limit_that_is_neither_number_nor_text_is_an_error(limit):
    with pytest.raises(TypeError, match="memory_limit="):
        MemoryLimit(limit)


def test_a_limit_is_a_frozen_value_in_which_none_is_each_fields_default():
    limit = MemoryLimit("8GiB", device="cuda:0")
    assert limit == MemoryLimit("8GiB", device="cuda:0", devices=None, executor=None, progress=None, resume=None)
    assert limit != MemoryLimit("8GiB")
    with pytest.raises(FrozenInstanceError):
        limit.amount = "9GiB"
    with pytest.raises(TypeError):
        MemoryLimit("8GiB", "cuda:0")


@pytest.mark.parametrize("other", [{"device": "cpu"}, {"executor": ThreadPoolExecutor(1)}])
def test_several_devices_go_neither_with_one_nor_with_an_executor(other):
    with pytest.raises(ValueError, match=f"devices= cannot be combined with {next(iter(other))}="):
        MemoryLimit("8GiB", devices=["cpu:0", "cpu:1"], **other)


@pytest.mark.parametrize(
    ("backend", "device"), [("torch", "cuda:99"), ("jax", "cuda:99"), ("jax", "nonsense"), ("mxnet", "gpu:99")]
)
def test_a_plan_for_a_fraction_of_a_device_that_is_not_there_is_an_error(backend, device):
    with pytest.raises(einsumx.BackendError, match=f"{backend} finds no device '{device}': "):
        einsumx.plan("ij,jk->ik", (3, 3), (3, 3), backend=backend, device=device, memory_limit=0.5)


def test_a_fraction_of_an_unknown_amount_is_an_error():
    with pytest.raises(ValueError, match="pass bytes"):
        limit_bytes(0.5, lambda: None)


def test_hybridized_blocks_of_mxnet_are_refused():
    pytest.importorskip("mxnet")
    mxnet = framework_of("mxnet")
    block = mxnet.transformed("hybridize", lambda array: einsum("ij->j", array, memory_limit="1MB"))
    with pytest.raises(BackendError, match="traces a hybridized block"):
        block(mxnet.array(np.ones((3, 4)), "float32"))


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_a_limit_in_bytes_is_planned_for_a_gpu_where_there_is_none(name):
    found = einsumx.plan("ij,jk->ik", (900, 900), (900, 900), backend=name, device="cuda", memory_limit="8MB")
    assert found.peak_bytes <= 8_000_000
