"""Compares both clusters at the end of a chapter with what was written and with what the ledger names.

Topics of which the source keeps every record are compared record by record. A record of a numbered topic may be missing
only if the ledger names its source offset, or if its topic was deleted before it was copied. The ledger may not name a
record that the target holds. There is one exception: if the log cleaner of the source has removed a record that was in
flight during a fault, it is not known which of several records the target holds, and the ledger says `compacted`.
"""

import json
import subprocess
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from bench.faults.storm.load import COMPACT, DOOMED, KEYED
from bench.faults.storm.numbered import Numbered
from bench.faults.storm.watch import Place
from bench.harness.daemon import target_name
from mirrord.lab.copy_checker import TopicPair, compare
from mirrord.ledger.facts.core import LOSSES
from mirrord.model.errors import EnvironmentFault

_GAPS_S = 300.0
_PATIENCE_S = 60.0
_AT_ONCE = 10_000
_LOSS_LISTED = 3
_HARMLESS = frozenset({"control", "aborted"})


class Named(NamedTuple):
    """A range of source offsets that the ledger names."""

    start: int
    end: int
    reason: str


class Account(NamedTuple):
    """How the numbered records of one partition arrived."""

    copied: int = 0
    before: int = 0
    """Records that the source had already deleted when the mirror began."""
    named: int = 0
    """Records that are missing, and that the ledger names."""
    ended: int = 0
    """Records at the end of a deleted topic that are missing."""
    superseded: int = 0
    """Records that the log cleaner of the target may remove, and that are missing."""
    missing: int = 0
    """Records that are missing without any reason."""
    doubled: int = 0
    out_of_order: int = 0
    foreign: int = 0
    """Records that were never written."""
    untrue: int = 0
    """Records that the target holds, although the ledger says that they were not copied."""
    where: tuple[str, ...] = ()
    """The offsets of missing records and of those that the ledger names untruly."""


class Cleaned(NamedTuple):
    """What the log cleaners have left of a compacted topic. None: that log is not compacted."""

    last: Collection[int] | None = None
    """The last number of each key. The target may lack all others."""
    left: Collection[int] | None = None
    """The numbers that the source still has."""


NOTHING_CLEANED = Cleaned()
WRONG = ("missing", "doubled", "out_of_order", "foreign", "untrue")


@dataclass
class Verdict:
    """The outcome of the comparison."""

    records: int = 0
    payload_bytes: int = 0
    partitions: int = 0
    difference: Counter[str] = field(default_factory=Counter[str])
    named: Counter[str] = field(default_factory=Counter[str])
    """Source offsets that the ledger names, by reason."""
    where: list[str] = field(default_factory=list[str])
    """One line for each partition that differs."""


def account(
    acknowledged: tuple[Sequence[int], Sequence[int]],
    written: int,
    found: Sequence[int],
    named: Collection[Named],
    *,
    cleaned: Cleaned = NOTHING_CLEANED,
    deleted: bool = False,
    start: int = 0,
) -> Account:
    """Account for the records of one partition.

    `acknowledged` contains their numbers and offsets, `written` is how many numbers were used, and `found` contains the
    numbers in the target. `start` is where the source's log began when the mirror did.
    """
    offsets = dict(zip(*acknowledged, strict=True))
    counts = Counter(found)
    doubles = _covered((offsets[number] for number in counts if number in offsets), named, {"doubled"})
    tally: Counter[str] = Counter(copied=len(counts))
    missing: list[int] = []
    tally["doubled"] = sum(
        times - 1 for number, times in counts.items() if times > 1 and offsets.get(number) not in doubles
    )
    tally["foreign"] = sum(not 0 <= number < written for number in counts)
    absent = {number: offset for number, offset in offsets.items() if number not in counts}
    reasons = {each.reason for each in named} - {"doubled"}
    explained = _covered(absent.values(), named, reasons)
    furthest = max((offsets[number] for number in counts if number in offsets), default=-1)
    for number, offset in absent.items():
        if offset in explained:
            tally["named"] += 1
        elif offset < start:
            tally["before"] += 1
        elif cleaned.last is not None and number not in cleaned.last:
            tally["superseded"] += 1
        elif deleted and offset > furthest:
            tally["ended"] += 1
        else:
            missing.append(offset)
    tally["missing"] = len(missing)
    untrue = _covered((offsets[each] for each in counts if each in offsets), named, reasons - _HARMLESS)
    if cleaned.left is not None:
        standing = {offsets[each] for each in cleaned.left if each in offsets}
        removed = _covered(untrue - standing, named, {"compacted"})
        untrue -= removed - _covered(untrue, named, reasons - {*_HARMLESS, "compacted"})
    tally["untrue"] = len(untrue)
    tally["out_of_order"] = _out_of_order([offsets[number] for number in found if number in offsets])
    where = (("missing", missing), ("untrue", untrue))
    return Account(**tally, where=tuple(f"{what}: {_ranges(which)}" for what, which in where if which))


def _ranges(offsets: Iterable[int]) -> str:
    """Return offsets as ranges [start, end)."""
    ranges: list[list[int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset:
            ranges[-1][1] += 1
        else:
            ranges.append([offset, offset + 1])
    return " ".join(f"[{start}, {end})" for start, end in ranges)


def _covered(offsets: Iterable[int], named: Collection[Named], reasons: Collection[str]) -> set[int]:
    """Return the offsets that are in a range with one of these reasons."""
    ranges = sorted((each.start, each.end) for each in named if each.reason in reasons)
    covered: set[int] = set()
    at = 0
    for offset in sorted(offsets):
        while at < len(ranges) and ranges[at][1] <= offset:
            at += 1
        if at < len(ranges) and ranges[at][0] <= offset:
            covered.add(offset)
    return covered


def _out_of_order(offsets: Iterable[int]) -> int:
    furthest, count = -1, 0
    for offset in offsets:
        count += offset < furthest
        furthest = max(furthest, offset)
    return count


def last_of_keys(topic: Numbered, acknowledged: tuple[Sequence[int], Sequence[int]]) -> set[int]:
    """Return the acknowledged number of each key that has the highest offset."""
    last: dict[bytes | None, tuple[int, int]] = {}
    for number, offset in zip(*acknowledged, strict=True):
        key = topic.key(number)
        last[key] = max(last.get(key, (-1, -1)), (offset, number))
    return {number for _, number in last.values()}


def judge(
    source: str, target: str, exact: Iterable[str], numbered: Mapping[str, Numbered], standing: Collection[str],
    starts: Mapping[Place, int], conf: Path,
) -> Verdict:  # fmt: skip
    """Compare everything. Raises EnvironmentFault."""
    verdict, named = Verdict(), named_by_ledger(conf)
    for ranges in named.values():
        for each in ranges:
            verdict.named[each.reason] += each.end - each.start
    pairs = [TopicPair(topic, target_name(topic)) for topic in exact]
    comparison = compare(source, target, pairs)
    verdict.records, verdict.payload_bytes = comparison.records, comparison.payload_bytes
    verdict.partitions = len(comparison.partitions)
    verdict.difference.update(comparison.difference._asdict())
    if not comparison.is_exact:
        verdict.where += comparison.describe().splitlines()
    for (topic, partition), ranges in named.items():
        untrue = [each for each in ranges if each.reason in {*LOSSES, "doubled"}]
        if topic in exact and untrue:
            verdict.difference["untrue"] += sum(each.end - each.start for each in untrue)
            verdict.where.append(f"{topic}-{partition}: the ledger names {untrue}")
    for topic in numbered.values():
        if topic.name not in exact:
            sides = source, target
            _judge_numbered(topic, sides, named, starts, verdict, deleted=topic.name not in standing)
    verdict.difference = +verdict.difference
    return verdict


def _judge_numbered(
    topic: Numbered,
    sides: tuple[str, str],
    named: Mapping[Place, Sequence[Named]],
    starts: Mapping[Place, int],
    verdict: Verdict,
    *,
    deleted: bool,
) -> None:
    for partition in range(topic.partitions):
        acknowledged = topic.acknowledged.get(partition, (array("q"), array("q")))
        found = read_numbers(sides[1], target_name(topic.name), partition)
        cleaned = Cleaned(
            last_of_keys(topic, acknowledged) if topic.name == KEYED else None,
            read_numbers(sides[0], topic.name, partition) if topic.settings == COMPACT else None,
        )
        ranges = named.get((topic.name, partition), ())
        written, start = topic.written.get(partition, 0), starts.get((topic.name, partition), 0)
        found_out = account(acknowledged, written, found, ranges, cleaned=cleaned, deleted=deleted, start=start)
        verdict.partitions += 1
        verdict.records += len(acknowledged[0])
        wrong = {kind: count for kind in WRONG if (count := getattr(found_out, kind))}
        verdict.difference.update(wrong)
        for kind in ("named", "ended"):
            group = "deleted topics" if topic.name.startswith(DOOMED) else topic.name
            verdict.named[f"{kind} in {group}"] += getattr(found_out, kind)
        if wrong:
            verdict.where.append(f"{topic.name}-{partition}: {found_out}; the ledger names {list(ranges)}")


def named_by_ledger(conf: Path) -> dict[Place, list[Named]]:
    """Return all ranges that `mirrord gaps --all` lists, by source partition. Raises EnvironmentFault."""
    command = [sys.executable, "-m", "mirrord.cli.main", "gaps", str(conf), "--all", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_GAPS_S, check=False)
    if done.returncode not in {0, _LOSS_LISTED}:
        raise EnvironmentFault(f"gaps ends with {done.returncode}: {done.stdout}{done.stderr}")
    return named_in(json.loads(done.stdout))


def named_in(document: Mapping[str, Any]) -> dict[Place, list[Named]]:
    """Return the ranges in a document that `mirrord gaps` has printed, by source partition."""
    named: defaultdict[Place, list[Named]] = defaultdict(list)
    for each in document["gaps"]:
        named[each["topic"], each["partition"]].append(Named(each["start"], each["end"], each["reason"]))
    return dict(named)


def read_numbers(bootstrap: str, topic: str, partition: int) -> "array[int]":
    """Return the numbers in a partition of the target, which may not exist. Raises EnvironmentFault."""
    numbers = array("q")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "storm", "enable.auto.commit": False, "log_level": 2,
            "enable.partition.eof": True, "isolation.level": "read_uncommitted", "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    try:
        known = consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions
        if partition not in known:
            return numbers
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            # `consume` alone would wait until it has the full number of records.
            first = consumer.poll(_PATIENCE_S)
            if first is None:
                raise EnvironmentFault(f"{topic}-{partition} returns nothing for {_PATIENCE_S:g} s")
            for message in (first, *consumer.consume(_AT_ONCE, 0)):
                error = message.error()
                if error is None:
                    numbers.append(int(message.value() or b"-1"))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return numbers
                elif error.fatal() or not error.retriable():
                    raise EnvironmentFault(f"{topic}-{partition} cannot be read: {error}")
    finally:
        consumer.close()
