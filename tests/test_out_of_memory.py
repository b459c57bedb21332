"""Where memory runs out in the middle of a contraction under a limit, it goes on within less; the result is right."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stored import EQUATION, LIMIT, Stored, operands, process_pool, smallest

import einsumx
from einsumx import MemoryLimit
from einsumx.adapters.registry import get_backend
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.host.free_memory import is_out_of_memory

CPU = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 64"
)


WITH_OUT = 4_800
"""A limit that is as tight for the operands where the result is not counted."""


class Failing(Stored):
    """What raises at some of its reads, counted from 0."""

    def __init__(self, array: Any, at: Any, error: BaseException) -> None:
        super().__init__(array)
        self.at, self.error, self.count = at, error, -1

    def __getitem__(self, box: Any) -> Any:
        if box[0].stop:  # empty parts are read to see that it can be read
            self.count += 1
            if self.count in self.at:
                raise self.error
        return super().__getitem__(box)


class Once:
    """What raises MemoryError once, in whichever process: while there is a file."""

    def __init__(self, array: Any, while_there: Path) -> None:
        self.array, self.path, self.shape, self.dtype = array, while_there, array.shape, array.dtype

    def __getitem__(self, box: Any) -> Any:
        if box[0].start:
            try:
                self.path.unlink()  # only one of several readers removes it
            except FileNotFoundError:
                pass
            else:
                raise MemoryError("the host has no memory left")
        return self.array[box]


@contextmanager
def less_memory(limit: int = LIMIT) -> Iterator[None]:
    """Within, a warning says that a limit was too much, and names it and a smaller one."""
    with pytest.warns(RuntimeWarning, match="memory ran out") as told:
        yield
    says = [
        re.search(r"memory_limit=(\d+); the contraction continues under (\d+) bytes", str(it.message)) for it in told
    ]
    pairs = [(int(found[1]), int(found[2])) for found in says if found]
    assert pairs[0][0] == limit
    assert all(after < before for before, after in pairs)
    assert [before for before, _ in pairs[1:]] == [after for _, after in pairs[:-1]]
    assert all(it.filename == __file__ for it in told)


def is_right(found: Any, *arrays: Any) -> bool:
    assert judge(np.asarray(found), expect(EQUATION, *arrays))
    return True


# -- which errors say so ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "says_so"),
    [
        (MemoryError("Unable to allocate 8.00 EiB for an array"), True),
        (RuntimeError(CPU), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cudaErrorMemoryAllocation: out of memory"), True),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 35184372088832 bytes."), True),
        (RuntimeError("Failed to allocate CPU Memory"), True),
        (RuntimeError("the sizes must match"), False),
        (OSError("out of memory"), False),
        (einsumx.MemoryLimitError("no"), False),
    ],
)
def test_errors_that_say_that_memory_ran_out_are_known_and_no_others(error: Exception, says_so: bool) -> None:
    assert is_out_of_memory(error) == says_so


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_framework_that_is_asked_for_too_much_says_so(name: str) -> None:
    pytest.importorskip(name)
    adapter = get_backend(name)
    with pytest.raises(Exception, match=r"memory|EXHAUSTED") as caught:
        adapter.blocks.put(
            adapter.blocks.empty((1 << 50,), "uint8", "cpu"), (slice(0, 1),), adapter.from_numpy(np.ones(1, "uint8"))
        )
    assert is_out_of_memory(caught.value)


# -- the result ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "has_out"), [({0}, False), ({1}, True), ({4}, False), ({6}, True), ({2, 9}, False), ({3, 4, 5}, True)]
)
def test_the_result_is_right_wherever_memory_runs_out(at: set[int], has_out: bool) -> None:
    a, b = operands()
    out = np.full((60, 80), np.nan, "float32") if has_out else None
    limit = WITH_OUT if has_out else LIMIT
    with less_memory(limit):
        found = einsumx.einsum(EQUATION, a, Failing(b, at, MemoryError()), memory_limit=limit, out=out)
    assert is_right(found, a, b)
    assert out is None or found is out


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "method"),
    [("numpy", "add"), ("numpy", "empty"), ("torch", "add"), ("torch", "put"), ("jax", "put"), ("mxnet", "empty")],
)
def test_so_it_is_where_the_framework_adds_and_writes(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(name)
    a, b = operands()
    adapter = get_backend(name)
    kind = type(import_module("torch").empty(0)) if name == "torch" else None
    error = import_module("torch").OutOfMemoryError("CUDA out of memory.") if kind else MemoryError()
    real, calls = getattr(adapter.blocks, method), [0]

    def failing(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == (1 if method == "empty" else 3):
            raise error
        return real(*arguments)

    monkeypatch.setattr(adapter.blocks, method, failing)
    equation = "ij,ji->" if method == "add" else EQUATION
    second = b[:, :60] if method == "add" else b
    limit = 4000 if method == "add" else LIMIT
    with less_memory(limit):
        found = einsumx.einsum(equation, Stored(a), Stored(second), memory_limit=limit, backend=name)
    assert judge(np.asarray(adapter.to_numpy(found)), expect(equation, a, second))


def test_a_fresh_result_that_is_lost_when_a_block_cannot_be_put_into_it_is_computed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = operands()
    adapter = get_backend("numpy")
    real, calls = adapter.blocks.put, [0]

    def failing(out: Any, box: Any, block: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            out.fill(np.nan)
            raise MemoryError
        return real(out, box, block)

    monkeypatch.setattr(adapter.blocks, "put", failing)
    with less_memory():
        assert is_right(einsumx.einsum(EQUATION, Stored(a), Stored(b), memory_limit=LIMIT), a, b)


def test_an_out_that_is_an_operand_gets_the_right_result() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 60, 60))
    out = a.copy()
    limit = 60 * 60 * 8 + 20_000
    with less_memory(limit):
        einsumx.einsum(EQUATION, out, Failing(b, {2}, MemoryError()), out=out, memory_limit=limit)
    assert is_right(out, a, b)


def test_blocks_that_were_written_are_not_written_again_where_the_new_ones_are_parts_of_them() -> None:
    a, b = operands()
    out = Stored(np.zeros((60, 80), "float32"))
    equation = "ij,jk->ik"
    rows = Failing(a, {5}, MemoryError())
    limit = 6_000
    plan = einsumx.plan(equation, Stored(a), b, memory_limit=limit, out=out)
    out.boxes.clear()
    with less_memory(limit):
        einsumx.einsum(equation, rows, b, memory_limit=limit, out=out)
    assert is_right(out.array, a, b)
    written = np.zeros((60, 80), int)
    for box in out.boxes:
        written[box] += 1
    assert plan.blocking.root.nest
    assert (written >= 1).all()
    assert (written == 1).any()


def test_blocks_of_the_plan_that_failed_are_let_go_before_the_next_one_begins() -> None:
    a, b = operands()
    seen: list[weakref.ref[Any]] = []
    alive: list[int] = []

    class Watched(Failing):
        def __getitem__(self, box: Any) -> Any:
            has_failed = self.count >= 4
            if has_failed and box[0].stop and not alive:
                alive.append(sum(ref() is not None for ref in seen))
            block = super().__getitem__(box)
            if not has_failed and box[0].stop:
                seen.append(weakref.ref(block))
            return block

    with less_memory():
        found = einsumx.einsum(EQUATION, a, Watched(b, {4}, MemoryError()), memory_limit=LIMIT)
    assert is_right(found, a, b)
    assert seen
    assert alive == [0]


def test_progress_is_told_anew_for_the_new_plan() -> None:
    told: list[tuple[int, int]] = []
    a, b = operands()
    limit = MemoryLimit(LIMIT, progress=lambda *now: told.append(now))
    with less_memory():
        einsumx.einsum(EQUATION, a, Failing(b, {4}, MemoryError()), memory_limit=limit)
    assert [done for done, _ in told].count(0) >= 2
    assert told[-1][0] == told[-1][1]


# -- giving up ----------------------------------------------------------------------------------------------------


def test_where_nothing_smaller_is_left_the_error_says_so() -> None:
    a, b = (array[:20, :20] for array in operands())
    failing = Failing(b, range(10_000), MemoryError("no more"))
    with pytest.warns(RuntimeWarning), pytest.raises(einsumx.MemoryLimitError, match="cannot be computed in less") as e:
        einsumx.einsum(EQUATION, a, failing, memory_limit=LIMIT // 8)
    assert e.value.__cause__ is failing.error


def test_a_limit_that_can_hardly_be_smaller_is_made_a_little_smaller() -> None:
    a, b = operands()
    least = smallest(lambda limit: einsumx.plan(EQUATION, Stored(a), Stored(b), memory_limit=limit))
    limit = int(1.5 * least)  # half of it would be too little
    with less_memory(limit):
        found = einsumx.einsum(EQUATION, Stored(a), Failing(b, {0}, MemoryError()), memory_limit=limit)
    assert is_right(found, a, b)


def test_an_error_of_another_kind_is_raised_as_it_is() -> None:
    a, b = operands()
    failing = Failing(b, {4}, RuntimeError("the disk is gone"))
    with pytest.raises(RuntimeError, match="the disk is gone"):
        einsumx.einsum(EQUATION, a, failing, memory_limit=LIMIT)
    assert failing.count == 4


def test_without_a_limit_nothing_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands()

    def failing(*_: Any, **__: Any) -> Any:
        raise MemoryError("no more")

    monkeypatch.setitem(vars(get_backend("numpy")), "kernel", failing)
    with pytest.raises(MemoryError, match="no more"):
        einsumx.einsum("ij,jk->ki", a[:51], b[:, :53])


# -- with a journal, with an executor, with gradients ----------------------------------------------------------------


def test_a_run_that_went_on_within_less_and_was_cut_off_is_gone_on_with_by_the_same_call(tmp_path: Path) -> None:
    a, b = operands()
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", "float32", (60, 80))
    out[...] = np.nan
    journal = tmp_path / "journal"
    at = 30  # some reads later than those by which the journal knows the operand
    cut, told = Failing(b, {at}, MemoryError()), [0]

    def progress(done: int, total: int) -> None:
        told[0] += cut.count > at
        if told[0] == total // 2:
            raise OSError("cut off")

    with less_memory(WITH_OUT), pytest.raises(OSError, match="cut off"):
        einsumx.einsum(
            EQUATION, Stored(a), cut, out=out, memory_limit=MemoryLimit(WITH_OUT, progress=progress, resume=journal)
        )
    done = {int(line.split()[0]) for line in journal.read_text().splitlines()[1:]}
    plan = einsumx.plan(EQUATION, Stored(a), Stored(b), memory_limit=WITH_OUT, out=out)
    assert 0 < len(done) < plan.blocks
    for number in done:
        rows, columns = plan.grid.boxes[number]
        assert judge(out[rows, columns], expect(EQUATION, a[rows], b[:, columns]))
    einsumx.einsum(EQUATION, Stored(a), Stored(b), out=out, memory_limit=MemoryLimit(WITH_OUT, resume=journal))
    assert is_right(out, a, b)
    assert not journal.exists()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_workers_that_run_out_of_memory_go_on_within_less(kind: str, tmp_path: Path) -> None:
    a, b = operands()
    flag = tmp_path / "flag"
    flag.touch()
    pool = ThreadPoolExecutor(2) if kind == "threads" else process_pool(1)
    limit = 60_000
    with pool, less_memory(limit):
        found = einsumx.einsum(EQUATION, Once(a, flag), b, memory_limit=MemoryLimit(limit, executor=pool))
    assert not flag.exists()
    assert is_right(found, a, b)


@pytest.mark.long
def test_gradients_are_right_where_memory_runs_out_on_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    a, b, c = (rng.standard_normal(shape) for shape in ((60, 70), (70, 80), (80, 50)))
    given = [torch.tensor(array, requires_grad=True) for array in (a, b, c)]
    found = einsumx.einsum("ij,jk,kl->il", *given, memory_limit=500_000)
    adapter = get_backend("torch")
    real, calls = adapter.plain, [0]

    def failing(array: Any) -> Any:
        calls[0] += 1
        if calls[0] == 1:
            raise RuntimeError(CPU)
        return real(array)

    monkeypatch.setitem(vars(adapter), "plain", failing)
    with pytest.warns(RuntimeWarning, match="memory ran out under memory_limit=500000"):
        found.backward(torch.ones_like(found))
    ones = np.ones((60, 50))
    assert judge(given[0].grad.numpy(), expect("il,jk,kl->ij", ones, b, c))
    assert judge(given[1].grad.numpy(), expect("il,ij,kl->jk", ones, a, c))
    assert judge(given[2].grad.numpy(), expect("il,ij,jk->kl", ones, a, b))
