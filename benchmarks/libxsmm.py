"""An einsum of two operands with etops, which generates kernels with LIBXSMM."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from einsumx.host.threads import core_count

etops = import_module("etops")  # has no types

KINDS = {"110": etops.dim.k, "101": etops.dim.m, "011": etops.dim.n, "111": etops.dim.c}
"""Kinds of labels, by whether they are in the first operand, in the second, and in the result."""


def einsum(equation: str, *operands: Any) -> Any:
    """Contract two arrays of float32; views are copied first, because etops reads memory in C order.

    With arrays of float64, etops 26.2.1 writes outside of them.

    Raises:
        ValueError: the operands are not two of float32, or no label is contracted or free in an operand.
        RuntimeError: LIBXSMM has no kernel.
    """
    left, _, output = equation.partition("->")
    terms = (*left.split(","), output)
    if len(operands) != 2 or {operand.dtype.name for operand in operands} != {"float32"}:
        raise ValueError("only two operands of float32")
    first, second = map(np.ascontiguousarray, operands)
    sizes = {**dict(zip(terms[0], first.shape)), **dict(zip(terms[1], second.shape))}
    result = np.empty([sizes[label] for label in output], np.float32)
    _operation(terms, tuple(sizes.items())).execute(first, second, result)
    return result


@lru_cache(1024)
def _operation(terms: tuple[str, str, str], items: tuple[tuple[str, int], ...]) -> Any:
    """The optimized operation on arrays in C order."""
    sizes = dict(items)
    kinds = [KINDS.get("".join(str(int(label in term)) for term in terms)) for label in sizes]
    if not {etops.dim.m, etops.dim.n, etops.dim.k} <= set(kinds) <= set(KINDS.values()):
        raise ValueError("only contractions with labels of each kind")
    config = etops.TensorOperationConfig(
        backend="tpp",
        data_type=etops.float32,
        prim_first=etops.prim.zero,
        prim_main=etops.prim.gemm,
        prim_last=etops.prim.none,
        dim_types=tuple(kinds),
        exec_types=(etops.exec.seq,) * len(sizes),
        dim_sizes=tuple(sizes.values()),
        strides=(tuple(_strides(term, sizes) for term in terms),),
    )
    options = {**etops.backend.tpp.get_default_optimization_config(), "num_threads": core_count()}
    return etops.TensorOperation(etops.optimize(config, options))


def _strides(term: Sequence[str], sizes: dict[str, int]) -> tuple[int, ...]:
    """The stride of each label in an array in C order, in elements; 0 for labels that it lacks."""
    strides, step = dict.fromkeys(sizes, 0), 1
    for label in reversed(term):
        strides[label] = step
        step *= sizes[label]
    return tuple(strides.values())
