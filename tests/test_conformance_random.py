"""Random problems: the same by the same seed, and the smallest that fails is shown as code that fails."""

import contextlib
import io
import sys

import numpy as np
import pytest

from einsumx.conformance.case import Case
from einsumx.conformance.features import randomized
from einsumx.conformance.subject import callable_subject
from einsumx.conformance.suite import cases, run

WRONG = """
import numpy

def einsum(*operands, **options):
    result = numpy.einsum(*operands, **options)
    if isinstance(operands[0], str):
        terms = operands[0].partition("->")[0].replace("...", "").split(",")
        if any(len(set(term)) < len(term) for term in terms):
            return result + result.dtype.type(1)
    return result
"""
"""An einsum that is wrong where a label is twice in an operand, and sums no ellipsis away, as NumPy does not."""


@pytest.fixture
def wrong(tmp_path, monkeypatch):
    (tmp_path / "wrong_einsum.py").write_text(WRONG)
    monkeypatch.syspath_prepend(tmp_path)
    yield callable_subject("wrong_einsum:einsum")
    sys.modules.pop("wrong_einsum", None)


def random_case(dtype, problems, seed):
    (case,) = cases("quick", f"random/{dtype},*", problems, seed)
    return case


def drawn(seed, problems=20):
    """The problems that a seed gives, by their names."""
    found = []

    class Seen:
        name, is_einsumx, device = "seen", False, ""
        framework = callable_subject("numpy:einsum").framework

        def needs_dtype(self, dtype):
            pass

    def check(case, subject):
        found.append(case.id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomized, "gives_the_plain_sum", check)
        random_case("float32", problems, seed).check(random_case("float32", problems, seed), Seen())
    return found


@pytest.mark.long
def test_a_seed_gives_the_same_problems_and_another_seed_others():
    found = drawn(1)
    assert len(found) >= 17
    assert drawn(1) == found
    assert drawn(2) != found


@pytest.mark.long
def test_problems_are_of_every_kind():
    problems = drawn(5, 100)
    assert any("..." in problem for problem in problems)
    assert any("random/[" in problem for problem in problems)
    assert any("->" in problem for problem in problems)
    assert any("->" not in problem for problem in problems)
    assert any(":F" in problem for problem in problems)
    assert any("25" in problem for problem in problems)
    assert any("(0" in problem for problem in problems)
    assert len(set(problems)) > 50


@pytest.mark.long
def test_what_fails_is_made_as_small_as_it_can_be_and_shown_as_code_that_fails(wrong):
    (outcome,) = run(wrong, [random_case("int32", 50, 0)])
    assert outcome.status == "fail"
    assert "element" in outcome.message
    call = outcome.reproducer.splitlines()[-1]
    assert call.startswith("print(wrong_einsum.einsum('")
    equation = call.partition("'")[2].partition("'")[0]
    assert len(equation.partition("->")[0]) == 2  # one operand, of which both axes have the same label
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(outcome.reproducer, {})
    assert printed.getvalue().strip()
    code, _, _ = outcome.reproducer.rpartition("\n")
    scope = {}
    exec(code, scope)
    right = np.einsum(equation, scope["a"])
    assert printed.getvalue().strip() != str(right)


def test_without_hypothesis_the_random_problems_do_not_apply_and_say_why(monkeypatch, wrong):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    (outcome,) = run(wrong, [random_case("int32", 30, 0)])
    assert outcome.status == "inapplicable"
    assert "pip install 'einsumx[conformance]'" in outcome.message


def test_the_number_of_problems_and_the_seed_are_part_of_the_name():
    assert random_case("bool", 12, 34).id == "random/bool, 12 problems, seed 34"
    assert not [case for case in cases("quick", random=0) if isinstance(case, Case) and case.feature == "random"]
