"""``resume=``: a run that goes on gives the result of one that was not cut off, whatever happened in between."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import peaks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import EQUATION, LIMIT, Stored, operands, stored

import einsumx
from einsumx import MemoryLimit
from einsumx.blocked import journal
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.host import files
from einsumx.storage.maps import mapped_at
from einsumx.streaming import fingerprints

SHAPE = (60, 80)


def mapped(path: Path, mode: Any = "w+", dtype: str = "float32") -> Any:
    return np.lib.format.open_memmap(path, mode, dtype, SHAPE if mode == "w+" else None)


def interrupted(out: Any, file: Path, given: Any = None, at: int = 4) -> None:
    """A run that is cut off, after some blocks."""

    def interrupt(done: int, total: int) -> None:
        if done == min(at, total):
            raise KeyboardInterrupt

    limit = MemoryLimit(LIMIT, progress=interrupt, resume=file)
    with pytest.raises(KeyboardInterrupt):
        einsumx.einsum(EQUATION, *(given or stored()), out=out, memory_limit=limit)
    assert len(file.read_text().splitlines()) > 1


def finished(out: Any, file: Path, given: Any = None) -> int:
    """The same run to its end; how many steps were left."""
    steps: list[int] = []
    limit = MemoryLimit(LIMIT, resume=file, progress=lambda done, total: steps.append(total))
    einsumx.einsum(EQUATION, *(given or stored()), out=out, memory_limit=limit)
    assert not file.exists()
    return steps[-1]


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands in files are so large that two samples of them are read, where the times of their files tell enough."""
    monkeypatch.setattr(fingerprints, "WHOLE", 0)
    monkeypatch.setattr(fingerprints, "SAMPLES", 2)


def is_right(out: Any) -> bool:
    return bool(judge(np.asarray(out[...], "float32"), expect(EQUATION, *operands())))


# -- another out= -------------------------------------------------------------------------------------------------


def open_hdf5(folder: Path, mode: str) -> Any:
    h5py = pytest.importorskip("h5py")
    file = h5py.File(folder / "out.h5", "r+" if mode == "same" else "w")
    return file["c"] if mode == "same" else file.create_dataset("c", SHAPE, "float32", chunks=(16, 16))


def open_zarr(folder: Path, mode: str) -> Any:
    zarr = pytest.importorskip("zarr")
    if mode == "same":
        return zarr.open(folder / "out.zarr", mode="r+")
    return zarr.open(folder / "out.zarr", mode="w", shape=SHAPE, chunks=(16, 16), dtype="float32")


def open_map(folder: Path, mode: str) -> Any:
    return mapped(folder / "out.npy", "r+" if mode == "same" else "w+")


KINDS = {"map": open_map, "HDF5": open_hdf5, "Zarr": open_zarr}


@pytest.mark.parametrize("kind", KINDS)
def test_an_out_that_was_made_anew_is_computed_anew(kind: str, tmp_path: Path) -> None:
    out = KINDS[kind](tmp_path, "new")
    interrupted(out, tmp_path / "journal")
    if kind == "HDF5":
        out.file.close()
    out = KINDS[kind](tmp_path, "new")
    with pytest.warns(RuntimeWarning, match=r"(\d+) of the \1 finished blocks .*replaced or changed since") as caught:
        finished(out, tmp_path / "journal")
    assert caught[0].filename == __file__
    assert is_right(out)


@pytest.mark.parametrize("kind", KINDS)
def test_an_out_that_is_as_it_was_keeps_its_blocks(kind: str, tmp_path: Path) -> None:
    out = KINDS[kind](tmp_path, "new")
    interrupted(out, tmp_path / "journal")
    if kind == "HDF5":
        out.file.close()
    out = KINDS[kind](tmp_path, "same")
    a, b = stored()
    left = finished(out, tmp_path / "journal", (a, b))
    read = a.read_bytes + b.read_bytes
    a, b = stored()
    assert left == finished(out, tmp_path / "journal", (a, b)) - 4
    assert read < a.read_bytes + b.read_bytes
    assert is_right(out)


def change_an_element(out: Any, folder: Path) -> Any:
    out[0, 0] += 1
    return out


def change_the_sign_of_a_zero(out: Any, folder: Path) -> Any:
    out[...] = 0
    return out


def another_dtype(out: Any, folder: Path) -> Any:
    return mapped(folder / "other.npy", dtype="float64")


def another_view(out: Any, folder: Path) -> Any:
    return out[::-1]


def a_truncated_file(out: Any, folder: Path) -> Any:
    path = Path(out.filename)
    size = path.stat().st_size
    del out
    os.truncate(path, size // 2)
    os.truncate(path, size)
    return mapped(path, "r+")


@pytest.mark.parametrize(
    ("attack", "says"),
    [
        (change_an_element, "1 of the 4 finished blocks"),
        (change_the_sign_of_a_zero, "4 of the 4 finished blocks"),
        (another_dtype, r"out= is .*other\.npy, and they were written to .*out\.npy"),
        (another_view, "finished blocks"),
        (a_truncated_file, "finished blocks"),
    ],
)
def test_only_blocks_that_are_not_as_they_were_written_are_computed_again(
    attack: Any, says: str, tmp_path: Path
) -> None:
    out = mapped(tmp_path / "out.npy")
    interrupted(out, tmp_path / "journal")
    out = attack(out, tmp_path)
    with pytest.warns(RuntimeWarning, match=says):
        finished(out, tmp_path / "journal")
    assert is_right(out)


def test_another_file_with_the_same_contents_is_gone_on_with(tmp_path: Path) -> None:
    out = mapped(tmp_path / "out.npy")
    interrupted(out, tmp_path / "journal")
    Path(out.filename).rename(tmp_path / "moved.npy")
    out = mapped(tmp_path / "moved.npy", "r+")
    finished(out, tmp_path / "journal")  # without a warning
    assert is_right(out)


@pytest.mark.parametrize("out", [None, np.zeros(SHAPE, np.float32)], ids=["none", "array"])
def test_only_an_out_that_outlives_the_process_is_gone_on_with(out: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="outlives the process"):
        einsumx.einsum(EQUATION, *operands(), out=out, memory_limit=MemoryLimit(LIMIT, resume=tmp_path / "journal"))
    assert not list(tmp_path.iterdir())


# -- other operands -----------------------------------------------------------------------------------------------


def test_an_array_in_memory_with_one_other_element_is_an_error(tmp_path: Path) -> None:
    a, b = operands()
    out = mapped(tmp_path / "out.npy")
    interrupted(out, tmp_path / "journal", (Stored(a), b))
    b[37, 41] += 1
    with pytest.raises(einsumx.JournalError, match=r"journal of other operands: operand 1 changed .* remove the file"):
        einsumx.einsum(EQUATION, Stored(a), b, out=out, memory_limit=MemoryLimit(LIMIT, resume=tmp_path / "journal"))
    b[37, 41] = operands()[1][37, 41]
    finished(out, tmp_path / "journal", (Stored(a), b))
    assert is_right(out)


def test_the_same_numbers_in_another_layout_are_the_same_operand(tmp_path: Path) -> None:
    a, b = operands()
    out = mapped(tmp_path / "out.npy")
    interrupted(out, tmp_path / "journal", (Stored(a), Stored(b)))
    finished(out, tmp_path / "journal", (Stored(a.T.copy().T), Stored(np.repeat(b, 2, axis=0)[::-2][::-1])))
    assert is_right(out)


def file_operands(folder: Path) -> tuple[Any, Any]:
    a, b = operands()
    for name, array in (("a", a), ("b", b)):
        if not (folder / f"{name}.npy").exists():
            np.save(folder / f"{name}.npy", array)
    return np.load(folder / "a.npy", mmap_mode="r"), np.load(folder / "b.npy", mmap_mode="r")


@pytest.mark.parametrize(("at", "whole"), [((69, 79), 0), ((31, 17), 0), ((0, 0), 1 << 20)], ids=str)
def test_a_file_with_one_other_element_is_an_error(
    at: Any, whole: int, sampled: None, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(fingerprints, "WHOLE", whole)
    out = mapped(tmp_path / "out.npy")
    interrupted(out, tmp_path / "journal", (stored()[0], file_operands(tmp_path)[1]))
    changed = np.load(tmp_path / "b.npy")
    changed[at] += 1
    np.save(tmp_path / "b.npy", changed)
    with pytest.raises(einsumx.JournalError, match="operand 1 changed"):
        finished(out, tmp_path / "journal", (stored()[0], file_operands(tmp_path)[1]))


def test_small_files_that_were_written_again_with_the_same_numbers_are_the_same_operands(tmp_path: Path) -> None:
    out = mapped(tmp_path / "out.npy")
    interrupted(out, tmp_path / "journal", (stored()[0], file_operands(tmp_path)[1]))
    (tmp_path / "b.npy").unlink()
    finished(out, tmp_path / "journal", (stored()[0], file_operands(tmp_path)[1]))
    assert is_right(out)


def test_operands_in_the_file_of_the_result_are_gone_on_with(sampled: None, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "all.h5", "w") as file:
        for name, array in zip("ab", operands()):
            file[name] = array
        out = file.create_dataset("c", SHAPE, "float32")
        interrupted(out, tmp_path / "journal", (file["a"], file["b"]), at=3)
    with h5py.File(tmp_path / "all.h5", "r+") as file:
        finished(file["c"], tmp_path / "journal", (file["a"], file["b"]))
        assert is_right(file["c"])


@pytest.mark.parametrize("number", [0, 1])
def test_a_changed_chunk_of_zarr_is_an_error(number: int, sampled: None, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    given = []
    for name, array in zip("ab", operands()):
        given.append(zarr.open(tmp_path / name, mode="w", shape=array.shape, chunks=(20, 20), dtype="float32"))
        given[-1][...] = array
    out = mapped(tmp_path / "out.npy")
    interrupted(out, tmp_path / "journal", given)
    given[number][30, 30] += 1
    with pytest.raises(einsumx.JournalError, match=f"operand {number} changed"):
        finished(out, tmp_path / "journal", given)


def test_samples_of_a_large_array_reach_from_its_first_element_to_its_last() -> None:
    box = (slice(0, 5), slice(0, 3000), slice(0, 7))
    seen = np.zeros((5, 3000, 7), int)
    for part in fingerprints._samples(box, 8):
        assert 0 < seen[part].nbytes <= fingerprints.PART
        seen[part] += 1
    assert seen[0, 0, 0]
    assert seen[-1, -1, -1]
    assert seen.any(axis=(1, 2)).all()


@pytest.mark.skipif(sys.maxsize < 10**12, reason="addresses of 32 bits do not count so many elements")
def test_an_expanded_operand_of_any_size_is_read_as_the_small_one_behind_it(tmp_path: Path) -> None:
    ones = np.broadcast_to(np.float32(1), (10**6, 10**6))
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", "float32", (10**6,))

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    limit = MemoryLimit("5MB", progress=interrupt, resume=tmp_path / "journal")
    with pytest.raises(KeyboardInterrupt):
        einsumx.einsum("ij->i", ones, out=out, memory_limit=limit)
    assert header((tmp_path / "journal").read_text())["operands"][0]["shape"] == [10**6, 10**6]


# -- operands whose files' times do not tell ----------------------------------------------------------------------


def hdf5_that_is_written(folder: Path, array: Any) -> Any:
    h5py = pytest.importorskip("h5py")
    file = h5py.File(folder / "b.h5", "w")
    file.create_dataset("b", data=array, chunks=(10, 80))
    file.flush()
    return lambda: h5py.File(folder / "b.h5", "r")["b"], file["b"]


class SourceOfVirtual:
    """The dataset behind a virtual one, which is written to while that is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.opened = folder, []

    def open(self) -> Any:
        self.opened.append(pytest.importorskip("h5py").File(self.folder / "b.h5", "r"))
        return self.opened[-1]["b"]

    def __setitem__(self, at: Any, value: float) -> None:
        self.opened[-1].close()
        with pytest.importorskip("h5py").File(self.folder / "source.h5", "r+") as file:
            file["b"][at] = value


def virtual_dataset(folder: Path, array: Any) -> Any:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "source.h5", "w") as file:
        file["b"] = array
        layout = h5py.VirtualLayout(array.shape, array.dtype)
        layout[...] = h5py.VirtualSource(file["b"])
    with h5py.File(folder / "b.h5", "w") as file:
        file.create_virtual_dataset("b", layout)
    source = SourceOfVirtual(folder)
    return source.open, source


def external_dataset(folder: Path, array: Any) -> Any:
    h5py = pytest.importorskip("h5py")
    outside = np.memmap(folder / "raw", array.dtype, "w+", shape=array.shape)
    outside[...] = array
    with h5py.File(folder / "b.h5", "w") as file:
        file.create_dataset("b", array.shape, array.dtype, external=[(str(folder / "raw"), 0, array.nbytes)])
    return lambda: h5py.File(folder / "b.h5", "r")["b"], outside


def copy_on_write_map(folder: Path, array: Any) -> Any:
    np.save(folder / "b.npy", array)
    private = np.asarray(np.load(folder / "b.npy", mmap_mode="c"))
    return lambda: private, private


def replaced_map(folder: Path, array: Any) -> Any:
    np.save(folder / "b.npy", array)
    read, written = np.load(folder / "b.npy", mmap_mode="r"), np.load(folder / "b.npy", mmap_mode="r+")
    (folder / "b.npy").unlink()
    np.save(folder / "b.npy", np.zeros_like(array))
    return lambda: read, written


def map_of_pages_that_wait_to_be_written(folder: Path, array: Any) -> Any:
    np.save(folder / "b.npy", array)
    written = np.load(folder / "b.npy", mmap_mode="r+")
    written[...] = array  # the next time that it is written to is not kept
    read = np.load(folder / "b.npy", mmap_mode="r")
    return lambda: read, written


def zarr_in_memory(folder: Path, array: Any) -> Any:
    zarr = pytest.importorskip("zarr")
    found = zarr.create_array({}, shape=array.shape, chunks=(10, 80), dtype=array.dtype)
    found[...] = array
    return lambda: found, found


def zarr_of_a_linked_folder(folder: Path, array: Any) -> Any:
    zarr = pytest.importorskip("zarr")
    found = zarr.create_array(folder / "b", shape=array.shape, chunks=(10, 80), dtype=array.dtype)
    found[...] = array
    (folder / "b" / "c").rename(folder / "chunks")
    (folder / "b" / "c").symlink_to(folder / "chunks", target_is_directory=True)
    return lambda: found, found


UNTIMED = [
    hdf5_that_is_written, virtual_dataset, external_dataset, copy_on_write_map, replaced_map,
    map_of_pages_that_wait_to_be_written, zarr_in_memory, zarr_of_a_linked_folder,
]  # fmt: skip


@pytest.mark.parametrize("kind", UNTIMED, ids=lambda kind: kind.__name__)
def test_a_change_that_the_times_of_files_do_not_tell_is_an_error(kind: Any, sampled: None, tmp_path: Path) -> None:
    a, b = operands()
    opened, written = kind(tmp_path, b.copy())
    out = mapped(tmp_path / "out.npy")
    if kind is replaced_map and mapped_at(written.__array_interface__["data"][0]) is None:
        with pytest.raises(ValueError, match="shares no memory with an operand"):  # it is a map of nobody knows what
            finished(out, tmp_path / "journal", (Stored(a), opened()))
        return
    interrupted(out, tmp_path / "journal", (Stored(a), opened()))
    written[31, 17] = 100
    with pytest.raises(einsumx.JournalError, match="operand 1 changed"):
        finished(out, tmp_path / "journal", (Stored(a), opened()))
    if kind is not map_of_pages_that_wait_to_be_written:  # which was not read whole
        written[31, 17] = b[31, 17]
        finished(out, tmp_path / "journal", (Stored(a), opened()))
        assert is_right(out)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="the system has no folder in memory")
def test_a_changed_map_of_a_file_that_is_in_memory_alone_is_an_error(sampled: None) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        test_a_change_that_the_times_of_files_do_not_tell_is_an_error(
            map_of_pages_that_wait_to_be_written, None, Path(folder)
        )


@pytest.mark.parametrize("alias", [os.link, os.symlink], ids=["hard link", "symbolic link"])
def test_a_map_of_the_file_of_the_result_by_another_name_is_gone_on_with(
    alias: Any, sampled: None, tmp_path: Path
) -> None:
    a, b = operands()
    both = np.memmap(tmp_path / "both", "float32", "w+", shape=(150, 80))
    both[80:] = b
    alias(tmp_path / "both", tmp_path / "link")
    read = np.memmap(tmp_path / "link", "float32", "r", offset=80 * 80 * 4, shape=(70, 80))
    interrupted(both[:60], tmp_path / "journal", (Stored(a), read))
    finished(both[:60], tmp_path / "journal", (Stored(a), read))
    assert is_right(both[:60])


def test_what_was_read_whole_is_known_again_when_its_file_is_opened_to_be_read(sampled: None, tmp_path: Path) -> None:
    a, b = operands()
    np.save(tmp_path / "b.npy", b)
    out, file = mapped(tmp_path / "out.npy"), tmp_path / "journal"
    interrupted(out, file, (Stored(a), np.load(tmp_path / "b.npy", mmap_mode="r+")))
    assert header(file.read_text())["operands"][1]["files"] == ""
    finished(out, file, (Stored(a), np.load(tmp_path / "b.npy", mmap_mode="r")))
    assert is_right(out)


# -- journals from strangers --------------------------------------------------------------------------------------


def header(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.partition("\n")[0])
    return found


def with_header(text: str, **changes: Any) -> str:
    return json.dumps(header(text) | changes) + "\n" + text.partition("\n")[2]


def lines_of(text: str, *lines: str) -> str:
    return text + "".join(f"{line}\n" for line in lines)


def old_format(text: str) -> str:
    """What a journal was before it had digests."""
    kept = {name: value for name, value in header(text).items() if name not in ("journal", "operands", "out")}
    return json.dumps(kept) + "\n" + "".join(f"{line.split()[0]}\n" for line in text.splitlines()[1:])


DIGEST = "0" * 32
DAMAGED, PLAN, OPERANDS = "is damaged", "of another plan", "of other operands"
VERSION, NONE = "of another version", "not the journal of a contraction"
OTHERS = {
    "an empty line": (DAMAGED, lambda text: lines_of(text, "", "")),
    "zero bytes": (DAMAGED, lambda text: lines_of(text, "\0" * 40)),
    "no digest": (DAMAGED, lambda text: lines_of(text, "5")),
    "long digest": (DAMAGED, lambda text: lines_of(text, f"5 {DIGEST}0")),
    "upper case": (DAMAGED, lambda text: lines_of(text, f"5 {'A' * 32}")),
    "beyond the last": (DAMAGED, lambda text: lines_of(text, f"99 {DIGEST}")),
    "5,000 digits": (DAMAGED, lambda text: lines_of(text, f"{'9' * 5000} {DIGEST}")),
    "leading zero": (DAMAGED, lambda text: lines_of(text, f"05 {DIGEST}")),
    "carriage returns": (DAMAGED, lambda text: text.replace("\n", "\r\n")),
    "a block twice": (DAMAGED, lambda text: lines_of(text, text.splitlines()[-1])),
    "100,000 lines": (DAMAGED, lambda text: lines_of(text, *[f"5 {DIGEST}"] * 10**5)),
    "cut off in the middle": (NONE, lambda text: text[: text.index("\n") - 10] + "\n"),
    "nothing of JSON": (NONE, lambda text: "some notes\n"),
    "a list": (NONE, lambda text: "[]\n"),
    "empty object": (NONE, lambda text: "{}\n"),
    "deep inside": (NONE, lambda text: '{"journal": 2, "equation": ' + "[" * 100_000 + "]" * 100_000 + "}\n"),
    "a huge number": (NONE, lambda text: '{"journal": ' + "9" * 10_000 + "}\n"),
    "no end of line": (NONE, lambda text: "x" * (2 << 20)),
    "bytes": (NONE, lambda text: "\udcff\udcfe\udc80\n"),
    "version of the future": (VERSION, lambda text: with_header(text, journal=3)),
    "version as float": (VERSION, lambda text: with_header(text, journal=2.0)),
    "the format before": (VERSION, old_format),
    "another limit": (f"{PLAN}: its memory_limit is 7, but", lambda text: with_header(text, memory_limit=7)),
    "limit not a number": (PLAN, lambda text: with_header(text, memory_limit=float("nan"))),
    "other equation": (f"{PLAN}: its equation", lambda text: with_header(text, equation="kj,ji->ki")),
    "other shapes": (PLAN, lambda text: with_header(text, shapes=[[60, 70], [70, 81]])),
    "other dtype": (PLAN, lambda text: with_header(text, dtype="float64")),
    "blocks true": (PLAN, lambda text: with_header(text, blocks=[True] * 3)),
    "operands null": (NONE, lambda text: with_header(text, operands=None)),
    "an operand less": (OPERANDS, lambda text: with_header(text, operands=header(text)["operands"][:1])),
    "an operand more": (OPERANDS, lambda text: with_header(text, operands=header(text)["operands"] * 2)),
    "operands turned round": (OPERANDS, lambda text: with_header(text, operands=header(text)["operands"][::-1])),
}


@pytest.fixture(scope="module")
def valid(tmp_path_factory: Any) -> str:
    folder = tmp_path_factory.mktemp("valid")
    interrupted(mapped(folder / "out.npy"), folder / "journal")
    return (folder / "journal").read_text()


@pytest.mark.parametrize("damage", OTHERS)
def test_a_journal_that_is_damaged_or_of_something_else_is_an_error_and_stays(
    damage: str, valid: str, tmp_path: Path
) -> None:
    out, file = mapped(tmp_path / "out.npy"), tmp_path / "journal"
    says, change = OTHERS[damage]
    content = change(valid).encode("utf-8", "surrogateescape")
    file.write_bytes(content)
    with pytest.raises(einsumx.JournalError, match=f"resume=.*{says}") as caught:
        finished(out, file)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 1000
    assert file.read_bytes() == content
    assert not out.any()


@settings(max_examples=15)
@given(edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=4)), min_size=1, max_size=3))
def test_damage_at_random_is_an_error_or_changes_no_result(edits: Any, valid: str) -> None:
    content = valid.encode()
    for place, removed, added in edits:
        at = int(place * len(content))
        content = content[:at] + added + content[at + removed :]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        out, file = np.zeros(SHAPE, "float32"), Path(folder, "journal")
        file.write_bytes(content)
        stored_out = Stored(out)
        try:
            finished(stored_out, file)
        except einsumx.JournalError:
            assert file.read_bytes() == content
            assert not out.any()
        else:
            assert is_right(out)


LEFT = {
    "empty": lambda text: "",
    "a byte": lambda text: text[:1],
    "no line's end": lambda text: text[: text.index("\n")],
    "no blocks": lambda text: text[: text.index("\n") + 1],
    "last bytes are missing": lambda text: text[:-20],
    "begun": lambda text: text + "1",
    "wrong digest": lambda text: text.replace(text.splitlines()[-1].split()[1], DIGEST),
    "blocks that were never done": lambda text: lines_of(text, f"4 {DIGEST}", f"5 {DIGEST}"),
    "out is a list": lambda text: with_header(text, out=["no", "name"]),
}


@pytest.mark.parametrize("content", LEFT.values(), ids=LEFT)
def test_what_the_end_of_a_process_leaves_of_a_journal_is_gone_on_with(
    content: Any, valid: str, tmp_path: Path
) -> None:
    out, file = mapped(tmp_path / "out.npy"), tmp_path / "journal"
    interrupted(out, file)
    text = file.read_text()
    assert header(text)["operands"] == header(valid)["operands"]
    file.write_text(content(text))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        finished(out, file)
    assert is_right(out)


def test_an_error_does_not_echo_a_long_text_of_a_stranger(valid: str, tmp_path: Path) -> None:
    (tmp_path / "journal").write_text(with_header(valid, equation="\x1b[31m" + "a" * 100_000))
    with pytest.raises(einsumx.JournalError, match="its equation is") as caught:
        finished(mapped(tmp_path / "out.npy"), tmp_path / "journal")
    assert len(str(caught.value)) < 1000
    assert "\x1b" not in str(caught.value)


# -- files that are no journal ------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("kind", ["folder", "device", "link to a pipe", "socket"])
def test_what_is_no_regular_file_is_an_error_at_once(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    import socket

    file = tmp_path / "journal"
    match kind:
        case "folder":
            file.mkdir()
        case "device":
            file = Path("/dev/zero")
        case "link to a pipe":
            os.mkfifo(tmp_path / "pipe")
            file.symlink_to(tmp_path / "pipe")
        case "socket":
            monkeypatch.chdir(tmp_path)  # as a socket's name must be short
            with socket.socket(socket.AF_UNIX) as found:
                found.bind("journal")
    with pytest.raises(einsumx.JournalError, match="not a regular file"):
        finished(mapped(tmp_path / "out.npy"), file)


def test_a_journal_where_nothing_can_be_written_is_an_error_before_any_work(tmp_path: Path) -> None:
    out = mapped(tmp_path / "out.npy")
    for file in (tmp_path / "nowhere" / "journal", tmp_path / "out.npy" / "journal", Path("/proc/journal")):
        with pytest.raises(OSError, match=r"journal of resume= cannot be read and written: .*journal"):
            einsumx.einsum(EQUATION, *stored(), out=out, memory_limit=MemoryLimit(LIMIT, resume=file))
    assert not out.any()


def test_a_disk_without_room_for_the_journal_is_an_error_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: Any
) -> None:
    real, calls = os.write, [0]

    def full(descriptor: int, text: bytes) -> int:
        calls[0] += 1
        if calls[0] == 4:
            return real(descriptor, text[:10])
        if calls[0] > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, text)

    out = mapped(tmp_path / "out.npy")
    monkeypatch.setattr(journal.os, "write", full)
    with pytest.raises(OSError, match=r"journal of resume= cannot be .*No space left") as caught:
        finished(out, tmp_path / "journal")
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert len((tmp_path / "journal").read_text().splitlines()) > 2
    finished(out, tmp_path / "journal")
    assert is_right(out)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_block_is_in_the_journal_before_progress_is_told_of_it(tmp_path: Path, workers: int) -> None:
    file, out, recorded = tmp_path / "journal", mapped(tmp_path / "out.npy"), []

    def told(done: int, total: int) -> None:
        recorded.append((len(file.read_text().splitlines()) - 1, done, total))

    with ThreadPoolExecutor(max(workers, 1)) as pool:
        executor = pool if workers else None
        limit = MemoryLimit(LIMIT, progress=told, resume=file, executor=executor)
        einsumx.einsum(EQUATION, *stored(), out=out, memory_limit=limit)
    total = recorded[-1][-1]
    assert total > 4
    assert recorded == [(done, done, total) for done in range(total + 1)]
    assert is_right(out)


def test_the_last_of_a_blocks_terms_is_told_when_the_block_is_in_the_journal(tmp_path: Path) -> None:
    file, out, recorded = tmp_path / "journal", Stored(np.zeros((2, 3))), []

    def told(done: int, total: int) -> None:
        recorded.append((len(file.read_text().splitlines()) - 1, done))

    a, b = Stored(np.ones((2, 4000))), Stored(np.ones((4000, 3)))
    einsumx.einsum("ij,jk->ik", a, b, out=out, memory_limit=MemoryLimit("40 kB", progress=told, resume=file))
    *before, last = recorded
    assert len(before) > 2
    assert {blocks for blocks, _ in before} == {0}
    assert last == (1, len(before))
    assert (out.array == 4000).all()


# -- two at once --------------------------------------------------------------------------------------------------

HELD = """
import sys
import einsumx
from stored import EQUATION, LIMIT, Stored, operands, stored
import numpy as np
out = np.lib.format.open_memmap(sys.argv[1] + "/out.npy", "r+")
def told(done, total):
    if done == 3:
        print(total, flush=True)
        sys.stdin.read()
a, b = map(Stored, operands())
limit = einsumx.MemoryLimit(LIMIT, resume=sys.argv[1] + "/journal", progress=told)
einsumx.einsum(EQUATION, a, b, out=out, memory_limit=limit)
"""


@pytest.mark.long
def test_a_journal_that_another_process_has_is_refused_until_that_one_is_killed_and_then_gone_on_with(
    tmp_path: Path,
) -> None:
    out, file = mapped(tmp_path / "out.npy"), tmp_path / "journal"
    with subprocess.Popen(
        [sys.executable, "-c", HELD, str(tmp_path)], cwd=Path(__file__).parent, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(Path(einsumx.__file__).parents[1])},
    ) as other:  # fmt: skip
        assert other.stdout is not None
        said = other.stdout.readline()
        before = file.read_text()
        with pytest.raises(einsumx.JournalError, match="in use by another run"):
            finished(out, file)
        assert file.read_text() == before
        other.kill()
    assert finished(out, file) == int(said) - 3
    assert is_right(out)


def test_a_journal_that_another_thread_has_is_refused(tmp_path: Path) -> None:
    found: list[BaseException] = []

    def other() -> None:
        try:
            finished(mapped(tmp_path / "other.npy"), tmp_path / "journal")
        except einsumx.JournalError as error:
            found.append(error)

    def told(done: int, total: int) -> None:
        if done == 3:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            (tmp_path / "journal").read_text()  # which must not give the lock up
            other()

    out = mapped(tmp_path / "out.npy")
    einsumx.einsum(
        EQUATION, *stored(), out=out, memory_limit=MemoryLimit(LIMIT, progress=told, resume=tmp_path / "journal")
    )
    assert ["in use by another run" in str(error) for error in found] == [True, True]
    assert is_right(out)


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no such locks")
def test_a_lock_ends_with_its_file_while_a_child_has_not_closed_its_copy_yet(tmp_path: Path) -> None:
    first, second = (files.keep(files.descriptor_of(tmp_path / "journal", os.O_RDWR | os.O_CREAT)) for _ in range(2))
    assert files.locked(first)
    copy = os.dup(first)  # as a child has it when it begins
    try:
        assert not files.locked(second)
        files.close(first)
        assert files.locked(second)
    finally:
        os.close(copy)
        files.close(second)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork")  # of other libraries' threads; the child only waits
def test_a_child_that_outlives_a_run_does_not_hold_its_journal(tmp_path: Path) -> None:
    children = []

    def told(done: int, total: int) -> None:
        if done == 4:
            child = os.fork()
            if not child:
                signal.pause()
                os._exit(0)
            children.append(child)
            raise KeyboardInterrupt

    out = mapped(tmp_path / "out.npy")
    limit = MemoryLimit(LIMIT, progress=told, resume=tmp_path / "journal")
    try:
        with pytest.raises(KeyboardInterrupt):
            einsumx.einsum(EQUATION, *stored(), out=out, memory_limit=limit)
        finished(out, tmp_path / "journal")
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert is_right(out)


# -- the end ------------------------------------------------------------------------------------------------------


def test_the_journal_stays_where_the_result_could_not_be_flushed(tmp_path: Path) -> None:
    class Failing(Stored):
        blocks, fails = 10**6, True

        def flush(self) -> None:
            written = len((tmp_path / "journal").read_text().splitlines()) - 1
            if self.fails and written >= self.blocks:
                raise OSError("the disk is gone")

    out = Failing(np.zeros(SHAPE, "float32"))
    out.blocks = einsumx.plan(EQUATION, *stored(), memory_limit=LIMIT, out=out).blocks
    with pytest.raises(OSError, match="the disk is gone"):
        finished(out, tmp_path / "journal")
    assert (tmp_path / "journal").exists()
    out.fails = False
    finished(out, tmp_path / "journal")
    assert is_right(out.array)


def test_reading_blocks_again_stays_within_the_limit(tmp_path: Path) -> None:
    a, b = np.ones((400, 300), "float32"), np.ones((300, 500), "float32")
    out, limit = Stored(np.zeros((400, 500), "float32")), 200_000

    def call() -> None:
        einsumx.einsum(
            EQUATION, Stored(a), Stored(b), out=out, memory_limit=MemoryLimit(limit, resume=tmp_path / "journal")
        )

    call()
    _, taken = peaks.numpy_peak(call)
    assert taken <= limit + peaks.OBJECTS
    assert (out.array == 300).all()


def test_a_journal_is_locked_where_the_system_locks_bytes_of_files(tmp_path: Path, monkeypatch: Any) -> None:
    """With a fake of Windows' locks, which hold between descriptors of one file, and end when one is closed."""
    held: dict[tuple[int, int], int] = {}

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (3, 1)
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        place = os.fstat(descriptor).st_ino, position
        assert position >= os.fstat(descriptor).st_size  # nobody else could read it
        if held.get(place, descriptor) in opened:
            raise PermissionError(errno.EACCES, "Permission denied")
        held[place] = descriptor
        opened.add(descriptor)

    def close(descriptor: int) -> None:
        opened.discard(descriptor)
        real(descriptor)

    real, opened = os.close, set[int]()
    monkeypatch.setattr(os, "close", close)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=3, locking=locking))
    test_a_journal_that_another_thread_has_is_refused(tmp_path)
    assert held
    assert not opened


def test_a_journal_is_opened_where_the_status_of_an_open_file_has_another_device(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """As with some Pythons on Windows; a fake of the status."""
    real, asked = os.fstat, []

    def fstat(descriptor: int) -> os.stat_result:
        asked.append(descriptor)
        assert len(asked) < 10_000, "it is opened again and again"
        status = real(descriptor)
        return os.stat_result([*status[:2], status.st_dev + 1, *status[3:]])

    out = mapped(tmp_path / "out.npy")
    monkeypatch.setattr(os, "fstat", fstat)
    finished(out, tmp_path / "journal")
    assert is_right(out)


def test_a_journal_that_is_another_file_each_time_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(journal.Journal, "_is_there", lambda self, descriptor: False)
    with pytest.raises(OSError, match=r"journal of resume= cannot be read and written: Stale"):
        finished(mapped(tmp_path / "out.npy"), tmp_path / "journal")
