"""Writes the files of a compaction in Spark tasks. Each task calls `mirrord.ledger.store.compaction.write`."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from mirrord.config.jobs import SparkSettings
from mirrord.jobs.session import open_session
from mirrord.ledger.store.compaction import FileWork, Spread, write
from mirrord.ledger.store.run_archive import ArchiveFile
from mirrord.model.errors import ConfigError, EnvironmentFault


@contextmanager
def open_spread(settings: SparkSettings) -> Generator[Spread]:
    """Open a Spark session, and yield a function that writes files in Spark tasks. The session is stopped at the end of
    the context, unless it was already running.

    Raises ConfigError if the session cannot be opened. Raises EnvironmentFault if a Spark job fails.
    """
    with ExitStack() as stack:
        try:
            session = stack.enter_context(open_session("mirrord compact", settings))
        except EnvironmentFault as fault:
            raise ConfigError(str(fault)) from fault
        yield _Spread(session.sparkContext)


class _Spread:
    def __init__(self, context: Any) -> None:
        self._context = context

    def __call__(self, works: Sequence[FileWork]) -> list[ArchiveFile]:
        """Write the files on Spark, with one task for each file."""
        given = [msgspec.msgpack.encode(work) for work in works]
        found = self._context.parallelize(given, len(given)).mapPartitions(_write).collect()
        return [msgspec.msgpack.decode(each, type=ArchiveFile) for each in found]


def _write(given: Iterator[bytes]) -> Iterator[bytes]:
    """Write the files of one task. Spark calls this function."""
    for work in given:
        yield msgspec.msgpack.encode(write(msgspec.msgpack.decode(work, type=FileWork)))
