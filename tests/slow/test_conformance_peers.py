"""The suite on other libraries' einsum functions: their faults show in its cases, and what deviates is listed."""

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


FAULTS = [
    ("numpy:einsum", "dtype/ki,ij->j * (4,2)* dtype=int32 optimize=True", r"element \(\d,\) is -?\d+, not"),
    ("numpy:einsum", "ellipsis/...j->j *", "no '...' ellipsis provided to broadcast the extra dimensions"),
    ("torch:einsum", "bool/bij,bik->bjk *", "not implemented for 'Bool'"),
    ("torch:einsum", "integers/i-> * int8", "the dtype int64, not int8"),
    ("torch:einsum", "promotion/ij,jk->ik * int8 float32", "expected|same dtype|not implemented"),
    ("opt_einsum:contract on numpy", "dtype/ij,jk->ik * dtype=float64", "unexpected keyword argument 'dtype'"),
    ("opt_einsum:contract on torch", "keywords/* optimize=False", r"numpy\.ndarray, and no array of torch"),
    ("opt_einsum:contract on torch", "dtype/ki->i * optimize=True", "the dtype int64, not int32"),
    ("opt_einsum:contract on numpy", "wrong sizes/* the wrong sizes are named", "operand 1 has no size 13"),
    ("opt_einsum:contract on numpy", "out/i,i-> *", "IndexError"),
    ("opt_einsum:contract on torch", "out/bij,bjk->bik * float32 out=*", "out"),
    ("jax.numpy:einsum", "wrong sizes/ii->i (1,3) *", "no error came"),
    ("mxnet:np.einsum", "gradients/ij,ij->i (1,4) (2,4) float32", "the gradient by operand 0"),
    ("mxnet:np.einsum", "out/ij,jk->ik * out=operand 0", "out: element"),
    ("mxnet:np.einsum", "keywords/* no_such_keyword=1", "no error came"),
    ("cotengra:einsum on numpy", "wrong sizes/i (2,3) *", "no error came"),
    ("cotengra:einsum on numpy", "implicit output/i, i *", r"shape is \(4, 4\), not \(\)"),
    ("cotengra:einsum on numpy", "sublists/[30,26];[26,27] *", r"shape is \(2, 4\), not \(4, 2\)"),
]
"""Whose fault, in which cases, and what the suite says."""


@pytest.mark.parametrize(("name", "pattern", "says"), FAULTS, ids=str)
def test_a_fault_shows_in_its_case(name, pattern, says):
    subject = subject_of(name)
    chosen = [case for case in CASES if case.id in matching(pattern)]
    assert chosen
    for case in chosen:
        assert any(deviation.matches(case.id) for deviation in DEVIATIONS[name])
        has_it = any(deviation.matches(case.id) for deviation in subject.deviations)  # in this version
        (outcome,) = run(subject, [case])
        assert outcome.status == ("fail" if has_it else "pass")
        assert not has_it or re.search(says, outcome.message)
        (outcome,) = run(subject, [case], subject.deviations)
        assert outcome.status == ("deviation" if has_it else "pass")
