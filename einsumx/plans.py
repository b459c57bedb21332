"""Plans, as users get them: programs with methods to call, print, draw, store and retarget them.

Lower layers know only the data, :class:`~einsumx.ir.program.Program` and, with a memory limit,
:class:`~einsumx.blocked.program.BlockedProgram`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from operator import attrgetter
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, overload

from einsumx.adapters.registry import get_backend
from einsumx.algebra.semiring import SemiringAlgebra
from einsumx.backends.dask.program import ChunkedProgram
from einsumx.blocked.program import BlockedProgram
from einsumx.errors import BackendError, EinsumxError, SizeError, excerpt, shown
from einsumx.imports import LazyModule
from einsumx.ir.algebra import Kernels
from einsumx.ir.cost import PlanCost, program_cost
from einsumx.ir.program import Program
from einsumx.ir.records import record
from einsumx.ir.sizes import names_in
from einsumx.ir.text import displayed, operands_text, plan_line
from einsumx.runtime.plan_json import read_plan, text_of_plan
from einsumx.runtime.programs import program_text, retarget, run_program
from einsumx.tracing import between_graphs, inlined

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from einsumx.backends import dask
    from einsumx.backends.dask import program as chunked_programs
    from einsumx.blocked import text as blocked_texts
    from einsumx.render import drawing, source, timeline
    from einsumx.render.drawing import Drawing
    from einsumx.runtime.signatures import A, NumpyResult, Value
    from einsumx.streaming import run as streaming_run
else:
    dask = LazyModule("einsumx.backends.dask")
    chunked_programs = LazyModule("einsumx.backends.dask.program")
    blocked_texts = LazyModule("einsumx.blocked.text")
    drawing = LazyModule("einsumx.render.drawing")
    source = LazyModule("einsumx.render.source")
    timeline = LazyModule("einsumx.render.timeline")
    streaming_run = LazyModule("einsumx.streaming.run")


@record
class Plan(Program):
    """A contraction as straight-line array calls over numbered slots; :func:`einsumx.plan` returns it.

    Its attributes are those of :class:`~einsumx.ir.program.Program`: ``equation``, ``backend``, ``device``,
    ``operands``, ``path``, ``ops``, ``result``, ``shape``, ``dtype`` and ``accumulate``.
    """

    autograph_info__: ClassVar[tuple[()]] = ()  # by which tf.function leaves the code as it is

    def __str__(self) -> str:
        return program_text(self, plan_cost(self))

    def __repr__(self) -> str:
        with suppress(EinsumxError, LookupError):  # of ops that do not fit together
            return f"<einsumx plan {excerpt(self.written)}: {plan_line(self, _kernels(self))}>"
        return Program.__repr__(self)

    _repr_pretty_ = displayed

    @property
    def peak_bytes(self) -> int:
        """The most bytes allocated at once while the plan runs: operands, intermediates, result, and kernels' buffers.

        This is an upper bound on what is allocated, except for buffers of some thousand elements, Python
        objects, and the internal memory of BLAS and compilers. Tests on the CPU check that NumPy and PyTorch take no
        more, and at least 85 % of it. Buffers of other frameworks' kernels are unknown and not counted.

        >>> import einsumx
        >>> einsumx.plan("ij,jk->ik", (2, 3), (3, 4)).peak_bytes
        208
        """
        return plan_cost(self).peak_bytes

    @overload
    def __call__(self, *operands: NDArray[Any] | Value) -> NumpyResult: ...

    @overload
    def __call__(self, *operands: A | Value) -> A: ...

    def __call__(self, *operands: Any) -> Any:
        """Run the plan on arrays of its shapes and dtypes, in any layout.

        On arrays of another framework, the plan is retargeted to it first (:meth:`retarget`).

        Raises:
            SizeError, BackendError: the operands do not fit the plan.

        >>> import einsumx, numpy as np
        >>> einsumx.plan("ij->i", (2, 3), dtypes="int64")(np.arange(6).reshape(2, 3))
        array([ 3, 12])
        """
        return run_program(self, operands)

    def _compiled(self, *operands: Any) -> Any:
        """What torch.compile traces instead of a call."""
        from einsumx.backends.torch.graphs import call_plan

        return call_plan(self, *operands)

    inlined(__call__, _compiled)

    def draw(self) -> Drawing:
        """A picture of the plan: the contraction tree, each op's time and copies, and memory over time.

        ``.svg`` is its source, ``.save("plan.svg")`` and ``.save("plan.html")`` write a file, and notebooks show it.

        >>> import einsumx
        >>> einsumx.plan("ij,jk->ik", (2, 3), (3, 4)).draw().svg.count("matmul %0 %1") > 0
        True
        """
        return drawing.Drawing(timeline.plan_timeline(self, _kernels(self)))

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
        """The plan as source code: a function that calls the framework directly and does not need einsumx.

        It makes the same calls in the same order, and returns what :func:`einsumx.einsum` returns for operands of these
        shapes and dtypes. The result's memory order, warnings and speed are those of the framework's functions: the
        code has no threads for NumPy, no BLAS for integers and no ``jax.jit``.

        MXNet code takes arrays, and MXNet 2 can hybridize it. It does not take the symbols of MXNet 1's traced blocks;
        use :func:`einsumx.einsum` there.

        Args:
            backend: the framework of the code, if not the plan's own; the plan is retargeted to it.
            name: the function's name.

        Raises:
            ValueError: ``name`` is not a valid function name.
            BackendError: an unknown backend, or one that cannot generate code.

        >>> import einsumx
        >>> print(einsumx.plan("bij,bkj->bik", (8, 20, 30), (8, 40, 30)).source("torch").splitlines()[-1].strip())
        return torch.matmul(a, b.permute((0, 2, 1)))
        """
        _check_known(self, "written as code")
        plan = self if backend in (None, self.backend) else self.retarget(str(backend))
        return source.plan_source(plan, get_backend(plan.backend), name)

    def to_json(self) -> str:
        """The plan as JSON text, which :meth:`from_json` reads.

        >>> import einsumx
        >>> plan = einsumx.plan("ij,jk->ik", (2, 3), (3, 4))
        >>> einsumx.Plan.from_json(plan.to_json()) == plan
        True
        """
        _check_known(self, "stored")
        return text_of_plan(self)

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that :meth:`to_json` wrote, made again from the equation, operands, path and choices in the text.

        The text need not be trusted: each field is checked, and nothing in it is run. The ops in it are for readers. If
        the new plan has others, as with another version of einsumx, a ``RuntimeWarning`` says so. Pickles, in contrast,
        can run code: load only those that you trust.

        Raises:
            EinsumxError: the text is no plan of this format, or describes no contraction.
        """
        if isinstance(text, PathLike):
            raise EinsumxError(f"from_json takes the text of a plan, not {shown(text)}; pass read_text() of the file")
        if not isinstance(text, str):
            raise EinsumxError(f"from_json takes the text of a plan, not {type(text).__name__}")
        return as_plan(read_plan(text, SemiringAlgebra))


@record
class BlockedPlan(BlockedProgram):
    """A contraction in blocks that keep a memory limit; :func:`einsumx.plan` returns it.

    Its attributes are those of :class:`~einsumx.blocked.program.BlockedProgram`.
    """

    autograph_info__: ClassVar[tuple[()]] = ()  # by which tf.function leaves the code as it is

    @overload
    def __call__(self, *operands: NDArray[Any] | Value, out: Any = None) -> NumpyResult: ...

    @overload
    def __call__(self, *operands: A | Value, out: Any = None) -> A: ...

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        """Run the plan on operands of its shapes and dtypes, on its device.

        Args:
            *operands: arrays, or anything that :func:`einsumx.einsum` reads block by block.
            out: written block by block; required if the plan was made with ``out=``.

        Raises:
            SizeError, BackendError: the operands do not fit the plan, or require gradients.
            ValueError: ``out`` is missing.

        >>> import einsumx, numpy as np
        >>> einsumx.plan("ij->i", (2, 3), dtypes="int64", memory_limit=40)(np.arange(6).reshape(2, 3))
        array([ 3, 12])
        """
        return streaming_run.run_blocked(self, operands, out)

    between_graphs(__call__)

    def __str__(self) -> str:
        """The blocks, how often each operand is read, peak memory and expected time.

        >>> import einsumx
        >>> print(einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True))
        ij,jk->ik  (900,800) (800,900)  float64 on numpy in blocks
          cut i        900 into 4 blocks of up to 225
          cut k        900 into 7 blocks of up to 129
          ij,jk->ik    for each block of ik
          operand 0    5.76 MB, read 1 time
          operand 1    5.76 MB, read 4 times, 23 MB
          read in all  28.8 MB
          peak memory  8.98 MB of the limit of 9 MB
          time         18.5 ms expected
        """
        return blocked_texts.blocked_text(self)

    def __repr__(self) -> str:
        operands = f"{operands_text(self.operands)} {self.dtype}"
        return f"<einsumx plan {excerpt(self.equation)} in blocks: {operands}, {blocked_texts.blocks_line(self)}>"

    _repr_pretty_ = displayed

    def draw(self) -> Drawing:
        """A picture of the work for each block and how often it runs, and of memory over time against the limit.

        Save or show it as that of :meth:`einsumx.Plan.draw`.
        """
        return drawing.Drawing(timeline.blocked_timeline(self))

    def _repr_html_(self) -> str:
        return self.draw()._repr_html_()

    def source(self, backend: str | None = None, name: str = "contraction") -> NoReturn:
        """Not available, unlike :meth:`einsumx.Plan.source`: einsumx itself reads, keeps and writes the blocks.

        Raises:
            EinsumxError: always; it names plans that have source code.
        """
        raise EinsumxError(
            "a plan in blocks has no source, because einsumx itself reads and writes the blocks; make a plan without "
            f"memory_limit=, for all of the contraction or for one block\n  {excerpt(self.equation)}"
        )


@record
class ChunkedPlan(ChunkedProgram):
    """A contraction of Dask arrays; :func:`einsumx.plan` returns it.

    Its attributes are those of :class:`~einsumx.backends.dask.program.ChunkedProgram`, such as ``tasks`` and
    ``moved_bytes``.
    """

    def __call__(self, *operands: Any) -> Any:
        """The lazy result for operands of the plan's shapes, chunks and dtypes.

        Raises:
            SizeError, BackendError: the operands do not fit the plan.
        """
        return dask.run(self, operands)

    def __str__(self) -> str:
        """The steps, their chunks and tasks, and the bytes that may move between workers."""
        return chunked_programs.chunked_text(self)

    def __repr__(self) -> str:
        return f"<einsumx plan {excerpt(self.equation.text)} of Dask arrays: {chunked_programs.chunked_line(self)}>"

    _repr_pretty_ = displayed


_program_values = attrgetter(*(field.name for field in fields(Program)))
_blocked_values = attrgetter(*(field.name for field in fields(BlockedProgram)))
_chunked_values = attrgetter(*(field.name for field in fields(ChunkedProgram)))


def as_plan(program: Program) -> Plan:
    """The plan with a program's data."""
    return Plan(*_program_values(program))


def as_blocked_plan(program: BlockedProgram) -> BlockedPlan:
    """The plan with a blocked program's data."""
    return BlockedPlan(*_blocked_values(program))


def as_chunked_plan(program: ChunkedProgram) -> ChunkedPlan:
    """The plan with a program's data."""
    return ChunkedPlan(*_chunked_values(program))


def plan_cost(program: Program) -> PlanCost:
    """Multiply-adds, bytes copied and peak memory of a program, including its backend's kernels if that is installed.

    >>> import einsumx
    >>> cost = plan_cost(einsumx.plan("ij,jk->ik", (2, 3), (3, 4), dtypes="float64"))
    >>> cost.multiply_adds, cost.copied, cost.peak_bytes
    (24, 0, 208)
    """
    return program_cost(program, _kernels(program))


def _kernels(program: Program) -> Kernels | None:
    with suppress(BackendError):  # a plan may come from a machine with another backend
        return get_backend(program.backend)
    return None


def _check_known(plan: Plan, use: str) -> None:
    """Raise SizeError if a plan has sizes that are not known."""
    names = names_in([operand.shape for operand in plan.operands])
    if names:
        raise SizeError(
            f"a plan is {use} for known sizes, and the size of label {names[0]!r} is not known; make a plan with a "
            f"number for it\n  {excerpt(plan.written)}"
        )
