"""The part of an adapter that describes arrays and dtypes, and converts arrays from and to Python and NumPy."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from einsumx.adapters.operand_types import dtype_error
from einsumx.adapters.typing import Array, Signature
from einsumx.errors import SizeError
from einsumx.imports import LazyModule, loaded
from einsumx.ir.layout import layout_class
from einsumx.ir.operand import Operand
from einsumx.ir.traits import Traits

if TYPE_CHECKING:
    from einsumx.adapters.gpus import Gpu
    from einsumx.ir.bind import SizedEquation

np: Any = LazyModule("numpy")


class Arrays:
    """The arrays of a framework, as the planner and the caches see them."""

    name: str
    """The name for users: ``einsumx.plan(..., backend=name)``."""

    module: str
    """The framework's module; its array types are defined in the same top-level package."""

    install: str
    """The command that installs it, for messages: ``pip install numpy``."""

    cpu: Traits
    """The traits on the CPU, and on every device for which :meth:`traits` returns no others."""

    device_kinds: tuple[str, ...] = ()
    """The kinds of device for its arrays, such as ``("cpu", "cuda")``; empty if only the framework knows."""

    constant_dtypes: bool = True
    """Whether a dtype that the framework has is always there, whatever the settings, so that calls with ``dtype=`` can
    be cached."""

    measured_plans: bool = True
    """Whether plans may depend on what was measured on this machine; False if several processes need the same plan."""

    is_mode_set: Callable[[], bool] | None = None
    """A function that tells whether :meth:`planning_mode` is another one than usual. Repeated calls ask it. None if the
    framework has no settings that plans depend on."""

    @cached_property
    def xp(self) -> Any:
        """The framework's array namespace, imported at first use."""
        return loaded(self.module)

    def __repr__(self) -> str:
        return f"<einsumx backend {self.name!r}>"

    # -- which arrays -----------------------------------------------------------------------------------

    def check_type(self, kind: type) -> None:
        """Raise BackendError for a type of the framework that einsum cannot handle."""

    def is_plain(self, kind: type) -> bool:
        """Whether einsum can use arrays of this type directly; others go through :meth:`plain` first."""
        return True

    def plain(self, array: Array) -> Array:
        """An array of a subclass or a scalar of the framework, as the framework's plain array type."""
        return array

    # -- describing arrays ------------------------------------------------------------------------------

    def traits(self, device: str) -> Traits:
        """The traits on ``device`` (``"cpu"``, ``"cuda:0"``; ``""`` if not known yet)."""
        return self.cpu

    def signature(self, array: Array) -> Signature:
        """Type, shape, dtype, device, and strides in elements if plans depend on them: the key of every cache.

        A size that is no number is :data:`~einsumx.ir.sizes.UNKNOWN` in the shape, as
        :func:`~einsumx.ir.bind.planned_sizes` writes it.

        It may raise AttributeError or TypeError for an object that is not an array of the framework.
        """
        return type(array), tuple(array.shape), array.dtype, self.device(array)

    def signatures(self, written: Any, arrays: Sequence[Array]) -> tuple[Signature, ...]:
        """The signatures of a contraction's operands.

        Override it if arrays do not know their shapes and the equation helps to infer them.

        Args:
            written: the equation, as text or sublists.
            arrays: the operands.
        """
        return tuple(map(self.signature, arrays))

    def size(self, array: Array, axis: int) -> Any:
        """The size of an axis, as the framework's own functions accept it in a shape.

        Only axes that :meth:`signature` describes by :data:`~einsumx.ir.sizes.UNKNOWN` are asked for. A tracer may
        return a symbol or a scalar tensor; sizes are multiplied with each other and with integers.
        """
        return array.shape[axis]

    def with_size(self, array: Array, axis: int, size: Any, message: str) -> Array:
        """``array``, after a check that an axis has this size; only for contractions with axes of unknown size.

        A framework that knows sizes only when its graph runs records the check, and returns an array that depends on
        it.

        Args:
            array: an operand.
            axis: which may be of known size too; the check must cost nothing then.
            size: a number, or what :meth:`size` returned for another axis.
            message: for the error.

        Raises:
            SizeError: it has another one.
        """
        if self.size(array, axis) != size:
            raise SizeError(message)
        return array

    def device(self, array: Array) -> str:
        """The name of the device that holds ``array``."""
        return "cpu"

    def device_of(self, signature: Signature) -> str:
        """The name of a signature's device; empty if the array, such as a traced one, is not bound to a device."""
        return str(signature[3])

    def device_model(self, device: str) -> str:
        """The model of an accelerator, whose measurements hold for no other model; empty if the device is a processor.

        It is also empty if the framework has not used the device yet, and would have to start it.

        Args:
            device: a device or a kind of device, such as ``"cuda"``.
        """
        return ""

    def gpu(self, device: str) -> Gpu | None:
        """The properties of one of NVIDIA's GPUs; None for other devices, and if the framework has not used it yet."""
        return None

    def kind_of(self, signature: Signature) -> Hashable:
        """A signature without the shape: type, dtype and device. Override it to leave out strides."""
        return signature[0], *signature[2:]

    def operand(self, signature: Signature) -> Operand:
        """The planner's description of a signature: strides in elements (None: C-contiguous), dtype by name.

        Override it if signatures have further entries.
        """
        _, shape, dtype, *others = signature  # a device, if arrays have one, and strides
        return Operand(tuple(shape), self.dtype_name(dtype), layout_class(shape, others[1]) if others[1:] else None)

    def dtype_name(self, dtype: Any) -> str:
        """NumPy's name of one of the framework's dtypes.

        Raises:
            BackendError: einsum does not compute in it.
        """
        return str(getattr(dtype, "name", dtype))

    def dtype(self, name: str) -> Any:
        """The framework's dtype of that name.

        Raises:
            BackendError: the framework has no such dtype.
        """
        dtype = getattr(self.xp, name, None)
        if dtype is None:
            raise dtype_error(self.name, name)
        return dtype

    def promote(self, dtypes: Sequence[str]) -> str:
        """The dtype of a product of arrays of ``dtypes``, according to the framework's own rules."""
        return self.dtype_name(self.xp.result_type(*(self.dtype(name) for name in dtypes)))

    def planning_mode(self, device: str) -> Hashable:
        """The settings of the framework that plans for a device depend on, a part of the keys of caches.

        Those that are local to a thread or to a ``with`` belong here, such as the dtype of ``torch.autocast``. None if
        there are none; it imports no framework.
        """
        return None

    def autocast_dtype(self, sized: SizedEquation, dtypes: Sequence[str], device: str, mode: Any) -> str | None:
        """The dtype of the result of the framework's own einsum in a mode; None for the promotion.

        Args:
            sized: the equation.
            dtypes: of the operands.
            device: where they are.
            mode: what :meth:`planning_mode` returns, unless that is None.
        """
        return None

    def promote_weak(self, dtypes: Sequence[str], weak: Sequence[str]) -> str:
        """The same with further arrays of weak dtypes, which yield to the others.

        See :attr:`~einsumx.ir.operand.Operand.weak`.
        """
        return self.promote([*dtypes, *weak])

    # -- from Python and from NumPy, and back -------------------------------------------------------------

    def from_numpy(self, array: Any, device: str = "") -> Array:
        """A NumPy array as an array of the framework, on ``device`` (the default device if empty)."""
        return self.xp.asarray(array)

    def to_numpy(self, array: Array) -> Any:
        """The values of ``array`` as a NumPy array."""
        return np.asarray(array)

    def synchronize(self, array: Array) -> None:
        """Wait until ``array`` is computed, if the framework works asynchronously."""
