"""Arrays and functions of the fake of CuPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from cupy import cuda, fake


class ndarray:  # noqa: N801  # CuPy's name
    """An array on a device; its values are there when the work of its stream is done."""

    __array_priority__ = 100  # as CuPy's

    def __init__(self, shape: Sequence[int], dtype: Any = float, *, host: Any = None, memory: Any = None) -> None:
        if host is None:
            dtype = np.dtype(dtype)
            if dtype.kind not in "?biufc":
                raise ValueError(f"Unsupported dtype {dtype}")
            memory = fake.Memory(prod(shape) * dtype.itemsize)
            host = memory.buffer[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        self._host, self._memory = host, memory

    def _view(self, host: Any) -> ndarray:
        return ndarray((), host=host, memory=self._memory)

    shape = property(lambda self: self._host.shape)
    strides = property(lambda self: self._host.strides if self.size else (0,) * self.ndim)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    itemsize = property(lambda self: self._host.itemsize)
    real = property(lambda self: self._view(self._host.real))
    imag = property(lambda self: self._view(self._host.imag))
    T = property(lambda self: self._view(self._host.T))
    device = property(lambda self: cuda.Device(self._memory.device))

    @property
    def flags(self) -> Any:
        flags = self._host.flags
        return SimpleNamespace(c_contiguous=flags.c_contiguous, f_contiguous=flags.f_contiguous)

    @property
    def data(self) -> cuda.MemoryPointer:
        start = self._memory.buffer.ctypes.data
        return cuda.MemoryPointer(self._memory, self._host.ctypes.data - start)

    def __array__(self, *args: object, **kwargs: object) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_function__(self, *args: object) -> Any:
        return NotImplemented

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return function(ufunc.__name__)(*inputs, **kwargs)

    def get(self) -> Any:
        value = np.empty(self.shape, self.dtype)
        queue = fake.queue(self._memory.device)
        queue.add(partial(np.copyto, value, self._host))
        queue.run()
        fake.counts.fetched += value.nbytes
        return value

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __len__(self) -> int:
        return len(self._host)

    def item(self) -> Any:
        return self.get().item()

    def transpose(self, *axes: Any) -> ndarray:
        return self._view(self._host.transpose(*axes))

    def swapaxes(self, axis1: int, axis2: int) -> ndarray:
        return self._view(self._host.swapaxes(axis1, axis2))

    def reshape(self, *shape: Any) -> ndarray:
        view = self._host.reshape(*shape)
        if not self.size or np.may_share_memory(view, self._host):
            return self._view(view)
        return _silently(f"reshape to {view.shape}", self, view.shape)

    def ravel(self) -> ndarray:
        return self.reshape(-1)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ndarray:
        view = self._host.diagonal(offset, axis1, axis2)
        view.flags.writeable = True
        return self._view(view)

    def copy(self, order: str = "C") -> ndarray:
        if self._memory.device != fake.device() and self.size:
            if not (self._host.flags.c_contiguous or self._host.flags.f_contiguous):
                raise NotImplementedError("CuPy cannot copy non-contiguous array between devices.")
            return _run(partial(np.copy, order="K"), [self], check_device=False, order="K")
        return _run(partial(np.copy, order=order), [self], order=order)

    def astype(self, dtype: Any, order: str = "K", casting: Any = None, copy: bool = True) -> ndarray:
        if not copy and self.dtype == dtype:
            return self
        return _run(lambda array: array.astype(dtype, order=order), [self], order=order)

    def __getitem__(self, index: Any) -> ndarray:
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, ndarray) for part in parts):
            arrays = [self, *[part for part in parts if isinstance(part, ndarray)]]
            places = [at for at, part in enumerate(parts) if isinstance(part, ndarray)]

            def taken(array: Any, *indices: Any) -> Any:
                full = list(parts)
                for at, each in zip(places, indices):
                    full[at] = each
                return array[tuple(full)]

            return _run(taken, arrays)
        view = self._host[index]
        return self._view(view if isinstance(view, np.ndarray) else self._host[(*parts, ...)])

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        _copyto(self[index], value, casting="unsafe")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in fake.NAMES["methods"]:
            raise AttributeError(f"'ndarray' object has no attribute '{name}'")
        numpy = getattr(np.ndarray, name)
        return _checked(f"ndarray.{name}", fake.NAMES["methods"][name][1:], partial(_apply, numpy, self))


def _operator(name: str, is_reversed: bool = False) -> Callable[..., ndarray]:
    def operate(self: ndarray, *others: Any) -> ndarray:
        return function(name)(*([*others, self] if is_reversed else [self, *others]))

    return operate


for _symbol, _name in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power",
}.items():  # fmt: skip
    setattr(ndarray, f"__{_symbol}__", _operator(_name))
    setattr(ndarray, f"__r{_symbol}__", _operator(_name, is_reversed=True))
for _symbol, _name in {
    "neg": "negative", "invert": "invert", "abs": "absolute", "gt": "greater", "lt": "less", "ge": "greater_equal",
    "le": "less_equal", "eq": "equal", "ne": "not_equal", "and": "bitwise_and", "or": "bitwise_or", "matmul": "matmul",
}.items():  # fmt: skip
    setattr(ndarray, f"__{_symbol}__", _operator(_name))
ndarray.__hash__ = None  # type: ignore[assignment]  # as arrays that compare by elements


# -- kernels --------------------------------------------------------------------------------------------------------


def _run(
    compute: Callable[..., Any], arrays: Sequence[ndarray], check_device: bool = True, order: str = "C", out: Any = None
) -> ndarray:
    """Queue a kernel of these arrays, whose result is a new array or ``out``."""
    if check_device:
        _check_devices([*arrays, *([] if out is None else [out])])
    with np.errstate(all="ignore"):
        # Zeros show which shape and dtype the values will have.
        model = np.asarray(compute(*[_zeros(array._host) for array in arrays]))
    if out is None:
        out = ndarray(model.shape, model.dtype)
        if order in "KFA" and model.ndim > 1 and not model.flags.c_contiguous:
            axes = sorted(range(model.ndim), key=lambda axis: -model.strides[axis])
            packed = ndarray([model.shape[axis] for axis in axes], model.dtype)
            out = packed.transpose([axes.index(axis) for axis in range(model.ndim)])
    hosts, target = [array._host for array in arrays], out._host
    moved = sum(_stored(host) for host in hosts) + target.nbytes
    fake.launch(lambda: np.copyto(target, compute(*hosts), casting="unsafe"), moved)
    return out


def _zeros(host: Any) -> Any:
    """Zeros with the same strides, where that matters to a copy."""
    zeros = np.zeros(host.shape, host.dtype)
    if zeros.strides == host.strides or 0 in host.shape:
        return zeros
    axes = sorted(range(host.ndim), key=lambda axis: -abs(host.strides[axis]))
    packed = np.zeros([host.shape[axis] for axis in axes], host.dtype)
    return packed.transpose([axes.index(axis) for axis in range(host.ndim)])


def _stored(host: Any) -> int:
    """The bytes of an array, without repetitions."""
    return prod(size for size, stride in zip(host.shape, host.strides) if stride or size == 0) * host.itemsize


def _check_devices(arrays: Sequence[ndarray]) -> None:
    here = fake.device()
    for array in arrays:
        if array._memory.device != here and array.size:
            raise ValueError(
                f"The device where the array resides ({array._memory.device}) is different from the current device "
                f"({here}). Peer access is unavailable between these devices."
            )


def _checked(name: str, parameters: Sequence[str], call: Callable[..., Any]) -> Callable[..., Any]:
    """``call`` with the parameters that CuPy's function has, and no others."""
    own = [parameter for parameter in parameters if parameter != "*"]

    def checked(*args: Any, **kwargs: Any) -> Any:
        wrong = [keyword for keyword in kwargs if keyword not in own]
        if wrong:
            raise TypeError(f"cupy.{name}: Wrong arguments {wrong}")
        if "*" not in parameters and len(args) > len(own):
            raise TypeError(f"cupy.{name} takes {len(own)} arguments, not {len(args)}")
        return call(*args, **kwargs)

    return checked


def _apply(numpy: Callable[..., Any], *args: Any, out: Any = None, **kwargs: Any) -> Any:
    """NumPy's function of the same name, of arrays anywhere in its arguments."""
    arrays: list[ndarray] = []
    places = [_place(each, arrays) for each in args]
    keywords = {name: _place(each, arrays) for name, each in kwargs.items()}

    def compute(*hosts: Any) -> Any:
        return numpy(*[place(hosts) for place in places], **{name: each(hosts) for name, each in keywords.items()})

    return _run(compute, arrays, out=out)


def _place(value: Any, arrays: list[ndarray]) -> Callable[[Sequence[Any]], Any]:
    """A function that finds an argument among the values of ``arrays``, to which it is added if it is one."""
    if isinstance(value, ndarray):
        arrays.append(value)
        number = len(arrays) - 1
        return lambda hosts: hosts[number]
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, list | tuple) and any(isinstance(each, ndarray) for each in value):
        parts = [_place(each, arrays) for each in value]
        return lambda hosts: [part(hosts) for part in parts]
    return lambda hosts: value


def _silently(name: str, array: ndarray, shape: Sequence[int] | None = None, dtype: Any = None) -> ndarray:
    """A C-contiguous copy that CuPy makes by itself."""
    copy = _run(lambda host: np.ascontiguousarray(host, dtype).reshape(host.shape if shape is None else shape), [array])
    fake.counts.silent.append((name, copy.nbytes))
    return copy


# -- functions ------------------------------------------------------------------------------------------------------


def function(name: str) -> Callable[..., Any]:
    """CuPy's function of that name."""
    parameters = fake.NAMES["functions"][name]
    special = _SPECIAL.get(name)
    return _checked(name, parameters, partial(_apply, getattr(np, name)) if special is None else special)


def _asarray(a: Any, dtype: Any = None, order: str | None = None) -> ndarray:
    order = "K" if order is None else order
    if isinstance(a, ndarray):
        if a._memory.device != fake.device():
            a = a.copy(order)
        fits = order in "KA" or (a.flags.c_contiguous if order == "C" else a.flags.f_contiguous)
        return a if fits and (dtype is None or a.dtype == dtype) else a.astype(dtype or a.dtype, order=order)
    # The values of now: CuPy copies them into pinned memory of its own before it returns.
    host = np.array(a, dtype, order=order)
    if any(isinstance(each, ndarray) for each in (a if isinstance(a, list | tuple) else ())):
        raise NotImplementedError("the fake makes no array of a list of arrays")
    turned = not host.flags.c_contiguous and host.flags.f_contiguous
    array = ndarray(host.shape[::-1] if turned else host.shape, host.dtype)
    array = array.T if turned else array
    target = array._host
    fake.launch(lambda: np.copyto(target, host), host.nbytes)
    fake.counts.uploaded += host.nbytes
    return array


def _ascontiguousarray(a: ndarray, dtype: Any = None) -> ndarray:
    _check_devices([a])
    if a.flags.c_contiguous and dtype in (None, a.dtype):
        return a if a.ndim else a.reshape(1)
    return _run(lambda host: np.ascontiguousarray(host, dtype), [a])


def _empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(shape if isinstance(shape, tuple | list) else (shape,), dtype)


def _zeros_of(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    array = _empty(shape, dtype)
    target = array._host
    fake.launch(lambda: target.fill(0), array.nbytes)
    return array


def _copyto(dst: ndarray, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    if isinstance(src, np.ndarray) and src.size != 1:
        raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
    if isinstance(src, ndarray):
        if not np.can_cast(src.dtype, dst.dtype, casting):
            raise TypeError(f"Cannot cast {src.dtype} to {dst.dtype} in {casting} casting mode")
        _run(lambda host: np.broadcast_to(host, dst.shape), [src], out=dst)
    else:
        _run(lambda: np.broadcast_to(np.asarray(src), dst.shape), [], out=dst)


def _may_share_memory(a: ndarray, b: ndarray, max_work: Any = None) -> bool:
    if max_work is not None:
        raise NotImplementedError("Only supported for `max_work` is `None`")
    same = a._memory is b._memory
    return same and bool(np.may_share_memory(a._host, b._host))


def _shares_memory(a: ndarray, b: ndarray, max_work: Any = None) -> bool:
    if max_work not in (None, "MAY_SHARE_EXACT", "MAY_SHARE_BOUNDS"):
        raise NotImplementedError("Not supported for integer `max_work`.")
    return _may_share_memory(a, b)


def _broadcast_to(array: ndarray, shape: Any) -> ndarray:
    return array._view(np.broadcast_to(array._host, shape))


def _dot(a: ndarray, b: ndarray, out: ndarray | None = None) -> ndarray:
    """``dot`` and ``tensordot_core`` of _routines_linalg.pyx, of at most two axes each."""
    if not (a.ndim and b.ndim):
        return _apply(np.multiply, a, b, out=out)
    dtype = np.result_type(a.dtype, b.dtype)
    rows, cols = (a.shape[0] if a.ndim == 2 else 1), (b.shape[1] if b.ndim == 2 else 1)
    if rows == cols == 1 and a.size and b.size:  # the accelerator cub multiplies, and then sums
        a, b = (side if side.flags.c_contiguous else _silently("dot", side) for side in (a, b))
        product = _run(lambda x, y: x.ravel() * y.ravel(), [a, b])
        shape = (*a.shape[:-1], *b.shape[1:])
        return _run(lambda terms: terms.sum(dtype=dtype).reshape(shape), [product], out=out)
    for number, side in enumerate((a, b)):
        flags = side.flags
        is_read = flags.c_contiguous if dtype.kind in "biu" else flags.c_contiguous or flags.f_contiguous
        if (not is_read or side.dtype != dtype) and a.size and b.size:
            side = _silently("dot", side, dtype=dtype)
        a, b = (side, b) if number == 0 else (a, side)
    return _run(partial(_product, dtype), [a, b], out=out)


def _product(dtype: Any, lhs: Any, rhs: Any) -> Any:
    wide = np.dtype("float32") if dtype == "float16" else dtype
    return np.matmul(lhs.astype(wide), rhs.astype(wide)).astype(dtype)


def _matmul(a: ndarray, b: ndarray, out: ndarray | None = None, **keywords: Any) -> ndarray:
    """``matmul`` of _routines_linalg.pyx."""
    for side in (a, b):
        if not isinstance(side, ndarray):
            raise TypeError(f"Unsupported type {type(side)}")
    if not (a.ndim and b.ndim):
        raise ValueError("Scalar operands are not allowed, use '*' instead")
    _check_devices([a, b, *([] if out is None else [out])])
    dtype = np.result_type(a.dtype, b.dtype)
    if out is not None and not (out.flags.c_contiguous and out.dtype == dtype):
        fake.counts.silent.append(("matmul into out", out.nbytes))
    if max(a.ndim, b.ndim) < 3:
        return _dot(a, b, out)
    wide = np.dtype("float32") if dtype == "float16" else dtype
    a, b = (
        side
        if (side.flags.c_contiguous and side.dtype == wide) or not side.size
        else _silently("matmul", side, None, wide)
        for side in (a, b)
    )
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    is_same = all(side.shape[:-2] == batch for side in (a, b))
    addresses = [] if is_same else [ndarray((prod(batch),), np.uintp) for _ in range(3)]  # of matrices: _mat_ptrs()
    product = _run(partial(_product, wide), [a, b], out=None if wide != dtype else out)
    del addresses
    if wide != dtype:
        fake.counts.silent.append(("matmul", product.size * dtype.itemsize))
        return _run(lambda host: host.astype(dtype), [product], out=out)
    return product


def _einsum(equation: str, *operands: ndarray) -> ndarray:
    """The pairs of cupy/linalg/_einsum.py without accelerators, from the last operands to the first."""
    inputs, _, output = equation.partition("->")
    terms = [(list(subscript), array) for subscript, array in zip(inputs.split(","), operands)]
    for at, (labels, array) in enumerate(terms):
        while len(set(labels)) < len(labels):
            label = next(each for each in labels if labels.count(each) > 1)
            first, second = (axis for axis, each in enumerate(labels) if each == label)
            array = array.diagonal(0, first, second)
            labels = [each for each in labels if each != label] + [label]
        others = set(output).union(*[other for number, (other, _) in enumerate(terms) if number != at])
        axes = tuple(axis for axis, label in enumerate(labels) if label not in others)
        if axes:
            array, labels = array.sum(axis=axes), [label for label in labels if label in others]
        terms[at] = labels, array
    while len(terms) > 1:
        (lhs_labels, lhs), (rhs_labels, rhs) = terms.pop(), terms.pop()
        kept = set(output).union(*[labels for labels, _ in terms])
        terms.append(_einsum_pair(lhs_labels, lhs, rhs_labels, rhs, kept))
    ((labels, array),) = terms
    return array.transpose([labels.index(label) for label in output])


def _einsum_pair(
    lhs_labels: list[str], lhs: ndarray, rhs_labels: list[str], rhs: ndarray, kept: set[str]
) -> tuple[list[str], ndarray]:
    shared = sorted(set(lhs_labels) & set(rhs_labels))
    batch, summed = [label for label in shared if label in kept], [label for label in shared if label not in kept]
    rows = sorted(set(lhs_labels) - set(shared))
    cols = sorted(set(rhs_labels) - set(shared))
    sizes = dict(zip(lhs_labels + rhs_labels, lhs.shape + rhs.shape))
    result = [*batch, *rows, *cols]
    if not summed:
        sides = []
        for labels, array in ((lhs_labels, lhs), (rhs_labels, rhs)):
            order = [label for label in result if label in labels]
            turned = array.transpose([labels.index(label) for label in order])
            sides.append(turned.reshape([sizes[label] if label in labels else 1 for label in result]))
        return result, function("multiply")(*sides)

    def flat(labels: list[str], array: ndarray, *groups: list[str]) -> ndarray:
        turned = array.transpose([labels.index(label) for group in groups for label in group])
        return turned.reshape([prod(sizes[label] for label in group) for group in groups])

    product = _matmul(flat(lhs_labels, lhs, batch, rows, summed), flat(rhs_labels, rhs, batch, summed, cols))
    return result, product.reshape([sizes[label] for label in result])


_SPECIAL: dict[str, Callable[..., Any]] = {
    "array": lambda obj, dtype=None, copy=True, order="K": _asarray(obj, dtype, order).copy(order),
    "arange": lambda *args, **kwargs: _asarray(np.arange(*args, **kwargs)),
    "asarray": _asarray,
    "ascontiguousarray": _ascontiguousarray,
    "asnumpy": lambda a: a.get(),
    "broadcast_to": _broadcast_to,
    "copyto": _copyto,
    "dot": _dot,
    "einsum": _einsum,
    "empty": _empty,
    "matmul": _matmul,
    "may_share_memory": _may_share_memory,
    "reshape": lambda a, shape: a.reshape(shape),
    "shares_memory": _shares_memory,
    "squeeze": lambda a, axis=None: a._view(a._host.squeeze(axis)),
    "transpose": lambda a, axes=None: a.transpose(axes),
    "zeros": _zeros_of,
}
