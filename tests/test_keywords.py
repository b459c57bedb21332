"""What keywords may be given: None for each, NumPy's scalars as Python's; operands that are stored, without a limit."""

import re
from dataclasses import fields
from enum import Enum
from inspect import Parameter, signature

import numpy as np
import pytest
from stored import Stored

import einsumx
from einsumx import BackendError, MemoryLimit, addeinsum, einsum, einsum_path, expression, plan, semirings, tune
from einsumx.adapters.options import FrameworkOptions
from einsumx.runtime.request import Request

a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
EQUATION = "ij,jk->ik"

FRAMEWORK = ("precision", "preferred_element_type", "out_sharding")
KEYWORDS = ("out", "dtype", "accumulate", "order", "casting", "optimize", "backend", "memory_limit", "conj", *FRAMEWORK)


# -- None ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KEYWORDS)
def test_none_is_the_default_of_each_keyword_also_behind_numpys_name(name):
    np.testing.assert_array_equal(einsum(EQUATION, a, b, **{name: None}), a @ b)
    np.testing.assert_array_equal(einsum(EQUATION, a, b, **{"memory_limit": "1 MB", name: None}), a @ b)
    np.testing.assert_array_equal(addeinsum(a @ b, EQUATION, a, b, **{name: None}), 2 * a @ b)
    out = np.empty((2, 4))
    with einsumx.patched("numpy"):
        np.testing.assert_array_equal(np.einsum(EQUATION, a, b, **{name: None}), a @ b)
        assert np.einsum(EQUATION, a, b, **{name: None, "out": out}) is out
    np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize("name", FRAMEWORK)
def test_a_keyword_that_the_framework_does_not_have_is_an_error(name):
    value = "float32" if name == "preferred_element_type" else "high"
    for _ in range(2):
        with pytest.raises(BackendError, match=f"numpy has no {name}=; omit it"):
            einsum(EQUATION, a, b, **{name: value})
    with pytest.raises(BackendError, match=f"einsum under a memory_limit= has no {name}=; omit it"):
        einsum(EQUATION, a, b, memory_limit="1 MB", **{name: value})
    with pytest.raises(BackendError, match=f"numpy has no {name}=; omit it"):
        expression(EQUATION, (2, 3), (3, 4), **{name: value})(a, b)


OF_EXPRESSION = ("dtype", "accumulate", "casting", "optimize", "backend", "conj", *FRAMEWORK)


@pytest.mark.parametrize("name", [*OF_EXPRESSION[:6], "memory_limit", "device", "dtypes", "out"])
def test_none_is_the_default_of_each_keyword_of_plan_and_expression(name):
    shapes = (2, 3), (3, 4)
    assert plan(EQUATION, *shapes, **{name: None}) == plan(EQUATION, *shapes)
    if name != "memory_limit":
        found = plan(EQUATION, *shapes, **{"memory_limit": "1 MB", name: None})
        assert found == plan(EQUATION, *shapes, memory_limit="1 MB")
    if name == "optimize":
        assert einsum_path(EQUATION, a, b, optimize=None) == einsum_path(EQUATION, a, b)


@pytest.mark.parametrize("name", OF_EXPRESSION)
def test_none_is_the_default_of_each_keyword_of_an_expression_and_of_its_calls(name):
    found = expression(EQUATION, (2, 3), b, **{name: None})
    np.testing.assert_array_equal(found(a, order=None, out=None), a @ b)


@pytest.mark.parametrize("name", [field.name for field in fields(MemoryLimit)][1:])
def test_none_is_the_default_of_each_field_of_a_limit(name):
    limit = MemoryLimit("1 MB", **{name: None})
    assert limit == MemoryLimit("1 MB")
    np.testing.assert_array_equal(einsum(EQUATION, a, b, memory_limit=limit), a @ b)


def test_none_is_the_default_for_dask_arrays():
    da = pytest.importorskip("dask.array")
    found = einsum(EQUATION, da.from_array(a, chunks=2), da.from_array(b, chunks=2), **dict.fromkeys(KEYWORDS))
    np.testing.assert_array_equal(found.compute(), a @ b)


# -- NumPy's scalars, and values that look like others ----------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"memory_limit": np.int64(10**6)},
        {"memory_limit": np.float32(0.5)},
        {"memory_limit": np.str_("1 MB")},
        {"memory_limit": np.float64("inf")},
        {"memory_limit": 10**30},
        {"memory_limit": MemoryLimit(np.str_("1 MB"), progress=np.False_)},
        {"memory_limit": MemoryLimit("1 MB", devices=np.array(["cpu"]))},
        {"memory_limit": MemoryLimit("1 MB", device=np.str_("cpu"))},
        {"optimize": np.True_},
        {"optimize": np.str_("greedy")},
        {"optimize": (np.str_("greedy"), np.int64(1000))},
        {"optimize": np.array([[0, 1]]).tolist()},
        {"order": np.str_("c")},
        {"casting": np.str_("safe")},
        {"backend": np.str_("numpy")},
    ],
    ids=str,
)
def test_numpys_scalars_are_taken_as_pythons(options):
    np.testing.assert_array_equal(einsum(EQUATION, a, b, **options), a @ b)


def test_shapes_may_have_sizes_of_numpys():
    found = plan(EQUATION, (np.int64(2), np.int8(3)), tuple(np.array([3, 4])))
    assert found == plan(EQUATION, (2, 3), (3, 4))
    assert all(type(size) is int for operand in found.operands for size in operand.shape)


def test_dtypes_may_be_members_of_an_enum_and_no_later_plan_shows_them():
    class Kind(str, Enum):
        WIDE, NARROW = "float64", "float32"

    einsumx.cache_clear()
    options = {"dtypes": Kind.NARROW, "dtype": Kind.WIDE, "accumulate": Kind.WIDE}
    found = plan(EQUATION, (2, 3), (3, 4), **options)
    einsumx.cache_clear()
    expected = plan(EQUATION, (2, 3), (3, 4), **{name: value.value for name, value in options.items()})
    assert str(found) == str(expected)


# -- keywords that there are not --------------------------------------------------------------------------------------

SUCCESSORS = {
    "alpha": "einsumx.addeinsum",
    "beta": "einsumx.addeinsum",
    "effort": "einsumx.effort",
    "semiring": "einsumx.semirings.max_plus.einsum",
    "strip_exponent": "einsumx.einsum_frexp",
} | {
    name: f"memory_limit=einsumx.MemoryLimit(..., {name}=)"
    for name in ("device", "devices", "executor", "progress", "resume")
}


@pytest.mark.parametrize("name", SUCCESSORS)
def test_what_another_function_or_value_says_is_no_keyword_and_the_error_names_it(name):
    for _ in range(2):  # the second call finds the plan of the first
        for value in (None, 1, "measure"):
            for keywords in ({}, {"out": np.empty((2, 4))}, {"memory_limit": "1 MB"}):
                with pytest.raises(TypeError, match=re.escape(f"{name}=; use ")) as raised:
                    einsum(EQUATION, a, b, **{name: value}, **keywords)
                assert SUCCESSORS[name] in str(raised.value)
        einsum(EQUATION, a, b)
    for function in (plan, expression):
        if (function, name) != (plan, "device"):
            with pytest.raises(TypeError, match=re.escape(f"{function.__name__}() has no keyword {name}=; use ")):
                function(EQUATION, (2, 3), (3, 4), **{name: 1})
    with pytest.raises(TypeError, match=re.escape(f"tune() has no keyword {name}=; use ")):
        tune(EQUATION, a, b, **{name: 1})
    if name not in ("alpha", "beta"):
        with pytest.raises(TypeError, match=re.escape(f"addeinsum() has no keyword {name}=; use ")):
            addeinsum(a @ b, EQUATION, a, b, **{name: 1})


@pytest.mark.parametrize("value", [None, 1, np.ones(3)], ids=["None", "1", "array"])
def test_any_other_keyword_is_a_type_error_as_of_any_function(value):
    calls = {
        "einsum": lambda **keywords: einsum(EQUATION, a, b, **keywords),
        "addeinsum": lambda **keywords: addeinsum(a @ b, EQUATION, a, b, **keywords),
        "einsum_frexp": lambda **keywords: einsumx.einsum_frexp(EQUATION, a, b, **keywords),
        "Semiring.einsum": lambda **keywords: semirings.max_plus.einsum(EQUATION, a, b, **keywords),
        "plan": lambda **keywords: plan(EQUATION, a, b, **keywords),
        "expression": lambda **keywords: expression(EQUATION, (2, 3), b, **keywords),
        "tune": lambda **keywords: tune(EQUATION, a, b, **keywords),
    }
    for function, call in calls.items():
        with pytest.raises(TypeError, match=rf"{function}\(\) got an unexpected keyword argument 'target'"):
            call(target=value)


@pytest.mark.parametrize("name", ["accumulate", "precision"])
def test_semirings_have_no_keyword_of_sums_and_products(name):
    semirings.max_plus.einsum(EQUATION, a, b)
    for call in (semirings.max_plus.einsum, semirings.max_plus.plan):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            call(EQUATION, a, b, **{name: "float64"})


# -- the order of bytes ---------------------------------------------------------------------------------------------

SWAPPED = a.astype(a.dtype.newbyteorder())


@pytest.mark.parametrize("options", [{}, {"memory_limit": "1 MB"}], ids=["", "under a limit"])
def test_casting_no_refuses_another_order_of_bytes_as_numpy_does(options):
    for equation, arrays, number in (
        (EQUATION, (SWAPPED, b), 0),
        ("ij,kj->ik", (a, SWAPPED), 1),
        ("ij->i", (SWAPPED,), 0),
    ):
        with pytest.raises(BackendError, match=f"operand {number} has dtype {SWAPPED.dtype}, whose byte order"):
            einsum(equation, *arrays, casting="no", **options)
        with pytest.raises(TypeError):
            np.einsum(equation, *arrays, casting="no")
        for casting in ("equiv", "safe"):
            expected = np.einsum(equation, *arrays)
            np.testing.assert_array_equal(einsum(equation, *arrays, casting=casting, **options), expected)


def test_casting_no_refuses_an_out_of_another_order_of_bytes_and_lets_a_view_be_one():
    out = np.empty((2, 4), SWAPPED.dtype)
    with pytest.raises(BackendError, match=f"casting='no' does not allow into an out= of {SWAPPED.dtype}"):
        einsum(EQUATION, a, b, out=out, casting="no")
    with pytest.raises(TypeError):
        np.einsum(EQUATION, a, b, out=out, casting="no")
    np.testing.assert_array_equal(einsum(EQUATION, a, b, out=out, casting="equiv"), a @ b)
    view = einsum("ij->ji", SWAPPED, casting="no")
    assert np.shares_memory(view, SWAPPED)
    assert view.dtype == np.einsum("ij->ji", SWAPPED, casting="no").dtype


# -- what is stored, without a limit ----------------------------------------------------------------------------------


def test_stored_operands_are_read_once_beside_arrays_lists_and_one_another():
    first, second = Stored(a), Stored(b)
    np.testing.assert_array_equal(einsum(EQUATION, first, b), a @ b)
    assert first.read_bytes == a.nbytes
    np.testing.assert_array_equal(einsum(EQUATION, first, second), a @ b)
    np.testing.assert_array_equal(einsum(EQUATION, a.tolist(), second), a @ b)
    np.testing.assert_array_equal(einsum(first, [0, 1], second, [1, 2], [0, 2]), a @ b)
    np.testing.assert_array_equal(einsum(EQUATION, first, second, backend="numpy", dtype="float64"), a @ b)
    assert einsum("->", Stored(np.float64(3.0).reshape(()))) == 3
    np.testing.assert_array_equal(einsum("ij->i", Stored(SWAPPED)), a.sum(1))
    np.testing.assert_array_equal(expression(EQUATION, (2, 3), second)(first), a @ b)
    np.testing.assert_array_equal(expression(EQUATION, (2, 3), (3, 4))(first, second), a @ b)
    np.testing.assert_array_equal(plan(EQUATION, (2, 3), (3, 4))(first, b), a @ b)


def test_a_plan_reads_nothing_of_what_is_stored():
    first = Stored(a)
    assert plan(EQUATION, first, b) == plan(EQUATION, a, b)
    assert einsum_path(EQUATION, first, b) == einsum_path(EQUATION, a, b)
    assert first.read_bytes == 0


def test_datasets_of_hdf5_and_arrays_of_zarr_are_read(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "file.h5", "w") as file:
        dataset = file.create_dataset("a", data=a)
        expected = np.einsum(EQUATION, dataset, b)
        np.testing.assert_array_equal(einsum(EQUATION, dataset, b), expected)
        np.testing.assert_array_equal(einsum("ij,kj->ik", dataset, dataset), a @ a.T)
    zarr = pytest.importorskip("zarr")
    stored = zarr.array(a, chunks=(1, 2))
    np.testing.assert_array_equal(einsum(EQUATION, stored, b), expected)


def test_what_is_stored_is_not_brought_to_another_framework_unasked(torch):
    wanted = r"operand 0 \(.*Stored\) is a stored array, .*not for torch; pass memory_limit=, or read it first"
    with pytest.raises(BackendError, match=wanted):
        einsum(EQUATION, Stored(a), torch.ones(3, 4, dtype=torch.float64))
    with pytest.raises(BackendError, match=wanted):
        einsum(EQUATION, Stored(a), b.tolist(), backend="torch")
    found = einsum(EQUATION, Stored(a), torch.ones(3, 4, dtype=torch.float64), memory_limit="1 MB")
    np.testing.assert_array_equal(found.numpy(), a @ np.ones((3, 4)))


def test_what_is_stored_is_told_how_it_becomes_a_dask_array_or_takes_a_result():
    with pytest.raises(
        BackendError, match=r"out= must be an array of .*, not a Stored; pass memory_limit= to write the result"
    ):
        einsum(EQUATION, a, b, out=Stored(np.empty((2, 4))))
    da = pytest.importorskip("dask.array")
    with pytest.raises(BackendError, match=r"operand 0 is a stored array .*; pass dask.array.from_array"):
        einsum(EQUATION, Stored(a), da.ones((3, 4)))


# -- devices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "device"), [("numpy", "cuda:0"), ("cupy", "cpu"), ("mxnet", "cuda:0")])
def test_no_plan_is_made_for_a_device_that_the_framework_cannot_have(backend, device):
    for limit in (None, "1 MB"):
        with pytest.raises(BackendError, match=f"{backend} has no device '{device}'"):
            plan(EQUATION, (2, 3), (3, 4), backend=backend, device=device, memory_limit=limit)


@pytest.mark.parametrize(
    ("backend", "device"), [("numpy", "cpu"), ("cupy", "cuda:1"), ("torch", "cuda"), ("jax", "tpu:0"), ("mxnet", "gpu")]
)
def test_plans_are_made_for_devices_that_are_not_there(backend, device):
    assert plan(EQUATION, (2, 3), (3, 4), backend=backend, device=device).device == device


def test_a_request_has_every_keyword_with_its_default():
    shown = {each.name: each.default for each in signature(einsum).parameters.values()}
    expected = {each.name: each.default for each in fields(Request) if each.name in shown and each.name != "operands"}
    assert {"operands": Parameter.empty, **expected, **dict.fromkeys(FRAMEWORK)} == shown
    assert FrameworkOptions._fields == FRAMEWORK
    assert list(shown)[1:] == list(KEYWORDS)
