"""What is judged: an einsum function, on the arrays of one framework, on one device."""

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
from einsumx.adapters.registry import backends, get_backend
from einsumx.adapters.replacement import own
from einsumx.conformance.case import Case, Failure, NotApplicable, said
from einsumx.conformance.framework import Array, Framework, Function, version_of
from einsumx.conformance.frameworks import KNOWN, framework_of
from einsumx.conformance.oracle import Expected, expect, judge
from einsumx.errors import BackendError

__all__ = ["Subject", "backend_subject", "callable_subject", "installed_backends", "subjects"]


@dataclass(frozen=True)
class Subject:
    """An einsum function and the arrays that it is called with.

    Attributes:
        name: what it is called in reports and in :mod:`einsumx.conformance.deviations`: the backend's name, or
            ``module:function``, and ``module:function on framework`` where the module is of no framework that is known.
        version: of the function's library.
        framework: makes and reads the arrays.
        device: where they are; empty for the framework's default.
        function: the einsum function.
        is_einsumx: whether it is einsumx's own, so that its errors must be einsumx's.
    """

    name: str
    version: str
    framework: Framework
    device: str
    function: Callable[..., Any]
    is_einsumx: bool

    @property
    def path(self) -> str:
        """Where the function is, as ``module:function``."""
        return "einsumx:einsum" if self.is_einsumx else self.name.partition(" ")[0]

    def arrays(self, case: Case, hosts: Sequence[Any]) -> list[Array]:
        """The operands of a case on the device, laid out as it asks.

        Raises:
            NotApplicable: the framework lacks a dtype or a layout.
        """
        for operand in case.operands:
            if operand.layout != "python":  # of which each framework makes what it will
                self.needs_dtype(operand.dtype)
        return [self.framework.laid_out(host, operand, self.device) for host, operand in zip(hosts, case.operands)]

    def array(self, values: Any, dtype: str) -> Array:
        """Values as an array on the device."""
        self.needs_dtype(dtype)
        return self.framework.array(values, dtype, self.device)

    def needs_dtype(self, dtype: str) -> None:
        """Raise NotApplicable where the framework lacks a dtype."""
        if dtype not in self.framework.dtypes:
            raise NotApplicable(f"{self.framework.name} has no {dtype}")

    def call(self, case: Case, arrays: Sequence[Array], **options: Any) -> Any:
        """What the function gives for a case, computed."""
        result = self.function(*case.arguments(list(arrays)), **dict(case.options), **options)
        if self.framework.is_array(result):
            self.framework.synchronize(result)
        return result

    def bound(self, case: Case) -> Function:
        """The function with the case's equation and keywords, which takes arrays alone."""
        if not isinstance(case.equation, str):
            raise TypeError("a function of arrays alone has its equation as text")
        return partial(self.function, case.equation, **dict(case.options))

    def result_dtype(self, case: Case) -> str:
        """The framework's promotion of the operands' dtypes.

        Raises:
            NotApplicable: it has none, or lacks one of the dtypes.
        """
        first, *others = [operand.dtype for operand in case.operands]
        for dtype in (first, *others):
            self.needs_dtype(dtype)
        for other in others:
            found = first if first == other else self.framework.promote(first, other)
            if found not in self.framework.dtypes:
                raise NotApplicable(f"{self.framework.name} does not promote {first} with {other}")
            first = str(found)
        return first

    def expected(self, case: Case, hosts: Sequence[Any], dtype: str = "") -> Expected:
        """The plain sum that the case's equation means, in ``dtype``, the case's ``dtype=`` or the promotion."""
        dtype = dtype or dict(case.options).get("dtype") or self.result_dtype(case)
        return expect(*case.arguments(list(hosts)), dtype=dtype)

    def judge(self, result: Any, expected: Expected, what: str = "the result") -> None:
        """Raise Failure unless ``result`` is what was expected, on this framework and device."""
        framework = self.framework
        if not framework.is_array(result):
            kind = type(result)
            raise Failure(f"{what} is a {kind.__module__}.{kind.__qualname__}, and no array of {framework.name}")
        wanted, found = framework.device(framework.array(0, "float32", self.device)), framework.device(result)
        if found != wanted:
            raise Failure(f"{what} is on the device {found}, not on {wanted}")
        if (dtype := framework.dtype(result)) != expected.dtype:
            raise Failure(f"{what} has the dtype {dtype}, not {expected.dtype}")
        verdict = judge(framework.values(result), expected)
        if not verdict:
            raise Failure(f"{what}: {verdict.wrong}")

    def untouched(self, arrays: Sequence[Array], hosts: Sequence[Any]) -> None:
        """Raise Failure where an operand does not have its values any more."""
        for place, (array, host) in enumerate(zip(arrays, hosts)):
            if not np.array_equal(self.framework.values(array), host, equal_nan=host.dtype.kind in "fc"):
                raise Failure(f"operand {place} was changed")


def backend_subject(name: str, device: str = "") -> Subject:
    """The subject that is einsumx on the backend of that name.

    Raises:
        BackendError: there is none of that name, or it cannot be used here.
    """
    framework = _usable(name, device)
    return Subject(name, framework.version, framework, device, einsumx.einsum, is_einsumx=True)


def callable_subject(path: str, backend: str = "", device: str = "") -> Subject:
    """Any einsum function, by ``module:name``: ``numpy:einsum``, ``opt_einsum:contract``, ``mxnet:np.einsum``.

    Args:
        path: where the function is.
        backend: the framework whose arrays it gets; by default that of its module, or else NumPy.
        device: where they are.

    Raises:
        BackendError: there is no such function, or the framework cannot be used here.

    >>> callable_subject("numpy:einsum").name
    'numpy:einsum'
    >>> callable_subject("opt_einsum:contract").name
    'opt_einsum:contract on numpy'
    """
    module, _, names = path.partition(":")
    package = module.partition(".")[0]
    # Settings that a framework's import needs are made before the function's module is imported.
    framework = _usable(backend or (package if package in KNOWN else "numpy"), device)
    try:
        function: Any = own(attrgetter(names)(import_module(module)))
    except (ImportError, AttributeError, ValueError) as error:
        raise BackendError(
            f"there is no function {path!r} here: {error}; write module:name, such as numpy:einsum"
        ) from error
    name = path if package == framework.name else f"{path} on {framework.name}"
    return Subject(name, version_of(package), framework, device, framework.called(function), is_einsumx=False)


def subjects(backends: Sequence[str], callables: Sequence[str] = (), device: str = "") -> list[Subject]:
    """Functions on the arrays of each backend, or of their own frameworks; without functions, einsumx on each backend.

    Raises:
        BackendError: there is no such backend or function, or it cannot be used here.
    """
    if callables:
        return [callable_subject(path, name, device) for path in callables for name in backends or [""]]
    return [backend_subject(name, device) for name in backends]


def installed_backends() -> list[str]:
    """The names of the backends whose frameworks are installed, as the suite needs them."""
    found = [name for name, installed in backends().items() if installed]
    return [name for name in found if name not in KNOWN or find_spec(KNOWN[name].module)]


def _usable(name: str, device: str) -> Framework:
    """The framework of that name, which has made an array on the device and read it."""
    framework = framework_of(name)
    where = f" on {device}" if device else ""
    try:
        array = framework.array(np.zeros(2, "float32"), "float32", device)
        framework.values(array)
    except Exception as error:
        reason = said(error)
        if isinstance(error, ModuleNotFoundError):
            reason = f"{reason}; {get_backend(name).install}"
        raise BackendError(f"{name} cannot be used{where} here: {reason}") from error
    found = framework.device(array)
    (kind, _, number), (ours, _, place) = device.partition(":"), found.partition(":")
    # JAX says gpu of what is asked for as cuda; but nothing on the CPU may be taken for something elsewhere.
    elsewhere = kind != ours and "cpu" in (kind, ours)
    if device and (elsewhere or (number and place and number != place)):
        raise BackendError(f"{name} cannot be used{where} here: it puts arrays on {found}")
    return framework
