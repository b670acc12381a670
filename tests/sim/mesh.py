"""Several clusters that copy one partition to each other under one name: each pair of them has a flow each way.

Each flow is a `Story` of its own (real lane, real ledger, all its faults). They meet in the clusters' logs, to which
writers of each cluster append, too.
"""

import random
from dataclasses import replace
from typing import Any

from mirrord.replication.lane.signals import Writer
from mirrord.replication.lane.source.loop_detection import Origins
from tests.sim import toy
from tests.sim.host import LANE, Shape
from tests.sim.scheduler import Story
from tests.sim.source import SourceBatch
from tests.sim.target import FakeTarget, Stored
from tests.sim.truth import Violation

SHAPE = Shape(elections=True, refusals=True, window=4)


class Cluster:
    """The partition's log on one cluster: what flows read from and write into."""

    def __init__(self, name: str, rng: random.Random, first_number: int) -> None:
        self.name = name
        self.rng = rng
        self.target = FakeTarget()
        self.first_number = self.number = first_number
        self.natives: list[int] = []
        """Numbers of the records that were written here, in their order."""
        self.producers = [(-1, -1), (9001, 0), (9002, 0)]
        """Writers that are no lanes: producer id and epoch."""
        self.sequences: dict[int, int] = {}

    # as a source

    start = begin = 0
    keys = 0
    cut = cleaned = expired = frozenset[int]()
    open: dict[int, int] = {}  # noqa: RUF012 -- nobody opens a transaction here
    aborted: tuple[Any, ...] = ()

    @property
    def end(self) -> int:
        return self.target.high_watermark

    @property
    def last_stable(self) -> int:
        return self.end

    @property
    def log(self) -> list[SourceBatch]:
        return [
            SourceBatch(
                each.base,
                each.end - 1,
                list(enumerate(each.numbers, each.base)),
                newest_ms=each.newest_ms,
                epoch=each.leader_epoch,
            )
            for each in self.target.read(0, self.end)
        ]

    @property
    def offset_of(self) -> dict[int, int]:
        """The offset of each record here."""
        return {number: offset for batch in self.log for offset, number in batch.records}

    def wanted(self) -> list[int]:
        """The numbers of the records that were written here; copied records are never copied again."""
        return [
            number for batch in self.log for _, number in batch.records if self.first_number <= number < self.number
        ]

    def append(self, count: int, newest_ms: int, _producer: int = -1) -> None:
        """One of the writers of this cluster writes."""
        broker = self.target.brokers[self.target.leader]
        producer, epoch = self.rng.choice(self.producers)
        numbers = tuple(range(self.number, self.number + count))
        self.number += count
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        self.sequences[producer] = sequence + count
        broker.append(Stored(broker.end, count, producer, epoch, sequence, newest_ms, numbers, broker.epoch))
        self.target.advance()

    def elect(self) -> None:
        """Elect new leaders, as leaders of a target."""

    @property
    def leader_epoch(self) -> int:
        return self.target.epoch

    def diverging(self, _position: int, _epoch: int) -> tuple[int, int]:
        return -1, -1

    def epoch_of(self, offset: int) -> int:
        found = self.target.read(offset, offset + 1)
        return found[0].leader_epoch if found else -1

    def from_offset(self, offset: int) -> list[SourceBatch]:
        return [batch for batch in self.log if batch.last >= offset]

    def has(self, position: int) -> bool:
        return bool(self.target.read(position, self.end))

    def at(self, offset: int) -> int | None:
        found = self.target.read(offset, offset + 1)
        return found[0].numbers[offset - found[0].base] if found and found[0].numbers else None

    def fetch(self, position: int, batches: int, _committed: bool) -> tuple[bytearray, list[tuple[int, int]]]:
        found = [each for each in self.target.read(position, self.end) if each.end <= self.end][:batches]
        return bytearray(b"".join(map(_bytes, found))), []


def _bytes(stored: Stored) -> bytearray:
    return toy.encode(
        stored.base,
        stored.end - 1,
        list(enumerate(stored.numbers, stored.base)),
        newest_ms=stored.newest_ms,
        leader_epoch=stored.leader_epoch,
        producer=(stored.producer, stored.epoch, stored.sequence),
    )


class Mesh:
    """All flows between this many clusters."""

    def __init__(self, seed: int, clusters: int = 2, shape: Shape = SHAPE) -> None:
        self.rng = random.Random(seed)
        names = "ABC"[:clusters]
        self.clusters = [Cluster(name, self.rng, 1000 * (at + 1)) for at, name in enumerate(names)]
        self.stories: dict[tuple[str, str], Story] = {}
        for source in self.clusters:
            for target in self.clusters:
                if source is not target:
                    self._add(source, target, shape)

    def _add(self, source: Cluster, target: Cluster, shape: Shape) -> None:
        story = Story(self.rng.randrange(1 << 40), replace(shape))
        world: Any = story.world
        world.source, world.target = source, target.target
        # A cluster never gives a producer id twice.
        world.producer_ids = 500 + 100 * len(self.stories)
        world.origins = Origins
        world.writers = lambda: self.writers(source)
        self.stories[source.name, target.name] = story
        source_writes = story._write
        story._write = lambda: source_writes() if self.writing else None  # type: ignore[method-assign]

    writing = True

    def writers(self, cluster: Cluster) -> tuple[Writer, ...]:
        """The lanes into a cluster's partition, according to their present ledgers."""
        found: list[Writer] = []
        for (source, target), story in self.stories.items():
            record, progress = story.world.truth.lanes.get(LANE), story.world.progress
            if target != cluster.name or record is None:
                continue
            at = (progress.ordinal, progress.target_offset, progress.leader_epoch) if progress is not None else ()
            found.append(
                Writer(source + target, record.producer_id, record.producer_epoch, record.target_runs.copy(), *at)
            )
        return tuple(found)

    def run(self, steps: int) -> None:
        """This many steps with faults, then a quiet period in which everything must arrive everywhere."""
        for cluster in self.clusters:
            for _ in range(3):
                cluster.append(self.rng.randint(1, 3), self.wall_ms)
        for story in self.stories.values():
            story.world.start_host(former_dead=False)
        stories = list(self.stories.values())
        for _ in range(steps):
            self.rng.choice(stories).step()
            self.check()
        self.settle()

    @property
    def wall_ms(self) -> int:
        return next(iter(self.stories.values())).world.wall_ms

    def settle(self) -> None:
        """No faults and no writers any more."""
        self.writing = False
        stories = list(self.stories.values())
        for cluster in self.clusters:
            cluster.target.refusals_left = 0
        for story in stories:
            story.world.slow_replication = story.world.slow_wire = False
            story.world.saves = 1.0
            story.world.target.learn(story.world.wall_ms)
            for host in story.world.hosts:
                host.paused = False
        for _ in range(20_000):
            if all(story._done() for story in stories):
                break
            story = self.rng.choice(stories)
            story._retire()
            if not any(host.alive for host in story.world.hosts):
                story.world.start_host(former_dead=False)
            choices = story.world.choices()
            if choices:
                story.world.do(self.rng.choice(choices))
                self.check()
            else:
                story._pass_time()
        self.check(final=True)

    def check(self, *, final: bool = False) -> None:
        """Check that no cluster holds a record twice, and at the end each holds all of them, in the order of their
        origin."""
        for cluster in self.clusters:
            numbers = [number for each in cluster.target.brokers[cluster.target.leader].log for number in each.numbers]
            if len(set(numbers)) != len(numbers):
                twice = sorted({number for number in numbers if numbers.count(number) > 1})
                raise Violation(f"cluster {cluster.name} holds twice: {twice}")
            if final:
                self._complete(cluster, numbers)

    def _complete(self, cluster: Cluster, numbers: list[int]) -> None:
        for origin in self.clusters:
            first = 1000 * (self.clusters.index(origin) + 1)
            # Records that were not replicated before another broker became the leader are lost for everyone.
            log = origin.target.brokers[origin.target.leader].log
            wanted = [number for each in log for number in each.numbers if first <= number < origin.number]
            there = [number for number in numbers if first <= number < origin.number]
            if there != wanted:
                halts = [story.world.truth.lanes[LANE].halted for story in self.stories.values()]
                raise Violation(f"cluster {cluster.name} has of {origin.name} {there}, not {wanted}; {halts}")

    def facts(self) -> int:
        """How many entries all ledgers have."""
        return sum(len(story.world.ledger) for story in self.stories.values())
