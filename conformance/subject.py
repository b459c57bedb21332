"""Subjects, which the suite judges: an einsum function, on the arrays of one framework, on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from typing import Any

import numpy as np

import einsumx
from einsumx.adapters.operand_types import type_name
from einsumx.adapters.registry import backends, get_backend
from einsumx.adapters.replacement import own
from einsumx.conformance.case import Case, Failure, error_line
from einsumx.conformance.deviations import DEVIATIONS, Deviation
from einsumx.conformance.framework import Array, Framework, Function, version_of
from einsumx.conformance.frameworks import KNOWN, framework_of
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.kit.oracle import Expected, expect, expect_update, judge
from einsumx.conformance.semiring_oracle import expect_in
from einsumx.errors import BackendError


@dataclass(frozen=True)
class Subject:
    """An einsum function, and the framework whose arrays it gets.

    Attributes:
        name: the name in reports and lists of deviations: a backend's name, ``module:function``, or
            ``module:function on framework`` if the module belongs to no known framework.
        version: the version of the function's library.
        framework: makes and reads the arrays.
        device: where the arrays are; empty for the framework's default.
        function: the einsum function.
        is_einsumx: whether the function is einsumx's own, so that its errors must be einsumx's.
    """

    name: str
    version: str
    framework: Framework
    device: str
    function: Callable[..., Any]
    is_einsumx: bool

    @property
    def path(self) -> str:
        """The function as ``module:function``."""
        return "einsumx:einsum" if self.is_einsumx else self.name.partition(" ")[0]

    @property
    def deviations(self) -> list[Deviation]:
        """The deviations of this version, listed by the suite or by the framework."""
        of_framework = self.framework.deviations if self.is_einsumx else ()
        listed = (*DEVIATIONS.get(self.name, ()), *of_framework)
        return [deviation for deviation in listed if deviation.holds_in(self.version)]

    def operands(self, case: Case, purpose: str = "") -> tuple[list[Any], list[Array]]:
        """The operands of a case, as NumPy arrays and as arrays of the framework.

        Raises:
            NotApplicable: the framework lacks a dtype or a layout.
        """
        hosts = case.values(purpose)
        return hosts, self.arrays(case, hosts)

    def arrays(self, case: Case, hosts: Sequence[Any]) -> list[Array]:
        """Arrays on the device with the values of ``hosts`` and the layouts of the case's operands.

        Raises:
            NotApplicable: the framework lacks a dtype or a layout.
        """
        for operand in case.operands:
            if operand.layout != "python":  # each framework chooses the dtype of Python's lists and scalars
                self.needs_dtype(operand.dtype)
        return [self.framework.laid_out(host, operand, self.device) for host, operand in zip(hosts, case.operands)]

    def array(self, values: Any, dtype: str) -> Array:
        """Values as an array on the device.

        Raises:
            NotApplicable: the framework lacks the dtype.
        """
        self.needs_dtype(dtype)
        return self.framework.array(values, dtype, self.device)

    def needs_dtype(self, dtype: str) -> None:
        """Raise NotApplicable if the framework lacks a dtype."""
        if dtype not in self.framework.dtypes:
            raise NotApplicable(f"{self.framework.name} has no {dtype}")

    def function_of(self, case: Case) -> Callable[..., Any]:
        """The function that a case calls.

        Raises:
            NotApplicable: only einsumx has it, or not for the framework's arrays.
        """
        framework, semiring = self.framework, case.semiring
        is_einsum = case.function == "einsum" and not semiring
        if not self.is_einsumx and (case.only_einsumx or not is_einsum or "accumulate" in dict(case.options)):
            raise NotApplicable("only einsumx promises this")
        if is_einsum:
            return self.function
        if case.function == "einsum_frexp" and framework.no_exponents:
            raise NotApplicable(framework.no_exponents)
        if semiring and not (framework.semirings or semiring.is_boolean):
            raise NotApplicable(f"{self.name} has no semirings but 'boolean'")
        if case.function == "argmax" and not (framework.semirings and framework.positions):
            raise NotApplicable(f"{self.name} has no positions of largest terms")
        function: Callable[..., Any] = getattr(semiring or einsumx, case.function)
        return function

    def call(self, case: Case, arrays: Sequence[Array], **options: Any) -> Any:
        """Call a case's function with its equation and keywords, and wait for the result."""
        if case.over is not None:
            options["out"] = arrays[case.over]
        result = self.function_of(case)(*case.arguments(list(arrays)), **{**dict(case.options), **options})
        if self.framework.is_array(result):
            self.framework.synchronize(result)
        return result

    def bound(self, case: Case) -> Function:
        """A case's function with its equation and keywords, which takes only arrays."""
        function, equation = partial(self.function_of(case), **dict(case.options)), case.equation
        if not isinstance(equation, str):
            raise TypeError("a function of only arrays needs an equation that is text")
        if case.function == "addeinsum":
            return lambda c, *arrays: function(c, equation, *arrays)
        return partial(function, equation)

    def result_dtype(self, case: Case) -> str:
        """The dtype to which the framework promotes the operands' dtypes.

        Raises:
            NotApplicable: the framework does not promote them, or lacks one of them.
        """
        first, *others = [operand.dtype for operand in case.operands]
        for dtype in (first, *others):
            self.needs_dtype(dtype)
        for other in others:
            promoted = first if first == other else self.framework.promote(first, other)
            if promoted not in self.framework.dtypes:
                raise NotApplicable(f"{self.framework.name} does not promote {first} with {other}")
            first = str(promoted)
        return first

    def expected(self, case: Case, hosts: Sequence[Any], dtype: str = "") -> Expected:
        """The result of the case in ``dtype``; by default in the case's ``dtype=`` or the promotion.

        Raises:
            NotApplicable: the framework lacks a dtype, or does not promote those of the operands.
        """
        options, semiring = dict(case.options), case.semiring
        dtype = dtype or options.get("dtype") or self.result_dtype(case)
        if semiring and semiring.is_boolean:
            dtype = "bool"
        accumulate = options.get("accumulate")
        for name in (dtype, accumulate or dtype):
            self.needs_dtype(name)
        if semiring:
            return expect_in(semiring, str(case.equation), hosts, dtype)
        arguments = case.arguments(list(hosts))
        added = arguments.pop(0) if case.function == "addeinsum" else None
        plain = expect(*arguments, dtype=dtype, accumulate=accumulate)
        if added is None:
            return plain
        return expect_update(plain, options.get("alpha", 1), added, options.get("beta", 1), dtype)

    def judge(self, result: Any, expected: Expected, name: str = "the result") -> None:
        """Raise Failure unless ``result`` is an array of this framework on this device, with the expected values."""
        framework = self.framework
        if not framework.is_array(result):
            raise Failure(f"{name} is a {type_name(type(result))}, and no array of {framework.name}")
        device, right_device = framework.device(result), framework.device(framework.array(0, "float32", self.device))
        if device != right_device:
            raise Failure(f"{name} is on the device {device}, not on {right_device}")
        if (dtype := framework.dtype(result)) != expected.dtype:
            raise Failure(f"{name} has the dtype {dtype}, not {expected.dtype}")
        if not framework.has_values(result):
            if tuple(result.shape) != expected.values.shape:
                raise Failure(f"{name} has the shape {tuple(result.shape)}, not {expected.values.shape}")
            return
        verdict = judge(framework.values(result), expected)
        if not verdict:
            raise Failure(f"{name}: {verdict.wrong}")

    def judge_unchanged(self, arrays: Sequence[Array], hosts: Sequence[Any]) -> None:
        """Raise Failure unless each operand still has its values, if it has any."""
        for place, (array, host) in enumerate(zip(arrays, hosts)):
            if not self.framework.has_values(array):
                continue
            if not np.array_equal(self.framework.values(array), host, equal_nan=host.dtype.kind in "fc"):
                raise Failure(f"operand {place} was changed")


def backend_subject(name: str, device: str = "") -> Subject:
    """Einsumx on a backend.

    Raises:
        BackendError: there is no such backend, or it cannot be used here.
    """
    framework = _usable_framework(name, device)
    return Subject(name, framework.version, framework, device, einsumx.einsum, is_einsumx=True)


def callable_subject(path: str, backend: str = "", device: str = "") -> Subject:
    """Any einsum function, by ``module:name``: ``numpy:einsum``, ``opt_einsum:contract``, ``mxnet:np.einsum``.

    Args:
        path: the module and the function's name in it.
        backend: the framework whose arrays it gets; by default its own, or NumPy if its module is no known framework.
        device: the device of the arrays; by default the framework's default.

    Raises:
        BackendError: there is no such function, or the framework cannot be used here.

    >>> callable_subject("numpy:einsum").name
    'numpy:einsum'
    >>> callable_subject("opt_einsum:contract").name
    'opt_einsum:contract on numpy'
    """
    module, _, names = path.partition(":")
    package = module.partition(".")[0]
    # The framework first, because its import may need settings that the function's module would come too late for.
    framework = _usable_framework(backend or (package if package in KNOWN else "numpy"), device)
    try:
        function: Any = own(attrgetter(names)(import_module(module)))
    except (ImportError, AttributeError, ValueError) as error:
        raise BackendError(
            f"there is no function {path!r} here: {error}; write module:name, such as numpy:einsum"
        ) from error
    name = path if package == framework.name else f"{path} on {framework.name}"
    return Subject(name, version_of(package), framework, device, framework.called(function), is_einsumx=False)


def subjects(backends: Sequence[str], callables: Sequence[str] = (), device: str = "") -> list[Subject]:
    """Each function on the arrays of each backend, by default of its own framework; or einsumx on each backend.

    Raises:
        BackendError: there is no such backend or function, or it cannot be used here.
    """
    if callables:
        return [callable_subject(path, name, device) for path in callables for name in backends or [""]]
    return [backend_subject(name, device) for name in backends]


def installed_backends() -> list[str]:
    """The names of the backends whose frameworks are installed and that the suite can use."""
    installed = [name for name, is_installed in backends().items() if is_installed]
    return [name for name in installed if name not in KNOWN or find_spec(KNOWN[name].module)]


def _usable_framework(name: str, device: str) -> Framework:
    """The framework of that name, after a test that it makes an array on the device and reads it."""
    framework = framework_of(name)
    where = f" on {device}" if device else ""
    try:
        array = framework.array(np.zeros(2, "float32"), "float32", device)
        framework.values(array)
    except Exception as error:
        reason = error_line(error)
        if isinstance(error, ModuleNotFoundError):
            reason = f"{reason}; {get_backend(name).install}"
        elif name not in KNOWN:
            reason = f"{reason}; see {framework.described_by}"
        raise BackendError(f"{name} cannot be used{where} here: {reason}") from error
    actual_device = framework.device(array)
    (kind, _, number), (actual_kind, _, actual_number) = device.partition(":"), actual_device.partition(":")
    # JAX's name for cuda is gpu, so kinds may differ, but no array on the CPU may count as one on another device.
    wrong_kind = kind != actual_kind and "cpu" in (kind, actual_kind)
    if device and (wrong_kind or (number and actual_number and number != actual_number)):
        raise BackendError(f"{name} cannot be used{where} here: it puts arrays on {actual_device}")
    return framework
