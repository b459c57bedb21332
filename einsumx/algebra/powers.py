"""Exact powers of two for arrays whose values are not known yet, as in a trace, from the bits of floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from einsumx.adapters.typing import Array

Bits = Callable[[Array, str], Array]
"""Reads the bits of an array as another dtype of the same size, by name."""


class _Form(NamedTuple):
    """The layout of a float: the integer of its size, the bits of its fraction, and the exponent of 1."""

    integer: str
    fraction: int
    bias: int


_FORMS = {"float32": _Form("int32", 23, 127), "float64": _Form("int64", 52, 1023)}


def traced_exponent(largest: Array, dtype: str, bits: Bits, where: Callable[..., Array]) -> Array:
    """The exponent ``e`` with ``2**(e-1) <= largest < 2**e``, as an integer array; 0 for 0.

    Args:
        largest: finite and not negative, of float32 or float64.
        dtype: its dtype by name.
        bits: of the framework.
        where: of the framework.
    """
    integer, fraction, bias = _FORMS[dtype]
    is_small = largest < 2.0 ** (1 - bias)  # its exponent is in the fraction
    grown = where(is_small, largest * 2.0 ** (fraction + 1), largest)
    exponent = (bits(grown, integer) >> fraction) - (bias - 1)
    exponent = where(is_small, exponent - (fraction + 1), exponent)
    return where(largest > 0, exponent, exponent * 0)


def traced_powers(exponent: Array, dtype: str, bits: Bits) -> list[Array]:
    """Three powers of two whose product is ``2**exponent``, as arrays of ``dtype``; no float holds all such products.

    Args:
        exponent: of the integer dtype with the size of ``dtype``, at most twice that of its largest number.
        dtype: float32 or float64.
        bits: of the framework.
    """
    _, fraction, bias = _FORMS[dtype]
    third = exponent // 3
    return [bits((part + bias) << fraction, dtype) for part in (third, third, exponent - 2 * third)]
