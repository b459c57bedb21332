"""PyData's sparse: COO and GCXS, also together with NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from einsumx.adapters.base import Adapter, Array, Run, Signature
from einsumx.adapters.facets import Arithmetic, Exponents
from einsumx.adapters.operand_types import dtype_error, wrong_type_error
from einsumx.adapters.registry import get_backend
from einsumx.dtypes import kind as dtype_kind
from einsumx.errors import BackendError
from einsumx.imports import LazyModule, imported
from einsumx.ir import ops
from einsumx.ir.fill import nnz_class
from einsumx.ir.operand import Operand
from einsumx.ir.parse import symbol
from einsumx.ir.program import Program
from einsumx.ir.rates import Rates
from einsumx.ir.traits import INTEGERS, Traits

if TYPE_CHECKING:
    import einsumx.backends.sparse.kernels as kernels
else:
    kernels = LazyModule("einsumx.backends.sparse.kernels")

_COMPUTED = INTEGERS | {"bool", "float32", "float64", "complex64", "complex128"}

TRAITS = Traits(
    arrays="einsum",  # by a kernel here, which merges axes itself
    views=False,
    native_dtypes=_COMPUTED,
    native_any_labels=True,
    dtypes=_COMPUTED | {"float16"},
    matmul_dtypes=_COMPUTED,
    widen=(("float16", "float32"),),
    rates=Rates(call=5e-5, view=1e-5, gemm=4e8, stream=2e9, copy=2e9, permute=1e9),
)


class SparseExponents(Exponents):
    """The largest of the stored elements."""

    def magnitudes(self, array: Array) -> Any:
        return kernels.as_elements(array).data if isinstance(array, self.xp.SparseArray) else array


class SparseArithmetic(Arithmetic):
    """Arithmetic of the stored elements."""

    def scaled(self, array: Array, factor: Any, dtype: str) -> Array:
        array = self.as_dtype(array, dtype)
        with self.adapter._np.errstate(all="ignore"):
            values = array.data * self.adapter._np.asarray(factor, array.dtype)
        scaled = array.copy()
        scaled.data = values
        if array.fill_value:  # an array without axes may have its value there
            scaled.fill_value = array.dtype.type(array.fill_value * factor)
        return scaled

    def combined(self, alpha: Any, result: Array, beta: Any, values: Array, dtype: str) -> Array:
        total = super().combined(alpha, result, beta, values, dtype)
        return self.xp.GCXS(total) if isinstance(result, self.xp.GCXS) and total.shape else total


class SparseAdapter(Adapter):
    """COO and GCXS arrays with a fill value of 0; DOK becomes COO.

    Results are sparse: GCXS if all sparse operands with axes are, otherwise COO, as those of ``sparse.einsum``. Within
    a plan, sparse arrays are COO, and NumPy's stay what they are until a product with a sparse one.
    """

    name = "sparse"
    module = "sparse"
    import_statement = "import sparse"
    install = "pip install sparse"
    cpu = TRAITS
    device_kinds = ("cpu",)
    measured_plans = False  # of one class of densities, plans have nothing else to choose
    blocks = None
    arithmetic = cached_property(SparseArithmetic)
    exponents = cached_property(SparseExponents)
    missing = MappingProxyType(
        {
            "blocks": (
                "the number of elements that a sparse result stores is not known before, so memory_limit= is not "
                "supported; omit it"
            ),
            "semirings": (
                "the elements that it does not store are 0, which is the zero of no other semiring than 'max-times'; "
                "contract x.todense()"
            ),
        }
    )

    def has_values(self, array: Array) -> bool:
        return True

    # -- which arrays -----------------------------------------------------------------------------------

    def check_type(self, kind: type) -> None:
        if not issubclass(kind, self.xp.SparseArray):
            raise wrong_type_error(kind, "sparse.COO and sparse.GCXS")

    def is_plain(self, kind: type) -> bool:
        return kind in (self.xp.COO, self.xp.GCXS)

    def plain(self, array: Array) -> Array:
        kind = type(array)
        if issubclass(kind, self.xp.SparseArray):
            return array if issubclass(kind, self.xp.COO | self.xp.GCXS) else array.asformat("coo")
        return get_backend("numpy").plain(array)

    def takes_arrays_of(self, other: Adapter) -> bool:
        return other.name == "numpy"

    # -- describing arrays ------------------------------------------------------------------------------

    def signature(self, array: Array) -> Signature:
        kind = type(array)
        if kind is self._np.ndarray:
            return kind, array.shape, array.dtype, None, 0
        shape = array.shape
        # sparse keeps the element of an array without axes as the value of all that it does not store.
        return kind, shape, array.dtype, nnz_class(array.nnz), array.fill_value.item() if shape else 0

    def device_of(self, signature: Signature) -> str:
        return "cpu"

    def operand(self, signature: Signature) -> Operand:
        _, shape, dtype, nnz, fill = signature
        if fill != 0:
            raise BackendError(
                f"its fill value is {fill}, and einsum takes sparse arrays whose fill value is 0; "
                "sparse.COO.from_numpy(x.todense()) makes one, with memory for all elements"
            )
        return Operand(tuple(shape), self.dtype_name(dtype), nnz=nnz)

    def dtype_name(self, dtype: Any) -> str:
        return _dtype_name(dtype)

    def dtype(self, name: str) -> Any:
        return get_backend("numpy").dtype(name)

    def promote(self, dtypes: Sequence[str]) -> str:
        return get_backend("numpy").promote(dtypes)

    @cached_property
    def _np(self) -> Any:
        return import_module("numpy")

    # -- from Python and from NumPy, and back -------------------------------------------------------------

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        if like is None:
            return self.from_numpy(value)
        if isinstance(value, list | tuple):
            return self._np.asarray(value)
        return self._np.asarray(value, self._np.result_type(self.dtype(dtype), value))  # Python's numbers adopt it

    def from_numpy(self, array: Any, device: str = "") -> Array:
        return kernels.as_elements(self.xp.COO.from_numpy(self._np.asarray(array)))

    def to_numpy(self, array: Array) -> Any:
        return array.todense() if isinstance(array, self.xp.SparseArray) else array

    # -- primitives -------------------------------------------------------------------------------------

    def kernel(self, op: ops.Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        if dtype == "float16" and op.effect == "work":  # numba has none; a plan uses it only where it rounds once
            run = self.kernel(op, shapes, "float32")
            return lambda *sources: self.cast(
                run(*[self.cast(each, "float32") for each in sources]), op.result_dtype(dtype)
            )
        match op:
            case ops.Native() if len(op.terms) == 1:
                return kernels.contraction(op.terms[0], op.output, shapes[0])
            case ops.Native():
                return kernels.contraction_of_pair(op.terms, op.output, dict(op.by_letter(shapes)))
            case ops.Transpose():
                letters = _letters(len(shapes[0]))
                return kernels.contraction("".join(letters), "".join([letters[axis] for axis in op.axes]), shapes[0])
            case ops.Sum():
                letters = _letters(len(shapes[0]))
                kept = [letter for axis, letter in enumerate(letters) if axis not in op.axes]
                return kernels.contraction("".join(letters), "".join(kept), shapes[0])
            case ops.Diagonal():
                letters = _letters(len(shapes[0]))
                letters[op.axis2] = letters[op.axis1]
                kept = [letter for letter in letters if letter != letters[op.axis1]]
                return kernels.contraction("".join(letters), "".join([*kept, letters[op.axis1]]), shapes[0])
            case ops.Multiply():
                return self._multiplication(*shapes)
            case _:
                return super().kernel(op, shapes, dtype)

    def _multiplication(self, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> Callable[[Array, Array], Array]:
        """The function that multiplies arrays of two shapes, which broadcast."""
        rank = max(len(lhs), len(rhs))
        letters = _letters(rank)
        both = [(1,) * (rank - len(shape)) + shape for shape in (lhs, rhs)]
        shape = tuple(map(max, *both)) if rank else ()
        terms = ["".join([letter for letter, size, full in zip(letters, own, shape) if size == full]) for own in both]
        reshaped = [tuple([size for size, full in zip(own, shape) if size == full]) for own in both]
        multiply = kernels.contraction_of_pair(terms, "".join(letters), dict(zip(letters, shape)))
        return lambda first, second: multiply(self.reshape(first, reshaped[0]), self.reshape(second, reshaped[1]))

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        return array.transpose(axes)

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array if array.shape == shape else kernels.as_elements(array).reshape(shape)

    def copy(self, array: Array) -> Array:
        return array.copy()

    def cast(self, array: Array, dtype: str) -> Array:
        if array.dtype.kind == "c" and dtype_kind(dtype) not in "bc":
            array = array.real
        with self._np.errstate(all="ignore"):
            return array.astype(self.dtype(dtype))

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        return array.any(axis=axes) if array.dtype == bool else array.sum(axis=axes, dtype=array.dtype)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        return self._multiplication(lhs.shape, rhs.shape)(lhs, rhs)

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        return self.xp.zeros(shape, dtype=self.dtype(dtype))

    def prepare(self, run: Run, program: Program) -> Run:
        gcxs, sparse_array, coo, np = self.xp.GCXS, self.xp.SparseArray, self.xp.COO, self._np

        def run_sparse(*operands: Array) -> Any:
            with np.errstate(all="ignore"):
                result = run(*operands)
            if isinstance(result, list):  # values for the rest of a plan
                return result
            if isinstance(result, tuple):
                mantissa, exponent = result
                return finished(mantissa, operands), exponent
            return finished(result, operands)

        def finished(result: Array, operands: Sequence[Array]) -> Array:
            if isinstance(result, np.ndarray):  # no operand is sparse
                return kernels.as_elements(coo.from_numpy(result))
            kinds = {type(each) for each in operands if isinstance(each, sparse_array) and each.shape}
            result = kernels.as_elements(result)
            is_gcxs = program.shape and kinds == {gcxs} and result.dtype != np.float16  # which GCXS does not take
            return kernels.as_gcxs(result) if is_gcxs else result

        return run_sparse

    def public_class(self) -> type[Adapter]:
        public: type[Adapter] = imported("einsumx.backends.sparse.source").PublicSparse
        return public


def _letters(count: int) -> list[str]:
    return [symbol(number) for number in range(count)]


def _dtype_name(dtype: Any) -> str:
    name: str = get_backend("numpy").dtype_name(dtype)
    if name not in TRAITS.dtypes:  # type: ignore[operator]
        raise dtype_error("sparse", name)
    return name


ADAPTER = SparseAdapter()
