"""One test for each case; ``pytest --einsum MODULE:NAME`` selects the function."""

from __future__ import annotations

import pytest

from .cases import Case, Implementation, NotApplicable, einsum_of, failure


@pytest.fixture(scope="module")
def einsum(request: pytest.FixtureRequest) -> Implementation:
    """The function that the options name."""
    option = request.config.option
    return einsum_of(option.einsum, option.einsum_arrays)


def test_einsum(einsum: Implementation, case: Case) -> None:
    """The function returns the exact result within its bound, or raises an error."""
    try:
        wrong = failure(case, einsum)
    except NotApplicable as reason:
        pytest.skip(str(reason))
    if wrong:
        pytest.fail(wrong, pytrace=False)
