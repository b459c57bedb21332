"""Calibration: what is measured, and which stored rates the planner uses."""

import json
import os
from dataclasses import asdict, replace
from math import prod

import numpy as np
import pytest

import einsumx
from einsumx.adapters.base import Adapter
from einsumx.adapters.registry import get_backend
from einsumx.cli.main import main
from einsumx.cli.rate_measurement import calibrate, measure_rates
from einsumx.errors import EinsumxError
from einsumx.ir.ops import Copy, Matmul, Native, Reshape, Transpose
from einsumx.ir.rates import Rates
from einsumx.ir.traits import Traits
from einsumx.measuring import steady, store
from einsumx.measuring.calibration import calibrated, place_of, store_rates

pytestmark = pytest.mark.usefixtures("quiet_machine")

MACHINE = Rates(
    call=3e-6,
    view=0.4e-6,
    matrix=0.5e-6,
    gemm=40e9,
    stream=11e9,
    copy=6e9,
    permute=2e9,
    run=9e-9,
    native=0.7e9,
    sweep=2e9,
)


class Simulated(Adapter):
    """A framework whose calls take exactly the time that the rates of a machine say, on a clock of its own."""

    name = "simulated"
    module = "simulated"
    install = ""

    def __init__(self, machine=MACHINE, **traits):
        self.machine = machine
        self.cpu = Traits(rates=replace(Rates(), native=traits.pop("native", 1e8), sweep=1e9), **traits)
        self.now = 0.0

    def from_numpy(self, array, device=""):
        return array

    def kernel(self, op, shapes, dtype):
        result = op.result_shape(shapes)
        seconds = self.seconds(op, shapes, 4 * prod(result), dtype)

        def run(*arrays):
            self.now += seconds
            if isinstance(op, Transpose):
                return arrays[0].transpose(op.axes)
            return np.broadcast_to(np.float32(0), result)

        return run

    def seconds(self, op, shapes, written, dtype):
        machine = self.machine
        gemm = {"float64": machine.double, "float16": machine.half}.get(dtype, machine.gemm)
        read = sum(4 * prod(shape) for shape in shapes)
        match op:
            case Transpose() if self.cpu.strided:
                return 0.0
            case Reshape():
                return machine.view
            case Transpose() | Copy():
                # Of a permuting copy, the kept innermost axis is the last of the longest runs.
                keeps = op.axes[-1] == len(op.axes) - 1 if isinstance(op, Transpose) else shapes[0][-1] in (1000, 4, 32)
                last = shapes[0][-1]
                if not keeps:
                    return machine.call + (read + written) / machine.permute
                runs = prod(shapes[0][:-1]) * machine.run if last < 100 else 0.0
                return machine.call + (read + written) / machine.copy + runs
            case Matmul() if shapes[1][-1] == 1:
                return machine.call + read / machine.stream
            case Matmul():
                work = prod(shapes[0]) * shapes[1][-1] / gemm
                return machine.call + prod(shapes[0][:-2]) * machine.matrix * (len(shapes[0]) > 2) + work
            case Native() if len(shapes[0]) == 2:
                return machine.call + prod(shapes[0]) / machine.sweep
            case Native():
                return machine.call + prod(shapes[0]) * shapes[1][1] / machine.native
            case _:
                return machine.call + (read + written) / machine.stream


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache folder, and a process that has not looked into it yet."""
    path = tmp_path / "cache"
    monkeypatch.setenv("EINSUMX_CACHE", str(path))
    place_of.cache_clear()
    einsumx.cache_clear()
    yield path
    place_of.cache_clear()
    einsumx.cache_clear()


NUMPY = get_backend("numpy")


def stored(**rates):
    """Store rates for NumPy here."""
    store_rates(NUMPY, "cpu", rates)


# -- what is measured -------------------------------------------------------------------------------------------


@pytest.fixture
def measure(monkeypatch):
    """Measures the rates of a simulated framework by its own clock, with few repeats, as no time varies."""

    def rates(adapter):
        monkeypatch.setattr("einsumx.cli.rate_measurement.MOST", 9)
        monkeypatch.setattr(steady, "rest", lambda: None)
        monkeypatch.setattr(steady, "perf_counter", lambda: adapter.now)
        return measure_rates(adapter)

    return rates


def measurable(machine):
    """The rates that a calibration measures."""
    return {name: rate for name, rate in asdict(machine).items() if rate and name != "tile"}


@pytest.mark.parametrize("arrays", ["strided", "packed"])
def test_the_rates_of_a_machine_that_keeps_to_them_are_found(arrays, measure):
    adapter = Simulated(arrays=arrays)
    found = measure(adapter)
    assert found == pytest.approx(measurable(MACHINE), rel=0.03)


def test_launching_on_a_gpu_and_waiting_for_it_count_for_no_rate(measure, monkeypatch):
    monkeypatch.setattr("einsumx.cli.rate_measurement.LARGER", 2)
    gpu = replace(MACHINE, double=20e9, half=300e9, tile=32)

    class SimulatedGpu(Simulated):
        def synchronize(self, array):
            self.now += 5e-5

    adapter = SimulatedGpu(gpu)
    adapter.cpu = replace(adapter.cpu, rates=replace(gpu, gemm=1e9, double=1e9, half=1e9))
    assert measure(adapter) == pytest.approx(measurable(gpu), rel=0.05)


def test_rates_that_come_out_as_none_are_left_out_and_a_kernel_that_must_not_be_used_is_not_measured(measure):
    adapter = Simulated(replace(MACHINE, matrix=0.0, run=-1e-9, stream=-1e12), native=0.0)
    found = measure(adapter)
    assert set(found) == {"call", "view", "gemm", "copy", "permute", "sweep"}


@pytest.mark.long
@pytest.mark.parametrize("name", ["numpy", "torch", "mxnet", "jax"])
def test_real_rates_are_plausible(name, monkeypatch):
    if not einsumx.backends()[name]:
        pytest.skip(f"needs {name}")
    monkeypatch.setattr("einsumx.cli.rate_measurement.PASSES", 1)
    monkeypatch.setattr("einsumx.cli.rate_measurement.SECONDS", 0.0)
    monkeypatch.setattr("einsumx.cli.rate_measurement.LARGE", 512)
    monkeypatch.setattr("einsumx.cli.rate_measurement.LONG", 0.0)
    found = measure_rates(get_backend(name))
    declared = asdict(get_backend(name).traits("cpu").rates)
    # On a busy machine differences of small times may come out as none; large work always takes time.
    assert {"gemm", "stream", "copy", "permute"} <= set(found) <= set(declared)
    assert [rate for rate in found if not declared[rate] / 1e4 < found[rate] < declared[rate] * 1e4] == []


# -- what the planner reads ---------------------------------------------------------------------------------------


def test_without_a_calibration_the_declared_rates_are_read():
    assert calibrated(NUMPY, "cpu") is NUMPY.traits("cpu")
    assert calibrated(NUMPY, "") is NUMPY.traits("")


def test_stored_rates_replace_the_declared_ones_and_nothing_else():
    stored(gemm=1e9, call=5e-6)
    found = calibrated(NUMPY, "cpu")
    assert found == replace(NUMPY.cpu, rates=replace(NUMPY.cpu.rates, gemm=1e9, call=5e-6))
    assert calibrated(NUMPY, "") == found  # no device named: the CPU


def test_a_process_keeps_the_rates_that_it_first_read():
    before = calibrated(NUMPY, "cpu")
    stored(gemm=1e9)
    assert calibrated(NUMPY, "cpu") is before


def test_plans_follow_stored_rates():
    """Where calls cost a second, none is made that can be avoided."""
    case = "abc,cbd->ad", (9, 6, 8), (8, 6, 9)
    assert "einsum" not in str(einsumx.plan(*case))
    einsumx.cache_clear()
    place_of.cache_clear()
    stored(call=1.0)
    assert "einsum" in str(einsumx.plan(*case))


def test_a_stored_plan_is_the_same_where_no_rates_are_stored(monkeypatch):
    case = "abc,cbd->ad", (9, 6, 8), (8, 6, 9)
    stored(call=1.0)
    plan = einsumx.plan(*case)
    text = plan.to_json()
    monkeypatch.setenv("EINSUMX_CACHE", os.devnull)
    einsumx.cache_clear()
    place_of.cache_clear()
    assert einsumx.plan(*case) != plan
    assert einsumx.Plan.from_json(text) == plan


def test_a_framework_s_own_einsum_that_must_not_be_used_stays_unused(monkeypatch):
    monkeypatch.setattr(NUMPY, "cpu", replace(NUMPY.cpu, rates=replace(NUMPY.cpu.rates, native=0.0)))
    stored(native=1e12)
    assert calibrated(NUMPY, "cpu").rates.native == 0.0


def test_a_calibration_is_for_the_number_of_threads():
    usual = einsumx.get_num_threads()
    einsumx.set_num_threads(usual + 1)
    stored(gemm=1e9)
    einsumx.set_num_threads(usual)
    assert calibrated(NUMPY, "cpu") is NUMPY.cpu


def test_a_folder_that_cannot_be_written_is_an_error_that_says_so(folder, monkeypatch):
    monkeypatch.setattr("einsumx.cli.rate_measurement.measure_rates", lambda *_, **__: {"gemm": 1e9})
    folder.write_text("a file in its place")
    with pytest.raises(EinsumxError, match="the calibration cannot be stored"):
        calibrate(NUMPY)


def test_nothing_is_stored_where_nothing_was_plausible(folder, monkeypatch):
    monkeypatch.setattr("einsumx.cli.rate_measurement.measure_rates", lambda *_, **__: {})
    with pytest.raises(EinsumxError, match="no measured rate of numpy is plausible"):
        calibrate(NUMPY)
    assert not folder.exists()


# -- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch):
    """What the command measures, in place of seconds of work."""
    found = {"call": 2e-6, "gemm": 123e9, "permute": 1e9}
    monkeypatch.setattr("einsumx.cli.rate_measurement.measure_rates", lambda *_, **__: found)
    return found


def printed(capsys, *arguments):
    assert main(["calibrate", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_calibrate_stores_what_it_measures_and_shows_a_line_for_every_rate(capsys, folder, measured):
    assert main(["calibrate", "--backend", "numpy"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"numpy {np.__version__} on cpu, ")
    assert str(folder) in text
    assert calibrated(NUMPY, "cpu").rates == replace(NUMPY.cpu.rates, **measured)
    lines = {words[0]: words for words in map(str.split, text.splitlines()) if words}
    declared = asdict(NUMPY.cpu.rates)
    assert [name for name, rate in declared.items() if rate and name not in (*lines, "tile")] == []
    assert lines["call"][:5] == ["call", "1.00", "µs", "2.00", "µs"]
    assert lines["stream"][:4] == ["stream", f"{declared['stream'] / 1e9:.0f}", "GB/s", "bytes"]


def test_calibrate_prints_json_whose_every_key_its_help_describes(capsys, folder, measured):
    found = printed(capsys, "--backend", "numpy")
    (entry,) = found["calibrations"]
    assert found["folder"] == str(folder)
    rates = {"declared": asdict(NUMPY.cpu.rates), "measured": measured}
    origin = {**store.origin_of(NUMPY, "cpu")._asdict(), "threads": einsumx.get_num_threads()}
    assert entry == {**origin, **rates, "disturbances": [], "stored": True}
    with pytest.raises(SystemExit):
        main(["calibrate", "--help"])
    text = capsys.readouterr().out
    assert [key for key in {*found, *entry} if key not in text] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backend", "numpi"), "no backend is called 'numpi'"),
        (("--backend", "array_api"), "array_api serves many libraries"),
    ],
)
def test_what_cannot_be_calibrated_ends_in_status_2(capsys, arguments, message):
    assert main(["calibrate", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"einsumx calibrate: error: {message}")
