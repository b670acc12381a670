"""Steps of the clock of single processes, with libfaketime. The monotonic clock is left alone.

The library is looked for in MIRRORD_FAKETIME, in the installed packages of Python and of the system, and in the cache.
Otherwise it is downloaded with pip: the package `libfaketime` contains it.
"""

import importlib.util
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from mirrord.lab.jars import cache_folder

_IN_PACKAGE = "libfaketime/vendor/libfaketime/src/libfaketime.so.1"
_IN_SYSTEM = ("usr/lib/x86_64-linux-gnu/faketime", "usr/lib/aarch64-linux-gnu/faketime", "usr/lib64/faketime")
_NAME = "libfaketimeMT.so.1"
_VARIABLE = "MIRRORD_FAKETIME"
_PIP_S = 60.0
_STEP_S = 3_600
TRUE_TIME = "+0"


def library(*, download: bool) -> Path | None:
    """Return the path of libfaketime, or None if it cannot be had."""
    for path in _candidates():
        if path.is_file():
            return path
    return _downloaded() if download else None


def _candidates() -> Iterator[Path]:
    if named := os.environ.get(_VARIABLE):
        yield Path(named)
    spec = importlib.util.find_spec("libfaketime")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        yield Path(folder).parent / _IN_PACKAGE
    for folder in _IN_SYSTEM:
        yield Path("/", folder, _NAME)
    yield cache_folder() / "faketime" / _IN_PACKAGE


def _downloaded() -> Path | None:
    folder = cache_folder() / "faketime"
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), "libfaketime"]
    try:
        subprocess.run(command, capture_output=True, timeout=_PIP_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    for wheel in folder.glob("libfaketime-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            if _IN_PACKAGE in archive.namelist():
                archive.extract(_IN_PACKAGE, folder)
                return folder / _IN_PACKAGE
    return None


class Clock:
    """The clock of some processes that start with its `environment`."""

    def __init__(self, preload: Path, file: Path) -> None:
        """The file holds the difference from the true time."""
        self._file = file
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(preload),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # With the fix, waits on the monotonic clock of a newer libc end at once: a Java process spins.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "FAKETIME_DONT_RESET": "1",
        }
        self.mend()

    def step(self, *, ahead: bool) -> None:
        """Set the clock an hour ahead or back. The processes notice within a second."""
        self._write(f"{'+' if ahead else '-'}{_STEP_S}")

    def mend(self) -> None:
        """Show the true time again."""
        self._write(TRUE_TIME)

    def _write(self, difference: str) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_text(difference + "\n")
        beside.rename(self._file)
