"""Products of bfloat16 on PyTorch's CPU: its own where the processor has instructions, or else in float32."""

import pytest

import einsumx
from einsumx.ir.ops import Cast, Matmul
from einsumx.measuring.calibration import place_of

torch = pytest.importorskip("torch")

from einsumx.backends.torch import ADAPTER, halves, kernels  # noqa: E402
from einsumx.backends.torch.adapter import CPU  # noqa: E402


@pytest.fixture
def instructions(monkeypatch):
    """Says whether the processor has instructions for products of bfloat16, as torch would."""

    def forget():
        halves.wide_products.cache_clear()
        place_of.cache_clear()
        ADAPTER.__dict__.pop("_on_this_processor", None)
        einsumx.cache_clear()

    def set_to(has_them):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_them, raising=False)
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: has_them, raising=False)
        forget()

    yield set_to
    monkeypatch.undo()
    forget()


def calls(equation, *shapes, dtype="bfloat16"):
    operands = [torch.ones(shape, dtype=getattr(torch, dtype)) for shape in shapes]
    return [type(op) for op in einsumx.plan(equation, *operands).ops if isinstance(op, Cast | Matmul)]


IN_SINGLE = [Cast, Cast, Matmul, Cast]
PRODUCTS = ("ij,jk->ik", (30, 40), (40, 50)), ("bij,bjk->bik", (3, 30, 40), (3, 40, 50))


@pytest.mark.parametrize("product", PRODUCTS, ids=str)
def test_with_instructions_products_of_bfloat16_are_torchs_own(instructions, product):
    instructions(True)
    assert calls(*product) == [Matmul]
    assert calls(*product, dtype="float16") == IN_SINGLE


def test_without_instructions_bfloat16_is_computed_in_float32(instructions):
    instructions(False)
    assert [calls(*product) for product in PRODUCTS] == [IN_SINGLE, IN_SINGLE]
    assert ADAPTER.traits("cpu") == CPU


def test_intermediates_of_networks_stay_wide(instructions):
    instructions(True)
    assert calls("ij,jk,kl->il", (30, 40), (40, 50), (50, 60)) == [Cast, Cast, Cast, Matmul, Matmul, Cast]


def test_plans_from_shapes_alone_hold_for_every_processor(instructions):
    instructions(True)
    plan = einsumx.plan("ij,jk->ik", (30, 40), (40, 50), backend="torch", dtypes="bfloat16")
    assert [type(op) for op in plan.ops if isinstance(op, Cast | Matmul)] == IN_SINGLE


def exact(lhs, rhs):
    return (lhs.double() @ rhs.double()).bfloat16()


def rounding_each_block(lhs, rhs):
    total = torch.zeros(*lhs.shape[:-1], rhs.shape[-1], dtype=torch.bfloat16)
    for left, right in zip(lhs.split(500, -1), rhs.split(500, -2)):
        total += exact(left, right)
    return total


def wrong_in_batches(lhs, rhs):
    return exact(lhs, rhs) if lhs.ndim == 2 else rounding_each_block(lhs, rhs)


@pytest.mark.parametrize(
    ("product", "found"),
    [(exact, {"matmul", "batch"}), (wrong_in_batches, {"matmul"}), (rounding_each_block, set())],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_only_products_that_round_once_are_used(monkeypatch, product, found):
    monkeypatch.setattr(kernels, "product", lambda lhs, rhs, dtype: product)
    assert halves.accumulating() == found
