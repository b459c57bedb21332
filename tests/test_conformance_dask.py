"""Dask arrays in the conformance suite: lazy results, in several chunks along each axis, are held to the contract."""

from functools import cached_property

import numpy as np
import pytest

pytest.importorskip("dask", reason="Dask is not installed: pip install 'dask[array]'")
import dask.array as da

import einsumx
from einsumx.conformance.frameworks import NumpyFramework
from einsumx.conformance.subject import Subject
from einsumx.conformance.suite import cases, run


class DaskFramework(NumpyFramework):
    """Dask's arrays of NumPy chunks, of up to ``length`` along each axis."""

    layouts = ("C",)
    memory_order = views = False
    immutable = "the results of Dask are lazy, and written nowhere"

    def __init__(self, length):
        self.length = length

    @cached_property
    def xp(self):
        return da

    def array(self, values, dtype, device=""):
        return da.from_array(np.array(values, dtype, order="C"), chunks=self.length)

    def values(self, array):
        return np.array(array.compute(scheduler="sync"))

    def is_array(self, array):
        return isinstance(array, da.Array)


FEATURES = (
    "forms", "implicit output", "sublists", "ellipsis", "diagonals", "hyperedges", "broadcasting", "zero sizes",
    "no axes", "order of writing", "dtypes", "promotion", "integers", "bool", "inf and nan", "dtype", "casting",
    "large rank",
)  # fmt: skip
"""What is promised of lazy results too; nothing is written to them, and they have no order in memory."""


@pytest.mark.parametrize("feature", FEATURES)
def test_lazy_arrays_are_held_to_the_contract(feature):
    subject = Subject("numpy", np.__version__, DaskFramework(2), "", einsumx.einsum, is_einsumx=True)
    outcomes = list(run(subject, [case for case in cases("quick") if case.feature == feature]))
    assert [(outcome.case, outcome.message) for outcome in outcomes if outcome.status == "fail"] == []
    assert sum(outcome.status == "pass" for outcome in outcomes) > 5
