"""The installed backends, for tests that hold each of them to the same promises."""

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec

import numpy as np

from einsumx.adapters.registry import BUILTIN, get_backend
from einsumx.conformance.frameworks import framework_of
from einsumx.conformance.kit.oracle import judge

FRAMEWORKS = {"array_api": "array_api_strict"}
"""What must be installed for a backend to be tested, where that is not what its adapter names."""


@dataclass(frozen=True)
class Backend:
    """An installed framework as tests use it: arrays to it and back, and which dtypes it has."""

    name: str

    def __str__(self):
        return self.name

    @property
    def adapter(self):
        return get_backend(self.name)

    @cached_property
    def dtypes(self):
        """The names of the number types that the framework has (JAX: without 64 bits, as it comes)."""
        return framework_of(self.name).dtypes

    @property
    def float(self):
        """The widest float that the framework has as it comes."""
        return "float64" if "float64" in self.dtypes else "float32"

    def array(self, values, dtype=None):
        """A NumPy array, or what makes one, on the framework; bfloat16 is rounded from float32."""
        values = np.asarray(values, "float32" if dtype == "bfloat16" else dtype)
        found = self.adapter.from_numpy(values)
        return self.adapter.cast(found, dtype) if dtype == "bfloat16" else found

    def out(self, values, dtype=None):
        """As :meth:`array`, for ``out=``: a variable on TensorFlow, whose tensors cannot be written to."""
        found = self.array(values, dtype)
        return self.adapter.xp.Variable(found) if self.name == "tensorflow" else found

    def values(self, array):
        """An array of the framework as a NumPy array; of float32 for bfloat16."""
        if self.dtype(array) == "bfloat16":
            array = self.adapter.cast(array, "float32")
        return np.asarray(self.adapter.to_numpy(array))

    def dtype(self, array):
        """The name of an array's dtype."""
        return self.adapter.operand(self.adapter.signature(array)).dtype

    def check(self, result, expected):
        """Assert that ``result`` is an array of the framework with the expected values and dtype."""
        kind = type(self.array(np.zeros(2, "float32")))
        assert isinstance(result, (kind, np.generic) if self.name == "numpy" else kind)
        assert self.dtype(result) == expected.dtype
        verdict = judge(self.values(result), expected)
        assert verdict, verdict.wrong


def _is_installed(name):
    package = FRAMEWORKS.get(name, name)
    return find_spec(package) is not None


INSTALLED = [Backend(name) for name in BUILTIN if name != "cubed" and _is_installed(name)]
"""All but cubed, whose calls go through files and take too long; the conformance suite holds it to the same promises.
"""
LIMITED = [backend for backend in INSTALLED if backend.adapter.blocks is not None]
"""Those that keep a memory limit."""
NUMPY = INSTALLED[0]
OTHERS = INSTALLED[1:]
