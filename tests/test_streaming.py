"""Runs under a memory limit: reading ahead, progress, interruption, capped memory."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import printed
from stored import EQUATION, LIMIT, Stored, operands, smallest, stored

import einsumx
from einsumx import MemoryLimit
from einsumx.adapters.registry import get_backend
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.storage import maps
from einsumx.streaming.blocks import Blocks
from einsumx.streaming.readers import Reader, Source, sources

ROOMY = 11_700_000
"""A limit under which the large operands are cut, with room to read ahead."""


def large() -> tuple[Stored, Stored]:
    a, b = operands()
    return Stored(np.tile(a, (15, 18))), Stored(np.tile(b, (18, 18)))


# -- reading ahead ------------------------------------------------------------------------------------------------


def test_the_next_blocks_are_read_while_one_is_computed() -> None:
    a, b = large()
    plan = einsumx.plan(EQUATION, a, b, memory_limit=ROOMY)
    assert plan.blocking.read_ahead
    found, _ = sources((a, b), get_backend("numpy"), "")
    reads = list(Blocks.reads(plan, plan.grid.indices))
    asked = threading.Event()

    class Watched(Source):
        """What is read first after the first step sees that nobody asked for it."""

        operand, in_place = found[reads[2][0]].operand, False
        was_asked: bool | None = None

        def read(self, box: Any) -> Any:
            if box == reads[2][1] and self.was_asked is None:
                self.was_asked = asked.is_set()
                seen.set()
            return found[reads[2][0]].read(box)

    seen, watched = threading.Event(), Watched()
    every = [watched if number == reads[2][0] else source for number, source in enumerate(found)]
    with Reader(every, iter(reads), plan.blocking.read_ahead) as read:
        for first in reads[:2]:
            read(*first)
        assert seen.wait(10)
        asked.set()
        for number, box in reads[2:]:
            np.testing.assert_array_equal(read(number, box), (a, b)[number].array[box])
    assert watched.was_asked is False


def test_no_more_is_read_ahead_than_memory_is_planned_for_and_nothing_that_is_not_needed() -> None:
    a, b = large()
    plan = einsumx.plan(EQUATION, a, b, memory_limit=ROOMY)
    found, _ = sources((a, b), get_backend("numpy"), "")
    reads = list(Blocks.reads(plan, plan.grid.indices))
    assert plan.blocking.read_ahead
    taken = 0
    a.boxes.clear()
    b.boxes.clear()
    with Reader(found, iter(reads), plan.blocking.read_ahead) as read:
        for number, box in reads:
            taken += read(number, box).nbytes
            assert a.read_bytes + b.read_bytes - taken <= plan.blocking.read_ahead
    a.boxes.clear()
    b.boxes.clear()
    einsumx.einsum(EQUATION, a, b, memory_limit=ROOMY)
    for which, operand in enumerate((a, b)):
        # the first of its reads sees if it can be read
        assert [box for number, box in reads if number == which] == operand.boxes[1:]


def test_where_memory_is_too_tight_nothing_is_read_ahead() -> None:
    lhs, rhs = operands()
    a, b = Stored(lhs[:12, :14]), Stored(rhs[:14, :16])  # under the smallest limit a block is an element or two
    limit = smallest(lambda limit: einsumx.plan(EQUATION, a, b, memory_limit=limit))
    assert einsumx.plan(EQUATION, a, b, memory_limit=limit).blocking.read_ahead == 0
    assert judge(einsumx.einsum(EQUATION, a, b, memory_limit=limit), expect(EQUATION, a.array, b.array))


# -- progress and interruption ------------------------------------------------------------------------------------


def test_progress_true_draws_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    einsumx.einsum(EQUATION, *stored(), memory_limit=MemoryLimit(LIMIT, progress=True))
    assert "100%" in capsys.readouterr().err


def test_progress_true_without_tqdm_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(einsumx.BackendError, match=r"einsumx\[progress\]"):
        einsumx.einsum(EQUATION, *stored(), memory_limit=MemoryLimit(LIMIT, progress=True))


def test_an_interrupt_ends_the_run_and_leaves_no_thread() -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    before = threading.enumerate()
    with pytest.raises(KeyboardInterrupt):
        einsumx.einsum(EQUATION, *large(), memory_limit=MemoryLimit(ROOMY, progress=interrupt))  # which are read ahead
    assert threading.enumerate() == before


def test_a_signal_that_comes_while_a_block_is_waited_for_ends_the_run() -> None:
    class Slow(Stored):
        def __getitem__(self, box: Any) -> Any:
            if len(self.boxes) == 3:
                os.kill(os.getpid(), signal.SIGINT)
            return super().__getitem__(box)

    # Python's own handler, which a shell that runs tests in the background may have replaced; and no callback of the
    # garbage collector, in which the interrupt would be lost.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = threading.enumerate()
    a, b = operands()
    gc.disable()
    try:
        with pytest.raises(KeyboardInterrupt):
            einsumx.einsum(EQUATION, Slow(a), Stored(b), memory_limit=LIMIT)
    finally:
        gc.enable()
        signal.signal(signal.SIGINT, handler)
    assert threading.enumerate() == before


# -- capped memory ------------------------------------------------------------------------------------------------

# What is mapped is part of the address space, though not of the memory that a process takes: the system drops its pages
# as it needs them. So the cap is what the process has before, and the files, and the limit, and room for the stacks of
# threads, the allocator's arenas, and what is imported late.
CAPPED = """
import resource, sys
from pathlib import Path
import numpy as np
import einsumx
from stored import Stored
folder, slack = sys.argv[1], 48 << 20
shapes = [(200, 3, 512), (24, 200, 3), (24, 200, 3, 512), (24, 200, 3, 512), (24, 512, 9, 9)]
equation = "jrl,ijr,ijrk,ijrl,ikmn->imn"
small = [np.ones([min(size, 2) for size in shape], np.float32) for shape in shapes]
einsumx.einsum(equation, *map(Stored, small), memory_limit=10**6)  # imports all, starts threads
rng = np.random.default_rng(3)
for number, shape in enumerate(shapes):
    rng.standard_normal(shape, np.float32).tofile(f"{folder}/{number}")
arrays = [np.memmap(f"{folder}/{number}", np.float32, "r", shape=shape) for number, shape in enumerate(shapes)]
limit = sum(array.nbytes for array in arrays) // 4
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()  # the files among it
resource.setrlimit(resource.RLIMIT_AS, (taken + limit + slack,) * 2)
for kind, given in ("mapped", arrays), ("stored", list(map(Stored, arrays))):
    np.save(f"{folder}/{kind}.npy", einsumx.einsum(equation, *given, memory_limit=limit))
try:
    whole = [np.array(array) for array in arrays]
except MemoryError:
    print("capped")
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="how much address space is taken is not known here")
def test_in_a_capped_address_space_a_quarter_of_the_inputs_is_enough(tmp_path: Path) -> None:
    # Without the address space that the C library sets apart for each thread, and that others could use in the end.
    assert printed(CAPPED, tmp_path, MALLOC_ARENA_MAX="1") == "capped\n"
    shapes = [(200, 3, 512), (24, 200, 3), (24, 200, 3, 512), (24, 200, 3, 512), (24, 512, 9, 9)]
    a, b, c, d, e = (
        np.fromfile(tmp_path / str(number), np.float32).astype(np.float64).reshape(shape)
        for number, shape in enumerate(shapes)
    )
    weights = np.einsum("jrl,ijr,ijrl->ijr", a, b, d)
    exact = np.einsum("ik,ikmn->imn", np.einsum("ijr,ijrk->ik", weights, c), e)
    for kind in ("mapped", "stored"):
        assert np.abs(np.load(tmp_path / f"{kind}.npy") - exact).max() <= 1e-4 * np.abs(exact).max()


def test_pages_that_are_given_back_have_what_was_written_to_them(tmp_path):
    mapped = np.memmap(tmp_path / "numbers", np.float64, "w+", offset=40, shape=(4000,))
    mapped[...] = np.arange(4000)
    for array, box in [
        (mapped, (slice(600, 3000),)), (mapped, (slice(4000, 4000),)), (mapped[::-2], (slice(1, 400),)),
        (mapped[3999:].reshape(()), ()),
    ]:  # fmt: skip
        maps.give_back(array, box)
    np.testing.assert_array_equal(mapped, np.arange(4000))


def test_an_out_without_axes_that_is_part_of_a_map_has_the_result(tmp_path):
    out = np.memmap(tmp_path / "numbers", np.float64, "w+", shape=(40,))[5:6].reshape(())
    lhs, rhs = np.arange(100.0).reshape(10, 10), np.ones((10, 10))
    for _ in range(20):
        einsumx.einsum("ij,ij->", lhs, rhs, out=out, memory_limit="1 kB")
    assert out == 4950
