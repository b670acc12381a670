"""Where lanes begin after topics were recreated."""

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from mirrord.config.schema import ClusterConfig, FlowConfig, RuntimeConfig
from mirrord.config.security import Security
from mirrord.config.value_parsers import StartPoint
from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.model.names import ClusterId, LaneId, TopicId
from mirrord.replication.host.mm2_takeover import NO_LEGACY, Legacy, Sides
from mirrord.replication.host.start_evidence import StartSearch
from mirrord.replication.host.start_position import StartPositions
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.replication.lane.signals import AskStart, StartAnswer
from mirrord.topics.rules.partition_start import FixedStart, LedgerEvidence
from tests.fixtures.fake_pipe import as_any

SOURCE, TARGET = PartitionId("orders", TopicId("s"), 0), PartitionId("eu.orders", TopicId("t"), 0)


class Asks:
    """A source whose log begins at an offset, or that does not answer."""

    def __init__(self, log_start: int, error: int) -> None:
        self.log_start, self.error = log_start, error
        self.asked: list[StartPoint] = []

    def start(self, partition: PartitionId, start: StartPoint, answer: Callable[[int, int], None]) -> None:
        assert partition is SOURCE
        self.asked.append(start)
        answer(self.error, self.log_start)


class NoLegacy:
    """A target that MirrorMaker 2 never copied to."""

    async def of(self, *_: object) -> Legacy:
        return NO_LEGACY

    async def has_copied(self, _: str) -> bool:
        return False


class NothingFound:
    """A target without unknown copies."""

    async def of(self, *_: object) -> str:
        return ""


async def begin(
    before: LedgerEvidence,
    log_start: int = 20,
    error: int = 0,
    asks_for: StartPoint = "earliest",
    start: StartPoint = "latest",
) -> tuple[int, int]:
    """The start offset of a lane whose flow has this `start`: error and offset."""
    flow = FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",), start=start)
    cluster = ClusterConfig(("host:1",), Security())
    setup = FlowSetup(flow, cluster, cluster, RuntimeConfig(), 1, ClusterId("a"), ClusterId("b"))
    asks = Asks(log_start, error)
    sides = Sides(as_any(None), as_any(asks), as_any(None))
    answers: list[StartAnswer] = []
    starts = StartPositions(setup, sides, sides, as_any(None))
    starts._search = StartSearch(flow, as_any(NoLegacy()), as_any(NothingFound()))
    await starts.find(AskStart(1), LaneId("lane"), SOURCE, TARGET, answers.append, before)
    assert asks.asked == [asks_for]
    return answers[0].error, answers[0].offset


async def test_a_source_topic_that_was_created_again_begins_at_its_first_offset() -> None:
    assert await begin(LedgerEvidence(source_recreated=True)) == (0, 20)


@pytest.mark.parametrize(("copied_from", "begins"), [(50, 50), (7, 20)], ids=["it-is-there", "the-source-lost-it"])
async def test_a_copy_that_was_created_again_begins_where_the_former_one_did(copied_from: int, begins: int) -> None:
    with capture_logs() as events:
        assert await begin(LedgerEvidence(copied_from=copied_from)) == (0, begins)
    (event,) = events
    assert (event["event"], event["from_source_offset"], event["first_copied"]) == ("copied_again", begins, copied_from)


def test_a_topic_begins_where_the_first_rule_that_names_it_says() -> None:
    rules: dict[str, StartPoint] = {"orders": 7, "order.*": "earliest"}
    flow = FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",), start="latest", start_of=rules)
    assert [flow.start_at(topic) for topic in ("orders", "orders-2", "my-orders")] == [7, "earliest", "latest"]


async def test_a_source_that_does_not_answer_is_asked_again() -> None:
    with capture_logs() as events:
        assert await begin(LedgerEvidence(copied_from=7), error=6, log_start=-1) == (6, -1)
    assert not events


async def test_a_partition_that_was_added_later_begins_at_its_first_offset() -> None:
    assert await begin(LedgerEvidence(late=True)) == (0, 20)
    assert await begin(LedgerEvidence(late=True), start=1_700_000_000_000) == (0, 20)


async def test_a_partition_begins_where_it_ended_at_the_first_look() -> None:
    """`log_start` is the answer to the only request: here the present end of the log."""
    fixed = LedgerEvidence(fixed=FixedStart("latest", 12))
    assert await begin(fixed, log_start=50, asks_for="latest") == (0, 12)
    assert await begin(fixed, log_start=7, asks_for="latest") == (0, 7), "the source lost its end"
    assert await begin(fixed, start="earliest") == (0, 20), "what was asked for since"
    assert await begin(fixed, start=1_700_000_000_000, asks_for=1_700_000_000_000) == (0, 20), "not resolved by it yet"
    assert await begin(LedgerEvidence(), asks_for="latest") == (0, 20)


@pytest.mark.parametrize(("began_at", "begins"), [(50, 50), (7, 20)], ids=["it-is-there", "the-source-lost-it"])
async def test_a_copy_under_another_name_begins_where_the_former_one_did(began_at: int, begins: int) -> None:
    assert await begin(LedgerEvidence(began_at=began_at, late=True)) == (0, begins)
    assert await begin(LedgerEvidence(began_at=began_at), start="earliest") == (0, 20)
