"""How much memory does a lane take after its source topic has been deleted?

The ledgers of flows whose topics were created, copied and deleted again are folded in this process, without brokers.
Then the memory is counted that Python has allocated for each lane. Every process that reads a flow's ledger needs this
memory: the supervisor, each replicator and the group follower.
"""

import argparse
import gc
import random
import tracemalloc
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from mirrord.ledger.codec import decode_entry, decode_state, encode_entry, encode_state
from mirrord.ledger.facts.core import (
    AnyFact,
    CopyForgotten,
    Entry,
    FlowOpened,
    Holder,
    LaneOpened,
    LaneTaken,
    LeaseTaken,
    Progress,
    SourceRun,
    TargetRun,
    TopicCreated,
    Verdict,
)
from mirrord.ledger.fold import fold
from mirrord.ledger.prune import FORGOTTEN_KEPT
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import state_key
from mirrord.model.names import ClusterId, LaneId, LaneKey, TopicId
from mirrord.model.runs import Run

LANES = 1_000
COMMITS = 1_000
"""Commits to a partition of a transactional topic. Each gives a run, and a verdict on the marker."""
LONGEST_TRANSACTION = 199
SECONDS_TOGETHER = 100


class GoneLanes(NamedTuple):
    """The memory for lanes of one kind."""

    what: str
    bytes_per_lane: float


class _Ledger:
    """A flow's ledger that is folded as it is written."""

    def __init__(self) -> None:
        self.state = FlowState()
        self.write(FlowOpened("eu-us", ClusterId("source"), ClusterId("target")), epoch=0)
        self.write(LeaseTaken(1, Holder("bench", 0, "bench", ""), 60_000))

    def write(self, *facts: AnyFact, epoch: int = 1) -> None:
        """Fold an entry as a reader does, which shares no object with the writer."""
        fold(self.state, decode_entry(encode_entry(Entry(epoch, 0, facts))), self.state.next_offset)

    def copy(self, number: int, chance: random.Random, commits: int) -> CopyForgotten:
        """Copy a topic with one partition, whose names are as long as usual names and ids."""
        topic = f"orders-of-a-day-{number:06}"
        source, target = (TopicId(f"{side}-topic-id-{number:08}") for side in ("source"[:5], "target"[:5]))
        lane, replicator = LaneKey(source, 0, target).id, f"mirrord/eu-us/replicator-0.g1.1/{number}"
        self.write(TopicCreated(topic, source, f"eu.{topic}", target, 1))
        self.write(LaneOpened(lane, topic, f"eu.{topic}", 0, number, 0, "read_committed"))
        self.write(LaneTaken(lane, 1, replicator, (6_000, 30_000)))
        end = self._commit(lane, chance, commits)
        progress = Progress(
            lane, 1, 1, end, end, 0, end + commits, end + commits, 1_700_000_000_000, 1_700_000_000_000,
            protected=True, state="drained", replicator=replicator,
        )  # fmt: skip
        for _ in range(2):
            record = decode_state(state_key(progress), encode_state(progress))
            self.state.accept_progress(record if isinstance(record, Progress) else progress)
        return CopyForgotten(topic, source, f"eu.{topic}", target)

    def _commit(self, lane: LaneId, chance: random.Random, commits: int) -> int:
        self.write(SourceRun(lane, 1, (Run(0, 0),), epochs=((0, 0),)), TargetRun(lane, 1, 0, 0, 0))
        ordinal = 1_000
        facts: list[AnyFact] = []
        for number in range(commits):
            ordinal += chance.randint(1, LONGEST_TRANSACTION)
            offset = ordinal + number
            facts.append(SourceRun(lane, 1, (Run(ordinal, offset + 1),), (Verdict(offset, offset + 1, "control"),)))
            if len(facts) == SECONDS_TOGETHER:
                self.write(*facts)
                facts.clear()
        self.write(*facts)
        return ordinal


def measure(lanes: int = LANES, seed: int = 1) -> list[GoneLanes]:
    """Measure all kinds of lanes."""
    few = max(1, lanes // 20)
    return [
        GoneLanes("without gaps", _bytes_per_lane(lanes, lambda ledger, number: ledger.copy(number, _chance(seed), 0))),
        GoneLanes(
            f"{COMMITS:,} transactions", _bytes_per_lane(few, lambda ledger, number: _at_rest(ledger, number, seed))
        ),
        GoneLanes("forgotten, its name is known", _bytes_per_lane(FORGOTTEN_KEPT, _forgotten)),
        GoneLanes("forgotten", _bytes_per_lane(lanes, _forgotten, before=3 * FORGOTTEN_KEPT)),
    ]


def _chance(seed: int) -> random.Random:
    return random.Random(seed)


def _at_rest(ledger: _Ledger, number: int, seed: int) -> None:
    known = set(ledger.state.lanes)
    ledger.copy(number, _chance(seed + number), COMMITS)
    for lane in ledger.state.lanes.keys() - known:
        ledger.state.lanes[lane].rest()


def _forgotten(ledger: _Ledger, number: int) -> None:
    """Copy a topic and forget it, as after its deletion on both clusters and the next trim of the ledger."""
    ledger.write(ledger.copy(number, _chance(1), 0))
    ledger.state.forgotten_lanes.clear()


def _bytes_per_lane(lanes: int, copy: Callable[[_Ledger, int], object], before: int = 2) -> float:
    tracemalloc.start()
    try:
        ledger = _Ledger()
        for number in range(before):
            copy(ledger, number)
        gc.collect()
        allocated, _ = tracemalloc.get_traced_memory()
        for number in range(before, before + lanes):
            copy(ledger, number)
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - allocated) / lanes
    finally:
        tracemalloc.stop()


def table_of(found: Sequence[GoneLanes]) -> Table:
    """Return the table that `main` prints."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("lane of a deleted topic")
    table.add_column("bytes in each process", justify="right")
    for each in found:
        table.add_row(each.what, f"{each.bytes_per_lane:,.0f}")
    return table


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.gone_lanes", description=__doc__)
    parser.add_argument("--lanes", type=int, default=LANES, help="lanes of each kind (default: %(default)s)")
    arguments = parser.parse_args()
    Console(highlight=False).print(table_of(measure(arguments.lanes)))
    return 0
