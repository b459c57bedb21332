"""Transposes and sums of more axes than MXNet's operators take, as several; no MXNet is needed."""

from itertools import pairwise

import numpy as np
import pytest

from einsumx.backends.mxnet.choices import MOST_TRANSPOSED, sums, transposes


@pytest.mark.parametrize("seed", range(30))
def test_transposes_of_few_axes_make_up_one_of_many(seed):
    random = np.random.default_rng(seed)
    rank = int(random.integers(7, 13))
    array = np.arange(2**rank).reshape((2,) * rank)[(slice(None, 1),) * (seed % 3)]
    axes = tuple(map(int, random.permutation(rank)))
    turned = array
    for shape, moved in transposes(axes, array.shape):
        assert len(moved) <= MOST_TRANSPOSED
        turned = turned.reshape(shape).transpose(moved)
    expected = array.transpose(axes)
    assert (turned.reshape(expected.shape) == expected).all()


@pytest.mark.parametrize("seed", range(30))
def test_sums_along_few_runs_make_up_one_along_many(seed):
    random = np.random.default_rng(seed)
    rank = int(random.integers(1, 13))
    array = random.integers(0, 9, (2,) * rank)
    axes = tuple(axis for axis in range(rank) if random.integers(2)) or (0,)
    total = array
    for some in sums(axes, rank):
        is_summed = [axis in some for axis in range(total.ndim)]
        assert sum(one != other for one, other in pairwise(is_summed)) < 5
        total = total.sum(some)
    assert (total == array.sum(axes)).all()
