"""What einsumx logs, and that it is silent: unasked, and where a call is answered from the caches."""

import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from processes import printed
from stored import Stored

import einsumx
from einsumx.conformance.kit.oracle import expect, judge

LARGE = np.ones((60, 60), "float32")
"""Large enough for NumPy's matmul."""


@pytest.fixture(autouse=True)
def forgotten():
    einsumx.cache_clear()
    yield
    einsumx.cache_clear()


@pytest.fixture
def told(caplog):
    """What was logged since the last time that this was called, as levels and messages."""
    caplog.set_level(logging.DEBUG, "einsumx")

    def found():
        records = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "einsumx"]
        caplog.clear()
        return records

    return found


@pytest.fixture
def asked(monkeypatch):
    """The calls of the logger's methods."""
    found = []
    for name in ("log", "debug", "info", "warning", "error", "isEnabledFor", "getEffectiveLevel"):
        method = getattr(logging.Logger, name)

        def spy(logger, *arguments, name=name, method=method, **options):
            if logger.name == "einsumx":
                found.append(name)
            return method(logger, *arguments, **options)

        monkeypatch.setattr(logging.Logger, name, spy)
    return found


@pytest.mark.long
def test_nobody_who_does_not_ask_is_told_anything():
    code = (
        "import logging, numpy as np, einsumx\n"
        "a = np.ones((60, 60))\n"
        "einsumx.einsum('ij,jk->ik', a, a, memory_limit=70_000)\n"
        "with einsumx.patched('numpy'): np.einsum('ij->ji', np.ma.ones((2, 2)))\n"
        "print([type(handler).__name__ for handler in logging.getLogger('einsumx').handlers])"
    )
    assert printed(code) == "['NullHandler']\n"


def test_a_plan_that_is_made_is_told_in_a_line(told):
    einsumx.einsum("ij,jk->ik", LARGE, LARGE)
    costs = "216 k multiply-adds, 0 B copied, peak 43.2 kB"
    assert told() == [
        (
            "DEBUG",
            f"plan ij,jk->ik: (60,60) (60,60) float32 on numpy, path (0,1), 1 op, {costs}",
        )
    ]


def test_what_is_neither_cut_nor_read_is_told_as_a_plan_alone_with_its_path(told):
    operands = (LARGE, LARGE, LARGE[:, :2])
    einsumx.einsum("ij,jk,kl->il", *operands, optimize=[(1, 2), (0, 1)], memory_limit="1 MB")
    ((level, text),) = told()
    assert level == "DEBUG"
    assert "path (1,2) (0,1), 2 ops" in text


def test_a_call_that_is_left_to_the_framework_again_and_again_is_told_once(told):
    masked = np.ma.ones((2, 2))
    for _ in range(2):
        with einsumx.patched("numpy"):
            for equation in ("ij->ji", "ij->i", "ij->ji"):
                np.einsum(equation, masked)
    texts = [text.partition(" is left to the framework: ")[0] for _, text in told()]
    assert texts == [f"numpy.einsum of {equation}" for equation in ("'ij->ji'", "'ij->i'") * 2]


@pytest.mark.parametrize(
    "call",
    [
        lambda: einsumx.einsum("ij,jk->ik", LARGE, LARGE),
        lambda: einsumx.einsum(LARGE, [0, 1], LARGE, [1, 2], [0, 2]),
        lambda: einsumx.einsum("ij,jk->ik", LARGE, LARGE, dtype="float64", order="F"),
        lambda: einsumx.einsum("ij,jk->ik", [[1, 2]], [[1], [2]]),
        lambda: patched("ij,jk->ik", LARGE, LARGE),
        lambda: patched("ij,jk->ik", LARGE, LARGE, optimize=True),
    ],
    ids=["text", "lists", "keywords", "lists as operands", "patched", "patched with a keyword"],
)
def test_a_call_that_the_caches_answer_does_not_even_ask_the_logger(call, asked, told):
    call()
    assert asked
    told()
    asked.clear()
    for _ in range(3):
        call()
    assert asked == []


def patched(*operands, **options):
    with einsumx.patched("numpy"):
        return np.einsum(*operands, **options)


def test_an_expression_is_told_when_it_first_sees_its_operands_and_not_after(told):
    expression = einsumx.expression("ij,jk->ik", (60, 60), (60, 60))
    expression(LARGE, LARGE)
    assert len(told()) == 1
    expression(LARGE, LARGE)
    assert told() == []


def notes(told):
    return [text for level, text in told() if level == "INFO"]


def test_copies_that_take_much_of_the_time_are_told_once_for_an_equation(told):
    for size in (50, 60, 50):
        einsumx.einsum("abi,abj->ij", np.ones((70, 80, size), "float32"), np.ones((70, 80, 50), "float32"))
    assert notes(told) == []
    for size in (50, 60, 50):
        einsumx.einsum("aib,bja->ij", np.ones((70, size, 80), "float32"), np.ones((80, 50, 70), "float32"))
    (text,) = notes(told)
    assert text.startswith("aib,bja->ij: copies take ")
    assert "contracted axes do not merge" in text
    assert text.endswith("; other orders of axes, or equal dtypes, may avoid them")


def test_copies_of_small_arrays_and_those_beside_much_arithmetic_are_not_told(told):
    einsumx.einsum("aib,bja->ij", np.ones((20, 20, 20)), np.ones((20, 20, 20)))
    einsumx.einsum("ij,jk->ik", np.ones((1000, 1000), "float32"), np.ones((1000, 1000)))
    texts = [text for _, text in told()]
    assert len(texts) == 2
    assert not any("copies take" in text or " 0 B copied" in text for text in texts)


def test_the_frameworks_own_kernel_in_a_plan_is_told(told):
    tiny = np.ones((2, 2), "float32")
    einsumx.einsum("ij,ij->i", tiny, tiny)
    ((level, text),) = told()
    assert level == "DEBUG"
    assert "1 op (1 of the own einsum)" in text


# -- under a limit ----------------------------------------------------------------------------------------------


def limited(read=Stored, **options):
    rng = np.random.default_rng(0)
    hosts = [rng.normal(size=(60, 60)) for _ in range(2)]
    result = einsumx.einsum("ij,jk->ik", *map(read, hosts), memory_limit=einsumx.MemoryLimit(40_000, **options))
    assert judge(result, expect("ij,jk->ik", *hosts, dtype="float64"))


def test_blocks_are_told_when_they_begin_and_in_ten_steps_at_most(told):
    limited()
    first, *others = [text for level, text in told() if level == "INFO" and text.startswith("blocks")]
    assert first.startswith("blocks of ij,jk->ik: ")
    assert "of 40 kB, on numpy" in first
    steps = [tuple(map(int, text.removeprefix("blocks: ").removesuffix(" steps").split(" of "))) for text in others]
    assert 2 <= len(steps) <= 10
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1]
    limited()
    assert [level for level, _ in told() if level == "DEBUG"] == []  # the plan is kept


def test_blocks_that_an_executor_computes_are_told(told):
    with ThreadPoolExecutor(2) as pool:
        limited(executor=pool)
    assert any(text.startswith("blocks: ") for _, text in told())


def test_who_watches_progress_is_told_the_same_while_it_is_logged(told):
    seen = []
    limited(progress=lambda done, every: seen.append((done, every)))
    assert seen == [(done, seen[0][1]) for done in range(seen[0][1] + 1)]
    assert any(text.startswith("blocks: ") for _, text in told())


@pytest.mark.filterwarnings("ignore:memory ran out:RuntimeWarning")
def test_a_smaller_plan_after_memory_ran_out_is_told(told):
    class Failing(Stored):
        def __getitem__(self, box):
            if box[0].stop and fails:  # empty parts are read to see that it can be read
                raise fails.pop()
            return super().__getitem__(box)

    fails = [MemoryError("none left")]
    limited(Failing)
    texts = [text for level, text in told() if level == "INFO"]
    at = texts.index("blocks: memory ran out (MemoryError); continuing with a smaller plan")
    assert texts[at + 1].startswith("blocks of ij,jk->ik: ")
