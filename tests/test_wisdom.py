"""Wisdom: its keys, what a process remembers, which files it believes, and how processes share them."""

import json
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from dataclasses import asdict, replace

import numpy as np
import pytest
from processes import printed
from threads import in_threads

import einsumx
from einsumx.adapters.registry import get_backend
from einsumx.backends.numpy import NumpyAdapter
from einsumx.cli.main import main
from einsumx.ir.bind import bind
from einsumx.ir.parse import parse_sublists, parse_text
from einsumx.ir.program import Operand
from einsumx.planner.selection import Selection
from einsumx.runtime import effort, wisdom, wisdom_files
from einsumx.runtime.wisdom_files import Finding, Origin, difference, origin_of, path_of, read_file

NUMPY = get_backend("numpy")
KEY = "ab,bc,cd->ad; a=8 b=8 c=8 d=8; C C C; float32 float32 float32; float32; auto; 2 threads"


def finding(name="copy lhs", when="2026-01-31T12:00:00Z", path=None, seconds=0.5):
    return Finding(Selection(path, ("", name)), seconds, 1.0, 3, when)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache folder that does not exist, and a process that has not looked into it yet."""
    path = tmp_path / "cache"
    monkeypatch.setenv("EINSUMX_CACHE", str(path))
    restart()
    yield path
    restart()


def restart():
    """As in a new process that knows nothing."""
    wisdom._state.stores.clear()
    wisdom._state.told = False
    wisdom._state.start()


def stored(key=KEY, value=None):
    """Write one finding for NumPy, and forget it in memory; returns the file."""
    wisdom.record(NUMPY, "cpu", key, value or finding())
    wisdom.save()
    restart()
    return path_of(origin_of(NUMPY, "cpu"))


def on_disk(device="cpu"):
    """The keys in NumPy's file."""
    return list(read_file(path_of(origin_of(NUMPY, device)))[1])


# -- keys -----------------------------------------------------------------------------------------------------------


def key(equation, *shapes, strides=None, dtypes="float32", dtype="float32", optimize="auto", weak=False):
    operands = [Operand(shape, dtypes, weak=weak) for shape in shapes]
    if strides is not None:
        operands[0] = replace(operands[0], strides=strides)
    sized = bind(parse_text(equation, len(shapes)), shapes)
    return wisdom.key_of(sized, operands, dtype, optimize)


def test_a_key_can_be_read():
    threads = einsumx.get_num_threads()
    assert key("bij,bjk->bik", (64, 100, 8), (64, 8, 33), strides=(1600, 16, 1), dtype="float64") == (
        f"abc,acd->abd; a=64 b=104 c=8 d=32; 0.1+.2 C; float32 float32; float64; auto; {threads} threads"
    )


def test_equal_contractions_have_equal_keys_whatever_their_labels_are_called():
    named = bind(parse_sublists([["row", 1], [1, "column"]], ["row", "column"]), [(8, 9), (9, 7)])
    operands = [Operand(shape, "float32") for shape in named.shapes]
    expected = key("ij,jk->ik", (8, 9), (9, 7))
    assert expected == key("za,ac->zc", (8, 9), (9, 7)) == key("Zβ,βc->Zc", (8, 9), (9, 7))
    assert expected == wisdom.key_of(named, operands, "float32", True)
    assert key("...i,ij->...j", (5, 6), (6, 7)) == key("bi,ij->bj", (5, 6), (6, 7))


def test_sizes_below_16_are_exact_larger_ones_are_classes_and_an_axis_that_broadcasts_has_a_1():
    assert key("i->", (15,)) != key("i->", (14,))
    assert key("i->", (1000,)) == key("i->", (1024,)) != key("i->", (1100,))
    assert key("ij,jk->ik", (8, 1), (9, 7)).startswith("a1,bc->ac; ")
    assert key("ij,jk->ik", (8, 1), (1, 7)).startswith("ab,bc->ac; a=8 b=1 ")


@pytest.mark.parametrize(
    ("strides", "layout"),
    [
        ((30, 6, 1), "C"),
        ((6, 12, 1), "1.0.2"),
        ((60, 12, 2), "0.1.2+"),
        ((-600, 6, 1), "0-+.1.2"),
        ((6, 0, 1), "0.2.1*"),
    ],
)
def test_a_layout_is_written_as_its_class(strides, layout):
    assert key("ijk->", (2, 5, 6), strides=strides).split("; ")[2] == layout


def test_everything_that_a_plan_depends_on_is_in_the_key(monkeypatch):
    one = key("ij,jk->ik", (8, 9), (9, 7))
    others = [
        key("ij,jk->ki", (8, 9), (9, 7)),
        key("ij,jk->ik", (8, 9), (9, 6)),
        key("ij,jk->ik", (8, 9), (9, 7), strides=(1, 8)),
        key("ij,jk->ik", (8, 9), (9, 7), dtypes="float64"),
        key("ij,jk->ik", (8, 9), (9, 7), weak=True),
        key("ij,jk->ik", (8, 9), (9, 7), dtype="float64"),
        key("ij,jk->ik", (8, 9), (9, 7), optimize="greedy"),
        key("ij,jk->ik", (8, 9), (9, 7), optimize=("greedy", 100)),
        key("ij,jk->ik", (8, 9), (9, 7), optimize=False),
        key("ij,jk->ik", (8, 9), (9, 7), optimize=((0, 1),)),
    ]
    monkeypatch.setattr("einsumx.runtime.wisdom_names.get_num_threads", lambda: 1000)
    others.append(key("ij,jk->ik", (8, 9), (9, 7)))
    assert len({one, *others}) == 12


def test_nothing_is_kept_about_overlapping_elements_functions_or_what_is_too_long_to_write():
    assert key("ij->", (8, 9), strides=(1, 1)) is None
    assert key("ij->", (8, 9), optimize=lambda *_: [(0,)]) is None
    assert key("ij->", (8, 9), optimize="auto; 3 threads") is None
    assert key("ij->", (8, 9), optimize="auto\n") is None
    assert key(",".join(["i"] * 300), *[(3,)] * 300) is None


def test_every_key_can_be_stored():
    keys = [key(",".join(["ij"] * 60), *[(3, 4)] * 60), key("->", ()), key("i->", (0,)), key("a" * 30, (1,) * 30)]
    many = bind(parse_sublists([list(range(90))], list(range(90))), [(1,) * 90])
    keys.append(wisdom.key_of(many, [Operand((1,) * 90, "float32")], "float32", "auto"))
    for text in keys:
        wisdom_files.check_finding(text, Finding(Selection(None, ()), 1.0, 1.0, 1, wisdom.now()))


# -- what a process remembers -----------------------------------------------------------------------------------------


def test_a_finding_is_found_in_the_process_and_in_later_ones():
    assert wisdom.find(NUMPY, "cpu", KEY) is None
    wisdom.record(NUMPY, "cpu", KEY, finding(path=((0, 1), (0, 1))))
    assert wisdom.find(NUMPY, "cpu", KEY) == finding(path=((0, 1), (0, 1)))
    restart()
    assert wisdom.find(NUMPY, "cpu", KEY) == finding(path=((0, 1), (0, 1)))
    assert wisdom.find(NUMPY, "cpu", KEY.replace("2 threads", "3 threads")) is None


def test_devices_of_one_kind_share_findings_and_arrays_of_no_known_device_have_those_of_the_cpu():
    wisdom.record(NUMPY, "cpu", KEY, finding())
    assert wisdom.find(NUMPY, "", KEY) == finding()
    assert wisdom.find(NUMPY, "cuda", KEY) is None
    wisdom.record(NUMPY, "fast:0", KEY, finding("other"))
    assert wisdom.find(NUMPY, "fast:7", KEY) == finding("other")


def test_a_later_finding_replaces_an_earlier_one():
    for name in ("first", "second"):
        wisdom.record(NUMPY, "cpu", KEY, finding(name))
    wisdom.save()
    assert wisdom.find(NUMPY, "cpu", KEY) == finding("second")
    restart()
    assert wisdom.find(NUMPY, "cpu", KEY) == finding("second")


def test_a_malformed_finding_is_an_error_and_is_not_kept(folder):
    for text, value in ((KEY, finding("shutil.rmtree('/')")), (KEY, finding(path=((0, 1),))), ("none", finding())):
        with pytest.raises(ValueError, match=r"is not a text|does not fit|is not a key"):
            wisdom.record(NUMPY, "cpu", text, value)
    wisdom.save()
    assert not folder.exists()


def test_the_first_finding_is_written_at_once_and_others_after_an_interval(monkeypatch):
    names = [f"{KEY} {number}" for number in range(4)]
    wisdom.record(NUMPY, "cpu", names[0], finding())
    assert on_disk() == names[:1]
    wisdom.record(NUMPY, "cpu", names[1], finding())
    assert on_disk() == names[:1]
    monkeypatch.setattr(wisdom._state, "written", wisdom._state.written - 2.5)
    wisdom.record(NUMPY, "cpu", names[2], finding())
    assert on_disk() == names[:3]
    wisdom.record(NUMPY, "cpu", names[3], finding())
    wisdom.save()
    assert on_disk() == names


def test_an_interrupted_write_loses_nothing(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("einsumx.runtime.files.write_text", interrupted)
        with pytest.raises(KeyboardInterrupt):
            wisdom.record(NUMPY, "cpu", KEY, finding())
    wisdom.save()
    assert on_disk() == [KEY]


def test_memory_and_file_are_bounded_and_lose_the_oldest(monkeypatch):
    monkeypatch.setattr(wisdom_files, "MOST_FINDINGS", 5)
    names = [f"{KEY} {number}" for number in range(9)]
    for second, name in enumerate(names):
        wisdom.record(NUMPY, "cpu", name, finding(when=f"2026-01-31T12:00:0{second}Z"))
    wisdom.save()
    assert [name for name in names if wisdom.find(NUMPY, "cpu", name)] == on_disk() == names[4:]


def test_a_file_is_never_larger_than_one_that_is_read(monkeypatch):
    monkeypatch.setattr(wisdom_files, "_MOST_BYTES", 2000)
    for number in range(20):
        wisdom.record(NUMPY, "cpu", f"{KEY} {number}", finding("x" * 400, when=f"2026-01-31T12:00:{number:02}Z"))
    wisdom.save()
    assert on_disk()[-1] == f"{KEY} 19"
    assert path_of(origin_of(NUMPY, "cpu")).stat().st_size <= 2000


@pytest.mark.long
def test_a_process_without_wisdom_loads_no_reader_of_files_and_one_with_it_no_framework():
    code = f"""
import sys, einsumx
from einsumx.runtime import wisdom
from einsumx.adapters.registry import get_backend
found = wisdom.find(get_backend("numpy"), "cpu", {KEY!r})
names = ("json", "einsumx.runtime.wisdom_files", "numpy", "importlib.metadata")
print(found and found.seconds, [name for name in names if name in sys.modules][:2], "numpy" in sys.modules)
"""
    assert printed(code).strip() == "None [] False"
    stored()
    assert printed(code).strip() == "0.5 ['json', 'einsumx.runtime.wisdom_files'] False"


def test_a_variable_or_a_backend_of_many_libraries_keeps_findings_in_memory_alone(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("EINSUMX_WISDOM", "0")
        wisdom.record(NUMPY, "cpu", KEY, finding())
    many = get_backend("array_api")
    wisdom.record(many, "cpu", KEY, finding())
    wisdom.save()
    assert wisdom.find(NUMPY, "cpu", KEY) == wisdom.find(many, "cpu", KEY) == finding()
    assert not folder.exists()
    restart()
    stored()
    monkeypatch.setenv("EINSUMX_WISDOM", "0")
    assert wisdom.find(NUMPY, "cpu", KEY) is None


def test_while_choices_are_frozen_nothing_is_recorded(monkeypatch):
    stored()
    monkeypatch.setattr(effort, "_frozen", True)
    for text, value in ((KEY, finding("other")), (KEY + " new", finding())):
        wisdom.record(NUMPY, "cpu", text, value)
    assert wisdom.find(NUMPY, "cpu", KEY) == finding()
    assert wisdom.find(NUMPY, "cpu", KEY + " new") is None


# -- which files are believed -----------------------------------------------------------------------------------------


def warned(path=None):
    """The warning of the first look."""
    with pytest.warns(RuntimeWarning, match="einsumx ignores the wisdom in") as caught:
        assert wisdom.find(NUMPY, "cpu", KEY) is None
    assert wisdom.find(NUMPY, "cpu", KEY) is None  # and no second warning
    (warning,) = caught
    message = str(warning.message)
    assert "einsumx wisdom --forget --backend numpy" in message
    assert path is None or str(path) in message
    return message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("einsumx", "0.0.0"),
        ("framework", "0.0.1"),
        ("cores", 1000),
        ("blas", "mkl 1 AVX"),
    ],
)
def test_wisdom_from_elsewhere_is_ignored_with_a_warning_that_names_the_difference_and_replaced(field, value):
    path = stored()
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    assert f"it has {field} {value!r}, and here it is " in warned(path)
    wisdom.record(NUMPY, "cpu", KEY + " new", finding())
    wisdom.save()
    assert on_disk() == [KEY + " new"]


def test_a_warning_that_is_an_error_is_raised_once():
    stored().write_text("broken")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="einsumx ignores the wisdom in"):
            wisdom.find(NUMPY, "cpu", KEY)
        assert wisdom.find(NUMPY, "cpu", KEY) is None


def test_a_finalizer_that_contracts_while_a_file_is_read_does_not_hang(monkeypatch):
    def read(path):
        monkeypatch.setattr(wisdom.wisdom_files, "read_file", read_file)
        inner.append(wisdom.find(NUMPY, "cpu", KEY))
        return read_file(path)

    stored()
    inner = []
    monkeypatch.setattr(wisdom.wisdom_files, "read_file", read)
    assert wisdom.find(NUMPY, "cpu", KEY) == finding()
    assert inner == [finding()]


def test_an_unknown_blas_or_accelerator_fits_any_and_other_unknown_parts_do_not():
    here = Origin(1, "1.0", "numpy", "cpu", "2.4", "AMD EPYC", 8, "openblas", "H200")
    assert difference(replace(here, blas="", accelerator=""), here) == ""
    assert difference(here, replace(here, blas="mkl", accelerator="A100")) == (
        "it has blas 'openblas', and here it is 'mkl'; accelerator 'H200', and here it is 'A100'"
    )
    assert difference(here, replace(here, processor="")) == "it has processor 'AMD EPYC', and here it is ''"


def test_versions_of_a_framework_and_processors_have_files_of_their_own():
    here = origin_of(NUMPY, "cpu")
    others = [replace(here, framework="0.1"), replace(here, processor="Elbrus"), replace(here, device="cuda")]
    assert len({path_of(origin) for origin in (here, *others)}) == 4
    assert here.blas
    assert here.processor


def test_an_accelerator_is_part_of_where_a_finding_holds():
    class Fast(NumpyAdapter):
        def device_model(self, device):
            return "H200\n" if device.startswith("fast") else ""

    assert origin_of(Fast(), "fast:1").accelerator == "H200"
    assert origin_of(Fast(), "cpu").accelerator == ""


ENTRY = asdict(finding())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expecting value"),
        (b"\xff\xfe\x00", "utf-8"),
        ("[1, 2]", "it has no findings in it"),
        ('{"findings": {}}', "it has format None"),
        ({"format": 2}, "it has format 2, and this einsumx reads format 1"),
        ({"format": True}, "format: True is not an integer"),
        ({"cores": "8"}, "cores: '8' is not an integer"),
        ({"processor": "AMD\x1b[2J"}, "is not a text that this field can have"),
        ({"device": "../cpu"}, "is not a text that this field can have"),
        ({"findings": {KEY: 3}}, "3 is not a JSON object for Finding"),
        ({"findings": {KEY: {}}}, "None is not a JSON object for Selection"),
        ({"findings": {"": ENTRY}}, "'' is not a key"),
        ({"findings": {"a->a" + "x" * 1000: ENTRY}}, "is not a key"),
        ({"findings": {f"{KEY} {number}": ENTRY for number in range(2049)}}, "it has more than 2048 findings"),
        ({"seconds": 0}, "the times or the number of candidates are out of bounds"),
        ({"estimated": 0.0}, "the times or the number of candidates are out of bounds"),
        ({"tried": 0}, "the times or the number of candidates are out of bounds"),
        ({"tried": 10**7}, "the times or the number of candidates are out of bounds"),
        ({"seconds": float("nan")}, "NaN is not a number in JSON"),
        ({"seconds": True}, "seconds: True is not a finite number"),
        ({"when": "2026-01-31"}, "when: '2026-01-31' is not a text that this field can have"),
        ({"steps": ["x" * 501]}, "is not a text that this field can have"),
        ({"steps": ["__import__('os')"]}, "is not a text that this field can have"),
        ({"steps": ["", "", ""]}, "there are too many steps"),
        ({"path": [[0, 1.0], [0, 1]]}, "selection.path[0][1]: 1.0 is not an integer"),
        ({"path": [[0, 3], [0, 1]]}, "the path does not fit"),
        ({"path": [[0, 1], [0, 2]]}, "the path does not fit"),
        ({"path": [[0, 1]]}, "the path does not fit"),
        ({"path": [[0, 0], [0, 1]]}, "the path does not fit"),
        ({"path": [[], []]}, "the path does not fit"),
        ("[" + " " * (1 << 22) + "]", "more than 4194304 bytes"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_malformed_file_is_ignored_with_a_warning_and_replaced(text, reason):
    path = stored()
    if isinstance(text, dict):
        data = json.loads(path.read_text())
        entry = data["findings"][KEY]
        for field, value in text.items():
            place = next((each for each in (entry["selection"], entry) if field in each), data)
            place[field] = value
        text = json.dumps(data)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert reason in warned(path)
    wisdom.record(NUMPY, "cpu", KEY, finding("new"))
    restart()
    assert wisdom.find(NUMPY, "cpu", KEY) == finding("new")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are files on Unix alone")
@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a device without end", "a link to itself"])
@pytest.mark.parametrize("is_lock", [False, True], ids=["file", "lock"])
def test_what_is_no_file_but_has_the_name_of_one_does_not_hang_reading_or_writing(kind, is_lock, caplog):
    path = stored()
    other = path.with_name("wisdom-lock") if is_lock else path
    other.unlink()
    match kind:
        case "a pipe":
            os.mkfifo(other)
        case "a folder":
            other.mkdir()
        case "a device without end":
            other.symlink_to("/dev/zero")
        case "a link to itself":
            other.symlink_to(other)
    if is_lock:
        assert wisdom.find(NUMPY, "cpu", KEY) == finding()
    else:
        warned(path)
    wisdom.record(NUMPY, "cpu", KEY, finding("new"))
    wisdom.save()
    assert wisdom.find(NUMPY, "cpu", KEY) == finding("new")
    cannot = is_lock or kind == "a folder"
    assert [record.levelname for record in caplog.records] == ["WARNING"] * cannot


# -- folders that cannot be written -----------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_logged_once_and_findings_stay_in_memory(folder, caplog):
    folder.write_text("a file in its place")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(3):
            wisdom.record(NUMPY, "cpu", f"{KEY} {number}", finding())
            wisdom.save()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.startswith("einsumx keeps its measurements in memory alone: ")
    assert wisdom.find(NUMPY, "cpu", f"{KEY} 2") == finding()
    folder.unlink()
    wisdom.save()
    assert len(on_disk()) == 3


def test_a_folder_that_cannot_be_found_is_a_warning(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("einsumx.runtime.wisdom_names.cache_folder", nowhere)
    assert "its cache folder: Could not determine home" in warned()


# -- processes and threads --------------------------------------------------------------------------------------------

RECORD = f"""
import sys
from einsumx.adapters.registry import get_backend
from einsumx.planner.selection import Selection
from einsumx.runtime import wisdom
from einsumx.runtime.wisdom_files import Finding

def work(name, when="2026-01-31T12:00:00Z"):
    for number in range(3):
        found = Finding(Selection(None, ("", f"by {{name}}")), 0.5, 1.0, 3, when)
        wisdom.record(get_backend("numpy"), "cpu", f"{KEY} {{name}} {{number}}", found)
"""


def names_of(count):
    return sorted(f"{KEY} {name} {number}" for name in range(count) for number in range(3))


@pytest.mark.long
def test_processes_that_end_at_the_same_time_all_keep_their_findings():
    code = f"{RECORD}\nwork(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in range(4)
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.close()
    for worker in workers:
        assert worker.wait(60) == 0
        worker.stdout.close()
    assert sorted(on_disk()) == names_of(4)


def _record_many(name):
    namespace = {}
    exec(RECORD, namespace)
    namespace["work"](name)


@pytest.mark.long
@pytest.mark.parametrize("method", sorted({"fork", "spawn"} & {*multiprocessing.get_all_start_methods()}))
def test_workers_of_multiprocessing_keep_their_findings(method):
    context = multiprocessing.get_context(method)
    wisdom.record(NUMPY, "cpu", KEY, finding())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of forks beside threads, such as those of other tests
        workers = [context.Process(target=_record_many, args=(name,)) for name in range(2)]
        for worker in workers:
            worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert sorted(on_disk()) == sorted([KEY, *names_of(2)])


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_knows_its_parent_s_findings_and_leaves_writing_them_to_it():
    code = f"""{RECORD}
import os
work("0"); work("parent")
child = os.fork()
if not child:
    assert wisdom.find(get_backend("numpy"), "cpu", "{KEY} parent 0")
    assert not any(store.unsaved for store in wisdom._state.stores.values())
    work("child")
    sys.exit()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
from einsumx.runtime.wisdom_files import origin_of, path_of, read_file
print(sum("parent" in key for key in read_file(path_of(origin_of(get_backend("numpy"), "cpu")))[1]))
"""
    assert printed(code).strip() == "0"
    assert sum("child" in text for text in on_disk()) == 3
    assert sum("parent" in text for text in on_disk()) == 3


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_that_is_forked_while_another_thread_writes_does_not_hang():
    code = f"""{RECORD}
import os
work("parent")
with wisdom._state.lock, wisdom._state.saving:
    child = os.fork()
    if not child:
        work("child")
        sys.exit()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    printed(code)
    assert len(on_disk()) == 6


def test_of_two_findings_of_different_processes_the_newer_stays():
    stored(KEY, finding("old", when="2026-01-31T12:00:05Z"))
    here = origin_of(NUMPY, "cpu")
    wisdom_files.merge(here, {KEY: finding("older", when="2026-01-31T12:00:04Z")}, 1.0)
    assert read_file(path_of(here))[1] == {KEY: finding("old", when="2026-01-31T12:00:05Z")}
    wisdom_files.merge(here, {KEY: finding("new", when="2026-02-01T00:00:00Z")}, 1.0)
    assert read_file(path_of(here))[1] == {KEY: finding("new", when="2026-02-01T00:00:00Z")}


def test_a_process_learns_what_others_wrote_when_it_writes():
    wisdom.record(NUMPY, "cpu", KEY, finding())
    wisdom_files.merge(origin_of(NUMPY, "cpu"), {KEY + " other": finding("theirs")}, 1.0)
    assert wisdom.find(NUMPY, "cpu", KEY + " other") is None
    wisdom.record(NUMPY, "cpu", KEY + " own", finding())
    wisdom.save()
    assert wisdom.find(NUMPY, "cpu", KEY + " other") == finding("theirs")
    assert wisdom.find(NUMPY, "cpu", KEY + " own") == finding()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks of files")
def test_a_process_that_hangs_while_it_writes_does_not_make_others_hang(folder, monkeypatch, caplog):
    stored()
    code = f"""
import fcntl, sys
file = open({str(folder / "wisdom-lock")!r}, "r+b")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""
    monkeypatch.setattr(wisdom, "_PATIENCE", 0.05)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as hanging:
        assert hanging.stdout.readline() == "locked\n"
        wisdom.record(NUMPY, "cpu", KEY + " new", finding())
        wisdom.save()
        assert on_disk() == [KEY]
        with pytest.raises(TimeoutError, match="another process has been writing to"):
            wisdom_files.merge(origin_of(NUMPY, "cpu"), {}, 0.05)
    assert caplog.records == []
    wisdom.save()
    assert on_disk() == [KEY, KEY + " new"]


def test_threads_that_record_at_the_same_time_lose_nothing():
    def work():
        for number in range(20):
            wisdom.record(NUMPY, "cpu", f"{KEY} {threading.get_ident()} {number}", finding())

    in_threads(work)
    wisdom.save()
    assert len(on_disk()) == 80


# -- export, import, forget -------------------------------------------------------------------------------------------


def test_wisdom_travels_in_one_file(tmp_path, folder):
    bundle = tmp_path / "all.json"
    wisdom.record(NUMPY, "cpu", KEY, finding())
    wisdom.record(NUMPY, "", KEY + " default", finding())
    stranger = replace(origin_of(NUMPY, "cpu"), processor="Elbrus")
    wisdom_files.merge(stranger, {KEY: finding()}, 1.0)
    assert wisdom.export_to(bundle) == 2
    assert len(wisdom.forget()) == 3
    assert wisdom.find(NUMPY, "cpu", KEY) is None
    wisdom.record(NUMPY, "cpu", KEY + " own", finding())
    assert wisdom.import_from(bundle) == 2
    for _ in range(2):
        for text in (KEY, KEY + " own"):
            assert wisdom.find(NUMPY, "cpu", text) == finding()
        assert wisdom.find(NUMPY, "", KEY + " default") == finding()
        restart()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"processor": "Elbrus"}, "it was measured elsewhere: it has processor 'Elbrus', and here it is"),
        ({"backend": "numpi"}, "no backend is called 'numpi'"),
        ({"cores": "many"}, "cores: 'many' is not an integer"),
        ({"findings": {KEY: {}}}, "None is not a JSON object for Selection"),
    ],
)
def test_an_import_is_complete_or_does_nothing(tmp_path, change, reason):
    path = stored()
    bundle = tmp_path / "all.json"
    wisdom.export_to(bundle)
    data = json.loads(bundle.read_text())
    data["wisdom"].append({**data["wisdom"][0], **change})
    bundle.write_text(json.dumps(data))
    path.unlink()
    with pytest.raises((einsumx.EinsumxError, ValueError), match=reason):
        wisdom.import_from(bundle)
    assert not path.exists()


def test_forgetting_is_for_some_backends_or_devices_alone(folder):
    torch = replace(origin_of(NUMPY, "cpu"), backend="torch")
    for origin in (torch, replace(torch, device="cuda"), origin_of(NUMPY, "cpu")):
        wisdom_files.merge(origin, {KEY: finding()}, 1.0)
    (folder / "notes.json").write_text("not ours")
    assert wisdom.forget(["torch"], "cuda:0") == [path_of(replace(torch, device="cuda"))]
    assert wisdom.forget(["torch"]) == [path_of(torch)]
    assert wisdom.find(NUMPY, "cpu", KEY) == finding()
    assert wisdom.forget() == [path_of(origin_of(NUMPY, "cpu"))]
    assert wisdom.find(NUMPY, "cpu", KEY) is None
    assert {path.name for path in folder.iterdir()} == {"notes.json", "wisdom-lock"}


# -- the command ------------------------------------------------------------------------------------------------------


def told(capsys, *arguments):
    assert main(["wisdom", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_command_shows_what_won_and_by_how_much_and_names_a_file_that_is_not_used(capsys, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path = stored(KEY, finding("copy lhs, matmul", path=((0, 1), (0, 1))))
    broken = path.with_name(path.name.replace("numpy", "torch"))
    broken.write_text("broken")
    assert main(["wisdom"]) == 0
    shown = capsys.readouterr()
    assert f"{broken} is not used: Expecting value" in shown.err
    assert shown.out.startswith(f"numpy {np.__version__} on cpu, ")
    assert shown.out.endswith(f"stored in {folder}\n")
    row = next(line for line in shown.out.splitlines() if line.startswith("ab,bc,cd->ad"))
    for cell in ("a=8 b=8 c=8 d=8", "(0,1) (0,1): estimate, copy lhs, matmul", "2.00×", "2026-01-31"):
        assert cell in row


def test_the_command_prints_json_whose_every_key_its_help_describes(capsys, folder, tmp_path):
    stored()
    shown = told(capsys, "--show", "--backend", "numpy", "--device", "cpu")
    assert shown == {
        "folder": str(folder),
        "wisdom": [{**asdict(origin_of(NUMPY, "cpu")), "findings": {KEY: json.loads(json.dumps(asdict(finding())))}}],
    }
    assert told(capsys, "--backend", "torch")["wisdom"] == []
    exported = told(capsys, "--export", str(tmp_path / "all.json"))
    assert exported == {"folder": str(folder), "file": str(tmp_path / "all.json"), "findings": 1}
    removed = told(capsys, "--forget")
    assert removed == {"folder": str(folder), "removed": [path_of(origin_of(NUMPY, "cpu")).name]}
    assert told(capsys, "--import", str(tmp_path / "all.json")) == exported
    with pytest.raises(SystemExit):
        main(["wisdom", "--help"])
    text = capsys.readouterr().out
    keys = {*shown, *shown["wisdom"][0], *asdict(finding()), *exported, *removed}
    assert [name for name in keys if name not in text] == []


def test_what_cannot_be_imported_or_exported_ends_in_status_2(capsys, tmp_path):
    bundle = tmp_path / "all.json"
    assert main(["wisdom", "--import", str(bundle)]) == 2
    assert f"{bundle} is not imported: [Errno 2] No such file or directory" in capsys.readouterr().err
    bundle.write_text('{"wisdom": [], "more": 1}')
    assert main(["wisdom", "--import", str(bundle)]) == 2
    assert f"{bundle} is not imported: it has no wisdom in it" in capsys.readouterr().err
    stored()
    assert main(["wisdom", "--export", str(bundle)]) == 0
    assert capsys.readouterr().out == f"1 exported to {bundle}\n"
    bundle.write_text(bundle.read_text().replace(f'"cores": {os.cpu_count()}', '"cores": 1000'))
    assert main(["wisdom", "--import", str(bundle)]) == 2
    message = f"{bundle} is not imported: it was measured elsewhere: it has cores 1000, and here it is"
    assert capsys.readouterr().err.startswith(f"einsumx wisdom: error: {message}")
    assert main(["wisdom", "--export", str(tmp_path / "none" / "all.json")]) == 2
    assert "all.json is not exported: [Errno 2] No such file or directory" in capsys.readouterr().err
