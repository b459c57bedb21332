"""``einsumx profile``: what is measured of each op, and what it is held against."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from backends_under_test import INSTALLED

from einsumx.backends.numpy import NumpyAdapter
from einsumx.backends.numpy.adapter import TRAITS as NUMPY
from einsumx.cli.commands.profile import print_profile
from einsumx.cli.main import main
from einsumx.cli.op_times import OpProfile, profile
from einsumx.cli.side_by_side import Problem, random_operands
from einsumx.ir.cost import program_seconds
from einsumx.ir.ops import Matmul
from einsumx.measuring import steady

pytestmark = pytest.mark.usefixtures("quiet_machine")

ATTENTION = Problem("bind,bjnd->bnij", ((4, 10, 8, 16), (4, 5, 8, 16)), "float32")


@pytest.fixture(autouse=True)
def few_repeats(monkeypatch):
    """Each op is called as rarely as it can be."""
    monkeypatch.setattr("einsumx.cli.op_times._SECONDS", 0.0)


class Clock:
    """A clock that stands still but where it is moved on."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """A clock that only waiting for a result moves on, by a second for each axis of it."""
    found = Clock()

    def wait(self, array):
        found.now += np.ndim(array)

    monkeypatch.setattr(NumpyAdapter, "synchronize", wait)
    monkeypatch.setattr(steady, "perf_counter", found)
    monkeypatch.setattr(steady, "rest", lambda: None)
    return found


def test_an_op_is_timed_until_its_result_is_there(clock):
    found = profile(Problem("ij,jk->ik", ((3, 4), (4, 5)), "float64"), "numpy")
    assert found.seconds == 2.0
    (op,) = found.ops
    assert op.seconds == 2.0
    assert op.op == Matmul(2, 0, 1)


def test_there_is_an_entry_for_each_op_of_the_plan():
    found = profile(ATTENTION, "numpy")
    assert tuple(op.op for op in found.ops) == found.program.ops
    assert [op.share is None for op in found.ops] == [True, True, False]
    assert [op.nbytes for op in found.ops] == [0, 0, 4 * (4 * 10 * 8 * 16 + 4 * 5 * 8 * 16 + 4 * 8 * 10 * 5)]
    assert found.ops[-1].multiply_adds == 4 * 8 * 10 * 5 * 16
    assert all(op.seconds > 0 for op in found.ops)
    assert found.predicted == sum(op.predicted for op in found.ops) > 0


def test_predictions_are_those_of_the_rates():
    found = profile(ATTENTION, "numpy")
    rates = found.rates
    transposed, _, product = found.ops
    assert transposed.predicted == rates.view
    assert found.predicted == pytest.approx(program_seconds(found.program, NUMPY))
    assert (product.arithmetic, product.traffic) == pytest.approx(
        (product.multiply_adds / rates.gemm, product.nbytes / max(rates.stream, rates.copy))
    )
    assert not found.is_calibrated


def test_the_share_of_the_roofline_is_of_whichever_takes_longer():
    op = OpProfile(Matmul(2, 0, 1), (8, 8), "float32", 4.0, 1.0, 10**9, 10**6, arithmetic=2.0, traffic=1.0)
    assert (op.floor, op.share, op.flops) == (2.0, 0.5, 0.5e9)
    assert replace(op, traffic=3.0).share == 0.75
    assert replace(op, dtype="complex64").flops == 4 * op.flops
    assert replace(op, arithmetic=0.0, traffic=0.0).share is None


@pytest.mark.long
@pytest.mark.parametrize("backend", INSTALLED, ids=str)
def test_two_kinds_of_dtypes_are_profiled_on_every_backend(backend):
    for dtype in {"float32", "bool"} & {*backend.dtypes}:
        found = profile(Problem("iij,jk->k", ((3, 3, 4), (4, 5)), dtype), backend.name)
        assert len(found.ops) == len(found.program.ops) > 0
        assert (found.program.backend, found.program.dtype) == (backend.name, dtype)


# -- the command ------------------------------------------------------------------------------------------------


def data_of(capsys, *arguments):
    assert main(["profile", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_has_an_object_for_each_op_and_help_describes_every_key(capsys):
    asked = ("bind,bjnd->bnij", "4,10,8,16", "4,5,8,16")
    found = data_of(capsys, *asked)
    assert main(["explain", *asked, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [op["op"] for op in found["ops"]] == [op["op"] for op in plan["ops"]]
    assert [op["multiply_adds"] for op in found["ops"]] == [op["multiply_adds"] for op in plan["ops"]]
    assert [op["shape"] for op in found["ops"]] == [op["shape"] for op in plan["ops"]]
    product = found["ops"][-1]
    assert product["flops_per_second"] == pytest.approx(2 * product["multiply_adds"] / product["seconds"])
    assert product["roofline_share"] == pytest.approx(product["roofline_seconds"] / product["seconds"])
    assert found["roofline_share"] == pytest.approx(found["roofline_seconds"] / found["seconds"])
    assert (found["backend"], found["dtype"], found["version"]) == ("numpy", "float32", np.__version__)
    with pytest.raises(SystemExit):
        main(["profile", "--help"])
    text = capsys.readouterr().out
    assert [key for key in {*found, *product} if key not in text] == []


@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
def test_operands_of_a_density_have_that_share_of_elements_that_are_not_0(dtype):
    (dense,) = random_operands(Problem("ab->a", ((300, 100),), dtype))
    (thin,) = random_operands(Problem("ab->a", ((300, 100),), dtype, 0.1))
    assert thin.dtype == dense.dtype
    assert np.count_nonzero(thin) == pytest.approx(0.1 * np.count_nonzero(dense), rel=0.1)
    assert np.array_equal(thin[thin != 0], dense[thin != 0])


def test_a_density_is_told_and_is_a_share(capsys):
    assert main(["profile", "ab->a", "30,40", "--density", "0.25"]) == 0
    assert capsys.readouterr().out.startswith("ab->a  (30,40)  float32, 0.25 of the elements not 0\n")
    for share in ("0", "nan", "half"):
        with pytest.raises(SystemExit):
            main(["profile", "ab->a", "30,40", "--density", share])
        assert f"'{share}' is not a share; write a number above 0, up to 1" in capsys.readouterr().err


def test_the_table_has_a_line_for_each_call(capsys):
    assert main(["profile", "bind,bjnd->bnij", "4,10,8,16", "4,5,8,16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "bind,bjnd->bnij  (4,10,8,16) (4,5,8,16)  float32"
    assert lines[1].startswith(f"numpy {np.__version__} on cpu, ")
    calls = [line.split("  ")[0] for line in lines if line.startswith("%")]
    assert calls == ["%2 = transpose %0 (0,2,1,3)", "%3 = transpose %1 (0,2,3,1)", "%4 = matmul %2 %3"]
    (product,) = [line for line in lines if "matmul" in line]
    assert re.search(r"s +[\d.]+ [mµ]?s +[\d.]+ [kMG]?(FLOP|B)/s +[\d.]+ %$", product)
    assert any(line.startswith("the plan as a whole") for line in lines)
    assert "`einsumx calibrate --backend numpy` measures those of this machine." in lines


@pytest.mark.parametrize(
    ("whole", "traffic", "remark"),
    [
        (1.0, 0.5, None),
        (0.5, 0.5, "Ops take longer one by one: "),
        (2.0, 0.5, "The plan as a whole takes longer than its ops: "),
        (1.0, 1.5, "More than 100 %: "),
    ],
)
def test_times_that_do_not_add_up_are_remarked_upon(capsys, whole, traffic, remark):
    op = OpProfile(Matmul(2, 0, 1), (3, 5), "float32", 1.0, 1.0, 60, 100, arithmetic=0.5, traffic=traffic)
    found = profile(Problem("ij,jk->ik", ((3, 4), (4, 5)), "float32"), "numpy")
    print_profile(replace(found, seconds=whole, ops=(op,)))
    lines = capsys.readouterr().out.splitlines()
    starts = ("Ops take longer", "The plan as a whole takes", "More than")
    assert [line for line in lines if line.startswith(starts)] == [line for line in lines if remark and remark in line]
    assert remark is None or any(line.startswith(remark) for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ab,bc->ac", "3,4", "5,6"), "label 'b' has size 4 in operand 0"),
        (("ab->a", "3,4", "--backend", "numpi"), "no backend is called 'numpi'"),
        (("ab->a", "3,0"), "an axis has size 0, so there is nothing to measure"),
        (("ab->a", "3,4", "--device", "cuda"), "numpy cannot be measured here: has arrays on the CPU only"),
    ],
    ids=["sizes", "backend", "empty", "device"],
)
def test_what_cannot_be_profiled_is_one_message_and_status_2(capsys, arguments, message):
    assert main(["profile", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("einsumx profile: error: ")
    assert message in printed.err
    assert printed.out == ""
