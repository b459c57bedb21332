"""``Semiring.argmax``: labels, ties, memory and messages; that positions attain the value, the suite judges."""

import math
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einsumx import ArgmaxResult, BackendError, SizeError
from einsumx.algebra import argmax
from einsumx.conformance.case import Case, operands
from einsumx.conformance.features.argmax import attains
from einsumx.conformance.subject import backend_subject
from einsumx.ir.bind import EllipsisAxis
from einsumx.semirings import boolean, max_plus, min_plus


@st.composite
def contractions(draw):
    sizes = {label: draw(st.integers(1, 3)) for label in "abcde"}
    subscripts = draw(st.lists(st.text("abcde", max_size=3), min_size=1, max_size=4))
    output = draw(st.permutations(sorted(set("".join(subscripts)))))
    output = "".join(output[: draw(st.integers(0, len(output)))])
    ones = [draw(st.sets(st.sampled_from("abcde"), max_size=2)) for _ in subscripts]
    shapes = [tuple(1 if label in one else sizes[label] for label in each) for each, one in zip(subscripts, ones)]
    return f"{','.join(subscripts)}->{output}", shapes


@settings(max_examples=40)
@given(contractions(), st.sampled_from([max_plus, min_plus, boolean]), st.sampled_from(["normal", "exact"]))
def test_positions_attain_the_value_in_random_contractions_also_of_equal_terms(contraction, semiring, fill):
    equation, shapes = contraction
    arrays = operands(*shapes, dtype="float64", fill=fill)
    case = Case("argmax", attains, equation, arrays, function="argmax", semiring=semiring)
    attains(case, backend_subject("numpy"))


# -- what is returned -----------------------------------------------------------------------------------------------


def test_the_result_is_a_named_tuple_whose_value_is_that_of_einsum():
    a, b = np.random.default_rng(0).random((2, 4, 4))
    result = min_plus.argmax("ij,jk->ik", a, b)
    assert isinstance(result, ArgmaxResult)
    value, positions = result
    np.testing.assert_array_equal(value, min_plus.einsum("ij,jk->ik", a, b))
    np.testing.assert_array_equal(positions["j"], (a[:, :, None] + b).argmin(1))


def test_numbers_without_axes_are_those_of_einsum():
    value, positions = max_plus.argmax("i->", np.array([1.0, 3.0, 2.0]))
    assert type(value) is np.float64
    assert type(positions["i"]) is np.intp
    assert (value, positions["i"]) == (3.0, 1)


def test_labels_in_lists_are_the_keys():
    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    assert list(max_plus.argmax(a, ["row", 7], b, [7], ["row"]).positions) == [7]
    assert list(max_plus.argmax(a, [0, (1, 2)], [0]).positions) == [(1, 2)]
    assert list(max_plus.argmax(a, b, "row column, column -> row").positions) == ["column"]


def test_axes_of_an_ellipsis_that_the_result_lacks_have_labels_of_their_own():
    found = max_plus.argmax("...i->i", np.array([[1.0, 5.0], [2.0, 3.0]])).positions
    assert list(found) == [EllipsisAxis(0)]
    assert found[EllipsisAxis(0)].tolist() == [1, 0]
    assert max_plus.argmax("...i->...", np.array([[1.0, 5.0], [4.0, 3.0]])).positions["i"].tolist() == [1, 0]


# -- ties, and what is not possible ---------------------------------------------------------------------------------


def test_of_equal_terms_a_step_takes_the_first():
    ones = np.ones((3, 3))
    assert not max_plus.argmax("ij,jk->ik", ones, ones).positions["j"].any()
    assert all(not positions for positions in max_plus.argmax("ij->", ones).positions.values())


def test_what_is_not_reachable_has_positions_of_an_impossible_term():
    value, positions = max_plus.argmax("ij,jk->ik", np.full((2, 3), -np.inf), np.zeros((3, 2)))
    assert (value == -np.inf).all()
    assert not positions["j"].any()
    assert boolean.argmax("i->", np.array([False, False])) == (False, {"i": 0})


def test_a_value_of_nan_has_the_positions_of_a_nan():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a = np.array([1.0, np.nan, np.inf, 3.0])
        value, positions = max_plus.argmax("i,i->", a, np.array([0.0, 1.0, -np.inf, 0.0]))
    assert math.isnan(value)
    assert positions["i"] == 1


def test_dask_arrays_are_refused():
    dask = pytest.importorskip("dask.array")
    with pytest.raises(BackendError, match=r"argmax.* does not support Dask arrays"):
        max_plus.argmax("i->", dask.ones(3))


# -- memory ---------------------------------------------------------------------------------------------------------


def test_it_needs_neither_the_broadcast_of_the_network_nor_that_of_a_step():
    a = np.random.default_rng(0).random((300, 300)).astype("float32")
    max_plus.argmax("ij,jk->ik", a[:3, :3], a[:3, :3])
    tracemalloc.start()
    _, positions = max_plus.argmax("ij,jk->ik", a, a)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300 * 300 * 8 * 4 + argmax._TERMS * 40  # all terms take 108 MB
    np.testing.assert_array_equal(positions["j"][:5], (a[:5, :, None] + a).argmax(1))


@pytest.mark.parametrize("optimize", [False, "greedy", [(0, 2), (0, 1)], [(0, 1, 2)]], ids=str)
def test_any_path_finds_an_arrangement_also_if_the_terms_of_one_element_are_more_than_a_block(optimize, monkeypatch):
    monkeypatch.setattr(argmax, "_TERMS", 7)
    a, b, c = [np.random.default_rng(0).random(shape) for shape in ((5, 4), (4, 9), (9, 3))]
    value, positions = min_plus.argmax("ij,jk,kl->il", a, b, c, optimize=optimize)
    i, l = np.indices((5, 3))  # noqa: E741  the label
    j, k = positions["j"], positions["k"]
    terms = a[:, :, None, None] + b[:, :, None] + c
    np.testing.assert_allclose(value, terms.min((1, 2)), rtol=1e-12)
    np.testing.assert_allclose(terms[i, j, k, l], value, rtol=1e-12)


# -- frameworks -----------------------------------------------------------------------------------------------------


def test_torch_has_tensors_and_gradients_of_the_value_and_maps_it(torch):
    a = torch.tensor([[1.0, 5.0, 2.0]], requires_grad=True)
    value, positions = max_plus.argmax("ij,jk->ik", a, torch.tensor([[1.0], [0.0], [2.0]]))
    assert positions["j"].dtype == torch.int64
    assert positions["j"].tolist() == [[1]]
    value.sum().backward()
    assert a.grad.tolist() == [[0.0, 1.0, 0.0]]
    a, b = torch.rand(3, 4, 5), torch.rand(5, 2)
    found = torch.vmap(lambda a: max_plus.argmax("ij,jk->ik", a, b).positions["j"])(a)
    assert torch.equal(found, (a[..., None] + b).argmax(2))


def test_torch_compiles_what_is_around_it(torch):

    @torch.compile(backend="eager")
    def function(a):
        return max_plus.argmax("ij,jk->ik", a * 2, a).positions["j"] + 1

    a = torch.rand(4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(function(a), (a[:, :, None] * 2 + a).argmax(1) + 1)


@pytest.mark.long
def test_jax_traces_it(jax):
    a = jax.random.uniform(jax.random.key(0), (3, 4, 4))
    expected = (a[..., None] + a[:, None]).argmax(2)

    def positions(a):
        return max_plus.argmax("ij,jk->ik", a, a).positions["j"]

    assert (jax.jit(jax.vmap(positions))(a) == expected).all()
    gradient = jax.grad(lambda a: max_plus.argmax("i->", a).value)(a[0, 0])
    assert gradient.tolist() == np.eye(4)[a[0, 0].argmax()].tolist()


def test_a_size_that_is_not_known_is_refused(jax):
    from jax import export

    (size,) = export.symbolic_shape("n")
    with pytest.raises(SizeError, match="needs all sizes, and one is not known"):
        export.export(jax.jit(lambda a: max_plus.argmax("ij->j", a)))(jax.ShapeDtypeStruct((size, 3), "float32"))


def test_a_framework_without_semirings_is_refused(monkeypatch):
    from einsumx.backends.numpy import ADAPTER

    monkeypatch.setitem(ADAPTER.__dict__, "semirings", None)
    with pytest.raises(BackendError, match="argmax does not support numpy"):
        max_plus.argmax("i->", np.ones(3))
