"""Blocks on several devices: those that JAX makes of the CPU, which are devices like others, with memory of their own.

How many there are is set in ``conftest.py``, before JAX is imported.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from stored import CASES, Acting, Stored

from einsumx import BackendError, MemoryLimit, einsum
from einsumx.adapters.registry import get_backend
from einsumx.conformance.kit.oracle import expect, judge

jax = pytest.importorskip("jax")
JAX = get_backend("jax")

DEVICES = ["cpu:0", "cpu:1", "cpu:2"]
SECONDS = 30
"""For which a test waits before it fails."""


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("einsumx-")] == []


def operands(case: str, dtype: str = "float32") -> tuple[str, list[Any]]:
    rng = np.random.default_rng(3)
    return case.partition(" ")[0], [rng.integers(-3, 4, shape).astype(dtype) for shape in CASES[case]]


def check(found: Any, equation: str, *arrays: Any, dtype: str | None = None) -> None:
    assert judge(np.asarray(found), expect(equation, *arrays, dtype=dtype))


class Fetched(Stored):
    """An ``out`` that hears of each block on which device it was computed."""

    def __init__(self, array: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(array)
        self.devices: list[str] = []

        def to_numpy(block: Any) -> Any:
            self.devices.append(JAX.device(block))
            return np.asarray(block)

        monkeypatch.setitem(vars(JAX), "to_numpy", to_numpy)


# -- results ------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "dtype"), [("iij->ji", "bool"), ("ij,ij->", "float16"), ("ij,jk->ik (empty)", "float32")]
)
def test_several_devices_give_the_plain_sum(case: str, dtype: str) -> None:
    equation, arrays = operands(case, dtype)
    found = einsum(equation, *arrays, backend="jax", memory_limit=MemoryLimit("20kB", devices=DEVICES))
    check(found, equation, *arrays)
    assert JAX.device(found) == "cpu:0"


@pytest.mark.long
@pytest.mark.parametrize(("case", "place"), [("ij,jk->ik", ""), ("ij,ij->", "cpu:1")])
def test_operands_of_the_framework_are_brought_to_each_device(case: str, place: str) -> None:
    equation, arrays = operands(case)
    given = [JAX.from_numpy(array, place) for array in arrays]
    found = einsum(equation, *given, memory_limit=MemoryLimit("20kB", devices=["cpu:1", "cpu:2"]))
    check(found, equation, *arrays)
    assert JAX.device(found) == "cpu:1"


@pytest.mark.long
def test_operands_whose_dtype_numpy_lacks_are_brought_to_each_device() -> None:
    equation, arrays = operands("ij,jk->ik")
    given = [jax.numpy.asarray(array, "bfloat16") for array in arrays]
    found = einsum(equation, *given, memory_limit=MemoryLimit("20kB", devices=DEVICES))
    assert found.dtype == "bfloat16"
    check(np.asarray(found).astype("float32"), equation, *arrays, dtype="bfloat16")


@pytest.mark.parametrize(
    ("keyword", "place"), [({"device": "cpu:1"}, None), ({"device": "cpu:1"}, ""), ({"devices": ["cpu:1"]}, "cpu:0")]
)
def test_one_device_is_where_it_is_computed(
    keyword: dict[str, Any], place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    equation, arrays = operands("ij,jk->ik")
    given = arrays if place is None else [JAX.from_numpy(array, place) for array in arrays]
    assert JAX.device(einsum(equation, *given, backend="jax", memory_limit=MemoryLimit("20kB", **keyword))) == "cpu:1"
    out = Fetched(np.zeros((40, 50), "float32"), monkeypatch)
    einsum(equation, *given, backend="jax", memory_limit=MemoryLimit("10kB", **keyword), out=out)
    assert len(out.devices) > 1
    # Operands on the host of another device are read through NumPy.
    assert set(out.devices[-2:]) == {"cpu:1"}
    check(out.array, equation, *arrays)


@pytest.mark.parametrize("how", ["reader", "devices", "executor"])
def test_settings_of_jax_for_one_thread_hold_in_those_that_compute_for_it(how: str) -> None:
    rng = np.random.default_rng(0)
    rows, columns = Stored(rng.normal(size=(3000, 60))), rng.normal(size=(60, 50))
    with jax.enable_x64(True), ThreadPoolExecutor(2) as pool:
        how_so: dict[str, Any] = {
            "reader": {"device": "cpu:1"},
            "devices": {"devices": DEVICES},
            "executor": {"executor": pool},
        }[how]
        found = einsum("ij,jk->ik", rows, columns, backend="jax", memory_limit=MemoryLimit("2MB", **how_so))
        assert found.dtype == "float64"
        np.testing.assert_allclose(np.asarray(found), rows.array @ columns, rtol=1e-12)


# -- how the work is shared out -----------------------------------------------------------------------------------


def test_a_device_that_is_slower_computes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [np.ones((640, 30), "float32"), np.ones((30, 50), "float32")]
    out = Fetched(np.zeros((640, 50), "float32"), monkeypatch)
    others_did_theirs = threading.Event()
    wait = JAX.synchronize

    def synchronize(array: Any) -> None:
        if JAX.device(array) == "cpu:1":
            assert others_did_theirs.wait(SECONDS)
        elif len(out.devices) > 6:
            others_did_theirs.set()
        wait(array)

    monkeypatch.setitem(vars(JAX), "synchronize", synchronize)
    einsum("ij,jk->ik", *arrays, backend="jax", memory_limit=MemoryLimit("20kB", devices=["cpu:0", "cpu:1"]), out=out)
    assert out.devices[:7] == ["cpu:0"] * 7
    assert set(out.devices) == {"cpu:0", "cpu:1"}
    check(out.array, "ij,jk->ik", *arrays)


def test_a_bounded_number_of_blocks_is_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = written = most = 0
    lock = threading.Lock()

    class Out(Stored):
        def __setitem__(self, box: Any, value: Any) -> None:
            nonlocal written
            super().__setitem__(box, value)
            with lock:
                written += 1

    def act(box: Any) -> None:
        nonlocal computed, most
        with lock:
            computed += 1
            most = max(most, computed - written)

    rows = Acting(np.ones((600, 20), "float32"), act)
    out = Out(np.zeros((600, 1), "float32"))
    limit = MemoryLimit(2000, devices=DEVICES)
    einsum("ij,jk->ik", rows, np.ones((20, 1), "float32"), backend="jax", memory_limit=limit, out=out)
    assert computed == written > 20
    assert most <= 2 * len(DEVICES)


@pytest.mark.long
@pytest.mark.parametrize("keyword", [{"device": "cpu:0"}, {"devices": ["cpu:0", "cpu:1"]}])
def test_blocks_are_read_while_others_are_computed(keyword: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    read = [threading.Event() for _ in range(2)]
    wait = JAX.synchronize
    was_read: list[bool] = []

    def act(box: Any) -> None:
        read[int(any(event.is_set() for event in read))].set()

    def synchronize(array: Any) -> None:
        was_read.append(read[1].wait(SECONDS))
        wait(array)

    monkeypatch.setitem(vars(JAX), "synchronize", synchronize)
    rows, columns = Acting(np.ones((6000, 60), "float32"), act), np.ones((60, 50), "float32")
    out = np.zeros((6000, 50), "float32")
    einsum("ij,jk->ik", rows, columns, backend="jax", memory_limit=MemoryLimit("1MB", **keyword), out=out)
    assert all(was_read)
    check(out, "ij,jk->ik", rows.array, columns)


@pytest.mark.long
@pytest.mark.parametrize(("case", "has_out"), [("ij,jk->ik", True), ("ab,bc,cd->ad", False)])
def test_each_device_stays_within_the_limit(case: str, has_out: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    equation, arrays = operands(case)
    expected = expect(equation, *arrays).values
    out = np.zeros(expected.shape, "float32") if has_out else None
    peaks = dict.fromkeys(DEVICES, 0)
    lock = threading.Lock()
    wait = JAX.synchronize

    def alive(device: str) -> int:
        return sum(array.nbytes for array in jax.live_arrays() if JAX.device(array) == device)

    def measure(array: Any) -> None:
        wait(array)
        with lock:
            for device in DEVICES:
                peaks[device] = max(peaks[device], alive(device))

    limit = 3 * expected.size * 4 + 6000
    before = {device: alive(device) for device in DEVICES}
    monkeypatch.setitem(vars(JAX), "synchronize", measure)
    einsum(equation, *arrays, backend="jax", memory_limit=MemoryLimit(limit, devices=DEVICES), out=out)
    assert any(peaks.values())
    assert all(peaks[device] - before[device] <= limit for device in DEVICES)


# -- what goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keywords", "error", "says"),
    [
        ({"devices": ["cpu:0", "cpu:7"]}, BackendError, "jax finds no device 'cpu:7'; there are cpu:0, cpu:1, cpu:2"),
        ({"device": "cpu:7"}, BackendError, "jax finds no device 'cpu:7'"),
        ({"devices": ["cpu", "cpu:1", "cpu:0"]}, ValueError, "has 'cpu' and 'cpu:0', which are one device of jax"),
        ({"devices": ["cpu:0", 1]}, TypeError, "devices= must be a list of device names"),
        ({"devices": ["cpu:0", ""]}, TypeError, "devices= must be a list of device names"),
    ],
)
def test_devices_that_make_no_sense_are_errors_that_say_why(
    keywords: dict[str, Any], error: type[Exception], says: str
) -> None:
    equation, arrays = operands("ij,jk->ik")
    with pytest.raises(error, match=says):
        einsum(equation, *arrays, backend="jax", memory_limit=MemoryLimit("20kB", **keywords))


def test_devices_that_a_framework_has_not_are_an_error() -> None:
    equation, arrays = operands("ij,jk->ik")
    with pytest.raises(BackendError, match="numpy finds no device 'cuda:0'"):
        einsum(equation, *arrays, memory_limit=MemoryLimit("20kB", devices=["cuda:0", "cuda:1"]))
