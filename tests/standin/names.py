"""Writes cupy/names.json: the functions, methods and parameters of an installed CuPy, which need no GPU.

Run ``python tests/standin/names.py`` where CuPy is installed.
"""

import inspect
import json
import re
from pathlib import Path

PARAMETERS = {
    "ufunc": ["*", "out", "dtype", "casting"],  # ufunc.__call__ in cupy/_core/_kernel.pyx
    "_GUFunc": ["*", "out", "axes", "axis", "keepdims", "casting", "dtype", "signature", "order"],
}


def parameters(name, found):
    """The names of a function's parameters, ``*`` for any number; None if they are not known."""
    if type(found).__name__ in PARAMETERS:
        return PARAMETERS[type(found).__name__]
    try:
        return [
            "*" if parameter.kind is parameter.VAR_POSITIONAL else parameter.name
            for parameter in inspect.signature(found).parameters.values()
        ]
    except (TypeError, ValueError):
        pass
    # Methods that Cython compiled state their signature in the docstring.
    written = re.match(rf"[\w.]*\b{name}\((.*?)\)(?: ->.*)?$", (found.__doc__ or "").partition("\n")[0])
    if written is None:
        return None
    names = [part.split("=")[0].split()[-1] for part in written[1].split(",") if part.strip() not in ("", "/")]
    return ["*" if each.startswith("*") else each for each in names]


def main():
    import cupy

    names = {"version": cupy.__version__, "functions": {}, "methods": {}, "attributes": [], "modules": {}}
    for name in sorted(set(dir(cupy))):
        found = getattr(cupy, name, None)
        if not name.startswith("_") and callable(found) and not isinstance(found, type):
            names["functions"][name] = parameters(name, found)
    for name in sorted(set(dir(cupy.ndarray))):
        found = getattr(cupy.ndarray, name)
        if callable(found) and (not name.startswith("_") or name.startswith("__")):
            names["methods"][name] = parameters(name, found)
        elif not name.startswith("_"):
            names["attributes"].append(name)
    for name, module in {"cuda": cupy.cuda, "cuda.runtime": cupy.cuda.runtime}.items():
        names["modules"][name] = sorted(each for each in dir(module) if not each.startswith("_"))
    for name in ("Device", "Stream", "Event", "MemoryPointer", "MemoryPool"):
        kind = getattr(cupy.cuda, name)
        names["modules"][f"cuda.{name}"] = sorted(each for each in dir(kind) if not each.startswith("_"))
    path = Path(__file__).with_name("cupy") / "names.json"
    path.write_text(json.dumps(names, separators=(",", ":"), sort_keys=True).replace('],"', '],\n"') + "\n")


if __name__ == "__main__":
    main()
