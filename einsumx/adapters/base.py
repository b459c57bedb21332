"""What einsumx asks of a framework: a class with about ten primitives and the framework's traits.

A new backend is one file with one subclass of :class:`Adapter`; see ``backends/`` for examples and the
README for how to register it. Constructing an adapter imports nothing: ``self.xp`` is the framework,
imported when it is first touched, so that plans for a framework can be made where it is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from einsumx.adapters.dialect import Spelling
from einsumx.adapters.replacement import Name, own
from einsumx.adapters.traits import Traits
from einsumx.adapters.typing import Array, Recorded, Run, Signature
from einsumx.dtypes import Casting, can_cast
from einsumx.errors import BackendError, EinsumxError, shown
from einsumx.ir.ops import (
    Cast,
    Copy,
    Diagonal,
    Expand,
    First,
    Matmul,
    Multiply,
    Native,
    Op,
    Reshape,
    Scale,
    Sum,
    Transpose,
    Zeros,
)
from einsumx.ir.program import Operand, Program

if TYPE_CHECKING:
    from einsumx.adapters.staging import Ring

__all__ = ["Adapter", "Array", "Run", "Signature"]


class Adapter:
    """A framework as einsumx sees it. Subclass, set the class attributes, override the primitives.

    Every primitive here is written against the names that NumPy and the array API standard share, so that
    a subclass overrides only where its framework differs.
    """

    name: str
    """What users call the backend: ``einsumx.plan(..., backend=name)``."""

    module: str
    """What ``import`` calls it, and the first part of the module name of its array types."""

    install: str
    """How a person installs it, for messages: ``pip install numpy``."""

    cpu: Traits
    """The traits on the CPU, and wherever :meth:`traits` says nothing else."""

    device_kinds: tuple[str, ...] = ()
    """The kinds of device that its arrays can be on, ``("cpu", "cuda")``; empty where the framework alone knows."""

    out_of_memory: tuple[str, ...] = ("out of memory",)
    """What is in the messages of RuntimeErrors that say that memory ran out, beside MemoryError, which says it too."""

    verified: bool = True
    """Whether the test suite has run on the real framework, and not only on a stand-in."""

    @cached_property
    def xp(self) -> Any:
        """The framework's array namespace, imported at first use."""
        return import_module(self.module)

    def __repr__(self) -> str:
        return f"<einsumx backend {self.name!r}>"

    # -- which arrays -----------------------------------------------------------------------------------

    def serving(self, kind: type) -> Adapter:
        """The adapter for arrays of this type: this one, but for a backend that is one for several kinds of them."""
        return self

    def check_type(self, kind: type) -> None:
        """Raise BackendError for an array type of the framework that einsum would treat wrongly."""

    def is_plain(self, kind: type) -> bool:
        """Whether arrays of this type are worked on as they are; others go through :meth:`plain` first."""
        return True

    def plain(self, array: Array) -> Array:
        """An array of a subclass, or a scalar of the framework's, as the framework's plain array type."""
        return array

    def needs_gradient(self, array: Array) -> bool:
        """Whether the framework is recording what is done with ``array``, to differentiate it."""
        return False

    def records(self, array: Array) -> bool:
        """Whether a derivative by ``array`` may be asked for of what is computed of it now."""
        return self.needs_gradient(array)

    def recorded(
        self, call: Recorded, run: Callable[[], Array], operands: Sequence[Any], numbers: Sequence[int]
    ) -> Array:
        """The result of ``run``, whose gradients by the operands ``numbers`` are those that ``call`` gives."""
        raise NotImplementedError

    def embed_diagonal(self, array: Array) -> Array:
        """The last axis becomes two, of which the array is the diagonal; all else is zero."""
        raise NotImplementedError

    # -- describing arrays ------------------------------------------------------------------------------

    def traits(self, device: str) -> Traits:
        """The traits on ``device`` (``"cpu"``, ``"cuda:0"``; ``""`` where it is not known yet)."""
        return self.cpu

    def signature(self, array: Array) -> Signature:
        """Type, shape, dtype and what else tells arrays apart; the key of every cache, and so taken at every call.

        It may fail, with AttributeError or TypeError, for what is no array of the framework.
        """
        return type(array), tuple(array.shape), array.dtype, self.device(array)

    def signatures(self, written: Any, arrays: Sequence[Array]) -> tuple[Signature, ...]:
        """The signatures of a contraction's operands.

        Overridden where arrays do not show all that they are planned by, and the equation, which ``written`` is as
        text or sublists, tells more.
        """
        return tuple(map(self.signature, arrays))

    def device(self, array: Array) -> str:
        """The device that holds ``array``, by name."""
        return "cpu"

    def device_of(self, signature: Signature) -> str:
        """The device of a signature by name; empty where the array, such as a traced one, goes to any."""
        return str(signature[3])

    def operand(self, signature: Signature) -> Operand:
        """The planner's view of a signature: strides in elements (None: C-contiguous), dtype by name."""
        _, shape, dtype, *_ = signature
        return Operand(shape, self.dtype_name(dtype))

    def dtype_name(self, dtype: Any) -> str:
        """NumPy's name of one of the framework's dtypes.

        Raises:
            BackendError: einsum makes no sense for it.
        """
        return str(getattr(dtype, "name", dtype))

    def dtype(self, name: str) -> Any:
        """The framework's dtype of that name.

        Raises:
            BackendError: the framework has no such dtype.
        """
        found = getattr(self.xp, name, None)
        if found is None:
            raise BackendError(f"{self.name} has no dtype {shown(name)}")
        return found

    def promote(self, dtypes: Sequence[str]) -> str:
        """The dtype of a product of arrays of ``dtypes``, by the framework's own rules."""
        return self.dtype_name(self.xp.result_type(*(self.dtype(name) for name in dtypes)))

    def promote_weak(self, dtypes: Sequence[str], weak: Sequence[str]) -> str:
        """The same, where arrays of dtypes ``weak`` yield to the others (:attr:`~einsumx.ir.program.Operand.weak`)."""
        return self.promote([*dtypes, *weak])

    def can_cast(self, source: str, target: str, casting: Casting) -> bool:
        """Whether NumPy's rule ``casting`` allows the cast."""
        return can_cast(source, target, casting)

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        """A Python scalar or nested list as an array on the device of ``like``, the first array of the call.

        Its dtype follows ``dtype``, the promotion of the arrays of the call, where the framework's own promotion has
        Python scalars follow arrays. Where the call has none, ``like`` is None and ``dtype`` is empty.
        """
        return self.xp.asarray(value)

    # -- primitives -------------------------------------------------------------------------------------

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        """Axis ``k`` of the result is axis ``axes[k]`` of ``array``."""
        return self.xp.transpose(array, axes)

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        """The same elements in C order; never asked to copy by the planner."""
        return self.xp.reshape(array, shape)

    def expand(self, array: Array, shape: tuple[int, ...]) -> Array:
        """A read-only view in which axes of size 1 have the sizes of ``shape``; asked only where there are strides."""
        return self.xp.broadcast_to(array, shape)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        """Two axes become one, in the last place."""
        return self.xp.diagonal(array, 0, axis1, axis2)

    def copy(self, array: Array) -> Array:
        """A fresh C-contiguous array."""
        raise NotImplementedError

    def cast(self, array: Array, dtype: str) -> Array:
        """``array`` in another dtype; to bool: whether not zero."""
        return array.astype(self.dtype(dtype))

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        """The sum over ``axes`` in the array's own dtype: integers wrap, bools are or-ed."""
        raise NotImplementedError

    def scale(self, array: Array, count: int) -> Array:
        """The sum of ``count`` arrays that are all equal to ``array``; asked only where there are strides.

        It is summed by doubling. Overridden where a product with the count gives the same: of complex numbers it is to
        be taken of each part, as an infinity times a complex count would be nan.
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
        """Zeros on the device of ``arrays``, whose gradients are zeros: the result where a label has size 0."""
        numpy = import_module("numpy")
        try:
            known = numpy.dtype(dtype)
        except TypeError:  # NumPy has no such dtype
            known = numpy.dtype("float32")
        array = self.from_numpy(numpy.zeros(shape, known), self.device(arrays[0]))
        return array if known.name == dtype else self.cast(array, dtype)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        """The elementwise product, broadcasting."""
        return self.xp.multiply(lhs, rhs)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        """The matrix product over the last two axes; the flags are set only where the traits say so."""
        return self.xp.matmul(lhs, rhs)

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        """The framework's own einsum: a primitive where the traits ask for it, else only compared against."""
        return own(self.xp.einsum)(equation, *arrays)

    def kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        """The function that executes ``op`` on its sources, an argument each: here, the primitive of its name.

        Overridden where the sizes decide how an op runs best: it is asked once a plan, and called at every run.

        Args:
            op: what to execute.
            shapes: of its sources.
            dtype: of its first source, which is that of all.
        """
        match op:
            case Transpose():
                transpose, axes = self.transpose, op.axes
                return lambda source: transpose(source, axes)
            case Reshape():
                reshape, shape = self.reshape, op.shape
                return lambda source: reshape(source, shape)
            case Expand():
                return lambda source: self.expand(source, op.shape)
            case First():
                ranks = range(len(shapes[0]))
                index = (*(0 if axis in op.axes else slice(None) for axis in ranks), ...)  # an array, even without axes
                return lambda source: source[index]
            case Diagonal():
                return lambda source: self.diagonal(source, op.axis1, op.axis2)
            case Copy():
                return self.copy
            case Cast():
                return lambda source: self.cast(source, op.dtype)
            case Sum():
                return lambda source: self.sum(source, op.axes)
            case Scale():
                return lambda source: self.scale(source, op.count)
            case Multiply():
                return self.multiply
            case Matmul():
                matmul, transpose_lhs, transpose_rhs = self.matmul, op.transpose_lhs, op.transpose_rhs
                return lambda lhs, rhs: matmul(lhs, rhs, transpose_lhs, transpose_rhs)
            case Native():
                return lambda *arrays: self.native(op.equation, arrays)
            case Zeros():
                return lambda *arrays: self.zeros(arrays, op.shape, op.dtype)

    def workspace(self, op: Op, operands: Sequence[Operand]) -> int:
        """Bytes that the kernel of ``op`` allocates while it runs, at most, besides its result.

        It is asked of plans for frameworks that are not installed, too.

        Args:
            op: what is executed.
            operands: its sources; strides are those of their layout class.
        """
        return 0

    def prepare(self, run: Run, plan: Program) -> Run:
        """A last chance to wrap what executes a plan, or a part of it: to jit it, or to set a mode around it."""
        return run

    def spelling(self) -> Spelling:
        """How the framework's calls are spelled in code, for :meth:`einsumx.Plan.source`.

        The default spells the defaults of the primitives here; where a primitive is overridden, its spelling is, too.
        """
        return Spelling(self.module)

    # -- results ----------------------------------------------------------------------------------------

    def element(self, array: Array) -> Array:
        """A result without axes in the form in which the framework's own einsum gives it."""
        return array

    def boxed(self, result: Any, dtype: str) -> Array:
        """The result of a plan of ``dtype`` as a plain array again, where :meth:`element` gave something else."""
        return self.plain(result)

    def arrange(self, array: Array, order: str) -> Array:
        """``array`` in memory order ``"C"`` or ``"F"``; asked only where the traits have memory order."""
        raise NotImplementedError

    def is_fortran(self, array: Array) -> bool:
        """Whether ``array`` is F-contiguous and not C-contiguous, which is what ``order="A"`` asks."""
        return False

    def check_out(self, out: Array, operands: Sequence[Array]) -> None:
        """Raise BackendError where ``out`` cannot be written, before any work is done."""
        raise BackendError(f"{self.name} arrays cannot be written to; leave out= away and use the result")

    def write(self, out: Array, result: Array) -> None:
        """Copy ``result`` into ``out``, casting; ``result`` may be a view of memory that ``out`` overlaps."""
        raise NotImplementedError

    # -- einsumx behind the framework's own name ----------------------------------------------------------

    def names(self) -> Iterable[Name]:
        """The names under which people call the framework's einsum, for :func:`einsumx.patch`; none if it has none."""
        if hasattr(self.xp, "einsum"):
            yield Name(self.xp, "einsum")

    # -- blocks -----------------------------------------------------------------------------------------

    def check_eager(self, array: Array) -> None:
        """Raise BackendError for an operand that has no memory, but is traced: no limit can be kept for it."""

    def is_lazy(self, array: Array) -> bool:
        """Whether its elements are computed where it is read, so that blocks of it are copied to be views of memory."""
        return False

    def part(self, array: Array, box: tuple[slice, ...]) -> Array:
        """What lies in ``box``, a range of each axis: a view, where there are views."""
        return array[box]

    def add(self, total: Array, part: Array) -> Array:
        """``total + part`` of arrays that nothing else sees: in the memory of ``total``, where the framework can.

        Bools are or-ed, integers wrap. Where the framework works asynchronously, it is waited for: so it is with
        :meth:`put`, as what is only queued holds on to its blocks.
        """
        return total + part

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        """An array whose blocks are all going to be written."""
        return self.xp.empty(shape, dtype=self.dtype(dtype))

    def put(self, out: Array, box: tuple[slice, ...], block: Array) -> Array:
        """``out`` with a block written into the part that lies in ``box``: itself, where arrays can be written to."""
        out[box] = block
        return out

    def in_place(self, array: Any) -> Array | None:
        """The memory of a plain NumPy array as an array of the framework, to be read alone; None where it is copied."""
        return None

    def carried(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` as another thread is to call it: with the settings that hold in this thread alone."""
        return function

    def may_overlap(self, out: Array, array: Array) -> bool:
        """Whether what is written to ``out`` can change ``array``, both arrays of the framework; True if unknown."""
        return True

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether an error says that there was not enough memory for an array of the framework, or of the host."""
        if isinstance(error, EinsumxError):
            return False
        return isinstance(error, MemoryError) or (
            isinstance(error, RuntimeError) and any(text in str(error) for text in self.out_of_memory)
        )

    def find_device(self, name: str) -> str:
        """A device that a user named, by the name that its arrays give it.

        Raises:
            BackendError: there is none of that name.
        """
        try:
            found = self.device(self.empty((0,), "float32", name))
        except Exception as error:
            raise BackendError(f"{self.name} finds no device {shown(name)}: {error}") from error
        if found.partition(":")[0] != name.partition(":")[0]:
            raise BackendError(f"{self.name} finds no device {shown(name)}; there is {found}")
        return found

    def free_bytes(self, device: str) -> int | None:
        """Bytes of memory that are free on the device; None where that is not known."""
        return None

    # -- to and from the host, for people's eyes, tests and benchmarks -------------------------------------

    def from_numpy(self, array: Any, device: str = "") -> Array:
        """A NumPy array as an array of the framework, on ``device`` (its default one where empty)."""
        return self.xp.asarray(array)

    def to_numpy(self, array: Array) -> Any:
        """The values of ``array`` as a NumPy array."""
        return import_module("numpy").asarray(array)

    def move(self, array: Array, device: str) -> Array:
        """``array`` on ``device``: itself, where it lies there, or where the name is empty."""
        if device in ("", self.device(array)):
            return array
        return self.from_numpy(self.to_numpy(array), device)

    def ring(self, device: str) -> Ring | None:
        """The pinned buffers through which NumPy arrays reach ``device``; None where :meth:`from_numpy` brings them."""
        return None

    def synchronize(self, array: Array) -> None:
        """Wait until ``array`` is computed, where the framework works asynchronously."""
