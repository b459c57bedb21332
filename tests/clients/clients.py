"""The clients: projects whose own tests call einsum, and which of their tests run here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


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
        replaced: a function of another library, as ``module:name`` or ``module:class.name``, and the one that takes its
            place.
        options: of pytest.
        settings: the file with pytest's settings, from the source's root.
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
    replaced: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    settings: str = ""
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

TENSORLY_TESTS = (
    "tenalg",
    "tests",
    "regression/tests",
    "decomposition/tests/test_cp.py",
    "decomposition/tests/test_tucker.py",
)
PYSCF_TAG = Git("https://github.com/pyscf/pyscf", "v2.14.0", ("pyscf/cc/test", "pyscf/lib/test"))
PYSCF_TESTS = ("pyscf/lib/test/test_einsum.py", "pyscf/cc/test/test_gccsd.py", "pyscf/cc/test/test_ccsd_lambda.py")
EXACT = "it compares floats for equality, and BLAS rounds the last bit of a sum differently"

OPT_EINSUM = Client(
    name="opt_einsum",
    package="opt_einsum",
    version="3.4.0",
    source=Installed("opt_einsum"),
    tests=("tests",),
    frameworks=("numpy", "torch", "jax"),
    needs=(TORCH, JAX, "dask[array]", "sparse"),
)

TENSORLY = Client(
    name="tensorly",
    package="tensorly",
    version="0.10.0",
    source=Installed("tensorly"),
    tests=TENSORLY_TESTS,
    frameworks=("numpy",),
    environment={"TENSORLY_BACKEND": "numpy", "TENSORLY_TENALG_BACKEND": "einsum"},
    title="tensorly on NumPy",
)

PYSCF = Client(
    name="pyscf",
    package="pyscf",
    version="2.14.0",
    source=PYSCF_TAG,
    tests=PYSCF_TESTS,
    frameworks=("numpy",),
)

CLIENTS = (
    OPT_EINSUM,
    replace(
        OPT_EINSUM,
        name="opt_einsum-contract",
        frameworks=("opt_einsum",),
        title="opt_einsum's own `contract`",
        reasons={
            "with_constants": "it reads a private attribute of opt_einsum's expressions",
            "test_contract_expression_checks": "it expects opt_einsum's words in an error message",
            "test_sharing_value": EXACT,
        },
    ),
    Client(
        name="einops",
        package="einops",
        version="0.8.2",
        source=Installed("einops"),
        tests=("tests/test_einsum.py", "tests/test_layers.py", "tests/test_other.py"),
        frameworks=("numpy", "torch", "jax"),
        options=("-k", "not flax"),  # which is not installed
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
        options=("-k", "dot or cov or corr or 1d_math or binary_ops or broadcasting or weighted"),
        needs=("dask[array]", "opt_einsum", "pytz"),
    ),
    TENSORLY,
    replace(
        TENSORLY,
        name="tensorly-torch",
        frameworks=("numpy", "torch"),
        needs=(TORCH,),
        environment={"TENSORLY_BACKEND": "pytorch", "TENSORLY_TENALG_BACKEND": "einsum"},
        title="tensorly on PyTorch",
    ),
    replace(
        TENSORLY,
        name="tensorly-jax",
        tests=("tenalg", "tests/test_cp_tensor.py", "tests/test_tucker_tensor.py"),
        options=("-k", "not svd and not proximal and not backend"),
        frameworks=("numpy", "jax"),
        needs=(JAX,),
        environment={"TENSORLY_BACKEND": "jax", "TENSORLY_TENALG_BACKEND": "einsum"},
        title="tensorly on JAX",
    ),
    Client(
        name="quimb",
        package="quimb",
        version="1.15.0",
        source=Sdist(("tests", "pyproject.toml")),
        tests=("tests/test_tensor/test_belief_propagation",),
        options=("-k", "d1bp or d2bp or hv1bp or l1bp"),
        settings="pyproject.toml",
        frameworks=("numpy",),
        needs=("autoray", "cotengra"),
    ),
    Client(
        name="jax",
        package="jax",
        version="0.10.2",
        source=Git("https://github.com/jax-ml/jax", "jax-v0.10.2", ("tests/lax_numpy_einsum_test.py",)),
        tests=("tests/lax_numpy_einsum_test.py",),
        frameworks=("jax", "numpy"),
        needs=("absl-py",),
        reasons={
            "test_einsum_mixed_precision": "it asserts that JAX records `a,a->a` as a `dot_general`; einsumx "
            "multiplies",
            "test_preferred_element_type": "it asserts that JAX records one operation; einsumx sums bfloat16 in "
            "float32, and then rounds",
            "test_einsum_unsupported_optimization": "it expects an error for a path with a step of three operands, "
            "which einsumx accepts",
        },
    ),
    Client(
        name="pyro",
        package="pyro-ppl",
        version="1.9.1",
        source=Git("https://github.com/pyro-ppl/pyro", "1.9.1", ("tests", "setup.cfg")),
        tests=("tests/ops/test_contract.py", "tests/ops/einsum"),
        settings="setup.cfg",
        frameworks=("torch",),
        needs=(TORCH,),
    ),
    Client(
        name="cirq",
        package="cirq-core",
        version="1.7.0",
        source=Installed("cirq"),
        tests=(
            "linalg/decompositions_test.py",
            "linalg/operator_spaces_test.py",
            "linalg/transformations_test.py",
            "qis/channels_test.py",
            "qis/states_test.py",
        ),
        frameworks=("numpy",),
        reasons={"test_operation_to_choi": EXACT, "test_hilbert_schmidt_inner_product_is_linear": EXACT},
    ),
    PYSCF,
    replace(
        PYSCF,
        name="pyscf-lib",
        replaced=("pyscf.lib:einsum", "einsumx.interop.pyscf:contract"),
        title="pyscf, also its `lib.einsum`",
    ),
    Client(
        name="e3nn",
        package="e3nn",
        version="0.6.0",
        source=Sdist(("tests", "setup.cfg", "pyproject.toml")),
        tests=("tests/o3/linear_test.py", "tests/o3/reduce_tensor_test.py", "tests/o3/wigner_test.py"),
        frameworks=("torch",),
        needs=(TORCH,),
    ),
    Client(
        name="sparse",
        package="sparse",
        version="0.19.3",
        source=Installed("sparse"),
        tests=("numba_backend/tests/test_einsum.py",),
        frameworks=("sparse",),
        reasons={"test_einsum_format[formats1-dok]": "it expects DOK for DOK operands; einsumx returns COO"},
    ),
    Client(
        name="glass",
        package="glass",
        version="2026.2",
        source=Git("https://github.com/glass-dev/glass", "v2026.2", ("tests", "pyproject.toml")),
        tests=("tests/core/test_lensing.py", "tests/core/test_shells.py"),
        frameworks=(),
        replaced=("glass._array_api_utils:xp_additions.einsum", "einsumx:einsum"),
        title="glass's own einsum",
        settings="pyproject.toml",
        environment={"ARRAY_BACKEND": "array_api_strict"},
        needs=("array-api-strict", "pytest-mock"),
    ),
    Client(
        name="transformers",
        package="transformers",
        version="5.23.0",
        source=Here(),
        tests=("transformers_models.py",),
        frameworks=("torch",),
        needs=(TORCH,),
    ),
)
