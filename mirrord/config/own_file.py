"""The configuration file that a daemon was started with.

`mirrord apply` and SIGHUP make a daemon read this file again. A request over HTTP contains no configuration, only the
digest of a file, so that the daemon can refuse a file that is not its own.
"""

import hashlib
from pathlib import Path

import msgspec

from mirrord.config.loader import Loaded, load_bytes, read_file
from mirrord.config.policy_checks import PolicyCheck
from mirrord.config.schema import Config


class FileDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request that `mirrord apply` sends: the daemon should read its own file again, if its contents still have
    this digest."""

    sha256: str
    by: str = ""
    """Who gives the command, as the client says."""


class FileContents(msgspec.Struct, frozen=True):
    """The configuration that a file contained when it was read."""

    config: Config
    remarks: tuple[str, ...]
    sha256: str
    """The digest of the bytes from which the configuration was loaded."""


class OwnFile(msgspec.Struct, frozen=True):
    """The path of a configuration file, and the options that select some of its flows."""

    path: str
    """An absolute path: it still leads to the file after the process has changed its working directory."""
    flows: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()

    @staticmethod
    def at(path: str, flows: tuple[str, ...] = (), clusters: tuple[str, ...] = ()) -> "OwnFile":
        """Return the file at this path, which may be relative."""
        return OwnFile(str(Path(path).absolute()), flows, clusters)

    def read(self, policies: PolicyCheck) -> FileContents:
        """Read the file. The configuration contains only the selected flows. Raises ConfigError."""
        data = read_file(self.path)
        found: Loaded = load_bytes(data, self.path, policies)
        config = found.config.chosen(self.clusters, self.flows)
        return FileContents(config, found.remarks, hashlib.sha256(data).hexdigest())
