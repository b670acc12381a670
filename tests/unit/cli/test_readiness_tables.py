"""What `mirrord ready` prints."""

import io
import re

from msgspec.structs import replace
from rich.console import Console

from mirrord.cli.readiness_tables import readiness
from mirrord.model.readiness import FlowReadiness, PartitionReadiness, ReadinessReport, SourceHeadroom, TargetHeadroom
from mirrord.recovery.rules.headroom import summary

DAY_S = 86_400.0


def partition(source: SourceHeadroom | None = None, target: TargetHeadroom | None = None) -> PartitionReadiness:
    return PartitionReadiness(
        topic="orders",
        partition=0,
        target_topic="eu.orders",
        state="copying",
        source_offset=10,
        source_end=12,
        seen_ms=50_000,
        lag_records=2,
        lag_s=0.5,
        source_headroom=source,
        target_headroom=target,
    )


def shown(*partitions: PartitionReadiness) -> str:
    flow = FlowReadiness(
        flow="eu-us",
        source="eu",
        target="us",
        ready=True,
        at_ms=51_000,
        grounds="ledger",
        partitions=partitions,
        retention=summary(partitions, 41_000),
    )
    console = Console(file=io.StringIO(), width=200)
    console.print(readiness(ReadinessReport(version="1", ready=True, flows=(flow,)), whole=True))
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_how_long_both_clusters_keep_what_is_needed() -> None:
    target = TargetHeadroom(group="[b]", target_offset=5, offsets=2, left_s=DAY_S, limit_s=2 * DAY_S)
    text = shown(partition(SourceHeadroom(left_s=2 * DAY_S, forecast_s=3_600.0), target))
    assert (
        "retention on eu keeps what has not been copied for at least 2 d 0 h; at the pace of the last hour, for 1 h 00 "
        "min (configs as seen 10.0 s ago)"
    ) in text
    assert (
        "retention on us keeps what groups have not read for at least 1 d 0 h; group [b] in orders-0 is the closest to "
        "the log start, 2 offsets after it\n"
    ) in text
    assert re.search("500 ms +2 d 0 h +1 d 0 h", text), "the row of the partition"


def test_how_long_records_are_kept_may_be_unknown_or_for_ever() -> None:
    unknown = SourceHeadroom(is_known=False, note="retention.ms of the topic was not recorded")
    assert "copied for an unknown time, not known for 1 of 1 partitions: retention.ms of" in shown(partition(unknown))
    assert "has not been copied without a limit (configs" in shown(partition(SourceHeadroom()))
    text = shown(partition(SourceHeadroom(by_size=True)))
    assert "has not been copied whatever its age, unless retention.bytes deletes it earlier (configs" in text
    text = shown(partition(SourceHeadroom(left_s=0.0)), replace(partition(unknown), partition=1))
    assert "has not been copied for no certain time, not known for 1 of 2 partitions: retention.ms" in text
    assert "retention on" not in shown(partition())
