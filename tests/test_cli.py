"""The command line: what it prints, what it finds wrong, and how it ends."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import einsumx
from einsumx.backends.numpy import NumpyAdapter
from einsumx.cli import side_by_side
from einsumx.cli.main import main
from einsumx.cli.side_by_side import Failed, Measured, Problem, attention, compare, make_trial
from einsumx.ir.ops import Matmul

pytestmark = pytest.mark.usefixtures("quiet_machine")

SMALL = ("compare", "ab,bc->ac", "30,40", "40,20", "--backend", "numpy", "--rounds", "1")

PROGRESS = "computing the expected results with numpy.einsum\nnumpy\nnumpy  ab,bc->ac\n"
"""What this prints on standard error while it runs, unless that is a terminal."""


def rows_of(capsys, *arguments, status=0):
    """What a comparison prints as JSON, after checking how it ended."""
    assert main([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def measure(equation, *shapes, dtype="float32", backend="numpy", **options):
    """The one row of a comparison."""
    options.setdefault("rounds", 1)
    (row,) = compare([make_trial(Problem(equation, shapes, dtype))], [backend], **options)
    return row


def run(*arguments, **environment):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "einsumx", *arguments]
    variables = {**os.environ, "PYTHONIOENCODING": "utf-8", **environment}
    encoding = variables["PYTHONIOENCODING"]
    return subprocess.run(command, capture_output=True, encoding=encoding, env=variables, check=False)


# -- what is measured -------------------------------------------------------------------------------------------


def test_without_an_equation_the_three_problems_are_run(capsys):
    found = rows_of(capsys, "compare", "--backend", "numpy", "--batch", "1", "--rounds", "1")
    assert [(row["equation"], row["shapes"]) for row in found["rows"]] == [
        ("bnid,bnjd->bnij", [[1, 8, 100, 128], [1, 8, 50, 128]]),
        ("bind,bjnd->bnij", [[1, 100, 8, 128], [1, 50, 8, 128]]),
        ("bind,jnd->bnij", [[1, 100, 8, 128], [50, 8, 128]]),
    ]
    assert attention()[0].shapes == ((64, 8, 100, 128), (64, 8, 50, 128))
    assert {row["status"] for row in found["rows"]} == {"right"}
    assert {row["generic_kernel"] for row in found["rows"]} == {False}


def test_a_comparison_says_in_json_what_was_measured(capsys):
    found = rows_of(capsys, *SMALL[:-1], "5")
    (row,) = found.pop("rows")
    assert found.pop("cores") >= 1
    assert isinstance(found.pop("warnings"), list)
    assert found == {"einsumx": version("einsumx"), "dtype": "float32", "device": "", "right": True}
    native, ours = row.pop("native_seconds"), row.pop("einsumx_seconds")
    assert 0 < native < 10
    assert 0 < ours < 10
    assert row.pop("native_per_einsumx") == pytest.approx(native / ours)
    assert row.pop("verdict") in ("faster", "tie", "slower")
    assert row.pop("spread") >= 1
    assert row.pop("disturbances") == []
    assert 0 < row.pop("error_per_bound") < 1
    assert row == {
        "backend": "numpy",
        "status": "right",
        "reason": "",
        "library": "numpy",
        "version": np.__version__,
        "equation": "ab,bc->ac",
        "shapes": [[30, 40], [40, 20]],
        "rounds": 5,
        "ops": ["matmul"],
        "generic_kernel": False,
    }


def test_help_describes_every_key_of_the_json(capsys, missing_library):
    found = rows_of(capsys, *SMALL, "--backend", missing_library)
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    text = capsys.readouterr().out
    keys = set(found).union(*found["rows"])
    assert len(keys) > 15
    assert [key for key in keys if key not in text] == []

    main(["explain", "ab->", "3,4", "--json"])
    found = json.loads(capsys.readouterr().out)
    with pytest.raises(SystemExit):
        main(["explain", "--help"])
    text = capsys.readouterr().out
    assert [key for key in found if key not in text] == []


def test_help_has_the_whole_first_sentence_of_each_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert 'the effort "measure" or einsumx.tune found to be the fastest, and the rates of `einsumx calibrate`' in text


@pytest.mark.long
def test_each_function_is_timed_three_times_or_more_often_or_less_often_if_it_takes_long(monkeypatch):
    product = ("ab,bc->ac", (3, 4), (4, 5))
    ticks = count()
    monkeypatch.setattr(side_by_side, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(side_by_side, "_SECONDS", 0.0)
    assert measure(*product, rounds=None).rounds == 3
    monkeypatch.setattr(side_by_side, "_SECONDS", 9.0)
    monkeypatch.setattr(side_by_side, "_PATIENCE", 100.0)
    assert measure(*product, rounds=None).rounds > 3
    monkeypatch.setattr(side_by_side, "_PATIENCE", 0.0)
    assert measure(*product, rounds=None).rounds == 1
    assert measure(*product, rounds=4).rounds == 4


def test_a_framework_without_an_einsum_is_timed_alone(monkeypatch, capsys):
    def native(self, equation, arrays):
        raise NotImplementedError("no such thing")

    monkeypatch.setattr(NumpyAdapter, "native", native)
    (row,) = rows_of(capsys, *SMALL)["rows"]
    assert (row["status"], row["native_seconds"], row["native_per_einsumx"]) == ("right", None, None)
    assert row["reason"] == "NotImplementedError: no such thing"
    assert row["einsumx_seconds"] > 0


def test_a_plan_that_calls_the_generic_kernel_is_told(capsys, monkeypatch):
    mxnets = einsumx.plan("ab,bc->ac", (3, 4), (4, 5), dtypes="int32", backend="mxnet")
    assert "einsum ab,bc->ac" in str(mxnets)  # MXNet has no product of integer matrices
    monkeypatch.setattr(side_by_side, "plan", lambda equation, *arrays: mxnets)
    (row,) = rows_of(capsys, *SMALL)["rows"]
    assert (row["ops"], row["generic_kernel"]) == (["native"], True)
    main(SMALL)
    assert "Generic einsum kernels called: numpy (ab,bc->ac)." in capsys.readouterr().out


def test_every_backend_has_a_row_and_installed_ones_are_right(capsys):
    found = rows_of(capsys, "compare", "abc,cbd->da", "6,5,4", "4,5,7", "--rounds", "1")
    assert [row["backend"] for row in found["rows"]] == list(einsumx.backends())
    assert {row["status"] for row in found["rows"]} <= {"right", "absent"}
    assert {row["backend"] for row in found["rows"] if row["status"] == "right"} >= {"numpy"}


# -- what is wrong, or not there ----------------------------------------------------------------------------------


@pytest.fixture
def faulty_matmul(monkeypatch):
    """NumPy's matmul with one element off by more than rounding explains."""

    def matmul(lhs, rhs):
        result = np.matmul(lhs, rhs)
        result.flat[-1] += 1e-3
        return result

    kernel = NumpyAdapter.kernel
    monkeypatch.setattr(
        NumpyAdapter, "kernel", lambda self, op, *rest: matmul if isinstance(op, Matmul) else kernel(self, op, *rest)
    )
    einsumx.cache_clear()
    yield
    einsumx.cache_clear()


def test_a_faulty_matmul_is_found_and_shown_in_the_table(capsys, faulty_matmul):
    found = rows_of(capsys, *SMALL, status=1)
    (row,) = found["rows"]
    assert (found["right"], row["status"]) == (False, "wrong")
    assert row["reason"].startswith("element (29, 19) is ")
    assert row["error_per_bound"] > 1
    assert main(SMALL) == 1
    text = capsys.readouterr().out
    assert "WRONG" in text
    assert "0 of 1 results right." in text
    assert "element (29, 19) is " in text


def test_an_exception_is_a_failed_row_and_the_others_are_still_measured(monkeypatch, capsys):
    right = side_by_side.einsum

    def einsum(equation, *arrays):
        if equation == "ab->ba":
            raise RuntimeError("out of order\nand more")
        return right(equation, *arrays)

    monkeypatch.setattr(side_by_side, "einsum", einsum)
    cases = [make_trial(Problem(equation, ((3, 4),), "float32")) for equation in ("ab->ba", "ab->a")]
    failed, measured = compare(cases, ["numpy"], rounds=1)
    assert isinstance(failed, Failed)
    assert failed.reason == "RuntimeError: out of order"
    assert isinstance(measured, Measured)

    failing = ("compare", "ab->ba", "3,4", "--backend", "numpy", "--rounds", "1")
    (row,) = rows_of(capsys, *failing, status=1)["rows"]
    assert (row["status"], row["reason"]) == ("failed", "RuntimeError: out of order")
    assert main(failing) == 1
    text = capsys.readouterr().out
    assert "FAILED" in text
    assert "numpy, ab->ba: einsumx failed: RuntimeError: out of order" in text


def test_a_framework_that_is_not_there_is_a_row_that_says_how_to_install_it(capsys, missing_library):
    found = rows_of(capsys, *SMALL, "--backend", missing_library)
    assert found["right"]
    assert found["rows"][1] == {
        "backend": "nowhere",
        "status": "absent",
        "reason": "not installed",
        "install": "pip install 'nowhere[all]'",
    }
    assert main([*SMALL, "--backend", missing_library]) == 0
    assert "nowhere  not installed: pip install 'nowhere[all]'\n" in capsys.readouterr().out


def test_where_nothing_could_be_compared_the_status_is_2(capsys, missing_library):
    assert main([*SMALL[:4], "--backend", missing_library, "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.err == "einsumx compare: error: none of nowhere can be compared here; install one of them\n"
    assert [row["status"] for row in json.loads(printed.out)["rows"]] == ["absent"]


NO_DTYPE_OF_NUMPY = "complex32" if find_spec("ml_dtypes") else "bfloat16"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--dtype", NO_DTYPE_OF_NUMPY), NO_DTYPE_OF_NUMPY),
        (("--device", "cuda"), "has arrays on the CPU only, not on cuda"),
    ],
    ids=["dtype", "device"],
)
def test_what_a_framework_does_not_have_is_no_wrong_result(capsys, options, reason):
    (row,) = rows_of(capsys, *SMALL, *options, status=2)["rows"]
    assert row["status"] == "absent"
    assert reason in row["reason"]


# -- what is asked wrongly ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["compare", "explain"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a!->a", "3,4"), "'!' is not a label: labels are letters"),
        (("ab,bc->ac", "3,4", "5,6"), "label 'b' has size 4 in operand 0 (axis 1) but size 5 in operand 1 (axis 0)"),
        (("ab,bc->ac", "3,4"), "the equation has 2 subscripts but 1 operand was given"),
        (("ab->a", "3,4", "--backend", "numpi"), "no backend is called 'numpi'; there are numpy, torch, "),
    ],
    ids=["equation", "sizes", "operands", "backend"],
)
def test_a_mistake_is_one_message_and_status_2(capsys, command, arguments, message):
    assert main([command, *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"einsumx {command}: error: {message}")
    assert printed.out == ""


def test_an_equation_to_compare_without_shapes_is_told_how_to_give_them(capsys):
    assert main(["compare", "ab,bc->ac"]) == 2
    assert "an equation needs shapes; write einsumx compare 'ij,jk->ik' 2,3 3,4" in capsys.readouterr().err


def test_the_command_alone_lists_its_commands(capsys):
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "compare,explain,profile" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("explain", "ab->a", "3,x"),
            "argument SHAPE: '3,x' is not a shape; write sizes with commas, such as 64,100,8",
        ),
        (("explain", "ab->a", "3,,4"), "argument SHAPE: '3,,4' is not a shape"),
        (("explain", "ab->a", ""), "argument SHAPE: '' is not a shape"),
        (("explain", "ab->a", "3,4", "--dtype", "float31"), "argument --dtype: 'float31' is not a dtype"),
        (("compare", "--rounds", "0"), "argument --rounds: '0' is not a positive number"),
        (("compare", "--batch", "-3"), "argument --batch: "),
        (("contract",), "invalid choice: 'contract'"),
    ],
    ids=" ".join,
)
def test_arguments_that_cannot_be_read_end_in_status_2(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SMALL, "--batch", "3"), "--batch is for the three problems"),
        (("explain", "ab,bc->ac", "3,4", "4,5", "--optimize", "quick"), "no optimizer is called 'quick'"),
        (
            ("explain", "ab,bc->ac", "3,4", "4,5", "--device", "cuda:0"),
            "numpy has no device 'cuda:0', because its arrays are only on cpu",
        ),
        (("compare", "ab->b", "99999999,99999999", "--json"), "Unable to allocate"),
    ],
    ids=["batch", "optimizer", "device", "memory"],
)
def test_what_cannot_be_done_is_refused(capsys, arguments, message):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437"])
def test_letters_that_the_output_lacks_are_printed_as_escapes(encoding):
    for first, last in ("\u03b1\u03b3", "i\udcff"):
        equation = f"{first}\u202e,\u202e{last}->{last}{first}"
        done = run("explain", equation, "20,30", "30,40", PYTHONIOENCODING=encoding)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(equation.encode(encoding, "backslashreplace").decode(encoding))
    done = run("profile", "ab,bc->ac", "20,30", "30,40", PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr


def test_without_rich_the_table_is_refused_before_anything_is_measured_and_json_is_not(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich", None)
    assert rows_of(capsys, *SMALL)["right"]
    monkeypatch.setattr("einsumx.cli.commands.compare.make_trial", lambda problem: pytest.fail("measured in vain"))
    assert main(SMALL) == 2
    assert "pip install 'einsumx[cli]'" in capsys.readouterr().err


def test_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"einsumx {version('einsumx')}\n"


# -- explain ------------------------------------------------------------------------------------------------------


def explained(capsys, *arguments):
    assert main(["explain", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_explain_counts_what_a_matrix_product_costs(capsys):
    found = explained(capsys, "ab,bc->ac", "1000,800", "800,1200")
    del found["ops"][0]["out"]
    assert found == {
        "equation": "ab,bc->ac",
        "backend": "numpy",
        "device": "",
        "shapes": [[1000, 800], [800, 1200]],
        "shape": [1000, 1200],
        "dtype": "float32",
        "path": [[0, 1]],
        "multiply_adds": 1000 * 800 * 1200,
        "copied_bytes": 0,
        "operand_bytes": 4 * (1000 * 800 + 800 * 1200),
        "result_bytes": 4 * 1000 * 1200,
        "peak_bytes": 4 * (1000 * 800 + 800 * 1200 + 1000 * 1200),
        "generic_kernel": False,
        "choice": "estimated",
        "ops": [
            {
                "op": "matmul",
                "lhs": 0,
                "rhs": 1,
                "transpose_lhs": False,
                "transpose_rhs": False,
                "threads": "",
                "sums": "",
                "shape": [1000, 1200],
                "dtype": "float32",
                "multiply_adds": 1000 * 800 * 1200,
                "copied_bytes": 0,
                "allocated_bytes": 4 * 1000 * 1200,
            }
        ],
    }


def test_explain_prints_the_plan_and_what_it_comes_to(capsys):
    assert main(["explain", "ab,bc->ac", "1000,800", "800,1200", "--backend", "torch", "--device", "cuda"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("ab,bc->ac  (1000,800) (800,1200)  float32 on torch (cuda)\n")
    assert "matmul %0 %1" in text
    assert "arithmetic      960 M multiply-adds\n" in text
    assert "copied          0 B\n" in text
    assert "peak memory     11.8 MB, of which operands 7.04 MB and result 4.8 MB\n" in text
    assert text.endswith("generic kernel  none\n")


def test_explain_tells_a_plan_that_calls_the_generic_kernel(capsys):
    arguments = ("ab,bc->ac", "3,4", "4,5", "--backend", "mxnet", "--dtype", "int32")
    assert explained(capsys, *arguments)["generic_kernel"]
    main(["explain", *arguments])
    assert "generic kernel  one or more calls of the framework's own einsum\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "equation", "shapes"),
    [
        ((",a->a", "-", "3"), ",a->a", [[], [3]]),
        ((",a->a", "()", "3,"), ",a->a", [[], [3]]),
        (("ab->a", "(3, 4)"), "ab->a", [[3, 4]]),
        (("--", "->", "-"), "->", [[]]),
    ],
    ids=["scalar", "scalar as printed", "as printed", "an arrow after two dashes"],
)
def test_shapes_are_read_as_plans_print_them(capsys, arguments, equation, shapes):
    assert main(["explain", "--json", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["equation"], found["shapes"]) == (equation, shapes)


def test_an_optimizer_is_taken_by_name(capsys):
    arguments = ("ab,bc,cd->ad", "2,900", "900,3", "3,800", "--optimize")
    assert explained(capsys, *arguments, "greedy")["path"] == [[0, 1], [0, 1]]
    assert explained(capsys, "ab,bc,cd->ad", "800,3", "3,900", "900,2", "--optimize", "optimal")["path"][0] == [1, 2]


@pytest.mark.long
def test_a_reader_that_stops_early_is_no_error():
    """As in ``einsumx explain ... | head -1``."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "einsumx", "explain", "ab,bc->ca", "10,8", "8,12"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


# -- how it looks -------------------------------------------------------------------------------------------------


@pytest.fixture
def slow_rows(monkeypatch):
    """Rows of known numbers, in the place of measured ones."""
    problems = attention(2)

    def rows(cases, names, **_):
        for name in ("mxnet", "array_api_strict"):
            for problem in problems:
                native = 2.2519 if name == "mxnet" else None
                note = "" if native else "the standard has no einsum"
                yield Measured(
                    name, name, "12.13.14", problem, native, 0.01501, 3, 1.0, 0.00514, "", ("transpose", "matmul"), note
                )

    monkeypatch.setattr("einsumx.cli.commands.compare.make_trial", lambda problem: problem)
    monkeypatch.setattr("einsumx.cli.commands.compare.compare", rows)


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_output_fits_the_terminal_and_no_number_is_cut(capsys, monkeypatch, slow_rows, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["compare", "--batch", "2", "--backend", "numpy"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    words = text.split()
    assert words.count("2.25") == words.count("150x") + words.count("150x,") == 3
    assert words.count("15.0") == 6
    assert words.count("bind,jnd->bnij") == 3


def test_wider_terminals_show_more(capsys, monkeypatch, slow_rows):
    def shown(width):
        monkeypatch.setenv("COLUMNS", width)
        main(["compare", "--batch", "2", "--backend", "numpy"])
        header = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("framework"))
        return header.split()

    assert shown("70") == ["framework", "equation", "native", "einsumx", "ratio"]
    assert shown("80") == ["framework", "equation", "native", "einsumx", "ratio", "error"]
    assert shown("120") == ["framework", "equation", "native", "einsumx", "ratio", "error", "calls"]


def test_output_that_goes_to_a_file_has_every_column_and_no_colours(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "")
    assert main(SMALL) == 0
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out
    assert "calls" in printed.out
    assert "1 of 1 results right." in printed.out
    assert printed.err == PROGRESS


@pytest.mark.long
def test_json_that_goes_to_a_program_comes_without_progress():
    done = run(*SMALL, "--json")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("width", [40, 60])
def test_a_plan_fits_the_terminal(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    main(["explain", "ibnd,jbnd->bnij", "100,64,8,128", "50,64,8,128", "--backend", "mxnet"])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    assert "its axes in the order" in " ".join(text.split())


class Terminal(io.StringIO):
    """Text that was written to a terminal."""

    def isatty(self):
        return True


@pytest.mark.long
def test_a_terminal_shows_what_is_measured_and_is_clean_afterwards(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert rows_of(capsys, *SMALL[:-1], "10")["right"]
    shown = re.sub(r"\x1b\[[\d;?]*m", "", terminal.getvalue())
    assert "0:00:00 numpy  ab,bc->ac" in shown
    assert shown.endswith("\x1b[2K")  # the line is erased


def test_the_end_of_a_comparison_says_what_to_try_next(capsys):
    assert main(SMALL) == 0
    *_, explain, patch, tutorial = capsys.readouterr().out.splitlines()
    words = shlex.split(explain)
    assert words == ["einsumx", "explain", "--backend", "numpy", "ab,bc->ac", "30,40", "40,20"]
    assert main(words[1:]) == 0
    assert 'einsumx.patched("numpy")' in patch
    (page,) = re.findall(r"^  https://\S+/v[^/]+/(docs/\w+\.md)$", tutorial)
    assert (Path(__file__).parents[1] / page).exists()
