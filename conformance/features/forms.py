"""The forms of an equation: text and sublists, implicit outputs, ellipses, repeated labels."""

from __future__ import annotations

from collections.abc import Iterator

from einsumx.conformance.case import Case, cases_of, examples, operands
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.subject import Subject

FEATURES = {
    "forms": "Equations as text, with whitespace anywhere except in -> and ..., and any letter as a label",
    "implicit output": "Without ->, the ellipsis first, then the labels that appear once, sorted",
    "sublists": "Lists of labels instead of text; any hashable object is a label",
    "names": "Names with blanks between them, in a text after the operands",
    "ellipsis": "... stands for any number of axes, even none; axes that the output omits are summed",
    "diagonals": "A label twice in an operand is its diagonal",
    "hyperedges": "A label in three operands or more, summed or kept",
}

FEW = examples("""
    ij,jk->ik            2,3 3,4
    ijk->kj              2,3,4
    ij,ij->i             2,3 2,3
    i,j->ji              4 3
    bind,bjnd->bnij      2,4,3,5 2,6,3,5
    ij,jk,kl->il         2,3 3,4 4,2
""")
"""A product of two matrices, and one equation of each kind that takes other ops."""

EQUATIONS = FEW + examples("""
    ->                   ()
    ,->                  () ()
    ,i->i                () 3
    i->                  5
    i->i                 5
    ij->ji               2,3
    i,i->                4 4
    i,i->i               4 4
    i,j->                4 3
    ij,j->i              2,3 3
    ij,jk->ki            2,3 3,4
    ij,ij->ij            2,3 2,3
    nc,nc->n             50,3 50,3
    ij,kj->              2,3 4,3
    ijk,ikl->jl          3,2,4 3,4,5
    ijk,ikl->ijl         3,2,4 3,4,5
    bnid,bnjd->bnij      2,3,4,5 2,3,6,5
    bind,jnd->bnij       2,4,3,5 6,3,5
    bnij,bjnc->binc      2,3,4,6 2,6,3,5
    bhqd,bhqkd->bhqk     2,1,5,4 2,1,5,3,4
    ecbfa,fd->abcde      2,3,2,4,2 4,3
    ab,bc,ca->           2,3 3,4 4,2
    abc,ade,bdf,ceg->fg  4,4,4 4,3,3 4,3,2 4,3,2
""")
"""One equation of each kind that planners distinguish, with a different size for each axis."""

_IMPLICIT = examples("""
    ij           2,3
    ba           2,3
    bCa          2,3,4
    ii           3,3
    i,j          4 3
    ij,j         2,3 3
    ij,jk        2,3 3,4
    ki,jk        2,3 4,2
    c...a        2,3,4
    a...a        3,4,3
    ...ij,...jk  5,2,3 5,3,4
""")

_ELLIPSES = examples("""
    ...->...              2,3
    ...i->...             2,3
    i...->...i            2,3,4
    ...ij,...jk->...ki    5,1,2,3 6,3,4
    i...j,...->j...i      2,4,3 5,4
    ...,...               2,1 3
    ...ij,...jk->...ik    2,3 3,4
    ...i,i->...           2,3,4 4
    i...->i               3
    ...,...->...          () 2
    ...i->i               2,4,3
    ...j->j               4,3
    ...i,...->i           2,4,3 4
    b...,c...->...        2,3 4,3
    ...ij,...kj,...->...  2,3,4 2,5,4 2
""")

DIAGONALS = examples("""
    ii->         3,3
    ii->i        3,3 | 1,1
    iij->j       3,3,2
    iji->ij      3,2,3
    iji->ji      3,2,3
    iiii->i      2,2,2,2
    iijj->ij     2,2,3,3
    iij,jkk->ik  2,2,3 3,4,4
    iji,jk->ik   2,3,2 3,4
    ii,ii->i     3,3 3,3
    ii,ij,jj->j  2,2 2,3 3,3
    ...ii->...i  2,3,3
""")

HYPEREDGES = examples("""
    i,i,i->            4 4 4
    i,i,i->i           4 4 4
    ai,bi,ci->abc      2,3 3,3 4,3
    ai,bi,ci,di->abcd  2,3 2,3 2,3 2,3
    ai,bi,ci->aic      2,3 3,3 4,3
    ij,ik,il,jkl->i    2,3 2,4 2,5 3,4,5
""")


def names_give_the_plain_sum(case: Case, subject: Subject) -> None:
    """A text of the labels after the operands means the same as their lists."""
    hosts, arrays = subject.operands(case)
    *inputs, output = [" ".join("..." if label is ... else label for label in term) for term in case.equation]
    result = subject.function_of(case)(*arrays, f"{', '.join(inputs)} -> {output}")
    subject.judge(result, subject.expected(case, hosts))


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    check = gives_the_plain_sum
    matrices, cube = operands((2, 3), (3, 4)), operands((2, 3, 4))
    yield from cases_of("forms", check, EQUATIONS)
    for equation in (" ij,jk->ik", "i j , j k -> i k ", "ij,\tjk\n->ik", "αж,жB->Bα", "Zz,za->aZ"):
        yield Case("forms", check, equation, matrices, about="blanks" * (" " in equation))
    for equation in (
        "i×,×÷->i÷",
        "…→,→\u3000->…\u3000",
        "e\u0301,\u0301\u202e->\u202ee",
        "\ud800🙂,🙂\U0010ffff->\ud800\U0010ffff",
    ):
        yield Case("forms", check, equation, matrices, about="any character", only_einsumx=True)

    yield from cases_of("implicit output", check, _IMPLICIT)
    yield Case("implicit output", check, "i, i", operands((4,), (4,)))

    for sublists in (
        ((0, 1), (1, 2), ()),
        ((0, 1), (1, 2), (2,)),
        ((0, 1), (1, 2), (2, 0)),
        ((0, 1), (1, 2)),
        ((30, 26), (26, 27)),
        ((30, 0), (0, 1)),
        ((100, 52), (52, 60), (60, 100)),
        (("left", "bond"), ("bond", "right"), ("right", "left")),
        (((0, 0), (0, 1)), ((0, 1), (1, 1)), ((1, 1), (0, 0))),
        ((None, 1.5), (1.5, True), (True, None)),
        (("z", 0), (0, 1)),
        ((..., 1), (1, 0)),
        ((..., 0, 1), (1, ..., 2), (2, ..., 0)),
    ):
        yield Case("sublists", check, sublists, matrices)
    # Some libraries use labels such as (..., 0) internally for the axes of an ellipsis.
    yield Case("sublists", check, ((..., (..., 0)), ((..., 0), 1), (1, ...)), matrices, only_einsumx=True)
    yield Case("sublists", check, ((70, 30, 50),), cube)
    yield Case("sublists", check, (("z", "b", "y"),), cube)

    for names in (
        (("left", "bond"), ("bond", "right"), ("right", "left")),
        (("left", "bond"), ("bond", "right"), ()),
        ((..., "bond"), ("bond", "right"), (..., "right")),
    ):
        yield Case("names", names_give_the_plain_sum, names, matrices, only_einsumx=True)
    diagonal = ("row", "row"), ("row",)
    yield Case("names", names_give_the_plain_sum, diagonal, operands((3, 3)), only_einsumx=True)

    yield from cases_of("ellipsis", check, _ELLIPSES)
    yield from cases_of("diagonals", check, DIAGONALS)
    yield from cases_of("hyperedges", check, HYPEREDGES)
