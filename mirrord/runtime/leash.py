"""Starts a program that ends with its parent, even if the parent is killed with -9 (Linux: PR_SET_PDEATHSIG).

When this module runs as a script, it makes its process end with the parent, and then replaces itself by the program
under the same process id. The kernel watches the *thread* that started the program, not its process. That thread must
live as long as the process.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def leashed(command: list[str]) -> list[str]:
    """Return a command that runs the given command as a process that ends when the current process ends."""
    return [sys.executable, "-I", "-S", str(Path(__file__)), str(os.getpid()), *command]


def tie_to(parent: int) -> None:
    """Make this process end when its parent ends. If the parent has already ended, end at once."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the call took effect
        os._exit(1)


def main(parent: int, command: list[str]) -> None:
    tie_to(parent)
    os.execvp(command[0], command)  # noqa: S606 - the program is the caller's choice, and there is no shell


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
