"""A plan is a template: the same contraction with other sizes is not lowered anew, and the plan is the same as if."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import einsumx
from einsumx.adapters.registry import get_backend
from einsumx.ir import ops
from einsumx.ir.bind import bind
from einsumx.ir.layout import contiguous
from einsumx.ir.parse import parse_text
from einsumx.ir.program import Operand
from einsumx.planner import lower as lowering
from einsumx.planner import matmul, step
from einsumx.planner.lower import lower
from einsumx.planner.path import find_path
from einsumx.planner.template import Elements, Template, known, stand_ins

EQUATIONS = (
    "ij,jk->ik",
    "bind,bjnd->bnij",
    "bij,bjk->bik",
    "ijk,jil->kl",
    "ijkl,kjm->mil",
    "ij,ij->i",
    "i,j->ij",
    "ijk->kj",
    "iij,jk->ik",
    "ij,jk,kl->il",
    "abc,ade,bdf,cef->",
    "ab,bc,cd,de,ea->",
)
BACKENDS = ("numpy", "torch", "mxnet", "jax", "tinygrad", "array_api")


@pytest.fixture(autouse=True)
def _no_templates():
    einsumx.cache_clear()
    yield
    einsumx.cache_clear()


def lowered(equation, shapes, layouts, backend, dtype="float32"):
    """The program for operands whose axes lie in memory in the orders ``layouts``."""
    traits = get_backend(backend).cpu
    sized = bind(parse_text(equation, len(shapes)), shapes)
    operands = []
    for shape, order in zip(shapes, layouts):
        strides = dict(zip(order, contiguous([shape[axis] for axis in order])))
        lying = tuple(strides[axis] for axis in range(len(shape)))
        is_c = not traits.strided or lying == contiguous(shape)
        operands.append(Operand(shape, dtype, None if is_c else lying))
    return lower(sized, operands, find_path(sized), backend=backend, traits=traits, dtype=dtype)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_plan_from_a_template_is_the_plan_that_lowering_makes(backend):
    @given(data=st.data(), equation=st.sampled_from(EQUATIONS), dtype=st.sampled_from(["float32", "float16", "int64"]))
    @settings(max_examples=60)
    def check(data, equation, dtype):
        terms = equation.partition("->")[0].split(",")
        labels = sorted(set("".join(terms)))
        layouts = [tuple(data.draw(st.permutations(range(len(term))))) for term in terms]
        sizes = st.sampled_from([1, 2, 3, 7, 8, 30, 31, 64, 500])
        drawn = [{label: data.draw(sizes) for label in labels} for _ in range(4)]
        shapes = [[tuple(each[label] for label in term) for term in terms] for each in drawn]
        known.cache_clear()
        others = [lowered(equation, each, layouts, backend, dtype) for each in shapes]
        for each, program in zip(shapes, others):
            known.cache_clear()
            assert lowered(equation, each, layouts, backend, dtype) == program

    check()


@pytest.fixture
def drafts(monkeypatch):
    """Counts how often a contraction or a step is lowered."""
    calls = []
    for module in (lowering, step):
        monkeypatch.setattr(module, "_drafted", _counting(module._drafted, calls))
    return calls


def _counting(function, calls):
    def counted(*arguments):
        calls.append(arguments)
        return function(*arguments)

    return counted


@pytest.mark.parametrize("equation", ["ij,jk->ik", "bind,bjnd->bnij", "abc,cde->abde", "ij,jk,kl->il"])
def test_sizes_that_grow_by_one_are_lowered_once_in_a_while(equation, drafts):
    terms = equation.partition("->")[0].split(",")
    for size in range(20, 120):
        einsumx.plan(equation, *[(size,) * len(term) for term in terms])
    wholes = [call for call in drafts if isinstance(call[-1], Elements)]
    assert 1 <= len(wholes) <= 4


def test_the_same_contraction_in_other_letters_is_not_lowered_again(drafts):
    einsumx.plan("ij,jk->ik", (20, 30), (30, 40))
    count = len(drafts)
    einsumx.plan("xy,yz->xz", (20, 30), (30, 40))
    einsumx.plan("...b,bc->...c", (21, 31), (31, 41))
    assert len(drafts) == count == 1


def test_equal_steps_of_a_network_are_lowered_once(drafts):
    count = 30
    arguments = [item for k in range(count) for item in ((5, 5), [k, k + 1])]
    path = [(0, 1), *((0, last) for last in range(count - 2, 0, -1))]
    einsumx.plan(*arguments, [0, count], optimize=path)
    steps = [call for call in drafts if isinstance(call[1], tuple)]
    assert len(steps) <= 4  # the first, those between, and the last, in its requested order


def test_another_answer_to_a_question_about_sizes_is_another_template():
    small, large = (einsumx.plan("bij,bjk->ik", (size,) * 3, (size,) * 3) for size in (2, 200))
    again = [einsumx.plan("bij,bjk->ik", (size,) * 3, (size,) * 3) for size in (3, 201)]
    kinds = [[type(op) for op in plan.ops] for plan in (small, large, *again)]
    assert kinds[0] != kinds[1]
    assert kinds[2:] == kinds[:2]


def test_a_template_fits_only_the_sizes_with_the_same_answers():
    call = ops.Reshape(1, 0, (143,))
    is_large = (lambda elements: elements[0, 1] > 10, True)
    template = Template.drafted([call], {143: (0, 1)}, 1, [is_large])
    assert template.fits(Elements((4, 5)))
    assert not template.fits(Elements((2, 5)))
    assert template.sized(Elements((4, 5))) == (ops.Reshape(1, 0, (20,)),)


def test_stand_ins_tell_labels_apart():
    sizes = stand_ins((False, True, False, False))
    assert sizes[1] == 1
    products = {sizes[0], sizes[2], sizes[3], sizes[0] * sizes[2], sizes[0] * sizes[3], sizes[2] * sizes[3]}
    assert len(products) == 6
    assert 1 not in products


def test_a_sliding_window_has_no_template(drafts):
    window = np.lib.stride_tricks.sliding_window_view(np.arange(8.0), 3)
    for length in (4, 5, 6):
        plan = einsumx.plan("ij,j->i", window[:length], np.ones(3))
        assert plan(window[:length], np.ones(3)).tolist() == [3.0 * k + 3 for k in range(length)]
    assert len(drafts) == 3


def test_cache_clear_forgets_templates():
    einsumx.plan("ij,jk->ik", (20, 30), (30, 40))
    assert known.cache_info().currsize == 1
    einsumx.cache_clear()
    assert known.cache_info().currsize == 0


CANDIDATES = {
    "ij,jk->ik": 1,
    "ij,kj->ik": 1,
    "bij,bjk->bik": 1,
    "bind,bjnd->bnij": 1,
    "ijk,jil->kl": 3,
    "ijkl,kjm->mil": 9,
}
"""The matrix products that NumPy's plan of each pair chooses from, at sizes of 30. The last one has many more rows than
columns, so that both sides count."""


@pytest.mark.parametrize(("equation", "most"), CANDIDATES.items())
def test_products_that_cannot_win_are_not_enumerated(equation, most, monkeypatch):
    counts = []
    enumerate_all = matmul._Search.candidates

    def counted(search):
        choices = list(enumerate_all(search))
        counts.append(len(choices))
        return iter(choices)

    monkeypatch.setattr(matmul._Search, "candidates", counted)
    terms = equation.partition("->")[0].split(",")
    einsumx.plan(equation, *[(30,) * len(term) for term in terms])
    assert counts == [most]
