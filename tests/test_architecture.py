"""Who may import whom, as `pyproject.toml` says for import-linter; and that it notices what is against it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import einsumx

pytest.importorskip("importlinter", reason="import-linter is not installed: pip install import-linter")

ROOT = Path(__file__).parents[1]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"

UPWARD = {
    "at the top": ("ir/parse.py", "import einsumx.planner.path\n"),
    "in a function": ("adapters/base.py", "def later():\n    from einsumx.host import threads\n"),
    "for types": ("blocked/stages.py", "if TYPE_CHECKING:\n    from einsumx.streaming.run import run_plan\n"),
    "of a neighbour": ("render/drawing.py", "import einsumx.streaming.progress\n"),
    "of a backend": ("backends/jax/adapter.py", "def later():\n    from einsumx import api\n"),
    "of the package": ("planner/lower.py", "def later():\n    import einsumx\n"),
    "in a circle": ("ir/ops.py", "def later():\n    from einsumx.ir import values\n"),
}
"""The module that gets an import that it must not have, and its lines."""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package."""
    (folder,) = einsumx.__path__
    return Path(shutil.copytree(folder, tmp_path / "einsumx", ignore=shutil.ignore_patterns("__pycache__")))


def lint(package: Path) -> tuple[int, str]:
    """The status of import-linter on a copy of the package, and what it says."""
    command = [sys.executable, "-c", LINT, "--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=package.parent, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_every_import_goes_downwards(package: Path) -> None:
    status, text = lint(package)
    assert status == 0, text


@pytest.mark.parametrize("planted", UPWARD)
def test_an_import_that_does_not_is_noticed(planted: str, package: Path) -> None:
    name, lines = UPWARD[planted]
    module = package / name
    module.write_text(f"{module.read_text()}\n\n{lines}")
    status, text = lint(package)
    assert status == 1, text
    assert f".{Path(name).stem} " in text


def test_every_module_that_is_imported_when_first_used_is_there() -> None:
    missing = []
    for file in (file for folder in ("einsumx", "backends", "conformance") for file in (ROOT / folder).rglob("*.py")):
        for name in re.findall(r'(?:LazyModule|imported)\("(einsumx\.[\w.]+)"\)', file.read_text(encoding="utf-8")):
            parts = name.split(".")
            path = ROOT.joinpath(*(parts[1:] if parts[1] in ("backends", "conformance") else parts))
            if not (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()):
                missing.append(f"{file.name}: {name}")
    assert missing == []


def test_files_of_backends_have_the_names_that_contributors_know():
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("| file | has |")[2].partition("\n\n")[0]
    known = re.findall(r"^\| `(\w+\.py)` \|", table, re.MULTILINE)
    found = {path.name for path in ROOT.glob("backends/*/*.py")} - {"__init__.py"}
    assert found == set(known)
    assert known == sorted(known)
