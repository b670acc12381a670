"""Translates offsets between the two clusters of a flow, for operators and programs. The translation uses the offset
maps in the flow's ledger.

A question gives either an offset or a time. Only a time requires a request to a cluster: the cluster that holds the
partition in the question returns the matching offset.
"""

from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import msgspec

from mirrord.config.fault_text import closest_name
from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.log_offsets import log_offsets, offsets_at
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.offset_map import CopiedPosition, LaneMap, Translation, TranslationKind
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import ConfigError
from mirrord.model.names import Alias, LaneId, TopicPartition


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Asks where a reader of one cluster resumes on the other cluster. Exactly one of `offset` and `time_ms` is set."""

    flow: str
    topic: str
    """Name of the topic on the source, or on the target if `reverse` is set."""
    partition: int
    offset: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None
    """The offset that the reader would read next."""
    time_ms: Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)] | None = None
    """Time in milliseconds since 1970. It selects the offset of the first record whose timestamp is at or after this
    time."""
    reverse: bool = False
    """Whether to translate from the target back to the source."""


class Place(msgspec.Struct, frozen=True):
    """A partition of one cluster."""

    cluster: Alias
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} of {self.cluster}"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The offset at which a reader resumes on the other cluster.

    `here` is the partition in the question, and `there` is the partition on the other cluster. `kind`, `record`,
    `reason` and `ahead` are explained in `mirrord.ledger.offset_map.Translation`.
    """

    flow: str
    here: Place
    there: Place
    kind: TranslationKind
    asked: int
    """The offset in the question, or the offset that was found for the time in the question."""
    offset: int | None
    record: int | None
    reason: str = ""
    ahead: int = 0
    time_ms: int | None = None
    """Timestamp of the record that was found for the time in the question. None if the question gives an offset, or if
    all records are older than the time in the question."""
    line: str = ""
    """The answer as a sentence for operators."""


class Chart(NamedTuple):
    """The state of a flow, as folded from its ledger, and the progress record of each lane. Each lane's records are
    known to have been copied up to the resume position in its progress record."""

    state: FlowState
    progress_by_lane: dict[LaneId, Progress]


async def chart(store: LedgerStore) -> Chart:
    """Return the current state and the progress records from an open ledger store. Raises LedgerUnavailable.

    The progress records are copied before the ledger is read to its end. The entries that are read therefore include
    the intents of all records below the resume positions.
    """
    progress_by_lane = dict(store.state.progress)
    await store.read_to_end()
    return Chart(store.state, progress_by_lane)


async def answer(config: Config, known: Chart, question: Question) -> Answer:
    """Answer a question from the state of its flow's ledger.

    Raises ConfigError if the question names an unknown flow, topic or partition, or gives neither an offset nor a time.
    Raises EnvironmentFault if the question gives a time and the cluster does not answer.
    """
    flow = config.flow(question.flow)
    lane = _lane(known.state, question)
    source = Place(flow.source, lane.source_topic, lane.partition)
    target = Place(flow.target, lane.target_topic, lane.partition)
    here, there = (target, source) if question.reverse else (source, target)
    offset, time_ms = await _offset(config, flow, here, question)
    progress = known.progress_by_lane.get(lane.key.id)
    lane_map = LaneMap(lane, CopiedPosition.by(progress) if progress is not None else None)
    translation = lane_map.to_source(offset) if question.reverse else lane_map.to_target(offset)
    return Answer(
        flow=flow.name,
        here=here,
        there=there,
        kind=translation.kind,
        asked=translation.asked,
        offset=translation.offset,
        record=translation.record,
        reason=translation.reason,
        ahead=translation.ahead,
        time_ms=time_ms,
        line=describe(translation, there),
    )


def describe(translation: Translation, there: Place) -> str:
    """Return a translation as a sentence for operators. `there` is the partition on the other cluster."""
    goes_on = f"resume at offset {translation.offset} of {there}"
    match translation.kind:
        case "exact":
            return f"{goes_on}: this is the same record"
        case "reordered":
            return (
                f"{goes_on}: the same record is at offset {translation.record}, and some records before that one come "
                "after it in the log of the given offset"
            )
        case "not_copied":
            return f"{goes_on}: {_NOT_COPIED.get(translation.reason, _verdict(translation.reason))}"
        case "before_map" if translation.offset is None:
            return "not known: MirrorMaker 2 copied the record there, and its target offset was not recorded"
        case "before_map" if translation.reason == "forgotten":
            return f"{goes_on}: both logs began after the offset when the map was pruned; the map begins there"
        case "before_map":
            return f"{goes_on}: the copy begins there"
        case "at_end":
            missing = f", and {translation.ahead} source offsets before it have not been processed yet"
            behind = missing if translation.ahead else ""
            return f"{goes_on}: nothing after the offset has been copied yet{behind}"
        case "unknown":
            return f"not known: {translation.reason}"


_NOT_COPIED = {
    "pending": "the record will be copied later, after the records that are already there",
    "foreign": "mirrord did not write the record at the offset",
    "truncated": "the source has lost the record and uses its offset again",
}


def _verdict(reason: str) -> str:
    return f"no record at the offset was copied{f' ({reason})' if reason else ''}; this is the next one"


def _lane(state: FlowState, question: Question) -> LaneState:
    """Return the newest lane of the partition in the question. If the topic was deleted and re-created, the ledger
    also contains older lanes of the partition."""

    def name(lane: LaneState, *, reverse: bool) -> str:
        return lane.target_topic if reverse else lane.source_topic

    lanes = sorted(state.lanes.values(), key=lambda lane: lane.age)
    of_topic = [lane for lane in lanes if name(lane, reverse=question.reverse) == question.topic]
    for lane in reversed(of_topic):
        if lane.partition == question.partition:
            return lane
    if of_topic:
        partitions = ", ".join(map(str, sorted({lane.partition for lane in of_topic})))
        raise ConfigError(f"partition {question.partition} of {question.topic} is not copied; these are: {partitions}")
    if any(name(lane, reverse=not question.reverse) == question.topic for lane in lanes):
        side, other = ("source", "without") if question.reverse else ("target", "with")
        raise ConfigError(f"{question.topic} is a topic of the {side}: use `translate` {other} --reverse")
    like = closest_name(question.topic, [name(lane, reverse=question.reverse) for lane in lanes])
    hint = f'; did you mean "{like}"?' if like else ""
    raise ConfigError(f'the ledger of {question.flow} has no topic "{question.topic}"{hint}')


async def _offset(config: Config, flow: FlowConfig, here: Place, question: Question) -> tuple[int, int | None]:
    """Return the offset that must be translated, and the timestamp of its record if the question gives a time."""
    if question.offset is not None:
        return question.offset, None
    if question.time_ms is None:
        raise ConfigError("an offset or a time is needed")
    cluster = config.clusters[flow.target if question.reverse else flow.source]
    partition = TopicPartition(here.topic, here.partition)
    found = await offsets_at(cluster, [partition], question.time_ms)
    if partition not in found:
        raise ConfigError(f"{here} no longer exists, so it cannot be asked for a time")
    first = found[partition]
    if first is not None:
        return first
    ends = await log_offsets(cluster, [partition], "end")
    return ends.get(partition, 0), None


def format_time(time_ms: int) -> str:
    """Return a time as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
