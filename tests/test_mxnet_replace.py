"""``replace_einsum``: code that calls MXNet's einsum gets einsumx, where and for as long as it should."""

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Thread, get_ident

import numpy as np
import pytest

import einsumx
import einsumx.mxnet
from einsumx.adapters import hooks
from einsumx.adapters.registry import get_backend
from einsumx.conformance.deviations import deviations_of
from einsumx.conformance.oracle import expect, judge
from einsumx.conformance.subject import backend_subject
from einsumx.conformance.suite import cases, run
from einsumx.ir.ops import Native
from einsumx.mxnet import replace_einsum, replacing
from einsumx.patching import names_of

if not find_spec("mxnet"):
    pytest.skip("MXNet is not installed", allow_module_level=True)

mx = einsumx.mxnet.load()
FIRST = mx.__version__.startswith("1.")
PLACES = [mx.nd.np, mx.sym.np] if FIRST else [mx.nd.np]
NATIVE = [place.einsum for place in PLACES]
early = mx.np.einsum


@pytest.fixture(autouse=True)
def np_shape():
    """Shapes without axes or elements mean what they say, for what the tests themselves ask of MXNet."""
    with mx.util.np_shape(True):
        yield


@pytest.fixture(autouse=True)
def undone():
    """MXNet has its own functions before and after each test, also after one that fails."""
    assert is_native()
    yield
    was_native = is_native()
    names = names_of(get_backend("mxnet"))
    for where, count in list(names._counts.items()):
        for _ in range(count):
            names.release(where)
    assert was_native


@pytest.fixture
def replaced():
    with replace_einsum() as replacement:
        yield replacement


@pytest.fixture
def calls(monkeypatch):
    """The threads of all calls that reach einsumx, in turn."""
    found = []
    einsum = hooks.einsum

    def spy(*operands, **options):
        found.append(get_ident())
        return einsum(*operands, **options)

    monkeypatch.setattr(hooks, "einsum", spy)
    return found


def is_native():
    return [place.einsum for place in PLACES] == NATIVE


def array(values, dtype="float32"):
    return mx.np.array(np.asarray(values, dtype), dtype=dtype)


def is_einsumx(calls):
    """Whether ``mx.np.einsum`` is einsumx in this thread; it gives what it should in any case."""
    before = len(calls)
    assert mx.np.einsum("i,i->", array([1, 2]), array([3, 4])).item() == 11
    return len(calls) > before


def in_a_thread(work, *arguments):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *arguments).result()


# -- where it holds ---------------------------------------------------------------------------------------------


def test_nothing_is_replaced_before_and_the_very_functions_are_back_after(calls):
    assert not is_einsumx(calls)
    replacement = replace_einsum()
    assert is_einsumx(calls)
    assert not any(place.einsum in NATIVE for place in PLACES)
    replacement.undo()
    assert not is_einsumx(calls)
    assert is_native()


def test_no_other_thread_sees_a_block_also_not_before_it_begins(monkeypatch, calls):
    def asked_before(self):
        found.append(in_a_thread(is_einsumx, calls))
        return enter(self)

    found, enter = [], replacing.Replacement.__enter__
    monkeypatch.setattr(replacing.Replacement, "__enter__", asked_before)
    with replace_einsum():
        found.append(in_a_thread(is_einsumx, calls))
    assert found == [False, False]


def test_it_is_what_patch_does(calls):
    with einsumx.patch("mxnet"):
        assert is_einsumx(calls)
        function = mx.nd.np.einsum
        with replace_einsum():
            assert mx.nd.np.einsum is function
    assert is_native()


def test_names_that_were_bound_before_are_einsumx_too(calls, replaced):
    early("ij->ji", array([[1, 2]]))
    assert len(calls) == 1


def test_numpys_einsum_of_mxnets_arrays_is_einsumx(calls, replaced):
    lhs, rhs = array([[1, 2], [3, 4]]), array([[5], [6]])
    out = mx.np.zeros((2, 1))
    found = [
        np.einsum("ij,jk->ik", lhs, rhs),
        np.einsum("ij,jk->ik", lhs, rhs, optimize=True),
        np.einsum("ij,jk->ik", lhs, rhs, optimize="optimal"),
        np.einsum(lhs, [0, 1], rhs, [1, 2], [0, 2]),
        np.einsum("ij,jk->ik", lhs, [[5], [6]]),
        np.einsum("ij,jk->ik", lhs, rhs, out=out),
    ]
    assert len(calls) == len(found)
    assert found[-1] is out
    for result in found:
        assert type(result) is mx.np.ndarray
        assert result.asnumpy().tolist() == [[17], [39]]


def test_numpys_einsum_of_both_frameworks_arrays_is_refused_as_before(replaced):
    with pytest.raises(TypeError):
        np.einsum("ij,jk->ik", array([[1, 2]]), np.ones((2, 3)))
    assert np.einsum("i,i->", np.arange(3), np.arange(3)) == 5


def test_replacements_nest_by_count_in_any_order(calls):
    first, second = replace_einsum(), replace_einsum()
    function = mx.nd.np.einsum
    third = replace_einsum()
    assert mx.nd.np.einsum is function
    assert function.__wrapped__ is NATIVE[0]
    for replacement in (second, second, first):  # the second time does nothing more
        replacement.undo()
        assert is_einsumx(calls)
    third.undo()
    assert not is_einsumx(calls)
    assert is_native()


def test_a_block_in_a_block_ends_by_itself(calls):
    with replace_einsum():
        with replace_einsum():
            assert is_einsumx(calls)
        assert is_einsumx(calls)
    assert not is_einsumx(calls)


def test_a_block_that_fails_undoes_it_and_what_it_raised_goes_on():
    with pytest.raises(KeyError, match="mine"), replace_einsum():
        raise KeyError("mine")
    assert is_native()


def test_a_block_holds_for_the_thread_that_entered_it_alone(calls):
    with replace_einsum():
        assert not in_a_thread(is_einsumx, calls)
        assert is_einsumx(calls)
    assert set(calls) == {get_ident()}


def test_two_threads_have_blocks_of_their_own(calls):
    def other():
        with replace_einsum():
            first = is_einsumx(calls)
        return first, is_einsumx(calls)

    with replace_einsum():
        assert in_a_thread(other) == (True, False)
        assert is_einsumx(calls)
    assert is_native()


def test_the_plain_call_holds_in_all_threads_also_while_a_block_is_open_in_another(calls):
    with replace_einsum():
        replacement = replace_einsum()
        assert in_a_thread(is_einsumx, calls)
        replacement.undo()
        assert not in_a_thread(is_einsumx, calls)
        assert is_einsumx(calls)


def test_what_was_called_in_one_thread_is_undone_in_another(calls):
    replacement = in_a_thread(replace_einsum)
    assert is_einsumx(calls)
    in_a_thread(replacement.undo)
    assert is_native()


def test_undoing_it_in_its_block_ends_it_there(calls):
    with replace_einsum() as replacement:
        replacement.undo()
        assert not is_einsumx(calls)


@pytest.mark.parametrize("spent", ["entered", "undone"])
def test_a_replacement_is_entered_once(spent):
    replacement = replace_einsum()
    with replacement:
        if spent == "undone":
            replacement.undo()
        with pytest.raises(RuntimeError, match="make another one"):
            replacement.__enter__()


def test_threads_that_replace_and_undo_at_once_leave_nothing_behind():
    def work():
        for _ in range(50):
            with replace_einsum():
                outer = replace_einsum()
                found.append(mx.np.einsum("i,i->", array([1, 2]), array([3, 4])).item())
                outer.undo()

    found = []
    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [11] * 200
    assert is_native()


def test_a_tiny_problem_runs_in_mxnets_own_kernel_and_not_in_a_circle(calls, replaced):
    lhs, rhs = array(np.ones((2, 3))), array(np.ones((3, 2)))
    plan = einsumx.plan("ij,jk->ik", lhs, rhs)
    assert any(isinstance(op, Native) for op in plan.ops)
    assert mx.np.einsum("ij,jk->ik", lhs, rhs).asnumpy().tolist() == [[3, 3], [3, 3]]
    assert len(calls) == 1


@pytest.mark.skipif(FIRST, reason="MXNet 1 traces blocks with symbols")
def test_a_block_that_is_traced_meanwhile_has_it(calls, replaced):
    class Block(mx.gluon.HybridBlock):
        def forward(self, lhs, rhs):
            return mx.np.einsum("bij,bkj->bik", lhs, rhs)

    block = Block()
    block.hybridize()
    with mx.util.np_array(True):
        found = block(array(np.ones((2, 3, 4))), array(np.ones((2, 5, 4))))
    np.testing.assert_array_equal(found.asnumpy(), np.full((2, 3, 5), 4))
    assert calls


# -- what it takes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option", [{}, {"optimize": True}, {"optimize": False}, {"optimize": np.True_}, {"optimize": 1}]
)
def test_mxnets_optimize_asks_for_no_path(option, replaced, monkeypatch):
    seen = {}
    monkeypatch.setattr(hooks, "einsum", lambda *operands, **options: seen.update(options))
    mx.np.einsum("ij,jk,kl->il", array([[1]]), array([[1]]), array([[1]]), **option)
    assert "optimize" not in seen


@pytest.mark.parametrize(
    ("operands", "options"),
    [
        ((np.ones((2, 3)), [0, 1], np.ones((3, 4)), [1, 2], [0, 2]), {}),
        ((np.ones((2, 3)), ["row", "column"]), {}),
        (("...j->j", np.arange(6).reshape(2, 3)), {}),
        (("ij,j->i", np.ones((2, 3)), [1.0, 2.0, 3.0]), {}),
        (("ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm->am", *[np.eye(2)] * 12), {}),
        ((",".join("a" * 20) + "->a", *[np.full(3, 2)] * 20), {}),
        (("ij,jk->ik", np.ones((2, 3)), np.ones((3, 4))), {"optimize": "greedy"}),
        (("ij,jk->ik", np.ones((2, 3)), np.ones((3, 4))), {"dtype": "float64"}),
    ],
    ids=str,
)
def test_it_takes_what_mxnets_einsum_lacks(operands, options, calls, replaced):
    ours = [array(value) if isinstance(value, np.ndarray) else value for value in operands]
    hosts = [value.astype("float32") if isinstance(value, np.ndarray) else value for value in operands]
    dtype = options.get("dtype", "float32")
    result = mx.np.einsum(*ours, **options)
    assert (type(result), result.dtype) == (mx.np.ndarray, dtype)
    verdict = judge(result.asnumpy(), expect(*hosts, dtype=dtype))
    assert verdict, verdict.wrong
    assert len(calls) == 1


def test_operands_of_two_dtypes_promote(replaced):
    result = mx.np.einsum("ij,j->i", array([[1, 2]], "int32"), array([0.5, 1.5], "float16"))
    assert (result.dtype, result.asnumpy().tolist()) == ("float16", [3.5])


def test_float16_is_summed_in_float32(replaced):
    ones = array(np.ones(4096), "float16")
    assert mx.np.einsum("i,i->", ones, ones).item() == 4096


def test_lists_alone_become_mxnets_arrays(replaced):
    result = mx.np.einsum("i,i->", [1.0, 2.0], [3.0, 4.0])
    assert (type(result), result.item()) == (mx.np.ndarray, 11)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda a: mx.np.einsum("ij->k", a), einsumx.EquationError, "label 'k'"),
        (lambda a: mx.np.einsum(), einsumx.EquationError, "needs an equation"),
        (lambda a: mx.np.einsum(a, [[]]), einsumx.errors.SublistError, "sublist"),
        (lambda a: mx.np.einsum("ij,ij->", a, array([[1, 2, 3]])), einsumx.SizeError, "has size"),
        (lambda a: mx.np.einsum("ij,ij->", a, a, optimize=[(0, 2)]), einsumx.PathError, "path"),
        (lambda a: mx.np.einsum("ij->ji", a, out=mx.np.zeros((3, 3))), einsumx.SizeError, "out="),
        (lambda a: mx.np.einsum("ij->ji", np.ones((2, 2))), einsumx.BackendError, "backend='mxnet'"),
        (lambda a: mx.np.einsum("ij,ij->", np.ones((2, 2)), a), einsumx.BackendError, "two frameworks"),
        (lambda a: mx.np.einsum("ij->ji", a.as_nd_ndarray()), einsumx.BackendError, r"\.as_np_ndarray\(\)"),
        (lambda a: mx.np.einsum("ij->ji", a.as_nd_ndarray().tostype("csr")), einsumx.BackendError, "tostype"),
    ],
)
def test_errors_come_at_the_call_and_are_einsumxs_and_mxnets(call, kind, text, replaced):
    operand = array([[1, 2], [3, 4]])
    with pytest.raises(mx.base.MXNetError, match=text) as caught:
        call(operand)
    assert isinstance(caught.value, kind)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (type(copied), str(copied)) == (type(caught.value), str(caught.value))
    assert any(frame.path.name == "patch.py" for frame in caught.traceback)


def test_every_error_of_einsumx_has_one_that_is_mxnets_too():
    from einsumx.backends.mxnet.errors import as_mxnet_error

    def kinds(kind):
        yield kind
        for below in kind.__subclasses__():
            yield from kinds(below)

    for kind in kinds(einsumx.EinsumxError):
        if kind is not einsumx.EinsumxError and kind.__module__ == "einsumx.errors":
            found = as_mxnet_error(kind("why"))
            assert isinstance(found, kind)
            assert isinstance(found, mx.base.MXNetError)
            assert str(found) == "why"


def test_a_keyword_that_nobody_knows_is_an_error_and_not_ignored(replaced):
    with pytest.raises(TypeError, match="spam"):
        mx.np.einsum("ij->ji", array([[1, 2]]), spam=1)


def test_out_is_written_and_returned_and_may_be_an_operand(calls, replaced):
    square = array([[1, 2], [3, 4]])
    assert mx.np.einsum("ij,jk->ik", square, square, out=square) is square
    assert square.asnumpy().tolist() == [[7, 10], [15, 22]]
    assert calls


# -- gradients that MXNet's own einsum gets wrong ---------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 7])
@pytest.mark.parametrize(
    ("equation", "values", "head", "gradients"),
    [
        ("ii->i", [np.ones((2, 2))], [2, 3], [[[2, 0], [0, 3]]]),
        (
            "ij,ij->i",
            [[[1, 2, 3, 4]], np.arange(8).reshape(2, 4)],
            [1, 10],
            [[[40, 51, 62, 73]], [[1, 2, 3, 4], [10, 20, 30, 40]]],
        ),
        ("ij,jk->ik", [np.ones((2, 0)), np.ones((0, 3))], np.ones((2, 3)), [np.zeros((2, 0)), np.zeros((0, 3))]),
        ("ij,jk->k", [np.ones((0, 2)), np.ones((2, 3))], [1, 1, 1], [np.zeros((0, 2)), np.zeros((2, 3))]),
        ("ij,kl->jl", [[[1, 2]], [[3], [4]]], [[1], [10]], [[[7, 70]], [[21], [21]]]),
    ],
)
@pytest.mark.parametrize("optimize", [False, True])
def test_gradients_are_right_where_they_were_not(equation, values, head, gradients, before, optimize, calls, replaced):
    operands = [array(value) for value in values]
    for operand in operands:
        operand.attach_grad("add" if before else "write")
        operand.grad[()] = before or 9
    with mx.autograd.record():
        result = mx.np.einsum(equation, *operands, optimize=optimize)
    result.backward(array(head))
    assert len(calls) == 1
    for operand, gradient in zip(operands, gradients):
        np.testing.assert_array_equal(operand.grad.asnumpy(), np.add(gradient, before))


def test_out_is_recorded_as_mxnets_own_einsum_records_it(calls):
    def gradients():
        lhs, rhs, out = array([[1, 2]]), array([[3], [4]]), array([[0]])
        lhs.attach_grad()
        rhs.attach_grad()
        with mx.autograd.record():
            mx.np.einsum("ij,jk->ik", lhs, rhs, out=out)
            loss = out * out
        loss.backward()
        return out.item(), lhs.grad.asnumpy().tolist(), rhs.grad.asnumpy().tolist()

    native = gradients()
    with replace_einsum():
        assert gradients() == native == (11, [[66, 88]], [[22], [44]])
    assert len(calls) == 1


# -- threads and engines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("active", [False, True])
def test_threads_keep_their_np_shape_state_and_it_decides_nothing(active, replaced):
    def work():
        mx.util.set_np_shape(active)
        with replace_einsum():
            total = mx.np.einsum("ij->", operand)
            empty = mx.np.einsum("ij,jk->ik", nothing, operand)
        return mx.util.is_np_shape(), total.shape, total.asnumpy(), empty.shape

    operand, nothing = array(np.ones((3, 2))), array(np.ones((0, 3)))
    state, shape, value, empty = in_a_thread(work)
    assert (bool(state), shape, value.tolist(), empty) == (active, (), 6, (0, 2))


def python(*arguments, **environment):
    """A fresh interpreter, and what it did."""
    place = str(Path(einsumx.__file__).parents[1])  # the einsumx that is tested, wherever the program is
    variables = {**os.environ, "PYTHONPATH": place, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=variables, check=False)


def said(done):
    """What a program wrote to stderr, without what MXNet logs there."""
    return [line for line in done.stderr.splitlines() if "] ../src/" not in line]


def printed(*arguments, **environment):
    """What a fresh interpreter that ends well prints."""
    done = python(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


ENGINES = """
import einsumx.mxnet
mx = einsumx.mxnet.load()
einsumx.mxnet.replace_einsum()
np = mx.np
lhs, rhs = np.ones((8, 30, 4, 16)), np.ones((8, 20, 4, 16))
lhs.attach_grad("add")
for _ in range(20):
    with mx.autograd.record():
        result = np.einsum("bind,bjnd->bnij", lhs, rhs)
        loss = np.einsum("bnij->", np.einsum("bnij,bnij->bnij", result, result))
    loss.backward()
try:
    np.einsum("bind,bjnd->bnij", lhs, rhs[:, :, :3])
except mx.base.MXNetError:
    print("refused")
print(result.asnumpy().min(), result.asnumpy().max(), loss.item(), lhs.grad.asnumpy().min(), lhs.grad.asnumpy().max())
"""


@pytest.mark.parametrize("engine", ["NaiveEngine", "ThreadedEngine", "ThreadedEnginePerDevice"])
def test_every_engine_gives_the_same(engine):
    found = printed("-c", ENGINES, MXNET_ENGINE_TYPE=engine)
    loss = 16**2 * 8 * 4 * 30 * 20
    gradient = 20 * 2 * 16 * 20
    assert (found[0], [*map(float, found[1:])]) == ("refused", [16, 16, loss, gradient, gradient])


MEMORY = """
import sys
import einsumx.mxnet
from pathlib import Path
mx = einsumx.mxnet.load()
einsumx.mxnet.replace_einsum()
tiny = mx.np.ones((2, 3)), mx.np.ones((3, 2))
large = mx.np.ones((4, 30, 2, 8)), mx.np.ones((4, 20, 2, 8))
recorded = [operand.copy() for operand in (*tiny, *large)]
for operand in recorded:
    operand.attach_grad()
kept = []
def calls(rounds):  # of ten
    for count in range(rounds):
        for _ in range(8):
            result = mx.np.einsum("ij,jk->ik", *tiny)
        if sys.argv[1:] == ["leak"]:
            kept.append(result)
        mx.np.einsum("bind,bjnd->bnij", *large)
        with mx.autograd.record():
            result = mx.np.einsum("ij,jk->ik", *recorded[:2])
            if count % 2:
                result = mx.np.einsum("bind,bjnd->bnij", *recorded[2:])
        if count % 10 < 2:
            result.backward()
            mx.nd.waitall()
    mx.nd.waitall()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
before = calls(2000)
print(calls(8000) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_hundred_thousand_calls_take_no_more_memory_than_twenty_thousand():
    # Without the threads of an engine, so that nothing waits in a queue while memory is measured.
    taken = {what: int(printed("-c", MEMORY, what, MXNET_ENGINE_TYPE="NaiveEngine")[0]) for what in ("leak", "all")}
    assert taken["all"] < 1e6 < taken["leak"]  # what one array left behind in ten calls takes


# -- the command ------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from einsumx.mxnet import load, replace_einsum
load()  # so that Python alone runs it as well, beside any NumPy
from mxnet import np
import mxnet
import neighbour

def fails():
    raise ValueError("mine")

print(__name__, __package__, __spec__ and __spec__.name, __file__, sys.argv, sys.path[0], neighbour.__name__)
print(sys.modules["__main__"].__dict__ is globals())
try:
    result = np.einsum(np.ones((2, 3)), [0, 1], [0])
    print(result.tolist())
except (AssertionError, TypeError, mxnet.base.MXNetError):
    print("native")
with replace_einsum():
    print(mxnet.nd.np.einsum.__wrapped__.__module__)
if "fail" in sys.argv:
    fails()
sys.exit(7)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A directory with ``program.py``, with the same as ``package.program`` and as the package itself."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    for path in ("program.py", "package/program.py", "package/__main__.py"):
        (tmp_path / path).write_text(PROGRAM)
    (tmp_path / "package" / "__init__.py").touch()
    for path in ("neighbour.py", "package/neighbour.py"):
        (tmp_path / path).touch()
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [["program.py"], ["./package/program.py"], ["-m", "program"], ["-m", "package.program"], ["-m", "package"]],
)
def test_a_program_sees_what_python_shows_it_and_einsumx(command, program):
    usual, ours = (python(*begin, *command, "-x", "y") for begin in ([], ["-m", "einsumx.mxnet"]))
    assert (usual.returncode, ours.returncode) == (7, 7), ours.stderr
    # But for the value of einsum in a form that MXNet lacks, they print the same.
    assert usual.stdout.splitlines()[2] == "native"
    assert ours.stdout.splitlines() == usual.stdout.replace("native", "[3.0, 3.0]").splitlines()


def test_a_program_that_names_einsumx_nowhere_has_it_beside_any_numpy(program):
    (program / "program.py").write_text("import mxnet\nprint(mxnet.np.einsum('...j->j', mxnet.np.ones((2, 3))))\n")
    assert printed("-m", "einsumx.mxnet", "program.py") == ["[2.", "2.", "2.]"]


def test_a_program_that_fails_shows_its_own_traceback(program):
    usual, ours = (python(*begin, "program.py", "fail") for begin in ([], ["-m", "einsumx.mxnet"]))
    assert said(ours) == said(usual)
    assert "in fails" in ours.stderr
    assert (usual.returncode, ours.returncode) == (1, 1)


def test_a_program_that_is_no_python_shows_where(program):
    (program / "program.py").write_text("def f(:\n")
    usual, ours = (python(*begin, "program.py") for begin in ([], ["-m", "einsumx.mxnet"]))
    assert said(ours) == said(usual)
    assert "SyntaxError" in ours.stderr
    assert (usual.returncode, ours.returncode) == (1, 1)


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), ([], 2), (["-m"], 2), (["--spam"], 2)])
def test_help_and_wrong_usage_say_how(arguments, code):
    done = python("-m", "einsumx.mxnet", *arguments)
    assert done.returncode == code
    assert "-m einsumx.mxnet script.py" in (done.stderr if code else done.stdout)


@pytest.mark.parametrize(("arguments", "code"), [(["no_such.py"], 2), (["-m", "no_such"], 1)])
def test_a_program_that_does_not_exist_is_named(arguments, code):
    done = python("-m", "einsumx.mxnet", *arguments)
    assert done.returncode == code
    assert "no_such" in done.stderr
    assert "Traceback" not in done.stderr


# -- einsumx's promises -----------------------------------------------------------------------------------------


def test_mx_np_einsum_keeps_einsumxs_promises(calls, replaced):
    backend = backend_subject("mxnet")
    subject = replace(backend, function=backend.framework.called(mx.np.einsum))
    # The replacement knows the shapes and dtypes of symbols by their block's inputs.
    deviations = [listed for listed in deviations_of(subject) if not listed.cases.startswith("hybridize/")]
    outcomes = list(run(subject, cases("quick"), deviations))
    assert [(outcome.case, outcome.message) for outcome in outcomes if outcome.status == "fail"] == []
    assert sum(outcome.status == "pass" for outcome in outcomes) > 100
    assert len(calls) > 100
