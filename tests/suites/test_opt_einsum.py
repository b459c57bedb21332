"""opt_einsum's own tests, as they ship in its wheel, with einsumx in the place of its ``contract``.

Taken are the tests that ask for what a function with the signature of ``numpy.einsum`` does; those of
opt_einsum's paths, compiled expressions, parsers and caches are about opt_einsum itself, and so are those of its switch
``use_blas``. As many of the tests compare ``contract`` with itself, every result is held against opt_einsum's own as
well. Where a test has every equation with every optimizer, each equation gets one optimizer, in turn.
"""

import importlib
from unittest import mock

import numpy as np
import opt_einsum
import pytest

import einsumx

pytestmark = pytest.mark.long


def contract(*operands, use_blas=True, **options):  # a switch of opt_einsum's
    """``einsumx.einsum`` with the name and the additional switch of opt_einsum's function."""
    if options.get("optimize", "auto") is None:  # opt_einsum's other word for "auto"
        options["optimize"] = "auto"
    result = einsumx.einsum(*operands, **options)
    expected = opt_einsum.contract(*operands, **options)
    assert np.shape(result) == np.shape(expected)
    assert np.allclose(result, expected)
    return result


TAKEN = {
    "test_contract": [
        "test_compare",
        "test_drop_in_replacement",
        "test_compare_greek",
        "test_some_non_alphabet_maintains_order",
        "test_rand_equation",
    ],
    "test_edge_cases": [
        "test_broadcasting_contraction",
        "test_broadcasting_contraction2",
        "test_broadcasting_contraction3",
        "test_broadcasting_contraction4",
        "test_contract_with_assumed_shapes",
    ],
    "test_input": [
        "test_type_errors",
        "test_value_errors",
        "test_compare",
        "test_ellipse_input1",
        "test_ellipse_input2",
        "test_ellipse_input3",
        "test_ellipse_input4",
        "test_singleton_dimension_broadcast",
        "test_large_int_input_format",
        "test_hashable_object_input_format",
    ],
    "test_blas": ["test_blas_out"],
}


def _in_turn(test, start):
    """``test`` with the optimizers in turn, from the one at ``start`` on, if it has every one for each equation."""
    values = {mark.args[0]: list(mark.args[1]) for mark in getattr(test, "pytestmark", ())}
    if values.keys() == {"optimize", "string"}:
        optimizers = values["optimize"]
        pairs = [(optimizers[(start + k) % len(optimizers)], text) for k, text in enumerate(values["string"])]
        test.pytestmark = [pytest.mark.parametrize(("optimize", "string"), pairs).mark]
    return test


def _collected():
    """The tests taken, under the names of their module and their own; none is an exception."""
    found = {}
    for file, names in TAKEN.items():
        with mock.patch.multiple(opt_einsum, contract=contract, contract_path=einsumx.einsum_path):
            module = importlib.import_module(f"opt_einsum.tests.{file}")
        assert module.contract is contract
        for place, name in enumerate(names):
            found[f"{file}_{name.removeprefix('test_')}"] = _in_turn(getattr(module, name), place)
    return found


globals().update(_collected())
