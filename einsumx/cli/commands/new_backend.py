"""``einsumx new-backend``: write a package with a backend for a library, which runs the conformance suite at once."""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
import re
import sys
from importlib.resources import files
from inspect import getsource
from keyword import iskeyword
from pathlib import Path
from string import Template

from einsumx.adapters.base import Primitives
from einsumx.adapters.entry_points import declared_backends
from einsumx.adapters.operand_types import top_package
from einsumx.adapters.registry import BUILTIN
from einsumx.cli.output import page_url, source_url
from einsumx.errors import EinsumxError, shown
from einsumx.host.files import write_text

ABOUT = """\
Writes a package with a backend for an array library. It runs the conformance
suite as it is, and passes if the library has NumPy's names. Otherwise, the
comments in backend.py say what to change, method by method.
"""

MORE = """\
examples:
  einsumx new-backend gridlib
  einsumx new-backend gridlib --arrays gridlib.core.Grid --folder ~/src/backend

NAME is the top-level package that defines the type of the library's arrays,
which need not be installed. No file is overwritten. docs/backends.md in
einsumx's repository is the guide.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("name", metavar="NAME", help="the library, as it is imported, such as gridlib")
    parser.add_argument(
        "--arrays",
        metavar="MODULE.CLASS",
        help="the arrays' type; its module has the functions (default: the type of NAME.asarray's results)",
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where to write (default: einsumx-NAME)")


def run(options: argparse.Namespace) -> bool:
    """Write the package and print what to do next. Returns True.

    Raises:
        EinsumxError: the name is no name for a backend, a file exists already, or the folder cannot be written.
    """
    name: str = options.name
    texts = package_files(name, options.arrays or "")
    folder: Path = options.folder or Path(f"einsumx-{name}".replace("_", "-"))
    for path in (folder / part for part in texts):
        if path.exists():
            raise EinsumxError(f"{path} exists already, and nothing is overwritten; name another --folder")
    try:
        for part, text in texts.items():
            path = folder / part
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
            print(path)
    except OSError as error:
        raise EinsumxError(f"the package cannot be written: {error}") from error
    print(f"\nNext:\n  cd {folder}\n  einsumx conformance --import einsumx_{name}.register --backend {name}")
    return True


def package_files(name: str, arrays: str = "") -> dict[str, str]:
    """The contents of the package's files, by their paths in it.

    Args:
        name: the top-level package that defines the library's arrays.
        arrays: the arrays' type with its module; empty if that is the type of what ``asarray`` returns.

    Raises:
        EinsumxError: the name or the type is none, or einsumx has a backend of that name.
    """
    if not (name.isascii() and name.isidentifier()) or iskeyword(name):
        raise EinsumxError(
            f"{shown(name)} is not the name of a module; write the one that `import` takes, such as gridlib"
        )
    if name in sys.stdlib_module_names or not name.strip("_"):
        raise EinsumxError(f"{name} is a module of Python, not an array library; write the name of the library")
    if name in declared_backends() or name in ("dask", "einsumx", "jaxlib"):
        raise EinsumxError(f"there is a backend for {name} already, and two cannot serve the same arrays")
    if name in BUILTIN:
        raise EinsumxError(f"einsumx has a backend for {name}, which comes before those of packages")
    module, _, kind = arrays.rpartition(".") if arrays else (name, "", "")
    parts = (*module.split("."), kind) if arrays else ()
    if not all(part.isidentifier() for part in parts) or top_package(module) != name:
        raise EinsumxError(
            f"--arrays {shown(arrays)} is not a class in {name}; write {name}.Array, or {name}.core.Array"
        )
    title = "".join(word.capitalize() for word in name.split("_"))
    names = {
        "name": name,
        "module": module,
        "package": f"einsumx_{name}",
        "distribution": f"einsumx-{name}".replace("_", "-"),
        "adapter": f"{title}Adapter",
        "framework": f"{title}Framework",
        "source": source_url(),
        "guide": page_url("backends.md"),
        "primitives": _primitives(),
    }
    folders = {"pyproject.toml": "", "README.md": "", "test_conformance.py": "tests/"}
    texts = {}
    for source in sorted(files("einsumx.cli").joinpath("template").iterdir(), key=lambda source: source.name):
        file = source.name.removesuffix(".txt")
        folder = folders.get(file, f"einsumx_{name}/")
        texts[f"{folder}{file}"] = Template(source.read_text(encoding="utf-8")).substitute(names)
    return texts


_SPARED = frozenset({"copy", "sum", "expand", "scale", "native"})
"""Primitives that the template writes itself, or that its traits do not call."""


def _primitives() -> str:
    """The code of the other primitives: their defaults."""
    code = [getsource(each) for name, each in vars(Primitives).items() if callable(each) and name not in _SPARED]
    return re.sub(r"\bArray\b", "Any", "\n".join(code))
