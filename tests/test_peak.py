"""Peak memory: what plans say beforehand, against what frameworks then count."""

from itertools import cycle

import numpy as np
import peaks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import einsumx
from einsumx.adapters.registry import backends

pytestmark = pytest.mark.long

CASES = {
    "bind,bjnd->bnij": [(3, 110, 6, 48), (3, 90, 6, 48)],
    "bnij,bjnd->bind": [(3, 6, 110, 90), (3, 90, 6, 48)],
    "ij,jk->ik": [(350, 250), (250, 300)],
    "ji,jk->ki": [(350, 250), (350, 300)],
    "ij,j->i": [(800, 500), (500,)],
    "ij,i->j": [(800, 500), (800,)],
    "ij,jk,kl->il": [(250, 300), (300, 350), (350, 200)],
    "ab,bc,cd,de->ae": [(280, 280)] * 4,
    "iij,jk->ik": [(150, 150, 12), (12, 500)],
    "ijij->ij": [(30, 40, 30, 40)],
    "ii->i": [(900, 900)],
    "ijk->k": [(90, 120, 40)],
    "ijk->ki": [(90, 120, 40)],
    "ij->": [(900, 500)],
    "ijkl->jl": [(20, 25, 30, 30)],
    "ij,ij->": [(700, 600)] * 2,
    "ij,ij->ij": [(700, 500)] * 2,
    "ij,kj->ikj": [(50, 120), (60, 120)],
    "i,j->ij": [(600,), (700,)],
    "ijk,jil->ijkl": [(25, 35, 15), (35, 25, 25)],
    "ijk,ikl->jl": [(20, 110, 90), (20, 90, 100)],
    "abij,abjk->abik": [(5, 6, 60, 50), (5, 6, 50, 70)],
    "abij,bajk->abik": [(5, 6, 60, 50), (6, 5, 50, 70)],
    "aibj,bjak->iak": [(14, 20, 18, 30), (18, 30, 14, 25)],
    "abc,cd,be->ade": [(30, 25, 150), (150, 50), (25, 40)],
    "jrl,ijr,ijrk,ijrl,ikmn->imn": [(14, 3, 24), (20, 14, 3), (20, 14, 3, 24), (20, 14, 3, 24), (20, 24, 9, 9)],
    "ij->ji": [(700, 600)],
    "ab,cd,ef->ace": [(60, 400), (70, 300), (50, 200)],
    "aij,aj->ai": [(20, 120, 110), (20, 110)],
    "aij,ajk,ak->ai": [(12, 100, 110), (12, 110, 120), (12, 120)],
}
LARGE = {
    "ij->": [(3000, 2500)],
    "ijk->ki": [(200, 300, 60)],
    "ij,kj->ikj": [(60, 150), (80, 150)],
    "ij,ij->ij": [(1500, 900)] * 2,
}
"""Large enough for work to be cut over threads."""

DTYPES = ("float32", "float16", "complex64", "bool", "int8", "int32", "uint64")


def arrays_for(shapes, dtype, layouts):
    rng = np.random.default_rng(1)
    return [peaks.laid_out(shape, dtype, layout, rng) for shape, layout in zip(shapes, cycle(layouts))]


def own_bytes(array):
    """Bytes that an array really has."""
    return array.itemsize * int(np.prod([size for size, stride in zip(array.shape, array.strides) if stride]))


def check(equation, arrays, measured, predicted):
    """At most the prediction, and within 15 % of it; only arrays count."""
    total = sum(map(own_bytes, arrays)) + measured
    assert total <= predicted + peaks.OBJECTS, f"{equation}: {total} bytes, {total / predicted:.3f} of the prediction"
    assert total >= 0.85 * predicted, f"{equation}: {total / predicted:.3f} of the prediction"


def check_numpy(equation, arrays):
    predicted = einsumx.plan(equation, *arrays).peak_bytes
    einsumx.einsum(equation, *arrays)  # so that nothing is planned, and no thread started, while it is measured
    _, measured = peaks.numpy_peak(lambda: einsumx.einsum(equation, *arrays))
    check(equation, arrays, measured, predicted)


@pytest.fixture(params=[1, 4])
def threads(request):
    before = einsumx.get_num_threads()
    einsumx.set_num_threads(request.param)
    yield
    einsumx.set_num_threads(before)


@pytest.mark.parametrize("first", range(3))
def test_numpy_has_as_much_in_memory_as_the_plan_says(first):
    dtypes = cycle(DTYPES)
    for equation, shapes in list(CASES.items())[first::3]:
        for _ in range(3):
            check_numpy(equation, arrays_for(shapes, next(dtypes), ["plain"]))


@pytest.mark.usefixtures("threads")
def test_numpy_has_as_much_in_memory_as_the_plan_says_on_any_number_of_threads():
    for equation, shapes in LARGE.items():
        for dtype in ("float32", "float16"):
            check_numpy(equation, arrays_for(shapes, dtype, ["plain"]))


@pytest.mark.parametrize("layout", peaks.LAYOUTS[1:])
def test_numpy_has_as_much_in_memory_as_the_plan_says_for_operands_in_any_layout(layout):
    kinds = cycle([("float16", [layout]), ("float32", [layout, "plain"]), ("float32", [layout])])
    cases = list(CASES.items())[peaks.LAYOUTS.index(layout) % 2 :: 2]
    for (equation, shapes), (dtype, layouts) in zip(cases, kinds):
        check_numpy(equation, arrays_for(shapes, dtype, layouts))


def test_a_broadcast_operand_counts_as_what_is_stored():
    array = np.broadcast_to(np.ones((1, 1000)), (1000, 1000))
    assert einsumx.plan("ij,jk->ik", array, np.ones((1000, 500))).peak_bytes == 8 * (
        1000 + 1000 * 500 + 1000 * 500 + 500
    )


def test_the_check_of_peaks_sees_what_is_not_predicted():
    array = np.ones(10**6)
    _, measured = peaks.numpy_peak(lambda: (array + 1, array + 2))
    with pytest.raises(AssertionError):
        check("i->i", [array], measured, 2 * array.nbytes)
    with pytest.raises(AssertionError):
        check("i->i", [array], measured, 4 * array.nbytes)
    check("i->i", [array], measured, 3 * array.nbytes)


def check_torch(equation, arrays):
    import torch

    tensors = [torch.from_numpy(array) for array in arrays]
    predicted = einsumx.plan(equation, *tensors).peak_bytes
    einsumx.einsum(equation, *tensors)
    _, measured = peaks.torch_peak(lambda: einsumx.einsum(equation, *tensors))
    check(equation, arrays, measured, predicted)


@pytest.mark.skipif(not backends()["torch"], reason="torch is not installed")
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
def test_torch_has_as_much_in_memory_as_the_plan_says(dtype):
    layouts = cycle(["plain", "transposed", "sliced", "stepped", "broadcast"])
    for equation, shapes in CASES.items():
        arrays = arrays_for(shapes, dtype, [next(layouts)])
        for array in arrays:
            if dtype == "int64":  # small ones take more, as they are multiplied in float64
                np.copyto(array if array.base is None else array.base, 3)
        check_torch(equation, arrays)


LETTERS = "abcdef"


@st.composite
def contractions(draw):
    """Equations of one to four operands whose arrays have a megabyte or so, with a layout each."""
    rng_terms = draw(st.lists(st.text(LETTERS, min_size=1, max_size=4), min_size=1, max_size=4))
    used = sorted(set("".join(rng_terms)))
    output = "".join(draw(st.permutations(used))[: draw(st.integers(0, min(3, len(used))))])
    longest = max(len(set(term)) for term in rng_terms)
    base = {1: 1200, 2: 600, 3: 70, 4: 24}[longest]
    sizes = {letter: draw(st.integers(base * 2 // 3, base)) for letter in used}
    shapes = [tuple(sizes[letter] for letter in term) for term in rng_terms]
    layouts = [draw(st.sampled_from(peaks.LAYOUTS)) for _ in shapes]
    dtype = draw(st.sampled_from(("float32", "float16", "complex64", "int8", "int32", "bool")))
    return f"{','.join(rng_terms)}->{output}", shapes, layouts, dtype


@given(contractions())
@settings(max_examples=15)
def test_numpy_has_as_much_in_memory_as_the_plan_says_for_random_contractions(contraction):
    equation, shapes, layouts, dtype = contraction
    if einsumx.plan(equation, *shapes, dtypes=dtype).peak_bytes < 5e7:
        check_numpy(equation, arrays_for(shapes, dtype, layouts))


@pytest.mark.parametrize(("equation", "filters"), [("ni,fi->nf", 8), ("ni,nj->ij", None), ("nji,fi->fjn", 2)])
def test_windows_of_an_array_are_not_copied_all_at_once(equation, filters):
    rng = np.random.default_rng(0)
    signal = rng.standard_normal((60_000, 2) if "nji" in equation else 60_000)
    windows = np.lib.stride_tricks.sliding_window_view(signal, 100, axis=0)
    arrays = [windows, windows if filters is None else rng.standard_normal((filters, 100))]
    for _ in range(2):  # the second call is looked up
        found, peak = peaks.numpy_peak(lambda: einsumx.einsum(equation, *arrays))
        assert peak < found.nbytes + signal.nbytes + (20 << 20) < windows.nbytes
        expected = np.einsum(equation, *[array[:, ..., :] for array in arrays], optimize=True)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    out = np.empty_like(expected)
    assert peaks.numpy_peak(lambda: einsumx.einsum(equation, *arrays, out=out))[1] < signal.nbytes + (20 << 20)
    np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-9)
