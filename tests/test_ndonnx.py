"""ndonnx: contractions recorded as ONNX graphs that serve every size, run by onnxruntime."""

from collections import Counter

import numpy as np
import pytest

ndx = pytest.importorskip("ndonnx")
onnxruntime = pytest.importorskip("onnxruntime")

import einsumx  # noqa: E402

SIZES = [(4, 5, 3), (1, 1, 1), (0, 2, 2), (2, 0, 3), (2, 3, 0), (0, 0, 0)]
"""Sizes of N, M and K."""

PROBLEMS = {
    "nij,jk->nik": [("N", 3, 4), (4, 5)],
    "bind,bjnd->bnij": [("N", "M", 2, 3), ("N", "K", 2, 3)],
    "ij,jk->ik": [("N", "M"), ("M", "K")],
    "aij,jib->ab": [(2, "N", "M"), ("M", "N", 3)],
    "ij,jk,kl->li": [("N", "M"), ("M", 3), (3, "K")],
    "iij->ji": [("N", "N", 3)],
    "ii->": [("N", "N")],
    "ij->": [("N", "M")],
    "i,ij->ij": [("N",), ("N", 3)],
    "ij,jl->il": [(0, "M"), ("M", "K")],
}


def recorded(equation, shapes, dtype="float32"):
    """The model of a contraction, and a function that runs it on arrays of NumPy."""
    arguments = {
        f"x{place}": ndx.argument(shape=shape, dtype=getattr(ndx, dtype)) for place, shape in enumerate(shapes)
    }
    model = ndx.build(arguments, {"result": einsumx.einsum(equation, *arguments.values())})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return model, lambda *hosts: session.run(None, dict(zip(arguments, hosts)))[0]


def operations(model):
    """How often each operator stands in a model, without constants and the naming of the result."""
    return Counter(node.op_type for node in model.graph.node if node.op_type not in ("Constant", "Identity"))


@pytest.mark.parametrize(
    ("equation", "dtype"),
    [*((equation, "float32") for equation in PROBLEMS), ("ij,jk->ik", "bool"), ("iij->ji", "int8"), ("ij->", "int8")],
)
def test_one_graph_serves_every_size(equation, dtype):
    random = np.random.default_rng(5)
    _, run = recorded(equation, PROBLEMS[equation], dtype)
    for sizes in SIZES:
        known = dict(zip("NMK", sizes))
        hosts = [
            random.integers(0, 3, [known.get(size, size) for size in shape]).astype(dtype)
            for shape in PROBLEMS[equation]
        ]
        result, expected = run(*hosts), np.einsum(equation, *hosts)
        assert result.dtype == dtype
        assert result.shape == expected.shape
        assert np.array_equal(result, expected), sizes


def test_a_batch_of_unknown_size_costs_no_node_beside_the_product_and_its_reshapes():
    model, _ = recorded("nij,jk->nik", [("N", 3, 4), (4, 5)])
    assert operations(model) == {"MatMul": 1, "Reshape": 2}
    model, _ = recorded("bij,bjk->bik", [(7, 3, 4), (7, 4, 5)])
    assert operations(model) == {"MatMul": 1}


@pytest.mark.filterwarnings("ignore")
def test_sizes_that_differ_when_the_graph_runs_are_an_error_of_it():
    _, run = recorded("aij,jib->ab", [(2, "A", "B"), ("C", "D", 3)])
    assert np.array_equal(run(np.ones((2, 3, 4), "float32"), np.ones((4, 3, 3), "float32")), np.full((2, 3), 12))
    with pytest.raises(Exception, match="Reshape"):
        run(np.ones((2, 3, 4), "float32"), np.ones((3, 4, 3), "float32"))


def test_values_that_are_known_are_computed_at_once():
    array = ndx.asarray(np.arange(6.0).reshape(2, 3))
    assert np.array_equal(einsumx.einsum("ij,kj->ik", array, array).unwrap_numpy(), [[5, 14], [14, 50]])
    assert einsumx.plan("ij,kj->ik", array, array).backend == "ndonnx"


def test_a_memory_limit_is_refused_as_a_graph_keeps_every_block():
    array = ndx.asarray(np.ones((2, 2)))
    with pytest.raises(einsumx.BackendError, match=r"memory_limit= would not bound memory; .* x\.unwrap_numpy\(\)"):
        einsumx.einsum("ij,jk->ik", array, array, memory_limit="1 GB")
