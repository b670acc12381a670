"""Configures logging. Logs are written as JSON lines to a file, which is rotated, and also to stderr. If stderr is a
terminal, the logs on it are formatted for human readers. Otherwise, they are JSON lines for log collectors.

An event has a fixed name in snake_case, and its details are keyword arguments: `log.info("lane_halted", lane=...,
reason=...)`. Logs from libraries that use the standard `logging` module have the same form. This module masks secrets,
even if a caller passes them.
"""

import errno
import fcntl
import logging
import logging.handlers
import os
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from mirrord.config.security import Secret, names_secret
from mirrord.model.errors import EnvironmentFault

FILE_BYTES = 32 << 20
FILES_KEPT = 5
PROCESSES = 1_000
"""Maximum number of processes that may write logs with the same name to the same directory."""
_MASK = "***"
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
    live view can use the terminal. Raises EnvironmentFault if the file cannot be written to.
    """
    folder = Path(directory) if directory else default_directory()
    path = folder / f"{name}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = _own(folder, name)
        file = logging.handlers.RotatingFileHandler(path, maxBytes=FILE_BYTES, backupCount=FILES_KEPT, encoding="utf-8")
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


def _own(folder: Path, name: str) -> Path:
    """Return the path of the first log file with this name that no other running process uses, and lock the file. The
    lock is released when this process ends."""
    while _locks:
        os.close(_locks.pop())
    for number in range(1, PROCESSES + 1):
        path = folder / (f"{name}.log" if number == 1 else f"{name}-{number}.log")
        lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
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
    """Turn off all logs, including those of libraries. Commands that only print use this function."""
    logging.getLogger().addHandler(logging.NullHandler())
    structlog.configure(logger_factory=structlog.stdlib.LoggerFactory(), wrapper_class=structlog.stdlib.BoundLogger)


def mask_secrets(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:  # noqa: ARG001 - for structlog
    """Mask all `Secret` values, and all values whose key suggests a secret. This function is a structlog processor."""
    return cast(EventDict, _masked(event))


def _masked(value: object) -> object:
    if isinstance(value, Secret):
        return _MASK
    if isinstance(value, MutableMapping):
        items = cast(MutableMapping[object, object], value).items()
        return {
            key: _MASK if isinstance(key, str) and names_secret(key) and item is not None else _masked(item)
            for key, item in items
        }
    if isinstance(value, list | tuple):
        return [_masked(item) for item in cast(list[object], value)]
    return value


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
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]


def _console() -> list[Processor]:
    # structlog's default would show the local variables in each frame of a traceback. The variables may contain
    # passwords.
    return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
