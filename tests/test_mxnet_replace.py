"""``patch("mxnet")``: code that calls MXNet's einsum gets einsumx, where and for as long as it should."""

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import get_ident

import numpy as np
import pytest
from mxnet_under_test import FIRST, mx
from processes import ended

import einsumx
from einsumx.adapters import hooks
from einsumx.conformance.subject import backend_subject
from einsumx.conformance.suite import cases, run
from einsumx.ir.ops import Native

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
    while not is_native():
        einsumx.unpatch("mxnet")
    assert was_native


@pytest.fixture
def replaced():
    with einsumx.patched("mxnet"):
        yield


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
    einsumx.patch("mxnet")
    assert is_einsumx(calls)
    assert not any(place.einsum in NATIVE for place in PLACES)
    einsumx.unpatch("mxnet")
    assert not is_einsumx(calls)
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


def test_a_tiny_problem_runs_in_mxnets_own_kernel_and_not_in_a_circle(calls, replaced):
    lhs, rhs = array(np.ones((1, 2, 3))), array(np.ones((3, 2)))
    plan = einsumx.plan("bij,jk->bik", lhs, rhs)
    assert any(isinstance(op, Native) for op in plan.ops)
    assert mx.np.einsum("bij,jk->bik", lhs, rhs).asnumpy().tolist() == [[[3, 3], [3, 3]]]
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


# -- what it takes and raises -------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", [{}, {"optimize": True}, {"optimize": False}, {"optimize": np.True_}])
def test_mxnets_optimize_asks_for_no_path(option, replaced, monkeypatch):
    seen = {}
    monkeypatch.setattr(hooks, "einsum", lambda *operands, **options: seen.update(options))
    mx.np.einsum("ij,jk,kl->il", array([[1]]), array([[1]]), array([[1]]), **option)
    assert "optimize" not in seen


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda a: mx.np.einsum(), einsumx.EquationError, "needs an equation"),
        (lambda a: mx.np.einsum("ij,ij->", a, array([[1, 2, 3]])), einsumx.SizeError, "has size"),
        (lambda a: mx.np.einsum("ij,ij->", a, a, optimize=[(0, 2)]), einsumx.PathError, "path"),
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
    from einsumx.backends.mxnet.patch import as_mxnet_error

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
    error = einsumx.MemoryLimitError("too small")
    error.smallest = 7
    assert as_mxnet_error(error).smallest == 7


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
    with einsumx.patched("mxnet"):
        assert gradients() == native == (11, [[66, 88]], [[22], [44]])
    assert len(calls) == 1


# -- threads and engines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("active", [False, True])
def test_threads_keep_their_np_shape_state_and_it_decides_nothing(active, replaced):
    def work():
        mx.util.set_np_shape(active)
        with einsumx.patched("mxnet"):
            total = mx.np.einsum("ij->", operand)
            empty = mx.np.einsum("ij,jk->ik", nothing, operand)
        return mx.util.is_np_shape(), total.shape, total.asnumpy(), empty.shape

    operand, nothing = array(np.ones((3, 2))), array(np.ones((0, 3)))
    state, shape, value, empty = in_a_thread(work)
    assert (bool(state), shape, value.tolist(), empty) == (active, (), 6, (0, 2))


python = partial(ended, PYTHONWARNINGS="ignore", OMP_NUM_THREADS="1")


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
einsumx.patch("mxnet")
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


@pytest.mark.parametrize("engine", ["ThreadedEngine", "ThreadedEnginePerDevice"])
def test_engines_with_threads_give_what_the_naive_engine_of_the_other_tests_gives(engine):
    found = printed("-c", ENGINES, MXNET_ENGINE_TYPE=engine)
    loss = 16**2 * 8 * 4 * 30 * 20
    gradient = 20 * 2 * 16 * 20
    assert (found[0], [*map(float, found[1:])]) == ("refused", [16, 16, loss, gradient, gradient])


MEMORY = """
import einsumx.mxnet
from pathlib import Path
mx = einsumx.mxnet.load()
einsumx.patch("mxnet")
tiny = mx.np.ones((2, 3)), mx.np.ones((3, 2))
large = mx.np.ones((4, 30, 2, 8)), mx.np.ones((4, 20, 2, 8))
recorded = [operand.copy() for operand in (*tiny, *large)]
for operand in recorded:
    operand.attach_grad()
kept = []
def calls(rounds, leaks):
    for count in range(rounds):
        for _ in range(2):
            result = mx.np.einsum("ij,jk->ik", *tiny)
        if leaks:
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
before = calls(400, False)
after = calls(1200, False)
print(after - before, calls(1200, True) - after)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_thousands_of_calls_take_no_more_memory_than_some_hundreds():
    # Without the threads of an engine, so that nothing waits in a queue while memory is measured.
    taken, leaked = map(int, printed("-c", MEMORY, MXNET_ENGINE_TYPE="NaiveEngine"))
    assert taken < leaked / 3  # what one array left behind in five calls takes


# -- the command ------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
import neighbour

def fails():
    raise ValueError("mine")

print(__name__, __package__, __spec__ and __spec__.name, __file__, sys.argv, sys.path[0], neighbour.__name__)
print(sys.modules["__main__"].__dict__ is globals())
if "mxnet" in sys.modules:
    np = sys.modules["mxnet"].np
    print(np.einsum(np.ones((2, 3)), [0, 1], [0]).tolist())
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
    "command", [["./package/program.py"], ["-m", "program"], ["-m", "package.program"], ["-m", "package"]]
)
def test_a_program_sees_what_python_shows_it_and_einsumx(command, program):
    usual, ours = (python(*begin, *command, "-x", "y") for begin in ([], ["-m", "einsumx.mxnet"]))
    assert (usual.returncode, ours.returncode) == (7, 7), ours.stderr
    # A form that MXNet's own einsum lacks.
    assert ours.stdout.splitlines() == [*usual.stdout.splitlines(), "[3.0, 3.0]"]


def test_a_program_that_names_einsumx_nowhere_has_it_beside_any_numpy(program):
    (program / "program.py").write_text("import mxnet\nprint(mxnet.np.einsum('...j->j', mxnet.np.ones((2, 3))))\n")
    assert printed("-m", "einsumx.mxnet", "program.py") == ["[2.", "2.", "2.]"]


@pytest.mark.parametrize("text", [PROGRAM, "def f(:\n"], ids=["raises", "is no Python"])
def test_a_program_that_fails_shows_its_own_traceback(text, program):
    (program / "program.py").write_text(text)
    usual, ours = (python(*begin, "program.py", "fail") for begin in ([], ["-m", "einsumx.mxnet"]))
    assert said(ours) == said(usual)
    assert ("in fails" if text == PROGRAM else "SyntaxError") in ours.stderr
    assert (usual.returncode, ours.returncode) == (1, 1)


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["-m"], 2), (["--spam"], 2)])
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


FEATURES = (
    "forms", "sublists", "promotion", "half precision", "lists and scalars", "out", "keywords", "gradients", "threads",
    "wrong equations", "wrong sizes", "wrong paths", "wrong operands", "two frameworks",
)  # fmt: skip
"""What the replacement passes on: forms of calls, keywords and errors; the values behind it are the backend's."""


def test_mx_np_einsum_keeps_einsumxs_promises(calls, replaced):
    backend = backend_subject("mxnet")
    subject = replace(backend, function=backend.framework.called(mx.np.einsum))
    chosen = [case for case in cases("quick") if case.feature in FEATURES]
    outcomes = list(run(subject, chosen, subject.deviations))
    assert [(outcome.case, outcome.message) for outcome in outcomes if outcome.status == "fail"] == []
    assert sum(outcome.status == "pass" for outcome in outcomes) > 100
    assert len(calls) > 100
