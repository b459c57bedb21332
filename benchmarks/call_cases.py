"""The contractions of ``calls.py``: random pairs, networks with a path, growing sizes, and forms of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from random import Random
from typing import TypeAlias

import numpy as np
import opt_einsum
from measure import PreparedProblem, prepare
from problems import Problem, operands, random_pair, sized

Path: TypeAlias = tuple[tuple[int, ...], ...]
Bonds: TypeAlias = dict[tuple[int, int], int]
"""The sizes of the bonds between two tensors each."""


@dataclass(frozen=True, slots=True)
class Case:
    """A contraction with operands, the expected result, and a path unless contenders choose their own."""

    prepared: PreparedProblem
    path: Path | None = None

    @property
    def problem(self) -> Problem:
        """The contraction."""
        return self.prepared.problem


def drawn(draw: Callable[[Random], Case], seed: int, count: int) -> list[Case]:
    """Cases with distinct equations."""
    rng = Random(seed)
    cases: dict[str, Case] = {}
    while len(cases) < count:
        case = draw(rng)
        cases.setdefault(case.problem.equation, case)
    return list(cases.values())


# -- pairs --------------------------------------------------------------------------------------------------------


def _pair(rng: Random, largest: int, elements: tuple[int, int]) -> Case:
    """Two operands with sizes from 2 to ``largest``; the largest array has a number of elements in a range."""
    while True:
        equation = random_pair(rng)
        sizes = {label: rng.randint(2, largest) for label in sorted(set(equation) - set(",->"))}
        terms = equation.replace("->", ",").split(",")
        if elements[0] <= max(prod(sizes[label] for label in term) for term in terms) <= elements[1]:
            return Case(prepare(sized("first", equation, sizes)))


PAIRS: dict[str, Callable[[Random], Case]] = {
    "small pairs": partial(_pair, largest=9, elements=(1, 1000)),
    "middle pairs": partial(_pair, largest=40, elements=(1000, 8000)),
}


# -- networks that contract to a number ---------------------------------------------------------------------------


def _lattice(_: Random, side: int) -> Bonds:
    """A square lattice."""
    places = range(side * side)
    pairs = [(at, at + 1) for at in places if (at + 1) % side] + [(at, at + side) for at in places[:-side]]
    return dict.fromkeys(pairs, 2)


def _state_norm(rng: Random, sites: int) -> Bonds:
    """The norm of a matrix-product state with physical size 2 and a random bond dimension."""
    chains = [(at, at + 1) for at in range(2 * sites - 1) if at != sites - 1]
    return {**dict.fromkeys(chains, rng.randint(3, 8)), **{(at, at + sites): 2 for at in range(sites)}}


def _regular(rng: Random, tensors: int) -> Bonds:
    """A random graph whose tensors have three neighbours each."""
    while True:
        ends = rng.sample(3 * list(range(tensors)), 3 * tensors)
        bonds = {(min(pair), max(pair)): 2 for pair in zip(ends[::2], ends[1::2])}
        if len(bonds) == len(ends) // 2 and all(first != second for first, second in bonds):
            return bonds


def _network(rng: Random, draw: Callable[[Random], Bonds]) -> Case:
    """A network with tensors and labels in random order, and opt_einsum's greedy path; its result is near 1."""
    bonds = draw(rng)
    labels = rng.sample([opt_einsum.get_symbol(number) for number in range(len(bonds))], len(bonds))
    terms: dict[int, str] = {}
    for label, pair in zip(labels, bonds):
        terms.update((tensor, terms.get(tensor, "") + label) for tensor in pair)
    equation = ",".join(rng.sample(list(terms.values()), len(terms))) + "->"
    problem = sized("first", equation, dict(zip(labels, bonds.values())))
    arrays = [array * np.float32(2 / prod(array.shape) ** 0.5) for array in operands(problem)]
    path, _ = opt_einsum.contract_path(equation, *problem.shapes, shapes=True, optimize="greedy")
    wide = [array.astype("float64") for array in arrays]
    expected = np.asarray(opt_einsum.contract(equation, *wide, optimize=path))
    return Case(PreparedProblem(problem, arrays, [expected]), tuple(map(tuple, path)))


NETWORKS: dict[str, Callable[[Random], Case]] = {
    "6×6 lattice (36)": partial(_network, draw=partial(_lattice, side=6)),
    "state's norm (36)": partial(_network, draw=partial(_state_norm, sites=18)),  # 52 labels, as NumPy allows
    "state's norm (40)": partial(_network, draw=partial(_state_norm, sites=20)),
    "3-regular graph (44)": partial(_network, draw=partial(_regular, tensors=44)),
    "state's norm (1000)": partial(_network, draw=partial(_state_norm, sites=500)),
}
"""The number of tensors is in brackets."""


# -- growing sizes and forms --------------------------------------------------------------------------------------

GROWING: dict[str, dict[str, int]] = {
    "ij,jk->ik": {},
    "abc,cde->abde": {"b": 2, "d": 2},  # two sites of a matrix-product state
    "awb,apc,wvpq->bvqc": {"w": 5, "v": 5, "p": 2, "q": 2},  # DMRG: an environment, a site, an operator
    "awb,wvpq,cvd,apc->bqd": {"w": 5, "v": 5, "p": 2, "q": 2},  # DMRG: an effective Hamiltonian on a site
    "bqhd,bkhd->bhqk": {"b": 2, "h": 4, "d": 32},  # attention scores of a longer and longer prompt
    "bhd,bkhd->bhk": {"b": 2, "h": 4, "d": 32},  # attention scores of the next token
}
"""Equations, and the sizes of their labels that do not grow."""


def growing(equation: str, fixed: dict[str, int], sizes: range) -> Iterator[Case]:
    """The equation at each size of the labels that grow."""
    labels = set(equation) - set(",->")
    for size in sizes:
        yield Case(prepare(sized("growing", equation, {**dict.fromkeys(labels, size), **fixed})))


FORMS = """
f("ij,jk->ik", a, b)
f(a, [0, 1], b, [1, 2], [0, 2])
f("ij,jk->ik", a, b, out=c)
f(a, [0, 1], b, [1, 2], [0, 2], out=c, optimize=False)
f("ij,jk->ik", a, b, dtype="float64")
f("ij,jk->ik", a, b, order="C")
f("ij,jk->ik", a, b, optimize=True)
f("ij,jk->ik", a, b, optimize=path)
f("ij,jk,kl->il", a, b, a)
f("ij,jk,kl->il", a, b, a, optimize=True)
f("ij,jk,kl->il", a, b, a, optimize=chain)
f(",ij->ij", 2.0, a)
f("ij,ij->", a, b)
f("ii", a)
f("ij->ji", a)
e(a, b)
""".strip().split("\n")
"""Calls of an einsum ``f``, and of an expression ``e`` made from ``"ij,jk->ik"``."""
