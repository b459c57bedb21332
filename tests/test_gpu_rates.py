"""The cost of products and copies on GPUs, from the properties of a device, beside measured times."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from einsumx.adapters.gpus import Gpu, gpu_rates
from einsumx.adapters.registry import get_backend
from einsumx.backends.torch.adapter import CPU, TorchAdapter
from einsumx.ir.cost_model import CostModel
from einsumx.ir.rates import Rates
from einsumx.measuring.calibration import calibrated

V100 = Gpu.of_properties((7, 0), 80, 1_530_000, 877_000, 4096)
T4 = Gpu.of_properties((7, 5), 40, 1_590_000, 5_001_000, 256)
A100 = Gpu.of_properties((8, 0), 108, 1_410_000, 1_215_000, 5120)
H200 = Gpu.of_properties((9, 0), 132, 1_980_000, 3_201_000, 6016)
H100 = Gpu.of_properties((9, 0), 132, 1_980_000, 2_619_000, 5120)

BATCH, HEADS, QUERIES, KEYS, UNITS = 64, 8, 100, 50, 128
"""The sizes of apache/mxnet#18043, in float32."""


def model(gpu, dtype="float32", backend="torch"):
    traits = get_backend(backend).traits("cuda")
    return CostModel(replace(traits, rates=gpu_rates(gpu, traits.rates)), dtype)


def kernel(seconds, calls=1):
    """Microseconds without launches."""
    return 1e6 * (seconds - calls * get_backend("torch").traits("cuda").rates.call)


def product(gpu, matrices=BATCH * HEADS, rows=QUERIES, calls=1, dtype="float32"):
    return model(gpu, dtype).matmul(calls, matrices, rows, KEYS, UNITS)


QUERY_COPY, KEY_COPY, RESULT_COPY = (
    model(V100).copy(rows * length, rows, turned=False)
    for rows, length in (
        (BATCH * QUERIES * HEADS, UNITS),
        (BATCH * KEYS * HEADS, UNITS),
        (BATCH * HEADS * QUERIES, KEYS),
    )
)


@pytest.mark.parametrize(
    ("predicted", "measured"),
    [
        (kernel(product(V100)), 196),  # bnid,bnjd->bnij
        (
            kernel(product(V100, HEADS, BATCH * QUERIES)),
            152,
        ),  # bind,jnd->bnij: the rows of all of a batch in one matrix
        (kernel(QUERY_COPY + KEY_COPY, 2), 90),  # bind,bjnd->bnij, by MXNet
        (kernel(QUERY_COPY), 62),  # PyTorch's one copy: both would exceed the card's 898 GB/s
        (kernel(RESULT_COPY), 29),  # bind,jnd->bnij
    ],
)
def test_kernels_on_a_v100_take_what_others_measured_within_30_percent(predicted, measured):
    assert predicted == pytest.approx(measured, rel=0.3)


def test_the_alternatives_on_a_v100_are_in_the_order_that_others_measured():
    shared = product(V100, HEADS, BATCH * QUERIES)
    assert shared < shared + RESULT_COPY < product(V100) < product(V100) + QUERY_COPY + KEY_COPY


def test_a_loop_of_eight_products_costs_seven_launches_more():
    launch = get_backend("torch").traits("cuda").rates.call
    assert 5e-6 <= launch <= 10e-6
    assert product(V100, calls=8) - product(V100) == pytest.approx(7 * launch)
    # So heads are looped over where that saves large copies, and copied where these are small.
    assert product(V100, calls=8) < product(V100) + QUERY_COPY + KEY_COPY
    small = model(V100)
    assert small.matmul(8, 16, 10, 5, 64) > small.matmul(1, 16, 10, 5, 64) + 2 * small.copy(
        10 * 16 * 64, 160, turned=False
    )


@pytest.mark.parametrize(
    ("gpu", "single", "double", "half", "bandwidth"),
    [
        (V100, 15.7, 7.8, 125, 900),
        (T4, 8.1, 0.25, 65, 320),
        (A100, 19.5, 19.5, 312, 1555),
        (H100, 66.9, 66.9, 1070, 3350),  # NVIDIA's sheet has 989 for half, at the lower clock of its tensor cores
    ],
)
def test_rates_are_shares_of_the_published_peaks(gpu, single, double, half, bandwidth):
    rates = gpu_rates(gpu, Rates())
    for rate, peak in ((rates.gemm, single), (rates.double, double), (rates.half, half)):
        assert 2 * rate / 0.85 == pytest.approx(peak * 1e12, rel=0.02)
    assert rates.stream / 0.85 == pytest.approx(bandwidth * 1e9, rel=0.01)


@pytest.mark.parametrize(
    ("rate", "by_torch", "by_cupy"),
    [
        ("gemm", 25.4e12, 25.5e12),
        ("double", 32.2e12, 32.1e12),
        ("half", 454e12, 456e12),
        ("stream", 4.09e12, 3.31e12),
        ("copy", 2.58e12, 1.70e12),
        ("permute", 1.09e12, 1.13e12),
        ("matrix", 3.0e-9, 2.9e-9),
    ],
)
def test_rates_of_an_h200_are_near_those_measured_on_one(rate, by_torch, by_cupy):
    found = getattr(gpu_rates(H200, Rates()), rate)
    assert found == pytest.approx(by_torch, rel=0.15)
    assert found == pytest.approx(by_cupy, rel=0.6)


@pytest.mark.parametrize("capability", [(3, 5), (5, 2), (7, 2), (8, 9), (10, 3), (13, 0)])
def test_generations_between_and_beyond_those_known_have_rates(capability):
    assert gpu_rates(replace(A100, capability=capability), Rates()).gemm > 1e12


def test_torchs_rates_are_those_of_the_device_once_it_is_in_use(monkeypatch):
    class Torch(TorchAdapter):
        _on_this_processor = CPU  # which only PyTorch itself can tell
        is_initialized = False
        xp = SimpleNamespace(
            version=SimpleNamespace(hip=None),
            cuda=SimpleNamespace(
                is_initialized=lambda: Torch.is_initialized,
                get_device_properties=lambda device: SimpleNamespace(
                    major=7,
                    minor=0,
                    multi_processor_count=80,
                    clock_rate=1_530_000,
                    memory_clock_rate=877_000,
                    memory_bus_width=4096,
                ),
            ),
        )

    monkeypatch.setitem(__import__("sys").modules, "torch", Torch.xp)
    declared = TorchAdapter().traits("cuda")
    assert calibrated(Torch(), "cuda:0") == declared
    Torch.is_initialized = True
    assert calibrated(Torch(), "cuda:0").rates == gpu_rates(V100, declared.rates)
    assert calibrated(Torch(), "cpu") == CPU
    Torch.xp.version.hip = "6.1"  # its capability is not NVIDIA's
    assert calibrated(Torch(), "cuda:0") == declared


def test_cupys_rates_are_those_of_the_device(fake_cupy):
    declared = get_backend("cupy").traits("cuda")
    assert calibrated(get_backend("cupy"), "cuda:1").rates == gpu_rates(V100, declared.rates)
