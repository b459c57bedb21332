"""Every check of the project. Each session makes its own environment.

``nox`` runs the quick tests, on current frameworks. ``nox -s all`` runs all other checks that need no GPU, with a
selection of the conformance suite's cases on every library. ``nox -s full`` runs every case.
Timings have sessions of their own: ``nox -s bench`` and ``nox -s speed``.
"""

from __future__ import annotations

import atexit
import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from itertools import chain
from pathlib import Path
from tempfile import mkdtemp

import nox

nox.needs_version = ">=2025.2.9"
# A session whose interpreter is not installed is skipped, and says so, in continuous integration too.
nox.options.error_on_missing_interpreters = False
nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["tests"]

BACKENDS = {
    "autograd": ("autograd",),
    "cubed": ("cubed",),
    "dpnp": ("dpnp", "intel-opencl-rt"),  # a runtime for the processor
    "mlx": ("mlx[cpu]",),
    "ndonnx": ("ndonnx", "onnxruntime"),
    "paddle": ("paddlepaddle",),
    "sparse": ("sparse", "scipy", "array-api-strict"),
    "tensorflow": ("tensorflow-cpu",),
    "tinygrad": ("tinygrad==0.14.*", "ziglang==0.17.*"),
}
"""The libraries with a backend beside those of `tests` and MXNet, and what to install for them."""

TOGETHER = [library for library in BACKENDS if library != "paddle"]
"""Those that `libraries` has in one environment. Paddle asks for an opt_einsum of its own."""

OWN_EINSUMS = {
    "dpnp": ("dpnp:einsum",),
    "mlx": ("mlx.core:einsum",),
    "paddle": ("paddle:einsum",),
    "sparse": ("sparse:einsum",),
    "tensorflow": ("tensorflow:einsum",),
    "tinygrad": ("tinygrad:Tensor.einsum",),
}
"""The einsum functions of these libraries, which the conformance suite judges beside; most others have none."""

_TINYGRADS = "memory or semiring or exponents or accumulators or argmax or random or threads or (many and 1000)"
SLOW = {
    "jax": ("-k", "not (test_conformance.py and (random or memory or exponents or argmax))"),
    "tinygrad": ("-k", f"not (conformance and ({_TINYGRADS}))"),
    "ndonnx": ("-k", "not (conformance and (many and 1000 or threads))"),
    "cubed": ("-k", "not (conformance and (many and 60 or threads))"),
}
"""What `long` and `libraries` leave out: what JAX and tinygrad compile for minutes, and long chains of lazy calls.

Of the random problems in each dtype, which are the same for every library, it has two.
"""

OTHERS = (
    "lint",
    "long",
    "mxnet",
    "together",
    "libraries",
    "backend(paddle)",
    "oldest",
    "newest-3.12",
    "newest-3.13",
    "newest-3.14",
    "newest-3.14t",
    "no-proc",
    "newest-3.15",
    "threads-3.11",
    "threads-3.14t",
    "docs",
    "package",
)
"""The sessions of ``nox -s all``."""

TESTING = ["pytest==9.*", "pytest-xdist==3.*", "hypothesis==6.*"]
MYPY = "mypy==2.4.*"
# Pinned: a plain name takes the newest build, for GPUs and of gigabytes, even where one for the CPU is at hand.
TORCH = "torch==2.13.0"
GPUS = {
    "cupy": ("cupy-cuda12x", "cutensor-cu12"),
    "torch": (TORCH,),
    "jax": ("jax[cuda12]==0.10.*",),
}
"""The frameworks of ``gpu``, and what to install for them."""

GPU_NEEDS = (
    "hypothesis",
    "markdown-it-py",
    "mdurl",
    "opt_einsum",
    "pygments",
    "rich",
    "sortedcontainers",
    "threadpoolctl",
)
"""What ``gpu-quick`` needs beside a framework and NumPy. None of these packages is for one machine or Python alone."""

CURRENT = (
    *(TORCH, "jax==0.10.*", "array-api-compat", "array-api-strict"),
    *("dask[array]", "loky", "h5py", "zarr", "tqdm", "numba"),
)
"""The libraries of `tests` and `long`, beside NumPy."""

EXAMPLE = """
import einsumx, examplelib
assert einsumx.backends()["examplelib"]
assert einsumx.einsum("ij,j->i", examplelib.asarray([[1, 2], [3, 4]]), [5, 6]).tolist() == [17, 39]
"""
"""Uses a backend that a package of `einsumx new-backend` brings, and that only its entry point makes known."""

PEERS = ("numpy:einsum", "torch:einsum", "jax.numpy:einsum", "opt_einsum:contract", "cotengra:einsum")
"""Other libraries' einsum functions that the conformance suite judges, on arrays of their own framework or of NumPy."""

TIMED = (TORCH, "jax==0.10.*", "cotengra", "einsumt", "pytblis", "etops", "sesum")
"""The libraries that are timed beside einsumx, all but MXNet."""

MXNET_TESTS = (
    "tests/test_mxnet_load.py",
    "tests/test_mxnet_graph.py",
    "tests/test_mxnet_page.py",
    "tests/test_mxnet_replace.py",
)
"""What holds for either version of MXNet beside any NumPy."""

LIBRARIES = (
    "autoray", "cotengra", "dask[array,distributed]", "e3nn", "einops", "einx", "fsspec", "h5py", "jax==0.10.*",
    "moto[server]", "ndonnx", "onnxruntime",
    "opt_einsum_fx", "pandas", "pyarrow", "pyro-ppl", "pyscf", "quimb", "ray", "s3fs", "tensorly",
    "xarray", "zarr",
)  # fmt: skip
"""The libraries that einsumx has hooks for, or whose stores and executors it uses."""

LIBRARY_TESTS = (
    "autoray", "cotengra_hook", "einops", "more_than_fits_page", "opened_by", "opt_einsum_hook",
    "other_libraries_page", "pages", "pyscf_page", "tensorly", "torch_fx", "xarray",
)  # fmt: skip
"""The tests that need one of them."""

ONLY_HERE = "not prints_what_the_page_says or section or cotengra or pyscf or sparse or tensorflow"
"""Leaves out the pages that the sessions `tests` and `long` run."""

NO_PROC_TESTS = (
    "aliases", "busy_machine", "calibrate", "effort", "environment", "executors", "memory", "opened_by", "process",
    "resume", "store", "streaming", "wisdom", "worker_writes",
)  # fmt: skip
"""The tests of files, memory, processes and the machine."""

PATH_TESTS = ("blocked_plan", "opt_einsum_hook", "path", "plan", "smallest_limit")
"""What depends on opt_einsum."""

NATIVE = {"x86_64": ("amd64", "i386"), "aarch64": ("arm64",)}
"""The processors, by Debian's names, whose programs a machine runs."""

EMULATORS = {"amd64": "x86_64", "i386": "i386", "arm64": "aarch64", "s390x": "s390x"}
"""The processors of ``foreign``, and QEMU's names for them."""

DEBIAN = "python3-all,python3-numpy,python3-opt-einsum,python3-pytest,python3-hypothesis,python3-jinja2,python3-rich"
"""What ``foreign`` takes from Debian: all Pythons of a branch, and packages for them. Its threadpoolctl is too old."""

QUICK = ("-m", "not gpu and not package and not long")
"""Leaves out the tests that take long, as plain `pytest` does."""

LONG = ("-m", "long and not gpu and not package")
"""Selects those alone."""

PACKED_TESTS = (
    "cli",
    "conformance_command",
    "examples",
    "new_backend",
    "packaging",
    "readme",
    "registry",
)
"""The tests of what is packed beside the code, or found by its metadata; the others run in the sessions before."""

# Modules are compiled when they are first imported, and the hundreds of processes of the tests share them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# pyenv's own python3.X commands fail unless a project selects the version, so its interpreters go on PATH themselves.
_PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
os.environ["PATH"] = os.pathsep.join([*map(str, sorted(_PYENV.glob("versions/3.*/bin"))), os.environ.get("PATH", "")])


@cache
def project() -> Path:
    """A copy of the project without what earlier builds left, which setuptools would pack again.

    All sessions of a run share it, and the wheel beside it. It is not in the temporary folder of a session, since that
    would become the temporary folder of the tests, and its path is too long for the sockets of some.
    """
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    leftovers = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    return Path(shutil.copytree(Path(__file__).parent, folder / "project", symlinks=True, ignore=leftovers))


def wheel(session: nox.Session) -> Path:
    """The wheel of einsumx."""
    folder = project().parent
    if not [*folder.glob("*.whl")]:
        session.run("python", "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={folder}", str(project()))
    (built,) = folder.glob("*.whl")
    return built


def install(session: nox.Session, *requirements: str) -> None:
    """Install einsumx as its users do, not editable, with what a session asks for.

    pip compiles modules on one core. Here all cores compile those of einsumx and of large frameworks, and Python the
    others where it imports them.
    """
    session.install("--no-compile", f"{wheel(session)}[conformance]", *requirements)
    (packages,) = Path(session.virtualenv.location).glob("lib/python3*/site-packages")
    large = [str(packages / name) for name in ("einsumx", "jax", "torch", "tensorflow") if (packages / name).is_dir()]
    session.run("python", "-m", "compileall", "-q", "-j", "0", *large, silent=True, success_codes=[0, 1])


def environment_of(session: nox.Session, library: str) -> dict[str, str]:
    """What one of `BACKENDS` needs to find."""
    match library:
        case "tinygrad":  # PYTHON is one of its devices, and a variable that many set to the name of a program
            return {"CC": str(clang_of_zig(session)), "PYTHON": "0"}
        case "paddle":  # its executor of static graphs sometimes crashes in its threads, about once in 15 runs
            return {"FLAGS_new_executor_serial_run": "1"}
        case "dpnp":  # looks for runtimes in /etc/OpenCL alone
            return {"OCL_ICD_FILENAMES": str(Path(session.virtualenv.location, "lib", "libintelocl.so"))}
        case _:
            return {}


def clang_of_zig(session: nox.Session) -> Path:
    """A script that runs the clang in the wheel ziglang, for tinygrad, which calls a program by one name.

    It starts no Python, which would take longer than most of the kernels that it compiles.
    """
    zig = session.run("python", "-c", "import ziglang; print(ziglang.__path__[0])", silent=True).strip()
    script = Path(session.bin) / "clang-of-zig"
    script.write_text(f'#!/bin/sh\nexec "{zig}/zig" clang "$@"\n')
    script.chmod(0o755)
    return script


def test(session: nox.Session, *options: str) -> None:
    """Run the tests that the options select, on all cores; a test whose framework is not installed is skipped.

    Those that take long, which plain `pytest` leaves out, are among them.
    """
    every = ("-m", "not gpu and not package")
    session.run("pytest", "-n", "auto", "--dist", "worksteal", *every, *options, *session.posargs)


def suite(*backends: str) -> list[str]:
    """The options that select the conformance suite on some backends."""
    return ["tests/test_conformance.py", *(f"--einsumx-backend={backend}" for backend in backends)]


def test_library(session: nox.Session, library: str, *options: str) -> None:
    """Run the tests of one library's backend, and the conformance suite on the library."""
    test(session, f"tests/test_{library}.py", *suite(library), *options)


def check_types(session: nox.Session, *options: str) -> None:
    """Whether the types of einsumx agree, strictly."""
    session.run("mypy", *options, "-p", "einsumx")


def check_types_of_results(session: nox.Session) -> None:
    """Whether type checkers know every public name, and that a result has the type of the arrays, of `CURRENT`."""
    session.install(MYPY, "basedpyright==1.*")  # pyright, with the Node.js that it runs on
    settings, callers = Path("pyproject.toml").resolve(), Path("tests/typing").resolve()
    with session.chdir(session.create_tmp()):  # where the installed einsumx is read, not the checkout
        session.run("mypy", f"--config-file={settings}", str(callers))
        session.run("basedpyright", "--project", str(settings), "--pythonpath", f"{session.bin}/python", str(callers))


@nox.session(name="all", venv_backend="none", default=False)
def others(session: nox.Session) -> None:
    """Every check that plain `nox` leaves out: MXNet, old and new versions, threads, the site, the package."""
    for name in OTHERS:
        session.notify(name)


@nox.session
def tests(session: nox.Session) -> None:
    """The quick tests, on the current releases of NumPy, PyTorch, JAX and the array API standard."""
    install(session, *TESTING, *CURRENT)
    test(session, *QUICK, *[f"--einsumx-backend={backend}" for backend in ("numpy", "torch")])


@nox.session(python="3.11")
def long(session: nox.Session) -> None:
    """What `tests` leaves out: long tests, the conformance suite on other libraries of `CURRENT`, types of results."""
    install(session, *TESTING, *CURRENT, "cotengra", "dask[array,distributed]")
    test(session, *LONG)
    test(session, *suite("array_api"))
    test(session, "tests/slow", *suite("jax"), *SLOW["jax"])
    check_types_of_results(session)


@nox.session(python="3.11")
def mxnet(session: nox.Session) -> None:
    """MXNet 1.9.1 with the NumPy that it was built for; `oldest` runs all other tests on such a NumPy."""
    install(session, *TESTING, "numpy==1.23.5", "mxnet==1.9.1")
    test(session, "-k", "mxnet or gluonnlp", "--einsumx-backend=mxnet")


@nox.session(python="3.11")
def together(session: nox.Session) -> None:
    """MXNet under the current NumPy, in one process with PyTorch and JAX: all of 2.0.0b1, and what loads 1.9.1."""
    install(session, *TESTING, TORCH, "jax==0.10.*", "numpy>=2.4", "requests", "graphviz")
    session.install("--no-deps", "mxnet==2.0.0b1")  # which asks for an older NumPy than it works with
    test(session, "tests/test_mxnet.py", *MXNET_TESTS, *suite("mxnet"))
    session.install("--no-deps", "mxnet==1.9.1")
    test(session, "tests/test_mxnet.py", "tests/test_mxnet_load.py")


@nox.session(python="3.11")
def libraries(session: nox.Session) -> None:
    """The hooks for other libraries, and the backends of `BACKENDS`."""
    packages = chain.from_iterable(BACKENDS[library] for library in TOGETHER)
    install(session, *TESTING, TORCH, *LIBRARIES, *packages)
    for library in TOGETHER:
        session.env.update(environment_of(session, library))
    test(session, *[f"tests/test_{name}.py" for name in LIBRARY_TESTS], "-k", ONLY_HERE)
    for library in TOGETHER:  # a process each: some cannot be imported beside others
        test_library(session, library, "--einsumx-random=2", *SLOW.get(library, ()))


@nox.session(python="3.11")
@nox.parametrize("library", list(BACKENDS), ids=list(BACKENDS))
def backend(session: nox.Session, library: str) -> None:
    """The tests of one library's backend, and the conformance suite on the real library."""
    install(session, *TESTING, *BACKENDS[library])
    session.env.update(environment_of(session, library))
    test_library(session, library, "tests/slow/test_upstream.py")


@nox.session(python="3.10")
def oldest(session: nox.Session) -> None:
    """The oldest Python, NumPy and other requirements that are supported, without most tests that take long."""
    requirements = (
        "numpy==1.23.0",
        "opt_einsum==3.4.0",
        "threadpoolctl==3.8.0",
        "jinja2==3.1.0",
    )
    install(session, *TESTING, *requirements)
    test(session, *QUICK)
    test(session, "tests/test_numpys_einsum_tests.py")
    # The suite also judges opt_einsum's own einsum, which has other faults in 3.3.
    session.install("opt_einsum==3.3.0")
    test(session, *[f"tests/test_{name}.py" for name in PATH_TESTS])


@nox.session(python=["3.12", "3.13", "3.14", "3.14t", "3.15"])
def newest(session: nox.Session) -> None:
    """Types and tests on newer Pythons, with the newest NumPy that each has; tests that take long on 3.14 alone."""
    install(session, *TESTING, MYPY)
    check_types(session, f"--python-version={str(session.python).rstrip('t')}")
    test(session, *([] if session.python == "3.14" else QUICK))


@nox.session(python=["3.11", "3.14t"])
def threads(session: nox.Session) -> None:
    """Many threads for a minute, with the GIL and without: ``nox -s threads -- --seed 7 --seconds 600``."""
    install(session)
    environment = {"PYTHON_GIL": "0"} if str(session.python).endswith("t") else {}
    session.run("python", "tests/stress.py", *session.posargs, env=environment)


@nox.session(default=False)
@nox.parametrize("processor", list(EMULATORS), ids=list(EMULATORS))
def foreign(session: nox.Session, processor: str) -> None:
    """The newest Pythons, and other processors, with packages of Debian's unstable branch in a folder of their own.

    Where this machine runs the processor's programs, the tests run on each Python. Elsewhere QEMU runs the conformance
    suite: processes that tests start would need QEMU too. It needs Linux, root, debootstrap and qemu-user-static.
    """
    is_native = processor in NATIVE.get(platform.machine(), ())
    emulator = shutil.which(f"qemu-{EMULATORS[processor]}-static")
    if not shutil.which("debootstrap") or os.geteuid():
        session.skip("debootstrap, which makes the folder, is not installed, or this user is not root")
    if not is_native and not emulator:
        session.skip(f"programs for {processor} need qemu-user-static")
    root = Path(mkdtemp(prefix="einsumx-"))
    try:
        unpack(session, processor, root)
        if is_native:
            for python in sorted(path.name for path in root.glob("usr/bin/python3.*[0-9]")):
                run_in(session, root, "/usr/bin/env", "-C", "/project", python, "-m", "pytest", *session.posargs)
        else:
            shutil.copy(str(emulator), root / "emulator")
            suite = ("einsumx.conformance", "--backend", "numpy", "--quiet", *session.posargs)
            run_in(session, root, "/emulator", "/usr/bin/python3", "-m", *suite)
    finally:
        shutil.rmtree(root)


def unpack(session: nox.Session, processor: str, root: Path) -> None:
    """Fill a folder with Debian's packages and this project, without running anything of theirs."""
    options = ("--foreign", f"--arch={processor}", "--variant=minbase", f"--include={DEBIAN}", "sid", str(root))
    done = subprocess.run(["debootstrap", *options], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        session.skip(f"debootstrap ended with status {done.returncode}: {done.stdout[-200:]}")
    for package in root.glob("var/cache/apt/archives/*.deb"):
        session.run("dpkg-deb", "--extract", str(package), str(root), external=True, log=False)
    for name in ("blas", "lapack"):  # linked so when Debian's packages are set up, which is left out
        for folder in root.glob(f"usr/lib/*/{name}"):
            folder.with_name(f"lib{name}.so.3").symlink_to(f"{name}/lib{name}.so.3")
    shutil.copytree(project(), root / "project", symlinks=True)
    pure = (str(wheel(session)), "threadpoolctl>=3.8")
    session.run("python", "-m", "pip", "install", "--quiet", "--no-deps", f"--target={root}/site", *pure)


def run_in(session: nox.Session, root: Path, *command: str) -> None:
    """Run a command with the folder as its file system, and with mounts and processes that end with it."""
    mount = 'mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" "$@"'
    apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", mount, str(root))
    # The processor of QEMU's choice for arm64 has vectors of any length, whose emulation takes long.
    emulated = {"QEMU_CPU": "cortex-a72"} if (root / "usr/lib/aarch64-linux-gnu").is_dir() else {}
    session.run(*apart, *command, external=True, env={"PYTHONPATH": "/site", "TMPDIR": "/tmp", **emulated})


@nox.session
def lint(session: nox.Session) -> None:
    """Style, types, and who imports whom."""
    install(session, *TESTING, MYPY, "ruff==0.17.*", "import-linter==2.*")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("pytest", "-m", "", "tests/test_architecture.py", "tests/test_source_format.py")
    check_types(session)  # for the oldest Python; `newest` does it for newer ones
    settings = Path("pyproject.toml").resolve()
    with session.chdir(session.create_tmp()):
        session.run("mypy", f"--config-file={settings}", *map(str, settings.parent.glob("benchmarks/*.py")))


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation's site, strictly: ``nox -s docs``; ``nox -s docs -- serve`` shows it while it is written.

    It is built into site/; the code on its pages is run by tests/test_pages.py, in the session `long`.
    """
    install(session, "mkdocs-material==9.*", "mkdocstrings[python]==1.*", "ruff==0.17.*")
    session.run("mkdocs", *(session.posargs or ["build"]), env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def package(session: nox.Session) -> None:
    """The sdist, and the wheel built from it: they have every file, and the wheel works beside the unpacked sdist."""
    dist = project() / "dist"
    session.install("build", "twine", "cffconvert==2.*")
    session.run("python", "-m", "build", "--outdir", str(dist), str(project()), silent=True)
    session.run("twine", "check", "--strict", *map(str, dist.iterdir()))
    session.run("cffconvert", "--validate", "--infile", "CITATION.cff")
    (built,) = dist.glob("*.whl")
    session.install(f"{built}[conformance]", *TESTING)
    session.run("pytest", "-m", "package", "tests/test_packaging.py", env={"EINSUMX_DIST": str(dist)})

    elsewhere = Path(session.create_tmp()) / "elsewhere"
    shutil.rmtree(elsewhere, ignore_errors=True)
    (sdist,) = dist.glob("*.tar.gz")
    shutil.unpack_archive(sdist, elsewhere)
    (unpacked,) = elsewhere.iterdir()
    for name in ("einsumx", "backends", "conformance"):  # the wheel's are tested
        shutil.rmtree(unpacked / name)
    with session.chdir(unpacked):
        session.run("einsumx", "compare")
        test(session, *[f"tests/test_{name}.py" for name in PACKED_TESTS])
        session.run("einsumx", "new-backend", "examplelib")
        session.install(str(project() / "tests" / "example_library"), "./einsumx-examplelib")
        session.run("python", "-c", EXAMPLE)
        session.run("python", "-m", "einsumx.conformance", "--backend", "examplelib")
    session.install(str(project() / "conformance" / "kit"))
    with session.chdir(elsewhere):
        session.run("pytest", "-c", os.devnull, "--einsum", "numpy:einsum", "-k", "broadcasting/")


@nox.session(default=False)
@nox.parametrize("library", list(GPUS), ids=list(GPUS))
def gpu(session: nox.Session, library: str) -> None:
    """All that one person with a GPU can find out in half an hour; rewrites docs/gpu.md: ``nox -s gpu``.

    Other packages can be named, as for CUDA 13: ``nox -s "gpu(cupy)" -- cupy-cuda13x``. With ``--fake``, the same steps
    run without a GPU, and change a copy of the page.
    """
    packages = [each for each in session.posargs if each != "--fake"]
    fake = ["--fake"] * ("--fake" in session.posargs)
    wanted = packages or ([] if fake and library == "cupy" else GPUS[library])
    install(session, *TESTING, "cotengra", *wanted)
    session.run("python", "benchmarks/gpu.py", "--backend", library, *fake, page_on_gpus(session))


@nox.session(name="gpu-quick", venv_backend="none", default=False)
def gpu_quick(session: nox.Session) -> None:
    """What to know first about a GPU, in eight minutes, with this Python's frameworks; rewrites docs/gpu.md.

    ``nox -s gpu-quick -- --pack`` only makes the folder build/gpu, for a machine without a network: there,
    ``PYTHONPATH=build/gpu python benchmarks/gpu.py --quick docs/gpu.md`` does the rest. With ``--fake``, the same steps
    run without a GPU.
    """
    packed = Path("build", "gpu").resolve()
    shutil.rmtree(packed, ignore_errors=True)
    for_any = ("--no-deps", "--only-binary=:all:", "--platform=any", f"--target={packed}")
    session.run(sys.executable, "-m", "pip", "install", "--quiet", *for_any, str(wheel(session)), *GPU_NEEDS)
    if "--pack" not in session.posargs:
        arguments = ("--quick", *session.posargs, page_on_gpus(session))
        session.run(sys.executable, "benchmarks/gpu.py", *arguments, env={"PYTHONPATH": str(packed)})


def page_on_gpus(session: nox.Session) -> str:
    """docs/gpu.md, or a copy of it if there is no GPU."""
    page = "docs/gpu.md"
    return str(shutil.copy(page, session.create_tmp())) if "--fake" in session.posargs else page


def judge(session: nox.Session, *subjects: str) -> None:
    """Run the conformance suite, and leave what it finds where the session `full` puts it together."""
    folder = Path(session.cache_dir) / "conformance" / session.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, what in enumerate(subjects):
        written = ("--json", str(folder / f"{number}.json"))
        arguments = (*what.split(), "--level", "full", *session.posargs, "--quiet", *written)
        # What fails is in the file too: it is shown, and ends the run, when all is put together.
        session.run("einsumx", "conformance", *arguments, success_codes=[0, 1], silent=True)


@nox.session(python="3.11", default=False)
def full_current(session: nox.Session) -> None:
    """A part of `full`: the current releases, and the other einsum functions."""
    install(session, TORCH, "jax==0.10.*", "array-api-strict", "cotengra")
    peers = [f"--callable {peer}" for peer in PEERS]
    judge(session, "--all", *peers, "--callable opt_einsum:contract --backend torch")


@nox.session(python="3.11", default=False)
@nox.parametrize("mxnet", ["1.9.1", "2.0.0b1"], ids=["1", "2"])
def full_mxnet(session: nox.Session, mxnet: str) -> None:
    """A part of `full`: MXNet, and its own einsum function."""
    install(session, "numpy==1.23.5", f"mxnet=={mxnet}")
    judge(session, "--backend mxnet", "--callable mxnet:np.einsum")


@nox.session(python="3.11", default=False)
@nox.parametrize("library", list(BACKENDS), ids=list(BACKENDS))
def full_backend(session: nox.Session, library: str) -> None:
    """A part of `full`: one further library, and its own einsum function."""
    install(session, *BACKENDS[library])
    session.env.update(environment_of(session, library))
    judge(session, f"--backend {library}", *[f"--callable {own}" for own in OWN_EINSUMS.get(library, ())])


@nox.session(
    python="3.11",
    default=False,
    requires=["full_current", "full_mxnet(1)", "full_mxnet(2)", *(f"full_backend({library})" for library in BACKENDS)],
)
def full(session: nox.Session) -> None:
    """Every case of the suite on every library and other einsum functions; writes docs/conformance.md and .html."""
    install(session)
    parts = sorted((Path(session.cache_dir) / "conformance").glob("*/*.json"))
    pages = ("--markdown", "docs/conformance.md", "--html", "docs/conformance.html")
    session.run("einsumx", "conformance", "--merge", *map(str, parts), *pages)


@nox.session(name="no-proc", python="3.11")
def no_proc(session: nox.Session) -> None:
    """Files, memory and processes where the system tells less than Linux: Python sees no ``/proc`` and no memfds."""
    install(session, *TESTING, "h5py", "zarr")
    test(session, "--no-proc", *[f"tests/test_{name}.py" for name in NO_PROC_TESTS])


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """Whether the tests notice small faults in the source: ``nox -s mutants -- --number 80 --seed 1``."""
    install(session, *TESTING, *CURRENT, "pytest-cov==7.*")
    session.run("python", "tests/mutants.py", *session.posargs)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Times beside the peers', on an idle machine: ``nox -s bench -- --backend numpy --json numpy.json``."""
    install(session, *TIMED)
    session.run("python", "benchmarks/run.py", *session.posargs)


@nox.session(python="3.11", default=False)
def speed_mxnet(session: nox.Session) -> None:
    """A part of `speed`: MXNet."""
    install(session, "numpy==1.23.5", "mxnet==1.9.1")
    times = ("--backend", "mxnet", "--json", str(times_of_mxnet(session)))
    session.run("python", "benchmarks/speed.py", *times, *session.posargs)


@nox.session(python="3.11", default=False, requires=["speed_mxnet"])
def speed(session: nox.Session) -> None:
    """Measures, and writes, what the README and docs/benchmarks.md say of speed, on an idle machine."""
    install(session, *TIMED)
    times = ("--merge", str(times_of_mxnet(session)), "--write")
    session.run("python", "benchmarks/speed.py", *times, *session.posargs)


def times_of_mxnet(session: nox.Session) -> Path:
    """The file with what `speed_mxnet` measured."""
    return Path(session.cache_dir) / "speed-mxnet.json"


@nox.session(python="3.11", default=False)
def clients(session: nox.Session) -> None:
    """Other projects' tests, as they are and with einsumx patched in: ``nox -s clients -- einops quimb``.

    It takes half an hour, downloads the clients' tests once, and writes docs/clients.md. Without names, all run.
    """
    install(session, *TESTING)
    command = ("python", "tests/clients/run.py", "--cache", str(Path(session.cache_dir) / "clients"))
    wanted = session.run(*command, "--requirements", *session.posargs, silent=True)
    session.install(*wanted.split())
    session.run(*command, *session.posargs)
