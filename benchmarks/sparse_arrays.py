"""Contractions of PyData's sparse arrays, against sparse's own einsum and the best order of its products by hand.

    python benchmarks/sparse_arrays.py            # the table of docs/sparse.md
    python benchmarks/sparse_arrays.py --json sparse.json

A case by hand is written with ``sparse.tensordot``, ``@`` and ``*``, in every order of pairs; the fastest counts. Each
function runs in turn, and its least time counts. sparse compiles at first calls, which are not timed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import sparse

import einsumx

_SLOW = 2.0
"""Seconds of a call after which a function is timed no more."""

_LARGEST = 3e7
"""The most elements that sparse's own einsum may have to store between two of its steps, to be run at all."""


class Case(NamedTuple):
    """An equation, the shapes and densities of its operands, and their format."""

    equation: str
    shapes: tuple[tuple[int, ...], ...]
    densities: tuple[float | None, ...]
    kind: str = "coo"

    def operands(self) -> list[Any]:
        """Random arrays; those without a density are NumPy's."""
        rng = np.random.default_rng(0)
        return [
            rng.standard_normal(shape)
            if density is None
            else sparse.random(shape, density=density, random_state=rng).asformat(self.kind)
            for shape, density in zip(self.shapes, self.densities)
        ]


def cases() -> Iterator[Case]:
    """The cases of the table."""
    yield Case("ij,jk,kl->il", ((200, 200),) * 3, (0.1,) * 3)
    yield Case("ij,jk,kl->il", ((600, 600), (600, 600), (600, 10)), (0.01,) * 3)
    for density in (1e-4, 1e-3, 1e-2, 0.1, 0.5):
        size = 10_000 if density < 1e-3 else 2000 if density < 0.1 else 300
        yield Case("ij,jk->ik", ((size, size),) * 2, (density,) * 2)
        yield Case("ij,jk->ki", ((size, size),) * 2, (density,) * 2)
        yield Case("ij,ij->ij", ((size, size),) * 2, (density,) * 2)
    for kind in ("coo", "gcxs"):
        yield Case("ij,jk->ik", ((10, 10),) * 2, (0.2,) * 2, kind)
        yield Case("ij,jk->ik", ((1000, 1000),) * 2, (0.01,) * 2, kind)
        yield Case("bij,bjk->bik", ((50, 100, 100),) * 2, (0.02,) * 2, kind)
        yield Case("ijk,kl->ijl", ((100, 100, 100), (100, 50)), (0.01, 0.1), kind)
        yield Case("ijk->kij", ((100, 100, 100),), (0.02,), kind)
        yield Case("ij->j", ((2000, 2000),), (0.01,), kind)
        yield Case("ij,jk->ik", ((2000, 2000), (2000, 20)), (0.01, None), kind)
        yield Case("ij,ij->ij", ((1000, 1000),) * 2, (0.01, None), kind)
    yield Case("ij,jk,kl,lm->im", ((500, 500),) * 3 + ((500, 5),), (0.02,) * 4)


def by_hand(equation: str, operands: list[Any]) -> Iterator[Callable[[], Any]]:
    """Every order of sparse's own products of pairs: ``tensordot``, ``@`` over a batch, or ``*``."""
    inputs, output = equation.split("->")
    terms = inputs.split(",")
    if len(terms) == 1:
        axes = [terms[0].index(letter) for letter in output]
        summed = tuple([axis for axis, letter in enumerate(terms[0]) if letter not in output])
        yield (lambda: operands[0].sum(summed)) if summed else (lambda: operands[0].transpose(axes))
        return
    for steps in _orders(dict(enumerate(map(frozenset, terms)))):

        def run(steps: Any = steps) -> Any:
            values = {number: (term, array) for number, (term, array) in enumerate(zip(terms, operands))}
            for first, second, made in steps:
                one, other = values.pop(first), values.pop(second)
                needed = set(output).union(*[term for term, _ in values.values()])
                values[made] = _product(one, other, needed, output)
            ((_, result),) = values.values()
            return result

        yield run


def _orders(terms: dict[int, frozenset[str]]) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Every order of pairs with a common label; the labels of a pair that are left are those that one of both has."""
    if len(terms) == 1:
        yield ()
    for first, second in combinations(terms, 2):
        if terms[first] & terms[second]:
            made = max(terms) + 1
            rest = {name: term for name, term in terms.items() if name not in (first, second)}
            for steps in _orders({**rest, made: terms[first] ^ terms[second]}):
                yield ((first, second, made), *steps)


def _product(one: tuple[str, Any], other: tuple[str, Any], needed: set[str], output: str) -> tuple[str, Any]:
    (first, lhs), (second, rhs) = one, other
    shared = [letter for letter in first if letter in second]
    if set(first) == set(second) and not set(first) - needed:
        return first, lhs * rhs
    if not set(shared) & needed:
        axes = [first.index(letter) for letter in shared], [second.index(letter) for letter in shared]
        term = "".join([letter for letter in first + second if letter not in shared])
        result = sparse.tensordot(lhs, rhs, axes, return_type=sparse.COO)
    elif first == second:
        summed = tuple([axis for axis, letter in enumerate(first) if letter not in needed])
        term, result = "".join([letter for letter in first if letter in needed]), (lhs * rhs).sum(summed)
    else:  # a batch of matrices
        term, result = first[:-1] + second[-1], lhs @ rhs
    if set(term) == set(output) and term != output:
        result, term = result.transpose([term.index(letter) for letter in output]), output
    return term, result


def _least(functions: list[Callable[[], Any]], rounds: int) -> list[float]:
    times = [float("inf")] * len(functions)
    for function in functions:
        function()
    for _ in range(rounds):
        for place, function in enumerate(functions):
            if times[place] == float("inf") or times[place] < _SLOW:
                start = perf_counter()
                function()
                times[place] = min(times[place], perf_counter() - start)
    return times


def _is_feasible(case: Case) -> bool:
    """Whether sparse's own einsum, which multiplies all operands before it sums, can store what it multiplies."""
    sizes = dict(zip(case.equation.replace(",", "").partition("->")[0], [size for s in case.shapes for size in s]))
    share = np.prod([density or 1.0 for density in case.densities])
    return bool(np.prod([float(size) for size in sizes.values()]) * share < _LARGEST)


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="how often each function runs")
    parser.add_argument("--json", help="write the times to this file")
    options = parser.parse_args()
    rows = []
    print("| case | einsumx | best by hand | sparse.einsum | against the best by hand | against sparse.einsum |")
    print("|---|---|---|---|---|---|")
    for case in cases():
        operands = case.operands()
        equation = case.equation
        functions = [lambda equation=equation, operands=operands: einsumx.einsum(equation, *operands)]
        if _is_feasible(case):
            functions.append(lambda equation=equation, operands=operands: sparse.einsum(equation, *operands))
        hand = list(by_hand(case.equation, operands))
        ours, *others = _least([*functions, *hand], options.rounds)
        own = others.pop(0) if len(functions) > 1 else None
        best = min(others)
        shares = " ".join("dense" if each is None else f"{each:g}" for each in case.densities)
        shapes = " ".join(f"({','.join(map(str, shape))})" for shape in case.shapes)
        rows.append({**case._asdict(), "einsumx": ours, "by hand": best, "sparse.einsum": own})
        against = f"{own * 1e3:.3g} ms" if own else "–"
        factor = f"{own / ours:.1f}" if own else "–"
        print(
            f"| `{case.equation}` {shapes} at {shares}, {case.kind} | {ours * 1e3:.3g} ms | {best * 1e3:.3g} ms "
            f"| {against} | {best / ours:.2f} | {factor} |",
            flush=True,
        )
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
