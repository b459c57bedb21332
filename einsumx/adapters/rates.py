"""How fast a framework is on one kind of device: what its adapter declares, and what was measured and stored here.

``einsumx calibrate`` measures (:mod:`einsumx.cli.calibrate`); this module keeps the files and reads them. A file holds
for one backend, kind of device, version of the framework and number of threads, which are its name.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from einsumx.errors import shown
from einsumx.ir.strict import Fields, parse
from einsumx.runtime.files import read_text, write_text
from einsumx.runtime.threads import get_num_threads

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter
    from einsumx.adapters.traits import Traits

__all__ = [
    "Key",
    "Rates",
    "cache_folder",
    "calibrated",
    "core_count",
    "declared_rates",
    "is_rate",
    "key_of",
    "read_rates",
    "store_rates",
    "stored_files",
]


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds, and amounts a second, by which the planner compares two ways of computing the same.

    Adapters declare defaults. What decides between two plans are ratios of these numbers, so that defaults taken on
    one machine choose well on most; ``einsumx calibrate`` measures them on this one.

    Attributes:
        call: seconds that a call takes before it does any work.
        view: seconds that a reshape takes that is free otherwise.
        matrix: seconds that each matrix of a batched product takes before any arithmetic.
        gemm: multiply-adds a second of a large float32 product.
        stream: bytes a second that products, sums and elementwise ops read and write.
        copy: bytes a second, read and written, of a copy in long contiguous runs.
        permute: the same, of a copy that moves the innermost axis.
        run: seconds that each contiguous run of a copy takes besides its bytes.
        native: multiply-adds a second of the framework's own einsum kernel; 0 where the planner must not use it.
        sweep: the same where it sweeps once through the larger operand as it lies; 0 where that is no faster.
    """

    call: float = 1e-6
    view: float = 0.3e-6
    matrix: float = 0.3e-6
    gemm: float = 50e9
    stream: float = 20e9
    copy: float = 14e9
    permute: float = 7e9
    run: float = 4e-9
    native: float = 0.0
    sweep: float = 0.0


@dataclass(frozen=True, slots=True)
class Key:
    """What a calibration holds for.

    Attributes:
        backend: by its name in einsumx.
        device: its kind, such as ``cuda``; ``default`` where the framework does not say which it is.
        framework: the framework's version.
        threads: how many einsumx uses in this process, and frameworks by default.
    """

    backend: str
    device: str
    framework: str
    threads: int

    @property
    def path(self) -> Path:
        """The file for it, whether or not it is there."""
        words = map(_word, (self.backend, self.framework, self.device))
        return cache_folder() / f"{'-'.join(words)}-{self.threads}{_SUFFIX}"


_SUFFIX = "_threads.json"
_UNNAMED = "default"


def _word(text: str) -> str:
    """A part of a file's name."""
    return re.sub(r"[^\w.+]", "_", text)


def key_of(adapter: Adapter, device: str) -> Key:
    """What a calibration must be for, to hold for ``adapter`` on ``device`` in this process."""
    package = adapter.module.partition(".")[0]
    try:
        framework = version(package) if package else ""
    except (PackageNotFoundError, ValueError):  # its distribution has another name, or it is not installed
        framework = str(getattr(sys.modules.get(package), "__version__", ""))
    return Key(adapter.name, device.partition(":")[0] or _UNNAMED, framework or "unknown", get_num_threads())


def cache_folder() -> Path:
    """Where calibrations are stored: ``EINSUMX_CACHE``, or a folder where the platform has caches."""
    own = os.environ.get("EINSUMX_CACHE")
    if own:
        return Path(own)
    home = Path("~").expanduser()
    if sys.platform == "win32":
        caches = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        caches = home / "Library" / "Caches"
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return caches / "einsumx"


def core_count() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def declared_rates(adapter: Adapter, device: str) -> Rates:
    """What an adapter declares for a key's kind of device."""
    return adapter.traits("" if device == _UNNAMED else device).rates


@lru_cache(maxsize=256)
def calibrated(adapter: Adapter, device: str) -> Traits:
    """The traits that the planner reads: the adapter's, with the rates that were measured here where some are stored.

    Files are looked for once in a process, so that its plans do not change on the way. One that cannot be used is
    ignored with a warning.
    """
    declared = adapter.traits(device)
    # An array whose device is not named is where the framework puts arrays by default, the CPU for most.
    for kind in (device,) if device else ("", "cpu"):
        path = None
        try:
            if not cache_folder().is_dir():
                return declared
            key = key_of(adapter, kind)
            path = key.path
            found, rates = read_rates(path)
            if found != key:
                raise ValueError("it was measured for something else than its name says")
            # What a framework's own einsum must not be used for, no speed changes.
            unused = {name: 0.0 for name in ("native", "sweep") if not getattr(declared.rates, name)}
            own = {**rates, **unused}
            return replace(declared, rates=replace(declared.rates, **own))
        except FileNotFoundError:
            continue
        except (OSError, RuntimeError, ValueError) as error:
            warnings.warn(
                f"einsumx ignores the calibration in {path or 'its cache folder'}: {error}. `einsumx calibrate "
                f"--backend {adapter.name}` measures anew, `einsumx calibrate --reset` removes it",
                RuntimeWarning,
                stacklevel=2,
            )
            return declared
    return declared


def read_rates(path: Path) -> tuple[Key, dict[str, float]]:
    """What a file holds for, and the rates in it by name.

    Raises:
        OSError: it is not there, or cannot be read.
        ValueError: it is none that this version of einsumx stored.
    """
    data = parse(read_text(path, _MOST_BYTES))
    if not isinstance(data, dict) or not isinstance(data.get("rates"), dict):
        raise ValueError("it has no rates in it")
    if data.get("einsumx") != version("einsumx"):
        other = shown(data.get("einsumx")).strip("'")
        raise ValueError(f"einsumx {other} measured it, and this is {version('einsumx')}")
    rates: dict[str, float] = data["rates"]
    for name, value in rates.items():
        if name not in _NAMES or not is_rate(value):
            raise ValueError(f"{shown(value)} is no value for {shown(name)}")
    for field in fields(Key):
        if field.name not in data:
            raise ValueError(f"it does not say for which {field.name} it is")
    key = Key(**{field.name: data[field.name] for field in fields(Key)})
    _KEYS.check(key)
    return key, rates


def store_rates(key: Key, rates: Mapping[str, float]) -> Path:
    """Store rates, in one step, so that no other process reads half a file; returns where.

    Raises:
        OSError: the cache folder cannot be written.
    """
    path = key.path
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"einsumx": version("einsumx"), **asdict(key), "rates": dict(rates)}
    write_text(path, json.dumps(data, indent=1) + "\n")
    return path


def stored_files(backends: Collection[str] = (), device: str = "") -> list[Path]:
    """The files in the cache folder, all or those of some backends or of one kind of device, in order."""
    asked = {_word(name) for name in backends}
    found = []
    for path in sorted(cache_folder().glob(f"*{_SUFFIX}")):
        words = path.name.split("-")
        if len(words) == 4 and words[0] in (asked or words) and words[2] in ([_word(device)] if device else words):
            found.append(path)
    return found


def is_rate(value: Any) -> bool:
    """Whether a number can be a rate of some machine: finite and more than 0.

    >>> is_rate(2e-6), is_rate(0.0), is_rate(float("nan")), is_rate("fast")
    (True, False, False, False)
    """
    return type(value) in (int, float) and _LEAST <= value <= _MOST


_NAMES = frozenset(field.name for field in fields(Rates))
_LEAST, _MOST = 1e-30, 1e30
"""The bounds of rates of any machine, so that no cost is beyond a float."""

_MOST_BYTES = 1 << 16
"""Of a file of rates: a hundred times what one has."""

_KEYS = Fields({})
