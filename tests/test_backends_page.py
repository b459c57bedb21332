"""The page on writing a backend names all that a backend can say."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

from einsumx import Adapter, Traits
from einsumx.adapters.primitives import Primitives

PAGE = Path(__file__).parents[1].joinpath("docs", "backends.md").read_text(encoding="utf-8")


def test_the_page_on_backends_has_every_trait():
    traits = PAGE.partition("## Traits, by experiment")[2].partition("\n## ")[0]
    assert {field.name for field in fields(Traits) if f"`{field.name}`" not in traits} == set()


def test_the_page_on_backends_has_everything_that_an_adapter_overrides():
    classes = Adapter.__mro__[:-1]
    members = {name for kind in classes for name in (*vars(kind), *vars(kind).get("__annotations__", ()))}
    overridden = {name for name in members if not name.startswith("_")}
    named = {name for name in overridden if f"`{name}" in PAGE or f"def {name}(" in PAGE or f"    {name} = " in PAGE}
    assert overridden - named == set()


def test_the_page_on_backends_has_the_primitives_in_one_table():
    table = PAGE.partition("## What each primitive promises")[2].partition("\n\nWithout")[0]
    rows = re.findall(r"^\| `(\w+)\(", table, re.MULTILINE)
    assert sorted(rows) == sorted(name for name in vars(Primitives) if not name.startswith("_"))
    assert len(rows) == 12
    assert "twelve methods" in PAGE


def test_ten_of_the_primitives_have_defaults():
    missing = {
        name
        for name, method in inspect.getmembers(Primitives, inspect.isfunction)
        if "NotImplementedError" in method.__code__.co_names
    }
    assert missing == {"copy", "sum"}
