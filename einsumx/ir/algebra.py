"""What sums and products mean: plus and times, and the base class of every other meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from einsumx.ir.ops import Op
    from einsumx.ir.traits import Traits


class Kernels(Protocol):
    """The part of an adapter that the cost of a program depends on."""

    def workspace(self, op: Op, operands: Sequence[Any], device: str, /) -> int:
        """An upper bound on the bytes that the kernel of ``op`` allocates besides its result."""


class Algebra:
    """Plus and times, as frameworks compute them; a subclass is another meaning of sums and products.

    Paths, layouts and blocks do not depend on what a sum and a product mean, so programs in every algebra have the same
    ops. An algebra says how to run them, by functions of an adapter. It is equal to no other, and has no state.
    """

    text: str = ""
    """What follows the first line of a plan's text."""

    zero: float = 0
    one: float = 1
    """The sum of no terms, and the product of no factors."""

    is_plain: bool = True
    """Whether it computes what frameworks compute by themselves: sums of products, of truth values too."""

    is_boolean: bool = False
    """Whether operands become truth values."""

    has_exponents: bool = False
    """Whether results are pairs of a mantissa and an exponent."""

    function: str = "einsum"
    """The name of the public function that computes in it, in :mod:`einsumx.adapters.hooks`."""

    arguments: tuple[Any, ...] = ()
    """The first arguments of that function, which stand before the equation."""

    def __repr__(self) -> str:
        return f"<einsumx algebra{self.text or ' of plus and times'}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        return "PLUS_TIMES"

    def check_dtype(self, dtype: str) -> None:
        """Raise BackendError if arrays of a dtype cannot hold the results."""

    def traits(self, adapter: Any, device: str) -> Traits:
        """The traits for which programs are planned.

        Raises:
            BackendError: the framework lacks the functions.
        """
        return adapter.traits(device)  # type: ignore[no-any-return]

    def workspace(self, kernels: Kernels, op: Op, operands: Sequence[Any], device: str) -> int:
        """An upper bound on the bytes that running ``op`` allocates besides its result."""
        return kernels.workspace(op, operands, device)

    def lowered(self, program: Any) -> Any:
        """A new program, with what it needs beside the ops of a sum of products."""
        return program

    # -- on arrays --------------------------------------------------------------------------------------------

    def kernel(self, adapter: Any, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Any]:
        """The function that runs ``op``; see :meth:`einsumx.adapters.base.Adapter.kernel`."""
        return adapter.kernel(op, shapes, dtype)  # type: ignore[no-any-return]

    def finish(self, adapter: Any) -> Callable[[Any], Any] | None:
        """The function that makes a result of an array without axes; None if that is the array."""
        return adapter.element  # type: ignore[no-any-return]

    def prepare(self, adapter: Any, run: Callable[..., Any], program: Any) -> Callable[..., Any]:
        """Wrap the function that runs a program; see :meth:`einsumx.adapters.base.Adapter.prepare`."""
        return adapter.prepare(run, program)  # type: ignore[no-any-return]

    def added(self, adapter: Any, total: Any, part: Any) -> Any:
        """The sum of two values that nothing else refers to, in the memory of ``total`` if possible."""
        return adapter.blocks.add(total, part)

    def mapped(self, function: Callable[[Any], Any], value: Any) -> Any:
        """The value with ``function`` applied to its array."""
        return function(value)


PLUS_TIMES = Algebra()
"""Sums of products, the meaning of :func:`einsumx.einsum`."""
