"""Where results are: on the device of the operands; and Python's lists and scalars, which follow the arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from einsumx import BackendError
from einsumx.conformance.case import ArraySpec, Case, Failure, NotApplicable, Refusal, operands
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.framework import Array
from einsumx.conformance.oracle import expect
from einsumx.conformance.refusals import needs_keyword, needs_writeable_arrays, refusal_message
from einsumx.conformance.subject import Subject
from einsumx.dtypes import kind

__all__ = ["FEATURES", "cases"]

FEATURES = {
    "devices": "Results are on the operands' device; two devices in one call are an error that names both",
    "lists and scalars": "Python's lists and scalars follow the framework, device and dtype of the arrays beside them",
}


def _stays_on_its_device(case: Case, subject: Subject) -> None:
    """The result of operands on each other device is there."""
    framework = subject.framework
    hosts = case.values()
    for device in _others(subject):
        arrays = [_on(device, host, operand, subject) for host, operand in zip(hosts, case.operands)]
        _is_on(device, subject.call(case, arrays), case, hosts, subject)
        if dict(case.options).get("dtype") is None and not framework.immutable:
            shape = np.asarray(expect(*case.arguments(hosts)).values).shape
            out = framework.array(np.zeros(shape), "float32", device)
            needs_keyword(subject, "out")
            subject.call(case, arrays, out=out)
            _is_on(device, out, case, hosts, subject)


def _follows_to_the_device(case: Case, subject: Subject) -> None:
    """Python's lists and scalars go where the arrays are."""
    hosts = case.values()
    for device in _others(subject):
        given = [
            host.tolist() if operand.layout == "python" else _on(device, host, operand, subject)
            for host, operand in zip(hosts, case.operands)
        ]
        result = subject.call(case, given)
        if subject.framework.device(result) != device:
            raise Failure(f"the result is on {subject.framework.device(result)}, not on {device}")


def _two_devices_are_refused(case: Case, subject: Subject) -> None:
    """Operands on two devices are an error; einsumx's message names both."""
    here, there = _two(subject)
    hosts = case.values()
    for first, second in ((here, there), (there, here)):
        devices = [first, *[second] * (len(hosts) - 1)]
        arrays = [_on(*made, subject) for made in zip(devices, hosts, case.operands)]
        message = refusal_message(case, subject, arrays)
        if subject.is_einsumx and not (here in message and there in message):
            raise Failure(f"the message does not name {here} and {there}: {message!r}")


def _out_elsewhere_is_refused(case: Case, subject: Subject) -> None:
    """``out`` on another device than the operands is an error; einsumx's message names both."""
    needs_writeable_arrays(subject)
    here, there = _two(subject)
    needs_keyword(subject, "out")
    hosts = case.values()
    arrays = [_on(here, host, operand, subject) for host, operand in zip(hosts, case.operands)]
    out = subject.framework.array(np.zeros(3), "float32", there)
    message = refusal_message(replace(case, options=(("out", out),)), subject, arrays)
    if subject.is_einsumx and not (here in message and there in message):
        raise Failure(f"the message does not name {here} and {there}: {message!r}")


def _others(subject: Subject) -> tuple[str, ...]:
    others = subject.framework.other_devices(subject.device)
    if not others:
        raise NotApplicable(f"{subject.framework.name} has one device here")
    return others


def _two(subject: Subject) -> tuple[str, str]:
    """The device of the subject and another one, by name, so that arrays are held to them."""
    return subject.framework.device(subject.array(np.zeros(1), "float32")), _others(subject)[0]


def _on(device: str, host: Array, operand: ArraySpec, subject: Subject) -> Array:
    return subject.framework.array(host, operand.dtype, device)


def _is_on(device: str, result: Array, case: Case, hosts: list[Array], subject: Subject) -> None:
    framework = subject.framework
    if not framework.is_array(result):
        raise Failure(f"the result of operands on {device} is a {type(result).__name__}")
    if framework.device(result) != device:
        raise Failure(f"the result of operands on {device} is on {framework.device(result)}")
    expected = expect(*case.arguments(hosts), dtype=dict(case.options).get("dtype"))
    if framework.dtype(result) != expected.dtype or tuple(result.shape) != expected.values.shape:
        raise Failure(f"the result on {device} is of {framework.dtype(result)}, shape {tuple(result.shape)}")
    if framework.has_values(result):
        replace(subject, device=device).judge(result, expected)


def _scalars_follow(case: Case, subject: Subject) -> None:
    """A Python scalar is as weak as the framework has it; on NumPy it is what ``numpy.asarray`` makes of it."""
    hosts, arrays = subject.operands(case)
    dtype = "float32"
    if subject.framework.name == "numpy":
        dtype = np.result_type(*(host.dtype for host in hosts)).name
        if dtype != np.result_type(*hosts).name and not subject.is_einsumx:
            raise NotApplicable("NumPy before 2 promotes what has no axes by its value")
    result = subject.call(case, arrays)
    subject.judge(result, subject.expected(case, hosts, dtype))


def _lists_follow(case: Case, subject: Subject) -> None:
    """A list is an array of the framework, of whichever dtype it makes of such lists."""
    framework = subject.framework
    hosts = case.values()
    result = subject.call(case, subject.arrays(case, hosts))
    if not framework.is_array(result):
        raise Failure(f"the result is a {type(result).__name__}, and no array of {framework.name}")
    dtype = framework.dtype(result)
    if dtype not in ("float32", "float64") or (framework.name == "numpy" and dtype != "float64"):
        raise Failure(f"the result has the dtype {dtype}")
    # Of a list in float64 beside an array in float32, what is between the two is rounding of the list's.
    subject.judge(result, subject.expected(case, hosts, dtype))


def _alone_follow(case: Case, subject: Subject) -> None:
    """Alone they are arrays of the framework: for einsumx of ``backend=``, NumPy's without it."""
    framework = subject.framework
    hosts = case.values()
    options = {"backend": subject.name} if subject.is_einsumx and framework.name != "numpy" else {}
    result = subject.call(case, subject.arrays(case, hosts), **options)
    if not framework.is_array(result):
        raise Failure(f"the result is a {type(result).__name__}, and no array of {framework.name}")
    dtype, wanted = framework.dtype(result), np.result_type(*hosts)
    if kind(dtype) != wanted.kind or (framework.name == "numpy" and dtype != wanted.name):
        raise Failure(f"the result has the dtype {dtype}")
    on_default = replace(subject, device="")  # as no array says where they should be
    on_default.judge(result, subject.expected(case, hosts, dtype))


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    product = operands((2, 3), (3, 4))
    for equation, made in (
        ("ij,jk->ik", product),
        ("ij->ji", product[:1]),
        ("ij->i", product[:1]),
        ("ii->i", operands((3, 3))),
        ("ij,ij->ij", (product[0], product[0])),
        ("ij,jk,kl->il", operands((2, 3), (3, 4), (4, 2))),
        ("ij,jk->ik", operands((2, 0), (0, 3))),
    ):
        yield Case("devices", gives_the_plain_sum, equation, made)
        yield Case("devices", _stays_on_its_device, equation, made, about="on each other device")
    options = (("dtype", "float32"),)
    eights = operands((3, 4), dtype="int8")
    yield Case("devices", _stays_on_its_device, "ij->i", eights, options, about="on each other device")
    refusal = Refusal(BackendError, "two devices")
    for equation, count in (("i,i->", 2), ("i,i->i", 2), ("i,i,i->", 3)):
        vectors, check = operands(*[(3,)] * count), _two_devices_are_refused
        yield Case("devices", check, equation, vectors, refusal=refusal, about="on two devices")
    refusal = Refusal(BackendError, "out= is on")
    yield Case("devices", _out_elsewhere_is_refused, "i,i->i", vectors[:2], refusal=refusal, about="out=elsewhere")

    vector = ArraySpec((3,))
    for scalar in (ArraySpec((), "int64", "python"), ArraySpec((), "float64", "python")):
        for equation, made in (
            ("i,->i", (vector, scalar)),
            (",i->i", (scalar, vector)),
            ("i,,->i", (vector, scalar, scalar)),
        ):
            yield Case("lists and scalars", _scalars_follow, equation, made)
    row = ArraySpec((3,), "float64", "python", "exact")
    table = ArraySpec((3, 2), "float64", "python", "exact")
    for equation, made in (("i,i->i", (vector, row)), ("i,i->", (row, vector)), ("i,ij->j", (vector, table))):
        yield Case("lists and scalars", _lists_follow, equation, made)
        about = "on each other device"
        yield Case("lists and scalars", _follows_to_the_device, equation, made, about=about)
    about = "on each other device"
    made = (vector, ArraySpec((), "float64", "python"))
    yield Case("lists and scalars", _follows_to_the_device, "i,->i", made, about=about)
    for dtype in ("int64", "float64", "bool"):
        for equation, shapes in (("ij,j->i", ((2, 2), (2,))), (",->", ((), ())), ("i->", ((3,),))):
            made = operands(*shapes, dtype=dtype, layout="python", fill="exact")
            yield Case("lists and scalars", _alone_follow, equation, made, about="alone")
