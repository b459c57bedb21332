"""What can be said of Paddle's dtypes and memory without importing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from einsumx.adapters.registry import get_backend
from einsumx.dtypes import adopts, itemsize, kind
from einsumx.errors import BackendError
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Matmul, Multiply, Op
from einsumx.ir.traits import HALVES

MAX_AXES = 9
"""The most axes of a tensor."""

INTEGERS = frozenset({"uint8", "int8", "int16", "int32", "int64"})
DTYPES = frozenset({"bool", "float32", "float64", "complex64", "complex128", *INTEGERS, *HALVES})

WIDER = {"int8": "int32", "uint8": "int32", "int16": "int32", "float16": "float32", "bfloat16": "float32"}
"""Dtypes whose products Paddle lacks, on the CPU at least, and those whose products give the same after a cast."""


def is_number(size: Any) -> bool:
    """Whether a size in the shape of a static graph's value is known: others are -1 or values themselves."""
    return type(size) is int and size >= 0


def promoted(first: str, second: str) -> str:
    """The dtype of a product of tensors of two dtypes, by Paddle's rules.

    Raises:
        BackendError: Paddle promotes only floats with floats, and complex dtypes with all others.
    """
    if first == second:
        return first
    kinds = {kind(first), kind(second)}
    if "c" not in kinds and kinds != {"f"}:
        raise BackendError(f"paddle does not promote {first} and {second}; cast one of them, or pass dtype=")
    size = max(itemsize(name) // (2 if kind(name) == "c" else 1) for name in (first, second) if kind(name) in "fc")
    if "c" in kinds:
        return "complex128" if size == 8 else "complex64"
    return f"float{8 * size}" if size > 2 else "float32"  # of float16 and bfloat16 it is float32


def adopted(dtype: str, scalar: type) -> str:
    """The dtype of a Python scalar of that type next to tensors of ``dtype``."""
    if adopts(dtype, scalar):
        return dtype
    if scalar is int:
        return "int64"
    if scalar is complex:
        return "complex128" if dtype == "float64" else "complex64"
    return "float32"


def workspace(op: Op, operands: Sequence[Operand]) -> int:
    """The most bytes that a product allocates, without its result."""
    dtype = operands[0].dtype
    shapes = [operand.shape for operand in operands]
    match op:
        case Matmul() if dtype in INTEGERS:
            flags = op.transpose_lhs, op.transpose_rhs
            turned = [replace(each, shape=turned_shape(each.shape, flag)) for each, flag in zip(operands, flags)]
            return get_backend("numpy").workspace(replace(op, transpose_lhs=False, transpose_rhs=False), turned)
        case Multiply() if dtype in WIDER:
            return itemsize(WIDER[dtype]) * (sum(map(prod, shapes)) + prod(op.result_shape(shapes)))
        case _:
            return 0


def turned_shape(shape: tuple[int, ...], flag: bool) -> tuple[int, ...]:
    """The shape of matrices that a set flag transposes."""
    return (*shape[:-2], shape[-1], shape[-2]) if flag else shape
