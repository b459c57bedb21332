"""Tensor networks of eleven kinds, each in three sizes, from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from math import prod
from random import Random
from typing import Any

import numpy as np


@dataclass
class Network:
    """A tensor network: labels are integers.

    Attributes:
        inputs: the labels of each tensor.
        output: those of the result.
        sizes: of each label.
    """

    inputs: list[list[int]] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)

    def label(self, size: int) -> int:
        """A new label."""
        self.sizes[len(self.sizes)] = size
        return len(self.sizes) - 1

    def bonds(self, count: int, pairs: Sequence[tuple[int, int]], size: Callable[[], int]) -> None:
        """Add so many tensors, with a label for each pair of them."""
        first = len(self.inputs)
        self.inputs += [[] for _ in range(count)]
        for ends in pairs:
            label = self.label(size())
            for end in ends:
                self.inputs[first + end].append(label)

    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each tensor."""
        return [tuple(self.sizes[label] for label in term) for term in self.inputs]

    def arrays(self) -> list[np.ndarray]:
        """Random arrays whose contraction neither overflows nor vanishes."""
        rng = np.random.default_rng(0)
        return [rng.random(shape) / prod(shape) ** 0.5 for shape in self.shapes()]

    def sublists(self) -> list[Any]:
        """The arguments of an einsum function."""
        pairs = zip(self.arrays(), self.inputs)
        return [each for pair in pairs for each in pair] + [self.output]


def drawn_network(kind: str, scale: int, seed: int) -> Network:
    """A network of a kind, with ``scale`` 0, 1 or 2 for small, middle and large."""
    network = Network()
    KINDS[kind](network, scale, Random(f"{kind} {scale} {seed}"))
    return network


def _square(network: Network, scale: int, rng: Random) -> None:
    rows, cols, most = ((4, 5, 6), (6, 7, 4), (5, 14, 5))[scale]
    _lattice(network, (rows, cols), lambda: rng.randint(2, most))


def _cubic(network: Network, scale: int, rng: Random) -> None:
    _lattice(network, ((2, 3, 3), (3, 3, 4), (3, 4, 5))[scale], lambda: 2 + (scale < 2 and rng.random() < 0.3))


def _lattice(network: Network, sides: tuple[int, ...], size: Callable[[], int]) -> None:
    places = list(product(*map(range, sides)))
    number = {place: at for at, place in enumerate(places)}
    pairs = []
    for place in places:
        for axis in range(len(sides)):
            other = tuple(at + (axis == each) for each, at in enumerate(place))
            if other in number:
                pairs.append((number[place], number[other]))
    network.bonds(len(places), pairs, size)


def _regular(network: Network, scale: int, rng: Random) -> None:
    count, size = ((20, 4), (60, 3), (100, 2))[scale]
    network.bonds(count, _regular_pairs(count, 3, rng), lambda: size)


def _regular_pairs(count: int, degree: int, rng: Random) -> list[tuple[int, int]]:
    while True:
        ends = [vertex for vertex in range(count) for _ in range(degree)]
        rng.shuffle(ends)
        pairs = {_sorted(*pair) for pair in zip(ends[::2], ends[1::2])}
        if len(pairs) == count * degree // 2 and all(first != second for first, second in pairs):
            return sorted(pairs)


def _sorted(first: int, second: int) -> tuple[int, int]:
    return (first, second) if first < second else (second, first)


def _random(network: Network, scale: int, rng: Random) -> None:
    count = (12, 40, 70)[scale]
    chain = [(at, at + 1) for at in range(count - 1)]
    pairs = set(chain) | {_sorted(*rng.sample(range(count), 2)) for _ in range(count // 2)}
    network.bonds(count, sorted(pairs), lambda: rng.randint(2, 4))
    _open(network, rng, 2)


def _open(network: Network, rng: Random, count: int) -> None:
    for _ in range(count):
        label = network.label(2)
        rng.choice(network.inputs).append(label)
        network.output.append(label)


def _hyperedges(network: Network, scale: int, rng: Random) -> None:
    count = (10, 25, 45)[scale]
    _random(network, scale, rng)
    del network.inputs[count:]
    network.output.clear()
    for _ in range(count // 4):
        label = network.label(rng.randint(2, 3))
        for term in rng.sample(network.inputs, rng.randint(3, 5)):
            term.append(label)
    _tidy(network)
    network.output.append(len(network.sizes) - 1)


def _tidy(network: Network) -> None:
    """Leave no tensor without labels."""
    for term in network.inputs:
        if not term:
            term.append(network.label(2))


def _tree(network: Network, scale: int, rng: Random) -> None:
    count = (15, 50, 150)[scale]
    network.bonds(
        count, [(rng.randrange(max(0, at - 6), at), at) for at in range(1, count)], lambda: rng.randint(4, 12)
    )
    _open(network, rng, 2)


def _chain(network: Network, scale: int, rng: Random) -> None:
    count = (8, 14, 40)[scale]
    labels = [network.label(rng.randint(5, 200)) for _ in range(count + 1)]
    network.inputs = [list(pair) for pair in pairwise(labels)]
    network.output = [labels[0], labels[-1]]


def _norm(network: Network, scale: int, rng: Random) -> None:
    """The norm of a matrix product state, one state after the other."""
    sites, bond = ((8, 16), (20, 24), (50, 20))[scale]
    physical = [network.label(2) for _ in range(sites)]
    for _ in range(2):
        _state(network, bond + rng.randint(0, 4), physical)


def _state(network: Network, bond: int, *rows: Sequence[int]) -> None:
    """A chain of tensors that have a label of each row."""
    sites = len(rows[0])
    bonds = [network.label(bond) for _ in range(sites - 1)]
    for site in range(sites):
        network.inputs.append([*bonds[max(site - 1, 0) : site + 1], *[row[site] for row in rows]])


def _sandwich(network: Network, scale: int, rng: Random) -> None:
    """A matrix product operator between two states."""
    sites, bond, inner = ((8, 12, 4), (20, 20, 5), (30, 32, 5))[scale]
    upper, lower = ([network.label(2) for _ in range(sites)] for _ in range(2))
    _state(network, bond + rng.randint(0, 3), upper)
    _state(network, inner, upper, lower)
    _state(network, bond + rng.randint(0, 3), lower)


def _circuit(network: Network, scale: int, rng: Random) -> None:
    """An amplitude of a circuit of random gates of two qubits between neighbours."""
    qubits, depth = ((8, 6), (14, 9), (20, 10))[scale]
    wires = []
    for _ in range(qubits):
        wires.append(network.label(2))
        network.inputs.append([wires[-1]])
    for layer in range(depth):
        for first in range(layer % 2, qubits - 1, 2):
            if rng.random() < 0.9:
                fresh = [network.label(2), network.label(2)]
                network.inputs.append([wires[first], wires[first + 1], *fresh])
                wires[first : first + 2] = fresh
    for wire in wires:
        network.inputs.append([wire])


def _count(network: Network, scale: int, rng: Random) -> None:
    """The number of solutions of a formula of clauses of three variables, each of which is a label."""
    variables, clauses = ((10, 14), (22, 30), (36, 46))[scale]
    labels = [network.label(2) for _ in range(variables)]
    network.inputs = [sorted(rng.sample(labels, 3)) for _ in range(clauses)]
    used = {label for term in network.inputs for label in term}
    network.inputs += [[label] for label in labels if label not in used]


def _colours(network: Network, scale: int, rng: Random) -> None:
    """The number of colourings of a graph: a label for each vertex, a matrix for each edge."""
    count, degree, size = ((10, 3, 3), (26, 3, 3), (44, 3, 3))[scale]
    labels = [network.label(size) for _ in range(count)]
    network.inputs = [[labels[first], labels[second]] for first, second in _regular_pairs(count, degree, rng)]


KINDS: dict[str, Callable[[Network, int, Random], None]] = {
    "square lattice": _square,
    "cubic lattice": _cubic,
    "regular graph": _regular,
    "random graph": _random,
    "hyperedges": _hyperedges,
    "tree": _tree,
    "chain of matrices": _chain,
    "norm of an MPS": _norm,
    "MPS, MPO, MPS": _sandwich,
    "circuit": _circuit,
    "clauses": _count,
    "colourings": _colours,
}
"""How to add tensors of each kind to an empty network."""
