"""Hides ``/proc`` and files in memory from Python, which then sees what it sees on macOS or in a bare chroot.

It is a fake: libraries in C, such as BLAS, still see them. Python runs it at its start if this folder is in PYTHONPATH,
so that programs and workers that tests start do not see them either.
"""

import errno
import os
import sys


def _check(path):
    """Raise FileNotFoundError for a path in /proc."""
    if isinstance(path, str | bytes | os.PathLike) and (os.fsdecode(path) + "/").startswith("/proc/"):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _audit(event, arguments):
    if event in ("open", "os.listdir", "os.scandir"):
        _check(arguments[0])


def _checked(function):
    def call(path, *arguments, **options):
        _check(path)
        return function(path, *arguments, **options)

    return call


if hasattr(os, "memfd_create"):
    del os.memfd_create
    sys.addaudithook(_audit)
    for name in ("stat", "lstat", "readlink", "access"):  # which tell no audit hook
        setattr(os, name, _checked(getattr(os, name)))
