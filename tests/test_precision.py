"""``precision=`` on PyTorch: the setting of float32 products for the time of one call."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import einsumx
from einsumx import BackendError, einsum

torch = pytest.importorskip("torch", "2.9")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import einsumx.backends.torch.precision  # noqa: E402

EQUATION = "ij,jk->ik"
a, b = (torch.randn(64, 64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
SETTINGS = torch.backends.mkldnn.matmul, torch.backends.cuda.matmul


class Seen(TorchDispatchMode):
    """The setting of products on the CPU while each operation runs."""

    def __init__(self):
        super().__init__()
        self.during = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.during[function.overloadpacket.__name__] = SETTINGS[0].fp32_precision
        return function(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def restored():
    """No setting is made before a test, and none is left after it."""
    before = [setting.fp32_precision for setting in SETTINGS]
    for setting in SETTINGS:
        setting.fp32_precision = "none"
    yield
    after = [setting.fp32_precision for setting in SETTINGS]
    for setting, precision in zip(SETTINGS, before):
        setting.fp32_precision = precision
    assert after == ["none", "none"]


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize(
    ("precision", "value"), [("highest", "ieee"), ("high", "tf32"), ("medium", "bf16"), ("default", "none")]
)
def test_torchs_setting_holds_for_the_products_of_one_call(precision, value, dtype):
    lhs, rhs = (side.to(getattr(torch, dtype)) for side in (a, b))
    with Seen() as seen:
        for _ in range(2):
            einsum(EQUATION, lhs, rhs, precision=precision)
    assert seen.during["mm"] == value
    assert SETTINGS[0].fp32_precision == "none"
    with Seen() as seen:
        einsum(EQUATION, lhs, rhs)
        einsum(EQUATION, lhs, rhs, precision=None)
    assert seen.during["mm"] == "none"


def test_highest_overrides_a_setting_of_the_program():
    exact = a.double() @ b.double()
    SETTINGS[0].fp32_precision = "bf16"
    try:
        with Seen() as seen:
            found = einsum(EQUATION, a, b, precision="highest")
        assert seen.during["mm"] == "ieee"
        assert SETTINGS[0].fp32_precision == "bf16"
    finally:
        SETTINGS[0].fp32_precision = "none"
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-4)


def test_every_step_and_every_form_of_a_call_has_the_setting():
    out = torch.empty(64, 64)
    with Seen() as seen:
        einsum("ij,jk,kl->il", a, b, a, precision="high", out=out)
    assert seen.during["mm"] == "tf32"
    with Seen() as seen:
        einsumx.addeinsum(out, EQUATION, a, b, precision="high", alpha=2, out=out)
    assert seen.during["mm"] == "tf32"
    halves = a.bfloat16(), b.bfloat16()
    with Seen() as seen:  # computed in float32 on the CPU
        einsum(EQUATION, *halves, precision="high")
    assert seen.during["mm"] == "tf32"


def test_an_error_restores_the_setting(monkeypatch):
    def fail(*arrays, **options):
        raise RuntimeError("out of order")

    monkeypatch.setattr(einsumx.backends.torch.kernels, "_mm", fail)
    einsumx.cache_clear()
    with pytest.raises(RuntimeError, match="out of order"):
        einsum(EQUATION, a, b, precision="medium")
    assert SETTINGS[0].fp32_precision == "none"
    einsumx.cache_clear()


def test_threads_take_turns():
    def work(precision, value):
        for _ in range(20):
            with Seen() as seen:
                einsum(EQUATION, a, b, precision=precision)
            assert seen.during["mm"] == value

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, ("highest", "high", "medium"), ("ieee", "tf32", "bf16")))


@pytest.mark.parametrize("precision", ["exact", 3, ("high", "high")])
def test_other_values_are_refused(precision):
    with pytest.raises(BackendError, match="precision= must be one of 'default', 'highest', 'high', 'medium' on torch"):
        einsum(EQUATION, a, b, precision=precision)


@pytest.mark.parametrize("dtype", ["float64", "bool"])
def test_it_means_nothing_in_other_dtypes(dtype):
    lhs, rhs = (side.to(getattr(torch, dtype)) for side in (a, b))
    with pytest.raises(BackendError, match=f"precision= is for products of float32, .* has {dtype}; omit it"):
        einsum(EQUATION, lhs, rhs, precision="high")


def test_it_means_nothing_with_wider_sums_and_in_exact_products_of_integers():
    with pytest.raises(BackendError, match="and this contraction has float64"):
        einsum(EQUATION, a, b, accumulate="float64", precision="high")
    with pytest.raises(BackendError, match="and this contraction has int64"):
        einsum(EQUATION, a.to(torch.int8), b.to(torch.int8), dtype="int64", precision="high")


def test_no_graph_records_it():
    def product(lhs, rhs):
        return einsum(EQUATION, lhs, rhs, precision="high")

    says = "a graph of .* does not keep precision="
    with pytest.raises(Exception, match=says):
        torch.compile(product, backend="aot_eager", fullgraph=True)(a, b)
    for mode in ("real", "symbolic"):
        with pytest.raises(BackendError, match=says):
            torch.fx.experimental.proxy_tensor.make_fx(product, tracing_mode=mode)(a, b)
