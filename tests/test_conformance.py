"""einsumx on every backend that is installed, case by case."""

from einsumx.conformance.plugin import suite_test
from einsumx.conformance.subject import installed_backends

INSTALLED = installed_backends()
SLOW = [name for name in INSTALLED if name in ("jax", "tinygrad")]
"""What compiles each case by itself, and so takes minutes for what takes others seconds."""

test_einsumx_keeps_its_promises = suite_test(*(name for name in INSTALLED if name not in SLOW), level="full")
test_einsumx_keeps_its_promises_where_that_takes_long = suite_test(*SLOW)
