"""The steady load of a chapter.

Two kinds of topics are written to. The records of the first kind stay on the source until the end, so both sides can be
compared record by record: large batches, single records, transactions with aborts, records that are ten days old, large
records, and many partitions. The records of the second kind are numbered (`numbered`), because the source deletes some
of them: retention, compaction, the deletion of topics. One topic of that kind grows.
"""

import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from bench.faults.storm.numbered import Numbered, NumberedWriter
from bench.faults.storm.watch import Place
from bench.harness.clusters import Admin
from bench.harness.load import Load, Topic, Writers
from mirrord.model.errors import EnvironmentFault

PREFIX = "storm"
TOPICS = rf"{PREFIX}\..*"
"""The regex that selects them."""
OLD_MS = 10 * 86_400_000
_FOR_EVER = 1 << 40
_SMALL_SEGMENTS = {"segment.bytes": str(1 << 20)}
EXPIRING = f"{PREFIX}.expiring"
CLEANED = f"{PREFIX}.cleaned"
KEYED = f"{PREFIX}.keyed"
GROWING = f"{PREFIX}.growing"
DOOMED = f"{PREFIX}.doomed-"
COMPACT = {
    **_SMALL_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "5000",
    "max.compaction.lag.ms": "10000",
}  # fmt: skip
MOST_PARTITIONS = 12


class Stream(NamedTuple):
    """A topic, and how it is written to."""

    topic: Topic
    share: float
    """Its share of all records."""
    value_bytes: int = 150
    age_ms: int = 0
    large_every: int = 1 << 40
    at_once: int = 100
    """Number of records that are written at once."""


STREAMS: Sequence[Stream] = (
    Stream(Topic(f"{PREFIX}.bulk", 6, "lz4", batch_bytes=256 << 10), 0.67, value_bytes=120),
    Stream(Topic(f"{PREFIX}.plain", 3, "none", batch_bytes=16 << 10), 0.06),
    Stream(Topic(f"{PREFIX}.many", 24, "zstd", batch_bytes=8 << 10), 0.12),
    Stream(Topic(f"{PREFIX}.transactions", 4, "gzip", transactional=True), 0.08),
    Stream(Topic(f"{PREFIX}.old", 3, "snappy", batch_bytes=32 << 10), 0.05, age_ms=OLD_MS),
    Stream(Topic(f"{PREFIX}.large", 3, "none"), 0.02, large_every=700),
    # A leader takes one batch at a time from a connection, so few batches of a single record get through.
    Stream(Topic(f"{PREFIX}.tiny", 1, "lz4", batch_bytes=200), 0.0006, value_bytes=60, at_once=2),
)
NUMBERED: Sequence[Numbered] = (
    Numbered(EXPIRING, 2, {**_SMALL_SEGMENTS, "retention.bytes": str(4 << 20), "retention.ms": "3600000"}, 500),
    Numbered(CLEANED, 2, COMPACT, 500, keys=400),
    Numbered(KEYED, 2, COMPACT, 500, keys=400),
    Numbered(GROWING, 2, {}, 300),
)


class Streams:
    """Writes to all topics from `begin` to `stop`."""

    def __init__(self, bootstrap: str, seed: int, records_per_s: float) -> None:
        self._bootstrap = bootstrap
        self._admin = Admin(bootstrap)
        self._seed = seed
        self._rate = records_per_s
        self._writers: list[Writers] = []
        self._open = ExitStack()
        self._doomed = 0
        self._lock = threading.Lock()
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="mirrord-storm-"))
        self._numbered = NumberedWriter(bootstrap, Path(folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def begin(self) -> None:
        """Create the topics and begin to write. Raises EnvironmentFault."""
        self._admin.create([stream.topic for stream in STREAMS])
        for number, stream in enumerate(STREAMS):
            load = Load(
                records=_FOR_EVER,
                value_bytes=stream.value_bytes,
                seed=self._seed + number,
                age_ms=stream.age_ms,
                records_per_s=self._rate * stream.share,
                large_every=stream.large_every,
                at_once=stream.at_once,
            )
            self._writers.append(self._open.enter_context(Writers(self._bootstrap, [stream.topic], load)))
        self._open.enter_context(self._numbered)
        for topic in NUMBERED:
            self._add(topic)
        self._add(self._next_doomed())

    @property
    def records(self) -> int:
        """Number of records written so far, without those of aborted transactions."""
        return sum(writers.records for writers in self._writers) + self._numbered.records

    def exact(self) -> dict[str, int]:
        """Return the topics of which the source keeps every record, and their partitions."""
        return {
            **{stream.topic.name: stream.topic.partitions for stream in STREAMS},
            GROWING: self._numbered.partitions[GROWING],
        }

    def standing(self) -> dict[str, int]:
        """Return all topics that exist at the moment, and their partitions."""
        return self.exact() | dict(self._numbered.partitions)

    def places(self) -> Mapping[Place, int]:
        """Return the partitions that are written to steadily, and the age of their records in ms."""
        ages = {stream.topic.name: stream.age_ms for stream in STREAMS}
        return {
            (topic, partition): ages.get(topic, 0)
            for topic, partitions in self.standing().items()
            if not topic.startswith(DOOMED)
            for partition in range(partitions)
        }

    def grow(self) -> int | None:
        """Add a partition to the growing topic, and return how many it has. None: it does not grow any more, or no
        broker has done so."""
        with self._lock:
            partitions = self._numbered.partitions[GROWING] + 1
            if partitions > MOST_PARTITIONS or not self._admin.grow(GROWING, partitions):
                return None
            self._numbered.grow(GROWING, partitions)
            return partitions

    def delete(self) -> str | None:
        """Delete the doomed topic and create the next one. Return the name of the deleted one."""
        with self._lock:
            doomed = f"{DOOMED}{self._doomed}"
            try:
                self._admin.delete([doomed])
            except EnvironmentFault:
                if doomed in self._admin.names():
                    return None
            self._numbered.remove(doomed)
            self._add(self._next_doomed())
            return doomed

    def check(self) -> None:
        """Raise EnvironmentFault if a writer has failed."""
        for writers in self._writers:
            _ = writers.done
        self._numbered.check()

    def stop(self) -> dict[str, Numbered]:
        """End after the records in flight, and return the numbered topics, by name, with what was acknowledged. Raises
        EnvironmentFault."""
        for writers in self._writers:
            writers.stop()
        return self._numbered.stop()

    def _next_doomed(self) -> Numbered:
        self._doomed += 1
        return Numbered(f"{DOOMED}{self._doomed}", 2, {}, 200)

    def _add(self, topic: Numbered) -> None:
        wanted = Topic(topic.name, topic.partitions, "none", settings=dict(topic.settings))
        repeat(lambda: self._admin.create([wanted]))
        self._numbered.add(topic)


def repeat(work: Callable[[], None], times: int = 20) -> None:
    """Do something that fails while brokers are down. Raises the last EnvironmentFault."""
    for attempt in range(times):
        try:
            work()
        except EnvironmentFault:
            if attempt == times - 1:
                raise
        else:
            return
