"""A process as a whole: that it ends without a word, however it ends, and that the child of a fork never hangs."""

import os
import sys
from textwrap import dedent

import pytest
from processes import ended

pytestmark = pytest.mark.long

START = """\
import atexit, contextlib, os, signal, sys, threading, time
import numpy as np
import einsumx
small, batch = np.ones((4, 4)), np.ones((2000, 20, 20))  # a large batch is the pool's
stored = np.memmap("stored", "float64", "w+", shape=(60, 60))
einsumx.set_num_threads(3)
"""


def said(script, folder, **environment):
    """The exit status and what was said by a process that ran a script, where each warning is an error."""
    done = ended("-X", "dev", "-W", "error", "-c", START + dedent(script), folder=folder, **environment)
    return done.returncode, done.stderr


# -- its end ----------------------------------------------------------------------------------------------------

ENDS = {
    "with objects alive": """
        from concurrent.futures import ThreadPoolExecutor
        kept = einsumx.expression("ij,jk->ik", small, (4, 4)), einsumx.plan("ij,jk->ik", (4, 4), (4, 4))
        kept[0](small), kept[1](small, small), kept[1].draw().svg
        einsumx.patch("numpy")
        sys.kept = np.einsum("ij,jk->ik", small, small), kept
        einsumx.einsum("bij,bjk->bik", batch, batch)
        assert threading.active_count() == 3
        executor = ThreadPoolExecutor(2)
        einsumx.einsum("ij,jk->ik", stored, stored, memory_limit=einsumx.MemoryLimit("100kB", executor=executor))
    """,
    "while threads compute and one is in a block": """
        def work(*operands, **options):
            while True:
                einsumx.einsum(*operands, **options)
        for arguments in (("bij,bjk->bik", batch, batch), ("ij,jk->ik", small, small)):
            threading.Thread(target=work, args=arguments, daemon=True).start()
        arguments = "ij,jk->ik", stored, stored
        threading.Thread(target=work, args=arguments, kwargs={"memory_limit": "40kB"}, daemon=True).start()
        def stay():
            with einsumx.patched("numpy"):
                began.set()
                time.sleep(100)
        began = threading.Event()
        threading.Thread(target=stay, daemon=True).start()
        began.wait()
    """,
    "in a callback, with an interruption kept": """
        def leave(done, total):
            if done == 2:
                raise kind
        kind = KeyboardInterrupt
        try:
            einsumx.einsum("ij,jk->ik", stored, stored, memory_limit=einsumx.MemoryLimit("40kB", progress=leave))
        except KeyboardInterrupt as error:
            sys.kept = error
        kind = SystemExit(0)
        einsumx.einsum("ij,jk->ik", stored, stored, memory_limit=einsumx.MemoryLimit("40kB", progress=leave))
    """,
    "by a signal": """
        def compute():
            einsumx.einsum("bij,bjk->bik", batch, batch)
            einsumx.einsum("ij,jk->ik", stored, stored, memory_limit="40kB")
        compute()  # Python ignores errors in some callbacks of imports
        signal.signal(signal.SIGALRM, lambda *_: sys.exit(0))
        atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)  # an alarm ends a process that has ended its handlers
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
        try:
            while True:
                compute()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)  # the handler is not there to the end of the process
    """,
    "while operands are shared in files": """
        from multiprocessing import get_context
        from concurrent.futures import ProcessPoolExecutor
        from einsumx.streaming import shared_operands
        shared_operands.free_host_bytes = lambda: None  # memory is scarce, and so a folder takes its place
        def leave(done, total):
            began.set()
            time.sleep(100)
        def work():
            limit = einsumx.MemoryLimit("100kB", executor=kept, progress=leave)
            einsumx.einsum("ij,jk->ik", np.ones((60, 60)), np.ones((60, 60)), memory_limit=limit)
        kept, began = ProcessPoolExecutor(1, mp_context=get_context("forkserver")), threading.Event()
        threading.Thread(target=work, daemon=True).start()
        began.wait()
    """,
    "and computes meanwhile": """
        import atexit
        def last():
            einsumx.einsum("bij,bjk->bik", batch, batch)
            einsumx.einsum("ij,jk->ik", stored, stored, memory_limit="40kB")
        atexit.register(last)
        threading.Thread(target=lambda: (time.sleep(0.2), last())).start()
    """,
    "and objects compute in their last moment": """
        def contract(array, einsumx=einsumx, plan=einsumx.plan("ij,jk->ik", (4, 4), (4, 4))):
            plan(array[:4, :4], array[:4, :4])
            einsumx.einsum("ij,jk,kl->il", array, array, array)
            einsumx.einsum("ij,jk->ik", array, array, dtype="complex128")
            einsumx.einsum("ij,jk->ik", array, array, memory_limit="1MB")
            einsumx.expression("ij,jk->ik", array.shape, array.shape)(array, array)
        class Last:
            def __init__(self, array):
                self.array, self.contract = array, contract
            def __del__(self):
                self.contract(self.array)
        last = Last(np.ones((9, 9)))
        contract(small)
    """,
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has other signals")
@pytest.mark.parametrize("way", ENDS)
def test_a_process_ends_without_a_word(way, tmp_path):
    assert said(ENDS[way], tmp_path, TMPDIR=str(tmp_path)) == (0, "")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("einsumx")] == []


# -- fork -------------------------------------------------------------------------------------------------------

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

FORK = """
import warnings
warnings.filterwarnings("ignore", ".*fork")  # Python warns of any fork beside threads

def forked(work, seconds=30):
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(seconds)  # what hangs is killed
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

BUSY = {
    "on the pool": "einsumx.einsum('ij,ij->ij', wide, wide)",
    "planning": "einsumx.cache_clear(); einsumx.einsum('ij,ij->ij', small, small)",
    "replacing": "replaced('ij,ij->ij')",
    "changing threads": "einsumx.set_num_threads(2); einsumx.set_num_threads(3)",
    "in blocks": "einsumx.einsum('ij,ij->ij', stored, stored, memory_limit='40kB')",
}
"""What other threads do while a process forks.

None of it calls BLAS: where another thread does, OpenBLAS can hang in the child, with one thread of its own as well.
"""


@needs_fork
@pytest.mark.parametrize("busy", BUSY)
def test_the_child_of_a_fork_computes_whatever_other_threads_were_doing(busy, tmp_path):
    if busy == "planning" and not getattr(sys, "_is_gil_enabled", lambda: True)():
        pytest.skip("without the GIL, the child may find Python's own caches locked by a thread that it does not have")
    script = f"""
wide = np.ones((1000, 1000))
def replaced(equation):
    with einsumx.patched("numpy"):
        np.einsum(equation, small, small)
def everything():
    replaced("ij,jk->ik")
    einsumx.cache_clear()
    einsumx.set_num_threads(2)
    assert einsumx.einsum("bij,bjk->bik", batch, batch).sum() == 2000 * 20 ** 3
    assert einsumx.einsum("ij,jk->ik", small, small).sum() == 64
    einsumx.einsum("ij,jk->ik", stored, stored, memory_limit="40kB")
def work():
    while True:
        {BUSY[busy]}
everything()
einsumx.einsum("ij,ij->ij", wide, wide)
assert any(thread.name.startswith("einsumx") for thread in threading.enumerate())
sys.setswitchinterval(1e-5)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
failed = [number for number in range(8) if forked(everything)]
print(failed, file=sys.stderr)
os._exit(0)
"""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    assert said(FORK + script, tmp_path, **limits) == (0, "[]\n")


@needs_fork
def test_the_child_of_a_fork_keeps_the_blocks_of_its_own_thread_and_takes_no_lock_and_no_block_from_others(tmp_path):
    script = """
from einsumx import patching
native = np.einsum
def is_einsumx():
    try:
        np.einsum("ij,jk->ik", np.ones((2, 3)), np.ones((2, 3)))
    except einsumx.SizeError:
        return True
    except ValueError:
        return False
def hold():
    with einsumx.patched("numpy"), patching._lock:
        held.set()
        time.sleep(100)
def checked():
    assert not is_einsumx()
    with einsumx.patched("numpy"):
        assert is_einsumx()
    assert not is_einsumx()
    einsumx.patch("numpy")
    assert is_einsumx()
    einsumx.unpatch("numpy")
    assert not is_einsumx()
def in_own_block():
    assert is_einsumx()
    block.close()
    assert np.einsum is native
block = contextlib.ExitStack()
block.enter_context(einsumx.patched("numpy"))
print(forked(in_own_block), file=sys.stderr)
block.close()
held = threading.Event()
threading.Thread(target=hold, daemon=True).start()
held.wait()
assert np.einsum is not native
print(forked(checked), file=sys.stderr)
os._exit(0)
"""
    assert said(FORK + script, tmp_path) == (0, "0\n0\n")


@needs_fork
def test_the_child_of_a_fork_leaves_the_operands_that_its_parent_shares(tmp_path):
    script = """
from einsumx.streaming import shared_operands
from einsumx.streaming.readers import sources
from einsumx.adapters.registry import get_backend
from pathlib import Path
shared_operands.free_host_bytes = lambda: None
shared = shared_operands.SharedOperands(True)
found, _ = sources([np.ones(5)], get_backend("numpy"), "")
operand = shared.share(found[0])
pid = os.fork()
if not pid:
    sys.exit()
os.waitpid(pid, 0)
assert operand.open().sum() == 5
shared.close()
assert not Path(operand.path).exists()
"""
    assert said(FORK + script, tmp_path) == (0, "")
