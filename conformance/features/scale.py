"""Many axes, many operands, many threads; and reproducible bits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from threading import Barrier, Thread
from typing import Any

import numpy as np

from einsumx.conformance.case import Case, Failure, cases_of, examples, operands
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.features.forms import EQUATIONS
from einsumx.conformance.kit.oracle import Expected
from einsumx.conformance.subject import Subject

FEATURES = {
    "large rank": "Operands of up to 20 axes, and 28 labels in one equation",
    "many operands": "Networks of a thousand operands, and one label in 60 operands",
    "threads": "Concurrent calls, of one equation and of many",
    "same bits": "Equal calls return equal bits",
}

_LARGE_RANK = examples("""
    abcdefgh->hgfedcba                      2,1,3,2,2,1,2,3
    abcdefghijklmno->ocmeakgibdfhjln        3,2,1,2,1,2,1,2,1,2,1,2,1,2,1
    abcdefghijkl->bdfhjl                    2,3,2,1,2,3,2,1,2,2,2,1
    abcdefghij->                            2,2,3,2,1,2,2,3,2,1
    aabbccdd->dacb                          2,2,3,3,2,2,1,1
    abcdefgh,abcdefgh->aceg                 2,2,2,2,2,2,2,2 2,2,2,2,2,2,2,2
    abcdefgh,hgfedcba->hgfedcba             2,3,2,1,2,2,1,2 2,1,2,2,1,2,3,2
    abcdefgh,bdfhijkl->lacegkji             2,2,2,2,2,2,2,2 2,2,2,2,2,1,2,3
    abcdijkl,ijklmnop->abcdmnop             2,2,2,1,2,2,2,2 2,2,2,2,2,1,2,2
    abcdef,ghijkl->agbhcidjekfl             2,2,2,2,2,2 2,2,2,2,2,2
    abcdefg,abcdefh->gabcdefh               2,1,2,2,2,1,3 2,2,2,1,2,2,3
    abcdefgh,bdfhij,acegji->ij              2,2,2,2,2,2,2,2 2,2,2,2,2,2 2,2,2,2,2,2
    ...a,a...->...                          2,1,2,2,1,2,2,3 3,2,2,2,1,2,2,1
""")

_REPEATED = examples("""
    ij,jk->ik          200,700 700,300
    bij,bjk->bik       7,50,90 7,90,40
    ij,ij->i           300,900 300,900
    ij->j              900,300
    i,i->              90000 90000
    ij,jk,kl->il       90,300 300,80 80,70
    bind,bjnd->bnij    3,40,4,50 3,60,4,50
""")

_THREADED = examples("""
    ij,jk->ik          31,17 17,23
    bind,bjnd->bnij    3,7,5,11 3,13,5,11
    iij,j->i           7,7,11 11
    ij->               13,17
    ij,jk,kl->li       7,11 11,5 5,13
    ij,jk->ik          7,0 0,5
    ,->                () ()
""")

_THREADS = 4
_SECONDS = 120
"""The time after which threads count as deadlocked."""


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    for place, example in enumerate(_LARGE_RANK):
        yield from cases_of("large rank", gives_the_plain_sum, [example], full=place % 3 != 0)
    for dtype in ("float32", "float64", "int32"):
        yield _of_28_labels(dtype, full=dtype != "float32")

    many = partial(Case, "many operands")
    yield many(gives_the_value_of_the_tree, *_chain(1000), about="in a row")
    yield many(gives_the_value_of_the_tree, *_tree(1000), about="in a binary tree")
    for dtype in ("float32", "float64"):
        factors, full = operands(*[(3,)] * 60, dtype=dtype, fill="half"), dtype != "float32"
        yield many(gives_the_plain_sum, ((0,),) * 61, factors, about="one label, which is kept", full=full)
        yield many(gives_the_plain_sum, ((0,),) * 60 + ((),), factors, about="one label, summed", full=full)
    letters = "abcdefghijklmnopqrstuvwxyzABCDE"
    sizes = (2, 2, 1, 1) * 8  # small enough for libraries that sum over all letters at once, such as NumPy
    for output in ("aE", "Ea", "mcD"):
        equation = f"{','.join(map(''.join, pairwise(letters)))}->{output}"
        row = operands(*pairwise(sizes[: len(letters)]), fill="half")
        yield many(gives_the_plain_sum, equation, row, about=f"a row of letters, {output}")

    yield from cases_of("threads", is_right_in_threads, _THREADED, quick=["ij,jk->ik", ",->"])
    yield Case("threads", are_right_in_threads, "", about="problems of all kinds")

    for place, example in enumerate(_REPEATED):
        yield from cases_of("same bits", gives_the_same_bits, [example], full=place > 2)
    half = examples("ij,jk->ik  90,70 70,80")
    yield from cases_of("same bits", gives_the_same_bits, half, dtype="float16", full=True)


# -- large rank ---------------------------------------------------------------------------------------------------


def _of_28_labels(dtype: str, full: bool) -> Case:
    """A pair with eight common labels, ten labels of the left operand and ten of the right, all in mixed order."""
    order = np.random.default_rng(5)
    common, left, right = "abcdefgh", "ijklmnopqr", "stuvwxyzAB"
    sizes = dict.fromkeys(common + left + right, 2) | {"a": 3, "j": 1, "t": 3}
    lhs, rhs, output = (
        "".join(order.permutation(list(labels))) for labels in (common + left, common + right, left + right)
    )
    shapes = (tuple(sizes[label] for label in term) for term in (lhs, rhs))
    pair = operands(*shapes, dtype=dtype, fill="exact")
    return Case("large rank", gives_the_exact_product, f"{lhs},{rhs}->{output}", pair, full=full)


def gives_the_exact_product(case: Case, subject: Subject) -> None:
    """The product of a pair equals a matrix product, because its index space is too large for the plain sum.

    The values are small integers, so that the product is exact in any order.
    """
    hosts, arrays = subject.operands(case)
    lhs, rhs, output = str(case.equation).replace("->", ",").split(",")
    common = [label for label in lhs if label in rhs]
    left, right = ([label for label in term if label in output] for term in (lhs, rhs))
    first = hosts[0].transpose([lhs.index(label) for label in left + common])
    second = hosts[1].transpose([rhs.index(label) for label in common + right])
    terms = math.prod(second.shape[: len(common)])
    shape = first.shape[: len(left)] + second.shape[len(common) :]
    lhs_matrix, rhs_matrix = (
        array.astype("float64") for array in (first.reshape(-1, terms), second.reshape(terms, -1))
    )

    def product(lhs: Any, rhs: Any) -> Any:
        return (lhs @ rhs).reshape(shape).transpose([(left + right).index(label) for label in output])

    dtype = subject.result_dtype(case)
    values, magnitude = product(lhs_matrix, rhs_matrix), product(abs(lhs_matrix), abs(rhs_matrix))
    subject.judge(subject.call(case, arrays), Expected(values.astype(dtype), magnitude, terms, 2, dtype))


# -- many operands ------------------------------------------------------------------------------------------------


def _chain(count: int) -> tuple[Any, Any]:
    """Sublists and operands of a row of matrices, with a vector at the end."""
    terms = (*((k, k + 1) for k in range(count - 1)), (count - 1,))
    return (*terms, (0,)), operands(*((2,) * len(term) for term in terms), fill="half")


def _tree(count: int) -> tuple[Any, Any]:
    """Sublists and operands of a binary tree, whose node ``k`` has a label for itself and for each of its children."""
    terms = tuple((k, *(child for child in (2 * k + 1, 2 * k + 2) if child < count)) for k in range(count))
    return (*terms, (0,)), operands(*((2,) * len(term) for term in terms), fill="half")


def gives_the_value_of_the_tree(case: Case, subject: Subject) -> None:
    """A tree of operands has the value that a walk from its leaves to its root computes.

    Each operand's first label is its own; the other labels belong to its children, which follow it. No function sums
    over a thousand labels at once, so the bound is that of sums of two products per step, which do not cancel.
    """
    hosts, arrays = subject.operands(case)
    values: list[Any] = [np.asarray(host, np.longdouble) for host in hosts]
    terms: Any = case.equation
    for place in reversed(range(len(values))):
        for child in reversed(terms[place][1:]):
            values[place] = (values[place] * values[child]).sum(-1)
    expected = Expected(values[0], values[0], 2, len(hosts), subject.result_dtype(case))
    subject.judge(subject.call(case, arrays), expected)


# -- threads ------------------------------------------------------------------------------------------------------


def is_right_in_threads(case: Case, subject: Subject) -> None:
    """Threads that make the same call at once, each with its own values, get their own results."""
    _judge_in_threads(subject, [[case] * 3 for _ in range(_THREADS)])


def are_right_in_threads(case: Case, subject: Subject) -> None:
    """Threads that make calls of all kinds, each in another order, get their own results.

    The sizes are not those of other cases, so that no plan is cached yet.
    """
    every = []
    for equation, shapes in EQUATIONS:
        larger = (tuple(size + 1 for size in shape) for shape in shapes)
        every.append(Case(case.feature, is_right_in_threads, equation, operands(*larger)))
    _judge_in_threads(subject, [every[k:] + every[:k] for k in range(0, len(every), -(-len(every) // _THREADS))])


def _judge_in_threads(subject: Subject, work: Sequence[Sequence[Case]]) -> None:
    """Raise Failure unless every call returns the right result; each list of cases is one thread's work."""
    hosts = [[case.values(f"{thread} {turn}") for turn, case in enumerate(cases)] for thread, cases in enumerate(work)]
    results: list[list[Any]] = [[] for _ in work]
    errors: list[BaseException] = []
    start = Barrier(len(work))

    def run(thread: int) -> None:
        try:
            start.wait(_SECONDS)
            for case, values in zip(work[thread], hosts[thread]):
                results[thread].append(subject.call(case, subject.arrays(case, values)))
        except BaseException as error:  # noqa: BLE001  raised again in the main thread
            errors.append(error)

    threads = [Thread(target=run, args=(thread,), daemon=True) for thread in range(len(work))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(_SECONDS)
    if any(each.is_alive() for each in threads):
        raise Failure(f"{len(work)} threads did not end within {_SECONDS} s")
    if errors:
        raise errors[0]
    for thread, cases in enumerate(work):
        for case, values, result in zip(cases, hosts[thread], results[thread]):
            name = f"the result of {case.equation} in thread {thread}"
            subject.judge(result, subject.expected(case, values), name)


# -- same bits ----------------------------------------------------------------------------------------------------


def gives_the_same_bits(case: Case, subject: Subject) -> None:
    """Calls with the same arrays return the same bits."""
    _, arrays = subject.operands(case)
    first, *others = (subject.framework.values(subject.call(case, arrays)).tobytes() for _ in range(5))
    if any(other != first for other in others):
        raise Failure("another call on the same arrays gave other bits")
