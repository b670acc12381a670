"""Where lanes begin behind topics that were deleted and created again."""

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from mirrord.flow.signals import AskStart, StartTold
from mirrord.model.assignment import FlowSetup
from mirrord.model.config import ClusterConfig, FlowConfig, RuntimeConfig
from mirrord.model.config_units import Start
from mirrord.model.names import ClusterId, LaneId, TopicId
from mirrord.model.security import Security
from mirrord.shell.inheritance import Sides
from mirrord.shell.metadata import PartitionId
from mirrord.shell.starts import Before, Starts
from tests.fixtures.fake_pipe import as_any

SOURCE, TARGET = PartitionId("orders", TopicId("s"), 0), PartitionId("eu.orders", TopicId("t"), 0)


class Asks:
    """A source whose log begins at an offset, or that does not answer."""

    def __init__(self, log_start: int, error: int) -> None:
        self.log_start, self.error = log_start, error
        self.asked: list[Start] = []

    def start(self, partition: PartitionId, start: Start, told: Callable[[int, int], None]) -> None:
        assert partition is SOURCE
        self.asked.append(start)
        told(self.error, self.log_start)


async def begin(before: Before, log_start: int = 20, error: int = 0) -> tuple[int, int]:
    """What a lane is told, whose flow begins at the end: error and offset."""
    flow = FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",), start="latest")
    cluster = ClusterConfig(("host:1",), Security())
    setup = FlowSetup(flow, cluster, cluster, RuntimeConfig(), 1, ClusterId("a"), ClusterId("b"))
    asks = Asks(log_start, error)
    sides = Sides(as_any(None), as_any(asks), as_any(None))
    told: list[StartTold] = []
    await Starts(setup, sides, sides, as_any(None)).find(
        AskStart(1), LaneId("lane"), SOURCE, TARGET, told.append, before
    )
    assert asks.asked == ["earliest"]
    return told[0].error, told[0].offset


async def test_a_source_topic_that_was_created_again_begins_at_its_first_offset() -> None:
    assert await begin(Before(source=True)) == (0, 20)


@pytest.mark.parametrize(("copied_from", "begins"), [(50, 50), (7, 20)], ids=["it-is-there", "the-source-lost-it"])
async def test_a_copy_that_was_created_again_begins_where_the_former_one_did(copied_from: int, begins: int) -> None:
    with capture_logs() as events:
        assert await begin(Before(copied_from=copied_from)) == (0, begins)
    (event,) = events
    assert (event["event"], event["from_source_offset"], event["first_copied"]) == ("copied_again", begins, copied_from)


def test_a_topic_begins_where_the_first_rule_that_names_it_says() -> None:
    rules: dict[str, Start] = {"orders": 7, "order.*": "earliest"}
    flow = FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",), start="latest", start_of=rules)
    assert [flow.start_at(topic) for topic in ("orders", "orders-2", "my-orders")] == [7, "earliest", "latest"]


async def test_a_source_that_does_not_answer_is_asked_again() -> None:
    with capture_logs() as events:
        assert await begin(Before(copied_from=7), error=6, log_start=-1) == (6, -1)
    assert not events
