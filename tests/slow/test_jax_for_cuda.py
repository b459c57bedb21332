"""What JAX lowers einsumx's calls to for CUDA: the products, sums and transposes of the plan, and no others.

XLA compiles the lowered module on the machine with the GPU. Here nothing runs, so no value is judged.
"""

import re
from collections import Counter

import pytest

import einsumx
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.suite import cases
from einsumx.ir import ops

jax = pytest.importorskip("jax")
export = pytest.importorskip("jax.export")

MOST_OPERANDS = 20

FREE = {"reshape", "broadcast_in_dim", "convert", "real", "compare", "constant", "add", "or", "return"}
"""Operations without a kernel of their own: XLA fuses them, and the last four are parts of reductions and casts."""

OF_SEVERAL = (ops.Diagonal, ops.Zeros)
"""Ops that are lowered to several operations."""


def is_lowered(case):
    """Whether a case is a call of einsum with JAX's arrays alone, whose plan can be made from shapes."""
    return (
        case.function == "einsum"
        and case.semiring is None
        and case.check is gives_the_plain_sum
        and isinstance(case.equation, str)
        and len(case.operands) <= MOST_OPERANDS
        and all(spec.layout == "C" and spec.dtype in jax.numpy.__dict__ for spec in case.operands)
        and "order" not in dict(case.options)
    )


def is_in_order(lhs, rhs, output):
    """Whether ``dot_general`` gives the axes of a product's result in the order of ``output``."""
    batch = set(lhs) & set(rhs) & set(output)
    free = [label for label in lhs + rhs if label in set(output) - batch]
    return set(output[: len(batch)]) == batch and list(output[len(batch) :]) == free


def kernels_of(plan):
    """How often a plan computes a product, a sum, and so on, by StableHLO's names."""
    names = Counter()
    for op in plan.ops:
        match op:
            case ops.Native(operands=(_, _)):
                names["dot_general"] += 1
                names["transpose"] += not is_in_order(*op.terms, op.output)
            case ops.Transpose():
                names["transpose"] += 1
            case ops.Sum():
                names["reduce"] += 1
            case ops.Multiply():
                names["and" if plan.dtype == "bool" else "multiply"] += 1
            case ops.Cast() | ops.Reshape() | ops.Copy() | ops.Expand():
                pass
            case _:
                raise AssertionError(f"a plan for JAX has {op}")
    return +names


@pytest.fixture(autouse=True)
def x64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.filterwarnings("ignore:Casting from complex to real:DeprecationWarning")
@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in cases("quick") if is_lowered(case)])
def test_jax_lowers_a_call_for_cuda_to_what_the_plan_says(case):
    def function(*arrays):
        return einsumx.einsum(case.equation, *arrays, **dict(case.options))

    shapes, dtypes = [spec.shape for spec in case.operands], [spec.dtype for spec in case.operands]
    arguments = [jax.ShapeDtypeStruct(*each) for each in zip(shapes, dtypes)]
    module = str(export.export(jax.jit(function), platforms=["cuda"])(*arguments).mlir_module())
    names = Counter(re.findall(r"(?<!#)stablehlo\.(\w+)", module))
    assert "custom_call" not in names
    options = {**dict(case.options), "backend": "jax", "device": "cuda"}
    plan = einsumx.plan(case.equation, *shapes, dtypes=dtypes, **options)
    if any(isinstance(op, OF_SEVERAL) or (len(op.sources) == 1 and isinstance(op, ops.Native)) for op in plan.ops):
        assert names["dot_general"] == sum(isinstance(op, ops.Native) and len(op.sources) == 2 for op in plan.ops)
    else:
        found, planned = Counter({name: count for name, count in names.items() if name not in FREE}), kernels_of(plan)
        # A product moves the axes of its operands first if that spares it a larger copy of the result.
        spared = planned["dot_general"] and found.pop("transpose", 0) - planned.pop("transpose", 0)
        assert spared <= 2 * planned["dot_general"]
        assert found == planned
