"""Settings of the frameworks under test, made before any of them is imported."""

import os

import hypothesis
import pytest

# One thread each, as the tests run beside each other and on arrays too small to share.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# An operation that fails does so where it is called, and not at some later, unrelated wait.
os.environ.setdefault("MXNET_ENGINE_TYPE", "NaiveEngine")
# JAX has several devices of the CPU, among which blocks are shared out.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
# Two runs of one commit say the same; a first call may take long, as it imports a framework.
# Plans are those of the rates that adapters declare, also where somebody has calibrated or measured.
os.environ["EINSUMX_CACHE"] = os.devnull
for name in ("EINSUMX_EFFORT", "EINSUMX_FREEZE", "EINSUMX_WISDOM"):
    os.environ.pop(name, None)
hypothesis.settings.register_profile("einsumx", derandomize=True, deadline=None)
hypothesis.settings.load_profile("einsumx")


@pytest.fixture
def quiet_machine(monkeypatch):
    """A machine on which nothing disturbs a measurement, and no thread spins after a product."""
    from einsumx.runtime import machine

    monkeypatch.setattr(machine, "_now", lambda: machine.Reading(None, {}, 0.0, 2))
    monkeypatch.setattr(machine, "scatter", lambda times: 1.0)
    monkeypatch.setattr(machine, "sleep", lambda seconds: None)
