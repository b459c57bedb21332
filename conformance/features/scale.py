"""Many axes, many operands, many threads; and the same bits every time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from threading import Barrier, Thread
from typing import Any

import numpy as np

from einsumx.conformance.case import ArraySpec, Case, Failure, examples, operands
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.features.forms import EQUATIONS
from einsumx.conformance.oracle import Expected
from einsumx.conformance.subject import Subject

__all__ = ["FEATURES", "cases"]

FEATURES = {
    "large rank": "Operands of up to 20 axes, and 28 labels in one equation",
    "many operands": "Networks of a thousand operands, and a label in sixty",
    "threads": "Calls from several threads at once, of one problem and of many",
    "same bits": "The same call gives the same bits",
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

_THREADS = 4
_SECONDS = 120
"""After which threads are taken to wait for each other."""


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    for place, (equation, shapes) in enumerate(_LARGE_RANK):
        yield Case("large rank", gives_the_plain_sum, equation, operands(*shapes), full=place % 3 != 0)
    for dtype in ("float32", "float64", "int32"):
        yield _of_28_labels(dtype, full=dtype != "float32")

    for network in (_chain, _tree):
        yield network(1000)
    for dtype in ("float32", "float64"):
        factors = operands(*[(3,)] * 60, dtype=dtype, fill="half")
        full = dtype != "float32"
        yield Case(
            "many operands", gives_the_plain_sum, ((0,),) * 61, factors, about="one label, which is kept", full=full
        )
        yield Case(
            "many operands", gives_the_plain_sum, ((0,),) * 60 + ((),), factors, about="one label, summed", full=full
        )
    letters = "abcdefghijklmnopqrstuvwxyzABCDE"
    sizes = (2, 2, 1, 1) * 8  # what sums over all letters at once, as NumPy does, comes to an end too
    for output in ("aE", "Ea", "mcD"):
        equation = f"{','.join(map(''.join, pairwise(letters)))}->{output}"
        row = operands(*pairwise(sizes[: len(letters)]), fill="half")
        yield Case("many operands", gives_the_plain_sum, equation, row, about=f"a row of letters, {output}")

    for equation, shapes in examples("""
        ij,jk->ik          31,17 17,23
        bind,bjnd->bnij    3,7,5,11 3,13,5,11
        iij,j->i           7,7,11 11
        ij->               13,17
        ij,jk,kl->li       7,11 11,5 5,13
        ij,jk->ik          7,0 0,5
        ,->                () ()
    """):
        yield Case(
            "threads", is_right_in_threads, equation, operands(*shapes), full=equation not in ("ij,jk->ik", ",->")
        )
    yield Case("threads", are_right_in_threads, "", about="problems of all kinds")

    for place, (equation, shapes) in enumerate(_REPEATED):
        yield Case("same bits", gives_the_same_bits, equation, operands(*shapes), full=place > 2)
    yield Case("same bits", gives_the_same_bits, "ij,jk->ik", operands((90, 70), (70, 80), dtype="float16"), full=True)


# -- large rank ---------------------------------------------------------------------------------------------------


def _of_28_labels(dtype: str, full: bool) -> Case:
    """A pair with eight labels in common and ten of each operand's own, all in mixed order."""
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
    """A product of a pair is right, by a matrix product: its index space is too large for the plain sum.

    Small integers in floats, so that the product is exact in any order.
    """
    hosts = case.values()
    lhs, rhs, output = str(case.equation).replace("->", ",").split(",")
    common = [label for label in lhs if label in rhs]
    left, right = ([label for label in term if label in output] for term in (lhs, rhs))
    first = hosts[0].transpose([lhs.index(label) for label in left + common])
    second = hosts[1].transpose([rhs.index(label) for label in common + right])
    terms = math.prod(second.shape[: len(common)])
    matrices = [
        array.astype("float64").reshape(shape) for array, shape in ((first, (-1, terms)), (second, (terms, -1)))
    ]

    def product(lhs: Any, rhs: Any) -> Any:
        shape = first.shape[: len(left)] + second.shape[len(common) :]
        return (lhs @ rhs).reshape(shape).transpose([(left + right).index(label) for label in output])

    dtype = subject.result_dtype(case)
    found = product(*matrices)
    magnitude = product(*map(abs, matrices))
    result = subject.call(case, subject.arrays(case, hosts))
    subject.judge(result, Expected(found.astype(dtype), magnitude, terms, 2, dtype))


# -- many operands ------------------------------------------------------------------------------------------------


def _chain(count: int) -> Case:
    """Matrices in a row, with a vector at the end."""
    labels = (*((k, k + 1) for k in range(count - 1)), (count - 1,), (0,))
    shapes = [(2,) * len(term) for term in labels[:-1]]
    return Case("many operands", gives_the_value_of_the_tree, labels, operands(*shapes, fill="half"), about="in a row")


def _tree(count: int) -> Case:
    """A binary tree, whose node ``k`` has a label for itself and for each of its children."""
    nodes = tuple((k, *(child for child in (2 * k + 1, 2 * k + 2) if child < count)) for k in range(count))
    shapes = [(2,) * len(term) for term in nodes]
    about = "in a binary tree"
    return Case(
        "many operands", gives_the_value_of_the_tree, (*nodes, (0,)), operands(*shapes, fill="half"), about=about
    )


def gives_the_value_of_the_tree(case: Case, subject: Subject) -> None:
    """A tree of operands has the value that is found by going from its leaves to its root.

    Each operand's first label is its own, its others are those of its children, which come behind it. Nobody sums over
    all of a thousand labels at once, so the bound is that of sums of two products a step; nothing cancels in them.
    """
    hosts = case.values()
    values: list[Any] = [np.asarray(host, np.longdouble) for host in hosts]
    terms: Any = case.equation
    for place in reversed(range(len(values))):
        for child in reversed(terms[place][1:]):
            values[place] = (values[place] * values[child]).sum(-1)
    result = subject.call(case, subject.arrays(case, hosts))
    subject.judge(result, Expected(values[0], values[0], 2, len(hosts), subject.result_dtype(case)))


# -- threads ------------------------------------------------------------------------------------------------------


def is_right_in_threads(case: Case, subject: Subject) -> None:
    """Threads that make the same call on values of their own, all at once, get their own results."""
    _judge_in_threads(subject, [[case] * 3 for _ in range(_THREADS)])


def are_right_in_threads(case: Case, subject: Subject) -> None:
    """Threads that make calls of all kinds, each in another order, get their own results."""
    every = [Case(case.feature, is_right_in_threads, *made) for made in _problems()]
    _judge_in_threads(subject, [every[k:] + every[:k] for k in range(0, len(every), -(-len(every) // _THREADS))])


def _problems() -> Iterator[tuple[str, tuple[ArraySpec, ...]]]:
    """The equations of the forms with sizes of their own: no plan for them is there yet."""
    for equation, shapes in EQUATIONS:
        yield equation, operands(*(tuple(size + 1 for size in shape) for shape in shapes))


def _judge_in_threads(subject: Subject, work: Sequence[Sequence[Case]]) -> None:
    """Raise Failure unless the result of every call is right; each list of cases is the work of a thread."""
    hosts = [[case.values(f"{thread} {turn}") for turn, case in enumerate(cases)] for thread, cases in enumerate(work)]
    results: list[list[Any]] = [[] for _ in work]
    errors: list[BaseException] = []
    start = Barrier(len(work))

    def run(thread: int) -> None:
        try:
            start.wait(_SECONDS)
            for case, values in zip(work[thread], hosts[thread]):
                results[thread].append(subject.call(case, subject.arrays(case, values)))
        except BaseException as error:  # noqa: BLE001  raised below, where it is seen
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
            what = f"the result of {case.equation} in thread {thread}"
            subject.judge(result, subject.expected(case, values), what)


# -- same bits ----------------------------------------------------------------------------------------------------


def gives_the_same_bits(case: Case, subject: Subject) -> None:
    """Calls on the same arrays give the same bits."""
    arrays = subject.arrays(case, case.values())
    first, *others = (subject.framework.values(subject.call(case, arrays)).tobytes() for _ in range(5))
    if any(other != first for other in others):
        raise Failure("another call on the same arrays gave other bits")
