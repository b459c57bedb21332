"""Ops say of shapes, strides, dtypes, memory and arithmetic what NumPy does with arrays of them."""

import pickle
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from einsumx.errors import EinsumxError
from einsumx.ir import ops


def lies(*shape, order=None, dtype="float32"):
    """An array of that shape, whose axes lie in memory in ``order``."""
    order = tuple(range(len(shape))) if order is None else order
    return np.ones([shape[axis] for axis in order], dtype).transpose(np.argsort(order))


def matrices(lhs, rhs):
    return np.matmul(lhs, rhs)


CASES = {
    "transpose": (ops.Transpose(1, 0, (2, 0, 1)), [lies(2, 3, 4)], lambda a: a.transpose(2, 0, 1), 0),
    "transpose of turned axes": (ops.Transpose(1, 0, (1, 0)), [lies(2, 3, order=(1, 0))], lambda a: a.T, 0),
    "reshape": (ops.Reshape(1, 0, (6, 4)), [lies(2, 3, 4)], lambda a: a.reshape(6, 4), 0),
    "reshape of turned axes": (
        ops.Reshape(1, 0, (6, 2, 2)),
        [lies(6, 4, order=(1, 0))],
        lambda a: a.reshape(6, 2, 2),
        0,
    ),
    "expand": (ops.Expand(1, 0, (5, 3)), [lies(1, 3)], lambda a: np.broadcast_to(a, (5, 3)), 0),
    "first": (ops.First(1, 0, (0, 2)), [lies(2, 3, 4)], lambda a: a[0, :, 0], 0),
    "diagonal": (ops.Diagonal(1, 0, 2, 0), [lies(3, 2, 3)], lambda a: a.diagonal(0, 2, 0), 0),
    "copy": (ops.Copy(1, 0, "why"), [lies(2, 3, order=(1, 0))], lambda a: a.copy("C"), 0),
    "cast": (ops.Cast(1, 0, "int8"), [lies(2, 3, 4, order=(1, 2, 0))], lambda a: a.astype("int8"), 0),
    "conjugate": (ops.Conjugate(1, 0), [lies(2, 3)], np.conj, 0),
    "sum": (ops.Sum(1, 0, (0, 2)), [lies(2, 3, 4)], lambda a: a.sum((0, 2)), 24),
    "scale": (ops.Scale(1, 0, 7), [lies(2, 3)], lambda a: np.multiply(a, a.dtype.type(7)), 6),
    "multiply": (ops.Multiply(2, 0, 1), [lies(4, 1, 3), lies(2, 1)], np.multiply, 24),
    "matmul": (ops.Matmul(2, 0, 1), [lies(7, 2, 3), lies(7, 3, 4)], matrices, 168),
    "matmul of a vector": (ops.Matmul(2, 0, 1), [lies(3), lies(3, 4)], matrices, 12),
    "matmul with a vector": (ops.Matmul(2, 0, 1), [lies(2, 3), lies(3)], matrices, 6),
    "matmul of vectors": (ops.Matmul(2, 0, 1), [lies(3), lies(3)], lambda a, b: np.asarray(a @ b), 3),
    "matmul of one for all": (ops.Matmul(2, 0, 1), [lies(1, 2, 3), lies(7, 3, 4)], matrices, 168),
    "matmul, both swapped": (
        ops.Matmul(2, 0, 1, True, True),
        [lies(7, 3, 2), lies(7, 4, 3)],
        lambda a, b: np.einsum("bki,bjk->bij", a, b, order="C"),
        168,
    ),
    "native": (
        ops.Native(3, (0, 1, 2), "ii,ij,j->i"),
        [lies(2, 2), lies(2, 3), lies(3)],
        lambda *arrays: np.einsum("ii,ij,j->i", *arrays),
        12,
    ),
    "native of one": (ops.Native(1, (0,), "ij->j"), [lies(2, 3)], lambda a: np.einsum("ij->j", a), 6),
    "zeros": (ops.Zeros(1, (0,), (2, 3), "int64"), [lies(0, 3)], lambda a: np.zeros((2, 3), "int64"), 0),
}


def in_elements(array):
    return tuple(stride // array.itemsize for stride in array.strides)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_an_op_says_what_numpy_gives_and_counts_its_multiply_adds(case):
    op, arrays, execute, multiply_adds = case
    result = execute(*arrays)
    shapes = [array.shape for array in arrays]
    strides = op.result_strides(shapes[0], None if arrays[0].flags.c_contiguous else in_elements(arrays[0]))
    assert op.sources == tuple(range(len(arrays)))
    assert op.result_shape(shapes) == result.shape
    assert op.result_dtype(arrays[0].dtype.name) == result.dtype.name
    assert (op.effect == "view") == any(np.may_share_memory(result, array) for array in arrays)
    assert in_elements(result) == (in_elements(np.empty(result.shape)) if strides is None else strides)
    assert op.multiply_adds(shapes, result.shape) == multiply_adds


def test_every_op_has_a_case():
    classes = {each for each in vars(ops).values() if is_dataclass(each)}
    assert {type(case[0]) for case in CASES.values()} == classes
    assert all(issubclass(each, ops.Op) for each in classes)


@pytest.mark.parametrize("op", [case[0] for case in CASES.values()], ids=list(CASES))
def test_an_op_is_data_and_is_renamed_where_it_reads_and_writes(op):
    copied = pickle.loads(pickle.dumps(op))
    assert copied == op
    assert hash(copied) == hash(op)
    given = [f"{f.name}={getattr(op, f.name)!r}" for f in fields(op) if getattr(op, f.name) != f.default]
    assert repr(op) == f"{type(op).__name__}({', '.join(given)})"
    assert eval(repr(op), vars(ops)) == op
    assert not hasattr(op, "__dict__")
    names = {slot: slot + 10 for slot in (*op.sources, op.out)}
    other = op.renamed(names)
    assert (other.out, other.sources) == (op.out + 10, tuple(slot + 10 for slot in op.sources))
    assert other.renamed({name: slot for slot, name in names.items()}) == op
    assert op.renamed({99: 1}) is op


@pytest.mark.parametrize("op", [ops.Transpose(1, 0, (1, 0), "why"), ops.Diagonal(1, 0, 0, 1, "why")], ids=repr)
def test_what_has_a_reason_copies_and_lies_in_c_order(op):
    assert op.effect == "copy"
    assert op.result_strides((3, 3), None) is None


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (ops.Transpose(1, 0, (0, 0)), [(2, 3)]),
        (ops.Transpose(1, 0, (0,)), [(2, 3)]),
        (ops.Reshape(1, 0, (5,)), [(2, 3)]),
        (ops.Expand(1, 0, (4, 3)), [(2, 3)]),
        (ops.Expand(1, 0, (4, 2, 3)), [(2, 3)]),
        (ops.First(1, 0, (2,)), [(2, 3)]),
        (ops.First(1, 0, (0,)), [(0, 3)]),
        (ops.Diagonal(1, 0, 0, 0), [(3, 3)]),
        (ops.Diagonal(1, 0, 0, 2), [(3, 3)]),
        (ops.Diagonal(1, 0, 0, 1), [(2, 3)]),
        (ops.Sum(1, 0, (0, 0)), [(2, 3)]),
        (ops.Sum(1, 0, (2,)), [(2, 3)]),
        (ops.Scale(1, 0, 0), [(2, 3)]),
        (ops.Multiply(2, 0, 1), [(2, 3), (4, 3)]),
        (ops.Matmul(2, 0, 1), [(2, 3), (4, 3)]),
        (ops.Matmul(2, 0, 1), [(5, 2, 3), (6, 3, 4)]),
        (ops.Matmul(2, 0, 1), [(3,), (5, 3, 4)]),
        (ops.Matmul(2, 0, 1), [(), (3,)]),
        (ops.Matmul(2, 0, 1, transpose_rhs=True), [(3,), (4, 3)]),
        (ops.Native(2, (0, 1), "ij,jk->ik"), [(2, 3), (4, 5)]),
        (ops.Native(2, (0, 1), "ij,jk->ik"), [(2, 3), (3,)]),
        (ops.Native(2, (0, 1), "ij->i"), [(2, 3), (3,)]),
        (ops.Native(1, (0,), "ij->ii"), [(2, 3)]),
        (ops.Native(1, (0,), "ij->k"), [(2, 3)]),
        (ops.Native(1, (0,), "i.->i"), [(2, 3)]),
        (ops.Zeros(1, (0,), (2,), "float32"), [(2, 3)]),
    ],
    ids=str,
)
def test_an_op_does_not_take_shapes_that_do_not_fit_it(op, shapes):
    with pytest.raises(EinsumxError, match=r"\(.*\) does not fit shapes \("):
        op.result_shape(shapes)


def test_views_of_views_are_joined_so_that_they_are_one_call_and_nothing_else():
    turn, turned = ops.Transpose(1, 0, (2, 0, 1)), ops.Transpose(2, 1, (2, 0, 1))
    array = np.empty((2, 3, 4))
    joined = turned.joined(turn)
    assert joined == ops.Transpose(2, 0, (1, 2, 0))
    assert array.transpose(joined.axes).shape == array.transpose(turn.axes).transpose(turned.axes).shape
    assert ops.Reshape(2, 1, (6,)).joined(ops.Reshape(1, 0, (3, 2))) == ops.Reshape(2, 0, (6,))
    for op, before in [
        (turned, None),
        (turned, ops.Reshape(1, 0, (2, 3, 4))),
        (turned, ops.Transpose(1, 0, (2, 0, 1), "why")),
        (ops.Transpose(2, 1, (2, 0, 1), "why"), turn),
        (ops.Reshape(2, 1, (24,)), turn),
        (ops.Copy(2, 1, "why"), ops.Copy(1, 0, "why")),
    ]:
        assert op.joined(before) is None
