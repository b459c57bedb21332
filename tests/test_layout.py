"""Strides against NumPy's own: which axes merge, which reshapes are views, which layouts are one class."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einsumx.ir.layout import contiguous, layout_class, memory_order, merged_stride, reshaped


def strides_of(array):
    return tuple(stride // array.itemsize for stride in array.strides)


SHAPES, UP_TO_3 = st.lists(st.integers(1, 4), max_size=4), st.integers(0, 3)


@st.composite
def views(draw):
    """A view of some array: permuted, sliced with gaps and steps, reversed, with broadcast axes."""
    shape = tuple(draw(SHAPES))
    room = np.zeros([size * 2 + 1 for size in shape], "f4")
    index = [(slice(0, n), slice(1, n + 1), slice(0, 2 * n, 2), slice(n - 1, None, -1))[draw(UP_TO_3)] for n in shape]
    view = room[(..., *index)]
    for axis in range(view.ndim):
        if draw(UP_TO_3) == 0:
            view = np.broadcast_to(view[(slice(None),) * axis + (slice(0, 1),)], view.shape)
    if draw(UP_TO_3) < 2:
        view = np.ascontiguousarray(view).reshape(view.shape)
    return view.transpose(draw(st.permutations(range(view.ndim))))


@st.composite
def factorings(draw, count):
    """A shape of ``count`` elements."""
    shape = []
    while count > 1:
        factor = draw(st.sampled_from([k for k in range(2, count + 1) if count % k == 0]))
        shape.append(factor)
        count //= factor
    for _ in range(draw(st.integers(0, 2))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return tuple(shape)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (4, 1, 3), (2, 3, 4, 5)])
def test_contiguous_strides_are_numpys(shape):
    assert contiguous(shape) == strides_of(np.zeros(shape))


@pytest.mark.long
@given(data=st.data(), view=views())
@settings(max_examples=120)
def test_a_reshape_is_a_view_exactly_where_numpy_makes_one(data, view):
    target = data.draw(factorings(view.size))
    found = reshaped(view.shape, strides_of(view), target)
    result = view.reshape(target)
    assert (found is not None) == np.shares_memory(result, view)
    if found is not None:
        assert [s for s, n in zip(found, target) if n != 1] == [s for s, n in zip(strides_of(result), target) if n != 1]


@given(view=views())
@settings(max_examples=80)
def test_axes_merge_exactly_where_flattening_copies_nothing(view):
    found = merged_stride(view.shape, strides_of(view))
    flat = view.reshape(-1)
    if not np.shares_memory(flat, view):
        assert found is None
    elif flat.size > 1:
        assert found == strides_of(flat)[0]


def test_memory_order_is_from_the_largest_stride_to_the_smallest():
    array = np.zeros((2, 3, 4)).transpose(2, 0, 1)
    assert memory_order(strides_of(array)) == (1, 2, 0)
    assert memory_order((-5, 1, 0)) == (0, 1, 2)


def test_layout_class_keeps_what_decides_a_plan_and_drops_the_gaps():
    room = np.zeros((9, 9, 9))
    assert layout_class((4, 5), strides_of(room[0, :4, :5])) == layout_class(
        (4, 5), strides_of(np.zeros((7, 70))[:4, :5])
    )
    assert layout_class((4, 5), strides_of(np.zeros((4, 5)))) is None
    different = {
        layout_class((4, 4), strides)
        for strides in [(4, 1), (9, 1), (1, 4), (1, 9), (8, 2), (4, -1), (-4, 1), (0, 1), (1, 0), (0, 0)]
    }
    assert len(different) == 10


@given(view=views())
@settings(max_examples=120)
def test_layout_class_has_the_same_order_merges_zeros_and_unit_strides(view):
    shape, strides = view.shape, strides_of(view)
    found = layout_class(shape, strides)
    found = contiguous(shape) if found is None else found
    axes = [axis for axis, size in enumerate(shape) if size != 1]
    for axis in axes:
        assert (found[axis] == 0) == (strides[axis] == 0)
        assert (found[axis] < 0) == (strides[axis] < 0)
        assert (found[axis] == 1) == (strides[axis] == 1)
        for other in axes:
            pair = [axis, other]
            assert (abs(found[axis]) < abs(found[other])) == (abs(strides[axis]) < abs(strides[other]))
            sizes = [shape[k] for k in pair]
            merges = merged_stride(sizes, [strides[k] for k in pair]) is None
            assert merges == (merged_stride(sizes, [found[k] for k in pair]) is None) or axis == other


def test_layouts_without_elements_are_contiguous():
    assert layout_class((0, 3), (7, 2)) is None
    assert reshaped((0, 3), (7, 2), (3, 0)) == contiguous((3, 0))
