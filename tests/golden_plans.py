"""Random problems, their plans for the traits of every library, and the files in tests/golden that say what these are.

    python tests/golden_plans.py

rewrites the files, and prints for each library how many plans changed, and their estimated seconds before and after.
``git diff --word-diff tests/golden`` shows the plans themselves.

A file has the problems of one class. Under each problem stand its plans, and the libraries that have each:
``4 matmul 2 3`` writes slot 4 from slots 2 and 3. Most plans of large networks are a path, the number of ops, and a
digest of these. No arrays are made, no framework is imported, and the rates are those that adapters declare.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from math import prod
from pathlib import Path
from random import Random
from typing import Any

if __name__ == "__main__":  # the tests' own settings are in conftest.py
    os.environ["EINSUMX_CACHE"] = os.devnull

import einsumx
from einsumx import semirings
from einsumx.adapters.registry import BUILTIN, get_backend
from einsumx.ir.algebra import PLUS_TIMES, Algebra
from einsumx.ir.cost import program_seconds
from einsumx.ir.layout import contiguous
from einsumx.ir.operand import Operand
from einsumx.ir.program import Program
from einsumx.plans import BlockedPlan
from einsumx.runtime.front import contraction
from einsumx.runtime.prepare import planned as planned_alone
from einsumx.runtime.request import Request

LIMITED = [("numpy", ""), ("torch", "cuda"), ("mxnet", ""), ("jax", "")]
"""The libraries with plans of blocks, which take longest to make."""

FOLDER = Path(__file__).parent / "golden"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
FEW = (2, 3, 4, 5, 8, 16)
MANY = (1, 2, 3, 4, 7, 8, 16, 30, 64, 100, 128, 500)
LARGE = 1 << 26
"""The most elements of an operand or a result, about."""


@dataclass(frozen=True)
class Problem:
    """A contraction, for any library; with a limit, its plan is one of blocks."""

    equation: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    strides: tuple[tuple[int, ...] | None, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    algebra: Algebra = PLUS_TIMES
    limit: int = 0

    def __str__(self) -> str:
        words = [self.equation, *map(compact, self.shapes), "/".join(dict.fromkeys(self.dtypes))]
        words += [f"strides {compact(each)}" if each else "packed" for each in self.strides]
        words += [f"{name}={value}" for name, value in self.keywords.items()]
        words += [] if self.algebra is PLUS_TIMES else [self.algebra.name]
        return " ".join([*words, f"limit {self.limit}"] if self.limit else words)


def compact(value: Any) -> str:
    return str(value).replace(" ", "").replace(",)", ")")


class Draw:
    """Draws that are the same in every version of Python."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed).random

    def below(self, count: int) -> int:
        return int(self.random() * count)

    def one_of(self, values: Any) -> Any:
        return values[self.below(len(values))]

    def shuffled(self, values: Any) -> list[Any]:
        return [value for _, value in sorted([(self.random(), value) for value in values])]

    def shapes(self, terms: list[str], output: str, choice: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        sizes = {label: self.one_of(choice) for label in sorted(set("".join(terms)))}
        for term in [*terms, output]:
            while prod(sizes[label] for label in term) > LARGE:
                label = max(term, key=lambda label: (sizes[label], label))
                sizes[label] //= 2
        return tuple(tuple(sizes[label] for label in term) for term in terms)


# -- classes of problems --------------------------------------------------------------------------------------------


def pair(draw: Draw, choice: tuple[int, ...] = MANY, dtype: str = "") -> Problem:
    """Two operands with up to two labels of each role, in any order, and sometimes one that is summed alone."""
    counts = [draw.one_of((0, 1, 1, 2)), draw.one_of((0, 1, 1, 2)), *(draw.one_of((0, 1, 1, 2)) for _ in "lr")]
    labels = iter(LETTERS)
    batch, contracted, left, right = (["".join(next(labels) for _ in range(count))][0] for count in counts)
    alone = next(labels) if draw.below(8) == 0 else ""
    terms = [
        "".join(draw.shuffled(batch + contracted + left + alone)),
        "".join(draw.shuffled(batch + contracted + right)),
    ]
    output = "".join(draw.shuffled(batch + left + right))
    shapes = draw.shapes(terms, output, choice)
    return Problem(f"{','.join(terms)}->{output}", shapes, (dtype or draw.one_of(("float32", "float64")),) * 2)


def one(draw: Draw) -> Problem:
    """One operand: axes in another order, sums, diagonals."""
    labels = LETTERS[: 1 + draw.below(5)]
    term = "".join(draw.shuffled(labels + (draw.one_of(labels) if draw.below(3) == 0 else "")))
    output = "".join(draw.shuffled([label for label in labels if draw.below(3)]))
    return Problem(f"{term}->{output}", draw.shapes([term], output, MANY), (draw.one_of(("float32", "float64")),))


def network(draw: Draw, least: int = 3, most: int = 12) -> Problem:
    """A connected graph of operands, with few open labels."""
    count = least + draw.below(most - least + 1)
    terms, labels = ["" for _ in range(count)], iter(LETTERS)
    ring = draw.below(2)
    edges = [(k, k + 1 if ring else k + 1 - min(draw.below(3), k)) for k in range(count - 1)]
    edges += [(draw.below(count), draw.below(count)) for _ in range(draw.below(count))]
    for first, second in edges:
        if first != second:
            label = next(labels)
            terms[first] += label
            terms[second] += label
    output = ""
    for _ in range(draw.below(4)):
        label, place = next(labels), draw.below(count)
        terms[place] += label
        output += label
    terms = ["".join(draw.shuffled(term)) or next(labels) for term in terms]
    dtype = draw.one_of(("float32", "float64"))
    choice = FEW if draw.below(3) else (*FEW, 40, 100)
    return Problem(f"{','.join(terms)}->{output}", draw.shapes(terms, output, choice), (dtype,) * count)


def typed(draw: Draw) -> Problem:
    """Narrow, integer, bool, complex and mixed dtypes, and the keywords that concern them."""
    problem = draw.one_of((pair, pair, one, lambda draw: network(draw, 3, 4)))(draw)
    kinds = [
        *[(name, {}) for name in ("float16", "bfloat16", "int8", "int32", "int64", "uint8", "bool")],
        *[(name, {}) for name in ("complex64", "complex128", "float16", "bool")],
        ("float16", {"accumulate": "float32"}),
        ("float32", {"accumulate": "float64"}),
        ("bfloat16", {"accumulate": "float64"}),
        ("complex64", {"accumulate": "complex128"}),
        ("int8", {"dtype": "int32"}),
        ("int8", {"dtype": "float32"}),
        ("bool", {"dtype": "int64"}),
        ("float16", {"dtype": "float32"}),
        ("float32 float64", {"dtype": "float64"}),
        ("float16 float32", {"dtype": "float32"}),
        ("int8 float32", {"dtype": "float32"}),
        ("float32 complex64", {"dtype": "complex64"}),
    ]
    names, keywords = draw.one_of(kinds)
    names = names.split()
    dtypes = tuple(names[place % len(names)] for place in range(len(problem.shapes)))
    return Problem(problem.equation, problem.shapes, dtypes, keywords=keywords)


def lying(draw: Draw) -> Problem:
    """Operands whose axes lie in another order, have gaps, or repeat memory."""
    problem = draw.one_of((pair, pair, pair, one))(draw)
    strides: list[tuple[int, ...] | None] = []
    for shape in problem.shapes:
        order = draw.shuffled(range(len(shape)))
        kind = draw.one_of(("turned", "turned", "gaps", "broadcast", "packed"))
        inner = [shape[axis] for axis in order]
        if kind == "gaps":
            inner[-1:] = [size + 3 for size in inner[-1:]]
        found = dict(zip(order, contiguous(inner)))
        if kind == "broadcast" and shape:
            found[draw.below(len(shape))] = 0
        there = tuple(found[axis] for axis in range(len(shape)))
        strides.append(None if kind == "packed" or there == contiguous(shape) else there)
    return Problem(problem.equation, problem.shapes, problem.dtypes, tuple(strides))


def tiny(draw: Draw) -> Problem:
    """Sizes of 0 and 1."""
    choice = (0, 1, 1, 1, 2, 3, 3, 8)
    problem = pair(draw, choice) if draw.below(3) else network(draw, 3, 4)
    terms, _, output = problem.equation.partition("->")
    return Problem(problem.equation, draw.shapes(terms.split(","), output, choice), problem.dtypes)


def semiring(draw: Draw) -> Problem:
    """Other sums and products."""
    problem = draw.one_of((pair, pair, one, lambda draw: network(draw, 3, 4)))(draw)
    chosen = draw.one_of((semirings.max_plus, semirings.min_plus, semirings.log))
    return Problem(problem.equation, problem.shapes, problem.dtypes, algebra=chosen.algebra)


def limited(draw: Draw) -> Problem:
    """Operands in files that are larger than the memory limit."""
    problem = pair(draw, (64, 100, 300), "float32") if draw.below(3) else network(draw, 3, 4)
    terms, _, output = problem.equation.partition("->")
    shapes = draw.shapes(terms.split(","), output, (300, 500, 800))
    limit = 4 * sum(map(prod, shapes)) * draw.one_of((5, 10, 20, 30, 60)) // 100 + 100_000
    return Problem(problem.equation, shapes, ("float32",) * len(shapes), limit=limit)


CLASSES: dict[str, tuple[Callable[[Draw], Problem], int]] = {
    "pairs": (pair, 60),
    "one": (one, 25),
    "networks": (network, 30),
    "dtypes": (typed, 45),
    "layouts": (lying, 30),
    "sizes": (tiny, 20),
    "semirings": (semiring, 12),
    "limits": (limited, 6),
}
"""How a problem of each class is drawn, and how many are."""


def problems(name: str) -> list[Problem]:
    """The problems of a class; each has a seed of its own, so that others stay when one is added."""
    make, count = CLASSES[name]
    return [make(Draw(f"{name} {number}")) for number in range(count)]


# -- their plans ----------------------------------------------------------------------------------------------------


@cache
def libraries() -> dict[str, tuple[Any, str]]:
    """The adapter and the device of each library, without those whose traits another one has."""
    found: dict[str, tuple[Any, str]] = {}
    known: list[Any] = []
    for name in BUILTIN:
        for device in ("", "cpu", "cuda", "xpu"):
            if (name, device) == ("torch", "cpu"):
                continue  # depends on the processor
            traits = get_backend(name).traits(device)
            if traits not in known:
                known.append(traits)
                found[f"{name}:{device}" if device else name] = get_backend(name), device
    return found


def planned(problem: Problem, adapter: Any, device: str) -> Program | BlockedPlan | str | None:
    """The plan, or the reason why there is none; None if the library is not concerned."""
    traits = adapter.traits(device)
    if (problem.strides and not traits.strided) or (problem.limit and (adapter.name, device) not in LIMITED):
        return None
    try:
        if problem.limit:
            return einsumx.plan(
                problem.equation, *problem.shapes,
                dtypes=problem.dtypes, backend=adapter.name, device=device, memory_limit=problem.limit, stored=True,
            )  # fmt: skip
        strides = problem.strides or (None,) * len(problem.shapes)
        operands = tuple(map(Operand, problem.shapes, problem.dtypes, strides))
        request = Request(problem.equation, (), algebra=problem.algebra, **problem.keywords)
        return planned_alone(contraction(request.named(adapter, is_planned=True), adapter, operands, device))
    except einsumx.EinsumxError as error:
        return type(error).__name__


def text(plan: Program | BlockedPlan | str, is_whole: bool) -> str:
    """A plan on a line, or its path and a digest of its ops."""
    if isinstance(plan, str):
        return plan
    if isinstance(plan, BlockedPlan):
        lines = [" ".join(line.split()) for line in str(plan).splitlines()[1:]]
        return "; ".join(line for line in lines if not line.startswith(("peak memory", "time")))
    ops = "; ".join(map(op_text, plan.ops))
    ops = f"{ops}; result {plan.result}" if ops else f"result {plan.result}"
    if is_whole:
        return ops
    path = "".join(compact(step) for step in plan.path)
    return f"{path} {len(plan.ops)} ops {hashlib.sha256(ops.encode()).hexdigest()[:8]}"


def op_text(op: Any) -> str:
    """An op's slot, name, and fields that are not defaults; of a reason only that there is one."""
    words = [str(op.out), op.name]
    for each in fields(op):
        value = getattr(op, each.name)
        if each.name != "out" and value != each.default:
            words.append(each.name if value is True else "copies" if each.name == "reason" else compact(value))
    return " ".join(words)


def seconds(plan: Program | BlockedPlan | str, adapter: Any, device: str) -> float:
    if isinstance(plan, Program):
        return float(f"{program_seconds(plan, adapter.traits(device)):.2g}")
    return 0.0 if isinstance(plan, str) else float(f"{plan.seconds:.2g}")


def plans(name: str) -> Iterator[tuple[str, dict[str, str], dict[str, float]]]:
    """Each problem of a class with its plan for each library, and their estimated seconds."""
    for number, problem in enumerate(problems(name)):
        is_whole = len(problem.shapes) < 5 or number % 3 == 0
        texts, times = {}, {}
        for library, place in libraries().items():
            plan = planned(problem, *place)
            if plan is not None:
                texts[library], times[library] = text(plan, is_whole), seconds(plan, *place)
        yield f"{number + 1}. {problem}", texts, times


# -- the files ------------------------------------------------------------------------------------------------------


def file_of(name: str) -> Path:
    return FOLDER / f"{name}.txt"


def file_text(by_problem: dict[str, dict[str, str]]) -> str:
    """The text of a file, from the plan of each library for each problem."""
    lines = []
    for problem, by_library in by_problem.items():
        owners: dict[str, list[str]] = {}
        for library, plan in by_library.items():
            owners.setdefault(plan, []).append(library)
        lines += [problem, *(f"  {' '.join(names)} | {plan}" for plan, names in owners.items())]
    return "\n".join(lines) + "\n"


def read(text: str) -> dict[str, dict[str, str]]:
    """The plan of each library for each problem, from the text of a file."""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if not line.startswith(" "):
            found[line] = here = {}
        else:
            names, _, plan = line.strip().partition(" | ")
            here.update(dict.fromkeys(names.split(), plan))
    return found


def changes(
    before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]
) -> dict[tuple[str, str], tuple[str, str]]:
    """The plans that differ, by problem and library; those that are new or gone have an empty text in their place."""
    found = {}
    for problem in {**before, **after}:
        old, new = before.get(problem, {}), after.get(problem, {})
        for library in {**old, **new}:
            pair = old.get(library, ""), new.get(library, "")
            if pair[0] != pair[1]:
                found[problem, library] = pair
    return found


def rewrite() -> None:
    """Write all files, and print how many plans of each library changed, and their estimated times."""
    file_of_times = FOLDER / "seconds.json"
    old_times = json.loads(file_of_times.read_text(encoding="utf-8")) if file_of_times.exists() else {}
    times: dict[str, list[float]] = {}
    changed: dict[str, list[tuple[float, float]]] = {}
    for name in CLASSES:
        file, found = file_of(name), list(plans(name))
        before = read(file.read_text(encoding="utf-8")) if file.exists() else {}
        after = {problem: by_library for problem, by_library, _ in found}
        file.write_text(file_text(after), encoding="utf-8")
        for library in libraries():
            times[f"{library} {name}"] = [by_library.get(library, 0.0) for _, _, by_library in found]
        for problem, library in changes(before, after):
            key, place = f"{library} {name}", int(problem.partition(".")[0]) - 1
            old, new = ((each.get(key, [])[place : place + 1] or [0.0])[0] for each in (old_times, times))
            changed.setdefault(library, []).append((old, new))
    lines = ",\n".join(f"{json.dumps(key)}: {compact(each)}" for key, each in times.items())
    file_of_times.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    print(summary(changed))


def summary(changed: dict[str, list[tuple[float, float]]]) -> str:
    """A line for each library with changed plans: how many, their seconds before and after, and how many are slower."""
    if not changed:
        return "no plan changed"
    lines = [f"{'library':<12}{'changed':>8}{'before':>12}{'after':>12}{'faster':>8}{'slower':>8}"]
    for library, both in changed.items():
        before, after = (sum(each) for each in zip(*both))
        faster, slower = (sum(sign * (new - old) > 0 for old, new in both) for sign in (-1, 1))
        lines.append(f"{library:<12}{len(both):>8}{before:>10.3g} s{after:>10.3g} s{faster:>8}{slower:>8}")
    return "\n".join(lines)


if __name__ == "__main__":
    rewrite()
