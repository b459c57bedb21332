"""A stand-in for CuPy where there is no GPU: the part of its interface that the adapter uses, on NumPy's memory.

It shows that the adapter asks only for what CuPy documents, on the right device. It says nothing of CUDA.
"""

import threading
from types import SimpleNamespace

import numpy as np

dtype, result_type, can_cast = np.dtype, np.result_type, np.can_cast
_current = threading.local()


class _StandinDevice:
    def __init__(self, number):
        self.id = number

    def __enter__(self):
        _current.stack = [*getattr(_current, "stack", [0]), self.id]

    def __exit__(self, *_):
        _current.stack.pop()

    def synchronize(self):
        pass


cuda = SimpleNamespace(Device=_StandinDevice)


def current_device():
    return getattr(_current, "stack", [0])[-1]


class StandinFlags:
    def __init__(self, flags):
        self.c_contiguous, self.f_contiguous = flags.c_contiguous, flags.f_contiguous


class StandinArray:
    """What the adapter uses of ``cupy.ndarray``. Work on another device than the current one is an error."""

    def __init__(self, host, device):
        self._host, self.device = host, _StandinDevice(device)

    shape = property(lambda self: self._host.shape)
    ndim = property(lambda self: self._host.ndim)
    real = property(lambda self: self._like(self._host.real))
    imag = property(lambda self: self._like(self._host.imag))
    strides = property(lambda self: self._host.strides)
    dtype = property(lambda self: self._host.dtype)
    flags = property(lambda self: StandinFlags(self._host.flags))

    __array_priority__ = 100  # as CuPy's

    def __array_function__(self, *args, **kwargs):
        return NotImplemented

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def _here(self):
        assert self.device.id == current_device(), "work on an array of another device than the current one"
        return self._host

    def _like(self, host):
        return StandinArray(host, self.device.id)

    def transpose(self, axes):
        return self._like(self._host.transpose(axes))

    def reshape(self, shape):
        return self._like(self._here().reshape(shape))

    def diagonal(self, offset, axis1, axis2):
        view = self._host.diagonal(offset, axis1, axis2)
        view.flags.writeable = True
        return self._like(view)

    def copy(self):
        return self._like(self._here().copy())

    def astype(self, dtype):
        return self._like(self._here().astype(dtype))

    def sum(self, axis=None, dtype=None):
        return self._like(np.asarray(self._here().sum(axis, dtype)))

    def any(self, axis):
        return self._like(np.asarray(self._here().any(axis)))

    def __getitem__(self, index):
        return self._like(self._host[index])


ndarray = StandinArray


def asarray(array, order="K"):
    if isinstance(array, StandinArray):
        host = np.asarray(array._host, order=order)
        return array if host is array._host else StandinArray(host, current_device())
    return StandinArray(np.array(array), current_device())


def asnumpy(array):
    return array._host.copy()


def empty(shape, dtype):
    return StandinArray(np.empty(shape, dtype), current_device())


def zeros(shape, dtype):
    return StandinArray(np.zeros(shape, dtype), current_device())


def multiply(lhs, rhs, out=None):
    if out is None:
        return lhs._like(np.asarray(np.multiply(lhs._here(), rhs._here())))
    np.multiply(lhs._here(), rhs, out=out._here())
    return out


def add(lhs, rhs, out=None):
    if out is None:
        return lhs._like(np.asarray(np.add(lhs._here(), rhs._here())))
    np.add(lhs._here(), rhs._here(), out=out._here())
    return out


def concatenate(arrays, axis=0):
    return arrays[0]._like(np.concatenate([array._here() for array in arrays], axis))


def matmul(lhs, rhs):
    return lhs._like(np.matmul(lhs._here(), rhs._here()))


def copyto(out, array, casting):
    np.copyto(out._here(), array._here(), casting=casting)
