"""Rates measured on this machine, and the traits that planning uses.

``einsumx calibrate`` (:mod:`einsumx.cli.rate_measurement`) measures them. The store has them under the
number of threads.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from einsumx.adapters.base import Adapter
from einsumx.errors import MalformedError, shown
from einsumx.host.environment import has_store
from einsumx.imports import LazyModule
from einsumx.ir.algebra import PLUS_TIMES, Algebra
from einsumx.ir.contraction import Place
from einsumx.ir.rates import Rates, is_rate
from einsumx.ir.traits import Traits

if TYPE_CHECKING:
    from einsumx.adapters import gpus
    from einsumx.host import threads
    from einsumx.ir import strict
    from einsumx.measuring import store
else:
    gpus, threads = LazyModule("einsumx.adapters.gpus"), LazyModule("einsumx.host.threads")
    store = LazyModule("einsumx.measuring.store")  # most processes have no rates
    strict = LazyModule("einsumx.ir.strict")


def declared(adapter: Adapter, device: str) -> Traits:
    """The traits that an adapter declares for a device, with the rates of its GPU if the framework is using one."""
    traits = adapter.traits("" if device == "default" else device)
    gpu = adapter.gpu(device) if adapter.measured_plans and adapter.module in sys.modules else None
    return traits if gpu is None else replace(traits, rates=gpus.gpu_rates(gpu, traits.rates))


@lru_cache(maxsize=256)
def place_of(algebra: Algebra, adapter: Adapter, device: str) -> Place:
    """The place where contractions in an algebra are computed, with the traits that the planner uses.

    Those are the adapter's, with the stored rates of this machine if there are any, which are those of plus and times.
    Rates are read once per process, so that its plans do not change.

    Raises:
        BackendError: the framework lacks the functions of the algebra.
    """
    if algebra.is_plain:
        return Place(adapter.name, device, _calibrated(adapter, device))
    return Place(adapter.name, device, algebra.traits(adapter, "" if device == "default" else device))


def calibrated(adapter: Adapter, device: str) -> Traits:
    """The traits that the planner uses for sums of products."""
    return place_of(PLUS_TIMES, adapter, device).traits


def _calibrated(adapter: Adapter, device: str) -> Traits:
    traits = declared(adapter, device)
    if not adapter.measured_plans or not has_store():
        return traits
    # An array without a device name is on the framework's default device, for most the CPU.
    for kind in (device,) if device else ("", "cpu"):
        found = store.read_fitting("rates", read_rates, adapter, kind)
        found = [row for row in found if row.key == str(threads.get_num_threads())]
        if found:
            # A rate of 0 forbids the framework's own einsum, however fast it is.
            forbidden = {name: 0.0 for name in ("native", "sweep") if not getattr(traits.rates, name)}
            rates: dict[str, Any] = {**found[-1].value, **forbidden}
            return replace(traits, rates=replace(traits.rates, **rates))
    return traits


def read_rates(key: str, text: str) -> dict[str, float]:
    """The rates in a row of the store.

    Raises:
        MalformedError: they are malformed.
    """
    rates = strict.parse(text)
    if not key.isdecimal() or not isinstance(rates, dict):
        raise MalformedError(f"{shown(text)} are not rates for {shown(key)} threads")
    check_rates(rates)
    return rates


def check_rates(rates: Mapping[str, Any]) -> None:
    """Raise MalformedError if there is no rate of one of these names, or a value is none."""
    names = {field.name for field in fields(Rates)}
    for name, value in rates.items():
        if name not in names or not is_rate(value):
            raise MalformedError(f"{shown(value)} is not a value for {shown(name)}")


def store_rates(adapter: Adapter, device: str, rates: Mapping[str, float]) -> None:
    """Store the rates by name of a backend on a device, for the number of threads of this process.

    Raises:
        OSError: the store cannot be written.
        RuntimeError: there is no cache folder.
    """
    import json

    store.write(
        "rates", [store.Row(store.origin_of(adapter, device), str(threads.get_num_threads()), json.dumps(dict(rates)))]
    )
