"""Prints lines that contain names and texts from other clients and from brokers."""

import sys
from collections.abc import Iterable

from mirrord.model.shown_text import printable


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to stdout, with `?` in place of control characters, which could change what a terminal shows."""
    for line in lines:
        print(clean(line), flush=True)


def print_remarks(lines: Iterable[str]) -> None:
    """Print lines to stderr, as messages of mirrord, with `?` in place of control characters."""
    for line in lines:
        print(f"mirrord: {clean(line)}", file=sys.stderr)


def clean(line: str) -> str:
    """Return a line, or several, with `?` in place of control characters."""
    return "\n".join(printable(each, len(each)) for each in line.split("\n"))
