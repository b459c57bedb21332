"""The files behind arrays: which they are, whether they are still the ones that were mapped, and room for a result."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from typing import Any

from einsumx.errors import BackendError
from einsumx.runtime.maps import bytes_of_file, mapped_at, mapping

__all__ = [
    "all_files",
    "backing",
    "check_whole",
    "folder_of",
    "grain",
    "is_dataset",
    "mapped_file",
    "name_of",
    "reserve",
    "sync",
    "timed_files",
]

_MANY = 100
"""Files beyond which it is quicker to have the system write all that it holds back."""


def backing(array: Any) -> list[Path]:
    """The files, or the folder, that an array is stored in; empty where it lies in memory or nobody knows.

    >>> import numpy as np
    >>> backing(np.zeros(3))
    []
    """
    mapped = mapping(array)
    if mapped is not None:
        return [] if mapped.filename is None or mapped.mode == "c" else [Path(mapped.filename)]
    if is_dataset(array):
        return [Path(array.file.filename)]
    folder = folder_of(array)
    return [] if folder is None else [folder]


def timed_files(array: Any) -> list[Path]:
    """The files, or the folder, whose times change whenever an array does; empty where no times tell.

    A private or a writable map, an HDF5 file that is open for writing, and files that were unlinked or replaced have
    other values than the files of their names. A virtual dataset has the values of other files, and who knows what an
    object of another kind has.
    """
    mapped = mapping(array)
    if mapped is not None:
        if mapped.mode != "r" or mapped_file(array, surely=True) is None:
            return []
        path = Path(mapped.filename)
        try:
            _sync_file(path)  # else the next time that a page is written to, which waits to be saved, is not kept
            return [] if _is_in_memory(path) else [path]
        except OSError:
            return []
    if is_dataset(array):
        return [Path(array.file.filename)] if _is_all_in_its_file(array) else []
    folder = folder_of(array)
    return [] if folder is None else [folder]


def is_dataset(array: Any) -> bool:
    """Whether it is a dataset of HDF5; views of one, such as ``dataset.astype("f4")``, are none."""
    return type(array).__module__.partition(".")[0] == "h5py" and hasattr(array, "file")


def _is_all_in_its_file(dataset: Any) -> bool:
    """Whether a dataset has the values that the file of its name has, and none of another file."""
    file = dataset.file
    if file.mode != "r" or file.driver != "sec2" or dataset.is_virtual or dataset.external:
        return False
    try:
        return os.path.samestat(os.fstat(file.id.get_vfd_handle()), Path(file.filename).stat())
    except (OSError, RuntimeError, ValueError):
        return False


def name_of(array: Any) -> str:
    """The path of what an array is stored in, and its name there; empty where it has none."""
    paths = [os.fspath(path) for path in backing(array)]
    name = getattr(array, "name", None)
    return " ".join([*paths, *([name] if isinstance(name, str) else [])])


def folder_of(array: Any, store: Any = None) -> Path | None:
    """The folder of an array of Zarr that is stored in local files; None for anything else.

    Args:
        array: any.
        store: that has it, where this is not the array's own.
    """
    if type(array).__module__.partition(".")[0] != "zarr":
        return None
    store = array.store if store is None else store
    if type(store).__name__ == "LocalStore":
        return Path(store.root, array.path)
    if type(store).__name__ in ("DirectoryStore", "NestedDirectoryStore"):  # of Zarr 2
        return Path(store.path, array.path)
    return None


def grain(array: Any) -> tuple[int, ...]:
    """The shape of what is written at once to an array of Zarr: of its chunks, or of its shards."""
    return tuple(getattr(array, "shards", None) or array.chunks)


def all_files(paths: list[Path]) -> Iterator[Path]:
    """The files among ``paths``, and those in the folders among them, in one order; links to folders stay links."""
    for path in sorted(paths):
        if not path.is_dir():
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders.sort()
            links = [name for name in folders if Path(folder, name).is_symlink()]
            yield from (Path(folder, name) for name in sorted(names + links))


def sync(array: Any) -> None:
    """Wait until what was written to an array is on the disk, where it is known to be in files of this machine."""
    mapped = mapping(array)
    flush = getattr(mapped if mapped is not None else getattr(array, "file", array), "flush", None)
    if flush is not None:
        flush()
    if os.name != "posix":
        return
    files = list(all_files(backing(array)))
    if len(files) > _MANY:
        os.sync()
        return
    for path in files:
        with suppress(FileNotFoundError):
            _sync_file(path)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- files that are mapped to memory ------------------------------------------------------------------------------


def mapped_file(array: Any, *, surely: bool = False) -> os.stat_result | None:
    """The regular file that an array is mapped from; None where it has none, or has lost its name to another file.

    Args:
        array: any.
        surely: whether it is also None where the system does not tell which file is mapped.
    """
    mapped = mapping(array)
    if mapped is None or mapped.filename is None or mapped.mode == "c" or not array.size:
        return None
    try:
        status = Path(mapped.filename).stat()
    except OSError:
        return None
    inode = _mapped_inode(mapped.__array_interface__["data"][0])
    is_it = inode == status.st_ino or (inode is None and not surely)
    return status if stat.S_ISREG(status.st_mode) and is_it else None


def _mapped_inode(address: int) -> int | None:
    """The number of the file that is mapped at an address; None where the system does not tell."""
    found = mapped_at(address)
    return None if found is None else found[1]


def _is_in_memory(path: Path) -> bool:
    """Whether a file is in memory alone: the system does not keep the time of what is written to a map of it."""
    status = path.stat()
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    kinds = [line.partition(" - ")[2].split()[0] for line in lines if line.split()[2] == device]
    return not status.st_nlink or any(kind in ("tmpfs", "ramfs", "hugetlbfs", "devtmpfs") for kind in kinds)


def check_whole(name: str, array: Any) -> None:
    """See that the file behind a map still has all of it: the system ends a process that reads beyond a file's end.

    Raises:
        BackendError: the file was truncated.
    """
    mapped = mapping(array)
    if mapped is None or mapped.filename is None:
        return
    _, stop = bytes_of_file(mapped, array)
    with suppress(OSError):
        if stop <= Path(mapped.filename).stat().st_size:
            return
    status = mapped_file(array)
    if status is not None:
        raise BackendError(
            f"the file of {name} was truncated after it was mapped: {mapped.filename} has {status.st_size} bytes, "
            f"and the array reaches to byte {stop}; map the file again"
        )


def reserve(out: Any, what: str = "out=") -> None:
    """Have the file system set aside the room that a mapped array needs; what it holds stays as it is.

    Without this, the blocks of a sparse file are found as its pages are written to, and where the disk is full, the
    system ends the process (SIGBUS).

    Args:
        out: the array; nothing happens where it is not mapped from a regular file.
        what: it is, for messages.

    Raises:
        OSError: there is no room on the disk.
        BackendError: the file was truncated.
    """
    check_whole(what, out)
    status = mapped_file(out)
    if status is None or not hasattr(os, "posix_fallocate"):
        return
    mapped = mapping(out)
    start, stop = bytes_of_file(mapped, out)
    try:
        descriptor = os.open(mapped.filename, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # of one who may write to the map that is there, but not open the file again
        return
    try:
        if os.path.samestat(os.fstat(descriptor), status):
            os.posix_fallocate(descriptor, start, stop - start)
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT, EFBIG):  # any other one is of a file system that sets nothing aside
            raise OSError(
                error.errno,
                f"the disk has no room for the {stop - start} bytes of {what} ({os.strerror(error.errno)}); nothing "
                "was computed",
                str(mapped.filename),
            ) from error
    finally:
        os.close(descriptor)
