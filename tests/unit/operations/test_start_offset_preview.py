"""What `mirrord start --dry-run` says about where partitions begin: the same decision as a replicator's."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from mirrord.config.schema import FlowConfig
from mirrord.config.value_parsers import StartPoint
from mirrord.ledger.facts.core import (
    AnyFact,
    ConfigChanged,
    CopyInherited,
    LaneOpened,
    LaneTaken,
    LeaseTaken,
    SourceRun,
)
from mirrord.ledger.facts.start_offsets import Selected, TopicStarts
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneKey, TopicId
from mirrord.model.runs import Run
from mirrord.operations.start_offset_preview import Beginning, _Look
from mirrord.replication.host.mm2_takeover import NO_LEGACY, Legacy
from mirrord.replication.host.start_evidence import StartSearch
from mirrord.topics.rules.topic_plan import PlannedLane
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.ledger import FLOW, HOLDER, entry

ORDERS, FORMER, COPY, OTHER = TopicId("orders-id"), TopicId("former-id"), TopicId("copy-id"), TopicId("other-id")
LANE = PlannedLane("orders", LaneKey(ORDERS, 0, COPY), "eu.orders")
SELECTED = ConfigChanged((), selected=Selected(("orders",), (), ""))
FIRST_SEEN = ConfigChanged((), (TopicStarts("orders", ORDERS, "latest", (12,)),))


class Inheritance:
    """What MirrorMaker 2 left."""

    def __init__(self, legacy: Legacy, copied: bool) -> None:
        self.legacy, self.copied = legacy, copied

    async def of(self, *_: object) -> Legacy:
        return self.legacy

    async def has_copied(self, _: str) -> bool:
        return self.copied


class Copies:
    """Records in the target that the ledger does not know."""

    def __init__(self, flow: FlowConfig, line: str) -> None:
        self.flow, self.found = flow, line

    async def of(self, *_: object) -> str:
        return "" if self.flow.on_unknown_copies == "begin" else self.found

    async def line(self, *_: object) -> str:
        return self.found


def copied(source: TopicId = ORDERS, target: TopicId = COPY, name: str = "eu.orders", offset: int = 5) -> list[AnyFact]:
    """A lane that has begun at an offset."""
    lane = LaneKey(source, 0, target).id
    return [
        LaneOpened(lane, "orders", name, 0, 7, 0, "all"),
        LaneTaken(lane, 1, "r"),
        SourceRun(lane, 1, (Run(0, offset),)),
    ]


async def look(
    facts: Iterable[AnyFact] = (),
    *,
    legacy: Legacy = NO_LEGACY,
    copied_by_mm2: bool = False,
    unknown: str = "",
    **settings: Any,
) -> Beginning:
    flow = msgspec.structs.replace(
        FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",), start="latest"), **settings
    )
    state = FlowState()
    for each in (FLOW, LeaseTaken(1, HOLDER, 6_000), *facts):
        assert all(fold(state, entry(each), state.next_offset))
    search = StartSearch(flow, as_any(Inheritance(legacy, copied_by_mm2)), as_any(Copies(flow, unknown)))
    return await _Look(flow, state, search).at(LANE)


@pytest.mark.parametrize(
    ("facts", "start", "note"),
    [
        ((), "latest", "begins at latest"),
        ((), "earliest", "begins at earliest"),
        ((FIRST_SEEN, SELECTED), "latest", "begins at 12, its `start` when it was first seen"),
        ((FIRST_SEEN, SELECTED), 1_700_000_000_000, "begins at 1700000000000"),
        ((SELECTED,), "latest", "added after the flow's first start: begins at its first record"),
        (
            copied(FORMER),
            "latest",
            "the source topic was deleted and re-created: begins at its first record",
        ),
        (
            copied(target=OTHER),
            "latest",
            "the target topic was deleted and re-created: begins at 5, or at the source's log start",
        ),
        (
            [*copied(FORMER), *copied(target=OTHER)],
            "latest",
            "the target topic was deleted and re-created: begins at 5, or at the source's log start",
        ),
        (
            copied(target=OTHER, name="dr-orders"),
            "latest",
            "copied under another name before: begins at 5, or at the source's log start",
        ),
    ],
    ids=[
        "latest",
        "earliest",
        "first-selected",
        "another-start-since",
        "added-later",
        "source-recreated",
        "target-recreated",
        "both-recreated",
        "renamed",
    ],
)
async def test_a_partition_that_begins_by_a_rule_says_which(
    facts: Iterable[AnyFact], start: StartPoint, note: str
) -> None:
    found = await look(facts, start=start)
    assert (found.by, found.position, found.note) == ("start", None, note)


async def test_a_lane_with_a_history_continues() -> None:
    assert (await look(copied(), unknown="never read")).by == "history"


async def test_a_partition_that_mirrormaker_2_copied_begins_where_it_stopped() -> None:
    found = await look(legacy=Legacy(CopyInherited(LANE.lane, 0, 90, 88, 100, 7, "behind", ((3, 5),), ((8, 9),))))
    assert (found.by, found.position, found.said, found.target_end) == ("behind", 88, 90, 100)
    assert (found.doubled_records, found.lacking_records, found.note) == (2, 1, "")
    strange = await look(
        legacy=Legacy(CopyInherited(LANE.lane, 0, 90, -1, 100, 7, "strange"), "the records are others")
    )
    assert (strange.by, strange.position, strange.note) == ("strange", None, "the records are others")


async def test_a_partition_that_waits_says_why() -> None:
    busy = await look(legacy=Legacy(None, "2 workers still copy"))
    assert (busy.by, busy.note) == ("trouble", "2 workers still copy")
    unknown = await look(unknown="copies that the ledger does not know")
    assert (unknown.by, unknown.note) == ("unknown", "copies that the ledger does not know")


async def test_a_partition_that_was_added_after_mirrormaker_2_begins_at_its_first_record() -> None:
    found = await look(copied_by_mm2=True)
    assert found.note == "added after MirrorMaker 2 copied the topic: begins at its first record"


async def test_a_partition_whose_copies_were_lost_is_not_new() -> None:
    found = await look([SELECTED], unknown="copies", on_unknown_copies="begin")
    assert (found.by, found.note) == ("start", "begins at latest")
