"""JAX: it traces a plan's calls once and compiles them with XLA, which chooses the arrays' layouts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce, wraps
from importlib import import_module
from itertools import product, takewhile
from math import prod
from operator import or_
from typing import Any, TypeAlias

from einsumx.adapters.base import Adapter, Array, Run, Signature
from einsumx.adapters.facets import BlockAccess, Exponents, Semirings, TracedLoops
from einsumx.adapters.operand_types import dtype_error, type_name, wrong_type_error
from einsumx.adapters.options import NO_OPTIONS, FrameworkOptions
from einsumx.adapters.replacement import Function, Name, own, say_native
from einsumx.algebra.powers import traced_exponent, traced_powers
from einsumx.backends.jax.loops import JaxLoops
from einsumx.dtypes import itemsize, kind
from einsumx.errors import BackendError, shown
from einsumx.host.free_memory import free_host_bytes
from einsumx.ir.bind import planned_sizes
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Cast, Matmul, Multiply, Native, Op, Reshape, Sum
from einsumx.ir.parse import diagonal_equation
from einsumx.ir.program import Program
from einsumx.ir.rates import Rates
from einsumx.ir.traits import BLAS, HALVES, INTEGERS, PRODUCTS, Traits
from einsumx.runtime.request import array_places

_NUMBERS = BLAS | HALVES | INTEGERS

_WIDE = frozenset({"int32", "int64", "uint32", "uint64"})
"""Integers in which products sum narrower ones without casting them first, as accelerators have units for that."""

Axes: TypeAlias = tuple[int, ...]

_LONG = 256
"""The most ops of a plan that is jitted: XLA takes many seconds to compile a program of a thousand small products."""

TRAITS = Traits(
    arrays="einsum",
    native_dtypes=_NUMBERS,
    dtypes=_NUMBERS | {"bool"},
    matmul_dtypes=_NUMBERS,
    matmul_through=(("bool", "float32"),),
    widen=(("float16", "float32"), ("bfloat16", "float32")),
    wide_ops=PRODUCTS | {"sum"},
    # A call is an op in a compiled program.
    rates=Rates(call=1e-7, view=1e-8, matrix=0.2e-6, gemm=80e9, stream=20e9, copy=15e9, permute=8e9, run=1e-9),
)

_SURE = 0.55
"""The share of what ``jnp.einsum`` copies below which another way is faster for sure: copies differ in speed."""


class JaxBlocks(BlockAccess):
    """Blocks of arrays, in whose memory compiled functions write."""

    def check_eager(self, array: Array) -> None:
        if self.adapter._is_traced(array) or self.adapter._is_traced(self.adapter._probe()):
            raise BackendError(
                "plan cannot keep a memory_limit= while jax.jit, jax.grad or jax.vmap traces the operands; pass "
                "shapes, or call einsum"
            )
        if len(array.sharding.device_set) > 1:
            raise BackendError(
                f"memory_limit= is for arrays on one device, and not on {self.adapter.device(array)}; move the array "
                "to one device, or omit memory_limit="
            )

    def add(self, total: Array, part: Array) -> Array:
        return self._added(total, part)

    @cached_property
    def _added(self) -> Callable[[Array, Array], Array]:
        """Adds in the memory of the first array."""
        compiled: Callable[[Array, Array], Array] = self.adapter._jax.jit(self.xp.add, donate_argnums=0)
        return compiled

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        return self.xp.empty(shape, self.adapter.dtype(dtype), device=self.adapter._device(device))

    def put(self, out: Array, box: tuple[slice, ...], block: Array) -> Array:
        starts = tuple(part.start or 0 for part in box)
        return self._updated(out, block, starts).block_until_ready()

    @cached_property
    def _updated(self) -> Callable[..., Array]:
        """Writes a block into an array, in the array's memory."""
        update = self.adapter._jax.lax.dynamic_update_slice
        compiled: Callable[..., Array] = self.adapter._jax.jit(
            lambda out, block, starts: update(out, block.astype(out.dtype), starts), donate_argnums=0
        )
        return compiled

    def carried(self, function: Callable[..., Any]) -> Callable[..., Any]:
        wide, precision = settings = self._settings()

        def run(*arguments: Any) -> Any:
            if self._settings() == settings:
                return function(*arguments)
            with self._enable_x64(wide), self.adapter._jax.default_matmul_precision(precision):
                return function(*arguments)

        return run

    def _settings(self) -> tuple[bool, Any]:
        """The settings that are local to this thread and affect results."""
        return self.adapter._jax.config.jax_enable_x64, self.adapter._jax.config.jax_default_matmul_precision

    @cached_property
    def _enable_x64(self) -> Any:
        module = self.adapter._jax if hasattr(self.adapter._jax, "enable_x64") else import_module("jax.experimental")
        return module.enable_x64

    def find_device(self, name: str) -> str:
        try:
            return _device_name(self.adapter._device(name))
        except (RuntimeError, ValueError, IndexError) as error:
            known = ", ".join(map(_device_name, self.adapter._jax.devices()))
            raise BackendError(f"jax finds no device {shown(name)}; there are {known}") from error

    def free_bytes(self, device: str) -> int | None:
        jax_device = self.adapter._device(device) or self.adapter._jax.devices()[0]
        if jax_device.platform == "cpu":
            return free_host_bytes()
        stats = jax_device.memory_stats() or {}
        return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else None

    def move(self, array: Array, device: str) -> Array:
        return self.adapter._jax.device_put(array, self.adapter._device(device)) if device else array


class JaxExponents(Exponents):
    """Exponents of arrays, also of traced ones."""

    def normalized_in_trace(self, array: Array, exponent: Any) -> tuple[Array, Array] | None:
        if not self.adapter._is_traced(array):
            return None
        xp, lax = self.xp, self.adapter._jax.lax
        is_complex = xp.iscomplexobj(array)
        parts = [lax.real(array), lax.imag(array)] if is_complex else [array]
        dtype = "float64" if parts[0].dtype == "float64" else "float32"
        sizes = [xp.abs(lax.stop_gradient(part).astype(dtype)) for part in parts]
        largest = reduce(xp.maximum, [xp.max(xp.where(xp.isfinite(size), size, 0), initial=0) for size in sizes])
        own = traced_exponent(largest, dtype, self._bits, xp.where)
        for power in traced_powers(-own, dtype, self._bits):
            parts = [(part.astype(dtype) * power).astype(part.dtype) for part in parts]
        total = xp.where(largest > 0, own.astype("int32") + (0 if exponent is None else exponent), 0)
        return lax.complex(*parts) if is_complex else parts[0], total

    def _bits(self, array: Array, dtype: str) -> Array:
        return self.adapter._jax.lax.bitcast_convert_type(array, self.xp.dtype(dtype))

    def as_exponent(self, exponent: Any) -> Any:
        return exponent if self.adapter._is_traced(exponent) else int(exponent)


class CompiledSemirings(Semirings):
    """Functions of ``jax.numpy``."""

    fuses_terms = True


class JaxSemirings(CompiledSemirings):
    """The same, with a choice that depends on values."""

    has_branches = True

    def detached(self, array: Array) -> Array:
        return import_module("jax").lax.stop_gradient(array)

    def branch(self, condition: Array, first: Callable[[], Array], second: Callable[[], Array]) -> Array:
        # The gradient keeps what the functions did, even if it was not run: of the second one, its operands alone.
        jax = import_module("jax")
        return jax.lax.cond(condition, first, jax.checkpoint(second))


class JaxAdapter(Adapter):
    """JAX arrays and tracers, on any device."""

    name = "jax"
    module = "jax"
    import_statement = "import jax.numpy as jnp"
    install = "pip install jax"
    cpu = TRAITS
    constant_dtypes = False
    blocks = cached_property(JaxBlocks)
    loops: cached_property[TracedLoops | None] = cached_property(JaxLoops)
    exponents = cached_property(JaxExponents)
    semirings: cached_property[Semirings | None] = cached_property(JaxSemirings)

    def __init__(self, options: FrameworkOptions = NO_OPTIONS) -> None:
        self._options = options

    @cached_property
    def xp(self) -> Any:
        return import_module("jax.numpy")

    @cached_property
    def _jax(self) -> Any:
        return import_module("jax")

    @cached_property
    def _tracer(self) -> type:
        tracer: type = self._jax.core.Tracer
        return tracer

    def _is_traced(self, array: Any) -> bool:
        return isinstance(array, self._tracer)

    @cached_property
    def _probe(self) -> Callable[[], Array]:
        """Makes an array, which is traced where operations on arrays with values are traced too, as inside jax.jit."""
        probe: Callable[[], Array] = self._jax.jit(lambda: 0)
        return probe

    def lasting(self, arrays: Sequence[Array]) -> AbstractContextManager[Any] | None:
        context: AbstractContextManager[Any] = self._jax.ensure_compile_time_eval()
        return None if any(map(self._is_traced, arrays)) else context

    # -- which arrays -----------------------------------------------------------------------------------

    def check_type(self, kind: type) -> None:
        if not issubclass(kind, (self._jax.Array, self._jax.core.Tracer)):
            if kind.__name__ in ("BCOO", "BCSR"):
                first = "x = x.to_bcoo(); " if kind.__name__ == "BCSR" else ""
                raise BackendError(
                    f"einsum takes jax.Array, not {type_name(kind)}; x.todense() makes one, with memory for all its "
                    f"zeros. {first}x = x.sum_duplicates(); "
                    "sparse.COO(numpy.asarray(x.indices).T, numpy.asarray(x.data), x.shape) "
                    "makes an array that stays sparse, and that einsum takes"
                )
            raise wrong_type_error(kind, "jax.Array")

    # -- describing arrays ------------------------------------------------------------------------------

    def signature(self, array: Array) -> Signature:
        aval = array.aval  # its attributes are faster than the array's
        shape = aval.shape
        if not all(type(size) is int for size in shape):  # symbols, as in jax.export
            shape = planned_sizes([size if type(size) is int else None for size in shape])
        return type(array), shape, aval.dtype, self.device(array), aval.weak_type

    def operand(self, signature: Signature) -> Operand:
        _, shape, dtype, _, weak = signature
        return Operand(shape, self.dtype_name(dtype), weak=bool(weak))

    def device(self, array: Array) -> str:
        """The names of the devices that hold ``array``; empty for tracers and for arrays not committed to a device."""
        return "" if self._is_traced(array) or not array.committed else _device_names(array.sharding)

    def dtype_name(self, dtype: Any) -> str:
        try:
            name = str(self.xp.dtype(dtype).name)
        except TypeError:
            name = str(dtype)
        if name not in _NUMBERS and name != "bool":
            raise dtype_error(self.name, name)
        return name

    def copied_bytes(self, op: Op, operands: Sequence[Operand]) -> int:
        """The most bytes that XLA's copies of operands and of the result take, in other orders or in float32."""
        shapes, dtype = [operand.shape for operand in operands], operands[0].dtype
        if not isinstance(op, Native) or not _is_product(op):
            return 0
        sizes = op.by_letter(shapes)
        copied = min([copied for sides in ((0, 1), (1, 0)) for copied, _ in _ways(op, sides, sizes)])
        wide = sum(map(prod, shapes)) + prod([sizes[label] for label in op.output]) if dtype in HALVES else 0
        return copied * itemsize(dtype) + wide * itemsize("float32")

    @cached_property
    def is_mode_set(self) -> Callable[[], bool]:  # type: ignore[override]
        config = self._jax.config
        usual = self.__dict__.setdefault("_usual", self.planning_mode(""))  # the same for two threads
        return lambda: (config.jax_enable_x64, config.jax_numpy_dtype_promotion) != usual

    def planning_mode(self, device: str) -> Hashable:
        """The settings that promotion depends on."""
        if "jax" not in sys.modules:
            return None
        config = self._jax.config
        return config.jax_enable_x64, config.jax_numpy_dtype_promotion

    def promote_weak(self, dtypes: Sequence[str], weak: Sequence[str]) -> str:
        # JAX promotes Python's scalar types as weak types, with the default dtype of their kind.
        scalars = [{"b": bool, "i": int, "u": int, "f": float, "c": complex}[kind(name)] for name in weak]
        return self.dtype_name(self.xp.result_type(*map(self.dtype, dtypes), *scalars))

    def dtype(self, name: str) -> Any:
        self.dtype_name(name)
        dtype = self.xp.dtype(name)
        if self._jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise BackendError(
                f"jax would compute in {self._jax.dtypes.canonicalize_dtype(dtype).name}, not {name}, because its "
                "64-bit types are off; switch them on at the start of the program: "
                "jax.config.update('jax_enable_x64', True)"
            )
        return dtype

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        return self.xp.asarray(value)  # of a weak dtype

    # -- primitives -------------------------------------------------------------------------------------

    def copy(self, array: Array) -> Array:
        return self.xp.array(array, copy=True)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        if array.dtype == bool:
            return self.xp.any(array, axis=axes)
        # By default a sum of half precision returns the same dtype; with dtype= it would also accumulate in it.
        return self.xp.sum(array, axis=axes, dtype=None if array.dtype.name in HALVES else array.dtype)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        """The product, also where the setting ``jax_numpy_rank_promotion`` forbids operands of two ranks."""
        rank = max(lhs.ndim, rhs.ndim)
        if lhs.ndim != rhs.ndim:
            lhs, rhs = (self.xp.expand_dims(each, range(rank - each.ndim)) for each in (lhs, rhs))
        return self.xp.multiply(lhs, rhs)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        if self._is_alone:
            return super().diagonal(array, axis1, axis2)
        return self._masked(array, *diagonal_equation(array.ndim, axis1, axis2).split("->"))

    @cached_property
    def _is_alone(self) -> bool:
        """Whether there is but one device, so that no array is sharded."""
        return bool(self._jax.device_count() == 1)

    def _single(self, array: Array, term: str, output: str) -> Array:
        """An einsum of one array."""
        if not self._is_alone:
            return self._masked(array, term, output)
        for label in dict.fromkeys(term):
            while term.count(label) > 1:
                first, second = [axis for axis, other in enumerate(term) if other == label][:2]
                array = self.diagonal(array, first, second)
                term = term[:first] + term[first + 1 : second] + term[second + 1 :] + label
        summed = tuple([axis for axis, label in enumerate(term) if label not in output])
        kept = [label for label in term if label in output]
        return self._jax.lax.transpose(self.sum(array, summed) if summed else array, _places(output, kept))

    @cached_property
    def _masked(self) -> Callable[[Array, str, str], Array]:
        """An einsum of one array by a mask and one sum, as a gather of diagonals moves sharded axes between devices."""
        lax = self._jax.lax

        def masked(array: Array, term: str, output: str) -> Array:
            parts = _explicit_parts(array)
            settings = {"out_sharding": array.aval.sharding} if any(parts) else {}
            kept = {}
            for label in dict.fromkeys(term):
                axes = [axis for axis, other in enumerate(term) if other == label]
                if label in output:
                    kept[label] = next((axis for axis in axes if parts[axis]), axes[-1])
                first, *others = [lax.broadcasted_iota("int32", array.shape, axis, **settings) for axis in axes]
                for other in others:
                    array = lax.select(lax.eq(first, other), array, lax.full_like(array, 0))
            summed = tuple([axis for axis in range(array.ndim) if axis not in kept.values()])
            total = self.sum(array, summed) if summed else array
            return lax.transpose(total, _places(output, sorted(kept, key=kept.__getitem__)))

        compiled: Callable[[Array, str, str], Array] = self._jax.jit(masked, static_argnums=(1, 2), inline=True)
        return compiled

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        # A compiled program runs on the device of the arrays that it reads; this reads no element of each.
        read = reduce(or_, [self.xp.any(array[None][:0]) for array in arrays])
        return self.xp.broadcast_to(read.astype(self.dtype(dtype)), shape)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        rank = lhs.ndim
        batch = tuple(range(rank - 2))
        contracted = ((rank - 2 if transpose_lhs else rank - 1,), (rank - 1 if transpose_rhs else rank - 2,))
        wide = self.xp.float32 if lhs.dtype.name in HALVES else lhs.dtype
        product = self._jax.lax.dot_general(
            lhs, rhs, (contracted, (batch, batch)), self._options.precision, preferred_element_type=wide
        )
        return product.astype(lhs.dtype)

    def kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        match op:
            case Cast() if self._postpones(op.dtype) or _widens(dtype, op.dtype):
                return lambda source: source
            case Sum() | Multiply() | Matmul() | Native() if not _is_product(op) and (
                self._postpones(dtype) or dtype in _WIDE
            ):
                kernel = self._kernel(op, shapes, dtype)
                return lambda *sources: kernel(*[self.cast(source, dtype) for source in sources])
            case Cast() if dtype in _WIDE:
                return lambda source: self.cast(self.cast(source, dtype), op.dtype)
            case _:
                return self._kernel(op, shapes, dtype)

    def _postpones(self, dtype: str) -> bool:
        """Whether casts to ``dtype`` are left to the op that needs them, as products take operands of any dtype."""
        wanted = self._options.preferred_element_type
        return wanted not in (None, "bool") and dtype in (wanted, dict(TRAITS.widen).get(str(wanted)))

    def _kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        match op:
            case Native() if _is_product(op):
                return self._product(_dot(op, shapes), dtype)
            case Native() if len(op.terms) == 1:
                return partial(self._single, term=op.terms[0], output=op.output)
            case Reshape() if _without_ones(op.shape) == _without_ones(shapes[0]) and op.shape != shapes[0]:
                lax, dropped, added = self._jax.lax, _ones(shapes[0]), _ones(op.shape)
                return lambda source: lax.expand_dims(lax.squeeze(source, dropped), added)
            case _:
                return super().kernel(op, shapes, dtype)

    def _product(self, dot: _Dot, dtype: str, out_sharding: Any = None) -> Callable[[Array, Array], Array]:
        """The function that multiplies two arrays, with a result of ``dtype``."""
        lax, wide = self._jax.lax, self.xp.float32 if dtype in HALVES else self.xp.dtype(dtype)
        settings = {"precision": self._options.precision, "preferred_element_type": wide}

        def kernel(*operands: Array) -> Array:
            sides = [operands[side] for side in dot.sides]
            lhs, rhs = [side if axes is None else lax.transpose(side, axes) for side, axes in zip(sides, dot.orders)]
            sharding = self._batch_sharding(dot, lhs, rhs) if out_sharding is None else {"out_sharding": out_sharding}
            if dtype == "bfloat16" and not sharding and self._needs_matrix_last(dot, lhs, rhs):
                contracted, batch = dot.dimensions
                turned = lax.dot_general(rhs, lhs, (contracted[::-1], batch[::-1]), **settings).astype(dtype)
                product = self.xp.moveaxis(turned, -1, len(batch[0]))
            else:
                product = lax.dot_general(lhs, rhs, dot.dimensions, **settings, **sharding).astype(dtype)
            return product if dot.axes is None else lax.transpose(product, dot.axes)

        return kernel

    def _needs_matrix_last(self, dot: _Dot, lhs: Array, rhs: Array) -> bool:
        """Whether XLA refuses the product in bfloat16 on processors with instructions for it.

        It does for a matrix on the left and several free axes on the right, and takes them the other way round.
        """
        if self._jax.default_backend() != "cpu":
            return False
        free: list[int] = [side.ndim - sum(map(len, axes)) for side, axes in zip((lhs, rhs), zip(*dot.dimensions))]
        return free[0] == 1 < free[1]

    def _batch_sharding(self, dot: _Dot, lhs: Array, rhs: Array) -> dict[str, Any]:
        """The keywords of ``dot_general`` that shard batch axes as either operand does, where axes are explicit.

        By default they are sharded as those of the first operand, which may lose the sharding of the second, or be in
        conflict with the other axes of the second.
        """
        left, right = _explicit_parts(lhs), _explicit_parts(rhs)
        if not (any(left) or any(right)):
            return {}
        contracted, batch = dot.dimensions
        if any(left[first] and right[second] for first, second in zip(*contracted)):
            return {}  # which JAX refuses, as the result may have several shardings
        free = [
            parts[axis]
            for parts, *used in ((left, contracted[0], batch[0]), (right, contracted[1], batch[1]))
            for axis in range(len(parts))
            if axis not in used[0] + used[1]
        ]
        first, second = [left[axis] for axis in batch[0]], [right[axis] for axis in batch[1]]
        for shared in ([one or other for one, other in zip(first, second)], first, second):
            if _is_legal([*shared, *free]):
                if shared == first:
                    break
                sharding, mesh = self._jax.sharding, (lhs if any(left) else rhs).aval.sharding.mesh
                return {"out_sharding": sharding.NamedSharding(mesh, sharding.PartitionSpec(*shared, *free))}
        return {}

    def public_class(self) -> type[Adapter]:
        return _PublicJax

    # -- keywords that JAX alone has ----------------------------------------------------------------------

    def configured(self, options: FrameworkOptions) -> JaxAdapter:
        kinds = self._jax.sharding.PartitionSpec, self._jax.sharding.NamedSharding
        if options.out_sharding is not None and not isinstance(options.out_sharding, kinds):
            raise BackendError(
                f"out_sharding= must be a PartitionSpec or a NamedSharding, not {shown(options.out_sharding)}"
            )
        return JaxAdapter(options)

    def _configured_run(self, run: Run, program: Program) -> Run:
        """``run`` with the dtype and the sharding of the result that the options ask for."""
        if self._options.preferred_element_type is not None:
            run = _returning(program.dtype, run)
        return run if self._options.out_sharding is None else self._sharded(run, program)

    def _sharded(self, run: Run, program: Program) -> Run:
        """``run`` with a result of the sharding that the options ask for.

        Axes of a mesh that are explicit are automatic within a contraction of several steps, as in ``jnp.einsum``: only
        the sharding of its result is known.
        """
        jax, sharding = self._jax, self._options.out_sharding
        product = self._sharded_product(program)

        def placed(*arrays: Array) -> Array:
            mesh = getattr(sharding, "mesh", None) or jax.sharding.get_abstract_mesh()
            if not mesh.explicit_axes:
                return jax.lax.with_sharding_constraint(run(*arrays), sharding)
            if product is not None:
                return product(*arrays)
            return jax.sharding.auto_axes(run, axes=mesh.explicit_axes, out_sharding=sharding)(*arrays)

        return placed

    def _sharded_product(self, program: Program) -> Run | None:
        """The function for a program that is one product, whose result then has the sharding; None for another."""
        match program.ops:
            case (Native() as op,) if _is_product(op):
                lhs, rhs = op.operands
                dot = _dot(op, [program.operands[slot].shape for slot in (lhs, rhs)])
                sharding = _turned(self._options.out_sharding, dot.axes)
                product = self._product(dot, program.dtype, sharding)
                return lambda *arrays: product(arrays[lhs], arrays[rhs])
            case _:
                return None

    def _settled(self, run: Run, program: Program) -> Run:
        """``run``; JAX's own einsum where explicit shardings conflict in the plan's products, but not in JAX's."""
        accumulate = program.accumulate or TRAITS.compute_dtype(program.dtype)
        wanted = self._options.preferred_element_type or accumulate
        options = self._options._replace(preferred_element_type=wanted)._asdict()

        def function(*arrays: Array) -> Array:
            try:
                return run(*arrays)
            except Exception as error:
                if not _is_conflict(error):
                    raise
                try:
                    result = own(self.xp.einsum)(program.equation, *arrays, **options)
                except Exception as second:
                    if not _is_conflict(second):
                        raise
                    raise error from None  # the conflict in the plan is what the caller can mend
            say_native("einsumx.einsum", [program.equation], "explicit shardings conflict")
            return result.astype(program.dtype)

        return function

    def prepare(self, run: Run, program: Program) -> Run:
        if program.dtype in _WIDE and any(isinstance(op, Cast) for op in program.ops):
            run = _returning(program.dtype, run)
        if program.dtype in HALVES and len(program.operands) > 2 and program.algebra.is_plain:
            run = self._jax.checkpoint(run)  # a backward pass makes casts and wide intermediates again, and keeps none
        if self._options is not NO_OPTIONS:
            run = self._configured_run(run, program)
        if not self._is_alone:
            run = self._settled(run, program)
        if len(program.ops) > _LONG:
            return run
        # Inside a user's jit, inline=True makes the plan's calls part of the user's trace.
        compiled: Run = self._jax.jit(run, inline=True)
        return compiled

    # -- einsumx behind JAX's own name --------------------------------------------------------------------

    def names(self) -> Iterable[Name]:
        numpy = import_module("numpy")

        def around(native: Function, call: Function) -> Function:
            @wraps(native)
            def function(*operands: Any, **options: Any) -> Any:
                """Convert NumPy arrays, as JAX does."""
                wanted = options.get("preferred_element_type")
                if wanted is not None and self._jax.dtypes.canonicalize_dtype(wanted) != self.xp.dtype(wanted):
                    say_native("jax.numpy.einsum", operands, "JAX's 64-bit types are off")
                    return native(*operands, **options)
                arguments = list(operands)
                for place in array_places(list(map(type, operands))):
                    operand = arguments[place]
                    if isinstance(operand, numpy.ndarray | numpy.number | numpy.bool_):
                        arguments[place] = self.xp.asarray(operand)
                return call(*arguments, **options)

            return function

        yield Name(self.xp, "einsum", around=around)

    def device_model(self, device: str) -> str:
        return "" if device.partition(":")[0] in ("", "cpu") else str(self._device(device).device_kind)

    # -- to and from the host ---------------------------------------------------------------------------

    def from_numpy(self, array: Any, device: str = "") -> Array:
        return self.xp.asarray(array, device=self._device(device))

    def _device(self, name: str) -> Any:
        """The device of that name; None, for the default device, if the name is empty."""
        platform, _, index = name.partition(":")
        return self._jax.devices(platform)[int(index or 0)] if name else None

    def synchronize(self, array: Array) -> None:
        array.block_until_ready()


# -- products -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Dot:
    """A product of two arrays by ``lax.dot_general``.

    Attributes:
        sides: the operands of the op in the order in which the product takes them.
        orders: the axes of a transpose of each before the product; None if there is none.
        dimensions: its dimension numbers, of the contracted axes and of the batch axes.
        axes: of a transpose that puts its result in order; None if the result is in order.
    """

    sides: tuple[int, int]
    orders: tuple[Axes | None, Axes | None]
    dimensions: tuple[tuple[Axes, Axes], tuple[Axes, Axes]]
    axes: Axes | None


def _widens(source: str, target: str) -> bool:
    """Whether a cast makes integers wider, and products do it themselves."""
    same_kind = kind(source) == kind(target)
    return target in _WIDE and same_kind and source in INTEGERS and itemsize(source) < itemsize(target)


def _returning(dtype: str, run: Run) -> Run:
    """``run`` with a result of ``dtype``, for plans whose casts are left to other ops; a list of values stays."""

    def returning(*arrays: Array) -> Any:
        result = run(*arrays)
        return result if isinstance(result, list) else result.astype(dtype)

    return returning


def _is_product(op: Op) -> bool:
    """Whether an op is an einsum that has two operands, takes no diagonal and sums over no label of one operand alone.

    The planner makes no others; a stored plan may have some.
    """
    if not isinstance(op, Native) or len(op.terms) != 2 or any(len(set(term)) < len(term) for term in op.terms):
        return False
    lhs, rhs = map(set, op.terms)
    return lhs ^ rhs <= set(op.output)


def _dot(op: Native, shapes: Sequence[Axes]) -> _Dot:
    """How to compute an einsum of two arrays: as ``jnp.einsum`` does, unless another way saves enough copies.

    >>> _dot(Native(2, (0, 1), "bij,bkj->bki"), [(2, 3, 4), (2, 5, 4)])
    _Dot(sides=(1, 0), orders=(None, None), dimensions=(((2,), (2,)), ((0,), (0,))), axes=None)
    """
    ways = [way for sides in ((1, 0), (0, 1)) for way in _ways(op, sides, op.by_letter(shapes))]
    is_in_order = any(dot.sides == (0, 1) and dot.orders == (None, None) and dot.axes is None for _, dot in ways)
    usual = (0, 1) if is_in_order else (1, 0)

    def cost(way: tuple[int, _Dot]) -> tuple[float, bool]:
        copied, dot = way
        is_usual = dot.sides == usual and dot.orders == (None, None)
        return copied * (_SURE if is_usual else 1.0), not is_usual

    return min(ways, key=cost)[1]


def _ways(op: Native, sides: tuple[int, int], sizes: Mapping[str, int]) -> Iterator[tuple[int, _Dot]]:
    """The ways to compute it with the operands in this order, each with the elements that it copies.

    XLA copies the first operand so that its contracted axes are last, and the second so that they come before its free
    axes, both in one order. An axis between the batch and the only other one stays where it is. Where an operand is
    copied, its free axes may get the order of the output, which saves moving them in the result.
    """
    terms, output = [op.terms[side] for side in sides], op.output
    batch = [label for label in output if label in terms[0] and label in terms[1]]
    free = [[label for label in term if label in output and label not in batch] for term in terms]
    sums = [[label for label in term if label not in output] for term in terms]
    sorted_free = [[label for label in output if label in labels] for labels in free]
    for contracted, left, right in product(sums, (free[0], sorted_free[0]), (free[1], sorted_free[1])):
        read = [*batch, *left, *contracted], [*batch, *contracted, *right]
        made = [*batch, *left, *right]
        copied = _copied(made, output, sizes)
        is_matrix = len(contracted) == 1 and all(len(labels) < 2 for labels in free)
        if contracted and not (is_matrix and all([*term[: len(batch)]] == batch for term in terms)):
            copied += sum([_copied(term, order, sizes) for term, order in zip(terms, read)])
        orders = [None if wanted == own else order for own, wanted, order in zip(free, (left, right), read)]
        moves = [None if order is None else _places(order, term) for term, order in zip(terms, orders)]
        first, second = [term if order is None else order for term, order in zip(terms, orders)]
        sums_at, batch_at = [(_places(labels, first), _places(labels, second)) for labels in (contracted, batch)]
        axes = None if made == [*output] else _places(output, made)
        yield copied, _Dot(sides, (moves[0], moves[1]), (sums_at, batch_at), axes)


_ROW, _BLOCK = 8, 512
"""The elements of a row from which a copy that leaves rows as they are takes half as long as another one, and those up
to which it takes as little time to move axes within a block."""


def _copied(source: Sequence[str], target: Sequence[str], sizes: Mapping[str, int]) -> int:
    """The elements that a copy moves to put the axes in another order, twice if it moves single ones far.

    >>> sizes = {"a": 2, "b": 100, "c": 200}
    >>> _copied("abc", "abc", sizes), _copied("abc", "bac", sizes), _copied("abc", "acb", sizes)
    (0, 40000, 80000)
    """
    before, after = ([label for label in order if sizes[label] != 1] for order in (source, target))
    if before == after:
        return 0
    total = prod([sizes[label] for label in before])
    row, blocks = [
        prod([sizes[label] for label, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)])
        for pairs in (zip(before[::-1], after[::-1]), zip(before, after))
    ]
    return total * (1 if row >= _ROW or total <= blocks * _BLOCK else 2)


def _turned(sharding: Any, axes: Axes | None) -> Any:
    """The sharding of an array whose transpose by ``axes`` has ``sharding``."""
    if axes is None:
        return sharding
    spec = getattr(sharding, "spec", sharding)
    parts = (*spec, *[None] * (len(axes) - len(spec)))
    spec = spec.update(partitions=tuple([parts[axes.index(axis)] for axis in range(len(axes))]))
    return type(sharding)(sharding.mesh, spec) if hasattr(sharding, "mesh") else spec


def _places(labels: Sequence[str], order: Sequence[str]) -> Axes:
    return tuple([order.index(label) for label in labels])


def _explicit_parts(array: Array) -> tuple[Any, ...]:
    """For each axis of a traced array, the axes of an explicit mesh that shard it."""
    spec = getattr(getattr(array.aval, "sharding", None), "spec", ())
    return (*spec, *[None] * (array.ndim - len(spec)))


def _is_conflict(error: Exception) -> bool:
    """Whether JAX raised an error because explicit shardings conflict; it exports no name for that class."""
    return type(error).__name__ == "ShardingTypeError"


def _is_legal(parts: Sequence[Any]) -> bool:
    """Whether no axis of a mesh shards two axes of an array."""
    names = [name for part in parts if part for name in ([part] if isinstance(part, str) else part)]
    return len(set(names)) == len(names)


def _ones(shape: Axes) -> Axes:
    return tuple([axis for axis, size in enumerate(shape) if size == 1])


def _without_ones(shape: Axes) -> Axes:
    return tuple([size for size in shape if size != 1])


def _device_name(device: Any) -> str:
    return f"{device.platform}:{device.id}"


@lru_cache(maxsize=256)
def _device_names(sharding: Any) -> str:
    return ",".join(sorted(map(_device_name, sharding.device_set)))


class _PublicJax(JaxAdapter):
    """Functions of ``jax.numpy``, which JAX compiles to the same operations."""

    diagonal = Adapter.diagonal

    semirings = cached_property(CompiledSemirings)

    def dtype(self, name: str) -> Any:
        return self.xp.dtype(name)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        sides = ((lhs, transpose_lhs), (rhs, transpose_rhs))
        return self._in_wide(
            self.xp.matmul, *[side.swapaxes(-1, -2) if is_transposed else side for side, is_transposed in sides]
        )

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        return self._in_wide(partial(own(self.xp.einsum), equation), *arrays)

    def _in_wide(self, product: Callable[..., Array], *arrays: Array) -> Array:
        """A product, which accumulates half precision in float32."""
        dtype = arrays[0].dtype.name
        if dtype not in HALVES:
            return product(*arrays)
        return product(*arrays, preferred_element_type="float32").astype(dtype)


ADAPTER = JaxAdapter()
