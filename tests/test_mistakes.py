"""Typical mistakes of a first day: each error is of the right class, and says what is wrong, where, and what to do."""

import re
import traceback
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import einsumx
from einsumx import (
    BackendError,
    EinsumxError,
    EquationError,
    MemoryLimit,
    PathError,
    SizeError,
    SublistError,
    einsum,
    expression,
    plan,
)

a, b = np.ones((2, 3)), np.ones((3, 4))


class Sparse:
    """As SciPy's sparse matrices are: neither an array, nor made one by NumPy."""

    shape, dtype, nnz = (3, 4), np.dtype("float64"), 1

    def __getitem__(self, index):
        return self

    def toarray(self):
        return np.eye(3, 4)


class ForeignDtype:
    """A dtype of a framework that is not there, as torch.float32 prints."""

    def __repr__(self):
        return "torch.float32"


MISTAKES = [
    # the equation
    ('einsum("ij jk->ik", a, b)', EquationError, "1 subscript but 2 operands were given; commas separate subscripts"),
    ('einsum("ij;jk->ik", a, b)', EquationError, "';' is not a label: .*commas separate subscripts"),
    ('einsum("ij*jk->ik", a, b)', EquationError, r"'\*' is not a label: .*commas separate subscripts"),
    ('einsum("ij,jk=ik", a, b)', EquationError, "'=' is not a label: .*'->' stands before the output"),
    ('einsum("ij,jk→ik", a, b)', SizeError, "operand 1 .*has 5 labels; '→' is a label.*write '->'"),
    ('einsum("ij×jk->ik", a, b)', EquationError, "1 subscript but 2 .*'×' is a label.*write ','"),
    ('einsum("ij，jk->ik", a, b)', EquationError, "1 subscript but 2 .*'，' is a label.*write ','"),
    ('einsum("…j,jk->…k", np.ones((5, 2, 3)), b)', SizeError, r"3 axes.*2 labels; '…' is a label.*write '\.\.\.'"),
    ('einsum("i1,1k->ik", a, b)', EquationError, "'1' is not a label: .*numbers and names are labels in lists"),
    ('einsum("i_j->ij", a)', EquationError, "'_' is not a label: .*numbers and names are labels in lists"),
    ('einsum("[ij],[jk]->[ik]", a, b)', EquationError, r"'\[' is not a label: .*without brackets"),
    (
        'einsum("batch dim, dim out -> batch out", a, b)',
        EquationError,
        r"each letter is a label: .*after .*, 'batch dim,",
    ),
    ('einsum("batch dim, dim out", a, b)', SizeError, "8 labels; .*each letter is a label: .*after.*'batch dim,"),
    ('einsum("ij,jk->ik", a)', EquationError, "2 subscripts but 1 operand was given; each array is an operand"),
    ('einsum("ij,jk->ik")', EquationError, "2 subscripts but 0 operands were given"),
    ('einsum(b"ij,jk->ik", a, b)', EquationError, "the equation must be a text .*not the bytes b'ij,jk->ik'"),
    ("einsum(None, a, b)", EquationError, "the equation must be a text .*not None"),
    ("einsum()", EquationError, "needs an equation and operands"),
    ("einsum(a)", EquationError, "needs an equation and operands"),
    # the forms
    ("einsum(a, b)", SublistError, r"the sublist of operand 0 .*not an array of shape \(3, 4\); an equation as text"),
    ('einsum(a, b, "ij,jk")', SublistError, "the sublist of operand 0 .*an equation as text comes first"),
    ('einsum(a, "ij", b, "jk")', SublistError, "the sublist of operand 0 must be a list or tuple of labels, not 'ij'"),
    ("einsum(a, [0, 1], b)", SublistError, r"the sublist of the output .*not an array of shape \(3, 4\)"),
    (
        'einsum("ij", "jk", a, b)',
        BackendError,
        "operand 0: .*builtins.str; a string is not an array: pass one equation",
    ),
    # operands
    ('einsum("ij,jk->ik", a, None)', BackendError, "operand 1: .*NoneType; None is not an array"),
    ('einsum("ij,jk->ik", a, "b")', BackendError, "operand 1: .*str; a string is not an array"),
    ('einsum("ij,jk->ik", a, np.ones)', BackendError, "operand 1: .*function; a function or a class is not an array"),
    ('einsum("ij,jk->ik", a, np.float64)', BackendError, "operand 1: .*type; a function or a class is not an array"),
    ('einsum("i,i->i", a[0], {1, 2, 3})', BackendError, "operand 1: .*set; make a list or an array of it"),
    ('einsum("i->", iter([1, 2]))', BackendError, "operand 0: .*list_iterator; make a list or an array of it"),
    ('einsum("ij,jk->ik", a, {0: b})', BackendError, "operand 1: .*builtins.dict; convert them"),
    ('einsum("ij,jk->ik", a, Sparse())', BackendError, r"operand 1: .*Sparse; it is sparse: x\.toarray\(\)"),
    ('einsum("ij,jk->ik", a, Sparse(), memory_limit="1 MB")', BackendError, r"operand 1: .*sparse.*x\.toarray\(\)"),
    ('einsum("ij,ij->", a, np.ma.ones((2, 3)))', BackendError, r"operand 1: .*masks.*x\.filled\(0\)"),
    # out= and order=
    ('einsum("ij,jk->ik", a, b, out=(2, 4))', BackendError, "out= must be an array of numpy.* not a tuple"),
    ('einsum("ij,jk->ik", a, b, out=np.float64)', BackendError, "out= must be an array of numpy.* not a type$"),
    ('einsum("ij,jk->ik", a, b, out=np.ones((2, 4), "int64"))', BackendError, "float64, .*out= of int64; pass"),
    # dtype= and casting=
    ('einsum("ij,jk->ik", a, b, dtype="flot32")', BackendError, "does not support dtype 'flot32'"),
    ('einsum("ij,jk->ik", a, b, dtype=32)', BackendError, "dtype=32 is not a dtype .*dtype='float32'"),
    (
        'einsum("ij,jk->ik", a, b, dtype=ForeignDtype())',
        BackendError,
        "torch.float32 is a dtype of another framework.*dtype='float32'",
    ),
    ('einsum("ij,jk->ik", a, b, dtype=np.float32)', BackendError, "operand 0 has dtype float64, .*pass a looser"),
    # optimize=
    ('einsum("ij,jk->ik", a, b, optimize=1)', PathError, "optimize= must be an optimizer or its name.*not 1"),
    ('einsum("ij,jk->ik", a, b, optimize=[(0, 1), (0, 1)])', PathError, "step 1 .*1 is left"),
    (
        'einsum("ij,jk->ik", a, b, optimize=[0, 1])',
        PathError,
        r"a step .* must be a tuple of positions such as \(0, 1\)",
    ),
    ('einsum("ij,jk->ik", a, b, optimize=((0, [1]),))', PathError, r"a step .*, not \(0, \[1\]\)"),
    ('einsum("ij,jk->ik", a, b, optimize=einsumx.einsum_path("ij,jk->ik", a, b))', PathError, "pass only the first"),
    ('einsumx.einsum_path("ij,jk->ik", a, b, optimize="optmal")', PathError, "no optimizer is called 'optmal'"),
    # backend=, and memory_limit=
    ('einsum("ij,jk->ik", a, b, backend="nupy")', BackendError, "no backend is called 'nupy'; there are numpy, torch"),
    (
        'einsum("ij,jk->ik", a, b, backend=np)',
        BackendError,
        "named by a string, such as 'numpy', not by <module 'numpy'",
    ),
    ('einsum("ij,jk->ik", a, b, optimise=True)', TypeError, "unexpected keyword argument 'optimise'"),
    ('MemoryLimit("1 MB", device=0)', TypeError, "device= must be the name of a device, such as 'cuda:0', not 0"),
    ('MemoryLimit("1 MB", devices="cpu")', TypeError, "devices= must be a list of device names.*not 'cpu'"),
    ('MemoryLimit("1 MB", executor=4)', TypeError, "executor= must be an Executor.*not 4"),
    ('MemoryLimit("1 MB", progress="yes")', TypeError, "progress= must be True, or a function .*not 'yes'"),
    ('MemoryLimit("1 MB", resume=3)', TypeError, "resume= must be the name of a file, not 3"),
    ('MemoryLimit("1 G")', ValueError, "'1 G' is not an amount of memory; write '8GiB'"),
    ('einsum("ij,jk->ik", a, b, memory_limit="1 G")', ValueError, "'1 G' is not an amount of memory; write '8GiB'"),
    (
        'einsum("ij,jk->ik", a, b, memory_limit=2.5)',
        ValueError,
        "2.5 is neither a whole number of bytes nor",
    ),
    ('einsum("ij,jk->ik", a, b, memory_limit=0)', ValueError, "memory_limit=0 must be positive"),
    ('einsum("ij,jk->ik", a, b, memory_limit="9" * 400)', ValueError, r"99 \[\.\.\.\] 99.* is not an amount of memory"),
    ('einsum("ij,jk->ik", a, b, memory_limit=float("nan"))', ValueError, "memory_limit=nan must be positive"),
    ('einsum("ij,jk->ik", a, b, memory_limit=True)', TypeError, "a number of bytes.*not True"),
    # shapes
    ('plan("ij,jk->ik", 2, 3)', SizeError, r"operand 0 must be an array or a shape of 2 sizes, as in \(2, 3\), not 2"),
    ('plan("ij,jk->ik", (2, 3), [3, 4])', SizeError, r"operand 1 must be an array or a shape of 2 sizes.*not \[3, 4\]"),
    ('plan("ij,jk->ik", (2, 3.0), (3, 4))', SizeError, r"integers, not 3\.0: \(2, 3\.0\)"),
    ('plan("ij,jk->ik", (2, "n"), (3, 4))', SizeError, r"integers, or None if unknown: \(2, 'n'\)"),
    ('plan("ij,jk->ik", (2, -1), (3, 4))', SizeError, r"must not be negative: \(2, -1\)"),
    ('plan("ij,jk->ik", (2, 3), "3,4")', BackendError, "operand 1: .*a string is not an array"),
    ('plan("ij,jk->ik", (2, 3), (3, 4), dtypes="flot")', BackendError, "dtypes= has 'flot'; .*'float32'"),
    ('plan("ij,jk->ik", (2, 3), (3, 4), device="gpu", backend="cupy")', BackendError, "cupy has no device 'gpu'"),
    ('expression("ij,jk->ik", a, b)', EquationError, "every operand is constant.*shapes, which are tuples"),
    ('expression("ij,jk->ik", a, (3, 4))(None)', BackendError, "operand 1: .*None is not an array"),
    ("einsumx.patch(np)", BackendError, "named by a string, such as 'numpy', not by <module 'numpy'"),
]


if np.lib.NumpyVersion(np.__version__) >= "1.24.0":  # before, NumPy made an array of objects, with a warning
    MISTAKES += [
        ('einsum("ij,jk->ik", [a, b])', BackendError, r"operand 0, a list: .*einsum\(equation, \*arrays\)"),
        ('einsum("ij->j", [[1, 2], [3]])', BackendError, "operand 0, a list.*with rows of equal length"),
        ('einsum("i,i->", [b[0], a[0]], a[0])', BackendError, "operand 0, a list.*arrays are operands of their own"),
        ('plan("ij,jk->ik", (2, 3), (3, 4))([a, b])', BackendError, "operand 0, a list"),
    ]


@pytest.mark.parametrize(("call", "kind", "says"), MISTAKES, ids=[call for call, _, _ in MISTAKES])
def test_a_mistake_is_told_by_what_is_wrong_where_and_what_to_do(call, kind, says):
    with pytest.raises(kind) as raised:
        eval(call, globals())
    message = str(raised.value)
    assert re.search(says, message, re.DOTALL), message
    assert isinstance(raised.value, EinsumxError) or type(raised.value) in (ValueError, TypeError)
    assert len(message) < 700


@pytest.mark.parametrize("make", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_an_executor_that_was_shut_down_is_refused_before_any_work(make, tmp_path):
    pool = make(1)
    pool.shutdown()
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", "float64", (2, 4))
    resume = tmp_path / "journal"
    with pytest.raises(ValueError, match="executor= was shut down and takes no more work; make another one"):
        einsum("ij,jk->ik", a, b, out=out, memory_limit=MemoryLimit("1 MB", executor=pool, resume=resume))
    assert not out.any()
    assert not resume.exists()


def test_scipys_sparse_matrices_are_refused_with_what_makes_them_dense():
    sparse = pytest.importorskip("scipy.sparse")
    for matrix in (sparse.csr_matrix(b), sparse.coo_matrix(b), sparse.csr_array(b)):
        advice = r"operand 1: .*it is sparse: x\.toarray\(\).*; sparse\.COO\.from_scipy_sparse\(x\)"
        with pytest.raises(BackendError, match=advice):
            einsum("ij,jk->ik", a, matrix)
        assert einsum("ij,jk->ik", a, matrix.toarray()).shape == (2, 4)


def test_dtypes_of_another_framework_are_named():
    torch = pytest.importorskip("torch")
    with pytest.raises(
        BackendError, match=r"dtype=torch\.float32 is a dtype of another framework; pass its name: dtype='float32'"
    ):
        einsum("ij->j", a, dtype=torch.float32)
    for dtype in (np.float32, np.dtype("float32")):
        with pytest.raises(BackendError, match=r"is a dtype of another framework; pass its name: dtype='float32'"):
            einsum("ij->j", torch.ones(2, 3), dtype=dtype)


def test_two_frameworks_are_told_by_their_operands():
    torch = pytest.importorskip("torch")
    wanted = r"operand 1 \(numpy\.ndarray\) to numpy and operand 2 \(torch\.Tensor\) to torch; convert one"
    with pytest.raises(BackendError, match=wanted):
        einsum("i,j,k->", [1.0], a[0], torch.ones(3))
    with pytest.raises(BackendError, match=r"operand 0 \(numpy\.ndarray\) .*operand 1 \(torch\.Tensor\)"):
        expression("i,j->", (3,), torch.ones(3))(a[0])


def test_a_limit_that_is_too_small_names_one_that_does_in_a_unit_as_well():
    rows, columns = np.ones((601, 5)), np.ones((5, 503))
    with pytest.raises(einsumx.MemoryLimitError) as raised:
        einsum("ij,jk->ik", rows, columns, memory_limit="100 kB")
    said = re.search(
        r"within 100 kB; the smallest memory_limit= is (\d+) bytes \((\d+\.\d+ MB)\), of which 2.42 MB are for",
        str(raised.value),
    )
    for limit in (int(said[1]), said[2]):
        plan("ij,jk->ik", rows, columns, memory_limit=limit)
    out = np.empty((601, 503))
    assert einsum("ij,jk->ik", rows, columns, memory_limit="100 kB", out=out) is out


def test_arrays_of_two_frameworks_are_one_error_and_not_two_in_a_row():
    torch = pytest.importorskip("torch")
    with pytest.raises(einsumx.BackendError, match="two frameworks") as raised:
        einsumx.einsum("i,i->", torch.ones(3), np.ones(3))
    assert raised.value.__context__ is None


@pytest.mark.parametrize(
    "call",
    [
        lambda a: einsumx.einsum("ij,j->i", a, a),
        lambda a: einsumx.einsum("ij->ji", a, out=np.broadcast_to(0.0, a.shape)),
        lambda a: einsumx.addeinsum(a, "ij,j->i", a, a),
        lambda a: einsumx.einsum("ij->", [[1, 2], [3]]),
    ],
)
def test_the_traceback_of_an_error_has_one_line_of_einsumx(call):
    with pytest.raises(einsumx.EinsumxError) as error:
        call(np.ones((2, 3)))
    files = [frame.filename for frame in traceback.extract_tb(error.value.__traceback__)]
    assert len([name for name in files if name != __file__]) == 1


def test_a_limit_of_elements_holds_for_a_pair_without_intermediates():
    assert einsumx.einsum("i,i->", np.ones(3), np.ones(3), optimize=("greedy", -1)) == 3
