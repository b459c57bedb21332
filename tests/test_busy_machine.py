"""Noise counts as a tie; where other work disturbs a measurement, it is said, and nothing is stored."""

import json
import re
from types import SimpleNamespace

import pytest

from einsumx.adapters.registry import get_backend
from einsumx.cli import rate_measurement, side_by_side
from einsumx.cli.commands.compare import print_comparison
from einsumx.cli.main import main
from einsumx.cli.side_by_side import Absent, Measured, Problem
from einsumx.measuring import machine, steady, store
from einsumx.measuring.calibration import calibrated, place_of, read_rates
from einsumx.measuring.machine import CpuTimes, cpu_times, disturbances, scatter, watched
from einsumx.measuring.steady import turn

SMALL = ("compare", "ab,bc->ac", "30,40", "40,20", "--backend", "numpy", "--rounds", "1")


def row(native, *disturbances, name="numpy"):
    """A row in which einsumx takes a second."""
    problem = Problem("ij->i", ((2, 3),), "float32")
    return Measured(name, name, "2", problem, native, 1.0, 3, 1.0, 0.25, "", (), "", disturbances)


# -- ties -------------------------------------------------------------------------------------------------------


def test_differences_below_a_tenth_are_ties(capsys):
    verdicts = {5.0: "faster", 1.11: "faster", 1.09: "tie", 0.92: "tie", 0.9: "slower", None: ""}
    rows = [row(native) for native in verdicts]
    assert [row.verdict for row in rows] == [*verdicts.values()]
    print_comparison(rows, [rows[0].problem])
    text = capsys.readouterr().out
    assert "WARNING" not in text
    assert "onclusive" not in text
    assert all(f" {cell} " in text for cell in ("5.00x", "1.11x", "0.90x"))
    assert text.count(" tie ") == 2


def test_the_summary_says_what_is_gained_on_each_framework(capsys):
    rows = [row(8.0), row(2.0), row(1.2, name="torch"), row(0.9, name="torch"), row(0.5, name="jax")]
    print_comparison(rows, [rows[0].problem])
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "On this machine, einsumx is 4.00 times as fast as numpy's own einsum, as fast as torch's own einsum, "
        "0.50 times as fast as jax's own einsum (geometric means)." in text
    )


# -- other programs ---------------------------------------------------------------------------------------------

STAT = """cpu  900 0 100 3000 0 0 0 0 0 0
cpu0 {} 0 0 {} 0 0 0 {} 0 0
cpu1 {} 0 0 {} 0 0 0 {} 0 0
cpu2 999999 0 0 0 0 0 0 0 0 0
intr 12345 0 0
"""
"""As in /proc/stat, in hundredths of a second: user, idle and stolen time of two cores, and a third, foreign core."""

START = (5000, 7000, 3, 6000, 6000, 2)


def times(*ticks, own=0.0):
    return cpu_times(STAT.format(*ticks), {0, 1}, 0.01, own)


def later(*ticks, own=0.0):
    """The times when so many more ticks have passed than at the start."""
    return times(*(start + more for start, more in zip(START, ticks)), own=own)


OTHERS = "other programs or virtual machines used 50% of the processor"


@pytest.mark.parametrize(
    ("ticks", "own", "reasons"),
    [
        ((1000, 0, 0, 0, 1000, 0), 10.0, []),
        ((0, 1000, 0, 0, 1000, 0), 0.0, []),
        ((1000, 0, 0, 1000, 0, 0), 18.5, []),
        ((1000, 0, 0, 1000, 0, 0), 10.0, [OTHERS]),
        ((500, 0, 500, 500, 0, 500), 10.0, [OTHERS]),
        # 30 ms: the ticks that this process has run, but that are not counted yet, may be as many.
        ((2, 1, 0, 2, 1, 0), 0.02, []),
        ((0, 0, 0, 0, 0, 0), 0.0, []),
    ],
    ids=["half own", "idle", "little else", "others", "stolen", "too short", "no time"],
)
def test_other_programs_and_virtual_machines_are_noticed(ticks, own, reasons):
    assert disturbances(times(*START, own=100.0), later(*ticks, own=100.0 + own)) == reasons


@pytest.mark.parametrize("stat", ["", "cpu  0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\n", "cpu  1 2 3 4\n"])
def test_systems_that_count_no_time_give_none(stat):
    assert cpu_times(stat, {0}, 0.01, 0.0) is None


def test_short_lines_of_old_kernels_are_read():
    assert cpu_times("cpu0 100 0 0 100\n", {0}, 0.01, 0.0) == CpuTimes(2.0, 1.0, 0.01)


@pytest.mark.parametrize(("load", "reasons"), [(1.4, []), (3.2, ["the load average was 3.2 on 2 cores before"])])
def test_without_processor_times_the_load_average_before_decides(monkeypatch, load, reasons):
    loads = [load, 5.0]
    monkeypatch.setattr(machine, "_cpu_times_now", lambda: None)
    monkeypatch.setattr(machine, "_load", lambda: loads.pop(0))
    monkeypatch.setattr(machine, "core_count", lambda: 2)
    with watched() as watch:
        assert watch.reasons == []
    assert watch.reasons == reasons


def test_a_system_that_counts_nothing_gives_no_reason(monkeypatch):
    for name in ("os.getloadavg", "os.sched_getaffinity"):
        monkeypatch.delattr(name)
    with watched() as watch:
        pass
    assert watch.reasons == []


@pytest.mark.parametrize("missing", ["os.sched_getaffinity", "os.sysconf"])
def test_systems_without_these_calls_count_no_times(monkeypatch, missing):
    monkeypatch.delattr(missing)
    assert machine._cpu_times_now() is None


# -- repeats ----------------------------------------------------------------------------------------------------


def test_scatter_is_the_median_over_the_least():
    assert scatter([1.0, 1.0, 1.0, 1.0, 9.0]) == 1.0
    assert scatter([2.0, 1.0, 3.0]) == 2.0
    assert scatter([1.0]) == scatter([]) == scatter([0.0, 1.0]) == 1.0


STEADY, ERRATIC = [1.0, 1.2, 9.0], [1.0, 1.3, 1.3]


@pytest.mark.parametrize(
    ("calls", "reasons"),
    [
        ([], []),
        ([STEADY, STEADY, ERRATIC], []),
        ([STEADY, ERRATIC], ["the usual time of a call was more than 1.25 times its least in 1 of 2 calls"]),
        ([ERRATIC], ["the usual time of a call was more than 1.25 times its least"]),
    ],
    ids=["none", "one of three", "half", "the only one"],
)
def test_repeats_that_vary_in_half_of_the_calls_are_a_reason(quiet, calls, reasons):
    with watched() as watch:
        for repeats in calls:
            watch.repeats(repeats)
    assert watch.reasons == reasons


def test_repeats_that_other_programs_explain_are_no_reason_of_their_own(busy):
    with watched() as watch:
        watch.repeats(ERRATIC)
    assert watch.reasons == [OTHERS]


def test_rest_ends_when_no_thread_computes(monkeypatch):
    used = iter([0.0, 1.0, 1.0, 2.0, 2.0, 2.0])
    slept = []
    monkeypatch.setattr(steady, "process_time", lambda: next(used))
    monkeypatch.setattr(steady, "perf_counter", lambda: 1e-3 * len(slept))
    monkeypatch.setattr(steady, "sleep", slept.append)
    steady.rest()
    assert len(slept) == 3


def test_rest_does_not_wait_for_threads_that_never_rest(monkeypatch):
    slept = []
    monkeypatch.setattr(steady, "process_time", lambda: float(len(slept)))
    monkeypatch.setattr(steady, "perf_counter", lambda: sum(slept))
    monkeypatch.setattr(steady, "sleep", slept.append)
    steady.rest()
    assert steady._REST <= sum(slept) <= steady._REST + steady._GLANCE


def test_rest_waits_for_a_thread_that_spins_where_the_clock_of_processor_time_is_coarse(monkeypatch):
    """With a fake of the clock of Windows, which ticks every 15.6 ms."""
    slept = []
    monkeypatch.setattr(steady, "get_clock_info", lambda name: SimpleNamespace(implementation="GetProcessTimes()"))
    monkeypatch.setattr(steady, "perf_counter", lambda: sum(slept))
    monkeypatch.setattr(steady, "process_time", lambda: sum(slept) // 0.0156 * 0.0156)
    monkeypatch.setattr(steady, "sleep", slept.append)
    steady.rest()
    assert sum(slept) >= steady._REST


def test_a_turn_rests_then_leaves_out_the_first_call_and_returns_the_least_time(monkeypatch):
    now, events = [0.0], []
    seconds = iter([50.0, 4.0, 3.0, 5.0, 1.0])
    monkeypatch.setattr(steady, "rest", lambda: events.append("rest"))

    def call():
        events.append("call")
        now[0] += next(seconds)

    monkeypatch.setattr(steady, "perf_counter", lambda: now[0])
    assert turn(call, 10.0) == 3.0
    assert events == ["rest", *["call"] * 4]


@pytest.mark.parametrize(("least", "most", "calls"), [(1, 9, 2), (3, 9, 4), (1, 1, 2)])
def test_a_turn_has_at_least_and_at_most_so_many_calls(monkeypatch, least, most, calls):
    made = []
    monkeypatch.setattr(steady, "rest", lambda: None)
    monkeypatch.setattr(steady, "perf_counter", lambda: float(len(made)))
    turn(lambda: made.append(0), 1.0 if most == 1 else 0.0, least=least, most=most)
    assert len(made) == calls


# -- compare ----------------------------------------------------------------------------------------------------


def machine_of(monkeypatch, readings):
    """A machine that counts these times, the last ones over and over again."""
    monkeypatch.setattr(steady, "sleep", lambda seconds: None)
    monkeypatch.setattr(machine, "_cpu_times_now", lambda: readings.pop(0) if len(readings) > 1 else readings[0])


@pytest.fixture
def quiet(monkeypatch):
    """A machine on which no time passes."""
    machine_of(monkeypatch, [times(*START)])


BUSY = times(*START), later(1000, 0, 0, 1000, 0, 0, own=10.0)
"""Readings before and after a measurement during which other programs take half of the processor."""


@pytest.fixture
def busy(monkeypatch):
    """A machine that is busy during the first measurement."""
    machine_of(monkeypatch, list(BUSY))


def test_a_busy_machine_is_named_before_the_table_and_the_verdict_is_not_conclusive(busy, capsys):
    assert main(SMALL) == 0
    text = " ".join(capsys.readouterr().out.split())
    warning, _, table = text.partition("framework native")
    assert "WARNING: the machine was busy in 1 of 1 rows, which are marked with a ?." in warning
    assert f"numpy, ab,bc->ac: {OTHERS}" in warning
    assert "x ? " in table
    assert "Not conclusive: the machine was busy in every row." in table
    assert "einsumx is" not in text


def test_rows_that_were_not_disturbed_keep_their_verdicts(capsys):
    rows = [row(5.0), row(1.0), row(3.0, OTHERS), row(1.0, OTHERS), row(None, OTHERS), Absent("torch", "not here", "")]
    print_comparison(rows, [rows[0].problem])
    text = " ".join(capsys.readouterr().out.split())
    cells = [cell for line in text.split("numpy 2 ") for cell in re.findall(r"1.00 s (\S+x \?|\S+x|tie) 0.2", line)]
    assert cells == ["5.00x", "tie", "3.00x ?", "1.00x ?"]
    assert "in 3 of 5 rows" in text
    assert (
        "Not conclusive in 2 of 4 rows, as the machine was busy. In the others, einsumx is 2.24 times as fast as "
        "numpy's own einsum (geometric means)." in text
    )


def test_a_row_whose_turns_vary_is_not_conclusive(monkeypatch, quiet, capsys):
    seconds = iter([1.0, 1.0, 1.0, 2.0, 3.0, 1.0])
    monkeypatch.setattr(side_by_side, "turn", lambda call, _: next(seconds))
    assert main([*SMALL[:-1], "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (measured,) = found["rows"]
    reason = "the usual time of a call was more than 1.25 times its least in 1 of 2 calls"
    assert (measured["spread"], measured["verdict"], measured["disturbances"]) == (2.0, "not conclusive", [reason])
    assert found["warnings"] == [f"numpy, ab,bc->ac: {reason}"]


# -- profile ----------------------------------------------------------------------------------------------------


def test_a_profile_on_a_busy_machine_comes_with_a_warning(busy, capsys, monkeypatch):
    assert main(["profile", "ab,bc->ac", "3,4", "4,5"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"WARNING: the machine was busy, so these times mean little: {OTHERS}." in text.partition("measured")[0]
    machine_of(monkeypatch, list(BUSY))
    assert main(["profile", "ab,bc->ac", "3,4", "4,5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["disturbances"] == [OTHERS]


# -- calibrate --------------------------------------------------------------------------------------------------


@pytest.fixture
def tries(tmp_path, monkeypatch):
    """How often rates were measured, in place of seconds of work, and an empty cache folder."""
    made = []
    monkeypatch.setenv("EINSUMX_CACHE", str(tmp_path))
    monkeypatch.setattr(rate_measurement, "sleep", lambda seconds: made.append(f"{seconds:g} s"))
    monkeypatch.setattr(rate_measurement, "measure_rates", lambda *_, **__: made.append("try") or {"gemm": 123e9})
    place_of.cache_clear()
    yield made
    place_of.cache_clear()


CALIBRATE = ("calibrate", "--backend", "numpy")


def test_calibrate_waits_until_the_machine_is_quiet(busy, tries, capsys):
    assert main(CALIBRATE) == 0
    assert tries == ["try", "5 s", "try"]
    shown = capsys.readouterr()
    assert f"numpy  the machine is busy: {OTHERS}; try 2 of 3 in 5 s\n" in shown.err
    assert "WARNING" not in shown.out
    assert calibrated(get_backend("numpy"), "cpu").rates.gemm == 123e9


@pytest.fixture
def always_busy(monkeypatch):
    machine_of(monkeypatch, [*BUSY] * 9)


def test_rates_of_a_machine_that_stays_busy_are_shown_but_not_stored(always_busy, tries, capsys):
    assert main(CALIBRATE) == 1
    assert tries == ["try", "5 s", "try", "5 s", "try"]
    text = " ".join(capsys.readouterr().out.split())
    assert "123 G/s" in text
    assert f"WARNING: the machine was busy: {OTHERS}. These rates are not stored." in text
    assert "--force" in text
    assert "nothing is stored in " in text
    assert store.read("rates", read_rates) == []


def test_force_measures_once_and_stores_the_rates_of_a_busy_machine(always_busy, tries, capsys):
    assert main([*CALIBRATE, "--force"]) == 0
    assert tries == ["try"]
    text = " ".join(capsys.readouterr().out.split())
    assert f"WARNING: the machine was busy: {OTHERS}. These rates are stored all the same, as --force asks." in text
    assert len(store.read("rates", read_rates)) == 1
