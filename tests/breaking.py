"""Whether a program written for the last version still works: ``python tests/breaking.py`` prints what would break it.

griffe compares the code with that of the last tag, or of the one that an argument names, without importing either. Only
what docs/reference describes counts, with the members of its classes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import griffe

PROJECT = Path(__file__).parents[1]
PACKAGES = ("einsumx", "backends", "conformance")
PROVISIONAL = {"einsumx.Adapter", "einsumx.Traits"}


def git(*arguments: str) -> str:
    """What git prints; nothing if it fails."""
    return subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=False).stdout.strip()


def promised(package: griffe.Module, names: Iterable[str]) -> griffe.Module:
    """A module of these names of a package, wherever they are defined; those that are gone are left out."""
    module = griffe.Module(package.name)
    for name in names:
        with suppress(KeyError, griffe.AliasResolutionError):
            found, last = package[name], name.rpartition(".")[2]
            target = found.final_target if isinstance(found, griffe.Alias) else found
            module.set_member(last, griffe.Alias(last, target, parent=module))
    return module


def breaking(tag: str) -> Iterator[str]:
    """A line for each change since ``tag`` that breaks programs."""
    described = {*git("grep", "-h", "^::: ", tag, "--", "docs/reference").split()} - PROVISIONAL
    for name in PACKAGES:
        before = griffe.load_git(name, ref=tag, repo=PROJECT, allow_inspection=False)
        now = griffe.load(name, search_paths=[PROJECT], allow_inspection=False)
        names = sorted(each.removeprefix(f"{name}.") for each in described if each.startswith(f"{name}."))
        for change in griffe.find_breaking_changes(promised(before, names), promised(now, names)):
            yield f"{change.obj.path}: {change.kind.value}"


if __name__ == "__main__":
    tag = sys.argv[1] if len(sys.argv) > 1 else git("describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^")
    changes = [*dict.fromkeys(breaking(tag))] if tag else []
    print(*changes, f"{len(changes)} breaking changes since {tag or 'the start: no version is tagged'}", sep="\n")
    sys.exit(bool(changes))
