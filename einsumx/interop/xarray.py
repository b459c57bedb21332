"""Contractions of xarray's arrays, whose dimensions are the labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from importlib import import_module
from typing import Any

from einsumx.adapters.registry import get_backend, lazy
from einsumx.api import einsum
from einsumx.errors import BackendError, EquationError, SizeError, shown
from einsumx.runtime.dtype_rules import name_of_dtype

xarray: Any = import_module("xarray")


_NO_NUMBERS = frozenset("mMSUT")
"""The kinds of NumPy's dtypes of intervals of time, dates and text."""


def dot(*arrays: Any, dim: Any = None, **keywords: Any) -> Any:
    """``xarray.dot``, computed by einsumx: the sum of the product of arrays over some of their dimensions.

    Dimensions of equal names are multiplied together. Alignment, coordinates, names and attributes are those of
    ``xarray.dot``: coordinates are aligned by an inner join (``arithmetic_join="exact"`` raises an error instead), and
    attributes are kept as ``xarray.set_options(keep_attrs=...)`` says. Arrays of time, dates or text are left to
    ``xarray.dot``, if no keyword but ``dim`` is passed.

    Args:
        *arrays: any number of DataArrays or Variables. Their data belong to any framework that einsumx serves; those of
            Dask make a lazy result.
        dim: the dimension to sum over, or several; ``...`` for all; by default those that two arrays or more have.
        **keywords: as for :func:`einsumx.einsum`, such as ``dtype=``, ``optimize=`` and ``memory_limit=``.

    Returns:
        A DataArray, or a Variable if all arrays are Variables, on the framework of the data. Its dimensions are in the
        order in which the arrays have them.

    Raises:
        BackendError: an operand is not one of xarray's arrays, or as :func:`einsumx.einsum` raises.
        EquationError: no operands.
        SizeError: no array has a dimension in ``dim``.
        EinsumxError: as :func:`einsumx.einsum` does.
        ValueError: xarray cannot align the arrays or broadcast their sizes.

    >>> import numpy as np, xarray as xr
    >>> rain = xr.DataArray(np.ones((2, 3)), coords={"year": [2001, 2002], "basin": ["a", "b", "c"]})
    >>> area = xr.DataArray([1.0, 2.0, 3.0], coords={"basin": ["a", "b", "c"]})
    >>> dot(rain, area).coords["year"].values
    array([2001, 2002])
    """
    if not arrays:
        raise EquationError("dot needs at least one DataArray")
    for number, array in enumerate(arrays):
        if not isinstance(array, xarray.DataArray | xarray.Variable):
            raise BackendError(
                f"operand {number} is {shown(type(array))}, but dot takes xarray's DataArrays and Variables; call "
                "einsumx.einsum for other arrays, and Dataset.map() for each variable of a Dataset"
            )
    if not keywords and any(getattr(array.dtype, "kind", "") in _NO_NUMBERS for array in arrays):
        return xarray.dot(*arrays, dim=dim)
    times = Counter(name for array in arrays for name in array.dims)
    summed = _summed(dim, times)
    kept = [name for name in times if name not in summed]

    def contract(*data: Any) -> Any:
        result = einsum(*[item for pair in zip(data, terms) for item in pair], kept, **keywords)
        dtypes = [each.dtype for each in data] if keywords.get("dtype") is None else [keywords["dtype"]]
        # xarray would take the dtype of a bare object from its value.
        is_bare = not kept and "object" in map(name_of_dtype, dtypes) and lazy([result]) is None
        return get_backend("numpy").boxed(result, "object") if is_bare else result

    terms = [list(array.dims) for array in arrays]
    # The sum of a product has only the places that all arrays have, whichever join the options name.
    join = "exact" if xarray.get_options()["arithmetic_join"] == "exact" else "inner"
    return xarray.apply_ufunc(
        contract, *arrays, input_core_dims=terms, output_core_dims=[kept], join=join, dask="allowed"
    )


def _summed(dim: Any, times: Counter[Hashable]) -> set[Hashable]:
    """The dimensions to sum over; ``times`` says how many arrays have each."""
    if dim is None:
        return {name for name, count in times.items() if count > 1}
    if dim is ...:
        return set(times)
    names = {dim} if isinstance(dim, str) or not isinstance(dim, Iterable) else set(dim)
    if unknown := names - set(times):
        raise SizeError(f"no array has a dimension {shown(min(unknown, key=str))}; there are {shown(list(times))}")
    return names
