"""Programs that run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def ended(*arguments: object, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, which can import what this process can import, after its end."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


def printed(program: str, *arguments: object, folder: Path | None = None, **environment: str) -> str:
    """What a program prints that ends without an error or a warning."""
    done = ended("-c", program, *arguments, folder=folder, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
