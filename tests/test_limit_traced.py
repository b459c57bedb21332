"""Memory limits inside of JAX's transformations: as loops of the compiled program."""

from __future__ import annotations

import numpy as np
import pytest
from processes import printed

import einsumx
from einsumx import MemoryLimit, einsum, semirings

jax = pytest.importorskip("jax")
jnp = jax.numpy

pytestmark = pytest.mark.long

CHAIN = "ij,jk,kl->il"
CASES = [  # an equation, shapes, and a limit that is less than the contraction takes without one
    (CHAIN, [(100, 101), (101, 102), (102, 103)], 20_000),
    (CHAIN, [(100, 101), (101, 102), (102, 103)], 10_000),
    ("bqhd,bkhd,bkhv->bqhv", [(2, 50, 4, 16)] * 3, 15_000),
    ("iij,jk,kl->il", [(60, 60, 41), (41, 80), (80, 50)], 17_000),
    ("ab,bc,cd,de->", [(70, 71), (71, 72), (72, 73), (73, 74)], 8_000),
    ("ia,ib,ic->abc", [(30, 20), (30, 21), (30, 22)], 20_000),
]


@pytest.fixture
def chain():
    return arrays([(100, 101), (101, 102), (102, 103)])


def arrays(shapes, dtype="float32"):
    random = np.random.default_rng(0)
    return [jnp.asarray(random.standard_normal(shape), dtype) for shape in shapes]


def limited(equation, limit):
    return lambda *operands: einsum(equation, *operands, memory_limit=limit)


def unlimited(equation):
    return lambda *operands: einsum(equation, *operands)


def temporary_bytes(function, *operands):
    return jax.jit(function).lower(*operands).compile().memory_analysis().temp_size_in_bytes


def assert_close(actual, expected):
    for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * float(jnp.max(jnp.abs(other), initial=1)))


@pytest.mark.parametrize(("equation", "shapes", "limit"), CASES)
def test_a_compiled_program_keeps_the_limit(equation, shapes, limit):
    operands = arrays(shapes)
    assert temporary_bytes(unlimited(equation), *operands) > limit or equation == CASES[4][0]
    assert temporary_bytes(limited(equation, limit), *operands) <= limit
    assert_close(jax.jit(limited(equation, limit))(*operands), unlimited(equation)(*operands))


@pytest.mark.parametrize(("equation", "shapes", "limit"), [CASES[1], CASES[3]])
def test_gradients_keep_the_limit(equation, shapes, limit):
    operands = arrays(shapes)
    result = unlimited(equation)(*operands)
    (cotangent,) = arrays([result.shape])
    for number in range(len(operands)):

        def gradient(function, cotangent, *operands, number=number):
            def of_one(operand):
                return function(*operands[:number], operand, *operands[number + 1 :])

            return jax.vjp(of_one, operands[number])[1](cotangent)[0]

        in_blocks = jax.jit(lambda *arrays: gradient(limited(equation, limit), *arrays))
        assert temporary_bytes(in_blocks, cotangent, *operands) <= limit
        assert_close(in_blocks(cotangent, *operands), gradient(unlimited(equation), cotangent, *operands))


def test_a_contraction_that_fits_is_the_program_without_a_limit():
    rows, columns = arrays([(100, 100), (100, 100)])

    def lowered(**limit):
        text = jax.jit(lambda *operands: einsum("ij,jk->ik", *operands, **limit)).lower(rows, columns).as_text()
        return text.count("dot_general"), text.count("while")

    assert lowered(memory_limit="10 kB") == lowered() == (1, 0)  # its result does not count


def test_each_cut_label_is_a_loop_and_each_stage_one_product():
    equation, shapes, limit = CASES[2]
    function, operands = limited(equation, limit), arrays(shapes)
    text = jax.jit(function).lower(*operands).as_text()
    plan = einsumx.plan(equation, *shapes, dtypes="float32", backend="jax", memory_limit=limit)
    assert (text.count("stablehlo.while"), text.count("stablehlo.dot_general")) == (len(plan.cuts), 2) == (3, 2)
    (call,) = jax.make_jaxpr(function)(*operands).eqns
    assert "einsum_in_blocks[call=bqhd,bkhd,bkhv->bqhv within 15 kB]" in str(call)


def test_an_operand_that_is_not_cut_is_not_copied():
    plan = einsumx.plan(CHAIN, *[(120, 120)] * 3, dtypes="float32", backend="jax", memory_limit=40_000)
    assert plan.cuts == {"l": 6}
    assert temporary_bytes(plan, *arrays([(120, 120)] * 3)) <= plan.peak_bytes < 120 * 120 * 4


def test_the_plan_of_shapes_is_that_of_the_loops(chain):
    plan = einsumx.plan(CHAIN, *[each.shape for each in chain], dtypes="float32", backend="jax", memory_limit=20_000)
    assert plan.cuts == {"l": 10}
    assert "float32 on jax in loops of a compiled program\n  cut l " in str(plan)
    call = limited(CHAIN, 20_000)
    planned, called = (jax.jit(each).lower(*chain).as_text() for each in (plan, call))
    assert planned.partition("\n")[2] == called.partition("\n")[2]
    assert_close(jax.jit(plan)(*chain), unlimited(CHAIN)(*chain))
    with pytest.raises(einsumx.BackendError, match="call it while jax traces a function"):
        plan(*chain)
    whole = einsumx.plan(CHAIN, *[each.shape for each in chain], backend="jax", memory_limit="1 MB")
    assert (whole.cuts, whole.in_place) == ({}, (True, True, True))


def test_a_batch_has_the_same_limit(chain):
    first, *others = chain
    batch = jnp.stack([first, 2 * first, 3 * first])
    function, expected = (jax.vmap(each, (0, None, None)) for each in (limited(CHAIN, 30_000), unlimited(CHAIN)))
    assert_close(function(batch, *others), expected(batch, *others))
    assert temporary_bytes(function, batch, *others) <= 30_000
    last = jnp.stack([others[-1]] * 3, 1)
    assert_close(
        *(jax.vmap(each, (None, None, 1))(*chain[:2], last) for each in (limited(CHAIN, 30_000), unlimited(CHAIN)))
    )


def test_derivatives_of_every_kind(chain):
    def squares(function):
        return lambda *operands: (function(*operands) ** 2).sum()

    def twice(function):
        slopes = jax.grad(squares(function), (0, 1, 2))
        return jax.grad(lambda *operands: sum((slope**2).sum() for slope in slopes(*operands)), (0, 1, 2))

    def tangents(function):
        return lambda *operands: jax.jvp(function, operands, operands)

    for transformed in (squares, twice, tangents):
        small = [array / 100 for array in chain]
        actual, expected = (jax.jit(transformed(each))(*small) for each in (limited(CHAIN, 30_000), unlimited(CHAIN)))
        assert_close(actual, expected)
    few = arrays([(9, 8), (8, 7), (7, 6)])
    hessians = [jax.hessian(squares(each))(*few) for each in (limited(CHAIN, 5_600), unlimited(CHAIN))]
    assert_close(*hessians)
    assert_close(
        *(jax.grad(squares(each))(*chain) for each in (limited(CHAIN, 30_000), unlimited(CHAIN)))
    )  # not jitted
    assert_close(
        *(
            jax.jit(jax.grad(jax.checkpoint(squares(each))))(*chain)
            for each in (limited(CHAIN, 30_000), unlimited(CHAIN))
        )
    )


def test_complex_operands_that_are_conjugated_and_others_that_are_real():
    first, second = arrays([(40, 41), (41, 42)])
    first = first + 1j * first[::-1]

    def loss(limit):
        return lambda *operands: jnp.abs(einsum("ij,jk->k", *operands, conj=0, memory_limit=limit)).sum()

    for operands in ((first, second), (first, second + 1j)):
        assert_close(*(jax.jit(jax.grad(loss(limit), (0, 1)))(*operands) for limit in (24_000, None)))


def test_donated_operands():
    rows, columns = arrays([(101, 101), (101, 101)])
    expected = rows @ columns
    found = jax.jit(limited("ij,jk->ik", 20_000), donate_argnums=0)(rows, columns)
    assert rows.is_deleted()
    assert_close(found, expected)


def test_other_algebras_and_dtypes(chain):
    rows, columns = chain[:2]
    best = semirings.max_plus
    assert_close(
        jax.jit(lambda *operands: best.einsum("ij,jk->ik", *operands, memory_limit=60_000))(rows, columns),
        best.einsum("ij,jk->ik", rows, columns),
    )
    with pytest.raises(einsumx.BackendError, match="no gradients in the semiring 'max-plus'"):
        jax.grad(lambda each: best.einsum("ij,jk->ik", each, columns, memory_limit=60_000).sum())(rows)
    whole = [each.astype(int) for each in chain]
    assert_close(jax.jit(limited(CHAIN, 20_000))(*whole), unlimited(CHAIN)(*whole))
    assert_close(
        jax.jit(lambda total, *operands: einsumx.addeinsum(total, CHAIN, *operands, alpha=2, memory_limit=20_000))(
            unlimited(CHAIN)(*chain), *chain
        ),
        3 * unlimited(CHAIN)(*chain),
    )


def test_constants_of_a_trace_and_arrays_of_numpy(chain):
    assert_close(jax.jit(lambda factor: limited(CHAIN, 20_000)(*chain) * factor)(2.0), 2 * unlimited(CHAIN)(*chain))
    host = np.asarray(chain[1])
    assert_close(jax.jit(lambda each: limited(CHAIN, 20_000)(each, host, chain[2]))(chain[0]), unlimited(CHAIN)(*chain))


@pytest.mark.parametrize("limit", [0.5, MemoryLimit("1 MB", device="cpu"), MemoryLimit("1 MB", progress=True)])
def test_a_limit_in_a_trace_is_a_number_of_bytes(chain, limit):
    with pytest.raises(einsumx.BackendError, match="while jax traces a call, memory_limit= must be a number of bytes"):
        jax.jit(limited(CHAIN, limit))(*chain)


def test_what_does_not_fit_is_an_error_when_it_is_traced(chain):
    with pytest.raises(einsumx.MemoryLimitError, match="the smallest memory_limit= is ") as caught:
        jax.eval_shape(limited(CHAIN, 1_000), *chain)
    least = caught.value.smallest
    assert temporary_bytes(limited(CHAIN, least), *chain) <= least
    with pytest.raises(einsumx.BackendError, match="while jax traces a call"):
        jax.jit(lambda *operands: einsumx.einsum_frexp(CHAIN, *operands, memory_limit="1 MB"))(*chain)


SHARDED = """
import jax, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import einsumx

CHAIN, LIMIT = "ij,jk,kl->il", 30_000
random = np.random.default_rng(0)
arrays = [random.standard_normal(shape).astype("float32") for shape in ((100, 101), (101, 102), (102, 103))]
specs = P("d"), P(), P()


def limited(*operands):
    return einsumx.einsum(CHAIN, *operands, memory_limit=LIMIT)


def squares(function):
    return lambda *operands: (function(*operands) ** 2).sum()


def put(kind):
    mesh = jax.make_mesh((2,), ("d",), axis_types=(kind,))
    return mesh, [jax.device_put(array, NamedSharding(mesh, spec)) for array, spec in zip(arrays, specs)]


expected = np.linalg.multi_dot(arrays)
slopes = jax.grad(squares(lambda *operands: einsumx.einsum(CHAIN, *operands)), (0, 1, 2))(*arrays)
mesh, operands = put(AxisType.Explicit)
for is_checked in (True, False):
    function = jax.shard_map(limited, mesh=mesh, in_specs=specs, out_specs=P("d"), check_vma=is_checked)
    compiled = jax.jit(function).lower(*operands).compile()
    np.testing.assert_allclose(compiled(*operands), expected, rtol=1e-3, atol=1e-2)
    print(compiled.memory_analysis().temp_size_in_bytes <= LIMIT)
    for found, slope in zip(jax.jit(jax.grad(squares(function), (0, 1, 2)))(*operands), slopes):
        np.testing.assert_allclose(found, slope, rtol=1e-3, atol=1.0)
try:
    jax.jit(limited)(*operands)
except einsumx.BackendError as error:
    print(error)
mesh, operands = put(AxisType.Auto)
np.testing.assert_allclose(jax.jit(limited)(*operands), expected, rtol=1e-3, atol=1e-2)
"""


def test_sharded_arrays_have_the_limit_of_each_device_in_shard_map_alone():
    lines = printed(SHARDED, XLA_FLAGS="--xla_force_host_platform_device_count=2").splitlines()
    assert lines[:2] == ["True", "True"]
    assert lines[2].startswith(
        "memory_limit= is for arrays on one device, and not for one that a mesh shards as P('d',"
    )
    assert "call einsum inside of jax.shard_map" in lines[2]
