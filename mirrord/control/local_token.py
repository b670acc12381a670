"""The token of one running daemon for commands from its own machine. It needs no setting: the daemon writes a random
token to a file that only its own user can read, and the `mirrord` command of this user reads it.

The file is named after a random key id, which the daemon sends to every client. The id says which file to read, so
several daemons of a user can run at the same time.
"""

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from mirrord.ledger.facts.jobs import Worker
from mirrord.ledger.store.process_identity import is_dead_worker, this_worker
from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.logs import default_directory

LOCAL = "local"
"""The name of the token in proofs."""
LONGEST_BYTES = 4096
_ID = re.compile(r"[0-9a-f]{32}")
_SUFFIX = ".token"

log = structlog.get_logger()


class _Written(msgspec.Struct, frozen=True):
    """The contents of the file."""

    token: str
    process: Worker
    """The daemon's process. The file of a process that has died is removed by the next daemon."""


class LocalToken:
    """The file with the token of this process."""

    def __init__(self, directory: Path) -> None:
        """Write the file. Raises EnvironmentFault if that is impossible, or if another user could read or replace the
        file."""
        self.key_id = secrets.token_hex(16)
        self.token = secrets.token_urlsafe(32)
        self._path = directory / f"{self.key_id}{_SUFFIX}"
        folder = _open_folder(directory, create=True)
        try:
            _sweep(folder)
            _write(folder, self._path.name, msgspec.json.encode(_Written(self.token, this_worker())))
        except OSError as error:
            raise EnvironmentFault(f"{self._path}: cannot be written: {error.strerror}") from None
        finally:
            os.close(folder)

    def remove(self) -> None:
        """Remove the file."""
        with suppress(OSError):
            self._path.unlink()


def control_directory() -> Path:
    """Return the folder with the tokens of the running daemons of this user."""
    return default_directory() / "control"


def read_local_token(directory: Path, key_id: str) -> str | None:
    """Return the token of the daemon with this key id, or None if this user has no such daemon on this machine."""
    if not _ID.fullmatch(key_id):
        return None
    try:
        folder = _open_folder(directory, create=False)
    except EnvironmentFault:
        return None
    try:
        return _read(folder, f"{key_id}{_SUFFIX}").token
    except (OSError, msgspec.DecodeError, ValueError):
        return None
    finally:
        os.close(folder)


def _open_folder(directory: Path, *, create: bool) -> int:
    """Return a descriptor of the folder. Raises EnvironmentFault if it is not a folder of this user alone.

    Files are opened relative to the descriptor, so a folder that is replaced after this check is not used.
    """
    try:
        if create:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A symbolic link in place of the folder could lead to a folder that another user reads.
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise EnvironmentFault(f"{directory}: cannot be used for tokens: {error.strerror}") from None
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(folder)
        raise EnvironmentFault(f"{directory}: must belong to the user who runs mirrord, and no one else may access it")
    return folder


def _write(folder: int, name: str, contents: bytes) -> None:
    """Write a file that appears with its whole contents or not at all."""
    unfinished, flags = f".{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(unfinished, flags, 0o600, dir_fd=folder)
    with os.fdopen(file, "wb") as writer:
        writer.write(contents)
    os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)


def _read(folder: int, name: str) -> _Written:
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(file, "rb") as reader:
        found = os.fstat(file)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077 or not stat.S_ISREG(found.st_mode):
            raise ValueError("not a file of this user alone")
        return msgspec.json.decode(reader.read(LONGEST_BYTES), type=_Written)


def _sweep(folder: int) -> None:
    """Remove the files of daemons that ended without removing them."""
    for name in os.listdir(folder):
        if not name.endswith(_SUFFIX):
            continue
        try:
            dead = is_dead_worker(_read(folder, name).process)
        except (OSError, msgspec.DecodeError, ValueError):
            continue  # it may still be written, or belong to another version
        if dead:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
