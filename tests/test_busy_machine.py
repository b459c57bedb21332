"""``einsumx compare``: noise counts as a tie, and a busy machine as a reason to doubt the times."""

import json

import pytest

from einsumx.cli import compare as comparison
from einsumx.cli import machine
from einsumx.cli.commands.compare import print_comparison
from einsumx.cli.compare import Absent, Measured, Problem
from einsumx.cli.machine import CpuTimes, contention, cpu_times, load_warning
from einsumx.cli.main import main

SMALL = ("compare", "ab,bc->ac", "30,40", "40,20", "--backend", "numpy", "--rounds", "1")


def row(native, spread=1.0):
    """A row in which einsumx takes a second."""
    problem = Problem("ij->i", ((2, 3),), "float32")
    return Measured("numpy", "numpy", "2", problem, native, 1.0, 3, spread, 0.25, "", (), "")


# -- ties -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("native", "verdict", "cell"),
    [(1.09, "tie", "tie"), (0.92, "tie", "tie"), (1.11, "faster", "1.11x"), (0.9, "slower", "0.90x"), (None, "", "")],
)
def test_differences_below_a_tenth_are_ties(capsys, native, verdict, cell):
    assert row(native).verdict == verdict
    print_comparison([row(native)], [row(native).problem])
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("numpy 2"))
    assert line.partition("1.00 s")[2].split() == [*filter(None, [cell]), "0.2", "right"]


def test_the_summary_counts_wins_losses_and_ties(capsys):
    rows = [row(native) for native in (5.0, 2.0, 1.0, 0.5)]
    print_comparison(rows, [rows[0].problem])
    assert "einsumx is faster in 2, slower in 1, and within 10 % (a tie) in 1 of 4." in capsys.readouterr().out


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


OTHERS, STOLEN = "other programs used 50% of the processor", "the hypervisor took away 20% of the processor"


@pytest.mark.parametrize(
    ("ticks", "own", "warnings"),
    [
        ((1000, 0, 0, 1000, 0, 0), 20.0, []),
        ((1000, 0, 0, 0, 1000, 0), 10.0, []),
        ((0, 1000, 0, 0, 1000, 0), 0.0, []),
        ((1000, 0, 0, 1000, 0, 0), 18.5, []),
        ((1000, 0, 0, 1000, 0, 0), 10.0, [OTHERS]),
        ((800, 0, 200, 800, 0, 200), 16.0, [STOLEN]),
        ((800, 0, 200, 800, 0, 200), 6.0, [OTHERS, STOLEN]),
        ((0, 0, 0, 0, 0, 0), 0.0, []),
    ],
    ids=["all own", "half own", "idle", "little else", "others", "stolen", "both", "no time"],
)
def test_other_programs_and_a_hypervisor_are_noticed(ticks, own, warnings):
    assert contention(times(*START, own=100.0), later(*ticks, own=100.0 + own)) == warnings


@pytest.mark.parametrize("stat", ["", "cpu  0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\n", "cpu  1 2 3 4\n"])
def test_systems_that_count_no_time_give_none(stat):
    assert cpu_times(stat, {0}, 0.01, 0.0) is None


def test_short_lines_of_old_kernels_are_read():
    assert cpu_times("cpu0 100 0 0 100\n", {0}, 0.01, 0.0) == CpuTimes(2.0, 1.0, 0.0, 0.0)


def test_a_high_load_average_is_a_warning():
    assert load_warning(1.4, 2) == []
    assert load_warning(3.2, 2) == ["the load average was 3.2 on 2 cores before"]


@pytest.fixture
def uncounted(monkeypatch):
    """A system that does not count processor times."""
    monkeypatch.setattr(machine, "_now", lambda: None)
    monkeypatch.setattr(machine, "core_count", lambda: 2)


@pytest.mark.parametrize("load", [0.3, 9.0])
def test_without_processor_times_the_load_average_decides(monkeypatch, uncounted, load):
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    with machine.watched() as warnings:
        assert warnings == []
    assert warnings == load_warning(load, 2)


def test_a_system_that_counts_nothing_gives_no_warning(monkeypatch, uncounted):
    monkeypatch.delattr("os.getloadavg")
    with machine.watched() as warnings:
        pass
    assert warnings == []


@pytest.mark.parametrize("missing", ["os.sched_getaffinity", "os.sysconf"])
def test_systems_without_these_calls_count_no_times(monkeypatch, missing):
    monkeypatch.delattr(missing)
    assert machine._now() is None


@pytest.fixture
def busy(monkeypatch):
    """A machine on which other programs take half of the processor."""
    readings = [times(*START), later(1000, 0, 0, 1000, 0, 0, own=10.0)]
    monkeypatch.setattr(machine, "_now", lambda: readings.pop(0))


def test_a_comparison_on_a_busy_machine_comes_with_a_warning(busy, capsys):
    assert main(SMALL) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"WARNING: the machine was busy, so these times and ratios mean little: {OTHERS}" in text


def test_the_warning_is_in_the_json(busy, capsys):
    assert main([*SMALL, "--json"]) == 0
    assert OTHERS in json.loads(capsys.readouterr().out)["warnings"]


@pytest.mark.parametrize(
    ("spreads", "warned"), [((1.1, 1.2, 3.0), False), ((1.1, 2.0, 3.0), True), ((4.0,), True), ((1.0,), False)]
)
def test_repeats_that_vary_in_most_rows_are_a_warning(monkeypatch, uncounted, capsys, spreads, warned):
    rows = [*(row(1.0, spread) for spread in spreads), Absent("torch", "not installed", "")]
    monkeypatch.setattr("einsumx.cli.commands.compare.compare", lambda *_, **__: rows)
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    assert main(SMALL) == 0
    assert ("repeats of the same call vary" in " ".join(capsys.readouterr().out.split())) == warned


def test_the_spread_of_a_row_is_that_of_its_quartiles():
    assert comparison._spread([1.0, 1.0, 1.0, 1.0, 9.0]) == 1.0
    assert comparison._spread([1.0, 1.0, 2.0, 2.0]) > 1.5
    assert comparison._spread([1.0]) == 1.0
