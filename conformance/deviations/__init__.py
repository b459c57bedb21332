"""Known deviations of subjects from the contract, with their reasons; one module per library.

The lists are strict: a run fails if a listed case passes, or if no case matches an entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from einsumx.conformance.deviations import (
    cotengra,
    cubed,
    dpnp,
    jax,
    mlx,
    mxnet,
    numpy,
    opt_einsum,
    paddle,
    sparse,
    tensorflow,
    tinygrad,
    torch,
)
from einsumx.conformance.deviations.deviation import Deviation

__all__ = ["DEVIATIONS", "Deviation", "deviations_of"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    subject: listed
    for module in (
        numpy,
        torch,
        jax,
        mxnet,
        tensorflow,
        paddle,
        mlx,
        tinygrad,
        sparse,
        cubed,
        dpnp,
        opt_einsum,
        cotengra,
    )
    for subject, listed in module.DEVIATIONS.items()
}
"""Deviations by the name of the subject."""


class Judged(Protocol):
    """The attributes of a :class:`~einsumx.conformance.subject.Subject` that matter here."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def is_einsumx(self) -> bool: ...
    @property
    def framework(self) -> Any: ...


def deviations_of(subject: Judged) -> Sequence[Deviation]:
    """The deviations of a subject in its version, listed here or by its framework."""
    of_framework = subject.framework.deviations if subject.is_einsumx else ()
    listed = (*DEVIATIONS.get(subject.name, ()), *of_framework)
    return [deviation for deviation in listed if deviation.holds_in(subject.version)]
