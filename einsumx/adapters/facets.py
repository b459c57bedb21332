"""The parts beside an adapter, one class for each feature.

The defaults suit a library whose arrays slice, add and assign as NumPy's do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from einsumx.adapters.typing import Array, Run, Signature
from einsumx.errors import REFUSALS, BackendError, shown
from einsumx.imports import LazyModule

if TYPE_CHECKING:
    from einsumx.adapters.staging import Ring
    from einsumx.ir.operand import Operand
    from einsumx.ir.ops import Matmul, Op

np: Any = LazyModule("numpy")


class Part:
    """A feature of a framework, beside its adapter, which has None where the framework lacks the feature.

    Args:
        adapter: the framework's.
    """

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter

    @property
    def xp(self) -> Any:
        """The framework's array namespace."""
        return self.adapter.xp


class BlockAccess(Part):
    """Blocks of arrays, for contractions under a memory limit, and the devices and threads that compute them."""

    def check_eager(self, array: Array) -> None:
        """Raise BackendError for an operand that is traced or lazy: no memory to limit, and no time to measure."""

    def is_lazy(self, array: Array) -> bool:
        """Whether reading ``array`` computes its elements; its blocks are then copied instead of viewed."""
        return False

    def part(self, array: Array, box: tuple[slice, ...]) -> Array:
        """The elements in ``box``, a range of each axis; a view if the framework has views."""
        return array[box]

    def add(self, total: Array, part: Array) -> Array:
        """``total + part``, in the memory of ``total`` if possible; nothing else refers to either."""
        return self.adapter.arithmetic.plus(total, part)

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        """An uninitialized array; all its blocks will be written."""
        return self.xp.empty(shape, dtype=self.adapter.dtype(dtype))

    def put(self, out: Array, box: tuple[slice, ...], block: Array) -> Array:
        """``out`` with ``block`` written into ``box``: the same array if arrays are writable, otherwise a new one."""
        out[box] = block
        return out

    def finished(self, out: Array) -> Array:
        """The array to return, from the one that :meth:`empty` made and :meth:`put` has filled."""
        return out

    def in_place(self, array: Any) -> Array | None:
        """A NumPy array as a read-only array of the framework that shares its memory; None if that takes a copy."""
        return None

    def carried(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` for another thread to call, with the settings that are local to this thread."""
        return function

    def move(self, array: Array, device: str) -> Array:
        """``array`` on ``device``; the same array if it is there already or the name is empty."""
        if device in ("", self.adapter.device(array)):
            return array
        return self.adapter.from_numpy(self.adapter.to_numpy(array), device)

    def ring(self, device: str) -> Ring | None:
        """The pinned buffers for copies from NumPy to ``device``; None to copy each array by itself."""
        return None

    def find_device(self, name: str) -> str:
        """The name that arrays give the device that a user named.

        Raises:
            BackendError: there is no such device.
        """
        try:
            device: str = self.adapter.device(self.empty((0,), "float32", name))
        except REFUSALS as error:
            raise BackendError(f"{self.adapter.name} finds no device {shown(name)}: {error}") from error
        if device.partition(":")[0] != name.partition(":")[0]:
            raise BackendError(f"{self.adapter.name} finds no device {shown(name)}; there is {device}")
        return device

    def free_bytes(self, device: str) -> int | None:
        """Bytes of free memory on the device; None if unknown."""
        return None


class OutAccess(Part):
    """Arrays that can be written to, for ``out=``."""

    def check(self, out: Array, operands: Sequence[Array]) -> None:
        """Raise BackendError if ``out`` cannot be written, before any work is done."""

    def may_overlap(self, out: Array, array: Array) -> bool:
        """Whether writing to ``out`` can change ``array``; True if unknown."""
        return True

    def write(self, out: Array, result: Array) -> None:
        """Copy ``result`` into ``out``, casting; ``result`` may be a view of memory that ``out`` overlaps."""
        raise NotImplementedError("the backend does not define write(out, result)")

    def write_new(self, out: Array, result: Array) -> None:
        """As :meth:`write`, for a ``result`` that shares memory with no other array."""
        self.write(out, result)

    def written(self, run: Run, out: Signature, dtype: str) -> Run | None:
        """A function of ``out`` and the operands of ``run`` that checks ``out``, and writes the result to it.

        None if :meth:`check` and :meth:`write_new` around ``run`` are as fast.

        Args:
            run: returns a new array.
            out: the signature of ``out``.
            dtype: of the result.
        """
        return None

    def kernel_into(
        self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str, out: Signature
    ) -> Callable[..., object] | None:
        """The kernel of ``op`` with ``out=``, which writes the result there instead of making a new array.

        None, the default, to make one and copy it. The kernel is called only for arrays of which :meth:`may_overlap` is
        False. No error may leave a part of the result: an interruption may come between two of the framework's
        functions, and memory may run out in each, so a kernel that writes in parts has to complete them all the same.

        Args:
            op: the last op of a plan that is no view.
            shapes: of its sources.
            dtype: of its sources, of the result, and of ``out``.
            out: the signature of ``out``. The array that is passed is a view of ``out`` in the shape of the result,
                with positive strides, in which no two elements share memory; for products, one of the last two axes has
                unit stride.
        """
        return None

    def update(self, alpha: Any, result: Array, beta: Any, out: Array, dtype: str) -> None:
        """``out = alpha * result + beta * out``, computed in ``dtype``; ``beta=0`` does not read ``out``.

        ``result`` shares memory with no other array.
        """
        self.write_new(out, self.adapter.arithmetic.combined(alpha, result, beta, out, dtype))

    def product_into(self, op: Matmul, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., None] | None:
        """A function ``f(alpha, lhs, rhs, beta, out)`` that does the same for a product of ``lhs`` and ``rhs``.

        None if the framework has none that is better than :meth:`update` of the product. The function must not write
        anything if it raises an error; ``out`` has the dtype of the product and shares no memory with the operands.

        Args:
            op: the product.
            shapes: of both sides.
            dtype: of both sides, of the product, and of ``out``.
        """
        return None


class Arithmetic(Part):
    """Numbers times arrays, and sums of two arrays, as for :func:`einsumx.addeinsum`.

    The defaults use the primitives. All numbers have the kind of the dtype in which they multiply.
    """

    def number(self, value: Any, dtype: str, like: Array) -> Array:
        """A number as an array of ``dtype`` that broadcasts with ``like``, on the same device."""
        host = {"bfloat16": "float32", "complex32": "complex64"}.get(dtype, dtype)  # dtypes that NumPy lacks
        with np.errstate(all="ignore"):
            array = np.full((1,) * len(like.shape), value, host)
        return self.as_dtype(self.adapter.from_numpy(array, self.adapter.device(like)), dtype)

    def as_dtype(self, array: Array, dtype: str) -> Array:
        """``array`` in ``dtype``; the same array if it is in that."""
        return array if self.adapter.dtype_name(array.dtype) == dtype else self.adapter.cast(array, dtype)

    def plus(self, lhs: Array, rhs: Array) -> Array:
        """``lhs + rhs``, where a gradient may be recorded or a graph traced; nothing else refers to ``lhs``.

        Bools are or-ed, integers wrap.
        """
        return lhs + rhs

    def scaled(self, array: Array, factor: Any, dtype: str) -> Array:
        """``factor * array`` as a new array, computed in ``dtype``."""
        return self.adapter.multiply(self.as_dtype(array, dtype), self.number(factor, dtype, array))

    def scaled_new(self, array: Array, factor: Any, dtype: str) -> Array:
        """As :meth:`scaled`, for an ``array`` of ``dtype`` that nothing else refers to, and that it may write to."""
        return self.scaled(array, factor, dtype)

    def combined(self, alpha: Any, result: Array, beta: Any, values: Array, dtype: str) -> Array:
        """``alpha * result + beta * values`` as a new array, computed in ``dtype``; ``beta=0`` ignores the values."""
        if beta == 0:
            return self.scaled(result, alpha, dtype)
        if beta != 1:
            own, other = self.scaled(values, beta, dtype), self.as_dtype(result, dtype)
            return self.plus(own, other if alpha == 1 else self.scaled(other, alpha, dtype))
        is_one = alpha == 1
        own = self.adapter.copy(self.as_dtype(result, dtype)) if is_one else self.scaled(result, alpha, dtype)
        return self.plus(own, self.as_dtype(values, dtype))


class Recorded(Protocol):
    """A contraction, as a framework's autograd records it; it holds no arrays.

    The operands, and last the cotangent, have numbered places.
    """

    @property
    def is_differentiable(self) -> bool:
        """Whether the framework also records what :meth:`value` does; under a memory limit it must not."""

    @property
    def places(self) -> int:
        """The number of places: the operands and the cotangent."""

    @property
    def conjugated(self) -> tuple[int, ...]:
        """The places of the operands that are conjugated for the result."""

    def dtype(self, place: int) -> str:
        """The dtype of the array in a place, by name."""

    def value(self, place: int, arrays: Sequence[Any], beside: int = 0, conjugated: Collection[int] = ()) -> Array:
        """The gradient by the operand in ``place``, in the dtype of the result; in the last place, the result.

        Args:
            place: the place to compute.
            arrays: the arrays in all places; the one in ``place`` is ignored.
            beside: bytes of the gradients that are computed already.
            conjugated: the places whose arrays are conjugated.

        Raises:
            MemoryLimitError: the computation does not fit; the forward call checks this in advance.
        """


class Gradients(ABC):
    """Contractions whose derivatives einsumx supplies; elsewhere the framework differentiates plans."""

    @abstractmethod
    def needed(self, array: Array) -> bool:
        """Whether the framework is recording operations on ``array`` to differentiate them."""

    def may_be_needed(self, array: Array) -> bool:
        """Whether somebody may ask for a derivative by ``array`` of a result computed from it now."""
        return self.needed(array)

    def constant(self, array: Array) -> Array:
        """The values of ``array``, by which nobody asks for a derivative later; :meth:`needed` was False for it."""
        return array

    @abstractmethod
    def recorded(
        self, call: Recorded, run: Callable[[], Array], operands: Sequence[Any], numbers: Sequence[int]
    ) -> Array:
        """The result of ``run``, recorded such that ``call`` supplies the gradients by the operands ``numbers``."""

    @abstractmethod
    def embed_diagonal(self, array: Array) -> Array:
        """The last axis becomes two, with the array as their diagonal and zeros elsewhere."""


class TracedCall(Protocol):
    """A contraction under a memory limit in a traced program; two that compute the same are equal."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""

    @property
    def dtype(self) -> str:
        """The result's dtype, by name."""

    @property
    def arguments(self) -> tuple[str, tuple[int, ...], int, str, str | None, tuple[int, ...]]:
        """Those of :attr:`einsumx.adapters.hooks.traced_call` beside the operands, as texts and numbers."""

    def check(self) -> None:
        """Raise MemoryLimitError if no blocks are small enough."""

    def written(self, operands: Sequence[Any]) -> Array:
        """The result, from what :class:`TracedLoops` records."""

    def tangent(self, number: int, operands: Sequence[Any], tangent: Array) -> Array:
        """The tangent of the result from that of one operand, within the same limit; BackendError if there is none."""

    def cotangent(self, number: int, operands: Sequence[Any], cotangent: Array) -> Array:
        """The cotangent of an operand from that of the result, within the same limit; complex numbers stay as they are.

        The operand itself is ignored.
        """

    def batched(self, operands: Sequence[Any], axes: Sequence[int | None]) -> Array:
        """The results for all operands along a new axis, the first of the result, within the same limit.

        ``axes`` says where the operands have that axis; None if they lack it.
        """


class TracedLoops(Part):
    """Contractions under a memory limit in a traced program, as loops of the framework's compiler.

    The compiler must not compute or read anything earlier than after the array that a method names for it, as it would
    take memory sooner.

    Attributes:
        gaps: the part of the memory that the compiler may leave between arrays, whose places it fixes in advance.
        scalars: bytes for counters, and for arrays whose addresses have to be multiples of a number.
        counts_results: whether results count, as outside of a trace.
    """

    gaps: float = 0.0
    scalars: int = 0
    counts_results: bool = False

    def is_traced(self, arrays: Sequence[Array]) -> bool:
        """Whether operations on these arrays are traced now."""
        raise NotImplementedError

    def known(self, array: Array) -> Array:
        """The array, with known sizes if the framework can make them known; BackendError if it cannot be cut."""
        return array

    def workspace(self, op: Op, operands: Sequence[Operand], device: str = "") -> int:
        """The most bytes that a compiled program takes to run ``op``, without its result."""
        workspace: int = self.adapter.workspace(op, operands, device)
        return workspace

    def recorded(self, call: TracedCall, operands: Sequence[Array]) -> Array:
        """The result of ``call``, as one operation with its derivatives, if the framework has such."""
        return call.written(operands)

    def loop(self, count: int, body: Callable[[Any, Array], Array], carry: Array) -> Array:
        """``carry`` after ``carry = body(number, carry)`` for each number below ``count``."""
        raise NotImplementedError

    def part(self, array: Array, box: Sequence[tuple[Any, int]], after: Array | None) -> Array:
        """The elements in ``box``, which has a start and a size for each axis, read after another array is computed.

        A part that would end outside of the array starts earlier.
        """
        raise NotImplementedError

    def put(self, out: Array, starts: Sequence[Any], block: Array) -> Array:
        """``out`` with a block in its dtype written at ``starts``, in place; a start may be too large, as in a part."""
        raise NotImplementedError

    def filled(self, like: Sequence[Array], shape: tuple[int, ...], value: float, dtype: str, after: Any) -> Array:
        """An array of one value on the devices of others, made after another array is computed."""
        raise NotImplementedError

    def as_dtype(self, array: Array, dtype: str) -> Array:
        """``array`` in another dtype; its real part if that is real."""
        raise NotImplementedError

    def on_diagonal(self, array: Array, term: Sequence[int]) -> Array:
        """The array with an axis for each label of ``term``, which may repeat, and zeros off their diagonals.

        The axes of the array are those labels, each once, in the same order.
        """
        raise NotImplementedError


class MemoryOrders(Part):
    """The memory orders of arrays, for ``order=``."""

    def arrange(self, array: Array, order: str) -> Array:
        """``array`` in memory order ``"C"`` or ``"F"``."""
        raise NotImplementedError("the backend does not define arrange(array, order)")

    def is_fortran(self, array: Array) -> bool:
        """Whether ``array`` is F-contiguous, for ``order="A"``; an array of at most one axis is."""
        raise NotImplementedError("the backend does not define is_fortran(array)")


class Exponents(Part):
    """Arrays scaled by exact powers of two, for :func:`einsumx.einsum_frexp`."""

    def magnitudes(self, array: Array) -> Any:
        """The array as one of NumPy, or a number or fewer elements with the same largest magnitude of a finite part.

        The parts of a complex number are its real and its imaginary part; one with an infinity or nan must stay one.
        The default copies all of the array to the host; a framework for which that is slow overrides it.
        """
        is_wide = self.adapter.dtype_name(array.dtype) != "bfloat16"  # which NumPy lacks
        return self.adapter.to_numpy(array if is_wide else self.adapter.cast(array, "float32"))

    def times_factor(self, array: Array, factor: float, dtype: str, is_new: bool) -> Array:
        """``array * factor`` for a power of two that ``dtype`` holds; ``is_new`` if the array may be written to."""
        arithmetic = self.adapter.arithmetic
        return (arithmetic.scaled_new if is_new else arithmetic.scaled)(array, factor, dtype)

    def normalized_in_trace(self, array: Array, exponent: Any) -> tuple[Array, Array] | None:
        """``array * 2**exponent`` as a mantissa and an exponent, an integer array without axes; None if it has values.

        Derivatives take the exponent as a constant. See :func:`einsumx.algebra.scaled.normalized`.
        """
        return None

    def as_exponent(self, exponent: Any) -> Any:
        """The exponent of a result for users: an int if its value is known."""
        return exponent


class Semirings(Part):
    """The functions of semirings. The defaults need names alone, and are right for every library that has them."""

    fuses_terms: bool = False
    """Whether a broadcast and the reduction that follows become one loop, without the memory of the broadcast array."""

    has_branches: bool = False
    """Whether :meth:`branch` works while elements have no values."""

    names: Mapping[str, str] = MappingProxyType({})
    """The library's names, with dots for submodules, of those functions that :meth:`named` has by other names."""

    def mode(self, array: Array) -> AbstractContextManager[Any]:
        """A context for the functions' calls on ``array`` outside of plans, such as its device, or no warnings."""
        return nullcontext()

    def named(self, name: str) -> Callable[..., Any]:
        """The library's function of that name in the array API standard.

        Those that semirings need are ``maximum``, ``minimum``, ``add`` and ``multiply``; with keywords
        ``axis=`` and ``keepdims=``, ``max`` and ``min``; ``exp``, ``log``, ``isfinite``, ``where``, ``all``; and with
        ``axis=``, ``squeeze`` and ``concat``.
        """
        function: Callable[..., Any] = attrgetter(self.names.get(name, name))(self.xp)
        return function

    def branch(self, condition: Array, first: Callable[[], Array], second: Callable[[], Array]) -> Array:
        """``first()`` if a condition without a value yet turns out to be true, otherwise ``second()``."""
        raise NotImplementedError("set has_branches only with a branch()")

    def detached(self, array: Array) -> Array:
        """``array`` without derivatives, where the framework has any and a constant saves their computation."""
        return array

    def has_values(self, array: Array) -> bool:
        """Whether a choice may depend on the values of an array."""
        known: bool = self.adapter.has_values(array)
        return known

    def checkpointed(self, function: Callable[..., Array]) -> Callable[..., Array]:
        """``function``, of which derivatives keep the arguments, and compute the rest again."""
        return function

    def elementwise(self, name: str, lhs: Array, rhs: Array) -> Array:
        """A function of elements, which broadcasts: ``maximum``, ``minimum``, ``add``, ``multiply``, ``logaddexp``."""
        if name != "logaddexp":
            return self.named(name)(lhs, rhs)
        exp, shift = self.named("exp"), self.finite(self.named("maximum")(lhs, rhs))
        return self.named("log")(exp(lhs - shift) + exp(rhs - shift)) + shift

    def reduced(self, name: str, array: Array, axes: tuple[int, ...]) -> Array:
        """The reduction over ``axes`` by ``maximum``, ``minimum`` or ``logaddexp``, of at least one element.

        A nan is passed on. The log-sum-exp of minus infinities is minus infinity, with derivatives of 0, and with an
        infinity it is that.
        """
        if name != "logaddexp":
            return self.named("max" if name == "maximum" else "min")(array, axis=axes)
        where = self.named("where")
        largest = self.detached(self.named("max")(array, axis=axes, keepdims=True))
        total = self.adapter.sum(self.named("exp")(array - self.finite(largest)), axes)
        largest = self.named("squeeze")(largest, axis=axes)
        # An infinity or nan is the result itself. The derivative of the logarithm at 0 would be nan.
        is_finite = self.named("isfinite")(largest)
        one = self.adapter.arithmetic.number(1.0, self.adapter.dtype_name(array.dtype), total)
        return where(is_finite, self.named("log")(where(is_finite, total, one)) + largest, largest)

    def finite(self, array: Array) -> Array:
        """``array`` with 0 in the place of an infinity or nan."""
        zero = self.adapter.arithmetic.number(0.0, self.adapter.dtype_name(array.dtype), array)
        return self.named("where")(self.named("isfinite")(array), array, zero)

    def copied_order(self, array: Array) -> Array:
        """``array`` in C order, in which an elementwise function may not have returned it."""
        return array

    def product(
        self, add: str, multiply: str, lhs: tuple[int, ...], rhs: tuple[int, ...], dtype: str
    ) -> Callable[[Array, Array], Array] | None:
        """A kernel that multiplies matrices ``[batch, m, k]`` and ``[batch, k, n]`` in a semiring.

        None, the default, to compose it: of a broadcast and a reduction, some rows at a time; sums of exponentials of
        products of matrices, if no sum underflows, and elements have values or the framework has branches.

        Args:
            add: the function of the semiring for sums, which is not that of truth values.
            multiply: its function for products.
            lhs: shape of the first matrices; a batch axis of size 1 broadcasts.
            rhs: shape of the second ones.
            dtype: of both, and of the result.
        """
        return None

    def workspace(self, add: str, multiply: str, lhs: tuple[int, ...], rhs: tuple[int, ...], dtype: str) -> int | None:
        """The most bytes that :meth:`product` allocates while it runs, besides its result.

        None for those of the composed product.
        """
        return None

    # -- for argmax -------------------------------------------------------------------------------------

    has_positions: bool = True
    """Whether semirings have an ``argmax``, which indexes arrays by computed ones."""

    def best(self, array: Array, is_least: bool) -> Array:
        """The position of the largest element, or the least, along the last axis: the first, or that of the first nan.

        The array has elements, and a floating-point dtype or uint8. Positions have the dtype int64, or the widest of
        the framework's integers.
        """
        return (self.xp.argmin if is_least else self.xp.argmax)(array, axis=-1)

    def places(self, start: int, stop: int, like: Array) -> Array:
        """The integers from ``start`` to ``stop``, in the dtype of positions and on the device of ``like``."""
        return self.xp.arange(start, stop)

    def rows(self, matrix: Array, places: Array) -> Array:
        """The rows of a matrix at ``places``, one row for each."""
        return self.xp.take(matrix, places, axis=0)

    def joined(self, arrays: Sequence[Array], axis: int = 0) -> Array:
        """Arrays one after another, along an axis."""
        joined: Array = arrays[0] if len(arrays) == 1 else self.named("concat")(arrays, axis=axis)
        return joined


_LACKS = {"out": "its arrays cannot be written to; omit out= and use the result"}
"""Why a framework lacks a part, if its adapter does not say; other parts have the usual words."""

_USUAL = "its backend has no functions for that; convert the operands to NumPy arrays"


def why_missing(adapter: Any, part: str) -> str:
    """Why a framework lacks a part, and what to do."""
    why: str = adapter.missing.get(part, _LACKS.get(part, _USUAL))
    return why


def _refuse(adapter: Any, part: str) -> NoReturn:
    raise BackendError(f"{adapter.name}: {why_missing(adapter, part)}")


def blocks_of(adapter: Any) -> BlockAccess:
    """The blocks of a framework's arrays; a BackendError if contractions of them cannot keep a memory limit."""
    blocks: BlockAccess = adapter.blocks or _refuse(adapter, "blocks")
    return blocks


def loops_of(adapter: Any) -> TracedLoops:
    """How a framework writes loops in a traced program; a BackendError if it writes none."""
    loops: TracedLoops = adapter.loops or _refuse(adapter, "loops")
    return loops


def out_of(adapter: Any) -> OutAccess:
    """How a framework's arrays are written to; a BackendError if they cannot be."""
    out: OutAccess = adapter.out or _refuse(adapter, "out")
    return out


def exponents_of(adapter: Any) -> Exponents:
    """How a framework's arrays are scaled; a BackendError if they cannot be."""
    exponents: Exponents = adapter.exponents or _refuse(adapter, "exponents")
    return exponents


def semirings_of(adapter: Any) -> Semirings:
    """A framework's functions of semirings; a BackendError if it has none."""
    semirings: Semirings = adapter.semirings or _refuse(adapter, "semirings")
    return semirings


def needs_gradient(adapter: Any, array: Array) -> bool:
    """Whether a framework is recording operations on ``array`` to differentiate them."""
    return adapter.gradients is not None and bool(adapter.gradients.needed(array))
