"""einsumx on every backend that is installed, case by case; ``--einsumx-level full`` runs every case.

``--einsumx-backend`` selects backends.
"""

from einsumx.conformance.plugin import parameters, report
from einsumx.conformance.subject import installed_backends, subjects
from einsumx.conformance.suite import cases


def pytest_generate_tests(metafunc):
    option = metafunc.config.getoption
    judged = subjects(option("--einsumx-backend") or installed_backends())
    selected = cases(option("--einsumx-level"), random=option("--einsumx-random"))
    metafunc.parametrize("run_case", list(parameters(judged, selected, everything=True)))


def test_conformance(run_case):
    report(run_case())
