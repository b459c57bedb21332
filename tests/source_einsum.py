"""An einsum that runs the source of the plan, with nothing but its framework to import; judged as any other is."""

import builtins

import einsumx
from einsumx.runtime.conversion import arrays_of
from einsumx.runtime.request import split

BUILTINS = ("float", "range")
"""What else it may use."""


def contraction(source, *packages):
    """The function that a source defines, where no more can be imported than the packages of its framework."""

    def only_the_framework(name, *arguments):
        assert name.partition(".")[0] in packages
        return builtins.__import__(name, *arguments)

    allowed = {name: getattr(builtins, name) for name in BUILTINS}
    names = {"__builtins__": {"__import__": only_the_framework, **allowed}}
    exec(compile(source, "<source>", "exec"), names)
    return names["contraction"]


def einsum(*operands, **options):
    """einsum by way of a plan's source, which must fit 100 columns."""
    written, given = split(operands)
    adapter, arrays = arrays_of(given, None)
    if isinstance(written, str):
        arguments = [written, *arrays]
    else:
        sublists, output = written
        arguments = [item for pair in zip(arrays, sublists) for item in pair] + ([] if output is None else [output])
    plan = einsumx.plan(*arguments, **options)
    source = plan.source()
    assert max(map(len, source.splitlines())) <= 100
    package = adapter.module or type(arrays[0]).__module__
    return contraction(source, package.partition(".")[0])(*arrays)
