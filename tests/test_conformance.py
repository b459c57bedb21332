"""einsumx on every backend that is installed, case by case."""

from einsumx.conformance.plugin import suite_test
from einsumx.conformance.subject import installed_backends

test_einsumx_keeps_its_promises = suite_test(*installed_backends())
