"""Cleans up after a Ray cluster that a daemon started on this machine. When the process that started the cluster has
ended, for whatever reason, the janitor kills Ray's remaining processes and removes Ray's folder.

The janitor is a script that runs alongside the process that started Ray. Its stdin is a pipe from that process, so an
end of file on stdin means that the process has ended. Most of Ray's processes then end by themselves. Only Ray's agents
keep running for up to a minute: they try to report an error to the GCS, which no longer exists (publish_error_to_driver
in ray._private.utils). Ray itself does not remove the folder.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

GRACE_S = 3.0
"""How long, in seconds, processes have to end by themselves before they are killed."""
ROUNDS = 20


def users(folder: str) -> set[int]:
    """Return the ids of the processes that have open files in this folder or below it. The processes of other users
    cannot be inspected, but they have no open files there."""
    found: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            files = [_target(link) for link in (process / "fd").iterdir()]
        except OSError:
            continue  # the process has ended, or belongs to another user
        if any(file.startswith(f"{folder}/") for file in files):
            found.add(int(process.name))
    return found - {os.getpid()}


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""  # the file was closed in the meantime


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
