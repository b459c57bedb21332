"""Rates that were measured on this machine, and stored: the files, and the traits that planning reads for them.

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
from dataclasses import asdict, fields, replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from einsumx.adapters.base import Adapter
from einsumx.adapters.rates import Key, Rates, is_rate
from einsumx.adapters.traits import Traits
from einsumx.errors import shown
from einsumx.ir.strict import Fields, parse
from einsumx.runtime.files import read_text, write_text
from einsumx.runtime.threads import get_num_threads

__all__ = [
    "cache_folder",
    "calibrated",
    "declared_rates",
    "key_of",
    "path_of",
    "read_rates",
    "store_rates",
    "stored_files",
]

_SUFFIX = "_threads.json"
_UNNAMED = "default"


def _word(text: str) -> str:
    """A part of a file's name."""
    return re.sub(r"[^\w.+]", "_", text)


def path_of(key: Key) -> Path:
    """The file for a key, whether or not it is there."""
    words = map(_word, (key.backend, key.framework, key.device))
    return cache_folder() / f"{'-'.join(words)}-{key.threads}{_SUFFIX}"


def key_of(adapter: Adapter, device: str) -> Key:
    """What a calibration must be for, to hold for ``adapter`` on ``device`` in this process."""
    package = adapter.module.partition(".")[0]
    try:
        framework = version(package) if package else ""
    except (PackageNotFoundError, ValueError):  # its distribution has another name, or it is not installed
        framework = str(getattr(sys.modules.get(package), "__version__", ""))
    return Key(adapter.name, device.partition(":")[0] or _UNNAMED, framework or "unknown", get_num_threads())


def cache_folder() -> Path:
    """Where calibrations are stored: ``EINSUMX_CACHE``, or a folder where the platform has caches.

    Raises:
        RuntimeError: the user has no home, and so the platform no such folder.
    """
    own = os.environ.get("EINSUMX_CACHE")
    if own:
        return Path(own)
    from platformdirs import user_cache_path

    folder = user_cache_path("einsumx", appauthor=False, opinion=False)
    if not folder.is_absolute():
        raise RuntimeError("the home of the user is not known; set EINSUMX_CACHE to a folder")
    return folder


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
            path = path_of(key)
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
    path = path_of(key)
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


_NAMES = frozenset(field.name for field in fields(Rates))

_MOST_BYTES = 1 << 16
"""Of a file of rates: a hundred times what one has."""

_KEYS = Fields({})
