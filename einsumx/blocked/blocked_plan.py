"""A contraction that runs block by block: what :func:`einsumx.plan` gives under a memory limit, and its execution."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from einsumx.adapters.base import Adapter, Array
from einsumx.blocked.cost import Blocking, Landing
from einsumx.blocked.stages import Stage, ranges
from einsumx.errors import EinsumxError, excerpt
from einsumx.ir.bind import SizedEquation, label_names
from einsumx.ir.cost import returns_view
from einsumx.ir.program import Operand
from einsumx.runtime.prepare import Options, prepare

if TYPE_CHECKING:
    from einsumx.render.svg import Drawing

__all__ = ["BlockedPlan", "Blocks", "Box", "Contract", "Place", "Read", "compute", "contracting"]

Box: TypeAlias = tuple[slice, ...]
"""A part of an array: a range of each axis."""

Read: TypeAlias = tuple[int, Box]
"""The number of an operand, and the part of it that is needed."""

Steps: TypeAlias = Generator[Read, list[Array] | None, Array]
"""A computation that yields what it has to read, and takes what was read out of a list."""

Place: TypeAlias = dict[int, int]
"""The number of the block that each cut label is at."""

Contract: TypeAlias = Callable[[Stage, Sequence[Array]], Array]
"""Runs a stage on blocks of its inputs."""


@lru_cache(maxsize=1)
def _run() -> Callable[..., Any]:
    """What runs a plan; kept, as nothing can be imported any more while the interpreter ends."""
    from einsumx.streaming.run import run_plan

    return run_plan


@dataclass(frozen=True, slots=True)
class BlockedPlan:
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

    equation: SizedEquation
    backend: str
    device: str
    operands: tuple[Operand, ...]
    dtype: str
    compute_dtype: str
    limit: int
    in_place: tuple[bool, ...]
    landing: Landing
    blocking: Blocking

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
        return _run()(self, operands, out)

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
          time         15.4 ms expected
        """
        from einsumx.ir.text import blocked_text

        return blocked_text(self)

    def draw(self) -> Drawing:
        """What is done for a block and how often, as a picture, with memory over time against the limit.

        It is saved and shown as that of :meth:`einsumx.ir.program.Plan.draw`.
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

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return self.equation.shape

    @property
    def peak_bytes(self) -> int:
        """The most bytes that running it has alive at once, counted as for :attr:`einsumx.ir.program.Plan.peak_bytes`.

        Operands that lie where it is computed and an ``out=`` that is given are left out. What may be read ahead is
        counted whole, however far the reading is.
        """
        return self.blocking.peak_bytes

    @property
    def seconds(self) -> float:
        """The time that it is expected to take, by the rates that the backend declares or that were measured."""
        return self.blocking.seconds

    @property
    def cuts(self) -> dict[str, int]:
        """Into how many blocks each label is cut, from the outermost loop to the innermost.

        >>> import einsumx
        >>> einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True).cuts
        {'k': 4, 'i': 7}
        """
        names = label_names(self.equation)
        return {names[label]: self.blocking.counts[label] for label in self.blocking.order}

    @property
    def blocks(self) -> int:
        """How many blocks the result is computed in."""
        return prod(self.blocking.counts[label] for label in self.blocking.root.nest)

    @property
    def reads(self) -> tuple[int, ...]:
        """How often each operand is gone through from end to end."""
        return self.blocking.reads

    @property
    def read_bytes(self) -> tuple[int, ...]:
        """Bytes of each operand that are brought to the device in all; 0 where it lies there."""
        return tuple(
            0 if is_there else operand.nbytes * times
            for operand, is_there, times in zip(self.operands, self.in_place, self.reads)
        )


class Blocks:
    """The values of a blocked contraction, computed step by step; those that more than one block needs are kept.

    A step yields what has to be read and takes the block that was read, so that the same walk tells beforehand, with
    functions that compute nothing, in which order operands are going to be read.

    Args:
        plan: how it is cut.
        contract: runs a stage.
        add: adds partial sums up.
    """

    def __init__(self, plan: BlockedPlan, contract: Contract, add: Callable[[Array, Array], Array]) -> None:
        self._plan, self._contract, self._add = plan, contract, add
        self._ranges = [ranges(size, count) for size, count in zip(plan.equation.sizes, plan.blocking.counts)]
        self._kept: dict[tuple[Stage, int], tuple[tuple[int, ...], Array]] = {}

    @classmethod
    def outline(cls, plan: BlockedPlan) -> Blocks:
        """A walk that computes nothing, and tells what there is to compute."""
        return cls(plan, lambda *_: None, lambda *_: None)

    @classmethod
    def reads(cls, plan: BlockedPlan, places: Iterable[Place]) -> Iterator[Read]:
        """What is read, in this order, for the blocks of the result at ``places``."""
        walk = cls.outline(plan)
        for place in places:
            yield from walk.value(place)

    @classmethod
    def steps(cls, plan: BlockedPlan, places: Iterable[Place]) -> int:
        """How often a stage runs for the blocks of the result at ``places``."""
        count = 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        walk = cls(plan, counted, lambda *_: None)
        for place in places:
            compute(walk.value(place), lambda *_: None)
        return count

    def places(self) -> Iterator[Place]:
        """Where the blocks of the result are, in the order in which they are best computed."""
        return self._places(self._plan.blocking.root.nest)

    def box(self, place: Place) -> Box:
        """The part of the result that a block is."""
        return self._box(self._plan.blocking.root.output, place)

    def value(self, place: Place, start: int = 0, stop: int | None = None) -> Steps:
        """The steps to a block of the result, or to some of the terms that it is the sum of; they return it."""
        return self._value(self._plan.blocking.root, place, start, stop)

    @property
    def keeps(self) -> bool:
        """Whether there are values that another block of the result may need."""
        return bool(self._kept)

    def _places(self, loops: Sequence[int]) -> Iterator[Place]:
        for numbers in product(*(range(len(self._ranges[label])) for label in loops)):
            yield dict(zip(loops, numbers))

    def _box(self, labels: Sequence[int], place: Place, shape: Sequence[int] | None = None) -> Box:
        """The part of an array that lies in the blocks of ``place``; axes of size 1 that broadcast are whole."""
        sizes = self._plan.equation.sizes
        return tuple(
            self._ranges[label][place[label]] if label in place and (not shape or shape[axis] == sizes[label])
            else slice(0, shape[axis] if shape else sizes[label])
            for axis, label in enumerate(labels)
        )  # fmt: skip

    def _value(self, stage: Stage, place: Place, start: int = 0, stop: int | None = None) -> Steps:
        """The value of a stage at a place, summed over the cut labels that it sums, or over some of their blocks."""
        total = None
        for number, inner in enumerate(islice(self._places(stage.loops), start, stop)):
            here = {**place, **inner}
            self._kept = {key: kept for key, kept in self._kept.items() if kept[0] == _at(self._nest(key), here)}
            inputs: dict[int, Array] = {}
            for slot in stage.order:
                inputs[slot] = yield from self._input(stage, slot, here)
            part = self._contract(stage, [inputs.pop(slot) for slot in range(len(stage.inputs))])
            total = part if number == 0 else self._add(total, part)
            del part
        self._forget(stage, len(stage.nest))
        return total

    def _input(self, stage: Stage, slot: int, place: Place) -> Steps:
        source, nest, key = stage.inputs[slot], stage.nests[slot], (stage, slot)
        if key in self._kept:
            return self._kept[key][1]
        if isinstance(source, Stage):
            value = yield from self._value(source, {label: place[label] for label in nest})
        else:
            shape = self._plan.operands[source].shape
            brought = yield source, self._box(stage.terms[slot], place, shape)
            value = brought.pop() if brought else None  # out of a list, so that whoever sends it does not hold it too
        if len(nest) < len(stage.inside):
            self._kept[key] = _at(nest, place), value
        return value

    @staticmethod
    def _nest(key: tuple[Stage, int]) -> Sequence[int]:
        stage, slot = key
        return stage.nests[slot]

    def _forget(self, stage: Stage, depth: int) -> None:
        """Let go what was kept for a stage, and for those under it, but for what outlasts ``depth`` loops."""
        for slot, (source, nest) in enumerate(zip(stage.inputs, stage.nests)):
            if len(nest) >= depth:
                self._kept.pop((stage, slot), None)
            if isinstance(source, Stage):
                self._forget(source, depth)


def _at(loops: Sequence[int], place: Place) -> tuple[int, ...]:
    """The numbers of the blocks that some loops are at; -1 for those that ``place`` is not in."""
    return tuple(place.get(label, -1) for label in loops)


def contracting(plan: BlockedPlan, adapter: Adapter) -> Contract:
    """What runs the stages of ``plan``, each on blocks of its inputs."""

    def contract(stage: Stage, arrays: Sequence[Array]) -> Array:
        options = Options(plan.compute_dtype, "unsafe", stage.path)
        prepared = prepare(adapter, stage.equation, arrays, options)
        value = adapter.boxed(prepared.run(*arrays), prepared.plan.dtype)
        # What is added up in its own memory must be no view of an operand.
        value = adapter.copy(value) if stage.loops and returns_view(prepared.plan) else value
        adapter.synchronize(value)  # what is only queued holds on to its blocks
        return value

    return contract


def compute(steps: Steps, read: Callable[[int, Box], Array]) -> Array:
    """What ``steps`` return, with what they ask for brought by ``read``."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send([read(*wanted)])
    except StopIteration as end:
        return end.value
