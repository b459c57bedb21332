import doctest
import pkgutil
from importlib import import_module

import pytest

import einsumx

PACKAGES = ("einsumx", "einsumx.backends", "einsumx.conformance", "einsumx.mxnet")


def modules():
    for package in PACKAGES:
        yield package
        for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
            if not module.ispkg and not module.name.endswith(".__main__"):
                yield module.name


@pytest.mark.parametrize("name", list(modules()))
def test_examples_in_docstrings_print_what_they_say(name):
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("einsumx"):
            raise
        pytest.skip(f"needs {error.name}")
    except einsumx.BackendError as error:
        pytest.skip(str(error))
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


@pytest.mark.parametrize("name", ["einsum", "plan", "einsum_path", "expression"])
def test_public_functions_have_an_example(name):
    assert ">>>" in getattr(einsumx, name).__doc__
