"""The receipt of a failover."""

from pathlib import Path

from mirrord.config.loader import load_file
from mirrord.config.policy_checks import Unjudged
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import LaneTaken, LeaseTaken
from mirrord.ledger.facts.recovery import DoneStep, LostRange, Recovery
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.model.failover import FailoverReceipt
from mirrord.operations.failover_receipt import receipt_lines
from mirrord.supervision.failover.receipt import receipt_of
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

ADA = Origin("ada@host", "fire", 60_000)
LOST = LostRange("orders", 0, 10, 14, 57_700, 12, ((3, 5),), "a doubt")
DONE = Recovery(
    1,
    "source-lost",
    (),
    ADA,
    (DoneStep("stop", ""), DoneStep("groups", "7 positions")),
    True,
    (LOST,),
    2,
    58_000,
    70_000,
)
CONF = """
[clusters.eu]
bootstrap = "eu-1:9092"
[clusters.us]
bootstrap = "us-1:9092,us-2:9092"
[[flows]]
name = "eu-us"
from = "eu"
to = "us"
topics = ["orders"]
"""


def receipt(recovery: Recovery, folder: Path) -> FailoverReceipt:
    path = folder / "conf.toml"
    path.write_text(CONF)
    config = load_file(str(path), Unjudged()).config
    state = FlowState()
    for offset, each in enumerate(
        (entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(opened(0), LaneTaken(lane_id(0), 1, "r-1")))
    ):
        fold(state, each, offset)
    return receipt_of(config.flows[0], config.clusters[config.flows[0].target].bootstrap, state, recovery)


def test_a_receipt_names_what_is_lost_and_what_clients_need(tmp_path: Path) -> None:
    found = receipt(DONE, tmp_path)
    assert (found.outcome, found.lost_records, found.seen_ms, found.finished_ms) == ("complete", 6, 58_000, 70_000)
    assert (found.bootstrap, found.names) == (("us-1:9092", "us-2:9092"), {"orders": "eu.orders"})
    assert list(receipt_lines(found)) == [
        "eu-us: failover 1 (source-lost) is complete",
        "  stop: done",
        "  groups: 7 positions",
        "  1 of 2 partitions were copied completely, as the source was seen 2.0 s before the failover began",
        "  6 offsets are lost",
        "  orders-0: offsets [10, 14), and [3, 5), last seen 2.3 s before the failover began (a doubt)",
        "  clients continue on us: us-1:9092, us-2:9092",
        "  orders is eu.orders",
    ]


def test_unknown_ends_are_shown_as_unknown(tmp_path: Path) -> None:
    lost = LostRange("orders", 0, 10, -1, -1, -1)
    found = receipt(Recovery(1, "source-lost", (), ADA, (), True, (lost,), 1, -1, 70_000), tmp_path)
    lines = list(receipt_lines(found))
    assert found.lost_records is None
    assert "  it is not known how many records of some partitions are lost" in lines
    assert "  orders-0: offsets [10, ?), never seen" in lines
    assert "  0 of 1 partitions were copied completely" in lines


def test_a_cancelled_failover(tmp_path: Path) -> None:
    cancelled = Recovery(3, "planned", ("orders",), ADA, finished_ms=5, cancelled=True, why="producers still write")
    assert list(receipt_lines(receipt(cancelled, tmp_path))) == [
        "1 topics of eu-us: failover 3 (planned) is cancelled: producers still write",
        "  everything is copied as before",
    ]
    assert receipt(Recovery(3, "planned", (), ADA), tmp_path).outcome == "in progress"
