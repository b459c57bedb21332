"""Numbers that overflow in a cast or on their way: NumPy's einsum says nothing of them, and neither does einsumx."""

import warnings

import numpy as np
import pytest

import einsumx

HALF = np.full((9, 9), 6e4, "float16")
WIDE = np.full((9, 9), 1e300)
CALLS = {
    "sum": ("ij->i", [HALF], {}),
    "sum of all": ("ij->", [HALF], {}),
    "product": ("ij,ij->ij", [HALF, HALF], {}),
    "matmul": ("ij,jk->ik", [HALF, HALF], {}),
    "dot": ("ij,ij->", [HALF, HALF], {}),
    "three operands": ("ij,jk,kl->il", [HALF] * 3, {}),
    "cast of operands": ("ij->ji", [WIDE], {"dtype": "float16", "casting": "unsafe"}),
    "cast of operands to integers": ("ij->ji", [WIDE], {"dtype": "int32", "casting": "unsafe"}),
    "cast of nan to integers": ("ij->j", [WIDE * np.nan], {"dtype": "int32", "casting": "unsafe"}),
    "cast of complex operands": ("ij->ji", [WIDE + 0j], {"dtype": "complex64", "casting": "same_kind"}),
    "float32": ("ij,jk->ik", [WIDE, WIDE], {"dtype": "float32", "casting": "same_kind"}),
    "float64": ("ij,jk->ik", [WIDE, WIDE], {}),
    "sum of float64": ("ij->", [WIDE * 1e8], {}),
    "broadcast": ("ij->", [np.broadcast_to(WIDE[0] * 1e4, (10**5, 9))], {}),
}


def silent(run):
    """What ``run`` gives, where every warning is an error, with each way that NumPy has to say something."""
    heard = []
    for state in ("warn", "raise", "call"):
        with warnings.catch_warnings(), np.errstate(all=state, call=lambda *said: heard.append(said)):
            warnings.simplefilter("error")
            result = run()
            assert np.geterr()["over"] == state
    assert not heard
    return result


@pytest.mark.parametrize("limit", [None, 5000])
@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_said_of_overflow(call, limit):
    equation, arrays, options = CALLS[call]
    result = silent(lambda: einsumx.einsum(equation, *arrays, **options, memory_limit=limit))
    if result.dtype.kind in "fc":
        assert not np.isfinite(result).any()


OUTS = {
    "float16 of float64": ("ij->ji", [WIDE], "float16"),
    "float32 of float64": ("ij,jk->ik", [WIDE, WIDE], "float32"),
    "int32 of float64": ("ij->ji", [WIDE], "int32"),
    "int8 of nan": ("ij->i", [WIDE * np.nan], "int8"),
    "complex64 of complex128": ("ij->ji", [WIDE + 0j], "complex64"),
    "float16 of float16": ("ij->i", [HALF], "float16"),
    "float16 of int64": ("ij->i", [np.full((9, 9), 10**9)], "float16"),
}


@pytest.mark.parametrize("limit", [None, 5000])
@pytest.mark.parametrize("name", OUTS)
def test_out_is_written_whole_and_silently(name, limit):
    equation, arrays, dtype = OUTS[name]
    shape = (9,) * len(equation.partition("->")[2])
    out = np.ones(shape, dtype)
    silent(lambda: einsumx.einsum(equation, *arrays, out=out, casting="unsafe", memory_limit=limit))
    assert not (out == 1).any()


@pytest.mark.parametrize("limit", [None, 5000])
def test_an_imaginary_part_that_is_lost_is_said_before_out_is_written(limit):
    out = np.ones((9, 9))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Warning, match="imaginary"):
            einsumx.einsum("ij->ji", WIDE * 1j, out=out, casting="unsafe", memory_limit=limit)
    assert (out == 1).all()
