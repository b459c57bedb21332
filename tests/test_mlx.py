"""MLX's adapter: lazy results, products as the BLAS of its wheel is fast, integers, threads, transformations."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")

import einsumx  # noqa: E402
from einsumx.backends.mlx import ADAPTER  # noqa: E402
from einsumx.backends.mlx.choices import product_form  # noqa: E402
from einsumx.backends.mlx.kernels import integer_product, product  # noqa: E402
from einsumx.conformance.kit.oracle import expect, judge  # noqa: E402


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def arrays(rng, *shapes, dtype="float32"):
    return [mx.array(rng.normal(size=shape).astype(dtype)) for shape in shapes]


def check(result, equation, *operands):
    assert isinstance(result, mx.array)
    assert judge(np.array(result), expect(equation, *map(np.array, operands)))


# -- lazy results -----------------------------------------------------------------------------------------------------


def test_nothing_is_computed_before_a_result_is_read(rng):
    operands = arrays(rng, (300, 400), (400, 500))
    mx.eval(operands)
    mx.synchronize()
    before = mx.get_active_memory()
    result = einsumx.einsum("ij,jk->ki", *operands)
    mx.synchronize()
    assert mx.get_active_memory() == before
    mx.eval(result)
    assert mx.get_active_memory() >= before + 4 * 300 * 500
    check(result, "ij,jk->ki", *operands)


def test_a_transpose_is_not_copied(rng):
    plan = einsumx.plan("bind,bjnd->bnij", *arrays(rng, (2, 5, 3, 4), (2, 6, 3, 4)))
    assert [type(op).__name__ for op in plan.ops] == ["Transpose", "Transpose", "Matmul"]
    assert "copy" not in str(plan)


# -- products ---------------------------------------------------------------------------------------------------------

PRODUCTS = [
    ((70,), (70,)),
    ((7000,), (7000,)),
    ((90, 80), (80,)),
    ((80,), (80, 90)),
    ((90, 80), (80, 2)),
    ((5, 90, 80), (5, 80, 1)),
    ((5, 90, 80), (1, 80, 2)),
    ((50, 1, 300), (50, 300, 1)),
    ((2, 3, 40, 30), (1, 3, 30, 20)),
    ((40, 30), (30, 40)),
]


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_every_form_of_a_product_is_the_product_with_its_gradients(rng, shapes, dtype):
    operands = [mx.array(rng.normal(size=shape), dtype=getattr(mx, dtype)) for shape in shapes]
    kernel = product(*shapes, dtype)
    result = kernel(*operands)
    expected = mx.matmul(*operands)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    assert mx.allclose(result, expected, rtol=1e-4, atol=1e-4)
    cotangent = [mx.ones(expected.shape, dtype=expected.dtype)]
    found, wanted = (mx.vjp(function, operands, cotangent)[1] for function in (kernel, mx.matmul))
    for one, other in zip(found, wanted):
        assert mx.allclose(one, other, rtol=1e-4, atol=1e-4)


def test_each_form_is_among_the_tested_products():
    assert {product_form(*shapes, "float32") for shapes in PRODUCTS} == {"plain", "sum", "turned", "packed"}


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64"])
@pytest.mark.parametrize(
    "shapes", [((7, 50), (50, 6)), ((7, 50), (50,)), ((50,), (50,)), ((2, 3, 9), (1, 9, 4))], ids=str
)
def test_products_of_integers_wrap(rng, shapes, dtype, monkeypatch):
    info = np.iinfo(dtype)
    lhs, rhs = (rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True) for shape in shapes)
    for block in (None, 16):  # a sum may be too long for one exact product
        if block is not None:
            monkeypatch.setattr("einsumx.backends.mlx.kernels.inner_block", lambda dtype, block=block: block)
        result = integer_product(shapes[0][-1], dtype)(mx.array(lhs), mx.array(rhs))
        np.testing.assert_array_equal(np.array(result), np.matmul(lhs, rhs))
        assert np.array(result).dtype == dtype


# -- transformations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "shapes", "others"),
    [
        ("bind,bjnd->bnij", [(2, 4, 3, 5), (2, 6, 3, 5)], [(3, 2, 3, 5), (3, 7, 3, 5)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], [(4, 2), (2, 6), (6, 3)]),
        ("ij,kl->ikjl", [(2, 3), (3, 4)], [(5, 3), (3, 6)]),
        ("ij->j", [(2, 3)], [(4, 5)]),
    ],
)
def test_a_graph_without_shapes_serves_other_sizes(rng, equation, shapes, others):
    compiled = mx.compile(lambda *operands: einsumx.einsum(equation, *operands), shapeless=True)
    for sizes in (shapes, others):
        operands = arrays(rng, *sizes)
        check(compiled(*operands), equation, *operands)


def test_a_graph_without_shapes_that_splits_an_axis_is_an_error_of_mlx(rng):
    compiled = mx.compile(lambda *operands: einsumx.einsum("abcd,de->abce", *operands), shapeless=True)
    mx.eval(compiled(*arrays(rng, (2, 3, 4, 5), (5, 2))))
    with pytest.raises(ValueError, match="reshape"):
        mx.eval(compiled(*arrays(rng, (3, 2, 5, 5), (5, 4))))


# -- scalars, dtypes and other arrays ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [True, 2.5, 1j, 300, -1], ids=str)
@pytest.mark.parametrize("dtype", ["bool_", "int8", "uint8", "float16"])
def test_a_python_number_has_the_dtype_that_mlx_gives_it(dtype, number):
    array = mx.array([1, 0, 1]).astype(getattr(mx, dtype))
    try:
        expected = number * array
    except ValueError:  # it does not fit
        with pytest.raises(einsumx.BackendError, match=f"mlx does not convert {number} to {dtype}"):
            einsumx.einsum(",i->i", number, array)
        return
    result = einsumx.einsum(",i->i", number, array)
    assert result.dtype == expected.dtype
    assert mx.array_equal(result, expected)


@pytest.mark.parametrize("dtype", [">f4", "<f4", "bool", "complex64"])
def test_of_numpys_arrays_only_the_elements_are_copied(rng, dtype):
    host = rng.normal(size=(200, 300)).astype(dtype)
    before = mx.get_active_memory()
    array = ADAPTER.from_numpy(host[:, ::100])
    mx.eval(array)
    assert mx.get_active_memory() - before <= 2 * 200 * 3 * host.itemsize
    np.testing.assert_array_equal(np.array(array), host[:, ::100])


def test_complex128_is_an_error_instead_of_complex64():
    with pytest.raises(einsumx.BackendError, match="mlx: einsum does not support dtype 'complex128'"):
        einsumx.einsum("i,i->i", mx.ones(2), mx.ones(2), dtype="complex128")


def test_modules_of_mlx_are_no_arrays():
    with pytest.raises(einsumx.BackendError, match=r"einsum takes mlx\.core\.array, not mlx\.core\.Dtype"):
        einsumx.einsum("i->i", mx.float32)


# -- memory limits and threads ---------------------------------------------------------------------------------


def test_a_memory_limit_in_a_traced_function_is_an_error(rng):
    operands = arrays(rng, (20, 30), (30, 40))
    for transform in (mx.compile, mx.vmap):
        function = transform(lambda lhs, rhs: einsumx.einsum("...j,jk->...k", lhs, rhs, memory_limit="1 MB"))
        with pytest.raises(einsumx.BackendError, match=r"while mx\.compile or mx\.vmap traces"):
            function(operands[0], operands[1] if transform is mx.compile else mx.ones((20, 30, 40)))


def test_a_memory_limit_holds_for_what_mlx_allocates(rng):
    values = [rng.normal(size=(600, 600)).astype("float32") for _ in range(2)]
    limit = 1_000_000
    mx.clear_cache()
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    out = np.empty((600, 600), "float32")
    einsumx.einsum("ij,jk->ik", *values, out=out, backend="mlx", memory_limit=limit)
    assert mx.get_peak_memory() - before <= limit
    assert judge(out, expect("ij,jk->ik", *values))


def test_einsum_runs_in_other_threads(rng):
    operands = arrays(rng, (40, 50), (50, 60))
    mx.eval(operands)  # a thread of MLX computes only what it has recorded itself

    def work():
        result = einsumx.einsum("ij,jk->ik", *operands)
        mx.eval(result)
        return result, einsumx.einsum("ij,jk->ik", *operands, memory_limit="30 kB")

    for _ in range(2):
        with ThreadPoolExecutor(1) as pool:
            for result in pool.submit(work).result():
                check(result, "ij,jk->ik", *operands)


# -- einsumx behind MLX's own name ---------------------------------------------------------------------------------


def test_patch_replaces_einsum_and_takes_a_stream(rng):
    operands = arrays(rng, (4, 5), (5, 6))
    native, path = mx.einsum, mx.einsum_path
    with einsumx.patched("mlx"):
        assert mx.einsum is not native
        assert mx.einsum_path is path
        for stream in (None, mx.cpu, mx.default_stream(mx.cpu)):
            check(mx.einsum("ij,jk->ik", *operands, stream=stream), "ij,jk->ik", *operands)
        with pytest.raises(ValueError, match="'j'"):
            mx.einsum("ij,jk->ik", operands[0], operands[0])
        integers = [mx.array(np.arange(6).reshape(2, 3)), mx.array(np.arange(6).reshape(3, 2))]
        check(mx.einsum("ij,jk->ik", *integers), "ij,jk->ik", *integers)
    assert mx.einsum is native
