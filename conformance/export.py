"""Writes the kit's cases: those of the suite that a few words describe, and that concern einsum alone.

``python -m einsumx.conformance.export`` writes ``conformance/kit/cases.json`` again after a change of the suite.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from einsumx.conformance.case import Case
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.features import dtypes, errors, forms, sizes
from einsumx.conformance.features.dtypes import promotes
from einsumx.conformance.framework import DTYPES
from einsumx.conformance.kit.cases import CASES
from einsumx.conformance.refusals import is_refused

_DTYPES = tuple(dtype for dtype in DTYPES if dtype not in ("float16", "bfloat16"))
"""The dtypes of the array API standard."""

_ABOUT = """\
Each case is a call einsum(equation, *operands). "dtype" is that of the result; if it is empty, the call is an error. \
The values of the operands are drawn one after the other from "seed": arrays.py has the generator and the fills. \
oracle.py computes the exact result, and the bound on the error of each of its elements. \
The package einsum_conformance has both files."""


def kit_text() -> str:
    """The text of ``cases.json``, one line per case."""
    lines = ",\n".join(json.dumps(each) for each in _kit_cases())
    return f'{{"about": {json.dumps(_ABOUT)},\n"cases": [\n{lines}\n]}}\n'


def _kit_cases() -> Iterator[dict[str, Any]]:
    for module in (forms, sizes, dtypes, errors):
        for case in module.cases():
            if _is_of_einsum(case) and (result := _result(case)) is not None:
                yield {
                    "id": case.id,
                    "feature": case.feature,
                    "equation": case.equation,
                    "operands": [
                        {"shape": each.shape, "dtype": each.dtype, "fill": each.fill} for each in case.operands
                    ],
                    "seed": case.values_seed(),
                    "dtype": result,
                }


def _is_of_einsum(case: Case) -> bool:
    """Whether a case is a call with text of ASCII letters and blanks, and arrays of the standard alone."""
    equation = case.equation
    is_plain = isinstance(equation, str) and equation.isascii() and not set(equation) & set("\t\n")
    extends = case.options or case.out or case.semiring or case.only_einsumx or case.function != "einsum"
    arrays = all(each.layout == "C" and each.dtype in _DTYPES for each in case.operands)
    at_level = not case.full or case.feature == "promotion"
    return is_plain and arrays and at_level and not extends and case.feature != "wrong operands"


def _result(case: Case) -> str | None:
    """The dtype of the result, empty for an error; None if the standard, or the kit, says nothing."""
    if case.raises:
        check = case.check.func if isinstance(case.check, partial) else case.check
        return "" if check in (is_refused, errors.shows_the_place) else None
    if case.check not in (gives_the_plain_sum, promotes):
        return None
    kinds = {np.dtype(each.dtype).kind for each in case.operands}
    if not any(kinds <= set(together) for together in ("b", "iu", "fc")):
        return None
    promoted = np.result_type(*(each.dtype for each in case.operands)).name
    return promoted if kinds & set("fc") or not promoted.startswith("float") else None  # of uint64 and int64


if __name__ == "__main__":
    CASES.write_text(kit_text(), encoding="utf-8")
