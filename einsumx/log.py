"""What einsumx tells of its work, through Python's ``logging``: silent unless somebody listens.

All of it goes to the logger ``"einsumx"``:

========  ==========================================================================================================
DEBUG     a plan that was made: equation, shapes, path, number of ops, arithmetic, bytes copied, peak memory
INFO      a fallback: the framework's own einsum kernel in a plan; a call that :func:`einsumx.patch` leaves to the
          framework, and why, once while it holds; a contraction that goes on by a smaller plan after memory ran out
INFO      blocks: how a contraction under a memory limit is cut, each tenth of its blocks, and its end
========  ==========================================================================================================

A call that is answered from the caches logs nothing: a plan is told of when it is made. ``einsumx.cache_clear()`` has
the next call make it anew.

>>> import logging
>>> logging.getLogger("einsumx").setLevel(logging.DEBUG)
>>> logging.getLogger("einsumx").setLevel(logging.NOTSET)
"""

from __future__ import annotations

from logging import NullHandler, getLogger

__all__ = ["log"]

log = getLogger("einsumx")
log.addHandler(NullHandler())
