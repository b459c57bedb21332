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
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import peaks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import EQUATION, LIMIT, Stored, operands

import einsumx
from einsumx.conformance.oracle import expect, judge
from einsumx.runtime import files
from einsumx.streaming import fingerprints, journal

SHAPE = (60, 80)


def stored() -> tuple[Stored, Stored]:
    a, b = operands()
    return Stored(a), Stored(b)


def mapped(path: Path, mode: Any = "w+", dtype: str = "float32") -> Any:
    return np.lib.format.open_memmap(path, mode, dtype, SHAPE if mode == "w+" else None)


def interrupted(out: Any, file: Path, given: Any = None, at: int = 5) -> None:
    """A run that is cut off, after some blocks."""

    def interrupt(done: int, total: int) -> None:
        if done == min(at, total):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        einsumx.einsum(
            EQUATION, *(given or stored()), out=out, memory_limit=LIMIT, resume=file, progress=interrupt
        )  # fmt: skip
    assert len(file.read_text().splitlines()) > 1


def finished(out: Any, file: Path, given: Any = None) -> None:
    """The same run to its end."""
    einsumx.einsum(EQUATION, *(given or stored()), out=out, memory_limit=LIMIT, resume=file)
    assert not file.exists()


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
    with pytest.warns(RuntimeWarning, match=r"(\d+) of the \1 finished blocks .*made anew or changed since") as caught:
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
    told: list[tuple[int, int]] = []
    given = {"memory_limit": LIMIT, "resume": tmp_path / "journal", "progress": lambda *step: told.append(step)}
    einsumx.einsum(EQUATION, *stored(), out=out, **given)
    left = told[-1][1]
    einsumx.einsum(EQUATION, *stored(), out=out, **given)
    assert left == told[-1][1] - 4
    assert is_right(out)


def change_an_element(out: Any, folder: Path) -> Any:
    out[0, 0] += 1
    return out


def change_the_sign_of_a_zero(out: Any, folder: Path) -> Any:
    out[...] = 0
    return out


def another_file(out: Any, folder: Path) -> Any:
    return mapped(folder / "other.npy")


def another_dtype(out: Any, folder: Path) -> Any:
    return mapped(folder / "other.npy", dtype="float64")


def another_file_with_numbers(out: Any, folder: Path) -> Any:
    found = mapped(folder / "other.npy")
    found[...] = 7
    return found


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
    "attack",
    [
        change_an_element,
        change_the_sign_of_a_zero,
        another_file,
        another_dtype,
        another_file_with_numbers,
        another_view,
        a_truncated_file,
    ],
    ids=lambda attack: attack.__name__,
)
def test_blocks_that_are_not_as_they_were_written_are_computed_again(attack: Any, tmp_path: Path) -> None:
    out = mapped(tmp_path / "out.npy")
    interrupted(out, tmp_path / "journal")
    out = attack(out, tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        finished(out, tmp_path / "journal")
    assert is_right(out)
    assert [str(found.message) for found in caught if "finished blocks" in str(found.message)]


def test_only_blocks_that_changed_are_computed_again(tmp_path: Path) -> None:
    out = mapped(tmp_path / "out.npy")
    interrupted(out, tmp_path / "journal")
    out[0, 0] += 1
    with pytest.warns(RuntimeWarning, match="1 of the 4 finished blocks"):
        finished(out, tmp_path / "journal")
    assert is_right(out)


def test_another_file_with_the_same_contents_is_gone_on_with(tmp_path: Path) -> None:
    out = mapped(tmp_path / "out.npy")
    interrupted(out, tmp_path / "journal")
    Path(out.filename).rename(tmp_path / "moved.npy")
    out = mapped(tmp_path / "moved.npy", "r+")
    finished(out, tmp_path / "journal")  # without a warning
    assert is_right(out)


def test_the_warning_names_both_files(tmp_path: Path) -> None:
    interrupted(mapped(tmp_path / "first.npy"), tmp_path / "journal")
    with pytest.warns(RuntimeWarning, match=r"out= is .*second\.npy, and they were written to .*first\.npy"):
        finished(mapped(tmp_path / "second.npy"), tmp_path / "journal")


# -- other operands -----------------------------------------------------------------------------------------------


def test_an_array_in_memory_with_one_other_element_is_an_error(tmp_path: Path) -> None:
    a, b = operands()
    out = mapped(tmp_path / "out.npy")
    interrupted(out, tmp_path / "journal", (Stored(a), b))
    b[37, 41] += 1
    with pytest.raises(einsumx.JournalError, match=r"journal of other operands: operand 1 changed .* remove the file"):
        einsumx.einsum(EQUATION, Stored(a), b, out=out, memory_limit=LIMIT, resume=tmp_path / "journal")
    b[37, 41] = operands()[1][37, 41]
    finished(out, tmp_path / "journal", (Stored(a), b))
    assert is_right(out)


@pytest.mark.parametrize(
    "view",
    [lambda x: x.T.copy().T, lambda x: np.repeat(x, 2, axis=0)[::2], lambda x: x[::-1].copy()[::-1]],
    ids=["transposed", "stepped", "reversed"],
)
def test_the_same_numbers_in_another_layout_are_the_same_operand(view: Any, tmp_path: Path) -> None:
    a, b = operands()
    out = mapped(tmp_path / "out.npy")
    interrupted(out, tmp_path / "journal", (Stored(a), Stored(b)))
    finished(out, tmp_path / "journal", (Stored(view(a)), Stored(view(b))))
    assert is_right(out)


def file_operands(folder: Path) -> tuple[Any, Any]:
    a, b = operands()
    for name, array in (("a", a), ("b", b)):
        if not (folder / f"{name}.npy").exists():
            np.save(folder / f"{name}.npy", array)
    return np.load(folder / "a.npy", mmap_mode="r"), np.load(folder / "b.npy", mmap_mode="r")


@pytest.mark.parametrize("whole", [0, 1 << 20], ids=["sampled", "read whole"])
@pytest.mark.parametrize("at", [(0, 0), (31, 17), (69, 79)], ids=["first", "middle", "last"])
def test_a_file_with_one_other_element_is_an_error(at: Any, whole: int, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(fingerprints, "WHOLE", whole)
    monkeypatch.setattr(fingerprints, "SAMPLES", 2)
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


def test_operands_in_the_file_of_the_result_are_gone_on_with(tmp_path: Path, monkeypatch: Any) -> None:
    h5py = pytest.importorskip("h5py")
    monkeypatch.setattr(fingerprints, "WHOLE", 0)
    with h5py.File(tmp_path / "all.h5", "w") as file:
        for name, array in zip("ab", operands()):
            file[name] = array
        out = file.create_dataset("c", SHAPE, "float32")
        interrupted(out, tmp_path / "journal", (file["a"], file["b"]), at=4)
    with h5py.File(tmp_path / "all.h5", "r+") as file:
        finished(file["c"], tmp_path / "journal", (file["a"], file["b"]))
        assert is_right(file["c"])


@pytest.mark.parametrize("number", [0, 1])
def test_a_changed_chunk_of_zarr_is_an_error(number: int, tmp_path: Path, monkeypatch: Any) -> None:
    zarr = pytest.importorskip("zarr")
    monkeypatch.setattr(fingerprints, "WHOLE", 0)
    monkeypatch.setattr(fingerprints, "SAMPLES", 2)
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


def test_an_expanded_operand_of_any_size_is_read_as_the_small_one_behind_it(tmp_path: Path) -> None:
    rows = np.broadcast_to(np.ones((1, 70), "float32"), (60, 70))
    before = einsumx.streaming.fingerprints.fingerprint(
        _source(np.broadcast_to(np.float32(1), (10**6, 10**6))), None, 1000
    )
    assert before["shape"] == [10**6, 10**6]
    out = mapped(tmp_path / "out.npy")
    einsumx.einsum(EQUATION, rows, operands()[1], out=out, memory_limit=LIMIT, resume=tmp_path / "journal")
    np.testing.assert_allclose(out[3], operands()[1].sum(axis=0), rtol=1e-4, atol=1e-4)


def _source(array: Any) -> Any:
    from einsumx.adapters.registry import get_backend
    from einsumx.streaming.readers import sources

    return sources([array], get_backend("numpy"), "")[0][0]


# -- operands whose files' times do not tell ----------------------------------------------------------------------


def hdf5_that_is_written(folder: Path, array: Any) -> Any:
    h5py = pytest.importorskip("h5py")
    file = h5py.File(folder / "b.h5", "w")
    file.create_dataset("b", data=array, chunks=(10, 80))
    file.flush()
    return lambda: file["b"], file["b"]


def hdf5_that_another_handle_writes(folder: Path, array: Any) -> Any:
    h5py = pytest.importorskip("h5py")
    _, written = hdf5_that_is_written(folder, array)
    return lambda: h5py.File(folder / "b.h5", "r")["b"], written


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


def view_of_a_dataset(folder: Path, array: Any) -> Any:
    _, written = hdf5_that_is_written(folder, array)
    return lambda: written.astype("f4"), written


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


def object_of_another_kind(folder: Path, array: Any) -> Any:
    found = Stored(array)
    return lambda: found, found


UNTIMED = [
    hdf5_that_is_written, hdf5_that_another_handle_writes, virtual_dataset, external_dataset, view_of_a_dataset,
    copy_on_write_map, replaced_map, map_of_pages_that_wait_to_be_written, zarr_in_memory,
    zarr_of_a_linked_folder, object_of_another_kind,
]  # fmt: skip


@pytest.mark.parametrize("kind", UNTIMED, ids=lambda kind: kind.__name__)
def test_a_change_that_the_times_of_files_do_not_tell_is_an_error(kind: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(fingerprints, "WHOLE", 0)
    monkeypatch.setattr(fingerprints, "SAMPLES", 2)
    a, b = operands()
    opened, written = kind(tmp_path, b.copy())
    out = mapped(tmp_path / "out.npy")
    interrupted(out, tmp_path / "journal", (Stored(a), opened()))
    written[31, 17] = 100
    with pytest.raises(einsumx.JournalError, match="operand 1 changed"):
        finished(out, tmp_path / "journal", (Stored(a), opened()))
    if kind is not map_of_pages_that_wait_to_be_written:  # which was not read whole
        written[31, 17] = b[31, 17]
        finished(out, tmp_path / "journal", (Stored(a), opened()))
        assert is_right(out)


def test_a_changed_map_of_a_file_that_is_in_memory_alone_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    if not Path("/dev/shm").is_dir():
        pytest.skip("the system has no folder in memory")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        test_a_change_that_the_times_of_files_do_not_tell_is_an_error(
            map_of_pages_that_wait_to_be_written, Path(folder), monkeypatch
        )


@pytest.mark.parametrize("alias", [os.link, os.symlink], ids=["hard link", "symbolic link"])
def test_a_map_of_the_file_of_the_result_by_another_name_is_gone_on_with(
    alias: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(fingerprints, "WHOLE", 0)
    a, b = operands()
    both = np.memmap(tmp_path / "both", "float32", "w+", shape=(150, 80))
    both[80:] = b
    alias(tmp_path / "both", tmp_path / "link")
    read = np.memmap(tmp_path / "link", "float32", "r", offset=80 * 80 * 4, shape=(70, 80))
    interrupted(both[:60], tmp_path / "journal", (Stored(a), read))
    finished(both[:60], tmp_path / "journal", (Stored(a), read))
    assert is_right(both[:60])


def test_what_was_read_whole_is_known_again_when_its_file_is_opened_to_be_read(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(fingerprints, "WHOLE", 0)
    monkeypatch.setattr(fingerprints, "SAMPLES", 2)
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
OTHERS = {
    "empty lines": lambda text: lines_of(text, "", ""),
    "a word": lambda text: lines_of(text, "done"),
    "zero bytes": lambda text: lines_of(text, "\0" * 40),
    "no digest": lambda text: lines_of(text, "5"),
    "short digest": lambda text: lines_of(text, f"5 {DIGEST[1:]}"),
    "long digest": lambda text: lines_of(text, f"5 {DIGEST}0"),
    "upper case": lambda text: lines_of(text, f"5 {'A' * 32}"),
    "negative": lambda text: lines_of(text, f"-1 {DIGEST}"),
    "beyond the last": lambda text: lines_of(text, f"99 {DIGEST}"),
    "huge": lambda text: lines_of(text, f"{10**17} {DIGEST}"),
    "5,000 digits": lambda text: lines_of(text, f"{'9' * 5000} {DIGEST}"),
    "underscores": lambda text: lines_of(text, f"1_1 {DIGEST}"),
    "leading zero": lambda text: lines_of(text, f"05 {DIGEST}"),
    "other digits": lambda text: lines_of(text, f"٥ {DIGEST}"),
    "fraction": lambda text: lines_of(text, f"5.0 {DIGEST}"),
    "blanks": lambda text: lines_of(text, f" 5  {DIGEST}"),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "a block twice": lambda text: lines_of(text, text.splitlines()[-1]),
    "100,000 lines": lambda text: lines_of(text, *[f"5 {DIGEST}"] * 10**5),
    "cut off in the middle": lambda text: text[: text.index("\n") - 10] + "\n",
    "nothing of JSON": lambda text: "some notes\n",
    "a list": lambda text: "[]\n",
    "a number": lambda text: "17\n",
    "a text": lambda text: '"equation blocks journal"\n',
    "null": lambda text: "null\n",
    "empty object": lambda text: "{}\n",
    "deep": lambda text: "[" * 100_000 + "]" * 100_000 + "\n",
    "deep inside": lambda text: '{"journal": 2, "equation": ' + "[" * 100_000 + "]" * 100_000 + "}\n",
    "a huge number": lambda text: '{"journal": ' + "9" * 10_000 + "}\n",
    "no end of line": lambda text: "x" * (2 << 20),
    "bytes": lambda text: "\udcff\udcfe\udc80\n",
    "version of the future": lambda text: with_header(text, journal=3),
    "version as text": lambda text: with_header(text, journal="2"),
    "version as float": lambda text: with_header(text, journal=2.0),
    "version true": lambda text: with_header(text, journal=True),
    "limit as float": lambda text: with_header(text, memory_limit=float(LIMIT)),
    "limit not a number": lambda text: with_header(text, memory_limit=float("nan")),
    "other equation": lambda text: with_header(text, equation="kj,ji->ki"),
    "other shapes": lambda text: with_header(text, shapes=[[60, 70], [70, 81]]),
    "other dtype": lambda text: with_header(text, dtype="float64"),
    "other blocks": lambda text: with_header(text, blocks=[1, 1, 1]),
    "blocks true": lambda text: with_header(text, blocks=[True] * 3),
    "operands null": lambda text: with_header(text, operands=None),
    "operands of text": lambda text: with_header(text, operands="operands"),
    "an operand less": lambda text: with_header(text, operands=header(text)["operands"][:1]),
    "an operand more": lambda text: with_header(text, operands=header(text)["operands"] * 2),
    "operands turned round": lambda text: with_header(text, operands=header(text)["operands"][::-1]),
    "no operands": lambda text: json.dumps({**header(text), "operands": []}) + "\n",
    "the format before": old_format,
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
    content = OTHERS[damage](valid).encode("utf-8", "surrogateescape")
    file.write_bytes(content)
    with pytest.raises(einsumx.JournalError, match="resume=") as caught:
        einsumx.einsum(EQUATION, *stored(), out=out, memory_limit=LIMIT, resume=file)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 1000
    assert file.read_bytes() == content
    assert not out.any()


@settings(max_examples=60)
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


@pytest.mark.parametrize(
    "content",
    [
        lambda text: "",
        lambda text: text[:1],
        lambda text: text[: text.index("\n")],
        lambda text: text[: text.index("\n") + 1],
        lambda text: text[:-1],
        lambda text: text[:-20],
        lambda text: text + "1",
        lambda text: text + "7 " + DIGEST,
        lambda text: text.replace(text.splitlines()[-1].split()[1], DIGEST),
        lambda text: lines_of(text, f"4 {DIGEST}", f"5 {DIGEST}"),
        lambda text: with_header(text, out="elsewhere"),
        lambda text: with_header(text, out=["no", "name"]),
    ],
    ids=[
        "empty",
        "a byte",
        "no line's end",
        "no blocks",
        "last byte is missing",
        "last bytes are missing",
        "begun",
        "no end",
        "wrong digest",
        "blocks that were never done",
        "other out",
        "out is a list",
    ],
)
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
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "link to a pipe", "socket"])
def test_what_is_no_regular_file_is_an_error_at_once(kind: str, tmp_path: Path) -> None:
    import socket

    file = tmp_path / "journal"
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case "device":
            file = Path("/dev/zero")
        case "link to a pipe":
            os.mkfifo(tmp_path / "pipe")
            file.symlink_to(tmp_path / "pipe")
        case "socket":
            place = Path(f"/tmp/einsumx-{os.getpid()}.socket")  # whose name must be short
            with suppress(FileNotFoundError):
                place.unlink()
            with socket.socket(socket.AF_UNIX) as found:
                found.bind(str(place))
            file.symlink_to(place)
    out = mapped(tmp_path / "out.npy")
    with pytest.raises(einsumx.JournalError, match="no regular file"):
        einsumx.einsum(EQUATION, *stored(), out=out, memory_limit=LIMIT, resume=file)
    if kind == "socket":
        place.unlink()


def test_a_journal_where_nothing_can_be_written_is_an_error_before_any_work(tmp_path: Path) -> None:
    out = mapped(tmp_path / "out.npy")
    for file in (tmp_path / "nowhere" / "journal", tmp_path / "out.npy" / "journal", Path("/proc/journal")):
        with pytest.raises(OSError, match=r"journal of resume= cannot be read and written: .*journal"):
            einsumx.einsum(EQUATION, *stored(), out=out, memory_limit=LIMIT, resume=file)
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


# -- two at once --------------------------------------------------------------------------------------------------

HELD = """
import sys
import einsumx
from stored import EQUATION, LIMIT, Stored, operands
import numpy as np
out = np.lib.format.open_memmap(sys.argv[1] + "/out.npy", "r+")
def told(done, total):
    if done == 3:
        print("here", flush=True)
        sys.stdin.read()
a, b = map(Stored, operands())
einsumx.einsum(EQUATION, a, b, out=out, memory_limit=LIMIT, resume=sys.argv[1] + "/journal", progress=told)
"""


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=Path(__file__).parent,
        env={**os.environ, "PYTHONPATH": str(Path(einsumx.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no such locks")
def test_a_journal_that_another_process_has_is_refused_until_that_one_ends(tmp_path: Path) -> None:
    out = mapped(tmp_path / "out.npy")
    with started(HELD, tmp_path) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "here\n"
        before = (tmp_path / "journal").read_text()
        with pytest.raises(einsumx.JournalError, match="in use by another run"):
            finished(out, tmp_path / "journal")
        assert (tmp_path / "journal").read_text() == before
        other.kill()
    finished(out, tmp_path / "journal")
    assert is_right(out)


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no such locks")
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
    einsumx.einsum(EQUATION, *stored(), out=out, memory_limit=LIMIT, resume=tmp_path / "journal", progress=told)
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
    try:
        with pytest.raises(KeyboardInterrupt):
            einsumx.einsum(EQUATION, *stored(), out=out, memory_limit=LIMIT, resume=tmp_path / "journal", progress=told)
        finished(out, tmp_path / "journal")
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert is_right(out)


# -- the end ------------------------------------------------------------------------------------------------------


def test_the_journal_stays_where_the_result_could_not_be_flushed(tmp_path: Path) -> None:
    class Failing(Stored):
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1
            if (tmp_path / "fails").exists() and not self.left():
                raise OSError("the disk is gone")

        def left(self) -> bool:
            return len((tmp_path / "journal").read_text().splitlines()) <= self.blocks

        blocks = 10**6

    out = Failing(np.zeros(SHAPE, "float32"))
    plan = einsumx.plan(EQUATION, *stored(), memory_limit=LIMIT, out=out)
    out.blocks = plan.blocks
    (tmp_path / "fails").touch()
    with pytest.raises(OSError, match="the disk is gone"):
        finished(out, tmp_path / "journal")
    assert (tmp_path / "journal").exists()
    (tmp_path / "fails").unlink()
    finished(out, tmp_path / "journal")
    assert is_right(out.array)


def test_reading_blocks_again_stays_within_the_limit(tmp_path: Path) -> None:
    a, b = np.ones((400, 300), "float32"), np.ones((300, 500), "float32")
    out, limit = Stored(np.zeros((400, 500), "float32")), 200_000

    def call() -> None:
        einsumx.einsum(EQUATION, Stored(a), Stored(b), out=out, memory_limit=limit, resume=tmp_path / "journal")

    call()
    _, taken = peaks.numpy_peak(call)
    assert taken <= limit + peaks.OBJECTS
    assert (out.array == 300).all()
