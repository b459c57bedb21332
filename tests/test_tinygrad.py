"""What is special to tinygrad: lazy tensors and their kernels, its gradients, TinyJit, and its own einsum's name."""

import numpy as np
import pytest

import einsumx
from einsumx import BackendError, EquationError, SizeError

tinygrad = pytest.importorskip("tinygrad")

from tinygrad import GlobalCounters, Tensor, TinyJit, Variable, dtypes, function  # noqa: E402

RNG = np.random.default_rng(21)


def tensor(*shape, dtype="float32", device=None):
    return Tensor(RNG.standard_normal(shape).astype(dtype), device=device).realize()


def kernels(array):
    """The number of kernels that compute a lazy tensor."""
    GlobalCounters.reset()
    array.realize()
    return GlobalCounters.kernel_count


def close(result, expected):
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)


# -- lazy results ---------------------------------------------------------------------------------------------------


def test_nothing_is_computed_before_the_result_is_read():
    a, b = tensor(6, 5), tensor(5, 4)
    GlobalCounters.reset()
    result = einsumx.einsum("ij,jk->ki", a, b)
    assert GlobalCounters.kernel_count == 0
    close(result, (a.numpy() @ b.numpy()).T)


@pytest.mark.parametrize(
    ("equation", "shapes", "count"),
    [
        ("ij,jk->ki", [(6, 5), (5, 4)], 1),
        ("bind,bjnd->bnij", [(2, 3, 4, 5), (2, 6, 4, 5)], 1),
        ("ij,jk,kl->il", [(6, 5), (5, 7), (7, 4)], 2),
        ("ij,jk,kl,lm->mi", [(6, 5), (5, 7), (7, 4), (4, 3)], 3),
        ("ij,jk,k->i", [(6, 5), (5, 7), (7,)], 2),
        ("iij,j->i", [(4, 4, 5), (5,)], 1),
    ],
)
def test_each_product_is_one_kernel(equation, shapes, count):
    arrays = [tensor(*shape) for shape in shapes]
    result = einsumx.einsum(equation, *arrays)
    assert kernels(result) == count
    close(result, np.einsum(equation, *[array.numpy() for array in arrays]))


def test_what_follows_joins_the_kernel():
    a, b = tensor(6, 5), tensor(5, 4)
    result = (einsumx.einsum("ij,jk->ik", a, b) + 1).relu()
    assert kernels(result) == 1
    close(result, np.maximum(a.numpy() @ b.numpy() + 1, 0))


def test_a_lazy_operand_is_part_of_the_kernel():
    packed = Tensor(RNG.integers(-9, 9, (5, 4)).astype("int8")).realize()
    a = tensor(6, 5)
    result = einsumx.einsum("ij,jk->ik", a, packed.cast("float32") * 0.5)
    assert kernels(result) == 1
    close(result, a.numpy() @ (packed.numpy() * np.float32(0.5)))


def test_compiled_calls_take_new_values():
    compiled = TinyJit(lambda a, b: einsumx.einsum("ij,jk,lk->il", a, b, b))
    for _ in range(5):  # the second call is recorded, and later ones repeat it
        a, b = tensor(3, 4), tensor(4, 5)
        close(compiled(a, b), a.numpy() @ b.numpy() @ b.numpy().T)


# -- gradients ------------------------------------------------------------------------------------------------------


def test_a_function_of_tinygrad_keeps_gradients():
    a, b = tensor(3, 4), tensor(4, 5)
    traced = function(lambda x, y: einsumx.einsum("ij,jk->ki", x, y))
    close(traced(a, b), (a.numpy() @ b.numpy()).T)
    close(traced(a, b).sum().gradient(a)[0], np.broadcast_to(b.numpy().sum(1), (3, 4)))


def test_a_memory_limit_computes_its_result_so_that_gradients_end_there():
    a, b = tensor(60, 50), tensor(50, 40)
    limited = einsumx.einsum("ij,jk->ik", a, b, memory_limit="20 kB")
    assert kernels(limited) == 0
    close(limited, a.numpy() @ b.numpy())
    realized = (a @ b).realize()
    for result in (limited, realized):  # as after every realize()
        close(result.sum().gradient(a)[0], np.zeros((60, 50)))


# -- dtypes and numbers ---------------------------------------------------------------------------------------------


def test_numbers_have_weak_dtypes():
    half, whole = Tensor.ones(2, dtype="float16"), Tensor.ones(2, dtype="int8")
    assert einsumx.einsum(",i->i", 0.5, half).dtype == dtypes.float16
    assert einsumx.einsum(",i->i", 2, whole).dtype == dtypes.int8
    assert einsumx.einsum(",i->i", 0.5, whole).dtype == dtypes.default_float
    assert einsumx.einsum(",i->i", Tensor(0.5), half).dtype == dtypes.float16
    assert einsumx.einsum(",->", Tensor(2), Tensor(3)).dtype == dtypes.default_int
    assert einsumx.einsum(",->", Tensor(2), Tensor(3)).item() == 6


def test_an_infinity_times_a_number_of_zero_is_nan():
    array = Tensor([1.0, float("inf")])
    np.testing.assert_array_equal(einsumx.einsum("i,->i", array, 0.0).numpy(), [0, np.nan])


@pytest.mark.parametrize("dtype", ["fp8e4m3", "fp8e5m2"])
def test_eight_bit_floats_are_refused(dtype):
    with pytest.raises(BackendError, match=f"does not support dtype dtypes.{dtype}"):
        einsumx.einsum("i->", Tensor.ones(3, dtype=dtype))


def test_sizes_may_be_variables():
    whole, other, vector = tensor(10, 3), tensor(10, 5), tensor(3)
    for count in (4, 7):
        size = Variable("n", 1, 10).bind(count)
        rows, columns = whole[:size], other[:size]
        first, second = whole.numpy()[:count], other.numpy()[:count]
        close(einsumx.einsum("ij,ik->jk", rows, columns), first.T @ second)
        close(einsumx.einsum("ij,ik,j->k", rows, columns, vector), (first @ vector.numpy()) @ second)
        result = einsumx.einsum("ij,kj->ki", rows, tensor(5, 3))
        assert result.shape[0] == 5
        assert result.shape[1] is rows.shape[0]


# -- out= and devices -----------------------------------------------------------------------------------------------


def test_out_is_assigned():
    a, out = tensor(4, 4), tensor(6, 4)
    before, view = out.numpy(), out[1:5]
    einsumx.einsum("ij,jk->ki", a, view, out=view)
    close(out[1:5], (a.numpy() @ before[1:5]).T)
    close(out[5:], before[5:])


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (lambda: tensor(1, 4).expand(3, 4), "elements share memory"),
        (lambda: Tensor(0.0).expand(3, 4), "a constant, which has no memory"),
    ],
    ids=["expanded", "constant"],
)
def test_an_out_without_memory_is_refused(out, message):
    with pytest.raises(BackendError, match=message):
        einsumx.einsum("ij->ij", tensor(3, 4), out=out())


def test_sharded_tensors():
    a, b = tensor(4, 6), tensor(6, 5)
    devices = ("CPU", "CPU:1")
    rows, whole = a.shard(devices, axis=0), b.shard(devices)
    result = einsumx.einsum("ij,jk->ki", rows, whole)
    assert result.device == devices
    close(result, (a.numpy() @ b.numpy()).T)
    with pytest.raises(BackendError, match="tensors on one device, not on cpu,cpu:1"):
        einsumx.einsum("ij,jk->ki", rows, whole, memory_limit=10_000)


def test_blocks_of_a_size_share_their_kernels():
    def kinds(rows):
        GlobalCounters.reset()
        a, b = tensor(rows, 64), tensor(64, 64)
        close(einsumx.einsum("ij,jk->ik", a, b, memory_limit=160_000), a.numpy() @ b.numpy())
        return len(compiled)

    from tinygrad.codegen import to_program_cache as compiled

    kinds(512)
    known = len(compiled)
    assert kinds(512) == known


# -- tinygrad's own einsum ------------------------------------------------------------------------------------------


def test_patch_replaces_the_method():
    a, b, c = tensor(3, 4), tensor(4, 5), tensor(5, 2)
    native = Tensor.einsum
    with einsumx.patched("tinygrad"):
        assert kernels(Tensor.einsum("ij, jk, kl -> il", a, b, c)) == 2
        close(Tensor.einsum("ij,jk", [a, b]), a.numpy() @ b.numpy())
        with pytest.raises(RuntimeError, match="has size 4 in operand 0") as error:
            Tensor.einsum("ij,jk->ik", a, c)
        assert isinstance(error.value, SizeError)
        with pytest.raises(EquationError):
            Tensor.einsum("ij,jk->ik", a)
    assert Tensor.einsum == native
    assert "einsum" not in vars(Tensor)  # inherited, as before
    assert kernels(Tensor.einsum("ij,jk,kl->il", a, b, c)) == 1


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16"])
def test_patch_widens_sums_as_tinygrad_does(dtype):
    array = Tensor.full((300, 2), 1, dtype=dtype).realize()
    for equation, *arrays in (("ij->j", array), ("ij,ij->j", array, array), ("ij->ji", array)):
        expected = Tensor.einsum(equation, *arrays)
        with einsumx.patched("tinygrad"):
            result = Tensor.einsum(equation, *arrays)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result.numpy(), expected.numpy())


def test_source_runs_without_einsumx():
    arrays = [tensor(3, 4), tensor(4, 5), tensor(3, 3)]
    text = einsumx.plan("ij,jk,ii->ki", *arrays).source()
    assert "einsumx" not in text
    names = {}
    exec(text, names)
    expected = np.einsum("ij,jk,ii->ki", *[array.numpy() for array in arrays])
    close(names["contraction"](*arrays), expected)
