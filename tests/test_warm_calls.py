"""Repeated calls: few Python functions lie between a call and its arrays, and every check of the first call holds.

These tests count functions and compare outcomes; they measure no time.
"""

import marshal
import sys
from fractions import Fraction
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
from threads import in_threads

import einsumx
from einsumx import einsum
from einsumx.runtime import calls as repeated

MATRIX = "ij,jk->ik"

FORMS = {
    "text": (lambda e, a, b, out: e(MATRIX, a, b), 0),
    "implicit output": (lambda e, a, b, out: e("ij,jk", a, b), 0),
    "lists": (lambda e, a, b, out: e(a, [0, 1], b, [1, 2], [0, 2]), 1),
    "lists, implicit output": (lambda e, a, b, out: e(a, [0, 1], b, [1, 2]), 1),
    "tuples": (lambda e, a, b, out: e(a, (0, 1), b, (1, 2), (0, 2)), 1),
    "names": (lambda e, a, b, out: e(a, b, "row k, k column -> row column"), 2),
    "out=None": (lambda e, a, b, out: e(MATRIX, a, b, out=None), 0),
    "dtype=None, optimize=False": (lambda e, a, b, out: e(MATRIX, a, b, dtype=None, optimize=False), 1),
    "dtype by name": (lambda e, a, b, out: e(MATRIX, a, b, dtype="float64"), 1),
    "dtype by Python's type": (lambda e, a, b, out: e(MATRIX, a, b, dtype=float), 1),
    "dtype of an array": (lambda e, a, b, out: e(MATRIX, a, b, dtype=a.dtype), 1),
    "order=K": (lambda e, a, b, out: e(MATRIX, a, b, order="K"), 1),
    "casting": (lambda e, a, b, out: e(MATRIX, a, b, casting="same_kind"), 1),
    "optimize=True": (lambda e, a, b, out: e(MATRIX, a, b, optimize=True), 1),
    "optimize=None": (lambda e, a, b, out: e(MATRIX, a, b, optimize=None), 1),
    "optimize by name": (lambda e, a, b, out: e(MATRIX, a, b, optimize="greedy"), 1),
    "optimize as a path": (lambda e, a, b, out: e(MATRIX, a, b, optimize=["einsum_path", (0, 1)]), 1),
    "limits by default": (lambda e, a, b, out: e(MATRIX, a, b, memory_limit=None, device=None, progress=False), 1),
    "several": (lambda e, a, b, out: e(MATRIX, a, b, dtype=None, order="K", casting="safe", optimize=False), 1),
}
"""Forms of one product, and the Python functions that each enters beside those of a product in text form."""

WRITTEN = {
    "out": lambda e, a, b, out: e(MATRIX, a, b, out=out),
    "lists, out and optimize=False": lambda e, a, b, out: e(a, [0, 1], b, [1, 2], [0, 2], out=out, optimize=False),
    "out and casting": lambda e, a, b, out: e(MATRIX, a, b, out=out, casting="unsafe", optimize="greedy"),
}

FRAMEWORKS = [name for name in ("numpy", "torch") if find_spec(name)]


@pytest.fixture(autouse=True)
def fresh():
    einsumx.cache_clear()
    yield
    einsumx.cache_clear()


@pytest.fixture(params=FRAMEWORKS)
def framework(request):
    return import_module(request.param)


@pytest.fixture
def operands(framework):
    return [framework.ones((2, 2), dtype=framework.float64) for _ in range(3)]


def entered(call):
    """The names of the Python functions that a repeated call enters, without its own."""
    call()
    call()
    names = []

    def note(frame, event, _):
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names[1:]


# -- how many functions lie in between --------------------------------------------------------------------------


def test_a_product_enters_einsum_the_signatures_and_its_kernel_alone(framework, operands):
    a, b, _ = operands
    names = entered(lambda: einsum(MATRIX, a, b))
    rest = {"numpy": ["<lambda>"], "torch": ["signature"] * 2}
    if int(np.__version__.partition(".")[0]) < 2:
        rest["numpy"] = names[1:]  # which disables warnings with numpy.errstate, a class in Python
    assert names == ["call", *rest[framework.__name__]]


@pytest.mark.parametrize("form", FORMS)
def test_other_forms_enter_hardly_more(form, operands):
    call, extra = FORMS[form]
    text = entered(lambda: einsum(MATRIX, *operands[:2]))
    assert len(entered(partial(call, einsum, *operands))) == len(text) + extra


@pytest.mark.parametrize("form", FORMS)
def test_a_replaced_einsum_enters_as_few_as_einsumx(form, framework, operands):
    call, _ = FORMS[form]
    expected = len(entered(partial(call, einsum, *operands)))
    layers = {"numpy": 0, "torch": 4}[framework.__name__]  # torch's has to look for tracers first
    replacement = einsumx.patch(framework.__name__)
    try:
        assert len(entered(partial(call, framework.einsum, *operands))) <= expected + layers
    finally:
        replacement.undo()


@pytest.mark.parametrize("form", WRITTEN)
def test_a_call_with_out_checks_and_writes_it_and_does_nothing_else(form, framework, operands):
    names = entered(partial(WRITTEN[form], einsum, *operands))
    text = entered(lambda: einsum(MATRIX, *operands[:2]))
    added = ["_ready_for", "run_into", "check_out", "write_new"] + ["_split_sublists"] * ("lists" in form)
    if framework.__name__ == "torch":
        added += ["signature"] + ["needs_gradient"] * 2 + ["<genexpr>"] * 3
    assert sorted(names) == sorted([*text, *added])


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_order_is_one_function_more(order, framework, operands):
    a, b, _ = operands
    text = entered(lambda: einsum(MATRIX, a, b))
    assert sorted(entered(lambda: einsum(MATRIX, a, b, order=order))) == sorted(
        [*text, "_ready_for", "<lambda>", "arrange"]
    )


def test_a_trace_enters_einsum_its_sum_and_its_element_alone():
    a = np.ones((2, 2))
    assert entered(lambda: einsum("ii->", a)) == ["call", "run", "element"]


def test_a_number_is_made_an_array_without_the_checks_of_other_operands():
    a = np.ones(2)
    names = [name for name in entered(lambda: einsum("i,->i", a, 2.0)) if name != "<listcomp>"]  # until Python 3.11
    product = [name for name in entered(lambda: einsum("i,i->i", a, a)) if name != "call"]
    assert names == ["call", "numbers_as_arrays", "scalar", "_ready_for", *product]


@pytest.mark.parametrize("form", ["operands", "out"])
def test_an_expression_enters_as_few_as_einsum(form, operands):
    a, b, out = operands
    options = {"out": out} if form == "out" else {}
    made = einsumx.expression(MATRIX, (2, 2), (2, 2))
    names = entered(lambda: made(a, b, **options))
    assert len(names) == len(entered(lambda: einsum(MATRIX, a, b, **options))) - (form == "out")


def test_the_count_notices_one_function_more(operands, monkeypatch):
    a, b, _ = operands
    before = entered(lambda: einsum(MATRIX, a, b))
    ready = repeated.ready

    def one_more(*key, **options):
        return ready(*key, **options)

    monkeypatch.setattr(repeated, "ready", one_more)
    assert len(entered(lambda: einsum(MATRIX, a, b))) == len(before) + 1


# -- what is cached, and counted --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [*FORMS, *WRITTEN])
def test_each_form_is_found_in_the_cache_of_calls(form, operands):
    call = WRITTEN[form] if form in WRITTEN else FORMS[form][0]
    call(einsum, *operands)
    before = einsumx.cache_info()
    for _ in range(3):
        call(einsum, *operands)
    after = einsumx.cache_info()
    assert after["calls"].hits == before["calls"].hits + 3
    assert {name: after[name] for name in after if name != "calls"} == {
        name: before[name] for name in before if name != "calls"
    }


def test_results_of_all_forms_are_those_of_the_first_call(framework, operands):
    rng = np.random.default_rng(0)
    a, b, out = (framework.asarray(rng.normal(size=(2, 2))) for _ in range(3))
    expected = np.asarray(a) @ np.asarray(b)
    for form in [*FORMS, *WRITTEN]:
        call = WRITTEN[form] if form in WRITTEN else FORMS[form][0]
        for _ in range(3):
            out[...] = 0
            result = call(einsum, a, b, out)
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-12)
            assert (result is out) == (form in WRITTEN)


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


@pytest.mark.parametrize("wrong", [0, 1, 0.0, 1.0, Fraction(1)])
@pytest.mark.parametrize("right", [True, False])
def test_a_number_for_optimize_stays_an_error_after_a_bool(right, wrong, operands):
    a, b, _ = operands
    for _ in range(2):
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


def test_paths_of_other_integers_and_of_lists_are_served(operands):
    a, b, _ = operands
    for step in ((0, 1), [0, 1], tuple(np.arange(2)), (False, True)):
        assert float(einsum(MATRIX, a, b, optimize=[step])[0, 0]) == 2


@pytest.mark.parametrize(
    "step", [np.array([1], "int16"), b"\x01\x00", np.array([0, 1], "int8"), (np.int8(0), np.int8(1))]
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


def test_a_limit_of_elements_that_no_path_keeps_is_an_error_at_every_call(framework):
    a = [framework.ones(shape) for shape in ((2, 30), (30, 30), (30, 2))]
    for _ in range(2):
        assert einsum("ij,jk,kl->il", *a, optimize=("greedy", 1000)).shape == (2, 2)
        with pytest.raises(einsumx.MemoryLimitError):
            einsum("ij,jk,kl->il", *a, optimize=("greedy", 1))


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [("progress", False, 0), ("devices", (), ""), ("device", "", b""), ("order", None, 0), ("casting", None, 0)],
)
def test_a_keyword_of_a_wrong_type_stays_an_error(name, right, wrong, operands):
    a, b, _ = operands
    with pytest.raises((TypeError, ValueError)) as first:
        einsum(MATRIX, a, b, **{name: wrong})
    einsum(MATRIX, a, b, **{name: right})
    with pytest.raises((TypeError, ValueError)) as second:
        einsum(MATRIX, a, b, **{name: wrong})
    assert (type(first.value), str(first.value)) == (type(second.value), str(second.value))


def test_texts_and_other_iterables_are_no_sublists_after_lists_of_the_same_labels(operands):
    a, b, _ = operands
    einsum(a, ["i", "j"], b, ["j", "k"], ["i", "k"])
    for labels in ("ij", {"i", "j"}, {"i": 0, "j": 1}):
        with pytest.raises(einsumx.EquationError):
            einsum(a, labels, b, ["j", "k"], ["i", "k"])


def test_an_iterator_of_labels_is_read_once(operands):
    a, b, _ = operands
    for _ in range(2):
        assert float(einsum(a, iter([0, 1]), b, iter([1, 2]), iter([0, 2]))[0, 0]) == 2


def test_equal_labels_are_one_label_and_errors_show_each_as_it_is(operands):
    a, b, _ = operands
    einsum(a, [0, 1], b, [1, 2], [0, 2])
    assert float(einsum(a, [0, True], b, [1.0, 2], [0, 2])[0, 0]) == 2
    with pytest.raises(einsumx.EquationError, match="label True stands twice"):
        einsum(a, [0, True], b, [True, 2], [True, True])


def test_arrays_in_the_place_of_sublists_are_an_error_after_a_right_call(operands):
    a, b, _ = operands
    einsum(a, [0, 1], b, [1, 2])
    with pytest.raises((TypeError, ValueError)):
        einsum(a, b, [0, 1], [1, 2])


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


def test_the_backend_that_a_caller_asks_for_is_checked_after_another(operands, framework):
    a, b, _ = operands
    einsum(MATRIX, a, b, backend=framework.__name__)
    other = "torch" if framework.__name__ == "numpy" else "numpy"
    if find_spec(other):
        with pytest.raises(einsumx.BackendError):
            einsum(MATRIX, a, b, backend=other)


# -- numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "float32", "float64", "complex128"])
@pytest.mark.parametrize("number", [2, 2.1, 2.1j, True])
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
def test_a_float_keeps_its_digits_beside_a_tensor_of_float64():
    torch = import_module("torch")
    assert einsum("i,->i", torch.ones(2, dtype=torch.float64), 2.1).tolist() == [2.1, 2.1]


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
def test_a_number_beside_integers_follows_torchs_default_dtype():
    torch = import_module("torch")
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


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("place", [0, 1])
def test_an_out_that_is_an_operand_is_written_after_it_was_read(form, place, framework):
    rng = np.random.default_rng(1)
    values = rng.normal(size=(2, 2, 2))
    for _ in range(3):
        arrays = [framework.asarray(value.copy()) for value in values]
        WRITTEN[form](einsum, *arrays, arrays[place])
        np.testing.assert_allclose(np.asarray(arrays[place]), values[0] @ values[1], rtol=1e-12)


@pytest.mark.parametrize("equation", ["ij->ji", "ij->ij"])
def test_a_view_is_written_to_memory_that_it_overlaps(equation, framework):
    for _ in range(3):
        memory = framework.arange(12, dtype=framework.float64).reshape(4, 3)
        before = np.asarray(memory).copy()
        einsum(equation, memory[:3], out=memory[1:])
        np.testing.assert_array_equal(np.asarray(memory)[1:], before[:3].T if equation == "ij->ji" else before[:3])


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
        with pytest.raises(ValueError, match="leave one of them away"):
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
        (MATRIX, {"casting": "loose"}),
        (MATRIX, {"optimize": "by magic"}),
        (MATRIX, {"order": "Z"}),
        (MATRIX, {"outt": None}),
        (MATRIX, {"executor": object()}),
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
        einsum(MATRIX, a, b)
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
    with einsumx.patch("numpy"):
        for _ in range(2):
            assert type(np.einsum(MATRIX, tensor, tensor)) is np.ndarray


def test_bools_choose_the_best_path_in_a_replacement_alone():
    a = [np.ones(shape) for shape in ((2, 300), (300, 2), (2, 300))]
    assert einsum("ij,jk,kl->il", *a, optimize=False).shape == (2, 300)
    with einsumx.patch("numpy"):
        plans = einsumx.cache_info()["plans"].misses
        np.einsum("ij,jk,kl->il", *a, optimize=False)
        assert einsumx.cache_info()["plans"].misses == plans + 1
        np.einsum("ij,jk,kl->il", *a, optimize=True)
        np.einsum("ij,jk,kl->il", *a)
        assert einsumx.cache_info()["plans"].misses == plans + 1
