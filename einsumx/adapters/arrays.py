"""What every adapter says: whose arrays they are, how they are described, and how they come from Python and NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

from einsumx.adapters.traits import Traits
from einsumx.adapters.typing import Array, Signature
from einsumx.dtypes import Casting, can_cast
from einsumx.errors import BackendError, shown
from einsumx.ir.program import Operand

__all__ = ["Arrays"]


class Arrays:
    """The arrays of a framework, as the planner and the caches see them."""

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

    verified: bool = True
    """Whether the test suite has run on the real framework, and not only on a stand-in."""

    @cached_property
    def xp(self) -> Any:
        """The framework's array namespace, imported at first use."""
        return import_module(self.module)

    def __repr__(self) -> str:
        return f"<einsumx backend {self.name!r}>"

    # -- which arrays -----------------------------------------------------------------------------------

    def check_type(self, kind: type) -> None:
        """Raise BackendError for an array type of the framework that einsum would treat wrongly."""

    def is_plain(self, kind: type) -> bool:
        """Whether arrays of this type are worked on as they are; others go through :meth:`plain` first."""
        return True

    def plain(self, array: Array) -> Array:
        """An array of a subclass, or a scalar of the framework's, as the framework's plain array type."""
        return array

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

    # -- from Python and from NumPy, and back -------------------------------------------------------------

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        """A Python scalar or nested list as an array on the device of ``like``, the first array of the call.

        Its dtype follows ``dtype``, the promotion of the arrays of the call, where the framework's own promotion has
        Python scalars follow arrays. Where the call has none, ``like`` is None and ``dtype`` is empty.
        """
        return self.xp.asarray(value)

    def from_numpy(self, array: Any, device: str = "") -> Array:
        """A NumPy array as an array of the framework, on ``device`` (its default one where empty)."""
        return self.xp.asarray(array)

    def to_numpy(self, array: Array) -> Any:
        """The values of ``array`` as a NumPy array."""
        return import_module("numpy").asarray(array)
