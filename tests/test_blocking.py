"""How contractions are cut under a memory limit: ranges, stages, and that what is cut is right."""

import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import Stored

import einsumx
from einsumx.blocked.stages import stages, tree
from einsumx.conformance.oracle import expect, judge
from einsumx.ir.bind import bind
from einsumx.ir.parse import parse_text
from einsumx.ir.ranges import ranges


def smallest_limit(equation, *operands):
    """What the error names that an impossible limit raises; 1 byte where that is enough."""
    try:
        einsumx.plan(equation, *operands, memory_limit=1)
    except einsumx.MemoryLimitError as error:
        return int(re.search(r"smallest memory_limit= is (\d+) bytes", str(error))[1])
    return 1


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


EQUATIONS = (
    "ij,jk->ik",
    "bind,bjnd->bnij",
    "ij,jk,kl->il",
    "ab,bc,cd,de->ae",
    "ijk,kl,jm->ilm",
    "iij,jk->ik",
    "ij->ji",
    "ij->",
    "ij,ij->i",
    "i,j,k->ijk",
    "...i,i...->...",
    "abc,bd,cd->ad",
)


@settings(max_examples=12)
@given(st.data())
def test_what_is_cut_is_right_at_any_limit_down_to_the_smallest_that_is_named(data):
    equation = data.draw(st.sampled_from(EQUATIONS))
    dtype = data.draw(st.sampled_from(["float64", "float16", "int8", "bool", "complex64"]))
    sizes = {label: data.draw(st.integers(1, 9), label) for label in "abcdeijklmn"}
    sizes["."] = 4
    random = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    hosts = []
    for term in equation.partition("->")[0].split(","):
        shape = [sizes[label] for label in term.replace("...", ".")]
        if data.draw(st.integers(0, 9), "broadcast") == 0 and len(set(term)) == len(shape):
            shape[random.integers(len(shape))] = 1
        hosts.append(random.integers(-2, 3, shape).astype(dtype))
    operands = [Stored(host) if data.draw(st.booleans(), "stored") else host for host in hosts]
    smallest = smallest_limit(equation, *operands)
    limit = smallest + data.draw(st.sampled_from([0, 1, 100, 1000]), "above")
    plan = einsumx.plan(equation, *operands, memory_limit=limit)
    assert plan.peak_bytes <= limit
    result = einsumx.einsum(equation, *operands, memory_limit=limit)
    verdict = judge(np.asarray(result), expect(equation, *hosts, dtype=dtype))
    assert verdict, (verdict.wrong, plan.blocking.counts)
