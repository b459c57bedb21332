"""The largest sums of integers, and the dtypes in which they are exact."""

from __future__ import annotations

from collections.abc import Iterable

from einsumx.dtypes import itemsize, kind

_BITS = {"float32": 24, "float64": 53}
"""The bits of the integers that a float type holds all."""


def largest(dtype: str) -> int | None:
    """The largest absolute value of a bool or integer dtype; None for other dtypes.

    >>> largest("bool"), largest("int8"), largest("uint8"), largest("float32")
    (1, 128, 255, None)
    """
    match kind(dtype):
        case "b":
            return 1
        case "u":
            return (1 << 8 * itemsize(dtype)) - 1
        case "i":
            return 1 << (8 * itemsize(dtype) - 1)
        case _:
            return None


def largest_sum(dtypes: Iterable[str], terms: int) -> int | None:
    """The largest absolute value of a sum of products of a value of each dtype; None if one is no integer.

    All partial sums, and all products of some of the factors, have at most this absolute value too.

    Args:
        dtypes: of the factors.
        terms: how many products are summed.

    >>> largest_sum(["int8", "int8"], 1000)
    16384000
    """
    total = terms
    for dtype in dtypes:
        bound = largest(dtype)
        if bound is None:
            return None
        total *= bound
    return total


def exact_floats(most: int | None) -> set[str]:
    """The float dtypes that hold all integers of at most this absolute value, and therefore sum them exactly.

    >>> sorted(exact_floats(2**24)), exact_floats(2**24 + 1), exact_floats(None)
    (['float32', 'float64'], {'float64'}, set())
    """
    return set() if most is None else {name for name, bits in _BITS.items() if most <= 1 << bits}


def holds(dtype: str, most: int, is_signed: bool) -> bool:
    """Whether an integer dtype holds all values of at most this absolute value; a float that holds none wraps nowhere.

    >>> holds("int8", 127, True), holds("int8", 128, True), holds("uint8", 255, False), holds("uint8", 1, True)
    (True, False, True, False)
    """
    bound = largest(dtype)
    if bound is None or (is_signed and kind(dtype) == "u"):
        return False
    return most < bound or (most == bound and kind(dtype) == "u")
