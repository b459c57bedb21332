"""Tells whether two arrays share storage, whatever paths they were opened by."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from einsumx.errors import REFUSALS
from einsumx.imports import imported
from einsumx.storage.array_files import is_dataset
from einsumx.storage.maps import inode_of, is_array, region, share_file
from einsumx.storage.stores import is_of, place_of


def in_one_place(first: Any, second: Any) -> bool:
    """Whether writing to one of two stored arrays may change values of the other.

    Maps are compared by their bytes of a file, and HDF5 datasets by identity. If that is not possible, as with virtual
    datasets, two arrays with values in the same file, or in unknown ones, count as sharing storage.
    """
    first, second = (getattr(array, "_dset", array) for array in (first, second))  # the dataset behind a view
    pair = first, second
    if all(is_of(array, "zarr") for array in pair):
        return place_of(first) == place_of(second)
    if all(map(is_array, pair)):
        return share_file(first, second)
    if all(is_dataset(array) and not array.is_virtual and not array.external for array in pair):
        return bool(first == second)
    if all(is_array(array) or is_dataset(array) for array in pair):
        files, others = _inodes(first), _inodes(second)
        return bool(files and others) and (None in files | others or not files.isdisjoint(others))
    if type(first) is type(second):
        with suppress(*REFUSALS):  # of the library's own comparison
            return (first == second) is True
    return False


# -- HDF5 ---------------------------------------------------------------------------------------------------------


def _inodes(array: Any) -> set[int | None]:
    """The inodes of the files with values of a map or of an HDF5 dataset; None for an unknown file."""
    if is_array(array):
        mapped = region(array)
        return set() if mapped is None else {mapped.inode}
    return {inode_of(path) for path in _files(array, set())}


def _files(dataset: Any, seen: set[tuple[str, str]]) -> Iterator[str]:
    """The files that may have values of a dataset, including nested virtual datasets."""
    h5py, path = imported("h5py"), dataset.file.filename
    yield path
    for name, *_ in dataset.external or ():
        yield from _candidates(os.fsdecode(name), path)
    for source in dataset.virtual_sources() if dataset.is_virtual else ():
        for candidate in [path] if source.file_name == "." else _candidates(source.file_name, path):
            yield candidate
            if (candidate, source.dset_name) in seen:
                continue
            seen.add((candidate, source.dset_name))
            try:
                file = h5py.File(candidate, "r")
            except TimeoutError:  # of a signal handler
                raise
            except OSError:
                continue
            with file:
                inner = file.get(source.dset_name)
                if isinstance(inner, h5py.Dataset):
                    yield from _files(inner, seen)


def _candidates(name: str, path: str) -> Iterator[str]:
    """The files to which HDF5 may resolve ``name`` in a dataset of the file ``path``."""
    main = Path(path)
    folders = [Path(), main.parent, main.resolve().parent]
    for variable in ("HDF5_VDS_PREFIX", "HDF5_EXTFILE_PREFIX"):
        prefixes = os.environ.get(variable, "").replace("${ORIGIN}", str(main.parent)).split(os.pathsep)
        folders += [Path(prefix) for prefix in prefixes]
    relative = Path(name)
    if relative.is_absolute() and not any(_matching(relative)):
        relative = Path(relative.name)
    for folder in folders:
        yield from map(str, _matching(folder / relative))


def _matching(path: Path) -> Iterator[Path]:
    """The files that match a name, in which ``%b`` stands for a block number."""
    pattern = re.sub(r"%\d*b", "*", glob.escape(path.name))
    return path.parent.glob(pattern) if "%" in path.name else iter([path] if path.exists() else [])
