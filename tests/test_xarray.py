"""xarray: einsumx's ``dot`` gives what ``xarray.dot`` gives, and ``xarray.dot`` runs einsumx behind NumPy's name."""

from contextlib import nullcontext

import numpy as np
import pytest

pytest.importorskip("xarray", reason="xarray is not installed: pip install xarray")
import xarray as xr

import einsumx
from einsumx import BackendError, EquationError, MemoryLimitError, SizeError
from einsumx.interop.xarray import dot


def _array(sizes, name=None, attrs=None, **coords):
    values = np.random.default_rng(sum(sizes.values())).integers(-4, 5, tuple(sizes.values()))
    return xr.DataArray(values.astype("float64"), coords, tuple(sizes), name, attrs)


RAIN = _array({"time": 4, "basin": 3}, "rain", {"units": "mm"}, time=[1, 2, 3, 4], basin=list("abc"))
RAIN = RAIN.assign_coords(season=("time", ["dry", "dry", "wet", "wet"]), station=("basin", [7, 8, 9]), source="gauge")
AREA = _array({"basin": 3, "user": 2}, "rain", {"units": "mm", "of": "area"}, basin=list("bcd"), user=[0, 1])
SHARE = _array({"user": 2, "time": 4}, "share")
CALLS = {
    "two": ((RAIN, AREA), {}),
    "one": ((RAIN,), {}),
    "one, a sum": ((RAIN,), {"dim": "time"}),
    "three": ((RAIN, AREA, SHARE), {}),
    "three, all summed": ((RAIN, AREA, SHARE), {"dim": ...}),
    "three, some summed": ((RAIN, AREA, SHARE), {"dim": ["basin", "user"]}),
    "a dimension of all arrays kept": ((RAIN, RAIN), {"dim": "basin"}),
    "a dimension of two arrays kept": ((RAIN, AREA), {"dim": "time"}),
    "nothing summed": ((RAIN, SHARE), {"dim": []}),
    "Variables": ((RAIN.variable, SHARE.variable), {}),
    "a Variable and a DataArray": ((SHARE, RAIN.variable), {"dim": "time"}),
    "another order": ((SHARE, AREA.transpose(), RAIN), {"dim": "user"}),
    "integers": ((RAIN.astype(int), SHARE.astype("int8")), {}),
}


def _assert_same(result, expected):
    xr.testing.assert_identical(result, expected)
    assert result.dims == expected.dims
    assert result.dtype == expected.dtype
    assert list(getattr(result, "coords", ())) == list(getattr(expected, "coords", ()))


@pytest.mark.parametrize(
    ("call", "keep_attrs"), [*((call, "default") for call in CALLS), ("two", True), ("two", False), ("one", True)]
)
def test_dims_coordinates_names_and_attributes_are_those_of_xarrays_dot(call, keep_attrs):
    arrays, options = CALLS[call]
    with xr.set_options(keep_attrs=keep_attrs):
        _assert_same(dot(*arrays, **options), xr.dot(*arrays, **options))


NUMBERS = xr.DataArray(np.array([1.5, 2.0, 3.0]), dims="i")
OBJECTS = NUMBERS.astype(object)


@pytest.mark.parametrize("arrays", [(OBJECTS, OBJECTS), (OBJECTS, NUMBERS), (OBJECTS.variable, NUMBERS.variable)])
def test_a_sum_of_objects_without_dimensions_has_dtype_object(arrays):
    _assert_same(dot(*arrays), xr.dot(*arrays))
    assert dot(*arrays).dtype == object
    assert dot(NUMBERS, dim="i", dtype=object).dtype == object
    assert dot(OBJECTS, dim="i", dtype="float64", casting="unsafe").dtype == "float64"


@pytest.mark.parametrize("dtype", ["timedelta64[ns]", "datetime64[ns]", "U3"])
def test_arrays_without_numbers_are_left_to_xarrays_dot(dtype):
    array = NUMBERS.astype(int).astype(dtype)
    _assert_same(dot(array), xr.dot(array))
    if dtype == "timedelta64[ns]":
        _assert_same(dot(array, NUMBERS), xr.dot(array, NUMBERS))


@pytest.mark.parametrize("join", ["inner", "outer", "left", "exact"])
def test_alignment_follows_the_options(join):
    shuffled = RAIN.isel(basin=[2, 0, 1])
    with xr.set_options(arithmetic_join=join):
        if join == "exact":
            with pytest.raises(ValueError, match="align"):
                dot(RAIN, AREA)
        else:
            _assert_same(dot(RAIN, AREA), xr.dot(RAIN, AREA))
            _assert_same(dot(RAIN, shuffled), xr.dot(RAIN, shuffled))


def test_more_dimensions_than_letters_are_contracted():
    arrays = [_array({f"bond{k}": 2, f"bond{k + 1}": 2}) for k in range(40)]
    result = dot(*arrays)
    assert result.dims == ("bond0", "bond40")
    np.testing.assert_array_equal(result, np.linalg.multi_dot([array.values for array in arrays]))


def test_keywords_are_einsumx_s():
    assert dot(RAIN, AREA, dtype="float32", casting="same_kind", optimize="greedy").dtype == "float32"
    out = np.empty((4, 2))
    result = dot(RAIN, AREA, memory_limit="1 MB", out=out)
    _assert_same(result, xr.dot(RAIN, AREA))
    assert np.shares_memory(result.values, out)
    with pytest.raises(MemoryLimitError):
        dot(RAIN, AREA, memory_limit=8)
    with pytest.raises(TypeError, match="unexpected keyword argument 'accuracy'"):
        dot(RAIN, AREA, accuracy="high")


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (dot, EquationError, "at least one DataArray"),
        (lambda: dot(RAIN, AREA.values), BackendError, "operand 1 is .*ndarray.*call einsumx.einsum for other arrays"),
        (lambda: dot(RAIN.to_dataset()), BackendError, r"operand 0 is .*Dataset.*map\(\)"),
        (lambda: dot(RAIN, AREA, dim="tim"), SizeError, r"'tim'; there are \['time', 'basin', 'user'\]"),
        (lambda: dot(RAIN, AREA, dim=3), SizeError, "no array has a dimension 3"),
        (lambda: dot(SHARE, SHARE.isel(time=[0, 1, 2])), ValueError, "time"),
    ],
)
def test_mistakes_are_told(call, error, says):
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: einsumx.einsum("ij,jk->ik", RAIN, SHARE),
        lambda: einsumx.einsum(RAIN, SHARE, "time basin, user time -> basin user"),
        lambda: einsumx.einsum(RAIN, [0, 1], SHARE, [1, 2]),
        lambda: einsumx.einsum("ij->ji", RAIN.variable),
        lambda: einsumx.plan("ij->ji", RAIN),
    ],
)
def test_einsum_refuses_dataarrays_and_names_the_function_that_takes_them(call):
    with pytest.raises(BackendError, match=r"call einsumx.interop.xarray.dot, which keeps it, or pass .*: x.data"):
        call()


# -- arrays of other frameworks -----------------------------------------------------------------------------------


def test_dask_backed_arrays_make_a_lazy_result_whose_chunks_are_einsumx_calls():
    da = pytest.importorskip("dask.array")
    result = dot(RAIN.chunk(time=2, basin=2), AREA)
    assert isinstance(result.data, da.Array)
    einsumx.cache_clear()
    _assert_same(result.compute(), xr.dot(RAIN, AREA))
    assert any(info.misses for info in einsumx.cache_info().values())


@pytest.mark.parametrize("framework", ["jax.numpy", "array_api_strict"])
def test_the_result_is_on_the_framework_of_the_data(framework):
    xp = pytest.importorskip(framework)
    arrays = [array.copy(data=xp.asarray(array.values)) for array in (RAIN, SHARE)]
    result = dot(*arrays)
    assert type(result.data) is type(arrays[0].data)
    np.testing.assert_allclose(np.asarray(result.data), xr.dot(RAIN, SHARE).values)


# -- xarray.dot behind NumPy's name ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_replaced", [True, False])
@pytest.mark.parametrize("kind", ["NumPy", "Dask"])
def test_xarrays_own_dot_of_numpys_arrays_runs_einsumx_behind_numpys_name_alone(is_replaced, kind):
    if kind == "Dask":
        pytest.importorskip("dask.array")
    expected, rain = xr.dot(RAIN, AREA), RAIN.chunk(time=2) if kind == "Dask" else RAIN
    einsumx.cache_clear()
    with xr.set_options(use_opt_einsum=False), einsumx.patched("numpy") if is_replaced else nullcontext():
        result = xr.dot(rain, AREA).compute()
    _assert_same(result, expected)
    assert einsumx.cache_info()["calls"].misses == (is_replaced and kind == "NumPy")
