"""Rates measured on this machine: the files that store them, and the traits that planning uses.

``einsumx calibrate`` (:mod:`einsumx.cli.calibrate`) measures them. A file applies to one backend, kind of device,
framework version and number of threads; its name says which.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from einsumx.adapters.base import Adapter
from einsumx.adapters.gpus import gpu_rates
from einsumx.adapters.rates import Key, Rates, is_rate
from einsumx.adapters.traits import Traits
from einsumx.errors import shown
from einsumx.runtime.threads import get_num_threads

__all__ = [
    "cache_folder",
    "calibrated",
    "declared",
    "file_word",
    "key_of",
    "path_of",
    "read_rates",
    "store_rates",
    "stored_files",
]

_SUFFIX = "_threads.json"
_UNNAMED = "default"

_MOST_BYTES = 1 << 16
"""The largest file that is read; one of einsumx's own is a hundred times smaller."""


def file_word(text: str) -> str:
    """A part of a file's name."""
    return re.sub(r"[^\w.+]", "_", text)


def path_of(key: Key) -> Path:
    """The file for a key; it need not exist."""
    words = map(file_word, (key.backend, key.framework, key.device))
    return cache_folder() / f"{'-'.join(words)}-{key.threads}{_SUFFIX}"


def key_of(adapter: Adapter, device: str) -> Key:
    """The key of calibrations that apply to ``adapter`` on ``device`` in this process."""
    from importlib.metadata import PackageNotFoundError, version

    package = adapter.module.partition(".")[0]
    try:
        framework = version(package) if package else ""
    except (PackageNotFoundError, ValueError):  # the distribution has another name, or is not installed
        framework = str(getattr(sys.modules.get(package), "__version__", ""))
    return Key(adapter.name, device.partition(":")[0] or _UNNAMED, framework or "unknown", get_num_threads())


def cache_folder() -> Path:
    """The folder of calibrations: ``EINSUMX_CACHE``, or one where the platform has its caches.

    Raises:
        RuntimeError: that is nowhere, because the user has no home.
    """
    configured = os.environ.get("EINSUMX_CACHE")
    if configured:
        return Path(configured)
    match sys.platform:
        case "win32":
            caches = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        case "darwin":
            caches = Path.home() / "Library" / "Caches"
        case _:
            caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if not caches.is_absolute():
        raise RuntimeError("the home of the user is not known; set EINSUMX_CACHE to a folder")
    return caches / "einsumx"


def declared(adapter: Adapter, device: str) -> Traits:
    """The traits that an adapter declares for a device, with the rates of its GPU if the framework is using one."""
    traits = adapter.traits("" if device == _UNNAMED else device)
    gpu = adapter.gpu(device) if adapter.measured_plans and adapter.module in sys.modules else None
    return traits if gpu is None else replace(traits, rates=gpu_rates(gpu, traits.rates))


@lru_cache(maxsize=256)
def calibrated(adapter: Adapter, device: str) -> Traits:
    """The traits that the planner uses: the adapter's, with the stored rates of this machine if there are any.

    Files are read once per process, so that its plans do not change. An unusable file is ignored with a warning.
    """
    traits = declared(adapter, device)
    if not adapter.measured_plans:
        return traits
    # An array without a device name is on the framework's default device, for most the CPU.
    for kind in (device,) if device else ("", "cpu"):
        path = None
        try:
            if not cache_folder().is_dir():
                return traits
            key = key_of(adapter, kind)
            path = path_of(key)
            stored_key, rates = read_rates(path)
            if stored_key != key:
                raise ValueError("its content does not match its name")
            # A rate of 0 forbids the framework's own einsum, however fast it is.
            forbidden = {name: 0.0 for name in ("native", "sweep") if not getattr(traits.rates, name)}
            found: dict[str, Any] = {**rates, **forbidden}
            return replace(traits, rates=replace(traits.rates, **found))
        except FileNotFoundError:
            continue
        except (OSError, RuntimeError, ValueError) as error:
            warnings.warn(
                f"einsumx ignores the calibration in {path or 'its cache folder'}: {error}. `einsumx calibrate "
                f"--backend {adapter.name}` measures anew, `einsumx calibrate --reset` removes it",
                RuntimeWarning,
                stacklevel=2,
            )
            return traits
    return traits


def read_rates(path: Path) -> tuple[Key, dict[str, float]]:
    """The key and the rates, by name, in a file.

    Raises:
        OSError: it does not exist, or cannot be read.
        ValueError: this version of einsumx did not write it.
    """
    from importlib.metadata import version

    from einsumx.ir.strict import Fields, parse
    from einsumx.runtime.files import read_text

    data = parse(read_text(path, _MOST_BYTES))
    if not isinstance(data, dict) or not isinstance(data.get("rates"), dict):
        raise ValueError("it has no rates in it")
    if data.get("einsumx") != version("einsumx"):
        other = shown(data.get("einsumx")).strip("'")
        raise ValueError(f"einsumx {other} measured it, and this is {version('einsumx')}")
    rates: dict[str, float] = data["rates"]
    names = {field.name for field in fields(Rates)}
    for name, value in rates.items():
        if name not in names or not is_rate(value):
            raise ValueError(f"{shown(value)} is no value for {shown(name)}")
    for field in fields(Key):
        if field.name not in data:
            raise ValueError(f"it does not say for which {field.name} it is")
    key = Key(**{field.name: data[field.name] for field in fields(Key)})
    Fields({}).check(key)
    return key, rates


def store_rates(key: Key, rates: Mapping[str, float]) -> Path:
    """Store rates, and return the file. It is written atomically, so that other processes never read half of it.

    Raises:
        OSError: the cache folder cannot be written.
    """
    import json
    from importlib.metadata import version

    from einsumx.runtime.files import write_text

    path = path_of(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"einsumx": version("einsumx"), **asdict(key), "rates": dict(rates)}
    write_text(path, json.dumps(data, indent=1) + "\n")
    return path


def stored_files(backends: Collection[str] = (), device: str = "") -> list[Path]:
    """The files in the cache folder, sorted; all, or only those of some backends or of one kind of device."""
    selected = {file_word(name) for name in backends}
    files = []
    for path in sorted(cache_folder().glob(f"*{_SUFFIX}")):
        words = path.name.split("-")
        if (
            len(words) == 4
            and words[0] in (selected or words)
            and words[2] in ([file_word(device)] if device else words)
        ):
            files.append(path)
    return files
