"""Products in semirings against a broadcast and its reduction, against other libraries, and against the plain product.

    python benchmarks/semirings.py

torch-semiring-einsum and sesum take part where they are installed, and numba's loops where numba is. Each function has
turns of its own, in its steady state; times are the least of all turns, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from einsumx import einsum
from einsumx.backends.numpy import loops
from einsumx.measuring.steady import turn
from einsumx.semirings import log, max_plus

Call: TypeAlias = Callable[[], Any]

PROBLEMS = (
    ("ij,jk->ik", ((200, 200), (200, 200))),
    ("bij,bjk->bik", ((64, 50, 50), (64, 50, 50))),
    ("ij,jk->ik", ((500, 500), (500, 500))),
    ("bi,ij->bj", ((64, 100), (100, 100))),
    ("bij,bjk,bkl->bil", ((64, 20, 20), (64, 20, 20), (64, 20, 20))),
)
DTYPES = ("float64", "float32")

ROUNDS, SECONDS = 3, 0.05
"""The turns of a function, and how long it is called in each."""

LARGEST = 2e8
"""The most terms of a broadcast that is run."""


def installed(name: str) -> Any:
    """A module, or None if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


torch, sesum, torch_semirings = installed("torch"), installed("sesum"), installed("torch_semiring_einsum")


def least(calls: dict[str, Call]) -> dict[str, float]:
    """The least time of each function, in milliseconds."""
    rounds = [{name: 1e3 * turn(call, SECONDS) for name, call in calls.items()} for _ in range(ROUNDS)]
    return {name: min(times[name] for times in rounds) for name in calls}


def broadcast(equation: str, arrays: list[Any], reduce: str) -> Call | None:
    """The sums of all terms at once, and their reduction; None for networks, and where it would be too large."""
    inputs, output = equation.split("->")
    terms = inputs.split(",")
    labels = output + "".join(sorted({*inputs} - {*output, ","}))
    sizes = {label: size for term, array in zip(terms, arrays) for label, size in zip(term, array.shape)}
    if len(terms) != 2 or np.prod([sizes[label] for label in labels]) > LARGEST:
        return None

    def spread(term: str, array: Any) -> Any:
        present = sorted(term, key=labels.index)
        array = (
            array.transpose(*map(term.index, present))
            if not is_tensor(array)
            else array.permute(*map(term.index, present))
        )
        return array.reshape([sizes[label] if label in term else 1 for label in labels])

    axes = tuple(range(len(output), len(labels)))

    def call() -> Any:
        every = spread(terms[0], arrays[0]) + spread(terms[1], arrays[1])
        if is_tensor(every):
            return every.amax(axes) if reduce == "max" else every.logsumexp(axes)
        return every.max(axes) if reduce == "max" else np.logaddexp.reduce(every, axis=axes)

    return call


def is_tensor(array: Any) -> bool:
    """Whether this is one of torch's."""
    return torch is not None and isinstance(array, torch.Tensor)


def maxima(equation: str, arrays: list[Any]) -> Iterator[tuple[str, Call]]:
    """The contenders in max-plus."""
    whole = broadcast(equation, arrays, "max")
    if whole is not None:
        yield "broadcast", whole
    yield "einsumx", partial(max_plus.einsum, equation, *arrays)
    if sesum is not None and not is_tensor(arrays[0]):
        path = sesum.compute_path(equation, *arrays)[0]
        yield "sesum", partial(sesum.sesum, equation, *arrays, path=path, semiring=sesum.max_plus)
    if torch_semirings is not None and is_tensor(arrays[0]):
        made = torch_semirings.compile_equation(equation)
        yield "t-s-e", partial(torch_semirings.log_viterbi_einsum_forward, made, *arrays)


def logarithms(equation: str, arrays: list[Any]) -> Iterator[tuple[str, Call]]:
    """The contenders in log, and the plain product."""
    yield "plain", partial(einsum, equation, *arrays)
    yield "einsumx", partial(log.einsum, equation, *arrays)
    if torch_semirings is not None and is_tensor(arrays[0]):
        made = torch_semirings.compile_equation(equation)
        yield "t-s-e", partial(torch_semirings.log_einsum, made, *arrays)


def derivatives(equation: str, arrays: list[Any]) -> Iterator[tuple[str, Call]]:
    """The contenders in log with gradients."""
    tensors = [array.clone().requires_grad_() for array in arrays]

    def gradients(function: Callable[..., Any]) -> Call:
        return lambda: function(*tensors).sum().backward()

    yield "einsumx", gradients(partial(log.einsum, equation))
    if torch_semirings is not None:
        yield "t-s-e", gradients(partial(torch_semirings.log_einsum, torch_semirings.compile_equation(equation)))


def row(title: str, times: dict[str, float], against: str, names: tuple[str, ...]) -> None:
    """Print the times, and those of ``against`` over einsumx's."""
    cells = "".join(f"{times[name]:11.3f}" if name in times else f"{'-':>11}" for name in names)
    ratio = f"{times[against] / times['einsumx']:9.2f}" if against in times else f"{'-':>9}"
    print(f"{title:56}{cells}{ratio}", flush=True)


def tables() -> Iterator[tuple[str, str, tuple[str, ...], Callable[..., Iterator[tuple[str, Call]]]]]:
    """The title of each table, the contender of its last column, its columns, and its contenders."""
    yield "max-plus, functions of arrays", "broadcast", ("broadcast", "sesum", "t-s-e", "einsumx"), maxima
    if installed("numba") is not None:
        yield "max-plus, numba's loops", "broadcast", ("broadcast", "sesum", "t-s-e", "einsumx"), maxima
    yield "log, and the plain product", "plain", ("plain", "t-s-e", "einsumx"), logarithms
    yield "log with gradients", "t-s-e", ("t-s-e", "einsumx"), derivatives


def main() -> None:
    """Print the tables."""
    rng = np.random.default_rng(0)
    makers: dict[str, Callable[[Any], Any]] = {"numpy": np.asarray, **({"torch": torch.tensor} if torch else {})}
    for title, against, names, contenders in tables():
        # By themselves, the loops come after 4e9 terms.
        loops._computed = float("inf") if "numba" in title else -float("inf")
        print(f"\n{title:56}" + "".join(f"{name:>11}" for name in names) + f"  {against}/einsumx")
        for framework, make in makers.items():
            if contenders is derivatives and framework != "torch":
                continue
            for equation, shapes in PROBLEMS:
                for dtype in DTYPES:
                    arrays = [make(rng.random(shape).astype(dtype)) for shape in shapes]
                    about = f"{framework:6} {equation:17} {','.join(map(str, shapes[0])):10} {dtype}"
                    row(about, least(dict(contenders(equation, arrays))), against, names)


if __name__ == "__main__":
    main()
