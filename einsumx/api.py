"""The public functions: ``einsum``, ``plan``, ``einsum_path``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import wraps
from math import prod
from typing import Any, TypeVar, cast, overload

from einsumx.adapters import hooks
from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.registry import get_backend, is_stored, lazy, owner, serving
from einsumx.blocked.cost import ResultFootprint
from einsumx.blocked.plan import BlockedContraction, blocked_program
from einsumx.dtypes import Casting, itemsize, kind
from einsumx.errors import BackendError, SizeError, excerpt, shown
from einsumx.ir.program import Operand, Program
from einsumx.ir.text import quantity
from einsumx.planner.path import Optimize
from einsumx.plans import BlockedPlan, Plan, as_blocked_plan, as_plan, plan_cost
from einsumx.runtime.prepare import (
    Prepared,
    arrays_of,
    check_out_dtype,
    make_plan,
    parsed,
    prepare,
    ready,
    result_dtype,
    result_order,
    sized_equation,
)
from einsumx.runtime.request import (
    DEFAULT,
    Contraction,
    MemoryLimit,
    Order,
    Progress,
    Request,
    Written,
    as_order,
    dtype_name,
    options_of,
    split,
)
from einsumx.runtime.stored import unread
from einsumx.scalars import as_python
from einsumx.streaming.gradients import recorded
from einsumx.streaming.run import plan_within

__all__ = ["Order", "einsum", "einsum_path", "plan"]

_NOTHING = Request("", ())
"""A request without keywords: its values are the very defaults, so that identity tells what was not asked."""

Call = TypeVar("Call", bound=Callable[..., Array])


def _at_once(general: Call) -> Call:
    """``general``, but calls that bring an equation as text and arrays alone are answered from the cache at once."""

    @wraps(general)
    def call(equation: Any = None, *operands: Any, **options: Any) -> Array:
        if not options:
            try:
                first: Any = type(operands[0])
                adapter = serving(first)
                run = ready(adapter, equation, *map(adapter.signature, operands))
            except (LookupError, AttributeError, TypeError):  # other things than these, or wrong ones
                pass
            else:
                return run(*operands)
        return general(equation, *operands, **options)

    return cast(Call, call)


@_at_once
def einsum(
    *operands: Any,
    out: Array | None = None,
    dtype: Any = None,
    order: Order = "K",
    casting: Casting = "safe",
    optimize: Optimize = "auto",
    backend: str | None = None,
    memory_limit: MemoryLimit | None = None,
    device: str = "",
    devices: Sequence[str] = (),
    executor: Executor | None = None,
    progress: Progress = False,
    resume: str | os.PathLike[str] | None = None,
) -> Array:
    """Einstein summation on the operands' own framework, by its fast primitives.

    Args:
        *operands: the equation and the operands, ``einsum("ij,jk->ik", a, b)``; or operands and sublists of
            labels in turn, ``einsum(a, [0, 1], b, [1, 2], [0, 2])``. Sizes of 1 broadcast.
        out: an array of the result's shape to write into; it may overlap the operands.
        dtype: computed in and returned; by default the framework's promotion of the operands' dtypes.
        order: the result's order in memory: ``"C"``, ``"F"``, ``"A"`` (F if all operands are), or ``"K"``
            for whichever is fastest; not with ``out``, which has its own.
        casting: NumPy's rule for what ``dtype`` and ``out`` may change.
        optimize: the path: ``"auto"``, another optimizer's name (``"greedy"``, ``"optimal"``, ``"dp"``,
            ``"cotengra"``, ...), True for ``"auto"``, False for left to right, a path as ``einsum_path``
            returns it, or an optimizer object of opt_einsum or cotengra.
        backend: the framework for operands that are Python lists and scalars, or are stored, alone; NumPy by default.
            Without a limit, what is stored is read whole, and for NumPy alone.
        memory_limit: what the contraction may have in memory at once, the result included but for ``out``: bytes, a
            text such as ``"8GiB"``, or a fraction of what is free, rounded down; infinity is no bound. Under it,
            operands are read block by block, and may be anything with shape, dtype and slicing: memory maps, datasets
            of HDF5, arrays of Zarr.
        device: where it is computed under a limit, if not where the operands lie: ``"cuda:0"``. What lies elsewhere is
            brought there block by block; from the host to CUDA through a few pinned buffers, which are memory of the
            host and do not count. A fresh result lies there too. The buffers have not run on hardware yet.
        devices: under a limit, several devices that compute blocks at the same time, ``["cuda:0", "cuda:1"]``: each
            gets the next block when it is done with one, and the limit is that of each. A fresh result lies on the
            first of them. This has run on JAX's devices of the CPU alone, and not on GPUs yet.
        executor: under a limit, whose workers compute the blocks: of threads, of processes, of loky, a Dask client's
            ``get_executor()``, or any other of the kind of ``concurrent.futures``. The limit is then that of each
            process. Operands in files are opened there by the workers; others reach each of them once. Gradients are
            computed by the caller alone.
        progress: under a limit, True for a progress bar, or a function that is called with the steps done and all.
        resume: under a limit, the name of a small file that records the finished blocks of ``out``, with digests of
            them and of the operands. After an interruption, the same call computes the blocks that are missing or that
            are not in ``out`` as they were written; at the end the file is removed.

    None asks for the default of any keyword.

    Under a limit ``out`` may be anything that is written to by slices, and is written block by block: an error that an
    operand raises when it is read leaves in it the blocks that were done. One that shares memory with an operand is
    written when all is read.

    Where memory runs out all the same, under a limit, a RuntimeWarning says so, and the contraction goes on by a plan
    that takes less.

    Returns:
        The result, on the operands' framework and device.

    Raises:
        EquationError: the equation is wrong.
        SizeError: ranks or sizes do not fit it.
        PathError: the path does not fit the operands.
        BackendError: arrays of two frameworks or devices, dtypes that do not cast, a keyword that the
            framework cannot honour.
        MemoryLimitError: nothing fits; it names the smallest limit under which something does. Or memory ran out, and
            there is nothing that takes less.
        JournalError: the file of ``resume`` is damaged, in use, or of another contraction or other operands.
        OSError: the disk has no room for ``out``, or the file of ``resume`` cannot be written.
        BlockError: a worker of ``executor``, or one of ``devices``, could not compute a block.

    Each of these comes before any work, and leaves ``out`` as it was, but for a BlockError, memory that runs out
    and a journal that cannot be written any more, which come while blocks are computed.

    >>> import numpy as np
    >>> einsum("ij,jk->ik", np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[1., 2.],
           [3., 4.]])
    """
    written, given = split(operands)
    module = lazy(given)
    # Without a limit and what goes with one, a call has no need of a request, which takes a while to make.
    is_whole = (
        memory_limit is None
        and executor is None
        and resume is None
        and (progress is False or progress is None)
        and (device is _NOTHING.device or device is None)
        and (devices is _NOTHING.devices or devices is None)
    )
    if not is_whole or module is not None:
        request = Request(
            written, given, out, dtype, order, casting, optimize, backend,
            memory_limit, device, devices, executor, progress, resume,
        )  # fmt: skip
        if module is not None:
            return module.einsum(request)
        if memory_limit is not None:
            return recorded(request)
        request.check_unlimited()
    order = as_order(order)
    adapter, arrays = arrays_of(given, get_backend(backend) if backend is not None else None)
    options = DEFAULT
    if not (dtype is None and casting is DEFAULT.casting and optimize is DEFAULT.optimize):
        options = options_of(adapter, dtype, casting, optimize)
    prepared = prepare(adapter, written, arrays, options)
    if out is None and order == "K":
        return prepared.run(*arrays)
    return deliver(adapter, prepared, arrays, out, order, options.casting)


def _compiled(*operands: Any, **options: Any) -> Array:
    """What torch.compile traces in the place of :func:`einsum`: the import of the node to record, and its call.

    So eager calls pay nothing for it, and it works whichever of torch and einsumx was imported first.
    """
    from einsumx.backends.torch import compile as torch_compile

    if options.get("memory_limit") is not None:
        return torch_compile.eager_einsum(*operands, **options)
    return torch_compile.einsum(*operands, **options)


hooks.einsum = einsum
einsum.__dict__["_torchdynamo_inline"] = _compiled  # the attribute by which torch.compile finds it


def deliver(
    adapter: Adapter, prepared: Prepared, arrays: Sequence[Array], out: Array | None, order: Order, casting: Casting
) -> Array:
    """Run, with the result in the memory order asked for, or written to ``out``."""
    found = result_order(order, out, adapter, arrays)
    if out is None:
        result = prepared.run(*arrays)
        return adapter.arrange(result, found) if prepared.plan.shape and found != "K" else result
    check_out(adapter, prepared.plan, arrays, out, casting)
    adapter.write(out, prepared.run(*arrays))
    return out


def check_out(adapter: Adapter, plan: Program, arrays: Sequence[Array], out: Array, casting: Casting) -> None:
    """Raise where ``out`` cannot take the result; it is not touched."""
    theirs = owner(out)
    if theirs is None:
        hint = "; pass memory_limit= to have the result written to what is stored" if is_stored(out) else ""
        raise BackendError(f"out= is a {type(out).__name__}, but the operands are arrays of {adapter.name}{hint}")
    if theirs is not adapter:
        raise BackendError(f"out= belongs to {theirs.name}, but the operands to {adapter.name}")
    _, shape, dtype, *_ = adapter.signature(out)
    if tuple(shape) != plan.shape:
        raise SizeError(
            f"out= has shape {shown(tuple(shape))} but the result has shape {shown(plan.shape)}\n"
            f"  {excerpt(plan.equation)}"
        )
    device, elsewhere = adapter.device(out), adapter.device(arrays[0])
    if device != elsewhere:
        raise BackendError(f"out= is on {device}, but the operands are on {elsewhere}")
    target = adapter.dtype_name(dtype)
    check_out_dtype(adapter, plan.dtype, target, casting, dtype)
    adapter.check_out(out, arrays)


def _check_device_kind(adapter: Adapter, device: str) -> None:
    """Raise BackendError where a plan is for a device that the framework cannot have; nothing is imported."""
    kinds = adapter.device_kinds
    if device and kinds and device.partition(":")[0] not in kinds:
        there = " and ".join(kinds)
        raise BackendError(f"{adapter.name} has no device {shown(device)}, as its arrays are on {there} alone")


@overload
def plan(
    *operands: Any,
    backend: str | None = None,
    device: str = "",
    dtypes: str | Sequence[str] = "float64",
    dtype: Any = None,
    casting: Casting = "safe",
    optimize: Optimize = "auto",
    memory_limit: None = None,
) -> Plan: ...


@overload
def plan(
    *operands: Any,
    backend: str | None = None,
    device: str = "",
    dtypes: str | Sequence[str] = "float64",
    dtype: Any = None,
    casting: Casting = "safe",
    optimize: Optimize = "auto",
    memory_limit: MemoryLimit,
    out: Any = None,
    stored: bool = False,
) -> BlockedPlan: ...


@overload
def plan(
    *operands: Any,
    backend: str | None = None,
    device: str = "",
    dtypes: str | Sequence[str] = "float64",
    dtype: Any = None,
    casting: Casting = "safe",
    optimize: Optimize = "auto",
    memory_limit: MemoryLimit | None = None,
    out: Any = None,
    stored: bool = False,
) -> Plan | BlockedPlan: ...


def plan(
    *operands: Any,
    backend: str | None = None,
    device: str = "",
    dtypes: str | Sequence[str] = "float64",
    dtype: Any = None,
    casting: Casting = "safe",
    optimize: Optimize = "auto",
    memory_limit: MemoryLimit | None = None,
    out: Any = None,
    stored: bool = False,
) -> Plan | BlockedPlan:
    """The plan that :func:`einsum` would run, from shapes or from arrays.

    Args:
        *operands: as for :func:`einsum`, with shapes (tuples of sizes) or arrays as operands. Shapes stand for
            C-contiguous arrays, and no framework is imported for them.
        backend: whose plan, where shapes are given; NumPy's by default.
        device: the kind of device, where shapes are given: ``"cpu"``, ``"cuda"``; the backend's default if empty.
        dtypes: of the operands, where shapes are given: one for all or one each.
        dtype: as for :func:`einsum`.
        casting: as for :func:`einsum`.
        optimize: as for :func:`einsum`.
        memory_limit: as for :func:`einsum`; what comes back says how the contraction is cut into blocks.
        out: under a limit, beside arrays, where the result is going to be written, so that it does not count.
        stored: under a limit, that shapes stand for operands which are read block by block, as from files.

    Raises:
        EinsumxError: as :func:`einsum` does.

    >>> print(plan("bind,bjnd->bnij", (64, 100, 8, 128), (64, 50, 8, 128), dtypes="float32"))
    bind,bjnd->bnij  (64,100,8,128) (64,50,8,128)  float32 on numpy
      %2 = transpose %0 (0,2,1,3)  view
      %3 = transpose %1 (0,2,3,1)  view
      %4 = matmul %2 %3            328 M multiply-adds
      result %4                    (64,8,100,50) float32
    """
    written, given = split(operands)
    request = Request(
        written, given, out, dtype, casting=casting, optimize=optimize, backend=backend, memory_limit=memory_limit,
        device=device,
    )  # fmt: skip
    shapes = as_shapes(written, given)
    if out is not None and (memory_limit is None or None not in shapes):
        raise ValueError("out= changes a plan only where arrays are given, and a memory_limit=")
    if stored and (memory_limit is None or None in shapes):
        raise ValueError("stored=True says how shapes are read, which a plan depends on under a memory_limit= alone")
    if all(shape is not None for shape in shapes):
        adapter = request.wanted or get_backend("numpy")
        _check_device_kind(adapter, request.device)
        names = _dtypes(dtypes, len(shapes))
        described = tuple(Operand(shape, name) for shape, name in zip(shapes, names) if shape is not None)
        return _plan_of_shapes(request, adapter, described, stored)
    if memory_limit is not None:
        return as_blocked_plan(plan_within(request).program)
    given = [unread(number, array) if is_stored(array) else array for number, array in enumerate(given)]
    adapter, arrays = arrays_of(given, request.wanted)
    return as_plan(prepare(adapter, written, arrays, request.options(adapter)).plan)


def _plan_of_shapes(
    request: Request, adapter: Adapter, operands: tuple[Operand, ...], stored: bool
) -> Plan | BlockedPlan:
    """The plan for operands that are not there; under a limit, read block by block if they are ``stored``."""
    written, device, dtype = request.written, request.device, request.dtype
    options = replace(request, dtype=None).options(adapter)
    # A name is looked up when the plan is made, and if all dtypes are alike by no framework.
    options = options._replace(dtype=dtype if isinstance(dtype, str) else dtype_name(adapter, dtype))
    contraction = Contraction(adapter, written, operands, device, options)
    if request.memory_limit is None:
        return as_plan(make_plan(contraction))
    limit = request.limit_bytes(lambda: adapter.free_bytes(device))
    sized = sized_equation(written, [operand.shape for operand in operands])
    result = prod(sized.shape) * itemsize(result_dtype(adapter, operands, options))
    in_place = (not stored,) * len(operands)
    return as_blocked_plan(
        blocked_program(BlockedContraction(contraction, limit, in_place, ResultFootprint(cut=result)))
    )


def as_shapes(written: Written, given: Sequence[Any]) -> list[tuple[int, ...] | None]:
    """The shapes among operands, each a tuple of sizes; None in the place of an array.

    Raises:
        SizeError: what would be a shape if it were a tuple of sizes.
    """
    found = list(map(_as_shape, given))
    equation = parsed(written, len(given))
    for number, (operand, term) in enumerate(zip(given, equation.inputs)):
        is_number = isinstance(operand, int | float | complex)
        is_row = isinstance(operand, list) and all(isinstance(size, int) for size in operand)
        if ... not in term and ((is_number and len(term) > 0) or (is_row and len(term) > 1)):
            raise SizeError(
                f"operand {number} is {shown(operand)}, where a shape of {len(term)} or an array belongs; a shape is a "
                f"tuple of sizes, such as (2, 3)\n  {excerpt(equation.text)}"
            )
    return found


def _as_shape(operand: Any) -> tuple[int, ...] | None:
    if not isinstance(operand, tuple):
        return None
    if any(size is None or isinstance(size, str) for size in operand):
        raise SizeError(f"a shape {shown(operand)} has a size that is not known; contractions are planned by sizes")
    sizes = tuple(map(as_python, operand))
    are_sizes = [isinstance(size, int) and not isinstance(size, bool) for size in sizes]
    if all(are_sizes):
        if any(size < 0 for size in sizes):
            raise SizeError(f"a shape has no negative sizes: {shown(sizes)}")
        return sizes
    if any(are_sizes):
        wrong = sizes[are_sizes.index(False)]
        raise SizeError(f"a shape has sizes that are integers, not {shown(wrong)}: {shown(operand)}")
    return None


def _dtypes(dtypes: Any, count: int) -> list[str]:
    """What is given for ``dtypes=``, one name for each of so many operands; None asks for the default.

    Raises:
        SizeError: there are more or less.
        BackendError: one is no name of a dtype.
    """
    dtypes = "float64" if dtypes is None else as_python(dtypes)
    names = list(dtypes) if isinstance(dtypes, Iterable) and not isinstance(dtypes, str) else [dtypes] * count
    if len(names) != count:
        raise SizeError(f"dtypes= names {len(names)} dtypes for {count} operands")
    for name in names:
        if not isinstance(name, str) or (kind(name) == "O" and name != "object"):
            raise BackendError(f"dtypes= has {shown(name)}; dtypes are named as NumPy names them, such as 'float32'")
    return names


def einsum_path(*operands: Any, optimize: Optimize = "auto", einsum_call: bool = False) -> tuple[list[Any], str]:
    """The path that :func:`einsum` takes, in the form of ``numpy.einsum_path``.

    Args:
        *operands: as for :func:`plan`.
        optimize: as for :func:`einsum`.
        einsum_call: False; True asks NumPy for its internals, which einsumx does not have.

    Returns:
        ``["einsum_path", (0, 1), ...]``, which ``optimize=`` takes, and a text with the plan and its costs.

    >>> einsum_path("ij,jk,kl->il", (2, 900), (900, 3), (3, 800))[0]
    ['einsum_path', (0, 1), (0, 1)]
    """
    if einsum_call:
        raise BackendError("einsum_call=True returns internals of NumPy's einsum; use einsumx.plan")
    found = plan(*operands, optimize=optimize)
    cost = plan_cost(found)
    text = (
        f"  Complete contraction:  {found.equation}\n"
        f"  Multiply-adds:         {quantity(cost.multiply_adds)}\n"
        f"  Bytes copied:          {quantity(cost.copied, 'B')}\n"
        f"  Peak memory:           {quantity(cost.peak_bytes, 'B')}\n\n{found}"
    )
    return ["einsum_path", *found.path], text
