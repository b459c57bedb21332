"""Contractions under a memory limit inside of JAX's transformations: one primitive, which XLA gets as loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial, reduce
from importlib import import_module
from typing import Any

from einsumx.adapters.facets import TracedCall, TracedLoops
from einsumx.adapters.typing import Array
from einsumx.errors import BackendError
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Op


class JaxLoops(TracedLoops):
    """Loops of ``jax.lax``, in a primitive that is linear in each operand."""

    gaps, scalars = 1 / 8, 4096

    def is_traced(self, arrays: Sequence[Array]) -> bool:
        adapter = self.adapter
        return any(map(adapter._is_traced, arrays)) or adapter._is_traced(adapter._probe())

    def known(self, array: Array) -> Array:
        spec = getattr(getattr(array.aval, "sharding", None), "spec", ())
        if any(spec):
            raise BackendError(
                f"memory_limit= is for arrays on one device, and not for one that a mesh shards as {spec}; call einsum "
                "inside of jax.shard_map, where the limit is that of each device"
            )
        return array

    def workspace(self, op: Op, operands: Sequence[Operand], device: str = "") -> int:
        copied: int = self.adapter.copied_bytes(op, operands)
        return copied

    def recorded(self, call: TracedCall, operands: Sequence[Array]) -> Array:
        call.check()
        return self._primitive.bind(*self._varying(operands), call=call)

    def _varying(self, operands: Sequence[Array]) -> Sequence[Array]:
        """The operands, each of which varies over all axes of a mesh that any varies over, in ``jax.shard_map``."""
        axes: list[frozenset[Any]] = [
            getattr(getattr(array.aval, "mat", None), "varying", frozenset()) for array in operands
        ]
        union = frozenset[Any]().union(*axes)
        if not union:
            return operands
        pcast = self.adapter._jax.lax.pcast
        return [
            array if own == union else pcast(array, tuple(union - own), to="varying")
            for own, array in zip(axes, operands)
        ]

    @cached_property
    def _primitive(self) -> Any:
        jax, adapter = self.adapter._jax, self.adapter
        ad, batching, mlir = [import_module(f"jax.interpreters.{name}") for name in ("ad", "batching", "mlir")]
        primitive = import_module("jax.extend.core").Primitive("einsum_in_blocks")

        def typed(*avals: Any, call: TracedCall) -> Any:
            program = jax.make_jaxpr(lambda *arrays: adapter.zeros(arrays, call.shape, call.dtype))(*avals)
            return program.out_avals[0]

        @partial(jax.jit, static_argnames="call")
        def compiled(*operands: Array, call: TracedCall) -> Array:
            return primitive.bind(*operands, call=call)

        def tangent(operands: Sequence[Array], tangents: Sequence[Any], *, call: TracedCall) -> tuple[Array, Any]:
            result = primitive.bind(*operands, call=call)
            numbers = [number for number, each in enumerate(tangents) if type(each) is not ad.Zero]
            parts = [call.tangent(number, operands, tangents[number]) for number in numbers]
            return result, reduce(ad.add_tangents, parts, ad.Zero(result.aval.to_tangent_aval()))

        def transposed(cotangent: Any, *operands: Any, call: TracedCall) -> list[Any]:
            if type(cotangent) is ad.Zero:
                return [None] * len(operands)
            return [
                call.cotangent(number, operands, cotangent) if ad.is_undefined_primal(operand) else None
                for number, operand in enumerate(operands)
            ]

        def batched(operands: Sequence[Array], axes: Sequence[int | None], *, call: TracedCall) -> tuple[Array, int]:
            return call.batched(operands, axes), 0

        primitive.def_abstract_eval(typed)
        primitive.def_impl(compiled)
        ad.primitive_jvps[primitive] = tangent
        ad.primitive_transposes[primitive] = transposed
        batching.primitive_batchers[primitive] = batched
        mlir.register_lowering(
            primitive, mlir.lower_fun(lambda *operands, call: call.written(operands), multiple_results=False)
        )
        return primitive

    def loop(self, count: int, body: Callable[[Any, Array], Array], carry: Array, after: Array | None) -> Array:
        if count == 1:
            return body(0, carry)
        return self.adapter._jax.lax.fori_loop(*map(self.xp.int32, (0, count)), body, carry)

    def part(self, array: Array, box: Sequence[tuple[Any, int]], after: Array | None) -> Array:
        sizes = tuple([size for _, size in box])
        if sizes == array.shape:
            return array
        shift = self._zero(after)
        starts = [start + shift if size < whole else shift for (start, size), whole in zip(box, array.shape)]
        return self.adapter._jax.lax.dynamic_slice(array, starts, sizes)

    def put(self, out: Array, starts: Sequence[Any], block: Array) -> Array:
        starts = list(map(self.xp.int32, starts))
        return self.adapter._jax.lax.dynamic_update_slice(out, block.astype(out.dtype), starts)

    def filled(self, like: Sequence[Array], shape: tuple[int, ...], value: float, dtype: str, after: Any) -> Array:
        number = self.adapter.zeros(like, (), dtype)
        if value:
            number = number + self.xp.asarray(value, dtype)
        return self.xp.broadcast_to(number + self._zero(after).astype(dtype), shape)

    def _zero(self, after: Array | None) -> Array:
        """0, which XLA does not know before ``after`` is computed: bit * (bit - 1) for a bit of that."""
        lax, xp = self.adapter._jax.lax, self.xp
        if after is None or not after.size:
            return xp.int32(0)
        first = lax.squeeze(lax.slice(after, (0,) * after.ndim, (1,) * after.ndim), tuple(range(after.ndim)))
        if xp.iscomplexobj(first):
            first = lax.real(first)
        is_integer = xp.issubdtype(first.dtype, xp.integer)
        bit = (first & 1 if is_integer else lax.ne(first, first)).astype("int32")
        return bit * (bit - 1)

    def as_dtype(self, array: Array, dtype: str) -> Array:
        is_real = not self.xp.issubdtype(dtype, self.xp.complexfloating)
        return (self.xp.real(array) if is_real else array).astype(dtype)

    def on_diagonal(self, array: Array, term: Sequence[int]) -> Array:
        labels = list(dict.fromkeys(term))
        shape = [array.shape[labels.index(label)] for label in term]
        first = [term.index(label) for label in term]
        iota = partial(self.adapter._jax.lax.broadcasted_iota, "int32", shape)
        added = [axis for axis, place in enumerate(first) if place != axis]
        array = self.xp.broadcast_to(self.xp.expand_dims(array, added), shape)
        for axis in added:
            array = self.xp.where(iota(axis) == iota(first[axis]), array, self.xp.zeros((), array.dtype))
        return array
