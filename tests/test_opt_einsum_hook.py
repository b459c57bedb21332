"""opt_einsum with einsumx behind it: ``backend="einsumx"``, and ``einsumx.patch("opt_einsum")``."""

import copy
import gc
import logging
import pickle
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib import import_module
from types import ModuleType

import numpy as np
import opt_einsum
import pytest
from backends_under_test import INSTALLED
from opt_einsum import get_symbol, shared_intermediates

import einsumx
from einsumx import patching
from einsumx.adapters.registry import backend_of
from einsumx.conformance.subject import backend_subject, callable_subject
from einsumx.conformance.suite import cases
from einsumx.conformance.suite import run as judged

MODULE = import_module("opt_einsum.contract")
EXPRESSION = MODULE.ContractExpression
NATIVE = {"contract": MODULE.contract, "call": EXPRESSION.__call__, "contract_path": opt_einsum.contract_path}

random = np.random.default_rng(0)
A, B, C = random.random((3, 4)), random.random((4, 5)), random.random((5, 6))
CHAIN = "ij,jk,kl->il"


def contract(*operands, **options):
    return opt_einsum.contract(*operands, **options)


@pytest.fixture(autouse=True)
def undone():
    """opt_einsum has its own functions before and after each test, also after one that fails."""
    assert is_native()
    yield
    was_native = is_native()
    while opt_einsum.contract is not NATIVE["contract"]:
        einsumx.unpatch("opt_einsum")
    assert was_native


@pytest.fixture
def patched():
    with einsumx.patched("opt_einsum"):
        yield


@pytest.fixture
def left(caplog):
    """Why calls went on to opt_einsum, in turn."""
    caplog.set_level(logging.INFO, "einsumx")
    return lambda: [text.partition("opt_einsum: ")[2] for text in caplog.messages if "is left to opt_einsum" in text]


@pytest.fixture
def no_steps(monkeypatch):
    """opt_einsum computes nothing by itself."""

    def refuse(*_, **__):
        raise AssertionError("opt_einsum computes")

    monkeypatch.setattr(MODULE, "_core_contract", refuse)
    monkeypatch.setattr(MODULE, "_einsum", refuse)


def is_native():
    names = (opt_einsum.contract, MODULE.contract)
    return all(each is NATIVE["contract"] for each in names) and EXPRESSION.__call__ is NATIVE["call"]


def close(result, expected=A @ B @ C):
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-5)


# -- backend="einsumx" ----------------------------------------------------------------------------------------------

EQUATIONS = {
    CHAIN: [(3, 4), (4, 5), (5, 6)],
    "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)],
    "ij,jk": [(3, 4), (4, 5)],
    "ij->ji": [(3, 4)],
    "i,i->": [(4,), (4,)],
    "i,j->ji": [(3,), (4,)],
    "ij,jk,k->i": [(3, 1), (4, 5), (5,)],
    "ii,ij->j": [(3, 3), (3, 4)],
    "ab,cab,bd->dc": [(3, 4), (2, 3, 4), (4, 5)],
}


STEPS = [
    *((backend, equation) for backend in INSTALLED[:1] for equation in EQUATIONS),
    *((backend, equation) for backend in INSTALLED[1:] for equation in ("ij,jk,k->i", "ab,cab,bd->dc")),
]


@pytest.mark.parametrize(("backend", "equation"), STEPS, ids=str)
def test_the_backend_einsumx_computes_the_steps_on_every_framework(backend, equation):
    values = [random.integers(-3, 4, shape).astype("float64") for shape in EQUATIONS[equation]]
    arrays = [backend.array(each, backend.float) for each in values]
    expected = np.einsum(equation, *values)
    result = contract(equation, *arrays, backend="einsumx")
    np.testing.assert_array_equal(np.asarray(backend.values(result)), expected)
    expression = opt_einsum.contract_expression(equation, *[each.shape for each in values])
    np.testing.assert_array_equal(np.asarray(backend.values(expression(*arrays, backend="einsumx"))), expected)


def test_the_backend_einsumx_takes_opt_einsums_keywords():
    out = np.empty((2, 3, 5))
    lhs, rhs = random.random((2, 3, 4)), random.random((2, 4, 5))
    assert contract("bij,bjk->bik", lhs, rhs, backend="einsumx", out=out) is out
    close(out, lhs @ rhs)
    result = contract("bij,bjk->bik", lhs, rhs, backend="einsumx", dtype="float32", casting="same_kind", order="F")
    assert result.dtype == "float32"
    assert result.flags.f_contiguous
    for options in ({"use_blas": False}, {"optimize": "dp"}, {"memory_limit": "max_input"}, {"memory_limit": 4}):
        close(contract(CHAIN, A, B, C, backend="einsumx", **options))


def test_the_backend_einsumx_takes_constants():
    expression = opt_einsum.contract_expression(CHAIN, A, (4, 5), C, constants=[0, 2])
    for _ in range(2):
        close(expression(B, backend="einsumx"))


# -- where the replacement holds ------------------------------------------------------------------------------------


def test_contract_is_einsumx_until_unpatch(no_steps):
    einsumx.patch("opt_einsum")
    close(contract(CHAIN, A, B, C))
    assert opt_einsum.contract is MODULE.contract
    assert opt_einsum.contract.__wrapped__ is NATIVE["contract"]
    einsumx.unpatch("opt_einsum")
    assert is_native()
    with pytest.raises(AssertionError, match="opt_einsum computes"):
        contract(CHAIN, A, B, C)


def test_modules_that_imported_contract_get_einsumx_and_their_own_back(monkeypatch):
    before, after = ModuleType("imports_before"), ModuleType("imports_after")
    monkeypatch.setitem(sys.modules, "imports_before", before)
    exec("from opt_einsum import contract, contract as renamed", vars(before))
    with einsumx.patched("opt_einsum"):
        assert before.contract is before.renamed is opt_einsum.contract is not NATIVE["contract"]
        monkeypatch.setitem(sys.modules, "imports_after", after)
        exec("from opt_einsum import contract", vars(after))
        assert after.contract is opt_einsum.contract
    for module in (before, after):
        assert module.contract is NATIVE["contract"]
    before.contract = len
    with einsumx.patched("opt_einsum"):  # names that mean another function since then stay
        assert before.contract is len
        assert before.renamed is opt_einsum.contract
    assert before.contract is len


def test_names_that_mean_contract_later_get_einsumx_and_their_own_back(monkeypatch):
    module = ModuleType("imports_late")
    monkeypatch.setitem(sys.modules, "imports_late", module)
    module.contract = None  # the module has as many names before the import as after it
    einsumx.patch("opt_einsum")
    exec("from opt_einsum import contract", vars(module))
    assert module.contract is opt_einsum.contract
    einsumx.unpatch("opt_einsum")
    assert module.contract is NATIVE["contract"]
    module.contract = None
    with einsumx.patched("opt_einsum"):
        pass
    module.contract = NATIVE["contract"]
    with einsumx.patched("opt_einsum"):
        assert module.contract is opt_einsum.contract
    assert module.contract is NATIVE["contract"]


@pytest.mark.long
def test_deleted_modules_get_their_own_back_and_are_not_kept(monkeypatch):
    module = ModuleType("deleted_later")
    monkeypatch.setitem(sys.modules, "deleted_later", module)
    exec("from opt_einsum import contract\ndef get(): return contract", vars(module))
    module.mark = mark = ModuleType("mark")
    get, kept = module.get, weakref.ref(mark)
    with einsumx.patched("opt_einsum"):
        del sys.modules["deleted_later"]
        del module, mark
        assert get() is opt_einsum.contract
    assert get() is NATIVE["contract"]
    del get
    gc.collect()
    assert kept() is None


def test_modules_that_load_lazily_and_objects_that_only_claim_to_be_modules_are_passed_over(monkeypatch):
    class Lazy(ModuleType):
        def __getattribute__(self, name):
            raise AssertionError(f"{name} was looked up")

    class Claims:  # as the libraries that cffi loads do
        __slots__ = ()
        __class__ = ModuleType

    assert isinstance(Claims(), ModuleType)
    monkeypatch.setitem(sys.modules, "lazy_module", Lazy("lazy_module"))
    monkeypatch.setitem(sys.modules, "claims_to_be_one", Claims())
    with einsumx.patched("opt_einsum"):
        close(contract(CHAIN, A, B, C))


def test_a_block_holds_for_its_thread_and_those_that_it_starts(no_steps):
    def is_einsumx():
        try:
            contract(CHAIN, A, B, C)
            expression(A, B, C)
        except AssertionError:
            return False
        return True

    expression = opt_einsum.contract_expression(CHAIN, *EQUATIONS[CHAIN])
    with ThreadPoolExecutor(1) as before, ThreadPoolExecutor(1) as inside:
        before.submit(int).result()
        with einsumx.patched("opt_einsum"):
            assert is_einsumx()
            assert not before.submit(is_einsumx).result()
            assert inside.submit(is_einsumx).result()
        assert not inside.submit(is_einsumx).result()
        einsumx.patch("opt_einsum")
        assert before.submit(is_einsumx).result()
        einsumx.unpatch("opt_einsum")
        assert not is_einsumx()


def test_paths_stay_opt_einsums(patched):
    assert opt_einsum.contract_path is NATIVE["contract_path"]
    path, info = opt_einsum.contract_path(CHAIN, A, B, C)
    assert path == [(0, 1), (0, 1)]
    assert info.opt_cost == 300


def test_opt_einsum_that_is_not_installed_is_an_error_that_says_how(monkeypatch):
    monkeypatch.setitem(sys.modules, "opt_einsum.contract", None)
    monkeypatch.setattr(patching, "_known", type(patching._known)())
    with pytest.raises(einsumx.BackendError, match=r"opt_einsum cannot be imported: .*; pip install opt_einsum"):
        einsumx.patch("opt_einsum")


# -- contract -------------------------------------------------------------------------------------------------------


def _shown(value):
    """A value as text, without the address of an object, which differs between processes that run the tests."""
    return repr(value) if isinstance(value, str | int | list | None) else type(value).__name__


@pytest.mark.parametrize(
    "options",
    [
        {"optimize": True}, {"optimize": False}, {"optimize": None}, {"optimize": "random-greedy"},
        {"optimize": "branch-2"}, {"optimize": [(1, 2), (0, 1)]}, {"optimize": [(0, 1, 2)]},
        {"optimize": opt_einsum.RandomGreedy(max_repeats=4)}, {"optimize": opt_einsum.DynamicProgramming()},
        {"use_blas": False}, {"backend": "auto"}, {"backend": None}, {"backend": "numpy"}, {"backend": "einsumx"},
        {"memory_limit": None}, {"memory_limit": -1}, {"memory_limit": 100}, {"memory_limit": "max_input"},
        {"memory_limit": 1, "optimize": False}, {"order": "F"}, {"casting": "safe"}, {"out": np.empty((3, 6))},
    ],
    ids=lambda options: ", ".join(f"{name}={_shown(value)}" for name, value in options.items()),
)  # fmt: skip
def test_it_takes_opt_einsums_keywords(patched, no_steps, options):
    for _ in range(2):
        result = contract(CHAIN, A, B, C, **options)
        close(result)
        assert options.get("out", result) is result


@pytest.mark.parametrize("backend", INSTALLED, ids=str)
def test_every_frameworks_arrays_are_served(patched, no_steps, backend):
    arrays = [backend.array(each, "float32") for each in (A, B, C)]
    close(backend.values(contract(CHAIN, *arrays)))
    adapter, _ = backend_of((type(arrays[0]),))  # of NumPy, for autograd, which records nothing here
    close(backend.values(contract(CHAIN, *arrays, backend=adapter.name)))


def test_sublists_numbers_and_many_labels_are_served(patched, no_steps):
    close(contract(A, [0, 1], B, [1, 2], C, [2, 3], [0, 3]))
    close(contract(A, ["x", "y"], B, ["y", "z"]), A @ B)
    close(contract("ij,->ij", A, 2.0), 2 * A)
    labels = [get_symbol(number) for number in range(60, 63)]
    close(contract("{0}{1},{1}{2}->{2}{0}".format(*labels), A, B), (A @ B).T)


def test_the_limit_is_opt_einsums_number_of_elements(patched, left):
    with einsumx.patched("numpy"):  # opt_einsum then contracts by the original np.einsum all the same
        close(contract(CHAIN, A, B, C, memory_limit=4))
    assert left() == ["no path of pairs keeps memory_limit="]
    close(contract(CHAIN, A, B, C, memory_limit=15))
    assert len(left()) == 1
    with pytest.raises((TypeError, ValueError)):  # opt_einsum's own, of which version 3.3 raises a TypeError
        contract(CHAIN, A, B, C, memory_limit="1 GB")


def test_backends_that_compute_otherwise_are_left_alone(patched, left, monkeypatch):
    semiring = ModuleType("maxplus")
    semiring.einsum = semiring.tensordot = semiring.transpose = lambda *_, **__: "maxplus"
    monkeypatch.setitem(sys.modules, "maxplus", semiring)
    assert contract("ij,jk->ik", A, B, backend="maxplus") == "maxplus"
    expression = opt_einsum.contract_expression("ij,jk->ik", A.shape, B.shape)
    assert expression(A, B, backend="maxplus") == "maxplus"
    with shared_intermediates():
        assert contract("ij,jk->ik", A, B, backend="maxplus") == "maxplus"
    assert left() == ["backend='maxplus' is not the library of the operands"] * 2


def test_operands_that_einsumx_does_not_serve_are_left_to_opt_einsum(patched, left):
    close(contract("ij,jk->ik", np.ma.array(A), np.ma.array(B)), A @ B)
    words = np.array([["a", "b"]], object)
    close(contract("ij->ji", words) == words.T, True)
    expression = opt_einsum.contract_expression("ij,jk->ik", A.shape, B.shape)
    close(expression(np.ma.array(A), B), A @ B)
    assert len(left()) == 2
    assert all("MaskedArray" in reason for reason in left())


def test_what_einsumx_refuses_is_left_to_opt_einsum(patched, left):
    words = np.array([["a", "b"]])
    assert contract("ij->ji", words).tolist() == [["a"], ["b"]]
    close(contract(A, {0: "i", 1: "j"}, [1, 0]), A.T)
    close(opt_einsum.contract_expression("ij->ji", words.shape)(words) == words.T, True)
    assert [text[:27] for text in left()] == [
        "operand 0: numpy: einsum ne", "the sublist of operand 0 mu", "operand 0: numpy: einsum ne"
    ]  # fmt: skip


def test_arrays_of_two_frameworks_are_left_to_opt_einsum(patched, left):
    torch = pytest.importorskip("torch")
    close(contract("ij,jk->ik", A, torch.tensor(B)), A @ B)
    expression = opt_einsum.contract_expression(CHAIN, A, (4, 5), (5, 6), constants=[0])
    result = expression(torch.tensor(B), torch.tensor(C))  # opt_einsum converts constants
    assert isinstance(result, torch.Tensor)
    close(result)
    assert len(left()) == 2
    assert all("two frameworks" in reason for reason in left())


def test_unknown_keywords_get_opt_einsums_error(patched):
    with pytest.raises(TypeError, match="precision"):
        contract("ij,jk->ik", A, B, precision="high")


@pytest.mark.parametrize("backend", ["einsumx", "auto"])
def test_intermediates_are_shared_as_before(patched, backend):
    path = [(0, 1), (0, 1)]
    with shared_intermediates() as cache:
        close(contract(CHAIN, A, B, C, backend=backend, optimize=path))
        close(contract(CHAIN, A, B, 2 * C, backend=backend, optimize=path), 2 * A @ B @ C)
        close(opt_einsum.contract_expression("ij,jk->ik", A.shape, B.shape)(A, B), A @ B)
    steps = [key for key in cache if key[0] == "tensordot"]
    assert len(steps) == 3
    assert {key[1] for key in steps} == {"einsumx"}


def test_lazy_arrays_stay_lazy(patched, no_steps):
    da = pytest.importorskip("dask.array")
    result = contract(CHAIN, *[da.from_array(each, chunks=2) for each in (A, B, C)])
    assert isinstance(result, da.Array)
    close(result.compute())


# -- expressions ----------------------------------------------------------------------------------------------------


def test_expressions_made_before_and_in_a_block_run_einsumx(no_steps):
    before = opt_einsum.contract_expression(CHAIN, *EQUATIONS[CHAIN])
    with einsumx.patched("opt_einsum"):
        inside = opt_einsum.contract_expression(CHAIN, *EQUATIONS[CHAIN])
        for expression in (before, inside):
            close(expression(A, B, C))
    with pytest.raises(AssertionError, match="opt_einsum computes"):
        inside(A, B, C)


def test_an_expression_is_opt_einsums_own_object(patched):
    expression = opt_einsum.contract_expression(CHAIN, A, (4, 5), (5, 6), constants=[0])
    assert isinstance(expression, EXPRESSION)
    assert expression.contraction == "[ij],jk,kl->il"
    assert repr(expression) == "<ContractExpression('[ij],jk,kl->il', constants=[0])>"
    assert "GEMM" in str(expression)
    for each in (expression, copy.deepcopy(expression), pickle.loads(pickle.dumps(expression))):
        close(each(B, C))


def test_expressions_take_out_and_other_sizes(patched, no_steps):
    expression = opt_einsum.contract_expression("ij,jk->ik", (3, 4), (4, 5))
    out = np.empty((3, 5))
    assert expression(A, B, out=out) is out
    close(out, A @ B)
    close(expression(A.T, A), A.T @ A)


def test_expressions_of_opt_einsum_3_3_have_their_keywords_under_another_name(patched, no_steps):
    expression = opt_einsum.contract_expression(CHAIN, *EQUATIONS[CHAIN], order="F")
    if hasattr(expression, "kwargs"):
        expression.einsum_kwargs = vars(expression).pop("kwargs")
    result = expression(A, B, C)
    close(result)
    assert result.flags.f_contiguous


@pytest.mark.parametrize("constants", [[0], [0, 2]])
def test_constants_are_held_and_their_products_computed_once(patched, no_steps, constants):
    operands = [each if number in constants else each.shape for number, each in enumerate((A, B, C))]
    expression = opt_einsum.contract_expression(CHAIN, *operands, constants=constants)
    rest = [each for number, each in enumerate((A, B, C)) if number not in constants]
    for _ in range(2):
        close(expression(*rest))


def test_constants_are_evaluated_by_opt_einsum_if_it_is_told_to(patched):
    expression = opt_einsum.contract_expression(CHAIN, A, B, (5, 6), constants=[0, 1])
    expression.evaluate_constants()
    close(expression(C))


def test_constants_that_ask_for_gradients_get_them_from_opt_einsum(patched, left):
    torch = pytest.importorskip("torch")
    weights = torch.tensor(A, requires_grad=True)
    expression = opt_einsum.contract_expression("ij,jk->ik", weights, (4, 5), constants=[0])
    expression(torch.tensor(B)).sum().backward()
    close(weights.grad[0], B.sum(1))
    assert left() == ["a constant requires a gradient"]


def test_arrays_are_converted_to_another_backend_by_opt_einsum(patched, left):
    pytest.importorskip("torch")
    expression = opt_einsum.contract_expression("ij,jk->ik", (3, 4), (4, 5))
    result = expression(A, B, backend="torch")
    assert isinstance(result, np.ndarray)
    close(result, A @ B)
    assert left() == ["backend='torch' is not the library of the operands"]


def test_a_path_with_a_step_of_three_is_left_to_opt_einsum(patched, left):
    expression = opt_einsum.contract_expression(CHAIN, *EQUATIONS[CHAIN], memory_limit=4)
    close(expression(A, B, C))
    assert left() == ["its path contracts three or more operands in one step"]


def test_wrong_operands_of_an_expression_are_errors(patched):
    expression = opt_einsum.contract_expression("ij,jk->ik", (3, 4), (4, 5))
    with pytest.raises(einsumx.SizeError, match=r"<ContractExpression.* takes 2 operands, not 1"):
        expression(A)
    with pytest.raises(einsumx.SizeError):
        expression(A, A)


# -- tracing --------------------------------------------------------------------------------------------------------


def test_torch_compile_and_gradients_go_through_without_graph_breaks():
    torch = pytest.importorskip("torch")
    arrays = [torch.tensor(each, requires_grad=True) for each in (A, B, C)]
    expression = opt_einsum.contract_expression(CHAIN, *EQUATIONS[CHAIN])
    expected = torch.autograd.grad((arrays[0] @ arrays[1] @ arrays[2]).sum(), arrays)
    einsumx.patch("opt_einsum")
    for function in (lambda *each: opt_einsum.contract(CHAIN, *each, optimize=[(0, 1), (0, 1)]), expression.__call__):
        for call in (function, torch.compile(lambda *each, f=function: f(*each), fullgraph=True, backend="aot_eager")):
            gradients = torch.autograd.grad(call(*arrays).sum(), arrays)
            torch.testing.assert_close(gradients, expected)
    einsumx.unpatch("opt_einsum")


def test_jax_traces_it(patched, no_steps):
    jax = pytest.importorskip("jax")
    arrays = [jax.numpy.asarray(each, "float32") for each in (A, B, C)]
    expression = opt_einsum.contract_expression(CHAIN, *EQUATIONS[CHAIN])
    for function in (lambda *each: opt_einsum.contract(CHAIN, *each), expression):
        close(jax.jit(function)(*arrays))
        close(jax.grad(lambda a, f=function: f(a, *arrays[1:]).sum())(arrays[0])[0], (B @ C).sum(1))


# -- libraries that call opt_einsum -----------------------------------------------------------------------------------


def test_xarrays_dot_is_einsumx(patched, no_steps):
    xr = pytest.importorskip("xarray")
    lhs, rhs = xr.DataArray(A, dims=("i", "j")), xr.DataArray(B, dims=("j", "k"))
    close(xr.dot(lhs, rhs).values, A @ B)


def test_pyros_sums_are_einsumx_and_its_semirings_its_own(left):
    pytest.importorskip("pyro")
    from pyro.ops.einsum import contract as pyro_contract

    torch = import_module("torch")
    lhs, rhs = torch.tensor(A), torch.tensor(B)
    with einsumx.patched("opt_einsum"):
        close(pyro_contract("ij,jk->ik", lhs, rhs, backend="torch"), A @ B)
        close(pyro_contract("ij,jk->ik", lhs, rhs, backend="pyro.ops.einsum.torch_log"), np.log(np.exp(A) @ np.exp(B)))
    assert left() == ["backend='pyro.ops.einsum.torch_log' is not the library of the operands"]


def test_jnp_einsum_still_finds_its_paths(patched):
    jax = pytest.importorskip("jax")
    close(jax.numpy.einsum(CHAIN, A, B, C, optimize="optimal"))


# -- einsumx's promises -----------------------------------------------------------------------------------------------

LEFT_TO_OPT_EINSUM = ["lists and scalars/* alone", "* no_such_keyword=1*"]
"""Cases that want an error, or an array of the framework, where opt_einsum computes by itself or with NumPy."""
FEATURES = {
    "numpy": (
        "forms", "sublists", "implicit output", "promotion", "dtype", "casting", "order", "lists and scalars", "out",
        "keywords", "threads", "wrong equations", "wrong sizes", "wrong paths", "wrong keywords", "wrong out",
    ),
    "torch": ("ellipsis", "zero sizes", "gradients", "added gradients", "second order", "devices"),
}  # fmt: skip
"""What the replacement passes on; the values behind it are those of the backends."""


@pytest.mark.long
@pytest.mark.parametrize("framework", FEATURES)
def test_contract_keeps_einsumxs_promises(framework):
    pytest.importorskip(framework)
    subject = callable_subject("opt_einsum:contract", framework)
    of_features = [case for case in cases("quick") if case.feature in FEATURES[framework]]
    chosen = [case for case in of_features if not any(fnmatchcase(case.id, each) for each in LEFT_TO_OPT_EINSUM)]
    deviations = backend_subject(framework).deviations
    own = replace(subject, function=opt_einsum.contract)
    with einsumx.patched("opt_einsum"):
        patched = replace(subject, function=opt_einsum.contract)
        outcomes = list(judged(patched, chosen, deviations))
    failed = {outcome.case: outcome.message for outcome in outcomes if outcome.status == "fail"}
    refused = [case for case in chosen if case.id in failed and case.raises]  # by einsumx: opt_einsum decides
    of_own = {outcome.case: outcome.message for outcome in judged(own, refused, deviations)}
    assert {case: message for case, message in failed.items() if of_own.get(case) != message} == {}
    assert sum(outcome.status == "pass" for outcome in outcomes) > 80
