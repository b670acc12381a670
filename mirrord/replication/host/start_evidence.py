"""Gathers the evidence from outside the ledger that decides where a lane without a history starts. The evidence
consists of MirrorMaker 2's positions and of copies in the target that are not in the ledger.

The decision itself is made by `mirrord.topics.rules.partition_start`.
"""

from typing import NamedTuple

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.model.names import LaneId
from mirrord.replication.host.existing_copies import ExistingCopies
from mirrord.replication.host.mm2_takeover import NO_LEGACY, Legacy, Mm2Takeover
from mirrord.topics.rules.partition_start import NO_EVIDENCE, LedgerEvidence, TargetEvidence


class StartEvidence(NamedTuple):
    """The evidence about one lane that was found outside the ledger: the positions of MirrorMaker 2, and copies that
    the ledger does not contain. The evidence decides where a lane without a history starts."""

    legacy: Legacy = NO_LEGACY
    unknown: str = ""
    """An explanation if the target has copies that are not in the ledger and that prevent the lane from starting.
    Otherwise, an empty string."""
    decisive: TargetEvidence = NO_EVIDENCE
    """The part of the evidence that `partition_start` uses for its decision."""


class StartSearch:
    """Searches the target for evidence that decides where the lanes of one flow start."""

    def __init__(self, flow: FlowConfig, inheritance: Mm2Takeover, copies: ExistingCopies) -> None:
        self._flow = flow
        self._inheritance = inheritance
        self._copies = copies

    async def of(self, lane: LaneId, source: PartitionId, target: PartitionId, ledger: LedgerEvidence) -> StartEvidence:
        """Return the evidence for one lane. If the ledger alone decides where the lane starts, nothing is read.

        Raises ReadFailed or EnvironmentFault if the evidence cannot be read at the moment. In that case, the caller
        must call this method again.
        """
        if ledger.is_recreated:
            return StartEvidence()
        legacy = await self._inheritance.of(lane, source, target)
        unknown = await self._copies.of(lane, source, target) if legacy is NO_LEGACY else ""
        if legacy.inherited is not None:
            return StartEvidence(legacy, "", TargetEvidence(legacy.inherited.position))
        if trouble := legacy.trouble or unknown:
            return StartEvidence(legacy, unknown, TargetEvidence(trouble=trouble))
        if self._flow.start_at(source.topic) == "earliest":
            return StartEvidence(legacy)
        if ledger.late:
            begins_anyway = self._flow.on_unknown_copies == "begin"
            is_lost = begins_anyway and bool(await self._copies.line(lane, source, target))
            return StartEvidence(legacy, "", TargetEvidence(has_lost_copies=is_lost))
        has_copied = await self._inheritance.has_copied(source.topic)
        return StartEvidence(legacy, "", TargetEvidence(mm2_copied_topic=has_copied))
