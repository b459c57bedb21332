"""Which arrays the gradients of a contraction conjugate, in frameworks that conjugate them, such as PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from einsumx.adapters.typing import Array

__all__ = ["conjugated_for", "with_conjugates"]


def conjugated_for(conjugated: Sequence[bool], place: int, other: int) -> list[bool]:
    """Which arrays the gradient by the array in ``other`` conjugates.

    By the rule of complex derivatives these are all other arrays; or the cotangent instead, if the array itself was
    conjugated.

    Args:
        conjugated: for each place, whether the array that is differentiated conjugates the one there.
        place: that of the array that is differentiated, in which the cotangent stands now.
        other: the place of the gradient.

    >>> conjugated_for([False, False, False], 2, 0), conjugated_for([True, False, False], 2, 0)
    ([True, True, False], [True, False, True])
    """
    was_conjugated = conjugated[other]
    flags = [flag == was_conjugated for flag in conjugated]
    flags[place] = was_conjugated
    return flags


def with_conjugates(
    arrays: Sequence[Any],
    place: int,
    conjugated: Sequence[bool],
    is_complex: Callable[[Any], bool | None],
    conj: Callable[[Array], Array],
) -> tuple[list[Any], bool]:
    """The operands of the array in a place, and whether it is the conjugate of what they contract to.

    If most operands are conjugated, the result is instead, and only the rest of them. The same holds for stored
    operands, which are either all conjugated or none.

    Args:
        arrays: in all places; the one in ``place`` is left as it is.
        place: that of the result.
        conjugated: for each place, whether its array is conjugated.
        is_complex: whether an operand is a complex array of the framework; None for a stored one.
        conj: the framework's conjugate of an array.

    >>> with_conjugates([1j, 2j, None], 2, [True, True, False], lambda _: True, lambda value: value.conjugate())
    ([1j, 2j, None], True)
    """
    kinds = {other: is_complex(array) for other, array in enumerate(arrays) if other != place}
    stored = [conjugated[other] for other, kind in kinds.items() if kind is None]
    flags = [conjugated[other] for other, kind in kinds.items() if kind]
    conjugates_result = stored[0] if stored else sum(flags) > max(1, len(flags) - sum(flags))
    operands = list(arrays)
    for other, kind in kinds.items():
        if kind and conjugated[other] != conjugates_result:
            operands[other] = conj(arrays[other])
    return operands, conjugates_result
