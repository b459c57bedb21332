"""PyTorch's distributed tensors, on four processes: right values, and no more communication than torch's own einsum."""

import os
import pickle
import signal
import subprocess
import sys

import pytest

import einsumx

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available() or not hasattr(os, "fork"):
    pytest.skip("no fork here, or this torch is built without torch.distributed or gloo", allow_module_level=True)
pytest.importorskip("torch.distributed.tensor")

import dtensor_ranks as ranks  # noqa: E402  it imports torch

WORLD = 4


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the processes found, which run once."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with subprocess.Popen(
        [sys.executable, ranks.__file__, str(WORLD), str(folder)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            printed, _ = process.communicate(timeout=300)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # the ranks too, which may wait for each other
            raise
    errors = [file.read_text()[-4000:] for file in sorted(folder.glob("errors*"))]
    assert process.returncode == 0, "\n".join([printed[-4000:], *errors])
    return pickle.loads((folder / "results").read_bytes())


def case_id(number):
    mesh, equation, sizes, placements = ranks.CASES[number]
    places = ",".join("".join(map(repr, each)) for each in placements)
    return f"{equation} {'x'.join(map(str, sizes))} {places} on {'x'.join(map(str, mesh))}"


every_case = pytest.mark.parametrize("number", range(len(ranks.CASES)), ids=case_id)


@every_case
def test_values_and_gradients_are_right(number, found):
    _, ours = found[0][number]
    assert ours["right"]
    assert ours["right gradients"]


@every_case
def test_there_are_no_more_collectives_than_torchs_and_results_are_as_sharded(number, found):
    torchs, ours = found[0][number]
    assert torchs["right"]
    assert [mine <= theirs for mine, theirs in zip(ours["collectives"], torchs["collectives"])] == [True, True]
    assert ours["shards"] >= torchs["shards"]


def test_a_comparison_that_counts_nothing_would_be_noticed(found):
    assert sum(torchs["collectives"][1] for torchs, _ in found[0]) > 8


RESULTS = {
    "a gradient of compiled code": ("compiled gradient", [[8] * 8] * 8),
    "a number is replicated": ("number", [[2] * 8] * 8),
    "distributed tensors from outside are rearranged in inference mode": (
        "in inference mode",
        ([[8] * 8] * 8, (8, 8)),
    ),
    "measuring gives each process the same plan": ("measured", [[64] * 8] * 8),
    "patched torch takes distributed tensors": ("patched", "(Shard(dim=0),)"),
    "and leaves none to torch": ("left", []),
}


@pytest.mark.parametrize(("name", "expected"), RESULTS.values(), ids=RESULTS)
def test_other_calls_have_the_results_of_plain_tensors(name, expected, found):
    assert found[1][name] == expected


def test_compiled_code_gives_the_same_placed_alike(found):
    assert found[1]["compiled"] == found[1]["eager"]


UNEVEN = ("operand 0", "axis 0 has size 7", "over 4 devices", "pad it to a size of 8", "Replicate()")
ERRORS = {
    "uneven": UNEVEN,
    "patched uneven": UNEVEN,
    "uneven on two axes of the mesh": ("axis 0 has size 6, and the mesh shards it over 4 devices",),
    "mixed": ("operand 1 is a plain tensor",),
    "limit": ("DTensors",),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_cannot_be_computed_is_an_error_that_says_what_helps(name, found):
    error = found[1][name]
    assert isinstance(error, einsumx.BackendError)
    assert isinstance(error, RuntimeError) or "uneven" not in name
    for text in ERRORS[name]:
        assert text in str(error)
