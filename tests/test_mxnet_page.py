"""docs/mxnet.md: its code runs, its table of differences holds, and its example works."""

import re
from pathlib import Path

import numpy as np
import pytest
from mxnet_under_test import FIRST, mx
from processes import ended

import einsumx

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLE = DOCS / "examples" / "mxnet_attention.py"
TEXT = DOCS.joinpath("mxnet.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
CHANGES = TEXT.partition("## What changes")[2].partition("\n## ")[0]


def run(code, folder):
    """The output of a new process that runs the code."""
    done = ended("-c", code, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- the code ---------------------------------------------------------------------------------------------------

# MXNet's own einsum takes no labels in lists.
IS_REPLACED = """
def is_replaced():
    import einsumx.mxnet
    mx = einsumx.mxnet.load()
    try:
        return mx.np.einsum(mx.np.ones((2, 3)), [0, 1], [1, 0]).shape == (3, 2)
    except (AssertionError, mx.base.MXNetError):
        return False
"""
CHECKS = [
    # text in a block, and an expression that is true after it; the last replaces einsum for good
    ("einsumx.mxnet.load()", "mx.__version__"),
    ("with einsumx", "scores.shape == (4, 8, 100, 50) and not is_replaced()"),
    ('\neinsumx.patch("mxnet")\n', "is_replaced()"),
]
LOAD = "import einsumx.mxnet\neinsumx.mxnet.load()\n"  # without it, `import mxnet` needs an old NumPy


def test_each_block_of_code_runs_by_itself(tmp_path):
    blocks = [next(block for block in BLOCKS if text in block and "class" not in block) for text, _ in CHECKS]
    assert len({*blocks}) == len(BLOCKS) - 1
    code = IS_REPLACED + LOAD
    for block, (_, check) in zip(blocks, CHECKS):
        code += f"names = {{'is_replaced': is_replaced}}\nexec({block!r}, names)\nassert eval({check!r}, names)\n"
    assert run(code, tmp_path) == ""


def test_a_block_keeps_what_it_recorded_until_it_is_hybridized_again_and_is_exported_as_the_page_says(tmp_path):
    scores = next(block for block in BLOCKS if "class Scores" in block)
    native = scores.replace('einsumx.patch("mxnet")\n', "")
    code = f"""
{LOAD}
{native}
operands = mx.np.ones((4, 10, 8, 6)), mx.np.ones((4, 5, 8, 6))
with einsumx.patched("mxnet"):
    block(*operands)
    block.export("as_recorded")
    block.hybridize()
    block(*operands)
    block.export("anew")
{scores}
"""
    assert run(code, tmp_path) == "(2, 8, 30, 70)\n" * 2
    recorded = {
        name: tmp_path.joinpath(f"{name}-symbol.json").read_text() for name in ("as_recorded", "anew", "scores")
    }
    assert [name for name, graph in recorded.items() if "_npi_einsum" in graph] == ["as_recorded"]


# -- what changes -----------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def np_semantics():
    with mx.util.np_shape(True), mx.util.np_array(True):
        yield


def array(*shape, dtype="float32"):
    return mx.np.array(np.arange(1, 1 + np.prod(shape)).reshape(shape), dtype=dtype)


def gradients(equation, *operands, grad_req="write", times=1, cotangent=None, **options):
    """The operands' gradients; their memory held other values before."""
    for operand in operands:
        operand.attach_grad(grad_req=grad_req)
        if grad_req == "write":
            operand.grad[:] = 7
    for _ in range(times):
        with mx.autograd.record():
            result = mx.np.einsum(equation, *operands, **options)
        result.backward(None if cotangent is None else mx.np.array(cotangent, dtype="float32"))
    return [operand.grad.asnumpy().tolist() for operand in operands]


def in_place():
    square = array(2, 2)
    return mx.np.einsum("ij,jk->ik", square, square, out=square).tolist()


def many_labels():
    return mx.np.einsum("abcdef,ghijkl->adgj", array(1, 2, 1, 2, 1, 1), array(1, 2, 1, 1, 1, 1)).shape


def wrong_size():
    """Whether the error is an MXNetError and names label, size and operand."""
    with pytest.raises(mx.base.MXNetError) as caught:
        mx.np.einsum("ij,jk->ik", array(2, 3), array(2, 3)).wait_to_read()
    return "label 'j' has size 3 in operand 0" in str(caught.value)


def unknown_keyword():
    with pytest.raises(TypeError, match="optimise") as caught:
        mx.np.einsum("i->", array(2), optimise=True)
    return caught.type


# For the first cell of each row of the table: calls, and their results with einsumx in place. MXNet's own einsum
# returns something else or raises an error.
ROWS = {
    "labels in lists: `einsum(a, [0, 1], b, [1, 2], [0, 2])`": [
        (lambda: mx.np.einsum(array(2, 3), [0, 1], array(3, 4), [1, 2], [0, 2]).shape, (2, 4)),
    ],
    "different labels; operands": [
        (many_labels, (1, 2, 1, 1)),
        (lambda: mx.np.einsum(",".join(["i"] * 20) + "->i", *[array(2)] * 20).tolist(), [1, 2.0**20]),
    ],
    "labels": [
        (lambda: mx.np.einsum("ψж->жψ", array(1, 2)).tolist(), [[1], [2]]),
        (lambda: mx.np.einsum("ij,\tj->i", array(1, 2), array(2)).tolist(), [5]),
    ],
    "`...j->j`, an ellipsis that the output leaves out": [
        (lambda: mx.np.einsum("...j->j", array(2, 2)).tolist(), [4, 6]),
        (lambda: mx.np.einsum("...j->j", array(2)).tolist(), [1, 2]),
    ],
    "operands of two dtypes": [
        (lambda: mx.np.einsum("i,i->", array(2), array(2, dtype="float64")).dtype, np.float64),
    ],
    "lists and numbers as operands": [
        (lambda: mx.np.einsum("i,->i", [1.0, 2.0], 3).tolist(), [3, 6]),
    ],
    "`optimize=`": [
        (lambda: mx.np.einsum("ij,jk->ik", array(1, 2), array(2, 1), optimize="greedy").tolist(), [[5]]),
    ],
    "`dtype=`, `casting=`, `order=`, unknown keywords": [
        (lambda: mx.np.einsum("i,i->", array(2), array(2), dtype="float64").dtype, np.float64),
        (unknown_keyword, TypeError),
    ],
    "`out=` that is also an operand": [(in_place, [[7, 10], [15, 22]])],
    "wrong equations, sizes, dtypes": [(wrong_size, True)],
    "gradient of a label repeated in an operand: `ii->i`": [
        (lambda: gradients("ii->i", array(2, 2)), [[[1, 0], [0, 1]]]),
    ],
    "gradient by an axis of size 1 that broadcasts": [
        (
            lambda: gradients("ij,ij->i", array(1, 2), array(2, 2), cotangent=[1, 10]),
            [[[31, 42]], [[1, 2], [10, 20]]],
        ),
    ],
    '`grad_req="add"` with `optimize=True` (1.9.1)': [
        (
            lambda: gradients("ij,jk->ik", array(1, 2), array(2, 1), optimize=True, grad_req="add", times=3),
            [[[3, 6]], [[3], [6]]],
        ),
    ],
    "operands without elements, with `optimize=True`": [
        (lambda: gradients("ij,jk->ik", array(1, 2), array(2, 0), optimize=True), [[[0, 0]], [[], []]]),
    ],
}
OF_MXNET_1 = '`grad_req="add"` with `optimize=True` (1.9.1)'
ENDS_MXNET_2 = "lists and numbers as operands"


def test_each_row_of_the_table_is_tested():
    rows = [line.split("|")[1].strip() for line in CHANGES.splitlines() if line.startswith("|")]
    assert rows[2:] == list(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_what_the_table_says_is_so_once_einsum_is_replaced(row):
    with einsumx.patched("mxnet"):
        for does, gives in ROWS[row]:
            assert does() == gives


@pytest.mark.parametrize("row", [row for row in ROWS if FIRST or row not in (OF_MXNET_1, ENDS_MXNET_2)])
def test_what_the_table_says_is_not_so_before(row):
    for does, gives in ROWS[row]:
        try:
            result = does()
        except (mx.base.MXNetError, AssertionError, TypeError, ValueError, pytest.fail.Exception):
            continue
        assert result != gives


# -- the example ------------------------------------------------------------------------------------------------


def test_the_example_finds_the_same_results_before_and_after_and_its_layer_becomes_batched_products(tmp_path):
    code = f"""
import runpy, sys
sys.argv = [{str(EXAMPLE)!r}]
example = runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
import einsumx.mxnet
problem = example["Problem"](batch=2, length=24, heads=4, units=64)
with einsumx.patched("mxnet"):
    layer = problem.layer(hybridized=True)
    example["forward"](layer, problem)
layer.export("layer")
"""
    printed = run(code, tmp_path)
    differences = re.findall(r"^(?:imperative|hybridized) .* ms .* ms .*x +(\S+)$", printed, re.MULTILINE)
    assert len(differences) == 6
    # Forward, and forward and backward: einsumx sums in another order, so some elements round differently.
    assert all(float(differences[row]) > 0 for row in (0, 1, 3, 4))
    graph = tmp_path.joinpath("layer-symbol.json").read_text()
    assert "einsum" not in graph
    assert len(re.findall('"op": "[^"]*batch_dot"', graph)) == 2
