"""Devices of results, and Python's lists and scalars among arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from einsumx import BackendError
from einsumx.conformance.case import Case, Failure, examples, keywords, operands
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.framework import Array
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.kit.oracle import expect
from einsumx.conformance.refusals import judge_names, needs_keyword, needs_writeable_arrays, refusal_message
from einsumx.conformance.subject import Subject
from einsumx.dtypes import kind

FEATURES = {
    "devices": "Results are on the operands' device; two devices in one call are an error that names both",
    "lists and scalars": "Python's lists and scalars follow the other operands' framework, device and dtype",
}

_ELSEWHERE = "on each other device"


# -- devices --------------------------------------------------------------------------------------------------------


def _stays_on_its_device(case: Case, subject: Subject) -> None:
    """On each other device, the result is on the device of the operands, with and without ``out``."""
    framework = subject.framework
    hosts = case.values()
    for device in _devices(subject)[1:]:
        arrays = _arrays_on(device, case, hosts, subject)
        _judge_on(device, subject.call(case, arrays), case, hosts, subject)
        if dict(case.options).get("dtype") is None and not framework.immutable:
            shape = np.asarray(expect(*case.arguments(hosts)).values).shape
            out = framework.array(np.zeros(shape), "float32", device)
            needs_keyword(subject, "out")
            subject.call(case, arrays, out=out)
            _judge_on(device, out, case, hosts, subject)


def _follows_to_the_device(case: Case, subject: Subject) -> None:
    """With arrays on another device, Python's lists and scalars go there too."""
    for device in _devices(subject)[1:]:
        result = subject.call(case, _arrays_on(device, case, case.values(), subject))
        if subject.framework.device(result) != device:
            raise Failure(f"the result is on {subject.framework.device(result)}, not on {device}")


def _two_devices_are_refused(case: Case, subject: Subject) -> None:
    """Operands on two devices are an error; einsumx's message names both."""
    here, elsewhere, *_ = _devices(subject)
    hosts = case.values()
    arrays = {device: _arrays_on(device, case, hosts, subject) for device in (here, elsewhere)}
    for first, others in ((here, elsewhere), (elsewhere, here)):
        message = refusal_message(case, subject, [*arrays[first][:1], *arrays[others][1:]])
        judge_names(message, subject, here, elsewhere)


def _out_elsewhere_is_refused(case: Case, subject: Subject) -> None:
    """``out`` on another device than the operands is an error; einsumx's message names both."""
    needs_writeable_arrays(subject)
    here, elsewhere, *_ = _devices(subject)
    needs_keyword(subject, "out")
    out = subject.framework.array(np.zeros(3), "float32", elsewhere)
    arrays = _arrays_on(here, case, case.values(), subject)
    message = refusal_message(replace(case, options=(("out", out),)), subject, arrays)
    judge_names(message, subject, here, elsewhere)


def _devices(subject: Subject) -> tuple[str, ...]:
    """The full name of the subject's device, and one or more other devices."""
    here = subject.framework.device(subject.array(np.zeros(1), "float32"))
    others = [device for device in subject.framework.devices() if device != here]
    if not others:
        raise NotApplicable(f"{subject.framework.name} has one device here")
    return here, *others


def _arrays_on(device: str, case: Case, hosts: list[Any], subject: Subject) -> list[Any]:
    return [
        host.tolist() if spec.layout == "python" else subject.framework.array(host, spec.dtype, device)
        for host, spec in zip(hosts, case.operands)
    ]


def _judge_on(device: str, result: Array, case: Case, hosts: list[Any], subject: Subject) -> None:
    expected = expect(*case.arguments(hosts), dtype=dict(case.options).get("dtype"))
    replace(subject, device=device).judge(result, expected, f"the result of operands on {device}")


# -- lists and scalars ----------------------------------------------------------------------------------------------


def _scalars_follow(case: Case, subject: Subject) -> None:
    """A Python scalar is weak if it is in the framework; on NumPy and CuPy it has the dtype of its ``asarray``."""
    hosts, arrays = subject.operands(case)
    dtype = "float32"
    if subject.framework.name in ("numpy", "cupy"):
        dtype = np.result_type(*(host.dtype for host in hosts)).name
        if dtype != np.result_type(*hosts).name and not subject.is_einsumx:
            raise NotApplicable("NumPy before 2 promotes arrays without axes by their values")
    subject.judge(subject.call(case, arrays), subject.expected(case, hosts, dtype))


def _lists_follow(case: Case, subject: Subject) -> None:
    """A list becomes an array of the framework, in the dtype in which the framework makes an array of it."""
    hosts, arrays = subject.operands(case)
    result = subject.call(case, arrays)
    dtype = _dtype_of_array(result, subject)
    if dtype not in ("float32", "float64") or (subject.framework.name == "numpy" and dtype != "float64"):
        raise Failure(f"the result has the dtype {dtype}")
    subject.judge(result, subject.expected(case, hosts, dtype))


def _alone_follow(case: Case, subject: Subject) -> None:
    """Without arrays, the result is an array of einsumx's ``backend=``, or of NumPy by default."""
    hosts, arrays = subject.operands(case)
    is_numpy = subject.framework.name == "numpy"
    options = {"backend": subject.name} if subject.is_einsumx and not is_numpy else {}
    result = subject.call(case, arrays, **options)
    dtype, promoted = _dtype_of_array(result, subject), np.result_type(*hosts)
    if kind(dtype) != promoted.kind or (is_numpy and dtype != promoted.name):
        raise Failure(f"the result has the dtype {dtype}")
    on_default = replace(subject, device="")  # because no operand has a device
    on_default.judge(result, subject.expected(case, hosts, dtype))


def _dtype_of_array(result: Any, subject: Subject) -> str:
    if not subject.framework.is_array(result):
        raise Failure(f"the result is a {type(result).__name__}, and no array of {subject.framework.name}")
    return subject.framework.dtype(result)


# -- cases ----------------------------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    on_device = partial(Case, "devices")
    for equation, shapes in examples("""
        ij,jk->ik     2,3 3,4
        ij->ji        2,3
        ij->i         2,3
        ii->i         3,3
        ij,ij->ij     2,3 2,3
        ij,jk,kl->il  2,3 3,4 4,2
        ij,jk->ik     2,0 0,3
    """):
        yield on_device(gives_the_plain_sum, equation, operands(*shapes))
        yield on_device(_stays_on_its_device, equation, operands(*shapes), about=_ELSEWHERE)
    eights = operands((3, 4), dtype="int8")
    yield on_device(_stays_on_its_device, "ij->i", eights, keywords(dtype="float32"), about=_ELSEWHERE)
    refused = partial(on_device, raises=BackendError)
    for equation, count in (("i,i->", 2), ("i,i->i", 2), ("i,i,i->", 3)):
        vectors = operands(*[(3,)] * count)
        yield refused(_two_devices_are_refused, equation, vectors, says="two devices", about="on two devices")
    about = "c on another"
    added = partial(refused, _two_devices_are_refused, function="addeinsum", says="two devices")
    yield added("i->i", vectors[:2], about=about)
    yield refused(_out_elsewhere_is_refused, "i,i->i", vectors[:2], says="out= is on", about="out=elsewhere")

    follows = partial(Case, "lists and scalars")
    vector = ArraySpec((3,))
    for dtype in ("int64", "float64"):
        scalar = ArraySpec((), dtype, "python")
        yield follows(_scalars_follow, "i,->i", (vector, scalar))
        yield follows(_scalars_follow, ",i->i", (scalar, vector))
        yield follows(_scalars_follow, "i,,->i", (vector, scalar, scalar))
    row, table = operands((3,), (3, 2), dtype="float64", layout="python", fill="exact")
    for equation, specs in (("i,i->i", (vector, row)), ("i,i->", (row, vector)), ("i,ij->j", (vector, table))):
        yield follows(_lists_follow, equation, specs)
        yield follows(_follows_to_the_device, equation, specs, about=_ELSEWHERE)
    yield follows(_follows_to_the_device, "i,->i", (vector, scalar), about=_ELSEWHERE)
    for dtype in ("int64", "float64", "bool"):
        for equation, shapes in examples("ij,j->i  2,2 2 \n ,->  () () \n i->  3"):
            lists = operands(*shapes, dtype=dtype, layout="python", fill="exact")
            yield follows(_alone_follow, equation, lists, about="alone")
