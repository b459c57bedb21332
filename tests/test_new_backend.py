"""The command that writes a package with a backend, and what the package does without a change."""

import os
import re
import sys
from pathlib import Path

import pytest
from processes import ended

import einsumx
from einsumx.adapters import entry_points
from einsumx.adapters.entry_points import import_modules
from einsumx.adapters.registry import BUILTIN
from einsumx.cli.commands.new_backend import package_files
from einsumx.cli.main import main
from einsumx.conformance import frameworks, suite
from einsumx.conformance.frameworks import framework_of, register_framework
from einsumx.conformance.subject import backend_subject

TESTS = Path(__file__).parent
LIBRARY = TESTS / "example_library"

WRITTEN = [
    "README.md",
    "einsumx_examplelib/__init__.py",
    "einsumx_examplelib/backend.py",
    "einsumx_examplelib/conformance.py",
    "einsumx_examplelib/register.py",
    "pyproject.toml",
    "tests/test_conformance.py",
]


ALONE = """
import einsumx
from einsumx_examplelib.backend import ExamplelibAdapter

class Alone(ExamplelibAdapter):
    def from_numpy(self, array, device=""):
        raise ValueError("no")

einsumx.register(Alone())
"""
"""A module that registers a backend without a framework, and one that cannot make arrays."""


def run(*command, folder):
    """A command in a folder, in a process that can import the example library and what this process can import."""
    return ended("-m", *command, folder=folder, PYTHONPATH=os.pathsep.join([str(LIBRARY), *sys.path]))


@pytest.fixture
def unregistered(example, example_folder, monkeypatch):
    """The package's folder is the current one, and nobody has imported the module that registers the backend."""
    monkeypatch.chdir(example_folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(entry_points, "_imported", {})
    monkeypatch.setattr(frameworks, "_registered", {})
    monkeypatch.delitem(sys.modules, "einsumx_examplelib.register", raising=False)


@pytest.fixture
def changed(example_folder, tmp_path):
    """A copy of the package in which one text is replaced by another."""

    def change(old, new):
        for path in map(example_folder.joinpath, WRITTEN):
            copied = tmp_path / path.relative_to(example_folder)
            copied.parent.mkdir(exist_ok=True)
            copied.write_text(path.read_text().replace(old, new))
        return tmp_path

    return change


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# -- what is written ----------------------------------------------------------------------------------------------


def test_a_package_is_written_into_a_folder_of_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new-backend", "examplelib"]) == 0
    assert files_in(tmp_path / "einsumx-examplelib") == WRITTEN
    printed = capsys.readouterr().out.splitlines()
    assert sorted(printed[: len(WRITTEN)]) == [f"einsumx-examplelib/{path}" for path in WRITTEN]
    assert "  einsumx conformance --import einsumx_examplelib.register --backend examplelib" in printed


def test_nothing_is_left_to_fill_in_by_the_command(example_folder):
    for path in map(example_folder.joinpath, WRITTEN):
        assert "$" not in path.read_text()


def test_no_file_is_overwritten_and_none_is_written_beside_it(tmp_path, capsys):
    (tmp_path / "pyproject.toml").write_text("mine")
    assert main(["new-backend", "examplelib", "--folder", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "pyproject.toml exists already, and nothing is overwritten; name another --folder" in message
    assert files_in(tmp_path) == ["pyproject.toml"]
    assert (tmp_path / "pyproject.toml").read_text() == "mine"


@pytest.mark.parametrize("name", ["grid-lib", "", "1a", "lambda", "a.b", "ä", "../up"])
def test_what_cannot_be_imported_is_no_name(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    assert main(["new-backend", "--", name]) == 2
    assert "is not the name of a module" in capsys.readouterr().err
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("name", ["json", "_", "einsumx", "dask", "jaxlib", "declared"])
def test_a_name_that_is_taken_is_refused_before_any_file_is_written(tmp_path, monkeypatch, capsys, name):
    monkeypatch.setattr("einsumx.cli.commands.new_backend.declared_backends", lambda: {"declared": None})
    monkeypatch.chdir(tmp_path)
    assert main(["new-backend", name]) == 2
    assert re.search("a module of Python|is a backend for .* already", capsys.readouterr().err)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("name", BUILTIN)
def test_a_backend_of_einsumx_is_not_written_again(name):
    with pytest.raises(einsumx.EinsumxError, match=f"einsumx has a backend for {name}"):
        package_files(name)


@pytest.mark.parametrize("arrays", ["Grid", "other.Grid", "gridlib.", "gridlib.1", "gridlib.core/x.Grid"])
def test_arrays_are_a_class_in_the_library(arrays):
    with pytest.raises(einsumx.EinsumxError, match=r"is not a class in gridlib; write gridlib\.Array"):
        package_files("gridlib", arrays)


def test_the_module_of_the_functions_can_be_said_by_the_arrays_type():
    files = package_files("gridlib", "gridlib.core.Grid")
    assert '    module = "gridlib.core"' in files["einsumx_gridlib/backend.py"]
    assert "import gridlib.core as xp" in files["einsumx_gridlib/conformance.py"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["new-backend", "gridlib", "--folder", str(tmp_path / "file" / "below")]) == 2
    assert "the package cannot be written" in capsys.readouterr().err


def test_the_template_has_every_primitive_and_the_methods_of_memory_limits(example_folder):
    from einsumx.adapters.base import Primitives

    text = (example_folder / "einsumx_examplelib" / "backend.py").read_text()
    written = set(re.findall(r"def (\w+)\(", text))
    strided = {"expand", "scale"}  # called only for libraries with strides, which the template does not claim
    assert {name for name in vars(Primitives) if not name.startswith("_")} - strided - {"native"} <= written
    assert {"part", "plus", "empty", "put"} <= written
    assert all(name in text for name in strided)


# -- what it does, unchanged ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_package_passes_the_suite_for_a_library_with_the_names_of_numpy(unregistered):
    import_modules(["einsumx_examplelib.register"])
    outcomes = list(suite.run(backend_subject("examplelib"), suite.cases("quick", random=3)[::6]))
    assert [(outcome.case, outcome.message) for outcome in outcomes if outcome.status == "fail"] == []
    assert sum(outcome.status == "pass" for outcome in outcomes) > 120


@pytest.mark.long
def test_its_own_tests_pass_without_an_installation(example_folder):
    arguments = ("tests", "-q", "-p", "no:cacheprovider", "-k", "hyperedges or jit", "--strict-markers")
    done = run("pytest", *arguments, folder=example_folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed, \d+ skipped", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.long
def test_a_method_that_is_wrong_fails_by_its_name(changed):
    folder = changed("self.xp.multiply(lhs, rhs)", "self.xp.times(lhs, rhs)")
    arguments = ("--import", "einsumx_examplelib.register", "--backend", "examplelib", "--case", "bool/*", "--quiet")
    done = run("einsumx", "conformance", *arguments, folder=folder)
    assert done.returncode == 1
    missing = "AttributeError: module 'examplelib' has no attribute 'times'"
    assert done.stdout.count(f"raised {missing}, in ExamplelibAdapter.multiply (backend.py:") == 1
    assert re.search(r"^FAILED bool/.*, in the same way$", done.stdout, re.MULTILINE)
    code = re.findall(r"^    > (.*)$", done.stdout, re.MULTILINE)
    (folder / "reproducer.py").write_text("\n".join(code))
    assert missing in run("reproducer", folder=folder).stderr


@pytest.mark.long
def test_the_suite_says_where_to_start_if_it_cannot_make_arrays(changed):
    folder = changed("xp.asarray(host)", "xp.array(host)")
    arguments = ("--import", "einsumx_examplelib.register", "--backend", "examplelib")
    done = run("einsumx", "conformance", *arguments, folder=folder)
    assert done.returncode == 2
    reason = "module 'examplelib' has no attribute 'array'; see array() and values() of"
    assert f"{reason} einsumx_examplelib.conformance.ExamplelibFramework" in done.stderr
    (folder / "alone.py").write_text(ALONE)
    done = run("einsumx", "conformance", "--import", "alone", "--backend", "examplelib", folder=folder)
    assert "ValueError: no; see from_numpy() and to_numpy() of alone.Alone" in done.stderr


def test_the_plan_of_the_package_is_code_of_the_library(example):
    einsumx.register(example.backend.ADAPTER)
    source = einsumx.plan("ijk,kl->l", (2, 3, 4), (4, 5), backend="examplelib").source()
    names = {}
    exec(source, names)
    lhs, rhs = example.asarray([[[1.0, 2.0], [3.0, 4.0]]]), example.asarray([[1.0], [10.0]])
    plan = einsumx.plan("ijk,kl->l", lhs, rhs)
    exec(plan.source(), names)
    assert names["contraction"](lhs, rhs).tolist() == plan(lhs, rhs).tolist() == [64.0]


# -- --import -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ("explain", "ij,jk->ik", "3,4", "4,5"),
        ("profile", "ij,jk->ik", "3,4", "4,5"),
        ("tune", "ij,jk->ik", "3,4", "4,5"),
        ("compare", "ij,jk->ik", "3,4", "4,5", "--rounds", "1"),
        ("conformance", "--case", "bool/ij->j *"),
    ],
    ids=lambda command: command[0],
)
def test_a_command_imports_the_module_that_registers_its_backend(unregistered, quiet_machine, capsys, command):
    assert main([*command, "--backend", "examplelib"]) == 2
    assert "no backend is called 'examplelib'" in capsys.readouterr().err
    assert main([*command, "--backend", "examplelib", "--import", "einsumx_examplelib.register"]) == 0


def test_a_module_that_cannot_be_imported_is_an_error_with_its_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(entry_points, "_imported", {})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong_backend.py").write_text("1 / 0")
    assert main(["explain", "i->", "3", "--import", "no_such_backend"]) == 2
    message = "the module 'no_such_backend' cannot be imported: ModuleNotFoundError: No module named 'no_such_backend'"
    assert message in capsys.readouterr().err
    assert main(["explain", "i->", "3", "--import", "wrong_backend.py"]) == 2
    assert "write its name without .py" in capsys.readouterr().err
    assert main(["explain", "i->", "3", "--import", "wrong_backend"]) == 2
    assert "'wrong_backend' cannot be imported: ZeroDivisionError: division by zero" in capsys.readouterr().err


def test_a_file_in_the_current_folder_hides_no_installed_module(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(entry_points, "_imported", {})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "opt_einsum.py").write_text("raise AssertionError('hidden')")
    monkeypatch.delitem(sys.modules, "opt_einsum.blas", raising=False)
    assert main(["explain", "i->", "3", "--import", "opt_einsum.blas"]) == 0


# -- a framework without an entry point ---------------------------------------------------------------------------


def test_a_registered_framework_is_the_one_that_the_suite_uses(monkeypatch):
    class Mine(type(framework_of("numpy"))):
        name = "mine"

    monkeypatch.setattr(frameworks, "_registered", {})
    register_framework(Mine)
    assert type(framework_of("mine")) is Mine


@pytest.mark.parametrize("thing", [int, None, framework_of("numpy")], ids=["int", "None", "instance"])
def test_what_is_no_framework_is_not_registered(thing):
    with pytest.raises(einsumx.BackendError, match="a framework is a subclass of Framework, not"):
        register_framework(thing)
