"""The reference describes every trait and method of a backend, and the page shows what the command writes."""

import ast
import inspect
import re
import shlex
from functools import cached_property
from pathlib import Path

import page
import pytest

from einsumx import Adapter, Traits
from einsumx.adapters.base import Primitives
from einsumx.cli.commands.new_backend import package_files

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


class Undescribed:
    """A class with members that nothing describes."""

    name: str
    """A name."""

    size: int

    def copy(self):
        return self

    def cast(self):
        """The same."""


def test_a_member_without_a_description_is_noticed():
    assert list(undescribed(Undescribed)) == ["size", "copy"]


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
