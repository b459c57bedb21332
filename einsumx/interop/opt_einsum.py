"""Replaces ``opt_einsum.contract`` and the calls of opt_einsum's expressions, for :func:`einsumx.patch`.

``opt_einsum.contract_path`` stays: its callers (JAX, PyTorch, Pyro) run the path themselves, and einsumx uses the same
optimizers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial, wraps
from importlib import import_module
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.facets import needs_gradient
from einsumx.adapters.operand_types import lazy_module, top_package
from einsumx.adapters.registry import backend_of, get_backend, owner
from einsumx.adapters.replacement import Client, Function, Name, own_result, say_native
from einsumx.api import einsum
from einsumx.caches import Uncacheable
from einsumx.errors import BackendError, EinsumxError, SizeError, counted, shown
from einsumx.expressions import Expression, expression
from einsumx.runtime.calls import cached_first
from einsumx.runtime.request import split
from einsumx.runtime.served import unserved_out

_SHARED = ("dtype", "order", "casting")
"""Keywords that mean the same in opt_einsum and einsumx."""


def _names() -> Iterator[Name]:
    module = import_module("opt_einsum.contract")
    yield Name(module, "contract", _contracting, tell=partial(_tell, _traced_contract), everywhere=True)
    yield Name(module.ContractExpression, "__call__", _calling, tell=partial(_tell, _traced_call))


LIBRARY = Client("opt_einsum", "pip install opt_einsum", _names)


# -- torch.compile -------------------------------------------------------------------------------------------------


def _traced_contract(*operands: Any, **options: Any) -> Any:
    """The function that torch.compile traces instead of ``contract``: a node that calls it."""
    from einsumx.backends.torch import graphs as torch_graphs

    return torch_graphs.contract(*operands, **options)


def _traced_call(self: Any, *arrays: Any, **options: Any) -> Any:
    """The function that torch.compile traces instead of an expression's call: the same node, with its constants."""
    rest, constants = iter(arrays), self._constants_dict
    operands = [constants[n] if n in constants else next(rest) for n in range(self._full_num_args)]
    path = [step[0] for step in self._full_contraction_list]
    return _traced_contract(_equation(self), *operands, optimize=path, **options, **_keywords(self))


def _tell(traced: Function, function: Function) -> None:
    function.__dict__["_torchdynamo_inline"] = traced


# -- contract ------------------------------------------------------------------------------------------------------


def _contracting(native: Function) -> Function:
    is_sharing = import_module("opt_einsum.sharing").currently_sharing

    def checked(*operands: Any, **options: Any) -> Any:
        operands = tuple([list(each) if hasattr(each, "__next__") else each for each in operands])
        try:
            accepted, reason = _accepted(_framework_of(split(operands)[1]), operands, options)
            if not reason:
                return einsum(*operands, **accepted)
        except EinsumxError as error:
            return own_result(native, operands, options, error, "opt_einsum.contract", "opt_einsum")
        say_native("opt_einsum.contract", operands, reason, "opt_einsum")
        return native(*operands, **options)

    fast = cached_first(checked, _cacheable)

    @wraps(native)
    def contract(subscripts: Any, *operands: Any, **options: Any) -> Any:
        if "_gen_expression" in options:  # contract_expression calls contract with shapes
            return native(subscripts, *operands, **options)
        if is_sharing():
            options["backend"] = _sharing_backend(options.get("backend", "auto"), split((subscripts, *operands))[1])
            return native(subscripts, *operands, **options)
        return fast(subscripts, *operands, **options)

    return contract


class _Framework(NamedTuple):
    """The library that computes with some arrays.

    Attributes:
        adapter: its backend; None for lazy arrays, which :func:`einsumx.einsum` alone takes.
        packages: those of lazy arrays.
        refusal: why einsumx computes with none; empty if it does.
    """

    adapter: Adapter | None
    packages: tuple[str, ...] = ()
    refusal: str = ""

    def is_meant_by(self, backend: Any) -> bool:
        """Whether a value of opt_einsum's ``backend=`` means it, and no module that computes otherwise."""
        if self.refusal or backend in (None, "auto", "einsumx"):
            return not self.refusal
        if self.adapter is None:
            return backend in self.packages
        name, module = self.adapter.name, self.adapter.module
        return backend in (name, module, top_package(module), "jaxlib" if name == "jax" else name)


def _framework_of(arrays: Sequence[Any]) -> _Framework:
    """The framework of the arrays; NumPy for numbers and lists."""
    kinds = tuple(map(type, arrays))
    try:
        adapter, _ = backend_of(kinds)
    except BackendError as error:
        packages = tuple([top_package(kind.__module__) for kind in kinds if lazy_module(kind)])
        return _Framework(None, packages, "" if packages else str(error).partition("\n")[0])
    return _Framework(adapter or get_backend("numpy"))


def _other_backend(framework: _Framework, backend: Any) -> str:
    """Why ``backend=`` leaves a call to opt_einsum; empty if it does not."""
    return "" if framework.is_meant_by(backend) else f"backend={shown(backend)} is not the library of the operands"


def _sharing_backend(name: Any, arrays: Sequence[Any]) -> Any:
    """The backend for steps that opt_einsum shares: einsumx, unless it does not serve the arrays."""
    return "einsumx" if _framework_of(arrays).is_meant_by(name) else name


def _cacheable(adapter: Adapter, options: dict[str, Any]) -> Mapping[str, Any]:
    """The keywords of einsumx for a call of ``contract`` without ``out``, if they do not depend on the operands."""
    accepted, reason = _accepted(_Framework(adapter), (), options)
    if reason or _limit(options) is not None:
        raise Uncacheable
    return accepted


def _limit(options: Mapping[str, Any]) -> Any:
    """opt_einsum's ``memory_limit=``, or None if it limits nothing."""
    limit = options.get("memory_limit")
    return None if limit is None or limit == -1 or options.get("optimize") is False else limit


def _accepted(framework: _Framework, operands: Sequence[Any], options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The keywords of einsumx for those of ``contract``; or why the call is left to opt_einsum."""
    if framework.refusal:
        return {}, framework.refusal
    accepted = {name: options[name] for name in _SHARED if name in options}
    for name in options:
        if name not in (*_SHARED, "backend", "memory_limit", "optimize", "out", "use_blas"):
            return {}, f"einsumx has no keyword {name}="
    backend, out, optimize = options.get("backend"), options.get("out"), options.get("optimize")
    if reason := _other_backend(framework, backend) or unserved_out(framework.adapter, out):
        return {}, reason
    if out is not None:
        accepted["out"] = out
    if optimize is not None and not isinstance(optimize, bool):
        accepted["optimize"] = optimize
    if operands and _limit(options) is not None:
        path = import_module("opt_einsum").contract_path(
            *operands, optimize=accepted.get("optimize", "auto"), memory_limit=_limit(options)
        )[0]
        if any(len(step) > 2 for step in path):
            return {}, "no path of pairs keeps memory_limit="
        accepted["optimize"] = path
    return accepted, ""


# -- expressions ---------------------------------------------------------------------------------------------------


def _equation(theirs: Any) -> str:
    """The equation of one of opt_einsum's expressions, which prints constants in brackets."""
    equation: str = theirs.contraction.replace("[", "").replace("]", "")
    return equation


def _keywords(theirs: Any) -> dict[str, Any]:
    """The keywords that one of opt_einsum's expressions was made with, under the name of opt_einsum 3.4 or 3.3."""
    keywords: dict[str, Any] = theirs.kwargs if hasattr(theirs, "kwargs") else theirs.einsum_kwargs
    return keywords


def _needs_gradient(array: Any) -> bool:
    try:
        adapter = owner(array)
    except BackendError:
        return False
    return adapter is not None and needs_gradient(adapter, array)


class _Compiled:
    """The expressions of einsumx for one of opt_einsum's, which takes operands of any sizes.

    Args:
        theirs: opt_einsum's ``ContractExpression``.
    """

    def __init__(self, theirs: Any) -> None:
        self.equation = _equation(theirs)
        self._name = repr(theirs)
        self._path = [step[0] for step in theirs._full_contraction_list]
        self._constants = dict(theirs._constants_dict)
        self._count = theirs._full_num_args
        keywords = _keywords(theirs)
        self._options = {name: value for name, value in keywords.items() if name in ("dtype", "casting")}
        self._order = keywords.get("order", "K")
        self.constants = list(self._constants.values())
        self.reason = self._refusal(keywords)
        self._for = lru_cache(maxsize=64)(self._expression)

    def _refusal(self, options: Mapping[str, Any]) -> str:
        """Why calls are left to opt_einsum, or ""."""
        for name in options:
            if name not in _SHARED:
                return f"einsumx has no keyword {name}="
        if any(len(step) > 2 for step in self._path):
            return "its path contracts three or more operands in one step"
        if any(map(_needs_gradient, self.constants)):
            return "a constant requires a gradient"
        return "all its operands are constants" if len(self._constants) == self._count else ""

    def _expression(self, *shapes: Any) -> Expression:
        rest = iter(shapes)
        operands = [self._constants[n] if n in self._constants else tuple(next(rest)) for n in range(self._count)]
        return expression(self.equation, *operands, optimize=self._path, **self._options)

    def __call__(self, arrays: Sequence[Array], out: Array | None) -> Array:
        count = self._count - len(self._constants)
        if len(arrays) != count:
            raise SizeError(f"{self._name} takes {counted(count, 'operand')}, not {len(arrays)}")
        run = self._for(*[array.shape for array in arrays])
        return run(*arrays, out=out, order=self._order)


def _calling(native: Function) -> Function:
    is_sharing = import_module("opt_einsum.sharing").currently_sharing
    known: WeakKeyDictionary[Any, _Compiled] = WeakKeyDictionary()

    def served(theirs: Any, arrays: Sequence[Array], out: Array | None, backend: Any) -> tuple[Any, str]:
        """The result; or why the call is left to opt_einsum."""
        compiled = known.get(theirs)
        if compiled is None:
            compiled = known[theirs] = _Compiled(theirs)
        if compiled.reason:
            return None, compiled.reason
        framework = _framework_of((*arrays, *compiled.constants))
        if framework.refusal:
            return None, framework.refusal
        lazy_operands = "its operands are lazy" if framework.adapter is None else ""
        if reason := _other_backend(framework, backend) or lazy_operands or unserved_out(framework.adapter, out):
            return None, reason
        try:
            return compiled(arrays, out), ""
        except AttributeError:
            if all(hasattr(array, "shape") for array in arrays):
                raise
            return None, "an operand has no shape"

    @wraps(native)
    def call(self: Any, *arrays: Any, out: Any = None, backend: Any = "auto", evaluate_constants: bool = False) -> Any:
        if not evaluate_constants:
            if is_sharing():
                backend = _sharing_backend(backend, [*arrays, *self._constants_dict.values()])
            else:
                try:
                    result, reason = served(self, arrays, out, backend)
                except EinsumxError as error:
                    return own_result(
                        lambda _, *arrays, **options: native(self, *arrays, **options),
                        (self.contraction, *arrays),
                        {"out": out, "backend": backend},
                        error,
                        "opt_einsum.ContractExpression",
                        "opt_einsum",
                    )
                if not reason:
                    return result
                say_native("opt_einsum.ContractExpression", [self.contraction], reason, "opt_einsum")
        return native(self, *arrays, out=out, backend=backend, evaluate_constants=evaluate_constants)

    return call
