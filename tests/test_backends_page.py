"""The page on writing a backend names all that a backend can say."""

from dataclasses import fields
from pathlib import Path

from einsumx import Adapter, Traits

PAGE = Path(__file__).parents[1].joinpath("docs", "backends.md").read_text(encoding="utf-8")


def test_the_page_on_backends_has_every_trait():
    traits = PAGE.partition("## Traits, by experiment")[2].partition("\n## ")[0]
    assert {field.name for field in fields(Traits) if f"`{field.name}`" not in traits} == set()


def test_the_page_on_backends_has_everything_that_an_adapter_overrides():
    overridden = {name for name in {*vars(Adapter), *Adapter.__annotations__} if not name.startswith("_")}
    named = {name for name in overridden if f"`{name}" in PAGE or f"def {name}(" in PAGE or f"    {name} = " in PAGE}
    assert overridden - named == set()
