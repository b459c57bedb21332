"""The reference has a sentence on every trait and method of a backend; the page's package and first backend work."""

import ast
import inspect
import re
import shlex
import sys
from functools import cached_property
from pathlib import Path
from types import ModuleType

import numpy as np
import page
import pytest

from einsumx import Adapter, Traits
from einsumx.adapters import registry
from einsumx.adapters.base import Primitives
from einsumx.cli.commands.new_backend import package_files
from einsumx.conformance.subject import backend_subject
from einsumx.conformance.suite import cases, run

PAGE = Path(__file__).parents[1].joinpath("docs", "backends.md").read_text(encoding="utf-8")


def undescribed(kind):
    """The public members of a class that have no docstring, nor a text after them."""
    (body,) = ast.parse(inspect.getsource(kind)).body
    for member, follower in zip(body.body, [*body.body[1:], None]):
        if isinstance(member, ast.FunctionDef):
            name, text = member.name, ast.get_docstring(member)
        elif isinstance(member, ast.AnnAssign):
            name, text = member.target.id, isinstance(follower, ast.Expr)
        else:
            continue
        if not (name.startswith("_") or text):
            yield name


@pytest.mark.parametrize("kind", [Traits, *Adapter.__mro__[:-1]], ids=lambda kind: kind.__name__)
def test_the_reference_describes_every_trait_and_method(kind):
    assert list(undescribed(kind)) == []


def test_a_member_without_a_description_is_noticed():
    assert list(undescribed(Numbers)) == ["astype", "copy"]


def test_the_page_has_every_part():
    parts = {name for name, value in vars(Adapter).items() if isinstance(value, cached_property)}
    assert parts >= {"blocks", "out"}
    table = PAGE.partition("| part | for |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) >= parts


def test_copy_and_sum_are_the_primitives_without_defaults():
    missing = {
        name
        for name, method in inspect.getmembers(Primitives, inspect.isfunction)
        if "NotImplementedError" in method.__code__.co_names
    }
    assert missing == {"copy", "sum"}


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
