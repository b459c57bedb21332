"""Sums over nothing, and results without elements: no framework's kernel sees them, and they are right everywhere."""

import sys

import numpy as np
import pytest
from backends_under_test import INSTALLED
from processes import printed

import einsumx
from einsumx.adapters.registry import BUILTIN
from einsumx.conformance.kit.oracle import expect
from einsumx.ir.ops import Zeros

EQUATIONS = {
    "i->": [(0,)],
    "ab->b": [(4, 0)],
    "ab->a": [(4, 0)],
    "ab->ba": [(4, 0)],
    "aab->b": [(0, 0, 3)],
    "i,i->i": [(0,), (1,)],
    "i,j->j": [(0,), (4,)],
    "ij,jk->ik": [(2, 0), (0, 3)],
    "bij,bjk->bik": [(0, 2, 3), (1, 3, 4)],
    "i,j,k->": [(0,), (4,), (5,)],
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_no_op_of_a_plan_reads_arrays_without_elements(equation):
    for backend in BUILTIN:
        (op,) = einsumx.plan(equation, *EQUATIONS[equation], dtypes="float32", backend=backend).ops
        assert isinstance(op, Zeros)


@pytest.mark.parametrize("dtype", ["longdouble", "clongdouble", "object", ">f8"])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_every_dtype_that_numpy_alone_has_gives_zeros_of_itself(dtype, equation):
    shapes = EQUATIONS[equation]
    arrays = [np.ones((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2] for shape in shapes]
    result = np.asarray(einsumx.einsum(equation, *arrays))
    assert result.shape == expect(equation, *map(np.zeros, shapes)).values.shape
    assert not result.any()
    assert result.dtype == (np.dtype(dtype).newbyteorder("=") if dtype != "object" or result.ndim else int)


@pytest.mark.long
@pytest.mark.parametrize("backend", INSTALLED, ids=str)
def test_a_limit_an_expression_a_source_and_a_stored_plan_give_zeros_beside_infinities(backend):
    nothing, many = (backend.array(np.full(shape, np.inf), "float32") for shape in ((0, 3), (3, 2)))
    plan, names = einsumx.plan("ij,jk->k", nothing, many), {}
    assert einsumx.Plan.from_json(plan.to_json()) == plan
    exec(plan.source(), names)
    results = [plan(nothing, many), names["contraction"](nothing, many)]
    results.append(einsumx.expression("ij,jk->k", nothing, (3, 2))(many))
    if backend.adapter.blocks is not None:
        results.append(einsumx.einsum("ij,jk->k", nothing, many, memory_limit=64))
    assert [backend.values(result).tolist() for result in results] == [[0, 0]] * len(results)


@pytest.mark.skipif(sys.maxsize < 10**12, reason="addresses of 32 bits do not count so many elements")
@pytest.mark.parametrize("equation", ["i,j->ij", "i,j->i", "i,j->", "i,j,jk->ik", "i,j,j->ij"])
def test_a_limit_cuts_nothing_where_nothing_is_computed(equation):
    """Blocks of single elements would be a million million."""
    shapes = {"i": (0,), "j": (10**12,), "jk": (10**12, 2)}
    arrays = [np.broadcast_to(np.nan, shapes[term]) for term in equation.partition("->")[0].split(",")]
    result = einsumx.einsum(equation, *arrays, memory_limit=8)
    assert not np.any(result)


@pytest.mark.parametrize("equation", ["i->i", "ii->i", "i,j->ji", ",i->i"])
def test_a_result_without_elements_takes_no_memory(equation):
    shapes = {"i": (0,), "ii": (0, 0), "j": (3,), "": ()}
    arrays = [np.ones(shapes[term]) for term in equation.partition("->")[0].split(",")]
    assert einsumx.einsum(equation, *arrays, memory_limit=1).size == 0


HEAP = """
import einsumx, numpy as np
array = np.ones((8, 1), "clongdouble")[::2, :0]
for equation in ("ab->b", "ab->", "ab->a", "ab,ab->b"):
    for _ in range(500):
        einsumx.einsum(equation, *[array] * len(equation.split(",")))
    [np.ones(size, "clongdouble") for size in range(1, 300)]
"""


@pytest.mark.long
def test_the_memory_beside_a_result_without_elements_is_not_written_to():
    """NumPy's einsum writes a partial sum there, which corrupts the heap."""
    printed(HEAP)


# -- what frameworks record -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # which torch itself calls
def test_torch_maps_sums_over_nothing_and_has_directional_derivatives(torch):
    nothing, vectors = torch.ones(0), torch.ones(4, 3)

    def call(vector):
        return einsumx.einsum("i,j->j", nothing, vector)

    assert torch.func.vmap(call)(vectors).tolist() == [[0] * 3] * 4
    assert torch.func.jvp(call, (vectors[0],), (vectors[0],))[1].tolist() == [0] * 3


def test_jax_has_the_result_on_the_device_of_the_operands(jax):
    there = jax.devices()[1]
    operands = [jax.device_put(jax.numpy.ones(shape), there) for shape in ((0,), (3,))]
    result = einsumx.einsum("i,j->j", *operands)
    assert result.committed
    assert result.devices() == {there}
    assert jax.jit(lambda *arrays: einsumx.einsum("i,j->j", *arrays))(*operands).devices() == {there}
