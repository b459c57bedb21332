"""The conformance suite on a GPU, by ``nox -s gpu``: it is judged there, or not at all."""

from importlib.util import find_spec

import pytest

from einsumx.conformance.deviations import deviations_of
from einsumx.conformance.subject import backend_subject
from einsumx.conformance.suite import cases, run
from einsumx.errors import BackendError

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("name", "device"), [("torch", "cuda:0"), ("cupy", "cuda:0"), ("jax", "cuda:0")])
def test_einsumx_keeps_its_promises_on_a_gpu(name, device):
    if not find_spec(name):
        pytest.skip(f"{name} is not installed")
    try:
        subject = backend_subject(name, device)
    except BackendError as error:
        pytest.skip(str(error))
    level = "quick" if name == "jax" else "full"
    failed = [outcome for outcome in run(subject, cases(level), deviations_of(subject)) if outcome.status == "fail"]
    assert not failed, "\n".join(f"{outcome.case}: {outcome.message}\n{outcome.reproducer}" for outcome in failed)
