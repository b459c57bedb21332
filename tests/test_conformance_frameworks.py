"""What the suite makes and reads by itself: arrays in every layout and dtype, and the values of its cases."""

from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import printed

import einsumx
from einsumx import BackendError
from einsumx.adapters.operand_types import top_package
from einsumx.adapters.registry import get_backend
from einsumx.conformance.deviations import Deviation
from einsumx.conformance.framework import DTYPES, AdapterFramework
from einsumx.conformance.frameworks import KNOWN, framework_of
from einsumx.conformance.kit.arrays import ArraySpec, Numbers, rounded, values
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.subject import Subject
from einsumx.conformance.suite import FEATURES, LISTED, cases, run

INSTALLED = [kind() for name, kind in KNOWN.items() if find_spec(top_package(kind.module)) and name != "cupy"]
NUMBERS = Numbers(8)


@pytest.fixture(params=INSTALLED, ids=lambda framework: framework.name)
def framework(request):
    return request.param


def same(found, wanted):
    return found.shape == wanted.shape and np.array_equal(found, wanted)


@pytest.mark.long
def test_every_layout_has_the_values_that_were_asked_for(framework):
    for layout in framework.layouts:
        for dtype in framework.dtypes:
            for shape in ((2, 3, 4), (1, 4), (0, 3), ()):
                operand = ArraySpec(shape, dtype, layout)
                wanted = values(operand, NUMBERS)
                try:
                    array = framework.laid_out(wanted, operand)
                except NotApplicable:
                    assert layout in ("negated", "conjugated")  # of numbers that have no such thing
                    continue
                assert same(framework.values(array), wanted), (layout, dtype, shape)
                assert framework.dtype(array) == dtype
                assert framework.is_array(array)


def test_layouts_of_numpy_are_what_they_are_called():
    def made(layout, shape=(3, 4)):
        operand = ArraySpec(shape, "float64", layout)
        return KNOWN["numpy"]().laid_out(values(operand, NUMBERS), operand)

    assert made("C").flags.c_contiguous
    assert made("F").flags.f_contiguous
    assert made("swapped", (2, 3, 4)).strides == (32, 64, 8)
    assert made("sliced").strides == (2 * 9 * 8, 16)
    assert made("offset").strides == (6 * 8, 8)
    assert made("negative").strides == (-32, -8)
    assert made("broadcast").strides == (0, 8)
    assert made("broadcast-last").strides == (8, 0)
    assert not made("unaligned").flags.aligned
    assert not made("byteswapped").dtype.isnative
    assert not made("readonly").flags.writeable


def test_layouts_of_torch_are_what_they_are_called():
    pytest.importorskip("torch", reason="PyTorch is not installed")

    def made(layout, dtype="float64"):
        operand = ArraySpec((3, 4), dtype, layout)
        return KNOWN["torch"]().laid_out(values(operand, NUMBERS), operand)

    assert made("F").stride() == (1, 3)
    assert made("sliced").stride() == (18, 2)
    assert made("broadcast").stride() == (0, 1)
    assert made("conjugated", "complex64").is_conj()
    assert made("negated").is_neg()


def test_a_layout_that_a_framework_lacks_does_not_apply(framework):
    with pytest.raises(NotApplicable, match="no layout 'spiral'"):
        framework.laid_out(np.ones(2, "float32"), ArraySpec((2,), layout="spiral"))


def test_arrays_share_no_memory_with_the_values_that_they_are_made_of(framework):
    host = np.ones(3, "float32")
    array = framework.array(host, "float32")
    host[...] = 7
    assert framework.values(array).tolist() == [1, 1, 1]
    read = framework.values(array)
    read[...] = 7
    assert framework.values(array).tolist() == [1, 1, 1]


def test_dtypes_are_found_by_making_an_array_of_each():
    assert set(DTYPES) - set(KNOWN["numpy"]().dtypes) == (set() if find_spec("ml_dtypes") else {"bfloat16"})
    for framework in INSTALLED:
        assert framework.name == "autograd" or {"bool", "int8", "int32", "float32"} <= set(framework.dtypes)


@pytest.mark.parametrize("name", [framework.name for framework in INSTALLED])
def test_a_library_is_also_reached_through_its_backend_alone(name):
    framework = AdapterFramework(get_backend(name))
    assert framework.layouts == ("C",)
    for dtype in framework.dtypes:
        wanted = values(ArraySpec((2, 3), dtype), NUMBERS)
        array = framework.array(wanted, dtype)
        assert same(framework.values(array), wanted)
        assert framework.dtype(array) == dtype
    assert bool(framework.immutable) == (name in ("autograd", "jax", "tensorflow"))


def test_fills_are_what_they_are_called():
    def made(fill, dtype="float64", shape=(50, 60)):
        return values(ArraySpec(shape, dtype, fill=fill), NUMBERS)

    assert made("range", "int8").min() == -128
    assert made("range", "uint64").max() > 2**63
    assert set(np.unique(made("exact"))) == set(range(-3, 4))
    assert set(np.unique(made("exact", "uint8"))) == set(range(4))
    assert (made("positive") > 0).all()
    assert np.isinf(made("inf")).sum() == 1
    assert np.isnan(made("nan", "complex64")).sum() == 1
    assert np.abs(made("wide")).max() / np.abs(made("wide")).min() > 1e9
    assert (made("one", "bool")).all()
    assert abs(made("normal", "bool").mean() - 0.5) < 0.1
    with pytest.raises(ValueError, match="no fill 'spam'"):
        made("spam")


# As bits: hypothesis draws no floats where a library has the processor take the smallest for zeros, as MXNet 2 has.
@given(st.integers(0, 2**32 - 1))
def test_values_of_bfloat16_are_values_of_bfloat16_and_near(bits):
    value = np.array([bits], "uint32").view("float32")
    found = rounded(value, "bfloat16")
    assert not (found.view("uint32") & 0xFFFF).any()
    assert np.isnan(value[0]) or abs((int(found.view("uint32")[0]) & 0x7FFFFFFF) - (bits & 0x7FFFFFFF)) < 1 << 16


@pytest.mark.long
def test_cases_have_the_same_values_in_every_process():
    code = (
        "from hashlib import sha256\n"
        "from einsumx.conformance.suite import cases\n"
        "found = sha256()\n"
        "for case in cases('quick'):\n"
        "    found.update(case.id.encode())\n"
        "    found.update(b''.join(values.tobytes() for values in case.values()))\n"
    )
    here = {}
    exec(code, here)
    found = printed(f"{code}print(found.hexdigest())", PYTHONHASHSEED="1")
    assert found.strip() == here["found"].hexdigest()


def test_every_feature_has_cases_and_every_case_a_feature_that_is_described():
    assert {case.feature for case in cases("quick")} == set(FEATURES) - {LISTED}


# -- what other packages declare ------------------------------------------------------------------------------------


class OtherFramework(KNOWN["numpy"]):
    """What a package says of its library: NumPy under another name, with a deviation of its own."""

    name = "other"
    layouts = ("C", "F")
    deviations = (Deviation("forms/ij->ji *", "other has no transpose at all."),)


@pytest.fixture
def declared(monkeypatch):
    """Let an entry point name something."""

    def let(value):
        entry = EntryPoint("other", value, "einsumx.conformance")
        found = lambda group: [entry] if group == "einsumx.conformance" else entry_points(group=group)  # noqa: E731
        monkeypatch.setattr("einsumx.conformance.frameworks.entry_points", found)

    return let


def test_a_package_declares_what_its_library_can_do_by_an_entry_point(declared):
    declared(f"{__name__}:OtherFramework")
    assert framework_of("other").layouts == ("C", "F")


@pytest.mark.parametrize("value", [f"{__name__}:DTYPES", f"{__name__}:there_is_none", "no_module_of_this_name:x"])
def test_an_entry_point_that_names_no_framework_is_an_error_that_names_it(declared, value):
    declared(value)
    with pytest.raises(BackendError, match=f"'other'.*{value}"):
        framework_of("other")


def test_a_package_lists_the_deviations_of_its_library_as_strictly_as_ours(declared):
    declared(f"{__name__}:OtherFramework")
    framework = framework_of("other")
    subject = Subject("other", "1.0", framework, "", einsumx.einsum, is_einsumx=True)
    assert subject.deviations == list(framework.deviations)
    (outcome,) = run(subject, cases("quick", "forms/ij->ji *"), subject.deviations)
    assert outcome.status == "fail"
    assert "passes, though it is listed" in outcome.message
    assert not replace(subject, is_einsumx=False).deviations
