"""PyData's sparse: plans by stored elements, results that stay sparse, mixes with dense arrays, and refusals."""

import json
from itertools import pairwise

import numpy as np
import pytest
from peaks import numpy_peak

import einsumx
from einsumx.cli.main import main
from einsumx.conformance.frameworks.sparse import SparseFramework
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.conformance.subject import Subject
from einsumx.conformance.suite import cases, run
from einsumx.ir.fill import density_of_sum
from einsumx.ir.ops import Native
from einsumx.planner.sparse_path import sparse_path

sparse = pytest.importorskip("sparse")


def random(shape, density, seed=0, kind="coo"):
    return sparse.random(shape, density=density, random_state=np.random.default_rng(seed)).asformat(kind)


def labels(*terms):
    return tuple(frozenset(map("abcdefghijklmnopqrstuvwxyz".index, term)) for term in terms)


class GcxsFramework(SparseFramework):
    """GCXS arrays, and COO where a result has no axes, as sparse itself returns them."""

    code = "sparse.GCXS.from_numpy(np.array({values}, {dtype!r}))"

    def array(self, values, dtype, device=""):
        array = super().array(values, dtype)
        return array.asformat("gcxs") if array.shape else array

    def is_array(self, array):
        return isinstance(array, self.xp.GCXS if array.shape else self.xp.COO)


FEATURES = ["diagonals", "broadcasting", "promotion", "integers", "bool", "addeinsum"]


@pytest.mark.parametrize("feature", FEATURES)
def test_gcxs_arrays_keep_the_promises(feature):
    subject = Subject("sparse", sparse.__version__, GcxsFramework(), "", einsumx.einsum, is_einsumx=True)
    outcomes = list(run(subject, cases("quick", f"{feature}/*", random=0)))
    assert outcomes
    assert not [(outcome.case, outcome.message) for outcome in outcomes if outcome.status == "fail"]


# -- plans --------------------------------------------------------------------------------------------------------


def test_the_path_depends_on_the_stored_elements():
    dense, thin = (600, 600), 0.001
    paths = [
        einsumx.plan("ij,jk,kl->il", *[random(dense, density, seed) for seed, density in enumerate(densities)]).path
        for densities in ((thin, 0.1, 0.1), (0.1, 0.1, thin))
    ]
    assert paths == [((0, 1), (0, 1)), ((1, 2), (0, 1))]


def test_a_product_that_fills_up_is_put_off():
    # By sizes alone, the small result of the first two comes first; but they are full, and the others almost empty.
    shapes = (50, 400), (400, 50), (50, 400)
    a, b, c = random(shapes[0], 0.5), random(shapes[1], 0.5, 1), random(shapes[2], 0.0005, 2)
    assert einsumx.plan("ij,jk,kl->il", *shapes, backend="sparse").path == ((0, 1), (0, 1))
    assert einsumx.plan("ij,jk,kl->il", a, b, c).path == ((1, 2), (0, 1))


def test_a_plan_is_profiled_on_operands_of_a_density(capsys):
    asked = ["profile", "ij,jk,kl->il", "60,60", "60,60", "60,60", "--backend", "sparse", "--json"]
    work = []
    for share in ("0.05", "0.5"):
        assert main([*asked, "--density", share]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["density"] == float(share)
        work.append(sum(op["multiply_adds"] for op in found["ops"]))
    assert work[0] < 0.1 * work[1] < work[1] < 2 * 60**3


def test_arrays_of_one_class_of_densities_share_a_plan():
    one, other, denser = (random((100, 100), density) for density in (0.0100, 0.0104, 0.3))
    plan = einsumx.plan("ij,jk->ik", one, one)
    assert einsumx.plan("ij,jk->ik", other, other).ops is plan.ops, "planned once"
    assert einsumx.plan("ij,jk->ik", denser, denser) != plan
    assert plan(denser, denser).nnz == (denser @ denser).nnz, "a plan runs on any density"


def test_a_plan_is_one_product_for_each_step_and_says_what_it_stores():
    a, b = random((20, 100, 90), 0.01), random((20, 90, 80), 0.01, 1)
    plan = einsumx.plan("bij,bjk->kib", a, b)
    assert [type(op) for op in plan.ops] == [Native]
    text = str(plan)
    assert "(20,100,90):1.1%" in text
    assert "stores about" in text
    assert einsumx.plan("bij,bjk->kib", a.shape, b.shape, backend="sparse").operands[0].nnz is None


def test_a_stored_plan_keeps_what_it_assumed():
    a = random((30, 40), 0.1)
    plan = einsumx.plan("ij,kj->ik", a, a)
    loaded = einsumx.Plan.from_json(plan.to_json())
    assert loaded == plan
    assert loaded.operands[0].nnz == 128


@pytest.mark.parametrize("share", [1e-3, 0.1])
def test_the_estimate_of_a_result_is_near_the_count(share):
    a, b = random((300, 200), share), random((200, 300), share, 1)
    found = einsumx.einsum("ij,jk->ik", a, b).nnz
    estimate = 300 * 300 * density_of_sum(share * share, 200)
    assert abs(found - estimate) < 5 * estimate**0.5 + 0.02 * estimate


def test_the_search_over_all_paths_finds_the_least_work():
    """Every path of four operands, priced by hand from the same estimates, against the one that is found."""
    inputs, output = labels("ab", "bc", "cd", "de"), labels("ae")[0]
    sizes, densities = (30, 400, 20, 500, 7), (0.3, 0.002, 0.05, 0.6)

    def price(path):
        terms = [(term, share) for term, share in zip(inputs, densities)]
        total = 0.0
        for low, high in path:
            (one, first), (two, second) = terms.pop(high), terms.pop(low)
            kept = (one | two) & frozenset(output).union(*[term for term, _ in terms])
            steps, size = size_of(one | two), size_of(kept)
            share = density_of_sum(first * second, steps // size)
            total += 8 * (first * size_of(one) + second * size_of(two) + share * size) + first * second * steps
            terms.append((kept, share))
        return total

    def size_of(term):
        return float(np.prod([sizes[label] for label in term]))

    def every(count):
        if count == 1:
            yield ()
        for high in range(1, count):
            for low in range(high):
                for rest in every(count - 1):
                    yield ((low, high), *rest)

    found = sparse_path(inputs, output, sizes, densities)
    assert price(found) == pytest.approx(min(map(price, every(4))))


@pytest.mark.parametrize("count", [9, 40])
def test_long_chains_are_searched_too(count):
    letters = [einsumx.ir.parse.symbol(number) for number in range(count + 1)]
    equation = f"{','.join(map(''.join, pairwise(letters)))}->{letters[0]}{letters[-1]}"
    arrays = [random((9, 9), 0.3, seed) for seed in range(count)]
    expected = np.linalg.multi_dot([array.todense() for array in arrays])
    assert np.allclose(einsumx.einsum(equation, *arrays).todense(), expected)


def test_outer_products_in_a_network_of_many_operands_come_last():
    arrays = [random((3,), 0.7, seed) for seed in range(9)]
    assert einsumx.einsum("a,b,c,d,e,f,g,h,i->", *arrays).todense() == pytest.approx(
        np.prod([array.todense().sum() for array in arrays])
    )


# -- results ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["coo", "gcxs"])
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", ((200_000, 200_000), (200_000, 200_000))),
        ("ij,ij->ij", ((200_000, 200_000), (200_000, 200_000))),
        ("ij->ji", ((200_000, 200_000),)),
        ("ij->j", ((200_000, 200_000),)),
        ("ii->i", ((200_000, 200_000),)),
        ("bij,bjk->bik", ((3_000, 3_000, 3_000), (3_000, 3_000, 3_000))),
        ("ij,kl->ijkl", ((50_000, 50_000), (30, 40))),
        ("ij,jk,kl->il", ((200_000, 200_000),) * 3),
    ],
    ids=str,
)
def test_nothing_is_made_dense(kind, equation, shapes):
    arrays = [sparse.random(shape, nnz=50, random_state=seed).asformat(kind) for seed, shape in enumerate(shapes)]
    einsumx.einsum(equation, *[sparse.random((2,) * len(shape), nnz=1).asformat(kind) for shape in shapes])  # compiles
    result, peak = numpy_peak(lambda: einsumx.einsum(equation, *arrays))
    assert isinstance(result, type(arrays[0]))
    if kind == "coo":  # GCXS has a pointer for each row
        assert peak < 1e6
    assert result.nnz <= 2500


def test_the_type_of_a_result_is_that_of_sparse_einsum():
    coo = random((4, 4), 0.5)
    gcxs, dense = coo.asformat("gcxs"), np.ones((4, 4))
    for one in (coo, gcxs, dense):
        for other in (coo, gcxs, dense):
            if not (one is dense and other is dense):
                for equation in ("ij,jk->ik", "ij,ij->ij", "ij,jk->"):
                    ours, theirs = (function(equation, one, other) for function in (einsumx.einsum, sparse.einsum))
                    assert type(ours) is type(theirs), (equation, type(one), type(other))
                    assert np.allclose(ours.todense(), theirs.todense())


@pytest.mark.parametrize(
    ("equation", "dtype"),
    [
        ("ij,jk->ik", "float16"),
        ("bij,bjk->ibk", "int8"),
        ("ij,j->ij", "bool"),
        ("ij,j->i", "bool"),
        ("i,j->ij", "complex64"),
        ("ij,ij->", "uint8"),
        ("ijk,ikl->il", "float32"),
        ("ij,jk,kl->il", "bool"),
        ("iij,j->ji", "int64"),
    ],
)
def test_sparse_and_dense_operands_mix(equation, dtype):
    rng = np.random.default_rng(5)
    sizes = {"b": 4, "i": 5, "j": 5, "k": 6, "l": 3}
    terms = equation.partition("->")[0].split(",")
    shapes = [tuple([sizes[letter] for letter in term]) for term in terms]
    values = [(rng.integers(-5, 5, shape) * rng.integers(0, 2, shape)).astype(dtype) for shape in shapes]
    expected = expect(equation, *values)
    for mask in range(1, 1 << len(terms)):
        operands = [sparse.COO.from_numpy(each) if mask >> at & 1 else each for at, each in enumerate(values)]
        result = einsumx.einsum(equation, *operands)
        assert isinstance(result, sparse.COO)
        assert result.dtype == expected.dtype
        assert judge(result.todense(), expected), (equation, mask)


def test_a_product_with_a_dense_matrix_has_only_the_rows_that_are_there():
    one, dense = sparse.random((10**6, 10**6), nnz=20, random_state=0), np.ones((10**6, 3))
    assert einsumx.einsum("ij,jk->ik", one, dense).nnz <= 60


def test_zeros_of_a_sum_are_not_stored():
    one = sparse.COO([[0, 0], [0, 1]], [1.0, -1.0], shape=(2, 2))
    assert einsumx.einsum("ij,jk->ik", one, np.ones((2, 2))).nnz == 0
    assert einsumx.einsum("ij,jk->ik", one, sparse.COO.from_numpy(np.ones((2, 2)))).nnz == 0
    assert einsumx.einsum("ij->i", one).nnz == 0


def test_coordinates_in_any_order_with_duplicates_and_of_a_narrow_type():
    coords = np.array([[2, 0, 2, 1], [1, 3, 1, 0]], "uint8")
    one = sparse.COO(coords, [1.0, 2.0, 3.0, 4.0], shape=(300, 300))
    expected = one.todense() @ one.todense().T
    assert np.array_equal(einsumx.einsum("ij,kj->ki", one, one).todense(), expected.T)


def test_an_array_without_axes_keeps_its_element_as_sparse_stores_it():
    total = sparse.einsum("ij->", random((4, 4), 0.5))  # of which sparse.einsum takes none
    one = random((3, 3), 0.9)
    assert np.allclose(einsumx.einsum(",ij->ij", total, one).todense(), total.todense() * one.todense())
    assert einsumx.einsum(",->", total, total).todense() == pytest.approx(total.todense() ** 2)


def test_a_result_of_float16_is_coo_as_gcxs_takes_none():
    one = random((5, 5), 0.4, kind="gcxs").astype("float32")
    result = einsumx.einsum("ij,jk->ik", one, one, dtype="float16", casting="same_kind")
    assert isinstance(result, sparse.COO)
    assert result.dtype == "float16"


def test_a_dok_array_becomes_coo():
    one = random((5, 5), 0.4)
    result = einsumx.einsum("ij,jk->ik", one.asformat("dok"), one)
    assert isinstance(result, sparse.COO)
    assert np.allclose(result.todense(), one.todense() @ one.todense())


def test_another_fill_value_is_an_error():
    odd = sparse.COO.from_numpy(np.eye(3), fill_value=1.0)
    with pytest.raises(einsumx.BackendError, match=r"operand 1: its fill value is 1\.0, .*todense"):
        einsumx.einsum("ij,jk->ik", random((3, 3), 0.5), odd)
    assert einsumx.einsum("ij->ji", sparse.COO.from_numpy(odd.todense())).nnz == 3, "the advice works"


def test_a_memory_limit_is_an_error():
    one = random((30, 30), 0.5)
    for call in (
        lambda: einsumx.einsum("ij,jk->ik", one, one, memory_limit="1 MB"),
        lambda: einsumx.plan("ij,jk->ik", one, one, memory_limit="1 MB"),
        lambda: einsumx.plan("ij,jk->ik", (3, 3), (3, 3), backend="sparse", memory_limit="1 MB"),
    ):
        with pytest.raises(einsumx.BackendError, match=r"sparse: the number of elements .* is not supported; omit it"):
            call()


def test_patch_replaces_sparse_einsum():
    one, other = random((40, 30), 0.1), random((30, 20), 0.1, 1)
    own = sparse.einsum
    expected = own("ij,jk->ki", one, other)
    with einsumx.patched("sparse"):
        assert sparse.einsum is not own
        result = sparse.einsum("ij,jk->ki", one, other)
    assert sparse.einsum is own
    assert np.allclose(result.todense(), expected.todense())


@pytest.mark.parametrize(
    ("equation", "dtype"),
    [("ij,jk,kl->il", "float16"), ("bij,bjk->bik", "bool"), ("ij,ij->ij", "int8"), ("iij->j", "complex64")],
)
def test_the_source_returns_what_the_plan_returns(equation, dtype):
    rng = np.random.default_rng(1)
    arrays = [
        sparse.COO.from_numpy(rng.integers(0, 3, (4,) * len(term)).astype(dtype))
        for term in equation.partition("->")[0].split(",")
    ]
    plan = einsumx.plan(equation, *arrays)
    namespace = {}
    exec(plan.source(), namespace)
    made, expected = namespace["contraction"](*arrays), plan(*arrays)
    assert isinstance(made, sparse.COO)
    assert made.dtype == expected.dtype
    assert np.allclose(made.todense(), expected.todense())


# -- other libraries' sparse arrays ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "coo_array", "csr_matrix", "one axis"])
def test_scipys_sparse_arrays_are_refused_with_a_line_that_works(kind):
    scipy = pytest.importorskip("scipy.sparse")
    values = np.array([0.0, 2.0, 3.0]) if kind == "one axis" else np.array([[0.0, 2.0], [3.0, 0.0]])
    x = (scipy.coo_array if kind == "one axis" else getattr(scipy, kind))(values)
    with pytest.raises(einsumx.BackendError, match=r"sparse\.COO\.from_scipy_sparse\(x\)"):
        einsumx.einsum("...i->i...", x)
    assert np.array_equal(einsumx.einsum("...i->i...", sparse.COO.from_scipy_sparse(x)).todense(), values.T)
