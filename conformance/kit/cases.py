"""The cases, as the file ``cases.json`` has them, and a judge for one call."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .arrays import ArraySpec, Numbers, values
from .oracle import expect, judge

CASES = Path(__file__).with_name("cases.json")
"""The file with all cases."""


class NotApplicable(Exception):  # noqa: N818  an outcome, not an error
    """Why a case does not apply, such as a dtype that the library lacks."""


@dataclass(frozen=True, slots=True)
class Case:
    """One call of einsum.

    Attributes:
        id: the feature, the equation, and the operands' shapes and dtypes.
        feature: the part of the description that the case shows.
        equation: the equation.
        operands: one spec per operand; their values are drawn one after the other.
        seed: the seed of the values, see :class:`Numbers`.
        dtype: the result's dtype; empty if the call is an error.
    """

    id: str
    feature: str
    equation: str
    operands: tuple[ArraySpec, ...]
    seed: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Implementation:
    """An einsum function, and the module that makes its operands.

    Attributes:
        function: the function.
        arrays: a module with the array API's ``asarray`` and dtypes, and ``to_numpy(array)`` if ``numpy.asarray`` does
            not convert its arrays.
    """

    function: Callable[..., Any]
    arrays: ModuleType

    def array(self, host: Any, dtype: str) -> Any:
        """An array of the library.

        Raises:
            NotApplicable: the library lacks the dtype.
        """
        own = getattr(self.arrays, dtype, None) or getattr(self.arrays, f"{dtype}_", None)  # NumPy 1 has bool_
        if own is not None:
            array = self.arrays.asarray(host.copy(), dtype=own)
            if self.host(array).dtype == dtype:  # JAX makes float32 of float64 by default
                return array
        raise NotApplicable(f"{self.arrays.__name__} has no {dtype}")

    def host(self, array: Any) -> Any:
        """An array's values in NumPy."""
        return np.asarray(getattr(self.arrays, "to_numpy", np.asarray)(array))


def einsum_of(path: str, arrays: str = "") -> Implementation:
    """The function ``module:name``; by default on arrays of that module, or NumPy if it has no ``asarray``.

    >>> einsum_of("numpy:einsum").arrays.__name__
    'numpy'
    """
    module, _, name = path.partition(":")
    function = attrgetter(name)(import_module(module))
    chosen = import_module(arrays or module)
    return Implementation(function, chosen if hasattr(chosen, "asarray") else np)


def cases() -> list[Case]:
    """All cases."""
    listed = json.loads(CASES.read_text(encoding="utf-8"))["cases"]
    return [Case(**{**each, "operands": tuple(map(_spec, each["operands"]))}) for each in listed]


def _spec(operand: dict[str, Any]) -> ArraySpec:
    return ArraySpec(tuple(operand["shape"]), operand["dtype"], fill=operand["fill"])


def failure(case: Case, einsum: Implementation) -> str:
    """How the function breaks a case, in a sentence; empty if it does not.

    Raises:
        NotApplicable: the library lacks a dtype of the case.
    """
    numbers = Numbers(case.seed)
    hosts = [values(operand, numbers) for operand in case.operands]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of infinities and nan
        arrays = [einsum.array(host, operand.dtype) for host, operand in zip(hosts, case.operands)]
        if case.dtype:
            einsum.array(np.zeros(1, case.dtype), case.dtype)
            result = einsum.host(einsum.function(case.equation, *arrays))
            wrong = judge(result, expect(case.equation, *hosts, dtype=case.dtype)).wrong
        else:
            wrong = _not_refused(case, einsum, arrays)
        changed = [
            f"operand {place} was changed"
            for place, (array, host) in enumerate(zip(arrays, hosts))
            if not np.array_equal(einsum.host(array), host, equal_nan=host.dtype.kind in "fc")
        ]
    return "; ".join([*[wrong] * bool(wrong), *changed])


def _not_refused(case: Case, einsum: Implementation, arrays: list[Any]) -> str:
    try:
        result = einsum.host(einsum.function(case.equation, *arrays))
    except (TypeError, ValueError, RuntimeError):
        return ""
    return f"no error was raised; the result has shape {result.shape}"
