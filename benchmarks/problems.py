"""The problems to time: read from problems.txt, or random ones from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from pathlib import Path
from random import Random
from string import ascii_letters
from typing import Any

import numpy as np

SPELLINGS = 12
"""The most spellings of a contraction in the group ``order``, evenly spaced among all of them."""

DTYPES = ("float64", "complex64", "int64", "int32", "int8", "float16", "bool")
"""The dtypes of the group ``dtypes``; all other problems are in float32."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A contraction to time.

    Attributes:
        group: its part of the benchmarks.
        equation: the text form, with an explicit output and no ellipsis.
        shapes: the shapes of the operands.
        dtype: the dtype of all operands; of all but the first, if that is real.
        layouts: the memory layout of each operand, as for :func:`laid_out`; empty if all are C-contiguous.
        gradient: whether the gradients of all operands are computed too.
        family: the contraction that several spellings share; empty if there is one spelling.
        is_real: the first operand has the real parts of complex numbers.
    """

    group: str
    equation: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    layouts: tuple[str, ...] = ()
    gradient: bool = False
    family: str = ""
    is_real: bool = False

    def __str__(self) -> str:
        shapes = " ".join(f"({','.join(map(str, shape))})" for shape in self.shapes)
        dtype = "" if self.dtype == "float32" else self.dtype
        real = "first real" if self.is_real else ""
        return "  ".join(filter(None, (self.equation, shapes, dtype, " ".join(self.layouts), real)))

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each label."""
        terms = self.equation.partition("->")[0].split(",")
        return {label: size for term, shape in zip(terms, self.shapes) for label, size in zip(term, shape)}

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return tuple(self.sizes[label] for label in self.equation.partition("->")[2])


def multiply_adds(problem: Problem, path: Sequence[Sequence[int]]) -> int:
    """Multiply-adds along a path; a sum over one operand counts its additions.

    >>> problem = Problem("networks", "ij,jk,kl->il", ((2, 3), (3, 4), (4, 5)))
    >>> multiply_adds(problem, [(0, 1), (0, 1)]), multiply_adds(problem, [(0, 1, 2)])
    (64, 240)
    """
    left, _, output = problem.equation.partition("->")
    terms = [set(term) for term in left.split(",")]
    total = 0
    for step in path:
        taken = [terms.pop(place) for place in sorted(step, reverse=True)]
        space = set().union(*taken)
        total += prod(problem.sizes[label] for label in space) * max(len(taken) - 1, 1)
        terms.append(space & set(output).union(*terms))
    return total


# -- operands ---------------------------------------------------------------------------------------------------


def operands(problem: Problem) -> list[Any]:
    """Random NumPy arrays, the same on every call; positive, so that no sum cancels and errors show.

    With gradients, the last array is the gradient of the result.
    """
    rng = np.random.default_rng(0)

    def random(shape: tuple[int, ...]) -> Any:
        if problem.dtype == "bool":
            return rng.random(shape) < 0.1
        if problem.dtype.startswith("int"):
            return rng.integers(0, 5, shape).astype(problem.dtype)
        real = rng.random(shape)
        return np.asarray(real + 1j * rng.random(shape) if problem.dtype.startswith("complex") else real, problem.dtype)

    layouts = problem.layouts or ("C",) * len(problem.shapes)
    arrays = [laid_out(random, shape, layout) for shape, layout in zip(problem.shapes, layouts)]
    if problem.is_real:
        arrays[0] = arrays[0].real.copy()
    return [*arrays, random(problem.shape)] if problem.gradient else arrays


def laid_out(random: Callable[[tuple[int, ...]], Any], shape: tuple[int, ...], layout: str) -> Any:
    """An array in a memory layout.

    ``C`` and ``F`` order; ``rolled``: stored with the last axis first; ``permuted:201``: stored with its axes in this
    order; ``gaps`` between rows; ``stepped``: every other element of a row; ``reversed`` along all axes;
    ``expanded:01``: these axes have stride 0; ``windows``: each row starts one element after the one before.
    """
    word, _, axes = layout.partition(":")
    match word:
        case "C":
            return random(shape)
        case "F":
            return random(shape[::-1]).T
        case "rolled":
            return np.moveaxis(random((shape[-1], *shape[:-1])), 0, -1)
        case "permuted":
            order = tuple(map(int, axes))
            return random(tuple(shape[axis] for axis in order)).transpose(np.argsort(order))
        case "gaps":
            return random((*shape[:-1], shape[-1] + 7))[..., 3:-4]
        case "stepped":
            return random((*shape[:-1], 2 * shape[-1]))[..., ::2]
        case "reversed":
            return np.flip(random(shape))
        case "expanded":
            small = random(tuple(1 if str(axis) in axes else size for axis, size in enumerate(shape)))
            strides = [0 if str(axis) in axes else stride for axis, stride in enumerate(small.strides)]
            return np.lib.stride_tricks.as_strided(small, shape, strides)
        case "windows":
            line = random((sum(shape) - 1,))
            return np.lib.stride_tricks.as_strided(line, shape, line.strides * 2)
        case _:
            raise ValueError(f"there is no layout {layout!r}")


# -- problems from text -----------------------------------------------------------------------------------------


def sized(group: str, equation: str, sizes: dict[str, int], **more: Any) -> Problem:
    """A problem from the size of each label.

    >>> sized("mlp", "bi,io->bo", {"b": 2, "i": 3, "o": 4}).shapes
    ((2, 3), (3, 4))
    """
    terms = equation.partition("->")[0].split(",")
    return Problem(group, equation, tuple(tuple(sizes[label] for label in term) for term in terms), **more)


def fitted(equation: str, elements: float = 4e6, work: float = 2e9, network: bool = False) -> dict[str, int]:
    """Label sizes for a number of elements, and at most a number of multiply-adds.

    Sizes vary by up to a factor of 2; the equation is the seed.

    Args:
        equation: the equation.
        elements: the elements of all operands and the result.
        work: multiply-adds in one loop over all labels; for a network, along a greedy path.
        network: whether to count along a path.
    """
    rng = Random(equation)
    terms = equation.replace("->", ",").split(",")
    weight = {label: 2.0 ** rng.random() for label in dict.fromkeys("".join(terms))}
    sizes, scale = dict.fromkeys(weight, 2), 1.0

    def arithmetic() -> int:
        if not network:
            return prod(sizes.values())
        problem = sized("", equation, sizes)
        empty = [np.broadcast_to(np.float32(0), shape) for shape in problem.shapes]
        path = np.einsum_path(equation, *empty, optimize=("greedy", 1 << 62))[0][1:]
        return multiply_adds(problem, path)

    while weight and sum(prod(sizes[label] for label in term) for term in terms) < elements and arithmetic() < work:
        scale *= 1.2 if network else 1.03
        sizes = {label: max(2, round(weight[label] * scale)) for label in weight}
    return sizes


def spellings(family: str, sizes: dict[str, int]) -> Iterator[Problem]:
    """A contraction with its operands and the axes of its result in many orders, the first one among them."""
    left, _, output = family.partition("->")
    orders = list(product(permutations(left.split(",")), permutations(output)))
    count = min(SPELLINGS, len(orders))
    for terms, order in (orders[place * len(orders) // count] for place in range(count)):
        yield sized("order", f"{','.join(terms)}->{''.join(order)}", sizes, family=family)


def random_problems(seed: int, count: int) -> Iterator[Problem]:
    """Random contractions of all kinds and layouts, most with 10⁶ to 10⁹ multiply-adds.

    Of five, one is a small pair, one a chain of three operands, and one a network.
    """
    rng = Random(seed)
    for number in range(count):
        kind = number % 5
        equation = {3: random_chain, 4: random_network}.get(kind, random_pair)(rng)
        work = 10 ** (rng.uniform(3, 6) if kind == 2 else rng.uniform(6, 9))
        sizes = fitted(equation, 2e7, work, network=kind > 2)
        terms = equation.partition("->")[0].split(",")
        layouts = tuple(random_layout(rng, len(term)) for term in terms)
        yield sized("random", equation, sizes, layouts=layouts if set(layouts) != {"C"} else ())


def random_pair(rng: Random) -> str:
    """Two operands with up to three labels of each class, in random axis orders."""
    batch, contracted, left, right = (rng.randrange(4) for _ in range(4))
    if batch + contracted + min(left, right) == 0:  # no operand is a scalar
        return random_pair(rng)
    labels = rng.sample("abcdefghijklm", batch + contracted + left + right)
    shared, free = labels[: batch + contracted], labels[batch + contracted :]
    terms = shared + free[:left], shared + free[left:], labels[:batch] + free
    return "{},{}->{}".format(*("".join(rng.sample(term, len(term))) for term in terms))


def random_network(rng: Random) -> str:
    """Three to five operands, each connected to an earlier one; some shared labels are kept in the output."""
    names = iter(rng.sample(ascii_letters, 40))
    terms: list[list[str]] = [[] for _ in range(rng.randint(3, 5))]
    output: list[str] = []
    for place, term in enumerate(terms):
        free = [next(names) for _ in range(rng.choice((0, 1, 1, 2)))]
        bonds = [next(names) for _ in range(rng.choice((1, 1, 2)))] if place else []
        term += free + bonds
        terms[rng.randrange(max(place, 1))] += bonds
        output += free + [bond for bond in bonds if rng.random() < 0.1]
    mixed = ["".join(rng.sample(term, len(term))) for term in (*terms, output)]
    return f"{','.join(mixed[:-1])}->{mixed[-1]}"


def random_chain(rng: Random) -> str:
    """Three operands in a row, linked by one or two labels each, often with a batch label, in random axis orders."""
    names = iter(rng.sample(ascii_letters, 12))
    batch = [next(names) for _ in range(rng.randrange(2))]
    left, right = ([next(names) for _ in range(rng.choice((1, 1, 2)))] for _ in range(2))
    first, middle, last = ([next(names) for _ in range(rng.choice(few))] for few in ((1, 2), (0, 0, 1), (1, 2)))
    inner = batch + left + middle + right
    terms = batch + first + left, inner, batch + right + last, batch + first + middle + last
    mixed = ["".join(rng.sample(term, len(term))) for term in terms]
    return f"{','.join(mixed[:-1])}->{mixed[-1]}"


def random_layout(rng: Random, rank: int) -> str:
    """The layout of an operand, often C-contiguous."""
    word = rng.choice(("C", "C", "C", "permuted", "gaps", "stepped", "reversed", "expanded"))
    if rank == 0 or (rank == 1 and word == "permuted"):
        return "C"
    if word == "permuted":
        return f"permuted:{''.join(map(str, rng.sample(range(rank), rank)))}"
    return f"expanded:{rng.randrange(rank)}" if word == "expanded" else word


REAL_TIMES_COMPLEX, WINDOWS = "real times complex", "sliding windows"
"""The class of problems whose first operand is real, and that of those whose operand with labels ni shows windows."""

CLASSES: dict[str, dict[str, dict[str, tuple[int, int]]]] = {
    "outer products": {
        "a,b->ab": {"a": (2, 3000), "b": (2, 3000)},
        "ab,cd->abcd": {"a": (2, 60), "b": (2, 60), "c": (2, 60), "d": (2, 60)},
        "na,nb->nab": {"n": (2, 3000), "a": (2, 64), "b": (2, 64)},
    },
    "tiny matrices": {"nij,njk->nik": {"n": (10, 100_000), "i": (2, 8), "j": (2, 8), "k": (2, 8)}},
    "matrices times vectors": {"nij,nj->ni": {"n": (10, 3000), "i": (2, 300), "j": (2, 300)}},
    "short rows": {"ni,ni->n": {"n": (100, 1_000_000), "i": (2, 32)}},
    "products of three": {"a,ab,b->ab": dict.fromkeys("ab", (2, 3000))},
    WINDOWS: {"ni,fi->nf": {"n": (1000, 300_000), "i": (4, 200), "f": (2, 16)}},
    "rows times numbers": {"n,ni->ni": {"n": (100, 1_000_000), "i": (2, 32)}},
    "a tall matrix": {"ai,ij->aj": {"a": (1000, 300_000), "i": (2, 32), "j": (2, 32)}},
    "MTTKRP": {"ijk,ir,jr->kr": {**dict.fromkeys("ijk", (10, 200)), "r": (4, 64)}},
    REAL_TIMES_COMPLEX: {"ij,jk->ik": dict.fromkeys("ijk", (2, 600)), "ij,j->i": dict.fromkeys("ij", (2, 3000))},
    "attention": {
        "bhqd,bhkd->bhqk": {"b": (1, 32), "h": (2, 16), "q": (16, 512), "k": (16, 512), "d": (8, 128)},
        "bhqk,bhkd->bhqd": {"b": (1, 32), "h": (2, 16), "q": (16, 512), "k": (16, 512), "d": (8, 128)},
    },
    "large results": {"abi,icd->abcd": {"i": (2, 12), "a": (10, 80), "b": (10, 80), "c": (10, 80), "d": (10, 80)}},
    "rank 6": {
        "abcijk,ijkdef->abcdef": dict.fromkeys("abcdefijk", (2, 12)),
        "abcdij,ijkabe->cdek": dict.fromkeys("abcdeijk", (2, 16)),
    },
    "one operand": {
        "abcd->dbca": dict.fromkeys("abcd", (2, 64)),
        "abcd->ac": dict.fromkeys("abcd", (2, 64)),
        "aabb->ab": dict.fromkeys("ab", (2, 64)),
        "aab->b": dict.fromkeys("ab", (2, 300)),
    },
}
"""By class, equations with the bounds of each label's size; operands and result get random axis orders."""

EVERYDAY = 98
"""The problems of the classes in the group ``everyday``."""

LARGEST = 3e7
"""The most elements of an operand or a result of these problems."""


def class_problems(seed: int, count: int) -> Iterator[Problem]:
    """Random problems of each class in turn, in single and double precision."""
    rng, names = Random(seed), list(CLASSES)
    for number in range(count):
        name = names[number % len(names)]
        while True:
            equation, bounds = rng.choice(list(CLASSES[name].items()))
            sizes = {label: round(low * (high / low) ** rng.random()) for label, (low, high) in bounds.items()}
            terms = equation.replace("->", ",").split(",")
            if 1e3 < max(prod([sizes[label] for label in term]) for term in terms) < LARGEST:
                break
        *inputs, output = ["".join(rng.sample(term, len(term))) for term in terms]
        inputs = rng.sample(inputs, len(inputs))
        spelling = f"{','.join(inputs)}->{output}"
        dtype, is_real = rng.choice(("float32", "float64")), name == REAL_TIMES_COMPLEX
        if is_real:
            dtype = {"float32": "complex64", "float64": "complex128"}[dtype]
        layouts = tuple(["windows" if {*term} == {*"ni"} else "C" for term in inputs]) if name == WINDOWS else ()
        yield sized(name, spelling, sizes, dtype=dtype, layouts=layouts, is_real=is_real)


def read(group: str, line: str) -> Iterator[Problem]:
    """The problems of a line of problems.txt: one, or one for each order or dtype."""
    words, _, layouts = line.partition("|")
    equation, *items = words.split()
    sizes = {label: int(size) for label, size in (item.split("=") for item in items)}
    match group:
        case "order":
            yield from spellings(equation, sizes)
        case "dtypes":
            yield from (sized(group, equation, sizes, dtype=dtype) for dtype in DTYPES)
        case _:
            options = {"layouts": tuple(layouts.split()), "gradient": group == "gradients"}
            yield sized(group, equation, sizes or fitted(equation), **options)


def all_problems(seed: int = 0, count: int = 30) -> dict[str, list[Problem]]:
    """The problems by group: those of problems.txt, ``count`` random ones from the seed, and some of all classes."""
    groups: dict[str, list[Problem]] = {}
    for line in Path(__file__).with_name("problems.txt").read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("["):
            group = text.strip("[]")
            groups[group] = []
        elif text:
            groups[group] += read(group, text)
    everyday = sorted(class_problems(seed, EVERYDAY), key=lambda problem: list(CLASSES).index(problem.group))
    return {**groups, "random": list(random_problems(seed, count)), "everyday": everyday}
