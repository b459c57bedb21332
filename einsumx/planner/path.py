"""``find_path``: the order of pairwise contractions, from einsumx's own search, opt_einsum, cotengra or the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from math import inf, prod
from operator import attrgetter, index
from typing import TYPE_CHECKING, Any, TypeAlias

from einsumx.errors import MemoryLimitError, PathError, counted, excerpt, shown
from einsumx.imports import LazyModule, imported
from einsumx.scalars import as_python

if TYPE_CHECKING:
    from einsumx import log
    from einsumx.ir import fill, parse, sizes, text
    from einsumx.ir.bind import SizedEquation
    from einsumx.ir.operand import Operand, Path
    from einsumx.planner import search, sparse_path
    from einsumx.planner.search import Pace, Tree
else:
    sizes = LazyModule("einsumx.ir.sizes")
    fill = LazyModule("einsumx.ir.fill")
    log, text = LazyModule("einsumx.log"), LazyModule("einsumx.ir.text")
    parse = LazyModule("einsumx.ir.parse")
    sparse_path = LazyModule("einsumx.planner.sparse_path")
    search = LazyModule("einsumx.planner.search")

_optimizers: Any = LazyModule("opt_einsum.paths")

Optimize: TypeAlias = str | bool | Sequence[Any] | Callable[..., Any]
"""``"auto"``, or a name of opt_einsum's; True for ``"auto"``, False for left to right;
``"cotengra"`` or ``"cotengra:NAME"``; a path; an optimizer object of opt_einsum or cotengra;
or NumPy's ``(name, limit)``, where no intermediate may have more elements than ``limit``."""


def as_optimize(optimize: Any) -> Any:
    """The value of ``optimize=`` in a form that can be a cache key: a path as tuples of integers, None as the default.

    Raises:
        PathError: a step of a path is not a tuple of positions.

    >>> as_optimize(None), as_optimize(["einsum_path", [0, 1]]), as_optimize(("greedy", 100))
    ('auto', ((0, 1),), ('greedy', 100))
    """
    if optimize is None:
        return "auto"
    if not isinstance(optimize, list | tuple):
        return as_python(optimize)
    if set(map(type, optimize)) == {tuple}:
        return tuple(_path_steps(optimize))
    match [as_python(part) for part in optimize]:
        case [str() as name, (int() | float()) as limit] if name != "einsum_path" and not isinstance(limit, bool):
            return name, limit
        case steps:
            return tuple(_path_steps(steps))


def find_path(
    equation: SizedEquation,
    optimize: Optimize = "auto",
    operands: Sequence[Operand] = (),
    pace: Pace | None = None,
    room: Callable[[], float] | None = None,
) -> Path:
    """A path of pairwise contractions, one step fewer than operands (one step for a single operand).

    ``"auto"`` finds one path for all sizes that are equal when rounded to four significant bits, because a search takes
    longer than many contractions. Steps of three or more operands are split into pairs. Sizes that are not known count
    as typical ones.

    Args:
        equation: with sizes.
        optimize: how to search, or the path.
        operands: of which some may be sparse; ``"auto"`` then searches by the elements that they store.
        pace: what a step takes, for ``"auto"``; None for that of a typical processor.
        room: returns how many elements fit into free memory; called if those of a step may not.

    Raises:
        PathError: an unknown name, a missing library, or a path that does not fit the operands.
        MemoryLimitError: an intermediate exceeds the limit in NumPy's form of ``optimize``, or ``"auto"`` finds no path
            along which all fit.

    >>> from einsumx.ir.parse import parse_text
    >>> from einsumx.ir.bind import bind
    >>> sized = bind(parse_text("ab,bc,cd->ad", 3), [(2, 900), (900, 3), (3, 800)])
    >>> find_path(sized), find_path(sized, [(1, 2), (0, 1)])
    (((0, 1), (0, 1)), ((1, 2), (0, 1)))
    """
    count = len(equation.inputs)
    is_auto = optimize is True or (isinstance(optimize, str) and optimize == "auto")
    if count <= 2 and (is_auto or optimize is False):
        return (tuple(range(count)),)
    terms: Iterable[tuple[int, ...]] = equation.inputs
    if 1 in chain.from_iterable(equation.shapes):
        terms = map(equation.carried, range(count))
    inputs, output, label_sizes = tuple(map(frozenset, terms)), frozenset(equation.output), equation.sizes
    if set(map(type, label_sizes)) != {int}:
        label_sizes = tuple(map(sizes.assumed, label_sizes))
    if is_auto:
        classes = tuple(map(size_class, label_sizes))
        if operands and set(map(_nnz_of, operands)) != {None}:
            return sparse_path.sparse_path(inputs, output, classes, tuple(map(fill.density, operands)))
        return _default_path(equation, (inputs, output, classes), pace or search.TYPICAL, room)
    match as_optimize(optimize):
        case (bool() | str()) as choice:
            steps = _optimized(inputs, output, label_sizes, choice)
        case (str() as name, limit):
            path = find_path(equation, name)
            _check_limit(path, inputs, equation, limit)
            return path
        case tuple() as steps:
            pass
        case _ if callable(optimize):
            steps = _optimized(inputs, output, label_sizes, optimize)
        case _:
            hint = "; pass its get_path()" if hasattr(optimize, "get_path") else ""
            raise PathError(
                f"optimize= must be an optimizer or its name, True, False, or a path, not {shown(optimize)}{hint}"
            )
    return _pairwise(steps, inputs, output, label_sizes)


_nnz_of = attrgetter("nnz")


def _default_path(
    equation: SizedEquation,
    network: tuple[tuple[frozenset[int], ...], frozenset[int], tuple[int, ...]],
    pace: Pace,
    room: Callable[[], float] | None,
) -> Path:
    """The path of ``"auto"`` whose steps fit into the room; ``network`` is for :func:`searched`."""
    path, found = searched(*network, pace)
    if found.seconds > _LONG and len(network[0]) > search.MOST_OF_ALL_ORDERS:
        message = "%s: about %s to run; optimize='cotengra' may find a better path"
        log.log.info(message, excerpt(equation.text), text.duration(found.seconds))
    if room is not None and found.elements > _LARGE and found.elements > (most := room()):
        rounded = float(1 << int(most).bit_length() - 1)  # so that repeated calls share a path
        path, found = searched(*network, pace._replace(room=rounded))
        if found.seconds == inf:
            raise _no_room(equation, found, most)
    return path


_LONG = 10.0
"""Seconds of a contraction for which a search by cotengra is likely to pay."""

_LARGE = 1 << 24
"""The elements of a step that fit into any free memory."""


def _no_room(equation: SizedEquation, found: Tree, most: float) -> MemoryLimitError:
    needed, there_is = (text.quantity(count, "elements") for count in (found.elements, most))
    return MemoryLimitError(
        f"no path was found whose steps fit into free memory: the best one needs {needed} in one step, and {there_is} "
        "fit; pass memory_limit= to compute in blocks, or optimize='cotengra' for a longer search\n  "
        f"{excerpt(equation.text)}"
    )


@lru_cache(maxsize=1024)
def searched(
    inputs: tuple[frozenset[int], ...], output: frozenset[int], sizes: tuple[int, ...], pace: Pace
) -> tuple[Path, Tree]:
    """The path of ``"auto"``, and its tree."""
    network = search.Network(inputs, output, [size or 1 for size in sizes], pace)
    tree = search.search(network)
    return search.as_path(tree.merges, len(inputs)), tree


def path_text(equation: SizedEquation, path: Path, pace: Pace) -> str:
    """What a path of many steps takes, beside that of the plain greedy search, and which search found it."""
    inputs = tuple([frozenset(equation.carried(number)) for number in range(len(equation.inputs))])
    output, label_sizes = frozenset(equation.output), tuple(map(sizes.assumed, equation.sizes))
    default, found = searched(inputs, output, tuple(map(size_class, label_sizes)), pace)
    network = search.Network(inputs, output, [size or 1 for size in label_sizes], pace)
    name = f"path: {found.name}" if default == path else "path"
    lines = []
    for title, merges in ((name, search.as_merges(path, len(inputs))), ("plain greedy", search.greedy(network))):
        tree = network.tree(merges, title)
        work = sum([network.span(tree.labels[first] | tree.labels[second]) for first, second in merges])
        largest = max(map(network.span, tree.labels[len(inputs) :]))
        figures = counted(text.quantity(work), "multiply-add"), counted(text.quantity(largest), "element")
        lines.append((title, "{}, largest result {}".format(*figures)))
    return text.in_columns(lines)


_SIGNIFICANT_BITS = 4


def size_class(size: int) -> int:
    """The nearest size with few significant bits.

    >>> [size_class(size) for size in (7, 15, 33, 35, 1000)]
    [7, 15, 32, 36, 1024]
    """
    spare = size.bit_length() - _SIGNIFICANT_BITS
    return size if spare <= 0 else (size + (1 << spare - 1)) >> spare << spare


def _check_limit(path: Path, inputs: Sequence[frozenset[int]], equation: SizedEquation, limit: float) -> None:
    """Raise if an intermediate has more elements than NumPy's limit, which NumPy avoids by unpaired contractions."""
    *intermediates, _ = step_outputs(path, inputs, frozenset(equation.output))
    label_sizes = tuple(map(sizes.assumed, equation.sizes))
    largest = max((prod(label_sizes[label] for label in labels) for _, labels in intermediates), default=0)
    if intermediates and largest > limit:
        raise MemoryLimitError(
            f"the path has an intermediate of {largest} elements, more than the limit of {limit} in optimize=; "
            f"raise the limit or omit it\n  {excerpt(equation.text)}"
        )


def step_outputs(
    path: Path, inputs: Sequence[frozenset[int]], output: frozenset[int]
) -> list[tuple[tuple[int, ...], frozenset[int]]]:
    """Each step's positions, with the labels that its result must keep.

    A label is kept while another term, or the output, still needs it.
    """
    uses = Counter(chain(output, *inputs))
    summed = {label for label, count in uses.items() if count == 1}
    terms, steps = list(inputs), []
    for step in path:
        first, *others = map(terms.pop, sorted(step, reverse=True))
        kept = first - summed
        for other in others:
            for label in kept & other:
                uses[label] -= 1
                if uses[label] == 1:
                    summed.add(label)
            kept = (kept | other) - summed
        terms.append(kept)
        steps.append((step, kept))
    return steps


def _optimized(
    inputs: Sequence[frozenset[int]],
    output: frozenset[int],
    label_sizes: Sequence[int],
    optimize: str | bool | Callable[..., Any],
) -> list[tuple[int, ...]]:
    """The steps that an optimizer finds; False goes from left to right, the running result always first."""
    count = len(inputs)
    optimizer: Callable[..., Any] | None = None
    if isinstance(optimize, str):
        # Pairs need no path, and the name alone must not cost an import; a wrong name is an error all the same.
        optimizer = _by_name(optimize) if count > 2 or optimize != "auto" else None
    elif callable(optimize):
        optimizer = optimize
    if count <= 2:
        return [tuple(range(count))]
    if optimizer is None:
        return [(0, 1), *((0, last) for last in range(count - 2, 0, -1))]
    sizes = dict(enumerate([max(size, 1) for size in label_sizes]))
    if _is_cotengra(optimizer):  # expects labels that are text, and takes no memory limit
        letters = [frozenset(map(parse.symbol, term)) for term in inputs]
        named = {parse.symbol(label): size for label, size in sizes.items()}
        steps = optimizer(letters, frozenset(map(parse.symbol, output)), named)
    else:
        # Labels as integers: their sets iterate alike in every process, so that paths do not depend on the hash seed.
        steps = optimizer(list(inputs), output, sizes, None)
    if not isinstance(steps, Iterable):
        raise PathError(f"the optimizer {shown(optimizer)} returned {shown(steps)}; a path is a list such as [(0, 1)]")
    return _path_steps(list(steps))


def _is_cotengra(optimizer: Callable[..., Any]) -> bool:
    owner = getattr(optimizer, "__module__", None) or type(optimizer).__module__
    return str(owner).partition(".")[0] == "cotengra"


def _by_name(name: str) -> Callable[..., Any]:
    library, _, preset = name.partition(":")
    if library == "cotengra":
        return _cotengra(preset or "auto")
    if name in ("optimal", "branch-all"):
        return search.least_path
    try:
        optimizer: Callable[..., Any] = _optimizers.get_path_fn(name)
    except KeyError:
        raise PathError(
            f"no optimizer is called {shown(name)}; try 'auto', 'greedy', 'optimal', 'dp', 'random-greedy', "
            "'cotengra', a path such as [(0, 1), (0, 1)], or an optimizer object of opt_einsum or cotengra"
        ) from None
    return optimizer


def _cotengra(preset: str) -> Callable[..., Any]:
    try:
        cotengra = imported("cotengra")
    except ImportError as error:
        raise PathError("optimize='cotengra' needs cotengra: pip install cotengra") from error

    def optimizer(inputs: Any, output: Any, sizes: Any) -> Any:
        try:
            return cotengra.array_contract_path(inputs, output, sizes, optimize=preset)
        except KeyError:
            raise PathError(
                f"cotengra has no optimizer called {shown(preset)}; it has 'auto', 'auto-hq', 'greedy', 'hyper' and "
                "others"
            ) from None

    optimizer.__module__ = "cotengra"
    return optimizer


def _path_steps(steps: Sequence[Any]) -> list[tuple[int, ...]]:
    """The steps of a path in the form of NumPy (``["einsum_path", (0, 1), ...]``) or opt_einsum (without the name)."""
    if steps and isinstance(steps[0], str):
        if steps[0] != "einsum_path":
            raise PathError(
                f"a path that is a list must start with 'einsum_path' or with a step, not {shown(steps[0])}"
            )
        steps = steps[1:]
    path: list[tuple[int, ...]] = []
    for step in steps:
        try:
            positions = tuple(map(index, step))
        except (TypeError, ValueError):
            is_both = isinstance(step, list | tuple) and step[:1] in (["einsum_path"], ("einsum_path",))
            hint = "; einsum_path returns a path and a text: pass only the first" if is_both else ""
            raise PathError(
                f"a step of a path must be a tuple of positions such as (0, 1), not {shown(step)}{hint}"
            ) from None
        path.append(positions)
    return path


def _pairwise(
    steps: Sequence[tuple[int, ...]],
    inputs: Sequence[frozenset[int]],
    output: frozenset[int],
    sizes: Sequence[int],
) -> Path:
    """Check the steps against the number of operands, and split those of three or more into pairs."""
    left = len(inputs)
    if not steps and left == 1:
        steps = [(0,)]
    terms = list(inputs)
    pairs: list[tuple[int, ...]] = []
    for number, step in enumerate(steps):
        if len(step) == 2 and 0 <= step[0] < step[1] < left:  # as most are
            second = terms.pop(step[1])
            terms.append(terms.pop(step[0]) | second)
            pairs.append((+step[0], +step[1]))  # a bool becomes an int
            left -= 1
            continue
        low, high = min(step, default=left), max(step, default=left)
        if not -left <= low <= high < left:
            raise _step_error(number, step, left)
        positions = tuple(sorted(step if low >= 0 else [position % left for position in step]))
        if len(set(positions)) < len(positions):
            raise _step_error(number, step, left)
        taken = list(map(terms.pop, reversed(positions)))[::-1]
        result = frozenset().union(*taken)
        if len(positions) <= 2:
            pairs.append(positions)
        else:
            result &= frozenset().union(output, *terms)
            pairs += _split(positions, taken, result, left, sizes)
        terms.append(result)
        left = len(terms)
    if left != 1:
        raise PathError(f"the path leaves {left} operands uncontracted; it must end with one")
    return tuple(pairs)


def _step_error(number: int, step: Sequence[int], left: int) -> PathError:
    """The error for a step that does not fit the operands that are left."""
    where = f"step {number} of the path, {shown(tuple(step))}"
    if not step or len(set(step)) < len(step) or -left <= min(step) <= max(step) < left:
        return PathError(f"{where}, must name different operands")
    return PathError(f"{where}, names an operand that is not there: {left} {'is' if left == 1 else 'are'} left")


def _split(
    positions: tuple[int, ...],
    taken: list[frozenset[int]],
    result: frozenset[int],
    left: int,
    label_sizes: Sequence[int],
) -> Iterator[tuple[int, int]]:
    """One step over many operands, as pairs with positions in the whole list of terms."""
    sizes = dict(enumerate([max(size, 1) for size in label_sizes]))
    inner = _optimizers.get_path_fn("auto")(taken, result, sizes, None)
    # The position of each inner term in the whole list, which loses two terms and gains one at its end.
    where = list(positions)
    for step in inner:
        first, second = (where[place] for place in step)
        yield (min(first, second), max(first, second))
        low, high = min(first, second), max(first, second)
        where = [place for k, place in enumerate(where) if k not in step]
        where = [place - (place > low) - (place > high) for place in where]
        left -= 1
        where.append(left - 1)
