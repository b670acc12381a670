"""Writes verdicts on lost records to the ledger. The records are lost because they had not been copied when their
source topic was deleted. They are lost even if a topic with the same name has been created since."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from msgspec.structs import replace

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.source_ends import (
    CopiedPart,
    ended_lanes,
    has_begun,
    lane_end,
    left_behind,
    merged_losses,
    settled_records,
)
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, TopicId
from mirrord.replication.lane.assignment import ReplicatorReport, longer_times, longest_s
from mirrord.supervision.rules.unrecorded_copies import Written, is_final, is_plan_open, settled_by
from mirrord.supervision.shared_services import Services
from mirrord.supervision.unrecorded_copies import BatchQuestion, batch_question
from mirrord.topics.discovery import Discovered
from mirrord.topics.rules.ledger_start_evidence import start_offsets
from policies.flow_policies import selection_of

_NO_SUCH_TOPIC = ErrorCode.name_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

log = structlog.get_logger()


@dataclass
class _Ended:
    """A lane of a deleted topic that no replicator hosts any longer."""

    grant: int
    since: float
    """The time on the monotonic clock at which the lane was first seen without a host."""
    settled: CopiedPart | None = None
    """What the lane has copied, or None if this is not known yet."""
    failures: int = 0
    """How often the target partition could not be read."""


class DeletedTopicLosses:
    """Tracks the topics of one flow that the ledger contains but the source no longer lists.

    A topic that is missing from the list of all topics may still exist. mirrord may lack the permission to see it, or
    the broker's metadata may lag. Therefore, mirrord asks the source about the topic by name. The topic counts as
    deleted only if the source answers that it does not exist.
    """

    def __init__(self, services: Services) -> None:
        runtime = services.config.runtime
        self._clock = services.clock
        self._times = (runtime.lease_ttl_ms, runtime.request_timeout_ms)
        self._find_written = services.find_written
        self.hidden: dict[str, str] = {}
        """Selected topics that mirrord is no longer permitted to see, with one line for operators about each."""
        self._absent: set[str] = set()
        self._ended: dict[LaneId, _Ended] = {}

    async def record_lost(
        self,
        flow: FlowConfig,
        recorder: Recorder,
        source: TopicAdmin,
        found: Discovered,
        reports: Iterable[ReplicatorReport],
    ) -> None:
        """Append verdicts on the records that had not been copied when their topics were deleted.

        Verdicts that cannot be recorded now are recorded by a later call.
        """
        state, shown = recorder.state, found.source.topics
        hosted = {lane.lane for report in reports for lane in report.lanes}
        try:
            await self._ask(flow, state, source, shown)
        except EnvironmentFault:
            return  # `ClusterWatch` reports that the source does not answer

        def is_gone(topic: str, topic_id: TopicId) -> bool:
            return shown[topic].topic_id != topic_id if topic in shown else topic in self._absent

        lanes = [lane for lane in ended_lanes(state, is_gone, hosted) if has_begun(state, lane)]
        await self._settle(flow, state, lanes, found.target.topics)
        await self._record(flow, recorder, hosted, is_gone)

    async def _settle(
        self, flow: FlowConfig, state: FlowState, lanes: Sequence[LaneState], targets: Mapping[str, Topic]
    ) -> None:
        """Find out what these lanes have copied. The progress record of a lane that was not drained is up to a second
        older than the last batch, and batches in flight may still arrive. The target is therefore read, but not before
        the former holder can no longer write."""
        now = self._clock.monotonic()
        known, self._ended = self._ended, {}
        questions: list[BatchQuestion] = []
        for lane in lanes:
            lane_id, progress = lane.key.id, state.progress.get(lane.key.id)
            ended = known.get(lane_id)
            if ended is None or ended.grant != lane.grant:
                ended = _Ended(lane.grant, now)
            self._ended[lane_id] = ended
            position = state.standing(lane_id).position
            is_at_end = lane_end(state, lane) <= position and not is_plan_open(lane, progress)
            if ended.settled is not None or is_at_end:
                continue
            target = targets.get(lane.target_topic)
            if is_final(lane, progress):
                ended.settled = CopiedPart(position)
            elif target is None or target.topic_id != lane.key.target_topic_id:
                ended.settled = settled_by(lane, progress, position, Written(trouble=f"{lane.target_topic} is gone"))
            elif now - ended.since >= longest_s(longer_times(self._times, lane.times)):
                questions.append(batch_question(lane, progress))
        if not questions:
            return
        # Not all partitions may be read in one call. Those that cannot be read must not delay the others indefinitely.
        questions.sort(key=lambda each: self._ended[each.lane].failures)
        try:
            found = await self._find_written(flow, questions)
        except EnvironmentFault as error:
            log.info("losses_not_known_yet", flow=flow.name, partitions=len(questions), reason=str(error))
            return
        for lane_id, written in found.items():
            self._ended[lane_id].failures += written is None
            if written is not None and (lane := state.lanes.get(lane_id)) is not None:
                progress, position = state.progress.get(lane_id), state.standing(lane_id).position
                self._ended[lane_id].settled = settled_by(lane, progress, position, written)

    async def _record(
        self, flow: FlowConfig, recorder: Recorder, hosted: set[LaneId], is_gone: Callable[[str, TopicId], bool]
    ) -> None:
        state = recorder.state
        start_offset = start_offsets(state, flow.start_at)

        def settled(lane: LaneState) -> CopiedPart | None:
            ended = self._ended.get(lane.key.id)
            return None if ended is None else ended.settled

        def or_recorded(lane: LaneState) -> CopiedPart:
            return settled(lane) or CopiedPart(state.standing(lane.key.id).position)

        await recorder.save(self._copied_all(state))
        verdicts = left_behind(state, is_gone, hosted, start_offset, settled)
        for fact in verdicts:
            lost = ", ".join(f"[{each.start}, {each.end})" for each in fact.verdicts)
            log.error("records_lost", flow=flow.name, lane=fact.lane, source_offsets=lost, line=fact.note)
        await recorder.write(verdicts)
        unrecorded = left_behind(state, is_gone, (), start_offset, or_recorded)
        unsettled = [*(hosted & state.lanes.keys()), *(each.lane for each in unrecorded)]
        kept, removed = settled_records(state, is_gone, unsettled, start_offset, self._clock.wall_ms())
        for record in kept:
            if record.source is not None:
                line, source = "the topic was deleted before any of these records was copied", record.source
                ranges = {"ends": source.ends, "starts": source.starts}
                log.error("records_lost", flow=flow.name, topic=source.topic, **ranges, line=line)
        merged, counted = merged_losses(state, state.lease_epoch)
        if await recorder.save([*kept, *merged]):
            await recorder.remove([*removed, *counted])

    def _copied_all(self, state: FlowState) -> list[Progress]:
        """Return progress records for the lanes that have copied everything, although their progress records do not
        show this. A daemon that starts later no longer has to read the target, which may have removed the batches."""
        found: list[Progress] = []
        for lane_id, ended in self._ended.items():
            lane, progress, copied = state.lanes.get(lane_id), state.progress.get(lane_id), ended.settled
            if lane is None or progress is None or copied is None or copied.missing:
                continue
            if progress.source_offset < copied.position and lane_end(state, lane) <= copied.position:
                found.append(replace(progress, lease_epoch=state.lease_epoch, source_offset=copied.position))
        return found

    async def _ask(self, flow: FlowConfig, state: FlowState, source: TopicAdmin, shown: Mapping[str, Topic]) -> None:
        known = {lane.source_topic for lane in state.lanes.values()}
        ends = (each.source for each in state.source_ends.values())
        known |= {source.topic for source in ends if source is not None and not source.lost and source.seen is None}
        self._absent = (self._absent & known) - shown.keys()
        missing = known - shown.keys() - self._absent
        seen = await source.describe(missing) if missing else None
        refused = {} if seen is None else {name: why for name, why in seen.refused.items() if name not in seen.topics}
        self._absent |= {name for name, why in refused.items() if why == _NO_SUCH_TOPIC}
        selection = selection_of(flow)
        hidden = {
            name: f"{flow.source} no longer shows {name} ({why}), so none of its records are copied: allow READ on it"
            for name, why in refused.items()
            if why != _NO_SUCH_TOPIC and selection.refusal(name) is None
        }
        for name in hidden.keys() - self.hidden.keys():
            log.warning("topic_hidden", flow=flow.name, topic=name, reason=hidden[name])
        self.hidden = hidden
