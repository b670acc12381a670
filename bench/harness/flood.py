"""Records that flow for as long as a campaign lasts, into existing topics or topics that are just being created."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from bench.harness.clusters import Admin
from bench.harness.load import Codec, Load, Topic, Writers
from bench.harness.pair import partitions
from mirrord.model.errors import EnvironmentFault

PREFIX = "flood"
TOPICS = r"flood\..*"
"""The regex that selects them."""
WAVE_S = 4.0
"""Interval at which new topics are created, if they are."""
_FOR_EVER = 1 << 40
_CODECS: Sequence[Codec] = ("lz4", "none", "zstd", "gzip", "snappy")
_STANDING = (
    Topic(f"{PREFIX}.plain", 3, "none", batch_bytes=16 << 10),
    Topic(f"{PREFIX}.small", 3, "lz4", batch_bytes=2 << 10),
    Topic(f"{PREFIX}.packed", 3, "gzip"),
    Topic(f"{PREFIX}.transactions", 2, "zstd", transactional=True),
)


class Flood:
    """Writes at a steady total rate until `stop`. `tick` must be called now and then."""

    def __init__(self, bootstrap: str, seed: int, records_per_s: float, *, age_ms: int, creating: bool) -> None:
        self.topics: list[Topic] = []
        self._bootstrap = bootstrap
        self._admin = Admin(bootstrap)
        self._seed = seed
        self._rate = records_per_s
        self._age_ms = age_ms
        self._creating = creating
        self._waves: list[Writers] = []
        self._next = 0.0
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    @property
    def records(self) -> int:
        """Number of records written so far."""
        return sum(wave.records for wave in self._waves)

    @property
    def partitions(self) -> dict[str, int]:
        """Partitions of all topics so far, by name."""
        return partitions(self.topics)

    def begin(self) -> None:
        """Create topics and begin to write. If topics are to be created meanwhile, `tick` does both."""
        if not self._creating:
            self._admin.create(_STANDING)
            self._write(_STANDING, _FOR_EVER)

    def tick(self) -> None:
        """Create and write what is due. Raises EnvironmentFault if a writer failed."""
        for wave in self._waves:
            _ = wave.done
        if not self._creating or time.monotonic() < self._next:
            return
        number = len(self._waves)
        topic = Topic(f"{PREFIX}.new-{number}", 2 + number % 2, _CODECS[number % len(_CODECS)], batch_bytes=4 << 10)
        try:
            self._admin.create([topic])
        except EnvironmentFault:
            return  # the broker was killed: try again with the next tick
        self._next = time.monotonic() + WAVE_S
        self._write([topic], int(self._rate * WAVE_S))

    def stop(self) -> None:
        """End after the records in flight. Raises EnvironmentFault."""
        for wave in self._waves:
            wave.stop()

    def _write(self, topics: Sequence[Topic], records: int) -> None:
        load = Load(
            records=records,
            value_bytes=180,
            seed=self._seed + len(self._waves),
            age_ms=self._age_ms,
            records_per_s=self._rate / len(topics),
        )
        self._waves.append(self._open.enter_context(Writers(self._bootstrap, topics, load)))
        self.topics += topics
