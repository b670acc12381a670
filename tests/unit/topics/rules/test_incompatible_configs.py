"""Which differences of topic configs are reported, as a table."""

import msgspec
import pytest

from mirrord.config.flow_features import SyncConfig
from mirrord.config.schema import FlowConfig
from mirrord.topics.rules.incompatible_configs import TopicPairConfigs, refusals

FULL = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",))
FLOW = msgspec.structs.replace(FULL, sync=SyncConfig(configs=False))
"""It syncs no configs."""
SAME = {
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
    "cleanup.policy": "delete",
    "compression.type": "producer",
}


def hazards_of(source: dict[str, str], target: dict[str, str], flow: FlowConfig = FLOW) -> list[tuple[str, str]]:
    pair = TopicPairConfigs("orders", "eu.orders", SAME | source, SAME | target, frozenset(source))
    return [(finding.severity, finding.what) for finding in refusals(flow, [pair])]


@pytest.mark.parametrize(
    ("key", "source", "target", "severity", "part"),
    [
        ("max.message.bytes", "2000000", "1048588", "warning", "refuses batches above 1048588 bytes"),
        (
            "message.timestamp.type",
            "CreateTime",
            "LogAppendTime",
            "warning",
            "replaces timestamps with the append time",
        ),
        ("message.timestamp.before.max.ms", "9223372036854775807", "86400000", "warning", "86400000 ms old"),
        ("message.timestamp.after.max.ms", "9223372036854775807", "3600000", "warning", "3600000 ms ahead"),
        ("cleanup.policy", "delete", "compact", "warning", "a record without a key is refused"),
        ("cleanup.policy", "delete", "compact,delete", "warning", "a record without a key is refused"),
        ("cleanup.policy", "compact", "delete", "note", "records with the same key accumulate"),
        ("compression.type", "producer", "zstd", "note", "recompresses every batch"),
    ],
)
def test_what_a_target_refuses_or_rewrites(key: str, source: str, target: str, severity: str, part: str) -> None:
    ((found, what),) = hazards_of({key: source}, {key: target})
    assert found == severity
    assert part in what


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ({}, {}),
        ({"max.message.bytes": "1000"}, {}),
        ({"message.timestamp.type": "LogAppendTime"}, {}),
        ({"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete"}),
        ({"compression.type": "lz4"}, {"compression.type": "lz4"}),
        ({"max.message.bytes": "not a number"}, {}),
    ],
)
def test_what_is_no_difference(source: dict[str, str], target: dict[str, str]) -> None:
    assert hazards_of(source, target) == []


def test_an_append_time_takes_any_record_time() -> None:
    target = {"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "1"}
    assert hazards_of({"message.timestamp.type": "LogAppendTime"}, target) == []


def test_a_config_that_is_not_reported_is_not_judged() -> None:
    assert list(refusals(FLOW, [TopicPairConfigs("orders", "eu.orders", SAME, {})])) == []


def test_one_finding_for_all_topics_that_it_concerns() -> None:
    pairs = [TopicPairConfigs(f"t{n}", f"eu.t{n}", SAME, SAME | {"compression.type": "lz4"}) for n in range(5)]
    (finding,) = refusals(FLOW, pairs)
    assert finding.where == "us: topics eu.t0, eu.t1, eu.t2 and 2 more"


def test_settings_that_are_carried_over_are_judged_as_they_will_be() -> None:
    large = {"max.message.bytes": "2000000"}
    assert hazards_of(large, {}, FULL) == []
    assert len(hazards_of(large, {}, FLOW)) == 1
    kept = SyncConfig(exclude_configs=(r"max\.message\.bytes",))
    assert len(hazards_of(large, {}, msgspec.structs.replace(FULL, sync=kept))) == 1
