"""Wisdom: its keys, what a process remembers, and what the command shows, exports, imports and forgets."""

import json
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
from processes import printed
from threads import in_threads

import einsumx
from einsumx.adapters.registry import get_backend
from einsumx.cli.main import main
from einsumx.ir.algebra import PLUS_TIMES
from einsumx.ir.bind import bind
from einsumx.ir.contraction import Contraction
from einsumx.ir.operand import Operand
from einsumx.ir.parse import parse_sublists, parse_text
from einsumx.measuring import effort, findings, store, wisdom
from einsumx.measuring.calibration import place_of, store_rates
from einsumx.measuring.findings import Finding
from einsumx.planner.path import find_path
from einsumx.planner.selection import Selection

NUMPY = get_backend("numpy")
DEEP = 1_000_000
"""More brackets within one another than fit on the stack: new Pythons count bytes, where older ones counted calls."""
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
    wisdom._known.clear()
    wisdom._failures.clear()
    einsumx.cache_clear()


def stored(key=KEY, value=None):
    """Store one finding for NumPy, and forget it in memory."""
    wisdom.record(NUMPY, "cpu", key, value or finding())
    restart()


# -- keys -----------------------------------------------------------------------------------------------------------


def key(equation, *shapes, strides=None, dtypes="float32", dtype="float32", optimize="auto", weak=False):
    operands = [Operand(shape, dtypes, weak=weak) for shape in shapes]
    if strides is not None:
        operands[0] = replace(operands[0], strides=strides)
    return key_of(bind(parse_text(equation, len(shapes)), shapes), operands, dtype, optimize)


def key_of(sized, operands, dtype, optimize="auto"):
    path = find_path(sized, optimize)
    contraction = Contraction(sized, tuple(operands), dtype, path, place_of(PLUS_TIMES, NUMPY, ""))
    return findings.key_of(contraction, optimize == "auto")


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
    assert expected == key_of(named, operands, "float32")
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
    ]
    monkeypatch.setattr("einsumx.measuring.findings.get_num_threads", lambda: 1000)
    others.append(key("ij,jk->ik", (8, 9), (9, 7)))
    assert len({one, *others}) == 9


def test_nothing_is_kept_about_overlapping_elements_or_what_is_too_long_to_write():
    assert key("ij->", (8, 9), strides=(1, 1)) is None
    assert key(",".join(["i"] * 300), *[(3,)] * 300) is None


def test_every_key_can_be_stored():
    keys = [key(",".join(["ij"] * 60), *[(3, 4)] * 60), key("->", ()), key("i->", (0,)), key("a" * 30, (1,) * 30)]
    many = bind(parse_sublists([list(range(90))], list(range(90))), [(1,) * 90])
    keys.append(key_of(many, [Operand((1,) * 90, "float32")], "float32"))
    for text in keys:
        wisdom.record(NUMPY, "cpu", text, finding())
    wisdom._known.clear()
    assert [wisdom.find(NUMPY, "cpu", text) for text in keys] == [finding()] * 5


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
    assert wisdom.find(NUMPY, "cpu", KEY) == finding("second")
    restart()
    assert wisdom.find(NUMPY, "cpu", KEY) == finding("second")


def test_a_malformed_finding_is_an_error_and_is_not_kept(folder):
    for text, value in ((KEY, finding("shutil.rmtree('/')")), (KEY, finding(seconds=0.0)), ("none", finding())):
        with pytest.raises(ValueError, match=r"is not a text|has no times"):
            wisdom.record(NUMPY, "cpu", text, value)
    assert not folder.exists()


@pytest.mark.parametrize(
    "path", [((0, 1),), ((0, 3), (0, 1)), ((0, 0), (0, 1)), ((), ()), ((0, 2**62), (0, 1))], ids=str
)
def test_a_path_that_does_not_fit_leaves_the_estimate(path):
    arrays = [np.ones((8, 8))] * 3
    usual = einsumx.plan("ij,jk,kl->il", *arrays)
    text = key("ij,jk,kl->il", *[(8, 8)] * 3, dtypes="float64", dtype="float64")
    stored(text, finding(path=path))
    assert wisdom.find(NUMPY, "cpu", text) is not None
    einsumx.cache_clear()
    assert einsumx.plan("ij,jk,kl->il", *arrays) == usual


def test_memory_and_store_are_bounded_and_lose_the_oldest(monkeypatch):
    monkeypatch.setattr(store, "MOST_ROWS", 5)
    names = [f"{KEY} {number}" for number in range(9)]
    for name in names:
        wisdom.record(NUMPY, "cpu", name, finding())
    for _ in range(2):
        assert [name for name in names if wisdom.find(NUMPY, "cpu", name)] == names[4:]
        restart()


def test_other_equations_than_those_with_findings_need_no_key():
    stored(key("ij,jk->ik", (8, 9), (9, 7)))
    shapes = (8, 9), (9, 7)
    asked = [findings.equation_text(bind(parse_text(equation, 2), shapes)) for equation in ("ab,bc->ac", "ab,bc->ca")]
    assert [text in wisdom.equations(NUMPY, "cpu") for text in asked] == [True, False]


@pytest.mark.long
def test_a_call_without_a_store_imports_nothing_for_it_and_a_look_into_one_no_framework(folder):
    code = """
import sys, numpy, einsumx
einsumx.einsum("ij,jk->ik", numpy.ones((2, 2)), numpy.ones((2, 2)))
print([name for name in ("sqlite3", "einsumx.measuring.store", "einsumx.measuring.findings") if name in sys.modules])
"""
    assert printed(code).strip() == "[]"
    stored()
    code = f"""
import sys, einsumx
from einsumx.measuring import wisdom
from einsumx.adapters.registry import get_backend
found = wisdom.find(get_backend("numpy"), "cpu", {KEY!r})
print(found.seconds, "numpy" in sys.modules)
"""
    assert printed(code).strip() == "0.5 False"


def test_a_variable_or_a_backend_of_many_libraries_keeps_findings_in_memory_alone(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("EINSUMX_WISDOM", "0")
        wisdom.record(NUMPY, "cpu", KEY, finding())
    many = get_backend("array_api")
    wisdom.record(many, "cpu", KEY, finding())
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


def test_a_finalizer_that_contracts_while_the_store_is_read_does_not_hang(monkeypatch):
    def read(*arguments):
        monkeypatch.setattr(store, "_transaction", transaction)
        inner.append(wisdom.find(NUMPY, "cpu", KEY))
        return transaction(*arguments)

    stored()
    inner, transaction = [], store._transaction
    monkeypatch.setattr(store, "_transaction", read)
    assert wisdom.find(NUMPY, "cpu", KEY) == finding()
    assert inner == [finding()]


def test_a_store_that_cannot_be_written_is_logged_once_and_findings_stay_in_memory(folder, caplog):
    folder.write_text("a file in its place")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(3):
            wisdom.record(NUMPY, "cpu", f"{KEY} {number}", finding())
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.startswith("einsumx keeps its measurements only in memory: ")
    assert wisdom.find(NUMPY, "cpu", f"{KEY} 2") == finding()


def test_threads_that_record_at_the_same_time_lose_nothing():
    def work():
        for number in range(5):
            wisdom.record(NUMPY, "cpu", f"{KEY} {threading.get_ident()} {number}", finding())

    in_threads(work)
    restart()
    wisdom.find(NUMPY, "cpu", KEY)
    assert len(wisdom._known[NUMPY, "cpu"].found) == 20


# -- the command ------------------------------------------------------------------------------------------------------


def told(capsys, *arguments):
    assert main(["wisdom", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_command_shows_what_won_and_by_how_much_and_rates(capsys, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    stored(KEY, finding("copy lhs, matmul", path=((0, 1), (0, 1))))
    store_rates(NUMPY, "cpu", {"gemm": 98.7e9, "call": 2e-6})
    assert main(["wisdom"]) == 0
    text = capsys.readouterr().out
    header, blank = text.splitlines()[:2]
    assert header.startswith(f"numpy {np.__version__} on cpu, ")
    assert blank == ""
    assert f"rates, threads: {einsumx.get_num_threads()}; gemm 98.7 G/s, call 2.00 µs\n" in text
    assert text.endswith(f"stored in {folder}\n")
    row = next(line for line in text.splitlines() if line.startswith("ab,bc,cd->ad"))
    for cell in ("a=8 b=8 c=8 d=8", "(0,1) (0,1): estimate, copy lhs, matmul", "2.00×", "2026-01-31"):
        assert cell in row


def test_the_command_prints_json_whose_every_key_its_help_describes(capsys, folder, tmp_path):
    stored()
    store_rates(NUMPY, "cpu", {"gemm": 1e9})
    shown = told(capsys, "--show", "--backend", "numpy", "--device", "cpu:0")
    (plan,), (rates,) = shown["plans"], shown["rates"]
    origin = store.origin_of(NUMPY, "cpu")._asdict()
    assert rates == {**origin, "key": str(einsumx.get_num_threads()), "value": {"gemm": 1e9}}
    selection = {"path": None, "steps": ["", "copy lhs"]}
    times = {"seconds": 0.5, "estimated": 1.0, "tried": 3, "when": "2026-01-31T12:00:00Z"}
    assert plan == {**origin, "key": KEY, "value": {"selection": selection, **times}}
    assert told(capsys, "--backend", "torch") == {"folder": str(folder), "plans": [], "rates": []}
    for option in (("--export", str(tmp_path / "all.json")), ("--forget",), ("--import", str(tmp_path / "all.json"))):
        assert told(capsys, *option) == {"folder": str(folder), "count": 2}
    assert told(capsys) == shown
    with pytest.raises(SystemExit):
        main(["wisdom", "--help"])
    text = capsys.readouterr().out
    assert [name for name in {*shown, *plan, *plan["value"], "path", "count"} if name not in text] == []


def test_forgetting_is_for_some_backends_or_devices_alone(capsys, folder):
    cpu = store.origin_of(NUMPY, "cpu")
    torch = cpu._replace(backend="torch")
    for origin in (torch, torch._replace(device="cuda"), cpu):
        store.write("rates", [store.Row(origin, "2", '{"gemm": 1e9}')])
    assert told(capsys, "--forget", "--backend", "torch", "--device", "cuda:0")["count"] == 1
    assert told(capsys, "--forget", "--backend", "torch", "mxnet")["count"] == 1
    assert [row["backend"] for row in told(capsys)["rates"]] == ["numpy"]
    assert main(["wisdom", "--forget"]) == 0
    assert capsys.readouterr().out == f"1 row removed from {folder}\n"
    assert main(["wisdom"]) == 0
    assert capsys.readouterr().out == f"nothing is stored in {folder}\n"


def exported(tmp_path, capsys):
    """A file with one finding, which is then forgotten, and its contents."""
    stored()
    bundle = tmp_path / "all.json"
    told(capsys, "--export", str(bundle))
    told(capsys, "--forget")
    return bundle, json.loads(bundle.read_text())


def test_of_an_exported_file_the_rows_for_this_machine_are_imported(capsys, tmp_path):
    bundle, data = exported(tmp_path, capsys)
    (row,) = data["plans"]
    data["plans"] += [{**row, "machine": "Elbrus, 8 cores"}, {**row, "backend": "unknown"}]
    bundle.write_text(json.dumps(data))
    assert told(capsys, "--import", str(bundle))["count"] == 1
    restart()
    assert wisdom.find(NUMPY, "cpu", KEY) == finding()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"machine": "Elbrus, 8 cores"},
            "it was measured with another version of einsumx, processor or BLAS: 'numpy, cpu, ",
        ),
        ({"machine": 8}, "8 is not a line of text"),
        ({"device": "cpu\x1b[2J"}, "is not a line of text"),
        ({"device": "\ud800"}, "is not a line of text"),
        ({"key": ""}, "'' has no times of candidates"),
        ({"more": 1}, "is not a row"),
        ({"value": 3}, "3 is not a JSON object for Finding"),
        ({"value": {}}, "it has no 'selection'"),
        ({"seconds": 0}, "has no times of candidates"),
        ({"seconds": "0.5"}, "seconds: '0.5' is not a finite number"),
        ({"tried": 2**63}, "tried: 9223372036854775808 is not an integer"),
        ({"when": "now"}, "when: 'now' is not a text that this field can have"),
        ({"steps": ["__import__('os')"]}, "is not a text that this field can have"),
        ({"path": [[0, 1.0], [0, 1]]}, "selection.path[0][1]: 1.0 is not an integer"),
    ],
    ids=str,
)
def test_a_file_with_a_malformed_row_or_from_elsewhere_is_not_imported(capsys, tmp_path, change, reason):
    bundle, data = exported(tmp_path, capsys)
    (good,) = data["plans"]
    row = json.loads(json.dumps(good))
    value = row["value"]
    for name, item in change.items():
        place = next((each for each in (value["selection"], value) if name in each), row)
        place[name] = item
    data["plans"] = [row] if "measured" in reason else [good, row]
    bundle.write_text(json.dumps(data))
    assert main(["wisdom", "--import", str(bundle)]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert error.startswith(f"einsumx wisdom: error: {bundle} cannot be imported: ")
    assert reason in error
    assert told(capsys)["plans"] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expecting value"),
        (b"\xff\xfe\x00", "utf-8"),
        ("[1, 2]", "it has no wisdom of format 1"),
        ('{"format": 2, "plans": [], "rates": []}', "it has no wisdom of format 1"),
        ('{"format": 1, "plans": {}, "rates": []}', "is not a list of at most 4096 rows"),
        ('{"format": 1, "plans": [%s 1], "rates": []}' % ("1," * 4096), "is not a list of at most 4096 rows"),
        ('{"format": 1, "plans": [%s], "rates": []}' % ("[" * DEEP + "]" * DEEP), "nested too deeply"),
        (" " * (1 << 25) + "1", "more than 33554432 bytes"),
        (None, "No such file or directory"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_exported_file_is_not_imported(capsys, tmp_path, text, reason):
    bundle = tmp_path / "all.json"
    if text is not None:
        bundle.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["wisdom", "--import", str(bundle)]) == 2
    assert reason in capsys.readouterr().err


def test_what_cannot_be_exported_ends_in_status_2(capsys, tmp_path):
    assert main(["wisdom", "--export", str(tmp_path / "none" / "all.json")]) == 2
    assert "all.json cannot be written: [Errno 2] No such file or directory" in capsys.readouterr().err


# -- blocks ---------------------------------------------------------------------------------------------------------


def test_blocks_run_the_programs_that_their_limit_was_checked_for_whatever_the_wisdom_has(monkeypatch):
    lhs, rhs, out = np.ones((300, 266)), np.ones((266, 300)), np.empty((300, 300))
    plan = einsumx.plan("ij,jk->ik", lhs, rhs, memory_limit=400_000, out=out)
    assert plan.cuts == {"k": 2}
    block = rhs[:, :150]
    for optimize in ("auto", ((0, 1),)):
        operands = [NUMPY.operand(NUMPY.signature(array)) for array in (lhs, block)]
        sized = bind(parse_text("ij,jk->ik", 2), [lhs.shape, block.shape])
        name = key_of(sized, operands, "float64", optimize)
        wisdom.record(
            NUMPY, "cpu", name, Finding(Selection(None, ("one einsum",)), 0.5, 1.0, 3, "2026-01-31T12:00:00Z")
        )
    ran = []
    kernel = type(NUMPY).kernel
    monkeypatch.setattr(type(NUMPY), "kernel", lambda *given: ran.append(type(given[1]).__name__) or kernel(*given))
    einsumx.einsum("ij,jk->ik", lhs, block)
    assert ran == ["Native"]
    ran.clear()
    assert (plan(lhs, rhs, out=out) == 266).all()
    assert ran
    assert "Native" not in ran
