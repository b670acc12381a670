"""Removes old log files of worker processes from Ray's folder, if mirrord started the Ray cluster. If these files were
kept, the folder would grow with each worker process.

Ray writes two or three small files for each worker process and does not remove them while the cluster is running
(ray._private.node.Node, "Logging"). These files do not contain mirrord's own logs.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

KEPT = 100
"""How many log files of worker processes that have ended are kept. The newest files are kept."""
_OF_A_WORKER = re.compile(r"(?:worker|python-core-worker)-.*[-_](\d+)\.(?:out|err|log)")


def sweep(folder: Path) -> int:
    """Remove old log files in Ray's folder whose worker processes have ended. Return the number of removed files."""
    ended: list[tuple[float, Path]] = []
    for path in folder.glob("session_*/logs/*worker-*"):
        found = _OF_A_WORKER.fullmatch(path.name)
        if found is None or _lives(int(found[1])):
            continue
        with suppress(OSError):  # another process removed the file first
            ended.append((path.stat().st_mtime, path))
    ended.sort()
    old = ended[: max(0, len(ended) - KEPT)]
    for _, path in old:
        path.unlink(missing_ok=True)
    return len(old)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
