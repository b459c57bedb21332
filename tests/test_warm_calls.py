"""Repeated calls: few Python functions lie between a call and its arrays, and every check of the first call holds."""

import marshal
from fractions import Fraction
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
from functions_entered import entered
from threads import in_threads

import einsumx
from einsumx import einsum
from einsumx.adapters import registry
from einsumx.planner.path import find_path
from einsumx.runtime import front
from einsumx.streaming import readers

pytestmark = pytest.mark.usefixtures("fresh")

MATRIX = "ij,jk->ik"

FORMS = {
    "text": lambda e, a, b, out: e(MATRIX, a, b),
    "implicit output": lambda e, a, b, out: e("ij,jk", a, b),
    "lists": lambda e, a, b, out: e(a, [0, 1], b, [1, 2], [0, 2]),
    "lists, implicit output": lambda e, a, b, out: e(a, [0, 1], b, [1, 2]),
    "tuples": lambda e, a, b, out: e(a, (0, 1), b, (1, 2), (0, 2)),
    "names": lambda e, a, b, out: e(a, b, "row k, k column -> row column"),
    "out=None": lambda e, a, b, out: e(MATRIX, a, b, out=None),
    "dtype by name": lambda e, a, b, out: e(MATRIX, a, b, dtype="float64"),
    "dtype by Python's type": lambda e, a, b, out: e(MATRIX, a, b, dtype=float),
    "dtype of an array": lambda e, a, b, out: e(MATRIX, a, b, dtype=a.dtype),
    "casting": lambda e, a, b, out: e(MATRIX, a, b, casting="same_kind"),
    "order": lambda e, a, b, out: e(MATRIX, a, b, order="F"),
    "optimize by name": lambda e, a, b, out: e(MATRIX, a, b, optimize="greedy"),
    "optimize as a path": lambda e, a, b, out: e(MATRIX, a, b, optimize=["einsum_path", (0, 1)]),
    "no limit": lambda e, a, b, out: e(MATRIX, a, b, memory_limit=None),
    "several": lambda e, a, b, out: e(MATRIX, a, b, dtype=None, order="K", casting="safe", optimize=False),
}

WRITTEN = {
    "out": lambda e, a, b, out: e(MATRIX, a, b, out=out),
    "lists, out and optimize=False": lambda e, a, b, out: e(a, [0, 1], b, [1, 2], [0, 2], out=out, optimize=False),
    "out and casting": lambda e, a, b, out: e(MATRIX, a, b, out=out, casting="unsafe", optimize="greedy"),
}

OWN = 0 if int(np.__version__.partition(".")[0]) >= 2 else 12
"""The functions of NumPy itself: older versions have a class in Python that disables warnings."""

MOST = {"numpy": (OWN + 2, OWN + 4, OWN + 7, OWN + 6), "torch": (3, 5, 7, 12)}
"""The most functions that a repeated call enters: with a text, with sublists or names, with keywords, and with out=."""

REPLACED = {"numpy": 2, "torch": 6}
"""The functions around them that a replacement enters."""

FRAMEWORKS = [name for name in ("numpy", "torch") if find_spec(name)]


@pytest.fixture(params=FRAMEWORKS)
def framework(request):
    return import_module(request.param)


@pytest.fixture
def arrays(framework):
    return [framework.asarray(np.random.default_rng(seed).normal(size=(2, 2))) for seed in range(3)]


@pytest.fixture
def operands():
    return [np.ones((2, 2)) for _ in range(3)]


# -- few functions ------------------------------------------------------------------------------------------------


def most(framework, form):
    """The most functions that a repeated call of a form enters."""
    if form in WRITTEN:
        kind = 3
    elif form in ("text", "implicit output", "out=None"):
        kind = 0
    else:
        kind = 1 if form in ("lists", "lists, implicit output", "tuples", "names") else 2
    return MOST[framework.__name__][kind]


def test_repeated_calls_of_each_form_enter_few_functions_and_are_right(framework, arrays):
    a, b, out = arrays
    expected = np.asarray(a) @ np.asarray(b)
    for form, call in {**FORMS, **WRITTEN}.items():
        for _ in range(2):
            out[...] = 0
            result = call(einsum, a, b, out)
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-12)
            assert (result is out) == (form in WRITTEN)
        assert entered(partial(call, einsum, a, b, out)) <= most(framework, form), form


def test_a_replaced_einsum_enters_few_functions_in_each_form(framework, arrays):
    with einsumx.patched(framework.__name__):
        for form, call in FORMS.items():
            for _ in range(2):
                call(framework.einsum, *arrays)
            allowed = most(framework, form) + REPLACED[framework.__name__]
            assert entered(partial(call, framework.einsum, *arrays)) <= allowed, form


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b, out: einsum("ii->", a),
        lambda a, b, out: einsum("ij,->ij", a, 2.0),
        lambda a, b, out, made=einsumx.expression(MATRIX, (2, 2), (2, 2)): made(a, b),
        lambda a, b, out, made=einsumx.expression(MATRIX, (2, 2), (2, 2)): made(a, b, out=out),
    ],
    ids=["a trace", "a number", "an expression", "an expression with out"],
)
def test_repeated_calls_of_other_kinds_enter_few_functions(call, operands):
    for _ in range(2):
        call(*operands)
    assert entered(lambda: call(*operands)) <= OWN + 12


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b, out: einsumx.addeinsum(out, MATRIX, a, b, alpha=2, out=out),
        lambda a, b, out: einsumx.semirings.max_plus.einsum(MATRIX, a, b),
        lambda a, b, out: einsumx.semirings.max_plus.einsum(MATRIX, a, b, out=out),
    ],
    ids=["a sum that is added", "a semiring", "a semiring with out"],
)
def test_repeated_calls_that_do_more_look_into_the_cache_first_too(call, operands):
    for _ in range(2):
        call(*operands)
    assert entered(lambda: call(*operands)) <= OWN + 34
    counts = einsumx.cache_info()
    assert counts["calls"].misses == 1


def test_the_cache_of_calls_counts_them_and_keeps_its_bound(operands):
    a, b, _ = operands
    for _ in range(3):
        einsum(MATRIX, a, b)
    einsumx.cache_info()
    hits, misses, bound, size = einsumx.cache_info()["calls"]
    assert (hits, misses, size) == (2, 1, 1)
    for number in range(bound + 1):
        einsum(a, [number, number + 1], b, [number + 1, -1])
    assert einsumx.cache_info()["calls"].misses == bound + 2
    assert 0 < einsumx.cache_info()["calls"].currsize <= bound
    einsumx.cache_clear()
    assert einsumx.cache_info()["calls"][:2] == (0, 0)


def test_a_backend_that_is_registered_serves_calls_that_another_served_before(monkeypatch, operands):
    a, b, _ = operands
    assert einsum(MATRIX, a, b)[0, 0] == 2
    old = registry.get_backend("numpy")
    new = type(old)()
    changed = lambda run, is_loud: lambda *arrays: run(*arrays) + 1  # noqa: E731
    monkeypatch.setattr(new, "prepare_plain", changed, raising=False)
    monkeypatch.setitem(registry._registered, "numpy", old)  # which is undone
    einsumx.register(new)
    assert einsum(MATRIX, a, b)[0, 0] == 3
    monkeypatch.undo()
    registry.forget()
    assert einsum(MATRIX, a, b)[0, 0] == 2


def test_threads_that_make_the_same_calls_get_their_own_results(framework):
    shapes = [(n, n) for n in range(1, 6)]

    def work():
        for shape in shapes * 20:
            a = framework.ones(shape, dtype=framework.float64)
            out = framework.zeros(shape, dtype=framework.float64)
            for call in WRITTEN.values():
                assert call(einsum, a, a, out) is out
                assert bool((out == shape[0]).all())
            assert bool((einsum(a, [0, 1], 2.0, [], [0, 1]) == 2).all())

    in_threads(work)


# -- arguments that are equal and mean something else -------------------------------------------------------------


@pytest.mark.parametrize("right", [True, False])
def test_a_number_for_optimize_stays_an_error_after_a_bool_that_equals_it(right, operands):
    a, b, _ = operands
    for wrong in (0, 1, 0.0, 1.0, Fraction(1)):
        einsum(MATRIX, a, b, optimize=right)
        with pytest.raises(einsumx.PathError):
            einsum(MATRIX, a, b, optimize=wrong)


def test_a_path_with_wrong_numbers_stays_an_error_after_a_right_one(operands):
    a, b, _ = operands
    for path in (["einsum_path", (0, 1)], ("einsum_path", (0, 1)), ((0, 1),)):
        einsum(MATRIX, a, b, optimize=path)
        with pytest.raises(einsumx.PathError):
            einsum(MATRIX, a, b, optimize=type(path)(step if step == "einsum_path" else (0.0, 1.0) for step in path))
        with pytest.raises(einsumx.PathError):
            einsum(MATRIX, a, b, optimize=marshal.dumps(path, 2))


@pytest.mark.parametrize(
    "step", [b"\x01\x00", np.array([0, 1], "int8"), [0, 1], tuple(np.arange(2)), (np.int8(0), np.int8(1))], ids=str
)
def test_arrays_and_bytes_in_a_path_mean_what_they_mean_without_a_cache(step, operands):
    def outcome(function):
        try:
            return float(function(MATRIX, a, b, optimize=[step])[0, 0])
        except einsumx.PathError as error:
            return str(error)

    a, b, _ = operands
    einsum(MATRIX, a, b, optimize=[(1, 0)])
    assert outcome(einsum) == outcome(einsum) == outcome(einsum.__wrapped__)


def test_texts_and_other_iterables_are_no_sublists_after_lists_of_the_same_labels(operands):
    a, b, _ = operands
    einsum(a, ["i", "j"], b, ["j", "k"], ["i", "k"])
    for labels in ("ij", {"i", "j"}, {"i": 0, "j": 1}):
        with pytest.raises(einsumx.EquationError):
            einsum(a, labels, b, ["j", "k"], ["i", "k"])
    einsum(a, [0, 1], b, [1, 2])
    with pytest.raises((TypeError, ValueError)):
        einsum(a, b, [0, 1], [1, 2])
    for _ in range(2):
        with pytest.raises(einsumx.EquationError):
            einsum(a, [0, [1]])


def test_an_iterator_of_labels_is_read_once(operands):
    a, b, _ = operands
    for _ in range(2):
        assert float(einsum(a, iter([0, 1]), b, iter([1, 2]), iter([0, 2]))[0, 0]) == 2


def test_equal_labels_are_one_label_and_errors_show_each_as_it_is(operands):
    a, b, _ = operands
    einsum(a, [0, 1], b, [1, 2], [0, 2])
    assert float(einsum(a, [0, True], b, [1.0, 2], [0, 2])[0, 0]) == 2
    with pytest.raises(einsumx.EquationError, match="label True appears twice"):
        einsum(a, [0, True], b, [True, 2], [True, True])


def test_a_dtype_that_changes_its_mind_is_asked_at_every_call():
    class Wanted:
        dtype = np.dtype("float32")

    a, wanted = np.ones((2, 2)), Wanted()
    assert einsum(MATRIX, a, a, dtype=wanted, casting="unsafe").dtype == "float32"
    wanted.dtype = np.dtype("complex128")
    assert einsum(MATRIX, a, a, dtype=wanted, casting="unsafe").dtype == "complex128"


@pytest.mark.skipif(not find_spec("jax"), reason="JAX is not installed")
def test_a_dtype_that_a_setting_switches_off_is_refused_after_it_was_served():
    jax = import_module("jax")
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        a = jax.numpy.ones((2, 2), "float32")
        assert einsum(MATRIX, a, a, dtype="float64").dtype == "float64"
    with pytest.raises(einsumx.BackendError, match="64-bit"):
        einsum(MATRIX, a, a, dtype="float64")


def test_the_backend_that_a_caller_asks_for_is_checked_after_another(operands):
    a, b, _ = operands
    einsum(MATRIX, a, b, backend="numpy")
    with pytest.raises(einsumx.BackendError):
        einsum(MATRIX, a, b, backend="array_api")


# -- numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "number"), [("int8", 2), ("int8", 2.1), ("float32", 2.1j), ("float64", True)])
def test_a_number_means_the_same_at_every_call(dtype, number, framework):
    a = framework.ones(2, dtype=getattr(framework, dtype))
    first, *others = (einsum("i,->i", a, number) for _ in range(3))
    for result in others:
        assert result.dtype == first.dtype
        np.testing.assert_array_equal(np.asarray(result), np.asarray(first))
    np.testing.assert_allclose(np.asarray(einsum(",i->i", number, a)), np.asarray(first))


def test_numbers_of_other_values_have_their_own_dtype():
    a = np.ones(2, "int64")
    assert einsum("i,->i", a, 2).dtype == "int64"
    assert einsum("i,->i", a, 2**63).dtype == np.result_type("int64", "uint64")
    assert einsum("i,->i", a, 2**70).tolist() == [2**70] * 2
    assert einsum("i,->i", a, 3).tolist() == [3, 3]


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
def test_a_float_keeps_its_digits_beside_float64_and_follows_torchs_default_dtype_beside_integers():
    torch = import_module("torch")
    assert einsum("i,->i", torch.ones(2, dtype=torch.float64), 2.1).tolist() == [2.1, 2.1]
    a = torch.ones(2, dtype=torch.int64)
    default = torch.get_default_dtype()
    try:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            assert einsum("i,->i", a, 2.5).dtype == dtype
    finally:
        torch.set_default_dtype(default)


# -- out= -------------------------------------------------------------------------------------------------------


def test_a_read_only_out_is_refused_after_a_writeable_one():
    a, out = np.ones((2, 2)), np.zeros((2, 2))
    made = einsumx.expression(MATRIX, (2, 2), (2, 2))
    for call in (lambda: einsum(MATRIX, a, a, out=out), lambda: made(a, a, out=out)):
        out.flags.writeable = True
        assert call() is out
        out[...] = 7
        out.flags.writeable = False
        with pytest.raises(einsumx.BackendError, match="read-only"):
            call()
        assert (out == 7).all()


@pytest.mark.parametrize("place", [0, 1])
def test_an_out_that_is_an_operand_is_written_after_it_was_read(place, framework):
    values = np.random.default_rng(1).normal(size=(2, 2, 2))
    for call in WRITTEN.values():
        for _ in range(3):
            arrays = [framework.asarray(value.copy()) for value in values]
            call(einsum, *arrays, arrays[place])
            np.testing.assert_allclose(np.asarray(arrays[place]), values[0] @ values[1], rtol=1e-12)


@pytest.mark.parametrize(
    ("shape", "dtype", "error"), [((2, 3), "float64", einsumx.SizeError), ((2, 2), "int32", einsumx.BackendError)]
)
def test_an_out_that_does_not_fit_is_the_same_error_before_and_after_one_that_does(shape, dtype, error, framework):
    a, right = framework.ones((2, 2), dtype=framework.float64), framework.zeros((2, 2), dtype=framework.float64)
    wrong = framework.zeros(shape, dtype=getattr(framework, dtype))
    texts = []
    for _ in range(2):
        with pytest.raises(error) as raised:
            einsum(MATRIX, a, a, out=wrong)
        texts.append(str(raised.value))
        einsum(MATRIX, a, a, out=right)
    assert texts[0] == texts[1]
    assert bool((wrong == 0).all())


def test_out_and_an_order_contradict_each_other_also_after_each_alone(operands):
    a, b, out = operands
    for _ in range(2):
        einsum(MATRIX, a, b, out=out)
        einsum(MATRIX, a, b, order="C")
        with pytest.raises(ValueError, match="pass one of them"):
            einsum(MATRIX, a, b, out=out, order="C")


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
def test_an_out_that_torch_cannot_write_is_refused_after_one_that_it_can():
    torch = import_module("torch")
    a, out = torch.ones(2, 2), torch.zeros(2, 2)
    assert einsum(MATRIX, a, a, out=out) is out
    with pytest.raises(einsumx.BackendError, match="differentiate"):
        einsum(MATRIX, a, a, out=torch.zeros(2, 2, requires_grad=True))
    recorded = torch.ones(2, 2, requires_grad=True)
    with pytest.raises(einsumx.BackendError, match="differentiate"):
        einsum(MATRIX, recorded, a, out=out)
    with torch.no_grad():
        assert einsum(MATRIX, recorded, a, out=out) is out
    with pytest.raises(einsumx.BackendError, match="expanded"):
        einsum(MATRIX, a, a, out=torch.zeros(1, 1).expand(2, 2))


def test_a_subclass_for_out_is_written_through_numpys_own_assignment():
    class Loud(np.ndarray):
        def __setitem__(self, place, values):
            raise AssertionError("the result is not for this method")

    a, out = np.ones((2, 2)), np.zeros((2, 2))
    for _ in range(2):
        assert type(einsum(MATRIX, a, a, out=out.view(Loud))) is Loud
        assert (out == 2).all()
        out[...] = 0


# -- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "options"),
    [
        ("ij->i", {}),
        ("ij,kl->iz", {}),
        (MATRIX, {"dtype": "float65"}),
        (MATRIX, {"dtype": "int8"}),
        (MATRIX, {"optimize": "by magic"}),
        (MATRIX, {"order": "Z"}),
        (MATRIX, {"outt": None}),
        (MATRIX, {"casting": 0}),
    ],
)
def test_an_error_is_the_same_at_every_call_and_has_no_trace_of_the_cache(equation, options, operands):
    a, b, _ = operands
    raised = []
    for _ in range(2):
        with pytest.raises((TypeError, ValueError)) as error:
            einsum(equation, a, b, **options)
        raised.append((type(error.value), str(error.value)))
        assert not isinstance(error.value.__context__, AttributeError | IndexError)
        einsum(MATRIX, a, b, casting=None)
    assert raised[0] == raised[1]


def test_masked_arrays_are_refused_although_numpys_arrays_were_served():
    a = np.ones((2, 2))
    einsum(MATRIX, a, a)
    with pytest.raises(einsumx.BackendError, match="masks"):
        einsum(MATRIX, a, np.ma.masked_array(a))


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
def test_a_replacement_leaves_arrays_of_other_frameworks_to_its_own_although_einsumx_served_them():
    tensor = import_module("torch").ones(2, 2)
    einsum(MATRIX, tensor, tensor)
    with einsumx.patched("numpy", "torch"):
        for _ in range(2):
            assert type(np.einsum(MATRIX, tensor, tensor)) is np.ndarray


def test_bools_choose_the_best_path_in_a_replacement_alone(monkeypatch):
    found = []

    def finding(*arguments):
        found.append(find_path(*arguments))
        return found[-1]

    monkeypatch.setattr(front, "path", SimpleNamespace(find_path=finding))
    a = [np.ones(shape) for shape in ((300, 2), (2, 300), (300, 2))]
    assert einsum("ij,jk,kl->il", *a, optimize=False).shape == (300, 2)
    assert found.pop() == ((0, 1), (0, 1))
    with einsumx.patched("numpy"):
        for options in ({"optimize": False}, {"optimize": True}, {}):
            np.einsum("ij,jk,kl->il", *a, **options)
            assert set(found) == {((1, 2), (0, 1))}


@pytest.mark.parametrize(
    ("equation", "limit", "is_cut", "most"), [(MATRIX, 9_000, False, 40), ("ij,jk,kl->il", 11_000, True, 50)]
)
def test_a_repeated_call_under_a_limit_enters_few_functions_before_its_first_block(equation, limit, is_cut, most):
    arrays = [np.ones(shape) for shape in ((30, 40), (40, 30), (30, 30))][: len(equation.split(","))]
    assert bool(einsumx.plan(equation, *arrays, memory_limit=limit).cuts) == is_cut
    einsum(equation, *arrays, memory_limit=limit)
    assert 20 < entered(lambda: einsum(equation, *arrays, memory_limit=limit), until="contract") <= most


def test_arrays_that_ask_for_gradients_are_recorded_after_others_of_the_same_signatures_under_a_limit():
    torch = pytest.importorskip("torch")
    lhs, rhs = torch.arange(12.0).reshape(3, 4), torch.arange(20.0).reshape(4, 5)
    plain = einsum(MATRIX, lhs, rhs, memory_limit="1 MB")
    recorded = einsum(MATRIX, lhs.clone().requires_grad_(True), rhs, memory_limit="1 MB")
    assert (plain.requires_grad, recorded.requires_grad) == (False, True)
    assert not einsum(MATRIX, lhs, rhs, memory_limit="1 MB").requires_grad


def test_a_map_is_read_as_one_after_an_array_of_the_same_signature_under_a_limit(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(readers._Mapped, "close", lambda self: closed.append(self.stored))
    np.save(tmp_path / "lhs.npy", np.ones((30, 40)))
    mapped = np.asarray(np.load(tmp_path / "lhs.npy", mmap_mode="r"))
    operands = np.ones((30, 40)), np.ones((40, 30))
    for lhs in (operands[0], mapped):
        assert (einsum(MATRIX, lhs, operands[1], memory_limit=9_000) == 40).all()
        assert bool(closed) == (lhs is mapped)
