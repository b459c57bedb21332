"""docs/stability.md: what is public stays as it was written down, and plans that earlier versions stored load.

``python tests/test_stability.py`` writes down what is public now, and plans of this version.
"""

import argparse
import inspect
import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import einsumx
from einsumx.cli.main import _parser
from einsumx.conformance.kit.oracle import expect, judge

PROMISED = Path(__file__).parent / "promised"
REFERENCE = Path(__file__).parents[1] / "docs" / "reference"

PROVISIONAL = (einsumx.Adapter, einsumx.Traits)
"""Classes whose members are not promised yet."""

MADE_BY_USERS = (einsumx.MemoryLimit, einsumx.Operand, einsumx.Semiring)
"""Classes that programs call; of the others they get objects."""

PLANS = {
    "product": einsumx.plan("bij,bjk->bik", (5, 6, 7), (5, 7, 8)),
    "gaps": einsumx.plan("ij,jk->ik", np.ones((20, 60))[:, ::2], np.ones((30, 40))),
    "chain": einsumx.plan("ab,bc,cd,de,ef->fa", *[(3, 3)] * 5, optimize=False),
    "diagonal": einsumx.plan("iij,...j->i...", (4, 4, 5), (2, 5)),
    "half": einsumx.plan("ij,jk,k->i", (4, 5), (5, 6), (6,), dtypes="float16"),
    "names": einsumx.plan((2, 3), (3, 4), "row k, k column -> column row"),
    "accumulate": einsumx.plan("ij,j->i", (2, 3), (3,), dtypes="float32", accumulate="float64"),
    "semiring": einsumx.semirings.max_plus.plan("ij,jk->ik", (2, 3), (3, 4)),
    **{name: einsumx.plan("bind,bjnd->bnij", *[(2, 3, 4, 5)] * 2, backend=name) for name in ("torch", "jax", "mxnet")},
}


def public_names():
    """What the reference describes, with the members of classes, and the arguments of the command; a line each."""
    pages = "".join(path.read_text(encoding="utf-8") for path in REFERENCE.glob("*.md"))
    described = re.findall(r"^::: (?!einsumx.interop)(\S+)", pages, re.MULTILINE)  # whose libraries may be missing
    # In a checkout, backends/ and conformance/ are next to the package.
    paths = {re.sub(r"^(?=backends|conformance)", "einsumx.", name) for name in described}
    paths |= {f"einsumx.{name}" for name in einsumx.__all__}
    return sorted({line for path in paths for line in lines_of(path)} | {*options()})


def lines_of(path):
    """A public name with its parameters, and those of its members that einsumx defines."""
    place, _, name = path.rpartition(".")
    value = getattr(import_module(place), name)
    yield name + ("" if inspect.isclass(value) and value not in MADE_BY_USERS else parameters(value))
    if inspect.isclass(value) and value not in PROVISIONAL:
        own = [base for base in value.__mro__ if base.__module__.startswith("einsumx")]
        for member in {member for base in own for member in vars(base) if "_" not in (member[0], member[-1])}:
            yield f"{name}.{member}{parameters(inspect.getattr_static(value, member))}"


def parameters(value):
    """The parameters of a function or class, with their defaults and without types; empty for other values."""
    value = getattr(value, "__func__", value)
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        return ""
    signature = inspect.signature(value)
    kept = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=kept, return_annotation=signature.empty))


def options():
    """The commands of ``einsumx``, and their arguments."""
    (commands,) = (action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    for name, parser in commands.choices.items():
        for action in parser._actions:
            yield f"$ einsumx {name} {', '.join(action.option_strings) or action.dest}"


def test_what_is_public_is_what_was_written_down():
    promised = (PROMISED / "names.txt").read_text(encoding="utf-8").splitlines()
    now = public_names()
    assert sorted({*promised} - {*now}) == [], "gone or changed, which breaks programs that use it"
    assert sorted({*now} - {*promised}) == [], "new: `python tests/test_stability.py` writes it down"


def test_names_parameters_members_and_options_are_written_down():
    names = {
        "MemoryLimit.resume",
        "Plan",
        "Plan.from_json(text)",
        "tensordot(a, b, axes=2)",
        "$ einsumx explain --source",
    }
    assert names <= {*public_names()}
    assert parameters(lambda a, /, *b, c=1, **d: a) == "(a, /, *b, c=1, **d)"


@pytest.mark.filterwarnings("ignore:einsumx plans:RuntimeWarning")  # a later version may plan in another way
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("stored", sorted(PROMISED.glob("plans-*.json")), ids=lambda path: path.stem)
def test_a_plan_that_an_earlier_version_stored_computes_its_equation(stored, name):
    plan = einsumx.Plan.from_json(json.dumps(json.loads(stored.read_text(encoding="utf-8"))[name]))
    assert (plan.equation, plan.shape, plan.dtype) == (PLANS[name].equation, PLANS[name].shape, PLANS[name].dtype)
    if plan.backend == "numpy" and name != "semiring":
        rng = np.random.default_rng(0)
        arrays = [rng.integers(-3, 4, operand.shape).astype(operand.dtype) for operand in plan.operands]
        assert judge(plan(*arrays), expect(plan.equation, *arrays, dtype=plan.dtype))


def test_what_is_public_can_be_written_down(tmp_path):
    write_down(tmp_path)
    assert (tmp_path / "names.txt").read_text(encoding="utf-8") == (PROMISED / "names.txt").read_text(encoding="utf-8")
    stored = json.loads((tmp_path / f"plans-{einsumx.__version__}.json").read_text(encoding="utf-8"))
    assert {name: einsumx.Plan.from_json(json.dumps(plan)) for name, plan in stored.items()} == PLANS


def write_down(folder):
    """Write the names that are public now, and plans of this version."""
    (folder / "names.txt").write_text("\n".join(public_names()) + "\n", encoding="utf-8")
    plans = {name: json.loads(plan.to_json()) for name, plan in PLANS.items()}
    (folder / f"plans-{einsumx.__version__}.json").write_text(json.dumps(plans) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_down(PROMISED)
