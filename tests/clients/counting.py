"""A pytest plugin for another project's tests: patches frameworks with einsumx, and writes down what each test did.

The environment has the settings: ``EINSUMX_CLIENT_PATCH``, the frameworks with commas between them;
``EINSUMX_CLIENT_REPLACE``, a function of another library, as ``module:name``, a comma, and the one that takes its
place; ``EINSUMX_CLIENT_NATIVE``, if it is 1, to leave all functions as they are, and only take the time of their calls;
``EINSUMX_CLIENT_REPORT``, the JSON file to write. All is patched when pytest loads the plugin, before the tests import
anything. Every test starts from the same random numbers, so that two runs are comparable.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from functools import partial, wraps
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import einsumx
from einsumx import patching
from einsumx.adapters import replacement
from einsumx.adapters.replacement import Function
from einsumx.log import log

SEVERITY = ("passed", "skipped", "xfailed", "xpassed", "failed")
"""Outcomes; a test has the last one that its phases or subtests have."""

frameworks = [name for name in os.environ.get("EINSUMX_CLIENT_PATCH", "").split(",") if name]
replaced = [place for place in os.environ.get("EINSUMX_CLIENT_REPLACE", "").split(",") if place]
tests: dict[str, dict[str, Any]] = {}
reasons: dict[str, int] = {}
"""Why calls went to the framework, and how many."""
missing: list[str] = []
"""Frameworks that this einsumx cannot patch."""
is_native = os.environ.get("EINSUMX_CLIENT_NATIVE") == "1"
inside = {"first": 0.0, "again": 0.0}
"""The processor time in calls of the functions: in the first of each equation, shapes and dtypes, and in the others."""


class Counts:
    """Calls of the replaced functions that einsumx served, and that it left to the framework."""

    served = 0
    left = 0
    depth = 0


def note_native(called: str, operands: Any, why: str, owner: str = "") -> None:
    """Count a call that is left to the framework."""
    Counts.left += 1
    reasons[why] = reasons.get(why, 0) + 1


def counted(ours: Function) -> Function:
    """The same function, with a count of the calls that it does not leave to the framework, and their time."""
    timed_ours = timed(ours)

    @wraps(ours)
    def function(*operands: Any, **options: Any) -> Any:
        left = Counts.left
        result = timed_ours(*operands, **options)
        Counts.served += Counts.left == left
        return result

    return function


def timed(function: Function) -> Function:
    """The same function, whose processor time is added up. Calls within a call are part of it."""
    seen: set[Any] = set()

    @wraps(function)
    def call(*operands: Any, **options: Any) -> Any:
        if Counts.depth:
            return function(*operands, **options)
        key = tuple(map(described, operands))
        Counts.depth += 1
        begin = time.process_time()
        try:
            return function(*operands, **options)
        finally:
            inside["again" if key in seen else "first"] += time.process_time() - begin
            Counts.depth -= 1
            seen.add(key)

    return call


def described(argument: Any) -> Any:
    """An equation or a list of labels as text, or the shape and dtype of an array."""
    if hasattr(argument, "shape"):
        return tuple(argument.shape), str(getattr(argument, "dtype", ""))
    return str(argument)


def count_calls() -> None:
    """Count the calls of every replacement that starts after this."""
    places = patching.Names._current_places

    def counted_places(names: patching.Names) -> list[Any]:
        return [place._replace(ours=patching._Replacements(partial(replacement_of, place))) for place in places(names)]

    patching.Names._current_places = counted_places  # type: ignore[method-assign]
    replacement.say_native = patching.say_native = note_native  # other modules import it from here later
    log.setLevel("WARNING")  # some tests show every message, and to write one about a plan takes longer than the plan


def replacement_of(place: Any, limit: Any) -> Function:
    """The function for a limit that is called in place of the library's own."""
    return timed(place.native) if is_native else counted(place.ours[limit])


def patch() -> None:
    """Patch the frameworks, and replace the functions under every name that they have."""
    count_calls()
    for name in frameworks:
        try:
            einsumx.patch(name)
        except einsumx.BackendError as error:
            missing.append(f"{name}: {error}")
    if replaced:
        own, ours = map(function_at, replaced)
        counting = timed(own) if is_native else counted(ours)
        for each in list(sys.modules.values()):
            for key in [key for key, value in vars(each).items() if value is own]:
                setattr(each, key, counting)
        module, _, names = replaced[0].partition(":")
        if "." in names:
            kind, _, name = names.rpartition(".")
            setattr(attrgetter(kind)(import_module(module)), name, staticmethod(counting))


def function_at(place: str) -> Function:
    """The function at ``module:name``, or the static method at ``module:class.name``."""
    module, _, names = place.partition(":")
    function: Function = attrgetter(names)(import_module(module))
    return function


if frameworks or replaced:
    patch()


def new() -> dict[str, Any]:
    """The record of a test that did nothing yet."""
    return {"outcome": "passed", "seconds": 0.0, "cpu": 0.0, "served": 0, "left": 0}


def seed() -> None:
    """Start the frameworks' generators of random numbers anew."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Seed before each module is imported too, because some make random parameters for their tests."""
    seed()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what is imported now to no garbage collection: one of it all takes 0.1 s, in whichever call it falls."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Take the processor time of a test, without its fixtures; other programs disturb it less than the time."""
    begin = time.process_time()
    try:
        return (yield)
    finally:
        test = tests.setdefault(item.nodeid, new())
        test["cpu"] += time.process_time() - begin


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Any:
    """Count a test's calls."""
    seed()
    served, left = Counts.served, Counts.left
    try:
        return (yield)
    finally:
        test = tests.setdefault(item.nodeid, new())
        test["served"], test["left"] = Counts.served - served, Counts.left - left


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of a test's phase, its time, and the end of an error's message."""
    test = tests.setdefault(report.nodeid, new())
    outcome: str = report.outcome
    if hasattr(report, "wasxfail"):
        outcome = "xpassed" if outcome == "passed" else "xfailed"
    if SEVERITY.index(outcome) > SEVERITY.index(test["outcome"]):
        test["outcome"] = outcome
    if report.when == "call":
        test["seconds"] += report.duration
    if outcome == "failed":
        crash = getattr(report.longrepr, "reprcrash", None)
        test["message"] = (crash.message if crash else str(report.longrepr))[-1500:]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A module that cannot be imported is one failed test."""
    if report.failed:
        tests[report.nodeid] = {**new(), "outcome": "failed", "message": str(report.longrepr)[-1500:]}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report."""
    result = {"tests": tests, "reasons": reasons, "missing": missing, "served": Counts.served, "left": Counts.left}
    result["inside"] = inside
    Path(os.environ["EINSUMX_CLIENT_REPORT"]).write_text(json.dumps(result, indent=1))
