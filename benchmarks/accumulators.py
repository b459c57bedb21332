"""Times products of narrow integers, of half precision and with wide sums, beside float32 and the frameworks' own ways.

    python benchmarks/accumulators.py                # NumPy, PyTorch and JAX, as far as they are installed
    python benchmarks/accumulators.py torch

For each problem, the first column is einsumx's product of float32 in milliseconds. The others are the speed of further
calls relative to it: 0.5 takes twice as long. ``own`` is what the framework offers for the same result: its einsum with
casts or a ``dtype=``, ``torch._int_mm``, ``preferred_element_type=``. A dash says that it has no such call, or that its
result is wrong. Each call has several turns, in each of which it rests, warms up and is timed; the least time counts.
"""

# ruff: noqa: T201  printing is what this program is for

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from einsumx import einsum
from einsumx.measuring.steady import turn

PROBLEMS = {
    "ij,jk->ik": (
        ((100, 100), (100, 100)),
        ((512, 512), (512, 512)),
        ((1000, 1000), (1000, 1000)),
        ((2000, 64), (64, 2000)),
        ((500, 4096), (4096, 500)),
        ((1000, 1000), (1000, 32)),
    ),
    "bij,bjk->bik": (((64, 50, 50), (64, 50, 50)), ((16, 256, 256), (16, 256, 256))),
    "ij,j->i": (((2000, 2000), (2000,)),),
}

_ROUNDS = 3
_SLOW = 20.0
"""How many times as long as float32 a call may take to be called more than twice."""

Call = Callable[[], Any]


class Library(NamedTuple):
    """How a framework makes an array of a dtype, waits for a result, and gives its values."""

    array: Callable[[Any, str], Any]
    wait: Callable[[Any], Any]
    values: Callable[[Any], Any]


def _numpy() -> Library:
    return Library(np.asarray, lambda result: result, np.asarray)


def _torch() -> Library:
    torch: Any = import_module("torch")

    def array(values: Any, dtype: str) -> Any:
        return torch.tensor(values).to(getattr(torch, dtype))

    return Library(array, lambda result: result, lambda result: result.float().numpy())


def _jax() -> Library:
    import_module("jax").config.update("jax_enable_x64", True)
    jnp: Any = import_module("jax.numpy")
    return Library(jnp.asarray, lambda result: result.block_until_ready(), np.asarray)


LIBRARIES = {"numpy": _numpy, "torch": _torch, "jax": _jax}


def own_calls(library: str, equation: str, narrow: list[Any], halves: list[Any], floats: list[Any]) -> dict[str, Call]:
    """The framework's own calls for the same results."""
    if library == "numpy":
        return {
            "int8 own": partial(np.einsum, equation, *narrow, dtype="int32", optimize=True),
            "wide own": lambda: np.einsum(equation, *floats, dtype="float64", optimize=True).astype("float32"),
        }
    if library == "torch":
        torch: Any = import_module("torch")
        calls: dict[str, Call] = {
            "half own": lambda: torch.einsum(equation, *[each.float() for each in halves]),
            "wide own": lambda: torch.einsum(equation, *[each.double() for each in floats]).float(),
        }
        if equation == "ij,jk->ik":
            calls["int8 own"] = partial(torch._int_mm, *narrow)
        return calls
    jit: Any = import_module("jax").jit
    jnp: Any = import_module("jax.numpy")

    def preferred(dtype: str, to: str | None = None) -> Callable[..., Any]:
        def function(*arrays: Any) -> Any:
            result = jnp.einsum(equation, *arrays, preferred_element_type=dtype)
            return result if to is None else result.astype(to)

        jitted: Callable[..., Any] = jit(function)
        return jitted

    return {
        "int8 own": partial(preferred("int32"), *narrow),
        "half own": partial(preferred("float32"), *halves),
        "wide own": partial(preferred("float64", "float32"), *floats),
    }


def calls_of(library: str, made: Library, equation: str, shapes: tuple[tuple[int, ...], ...]) -> dict[str, Call]:
    """The calls for a problem by column, the product of float32 first."""
    rng = np.random.default_rng(0)
    hosts = [rng.integers(-128, 128, shape) for shape in shapes]
    narrow, floats = ([made.array(host, dtype) for host in hosts] for dtype in ("int8", "float32"))
    halves = [] if library == "numpy" else [made.array(host, "bfloat16") for host in hosts]
    calls: dict[str, Call] = {
        "float32": partial(einsum, equation, *floats),
        "int8": partial(einsum, equation, *narrow, dtype="int32"),
        "wide": partial(einsum, equation, *floats, accumulate="float64"),
    }
    if halves:
        calls["half"] = partial(einsum, equation, *halves, dtype="float32")
    return {**calls, **own_calls(library, equation, narrow, halves, floats)}


def times(calls: Mapping[str, Call], made: Library) -> dict[str, float]:
    """Seconds of each call; calls that are wrong or far too slow are left out."""
    expected = np.asarray(made.values(calls["float32"]()), "float64")
    close = 1e-2 * np.abs(expected).max()
    waiting = {name: (lambda call=call: made.wait(call())) for name, call in calls.items()}
    least: dict[str, float] = {}
    for name, call in calls.items():
        if np.abs(made.values(call()) - expected).max() <= close:
            start = perf_counter()
            waiting[name]()
            least[name] = perf_counter() - start
    timed = [name for name, seconds in least.items() if seconds < _SLOW * least["float32"]]
    for number in range(_ROUNDS):
        for place in range(len(timed)):
            name = timed[(place + number) % len(timed)]
            least[name] = min(least[name], turn(waiting[name], seconds=0.02, least=3, most=200))
    return least


COLUMNS = ("int8", "int8 own", "half", "half own", "wide", "wide own")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("libraries", nargs="*", help=f"of {', '.join(LIBRARIES)} (default: those that are installed)")
    chosen = parser.parse_args().libraries or [name for name in LIBRARIES if find_spec(name)]
    print("int8: int8 to int32; half: bfloat16 to float32; wide: float32 with sums in float64")
    print(f"{'':48}{'float32':>10}" + "".join(f"{column:>10}" for column in COLUMNS))
    for library in chosen:
        made = LIBRARIES[library]()
        for equation, problems in PROBLEMS.items():
            for shapes in problems:
                found = times(calls_of(library, made, equation, shapes), made)
                base = found["float32"]
                texts = [f"{base / found[name]:.2f}" if name in found else "-" for name in COLUMNS]
                sizes = " ".join(",".join(map(str, shape)) for shape in shapes)
                figures = "".join(f"{text:>10}" for text in texts)
                print(f"{library:6} {equation:13} {sizes:26} {1e3 * base:8.3f} ms{figures}", flush=True)


if __name__ == "__main__":
    main()
