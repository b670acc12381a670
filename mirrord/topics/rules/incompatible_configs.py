"""Finds configs with which a target topic would refuse, change or remove records that the source topic accepts.

The comparison uses effective configs: a value may be set on the topic or on a broker, or may be Kafka's default. A
config is not compared if one of the clusters does not report it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from mirrord.config.schema import FlowConfig
from mirrord.model.findings import Finding, Severity

BROKER_NAMES = {
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
}
"""The topic configs that are compared, each with the name of the corresponding broker config."""
SHOWN = 3


class TopicPairConfigs(msgspec.Struct, frozen=True):
    """The effective configs of a source topic and of its target topic.

    `own` are the names of the configs that are set on the source topic itself.
    """

    source_topic: str
    target_topic: str
    source: Mapping[str, str]
    target: Mapping[str, str]
    own: frozenset[str] = frozenset()


class _Judged(NamedTuple):
    severity: Severity
    what: str
    do: str


def refusals(flow: FlowConfig, pairs: Iterable[TopicPairConfigs]) -> Iterator[Finding]:
    """Yield one finding for each kind of incompatibility. Each finding names the affected target topics."""
    concerned: dict[_Judged, list[str]] = {}
    for pair in pairs:
        for judged in _judge(pair.source, _will_be(flow, pair)):
            concerned.setdefault(judged, []).append(pair.target_topic)
    for judged, topics in concerned.items():
        more = f" and {len(topics) - SHOWN} more" if len(topics) > SHOWN else ""
        where = f"{flow.target}: topic{'s' if len(topics) > 1 else ''} {', '.join(topics[:SHOWN])}{more}"
        yield Finding(severity=judged.severity, flow=flow.name, where=where, what=judged.what, do=judged.do)


def _will_be(flow: FlowConfig, pair: TopicPairConfigs) -> Mapping[str, str]:
    """Return the configs that the target topic will have after the flow has synced configs.

    If the flow syncs configs, the configs that are set on the source topic itself replace those of the target topic.
    """
    if not flow.sync.configs:
        return pair.target
    kept = [re.compile(pattern) for pattern in flow.sync.exclude_configs]
    carried = {
        key: value
        for key, value in pair.source.items()
        if (key in pair.own or flow.sync.use_defaults_from == "source")
        and not any(pattern.fullmatch(key) for pattern in kept)
    }
    return {**pair.target, **carried}


def _judge(source: Mapping[str, str], target: Mapping[str, str]) -> Iterator[_Judged]:
    if (limits := _numbers("max.message.bytes", source, target)) and limits[1] < limits[0]:
        yield _Judged(
            "warning",
            f"it refuses batches above {limits[1]} bytes, the source accepts {limits[0]}: a larger one halts its lane",
            f"set max.message.bytes={limits[0]}",
        )
    yield from _times(source, target)
    before, after = (side.get("cleanup.policy") for side in (source, target))
    if before and after and ("compact" in before) != ("compact" in after):
        if "compact" in after:
            yield _Judged(
                "warning",
                "it is compacted, the source is not: a record without a key is refused and halts its lane, and all but "
                "the last record of a key are removed",
                f"set cleanup.policy={before}",
            )
        else:
            yield _Judged("note", "it is not compacted, the source is: records with the same key accumulate", "")
    ours, theirs = (side.get("compression.type") for side in (source, target))
    if theirs and ours and theirs not in {"producer", ours}:
        yield _Judged(
            "note",
            f"it recompresses every batch (compression.type={theirs}): records stay the same, bytes do not",
            "set compression.type=producer to save the brokers' time",
        )


def _times(source: Mapping[str, str], target: Mapping[str, str]) -> Iterator[_Judged]:
    if target.get("message.timestamp.type") == "LogAppendTime":
        if source.get("message.timestamp.type") == "CreateTime":
            yield _Judged(
                "warning",
                "it replaces timestamps with the append time (message.timestamp.type): the original ones are lost",
                "set message.timestamp.type=CreateTime",
            )
        return
    for key, side in (("message.timestamp.before.max.ms", "old"), ("message.timestamp.after.max.ms", "ahead")):
        if (limits := _numbers(key, source, target)) and limits[1] < limits[0]:
            yield _Judged(
                "warning",
                f"it refuses records that are more than {limits[1]} ms {side}, the source accepts up to "
                f"{limits[0]} ms: "
                "such a record halts its lane",
                f"set {key}={limits[0]}",
            )


def _numbers(key: str, source: Mapping[str, str], target: Mapping[str, str]) -> tuple[int, int] | None:
    try:
        return int(source[key]), int(target[key])
    except (KeyError, ValueError):
        return None
