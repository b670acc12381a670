"""Compares a topic with its copy record by record. In the copy, no record may be missing, duplicated, altered or out of
order. The copy must also not contain any record that the topic lacks (a foreign record).

The checker reads both topics with librdkafka, which shares no code with mirrord. It reads each partition from the first
offset to the end. The isolation level is `read_committed` for the source and `read_uncommitted` for the target. The
comparison covers the key, value, headers and timestamp of each record, and the order of the records in each partition.
"""

import multiprocessing
import time
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, NamedTuple

from mirrord.model.errors import EnvironmentFault

PATIENCE_S = 60.0
"""How long, in seconds, a partition may return neither records nor an end-of-partition event before the comparison
fails."""
_AT_ONCE = 10_000
_WAIT_MS, _REMOTE_WAIT_MS = 10, 5_000
_REMOTE_S = 3.0
"""A partition that returns nothing for this number of seconds is assumed to be in remote storage."""
_LOOK_S = 0.2
_BEGINNING = 0


class TopicPair(NamedTuple):
    """The name of a source topic and the name of its target topic."""

    source: str
    target: str


class DifferenceCounts(NamedTuple):
    """The number of differences of each kind between a sequence of records and the expected sequence."""

    missing: int = 0
    doubled: int = 0
    altered: int = 0
    foreign: int = 0
    out_of_order: int = 0

    def __add__(self, other: object) -> "DifferenceCounts":
        """Return the sum of both counts, field by field."""
        if not isinstance(other, DifferenceCounts):
            return NotImplemented
        return DifferenceCounts(*(mine + others for mine, others in zip(self, other, strict=True)))


class PartitionResult(NamedTuple):
    """The result for one partition of a topic pair. `payload_bytes` is the total size of the keys, values and headers
    in the source."""

    pair: TopicPair
    partition: int
    records: int
    payload_bytes: int
    difference: DifferenceCounts
    where: str
    """The first place where the two logs differ, described in words. Empty if the logs are the same."""


class CopyComparison(NamedTuple):
    """The results for all partitions of all topic pairs, in the order of the pairs and partitions."""

    partitions: tuple[PartitionResult, ...]

    @property
    def records(self) -> int:
        """Return the number of records in the source."""
        return sum(result.records for result in self.partitions)

    @property
    def payload_bytes(self) -> int:
        """Return the total size of the keys, values and headers in the source."""
        return sum(result.payload_bytes for result in self.partitions)

    @property
    def difference(self) -> DifferenceCounts:
        """Return the sum of the differences in all partitions."""
        return sum((result.difference for result in self.partitions), DifferenceCounts())

    @property
    def is_exact(self) -> bool:
        """Return whether all copies are exact."""
        return not any(self.difference)

    def describe(self) -> str:
        """Return one line for each partition that differs."""
        return "\n".join(
            f"{result.pair.source}-{result.partition}: {_describe(result.difference)}; {result.where}"
            for result in self.partitions
            if any(result.difference)
        )


def compare(
    source: str,
    target: str,
    pairs: Sequence[TopicPair],
    *,
    processes: int = 2,
    report: Callable[[PartitionResult], None] = lambda _: None,
) -> CopyComparison:
    """Compare topics with their copies. `source` and `target` are bootstrap addresses of plaintext listeners. No client
    may write to the topics during the comparison.

    `report` is called with each partition's result as soon as the result is known. If `processes` is 1, the comparison
    runs in the calling process. Raises EnvironmentFault if a cluster does not answer.
    """
    work = [(pair, partition) for pair in pairs for partition in range(_partitions(source, pair.source))]
    results: dict[tuple[TopicPair, int], PartitionResult] = {}
    if processes == 1:
        for each in work:
            results[each] = compare_partition(source, target, *each)
            report(results[each])
        return CopyComparison(tuple(results.values()))
    # The processes are spawned and not forked, because librdkafka's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(1, min(processes, len(work))), context) as pool:
        running = {pool.submit(compare_partition, source, target, *each): each for each in work}
        for done in as_completed(running):
            result = results[running[done]] = done.result()
            report(result)
    return CopyComparison(tuple(results[each] for each in work))


def compare_partition(source: str, target: str, pair: TopicPair, partition: int) -> PartitionResult:
    """Compare one partition of a topic pair and return the result. Raises EnvironmentFault."""
    wanted = _read(source, pair.source, partition, isolation="read_committed")
    found = _read(target, pair.target, partition, isolation="read_uncommitted")
    return PartitionResult(
        pair,
        partition,
        len(wanted.digests),
        wanted.payload_bytes,
        difference(wanted.digests, found.digests),
        _where(wanted, found),
    )


def difference(wanted: Sequence[int], found: Sequence[int]) -> DifferenceCounts:
    """Return how `found` differs from `wanted`. `wanted` and `found` are sequences of digests. Equal digests mean equal
    records, and a record may occur several times.

    One missing record and one foreign record count together as one altered record. A record is out of order if a record
    that belongs after it appears before it.
    """
    if wanted == found:
        return DifferenceCounts()
    wanted_counts, found_counts = Counter(wanted), Counter(found)
    missing = (wanted_counts - found_counts).total()
    surplus = found_counts - wanted_counts
    doubled = sum(count for record, count in surplus.items() if record in wanted_counts)
    foreign = surplus.total() - doubled
    altered = min(missing, foreign)
    return DifferenceCounts(missing - altered, doubled, altered, foreign - altered, _out_of_order(wanted, found))


class _Records(NamedTuple):
    """The digests and the offsets of the records in one partition."""

    digests: "array[int]"
    offsets: "array[int]"
    payload_bytes: int


def _out_of_order(wanted: Sequence[int], found: Sequence[int]) -> int:
    places: defaultdict[int, deque[int]] = defaultdict(deque)
    for place, record in enumerate(wanted):
        places[record].append(place)
    furthest = -1
    count = 0
    for record in found:
        if waiting := places.get(record):
            place = waiting.popleft()
            count += place < furthest
            furthest = max(furthest, place)
    return count


def _where(wanted: _Records, found: _Records) -> str:
    if wanted.digests == found.digests:
        return ""
    both = min(len(wanted.digests), len(found.digests))
    place = next((at for at in range(both) if wanted.digests[at] != found.digests[at]), both)
    return f"from record {place} on: {_offset(wanted, place)} in the source, {_offset(found, place)} in the target"


def _offset(records: _Records, place: int) -> str:
    return f"offset {records.offsets[place]}" if place < len(records.offsets) else "the end"


def _describe(found: DifferenceCounts) -> str:
    counts = zip(DifferenceCounts._fields, found, strict=True)
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts if count)


def _partitions(bootstrap: str, topic: str) -> int:
    consumer = _consumer(bootstrap, "read_uncommitted")
    try:
        known = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    except Exception as error:
        raise EnvironmentFault(f"{bootstrap} does not show the topic {topic}: {error}") from error
    finally:
        consumer.close()
    return len(known)


def _read(bootstrap: str, topic: str, partition: int, *, isolation: str) -> _Records:
    from confluent_kafka import KafkaError, TopicPartition  # noqa: PLC0415 - see _consumer

    digests, offsets, payload_bytes = array("q"), array("q"), 0
    consumer, wait_ms = _consumer(bootstrap, isolation), _WAIT_MS
    try:
        consumer.assign([TopicPartition(topic, partition, _BEGINNING)])
        deadline = time.monotonic() + PATIENCE_S
        while True:
            # `consume` alone would wait until it has the full number of records, even if the partition has fewer.
            first = consumer.poll(_LOOK_S)
            messages = [first, *consumer.consume(_AT_ONCE, timeout=0)] if first is not None else []
            for message in messages:
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        return _Records(digests, offsets, payload_bytes)
                    if error.fatal() or not error.retriable():
                        raise EnvironmentFault(f"{topic}-{partition} at {bootstrap} cannot be read: {error}")
                    continue
                key, value, headers = message.key(), message.value(), message.headers() or ()
                digests.append(hash((key, value, tuple(headers), message.timestamp()[1])))
                offsets.append(message.offset())
                payload_bytes += len(key or b"") + len(value or b"")
                payload_bytes += sum(len(name) + len(content or b"") for name, content in headers)
            if messages:
                deadline = time.monotonic() + PATIENCE_S
            elif wait_ms == _WAIT_MS and time.monotonic() > deadline - PATIENCE_S + _REMOTE_S:
                # Brokers older than Kafka 3.8 cancel a read from remote storage when the request's wait time has
                # passed. Therefore the reader continues with a longer wait time.
                wait_ms = _REMOTE_WAIT_MS
                consumer.close()
                consumer = _consumer(bootstrap, isolation, wait_ms)
                consumer.assign([TopicPartition(topic, partition, offsets[-1] + 1 if offsets else _BEGINNING)])
            elif time.monotonic() > deadline:
                raise EnvironmentFault(f"{topic}-{partition} at {bootstrap} returns nothing for {PATIENCE_S:g} s")
    finally:
        consumer.close()


def _consumer(bootstrap: str, isolation: str, wait_ms: int = _WAIT_MS) -> Any:
    from confluent_kafka import Consumer  # noqa: PLC0415 - a development dependency; the lab otherwise needs none

    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "mirrord-checker",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
            # The consumer recognizes the end of the partition from an empty response. A short wait time makes the
            # broker send such a response promptly.
            "fetch.wait.max.ms": wait_ms,
            "queued.max.messages.kbytes": 65_536,
            # Errors are handled where the records are read. Other log output from librdkafka is not needed.
            "log_level": 2,
        }
    )
