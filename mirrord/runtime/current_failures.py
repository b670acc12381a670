"""Tracks the current failures of a task that is retried. The failures are shown in the log and in the status."""

import structlog

log = structlog.get_logger()


class Troubles:
    """The current failures of a task, with one line for each part that is failing. A line is logged when it appears or
    changes, not on every attempt."""

    def __init__(self, event: str, **context: str) -> None:
        """`event` is the name of the log event, and `context` is logged with each line."""
        self._event = event
        self._context = context
        self._lines: dict[str, str] = {}

    @property
    def lines(self) -> list[str]:
        """One line for each current failure."""
        return list(self._lines.values())

    def report(self, line: str, part: str = "") -> None:
        """Record in one line why a part of the task fails, or that it has succeeded if `line` is empty."""
        if line and line != self._lines.get(part):
            log.warning(self._event, reason=line, **self._context)
        if line:
            self._lines[part] = line
        else:
            self._lines.pop(part, None)
