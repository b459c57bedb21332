"""einsumx: one einsum for every array library, on that library's own fast kernels."""

from sys import modules as _modules
from typing import TYPE_CHECKING

from einsumx.adapters.registry import register
from einsumx.api import addeinsum, einsum, einsum_frexp, einsum_path, plan
from einsumx.caches import cache_clear, cache_info
from einsumx.errors import (
    AxisError,
    BackendError,
    BlockError,
    EinsumxError,
    EquationError,
    JournalError,
    MemoryLimitError,
    PathError,
    SizeError,
    SublistError,
)
from einsumx.imports import imported as _imported

if TYPE_CHECKING:
    from einsumx import semirings
    from einsumx.adapters.base import Adapter
    from einsumx.adapters.registry import backends
    from einsumx.algebra.argmax import ArgmaxResult
    from einsumx.algebra.scaled import FrexpResult
    from einsumx.axes import tensordot, transpose
    from einsumx.expressions import Expression, expression
    from einsumx.host.array_memory import memory_pool_info, set_memory_pool
    from einsumx.host.threads import get_num_threads, set_num_threads
    from einsumx.ir.operand import Operand
    from einsumx.ir.traits import Traits
    from einsumx.measuring.effort import effort, freeze, get_effort, set_effort
    from einsumx.patching import patch, patched, unpatch
    from einsumx.plans import Plan
    from einsumx.runtime.limits import MemoryAmount, MemoryLimit
    from einsumx.semirings import Semiring
    from einsumx.storage.reopened import opened_by
    from einsumx.tuning import Tuning, tune
else:
    from einsumx import backends  # the package of that name, which is callable

__all__ = [
    "Adapter",
    "ArgmaxResult",
    "AxisError",
    "BackendError",
    "BlockError",
    "EinsumxError",
    "EquationError",
    "Expression",
    "FrexpResult",
    "JournalError",
    "MemoryAmount",
    "MemoryLimit",
    "MemoryLimitError",
    "Operand",
    "PathError",
    "Plan",
    "Semiring",
    "SizeError",
    "SublistError",
    "Traits",
    "Tuning",
    "addeinsum",
    "backends",
    "cache_clear",
    "cache_info",
    "effort",
    "einsum",
    "einsum_frexp",
    "einsum_path",
    "expression",
    "freeze",
    "get_effort",
    "get_num_threads",
    "memory_pool_info",
    "opened_by",
    "patch",
    "patched",
    "plan",
    "register",
    "semirings",
    "set_effort",
    "set_memory_pool",
    "set_num_threads",
    "tensordot",
    "transpose",
    "tune",
    "unpatch",
]

__version__ = "1.0.0rc1"

_LAZY = {
    "Adapter": "adapters.base",
    "ArgmaxResult": "algebra.argmax",
    "Expression": "expressions",
    "FrexpResult": "algebra.scaled",
    "MemoryAmount": "runtime.limits",
    "MemoryLimit": "runtime.limits",
    "Operand": "ir.operand",
    "Plan": "plans",
    "Semiring": "semirings",
    "Traits": "ir.traits",
    "Tuning": "tuning",
    "effort": "measuring.effort",
    "expression": "expressions",
    "freeze": "measuring.effort",
    "get_effort": "measuring.effort",
    "get_num_threads": "host.threads",
    "memory_pool_info": "host.array_memory",
    "opened_by": "storage.reopened",
    "patch": "patching",
    "patched": "patching",
    "set_effort": "measuring.effort",
    "set_memory_pool": "host.array_memory",
    "set_num_threads": "host.threads",
    "tensordot": "axes",
    "transpose": "axes",
    "tune": "tuning",
    "unpatch": "patching",
}
"""Public names whose modules are imported when the name is first used, to keep ``import einsumx`` fast."""


def __getattr__(name: str) -> object:
    if name == "semirings":
        return _imported("einsumx.semirings")
    if name not in _LAZY:
        message = f"module 'einsumx' has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=_modules["einsumx"])  # Python then suggests similar names
    value = getattr(_imported(f"einsumx.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
