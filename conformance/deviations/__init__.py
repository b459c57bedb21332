"""Where a subject is known to do otherwise than the contract says, each with its reason.

The lists are strict: a case that is listed and passes fails the run, as does an entry that no case matches, until the
entry is taken off. Each module here has those of the einsum functions of one library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from einsumx.conformance.deviations import cotengra, jax, mxnet, numpy, opt_einsum, torch
from einsumx.conformance.deviations.deviation import Deviation

__all__ = ["DEVIATIONS", "Deviation", "deviations_of"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    subject: listed
    for module in (numpy, torch, jax, mxnet, opt_einsum, cotengra)
    for subject, listed in module.DEVIATIONS.items()
}
"""By the name of the subject."""


class Judged(Protocol):
    """What is asked of a :class:`~einsumx.conformance.subject.Subject` here."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def is_einsumx(self) -> bool: ...
    @property
    def framework(self) -> Any: ...


def deviations_of(subject: Judged) -> Sequence[Deviation]:
    """The deviations that are listed for a subject in its version, here or by the package that its framework is of."""
    own = subject.framework.deviations if subject.is_einsumx else ()
    listed = (*DEVIATIONS.get(subject.name, ()), *own)
    return [deviation for deviation in listed if deviation.holds_in(subject.version)]
