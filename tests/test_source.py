"""A plan as code: what it looks like, what is never in it, and who has none. That it is right is judged elsewhere."""

import ast
import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from source_einsum import contraction

import einsumx
from einsumx.adapters import registry
from einsumx.adapters.registry import BUILTIN
from einsumx.backends.mxnet import ADAPTER as MXNET
from einsumx.cli.main import main
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.ir.ops import Copy
from einsumx.measuring.calibration import place_of

SCORES = ("bind,bjnd->bnij", (64, 100, 8, 128), (64, 50, 8, 128))

HEAD = '''\
def contraction(a, b):
    """bind,bjnd->bnij

    a: (64, 100, 8, 128) float32
    b: (64, 50, 8, 128) float32
    result: (64, 8, 100, 50) float32
    """
'''

SHOWN = {
    "numpy": f"""\
import numpy as np


{HEAD}\
    return np.matmul(a.transpose((0, 2, 1, 3)), b.transpose((0, 2, 3, 1)))
""",
    "torch": f"""\
import torch


{HEAD}\
    return torch.matmul(a.permute((0, 2, 1, 3)), b.permute((0, 2, 3, 1)))
""",
    "mxnet": f"""\
import mxnet as mx


{HEAD}\
    # (512, 100, 128) float32; a copy: its axes in the order of the matmul
    x1 = a.transpose((0, 2, 1, 3)).reshape_view((512, 100, 128))
    # (512, 50, 128) float32; a copy: its axes in the order of the matmul
    x2 = b.transpose((0, 2, 1, 3)).reshape_view((512, 50, 128))
    return mx.npx.batch_dot(x1, x2, transpose_b=True).reshape_view((64, 8, 100, 50))
""",
}


@pytest.fixture(params=[False])
def mxnet_1(request, monkeypatch):
    """Plans for MXNet are those for MXNet 2, or 1 where the parameter says so, whichever is installed."""
    monkeypatch.setitem(vars(MXNET), "_has_mxnet_1", request.param)
    monkeypatch.setattr(type(MXNET), "_has_mxnet_1", request.param)
    place_of.cache_clear()
    yield
    monkeypatch.undo()
    place_of.cache_clear()


@pytest.fixture
def silent(example):
    """The example library, with a backend that sets nothing but what it must."""

    complete = type(example.backend.ADAPTER)

    class Silent(einsumx.Adapter):
        name, module, cpu = complete.name, complete.module, complete.cpu
        dtype_name, copy, sum = complete.dtype_name, complete.copy, complete.sum

    einsumx.register(Silent())
    return example


@pytest.mark.parametrize("backend", SHOWN)
def test_attention_scores_are_one_product_and_the_views_or_copies_before_it_whichever_plan_is_asked(backend, mxnet_1):
    assert einsumx.plan(*SCORES, dtypes="float32", backend=backend).source() == SHOWN[backend]
    assert einsumx.plan(*SCORES, dtypes="float32", backend="jax").source(backend) == SHOWN[backend]


def test_each_call_that_works_has_a_line_and_copies_have_their_reason():
    plan = einsumx.plan("bnij,bjnd,ndm->bim", (4, 8, 10, 5), (4, 5, 8, 12), (8, 12, 50), dtypes="float32")
    assert statements(plan) == [
        "x1 = np.matmul(a, b.transpose((0, 2, 1, 3))).transpose((0, 2, 1, 3))  # (4, 10, 8, 12) float32",
        "x2 = x1.copy().reshape((40, 96))  # (40, 96) float32; a copy: its contracted axes do not merge",
        "return np.matmul(x2, c.reshape((96, 50))).reshape((4, 10, 50))",
    ]


def test_what_the_framework_does_otherwise_is_written_out():
    assert statements(einsumx.plan("bij,bjk->bik", *[(9, 40, 40)] * 2, dtypes="bool")) == [
        'return np.matmul(a.astype("float32"), b.astype("float32")).astype("bool")'
    ]
    assert statements(einsumx.plan("ij->i", (3000, 4), dtypes="int8")) == ['return a.sum(axis=(1,), dtype="int8")']
    assert statements(einsumx.plan("bij,bjk->bik", *[(9, 40, 40)] * 2, dtypes="bfloat16", backend="jax")) == [
        'return jnp.einsum("abc,acd->abd", a, b, preferred_element_type="float32").astype("bfloat16")'
    ]
    assert statements(einsumx.plan("ij->ji", (1, 1))) == ["return a.transpose((1, 0))"]
    assert statements(einsumx.plan("ij->", (1, 1)))[-1] == 'return np.einsum("ab->", a)[()]'


@pytest.mark.parametrize("mxnet_1", [True], indirect=True)
def test_a_product_with_a_batch_axis_inside_is_that_of_mxnets_linear_algebra(mxnet_1):
    plan = einsumx.plan("bind,bjnd->binj", (8, 100, 4, 32), (8, 50, 4, 32), dtypes="float32", backend="mxnet")
    assert statements(plan) == [
        "x1 = mx.nd.linalg.gemm2(a.as_nd_ndarray(), b.as_nd_ndarray(), transpose_b=True, axis=1)",
        "return x1.as_np_ndarray()",
    ]


def test_large_values_are_let_go_when_nothing_reads_them_any_more():
    equation, sizes = "ij,jk,kl,lm->im", [(600, 700), (700, 500), (500, 800), (800, 10)]
    assert statements(einsumx.plan(equation, *sizes, optimize=False)) == [
        "x1 = np.matmul(a, b)  # (600, 500) float64",
        "x2 = np.matmul(x1, c)  # (600, 800) float64",
        "del x1",
        "return np.matmul(x2, d)",
    ]
    small = [tuple(size // 10 for size in shape) for shape in sizes]
    assert not any(line.startswith("del") for line in statements(einsumx.plan(equation, *small, optimize=False)))


@pytest.mark.long
def test_no_line_is_longer_than_100_columns():
    many = einsumx.plan(*(part for k in range(60) for part in ((2, 2), [k, k + 1])), [0, 60])
    wide = einsumx.plan("abcdefghijklmnopqrstuvwx,bcdefghijklmnopqrstuvwx->a", (1,) * 24, (1,) * 23)
    rearranged = einsumx.plan("abcdefghijklmnopqrstuvwxyzABCDE->EDCBAzyxwvutsrqponmlkjihgfedcba", (1,) * 31)
    empty = einsumx.plan("cabb,aaca,acaa,c,->", (30, 1, 0, 0), (1, 1, 30, 1), (1, 30, 1, 1), (30,), ())
    for plan in (many, wide, rearranged, empty):
        for backend in BUILTIN:
            source = plan.source(backend)
            assert max(map(len, source.splitlines())) <= 100
            compile(source, "<source>", "exec")


def test_more_operands_than_letters_are_one_tuple():
    plan = einsumx.plan(*(part for k in range(27) for part in ((2, 2), [k, k + 1])), [0, 27], dtypes="int64")
    arrays = [np.array([[1, k % 3], [0, 1]]) for k in range(27)]
    assert "def contraction(*a):" in plan.source()
    assert "a[0], a[1], a[2], " in plan.source()
    np.testing.assert_array_equal(contraction(plan.source(), "numpy")(*arrays), np.linalg.multi_dot(arrays))


def test_an_operand_that_must_repeat_itself_is_said_to():
    plan = einsumx.plan("ij,jk->ik", np.broadcast_to(np.ones(4), (3, 4)), np.ones((4, 5)))
    assert "a: (3, 4) float64, constant along axis 0" in plan.source()


@pytest.mark.parametrize(
    ("equation", "dtype"),
    [("bind,bjnd->bnij", "bool"), ("iij,jk->", "float16"), ("ij,jk,kl->li", "int8"), ("ij->ji", "complex64")],
)
def test_cupys_code_is_right_on_a_fake_of_cupy(fake_cupy, equation, dtype):
    sizes = dict(zip("bindjkl", (2, 3, 4, 5, 3, 6, 2)))
    terms = equation.partition("->")[0].split(",")
    shapes = [tuple(sizes[label] for label in term) for term in terms]
    arrays = [np.random.default_rng(0).integers(0, 3, shape).astype(dtype) for shape in shapes]
    source = einsumx.plan(equation, *shapes, dtypes=dtype, backend="cupy").source()
    assert source.startswith("import cupy as cp") or "cp." not in source
    result = contraction(source, "cupy")(*map(fake_cupy.asarray, arrays))
    assert judge(result.get(), expect(equation, *arrays))


def test_arrays_of_objects_are_contracted_as_numpy_does():
    matrix = np.array([[10**20 + i + j for j in range(3)] for i in range(3)], object)
    for equation in ("ij,jk->ik", "ij,ij->", "i,j->ij", "ij->j", "ii->", ",->"):
        terms = equation.partition("->")[0].split(",")
        arrays = [matrix[(0,) * (2 - len(term))] if term else np.array(10**20, object) for term in terms]
        found = contraction(einsumx.plan(equation, *arrays).source(), "numpy")(*arrays)
        wanted = einsumx.einsum(equation, *arrays)
        assert type(found) is type(wanted)
        np.testing.assert_array_equal(found, wanted)


# -- what users give never gets into the code ----------------------------------------------------------------------

CALLS = {"numpy": "np", "torch": "torch", "jax": "jnp", "cupy": "cp", "mxnet": "mx", "array_api": "xp"}

HOSTILE = st.one_of(
    st.sampled_from(['"""\nimport os\n"""', "\\", '\\"""', "'''", "a\nimport os", "\r", "\u2028", "\\N{DEL}", "#", ""]),
    st.text(max_size=6),
)


def statements(plan):
    """The lines of a plan's source after its docstring."""
    return [line.strip() for line in plan.source().partition('\n    """\n')[2].splitlines()]


def code(source):
    """What a source does, apart from comments and the docstring: after a look at what it is made of."""
    tree = ast.parse(source)
    *imports, function = tree.body
    assert all(isinstance(node, ast.Import) for node in imports)
    assert isinstance(function, ast.FunctionDef)
    documentation, *body = function.body
    assert isinstance(documentation.value.value, str)
    *others, last = body
    assert all(isinstance(node, ast.Assign | ast.Delete) for node in others)
    assert isinstance(last, ast.Return)
    for statement in body:
        for node in ast.walk(statement):
            assert isinstance(node, ALLOWED), node
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith("_") or node.attr == "__array_namespace__"
    function.body = body
    return ast.dump(tree)


ALLOWED = (
    *(ast.Assign, ast.Delete, ast.Return, ast.Call, ast.keyword, ast.Attribute, ast.Name, ast.expr_context),
    *(ast.Constant, ast.Tuple, ast.Subscript, ast.Slice, ast.UnaryOp, ast.USub, ast.Compare, ast.NotEq),
    *(ast.BinOp, ast.operator),
)


@pytest.mark.long
@settings(max_examples=25)
@given(labels=st.lists(st.one_of(HOSTILE, st.tuples(HOSTILE), st.integers()), min_size=4, max_size=4, unique=True))
def test_labels_of_any_kind_change_nothing_in_the_text(labels):
    def source(i, j, k, m, backend):
        plan = einsumx.plan((2, 3, 3), [i, j, j], (3, 4), [j, k], (4, 5), [k, m], [m, i], dtypes="float32")
        return plan.source(backend)

    for backend in CALLS:
        assert source(*labels, backend) == source(0, 1, 2, 3, backend)


@settings(max_examples=80)
@given(equation=HOSTILE, reason=HOSTILE)
def test_a_plan_with_any_text_in_it_is_the_same_code(equation, reason):
    plan = einsumx.plan("ij,jk->ik", np.ones((20, 60))[:, ::2], np.ones((30, 40)))
    assert any(isinstance(op, Copy) for op in plan.ops)
    ops = tuple(dataclasses.replace(op, reason=reason) if isinstance(op, Copy) else op for op in plan.ops)
    contraction = dataclasses.replace(plan.contraction, equation=plan.contraction.equation._replace(text=equation))
    source = dataclasses.replace(plan, contraction=contraction, ops=ops).source()
    assert code(source) == code(plan.source())
    assert all(letter.isprintable() or letter == "\n" for letter in source)


@pytest.mark.parametrize("backend", CALLS)
def test_code_is_an_import_and_a_function_of_calls(backend):
    for equation, dtype, shapes in (
        ("iij,jk,kl->l", "bool", [(3, 3, 4), (4, 5), (5, 6)]),
        ("bind,bjnd->bnij", "float16", SCORES[1:]),
        ("i,j,->", "float32", [(3,), (4,), ()]),
        ("ij,jk->ik", "int8", [(3, 0), (0, 4)]),
    ):
        plan = einsumx.plan(equation, *shapes, dtypes=dtype, backend=backend)
        source = plan.source()
        code(source)
        used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        known = {"bool", CALLS[backend], *"abcdefgh"}
        assert all(name in known or name.startswith("x") for name in used)


@pytest.mark.parametrize("name", ["", "np", "lambda", "print", "f(x):\n  import os\ndef g", "ｎｐ"])
def test_a_function_has_a_name_that_hides_nothing(name):
    with pytest.raises(ValueError, match="name="):
        einsumx.plan(*SCORES).source(name=name)
    assert "def scores(a, b):" in einsumx.plan(*SCORES).source(name="scores")


# -- who has none --------------------------------------------------------------------------------------------------


def test_a_backend_has_a_source_by_the_defaults_as_far_as_its_primitives_are_the_defaults(silent):
    plan = einsumx.plan("bind,bjnd->bnij", (2, 3, 4, 5), (2, 6, 4, 5), backend="examplelib")
    source = plan.source()
    assert "import examplelib as xp" in source
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=(2, 6, 4, 5))
    found = contraction(source, "examplelib")(silent.asarray(a), silent.asarray(b))
    assert judge(np.array(found.tolist()), expect("bind,bjnd->bnij", a, b))


def test_a_backend_with_a_primitive_that_calls_more_than_its_library_is_told_what_to_do(silent, monkeypatch):
    kind = type(registry.get_backend("examplelib"))
    monkeypatch.setattr(kind, "sum", lambda self, array, axes: np.add.reduce(array, axes))
    plan = einsumx.plan("ij->i", (3, 4), backend="examplelib")
    with pytest.raises(einsumx.BackendError, match=r"examplelib: a primitive .* more than .* public_class\(\)"):
        plan.source()

    class Public(kind):
        def sum(self, array, axes):
            return self.xp.sum(array, axis=axes)

    monkeypatch.setattr(kind, "public_class", lambda self: Public)
    assert plan.source().endswith("    return xp.sum(a, axis=(1,))\n")


def test_a_value_that_a_primitive_uses_twice_has_a_statement(silent, monkeypatch):
    kind = type(registry.get_backend("examplelib"))

    def twice(self, array, axes):
        total = self.xp.sum(array, axis=axes)
        return self.xp.add(total, total) - total

    monkeypatch.setattr(kind, "sum", twice)
    assert statements(einsumx.plan("ij->i", (3, 4), backend="examplelib")) == [
        "x1 = xp.sum(a, axis=(1,))",
        "return xp.add(x1, x1) - x1",
    ]


def test_a_contraction_in_blocks_says_that_it_has_none():
    plan = einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True)
    with pytest.raises(einsumx.EinsumxError, match=r"blocks has no source.*without memory_limit="):
        plan.source()


def test_the_source_is_hybridized_by_mxnet_2():
    mx = pytest.importorskip("mxnet")
    if mx.__version__.startswith("1"):
        pytest.skip("MXNet 1 traces blocks with symbols, which have other functions than arrays")

    for equation in ("bind,bjnd->bnij", "iij,jk->k", "ij,jk,kl->li", "ij,ij->i"):
        sizes = dict(zip("bindjkl", (2, 40, 4, 16, 40, 30, 20)))
        terms = equation.partition("->")[0].split(",")
        hosts = [np.random.default_rng(0).normal(size=[sizes[label] for label in term]) for term in terms]
        arrays = [mx.np.array(host.astype("float32")) for host in hosts]
        function = contraction(einsumx.plan(equation, *arrays).source(), "mxnet")

        class Block(mx.gluon.HybridBlock):
            def forward(self, *operands, function=function):
                return function(*operands)

        block = Block()
        block.hybridize()
        for _ in range(2):  # traced, and run as traced
            assert judge(block(*arrays).asnumpy(), expect(equation, *(array.asnumpy() for array in arrays)))


# -- the command ---------------------------------------------------------------------------------------------------


def test_the_command_prints_the_source(capsys):
    assert main(["explain", "--source", "bind,bjnd->bnij", "64,100,8,128", "64,50,8,128", "--backend", "torch"]) == 0
    assert capsys.readouterr().out == SHOWN["torch"]


def test_the_command_prints_either_code_or_json(capsys):
    assert main(["explain", "--source", "--json", "ij->i", "3,4"]) == 2
    assert "pass one of them" in capsys.readouterr().err
    assert main(["explain", "--source", "ij,jk->ik", "900,800", "800,900", "--memory-limit", "9MB"]) == 2
    assert "has no source" in capsys.readouterr().err
