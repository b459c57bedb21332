"""The generic adapter on array-api-strict, which has what the standard has and nothing more."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

strict = pytest.importorskip("array_api_strict")

import einsumx  # noqa: E402
from einsumx.adapters import registry  # noqa: E402
from einsumx.backends.array_api import ArrayApiAdapter  # noqa: E402

EQUATIONS = {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "bnid,bnjd->bnij": [(2, 2, 3, 4), (2, 2, 2, 4)],
    "bind,bjnd->bnij": [(2, 3, 2, 2), (2, 2, 2, 2)],
    "bind,jnd->bnij": [(2, 3, 2, 2), (2, 2, 2)],
    "ij,jk,kl->li": [(2, 3), (3, 2), (2, 3)],
    "ii->i": [(3, 3)],
    "ii->": [(3, 3)],
    "ijji->ji": [(3, 4, 4, 3)],
    "iij->ji": [(0, 0, 2)],
    "ij->": [(2, 3)],
    "ij->ji": [(2, 3)],
    "ij,ij->i": [(1, 4), (2, 4)],
    "i,j->ij": [(2,), (3,)],
    "...i,i...->...": [(2, 3), (3, 2)],
    ",->": [(), ()],
}
DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_results_are_those_of_numpy_in_the_same_dtype(rng, equation, dtype):
    host = [rng.integers(0, 60, shape).astype(dtype) for shape in EQUATIONS[equation]]  # exact in every dtype
    result = einsumx.einsum(equation, *map(strict.asarray, host))
    assert isinstance(result, type(strict.asarray(0)))
    assert result.dtype == getattr(strict, dtype)
    assert np.array_equal(np.asarray(result), np.einsum(equation, *host))


def test_no_extension_of_the_standard_is_needed():
    with strict.ArrayAPIStrictFlags(enabled_extensions=[]):
        result = einsumx.einsum("iij,jk->ki", strict.ones((2, 2, 3)), strict.ones((3, 4)))
    assert np.array_equal(np.asarray(result), np.full((4, 2), 3.0))


def test_the_standard_of_2022_is_enough():
    with strict.ArrayAPIStrictFlags(api_version="2022.12"):
        result = einsumx.einsum("ij,jk->ki", strict.ones((2, 3)), strict.ones((3, 4)))
    assert np.array_equal(np.asarray(result), np.full((4, 2), 3.0))


def test_integer_sums_do_not_widen():
    array = strict.asarray([100, 100, 100], dtype=strict.int8)
    result = einsumx.einsum("i->", array)
    assert result.dtype == strict.int8
    assert int(result) == 300 - 256


def test_a_batched_product_has_no_copy():
    plan = einsumx.plan("bndi,bnjd->bnij", strict.ones((2, 3, 5, 4)), strict.ones((2, 3, 6, 5)))
    assert plan.backend == "array_api"
    assert [type(op).__name__ for op in plan.ops] == ["Matmul"]


@pytest.mark.parametrize("equation", ["ij->ij", "ij->ji", "ii->i", "ij,->ij"])
def test_no_result_is_memory_of_an_operand(equation):
    array = strict.zeros((2, 2))
    operands = (array, strict.asarray(1.0)) if "," in equation else (array,)
    einsumx.einsum(equation, *operands)[...] = 7.0
    assert np.array_equal(np.asarray(array), np.zeros((2, 2)))


def test_arrays_stay_on_their_device():
    device = strict.Device("device1")
    array = strict.ones((2, 2), device=device)
    result = einsumx.einsum("ij,jk,->ik", array, array, 2)
    assert result.device == device
    with pytest.raises(einsumx.BackendError, match="two devices"):
        einsumx.einsum("ij,jk->ik", array, strict.ones((2, 2)))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2, "int8"), (2, "float32"), (2.5, "float32"), (2.5, "complex64"), (2j, "complex64"), (True, "bool")],
)
def test_python_scalars_take_the_dtype_of_arrays(value, dtype):
    array = strict.ones(3, dtype=getattr(strict, dtype))
    result = einsumx.einsum(",i->i", value, array)
    assert result.dtype == array.dtype
    assert np.array_equal(np.asarray(result), np.full(3, value, dtype))


@pytest.mark.parametrize(("value", "dtype"), [(2.5, "int8"), (2j, "float64"), (True, "float64"), (2, "bool")])
def test_python_scalars_of_a_kind_that_the_standard_does_not_mix_are_an_error(value, dtype):
    with pytest.raises(einsumx.BackendError, match="does not mix a Python"):
        einsumx.einsum(",i->i", value, strict.ones(3, dtype=getattr(strict, dtype)))


def test_dtypes_that_the_standard_does_not_promote_ask_for_a_dtype():
    lhs, rhs = strict.ones(2, dtype=strict.int32), strict.ones(2, dtype=strict.float64)
    with pytest.raises(einsumx.BackendError, match=r"no promotion of int32 and float64; cast them, or pass dtype="):
        einsumx.einsum("i,i->", lhs, rhs)
    assert float(einsumx.einsum("i,i->", lhs, rhs, dtype="float64")) == 2


def test_out_that_cannot_be_written_to_is_an_error():
    array, out = strict.ones((2, 2)), strict.broadcast_to(strict.zeros(2), (2, 2))
    with pytest.raises(
        einsumx.BackendError, match=r"array_api_strict.*Array that cannot be written to .* leave out= away"
    ):
        einsumx.einsum("ij->ji", array, out=out)


def test_order_is_an_error():
    array = strict.ones((2, 2))
    with pytest.raises(einsumx.BackendError, match="leave order= away"):
        einsumx.einsum("ij->ji", array, order="F")


def test_numpy_arrays_among_them_are_an_error_that_names_both():
    with pytest.raises(einsumx.BackendError, match=r"to array_api and operand 1 \(numpy\.ndarray\) to numpy"):
        einsumx.einsum("i,i->", strict.ones(2), np.ones(2))


def test_the_backend_may_be_named():
    array = strict.ones((2, 3))
    assert einsumx.einsum("ij->ji", array, backend="array_api").shape == (3, 2)
    assert float(einsumx.einsum("i,i->", [1.0, 2.0], [3.0, 4.0], backend="array_api")) == 11


# -- several libraries ------------------------------------------------------------------------------------------


def library(name):
    """Another library that follows the standard: array-api-strict's functions, on arrays of its own type."""

    class Array:
        def __init__(self, inner):
            self.inner = inner

        def __array_namespace__(self):
            return namespace

        shape, ndim, dtype, device = (
            property(lambda self, attribute=attribute: getattr(self.inner, attribute))
            for attribute in ("shape", "ndim", "dtype", "device")
        )

    def wrapped(function):
        def call(*arguments, **keywords):
            return Array(function(*(getattr(argument, "inner", argument) for argument in arguments), **keywords))

        return call

    functions = ["asarray", "permute_dims", "reshape", "matmul", "matrix_transpose", "multiply", "sum"]
    namespace = SimpleNamespace(
        **{function: wrapped(getattr(strict, function)) for function in functions},
        float64=strict.float64,
        bool=strict.bool,
    )
    Array.__module__ = f"{name}.core"
    return namespace


def test_each_library_works_by_its_own_functions():
    first, second = library("first_library"), library("second_library")
    for namespace in (first, second):
        one = namespace.asarray([[1.0, 2.0], [3.0, 4.0]])
        result = einsumx.einsum("ij,jk->ik", one, one)
        assert type(result) is type(one)
        assert np.array_equal(np.asarray(result.inner), [[7.0, 10.0], [15.0, 22.0]])


def test_arrays_of_two_libraries_are_an_error_that_names_both_types():
    first, second = library("first_library"), library("second_library")
    with pytest.raises(einsumx.BackendError, match=r"first_library\.core\..* and .*second_library\.core\."):
        einsumx.einsum("i,i->", first.asarray([1.0]), second.asarray([1.0]))
    run = einsumx.expression("i,i->", (1,), first.asarray([1.0]))
    with pytest.raises(einsumx.BackendError, match=r"second_library\.core\..* and .*first_library\.core\."):
        run(second.asarray([1.0]))
    assert float(run([2.0]).inner) == float(run(first.asarray([2.0])).inner) == 2.0


def test_planning_needs_no_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "array_api_strict", None)
    monkeypatch.setitem(registry._registered, "array_api", ArrayApiAdapter())
    registry.forget()
    try:
        plan = einsumx.plan("ij,kj->ik", (2, 3), (4, 3), backend="array_api", dtypes="float32")
        assert [type(op).__name__ for op in plan.ops] == ["Matmul"]
        with pytest.raises(einsumx.BackendError, match="pass arrays, or pip install array-api-strict"):
            einsumx.einsum("i,i->", [1.0], [1.0], backend="array_api")
    finally:
        monkeypatch.undo()
        registry.forget()


def test_the_library_is_asked_of_its_arrays_and_not_imported_by_name():
    script = (
        "import sys, einsumx; einsumx.plan('ij,jk->ik', (2, 3), (3, 4), backend='array_api'); "
        "sys.exit('array_api_strict' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
