"""einsumx on every backend that is installed, case by case; ``--einsumx-level full`` runs every case.

``--einsumx-backend`` selects backends.
"""

from einsumx.conformance.test_conformance import test_conformance

__all__ = ["test_conformance"]
