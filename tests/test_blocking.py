"""How contractions are cut under a memory limit: ranges, stages, and that what is cut is right."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from stored import Stored

import einsumx
from einsumx.blocked.stages import stages, tree
from einsumx.ir.bind import bind
from einsumx.ir.layout import ranges
from einsumx.ir.parse import parse_text


@given(st.integers(1, 60), st.integers(1, 60))
def test_ranges_make_up_the_axis_and_differ_by_one_at_most(size, count):
    count = min(size, count)
    found = ranges(size, count)
    assert [index for part in found for index in range(size)[part]] == list(range(size))
    lengths = {part.stop - part.start for part in found}
    assert len(found) == count
    assert max(lengths) - min(lengths) <= 1


def test_a_value_that_inner_loops_do_not_change_is_a_stage_around_them():
    sized = bind(parse_text("ab,bc,cd->ad", 3), [(4, 5), (5, 6), (6, 7)])
    root = stages(
        sized, tree(sized, ((0, 1), (0, 1))), (0, 3)
    )  # (ab,bc),cd with rows of the result outside, columns inside
    (inner,) = [source for source in root.inputs if not isinstance(source, int)]
    assert (root.nest, inner.equation, inner.nest) == ((0, 3), "ab,bc->ac", (0,))
    # With the loops the other way round, it would be computed again for every block of columns.
    assert stages(sized, tree(sized, ((0, 1), (0, 1))), (3, 0)).nest == (3, 0)


def test_a_label_is_summed_block_by_block_where_it_disappears():
    sized = bind(parse_text("ab,bc,cd->ad", 3), [(4, 5), (5, 6), (6, 7)])
    root = stages(sized, tree(sized, ((0, 1), (0, 1))), (1,))
    (inner,) = [source for source in root.inputs if not isinstance(source, int)]
    assert (root.loops, inner.loops) == ((), (1,))


def test_a_limit_that_all_fits_in_cuts_nothing():
    plan = einsumx.plan("ij,jk->ik", (30, 40), (40, 50), dtypes="float32", memory_limit="1GB")
    assert plan.blocking.order == ()


def test_two_square_matrices_that_do_not_fit_are_multiplied():
    lhs, rhs = (np.random.default_rng(seed).integers(-3, 4, (120, 120)).astype("float64") for seed in (0, 1))
    limit = (lhs.nbytes + rhs.nbytes + lhs.nbytes) // 2
    plan = einsumx.plan("ij,jk->ik", Stored(lhs), Stored(rhs), memory_limit=limit)
    assert plan.blocking.order
    assert plan.peak_bytes <= limit
    np.testing.assert_array_equal(einsumx.einsum("ij,jk->ik", Stored(lhs), Stored(rhs), memory_limit=limit), lhs @ rhs)
