"""The rules of dtypes: their names, the dtype of a result, and the one that its products and sums are computed in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from einsumx.adapters.operand_types import dtype_error
from einsumx.dtypes import can_cast, kind
from einsumx.errors import BackendError, shown

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter
    from einsumx.ir.operand import Operand
    from einsumx.ir.traits import Traits

_BUILTIN = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def dtype_name(adapter: Adapter, dtype: Any, keyword: str = "dtype") -> str | None:
    """The name of a dtype that a user passed as a keyword: a name, a Python type, or the framework's own dtype.

    Raises:
        BackendError: the framework lacks the dtype.
    """
    if dtype is None:
        return None
    if isinstance(dtype, str):
        return adapter.dtype_name(adapter.dtype(dtype))
    try:
        name = _BUILTIN.get(dtype) or adapter.dtype_name(dtype)
    except (BackendError, TypeError, ValueError) as error:  # a memoryview has no hash
        raise BackendError(_not_a_dtype(adapter, dtype, keyword)) from error
    return adapter.dtype_name(adapter.dtype(name))


def name_of_dtype(dtype: Any) -> str:
    """The name of a dtype of any framework; that of None is ``"None"``.

    >>> name_of_dtype("float32"), name_of_dtype(int)
    ('float32', 'int')
    """
    return str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype).rpartition(".")[2]


def _not_a_dtype(adapter: Adapter, dtype: Any, keyword: str) -> str:
    """The message for a value of ``dtype=`` or ``accumulate=`` that is not one of the framework's dtypes."""
    name = name_of_dtype(dtype)
    if kind(name) != "O":
        return f"{keyword}={shown(dtype)} is a dtype of another framework; pass its name: {keyword}={name!r}"
    example = f"{keyword}='float32'"
    return f"{keyword}={shown(dtype)} is not a dtype of {adapter.name}; pass one, such as {example}"


def promoted(adapter: Adapter, operands: Sequence[Operand]) -> str:
    """The framework's promotion of the operands' dtypes; empty without operands."""
    dtype = operands[0].dtype if operands else ""
    for operand in operands:
        if operand.dtype != dtype or operand.weak != operands[0].weak:
            break
    else:
        return dtype
    strong = list(dict.fromkeys([operand.dtype for operand in operands if not operand.weak]))
    weak = list(dict.fromkeys([operand.dtype for operand in operands if operand.weak]))
    return adapter.promote_weak(strong, weak) if weak else adapter.promote(strong)


def check_dtypes(adapter: Adapter, served: Collection[str], *dtypes: str | None) -> None:
    """Raise BackendError if a framework's einsum does not serve one of the dtypes, of which some may be None."""
    for name in dtypes:
        if name is not None and name not in served:
            raise dtype_error(adapter.name, name)


def accumulator(operands: Sequence[Operand], accumulate: str, dtype: str, traits: Traits) -> str | None:
    """The dtype that ``accumulate=`` asks for, to compute a result of ``dtype`` in; None if it changes no result.

    Overflow of integers wraps, so that a sum in wider integers ends in the same bits. Where the framework's own
    products accumulate in that dtype, the operands need no cast.

    Raises:
        BackendError: it does not hold an operand or the result, or a cast from it to the result would lose a part.
    """
    named = f"accumulate={accumulate!r}"
    for number, operand in enumerate(operands):
        if not can_cast(operand.dtype, accumulate, "safe"):
            raise BackendError(
                f"{named} does not hold every value of operand {number}, which has dtype {operand.dtype}; pass a wider "
                "accumulate=, or cast the operand first"
            )
    if not can_cast(dtype, accumulate, "safe"):
        raise BackendError(
            f"{named} does not hold every value of the result, which has dtype {dtype}; pass a wider accumulate=, or "
            "another dtype="
        )
    if kind(dtype) in "biu" and kind(accumulate) in "biu":
        return None
    if not can_cast(accumulate, dtype, "same_kind"):
        raise BackendError(
            f"{named} is of another kind (integer, float, complex) than the result, which has dtype {dtype}; pass "
            f"dtype={accumulate!r} too"
        )
    return None if accumulate in (dtype, traits.compute_dtype(dtype)) else accumulate
