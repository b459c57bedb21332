"""Dtypes by name: kind, size, and the casts that NumPy's rules allow, without importing a framework."""

from __future__ import annotations

from typing import Any, Literal, get_args

from einsumx.errors import shown

Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
_RULES: tuple[Casting, ...] = get_args(Casting)

# Kind (b bool, u unsigned, i signed, f float, c complex) and size in bytes. NumPy's longdouble is named by its size:
# float96 on 32-bit x86, float64 on Windows and on macOS with Apple's processors, float128 elsewhere.
_KNOWN: dict[str, tuple[str, int]] = {
    "bool": ("b", 1),
    **{f"uint{bits}": ("u", bits // 8) for bits in (8, 16, 32, 64)},
    **{f"int{bits}": ("i", bits // 8) for bits in (8, 16, 32, 64)},
    "float16": ("f", 2),
    "bfloat16": ("f", 2),
    "float32": ("f", 4),
    "float64": ("f", 8),
    "float96": ("f", 12),
    "float128": ("f", 16),
    "complex32": ("c", 4),
    "complex64": ("c", 8),
    "complex128": ("c", 16),
    "complex192": ("c", 24),
    "complex256": ("c", 32),
}
FLOATS = frozenset(name for name, (kind, _) in _KNOWN.items() if kind in "fc")
"""The names of real and complex floating-point dtypes."""

NAMED = tuple(_KNOWN)
"""The names of all dtypes with numbers."""

# Bits, which decide what fits without loss.
_SIGNIFICAND = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53, "float96": 64, "float128": 64}
_EXPONENT = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11, "float96": 15, "float128": 15}
_KINDS = "buifcO"


def adopts(dtype: str, scalar: type) -> bool:
    """Whether a Python scalar of a type gets the dtype of the arrays next to it, because that has its kind of number.

    >>> adopts("int8", int), adopts("int8", float)
    (True, False)
    """
    return kind(dtype) in {bool: "biufc", int: "iufc", float: "fc", complex: "c"}[scalar]


def kind(dtype: str) -> str:
    """The kind of a dtype: ``b`` bool, ``u`` unsigned, ``i`` signed, ``f`` float, ``c`` complex, ``O`` anything else.

    >>> kind("bfloat16"), kind("object")
    ('f', 'O')
    """
    return _KNOWN.get(dtype, ("O", 8))[0]


def itemsize(dtype: str) -> int:
    """Bytes of one element.

    >>> itemsize("complex64")
    8
    """
    return _KNOWN.get(dtype, ("O", 8))[1]


def _real(dtype: str) -> str:
    """The float type of a complex type's parts."""
    return f"float{itemsize(dtype) * 4}" if kind(dtype) == "c" else dtype


def _is_safe(source: str, target: str) -> bool:
    if source == target:
        return True
    a, b = kind(source), kind(target)
    if "O" in (a, b):
        return target == "object"
    match a, b:
        case "b", _:
            return True
        case ("u", "u") | ("i", "i"):
            return itemsize(source) <= itemsize(target)
        case "u", "i":
            return itemsize(source) < itemsize(target)
        case "u" | "i", "f" | "c":
            # NumPy calls 64-bit integers to float64 safe, though it rounds beyond 2**53.
            bits = 8 * itemsize(source) - (a == "i")
            return min(bits, 53) <= _SIGNIFICAND[_real(target)]
        case "f" | "c", "f" | "c":
            fits = _SIGNIFICAND[_real(source)] <= _SIGNIFICAND[_real(target)]
            return (a, b) != ("c", "f") and fits and _EXPONENT[_real(source)] <= _EXPONENT[_real(target)]
        case _:
            return False


def can_cast(source: str, target: str, casting: Casting = "safe") -> bool:
    """Whether NumPy's rule ``casting`` allows a cast.

    >>> can_cast("int32", "float32"), can_cast("float64", "float32", "same_kind")
    (False, True)
    """
    match casting:
        case "no" | "equiv":
            return source == target
        case "safe":
            return _is_safe(source, target)
        case "same_kind":
            return _is_safe(source, target) or _KINDS.index(kind(source)) <= _KINDS.index(kind(target))
        case "unsafe":
            return True


def wrapped(count: int, dtype: str) -> int:
    """The value of an integer in an integer dtype, whose overflow wraps.

    >>> wrapped(300, "uint8"), wrapped(200, "int8"), wrapped(10**30, "int64")
    (44, -56, 5076944270305263616)
    """
    span = 1 << 8 * itemsize(dtype)
    count %= span
    return count - span if kind(dtype) == "i" and 2 * count >= span else count


def check_casting(casting: Any) -> Casting:
    """The rule for ``casting=``, ``"safe"`` for None; raises ValueError unless it is one of NumPy's."""
    if casting is None:
        return "safe"
    for rule in _RULES:
        if isinstance(casting, str) and casting == rule:
            return rule
    raise ValueError(f"casting must be one of {', '.join(_RULES)}, not {shown(casting)}")
