"""Peak memory: what plans say beforehand, against what frameworks then count."""

import numpy as np
import peaks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import einsumx
from einsumx.registry import backends

CASES = {
    "bind,bjnd->bnij": [(4, 200, 8, 64), (4, 150, 8, 64)],
    "bnij,bjnd->bind": [(4, 8, 200, 150), (4, 150, 8, 64)],
    "ij,jk->ik": [(700, 500), (500, 600)],
    "ji,jk->ki": [(700, 500), (700, 600)],
    "ij,j->i": [(2000, 800), (800,)],
    "ij,i->j": [(2000, 800), (2000,)],
    "ij,jk,kl->il": [(400, 500), (500, 600), (600, 300)],
    "ab,bc,cd,de->ae": [(500, 500)] * 4,
    "iij,jk->ik": [(300, 300, 20), (20, 900)],
    "ijij->ij": [(60, 90, 60, 90)],
    "ii->i": [(2000, 2000)],
    "ijk->k": [(200, 300, 60)],
    "ijk->ki": [(200, 300, 60)],
    "ij->": [(3000, 1500)],
    "ijkl->jl": [(30, 40, 50, 60)],
    "ij,ij->": [(1500, 1500)] * 2,
    "ij,ij->ij": [(1500, 900)] * 2,
    "ij,kj->ikj": [(60, 150), (80, 150)],
    "i,j->ij": [(1200,), (1300,)],
    "ijk,jil->ijkl": [(40, 50, 20), (50, 40, 30)],
    "ijk,ikl->jl": [(30, 200, 150), (30, 150, 180)],
    "abij,abjk->abik": [(6, 7, 100, 90), (6, 7, 90, 110)],
    "abij,bajk->abik": [(6, 7, 100, 90), (7, 6, 90, 110)],
    "aibj,bjak->iak": [(20, 30, 25, 40), (25, 40, 20, 35)],
    "abc,cd,be->ade": [(40, 30, 300), (300, 60), (30, 50)],
    "jrl,ijr,ijrk,ijrl,ikmn->imn": [(20, 3, 40), (30, 20, 3), (30, 20, 3, 40), (30, 20, 3, 40), (30, 40, 9, 9)],
    "ij->ji": [(1000, 900)],
    "ab,cd,ef->ace": [(90, 400), (100, 300), (80, 200)],
    "aij,aj->ai": [(30, 200, 190), (30, 190)],
    "aij,ajk,ak->ai": [(20, 150, 160), (20, 160, 170), (20, 170)],
}
DTYPES = ("float32", "float16", "complex64", "bool", "int8", "int32", "uint64")


def arrays_for(shapes, dtype, layouts):
    rng = np.random.default_rng(1)
    return [peaks.laid_out(shape, dtype, layout, rng) for shape, layout in zip(shapes, layouts)]


def own_bytes(array):
    """Bytes that an array really has."""
    return array.itemsize * int(np.prod([size for size, stride in zip(array.shape, array.strides) if stride]))


def check(equation, arrays, measured, predicted):
    """At most the prediction, and within 15 % of it; only arrays count."""
    total = sum(map(own_bytes, arrays)) + measured
    assert total <= predicted + peaks.OBJECTS, f"{equation}: {total} bytes, {total / predicted:.3f} of the prediction"
    assert total >= 0.85 * predicted - peaks.OBJECTS, f"{equation}: {total / predicted:.3f} of the prediction"


def check_numpy(equation, arrays):
    predicted = einsumx.plan(equation, *arrays).peak_bytes
    einsumx.einsum(equation, *arrays)  # so that nothing is planned, and no thread started, while it is measured
    _, measured = peaks.numpy_peak(lambda: einsumx.einsum(equation, *arrays))
    check(equation, arrays, measured, predicted)


@pytest.fixture(params=[1, 4])
def threads(request):
    before = einsumx.get_num_threads()
    einsumx.set_num_threads(request.param)
    yield request.param
    einsumx.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("equation", CASES)
def test_numpy_has_as_much_in_memory_as_the_plan_says(equation, dtype):
    check_numpy(equation, arrays_for(CASES[equation], dtype, ["plain"] * 9))


@pytest.mark.parametrize("equation", CASES)
def test_numpy_has_as_much_in_memory_as_the_plan_says_on_any_number_of_threads(equation, threads):
    for dtype in ("float32", "float16"):
        check_numpy(equation, arrays_for(CASES[equation], dtype, ["plain"] * 9))


@pytest.mark.parametrize("layout", peaks.LAYOUTS[1:])
@pytest.mark.parametrize("equation", CASES)
def test_numpy_has_as_much_in_memory_as_the_plan_says_for_operands_in_any_layout(equation, layout):
    check_numpy(equation, arrays_for(CASES[equation], "float16", [layout] * 9))
    check_numpy(equation, arrays_for(CASES[equation], "float32", [layout, "plain"] * 5))


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


def check_torch(equation, arrays):
    import torch

    tensors = [torch.from_numpy(array) for array in arrays]
    predicted = einsumx.plan(equation, *tensors).peak_bytes
    einsumx.einsum(equation, *tensors)
    _, measured = peaks.torch_peak(lambda: einsumx.einsum(equation, *tensors))
    check(equation, arrays, measured, predicted)


@pytest.mark.skipif(not backends()["torch"], reason="torch is not installed")
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "int8", "int64"])
@pytest.mark.parametrize("equation", CASES)
def test_torch_has_as_much_in_memory_as_the_plan_says(equation, dtype):
    for layout in ("plain", "transposed", "sliced", "stepped", "broadcast"):
        arrays = arrays_for(CASES[equation], dtype, [layout] * 9)
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
    base = {1: 1500, 2: 700, 3: 90, 4: 28}[longest]
    sizes = {letter: draw(st.integers(base * 2 // 3, base)) for letter in used}
    shapes = [tuple(sizes[letter] for letter in term) for term in rng_terms]
    layouts = [draw(st.sampled_from(peaks.LAYOUTS)) for _ in shapes]
    dtype = draw(st.sampled_from(("float32", "float16", "complex64", "int8", "int32", "bool")))
    return f"{','.join(rng_terms)}->{output}", shapes, layouts, dtype


@given(contractions())
@settings(max_examples=150)
def test_numpy_has_as_much_in_memory_as_the_plan_says_for_random_contractions(contraction):
    equation, shapes, layouts, dtype = contraction
    if einsumx.plan(equation, *shapes, dtypes=dtype).peak_bytes < 2e8:
        check_numpy(equation, arrays_for(shapes, dtype, layouts))
