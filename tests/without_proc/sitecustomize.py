"""Hides ``/proc`` and files in memory from Python, which then sees what it sees on macOS or in a bare chroot.

It is a fake: libraries in C, such as BLAS, still see them, and so does threadpoolctl. Without ``/proc``, that would ask
for the loaded libraries in a way that never ends if another thread imports an extension module meanwhile; macOS has a
better way. Python runs it at its start if this folder is in PYTHONPATH, so that programs and workers that tests start
do not see them either.
"""

import errno
import os
import sys


def _check(path):
    """Raise FileNotFoundError for a path in /proc, unless threadpoolctl asks for it."""
    if not isinstance(path, str | bytes | os.PathLike) or not (os.fsdecode(path) + "/").startswith("/proc/"):
        return
    caller = sys._getframe(2)
    callers = (caller, caller.f_back)  # os.path may stand between
    names = {frame.f_globals.get("__name__") for frame in callers if frame is not None}
    if "threadpoolctl" not in names:
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
