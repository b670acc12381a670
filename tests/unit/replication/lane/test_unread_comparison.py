"""A comparison that cannot be read: it is reported, the lane stops long before sequences repeat, and resumes."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from mirrord.kafka.client.range_reader import ReadFailed
from mirrord.kafka.protocol.sequence import SEQUENCES, nearest
from mirrord.replication.host import retried_reads
from mirrord.replication.host.retried_reads import read_and_tell
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.intake import want_more
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import CheckAnswer, FetchFrom, Input
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.step import step
from mirrord.replication.lane.target import unconfirmed_limit
from tests.fixtures.fake_pipe import as_any, until
from tests.unit.replication.lane.source.test_source_epochs import idle

CORRUPT = 2


def test_the_bound_keeps_sequences_apart() -> None:
    assert unconfirmed_limit.MOST < SEQUENCES // 2
    ordinal = 5 * SEQUENCES + 17
    assert nearest((ordinal + unconfirmed_limit.MOST) % SEQUENCES, ordinal) == ordinal + unconfirmed_limit.MOST


def test_a_lane_stops_and_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    lane, _, _ = idle()
    lane.fetching = False
    lane.comparison.later_pending, lane.comparison.later_question, lane.comparison.later_from = (
        True,
        ask(lane),
        ResumePosition(0, 0, 1),
    )
    assert (lane.phase, lane.acked) == (Phase.COPYING, 6)
    monkeypatch.setattr(unconfirmed_limit, "MOST", 6)
    assert want_more(lane) == []
    assert "ordinals 0 to 5 have been compared" in unconfirmed_limit.line(lane)
    effects = step(lane, 1.0, CheckAnswer(lane.comparison.later_question, 0, 0, 5, "equal"))
    assert [each for each in effects if isinstance(each, FetchFrom)]
    assert unconfirmed_limit.line(lane) == ""


def test_a_lane_below_the_bound_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    lane, _, _ = idle()
    lane.fetching = False
    lane.comparison.later_from = ResumePosition(0, 0, 1)
    monkeypatch.setattr(unconfirmed_limit, "MOST", 7)
    assert [each for each in want_more(lane) if isinstance(each, FetchFrom)]


async def test_a_failure_that_lasts_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retried_reads, "REPORT_AFTER_S", 0.0)
    monkeypatch.setattr(retried_reads, "Backoff", lambda: SimpleNamespace(next_s=lambda: 0.001))
    lane, _, _ = idle()
    question = ask(lane)
    signals: list[Input] = []
    hosted: Any = SimpleNamespace(lane=lane, unread_note="", tell=signals.append)
    broken = True
    checked = CheckAnswer(question, 0, 0, 5, "equal")

    async def read() -> Input:
        if broken:
            raise ReadFailed(CORRUPT)
        return checked

    failed = as_any(partial(CheckAnswer, question, first=0, last=5, outcome="unverifiable"))
    reading = asyncio.create_task(read_and_tell(hosted, question, read, failed))
    await until(lambda: bool(hosted.unread_note))
    assert "cannot be read for their comparison with the source (CORRUPT_MESSAGE)" in hosted.unread_note
    broken = False
    await reading
    assert (signals, hosted.unread_note) == ([checked], "")
