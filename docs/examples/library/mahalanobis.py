"""Mahalanobis distances, for arrays of any library: an example of a package that uses einsumx where it is installed."""

from array_api_compat import array_namespace


def native_einsum(equation, *operands):
    """The einsum of the arrays' own library.

    Raises:
        ImportError: it has none.
    """
    xp = array_namespace(*operands)
    if not hasattr(xp, "einsum"):
        raise ImportError(f"{xp.__name__} has no einsum: pip install einsumx")
    return xp.einsum(equation, *operands)


try:
    from einsumx import einsum
except ModuleNotFoundError:
    einsum = native_einsum


def distances(points, center, precision):
    """The distance of each point (..., d) from the center (d,), by a precision matrix (d, d)."""
    offsets = points - center
    squares = einsum("...i,ij,...j->...", offsets, precision, offsets)
    return array_namespace(squares).sqrt(squares)
