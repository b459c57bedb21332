"""Wisdom: what measuring found, kept in memory and, between processes, in the store.

A process reads the findings for a backend and kind of device when it first needs some, and stores each that it makes.
``EINSUMX_WISDOM=0`` keeps them in memory alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from einsumx.host.environment import has_store, switch
from einsumx.imports import LazyModule
from einsumx.measuring.effort import is_frozen

if TYPE_CHECKING:
    from collections.abc import Collection

    from einsumx import log as logs
    from einsumx.adapters.base import Adapter
    from einsumx.measuring import findings, store
    from einsumx.measuring.findings import Finding
else:
    # Most processes have no wisdom.
    findings, store = LazyModule("einsumx.measuring.findings"), LazyModule("einsumx.measuring.store")
    logs = LazyModule("einsumx.log")


class _Known:
    """The findings for a backend on a kind of device.

    Attributes:
        found: by key.
        equations: those that have findings, as keys begin with them.
    """

    __slots__ = ("equations", "found")

    def __init__(self) -> None:
        self.found: dict[str, Finding] = {}
        self.equations: set[str] = set()

    def add(self, key: str, finding: Finding) -> None:
        """Add a finding; the oldest ones are dropped if there are too many."""
        self.found.pop(key, None)
        self.found[key] = finding
        self.equations.add(key.partition(";")[0])
        for old in list(self.found)[: -store.MOST_ROWS] if len(self.found) > store.MOST_ROWS else ():
            self.found.pop(old, None)


_known: dict[tuple[Adapter, str], _Known] = {}
"""By adapter and kind of device."""

_failures: list[str] = []
"""Why a finding could not be stored. Storing may have taken seconds, so it is not tried again."""


def _places(adapter: Adapter, device: str) -> list[_Known]:
    """The findings for a device; for the default one, also those for the CPU."""
    kinds = (device.partition(":")[0],) if device else ("", "cpu")
    return [_known.get((adapter, kind)) or _loaded(adapter, kind) for kind in kinds]


def equations(adapter: Adapter, device: str) -> Collection[str]:
    """The equations with findings, as :func:`einsumx.measuring.findings.equation_text` has them."""
    if not adapter.measured_plans:
        return ()
    known = _known.get((adapter, device)) if device else None
    if known is not None:
        return known.equations if known.found else ()
    return [text for known in _places(adapter, device) if known.found for text in known.equations]


def find(adapter: Adapter, device: str, key: str) -> Finding | None:
    """The finding for a key, of this process or of earlier ones.

    Args:
        adapter: the backend's.
        device: where the operands are; empty for the default, which looks for the CPU's too.
        key: from :func:`einsumx.measuring.findings.key_of`.
    """
    for known in _places(adapter, device):
        finding = known.found.get(key)
        if finding is not None:
            return finding
    return None


def _loaded(adapter: Adapter, kind: str) -> _Known:
    """The findings for a kind of device, with those of the store."""
    known = _Known()
    try:
        if _is_kept(adapter) and has_store():
            for row in store.read_fitting("plans", _read_finding, adapter, kind):
                known.add(row.key, row.value)
    finally:  # a warning may be an error, but only once
        known = _known.setdefault((adapter, kind), known)
    return known


def _read_finding(key: str, text: str) -> Finding:
    """As in the module of findings, which is imported for the first one."""
    return findings.read_finding(key, text)


def _is_kept(adapter: Adapter) -> bool:
    """Whether findings are stored. A backend without a module stands for many libraries."""
    return switch("EINSUMX_WISDOM") is not False and bool(adapter.module)


def record(adapter: Adapter, device: str, key: str, finding: Finding) -> None:
    """Keep a finding, and store it. If it cannot be stored, this is logged, and the process stores no others.

    Nothing is kept while choices are frozen.

    Raises:
        ValueError: the finding or the key is malformed.
    """
    text = findings.text_of(finding)
    findings.read_finding(key, text)
    if is_frozen():
        return
    kind = device.partition(":")[0]
    known = _known.get((adapter, kind)) or _loaded(adapter, kind)
    known.add(key, finding)
    if _failures or not _is_kept(adapter):
        return
    try:
        store.write("plans", [store.Row(store.origin_of(adapter, kind), key, text)])
    except TimeoutError:  # of a signal handler
        raise
    except (OSError, RuntimeError, ValueError) as error:
        _failures.append(str(error))
        logs.log.warning("einsumx keeps its measurements only in memory: %s", error)
