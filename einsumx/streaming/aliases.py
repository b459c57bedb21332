"""Whether two arrays are stored in the same place, by whatever paths they were opened."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from einsumx.runtime.maps import inode_of, is_array, region, share_file
from einsumx.streaming.array_files import folder_of, is_dataset

__all__ = ["in_one_place"]


def in_one_place(first: Any, second: Any) -> bool:
    """Whether writing to one of two stored arrays may change what is read of the other.

    Maps are told apart by the bytes of the file, datasets of HDF5 by themselves. Where that cannot be done, as with
    virtual datasets, two arrays that have values in one file count as in one place.
    """
    first, second = (getattr(array, "_dset", array) for array in (first, second))  # of a view of a dataset
    pair = first, second
    if all(map(_is_zarr, pair)):
        return _zarr_place(first) == _zarr_place(second)
    if all(map(is_array, pair)):
        return share_file(first, second)
    if all(is_dataset(array) and not array.is_virtual and not array.external for array in pair):
        return bool(first == second)
    if all(is_array(array) or is_dataset(array) for array in pair):
        return not _inodes(first).isdisjoint(_inodes(second))
    if type(first) is type(second):
        with suppress(Exception):
            return (first == second) is True
    return False


# -- HDF5 ---------------------------------------------------------------------------------------------------------


def _inodes(array: Any) -> set[int]:
    """The numbers of the files that a map, or a dataset of HDF5, has values in."""
    if is_array(array):
        mapped = region(array)
        return set() if mapped is None else {mapped[0][1]}
    return {inode_of(path) for path in _files(array, set())}


def _files(dataset: Any, seen: set[tuple[str, str]]) -> Iterator[str]:
    """The files that a dataset may have values in, also by virtual datasets of virtual datasets."""
    h5py, path = import_module("h5py"), dataset.file.filename
    yield path
    for name, *_ in dataset.external or ():
        yield from _found(os.fsdecode(name), path)
    for source in dataset.virtual_sources() if dataset.is_virtual else ():
        for found in [path] if source.file_name == "." else _found(source.file_name, path):
            yield found
            if (found, source.dset_name) in seen:
                continue
            seen.add((found, source.dset_name))
            with suppress(OSError), h5py.File(found, "r") as file:
                inner = file.get(source.dset_name)
                if isinstance(inner, h5py.Dataset):
                    yield from _files(inner, seen)


def _found(name: str, path: str) -> Iterator[str]:
    """The files that HDF5 may take for ``name``, as a dataset in the file ``path`` refers to it."""
    main = Path(path)
    folders = [Path(), main.parent, main.resolve().parent]
    for variable in ("HDF5_VDS_PREFIX", "HDF5_EXTFILE_PREFIX"):
        prefixes = os.environ.get(variable, "").replace("${ORIGIN}", str(main.parent)).split(os.pathsep)
        folders += [Path(prefix) for prefix in prefixes]
    wanted = Path(name)
    if wanted.is_absolute() and not any(_matching(wanted)):
        wanted = Path(wanted.name)
    for folder in folders:
        yield from map(str, _matching(folder / wanted))


def _matching(path: Path) -> Iterator[Path]:
    """The files of a name in which ``%b`` stands for the number of a block."""
    pattern = re.sub(r"%\d*b", "*", glob.escape(path.name))
    return path.parent.glob(pattern) if "%" in path.name else iter([path] if path.exists() else [])


# -- Zarr ---------------------------------------------------------------------------------------------------------


def _is_zarr(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "zarr"


def _zarr_place(array: Any) -> str:
    """What says where an array of Zarr is: its folder, or a text that stands for its store and its path there."""
    folder = folder_of(array)
    store = array.store
    while folder is None and hasattr(store, "_store"):  # a store around another one
        store = store._store
        folder = folder_of(array, store)
    if folder is None and "file" in getattr(getattr(store, "fs", None), "protocol", ()):
        folder = Path(store.path, array.path)
    return os.path.realpath(folder) if folder is not None else f"{store}/{array.path}"
