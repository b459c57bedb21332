"""The conformance suite on a GPU, by ``nox -s gpu``: it is judged there, or not at all."""

from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec

import pytest

from einsumx.conformance.deviations import deviations_of
from einsumx.conformance.subject import backend_subject
from einsumx.conformance.suite import cases, run
from einsumx.errors import BackendError

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
@pytest.mark.parametrize("name", ["torch", "cupy", "jax"])
def test_einsumx_keeps_its_promises_on_a_gpu(name, device):
    if not find_spec(name):
        pytest.skip(f"{name} is not installed")
    try:
        subject = backend_subject(name, device)
    except BackendError as error:
        pytest.skip(str(error))
    level = "quick" if name == "jax" else "full"
    # By default, JAX rounds the factors of float32 products to 10 bits on recent cards.
    precise = import_module("jax").default_matmul_precision("highest") if name == "jax" else nullcontext()
    with precise:
        outcomes = list(run(subject, cases(level), deviations_of(subject)))
    failed = [outcome for outcome in outcomes if outcome.status == "fail"]
    assert not failed, "\n".join(f"{outcome.case}: {outcome.message}\n{outcome.reproducer}" for outcome in failed)
