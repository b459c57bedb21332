"""The plans of random problems are those in tests/golden, so that no change of the planner goes unseen."""

import golden_plans
import pytest
from golden_plans import CLASSES, changes, file_of, file_text, op_text, plans, read, summary

from einsumx.adapters.registry import get_backend
from einsumx.ir.ops import Copy, Matmul, Transpose


def told(found):
    """What differs, for a person: the first few plans, and what to do."""
    shown = [f"{problem}\n{library}\n- {old}\n+ {new}" for (problem, library), (old, new) in [*found.items()][:5]]
    return "\n\n".join(
        [*shown, f"{len(found)} plans differ; `python tests/golden_plans.py` rewrites and compares them"]
    )


@pytest.mark.parametrize("name", CLASSES)
def test_plans_are_those_that_were_written_down(name):
    before = read(file_of(name).read_text(encoding="utf-8"))
    after = {problem: by_library for problem, by_library, _ in plans(name)}
    found = changes(before, after)
    assert not found, told(found)


def test_plans_by_other_traits_are_noticed(monkeypatch):
    before = read(file_of("one").read_text(encoding="utf-8"))
    monkeypatch.setattr(golden_plans, "libraries", lambda: {"numpy": (get_backend("mxnet"), "")})
    after = {problem: by_library for problem, by_library, _ in plans("one")}
    assert any(old and new for old, new in changes(before, after).values())


def test_files_keep_every_plan():
    found = {"1. ij->i (2,3) float32": {"numpy": "2 sum 0 (1)", "jax": "2 native (0) ab->a", "torch": "2 sum 0 (1)"}}
    assert read(file_text(found)) == found


def test_a_changed_a_new_and_a_missing_plan_are_noticed():
    before = {"1. ij->i": {"numpy": "2 sum 0 (1)", "torch": "same"}, "2. i->i": {"numpy": "result 0"}}
    after = {"1. ij->i": {"numpy": "2 sum 0 (0)", "torch": "same"}, "3. i->": {"numpy": "1 sum 0 (0)"}}
    found = changes(before, after)
    assert found == {
        ("1. ij->i", "numpy"): ("2 sum 0 (1)", "2 sum 0 (0)"),
        ("2. i->i", "numpy"): ("result 0", ""),
        ("3. i->", "numpy"): ("", "1 sum 0 (0)"),
    }
    assert "- 2 sum 0 (1)\n+ 2 sum 0 (0)" in told(found)
    assert changes(after, after) == {}


def test_an_op_tells_all_that_is_not_a_default():
    assert op_text(Matmul(4, 2, 3)) == "4 matmul 2 3"
    assert op_text(Matmul(4, 2, 3, transpose_rhs=True, threads="pool")) == "4 matmul 2 3 transpose_rhs pool"
    assert op_text(Transpose(2, 0, (1, 0), reason="why")) == "2 transpose 0 (1,0) copies"
    assert op_text(Copy(2, 0, reason="why")) == "2 copy 0 copies"


def test_the_command_says_of_which_libraries_plans_changed_and_how_long_they_take(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(golden_plans, "FOLDER", tmp_path)
    monkeypatch.setattr(golden_plans, "CLASSES", {"one": (golden_plans.one, 2)})
    golden_plans.rewrite()
    golden_plans.rewrite()
    assert capsys.readouterr().out.endswith("\nno plan changed\n")
    file = file_of("one")
    before = read(file.read_text(encoding="utf-8"))
    problem = next(iter(before))
    before[problem]["numpy"] = "another"
    file.write_text(file_text(before), encoding="utf-8")
    golden_plans.rewrite()
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[:2] == ["numpy", "1"]
    assert summary({"jax": [(1.0, 3.0), (2.0, 2.0), (4.0, 1.0)]}).split()[-8:] == [
        "jax",
        "3",
        "7",
        "s",
        "6",
        "s",
        "1",
        "1",
    ]
