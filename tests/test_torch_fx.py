"""Clients that record or watch ``torch.einsum``: torch.fx, TorchScript, TorchFunctionMode, opt_einsum_fx, e3nn."""

import importlib
import pickle
from contextlib import contextmanager, nullcontext
from functools import partial

import pytest

import einsumx

torch = pytest.importorskip("torch")

NATIVE = torch.functional.einsum
LHS, RHS = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(3, 4)
PRODUCT = (LHS @ RHS).tolist()

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:The TorchScript:UserWarning")


class Separate(torch.nn.Module):
    def forward(self, lhs, rhs):
        return torch.einsum("ij,jk->ik", lhs, rhs)


class InList(torch.nn.Module):
    def forward(self, lhs, rhs):
        return torch.einsum("ij,jk->ik", [lhs, rhs])


class InTuple(torch.nn.Module):
    def forward(self, lhs, rhs):
        return torch.functional.einsum("ij,jk->ik", (lhs, rhs))


class Sublists(torch.nn.Module):
    def forward(self, lhs, rhs):
        return torch.einsum(lhs, [0, 1], rhs, [1, 2], [0, 2])


class WithTensor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = torch.nn.Parameter(torch.eye(2))

    def forward(self, lhs, rhs):
        return torch.einsum("hi,ij,jk->hk", self.matrix, lhs, rhs)


MODULES = [Separate, InList, InTuple, Sublists, WithTensor]


@contextmanager
def everywhere():
    """In the whole process, until the block ends."""
    einsumx.patch("torch")
    yield
    einsumx.unpatch("torch")


PATCHES = {"none": nullcontext, "block": partial(einsumx.patched, "torch"), "process": everywhere}


def maybe_patched(patched):
    return PATCHES["block" if patched else "none"]()


def calls_of(graph):
    return [node for node in graph.nodes if node.op == "call_function"]


# -- torch.fx -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("patched", [False, True])
def test_a_trace_records_torchs_own_function_and_runs_in_and_out_of_a_patch(patched, kind):
    with maybe_patched(patched):
        module = torch.fx.symbolic_trace(kind())
    (node,) = calls_of(module.graph)
    assert node.target is NATIVE
    assert "torch.functional.einsum(" in module.code
    for traced in (module, pickle.loads(pickle.dumps(module))):
        for inside in (False, True):
            with maybe_patched(inside):
                assert traced(LHS, RHS).tolist() == PRODUCT


def test_a_traced_graph_runs_einsumx_in_a_patch():
    module = torch.fx.symbolic_trace(Separate())
    with einsumx.patched("torch"), pytest.raises(einsumx.SizeError):
        module(LHS, LHS)


@pytest.mark.parametrize(
    "function",
    [
        lambda lhs, rhs: einsumx.einsum("ij,jk->ik", lhs, rhs),
        lambda lhs, rhs: einsumx.einsum("ij,jk->ik", lhs, rhs, dtype="float32", order="C"),
        lambda lhs, rhs: einsumx.einsum(lhs, ["row", 1], rhs, [1, "column"], ["row", "column"]),
        lambda lhs, rhs: einsumx.einsum("ij,jk,->ik", lhs, rhs, 1),
    ],
)
def test_einsumx_itself_is_recorded_as_one_call(function):
    module = torch.fx.symbolic_trace(function)
    (node,) = calls_of(module.graph)
    assert node.target is einsumx.einsum
    for traced in (module, pickle.loads(pickle.dumps(module))):
        assert traced(LHS, RHS).tolist() == PRODUCT


def test_added_sums_semirings_and_exponents_are_recorded():
    for function in (
        lambda lhs, rhs: einsumx.addeinsum(lhs[:, :1], "ij,jk->ik", lhs, rhs, alpha=2),
        lambda lhs, rhs: einsumx.semirings.max_plus.einsum("ij,jk->ik", lhs, rhs),
        lambda lhs, rhs: einsumx.einsum_frexp("ij,jk->ik", lhs, rhs)[0],
    ):
        module = torch.fx.symbolic_trace(function)
        for traced in (module, pickle.loads(pickle.dumps(module))):
            assert torch.equal(traced(LHS + 1, RHS), function(LHS + 1, RHS))


def test_plans_of_proxies_are_an_error_that_says_so():
    with pytest.raises(einsumx.BackendError, match=r"Proxy are lazy, and only einsumx\.einsum takes them"):
        torch.fx.symbolic_trace(lambda lhs: einsumx.plan("ij->ji", lhs))


def test_opt_einsum_fx_rewrites_what_was_traced_in_a_patch():
    opt_einsum_fx = pytest.importorskip("opt_einsum_fx")

    def chain(a, b, c):
        return torch.einsum("ij,jk->ik", [torch.einsum("ij,jk->ik", a, b), c])

    arrays = torch.ones(2, 30), torch.ones(30, 40), torch.ones(40, 3)
    with einsumx.patched("torch"):
        module = opt_einsum_fx.optimize_einsums_full(torch.fx.symbolic_trace(chain), arrays)
        assert module(*arrays).tolist() == [[1200] * 3] * 2
    assert module(*arrays).tolist() == [[1200] * 3] * 2
    assert NATIVE not in [node.target for node in calls_of(module.graph)]  # rewritten as tensordot


# -- TorchScript ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Separate, InList])
@pytest.mark.parametrize("patch", PATCHES)
def test_scripts_are_torchs_and_run_in_and_out_of_a_patch(patch, kind, tmp_path, caplog):
    caplog.set_level("INFO", "einsumx")
    with PATCHES[patch]():
        scripted = torch.jit.script(kind())
        traced = torch.jit.trace(kind(), (LHS, RHS))
    assert any("torch.jit.trace" in text for text in caplog.messages) == (patch != "none")
    torch.jit.save(scripted, tmp_path / "scripted.pt")
    for module in (scripted, traced, torch.jit.load(tmp_path / "scripted.pt")):
        assert "aten::einsum" in str(module.graph)
        with einsumx.patched("torch"):
            assert module(LHS, RHS).tolist() == PRODUCT
        assert module(LHS, RHS).tolist() == PRODUCT
        assert module(LHS[:1], RHS).tolist() == PRODUCT[:1]


# -- modes ------------------------------------------------------------------------------------------------------------


class Watching(torch.overrides.TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        self.seen.append((function, arguments[0], list(map(type, arguments))))
        return function(*arguments, **(keywords or {}))


@pytest.mark.parametrize("kind", MODULES)
def test_a_mode_sees_one_einsum_with_an_equation_as_it_does_of_torch(kind):
    seen = []
    for patched in (False, True):
        with maybe_patched(patched), Watching() as mode:
            assert kind()(LHS, RHS).tolist() == PRODUCT
        seen.append([call for call in mode.seen if call[0] is NATIVE])
    assert seen[0] == seen[1]
    assert len(seen[0]) == 1


def test_torchs_default_device_leaves_einsum_to_einsumx():
    with einsumx.patched("torch"), torch.device("cpu"), pytest.raises(einsumx.SizeError):
        torch.einsum("ij,jk->ik", LHS, LHS)


# -- torch.compile ----------------------------------------------------------------------------------------------------


@pytest.fixture
def first_use_of_dynamo():
    """torch.compile as it is before its first use: it has not looked up any function yet."""
    rules = importlib.import_module("torch._dynamo.trace_rules")
    torch._dynamo.reset()
    rules.clear_lru_cache()
    yield
    torch._dynamo.reset()
    rules.clear_lru_cache()


@pytest.mark.usefixtures("first_use_of_dynamo")
@pytest.mark.parametrize("first", [Separate(), torch.nn.Identity()])
@pytest.mark.parametrize("how", ["block", "process"])
def test_torch_compile_knows_torchs_own_einsum_after_a_patch_in_which_it_was_first_used(first, how):
    arguments = (LHS, RHS) if isinstance(first, Separate) else (LHS,)
    with PATCHES[how]():
        torch.compile(first, fullgraph=True, backend="eager")(*arguments)
    function = torch.compile(Separate(), fullgraph=True, backend="eager")
    assert function(LHS, RHS).tolist() == PRODUCT
    with einsumx.patched("torch"), pytest.raises(Exception, match="label 'j' has size 3 in operand 0"):
        function(LHS, LHS)
    assert function(LHS, RHS).tolist() == PRODUCT


# -- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("within", [False, True])
def test_a_decorated_function_is_patched_when_a_checkpoint_calls_it_again(within):
    checkpoint = importlib.import_module("torch.utils.checkpoint").checkpoint
    factors = torch.arange(12.0).reshape(3, 4).requires_grad_()

    def layer(lhs):
        return torch.einsum("ij,jk->ik", lhs, factors).relu()

    lhs = LHS.clone().requires_grad_()
    with maybe_patched(within):
        result = checkpoint(einsumx.patched("torch")(layer), lhs, use_reentrant=False)
    found = torch.autograd.grad(result.sum(), (lhs, factors))
    for one, other in zip(found, torch.autograd.grad(layer(lhs).sum(), (lhs, factors))):
        torch.testing.assert_close(one, other)


# -- e3nn -----------------------------------------------------------------------------------------------------------


def e3nn_module(name):
    o3 = pytest.importorskip("e3nn.o3")
    if name == "tensor product":
        module = o3.FullyConnectedTensorProduct("3x0e+2x1o", "2x0e+1x1o", "4x0e+3x1o+1x2e")
        return module, (torch.ones(5, 9), torch.ones(5, 5))
    if name == "linear":
        return o3.Linear("3x0e+2x1o", "4x0e+3x1o"), (torch.ones(5, 9),)
    return o3.SphericalHarmonics([0, 1, 2], normalize=True), (torch.ones(5, 3),)


@pytest.mark.parametrize("mode", ["script", "eager"])
@pytest.mark.parametrize("name", ["tensor product", "linear", "spherical harmonics"])
@pytest.mark.filterwarnings("ignore")
def test_modules_of_e3nn_work_made_and_called_in_and_out_of_a_patch(name, mode):
    e3nn = pytest.importorskip("e3nn")
    before = e3nn.get_optimization_defaults()
    e3nn.set_optimization_defaults(jit_script_fx=mode == "script", jit_mode=mode)
    try:
        results = []
        for made in (False, True):
            torch.manual_seed(0)
            with maybe_patched(made):
                module, arguments = e3nn_module(name)
            for called in (False, True):
                with maybe_patched(called):
                    results.append(module(*arguments))
        for result in results[1:]:
            torch.testing.assert_close(result, results[0])
    finally:
        e3nn.set_optimization_defaults(**before)
