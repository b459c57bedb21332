"""The files behind arrays: finding them, checking that they are still the same, reserving room and syncing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from typing import Any

from einsumx.errors import BackendError
from einsumx.host.files import status_of
from einsumx.storage.maps import bytes_of_file, mapped_at, mapping
from einsumx.storage.stores import folder_of, is_of, is_remote, place_of

_MANY = 100
"""Files beyond which it is faster to sync all of the system's files."""


def is_dataset(array: Any) -> bool:
    """Whether it is an HDF5 dataset; views of one, such as ``dataset.astype("f4")``, are not."""
    return is_of(array, "h5py") and hasattr(array, "file")


def backing(array: Any) -> list[Path]:
    """The files or the folder that store an array; empty if it is in memory or its storage is unknown.

    >>> import numpy as np
    >>> backing(np.zeros(3))
    []
    """
    mapped = mapping(array)
    if mapped is not None:
        return [] if mapped.filename is None or mapped.mode == "c" else [Path(mapped.filename)]
    path = Path(array.file.filename) if is_dataset(array) else folder_of(array)
    return [] if path is None else [path]


def timed_files(array: Any) -> list[Path]:
    """The files or the folder whose modification times change whenever the array does; empty if there are none.

    Values may differ from those in the named file for private and writable maps, HDF5 files that are open for writing,
    and files that were unlinked or replaced. A virtual dataset has the values of other files, and those of an object
    of any other kind are unknown.
    """
    mapped = mapping(array)
    if mapped is not None:
        if mapped.mode != "r" or mapped_file(array, surely=True) is None:
            return []
        path = Path(mapped.filename)
        try:
            _sync_file(path)  # else a page that is still to be saved hides the time of the next write to it
            return [] if _is_in_memory(path) else [path]
        except TimeoutError:  # of a signal handler
            raise
        except OSError:
            return []
    return [] if is_dataset(array) and not _is_all_in_its_file(array) else backing(array)


def _is_all_in_its_file(dataset: Any) -> bool:
    """Whether all values of a dataset are in the file of its name."""
    file = dataset.file
    if file.mode != "r" or file.driver != "sec2" or dataset.is_virtual or dataset.external:
        return False
    try:
        descriptor = file.id.get_vfd_handle()
    except (RuntimeError, ValueError):  # of the driver
        return False
    opened, named = status_of(descriptor), status_of(file.filename)
    return opened is not None and named is not None and os.path.samestat(opened, named)


def stored_name(array: Any) -> str:
    """The path of the file or folder of an array, or its URL, and its name in there; empty if it has none."""
    paths = [place_of(array)] if is_remote(array) else [os.fspath(path) for path in backing(array)]
    name = getattr(array, "name", None)
    return " ".join([*paths, *([name] if isinstance(name, str) else [])])


def grain(array: Any) -> tuple[int, ...]:
    """The shape of the smallest part of a stored array that is written at once, a shard or a chunk; empty for none."""
    sizes = getattr(array, "shards", None) or getattr(array, "chunks", None)
    is_one = isinstance(sizes, tuple) and len(sizes) == len(array.shape) and all(type(size) is int for size in sizes)
    return sizes if is_one else ()  # type: ignore[return-value]


def all_files(paths: list[Path]) -> Iterator[Path]:
    """The files among ``paths`` and in the folders among them, in a fixed order; links to folders are not followed."""
    for path in sorted(paths):
        if not path.is_dir():
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders.sort()
            links = [name for name in folders if Path(folder, name).is_symlink()]
            yield from (Path(folder, name) for name in sorted(names + links))


def sync(array: Any) -> None:
    """Wait until all writes to an array are on the disk, if it is in files of this machine."""
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
    """The status of the regular file that an array is mapped from; None if there is none or its name was reused.

    Args:
        array: any array.
        surely: return None also if the system does not tell which file is mapped.
    """
    mapped = mapping(array)
    if mapped is None or mapped.filename is None or mapped.mode == "c" or not array.size:
        return None
    status = status_of(mapped.filename)
    if status is None:
        return None
    actual = mapped_at(mapped.__array_interface__["data"][0])
    is_same = not surely if actual is None else actual[1] == status.st_ino
    return status if stat.S_ISREG(status.st_mode) and is_same else None


def _is_in_memory(path: Path) -> bool:
    """Whether a file is only in memory, so that writes through a map do not update its time."""
    status = path.stat()
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    kinds = [line.partition(" - ")[2].split()[0] for line in lines if line.split()[2] == device]
    return not status.st_nlink or any(kind in ("tmpfs", "ramfs", "hugetlbfs", "devtmpfs") for kind in kinds)


def check_whole(name: str, array: Any) -> None:
    """Check that the file behind a map still has all of it; reading beyond its end would kill the process (SIGBUS).

    Raises:
        BackendError: the file was truncated.
    """
    mapped = mapping(array)
    if mapped is None or mapped.filename is None:
        return
    _, stop = bytes_of_file(mapped, array)
    status = status_of(mapped.filename)
    if status is not None and stop <= status.st_size:
        return
    status = mapped_file(array)
    if status is not None:
        raise BackendError(
            f"the file of {name} was truncated after it was mapped: {mapped.filename} has {status.st_size} bytes, "
            f"and the array reaches to byte {stop}; map the file again"
        )


def reserve(out: Any, name: str = "out=") -> None:
    """Allocate disk space for a mapped array; its contents stay.

    Without this, the space of a sparse file is allocated as its pages are written, and if the disk is full, the system
    kills the process (SIGBUS).

    Args:
        out: the array; nothing happens if it is not mapped from a regular file.
        name: for messages.

    Raises:
        OSError: the disk has no room.
        BackendError: the file was truncated.
    """
    check_whole(name, out)
    status = mapped_file(out)
    if status is None or not hasattr(os, "posix_fallocate"):
        return
    mapped = mapping(out)
    start, stop = bytes_of_file(mapped, out)
    try:
        descriptor = os.open(mapped.filename, os.O_RDWR | os.O_CLOEXEC)
    except TimeoutError:  # of a signal handler
        raise
    except OSError:  # the user may write to the existing map, but not reopen the file
        return
    try:
        if os.path.samestat(os.fstat(descriptor), status):
            os.posix_fallocate(descriptor, start, stop - start)
    except TimeoutError:  # of a signal handler
        raise
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT, EFBIG):  # other errors mean that the file system cannot allocate
            raise OSError(
                error.errno,
                f"the disk has no room for the {stop - start} bytes of {name} ({os.strerror(error.errno)}); free "
                "space, or set TMPDIR= to another disk",
                str(mapped.filename),
            ) from error
    finally:
        os.close(descriptor)
