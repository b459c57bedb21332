"""The dtype of a contraction under ``torch.autocast``: that of ``torch.einsum``, whatever a plan does.

``torch.einsum`` is on autocast's list itself for some kinds of device, such as CUDA. For others, such as the CPU, only
the products of matrices to which it comes down are: those of two factors along a label that is summed.

This module imports torch; the adapter imports it when a contraction is first planned under autocast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from einsumx.adapters.base import Run
from einsumx.ir.bind import SizedEquation
from einsumx.ir.parse import symbol

torch: Any = import_module("torch")

_CAST = {"float16", "bfloat16", "float32"}
"""The dtypes that autocast casts."""

_TYPICAL = 64
"""What an unknown size counts as."""


class _Factor(NamedTuple):
    """An operand or an intermediate.

    Attributes:
        labels: of its axes of more than one element.
        dtype: by name.
    """

    labels: frozenset[int]
    dtype: str


def outside(run: Run, device: str) -> Run:
    """``run``, outside of autocast on a device."""

    def function(*operands: Any) -> Any:
        # torch.export records this context, by a mode, but not the other one, which takes a tenth of the time.
        is_observed = torch._C._len_torch_function_stack()
        with torch.autocast(_kind(device), enabled=False) if is_observed else torch._C._DisableAutocast():
            return run(*operands)

    return function


def _kind(device: str) -> str:
    return device.partition(":")[0] or "cpu"


def result_dtype(
    sized: SizedEquation,
    dtypes: Sequence[str],
    device: str,
    lower: str,
    promote: Callable[[Sequence[str]], str],
) -> str:
    """The dtype that ``torch.einsum`` returns; where it refuses mixed dtypes, their promotion after autocast's casts.

    Args:
        sized: the equation.
        dtypes: of the operands.
        device: where they are.
        lower: autocast's dtype.
        promote: torch's promotion.
    """

    def cast(dtypes: Sequence[str]) -> str:
        return promote([lower if dtype in _CAST else dtype for dtype in dtypes])

    if _is_listed(_kind(device)):
        return cast(dtypes)
    factors = [
        _Factor(frozenset([label for label, size in zip(labels, shape) if size != 1]), dtype)
        for labels, shape, dtype in zip(sized.inputs, sized.shapes, dtypes)
    ]
    for first, second in _path(sized):
        right, left = factors.pop(max(first, second)), factors.pop(min(first, second))
        needed = frozenset(sized.output).union(*[factor.labels for factor in factors])
        is_product = left.labels & right.labels - needed
        pair = left.dtype, right.dtype
        factors.append(_Factor((left.labels | right.labels) & needed, (cast if is_product else promote)(pair)))
    return factors[0].dtype


def _is_listed(kind: str) -> bool:
    """Whether autocast knows einsum as a whole on a kind of device."""
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key("aten::einsum", f"Autocast{kind.upper()}"))
    except RuntimeError:  # a device of another package
        return False


def _path(sized: SizedEquation) -> Sequence[tuple[int, int]]:
    """The pairs that ``torch.einsum`` contracts: from left to right without opt_einsum."""
    count = len(sized.inputs)
    if count < 3 or not torch.backends.opt_einsum.is_available():
        return ((0, 1),) * (count - 1)
    terms = ["".join(map(symbol, labels)) for labels in (*sized.inputs, sized.output)]
    shapes = [[size if type(size) is int else _TYPICAL for size in shape] for shape in sized.shapes]
    find = torch.backends.opt_einsum.get_opt_einsum().contract_path
    path: Sequence[tuple[int, int]] = find(f"{','.join(terms[:-1])}->{terms[-1]}", *shapes, shapes=True)[0]
    return path
