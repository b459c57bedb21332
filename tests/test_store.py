"""The store of what was measured: what it holds for, who writes at the same time, and files that cannot be used."""

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import warnings

import pytest
from processes import printed
from threadpoolctl import ThreadpoolController

from einsumx.adapters.registry import get_backend
from einsumx.backends.numpy import NumpyAdapter
from einsumx.host.environment import cache_folder
from einsumx.measuring import store
from einsumx.measuring.calibration import calibrated, place_of, store_rates
from einsumx.measuring.store import Origin, Row

NUMPY = get_backend("numpy")
HERE = Origin("numpy", "cpu", "2.4", "1.0", "AMD EPYC, 8 cores", "openblas")


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    """The file, which does not exist, in a folder that does not exist."""
    monkeypatch.setenv("EINSUMX_CACHE", str(tmp_path / "cache"))
    place_of.cache_clear()
    yield tmp_path / "cache" / "measured-1.sqlite3"
    place_of.cache_clear()


def write(*keys, origin=HERE):
    store.write("rates", [Row(origin, key, "text") for key in keys])


def read():
    """The keys in the store; no text is refused."""
    return [row.key for row in store.read("rates", lambda key, text: text)]


# -- rows -----------------------------------------------------------------------------------------------------------


def test_rows_are_read_in_the_order_in_which_they_were_last_written():
    write("1", "2", "3")
    write("2")
    assert read() == ["1", "3", "2"]
    assert store.read("plans", lambda key, text: text) == []


def test_rows_hold_for_one_framework_machine_and_engine_and_an_unknown_engine_fits_any():
    others = [HERE._replace(**{name: "other"}) for name in Origin._fields]
    assert [store.fits(HERE, other) for other in others] == [False] * 6
    assert store.fits(HERE, HERE._replace(engine=""))
    assert store.fits(HERE._replace(engine=""), HERE)


def test_numpy_s_engine_is_its_blas_and_that_of_another_device_its_model():
    class Fast(NumpyAdapter):
        def device_model(self, device):
            return "H200\n" if device.startswith("fast") else ""

    blas = store.origin_of(NUMPY, "cpu").engine
    assert bool(blas) == bool(ThreadpoolController().select(user_api="blas"))  # some systems' BLAS it does not know
    assert store.origin_of(Fast(), "fast:1").engine == "H200"
    assert store.origin_of(Fast(), "cpu").engine == blas
    assert store.origin_of(NUMPY, "cpu").machine.endswith(f", {os.cpu_count()} cores")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have their caches elsewhere")
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"EINSUMX_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/einsumx"),
        ({}, "/home/her/.cache/einsumx"),
    ],
)
def test_the_folder_is_where_the_platform_has_caches(monkeypatch, environment, expected):
    for name in ("EINSUMX_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/her", **environment}.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == expected


def test_without_a_home_nothing_is_stored_and_calls_go_on(monkeypatch):
    monkeypatch.delenv("EINSUMX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("LOCALAPPDATA", "relative")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert calibrated(NUMPY, "cpu") is NUMPY.cpu
    with pytest.raises(RuntimeError, match="the home folder of the user is not known; set EINSUMX_CACHE to a folder"):
        write("1")


# -- processes ------------------------------------------------------------------------------------------------------

WRITES = """
import sys
from einsumx.measuring import store
def work(name):
    for number in range(10):
        store.write("rates", [store.Row(store.Origin(*"abcdef"), f"{name} {number}", "text")])
"""


@pytest.mark.long
def test_processes_that_write_at_the_same_time_all_keep_their_rows():
    code = f"{WRITES}\nprint('ready', flush=True); sys.stdin.read(); work(sys.argv[1])"
    workers = [
        subprocess.Popen([sys.executable, "-c", code, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in "abcd"
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.close()
    for worker in workers:
        assert worker.wait(60) == 0
        worker.stdout.close()
    assert sorted(read()) == sorted(f"{name} {number}" for name in "abcd" for number in range(10))


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no such signal")
def test_a_process_that_is_killed_while_it_writes_loses_its_own_rows_alone(path):
    write(*map(str, range(500)))
    code = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("PRAGMA cache_size = 1")  # pages of the transaction reach the file before its end
file.execute("BEGIN IMMEDIATE")
file.execute("UPDATE rates SET value = key || hex(zeroblob(500))")
print("changed", flush=True)
sys.stdin.read()
"""
    before = path.read_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout.readline() == "changed\n"
        worker.kill()
    assert path.read_bytes() != before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.read("rates", lambda key, text: text) == [Row(HERE, str(key), "text") for key in range(500)]
    write("new")
    assert len(read()) == 501


def test_a_process_that_hangs_while_it_writes_does_not_make_others_hang(path, monkeypatch):
    write("1")
    monkeypatch.setattr(store, "_PATIENCE", 0.05)
    hanging = sqlite3.connect(path, isolation_level=None)
    hanging.execute("BEGIN IMMEDIATE")
    assert read() == ["1"]
    with pytest.raises(OSError, match="database is locked"):
        write("2")
    hanging.execute("COMMIT")
    hanging.execute("BEGIN EXCLUSIVE")
    with pytest.warns(RuntimeWarning, match=r"einsumx ignores its stored measurements: .*database is locked"):
        assert read() == []
    hanging.close()
    assert read() == ["1"]


def _write(name):
    store.write("rates", [Row(HERE, name, "text")])


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_children_that_are_forked_while_other_threads_write_do_not_hang():
    code = f"""{WRITES}
import os, threading
threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
for thread in threads:
    thread.start()
for number in range(5):
    child = os.fork()
    if not child:
        work(f"child {{number}}")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
for thread in threads:
    thread.join()
"""
    printed(code, PYTHONWARNINGS="ignore")
    assert len(read()) == 70


@pytest.mark.long
@pytest.mark.parametrize("method", sorted({"fork", "spawn"} & {*multiprocessing.get_all_start_methods()}))
def test_workers_of_multiprocessing_keep_their_rows(method):
    context = multiprocessing.get_context(method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of forks beside threads, such as those of other tests
        workers = [context.Process(target=_write, args=(name,)) for name in "ab"]
        for worker in workers:
            worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert sorted(read()) == ["a", "b"]


# -- files that cannot be used ----------------------------------------------------------------------------------------


def damage(path, kind):
    """Damage a store, or put something else in its place."""
    whole = path.read_bytes()
    match kind:
        case "text":
            path.write_text("broken" * 1000)
        case "torn":
            path.write_bytes(whole[: len(whole) // 2])
        case "overwritten":
            path.write_bytes(whole[:200] + b"\xff" * (len(whole) - 200))
        case "large":
            os.truncate(path, (1 << 26) + 1)
        case "a journal that is a pipe":
            os.mkfifo(f"{path}-journal")
        case "a folder":
            path.unlink()
            path.mkdir()
        case _:
            with sqlite3.connect(path) as connection:
                connection.execute(kind)
            connection.close()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are files on Unix alone")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("text", "file is not a database"),
        ("torn", "database disk image is malformed"),
        ("overwritten", "is damaged"),
        ("large", "it is not a regular file of at most 67108864 bytes"),
        ("a journal that is a pipe", "it is not a regular file"),
        ("a folder", "it is not a regular file"),
        ("CREATE TABLE other (a)", "it has other tables"),
        ("CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n", "other"),
        ("UPDATE rates SET value = '[1, 2]'", "are not rates for"),
        ("UPDATE rates SET value = '{\"gemm\": 0}'", "0 is not a value for 'gemm'"),
        ("UPDATE rates SET value = '{\"gemm\": NaN}'", "NaN is not a number in JSON"),
        ("UPDATE rates SET value = '{\"gemm\": true}'", "True is not a value for 'gemm'"),
        ("UPDATE rates SET value = '{\"gemm\": 1e300}'", "1e+300 is not a value for 'gemm'"),
        ("UPDATE rates SET value = '{\"speed\": 1e9}'", "1000000000.0 is not a value for 'speed'"),
        ("UPDATE rates SET value = NULL", "Expecting value"),
        ("UPDATE rates SET value = '[[[[' || hex(zeroblob(2000000)) || ']'", "has a number with|Expecting"),
        ("UPDATE rates SET value = CAST(x'7bff7d' AS TEXT)", "Expecting property name"),
        ("UPDATE rates SET key = 'many'", "are not rates for 'many' threads"),
        ("UPDATE rates SET machine = 8", "8 is not a line of text"),
        ("UPDATE rates SET machine = 'AMD' || char(27) || '[2J'", r"is not a line of text"),
    ],
    ids=lambda value: value[:40],
)
def test_a_damaged_store_is_renamed_with_one_warning_and_a_new_one_takes_its_place(path, kind, reason):
    store_rates(NUMPY, "cpu", {"gemm": 1e9})
    damage(path, kind)
    with pytest.warns(RuntimeWarning, match=reason.replace("+", r"\+")) as caught:
        assert calibrated(NUMPY, "cpu") is NUMPY.cpu
    (warning,) = caught
    assert f"and is now called {path}.damaged" in str(warning.message)
    assert os.path.lexists(f"{path}.damaged")
    place_of.cache_clear()
    store_rates(NUMPY, "cpu", {"gemm": 2e9})
    assert calibrated(NUMPY, "cpu").rates.gemm == 2e9


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are files on Unix alone")
@pytest.mark.parametrize("kind", ["a pipe", "a device without end", "a link to itself"])
def test_what_is_no_file_but_has_its_name_does_not_hang_reading_or_writing(path, kind):
    path.parent.mkdir()
    if kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "a device without end" else path)
    assert read() == []
    if kind == "a link to itself":
        with pytest.raises(OSError, match="symbolic links"):
            write("1")
        return
    with pytest.warns(RuntimeWarning, match="it is not a regular file"):
        write("1")
    assert read() == ["1"]


def test_a_damaged_store_is_renamed_by_who_writes_too(path):
    write("1")
    damage(path, "text")
    with pytest.warns(RuntimeWarning, match="file is not a database, and is now called"):
        write("2")
    assert read() == ["2"]


def test_the_journal_of_a_damaged_store_does_not_mend_the_next_one(path):
    write("1")
    damage(path, "text")
    path.with_name(f"{path.name}-journal").write_text("of the damaged file")
    with pytest.warns(RuntimeWarning, match="is now called"):
        assert read() == []
    write("2")
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name, f"{path.name}.damaged"]


def test_a_warning_that_is_an_error_is_raised_once(path):
    write("1")
    damage(path, "text")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="is now called"):
            read()
        assert read() == []


def test_an_empty_file_which_another_process_has_just_made_is_no_damage(path):
    path.parent.mkdir()
    path.touch()
    assert read() == []
    write("1")
    assert read() == ["1"]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="all may write everywhere")
def test_a_store_in_a_folder_that_cannot_be_written_is_read(path):
    write("1")
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        assert read() == ["1"]
        with pytest.raises(OSError, match="attempt to write a readonly database"):
            write("2")
    finally:
        path.parent.chmod(0o755)


def test_a_python_without_sqlite_stores_nothing(monkeypatch):
    write("1")
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    with pytest.warns(RuntimeWarning, match="einsumx ignores its stored measurements: this Python has no sqlite3"):
        assert read() == []
    with pytest.raises(OSError, match="this Python has no sqlite3"):
        write("2")
