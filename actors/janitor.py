"""Cleans up after a Ray that a daemon started: ends its remaining processes once the process that started it is gone,
however it ended.

It runs as a script next to that process, with a pipe from it as stdin. End of file on the pipe means that the process
has ended. Ray's processes end with it by themselves, but its agents wait a minute for a GCS that is gone
(publish_error_to_driver), and nothing else removes the folder.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

GRACE_S = 3.0
"""Time for processes that end by themselves."""
ROUNDS = 20


def users(folder: str) -> set[int]:
    """Return the processes that have a file below the folder open. Processes of other users cannot be inspected, and
    have no such file open."""
    found: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            files = [_target(link) for link in (process / "fd").iterdir()]
        except OSError:
            continue  # it has ended, or we may not inspect it
        if any(file.startswith(f"{folder}/") for file in files):
            found.add(int(process.name))
    return found - {os.getpid()}


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""  # closed in the meantime


def main(folder: str) -> None:
    sys.stdin.buffer.read()
    for _ in range(ROUNDS):
        time.sleep(GRACE_S)
        left = users(folder)
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
