"""Wisdom: what measuring found, kept in memory and, between processes, in files of the cache folder.

A finding is looked up by the key of its contraction. A process reads each file once. It writes what it found at
intervals and when it ends. ``EINSUMX_WISDOM=0`` keeps findings in memory alone.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from time import gmtime, monotonic, strftime
from typing import TYPE_CHECKING

from einsumx.adapters.base import Adapter
from einsumx.adapters.registry import get_backend
from einsumx.errors import EinsumxError
from einsumx.imports import LazyModule
from einsumx.runtime.effort import is_frozen
from einsumx.runtime.environment import switch
from einsumx.runtime.wisdom_names import computed_text, has_files, key_of

if TYPE_CHECKING:
    from einsumx.runtime import wisdom_files
    from einsumx.runtime.wisdom_files import Finding, Origin
else:
    wisdom_files = LazyModule("einsumx.runtime.wisdom_files")  # most processes have no wisdom

__all__ = ["computed_text", "export_to", "find", "forget", "import_from", "key_of", "may_have", "now", "record", "save"]

_INTERVAL = 2.0
"""Seconds between two writes, at least."""

_PATIENCE = 10.0
"""Seconds that a process waits for others that write: at its end, and if it is told to save."""


# -- in memory ------------------------------------------------------------------------------------------------------


def now() -> str:
    """The date and time for a finding."""
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime())


class _Store:
    """The findings of a backend on a kind of device.

    Attributes:
        findings: all that are known, by key.
        unsaved: those that are not in the file yet.
        is_kept: whether there is a file.
    """

    __slots__ = ("findings", "is_kept", "unsaved")

    def __init__(self, findings: dict[str, Finding], is_kept: bool) -> None:
        self.findings, self.is_kept = findings, is_kept
        self.unsaved: dict[str, Finding] = {}


class _State:
    """Everything that changes: the stores, and when they were written.

    Attributes:
        stores: by adapter and kind of device.
        lock: held while stores change.
        saving: held while a thread writes.
        written: when a thread last wrote, by the monotonic clock.
        ends: whether this process saves when it ends.
        told: whether the log says that files cannot be written.
    """

    def __init__(self) -> None:
        self.stores: dict[tuple[Adapter, str], _Store] = {}
        self.told = False
        self.start()

    def start(self) -> None:
        """In a new process: nobody releases the locks of others, and what they found is theirs to write."""
        # A finalizer that contracts arrays can run in the thread that holds the lock.
        self.lock, self.saving = threading.RLock(), threading.Lock()
        self.written = -_INTERVAL
        self.ends = False
        for store in self.stores.values():
            store.unsaved = {}


_state = _State()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_state.start)


def may_have(adapter: Adapter, device: str) -> bool:
    """Whether anything is known about a backend on a kind of device; much faster than finding a contraction's key."""
    if not adapter.measured_plans:
        return False
    for kind in (device,) if device else ("", "cpu"):
        store = _state.stores.get((adapter, kind)) or _store(adapter, kind)
        if store.findings:
            return True
    return False


def find(adapter: Adapter, device: str, key: str) -> Finding | None:
    """The finding for a key, from memory or from the files of earlier processes.

    Args:
        adapter: the backend's.
        device: where the operands are; empty for the default, which looks for the CPU's too.
        key: from :func:`key_of`.
    """
    for kind in (device,) if device else ("", "cpu"):
        finding = _store(adapter, kind).findings.get(key)
        if finding is not None:
            return finding
    return None


def record(adapter: Adapter, device: str, key: str, finding: Finding) -> None:
    """Keep a finding. It is written to its file now, or later together with others, but at the latest at exit.

    Nothing is kept while choices are frozen. A folder that cannot be written is logged, and is no error.

    Raises:
        ValueError: the finding or the key is malformed.
    """
    wisdom_files.check_finding(key, finding)
    if is_frozen():
        return
    store = _store(adapter, device)
    with _state.lock:
        for findings in (store.findings, store.unsaved) if store.is_kept else (store.findings,):
            findings.pop(key, None)
            findings[key] = finding
            while len(findings) > wisdom_files.MOST_FINDINGS:
                del findings[next(iter(findings))]
    if store.is_kept:
        _save_at_exit()
        if monotonic() - _state.written >= _INTERVAL:
            _write(0.0)


def _store(adapter: Adapter, device: str) -> _Store:
    """The store for a kind of device, with what its file has when it is first needed."""
    kind = device.partition(":")[0]
    store = _state.stores.get((adapter, kind))
    if store is not None:
        return store
    with _state.lock:
        if (adapter, kind) not in _state.stores:
            # A backend without a module stands for many libraries.
            is_kept = bool(adapter.module) and switch("EINSUMX_WISDOM") is not False
            findings: dict[str, Finding] = {}
            try:
                findings = _stored(adapter, kind) if is_kept else {}
            finally:  # a warning may be an error, but only once
                _state.stores[adapter, kind] = _Store(findings, is_kept)
        return _state.stores[adapter, kind]


def _stored(adapter: Adapter, device: str) -> dict[str, Finding]:
    """The findings in the file of this process; a file that cannot be used is ignored with a warning."""
    path = None
    try:
        if not has_files(adapter.name):
            return {}
        here = wisdom_files.origin_of(adapter, device, loads=False)
        path = wisdom_files.path_of(here)
        origin, findings = wisdom_files.read_file(path)
        differs = wisdom_files.difference(origin, here)
        if differs:
            raise ValueError(differs)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, RuntimeError, ValueError) as error:
        warnings.warn(
            f"einsumx ignores the wisdom in {path or 'its cache folder'}: {error}. Measuring again replaces it, "
            f"`einsumx wisdom --forget --backend {adapter.name}` removes it",
            RuntimeWarning,
            stacklevel=2,
        )
        return {}
    return findings


# -- in files -------------------------------------------------------------------------------------------------------


def save() -> None:
    """Write what is not written yet. A folder that cannot be written is logged, and is no error."""
    _write(_PATIENCE)


def _write(patience: float) -> None:
    """Write what is not written yet, within ``patience`` seconds."""
    deadline = monotonic() + patience
    if not _state.saving.acquire(timeout=patience):
        return  # another thread is writing
    try:
        for (adapter, device), store in list(_state.stores.items()):
            if store.unsaved:
                _write_store(adapter, device, store, max(deadline - monotonic(), 0.0))
    finally:
        _state.written = monotonic()
        _state.saving.release()


def _write_store(adapter: Adapter, device: str, store: _Store, patience: float) -> None:
    """Write what a store has not written yet, and learn what other processes wrote meanwhile."""
    with _state.lock:
        unsaved = dict(store.unsaved)
    try:
        merged = wisdom_files.merge(wisdom_files.origin_of(adapter, device), unsaved, patience)
    except TimeoutError:
        return  # until the next time
    except (OSError, RuntimeError, ValueError) as error:
        if not _state.told:
            from einsumx.log import log

            _state.told = True
            log.warning("einsumx keeps its measurements in memory alone: %s", error)
        return
    with _state.lock:
        store.findings = {**merged, **store.findings}
        store.unsaved = {key: found for key, found in store.unsaved.items() if unsaved.get(key) is not found}


def _save_at_exit() -> None:
    """Save when this process ends. Workers of multiprocessing run its finalizers and no exit functions."""
    if _state.ends:
        return
    _state.ends = True
    atexit.unregister(save)  # the parent's, in a fork
    atexit.register(save)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, save, exitpriority=0)


def forget(backends: Collection[str] = (), device: str = "") -> list[Path]:
    """Forget the wisdom of all backends or of some, or of one kind of device, and return the files that are removed.

    Plans that exist stay as they are.

    Raises:
        OSError: a file cannot be removed.
    """
    kind = device.partition(":")[0]
    with _state.lock:
        for adapter, known in list(_state.stores):
            if adapter.name in (backends or (adapter.name,)) and kind in ("", known):
                del _state.stores[adapter, known]
    paths = wisdom_files.stored_files(backends, kind)
    for path in paths:
        path.unlink(missing_ok=True)
    return paths


def export_to(path: Path) -> int:
    """Write all findings that hold for this machine and its software to one file, and return their number.

    Raises:
        OSError: the file cannot be written.
    """
    save()
    parts = []
    for stored in wisdom_files.stored_files():
        try:
            origin, findings = wisdom_files.read_file(stored)
            if not wisdom_files.difference(origin, _here(origin)):
                parts.append((origin, findings))
        except (OSError, ValueError, EinsumxError):
            continue
    wisdom_files.write_bundle(path, parts)
    return sum(len(findings) for _, findings in parts)


def _here(origin: Origin) -> Origin:
    """The software and the machine of this process, for the same backend and kind of device."""
    return wisdom_files.origin_of(get_backend(origin.backend), "" if origin.device == "default" else origin.device)


def import_from(path: Path) -> int:
    """Add the findings in a file of :func:`export_to` to those of this machine, and return their number.

    Nothing is added if a part of the file cannot be used here. Plans that exist stay as they are.

    Raises:
        OSError: the file cannot be read, or the cache folder cannot be written.
        ValueError: the file is malformed, or was measured elsewhere.
        BackendError: it is for a backend that einsumx does not know.
    """
    parts = wisdom_files.read_bundle(path)
    for origin, _ in parts:
        differs = wisdom_files.difference(origin, _here(origin))
        if differs:
            raise ValueError(f"it was measured elsewhere: {differs}")
    save()
    for origin, findings in parts:
        here = _here(origin)
        known = replace(here, blas=here.blas or origin.blas, accelerator=here.accelerator or origin.accelerator)
        merged = wisdom_files.merge(known, findings, _PATIENCE)
        with _state.lock:
            for (adapter, device), store in _state.stores.items():
                if (adapter.name, device or "default") == (origin.backend, origin.device):
                    store.findings = merged
    return sum(len(findings) for _, findings in parts)
