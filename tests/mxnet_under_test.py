"""MXNet for the tests of it: a file that imports this is skipped where MXNet is not installed."""

from importlib.util import find_spec

import pytest

import einsumx.mxnet

if not find_spec("mxnet"):
    pytest.skip("MXNet is not installed", allow_module_level=True)

mx = einsumx.mxnet.load()
FIRST = mx.__version__.startswith("1.")
