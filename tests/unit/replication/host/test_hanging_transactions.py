"""Transactions on the source that no producer ends: when a lane reports one, and how."""

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrord.cli.status_tables import status_table
from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.primitives import Reader
from mirrord.kafka.protocol.producer_ids import ActiveProducer
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, TopicId
from mirrord.model.open_transaction import OpenTransaction
from mirrord.replication.host.hanging_transactions import OpenTransactions
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.source.last_stable_offset import StableEnd
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.full_status import FULL

LANE = LaneId("a.0.b")
OPEN = ActiveProducer(4711, 3, 9, 1_000, 0, 50)
LATER = ActiveProducer(4712, 0, 9, 1_000, 0, 60)
IDLE = ActiveProducer(4713, 0, 9, 1_000, 0, -1)
LISTED = bytes.fromhex("00000000000001020b7061796d656e74732d310000000000001267084f6e676f696e670000")
"""payments-1 of producer 4711, Ongoing."""


def test_an_end_that_stands_still_is_waited_for_from_when_it_was_first_seen() -> None:
    stable = StableEnd()
    stable.note(50, 60, 10.0)
    stable.note(50, 90, 30.0)
    assert stable.waited_s(50, 40.0) == 30.0
    assert stable.waited_s(49, 40.0) == 0.0, "it copies on in front of it"
    stable.note(70, 90, 41.0)
    assert stable.waited_s(70, 45.0) == 4.0, "another transaction"
    stable.note(90, 90, 46.0)
    assert stable.waited_s(90, 99.0) == 0.0


@pytest.mark.parametrize("ends", [(-1, 90), (90, 90), (-1, -1)])
def test_an_end_that_holds_nobody(ends: tuple[int, int]) -> None:
    stable = StableEnd()
    stable.note(*ends, 0.0)
    assert stable.waited_s(1_000, 100.0) == 0.0
    assert stable.offset == -1


class Rig:
    """One lane at offset 50, a source that answers as the test says, and a clock that the test controls."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.answer: tuple[int, tuple[ActiveProducer, ...]] = (0, (IDLE, LATER, OPEN))
        self.asked = 0
        self.brokers: dict[int, bytes] = {1: b"", 2: b""}
        """What each broker answers to ListTransactions; empty: it is down."""
        view = SimpleNamespace(nodes=[1, 2], link=lambda node, _purpose: SimpleNamespace(get=lambda: self._get(node)))
        asks = SimpleNamespace(view=view, producers=self._producers, begin=self._begin)
        self.work: list[Any] = []
        clock = SimpleNamespace(wall_ms=lambda: int(self.now * 1000))
        self.found = OpenTransactions(as_any(asks), as_any(clock), 60.0, lambda: self.now)
        self.stable = StableEnd()
        self.stable.note(50, 90, self.now)
        lane = SimpleNamespace(id=LANE, position=50, phase=Phase.COPYING)
        where = PartitionId("orders", TopicId("S" * 22), 0)
        self.hosted: Any = SimpleNamespace(lane=lane, tap=SimpleNamespace(stable=self.stable), source=where)

    def _producers(self, _partition: PartitionId, tell: Any) -> None:
        self.asked += 1
        tell(*self.answer)

    def _begin(self, work: Any) -> None:
        self.work.append(work)

    def look(self, seconds: float) -> OpenTransaction | None:
        self.now += seconds
        self.found.look([self.hosted])
        return self.found.of(LANE)

    async def _get(self, node: int) -> Any:
        if not self.brokers[node]:
            raise EnvironmentFault("away")
        return SimpleNamespace(version=lambda _api: 0, call=lambda *_: self._called(node))

    async def _called(self, node: int) -> Reader:
        return Reader(self.brokers[node])

    async def name(self, *answers: bytes) -> None:
        """Let the brokers answer with the transactional id."""
        self.brokers = dict(enumerate(answers, 1))
        await self.work.pop()


async def test_it_is_named_once_it_is_waited_for_too_long() -> None:
    rig = Rig()
    assert rig.look(59) is None
    assert rig.asked == 0
    assert rig.look(1) == OpenTransaction(first_offset=50, since_ms=1_000_000)
    with capture_logs() as logs:
        await rig.name(b"", LISTED)
        named = rig.look(1)
        assert named is not None
        assert (named.producer_id, named.producer_epoch, named.last_record_ms) == (4711, 3, 1_000)
        assert (named.transactional_id, named.state, named.since_ms) == ("payments-1", "Ongoing", 1_000_000)
        assert 'producer 4711 epoch 3, transactional id "payments-1", which began at offset 50' in named.line
        rig.look(40)
        await rig.name(LISTED, b"")
        assert rig.asked == 2
        rig.stable.note(90, 90, rig.now)
        assert rig.look(1) is None
    assert [each["event"] for each in logs] == ["open_transaction", "open_transaction_over"], "once, and its end"


async def test_a_source_that_does_not_report_the_producer() -> None:
    rig = Rig()
    rig.answer = (int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), ())
    with capture_logs() as logs:
        found = rig.look(60)
        assert found is not None
        assert "whose producer is not known (the source answers TOPIC_AUTHORIZATION_FAILED)" in found.line
        rig.look(40)
        rig.answer = (0, (LATER,))
        rig.look(40)
    assert [each["event"] for each in logs] == ["open_transaction"] * 2, "once for each reason"


@pytest.mark.parametrize("phase", [Phase.DRAINED, Phase.HALTED, Phase.RESUMING])
async def test_a_lane_that_does_not_copy_waits_for_nothing_there(phase: Phase) -> None:
    rig = Rig()
    rig.hosted.lane.phase = phase
    assert rig.look(600) is None


def test_the_status_table_names_the_producer_of_the_transaction() -> None:
    lines = [str(line) for line in status_table(FULL).renderables]  # type: ignore[attr-defined]
    (line,) = [line for line in lines if "has been waiting" in line]
    assert (
        "orders-0 has been waiting[/] since 1970-01-01 00:00:00Z for the transaction of producer 4711 epoch 2" in line
    )
