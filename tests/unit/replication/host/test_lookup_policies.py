"""Lookups of records that a compacted target lacks, for a flow with a filter or a transform."""

import pytest

from mirrord.ledger.facts.core import SourceRun
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.fixtures.superseded_logs import FakeLog, lookup, written
from tests.unit.replication.host.test_record_policies import SAMPLE, shaping
from tests.unit.replication.lane.test_rebuilding import LANE, Play

pytestmark = pytest.mark.usefixtures("known_ends")

HOUR_MS = 3_600_000
"""The transform `Upper` adds this to the time of each record."""


def mapped(*runs: Run) -> LaneRecord:
    """Return a lane's record with these source runs."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, runs or (Run(0, 0),)))
    return play.record


@pytest.mark.asyncio
@pytest.mark.parametrize(("time_ms", "until"), [(1_000, -1), (HOUR_MS, -1), (HOUR_MS + 1_000, 1)])
async def test_a_record_is_superseded_only_by_one_that_is_not_older_than_its_copy(time_ms: int, until: int) -> None:
    """LOST VALUE. A former holder ended before it copied the record. Another client wrote a record of the key."""
    source = FakeLog([written(0, "a")], 1, 1)
    target = FakeLog([written(3, "a", time_ms=time_ms)], 4, 4)
    asked = AskSuperseded(1, (Missing("last", 0, 0, 0, has_room=True),), 4)
    rules = shaping(transform=f"{SAMPLE}:Upper")
    answer = await lookup(source, target, mapped(), rules=rules).run(asked)
    assert (answer.trouble, answer.until) == ("", until)


@pytest.mark.asyncio
@pytest.mark.parametrize(("time_ms", "again"), [(1_000 + HOUR_MS, ()), (1_000, ((0, 0),))])
async def test_a_displaced_record_that_is_in_the_log_again_is_recognized_by_the_time_of_its_copy(
    time_ms: int, again: tuple[tuple[int, int], ...]
) -> None:
    """DOUBLED. A replica whose log had been discarded is the leader."""
    record = mapped()
    source = FakeLog([written(0, "a")], 1, 1)
    own = written(3, "a", leader_epoch=1, producer=(record.producer_id, 0), time_ms=time_ms)
    asked = AskSuperseded(1, (Missing("lost", 0, 0, 9, has_room=False, leader_epoch=1),), 4)
    rules = shaping(transform=f"{SAMPLE}:Upper")
    answer = await lookup(source, FakeLog([own], 4, 4), record, rules=rules).run(asked)
    assert (answer.trouble, answer.again) == ("", again)
