"""cotengra and quimb with einsumx as their ``implementation``."""

import numpy as np
import pytest

pytest.importorskip("cotengra", reason="cotengra is not installed: pip install cotengra")
import autoray
import cotengra as ctg
from backends_under_test import INSTALLED

import einsumx
from einsumx.conformance.kit.oracle import expect, judge

EINSUMX = (einsumx.einsum, einsumx.tensordot)

random = np.random.default_rng(0)
A, B, C = random.random((3, 4)), random.random((4, 5)), random.random((5, 6))


@pytest.fixture
def network():
    """The tree of a network of 20 tensors, and its tensors, of which one is a number."""
    inputs, output, shapes, sizes = ctg.utils.rand_equation(20, 3, n_out=2, seed=4, d_max=3)
    optimizer = ctg.HyperOptimizer(methods=["greedy"], optlib="random", max_repeats=4, parallel=False)
    tree = optimizer.search([*inputs, ()], output, sizes)
    return tree, [*map(random.random, shapes), 0.5]


@pytest.mark.parametrize("equation", ["ij,jk,kl->il", "ij,jk,kl->"])
def test_an_einsum_of_cotengra_runs_einsumx(equation):
    einsumx.cache_clear()
    result = ctg.einsum(equation, A, B, C, implementation=EINSUMX)
    assert judge(np.asarray(result), expect(equation, A, B, C))
    assert einsumx.cache_info()["calls"].misses >= 2


FRAMEWORKS = [backend for backend in INSTALLED if backend.name in ("numpy", "torch", "jax")]  # that cotengra serves


@pytest.mark.parametrize("backend", FRAMEWORKS, ids=str)
def test_trees_contract_the_arrays_of_frameworks(backend, network):
    tree, arrays = network
    expected = tree.contract(arrays)
    result = tree.contract([backend.array(each, "float32") for each in arrays], implementation=EINSUMX)
    np.testing.assert_allclose(backend.values(result), expected, rtol=1e-3)


def test_slices_of_a_tree_sum_to_its_result(network):
    tree, arrays = network
    sliced = tree.slice(target_size=2**5)
    assert sliced.nslices > 1
    np.testing.assert_allclose(sliced.contract(arrays, implementation=EINSUMX), tree.contract(arrays))


def test_a_lazy_contraction_of_a_tree_computes_with_einsumx(network):
    tree, arrays = network
    result = tree.contract([autoray.lazy.array(each) for each in arrays], implementation=EINSUMX)
    assert isinstance(result, autoray.lazy.LazyArray)
    assert result.backend == "numpy"
    np.testing.assert_allclose(result.compute(), tree.contract(arrays))


def test_quimb_contracts_its_networks_with_einsumx():
    qtn = pytest.importorskip("quimb.tensor")
    network = qtn.TN2D_rand(3, 3, D=2, seed=1)
    expected = network.contract(all, optimize="greedy")
    einsumx.cache_clear()
    assert network.contract(all, optimize="greedy", implementation=EINSUMX) == pytest.approx(expected)
    assert einsumx.cache_info()["calls"].misses > 2


def test_lazy_networks_of_quimb_compute_with_einsumx():
    qtn = pytest.importorskip("quimb.tensor")
    network = qtn.TN2D_rand(3, 3, D=2, seed=1)
    expected = network.contract(all, optimize="greedy")
    for tensor in network:
        tensor.modify(data=autoray.lazy.array(tensor.data))
    result = network.contract(all, optimize="greedy", implementation=EINSUMX)
    assert isinstance(result, autoray.lazy.LazyArray)
    assert result.compute() == pytest.approx(expected)
