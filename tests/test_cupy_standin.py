"""CuPy's adapter on a fake that obeys the rules of CuPy's sources; nothing here has run on a GPU.

``nox -s gpu`` judges it on CuPy itself.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import einsumx
from einsumx import MemoryLimit
from einsumx.backends.cupy import ADAPTER
from einsumx.cli.main import main
from einsumx.cli.rate_measurement import calibrate
from einsumx.conformance.subject import backend_subject
from einsumx.conformance.suite import cases, run
from einsumx.errors import BackendError

DEVICES = ("cuda:0", "cuda:1")


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def on(cupy, device, values, dtype="float32"):
    with cupy.cuda.Device(int(device[-1])):
        return cupy.asarray(np.asarray(values, dtype))


# -- the fake -------------------------------------------------------------------------------------------------------


def test_the_fake_has_nothing_that_cupy_lacks(fake_cupy):
    names = fake_cupy.fake.NAMES
    assert set(fake_cupy._arrays._SPECIAL) <= set(names["functions"])
    own = {name for name in vars(fake_cupy.ndarray) if not name.startswith("_")}
    assert own <= {*names["methods"], *names["attributes"]}
    for kind in ("Device", "Stream", "Event", "MemoryPointer", "MemoryPool"):
        own = {name for name in vars(getattr(fake_cupy.cuda, kind)) if not name.startswith("_")}
        assert own <= set(names["modules"][f"cuda.{kind}"]), kind
    assert set(vars(fake_cupy.cuda.runtime)) <= set(names["modules"]["cuda.runtime"])


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda cupy, array: np.asarray(array), TypeError),
        (lambda cupy, array: cupy.multiply(array, np.ones(3)), TypeError),
        (lambda cupy, array: np.ones(3) * array, TypeError),
        (lambda cupy, array: cupy.matmul(array, np.ones(3)), TypeError),
        (lambda cupy, array: cupy.errstate(all="ignore"), AttributeError),
        (lambda cupy, array: array.flags.c_contiguous and array.ctypes, AttributeError),
        (lambda cupy, array: cupy.multiply(array, array, order="C"), TypeError),
        (lambda cupy, array: cupy.shares_memory(array, array[:2], max_work=10), NotImplementedError),
        (lambda cupy, array: array.copy(subok=True), TypeError),
        (lambda cupy, array: cupy.cuda.Device(2), RuntimeError),
    ],
)
def test_the_fake_refuses_what_cupy_refuses(fake_cupy, call, error):
    with pytest.raises(error):
        call(fake_cupy, fake_cupy.asarray(np.ones(3)))


def test_the_fake_refuses_work_on_another_device_than_the_current_one(fake_cupy):
    array = on(fake_cupy, "cuda:1", np.ones((2, 3)))
    for call in (lambda: array + 1, array.sum, lambda: fake_cupy.matmul(array, array.T)):
        with pytest.raises(ValueError, match="different from the current device"):
            call()
    with pytest.raises(NotImplementedError, match="non-contiguous"):
        array[:, :2].copy()
    assert array.copy().device.id == 0


def test_the_fake_counts_the_copies_that_cupy_makes_by_itself(fake_cupy):
    stacked = fake_cupy.asarray(np.ones((2, 3, 4), "float32"))
    flat, half = stacked[0], stacked.astype("float16")
    counts = []
    for lhs, rhs in (
        (flat, flat.T),  # C and F order
        (flat[:, :3], flat),  # gaps between rows
        (stacked, stacked.swapaxes(1, 2)),  # a batch in C order, and one that is not
        (stacked, fake_cupy.ascontiguousarray(stacked.swapaxes(1, 2))),
        (flat.astype("int32"), flat.astype("int32").T),  # integers read C order alone
        (half, fake_cupy.ascontiguousarray(half.swapaxes(1, 2))),  # cast to float32 and back
    ):
        with fake_cupy.fake.counted() as counted:
            fake_cupy.matmul(lhs, rhs)
        counts.append([nbytes for _, nbytes in counted.silent])
    assert counts == [[], [36], [96], [], [48], [96, 96, 36]]


def test_work_of_the_fake_runs_when_somebody_waits(fake_cupy):
    pinned = np.ones(600)
    fake_cupy.cuda.runtime.hostRegister(pinned.ctypes.data, pinned.nbytes, 0)
    stream = fake_cupy.cuda.Stream(non_blocking=True)
    array = fake_cupy.empty((600,), "float64")
    array.data.copy_from_host_async(pinned.ctypes.data, pinned.nbytes, stream)
    copied = stream.record()
    assert np.isnan(array.get()).all()  # nobody has waited for the other stream
    pinned[:] = 2  # too early: the copy reads it later
    copied.synchronize()
    assert (array.get() == 2).all()
    total = array + 1
    del array
    other = fake_cupy.empty((600,), "float64")  # in the memory of the first, in the same stream
    other[...] = 5
    assert (total.get() == 3).all()
    fake_cupy.cuda.runtime.hostUnregister(pinned.ctypes.data)


def test_memory_of_the_fake_belongs_to_its_stream(fake_cupy):
    mine, other = fake_cupy.cuda.Stream(non_blocking=True), fake_cupy.cuda.Stream(non_blocking=True)
    with other:
        array = fake_cupy.asarray(np.ones(600))
    other.synchronize()
    with mine:
        total = array + 1
    del array
    with other:
        fake_cupy.asarray(np.full(600, 7.0))
    other.synchronize()  # overwrites the memory under the sum, which has not run yet
    with mine:
        assert (total.get() == 8).all()


# -- the adapter ----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_einsumx_keeps_its_promises_on_the_fake(fake_cupy, device, request):
    level = request.config.option.einsumx_level or "quick"
    subject = backend_subject("cupy", device)
    with fake_cupy.fake.counted() as counts:
        outcomes = list(run(subject, cases(level), subject.deviations))
    failed = [outcome for outcome in outcomes if outcome.status == "fail"]
    assert not failed, "\n".join(f"{outcome.case}: {outcome.message}\n{outcome.reproducer}" for outcome in failed)
    assert sum(outcome.status == "pass" for outcome in outcomes) > 1000
    # argmax flattens intermediates, which are no part of a plan.
    assert not [name for name, _ in counts.silent if not name.startswith("reshape")]
    assert subject.version.endswith("fake")


def test_numbers_reach_kernels_without_an_upload(fake_cupy):
    array = fake_cupy.asarray(np.ones((4, 4)))
    out = fake_cupy.asarray(np.ones((4, 4)))
    with fake_cupy.fake.counted() as counts:
        einsumx.addeinsum(out, "ij,jk->ik", array, array, alpha=2.5, beta=0.5, out=out)
    assert (counts.uploaded, counts.fetched) == (0, 0)
    np.testing.assert_array_equal(out.get(), np.full((4, 4), 10.5))


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_exponents_fetch_a_few_numbers_and_no_intermediate(fake_cupy, rng, dtype):
    host = rng.standard_normal((40, 40)).astype(dtype)
    array = fake_cupy.asarray(host)
    with fake_cupy.fake.counted() as counts:
        mantissa, exponent = einsumx.einsum_frexp("ij,jk->ik", array, array)
    assert counts.fetched < 100
    np.testing.assert_allclose(mantissa.get() * 2.0**exponent, host.astype("complex128") @ host, rtol=0.01, atol=0.1)


def test_overlap_is_judged_by_bounds(fake_cupy):
    array = fake_cupy.zeros((4, 4))
    assert ADAPTER.out.may_overlap(array[:2], array[1:])
    assert not ADAPTER.out.may_overlap(array[:2], array[2:])
    assert not ADAPTER.out.may_overlap(array, fake_cupy.zeros((4, 4)))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("i,j->ij", [(300,), (300,)]),
        ("ijk->ij", [(300, 300, 2)]),
        ("ij,jk->ik", [(300, 7), (7, 300)]),
        ("bij,bjk->bik", [(5, 150, 3), (5, 3, 150)]),
    ],
)
def test_a_large_result_is_written_to_out(fake_cupy, rng, equation, shapes, turned):
    hosts = [rng.integers(-4, 5, shape).astype("float64") for shape in shapes]
    expected = np.einsum(equation, *hosts)
    with fake_cupy.cuda.Device(1):
        arrays = [fake_cupy.asarray(host) for host in hosts]
        out = fake_cupy.zeros(expected.shape[::-1]).T if turned else fake_cupy.zeros(expected.shape)
    for _ in range(2):
        einsumx.einsum(equation, *arrays, out=out)
        np.testing.assert_array_equal(out.get(), expected)


def test_arrays_with_gaps_move_between_devices(fake_cupy):
    array = on(fake_cupy, "cuda:0", np.arange(12.0).reshape(3, 4))[:, 1:3]
    moved = ADAPTER.blocks.move(array, "cuda:1")
    assert moved.device.id == 1
    with fake_cupy.cuda.Device(1):
        np.testing.assert_array_equal(moved.get(), [[1.0, 2.0], [5.0, 6.0], [9.0, 10.0]])


def test_an_array_that_moved_to_another_device_may_be_freed(fake_cupy):
    array = on(fake_cupy, "cuda:1", np.ones(600))
    moved = ADAPTER.blocks.move(array, "cuda:0")
    del array
    overwriting = on(fake_cupy, "cuda:1", np.zeros(600))
    ADAPTER.synchronize(overwriting)
    np.testing.assert_array_equal(moved.get(), np.ones(600))


def test_the_model_of_each_device_is_named(fake_cupy):
    assert [ADAPTER.device_model(device)[-1] for device in DEVICES] == ["0", "1"]


@pytest.mark.parametrize(
    ("equation", "shapes", "dtype"),
    [
        ("i,i->", [(3000,), (3000,)], "float32"),  # CuPy allocates the products before it sums them
        ("bij,jk->bik", [(20, 30, 40), (40, 50)], "float32"),
        ("aij,abjk->abik", [(300, 2, 3), (300, 200, 3, 2)], "float32"),  # an axis broadcasts, by arrays of addresses
        ("bij,bjk->bik", [(20, 30, 40), (20, 40, 50)], "float16"),
        ("bind,bjnd->bnij", [(8, 30, 4, 40), (8, 20, 4, 40)], "float32"),
        ("ij,kj->ik", [(60, 40), (50, 40)], "int32"),
    ],
)
def test_plans_on_cupy_take_the_memory_that_they_state(fake_cupy, equation, shapes, dtype):
    arrays = [fake_cupy.asarray(np.ones(shape, dtype)) for shape in shapes]
    plan = einsumx.plan(equation, *arrays)
    with fake_cupy.fake.counted() as counts:
        plan(*arrays)
    inputs = sum(array.nbytes for array in arrays)
    assert counts.peak <= plan.peak_bytes - inputs + 2 * fake_cupy.fake.ROUNDING * len(plan.ops)
    assert not counts.silent


# -- blocks from the host, within a limit ---------------------------------------------------------------------------


LIMITED = {
    "ij,jk->ik": [(400, 300), (300, 500)],
    "ij,ij->": [(400, 300), (400, 300)],
    "bij,bjk->bik": [(12, 140, 20), (12, 20, 100)],
    "bind,bjnd->bnij": [(4, 40, 8, 30), (4, 30, 8, 30)],
    "ij,jk,kl->il": [(100, 90), (90, 80), (80, 100)],
    "ij->ji": [(300, 400)],
}


@pytest.fixture(params=LIMITED)
def problem(request, rng):
    """An equation, operands on the host, the plain sum, and a limit that takes blocks."""
    equation, shapes = request.param, LIMITED[request.param]
    hosts = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    whole = einsumx.plan(equation, *shapes, dtypes="float32", backend="cupy").peak_bytes
    expected = np.einsum(equation, *hosts)
    return equation, hosts, expected, (whole + expected.nbytes) // 2


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-2)


@pytest.mark.long
@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize("has_out", [False, True])
def test_blocks_stay_within_the_limit_on_the_fake(fake_cupy, device, problem, place, has_out):
    equation, hosts, expected, limit = problem
    on_host = place == "host"
    arrays = hosts if on_host else [on(fake_cupy, device, host) for host in hosts]
    out = None
    if has_out:
        out = np.full(expected.shape, np.nan, "float32")
        out = out if on_host else on(fake_cupy, device, out)
    limit = MemoryLimit(limit, device=device) if on_host else MemoryLimit(2 * limit)
    options = {"backend": "cupy", "memory_limit": limit, "out": out}
    plan = einsumx.plan(equation, *arrays, **options)
    assert plan.blocking.order or not on_host or equation == "ij->ji"  # which takes no more than its operand
    with fake_cupy.fake.counted() as counts:
        found = einsumx.einsum(equation, *arrays, **options)
        fake_cupy.fake.synchronize_all()
    result = found if has_out and on_host else ADAPTER.to_numpy(found)
    assert_close(result, expected)
    # The pool gives out memory in steps; a limit does not count arrays that are on the device already.
    assert counts.peak <= plan.peak_bytes + 40 * fake_cupy.fake.ROUNDING
    assert plan.peak_bytes <= limit.amount
    assert not counts.silent


def test_devices_share_the_blocks_on_the_fake(fake_cupy, problem):
    equation, hosts, expected, limit = problem
    with fake_cupy.fake.counted() as counts:
        found = einsumx.einsum(equation, *hosts, backend="cupy", memory_limit=MemoryLimit(3 * limit, devices=DEVICES))
    assert ADAPTER.device(found) == "cuda:0"
    assert_close(ADAPTER.to_numpy(found), expected)
    assert not counts.silent


def test_blocks_are_right_on_a_stream_of_the_users_own(fake_cupy, problem):
    equation, hosts, expected, limit = problem
    stream = fake_cupy.cuda.Stream(non_blocking=True)
    with stream:
        arrays = [fake_cupy.asarray(host) for host in hosts]
        found = einsumx.einsum(equation, *arrays, memory_limit=3 * limit)
        assert_close(found.get(), expected)
        mixed = einsumx.einsum(
            equation, arrays[0], *hosts[1:], backend="cupy", memory_limit=MemoryLimit(3 * limit, device="cuda:0")
        )
        assert_close(mixed.get(), expected)


def test_threads_compute_on_the_callers_stream(fake_cupy):
    array = fake_cupy.asarray(np.ones(600))
    ADAPTER.synchronize(array)
    with ThreadPoolExecutor(1) as executor, fake_cupy.cuda.Stream(non_blocking=True):
        total = executor.submit(ADAPTER.blocks.carried(lambda: array + 1)).result()
        np.testing.assert_array_equal(total.get(), np.full(600, 2.0))


@pytest.mark.parametrize("has_out", [False, True])
def test_blocks_that_threads_computed_on_other_streams_are_awaited(fake_cupy, problem, has_out, monkeypatch):
    equation, hosts, expected, limit = problem
    monkeypatch.setattr(ADAPTER.blocks, "carried", lambda function: function)  # as PyTorch's
    with ThreadPoolExecutor(2) as executor, fake_cupy.cuda.Stream(non_blocking=True):
        arrays = [fake_cupy.asarray(host) for host in hosts]
        out = fake_cupy.zeros(expected.shape, "float32") if has_out else None
        found = einsumx.einsum(equation, *arrays, memory_limit=MemoryLimit(2 * limit, executor=executor), out=out)
        assert_close(found.get(), expected)


def test_blocks_are_copied_through_a_few_pinned_buffers_that_are_let_go(fake_cupy, device):
    ring = ADAPTER.blocks.ring(device)
    for host in (np.arange(2_500_000.0).reshape(1250, 2000).T, np.arange(60) % 7 == 0, np.array(2j)):
        np.testing.assert_array_equal(ADAPTER.to_numpy(ring(host)), host)
    assert len(ring._buffers) == 3
    ring.close()
    assert not fake_cupy.cuda._pinned


def test_the_next_upload_leaves_a_result_alone_that_is_a_view_of_the_last_one(fake_cupy):
    host = np.arange(120_000.0, dtype="float32").reshape(300, 400)
    options = {"backend": "cupy", "memory_limit": MemoryLimit("100MB", device="cuda:0")}
    result = einsumx.einsum("ij->ji", host, **options)
    total = result + 1  # has not run yet
    del result
    einsumx.einsum("ij,ij->ij", host * 0, host * 0, **options)
    np.testing.assert_array_equal(total.get(), host.T + 1)


def test_a_limit_without_a_device_takes_the_first_one(fake_cupy):
    host = np.ones((300, 300), "float32")
    found = einsumx.einsum("ij,jk->ik", host, host, backend="cupy", memory_limit="1MB")
    assert ADAPTER.device(found) == "cuda:0"
    np.testing.assert_array_equal(found.get(), np.full((300, 300), 300.0))


def test_out_of_memory_on_the_fake_goes_on_with_less(fake_cupy, monkeypatch):
    monkeypatch.setattr(fake_cupy.fake, "CARD", 400_000)
    host = np.ones((300, 300), "float32")
    out = np.empty((300, 300), "float32")
    with pytest.warns(RuntimeWarning, match="memory ran out"):
        einsumx.einsum(
            "ij,jk->ik", host, host, backend="cupy", memory_limit=MemoryLimit("900kB", device="cuda:0"), out=out
        )
    np.testing.assert_array_equal(out, np.full((300, 300), 300.0))


def test_without_a_driver_errors_are_einsumxs_own(fake_cupy, monkeypatch):
    monkeypatch.setattr(fake_cupy.fake, "DEVICES", 0)
    host = np.ones((3, 3), "float32")
    with pytest.raises(BackendError, match="finds no device 'cuda:0'"):
        einsumx.einsum("ij,jk->ik", host, host, backend="cupy", memory_limit=MemoryLimit("1MB", device="cuda:0"))
    assert ADAPTER.gpu("cuda:0") is None
    with pytest.raises(ValueError, match="the amount of free memory is not known"):
        einsumx.plan("ij,jk->ik", (3, 3), (3, 3), backend="cupy", dtypes="float32", memory_limit=0.5)


def test_commands_say_that_there_is_no_driver(fake_cupy, monkeypatch, capsys):
    monkeypatch.setattr(fake_cupy.fake, "DEVICES", 0)
    with pytest.raises(BackendError, match="cupy cannot make an array on its device: cudaErrorInvalidDevice"):
        calibrate(ADAPTER)
    monkeypatch.setattr("einsumx.conformance.command.installed_backends", lambda: ["cupy", "numpy"])
    assert main(["conformance", "--all", "--case", "forms/*", "--quiet"]) == 0
    assert "cupy is left out" in capsys.readouterr().err


def test_blocks_from_the_host_are_priced_at_the_rate_of_a_bus_and_read_ahead(fake_cupy):
    hosts = [np.empty((200_000, 200), "float32"), np.empty((200, 200), "float32")]
    out = np.empty((200_000, 200), "float32")
    options = {"backend": "cupy", "memory_limit": MemoryLimit("20MB", device="cuda:0"), "out": out}
    blocking = einsumx.plan("ij,jk->ik", *hosts, **options).blocking
    assert blocking.read_ahead
    assert blocking.seconds > sum(host.nbytes for host in hosts) / 20e9
