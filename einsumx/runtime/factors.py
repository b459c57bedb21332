"""``alpha=`` and ``beta=``: the factors of ``addeinsum``, which returns ``beta * c + alpha * einsum(...)``.

Caches see the kinds of the factors, never their values, so calls with other values share a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from einsumx.adapters.facets import needs_gradient
from einsumx.adapters.operand_types import is_symbol, type_name
from einsumx.adapters.registry import owner
from einsumx.dtypes import kind, wrapped
from einsumx.errors import REFUSALS, BackendError, shown
from einsumx.scalars import as_python

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter

_WIDTH = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3, "O": 4}
_WORDS = {"i": "an integer", "f": "a float", "c": "complex", "O": "no number that an array holds"}

_PYTHONS: dict[str, Callable[[Any], Any]] = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
"""For each kind of dtype, Python's type of such a number."""


class Factors(NamedTuple):
    """The factor of a contraction, and that of the array to which it is added."""

    alpha: Any
    beta: Any

    @property
    def kinds(self) -> tuple[str, str]:
        """The kinds of both, as :func:`einsumx.dtypes.kind` names them; 0 and 1 are bools."""
        return _kind_of(self.alpha), _kind_of(self.beta)

    def within(self, dtype: str) -> Factors:
        """Both as Python numbers of the kind of ``dtype``; integers wrap.

        Raises:
            BackendError: an integer is larger than every float.
        """
        return Factors(_within(self.alpha, dtype), _within(self.beta, dtype))


def factors_of(alpha: Any, beta: Any) -> Factors:
    """The factors of a call; None is 1.

    Raises:
        TypeError: one is no number.
        BackendError: one is an array without a value, or asks for a gradient.
    """
    alpha, beta = _as_factor("alpha", alpha), _as_factor("beta", beta)
    return Factors(1 if alpha is None else alpha, 1 if beta is None else beta)


def _as_factor(name: str, value: Any) -> Any:
    """The value of ``alpha=`` or ``beta=``: a number, a NumPy scalar, or an array without axes; None stays None."""
    if value is None or type(value) in _PYTHONS.values():
        return value
    value = as_python(value)
    if isinstance(value, Number):
        return value
    shape = getattr(value, "shape", None)
    if shape is None and hasattr(value, "__index__"):  # an integer that torch.compile traces
        return index(value)
    if shape != ():
        raise TypeError(f"{name}= must be a number, not {shown(value)}")
    adapter = owner(value)
    if adapter is not None and needs_gradient(adapter, value):
        raise BackendError(f"{name}= has no gradient; multiply the result by it instead, or detach it")
    try:
        found = _value(adapter, value)
    except REFUSALS as error:
        raise _no_value(name, value) from error
    if is_symbol(type(found)):
        raise _no_value(name, value)
    return found


def _no_value(name: str, value: Any) -> BackendError:
    what = f"{name}= must be a number, and this {type_name(type(value))} has no value yet"
    return BackendError(f"{what}; multiply the result by it instead")


def _value(adapter: Adapter | None, array: Any) -> Any:
    """The value of an array without axes."""
    if adapter is None or hasattr(array, "item"):
        return array.item()
    if hasattr(array, "__float__"):  # the array API standard
        return _PYTHONS[kind(adapter.dtype_name(array.dtype))](array)
    return adapter.to_numpy(array).item()


def common_dtype(adapter: Adapter, dtype: str, target: str) -> str:
    """The dtype in which results of ``dtype`` are added to an array of dtype ``target``, in which they end."""
    return dtype if dtype == target else adapter.promote([dtype, target])


def check_kinds(kinds: tuple[str, str], dtype: str) -> None:
    """Raise BackendError if a factor has a wider kind than ``dtype``, in which it multiplies."""
    for name, own in zip(Factors._fields, kinds):
        if _WIDTH[own] <= _WIDTH[kind(dtype)]:
            continue
        if kind(dtype) == "b":
            raise BackendError(
                f"{name}= must be 0 or 1 for a result of dtype bool; pass dtype= for a result of numbers"
            )
        raise BackendError(
            f"{name}= is {_WORDS[own]}, and the result has dtype {dtype}; pass a dtype= that holds the product"
        )


def _kind_of(value: Any) -> str:
    if isinstance(value, int):
        return "b" if value in (0, 1) else "i"
    if isinstance(value, float | complex):
        return "f" if isinstance(value, float) else "c"
    return str(getattr(getattr(value, "dtype", None), "kind", "O"))  # NumPy's long double is no Python number


def _within(value: Any, dtype: str) -> Any:
    match kind(dtype):
        case "b":
            return bool(value)
        case "i" | "u":
            return wrapped(int(value), dtype)
        case "f" | "c" if isinstance(value, int):
            return _as_float(value, dtype)
        case _:
            return value


def _as_float(value: int, dtype: str) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise BackendError(f"alpha= or beta= is an integer that {dtype} cannot hold; pass math.inf instead") from error
