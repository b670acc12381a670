"""Compares the age of the records that have not been copied yet with the time for which the target's brokers store the
state of a producer (`producer.id.expiration.ms`). Also compares the clocks of producers and of the target's brokers
with this machine's clock, to the extent that record timestamps allow it."""

import asyncio
from collections.abc import Mapping

from mirrord.config.schema import Config
from mirrord.kafka.client.log_offsets import log_offsets, offsets_at
from mirrord.ledger.state import FlowState
from mirrord.model.findings import Finding
from mirrord.model.names import TopicPartition, state_topic
from mirrord.operations.cluster_survey import FlowSurvey

AHEAD_MS = 2_000
"""A clock is reported if it is ahead of this machine's clock by at least this many milliseconds."""
_HOUR_MS = 3_600_000


async def backlog_findings(
    config: Config, survey: FlowSurvey, state: FlowState | None, remembered_ms: int, now_ms: int
) -> list[Finding]:
    """Return a finding if lanes will copy records that are older than half of `remembered_ms`, the target's
    `producer.id.expiration.ms`.

    The target's brokers may forget a producer if the timestamps of its last batch are older than this time. To be safe,
    mirrord treats a lane as unprotected if it copies records that are older than half of this time. Raises Unreachable
    if a cluster does not answer.
    """
    flow = survey.flow
    partitions = _selected(survey)
    positions = await _positions(config, survey, state, partitions)
    cluster = config.clusters[flow.source]
    ends, young = await asyncio.gather(
        log_offsets(cluster, partitions, "end"), offsets_at(cluster, partitions, now_ms - remembered_ms // 2)
    )
    old: list[TopicPartition] = []
    for partition, position in positions.items():
        first_young = young.get(partition)
        if position < (first_young[0] if first_young else ends.get(partition, 0)):
            old.append(partition)
    if not old:
        return []
    hours = remembered_ms / _HOUR_MS
    shown = ", ".join(str(partition) for partition in sorted(old)[:3])
    more = f" and {len(old) - 3} more" if len(old) > 3 else ""
    return [
        Finding(
            severity="note",
            flow=flow.name,
            where=f"{flow.source}: {shown}{more}",
            what=f"records older than half of the target's producer.id.expiration.ms ({hours:g} h) are not "
            f"copied yet: until they are, {len(old)} lane{'s' if len(old) > 1 else ''} will be "
            "unprotected, and a takeover "
            "waits for lease_ttl + request_timeout",
            do="nothing, or set a longer producer.id.expiration.ms on the target's brokers "
            "while the backlog is being copied",
        )
    ]


async def clock_findings(config: Config, survey: FlowSurvey, now_ms: int) -> list[Finding]:
    """Return findings about clocks that are ahead of this machine's clock. Such clocks are detected by records with
    timestamps in the future. A clock that is behind cannot be detected in this way. Raises Unreachable if a cluster
    does not answer."""
    flow = survey.flow
    findings: list[Finding] = []
    ahead = await offsets_at(config.clusters[flow.source], _selected(survey), now_ms + AHEAD_MS)
    times = {partition: found for partition, found in ahead.items() if found is not None}
    if times:
        partition, (offset, time_ms) = max(times.items(), key=lambda item: item[1][1])
        findings.append(
            Finding(
                severity="warning",
                flow=flow.name,
                where=f"{flow.source}: {partition}, offset {offset}",
                what=f"its time is {(time_ms - now_ms) / 1000:.0f} s ahead of this machine's clock: a producer's clock "
                "is ahead, or this one is behind; the target refuses records that are more than "
                "message.timestamp.after.max.ms "
                "ahead of its own clock",
                do="synchronize the clocks with NTP",
            )
        )
    own = TopicPartition(state_topic(flow.name), 0)
    if own.topic in survey.preview.target.topics:
        # The timestamps in mirrord's own topics are the broker's append times, so they cannot be later than the
        # broker's current time.
        (found,) = (await offsets_at(config.clusters[flow.target], [own], now_ms + AHEAD_MS)).values() or (None,)
        if found is not None:
            what = f"its clock is at least {(found[1] - now_ms) / 1000:.0f} s ahead of this machine's"
            findings.append(
                Finding(
                    severity="warning",
                    flow=flow.name,
                    where=flow.target,
                    what=what,
                    do="synchronize the clocks with NTP",
                )
            )
    if not findings:
        what = "no clock is ahead of this machine's; Kafka does not report whether a broker's clock is behind"
        findings.append(Finding(severity="note", flow=flow.name, where="clocks", what=what))
    return findings


def _selected(survey: FlowSurvey) -> set[TopicPartition]:
    source = survey.preview.source.topics
    return {
        TopicPartition(name, partition)
        for name in survey.preview.plan.targets.values()
        for partition in range(source[name].partitions)
    }


async def _positions(
    config: Config, survey: FlowSurvey, state: FlowState | None, partitions: set[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """Return the source offset at which the lane of each partition resumes, or at which it will begin if it has not run
    yet."""
    flow, source = survey.flow, survey.preview.source.topics
    known: dict[TopicPartition, int] = {}
    for lane in state.lanes.values() if state else ():
        there = source.get(lane.source_topic)
        progress = state.progress.get(lane.key.id) if state else None
        if progress is not None and there is not None and there.topic_id == lane.key.source_topic_id:
            known[TopicPartition(lane.source_topic, lane.partition)] = progress.source_offset
    fresh = partitions - known.keys()
    cluster = config.clusters[flow.source]
    begins: dict[TopicPartition, int] = {}
    if fresh and flow.start == "earliest":
        begins = await log_offsets(cluster, fresh, "start")
    elif fresh and isinstance(flow.start, int):
        found = await offsets_at(cluster, fresh, flow.start)
        begins = {partition: first[0] for partition, first in found.items() if first is not None}
    return {partition: offset for partition, offset in {**begins, **known}.items() if partition in partitions}
