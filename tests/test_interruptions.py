"""Calls from signal handlers and finalizers, errors that these raise in a call, and the end of a process."""

import gc
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from processes import printed
from stored import Stored

import einsumx
from einsumx import imports
from einsumx.adapters.registry import get_backend
from einsumx.host import threads
from einsumx.host.environment import has_store
from einsumx.host.free_memory import free_host_bytes
from einsumx.measuring import findings, store
from einsumx.measuring.calibration import read_rates
from einsumx.storage.maps import mapped_at

LHS, RHS = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)


class InterruptError(ValueError):
    """What a signal handler raises; einsumx's own errors are ValueErrors too."""


class AlarmError(Exception):
    """What a signal handler raises, of a class that no library raises."""


def interrupted(frame_of, call, error=InterruptError):
    """Run a call, and raise an error, as a signal handler does, when a function of that name is entered."""

    def trace(frame, event, argument):
        if frame.f_code.co_name == frame_of:
            sys.settrace(None)
            raise error

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("function", ["ready", "run_of", "way", "run_of_parts"])
def test_an_error_that_a_signal_handler_raises_ends_the_call(function):
    einsumx.cache_clear()
    with pytest.raises(InterruptError):
        interrupted(function, lambda: einsumx.einsum("ij,jk->ki", LHS, RHS))
    np.testing.assert_array_equal(einsumx.einsum("ij,jk->ki", LHS, RHS), (LHS @ RHS).T)


@pytest.mark.parametrize("function", ["_run_of", "_prepare", "run_of"])
def test_such_an_error_ends_the_call_of_an_expression(function):
    einsumx.cache_clear()
    product = einsumx.expression("ij,jk->ki", LHS.shape, RHS.shape)
    with pytest.raises(InterruptError):
        interrupted(function, lambda: product(LHS, RHS))
    np.testing.assert_array_equal(product(LHS, RHS), (LHS @ RHS).T)


@pytest.mark.parametrize(
    ("function", "reads"),
    [
        ("opened", free_host_bytes),
        ("opened", lambda: mapped_at(0)),
        ("getsize", has_store),
        ("_run", lambda: store.read("plans", findings.read_finding, ["numpy"])),
    ],
)
def test_a_timeout_of_a_handler_is_not_taken_for_a_file_that_cannot_be_read(function, reads, monkeypatch):
    def opened(*arguments, opens=open, **keywords):
        return opens(*arguments, **keywords)

    monkeypatch.setattr(store, "has_store", lambda: True)
    monkeypatch.setattr("builtins.open", opened)
    with pytest.raises(TimeoutError):
        interrupted(function, reads, TimeoutError)


def test_a_value_error_of_a_handler_does_not_rename_the_store(tmp_path, monkeypatch):
    monkeypatch.setenv("EINSUMX_CACHE", str(tmp_path))
    store.write("rates", [store.Row(store.Origin(*"abcdef"), "2", '{"gemm": 1e9}')])
    for function in ("_transaction", "read_rates"):
        with pytest.raises(InterruptError):
            interrupted(function, lambda: store.read("rates", read_rates))
    assert len(store.read("rates", read_rates)) == 1


def test_a_runtime_error_of_a_handler_is_not_taken_for_a_thread_that_cannot_start():
    with pytest.raises(RuntimeError, match="of a handler"):
        interrupted("start", lambda: threads.started(threading.Thread()), RuntimeError("of a handler"))


REFUSING = [
    (InterruptError, "run_of", lambda: einsumx.einsum("ij,jk->ki", LHS, RHS, optimize=[(0, 1)])),
    (InterruptError, "from_signatures", lambda: einsumx.addeinsum(np.ones(2), "ij->i", LHS, alpha=np.array(2.0))),
    (InterruptError, "arrays_of", lambda: einsumx.einsum("ij->i", [[1.0, 2.0]])),
    (AlarmError, "empty", lambda: get_backend("numpy").blocks.find_device("cpu")),
    (AlarmError, "device", lambda: get_backend("numpy").blocks.find_device("cpu")),
    (AlarmError, "_value", lambda: einsumx.addeinsum(np.ones(2), "ij->i", LHS, alpha=np.array(2.0))),
    (AlarmError, "__getitem__", lambda: einsumx.einsum("ij->i", Stored(LHS))),
]


@pytest.mark.parametrize(("error", "function", "call"), REFUSING)
def test_an_error_of_a_handler_is_not_taken_for_an_argument_a_device_or_an_array_that_is_refused(error, function, call):
    einsumx.cache_clear()
    with pytest.raises(error):
        interrupted(function, call, error)


@pytest.mark.parametrize("error", [TimeoutError, AlarmError, InterruptError])
def test_an_error_of_a_handler_in_an_executor_ends_the_call_and_what_was_submitted(error):
    submitted = []

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *arguments):
            if submitted:
                raise error
            submitted.append(super().submit(*arguments))
            return submitted[0]

    with Interrupted(2) as executor:
        with pytest.raises(error):
            einsumx.einsum("ij,jk->ik", LHS, RHS, memory_limit=einsumx.MemoryLimit("1 MB", executor=executor))
        assert submitted[0].done()


def test_an_error_of_an_adapter_is_not_hidden(monkeypatch):
    from einsumx.backends.numpy import ADAPTER

    def broken(self, signature):
        raise AttributeError("a mistake in the adapter")

    einsumx.cache_clear()
    monkeypatch.setattr(type(ADAPTER), "operand", broken)
    with pytest.raises(AttributeError, match="a mistake in the adapter"):
        einsumx.einsum("ij,jk->ik", LHS, RHS)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of an alarm in a finalizer
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers that send signals")
def test_an_alarm_ends_the_search_for_a_path():
    labels = "abcdefghijkl"
    terms = [labels[i] + labels[(i + 1) % 12] + "xyz"[i % 3] for i in range(12)]

    def alarm(number, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)  # again and again, as one may come where Python ignores errors
    try:
        with pytest.raises(TimeoutError):
            einsumx.einsum(",".join(terms) + "->", *[np.ones((2, 2, 2))] * 12, optimize="optimal")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


IMPORTING = """
import gc, signal, sys, threading, time
import numpy as np
import einsumx

what, every, main, begun = sys.argv[1], int(sys.argv[2]), threading.main_thread(), False
lhs, rhs = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
imports, depth, nested, armed, lost = 0, 0, 0, False, []
sys.unraisablehook = lost.append

CALLS = [
    lambda: einsumx.einsum("ij,jk->ki", lhs, rhs).T,
    lambda: einsumx.plan("ij,jk->ik", lhs, rhs)(lhs, rhs),
    lambda: einsumx.semirings.max_plus.einsum("ij,jk->ik", lhs, rhs) - (lhs[:, 2:] + rhs[2]) + lhs @ rhs,
    lambda: einsumx.einsum("ij,jk->ik", lhs, rhs, memory_limit="1 MB"),
    lambda: einsumx.tensordot(lhs, rhs, 1),
]

def check(*calls):
    for call in calls:
        assert np.array_equal(call(), lhs @ rhs)

def interrupt(*arguments):
    global depth, nested, armed, begun
    begun = True
    if what == "raises" and armed:
        armed, nested = False, nested + 1
        raise TimeoutError
    if what != "raises" and depth < 3:
        depth, nested = depth + 1, nested + 1
        check(CALLS[nested % 5])
        depth -= 1

class Last:
    def __del__(self):
        interrupt()

class Finder:
    def find_spec(self, name, path=None, target=None):
        global imports, begun
        imports += name.startswith("einsumx.")
        if not name.startswith("einsumx.") or imports % every:
            return
        if what == "collects":
            last = Last()
            last.itself = last
        else:
            begun = False
            for _ in range(100):  # a signal that comes just before the main thread waits is handled later
                if not begun:
                    signal.pthread_kill(main.ident, signal.SIGINT)
                    time.sleep(0.01)
            # Not for ever, and for less than the 2 s that the main thread waits: it would then import, too, and so wait
            # for the lock that Python holds while it calls a finder.

sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, interrupt)
if what == "collects":
    gc.set_threshold(1)
while True:
    armed = True
    try:
        check(*CALLS)
        break
    except TimeoutError:
        pass
sys.meta_path.pop(0)
assert nested and not lost
check(*CALLS)
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the system sends no signals to a thread")
@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("what", ["calls", "raises", "collects"])
def test_calls_and_errors_of_handlers_and_finalizers_during_imports_break_no_call(what, every):
    printed(IMPORTING, what, every)


def test_imports_in_two_threads_leave_the_collector_on(monkeypatch, tmp_path):
    """Another thread has seen that collections are off, and switches them off, when the first has ended."""

    def disable():
        if threading.current_thread() is second:
            second_asked.set()
            first.join(20)
        gc.disable()

    (tmp_path / "imported_first.py").write_text("import threads_of_test as t; t.began.set(); t.second_asked.wait(20)")
    (tmp_path / "imported_second.py").write_text("import threads_of_test as t; t.second_asked.set()")
    monkeypatch.syspath_prepend(tmp_path)
    began, second_asked = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "threads_of_test", SimpleNamespace(began=began, second_asked=second_asked))
    monkeypatch.setattr(imports, "gc", SimpleNamespace(isenabled=gc.isenabled, enable=gc.enable, disable=disable))
    first = threading.Thread(target=imports.imported, args=["imported_first"])
    second = threading.Thread(target=imports.imported, args=["imported_second"])
    first.start()
    assert began.wait(20)
    second.start()
    first.join()
    second.join()
    try:
        assert gc.isenabled()
    finally:
        gc.enable()
        for name in ("imported_first", "imported_second"):
            sys.modules.pop(name, None)


FORKING = """
import gc, os, sys, threading
from einsumx.imports import imported

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "slow":
            began.set()
            ended.wait(0.5)  # in Python's import lock, for which a fork waits

sys.meta_path.insert(0, Finder())
began, ended = threading.Event(), threading.Event()
other = threading.Thread(target=lambda: imported("slow"), daemon=True)
threading.excepthook = lambda arguments: None
other.start()
began.wait(20)
child = os.fork()
if not child:
    imported("decimal")
    os._exit(gc.isenabled())
ended.set()
other.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), gc.isenabled())
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_the_child_of_a_fork_collects_garbage_though_another_thread_was_importing():
    assert printed(FORKING, PYTHONWARNINGS="ignore").split() == ["1", "True"]


ENDING = """
import builtins, os, sys
import numpy as np
import einsumx

class Last:
    def __del__(self):
        array = np.ones((1, 5_000_000))
        result = einsumx.einsum("ij,ij->ij", array, array)
        os.write(1, f"{result.shape} {sys.is_finalizing()}".encode())

einsumx.einsum("ij,ij->ij", np.ones((1, 2)), np.ones((1, 2)))
builtins.last = Last()
"""


@pytest.mark.long
def test_a_large_result_while_the_interpreter_exits():
    assert printed(ENDING) == "(1, 5000000) True"


FIRST_WITH_THREADS = """
import os, sys
import numpy as np
import einsumx
from einsumx.host import threads

class Last:
    def __del__(self):
        threads.run([lambda: None, lambda: os.write(1, f"{sys.is_finalizing()}".encode())])

last = Last()
last.itself = last  # so that it ends in the last garbage collection
del last
"""


@pytest.mark.long
def test_no_thread_is_started_while_the_interpreter_exits():
    assert printed(FIRST_WITH_THREADS, EINSUMX_NUM_THREADS="2") == "True"
