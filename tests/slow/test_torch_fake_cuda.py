"""The conformance suite for PyTorch on CUDA, on fake tensors: no GPU, and no values.

Fake tensors have devices, dtypes, shapes and strides, and PyTorch decides these op by op as it does for real ones. Each
op is compared with the plan, and none may ask for a value, touch the host or make anything on another device. Autograd
refuses fake tensors of CUDA where PyTorch was built without it; ``nox -s gpu`` judges gradients.
"""

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import einsumx
from einsumx.conformance.case import as_expression
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.plugin import report
from einsumx.conformance.subject import Subject
from einsumx.conformance.suite import cases, run
from einsumx.ir.layout import contiguous
from einsumx.ir.ops import Copy
from einsumx.ir.sizes import is_known

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from einsumx.backends.torch.adapter import ADAPTER, TorchAdapter  # noqa: E402
from einsumx.conformance.frameworks.torch import TorchFramework  # noqa: E402

DEVICE = "cuda:1"
"""Not the default, so that what is made on the default device shows."""

VALUES = {"exponents"}
"""Features of which every case reads values."""

ONE_THREAD = {"threads"}
"""Features that compute in further threads, in which tensors are no fakes."""

OFF = {"autocast"}
"""Features of modes that PyTorch turns off where it finds no GPU."""

HOST = {"lists and scalars"}
"""Features whose operands come from the host."""

TRACED = ("compile/* numbers", "compile/* plans")
"""Cases whose graphs make tensors that are no fakes."""

LONG = "memory limit/i,i-> (3000)*"
"""Cases of thousands of blocks, which take half a minute each."""


class Watched(FakeTensorMode):
    """Makes fake tensors, and judges the operations on them."""

    is_watching = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self.is_watching:
            tensors = [each for each in torch.utils._pytree.tree_leaves((args, kwargs, result)) if is_tensor(each)]
            elsewhere = {str(each.device) for each in tensors} - {DEVICE}
            assert not elsewhere, f"{func} on {', '.join(sorted(elsewhere))}"
        return result


def is_tensor(each):
    return isinstance(each, torch.Tensor)


class FakeCuda(TorchFramework):
    """PyTorch with fake tensors, for the suite."""

    gradient_dtypes = ()

    def __init__(self, mode):
        self.mode = mode

    def array(self, values, dtype, device=""):
        was, self.mode.is_watching = self.mode.is_watching, False
        host = np.array(values, "float32" if dtype == "bfloat16" else dtype, order="C")
        made = torch.as_tensor(host).to(device or "cpu", getattr(torch, dtype))
        self.mode.is_watching = was
        return made

    def values(self, array):
        raise NotApplicable("fake tensors have no values")

    def has_values(self, array):
        return False

    def devices(self):
        return ()

    def fill(self, array, values):
        raise NotApplicable("fake tensors have no values")

    def synchronize(self, array):
        pass


@pytest.fixture(scope="module")
def mode():
    """A mode in which tensors are fake ones of CUDA, also where PyTorch was built without CUDA.

    Such a build has no guard for devices of CUDA; the one of meta tensors, which does nothing, takes its place.
    """
    library = {"win32": "c10.dll", "darwin": "libc10.dylib"}.get(sys.platform, "libc10.so")
    loaded = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / library))
    guards = (ctypes.c_void_p * 16).in_dll(loaded, "_ZN3c104impl26device_guard_impl_registryE")
    cuda, meta = (int(getattr(torch._C._autograd.DeviceType, name)) for name in ("CUDA", "Meta"))
    before = guards[cuda]
    guards[cuda] = before or guards[meta]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(synchronize=lambda: None))
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        patch.setattr(TorchAdapter, "kernel", judged_kernel(TorchAdapter.kernel))
        with Watched() as watched:
            yield watched
    guards[cuda] = before


def judged_kernel(plain):
    """``TorchAdapter.kernel``, whose kernels compare each result with the plan."""

    def kernel(self, op, shapes, dtype):
        compute = plain(self, op, shapes, dtype)

        def judged(*arrays):
            result = compute(*arrays)
            assert result.device == arrays[0].device
            assert self.dtype_name(result.dtype) == op.result_dtype(dtype)
            if all(map(is_known, shapes)) and is_known(result.shape):
                assert tuple(result.shape) == op.result_shape(shapes), op
                steps = op.result_strides(tuple(arrays[0].shape), arrays[0].stride()) or contiguous(result.shape)
                if not torch._C._functorch.is_functorch_wrapped_tensor(result):  # which hides an axis
                    assert long_steps(result.shape, result.stride()) == long_steps(result.shape, steps), op
            return result

        return judged

    return kernel


def long_steps(shape, steps):
    """The strides of the axes that have more than one index."""
    return [step for size, step in zip(shape, steps) if size > 1] if 0 not in shape else []


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.id)
        for case in cases("quick")
        if case.feature not in VALUES | ONE_THREAD | OFF
        and not any(as_expression(each).match(case.id) for each in (LONG, *TRACED))
    ],
)
def test_on_cuda_each_op_is_what_the_plan_says(mode, case):
    framework = FakeCuda(mode)
    subject = Subject("torch", framework.version, framework, DEVICE, einsumx.einsum, is_einsumx=True)
    mode.is_watching = case.feature not in HOST
    try:
        report(run(subject, [case]))
    finally:
        mode.is_watching = False


@pytest.mark.parametrize(
    "step",
    [
        lambda array: array.cpu(),
        lambda array: array.to("cuda:0"),
        lambda array: torch.ones(2),
        lambda array: torch.as_tensor(2.0, device=DEVICE),
        lambda array: float(array.sum()),
        lambda array: bool(array.any()),
        lambda array: array.numpy(),
    ],
)
def test_the_watch_notices_the_host_other_devices_and_questions_for_values(mode, step):
    array = FakeCuda(mode).array(np.ones((2, 3)), "float32", DEVICE)
    mode.is_watching = True
    try:
        with pytest.raises((AssertionError, RuntimeError)):
            step(array)
    finally:
        mode.is_watching = False


def test_nothing_is_read_or_timed_while_a_graph_is_captured(mode, monkeypatch):
    array = FakeCuda(mode).array(np.ones(3), "float32", DEVICE)
    for is_captured in (False, True):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda is_captured=is_captured: is_captured)
        assert ADAPTER.has_values(array) is not is_captured


def test_a_kernel_with_another_dtype_shape_or_order_than_the_plan_is_noticed(mode):
    array = FakeCuda(mode).array(np.ones((2, 3)), "float32", DEVICE)
    for wrong in (array.double(), array[:1], array.mT.contiguous().mT):
        kernel = judged_kernel(lambda *_, wrong=wrong: lambda array: wrong)(
            ADAPTER, Copy(1, 0, ""), [(2, 3)], "float32"
        )
        with pytest.raises(AssertionError):
            kernel(array)
