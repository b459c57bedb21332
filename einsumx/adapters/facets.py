"""What a backend may have beside its primitives: each class is for one thing that is asked of a contraction.

Their defaults do for a library whose arrays are sliced, added and assigned to as NumPy's are, or say that it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from einsumx.adapters.arrays import Arrays
from einsumx.adapters.replacement import Name
from einsumx.adapters.typing import Array, Recorded
from einsumx.errors import BackendError, EinsumxError, shown

if TYPE_CHECKING:
    from einsumx.adapters.staging import Ring

__all__ = ["BlockAccess", "Gradients", "Replaced", "Results", "Transfers"]


class Results(Arrays):
    """Results in the form, the memory order and the place that are asked for."""

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
        """Whether ``array`` is F-contiguous, as one of at most one axis is too; ``order="A"`` asks."""
        return False

    def check_out(self, out: Array, operands: Sequence[Array]) -> None:
        """Raise BackendError where ``out`` cannot be written, before any work is done."""
        raise BackendError(f"{self.name} arrays cannot be written to; leave out= away and use the result")

    def write(self, out: Array, result: Array) -> None:
        """Copy ``result`` into ``out``, casting; ``result`` may be a view of memory that ``out`` overlaps."""
        raise NotImplementedError


class BlockAccess(Arrays):
    """Blocks of arrays, as contractions under a memory limit are computed."""

    out_of_memory: tuple[str, ...] = ("out of memory",)
    """What is in the messages of RuntimeErrors that say that memory ran out, beside MemoryError, which says it too."""

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


class Transfers(Arrays):
    """Arrays on their way between the host and devices."""

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


class Gradients(Arrays):
    """What is asked where a derivative must be known of; elsewhere frameworks differentiate plans by themselves."""

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


class Replaced(Arrays):
    """einsumx behind the framework's own name."""

    def names(self) -> Iterable[Name]:
        """The names under which people call the framework's einsum, for :func:`einsumx.patch`; none if it has none."""
        if hasattr(self.xp, "einsum"):
            yield Name(self.xp, "einsum")
