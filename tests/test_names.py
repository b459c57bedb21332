"""Files, functions, options and commands that pages, docstrings and comments name are there.

The names of functions are looked up in the text of the sources, so that this imports no framework.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from einsumx.cli.main import _parser

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = {
    place: sorted((ROOT / place).rglob("*.py")) for place in ("backends", "benchmarks", "conformance", "einsumx")
}
PROGRAMS = [ROOT / "noxfile.py", *(ROOT / "docs" / "examples").glob("*.py")]
TESTS = [path for path in (ROOT / "tests").glob("*.py") if path != Path(__file__)]

OF_USERS = {"backend.py", "script.py", "site/", "train.py"}
"""Files that are named and are made later or not the project's, besides those with NAME in their name."""

OF_OTHER_PROGRAMS = {"--bind", "--epochs", "--no-deps", "--strict"}
"""Options that are named and are not the project's."""

OF_OTHER_LIBRARIES = {
    *("clone", "compute_chunk_sizes", "contract_expression", "contract_path", "detach", "distribute_tensor"),
    *("full_tensor", "get_executor", "get_ssa_path", "make_fx", "register_backend_method", "shared_intermediates"),
}
"""Functions that are named and are not the project's."""

_BEFORE = r"(?<![\w./*<{-])"


class Project:
    """What the sources define: names by module, members by class, and options of commands; and all files."""

    def __init__(self) -> None:
        self.modules: dict[str, set[str]] = {}
        self.members: dict[str, set[str]] = defaultdict(set)
        self.bases: dict[str, set[str]] = defaultdict(set)
        self.files: set[str] = set()
        made = ("build", "dist", "site")
        tops = [path for path in ROOT.iterdir() if path.name in (".ci", ".github") or path.name[0] != "."]
        tops = [path for path in tops if path.name not in made]
        for path in [*tops, *(path for top in tops if top.is_dir() for path in top.rglob("*"))]:
            parts = path.relative_to(ROOT).parts
            self.files.update("/".join(parts[start:]) for start in range(len(parts)))
        sources = [path for paths in SOURCES.values() for path in paths]
        for path in sources:
            self._add(path)
        texts = [path.read_text(encoding="utf-8") for path in [*PROGRAMS, *TESTS, *sources]]
        self.options = {option for text in texts for option in re.findall(r"[\"'](--[a-z][\w-]*)", text)}
        sessions = re.findall(r"^def (\w+)\(session|session\(name=\"([\w-]+)\"", texts[0], re.MULTILINE)
        self.sessions = {name for pair in sessions for name in pair}
        (actions,) = [each for each in _parser()._actions if isinstance(each, argparse._SubParsersAction)]
        self.commands = {
            name: {option for action in parser._actions for option in action.option_strings}
            for name, parser in actions.choices.items()
        }

    def _add(self, path: Path) -> None:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name.partition(".")[0] in ("backends", "conformance"):  # links in einsumx/ lead to them
            name = f"einsumx.{name}"
        self.modules[name] = set(_defined(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self.members[node.name].update(_defined(node))
                self.bases[node.name].update(re.sub(r"\[.*|.*\.", "", ast.unparse(base)) for base in node.bases)

    def has_file(self, name: str) -> bool:
        """Whether the path of a file or a folder ends so."""
        return name.rstrip("/") in self.files

    def defines(self, path: str, name: str) -> bool:
        """Whether a module whose path ends so, without ``.py``, defines a name."""
        ending = "." + path.replace("/", ".")
        return any(name in names for module, names in self.modules.items() if f".{module}".endswith(ending))

    def has_function(self, name: str) -> bool:
        """Whether a module or a class has such a name."""
        return self.has_name(name) or any(name in names for names in self.members.values())

    def has_name(self, name: str) -> bool:
        """Whether there is such a name: after its module, after its class, or alone."""
        *owner, last = name.split(".")
        if name in self.modules or not owner:
            return name in self.modules or any(last in names for names in self.modules.values())
        if owner[-1][:1].isupper():
            return self._has_member(owner[-1], last)
        return last in self.modules.get(".".join(owner), ())

    def _has_member(self, kind: str, member: str) -> bool:
        if member in self.members.get(kind, ()):
            return True
        return any(self._has_member(base, member) for base in self.bases.get(kind, set()) - {kind})


def _defined(tree: ast.AST) -> Iterator[str]:
    """The names that statements, at any depth, give to something."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name


@pytest.fixture(scope="module")
def project() -> Project:
    return Project()


def codes(page: str) -> list[str]:
    """What a page has in backticks, and the lines of its commands."""
    blocks = re.findall(r"^ *```(sh|console)\n(.*?)^ *```$", page, re.DOTALL | re.MULTILINE)
    lines = [line.strip() for kind, block in blocks for line in block.split("\n") if kind == "sh" or line[0:1] == "$"]
    prose = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.DOTALL | re.MULTILINE)
    return [*re.findall(r"`([^`\n]+)`", prose), *lines]


def stale_on_page(page: str, project: Project) -> set[str]:
    """Names on a page of what is not there."""
    stale = set()
    for code in codes(page):
        files = re.findall(rf"{_BEFORE}[\w.-]+(?:/[\w.-]+)*(?:\.(?:py|md|toml|yml)\b|/$)", code)
        stale |= {name for name in files if not (name in OF_USERS or "NAME" in name or project.has_file(name))}
        names = re.findall(r"^(?:einsumx(?:\.\w+)+|[A-Z]\w+\.\w+)", code)
        own = [name for name in names if name.startswith("einsumx.") or name.partition(".")[0] in project.members]
        stale |= {name for name in own if not project.has_name(name)}
        stale |= set(_stale_in_command(code, project)) | set(_stale_call(code, project))
    pairs = re.findall(r"`([\w/]+)\.py` `(\w+)`", page)
    return stale | {f"{name} in {path}.py" for path, name in pairs if not project.defines(path, name)}


def _stale_in_command(code: str, project: Project) -> Iterator[str]:
    options = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", code.partition(" #")[0]))
    if command := re.match(r"(?:\$ )?(?:python -m )?einsumx ([a-z][\w-]*)", code):
        known = project.commands.get(command[1])
        yield from [f"einsumx {command[1]}"] if known is None else options - known
    elif re.match(r"nox\b", code):
        sessions = re.search(r" -s ((?:\"?[a-z_]+(?:-[a-z]+)?(?:\(\w+\)\")? ?)+)", code)
        yield from (
            set(re.findall(r"[a-z_]+(?:-[a-z]+)?(?:(?= )|$|(?=\())", sessions[1] if sessions else ""))
            - project.sessions
        )
    elif not re.match(r"(?:python -m )?(?:pip|git|twine|build|rattler-build|cffconvert)\b", code):
        yield from options - project.options - OF_OTHER_PROGRAMS


def _stale_call(code: str, project: Project) -> Iterator[str]:
    """The function of a call such as ``name(x)``, if there is none."""
    call = re.match(r"(_?[a-z]\w+)\(", code)
    if call and not (hasattr(builtins, call[1]) or call[1] in OF_OTHER_LIBRARIES or project.has_function(call[1])):
        yield f"{call[1]}()"


def stale_in_source(source: str, project: Project) -> set[str]:
    """Names in docstrings and comments of what is not there."""
    files = re.findall(rf"{_BEFORE}(?:[\w-]+/)+[\w-]+\.(?:py|md)\b|(?<=``)[\w-]+\.(?:py|md)(?=``)", source)
    stale = {name for name in files if not (name in OF_USERS or "NAME" in name or project.has_file(name))}
    stale |= set(re.findall(r"(?<![\w-])--[a-z][\w-]*", source)) - project.options - OF_OTHER_PROGRAMS
    for code in re.findall(r"``([^`\n]+)``", source):
        stale |= set(_stale_in_command(code, project)) | set(_stale_call(code, project))
    names = re.findall(r":(?:mod|func|class|meth|attr|data):`~?([\w.]+)`", source)
    own = [name for name in names if "." not in name or name.startswith("einsumx.") or name[0].isupper()]
    return stale | {name for name in own if not project.has_name(name)}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_names_what_is_there(path: Path, project: Project) -> None:
    assert stale_on_page(path.read_text(encoding="utf-8"), project) == set()


@pytest.mark.parametrize("place", [*SOURCES, "programs"])
def test_docstrings_and_comments_name_what_is_there(place: str, project: Project) -> None:
    paths = SOURCES.get(place, PROGRAMS)
    found = {path: stale_in_source(path.read_text(encoding="utf-8"), project) for path in paths}
    assert {path: stale for path, stale in found.items() if stale} == {}


@pytest.mark.parametrize(
    ("page", "stale"),
    [
        ("for JAX, `planner/dots.py` orders the operands", "planner/dots.py"),
        ("tests of `tests/gone/`", "tests/gone/"),
        ("- `runtime/calls.py` `_ready_gone` 4096 by equation", "_ready_gone in runtime/calls.py"),
        ("as `einsumx.gone` has it", "einsumx.gone"),
        ("or `Plan.gone()`", "Plan.gone"),
        ("or `gone_function(1)`", "gone_function()"),
        ("with `--gone`", "--gone"),
        ("`einsumx explain --stored --gone`", "--gone"),
        ("`einsumx explain --rounds 3`", "--rounds"),
        ("```console\n$ einsumx gone ij->ji 2,3\n```\n", "einsumx gone"),
        ("```sh\nnox -s bench gone -- --fake\n```\n", "gone"),
        ("`nox -s gone`", "gone"),
    ],
)
def test_a_stale_name_on_a_page_is_noticed(page: str, stale: str, project: Project) -> None:
    assert stale_on_page(f"As `einsumx.plan`, `docs/design.md`. \n\n{page}", project) == {stale}


@pytest.mark.parametrize(
    ("source", "stale"),
    [
        ('"""As :meth:`Updates.product_into` has it."""', "Updates.product_into"),
        ('"""As :func:`gone_function`."""', "gone_function"),
        ('"""See :func:`~einsumx.plans.gone`."""', "einsumx.plans.gone"),
        ('"""See :mod:`einsumx.planner.dots`."""', "einsumx.planner.dots"),
        ("# see planner/dots.py", "planner/dots.py"),
        ('"""See ``gone.md``."""', "gone.md"),
        ("# with --gone", "--gone"),
        ('"""See ``einsumx gone``."""', "einsumx gone"),
        ('"""As ``einsumx explain --rounds 3``."""', "--rounds"),
        ('"""See ``nox -s gone``."""', "gone"),
        ('"""See ``gone_function(x)``."""', "gone_function()"),
    ],
)
def test_a_stale_name_in_a_source_is_noticed(source: str, stale: str, project: Project) -> None:
    fine = '"""As :func:`einsumx.plan`, :meth:`~einsumx.Plan.draw`, :func:`numpy.empty`, docs/design.md."""'
    assert stale_in_source(f"{fine}\n{source}", project) == {stale}
