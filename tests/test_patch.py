"""``patch``, ``unpatch`` and ``patched``: code that calls a framework's own einsum gets einsumx, where it should."""

import asyncio
import inspect
import logging
import pickle
import sys
from array import array as array_of
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from threading import Event, Thread, get_ident
from types import SimpleNamespace
from weakref import ref

import numpy as np
import pytest
from functions_entered import entered
from threads import in_threads

import einsumx
from einsumx import patch, patched, patching, unpatch
from einsumx.adapters.registry import get_backend
from einsumx.adapters.replacement import Name, own
from einsumx.cli import side_by_side
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.conformance.subject import backend_subject, callable_subject
from einsumx.conformance.suite import cases
from einsumx.conformance.suite import run as judged
from einsumx.plans import plan_cost
from einsumx.runtime import calls as repeated

PLACES = {"numpy": ["numpy"], "torch": ["torch", "torch.functional"], "jax": ["jax.numpy"]}
INSTALLED = [name for name in PLACES if find_spec(name)]
NATIVE = {place: import_module(place).einsum for name in INSTALLED for place in PLACES[name]}

needs_torch = pytest.mark.skipif("torch" not in INSTALLED, reason="torch is not installed")
needs_jax = pytest.mark.skipif("jax" not in INSTALLED, reason="JAX is not installed")


@pytest.fixture(autouse=True)
def undone():
    """Frameworks have their own functions before and after each test, also after one that fails."""
    assert is_native()
    yield
    was_native = is_native()
    for name in INSTALLED:
        while einsum_of(name) is not NATIVE[PLACES[name][0]]:
            unpatch(name)
    assert was_native


@pytest.fixture
def calls(monkeypatch):
    """The threads of all calls that reach einsumx, in turn."""
    found = []
    einsum = patching.einsum

    def spy(*operands, **options):
        found.append(get_ident())
        return einsum(*operands, **options)

    def spied(ready):
        def ready_spy(adapter, translation, *keys):
            run = ready(adapter, translation, *keys)
            if translation.__module__ == patching.__name__:  # a replacement's look into the cache, not einsum's own
                found.append(get_ident())
            return run

        return ready_spy

    monkeypatch.setattr(patching, "einsum", spy)
    monkeypatch.setattr(repeated, "ready", spied(repeated.ready))
    einsumx.cache_clear()
    monkeypatch.setattr(repeated._calls, "keep", lambda key, run: run)  # so each call asks for its function
    return found


@pytest.fixture
def left(caplog):
    """Why calls went on to the framework, in turn."""
    caplog.set_level(logging.INFO, "einsumx")
    return lambda: [text for text in caplog.messages if "is left to the framework" in text]


@pytest.fixture(params=INSTALLED)
def name(request):
    return request.param


def is_native():
    return all(import_module(place).einsum is function for place, function in NATIVE.items())


def einsum_of(name):
    return import_module(PLACES[name][0]).einsum


def array(name, values, dtype="float32"):
    return get_backend(name).from_numpy(np.asarray(values, dtype))


def is_einsumx(name, calls):
    """Whether the framework's einsum is einsumx in this thread; it gives what it should in any case."""
    before = len(calls)
    assert float(einsum_of(name)("i,i->", array(name, [1, 2]), array(name, [3, 4]))) == 11
    return len(calls) > before


@contextmanager
def everywhere(name, **options):
    """In the whole process, until the block ends."""
    patch(name, **options)
    yield
    unpatch(name)


@pytest.fixture
def other():
    """Does something in a thread that was there before the test."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        yield lambda work, *arguments: pool.submit(work, *arguments).result()


def in_a_new_thread(work, *arguments):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *arguments).result()


# -- where it holds ---------------------------------------------------------------------------------------------


def test_nothing_is_replaced_before_and_the_very_functions_are_back_after(name, calls):
    assert not is_einsumx(name, calls)
    assert patch(name) is None
    assert is_einsumx(name, calls)
    for place in PLACES[name]:
        assert import_module(place).einsum is not NATIVE[place]
    unpatch(name)
    assert not is_einsumx(name, calls)
    assert is_native()
    with patched(name):
        assert is_einsumx(name, calls)
    assert not is_einsumx(name, calls)
    assert is_native()


def test_a_framework_that_is_not_named_keeps_its_own(calls):
    for name in INSTALLED:
        with patched(name):
            assert [other for other in INSTALLED if is_einsumx(other, calls)] == [name]


def test_several_frameworks_are_named_at_once(calls):
    patch(*INSTALLED)
    assert all(is_einsumx(name, calls) for name in INSTALLED)
    unpatch(*INSTALLED)
    assert is_native()
    with patched(*INSTALLED):
        assert all(is_einsumx(name, calls) for name in INSTALLED)


def test_a_name_that_is_wrong_leaves_the_others_as_they_were():
    for call in (patch, lambda *names: patched(*names).__enter__()):
        with pytest.raises(einsumx.BackendError, match="no backend is called 'nothing'"):
            call("numpy", "nothing")
        assert is_native()


def test_blocks_nest_in_each_other_and_in_the_whole_process(name, calls):
    with patched(name):
        function = einsum_of(name)
        with patched(name):
            assert einsum_of(name) is function
        assert is_einsumx(name, calls)
        patch(name)
        assert is_einsumx(name, calls)
    assert is_einsumx(name, calls)
    with patched(name):
        unpatch(name)
        assert is_einsumx(name, calls)
    assert is_native()


def test_a_block_that_fails_undoes_it_and_what_it_raised_goes_on(name):
    with pytest.raises(KeyError, match="mine"), patched(name):
        raise KeyError("mine")
    assert is_native()


def test_a_function_may_be_decorated_and_called_again_and_again(calls):
    @patched("numpy")
    def work(depth):
        return is_einsumx("numpy", calls) and (not depth or work(depth - 1))

    assert not is_einsumx("numpy", calls)
    assert work(2)
    assert work(0)
    assert is_native()


def test_patch_holds_in_all_threads_also_while_a_block_is_open(name, calls, other):
    with patched(name):
        other(patch, name)
        assert other(is_einsumx, name, calls)
        other(unpatch, name)
        assert not other(is_einsumx, name, calls)
        assert is_einsumx(name, calls)


def test_threads_that_replace_and_undo_at_once_leave_nothing_behind(name):
    def work():
        for _ in range(50):
            with patched(name), patched(name):
                found.append(float(einsum_of(name)("i,i->", lhs, lhs)))

    found, lhs = [], array(name, [1, 2])
    in_threads(work)
    assert found == [5] * 200


def test_a_function_that_somebody_else_put_there_meanwhile_is_what_comes_back(monkeypatch, calls):
    with patched("numpy"):
        pass

    def other(*operands, **options):
        return NATIVE["numpy"](*operands, **options)

    monkeypatch.setattr(np, "einsum", other)
    with patched("numpy"):
        assert is_einsumx("numpy", calls)
    assert np.einsum is other
    monkeypatch.undo()


def test_what_stands_there_looks_like_what_stood_there(name):
    native = einsum_of(name)
    with patched(name):
        found = einsum_of(name)
        assert (found.__name__, found.__module__, found.__doc__) == (native.__name__, native.__module__, native.__doc__)
        assert inspect.signature(found) == inspect.signature(native)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("array_api", "no einsum to replace|no operand says which"),
        ("nothing", r"no backend is called 'nothing'; there are numpy, .*, dask, opt_einsum;"),
        (["numpy"], r"a backend must be named by a string, such as 'numpy', not by \['numpy'\]"),
    ],
)
def test_what_has_no_einsum_of_its_own_is_said(name, text):
    for call in (patch, unpatch, lambda name: patched(name).__enter__()):
        with pytest.raises(einsumx.BackendError, match=text):
            call(name)


def test_a_patch_of_nothing_is_an_error():
    for call in (patch, unpatch, patched().__enter__):
        with pytest.raises(einsumx.BackendError, match="no library is named"):
            call()


@pytest.mark.skipif(bool(find_spec("cupy")), reason="CuPy is installed")
def test_a_framework_that_is_not_installed_is_named_with_the_way_to_install_it():
    with pytest.raises(einsumx.BackendError, match=r"cupy cannot be imported.*pip install cupy"):
        patch("cupy")


# -- threads and tasks of a block --------------------------------------------------------------------------------


def test_a_block_holds_in_the_threads_that_it_starts_and_in_those_that_they_start(name, calls):
    with patched(name):
        assert in_a_new_thread(is_einsumx, name, calls)
        assert in_a_new_thread(in_a_new_thread, is_einsumx, name, calls)
        found = []
        thread = Thread(target=lambda: found.append(is_einsumx(name, calls)))
        thread.start()
        thread.join()
    assert found == [True]
    assert not in_a_new_thread(is_einsumx, name, calls)


def test_a_block_does_not_hold_in_threads_that_are_there_before_it_or_start_elsewhere(name, calls, other):
    with patched(name):
        assert not other(is_einsumx, name, calls)
        assert not other(in_a_new_thread, is_einsumx, name, calls)


def test_a_block_of_another_thread_ends_without_this_one(name, calls, other):
    def block():
        with patched(name):
            return is_einsumx(name, calls)

    with patched(name):
        assert other(block)
        assert is_einsumx(name, calls)


def test_threads_that_live_longer_than_the_block_that_started_them_are_not_patched_any_more(name, calls):
    with ThreadPoolExecutor(1) as pool:
        with patched(name):
            assert pool.submit(is_einsumx, name, calls).result()
        assert not pool.submit(is_einsumx, name, calls).result()
        with patched(name):
            assert not pool.submit(is_einsumx, name, calls).result()
            assert is_einsumx(name, calls)


def test_an_outer_block_still_holds_in_a_thread_of_an_inner_one_that_has_ended(name, calls):
    with ThreadPoolExecutor(1) as pool, patched(name):
        with patched(name):
            assert pool.submit(is_einsumx, name, calls).result()
        assert pool.submit(is_einsumx, name, calls).result()


def test_a_thread_whose_start_began_in_a_block_starts_when_the_block_has_ended():
    found = []
    thread = Thread(target=found.append, args=["ran"])
    with patched("numpy"):
        start = Thread.start
    start(thread)
    thread.join()
    assert found == ["ran"]


def test_a_block_keeps_what_others_do_where_threads_start(monkeypatch, calls):
    monkeypatch.setattr(Thread, "start", Thread.start)  # undone after the test
    started = []

    def tool():
        own = Thread.start

        def start(self):
            started.append(self)
            own(self)

        Thread.start = start

    with patched("numpy"):
        tool()
        with patched("numpy"):
            assert in_a_new_thread(is_einsumx, "numpy", calls)
    assert len(started) == 1
    assert not in_a_new_thread(is_einsumx, "numpy", calls)
    assert len(started) == 2


def test_a_thread_that_starts_in_a_block_runs_the_function_that_was_assigned_to_it(calls):
    found = []
    thread = Thread()
    thread.run = lambda: found.append(is_einsumx("numpy", calls))
    with patched("numpy"):
        thread.start()
        thread.join()
    assert found == [True]


def test_a_block_holds_in_the_tasks_that_it_starts_until_it_ends(calls):
    async def look():
        return is_einsumx("numpy", calls)

    async def late():
        before = await look()
        began.set()
        await ended.wait()
        return before, await look(), await asyncio.to_thread(is_einsumx, "numpy", calls)

    async def main():
        with patched("numpy"):
            inside = await asyncio.gather(look(), asyncio.to_thread(is_einsumx, "numpy", calls))
            task = asyncio.create_task(late())
            await began.wait()
        ended.set()
        return inside, await task

    began, ended = asyncio.Event(), asyncio.Event()
    assert asyncio.run(main()) == ([True, True], (True, False, False))
    assert is_native()


def test_a_block_of_one_task_does_not_hold_in_another(calls):
    async def block():
        with patched("numpy"):
            began.set()
            await ended.wait()
            return is_einsumx("numpy", calls)

    async def other():
        await began.wait()
        found = is_einsumx("numpy", calls), await asyncio.to_thread(is_einsumx, "numpy", calls)
        ended.set()
        return found

    async def both():
        return await asyncio.gather(block(), other())

    began, ended = asyncio.Event(), asyncio.Event()
    assert asyncio.run(both()) == [True, (False, False)]
    assert is_native()


@pytest.mark.long
def test_threads_that_call_all_the_time_never_see_blocks_of_another(calls):
    def work():
        while not ended.is_set():
            counted.append(float(np.einsum("i,i->", lhs, lhs)))

    ended, counted, lhs = Event(), [], np.array([1.0, 2.0])
    threads = [Thread(target=work) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for _ in range(1000):
            with patched("numpy"):
                np.einsum("i,i->", lhs, lhs)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert set(counted) == {5}
    assert calls == [get_ident()] * 1000


# -- what it takes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operands",
    [
        ("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
        ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)),
        ((2, 3), [0, 1], (3, 4), [1, 2], [0, 2]),
    ],
    ids=["ellipsis", "network", "labels in lists"],
)
def test_results_are_right_and_the_frameworks(operands, name, calls, left):
    rng = np.random.default_rng(0)
    hosts = [rng.normal(size=part).astype("float32") if isinstance(part, tuple) else part for part in operands]
    arrays = [array(name, part) if isinstance(part, np.ndarray) else part for part in hosts]
    with patched(name):
        result = einsum_of(name)(*arrays)
    assert isinstance(result, type(array(name, 0)))
    assert judge(np.asarray(result), expect(*hosts, dtype="float32"))
    assert len(calls) == 1
    assert left() == []


@pytest.mark.parametrize("optimize", [True, False, None, np.True_])
def test_bools_ask_for_no_path(optimize, name, calls, left):
    with patched(name):
        found = einsum_of(name)("i,i->", array(name, [1]), array(name, [1]), optimize=optimize)
    assert float(found) == 1
    assert calls
    assert left() == []


def test_numpys_keywords_are_honoured(calls, left):
    lhs, rhs = np.arange(6, dtype="int8").reshape(2, 3), np.ones((3, 2), "int8")
    out = np.zeros((2, 2), "int64")
    with patched("numpy"):
        assert np.einsum("ij,jk->ik", lhs, rhs, out=out) is out
        wide = np.einsum("ij,jk->ik", lhs, rhs, dtype="float64", order="F", casting="safe")
        path, _ = np.einsum_path("ij,jk,kl->il", lhs, rhs, rhs.T, optimize="optimal")
        np.einsum("ij,jk,kl->il", lhs, rhs, rhs.T, optimize=path)
        np.einsum("ij,jk,kl->il", lhs, rhs, rhs.T, optimize=("greedy", 1000))
    assert out.tolist() == wide.tolist() == [[3, 3], [12, 12]]
    assert (wide.dtype, wide.flags.f_contiguous) == ("float64", True)
    assert len(calls) == 4
    assert left() == []


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda einsum, a: einsum(), einsumx.EquationError, "needs an equation"),
        (lambda einsum, a: einsum("ij,ij->", a, a, optimize=[(0, 2)]), einsumx.PathError, "path"),
        (lambda einsum, a: einsum("ij,jk->ik", a, a, memory_limit=1), einsumx.MemoryLimitError, "this contraction"),
    ],
)
def test_errors_are_einsumxs(call, kind, text, name, left):
    with patched(name), pytest.raises(kind, match=text):
        call(einsum_of(name), array(name, [[1, 2], [3, 4]]))
    assert left() == []


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda einsum, a: einsum("ij->k", a), einsumx.EquationError),
        (lambda einsum, a: einsum("ijk->i", a), einsumx.SizeError),
        (lambda einsum, a: einsum("ij,jk->ik", a, a), einsumx.SizeError),
        pytest.param(
            lambda einsum, a: einsum("ij,jk->ik", a, [[1, 2], [3]]),
            einsumx.BackendError,
            marks=pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "1.24.0", reason="an array of objects then"),
        ),
    ],
)
def test_errors_are_also_those_that_the_framework_raises(call, kind, name, left):
    operand = array(name, [[1, 2, 3], [4, 5, 6]])
    with pytest.raises(Exception) as native:  # noqa: PT011  which one is the question
        call(einsum_of(name), operand)
    with pytest.raises(kind) as direct:
        call(einsumx.einsum, operand)
    with patched(name), pytest.raises(kind) as raised:
        call(einsum_of(name), operand)
    assert left() == []
    error = raised.value
    assert isinstance(error, type(native.value))
    assert (type(error).__name__, str(error)) == (kind.__name__, str(direct.value))
    assert error.__cause__ is None or not isinstance(error.__cause__, einsumx.EinsumxError)
    assert error.__suppress_context__
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), copied.args) == (type(error), error.args)


def test_an_error_has_what_the_frameworks_own_error_has(monkeypatch):
    class OwnError(Exception):
        def __init__(self, where, operation):
            super().__init__("own")
            self.where, self.operation = where, operation

        def __str__(self):
            return self.where

    def refusing(*operands, **options):
        raise OwnError("there", "Einsum")

    monkeypatch.setattr(np, "einsum", refusing)
    matrix = np.ones((2, 3))
    with patched("numpy"), pytest.raises(OwnError, match="label 'j' has size 3") as error:
        np.einsum("ij,jk->ik", matrix, matrix)
    assert isinstance(error.value, einsumx.SizeError)
    assert error.value.operation == "Einsum"
    monkeypatch.undo()


def test_a_call_with_einsumxs_own_keywords_is_not_the_frameworks(name):
    with patched(name), pytest.raises(einsumx.SizeError) as error:
        einsum_of(name)("ij->i", array(name, [1]), accumulate="float32")
    assert not isinstance(error.value, (RuntimeError, TypeError))


def test_a_keyword_that_nobody_knows_is_the_frameworks_error(name):
    with patched(name), pytest.raises(TypeError, match="spam"):
        einsum_of(name)("ij->ji", array(name, [[1, 2]]), spam=1)


# -- under a memory limit ---------------------------------------------------------------------------------------

CHAIN = "ab,bc,cd->ad"


@pytest.fixture
def in_blocks(caplog):
    """How many contractions were computed in blocks."""
    caplog.set_level(logging.INFO, "einsumx")
    return lambda: sum(text.startswith("blocks of ") for text in caplog.messages)


@pytest.fixture
def unlimited(caplog):
    """Why calls ran without their limit, in turn."""
    caplog.set_level(logging.INFO, "einsumx")
    return lambda: [text for text in caplog.messages if "runs without the memory_limit= of its patch" in text]


def chain(name):
    """The operands of CHAIN, their product, and the bytes that the plan allocates."""
    random = np.random.default_rng(0)
    operands = [array(name, random.random(shape)) for shape in ((40, 200), (200, 300), (300, 40))]
    cost = plan_cost(einsumx.plan(CHAIN, *operands))
    return operands, einsumx.einsum(CHAIN, *operands), cost.peak_bytes - cost.input_bytes


def assert_same(found, expected):
    assert (type(found), found.dtype, found.shape) == (type(expected), expected.dtype, expected.shape)
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("hold", [True, False], ids=["block", "everywhere"])
def test_calls_that_take_more_than_the_limit_are_computed_in_blocks_and_no_others(hold, name, in_blocks, left):
    operands, expected, peak = chain(name)
    sublists = operands[0], [0, 1], operands[1], [1, 2], operands[2], [2, 3], [0, 3]
    for limit, count in ((peak - 1, 3), (peak, 3)):
        with patched(name, memory_limit=limit) if hold else everywhere(name, memory_limit=limit):
            for _ in range(2):
                assert_same(einsum_of(name)(CHAIN, *operands), expected)
            assert_same(einsum_of(name)(*sublists), expected)
        assert in_blocks() == count
    assert not left()


def test_a_call_below_the_limit_enters_as_many_functions_as_without(name):
    operands, _, peak = chain(name)
    counts = set()
    for limit in (None, peak):
        with everywhere(name, memory_limit=limit):
            function = einsum_of(name)
            function(CHAIN, *operands)
            counts.add(entered(partial(function, CHAIN, *operands)))
    assert len(counts) == 1


def test_numpys_keywords_are_honoured_under_a_limit(in_blocks):
    operands, expected, peak = chain("numpy")
    with patched("numpy", memory_limit=peak - 1):
        out = np.zeros((40, 40), "float32")
        assert np.einsum(CHAIN, *operands, out=out) is out
        assert_same(out, expected)
        found = np.einsum(CHAIN, *operands, order="F", optimize=True)
        assert found.flags.f_contiguous
        assert_same(found, expected)
        assert_same(np.einsum(CHAIN, *operands, dtype="float64"), expected.astype("float64"))
        with pytest.raises(einsumx.BackendError, match="float64"):
            np.einsum(CHAIN, *operands, out=np.zeros((40, 40), "int8"), dtype="float64")
        assert type(np.einsum("ab,bc,cd->", *operands)) is np.float32
    assert in_blocks() == 3


def test_an_out_below_the_limit_is_written_as_without(in_blocks):
    operands, expected, peak = chain("numpy")
    with patched("numpy", memory_limit=peak):
        out = np.zeros((40, 40), "float32")
        assert np.einsum(CHAIN, *operands, out=out) is out
    assert_same(out, expected)
    assert in_blocks() == 0


def test_a_view_takes_no_memory():
    matrix = np.ones((30, 40))
    with patched("numpy", memory_limit=1):
        assert np.shares_memory(np.einsum("ij->ji", matrix), matrix)


def test_the_innermost_block_says_the_limit(in_blocks):
    operands, _, peak = chain("numpy")

    def is_limited():
        before = in_blocks()
        np.einsum(CHAIN, *operands)
        return in_blocks() > before

    with patched("numpy", memory_limit=peak - 1):
        assert is_limited()
        with patched("numpy"):
            assert not is_limited()
            with patched(INSTALLED[-1], memory_limit=peak - 1):  # of other names
                assert is_limited() == (INSTALLED[-1] == "numpy")
        assert is_limited()
        assert in_a_new_thread(is_limited)
    with everywhere("numpy", memory_limit=peak - 1):
        assert is_limited()
        with patched("numpy", memory_limit=peak):
            assert not is_limited()
        with everywhere("numpy"):
            assert not is_limited()
        assert is_limited()


def test_limits_that_change_all_the_time_keep_few_functions(in_blocks):
    operands, expected, peak = chain("numpy")
    for limit in range(peak - 20, peak + 20):
        with patched("numpy", memory_limit=limit):
            assert_same(np.einsum(CHAIN, *operands), expected)
    assert in_blocks() == 20
    (place,) = patching.names_of(get_backend("numpy"))._places
    assert len(place.ours) < 12


def test_a_call_that_fits_in_no_way_is_an_error_and_not_the_frameworks(name):
    lhs, rhs = array(name, np.ones(200)), array(name, np.ones(300))
    with patched(name, memory_limit="100 kB"):
        with pytest.raises(einsumx.MemoryLimitError, match="the smallest memory_limit= is 2400"):
            einsum_of(name)("i,j->ij", lhs, rhs)
        assert einsum_of(name)("i,j->ij", lhs, rhs, memory_limit="1 MB").shape == (200, 300)  # its own limit
        with pytest.raises(einsumx.SizeError, match="label 'i'"):
            einsum_of(name)("i,i->", lhs, rhs)


@needs_jax
def test_what_jax_traces_keeps_the_limit(unlimited):
    jax = import_module("jax")
    operands, expected, peak = chain("jax")
    with patched("jax", memory_limit=peak - 1):
        assert_same(jax.jit(lambda *operands: jax.numpy.einsum(CHAIN, *operands))(*operands), expected)
        batch = jax.vmap(lambda first: jax.numpy.einsum(CHAIN, first, *operands[1:]))(operands[0][None])
        assert_same(batch[0], expected)
        assert not unlimited()


@needs_torch
def test_what_torch_traces_keeps_the_limit(unlimited):
    torch = import_module("torch")
    operands, expected, peak = chain("torch")
    with patched("torch", memory_limit=peak - 1):
        batch = torch.func.vmap(lambda first: torch.einsum(CHAIN, first, *operands[1:]))(operands[0][None])
        assert_same(batch[0], expected)
        assert not unlimited()


@needs_torch
def test_gradients_are_computed_in_blocks_too(in_blocks):
    torch = import_module("torch")
    table, weights = torch.rand(400, 300), torch.rand(300)
    gradients = []
    for limit in (None, "200 kB"):  # the product of two tables takes 480 kB
        weights = weights.detach().requires_grad_()
        with patched("torch", memory_limit=limit):
            torch.einsum("ab,ab,b->a", table, table, weights).sum().backward()
        gradients.append(weights.grad)
    assert in_blocks() > 1
    assert_same(*gradients)


@pytest.mark.parametrize(
    ("name", "limit", "kind", "text"),
    [
        ("opt_einsum", "1 GB", einsumx.BackendError, "a patch of 'opt_einsum' takes no memory_limit="),
        ("numpy", 0.5, ValueError, "memory_limit=0.5 of a patch is a fraction.*pass bytes"),
        ("numpy", 0, ValueError, "must be positive"),
        ("numpy", "much", ValueError, "is not an amount of memory"),
        ("numpy", einsumx.MemoryLimit("1 GB", device="cpu"), TypeError, "must be a number of bytes"),
    ],
)
def test_a_limit_that_cannot_hold_is_an_error_at_once(name, limit, kind, text):
    pytest.importorskip(name)
    for call in (patch, lambda *names, **options: patched(*names, **options).__enter__()):
        with pytest.raises(kind, match=text):
            call("numpy", name, memory_limit=limit)
        assert is_native()


# -- what goes on to the framework ------------------------------------------------------------------------------


class Units(np.ndarray):
    """An array that answers for itself."""

    def __array_function__(self, function, types, arguments, keywords):
        return "my own", function


class Convertible:
    def __array__(self, dtype=None, copy=None):
        return np.ones((2, 2), dtype)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda a: np.einsum("ij->ji", np.ma.masked_array(a, a > 1)), "of type numpy.ma"),
        (lambda a: np.einsum("ij->ji", Convertible()), "Convertible"),
        (lambda a: np.einsum("ij->", [[1, 2]], out=np.ma.zeros((), int)), "out= is of type numpy.ma"),
        (lambda a: np.einsum("ij->ji", a, out=np.zeros((2, 2)), order="C"), "order= is for a new array"),
        (lambda a: np.einsum("ij,jk,kl->il", a, a, a, optimize=("greedy", 1)), "more than the limit of 1"),
        (lambda a: np.einsum("i,i->", a[0], a[0], out=np.array(0), optimize="optimal"), "casting='safe'"),
        (lambda a: np.einsum(b"ij,jk", a, a), "builtins.bytes"),
        (lambda a: np.einsum("i,i->i", range(2), array_of("d", [1, 2])), "builtins.range"),
        (lambda a: np.einsum(a, {0, 1}), "must be a list or tuple"),
        (lambda a: np.einsum(a, iter([1, 0]), iter([0]), optimize="nothing"), "no optimizer is called 'nothing'"),
        (lambda a: np.einsum("ij->ji", a, order=b"F"), "order= is not a text"),
        (lambda a: np.einsum("i->i", np.array(["a", "b"])), "needs numbers"),
        (lambda a: np.einsum("i->i", np.array([1, 2], "datetime64[s]")), "needs numbers"),
    ],
)
def test_what_einsumx_cannot_honour_is_numpys_and_is_told(call, why, left):
    values = np.arange(4.0).reshape(2, 2)
    try:
        expected = call(values)
    except TypeError:
        pytest.skip("this NumPy refuses the call too")
    assert left() == []
    with patched("numpy"):
        found = call(values)
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    (told,) = left()
    assert why in told


@pytest.mark.filterwarnings("ignore:elementwise comparison failed:FutureWarning")  # of NumPy's own code before 1.25
@pytest.mark.parametrize("order", [[0], 1])
def test_what_numpy_refuses_too_is_an_error_of_numpys_class(order, left):
    a = np.ones((2, 2))
    for call in (
        lambda: np.einsum("ij->ji", a, order=order),
        lambda: np.einsum("ij->ji", a, optimize=a),
        lambda: np.einsum("ij,ij->ij", a, a, out=np.broadcast_to(0.0, (2, 2))),
        lambda: np.einsum("ij,ij->ij", a, a, out=[a]),
        lambda: np.einsum("ij,ij->ij", a, a, dtype=memoryview(a)),
    ):
        with pytest.raises((TypeError, ValueError)) as native:
            call()
        with patched("numpy"), pytest.raises(type(native.value)):
            call()


def test_a_refused_call_keeps_no_array_alive():
    array = np.ones(3, "timedelta64[s]")
    there = ref(array)
    with patched("numpy"):
        np.einsum("i->i", array).copy()
    del array
    assert there() is None


def test_arrays_with_functions_of_their_own_have_them_called_with_numpys_function(left):
    with patched("numpy"):
        assert np.einsum("ij->ji", np.ones((2, 2)).view(Units)) == ("my own", NATIVE["numpy"])
    assert "Units" in left()[0]


def test_the_logged_line_has_no_array_in_it(left):
    with patched("numpy"):
        np.einsum(np.ma.ones((2, 2)), [0, 1])
    kind = f"{np.ma.MaskedArray.__module__}.MaskedArray"
    assert left() == [f"numpy.einsum of labels in lists is left to the framework: it has an operand of type {kind}"]


@pytest.mark.skipif(not find_spec("dask"), reason="Dask is not installed")
def test_numpys_einsum_of_dasks_arrays_stays_lazy():
    dask = import_module("dask.array")
    with patched("numpy"):
        found = np.einsum("ij,jk->ik", dask.ones((4, 4), chunks=2), dask.ones((4, 4), chunks=2))
        assert type(found) is dask.Array
        assert float(found.sum().compute()) == 64


@needs_jax
def test_jaxs_own_keywords_are_honoured_and_their_defaults_ask_for_nothing(calls, left):
    jnp = import_module("jax.numpy")
    operand = jnp.ones((2, 2), "bfloat16")
    with patched("jax"):
        jnp.einsum("ij,jk->ik", operand, operand, precision=None, preferred_element_type=None)
        assert (len(calls), left()) == (1, [])
        assert jnp.einsum("ij,jk->ik", operand, operand, preferred_element_type="float32").dtype == "float32"
        assert jnp.einsum("ij,jk->ik", operand, operand, precision="highest").dtype == "bfloat16"
        assert (len(calls), left()) == (3, [])
        with pytest.warns(UserWarning, match="float64"):  # JAX truncates it where its 64-bit types are off
            assert jnp.einsum("ij,jk->ik", operand, operand, preferred_element_type="float64").dtype == "float32"
    assert "64-bit" in left()[0]


@needs_jax
def test_jax_takes_numpys_arrays_for_its_own(calls):
    jnp = import_module("jax.numpy")
    with patched("jax"):
        found = [
            jnp.einsum("ij,j->i", np.ones((2, 3), "float32"), jnp.ones(3)),
            jnp.einsum(np.ones((2, 3), "float32"), [0, 1], np.float32(1), [], [0]),
        ]
    assert [result.tolist() for result in found] == [[3, 3], [3, 3]]
    assert all(isinstance(result, jnp.ndarray) for result in found)
    assert len(calls) == 2


@needs_torch
def test_sparse_tensors_are_torchs(left):
    torch = import_module("torch")
    with patched("torch"):
        assert torch.einsum("ij->ji", torch.eye(3).to_sparse()).is_sparse
        assert "dense tensors" in left()[0]
        with pytest.raises(RuntimeError, match="sparse"):
            torch.einsum("ij,jk->ik", torch.eye(3).to_sparse(), torch.ones(3, 3))


@needs_torch
def test_tensors_with_functions_of_their_own_have_them_called_with_torchs_function(calls):
    torch = import_module("torch")
    seen = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            seen.append(function)
            return super().__torch_function__(function, types, arguments, keywords or {})

    class Plain(torch.Tensor):
        pass

    with patched("torch"):
        own = torch.einsum("ij,jk->ik", torch.ones(2, 2).as_subclass(Own), torch.ones(2, 2))
        assert (type(own), seen, calls) == (Own, [NATIVE["torch"]], [])
        plain = torch.einsum("ij,jk->ik", torch.ones(2, 2).as_subclass(Plain), torch.ones(2, 2))
        assert (type(plain), len(calls)) == (Plain, 1)
        torch.einsum("ij,jk->ik", torch.nn.Parameter(torch.ones(2, 2)), torch.ones(2, 2))
        assert len(calls) == 2
        with pytest.raises(einsumx.SizeError) as error:
            torch.einsum("i->", plain)
        assert isinstance(error.value, RuntimeError)


# -- tracing ----------------------------------------------------------------------------------------------------


@needs_torch
def test_torch_takes_a_list_of_all_operands(calls):
    torch = import_module("torch")
    with patched("torch"):
        found = torch.einsum("ij,jk->ik", [torch.ones(2, 3), torch.ones(3, 4)])
    assert (found.shape, float(found.sum()), len(calls)) == ((2, 4), 24, 1)


@needs_torch
@pytest.mark.parametrize("block", [True, False], ids=["block", "everywhere"])
def test_compiled_code_follows_the_replacement(block, calls):
    torch = import_module("torch")
    compiled = torch.compile(lambda lhs, rhs: torch.einsum("ij,jk->ik", lhs, rhs), backend="eager", fullgraph=True)
    lhs, rhs = torch.ones(2, 3), torch.ones(3, 4)

    def is_einsumx():
        before = len(calls)
        assert compiled(lhs, rhs).tolist() == [[3] * 4] * 2
        return len(calls) > before

    for _ in range(2):
        assert not is_einsumx()
        with patched("torch") if block else everywhere("torch"):
            assert is_einsumx()
    assert not is_einsumx()


@needs_torch
def test_what_torch_exports_for_other_sizes_too_is_planned(left):
    torch = import_module("torch")

    class Product(torch.nn.Module):
        def forward(self, lhs, rhs):
            return torch.einsum("bij,bjk->bik", lhs, rhs)

    lhs, rhs, batch = torch.ones(4, 2, 3), torch.ones(4, 3, 5), torch.export.Dim("batch")
    with patched("torch"):
        exported = torch.export.export(Product(), (lhs, rhs), dynamic_shapes=({0: batch}, {0: batch}))
    assert torch.equal(exported.module()(lhs[:3], rhs[:3]), torch.bmm(lhs[:3], rhs[:3]))
    assert "einsum" not in str(exported.graph)
    assert not left()


@needs_jax
def test_jit_and_grad_and_vmap_trace_einsumx(calls):
    jax = import_module("jax")
    jnp = jax.numpy
    lhs, rhs = jnp.ones((2, 3)), jnp.arange(6.0).reshape(3, 2)
    with patched("jax"):
        found = jax.jit(jax.grad(lambda lhs: jnp.einsum("ij,jk->", lhs, rhs)))(lhs)
        batch = jax.vmap(lambda lhs: jnp.einsum("ij,jk->ik", lhs, rhs))(lhs[None])
    assert found.tolist() == [[1, 5, 9], [1, 5, 9]]
    assert batch.tolist() == [[[6, 9], [6, 9]]]
    assert len(calls) == 2


@needs_jax
def test_what_jax_exports_for_other_sizes_too_is_planned(left):
    jax = import_module("jax")
    export = pytest.importorskip("jax.export")
    (size,) = export.symbolic_shape("size")
    lhs, rhs = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((size, 3), (3, 4)))
    with patched("jax"):
        exported = export.export(jax.jit(lambda lhs, rhs: jax.numpy.einsum("ij,jk->ik", lhs, rhs)))(lhs, rhs)
    result = exported.call(np.ones((7, 3), "float32"), np.ones((3, 4), "float32"))
    assert (np.asarray(result) == np.full((7, 4), 3)).all()
    assert not left()


# -- names that a backend gives ----------------------------------------------------------------------------------


def names_are(monkeypatch, *names):
    """NumPy's backend gives other names."""
    monkeypatch.setitem(vars(get_backend("numpy")), "names", lambda: names)
    monkeypatch.setattr(patching, "_known", type(patching._known)())


def scaled(native, function):
    return lambda *operands: 10 * function(*operands)


@pytest.mark.parametrize(
    ("name_in", "expected"),
    [
        (lambda library, adapter: Name(library, "einsum"), [[2]]),
        (lambda library, adapter: Name(library, "einsum", around=scaled), [[20]]),
        (lambda library, adapter: Name(library, "einsum", lambda native: lambda *operands: [native()]), ["its own"]),
        # As backends wrote it before they could leave it to ``patch``.
        (lambda library, adapter: Name(library, "einsum", partial(patching.behind, adapter)), [[2]]),
    ],
)
def test_a_backend_says_what_belongs_under_a_name(name_in, expected, monkeypatch):
    library, adapter = SimpleNamespace(einsum=lambda *operands: "its own"), get_backend("numpy")
    names_are(monkeypatch, name_in(library, adapter))
    with patched("numpy"):
        found = library.einsum("ij,jk->ik", np.array([[1, 1]]), np.array([[1], [1]]))
    assert np.asarray(found).tolist() == expected
    assert library.einsum() == "its own"


def test_one_function_under_two_names_stays_one(monkeypatch):
    def einsum(*operands):
        return "its own"

    library = SimpleNamespace(first=einsum, second=einsum)
    names_are(monkeypatch, Name(library, "first"), Name(library, "second"))
    with patched("numpy"):
        assert library.first is library.second is not einsum
    assert library.first is library.second is einsum


# -- einsumx's own use of the framework's function --------------------------------------------------------------


def test_the_frameworks_own_function_is_found_behind_einsumx(name, calls):
    lhs, rhs = array(name, np.ones((2, 3))), array(name, np.ones((3, 4)))
    with patched(name):
        assert own(einsum_of(name)) is NATIVE[PLACES[name][0]]
        assert get_backend(name).native("ij,jk->ik", [lhs, rhs]).shape == (2, 4)
        assert callable_subject(f"{PLACES[name][0]}:einsum").function is not einsum_of(name)
        problem = side_by_side.Problem("ij,jk->ik", ((2, 3), (3, 4)), "float32")
        (row,) = side_by_side.compare([side_by_side.make_trial(problem)], [name], rounds=3)
    assert isinstance(row, side_by_side.Measured)
    assert row.wrong == ""
    assert calls == []  # einsumx was called by its own name


def test_pickles_of_what_stands_there_are_of_the_name(name):
    with patched(name):
        function = einsum_of(name)
        found = pickle.loads(pickle.dumps(function))
        assert found is function
        text = pickle.dumps(function)
    assert pickle.loads(text) is einsum_of(name)


# -- einsumx's promises -----------------------------------------------------------------------------------------


LEFT_TO_THE_FRAMEWORK = [
    "wrong operands/*",
    "two frameworks/*",
    "* an array of no library is taken for NumPy's",
    "order/* out=*",
    "* optimize=None",
    "* optimize=('greedy', 3)",
]
"""Cases that want an error, where the framework's own function is asked, or has another meaning."""


@pytest.mark.long
def test_the_frameworks_einsum_keeps_einsumxs_promises(name, calls):
    subject = backend_subject(name)
    of_einsum = [case for case in cases("quick") if case.function == "einsum" and case.semiring is None]
    served = [case for case in of_einsum if not any(fnmatchcase(case.id, each) for each in LEFT_TO_THE_FRAMEWORK)]
    chosen = [case for case in served if case.raises]
    if name != "jax":  # which compiles each case
        chosen += [case for case in served if case.options or case.out or not isinstance(case.equation, str)][::6]
    own = replace(subject, function=subject.framework.called(einsum_of(name)))
    with patched(name):
        replaced = replace(subject, function=subject.framework.called(einsum_of(name)))
        outcomes = list(judged(replaced, chosen, subject.deviations))
    failed = {outcome.case: outcome.message for outcome in outcomes if outcome.status == "fail"}
    refused = [case for case in chosen if case.id in failed and case.raises]  # by einsumx: the framework's own decides
    of_own = {outcome.case: outcome.message for outcome in judged(own, refused, subject.deviations)}
    assert {case: message for case, message in failed.items() if of_own.get(case) != message} == {}
    assert sum(outcome.status in ("pass", "fail") for outcome in outcomes) > 100
    assert len(calls) > 80
