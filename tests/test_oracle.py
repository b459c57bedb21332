"""The oracle against values worked out by hand, and the judge against answers that are wrong."""

import numpy as np
import pytest

from einsumx.conformance.kit.oracle import LIMIT, expect, expect_gradient, judge

A = np.array([[1, 2, 3], [4, 5, 6]])
B = np.array([[1, 0], [2, 1], [0, 3]])


@pytest.mark.parametrize(
    ("equation", "operands", "values"),
    [
        ("ij,jk->ik", (A, B), [[5, 11], [14, 23]]),
        ("ba", (A,), [[1, 4], [2, 5], [3, 6]]),
        ("ij->j", (A,), [5, 7, 9]),
        ("ii->i", ([[1, 2], [3, 4]],), [1, 4]),
        ("i,i,i->", ([1, 2], [3, 4], [5, 6]), 63),
        ("...j->...", (A,), [6, 15]),
        ("...,...", (A, [1, 0, 1]), [[1, 0, 3], [4, 0, 6]]),
        ("i...,i...->...", ([2, 3], A), [14, 19, 24]),
        ("ij,j->i", (A, [10]), [60, 150]),
        ("i,i->", ([], [7]), 0),
        (" i j , j k -> i k ", (A, B), [[5, 11], [14, 23]]),
    ],
)
def test_oracle_gives_values_worked_out_by_hand(equation, operands, values):
    found = expect(equation, *(np.array(operand, int) for operand in operands))
    np.testing.assert_array_equal(found.values, values)
    assert found.values.shape == np.shape(values)


def test_oracle_reads_sublists_and_sorts_their_implicit_output():
    np.testing.assert_array_equal(expect(A, [40, 30]).values, A.T)
    np.testing.assert_array_equal(expect(A, [..., "x"], B, ["x", "y"], ["y", ...]).values, [[5, 14], [11, 23]])


def test_oracle_says_how_many_terms_and_how_large():
    found = expect("ij,jk->ik", np.array([[1.0, -2.0]]), np.array([[3.0], [4.0]]))
    assert (found.terms, found.operands, found.dtype) == (2, 2, "float64")
    assert found.values.item() == -5
    assert found.magnitude.item() == 11


def test_oracle_wraps_integers_and_ors_bools():
    assert expect("i,i->", np.array([100, 100], "i1"), np.array([2, 3], "i1")).values == -12
    assert expect("i->", np.array([200, 100], "u1")).values == 44
    assert expect("i,i->", np.array([2**62, 3]), np.array([2, 1])).values == -(2**63) + 3
    found = expect("ij,j->i", np.array([[True, True], [False, True]]), np.array([True, False]))
    assert found.values.tolist() == [True, False]
    assert found.values.dtype == bool


def test_oracle_cuts_a_large_index_space_without_a_difference():
    rng = np.random.default_rng(1)
    left, right = rng.integers(-9, 9, (40, 90)), rng.integers(-9, 9, (90, 300))
    assert LIMIT < 40 * 90 * 300
    by_rows = [[sum(int(x) * int(y) for x, y in zip(row, column)) for column in right.T[:5]] for row in left[:5]]
    np.testing.assert_array_equal(expect("ij,jk->ik", left, right).values[:5, :5], by_rows)
    np.testing.assert_array_equal(expect("ij,jk->", left, right).values, (left.sum(0) * right.sum(1)).sum())


def test_oracle_casts_operands_to_the_dtype_first():
    found = expect("i->", np.array([0.5, 0.5, 3.75]), dtype="int64")
    assert found.values == 3
    assert found.dtype == "int64"


# -- gradients ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "cotangent", "equation", "operands", "values"),
    [
        (0, [1, 10], "ij,j->i", ([[1, 2], [3, 4]], [5, 6]), [[5, 6], [50, 60]]),
        (1, [1, 10], "ij,j->i", ([[1, 2], [3, 4]], [5, 6]), [31, 42]),
        (0, [[1, 2], [3, 4]], "ij,jk->ki", ([[0, 0], [0, 0]], [[1, 2], [3, 4]]), [[7, 15], [10, 22]]),
        (0, [3, 4], "ii->i", ([[1, 2], [3, 4]],), [[3, 0], [0, 4]]),
        (1, 7, "i,i,i->", ([2], [3], [5]), [70]),
        (1, [[1, 2, 3], [4, 5, 6]], "...i,i->...i", (A, [0, 0, 0]), [17, 29, 45]),
        # An axis of size 1 that is broadcast gets the sum over what it was broadcast to.
        (0, [1, 10], "ij,ij->i", ([[1, 2, 3, 4]], [[0, 1, 2, 3], [4, 5, 6, 7]]), [[40, 51, 62, 73]]),
        (1, [1, 10], "ij,ij->i", ([[1, 2, 3, 4]], [[0, 1, 2, 3], [4, 5, 6, 7]]), [[1, 2, 3, 4], [10, 20, 30, 40]]),
        (1, [1, 2, 3], "i,j->j", (np.zeros(0), [1, 2, 3]), [0, 0, 0]),
        (0, np.ones((2, 3)), "ij,jk->ik", (np.zeros((2, 0)), np.zeros((0, 3))), np.zeros((2, 0))),
    ],
)
def test_oracle_gives_gradients_worked_out_by_hand(by, cotangent, equation, operands, values):
    operands = [np.array(operand, float) for operand in operands]
    found = expect_gradient(by, np.array(cotangent, float), equation, *operands)
    np.testing.assert_array_equal(found.values, values)
    assert found.values.shape == np.shape(values)


def test_gradients_by_complex_operands_have_the_other_factors_conjugated_or_not():
    operands = np.array([1 + 2j]), np.array([3 - 1j])
    assert expect_gradient(0, np.array(2j), "i,i->", *operands).values == 2 + 6j
    assert expect_gradient(0, np.array(2j), "i,i->", *operands, conjugate=True).values == -2 + 6j


def test_the_gradient_by_a_real_operand_beside_a_complex_one_is_real():
    found = expect_gradient(0, np.array(2j), "i,i->", np.array([1.0]), np.array([3 - 1j]), dtype="float64")
    assert (found.values.tolist(), found.dtype) == ([2], "float64")


def test_oracle_says_how_many_terms_a_gradient_sums_and_how_large():
    found = expect_gradient(
        1, np.array([1.0, -10.0]), "ij,ij->i", np.array([[1.0, -2.0], [3.0, 4.0]]), np.array([[5.0, 6.0]])
    )
    assert found.values.tolist() == [[1 - 30, -2 - 40]]
    assert found.magnitude.tolist() == [[31, 42]]
    assert (found.terms, found.operands) == (2, 2)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        pytest.param([[41, 52, 64]], (0, [1.0, 10.0], "ij,ij->i", A[:1] + 0.0, A + 0.0), id="another value"),
        pytest.param([[1, 2], [3, 4]], (0, [[1.0, 2.0], [3.0, 4.0]], "ij->ji", np.ones((2, 2))), id="transposed"),
        pytest.param([[3, 9], [0, 4]], (0, [3.0, 4.0], "ii->i", np.ones((2, 2))), id="unwritten beside the diagonal"),
    ],
)
def test_judge_rejects_wrong_gradients(wrong, expected):
    by, cotangent, *operands = expected
    expected = expect_gradient(by, np.array(cotangent), *operands)
    assert not judge(np.array(wrong, float), expected)
    assert judge(np.array(expected.values, float), expected)


RNG = np.random.default_rng(7)
X = RNG.standard_normal((5, 5))
Y = RNG.standard_normal((5, 5))
Z = X + 1j * Y


def right(equation, *arrays):
    return np.asarray(expect(equation, *arrays).values, np.result_type(*arrays))


def test_judge_accepts_the_right_answer():
    assert judge(right("ij,jk->ik", X, Y), expect("ij,jk->ik", X, Y))
    assert judge(right("ij,jk->ik", Z, Y), expect("ij,jk->ik", Z, Y))
    assert judge(X @ Y, expect("ij,jk->ik", X, Y))
    assert judge(A @ B, expect("ij,jk->ik", A, B))


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        pytest.param(right("ij,jk->ki", X, Y), expect("ij,jk->ik", X, Y), id="transposed result"),
        pytest.param(right("ji,jk->ik", X, Y), expect("ij,jk->ik", X, Y), id="transposed operand"),
        pytest.param(right("ij,jk->ik", Z.conj(), Y), expect("ij,jk->ik", Z, Y), id="conjugated"),
        pytest.param(right("ij,jk->ik", Z, Y).real, expect("ij,jk->ik", Z, Y), id="imaginary part lost"),
        pytest.param(right("ij->i", X)[:, None], expect("ij->i", X), id="another shape"),
        pytest.param(right("ij->i", X).astype("f4"), expect("ij->i", X), id="another dtype"),
        pytest.param(A @ B + [[0, 0], [0, 1]], expect("ij,jk->ik", A, B), id="integer off by one"),
        pytest.param(np.array(True), expect("i->", np.array([False, False])), id="wrong bool"),
        pytest.param(np.array(140, "u1"), expect("i->", np.array([200, 100], "u1")), id="wrong wrap"),
    ],
)
def test_judge_rejects(wrong, expected):
    verdict = judge(wrong, expected)
    assert not verdict
    assert verdict.wrong


def test_judge_rejects_an_error_of_a_few_bounds_and_accepts_one_below():
    expected = expect("ij,jk->ik", X, Y)
    bound = 2 * 2 * 5 * np.finfo("f8").eps * expected.magnitude
    for factor, is_right in ((0.9, True), (1.5, False), (4, False)):
        shifted = np.array(expected.values, "f8")
        shifted[2, 3] += float(factor * bound[2, 3])
        verdict = judge(shifted, expected)
        assert bool(verdict) is is_right
        assert verdict.worst == pytest.approx(factor, rel=0.15)
        assert is_right or "element (2, 3)" in verdict.wrong


def test_judge_measures_each_element_by_its_own_magnitude():
    expected = expect("ij->i", np.array([[1e6, 1e6], [1.0, 1.0]]))
    assert not judge(np.array([2e6, 2.0 + 1e-10]), expected)
    assert judge(np.array([2e6 + 1e-10, 2.0]), expected)


def test_judge_accepts_no_rounding_where_elements_only_move():
    expected = expect("ij->ji", X)
    assert judge(X.T, expected)
    assert not judge(np.nextafter(X.T, 2), expected)


def test_judge_wants_half_precision_accumulated_in_single():
    ones = np.ones(4096, "f2")
    assert judge(np.float16(4096), expect("i->", ones))
    assert not judge(np.float16(2048), expect("i->", ones))  # where adding 1 in half precision has no effect
    halves = expect("i,i->", np.full(3, 0.1, "f4"), np.full(3, 0.1, "f4"), dtype="bfloat16")
    assert judge(np.float32(0.030029296875), halves)
    assert not judge(np.float32(0.0305), halves)


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("values", "result", "is_right"),
    [
        ([[1.0, NAN], [1.0, 1.0]], [NAN, 2.0], True),
        ([[1.0, NAN], [1.0, 1.0]], [NAN, NAN], False),
        ([[1.0, NAN], [1.0, 1.0]], [1.0, 2.0], False),
        ([[1.0, INF], [1.0, 1.0]], [INF, 2.0], True),
        ([[1.0, INF], [1.0, 1.0]], [-INF, 2.0], False),
        ([[1.0, INF], [1.0, 1.0]], [NAN, 2.0], False),
        ([[1.0, INF], [1.0, 1.0]], [1e308, 2.0], False),
        ([[-INF, INF], [1.0, 1.0]], [NAN, 2.0], True),
        ([[1.0, 1.0], [1.0, 1.0]], [INF, 2.0], False),
        ([[1.7e308, 1.7e308], [1.0, 1.0]], [INF, 2.0], True),
    ],
)
def test_judge_wants_inf_and_nan_exactly_where_the_plain_sum_has_them(values, result, is_right):
    assert bool(judge(np.array(result), expect("ij->i", np.array(values)))) is is_right


def test_judge_accepts_results_of_no_elements_in_their_shape_alone():
    assert judge(np.zeros((0, 3)), expect("ij->ij", np.zeros((0, 3))))
    assert not judge(np.zeros((3, 0)), expect("ij->ij", np.zeros((0, 3))))
