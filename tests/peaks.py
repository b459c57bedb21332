"""What a call really has in memory at once, as the framework counts it."""

import gc
import tracemalloc

import numpy as np

OBJECTS = 150_000
"""Bytes of Python's own objects, and of buffers for some thousand elements in NumPy's loops, which no plan counts."""

if np.__version__.startswith("1."):  # whose loops have their buffers whether they need them or not, an operand each
    OBJECTS += 3 * np.getbufsize() * np.dtype("complex64").itemsize


def numpy_peak(call):
    """The result, and the most bytes that ``call`` had alive at once."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        result = call()
        return result, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def torch_peak(call):
    """The same for tensors of the CPU."""
    import torch

    gc.disable()  # what goes meanwhile, and was there before, would hide as much of what comes
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            result = call()
    finally:
        gc.enable()
    alive = peak = 0
    events = (event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]")
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return result, peak


def tensorflow_peak(function, operands):
    """The result of a concrete function, and the most bytes of tensors that its graph had alive at once."""
    import tensorflow as tf

    v1 = tf.compat.v1
    record, fed = v1.RunMetadata(), dict(zip([each.name for each in function.inputs], map(np.asarray, operands)))
    with v1.Session(graph=function.graph) as session:
        session.run(function.outputs, fed)  # the first time, constants are made
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        result, *_ = session.run(function.outputs, fed, options=options, run_metadata=record)
    changes = [
        (change.alloc_micros, change.alloc_bytes)
        for device in record.step_stats.dev_stats
        for node in device.node_stats
        for memory in node.memory
        for change in memory.allocation_records
    ]
    return result, int(max(np.cumsum([count for _, count in sorted(changes)])))


def numbers(shape, dtype, rng):
    """An array of numbers; integers are as large as they can be, so that no product of them is a simple one."""
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    return (rng.standard_normal(shape) / 1000).astype(dtype)


def laid_out(shape, dtype, layout, rng):
    """An array of ``shape`` whose data lies otherwise than in C order without gaps."""
    if not shape:
        return numbers(shape, dtype, rng)
    *outer, last = shape
    match layout:
        case "transposed":
            return numbers(shape[::-1], dtype, rng).T
        case "sliced":
            return numbers((*outer, last + 8), dtype, rng)[..., :last]
        case "stepped":
            return numbers((*outer, 2 * last), dtype, rng)[..., ::2]
        case "reversed":
            return numbers(shape, dtype, rng)[::-1]
        case "broadcast":
            return np.broadcast_to(numbers((1, *shape[1:]), dtype, rng), shape)
        case _:
            return numbers(shape, dtype, rng)


LAYOUTS = ("plain", "transposed", "sliced", "stepped", "reversed", "broadcast")
