"""Which backend serves which array, and how other packages add theirs."""

import sys
from pathlib import Path

import numpy as np
import pytest
from processes import printed

import einsumx
from einsumx.adapters import registry


def write_entry_point(folder, name, value):
    """What an installer leaves of a package that declares a backend."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[einsumx.backends]\n{name} = {value}\n")


@pytest.fixture
def entry_point(tmp_path, monkeypatch):
    """A function that installs a package which declares a backend."""

    def declare(name, value):
        write_entry_point(tmp_path, name, value)
        registry.forget()

    monkeypatch.syspath_prepend(tmp_path)
    yield declare
    monkeypatch.undo()
    registry.forget()


def arrays(library):
    return library.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), library.asarray([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]])


PRODUCT = [[5.0, 11.0], [14.0, 23.0]]


def test_an_array_of_an_unknown_type_is_an_error_that_names_the_type():
    grid = type("Grid", (), {"__module__": "gridlib", "shape": (2, 3), "dtype": "float64"})()
    with pytest.raises(einsumx.BackendError, match=r"gridlib\.Grid; convert .* or register a backend"):
        einsumx.einsum("ij->ji", grid)


def test_a_registered_backend_serves_its_arrays(example):
    einsumx.register(example.backend.ADAPTER)
    result = einsumx.einsum("ij,jk->ik", *arrays(example))
    assert type(result) is example.ExampleArray
    assert result.tolist() == PRODUCT


def test_a_registered_backend_serves_arrays_of_classes_derived_from_its_own(example):
    class Derived(example.ExampleArray):
        pass

    einsumx.register(example.backend.ADAPTER)
    lhs, rhs = arrays(example)
    assert einsumx.einsum("ij,jk->ik", Derived(lhs.tolist()), rhs).tolist() == PRODUCT


def test_a_backend_in_an_entry_point_serves_its_arrays(example, entry_point):
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = Path(example.backend.__file__).parents[1] / "pyproject.toml"
    declared = tomllib.loads(project.read_text())["project"]["entry-points"]["einsumx.backends"]
    entry_point("examplelib", declared["examplelib"])
    assert einsumx.einsum("ij,jk->ik", *arrays(example)).tolist() == PRODUCT
    assert einsumx.plan("i,i", (2,), (2,), backend="examplelib").backend == "examplelib"


def test_a_later_registration_replaces_one_of_the_same_name(example):
    class Other(type(example.backend.ADAPTER)):
        pass

    other = Other()
    einsumx.register(example.backend.ADAPTER)
    einsumx.einsum("ij->ji", arrays(example)[0])
    einsumx.register(other)
    assert registry.backend_of((example.ExampleArray,)) == (other, True)
    assert registry.get_backend("examplelib") is other


def test_a_registration_comes_before_a_built_in_backend(example):
    class Other(type(registry.get_backend("numpy"))):
        pass

    other = Other()
    einsumx.register(other)
    assert registry.backend_of((np.ndarray,)) == (other, True)


def test_a_backend_registered_after_a_call_serves_the_next_one(example):
    a, run = np.ones((2, 3)), einsumx.expression("ij->ji", (2, 3))
    assert type(einsumx.einsum("ij->ji", a)) is type(run(a)) is np.ndarray

    class Other(type(registry.get_backend("numpy"))):
        def prepare(self, run, plan):
            return lambda *operands: "by the other backend"

    einsumx.register(Other())
    assert einsumx.einsum("ij->ji", a) == run(a) == "by the other backend"


def test_a_registered_backend_may_refuse_a_type(example):
    class Picky(type(example.backend.ADAPTER)):
        def check_type(self, kind):
            raise einsumx.BackendError(f"not {kind.__name__}")

    einsumx.register(Picky())
    with pytest.raises(einsumx.BackendError, match="not ExampleArray"):
        einsumx.einsum("ij->ji", arrays(example)[0])


@pytest.mark.parametrize("thing", [einsumx.Adapter, "numpy", None], ids=["class", "str", "None"])
def test_registering_what_is_no_adapter_is_an_error(thing):
    with pytest.raises(einsumx.BackendError, match=r"an instance of einsumx\.Adapter"):
        einsumx.register(thing)


def test_an_unknown_name_is_an_error_that_lists_the_known_ones(entry_point):
    entry_point("other_arrays", "other_arrays.backend:ADAPTER")
    with pytest.raises(
        einsumx.BackendError, match=r"no backend is called 'nunpy'; there are numpy, torch, .*other_arrays"
    ):
        einsumx.einsum("i,i", [1], [2], backend="nunpy")


def test_an_entry_point_that_cannot_be_loaded_is_an_error_that_names_it(entry_point):
    entry_point("other_arrays", "other_arrays.backend:ADAPTER")
    with pytest.raises(
        einsumx.BackendError, match=r"'other_arrays' cannot be loaded from 'other_arrays\.backend:ADAPTER'"
    ):
        registry.get_backend("other_arrays")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("examplelib", "examplelib:ExampleArray", r"must be an instance of einsumx\.Adapter"),
        ("example", "einsumx_examplelib.backend:ADAPTER", r"'example' must have the name .* 'examplelib'"),
    ],
    ids=["no adapter", "another name than its arrays' package"],
)
def test_an_entry_point_to_something_else_is_an_error(example, entry_point, name, value, message):
    entry_point(name, value)
    with pytest.raises(einsumx.BackendError, match=message):
        registry.get_backend(name)


def test_a_broken_entry_point_is_in_no_other_backends_way(entry_point):
    entry_point("other_arrays", "other_arrays.backend:ADAPTER")
    assert einsumx.einsum("i,i", np.arange(3), np.arange(3)) == 5
    assert einsumx.backends()["other_arrays"] is False


def test_backends_lists_ours_and_others_with_what_can_be_imported(example, entry_point):
    before = einsumx.backends()
    entry_point("examplelib", "einsumx_examplelib.backend:ADAPTER")
    after = einsumx.backends()
    assert list(before) == list(registry.BUILTIN)
    assert before["numpy"]
    assert before["array_api"]
    assert after == {**before, "examplelib": True}
    assert "examplelib" not in before


@pytest.mark.long
def test_only_the_framework_whose_arrays_arrive_or_whose_einsum_is_replaced_is_imported(tmp_path):
    (tmp_path / "other_arrays.py").write_text("raise AssertionError('imported')")
    write_entry_point(tmp_path, "other_arrays", "other_arrays:ADAPTER")
    code = f"""
import re
import sys
sys.path.insert(0, {str(tmp_path)!r})
import einsumx
assert einsumx.backends()["other_arrays"]
frameworks = {{"numpy", "torch", "jax", "jaxlib", "cupy", "mxnet", "array_api_strict", "other_arrays"}}
print(*sorted(frameworks & set(sys.modules)))
import numpy
einsumx.einsum("ij,j->i", numpy.ones((2, 3)), [1, 2, 3])
with einsumx.patched("numpy"):
    numpy.einsum("ij,jk->ik", numpy.ones((2, 3)), numpy.ones((3, 2)))
print(*sorted(frameworks & set(sys.modules)))
"""
    assert printed(code) == "\nnumpy\n"


# -- classes that are arrays in part ----------------------------------------------------------------------------------


class Mixed(np.lib.mixins.NDArrayOperatorsMixin):
    """A class with NumPy's operators, which is no array of NumPy's."""

    def __init__(self, values):
        self.values = values

    shape, dtype = property(lambda self: self.values.shape), property(lambda self: self.values.dtype)

    def __getitem__(self, key):
        raise AssertionError("read without what it adds")

    def __array_ufunc__(self, *arguments, **keywords):
        return NotImplemented


class Convertible(Mixed):
    def __array__(self, dtype=None, copy=None):
        return self.values


class Quantity(Mixed):
    magnitude = property(lambda self: self.values)


class Frame(Mixed):
    def to_numpy(self):
        return self.values


class OfFunctions:
    """A class with a say in NumPy's functions, and without its operators."""

    shape, dtype = (2, 2), np.dtype("float64")

    def __array_function__(self, *arguments, **keywords):
        return NotImplemented

    def __array__(self, dtype=None, copy=None):
        return np.ones((2, 2))

    __getitem__ = Mixed.__getitem__


class Measured(np.ndarray):
    """A subclass of NumPy's arrays that has units."""

    def __array_ufunc__(self, *arguments, **keywords):
        return NotImplemented

    value = property(lambda self: self.view(np.ndarray))


def installed(module, make):
    """A value of a library's own type, by a function of the library, where that is installed."""
    return pytest.param(lambda: make(pytest.importorskip(module)), id=module)


ADDING = [
    pytest.param(lambda: Convertible(np.ones((2, 2))), id="__array__"),
    pytest.param(lambda: Quantity(np.ones((2, 2))), id="magnitude"),
    pytest.param(lambda: Frame(np.ones((2, 2))), id="to_numpy"),
    pytest.param(lambda: np.ones((2, 2)).view(Measured), id="value"),
    pytest.param(lambda: np.ma.masked_equal(np.ones((2, 2)), 2), id="masked"),
    pytest.param(OfFunctions, id="__array_function__"),
    installed("pint", lambda pint: np.ones((2, 2)) * pint.UnitRegistry().m),
    installed("astropy.units", lambda units: np.ones((2, 2)) * units.m),
    installed("pandas", lambda pandas: pandas.DataFrame(np.ones((2, 2)))),
    installed("xarray", lambda xarray: xarray.DataArray(np.ones((2, 2)))),
    installed("awkward", lambda awkward: awkward.Array(np.ones((2, 2)))),
]


@pytest.mark.parametrize("limit", [None, "1 MB"])
@pytest.mark.parametrize("make", ADDING)
def test_an_array_that_adds_something_is_an_error_that_names_its_type_and_whose_advice_works(make, limit):
    x = make()
    for operands in [(x, np.ones((2, 2))), (np.ones((2, 2)), x)]:
        with pytest.raises(einsumx.BackendError, match=f"{type(x).__name__} adds to an array") as raised:
            einsumx.einsum("ij,jk->ik", *operands, memory_limit=limit)
    advice = str(raised.value).rpartition(": ")[2]
    plain = eval(advice, {"x": x, "numpy": np})
    assert np.array_equal(einsumx.einsum("ij,jk->ik", plain, np.ones((2, 2)), memory_limit=limit), np.full((2, 2), 2.0))


def test_a_class_with_the_operators_of_numpy_and_no_way_to_an_array_is_an_error_that_names_it():
    with pytest.raises(einsumx.BackendError, match=r"Mixed adds to an array .*; pass the plain array"):
        einsumx.einsum("ij->ji", Mixed(np.ones((2, 2))))
    assert registry.owner(Mixed(np.ones((2, 2)))) is None


def test_a_class_with_the_operators_of_numpy_and_a_namespace_is_of_the_standard():
    class Namespaced(Mixed):
        def __array_namespace__(self):
            return None

    assert registry.serving(Namespaced).name == "array_api"


def test_a_subclass_of_a_class_with_something_of_numpys_may_be_registered(example):
    class Other(np.lib.mixins.NDArrayOperatorsMixin, example.ExampleArray):
        pass

    einsumx.register(example.backend.ADAPTER)
    lhs, rhs = arrays(example)
    assert einsumx.einsum("ij,jk->ik", Other(lhs.tolist()), rhs).tolist() == PRODUCT


@pytest.mark.parametrize("thing", [np.poly1d([1, 2]), np.add, np.random.default_rng(0)], ids=["poly1d", "ufunc", "rng"])
def test_a_value_of_numpys_that_is_no_array_is_an_error_that_names_its_type(thing):
    with pytest.raises(einsumx.BackendError, match=rf"einsum takes numpy\.ndarray, not numpy.*{type(thing).__name__}"):
        einsumx.einsum("i->", thing)


def test_a_dataset_of_pytorch_is_read_as_what_is_stored():
    data = pytest.importorskip("torch.utils.data")

    class Rows(data.Dataset):
        shape, dtype = (2, 3), np.dtype("float64")

        def __getitem__(self, box):
            return np.ones((2, 3))[box]

    assert einsumx.einsum("ij->i", Rows()).tolist() == [3.0, 3.0]
    assert einsumx.einsum("ij->i", Rows(), memory_limit="1 MB").tolist() == [3.0, 3.0]
