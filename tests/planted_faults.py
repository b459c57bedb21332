"""Adapters with one fault each, that the conformance suite must find."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from einsumx.adapters.base import Adapter
from einsumx.adapters.facets import Exponents, Semirings
from einsumx.backends.array_api import ArrayApiAdapter
from einsumx.backends.jax import JaxAdapter
from einsumx.backends.numpy import NumpyAdapter
from einsumx.backends.numpy.adapter import TRAITS as NUMPY
from einsumx.backends.numpy.parts import NumpyArithmetic, NumpyNames, NumpyOrders, NumpyOut
from einsumx.backends.numpy.semirings import NumpySemirings
from einsumx.backends.torch import TorchAdapter
from einsumx.backends.torch.adapter import CPU as TORCH
from einsumx.backends.torch.semirings import TorchSemirings


@dataclass(frozen=True)
class Fault:
    """An adapter with a fault, named after it, and what must show it.

    Attributes:
        adapter: the faulty adapter.
        feature: the feature that must show it.
        says: words of what must be said.
        cases: a pattern of the feature's cases that are tried, until one shows it.
    """

    adapter: type[Adapter]
    feature: str
    says: str
    cases: str

    def __str__(self):
        return self.adapter.__name__


FAULTS: list[Fault] = []


def fault(feature, says="", cases="*"):
    """Add an adapter to the list."""

    def add(adapter):
        FAULTS.append(Fault(adapter, feature, says, cases))
        return adapter

    return add


class Faceted:
    """Adapters whose facets are of classes that they define: ``Out`` is the class of ``out``."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in ("out", "arithmetic", "orders", "exponents", "semirings"):
            if kind := vars(cls).get(name.capitalize()):
                setattr(cls, name, cached_property(kind))
                getattr(cls, name).__set_name__(cls, name)


class Numpy(Faceted, NumpyAdapter):
    """NumPy by its primitives alone, with neither the native kernel nor kernels chosen by size; without a fault."""

    cpu = replace(NUMPY, native_dtypes=frozenset())
    kernel = Adapter.kernel


class Torch(Faceted, TorchAdapter):
    """PyTorch by its primitives alone; without a fault."""

    kernel = Adapter.kernel

    def traits(self, device):
        return TORCH


FAULTLESS = [Numpy, Torch, ArrayApiAdapter, JaxAdapter]


# -- where elements go ----------------------------------------------------------------------------------------------


@fault("forms", "the shape is")
class TransposeByTheInversePermutation(Numpy):
    def transpose(self, array, axes):
        return array.transpose(np.argsort(axes))


@fault("order of writing")
class TransposeThatKeepsTheFirstTwoAxesOfSquareArrays(Numpy):
    def transpose(self, array, axes):
        found = array.transpose(axes)
        kept = (1, 0, *range(2, found.ndim))
        return found.transpose(kept) if found.ndim > 2 and len({*found.shape[:2]}) == 1 else found[::-1]


@fault("forms", "element")
class BatchAxisPermuted(Numpy):
    def matmul(self, lhs, rhs, transpose_lhs, transpose_rhs):
        found = np.matmul(lhs, rhs)
        return found[::-1] if found.ndim > 2 else found


@fault("diagonals", "element")
class LostDiagonal(Numpy):
    def diagonal(self, array, axis1, axis2):
        return np.moveaxis(array, (axis1, axis2), (-2, -1))[..., 0, :]


@fault("broadcasting", "element")
class ForgottenBroadcast(Numpy):
    def multiply(self, lhs, rhs):
        found = np.zeros(np.broadcast_shapes(lhs.shape, rhs.shape), lhs.dtype)
        lhs, rhs = [array.reshape((1,) * (found.ndim - array.ndim) + array.shape) for array in (lhs, rhs)]
        common = tuple(slice(min(pair)) for pair in zip(lhs.shape, rhs.shape))
        found[common] = lhs[common] * rhs[common]
        return found


@fault("layouts", "element")
class StridesIgnoredByACopy(Numpy):
    def copy(self, array):
        return array.ravel(order="K").reshape(array.shape)


@fault("layouts", "element")
class PendingConjugationDropped(Torch):
    def is_plain(self, kind):
        return False

    def plain(self, array):
        return array.conj() if array.is_conj() else array


@fault("zero sizes", "element")
class SumOverNothingThatIsOne(Numpy):
    def zeros(self, arrays, shape, dtype):
        return np.ones_like(super().zeros(arrays, shape, dtype))


@fault("larger sizes", "element")
class MatmulThatIsWrongFromACertainSizeOn(Numpy):
    def matmul(self, lhs, rhs, transpose_lhs, transpose_rhs):
        blocks = [np.matmul(lhs[..., k : k + 16], rhs[..., k : k + 16, :]) for k in range(0, max(lhs.shape[-1], 1), 16)]
        return np.asarray(sum(blocks[:1]), blocks[0].dtype)


# -- numbers --------------------------------------------------------------------------------------------------------


@fault("accuracy", "element")
class MatmulOfFloat64InFloat32(Numpy):
    def matmul(self, lhs, rhs, transpose_lhs, transpose_rhs):
        return np.matmul(lhs.astype("float32"), rhs.astype("float32")).astype(lhs.dtype)


@fault("accuracy", "element")
class MatmulOfFloat32InBfloat16(Torch):
    def matmul(self, lhs, rhs, transpose_lhs, transpose_rhs):
        if lhs.dtype != self.xp.float32:
            return super().matmul(lhs, rhs, transpose_lhs, transpose_rhs)
        return super().matmul(lhs.bfloat16().float(), rhs.bfloat16().float(), transpose_lhs, transpose_rhs)


@fault("half precision", "element")
class HalfPrecisionAccumulatedInHalfPrecision(Numpy):
    cpu = replace(Numpy.cpu, widen=(), matmul_dtypes=Numpy.cpu.matmul_dtypes | {"float16"})

    def sum(self, array, axes):
        return np.add.accumulate(array.reshape(-1))[-1:].reshape(()) if array.ndim == 1 else super().sum(array, axes)


@fault("accumulators", "element")
class AccumulatorThatIsNoWider(Numpy):
    def cast(self, array, dtype):
        return super().cast(array, "float32" if (array.dtype, dtype) == ("float32", "float64") else dtype)


@fault("argmax", "the positions attain")
class PositionsOfTheLargestWhereTheLeastCounts(Numpy):
    class Semirings(NumpySemirings):
        def best(self, array, is_least):
            return super().best(array, is_least=False)


@fault("argmax", "the positions attain")
class PositionsOfTheFirstBlockInEachBlock(Numpy):
    class Semirings(NumpySemirings):
        def places(self, start, stop, like):
            return super().places(0, stop - start, like)


@fault("accumulators", "element")
class NarrowIntegersSummedInFloat32WhateverTheirNumber(Numpy):
    def matmul(self, lhs, rhs, transpose_lhs, transpose_rhs):
        if lhs.dtype != "int32":
            return np.matmul(lhs, rhs)
        total = np.zeros((), "float32")
        for k in range(lhs.shape[-1]):
            total = total + lhs[..., k : k + 1].astype("float32") * rhs[..., k : k + 1, :].astype("float32")
        return total.astype("int64").astype(lhs.dtype)


@fault("exponents", "zeros have the exponent", "* zeros")
class ZerosWithTheExponentsOfTheirFactors(Numpy):
    class Exponents(Exponents):
        def magnitudes(self, array):
            return array if array.any() else 0.5


@fault("exponents", "not in [0.5, 1)")
class ExponentOfTheFirstElement(Numpy):
    class Exponents(Exponents):
        def magnitudes(self, array):
            return array.reshape(-1)[:1]


@fault("exponents", "element")
class SmallNumbersThatAreNotScaled(Numpy):
    class Exponents(Exponents):
        def times_factor(self, array, factor, dtype, is_new):
            return super().times_factor(array, min(factor, 1.0), dtype, is_new)


@fault("accumulators", "element")
class SumsOfInt8ThatSaturateIn16Bits(Numpy):
    def kernel(self, op, shapes, dtype):
        product = super().kernel(op, shapes, dtype)
        return (lambda lhs, rhs: product(lhs, rhs).clip(-(2**15), 2**15 - 1)) if getattr(op, "sums", "") else product


@fault("integers", "element")
class Int64ProductsComputedInFloat64(Numpy):
    def matmul(self, lhs, rhs, transpose_lhs, transpose_rhs):
        if lhs.dtype != "int64":
            return np.matmul(lhs, rhs)
        return np.matmul(lhs.astype("float64"), rhs.astype("float64")).astype(lhs.dtype)


@fault("integers", "element")
class IntegersThatSaturateInPlaceOfWrapping(Numpy):
    def sum(self, array, axes):
        if array.dtype.kind not in "iu":
            return super().sum(array, axes)
        info = np.iinfo(array.dtype)
        return np.asarray(np.clip(array.astype(object).sum(axes), info.min, info.max), array.dtype)


@fault("integers", "the dtype")
class SumsOfSmallIntegersThatWiden(Numpy):
    def sum(self, array, axes):
        return array.sum(axes)


@fault("bool", "element")
class OrThatCountsInAByte(Numpy):
    def sum(self, array, axes):
        if array.dtype != bool:
            return super().sum(array, axes)
        return array.sum(axes, "uint8").astype(bool)


@fault("inf and nan", "element")
class NanTakenForNothing(Numpy):
    def sum(self, array, axes):
        return np.nansum(array, axes) if array.dtype.kind == "f" else super().sum(array, axes)


@fault("promotion", "the dtype")
class PromotionToTheWidestFloat(Numpy):
    def promote(self, dtypes):
        return "float64" if len({*dtypes}) > 1 else super().promote(dtypes)


@fault("same bits")
class LastBitLeftToChance(Numpy):
    calls = 0

    def matmul(self, lhs, rhs, transpose_lhs, transpose_rhs):
        self.calls += 1
        return np.matmul(lhs, rhs) * lhs.dtype.type(1 + self.calls % 2 * np.finfo(lhs.dtype).eps)


# -- results --------------------------------------------------------------------------------------------------------


@fault("out", "element")
class OutOfWhichTheLastElementStaysUnwritten(Numpy):
    class Out(NumpyOut):
        def write(self, out, result):
            kept = out[(-1,) * out.ndim].copy()
            super().write(out, result)
            out[(-1,) * out.ndim] = kept


@fault("out", "element")
class OutThatIsFilledWhileWhatItOverlapsIsRead(Numpy):
    class Out(NumpyOut):
        def write(self, out, result):
            for index in np.ndindex(out.shape):
                out[index] = result[index]


@fault("addeinsum", "element")
class IgnoredAlpha(Numpy):
    class Arithmetic(NumpyArithmetic):
        def combined(self, alpha, result, beta, values, dtype):
            return super().combined(1, result, beta, values, dtype)


@fault("addeinsum", "element")
class FactorThatMultipliesInFloat32(Numpy):
    class Out(NumpyOut):
        def update(self, alpha, result, beta, out, dtype):
            super().update(float(np.float32(alpha)) if dtype == "float64" else alpha, result, beta, out, dtype)


@fault("addeinsum", "element")
class OutThatIsReadAlthoughBetaIsZero(Numpy):
    class Out(NumpyOut):
        def update(self, alpha, result, beta, out, dtype):
            out *= beta
            super().update(alpha, result, 1, out, dtype)


@fault("addeinsum", "element", "* memory limit")
class BlocksThatAreAddedWithoutBeta(Numpy):
    class Arithmetic(NumpyArithmetic):
        def combined(self, alpha, result, beta, values, dtype):
            return super().combined(alpha, result, 1, values, dtype)


@fault("addeinsum", "element")
class FactorsThatAreKeptFromTheFirstCall(Numpy):
    class Out(NumpyOut):
        first = None

        def update(self, alpha, result, beta, out, dtype):
            self.first = self.first or (alpha, beta) if dtype == "float32" and out.shape == (3, 5) else None
            alpha, beta = self.first or (alpha, beta)
            super().update(alpha, result, beta, out, dtype)


@fault("aliasing")
class AliasedResult(Numpy):
    def copy(self, array):
        return array


@fault("forms", "operand 0 was changed")
class OperandThatIsWrittenOver(Numpy):
    def multiply(self, lhs, rhs):
        return np.multiply(lhs, rhs, out=lhs) if lhs.shape == rhs.shape else np.multiply(lhs, rhs)


@fault("views")
class RearrangementThatCopies(Numpy):
    def transpose(self, array, axes):
        return array.transpose(axes).copy()


@fault("order")
class IgnoredMemoryOrder(Numpy):
    class Orders(NumpyOrders):
        def arrange(self, array, order):
            return array


@fault("dtype", "the dtype")
class IgnoredDtype(Numpy):
    def cast(self, array, dtype):
        return array


@fault("wrong out")
class ReadonlyOutThatIsNotRefused(Numpy):
    class Out(NumpyOut):
        def check(self, out, operands):
            pass


@fault("devices", "on the device")
class ResultOnTheWrongDevice(ArrayApiAdapter):
    def matmul(self, lhs, rhs, transpose_lhs, transpose_rhs):
        found = super().matmul(lhs, rhs, transpose_lhs, transpose_rhs)
        return self.xp.asarray(found, device=self.xp.Device("device2"))


@fault("forms", "no array of torch")
class ResultOfAnotherFramework(Torch):
    def matmul(self, lhs, rhs, transpose_lhs, transpose_rhs):
        return super().matmul(lhs, rhs, transpose_lhs, transpose_rhs).numpy()


@fault("wrong operands")
class MaskedArraysTreatedAsPlainOnes(Numpy):
    def check_type(self, kind):
        pass


@fault("threads", "element")
class MemoryThatThreadsShare(Numpy):
    memory = np.empty(1 << 20)

    def matmul(self, lhs, rhs, transpose_lhs, transpose_rhs):
        found = np.matmul(lhs, rhs)
        shared = self.memory[: found.size].astype(found.dtype) if found.dtype.kind == "c" else self.memory[: found.size]
        shared[...] = found.ravel()
        threading.Event().wait(0.002)  # long enough for the others to come
        return shared.reshape(found.shape).astype(found.dtype)


# -- semirings ------------------------------------------------------------------------------------------------------


class ByDefault(NumpyNames):
    """NumPy's functions of semirings, by those that every backend has."""

    def elementwise(self, name, lhs, rhs):
        return np.array(super().elementwise(name, lhs, rhs), order="C")

    def reduced(self, name, array, axes):
        return np.asarray(super().reduced(name, array, axes))


class NumpyByDefault(Numpy):
    """NumPy by the functions of semirings that every backend has; without a fault."""

    Semirings = ByDefault


FAULTLESS.append(NumpyByDefault)


@fault("semirings", "element")
class LogarithmsWithoutAShift(Numpy):
    class Semirings(ByDefault):
        def named(self, name):
            zeros = lambda array, axis, keepdims: np.zeros_like(np.max(array, axis=axis, keepdims=keepdims))  # noqa: E731
            return zeros if name == "max" else super().named(name)


@fault("semirings", "element")
class UnderflowTakenForMinusInfinity(Numpy):
    class Semirings(ByDefault):
        def named(self, name):
            return (lambda _: True) if name == "all" else super().named(name)


@fault("semirings", "element")
class ZeroThatIsThatOfPlusAndTimes(Numpy):
    class Arithmetic(NumpyArithmetic):
        def number(self, value, dtype, like):
            return super().number(value if np.isfinite(value) else 0.0, dtype, like)


@fault("semirings", "element")
class BlocksThatAreAddedInsteadOfCompared(Numpy):
    class Semirings(NumpySemirings):
        def elementwise(self, name, lhs, rhs):
            return super().elementwise("add" if name == "minimum" else name, lhs, rhs)


@fault("semirings", "element")
class BlocksOfLogarithmsOfWhichTheLargerIsKept(Numpy):
    class Semirings(NumpySemirings):
        def elementwise(self, name, lhs, rhs):
            return super().elementwise("maximum" if name == "logaddexp" else name, lhs, rhs)


@fault("semirings", "element")
class ThreadsWhoseTotalsOverwriteEachOther(Numpy):
    class Semirings(NumpySemirings):
        def product(self, add, multiply, lhs, rhs, dtype):
            half = rhs[1] // 2 if rhs[1] > 16 else 0  # shared by two threads if it is long
            shapes = (*lhs[:2], lhs[2] - half), (rhs[0], rhs[1] - half, rhs[2])
            product = super().product(add, multiply, *shapes, dtype)
            return lambda left, right: product(left[:, :, half:], right[:, half:])


@fault("semirings", "element")
class NanThatAMaximumIgnores(Numpy):
    class Semirings(ByDefault):
        def reduced(self, name, array, axes):
            functions = {"maximum": np.fmax, "minimum": np.fmin}
            return functions[name].reduce(array, axis=axes) if name in functions else super().reduced(name, array, axes)


@fault("semirings", "element")
class LogarithmsInHalfPrecision(Numpy):
    cpu = replace(Numpy.cpu, widen=())


@fault("semirings", "no error came")
class IntegersThatAreTakenForNumbersWithInfinities(Numpy):
    def dtype_name(self, dtype):
        name = super().dtype_name(dtype)
        return "float64" if name == "int32" else name

    def signature(self, array):
        return super().signature(array.astype("float64") if array.dtype == "int32" else array)


class ByTerms(TorchSemirings):
    """PyTorch's functions, and a broadcast and a reduction."""

    def product(self, add, multiply, lhs, rhs, dtype):
        def product(left, right):
            terms = self.elementwise(multiply, left[:, :, :, None], right[:, None])
            return self.reduced(add, terms, (2,))

        return product


class TorchByTerms(Torch):
    """PyTorch by a broadcast and a reduction; without a fault."""

    Semirings = ByTerms


FAULTLESS.append(TorchByTerms)


@fault("semirings", "the gradient by operand", "* gradients of ties")
class TiesThatAllHaveTheWholeGradient(Torch):
    class Semirings(ByTerms):
        def reduced(self, name, array, axes):
            found = super().reduced(name, array.detach(), axes)
            attains = array.detach() == found.reshape(
                [1 if axis in axes else size for axis, size in enumerate(array.shape)]
            )
            return found + (attains * (array - array.detach()).nan_to_num()).sum(axes)


class LogsByTerms(ByTerms):
    """The same, with a log-sum-exp of its own."""

    def reduced(self, name, array, axes):
        return self.log_sum(array, axes) if name == "logaddexp" else super().reduced(name, array, axes)


@fault("semirings", "the gradient by operand", "* gradients of minus infinities")
class DerivativeOfTheLogarithmAtZero(Torch):
    class Semirings(LogsByTerms):
        def log_sum(self, array, axes):
            shift = array.detach().amax(axes, keepdim=True).nan_to_num(neginf=0.0)
            total = (array - shift).exp().sum(axes)
            return total.log() + shift.reshape(total.shape)


@fault("semirings", "the gradient by operand", "* in log gradients")
class WeightsThatAreNotNormalized(Torch):
    class Semirings(LogsByTerms):
        def log_sum(self, array, axes):
            found = Semirings.reduced(self, "logaddexp", array.detach(), axes)
            return found + (array.exp() - array.exp().detach()).sum(axes)


# -- derivatives and tracing ----------------------------------------------------------------------------------------


@fault("gradients", "the gradient by operand")
class WrongGradient(Torch):
    def multiply(self, lhs, rhs):
        return lhs * rhs + (rhs - rhs.detach())


def product(torch, derivatives):
    """A matmul whose derivatives by both operands are what a function makes of its cotangent and of them."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, lhs: Any, rhs: Any) -> Any:
            context.save_for_backward(lhs, rhs)
            return lhs @ rhs

        @staticmethod
        def backward(context: Any, found: Any) -> Any:
            return derivatives(found, *context.saved_tensors)

    return Product.apply


@fault("gradients", "the gradient by operand")
class GradientWithoutItsConjugate(Torch):
    def matmul(self, lhs, rhs, transpose_lhs, transpose_rhs):
        return product(self.xp, lambda found, lhs, rhs: (found @ rhs.mT, lhs.mT @ found))(lhs, rhs)


@fault("second order")
class GradientThatCannotBeDifferentiatedAgain(Torch):
    def matmul(self, lhs, rhs, transpose_lhs, transpose_rhs):
        detached = product(self.xp, lambda found, lhs, rhs: (found @ rhs.detach().mH, lhs.detach().mH @ found))
        return detached(lhs, rhs)


@fault("compile", "raised")
class ValueThatIsAskedForWhileAGraphIsRecorded(Torch):
    def matmul(self, lhs, rhs, transpose_lhs, transpose_rhs):
        assert lhs.sum().item() != 0
        return super().matmul(lhs, rhs, transpose_lhs, transpose_rhs)


@fault("jit", "raised")
class ValuesThatAreReadWhileAFunctionIsTraced(JaxAdapter):
    def kernel(self, op, shapes, dtype):
        run = super().kernel(op, shapes, dtype)
        return lambda *arrays: run(*[self.xp.asarray(np.asarray(array)) for array in arrays])

    def prepare(self, run, plan):
        return run


@fault("autocast", "the dtype")
class DtypesThatDependOnTheOpsOfAPlan(Torch):
    is_mode_set = None

    def planning_mode(self, device):
        return None


@fault("autocast", "the dtype", "* dtype=float32 *")
class KernelsThatAutocastCasts(Torch):
    def prepare(self, run, program):
        return run


@fault("unknown sizes", "raised")
class SymbolThatIsMadeANumber(Torch):
    def signature(self, array):
        kind, _, dtype, device, _ = super().signature(array)
        return kind, tuple(map(int, array.shape)), dtype, device, tuple(map(int, array.stride()))


@fault("unknown sizes", "sizes that contradict the equation", "* unequal")
class UnequalSizesThatNobodyNotices(Torch):
    def with_size(self, array, axis, size, message):
        return array
