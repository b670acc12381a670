"""Starts a program that is killed when its parent process exits, even if the parent is killed with `kill -9` (Linux:
PR_SET_PDEATHSIG).

This module runs as a script. It first ties its own process to the parent. Then it replaces itself with the program,
which keeps the process id. The kernel kills the program when the thread that started it ends, even if other threads of
the parent continue to run. Therefore that thread must live as long as the parent process.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def leashed(command: list[str]) -> list[str]:
    """Return a command that runs `command` in a process that is killed when the current process exits."""
    return [sys.executable, "-I", "-S", str(Path(__file__)), str(os.getpid()), *command]


def tie_to(parent: int) -> None:
    """Make the kernel kill the current process when its parent exits. If the parent has already exited, exit
    immediately."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call took effect
        os._exit(1)


def main(parent: int, command: list[str]) -> None:
    tie_to(parent)
    os.execvp(command[0], command)  # noqa: S606 - the caller chooses the program, and no shell is used


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
