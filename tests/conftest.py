"""Settings of the frameworks under test, made before any of them is imported."""

import gc
import os
import sys
from pathlib import Path
from runpy import run_path

import hypothesis
import pytest

# One thread each, as the tests run beside each other and on arrays too small to share.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# An operation that fails does so where it is called, and not at some later, unrelated wait.
os.environ.setdefault("MXNET_ENGINE_TYPE", "NaiveEngine")
# JAX has several devices of the CPU, among which blocks are shared out.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
# Two runs of one commit say the same; a first call may take long, as it imports a framework.
# Plans are those of the rates that adapters declare, also where somebody has calibrated or measured.
os.environ["EINSUMX_CACHE"] = os.devnull
for name in ("EINSUMX_EFFORT", "EINSUMX_FREEZE", "EINSUMX_WISDOM"):
    os.environ.pop(name, None)
hypothesis.settings.register_profile("einsumx", derandomize=True, deadline=None)
hypothesis.settings.load_profile("einsumx")


def pytest_addoption(parser):
    """Which backends and which cases test_conformance.py has."""
    parser.addoption("--einsumx-backend", action="append", default=[], help="by default all that are installed")
    parser.addoption("--einsumx-level", choices=("quick", "full"), default="quick")
    parser.addoption("--einsumx-random", type=int, help="how many random problems in each dtype")
    parser.addoption("--no-proc", action="store_true", help="hide /proc and files in memory, which only Linux has")


def pytest_configure(config):
    """Hide /proc from the tests, and from the processes that they start, if the command line asks for it."""
    if config.getoption("--no-proc"):
        folder = Path(__file__).parent / "without_proc"
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        sys.path.insert(0, str(folder))  # which tests pass on
        run_path(str(folder / "sitecustomize.py"))


def pytest_ignore_collect(collection_path, config):
    """Leave out tests/slow, whose tests take long for one library each, unless the command line names it."""
    if collection_path.name == "slow" and not any("slow" in argument for argument in config.args):
        return True
    return None


def pytest_collection_finish():
    """Leave the tests themselves, tens of thousands, out of garbage collections, and have fewer of these."""
    # In its first test, Hypothesis looks for what refers to its random numbers, and would not find what is frozen.
    hypothesis.given(hypothesis.strategies.none())(lambda value: None)()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


@pytest.fixture
def fresh():
    """Caches that are empty before a test and after it."""
    import einsumx

    einsumx.cache_clear()
    yield
    einsumx.cache_clear()


@pytest.fixture
def rng():
    """Random numbers that are the same in every run."""
    import numpy as np

    return np.random.default_rng(0)


@pytest.fixture
def torch():
    """PyTorch, for a test that needs it."""
    return pytest.importorskip("torch")


@pytest.fixture
def jax():
    """JAX, for a test that needs it."""
    return pytest.importorskip("jax")


@pytest.fixture
def quiet_machine(monkeypatch):
    """A machine on which nothing disturbs a measurement, and no thread spins after a product."""
    from einsumx.measuring import machine, steady

    monkeypatch.setattr(machine, "_cpu_times_now", lambda: machine.CpuTimes(0.0, 0.0, 0.02))
    monkeypatch.setattr(machine, "scatter", lambda times: 1.0)
    monkeypatch.setattr(steady, "sleep", lambda seconds: None)


@pytest.fixture
def forgotten():
    """Nothing was measured before a test, and what it measures is forgotten."""
    from einsumx import caches
    from einsumx.measuring import wisdom

    wisdom._known.clear()
    caches.cache_clear()
    yield
    wisdom._known.clear()
    caches.cache_clear()


@pytest.fixture
def missing_library(monkeypatch):
    """The name of a backend whose framework cannot be installed anywhere."""
    from einsumx.adapters import registry
    from einsumx.backends.numpy import NumpyAdapter

    class Missing(NumpyAdapter):
        name = "nowhere"
        module = "no_library_of_this_name"
        install = "pip install 'nowhere[all]'"

    monkeypatch.setitem(registry._registered, "nowhere", Missing())
    registry.forget()
    yield "nowhere"
    registry.forget()


@pytest.fixture(scope="session")
def example_folder(tmp_path_factory):
    """The package that ``einsumx new-backend`` writes for the library in tests/example_library."""
    from einsumx.cli.commands.new_backend import package_files

    folder = tmp_path_factory.mktemp("example")
    for part, text in package_files("examplelib").items():
        (folder / part).parent.mkdir(exist_ok=True)
        (folder / part).write_text(text)
    return folder


@pytest.fixture
def example(example_folder, monkeypatch):
    """The library, with that package's backend as its attribute ``backend``, and registered by nobody."""
    from einsumx.adapters import registry

    for folder in (example_folder, Path(__file__).parent / "example_library"):
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(registry, "_registered", {})
    registry.forget()
    import einsumx_examplelib.backend
    import examplelib

    monkeypatch.setattr(examplelib, "backend", einsumx_examplelib.backend, raising=False)
    yield examplelib
    monkeypatch.undo()
    registry.forget()


@pytest.fixture
def fake_cupy(monkeypatch):
    """CuPy's fake in tests/standin, imported as ``cupy``; afterwards nothing refers to it."""

    from einsumx.adapters import registry
    from einsumx.adapters.staging import copy_stream
    from einsumx.backends import cupy as backend
    from einsumx.measuring import calibration

    def forget():
        registry.forget()
        calibration.place_of.cache_clear()
        backend.ADAPTER.__dict__.pop("xp", None)
        copy_stream.cache_clear()

    for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(Path(__file__).parent / "standin")
    forget()
    import cupy

    assert cupy.__version__.endswith("+fake")
    yield cupy
    cupy.fake.synchronize_all()
    for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
        del sys.modules[name]
    forget()
