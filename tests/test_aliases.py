"""Operands that are stored where the result goes, reached by another path, give the right result or an error."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import einsumx
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.storage import maps

SQUARE = np.random.default_rng(2).standard_normal((64, 64)).astype(np.float32)
OTHER = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)

Pair = tuple[Any, Any]
"""What is read, and what is written to; both have the elements of ``SQUARE``."""


def file_of(folder: Path) -> Path:
    (folder / "file").write_bytes(SQUARE.tobytes())
    return folder / "file"


def map_of(path: Path, mode: Any) -> Any:
    return np.memmap(path, np.float32, mode, shape=SQUARE.shape)


def hard_link(folder: Path) -> Pair:
    os.link(file_of(folder), folder / "link")
    return map_of(folder / "link", "r"), map_of(folder / "file", "r+")


def one_file_that_was_renamed(folder: Path) -> Pair:
    path = file_of(folder)
    read = map_of(path, "r")
    path.rename(folder / "renamed")
    (folder / "file").write_bytes(SQUARE.tobytes())
    return read, map_of(folder / "renamed", "r+")


def buffers_of_one_file(folder: Path) -> Pair:
    with file_of(folder).open("r+b") as file:
        maps = [mmap.mmap(file.fileno(), 0) for _ in range(2)]
    read, written = (np.frombuffer(each, np.float32).reshape(SQUARE.shape) for each in maps)
    return read, written


def buffer_of_a_map_by_name(folder: Path) -> Pair:
    path = file_of(folder)
    with path.open("r+b") as file:
        buffer = mmap.mmap(file.fileno(), 0)
    return np.frombuffer(buffer, np.float32).reshape(SQUARE.shape), map_of(path, "r+")


def one_file_whose_first_name_is_gone(folder: Path) -> Pair:
    read, written = one_file_that_was_renamed(folder)
    (folder / "file").unlink()
    return read, written


def hdf5_file_that_was_renamed(folder: Path) -> Pair:
    file = hdf5(folder)
    file.flush()
    (folder / "out.h5").rename(folder / "renamed.h5")
    written = np.memmap(folder / "renamed.h5", "f4", "r+", file["out"].id.get_offset(), SQUARE.shape)
    return file["out"], written


def tensor_of_a_map(folder: Path) -> Pair:
    torch = pytest.importorskip("torch")
    path = file_of(folder)
    return torch.from_numpy(map_of(path, "r+")).numpy(), map_of(path, "r+")


kept = []


def shared_memory(folder: Path) -> Pair:
    first = SharedMemory(create=True, size=SQUARE.nbytes)
    second = SharedMemory(first.name)
    first.unlink()
    kept.extend([first, second])
    read, written = (np.ndarray(SQUARE.shape, np.float32, each.buf) for each in (first, second))
    written[...] = SQUARE
    return read, written


def hdf5(folder: Path) -> Any:
    h5py = pytest.importorskip("h5py")
    file = h5py.File(folder / "out.h5", "w")
    file["out"] = SQUARE
    return file


def external_link(folder: Path) -> Pair:
    h5py, file = pytest.importorskip("h5py"), hdf5(folder)
    other = h5py.File(folder / "other.h5", "w")
    other["link"] = h5py.ExternalLink("out.h5", "/out")
    return other["link"], file["out"]


def linked_hdf5_file(folder: Path) -> Pair:
    file = hdf5(folder)
    os.link(folder / "out.h5", folder / "link.h5")
    return pytest.importorskip("h5py").File(folder / "link.h5", "r+")["out"], file["out"]


def view_of_a_dataset(folder: Path) -> Pair:
    file = hdf5(folder)
    return file["out"].astype("f4"), file["out"]


def virtual(folder: Path, name: str, path: str, dataset: str) -> Any:
    h5py = pytest.importorskip("h5py")
    layout = h5py.VirtualLayout(SQUARE.shape, np.float32)
    layout[...] = h5py.VirtualSource(path, dataset, SQUARE.shape, np.float32)
    file = h5py.File(folder / name, "a")
    file.create_virtual_dataset("virtual", layout)
    return file["virtual"]


def virtual_dataset_of_its_file(folder: Path) -> Pair:
    file = hdf5(folder)
    return virtual(folder, "out.h5", ".", "out"), file["out"]


def virtual_dataset_by_a_linked_file(folder: Path) -> Pair:
    file = hdf5(folder)
    (folder / "link.h5").symlink_to(folder / "out.h5")
    return virtual(folder, "other.h5", str(folder / "link.h5"), "out"), file["out"]


def virtual_dataset_of_a_virtual_one(folder: Path) -> Pair:
    file = hdf5(folder)
    virtual(folder, "inner.h5", "out.h5", "out").file.close()
    return virtual(folder, "other.h5", "inner.h5", "virtual"), file["out"]


def result_in_a_virtual_dataset(folder: Path) -> Pair:
    file = hdf5(folder)
    return file["out"], virtual(folder, "other.h5", "out.h5", "out")


def dataset_with_its_values_in_a_map(folder: Path) -> Pair:
    h5py = pytest.importorskip("h5py")
    path = file_of(folder)
    file = h5py.File(folder / "a.h5", "w")
    read = file.create_dataset("out", SQUARE.shape, "f4", external=[(str(path), 0, SQUARE.nbytes)])
    return read, map_of(path, "r+")


def map_of_a_dataset(folder: Path) -> Pair:
    file = hdf5(folder)
    file.flush()
    read = np.memmap(folder / "out.h5", "f4", "r", file["out"].id.get_offset(), SQUARE.shape)
    return read, file["out"]


def zarr_array(folder: Path, store: Any) -> Any:
    zarr = pytest.importorskip("zarr")
    out = zarr.create_array(store, name="out", shape=SQUARE.shape, chunks=(16, 64), dtype="float32")
    out[...] = SQUARE
    return out


def zarr_by_a_linked_folder(folder: Path) -> Pair:
    out = zarr_array(folder, folder / "z")
    (folder / "link").symlink_to(folder / "z", target_is_directory=True)
    return pytest.importorskip("zarr").open_array(folder / "link" / "out"), out


def zarr_in_memory_opened_twice(folder: Path) -> Pair:
    store: dict[str, Any] = {}
    out = zarr_array(folder, store)
    out.attrs["changed"] = 1
    return pytest.importorskip("zarr").open(store)["out"], out


def zarr_by_another_store(folder: Path) -> Pair:
    pytest.importorskip("fsspec")
    zarr = pytest.importorskip("zarr")
    out = zarr_array(folder, folder / "z")
    store = zarr.storage.FsspecStore.from_url(f"file://{folder / 'z'}")
    return zarr.open_array(store, path="out", mode="r"), out


def zarr_by_a_store_around_another(folder: Path) -> Pair:
    zarr = pytest.importorskip("zarr")
    out = zarr_array(folder, folder / "z")
    return zarr.open_array(zarr.storage.LoggingStore(zarr.storage.LocalStore(folder / "z")), path="out"), out


ALIASES: list[Callable[[Path], Pair]] = [
    hard_link, one_file_that_was_renamed, one_file_whose_first_name_is_gone,
    buffers_of_one_file, buffer_of_a_map_by_name, hdf5_file_that_was_renamed, tensor_of_a_map, shared_memory,
    external_link, linked_hdf5_file, view_of_a_dataset, virtual_dataset_of_its_file, virtual_dataset_by_a_linked_file,
    virtual_dataset_of_a_virtual_one, result_in_a_virtual_dataset, dataset_with_its_values_in_a_map, map_of_a_dataset,
    zarr_by_a_linked_folder, zarr_in_memory_opened_twice, zarr_by_another_store, zarr_by_a_store_around_another,
]  # fmt: skip


@pytest.fixture(params=["a system that tells", "a system that does not tell"])
def system(request: Any, monkeypatch: Any) -> str:
    """Whether the system tells what is mapped at an address; a fake of those that do not, such as macOS and Windows."""
    if request.param == "a system that does not tell":
        monkeypatch.setattr(maps, "mapped_at", lambda address: None)
    return str(request.param)


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: alias.__name__)
@pytest.mark.parametrize("limit", [30_000, 10_000], ids=["room for the result", "no room"])
def test_an_operand_that_is_stored_where_the_result_goes(alias: Any, limit: int, tmp_path: Path) -> None:
    read, written = alias(tmp_path)
    try:
        einsumx.einsum("ij,jk->ik", read, OTHER, out=written, memory_limit=limit)
    except einsumx.MemoryLimitError:
        assert limit == 10_000
        assert (np.asarray(written[...]) == SQUARE).all()
    else:
        assert limit == 30_000
        assert not judge(np.asarray(written[...]), expect("ij,jk->ik", SQUARE, OTHER)).wrong


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("limit", [None, 30_000], ids=["no limit", "limit"])
@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: alias.__name__)
def test_an_operand_whose_transpose_is_written_over_it(alias: Any, limit: int | None, tmp_path: Path) -> None:
    read, written = alias(tmp_path)
    try:
        einsumx.einsum("ij->ji", read, out=written, memory_limit=limit)
    except einsumx.BackendError:
        assert limit is None  # where out= has to be an array in memory
        assert not isinstance(written, np.ndarray)
    else:
        assert (np.asarray(written[...]) == SQUARE.T).all()


def datasets_of_one_file(folder: Path) -> Pair:
    file = hdf5(folder)
    file["read"] = SQUARE
    return file["read"], file["out"]


def arrays_of_one_zarr_group(folder: Path) -> Pair:
    out = zarr_array(folder, folder / "z")
    read = out.store_path.store
    zarr = pytest.importorskip("zarr")
    found = zarr.create_array(read, name="read", shape=SQUARE.shape, chunks=(16, 64), dtype="float32")
    found[...] = SQUARE
    return found, out


def maps_of_two_files(folder: Path) -> Pair:
    (folder / "other").write_bytes(SQUARE.tobytes())
    return map_of(folder / "other", "r"), map_of(file_of(folder), "r+")


def parts_of_a_map(folder: Path) -> Pair:
    (folder / "file").write_bytes(2 * SQUARE.tobytes())
    wholes = [np.memmap(folder / "file", np.float32, "r+", shape=(2, *SQUARE.shape)) for _ in range(2)]
    return wholes[0][0], wholes[1][1]


def array_beside_a_map(folder: Path) -> Pair:
    return SQUARE.copy(), map_of(file_of(folder), "r+")


def buffer_of_bytes(folder: Path) -> Pair:
    return np.frombuffer(SQUARE.tobytes(), "f4").reshape(SQUARE.shape), map_of(file_of(folder), "r+")


def other_parts_of_shared_memory(folder: Path) -> Pair:
    first = SharedMemory(create=True, size=2 * SQUARE.nbytes)
    second = SharedMemory(first.name)
    first.unlink()
    kept.extend([first, second])
    read = np.ndarray(SQUARE.shape, np.float32, first.buf)
    read[...] = SQUARE
    return read, np.ndarray(SQUARE.shape, np.float32, second.buf, SQUARE.nbytes)


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(
    "pair",
    [
        datasets_of_one_file, arrays_of_one_zarr_group, maps_of_two_files, parts_of_a_map, array_beside_a_map,
        buffer_of_bytes, other_parts_of_shared_memory,
    ],
    ids=lambda pair: pair.__name__,
)  # fmt: skip
def test_what_is_stored_beside_the_result_needs_no_room(pair: Any, tmp_path: Path) -> None:
    read, written = pair(tmp_path)
    if pair is other_parts_of_shared_memory and maps.mapped_at(read.__array_interface__["data"][0]) is None:
        with pytest.raises(einsumx.MemoryLimitError):  # two maps count as one where nobody tells of what they are
            einsumx.einsum("ij,jk->ik", read, OTHER, out=written, memory_limit=10_000)
        return
    einsumx.einsum("ij,jk->ik", read, OTHER, out=written, memory_limit=10_000)
    assert not judge(np.asarray(written[...]), expect("ij,jk->ik", SQUARE, OTHER)).wrong
