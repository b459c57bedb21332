"""dpnp: arrays on SYCL devices, among them the processor."""

import numpy as np
import pytest

dpnp = pytest.importorskip("dpnp")
dpctl = pytest.importorskip("dpctl")
if not dpctl.get_devices():
    pytest.skip("no SYCL device; OCL_ICD_FILENAMES names a runtime for one", allow_module_level=True)

import einsumx  # noqa: E402


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,jk->ki", "ij,j->i", "j,jk->k"])
def test_operands_of_stride_0_are_read_right(equation):
    values = [np.random.default_rng(2).random((1,) * len(term)) for term in equation.split("->")[0].split(",")]
    hosts = [np.broadcast_to(each, (4,) * each.ndim) for each in values]
    arrays = [dpnp.broadcast_to(dpnp.asarray(each), (4,) * each.ndim) for each in values]
    np.testing.assert_allclose(dpnp.asnumpy(einsumx.einsum(equation, *arrays)), np.einsum(equation, *hosts))


def test_an_out_that_repeats_elements_is_refused():
    out = dpnp.broadcast_to(dpnp.zeros(2), (2, 2))
    with pytest.raises(einsumx.BackendError, match=r"read-only dpnp array.* omit out="):
        einsumx.einsum("ij->ji", dpnp.ones((2, 2)), out=out)


def test_patch_replaces_the_einsum_of_dpnp():
    array, own = dpnp.asarray([[1.0, 2.0], [3.0, 4.0]]), dpnp.einsum
    with einsumx.patched("dpnp"):
        assert dpnp.einsum is not own
        result = dpnp.einsum("ij,jk->ik", array, array)
    assert dpnp.einsum is own
    assert np.array_equal(dpnp.asnumpy(result), [[7, 10], [15, 22]])
