"""NumPy's own tests of einsum, as they ship in its wheel, with einsumx in the place of NumPy's einsum.

The module under test sees a ``numpy`` whose ``einsum`` is what ``einsumx.patch`` puts there, whose ``einsum_path`` is
einsumx's, and whose every other name is NumPy's. Tests are collected under NumPy's names; the few that ask for
something else than einsum are listed with the reason, strictly: one that starts to pass fails the run until it is taken
off the list. Of the tests of sums, which are the same for each dtype, some dtypes are left out.
"""

import importlib
from types import ModuleType
from unittest import mock

import numpy as np
import pytest

import einsumx

pytestmark = pytest.mark.long

LIMIT = "wants one step of all operands under a limit of 0; an error here"
PATHS = "asserts which steps NumPy's own path algorithms choose; einsumx takes opt_einsum's"
EXCEPTIONS = {
    "TestEinsumPath.test_long_paths": PATHS,
    "TestEinsumPath.test_edge_paths": PATHS,
    "TestEinsumPath.test_path_type_input": "wants one step of all operands for optimize=False; steps are pairs here",
    "TestEinsumPath.test_memory_contraints": LIMIT,
    "TestEinsumPath.test_memory_constraints": LIMIT,  # the same test as NumPy 2.5 spells it
    "TestEinsum.test_einsum_sorting_behavior": "asserts what the text of einsum_path ends with, in NumPy's own layout",
    "TestEinsum.test_subscript_range": "wants an error for labels beyond 52; any hashable is a label here",
}

LEFT_OUT = ("int16", "int32", "uint8", "uint16", "uint64", "float32", "longdouble", "cfloat128")


class NumpyWithEinsumx(ModuleType):
    """``numpy``, but for einsum and its path."""

    @staticmethod
    def einsum(*operands, **options):
        with einsumx.patched("numpy"):
            return np.einsum(*operands, **options)

    einsum_path = staticmethod(einsumx.einsum_path)

    def __getattr__(self, name):
        return getattr(np, name)


def _numpy_tests():
    core = "numpy._core" if hasattr(np, "_core") else "numpy.core"
    with mock.patch.multiple(np, einsum=einsumx.einsum, einsum_path=einsumx.einsum_path):  # for its decorators
        module = importlib.import_module(f"{core}.tests.test_einsum")
    module.np = NumpyWithEinsumx("numpy")
    return module


def _collected(module):
    """The module's tests by name, the exceptions marked."""
    tests = {name: value for name, value in vars(module).items() if name.startswith(("test_", "Test"))}
    for dtype in LEFT_OUT:
        delattr(tests["TestEinsum"], f"test_einsum_sums_{dtype}")
    for place, reason in EXCEPTIONS.items():
        owner, name = place.split(".")
        test = vars(tests[owner]).get(name)
        if test is not None:  # older versions of NumPy lack some
            setattr(tests[owner], name, pytest.mark.xfail(reason=reason, strict=True)(test))
    return tests


globals().update(_collected(_numpy_tests()))
