"""Names of axes in a text after the operands: ``einsum(x, w, "batch d, d out -> batch out")``."""

from importlib import import_module

import numpy as np
import pytest

import einsumx
from einsumx import EquationError, SizeError, SublistError, einsum, einsum_path, expression, plan, tune
from einsumx.ir.parse import parse_names, parse_sublists

X, W = np.arange(24.0).reshape(2, 3, 4), np.arange(20.0).reshape(4, 5)
NAMES = "batch seq d, d out -> batch seq out"
PRODUCT = X @ W


@pytest.mark.parametrize(
    ("names", "letters", "operands"),
    [
        ("batch seq d,d out->out seq batch", "abc,cd->dba", [X, W]),
        ("\n  batch seq d,\n  d out\n  -> batch seq out", "abc,cd->abd", [X, W]),
        ("out d, ... d -> ... out", "dc,...c->...d", [W.T, X]),
        ("... d, d out -> out", "abc,cd->d", [X, W]),
        ("_ d, out_1 d -> out_1 _", "ab,cb->ca", [W.T, W.T]),
        ("größe λ, λ -> größe", "ab,b->a", [W.T, W[:, 0]]),
        ("b, B -> b B", "a,b->ab", [W[0], W[1]]),
        ("i, -> i", "a,->a", [[1, 2], 3]),
        ("->", "->", [np.array(2.0)]),
    ],
)
def test_names_mean_what_letters_mean(names, letters, operands):
    np.testing.assert_allclose(einsum(*operands, names), np.einsum(letters, *operands))


def test_every_keyword_goes_with_names():
    out = np.empty((2, 3, 5), "float32")
    assert einsum(X, W, np.str_(NAMES), out=out, dtype="float32", casting="same_kind", optimize=False) is out
    np.testing.assert_array_equal(out, PRODUCT)
    assert einsum(X, W, NAMES, order="F").flags.f_contiguous
    np.testing.assert_array_equal(einsum(X, W, NAMES, memory_limit="1 MB"), PRODUCT)


def test_every_function_that_takes_an_equation_takes_names():
    for operands in ((X, W), ((2, 3, 4), (4, 5))):
        named, lettered = plan(*operands, NAMES), plan("bsd,do->bso", *operands)
        assert (named.equation, named.path, named.ops) == (lettered.equation, lettered.path, lettered.ops)
        assert str(named).startswith(f"{NAMES}  ")
    assert einsum_path(X, W, NAMES)[0] == einsum_path("bsd,do->bso", X, W)[0]
    np.testing.assert_array_equal(expression((2, 3, 4), W, NAMES)(X), PRODUCT)
    assert tune(X, W, NAMES, rounds=1).plan.equation == "bsd,do->bso"


def test_names_share_the_plans_of_lists_with_the_same_labels():
    lists = X, ["batch", "seq", "d"], W, ["d", "out"], ["batch", "seq", "out"]
    einsumx.cache_clear()
    assert einsumx.plan(X, W, NAMES) == einsumx.plan(*lists)
    assert einsumx.cache_info()["plans"].misses == 1


def test_a_replaced_function_takes_names():
    with einsumx.patched("numpy"):
        np.testing.assert_array_equal(np.einsum(X, W, NAMES), PRODUCT)
        masked = np.ma.array(W, mask=W > 3)
        with pytest.raises((TypeError, ValueError)):  # NumPy's own, which knows no names
            np.einsum(X, masked, W, "b s d, d o, d p -> b s o p")


def test_a_replaced_function_of_jax_converts_numpy_arrays_wherever_they_stand():
    jnp = pytest.importorskip("jax.numpy")
    x, w = np.ones((2, 3), "float32"), np.ones((3, 4), "float32")
    with einsumx.patched("jax"):
        for operands in ((jnp.asarray(x), w), (x, jnp.asarray(w))):
            result = jnp.einsum(*operands, "row k, k column -> row column")
            np.testing.assert_array_equal(np.asarray(result), x @ w)


def test_dask_arrays_go_with_names():
    da = pytest.importorskip("dask.array")
    result = einsum(da.from_array(X, chunks=2), W, NAMES)
    assert isinstance(result, da.Array)
    np.testing.assert_array_equal(result.compute(), PRODUCT)


def test_traced_calls_go_with_names():
    torch = pytest.importorskip("torch")
    compiled = torch.compile(lambda x, w: einsum(x, w, NAMES), fullgraph=True, backend="eager")
    x, w = torch.tensor(X, requires_grad=True), torch.tensor(W)
    compiled(x, w).sum().backward()
    np.testing.assert_array_equal(x.grad, np.broadcast_to(W.sum(1), X.shape))


# -- mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says", "marked"),
    [
        ("batch seq d, d out -> batch seq oot", "name 'oot' of the output appears in no operand", "oot"),
        ("batch seq d, d out -> batch seq batch", "name 'batch' appears twice in the output", "batch"),
        ("... seq ... d, d out -> seq out", "a second ellipsis in one operand", "..."),
        ("batch (seq d), d out -> batch out", r"'\(seq' is not a name: .*no brackets or numbers", "(seq"),
        ("batch 3 d, d out -> batch out", "'3' is not a name", "3"),
        ("batch seq d, d out -> batch, out", "the output has a comma", ","),
        ("batch seq d, d out -> batch -> out", "a second '->'", "-"),
        ("batch-size d, d out -> out", "'-' that is not part of '->'", "-"),
    ],
)
def test_a_mistake_is_told_by_what_is_wrong_with_a_caret_under_it(text, says, marked):
    for _ in range(2):  # a refusal is not taken for an answer
        with pytest.raises(EquationError, match=says) as raised:
            einsum(X, W, text)
    shown, carets = str(raised.value).splitlines()[-2:]
    start, end = carets.index("^"), len(carets)
    assert shown[start:end] == marked


def test_the_number_of_commas_has_to_fit_the_operands():
    with pytest.raises(EquationError, match="the names are those of 2 operands, but 1 operand was given"):
        einsum(X, NAMES)
    with pytest.raises(EquationError, match="the names are those of 1 operand, but 2 operands were given"):
        einsum(X, W, "batch -> batch")


def test_an_error_of_sizes_names_the_users_labels_and_shows_the_text():
    with pytest.raises(SizeError) as raised:
        einsum(X, np.ones((3, 5)), NAMES)
    assert str(raised.value) == (
        "label 'd' has size 4 in operand 0 (axis 2) but size 3 in operand 1 (axis 0)\n"
        "  batch seq d, d out -> batch seq out"
    )
    with pytest.raises(SizeError, match=r"operand 0 has 3 axes.* has 2 labels\n  batch d, d out -> batch out"):
        einsum(X, W, "batch d, d out -> batch out")


def test_an_equation_of_letters_at_the_end_is_told_to_come_first():
    says = r"blanks separate names, and an equation of letters comes first: einsum\('ij,jk->ik', ...\)"
    with pytest.raises(EquationError, match=says):
        einsum(W.T, W, "ij,jk->ik")
    with pytest.raises(SizeError, match=r"its subscript has 1 label; 'ij' is one label\n  ij, ij -> ij"):
        einsum(W, W, "ij,ij->ij")


def test_a_text_without_an_arrow_is_no_form_and_the_error_says_what_a_form_is():
    with pytest.raises(SublistError, match="or last with names and '->', einsum"):
        einsum(X, W, "batch seq d, d out")


# -- how names are printed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (NAMES, "bsd,do->bso"),
        ("dim d, d -> dim", "id,d->i"),
        ("b batch B, B -> batch", "baB,B->a"),
        ("x xx xxx, xxx -> x xx", "xab,b->xa"),
        ("_ __ _1, _1 -> _ __", "abc,c->ab"),
        ("... d, d -> ...", "...d,d->..."),
    ],
)
def test_plans_are_printed_with_a_letter_of_each_name_where_it_is_free(names, text):
    assert parse_sublists(*parse_names(names, 2)).text == text


def test_many_names_and_other_labels_are_printed_with_distinct_letters():
    names = [f"bond{number}" for number in range(200)]
    equation = parse_sublists([names], names[::-1])
    assert len(set(equation.text) - set(",->")) == 200
    assert parse_sublists([["a row", "b"], ["b"]], ["a row"]).text == "ab,b->a"


# -- einops and the command ---------------------------------------------------------------------------------------


def test_einops_patterns_mean_the_same_and_the_same_are_refused():
    einops = pytest.importorskip("einops", reason="einops is not installed: pip install einops")
    a, b = np.arange(4.0).reshape(2, 2), np.arange(2.0)
    for pattern in ("batch h, h -> batch", "_ h, ... -> ... _", "i i, k ->"):
        np.testing.assert_allclose(einsum(a, b, pattern), einops.einsum(a, b, pattern))
    for pattern in ("a b, b c", "a (b c), b -> a", "a 1, b -> a", "a b -> c", "a ... ..., b -> a"):
        with pytest.raises((einops.EinopsError, NotImplementedError, ValueError)):
            einops.einsum(a, b, pattern)
        with pytest.raises(EquationError):
            einsum(a, b, pattern)


def test_the_command_takes_names_after_the_shapes(capsys):
    main = import_module("einsumx.cli.main").main
    assert main(["explain", "2,3,4", "4,5", NAMES, "--dtype", "float64"]) == 0
    assert capsys.readouterr().out.startswith("bsd,do->bso  (2,3,4) (4,5)  float64 on numpy\n")
    assert main(["explain", "4,5", "row column -> column row"]) == 0
    assert "rc->cr" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["4,5", "row column -> colum"], "name 'colum' of the output appears in no operand"),
        (["4,5", "5,x", "row column, column -> row"], "'5,x' is not a shape"),
    ],
)
def test_the_command_tells_mistakes_in_names(arguments, says, capsys):
    main = import_module("einsumx.cli.main").main
    with pytest.raises(SystemExit):
        main(["explain", *arguments])
    assert says in capsys.readouterr().err
