import doctest
from importlib import import_module
from pathlib import Path

import pytest

import einsumx

PACKAGES = ("einsumx", "einsumx.backends", "einsumx.conformance")
"""In a checkout, the first has links to the last two, which `rglob` does not follow."""


def modules():
    """The modules that have examples."""
    names = set()
    for package in PACKAGES:
        folder = Path(import_module(package).__file__).parent
        for path in folder.rglob("*.py"):
            if ">>>" not in path.read_text("utf-8"):
                continue
            parts = path.relative_to(folder).with_suffix("").parts
            names.add(".".join((package, *parts)).removesuffix(".__init__"))
    return sorted(name for name in names if not name.endswith(".__main__"))


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("name", modules())
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
