"""The generic adapter: array-api-strict, which has what the standard has and nothing more, and fakes with an oddity."""

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest

strict = pytest.importorskip("array_api_strict")

import einsumx  # noqa: E402
from einsumx.adapters import registry  # noqa: E402
from einsumx.backends.array_api import ArrayApiAdapter  # noqa: E402
from einsumx.conformance.kit.oracle import expect, judge  # noqa: E402

# -- array-api-strict -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [{"enabled_extensions": []}, {"api_version": "2022.12"}])
def test_no_extension_of_the_standard_is_needed_and_that_of_2022_is_enough(flags):
    with strict.ArrayAPIStrictFlags(**flags):
        result = einsumx.einsum("iij,jk->ki", strict.ones((2, 2, 3)), strict.ones((3, 4)))
    assert np.array_equal(np.asarray(result), np.full((4, 2), 3.0))


@pytest.mark.parametrize(("value", "dtype"), [(2.5, "int8"), (2j, "float64"), (True, "float64"), (2, "bool")])
def test_python_scalars_of_a_kind_that_the_standard_does_not_mix_are_an_error(value, dtype):
    with pytest.raises(einsumx.BackendError, match="does not combine a Python"):
        einsumx.einsum(",i->i", value, strict.ones(3, dtype=getattr(strict, dtype)))


def test_dtypes_that_the_standard_does_not_promote_ask_for_a_dtype():
    lhs, rhs = strict.ones(2, dtype=strict.int32), strict.ones(2, dtype=strict.float64)
    with pytest.raises(
        einsumx.BackendError, match=r"does not promote int32 and float64; cast one of them, or pass dtype="
    ):
        einsumx.einsum("i,i->", lhs, rhs)
    assert float(einsumx.einsum("i,i->", lhs, rhs, dtype="float64")) == 2


def test_planning_needs_no_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "array_api_strict", None)
    monkeypatch.setitem(registry._registered, "array_api", ArrayApiAdapter())
    registry.forget()
    try:
        plan = einsumx.plan("ij,kj->ik", (2, 3), (4, 3), backend="array_api", dtypes="float32")
        assert [type(op).__name__ for op in plan.ops] == ["Matmul"]
        with pytest.raises(einsumx.BackendError, match="pass at least one array, or pip install array-api-strict"):
            einsumx.einsum("i,i->", [1.0], [1.0], backend="array_api")
    finally:
        monkeypatch.undo()
        registry.forget()


# -- fakes ------------------------------------------------------------------------------------------------------------

EQUATIONS = {
    "bind,bjnd->bnij": [(2, 3, 2, 2), (2, 2, 2, 2)],
    "ij,jk->ik": [(2, 3), (3, 4)],
    "ijji->j": [(3, 4, 4, 3)],
    "ij->": [(2, 3)],
    "ij->ji": [(2, 3)],
    "ij,ij->i": [(1, 4), (2, 4)],
    "ij,jk,kl->li": [(2, 3), (3, 2), (2, 3)],
    ",->": [(), ()],
}


def numbers(equation, dtype):
    random = np.random.default_rng(7)
    return [random.integers(0, 3, shape).astype(dtype) for shape in EQUATIONS[equation]]


def fake(
    *,
    nameless_dtypes=False,
    devices=True,
    boolean="bool",
    astype="function",
    sum_dtype=True,
    multiplies_integers=True,
    without=(),
    **replaced,
):
    """A library for these tests alone: array-api-strict's functions on arrays of its own type, with oddities.

    Args:
        nameless_dtypes: dtypes that are equal have unlike hashes, no name, and compare with nothing else.
        devices: arrays have devices.
        boolean: what the dtype of truth values is called.
        astype: a ``"function"``, as in the standard, or a ``"method"`` of arrays.
        sum_dtype: whether ``sum`` takes a dtype.
        multiplies_integers: whether ``matmul`` takes integers.
        without: functions that it lacks.
        replaced: functions of its own, in the place of those of the standard.
    """

    class Dtype:
        def __init__(self, known):
            self.known = known

        def __eq__(self, other):
            return self.known == other.known  # fails for what is no Dtype

        def __hash__(self):
            return id(self) if nameless_dtypes else hash(str(self.known))

        def __repr__(self):
            return "a dtype" if nameless_dtypes else str(self.known)

    class FakeArray:
        def __init__(self, inner):
            self.inner = inner

        def __array_namespace__(self):
            return namespace

        def __getitem__(self, key):
            return FakeArray(self.inner[key])

        def __ne__(self, other):
            return FakeArray(self.inner != other)

        __hash__ = None

        shape, ndim = property(lambda self: self.inner.shape), property(lambda self: self.inner.ndim)
        dtype = property(lambda self: Dtype(self.inner.dtype))

    if devices:
        FakeArray.device = property(lambda self: self.inner.device)
    if astype == "method":
        FakeArray.astype = lambda self, dtype: FakeArray(strict.astype(self.inner, dtype.known))

    def plain(value):
        if isinstance(value, Dtype):
            return value.known
        return value.inner if isinstance(value, FakeArray) else value

    def wrapped(name):
        function = replaced.get(name) or getattr(strict, name)

        def call(*arguments, **keywords):
            if name == "sum" and not sum_dtype and "dtype" in keywords:
                raise TypeError("sum() got an unexpected keyword argument 'dtype'")
            if name == "matmul" and not multiplies_integers and "int" in str(arguments[0].inner.dtype):
                raise ValueError("[matmul] Only inexact types are supported")
            found = function(*map(plain, arguments), **{key: plain(value) for key, value in keywords.items()})
            return Dtype(found) if name == "result_type" else FakeArray(found)

        return call

    functions = "add any asarray logical_and logical_or matmul matrix_transpose multiply permute_dims real reshape sum"
    found = {name: wrapped(name) for name in (*functions.split(), "empty", "result_type", "astype")}
    for name in (*without, *(["astype"] if astype == "method" else [])):
        del found[name]
    dtypes = ["int8", "int16", "int32", "int64", "float32", "float64", "complex64", "complex128"]
    found.update((name, Dtype(getattr(strict, name))) for name in dtypes)
    found[boolean] = Dtype(strict.bool)
    namespace = SimpleNamespace(**found, __name__="fakelib", Array=FakeArray)
    FakeArray.__module__ = f"fakelib{id(namespace)}"  # each is a library of its own
    return namespace


def array_of(namespace, values):
    return namespace.Array(strict.asarray(values))


ODDITIES = {
    "none": {},
    "dtypes that are equal have unlike hashes, and no names": {"nameless_dtypes": True},
    "no devices": {"devices": False},
    "bool is called bool_": {"boolean": "bool_"},
    "astype is a method": {"astype": "method"},
    "sum takes no dtype": {"sum_dtype": False},
    "matmul takes no integers": {"multiplies_integers": False},
}
ODDITIES["all of these"] = {key: value for odd in ODDITIES.values() for key, value in odd.items()}


@pytest.mark.parametrize("dtype", ["bool", "int8", "float32", "complex64"])
@pytest.mark.parametrize("odd", ODDITIES)
def test_a_library_with_an_oddity_gives_the_plain_sum(odd, dtype):
    namespace = fake(**ODDITIES[odd])
    for equation in EQUATIONS:
        values = numbers(equation, dtype)
        result = einsumx.einsum(equation, *(array_of(namespace, each) for each in values))
        assert type(result) is namespace.Array
        assert judge(np.asarray(result.inner), expect(equation, *values)), equation


@pytest.mark.parametrize("odd", ODDITIES)
def test_dtypes_are_promoted_cast_and_asked_for(odd):
    namespace = fake(**ODDITIES[odd])
    values = numbers("ij,jk->ik", "float32")
    one, other = array_of(namespace, values[0]), array_of(namespace, values[1].astype("float64"))
    assert einsumx.einsum("ij,jk->ik", one, other).inner.dtype == strict.float64
    for dtype in ("float64", float, namespace.float64):
        assert einsumx.einsum("ij->ji", one, dtype=dtype).inner.dtype == strict.float64
    assert einsumx.einsum(",ij->ij", 2.0, one).inner.dtype == strict.float32
    assert einsumx.einsum("i,ij->j", [1.0, 2.0], one).shape == (3,)
    to_bool = einsumx.einsum("ij->ij", one, dtype="bool", casting="unsafe")
    assert np.array_equal(np.asarray(to_bool.inner), values[0] != 0)


MISSING = {
    "permute_dims": ("ij->ji", "float32"),
    "reshape": ("ijk,ijl->kl", "float32"),
    "asarray": ("ij->ji", "float32"),
    "matmul": ("ij,jk->ik", "float32"),
    "matrix_transpose": ("ij,kj->ik", "float32"),
    "sum": ("ij->j", "float32"),
    "any": ("ij->j", "bool"),
    "multiply": ("ij,ij->ij", "float32"),
    "logical_and": ("ij,ij->ij", "bool"),
    "real": ("ij->ij", "complex64"),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_function_that_is_missing_is_an_error_that_names_it_before_any_work(name):
    equation, dtype = MISSING[name]
    calls = []
    counted = {} if name == "sum" else {"sum": lambda *arguments, **keywords: calls.append(arguments)}
    namespace = fake(without=[name], **counted)
    arrays = [array_of(namespace, np.ones((2,) * len(term), dtype)) for term in equation.split("->")[0].split(",")]
    asked = {"dtype": "float32", "casting": "unsafe"} if name == "real" else {}
    with pytest.raises(einsumx.BackendError, match=f"fakelib has no function '{name}' of the array API standard"):
        einsumx.einsum(equation, *arrays, **asked)
    assert not calls


def test_a_promotion_without_result_type_is_an_error_that_names_it():
    namespace = fake(without=["result_type"])
    one, other = array_of(namespace, np.ones(2, "float32")), array_of(namespace, np.ones(2))
    with pytest.raises(einsumx.BackendError, match="'result_type'"):
        einsumx.einsum("i,i->", one, other)
    assert einsumx.einsum("i,i->", one, one).shape == ()  # it is not asked for


@pytest.mark.parametrize(
    ("name", "function", "says"),
    [
        ("matmul", lambda one, other: strict.asarray(1.0), r"returns .*float64 \(\), not float32 \(2, 4\)"),
        ("matmul", lambda one, other: strict.astype(strict.matmul(one, other), strict.float64), "returns .*float64"),
        ("matmul", lambda one, other: one.nowhere, "raises AttributeError: .*nowhere"),
    ],
    ids=["another shape", "another dtype", "an error"],
)
def test_a_function_that_does_something_else_is_an_error_that_says_which(name, function, says):
    namespace = fake(**{name: function})
    arrays = [array_of(namespace, each) for each in numbers("ij,jk->ik", "float32")]
    with pytest.raises(einsumx.BackendError, match=f"the {name} of this contraction: it {says}"):
        einsumx.einsum("ij,jk->ik", *arrays)


def test_an_error_that_a_signal_handler_raises_in_a_function_passes_through():
    def alarm(one, other):
        raise TimeoutError

    namespace = fake(matmul=alarm)
    arrays = [array_of(namespace, each) for each in numbers("ij,jk->ik", "float32")]
    with pytest.raises(TimeoutError):
        einsumx.einsum("ij,jk->ik", *arrays)


def test_devices_without_names_are_told_apart_and_numbered():
    class Device:
        def __init__(self, number):
            self.number = number

        __eq__ = lambda self, other: self.number == other.number  # noqa: E731
        __hash__ = None

    namespace = fake(devices=False)

    def on(number):
        array = array_of(namespace, np.ones((2, 2)))
        array.device = Device(number)
        return array

    assert einsumx.plan("ij,jk->ik", on(0), on(0)).device == "device:0"
    with pytest.raises(einsumx.BackendError, match="two devices, device:0 and device:1"):
        einsumx.einsum("ij,jk->ik", on(0), on(1))


def test_an_array_that_makes_no_array_of_numpy_is_no_operand_for_an_out_of_numpy():
    namespace = fake()
    array = array_of(namespace, np.ones((2, 2)))
    with pytest.raises(einsumx.BackendError, match="fakelib does not convert its arrays to NumPy"):
        einsumx.einsum("ij,jk->ik", array, array, memory_limit="1 MB", out=np.empty((2, 2)))


def test_arrays_of_two_libraries_are_an_error_that_names_both_types():
    first, second = fake(), fake()
    one, other = array_of(first, [1.0]), array_of(second, [1.0])
    names = rf"{type(one).__module__}\..* and .*{type(other).__module__}\."
    with pytest.raises(einsumx.BackendError, match=names):
        einsumx.einsum("i,i->", one, other)
    run = einsumx.expression("i,i->", (1,), other)
    with pytest.raises(einsumx.BackendError, match=names):
        run(one)
    assert float(run([2.0]).inner) == float(run(array_of(second, [2.0])).inner) == 2.0


@pytest.mark.parametrize("keywords", [{}, {"memory_limit": "1 MB"}], ids=["whole", "limit"])
def test_a_class_that_wraps_arrays_of_several_libraries_is_computed_by_that_of_each_call(keywords):
    first, second = fake(), fake()

    class Wrapper(first.Array, second.Array):
        def __array_namespace__(self):
            return SimpleNamespace(**vars(self.wrapped))  # a new object, equal to the one before

        def __getitem__(self, key):
            return self.wrapped.Array(self.inner[key])

    def wrapper(namespace):
        array = Wrapper(strict.asarray([1.0, 2.0]))
        array.wrapped = namespace
        return array

    for namespace in (first, second, first):
        result = einsumx.einsum("i,i->i", wrapper(namespace), wrapper(namespace), **keywords)
        assert (type(result), [float(each) for each in result.inner]) == (namespace.Array, [1, 4])
    with pytest.raises(einsumx.BackendError, match="two frameworks"):
        einsumx.einsum("i,i->i", wrapper(first), wrapper(second), **keywords)


# -- sizes that are not known -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, "N", math.nan, object()], ids=["None", "text", "nan", "object"])
@pytest.mark.parametrize(
    "call",
    [
        lambda known, lazy: einsumx.einsum("ij,jk->ik", known, lazy),
        lambda known, lazy: einsumx.einsum(known, [0, 1], lazy, [1, 2]),
        lambda known, lazy: einsumx.einsum("ij,jk->ik", known, lazy, memory_limit="1 MB"),
        lambda known, lazy: einsumx.einsum("ij,jk->ik", known, lazy, dtype="float64"),
        lambda known, lazy: einsumx.plan("ij,jk->ik", known, lazy),
        lambda known, lazy: einsumx.plan("ij,jk->ik", known, lazy, memory_limit="1 MB"),
        einsumx.expression("ij,jk->ik", (2, 2), (2, 2)),
    ],
    ids=["text", "sublists", "limit", "dtype", "plan", "plan under a limit", "expression"],
)
def test_a_size_that_is_not_known_is_an_error_that_names_operand_and_axis(call, size):
    namespace = fake()
    known, lazy = (array_of(namespace, np.ones((2, 2))) for _ in range(2))
    lazy.inner = SimpleNamespace(shape=(2, size), ndim=2, dtype=strict.float64, device="cpu")
    with pytest.raises(
        einsumx.SizeError, match=r"operand 1 has shape \(2, .*\), where the size of axis 1 is not known"
    ):
        call(known, lazy)


def test_an_out_of_a_size_that_is_not_known_is_an_error():
    namespace = fake()
    known, out = (array_of(namespace, np.ones((2, 2))) for _ in range(2))
    out.inner = SimpleNamespace(shape=(2, None), ndim=2, dtype=strict.float64, device=strict.ones(1).device)
    with pytest.raises(einsumx.BackendError, match="size of axis 1 is not known"):
        einsumx.einsum("ij,jk->ik", known, known, out=out)


@pytest.mark.parametrize("size", [None, "N"])
def test_a_stored_operand_of_a_size_that_is_not_known_is_an_error_that_names_it(size):
    class Symbolic:
        shape, dtype = (2, size), np.dtype("float64")

        def __getitem__(self, box):
            raise AssertionError("read")

    with pytest.raises(einsumx.SizeError, match=r"operand 1 \(.*Symbolic\) has shape .* axis 1 is not known"):
        einsumx.einsum("ij,jk->ik", np.ones((2, 2)), Symbolic(), memory_limit="1 MB")


def test_a_stored_operand_of_a_rank_that_is_not_known_is_an_error_that_names_it():
    class Shape:  # as TensorFlow's
        def __iter__(self):
            raise ValueError("Cannot iterate over a shape with unknown rank.")

    class Unranked:
        shape, dtype = Shape(), np.dtype("float64")

        def __getitem__(self, box):
            raise AssertionError("read")

    with pytest.raises(einsumx.BackendError, match=r"operand 1 \(.*Unranked\) cannot be read: .* unknown rank"):
        einsumx.einsum("ij,jk->ik", np.ones((2, 2)), Unranked(), memory_limit="1 MB")
