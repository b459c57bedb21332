"""``einsum_argmax``, judged by all arrangements."""

import math
import subprocess
import sys
import tracemalloc
import warnings
from functools import reduce
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import einsumx
from einsumx import ArgmaxResult, BackendError, EquationError, Semiring, SizeError, argmax, einsum, einsum_argmax
from einsumx.ir.bind import EllipsisAxis

FUNCTIONS = {
    "max-plus": (max, lambda a, b: a + b),
    "min-plus": (min, lambda a, b: a + b),
    "max-times": (max, lambda a, b: a * b),
    "max-min": (max, min),
    "min-max": (min, max),
    "boolean": (max, min),
}
SEMIRINGS = {
    **{name: name for name in ("max-plus", "min-plus", "max-times", "boolean")},
    "max-min": Semiring("max-min", "maximum", "minimum"),
    "min-max": Semiring("min-max", "minimum", "maximum"),
}


def terms_of(equation, arrays, name):
    """For each place of the result, the term of each arrangement of the summed labels."""
    inputs, output = equation.split("->")
    subscripts = inputs.split(",")
    sizes = {}
    for subscript, array in zip(subscripts, arrays):
        for label, size in zip(subscript, array.shape):
            sizes[label] = size if size != 1 else sizes.get(label, 1)
    multiply = FUNCTIONS[name][1]
    summed = [label for label in sizes if label not in output]
    terms = {}
    for numbers in product(*map(range, sizes.values())):
        at = dict(zip(sizes, numbers))
        factors = [
            array[tuple(at[label] * (size > 1) for label, size in zip(subscript, array.shape))].item()
            for subscript, array in zip(subscripts, arrays)
        ]
        place = tuple(at[label] for label in output)
        terms.setdefault(place, {})[tuple(at[label] for label in summed)] = reduce(multiply, factors)
    return summed, tuple(sizes[label] for label in output), terms


def judge(equation, arrays, name, found):
    summed, shape, terms = terms_of(equation, arrays, name)
    best = FUNCTIONS[name][0]
    value = np.asarray(found.value)
    assert value.shape == shape
    assert list(found.positions) == summed
    for place, candidates in terms.items():
        assert value[place] == pytest.approx(best(candidates.values()), rel=1e-12)
        chosen = tuple(int(np.asarray(found.positions[label])[place]) for label in summed)
        assert candidates[chosen] == pytest.approx(value[place].item(), rel=1e-12)
    for positions in found.positions.values():
        assert np.asarray(positions).dtype == "int64"
        assert np.asarray(positions).shape == shape


@st.composite
def contractions(draw):
    sizes = {label: draw(st.integers(1, 3)) for label in "abcde"}
    count = draw(st.integers(1, 4))
    subscripts = [draw(st.text("abcde", max_size=3)) for _ in range(count)]
    used = sorted(set("".join(subscripts)))
    output = draw(st.permutations(used)) if used else []
    output = "".join(output[: draw(st.integers(0, len(output)))])
    ones = {(number, label): draw(st.integers(0, 4)) == 0 for number in range(count) for label in "abcde"}
    shapes = [tuple(1 if ones[n, label] else sizes[label] for label in each) for n, each in enumerate(subscripts)]
    return f"{','.join(subscripts)}->{output}", shapes


@settings(max_examples=150, deadline=None)
@given(contractions(), st.sampled_from(list(SEMIRINGS)), st.integers(0, 1000), st.booleans())
def test_the_positions_attain_the_largest_term(contraction, name, seed, has_ties):
    equation, shapes = contraction
    rng = np.random.default_rng(seed)
    # Few values, so that terms are equal.
    arrays = [np.asarray(rng.integers(0, 3, shape) if has_ties else rng.random(shape), "float64") for shape in shapes]
    if name == "boolean":
        arrays = [np.asarray(array > 0.6) for array in arrays]
    judge(equation, arrays, name, einsum_argmax(equation, *arrays, semiring=SEMIRINGS[name]))


@pytest.mark.parametrize("optimize", [False, "greedy", "optimal", [(0, 2), (0, 1)], [(0, 1, 2)]], ids=str)
def test_any_path_finds_an_arrangement(optimize):
    arrays = [np.random.default_rng(0).random(shape) for shape in ((3, 4), (4, 5), (5, 2))]
    judge("ij,jk,kl->il", arrays, "max-plus", einsum_argmax("ij,jk,kl->il", *arrays, optimize=optimize))


# -- what is returned -----------------------------------------------------------------------------------------------


def test_the_result_is_a_named_tuple_whose_value_is_that_of_einsum():
    a, b = np.random.default_rng(0).random((2, 4, 4))
    result = einsum_argmax("ij,jk->ik", a, b, semiring="min-plus")
    assert isinstance(result, ArgmaxResult)
    value, positions = result
    np.testing.assert_array_equal(value, einsum("ij,jk->ik", a, b, semiring="min-plus"))
    np.testing.assert_array_equal(positions["j"], (a[:, :, None] + b).argmin(1))


def test_positions_index_the_operands_as_they_are():
    a, b = np.random.default_rng(0).random((2, 4, 4))
    value, positions = einsum_argmax("ij,jk->ik", a, b)
    i, k = np.indices((4, 4))
    np.testing.assert_array_equal(a[i, positions["j"]] + b[positions["j"], k], value)


def test_the_semiring_is_max_plus_by_default_and_with_none():
    a = np.array([[1.0, 3.0], [4.0, 2.0]])
    for keywords in ({}, {"semiring": None}):
        assert einsum_argmax("ij->i", a, **keywords).positions["j"].tolist() == [1, 0]


def test_numbers_without_axes_are_those_of_einsum():
    value, positions = einsum_argmax("i->", np.array([1.0, 3.0, 2.0]))
    assert type(value) is np.float64
    assert type(positions["i"]) is np.int64
    assert (value, positions["i"]) == (3.0, 1)


def test_labels_in_lists_are_the_keys():
    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    assert list(einsum_argmax(a, ["row", 7], b, [7], ["row"]).positions) == [7]
    assert list(einsum_argmax(a, [0, (1, 2)], [0]).positions) == [(1, 2)]
    assert list(einsum_argmax(a, b, "row column, column -> row").positions) == ["column"]


def test_axes_of_an_ellipsis_that_the_result_lacks_have_labels_of_their_own():
    found = einsum_argmax("...i->i", np.array([[1.0, 5.0], [2.0, 3.0]])).positions
    assert list(found) == [EllipsisAxis(0)]
    assert found[EllipsisAxis(0)].tolist() == [1, 0]
    assert einsum_argmax("...i->...", np.array([[1.0, 5.0], [4.0, 3.0]])).positions["i"].tolist() == [1, 0]


def test_lists_of_numbers_are_operands():
    assert einsum_argmax("i,i->", [1.0, 2.0], [5.0, 1.0]).positions["i"] == 0
    assert einsum_argmax("i->", [1, 7], dtype="float64").value.dtype == "float64"


def test_integers_are_computed_in_the_dtype_that_is_asked_for():
    a = np.array([[1, 3], [4, 2]])
    value, positions = einsum_argmax("ij->i", a, dtype="float64")
    assert value.tolist() == [3.0, 4.0]
    assert positions["j"].tolist() == [1, 0]
    with pytest.raises(BackendError, match="does not compute in int64"):
        einsum_argmax("ij->i", a)


# -- ties, and what is not possible ---------------------------------------------------------------------------------


def test_of_equal_terms_a_step_takes_the_first():
    ones = np.ones((3, 3))
    assert not einsum_argmax("ij,jk->ik", ones, ones).positions["j"].any()
    assert all(not positions for positions in einsum_argmax("ij->", ones).positions.values())


def test_positions_of_equal_terms_are_of_one_term():
    # Each label alone attains the maximum at 0 and at 1, but only together.
    a = np.eye(2)
    value, positions = einsum_argmax("ij,jk->", a, a)
    assert value == 2.0
    assert positions["i"] == positions["j"] == positions["k"] == 0


def test_what_is_not_reachable_has_positions_of_an_impossible_term():
    value, positions = einsum_argmax("ij,jk->ik", np.full((2, 3), -np.inf), np.zeros((3, 2)))
    assert (value == -np.inf).all()
    assert not positions["j"].any()
    assert einsum_argmax("i->", np.array([False, False]), semiring="boolean") == (False, {"i": 0})


def test_a_witness_of_an_or_is_the_first_that_is_true():
    a, b = np.array([[0, 1, 1], [0, 0, 1]]), np.array([[1], [0], [1]])
    value, positions = einsum_argmax("ij,jk->ik", a, b, semiring="boolean")
    assert value.tolist() == [[True], [True]]
    assert positions["j"].tolist() == [[2], [2]]


def test_a_value_of_nan_has_the_positions_of_a_nan():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a = np.array([1.0, np.nan, np.inf, 3.0])
        value, positions = einsum_argmax("i,i->", a, np.array([0.0, 1.0, -np.inf, 0.0]))
    assert math.isnan(value)
    assert positions["i"] == 1


def test_a_result_without_elements_has_positions_without_elements():
    value, positions = einsum_argmax("ij,j->i", np.ones((0, 3)), np.ones(3))
    assert value.shape == positions["j"].shape == (0,)


@pytest.mark.parametrize("shape", [(2, 0), (0, 0)], ids=str)
def test_a_maximum_of_no_terms_is_attained_nowhere(shape):
    with pytest.raises(SizeError, match="label 'j' has size 0, and a maximum of no terms is attained nowhere"):
        einsum_argmax("ij->i", np.ones(shape))


def test_a_log_sum_exp_is_refused():
    with pytest.raises(ValueError, match="'log' adds up all terms, and none of them attains"):
        einsum_argmax("i->", np.ones(3), semiring="log")


def test_what_is_wrong_is_said_as_by_einsum():
    with pytest.raises(SizeError, match="label 'j' has size 3"):
        einsum_argmax("ij,jk->ik", np.ones((2, 3)), np.ones((4, 2)))
    with pytest.raises(EquationError):
        einsum_argmax("ij->k", np.ones((2, 3)))
    with pytest.raises(ValueError, match="unknown"):
        einsum_argmax("i->", np.ones(3), semiring="max-plsu")


def test_dask_arrays_are_refused():
    dask = pytest.importorskip("dask.array")
    with pytest.raises(BackendError, match="einsum_argmax is not offered for Dask arrays"):
        einsum_argmax("i->", dask.ones(3))


# -- what it is for -------------------------------------------------------------------------------------------------


def test_shortest_paths_of_all_pairs_are_those_of_floyd_and_warshall():
    rng = np.random.default_rng(3)
    size = 20
    edges = np.where(rng.random((size, size)) < 0.1, rng.random((size, size)), np.inf)
    np.fill_diagonal(edges, 0.0)
    expected = edges.copy()
    for middle in range(size):
        expected = np.minimum(expected, expected[:, [middle]] + expected[middle])
    lengths, middles = edges, []
    for _ in range(5):
        lengths, positions = einsum_argmax("ij,jk->ik", lengths, lengths, semiring="min-plus")
        middles.append(positions["j"])
    np.testing.assert_allclose(lengths, expected)

    def path(start, stop, level):
        if level == 0:
            return [start, stop]
        middle = int(middles[level - 1][start, stop])
        return list(dict.fromkeys(path(start, middle, level - 1) + path(middle, stop, level - 1)))

    reached = np.argwhere(np.isfinite(lengths) & ~np.eye(size, dtype=bool)).tolist()
    assert any(len(path(*pair, level=5)) > 5 for pair in reached)
    for pair in reached:
        nodes = path(*pair, level=5)
        assert sum(edges[edge] for edge in pairwise(nodes)) == pytest.approx(lengths[tuple(pair)])


# -- memory ---------------------------------------------------------------------------------------------------------


def test_it_needs_neither_the_broadcast_of_the_network_nor_that_of_a_step():
    a = np.random.default_rng(0).random((300, 300)).astype("float32")
    einsum_argmax("ij,jk->ik", a[:3, :3], a[:3, :3])
    tracemalloc.start()
    _, positions = einsum_argmax("ij,jk->ik", a, a)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300 * 300 * 8 * 4 + argmax._TERMS * 40  # all terms take 108 MB
    np.testing.assert_array_equal(positions["j"][:5], (a[:5, :, None] + a).argmax(1))


def test_terms_of_one_element_may_be_more_than_a_block(monkeypatch):
    monkeypatch.setattr(argmax, "_TERMS", 7)
    arrays = [np.random.default_rng(0).random(shape) for shape in ((5, 4), (4, 9), (9, 3))]
    judge("ij,jk,kl->il", arrays, "min-plus", einsum_argmax("ij,jk,kl->il", *arrays, semiring="min-plus"))


# -- frameworks -----------------------------------------------------------------------------------------------------


def test_torch_has_tensors_and_gradients_of_the_value():
    torch = pytest.importorskip("torch")
    a = torch.tensor([[1.0, 5.0, 2.0]], requires_grad=True)
    value, positions = einsum_argmax("ij,jk->ik", a, torch.tensor([[1.0], [0.0], [2.0]]))
    assert positions["j"].dtype == torch.int64
    assert positions["j"].tolist() == [[1]]
    value.sum().backward()
    assert a.grad.tolist() == [[0.0, 1.0, 0.0]]


def test_torch_compiles_what_is_around_it():
    torch = pytest.importorskip("torch")

    @torch.compile(backend="eager")
    def function(a):
        return einsum_argmax("ij,jk->ik", a * 2, a).positions["j"] + 1

    a = torch.rand(4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(function(a), (a[:, :, None] * 2 + a).argmax(1) + 1)


def test_torch_maps_it():
    torch = pytest.importorskip("torch")
    a, b = torch.rand(3, 4, 5), torch.rand(5, 2)
    found = torch.vmap(lambda a: einsum_argmax("ij,jk->ik", a, b).positions["j"])(a)
    assert torch.equal(found, (a[..., None] + b).argmax(2))


def test_jax_traces_it():
    jax = pytest.importorskip("jax")
    a = jax.random.uniform(jax.random.key(0), (3, 4, 4))
    expected = (a[..., None] + a[:, None]).argmax(2)

    def positions(a):
        return einsum_argmax("ij,jk->ik", a, a).positions["j"]

    assert (jax.jit(positions)(a[0]) == expected[0]).all()
    assert (jax.jit(jax.vmap(positions))(a) == expected).all()
    gradient = jax.grad(lambda a: einsum_argmax("i->", a).value)(a[0, 0])
    assert gradient.tolist() == np.eye(4)[a[0, 0].argmax()].tolist()


def test_a_size_that_is_not_known_is_refused():
    jax = pytest.importorskip("jax")
    from jax import export

    (size,) = export.symbolic_shape("n")
    with pytest.raises(SizeError, match="computes positions from sizes, and one is not known"):
        export.export(jax.jit(lambda a: einsum_argmax("ij->j", a)))(jax.ShapeDtypeStruct((size, 3), "float32"))


def test_a_framework_without_semirings_is_refused(monkeypatch):
    from einsumx.backends.numpy import NumpyAdapter

    monkeypatch.setattr(NumpyAdapter, "has_semirings", False)
    with pytest.raises(BackendError, match="numpy has no einsum_argmax"):
        einsum_argmax("i->", np.ones(3))


def test_it_is_imported_when_it_is_first_used():
    code = "import sys, einsumx; assert 'einsumx.argmax' not in sys.modules; einsumx.einsum_argmax"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert {"ArgmaxResult", "einsum_argmax"} <= {*einsumx.__all__}
