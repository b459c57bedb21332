"""``import einsumx`` loads little; everything else is imported when it is first used, by every public name."""

import json
import pickle
from typing import get_args, get_type_hints

import pytest
from processes import printed

import einsumx
from einsumx.adapters.registry import get_backend
from einsumx.measuring.calibration import store_rates

pytestmark = pytest.mark.long

NEVER_FOR_A_PRODUCT = (
    "einsumx.adapters.facets", "einsumx.adapters.gpus", "einsumx.adapters.options", "einsumx.adapters.replacement",
    "einsumx.backends.numpy.parts", "einsumx.blocked", "einsumx.cli", "einsumx.expressions", "einsumx.host.blas",
    "einsumx.host.files", "einsumx.host.threads", "einsumx.ir.values", "einsumx.patching", "einsumx.plans",
    "einsumx.render", "einsumx.streaming", "concurrent", "csv", "decimal", "email", "hashlib", "importlib.metadata",
    "importlib.util", "json", "multiprocessing", "opt_einsum", "queue", "random", "subprocess", "threading",
    "threadpoolctl", "unicodedata", "uuid",
)  # fmt: skip
"""Packages and modules that a small product of NumPy arrays has no use for."""

NEVER_AT_IMPORT = (
    *NEVER_FOR_A_PRODUCT, "einsumx.adapters.base", "einsumx.algebra", "einsumx.ir.ops", "einsumx.ir.parse",
    "einsumx.planner.lower", "einsumx.runtime.prepare", "einsumx.semirings", "heapq", "logging", "mmap", "shutil",
)  # fmt: skip
"""Other modules that ``import einsumx`` has no use for, if NumPy has not loaded them."""


def fresh(code):
    """What ``code`` prints, as JSON, in a fresh interpreter."""
    return json.loads(printed(code))


def loaded(code):
    """The modules that ``code`` loads after ``import numpy``."""
    return set(
        fresh(f"""
import sys, numpy
before = set(sys.modules)
{code}
after = set(sys.modules) - before
import json
print(json.dumps(sorted(after)))
""")
    )


def test_import_loads_the_modules_that_a_cached_call_needs_and_no_others():
    modules = loaded("import einsumx")
    assert sum(name.startswith("einsumx") for name in modules) <= 24
    assert not [name for name in modules if name.startswith(NEVER_AT_IMPORT)]


def test_a_small_product_loads_the_planner_but_nothing_for_blocks_plans_or_files():
    modules = loaded("import einsumx; einsumx.einsum('ij,jk->ik', numpy.ones((2, 3)), numpy.ones((3, 4)))")
    assert {"einsumx.planner.strided", "einsumx.backends.numpy"} <= modules
    assert not [name for name in modules if name.startswith(NEVER_FOR_A_PRODUCT)]


def test_where_rates_are_stored_a_first_call_reads_them_without_the_metadata_of_distributions(tmp_path, monkeypatch):
    monkeypatch.setenv("EINSUMX_CACHE", str(tmp_path))
    store_rates(get_backend("numpy"), "cpu", {"gemm": 1e9})
    modules = loaded("import einsumx; einsumx.einsum('ij,jk->ik', numpy.ones((2, 3)), numpy.ones((3, 4)))")
    assert {"sqlite3", "einsumx.measuring.store"} <= modules
    unused = (
        "email",
        "importlib.metadata",
        "pathlib",
        "socket",
        "urllib",
        "zipfile",
        "einsumx.measuring.findings",
    )
    assert not [name for name in modules if name.startswith(unused)]


def test_a_repeated_call_imports_nothing():
    code = """
import json, sys, numpy, einsumx
a, b, out = numpy.ones((2, 3)), numpy.ones((3, 4)), numpy.ones((2, 4))
calls = [
    lambda: einsumx.einsum("ij,jk->ik", a, b),
    lambda: einsumx.einsum("ij,jk->ik", a, b, dtype="float32", casting="unsafe", optimize="greedy", order="F"),
    lambda: einsumx.einsum("ij,jk->ik", a, b, out=out),
    lambda: einsumx.einsum(a, [0, 1], b, [1, 2]),
]
for call in calls:
    call()
statements = []
builtins = sys.modules["builtins"]
original = builtins.__import__
builtins.__import__ = lambda name, *more: statements.append(name) or original(name, *more)
for call in calls:
    call()
builtins.__import__ = original
print(json.dumps(statements))
"""
    assert fresh(code) == []


def test_a_program_on_pytorch_alone_needs_no_numpy():
    pytest.importorskip("torch")
    code = """
import json, sys, warnings
sys.modules["numpy"] = None  # an import of it fails
warnings.simplefilter("ignore")
import torch, einsumx
a, b = torch.ones(2, 3), torch.ones(3, 2)
results = [
    einsumx.einsum("ij,jk->ik", a, b),
    einsumx.einsum("ab,bc,cd,de,ef->af", a, b, a, b, a),
    einsumx.einsum(",ij->ji", 2.0, a),
    einsumx.tensordot(a, b, 1),
    einsumx.expression("ij,jk->ik", (2, 3), (3, 2))(a, b),
    einsumx.plan("ij,jk->ik", a, b)(a, b),
]
large = torch.ones(200, 200, requires_grad=True)
einsumx.einsum("ij,jk->ik", large, large, memory_limit="400 kB").sum().backward()
results.append(large.grad[:1, :1])
with einsumx.patched("torch"):
    results.append(torch.einsum("ij,jk->ik", a, b))
print(json.dumps([result.tolist() for result in results]))
"""
    square = [[3.0, 3.0], [3.0, 3.0]]
    assert fresh(code) == [square, [[36.0] * 3] * 2, [[2.0] * 2] * 3, square, square, square, [[400.0]], square]


def test_each_public_name_is_there_whichever_is_used_first_and_by_a_star_import():
    """Before each name, einsumx's modules are forgotten, as in an interpreter that has just started."""
    code = f"""
import json, sys
wrong = []
for name in {einsumx.__all__}:
    for module in [module for module in sys.modules if module.partition(".")[0] == "einsumx"]:
        del sys.modules[module]
    names = {{}}
    exec(f"import einsumx; first = einsumx.{{name}}; from einsumx import {{name}}", names)
    if name not in dir(names["einsumx"]) or names[name] is not names["first"]:
        wrong.append(name)
exec("from einsumx import *", star := {{}})
print(json.dumps([wrong, sorted(name for name in star if name[0] != "_")]))
"""
    assert fresh(code) == [[], sorted(einsumx.__all__)]
    with pytest.raises(AttributeError, match="module 'einsumx' has no attribute 'einsun'"):
        _ = einsumx.einsun


def test_every_cache_is_listed_before_its_module_is_imported():
    code = """
import json, einsumx
before = einsumx.cache_info()
import einsumx.blocked.plan, einsumx.plans
print(json.dumps([before, einsumx.cache_info()]))
"""
    before, after = fresh(code)
    assert before == after
    names = {"blocks", "calls", "plans", "runs", "signatures"}
    assert set(before) == names


def test_a_plan_is_unpickled_where_only_the_package_is_imported():
    plan = einsumx.plan("ij,jk->ik", (2, 3), (3, 4))
    load = "import einsumx, json, pickle; print(json.dumps(pickle.loads(%r).equation))"
    assert fresh(load % pickle.dumps(plan)) == "ij,jk->ik"


SUBINTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import numpy
interpreters.run_string(interpreters.create(), f'''
import sys
sys.path[:] = {sys.path!r}
import einsumx
try:
    einsumx.einsum("ij->ji", [[1, 2], [3, 4]])
except ImportError as error:
    print(error, flush=True)
''')
"""


def test_an_interpreter_that_cannot_load_numpy_says_what_to_do():
    said = printed(SUBINTERPRETER, PYTHONWARNINGS="ignore")
    assert said.startswith("numpy cannot be imported in a subinterpreter (")
    assert said.endswith("); call einsumx in the main interpreter, or in another process\n")


@pytest.mark.parametrize("name", [name for name in einsumx.__all__ if isinstance(getattr(einsumx, name), type)])
def test_the_types_of_a_public_class_can_be_read(name):
    get_type_hints(getattr(einsumx, name))


def test_the_types_of_what_plans_and_limits_have_are_those_of_the_values():
    from concurrent.futures import Executor

    from einsumx.ir.ops import Op

    hints = get_type_hints(einsumx.Plan)
    assert get_args(hints["ops"])[0] is Op
    assert Executor in get_args(get_type_hints(einsumx.MemoryLimit)["executor"])
