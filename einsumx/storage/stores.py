"""Where Zarr arrays are stored: in files, in memory, or behind a URL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from einsumx.imports import imported

_LOCAL = ("file", "local")

_OBJECT_STORES = ("s3", "gs", "gcs", "abfs", "az", "oss", "oci")
"""The protocols of object stores."""


def is_of(value: Any, package: str) -> bool:
    """Whether the type of a value is defined in a package; nothing is imported."""
    return type(value).__module__.partition(".")[0] == package


class Location(NamedTuple):
    """The place of an array in a file system of fsspec.

    Attributes:
        protocol: ``"file"``, ``"memory"``, ``"s3"``, and so on.
        path: in that file system.
        is_cached: whether this process may read copies of its own.
    """

    protocol: str
    path: str
    is_cached: bool


def location_of(array: Any) -> Location | None:
    """The location of a Zarr array whose store is a file system of fsspec; None for anything else."""
    return _location(array.store, array.path) if is_of(array, "zarr") else None


def _location(store: Any, name: str) -> Location | None:
    if not hasattr(store, "fs") or not hasattr(store, "path"):
        return None
    system, path, is_cached = store.fs, _joined(store.path, name), False
    while True:
        protocol = system.protocol if isinstance(system.protocol, str) else system.protocol[0]
        if hasattr(system, "sync_fs"):  # which only makes another one asynchronous
            system = system.sync_fs
        elif getattr(system, "fs", None) is None:
            return Location(protocol, path, is_cached)
        else:
            path = _joined(system.path, path) if protocol == "dir" else path
            is_cached = is_cached or protocol != "dir"
            system = system.fs


def _joined(folder: Any, path: str) -> str:
    text = f"{folder or ''}/{path}" if folder or path.startswith("/") else path
    return ("/" if text.startswith("/") else "") + "/".join(filter(None, text.split("/")))


def folder_of(array: Any) -> Path | None:
    """The folder of a Zarr array in local files; None for anything else."""
    return _folder(array.store, array.path) if is_of(array, "zarr") else None


def _folder(store: Any, name: str) -> Path | None:
    if type(store).__name__ == "LocalStore":
        return Path(store.root, name)
    if type(store).__name__ in ("DirectoryStore", "NestedDirectoryStore"):  # of Zarr 2
        return Path(store.path, name)
    location = _location(store, name)
    is_file = location is not None and location.protocol in _LOCAL and not location.is_cached
    return Path(location.path) if location is not None and is_file else None


def is_remote(array: Any) -> bool:
    """Whether a Zarr array is behind a URL, neither in local files nor in memory."""
    location = location_of(array)
    return location is not None and location.protocol not in (*_LOCAL, "memory")


def is_object_store(array: Any) -> bool:
    """Whether a Zarr array is behind a URL of an object store, which replaces a chunk as a whole."""
    location = location_of(array)
    return location is not None and location.protocol in _OBJECT_STORES and not location.is_cached


def place_of(array: Any) -> str:
    """An identifier of the storage of a Zarr array: its folder, its URL, or its store's text with its path."""
    store = array.store
    while hasattr(store, "_store"):  # a store that wraps another
        store = store._store
    folder, location = _folder(store, array.path), _location(store, array.path)
    if location is not None and location.protocol in _LOCAL:
        folder = Path(location.path)
    if folder is not None:
        return os.path.realpath(folder)
    return f"{store}/{array.path}" if location is None else f"{location.protocol}://{location.path.lstrip('/')}"


def writes_at_once(array: Any) -> bool:
    """Whether chunks in local files are replaced atomically, so that a process that dies leaves none half written."""
    kind = type(array.store)
    if kind.__name__ == "LocalStore":
        return hasattr(imported(kind.__module__), "_atomic_write")
    return kind.__name__ in ("DirectoryStore", "NestedDirectoryStore")
