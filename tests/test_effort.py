"""The effort of planning: whose setting counts, where, and that nothing is measured while choices are frozen."""

import asyncio
import contextvars
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from processes import printed
from threads import in_threads

import einsumx
from einsumx.measuring import effort as module
from einsumx.measuring.effort import is_frozen


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    """A process in which nobody has set anything."""
    monkeypatch.setattr(module, "_of_process", None)
    monkeypatch.setattr(module, "_frozen", None)
    assert not module.is_set
    yield
    assert module._measuring == 0
    monkeypatch.undo()
    module._update()


def fresh(code, **variables):
    """What a fresh interpreter prints."""
    return printed(f"import einsumx; from einsumx.measuring import effort; {code}", **variables).strip()


# -- whose setting counts -------------------------------------------------------------------------------------------


def test_the_effort_is_estimate_unless_somebody_sets_it():
    assert einsumx.get_effort() == "estimate"


def test_a_block_comes_before_the_process_and_the_inner_before_the_outer():
    einsumx.set_effort("measure")
    with einsumx.effort("estimate"):
        assert einsumx.get_effort() == "estimate"
        with einsumx.effort("measure"):
            assert einsumx.get_effort() == "measure"
        assert einsumx.get_effort() == "estimate"
    assert einsumx.get_effort() == "measure"


def test_a_block_ends_with_an_error_too_and_can_decorate_a_function():
    with pytest.raises(KeyError), einsumx.effort("measure"):
        raise KeyError
    assert einsumx.get_effort() == "estimate"
    assert not module.is_set
    assert einsumx.effort("measure")(einsumx.get_effort)() == "measure"
    assert einsumx.get_effort() == "estimate"


@pytest.mark.parametrize("value", ["", "MEASURE", b"measure", True, ["measure"]])
def test_another_value_is_an_error_that_names_both_efforts(value):
    message = 'must be "estimate" or "measure", not '
    with pytest.raises(ValueError, match=f"^the effort {message}"):
        einsumx.set_effort(value)
    with pytest.raises(ValueError, match=f"^the effort {message}"), einsumx.effort(value):
        pass
    assert einsumx.get_effort() == "estimate"


# -- the quick check ------------------------------------------------------------------------------------------------


def test_the_quick_check_is_true_while_the_process_or_any_block_measures():
    """Calls ask it before anything else, so a wrong answer would ignore an effort."""
    einsumx.set_effort("measure")
    assert module.is_set
    einsumx.set_effort("estimate")
    assert not module.is_set
    with einsumx.effort("estimate"):
        assert not module.is_set
    with einsumx.effort("measure"):
        with einsumx.effort("measure"):
            assert module.is_set
        assert module.is_set
    assert not module.is_set


def test_many_threads_that_enter_and_leave_blocks_lose_no_count():
    def work():
        for _ in range(200):
            with einsumx.effort("measure"):
                assert module.is_set
                assert einsumx.get_effort() == "measure"

    in_threads(work)
    assert not module.is_set


# -- threads and tasks ----------------------------------------------------------------------------------------------


def test_a_setting_of_the_process_reaches_other_threads_and_a_block_does_not():
    seen = []
    # Since Python 3.14 a thread may start with the context of its parent.
    context = {"context": contextvars.Context()} if sys.version_info >= (3, 14) else {}

    def look():
        thread = threading.Thread(target=lambda: seen.append(einsumx.get_effort()), **context)
        thread.start()
        thread.join()

    with einsumx.effort("measure"):
        look()
    einsumx.set_effort("measure")
    look()
    assert seen == ["estimate", "measure"]


def test_tasks_that_interleave_have_efforts_of_their_own():
    async def measuring():
        with einsumx.effort("measure"):
            await asyncio.sleep(0)
            return einsumx.get_effort()

    async def estimating():
        first = einsumx.get_effort()
        await asyncio.sleep(0)
        return first, einsumx.get_effort()

    async def both():
        return await asyncio.gather(measuring(), estimating())

    assert asyncio.run(both()) == ["measure", ("estimate", "estimate")]


def test_what_starts_in_a_block_has_its_effort_until_the_block_ends():
    async def late():
        before = einsumx.get_effort()
        began.set()
        await ended.wait()
        return before, einsumx.get_effort()

    async def main():
        with einsumx.effort("measure"):
            with einsumx.effort("estimate"):
                task = asyncio.create_task(late())
                await began.wait()
            inner = asyncio.create_task(asyncio.to_thread(einsumx.get_effort))
            seen = await inner
        ended.set()
        return seen, await task

    began, ended = asyncio.Event(), asyncio.Event()
    einsumx.set_effort("measure")
    assert asyncio.run(main()) == ("measure", ("estimate", "measure"))


def test_a_pools_thread_that_inherits_a_block_loses_it_when_the_block_ends():
    with ThreadPoolExecutor(1) as pool:
        with einsumx.effort("measure"):
            context = contextvars.copy_context()  # in which the thread starts, as threads of free-threaded Python do
            assert pool.submit(context.run, einsumx.get_effort).result() == "measure"
        assert pool.submit(context.run, einsumx.get_effort).result() == "estimate"
        with einsumx.effort("measure"):
            assert pool.submit(context.run, einsumx.get_effort).result() == "estimate"


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_of_a_fork_can_set_its_effort_while_another_thread_held_the_lock():
    code = """
import os
with effort._lock:
    child = os.fork()
    if not child:
        einsumx.set_effort("measure")
        os._exit(effort.is_set)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert fresh(f"\n{code}") == "1"


# -- the environment ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_variable_sets_the_effort_of_a_process():
    code = "print(effort.is_set, einsumx.get_effort())"
    assert fresh(code, EINSUMX_EFFORT="measure") == "True measure"
    assert fresh(code, EINSUMX_EFFORT="") == "False estimate"
    code = f"einsumx.set_effort('estimate'); {code}"
    assert fresh(code, EINSUMX_EFFORT="measure") == "False estimate"


# -- frozen ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "frozen"), [("1", True), ("0", False)])
def test_the_variable_freezes_a_process_until_somebody_sets_it(text, frozen, monkeypatch):
    monkeypatch.setenv("EINSUMX_FREEZE", text)
    assert is_frozen() is frozen
    einsumx.freeze(not frozen)
    assert is_frozen() is not frozen
