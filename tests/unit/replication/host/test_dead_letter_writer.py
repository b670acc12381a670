"""The answer to a lane about the record that it wants to be parked."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrord.ledger.quarantine import BY_POLICY
from mirrord.model.names import LaneId
from mirrord.replication.dead_letters.records import LetterPlace
from mirrord.replication.dead_letters.topic import NotParked
from mirrord.replication.host import dead_letter_writer
from mirrord.replication.host.dead_letter_writer import AT_ONCE, DeadLetterWriter
from mirrord.replication.host.hosted_lane import HostedLane
from mirrord.replication.lane.dead_letter_signals import Park, ParkAnswer


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (None, ParkAnswer(7, 40)),
        (NotParked("it is full"), ParkAnswer(7, -1, "it is full")),
        (RuntimeError(), ParkAnswer(7, -1, "RuntimeError()")),
    ],
)
async def test_a_lane_learns_where_its_record_is_stored_or_why_it_is_not(
    fault: Exception | None, expected: ParkAnswer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Letters:
        async def keep(self, *asked: object) -> int:
            assert asked == (LetterPlace("orders", 3, 9, LaneId("lane")), b"batch", BY_POLICY, 30)
            if fault is not None:
                raise fault
            return 40

    assert await _asked(Letters(), 1, monkeypatch) == [expected]


async def test_few_records_are_on_their_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Letters:
        under_way = most = 0

        async def keep(self, *_: object) -> int:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            await asyncio.sleep(0)
            self.under_way -= 1
            return 40

    letters = Letters()
    assert len(await _asked(letters, 30, monkeypatch)) == 30
    assert letters.most == AT_ONCE


async def _asked(letters: object, count: int, monkeypatch: pytest.MonkeyPatch) -> list[ParkAnswer]:
    monkeypatch.setattr(dead_letter_writer, "DeadLetters", lambda *_: letters)
    setup: Any = SimpleNamespace(flow=None, source=None, target=None)
    answers: list[ParkAnswer] = []
    lane = SimpleNamespace(source_topic="orders", partition=3, id=LaneId("lane"))
    hosted = cast(Any, SimpleNamespace(lane=lane, tell=answers.append))
    async with asyncio.TaskGroup() as tasks:

        def begin(_: HostedLane, work: Coroutine[Any, Any, None]) -> None:
            tasks.create_task(work)

        one = DeadLetterWriter(setup, begin)
        for _ in range(count):
            one.ask(hosted, Park(7, 9, b"batch", 30))
    return answers
