"""Operands and results that each process opens for itself: by a function, or by the store of a Zarr array."""

import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from stored import Returned, process_pool

import einsumx
from einsumx import MemoryLimit
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.storage.stores import place_of
from einsumx.streaming.shared_operands import file_of

EQUATION = "ij,jk->ik"
LIMIT = "100 kB"


def arrays():
    random = np.random.default_rng(3)
    return [random.standard_normal(shape).astype("float32") for shape in [(120, 100), (100, 80)]]


def is_right(out):
    return bool(judge(np.asarray(out[...]), expect(EQUATION, *arrays())))


@pytest.fixture(scope="module")
def pool():
    with process_pool(2) as pool:
        yield pool


@pytest.fixture
def folder(tmp_path):
    """A folder with both operands in files."""
    for name, array in zip("ab", arrays()):
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


# -- by a function ------------------------------------------------------------------------------------------------


def load(path, log=None):
    if log is not None:
        with Path(log).open("a") as lines:
            lines.write(f"{os.getpid()}\n")
    return np.load(path, mmap_mode="r")


def load_here(home, name):
    """The file in a folder of this process's own."""
    return load(Path(os.environ.get("EINSUMX_TEST_HOME", home), name))


def set_home(folder):
    os.environ["EINSUMX_TEST_HOME"] = folder


def whole(shape, dtype="float32"):
    return np.ones(shape, dtype)


def larger_elsewhere(caller, shape):
    return np.ones(shape if os.getpid() == caller else (*shape[:-1], shape[-1] + 1), "float32")


def lost_elsewhere(caller):
    if os.getpid() != caller:
        raise FileNotFoundError("not on this machine")
    return arrays()[0]


def test_an_array_is_opened_once_in_the_caller_and_once_in_each_worker(folder, pool):
    a = einsumx.opened_by(load, folder / "a.npy", log=folder / "log")
    result = einsumx.einsum(EQUATION, a, arrays()[1], memory_limit=MemoryLimit(LIMIT, executor=pool))
    opened = (folder / "log").read_text().split()
    assert is_right(result)
    assert opened[0] == str(os.getpid())
    assert 2 <= len(opened) == len(set(opened)) <= 3


def test_a_worker_may_find_the_file_in_another_place(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("worker")
    shutil.copy(folder / "a.npy", elsewhere)
    a = einsumx.opened_by(load_here, folder, "a.npy")
    (folder / "a.npy").unlink()
    with process_pool(1, set_home, str(elsewhere)) as pool:
        assert is_right(einsumx.einsum(EQUATION, a, arrays()[1], memory_limit=MemoryLimit(LIMIT, executor=pool)))


def test_without_an_executor_and_in_threads_the_array_of_the_caller_is_used(folder):
    a, b = (einsumx.opened_by(load, folder / f"{name}.npy", log=folder / "log") for name in "ab")
    assert is_right(einsumx.einsum(EQUATION, a, b))
    assert is_right(einsumx.einsum(EQUATION, a, b, memory_limit=LIMIT))
    with ThreadPoolExecutor(2) as pool:
        assert is_right(einsumx.einsum(EQUATION, a, b, memory_limit=MemoryLimit(LIMIT, executor=pool)))
    assert len((folder / "log").read_text().split()) == 2


def test_workers_write_to_the_file_of_an_out_and_it_is_returned(folder, pool):
    np.lib.format.open_memmap(folder / "c.npy", "w+", "float32", (120, 80)).flush()
    out = einsumx.opened_by(np.load, folder / "c.npy", mmap_mode="r+")
    executor = Returned(pool)
    assert einsumx.einsum(EQUATION, *arrays(), out=out, memory_limit=MemoryLimit(LIMIT, executor=executor)) is out
    assert is_right(out)
    if hasattr(os, "memfd_create"):
        assert set(executor.values) == {None}


def test_an_out_that_is_open_read_only_is_refused(folder):
    np.save(folder / "c.npy", np.zeros((120, 80), "float32"))
    with pytest.raises(einsumx.BackendError, match="out= is a read-only array"):
        einsumx.einsum(EQUATION, *arrays(), out=einsumx.opened_by(load, folder / "c.npy"), memory_limit=LIMIT)


def test_an_out_in_the_file_of_an_operand_is_known_to_overlap(folder):
    a = np.load(folder / "a.npy").reshape(-1)[:10_000].reshape(100, 100)
    np.save(folder / "a.npy", a)
    operand = einsumx.opened_by(np.load, folder / "a.npy", mmap_mode="r")
    out = einsumx.opened_by(np.load, folder / "a.npy", mmap_mode="r+")
    einsumx.einsum("ij->ji", operand, out=out, memory_limit=LIMIT)
    np.testing.assert_array_equal(np.load(folder / "a.npy"), a.T)


def interrupted(done, total):
    if done == 1:
        raise KeyboardInterrupt


def test_a_run_into_an_opened_out_is_resumed(folder):
    np.lib.format.open_memmap(folder / "c.npy", "w+", "float32", (120, 80)).flush()
    a, b = (einsumx.opened_by(load, folder / f"{name}.npy") for name in "ab")
    steps = []

    def run(progress):
        out = einsumx.opened_by(np.load, folder / "c.npy", mmap_mode="r+")
        limit = MemoryLimit("30 kB", progress=progress, resume=folder / "journal")
        return einsumx.einsum(EQUATION, a, b, out=out, memory_limit=limit)

    with pytest.raises(KeyboardInterrupt):
        run(interrupted)
    assert (folder / "journal").exists()
    assert is_right(run(lambda *step: steps.append(step)))
    assert not (folder / "journal").exists()
    left = steps[-1][1]
    run(lambda *step: steps.append(step))
    assert 0 < left < steps[-1][1]


def test_a_worker_that_opens_another_shape_is_an_error(pool):
    a = einsumx.opened_by(larger_elsewhere, os.getpid(), (120, 100))
    with pytest.raises(
        einsumx.BlockError, match=r"larger_elsewhere and found shape \(120, 101\), .* but the caller found"
    ):
        einsumx.einsum(EQUATION, a, arrays()[1], memory_limit=MemoryLimit(LIMIT, executor=pool))


def test_an_error_of_the_function_in_a_worker_arrives(pool):
    a = einsumx.opened_by(lost_elsewhere, os.getpid())
    with pytest.raises(einsumx.BlockError, match="FileNotFoundError: not on this machine"):
        einsumx.einsum(EQUATION, a, arrays()[1], memory_limit=MemoryLimit(LIMIT, executor=pool))


def test_a_function_that_opens_no_array_and_what_is_no_function_are_errors():
    with pytest.raises(einsumx.BackendError, match=r"opened a builtins\.dict; an operand has shape"):
        einsumx.opened_by(dict)
    with pytest.raises(TypeError, match="callable"):
        einsumx.opened_by("a.npy")


def test_dask_makes_chunks_of_it(folder):
    da = pytest.importorskip("dask.array")
    a = einsumx.opened_by(load, folder / "a.npy")
    with pytest.raises(einsumx.BackendError, match=r"pass dask\.array\.from_array"):
        einsumx.einsum(EQUATION, a, da.from_array(arrays()[1]))
    result = einsumx.einsum(EQUATION, da.from_array(a, chunks=50), arrays()[1])
    assert is_right(result.compute(scheduler="sync"))


def test_a_pickle_has_the_function_and_not_the_array():
    ones = einsumx.opened_by(whole, (300, 400), dtype="float64")
    text = pickle.dumps(ones)
    assert len(text) < 1000
    again = pickle.loads(text)
    assert (again.shape, again.dtype) == ((300, 400), np.dtype("float64"))
    assert "whole" in repr(again)


# -- by the store of a Zarr array ---------------------------------------------------------------------------------


def filled(url, array, chunks, **options):
    """A Zarr array behind a URL of fsspec."""
    zarr = pytest.importorskip("zarr")
    pytest.importorskip("fsspec")
    stored = zarr.open_array(
        url, mode="w", shape=array.shape, chunks=chunks, dtype=array.dtype, storage_options=options or None
    )
    stored[...] = array
    return stored


def in_files(folder):
    url, options = f"file://{folder}", {"auto_mkdir": True}
    a, b = (filled(f"{url}/{name}", array, (40, 40), **options) for name, array in zip("ab", arrays()))
    return a, b, filled(f"{url}/c", np.zeros((120, 80), "float32"), (5, 80), **options)


@pytest.mark.long
def test_workers_read_and_write_arrays_behind_a_url_of_files(folder, pool):
    a, b, out = in_files(folder / "zarr")
    einsumx.einsum(EQUATION, a, b, out=out, memory_limit=MemoryLimit(LIMIT, executor=pool))
    assert is_right(out)


def test_an_array_in_a_memory_of_fsspec_is_for_threads_and_refused_for_processes(pool):
    a = filled("memory://opened/a", arrays()[0], (40, 40))
    b = arrays()[1]
    with ThreadPoolExecutor(2) as threads:
        assert is_right(einsumx.einsum(EQUATION, a, b, memory_limit=MemoryLimit(LIMIT, executor=threads)))
    with pytest.raises(einsumx.BackendError, match=r"memory://opened/a is in the memory of this process"):
        einsumx.einsum(EQUATION, a, b, memory_limit=MemoryLimit(LIMIT, executor=pool))


def test_an_array_in_a_dictionary_travels_with_its_chunks(pool):
    zarr = pytest.importorskip("zarr")
    a = zarr.create_array({}, shape=(120, 100), chunks=(40, 40), dtype="float32")
    a[...] = arrays()[0]
    assert is_right(einsumx.einsum(EQUATION, a, arrays()[1], memory_limit=MemoryLimit(LIMIT, executor=pool)))


def test_a_worker_that_finds_no_array_or_another_one_does_not_read_fill_values(folder):
    a, *_ = in_files(folder / "zarr")
    sent = pickle.dumps(file_of(a))
    assert pickle.loads(sent).open()[0, 0] == arrays()[0][0, 0]
    shutil.rmtree(folder / "zarr" / "a")
    with pytest.raises(einsumx.BackendError, match=r"a worker finds no Zarr array in .*a; a worker on another machine"):
        pickle.loads(sent).open()
    filled(f"file://{folder / 'zarr' / 'a'}", np.zeros((3, 4)), (3, 4), auto_mkdir=True)
    with pytest.raises(einsumx.BackendError, match=r"found shape \(3, 4\), dtype float64, but the caller found"):
        pickle.loads(sent).open()


def by_folder_and_path(folder):
    zarr = pytest.importorskip("zarr")
    out = filled("memory://group/out", np.zeros((100, 100), "float32"), (50, 50))
    return out, zarr.open_array("memory://group", path="out", mode="r")


def by_a_folder_as_file_system(folder):
    zarr = pytest.importorskip("zarr")
    pytest.importorskip("fsspec")
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
    from fsspec.implementations.dirfs import DirFileSystem
    from fsspec.implementations.local import LocalFileSystem

    inside = DirFileSystem(str(folder), LocalFileSystem())
    out = zarr.create_array(folder / "out", shape=(100, 100), chunks=(50, 50), dtype="float32")
    store = zarr.storage.FsspecStore(AsyncFileSystemWrapper(inside, asynchronous=True), path="out", read_only=True)
    return out, zarr.open_array(store, mode="r")


@pytest.mark.parametrize("pair", [by_folder_and_path, by_a_folder_as_file_system])
def test_an_array_behind_another_url_of_the_same_place_is_known_to_overlap(pair, folder):
    out, operand = pair(folder)
    assert place_of(out) == place_of(operand)
    out[...] = values = np.arange(10_000, dtype="float32").reshape(100, 100)
    einsumx.einsum("ij->ji", operand, out=out, memory_limit=LIMIT)
    np.testing.assert_array_equal(out[...], values.T)


# -- in an object store -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bucket():
    """The URL of a bucket on a local server of S3, and the options to reach it."""
    s3fs = pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "test", "secret": "test"}
    s3fs.S3FileSystem(**options).makedirs("bucket", exist_ok=True)  # as all servers of a process share their buckets
    yield "s3://bucket", options
    server.stop()


@pytest.fixture(scope="module")
def in_bucket(bucket):
    url, options = bucket
    a, b = (filled(f"{url}/{name}", array, (60, 100), **options) for name, array in zip("ab", arrays()))
    return a, b


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="workers write on Linux alone")
@pytest.mark.parametrize(("chunks", "by_workers"), [((24, 40), True), ((70, 70), False)], ids=str)
def test_workers_read_an_object_store_and_write_chunks_that_no_other_block_has(
    bucket, in_bucket, pool, chunks, by_workers
):
    url, options = bucket
    out = filled(f"{url}/c", np.zeros((120, 80), "float32"), chunks, **options)
    executor = Returned(pool)
    einsumx.einsum(EQUATION, *in_bucket, out=out, memory_limit=MemoryLimit("60 kB", executor=executor))
    assert is_right(out)
    assert (set(map(type, executor.values)) == {type(None)}) == by_workers


def test_a_run_into_an_object_store_is_resumed(bucket, in_bucket, tmp_path):
    url, options = bucket
    out = filled(f"{url}/resumed", np.zeros((120, 80), "float32"), (60, 80), **options)
    limit = partial(MemoryLimit, LIMIT, resume=tmp_path / "journal")
    with pytest.raises(KeyboardInterrupt):
        einsumx.einsum(EQUATION, *in_bucket, out=out, memory_limit=limit(progress=interrupted))
    assert "s3://bucket/resumed" in (tmp_path / "journal").read_text()
    einsumx.einsum(EQUATION, *in_bucket, out=out, memory_limit=limit())
    assert is_right(out)
    assert not (tmp_path / "journal").exists()


def test_a_plan_expects_a_network_to_be_slower_than_files(in_bucket, folder):
    a, b, _ = in_files(folder / "zarr")
    remote = einsumx.plan(EQUATION, *in_bucket, memory_limit=LIMIT)
    assert remote.seconds > 2 * einsumx.plan(EQUATION, a, b, memory_limit=LIMIT).seconds


def test_an_array_in_an_object_store_under_another_url_is_known_to_overlap(bucket, in_bucket):
    zarr = pytest.importorskip("zarr")
    url, options = bucket
    assert place_of(zarr.open_array(url, path="a", mode="r", storage_options=options)) == place_of(in_bucket[0])
    assert place_of(in_bucket[0]) != place_of(in_bucket[1])
