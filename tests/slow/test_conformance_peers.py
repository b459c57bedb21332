"""The suite on other libraries' einsum functions: their faults show in its cases, and what deviates is listed."""

import re
from collections import defaultdict
from importlib.util import find_spec

import pytest

from einsumx.conformance.case import as_expression
from einsumx.conformance.deviations import DEVIATIONS, Deviation
from einsumx.conformance.subject import backend_subject, callable_subject
from einsumx.conformance.suite import cases, run

CASES = cases("full")
IDS = {case.id: case.feature for case in CASES}
BOUNDS = {
    bound for listed in DEVIATIONS.values() for deviation in listed for bound in (deviation.since, deviation.before)
}
VERSIONS = [f"{bound}{rest}" for bound in BOUNDS for rest in ("", ".1")] + ["0", "999"]
"""At, around and between all bounds of versions."""

LONG = {"compile", "devices", "large rank", "many operands", "unknown sizes"}
"""Features whose cases take seconds."""


def subject_of(name):
    path, _, framework = name.partition(" on ")
    if not all(find_spec(package) for package in (re.split("[.:]", path)[0], framework) if package):
        pytest.skip(f"{name} is not installed")
    return callable_subject(path, framework) if ":" in path else backend_subject(path)


def matching(pattern):
    """The cases of a pattern. Only its own feature's are compared with it, if it names one."""
    named = pattern.partition("/")[0]
    return {
        case
        for case, feature in IDS.items()
        if ("*" in named or feature == named) and as_expression(pattern).match(case)
    }


@pytest.mark.parametrize("name", DEVIATIONS)
def test_every_pattern_of_a_list_has_a_case_and_no_case_is_listed_twice(name):
    listed = defaultdict(list)
    for deviation in DEVIATIONS[name]:
        found = {pattern: matching(pattern.removeprefix("!")) for pattern in deviation.patterns}
        assert [pattern for pattern, ids in found.items() if not ids] == []
        excepted = set().union(*(ids for pattern, ids in found.items() if pattern.startswith("!")))
        for case in set().union(*found.values()) - excepted:
            listed[case].append(deviation)
    for case, several in listed.items():
        for version in VERSIONS if len(several) > 1 else ():
            assert sum(deviation.holds_in(version) for deviation in several) <= 1, case


def test_every_reason_is_a_sentence_of_its_own():
    reasons = [deviation.reason for listed in DEVIATIONS.values() for deviation in listed]
    assert all(re.fullmatch(r"\S+( \S+){3,}\.", reason) for reason in reasons)


def test_what_einsumx_itself_deviates_in_is_a_few_cases_and_nearly_always_so():
    for name, listed in DEVIATIONS.items():
        if ":" not in name:
            assert len(listed) <= 3
            # cubed takes minutes for the graph of a thousand calls, whoever makes them.
            assert name == "cubed" or not any(deviation.crashes for deviation in listed)
            # Which calls meet in tinygrad's compiler, and how MLX rounds what it adds up, differs from run to run.
            assert name in ("mlx", "tinygrad") or not any(deviation.sometimes for deviation in listed)


def test_a_deviation_has_exceptions_and_a_range_of_versions():
    deviation = Deviation("views/*\n!views/[0]*", "it has no views", since="1.9", before="2.1")
    assert deviation.matches("views/ij")
    assert not deviation.matches("views/[0] (3)")
    assert not deviation.matches("out/ij")
    assert deviation.holds_in("2.0.0b1")
    assert deviation.holds_in("1.9")
    assert deviation.holds_in("1.10.1")
    assert not deviation.holds_in("1.8.9")
    assert not deviation.holds_in("2.1.0")
    of_bools = Deviation("dtypes/i->|ij->j * bool|int8", "it counts bools")
    assert tuple(of_bools.patterns) == (
        "dtypes/i-> * bool",
        "dtypes/i-> * int8",
        "dtypes/ij->j * bool",
        "dtypes/ij->j * int8",
    )


def test_a_case_that_would_end_the_process_is_not_run():
    case = next(case for case in CASES if case.id.startswith("forms/ij->ji"))
    listed = [Deviation("forms/*", "it never ends", crashes=True)]
    (outcome,) = run(subject_of("numpy:einsum"), [case], listed)
    assert (outcome.status, outcome.reason) == ("deviation", "it never ends")
    assert "not run" in outcome.message


@pytest.mark.parametrize("name", DEVIATIONS)
def test_what_a_peer_does_otherwise_is_listed_and_still_so(name):
    subject = subject_of(name)
    # JAX compiles each case, and other libraries those of a few features; ``nox -s full`` runs them all.
    chosen = [case for case in cases("quick", random=0) if case.feature not in LONG]
    chosen = [case for case in chosen if "jax" not in name or case.feature == "wrong sizes"]
    failed = [outcome for outcome in run(subject, chosen, subject.deviations) if outcome.status == "fail"]
    assert not failed, "\n".join(f"{outcome.case}: {outcome.message}" for outcome in failed)
