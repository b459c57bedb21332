"""The suite on other libraries' einsum functions: their faults show by name, and what they do otherwise is listed."""

import re
from collections import defaultdict
from importlib.util import find_spec

import pytest

from einsumx.conformance.case import matches
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
    return {case for case, feature in IDS.items() if ("*" in named or feature == named) and matches(case, pattern)}


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
    assert of_bools.patterns == ("dtypes/i-> * bool", "dtypes/i-> * int8", "dtypes/ij->j * bool", "dtypes/ij->j * int8")


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
    chosen = [case for case in chosen if "jax" not in name or case.feature == "known faults"]
    failed = [outcome for outcome in run(subject, chosen, subject.deviations) if outcome.status == "fail"]
    assert not failed, "\n".join(f"{outcome.case}: {outcome.message}" for outcome in failed)


FAULTS = [
    ("numpy:einsum", "the sum that goes first ignores dtype=", "optimize=True", r"element \(\d,\) is -?\d+, not"),
    (
        "numpy:einsum",
        "ellipsis axes are not summed",
        "",
        "no '...' ellipsis provided to broadcast the extra dimensions",
    ),
    ("torch:einsum", "no matrix product of bools", "", "not implemented for 'Bool'"),
    ("torch:einsum", "int8 is widened", "i-> ", "the dtype int64, not int8"),
    ("torch:einsum", "dtypes are not promoted", "ij,jk->ik", "expected|same dtype|not implemented"),
    ("opt_einsum:contract on numpy", "dtype= fails beside", "ij,jk->ik", "unexpected keyword argument 'dtype'"),
    ("opt_einsum:contract on torch", "no path for a call", "optimize=False", r"numpy\.ndarray, and no array of torch"),
    ("opt_einsum:contract on torch", "dtype= fails beside", "ij,ij->i", "the dtype int8, not int32"),
    ("opt_einsum:contract on numpy", "the wrong sizes are named", "", "operand 1 has no size 13"),
    ("opt_einsum:contract on numpy", "out= without axes is not written", "", "IndexError"),
    ("opt_einsum:contract on torch", "out= stays unwritten", "", "out"),
    ("jax.numpy:einsum", "a diagonal of sizes 1 and 3", "", "no error came"),
    ("mxnet:np.einsum", "gradients of size 1 lack the cotangent", "", "the gradient by operand 0"),
    ("mxnet:np.einsum", "out= that is an operand spoils the result", "out=operand 0", "out: element"),
    ("mxnet:np.einsum", "an unknown keyword is ignored", "", "no error came"),
    ("cotengra:einsum on numpy", "an axis too many", "", "no error came"),
    ("cotengra:einsum on numpy", "a blank makes another label", "", r"shape is \(4, 4\), not \(\)"),
    ("cotengra:einsum on numpy", "labels of sublists are not sorted", "", r"shape is \(2, 4\), not \(4, 2\)"),
]
"""Whose fault, of what name, in the cases with which text, and what the suite says."""


@pytest.mark.parametrize(("name", "fault", "text", "says"), FAULTS, ids=str)
def test_a_fault_shows_by_its_name(name, fault, text, says):
    subject = subject_of(name)
    chosen = [case for case in CASES if fault in case.about and text in case.id]
    assert chosen
    for case in chosen:
        assert any(deviation.matches(case.id) for deviation in DEVIATIONS[name])
        has_it = any(deviation.matches(case.id) for deviation in subject.deviations)  # in this version
        (outcome,) = run(subject, [case])
        assert outcome.status == ("fail" if has_it else "pass")
        assert not has_it or re.search(says, outcome.message)
        (outcome,) = run(subject, [case], subject.deviations)
        assert outcome.status == ("deviation" if has_it else "pass")
