"""Attention as GluonNLP's cells compute it, on MXNet's own einsum with einsumx put in its place.

The cells are written anew from the equations that GluonNLP uses: multi-head dot attention in its three layouts (N
batch, K heads, T positions), and scores of relative positions. They are plain MXNet code, which knows nothing of
einsumx. Values and gradients, imperative and hybridized, are judged against attention in NumPy, in double precision.
"""

import json
import math
import subprocess
import sys
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest

import einsumx.mxnet

if not find_spec("mxnet"):
    pytest.skip("MXNet is not installed", allow_module_level=True)

mx = einsumx.mxnet.load()
FIRST = mx.__version__.startswith("1.")

EQUATIONS = {
    # layout: scores, values, scores of relative positions
    "NKT": ("bnid,bnjd->bnij", "bnij,bnjc->binc", "bnid,jnd->ijbn"),
    "NTK": ("binc,bjnc->bnij", "bnij,bjnc->binc", "bind,jnd->ijbn"),
    "TNK": ("ibnc,jbnc->bnij", "bnij,jbnc->ibnc", "ibnd,jnd->ijbn"),
}
AXES = {"NKT": (0, 1, 2, 3), "NTK": (0, 2, 1, 3), "TNK": (1, 2, 0, 3)}
"""Where batch, heads, positions and units are in each layout."""

# batch, queries, keys: one block sees them in turn. They are large enough for more than one call of MXNet's own kernel.
SIZES = [(4, 24, 20), (2, 17, 31)]
HEADS, UNITS, VALUES = 3, 16, 12

EPS = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}


# -- what MXNet users write -------------------------------------------------------------------------------------


class Cell(mx.gluon.HybridBlock):
    """A block for both versions: once it is hybridized, MXNet 1 calls it with symbols, MXNet 2 with arrays."""

    if FIRST:

        def hybrid_forward(self, F, *inputs):  # noqa: N803
            return self.compute(F, *inputs)

    else:

        def forward(self, *inputs):
            return self.compute(mx, *inputs)


class Attention(Cell):
    """Masked multi-head dot attention, with scores of edges added where they are given."""

    def __init__(self, layout, units, lowest=-1e18):
        super().__init__()
        self.layout, self.units, self.lowest = layout, units, lowest

    def compute(self, F, query, key, value, mask, edge_scores=None):  # noqa: N803
        scores, values, _ = EQUATIONS[self.layout]
        mask = F.np.expand_dims(mask, axis=1)
        logits = F.np.einsum(scores, query, key)
        if edge_scores is not None:
            logits = logits + edge_scores
        logits = logits / math.sqrt(self.units) + (1 - mask) * self.lowest
        weights = F.npx.dropout(F.npx.softmax(logits, axis=-1) * mask, p=0.1)
        return F.npx.reshape(F.np.einsum(values, weights, value), (-2, -2, -1))


class RelativeScores(Cell):
    """How well queries fit the embeddings of the keys' positions as seen from theirs."""

    def __init__(self, layout):
        super().__init__()
        self.layout = layout

    def compute(self, F, query, embeddings, places):  # noqa: N803
        scores = F.np.einsum(EQUATIONS[self.layout][2], query, embeddings)
        return F.np.transpose(F.npx.gather_nd(scores, places), (2, 3, 0, 1))


# -- what they mean ---------------------------------------------------------------------------------------------


def to_heads(array, layout):
    """Any layout's axes as batch, heads, positions, units."""
    return array.transpose(AXES[layout])


def from_heads(array, layout):
    return array.transpose(np.argsort(AXES[layout]))


def merged(context, layout):
    """Batch, heads, positions, units as cells return them: the units of all heads side by side."""
    context = context.transpose((2, 0, 1, 3) if layout == "TNK" else (0, 2, 1, 3))
    return context.reshape(*context.shape[:2], -1)


def plain_attention(query, key, value, mask, edge_scores, cotangent):
    """Attention and its gradients, all operands with axes batch, heads, positions, units."""
    scale = 1 / math.sqrt(query.shape[-1])
    scores = (np.matmul(query, key.swapaxes(2, 3)) + edge_scores) * scale
    weights = np.where(mask[:, None], np.exp(scores - scores.max(-1, keepdims=True)), 0)
    sums = weights.sum(-1, keepdims=True)
    weights = weights / np.where(sums, sums, 1)
    by_weights = np.matmul(cotangent, value.swapaxes(2, 3))
    by_scores = weights * (by_weights - (by_weights * weights).sum(-1, keepdims=True)) * scale
    return np.matmul(weights, value), {
        "query": np.matmul(by_scores, key),
        "key": np.matmul(by_scores.swapaxes(2, 3), query),
        "value": np.matmul(weights.swapaxes(2, 3), cotangent),
        "edge_scores": by_scores,
    }


def plain_relative(query, embeddings, places, cotangent):
    """Scores of relative positions, and their gradients."""
    near = embeddings[places[1]]  # queries, keys, heads, units
    scores = np.zeros(cotangent.shape)
    by_query, by_embeddings = np.zeros(query.shape), np.zeros(embeddings.shape)
    for i in range(query.shape[2]):
        for j in range(places.shape[2]):
            scores[:, :, i, j] = (query[:, :, i] * near[i, j]).sum(-1)
            by_query[:, :, i] += cotangent[:, :, i, j, None] * near[i, j]
            by_embeddings[places[1, i, j]] += (cotangent[:, :, i, j, None] * query[:, :, i]).sum(0)
    return scores, {"query": by_query, "embeddings": by_embeddings}


def agrees(found, expected, dtype):
    """Whether each element is right but for rounding: some tens of steps, each of the largest element's eps."""
    assert found.shape == expected.shape
    assert found.dtype == dtype
    return np.abs(found - expected).max() <= 64 * EPS[dtype] * max(np.abs(expected).max(), 1)


# -- inputs -----------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def np_semantics():
    with mx.util.np_shape(True), mx.util.np_array(True):
        yield


@pytest.fixture
def replaced():
    """MXNet's einsum is einsumx's, in this thread."""
    with einsumx.patched("mxnet"):
        yield


@pytest.fixture
def random():
    return np.random.default_rng(0)


def rounded(array, dtype):
    """The array in double precision, of values that the dtype has."""
    return array.astype(dtype).astype("float64")


def draw_mask(random, batch, queries, keys):
    """Some keys are hidden from each query, and all of them from the first; a float, as it is multiplied with."""
    mask = random.random((batch, queries, keys)) < 0.7
    mask[:, 0] = False
    return mask


def draw_places(random, queries, keys, distinct):
    """For each query and key, the query's number, and that of the relative position."""
    rows = np.broadcast_to(np.arange(queries)[:, None], (queries, keys))
    return np.stack([rows, random.integers(distinct, size=(queries, keys))])


def run(block, inputs, cotangent, dtype, grad_req="write", times=1):
    """The result, and the gradients by name; arrays of integers have none."""
    arrays = {
        name: mx.np.array(values, dtype="int32" if values.dtype.kind == "i" else dtype)
        for name, values in inputs.items()
    }
    learned = [name for name, values in inputs.items() if values.dtype.kind == "f"]
    for name in learned:
        arrays[name].attach_grad(grad_req=grad_req)
    for _ in range(times):
        with mx.autograd.record(train_mode=False):
            result = block(*arrays.values())
        result.backward(mx.np.array(cotangent, dtype=dtype))
    return result.asnumpy(), {name: arrays[name].grad.asnumpy() for name in learned}


def attention_problem(random, layout, dtype, batch, queries, keys, edges=False):
    """What the cell is given, and what it must return."""
    shapes = {"query": (queries, UNITS), "key": (keys, UNITS), "value": (keys, VALUES)}
    heads = {name: rounded(random.normal(size=(batch, HEADS, *shape)), dtype) for name, shape in shapes.items()}
    mask = draw_mask(random, batch, queries, keys)
    scores = rounded(random.normal(size=(batch, HEADS, queries, keys)) * edges, dtype)
    cotangent = rounded(random.normal(size=(batch, HEADS, queries, VALUES)), dtype)
    context, gradients = plain_attention(*heads.values(), mask, scores, cotangent)
    inputs = {name: from_heads(values, layout) for name, values in heads.items()}
    gradients |= {name: from_heads(gradients[name], layout) for name in heads}
    inputs["mask"] = mask.astype("float64")
    if edges:
        inputs["edge_scores"] = scores
    return inputs, merged(cotangent, layout), merged(context, layout), gradients


def relative_problem(random, layout, dtype, batch, queries, keys):
    query = rounded(random.normal(size=(batch, HEADS, queries, UNITS)), dtype)
    embeddings = rounded(random.normal(size=(queries + keys, HEADS, UNITS)), dtype)
    places = draw_places(random, queries, keys, queries + keys)
    cotangent = rounded(random.normal(size=(batch, HEADS, queries, keys)), dtype)
    scores, gradients = plain_relative(query, embeddings, places, cotangent)
    gradients["query"] = from_heads(gradients["query"], layout)
    inputs = {"query": from_heads(query, layout), "embeddings": embeddings, "places": places}
    return inputs, cotangent, scores, gradients


def check(found, expected, dtype, times=1):
    (result, gradients), (values, wanted) = found, expected
    assert agrees(result, values, dtype)
    for name, gradient in gradients.items():
        if name in wanted:
            assert agrees(gradient, times * wanted[name], dtype), name


# -- that einsumx is in place ------------------------------------------------------------------------------------


def operators(block, folder):
    """The operators of a block's graph, as it is exported: names in the order in which they run."""
    block.export(str(folder / "block"))
    nodes = json.loads((folder / "block-symbol.json").read_text())["nodes"]
    return [node["op"] for node in nodes if node["op"] != "null"]


def einsums(block, folder):
    """How many nodes are MXNet's einsum, and how many are batched products."""
    names = operators(block, folder)
    return names.count("_npi_einsum"), sum("batch_dot" in name for name in names)


@pytest.mark.parametrize("layout", EQUATIONS)
def test_hybridized_cells_hold_batched_products_and_no_einsum(layout, random, replaced, tmp_path):
    attention, relative = Attention(layout, UNITS), RelativeScores(layout)
    for block, problem in ((attention, attention_problem), (relative, relative_problem)):
        block.hybridize()
        inputs, cotangent, *_ = problem(random, layout, "float32", *SIZES[0])
        run(block, inputs, cotangent, "float32")
    assert einsums(attention, tmp_path) == (0, 2)
    assert einsums(relative, tmp_path) == (0, 1)


def test_without_the_replacement_they_hold_einsum(random, tmp_path):
    block = Attention("NTK", UNITS)
    block.hybridize()
    inputs, cotangent, *_ = attention_problem(random, "NTK", "float32", *SIZES[0])
    run(block, inputs, cotangent, "float32")
    assert einsums(block, tmp_path) == (2, 0)


# -- values and gradients ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hybridized", [False, True], ids=["imperative", "hybridized"])
@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("layout", EQUATIONS)
def test_cells_are_those_of_numpy_for_one_batch_after_another(layout, dtype, hybridized, random, replaced):
    attention = Attention(layout, UNITS, lowest=-1e4 if dtype == "float16" else -1e18)
    edged = partial(attention_problem, edges=dtype == "float32")
    for block, problem in ((attention, edged), (RelativeScores(layout), relative_problem)):
        block.hybridize(hybridized)
        for sizes in (*SIZES, SIZES[0]):
            inputs, cotangent, *expected = problem(random, layout, dtype, *sizes)
            check(run(block, inputs, cotangent, dtype), expected, dtype)


@pytest.mark.parametrize("hybridized", [False, True], ids=["imperative", "hybridized"])
@pytest.mark.parametrize("layout", EQUATIONS)
def test_gradients_are_added_where_that_is_asked_for(layout, hybridized, random, replaced):
    for block, problem in ((Attention(layout, UNITS), attention_problem), (RelativeScores(layout), relative_problem)):
        block.hybridize(hybridized)
        inputs, cotangent, *expected = problem(random, layout, "float32", *SIZES[0])
        found = run(block, inputs, cotangent, "float32", grad_req="add", times=3)
        check(found, expected, "float32", times=3)


# -- export and import ------------------------------------------------------------------------------------------

LOADED_ELSEWHERE = """
import sys
import numpy as np

folder = sys.argv[1]
if not {"bool", "alltrue"} <= set(vars(np)):  # then nobody can import MXNet without help
    import einsumx.mxnet
    einsumx.mxnet.load()
    for name in [name for name in sys.modules if name.partition(".")[0] == "einsumx"]:
        del sys.modules[name]


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "einsumx":
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Refuse())
import mxnet as mx

mx.util.set_np()
inputs = np.load(folder + "/inputs.npz")
names = ["data0", "data1", "data2", "data3"]
block = mx.gluon.SymbolBlock.imports(folder + "/block-symbol.json", names)
arrays = [mx.np.array(inputs[name], dtype="float32") for name in names]
for array in arrays:
    array.attach_grad()
with mx.autograd.record(train_mode=False):
    result = block(*arrays)
result.backward(mx.np.array(inputs["cotangent"], dtype="float32"))
assert "einsumx" not in sys.modules
np.savez(folder + "/outputs.npz", result.asnumpy(), *(array.grad.asnumpy() for array in arrays))
"""


def test_an_exported_cell_works_where_einsumx_is_not_installed(random, replaced, tmp_path):
    block = Attention("TNK", UNITS)
    block.hybridize()
    inputs, cotangent, *_ = attention_problem(random, "TNK", "float32", *SIZES[0])
    run(block, inputs, cotangent, "float32")
    assert einsums(block, tmp_path) == (0, 2)

    inputs, cotangent, result, gradients = attention_problem(random, "TNK", "float32", *SIZES[1])  # another batch
    named = {f"data{number}": values for number, values in enumerate(inputs.values())}
    np.savez(tmp_path / "inputs.npz", cotangent=cotangent, **named)
    command = [sys.executable, "-c", LOADED_ELSEWHERE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr

    with np.load(tmp_path / "outputs.npz") as outputs:
        found, *by_place = outputs.values()
    check((found, dict(zip(inputs, by_place))), (result, gradients), "float32")


# -- the judge ---------------------------------------------------------------------------------------------------


def differences(function, array, step=1e-6):
    """The gradient of a function of one array by central differences."""
    found = np.zeros(array.shape)
    for place in np.ndindex(array.shape):
        moved = np.zeros(array.shape)
        moved[place] = step
        found[place] = (function(array + moved) - function(array - moved)) / (2 * step)
    return found


@pytest.mark.parametrize("cell", ["attention", "relative scores"])
def test_the_expected_gradients_are_differences(cell, random):
    mask, places = draw_mask(random, 2, 3, 5), draw_places(random, 3, 5, 6)
    if cell == "attention":
        shapes = {"query": (2, 2, 3, 4), "key": (2, 2, 5, 4), "value": (2, 2, 5, 2), "edge_scores": (2, 2, 3, 5)}
        plain, cotangent = partial(plain_attention, mask=mask), random.normal(size=(2, 2, 3, 2))
    else:
        shapes = {"query": (2, 2, 3, 4), "embeddings": (6, 2, 4)}
        plain, cotangent = partial(plain_relative, places=places), random.normal(size=(2, 2, 3, 5))
    operands = {name: random.normal(size=shape) for name, shape in shapes.items()}
    _, gradients = plain(**operands, cotangent=cotangent)
    for by, values in operands.items():

        def weighted(moved, by=by):
            return (plain(**operands | {by: moved}, cotangent=cotangent)[0] * cotangent).sum()

        np.testing.assert_allclose(gradients[by], differences(weighted, values), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_wrong_element_does_not_agree(dtype):
    expected = np.linspace(-1, 1, 50)
    found = expected.astype(dtype)
    assert agrees(found, expected, dtype)
    found[7] += 100 * EPS[dtype]
    assert not agrees(found, expected, dtype)
