"""Contractions inside MXNet's traces: symbols of MXNet 1, and the deferred computation of MXNet 2."""

import json

import numpy as np
import pytest
from mxnet_under_test import FIRST, mx

import einsumx
from einsumx.backends.mxnet import graphs
from einsumx.conformance.kit.oracle import expect, expect_gradient, judge


@pytest.fixture(autouse=True)
def np_semantics():
    with mx.util.np_shape(True), mx.util.np_array(True):
        yield


@pytest.fixture
def known_inputs(monkeypatch):
    """What MXNet 1 does not say of symbols is known, as where mx.np.einsum is replaced; MXNet 2 traces arrays."""
    if FIRST:
        block = mx.gluon.HybridBlock
        monkeypatch.setattr(block, "_get_graph", graphs.with_known_inputs(block._get_graph))


class Contraction(mx.gluon.HybridBlock):
    """A hybridized block that is one einsum."""

    def __init__(self, equation, **options):
        super().__init__()
        self.equation, self.options = equation, options
        self.hybridize()

    def contract(self, *operands):
        return einsumx.einsum(self.equation, *operands, **self.options)

    if FIRST:

        def hybrid_forward(self, _, *operands):
            return self.contract(*operands)

    else:

        def forward(self, *operands):
            return self.contract(*operands)


def is_right(block, values):
    """Assert that the block gives the sum and its gradients, added to what is there."""
    values = list(values)
    operands = [mx.np.array(value, dtype=value.dtype) for value in values]
    dtype = np.result_type(*values).name
    if "float" not in dtype:
        assert judge(block(*operands).asnumpy(), expect(block.equation, *values, dtype=dtype))
        return
    for operand in operands:
        operand.attach_grad("add")
        operand.grad[()] = 1
    with mx.autograd.record():
        result = block(*operands)
    cotangent = np.random.default_rng(1).integers(-2, 3, result.shape).astype(dtype)
    result.backward(mx.np.array(cotangent, dtype=dtype))
    verdict = judge(result.asnumpy(), expect(block.equation, *values, dtype=dtype))
    assert verdict, verdict.wrong
    for place, operand in enumerate(operands):
        found = operand.grad.asnumpy() - 1
        assert judge(found.astype(dtype), expect_gradient(place, cotangent, block.equation, *values)), place


def drawn(shapes, dtype="float64", seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(-2, 3, shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", ["float64", "bool"])
@pytest.mark.parametrize("equation", ["abcdefgh->hgfedcba", "abcdefgh->bdfh"])
def test_more_axes_than_mxnet_takes_are_traced(equation, dtype, known_inputs):
    block = Contraction(equation)
    for shape in ((2, 3, 2, 2, 3, 2, 2, 2), (3, 2, 1, 2, 2, 3, 2, 3)):
        is_right(block, drawn([shape], dtype))


# By label, the sizes of four calls of one block: what is traced first has sizes of its own, of 1 and of 0 among them.
SIZES = ({}, {"b": 1, "i": 1}, {"b": 5, "i": 4, "j": 1}, {"b": 2, "i": 0})
EQUATIONS = (
    "bind,bjnd->bnij",
    "bnij,jbnd->ibnd",
    "bind,jnd->ijbn",
    "ij,jk,kl->li",
    "iij,j->i",
    "ij->j",
    "ijk->kji",
    "i,i->",
    "i,->i",
    "ijkl,klmn->mnij",
    "ai,bi,ci->abc",
    "ijxy,jkyz,kizx->xyz",
)


@pytest.mark.parametrize("start", range(len(SIZES)))
@pytest.mark.parametrize("equation", EQUATIONS)
def test_what_was_traced_is_right_for_other_sizes(equation, start):
    block = Contraction(equation)
    for number, sizes in enumerate((*SIZES[start:], *SIZES[:start])):
        default = dict(zip("abcdijklmnxyz", (3, 2, 4, 3, 5, 2, 3, 4, 2, 3, 2, 3, 4)))
        shapes = [[{**default, **sizes}[label] for label in term] for term in equation.partition("->")[0].split(",")]
        if 0 in sizes.values() and equation in (("ij->j", "i,->i") if FIRST else ("i,->i",)):
            continue  # MXNet leaves the gradient of what multiplies nothing unwritten; MXNet 1 fails to sum nothing
        is_right(block, drawn(shapes, seed=number))


@pytest.mark.parametrize(
    ("equation", "shapes", "dtype"),
    [
        ("bij,bjk->bik", lambda batch: [(batch, 5, 2), (batch, 2, 4)], "float16"),
        ("bij,bjk->bik", lambda batch: [(batch, 5, 2), (batch, 2, 4)], "int8"),
        ("bij,bjk->bik", lambda batch: [(batch, 5, 2), (batch, 2, 4)], "bool"),
        ("...ij,...jk->...ik", lambda batch: [(batch, 5, 2), (batch, 2, 4)], "float32"),
        ("...i,...i->...", lambda batch: [(batch, 5, 4), (1, 5, 4)], "float64"),
        ("...i,...i->...", lambda batch: [(batch, 5, 4), (1, 5, 4)], "int32"),
        ("ij,ij->i", lambda batch: [(1, 4), (batch, 4)], "float16"),
        ("...->...", lambda batch: [(batch, 3)], "float32"),
        ("i...->...", lambda batch: [(batch, 3)], "float16"),
        ("i...->...", lambda batch: [(batch, 3)], "bool"),
        ("iij->j", lambda batch: [(batch, batch, 3)], "bool"),
        ("iij->j", lambda batch: [(batch, batch, 3)], "float64"),
    ],
)
def test_what_is_known_of_the_inputs_serves_every_dtype_ellipses_and_sizes_of_1(equation, shapes, dtype, known_inputs):
    block = Contraction(equation)
    for batch in (2, 5, 3):
        is_right(block, drawn(shapes(batch), dtype))


def test_parameters_and_what_is_computed_inside_are_known_too(known_inputs):
    class Layer(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            parameter = self.params.get if FIRST else mx.gluon.Parameter
            self.weight = parameter("weight", shape=(3, 4), dtype="float16", init=mx.init.One())

        def compute(self, xp, inputs, weight):
            return einsumx.einsum("...i,...io->...o", xp.transpose(inputs, (1, 0, 2)), weight)

        if FIRST:

            def hybrid_forward(self, F, inputs, weight):  # noqa: N803  MXNet's name
                return self.compute(F.np, inputs, weight)

        else:

            def forward(self, inputs):
                return self.compute(mx.np, inputs, self.weight.data())

    layer = Layer()
    layer.initialize()
    layer.hybridize()
    for batch in (2, 5):
        (values,) = drawn([(batch, 6, 3)], "float16")
        result = layer(mx.np.array(values, dtype="float16")).asnumpy()
        assert judge(result, expect("bpi,io->pbo", values, np.ones((3, 4), "float16")))


def test_what_is_known_is_of_the_thread_that_traces_and_forgotten_after_it(known_inputs):
    if not FIRST:
        pytest.skip("MXNet 2 shows arrays to what it traces")
    Contraction("bij,bjk->bik")(*map(mx.np.array, drawn([(2, 5, 2), (2, 2, 4)])))
    assert graphs.known(mx.sym.var("data0").as_np_ndarray()) == graphs.Known(None, "")


# -- symbols by themselves ----------------------------------------------------------------------------------------


def symbol(name, **about):
    return mx.sym.var(name, **about).as_np_ndarray()


def operators(graph):
    return [node["op"] for node in json.loads(graph.tojson())["nodes"] if node["op"] != "null"]


def test_symbols_become_batch_dot_and_what_rearranges_for_it():
    graph = einsumx.einsum("bind,bjnd->bnij", symbol("queries"), symbol("keys"))
    assert graph.list_arguments() == ["queries", "keys"]
    names = operators(graph)
    assert sum("batch_dot" in name for name in names) == 1
    assert all(any(kind in name for kind in ("batch_dot", "reshape", "SwapAxis", "transpose")) for name in names)


def test_symbols_take_sublists_and_many_labels():
    graph = einsumx.einsum(symbol("a"), list(range(6)), symbol("b"), list(range(6, 12)), [*range(0, 12, 2)])
    _, shapes, _ = graph.infer_shape(a=(1, 2, 3, 4, 5, 6), b=(2, 3, 4, 5, 6, 7))
    assert shapes == [(1, 3, 5, 2, 4, 6)]


def test_a_declared_shape_is_used_and_a_label_of_a_list_is_no_axis_of_an_ellipsis():
    label = (..., 1)
    graph = einsumx.einsum(symbol("a", shape=(2, 3, 4)), [label, ...], symbol("b"), [label, 5], [..., 5])
    assert graph.infer_shape(b=(2, 7))[1] == [(3, 4, 7)]


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda a: einsumx.einsum("...j->...", a), einsumx.BackendError, "declare the shape"),
        (lambda a: einsumx.einsum("ij->ik", a), einsumx.EquationError, "'k'"),
        (lambda a: einsumx.einsum("ij,jk->ik", a), einsumx.EquationError, "1 operand"),
        (lambda a: einsumx.einsum("ijk->i", symbol("b", shape=(2, 3))), einsumx.SizeError, "2 axes"),
        (lambda a: einsumx.einsum("ij,jk->ik", a, mx.np.ones((2, 2))), einsumx.BackendError, "two frameworks"),
        (lambda a: einsumx.einsum("ij->ji", a, out=a), einsumx.BackendError, "without out="),
        (lambda a: einsumx.einsum("ij->ji", a, order="F"), einsumx.BackendError, "order"),
        (lambda a: einsumx.einsum("ij->ji", mx.sym.var("legacy")), einsumx.BackendError, "as_np_ndarray"),
        (einsumx.expression("ij->ji", (2, 3)), einsumx.BackendError, "without out="),
    ],
)
def test_what_symbols_cannot_do_is_an_error_at_the_call(call, error, said):
    with pytest.raises(error, match=said):
        call(symbol("a"))


def test_symbols_say_which_dtype_they_are_computed_in():
    graph = einsumx.einsum("ij,jk->ik", symbol("a", dtype="float16"), symbol("b", dtype="float16"), dtype="float64")
    assert graph.infer_type()[1] == [np.float64]


# -- what a trace of MXNet 2 is not for ---------------------------------------------------------------------------


@pytest.mark.skipif(FIRST, reason="MXNet 1 traces with symbols, which an expression refuses")
def test_an_expression_with_constants_is_refused_in_a_trace():
    layer = einsumx.expression("bi,ij->bj", (2, 3), mx.np.ones((3, 4)))

    class Block(mx.gluon.HybridBlock):
        def forward(self, inputs):
            return layer(inputs)

    block = Block()
    assert block(mx.np.ones((2, 3))).shape == (2, 4)
    block.hybridize()
    with pytest.raises(einsumx.BackendError, match="constants"):
        block(mx.np.ones((2, 3)))


# -- where mx.np.einsum is replaced -------------------------------------------------------------------------------


@pytest.mark.skipif(not FIRST, reason="MXNet 2 traces blocks with arrays")
def test_a_rank_that_nothing_tells_falls_back_to_mxnets_own_and_says_so_once(recwarn):
    equation = "...ab,...bc->...ac"
    with einsumx.patched("mxnet"):
        for _ in range(2):
            graph = mx.sym.np.einsum(equation, symbol("a"), symbol("b"))
            assert operators(graph) == ["_npi_einsum"]
    (said,) = [str(warning.message) for warning in recwarn]
    assert equation in said
    assert "labels instead of the ellipsis" in said


@pytest.mark.skipif(not FIRST, reason="MXNet 2 traces blocks with arrays")
@pytest.mark.parametrize("options", [{"dtype": "float64"}, {"no_such": 1}])
def test_the_fallback_ignores_no_keyword(options):
    with einsumx.patched("mxnet"), pytest.raises((einsumx.BackendError, TypeError)):
        mx.sym.np.einsum("...ab,...bc->...ac", symbol("a"), symbol("b"), **options)


@pytest.mark.skipif(not FIRST, reason="MXNet 2 traces blocks with arrays")
def test_in_a_block_the_replacement_knows_ranks_sizes_of_1_and_dtypes():
    class Block(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, first, second):  # noqa: N803  MXNet's name
            return F.np.einsum("...i,...i->...", first, second)

    block = Block()
    block.hybridize()
    block.equation = "...i,...i->..."
    before = mx.gluon.HybridBlock._get_graph
    with einsumx.patched("mxnet"):
        for batch in (2, 5):
            is_right(block, drawn([(batch, 1, 4), (1, 3, 4)], "float16"))
    assert mx.gluon.HybridBlock._get_graph is before
