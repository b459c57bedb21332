"""The public functions ``einsum``, ``addeinsum``, ``einsum_frexp``, ``plan`` and ``einsum_path``.

Planner, plans and everything for memory limits are imported when first used, to keep ``import einsumx`` fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, overload

from einsumx.adapters import hooks
from einsumx.adapters.registry import get_backend, is_stored, lazy, lazy_planner
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError, SizeError
from einsumx.imports import LazyModule, imported
from einsumx.planner.path import Optimize
from einsumx.runtime import results
from einsumx.runtime.calls import added_first, cached_first
from einsumx.runtime.request import (
    FrexpKeywords,
    Keywords,
    PlanKeywords,
    Request,
    fields_of,
    request_of,
    taking,
)
from einsumx.tracing import as_node, between_graphs

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from einsumx import plans, tuning
    from einsumx.adapters import facets, replacement
    from einsumx.adapters.base import Adapter
    from einsumx.algebra import scaled
    from einsumx.algebra.scaled import FrexpResult
    from einsumx.blocked import cost as blocked_cost
    from einsumx.blocked import plan as blocked_plan
    from einsumx.blocked import program as blocked_program
    from einsumx.blocked import traced as blocked_traced
    from einsumx.ir import operand, sizes
    from einsumx.ir import text as ir_text
    from einsumx.ir.operand import Operand
    from einsumx.ir.program import Program
    from einsumx.plans import BlockedPlan, ChunkedPlan, Plan
    from einsumx.runtime import caps, conversion, factors, front, limits, prepare
    from einsumx.runtime import shapes as described
    from einsumx.runtime import stored as stored_arrays
    from einsumx.runtime.limits import Cap, MemoryAmount, MemoryLimit
    from einsumx.runtime.signatures import A, NumpyResult, Value
    from einsumx.streaming import gradients, repeated, traced
    from einsumx.streaming import run as streaming_run
else:
    facets, replacement = LazyModule("einsumx.adapters.facets"), LazyModule("einsumx.adapters.replacement")
    caps, factors = LazyModule("einsumx.runtime.caps"), LazyModule("einsumx.runtime.factors")
    conversion, front = LazyModule("einsumx.runtime.conversion"), LazyModule("einsumx.runtime.front")
    limits, prepare = LazyModule("einsumx.runtime.limits"), LazyModule("einsumx.runtime.prepare")
    gradients, repeated = LazyModule("einsumx.streaming.gradients"), LazyModule("einsumx.streaming.repeated")
    traced = LazyModule("einsumx.streaming.traced")
    tuning = LazyModule("einsumx.tuning")
    plans = LazyModule("einsumx.plans")
    blocked_cost = LazyModule("einsumx.blocked.cost")
    blocked_plan = LazyModule("einsumx.blocked.plan")
    blocked_program = LazyModule("einsumx.blocked.program")
    blocked_traced = LazyModule("einsumx.blocked.traced")
    operand = LazyModule("einsumx.ir.operand")
    sizes = LazyModule("einsumx.ir.sizes")
    ir_text = LazyModule("einsumx.ir.text")
    described = LazyModule("einsumx.runtime.shapes")
    stored_arrays = LazyModule("einsumx.runtime.stored")
    streaming_run = LazyModule("einsumx.streaming.run")
    scaled = LazyModule("einsumx.algebra.scaled")


@overload
def einsum(*operands: NDArray[Any] | Value, **keywords: Unpack[Keywords]) -> NumpyResult: ...


@overload
def einsum(*operands: A | Value, **keywords: Unpack[Keywords]) -> A: ...


@cached_first
@taking(Keywords)
def einsum(*operands: Any, **keywords: Unpack[Keywords]) -> Any:
    """Einstein summation on the operands' own framework, with its fast primitives.

    Args:
        *operands: an equation and arrays, ``einsum("ij,jk->ik", a, b)``; or arrays and sublists of labels in turn,
            ``einsum(a, [0, 1], b, [1, 2], [0, 2])``; or arrays and a text of names, as in einops,
            ``einsum(x, w, "batch d, d out -> batch out")``. Axes of size 1 broadcast.
        out: an array of the result's shape to write to; it may overlap the operands. A large result is computed in
            place there where the framework can do that, and nothing overlaps or is cast.
        conj: the positions of the operands whose complex conjugates are contracted: an integer or several. Negative
            ones count from the last operand. Real operands are their own conjugates.
        dtype: the dtype to compute in and to return; by default, the framework's promotion of the operands' dtypes.
        accumulate: the dtype in which products and sums are computed. It holds all values of the operands and of the
            result, to whose dtype each element is rounded once. By default that of the result, and at least
            ``"float32"`` for ``float16`` and ``bfloat16``, which is also the least.
        order: memory order of a new result: ``"C"``, ``"F"``, ``"A"`` (F if all operands are F-contiguous, else C), or
            ``"K"`` for whichever is fastest. Not together with ``out``.
        casting: NumPy's rule for casts to ``dtype`` and ``out``.
        optimize: the contraction path: ``"auto"`` or True, which search as long as that pays; another optimizer's name
            (``"greedy"``, ``"optimal"``, ``"dp"``, ``"cotengra"``, ...), of which ``"cotengra:hyper"`` takes minutes;
            False for left to right; a path as :func:`einsum_path` returns it; or an optimizer object of opt_einsum or
            cotengra.
        backend: the framework to use if all operands are Python lists, numbers, or stored; NumPy by default.
        memory_limit: the most memory to use at once: bytes, text such as ``"8GiB"``, a fraction below 1 of the free
            memory, or a :class:`einsumx.MemoryLimit`, which also says how blocks are computed.
        precision: of products of float32, on JAX and PyTorch; without a memory limit, as the next two.
        preferred_element_type: as for ``jax.numpy.einsum``, on JAX.
        out_sharding: as for ``jax.numpy.einsum``, on JAX.

    None stands for any keyword's default. Without a limit, stored operands are read whole, by NumPy only.

    Returns:
        The result, on the operands' framework and device.

    Raises:
        EquationError: the equation is malformed, or ``conj`` has a position without an operand, or one twice.
        SizeError: the operands' ranks or sizes do not match it.
        PathError: the path does not fit the operands.
        BackendError: operands of two frameworks or devices, a cast that ``casting`` does not allow, or a keyword that
            the framework does not support.
        MemoryLimitError: no tiling fits the limit, and the error names the smallest limit that works; or memory ran out
            at the smallest blocks.
        JournalError: the journal is damaged, in use, or belongs to another contraction or other operands.
        OSError: the disk has no room for ``out``, or the journal cannot be written.
        BlockError: a worker of an executor, or a device, failed to compute a block.

    Errors are raised before any work and leave ``out`` unchanged. The exceptions are a BlockError, memory that runs
    out, and a journal that cannot be written any more, which occur while blocks are computed.

    >>> import numpy as np
    >>> einsum("ij,jk->ik", np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[1., 2.],
           [3., 4.]])
    """
    return computed(request_of("einsum", operands, keywords, Keywords))


@overload
def addeinsum(
    c: Any,
    *operands: NDArray[Any] | Value,
    alpha: Any = 1,
    beta: Any = 1,
    **keywords: Unpack[Keywords],
) -> NumpyResult: ...


@overload
def addeinsum(c: A | Value, *operands: A | Value, alpha: Any = 1, beta: Any = 1, **keywords: Unpack[Keywords]) -> A: ...


@added_first
@taking(Keywords)
def addeinsum(c: Any, *operands: Any, alpha: Any = 1, beta: Any = 1, **keywords: Unpack[Keywords]) -> Any:
    """``beta * c + alpha * einsum(*operands)``, as ``torch.addmm`` computes it for a product of matrices.

    Arguments that are not described here are those of :func:`einsum`.

    Args:
        c: an array that broadcasts to the shape of the contraction.
        *operands: as for :func:`einsum`.
        alpha: a number that multiplies the contraction. Plans do not depend on its value, nor on ``beta``'s.
        beta: a number that multiplies ``c``; 0 does not read its values, so that nan and infinity do not come through.
        out: where to write the sum. ``c`` itself is updated in place, as by BLAS, and by the product itself where the
            framework can do that.
        dtype: the dtype to compute in and to return. By default, the contraction has the promotion of the dtypes of its
            operands, as from :func:`einsum`, and the sum that of ``c`` too: of ``float32`` operands and a ``float64``
            ``c``, the contraction is rounded to ``float32``, as in ``c + a @ b``.
        casting: as for :func:`einsum`; also for the cast of ``c``.

    Returns:
        The sum: a new array, or ``out``. ``c`` and the operands stay as they are, unless ``out`` is one of them.

    Raises:
        EinsumxError: as :func:`einsum` does.
        SizeError: ``c`` does not broadcast to the shape of the contraction, or is ``out`` and has another one.
        BackendError: a factor that the dtype of the sum does not hold, or that asks for a gradient.
        TypeError: a factor is no number.
        ValueError: a limit with ``resume`` and a ``beta`` other than 0: after an interruption, nobody knows which
            blocks were added.

    >>> import numpy as np
    >>> addeinsum(np.ones(2), "ij,j->i", np.eye(2), np.array([1.0, 2.0]), alpha=10, beta=3)
    array([13., 23.])
    """
    scale = factors.factors_of(alpha, beta)
    return computed(request_of("addeinsum", operands, keywords, Keywords, factors=scale, added=c))


def _of_frexp(_: Adapter, options: dict[str, Any]) -> Mapping[str, Any]:
    """The translation of :func:`einsum_frexp` for the cache of calls."""
    return {**fields_of("einsum_frexp", options, FrexpKeywords), "algebra": scaled.SCALED}


@taking(FrexpKeywords)
def einsum_frexp(*operands: Any, **keywords: Unpack[FrexpKeywords]) -> FrexpResult:
    """A contraction as a mantissa and an exponent of 2, as ``numpy.frexp``, for results that no float holds.

    Each intermediate is scaled by a power of two, which rounds nothing. Derivatives of the mantissa take the exponent
    as a constant. Floating-point numbers only. Arguments that are not described here are those of :func:`einsum`.

    Args:
        *operands: as for :func:`einsum`.
        order: as for :func:`einsum`; of the mantissa.

    Returns:
        A named tuple ``(mantissa, exponent)``; the result is ``mantissa * 2**exponent``. The largest element of the
        mantissa is in ``[0.5, 1)``. The exponent is an int; where values are not known, as under ``jax.jit``, an
        integer array without axes.

    Raises:
        EinsumxError: as :func:`einsum` does.

    >>> import numpy as np
    >>> mantissa, exponent = einsum_frexp("i,i,i->i", *[np.array([1e200, 2e200])] * 3)
    >>> float(np.log10(mantissa[1]) + exponent * np.log10(2)).__round__(3)
    600.903
    """
    request = request_of("einsum_frexp", operands, keywords, FrexpKeywords, algebra=scaled.SCALED)
    return computed(request)  # type: ignore[no-any-return]


if not TYPE_CHECKING:
    einsum_frexp = cached_first(einsum_frexp, _of_frexp)


def in_semiring(name: str, add: str, multiply: str, *operands: Any, **options: Any) -> Any:
    """:meth:`einsumx.Semiring.einsum`, by the fields of the semiring."""
    return imported("einsumx.semirings").Semiring(name, add, multiply).einsum(*operands, **options)


def _ready_under_limit(*arguments: Any) -> Any:
    return repeated.ready(*arguments)


def _traced_call(*arguments: Any) -> Any:
    return traced.traced_call(*arguments)


hooks.ready_under_limit, hooks.traced_call = _ready_under_limit, _traced_call
hooks.einsum, hooks.addeinsum, hooks.einsum_frexp, hooks.in_semiring = einsum, addeinsum, einsum_frexp, in_semiring
for name in ("einsum", "addeinsum", "einsum_frexp", "in_semiring"):
    as_node(name)


def computed(request: Request) -> Any:
    """The result of a call."""
    operands = list(request.operands)
    added = None if request.added is request.out else request.added
    inputs = operands if added is None else [*operands, added]
    lazy_module = lazy(inputs)
    if lazy_module is not None:
        return lazy_module.einsum(request)
    if request.memory_limit is not None:
        if isinstance(request.memory_limit, limits.Cap):
            return _capped(request, request.memory_limit)
        return gradients.recorded(request)
    adapter, arrays = conversion.arrays_of(inputs, request.adapter)
    if added is not None:
        added = arrays.pop()
    request = request.named(adapter)
    prepared = prepare.prepare(request, adapter, arrays)
    limit = caps.of_windows(prepared, adapter, map(adapter.signature, arrays))
    if limit is not None:
        return gradients.recorded(replace(request, memory_limit=limit))
    if request.out is None and request.order == "K" and request.factors is None:
        return prepared.run(*arrays)
    return results.deliver(adapter, prepared, arrays, request, added)


def _capped(request: Request, cap: Cap) -> Any:
    """The result of a call under the limit of a patch: in blocks if its plan takes more memory, and if it can be."""
    free = replace(request, memory_limit=None)
    adapter, arrays = conversion.arrays_of(list(request.operands), request.adapter)
    signatures = adapter.signatures(request.written, arrays)
    if caps.is_exceeded(cap, free, adapter, signatures):
        try:
            return gradients.recorded(replace(request, memory_limit=cap.limit))
        except BackendError as error:  # before any work, such as that the call is traced
            replacement.say_unlimited(request.written, str(error).partition("\n")[0])
    return computed(free)


OF_SHAPES = {"device": "", "dtypes": "float64", "stored": False}
"""The defaults of the keywords of :func:`plan` that say more of operands that are shapes."""


@overload
def plan(*operands: Any, memory_limit: None = None, **keywords: Unpack[PlanKeywords]) -> Plan: ...


@overload
def plan(*operands: Any, memory_limit: MemoryAmount | MemoryLimit, **keywords: Unpack[PlanKeywords]) -> BlockedPlan: ...


@taking(PlanKeywords, **OF_SHAPES)
def plan(
    *operands: Any, memory_limit: MemoryAmount | MemoryLimit | None = None, **keywords: Unpack[PlanKeywords]
) -> Plan | BlockedPlan | ChunkedPlan:
    """The plan that :func:`einsum` would run, from arrays or from shapes alone.

    Arguments that are not described here are those of :func:`einsum`.

    Args:
        *operands: as for :func:`einsum`, where a shape, a tuple of sizes, may stand for each operand. Shapes describe
            C-contiguous arrays, and have None for a size that is not known. Planning from shapes imports no framework.
        backend: with shapes, the framework to plan for; NumPy by default.
        device: with shapes, the kind of device, such as ``"cpu"`` or ``"cuda"``; by default, the backend's.
        dtypes: with shapes, the operands' dtypes: one name for all, or one for each.
        memory_limit: as for :func:`einsum`; the plan then tiles the contraction into blocks.
        out: where the result will be written; the plan says whether its last op writes there, or the result is copied.
            With shapes, the result's shape stands for it. Under a limit it does not count, and with shapes it is
            written block by block, as to a file.
        stored: with shapes and a limit, whether the operands are read block by block, as from files.

    Returns:
        A :class:`~einsumx.Plan`, or a :class:`~einsumx.plans.BlockedPlan` with a limit. It can be printed, drawn,
        stored and called. For Dask arrays a :class:`~einsumx.plans.ChunkedPlan`, which can be printed and called; type
        checkers, which cannot tell, see a :class:`~einsumx.Plan`, so cast it. With arrays and the effort ``"measure"``,
        the candidates are timed now, as by :func:`einsumx.tune`, unless that was done before.

    Raises:
        EinsumxError: as :func:`einsum` does.
        ValueError: a keyword that changes nothing, such as ``stored`` without a limit, ``device`` with arrays, or a
            limit's ``progress`` and ``resume``; shapes, and a limit for workers; or two devices.

    >>> print(plan("bind,bjnd->bnij", (64, 100, 8, 128), (64, 50, 8, 128), dtypes="float32"))
    bind,bjnd->bnij  (64,100,8,128) (64,50,8,128)  float32 on numpy
      %2 = transpose %0 (0,2,1,3)  view
      %3 = transpose %1 (0,2,3,1)  view
      %4 = matmul %2 %3            328 M multiply-adds
      result %4                    (64,8,100,50) float32
    """
    return planned("plan", operands, keywords, PlanKeywords, memory_limit=memory_limit)


def planned(
    function: str, operands: Sequence[Any], keywords: Mapping[str, Any], known: type, **own: Any
) -> Plan | BlockedPlan | ChunkedPlan:
    """The plan of a call, whose operands may be shapes; see :func:`plan`, and for the arguments :func:`request_of`."""
    of_shapes = {name: keywords[name] for name in OF_SHAPES if keywords.get(name) is not None}
    others = {name: value for name, value in keywords.items() if name not in OF_SHAPES}
    return plan_of(request_of(function, operands, others, known, **own), **{**OF_SHAPES, **of_shapes})


def plan_of(
    request: Request, device: str, dtypes: str | Sequence[str], stored: bool
) -> Plan | BlockedPlan | ChunkedPlan:
    """The plan of a request, whose operands may be shapes; see :func:`plan`."""
    inputs, is_limited = list(request.operands), request.memory_limit is not None
    shapes = described.as_shapes(request.written, inputs)
    if stored and (not is_limited or None in shapes):
        raise ValueError("stored=True has an effect only with shapes and a memory_limit=; omit it")
    if None in shapes and (device or dtypes not in (None, "float64")):
        raise ValueError("device= and dtypes= are for plans from shapes, and these are arrays; omit them")
    lazy_module = lazy_planner(inputs)
    if lazy_module is not None:
        return plans.as_chunked_plan(lazy_module.planned(request))
    if is_limited:
        _check_limit_of_plan(request.limit, shapes, device)
    if all(shape is not None for shape in shapes):
        adapter = request.adapter or get_backend("numpy")
        device = device or (request.limit.device if is_limited else "")
        described.check_device(adapter, device)
        names = described.as_dtypes(dtypes, len(shapes))
        operands = tuple(operand.Operand(shape, name) for shape, name in zip(shapes, names) if shape is not None)
        return _plan_of_shapes(request, adapter, operands, device, stored)
    if is_limited:
        return plans.as_blocked_plan(streaming_run.plan_within(request).program)
    inputs = [stored_arrays.unread(number, array) if is_stored(array) else array for number, array in enumerate(inputs)]
    adapter, arrays = conversion.arrays_of(inputs, request.adapter)
    request = request.named(adapter)
    if request.is_measured:
        program: Program = tuning.tuned_plan(request, adapter, arrays)
    else:
        program = prepare.prepare(request, adapter, arrays).program
    if request.out is not None:
        first, out = adapter.signature(arrays[0]), adapter.signature(request.out)
        results.check_fits(adapter, program, first, out, request.casting, program.dtype)
        program = results.with_out(adapter, program, out)
    return plans.as_plan(program)


def _check_limit_of_plan(limit: MemoryLimit, shapes: Sequence[tuple[int, ...] | None], device: str) -> None:
    """Raise SizeError or ValueError if a plan from shapes, where None stands for an array, cannot keep to a limit."""
    if not all(sizes.is_known(shape or ()) for shape in shapes):
        raise SizeError("a plan under a memory_limit= needs all sizes, and a shape has None for one; pass a number")
    if limit.progress or limit.resume is not None:
        raise ValueError("progress= and resume= of a limit are for a run, not for a plan; pass them to einsum")
    if None not in shapes and (limit.devices or limit.executor is not None):
        raise ValueError("a plan from shapes takes no executor= and no devices=; pass arrays, or device=")
    if device and limit.device and device != limit.device:
        raise ValueError(f"device={device!r} and the device={limit.device!r} of the limit differ; pass one of them")


def _plan_of_shapes(
    request: Request, adapter: Adapter, operands: tuple[Operand, ...], device: str, stored: bool
) -> Plan | BlockedPlan:
    request = request.named(adapter, is_planned=True)
    asked = front.contraction(request, adapter, operands, device)
    if request.memory_limit is None:
        program = prepare.plan(asked, adapter, request.is_path_free)
        if request.out is not None:
            described.check_out(request.out, asked.equation)
            element = facets.blocks_of(adapter).empty((1,) * len(request.out), program.dtype, device or "cpu")
            program = results.with_out(adapter, program, adapter.signature(element))
        return plans.as_plan(program)

    limit = limits.limit_bytes(request.limit.amount, lambda: described.free_bytes(adapter, device))
    is_in_place = not stored and adapter.cpu.strided
    if not (stored or is_in_place) and adapter.loops is not None and request.out is None:
        in_loops = blocked_traced.asked_in_trace(adapter, asked, limit, request.is_path_free)
        return plans.as_blocked_plan(blocked_traced.shown_in_trace(adapter, in_loops))
    equation, size = asked.equation, itemsize(asked.dtype)
    footprint = blocked_cost.ResultFootprint(cut=prod(equation.shape) * size)
    if request.out is not None:
        described.check_out(request.out, equation)
        footprint = blocked_cost.ResultFootprint(copied=size)
    in_place, is_path_free = (is_in_place,) * len(operands), request.is_path_free
    blocked = blocked_program.BlockedContraction(asked, limit, in_place, footprint, is_path_free=is_path_free)
    return plans.as_blocked_plan(blocked_plan.blocked_program(adapter, blocked))


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
    if einsum_call:
        raise BackendError("einsum_call=True returns internals of NumPy's einsum; use einsumx.plan")
    contraction: Plan | ChunkedPlan = plan(*operands, optimize=optimize)
    if isinstance(contraction, plans.ChunkedPlan):
        text = f"  Complete contraction:  {contraction.equation.text}\n\n{contraction}"
        return ["einsum_path", *contraction.path], text
    cost = plans.plan_cost(contraction)
    text = (
        f"  Complete contraction:  {contraction.equation}\n"
        f"  Multiply-adds:         {ir_text.quantity(cost.multiply_adds)}\n"
        f"  Bytes copied:          {ir_text.quantity(cost.copied, 'B')}\n"
        f"  Peak memory:           {ir_text.quantity(cost.peak_bytes, 'B')}\n\n{contraction}"
    )
    return ["einsum_path", *contraction.path], text


for function in (plan, einsum_path):
    between_graphs(function)
