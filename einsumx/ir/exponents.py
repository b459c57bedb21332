"""Which contractions return a mantissa and an exponent, ``strip_exponent=True``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from einsumx.dtypes import kind
from einsumx.errors import BackendError

if TYPE_CHECKING:
    from einsumx.ir.semiring import Semiring

__all__ = ["check_stripped"]


def check_stripped(dtype: str, semiring: Semiring | None) -> None:
    """Raise an error unless a result of ``dtype`` can be a mantissa and an exponent.

    Raises:
        BackendError: it is not of floating-point numbers, or the contraction is in a semiring.

    >>> check_stripped("complex64", None)
    """
    if semiring is not None:
        raise BackendError(
            f"strip_exponent=True is for sums of products, not for semiring={semiring.name!r}, whose plans scale "
            "nothing; leave one of them away"
        )
    if kind(dtype) not in "fc":
        raise BackendError(
            f"strip_exponent=True returns a mantissa below 1, which {dtype} does not hold; pass dtype='float64'"
        )
