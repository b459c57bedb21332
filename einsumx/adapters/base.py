"""The base class of backends: primitives, the framework's traits, and its optional features.

A backend is one subclass of :class:`Adapter`: ``backends/`` has examples, and docs/backends.md explains them.
Constructing an adapter imports nothing. ``self.xp`` imports the framework on first access, so einsumx can plan for a
framework that is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from math import inf
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from einsumx.adapters.arrays import Arrays
from einsumx.adapters.typing import Array, Run, Signature
from einsumx.dtypes import can_cast
from einsumx.errors import BackendError
from einsumx.imports import LazyModule
from einsumx.ir import ops
from einsumx.ir.operand import Operand
from einsumx.ir.program import Program

if TYPE_CHECKING:
    from typing_extensions import Self

    from einsumx.adapters import facets, replacement
    from einsumx.adapters.facets import (
        Arithmetic,
        BlockAccess,
        Exponents,
        Gradients,
        MemoryOrders,
        OutAccess,
        Semirings,
        TracedLoops,
    )
    from einsumx.adapters.options import FrameworkOptions
    from einsumx.adapters.replacement import Name
    from einsumx.ir.contraction import Contraction
else:
    facets, replacement = LazyModule("einsumx.adapters.facets"), LazyModule("einsumx.adapters.replacement")

__all__ = ["Adapter", "Array", "Primitives", "Run", "Signature"]

np: Any = LazyModule("numpy")


class Primitives(Arrays):
    """The array calls that plans consist of, beside indexing with 0 and ``:``.

    Every backend implements ``copy`` and ``sum``. The others have defaults, by names that NumPy and the array API
    standard share. All arguments have been checked, and none has to be broadcast, promoted or converted. Operands are
    never written to. Each result is an array of the library in its dtype, also without axes; it is a fresh one in C
    order, except that of :meth:`reshape`, and of views if the traits have strides.
    """

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        """Axis ``k`` of the result is axis ``axes[k]`` of ``array``; a view if the traits have strides."""
        return self.xp.transpose(array, axes)

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        """The same elements in C order; the planner only asks for reshapes that need no copy."""
        return self.xp.reshape(array, shape)

    def expand(self, array: Array, shape: tuple[int, ...]) -> Array:
        """A read-only view with axes of size 1 broadcast to ``shape``; called only if the traits have strides."""
        return self.xp.broadcast_to(array, shape)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        """The diagonal of two axes, as the last axis; a view if the traits have strides."""
        return self.xp.diagonal(array, 0, axis1, axis2)

    def copy(self, array: Array) -> Array:
        """A fresh C-contiguous array."""
        raise NotImplementedError("the backend does not define copy(array)")

    def cast(self, array: Array, dtype: str) -> Array:
        """``array`` in another dtype; a cast to bool gives True for all but zero."""
        return array.astype(self.dtype(dtype))

    def conjugate(self, array: Array, lazily: bool) -> Array:
        """The complex conjugate of each element of an array in C order.

        If ``lazily``, it may be a view that conjugates when it is read, as only a product of two matrices does.
        """
        return self.xp.conj(array)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        """The sum over ``axes`` in the array's own dtype: integers wrap, bools are or-ed."""
        raise NotImplementedError("the backend does not define sum(array, axes)")

    def scale(self, array: Array, count: int) -> Array:
        """The sum of ``count`` arrays that are equal to ``array``; called only if the traits have strides.

        This sums by doubling. Override it if multiplying by ``count`` gives the same result; for complex numbers,
        multiply the real and imaginary parts separately, because an infinity times a complex count contains nan.
        """
        total = None
        while True:
            if count & 1:
                total = array if total is None else total + array
            count >>= 1
            if not count:
                return total
            array = array + array

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        """Zeros on the device of ``arrays``, with zeros as gradients: the result if a summed label has size 0."""
        array = self.from_numpy(np.zeros(shape, "float32"), self.device(arrays[0]))
        return self.cast(array, dtype)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        """The elementwise product, broadcasting; bools are and-ed."""
        return self.xp.multiply(lhs, rhs)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        """The matrix product over the last two axes; the flags are set only if the traits allow them."""
        return self.xp.matmul(lhs, rhs)

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        """The framework's own einsum: plans use it if the traits allow it, benchmarks always."""
        return replacement.own(self.xp.einsum)(equation, *arrays)


def _needs_program(adapter: Adapter, run: Run, is_loud: bool) -> None:
    """The :meth:`Adapter.prepare_plain` of a class whose ``prepare`` may look at the program."""


class Adapter(Primitives):
    """A framework as einsumx sees it. Subclass it, set the class attributes and override the primitives.

    The primitives use names that NumPy and the array API standard share, so a subclass overrides only those in which
    its framework differs. Each further feature is a part, a class of :mod:`einsumx.adapters.facets`; a framework that
    lacks it has None.
    """

    missing: Mapping[str, str] = MappingProxyType({})
    """By the name of a part that the framework lacks, such as ``"blocks"``: why it does, and what to do."""

    @cached_property
    def blocks(self) -> BlockAccess | None:
        """Contractions under a memory limit; None if the framework cannot keep one."""
        return facets.BlockAccess(self)

    @cached_property
    def loops(self) -> TracedLoops | None:
        """The same in a traced program; None if the framework traces none, or writes no loops there."""
        return None

    @cached_property
    def out(self) -> OutAccess | None:
        """``out=``; None if the framework's arrays cannot be written to."""
        return None

    @cached_property
    def arithmetic(self) -> Arithmetic:
        """Numbers times arrays, and sums of two arrays."""
        return facets.Arithmetic(self)

    @cached_property
    def orders(self) -> MemoryOrders | None:
        """Memory orders; None if ``order=`` has no effect on the framework's arrays."""
        return None

    @cached_property
    def exponents(self) -> Exponents | None:
        """Arrays scaled by powers of two; None if nothing is known of elements before they are computed."""
        return facets.Exponents(self)

    @cached_property
    def semirings(self) -> Semirings | None:
        """The functions of semirings; None if it has none but those of truth values, which need no others."""
        return None

    @cached_property
    def gradients(self) -> Gradients | None:
        """Gradients of contractions under a memory limit; None if the framework records none of these."""
        return None

    def has_values(self, array: Array) -> bool:
        """Whether the values of an array are known, and nothing traces the call."""
        if self.blocks is None:
            return False
        try:
            self.blocks.check_eager(array)
        except BackendError:
            return False
        return True

    def lasting(self, arrays: Sequence[Array]) -> AbstractContextManager[Any] | None:
        """A context in which results of ``arrays`` outlast the call: nothing records, traces or casts operations there.

        None if they do not outlast it, because ``arrays`` belong to a trace. The constants of an expression are folded
        in this context, and again in each call without one.
        """
        return nullcontext()

    def element(self, array: Array) -> Array:
        """A result without axes, in the form that the framework's own einsum returns."""
        return array

    def boxed(self, result: Any, dtype: str) -> Array:
        """The inverse of :meth:`element`: the result of a plan of ``dtype`` as a plain array."""
        return self.plain(result)

    def serving(self, kind: type) -> Adapter:
        """The adapter for arrays of this type; another one if the backend has several kinds of arrays."""
        return self

    def of(self, arrays: Sequence[Array]) -> Adapter:
        """The adapter for arrays of one call; another one if it depends on more than their types."""
        return self

    def takes_arrays_of(self, other: Adapter) -> bool:
        """Whether it also takes the arrays of another adapter, beside those that it serves."""
        return False

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        """A Python scalar or nested list as an array on the device of ``like``, the first array of the call.

        A scalar adopts ``dtype``, the promotion of the arrays of the call, if that is of its kind or a wider one;
        override it if the framework promotes otherwise. In a call without arrays, ``like`` is None and ``dtype`` is
        empty.
        """
        host = np.asarray(value)
        adopts = dtype and not isinstance(value, list | tuple) and can_cast(host.dtype.name, dtype, "same_kind")
        array = self.from_numpy(host, "" if like is None else self.device(like))
        return self.cast(array, dtype) if adopts else array

    def kernel(self, op: ops.Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        """The function that executes ``op``, with its sources as arguments. By default it calls the op's primitive.

        Override it if the best way to run an op depends on its sizes: it is called once per plan, and the function it
        returns at every run.

        Args:
            op: the op to execute.
            shapes: the shapes of its sources.
            dtype: the dtype of its sources.
        """
        match op:
            case ops.First():
                # The ellipsis makes the result an array even without axes.
                index = (*(0 if axis in op.axes else slice(None) for axis in range(len(shapes[0]))), ...)
                return lambda source: source[index]
            case ops.Matmul():
                matmul, transpose_lhs, transpose_rhs = self.matmul, op.transpose_lhs, op.transpose_rhs
                if op.sums:
                    cast = partial(self.cast, dtype=op.sums)
                    return lambda lhs, rhs: matmul(cast(lhs), cast(rhs), transpose_lhs, transpose_rhs)
                return lambda lhs, rhs: matmul(lhs, rhs, transpose_lhs, transpose_rhs)
            case ops.Native():
                return lambda *arrays: self.native(op.equation, arrays)
            case ops.Zeros():
                return lambda *arrays: self.zeros(arrays, op.shape, op.dtype)
        primitive: Callable[..., Array] = getattr(self, op.name)
        if not op.parameters:
            return primitive
        argument = attrgetter(*op.parameters)(op)
        if len(op.parameters) == 1:
            return lambda source: primitive(source, argument)
        return lambda source: primitive(source, *argument)

    def workspace(self, op: ops.Op, operands: Sequence[Operand], device: str = "") -> int:
        """The most bytes that the kernel of ``op`` allocates while it runs, without its result.

        The framework need not be installed.

        Args:
            op: the op.
            operands: its sources; their strides are those of their layout class.
            device: that runs it.
        """
        return 0

    def prepare(self, run: Run, program: Program) -> Run:
        """Wrap the function that executes a plan or a part of one, for example to jit it or to set a mode around it."""
        return run

    def prepare_plain(self, run: Run, is_loud: bool) -> Run | None:
        """As :meth:`prepare`, for a function of numbers, not objects, and no option.

        A class that overrides :meth:`prepare` alone is asked for that each time.

        Args:
            run: the function, of the operands.
            is_loud: whether it may warn about infinities and nan.

        Returns:
            The function; None if it needs to know the program.
        """
        return run

    least_recorded: float = inf
    """The multiply-adds from which :meth:`recording` is asked, as if a call computed all of its products at once."""

    def recording(self, run: Run, contraction: Contraction, steps: Sequence[ops.Op]) -> Run:
        """Wrap the function of a call, to be another one for gradients if those of its ops would cost more.

        Args:
            run: the function, of the operands.
            contraction: the one that it computes, in the usual algebra.
            steps: its ops, of which reshapes may lack the shape.
        """
        return run

    def __init_subclass__(cls) -> None:
        if "prepare" in cls.__dict__ and "prepare_plain" not in cls.__dict__:
            cls.prepare_plain = _needs_program  # type: ignore[assignment, method-assign]

    def configured(self, options: FrameworkOptions) -> Self:
        """The adapter that runs plans with these options, some of which are set. It is used for nothing else.

        Raises:
            BackendError: the framework has no such keyword, or the value is wrong.
        """
        options.refuse(self.name)
        return self

    # -- the framework's own einsum ---------------------------------------------------------------------

    def names(self) -> Iterable[Name]:
        """The names that :func:`einsumx.patch` replaces; none if the framework has no einsum."""
        if hasattr(self.xp, "einsum"):
            yield replacement.Name(self.xp, "einsum")

    # -- plans as code ----------------------------------------------------------------------------------

    import_statement: str = ""
    """How the code of :meth:`einsumx.Plan.source` imports ``self.xp``; by default ``import module as xp``. A statement
    about ``{operand}``, the first operand, begins the function instead."""

    def public_class(self) -> type[Adapter]:
        """The class whose primitives become code: by default this one.

        These primitives call nothing but functions of ``self.xp`` and methods of arrays, by their public names. Of an
        array they know ``shape``, ``ndim`` and ``dtype``. Return a subclass if the primitives call anything else.
        """
        return type(self)

    def decorator(self, shapes: Sequence[tuple[int, ...]]) -> str:
        """The decorator of a function that has arrays of these shapes, as code; empty if it needs none."""
        return ""
