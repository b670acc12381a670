"""The client quotas of the source are read once a minute, and no failure of that has an effect on anything else."""

import pytest
from structlog.testing import capture_logs

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.admin_requests import NotOffered
from mirrord.kafka.client.config_and_acl_admin import RequestRefused
from mirrord.ledger.last_seen.quotas import SeenQuotas, seen_quotas
from mirrord.model.names import ClusterId
from mirrord.model.quotas import ClientQuota
from mirrord.supervision.source_quotas import EVERY_S, SourceQuotas
from tests.fixtures.clock import FakeClock
from tests.fixtures.supervision import FakeCluster, FakeUpkeep
from tests.fixtures.upkeep import Book, book

FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",))
QUOTA = ClientQuota((("user", "ada"),), "producer_byte_rate", 1.0)
OTHER = ClientQuota((("user", None),), "producer_byte_rate", 2.0)


class FaultySource(FakeUpkeep):
    """A source that answers with an error if one is set."""

    fault: Exception | None = None

    async def quotas(self) -> frozenset[ClientQuota]:
        if self.fault is not None:
            raise self.fault
        return await super().quotas()


class Reading:
    """The quotas of a source that are read at times which a test chooses."""

    def __init__(self, ledger: Book) -> None:
        self.clock = FakeClock()
        self.cluster = FakeCluster(ClusterId("eu-id"), quotas={QUOTA})
        self.source = FaultySource(self.cluster)
        self._ledger = ledger
        self._quotas = SourceQuotas(FLOW, self.source, self.clock)

    async def after(self, seconds: float) -> SeenQuotas:
        self.clock.now += seconds
        self.clock.wall += int(seconds * 1000)
        await self._quotas.round(self._ledger.recorder)
        return seen_quotas(self._ledger.state)


async def test_quotas_are_read_at_most_once_a_minute() -> None:
    async with book() as ledger:
        reading = Reading(ledger)
        first = reading.clock.wall
        assert await reading.after(0) == SeenQuotas(first, frozenset({QUOTA}))
        reading.cluster.quotas.add(OTHER)
        assert (await reading.after(EVERY_S - 1)).quotas == {QUOTA}
        assert await reading.after(1) == SeenQuotas(first + 60_000, frozenset({QUOTA, OTHER}))


@pytest.mark.parametrize("fault", [RequestRefused("not authorized"), NotOffered("too old")])
async def test_what_the_source_refuses_is_recorded(fault: Exception) -> None:
    async with book() as ledger:
        reading = Reading(ledger)
        reading.source.fault = fault
        assert await reading.after(0) == SeenQuotas(refused=f"those of eu cannot be read: {fault}")
        reading.source.fault = None
        assert await reading.after(EVERY_S) == SeenQuotas(reading.clock.wall, frozenset({QUOTA}))


async def test_a_source_that_does_not_answer_stays_as_it_was_seen() -> None:
    async with book() as ledger:
        reading = Reading(ledger)
        seen = await reading.after(0)
        reading.cluster.fail()
        assert await reading.after(EVERY_S) == seen


async def test_an_internal_error_is_logged_and_does_not_end_the_sync() -> None:
    async with book() as ledger:
        reading = Reading(ledger)
        reading.source.fault = ValueError("a mistake")
        with capture_logs() as lines:
            assert await reading.after(0) == SeenQuotas()
        assert [line["event"] for line in lines] == ["quotas_not_read"]
        reading.source.fault = None
        assert (await reading.after(EVERY_S)).quotas == {QUOTA}
