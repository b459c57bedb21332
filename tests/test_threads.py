"""The pool: every job once, errors to the caller, BLAS put back as it was, and no thread too many."""

import os
import threading

import numpy as np
import pytest
from processes import printed
from threadpoolctl import ThreadpoolController, threadpool_limits
from threads import in_threads

import einsumx
from einsumx.host import threads
from einsumx.host.blas import Blas

BLAS = ThreadpoolController().select(user_api="blas")
NO_BLAS = "threadpoolctl does not know this BLAS library"


def settings():
    """What each BLAS library is set to."""
    return [library.get_num_threads() for library in BLAS.lib_controllers]


def workers():
    """The pool's threads that are alive."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("einsumx-")]


@pytest.fixture(autouse=True)
def as_before():
    number = threads.get_num_threads()
    yield
    threads.set_num_threads(number)


@pytest.fixture
def four_in_blas(monkeypatch):
    """BLAS and the pool use four threads, as on a machine with four CPUs."""
    if not BLAS:
        pytest.skip(NO_BLAS)
    monkeypatch.setattr(threads._blas(), "_usual", 4)
    threads.set_num_threads(4)
    with threadpool_limits(4, user_api="blas"):
        yield


@pytest.mark.parametrize(("number", "jobs"), [(1, 7), (3, 0), (3, 1), (2, 7), (5, 100)])
def test_every_job_runs_once(number, jobs):
    threads.set_num_threads(number)
    found = []
    threads.run([lambda job=job: found.append(job) for job in range(jobs)])
    assert sorted(found) == list(range(jobs))


def test_jobs_run_in_as_many_threads_as_were_set():
    threads.set_num_threads(3)
    meeting = threading.Barrier(3, timeout=60)
    threads.run([meeting.wait] * 3)  # ends only if three threads come


def test_one_thread_is_the_callers_own():
    threads.set_num_threads(1)
    found = []
    threads.run([lambda: found.append(threading.get_ident())] * 4)
    assert set(found) == {threading.get_ident()}


def test_an_error_reaches_the_caller_after_all_jobs_have_ended():
    threads.set_num_threads(3)
    failed, ended = threading.Event(), []

    def slow():
        assert failed.wait(60)
        ended.append(True)

    def fail():
        failed.set()
        raise ZeroDivisionError("a job's own")

    before = settings()
    with pytest.raises(ZeroDivisionError, match="a job's own"):
        threads.run([fail, *[slow] * 8])
    assert len(ended) == 8
    assert settings() == before
    threads.run([slow])
    assert len(ended) == 9


def test_jobs_inside_a_job_run_in_its_thread():
    threads.set_num_threads(4)
    found = []

    def outer():
        mine = threading.get_ident()
        threads.run([lambda: found.append(threading.get_ident() == mine)] * 5)

    threads.run([outer] * 4)
    assert found == [True] * 20


def test_the_pool_does_not_grow_with_calls():
    threads.set_num_threads(3)
    threads.run([lambda: None] * 3)
    before = len(workers())
    in_threads(lambda: [threads.run([lambda: None] * 8) for _ in range(30)])
    assert len(workers()) == before


# -- BLAS -----------------------------------------------------------------------------------------------------


def test_blas_has_one_thread_in_every_job_and_its_own_setting_afterwards(four_in_blas):
    found = []
    threads.run([lambda: found.extend(settings())] * 8)
    assert set(found) == {1}
    assert set(settings()) == {4}


def test_blas_is_put_back_after_calls_that_overlap_and_after_an_error(four_in_blas):
    def job():
        assert set(settings()) == {1}

    in_threads(lambda: [threads.run([job] * 3) for _ in range(50)])
    assert set(settings()) == {4}
    with pytest.raises(ValueError, match="matmul"):
        threads.run([lambda: np.matmul(np.ones((2, 3)), np.ones((2, 3)))])
    assert set(settings()) == {4}


class PerThread:
    """A BLAS library in which each thread has a number of its own, as those built on OpenMP are."""

    is_serial = has_small_kernels = False
    is_per_thread = True

    def __init__(self):
        self.numbers = threading.local()

    def get(self):
        return getattr(self.numbers, "number", 8)

    def set(self, number):
        self.numbers.number = number


def test_libraries_that_count_by_thread_have_one_in_every_thread_of_a_call(monkeypatch):
    library = PerThread()
    blas = Blas([library], 8)
    monkeypatch.setattr(threads, "_blas", lambda: blas)
    monkeypatch.setattr(threads, "_pool", threads._Pool())
    threads.set_num_threads(3)
    meeting, found = threading.Barrier(3, timeout=60), []
    threads.run([lambda: (meeting.wait(), found.append(library.get()))] * 3)
    assert found == [1, 1, 1]
    assert library.get() == 8
    library.set(2)
    threads.run([lambda: found.append(library.get())] * 8)
    assert set(found) == {1}
    assert library.get() == 2


class Interrupted:
    """A BLAS library during whose calls a signal handler or a finalizer computes with several threads, too."""

    is_serial = is_per_thread = has_small_kernels = False
    number = 8
    is_nested = False
    blas = None

    def nested(self):
        if not self.is_nested:
            self.is_nested = True
            self.blas.release(self.blas.hold())
            self.is_nested = False

    def get(self):
        self.nested()
        return self.number

    def set(self, number):
        self.nested()
        self.number = number
        self.nested()


def test_a_hold_within_a_hold_or_its_end_waits_for_nothing_and_leaves_the_number_as_it_was():
    library = Interrupted()
    library.blas = Blas([library], 8)
    hold = library.blas.hold()
    assert library.number == 1
    library.blas.release(hold)
    assert library.number == 8


def test_a_limit_set_from_outside_is_honoured_and_kept(four_in_blas):
    seen = set()
    both = threading.Barrier(2, timeout=60)

    def job():
        seen.add(threading.get_ident())

    with threadpool_limits(2, user_api="blas"):
        threads.run([both.wait] * 2)  # two threads there are
        threads.run([lambda: (both.wait(), job())] * 30)
        assert set(settings()) == {2}
    assert len(seen) <= 2
    with threadpool_limits(1, user_api="blas"):
        seen.clear()
        threads.run([job] * 30)
        assert seen == {threading.get_ident()}


def test_one_of_several_workers_has_its_share_of_the_threads_of_blas(four_in_blas):
    threads.set_num_threads(4)
    found, meeting = [], threading.Barrier(2, timeout=60)

    def work():
        with threads.sharing(2):
            meeting.wait()
            found.extend(settings())
            threads.run([lambda: found.append(settings())] * 4)
            meeting.wait()

    in_threads(work, 2)
    blas = {number for number in found if isinstance(number, int)}
    assert blas <= {1, 2}
    assert 2 in blas
    assert all(set(numbers) == {1} for numbers in found if not isinstance(numbers, int))
    assert set(settings()) == {4}


def test_one_of_several_workers_has_its_share_of_the_threads_of_openmp(monkeypatch):
    library = PerThread()
    monkeypatch.setattr(threads, "_openmp", lambda backend: [library])
    threads.set_num_threads(6)
    with threads.sharing(2, "torch"):
        assert library.get() == 3
    assert library.get() == 8


# -- how many -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("elements", "alone"), [(5000, False), (50_000, True), (500_000, False)])
def test_blas_has_one_thread_where_a_product_of_vectors_does_not_repay_a_wait(elements, alone, monkeypatch):
    counts = []
    monkeypatch.setattr(threads._blas(), "hold", lambda hold=threads._blas().hold: counts.append(1) or hold())
    threads.set_num_threads(2)
    a = np.ones(elements)
    assert einsumx.einsum("i,i->", a, a) == elements
    assert len(counts) == alone


@pytest.mark.parametrize(("wrong", "error"), [(0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)])
def test_the_number_of_threads_is_a_positive_integer(wrong, error):
    with pytest.raises(error, match=f"at least 1, not {wrong}" if error is ValueError else "integer"):
        einsumx.set_num_threads(wrong)


def test_another_number_of_threads_forgets_plans_cut_for_the_old_one():
    einsumx.set_num_threads(2)
    einsumx.einsum("ij->ji", np.ones((2, 3)))
    einsumx.set_num_threads(2)
    assert einsumx.cache_info()["calls"].currsize > 0
    einsumx.set_num_threads(3)
    assert einsumx.cache_info()["calls"].currsize == 0


def number_in(**environment):
    """The number of threads in a fresh process with these variables and none of the others."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.endswith("_NUM_THREADS")]:
            patch.delenv(name)
        return int(printed("import einsumx; print(einsumx.get_num_threads())", **environment))


@pytest.mark.long
@pytest.mark.parametrize(
    ("environment", "number"),
    [
        ({"EINSUMX_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, 3),
        ({"OMP_NUM_THREADS": "5,2", "OPENBLAS_NUM_THREADS": "4"}, 5),
        ({"OMP_NUM_THREADS": "many", "MKL_NUM_THREADS": "4"}, 4),
    ],
)
def test_the_environment_says_how_many_threads(environment, number):
    assert number_in(**environment) == number


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not say which CPUs are ours")
def test_without_a_word_there_are_no_more_threads_than_cpus_of_this_process():
    assert 1 <= number_in() <= len(os.sched_getaffinity(0))


# -- fork -----------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.skipif(not BLAS, reason=NO_BLAS)
@pytest.mark.parametrize("while_held", [False, True])
def test_the_child_of_a_fork_has_a_pool_of_its_own_and_blas_as_it_was(while_held):
    code = f"""
import os, threading, warnings
warnings.simplefilter("ignore")  # Python warns of any fork beside threads
from threadpoolctl import ThreadpoolController
from einsumx.host import threads
threads.set_num_threads(3)
threads.run([lambda: None] * 3)
(library, *_) = ThreadpoolController().select(user_api="blas").lib_controllers
library.set_num_threads(2)
entered, leave = threading.Event(), threading.Event()
if {while_held}:
    other = threading.Thread(target=lambda: threads.run([lambda: (entered.set(), leave.wait())]))
    other.start()
    entered.wait()
child = os.fork()
if child == 0:
    meeting = threading.Barrier(3, timeout=30)
    right = library.get_num_threads() == 2
    threads.run([meeting.wait] * 3)
    os._exit(0 if right and library.get_num_threads() == 2 else 1)
leave.set()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert printed(code, OMP_NUM_THREADS="2") == "0\n"


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind threads to CPUs")
def test_a_caller_bound_to_one_cpu_binds_neither_the_workers_nor_their_number():
    code = """
import os, threading
from einsumx.host import threads
cpus = os.sched_getaffinity(0)
workers = set()
def call():
    os.sched_setaffinity(0, {min(cpus)})
    meeting = threading.Barrier(3)
    def job():
        meeting.wait()
        workers.add(threading.get_native_id())
        meeting.wait()
    print(threads.core_count() == len(cpus))
    threads.set_num_threads(3)
    threads.run([job] * 3)
caller = threading.Thread(target=call)
caller.start()
caller.join()
others = workers - {caller.native_id}
print(len(others), all(os.sched_getaffinity(worker) == cpus for worker in others))
"""
    assert printed(code).split() == ["True", "2", "True"]


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind threads to CPUs")
def test_workers_that_start_while_the_main_thread_is_bound_to_one_cpu_use_all_of_its_cpus_later():
    code = """
import os, threading
from einsumx.host import threads
cpus = os.sched_getaffinity(0)
threads.set_num_threads(2)
bound = []
meeting = threading.Barrier(2)
def job():
    meeting.wait()
    bound.append(os.sched_getaffinity(0))
    meeting.wait()
for each in ({min(cpus)}, cpus):
    os.sched_setaffinity(0, each)
    threads.run([job] * 2)
print(bound == [{min(cpus)}] * 2 + [cpus] * 2)
"""
    assert printed(code).split() == ["True"]
