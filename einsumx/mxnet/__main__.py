"""``python -m einsumx.mxnet script.py …``: runs a script with einsumx in place of ``mx.np.einsum``."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from runpy import run_module
from types import ModuleType, TracebackType

from einsumx.errors import BackendError
from einsumx.patching import patch

_USAGE = """\
usage: python -m einsumx.mxnet script.py [argument ...]
       python -m einsumx.mxnet -m module [argument ...]

Runs a script or a module as Python does, with einsumx in place of mx.np.einsum.
MXNet 1.9.1 and 2.0.0b1 work with any version of NumPy.
"""


def main() -> None:
    """Run the script or module that the command line names."""
    match sys.argv[1:]:
        case ["-h" | "--help", *_]:
            print(_USAGE, end="")  # noqa: T201
        case ["-m", name, *arguments]:
            _replaced(["-m", *arguments], partial(run_module, name, run_name="__main__", alter_sys=True))
        case [path, *arguments] if not path.startswith("-"):
            if not Path(path).is_file():
                print(f"{sys.executable}: there is no file {path!r}", file=sys.stderr)  # noqa: T201
                sys.exit(2)
            if not getattr(sys.flags, "safe_path", sys.flags.isolated):
                sys.path[0] = str(Path(path).resolve().parent)
            # Python passes an absolute path that is not normalized.
            _replaced([path, *arguments], partial(_run_script, os.path.join(Path.cwd(), path)))  # noqa: PTH118
        case _:
            print(_USAGE, end="", file=sys.stderr)  # noqa: T201
            sys.exit(2)


def _run_script(path: str) -> None:
    main = ModuleType("__main__")
    main.__file__ = path
    main.__loader__ = SourceFileLoader("__main__", path)
    sys.modules["__main__"] = main
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _replaced(argv: list[str], run: Callable[[], object]) -> None:
    """Run the main program under the replacement; tracebacks begin with its own frames."""
    sys.argv = argv
    try:
        patch("mxnet")
    except BackendError as error:
        sys.exit(str(error))
    try:
        run()
    except BaseException:
        show = sys.excepthook

        def show_own_frames(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            while trace and not _is_main(trace):
                trace = trace.tb_next
            show(kind, error.with_traceback(trace), trace)

        sys.excepthook = show_own_frames
        raise


def _is_main(trace: TracebackType) -> bool:
    names = trace.tb_frame.f_globals
    return names is not globals() and names["__name__"] == "__main__"


if __name__ == "__main__":
    main()
