"""What is packed: every file that belongs to einsumx, at the place from which it is imported."""

import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from email.parser import Parser
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

import einsumx

CHECKOUT = Path(__file__).parent.parent
PLACES = {"einsumx": "einsumx", "backends": "einsumx/backends", "conformance": "einsumx/conformance"}
"""The checkout's folders, and where a wheel has them."""

VERSION = einsumx.__version__
(SOURCE,) = re.findall(r'^Source = "(.*)"$', (CHECKOUT / "pyproject.toml").read_text(), re.MULTILINE)

package = pytest.mark.package


def missing(wanted, packed):
    """Those of ``wanted`` that are not in ``packed``, in order."""
    return sorted(set(wanted) - set(packed))


@pytest.fixture(scope="module")
def tracked():
    """The files that git tracks, as paths from the checkout's root, without the links to two folders."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.rstrip("\0").split("\0") if path not in PLACES.values()]


@pytest.fixture(scope="module")
def source(tracked):
    """Those of the tracked files that are imported."""
    return [path for path in tracked if path.split("/")[0] in PLACES]


@pytest.fixture(scope="module")
def wheel():
    (path,) = Path(os.environ["EINSUMX_DIST"]).glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def sdist():
    """The files in the sdist, as paths from its root."""
    (path,) = Path(os.environ["EINSUMX_DIST"]).glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def test_a_missing_file_is_noticed():
    assert missing(["einsumx/a.py", "einsumx/b.py"], ["einsumx/b.py", "einsumx/c.py"]) == ["einsumx/a.py"]


@package
def test_the_tracked_files_include_each_folder(source):
    for folder in PLACES:
        assert f"{folder}/__init__.py" in source


@package
def test_the_wheel_has_every_tracked_file_at_its_place(source, wheel):
    def place(path):
        folder, _, rest = path.partition("/")
        return f"{PLACES[folder]}/{rest}"

    assert missing(map(place, source), wheel.namelist()) == []


@package
def test_the_wheel_has_nothing_else(source, wheel):
    modules = [name for name in wheel.namelist() if ".dist-info/" not in name]
    assert len(modules) == len(source)


@package
def test_the_sdist_has_every_tracked_file(tracked, sdist):
    assert missing((path for path in tracked if not path.startswith(".")), sdist) == []


@package
def test_the_wheel_carries_the_licence_and_the_readme(wheel):
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    described = Parser().parsestr(wheel.read(metadata).decode())
    assert described["License-Expression"] == "MIT"
    assert described["License-File"] == "LICENSE"
    relative = (
        described.get_payload().replace(f"{SOURCE}/blob/v{VERSION}/", "").replace(f"{SOURCE}/raw/v{VERSION}/", "")
    )
    assert relative.strip() == (CHECKOUT / "README.md").read_text().strip()


@package
def test_the_links_on_pypi_are_absolute_and_lead_to_tracked_files(tracked, wheel):
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    readme = Parser().parsestr(wheel.read(metadata).decode()).get_payload()
    links = re.findall(r"\]\(([^)\s]+)\)|\b(?:src|srcset|href)=\"([^\"]+)\"", readme)
    assert len(links) >= 5
    for link in ((markdown or html).partition("#")[0] for markdown, html in links if not markdown.startswith("#")):
        assert link.startswith("https://")
        if link.startswith(SOURCE):
            kind, tag, path = link.removeprefix(f"{SOURCE}/").split("/", 2)
            assert (kind in {"blob", "raw"}, tag) == (True, f"v{VERSION}")
            assert any(file == path or file.startswith(f"{path.rstrip('/')}/") for file in tracked), link


def test_the_changelog_has_the_version_that_is_packed():
    newest, *_ = re.findall(r"^## (\S+)", (CHECKOUT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == VERSION


def test_the_citation_has_the_version_and_the_address():
    text = (CHECKOUT / "CITATION.cff").read_text()
    assert re.findall(r"^(?:version|repository-code): (.*)$", text, re.MULTILINE) == [VERSION, SOURCE]


@pytest.mark.skipif(not (CHECKOUT / ".ci").exists(), reason="an sdist has no recipe")
def test_the_conda_recipe_has_the_version_and_the_requirements_of_the_package():
    recipe = (CHECKOUT / ".ci" / "recipe.yaml").read_text()
    project = (CHECKOUT / "pyproject.toml").read_text()
    (python,) = re.findall(r'^requires-python = ">=(.*)"$', project, re.MULTILINE)
    (required,) = re.findall(r"^dependencies = \[(.*)\]$", project, re.MULTILINE)
    assert f"  version: {VERSION}\n" in recipe
    assert recipe.count(SOURCE) == 2
    assert f'  python_min: "{python}"\n' in recipe
    run = recipe.partition("  run:\n")[2].partition("  run_constraints")[0]
    names = [line.strip("- ").replace(" ", "") for line in run.splitlines()[1:]]
    assert names == [name.strip('" ') for name in required.split(",")]


@pytest.mark.skipif(not (CHECKOUT / ".github").exists(), reason="an sdist has no workflows")
@pytest.mark.skipif(shutil.which("grep") is None, reason="the system has no grep")
@pytest.mark.parametrize(("tag", "status"), [(f"v{VERSION}", 0), (f"v{VERSION}.1", 1), ("main", 1)])
def test_a_release_is_built_for_a_tag_that_is_the_version(tag, status):
    workflow = (CHECKOUT / ".github" / "workflows" / "ci.yml").read_text()
    (command,) = re.findall(r"name: The tag is the version\n.*\n +run: (.*)\n", workflow)
    done = subprocess.run(command, shell=True, cwd=CHECKOUT, env={**os.environ, "GITHUB_REF_NAME": tag}, check=False)
    assert done.returncode == status


@pytest.mark.parametrize("folder", ["tests", "docs", "benchmarks", "noxfile"])
def test_what_is_beside_the_package_is_not_in_it(folder):
    assert (CHECKOUT / folder).exists() or (CHECKOUT / f"{folder}.py").exists()
    assert find_spec(f"einsumx.{folder}") is None


def test_type_checkers_find_that_the_package_is_typed():
    assert (Path(einsumx.__file__).parent / "py.typed").is_file()


def test_type_checkers_see_each_public_name_used():
    text = (CHECKOUT / "tests" / "typing" / "every_name.py").read_text()
    assert missing(einsumx.__all__, re.findall(r"\beinsumx\.(\w+)", text)) == []


def test_the_command_is_installed():
    (command,) = (entry for entry in distribution("einsumx").entry_points if entry.group == "console_scripts")
    assert command.name == "einsumx"
    assert callable(command.load())
