"""Plans as users get them: the data of a contraction, with all that is done with it.

What is planned is a :class:`~einsumx.ir.program.Program`, or a
:class:`~einsumx.blocked.program.BlockedProgram` where a memory limit cuts it into blocks. The floors below know these
alone. Here each becomes something to call, print, draw, store and retarget.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, fields
from operator import attrgetter
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn

from einsumx.adapters.registry import get_backend
from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.text import blocked_text
from einsumx.errors import BackendError, EinsumxError, excerpt, shown
from einsumx.ir import ops as _ops
from einsumx.ir.cost import Kernels, PlanCost, program_cost
from einsumx.ir.meaning import check_meaning
from einsumx.ir.ops import Op
from einsumx.ir.program import Operand, Program
from einsumx.ir.strict import PLAN, made, parse
from einsumx.ir.text import plan_text
from einsumx.runtime.checks import computed_in
from einsumx.runtime.prepare import retarget, run_program
from einsumx.streaming.run import run_blocked

if TYPE_CHECKING:
    from einsumx.render.svg import Drawing

__all__ = ["BlockedPlan", "Plan", "as_blocked_plan", "as_plan", "plan_cost"]

FORMAT = 1  # of the JSON form; raised when an old reader would misread a new plan


@dataclass(frozen=True, slots=True)
class Plan(Program):
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

    def __str__(self) -> str:
        return plan_text(self, plan_cost(self))

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
        return run_program(self, operands)

    def draw(self) -> Drawing:
        """The plan as a picture: the contraction tree, what each op takes and copies, and memory over time.

        ``.svg`` is its text, ``.save("plan.svg")`` and ``.save("plan.html")`` write it, notebooks show it.

        >>> import einsumx
        >>> einsumx.plan("ij,jk->ik", (2, 3), (3, 4)).draw().svg.count("matmul %0 %1") > 0
        True
        """
        from einsumx.render.svg import Drawing
        from einsumx.render.timeline import plan_timeline

        return Drawing(plan_timeline(self, _kernels(self)))

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
        return as_plan(retarget(self, backend, device))

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
        check_meaning(plan, computed_in(plan))
        return plan


@dataclass(frozen=True, slots=True)
class BlockedPlan(BlockedProgram):
    """A contraction cut into blocks, as it runs under a memory limit.

    Attributes:
        equation: the labels, their sizes and the operands' shapes.
        backend, device: where it is computed.
        operands: shape, dtype and layout of each operand.
        dtype: the result's dtype.
        compute_dtype: in which blocks are computed and partial sums are added up.
        limit: bytes that must not be exceeded.
        in_place: of each operand, whether it lies on the device, so that its blocks are views and count nothing.
        landing: the memory that it takes to bring the result where it belongs.
        blocking: which labels are cut, and what it costs.
    """

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        """Run the plan on operands of the shapes and dtypes that it was made for, which lie where it says.

        Args:
            *operands: arrays, or whatever :func:`einsumx.einsum` reads block by block under a limit.
            out: is written block by block; needed where the plan was made for one.

        Raises:
            SizeError, BackendError: the operands are not what the plan was made for, or ask for gradients.
            ValueError: the plan counts on an ``out=`` for the result.

        >>> import einsumx, numpy as np
        >>> einsumx.plan("ij->i", (2, 3), dtypes="int64", memory_limit=40)(np.arange(6).reshape(2, 3))
        array([ 3, 12])
        """
        return run_blocked(self, operands, out)

    def __str__(self) -> str:
        """What runs, and how often.

        >>> import einsumx
        >>> print(einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True))
        ij,jk->ik  (900,800) (800,900)  float64 on numpy in blocks
          cut k        900 into 4 blocks of up to 225
          cut i        900 into 7 blocks of up to 129
          ij,jk->ik    for each block of ki
          operand 0    5.76 MB, read 4 times, 23 MB
          operand 1    5.76 MB, read 1 time
          read in all  28.8 MB
          peak memory  8.98 MB of the limit of 9 MB
          time         18.4 ms expected
        """
        return blocked_text(self)

    def draw(self) -> Drawing:
        """What is done for a block and how often, as a picture, with memory over time against the limit.

        It is saved and shown as that of :meth:`einsumx.Plan.draw`.
        """
        from einsumx.render.svg import Drawing
        from einsumx.render.timeline import blocked_timeline

        return Drawing(blocked_timeline(self))

    def _repr_html_(self) -> str:
        return self.draw()._repr_html_()

    def source(self, backend: str | None = None, name: str = "contraction") -> NoReturn:
        """There is none, unlike that of a :class:`~einsumx.Plan`: what reads and keeps blocks is einsumx's own.

        Raises:
            EinsumxError: always; it says what has a source.
        """
        raise EinsumxError(
            "a contraction in blocks has no source, as what reads, keeps and writes blocks is einsumx itself; a plan "
            "without memory_limit= has one, for the contraction as a whole or for the shapes of a block\n"
            f"  {excerpt(self.equation.text)}"
        )


_program_values = attrgetter(*(field.name for field in fields(Program)))
_blocked_values = attrgetter(*(field.name for field in fields(BlockedProgram)))


def as_plan(program: Program) -> Plan:
    """What users get of a program: a plan with the same data."""
    return Plan(*_program_values(program))


def as_blocked_plan(program: BlockedProgram) -> BlockedPlan:
    """What users get of a contraction in blocks: a plan with the same data."""
    return BlockedPlan(*_blocked_values(program))


def plan_cost(plan: Program) -> PlanCost:
    """The cost of a plan, with what the kernels of its backend take.

    Of a backend that is not here, such as that of a plan which was stored elsewhere, nothing is known of its kernels.

    >>> import einsumx
    >>> cost = plan_cost(einsumx.plan("ij,jk->ik", (2, 3), (3, 4), dtypes="float64"))
    >>> cost.multiply_adds, cost.copied, cost.peak_bytes
    (24, 0, 208)
    """
    return program_cost(plan, _kernels(plan))


def _kernels(plan: Program) -> Kernels | None:
    with suppress(BackendError):
        return get_backend(plan.backend)
    return None


def _to_data(value: Any) -> Any:
    """Dataclasses to dicts, ops with their class's name; tuples stay for json to write as lists."""
    match value:
        case Program() | Operand():
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
    match data:
        case {"op": str(name), **values} if name in _OPS:
            return made(_OPS[name], values)
    raise ValueError("it has an unknown op")
