"""The stress of threads itself: it ends, counts what ran, and notices what is wrong."""

import gc
from unittest.mock import Mock

import numpy as np
import pytest
import stress

import einsumx

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def quietly(monkeypatch, tmp_path):
    """A cache folder of their own; threads switch as usual, and pytest watches over those that are stuck."""
    monkeypatch.setattr(stress.sys, "setswitchinterval", lambda seconds: None)
    monkeypatch.setattr(stress, "faulthandler", Mock())
    monkeypatch.setenv("EINSUMX_CACHE", str(tmp_path))


def test_each_kind_of_work_is_sound_alone():
    for kind in stress.WORK:
        assert stress.fault(kind, stress.Random(1)) == []
    assert stress.left_behind() == []


def test_a_fresh_process_is_sound():
    assert stress.fresh_processes(1, 4, 0.01) == (1, [])


def test_wrong_results_are_noticed_and_counted_by_kind(monkeypatch, capsys):
    right = einsumx.einsum
    monkeypatch.setattr(einsumx, "einsum", lambda *operands, **options: right(*operands, **options) + 1)
    monkeypatch.setattr(stress, "SCENES", ((stress.random_work, 0.5, "pieces of work"),))
    assert stress.main(["--threads", "3", "--seconds", "1"]) == 1
    printed = capsys.readouterr().out
    assert " times calls: Traceback" in printed
    assert "instead of" in printed
    assert "3 threads:" in printed


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda patch: gc.disable(), "the garbage collector is off"),
        (lambda patch: patch.setattr(np, "einsum", None), "np.einsum is still replaced"),
        (lambda patch: patch.setattr("threading.Thread.start", None), "Thread.start is still replaced"),
        (lambda patch: einsumx.set_effort("measure"), "the effort is not the usual one"),
    ],
)
def test_what_is_not_put_back_is_noticed(spoil, sentence, monkeypatch):
    try:
        spoil(monkeypatch)
        assert stress.left_behind() == [sentence]
    finally:
        gc.enable()
        einsumx.set_effort("estimate")
