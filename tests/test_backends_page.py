"""The page on writing a backend has every trait and method, and its first backend works."""

import inspect
import re
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import numpy as np
import page
import pytest

from einsumx import Adapter, Traits
from einsumx.adapters import registry
from einsumx.adapters.base import Primitives
from einsumx.adapters.facets import Arithmetic, BlockAccess, OutAccess
from einsumx.cli.commands.new_backend import package_files
from einsumx.conformance.subject import backend_subject
from einsumx.conformance.suite import cases, run

PAGE = Path(__file__).parents[1].joinpath("docs", "backends.md").read_text(encoding="utf-8")

PRIMITIVES = {name for name in vars(Primitives) if not name.startswith("_")}


def test_the_page_on_backends_has_every_trait():
    traits = PAGE.partition("## Traits, by experiment")[2].partition("\n## ")[0]
    assert {field.name for field in fields(Traits) if f"`{field.name}`" not in traits} == set()


def test_the_page_on_backends_has_everything_that_an_adapter_overrides():
    classes = [each for each in Adapter.__mro__[:-1] if each is not Primitives]  # which the reference lists
    members = {name for kind in classes for name in (*vars(kind), *vars(kind).get("__annotations__", ()))}
    overridden = {name for name in members if not name.startswith("_")}
    named = {name for name in overridden if f"`{name}" in PAGE or f"def {name}(" in PAGE or f"    {name} = " in PAGE}
    assert overridden - named == set()


def test_copy_and_sum_are_the_primitives_without_defaults():
    missing = {
        name
        for name, method in inspect.getmembers(Primitives, inspect.isfunction)
        if "NotImplementedError" in method.__code__.co_names
    }
    assert missing == {"copy", "sum"}


def test_the_page_says_which_methods_a_library_with_other_names_needs():
    table = PAGE.partition("| methods | needed | default |")[2].partition("\n\n")[0]
    methods = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = {name for cell in methods for name in re.findall(r"`(\w+)`", cell)}
    template = package_files("gridlib")["einsumx_gridlib/backend.py"]
    written = set(re.findall(r"^    (?:def )?(\w+)(?:\(self| = cached_property)", template, re.MULTILINE))
    # In comments, or not needed as the template is.
    spared = {"dtype", "native", "names", "import_statement", "public_class"}
    assert named == (written - PRIMITIVES) | {"copy", "sum"} | spared
    kinds = Adapter, Arithmetic, BlockAccess, OutAccess
    assert all(any(hasattr(kind, name) for kind in kinds) for name in named)


def test_the_package_of_the_page_is_the_one_that_the_command_writes():
    """tests/test_pages.py judges it by the suite."""
    files = {block.file for block in page.blocks(PAGE) if block.file}
    (command,) = re.findall(r"^\$ einsumx (new-backend .*)", PAGE, re.MULTILINE)
    arguments = shlex.split(command)[1:]
    assert arguments == ["gridlib", "--arrays", "gridlib.Grid", "--folder", "."]
    assert len(files - set(package_files(arguments[0], arguments[2]))) == len(files) - 2 == 1


class Numbers:
    """An array of the library for which the page's first backend is written."""

    __array_ufunc__ = None

    def __init__(self, values):
        self.values = np.asarray(values)

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    def astype(self, dtype):
        return Numbers(self.values.astype(dtype))

    def copy(self):
        return Numbers(self.values.copy())


def library_with_the_names_of_numpy(name):
    """A module whose functions are NumPy's, on arrays of its own."""

    def wrapped(function):
        def call(*arrays, **options):
            return Numbers(function(*(getattr(array, "values", array) for array in arrays), **options))

        return call

    library = ModuleType(name)
    library.result_type = np.result_type
    for function in ("asarray", "transpose", "reshape", "broadcast_to", "diagonal", "multiply", "matmul", "sum"):
        setattr(library, function, wrapped(getattr(np, function)))
    for dtype in ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64"):
        setattr(library, dtype, np.dtype(dtype))
    return library


@pytest.mark.long
@pytest.mark.parametrize("feature", ["forms", "diagonals", "broadcasting", "zero sizes", "half precision"])
def test_two_methods_and_the_traits_serve_a_library_with_the_names_of_numpy(feature, monkeypatch):
    (example,) = re.findall(
        r"```python\n(import einsumx\nfrom einsumx import Adapter, Traits\n\n\nclass MyAdapter.*?)```", PAGE, re.DOTALL
    )
    names = {}
    monkeypatch.setattr(registry, "_registered", {})
    exec(example, names)
    monkeypatch.setitem(sys.modules, "mylib", library_with_the_names_of_numpy("mylib"))
    monkeypatch.setattr(Numbers, "__module__", "mylib")
    try:
        outcomes = list(run(backend_subject("mylib"), cases("quick", f"{feature}/*", random=0)))
    finally:
        monkeypatch.undo()
        registry.forget()
    assert [outcome.message for outcome in outcomes if outcome.status == "fail"] == []
    assert any(outcome.status == "pass" for outcome in outcomes)
