"""Keeps secrets from leaving this process in ways that no message shows: in core dumps, and in the environment of
processes that need no secrets."""

import os
import resource

_KEPT = ("HOME", "JAVA_HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR")
"""The environment variables that a program needs to run."""
_NO_DUMP = 1
"""A limit of one byte. The kernel writes no file that small, and pipes no dump to a program at exactly this limit, but
does so at a limit of 0 (do_coredump, fs/coredump.c)."""


def forbid_core_dumps() -> None:
    """Make the kernel write no core dumps of this process and of the processes that it starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    limit = _NO_DUMP if hard == resource.RLIM_INFINITY or hard >= _NO_DUMP else hard
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))


def bare_environment() -> dict[str, str]:
    """Return the environment for a program that needs no secrets. Every other variable may contain one."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}
