"""Current problems, for the log and for the status."""

import structlog

log = structlog.get_logger()


class Troubles:
    """The current problems of some work, one line for each part. A line is logged when it appears or changes, not at
    every attempt."""

    def __init__(self, event: str, **context: str) -> None:
        """`event` is the name of the log event, and `context` is added to each line."""
        self._event = event
        self._context = context
        self._lines: dict[str, str] = {}

    @property
    def lines(self) -> list[str]:
        """Return the current problems."""
        return list(self._lines.values())

    def tell(self, line: str, part: str = "") -> None:
        """Set the current problem of a part. An empty line means that the part succeeds."""
        if line and line != self._lines.get(part):
            log.warning(self._event, reason=line, **self._context)
        if line:
            self._lines[part] = line
        else:
            self._lines.pop(part, None)
