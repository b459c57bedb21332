"""Operands that are read block by block, and results that are written so: what they may be, and what is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import peaks
import pytest
from stored import EQUATION, LIMIT, Stored, operands, smallest

import einsumx
from einsumx.conformance.kit.oracle import expect, judge


def kept(kind: str, folder: Path, name: str, array: Any) -> Any:
    """``array``, as ``kind`` keeps it."""
    match kind:
        case "array":
            return array.copy()
        case "memory map":
            found = np.memmap(folder / name, array.dtype, "w+", shape=array.shape)
        case "stored":
            return Stored(array.copy())
        case "hdf5":
            h5py = pytest.importorskip("h5py")
            return h5py.File(folder / name, "w").create_dataset("array", data=array, chunks=(16, 16))
        case "zarr 2" | "zarr 3":
            zarr = pytest.importorskip("zarr")
            version = {"zarr_format": int(kind[-1])} if int(zarr.__version__[0]) > 2 else {}
            found = zarr.open_array(
                str(folder / name), mode="w", shape=array.shape, chunks=(16, 16), dtype=array.dtype, **version
            )
        case "tensor":
            return pytest.importorskip("torch").tensor(array)
    found[...] = array
    return found


def values(found: Any) -> Any:
    """What is kept, as an array of NumPy."""
    return found.array if isinstance(found, Stored) else np.asarray(found[...])


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("array", "tensor"),
        ("memory map", "hdf5"),
        ("stored", "memory map"),
        ("hdf5", "array"),
        ("zarr 2", "stored"),
        ("zarr 3", "zarr 3"),
        ("tensor", "hdf5"),
    ],
)
def test_operands_and_out_may_be_kept_in_any_of_these(first: str, second: str, tmp_path: Path) -> None:
    a, b = operands()
    out = kept(first, tmp_path, "out", np.zeros((60, 80), np.float32))
    given = kept(first, tmp_path, "a", a), kept(second, tmp_path, "b", b)
    found = einsumx.einsum(EQUATION, *given, memory_limit=LIMIT)
    assert type(found).__module__ == ("torch" if "tensor" in (first, second) else "numpy")
    assert judge(np.asarray(found), expect(EQUATION, a, b))
    assert einsumx.einsum(EQUATION, *given, out=out, memory_limit=LIMIT) is out
    assert judge(values(out), expect(EQUATION, a, b))


def test_read_only_maps_and_the_other_byte_order_are_read_without_a_warning_where_torch_computes(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")
    a, b = operands()
    kept("memory map", tmp_path, "a", a).flush()
    mapped = np.memmap(tmp_path / "a", np.float32, "r", shape=a.shape)
    for first, second in ((mapped, b), (a.astype(">f4"), Stored(b.astype(">f4")))):
        found = einsumx.einsum(EQUATION, first, second, memory_limit=LIMIT, backend="torch")
        assert judge(np.asarray(found), expect(EQUATION, a, b))


@pytest.mark.parametrize(
    ("equation", "dtype"),
    [
        ("ii->", "bool"),
        ("ii->i", "int16"),
        ("iji,jk->ik", "complex64"),
        ("iji,jk->ik", "float16"),
        ("...i,i->...", "float32"),
        (",ij->j", "int16"),
        ("ij->ji", "bool"),
    ],
)
def test_stored_operands_take_every_kind_of_equation(equation: str, dtype: str) -> None:
    sizes = {"i": 12, "j": 15, "k": 9, ".": 7}
    terms = equation.partition("->")[0].replace("...", ".").split(",")
    rng = np.random.default_rng(1)
    arrays = [np.asarray(rng.integers(0, 3, [sizes[label] for label in term])).astype(dtype) for term in terms]
    found = einsumx.einsum(equation, *map(Stored, arrays), memory_limit=3200)
    assert judge(np.asarray(found), expect(equation, *arrays))


def test_scalars_and_lists_go_with_what_is_stored() -> None:
    a, _ = operands("float64")
    found = einsumx.einsum(",ij,j->i", 2.0, Stored(a), list(range(70)), memory_limit=LIMIT)
    assert judge(found, expect(",ij,j->i", np.float64(2.0), a, np.arange(70.0)))


def test_a_given_out_does_not_count() -> None:
    a, b = operands()
    out = np.zeros((60, 80), np.float32)
    plan = einsumx.plan(EQUATION, a, b, out=out, memory_limit=4000)
    assert plan.peak_bytes <= 4000 < out.nbytes
    einsumx.einsum(EQUATION, a, b, out=out, memory_limit=4000)
    assert judge(out, expect(EQUATION, a, b))
    with pytest.raises(ValueError, match="next to shapes, out= must be the shape of the result"):
        einsumx.plan(EQUATION, a.shape, b.shape, out=out, memory_limit=4000)


def test_a_block_is_read_once_where_inner_loops_do_not_change_it() -> None:
    a, b = (Stored(array) for array in operands())
    plan = einsumx.plan(EQUATION, a, b, memory_limit=LIMIT)
    for stored in (a, b):
        stored.boxes.clear()
    einsumx.einsum(EQUATION, a, b, memory_limit=LIMIT)
    read = [stored.read_bytes / stored.array.nbytes for stored in (a, b)]
    assert read == [float(times) for times in plan.blocking.reads]
    assert max(read) > 1  # else there was nothing to keep


class _NoShape:
    dtype = np.dtype("float32")


class _NoSlices:
    shape, dtype = (60, 70), np.dtype("float32")

    def __getitem__(self, box: Any) -> Any:
        raise KeyError(box)


class _Gone(Stored):
    def __getitem__(self, box: Any) -> Any:
        raise OSError("no such disk")


class _OtherRank(Stored):
    def __getitem__(self, box: Any) -> Any:
        return self.array[box].ravel()


class _Text(Stored):
    def __init__(self) -> None:
        super().__init__(np.full((60, 70), "text"))


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (_NoShape(), einsumx.BackendError, "no framework for operands of type"),
        (_NoSlices(), einsumx.BackendError, r"operand 0 .*_NoSlices\) cannot be read by slices \(KeyError"),
        (_OtherRank(np.ones((60, 70))), einsumx.BackendError, "slices of operand 0 .* are not arrays of the same rank"),
        (_Text(), einsumx.BackendError, r"operand 0 .*_Text\) cannot be read: .*numbers"),
        (np.ma.masked_array(np.ones((60, 70))), einsumx.BackendError, "MaskedArray"),
        (_Gone(np.ones((60, 70))), OSError, "^no such disk$"),
    ],
    ids=["no shape", "no slices", "rank", "text", "masked", "gone"],
)
def test_what_cannot_be_read_is_named_before_out_is_touched(wrong: Any, error: Any, says: str) -> None:
    out = np.full((60, 80), 7.0)
    for limit in (LIMIT, None):
        with pytest.raises(error, match=says):
            einsumx.einsum(EQUATION, wrong, operands()[1], out=out, memory_limit=limit)
    assert (out == 7).all()


def test_masked_blocks_are_an_error_and_not_read_as_numbers() -> None:
    a, b = operands()
    for limit in (LIMIT, None):
        with pytest.raises(einsumx.BackendError, match="masked"):
            einsumx.einsum(EQUATION, Stored(np.ma.masked_less(a, 0)), b, memory_limit=limit)


def test_tensors_that_ask_for_a_gradient_are_not_read_by_another_framework() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(einsumx.BackendError, match="operand 1 requires a gradient"):
        einsumx.einsum(
            EQUATION, operands()[0], torch.ones(70, 80, requires_grad=True), memory_limit=LIMIT, backend="numpy"
        )


@pytest.mark.parametrize(
    ("out", "error", "says"),
    [
        (np.zeros((80, 60), np.float32), einsumx.SizeError, r"out= has shape \(80, 60\)"),
        (Stored(np.zeros((60, 81), np.float32)), einsumx.SizeError, r"out= has shape \(60, 81\)"),
        (np.zeros((60, 80), np.int32), einsumx.BackendError, "does not allow into an out= of int32"),
        (Stored(np.zeros((60, 80), np.float16)), einsumx.BackendError, "does not allow into an out= of float16"),
        ([[0.0] * 80] * 60, einsumx.BackendError, "out= is a builtins.list"),
        (np.broadcast_to(np.float32(0), (60, 80)), einsumx.BackendError, "read-only"),
    ],
    ids=["shape", "stored shape", "dtype", "stored dtype", "list", "read-only"],
)
def test_an_out_that_does_not_fit_is_refused_before_anything_is_read(out: Any, error: Any, says: str) -> None:
    a, b = (Stored(array) for array in operands())
    with pytest.raises(error, match=says):
        einsumx.einsum(EQUATION, a, b, out=out, memory_limit=LIMIT)
    assert a.read_bytes == b.read_bytes == 0


def test_files_that_are_open_for_reading_are_no_out(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    kept("hdf5", tmp_path, "out", np.zeros((60, 80), np.float32)).file.close()
    with h5py.File(tmp_path / "out", "r") as file, pytest.raises(einsumx.BackendError, match="open read-only"):
        einsumx.einsum(EQUATION, *operands(), out=file["array"], memory_limit=LIMIT)


@pytest.mark.parametrize("kind", ["array", "memory map", "stored", "hdf5", "tensor"])
def test_an_out_of_another_dtype_is_cast_as_casting_says(kind: str, tmp_path: Path) -> None:
    a, b = operands()
    out = kept(kind, tmp_path, "out", np.zeros((60, 80), np.float16))
    einsumx.einsum(EQUATION, a, b, out=out, casting="same_kind", memory_limit=LIMIT)
    exact = a.astype("float64") @ b
    assert np.abs(values(out) - exact).max() <= np.abs(exact).max() * 2**-10


@pytest.mark.parametrize(("order", "limit"), [("C", LIMIT), ("F", LIMIT), ("F", 10**6), ("A", 10**6), ("K", LIMIT)])
def test_results_have_the_memory_order_that_is_asked_for(order: Any, limit: int) -> None:
    a, b = (np.asfortranarray(array) for array in operands())
    found = einsumx.einsum("ij,jk->ki", a, b, order=order, memory_limit=limit)
    assert judge(found, expect("ij,jk->ki", a, b))
    assert order == "K" or (found.flags.f_contiguous if order in "FA" else found.flags.c_contiguous)


@pytest.mark.parametrize(("equation", "wanted"), [("ij->ji", "C"), ("ij,jk->ik", "C"), ("i,j->ij", "F")])
def test_what_is_stored_lies_in_c_order(equation: str, wanted: str) -> None:
    """A vector lies in both orders."""
    shapes = {"i": (3,), "j": (4,), "ij": (3, 4), "jk": (4, 5)}
    arrays = [np.asfortranarray(np.ones(shapes[term])) for term in equation.partition("->")[0].split(",")]
    for limit in (None, 10**6):
        found = einsumx.einsum(equation, *map(Stored, arrays), order="A", memory_limit=limit)
        assert found.flags.c_contiguous == (wanted == "C")
        assert found.flags.f_contiguous == (wanted == "F")


def test_a_dataset_without_a_shape_is_named(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "file", "w") as file:
        dataset = file.create_dataset("array", data=h5py.Empty("f8"))
        with pytest.raises(einsumx.BackendError, match=r"operand 1 .* is an empty dataset without a shape"):
            einsumx.einsum("i,->i", np.ones(2), dataset, memory_limit=LIMIT)


@pytest.mark.parametrize(
    ("equation", "shapes", "order"),
    [
        ("ij,jk->k", ((12, 10), (10, 8)), "F"),
        ("ij->i", ((12, 10),), "A"),
        ("ij->", ((12, 10),), "C"),
        ("aij,jb->ab", ((14, 6, 5), (5, 1)), "F"),
        ("ij,bj->bi", ((12, 10), (1, 10)), "C"),
    ],
)
def test_an_order_that_every_result_has_takes_no_memory(equation: str, shapes: Any, order: Any) -> None:
    arrays = [np.random.default_rng(3).standard_normal(shape) for shape in shapes]
    least = smallest(lambda limit: einsumx.einsum(equation, *arrays, memory_limit=limit))
    found = np.asarray(einsumx.einsum(equation, *arrays, order=order, memory_limit=least))
    assert judge(found, expect(equation, *arrays))
    assert found.flags.c_contiguous
    assert found.flags.f_contiguous


def test_a_view_of_an_operand_is_copied_into_an_order_within_the_limit() -> None:
    array = np.zeros((100, 2))[:, 0]
    with pytest.raises(einsumx.MemoryLimitError):
        einsumx.einsum("i->i", array, order="C", memory_limit=400)
    assert einsumx.einsum("i->i", array, order="C", memory_limit=800).flags.c_contiguous


SQUARE = np.random.default_rng(2).standard_normal((64, 64)).astype(np.float32)
ROOM = 30_000
"""A limit within which the result fits beside blocks, but not beside the whole contraction."""
NO_ROOM = 10_000
"""A limit within which it does not."""


def product(first: Any, out: Any, limit: int) -> None:
    """A product with the square, into what may be a part of the first operand."""
    einsumx.einsum(EQUATION, first, SQUARE, out=out, memory_limit=limit)
    assert judge(values(out), expect(EQUATION, SQUARE, SQUARE))


@pytest.mark.parametrize("kind", ["array", "memory map", "hdf5", "tensor", "stored"])
def test_an_out_that_is_an_operand_gets_the_right_result(kind: str, tmp_path: Path) -> None:
    both = kept(kind, tmp_path, "both", SQUARE)
    product(both, both, ROOM)


def test_an_out_that_overlaps_an_operand_where_there_is_no_room_for_the_result_is_an_error() -> None:
    both = SQUARE.copy()
    with pytest.raises(einsumx.MemoryLimitError, match="smallest"):
        product(both, both[::-1], NO_ROOM)
    assert (both == SQUARE).all()


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("equation", ["ij->ji", "ij->ij", "ii->i"])
@pytest.mark.parametrize("added", [False, True], ids=["einsum", "addeinsum"])
def test_a_view_for_an_out_that_overlaps_is_copied_within_the_limit(framework, equation, added) -> None:
    wrap = pytest.importorskip("torch").from_numpy if framework == "torch" else np.asarray
    measure = peaks.torch_peak if framework == "torch" else peaks.numpy_peak
    square = np.random.default_rng(0).standard_normal((600, 600)).astype("float32")
    memory = np.concatenate([square, square])
    out = memory[300:900] if equation != "ii->i" else memory[300:900, 1]
    expected = np.einsum(equation, square) + (out if added else 0)
    call = einsumx.einsum if not added else partial(einsumx.addeinsum, wrap(out))
    arguments = partial(call, equation, wrap(memory[:600]), out=wrap(out))
    least = smallest(lambda limit: arguments(memory_limit=limit))
    assert least >= out.nbytes
    _, taken = measure(partial(arguments, memory_limit=least))
    np.testing.assert_array_equal(out, expected)
    assert taken <= least + peaks.OBJECTS


def test_parts_of_one_file_that_is_mapped_twice_are_known_to_overlap_or_not(tmp_path: Path) -> None:
    kept("memory map", tmp_path, "file", np.concatenate([SQUARE, SQUARE])).flush()
    read = np.memmap(tmp_path / "file", np.float32, "r", shape=SQUARE.shape)
    write = np.memmap(tmp_path / "file", np.float32, "r+", shape=SQUARE.shape)
    other = np.memmap(tmp_path / "file", np.float32, "r+", offset=SQUARE.nbytes, shape=SQUARE.shape)
    product(read, other, NO_ROOM)
    with pytest.raises(einsumx.MemoryLimitError):
        product(read, write, NO_ROOM)
    product(read, write, ROOM)


def test_a_tensor_that_shares_memory_with_out_is_known_to_overlap() -> None:
    torch = pytest.importorskip("torch")
    both = SQUARE.copy()
    product(torch.from_numpy(both), both, ROOM)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("options", [{}, {"memory_limit": "1 MB"}], ids=["", "limit"])
def test_a_view_of_an_operand_is_written_whole_to_an_out_that_overlaps_with_other_strides(framework, options) -> None:
    wrap = pytest.importorskip("torch").from_numpy if framework == "torch" else np.asarray
    memory = np.arange(60.0)
    windows = np.lib.stride_tricks.as_strided(memory[12:], (4, 4), (16, 8))
    einsumx.einsum("ii->i", wrap(windows), out=wrap(memory[5:30:8]), **options)
    np.testing.assert_array_equal(memory[5:30:8], [12, 15, 18, 21])
    for start in range(0, 12, 3):
        memory = np.arange(60.0)
        square, target = memory[:36].reshape(6, 6)[1:5, :4], memory[start : start + 40].reshape(8, 5)[:4, :4]
        expected = square.T.copy()
        einsumx.einsum("ij->ji", wrap(square), out=wrap(target), **options)
        np.testing.assert_array_equal(target, expected)
