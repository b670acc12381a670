"""Shows the progress of a job on stderr. On a terminal, a single line is redrawn. Otherwise, a new line is printed
every ten seconds."""

import sys
import time
from threading import Lock
from types import TracebackType
from typing import Self

EVERY_S = 10.0
"""Interval in seconds between progress lines if stderr is not a terminal."""


class ProgressLine:
    """The progress line of one job. It is used as a context manager around the job, and any thread may update it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = Lock()
        self._terminal = sys.stderr.isatty()
        self._next_s = time.monotonic() + EVERY_S
        self._shown = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            if self._shown:
                print(f"\r{' ' * self._shown}\r", end="", file=sys.stderr, flush=True)

    def show(self, done: int, every: int, units: str, more: str = "") -> None:
        """Show that `done` of `every` units are finished. `more` is appended to the line."""
        share = f"{100 * done // every}%" if every else "100%"
        line = f"mirrord: {self._what}: {share}: {done:,} of {every:,} {units}{f', {more}' if more else ''}"
        with self._lock:
            if self._terminal:
                print(f"\r{line.ljust(self._shown)}", end="", file=sys.stderr, flush=True)
                self._shown = len(line)
            elif time.monotonic() >= self._next_s:
                self._next_s = time.monotonic() + EVERY_S
                print(line, file=sys.stderr, flush=True)
