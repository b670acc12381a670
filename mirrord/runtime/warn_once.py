"""What does not succeed at present, for the log and for status."""

import structlog

log = structlog.get_logger()


class Troubles:
    """One line for each part of some work: logged when it comes up or changes, not at every attempt."""

    def __init__(self, event: str, **context: str) -> None:
        """`event` is what the log calls it; `context` stands beside each line."""
        self._event = event
        self._context = context
        self._lines: dict[str, str] = {}

    @property
    def lines(self) -> list[str]:
        """What does not succeed now."""
        return list(self._lines.values())

    def tell(self, line: str, part: str = "") -> None:
        """This is so now; an empty line: the part succeeds."""
        if line and line != self._lines.get(part):
            log.warning(self._event, reason=line, **self._context)
        if line:
            self._lines[part] = line
        else:
            self._lines.pop(part, None)
