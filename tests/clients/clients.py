"""The clients: projects whose own tests call einsum, and which of their tests run here."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["CLIENTS", "Client", "Git", "Here", "Installed", "Sdist", "Source"]


@dataclass(frozen=True)
class Installed:
    """The tests are in the wheel, below this module's folder."""

    module: str


@dataclass(frozen=True)
class Sdist:
    """The tests are in the sdist; these of its members are unpacked."""

    members: tuple[str, ...]


@dataclass(frozen=True)
class Git:
    """Neither has the tests; these paths are checked out from a repository's tag."""

    address: str
    tag: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Here:
    """Nobody ships tests that call einsum; ours are beside this file."""


Source = Installed | Sdist | Git | Here


@dataclass(frozen=True)
class Client:
    """A project, and those of its tests that run.

    Attributes:
        name: what selects it on the command line.
        package: its name on PyPI.
        version: the version whose tests are known.
        source: where its tests are.
        tests: files or folders, from the source's root.
        frameworks: what :func:`einsumx.patch` is called with.
        options: of pytest.
        environment: variables for its tests.
        needs: further requirements of its tests.
        title: its name in the table; by default, ``name``.
        reasons: parts of the names of tests whose outcome differs under einsumx, and why.
    """

    name: str
    package: str
    version: str
    source: Source
    tests: tuple[str, ...]
    frameworks: tuple[str, ...]
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    title: str = ""
    reasons: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name)

    @property
    def requirements(self) -> tuple[str, ...]:
        """What its tests need installed."""
        return (f"{self.package}=={self.version}", *self.needs)


TORCH = "torch==2.13.0"
JAX = "jax==0.10.2"

CLIENTS = (
    Client(
        name="opt_einsum",
        package="opt_einsum",
        version="3.4.0",
        source=Installed("opt_einsum"),
        tests=("tests",),
        frameworks=("numpy", "torch", "jax"),
        needs=(TORCH, JAX),
    ),
    Client(
        name="einops",
        package="einops",
        version="0.8.2",
        source=Installed("einops"),
        tests=("tests",),
        frameworks=("numpy", "torch", "jax"),
        needs=(TORCH, JAX, "parameterized"),
        environment={"EINOPS_TEST_BACKENDS": "numpy,torch,jax"},
    ),
    Client(
        name="xarray",
        package="xarray",
        version="2026.9.0",
        source=Installed("xarray"),
        tests=("tests/test_computation.py", "tests/test_variable.py", "tests/test_weighted.py"),
        frameworks=("numpy",),
        needs=("dask[array]", "opt_einsum"),
    ),
)
