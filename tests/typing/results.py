"""What type checkers know of results: the arrays' own type; NumPy's may be scalars. Nothing runs this file."""

from typing import Any

import dask.array as da
import jax
import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import assert_type

import einsumx
from einsumx import MemoryLimit
from einsumx.plans import BlockedPlan
from einsumx.semirings import max_plus


class Other:
    """The arrays of a library that no checker has heard of."""


def text(
    matrix: NDArray[np.float64], row: NDArray[np.float32], lhs: torch.Tensor, rhs: jax.Array, lazy: da.Array
) -> None:
    assert_type(einsumx.einsum("ij->ji", matrix), Any)
    assert_type(einsumx.einsum("ij,j->i", matrix, row), Any)
    assert_type(einsumx.einsum("ij,jk->ik", lhs, lhs), torch.Tensor)
    assert_type(einsumx.einsum("ij,jk->ik", rhs, rhs), jax.Array)
    assert_type(einsumx.einsum("ij,jk->ik", lazy, lazy), da.Array)
    assert_type(einsumx.einsum("ij->ji", Other()), Other)


def lists_and_names(matrix: NDArray[np.float64], lhs: torch.Tensor, rhs: jax.Array) -> None:
    assert_type(einsumx.einsum(matrix, [0, 1], matrix, [1, 2], [0, 2]), Any)
    assert_type(einsumx.einsum(lhs, [0, 1], lhs, ("j", 2)), torch.Tensor)
    assert_type(einsumx.einsum(matrix, matrix, "row k, k column -> row column"), Any)
    assert_type(einsumx.einsum(rhs, rhs, "row k, k column -> row column"), jax.Array)


def numbers_and_lists_beside_arrays(matrix: NDArray[np.float64], lhs: torch.Tensor) -> None:
    assert_type(einsumx.einsum("ij,->ij", matrix, 2.5), Any)
    assert_type(einsumx.einsum("ij,j->i", lhs, [1, 2, 3]), torch.Tensor)
    assert_type(einsumx.einsum(lhs, 2j, "i j, -> i j"), torch.Tensor)
    assert_type(einsumx.einsum("ij->ji", [[1, 2], [3, 4]]), Any)


def keywords(matrix: NDArray[np.float64], lhs: torch.Tensor, rhs: jax.Array) -> None:
    assert_type(einsumx.einsum("ij->ji", lhs, out=lhs, dtype=torch.float64, precision="high"), torch.Tensor)
    assert_type(einsumx.einsum("ij->ji", rhs, preferred_element_type="float32"), jax.Array)
    limit = MemoryLimit("8GiB", devices=["cuda:0", "cuda:1"], progress=True)
    assert_type(einsumx.einsum("ij->ji", matrix, order="F", casting="same_kind", memory_limit=limit), Any)
    assert_type(einsumx.einsum("ij->ji", lhs, optimize=[(0,)], backend="torch", memory_limit=0.5), torch.Tensor)


def arrays_and_scalars_of_numpy(matrix: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    product: NDArray[np.float64] = einsumx.einsum("ij,jk->ik", matrix, matrix)
    trace: float = einsumx.einsum("ii->", matrix)
    total: complex = einsumx.addeinsum(1.0, "ij,ij->", matrix, matrix)
    squared: np.float64 = einsumx.expression("ij,ij->", (2, 3), (2, 3))(matrix, matrix)
    planned: float = einsumx.plan("ij->", (2, 3))(matrix)
    blocked: float = einsumx.plan("ij->", (2, 3), memory_limit="1 MB")(matrix)
    largest: float = max_plus.einsum("ij->", matrix)
    inner: float = einsumx.tensordot(matrix, matrix, axes=2)
    loss = 0.0
    loss += einsumx.einsum("ij,ij->", matrix, matrix)
    return trace + abs(total) + squared + planned + blocked + largest + inner + loss, product


def mistakes(matrix: NDArray[np.float64]) -> None:
    einsumx.einsum("ij->ji", matrix, order="X")  # type: ignore[call-overload]
    einsumx.einsum("ij->ji", matrix, alpha=2)  # type: ignore[call-overload]
    einsumx.addeinsum(matrix, "ij->ji", matrix, devices=["cpu"])  # type: ignore[call-overload]
    max_plus.einsum("ij->ji", matrix, accumulate="float64")  # type: ignore[call-overload]
    einsumx.einsum_frexp("ij->ji", matrix, out=matrix)  # type: ignore[call-arg]


def other_functions(matrix: NDArray[np.float64], lhs: torch.Tensor, rhs: jax.Array) -> None:
    assert_type(einsumx.addeinsum(lhs, "ij,jk->ik", lhs, lhs, alpha=2, out=lhs), torch.Tensor)
    assert_type(einsumx.addeinsum(0, "ij,jk->ik", matrix, matrix), Any)
    assert_type(max_plus.einsum("ij,jk->ik", rhs, rhs), jax.Array)
    assert_type(max_plus.argmax("ij,jk->ik", rhs, rhs), einsumx.ArgmaxResult)
    assert_type(einsumx.einsum_frexp("ij->ji", lhs), einsumx.FrexpResult)
    assert_type(einsumx.tensordot(lhs, lhs, axes=1), torch.Tensor)
    assert_type(einsumx.tensordot(matrix, [1.0, 2.0], axes=1), Any)
    assert_type(einsumx.transpose(rhs), jax.Array)


def plans_and_expressions(matrix: NDArray[np.float64], lhs: torch.Tensor, lazy: da.Array) -> None:
    assert_type(einsumx.plan("ij,jk->ik", (2, 3), (3, 4)), einsumx.Plan)
    assert_type(einsumx.plan("ij,jk->ik", (2, 3), (3, 4), memory_limit="1 MB"), BlockedPlan)
    assert_type(einsumx.plan("ij,jk->ik", (2, 3), (3, 4))(lhs, lhs), torch.Tensor)
    assert_type(einsumx.plan("ij,jk->ik", (2, 3), (3, 4), memory_limit="1 MB")(matrix, matrix), Any)
    assert_type(einsumx.expression("ij,jk->ik", (2, 3), matrix)(matrix, order="C"), Any)
    assert_type(einsumx.expression("ij,jk->ik", (2, 3), (3, 4))(lazy, lazy), da.Array)
    assert_type(max_plus.expression("ij,jk->ik", (2, 3), (3, 4))(lhs, lhs, out=lhs), torch.Tensor)
