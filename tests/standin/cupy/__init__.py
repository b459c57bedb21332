"""A fake of CuPy, for machines without a GPU: its arrays are NumPy's memory, and its rules are those of CuPy's sources.

With this folder's parent first on ``sys.path``, ``import cupy`` imports the fake. It shows where CuPy would refuse a
call, copy an operand, read memory too early or use another device; it shows nothing of CUDA, and no speed.

- names.json, written from CuPy itself, has every function, method and parameter; others do not exist.
- Kernels and copies are queued in streams (fake.py), and run when somebody waits for them, so that a missing wait
  shows as wrong values. Freed memory is reused by its stream.
- An array on another device than the current one is an error in every call, as without access between GPUs.
- ``fake.counts`` counts kernels, bytes, and the copies that CuPy makes of its own accord.
"""

from __future__ import annotations

import numpy as np

from cupy import _arrays, cuda, fake
from cupy._arrays import ndarray

__version__ = f"{fake.NAMES['version']}+fake"
__all__ = ["cuda", "fake", "ndarray"]

dtype, result_type, can_cast = np.dtype, np.result_type, np.can_cast
bool_, float16, float32, float64 = np.bool_, np.float16, np.float32, np.float64
complex64, complex128 = np.complex64, np.complex128


def __getattr__(name: str) -> object:
    if name not in fake.NAMES["functions"]:
        raise AttributeError(f"module 'cupy' has no attribute '{name}'")
    return _arrays.function(name)


def get_default_memory_pool() -> cuda.MemoryPool:
    return cuda.MemoryPool()
