"""The options of pytest: ``pytest --einsum my_library:einsum`` runs the cases on that function."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cases import cases, einsum_of

TESTS = Path(__file__).with_name("test_einsum.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("einsum-conformance")
    group.addoption("--einsum", metavar="MODULE:NAME", help="judge this einsum function, and run no other tests")
    about = "a module with asarray, dtypes and to_numpy for its operands (default: the function's own, else NumPy)"
    group.addoption("--einsum-arrays", default="", metavar="MODULE", help=about)


def pytest_configure(config: pytest.Config) -> None:
    """Collect the kit's tests in place of those that pytest would find.

    Raises:
        pytest.UsageError: there is no such function or module.
    """
    if config.option.einsum:
        try:
            einsum_of(config.option.einsum, config.option.einsum_arrays)
        except (ImportError, AttributeError, ValueError) as error:
            raise pytest.UsageError(f"--einsum {config.option.einsum}: {error}") from error
        config.args = [str(TESTS)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each case."""
    if metafunc.module.__file__ == str(TESTS):
        metafunc.parametrize("case", cases(), ids=lambda case: case.id)
