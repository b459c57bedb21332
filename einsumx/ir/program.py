"""A plan: immutable data that says which array calls compute a contraction, and prints as what runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from math import prod
from os import PathLike
from typing import TYPE_CHECKING, Any

from einsumx.dtypes import itemsize
from einsumx.errors import EinsumxError, shown
from einsumx.ir import ops as _ops

if TYPE_CHECKING:
    from einsumx.ir.ops import Op
    from einsumx.render.svg import Drawing

__all__ = ["Operand", "Path", "Plan"]

Path = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=1)
def _run() -> Callable[..., Any]:
    """What runs a plan; kept, as nothing can be imported any more while the interpreter ends."""
    from einsumx.runtime.prepare import run_plan

    return run_plan


FORMAT = 1  # of the JSON form; raised when an old reader would misread a new plan


@dataclass(frozen=True, slots=True)
class Operand:
    """What a plan assumes of one operand.

    Attributes:
        shape: sizes of its axes.
        dtype: by NumPy's name.
        strides: in elements, an axis each, as a representative of the layout; None where C-contiguous.
        weak: its dtype yields to that of other operands of its kind, as JAX has it for what was a Python scalar.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    weak: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, as if each were stored."""
        return prod(self.shape) * itemsize(self.dtype)


@dataclass(frozen=True, slots=True)
class Plan:
    """A contraction as straight-line array calls over numbered slots.

    Attributes:
        equation: in text form with an explicit output; sublist labels are written as letters.
        backend: the name of the backend that it was lowered for.
        device: the kind of device that it was lowered for (empty: the backend's default).
        operands: shape, dtype and layout of each operand; operand ``k`` is slot ``k``.
        path: which operands each pairwise contraction takes, positions as in NumPy and opt_einsum.
        ops: what runs, in order.
        result: the slot that holds the result.
        shape: the result's shape.
        dtype: the result's dtype.
    """

    equation: str
    backend: str
    device: str
    operands: tuple[Operand, ...]
    path: Path
    ops: tuple[Op, ...]
    result: int
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        from einsumx.ir.text import plan_text

        return plan_text(self)

    @property
    def peak_bytes(self) -> int:
        """The most bytes alive at once while it runs: operands, intermediates, result, and what kernels take.

        That is what the framework allocates, but for buffers of some thousand elements and Python's own objects; what
        BLAS and compilers hold of their own is not known. Where the numbers decide how integers are multiplied, it is
        the most that it can take. On the CPU, the tests see NumPy and PyTorch take no more, and at least 85 % of it.
        What other frameworks' kernels take for themselves is not known, and not counted.

        >>> import einsumx
        >>> einsumx.plan("ij,jk->ik", (2, 3), (3, 4)).peak_bytes
        208
        """
        from einsumx.ir.cost import plan_cost

        return plan_cost(self).peak_bytes

    def __call__(self, *operands: Any) -> Any:
        """Run the plan on arrays of the shapes and dtypes that it was made for, in any layout.

        Arrays of another framework than the plan's run on a plan for theirs, with the same path
        (:meth:`retarget`).

        Raises:
            SizeError, BackendError: the operands are not what the plan was made for.

        >>> import einsumx, numpy as np
        >>> einsumx.plan("ij->i", (2, 3), dtypes="int64")(np.arange(6).reshape(2, 3))
        array([ 3, 12])
        """
        return _run()(self, operands)

    def draw(self) -> Drawing:
        """The plan as a picture: the contraction tree, what each op takes and copies, and memory over time.

        ``.svg`` is its text, ``.save("plan.svg")`` and ``.save("plan.html")`` write it, notebooks show it.

        >>> import einsumx
        >>> einsumx.plan("ij,jk->ik", (2, 3), (3, 4)).draw().svg.count("matmul %0 %1") > 0
        True
        """
        from einsumx.render.svg import Drawing
        from einsumx.render.timeline import plan_timeline

        return Drawing(plan_timeline(self))

    def _repr_html_(self) -> str:
        return self.draw()._repr_html_()

    def retarget(self, backend: str, device: str = "") -> Plan:
        """The same contraction along the same path, lowered for another backend.

        >>> import einsumx
        >>> print(einsumx.plan("bij,bkj->bik", (8, 20, 30), (8, 40, 30)).retarget("mxnet"))
        bij,bkj->bik  (8,20,30) (8,40,30)  float64 on mxnet
          %2 = matmul %0 %1 transposed  192 k multiply-adds
          result %2                     (8,20,40) float64
        """
        from einsumx.runtime.prepare import retarget

        return retarget(self, backend, device)

    def source(self, backend: str | None = None, name: str = "contraction") -> str:
        """The plan as a function in plain code of its framework, to paste where einsumx is not to be imported.

        It has the same calls in the same order, and gives what :func:`einsumx.einsum` gives on operands of these shapes
        and dtypes; how the result lies in memory, warnings and speed are those of the framework's own functions. What
        einsumx adds to these for speed is not in it: threads for NumPy, BLAS for integers, ``jax.jit``.

        MXNet's code is for arrays, and is hybridized as such by MXNet 2; the symbols that blocks of MXNet 1 are traced
        with are for :func:`einsumx.einsum` itself.

        Args:
            backend: whose code, where it is not the plan's own: the contraction is lowered anew for it
                (:meth:`retarget`).
            name: of the function.

        Raises:
            ValueError: ``name`` is no name that a function can have.
            BackendError: there is no such backend, or it does not say how its calls are spelled.

        >>> import einsumx
        >>> print(einsumx.plan("bij,bkj->bik", (8, 20, 30), (8, 40, 30)).source("torch").splitlines()[-1].strip())
        return torch.matmul(a, b.permute(0, 2, 1))
        """
        from einsumx.adapters.registry import get_backend
        from einsumx.render.source import plan_source

        plan = self if backend in (None, self.backend) else self.retarget(str(backend))
        return plan_source(plan, get_backend(plan.backend), name)

    def to_json(self) -> str:
        """The plan as JSON text, for storing; :meth:`from_json` reads it back.

        >>> import einsumx
        >>> plan = einsumx.plan("ij,jk->ik", (2, 3), (3, 4))
        >>> einsumx.Plan.from_json(plan.to_json()) == plan
        True
        """
        return json.dumps({"format": FORMAT, **_to_data(self)})

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that :meth:`to_json` wrote.

        It may come from anyone: every field is checked, and the ops are replayed on labels, so that a plan that does
        not compute its equation is refused. Nothing of it is run. A pickle of a plan, as of anything, can run code when
        it is read: take those of people whom you trust.

        Raises:
            EinsumxError: the text is not such a plan, or the plan does not compute its equation.
        """
        from einsumx.ir.meaning import check_meaning
        from einsumx.ir.strict import PLAN, made, parse

        if isinstance(text, PathLike):
            raise EinsumxError(f"from_json takes the text of a plan, not {shown(text)}; pass its read_text()")
        if not isinstance(text, str):
            raise EinsumxError(f"from_json takes the text of a plan, not {type(text).__name__}")
        try:
            data = parse(text)
            if not isinstance(data, dict):
                raise ValueError("it is not a JSON object")
            if "format" not in data:
                raise ValueError("it has no 'format'")
            found = data.pop("format")
            if type(found) is not int or found != FORMAT:
                raise ValueError(f"it has format {shown(found)}, and this version reads format {FORMAT}")
            plan = made(Plan, data, {"operands": lambda item: made(Operand, item), "ops": _op_from_data})
            PLAN.check(plan)
        except (ValueError, RecursionError) as error:
            raise EinsumxError(f"this is not a plan that this version of einsumx stored: {error}") from None
        check_meaning(plan)
        return plan


def _to_data(value: Any) -> Any:
    """Dataclasses to dicts, ops with their class's name; tuples stay for json to write as lists."""
    match value:
        case Plan() | Operand():
            return {field.name: _to_data(getattr(value, field.name)) for field in fields(value)}
        case tuple():
            return [_to_data(item) for item in value]
        case int() | str() | None:
            return value
        case _:
            return {
                "op": type(value).__name__,
                **{field.name: _to_data(getattr(value, field.name)) for field in fields(value)},
            }


_OPS: dict[str, type[Op]] = {
    cls.__name__: cls
    for cls in (
        _ops.Transpose,
        _ops.Reshape,
        _ops.Expand,
        _ops.First,
        _ops.Diagonal,
        _ops.Copy,
        _ops.Cast,
        _ops.Sum,
        _ops.Multiply,
        _ops.Matmul,
        _ops.Native,
        _ops.Scale,
        _ops.Zeros,
    )
}


def _op_from_data(data: Any) -> Op:
    from einsumx.ir.strict import made

    match data:
        case {"op": str(name), **values} if name in _OPS:
            return made(_OPS[name], values)
    raise ValueError("it has an unknown op")
