"""The store of what was measured: one SQLite file in the cache folder, with a table of rates and one of plans.

A row is a key and a JSON text, with the software and the hardware for which they hold. The file is open during a
transaction only. It has a rollback journal, which works on network file systems and needs no files beside one that is
read, unlike a write-ahead log. The file is data from outside: other tables, and values that its reader refuses, are
damage, and a damaged file is renamed.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from einsumx.adapters.base import Adapter
from einsumx.errors import MalformedError, shown
from einsumx.host.environment import has_store, store_path
from einsumx.host.files import system_text
from einsumx.imports import LazyModule, imported

_metadata: Any = LazyModule("importlib.metadata")
_platform: Any = LazyModule("platform")
_threadpoolctl: Any = LazyModule("threadpoolctl")

Table = Literal["plans", "rates"]

Reader: TypeAlias = Callable[[str, str], Any]

MOST_ROWS = 4096
"""The most rows of a table; the oldest are dropped."""

_MOST_BYTES = 1 << 26
"""The largest file that is opened; a usual plan takes 500 bytes."""

_PATIENCE = 5.0
"""Seconds to wait for other processes that write; a fifth of that to read, which calls do."""

_lock = threading.RLock()
"""Held during a transaction, and while this process forks, so that no child has half of one."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


# -- where a row holds ----------------------------------------------------------------------------------------------


class Origin(NamedTuple):
    """The software and the hardware for which a row holds.

    Attributes:
        backend: by name.
        device: the kind of device, such as ``cuda``; ``default`` if the framework does not name it.
        framework: its version.
        einsumx: its version.
        machine: the model of the processor, and how many cores there are.
        engine: NumPy's BLAS, or the model of the accelerator; empty if there is none, or the framework is not in use.
    """

    backend: str
    device: str
    framework: str
    einsumx: str
    machine: str
    engine: str


def origin_of(adapter: Adapter, device: str) -> Origin:
    """The software and the hardware of this process.

    Args:
        adapter: the backend's.
        device: a device or kind of device; empty for the default.
    """
    package = adapter.module.partition(".")[0]
    engine = ""
    if adapter.module in sys.modules:
        engine = _line(adapter.device_model(device)) or (_blas() if package == "numpy" else "")
    return Origin(adapter.name, _kind(device), _version(package), _version("einsumx"), _machine(), engine)


def _kind(device: str) -> str:
    return device.partition(":")[0] or "default"


def _version(package: str) -> str:
    """The version that a package says it has, or that of its metadata, which takes long to read."""
    found = getattr(sys.modules.get(package), "__version__", "")
    return _line(str(found) or _installed_version(package)) or "unknown"


def _installed_version(package: str) -> str:
    for late in ("email.parser", "importlib.metadata._adapters"):  # or a signal handler may interrupt their import
        imported(late)
    try:
        return str(_metadata.version(package)) if package else ""
    except (_metadata.PackageNotFoundError, ValueError):  # the distribution has another name, or is not installed
        return ""


def fits(stored: Origin, here: Origin) -> bool:
    """Whether rows of one origin hold for another. An unknown engine fits any.

    >>> one = Origin("numpy", "cpu", "2.4.1", "1.0", "AMD EPYC, 8 cores", "")
    >>> fits(one, one._replace(engine="openblas 0.3")), fits(one, one._replace(framework="2.4.0"))
    (True, False)
    """
    return stored[:-1] == here[:-1] and (stored.engine == here.engine or "" in (stored.engine, here.engine))


def _machine() -> str:
    """The model of the processor, by Linux or by the platform, and the number of cores."""
    lines = (system_text("/proc/cpuinfo", 4096) or "").splitlines()
    model = next((line.partition(":")[2] for line in lines if line.startswith("model name")), "")
    return f"{_line(model or _platform.processor() or _platform.machine())}, {os.cpu_count() or 1} cores"


def _blas() -> str:
    """NumPy's BLAS, its version, and the kind of processor that its kernels are for."""
    loaded = _threadpoolctl.ThreadpoolController().select(user_api="blas").info()
    # Wheels bring their own library; SciPy's is another one.
    own = [info for info in loaded if "numpy" in str(info.get("filepath"))] or loaded
    names = ("internal_api", "version", "architecture")
    return _line(" ".join(str(own[0].get(name) or "") for name in names)) if own else ""


def _line(text: str) -> str:
    """A text as it can be a field: printable, in one line, and not too long."""
    return " ".join("".join(letter for letter in text if letter.isprintable()).split())[:200]


# -- rows -----------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        origin: where it holds.
        key: its subject.
        value: as JSON, or as its reader made it.
    """

    origin: Origin
    key: str
    value: Any


def check_row(row: Row) -> Row:
    """The row; MalformedError if its origin or key is not text in one line, as may be in a row from outside."""
    parts: tuple[Any, ...] = (*row.origin, row.key)
    for part in parts:
        if not isinstance(part, str) or not part.isprintable():
            raise MalformedError(f"{shown(part)} is not a line of text")
    return row


def read(table: Table, reader: Reader, backends: Collection[str] = (), device: str = "") -> list[Row]:
    """The rows of a table, the oldest first.

    A file that cannot be read is ignored with a warning, and a damaged one is renamed with a warning.

    Args:
        table: its name.
        reader: makes a value of a key and its JSON. A MalformedError means that the file is damaged.
        backends: empty for all.
        device: a kind of device; empty for all.
    """
    where, values = _where(backends, device)
    rows: list[Row] = []
    if not has_store():
        return rows
    try:
        for *origin, key, text in _run([(f"SELECT * FROM {table} {where} ORDER BY rowid", values)], writes=False):
            row = check_row(Row(Origin(*origin), key, str(text)))
            rows.append(row._replace(value=reader(key, row.value)))
        return rows
    except MalformedError as error:
        _set_aside(store_path(), error)
    except TimeoutError:  # of a signal handler
        raise
    except OSError as error:
        warnings.warn(f"einsumx ignores its stored measurements: {error}", RuntimeWarning, stacklevel=1)
    return []


def read_fitting(table: Table, reader: Reader, adapter: Adapter, device: str) -> list[Row]:
    """The rows of a table that hold for a device in this process, the oldest first; see :func:`read`."""
    rows = read(table, reader, [adapter.name], _kind(device))
    here = origin_of(adapter, device) if rows else None  # it takes long, and most devices have no rows
    return [row for row in rows if here is not None and fits(row.origin, here)]


def write(table: Table, rows: Iterable[Row]) -> None:
    """Add rows whose values are JSON, all or none. They replace those with the same origin and key.

    Raises:
        OSError: they cannot be stored.
        RuntimeError: there is no cache folder.
        MalformedError: a row is malformed, or the file is damaged and cannot be renamed.
    """
    add = f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    drop = f"DELETE FROM {table} WHERE rowid <= (SELECT max(rowid) FROM {table}) - {MOST_ROWS}"
    os.makedirs(os.path.dirname(store_path()), exist_ok=True)
    _run([*[(add, (*row.origin, row.key, row.value)) for row in map(check_row, rows)], (drop, ())], writes=True)


def remove(table: Table, backends: Collection[str], device: str) -> int:
    """Remove the rows of some backends and of one kind of device, as in :func:`read`, and return their number.

    Raises:
        OSError, MalformedError: they cannot be removed.
    """
    where, values = _where(backends, device)
    if not has_store():
        return 0
    removed = _run([(f"DELETE FROM {table} {where}", values), ("SELECT changes()", ())], writes=True)
    return int(removed[0][0])


def _where(backends: Collection[str], device: str) -> tuple[str, list[str]]:
    tests = [f"backend IN ({', '.join('?' * len(backends))})"] * bool(backends) + ["device = ?"] * bool(device)
    return f"WHERE {' AND '.join(tests)}" * bool(tests), [*backends, *[device] * bool(device)]


# -- the file -------------------------------------------------------------------------------------------------------

_ORIGIN = ", ".join(Origin._fields)
_TABLES = [f"CREATE TABLE {table} ({_ORIGIN}, key, value, PRIMARY KEY ({_ORIGIN}, key))" for table in get_args(Table)]


def _run(statements: Iterable[tuple[str, Sequence[str]]], *, writes: bool) -> list[Any]:
    """Run statements in one transaction, and return the rows of the last one.

    Args:
        statements: with their values.
        writes: whether they change the store, which is made if there is none or it is damaged.

    Raises:
        OSError: the store cannot be used.
        MalformedError: it is damaged.
    """
    path = store_path()
    with _lock:
        try:
            return _transaction(path, statements, writes)
        except MalformedError as error:
            if not writes:
                raise
            _set_aside(path, error)
        return _transaction(path, statements, writes)


def _transaction(path: str, statements: Iterable[tuple[str, Sequence[str]]], writes: bool) -> list[Any]:
    try:
        sqlite3: Any = imported("sqlite3")
    except ImportError as error:
        raise OSError(f"this Python has no sqlite3: {error}") from error
    for each in (path, f"{path}-journal"):  # opening a pipe would wait
        with suppress(FileNotFoundError):
            status = os.stat(each)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
                raise MalformedError(f"it is not a regular file of at most {_MOST_BYTES} bytes")
    patience = _PATIENCE if writes else _PATIENCE / 5
    try:
        with closing(sqlite3.connect(path, timeout=patience, isolation_level=None)) as connection:
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            tables = [row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
            if not tables and not writes:  # another process is making them
                return []
            for table in () if tables else _TABLES:
                connection.execute(table)
            if tables not in ([], _TABLES):
                raise MalformedError("it has other tables")
            rows: list[Any] = [connection.execute(*statement).fetchall() for statement in statements][-1]
            connection.execute("COMMIT")
            return rows
    except sqlite3.OperationalError as error:
        raise OSError(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise MalformedError(str(error)) from error


def _set_aside(path: str, error: MalformedError) -> None:
    """Rename a damaged file, or say why it cannot be renamed, in a warning."""
    outcome = f"is now called {path}.damaged"
    try:
        for suffix in ("-journal", "-wal", "-shm"):  # or SQLite would mend the next file with them
            with suppress(FileNotFoundError):
                os.unlink(path + suffix)
        os.replace(path, f"{path}.damaged")
    except FileNotFoundError:
        return  # another process did it
    except TimeoutError:  # of a signal handler
        raise
    except OSError as reason:
        outcome = f"cannot be renamed: {reason}"
    message = f"einsumx cannot use its stored measurements: {path} is damaged, {error}, and {outcome}"
    warnings.warn(message, RuntimeWarning, stacklevel=1)
