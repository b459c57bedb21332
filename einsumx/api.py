"""The public functions ``einsum``, ``plan`` and ``einsum_path``.

Planner, plans and everything for memory limits are imported when first used, to keep ``import einsumx`` fast.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from einsumx.adapters import hooks
from einsumx.adapters.registry import get_backend, is_stored, lazy, lazy_planner
from einsumx.dtypes import Casting
from einsumx.errors import BackendError, SizeError, shown
from einsumx.imports import LazyModule
from einsumx.planner.path import Optimize
from einsumx.runtime import effort as efforts
from einsumx.runtime.calls import cached_first
from einsumx.runtime.effort import Effort
from einsumx.runtime.prepare import arrays_of, make_program, prepare, result_dtype, sized_equation
from einsumx.runtime.request import (
    DEFAULT,
    Contraction,
    MemoryLimit,
    Order,
    Progress,
    Request,
    as_order,
    as_strip_exponent,
    check_semiring,
    check_strip_exponent,
    dtype_name,
    options_of,
    split,
    with_framework,
    with_semiring,
    with_strip_exponent,
)
from einsumx.runtime.results import deliver

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from einsumx.adapters.base import Adapter, Array
    from einsumx.ir.program import Operand
    from einsumx.ir.semiring import Semiring
    from einsumx.plans import BlockedPlan, ChunkedPlan, Plan
    from einsumx.runtime import factors
    from einsumx.streaming import gradients
else:
    factors = LazyModule("einsumx.runtime.factors")
    gradients = LazyModule("einsumx.streaming.gradients")

__all__ = ["Order", "einsum", "einsum_path", "plan"]

_DEFAULTS = Request("", ())
"""The default of each keyword, the very object, so that an identity check recognizes it."""


@cached_first
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
    effort: Effort | None = None,
    alpha: Any = None,
    beta: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
    accumulate: Any = None,
    semiring: str | Semiring | None = None,
    strip_exponent: bool = False,
) -> Array:
    """Einstein summation on the operands' own framework, with its fast primitives.

    Args:
        *operands: an equation and arrays, ``einsum("ij,jk->ik", a, b)``; or arrays and sublists of labels in turn,
            ``einsum(a, [0, 1], b, [1, 2], [0, 2])``; or arrays and a text of names, as in einops,
            ``einsum(x, w, "batch d, d out -> batch out")``. Axes of size 1 broadcast.
        out: an array of the result's shape to write to; it may overlap the operands. With a memory limit, anything with
            slice assignment.
        dtype: the dtype to compute in and to return; by default, the framework's promotion of the operands' dtypes.
        order: memory order of a new result: ``"C"``, ``"F"``, ``"A"`` (F if all operands are F-contiguous, else C), or
            ``"K"`` for whichever is fastest. Not together with ``out``.
        casting: NumPy's rule for casts to ``dtype`` and ``out``.
        optimize: the contraction path: ``"auto"`` or True; another optimizer's name (``"greedy"``, ``"optimal"``,
            ``"dp"``, ``"cotengra"``, ...); False for left to right; a path as :func:`einsum_path` returns it; or an
            optimizer object of opt_einsum or cotengra.
        backend: the framework to use if all operands are Python lists, numbers, or stored; NumPy by default.
        memory_limit: the most memory to use at once, a new result included: bytes, text such as ``"8GiB"``, or a
            fraction below 1 of the free memory, which is rounded down. Infinity means no bound. Operands are read block
            by block, and may be anything with shape, dtype and slicing: memory maps, HDF5 datasets, Zarr arrays.
            Without a limit, stored operands are read whole, by NumPy only.
        device: with a limit, the device to compute on, such as ``"cuda:0"``; by default, where the operands are. Other
            operands are copied there block by block, from host to CUDA through a few pinned buffers in host memory,
            which do not count. A new result stays there. The pinned buffers are not tested on hardware yet.
        devices: with a limit, several devices that compute blocks in parallel, ``["cuda:0", "cuda:1"]``. The limit
            applies to each. A new result is placed on the first. Tested on JAX's CPU devices, not on GPUs yet.
        executor: with a limit, a pool of workers to compute the blocks: threads, processes, loky, a Dask client's
            ``get_executor()``, or another executor of the ``concurrent.futures`` interface. The limit applies to each
            process. Workers open operands in files themselves; other operands are sent to each worker once.
            Gradients are computed by the caller alone.
        progress: with a limit, True for a progress bar, or a callback ``f(done, total)``.
        resume: with a limit, the name of a journal, a small file that records the finished blocks of ``out`` and
            digests of them and of the operands. After an interruption, the same call computes only blocks that are
            missing or have changed. The file is removed at the end.
        effort: ``"estimate"``: the plan that the cost model prefers, or one that was measured before; ``"measure"``:
            the first calls run some other plans too, each timed and each with a right result, and the fastest one
            stays. By default, what :func:`einsumx.set_effort` says. Only ``"estimate"`` with a memory limit.
        alpha: a number that multiplies the result; 1 by default. Plans do not depend on its value, nor on ``beta``'s.
        beta: a number that multiplies the values in ``out``, to which the result is added: ``out = alpha *
            einsum(...) + beta * out``. By default 0, which does not read them.
        precision: of products of float32: on JAX as for ``jax.numpy.einsum``; on PyTorch ``"highest"``, ``"high"`` or
            ``"medium"``, as for ``torch.set_float32_matmul_precision``, during the call. Without a memory limit.
        preferred_element_type: the dtype in which products are summed, and that the result has; the operands keep
            theirs. As for ``jax.numpy.einsum``. JAX only, without a memory limit.
        out_sharding: how the result is distributed over devices, a ``PartitionSpec`` or a ``NamedSharding``. JAX only,
            without a memory limit.
        accumulate: the dtype in which products and sums are computed. It holds all values of the operands and of the
            result, to whose dtype each element is rounded once. By default that of the result, and at least
            ``"float32"`` for ``float16`` and ``bfloat16``, which is also the least.
        semiring: what sums and products mean: ``"max-plus"``, ``"min-plus"``, ``"max-times"`` (of numbers that are not
            negative), ``"log"``, ``"boolean"`` (nonzero is true), or another :class:`einsumx.Semiring`. All but
            ``"boolean"`` compute in floating-point numbers.
        strip_exponent: whether to return a mantissa and an exponent, for results that no float holds: the result is
            ``mantissa * 2**exponent``. Each intermediate is scaled by a power of two, which rounds nothing. The
            exponent is an int; where values are not known, as under ``jax.jit``, an integer array without axes.
            Derivatives of the mantissa take the exponent as a constant. Floating-point numbers only.

    None stands for any keyword's default.

    With a limit, ``out`` is written block by block; if it shares memory with an operand, only after all operands are
    read. If reading an operand fails, the finished blocks remain in ``out``. If memory runs out in spite of the limit,
    the contraction goes on in smaller blocks, with a RuntimeWarning.

    Returns:
        The result, on the operands' framework and device; with ``strip_exponent=True`` a mantissa, whose largest
        element is in ``[0.5, 1)``, and an exponent.

    Raises:
        EquationError: the equation is malformed.
        SizeError: the operands' ranks or sizes do not match it.
        PathError: the path does not fit the operands.
        BackendError: operands of two frameworks or devices, a cast that ``casting`` does not allow, a keyword that the
            framework does not support, or a factor that the result's dtype does not hold.
        ValueError: a keyword without another one that it needs.
        MemoryLimitError: no tiling fits the limit, and the error names the smallest limit that works; or memory ran out
            at the smallest blocks.
        JournalError: the journal is damaged, in use, or belongs to another contraction or other operands.
        OSError: the disk has no room for ``out``, or the journal cannot be written.
        BlockError: a worker of ``executor``, or one of ``devices``, failed to compute a block.

    Errors are raised before any work and leave ``out`` unchanged. The exceptions are a BlockError, memory that runs
    out, and a journal that cannot be written any more, which occur while blocks are computed.

    >>> import numpy as np
    >>> einsum("ij,jk->ik", np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[1., 2.],
           [3., 4.]])
    """
    written, inputs = split(operands)
    lazy_module = lazy(inputs)
    # A request takes a while to build, and only calls with a limit or lazy arrays need one.
    framework = precision, preferred_element_type, out_sharding
    needs_request = (
        lazy_module is not None
        or memory_limit is not None
        or executor is not None
        or resume is not None
        or not (progress is False or progress is None)
        or not (device is _DEFAULTS.device or device is None)
        or not (devices is _DEFAULTS.devices or devices is None)
    )
    if needs_request:
        request = Request(
            written, inputs, out, dtype, order, casting, optimize, backend,
            memory_limit, device, devices, executor, progress, resume, effort, alpha, beta, *framework, accumulate,
            semiring, strip_exponent,
        )  # fmt: skip
        if lazy_module is not None:
            return lazy_module.einsum(request)
        if memory_limit is not None:
            request.check_limited()
            return gradients.recorded(request)
        request.check_unlimited()
    order = as_order(order)
    scale = None if (alpha is None and beta is None) or strip_exponent else factors.factors_of(alpha, beta, out)
    adapter, arrays = arrays_of(inputs, get_backend(backend) if backend is not None else None)
    options = DEFAULT
    is_default = dtype is None and casting is DEFAULT.casting and optimize is DEFAULT.optimize
    if not (is_default and effort is None and accumulate is None and not efforts.is_set):
        options = options_of(adapter, dtype, casting, optimize, effort, accumulate)
    if precision is not None or preferred_element_type is not None or out_sharding is not None:
        options = with_framework(adapter, options, framework)
    if semiring is not None:
        check_semiring(semiring, effort=effort, alpha=alpha, beta=beta)
        options = with_semiring(options, semiring)
    if as_strip_exponent(strip_exponent):
        check_strip_exponent(out=out, effort=effort, alpha=alpha, beta=beta)
        options = with_strip_exponent(options)
    prepared = prepare(adapter, written, arrays, options)
    if out is None and order == "K" and scale is None:
        return prepared.run(*arrays)
    return deliver(adapter, prepared, arrays, out, order, options.casting, scale)


def _compiled(*operands: Any, **options: Any) -> Array:
    """What torch.compile traces instead of :func:`einsum`, so that eager calls pay nothing for it.

    It imports the node to record when it is traced, and so works whichever of torch and einsumx is imported first.
    """
    from einsumx.backends.torch import compile as torch_compile

    if options.get("memory_limit") is not None:
        return torch_compile.outside(hooks.einsum, *operands, **options)
    return torch_compile.einsum(*operands, **options)


hooks.einsum = einsum
einsum.__dict__["_torchdynamo_inline"] = _compiled  # the attribute by which torch.compile finds it
hooks.as_it_is(einsum)


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
    out: Any = None,
    stored: bool = False,
    effort: Effort | None = None,
    accumulate: Any = None,
    semiring: str | Semiring | None = None,
    strip_exponent: bool = False,
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
    effort: Effort | None = None,
    accumulate: Any = None,
    semiring: str | Semiring | None = None,
    strip_exponent: bool = False,
) -> BlockedPlan: ...


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
    effort: Effort | None = None,
    accumulate: Any = None,
    semiring: str | Semiring | None = None,
    strip_exponent: bool = False,
) -> Plan | BlockedPlan | ChunkedPlan:
    """The plan that :func:`einsum` would run, from arrays or from shapes alone.

    Args:
        *operands: as for :func:`einsum`, where a shape, a tuple of sizes, may stand for each operand. Shapes describe
            C-contiguous arrays, and have None for a size that is not known. Planning from shapes imports no framework.
        backend: with shapes, the framework to plan for; NumPy by default.
        device: with shapes, the kind of device, such as ``"cpu"`` or ``"cuda"``; by default, the backend's.
        dtypes: with shapes, the operands' dtypes: one name for all, or one for each.
        dtype: as for :func:`einsum`.
        casting: as for :func:`einsum`.
        optimize: as for :func:`einsum`.
        memory_limit: as for :func:`einsum`; the plan then tiles the contraction into blocks.
        out: with arrays and a limit, where the result will be written, so that it does not count.
        stored: with shapes and a limit, whether the operands are read block by block, as from files.
        effort: as for :func:`einsum`; ``"measure"`` times the candidates now, as :func:`einsumx.tune` does, unless that
            was done before.
        accumulate: as for :func:`einsum`.
        semiring: as for :func:`einsum`.
        strip_exponent: as for :func:`einsum`.

    Returns:
        A :class:`~einsumx.Plan`, or a :class:`~einsumx.plans.BlockedPlan` with a limit. It can be printed, drawn,
        stored and called. For Dask arrays a :class:`~einsumx.plans.ChunkedPlan`, which can be printed and called; type
        checkers, which cannot tell, see a :class:`~einsumx.Plan`, so cast it.

    Raises:
        EinsumxError: as :func:`einsum` does.
        ValueError: ``out`` or ``stored`` where it changes nothing, or ``effort="measure"`` with shapes or a limit.

    >>> print(plan("bind,bjnd->bnij", (64, 100, 8, 128), (64, 50, 8, 128), dtypes="float32"))
    bind,bjnd->bnij  (64,100,8,128) (64,50,8,128)  float32 on numpy
      %2 = transpose %0 (0,2,1,3)  view
      %3 = transpose %1 (0,2,3,1)  view
      %4 = matmul %2 %3            328 M multiply-adds
      result %4                    (64,8,100,50) float32
    """
    from einsumx.ir.program import Operand
    from einsumx.ir.sizes import is_known
    from einsumx.plans import as_blocked_plan, as_chunked_plan, as_plan
    from einsumx.runtime.shapes import as_dtypes, as_shapes
    from einsumx.runtime.stored import unread

    written, inputs = split(operands)
    request = Request(
        written, inputs, out, dtype, casting=casting, optimize=optimize, backend=backend, memory_limit=memory_limit,
        device=device, effort=effort, accumulate=accumulate, semiring=semiring, strip_exponent=strip_exponent,
    )  # fmt: skip
    lazy_module = lazy_planner(inputs)
    if lazy_module is not None:
        return as_chunked_plan(lazy_module.planned(request))
    if memory_limit is not None:
        request.check_limited()
    shapes = as_shapes(written, inputs)
    if memory_limit is not None and not all(is_known(shape or ()) for shape in shapes):
        raise SizeError("a plan under a memory_limit= is for known sizes, and a shape has None in the place of one")
    if out is not None and (memory_limit is None or None not in shapes):
        raise ValueError("out= changes a plan only with arrays and a memory_limit=")
    if stored and (memory_limit is None or None in shapes):
        raise ValueError("stored=True changes a plan only with shapes and a memory_limit=")
    if all(shape is not None for shape in shapes):
        if request.effort == "measure":
            raise ValueError("effort='measure' times calls, and shapes cannot be called with; pass arrays instead")
        adapter = request.adapter or get_backend("numpy")
        _check_device_kind(adapter, request.device)
        names = as_dtypes(dtypes, len(shapes))
        described = tuple(Operand(shape, name) for shape, name in zip(shapes, names) if shape is not None)
        return _plan_of_shapes(request, adapter, described, stored)
    if memory_limit is not None:
        from einsumx.streaming.run import plan_within

        return as_blocked_plan(plan_within(request).program)
    inputs = [unread(number, array) if is_stored(array) else array for number, array in enumerate(inputs)]
    adapter, arrays = arrays_of(inputs, request.adapter)
    options = request.options(adapter)
    if options.effort == "measure":
        from einsumx.tuning import tuned_plan

        return tuned_plan(adapter, written, arrays, options)
    return as_plan(prepare(adapter, written, arrays, options).program)


def _check_device_kind(adapter: Adapter, device: str) -> None:
    """Raise BackendError if the framework's arrays cannot be on a device; this imports no framework."""
    kinds = adapter.device_kinds
    if device and kinds and device.partition(":")[0] not in kinds:
        raise BackendError(
            f"{adapter.name} has no device {shown(device)}, as its arrays are on {' and '.join(kinds)} alone"
        )


def _plan_of_shapes(
    request: Request, adapter: Adapter, operands: tuple[Operand, ...], stored: bool
) -> Plan | BlockedPlan:
    from einsumx.plans import as_blocked_plan, as_plan

    # The dtype's name is looked up by the framework only when it has to be, so that this imports none.
    options = options_of(adapter, None, request.casting, request.optimize)
    dtype, accumulate = request.dtype, request.accumulate
    options = options._replace(
        dtype=dtype if isinstance(dtype, str) else dtype_name(adapter, dtype),
        accumulate=accumulate if isinstance(accumulate, str) else dtype_name(adapter, accumulate, "accumulate"),
    )
    if request.semiring is not None:
        options = with_semiring(options, request.semiring)
    if request.strip_exponent:
        options = with_strip_exponent(options)
    contraction = Contraction(adapter, request.written, operands, request.device, options)
    if request.memory_limit is None:
        return as_plan(make_program(contraction))

    from math import prod

    from einsumx.blocked.cost import ResultFootprint
    from einsumx.blocked.plan import BlockedContraction, blocked_program
    from einsumx.dtypes import itemsize

    limit = request.limit_bytes(lambda: adapter.free_bytes(request.device))
    sized = sized_equation(request.written, [operand.shape for operand in operands])
    footprint = ResultFootprint(cut=prod(sized.shape) * itemsize(result_dtype(adapter, operands, options)))
    in_place = (not stored,) * len(operands)
    return as_blocked_plan(blocked_program(BlockedContraction(contraction, limit, in_place, footprint)))


def einsum_path(*operands: Any, optimize: Optimize = "auto", einsum_call: bool = False) -> tuple[list[Any], str]:
    """The contraction path that :func:`einsum` takes, in the format of ``numpy.einsum_path``.

    Args:
        *operands: as for :func:`plan`.
        optimize: as for :func:`einsum`.
        einsum_call: only False; True would return internals of NumPy's einsum.

    Returns:
        ``["einsum_path", (0, 1), ...]``, which ``optimize=`` accepts, and a text with the plan and its costs.

    Raises:
        EinsumxError: as :func:`einsum` does.

    >>> einsum_path("ij,jk,kl->il", (2, 900), (900, 3), (3, 800))[0]
    ['einsum_path', (0, 1), (0, 1)]
    """
    from einsumx.ir.text import quantity
    from einsumx.plans import ChunkedPlan, plan_cost

    if einsum_call:
        raise BackendError("einsum_call=True returns internals of NumPy's einsum; use einsumx.plan")
    contraction: Plan | ChunkedPlan = plan(*operands, optimize=optimize)
    if isinstance(contraction, ChunkedPlan):
        text = f"  Complete contraction:  {contraction.equation.text}\n\n{contraction}"
        return ["einsum_path", *contraction.path], text
    cost = plan_cost(contraction)
    text = (
        f"  Complete contraction:  {contraction.equation}\n"
        f"  Multiply-adds:         {quantity(cost.multiply_adds)}\n"
        f"  Bytes copied:          {quantity(cost.copied, 'B')}\n"
        f"  Peak memory:           {quantity(cost.peak_bytes, 'B')}\n\n{contraction}"
    )
    return ["einsum_path", *contraction.path], text
