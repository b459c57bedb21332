"""The limit that a MemoryLimitError names works at once: for the result, its gradients, and theirs."""

import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import reduce

import numpy as np
import pytest
from backends_under_test import LIMITED
from stored import Stored, smallest

import einsumx
from einsumx import MemoryLimit, MemoryLimitError, einsum
from einsumx.conformance.kit.oracle import expect, judge


class Problem:
    """A random contraction: its equation and shapes, with axes of size 1 that broadcast, none and many axes."""

    def __init__(self, seed):
        self.draw = draw = random.Random(seed)
        labels = "abcdef"[: draw.randint(1, 6)]
        sizes = {label: draw.choice([1, 2, 2, 3, 4, 5, *([0] if draw.random() < 0.1 else [])]) for label in labels}
        terms = ["".join(draw.choices(labels, k=draw.randint(0, 4))) for _ in range(draw.choice([1, 2, 2, 3, 3, 4]))]
        used = sorted(set("".join(terms)))
        output = "".join(draw.sample(used, draw.randint(0, len(used))))
        self.equation = f"{','.join(terms)}->{output}"
        self.shapes = [
            tuple(1 if term.count(label) == 1 and draw.random() < 0.1 else sizes[label] for label in term)
            for term in terms
        ]

    def arrays(self, dtype):
        rng = np.random.default_rng(self.draw.randrange(1000))
        return [rng.integers(-2, 3, shape).astype(dtype) for shape in self.shapes]


# -- results ------------------------------------------------------------------------------------------------------

ASKED = ("stored", "out", "out in a file", "C", "F", "dtype", "executor")


def can_be_asked(backend, asked):
    if asked in ("C", "F"):
        return backend.adapter.orders is not None
    return asked != "out" or backend.name != "jax"


@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "asked"),
    [(backend, asked) for backend in LIMITED for asked in ASKED if can_be_asked(backend, asked)],
    ids=str,
)
def test_the_limit_that_is_named_is_enough_for_the_result(backend, asked):
    dtypes = ["float32"] if backend.name == "jax" else ["float32", "bool", "int8", "float16"]
    for dtype in filter(backend.dtypes.__contains__, dtypes):
        for seed in range(1 if backend.name in ("jax", "array_api") else 2):  # JAX compiles for each shape
            problem = Problem(f"{dtype} {seed}")
            hosts = problem.arrays(dtype)
            expected = expect(problem.equation, *hosts, dtype="float32" if asked == "dtype" else None)
            operands = [Stored(host) if asked == "stored" else backend.array(host, dtype) for host in hosts]
            options = {"backend": backend.name} if asked == "stored" else {}
            if asked.startswith("out"):
                host = np.zeros(expected.values.shape, expected.dtype)
                options["out"] = backend.out(host) if asked == "out" else Stored(host)
            elif asked in ("C", "F"):
                options["order"] = asked
            elif asked == "dtype":
                options |= {"dtype": "float32", "casting": "unsafe"}
            with ThreadPoolExecutor(2) if asked == "executor" else nullcontext() as executor:

                def call(limit, problem=problem, operands=operands, options=options, executor=executor):
                    limit = MemoryLimit(limit, executor=executor)
                    return einsum(problem.equation, *operands, memory_limit=limit, **options)

                found = call(smallest(call))
            if isinstance(found, Stored):
                found = found.array
            found = found if isinstance(found, np.ndarray) else backend.values(found)
            assert judge(found, expected), (problem.equation, problem.shapes, dtype)


@pytest.mark.parametrize("seed", range(8))
def test_one_byte_less_than_what_is_named_is_refused_or_kept(seed):
    problem = Problem(seed)
    arrays = problem.arrays("float32")

    def planned(limit):
        return einsumx.plan(problem.equation, *arrays, memory_limit=limit)

    limit = smallest(planned)
    assert planned(limit).peak_bytes <= limit
    less = max(limit - 1, 1)
    assert smallest(lambda _: planned(less)) == limit or planned(less).peak_bytes <= less


def test_the_error_has_the_limit_as_a_number_and_pickles():
    with pytest.raises(MemoryLimitError) as caught:
        einsum("ij,jk->ik", np.ones((3, 4)), np.ones((4, 5)), memory_limit=1)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.smallest == caught.value.smallest == 3 * 5 * 8  # the result alone
    assert str(copy) == str(caught.value)
    assert MemoryLimitError("for another reason").smallest is None
    unpickled = MemoryLimitError.__new__(MemoryLimitError, "too small")  # as tblib does on workers of Dask
    assert str(unpickled) == "too small"


# -- gradients on PyTorch -------------------------------------------------------------------------------------------


def laid_out(tensor, draw):
    """A tensor of the same shape that lies otherwise: turned round, with gaps, expanded, as a conjugate."""
    axes = tuple(reversed(range(tensor.ndim)))
    match draw.choice(["plain", "plain", "turned", "gaps", "expanded", "conjugate"]) if tensor.ndim else "plain":
        case "turned":
            return tensor.permute(axes).contiguous().permute(axes)
        case "gaps":
            return tensor.repeat_interleave(2, -1)[..., ::2]
        case "expanded":
            return tensor[:1].expand(tensor.shape)
        case "conjugate":
            return tensor.conj()
        case _:
            return tensor


def turned_round(tensor):
    """The same in another memory order, as hooks on saved tensors may give it back."""
    axes = tuple(reversed(range(tensor.ndim)))
    return tensor.permute(axes).contiguous().permute(axes)


def squares(torch, arrays):
    real = [torch.view_as_real(array.resolve_conj()) if array.is_complex() else array for array in arrays]
    return sum(array.pow(2).sum() for array in real)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_the_limit_that_is_named_is_enough_for_gradients_and_for_theirs(seed):
    torch = pytest.importorskip("torch")
    problem, draw = Problem(seed), random.Random(seed)
    kinds = [torch.float64, torch.complex128] if draw.random() < 0.4 else [torch.float64]
    generator = torch.Generator().manual_seed(seed)
    operands = [
        laid_out(torch.randn(shape, dtype=draw.choice(kinds), generator=generator), draw) for shape in problem.shapes
    ]
    operands = [operand.requires_grad_(draw.random() < 0.7) for operand in operands]
    leaves = [operand for operand in operands if operand.requires_grad]
    dtype = reduce(torch.promote_types, [operand.dtype for operand in operands])

    def call(limit):
        return einsum(problem.equation, *operands, memory_limit=limit)

    limit = smallest(call)
    assert limit == smallest(lambda limit: einsumx.plan(problem.equation, *operands, memory_limit=limit))
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, turned_round)
    with hooks if draw.random() < 0.3 else nullcontext():
        found = call(limit)
    expected = torch.einsum(problem.equation, *[operand.to(dtype) for operand in operands])
    torch.testing.assert_close(found, expected)
    if not leaves:
        return
    cotangent = laid_out(torch.randn(found.shape, dtype=dtype, generator=generator), draw)
    ours, theirs = (torch.autograd.grad(each, leaves, cotangent, create_graph=True) for each in (found, expected))
    torch.testing.assert_close(ours, theirs)
    ours, theirs = (squares(torch, each) for each in (ours, theirs))
    if ours.requires_grad:
        ours, theirs = (torch.autograd.grad(each, leaves, allow_unused=True) for each in (ours, theirs))
        for one, other, leaf in zip(ours, theirs, leaves):
            nothing = torch.zeros_like(leaf)
            torch.testing.assert_close(nothing if one is None else one, nothing if other is None else other)
