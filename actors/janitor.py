"""Cleans up behind a Ray of our own: ends what is left of it when the process that started it is gone, in whatever way.

Run as a script beside that process, with a pipe from it as stdin: the pipe's end is the process's end. Ray's processes
end with it by themselves, but its agents wait a minute for a GCS that is gone (publish_error_to_driver), and a folder
ends by no itself.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

GRACE_S = 3.0
"""For what ends by itself."""
ROUNDS = 20


def users(folder: str) -> set[int]:
    """The processes that have a file below the folder open. Those of other users cannot be seen, nor have any."""
    found: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            files = [_target(link) for link in (process / "fd").iterdir()]
        except OSError:
            continue  # it has ended, or is not ours to look into
        if any(file.startswith(f"{folder}/") for file in files):
            found.add(int(process.name))
    return found - {os.getpid()}


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""  # closed meanwhile


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
