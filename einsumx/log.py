"""The logger ``"einsumx"`` of Python's ``logging``, silent by default.

========  ==========================================================================================================
DEBUG     each new plan: equation, shapes, path, number of ops, calls of the framework's own einsum, arithmetic, bytes
          copied, peak memory
INFO      calls that :func:`einsumx.patch` leaves to the framework, with the reason, once per replacement
INFO      calls that run without the memory limit of their patch, with the reason, once per replacement
INFO      copies that take at least a third of a plan's time, with their reasons, once per equation
INFO      contractions of many seconds, for which a longer search for a path may pay
INFO      blocks: the tiling of a contraction with a memory limit, each tenth of its blocks, and its end; smaller ones
          after memory ran out
WARNING   wisdom that cannot be written, once per process
========  ==========================================================================================================

A call that finds its plan in the caches logs nothing. After ``einsumx.cache_clear()`` plans are made and logged again.

>>> import logging
>>> logging.getLogger("einsumx").setLevel(logging.DEBUG)
>>> logging.getLogger("einsumx").setLevel(logging.NOTSET)
"""

from __future__ import annotations

import warnings
from inspect import currentframe
from logging import DEBUG, INFO, NullHandler, getLogger

log = getLogger("einsumx")
log.addHandler(NullHandler())


def tells_plans() -> bool:
    """Whether new plans are logged."""
    return log.isEnabledFor(DEBUG)


def tells_notes() -> bool:
    """Whether messages of level INFO are logged."""
    return log.isEnabledFor(INFO)


def warn(message: str) -> None:
    """Warn, at the line that called einsumx."""
    frame, level = currentframe(), 1
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("einsumx."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)
