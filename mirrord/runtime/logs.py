"""Configures logging. Logs are written as JSON lines to a rotated file. They are also written to stderr: in a format
for human readers if stderr is a terminal, and as JSON lines for log collectors otherwise.

An event has a fixed name in snake_case, and its details are keyword arguments: `log.info("lane_halted", lane=...,
reason=...)`. Logs from libraries that use the standard `logging` module have the same form. This module masks secrets,
even if a caller passes them.
"""

import errno
import fcntl
import io
import logging
import logging.handlers
import os
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from mirrord.config.security import Secret, names_secret
from mirrord.model.errors import EnvironmentFault
from mirrord.model.known_secrets import MASK, mask
from mirrord.model.shown_text import printable

FILE_BYTES = 32 << 20
FILES_KEPT = 5
FILE_MODE = 0o640
DIRECTORY_MODE = 0o750
"""Logs name topics, groups, clients and hosts, so other users of the machine cannot read them."""
PROCESSES = 1_000
"""Maximum number of processes that may write logs with the same name to the same directory."""
_RAISED = "exc_info"
"""The key of an exception whose traceback is logged. Secrets are masked in the text of the traceback."""
_locks: list[int] = []
"""The file descriptor that locks this process's log file."""


def default_directory() -> Path:
    """Return the log directory to use if none is configured. The directory is in the user's state directory (XDG base
    directory specification)."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "mirrord"


def set_up(directory: str | None, name: str, *, on_stderr: bool = True) -> Path:
    """Send all logs of this process to `<directory>/<name>.log` and to stderr. Return the path of the file.

    `directory` comes from the configuration. Each process rotates its own file. If another running process already uses
    this name, the file is `<name>-2.log`, and so on. If `on_stderr` is False, nothing is written to stderr, so that a
    live view can use the terminal. Raises EnvironmentFault if the file is not writable.
    """
    folder = Path(directory) if directory else default_directory()
    path = folder / f"{name}.log"
    try:
        folder.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        path = _own(folder, name)
        file = _LogFile(path, maxBytes=FILE_BYTES, backupCount=FILES_KEPT, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(f"the log file {path} cannot be written: {error.strerror}; set [logs] dir") from None
    file.setFormatter(_formatter(_json()))
    handlers: list[logging.Handler] = [file]
    if on_stderr:
        stderr = logging.StreamHandler(sys.stderr)
        stderr.setFormatter(_formatter(_console() if sys.stderr.isatty() else _json()))
        # The logs of Kafka clients go only to the file, because these clients log every failed attempt. mirrord itself
        # logs each change only once.
        stderr.addFilter(lambda record: not record.name.startswith(("aiokafka", "kafka")))
        handlers.append(stderr)
    root = logging.getLogger()
    for former in root.handlers[:]:
        root.removeHandler(former)
        former.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(logging.INFO)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return path


class _LogFile(logging.handlers.RotatingFileHandler):
    """A log file that is rotated. A file that it creates has `FILE_MODE`, whatever the umask allows beyond that."""

    def _open(self) -> io.TextIOWrapper:
        def create(path: str, flags: int) -> int:
            return os.open(path, flags, FILE_MODE)

        return cast(io.TextIOWrapper, open(self.baseFilename, self.mode, encoding=self.encoding, opener=create))


def _own(folder: Path, name: str) -> Path:
    """Return the path of the first log file with this name that no other running process uses, and lock the file. The
    lock is released when this process exits."""
    while _locks:
        os.close(_locks.pop())
    for number in range(1, PROCESSES + 1):
        path = folder / (f"{name}.log" if number == 1 else f"{name}-{number}.log")
        lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            _locks.append(lock)
            return path
    raise OSError(errno.EBUSY, f"{PROCESSES} processes are already writing logs with that name")


def plain() -> None:
    """Configure readable logs in a process without configured logging, such as a Spark process. If logging has already
    been configured, do nothing.

    structlog's default format is not used: it shows the local variables in each frame of a traceback, and the variables
    may contain passwords.
    """
    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.stdlib.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                mask_secrets,
                *_console(),
            ]
        )


def quiet() -> None:
    """Turn off all logs, including those of libraries. Commands that only print their output use this function."""
    logging.getLogger().addHandler(logging.NullHandler())
    structlog.configure(logger_factory=structlog.stdlib.LoggerFactory(), wrapper_class=structlog.stdlib.BoundLogger)


def mask_secrets(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:  # noqa: ARG001 - for structlog
    """Mask all `Secret` values, all values whose key suggests a secret, and all known secrets in texts. This function
    is a structlog processor."""
    return cast(EventDict, _masked(event))


def _masked(value: object) -> object:
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, MutableMapping):
        items = cast(MutableMapping[object, object], value).items()
        return {
            key: MASK if isinstance(key, str) and names_secret(key) and item is not None else _masked(item)
            for key, item in items
            if key != _RAISED
        } | {key: item for key, item in items if key == _RAISED}
    if isinstance(value, list | tuple):
        return [_masked(item) for item in cast(list[object], value)]
    if isinstance(value, BaseException):
        return mask(str(value))
    return mask(value) if isinstance(value, str) else value


def _mask_exception(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:  # noqa: ARG001 - for structlog
    if isinstance(text := event.get("exception"), str):
        event["exception"] = mask(text)
    return event


def _plain_traceback(file: TextIO, error: ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, error)
    file.write(mask(text.getvalue()))


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        mask_secrets,
    ]


def _formatter(renderers: list[Processor]) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_shared(), structlog.stdlib.PositionalArgumentsFormatter()],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )


def _json() -> list[Processor]:
    return [structlog.processors.format_exc_info, _mask_exception, structlog.processors.JSONRenderer(default=str)]


def _console() -> list[Processor]:
    # structlog's default would show the local variables in each frame of a traceback. The variables may contain
    # passwords.
    return [_clean, structlog.dev.ConsoleRenderer(exception_formatter=_plain_traceback)]


def _clean(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:  # noqa: ARG001 - for structlog
    """Replace control characters, which could change what a terminal shows. Names come from other clients. JSON escapes
    these characters."""
    return {key: printable(value, len(value)) if isinstance(value, str) else value for key, value in event.items()}
