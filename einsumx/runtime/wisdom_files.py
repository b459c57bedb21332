"""Files of wisdom: what was measured with which software on which machine, read strictly and merged under a lock.

There is one file per backend, version of the framework, kind of device and processor. Files are data from outside: a
finding selects among the planner's own candidates, and a file with any malformed field is not used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from einsumx.adapters.base import Adapter
from einsumx.errors import shown
from einsumx.planner.selection import Selection
from einsumx.runtime import calibration
from einsumx.runtime.wisdom_names import LONGEST_KEY, PREFIX

if TYPE_CHECKING:
    from einsumx.ir.strict import Fields

__all__ = [
    "MOST_FINDINGS",
    "Finding",
    "Origin",
    "check_finding",
    "difference",
    "merge",
    "origin_of",
    "path_of",
    "read_bundle",
    "read_file",
    "stored_files",
    "write_bundle",
]

_FORMAT = 1
_SUFFIX = ".json"

MOST_FINDINGS = 2048
"""The most findings of a file; the oldest are dropped."""

_MOST_BYTES = 1 << 22
"""The largest file that is written or read; a usual finding takes 300 bytes."""

_LARGEST_BUNDLE = 1 << 25
"""The largest file that is imported."""

_MOST_TRIED = 10**6

_LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"


@dataclass(frozen=True, slots=True)
class Finding:
    """What measuring the candidates of a contraction found.

    Attributes:
        selection: the fastest candidate.
        seconds: of the fastest candidate.
        estimated: seconds of the candidate that the cost model prefers.
        tried: how many candidates were measured.
        when: date and time in UTC, such as ``2026-01-31T12:00:00Z``.
    """

    selection: Selection
    seconds: float
    estimated: float
    tried: int
    when: str


@dataclass(frozen=True, slots=True)
class Origin:
    """The software and the machine that findings depend on.

    Attributes:
        format: of the file.
        einsumx: its version.
        backend: by name.
        device: the kind of device.
        framework: its version.
        processor: the model of the processor.
        cores: how many the machine has.
        blas: NumPy's BLAS; empty for other backends, and if NumPy is not loaded.
        accelerator: the model of the device; empty if it is a processor, and if the framework has not used it yet.
    """

    format: int
    einsumx: str
    backend: str
    device: str
    framework: str
    processor: str
    cores: int
    blas: str
    accelerator: str


# -- where findings hold ------------------------------------------------------------------------------------------


def origin_of(adapter: Adapter, device: str, *, loads: bool = True) -> Origin:
    """The software and the machine of this process.

    Args:
        adapter: the backend's.
        device: a device or kind of device; empty for the default.
        loads: whether NumPy may be imported to look at its BLAS.
    """
    from importlib.metadata import version

    key = calibration.key_of(adapter, device)
    cores = os.cpu_count() or 1
    blas = _blas() if adapter.module == "numpy" and (loads or "numpy" in sys.modules) else ""
    model = _line(adapter.device_model(device)) if adapter.module in sys.modules else ""
    return Origin(_FORMAT, version("einsumx"), key.backend, key.device, key.framework, _processor(), cores, blas, model)


def difference(stored: Origin, here: Origin) -> str:
    """How two origins differ, in words; empty if findings of one hold for the other.

    An unknown BLAS or accelerator fits any.

    >>> one = Origin(1, "1.0", "numpy", "cpu", "2.4.1", "AMD EPYC", 8, "", "")
    >>> difference(one, Origin(1, "1.0", "numpy", "cpu", "2.4.0", "AMD EPYC", 8, "openblas 0.3", ""))
    "it has framework '2.4.1', and here it is '2.4.0'"
    """
    parts = []
    for field in fields(Origin):
        theirs, ours = getattr(stored, field.name), getattr(here, field.name)
        if theirs != ours and not (field.name in ("blas", "accelerator") and "" in (theirs, ours)):
            parts.append(f"{field.name} {shown(theirs)}, and here it is {shown(ours)}")
    return f"it has {'; '.join(parts)}" if parts else ""


@lru_cache(maxsize=1)
def _processor() -> str:
    """The model of the processor, by Linux or by the platform."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return _line(value)
    except OSError:
        pass
    import platform

    return _line(platform.processor() or platform.machine())


def _blas() -> str:
    """NumPy's BLAS, its version, and the kind of processor that its kernels are for."""
    import numpy  # noqa: F401  # loads it
    from threadpoolctl import ThreadpoolController

    loaded = ThreadpoolController().select(user_api="blas").info()
    # Wheels bring their own library; SciPy's is another one.
    own = [info for info in loaded if "numpy" in str(info.get("filepath"))] or loaded
    names = ("internal_api", "version", "architecture")
    return _line(" ".join(str(own[0].get(name) or "") for name in names)) if own else ""


def _line(text: str) -> str:
    """A text as it can be a field: printable, in one line, and not too long."""
    return " ".join("".join(letter for letter in text if letter.isprintable()).split())[:200]


def path_of(origin: Origin) -> Path:
    """The file for findings of an origin; it need not exist."""
    from zlib import crc32

    words = map(calibration.file_word, (origin.backend, origin.framework, origin.device))
    machine = crc32(f"{origin.processor}/{origin.cores}".encode())
    return calibration.cache_folder() / f"{PREFIX}{'-'.join(words)}-{machine:08x}{_SUFFIX}"


def stored_files(backends: Collection[str] = (), device: str = "") -> list[Path]:
    """The files in the cache folder, sorted; all, or only those of some backends or of one kind of device."""
    selected = {calibration.file_word(name) for name in backends}
    found = []
    for path in sorted(calibration.cache_folder().glob(f"{PREFIX}*{_SUFFIX}")):
        words = path.name.split("-")
        kinds = [calibration.file_word(device)] if device else words
        if len(words) == 5 and words[1] in (selected or words) and words[3] in kinds:
            found.append(path)
    return found


# -- reading ------------------------------------------------------------------------------------------------------


def read_file(path: Path) -> tuple[Origin, dict[str, Finding]]:
    """The origin and the findings, by key, in a file.

    Raises:
        OSError: it does not exist, or cannot be read.
        ValueError: this version of einsumx did not write it.
    """
    return _part(_parsed(path, _MOST_BYTES))


def read_bundle(path: Path) -> list[tuple[Origin, dict[str, Finding]]]:
    """The contents of several files, from one that :func:`write_bundle` wrote.

    Raises:
        OSError: it does not exist, or cannot be read.
        ValueError: this version of einsumx did not write it.
    """
    data = _parsed(path, _LARGEST_BUNDLE)
    if not isinstance(data, dict) or set(data) != {"wisdom"} or not isinstance(data["wisdom"], list):
        raise ValueError("it has no wisdom in it")
    return [_part(part) for part in data["wisdom"]]


def _parsed(path: Path, most: int) -> Any:
    from einsumx.ir.strict import parse
    from einsumx.runtime.files import read_text

    return parse(read_text(path, most), most)


def _part(data: Any) -> tuple[Origin, dict[str, Finding]]:
    """The contents of one file, checked."""
    from einsumx.ir.strict import made

    if not isinstance(data, dict) or not isinstance(data.get("findings"), dict):
        raise ValueError("it has no findings in it")
    if data.get("format") != _FORMAT:
        raise ValueError(f"it has format {shown(data.get('format'))}, and this einsumx reads format {_FORMAT}")
    origin = made(Origin, {name: value for name, value in data.items() if name != "findings"})
    _fields().check(origin)
    if len(data["findings"]) > MOST_FINDINGS:
        raise ValueError(f"it has more than {MOST_FINDINGS} findings")
    return origin, {key: _finding(key, value) for key, value in data["findings"].items()}


def _finding(key: str, data: Any) -> Finding:
    from einsumx.ir.strict import made

    if not isinstance(data, dict):
        raise ValueError(f"{shown(data)} is not a JSON object for Finding")
    finding = made(Finding, {**data, "selection": made(Selection, data.get("selection"))})
    check_finding(key, finding)
    return finding


def check_finding(key: str, finding: Finding) -> None:
    """Check a finding for its types and bounds, and its path against the equation that the key begins with.

    Raises:
        ValueError: something is out of bounds.
    """
    if not _is_key(key):
        raise ValueError(f"{shown(key)} is not a key")
    _fields().check(finding)
    if not (finding.seconds > 0 and finding.estimated > 0 and 1 <= finding.tried <= _MOST_TRIED):
        raise ValueError(f"the times or the number of candidates are out of bounds for {shown(key)}")
    count = key.partition("->")[0].count(",") + 1
    if len(finding.selection.steps) > max(count - 1, 1):
        raise ValueError(f"there are too many steps for {shown(key)}")
    if finding.selection.path is not None and not _is_path(finding.selection.path, count):
        raise ValueError(f"the path does not fit {shown(key)}")


def _is_key(text: str) -> bool:
    import re

    return "->" in text and re.fullmatch(f"{_LINE}{{1,{LONGEST_KEY}}}", text) is not None


def _is_path(path: tuple[tuple[int, ...], ...], count: int) -> bool:
    """Whether a path contracts ``count`` operands pairwise."""
    if len(path) != max(count - 1, 1):
        return False
    for left, step in zip(range(count, 0, -1), path):
        if len(step) != min(count, 2) or len(set(step)) < len(step) or max(step) >= left:
            return False
    return True


@lru_cache(maxsize=1)
def _fields() -> Fields:
    from einsumx.ir.strict import Fields

    return Fields(
        {
            **dict.fromkeys([field.name for field in fields(Origin)], f"{_LINE}{{0,300}}"),
            "device": r"\w{1,50}",
            "steps": r"[A-Za-z0-9 .,:\-+*/()]{0,500}",
            "when": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
        }
    )


# -- writing ------------------------------------------------------------------------------------------------------


def merge(origin: Origin, findings: Mapping[str, Finding], patience: float) -> dict[str, Finding]:
    """Add findings to the file of their origin, and return all in it. Of two with one key the newer stays.

    A file that cannot be used is replaced.

    Args:
        origin: of this process.
        findings: by key.
        patience: how many seconds to wait for other processes that write.

    Raises:
        OSError: the file cannot be written; a TimeoutError if others keep it locked.
        ValueError: something that is no file has its name.
    """
    from einsumx.runtime.files import write_text

    path = path_of(origin)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _folder_lock(path.parent, patience):
        try:
            stored, merged = read_file(path)
            if difference(stored, origin):
                merged = {}
        except (OSError, ValueError):
            merged = {}
        for key, finding in findings.items():
            if key not in merged or merged[key].when <= finding.when:
                merged[key] = finding
        text, merged = _bounded(origin, merged)
        write_text(path, text)
    return merged


def _bounded(origin: Origin, findings: Mapping[str, Finding]) -> tuple[str, dict[str, Finding]]:
    """The text of a file with as many of the newest findings as it may have, and these, the oldest first."""
    newest = sorted(findings, key=lambda key: findings[key].when)[-MOST_FINDINGS:]
    while True:
        kept = {key: findings[key] for key in newest}
        text = _text(origin, kept)
        if len(text) <= _MOST_BYTES:
            return text, kept
        newest = newest[len(newest) // 4 + 1 :]


def _text(origin: Origin, findings: Mapping[str, Finding]) -> str:
    """A file as JSON with a line per finding. It is ASCII, so that its characters count its bytes."""
    import json

    head = json.dumps(asdict(origin), indent=1).removesuffix("\n}")
    lines = [f"  {json.dumps(key)}: {json.dumps(asdict(findings[key]))}" for key in sorted(findings)]
    return "\n".join([f'{head},\n "findings": {{', ",\n".join(lines), " }", "}\n"])


def write_bundle(path: Path, parts: Collection[tuple[Origin, Mapping[str, Finding]]]) -> None:
    """Write the contents of several files into one.

    Raises:
        OSError: it cannot be written.
    """
    from einsumx.runtime.files import write_text

    texts = ",\n".join([_text(origin, findings) for origin, findings in parts])
    write_text(path, f'{{"wisdom": [\n{texts}]}}\n')


@contextmanager
def _folder_lock(folder: Path, patience: float) -> Iterator[None]:
    """Hold the lock that whoever writes wisdom to a folder takes; a process that hangs cannot make others hang.

    Raises:
        TimeoutError: others held it for ``patience`` seconds.
        OSError: the file of the lock cannot be opened.
        ValueError: it is not a regular file.
    """
    from einsumx.runtime.files import close, descriptor_of, keep, locked

    deadline = monotonic() + patience
    descriptor = keep(descriptor_of(folder / f"{PREFIX}lock", os.O_RDWR | os.O_CREAT))
    try:
        while not locked(descriptor):
            if monotonic() >= deadline:
                raise TimeoutError(f"another process has been writing to {folder} for {patience:g} seconds")
            sleep(0.01)
        yield
    finally:
        close(descriptor)
