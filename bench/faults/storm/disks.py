"""Disks that become full: a tmpfs in the run's own mount namespace, whose limit is set to what it holds."""

import os
import shutil
import subprocess
from pathlib import Path

from mirrord.model.errors import EnvironmentFault

LARGE_MB = 6_144
"""The limit of a disk that is not full. A tmpfs takes only the memory that its files need."""
_SPARE_KB = 64


class SmallDisk:
    """A tmpfs in place of a folder, until `close`."""

    def __init__(self, folder: Path) -> None:
        """Move the contents of the folder to the disk. No process may use the folder meanwhile. Raises
        EnvironmentFault."""
        self.folder = folder
        beside = folder.with_name(folder.name + ".moved")
        folder.rename(beside)
        folder.mkdir()
        _run(["mount", "-t", "tmpfs", "-o", f"size={LARGE_MB}m", "none", str(folder)])
        shutil.copytree(beside, folder, dirs_exist_ok=True)
        shutil.rmtree(beside)

    def fill(self) -> None:
        """Leave room for a few pages only."""
        state = os.statvfs(self.folder)
        used_kb = (state.f_blocks - state.f_bfree) * state.f_frsize >> 10
        self._limit(f"{used_kb + _SPARE_KB}k")

    def empty(self) -> None:
        """Make room again."""
        self._limit(f"{LARGE_MB}m")

    def close(self) -> None:
        """Unmount the disk, as soon as no process uses it. Its contents are gone."""
        subprocess.run(["umount", "--lazy", str(self.folder)], capture_output=True, check=False)

    def _limit(self, size: str) -> None:
        _run(["mount", "-o", f"remount,size={size}", str(self.folder)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentFault(f"{' '.join(command)}: {done.stderr.strip()}")
