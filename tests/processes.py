"""Programs that run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys


def printed(program: str, *arguments: object, **environment: str) -> str:
    """What a program prints that ends without an error or a warning, and imports what this process can import."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
